# SPDX-License-Identifier: GPL-2.0-only
"""Framers taken apart: what a raw socket and a UDP socket send and receive is what an emulated network carries."""

from collections.abc import Callable

import pytest

from uetproto.emulator.scenario.settings import load
from uetproto.engine.contract import Datagram
from uetproto.engine.roce.config import RoceConfig
from uetproto.engine.roce.contract import RocePacket
from uetproto.framing.framer import LowerHeaders, SplitFramer
from uetproto.framing.roce import RoceFramer
from uetproto.framing.sizes import ETHERNET_SIZE, around_roce, ip_size
from uetproto.framing.tss import Secured
from uetproto.framing.uet import Encapsulation, UetFramer
from uetproto.wire.headers.ethernet import UDP

ENDS = {4: (0x0A00000B, 0x0A00010B), 6: (0xFD00 << 112 | 0x0A00000B, 0xFD00 << 112 | 0x0A00010B)}
HEADER, PAYLOAD = b"\x11\x8c" + bytes(range(10)), bytes(range(200))
BTH = bytes.fromhex("0a70ffff0000001280000005")

Pair = tuple[SplitFramer, SplitFramer]


def uet(version: int, **how: bool) -> Pair:
    a, b = (UetFramer(address, version, Encapsulation(**how)) for address in ENDS[version])
    return a, b


def roce(version: int, icrc: bool = True) -> Pair:
    a, b = (RoceFramer(address, version, RoceConfig(icrc=icrc)) for address in ENDS[version])
    return a, b


def sealed(version: int) -> Pair:
    settings = ["nodes.rank0.ssi=1", "nodes.rank2.ssi=2"] if version == 6 else []
    if version == 6:
        settings += ["nodes.rank0.address=fd00::a00:b", "nodes.rank2.address=fd00::a00:10b"]
    scenario = load("gradient-sealed-direct", settings)
    assert scenario.security is not None
    secured = Secured(scenario.security, lambda: 0)
    a, b = (secured.framer(node, Encapsulation()) for node in scenario.nodes.values())
    return a, b


WAYS: dict[str, Callable[[int], Pair]] = {
    "udp": uet,
    "udp without CRC": lambda version: uet(version, crc=False),
    "native": lambda version: uet(version, udp=False),
    "sealed": sealed,
    "roce": roce,
    "roce without ICRC": lambda version: roce(version, icrc=False),
}


def datagram(way: str, version: int) -> Datagram:
    src, dst = ENDS[version]
    if way.startswith("roce"):
        return RocePacket(src, dst, BTH, PAYLOAD, entropy=0xC028, ip_version=version)
    return Datagram(src, dst, HEADER, PAYLOAD, entropy=0xC028, ip_version=version)


@pytest.mark.parametrize("version", [4, 6])
@pytest.mark.parametrize("way", WAYS)
def test_lower_and_sealed_bytes_are_the_frame(way: str, version: int) -> None:
    """A raw socket sends the bytes of `lower` from the IP header on, then those of `seal`."""
    packet = datagram(way, version)
    a, _ = WAYS[way](version)
    again, _ = WAYS[way](version)  # a sealed packet uses up a counter
    frame = a.frame(packet)
    assert again.lower(packet) + again.seal(packet) == frame
    size = len(packet.header) + len(packet.payload)
    assert len(frame) == len(a.lower(packet)) + size + a.overhead


@pytest.mark.parametrize("version", [4, 6])
@pytest.mark.parametrize("way", WAYS)
def test_sealed_bytes_open_with_what_a_socket_knows(way: str, version: int) -> None:
    """A UDP socket tells addresses, source port and ToS, and no byte below UDP; the result is that of the frame."""
    packet = datagram(way, version)
    a, b = WAYS[way](version)
    transport = a.seal(packet)
    tos = int.from_bytes(a.lower(packet)[14:16], "big") >> (0 if version == 4 else 4) & 0xFF
    lower = LowerHeaders(packet.src, packet.dst, packet.entropy, tos >> 2, tos & 3)
    opened = b.open(transport, lower)
    assert opened is not None
    assert bytes(opened.header) == packet.header + bytes(packet.payload)
    assert (opened.src, opened.dst, opened.entropy) == (packet.src, packet.dst, packet.entropy)
    assert opened.traffic_class is packet.traffic_class
    assert b.open(transport, lower) == opened or way == "sealed"  # which refuses a counter twice or takes it again


@pytest.mark.parametrize("way", ["udp", "native", "sealed", "roce"])
def test_wrong_bytes_do_not_open(way: str) -> None:
    """The check value covers addresses and entropy too, which a socket tells."""
    packet = datagram(way, 4)
    a, b = WAYS[way](4)
    transport = a.seal(packet)
    lower = LowerHeaders(packet.src, packet.dst, packet.entropy, 8)
    damaged = bytes((*transport[:-9], transport[-9] ^ 1, *transport[-8:]))
    assert b.open(damaged, lower) is None
    assert b.open(transport, lower._replace(src=packet.src + 1)) is None
    assert b.open(transport, lower._replace(entropy=packet.entropy ^ 1)) is None
    assert b.open(transport, lower._replace(dst=packet.dst + 1)) is None
    assert b.foreign == 1
    assert b.open(transport, lower) is not None


@pytest.mark.parametrize("version", [4, 6])
def test_sizes_are_those_of_the_frames(version: int) -> None:
    src, dst = ENDS[version]
    write = RocePacket(src, dst, bytes(12 + 16 + 4), PAYLOAD, ip_version=version)
    frame = RoceFramer(src, version, RoceConfig()).frame(write)
    assert len(frame) == ETHERNET_SIZE + around_roce(version) + len(PAYLOAD)
    for udp in (True, False):
        for crc in (True, False):
            how = Encapsulation(udp=udp, crc=crc)
            request = Datagram(src, dst, bytes(12 + 44 + 24), PAYLOAD, ip_version=version)
            frame = UetFramer(src, version, how).frame(request)
            assert len(frame) == ETHERNET_SIZE + how.around(version, extension=24) + len(PAYLOAD)
            assert how.around(version) - how.trailer_size - 56 == ip_size(version) + (UDP.size if udp else 4)
