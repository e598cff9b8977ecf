# SPDX-License-Identifier: GPL-2.0-only
"""This module judges each packet alone, before other trackers follow its conversation."""

from collections import defaultdict
from collections.abc import Container, Iterable, Mapping, Sequence
from enum import Enum, auto
from functools import cache
from typing import Any, NamedTuple

from uetproto.audit.finding import Flow
from uetproto.audit.judge import MOST, ExpectedEvents, Judge, RuleTable
from uetproto.audit.reader.address import ADDRESSED, ends
from uetproto.audit.reader.crc_of_packet import is_roce
from uetproto.audit.reader.expected_values import Misfit, is_data, misfit_of_roce, misfit_of_uet
from uetproto.audit.reader.fast_path import Kind
from uetproto.audit.reader.observed import ObservedPacket
from uetproto.audit.reader.options import Options
from uetproto.audit.reader.records import Reading
from uetproto.audit.reader.truncation import SUSPECTED, kept_bytes, missing_end
from uetproto.audit.rule import Event, Violation
from uetproto.wire.forms import UET_FORMS, code_fields, is_vendors, reserved_fields
from uetproto.wire.headers.roce import BTH, SEQUENCES
from uetproto.wire.headers.uet_pds import FIRST
from uetproto.wire.packet import CRC_SUSPECT, Packet
from uetproto.wire.words.text import numbered


class WireEvent(Event):
    """This enumeration has the events of packets that are judged alone, and the events at the end of the capture."""

    CAPTURE = auto()
    """The capture was read to its end. The event comes once for each damaged place, or once in all if no place is
    damaged. Its state is a `DamagedPlace`."""
    IPV4 = auto()
    """A packet of UET or RoCE has an IPv4 header."""
    GRE = auto()
    """A packet of UET or RoCE is in a tunnel of GRE with a checksum."""
    NETWORK = auto()
    """A UET packet has an IPv4 or a UDP header."""
    CRC = auto()
    """A UET packet that is not sealed came whole, in a flow whose packets end with a CRC32C."""
    ICV = auto()
    """A sealed UET packet came whole."""
    LENGTH = auto()
    """A UET packet came that the capture did not truncate, so that its lengths can be judged."""
    TYPE = auto()
    """A packet begins with a UET header, whose type is judged."""
    NEXT_HDR = auto()
    """A packet has a PDS header, whose field next_hdr is judged."""
    HEADERS = auto()
    """A packet has UET headers, whose reserved bits and codes are judged."""
    SES = auto()
    """A packet has an SES header, whose version and opcode are judged."""
    DATA = auto()
    """A UET request has an IP header, whose ECN bits are judged."""
    ICRC = auto()
    """A RoCE packet came whole, so that its ICRC can be judged."""
    SENDER_ICRC = auto()
    """The capture was read to its end. The event comes once for each pair of a sender and a receiver of RoCE packets;
    its state is a `SenderIcrc`."""
    ROCE_LENGTH = auto()
    """A RoCE packet came that the capture did not truncate, or other packets contradict its length. In the second case
    the state of the event is a `Contradicted`."""
    BTH = auto()
    """A RoCE packet with a known opcode came, whose header fields are judged."""
    OPCODE = auto()
    """A RoCE packet came, whose opcode is judged."""
    AETH = auto()
    """A packet has an AETH."""


_AT_THE_END = frozenset({WireEvent.CRC, WireEvent.ICV, WireEvent.LENGTH, WireEvent.ICRC, WireEvent.ROCE_LENGTH})
_MISSING = frozenset({"truncated", "trimmed", "fragment"})
"""Lists the notes of packets whose end is missing; only the first says that the capture truncated it."""


class SinglePacket(NamedTuple):
    """The state of an event about a single packet has that packet, and the violation if the tracker found one."""

    packet: Packet
    verdict: Violation | None = None
    """Violation, if the tracker found that the packet is shorter than its headers say. It is None if the tracker found
    no violation."""

    def flow(self) -> Flow:
        """Return the source and destination addresses and the destination QP, as far as the packet has them."""
        flow: dict[str, Any] = {}
        for form, values, _ in self.packet.layers:
            if form in ADDRESSED:
                sender, receiver, mark = ADDRESSED[form]
                flow |= ends(mark | values[sender], mark | values[receiver])
            elif form == "bth":
                flow["destqp"] = values["destqp"]
        return flow


class SenderIcrc(NamedTuple):
    """The state of the event SENDER_ICRC says whether all ICRCs from one address to another are wrong."""

    src: int
    dst: int
    wrong: int
    """Number of packets from `src` to `dst` with a wrong ICRC. It is 0 if any packet from `src` to `dst` has a right
    one."""
    others_are_right: bool
    """Whether any packet of the capture, with whatever addresses, has a right ICRC."""

    def flow(self) -> Flow:
        return ends(self.src, self.dst)


class DamagedPlace(NamedTuple):
    """This record describes a place at which a capture is damaged. An empty `reason` says that the capture is not
    damaged."""

    packet: int = 0
    """Number of the packet that is next to the damaged place, on the side that `side` names."""
    time_ns: int = 0
    side: str = ""
    """Whether the damaged place is "before" or "behind" the packet. It is empty if there is no packet."""
    offset: int = 0
    reason: str = ""

    @property
    def where(self) -> str:
        """Return the place in words, with its offset in bytes."""
        return f"{self.side} {numbered(self.packet)}, at byte {self.offset}" if self.side else f"at byte {self.offset}"

    def flow(self) -> Flow:
        return {}


_TYPES = frozenset(value for header in FIRST for value in header["type"].only) | {1}


class Meaning(Enum):
    """This enumeration says how far the codes and the versions in the SES headers of a packet are known."""

    KNOWN = auto()
    VENDORS = auto()
    """Some of the codes are defined by a vendor. Their meaning is not known."""
    NONE = auto()


def _meaning(packet: Packet) -> Meaning:
    found = Meaning.KNOWN
    for form, values, _ in packet.layers:
        if not form.startswith("ses."):
            continue
        for name, known in code_fields(form).items():
            if values[name] not in known:
                return Meaning.NONE
            if is_vendors(form, name, values[name]):
                found = Meaning.VENDORS
        if values.get("version"):
            return Meaning.NONE
    return found


def packet_of(seen: ObservedPacket) -> Packet:
    """Return the decoded packet, which must not be None; every packet that is not as expected has one."""
    assert seen.packet is not None
    return seen.packet


def reserved_bit(seen: ObservedPacket, forms: Container[str]) -> Violation | None:
    """Return a violation for the first reserved field that is not 0 in a header that `forms` names. None means that
    all reserved fields are 0."""
    for form, values, _offset in packet_of(seen).layers:
        for name in reserved_fields(form) if form in forms else ():
            if values[name]:
                return Violation(f"{form}.{name} 0", f"0x{values[name]:x}")
    return None


def misfit_of_roce_in(seen: ObservedPacket) -> Misfit | None:
    """Return how payload, pad and RETH of a RoCE packet contradict each other, or None if they agree or cannot be
    compared."""
    packet = seen.packet
    if packet is None or seen.size < 0 or "sharp" in packet:
        return None  # a rule about SHARP judges the lengths of its messages
    return misfit_of_roce([layer[:2] for layer in packet.layers], seen.size, len(packet.pad))


def misfit_of_uet_in(seen: ObservedPacket) -> Misfit | None:
    """Return how the size of the payload contradicts the SES header, or None if they agree or cannot be compared."""
    packet = seen.packet
    if packet is None or seen.size < 0 or "sealed" in packet.notes:
        return None
    return misfit_of_uet([layer for layer in packet.layers if not layer.form.startswith("sharp")], seen.size)


class WireTracker:
    """This class judges each packet that is not as expected. `count_expected` counts the other packets."""

    __slots__ = ("_judge", "_lost", "_options", "_short", "_tell", "_wrong_icrcs")

    def __init__(self, judge: Judge, options: Options) -> None:
        self._judge = judge
        self._options = options
        self._tell = judge.rules.tell(WireEvent)
        self._lost: defaultdict[WireEvent, int] = defaultdict(int)
        """Counts, by event, what was not judged because the end of the packet is missing."""
        self._short: list[ObservedPacket] = []
        """Packets that may be truncated; whether they are is decided at the end of the capture."""
        self._wrong_icrcs: dict[tuple[int, int], list[Any]] = {}
        """Maps sender and receiver to their first packet with a wrong ICRC, and the number of such packets, as long as
        none of theirs is known to be right."""

    def see(self, seen: ObservedPacket) -> ObservedPacket | None:
        """Judge a packet, and return it with only the headers that other trackers can follow. Return None if they
        cannot follow the packet at all."""
        packet = packet_of(seen)
        forms = [layer.form for layer in packet.layers]
        return self._roce(seen, packet, forms) if is_roce(packet, self._options) else self._uet(seen, packet, forms)

    @property
    def is_idle(self) -> bool:
        """Return whether `end` has nothing to judge."""
        return not (self._lost or self._short or self._wrong_icrcs)

    def end(self, reading: Reading) -> None:
        """Judge what can only be judged at the end of the capture."""
        if self._short:
            self._end_short(reading.longest)
        lost = self._lost
        if lost:
            if not reading.may_have_crc:
                lost.pop(WireEvent.CRC, None)
            self._judge.rules.lost.update(lost)
        if reading.icrc_of or self._wrong_icrcs:
            self._end_icrcs(reading.icrc_of)

    def _lose(self, events: Iterable[WireEvent], number: int = 1) -> None:
        """Count packets of which these events were not judged."""
        for event in events:
            self._lost[event] += number

    def _end_short(self, longest: int) -> None:
        """Judge the short packets that the capture would have kept whole."""
        for seen in self._short:
            if seen.packet is not None and kept_bytes(seen.packet) < longest:
                state = SinglePacket(seen.packet, Violation(*missing_end(seen.packet)))
                self._tell[WireEvent.ROCE_LENGTH](state, seen)
                self._lose(lost_of((BTH.name,)), -1)

    def _end_icrcs(self, icrc_of: Mapping[tuple[Any, ...], bool]) -> None:
        """Judge the senders whose ICRCs are all wrong; the capture may have changed all packets, or none."""
        tell, any_right = self._tell[WireEvent.SENDER_ICRC], any(icrc_of.values())
        for (src, dst), (seen, wrong) in self._wrong_icrcs.items():
            tell(SenderIcrc(src, dst, wrong, any_right), seen)
        for (src, dst), right in icrc_of.items():
            if right and (src, dst) not in self._wrong_icrcs:
                tell(SenderIcrc(src, dst, 0, True), _nothing(0, 0))

    def _uet(self, seen: ObservedPacket, packet: Packet, forms: Sequence[str]) -> ObservedPacket | None:
        state, tell, trailer = SinglePacket(packet), self._tell, packet.trailer
        if trailer is not None and trailer.kind == "crc32c" and trailer.ok is not None:
            tell[WireEvent.CRC](state, seen)
            if not trailer.ok:
                return None  # any bit may be wrong
        elif CRC_SUSPECT in packet.notes:
            tell[WireEvent.CRC](state, seen)
        for event in (WireEvent.IPV4, WireEvent.GRE, WireEvent.NETWORK):
            if event in events_of(tuple(forms), None):
                tell[event](state, seen)
        missing = _MISSING.intersection(packet.notes)
        lost = lost_of(forms) if missing == {"truncated"} else frozenset()
        self._lose(lost - {WireEvent.LENGTH})
        head = seen.head
        if head is None:
            reserved = reserved_type(packet)
            if reserved is not None:
                tell[WireEvent.TYPE](state, seen)
            elif not missing:
                tell[WireEvent.LENGTH](state, seen)
            else:
                self._lose(lost & {WireEvent.LENGTH})
            return None
        tell[WireEvent.TYPE](state, seen)
        if not missing and forms[-1].startswith("tss"):
            tell[WireEvent.ICV](state, seen)
        known = True
        if "next_hdr" in head._fields:
            tell[WireEvent.NEXT_HDR](state, seen)
            known = head.next_hdr in code_fields(head.form)["next_hdr"]
        if not known:
            return None
        tell[WireEvent.HEADERS](state, seen)
        if any("ecn" in layer.values for layer in packet.layers) and is_data(forms):
            tell[WireEvent.DATA](state, seen)
        if seen.ses is not None:
            tell[WireEvent.SES](state, seen)
        meaning = _meaning(packet)
        if meaning is Meaning.KNOWN and not missing:
            tell[WireEvent.LENGTH](state, seen)
        elif meaning is Meaning.KNOWN:
            self._lose(lost & {WireEvent.LENGTH})
        if packet.error is not None:
            return None
        clear = meaning is not Meaning.NONE and (bool(missing) or misfit_of_uet_in(seen) is None)
        return seen if clear else seen._replace(ses=None, content=None)

    def _roce(self, seen: ObservedPacket, packet: Packet, forms: Sequence[str]) -> ObservedPacket | None:
        state, tell, trailer = SinglePacket(packet), self._tell, packet.trailer
        malformed = packet.error is not None and packet.error.kind == "malformed"
        if trailer is not None and trailer.kind == "icrc" and not malformed:
            tell[WireEvent.ICRC](state, seen)
            if trailer.ok is False:
                return None
            if trailer.ok is None and len(self._wrong_icrcs) < self._options.max_flows:
                self._wrong_icrcs.setdefault((seen.src, seen.dst), [seen, 0])[1] += 1
        for event in (WireEvent.IPV4, WireEvent.GRE):
            if event in events_of(tuple(forms), None):
                tell[event](state, seen)
        unknown = packet.error is not None and packet.error.kind == "unknown"
        if "truncated" in packet.notes:
            self._lost[WireEvent.ICRC] += trailer is None
            self._lost[WireEvent.ROCE_LENGTH] += not unknown
        elif not unknown:
            tell[WireEvent.ROCE_LENGTH](state, seen)
        if SUSPECTED in packet.notes and not unknown and len(self._short) < MOST:
            self._short.append(seen)
        if seen.head is None:
            return None
        tell[WireEvent.OPCODE](state, seen)
        if unknown:
            return None
        tell[WireEvent.BTH](state, seen)
        if "aeth" in forms:
            tell[WireEvent.AETH](state, seen)
        if packet.error is not None or misfit_of_roce_in(seen) is not None:
            return None
        return seen if len(seen.more) >= len(SEQUENCES[seen.head.opcode]) else None


def count_expected(rules: RuleTable, reading: Reading) -> None:
    """Count the packets of a vantage point that were as expected."""
    expected = reading.expected
    if expected:
        may_have_crc = reading.may_have_crc
        for kind, number in expected.items():
            rules.count(_expected_events(kind, may_have_crc), number)


def report_damage(rules: RuleTable, damage: Sequence[DamagedPlace]) -> None:
    """Report each damaged place of the capture to the present judge. If there is none, report that the capture is not
    damaged."""
    tell = rules.tell(WireEvent)[WireEvent.CAPTURE]
    for place in damage or _UNDAMAGED:
        tell(place, _nothing(place.packet, place.time_ns) if damage else _NO_PACKET)


def _nothing(number: int, time_ns: int) -> ObservedPacket:
    """Return the packet of an event that has none."""
    return ObservedPacket(number, time_ns, 0, 0, 0, 0, 0, None, None, (), -1, None, None)


_UNDAMAGED = (DamagedPlace(),)
_NO_PACKET = _nothing(0, 0)


@cache
def _lost_of(forms: tuple[str, ...]) -> frozenset[WireEvent]:
    sealed = bool(forms) and forms[-1].startswith("tss")
    trailer = "icrc" if BTH.name in forms else None if sealed else "crc32c"
    return events_of(forms, trailer) & _AT_THE_END


def lost_of(forms: Sequence[str]) -> frozenset[WireEvent]:
    """Return the events that cannot be judged for a packet with these headers if the capture truncated it."""
    return _lost_of(tuple(forms))


@cache
def _expected_events(kind: Kind, may_have_crc: bool) -> ExpectedEvents:
    lost = frozenset() if kind.whole else lost_of(kind.forms)
    judged = events_of(kind.forms, kind.trailer) - lost
    return ExpectedEvents(tuple(judged), tuple(lost if may_have_crc else lost - {WireEvent.CRC}))


@cache
def events_of(forms: tuple[str, ...], trailer: str | None) -> frozenset[WireEvent]:
    """Return the events that a whole packet with these headers causes. `trailer` is "crc32c", "icrc" or None."""
    found = {event for form, event in (("ipv4", WireEvent.IPV4), ("gre.checksum", WireEvent.GRE)) if form in forms}
    if BTH.name in forms:
        found |= {WireEvent.ROCE_LENGTH, WireEvent.BTH, WireEvent.OPCODE}
        found |= {WireEvent.AETH} if "aeth" in forms else set()
        return frozenset(found | ({WireEvent.ICRC} if trailer == "icrc" else set()))
    found |= {WireEvent.TYPE, WireEvent.LENGTH, WireEvent.HEADERS}
    if "udp" in forms or "ipv4" in forms:
        found.add(WireEvent.NETWORK)
    if trailer == "crc32c":
        found.add(WireEvent.CRC)
    if forms and forms[-1].startswith("tss"):
        found.add(WireEvent.ICV)
    if any("next_hdr" in UET_FORMS[form].names for form in forms if form in UET_FORMS):
        found.add(WireEvent.NEXT_HDR)
    if any(form.startswith("ses.") for form in forms):
        found.add(WireEvent.SES)
    if is_data(forms) and ("ipv4" in forms or "ipv6" in forms):
        found.add(WireEvent.DATA)
    return frozenset(found)


def reserved_type(packet: Packet) -> int | None:
    """Return the type of the first UET header if UET does not define this type. Decoding then stopped at this header.
    Otherwise return None."""
    if packet.error is None or packet.error.kind != "malformed" or len(packet.raw) < 2 or not packet.layers:
        return None
    kind = packet.raw[0] >> 3
    return kind if packet.layers[-1].form in ("udp", "entropy") and kind not in _TYPES else None
