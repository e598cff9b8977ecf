# SPDX-License-Identifier: GPL-2.0-only
"""This module plans an all_reduce over nodes of several ranks. It reduces within a node, then between nodes, and sends
the result back within each node (collectives.md §3.8)."""

from collections.abc import Callable
from typing import TypeAlias

import numpy as np

from uetproto.collectives.algorithms import chunks
from uetproto.collectives.algorithms.doubling import HalvingDoubling, RecursiveDoubling
from uetproto.collectives.algorithms.pattern import Pattern, PatternPhase, SchedulePart, steps_for
from uetproto.collectives.algorithms.plan import PlannedSchedule
from uetproto.collectives.algorithms.request import ScheduleRequest
from uetproto.collectives.algorithms.ring import Ring
from uetproto.collectives.algorithms.rooted import Binomial, Chain, Star
from uetproto.collectives.algorithms.schedule import Buffer, Ints
from uetproto.collectives.algorithms.trees import double_tree
from uetproto.errors import LocalError

Between: TypeAlias = Callable[[Ints, Ints, int], "tuple[PatternPhase, ...]"]
"""Type of a function that plans an all_reduce within each group. Its arguments are the groups, the range of elements of
each group, and the number of the first step."""


def nccl_tree(request: ScheduleRequest) -> PlannedSchedule:
    """Return a plan that reduces along a chain in each node to its head, runs a double tree over the heads, and sends
    the result back along the chains.

    Each channel does so for its share of the vector; the head of channel c is the rank with local index c. Slices pass
    through chains and trees as one pipeline: a tree starts as soon as the head has the first slice.
    """
    nodes, local = request.places.shape
    back = local - 1 + 2 * steps_for(nodes)
    parts: list[SchedulePart] = []
    for channel, (start, count) in enumerate(_shares(request)):
        chain = np.roll(request.places, -channel, axis=1)
        trees = double_tree(chain[:, :1].T, start, count, slices=request.slices, first=local - 1)
        # A slice of the share consists of a slice of each half. Only with a single slice are both contiguous.
        rows = [tree.bounds for tree in trees] if request.slices > 1 else [np.array([[start, start + count]])]
        for bounds in rows:
            ends = np.tile(bounds, (nodes, 1))
            parts.append(PatternPhase(Chain(local, up=True, slices=request.slices), chain, ends))
            parts.append(PatternPhase(Chain(local, up=False, slices=request.slices), chain, ends, first=back))
        parts += trees
    return request.in_place(*parts)


def nccl_ring(request: ScheduleRequest) -> PlannedSchedule:
    """Return a plan of one flat ring, in which the last rank of a node sends to the first rank of the next node.

    Each channel runs such a ring for its share of the vector. The rings of the channels leave a node at different local
    indices.
    """
    parts = []
    for channel, (start, count) in enumerate(_shares(request)):
        ring = np.roll(request.places, -channel, axis=1).reshape(1, -1)
        parts.append(PatternPhase(Ring(request.size), ring, start + chunks.bounds(count, request.size)[None, :]))
    return request.in_place(*parts)


def rab(request: ScheduleRequest) -> PlannedSchedule:
    """Return a plan that reduces to the leader of each node, runs an all_reduce among the leaders, and broadcasts the
    result in each node."""
    nodes, local = request.places.shape
    whole = np.tile([0, request.count], (nodes, 1))
    reduce, broadcast = Binomial(local, up=True), Binomial(local, up=False)
    middle = BETWEEN[request.between](request.places[:, :1].T, whole[:1], reduce.length)
    back = PatternPhase(broadcast, request.places, whole, first=_end(middle, reduce.length))
    return request.in_place(PatternPhase(reduce, request.places, whole), *middle, back)


def split_rail(request: ScheduleRequest) -> PlannedSchedule:
    """Return a plan that runs a reduce_scatter in each node, an all_reduce among the ranks with equal local index, and
    an all_gather in each node.

    Every rail carries its share of the vector: if the all_reduce is a ring, each rail has its own ring.
    """
    nodes, local = request.places.shape
    ends = chunks.bounds(request.count, local)
    within = np.tile(ends, (nodes, 1))
    scatter, gather = Ring(local, gathers=False), Ring(local, reduces=False)
    middle = BETWEEN[request.between](request.places.T, np.stack([ends[:-1], ends[1:]], axis=1), scatter.length)
    back = PatternPhase(gather, request.places, within, first=_end(middle, scatter.length))
    return request.in_place(PatternPhase(scatter, request.places, within), *middle, back)


def hcoll(request: ScheduleRequest) -> PlannedSchedule:
    """Return a plan of three levels. It reduces in each socket and then across the sockets of a node, runs an
    all_reduce among the leaders of the nodes, and sends the result back through both levels.

    Within a node all data passes through shared memory, so that each level takes one step.
    """
    nodes, local = request.places.shape
    if local % request.sockets:
        legal = ", ".join(str(n) for n in range(1, local + 1) if local % n == 0)
        raise LocalError(
            "sockets", f"{request.sockets} do not share {local} ranks a node evenly; legal are {legal}",
            id="uneven-split"
        )  # fmt: skip
    sockets = request.places.reshape(nodes * request.sockets, -1)
    leaders = sockets[:, 0].reshape(nodes, request.sockets)
    step = 0
    parts: list[SchedulePart] = []

    def within_node(groups: Ints, *, up: bool) -> None:
        nonlocal step
        whole = np.tile([0, request.count], (len(groups), 1))
        parts.append(PatternPhase(Star(groups.shape[1], up=up, at_once=True), groups, whole, first=step))
        step += parts[-1].length

    within_node(sockets, up=True)
    within_node(leaders, up=True)
    middle = BETWEEN[request.between](leaders[:, :1].T, np.array([[0, request.count]]), step)
    parts += middle
    step = _end(middle, step)
    within_node(leaders, up=False)
    within_node(sockets, up=False)
    return request.in_place(*parts)


def _shares(request: ScheduleRequest) -> list[tuple[int, int]]:
    """Return the first element and the number of elements of each channel's share."""
    local, count = request.places.shape[1], request.count
    if not 1 <= request.channels <= local:
        raise LocalError(
            "channels", f"{request.channels} is not in 1 .. {local}, the ranks of a node", id="out-of-range"
        )
    index = range(request.channels)
    return [(chunks.offset_of(c, count, request.channels), chunks.size_of(c, count, request.channels)) for c in index]


def _end(parts: tuple[PatternPhase, ...], first: int) -> int:
    """Return the number of the step that follows the parts, or `first` if there are no parts."""
    return max((part.first + part.length for part in parts), default=first)


def _by_pattern(make: Callable[[int], Pattern]) -> Between:
    def parts(groups: Ints, ranges: Ints, first: int) -> tuple[PatternPhase, ...]:
        pattern = make(groups.shape[1])
        rows = [int(start) + chunks.bounds(int(end - start), pattern.blocks) for start, end in ranges]
        return (PatternPhase(pattern, groups, np.stack(rows), Buffer.OUTPUT, first),)

    return parts


def _by_trees(groups: Ints, ranges: Ints, first: int) -> tuple[PatternPhase, ...]:
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
