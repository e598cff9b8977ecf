"""NACK and ERROR of operations: what was not taken, and what is dead (sharp.md §2.5, §3.2).

`Refusals` is the part of `sharp_llt.Operations` that sends them.
"""

from uetproto.engine.sharp.messages import SharpFault, SharpMessage
from uetproto.engine.sharp.node.ost import OstEntry
from uetproto.engine.sharp.node.results import Results
from uetproto.wire.headers.sharp import Status

FATAL = frozenset({Status.DATA_CORRUPT, Status.CHILD_DOWN, Status.PARENT_DOWN})
"""An operation that ends with one of these ends its group."""


class Refusals(Results):
    """What is said instead of a result."""

    ops: dict[object, OstEntry]

    def _key(self, op: OstEntry) -> object:
        return op.seq

    def refuse_no_ost(self, op: OstEntry, child: int, message: SharpMessage, data: bytes) -> None:
        """NACK OST_EXHAUSTED."""
        self.group.nack(child, message, Status.OST_EXHAUSTED)

    def refuse_ahead(self, op: OstEntry, child: int, message: SharpMessage, data: bytes) -> None:
        """NACK SEQ_AHEAD."""
        self.group.nack(child, message, Status.SEQ_AHEAD)

    def refuse_stale(self, op: OstEntry, child: int, message: SharpMessage, data: bytes) -> None:
        """NACK SEQ_STALE."""
        self.group.nack(child, message, Status.SEQ_STALE)

    def raise_error(self, op: OstEntry, *_: object) -> None:
        """ERROR to every child and to the parent, once for this operation; a trap."""
        group = self.group
        op.error = group.error(op.seq, op.code, op.faulty, op.opcode)
        self.node.raise_trap(op.code, group, op.faulty, op.seq)
        group.tell(op.error)
        self._failed(op)

    def relay_down(self, op: OstEntry, child: None, message: SharpMessage, data: bytes) -> None:
        """The ERROR of the parent, unchanged, to every child."""
        op.error, op.code = data, _code(message)
        self.group.tell(data, parent=False)
        self._failed(op)

    def relay_around(self, op: OstEntry, child: int, message: SharpMessage, data: bytes) -> None:
        """The ERROR of a child, unchanged, to the parent and to all other children."""
        op.error, op.code = data, _code(message)
        self.group.tell(data, but=child)
        self._failed(op)

    def _failed(self, op: OstEntry) -> None:
        op.raw.clear()
        op.up = b""
        self.ops.setdefault(self._key(op), op)
        self.node.start(op, self.node.config.t_err)
        if op.code in FATAL:
            self.group.fatal(op.code)

    def repeat_error(self, op: OstEntry, child: int, message: SharpMessage, data: bytes) -> None:
        """ERROR with the stored code to this child."""
        self.node.send(self.group.conn_of(child), op.error)


def _code(message: SharpMessage) -> Status:
    code = SharpFault.unpack(message.body).code
    return Status(code) if code in Status.__members__.values() else Status.CANCELLED
