# SPDX-License-Identifier: GPL-2.0-only
"""Work, completions and events of queue pairs have the names and numbers of libibverbs, without `IBV_` (roce.md §10).

An adapter has the five calls of `contract.Engine`. A packet is a `RocePacket`, which holds the bytes from the BTH to
the last pad byte. The driver handles Ethernet, IP, UDP and ICRC, and drops packets with a wrong ICRC.
"""

from dataclasses import dataclass, field
from enum import Enum, IntEnum, IntFlag
from typing import Any, TypeAlias

from uetproto.engine.contract import Buffer, Datagram
from uetproto.wire.headers.roce import Transport


class QpType(IntEnum):
    """These are the transport services (ibv_qp_type). Each value is the transport part of the BTH opcodes of the
    service."""

    RC = Transport.RC
    UC = Transport.UC
    UD = Transport.UD


class QpState(IntEnum):
    """The states that a queue pair can have (ibv_qp_state)."""

    RESET = 0
    INIT = 1
    RTR = 2
    RTS = 3
    SQD = 4
    SQE = 5
    ERR = 6


class Opcode(IntEnum):
    """The opcodes of work requests (ibv_wr_opcode) that roce.md §10 lists."""

    RDMA_WRITE = 0
    RDMA_WRITE_WITH_IMM = 1
    SEND = 2
    SEND_WITH_IMM = 3
    RDMA_READ = 4
    ATOMIC_CMP_AND_SWP = 5
    ATOMIC_FETCH_AND_ADD = 6
    SEND_WITH_INV = 9
    ATOMIC_WRITE = 15


class Status(IntEnum):
    """The statuses that completions can have (ibv_wc_status)."""

    SUCCESS = 0
    LOC_LEN_ERR = 1
    LOC_QP_OP_ERR = 2
    LOC_PROT_ERR = 4
    WR_FLUSH_ERR = 5
    BAD_RESP_ERR = 7
    LOC_ACCESS_ERR = 8
    REM_INV_REQ_ERR = 9
    REM_ACCESS_ERR = 10
    REM_OP_ERR = 11
    RETRY_EXC_ERR = 12
    RNR_RETRY_EXC_ERR = 13
    FATAL_ERR = 19
    GENERAL_ERR = 21


class WcOpcode(IntEnum):
    """The opcodes that completions can have (ibv_wc_opcode)."""

    SEND = 0
    RDMA_WRITE = 1
    RDMA_READ = 2
    COMP_SWAP = 3
    FETCH_ADD = 4
    RECV = 128
    RECV_RDMA_WITH_IMM = 129


class WcFlags(IntFlag):
    """The flags that completions can have (ibv_wc_flags)."""

    GRH = 1
    WITH_IMM = 2
    WITH_INV = 8


NO_FLAGS = WcFlags(0)


class Access(IntFlag):
    """The rights that regions and queue pairs can have (ibv_access_flags)."""

    LOCAL_WRITE = 1
    REMOTE_WRITE = 2
    REMOTE_READ = 4
    REMOTE_ATOMIC = 8


FULL_ACCESS = Access(sum(Access))


class SendFlags(IntFlag):
    """The flags of sends (ibv_send_flags)."""

    FENCE = 1
    SIGNALED = 2
    SOLICITED = 4
    INLINE = 8


class AsyncType(Enum):
    """These are the types of asynchronous events (ibv_event_type). Each value says when the event is reported."""

    COMM_EST = "a queue pair in RTR received its first request"
    SQ_DRAINED = "all sends begun before SQD are complete"
    QP_FATAL = "the queue pair sent NAK 0x61 or 0x63 and entered ERR"
    QP_ACCESS_ERR = "the queue pair sent NAK 0x62 and entered ERR"
    SRQ_LIMIT_REACHED = "fewer receives than the limit are left"


@dataclass(slots=True)
class RocePacket(Datagram):
    """A RoCE packet holds all bytes from the BTH to the pad.

    `entropy` is the UDP source port, and `dst` may be a multicast group.
    """

    network: Buffer = b""
    """IPv4 or IPv6 header or GRH of a received UD packet. It is empty if the packet had no such header."""
    hop_limit: int = 0
    """Hop limit of a packet to send, or 0 for the hop limit of the configuration."""
    flow_label: int = 0
    """Flow label of a packet to send over IPv6."""


@dataclass(frozen=True, slots=True)
class AddressVector:
    """The address that a peer or a multicast group has (ibv_ah_attr)."""

    dst: int
    """IPv4 or IPv6 address as a number."""
    flow_label: int = 0
    """Flow label of 20 bits, from which the UDP source port follows. If it is 0, the UDP source port follows from the
    queue pair numbers (roce.md §1)."""
    hop_limit: int | None = None
    """Hop limit, or None for the hop limit of the configuration."""


@dataclass(frozen=True, slots=True)
class Sge:
    """A range of bytes that belongs to a local region (ibv_sge)."""

    addr: int
    length: int
    lkey: int


# Work: what `submit` takes -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class PostSend:
    """Work that posts one send (ibv_post_send). Raises `LocalError` for an opcode, a flag or a value that is not legal
    on the service (roce.md §6)."""

    qp_num: int
    wr_id: int = 0
    opcode: Opcode = Opcode.SEND
    sg_list: tuple[Sge, ...] = ()
    send_flags: SendFlags = SendFlags.SIGNALED
    imm_data: int = 0
    """Immediate data of 32 bits, most significant byte first on the wire."""
    invalidate_rkey: int = 0
    remote_addr: int = 0
    rkey: int = 0
    compare_add: int = 0
    """Operand of an ATOMIC, which is the value to compare with or the value to add."""
    swap: int = 0
    """Operand of a compare-and-swap, which is the value to store."""
    ah: AddressVector | None = None
    """Address of the peer, for UD."""
    remote_qpn: int = 0
    remote_qkey: int = 0
    """q_key of a UD packet. If bit 31 is set, the packet has the q_key of the sending queue pair (roce.md §11)."""
    inline: Buffer | None = None
    """Bytes to send with the flag INLINE, in place of `sg_list`. They are copied when the work is submitted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PostRecv:
    """Work that posts one receive (ibv_post_recv)."""

    qp_num: int
    wr_id: int = 0
    sg_list: tuple[Sge, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PostSrqRecv:
    """Work that posts one receive to a shared queue (ibv_post_srq_recv)."""

    srq_num: int
    wr_id: int = 0
    sg_list: tuple[Sge, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ModifyQp:
    """Work that changes the state and the attributes of a queue pair (ibv_modify_qp). Attributes have the names of
    libibverbs."""

    qp_num: int
    state: QpState
    attributes: dict[str, Any] = field(default_factory=dict)


RoceWork: TypeAlias = PostSend | PostRecv | PostSrqRecv | ModifyQp
Receive: TypeAlias = PostRecv | PostSrqRecv


# Events: what `events` returns ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class WorkCompletion:
    """A completion reports the end of a work request (ibv_wc).

    With an error only wr_id, status, qp_num and vendor_err are valid (roce.md §10).
    """

    wr_id: int
    status: Status
    qp_num: int
    receive: bool
    """Whether the completion belongs to the receive queue."""
    opcode: WcOpcode
    byte_len: int = 0
    imm_data: int | None = None
    invalidated_rkey: int | None = None
    src_qp: int = 0
    pkey_index: int = 0
    wc_flags: WcFlags = NO_FLAGS
    vendor_err: int = 0
    """Syndrome of the NAK that was received or sent, or 0 without a NAK."""
    solicited: bool = False

    @property
    def ok(self) -> bool:
        """Return True when the work request succeeded."""
        return self.status == Status.SUCCESS


@dataclass(frozen=True, slots=True)
class AsyncNotice:
    """An asynchronous event reports on a queue pair or a shared receive queue (ibv_async_event)."""

    type: AsyncType
    number: int


@dataclass(frozen=True, slots=True)
class Notified:
    """This event reports that a CNP for a queue pair was received (roce.md §13).

    If `congestion` is dcqcn, the rate of the queue pair has been reduced already.
    """

    qp_num: int


RoceEvent: TypeAlias = WorkCompletion | AsyncNotice | Notified
