# SPDX-License-Identifier: GPL-2.0-only
"""A host takes the results of a run of chunks with less work than `group.HostGroup.result` (`engine.sharp.trains`)."""

from uetproto.engine.contract import NEVER
from uetproto.engine.sharp.contract import OutgoingMessage
from uetproto.engine.sharp.host.flow import HostOperation, TreeFlow
from uetproto.engine.sharp.host.group import HostGroup
from uetproto.engine.sharp.host.states import HostGroupState
from uetproto.engine.sharp.messages import HEADER_SIZE, SharpMessage
from uetproto.engine.sharp.trains import ChunkHeader, vec_off_of
from uetproto.wire.headers.sharp import SharpOpcode

_BUSY = HostGroupState.BUSY


class ResultRun:
    """A result run takes results of one operation on a SAT."""

    __slots__ = ("_flow", "_group", "_operation", "header")

    def __init__(self, header: ChunkHeader, group: HostGroup, flow: TreeFlow, operation: HostOperation) -> None:
        self.header = header
        self._group = group
        self._flow = flow
        self._operation = operation

    @classmethod
    def of(cls, group: HostGroup, flow: TreeFlow, message: SharpMessage, data: bytes) -> "ResultRun | None":
        """Return the run that a result begins which the group has taken, or None if the result is in no run."""
        header = ChunkHeader.of(SharpOpcode.AGG_RESULT, data, message)
        operation = flow.operations[0] if flow.operations else None
        if (
            header is None or operation is None or not flow.sat or operation.seq != message.seq
            or operation.multicast_deadline != NEVER or not operation.expects or operation.size != header.size
        ):  # fmt: skip
            return None
        return cls(header, group, flow, operation)

    def take(self, data: bytes) -> bool:
        """Store a result of the run, and send what the window then permits. Return False, and change nothing, if the
        group must take it."""
        group, flow, operation = self._group, self._flow, self._operation
        vec_off, operations = vec_off_of(data), flow.operations
        index, rest = divmod(vec_off, operation.size)
        number = operation.first + index
        if (
            rest or number not in flow.missing or index + 1 >= operation.pieces
            or operation.finished + 1 >= operation.pieces or operations[0] is not operation
            or group.state is not _BUSY or group.waiting
        ):  # fmt: skip
            return False
        operation.result[vec_off : vec_off + operation.size] = data[HEADER_SIZE:]
        flow.finish(operation, number)
        operation.repeats = 0
        if flow.sendable > 0:
            group.out += [OutgoingMessage(flow.conn, request) for request in flow.send()]
        return True
