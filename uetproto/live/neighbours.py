# SPDX-License-Identifier: GPL-2.0-only
"""This module finds the MAC addresses of neighbours, and answers who asks for ours: ARP (RFC 826) over IPv4, and
neighbour discovery (RFC 4861) over IPv6.

It gets frames and the time, and hands frames to whoever sends them, so it needs no socket.
"""

import struct
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from ipaddress import ip_address

from uetproto.engine.contract import SECOND
from uetproto.framing.sizes import ETHERNET_SIZE, ip_size
from uetproto.live.frames import ICMPV6, pseudo_sum
from uetproto.wire.codec import codec_of
from uetproto.wire.headers.ethernet import IPV6, EtherType, internet_checksum

KEPT, KEPT_IN_ALL = 1024, 4096
"""Largest number of frames that wait for one MAC address, and for all of them."""
MOST = 1024
"""Largest number of neighbours that are known or looked for."""
TRIES, WAIT = 3, SECOND
"""Number of times that a neighbour is asked for, and the time in picoseconds between them."""
LASTS = 30 * SECOND
"""Time in picoseconds for which a MAC address is used until it is asked for again."""

_BROADCAST = b"\xff" * 6
_ARP = struct.Struct("!HHBBH6s4s6s4s")
_ARP_KIND, _IPV6_KIND = ((kind).to_bytes(2, "big") for kind in (0x0806, EtherType.IPV6))
_REQUEST, _REPLY = 1, 2
_SOLICITATION, _ADVERTISEMENT = 135, 136
_SOURCE_OPTION, _TARGET_OPTION = 1, 2
_OVERRIDE, _SOLICITED = 0x20, 0x40
_HOPS = 255
_IP_END = ETHERNET_SIZE + ip_size(6)
_IPV6 = codec_of(IPV6)
_ALL_NODES = int(ip_address("ff02::1"))
_GROUP = int(ip_address("ff02::1:ff00:0"))


@dataclass(slots=True)
class _LinkNeighbour:
    """This class is what is known of one neighbour."""

    mac: bytes | None = None
    asked: int = -WAIT
    """Time of the last question."""
    tries: int = 0
    """Number of questions since the last answer."""
    known: int = 0
    """Time of the last answer."""
    frames: deque[bytes] = field(default_factory=deque)
    """Frames that wait for the MAC address."""


class Neighbours:
    """This class maps the addresses of neighbours on one link to their MAC addresses."""

    def __init__(
        self, local: int, version: int, mac: bytes, *, answers: bool, transmit: Callable[[bytes], None],
        release: Callable[[int, list[bytes]], None], lost: Counter[str],
    ) -> None:  # fmt: skip
        """Begin without neighbours.

        `answers` says that nobody else answers for the address `local`. `transmit` sends a frame of ARP or neighbour
        discovery. `release` gets a neighbour and the frames that waited for it. `lost` counts frames that were dropped,
        by reason.
        """
        self._local, self._version, self._mac, self._answers = local, version, mac, answers
        self._transmit, self._release, self._lost = transmit, release, lost
        self._size = 4 if version == 4 else 16
        self._address = local.to_bytes(self._size, "big")
        self._known: dict[int, _LinkNeighbour] = {}
        self._kept = 0
        self._due = 0

    def mac(self, address: int, now: int) -> bytes | None:
        """Return the MAC address of a neighbour. If it is not known, ask for it and return None."""
        found = self._known.get(address)
        if found is None:
            found = self._add(address)
        if found.mac is None and now - found.asked >= WAIT:
            self._ask(address, found, now)
        return found.mac

    def keep(self, address: int, frame: bytes) -> None:
        """Keep a frame until the MAC address of a neighbour is known. Beyond the limits the oldest frame is lost."""
        frames = self._known[address].frames
        if len(frames) >= KEPT or self._kept >= KEPT_IN_ALL:
            self._lost["more frames than are kept until a MAC address is known"] += 1
            if not frames:
                return
            frames.popleft()
            self._kept -= 1
        frames.append(frame)
        self._kept += 1

    def tick(self, now: int) -> None:
        """Ask again for neighbours that did not answer, and for those of which nothing was heard for long."""
        if now < self._due:
            return
        self._due = now + WAIT // 4
        for address, found in list(self._known.items()):
            if now - found.asked < WAIT:
                continue
            if found.tries >= TRIES:
                self._give_up(address, found)
            elif found.frames or (found.mac is not None and now - found.known >= LASTS):
                self._ask(address, found, now)

    def announce(self) -> None:
        """Tell all neighbours the MAC address of our own address."""
        if self._version == 4:
            self._transmit(self._arp(_REQUEST, _BROADCAST, bytes(6), self._address))
        else:
            self._transmit(self._advertisement(_ALL_NODES, b"\x33\x33\0\0\0\1", _OVERRIDE))

    def take(self, frame: bytes, now: int) -> bool:
        """Learn from a frame of ARP or neighbour discovery, and answer it; return whether it is one."""
        if self._version == 4:
            if frame[12:14] != _ARP_KIND or len(frame) < ETHERNET_SIZE + _ARP.size:
                return False
            self._take_arp(frame, now)
            return True
        if frame[12:14] != _IPV6_KIND or len(frame) < _IP_END + 24 or frame[20] != ICMPV6:
            return False
        if frame[_IP_END] not in (_SOLICITATION, _ADVERTISEMENT):
            return False
        size = int.from_bytes(frame[18:20], "big")
        body = frame[_IP_END : _IP_END + size]
        right = not internet_checksum(pseudo_sum(frame, 6, size, ICMPV6) + body + bytes(size & 1))
        if right and len(body) == size and frame[21] == _HOPS and not body[1]:
            self._take_discovery(frame, body, now)
        return True

    # What is known

    def _add(self, address: int) -> _LinkNeighbour:
        if len(self._known) >= MOST:
            first = next(iter(self._known))
            self._kept -= len(self._known.pop(first).frames)
        found = self._known[address] = _LinkNeighbour()
        return found

    def _learn(self, address: int, mac: bytes, now: int, *, asks_us: bool) -> None:
        """Use what a neighbour says of itself, if it was asked or talks to us."""
        if mac[0] & 1 or not any(mac):
            return
        if address == self._local:
            if mac != self._mac:
                self._lost[f"another host, {mac.hex(':')}, has the address {self._text(address)}, too"] += 1
            return
        found = self._known.get(address)
        if found is None:
            if not asks_us:
                return
            found = self._add(address)
        changed, found.mac = found.mac != mac, mac
        found.known, found.tries = now, 0
        frames = list(found.frames)
        found.frames.clear()
        self._kept -= len(frames)
        if changed or frames:
            self._release(address, frames)

    def _give_up(self, address: int, found: _LinkNeighbour) -> None:
        if found.frames:
            how = "ARP" if self._version == 4 else "neighbour discovery"
            self._lost[f"nobody answers {how} for {self._text(address)}"] += len(found.frames)
        self._kept -= len(found.frames)
        del self._known[address]
        self._release(address, [])

    def _text(self, address: int) -> str:
        return str(ip_address(address.to_bytes(self._size, "big")))

    def _ask(self, address: int, found: _LinkNeighbour, now: int) -> None:
        found.asked, found.tries = now, found.tries + 1
        if self._version == 4:
            self._transmit(self._arp(_REQUEST, _BROADCAST, bytes(6), address.to_bytes(4, "big")))
            return
        group = _GROUP | address & 0xFFFFFF
        body = bytes((_SOLICITATION, 0, 0, 0)) + bytes(4) + address.to_bytes(16, "big") + self._option(_SOURCE_OPTION)
        self._transmit(self._discovery(group, b"\x33\x33" + group.to_bytes(16, "big")[-4:], body))

    # ARP

    def _arp(self, what: int, to: bytes, their_mac: bytes, their_address: bytes) -> bytes:
        body = _ARP.pack(1, EtherType.IPV4, 6, 4, what, self._mac, self._address, their_mac, their_address)
        return to + self._mac + _ARP_KIND + body

    def _take_arp(self, frame: bytes, now: int) -> None:
        hardware, protocol, mac_size, size, what, mac, address, _, target = _ARP.unpack_from(frame, ETHERNET_SIZE)
        if (hardware, protocol, mac_size, size) != (1, EtherType.IPV4, 6, 4) or what not in (_REQUEST, _REPLY):
            return
        to_us = what == _REQUEST and target == self._address
        if any(address):
            self._learn(int.from_bytes(address, "big"), mac, now, asks_us=to_us)
        if to_us and self._answers and mac != self._mac:
            self._transmit(self._arp(_REPLY, mac, mac, address))

    # Neighbour discovery

    def _option(self, kind: int) -> bytes:
        return bytes((kind, 1)) + self._mac

    def _discovery(self, dst: int, dst_mac: bytes, body: bytes) -> bytes:
        """Return a frame of neighbour discovery, with its checksum."""
        ip = _IPV6.encode({
            "payload_length": len(body), "next_header": ICMPV6, "hop_limit": _HOPS, "src": self._local, "dst": dst,
        })  # fmt: skip
        frame = dst_mac + self._mac + _IPV6_KIND + ip + body
        found = internet_checksum(pseudo_sum(frame, 6, len(body), ICMPV6) + body)
        at = _IP_END + 2
        return frame[:at] + found.to_bytes(2, "big") + frame[at + 2 :]

    def _advertisement(self, dst: int, dst_mac: bytes, flags: int) -> bytes:
        body = bytes((_ADVERTISEMENT, 0, 0, 0, flags, 0, 0, 0)) + self._address + self._option(_TARGET_OPTION)
        return self._discovery(dst, dst_mac, body)

    def _take_discovery(self, frame: bytes, body: bytes, now: int) -> None:
        asks = body[0] == _SOLICITATION
        source = int.from_bytes(frame[22:38], "big")
        target = int.from_bytes(body[8:24], "big")
        given = _mac_option(body[24:], _SOURCE_OPTION if asks else _TARGET_OPTION)
        if not asks:
            self._learn(target, given or frame[6:12], now, asks_us=False)
            return
        if target != self._local:
            return
        if source and given is not None:
            self._learn(source, given, now, asks_us=True)
        if self._answers:
            if source:
                self._transmit(self._advertisement(source, given or frame[6:12], _SOLICITED | _OVERRIDE))
            else:  # somebody wants to take the address
                self._transmit(self._advertisement(_ALL_NODES, b"\x33\x33\0\0\0\1", _OVERRIDE))


def _mac_option(options: bytes, kind: int) -> bytes | None:
    """Return the MAC address in the options of neighbour discovery, or None."""
    while len(options) >= 8 and options[1]:
        if options[0] == kind and options[1] == 1:
            return options[2:8]
        options = options[8 * options[1] :]
    return None
