# SPDX-License-Identifier: GPL-2.0-only
"""Payload on the links, without headers (collectives.md §2)."""

import struct
from itertools import product

import pytest

from tests.support import paths
from tests.support.each import each
from tests.support.emulator.roce_frames import A, B
from uetproto import decode
from uetproto.emulator.network.payload import PayloadSize
from uetproto.engine.contract import Datagram, TrafficClass
from uetproto.engine.roce.config import RoceConfig
from uetproto.engine.roce.contract import RocePacket
from uetproto.framing.dscp import Dscp
from uetproto.framing.roce import RoceFramer, traffic_classes
from uetproto.framing.uet import Encapsulation, UetFramer
from uetproto.impair.trim import trim
from uetproto.wire.capture.pcap import open_capture

CAPTURES = sorted(paths.PCAPS.glob("*.pcapng"))
ROCE = Dscp(data=RoceConfig().dscp, data_rtx=RoceConfig().dscp, control=RoceConfig().cnp_dscp)
UET = Dscp()


@pytest.mark.parametrize("roce", [False, True], ids=["uet", "roce"])
def test_as_decoded(roce: bool) -> None:
    """Every data packet of the golden captures: all modes, operations, encapsulations and lengths."""
    dscp = ROCE if roce else Dscp()
    seen = 0
    for path in CAPTURES:
        if ("roce" in path.name) is roce:
            size = PayloadSize(dscp)
            with open_capture(path) as records:
                for frame in (bytes(record.data) for record in records):
                    expected = len(decode(frame).payload) if dscp.is_data(frame) else 0
                    assert size(frame) == size(frame) == expected, (path, decode(frame))
                    seen += expected > 0
    assert seen > 100


def test_what_is_no_packet_has_none() -> None:
    size = PayloadSize(Dscp())
    for frame in (b"", bytes(14), bytes(12) + b"\x08\x00\x45\x20" + bytes(60)):
        assert size(frame) == 0


# Frames ---------------------------------------------------------------------------------------------------------------

_PDS = bytes.fromhex("1980ffff0001200000010000")
_SES = bytes.fromhex("01090001000000650000000f") + bytes(32)


def uet(payload: bytes, *, udp: bool = True, crc: bool = True, kind: TrafficClass = TrafficClass.DATA) -> bytes:
    return UetFramer(A, 4, Encapsulation(udp=udp, crc=crc)).frame(Datagram(A, B, _PDS + _SES, payload, kind))


def roce(opcode: int, behind: bytes, *, pad: int = 0, version: int = 4, dst: int = B, port: int = 4791) -> bytes:
    """`behind`: all behind the BTH, to the pad."""
    bth = struct.pack(">BBHII", opcode, pad << 4, 0xFFFF, 0x12, 0)
    packet = RocePacket(A, dst, bth, behind, ip_version=version)
    return RoceFramer(A, version, RoceConfig(udp_port=port)).frame(packet)


def sharp(opcode: int, body: bytes = b"", *, flags: int = 0, ext: bytes = b"", version: int = 1) -> bytes:
    """Header, extensions, body and pad (sharp.md §2.2)."""
    head = struct.pack(
        ">BBHIIIIHHBBBBBBH", version << 4 | len(ext) // 4, opcode, 1, 2, 3, 0, 0, len(body) // 4, len(body), 2, 4, 12,
        1, 0, 0, flags,
    )  # fmt: skip
    return head + ext + body + bytes(-len(body) % 4)


RC_ONLY, RC_FIRST, RC_MIDDLE, RC_LAST, RC_IMM, UD_ONLY, UD_IMM = 0x04, 0x00, 0x01, 0x02, 0x05, 0x64, 0x65
DETH = bytes(8)
JOIN, AGG_REQ, AGG_RESULT, LOCK, ERROR = 0x01, 0x10, 0x90, 0x20, 0x7F
UDH, TGT, NODATA = 0x0100, 0x0200, 0x0010


# Frames that are no data ----------------------------------------------------------------------------------------------


def test_only_data_counts() -> None:
    """Control and trimmed frames count nothing, whatever they carry, and whatever came before them."""
    size = PayloadSize(UET)
    frame = uet(bytes(100))
    cut = trim(frame, UET, last_hop=True)
    last = trim(frame, UET, last_hop=False)
    assert cut is not None
    assert last is not None
    for _ in range(2):
        assert size(frame) == 100
        assert size(uet(bytes(100), kind=TrafficClass.DATA_RTX)) == 100
        assert size(uet(bytes(100), kind=TrafficClass.CONTROL)) == 0
        assert size(cut) == size(last) == 0


def test_a_notification_is_no_data() -> None:
    """Its 16 bytes are no payload, and its DSCP is not that of data."""
    config = RoceConfig()
    packet = RocePacket(A, B, bytes.fromhex("8100ffff4000001200000000"), bytes(16), TrafficClass.CONTROL)
    assert PayloadSize(traffic_classes(config))(RoceFramer(A, 4, config).frame(packet)) == 0


# Shapes ---------------------------------------------------------------------------------------------------------------


def test_frames_of_one_length_are_told_apart() -> None:
    """By opcode, by pad, by port, by what PDS and SES begin with: each of these alone changes the payload."""
    size = PayloadSize(ROCE)
    frames = [
        (roce(RC_ONLY, bytes(64)), 64),
        (roce(RC_ONLY, bytes(64), pad=3), 61),
        (roce(RC_IMM, bytes(64)), 60),
        (roce(UD_IMM, bytes(64)), 52),
        (roce(0x0A, bytes(64)), 48),  # RDMA WRITE ONLY
        (roce(0x11, bytes(64)), len(decode(roce(0x11, bytes(64))).payload)),  # ACK
        (roce(RC_ONLY, bytes(64), port=5000), len(decode(roce(RC_ONLY, bytes(64), port=5000)).payload)),
    ]
    assert len({len(frame) for frame, _ in frames}) == 1
    for _ in range(2):
        for frame, expected in frames:
            assert size(frame) == expected
    uets = [uet(bytes(64)), uet(bytes(64), crc=False) + bytes(4)]
    short = bytearray(uet(bytes(64), crc=False))
    short[42 + 12] = 0x10  # no operation has this
    uets.append(bytes(short))
    size = PayloadSize(UET)
    for frame in uets * 2:
        assert size(frame) == len(decode(frame).payload)


def test_lengths_are_told_apart() -> None:
    size = PayloadSize(ROCE)
    for _ in range(2):
        for length in (0, 4, 8, 1024, 4096):
            assert size(roce(RC_ONLY, bytes(length))) == length


def test_the_same_object_is_asked_once() -> None:
    """A copy to a group is the same object on all links."""
    asked = []

    class Classes(Dscp):
        def is_data(self, frame: bytes) -> bool:
            asked.append(frame)
            return super().is_data(frame)

    size = PayloadSize(Classes(data=26, data_rtx=26, control=48))
    frame, other = roce(RC_ONLY, bytes(64)), roce(RC_ONLY, bytes(32))
    assert [size(frame), size(frame), size(other), size(frame)] == [64, 64, 32, 64]
    assert len(asked) == 3


# SHARP ----------------------------------------------------------------------------------------------------------------

MESSAGES = [
    (sharp(AGG_REQ, bytes(128)), 128),
    (sharp(AGG_RESULT, bytes(128)), 128),
    (sharp(AGG_REQ, bytes(4064)), 4064),
    (sharp(AGG_REQ, bytes(127)), 127),  # and a byte of pad
    (sharp(AGG_REQ, bytes(100), flags=UDH, ext=bytes(8)), 100),
    (sharp(AGG_REQ, bytes(100), flags=TGT, ext=bytes(24)), 100),
    (sharp(AGG_REQ, bytes(100), flags=UDH | TGT, ext=bytes(32)), 100),
    (sharp(AGG_REQ, flags=NODATA), 0),
    (sharp(JOIN, bytes(18)), 0),
    (sharp(0x81, bytes(40)), 0),
    (sharp(0x02), 0),
    (sharp(LOCK, bytes(16)), 0),
    (sharp(0xA1, bytes(16)), 0),
    (sharp(0x30, bytes(8)), 0),
    (sharp(ERROR, bytes(40)), 0),
]


@pytest.mark.parametrize(("message", "vector"), MESSAGES)
@pytest.mark.parametrize("version", [4, 6])
def test_vectors_over_roce(message: bytes, vector: int, version: int) -> None:
    size = PayloadSize(ROCE, sharp=True)
    group = 0xE0000001 if version == 4 else 0xFF0E << 112 | 1
    assert size(roce(RC_ONLY, message, version=version)) == vector
    assert size(roce(UD_ONLY, DETH + message, version=version, dst=group)) == vector
    assert PayloadSize(ROCE)(roce(RC_ONLY, message)) == len(message)  # nobody said so


@each("message, vector", MESSAGES)
@each("udp, crc", list(product((True, False), (True, False))))
def test_vectors_over_uet(message: bytes, vector: int, udp: bool, crc: bool) -> None:
    """The mark in the header data says what it is (sharp.md §2.1), in requests with and without congestion control."""
    mark, tree = 0x53485250, 0x00011001
    ses = struct.pack(">BBHIIQIQIII", 5, 0x0F, 1, 7, 0xA6, 0, 0, 0, mark, tree, len(message))
    how = Encapsulation(udp=udp, crc=crc)
    size = PayloadSize(UET, sharp=True)
    for pds in ("118c", "1188", "198c"):
        head = bytes.fromhex(pds) + bytes(10)
        assert size(UetFramer(A, 4, how).frame(Datagram(A, B, head + ses, message))) == vector
    for kind in (13, 14):
        head = bytes([kind << 3 | 1, 0x88]) + bytes(14)
        assert size(UetFramer(A, 4, how).frame(Datagram(A, B, head + ses, message))) == vector


def test_a_message_of_several_packets_counts_with_the_first() -> None:
    message = sharp(AGG_REQ, bytes(2001))
    size = PayloadSize(ROCE, sharp=True)
    parts = [(RC_FIRST, message[:1024]), (RC_MIDDLE, message[1024:1536]), (RC_LAST, message[1536:])]
    assert [size(roce(opcode, part)) for opcode, part in parts] == [2001, 0, 0]


def test_what_does_not_look_like_sharp_counts_as_it_is() -> None:
    size = PayloadSize(ROCE, sharp=True)
    for message in (
        bytes(64),
        sharp(AGG_REQ, bytes(32), version=2),
        sharp(0x11, bytes(32)),  # no opcode
        sharp(AGG_REQ, bytes(32), flags=UDH),  # and no extension
        sharp(AGG_REQ, bytes(24), ext=bytes(8)),  # and no flag
        bytes(8),
        b"",
    ):
        assert size(roce(RC_ONLY, message)) == len(message)
    assert size(roce(RC_IMM, bytes(4) + sharp(AGG_REQ, bytes(32)))) == 64
    assert size(roce(UD_IMM, DETH + bytes(4) + bytes(4096))) == 4096  # a chunk of multicast
    assert PayloadSize(UET, sharp=True)(uet(sharp(AGG_REQ, bytes(32)))) == 64  # without the mark
    assert PayloadSize(UET, sharp=True)(uet(b"")[:43]) == len(decode(uet(b"")[:43]).payload)
