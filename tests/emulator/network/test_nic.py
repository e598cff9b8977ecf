# SPDX-License-Identifier: GPL-2.0-only
"""Packets become frames and frames packets, in one place."""

from itertools import product

import pytest

from uetproto import Packet, decode, encode
from uetproto.engine.contract import Datagram, TrafficClass, Trim
from uetproto.framing.framer import mac_of
from uetproto.framing.sizes import UET_REQUEST
from uetproto.framing.uet import Encapsulation, UetFramer

V4 = (0x0A00000B, 0x0A00010B)
V6 = (0xFD00 << 112 | 0x0A00000B, 0xFD00 << 112 | 0x0A00010B)
REQUEST = bytes.fromhex("1980ffff000120000001000001090001000000650000000f") + bytes(28) + b"\0\0\x10\0"
ACK = bytes.fromhex("3a00000000012000000100020001000100000065") + bytes(4)
KINDS = list(product((True, False), (True, False), (4, 6)))


def packet(version: int, payload: bytes = bytes(range(256)) * 16, **more: object) -> Datagram:
    src, dst = V4 if version == 4 else V6
    return Datagram(src, dst, REQUEST, payload, entropy=0xBEEF, ip_version=version, **more)  # type: ignore[arg-type]


def framers(version: int, how: Encapsulation) -> tuple[UetFramer, UetFramer]:
    src, dst = V4 if version == 4 else V6
    return UetFramer(src, version, how), UetFramer(dst, version, how)


@pytest.mark.parametrize(("udp", "crc", "version"), KINDS)
def test_frame_is_what_the_codec_makes(udp: bool, crc: bool, version: int) -> None:
    """The patched template against `encode(fill=True)`."""
    how = Encapsulation(udp=udp, crc=crc)
    sent = packet(version)
    frame = framers(version, how)[0].frame(sent)
    assert len(frame) == 14 + how.around(version) - UET_REQUEST + len(REQUEST) + 4096
    decoded = decode(frame, crc="on" if crc else "off")
    assert decoded.error is None
    assert decoded.notes == ()
    assert decoded.payload == sent.payload
    assert (decoded.trailer is not None and decoded.trailer.ok is True) is crc
    assert encode(Packet(decoded.layers, decoded.payload, decoded.trailer), fill=True) == frame
    ip = decoded[f"ipv{version}"]
    assert (ip["src"], ip["dst"], ip["dscp"], ip["ecn"]) == (sent.src, sent.dst, 8, 2)
    assert decoded["ethernet"]["src"] == mac_of(sent.src)
    if version == 4:
        assert (ip["df"], ip["ttl"], ip["identification"]) == (1, 64, 0)
    if udp:
        assert (decoded["udp"]["sport"], decoded["udp"]["checksum"]) == (0xBEEF, 0)
    else:
        assert decoded["entropy"]["entropy"] == 0xBEEF


@pytest.mark.parametrize(("udp", "crc", "version"), KINDS)
def test_there_and_back(udp: bool, crc: bool, version: int) -> None:
    here, there = framers(version, Encapsulation(udp=udp, crc=crc))
    for _ in range(2):  # built, then looked up
        for payload in (b"", b"x", bytes(4096)):
            sent = packet(version, payload)
            got = there.packet(here.frame(sent))
            assert got is not None
            assert (got.src, got.dst, got.entropy, got.ip_version) == (sent.src, sent.dst, 0xBEEF, version)
            assert bytes(got.header) == REQUEST + payload
            assert (got.payload, got.ecn_marked, got.trimmed) == (b"", False, Trim.NO)
    assert (there.bad_crc, there.bad_header, there.foreign) == (0, 0, 0)


def test_mac() -> None:
    assert mac_of(V4[0]).to_bytes(6, "big").hex(":") == "02:00:0a:00:00:0b"


@pytest.mark.parametrize(
    ("traffic_class", "dscp", "ecn"),
    [(TrafficClass.DATA, 8, 2), (TrafficClass.DATA_RTX, 10, 2), (TrafficClass.CONTROL, 46, 0)],
)
def test_traffic_classes(traffic_class: TrafficClass, dscp: int, ecn: int) -> None:
    here, there = framers(4, Encapsulation())
    frame = here.frame(packet(4, traffic_class=traffic_class))
    ip = decode(frame)["ipv4"]
    assert (ip["dscp"], ip["ecn"]) == (dscp, ecn)
    got = there.packet(frame)
    assert got is not None
    assert got.traffic_class is traffic_class


@pytest.mark.parametrize("version", [4, 6])
def test_congestion_mark_arrives(version: int) -> None:
    here, there = framers(version, Encapsulation())
    marked = decode(here.frame(packet(version)))
    marked[f"ipv{version}"]["ecn"] = 3  # type: ignore[index]
    got = there.packet(encode(marked, fill=True))
    assert got is not None
    assert got.ecn_marked


@pytest.mark.parametrize(("udp", "version"), list(product((True, False), (4, 6))))
def test_no_single_bit_passes_unnoticed(udp: bool, version: int) -> None:
    """The CRC sees most, the IPv4 checksum the rest; of IPv6 only the harmless is left."""
    how = Encapsulation(udp=udp)
    here, there = framers(version, how)
    frame = here.frame(packet(version, b"payload"))
    good = there.packet(frame)
    assert good is not None
    unseen = set()
    for bit in range(14 * 8, len(frame) * 8):
        damaged = bytearray(frame)
        damaged[bit // 8] ^= 0x80 >> bit % 8
        got = there.packet(bytes(damaged))
        if got is not None:
            unseen.add(bit // 8 - 14)
            assert got.header == good.header
    harmless = {0, 1, 2, 3, 7} if version == 6 else set()  # class, flow label, hop limit
    if udp:
        harmless |= {(20 if version == 4 else 40) + at for at in (6, 7)}  # the UDP checksum is not looked at
    assert unseen <= harmless
    assert there.bad_crc > 0
    assert there.bad_crc + there.bad_header + there.foreign + len(unseen) > 0


def test_cut_frames_never_raise() -> None:
    here, there = framers(4, Encapsulation())
    frame = here.frame(packet(4))
    assert there.packet(frame) is not None
    for size in (*range(110), 1000, len(frame) - 1):
        assert there.packet(frame[:size]) is None
    assert there.packet(frame + b"padding") is not None


def test_a_frame_for_another_host_is_counted() -> None:
    here, _ = framers(4, Encapsulation())
    other = UetFramer(0x0A000099, 4, Encapsulation())
    assert other.packet(here.frame(packet(4))) is None
    assert other.foreign == 1
    assert UetFramer(V4[1], 4, Encapsulation(udp_port=4794)).packet(here.frame(packet(4))) is None
    assert UetFramer(V4[1], 4, Encapsulation(udp=False)).packet(here.frame(packet(4))) is None


def test_memory_of_headers_is_bounded() -> None:
    here, there = framers(4, Encapsulation())
    for size in range(20_000):
        assert there.packet(here.frame(packet(4, bytes(size)))) is not None
    assert 0 < len(here._heads) <= 8192
    assert 0 < len(there._flows) <= 8192


@pytest.mark.parametrize(("udp", "crc", "version"), KINDS)
def test_packets_of_a_flow_share_headers_whatever_their_entropy(udp: bool, crc: bool, version: int) -> None:
    here, there = framers(version, Encapsulation(udp=udp, crc=crc))
    for entropy in (0, 1, 0x1234, 0xFFFF):
        sent = packet(version)
        sent.entropy = entropy
        frame = here.frame(sent)
        received, decoded = there.packet(frame), decode(frame, crc="on" if crc else "off")
        assert received is not None
        assert received.entropy == entropy == (decoded["udp"]["sport"] if udp else decoded["entropy"]["entropy"])
        assert (decoded.trailer is not None and decoded.trailer.ok is True) is crc
    assert len(here._heads) == len(there._flows) == 1
