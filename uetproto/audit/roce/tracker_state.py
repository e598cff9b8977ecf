"""The state of queue pairs has the requests that one queue pair sends to another, and the answers to them."""

from dataclasses import dataclass
from enum import auto
from itertools import islice
from typing import Any, NamedTuple

from uetproto.audit.finding import Flow
from uetproto.audit.judge import Tell
from uetproto.audit.reader.address import address_text, ends
from uetproto.audit.reader.observed import ObservedPacket
from uetproto.audit.rule import Event
from uetproto.wire.headers.roce import OPERATIONS, PMTUS, Load, Operation, Transport

M24 = 0xFFFFFF
HALF = 0x800000
FAR = 0x10000
"""Upper limit of the distance between two PSNs that are open on one connection, unless both belong to one READ."""
MOST = 4_096
"""Greatest number of PSNs of one sender that are kept."""
RECORDS = 1_000_000
"""Greatest number of PSNs of all senders together that are kept."""
SILENCE = 50_000
"""Least time in nanoseconds for which two queue pairs send nothing when they are connected again: in this time both go
through several states, and parameters are exchanged outside of the connection."""
KEY = 0x7FFF
"""Mask of the bits of a P_Key that must be equal; the other bit marks full members."""
_READS = 256
"""READs that are searched for a PSN; the usual limit of open READs is 16."""
UNKNOWN = -(1 << 60)
"""Value in place of a sum of bytes that is not known."""


def diff24(a: int, b: int) -> int:
    """Return a - b as a signed number of 24 bits; positive when `a` is newer."""
    return ((a - b + HALF) & M24) - HALF


# Operations -----------------------------------------------------------------------------------------------------------

IDLE, IN_SEND, IN_WRITE = range(3)
"""Name the kind of message that a sender has begun and not ended (roce.md §8)."""


def _message(operation: Operation) -> int:
    return IN_SEND if operation.name.startswith("SEND") else IN_WRITE if "WRITE" in operation.name else IDLE


def _begins(operation: Operation) -> bool:
    return not any(part in operation.name for part in ("MIDDLE", "LAST"))


def _ends(operation: Operation) -> bool:
    return not any(part in operation.name for part in ("FIRST", "MIDDLE"))


_BY_NUMBER = [Operation(number) if number in set(Operation) else None for number in range(32)]
BEFORE = [None if each is None else IDLE if _begins(each) else _message(each) for each in _BY_NUMBER]
"""For each operation, the state of the sender before the packet: `IDLE`, `IN_SEND` or `IN_WRITE`."""
AFTER = [IDLE if each is None or _ends(each) else _message(each) for each in _BY_NUMBER]
"""For each operation, the state of the sender after the packet."""
FULL = [each is not None and OPERATIONS[each].load is Load.FULL for each in _BY_NUMBER]
READ_RESPONSES = range(Operation.RDMA_READ_RESPONSE_FIRST, Operation.RDMA_READ_RESPONSE_ONLY + 1)
ATOMICS = frozenset({Operation.COMPARE_SWAP, Operation.FETCH_ADD})
WRITES_END = frozenset({Operation.RDMA_WRITE_LAST, Operation.RDMA_WRITE_LAST_WITH_IMMEDIATE})
NOTED = frozenset({Operation.RDMA_WRITE_FIRST, Operation.RDMA_READ_REQUEST, *WRITES_END, *ATOMICS})
"""Operations of requests for which the tracker stores more than a `RequestRecord`."""


class RoceEvent(Event):
    """This enumeration has the events of queue pairs. The state is the `QpStream` of the sender, if nothing else is
    said."""

    PACKET = auto()
    """A packet of RC, UC or UD came; the event is only counted."""
    KEY = auto()
    """A P_Key differs from `expected_key`, which an earlier packet has."""
    SIZE = auto()
    """A length contradicts the path MTU that another packet shows."""
    REQUEST = auto()
    """A request came with a PSN that was not seen before; the event is only counted."""
    MISORDERED = auto()
    """The operations of a request and of `was`, its neighbour in PSN order, cannot follow each other."""
    AGAIN = auto()
    """A request came with a PSN that was seen before; `was` is the request seen then."""
    ANEW = auto()
    """Another connection begins with this request; `REQUEST` follows. Both directions forget the old connection."""
    IN_READ = auto()
    """A request has a PSN that belongs to a READ, `read`."""
    JUMPED = auto()
    """A request has a PSN far from the next one of its connection; only if nothing is missing or out of order."""
    ELSEWHERE = auto()
    """A packet that is of this queue pair goes to another one; only if nothing is missing or out of order."""
    SKIPPED = auto()
    """A request skipped a PSN that did not come later either; state: `Contradicted`."""
    LATE = auto()
    """A request came with a PSN that was not seen before, behind a later one; state: `Contradicted`."""
    ATOMIC = auto()
    """An atomic request came."""
    DATAGRAM = auto()
    """A datagram came; `was` is an earlier one with the same PSN."""
    RESPONSE = auto()
    """An answer came to a request whose sender is known; the event is only counted."""
    UNSENT = auto()
    """An answer names a PSN beyond all requests."""
    STRANGE = auto()
    """An answer has a kind that does not fit its request; state: `Contradicted`."""
    ACK_ALONE = auto()
    """A READ or an atomic request was answered with data, or with an ACK alone; state: `Contradicted`."""
    READ_BEGINS = auto()
    """The answer to the first PSN of a READ came."""
    ATOMIC_ANSWER = auto()
    """An answer to an atomic request came; `original` is the number and value of an earlier answer."""
    MSN = auto()
    """An ACK came whose MSN can be compared with that of an earlier ACK, `acked`; it should be `expected_msn`."""
    NAK = auto()
    """A NAK "PSN sequence error" came; `naked` is an earlier NAK of this PSN, and the PSN was not sent again since."""
    UNHEEDED = auto()
    """The PSN of a NAK "PSN sequence error" did not come again."""
    REFUSED = auto()
    """A NAK came that ends a connection."""
    ALIVE = auto()
    """An answer to a refused PSN, or to a later one, followed `refused`, the NAK that ends the connection."""
    CNP = auto()
    """A congestion notification came; `marked` is a packet with CE in the other direction."""


class RequestRecord(NamedTuple):
    """A record has the fields of the first copy of a request."""

    number: int
    operation: int
    content: int | None
    size: int
    done: int
    """Number of messages that were complete after this request."""
    run: int
    """Number of the run to which this request belongs: within one run no request is missing."""


@dataclass(slots=True)
class PsnGap:
    """A gap consists of the PSNs that a request has skipped."""

    start: int
    count: int
    missing: int
    """Number of PSNs that did not come."""
    tell: Tell
    state: Any
    seen: ObservedPacket

    def has(self, psn: int) -> bool:
        return (psn - self.start) & M24 < self.count


class AuditedRead:
    """A READ request uses as many PSNs as its answer has packets."""

    __slots__ = ("answered", "dmalen", "is_first", "number", "pmtu", "r_key", "start", "told", "va")

    def __init__(self, seen: ObservedPacket, is_first: bool) -> None:
        reth = seen.more[0]
        self.number: int = seen.number
        self.start: int = seen.head.psn
        self.va: int = reth.va
        self.r_key: int = reth.r_key
        self.dmalen: int = reth.dmalen
        self.pmtu = PMTUS[-1] if self.dmalen <= PMTUS[0] else 0
        """Path MTU; 0: not known, though the length depends on it."""
        self.is_first = is_first
        """Whether the request cannot be the rest of a READ that was not seen: another message has the PSN before."""
        self.answered = False
        """Whether data of it came."""
        self.told = False
        """Whether a contradiction of this READ was reported; only the first one is."""

    def rest(self, psn: int) -> tuple[int, int, int]:
        """Return `va`, `r_key` and `dmalen` of a request for the data from this PSN on."""
        moved = ((psn - self.start) & M24) * self.pmtu
        return self.va + moved, self.r_key, self.dmalen - moved

    @property
    def span(self) -> int:
        """Return the number of PSNs of the READ; 0: not known."""
        return max(1, -(-self.dmalen // self.pmtu)) if self.pmtu else 0

    def has(self, psn: int) -> bool:
        return (psn - self.start) & M24 < (self.span or 1)


class QpStream:
    """A stream has the packets that one queue pair sends to another: requests, and answers to requests of the other
    queue pair."""

    __slots__ = (
        "_dst", "_src", "_transport", "acked", "acked_before", "after_suspect", "ahead", "answered", "atomics",
        "awaited", "begun", "dead", "done", "doubts", "dropped", "entropy", "expected_key", "expected_msn", "first",
        "gaps", "inside", "key_number", "last_ns", "last_request", "left", "longest", "marked", "naked", "newest",
        "next", "original", "other", "other_key", "p_key", "pause", "pause_before", "pmtu", "qp", "read", "reading",
        "reads", "records", "refused", "repeated", "resumed", "run", "size_number", "stated", "suspect", "unsent",
        "waiting", "was", "written",
    )  # fmt: skip

    def __init__(self, seen: ObservedPacket, transport: int, qp: int) -> None:
        self._src, self._dst, self._transport = seen.src, seen.dst, transport
        self.qp = qp
        self.last_ns = seen.time_ns
        self.entropy = seen.entropy
        self.marked: int | None = None

        self.p_key: int = seen.head.p_key & KEY
        self.other_key: int | None = None
        self.key_number = seen.number
        self.expected_key = self.p_key, seen.number
        self.pmtu = 0
        """Path MTU; 0: not known."""
        self.longest = 0
        """Path MTU, or the longest payload seen while it is not known."""
        self.size_number = seen.number

        self.records: dict[int, RequestRecord] = {}
        self.begun: int | None = None
        """PSN of the first request."""
        self.dropped: int | None = None
        """Newest PSN whose record was dropped."""
        self.repeated = -1
        """Number of the last request that did not have a new PSN."""
        self.gaps: list[PsnGap] = []
        self.reads: dict[int, AuditedRead] = {}
        self.stated: dict[int, int] = {}
        """Maps the PSN of the first packet of a WRITE to its `dmalen`."""
        self.newest: int | None = None
        self.next: int | None = None
        """PSN after the newest; None: not known."""
        self.inside: int | None = None
        """Kind of message that the next packet continues; None: not known."""
        self.run = 0
        self.done = 0
        self.first: int | None = None
        """PSN where the present WRITE began; None: not seen."""
        self.written = UNKNOWN
        self.dead = False
        """Whether the responder ended the connection; the next connection may begin with any PSN."""
        self.suspect: ObservedPacket | None = None
        """Request that contradicts an earlier request, unless a new connection begins with it."""
        self.after_suspect: int | None = None
        self.left: tuple[int, ObservedPacket] | None = None
        """Next PSN of the connection before, and the request that began this one; None: no PSN jumped."""
        self.awaited: int | None = None
        """PSN of a NAK whose code is PSN sequence error."""
        self.last_request = 0
        self.answered: int | None = None
        """Newest PSN that was acknowledged."""

        self.pause = -1
        """Number of the packet after the last silence in which the queue pairs may have been connected anew."""
        self.pause_before: int | None = None
        """Earlier value of `pause` until a request is sent; None: a request was sent since."""
        self.resumed = -1
        """Number of this sender's first packet after the silence of `pause`."""

        self.other: QpStream | None = None
        """Opposite direction; None: not known."""
        self.waiting: list[ObservedPacket] = []
        """Answers until `other` is known."""
        self.unsent: list[ObservedPacket] = []
        self.ahead: list[tuple[Tell, Any, ObservedPacket]] = []
        """Answers whose PSN is a little beyond all requests, each with its event and its state."""
        self.doubts: list[tuple[Tell, Any, ObservedPacket]] = []
        """Findings about answers, which are withdrawn if another connection begins."""
        self.reading: AuditedRead | None = None
        self.atomics: dict[int, tuple[int, int]] = {}
        """Maps a PSN to the packet number of the answer and to the value in the answer."""
        self.acked: tuple[int, int, RequestRecord] | None = None
        """Number, MSN and request of the latest ACK."""
        self.acked_before: tuple[int, int, RequestRecord] | None = None
        """ACK before the latest ACK, if their MSNs contradict each other."""
        self.naked: tuple[int, ObservedPacket] | None = None
        self.refused: tuple[int, int] | None = None
        """PSN and number of a NAK that ends the connection."""

        self.was: RequestRecord | None = None
        """Holds, like the next three attributes, what an event refers to besides the packet."""
        self.read: AuditedRead | None = None
        self.original: tuple[int, int] | None = None
        self.expected_msn = 0

    @property
    def earlier(self) -> RequestRecord:
        """Return `was`, which must not be None, at an event that has an earlier request."""
        assert self.was is not None
        return self.was

    def flow(self) -> Flow:
        """Return transport, addresses and the destination's queue pair; for UD, only the sender and its queue pair."""
        flow: dict[str, Any] = {"transport": Transport(self._transport).name}
        if self._transport == Transport.UD:
            return flow | {"src": address_text(self._src), "srcqp": self.qp}
        return flow | ends(self._src, self._dst) | {"destqp": self.qp}

    @property
    def hosts(self) -> tuple[int, int]:
        return self._src, self._dst

    @property
    def is_reliable(self) -> bool:
        return self._transport == Transport.RC

    def read_of(self, psn: int) -> AuditedRead | None:
        """Return the READ that uses a PSN, among the newest; None: there is none."""
        for read in islice(reversed(self.reads.values()), _READS):
            if read.has(psn):
                return read
        return None

    def shorten(self, most: int = MOST // 2) -> None:
        """Drop the oldest records, down to `most` of each kind."""
        for kept in (self.records, self.reads, self.stated):
            if len(kept) > most:
                for psn in list(kept)[: len(kept) - most]:
                    del kept[psn]
                    if kept is self.records and (self.dropped is None or diff24(psn, self.dropped) > 0):
                        self.dropped = psn

    # Whether it is still the same connection --------------------------------------------------------------------------

    def is_sure_of(self, number: int) -> bool:
        """Return whether an earlier packet certainly belongs to the present connection."""
        return number >= self.pause

    def may_be_new(self, number: int) -> None:
        """Note a packet after a silence of both queue pairs; the packet may begin another connection."""
        for each in self._both:
            if each.pause_before is None:
                each.pause_before = each.pause
            each.pause = number

    def goes_on(self) -> None:
        """Note that a sender continues its PSNs, so that the connection is still the earlier one."""
        for each in self._both:
            if each.pause_before is not None:
                each.pause, each.pause_before = each.pause_before, None

    def repeats_from(self, psn: int) -> bool:
        """Return whether `psn` is the oldest PSN without an ACK, from which a sender repeats after a time-out."""
        return self.answered is not None and psn == (self.answered + 1) & M24

    def begins_elsewhere(self) -> None:
        """Note that a sender does not continue its PSNs, so that the connection may be another one."""
        for each in self._both:
            if each.pause_before is not None:
                each.pause_before = each.inside = each.first = each.answered = None
                each.run += 1
                each.pmtu = each.longest = 0

    @property
    def _both(self) -> tuple["QpStream", ...]:
        return (self,) if self.other is None else (self, self.other)

    def asked(self, psn: int) -> bool:
        """Return whether the PSN is one that an answer to the newest request can have."""
        if self.newest is None:
            return False
        read = self.read_of(self.newest)
        return psn == self.newest if read is None else read.has(psn)

    def restart(self) -> None:
        """Begin another connection: drop the state of both directions."""
        self._forget()
        if self.other is not None:
            self.other._forget()

    def _forget(self) -> None:
        for kept in (self.records, self.reads, self.stated, self.atomics):
            kept.clear()
        for tell, state, seen in self.doubts:
            if not self.is_sure_of(seen.number):  # a silence before the packet: it is of the other connection
                tell(state, seen)
        self.doubts.clear()
        for tell, state, seen in [*self.ahead, *((gap.tell, gap.state, gap.seen) for gap in self.gaps)]:
            tell(state, seen)
        self.ahead.clear()
        self.gaps.clear()
        self.begun = self.dropped = None
        self.newest = self.next = self.inside = self.first = self.awaited = self.suspect = None
        self.reading = self.acked = self.naked = self.refused = self.answered = None
        self.left = None
        self.run += 1
        self.pmtu = self.longest = 0
        self.dead = False


def is_silent(stream: QpStream, seen: ObservedPacket) -> bool:
    """Return whether a stream was silent for `SILENCE` before a packet; also True if the time stamps are out of
    order."""
    return abs(seen.time_ns - stream.last_ns) >= SILENCE
