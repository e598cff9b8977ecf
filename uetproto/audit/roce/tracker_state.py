# SPDX-License-Identifier: GPL-2.0-only
"""This module holds the state of queue pairs: the requests that a queue pair sends to its peer, and the answers that it
sends to requests of the peer."""

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
"""Limit of the distance between the PSNs of two outstanding requests of one connection, unless both PSNs belong to one
READ."""
MOST = 4_096
"""Greatest number of requests of one sender that are kept, each with its PSN."""
RECORDS = 1_000_000
"""Greatest number of requests of all senders together that are kept."""
SILENCE = 50_000
"""Least time in nanoseconds for which two queue pairs send nothing while they are connected anew. In this time both
change their state several times, and exchange parameters outside of the connection."""
KEY = 0x7FFF
"""Mask of the bits that must be equal in two P_Keys. The top bit, which marks full members, is not among them."""
_READS = 256
"""READs that are searched for a PSN; the usual limit of open READs is 16."""
UNKNOWN = -(1 << 60)
"""Value in place of a number of bytes that is not known."""


def diff24(a: int, b: int) -> int:
    """Return a - b as a signed number of 24 bits. It is positive if `a` is newer."""
    return ((a - b + HALF) & M24) - HALF


# Operations -----------------------------------------------------------------------------------------------------------

IDLE, IN_SEND, IN_WRITE = range(3)
"""States of a sender: it is between two messages, within a SEND, or within an RDMA WRITE (roce.md §8)."""


def _message(operation: Operation) -> int:
    return IN_SEND if operation.name.startswith("SEND") else IN_WRITE if "WRITE" in operation.name else IDLE


def _begins(operation: Operation) -> bool:
    return not any(part in operation.name for part in ("MIDDLE", "LAST"))


def _ends(operation: Operation) -> bool:
    return not any(part in operation.name for part in ("FIRST", "MIDDLE"))


_BY_NUMBER = [Operation(number) if number in set(Operation) else None for number in range(32)]
BEFORE = [None if each is None else IDLE if _begins(each) else _message(each) for each in _BY_NUMBER]
"""State of the sender before a packet, by the operation of the packet: `IDLE`, `IN_SEND` or `IN_WRITE`. It is None for
an operation that is not defined."""
AFTER = [IDLE if each is None or _ends(each) else _message(each) for each in _BY_NUMBER]
"""State of the sender after a packet, by the operation of the packet."""
FULL = [each is not None and OPERATIONS[each].load is Load.FULL for each in _BY_NUMBER]
READ_RESPONSES = range(Operation.RDMA_READ_RESPONSE_FIRST, Operation.RDMA_READ_RESPONSE_ONLY + 1)
ATOMICS = frozenset({Operation.COMPARE_SWAP, Operation.FETCH_ADD})
WRITES_END = frozenset({Operation.RDMA_WRITE_LAST, Operation.RDMA_WRITE_LAST_WITH_IMMEDIATE})
NOTED = frozenset({Operation.RDMA_WRITE_FIRST, Operation.RDMA_READ_REQUEST, *WRITES_END, *ATOMICS})
"""Operations of requests for which the tracker stores more than a `RequestRecord`."""


class RoceEvent(Event):
    """This enumeration has the events of queue pairs. With an event, a rule gets the `QpStream` of the sender, or a
    `Contradicted` if the tracker itself has judged the event, unless the docstring of the event says otherwise."""

    PACKET = auto()
    """A packet of RC, UC or UD came; the event is only counted."""
    KEY = auto()
    """The P_Key of a packet differs from that of an earlier packet, `expected_key`."""
    SIZE = auto()
    """The payload length of a packet contradicts the path MTU that another packet shows."""
    REQUEST = auto()
    """A request came with a PSN that was not seen before; the event is only counted."""
    MISORDERED = auto()
    """A request and `was`, the request with the PSN before or after it, have operations that cannot follow each
    other."""
    AGAIN = auto()
    """A request came with a PSN that was seen before; `was` is the earlier request."""
    ANEW = auto()
    """Another connection begins with this request; the event `REQUEST` follows. Both directions forget the old
    connection."""
    IN_READ = auto()
    """A request has a PSN that belongs to the answer to a READ, `read`."""
    JUMPED = auto()
    """A request has a PSN far from the next PSN of its connection. It occurs only if the capture is complete and
    ordered."""
    ELSEWHERE = auto()
    """A packet that surely comes from this queue pair goes to another destination queue pair than before. It occurs
    only if the capture is complete and ordered."""
    SKIPPED = auto()
    """A request skipped PSNs, and not all of them came later. The rule gets a `Contradicted`."""
    LATE = auto()
    """A request came with a PSN that was not seen before, after a request with a higher PSN. The rule gets a
    `Contradicted`."""
    ATOMIC = auto()
    """An atomic request came."""
    DATAGRAM = auto()
    """A datagram came; `was` is an earlier datagram of the sender with the same PSN, or None."""
    RESPONSE = auto()
    """An answer came, and the queue pair whose request it answers is known. The event is only counted."""
    UNSENT = auto()
    """An answer names a PSN beyond those of all requests."""
    STRANGE = auto()
    """The type of an answer does not fit its request, such as read data for a SEND. The rule gets a `Contradicted`."""
    ACK_ALONE = auto()
    """A READ or an atomic request was answered. If the answer has data, nothing is wrong; an ACK alone is wrong. The
    rule gets a `Contradicted`, and its `verdict` is None if the answer has data."""
    READ_BEGINS = auto()
    """The answer to the first PSN of a READ came."""
    ATOMIC_ANSWER = auto()
    """An answer to an atomic request came; `original` holds the packet number and the value of an earlier answer to the
    request, or is None."""
    MSN = auto()
    """An ACK came. An earlier ACK, `acked`, determines the MSN of this ACK: it should be `expected_msn`."""
    NAK = auto()
    """A NAK "PSN sequence error" came; `naked` is an earlier NAK of the same PSN, or None if the PSN was sent again
    since."""
    UNHEEDED = auto()
    """The request for which a NAK "PSN sequence error" asked did not come again."""
    REFUSED = auto()
    """A NAK came that ends a connection."""
    ALIVE = auto()
    """An answer to a refused PSN, or to a later PSN, came after `refused`, the NAK that ended the connection."""
    CNP = auto()
    """A congestion notification came; `marked` is the number of a packet with CE in the other direction, or None."""


class RequestRecord(NamedTuple):
    """This record holds what is kept of the first copy of a request."""

    number: int
    operation: int
    content: int | None
    size: int
    done: int
    """Number of messages of the sender that were complete after this request."""
    run: int
    """Number that identifies the run of requests to which this request belongs. A run is a sequence of requests without
    a missing one. The number is -1 if the neighbours of the request are not known."""


@dataclass(slots=True)
class PsnGap:
    """This class holds the PSNs that a request has skipped, and the report that is made if they do not come."""

    start: int
    count: int
    missing: int
    """Number of skipped PSNs that have not come yet."""
    tell: Tell
    state: Any
    seen: ObservedPacket

    def has(self, psn: int) -> bool:
        return (psn - self.start) & M24 < self.count


class AuditedRead:
    """This class holds a READ request, which uses as many PSNs as its answer has packets."""

    __slots__ = ("answered", "dmalen", "is_first", "number", "pmtu", "r_key", "start", "told", "va")

    def __init__(self, seen: ObservedPacket, is_first: bool) -> None:
        reth = seen.more[0]
        self.number: int = seen.number
        self.start: int = seen.head.psn
        self.va: int = reth.va
        self.r_key: int = reth.r_key
        self.dmalen: int = reth.dmalen
        self.pmtu = 0
        """Path MTU in bytes, or 0 if it is not known."""
        self.is_first = is_first
        """Whether the request surely does not ask for the rest of a READ that was not seen, because another message has
        the PSN before."""
        self.answered = False
        """Whether data of this READ came."""
        self.told = False
        """Whether a contradiction of this READ was reported. Further contradictions are not reported."""

    def rest(self, psn: int) -> tuple[int, int, int]:
        """Return `va`, `r_key` and `dmalen` of a request for the rest of the data, from PSN `psn` on."""
        moved = ((psn - self.start) & M24) * self.pmtu
        return self.va + moved, self.r_key, self.dmalen - moved

    @property
    def span(self) -> int:
        """Return the number of PSNs of the READ, or 0 if it is not known."""
        if self.dmalen <= PMTUS[0]:
            return 1
        return -(-self.dmalen // self.pmtu) if self.pmtu else 0

    def has(self, psn: int) -> bool:
        return (psn - self.start) & M24 < (self.span or 1)


class QpStream:
    """This class holds the packets that one queue pair sends to another: requests, and answers to requests of the other
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
        """Path MTU in bytes, or 0 if it is not known."""
        self.longest = 0
        """Path MTU, or the longest payload seen while it is not known."""
        self.size_number = seen.number

        self.records: dict[int, RequestRecord] = {}
        self.begun: int | None = None
        """PSN of the first request of the connection, or None."""
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
        """PSN after the newest PSN, or None if it is not known."""
        self.inside: int | None = None
        """State of the sender before its next packet (`IDLE`, `IN_SEND` or `IN_WRITE`), or None if it is not known."""
        self.run = 0
        self.done = 0
        self.first: int | None = None
        """PSN with which the present WRITE began, or None if it was not seen."""
        self.written = UNKNOWN
        self.dead = False
        """Whether the responder ended the connection; the next connection may begin with any PSN."""
        self.suspect: ObservedPacket | None = None
        """Request that contradicts an earlier request, unless a new connection begins with it."""
        self.after_suspect: int | None = None
        self.left: tuple[int, ObservedPacket] | None = None
        """Next PSN of the connection before, and the request that began the present connection. It is None if no PSN
        jumped."""
        self.awaited: int | None = None
        """PSN of a NAK whose code is PSN sequence error."""
        self.last_request = 0
        self.answered: int | None = None
        """Newest PSN that was acknowledged."""

        self.pause = -1
        """Number of the packet after the last silence in which the queue pairs may have been connected anew."""
        self.pause_before: int | None = None
        """Earlier value of `pause`, kept until a request is sent. It is None if a request was sent since the
        silence."""
        self.resumed = -1
        """Number of this sender's first packet after the silence of `pause`."""

        self.other: QpStream | None = None
        """Stream in the opposite direction, or None if it is not known."""
        self.waiting: list[ObservedPacket] = []
        """Answers that came before `other` was known."""
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
        """Return `was`, which must not be None, at an event that refers to an earlier request."""
        assert self.was is not None
        return self.was

    def flow(self) -> Flow:
        """Return the transport, the addresses and the destination's queue pair. For UD, return the transport, the
        sender and the sender's queue pair."""
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
        """Return the READ, among the newest ones, that uses a PSN. It is None if there is no such READ."""
        for read in islice(reversed(self.reads.values()), _READS):
            if read.has(psn):
                return read
        return None

    def shorten(self, most: int = MOST // 2) -> None:
        """Drop the oldest records of requests and READs, so that at most `most` of each remain."""
        for kept in (self.records, self.reads, self.stated):
            if len(kept) > most:
                for psn in list(kept)[: len(kept) - most]:
                    del kept[psn]
                    if kept is self.records and (self.dropped is None or diff24(psn, self.dropped) > 0):
                        self.dropped = psn

    # Whether it is still the same connection --------------------------------------------------------------------------

    def is_sure_of(self, number: int) -> bool:
        """Return whether the packet `number` certainly belongs to the present connection."""
        return number >= self.pause

    def may_be_new(self, number: int) -> None:
        """Note that the packet `number` came after a silence of both queue pairs. This packet may therefore begin
        another connection."""
        for each in self._both:
            if each.pause_before is None:
                each.pause_before = each.pause
            each.pause = number

    def goes_on(self) -> None:
        """Note that a sender continues its PSNs after a silence. The connection is therefore the same as before."""
        for each in self._both:
            if each.pause_before is not None:
                each.pause, each.pause_before = each.pause_before, None

    def repeats_from(self, psn: int) -> bool:
        """Return whether `psn` is the oldest PSN without an ACK, with which a sender starts its retransmission after a
        time-out."""
        return self.answered is not None and psn == (self.answered + 1) & M24

    def begins_elsewhere(self) -> None:
        """Note that a sender does not continue its PSNs after a silence. Another connection may therefore have
        begun."""
        for each in self._both:
            if each.pause_before is not None:
                each.pause_before = each.inside = each.first = each.answered = None
                each.run += 1
                each.pmtu = each.longest = 0

    @property
    def _both(self) -> tuple["QpStream", ...]:
        return (self,) if self.other is None else (self, self.other)

    def asked(self, psn: int) -> bool:
        """Return whether an answer to the newest request can have this PSN."""
        if self.newest is None:
            return False
        read = self.read_of(self.newest)
        return psn == self.newest if read is None else read.has(psn)

    def restart(self) -> None:
        """Drop the state of both directions, because another connection begins."""
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
    """Return whether a stream was silent for at least `SILENCE` before a packet. It is also True if the time stamps go
    back by as much."""
    return abs(seen.time_ns - stream.last_ns) >= SILENCE
