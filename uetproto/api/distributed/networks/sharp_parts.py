# SPDX-License-Identifier: GPL-2.0-only
"""This module runs the parts of a SHARP collective, one part for each rank. If one part fails, all ranks fall back to a
collective without SHARP, provided that the options allow a fallback (sharp.md §3.4)."""

from collections.abc import Callable

import numpy as np

from uetproto.api.distributed.networks.sharp_groups import Communicator, SharpMember, Told
from uetproto.api.distributed.networks.sharp_works import SharpOperation, operations
from uetproto.collectives.dtypes import Array, bytes_of
from uetproto.collectives.offload import CollectiveCounters, CollectivePart, Ended, OffloadRequest, PartFactory
from uetproto.collectives.reduce_ops import ReduceOp
from uetproto.collectives.transport import TransportError
from uetproto.engine.sharp.host.work import Trouble
from uetproto.engine.sharp.manager.grants import Rail
from uetproto.errors import UetError

Failure = Callable[[int, Trouble, Rail], TransportError]
"""Function that returns the error of one member of the group for a failure on the tree of a rail."""


class SharpCollective:
    """This class connects the parts of all ranks in one collective, so that either all ranks fall back to a collective
    without SHARP or none does.

    If a fallback is possible, no rank takes its result before the aggregations of all ranks have succeeded. A library
    would need messages for this agreement; here it takes no time.
    """

    def __init__(
        self, asked: OffloadRequest, communicator: Communicator, failure: Failure, instead: PartFactory | None,
        note: Callable[[str], None],
    ) -> None:  # fmt: skip
        """Make the collective. `instead` makes the parts of the fallback, which the ranks run by themselves; with None
        there is no fallback."""
        self.asked = asked
        self.communicator = communicator
        self.failure = failure
        self._instead = instead
        self._note = note
        self._ended: list[tuple[SharpPart, TransportError | None]] = []

    def ended(self, part: "SharpPart", error: TransportError | None) -> None:
        """Handle the end of a rank's part: all its aggregations have succeeded (`error` is None), or one has failed."""
        if self._instead is None:
            part.finish(error)
            return
        self._ended.append((part, error))
        if len(self._ended) < len(self.asked.ranks):
            return
        why = next((error for _, error in self._ended if error is not None), None)
        if why is not None:
            self._note(str(why))
        for one, _ in self._ended:
            if why is None:
                one.finish(None)
            else:
                one.fall_back(self._instead)


class SharpPart:
    """This class is a `CollectivePart`: it runs one rank's part of a SHARP collective."""

    def __init__(self, whole: SharpCollective, place: int, input_: Array, output: Array, done: Ended) -> None:
        self.counted = CollectiveCounters(steps=1)
        self.ended = False
        self._whole, self._asked, self._place = whole, whole.asked, place
        self._source, self._output, self._done = input_, output, done
        self._op = self._asked.reduce_op or ReduceOp.SUM
        self._left = 0
        """Number of aggregations in progress."""
        self._failed = False
        self._results: list[tuple[Array, bytearray]] = []
        """Results to be written at the end, as a fallback needs the input until then."""
        self._instead: CollectivePart | None = None

    def start(self) -> None:
        asked, output = self._asked, self._output
        size = len(asked.ranks)
        if asked.op in ("all_reduce", "reduce"):
            if self._source.ctypes.data != output.ctypes.data:
                output[...] = self._source
            self._source = output
        if asked.op in ("all_reduce", "reduce", "reduce_scatter") and self._op.prepares(output.dtype):
            if self._source is not output:
                self._source = self._source.copy()
            self._op.prepare(self._source, size)
        shares = [
            share
            for operation in operations(asked, self._place, self._source, output)
            for share in self._whole.communicator.shares(self._place, operation)
        ]
        self._left = len(shares)
        for member, operation in shares:
            self.counted.messages += 1
            self.counted.bytes_sent += len(operation.data)
            member.submit(operation, self._told(member, operation))

    def fail(self, error: UetError) -> None:
        if self._instead is not None and not self._instead.ended:
            self._instead.fail(error)
        self.finish(error)

    def _told(self, member: SharpMember, operation: SharpOperation) -> Told:
        def told(data: bytearray | None, trouble: Trouble | None) -> None:
            if self.ended or self._failed:
                return
            if trouble is not None:
                self._failed = True
                self._whole.ended(self, self._whole.failure(self._place, trouble, member.rail))
                return
            if operation.into is not None and data:
                self._results.append((operation.into, data))
                self.counted.bytes_received += len(data)
            self._left -= 1
            if not self._left:
                self._whole.ended(self, None)

        return told

    def fall_back(self, make: PartFactory) -> None:
        """Run the fallback on the vectors that were the input of the aggregations."""
        if not self.ended:
            self._instead = make(self._place, self._source, self._output, self.finish)
            self._instead.start()

    def finish(self, error: UetError | None) -> None:
        if self.ended:
            return
        self.ended = True
        if self._instead is not None:
            self.counted = self._instead.counted
        elif error is None:
            for into, result in self._results:
                bytes_of(into)[:] = np.frombuffer(result, np.uint8)
        if error is None and self._asked.op in ("all_reduce", "reduce", "reduce_scatter"):
            self._op.finish(self._output, len(self._asked.ranks))
        self._done(error)
