# SPDX-License-Identifier: GPL-2.0-only
"""RoCEv2 frames of a NIC: the golden frames of roce.md §5 byte for byte, and everything that must not get through."""

import pytest

from uetproto import decode
from uetproto.engine.contract import TrafficClass
from uetproto.engine.roce.config import RoceConfig
from uetproto.engine.roce.contract import RocePacket
from uetproto.framing.roce import RoceFramer, group_mac

V4 = (0x0A000001, 0x0A000002)
V6 = (0xFE80 << 112 | 1, 0xFE80 << 112 | 2)
ECT0_ONLY = RoceConfig(dscp=0)

WRITE = (
    "02000000000202000000000108004502004400004000401126a50a0000010a000002c02812b7003000000a70ffff0000001280000005"
    "0000000020000000000012340000000568656c6c6f00000086cc5390"
)
CNP = (
    "020000000002020000000001080045c0003c00004000401125ef0a0000010a000002c02812b7002800008100ffff40000012000000000000"
    "0000000000000000000000000000e9466808"
)
MULTICAST = (
    "33330000000702000000000186dd6021234500281140fe800000000000000000000000000001ff120000000000000000000000000007"
    "c02812b7002800006540ffff00ffffff00000000111111110000007700000407646174613926d2ef"
)


def packet(frame: str, *, v6: bool = False, **more: object) -> RocePacket:
    """A golden frame from the BTH to the pad."""
    start = 62 if v6 else 42
    data = bytes.fromhex(frame)[start:-4]
    src, dst = V6 if v6 else V4
    return RocePacket(src, dst, data[:12], data[12:], entropy=0xC028, ip_version=6 if v6 else 4, **more)  # type: ignore[arg-type]


def test_golden_write() -> None:
    assert RoceFramer(V4[0], 4, ECT0_ONLY).frame(packet(WRITE))[12:].hex() == WRITE[24:]


def test_golden_notification() -> None:
    """DSCP 48, not ECT, whatever the data has."""
    frame = RoceFramer(V4[0], 4, RoceConfig()).frame(packet(CNP, traffic_class=TrafficClass.CONTROL))
    assert frame[12:].hex() == CNP[24:]


def test_golden_multicast() -> None:
    """Over IPv6: MAC 33:33 and the low 32 bits of the group; flow label; ECT(0)."""
    to_group = packet(MULTICAST, v6=True, flow_label=0x12345)
    to_group.dst = 0xFF12 << 112 | 7
    frame = RoceFramer(V6[0], 6, RoceConfig(dscp=0)).frame(to_group)
    assert frame[:6].hex() == MULTICAST[:12]
    assert frame[12:].hex() == MULTICAST[24:]


@pytest.mark.parametrize(("ecn", "bits"), [("not_ect", 0), ("ect1", 1), ("ect0", 2)])
def test_ecn_of_notifications(ecn: str, bits: int) -> None:
    frame = RoceFramer(V4[0], 4, RoceConfig(cnp_ecn=ecn)).frame(packet(CNP, traffic_class=TrafficClass.CONTROL))
    assert frame[15] == 48 << 2 | bits


@pytest.mark.parametrize("version", [4, 6])
@pytest.mark.parametrize("icrc", [True, False])
def test_there_and_back(version: int, icrc: bool) -> None:
    here, there = V4 if version == 4 else V6
    config = RoceConfig(icrc=icrc)
    sent = RocePacket(here, there, bytes.fromhex(WRITE)[42:54], b"x" * 64, entropy=0xC0DE, ip_version=version)
    framer = RoceFramer(there, version, config)
    frame = RoceFramer(here, version, config).frame(sent)
    for _ in range(2):  # found the first time, remembered the second
        got = framer.packet(frame)
        assert got is not None
        assert (got.src, got.dst, got.entropy, got.ip_version) == (here, there, 0xC0DE, version)
        assert bytes(got.header) == bytes(sent.header) + bytes(sent.payload)
        assert not got.ecn_marked
        assert got.network == b""
    assert (framer.bad_crc, framer.bad_header, framer.foreign) == (0, 0, 0)


def test_network_header_of_datagrams() -> None:
    """UD hands the IP header on: it is the first 40 bytes of the receive (§11)."""
    frame = bytes.fromhex(MULTICAST)
    got = RoceFramer(V6[1], 6, RoceConfig()).packet(frame)
    assert got is not None
    assert got.network == frame[14:54]


def test_marks_are_seen_and_leave_the_icrc_right() -> None:
    """CE, hop limit and IPv4 checksum may change on the way (§4)."""
    frame = bytearray.fromhex(WRITE)
    frame[0:12] = bytes(12)
    frame[15] |= 3
    frame[22] -= 1
    frame[24:26] = b"\0\0"
    total = sum(int.from_bytes(frame[at : at + 2], "big") for at in range(14, 34, 2))
    frame[24:26] = (0xFFFF - (total % 0xFFFF)).to_bytes(2, "big")
    got = RoceFramer(V4[1], 4, RoceConfig()).packet(bytes(frame))
    assert got is not None
    assert got.ecn_marked


@pytest.mark.parametrize("at", [26, 33, 35, 42, 43, 47, 60, 69, 70, -1])
def test_damage_is_dropped(at: int) -> None:
    """Every byte that the ICRC covers: addresses, source port, BTH, payload, pad, and the ICRC itself."""
    frame = bytearray.fromhex(WRITE)
    frame[at] ^= 1
    framer = RoceFramer(V4[1], 4, RoceConfig())
    assert framer.packet(bytes(frame)) is None
    assert framer.bad_crc + framer.bad_header + framer.foreign == 1


def test_variant_byte_of_the_bth() -> None:
    """FECN and BECN may change on the way."""
    frame = bytearray.fromhex(WRITE)
    frame[46] ^= 0xC0
    assert RoceFramer(V4[1], 4, RoceConfig()).packet(bytes(frame)) is not None


@pytest.mark.parametrize("size", range(0, 82, 3))
def test_prefixes_are_dropped(size: int) -> None:
    framer = RoceFramer(V4[1], 4, RoceConfig())
    assert framer.packet(bytes.fromhex(WRITE)[:size]) is None
    assert framer.bad_header + framer.foreign + framer.bad_crc == 1


def test_padding_of_ethernet_is_no_payload() -> None:
    """§1: a SEND of no bytes has 58, and Ethernet pads it to 60: lengths come from IP."""
    sent = RocePacket(*V4, bytes.fromhex(WRITE)[42:54], entropy=0xC0DE)
    frame = RoceFramer(V4[0], 4, RoceConfig()).frame(sent)
    assert len(frame) == 58
    got = RoceFramer(V4[1], 4, RoceConfig()).packet(frame.ljust(60, b"\0"))
    assert got is not None
    assert bytes(got.header) == sent.header


def test_foreign() -> None:
    """Another address, another port, another protocol: not ours, and not wrong."""
    frame = bytes.fromhex(WRITE)
    for framer in (RoceFramer(V4[0], 4, RoceConfig()), RoceFramer(V4[1], 4, RoceConfig(udp_port=4792))):
        assert framer.packet(frame) is None
        assert framer.foreign == 1


def test_group_addresses() -> None:
    """roce.md §11."""
    assert group_mac(0xE0800001, 4) == 0x01005E000001
    assert group_mac(0xFF12 << 112 | 0x12345678, 6) == 0x333312345678


def test_hop_limit_and_label() -> None:
    """Of the packet where it has one, else of the configuration."""
    framer = RoceFramer(V6[0], 6, RoceConfig(hop_limit=9))
    bth = bytes.fromhex(WRITE)[42:54]
    for hop_limit, label, expected in ((0, 0, (9, 0)), (3, 0xABCDE, (3, 0xABCDE))):
        sent = RocePacket(*V6, bth, ip_version=6, hop_limit=hop_limit, flow_label=label)
        ip = decode(framer.frame(sent))["ipv6"]
        assert (ip["hop_limit"], ip["flow_label"]) == expected
