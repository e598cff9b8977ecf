# SPDX-License-Identifier: GPL-2.0-only
"""This module has the arguments of a schedule, and makes schedules with the buffers and local copies that each
operation needs."""

from dataclasses import dataclass

from uetproto.collectives.algorithms import chunks
from uetproto.collectives.algorithms.pattern import Pattern, PatternPhase, SchedulePart, everyone
from uetproto.collectives.algorithms.plan import PlannedSchedule
from uetproto.collectives.algorithms.schedule import Buffer, Counts, Ints, Local, LocalWork


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleRequest:
    """This record holds the checked arguments of `catalogue.schedule`."""

    op: str
    algorithm: str
    size: int
    count: int
    """Number of elements of the full vector. For an operation on blocks, this is the sum over all blocks."""
    places: Ints
    """Ranks of the nodes, in local order. Row m has the ranks of node m."""
    root: int = 0
    sizes: tuple[int, ...] | None = None
    """Number of elements of each rank's block. None means that the blocks are cut by the rule of chunks (collectives.md
    §3.1)."""
    splits: Ints | None = None
    """Number of elements that rank i sends to rank j in all_to_all, in row i and column j. None means equal blocks."""
    slices: int = 1
    channels: int = 1
    sockets: int = 1
    between: str = "ring"

    @property
    def bounds(self) -> Ints:
        """Return the indices at which the ranks' blocks start in the full vector, followed by the length of the
        vector."""
        return chunks.bounds(self.count, self.size) if self.sizes is None else chunks.bounds_of(self.sizes)

    def phase(self, pattern: Pattern, buffer: Buffer = Buffer.OUTPUT, *, bounds: Ints | None = None) -> PatternPhase:
        """Return a part in which all ranks run a pattern. If the pattern has one block for each rank, its blocks are
        the blocks of the ranks. Otherwise its blocks are chunks of the vector. `bounds` sets other blocks."""
        if bounds is None:
            bounds = self.bounds if pattern.blocks == self.size else chunks.bounds(self.count, pattern.blocks)
        return PatternPhase(pattern, everyone(self.size), bounds[None, :], buffer)

    def in_place(self, *parts: SchedulePart, root: int | None = None) -> PlannedSchedule:
        """Return a schedule of all_reduce, reduce or broadcast. Its parts work in OUTPUT."""
        counts = Counts(self.count, self.count, 0)
        return PlannedSchedule(self.op, self.algorithm, self.size, lambda _: counts, parts, root=root)

    def reduce_scatter(self, *parts: SchedulePart) -> PlannedSchedule:
        """Return a schedule of reduce_scatter. Its parts work on a copy of the input in SCRATCH, where they leave the
        result of each rank at the position of its block."""
        bounds = self.bounds
        last = max((part.first + part.length for part in parts), default=0) - 1

        def counts(rank: int) -> Counts:
            return Counts(self.count, int(bounds[rank + 1] - bounds[rank]), self.count)

        def work(rank: int) -> dict[int, LocalWork]:
            start, end = int(bounds[rank]), int(bounds[rank + 1])
            copy = Local(Buffer.INPUT, 0, Buffer.SCRATCH, 0, self.count)
            result = Local(Buffer.SCRATCH, start, Buffer.OUTPUT, 0, end - start)
            return around(last, before=(copy,), after=(result,))

        return PlannedSchedule(self.op, self.algorithm, self.size, counts, parts, work)

    def all_gather(self, *parts: SchedulePart) -> PlannedSchedule:
        """Return a schedule of all_gather. Each rank first copies its own block to OUTPUT, where the parts work."""
        bounds = self.bounds

        def counts(rank: int) -> Counts:
            return Counts(int(bounds[rank + 1] - bounds[rank]), self.count, 0)

        def work(rank: int) -> dict[int, LocalWork]:
            start, end = int(bounds[rank]), int(bounds[rank + 1])
            return {0: LocalWork(before=(Local(Buffer.INPUT, 0, Buffer.OUTPUT, start, end - start),))}

        return PlannedSchedule(self.op, self.algorithm, self.size, counts, parts, work)


def around(last: int, *, before: tuple[Local, ...] = (), after: tuple[Local, ...] = ()) -> dict[int, LocalWork]:
    """Return the local work of a rank. The copies `before` come before the messages of step 0, and the copies `after`
    come after those of step `last`. If there are no messages, step 0 has both."""
    if last <= 0:
        return {0: LocalWork(before, after)}
    return {0: LocalWork(before=before), last: LocalWork(after=after)}


def rotation(source: Buffer, target: Buffer, count: int, shift: int) -> tuple[Local, ...]:
    """Return local copies that move all elements `shift` positions to the left from `source` to `target`,
    cyclically."""
    shift %= count or 1
    pieces = (Local(source, shift, target, 0, count - shift), Local(source, 0, target, count - shift, shift))
    return tuple(piece for piece in pieces if piece.count)
