"""What an audit remembers of a PDC: two directions of requests, each with its PSNs, and what was said of them."""

from collections.abc import Container
from enum import Enum, auto
from typing import Any, NamedTuple, Protocol

from uetproto.audit.finding import Flow
from uetproto.audit.reader.address import ends
from uetproto.audit.reader.observed import Head, ObservedPacket
from uetproto.wire.serial import diff32

M32 = 0xFFFFFFFF
FAR = 0x10000
"""PSNs of one PDC that are open at a time lie closer: no window is wider than 32,640 (UE 1.0.1 §3.5.8.2)."""
NEVER = -1
"""In place of a PDCID: matches none."""
RECORDS = 1_000_000
"""Sights kept of all directions together,"""
MOST, FEWEST = 4_096, 128
"""and the bounds of one direction's share."""
AGAIN = "PSNs of a PDC come again in the next: needs --complete and --ordered"
"""Why a contradiction may be none: it is of two instances that nothing seen tells apart."""
HOLES = 4_096
"""PSNs not seen, refused or to be cleared that are remembered of a direction."""
TIMES = 64
"""Copies of a PSN whose times are remembered."""

Hosts = tuple[int, int]
"""Two addresses, the lower first."""


class PdsEvent(Enum):
    """What happens on PDCs; the state is the `PdcDirection` of the requests it is about, if nothing else is said."""

    FIRST = auto()
    """A PSN seen for the first time, of a request or of a control packet that has one."""
    AGAIN = auto()
    """Another copy; `was` is the first sight."""
    TRIMMED = auto()
    """A request that arrived without its payload."""
    OPEN = auto()
    """A PDC was met that is not known."""
    RENUMBERED = auto()
    """A SYN packet that has a counterpart in the instance before a new Start_PSN: `was`."""
    SYN = auto()
    """A request with syn = 1."""
    REUSED = auto()
    """A SYN packet opened another instance on PDCIDs known; `before` is the old one."""
    MODE = auto()
    """ROD and RUD met on one PDC."""
    SPDCID_ZERO = auto()
    """The sender of a request has no PDCID."""
    DPDCID = auto()
    """A copy that names another PDCID of its receiver; `was` is the first sight."""
    TWO_TARGETS = auto()
    """An ACK from another PDCID, of a PSN that was sent to the one known."""
    LATE_SYN = auto()
    """A first transmission with syn = 1 behind one without; `was` is the other packet."""
    NEW_AFTER_CLOSE = auto()
    """A new PSN behind that of CLOSE_CMD."""

    CLEAR_NOT_BELOW = auto()
    """A CLEAR_PSN that is not below the PSN of its packet."""
    CLEAR_FELL = auto()
    """A CLEAR_PSN that contradicts the order of PSNs; `was` is the other packet."""
    CLEAR_AHEAD = auto()
    """A CLEAR_PSN of which no ACK was seen; only of complete captures."""
    WINDOW = auto()
    """More PSNs behind CLEAR_PSN than the receiver is known to take."""

    ACK = auto()
    """An ACK; the direction is the one of the requests acknowledged."""
    ACKED = auto()
    """The first ACK with the PSN of a request seen: `was`."""
    ACK_EARLY = auto()
    """It acknowledges what lies before Start_PSN."""
    ACK_UNSENT = auto()
    """It acknowledges a PSN that was not seen."""
    ACK_RETX = auto()
    """Its retx differs from that of the only copies seen: `was`."""
    CACK_BEHIND_CLEAR = auto()
    """Its CACK_PSN is below the CLEAR_PSN that its request brought: `was`."""
    CACK_HOLE = auto()
    """Its CACK_PSN covers a PSN not seen: `subject`; only of complete captures."""
    CACK_UNCLEARED = auto()
    """Its CACK_PSN covers a guaranteed response that nothing seen has cleared: `subject`, `number_of`."""
    CACK_FELL = auto()
    """Its CACK_PSN is below one seen before."""
    SACK = auto()
    """An ACK with a bitmap."""
    SACK_UNSENT = auto()
    """Its bitmap names a PSN that was not seen: `subject`."""
    SACK_ZERO = auto()
    """Its bitmap denies a PSN that its CACK_PSN covers: `subject`."""
    MPR_ZERO = auto()
    """It advertises no window."""
    ASKS = auto()
    """An ACK that asks for CLEAR or CLOSE."""
    CLOSED = auto()
    """The ACK of CLOSE_CMD."""

    NACK = auto()
    """A NACK; the direction is the one of the packet refused."""
    CONTROL = auto()
    """A control packet; the direction is its sender's."""
    CLOSING = auto()
    """The first sight of CLOSE_CMD."""


class PsnRecord:
    """A PSN that was seen."""

    __slots__ = ("acked", "clear", "content", "head", "number", "time_ns")

    def __init__(self, number: int, time_ns: int, content: int | None, clear: int | None, head: Head) -> None:
        self.number = number
        self.time_ns = time_ns
        self.content = content
        self.clear = clear
        """Its CLEAR_PSN; control packets have none."""
        self.head = head
        self.acked = False
        """An ACK with its PSN was seen."""


class AuditedPdc:
    """One instance of a PDC."""

    __slots__ = ("close_number", "close_psn", "closed", "initiator", "instance", "last_ns", "over", "rod", "swept")

    def __init__(self, instance: int, now: int) -> None:
        self.instance = instance
        """Counts the uses of the PDCIDs from 1."""
        self.last_ns = now
        self.rod: bool | None = None
        self.initiator: PdcDirection | None = None
        """The direction of its requests; None: not seen."""
        self.close_psn: int | None = None
        self.close_number = -1
        self.closed = False
        self.swept = False
        self.over = False
        """Its PDCIDs are those of another instance."""


class PdcConversation(NamedTuple):
    """`Subject` of what is found on PDCs: later packets may show that PSNs come again between their hosts."""

    hosts: Hosts
    again: Container[Hosts]

    @property
    def doubt(self) -> str | None:
        return AGAIN if self.hosts in self.again else None


class PdcDirection:
    """The requests that one end sends, and what the other end says of them."""

    __slots__ = (
        "after", "asked", "before", "cack", "clear", "cleared", "copies", "demanded", "fast", "floor", "gap", "held",
        "holes", "id", "kind", "lowest", "nacked", "next", "number_of", "other", "pdc", "plain", "range", "records",
        "sender", "ses", "start", "subject", "synned", "trimmed", "una", "was",
    )  # fmt: skip

    other: "PdcDirection"

    def __init__(self, pdc: AuditedPdc, sender: int, pdcid: int) -> None:
        self.pdc = pdc
        self.sender = sender
        self.id = pdcid
        """PDCID of its sender; 0: not known."""
        self.before: PdcDirection | None = None
        """The same direction of the instance before, for packets that are late."""
        self.after: PdcDirection | None = None
        """The same direction of the instance that came next."""
        self.ses: Any = None
        """What the tracker of messages keeps here."""
        self.start: int | None = None
        """Start_PSN, where a SYN packet was seen."""
        self.fast = NEVER
        """PDCID of the receiver, once nothing is to be learnt from the next request."""
        self.kind: Any = None
        """Class of headers that `fast` goes with."""
        self.next = 0
        """The PSN behind the newest."""
        self.lowest: int | None = None
        """The oldest PSN seen; None: no request was seen."""
        self.clear: int | None = None
        """CLEAR_PSN of the newest first transmission."""
        self.cleared: int | None = None
        """The newest CLEAR_PSN that any packet brought."""
        self.range = 1024
        """The widest window that the receiver is known to offer (UE 1.0.1 §3.5.12.6)."""
        self.records: dict[int, PsnRecord] = {}
        self.floor: int | None = None
        """What lies below was forgotten."""
        self.copies: dict[int, list[int]] = {}
        """By PSN: times at which it was seen again."""
        self.asked: set[int] = set()
        """PSNs that an ACK_REQ asked about: an ACK may answer that."""
        self.holes: set[int] = set()
        """PSNs between those seen, where the capture is complete; and those that were seen trimmed."""
        self.trimmed: set[int] = set()
        """Those of them that were seen trimmed."""
        self.plain: int | None = None
        """The oldest first transmission with syn = 0."""
        self.synned: int | None = None
        """The newest with syn = 1."""
        self.cack: int | None = None
        """The newest CACK_PSN."""
        self.una: int | None = None
        """The oldest PSN of which no ACK was seen; only where the capture is complete."""
        self.held: dict[int, int] = {}
        """PSNs with a guaranteed response that was asked to be cleared, and the number of the ACK."""
        self.nacked: dict[int, int] = {}
        """PSNs refused, and when."""
        self.demanded: int | None = None
        """Start_PSN that a NACK asked for."""
        self.gap = False
        """CLOSE_CMD may be among what was not seen: then a PSN that comes again may be of another instance."""
        self.was: PsnRecord | None = None
        """What an event is about beside the packet: a sight of another, a PSN, the number of a packet."""
        self.subject = 0
        self.number_of = -1

    @property
    def mode(self) -> str | None:
        return None if self.pdc.rod is None else "ROD" if self.pdc.rod else "RUD"

    @property
    def peer(self) -> int:
        """PDCID of the receiver; 0: not known."""
        return self.other.id

    @property
    def hosts(self) -> Hosts:
        one, two = self.sender, self.other.sender
        return (one, two) if one < two else (two, one)

    @property
    def number(self) -> int:
        return self.pdc.instance

    @property
    def last_ns(self) -> int:
        return self.pdc.last_ns

    @property
    def is_forward(self) -> bool:
        """Known to be that of the initiator."""
        return self.pdc.initiator is self

    @property
    def is_return(self) -> bool:
        """Known to be that of the target."""
        return self.pdc.initiator is self.other

    def flow(self) -> Flow:
        return ends(self.sender, self.other.sender) | {"spdcid": self.id, "dpdcid": self.other.id}

    def is_near(self, psn: int) -> bool:
        """Whether `psn` can be one of this instance, as far as PSNs tell."""
        if self.lowest is not None or self.start is not None:
            return -FAR < diff32(psn, self.next) < FAR
        return self.cack is None or -FAR < diff32(psn, self.cack) < FAR

    def unseen(self, psn: int) -> bool:
        """Whether no packet with this PSN was seen, though others were, and it was not forgotten."""
        return diff32(psn, self.next) >= 0 or (psn in self.holes and psn not in self.trimmed)

    def has_gap(self, psn: int) -> bool:
        """Whether a PSN above `psn` was not seen: it may have been that of CLOSE_CMD."""
        above = diff32(self.next, psn) - 1
        if above >= len(self.records):
            return True
        return any((psn + 1 + step) & M32 not in self.records for step in range(above))

    def note_copy(self, psn: int, time_ns: int) -> None:
        times = self.copies.setdefault(psn, [])
        if len(times) < TIMES:
            times.append(time_ns)

    def skip(self, psn: int, complete: bool) -> None:
        """Go on to `psn`: what lies between was not seen, which means something where the capture is complete."""
        ahead = diff32(psn, self.next)
        if complete and ahead <= HOLES:
            self.holes.update((self.next + step) & M32 for step in range(ahead))
        self.next = psn
        if len(self.holes) > 2 * HOLES:
            self.holes = {hole for hole in self.holes if diff32(psn, hole) <= HOLES}
            self.trimmed &= self.holes

    def acknowledged(self) -> int:
        """The oldest PSN of which no ACK was seen: what lies below may be cleared."""
        una = self.una
        if una is None:
            una = self.next if self.lowest is None else self.lowest
        if self.cack is not None and diff32(self.cack, una) >= 0:
            una = (self.cack + 1) & M32
        records = self.records
        while (record := records.get(una)) is not None and record.acked:
            una = (una + 1) & M32
        self.una = una
        return una

    def uncleared(self, cack: int) -> int | None:
        """The oldest guaranteed PSN up to `cack` that nothing seen has cleared; forgets those that are."""
        for cleared in (self.clear, self.cleared):
            if cleared is not None:
                self.held = {psn: number for psn, number in self.held.items() if diff32(psn, cleared) > 0}
        held = [behind for psn in self.held if (behind := diff32(psn, cack)) <= 0]
        return (cack + min(held)) & M32 if held else None

    def shorten(self, most: int) -> None:
        """Forget the oldest sights."""
        records = self.records
        for psn in list(records)[: len(records) - most]:
            del records[psn]
            self.copies.pop(psn, None)
            if self.floor is None or diff32(psn, self.floor) >= 0:
                self.floor = (psn + 1) & M32
        floor = self.floor
        if floor is not None:
            self.holes = {psn for psn in self.holes if diff32(psn, floor) > 0}
            self.trimmed &= self.holes
            self.asked = {psn for psn in self.asked if diff32(psn, floor) > 0}
            self.nacked = {psn: at for psn, at in self.nacked.items() if diff32(psn, floor) > 0}
            self.held = {psn: at for psn, at in self.held.items() if diff32(psn, floor) > 0}


class MessageTracker(Protocol):
    """The tracker of messages, which is told what the packets of a PDC carry."""

    def open(self, direction: PdcDirection) -> Any: ...
    def request(self, direction: PdcDirection, seen: ObservedPacket, first: bool) -> None: ...
    def response(self, direction: PdcDirection, seen: ObservedPacket, psn: int) -> None: ...
    def data(self, direction: PdcDirection, seen: ObservedPacket, first: bool) -> None: ...
    def close(self, direction: PdcDirection) -> None: ...


def reaches(known: int | None, psn: int) -> bool:
    """Whether a PSN that is known, such as a CLEAR_PSN, is this one or newer."""
    return known is not None and diff32(known, psn) >= 0
