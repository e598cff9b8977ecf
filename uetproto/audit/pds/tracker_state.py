"""The state of a PDC has two directions of requests, each with its PSNs and the answers to them."""

from collections.abc import Container
from dataclasses import dataclass, field
from enum import auto
from typing import Any, NamedTuple

from uetproto.audit.finding import Flow
from uetproto.audit.reader.address import ends
from uetproto.audit.reader.observed import Head, ObservedPacket
from uetproto.audit.rule import Event
from uetproto.wire.serial import diff32

M32 = 0xFFFFFFFF
FAR = 0x10000
"""Upper limit of the distance between two open PSNs of one PDC, as no window is wider than 32,640 (UE 1.0.1
§3.5.8.2)."""
NEVER = -1
"""Value in place of a PDCID; no packet has this PDCID."""
RECORDS = 1_000_000
"""Greatest number of PSN records that all directions together keep."""
MOST, FEWEST = 4_096, 128
"""Bounds of the PSN records that one direction keeps."""
AGAIN = "PSNs of a PDC come again in the next: needs --complete and --ordered"
"""Reason why a contradiction may be only apparent: no packet that was seen distinguishes two instances of a PDC."""
HOLES = 4_096
"""Greatest number of PSNs that a direction keeps because they were not seen, were refused, or have to be cleared."""
TIMES = 64
"""Greatest number of copies of a PSN whose times are kept."""

Hosts = tuple[int, int]
"""Addresses of two hosts, the lower first."""


class PdsEvent(Event):
    """This enumeration has the events of PDCs. The state is the `PdcDirection` of the requests, if nothing else is
    said."""

    FIRST = auto()
    """A PSN was seen for the first time, of a request or of a control packet that has one."""
    ROD_FIRST = auto()
    """The first transmission of a packet of a ROD PDC came; the event is only counted."""
    RETX_FIRST = auto()
    """The first copy of a packet that was seen has retx = 1, though the capture is complete and ordered."""
    LATE = auto()
    """The first transmission of a packet of a ROD PDC came after the first transmission of a later one."""
    AGAIN = auto()
    """Another copy of a packet came; `was` is the record of the first copy."""
    TRIMMED = auto()
    """A request arrived without its payload."""
    OPEN = auto()
    """A PDC was seen for the first time."""
    RENUMBERED = auto()
    """A SYN packet came with a new Start_PSN; `was` is its counterpart in the instance before."""
    SYN = auto()
    """A request with syn = 1 came."""
    REUSED = auto()
    """A SYN packet opened another instance on known PDCIDs; `before` is the old one."""
    STRANGER = auto()
    """A packet belongs to, or answers, a PDC that no SYN packet began; only where the capture is complete and ordered.
    State: `UnknownPdc`."""
    MODE = auto()
    """A PDC carried both ROD and RUD."""
    SPDCID_ZERO = auto()
    """The sender of a request has no PDCID; state: `UnknownPdc`."""
    DPDCID = auto()
    """A packet that surely is of this PDC has a DPDCID that is not the PDCID of the other end.

    `was`: the record of the first copy of the packet or, for an ACK, of the request that it answers; None where the PSN
    alone shows that the packet is of this PDC."""
    SPDCID = auto()
    """A packet that surely is of this PDC has an SPDCID other than before."""
    START = auto()
    """A SYN packet that surely is of this PDC has a Start_PSN other than before."""
    STILL_OPEN = auto()
    """A SYN packet began another PDC on a PDCID, and after it the old PDC still sends. The packet of the event is the
    SYN packet, the direction is that of the old PDC."""
    JUMPED = auto()
    """A PSN is far from all other PSNs of the PDC, which was not closed; only in complete captures."""
    TWO_TARGETS = auto()
    """An ACK came from another PDCID than the one to which its PSN was sent."""
    LATE_SYN = auto()
    """A first transmission with syn = 1 follows a first transmission with syn = 0, whose record is `was`."""
    NEW_AFTER_CLOSE = auto()
    """A new PSN follows the PSN of CLOSE_CMD."""

    CLEAR_NOT_BELOW = auto()
    """A CLEAR_PSN is not below the PSN of its packet."""
    CLEAR_FELL = auto()
    """A CLEAR_PSN contradicts the order of PSNs; `was` is the record of the other packet."""
    CLEAR_AHEAD = auto()
    """A CLEAR_PSN covers a PSN for which no ACK was seen; only in complete captures."""
    WINDOW = auto()
    """More PSNs follow CLEAR_PSN than the receiver is known to take."""

    ACK = auto()
    """An ACK came; the direction is that of the requests that it acknowledges."""
    ACKED = auto()
    """The first ACK came that names the PSN of a request; `was` is the record of the request."""
    ACK_EARLY = auto()
    """An ACK covers PSNs before Start_PSN."""
    ACK_UNSENT = auto()
    """An ACK covers a PSN that was not seen."""
    ACK_RETX = auto()
    """The retx of an ACK differs from the retx of the request, of which only one copy was seen, `was`."""
    CACK_BEHIND_CLEAR = auto()
    """A CACK_PSN is below the CLEAR_PSN of `was`, the request that the ACK answers."""
    CACK_HOLE = auto()
    """A CACK_PSN covers a PSN, `subject`, that was not seen; only in complete captures."""
    CACK_UNCLEARED = auto()
    """A CACK_PSN covers a guaranteed response, `subject` in packet `number_of`, that no packet seen has cleared."""
    CACK_FELL = auto()
    """A CACK_PSN is below an earlier one."""
    SACK = auto()
    """An ACK with a bitmap came."""
    SACK_UNSENT = auto()
    """A bitmap names a PSN, `subject`, that was not seen."""
    SACK_ZERO = auto()
    """A bitmap reports a PSN, `subject`, as not received, though CACK_PSN covers it."""
    MPR_ZERO = auto()
    """An ACK advertises no window."""
    ASKS = auto()
    """An ACK asks for CLEAR or CLOSE."""
    CLOSED = auto()
    """The ACK of CLOSE_CMD came."""

    NACK = auto()
    """A NACK came; the direction is that of the packet that it refuses."""
    CONTROL = auto()
    """A control packet came; the direction is that of its sender."""
    CLOSING = auto()
    """The first copy of CLOSE_CMD came."""


@dataclass(slots=True, eq=False)
class PsnRecord:
    """A record says what was seen of one PSN."""

    number: int
    time_ns: int
    content: int | None
    clear: int | None
    """CLEAR_PSN of the packet; None for a control packet."""
    head: Head
    acked: bool = False
    """Whether an ACK that names this PSN was seen."""


@dataclass(slots=True, eq=False)
class AuditedPdc:
    """One instance of a PDC: the PDCIDs of a closed PDC may be used again, which begins another instance."""

    instance: int
    """Number of this use of the PDCIDs, from 1."""
    last_ns: int
    rod: bool | None = None
    initiator: "PdcDirection | None" = None
    """Direction in which the initiator sends; None: not known."""
    close_psn: int | None = None
    close_number: int = -1
    closed: bool = False
    swept: bool = False
    over: bool = False
    """Whether another instance has the PDCIDs now."""
    forgotten: bool = False
    """Whether the table dropped the PDC."""


class PdcConversation(NamedTuple):
    """This record implements `Subject` for PDCs: later packets may show that PSNs come again between the hosts."""

    hosts: Hosts
    again: Container[Hosts]

    @property
    def doubt(self) -> str | None:
        return AGAIN if self.hosts in self.again else None


class UnknownPdc:
    """The state of a check where a packet names no PDC, or a PDC that does not exist."""

    def __init__(self, seen: ObservedPacket) -> None:
        self._seen = seen

    def flow(self) -> Flow:
        return ends(self._seen.src, self._seen.dst)


@dataclass(slots=True, eq=False)
class PdcDirection:
    """A direction of a PDC has the requests that one end sends, and the answers of the other end."""

    pdc: AuditedPdc
    sender: int
    id: int
    """PDCID of the sender; 0: not known."""
    other: "PdcDirection" = field(init=False, repr=False)
    before: "PdcDirection | None" = None
    """Same direction of the instance before, for packets that are late."""
    after: "PdcDirection | None" = None
    """Same direction of the next instance."""
    ses: Any = None
    """State that the tracker of messages keeps for this direction."""
    start: int | None = None
    """Start_PSN; None: no SYN packet was seen."""
    named: int = 0
    """PDCID of the receiver as the sender named it last; 0: the sender has named no PDCID."""
    learned: int = -1
    """Number of the ACK that told the PDCID of the sender; -1: no ACK did."""
    others: tuple[int, ...] = ()
    """PDCIDs of the sender, and Start_PSNs, for which it is already reported that packets contradict each other."""
    opener: ObservedPacket | None = None
    """SYN packet that opened the PDC, if another PDC used the same PDCID before."""
    fast: int = NEVER
    """PDCID that requests must name to take the fast path: that of the receiver; `NEVER`: no request may take it."""
    kind: Any = None
    """Class of the header tuples whose packets may take the fast path."""
    next: int = 0
    """Next PSN: the newest PSN seen, plus 1."""
    lowest: int | None = None
    """Oldest PSN seen; None: no request was seen."""
    clear: int | None = None
    """CLEAR_PSN of the newest first transmission."""
    cleared: int | None = None
    """Newest CLEAR_PSN of all packets."""
    range: int = 1024
    """Widest window that the receiver is known to offer (UE 1.0.1 §3.5.12.6)."""
    records: dict[int, PsnRecord] = field(default_factory=dict)
    floor: int | None = None
    """PSN below which all records were dropped."""
    copies: dict[int, list[int]] = field(default_factory=dict)
    """Maps a PSN to the times at which it was seen again."""
    asked: dict[int, None] = field(default_factory=dict)
    """Holds PSNs that an ACK_REQ named: an ACK of such a PSN may answer the ACK_REQ instead of the request."""
    holes: dict[int, bool] = field(default_factory=dict)
    """Holds PSNs between those seen, where the capture is complete, and PSNs that were seen trimmed: these are true."""
    plain: int | None = None
    """Oldest PSN of a first transmission with syn = 0."""
    synned: int | None = None
    """Newest PSN of a first transmission with syn = 1."""
    cack: int | None = None
    """Newest CACK_PSN."""
    una: int | None = None
    """Oldest PSN for which no ACK was seen; only where the capture is complete."""
    held: dict[int, int] = field(default_factory=dict)
    """Maps each PSN with a guaranteed response to the number of the ACK that asked to clear it."""
    nacked: dict[int, int] = field(default_factory=dict)
    """Maps each refused PSN to the time of its NACK."""
    demanded: int | None = None
    """Start_PSN that a NACK asked for."""
    gap: bool = False
    """Whether CLOSE_CMD may be missing: a PSN that comes again may belong to another instance."""
    was: PsnRecord | None = None
    """`was`, `subject` and `number_of` hold what an event refers to beside the packet: a record, a PSN, the number of a
    packet."""
    subject: int = 0
    number_of: int = -1

    @property
    def mode(self) -> str | None:
        return None if self.pdc.rod is None else "ROD" if self.pdc.rod else "RUD"

    @property
    def earlier(self) -> PsnRecord:
        """Return `was`, which must not be None, at an event that has an earlier packet."""
        assert self.was is not None
        return self.was

    @property
    def peer(self) -> int:
        """Return the PDCID of the receiver; 0: not known."""
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
        """Tell whether the initiator is known to send in this direction."""
        return self.pdc.initiator is self

    @property
    def is_return(self) -> bool:
        """Tell whether the target is known to send in this direction."""
        return self.pdc.initiator is self.other

    def flow(self) -> Flow:
        return ends(self.sender, self.other.sender) | {"spdcid": self.id, "dpdcid": self.other.id}

    def is_near(self, psn: int) -> bool:
        """Return whether `psn` is less than `FAR` from the known PSNs, so that it can belong to this instance."""
        if self.lowest is not None or self.start is not None:
            return -FAR < diff32(psn, self.next) < FAR
        return self.cack is None or -FAR < diff32(psn, self.cack) < FAR

    def fits(self, psn: int) -> bool:
        """Return whether `psn` surely is of this PDC: it is the next PSN, or one that is missing between those seen.

        Another PDC on the same PDCIDs would begin far away, or after the CLOSE_CMD of this one (UE 1.0.1 §3.5.8.2).
        """
        if self.lowest is None or self.pdc.close_psn is not None or self.pdc.over:
            return False
        if psn == self.next:
            return True
        inside = diff32(psn, self.lowest) > 0 and diff32(psn, self.next) < 0
        return inside and psn not in self.records and (self.floor is None or diff32(psn, self.floor) >= 0)

    def unseen(self, psn: int) -> bool:
        """Return whether no packet with this PSN was seen, not even a trimmed one; False if its record may have been
        dropped."""
        return diff32(psn, self.next) >= 0 or self.holes.get(psn) is False

    def has_gap(self, psn: int) -> bool:
        """Return whether a PSN above `psn` was not seen: it may be the PSN of CLOSE_CMD."""
        above = diff32(self.next, psn) - 1
        if above >= len(self.records):
            return True
        return any((psn + 1 + step) & M32 not in self.records for step in range(above))

    def begin_at(self, start: int, psn: int) -> None:
        """Follow PSNs from `psn` on, after two SYN packets with different Start_PSNs, of which either may be right."""
        self.start, self.lowest, self.next = start, psn, psn
        self.plain = self.synned = self.clear = self.cleared = self.una = None

    def note_copy(self, psn: int, time_ns: int) -> None:
        times = self.copies.setdefault(psn, [])
        if len(times) < TIMES:
            times.append(time_ns)

    def skip(self, psn: int, complete: bool) -> None:
        """Make `psn` the next PSN. In a complete capture the PSNs in between become holes."""
        ahead = diff32(psn, self.next)
        if complete and ahead <= HOLES:
            self.holes |= {hole: False for step in range(ahead) if (hole := (self.next + step) & M32) not in self.holes}
        self.next = psn
        if len(self.holes) > 2 * HOLES:
            self.holes = {hole: trimmed for hole, trimmed in self.holes.items() if diff32(psn, hole) <= HOLES}

    def acknowledged(self) -> int:
        """Return the oldest PSN for which no ACK was seen: all PSNs below may be cleared."""
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
        """Return the oldest PSN up to `cack` with a guaranteed response that no packet seen has cleared; drop the
        cleared ones."""
        for cleared in (self.clear, self.cleared):
            if cleared is not None:
                self.held = {psn: number for psn, number in self.held.items() if diff32(psn, cleared) > 0}
        held = [behind for psn in self.held if (behind := diff32(psn, cack)) <= 0]
        return (cack + min(held)) & M32 if held else None

    @property
    def newest_clear(self) -> int | None:
        """Return the newest CLEAR_PSN of all packets; None: none was seen."""
        if self.clear is None or self.cleared is None:
            return self.cleared if self.clear is None else self.clear
        return self.clear if diff32(self.clear, self.cleared) > 0 else self.cleared

    def forget_other(self) -> None:
        """Keep only address and PDCID of the other end: two objects that refer to each other would not be freed."""
        other = self.other
        self.other = PdcDirection(other.pdc, other.sender, other.id)

    def shorten(self, most: int) -> None:
        """Drop the oldest records, down to `most`."""
        records = self.records
        for psn in list(records)[: len(records) - most]:
            del records[psn]
            self.copies.pop(psn, None)
            if self.floor is None or diff32(psn, self.floor) >= 0:
                self.floor = (psn + 1) & M32
        floor = self.floor
        if floor is not None:
            self.holes = {psn: trimmed for psn, trimmed in self.holes.items() if diff32(psn, floor) > 0}
            self.asked = dict.fromkeys(psn for psn in self.asked if diff32(psn, floor) > 0)
            self.nacked = {psn: at for psn, at in self.nacked.items() if diff32(psn, floor) > 0}
            self.held = {psn: at for psn, at in self.held.items() if diff32(psn, floor) > 0}


def reaches(known: int | None, psn: int) -> bool:
    """Return whether a known PSN, such as a CLEAR_PSN, is equal to this PSN or newer."""
    return known is not None and diff32(known, psn) >= 0
