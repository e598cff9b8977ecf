# SPDX-License-Identifier: GPL-2.0-only
"""This module plans broadcast, reduce, scatter and gather. Messages follow a binomial tree, or go directly between the
root and each other rank.

See collectives.md §3.2. Patterns are written for root 0: virtual rank v stands for rank v + root, modulo N.
"""

from dataclasses import dataclass
from functools import partial

import numpy as np

from uetproto.collectives.algorithms.chunks import bounds_of
from uetproto.collectives.algorithms.pattern import Moves, Pattern, PatternPhase, everyone, steps_for
from uetproto.collectives.algorithms.plan import PlannedSchedule
from uetproto.collectives.algorithms.request import ScheduleRequest, around, rotation
from uetproto.collectives.algorithms.schedule import Buffer, Counts, Fold, Ints, Local, LocalWork


@dataclass(frozen=True, slots=True)
class Rooted(Pattern):
    """This pattern sends messages along a tree whose root is member 0: up for reduce and gather, down for broadcast and
    scatter.

    If `own_blocks` is True, each member has a block, and an edge of the tree carries the blocks of the subtree below
    it. Otherwise each edge carries the whole vector.
    """

    size: int
    up: bool
    own_blocks: bool = False

    @property
    def blocks(self) -> int:
        return self.size if self.own_blocks else 1

    def _moves(self, bounds: Ints, step: Ints | int, child: Ints, parent: Ints | int, subtree_end: Ints) -> Moves:
        return Moves.of(
            bounds, step=step, src=child if self.up else parent, dst=parent if self.up else child,
            first=child if self.own_blocks else 0, last=subtree_end if self.own_blocks else 1,
            fold=Fold.OWN_FIRST if self.up and not self.own_blocks else Fold.STORE,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Binomial(Rooted):
    """This tree is binomial: the parent of member v is v without its lowest set bit.

    On the way down, a member sends to its largest child first. On the way up, it receives from its smallest child
    first, and so combines its own value with those of its children in ascending order.
    """

    @property
    def length(self) -> int:
        return steps_for(self.size)

    def moves(self, bounds: Ints, member: int | None = None) -> Moves:
        child = np.arange(1, self.size)
        low = child & -child
        level = np.frexp(low)[1] - 1  # the index of the lowest bit
        step = level if self.up else self.length - 1 - level
        return self._moves(bounds, step, child, child - low, np.minimum(child + low, self.size))


@dataclass(frozen=True, slots=True)
class Star(Rooted):
    """In this tree the root exchanges messages directly with each member: with one member in each step, or with all in
    one step if `at_once` is True."""

    at_once: bool = False

    @property
    def length(self) -> int:
        return min(1, self.size - 1) if self.at_once else self.size - 1

    def moves(self, bounds: Ints, member: int | None = None) -> Moves:
        child = np.arange(1, self.size)
        return self._moves(bounds, 0 if self.at_once else child - 1, child, 0, child + 1)


@dataclass(frozen=True, slots=True)
class Chain(Rooted):
    """In this chain each member sends to the member before it (up) or behind it (down).

    On the way up, a member combines its own value with the values of all members behind it. If there are several
    slices, the chain is a pipeline: a slice follows the slice before it at a distance of one hop.
    """

    slices: int = 1

    @property
    def blocks(self) -> int:
        return self.slices

    @property
    def length(self) -> int:
        return self.size - 1 + self.slices - 1 if self.size > 1 else 0

    def moves(self, bounds: Ints, member: int | None = None) -> Moves:
        child, piece = np.arange(1, self.size), np.arange(self.slices)[:, None]
        hop = self.size - 1 - child if self.up else child - 1
        return Moves.of(
            bounds, step=hop + piece, src=child if self.up else child - 1, dst=child - 1 if self.up else child,
            first=piece, last=piece + 1, fold=Fold.OWN_FIRST if self.up else Fold.STORE,
        )  # fmt: skip


def _from_root(request: ScheduleRequest) -> Ints:
    return np.roll(everyone(request.size), -request.root, axis=1)


def vector(tree: type[Rooted], request: ScheduleRequest, *, up: bool) -> PlannedSchedule:
    """Return a plan of reduce if `up` is True, otherwise of broadcast. Every edge of the tree carries the whole
    vector."""
    ends = np.array([[0, request.count]])
    phase = PatternPhase(tree(request.size, up), _from_root(request), ends)
    return request.in_place(phase, root=request.root)


def blocks(tree: type[Rooted], request: ScheduleRequest, *, up: bool) -> PlannedSchedule:
    """Return a plan of gather if `up` is True, otherwise of scatter. Blocks pass through SCRATCH in the order of
    virtual ranks."""
    bounds, ranks, pattern = request.bounds, _from_root(request), tree(request.size, up, own_blocks=True)
    sizes = np.diff(bounds)
    ends = bounds_of(sizes[ranks[0]].tolist())
    shift = int(bounds[request.root])
    phase = PatternPhase(pattern, ranks, ends[None, :], Buffer.SCRATCH)

    def counts(rank: int) -> Counts:
        full, own = request.count if rank == request.root else 0, int(sizes[rank])
        return Counts(own, full, request.count) if pattern.up else Counts(full, own, request.count)

    def work(rank: int) -> dict[int, LocalWork]:
        place, size = int(ends[(rank - request.root) % request.size]), int(sizes[rank])
        if pattern.up:
            before: tuple[Local, ...] = (Local(Buffer.INPUT, 0, Buffer.SCRATCH, place, size),)
            after = rotation(Buffer.SCRATCH, Buffer.OUTPUT, request.count, -shift) if rank == request.root else ()
        else:
            before = rotation(Buffer.INPUT, Buffer.SCRATCH, request.count, shift) if rank == request.root else ()
            after = (Local(Buffer.SCRATCH, place, Buffer.OUTPUT, 0, size),)
        return around(pattern.length - 1, before=before, after=after)

    return PlannedSchedule(request.op, request.algorithm, request.size, counts, (phase,), work, root=request.root)


broadcast, reduce = partial(vector, up=False), partial(vector, up=True)
scatter, gather = partial(blocks, up=False), partial(blocks, up=True)
