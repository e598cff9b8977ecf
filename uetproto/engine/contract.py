"""The interface between an engine and its driver has five calls, datagrams, work and events.

An engine is sans-IO: its driver tells it the time, hands it datagrams and work, and takes datagrams and events from it.
`now` is an integer of picoseconds and never goes back. No call blocks or sleeps, and every random number comes from the
generator that the driver handed in.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import Any, NamedTuple, Protocol, TypeAlias

from uetproto.wire.headers.uet_pds import Mode as Mode
from uetproto.wire.headers.uet_ses import Opcode, ReturnCode

Buffer: TypeAlias = bytes | bytearray | memoryview

NEVER = 1 << 127
"""An instant later than all others: the deadline of a timer that is not armed."""

MICROSECOND = 1_000_000
MILLISECOND = 1_000 * MICROSECOND
SECOND = 1_000 * MILLISECOND


EVERY_JOB = -1
"""JobID of a process that every job can reach by relative addresses, as if the process belonged to that job."""


class Rng(Protocol):
    """The two functions of a random generator that an engine calls; `random.Random(seed)` has them."""

    def getrandbits(self, k: int, /) -> int: ...

    def random(self) -> float: ...


PDC_MODES = (Mode.RUD, Mode.ROD)
"""The modes that use a PDC."""


class TrafficClass(IntEnum):
    """This enumeration has the traffic classes of packets; the driver maps each class to a DSCP (cms.md §1)."""

    DATA = 0
    """Class of requests, which may be trimmed and carry ECT(0)."""
    DATA_RTX = 1
    """Class of retransmitted requests."""
    CONTROL = 2
    """Class of ACKs, NACKs and control packets, which are never trimmed."""


class Trim(IntEnum):
    """This enumeration says whether a received packet was trimmed, as its DSCP tells (pds.md §14)."""

    NO = 0
    TRIMMED = 1
    LAST_HOP = 2


@dataclass(slots=True)
class Datagram:
    """A transport packet travels between an engine and its driver without Ethernet, IP, UDP and CRC.

    The transport bytes are `header` followed by `payload`. A sending engine leaves them separate, so that the driver
    can copy lower headers, header, payload and CRC into a frame once; a driver that received bytes puts all of them in
    `header` and leaves `payload` empty.
    """

    src: int
    """Fabric address of the sender, an IPv4 or IPv6 address as a number."""
    dst: int
    header: Buffer
    payload: Buffer = b""
    traffic_class: TrafficClass = TrafficClass.DATA
    entropy: int = 0
    """Entropy value, 16 bits: the UDP source port or the entropy header."""
    ecn_marked: bool = False
    """Whether the packet arrived with the ECN mark CE."""
    trimmed: Trim = Trim.NO
    ip_version: int = 4
    message: Any = None
    """The PDS header as an object of `pds.messages` in a run without bytes (`Pds.objects`); `header` then begins with
    the SES header. All copies of the datagram share the object, which therefore never changes."""


# Work: what `submit` takes -------------------------------------------------------------------------------------------


class Source(Protocol):
    """A source reads the bytes of a message: `memory.FileMemory`, `memory.BufferMemory`, or a class like them."""

    @property
    def length(self) -> int: ...

    def read(self, offset: int, length: int) -> Buffer: ...


@dataclass(slots=True, kw_only=True)
class Addressed:
    """The fields that every operation towards a peer has (ses.md §2)."""

    peer: int
    """Fabric address of the target."""
    mode: Mode = Mode.ROD
    job_id: int = 1
    pid_on_fep: int = 0
    resource_index: int = 15
    initiator: int = 16
    """Identity of the sender, 32 bits."""
    relative: bool = True
    delivery_complete: bool = False
    """FI_DELIVERY_COMPLETE: the target answers once the effect is observable (ses.md §13.2)."""
    pdc_context: int = 0
    """A number that the application chooses: operations with different numbers never share a PDC (pds.md §6.1)."""
    reserved: bool = False
    """Whether the operation uses a PDC of the reserved pool (`rsv_pdc_context`); its SYN packets carry use_rsv_pdc."""
    context: Any = None
    """Value that the `Completion` carries back."""


@dataclass(slots=True, kw_only=True)
class Write(Addressed):
    """A write (fi_write, fi_writedata) stores bytes in a region of a peer (ses.md §5.3)."""

    data: Buffer | Source
    """Bytes to write; they must not change before the completion."""
    key: int
    """Memory key of the region at the target, 64 bits."""
    offset: int = 0
    """buffer_offset: where in the region the message starts, 64 bits."""
    start: int = 0
    """First byte of `data` to send."""
    length: int | None = None
    """Number of bytes to send; default: all from `start`."""
    completion_data: int | None = None
    """fi_writedata: 64 bits for the completion queue of the target."""
    sync: tuple[int, int] | None = None
    """SYNC_WRITE (after UE 1.0.1): {group, total}. `total` is 0, except in the operation that ends the group: there it
    is the number of messages of the group, this one included."""


@dataclass(slots=True, kw_only=True)
class Read(Addressed):
    """A read (fi_read) moves bytes of a region of a peer to a local buffer (ses.md §5.4)."""

    into: Buffer | Source
    """The writable buffer that takes the bytes."""
    key: int
    offset: int = 0
    """buffer_offset: where in the region the message starts, 64 bits."""
    start: int = 0
    """Offset in `into` that takes the first byte."""
    length: int | None = None
    """Number of bytes to read; default: up to the end of `into`."""


@dataclass(slots=True, kw_only=True)
class Atomic(Addressed):
    """An atomic is fi_atomic, fi_fetch_atomic or fi_compare_atomic, or with `tag` a TSEND (ses.md §5.10, §5.11, §6)."""

    opcode: int
    """Operation to do, an `AtomicOpcode`."""
    datatype: int
    """The type of an element, an `AtomicDatatype`."""
    data: Buffer = b""
    """Operands as elements in host order; a compare-and-swap has one, the value to store."""
    compare: Buffer | None = None
    """Value to compare with, or mask of MSWAP: one element in host order."""
    key: int = 0
    """Memory key of the region; it is ignored if `tag` is given."""
    offset: int = 0
    tag: int | None = None
    """Match bits that select the posted receive to whose buffer the operation is applied; None: `key` selects a
    region."""
    result: Any = None
    """Writable buffer of one element, which gets the former value in host order; None: the operation does not fetch."""
    control: int = 0x02
    """semantic_control: bit 0 ctrl_cacheable, bit 1 cpu_coherent (ses.md §6.4)."""
    sync: tuple[int, int] | None = None
    """SYNC_ATOMIC (after UE 1.0.1): {group, total}, as in `Write`."""


class SendKind(Enum):
    """How a send transfers its bytes (ses.md §5.5, §5.7, §5.9)."""

    PLAIN = "plain"
    RENDEZVOUS = "rendezvous"
    """The request carries the first bytes; the target reads the rest."""
    DEFERRABLE = "deferrable"
    """The target may stop the message, and restart it when it has a buffer."""


@dataclass(slots=True, kw_only=True)
class Send(Addressed):
    """A send (fi_send, fi_tsend) transfers a message to a receive of the peer; on UUD a datagram (ses.md §5.5–§5.9)."""

    data: Buffer | Source
    start: int = 0
    length: int | None = None
    tag: int | None = None
    """The 64 match bits of a tagged send; None: the send is untagged."""
    match_bits: int | None = None
    """Match bits of an untagged send with the standard header; the target ignores them (ses.md §2.7)."""
    completion_data: int | None = None
    kind: SendKind = SendKind.PLAIN
    offset: int = 0
    """buffer_offset: where in the matched buffer the message starts (ses.md §2.8); deferrable sends have no offset."""
    local_pid: int = 0
    """PIDonFEP of the local process in which the source of a rendezvous is registered, for the READ of the target."""
    local_index: int = 15


@dataclass(slots=True, kw_only=True)
class Nop(Addressed):
    """A NO_OP asks whether an address exists and whether this job may use it (ses.md §5.2)."""


@dataclass(slots=True, kw_only=True, eq=False)
class Receive:
    """A receive (fi_recv, fi_trecv) posts a buffer on a queue of a local process (ses.md §11.3).

    Each message that the receive takes ends in one `Received`. The receive takes more than one message only with
    `least`.
    """

    into: Any
    """Writable buffer, or `memory.Memory`."""
    start: int = 0
    length: int | None = None
    """Number of bytes that the receive takes; default: up to the end of `into`."""
    tag: int | None = None
    """The 64 match bits of a tagged receive; None: the receive is for the untagged queue."""
    ignore: int = 0
    """Bits of the tag that need not match."""
    source: int | None = None
    """Initiator id from which messages are taken (FI_DIRECTED_RECV); None: from any."""
    job_id: int | None = 1
    """JobID of the process; None: the process is a service at an absolute address; `EVERY_JOB`: all jobs reach it."""
    pid_on_fep: int = 0
    resource_index: int = 15
    only_job: int | None = None
    """JobID to which the buffer is restricted (ses.md §2.2); None: no restriction."""
    least: int = 0
    """Number of free bytes below which the buffer takes no further message (FI_MULTI_RECV); 0: the receive takes one
    message only."""
    context: Any = None


SesWork: TypeAlias = Write | Read | Atomic | Send | Nop | Receive


@dataclass(slots=True, kw_only=True)
class Close:
    """Close the PDCs that this endpoint opened to `peer`: all, those of one mode, or one (pds.md §6.4)."""

    peer: int
    mode: Mode | None = None
    pdcid: int = 0
    """PDCID of the one PDC to close; 0: all PDCs to the peer, or those of `mode`."""


@dataclass(slots=True, kw_only=True)
class AskClose:
    """Send CLOSE_REQ: as the target of the PDC `pdcid`, ask its initiator to close it (pds.md §6.5)."""

    pdcid: int


@dataclass(slots=True, kw_only=True)
class Noop:
    """Send NOOP to `peer`; the NOOP keeps a PDC from becoming idle, or opens one early (pds.md §13)."""

    peer: int
    mode: Mode = Mode.ROD


@dataclass(slots=True, kw_only=True)
class Negotiate:
    """Send NEGOTIATION to `peer` with 32 bits of feature data; the packet may open a PDC (pds.md §13)."""

    peer: int
    mode: Mode = Mode.ROD
    features: int = 0


@dataclass(slots=True, kw_only=True)
class Probe:
    """Send PROBE on the PDC `pdcid`, to learn CACK, SACK and the round-trip time; a `Probed` follows (pds.md §13)."""

    pdcid: int


@dataclass(slots=True, kw_only=True)
class AskCredit:
    """Send CREDIT_REQ on the PDC `pdcid` with a credit target of 24 bits; a `Credited` follows (pds.md §13)."""

    pdcid: int
    target: int = 0


@dataclass(slots=True, kw_only=True)
class GiveCredit:
    """Send CREDIT of 24 bits on the PDC `pdcid` without a CREDIT_REQ (pds.md §13)."""

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
    """An unrecoverable error, as `pds_ses_error` carries it (pds.md §6.7). `code` is the NACK code for NACK_FATAL."""

    reason: PdcErrorReason
    code: int = 0
    retryable: bool = False


class Completion(NamedTuple):
    """An operation of the local initiator ended; each operation has exactly one completion (ses.md §13, §15)."""

    context: Any
    peer: int
    message_id: int
    length: int
    return_code: ReturnCode
    """Return code of the operation: OK, or the first error that occurred."""
    error: PdsError | None = None
    """Error of packet delivery, if it failed; `return_code` is then UNDELIVERABLE."""
    opcode: int = Opcode.WRITE
    modified: int = 0
    """Number of bytes that the target reports as stored; less than `length` after a truncated send (ses.md §9.4)."""
    refusals: int = 0
    """Number of times that the target refused a message of the operation temporarily (ses.md §12)."""
    timed_out: bool = False
    """Whether the target was too late to restart a deferred message or to read a rendezvous (ses.md §5.7, §16)."""

    @property
    def ok(self) -> bool:
        return self.error is None and not self.timed_out and self.return_code == ReturnCode.OK


class RemoteWrite(NamedTuple):
    """A whole WRITE with completion data is in memory of this target (ses.md §5.3; FI_RMA | FI_REMOTE_WRITE)."""

    source: int
    """Fabric address of the sender."""
    initiator: int
    job_id: int
    pid_on_fep: int
    resource_index: int
    length: int
    data: int
    """The completion data, 64 bits."""


class Received(NamedTuple):
    """A posted receive of this target has taken a message, or has ended in error (ses.md §5.5, §13.3)."""

    receive: Receive
    source: int
    """Fabric address of the sender."""
    initiator: int
    job_id: int
    opcode: int
    tag: int
    """match_bits of the message, 0 when untagged."""
    start: int
    """Offset in `receive.into` at which the message begins; a buffer with `least` holds several messages."""
    length: int
    """Number of bytes of the message that were stored."""
    message_length: int
    """Size of the whole message in bytes; it is more than `length` when the message was truncated."""
    data: int | None = None
    """Completion data of the message."""
    return_code: ReturnCode = ReturnCode.OK
    overflow: bool = False
    """Whether the message came before the receive and was held (ses.md §11.1)."""
    spent: bool = True
    """Whether the buffer takes no further message."""
    pdcid: int = 0
    """PDCID of the local PDC on which the message came; 0: it came without one."""


@dataclass(frozen=True, slots=True)
class Cancelled:
    """A posted receive was cancelled before a message matched it (fi_cancel, ses.md §11.3 rule 7)."""

    receive: Receive


class RemoteAccess(NamedTuple):
    """A peer has accessed a region of this target; counters that are bound to the region count it (ses.md §13.3)."""

    key: int
    read: bool
    written: bool
    length: int
    region: Any = None
    """The `memory.Region` that was accessed; None for a posted buffer."""


class MessageStored(NamedTuple):
    """The last byte of a message is in memory of this target; libfabric has no such event, drivers and tests use it."""

    source: int
    message_id: int
    key: int
    offset: int
    length: int


@dataclass(frozen=True, slots=True)
class MessageFailed:
    """The first error of a message has occurred at this target."""

    source: int
    message_id: int
    return_code: ReturnCode


@dataclass(frozen=True, slots=True)
class PdcOpened:
    """A PDC was opened, by this endpoint (`initiator`) or to it."""

    peer: int
    pdcid: int
    mode: Mode
    initiator: bool
    start_psn: int


@dataclass(frozen=True, slots=True)
class PdcClosed:
    """A PDC was released; `error` is None for a normal close."""

    peer: int
    pdcid: int
    mode: Mode
    initiator: bool
    error: PdsError | None = None


@dataclass(frozen=True, slots=True)
class Paused:
    """Messages began to wait for a free PDC, or no message waits any longer (`pds_pause`, pds.md §6.1)."""

    paused: bool
    """Whether messages wait."""


@dataclass(frozen=True, slots=True)
class Probed:
    """A PROBE was answered; `rtt` is in picoseconds."""

    peer: int
    pdcid: int
    rtt: int


@dataclass(frozen=True, slots=True)
class Credited:
    """A CREDIT arrived; the engine itself has no rate control that uses the credit."""

    peer: int
    pdcid: int
    credit: int


@dataclass(frozen=True, slots=True)
class Negotiated:
    """A NEGOTIATION was received, with 32 bits of feature data."""

    peer: int
    pdcid: int
    features: int


@dataclass(frozen=True, slots=True)
class NewPdcTimeouts:
    """The count of expiries of New_PDC_Time has reached New_PDC_Timeout_Thresh (pds.md §6.5)."""

    count: int


Event: TypeAlias = (
    Completion | Received | Cancelled | RemoteAccess | RemoteWrite | MessageStored | MessageFailed
    | PdcOpened | PdcClosed | Paused | Probed | Credited | Negotiated | NewPdcTimeouts
)  # fmt: skip


class Engine(Protocol):
    """An engine has five calls; it raises `LocalError` when `now` is earlier than in the call before.

    Work and events are those of the transport: for UET the types of this module, for RoCE those of `roce.contract`.
    """

    def receive(self, packet: Datagram, now: int) -> None:
        """Take a datagram from the network; illegal bytes are dropped and counted, and never raise."""

    def submit(self, work: Any, now: int) -> None:
        """Take work from the application. Raises `LocalError` for work that is not possible."""

    def poll(self, now: int, limit: int = NEVER) -> Sequence[Datagram]:
        """Run the timers that are due and return the datagrams to send now, oldest first.

        At most `limit` of them are first transmissions; the engine keeps the others queued for later calls, so that a
        driver can send at line rate. A driver calls `poll` after every `receive` and `submit`, and at `deadline()`.
        """

    def deadline(self) -> int | None:
        """Return when `poll` must be called at the latest if nothing else happens; None: no timer is armed.

        The time may be too early, because timers are restarted with nearly every packet: a poll at that time does
        nothing, and the next deadline is later.
        """

    def events(self) -> list[Any]:
        """Return the events since the last call, in order."""


class EndpointDriver(Protocol):
    """A driver runs the engines below an API of endpoints, on an emulated network or on real sockets.

    It passes packets between its nodes, or between one node and the network, runs the timers of the engines, and hands
    each node the events of its engine (`api.node.LocalNode.tell`). All endpoints of a driver have the same time.
    """

    @property
    def now(self) -> int:
        """Return the time in picoseconds."""

    @property
    def closed(self) -> bool:
        """Return whether the driver was closed: it takes no more work."""

    @property
    def idle(self) -> bool | None:
        """Return whether no packet and no timer is left that could cause an event; None: unknown, as on sockets."""

    def submit(self, node: str, work: Any) -> None:
        """Pass work to the engine of a node, and send what the engine has to send."""

    def call_soon(self, action: Callable[[], None]) -> None:
        """Call `action` one time, after the events that are due now were reported and before time advances."""

    def wake(self) -> None:
        """Let `wait` check its condition at once."""

    def wait(self, condition: Callable[[], bool], timeout: int | None = None, burst: int = ...) -> bool:
        """Let time pass until `condition()` is true; return whether it is.

        `timeout`: the longest wait in picoseconds; None: until the driver is `idle`, or for ever if `idle` is None.
        `burst`: the number of events between two checks of the condition; `wake` causes further checks.
        """

    def close(self, drain: bool = True) -> None:
        """End the run; if `drain`, let the packets under way arrive first."""
