# SPDX-License-Identifier: GPL-2.0-only
"""This module plans all_to_all, in which every rank sends one block to every other rank (collectives.md §3.6)."""

from collections.abc import Callable
from functools import partial
from typing import TypeAlias

import numpy as np

from uetproto.collectives.algorithms.chunks import integers
from uetproto.collectives.algorithms.pattern import Table, steps_for
from uetproto.collectives.algorithms.plan import PlannedSchedule
from uetproto.collectives.algorithms.request import ScheduleRequest
from uetproto.collectives.algorithms.schedule import Buffer, Counts, Fold, Ints, Local, LocalWork
from uetproto.collectives.arrays import MessageColumns
from uetproto.errors import LocalError

Partner: TypeAlias = Callable[[Ints, Ints], Ints]
"""Type of a function `partner(ranks, steps)`. It returns the rank with which each of the ranks exchanges a block in
each of the steps. Steps count from 1."""


def pairwise(request: ScheduleRequest, *, at_once: bool = False) -> PlannedSchedule:
    """Return a plan in which rank r sends to rank r-s and receives from rank r+s in step s, modulo N, for s = 1 .. N-1.

    If `at_once` is True, all these blocks are sent in a single step.
    """
    size = request.size
    return _direct(request, to=lambda r, s: (r - s) % size, source=lambda r, s: (r + s) % size, at_once=at_once)


def xor(request: ScheduleRequest) -> PlannedSchedule:
    """Return a plan in which rank r exchanges blocks with rank r xor s in step s. The number of ranks has to be a power
    of two."""
    if request.size & (request.size - 1):
        raise LocalError(
            "size", f"{request.size} is no power of two, which xor needs; legal for any are pairwise, linear, bruck",
            id="uneven-split"
        )  # fmt: skip
    return _direct(request, to=np.bitwise_xor, source=np.bitwise_xor)


linear = partial(pairwise, at_once=True)


class _Blocks:
    """This class gives the size of the block from rank i to rank j, and its position in the input of i and in the
    output of j."""

    def __init__(self, request: ScheduleRequest) -> None:
        splits = request.splits
        self.each = np.asarray(request.count // request.size, dtype=integers(request.count))
        self.splits = splits
        if splits is not None:
            kind = integers(int(splits.sum()))
            self.sent = np.cumsum(splits, axis=1, dtype=np.int64).astype(kind) - splits
            self.received = np.cumsum(splits, axis=0, dtype=np.int64).astype(kind) - splits

    def size(self, i: Ints, j: Ints) -> Ints:
        return self.each if self.splits is None else self.splits[i, j]

    def start(self, i: Ints, j: Ints) -> Ints:
        return j * self.each if self.splits is None else self.sent[i, j]

    def target(self, i: Ints, j: Ints) -> Ints:
        return i * self.each if self.splits is None else self.received[i, j]


def _direct(request: ScheduleRequest, *, to: Partner, source: Partner, at_once: bool = False) -> PlannedSchedule:
    """Return a plan that sends each block in a message of its own."""
    size, blocks = request.size, _Blocks(request)
    rounds = size - 1

    def table(rank: int | None) -> MessageColumns:
        number = np.arange(1, size, dtype=np.int32)[:, None]
        if rank is None:
            src = np.arange(size, dtype=np.int32)[None, :]
        else:
            own = np.full_like(number, rank)
            src = np.concatenate([own, source(own, number)], axis=1)
        dst = to(src, number)
        return MessageColumns.of(
            step=0 if at_once else number - 1, src=src, dst=dst, count=blocks.size(src, dst),
            buffer=Buffer.INPUT, start=blocks.start(src, dst),
            target_buffer=Buffer.OUTPUT, target=blocks.target(src, dst), fold=Fold.STORE,
        )  # fmt: skip

    def work(rank: int) -> dict[int, LocalWork]:
        own = np.array(rank)
        start, target, count = (int(of(own, own)) for of in (blocks.start, blocks.target, blocks.size))
        return {0: LocalWork(before=(Local(Buffer.INPUT, start, Buffer.OUTPUT, target, count),))}

    def counts(rank: int) -> Counts:
        if request.splits is None:
            return Counts(request.count, request.count, 0)
        return Counts(int(request.splits[rank].sum()), int(request.splits[:, rank].sum()), 0)

    part = Table(min(1, rounds) if at_once else rounds, table)
    return PlannedSchedule(request.op, request.algorithm, size, counts, (part,), work, splits=request.splits)


def bruck(request: ScheduleRequest) -> PlannedSchedule:
    """Return Bruck's plan: in step k, rank r sends to rank r+2^k one message with all blocks whose distance has bit k
    set.

    The distance of a block is the number of ranks from its source to its target, modulo N. SCRATCH holds the blocks of
    the rank by distance, then the blocks of a message to send, then the blocks of a received message.
    """
    if request.splits is not None:
        raise LocalError(
            "splits", "bruck takes blocks of one size; legal with splits are pairwise, xor, linear", id="uneven-split"
        )
    size, each, rounds = request.size, request.count // request.size, steps_for(request.size)
    room = max((len(_travelling(size, k)) for k in range(rounds)), default=0)
    outgoing, incoming = size * each, (size + room) * each

    def table(rank: int | None) -> MessageColumns:
        k = np.arange(rounds)[:, None]
        src = np.arange(size)
        count = np.array([len(_travelling(size, step)) * each for step in range(rounds)], dtype=np.int64)[:, None]
        return MessageColumns.of(
            step=k, src=src, dst=(src + (1 << k)) % size, count=count,
            buffer=Buffer.SCRATCH, start=outgoing, target_buffer=Buffer.SCRATCH, target=incoming, fold=Fold.STORE,
        )  # fmt: skip

    def work(rank: int) -> dict[int, LocalWork]:
        by_distance = [
            Local(Buffer.INPUT, (rank + i) % size * each, Buffer.SCRATCH, i * each, each) for i in range(size)
        ]
        home = [Local(Buffer.SCRATCH, i * each, Buffer.OUTPUT, (rank - i) % size * each, each) for i in range(size)]
        if not rounds:
            return {0: LocalWork(before=tuple(by_distance + home))}
        steps = {}
        for k in range(rounds):
            places = list(enumerate(_travelling(size, k)))
            pack = [Local(Buffer.SCRATCH, i * each, Buffer.SCRATCH, outgoing + p * each, each) for p, i in places]
            unpack = [Local(Buffer.SCRATCH, incoming + p * each, Buffer.SCRATCH, i * each, each) for p, i in places]
            steps[k] = LocalWork(
                tuple(by_distance + pack if k == 0 else pack), tuple(unpack + home if k == rounds - 1 else unpack)
            )
        return steps

    counts = Counts(request.count, request.count, (size + 2 * room) * each)
    return PlannedSchedule(request.op, request.algorithm, size, lambda _: counts, (Table(rounds, table),), work)


def _travelling(size: int, k: int) -> list[int]:
    """Return the distances, below `size`, whose bit k is set."""
    return [i for i in range(size) if i >> k & 1]
