"""What an audit remembers of queue pairs: what one sends to another, request by request."""

from enum import Enum, auto
from itertools import islice
from typing import Any, NamedTuple

from uetproto.audit.finding import Flow
from uetproto.audit.judge import Tell
from uetproto.audit.reader.address import address_text, ends
from uetproto.audit.reader.observed import ObservedPacket
from uetproto.wire.headers.roce import OPERATIONS, PMTUS, Load, Operation, Transport

M24 = 0xFFFFFF
HALF = 0x800000
FAR = 0x10000
"""PSNs of one connection that are open at a time lie closer, but for those of one READ."""
MOST = 4_096
"""PSNs remembered of one sender."""
RECORDS = 1_000_000
"""And of all together, when they are many."""
SILENCE = 50_000
"""Nanoseconds. To connect queue pairs anew their ends go through several states, and tell each other of it by another
way: for at least so long neither of them sends anything."""
KEY = 0x7FFF
"""The bits of a P_Key that must be equal; the other one tells full members."""
_READS = 256
"""READs that are open at a time; the usual limit is 16."""
UNKNOWN = -(1 << 60)
"""In place of a sum of bytes."""


def diff24(a: int, b: int) -> int:
    """a - b as a signed number of 24 bits; positive when `a` is newer."""
    return ((a - b + HALF) & M24) - HALF


# Operations -----------------------------------------------------------------------------------------------------------

IDLE, IN_SEND, IN_WRITE = range(3)
"""What a sender is in the middle of (roce.md §8)."""


def _message(operation: Operation) -> int:
    return IN_SEND if operation.name.startswith("SEND") else IN_WRITE if "WRITE" in operation.name else IDLE


def _begins(operation: Operation) -> bool:
    return not any(part in operation.name for part in ("MIDDLE", "LAST"))


def _ends(operation: Operation) -> bool:
    return not any(part in operation.name for part in ("FIRST", "MIDDLE"))


_BY_NUMBER = [Operation(number) if number in set(Operation) else None for number in range(32)]
BEFORE = [None if each is None else IDLE if _begins(each) else _message(each) for each in _BY_NUMBER]
"""By operation: what the sender is in the middle of before the packet."""
AFTER = [IDLE if each is None or _ends(each) else _message(each) for each in _BY_NUMBER]
"""And behind it."""
FULL = [each is not None and OPERATIONS[each].load is Load.FULL for each in _BY_NUMBER]
READ_RESPONSES = range(Operation.RDMA_READ_RESPONSE_FIRST, Operation.RDMA_READ_RESPONSE_ONLY + 1)
ATOMICS = frozenset({Operation.COMPARE_SWAP, Operation.FETCH_ADD})
WRITES_END = frozenset({Operation.RDMA_WRITE_LAST, Operation.RDMA_WRITE_LAST_WITH_IMMEDIATE})
NOTED = frozenset({Operation.RDMA_WRITE_FIRST, Operation.RDMA_READ_REQUEST, *WRITES_END, *ATOMICS})
"""Requests of which more is kept than their record."""


class RoceEvent(Enum):
    """What happens between queue pairs; the state is the `QpStream` of the sender of the packet."""

    PACKET = auto()
    """A packet of RC, UC or UD; counts."""
    KEY = auto()
    """A P_Key that does not match `expected_key`, which an earlier packet has."""
    SIZE = auto()
    """A length that contradicts the path MTU of other packets; `was` is one of them."""
    REQUEST = auto()
    """A request whose PSN was not seen before; counts."""
    MISORDERED = auto()
    """A request that does not go with its neighbour in PSN order, `was`."""
    AGAIN = auto()
    """A PSN that was seen before, as `was`."""
    ANEW = auto()
    """The first request of another connection, before it is told as such; what was open is over, both ways."""
    IN_READ = auto()
    """A request inside the PSNs of a READ, `read`."""
    SKIPPED = auto()
    """A request behind a PSN that was not seen."""
    ATOMIC = auto()
    """An atomic request."""
    DATAGRAM = auto()
    """A datagram; `was` is another with its PSN."""
    RESPONSE = auto()
    """An answer to a request, whose sender is known; counts."""
    UNSENT = auto()
    """An answer to a PSN far beyond all requests."""
    STRANGE = auto()
    """An answer of another kind than its request; its state: `Contradicted`."""
    READ_BEGINS = auto()
    """The answer to the first PSN of a READ."""
    ATOMIC_ANSWER = auto()
    """An answer to an atomic request; `original` is what was answered before."""
    MSN = auto()
    """An ACK of a packet that was counted; `expected_msn` follows from another ACK, `acked`."""
    NAK = auto()
    """A NAK PSN sequence error; `naked` is one of the same PSN, which was not sent again since."""
    UNHEEDED = auto()
    """A NAK PSN sequence error whose PSN did not come again."""
    REFUSED = auto()
    """A NAK that ends a connection."""
    ALIVE = auto()
    """An answer behind such a NAK, `refused`, to the refused PSN or a later one."""
    CNP = auto()
    """A congestion notification; `marked` is a packet with CE in the other direction."""


class RequestRecord(NamedTuple):
    """A request, as it was first seen."""

    number: int
    operation: int
    content: int | None
    size: int
    done: int
    """Messages that were complete behind it."""
    run: int
    """Of records with the same number, all between were seen."""


class AuditedRead:
    """A READ request: it has as many PSNs as its answer has packets."""

    __slots__ = ("dmalen", "is_first", "number", "pmtu", "r_key", "start", "told", "va")

    def __init__(self, seen: ObservedPacket, is_first: bool) -> None:
        reth = seen.more[0]
        self.number: int = seen.number
        self.start: int = seen.head.psn
        self.va: int = reth.va
        self.r_key: int = reth.r_key
        self.dmalen: int = reth.dmalen
        self.pmtu = PMTUS[-1] if self.dmalen <= PMTUS[0] else 0
        """0: not known, and it matters."""
        self.is_first = is_first
        """It cannot be the rest of a READ that was not seen: the PSN before is another's."""
        self.told = False
        """One contradiction is enough."""

    def rest(self, psn: int) -> tuple[int, int, int]:
        """`va`, `r_key` and `dmalen` of a request for what comes from this PSN on."""
        moved = ((psn - self.start) & M24) * self.pmtu
        return self.va + moved, self.r_key, self.dmalen - moved

    @property
    def span(self) -> int:
        """PSNs; 0: not known."""
        return max(1, -(-self.dmalen // self.pmtu)) if self.pmtu else 0

    def has(self, psn: int) -> bool:
        return (psn - self.start) & M24 < (self.span or 1)


class QpStream:
    """What one queue pair sends to another: requests, and answers to requests of the other."""

    __slots__ = (
        "_dst", "_src", "_transport", "acked", "after_suspect", "answered", "atomics", "awaited", "dead", "done",
        "doubts", "entropy", "expected_key", "expected_msn", "first", "inside", "key_number", "last_ns",
        "last_request", "longest", "marked", "naked", "newest", "next", "original", "other", "other_key", "p_key",
        "pause", "pause_before", "pmtu", "qp", "read", "reading", "reads", "records", "refused", "resumed", "run",
        "size_number", "stated", "suspect", "unsent", "waiting", "was", "written",
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
        """0: not known."""
        self.longest = 0
        """The path MTU, or the most that was seen while it is not known."""
        self.size_number = seen.number

        self.records: dict[int, RequestRecord] = {}
        self.reads: dict[int, AuditedRead] = {}
        self.stated: dict[int, int] = {}
        """By the PSN of a WRITE's first packet: its `dmalen`."""
        self.newest: int | None = None
        self.next: int | None = None
        """The PSN behind the newest. None: not known."""
        self.inside: int | None = None
        """The message that the next packet belongs to. None: not known."""
        self.run = 0
        self.done = 0
        self.first: int | None = None
        """The PSN where the present WRITE began. None: not seen."""
        self.written = UNKNOWN
        self.dead = False
        """The responder refused for good: the next connection may have any PSN."""
        self.suspect: ObservedPacket | None = None
        """It contradicts a packet before, unless a new connection begins with it."""
        self.after_suspect: int | None = None
        self.awaited: int | None = None
        """The PSN of a NAK PSN sequence error."""
        self.last_request = 0
        self.answered: int | None = None
        """The newest PSN that was acknowledged."""

        self.pause = -1
        """The number of the packet behind the last silence in which the queue pairs may have been connected anew."""
        self.pause_before: int | None = None
        """What it was before, while nobody has sent a request since; None: somebody has."""
        self.resumed = -1
        """The number of this sender's first packet behind such a silence."""

        self.other: QpStream | None = None
        """The opposite direction. None: not known."""
        self.waiting: list[ObservedPacket] = []
        """Answers, until `other` is known."""
        self.unsent: list[ObservedPacket] = []
        self.doubts: list[tuple[Tell, Any, ObservedPacket]] = []
        """What is wrong with answers, unless they are the first signs of another connection."""
        self.reading: AuditedRead | None = None
        self.atomics: dict[int, tuple[int, int]] = {}
        """By PSN: the number of the answer, and what it said."""
        self.acked: tuple[int, int, RequestRecord] | None = None
        """Of the latest ACK: number, MSN, and the request."""
        self.naked: tuple[int, ObservedPacket] | None = None
        self.refused: tuple[int, int] | None = None
        """PSN and number of a NAK that ends the connection."""

        self.was: RequestRecord | None = None
        """What an event is about beside the packet; likewise the next three."""
        self.read: AuditedRead | None = None
        self.original: tuple[int, int] | None = None
        self.expected_msn = 0

    def flow(self) -> Flow:
        """For people; `qp` is the one that is sent to, of UD that which sends."""
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
        """The READ that has a PSN, among the newest."""
        for read in islice(reversed(self.reads.values()), _READS):
            if read.has(psn):
                return read
        return None

    def shorten(self, most: int = MOST // 2) -> None:
        """Forget the oldest, beyond so many of each kind."""
        for kept in (self.records, self.reads, self.stated):
            if len(kept) > most:
                for psn in list(kept)[: len(kept) - most]:
                    del kept[psn]

    # Whether it is still the same connection --------------------------------------------------------------------------

    def is_sure_of(self, number: int) -> bool:
        """Whether an earlier packet is certainly of the present connection."""
        return number >= self.pause

    def may_be_new(self, number: int) -> None:
        """Behind a silence of both comes this packet."""
        for each in self._both:
            if each.pause_before is None:
                each.pause_before = each.pause
            each.pause = number

    def goes_on(self) -> None:
        """A sender counts on: the connection is the one of before."""
        for each in self._both:
            if each.pause_before is not None:
                each.pause, each.pause_before = each.pause_before, None

    def repeats_from(self, psn: int) -> bool:
        """Whether this is the oldest PSN that was not acknowledged: a time-out is over."""
        return self.answered is not None and psn == (self.answered + 1) & M24

    def begins_elsewhere(self) -> None:
        """A sender does not: what held before may hold no more."""
        for each in self._both:
            if each.pause_before is not None:
                each.pause_before = each.inside = each.first = each.answered = None
                each.run += 1
                each.pmtu = each.longest = 0

    @property
    def _both(self) -> tuple["QpStream", ...]:
        return (self,) if self.other is None else (self, self.other)

    def asked(self, psn: int) -> bool:
        """Whether the newest request is answered with this PSN."""
        if self.newest is None:
            return False
        read = self.read_of(self.newest)
        return psn == self.newest if read is None else read.has(psn)

    def restart(self) -> None:
        """Another connection: nothing that was said before holds for it, in either direction."""
        self._forget()
        if self.other is not None:
            self.other._forget()

    def _forget(self) -> None:
        for kept in (self.records, self.reads, self.stated, self.atomics):
            kept.clear()
        for tell, state, seen in self.doubts:
            if not self.is_sure_of(seen.number):  # a silence before the other connection is no part of it
                tell(state, seen)
        self.doubts.clear()
        self.newest = self.next = self.inside = self.first = self.awaited = self.suspect = None
        self.reading = self.acked = self.naked = self.refused = self.answered = None
        self.run += 1
        self.pmtu = self.longest = 0
        self.dead = False


def is_silent(stream: QpStream, seen: ObservedPacket) -> bool:
    """Whether it has sent nothing for so long, or its packets are not in the order of time."""
    return abs(seen.time_ns - stream.last_ns) >= SILENCE
