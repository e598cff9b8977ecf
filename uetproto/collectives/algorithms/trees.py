# SPDX-License-Identifier: GPL-2.0-only
"""This module builds binary trees over the ranks. Vectors are reduced towards the root, and the result is broadcast
back (collectives.md §3.4)."""

from dataclasses import dataclass

import numpy as np

from uetproto.collectives.algorithms import chunks
from uetproto.collectives.algorithms.pattern import Moves, Pattern, PatternPhase, SchedulePart, everyone, steps_for
from uetproto.collectives.algorithms.plan import PlannedSchedule
from uetproto.collectives.algorithms.request import ScheduleRequest
from uetproto.collectives.algorithms.schedule import Buffer, Fold, Ints

NONE = -1


def parents(size: int, *, second: bool = False) -> Ints:
    """Return the parent of each rank in tree A, or in tree B if `second` is True. The parent of the root is given as
    -1."""
    return _relabelled(_parents_a(size), second)


def children(size: int, *, second: bool = False) -> tuple[Ints, Ints]:
    """Return the left child and the right child of each rank, with -1 for a missing child. The root has at most a left
    child."""
    rank = np.arange(size)
    parent = _parents_a(size)
    left, right = np.full(size, NONE), np.full(size, NONE)
    is_right = (rank > parent) & (parent > 0)
    right[parent[is_right]] = rank[is_right]
    is_left = (parent >= 0) & ~is_right
    left[parent[is_left]] = rank[is_left]
    return _relabelled(left, second), _relabelled(right, second)


def depths(parent: Ints) -> Ints:
    """Return the depth of each rank in the tree. The root has depth 0."""
    depth = np.zeros(len(parent), dtype=np.int32)
    above = parent
    while np.any(above != NONE):
        depth += above != NONE
        above = np.where(above == NONE, NONE, parent[above])
    return depth


def _parents_a(size: int) -> Ints:
    rank = np.arange(size)
    low = np.maximum(rank & -rank, 1)  # the lowest bit set
    up = rank + low
    parent: Ints = np.where((rank // low % 4 == 1) & (up < size), up, rank - low)
    parent[0] = NONE
    return parent


def _relabelled(of_rank: Ints, second: bool) -> Ints:
    """Return `of_rank` for tree A, or with renamed ranks for tree B (`second`). Tree B is tree A mirrored if the number
    of ranks is even, otherwise shifted by one rank."""
    if not second:
        return of_rank
    size = len(of_rank)
    rank = np.arange(size)
    label = size - 1 - rank if size % 2 == 0 else (rank + 1) % size
    new = np.empty_like(of_rank)
    new[label] = np.where(of_rank == NONE, NONE, label[of_rank])
    return new


@dataclass(frozen=True, slots=True)
class TreePattern(Pattern):
    """This pattern reduces up a tree and broadcasts down the same tree. A rank combines its own elements with those of
    its left child, and then with those of its right child.

    If there are several slices, the levels form a pipeline: a slice goes up one level behind the slice before it, while
    earlier slices come down.
    """

    size: int
    second: bool = False
    slices: int = 1

    @property
    def blocks(self) -> int:
        return self.slices

    @property
    def length(self) -> int:
        return 2 * steps_for(self.size) + self.slices - 1 if self.size > 1 else 0

    def moves(self, bounds: Ints, member: int | None = None) -> Moves:
        parent = parents(self.size, second=self.second)
        depth = depths(parent)
        left, right = children(self.size, second=self.second)
        child = np.concatenate([left[left != NONE], right[right != NONE]])  # a rank folds its left child first
        above, depth = parent[child], depth[child]
        piece = np.arange(self.slices)[:, None]
        levels = steps_for(self.size)
        up, down = levels - depth + piece, levels + depth - 1 + piece
        return Moves.join(
            Moves.of(bounds, step=up, src=child, dst=above, first=piece, last=piece + 1, fold=Fold.OWN_FIRST),
            Moves.of(bounds, step=down, src=above, dst=child, first=piece, last=piece + 1, fold=Fold.STORE),
        )


def double_tree(
    groups: Ints, start: int, count: int, *, slices: int = 1, first: int = 0, buffer: Buffer = Buffer.OUTPUT
) -> tuple[PatternPhase, PatternPhase]:
    """Return the patterns of tree A and tree B. Both run at the same time, each on one half of the elements."""
    size = groups.shape[1]
    half = chunks.bounds(count, 2)
    ends = [start + int(half[tree]) + chunks.bounds(chunks.size_of(tree, count, 2), slices) for tree in (0, 1)]
    rows = [np.broadcast_to(end, (len(groups), slices + 1)) for end in ends]
    return (
        PatternPhase(TreePattern(size, slices=slices), groups, rows[0], buffer, first),
        PatternPhase(TreePattern(size, second=True, slices=slices), groups, rows[1], buffer, first),
    )


def single(request: ScheduleRequest) -> PlannedSchedule:
    """Return a plan of one tree for the whole vector. The ports of its leaves are idle half of the time."""
    return request.in_place(request.phase(TreePattern(request.size, slices=request.slices)))


def double(request: ScheduleRequest) -> PlannedSchedule:
    """Return a plan of two trees, each for one half of the vector. The leaves of one tree are inner ranks of the other
    tree."""
    parts: tuple[SchedulePart, ...] = double_tree(everyone(request.size), 0, request.count, slices=request.slices)
    return request.in_place(*parts)
