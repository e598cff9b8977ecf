# SPDX-License-Identifier: GPL-2.0-only
"""This module describes packets in words: it has the one-line summary, and short texts that several commands use."""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from uetproto.wire.packet import Layer, Packet
from uetproto.wire.words.roce import roce_summary, roce_tone
from uetproto.wire.words.sharp import sharp_words
from uetproto.wire.words.tenants import tenant_words
from uetproto.wire.words.text import code as code
from uetproto.wire.words.text import count as count
from uetproto.wire.words.text import octets as octets
from uetproto.wire.words.text import ranges as ranges
from uetproto.wire.words.text import span as span
from uetproto.wire.words.uet import pds_words, request_words, response_words, tss_words
from uetproto.wire.words.uet import sack_base as sack_base
from uetproto.wire.words.uet import sacked as sacked

Values = Mapping[str, Any]

# Short texts ----------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=4096)
def address(value: int, bits: int) -> str:
    """Return an address as text. `bits` tells its type: 16 for a LID, 32 for IPv4, 128 for IPv6, otherwise a MAC
    address. Above these 8 bits is the number of the network (`wire.words.tenants`)."""
    if bits > 0xFF:
        return f"{address(value, bits & 0xFF)} {tenant_words(bits >> 8)}"
    if bits == 16:
        return f"LID {value}"
    raw = value.to_bytes(bits // 8, "big")
    if bits == 32:
        return ".".join(map(str, raw))
    if bits == 128:
        from ipaddress import IPv6Address  # costs a millisecond, and few captures need it

        return str(IPv6Address(raw))
    return raw.hex(":")


def stamp(ns: int) -> str:
    """Return a time since the first packet as text with nanosecond precision. `ns` is the time in nanoseconds."""
    size = abs(ns)
    if size < 1_000_000:
        return f"{ns / 1e3:.3f} µs"
    if size < 1_000_000_000:
        return f"{ns / 1e6:.6f} ms"
    return f"{ns // 1_000_000_000 if ns > 0 else -(size // 1_000_000_000)}.{size % 1_000_000_000:09d} s"


def duration(ns: int) -> str:
    """Return a duration as text with about three digits: "340 ns", "1.05 ms", "62.8 s". `ns` is the duration in
    nanoseconds."""
    for unit, name in ((1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "µs")):
        value = ns / unit
        if value >= 0.9995:
            return f"{value:.0f} {name}" if value >= 99.95 else f"{value:.3g} {name}"
    return f"{ns} ns"


# Meaning of fields that belong together ---------------------------------------------------------------------------


def pds_layer(packet: Packet) -> Layer | None:
    """Return the packet delivery header. It is None if the packet has no such header, or if this header is sealed."""
    return next((layer for layer in packet.layers if layer.form.startswith("pds.")), None)


def ses_layer(packet: Packet) -> Layer | None:
    """Return the SES request or response header. It is None if the packet has no such header, or if this header is
    sealed."""
    return next((layer for layer in packet.layers if layer.form.startswith("ses.")), None)


def hosts(packet: Packet) -> tuple[int, int, int] | None:
    """Return the source address, the destination address, and the number of bits of such an address (IP, GID or LID).
    Return None if the packet has no addresses."""
    for form, values, _ in reversed(packet.layers):
        if form == "ipv4":
            return values["src"], values["dst"], 32
        if form == "ipv6":
            return values["src"], values["dst"], 128
        if form == "grh":
            return values["sgid"], values["dgid"], 128
    for form, values, _ in packet.layers:
        if form == "lrh":
            return values["slid"], values["dlid"], 16
    return None


def from_to(packet: Packet) -> str:
    """Return the sender and the receiver as text: "10.0.0.1 → 10.0.0.2". Without IP these are MAC addresses; the text
    is empty if the packet has no addresses at all."""
    found = hosts(packet)
    if found is None:
        for form, values, _ in reversed(packet.layers):
            if form == "ethernet":
                found = values["src"], values["dst"], 48
                break
    return f"{address(found[0], found[2])} → {address(found[1], found[2])}" if found else ""


_TUNNELS = {
    "vxlan": ("VXLAN", "vni"), "geneve": ("GENEVE", "vni"), "gre": ("GRE", ""), "gre.key": ("key", "key"),
    "erspan.ii": ("ERSPAN", "session_id"), "erspan.iii": ("ERSPAN", "session_id"), "mpls": ("MPLS", "label"),
}  # fmt: skip


def tunnel_words(packet: Packet) -> str:
    """Return the tunnels of a packet, the outermost first: "GRE, VXLAN 4242". The text is empty without a tunnel."""
    found = [(*_TUNNELS[form], values) for form, values, _ in packet.layers if form in _TUNNELS]
    return ", ".join(f"{name} {values[field]}" if field else name for name, field, values in found)


def tone(packet: Packet) -> str:
    """Return the category of a packet, which decides its colour: bad, trimmed, nack, retx, control, ack, data, or other
    (not UET)."""
    if packet.error is not None:
        return "bad" if packet.error.kind == "malformed" else "other"
    if packet.trailer is not None and packet.trailer.ok is False:
        return "bad"
    if "trimmed" in packet.notes:
        return "trimmed"
    if "bth" in packet:
        return roce_tone(packet)
    layer = pds_layer(packet)
    if layer is None:
        return "control" if "pfc" in packet else "data"
    kind = layer.form.split(".")[1]
    if kind.startswith("nack"):
        return "nack"
    if kind.startswith("ack") or kind == "rudi_resp":
        return "ack"
    if layer.values.get("retx"):
        return "retx"
    return "control" if kind == "cp" else "data"


# The summary ----------------------------------------------------------------------------------------------------------


def summary(packet: Packet) -> str:
    """Return the summary of a packet in one line: "ROD_REQ SYN PSN 73728 · WRITE id 1 0–4096 of 12288".

    Marks in brackets follow the summary: [trimmed], [truncated], [crc-suspect], [CRC BAD] or [ICV BAD], [opened] for a
    packet that was sealed, [ECN] if a switch marked congestion, and [malformed].
    """
    parts = []
    for layer in packet.layers:
        top = layer.form.split(".", 1)[0]
        if top == "tss" and "sealed" in packet.notes:
            parts += [tss_words(layer.values), octets(len(packet.payload))]
        elif top == "pds" and not parts:
            parts.append(pds_words(layer.form, layer.values))
        elif top == "ses" and len(parts) == 1:
            parts.append(_ses(layer, packet))
        elif top == "bth":
            parts.append(roce_summary(packet))
        elif top in ("sharp", "mcast"):
            parts.append(sharp_words(layer.form, layer.values))
        elif top == "pfc":
            parts.append(_pfc(layer.values))
    error = packet.error
    if not parts and error is not None and error.kind == "unknown":
        parts.append(error.reason)
    elif not parts:
        parts.append("a fragment" if "fragment" in packet.notes else packet.layers[-1].form if packet.layers else "")
    marks = [note for note in packet.notes if note in ("trimmed", "truncated", "crc-suspect")]
    trailer = packet.trailer
    if trailer is not None and trailer.ok is False:
        marks.append("ICV BAD" if trailer.kind == "icv" else "CRC BAD")
    elif trailer is not None and trailer.kind == "icv" and trailer.ok:
        marks.append("opened")
    for form, values, _ in packet.layers:
        if form in ("ipv4", "ipv6") and values["ecn"] == 3:
            marks.append("ECN")
    if error is not None and error.kind == "malformed":
        marks.append("malformed")
    return " ".join((" · ".join(filter(None, parts)), *(f"[{mark}]" for mark in marks))).strip()


def _pfc(values: Values) -> str:
    classes = [f"class {i} {values[f'pause{i}'] or 'resume'}" for i in range(8) if values["enable"] >> i & 1]
    return " ".join(("PFC", ", ".join(classes)))


def _ses(layer: Layer, packet: Packet) -> str:
    if layer.form.startswith("ses.response"):
        return response_words(layer.values)
    end = packet.payload_offset + len(packet.payload) + len(packet.pad)
    cut = "trimmed" in packet.notes or "truncated" in packet.notes
    return request_words(layer.values, packet.layers, None if cut else end - layer.offset - layer.size)
