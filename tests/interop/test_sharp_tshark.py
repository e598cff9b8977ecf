# SPDX-License-Identifier: GPL-2.0-only
"""tshark explains SHARP and multicast immediates: every field that `decode` finds, and what is not published marked."""

import random

from tests.support.interop import tshark
from tests.support.interop.sharp_tshark import (
    ASKED,
    same,
)
from tests.support.interop.tshark import needs_tshark
from tests.support.wire.sharp_frames import (
    ERROR,
    JOIN_REQ,
    LOCK_BODY,
    MESSAGES,
    message,
    over_rc,
    over_ud,
    over_uet,
    with_immediate,
)
from uetproto.wire.codec import codec_of
from uetproto.wire.headers.ethernet import ERF, ERF_INFINIBAND
from uetproto.wire.headers.sharp_am import ATTRIBUTES, BODY_SIZE

pytestmark = needs_tshark

EXTENDED = message(0x90, bytes(range(1, 7)), 0x1B88, bytes(range(24)) + bytes(4) + bytes(4), op=2, dtype=8, coll=1)
EXTENDED = EXTENDED[:44] + b"\0" + EXTENDED[45:]  # reserved byte of the target
DATA = (*MESSAGES[::3], JOIN_REQ, ERROR, message(0x20, LOCK_BODY), message(0x30, bytes(range(8))), EXTENDED)
LONG = message(0x10, bytes(2000), 0xD880, op=2, dtype=4, coll=1)


def mads() -> list[bytes]:
    rng = random.Random(1)
    head = bytes.fromhex("010b0202") + bytes(12)
    return [head + key.to_bytes(2, "big") + bytes(46) + rng.randbytes(BODY_SIZE) for key in ATTRIBUTES]


FRAMES = [
    *(over_rc(data, kind) for data in DATA for kind in ("ipv4", "ipv6", "v1")),
    *(over_ud(data) for data in DATA),
    *(over_uet(data, crc=True) for data in DATA),
    *(over_uet(data, pds="pds.rod_req", ipv6=True) for data in DATA),
    *(over_ud(mad, qp=1, q_key=0x80010000) for mad in mads()),
    over_rc(LONG[:1024], opcode=0x00),
    over_uet(LONG[:1024], length=len(LONG), eom=0),
    with_immediate(0x123456_78, 0x65, 0xFFFFFF, b"\xa5" * 40),
    with_immediate(5 << 3, 0x05, 0x12),
    with_immediate(0xDEAD << 3 | 1, 0x05, 0x12),
]


def test_every_field() -> None:
    with tshark.folder() as home:
        shown = tshark.shown(FRAMES, home, *ASKED)
    for frame, one in zip(FRAMES, shown, strict=True):
        same(frame, one)
        assert one is not None
        assert not one.experts & {"malformed", "reserved", "short"}
    assert shown[0] is not None
    assert shown[0].own.values["payload"].replace(":", "") == MESSAGES[0][32:].hex()


def test_native_infiniband() -> None:
    """In ERF records, since this tshark does not know the link type of InfiniBand."""
    frames = []
    for data in DATA:
        for frame in (over_rc(data, "local"), over_rc(data, "global"), over_ud(data, "global")):
            head = {"type": ERF_INFINIBAND, "wlen": len(frame), "rlen": ERF.size + len(frame)}
            frames.append(codec_of(ERF).encode(head) + frame)
    with tshark.folder() as home:
        path = home / "native.pcap"
        tshark.write_pcap(path, frames)
        raw = bytearray(path.read_bytes())
        raw[20:24] = (197).to_bytes(4, "little")
        path.write_bytes(raw)
        shown = tshark.shown_file(path, home, *ASKED)
    for frame, one in zip(frames, shown, strict=True):
        same(frame, one, "erf")


def test_filters_and_marks() -> None:
    frames = [
        *map(over_rc, MESSAGES),
        over_rc(ERROR),
        over_uet(JOIN_REQ),
        with_immediate(0x407, 0x65, 0xFFFFFF, b"\xa5" * 40),
    ]
    with tshark.folder() as home:
        path = home / "example.pcap"
        tshark.write_pcap(path, frames)
        expected = {
            "uetp.sharp": 14,
            "uetp.sharp.opcode == 0x90": 6,
            "uetp.sharp.flags.final == 1": 6,
            "uetp.sharp.flags == 0x1880": 6,
            "uetp.sharp.fault.code == 0x11": 1,
            "uetp.sharp.rank == 0": 1,
            'uetp.origin == "ours"': 14,
            "uetp.expert.error": 1,
            "uetp.mcast.task_id == 7 && uetp.mcast.chunk_id == 4": 1,
        }
        assert dict(zip(expected, tshark.counts(path, home, list(expected), *ASKED), strict=True)) == expected
        # Without the preferences only UET, where the header data says so.
        assert tshark.counts(path, home, ["uetp.sharp || uetp.mcast"]) == [1]
        out, _ = tshark.run(["-r", path, "-V", "-Y", "uetp.sharp", *ASKED], home)
        assert "SHARP base header [ours]" in out
        assert "op: SUM (2) [ours, published codes]" in out
        info = tshark.columns(path, home, *ASKED)
        assert info[0] == ("SHARP", "SHARP AGG_REQ tree 0 group 7 seq 0 ALLREDUCE SUM FLOAT 8 elements")


def test_what_is_no_message() -> None:
    """What contradicts itself is payload over RoCE and malformed over UET; an ordinary PDC has none."""
    broken = [MESSAGES[0][:at] + b"\x03" + MESSAGES[0][at + 1 :] for at in (0, 1, 22, 31)]
    frames = [*map(over_rc, broken), *map(over_uet, broken), over_uet(MESSAGES[0], info=7),
              over_rc(MESSAGES[0], opcode=0x00), over_rc(LONG[1024:], opcode=0x02)]  # fmt: skip
    with tshark.folder() as home:
        shown = tshark.shown(frames, home, *ASKED, "--disable-protocol", "rpcordma", "--disable-protocol", "smb_direct")
    for one in shown[:4] + shown[9:]:
        assert one is None
    for one in shown[4:8]:
        assert one is not None
        assert "malformed" in one.experts
        assert [branch.name for branch in one.branches][-1] == "sharp"
    assert shown[8] is not None
    assert "sharp" not in [branch.name for branch in shown[8].branches]


def test_no_prefix_and_no_flipped_bit_upsets_it() -> None:
    rng = random.Random(5)
    frames: list[tshark.Frame] = []
    for frame in (over_rc(JOIN_REQ), over_uet(EXTENDED, crc=True), over_ud(mads()[4], qp=1, q_key=0x80010000)):
        frames += [(frame[:cut], len(frame)) for cut in range(42, len(frame), 5)]
        for _ in range(60):
            damaged = bytearray(frame)
            damaged[rng.randrange(54, len(frame))] ^= 1 << rng.randrange(8)
            frames.append(bytes(damaged))
    with tshark.folder() as home:
        tshark.shown(frames, home, *ASKED)  # fails on an error in Lua
