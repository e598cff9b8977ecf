# SPDX-License-Identifier: GPL-2.0-only
"""This module runs one rank's part of a collective: the steps of a `Schedule` over a `RankTransport`, by callbacks.

A step posts its sends and receives, and ends when all of them are complete. Elements to be folded are first received in
scratch memory. They are then combined in the order of the schedule, whatever their order of arrival.
"""

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from uetproto.collectives.algorithms.schedule import (
    IN_PLACE,
    Buffer,
    Fold,
    Local,
    Schedule,
    ScheduledReceive,
    ScheduleStep,
)
from uetproto.collectives.dtypes import Array, Bytes, bytes_of
from uetproto.collectives.offload import CollectiveCounters
from uetproto.collectives.reduce_ops import ReduceOp
from uetproto.collectives.transport import Purpose, RankTransport, Tag, TransportError
from uetproto.errors import LocalError, UetError

# Looked up once: with every message, Class.MEMBER would cost as much as a call.
_STORE, _COLLECTIVE = Fold.STORE, Purpose.COLLECTIVE


class ScratchPool:
    """This class keeps blocks of memory for reuse. The size of a block is rounded up to a power of two."""

    def __init__(self) -> None:
        self._free: dict[int, list[Bytes]] = {}

    def take(self, length: int) -> Bytes:
        """Return a block of at least `length` bytes, whose content is not defined."""
        size = 1 << max(length - 1, 63).bit_length()
        free = self._free.get(size)
        return free.pop() if free else np.empty(size, dtype=np.uint8)

    def give(self, block: Bytes) -> None:
        """Give back a block that `take` returned."""
        self._free.setdefault(block.nbytes, []).append(block)


class Execution:
    """This class runs one rank's part of a schedule.

    Rank r of the schedule is rank `ranks[r]` of the transport; if `ranks` is None, it is rank r. `input` and `output`
    are contiguous arrays with as many elements as the schedule says, possibly none. If the operation is in place, they
    are the same array. `gamma` is the time in picoseconds for each reduced byte. `done` is called
    once, with None or with the error of a message; the caller may then reuse the buffers.
    """

    def __init__(
        self, schedule: Schedule, rank: int, transport: RankTransport, *, input: Array, output: Array,
        done: Callable[[UetError | None], None], op: ReduceOp | None = None, ranks: Sequence[int] | None = None,
        group: int = 0, sequence: int = 0, pool: ScratchPool | None = None, gamma: float = 0,
    ) -> None:  # fmt: skip
        counts = schedule.counts(rank)
        for name, array, count in (("input", input, counts.input), ("output", output, counts.output)):
            if array.size != count:
                text = f"{name}: {array.size} elements; legal for rank {rank} of this {schedule.op}: {count}"
                raise LocalError(text, id="message-lost")
        self.schedule = schedule
        self.rank = rank
        self.transport = transport
        self.op = ReduceOp.SUM if op is None else op
        self.ranks = range(schedule.size) if ranks is None else ranks
        self.group = group
        self.sequence = sequence
        self.counted = CollectiveCounters()
        self.step: ScheduleStep | None = None
        """The step in progress. It is None before the first step."""
        self.ended = False
        self._pool = ScratchPool() if pool is None else pool
        self._gamma = gamma
        self._done = done
        self._input, self._output = input.reshape(-1), output.reshape(-1)
        self._scratch = self._pool.take(counts.scratch * output.itemsize)
        self._taken = [self._scratch]
        self._arrays: dict[Buffer, Array] = {}
        self._bytes: dict[Buffer, memoryview] = {}
        self._steps: Iterator[ScheduleStep] = iter(())
        self._folds: list[tuple[ScheduledReceive, Bytes]] = []
        self._open = 0
        """Number of messages of this step that are not complete. One more is counted while messages are being
        posted."""
        self._nested = False

    def start(self) -> None:
        """Copy the input to the output if the operation is in place, and scale the elements if the reduce operation
        does so. Then begin the first step."""
        source, output = self._input, self._output
        if self.schedule.op in IN_PLACE:
            if source.ctypes.data != output.ctypes.data:
                output[...] = source
            self.op.prepare(output, self.schedule.size)
        elif self.op.prepares(source.dtype):
            source = source.copy()
            self.op.prepare(source, self.schedule.size)
        scratch = self._scratch[: self.schedule.counts(self.rank).scratch * output.itemsize].view(output.dtype)
        if self.schedule.op == "barrier":
            scratch[...] = 0  # the element that a service barrier sums
        self._arrays = {Buffer.INPUT: source, Buffer.OUTPUT: output, Buffer.SCRATCH: scratch}
        self._bytes = {buffer: bytes_of(array).data for buffer, array in self._arrays.items()}
        self._steps = self.schedule.steps(self.rank)
        self._go()

    def fail(self, error: UetError) -> None:
        """End the part with an error that arose elsewhere. Its messages have no effect any more."""
        self._end(error)

    # One step after the other

    def _go(self) -> None:
        """Begin steps until one has to wait. This is a loop and no recursion, as a transport may call back at once."""
        if self._nested:
            return
        self._nested = True
        while not self.ended:
            step = next(self._steps, None)
            if step is None:
                self.op.finish(self._output, self.schedule.size)
                self._end(None)
                break
            self.step = step
            self._begin(step)
            if self._open:
                break
        self._nested = False

    def _begin(self, step: ScheduleStep) -> None:
        if step.before:
            self._locals(step.before)
        self._open = 1
        counted, item, done = self.counted, self._output.itemsize, self._completed
        pieces: dict[int, int] = {}
        for receive in step.receives:
            peer, buffer, start, count, fold = receive
            size = count * item
            if fold is _STORE:
                view = self._bytes[buffer][start * item : start * item + size]
            else:
                block = self._pool.take(size)
                self._taken.append(block)
                arriving = block[:size]
                self._folds.append((receive, arriving))
                view = arriving.data
            counted.bytes_received += size
            self._open += 1
            self.transport.receive(self.ranks[peer], self._tag(step, peer, pieces), view, done)
        pieces = {}
        for peer, buffer, start, count in step.sends:
            size = count * item
            view = self._bytes[buffer][start * item : start * item + size]
            counted.messages += 1
            counted.bytes_sent += size
            self._open += 1
            self.transport.send(self.ranks[peer], self._tag(step, peer, pieces), view, done)
        done(None)

    def _completed(self, failure: TransportError | None) -> None:
        """Handle the completion of a message. The last completion of a step ends the step."""
        if self.ended:
            return
        if failure is not None:
            self._end(failure)
            return
        self._open -= 1
        if self._open:
            return
        reduced = 0
        for _, view in self._folds:
            reduced += view.nbytes
        self.counted.bytes_reduced += reduced
        cost = round(reduced * self._gamma) if self._gamma else 0
        if cost:
            self._open = 1
            self.transport.after(cost, self._finish_late)
        else:
            self._finish()

    def _finish_late(self) -> None:
        if not self.ended:
            self._open = 0
            self._finish()

    def _finish(self) -> None:
        step = self.step
        assert step is not None
        for receive, view in self._folds:
            own = self._arrays[receive.buffer][receive.start : receive.start + receive.count]
            self.op.fold(own, view.view(own.dtype), receive.fold)
        self._folds.clear()
        while len(self._taken) > 1:
            self._pool.give(self._taken.pop())
        if step.after:
            self._locals(step.after)
        self.counted.steps += 1
        self._go()

    def _end(self, error: UetError | None) -> None:
        if self.ended:
            return
        self.ended = True
        if error is None:  # after an error the transport may still write to the scratch memory
            for block in self._taken:
                self._pool.give(block)
        self._taken.clear()
        self._done(error)

    # Elements

    def _locals(self, parts: Sequence[Local]) -> None:
        for part in parts:
            source = self._arrays[part.source][part.source_start : part.source_start + part.count]
            target = self._arrays[part.target][part.target_start : part.target_start + part.count]
            self.op.fold(target, source, part.fold)

    def _tag(self, step: ScheduleStep, peer: int, pieces: dict[int, int]) -> Tag:
        """Return the tag of the next message of a step to or from a peer; `pieces` counts these messages."""
        piece = pieces.get(peer, 0)
        pieces[peer] = piece + 1
        return Tag(_COLLECTIVE, self.group, self.sequence, step.number, piece)
