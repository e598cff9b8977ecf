"""all_reduce over nodes of several ranks: within a node first, between nodes next, then back (collectives.md §3.8)."""

from collections.abc import Callable
from typing import TypeAlias

import numpy as np

from uetproto.collectives.algorithms import chunks
from uetproto.collectives.algorithms.doubling import HalvingDoubling, RecursiveDoubling
from uetproto.collectives.algorithms.pattern import Part, Pattern, Phase, steps_for
from uetproto.collectives.algorithms.plan import Plan
from uetproto.collectives.algorithms.request import Request
from uetproto.collectives.algorithms.ring import Ring
from uetproto.collectives.algorithms.rooted import Binomial, Chain, Star
from uetproto.collectives.algorithms.schedule import Buffer, Ints
from uetproto.collectives.algorithms.trees import double_tree
from uetproto.errors import LocalError

Between: TypeAlias = Callable[[Ints, Ints, int], "tuple[Phase, ...]"]
"""An all_reduce in each of some groups, from a step on: the groups, and where the elements of each start and end."""


def nccl_tree(asked: Request) -> Plan:
    """A chain in each node towards its head, double trees over the heads, the chain back.

    Each channel does this for its share of the vector; the head of channel c is the rank with local index c. Slices go
    through chains and trees as one pipeline: a tree starts with the first slice that is at the head.
    """
    nodes, local = asked.places.shape
    back = local - 1 + 2 * steps_for(nodes)
    parts: list[Part] = []
    for channel, (start, count) in enumerate(_shares(asked)):
        chain = np.roll(asked.places, -channel, axis=1)
        trees = double_tree(chain[:, :1].T, start, count, slices=asked.slices, first=local - 1)
        # A slice of the share is one of each half, which lie side by side only if there are no more.
        rows = [tree.bounds for tree in trees] if asked.slices > 1 else [np.array([[start, start + count]])]
        for bounds in rows:
            ends = np.tile(bounds, (nodes, 1))
            parts.append(Phase(Chain(local, up=True, slices=asked.slices), chain, ends))
            parts.append(Phase(Chain(local, up=False, slices=asked.slices), chain, ends, first=back))
        parts += trees
    return asked.in_place(*parts)


def nccl_ring(asked: Request) -> Plan:
    """One flat ring: the last rank of a node feeds the first one of the next.

    Each channel is a ring for its share of the vector, and leaves the nodes at another local index.
    """
    parts = []
    for channel, (start, count) in enumerate(_shares(asked)):
        ring = np.roll(asked.places, -channel, axis=1).reshape(1, -1)
        parts.append(Phase(Ring(asked.size), ring, start + chunks.bounds(count, asked.size)[None, :]))
    return asked.in_place(*parts)


def rab(asked: Request) -> Plan:
    """Reduce to the leader of the node, all_reduce among leaders, broadcast."""
    nodes, local = asked.places.shape
    whole = np.tile([0, asked.count], (nodes, 1))
    reduce, broadcast = Binomial(local, up=True), Binomial(local, up=False)
    middle = _between(asked, asked.places[:, :1].T, whole[:1], reduce.length)
    back = Phase(broadcast, asked.places, whole, first=_end(middle, reduce.length))
    return asked.in_place(Phase(reduce, asked.places, whole), *middle, back)


def split_rail(asked: Request) -> Plan:
    """reduce_scatter in the node, all_reduce among the ranks of the same local index, all_gather in the node.

    Every rail carries its part: with rings between the nodes, these are a ring a rail.
    """
    nodes, local = asked.places.shape
    ends = chunks.bounds(asked.count, local)
    within = np.tile(ends, (nodes, 1))
    scatter, gather = Ring(local, gathers=False), Ring(local, reduces=False)
    middle = _between(asked, asked.places.T, np.stack([ends[:-1], ends[1:]], axis=1), scatter.length)
    back = Phase(gather, asked.places, within, first=_end(middle, scatter.length))
    return asked.in_place(Phase(scatter, asked.places, within), *middle, back)


def hcoll(asked: Request) -> Plan:
    """Three levels: reduce in each socket, across the sockets of a node, all_reduce among leaders, and back.

    Within a node all happens through shared memory: one step a level.
    """
    nodes, local = asked.places.shape
    if local % asked.sockets:
        legal = ", ".join(str(n) for n in range(1, local + 1) if local % n == 0)
        raise LocalError("sockets", f"{asked.sockets} do not share {local} ranks a node evenly; legal are {legal}")
    sockets = asked.places.reshape(nodes * asked.sockets, -1)
    leaders = sockets[:, 0].reshape(nodes, asked.sockets)
    step = 0
    parts: list[Part] = []

    def within_node(groups: Ints, *, up: bool) -> None:
        nonlocal step
        whole = np.tile([0, asked.count], (len(groups), 1))
        parts.append(Phase(Star(groups.shape[1], up=up, at_once=True), groups, whole, first=step))
        step += parts[-1].length

    within_node(sockets, up=True)
    within_node(leaders, up=True)
    middle = _between(asked, leaders[:, :1].T, np.array([[0, asked.count]]), step)
    parts += middle
    step = _end(middle, step)
    within_node(leaders, up=False)
    within_node(sockets, up=False)
    return asked.in_place(*parts)


def _shares(asked: Request) -> list[tuple[int, int]]:
    """Start and count of each channel's share."""
    local, count = asked.places.shape[1], asked.count
    if not 1 <= asked.channels <= local:
        raise LocalError("channels", f"{asked.channels} is not in 1 .. {local}, the ranks of a node")
    index = range(asked.channels)
    return [(chunks.offset_of(c, count, asked.channels), chunks.size_of(c, count, asked.channels)) for c in index]


def _end(parts: tuple[Phase, ...], first: int) -> int:
    """The step after the parts."""
    return max((part.first + part.length for part in parts), default=first)


def _between(asked: Request, groups: Ints, ranges: Ints, first: int) -> tuple[Phase, ...]:
    """The all_reduce that was asked for, within each group, on its range of elements."""
    return BETWEEN[asked.between](groups, ranges, first)


def _by_pattern(make: Callable[[int], Pattern]) -> Between:
    def parts(groups: Ints, ranges: Ints, first: int) -> tuple[Phase, ...]:
        pattern = make(groups.shape[1])
        rows = [int(start) + chunks.bounds(int(end - start), pattern.blocks) for start, end in ranges]
        return (Phase(pattern, groups, np.stack(rows), Buffer.OUTPUT, first),)

    return parts


def _by_trees(groups: Ints, ranges: Ints, first: int) -> tuple[Phase, ...]:
    ends = zip(groups, ranges.tolist(), strict=True)
    return tuple(
        tree for row, (start, end) in ends for tree in double_tree(row[None, :], start, end - start, first=first)
    )


BETWEEN: dict[str, Between] = {
    "ring": _by_pattern(Ring),
    "halving_doubling": _by_pattern(HalvingDoubling),
    "recursive_doubling": _by_pattern(RecursiveDoubling),
    "double_tree": _by_trees,
}
