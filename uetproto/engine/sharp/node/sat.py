"""Streaming: the operations of a group on a SAT tree, chunk by chunk (sharp.md §3.3).

Each chunk is an OST of its own and goes through the table of §3.2; it moves up as soon as all children delivered it.
A `ChunkStream` holds what the chunks of one seq have in common: window, chunk size, where LAST is. Results leave in
ascending vec_off. The first error of a chunk ends the whole operation.
"""

from collections import deque
from typing import TYPE_CHECKING

from uetproto.engine.sharp.config import GRANULE
from uetproto.engine.sharp.messages import SharpMessage
from uetproto.engine.sharp.node.checks import element_or_status
from uetproto.engine.sharp.node.operations import GroupOperations
from uetproto.engine.sharp.node.ost import OstEntry
from uetproto.engine.sharp.node.states import OpInput, OpState
from uetproto.wire.headers.sharp import EVERY_RANK, Flag, Status
from uetproto.wire.serial import add32, diff32

if TYPE_CHECKING:
    from uetproto.engine.sharp.node.group import AggregationGroup

_LAST, _UNLOCK = int(Flag.LAST), int(Flag.UNLOCK)


class ChunkStream:
    """One operation: the chunks of a seq."""

    __slots__ = ("chunk", "done", "failed", "finished", "furthest", "last", "out", "ready", "sizes")

    def __init__(self) -> None:
        self.chunk = 0
        """Bytes of a chunk that is not the last; 0: none has come."""
        self.sizes: dict[int, int] = {}
        """The same of each child."""
        self.last: int | None = None
        """vec_off of the last chunk, once it has come."""
        self.furthest = 0
        """Greatest vec_off that has come."""
        self.done = 0
        """Lowest vec_off that is not DONE: the window begins here."""
        self.ready: dict[int, OstEntry] = {}
        """Results that wait for those before them."""
        self.out: deque[OstEntry] = deque()
        """Chunks that are DONE and sent, not yet evicted."""
        self.finished = False
        """LAST result sent."""
        self.failed: OstEntry | None = None


class SatOperations(GroupOperations):
    """All operations of one group: a few streams."""

    sat = True

    def __init__(self, group: "AggregationGroup") -> None:
        super().__init__(group)
        self.streams: dict[int, ChunkStream] = {}
        self.open = 0
        """Chunks in COLLECT or UP."""
        self._position: dict[int, tuple[int, int]] = {}
        """(seq, vec_off) of the last chunk of each child."""

    @property
    def busy(self) -> bool:
        """An operation has begun and has not ended."""
        return any(not stream.finished and stream.failed is None for stream in self.streams.values())

    # Where a chunk belongs

    def _note(self, child: int, message: SharpMessage) -> None:
        seq, vec_off = self._position.get(child, (self.base, 0))
        ahead = diff32(message.seq, seq)
        if ahead > 0 or (not ahead and message.vec_off > vec_off):
            self._position[child] = message.seq, message.vec_off

    def _find(self, message: SharpMessage) -> OstEntry | None:
        stream = self.streams.get(message.seq)
        if stream is not None and stream.failed is not None:
            return stream.failed
        return self.ops.get((message.seq, message.vec_off))

    def _key(self, op: OstEntry) -> object:
        return op.seq, op.vec_off

    def _locked(self) -> bool:
        return self.node.holds_lock(self.group)

    def _target_rank(self, op: OstEntry) -> int:
        lock = self.node.lock_of(self.group)
        return lock.body.target_rank if lock is not None else EVERY_RANK

    def _place(self, child: int, message: SharpMessage, status: Status) -> tuple[OpInput, Status]:
        """A chunk that is the first of its vec_off, or out of a window."""
        seq, vec_off = message.seq, message.vec_off
        self._make_room(seq)
        ahead = diff32(seq, self.base)
        if ahead < 0:
            return OpInput.REQ_STALE, Status.OK
        if ahead >= self.group.window:
            return OpInput.REQ_AHEAD, Status.OK
        stream = self.streams.get(seq)
        if stream is None:
            if status:  # nothing that is wrong begins a stream
                return OpInput.REQ_BAD, status
            stream = self.streams[seq] = ChunkStream()
        self._evict_passed(stream)
        if vec_off < stream.done or stream.finished:
            return OpInput.REQ_STALE, Status.OK
        window = self.node.config.sat_window
        size = stream.chunk or self._length(message) or 1
        if not status and (vec_off >= stream.done + window * size or self.open >= window):
            status = Status.SAT_OST_OVERFLOW
        status = status or self._unfit(child, message)
        if status:
            return OpInput.REQ_BAD, status
        return (OpInput.REQ if self.group.take_ost() else OpInput.REQ_NO_OST), Status.OK

    def _length(self, message: SharpMessage) -> int:
        """Bytes of the vector that a chunk stands for, also with NODATA."""
        size, _ = element_or_status(message.coll, message.op, message.dtype, message.tag_dtype, True)
        return message.count * size

    def _unfit(self, child: int, message: SharpMessage) -> Status:
        """Size and LAST, beside what has come from this child and from the others."""
        stream = self.streams[message.seq]
        vec_off, length = message.vec_off, self._length(message)
        if message.flags & _LAST:
            if stream.last not in (None, vec_off) or vec_off < stream.furthest:
                return Status.SAT_UNBALANCED
            if stream.chunk and (length > stream.chunk or vec_off % stream.chunk):
                return Status.SAT_UNBALANCED
            stream.last = vec_off
        else:
            if length % GRANULE or not length or stream.sizes.setdefault(child, length) != length:
                return Status.SAT_GRANULARITY
            if stream.chunk not in (0, length) or vec_off % length:
                return Status.SAT_UNBALANCED
            if stream.last is not None and vec_off >= stream.last:
                return Status.SAT_UNBALANCED
            stream.chunk = length
        stream.furthest = max(stream.furthest, vec_off)
        return Status.OK

    def _difference(self, op: OstEntry, message: SharpMessage) -> Status:
        """Children that disagree on LAST or on the size are unbalanced, not just different."""
        head = op.message
        alike = head.count == message.count and not (head.flags ^ message.flags) & _LAST
        return Status.MISMATCH if alike else Status.SAT_UNBALANCED

    def _for_error(self, seq: int) -> OstEntry | None:
        if not 0 <= diff32(seq, self.base) < self.group.window:
            return None
        stream = self.streams.setdefault(seq, ChunkStream())
        if stream.failed is not None or stream.finished:
            return stream.failed
        return next((op for op in self.ops.values() if op.seq == seq and op.state in _OPEN), OstEntry(self, seq, 0))

    # Actions that differ

    def allocate(self, op: OstEntry, child: int, message: SharpMessage, data: bytes) -> None:
        """Take an OST of the stream."""
        self.open += 1
        op.length = self._length(message)
        super().allocate(op, child, message, data)

    def _spread(self, op: OstEntry) -> None:
        """Results leave in ascending vec_off."""
        self.open -= 1
        stream = self.streams[op.seq]
        stream.ready[op.vec_off] = op
        while (ready := stream.ready.pop(stream.done, None)) is not None:
            self._send_results(ready)
            stream.out.append(ready)
            if ready.message.flags & _LAST:
                stream.finished = True
                self._finish(bool(ready.merged[1] & _UNLOCK))
                break
            stream.done += ready.length

    def _finish(self, unlock: bool) -> None:
        lock = self.node.lock_of(self.group)
        if lock is not None and lock.held:
            lock.operation_finished(unlock)

    def _failed(self, op: OstEntry) -> None:
        """All chunks of the operation end with this one."""
        stream = self.streams.setdefault(op.seq, ChunkStream())
        stream.failed = op
        for key, other in list(self.ops.items()):
            if other.seq == op.seq:
                self.node.stop(other)
                self.group.give_ost(other)
                other.state = OpState.ERR
                del self.ops[key]
        stream.ready.clear()
        stream.out.clear()
        self.open = sum(other.state in _OPEN for other in self.ops.values())
        super()._failed(op)
        self._finish(unlock=False)

    def evict(self, op: OstEntry, *_: object) -> None:
        """Forget a chunk, and give its OST back."""
        self.ops.pop(self._key(op), None)
        self.group.give_ost(op)

    # The windows

    def acknowledged(self, op: OstEntry, child: int) -> None:
        op.finished.add(child)
        stream = self.streams.get(op.seq)
        if stream is not None and len(op.finished) >= len(self.group.members):
            self._evict_passed(stream)

    def _evict_passed(self, stream: ChunkStream) -> None:
        """Chunks at the head of the stream that all children have."""
        out = stream.out
        while out and self._has_finished(out[0]):
            self.handle(out.popleft(), OpInput.FINISHED)
        if stream.finished and not out:
            self.advance()

    def _has_finished(self, op: OstEntry) -> bool:
        members = self.group.members
        if len(op.finished) >= len(members):
            return True
        return all(child in op.finished or self._has_passed(child, op) for child in members)

    def _has_passed(self, child: int, op: OstEntry) -> bool:
        """It sent a chunk that it may send only with this result in hand."""
        seq, vec_off = self._position.get(child, (op.seq, 0))
        ahead = diff32(seq, op.seq)
        window = self.node.config.sat_window * (self.streams[op.seq].chunk or 1)
        return ahead >= self.group.window or (not ahead and vec_off >= op.vec_off + window)

    def advance(self) -> None:
        """`base` goes past every operation that is finished for all children."""
        while (stream := self.streams.get(self.base)) is not None:
            if stream.failed is not None:
                if not stream.failed.over:
                    return
                self.handle(stream.failed, OpInput.T_ERR)
            elif not stream.finished or any(not self._has_finished(op) for op in stream.out):
                return
            self._finish_base()

    def _is_answered(self, seq: int) -> bool:
        stream = self.streams.get(seq)
        return stream is not None and stream.finished and stream.failed is None

    def _finish_base(self) -> None:
        for op in self.streams.pop(self.base).out:
            self.handle(op, OpInput.FINISHED)
        self.base = add32(self.base, 1)

    def close(self) -> None:
        super().close()
        self.streams.clear()
        self.open = 0


_OPEN = (OpState.COLLECT, OpState.UP)
