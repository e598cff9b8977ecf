"""Which algorithm a collective uses when the program names none: by the bytes of the full vector."""

from collections.abc import Mapping
from typing import Any

from uetproto.api.distributed.errors import invalid
from uetproto.collectives.algorithms.catalogue import ALGORITHMS
from uetproto.collectives.algorithms.hierarchical import BETWEEN
from uetproto.collectives.offload import Offload

SMALL = 32 << 10
"""Bytes up to which the number of steps counts more than the bytes sent."""

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

EQUAL_BLOCKS = frozenset({"bruck", "doubling"})
"""Algorithms that are not chosen for blocks of different sizes."""


OPTIONS = {  # of `catalogue.schedule`: the algorithms that have them; to others they are nothing
    "channels": ("nccl_tree", "nccl_ring"),
    "slices":   ("tree", "double_tree", "nccl_tree"),
    "sockets":  ("hcoll", "hcoll_sharp"),
    "between":  ("rab", "split_rail", "hcoll"),
}  # fmt: skip


def names(op: str, offload: Offload | None = None) -> tuple[str, ...]:
    """All algorithms of an operation, those of the network among them."""
    own = () if offload is None else tuple(offload.algorithms.get(op, ()))
    return tuple(dict.fromkeys((*(name for name, maker in ALGORITHMS[op].items() if maker), *own)))


def check(algorithm: object, offload: Offload | None = None) -> dict[str, str]:
    """The algorithm of each operation that a world is asked for: a name is that of all operations that have it."""
    if algorithm is None:
        return {}
    if isinstance(algorithm, str):
        found = {op: algorithm for op in ALGORITHMS if algorithm in names(op, offload)}
        if found:
            return found
        legal = ", ".join(sorted({name for op in ALGORITHMS for name in names(op, offload)}))
        op = next((op for op in ALGORITHMS if algorithm in ALGORITHMS[op]), "all_reduce")
        raise invalid("algorithm", repr(algorithm), legal + _cure(op, algorithm))
    if not isinstance(algorithm, Mapping):
        raise invalid("algorithm", repr(algorithm), "a name, or a dict of operations and names")
    for op, name in algorithm.items():
        if op not in ALGORITHMS:
            raise invalid("algorithm", repr(op), ", ".join(ALGORITHMS))
        check_one(op, name, offload)
    return dict(algorithm)


def check_one(op: str, algorithm: str, offload: Offload | None = None) -> str:
    """Raises `ArgumentError` if the operation does not have it."""
    legal = names(op, offload)
    if algorithm not in legal:
        raise invalid("algorithm", f"{algorithm!r} of {op}", ", ".join(legal) + _cure(op, algorithm))
    return algorithm


def _cure(op: str, algorithm: str) -> str:
    """Of an algorithm that other networks do by themselves: what they are."""
    if algorithm not in ALGORITHMS[op]:
        return ""
    return {"multicast": "; multicast over roce"}.get(algorithm, f"; {algorithm} over uet and roce with sharp=True")


def check_options(given: Mapping[str, Any], algorithms: Mapping[str, str]) -> dict[str, Any]:
    """Those that were told. Raises `ArgumentError` for a value that cannot be, and if no algorithm told has it."""
    told = {name: value for name, value in given.items() if value is not None}
    for name, value in told.items():
        if name == "between":
            if value not in tuple(BETWEEN):
                raise invalid(name, repr(value), ", ".join(BETWEEN))
        elif type(value) is not int or value < 1:
            raise invalid(name, repr(value), "a whole number, 1 and more")
        if algorithms and not any(algorithm in OPTIONS[name] for algorithm in algorithms.values()):
            chosen = ", ".join(dict.fromkeys(algorithms.values()))
            raise invalid(name, f"does not go with {chosen}", f"with {', '.join(OPTIONS[name])}")
    return told


def choose(op: str, size: int, even: bool) -> str:
    """`size`: bytes of the full vector; `even`: all blocks have the same size."""
    small, large = DEFAULTS[op]
    chosen = small if size <= SMALL else large
    return large if not even and chosen in EQUAL_BLOCKS else chosen


__all__ = ["DEFAULTS", "OPTIONS", "SMALL", "check", "check_one", "check_options", "choose"]
