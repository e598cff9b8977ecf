"""What theory promises of what switches do: SHARP (sharp.md §4.4) and multicast (collectives.md §3.10.7)."""

from typing import NamedTuple

from uetproto.errors import LocalError

HEADER = 32
"""Bytes of a SHARP message around its operand."""


class SharpCosts(NamedTuple):
    """The symbols of the cost model."""

    levels: int
    """`L`: aggregation nodes from a host to the root."""
    endpoint: float
    """`a_e`: seconds at an end, a step."""
    hop: float
    """`a_l`: seconds of a cable and its switch."""
    reduce: float
    """`a_n`: seconds in an aggregation node."""
    rate: float
    """`B`: bytes a second of a cable."""
    user_data: int = 128
    """`u`: bytes of operand in an outstanding operation."""
    osts: int = 16
    """`W`: outstanding operations."""
    lock: float = 0.0
    """`T_lock`: seconds until a streaming tree is held; 0: it is."""

    @property
    def latency(self) -> float:
        """Up to the root and down again, of a message without bytes."""
        return 2 * self.endpoint + self.levels * (2 * self.hop + self.reduce)


def llt_time(costs: SharpCosts, length: int) -> float:
    """Seconds on a low-latency tree: fragments are a pipeline, as far as outstanding operations go."""
    first = costs.latency + 2 * min(length, costs.user_data) / costs.rate
    fragments = -(-length // costs.user_data) if length else 1
    return first + (fragments - 1) * max((costs.user_data + HEADER) / costs.rate, first / costs.osts)


def sat_time(costs: SharpCosts, length: int) -> float:
    """Seconds on a streaming tree: bytes go up and come down at the same time."""
    return costs.lock + costs.latency + length / costs.rate


def sharp_time(costs: SharpCosts, length: int, threshold: int | None) -> float:
    """Seconds of an all_reduce; vectors from `threshold` bytes on are streamed, with None none is."""
    return llt_time(costs, length) if threshold is None or length < threshold else sat_time(costs, length)


def sharp_levels(hosts: int, radix: int) -> int:
    """`L = ceil(log_r N)`; exact, whatever floating point makes of a logarithm."""
    if hosts < 1 or radix < 2:
        raise LocalError(f"levels: {hosts} hosts, radix {radix}; legal: 1 and more, 2 and more")
    levels, reached = 1, radix
    while reached < hosts:
        levels, reached = levels + 1, reached * radix
    return levels


def sharp_traversals(edges: int, length: int) -> int:
    """`trav` of an all_reduce: every edge of the tree carries the vector up and its result down."""
    return 2 * edges * length


def multicast_traversals(size: int, leaves: int, block: int, roots: int) -> int:
    """`trav` of blocks sent to all on leaf-spine: a copy a link, and none back to its leaf's uplink (§3.10.7)."""
    return roots * block * (size + (leaves if leaves > 1 else 0))


__all__ = [
    "HEADER", "SharpCosts", "llt_time", "multicast_traversals", "sat_time", "sharp_levels", "sharp_time",
    "sharp_traversals",
]  # fmt: skip
