# SPDX-License-Identifier: GPL-2.0-only
"""This module has the formulas of collectives that switches carry out: SHARP (sharp.md §4.4) and multicast
(collectives.md §3.10.7)."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from uetproto.collectives.algorithms.pattern import steps_for
from uetproto.collectives.costs.formulas import Costs, Expected

HEADER = 32
"""Number of bytes of a SHARP message in addition to its operand."""


class SharpCosts(NamedTuple):
    """This record holds the parameters of SHARP's cost model (sharp.md §4.4)."""

    levels: int
    """Number of levels of aggregation nodes between a host and the root, including the root: `L`."""
    endpoint: float
    """Latency in seconds of a host that sends or receives, for each step: `a_e`."""
    hop: float
    """Latency in seconds of a cable and its switch: `a_l`."""
    reduce: float
    """Time in seconds that an aggregation node takes to reduce: `a_n`."""
    rate: float
    """Rate of a cable in bytes per second: `B`."""
    user_data: int = 128
    """Largest number of bytes in the operand of one operation: `u`."""
    osts: int = 16
    """Largest number of operations that are outstanding at the same time: `W`."""
    lock: float = 0.0
    """Seconds until a streaming tree is locked: `T_lock`. It is 0 if the tree is locked already."""
    trees: int = 1
    """Number of trees among which a streamed vector is divided."""
    lanes: float = 1
    """Rate of all trees together as a multiple of a cable's rate: `trees` divided by the largest number of trees that
    share a cable."""

    @property
    def latency(self) -> float:
        """Return the seconds that a message without bytes takes up to the root and down again."""
        return 2 * self.endpoint + self.levels * (2 * self.hop + self.reduce)


def llt_time(costs: SharpCosts, length: int, times: int = 1) -> float:
    """Return the seconds of an operation on a low-latency tree. Its fragments form a pipeline, which the number of
    outstanding operations limits.

    `times` is the number of operations of `length` bytes that follow each other.
    """
    first = costs.latency + 2 * min(length, costs.user_data) / costs.rate
    fragments = -(-length // costs.user_data) if length else 1
    rate = costs.rate * costs.lanes
    return first + (times * fragments - 1) * max((costs.user_data + HEADER) / rate, first / costs.osts)


def sat_time(costs: SharpCosts, length: int, threshold: int = 0) -> float:
    """Return the seconds of an operation on streaming trees, where bytes go up and come down at the same time.

    The vector is divided among the trees. Each part has at least `threshold` bytes; 0 means that all trees get a part.
    """
    parts = min(costs.trees, max(1, length // threshold)) if threshold else costs.trees
    return costs.lock + costs.latency + length / (costs.rate * min(parts, costs.lanes))


def sharp_time(costs: SharpCosts, length: int, threshold: int | None) -> float:
    """Return the seconds of an all_reduce. Vectors of at least `threshold` bytes are streamed; None means that no
    vector is streamed."""
    return llt_time(costs, length) if threshold is None or length < threshold else sat_time(costs, length, threshold)


def sharp_traversals(edges: int, length: int) -> int:
    """Return `trav`, the bytes on all links, of an all_reduce: every edge of the tree carries the vector up and the
    result down."""
    return 2 * edges * length


def multicast_traversals(size: int, leaves: int, block: int, roots: int) -> int:
    """Return `trav`, the bytes on all links, of multicast on a leaf-spine fabric (collectives.md §3.10.7). Each link
    carries one copy, and no copy goes back to the sender."""
    return roots * block * (size + (leaves if leaves > 1 else 0))


class MulticastCosts(NamedTuple):
    """This record holds the costs of multicast on a fabric (collectives.md §3.0)."""

    alpha: float
    """Seconds that a message takes in the barriers at the start."""
    way: float
    """Seconds that an empty message takes to the farthest rank. The message is a token, or belongs to the last
    handshake."""
    rate: float
    """Rate of a cable in bytes per second."""
    roots: int = 1
    """Number of ranks that send at the same time: M."""


NOTHING = Costs(0, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class InNetworkCase:
    """This record holds the arguments of a formula of this module."""

    size: int
    """Number of ranks: N."""
    length: int
    """Size of the full vector in bytes: D."""
    sharp: SharpCosts | None = None
    threshold: int | None = None
    """Size in bytes from which SHARP streams vectors. None means that no vector is streamed."""
    multicast: MulticastCosts | None = None
    local: int = 1
    """Number of ranks of a node: G."""
    inside: Costs = NOTHING
    """Costs within a node."""


InNetworkFormula: TypeAlias = Callable[[InNetworkCase], Expected]


def _sharp(case: InNetworkCase, sent: int, injected: int) -> Expected:
    assert case.sharp is not None
    return Expected(2 * case.sharp.levels, sent, injected, sharp_time(case.sharp, sent, case.threshold))


def _by_all(case: InNetworkCase) -> Expected:
    return _sharp(case, case.length, case.size * case.length)


def _blocks(case: InNetworkCase) -> Expected:
    """Return the costs of reduce_scatter: one REDUCE for each block (sharp.md §4.3). If blocks are streamed, each
    REDUCE locks its tree."""
    assert case.sharp is not None
    costs, block = case.sharp, case.length // case.size
    if case.threshold is not None and block >= case.threshold:
        time = case.size * sat_time(costs, block, case.threshold)
    else:
        time = llt_time(costs, block, case.size)
    return Expected(2 * costs.levels, case.length, case.size * case.length, time)


def _leaders(case: InNetworkCase) -> Expected:
    """Return the costs of a binomial tree within each node and SHARP among the leaders (collectives.md §3.8)."""
    assert case.sharp is not None
    within, length = steps_for(case.local), case.length
    nodes = case.size // case.local
    time = 2 * within * (case.inside.alpha + length * case.inside.beta + length * case.inside.gamma / 2)
    return Expected(
        2 * within + 2 * case.sharp.levels, (1 + within) * length, (nodes + 2 * (case.size - nodes)) * length,
        time + sharp_time(case.sharp, length, case.threshold),
    )  # fmt: skip


def _multicast(case: InNetworkCase, blocks: int) -> Expected:
    """Return the costs of multicast: the two barriers, the blocks, the tokens between the ranks that send them, and the
    last handshake."""
    assert case.multicast is not None
    alpha, way, rate, roots = case.multicast
    block, steps = case.length // blocks, blocks // roots
    ready = 2 * steps_for(case.size) * alpha
    return Expected(steps, block, case.length, ready + steps * (roots * block / rate + way) + way)


FORMULAS: dict[str, dict[str, InNetworkFormula]] = {
    "all_reduce":     {"sharp": _by_all, "hcoll_sharp": _leaders},
    "reduce":         {"sharp": _by_all},
    "broadcast":      {"sharp": lambda case: _sharp(case, case.length, case.length),
                       "multicast": lambda case: _multicast(case, 1)},
    "barrier":        {"sharp": lambda case: _sharp(case, 0, 0)},
    "reduce_scatter": {"sharp": _blocks},
    "all_gather":     {"sharp": _by_all,
                       "multicast": lambda case: _multicast(case, case.size)},
}  # fmt: skip
