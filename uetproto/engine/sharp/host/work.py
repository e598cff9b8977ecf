# SPDX-License-Identifier: GPL-2.0-only
"""This module has the work that a SHARP host accepts, and the events that the host reports (sharp.md §3.4)."""

from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from uetproto.engine.contract import Buffer
from uetproto.engine.sharp.messages import SharpFault
from uetproto.wire.headers.sharp import COUNTERPARTS, Coll, Dtype, LibsharpStatus, Op, Status


class Attachment(NamedTuple):
    """An attachment is the connection of a host to one tree."""

    tree_id: int
    conn: int
    """The host's own connection to its leaf aggregation node."""


# Work ----------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinGroup:
    """This work joins a group; the event `GroupJoined` or `GroupFailed` follows."""

    group_id: int
    job_id: int
    group_size: int
    rank: int | None = None
    """Rank of this member in the group; None stands for the rank of the host."""
    llt: Attachment
    sat: Attachment | None = None
    """Attachment to the SAT tree; None if the group never uses a SAT."""
    want_osts: int = 0
    """Number of OSTs to request; 0 stands for `SharpOptions.osts_per_group`."""
    user_data: int = 0
    """Number of bytes of user data to request for an OST; 0 stands for `SharpOptions.user_data`."""
    multicast: bool = False
    """Whether the carrier can deliver results by multicast. UET cannot (sharp.md §2.1)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Aggregate:
    """This work is one collective of a group; the event `AggregateDone` or `AggregateFailed` follows.

    All members submit the same collectives in the same order. `data` is not copied and must not change until the event.
    """

    op_id: int
    """Number of this work. The event that reports the result of the work has the same number."""
    group_id: int
    coll: Coll
    op: Op = Op.NULL
    dtype: Dtype = Dtype.NULL
    tag_dtype: Dtype = Dtype.NULL
    data: Buffer = b""
    """The vector of this rank. It is empty for a BARRIER, and for a BCAST at every rank but the root."""
    count: int = 0
    """Number of elements; for MINLOC and MAXLOC the number of pairs."""
    root: int | None = None
    """Rank that gets the result of a REDUCE or has the data of a BCAST; other collectives ignore it."""
    little_endian: bool = False


@dataclass(frozen=True, slots=True)
class LeaveGroup:
    """This work leaves a group: open collectives are cancelled, and a lock that is held is released. The event
    `GroupLeft` follows."""

    group_id: int


Work: TypeAlias = JoinGroup | Aggregate | LeaveGroup

# Events --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class GroupJoined:
    """This event says that all trees of a group have accepted the member."""

    group_id: int
    osts: int
    """W, the number of LLT fragments that may be without a result at a time."""
    user_data: int
    """Greatest number of bytes of user data in an LLT fragment."""
    child_idx: int
    """Index of the host at the leaf aggregation node, on the LLT."""
    streams: bool
    """Whether the group may use a SAT tree."""
    mgid: int = 0
    """Multicast group of results, which the carrier is to join; 0 if results do not come by multicast."""
    qkey: int = 0


@dataclass(frozen=True, slots=True)
class GroupLeft:
    """This event says that the member has left the group."""

    group_id: int


@dataclass(frozen=True, slots=True)
class AggregateDone:
    """This event says that a collective is complete."""

    op_id: int
    status: Status
    """Status of the collective, which is always OK here."""
    data: bytearray
    """The result. It is empty at a rank that gets no result."""


@dataclass(frozen=True, slots=True)
class Trouble:
    """This class holds the reason of a failure and says whether the mode (`HCOLL_ENABLE_SHARP`, sharp.md §5) permits a
    fallback."""

    status: Status
    fall_back: bool
    """Whether the hosts are to run an algorithm without SHARP instead; otherwise the job aborts."""
    fault: SharpFault | None = None
    """The body of the ERROR or NACK that caused the failure; None if the host itself or a JOIN_RESP caused it."""

    @property
    def code(self) -> LibsharpStatus:
        """Return the libsharp code that is published for the status, or ERROR (-1) if no code is published (sharp.md
        §2.7)."""
        codes = (one for one in COUNTERPARTS.get(self.status, ()) if isinstance(one, LibsharpStatus))
        return next(codes, LibsharpStatus.ERROR)


@dataclass(frozen=True, slots=True)
class AggregateFailed:
    """This event says that a collective failed and has no result."""

    op_id: int
    trouble: Trouble

    @property
    def status(self) -> Status:
        return self.trouble.status


@dataclass(frozen=True, slots=True)
class GroupFailed:
    """This event says that a group could not be joined or has failed; the member can only leave the group."""

    group_id: int
    trouble: Trouble

    @property
    def status(self) -> Status:
        return self.trouble.status


Event: TypeAlias = GroupJoined | GroupLeft | AggregateDone | AggregateFailed | GroupFailed
