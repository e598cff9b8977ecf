"""What a SHARP host is asked for, and what it tells (sharp.md §3.4): work in, events out."""

from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from uetproto.engine.contract import Buffer
from uetproto.engine.sharp.messages import SharpFault
from uetproto.wire.headers.sharp import COUNTERPARTS, Coll, Dtype, LibsharpStatus, Op, Status


class Attachment(NamedTuple):
    """Where a host hangs on one tree."""

    tree_id: int
    conn: int
    """The host's own connection to its leaf AN."""


# Work ----------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinGroup:
    """Becomes a member of a group: `GroupJoined` or `GroupFailed` follows."""

    group_id: int
    job_id: int
    group_size: int
    rank: int | None = None
    """Of this member in the group; None: that of the host."""
    llt: Attachment
    sat: Attachment | None = None
    """None: this group never streams."""
    want_osts: int = 0
    """0: as the options say."""
    user_data: int = 0
    """Of an OST; 0: as the options say."""
    multicast: bool = False
    """Results may come by multicast: the carrier can, which UET cannot (§2.1)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Aggregate:
    """One collective of a group, in the order of submission the same at all members: `AggregateDone` or
    `AggregateFailed` follows. `data` is read, not copied: it stays as it is until then."""

    op_id: int
    """Comes back with the event."""
    group_id: int
    coll: Coll
    op: Op = Op.NULL
    dtype: Dtype = Dtype.NULL
    tag_dtype: Dtype = Dtype.NULL
    data: Buffer = b""
    """Empty at the members of a BCAST that are not its root."""
    count: int = 0
    """Elements; pairs for MINLOC and MAXLOC."""
    root: int | None = None
    """Rank: who gets it (REDUCE), who has it (BCAST)."""
    little_endian: bool = False
    """Elements of `data` are little-endian."""


@dataclass(frozen=True, slots=True)
class LeaveGroup:
    """Leaves: what is open is cancelled, a lock is given back; `GroupLeft` follows."""

    group_id: int


Work: TypeAlias = JoinGroup | Aggregate | LeaveGroup

# Events --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class GroupJoined:
    """All trees have taken the member in."""

    group_id: int
    osts: int
    """W: open fragments."""
    user_data: int
    """Bytes of a fragment."""
    child_idx: int
    """At the leaf AN, on the LLT."""
    streams: bool
    """It may stream over a SAT."""
    mgid: int = 0
    """Results may come by this multicast group, which the carrier is to join; 0: they do not."""
    qkey: int = 0


@dataclass(frozen=True, slots=True)
class GroupLeft:
    """The group is forgotten."""

    group_id: int


@dataclass(frozen=True, slots=True)
class AggregateDone:
    """A collective is complete."""

    op_id: int
    status: Status
    """Always OK."""
    data: bytearray
    """The result; empty where none comes to this rank."""


@dataclass(frozen=True, slots=True)
class Trouble:
    """Why something failed, and what follows from the mode (`HCOLL_ENABLE_SHARP`, §5)."""

    status: Status
    fall_back: bool
    """True: run an algorithm of the hosts instead; False: abort."""
    fault: SharpFault | None = None
    """Who said so, and which children it names; None: the host itself, or a JOIN_RESP."""

    @property
    def code(self) -> LibsharpStatus:
        """The published code."""
        return libsharp_of(self.status)


@dataclass(frozen=True, slots=True)
class AggregateFailed:
    """A collective has no result."""

    op_id: int
    trouble: Trouble

    @property
    def status(self) -> Status:
        return self.trouble.status


@dataclass(frozen=True, slots=True)
class GroupFailed:
    """A group cannot be joined, or is dead; only leaving is left."""

    group_id: int
    trouble: Trouble

    @property
    def status(self) -> Status:
        return self.trouble.status


Event: TypeAlias = GroupJoined | GroupLeft | AggregateDone | AggregateFailed | GroupFailed


def libsharp_of(status: Status) -> LibsharpStatus:
    """The published code of a status; ERROR (-1) where it has a trap or nothing at all (§2.7)."""
    return next((one for one in COUNTERPARTS.get(status, ()) if isinstance(one, LibsharpStatus)), LibsharpStatus.ERROR)


__all__ = [
    "Aggregate", "AggregateDone", "AggregateFailed", "Attachment", "Event", "GroupFailed", "GroupJoined", "GroupLeft",
    "JoinGroup", "LeaveGroup", "Trouble", "Work", "libsharp_of",
]  # fmt: skip
