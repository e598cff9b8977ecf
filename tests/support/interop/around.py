# SPDX-License-Identifier: GPL-2.0-only
"""This module puts frames into what a capture may have around them: tunnels, headers of other link types, cuts."""

import struct
from random import Random

from uetproto.wire.capture.pcap import ETHERNET

RAW, SLL, SLL2 = 101, 113, 276
LINKS = (ETHERNET, RAW, SLL, SLL2)
"""Link types of the frames that `anywhere` returns."""
TUNNELS = ("vxlan", "geneve", "gre", "gre-ip", "mpls")
SNAPLENS = (60, 96, 128)
IP4, IP6 = 0x0800, 0x86DD
_MACS = bytes.fromhex("020000000001020000000002")


def _ethernet(kind: int, payload: bytes) -> bytes:
    return _MACS + kind.to_bytes(2, "big") + payload


def _ip4(protocol: int, payload: bytes) -> bytes:
    return (
        struct.pack(">BBHHHBBH4s4s", 0x45, 0, 20 + len(payload), 1, 0, 64, protocol, 0, b"\x0a\0\0\1", b"\x0a\0\0\2")
        + payload
    )


def _udp(dport: int, payload: bytes) -> bytes:
    return struct.pack(">HHHH", 50000, dport, 8 + len(payload), 0) + payload


def tunnelled(frame: bytes, name: str) -> bytes:
    """Return an Ethernet frame within a tunnel: vxlan, geneve, gre (of Ethernet), gre-ip, or mpls, of what is behind
    the Ethernet header."""
    kind, inner = int.from_bytes(frame[12:14], "big"), frame[14:]
    if name == "vxlan":
        return _ethernet(IP4, _ip4(17, _udp(4789, b"\x08\0\0\0\0\0\1\0" + frame)))
    if name == "geneve":
        return _ethernet(IP4, _ip4(17, _udp(6081, b"\0\0\x65\x58\0\0\1\0" + frame)))
    if name == "gre":
        return _ethernet(IP4, _ip4(47, b"\0\0\x65\x58" + frame))
    if name == "gre-ip":
        return _ethernet(IP4, _ip4(47, b"\0\0" + kind.to_bytes(2, "big") + inner))
    return _ethernet(0x8847, b"\0\1\1\x40" + inner)


def on_link(frame: bytes, link: int) -> bytes:
    """Return an Ethernet frame with the header of another link type in place of its own."""
    kind, inner = frame[12:14], frame[14:]
    if link == SLL:
        return b"\0\0\0\1\0\6" + frame[6:12] + b"\0\0" + kind + inner
    if link == SLL2:
        return kind + b"\0\0\0\0\0\1\0\1\0\6" + frame[6:12] + b"\0\0" + inner
    return inner if link == RAW else frame


def anywhere(frame: bytes, rng: Random) -> tuple[int, bytes, int]:
    """Return the link type, the bytes and the length of a frame that was put somewhere by chance, and perhaps cut."""
    frame = frame.ljust(14, b"\0")
    link = rng.choice((ETHERNET, ETHERNET, *LINKS))
    if link == ETHERNET and rng.random() < 0.5:
        frame = tunnelled(frame, rng.choice(TUNNELS))
    frame = on_link(frame, link)
    kept = rng.choice((*SNAPLENS, len(frame), len(frame), len(frame)))
    return link, frame[:kept], len(frame) + rng.choice((0, 0, 0, 5))
