# SPDX-License-Identifier: GPL-2.0-only
"""This module checks the algorithms that a program names, and chooses a default algorithm by the size of the full
vector."""

from collections.abc import Mapping
from typing import Any

from uetproto.api.distributed.errors import invalid, unknown
from uetproto.collectives.algorithms.catalogue import ALGORITHMS, OPTIONS, scheduled
from uetproto.collectives.algorithms.hierarchical import BETWEEN
from uetproto.collectives.offload import Offload

SMALL = 32 << 10
"""A full vector of at most this many bytes gets the default algorithm that takes fewer steps; a larger vector gets the
one that sends fewer bytes."""

DEFAULTS = {  # small, large
    "all_reduce":     ("recursive_doubling", "ring"),
    "reduce_scatter": ("ring",               "ring"),
    "all_gather":     ("bruck",              "ring"),
    "broadcast":      ("binomial",           "binomial"),
    "reduce":         ("binomial",           "binomial"),
    "scatter":        ("binomial",           "linear"),
    "gather":         ("binomial",           "linear"),
    "all_to_all":     ("pairwise",           "pairwise"),
    "barrier":        ("dissemination",      "dissemination"),
}  # fmt: skip


def names(op: str, offload: Offload | None = None) -> tuple[str, ...]:
    """Return the names of all algorithms of the operation `op`, including those that `offload` runs in the network."""
    own = () if offload is None else tuple(offload.algorithms.get(op, ()))
    return tuple(dict.fromkeys((*scheduled(op), *own)))


def check(algorithm: object, offload: Offload | None = None) -> dict[str, str]:
    """Return a map from operations to algorithms, made from the argument `algorithm` of `World`. A single name applies
    to all operations that have an algorithm of this name; with None the map is empty.

    Raises `ArgumentError` for an unknown operation or algorithm.
    """
    if algorithm is None:
        return {}
    if isinstance(algorithm, str):
        found = {op: algorithm for op in ALGORITHMS if algorithm in names(op, offload)}
        if found:
            return found
        legal = sorted({name for op in ALGORITHMS for name in names(op, offload)})
        op = next((op for op in ALGORITHMS if algorithm in ALGORITHMS[op]), "all_reduce")
        raise unknown("algorithm", algorithm, legal, more=_networks_of(op, algorithm))
    if not isinstance(algorithm, Mapping):
        raise invalid("algorithm", repr(algorithm), "a name, or a dict of operations and names", id="wrong-type")
    for op, name in algorithm.items():
        if op not in ALGORITHMS:
            raise unknown("algorithm", op, ALGORITHMS)
        check_one(op, name, offload)
    return dict(algorithm)


def check_one(op: str, algorithm: str, offload: Offload | None = None) -> str:
    """Return the name `algorithm`. Raises `ArgumentError` if the operation `op` has no algorithm of this name."""
    legal = names(op, offload)
    if algorithm not in legal:
        raise unknown("algorithm", algorithm, legal, f"{algorithm!r} of {op}", _networks_of(op, algorithm))
    return algorithm


def _networks_of(op: str, algorithm: str) -> str:
    """Return which networks carry out an algorithm, for an error text."""
    if algorithm not in ALGORITHMS[op]:
        return ""
    return {"multicast": "; multicast over roce"}.get(algorithm, f"; {algorithm} over uet and roce with sharp=True")


def check_options(given: Mapping[str, Any], algorithms: Mapping[str, str]) -> dict[str, Any]:
    """Return the given options, without those that are None.

    Raises `ArgumentError` for an illegal value, and for an option that none of the chosen `algorithms` has.
    """
    chosen_options = {name: value for name, value in given.items() if value is not None}
    for name, value in chosen_options.items():
        if name == "between":
            if value not in tuple(BETWEEN):
                raise unknown(name, value, BETWEEN)
        elif type(value) is not int or value < 1:
            raise invalid(name, repr(value), "a whole number, 1 and more", id="out-of-range")
        if algorithms and not any(algorithm in OPTIONS[name] for algorithm in algorithms.values()):
            chosen = ", ".join(dict.fromkeys(algorithms.values()))
            raise invalid(
                name, f"does not go with {chosen}", f"with {', '.join(OPTIONS[name])}", id="not-with-operation"
            )
    return chosen_options


def choose(op: str, size: int, even: bool) -> str:
    """Return the name of the default algorithm of the operation `op` for a full vector of `size` bytes. `even` says
    whether all blocks have the same size."""
    small, large = DEFAULTS[op]
    chosen = small if size <= SMALL else large
    return large if not even and ALGORITHMS[op][chosen].equal_blocks else chosen
