# SPDX-License-Identifier: GPL-2.0-only
"""An aggregation node takes the requests of a run of chunks with less work than `operations.GroupOperations.request`
(`engine.sharp.trains`)."""

from uetproto.engine.sharp.config import MAX_SAT_MESSAGE
from uetproto.engine.sharp.messages import HEADER_SIZE, SharpMessage
from uetproto.engine.sharp.node.contract import GroupContext
from uetproto.engine.sharp.node.ost import signature_of
from uetproto.engine.sharp.node.sat_operations import SatOperations
from uetproto.engine.sharp.node.states import GroupState, OpState
from uetproto.engine.sharp.trains import ChunkHeader, vec_off_of
from uetproto.wire.headers.sharp import Coll, SharpOpcode

_READY, _COLLECT = GroupState.READY, OpState.COLLECT


class RequestRun:
    """A request run takes requests of one child for one operation on a SAT."""

    __slots__ = ("_behind", "_child", "_front", "_group", "_operations", "_seq", "header")

    def __init__(self, header: ChunkHeader, group: GroupContext, operations: SatOperations, child: int) -> None:
        self.header = header
        self._group = group
        self._operations = operations
        self._child = child
        self._seq = header.message.seq
        *self._front, _, flags, target = signature_of(header.message)
        self._behind = flags, target

    @classmethod
    def of(
        cls, group: GroupContext, operations: object, child: int, message: SharpMessage, data: bytes
    ) -> "RequestRun | None":
        """Return the run that a request begins which the operations have taken, or None if it is in no run."""
        header = ChunkHeader.of(SharpOpcode.AGG_REQ, data, message)
        if header is None or not isinstance(operations, SatOperations) or message.coll == Coll.BCAST:
            return None
        stream = operations.streams.get(message.seq)
        if stream is None or stream.failed is not None or stream.sizes.get(child) != header.size:
            return None
        return cls(header, group, operations, child)

    def take(self, data: bytes) -> bool:
        """Store the operand of a request of the run. Return False, and change nothing, if the operations must take
        it."""
        operations, child, seq, size = self._operations, self._child, self._seq, self.header.size
        vec_off, stream = vec_off_of(data), operations.streams.get(seq)
        op = operations.ops.get((seq, vec_off))
        if (
            stream is None or stream.failed is not None or op is None or op.state is not _COLLECT
            or child in op.operands or op.signature != (*self._front, vec_off, *self._behind)
            or stream.chunk != size or vec_off % size or vec_off + size > MAX_SAT_MESSAGE
            or (stream.last is not None and vec_off >= stream.last) or stream.sizes.get(child) != size
            or self._group.state is not _READY or self._group.left or not operations.is_locked
        ):  # fmt: skip
            return False
        operations.note_position(child, seq, vec_off)
        if vec_off > stream.furthest:
            stream.furthest = vec_off
        operations.keep(op, child, self.header.flags, data[HEADER_SIZE:], data)
        return True
