"""The work that a SHARP host accepts and the events that it reports (sharp.md §3.4)."""

from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from uetproto.engine.contract import Buffer
from uetproto.engine.sharp.messages import SharpFault
from uetproto.wire.headers.sharp import COUNTERPARTS, Coll, Dtype, LibsharpStatus, Op, Status


class Attachment(NamedTuple):
    """An attachment says where a host is connected to one tree."""

    tree_id: int
    conn: int
    """The host's own connection to its leaf aggregation node."""


# Work ----------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinGroup:
    """Work: join a group; `GroupJoined` or `GroupFailed` follows."""

    group_id: int
    job_id: int
    group_size: int
    rank: int | None = None
    """Rank of this member in the group; None stands for the rank of the host."""
    llt: Attachment
    sat: Attachment | None = None
    """Attachment to the SAT tree; None if the group never streams."""
    want_osts: int = 0
    """OSTs to request; 0 stands for what the options say."""
    user_data: int = 0
    """Bytes of user data of an OST to request; 0 stands for what the options say."""
    multicast: bool = False
    """Whether the carrier can deliver results by multicast, which UET cannot (sharp.md §2.1)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Aggregate:
    """Work: one collective of a group; `AggregateDone` or `AggregateFailed` follows.

    All members submit the same collectives in the same order. `data` is not copied and must not change until the event.
    """

    op_id: int
    """Number that the event of this work repeats."""
    group_id: int
    coll: Coll
    op: Op = Op.NULL
    dtype: Dtype = Dtype.NULL
    tag_dtype: Dtype = Dtype.NULL
    data: Buffer = b""
    """The vector; empty at the members of a BCAST that are not its root."""
    count: int = 0
    """Number of elements; for MINLOC and MAXLOC the number of pairs."""
    root: int | None = None
    """Rank that gets the result (REDUCE) or has the data (BCAST)."""
    little_endian: bool = False


@dataclass(frozen=True, slots=True)
class LeaveGroup:
    """Work: a member leaves a group. Open collectives are cancelled and a lock is released; `GroupLeft` follows."""

    group_id: int


Work: TypeAlias = JoinGroup | Aggregate | LeaveGroup

# Events --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class GroupJoined:
    """Event: all trees have accepted the member."""

    group_id: int
    osts: int
    """W, the number of fragments that may be open."""
    user_data: int
    """Bytes of user data of a fragment."""
    child_idx: int
    """Index of the host at the leaf aggregation node, on the LLT."""
    streams: bool
    """Whether the group may stream over a SAT tree."""
    mgid: int = 0
    """Multicast group of results, which the carrier is to join; 0 if results do not come by multicast."""
    qkey: int = 0


@dataclass(frozen=True, slots=True)
class GroupLeft:
    """Event: the group has been left."""

    group_id: int


@dataclass(frozen=True, slots=True)
class AggregateDone:
    """Event: a collective is complete."""

    op_id: int
    status: Status
    """Status of the collective, which is always OK here."""
    data: bytearray
    """The result; empty at a rank that gets no result."""


@dataclass(frozen=True, slots=True)
class Trouble:
    """The reason of a failure, and whether the mode (`HCOLL_ENABLE_SHARP`, sharp.md §5) permits a fallback."""

    status: Status
    fall_back: bool
    """Whether to run an algorithm of the hosts instead; otherwise the job aborts."""
    fault: SharpFault | None = None
    """The body of the ERROR or NACK; None if the host itself or a JOIN_RESP is the source."""

    @property
    def code(self) -> LibsharpStatus:
        """Return the published code of the status; ERROR (-1) for a status without one (sharp.md §2.7)."""
        codes = (one for one in COUNTERPARTS.get(self.status, ()) if isinstance(one, LibsharpStatus))
        return next(codes, LibsharpStatus.ERROR)


@dataclass(frozen=True, slots=True)
class AggregateFailed:
    """Event: a collective failed and has no result."""

    op_id: int
    trouble: Trouble

    @property
    def status(self) -> Status:
        return self.trouble.status


@dataclass(frozen=True, slots=True)
class GroupFailed:
    """Event: a group cannot be joined or has failed; the member can only leave the group."""

    group_id: int
    trouble: Trouble

    @property
    def status(self) -> Status:
        return self.trouble.status


Event: TypeAlias = GroupJoined | GroupLeft | AggregateDone | AggregateFailed | GroupFailed
