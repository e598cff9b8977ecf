# SPDX-License-Identifier: GPL-2.0-only
"""Reference values of the pages, against which formulas, schedules and runs are checked."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from uetproto.collectives.algorithms.pattern import steps_for as lg
from uetproto.collectives.algorithms.schedule import Schedule
from uetproto.collectives.costs.formulas import Costs


def rail_bytes(nodes: int, local: int, length: float) -> float:
    """Return the bytes that each rail of split_rail sends between nodes (collectives.md §3.8)."""
    return 2 * (nodes - 1) / nodes * length / local


def lower_bound(op: str, size: int, length: float, costs: Costs) -> float:
    """Return the seconds that every algorithm of messages between ranks needs (collectives.md §2)."""
    most = {"all_reduce": 2 * (size - 1) / size, "all_gather": (size - 1) / size, "broadcast": float(size > 1)}
    return max(most[op] * length * costs.beta, lg(size) * costs.alpha)


def sharp_levels(hosts: int, radix: int) -> int:
    """Return `L = ceil(log_r N)`, computed without floating point."""
    levels, reached = 1, radix
    while reached < hosts:
        levels, reached = levels + 1, reached * radix
    return levels


class LeafSpine(NamedTuple):
    """This record counts as blocks what crosses a leaf-spine fabric with ranks in order (collectives.md §3.10.7)."""

    traversals: int
    """Blocks over all links: `trav`."""
    injected: int
    """Blocks onto the links of the hosts: `inj`."""

    @property
    def egress(self) -> int:
        """Return the blocks that leave the ports of switches."""
        return self.traversals - self.injected


def ring_on_leaf_spine(size: int, hosts: int) -> LeafSpine:
    """Return the blocks of a ring all_gather: a step crosses two links for each rank, and two more where it leaves a
    leaf.
    """
    leaves = -(-size // hosts)
    return LeafSpine((size - 1) * (2 * size + 2 * (leaves if leaves > 1 else 0)), (size - 1) * size)


def multicast_on_leaf_spine(size: int, hosts: int) -> LeafSpine:
    """Return the blocks of an all_gather by multicast: each block crosses each link of the tree once."""
    leaves = -(-size // hosts)
    return LeafSpine(size * (size + (leaves if leaves > 1 else 0)), size)


def traversals(schedule: Schedule, leaf: Sequence[int]) -> int:
    """Return the elements over all links of a leaf-spine fabric, from a schedule: two links within a leaf, four beyond
    it.
    """
    columns = schedule.arrays()
    at = np.asarray(leaf)
    crosses = at[columns["src"]] != at[columns["dst"]]
    return int(np.sum(columns["count"] * (2 + 2 * crosses), dtype=np.int64))
