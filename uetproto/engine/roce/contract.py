"""Work, completions and events of queue pairs. Names and numbers are those of libibverbs without `IBV_` (roce.md §10).

The five calls are those of `contract.Engine`. Packets are `RocePacket`: from the BTH to the last pad byte; Ethernet,
IP, UDP and ICRC belong to the driver, which drops what has a wrong ICRC.
"""

from dataclasses import dataclass, field
from enum import Enum, IntEnum, IntFlag
from typing import Any, TypeAlias

from uetproto.engine.contract import Buffer, Datagram
from uetproto.wire.headers.roce import Transport


class QpType(IntEnum):
    """Services; the value is the transport of the opcodes."""

    RC = Transport.RC
    UC = Transport.UC
    UD = Transport.UD


class QpState(IntEnum):
    """ibv_qp_state."""

    RESET = 0
    INIT = 1
    RTR = 2
    RTS = 3
    SQD = 4
    SQE = 5
    ERR = 6


class Opcode(IntEnum):
    """ibv_wr_opcode; those that are refused everywhere are not here."""

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
    """ibv_wc_status."""

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
    """ibv_wc_opcode."""

    SEND = 0
    RDMA_WRITE = 1
    RDMA_READ = 2
    COMP_SWAP = 3
    FETCH_ADD = 4
    RECV = 128
    RECV_RDMA_WITH_IMM = 129


class WcFlags(IntFlag):
    """ibv_wc_flags."""

    GRH = 1
    WITH_IMM = 2
    WITH_INV = 8


NO_FLAGS = WcFlags(0)


class Access(IntFlag):
    """ibv_access_flags, of regions and of queue pairs."""

    LOCAL_WRITE = 1
    REMOTE_WRITE = 2
    REMOTE_READ = 4
    REMOTE_ATOMIC = 8


FULL_ACCESS = Access(sum(Access))


class SendFlags(IntFlag):
    """ibv_send_flags."""

    FENCE = 1
    SIGNALED = 2
    SOLICITED = 4
    INLINE = 8


class AsyncType(Enum):
    """ibv_event_type; the value says when it comes."""

    COMM_EST = "the first request on a queue pair in RTR"
    SQ_DRAINED = "all sends begun before SQD are complete"
    QP_FATAL = "the queue pair went to ERR: NAK 0x61 or 0x63 left"
    QP_ACCESS_ERR = "the queue pair went to ERR: NAK 0x62 left"
    SRQ_LIMIT_REACHED = "fewer receives than the limit are left"


@dataclass(slots=True)
class RocePacket(Datagram):
    """A packet from the BTH to the pad. `entropy` is the UDP source port, `dst` may be a multicast group."""

    network: Buffer = b""
    """Received packets of UD: the IPv4 or IPv6 header or GRH as it came; empty: there was none."""
    hop_limit: int = 0
    """To be sent with; 0: that of the configuration."""
    flow_label: int = 0
    """To be sent with, over IPv6."""


@dataclass(frozen=True, slots=True)
class AddressVector:
    """ibv_ah_attr: the way to a peer, or to a multicast group."""

    dst: int
    """IPv4 or IPv6 address as a number."""
    flow_label: int = 0
    """20 bits, from which the UDP source port comes; 0: from the numbers of the queue pairs (roce.md §1)."""
    hop_limit: int | None = None
    """None: that of the configuration."""


@dataclass(frozen=True, slots=True)
class Sge:
    """ibv_sge: bytes at an address of a local region."""

    addr: int
    length: int
    lkey: int


# Work: what `submit` takes -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class PostSend:
    """ibv_post_send of one work request. What the transport does not have is refused with `LocalError` (§6)."""

    qp_num: int
    wr_id: int = 0
    opcode: Opcode = Opcode.SEND
    sg_list: tuple[Sge, ...] = ()
    send_flags: SendFlags = SendFlags.SIGNALED
    imm_data: int = 0
    """The 32 bits as a number, most significant byte first on the wire."""
    invalidate_rkey: int = 0
    remote_addr: int = 0
    rkey: int = 0
    compare_add: int = 0
    """To compare with, or to add."""
    swap: int = 0
    ah: AddressVector | None = None
    """UD: where it goes."""
    remote_qpn: int = 0
    remote_qkey: int = 0
    """UD; with bit 31 set the own q_key goes out (§11)."""
    inline: Buffer | None = None
    """The bytes themselves, with INLINE and in place of `sg_list`; copied at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PostRecv:
    """ibv_post_recv."""

    qp_num: int
    wr_id: int = 0
    sg_list: tuple[Sge, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PostSrqRecv:
    """ibv_post_srq_recv."""

    srq_num: int
    wr_id: int = 0
    sg_list: tuple[Sge, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ModifyQp:
    """ibv_modify_qp: `attributes` by their names in libibverbs (`roce_qp.ATTRIBUTES`)."""

    qp_num: int
    state: QpState
    attributes: dict[str, Any] = field(default_factory=dict)


RoceWork: TypeAlias = PostSend | PostRecv | PostSrqRecv | ModifyQp
Receive: TypeAlias = PostRecv | PostSrqRecv


# Events: what `events` returns ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class WorkCompletion:
    """ibv_wc. In an error only wr_id, status, qp_num and vendor_err count (§10)."""

    wr_id: int
    status: Status
    qp_num: int
    receive: bool
    """It belongs to the receive queue."""
    opcode: WcOpcode
    byte_len: int = 0
    imm_data: int | None = None
    invalidated_rkey: int | None = None
    src_qp: int = 0
    pkey_index: int = 0
    wc_flags: WcFlags = NO_FLAGS
    vendor_err: int = 0
    """The syndrome that came or left with a NAK; 0: there was none."""
    solicited: bool = False

    @property
    def ok(self) -> bool:
        return self.status == Status.SUCCESS


@dataclass(frozen=True, slots=True)
class AsyncNotice:
    """ibv_async_event about a queue pair, or about a shared receive queue."""

    type: AsyncType
    number: int


@dataclass(frozen=True, slots=True)
class Notified:
    """A CNP for a queue pair came in; with `congestion` dcqcn its rate is cut already (`roce_dcqcn`, §13)."""

    qp_num: int


RoceEvent: TypeAlias = WorkCompletion | AsyncNotice | Notified
