# SPDX-License-Identifier: GPL-2.0-only
"""This module holds the state of a PDC: two directions of requests, each with its PSNs and the answers to them."""

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
"""Least distance between two PSNs that cannot both be open on one PDC, because no window is wider than 32,640 PSNs
(UE 1.0.1 §3.5.8.2)."""
NEVER = -1
"""Number that stands in place of a PDCID; no packet has this number as a PDCID."""
RECORDS = 1_000_000
"""Greatest number of PSN records that all directions together keep."""
MOST, FEWEST = 4_096, 128
"""Bounds of the number of PSN records that one direction keeps."""
AGAIN = "PSNs of a PDC come again in the next: needs --complete and --ordered"
"""Reason why a contradiction may be only apparent: no packet that was seen distinguishes two PDCs that use the same
PDCIDs and PSNs."""
HOLES = 4_096
"""Greatest number of PSNs that a direction keeps in each of its sets: PSNs that were not seen, were refused, or have to
be cleared."""
TRIES = 3
"""Number of copies and ACK_REQs of a packet without an answer that are more than a lossy network explains."""
TIMES = 64
"""Greatest number of copies of one PSN whose times are kept."""

Hosts = tuple[int, int]
"""Addresses of two hosts; the lower address is the first one."""


class PdsEvent(Event):
    """This enumeration has the events of PDCs. With an event, a rule gets the `PdcDirection` of the request, unless the
    docstring of the event says otherwise."""

    FIRST = auto()
    """A PSN was seen for the first time, in a request or in a control packet that consumes a PSN."""
    ROD_FIRST = auto()
    """The first transmission of a request of a ROD PDC came. The event is only counted."""
    RETX_FIRST = auto()
    """A PSN was seen for the first time, in a packet with retx = 1, though the capture is complete and ordered."""
    LATE = auto()
    """The first transmission of a packet of a ROD PDC came after the first transmission of a packet with a higher
    PSN."""
    AGAIN = auto()
    """A packet came with a PSN that was seen before; `was` is the record of the first packet with this PSN."""
    TRIMMED = auto()
    """A request arrived without its payload, because a switch trimmed it."""
    OPEN = auto()
    """A PDC was seen for the first time."""
    RENUMBERED = auto()
    """A SYN packet came with a new Start_PSN that a NACK had demanded; `was` is the record of the same packet in the
    refused PDC, `before`."""
    SYN = auto()
    """A request with syn = 1 came."""
    REUSED = auto()
    """A SYN packet opened another PDC on known PDCIDs; `before` is the old PDC's direction."""
    STRANGER = auto()
    """A packet belongs to, or answers, a PDC that no SYN packet began. It occurs only if the capture is complete and
    ordered. The rule gets an `UnknownPdc`."""
    MODE = auto()
    """A PDC carried both ROD and RUD requests."""
    SPDCID_ZERO = auto()
    """The sender of a request, a control packet or an ACK has no PDCID. The rule gets an `UnknownPdc`."""
    DPDCID = auto()
    """A packet that surely belongs to this PDC has a DPDCID that is not the PDCID of the other end.

    `was` is the record of the first copy of the packet or, for an ACK, of the request that the ACK answers. It is None
    if the PSN alone shows that the packet belongs to this PDC.
    """
    SPDCID = auto()
    """A packet that surely belongs to this PDC has another SPDCID than the earlier packets."""
    START = auto()
    """A SYN packet that surely belongs to this PDC has another Start_PSN than the earlier ones."""
    STILL_OPEN = auto()
    """A SYN packet began another PDC on a PDCID, but later the old PDC sent its next PSN. The rule gets the SYN packet
    and the direction of the old PDC."""
    JUMPED = auto()
    """A PSN is far from all other PSNs of the PDC, which was not closed. It occurs only in complete captures."""
    TWO_TARGETS = auto()
    """An ACK names a PSN that was sent to this PDC's receiver, but the PDCID of the ACK's sender is not the known PDCID
    of that receiver."""
    LATE_SYN = auto()
    """A first transmission with syn = 1 has a higher PSN than a first transmission with syn = 0; `was` is
    the record of the packet that was seen earlier."""
    NEW_AFTER_CLOSE = auto()
    """A request has a new PSN that follows the PSN of CLOSE_CMD."""

    CLEAR_NOT_BELOW = auto()
    """A request has a CLEAR_PSN that is not below its PSN."""
    CLEAR_FELL = auto()
    """A CLEAR_PSN is lower than that of a packet with a lower PSN, or higher than that of a packet with a higher PSN;
    `was` is the record of this other packet."""
    CLEAR_AHEAD = auto()
    """A CLEAR_PSN covers a PSN for which no ACK was seen. It occurs only in complete captures."""
    WINDOW = auto()
    """The PSN of a request is farther above its CLEAR_PSN than the known window of the receiver allows."""

    ACK = auto()
    """An ACK came. The rule gets the direction of the requests that the ACK acknowledges."""
    ACKED = auto()
    """An ACK names the PSN of a request for the first time; `was` is the record of the request."""
    ACK_EARLY = auto()
    """An ACK covers or names a PSN before Start_PSN."""
    ACK_UNSENT = auto()
    """An ACK covers or names a PSN that was not seen."""
    ACK_RETX = auto()
    """An ACK has another retx than the request that it answers; `was` is the record of the only copy of that
    request."""
    CACK_BEHIND_CLEAR = auto()
    """A CACK_PSN is below the CLEAR_PSN of `was`, the request that the ACK answers."""
    CACK_HOLE = auto()
    """A CACK_PSN covers the PSN `subject`, which was not seen. It occurs only in complete captures."""
    CACK_UNCLEARED = auto()
    """A CACK_PSN covers the PSN `subject`, but no packet was seen that clears the guaranteed response of this PSN. The
    ACK in packet `number_of` asked to clear the response."""
    RCVD = auto()
    """An ACK with rcvd_bytes came. The event is only counted."""
    RCVD_FELL = auto()
    """An ACK has a lower rcvd_bytes than an earlier ACK; `subject` is the earlier value."""
    CREDIT = auto()
    """A CREDIT came for a direction whose requests carry a demand. The event is only counted."""
    CREDIT_FELL = auto()
    """A CREDIT has a lower grant than an earlier CREDIT or ACK."""
    CREDIT_BEYOND = auto()
    """A CREDIT grants more than was asked for, and more than one turn beyond the grant before."""
    CREDIT_SPENT = auto()
    """A request came that needs credit. The event is only counted."""
    OVERDRAWN = auto()
    """A request came for which its context had no credit."""
    FLIGHT = auto()
    """A request came whose sender has NSCC with parameters that are stated; `window.context` of the direction has what
    is in flight with it, and the window. `FLIGHT_INFERRED` is the same, with parameters that are inferred."""
    FLIGHT_INFERRED = auto()
    CACK_FELL = auto()
    """An ACK has a lower CACK_PSN than an earlier ACK."""
    SACK = auto()
    """An ACK with a SACK bitmap came."""
    SACK_UNSENT = auto()
    """A SACK bitmap names the PSN `subject`, which was not seen."""
    SACK_ZERO = auto()
    """A SACK bitmap reports the PSN `subject` as not received, though CACK_PSN covers it."""
    MPR_ZERO = auto()
    """An ACK offers a window of 0 PSNs (mpr = 0)."""
    ASKS = auto()
    """An ACK asks the source to clear a PSN (CLEAR) or to close the PDC (CLOSE)."""
    CLOSED = auto()
    """An ACK of CLOSE_CMD came."""

    NACK = auto()
    """A NACK came. The rule gets the direction of the packet that the NACK refuses."""
    CONTROL = auto()
    """A control packet came. The rule gets the direction in which it was sent."""
    CLOSING = auto()
    """The first copy of CLOSE_CMD came."""
    SILENT = auto()
    """The PDC or the capture ended, and no ACK was seen for the PSN `subject`, which was sent or asked about several
    times. The rule gets the direction, and the last packet that was a copy or an ACK_REQ."""


@dataclass(slots=True, eq=False)
class PsnRecord:
    """This record holds what was seen of one PSN."""

    number: int
    time_ns: int
    content: int | None
    clear: int | None
    """CLEAR_PSN of the packet. It is None for a control packet, and for a request whose CLEAR_PSN is not below its
    PSN."""
    head: Head
    acked: bool = False
    """Whether an ACK that names this PSN was seen."""


@dataclass(slots=True, eq=False)
class AuditedPdc:
    """This class holds an instance, which is one use of a pair of PDCIDs by a PDC. When the PDCIDs of a closed PDC are
    used again, another instance begins."""

    instance: int
    """Number of this use of the PDCIDs; it counts from 1."""
    last_ns: int
    rod: bool | None = None
    initiator: "PdcDirection | None" = None
    """Direction in which the initiator sends, or None if it is not known."""
    close_psn: int | None = None
    close_number: int = -1
    closed: bool = False
    swept: bool = False
    over: bool = False
    """Whether another instance has the PDCIDs now, or this one was dropped."""
    forgotten: bool = False
    """Whether the table dropped the PDC."""


class PdcConversation(NamedTuple):
    """This record implements `Subject` for PDCs. A contradiction is in doubt if later packets show that a PDC between
    the hosts uses PSNs of the PDC before it."""

    hosts: Hosts
    again: Container[Hosts]

    @property
    def doubt(self) -> str | None:
        return AGAIN if self.hosts in self.again else None


class UnknownPdc:
    """This class is the state that a rule gets if a packet names no PDC, or names a PDC that does not exist."""

    def __init__(self, seen: ObservedPacket) -> None:
        self._seen = seen

    def flow(self) -> Flow:
        return ends(self._seen.src, self._seen.dst)


@dataclass(slots=True, eq=False)
class PdcDirection:
    """This class holds one direction of a PDC: the requests that one end sends, and the answers of the other end."""

    pdc: AuditedPdc
    sender: int
    id: int
    """PDCID of the sender. It is 0 if the PDCID is not known."""
    other: "PdcDirection" = field(init=False, repr=False)
    before: "PdcDirection | None" = None
    """Same direction of the PDC that had the PDCIDs before; late packets may belong to it."""
    after: "PdcDirection | None" = None
    """Same direction of the PDC that had the PDCIDs next."""
    ses: Any = None
    """State that the tracker of messages keeps for this direction."""
    start: int | None = None
    """Start_PSN, or None if no SYN packet was seen."""
    named: int = 0
    """PDCID of the receiver in the last request of the sender. It is 0 if no request has named a PDCID."""
    learned: int = -1
    """Number of the ACK that told the PDCID of the sender. It is -1 if no ACK did."""
    others: tuple[int, ...] = ()
    """PDCIDs and Start_PSNs of the sender that contradict each other and were already reported."""
    opener: ObservedPacket | None = None
    """SYN packet that opened the PDC if another PDC used the same PDCID before, else None."""
    fast: int = NEVER
    """PDCID of the receiver that a request must name to take the fast path. It is `NEVER` if no request may take the
    fast path."""
    kind: Any = None
    """Class of the header tuple that a request must have to take the fast path."""
    next: int = 0
    """PSN after the newest PSN that was seen."""
    lowest: int | None = None
    """Oldest PSN that was seen, or None if no request was seen."""
    clear: int | None = None
    """CLEAR_PSN of the first transmission with the newest PSN, or None."""
    cleared: int | None = None
    """Newest PSN that was cleared by a request on the slow path, by a CLEAR_CMD or by a CLOSE_CMD, or None."""
    range: int = 1024
    """Widest window that the receiver is known to offer, in PSNs (UE 1.0.1 §3.5.12.6)."""
    records: dict[int, PsnRecord] = field(default_factory=dict)
    floor: int | None = None
    """PSN below which all records were dropped, or None if no record was dropped."""
    copies: dict[int, list[int]] = field(default_factory=dict)
    """Maps a PSN to the times in nanoseconds at which further copies of its packet were seen."""
    asked: dict[int, int] = field(default_factory=dict)
    """Maps each PSN that an ACK_REQ named to the number of such ACK_REQs since the last NACK of the PSN. An ACK of such
    a PSN may answer the ACK_REQ instead of the request."""
    tried: ObservedPacket | None = None
    """Last packet that was a copy of an earlier packet, or an ACK_REQ. It is kept only in a complete capture."""
    holes: dict[int, bool] = field(default_factory=dict)
    """Maps a missing PSN to True if its packet was seen trimmed, and to False if no packet with this PSN was seen. Only
    in complete captures does this map have PSNs with the value False."""
    plain: int | None = None
    """Oldest PSN of a first transmission with syn = 0, or None."""
    synned: int | None = None
    """Newest PSN of a first transmission with syn = 1, or None."""
    cack: int | None = None
    """Newest CACK_PSN, or None if no ACK was seen."""
    rcvd: int | None = None
    """Newest rcvd_bytes that an ACK carried, in units of 256 bytes, or None if no ACK did."""
    credit: Any = None
    """Credit of the congestion control context (`tracker_credits.AuditedCredit`), or None if no request has asked for
    credit."""
    window: Any = None
    """What congestion control has in flight (`tracker_window.DirectionWindow`), or None if that is not followed."""
    has_no_window: bool = False
    """Whether an ACK has shown that the sender has no window of NSCC."""
    una: int | None = None
    """Oldest PSN for which no ACK was seen, or None if it is not computed yet. The value is kept only in a complete
    capture."""
    held: dict[int, int] = field(default_factory=dict)
    """Maps each PSN with a guaranteed response to the number of the ACK that asked to clear it."""
    nacked: dict[int, int] = field(default_factory=dict)
    """Maps each refused PSN to the time of its NACK in nanoseconds."""
    sacked: int | None = None
    """Newest PSN that a SACK bitmap has reported, or None."""
    demanded: int | None = None
    """Start_PSN that a NACK demanded, or None."""
    gap: bool = False
    """Whether a CLOSE_CMD may be missing in the capture. If it is missing, a PSN that comes again may belong to another
    instance."""
    was: PsnRecord | None = None
    """Record to which an event refers beside its packet. Likewise, `subject` holds a PSN and `number_of` the number of
    a packet."""
    subject: int = 0
    number_of: int = -1

    def note_sacked(self, psn: int) -> None:
        """Note the newest PSN that a bitmap has reported."""
        if self.sacked is None or diff32(psn, self.sacked) > 0:
            self.sacked = psn

    @property
    def mode(self) -> str | None:
        return None if self.pdc.rod is None else "ROD" if self.pdc.rod else "RUD"

    @property
    def earlier(self) -> PsnRecord:
        """Return `was` at an event that has an earlier packet. It must not be None."""
        assert self.was is not None
        return self.was

    @property
    def peer(self) -> int:
        """Return the PDCID of the receiver, or 0 if it is not known."""
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
        """Return whether the initiator is known to send in this direction."""
        return self.pdc.initiator is self

    @property
    def is_return(self) -> bool:
        """Return whether the target is known to send in this direction."""
        return self.pdc.initiator is self.other

    def flow(self) -> Flow:
        return ends(self.sender, self.other.sender) | {"spdcid": self.id, "dpdcid": self.other.id}

    def is_near(self, psn: int) -> bool:
        """Return whether `psn` can belong to this PDC, because it is less than `FAR` from the next PSN. Without
        requests, the PSN is compared with the newest CACK_PSN."""
        if self.lowest is not None or self.start is not None:
            return -FAR < diff32(psn, self.next) < FAR
        return self.cack is None or -FAR < diff32(psn, self.cack) < FAR

    def fits(self, psn: int) -> bool:
        """Return whether `psn` surely belongs to this PDC: it is the next PSN, or a PSN that is missing between those
        seen.

        Another PDC on the same PDCIDs would begin far away, or after the CLOSE_CMD of this one (UE 1.0.1 §3.5.8.2).
        """
        if self.lowest is None or self.pdc.close_psn is not None or self.pdc.over:
            return False
        if psn == self.next:
            return True
        inside = diff32(psn, self.lowest) > 0 and diff32(psn, self.next) < 0
        return inside and psn not in self.records and (self.floor is None or diff32(psn, self.floor) >= 0)

    def unseen(self, psn: int) -> bool:
        """Return whether surely no packet with this PSN was seen, not even a trimmed one. It is False if the record of
        the PSN may have been dropped."""
        return diff32(psn, self.next) >= 0 or self.holes.get(psn) is False

    def has_gap(self, psn: int) -> bool:
        """Return whether some PSN above `psn` was not seen; that PSN may be the one of CLOSE_CMD."""
        above = diff32(self.next, psn) - 1
        if above >= len(self.records):
            return True
        return any((psn + 1 + step) & M32 not in self.records for step in range(above))

    def begin_at(self, start: int, psn: int) -> None:
        """Follow PSNs from `psn` on, with Start_PSN `start`. The caller has seen two SYN packets with different
        Start_PSNs, of which either may be right."""
        self.start, self.lowest, self.next = start, psn, psn
        self.plain = self.synned = self.clear = self.cleared = self.una = None

    def note_copy(self, psn: int, time_ns: int) -> None:
        times = self.copies.setdefault(psn, [])
        if len(times) < TIMES:
            times.append(time_ns)

    def tries(self, psn: int) -> int:
        """Return how often the source sent the packet again, or asked for its ACK, as far as known."""
        return len(self.copies.get(psn, ())) + self.asked.get(psn, 0)

    def is_acked(self, psn: int) -> bool:
        """Return whether an ACK was seen that names or covers the PSN, or whether the record of the PSN was dropped."""
        record = self.records.get(psn)
        return record is None or record.acked or reaches(self.cack, psn)

    def unanswered(self, tries: int) -> int | None:
        """Return the oldest PSN that was tried so often, or more often, and got no ACK; None: there is none."""
        tried = self.copies.keys() | self.asked.keys()
        found = [psn for psn in tried if self.tries(psn) >= tries and not self.is_acked(psn)]
        return min(found, key=lambda psn: diff32(psn, self.next), default=None)

    def skip(self, psn: int, complete: bool) -> None:
        """Make `psn` the next PSN. In a complete capture, the skipped PSNs are entered into `holes`."""
        ahead = diff32(psn, self.next)
        if complete and ahead <= HOLES:
            self.holes |= {hole: False for step in range(ahead) if (hole := (self.next + step) & M32) not in self.holes}
        self.next = psn
        if len(self.holes) > 2 * HOLES:
            self.holes = {hole: trimmed for hole, trimmed in self.holes.items() if diff32(psn, hole) <= HOLES}

    def acknowledged(self) -> int:
        """Return the oldest PSN for which no ACK was seen. The source may clear all PSNs below it."""
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
        """Return the oldest PSN up to `cack` with a guaranteed response that is not cleared, or None if there is none.
        Forget the PSNs that were cleared."""
        for cleared in (self.clear, self.cleared):
            if cleared is not None:
                self.held = {psn: number for psn, number in self.held.items() if diff32(psn, cleared) > 0}
        held = [behind for psn in self.held if (behind := diff32(psn, cack)) <= 0]
        return (cack + min(held)) & M32 if held else None

    @property
    def newest_clear(self) -> int | None:
        """Return the newest CLEAR_PSN of all packets, or None if no CLEAR_PSN was seen."""
        if self.clear is None or self.cleared is None:
            return self.cleared if self.clear is None else self.clear
        return self.clear if diff32(self.clear, self.cleared) > 0 else self.cleared

    def forget_other(self) -> None:
        """Replace the other end by an object with its address and PDCID only, because two objects that refer to each
        other would not be freed at once."""
        other = self.other
        self.other = PdcDirection(other.pdc, other.sender, other.id)

    def shorten(self, most: int) -> None:
        """Drop the oldest records, so that `most` records remain."""
        records = self.records
        for psn in list(records)[: len(records) - most]:
            del records[psn]
            self.copies.pop(psn, None)
            if self.floor is None or diff32(psn, self.floor) >= 0:
                self.floor = (psn + 1) & M32
        floor = self.floor
        if floor is not None:
            self.holes = {psn: trimmed for psn, trimmed in self.holes.items() if diff32(psn, floor) > 0}
            self.asked = {psn: count for psn, count in self.asked.items() if diff32(psn, floor) > 0}
            self.nacked = {psn: at for psn, at in self.nacked.items() if diff32(psn, floor) > 0}
            self.held = {psn: at for psn, at in self.held.items() if diff32(psn, floor) > 0}


def reaches(known: int | None, psn: int) -> bool:
    """Return whether a known PSN, such as a CLEAR_PSN, is equal to `psn` or newer. It is False if `known` is None."""
    return known is not None and diff32(known, psn) >= 0
