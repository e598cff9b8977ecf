"""An OST: what an aggregation node holds of one operation, or of one chunk of a SAT operation (sharp.md §3.2)."""

from typing import Protocol

from uetproto.engine.contract import NEVER
from uetproto.engine.sharp.messages import SharpMessage
from uetproto.engine.sharp.node.states import OpState
from uetproto.wire.headers.sharp import Flag, SharpOpcode, Status

SIGNED = int(Flag.SAT | Flag.FIRST | Flag.LAST | Flag.REPRO | Flag.LE)
"""Mask of the flags that belong to a signature."""


class OstOwner(Protocol):
    """The operations of a group, as far as an OST and its results need them."""

    def expired(self, op: "OstEntry") -> None:
        """Handle the expiry of the OST's timer."""

    def acknowledged(self, op: "OstEntry", child: int) -> None:
        """Note that a child has acknowledged the result."""


class OstEntry:
    """An OST holds the operands, the result and the timer of one operation, or of one chunk of one."""

    __slots__ = (
        "answered", "code", "cookies", "deadline", "early", "error", "faulty", "finished", "head", "length", "merged",
        "opcode", "operands", "ost", "over", "owner", "raw", "refused", "result", "rnr", "seq", "signature", "state",
        "tries", "up", "vec_off", "waiting",
    )  # fmt: skip

    def __init__(self, owner: OstOwner, seq: int, vec_off: int) -> None:
        self.owner = owner
        self.seq = seq
        self.vec_off = vec_off
        self.state = OpState.FREE
        self.ost = False
        """Tells whether an OST of the pool is allocated."""
        self.deadline = NEVER
        self.head: SharpMessage | None = None
        """Holds the first request, whose signature is latched."""
        self.signature: tuple[object, ...] = ()
        self.length = 0
        """Counts the bytes of the vector that the chunk stands for, also with NODATA."""
        self.operands: dict[int, bytes | None] = {}
        """Maps each child, in the order of arrival, to its operand; None stands for NODATA."""
        self.raw: dict[int, bytes] = {}
        """Maps each child to its whole request, which tells a duplicate from a changed request."""
        self.cookies: dict[int, bytes] = {}
        self.merged = [int(Flag.MCAST), 0]
        """Holds the flags that all requests have, and the flags that any request has."""
        self.up = b""
        """Holds the request to the parent."""
        self.tries = 0
        """Counts the retransmissions after T_result."""
        self.refused = 0
        """Counts the NACKs of the parent."""
        self.rnr = False
        """Tells whether the running timer is T_rnr."""
        self.result: SharpMessage | None = None
        self.answered = False
        """Tells whether the result has been sent."""
        self.waiting: set[int] = set()
        """Lists the children that missed a multicast result whose payload this node does not have."""
        self.finished: set[int] = set()
        """Lists the children that acknowledged the result."""
        self.early: dict[int, tuple[SharpMessage, bytes]] = {}
        """Holds requests for seq + W from children that received the multicast result before this node."""
        self.error = b""
        self.code = Status.OK
        self.faulty: frozenset[int] = frozenset()
        """Lists the children that are missing or at fault."""
        self.opcode = int(SharpOpcode.AGG_REQ)
        self.over = False
        """Tells whether T_err has expired in state ERR."""

    def expired(self) -> None:
        """Hand the expiry of the timer to the operations of the group."""
        self.owner.expired(self)

    @property
    def message(self) -> SharpMessage:
        """Return the first request of an operation that has one."""
        assert self.head is not None
        return self.head


def signature_of(message: SharpMessage) -> tuple[object, ...]:
    """Return what all requests of an operation have in common (sharp.md §3.2); a result lacks the target, the last."""
    return (
        message.coll, message.op, message.dtype, message.tag_dtype, message.count, message.vec_off,
        message.flags & SIGNED, message.target,
    )  # fmt: skip
