# SPDX-License-Identifier: GPL-2.0-only
"""This module receives the chunks of one subgroup at one rank, and notes them in a bitmap (collectives.md §3.10.4).

A receiver exists as long as its rank, and is armed for one operation after the other.
"""

from collections.abc import Callable
from enum import Enum

from uetproto.collectives.multicast.end import MulticastCounters
from uetproto.collectives.multicast.plan import MulticastPlan, Subgroup
from uetproto.collectives.multicast.wire import CHUNK_SHIFT, TASK_MASK

_MISSING, _HERE, _OWN = 0, 1, 2
"""States of a chunk: missing, received, or part of this rank's own block. Own chunks are never fetched."""


class ReceiverState(Enum):
    """This enumeration has the states of a receiver (collectives.md §3.10.4)."""

    IDLE = "R0"
    POLL = "R1"
    RECOVER = "R2"


class ReceiverInput(Enum):
    """This enumeration has the inputs that change the state of a receiver. A datagram alone does not change it."""

    ARM = "task armed"
    FULL = "to_recv == 0"
    CUTOFF = "timer >= cutoff"
    FINALIZED = "both recovery machines have ended"


_R, _I = ReceiverState, ReceiverInput

RECEIVER: dict[tuple[ReceiverState, ReceiverInput], ReceiverState] = {
    (_R.IDLE,    _I.ARM):       _R.POLL,
    (_R.POLL,    _I.FULL):      _R.RECOVER,
    (_R.POLL,    _I.CUTOFF):    _R.RECOVER,
    (_R.RECOVER, _I.CUTOFF):    _R.RECOVER,
    (_R.RECOVER, _I.FINALIZED): _R.IDLE,
}  # fmt: skip


class Receiver:
    """This class receives the datagrams of one subgroup. It counts a datagram under the first of these names that
    applies:

    foreign          the task id is that of another operation, or no operation is armed
    late             the receiver has stopped: all chunks are received, or the cutoff timer has fired
    malformed        the plan has no such chunk id
    loopback         the chunk belongs to this rank's own block
    duplicates       the chunk was received before
    malformed        the length is not that of the chunk
    chunks_received  the chunk is new: its bytes are copied, and its bit is set
    """

    __slots__ = (
        "_armed", "_block_length", "_chunks", "_counted", "_full", "_into", "_last", "_length", "_mtu", "_own",
        "_polled", "_start", "_tail", "recvd", "seen", "state", "to_recv",
    )  # fmt: skip

    def __init__(self) -> None:
        self.state = ReceiverState.IDLE
        self.seen = bytearray()
        """State of each chunk, by chunk id: missing, received or own."""
        self.recvd: list[int] = []
        """Number of received chunks of each block."""
        self.to_recv = 0
        self._polled = self._armed = -1
        """Task id of the datagrams that are accepted, and task id of the operation that is armed. Each is -1 if there
        is none."""
        self._counted = MulticastCounters()

    def arm(
        self, plan: MulticastPlan, part: Subgroup, rank: int, task: int, into: memoryview | None,
        counted: MulticastCounters,
        full: Callable[[], None],
    ) -> None:  # fmt: skip
        """Begin to receive the chunks of an operation. `full` is called when the last chunk has arrived, if this is
        before the cutoff. If there are no chunks to receive, the receiver stops at once without this call.

        If `into` is None, chunks are counted, and their bytes are dropped.
        """
        blocks, own = len(plan.owners), plan.block(rank)
        self._chunks, self._block_length = part.chunks, plan.length
        self._start, self._length, self._mtu = part.start, part.length, part.mtu
        self._last = part.chunks - 1
        self._tail = part.span(self._last)
        self._own, self._into, self._counted, self._full = own, into, counted, full
        self.seen = bytearray(blocks * part.chunks)
        if own is not None:
            self.seen[own * part.chunks : (own + 1) * part.chunks] = bytes((_OWN,)) * part.chunks
        self.recvd = [0] * blocks
        self.to_recv = (blocks - (own is not None)) * part.chunks
        self._polled = self._armed = task
        self._take(ReceiverInput.ARM)
        if not self.to_recv:
            self._stop(ReceiverInput.FULL)

    def on_chunk(self, immediate: int, data: memoryview | bytes | None) -> None:
        """Handle a datagram. `data` is not used after the call; its slot may then be posted again."""
        if immediate & TASK_MASK != self._polled:
            if immediate & TASK_MASK == self._armed:
                self._counted.late += 1
            else:
                self._counted.foreign += 1
            return
        chunk = immediate >> CHUNK_SHIFT
        try:
            seen = self.seen[chunk]
        except IndexError:
            self._counted.malformed += 1
            return
        if seen:
            if seen == _OWN:
                self._counted.loopback += 1
            else:
                self._counted.duplicates += 1
            return
        block, idx = divmod(chunk, self._chunks)
        if self._into is not None:
            size = self._mtu if idx != self._last else self._tail
            if data is None or len(data) != size:
                self._counted.malformed += 1
                return
            start = block * self._block_length + self._start + idx * self._mtu
            self._into[start : start + size] = data
        self.seen[chunk] = _HERE
        self.recvd[block] += 1
        self.to_recv -= 1
        if not self.to_recv:
            self._stop(ReceiverInput.FULL)
            self._full()

    def cut_off(self) -> None:
        """Stop receiving, because the cutoff timer has fired. Missing chunks will be fetched."""
        self._stop(ReceiverInput.CUTOFF)

    def finalize(self) -> None:
        """Make the receiver idle, after both recovery machines have ended or the operation has failed."""
        self._polled = self._armed = -1
        self.state = ReceiverState.IDLE

    # For recovery

    def holds(self, block: int) -> bool:
        """Return whether all chunks of a block were received or are this rank's own."""
        return block == self._own or self.recvd[block] == self._chunks

    def gap(self, block: int) -> tuple[int, int] | None:
        """Return the first run of missing chunks in a block as its first index and its length. The run is as long as
        possible. The result is None if no chunk is missing."""
        first = block * self._chunks
        start = self.seen.find(_MISSING, first, first + self._chunks)
        if start < 0:
            return None
        end = self.seen.find(_HERE, start, first + self._chunks)
        return start - first, (first + self._chunks if end < 0 else end) - start

    def fetched(self, block: int, idx: int, chunks: int) -> None:
        """Note that a run of chunks was fetched."""
        first = block * self._chunks + idx
        self.seen[first : first + chunks] = bytes((_HERE,)) * chunks
        self.recvd[block] += chunks
        self.to_recv -= chunks

    # For inspection

    @property
    def bitmap(self) -> int:
        """Return the bitmap of received chunks. Bit i stands for chunk id i; the bits of own chunks are 0."""
        return sum(1 << chunk for chunk, seen in enumerate(self.seen) if seen == _HERE)

    def _stop(self, event: ReceiverInput) -> None:
        """Stop receiving for the operation. Later datagrams count as late until it ends, and then as foreign."""
        self._polled = -1
        if self.state is ReceiverState.POLL:
            here = (len(self.recvd) - (self._own is not None)) * self._chunks - self.to_recv
            self._counted.chunks_received += here
        self._take(event)

    def _take(self, event: ReceiverInput) -> None:
        self.state = RECEIVER[self.state, event]
