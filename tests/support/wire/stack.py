# SPDX-License-Identifier: GPL-2.0-only
"""This module has layers, and stacks of layers over each lower protocol, for tests of the codec."""

from uetproto import Layer, Packet, Trailer, encode

ETHERNET = Layer("ethernet", {"dst": 0x02000A00010B, "src": 0x02000A00000B, "type": 0x0800})
IPV4 = Layer("ipv4", {"dscp": 8, "ecn": 2, "df": 1, "ttl": 64, "protocol": 17, "src": 0x0A00000B, "dst": 0x0A00010B})
UDP = Layer("udp", {"sport": 0xC000, "dport": 4793})
REQUEST = Layer("pds.rud_req", {"next_hdr": 3, "psn": 7, "clear_psn_offset": -1, "spdcid": 1, "dpdcid": 2})
WRITE = Layer("ses.request_std.som", {"opcode": 1, "eom": 1, "message_id": 1, "request_length": 16})
CRC = Trailer("crc32c", 0)
PAYLOAD = bytes(range(16))


def frame(*layers: Layer, payload: bytes = PAYLOAD, trailer: Trailer | None = CRC, raw: bytes = b"") -> bytes:
    return encode(Packet(list(layers), payload=payload, trailer=trailer, raw=raw), fill=True)


IPV6 = Layer("ipv6", {"dscp": 8, "next_header": 17, "hop_limit": 64, "src": 0xFD << 120 | 2, "dst": 0xFD << 120 | 1})
V6_ETHERNET = Layer("ethernet", {**ETHERNET.values, "type": 0x86DD})
ENTROPY = Layer("entropy", {"entropy": 0xC000})


def tag(vid: int, following: int) -> Layer:
    return Layer("vlan", {"pcp": 3, "vid": vid, "type": following})


def ext(next_header: int, kind: int, size: int) -> Layer:
    """Return an IPv6 extension header of `size` bytes; its length field counts as `kind` does."""
    length = {51: size // 4 - 2, 44: 0}.get(kind, size // 8 - 1)
    return Layer("ipv6.ext", {"raw": bytes([next_header, length]) + bytes(size - 2)})


STACKS = {
    "vlan": (Layer("ethernet", {"type": 0x8100}), tag(5, 0x0800), IPV4, UDP),
    "two vlans": (Layer("ethernet", {"type": 0x88A8}), tag(5, 0x8100), tag(6, 0x86DD), IPV6, UDP),
    "ipv4 options": (ETHERNET, IPV4, Layer("ipv4.options", {"raw": b"\x01" * 8}), UDP),
    "native": (ETHERNET, Layer("ipv4", {**IPV4.values, "protocol": 253}), ENTROPY),
    "native options": (
        ETHERNET, Layer("ipv4", {**IPV4.values, "protocol": 253}),
        Layer("ipv4.options", {"raw": b"\x01" * 40}), ENTROPY,
    ),
    "ipv6": (V6_ETHERNET, IPV6, UDP),
    "native ipv6": (V6_ETHERNET, Layer("ipv6", {**IPV6.values, "next_header": 253}), ENTROPY),
    "hop-by-hop, routing, destination, AH": (
        V6_ETHERNET, Layer("ipv6", {**IPV6.values, "next_header": 0}),
        ext(43, 0, 8), ext(60, 43, 24), ext(51, 60, 16), ext(17, 51, 24), UDP,
    ),
    "atomic fragment": (V6_ETHERNET, Layer("ipv6", {**IPV6.values, "next_header": 44}), ext(17, 44, 8), UDP),
}  # fmt: skip
