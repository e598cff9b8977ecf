"""No packet says whether it ends with a CRC, hence this module watches each flow until that is clear (wire.md §7).

One right CRC32C proves that a flow has CRCs. A flow whose first packets have none has none. Until that is decided,
packets without a right CRC are queued, and with them all packets between the same two addresses, in their order.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from uetproto.audit.reader.observed import ObservedPacket
from uetproto.audit.reader.options import Options
from uetproto.wire.codec import codec_of
from uetproto.wire.crc import CRC_SIZE, trailer_crc
from uetproto.wire.forms import FORMS, matches
from uetproto.wire.headers.ethernet import UDP, IpProtocol
from uetproto.wire.headers.roce import BTH, BTH_FOLLOWS, Lnh
from uetproto.wire.headers.uet_pds import ACK, ACK_EPSN
from uetproto.wire.packet import Fault, Layer, Packet, Trailer, crc_start, network_of, udp_checksum_at
from uetproto.wire.stack import TRIMMED_DSCP

PATIENCE = 16
"""Number of packets after which it is decided whether a flow has a CRC."""
_HELD_BETWEEN_TWO = 64
_HELD = 16_384
_FLOWS = 1 << 18

Hosts = tuple[int, int]
"""A flow is identified by its source and destination addresses."""


class UndecidedPacket(NamedTuple):
    """An undecided packet waits until it is known whether its flow has a CRC."""

    seen: ObservedPacket
    packet: Packet
    data: bytes
    right: bool | None
    """Whether the CRC of the packet is right; None if the packet need not have a CRC, or the CRC was not captured."""
    roce: bool


CRC_TOO = "crc32c"
"""Note that a sealed packet ends with a right CRC32C; an ICV looks like one by chance once in 2^32."""


@dataclass(slots=True)
class _Queue:
    """A queue holds the packets between two addresses."""

    packets: list[UndecidedPacket] = field(default_factory=list)
    undecided: set[tuple[Hosts, bool]] = field(default_factory=set)


class KnownFlows(dict[Hosts, bool]):
    """This table keeps whether the packets of a flow have a CRC. When it is full, all flows are forgotten."""

    def __setitem__(self, flow: Hosts, there: bool) -> None:
        if len(self) >= _FLOWS:
            self.clear()
        super().__setitem__(flow, there)


class FlowCrc:
    """This object decides for each flow of one vantage point whether its packets have a CRC."""

    def __init__(self, mode: str, out: Callable[[UndecidedPacket], None]) -> None:
        """Hand each packet to `out`. `mode`: "on", UET packets end with a CRC32C, and ICRCs are as sent; "off", no
        CRC32C; "auto", each flow is decided by its packets.
        """
        self.crc32c = KnownFlows()
        self.icrc = KnownFlows()
        self._always = {"on": True, "off": False}.get(mode)
        self._out = out
        self._without: dict[tuple[Hosts, bool], list[int]] = {}
        """Number of packets of undecided flows that lack a right CRC, and of those that are long enough for one."""
        self.held: dict[frozenset[int], _Queue] = {}
        self._number = 0

    def take(self, waiting: UndecidedPacket) -> None:
        """Take a packet, in the order of capture."""
        seen = waiting.seen
        flow = seen.src, seen.dst
        if waiting.right:
            (self.icrc if waiting.roce else self.crc32c)[flow] = True
        undecided = waiting.right is False and self._decided(flow, waiting.roce) is None
        queue = self.held.get(frozenset(flow)) if self.held else None
        if queue is None and not undecided:
            self._hand_on(waiting)
            return
        if queue is None:
            queue = self.held.setdefault(frozenset(flow), _Queue())
        queue.packets.append(waiting)
        self._number += 1
        if undecided:
            queue.undecided.add((flow, waiting.roce))
            votes = self._without.setdefault((flow, waiting.roce), [0, 0])
            votes[0] += 1
            votes[1] += waiting.packet.trailer is not None
            if votes[0] >= PATIENCE:
                self._settle(flow, waiting.roce)
        if len(queue.packets) >= _HELD_BETWEEN_TWO:
            for undecided_flow, roce in queue.undecided:
                self._settle(undecided_flow, roce)
        if all(self._decided(*each) is not None for each in queue.undecided):
            self._release(frozenset(flow))
        elif self._number >= _HELD:
            self.end()

    def end(self) -> None:
        """Decide the remaining flows by the packets seen so far: no packet follows."""
        for flow, roce in list(self._without):
            if roce and any(self.icrc.values()):
                self.icrc[flow] = True  # another flow has a right ICRC, so the capture did not change all
            self._settle(flow, roce)
        for pair in list(self.held):
            self._release(pair)

    def _decided(self, flow: Hosts, roce: bool) -> bool | None:
        if roce and not self._always:
            there = self.icrc.get(flow)
            return self.icrc.get(flow[::-1]) if there is None else there
        return self.crc32c.get(flow) if self._always is None else self._always

    def _settle(self, flow: Hosts, roce: bool) -> None:
        without, placed = self._without.pop((flow, roce), (0, 0))
        if self._decided(flow, roce) is None:
            known = self.icrc if roce else self.crc32c
            known[flow] = not roce and placed * 2 >= without

    def _release(self, pair: frozenset[int]) -> None:
        queue = self.held.pop(pair)
        self._number -= len(queue.packets)
        for flow, roce in queue.undecided:
            self._without.pop((flow, roce), None)
        for waiting in queue.packets:
            self._hand_on(waiting)

    def _hand_on(self, waiting: UndecidedPacket) -> None:
        seen, packet, data, right, roce = waiting
        if right is False and self._decided((seen.src, seen.dst), roce):
            _mark_wrong(packet, data)
            waiting = waiting._replace(seen=seen._replace(packet=packet))
        elif right is False:
            _mark_absent(packet, roce)
        self._out(waiting)


def _mark_wrong(packet: Packet, data: bytes) -> None:
    """Mark the last bytes as a CRC that is wrong."""
    if packet.trailer is None:
        end = _end(packet.layers)
        value = int.from_bytes(data[end - CRC_SIZE : end], "big")
        packet.trailer = Trailer("crc32c", value, False)
        packet.payload = packet.payload[:-CRC_SIZE]


def _mark_absent(packet: Packet, roce: bool) -> None:
    """Mark a packet as one without CRC; an ICRC that the capture changed cannot be judged."""
    if packet.trailer is None:
        return
    if roce:
        packet.trailer = packet.trailer._replace(ok=None)
    else:
        packet.payload += packet.trailer.value.to_bytes(CRC_SIZE, "big")
        packet.trailer = None


# One packet ----------------------------------------------------------------------------------------------------------


def is_uet(packet: Packet, options: Options) -> bool:
    """Return whether the packet is UET, readable or not."""
    for form, values, _ in packet.layers:
        if form == "entropy" or (form == "udp" and values["dport"] == options.udp_port):
            return True
        if form in ("ipv4", "ipv6") and values.get("protocol", values.get("next_header")) == options.ip_protocol:
            return True
    return False


def is_roce(packet: Packet, options: Options) -> bool:
    """Return whether the packet is RoCE or InfiniBand, readable or not."""
    for form, values, _ in packet.layers:
        if form == BTH.name or (form == "udp" and values["dport"] == options.roce_port):
            return True
        if (form == "grh" and values["nxthdr"] == BTH_FOLLOWS) or (form == "lrh" and values["lnh"] == Lnh.LOCAL):
            return True
    return False


def add_udp_after_bad_ip(packet: Packet, data: bytes) -> None:
    """Add the UDP header behind an IP header whose wrong length ended the decoding: its ports show the protocol."""
    form, values, offset = packet.layers[-1] if packet.layers else Layer("", {})
    at = offset + (40 if form == "ipv6" else 20)
    protocol = values.get("protocol", values.get("next_header"))
    if form in ("ipv4", "ipv6") and protocol == IpProtocol.UDP and len(data) >= at + UDP.size:
        packet.layers.append(Layer("udp", codec_of(UDP).decode(data, at), at))
        packet.raw = data[at + UDP.size :]


def reread_as_plain_ack(packet: Packet) -> None:
    """Read an ACK that is too short for its `epsn` as an ACK with a reserved bit set (wire.md §3.2)."""
    form, _, offset = packet.layers[-1] if packet.layers else Layer("", {})
    data = packet.raw
    if form in ("udp", "entropy") and len(data) == ACK.size and matches(ACK_EPSN, int.from_bytes(data[:2], "big")):
        packet.layers.append(Layer(ACK.name, codec_of(ACK).decode(data), offset + FORMS[form].size))
        packet.raw = b""
        packet.error = None


def is_crc_right(packet: Packet, data: bytes) -> bool | None:
    """Return whether the CRC32C of a UET packet is right; None if the packet has no CRC32C or is incomplete.

    A packet whose IP length is wrong, as the CRC shows, becomes malformed; an ACK in which a reserved bit is set, and
    which looks like one of a later revision without a CRC, becomes an ACK with a CRC (wire.md §3.2).
    """
    layers = packet.layers
    start, end = crc_start(layers), _end(layers)
    if {"truncated", "fragment"} & set(packet.notes):
        return None
    if "trimmed" in packet.notes:
        _unmask_trimmed(packet, data)
        return None
    if packet.layers[-1].form.startswith("tss"):
        if end - start >= CRC_SIZE and end <= len(data) and _is_right(data, start, end, udp_checksum_at(layers)):
            packet.notes = (*packet.notes, CRC_TOO)
        return None
    if end > len(data) or end - start < CRC_SIZE or (packet.trailer and packet.trailer.ok is None):
        return None
    checksum = udp_checksum_at(layers)
    if packet.trailer is not None and packet.trailer.ok:
        return True
    if _is_right(data, start, end, checksum):
        if layers[-1].form == ACK_EPSN.name:
            _as_plain_ack(packet)
        return True
    if len(data) > end and _is_right(data, start, len(data), checksum):
        packet.error = Fault("malformed", start, f"the CRC stands {len(data) - end} bytes behind the end")
        return None
    return False


def _is_right(data: bytes, start: int, end: int, checksum: int | None) -> bool:
    value = int.from_bytes(data[end - CRC_SIZE : end], "big")
    return trailer_crc(data, start, end - CRC_SIZE, checksum) == value


def _unmask_trimmed(packet: Packet, data: bytes) -> None:
    """Make a packet that was taken for trimmed malformed if none of its bytes are missing: then the IP length is wrong,
    as the UDP length is greater."""
    network = network_of(packet.layers)
    udp = next((layer for layer in packet.layers if layer.form == "udp"), None)
    if udp is None or network.values["dscp"] in TRIMMED_DSCP:
        return
    if udp.offset + udp.values["length"] <= len(data):
        packet.notes = tuple(note for note in packet.notes if note != "trimmed")
        packet.error = Fault("malformed", network.offset, f"udp.length {udp.values['length']} is more than IP carries")


def _as_plain_ack(packet: Packet) -> None:
    _, values, offset = packet.layers[-1]
    *fields, crc = values.values()
    packet.layers[-1] = Layer(ACK.name, dict(zip(ACK.names, fields, strict=True)), offset)
    packet.trailer = Trailer("crc32c", crc, True)


def _end(layers: list[Layer]) -> int:
    """Return where UET ends, by IP and UDP."""
    network = network_of(layers)
    values = network.values
    end: int = network.offset + values.get("total_length", 40 + values.get("payload_length", 0))
    for form, fields, offset in layers:
        if form == "udp":
            end = min(end, offset + fields["length"])
    return end
