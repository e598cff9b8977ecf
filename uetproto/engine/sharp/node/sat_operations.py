# SPDX-License-Identifier: GPL-2.0-only
"""A group on a SAT tree runs its operations chunk by chunk (sharp.md §3.3).

Each chunk has an OST of its own and follows the state table of sharp.md §3.2. A chunk is sent to the parent as soon as
all children have delivered it. A `ChunkStream` holds the state that the chunks of one seq share. Results are sent in
ascending vec_off. The first error of a chunk ends the whole operation.
"""

from collections import deque
from dataclasses import dataclass, field

from uetproto.engine.sharp.config import GRANULE
from uetproto.engine.sharp.messages import SharpMessage
from uetproto.engine.sharp.node.checks import element_or_status
from uetproto.engine.sharp.node.contract import GroupContext, NodeServices
from uetproto.engine.sharp.node.operations import GroupOperations
from uetproto.engine.sharp.node.ost import OstEntry
from uetproto.engine.sharp.node.states import OpInput, OpState
from uetproto.wire.headers.sharp import EVERY_RANK, Flag, Status
from uetproto.wire.serial import add32, diff32

_LAST, _UNLOCK = int(Flag.LAST), int(Flag.UNLOCK)
_OPEN = (OpState.COLLECT, OpState.UP)


@dataclass(slots=True, eq=False)
class ChunkStream:
    """A chunk stream holds the state that the chunks of one operation (one seq) share."""

    chunk: int = 0
    """Size in bytes of every chunk but the last; 0 until such a chunk has been received."""
    sizes: dict[int, int] = field(default_factory=dict)
    """Maps each child to the chunk size that it uses."""
    last: int | None = None
    """vec_off of the last chunk; None until it has been received."""
    furthest: int = 0
    """Greatest vec_off received."""
    done: int = 0
    """Lowest vec_off whose chunk is not DONE. The window of chunks begins at this vec_off."""
    ready: dict[int, OstEntry] = field(default_factory=dict)
    """Results, by vec_off, that wait until the results of all lower vec_offs have been sent."""
    out: deque[OstEntry] = field(default_factory=deque)
    """Chunks whose results were sent and that are not yet evicted."""
    finished: bool = False
    """Whether the result of the last chunk, which has the flag LAST, was sent."""
    failed: OstEntry | None = None


class SatOperations(GroupOperations):
    """This class holds the operations of a group on a streaming tree. One window limits the open operations, and
    another window limits their open chunks."""

    sat = True

    def __init__(self, group: GroupContext, node: NodeServices) -> None:
        super().__init__(group, node)
        self.streams: dict[int, ChunkStream] = {}
        self.open = 0
        """Number of chunks in COLLECT or UP."""
        self._position: dict[int, tuple[int, int]] = {}
        """Maps each child to the (seq, vec_off) of its last chunk."""

    @property
    def busy(self) -> bool:
        """Tell whether any operation has begun and has not ended."""
        return any(not stream.finished and stream.failed is None for stream in self.streams.values())

    # Where a chunk belongs

    def _note_progress(self, child: int, message: SharpMessage) -> None:
        self.note_position(child, message.seq, message.vec_off)

    def note_position(self, child: int, seq: int, vec_off: int) -> None:
        """Note the seq and the vec_off of a chunk that a child has sent, if they are the furthest so far."""
        known = self._position.get(child, (self.base, 0))
        ahead = diff32(seq, known[0])
        if ahead > 0 or (not ahead and vec_off > known[1]):
            self._position[child] = seq, vec_off

    def _find(self, message: SharpMessage) -> OstEntry | None:
        stream = self.streams.get(message.seq)
        if stream is not None and stream.failed is not None:
            return stream.failed
        return self.ops.get((message.seq, message.vec_off))

    def _find_for_error(self, seq: int) -> OstEntry | None:
        if not 0 <= diff32(seq, self.base) < self.group.window:
            return None
        stream = self.streams.setdefault(seq, ChunkStream())
        if stream.failed is not None or stream.finished:
            return stream.failed
        return next((op for op in self.ops.values() if op.seq == seq and op.state in _OPEN), OstEntry(self, seq, 0))

    def _key(self, op: OstEntry) -> object:
        return op.seq, op.vec_off

    @property
    def is_locked(self) -> bool:
        lock = self.node.lock_of(self.group)
        return lock is not None and lock.held

    def _target_rank(self, op: OstEntry) -> int:
        lock = self.node.lock_of(self.group)
        return lock.body.target_rank if lock is not None else EVERY_RANK

    def _classify_first(self, child: int, message: SharpMessage, status: Status) -> tuple[OpInput, Status]:
        seq, vec_off = message.seq, message.vec_off
        self._make_room(seq)
        ahead = diff32(seq, self.base)
        if ahead < 0:
            return OpInput.REQ_STALE, Status.SEQ_STALE
        if ahead >= self.group.window:
            return OpInput.REQ_AHEAD, Status.SEQ_AHEAD
        stream = self.streams.get(seq)
        if stream is None:
            if status:  # a request that fails its checks begins no stream
                return OpInput.REQ_BAD, status
            stream = self.streams[seq] = ChunkStream()
        self._evict_finished(stream)
        if vec_off < stream.done or stream.finished:
            return OpInput.REQ_STALE, Status.SEQ_STALE
        window = self.node.config.sat_window
        size = stream.chunk or _length(message) or 1
        if not status and (vec_off >= stream.done + window * size or self.open >= window):
            status = Status.SAT_OST_OVERFLOW
        status = status or self._check_fit(child, message)
        if status:
            return OpInput.REQ_BAD, status
        if not self.node.pool.allocate_ost():
            return OpInput.REQ_NO_OST, Status.OST_EXHAUSTED
        return OpInput.REQ, Status.OK

    def _check_fit(self, child: int, message: SharpMessage) -> Status:
        """Check size and LAST of a chunk against the chunks of this child and of the others."""
        stream = self.streams[message.seq]
        vec_off, length = message.vec_off, _length(message)
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
        """Return SAT_UNBALANCED if children disagree on LAST or on the size, else MISMATCH."""
        head = op.message
        alike = head.count == message.count and not (head.flags ^ message.flags) & _LAST
        return Status.MISMATCH if alike else Status.SAT_UNBALANCED

    # Actions that differ

    def allocate(self, op: OstEntry, child: int, message: SharpMessage, data: bytes) -> None:
        """Allocate an OST for a chunk, and count the chunk as open."""
        self.open += 1
        op.length = _length(message)
        super().allocate(op, child, message, data)

    def _send_results(self, op: OstEntry) -> None:
        """Send results in ascending vec_off."""
        self.open -= 1
        stream = self.streams[op.seq]
        stream.ready[op.vec_off] = op
        while (ready := stream.ready.pop(stream.done, None)) is not None:
            super()._send_results(ready)
            stream.out.append(ready)
            if ready.message.flags & _LAST:
                stream.finished = True
                self._count_for_lock(bool(ready.merged[1] & _UNLOCK))
                break
            stream.done += ready.length

    def _count_for_lock(self, unlock: bool) -> None:
        """Tell the lock that an operation has ended."""
        lock = self.node.lock_of(self.group)
        if lock is not None and lock.held:
            lock.operation_finished(unlock)

    def _fail(self, op: OstEntry) -> None:
        """End all chunks of the operation together with the one that failed."""
        stream = self.streams.setdefault(op.seq, ChunkStream())
        stream.failed = op
        for key, other in list(self.ops.items()):
            if other.seq == op.seq:
                self.node.stop(other)
                self.group.release_ost(other)
                other.state = OpState.ERR
                del self.ops[key]
        stream.ready.clear()
        stream.out.clear()
        self.open = sum(other.state in _OPEN for other in self.ops.values())
        super()._fail(op)
        self._count_for_lock(unlock=False)

    def evict(self, op: OstEntry, *_: object) -> None:
        """Forget a chunk and release its OST."""
        self.ops.pop(self._key(op), None)
        self.group.release_ost(op)

    # The windows

    def acknowledged(self, op: OstEntry, child: int) -> None:
        op.finished.add(child)
        stream = self.streams.get(op.seq)
        if stream is not None and len(op.finished) >= len(self.group.members):
            self._evict_finished(stream)

    def _evict_finished(self, stream: ChunkStream) -> None:
        """Evict the chunks at the head of the stream whose results all children have."""
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
        """Tell whether a child has sent a chunk that it may send only after it has received this result."""
        seq, vec_off = self._position.get(child, (op.seq, 0))
        ahead = diff32(seq, op.seq)
        window = self.node.config.sat_window * (self.streams[op.seq].chunk or 1)
        return ahead >= self.group.window or (not ahead and vec_off >= op.vec_off + window)

    def advance(self) -> None:
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


def _length(message: SharpMessage) -> int:
    """Return the bytes of the vector that a chunk stands for, also with NODATA."""
    size, _ = element_or_status(message.coll, message.op, message.dtype, message.tag_dtype, True)
    return message.count * size
