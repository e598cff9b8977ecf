# SPDX-License-Identifier: GPL-2.0-only
"""This module proves that a schedule is correct: every element arrives where it belongs, and every contribution is in
every result exactly once.

The proof runs the schedule on labels in place of values. Element j of rank i's input has the label `A[i] * B[j]`, where
A and B are odd random numbers of 64 bits, and a reduction adds labels. Two sums of labels are equal only if they
contain the same elements equally often, except with a probability of about 2^-48. A missing, doubled or misplaced
element is therefore found. Elements that all messages move together have one label, so that the cost depends on the
messages and hardly on the length of the vector.
"""

import itertools
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from uetproto.collectives.algorithms.schedule import IN_PLACE, Buffer, Fold, Ints, Local, Schedule
from uetproto.errors import LocalError

Labels: TypeAlias = NDArray[np.uint64]

_AT_ONCE = 1 << 18
"""Number of messages whose elements are summed in one pass. The arrays of so many messages fit into the cache."""


class CheckedSchedule(NamedTuple):
    """This record holds the counts of a schedule that was proved correct."""

    steps: int
    """Number of steps in which there are messages."""
    messages: int
    elements: int
    """Number of elements that all ranks send together: `inj` (collectives.md §2)."""
    sent: Ints
    """Number of elements that each rank sends."""
    received: Ints
    """Number of elements that each rank receives."""


class _Copies(NamedTuple):
    """This record holds ranges of elements that are copied or folded. Each array has one entry for each range, in the
    order of the folds."""

    from_rank: Ints
    from_buffer: Ints
    from_start: Ints
    to_rank: Ints
    to_buffer: Ints
    to_start: Ints
    length: Ints
    fold: Ints

    def only(self, which: slice | NDArray[np.bool_] | Ints) -> "_Copies":
        return _Copies._make(column[which] for column in self)


def check(schedule: Schedule) -> CheckedSchedule:
    """Run the schedule on labels and return its counts. Raises `LocalError`, which names a rank, if a result is
    wrong."""
    columns = schedule.arrays()
    step, sender, receiver, length = columns["step"], columns["src"], columns["dst"], columns["count"]
    messages = _Copies(
        sender, columns["buffer"], columns["start"], receiver, columns["target_buffer"], columns["target"], length,
        columns["fold"],
    )  # fmt: skip
    ends = np.searchsorted(step, np.arange(schedule.length, dtype=step.dtype), "right").tolist()
    of_step = [slice(begin, end) for begin, end in itertools.pairwise([0, *ends])]
    if schedule.op == "barrier":
        _check_barrier(schedule.size, sender, receiver, of_step)
    else:
        _run(schedule, messages, of_step)
    sent, received = np.zeros((2, schedule.size), dtype=np.int64)
    for begin in range(0, len(step), _AT_ONCE):
        some = slice(begin, begin + _AT_ONCE)
        sent += np.bincount(sender[some], length[some], schedule.size).astype(np.int64)
        received += np.bincount(receiver[some], length[some], schedule.size).astype(np.int64)
    return CheckedSchedule(sum(of.stop > of.start for of in of_step), len(step), int(sent.sum()), sent, received)


def _check_barrier(size: int, sender: Ints, receiver: Ints, of_step: list[slice]) -> None:
    """Check a barrier: each message tells its receiver which ranks are known to have entered."""
    knows = np.eye(size, dtype=np.bool_)
    for messages in of_step:
        order = np.argsort(receiver[messages], kind="stable")
        sent, target = knows[sender[messages][order]], receiver[messages][order]
        first = np.flatnonzero(np.diff(target, prepend=-1))
        knows[target[first]] |= np.logical_or.reduceat(sent, first, axis=0)
    for rank in np.flatnonzero(~knows.all(axis=1)).tolist():
        raise LocalError(
            f"rank {rank} leaves the barrier without knowing of rank {int(np.argmin(knows[rank]))}", id="wrong-schedule"
        )


def _run(schedule: Schedule, messages: _Copies, of_step: list[slice]) -> None:
    before, after = _local_work(schedule)
    memory = _Memory(schedule, [messages, *before.values(), *after.values()])
    for step in range(max([len(of_step), *(number + 1 for number in (*before, *after))])):
        if step in before:
            memory.run_in_turns(before[step])
        if step < len(of_step):
            memory.run(messages.only(of_step[step]))
        if step in after:
            memory.run_in_turns(after[step])
    memory.compare()


def _local_work(schedule: Schedule) -> tuple[dict[int, _Copies], dict[int, _Copies]]:
    """Return the local work of all ranks before and after each step."""
    rows: tuple[dict[int, list[tuple[int, ...]]], ...] = ({}, {})
    for rank in range(schedule.size):
        for step, work in schedule.locals(rank).items():
            for of_step, items in zip(rows, work, strict=True):
                if items:
                    of_step.setdefault(step, []).extend(_row(rank, item) for item in items)
    before, after = ({step: _Copies(*np.array(all_rows).T) for step, all_rows in of_step.items()} for of_step in rows)
    return before, after


def _row(rank: int, item: Local) -> tuple[int, ...]:
    return rank, item.source, item.source_start, rank, item.target, item.target_start, item.count, item.fold


class _Memory:
    """This class holds the labels in all buffers of all ranks. A cell, which is a run of elements that always move
    together, has one label."""

    def __init__(self, schedule: Schedule, copies: list[_Copies]) -> None:
        self.schedule = schedule
        self.counts = np.array([schedule.counts(rank) for rank in range(schedule.size)], dtype=np.int64)
        if schedule.op in IN_PLACE:
            self.counts[:, Buffer.INPUT] = 0  # INPUT was copied to OUTPUT
        if any((part.to_buffer == Buffer.INPUT).any() for part in copies):
            raise LocalError("the schedule writes to INPUT, which is the caller's", id="wrong-schedule")
        promise = [] if schedule.op in IN_PLACE else [_promise(schedule, self.counts)]
        cuts = _cuts(self.counts.max(axis=0), copies + promise)
        self.first = np.cumsum([0, *(np.count_nonzero(at) - 1 for at in cuts)])  # by buffer
        self.cells = int(self.first[-1])
        self.places = [np.cumsum(at) - 1 + first for at, first in zip(cuts, self.first, strict=False)]
        random = np.random.default_rng(1)
        self.of_rank = random.integers(0, 2**63, schedule.size, dtype=np.uint64) * 2 + 1
        self.of_place = random.integers(0, 2**63, self.cells, dtype=np.uint64) * 2 + 1
        self.labels: Labels = np.zeros(schedule.size * self.cells, dtype=np.uint64)
        self.rows = self.labels.reshape(schedule.size, self.cells)
        filled = Buffer.OUTPUT if schedule.op in IN_PLACE else Buffer.INPUT
        np.multiply(self.of_rank[:, None], self._of_buffer(filled), out=self.view(filled))

    def _of_buffer(self, buffer: Buffer) -> Labels:
        return self.of_place[self.first[buffer] : self.first[buffer + 1]]

    def view(self, buffer: Buffer) -> Labels:
        """Return the labels of one buffer, one row for each rank."""
        return self.rows[:, self.first[buffer] : self.first[buffer + 1]]

    def _cell(self, rank: Ints, buffer: Ints, start: Ints) -> Ints:
        if buffer.strides == (0,) or (buffer == buffer[0]).all():
            at = self.places[int(buffer[0])][start]
        else:
            at = np.choose(buffer, [np.take(place, start, mode="clip") for place in self.places])
        return np.asarray(at + rank * np.int64(self.cells))

    def _spread(self, copies: _Copies) -> tuple[Ints, Ints, Ints]:
        """Return the source cell, the target cell and the fold of every cell that is copied."""
        source = self._cell(copies.from_rank, copies.from_buffer, copies.from_start)
        target = self._cell(copies.to_rank, copies.to_buffer, copies.to_start)
        number = self._cell(copies.from_rank, copies.from_buffer, copies.from_start + copies.length) - source
        if (number == 1).all():
            return source, target, copies.fold
        return _spans(source, number), _spans(target, number), np.repeat(copies.fold, number)

    def run(self, copies: _Copies) -> None:
        """Run the messages of one step: all elements are read before any is written."""
        if not len(copies.length):
            return
        source, target, fold = self._spread(copies)
        values = self.labels[source]
        stored = fold == Fold.STORE
        if stored.all():
            self.labels[target] = values
        else:
            self.labels[target[stored]] = values[stored]
            np.add.at(self.labels, target[~stored], values[~stored])

    def run_in_turns(self, copies: _Copies) -> None:
        """Run the local work of all ranks. The k-th item of every rank runs at the same time, as ranks do not share
        memory."""
        order = np.argsort(copies.to_rank, kind="stable")
        rank = copies.to_rank[order]
        turn = np.empty_like(order)
        turn[order] = np.arange(len(order)) - np.searchsorted(rank, rank)
        for k in range(int(turn.max()) + 1):
            self.run(copies.only(turn == k))

    def compare(self) -> None:
        """Compare OUTPUT with the result that the operation defines. Raises `LocalError` if they differ."""
        op, root = self.schedule.op, self.schedule.root
        output = self.view(Buffer.OUTPUT)
        everyone = self.of_rank.sum(dtype=np.uint64)
        if op in IN_PLACE:
            contribution = self.of_rank[root] if op == "broadcast" and root is not None else everyone
            right = output == contribution * self._of_buffer(Buffer.OUTPUT)
            ranks = [root] if op == "reduce" else range(self.schedule.size)
            wrong = [rank for rank in ranks if rank is not None and not right[rank].all()]
        else:
            promise = _promise(self.schedule, self.counts)
            source, target, _ = self._spread(promise)
            expected = self.labels[source]
            if op == "reduce_scatter":
                expected = everyone * self.of_place[source % self.cells]
            if op == "all_gather":  # the expected result of rank 0 is that of all ranks
                wrong = np.flatnonzero((self.rows[:, target] != expected).any(axis=1)).tolist()
            else:
                wrong = np.unique(target[self.labels[target] != expected] // self.cells).tolist()
        if wrong:
            raise LocalError(
                f"{len(wrong)} ranks end without the result of {op}, the first is rank {wrong[0]}", id="wrong-schedule"
            )


def _promise(schedule: Schedule, counts: Ints) -> _Copies:
    """Return the copies from inputs to outputs that the operation defines (collectives.md §1.3)."""
    op, size = schedule.op, schedule.size
    rank, zero, root = np.arange(size), np.zeros(size, dtype=np.int64), np.full(size, schedule.root or 0)
    offset = {buffer: np.cumsum(counts[:, buffer]) - counts[:, buffer] for buffer in (Buffer.INPUT, Buffer.OUTPUT)}
    if op == "all_to_all":
        splits = schedule.splits
        if splits is None:
            splits = np.full((size, size), counts[0, Buffer.INPUT] // size)
        i, j = (index.reshape(-1) for index in np.indices((size, size)))
        start, target = np.cumsum(splits, axis=1) - splits, np.cumsum(splits, axis=0) - splits
        return _moved(i, start.reshape(-1), j, target.reshape(-1), splits.reshape(-1))
    if op in ("all_gather", "gather"):
        return _moved(rank, zero, root, offset[Buffer.INPUT], counts[:, Buffer.INPUT])
    return _moved(root, offset[Buffer.OUTPUT], rank, zero, counts[:, Buffer.OUTPUT])


def _moved(sender: Ints, start: Ints, receiver: Ints, target: Ints, length: Ints) -> _Copies:
    one = np.ones_like(sender)
    return _Copies(sender, Buffer.INPUT * one, start, receiver, Buffer.OUTPUT * one, target, length, Fold.STORE * one)


def _cuts(counts: Ints, copies: list[_Copies]) -> list[NDArray[np.bool_]]:
    """Return for each buffer a mask of the elements at which a cell starts.

    A cell starts where a copied range starts or ends. It also starts at each element that is copied to or from the
    start of a cell.
    """
    cuts = [np.zeros(int(count) + 1, dtype=np.bool_) for count in counts]
    for at in cuts:
        at[[0, -1]] = True
    moves = []
    for part in copies:
        _mark(cuts, part.from_buffer, part.from_start, part.length)
        if part.to_start is part.from_start and part.to_buffer is part.from_buffer:
            continue  # source and target have the same positions
        _mark(cuts, part.to_buffer, part.to_start, part.length)
        moved = (part.from_start != part.to_start) | (part.from_buffer != part.to_buffer)
        moves.append(np.stack([column[moved] for column in part[1:3] + part[4:7]], axis=1))
    if moves:
        there = np.unique(np.concatenate(moves), axis=0)
        back = there[:, [2, 3, 0, 1, 4]]
        while any([_carry(cuts, there), _carry(cuts, back)]):
            pass
    return cuts


def _mark(cuts: list[NDArray[np.bool_]], buffer: Ints, start: Ints, length: Ints) -> None:
    for kind in Buffer:
        if buffer.strides == (0,) or (buffer == kind).all():
            if len(buffer) and buffer[0] == kind:
                cuts[kind][start] = True
                cuts[kind][start + length] = True
        else:
            here = buffer == kind
            cuts[kind][start[here]] = True
            cuts[kind][start[here] + length[here]] = True


def _carry(cuts: list[NDArray[np.bool_]], moves: Ints) -> bool:
    """Add the starts of cells within each copied range to the range's target. Return whether one of them was new."""
    new = False
    for source, target in itertools.product(Buffer, Buffer):
        if cuts[target].all():
            continue
        _, start, _, place, length = moves[(moves[:, 0] == source) & (moves[:, 2] == target)].T
        known = np.flatnonzero(cuts[source])
        low, high = np.searchsorted(known, start), np.searchsorted(known, start + length)
        at = known[_spans(low, high - low)] + np.repeat(place - start, high - low)
        new |= not cuts[target][at].all()
        cuts[target][at] = True
    return new


def _spans(start: Ints, number: Ints) -> Ints:
    """Return `number` consecutive integers from each start on, joined."""
    return np.asarray(np.arange(int(number.sum())) + np.repeat(start - (np.cumsum(number) - number), number))
