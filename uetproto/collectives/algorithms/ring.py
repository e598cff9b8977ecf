# SPDX-License-Identifier: GPL-2.0-only
"""This module plans the ring algorithm (collectives.md §3.3), in which every rank sends only to the next rank.

It takes N-1 steps to reduce and N-1 steps to gather.
"""

from dataclasses import dataclass

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from uetproto.collectives.algorithms.pattern import Moves, Pattern
from uetproto.collectives.algorithms.plan import PlannedSchedule
from uetproto.collectives.algorithms.request import ScheduleRequest
from uetproto.collectives.algorithms.schedule import Buffer, Fold, Ints


@dataclass(frozen=True, slots=True)
class Ring(Pattern):
    """This pattern is the canonical ring. Its reduce-scatter leaves chunk r at rank r, and its all-gather starts with
    chunk r at rank r.

    In step s, rank r sends chunk r-1-s, modulo N. The steps of the all-gather continue at N-1, so that this rule holds
    for both phases. `reduces` selects the reduce-scatter, and `gathers` selects the all-gather.
    """

    size: int
    reduces: bool = True
    gathers: bool = True

    @property
    def blocks(self) -> int:
        return self.size

    @property
    def length(self) -> int:
        return (self.size - 1) * (self.reduces + self.gathers)

    def moves(self, bounds: Ints, member: int | None = None) -> Moves:
        n = self.size
        ranks = np.arange(n) if member is None else np.array(sorted({(member - 1) % n, member}))
        step = np.arange(self.length)[:, None]
        since = 0 if self.reduces else n - 1
        return Moves(
            step=step, src=ranks[None, :], dst=(ranks[None, :] + 1) % n,
            start=self._chunks(bounds[:, :-1], since, ranks), count=self._chunks(np.diff(bounds), since, ranks),
            fold=np.where(step + since < n - 1, Fold.INCOMING_FIRST, Fold.STORE),
        )  # fmt: skip

    def _chunks(self, of_chunk: Ints, since: int, ranks: Ints) -> Ints:
        """Return, by group, step s and rank r, the value that `of_chunk` has for chunk (r-1-s) mod N.

        For all ranks the result is a view that takes no memory: each step moves a window over the chunks by one.
        """
        n = self.size
        windows = sliding_window_view(np.tile(of_chunk, 3), n, axis=1)
        first = 2 * n - 1 - since  # index, in the middle copy, of the chunk of rank 0 in the first step
        rows = windows[:, first : first - self.length : -1]
        return rows if len(ranks) == n else rows[:, :, ranks]


def all_reduce(request: ScheduleRequest) -> PlannedSchedule:
    """Return a plan of 2(N-1) steps, in each of which every rank sends one chunk. All ports are always in use, but the
    latency grows with N."""
    return request.in_place(request.phase(Ring(request.size)))


def reduce_scatter(request: ScheduleRequest) -> PlannedSchedule:
    """Return the plan of the first half of the ring algorithm, which is a reduce_scatter."""
    return request.reduce_scatter(request.phase(Ring(request.size, gathers=False), Buffer.SCRATCH))


def all_gather(request: ScheduleRequest) -> PlannedSchedule:
    """Return the plan of the second half of the ring algorithm. It is an all_gather, in which each rank starts with its
    own block."""
    return request.all_gather(request.phase(Ring(request.size, reduces=False)))
