# SPDX-License-Identifier: GPL-2.0-only
"""This module plans the simplest algorithms of all_reduce: all vectors pass through one rank, or every rank sends its
vector to every rank (collectives.md §3.2)."""

import numpy as np

from uetproto.collectives.algorithms.pattern import PatternPhase, Table, everyone
from uetproto.collectives.algorithms.plan import PlannedSchedule
from uetproto.collectives.algorithms.request import ScheduleRequest
from uetproto.collectives.algorithms.rooted import Star
from uetproto.collectives.algorithms.schedule import Buffer, Counts, Fold, Local, LocalWork
from uetproto.collectives.arrays import MessageColumns


def star(request: ScheduleRequest) -> PlannedSchedule:
    """Return a plan in which the root receives the vectors of the other ranks one by one, and then sends the result to
    these ranks one by one.

    The root combines its own vector with those of the other ranks in ascending order. The time is limited by the port
    of the root.
    """
    others = np.delete(everyone(request.size), request.root, axis=1)
    ranks = np.concatenate([np.array([[request.root]], dtype=np.int32), others], axis=1)
    ends = np.array([[0, request.count]])
    up, down = Star(request.size, up=True), Star(request.size, up=False)
    return request.in_place(
        PatternPhase(up, ranks, ends), PatternPhase(down, ranks, ends, first=up.length), root=request.root
    )


def exchange(request: ScheduleRequest) -> PlannedSchedule:
    """Return a plan in which every rank sends its vector to all other ranks. Each rank then combines all vectors in
    ascending order of ranks."""
    size, count = request.size, request.count

    def table(rank: int | None) -> MessageColumns:
        src = np.arange(size)[:, None]
        dst = (src + np.arange(1, size)) % size
        return MessageColumns.of(
            step=0, src=src, dst=dst, buffer=Buffer.OUTPUT, start=0, target_buffer=Buffer.SCRATCH, target=src * count,
            count=count, fold=Fold.STORE,
        )  # fmt: skip

    def work(rank: int) -> dict[int, LocalWork]:
        own = Local(Buffer.OUTPUT, 0, Buffer.SCRATCH, rank * count, count)
        folds = (Local(Buffer.SCRATCH, i * count, Buffer.SCRATCH, 0, count, Fold.OWN_FIRST) for i in range(1, size))
        result = Local(Buffer.SCRATCH, 0, Buffer.OUTPUT, 0, count)
        return {0: LocalWork(after=(own, *folds, result))} if size > 1 else {}

    counts = Counts(count, count, size * count)
    return PlannedSchedule(
        request.op, request.algorithm, size, lambda _: counts, (Table(min(1, size - 1), table),), work
    )
