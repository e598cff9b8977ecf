# SPDX-License-Identifier: GPL-2.0-only
"""This module has what a link with Ethernet headers needs to know of frames: VLAN tags, checksums that the kernel left
to the network card, superframes, and ICMP errors."""

import struct
from collections.abc import Container
from typing import NamedTuple

from uetproto.framing.sizes import ETHERNET_SIZE, ip_size
from uetproto.live.sockets import ip_text
from uetproto.wire.headers.ethernet import IPV4, UDP, EtherType, IpProtocol, internet_checksum

MACS = 12
"""Number of bytes of the two MAC addresses at the start of a frame."""
TAG = 4
"""Number of bytes of a VLAN tag."""
ICMP, ICMPV6 = 1, 58
"""Protocol numbers of ICMP and ICMPv6."""

_TAGGED = (0x8100).to_bytes(2, "big")
_VID = 0xFFF
_LENGTH_AT, _CHECKSUM_AT = 4, 6  # offsets in a UDP header
_SHORT = struct.Struct("!H")


def tag(vlan: int, kind: bytes = _TAGGED) -> bytes:
    """Return the VLAN tag that stands behind the MAC addresses: its EtherType `kind`, then priority and VLAN."""
    return kind + _SHORT.pack(vlan)


def untagged(frame: bytes) -> tuple[bytes, int]:
    """Return a frame without its VLAN tag, and its VLAN; 0 stands for none."""
    if frame[MACS : MACS + 2] != _TAGGED or len(frame) < MACS + TAG:
        return frame, 0
    return frame[:MACS] + frame[MACS + TAG :], _SHORT.unpack_from(frame, MACS + 2)[0] & _VID


def pseudo_sum(frame: bytes, version: int, size: int, protocol: int) -> bytes:
    """Return the pseudo-header of an IP packet with `size` bytes behind its IP header (RFC 768, RFC 8200)."""
    end = ETHERNET_SIZE + ip_size(version)
    return frame[end - (8 if version == 4 else 32) : end] + struct.pack("!II", size, protocol)


def with_udp_checksum(frame: bytes, version: int) -> bytes:
    """Return a frame with its UDP checksum filled in. A trimmed packet, whose UDP length is that of the whole packet,
    stays as it is."""
    start, size = ETHERNET_SIZE + ip_size(version), len(frame) - ETHERNET_SIZE - ip_size(version)
    if size < UDP.size or _SHORT.unpack_from(frame, start + _LENGTH_AT)[0] != size:
        return frame
    at = start + _CHECKSUM_AT
    covered = pseudo_sum(frame, version, size, IpProtocol.UDP) + frame[start:at] + b"\0\0" + frame[at + 2 :]
    found = internet_checksum(covered + bytes(size & 1)) or 0xFFFF
    return frame[:at] + found.to_bytes(2, "big") + frame[at + 2 :]


def completed(frame: bytes, start: int, offset: int) -> bytes:
    """Return a frame with the checksum that the kernel left to the network card: over all bytes from `start` on, stored
    `offset` bytes behind `start`, where the sum of the pseudo-header stands."""
    at = start + offset
    if at + 2 > len(frame):
        return frame
    found = internet_checksum(frame[start:] + bytes(len(frame) - start & 1)) or 0xFFFF
    return frame[:at] + found.to_bytes(2, "big") + frame[at + 2 :]


def segments(frame: bytes, start: int, size: int) -> list[bytes]:
    """Return the frames that a superframe of UDP stands for, as the kernel would have sent them.

    Its UDP header begins at `start`, and each frame has `size` bytes of payload, the last one fewer. The identification
    of an IPv4 header counts up.
    """
    version = 4 if frame[MACS : MACS + 2] == _SHORT.pack(EtherType.IPV4) else 6
    if start != ETHERNET_SIZE + ip_size(version) or start + UDP.size > len(frame) or not size:
        return [frame]
    payload, found = frame[start + UDP.size :], []
    for number, at in enumerate(range(0, len(payload), size)):
        part = payload[at : at + size]
        length = UDP.size + len(part)
        head = bytearray(frame[: start + UDP.size])
        _SHORT.pack_into(head, start + _LENGTH_AT, length)
        if version == 4:
            _SHORT.pack_into(head, ETHERNET_SIZE + 2, IPV4.size + length)
            identification = _SHORT.unpack_from(head, ETHERNET_SIZE + 4)[0] + number & 0xFFFF
            _SHORT.pack_into(head, ETHERNET_SIZE + 4, identification)
            _SHORT.pack_into(head, ETHERNET_SIZE + 10, 0)
            _SHORT.pack_into(head, ETHERNET_SIZE + 10, internet_checksum(bytes(head[ETHERNET_SIZE:start])))
        else:
            _SHORT.pack_into(head, ETHERNET_SIZE + 4, length)
        found.append(with_udp_checksum(bytes(head) + part, version))
    return found


_ECHO = {4: (ICMP, 8, 0), 6: (ICMPV6, 128, 129)}
"""Protocol and types of a question and an answer of ping, by IP version."""


def echo_reply(frame: bytes, version: int) -> bytes | None:
    """Return the answer to a frame of ping (RFC 792, RFC 4443), or None if it is none."""
    protocol, request, reply = _ECHO[version]
    start, size = ETHERNET_SIZE + ip_size(version), 4 if version == 4 else 16
    if len(frame) < start + 8 or frame[start : start + 2] != bytes((request, 0)):
        return None
    if version == 4 and (frame[14] & 0xF != 5 or frame[20] & 0x3F or frame[21]):
        return None
    length = _SHORT.unpack_from(frame, 16 if version == 4 else 18)[0] - (IPV4.size if version == 4 else 0)
    if frame[23 if version == 4 else 20] != protocol or not 8 <= length <= len(frame) - start:
        return None
    body = bytes((reply, 0, 0, 0)) + frame[start + 4 : start + length]
    pseudo = b"" if version == 4 else pseudo_sum(frame, version, length, protocol)
    found = internet_checksum(pseudo + body + bytes(length & 1))
    ends = frame[start - size : start] + frame[start - 2 * size : start - size]  # the sum of the IP header stays
    head = frame[6:12] + frame[:6] + frame[MACS : start - 2 * size] + ends
    return head + body[:2] + found.to_bytes(2, "big") + body[4:]


class IcmpError(NamedTuple):
    """This tuple says that somebody on the way, or the peer, did not deliver a packet."""

    source: int
    """Address of whoever says so."""
    dst: int
    """Destination of the packet."""
    words: str
    mtu: int | None
    """Largest packet that the way takes, if that is why."""
    no_owner: bool
    """Whether the destination has nobody for the port or the protocol."""

    def told(self, version: int, peers: Container[int]) -> str:
        """Return the error in words, with the address of whoever says so if it is one of `peers`: that of a router may
        be anything."""
        teller = ip_text(self.source, version) if self.source in peers else "a router"
        return f"ICMP from {teller}: {self.words}"


_WORDS = {
    4: {0: "network unreachable", 1: "host unreachable", 2: "protocol unreachable", 3: "port unreachable",
        4: "packet too big"},
    6: {0: "no route", 1: "administratively prohibited", 3: "address unreachable", 4: "port unreachable"},
}  # fmt: skip
_UNREACHABLE4, _UNREACHABLE6, _TOO_BIG6, _PARAMETER6 = 3, 1, 2, 4
ICMP_ERRORS = {4: (_UNREACHABLE4,), 6: (_UNREACHABLE6, _TOO_BIG6, _PARAMETER6)}
"""Types of ICMP errors, by IP version."""


def icmp_error(frame: bytes, version: int, local: bytes, protocol: int) -> IcmpError | None:
    """Return the ICMP error in a frame that quotes a packet of a protocol from the address `local` (RFC 792, RFC 4443),
    or None."""
    start, size = ETHERNET_SIZE + ip_size(version), 4 if version == 4 else 16
    quoted = start + 8
    from_, ends = quoted + (12 if version == 4 else 8), quoted + (12 if version == 4 else 8) + 2 * size
    if len(frame) < ends or frame[from_ : from_ + size] != local:
        return None
    if (frame[23] if version == 4 else frame[20]) != (ICMP if version == 4 else ICMPV6):
        return None
    if frame[quoted + (9 if version == 4 else 6)] != protocol:
        return None
    kind, code = frame[start], frame[start + 1]
    mtu, words, no_owner = None, "", False
    if version == 4:
        if kind != _UNREACHABLE4:
            return None
        words, no_owner = _WORDS[4].get(code, f"unreachable, code {code}"), code in (2, 3)
        if code == 4:  # fragmentation needed
            mtu = max(_SHORT.unpack_from(frame, start + 6)[0], 576)
    elif kind == _TOO_BIG6:
        words, mtu = "packet too big", max(int.from_bytes(frame[start + 4 : start + 8], "big"), 1280)
    elif kind == _UNREACHABLE6:
        words, no_owner = _WORDS[6].get(code, f"unreachable, code {code}"), code == 4
    elif kind == _PARAMETER6 and code == 1:
        words, no_owner = "protocol unreachable", True
    else:
        return None
    at = ETHERNET_SIZE + (12 if version == 4 else 8)
    source, dst = (int.from_bytes(one, "big") for one in (frame[at : at + size], frame[ends - size : ends]))
    return IcmpError(source, dst, words, mtu, no_owner)
