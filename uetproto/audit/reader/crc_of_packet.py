# SPDX-License-Identifier: GPL-2.0-only
"""This module decides what a single packet tells about its CRC; `wire/flow_crc.py` decides whether the packets of a
flow have a CRC."""

from uetproto.audit.reader.options import Options
from uetproto.wire.codec import codec_of
from uetproto.wire.crc import CRC_SIZE
from uetproto.wire.flow_crc import end_of, ends_with_crc, verdict
from uetproto.wire.forms import FORMS, matches
from uetproto.wire.headers.ethernet import UDP, IpProtocol
from uetproto.wire.headers.roce import BTH, BTH_FOLLOWS, Lnh
from uetproto.wire.headers.uet_pds import ACK, ACK_EPSN
from uetproto.wire.packet import CRC_SUSPECT, Fault, Layer, Packet, Trailer, crc_start, inner_from, network_of
from uetproto.wire.stack import TRIMMED_DSCP

CRC_TOO = "crc32c"
"""Note of a sealed packet whose last bytes are a right CRC32C. By chance, this holds for one ICV in 2^32."""


def mark_wrong(packet: Packet, data: bytes) -> None:
    """Mark the last bytes of the payload as a CRC that is wrong."""
    if packet.trailer is None:
        end = end_of(packet.layers)
        value = int.from_bytes(data[end - CRC_SIZE : end], "big")
        packet.trailer = Trailer("crc32c", value, False)
        packet.payload = packet.payload[:-CRC_SIZE]
        packet.notes = tuple(note for note in packet.notes if note != CRC_SUSPECT)


def mark_absent(packet: Packet, roce: bool) -> None:
    """Mark a packet as one without a CRC. The ICRC of a RoCE packet stays, but is marked as not judged, because the
    capture may have changed it."""
    if packet.trailer is None:
        return
    if roce:
        packet.trailer = packet.trailer._replace(ok=None)
    else:
        packet.payload += packet.trailer.value.to_bytes(CRC_SIZE, "big")
        packet.trailer = None


def _is_at(port: int, options: Options, roce: bool) -> bool:
    return port == (options.roce_port if roce else options.udp_port) or (port, roce) in options.stated_ports


def is_uet(packet: Packet, options: Options) -> bool:
    """Return whether the packet is UET, even if its headers cannot be decoded."""
    for form, values, _ in packet.layers:
        if form == "entropy" or (form == "udp" and _is_at(values["dport"], options, False)):
            return True
        if form in ("ipv4", "ipv6") and values.get("protocol", values.get("next_header")) == options.ip_protocol:
            return True
    return False


def is_roce(packet: Packet, options: Options) -> bool:
    """Return whether the packet is RoCE or InfiniBand, even if its headers cannot be decoded."""
    for form, values, _ in packet.layers:
        if form == BTH.name or (form == "udp" and _is_at(values["dport"], options, True)):
            return True
        if (form == "grh" and values["nxthdr"] == BTH_FOLLOWS) or (form == "lrh" and values["lnh"] == Lnh.LOCAL):
            return True
    return False


def add_udp_after_bad_ip(packet: Packet, data: bytes) -> None:
    """Add the UDP header behind an IP header whose wrong length ended the decoding, because the UDP ports show the
    protocol."""
    form, values, offset = packet.layers[-1] if packet.layers else Layer("", {})
    at = offset + (40 if form == "ipv6" else 20)
    protocol = values.get("protocol", values.get("next_header"))
    if form in ("ipv4", "ipv6") and protocol == IpProtocol.UDP and len(data) >= at + UDP.size:
        packet.layers.append(Layer("udp", codec_of(UDP).decode(data, at), at))
        packet.raw = data[at + UDP.size :]


def reread_as_plain_ack(packet: Packet) -> None:
    """Decode an ACK anew if its `epsn` bit announces a field for which the ACK is too short. The bit then counts as a
    reserved bit that is set (wire.md §3.2)."""
    form, _, offset = packet.layers[-1] if packet.layers else Layer("", {})
    data = packet.raw
    if form in ("udp", "entropy") and len(data) == ACK.size and matches(ACK_EPSN, int.from_bytes(data[:2], "big")):
        packet.layers.append(Layer(ACK.name, codec_of(ACK).decode(data), offset + FORMS[form].size))
        packet.raw = b""
        packet.error = None


def is_crc_right(packet: Packet, data: bytes) -> bool | None:
    """Return whether the CRC32C of a UET packet is right, or None if the packet has no CRC32C or is incomplete.

    The function also changes two kinds of packets (wire.md §3.2). A packet whose CRC shows that its IP length is wrong
    becomes malformed. An ACK with a reserved bit set, which was decoded as an ACK of a later revision without a CRC,
    becomes an ACK with a CRC.
    """
    layers, notes = packet.layers, packet.notes
    if "truncated" in notes or "fragment" in notes:
        return None
    if "trimmed" in notes:
        _unmask_trimmed(packet, data)
        return None
    start, end = crc_start(layers), end_of(layers)
    if layers[-1].form.startswith("tss"):
        if end - start >= CRC_SIZE and end <= len(data) and ends_with_crc(data, layers, end):
            packet.notes = (*notes, CRC_TOO)
        return None
    right = verdict(packet, data)
    if right and layers[-1].form == ACK_EPSN.name and packet.trailer is None:
        _as_plain_ack(packet)
    elif right is False and len(data) > end and ends_with_crc(data, layers, len(data)):
        packet.error = Fault("malformed", start, f"the CRC stands {len(data) - end} bytes behind the end")
        return None
    return right


def _unmask_trimmed(packet: Packet, data: bytes) -> None:
    """Report a packet as malformed, and not as trimmed, if all bytes that its UDP length counts are there. The smaller
    length in its IP header is then wrong."""
    network = network_of(packet.layers)
    udp = next((layer for layer in packet.layers[inner_from(packet.layers) :] if layer.form == "udp"), None)
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
