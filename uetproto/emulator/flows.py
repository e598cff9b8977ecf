# SPDX-License-Identifier: GPL-2.0-only
"""This module has the traffic patterns by which congestion control is judged (cms.md §11): who sends to whom."""

from collections.abc import Callable
from typing import NamedTuple


class Flow(NamedTuple):
    """A flow is one WRITE from a host to another one."""

    number: int
    source: int
    target: int
    start: int
    """Picoseconds."""
    size: int
    """Bytes."""
    part: str = ""
    """Pattern or file that the flow comes from."""


def incast(hosts: int, size: int) -> list[Flow]:
    """Return a flow from each host of the upper half to host 0."""
    return [Flow(i, host, 0, 0, size) for i, host in enumerate(range(hosts - hosts // 2, hosts), 1)]


def outcast(hosts: int, size: int) -> list[Flow]:
    """Return a flow from host 0 to each host of the upper half."""
    return [Flow(i, 0, host, 0, size) for i, host in enumerate(range(hosts - hosts // 2, hosts), 1)]


def permutation(hosts: int, size: int) -> list[Flow]:
    """Return a flow from each host i to host i + hosts / 2, modulo hosts."""
    return [Flow(i + 1, i, (i + hosts // 2) % hosts, 0, size) for i in range(hosts)]


def all_to_all(hosts: int, size: int) -> list[Flow]:
    """Return a flow from each host to each other host."""
    pairs = [(a, (a + step) % hosts) for step in range(1, hosts) for a in range(hosts)]
    return [Flow(i, a, b, 0, size) for i, (a, b) in enumerate(pairs, 1)]


PATTERNS: dict[str, Callable[[int, int], list[Flow]]] = {
    "incast": incast, "outcast": outcast, "permutation": permutation, "all_to_all": all_to_all,
}  # fmt: skip
