# SPDX-License-Identifier: GPL-2.0-only
"""This module has the interface between an engine and its driver: five calls, datagrams, work and events.

An engine is sans-IO: its driver tells the engine the time, hands it datagrams and work, and takes datagrams and events
from it. `now` is an integer of picoseconds and never goes back. No call blocks or sleeps, and every random number comes
from the generator that the driver handed in.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import Any, NamedTuple, Protocol, TypeAlias

from uetproto.wire.headers.uet_pds import Mode as Mode
from uetproto.wire.headers.uet_ses import Opcode, ReturnCode

Buffer: TypeAlias = bytes | bytearray | memoryview

NEVER = 1 << 127
"""Instant that is later than all others. It is the deadline of a timer that is not armed."""

MICROSECOND = 1_000_000
MILLISECOND = 1_000 * MICROSECOND
SECOND = 1_000 * MILLISECOND


EVERY_JOB = -1
"""JobID of a process that every job can reach by relative addresses, as if the process belonged to that job."""


class Rng(Protocol):
    """This protocol has the two functions of a random generator that an engine calls. `random.Random(seed)` has both
    functions.
    """

    def getrandbits(self, k: int, /) -> int: ...

    def random(self) -> float: ...


PDC_MODES = (Mode.RUD, Mode.ROD)
"""Delivery modes that use a PDC."""


class TrafficClass(IntEnum):
    """This enumeration has the traffic classes of packets; the driver maps each class to a DSCP (cms.md §1)."""

    DATA = 0
    """Class of requests, which may be trimmed and carry ECT(0)."""
    DATA_RTX = 1
    """Class of retransmitted requests."""
    CONTROL = 2
    """Class of ACKs, NACKs and control packets, which are never trimmed."""


class Trim(IntEnum):
    """This enumeration says whether a received packet was trimmed. The DSCP of the packet says so (pds.md §14)."""

    NO = 0
    TRIMMED = 1
    LAST_HOP = 2


class UnpackedHeader(Protocol):
    """An unpacked header is a PDS header that travels as an object and not as bytes."""

    @property
    def packed_size(self) -> int:
        """Return how many bytes the header has on the wire."""

    @property
    def repeats(self) -> bool:
        """Return whether it is that of a request or a control packet that was sent before."""


@dataclass(slots=True)
class Datagram:
    """A datagram is a transport packet that travels between an engine and its driver, without Ethernet, IP, UDP and
    CRC.

    The transport bytes are `header` followed by `payload`. A sending engine leaves the two parts separate, so that the
    driver copies lower headers, header, payload and CRC into a frame only once. A driver that has received bytes puts
    all of them into `header` and leaves `payload` empty.
    """

    src: int
    """Fabric address of the sender: an IPv4 or IPv6 address as a number."""
    dst: int
    header: Buffer
    payload: Buffer = b""
    traffic_class: TrafficClass = TrafficClass.DATA
    entropy: int = 0
    """Entropy value of 16 bits, from the UDP source port or the entropy header."""
    ecn_marked: bool = False
    """Whether the packet arrived with the ECN mark CE."""
    trimmed: Trim = Trim.NO
    ip_version: int = 4
    message: Any = None
    """PDS header as an object of `pds.messages`, or None if a receiver must parse `header`. If PDS headers are not
    packed (`Pds.objects`), `header` begins with the SES header. All copies of the datagram share the object, which
    therefore never changes."""

    def marked(self) -> "Datagram":
        """Return the datagram as it arrives with the ECN mark CE."""
        return Datagram(
            self.src, self.dst, self.header, self.payload, self.traffic_class, self.entropy, True, self.trimmed,
            self.ip_version, self.message,
        )  # fmt: skip


# Work: what `submit` takes -------------------------------------------------------------------------------------------


class Source(Protocol):
    """A source gives the bytes of a message. It is a `memory.FileMemory`, a `memory.BufferMemory`, or an object of a
    similar class.
    """

    @property
    def length(self) -> int: ...

    def read(self, offset: int, length: int) -> Buffer: ...


@dataclass(slots=True, kw_only=True)
class Addressed:
    """This class has the fields of every operation towards a peer (ses.md §2). They must not change before the
    completion.
    """

    peer: int
    """Fabric address of the target."""
    mode: Mode = Mode.ROD
    job_id: int = 1
    pid_on_fep: int = 0
    resource_index: int = 15
    initiator: int = 16
    """Initiator id of the sender, 32 bits."""
    relative: bool = True
    delivery_complete: bool = False
    """Whether the target answers only once the effect of the operation is observable (FI_DELIVERY_COMPLETE, ses.md
    §13.2)."""
    pdc_context: int = 0
    """Number that the application chooses. Operations with different numbers never share a PDC (pds.md §6.1)."""
    reserved: bool = False
    """Whether the operation uses a PDC of the reserved pool (`rsv_pdc_context`). The SYN packets of such a PDC carry
    use_rsv_pdc."""
    context: Any = None
    """Value that the `Completion` of the operation carries back."""


@dataclass(slots=True, kw_only=True)
class Write(Addressed):
    """A write (fi_write, fi_writedata) stores bytes in a region of a peer (ses.md §5.3)."""

    data: Buffer | Source
    """Bytes to write. They must not change before the completion."""
    key: int
    """Memory key of the region at the target, 64 bits."""
    offset: int = 0
    """Offset in the region at which the message starts (buffer_offset, 64 bits)."""
    start: int = 0
    """Offset in `data` of the first byte to send."""
    length: int | None = None
    """Number of bytes to send. If it is None, all bytes from `start` on are sent."""
    completion_data: int | None = None
    """Completion data of 64 bits for the completion queue of the target (fi_writedata). `completion_data` is None if
    the write has none."""
    sync: tuple[int, int] | None = None
    """Group and total of a SYNC_WRITE (after UE 1.0.1). In the operation that ends the group, the total is the
    number of messages of the group, including this one. In all other operations of the group, it is 0. If `sync` is
    None, the write is an ordinary WRITE."""


@dataclass(slots=True, kw_only=True)
class Read(Addressed):
    """A read (fi_read) moves bytes of a region of a peer to a local buffer (ses.md §5.4)."""

    into: Buffer | Source
    """Writable buffer that takes the bytes."""
    key: int
    offset: int = 0
    """Offset in the region at which the message starts (buffer_offset, 64 bits)."""
    start: int = 0
    """Offset in `into` at which the first byte is stored."""
    length: int | None = None
    """Number of bytes to read. If it is None, bytes are read up to the end of `into`."""


@dataclass(slots=True, kw_only=True)
class Atomic(Addressed):
    """An atomic performs fi_atomic, fi_fetch_atomic or fi_compare_atomic (ses.md §5.10, §6). With `tag`, it is sent as
    a TSEND_ATOMIC or TSEND_FETCH_ATOMIC (ses.md §5.11).
    """

    opcode: int
    """Atomic operation, an `AtomicOpcode`."""
    datatype: int
    """Type of the elements, an `AtomicDatatype`."""
    data: Buffer = b""
    """Operands as elements in host order. A compare-and-swap has one operand, the value to store."""
    compare: Buffer | None = None
    """Value to compare with, or mask of MSWAP: one element in host order. It is None for an operation that has
    neither."""
    key: int = 0
    """Memory key of the region. It is ignored if `tag` is given."""
    offset: int = 0
    tag: int | None = None
    """Match bits that select a posted receive. The operation is applied to the buffer of this receive. If `tag` is
    None, the operation is applied to the region of `key`."""
    result: Any = None
    """Writable buffer of one element, which gets the former value in host order. If it is None, the operation does not
    fetch."""
    control: int = 0x02
    """semantic_control field: bit 0 is ctrl_cacheable, and bit 1 is cpu_coherent (ses.md §6.4)."""
    sync: tuple[int, int] | None = None
    """Group and total of a SYNC_ATOMIC (after UE 1.0.1), as in `Write`. If `sync` is None, the atomic is an ordinary
    one."""


class SendKind(Enum):
    """A send kind says how a send transfers its bytes (ses.md §5.5, §5.7, §5.9)."""

    PLAIN = "plain"
    RENDEZVOUS = "rendezvous"
    """Kind of a send whose request carries the first bytes; the target reads the other bytes."""
    DEFERRABLE = "deferrable"
    """Kind of a send that the target may stop, and restart when it has a buffer for the message."""


@dataclass(slots=True, kw_only=True)
class Send(Addressed):
    """A send (fi_send, fi_tsend) transfers a message to a receive of the peer. In mode UUD, it sends a datagram (ses.md
    §5.5–§5.9).
    """

    data: Buffer | Source
    start: int = 0
    length: int | None = None
    tag: int | None = None
    """Match bits of a tagged send, 64 bits. If `tag` is None, the send is untagged."""
    match_bits: int | None = None
    """Match bits of an untagged send with the standard header, or None. The target ignores them (ses.md §2.7)."""
    completion_data: int | None = None
    kind: SendKind = SendKind.PLAIN
    offset: int = 0
    """Offset in the matched buffer at which the message starts (buffer_offset, ses.md §2.8). A deferrable send has no
    offset."""
    local_pid: int = 0
    """PIDonFEP of the local process with which the source of a rendezvous is registered. The target READs the source
    from this process."""
    local_index: int = 15


@dataclass(slots=True, kw_only=True)
class Nop(Addressed):
    """A NO_OP asks whether an address exists and whether this job may use it (ses.md §5.2)."""


@dataclass(slots=True, kw_only=True, eq=False)
class Receive:
    """A receive (fi_recv, fi_trecv) posts a buffer on a queue of a local process (ses.md §11.3).

    Each message that the receive takes ends in one `Received`. The receive takes more than one message only if
    the field `least` is above 0.
    """

    into: Any
    """Writable buffer, or `memory.Memory`."""
    start: int = 0
    length: int | None = None
    """Number of bytes that the receive takes. If it is None, the receive takes bytes up to the end of `into`."""
    tag: int | None = None
    """Match bits of a tagged receive, 64 bits. If `tag` is None, the receive is posted on the untagged queue."""
    ignore: int = 0
    """Bits of the tag that need not match."""
    source: int | None = None
    """Initiator id from which messages are taken (FI_DIRECTED_RECV). If it is None, messages from any initiator are
    taken."""
    job_id: int | None = 1
    """JobID of the process. None stands for a service at an absolute address. `EVERY_JOB` stands for a process that all
    jobs reach."""
    pid_on_fep: int = 0
    resource_index: int = 15
    only_job: int | None = None
    """JobID to which the buffer is restricted (ses.md §2.2). If it is None, there is no restriction."""
    least: int = 0
    """Number of free bytes below which the buffer takes no further message (FI_MULTI_RECV). If it is 0, the receive
    takes one message only."""
    context: Any = None


SesWork: TypeAlias = Write | Read | Atomic | Send | Nop | Receive


@dataclass(slots=True, kw_only=True)
class Close:
    """This work closes the PDCs that this endpoint opened to `peer`: all PDCs, those of one mode, or a single one
    (pds.md §6.4).
    """

    peer: int
    mode: Mode | None = None
    pdcid: int = 0
    """PDCID of the single PDC to close. If it is 0, all PDCs to the peer are closed, or, if `mode` is given, all PDCs
    of this mode."""


@dataclass(slots=True, kw_only=True)
class AskClose:
    """This work sends CLOSE_REQ: the endpoint, as the target of the PDC `pdcid`, asks the initiator to close the PDC
    (pds.md §6.5).
    """

    pdcid: int


@dataclass(slots=True, kw_only=True)
class Noop:
    """This work sends NOOP to `peer`. The NOOP keeps a PDC from becoming idle, or opens a PDC early (pds.md §13)."""

    peer: int
    mode: Mode = Mode.ROD


@dataclass(slots=True, kw_only=True)
class Negotiate:
    """This work sends NEGOTIATION to `peer`, with 32 bits of feature data. The packet may open a PDC (pds.md §13)."""

    peer: int
    mode: Mode = Mode.ROD
    features: int = 0


@dataclass(slots=True, kw_only=True)
class Probe:
    """This work sends PROBE on the PDC `pdcid`, to learn CACK, SACK and the round-trip time. A `Probed` event follows
    (pds.md §13).
    """

    pdcid: int


@dataclass(slots=True, kw_only=True)
class AskCredit:
    """This work sends CREDIT_REQ on the PDC `pdcid`, with a credit target of 24 bits. A `Credited` event follows
    (pds.md §13).
    """

    pdcid: int
    target: int = 0


@dataclass(slots=True, kw_only=True)
class GiveCredit:
    """This work sends CREDIT with 24 bits of credit on the PDC `pdcid`, although no CREDIT_REQ asked for it (pds.md
    §13).
    """

    pdcid: int
    credit: int = 0


PdsWork: TypeAlias = Close | AskClose | Noop | Negotiate | Probe | AskCredit | GiveCredit
Work: TypeAlias = SesWork | PdsWork


# Events: what `events` returns ---------------------------------------------------------------------------------------
# Those that come with every message are named tuples, which take a quarter of the time to make.


class PdcErrorReason(Enum):
    """This enumeration says why a PDC ended in error (pds.md §6.7)."""

    RTO_EXHAUSTED = "no answer after the last retransmission"
    NACK_EXHAUSTED = "refused more often than Max_NACK_Retx_Cnt"
    NACK_FATAL = "a NACK of class FATAL"
    CLOSE_TIMEOUT = "the initiator did not close in time"
    PEND_TIMEOUT = "no PDC became free in time"
    PSN_LIMIT = "the PSNs of the PDC are used up"
    PEER_CLOSED = "the peer closed in error"


@dataclass(frozen=True, slots=True)
class PdsError:
    """This record describes an unrecoverable error, as `pds_ses_error` carries it (pds.md §6.7). If the reason is
    NACK_FATAL, `code` is the code of the NACK.
    """

    reason: PdcErrorReason
    code: int = 0
    retryable: bool = False


class Completion(NamedTuple):
    """This event says that an operation of the local initiator has ended. Each operation has exactly one completion
    (ses.md §13, §15).
    """

    context: Any
    peer: int
    message_id: int
    length: int
    return_code: ReturnCode
    """Return code of the operation: OK, or the first error that occurred."""
    error: PdsError | None = None
    """Error of packet delivery. It is None unless packet delivery failed; if it failed, `return_code` is
    UNDELIVERABLE."""
    opcode: int = Opcode.WRITE
    modified: int = 0
    """Number of bytes that the target reports as stored. It is less than `length` after a truncated send (ses.md
    §9.4)."""
    refusals: int = 0
    """Number of times that the target refused a message of the operation temporarily (ses.md §12)."""
    timed_out: bool = False
    """Whether the target was too late to restart a deferred message or to read a rendezvous (ses.md §5.7, §16)."""

    @property
    def ok(self) -> bool:
        return self.error is None and not self.timed_out and self.return_code == ReturnCode.OK


class RemoteWrite(NamedTuple):
    """This event says that a whole WRITE with completion data is in the memory of this target (ses.md §5.3; FI_RMA |
    FI_REMOTE_WRITE).
    """

    source: int
    """Fabric address of the sender."""
    initiator: int
    job_id: int
    pid_on_fep: int
    resource_index: int
    length: int
    data: int
    """Completion data of the WRITE, 64 bits."""


class Received(NamedTuple):
    """This event says that a posted receive of this target has taken a message, or has ended in error (ses.md §5.5,
    §13.3).
    """

    receive: Receive
    source: int
    """Fabric address of the sender."""
    initiator: int
    job_id: int
    opcode: int
    tag: int
    """match_bits of the message. `tag` is 0 for an untagged message."""
    start: int
    """Offset in `receive.into` at which the message begins. A buffer with `least` may hold several messages."""
    length: int
    """Number of bytes of the message that were stored."""
    message_length: int
    """Size of the whole message in bytes. It is more than `length` if the message was truncated."""
    data: int | None = None
    """Completion data of the message. `data` is None if the message has none."""
    return_code: ReturnCode = ReturnCode.OK
    overflow: bool = False
    """Whether the message came before the receive and was held (ses.md §11.1)."""
    spent: bool = True
    """Whether the buffer takes no further message."""
    pdcid: int = 0
    """PDCID of the local PDC on which the message came. It is 0 if the message came without a PDC."""


@dataclass(frozen=True, slots=True)
class Cancelled:
    """This event says that a posted receive was cancelled before a message matched it (fi_cancel, ses.md §11.3 rule
    7).
    """

    receive: Receive


class RemoteAccess(NamedTuple):
    """This event says that a peer has accessed a region of this target. Counters that are bound to the region count
    this access (ses.md §13.3).
    """

    key: int
    read: bool
    written: bool
    length: int
    region: Any = None
    """Region (`memory.Region`) that was accessed. It is None if a posted buffer was accessed."""


class MessageStored(NamedTuple):
    """This event says that the last byte of a message is in the memory of this target. libfabric has no such event;
    drivers and tests use it.
    """

    source: int
    message_id: int
    key: int
    offset: int
    length: int


@dataclass(frozen=True, slots=True)
class MessageFailed:
    """This event says that the first error of a message has occurred at this target."""

    source: int
    message_id: int
    return_code: ReturnCode


@dataclass(frozen=True, slots=True)
class PdcOpened:
    """This event says that a PDC was opened. `initiator` says whether this endpoint, and not the peer, opened the
    PDC.
    """

    peer: int
    pdcid: int
    mode: Mode
    initiator: bool
    start_psn: int


@dataclass(frozen=True, slots=True)
class PdcClosed:
    """This event says that a PDC was released. `error` is None if the PDC was closed without an error."""

    peer: int
    pdcid: int
    mode: Mode
    initiator: bool
    error: PdsError | None = None


@dataclass(frozen=True, slots=True)
class Paused:
    """This event says that messages began to wait for a free PDC, or that no message waits any longer (`pds_pause`,
    pds.md §6.1).
    """

    paused: bool
    """Whether messages wait now."""


@dataclass(frozen=True, slots=True)
class Probed:
    """This event says that a PROBE was answered. `rtt` is the round-trip time in picoseconds."""

    peer: int
    pdcid: int
    rtt: int


@dataclass(frozen=True, slots=True)
class Credited:
    """This event says that a CREDIT arrived. The engine itself has no rate control that uses the credit."""

    peer: int
    pdcid: int
    credit: int


@dataclass(frozen=True, slots=True)
class Negotiated:
    """This event says that a NEGOTIATION arrived, with 32 bits of feature data."""

    peer: int
    pdcid: int
    features: int


@dataclass(frozen=True, slots=True)
class NewPdcTimeouts:
    """This event says that the count of expiries of New_PDC_Time has reached New_PDC_Timeout_Thresh (pds.md §6.5)."""

    count: int


Event: TypeAlias = (
    Completion | Received | Cancelled | RemoteAccess | RemoteWrite | MessageStored | MessageFailed
    | PdcOpened | PdcClosed | Paused | Probed | Credited | Negotiated | NewPdcTimeouts
)  # fmt: skip


# Congestion control ---------------------------------------------------------------------------------------------------


class CccState(Enum):
    """This enumeration has the states of a congestion control context (cms.md §2)."""

    IDLE = "nothing to send, and nothing in flight"
    PENDING = "nothing to send, but something in flight"
    ACTIVE = "something to send, which an algorithm forbids"
    READY = "something to send, which all algorithms allow"


class PathFeedback(Enum):
    """This enumeration says what happened to a packet, to whoever chooses entropy values (cms.md §2, §5)."""

    NO_ECN = "acknowledged, without a mark"
    ECN = "acknowledged or refused, with a mark"
    NACK = "trimmed, not at the last hop"
    TIMEOUT = "lost"


class AckReport(NamedTuple):
    """An ACK report is what an ACK tells the congestion control context of its PDC."""

    new: int = 0
    """Nominal bytes that have arrived for the first time since the last ACK, from rcvd_bytes: a multiple of 256."""
    marked: bool = False
    """Whether the packet that caused the ACK had the ECN mark CE."""
    rtt: int | None = None
    """Round-trip time in picoseconds, without the service time of the destination. None: not known, or ambiguous."""
    penalty: int = 0
    """rcv_cwnd_pend: the window shrinks by this share of `new`, in 1/128."""
    restore: bool = False
    """restore_cwnd: the window before the first penalty is restored."""
    credit: int | None = None
    """Cumulative grant in 256-byte quanta, 24 bits. None: the ACK carries none."""
    ooo_count: int | None = None
    """Number of packets that the destination holds out of order. None: not told."""


class PathSelection(Protocol):
    """A path selection gives each request its entropy value, and hears what became of it (cms.md §5)."""

    def next(self, now: int) -> int:
        """Return the entropy value of the next request, 16 bits."""

    def heard(self, entropy: int, feedback: PathFeedback, now: int) -> None:
        """Note what happened to a packet with an entropy value."""


class CongestionContext(Protocol):
    """A congestion control context (CCC) is shared by the PDCs of one {peer, traffic class, mode} (cms.md §2).

    A PDC asks it before every transmission, and tells it of every event of the table in cms.md §2. Sizes are nominal
    bytes: transport bytes + 40. Times are picoseconds.
    """

    ccc_id: int
    demands: bool
    """Whether requests carry req_cc_state."""
    wants_probe: bool
    """Whether a PROBE should be sent, for a base RTT without queueing. Whoever sends it sets this to False."""

    @property
    def heard_at(self) -> int:
        """Return the time of the last ACK, NACK or grant."""

    def state(self, size: int, now: int) -> CccState:
        """Return the state, for a next packet of `size` bytes."""

    def offered(self, size: int) -> None:
        """Note that `size` bytes wait for their first transmission. A negative size takes bytes back."""

    def may_send(self, size: int, now: int) -> bool:
        """Return whether a packet of `size` bytes may be sent now, for the first time or again."""

    def sent(self, size: int, again: bool, now: int) -> bool:
        """Note a transmission, and return whether the packet should ask for an ACK. `again`: a retransmission."""

    def acked(self, packets: int, report: AckReport, now: int) -> int | None:
        """Note an ACK. `packets` of those in flight are no longer. Return the time-out that fits the round-trip times
        of the ACKs, or None if the PDC has its own, which is fixed."""

    def nacked(self, size: int, trim: Trim, marked: bool, rtt: int | None, now: int) -> None:
        """Note a NACK of a packet, which waits for its retransmission from now on. `trim`: NO for any other NACK."""

    def lost(self, size: int, now: int) -> None:
        """Note an inferred loss or a time-out of a packet, which waits for its retransmission from now on."""

    def found(self, size: int) -> None:
        """Note that a packet which waits for its retransmission was received after all. Its bytes count as in flight
        again, until an ACK reports them."""

    def missed(self, size: int) -> None:
        """Note that a packet which is not in flight waits for its retransmission: the peer had reported it as received,
        or it goes anew with another Start_PSN."""

    def settled(self, packets: int, size: int, waiting: int, waiting_size: int) -> None:
        """Note the end of a PDC: `packets` of those in flight, and `size` bytes, are no longer, and `waiting` packets
        of together `waiting_size` bytes do not wait for their retransmission any more.

        `size` may be negative, as rcvd_bytes is rounded up.
        """

    def credited(self, credit: int, now: int) -> None:
        """Note a cumulative grant of 256-byte quanta, 24 bits, that a CREDIT carries."""

    def demand(self) -> int | None:
        """Return the cumulative demand in 256-byte quanta, 24 bits, for req_cc_state. None: requests carry none."""

    def most_overtaking(self) -> tuple[int, int]:
        """Return how many packets the destination may hold out of order until those that are missing are taken for
        lost, and how many PSNs from the lowest missing one on are looked at (cms.md §6)."""

    def patience(self) -> int:
        """Return how many picoseconds ago a packet was sent at least that is lost if the answer to a PROBE, which
        overtakes data, shows it as missing (cms.md §6)."""

    def paths(self) -> PathSelection:
        """Return what chooses the entropy values of a new PDC: all PDCs on RUD share it, one on ROD has its own."""

    def probed(self, rtt: int) -> None:
        """Note the round-trip time of a PROBE in picoseconds."""

    def speculate(self) -> None:
        """Let one packet be sent without credit, as no PDC is open by which credit could be asked for."""

    def deadline(self) -> int:
        """Return when `on_time` has something to do, or NEVER."""

    def on_time(self, now: int) -> bool:
        """Do what is due, and return whether a CREDIT_REQ should be sent, as no feedback comes."""


class CongestionReceiver(Protocol):
    """A congestion receiver is the receiving half of one PDC; it says what its ACKs carry (cms.md §1, §3.2)."""

    def arrived(self, size: int, now: int) -> None:
        """Note `size` nominal bytes of a new data packet that was not trimmed."""

    def asked(self, ccc_id: int | None, target: int, now: int) -> None:
        """Note the demand of a request with req_cc_state, or of a CREDIT_REQ, which names no context (None)."""

    def granted(self) -> int | None:
        """Return the newest cumulative grant to the sender, in 256-byte quanta, 24 bits. None: it has no credit."""

    def ack_state(self, arrived_at: int, ooo_count: int, now: int) -> tuple[int, bytes]:
        """Return cc_type and the 8 bytes of congestion control state of an ACK_CC.

        `arrived_at`: when the packet that causes the ACK arrived, from which service_time counts.
        """


class CongestionManager(Protocol):
    """A congestion manager makes the contexts and receivers of one FEP, and paces the grants of its NIC (cms.md §4)."""

    overhead: int
    """Bytes that the nominal size of a packet has beyond its PDS header, SES header and payload."""
    largest: int
    """Nominal size of a request with a full payload, for which a context is asked before the packet is made."""
    paces: bool
    """Whether time alone gives it something to do. If not, its `deadline` and that of its contexts is NEVER."""

    def context(self, peer: int, mode: Mode) -> CongestionContext:
        """Return the context of a peer and a mode, the same one each time."""

    def receiver(self, peer: int, mode: Mode, pdcid: int) -> CongestionReceiver:
        """Return a new receiver for the PDC `pdcid`."""

    def closed(self, pdcid: int) -> None:
        """Forget the receiver of a PDC that was released."""

    def deadline(self) -> int:
        """Return when the next grant is due, or NEVER."""

    def grants(self, now: int) -> list[tuple[int, int]]:
        """Return the CREDITs to send now: PDCID and cumulative grant of each."""


# The five calls -----------------------------------------------------------------------------------------------------


class Engine(Protocol):
    """An engine has five calls. Each of them raises `LocalError` if `now` is earlier than in a previous call.

    Work and events are those of the transport: for UET the types of this module, for RoCE those of `roce.contract`.
    """

    def receive(self, packet: Datagram, now: int) -> None:
        """Take a datagram from the network. Illegal bytes are dropped and counted; they never raise an error."""

    def submit(self, work: Any, now: int) -> None:
        """Take work from the application. Raises `LocalError` for work that is not possible."""

    def poll(self, now: int, limit: int = NEVER) -> Sequence[Datagram]:
        """Run the timers that are due, and return the datagrams to send now, oldest first.

        At most `limit` of these datagrams are first transmissions. The engine keeps the other first transmissions for
        later calls, so that a driver can send at line rate. A driver calls `poll` after every `receive` and `submit`,
        and at `deadline()`.
        """

    def deadline(self) -> int | None:
        """Return when, in picoseconds, `poll` must be called at the latest if nothing else happens. Return None if no
        timer is armed.

        The time may be too early, because timers are restarted with nearly every packet. A poll at that time does
        nothing, and the next deadline is later.
        """

    def events(self) -> list[Any]:
        """Return the events since the last call, in order."""


class EndpointDriver(Protocol):
    """An endpoint driver runs the engines below an API of endpoints, on an emulated network or on real sockets.

    The driver passes packets between its nodes, or between one node and the network. It runs the timers of the engines,
    and hands each node the events of the node's engine (`api.node.LocalNode.tell`). All endpoints of a driver have the
    same time.
    """

    @property
    def now(self) -> int:
        """Return the time in picoseconds."""

    @property
    def closed(self) -> bool:
        """Return whether the driver was closed. A closed driver takes no more work."""

    @property
    def idle(self) -> bool | None:
        """Return whether no packet and no timer is left that could cause an event. Return None if this is unknown, as
        on sockets.
        """

    def submit(self, node: str, work: Any) -> None:
        """Pass work to the engine of a node, send what the engine has to send, and report the engine's events."""

    def call_soon(self, action: Callable[[], None]) -> None:
        """Call `action` once, after the events that are due now were reported and before time advances."""

    def wake(self) -> None:
        """Let `wait` check its condition at once."""

    def wait(self, condition: Callable[[], bool], timeout: int | None = None, burst: int = ...) -> bool:
        """Let time pass until `condition()` is true. Return whether it is true.

        `timeout` is the longest wait in picoseconds. If it is None, the wait also ends when the driver is `idle`; if
        `idle` is None, the wait has no limit. `burst` is the number of events between two checks of the condition. A
        call of `wake` causes one more check.
        """

    def close(self, drain: bool = True) -> None:
        """End the run. If `drain` is true, the packets under way arrive first."""
