"""An OST: what an aggregation node holds of one operation, or of one chunk of it (sharp.md §3.2)."""

from typing import TYPE_CHECKING

from uetproto.engine.contract import NEVER
from uetproto.engine.sharp.messages import SharpMessage
from uetproto.engine.sharp.node.states import OpState
from uetproto.wire.headers.sharp import Flag, SharpOpcode, Status

if TYPE_CHECKING:
    from uetproto.engine.sharp.node.operations import GroupOperations

SIGNED = int(Flag.SAT | Flag.FIRST | Flag.LAST | Flag.REPRO | Flag.LE)
"""The flags in a signature."""


class OstEntry:
    """One operation, or one chunk of one: an OST."""

    __slots__ = (
        "answered", "code", "cookies", "deadline", "early", "error", "faulty", "finished", "head", "length", "merged",
        "opcode", "operands", "ost", "over", "owner", "raw", "refused", "result", "rnr", "seq", "signature", "state",
        "tries", "up", "vec_off", "waiting",
    )  # fmt: skip

    def __init__(self, owner: "GroupOperations", seq: int, vec_off: int) -> None:
        self.owner = owner
        self.seq = seq
        self.vec_off = vec_off
        self.state = OpState.FREE
        self.ost = False
        """It has one."""
        self.deadline = NEVER
        self.head: SharpMessage | None = None
        """The first request: its signature is latched."""
        self.signature: tuple[object, ...] = ()
        self.length = 0
        """Bytes of the vector that it stands for, also with NODATA."""
        self.operands: dict[int, bytes | None] = {}
        """By child in the order of arrival; None: NODATA."""
        self.raw: dict[int, bytes] = {}
        """The whole requests, to tell a duplicate."""
        self.cookies: dict[int, bytes] = {}
        self.merged = [int(Flag.MCAST), 0]
        """Flags that every request has, flags that any has."""
        self.up = b""
        """The request to the parent."""
        self.tries = 0
        """After T_result."""
        self.refused = 0
        """NACKs of the parent."""
        self.rnr = False
        """It waits for T_rnr."""
        self.result: SharpMessage | None = None
        self.answered = False
        """The result has left."""
        self.waiting: set[int] = set()
        """Children that missed a multicast result, of which this node has no payload."""
        self.finished: set[int] = set()
        """Children that acknowledged it."""
        self.early: dict[int, tuple[SharpMessage, bytes]] = {}
        """Requests for seq + W, of children that had the result by multicast first."""
        self.error = b""
        self.code = Status.OK
        self.faulty: frozenset[int] = frozenset()
        """Children missing or at fault."""
        self.opcode = int(SharpOpcode.AGG_REQ)
        self.over = False
        """ERR, and T_err is over."""

    def expired(self) -> None:
        """Its timer is due."""
        self.owner.expired(self)

    @property
    def message(self) -> SharpMessage:
        """The first request, of an operation that has one."""
        assert self.head is not None
        return self.head


def signature_of(message: SharpMessage) -> tuple[object, ...]:
    """What all requests of an operation have in common (§3.2); the target, last, is in no result."""
    return (
        message.coll, message.op, message.dtype, message.tag_dtype, message.count, message.vec_off,
        message.flags & SIGNED, message.target,
    )  # fmt: skip
