# SPDX-License-Identifier: GPL-2.0-only
"""An OST holds the state of one operation, or one chunk of a SAT operation, at an aggregation node (sharp.md §3.2)."""

from dataclasses import dataclass, field
from typing import Protocol

from uetproto.engine.contract import NEVER
from uetproto.engine.sharp.messages import SharpMessage
from uetproto.engine.sharp.node.states import OpState
from uetproto.wire.headers.sharp import Flag, SharpOpcode, Status

SIGNED = int(Flag.SAT | Flag.FIRST | Flag.LAST | Flag.REPRO | Flag.LE)
"""Mask of the flags that belong to a signature."""


class OstOwner(Protocol):
    """The owner of an OST handles the timer of the OST and the acknowledgements of the result."""

    def expired(self, op: "OstEntry") -> None:
        """Handle the expiry of the OST's timer."""

    def acknowledged(self, op: "OstEntry", child: int) -> None:
        """Note that a child has acknowledged the result."""


@dataclass(slots=True, eq=False)
class OstEntry:
    """An OST holds the operands, the result and the timer of one operation, or of one chunk of a SAT operation."""

    owner: OstOwner
    seq: int
    vec_off: int
    state: OpState = OpState.FREE
    ost: bool = False
    """Whether the operation has an OST of the pool."""
    deadline: int = NEVER
    head: SharpMessage | None = None
    """First request of the operation; the signatures of all other requests are compared with its signature."""
    signature: tuple[object, ...] = ()
    length: int = 0
    """Number of bytes of the vector that the chunk represents, even if its request carries no data (NODATA)."""
    operands: dict[int, bytes | None] = field(default_factory=dict)
    """Maps each child, in the order of arrival, to its operand; None stands for NODATA."""
    raw: dict[int, bytes] = field(default_factory=dict)
    """Maps each child to its whole request. A later request of the child is a duplicate if it differs in nothing but
    the flag RETX; otherwise it is a changed request."""
    cookies: dict[int, bytes] = field(default_factory=dict)
    """Maps each child to the UDH extension of its request, which its result repeats."""
    merged: list[int] = field(default_factory=lambda: [int(Flag.MCAST), 0])
    """Two flag words: the first has MCAST if all requests have MCAST, the second has UNLOCK if any request has
    UNLOCK."""
    up: bytes = b""
    """Packed request to the parent; empty if there is none."""
    tries: int = 0
    """Number of retransmissions after T_result."""
    refused: int = 0
    """Number of NACKs of the parent."""
    rnr: bool = False
    """Whether the running timer is T_rnr."""
    result: SharpMessage | None = None
    answered: bool = False
    """Whether the result has been sent."""
    waiting: set[int] = field(default_factory=set)
    """Children that asked again for a multicast result whose payload this node does not have."""
    finished: set[int] = field(default_factory=set)
    """Children that acknowledged the result."""
    early: dict[int, tuple[SharpMessage, bytes]] = field(default_factory=dict)
    """Requests for seq + W, by child, that arrived when this node did not yet have the result of this operation. The
    children of these requests had received the result by multicast."""
    error: bytes = b""
    """ERROR message of an operation in state ERR."""
    code: Status = Status.OK
    """Status of a refusal or an error; OK if there was none."""
    faulty: frozenset[int] = frozenset()
    """Children that are missing or at fault."""
    opcode: int = int(SharpOpcode.AGG_REQ)
    over: bool = False
    """Whether T_err has expired in state ERR."""

    def expired(self) -> None:
        """Hand the expiry of the timer to the operations of the group."""
        self.owner.expired(self)

    @property
    def message(self) -> SharpMessage:
        """Return the first request of the operation, which must have one."""
        assert self.head is not None
        return self.head


def signature_of(message: SharpMessage) -> tuple[object, ...]:
    """Return the signature, the fields that all requests of an operation must have in common (sharp.md §3.2).

    The target is the last element. Results have no target, so their signatures are compared without this element.
    """
    return (
        message.coll, message.op, message.dtype, message.tag_dtype, message.count, message.vec_off,
        message.flags & SIGNED, message.target,
    )  # fmt: skip
