"""Which algorithm a collective uses when the program names none: by the bytes of the full vector."""

from collections.abc import Mapping

from uetproto.api.distributed_errors import invalid
from uetproto.collectives.catalogue import ALGORITHMS

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


def check(algorithm: object) -> dict[str, str]:
    """The algorithm of each operation that a world is asked for: a name is that of all operations that have it."""
    if algorithm is None:
        return {}
    if isinstance(algorithm, str):
        found = {op: algorithm for op, names in ALGORITHMS.items() if names.get(algorithm)}
        if found:
            return found
        raise invalid(
            "algorithm", repr(algorithm), ", ".join(sorted({n for names in ALGORITHMS.values() for n in names}))
        )
    if not isinstance(algorithm, Mapping):
        raise invalid("algorithm", repr(algorithm), "a name, or a dict of operations and names")
    for op, name in algorithm.items():
        if op not in ALGORITHMS:
            raise invalid("algorithm", repr(op), ", ".join(ALGORITHMS))
        check_one(op, name)
    return dict(algorithm)


def check_one(op: str, algorithm: str) -> str:
    """Raises `ArgumentError` if the operation does not have it."""
    legal = [name for name, maker in ALGORITHMS[op].items() if maker]
    if algorithm not in legal:
        raise invalid("algorithm", f"{algorithm!r} of {op}", ", ".join(legal))
    return algorithm


def choose(op: str, size: int, even: bool) -> str:
    """`size`: bytes of the full vector; `even`: all blocks have the same size."""
    small, large = DEFAULTS[op]
    chosen = small if size <= SMALL else large
    return large if not even and chosen in EQUAL_BLOCKS else chosen


__all__ = ["DEFAULTS", "SMALL", "check", "check_one", "choose"]
