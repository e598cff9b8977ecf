# SPDX-License-Identifier: GPL-2.0-only
"""SHARP and multicast immediates in Construct, Scapy and columns: what `decode` says."""

import random
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from construct import ConstructError
from hypothesis import given
from hypothesis import strategies as st
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether

from tests.support.columns import agrees, write
from tests.support.effort import examples
from tests.support.schemas import layers_in
from tests.support.wire.sharp_frames import (
    CARRIERS,
    ERROR,
    JOIN_REQ,
    LINKS,
    LOCK_BODY,
    MESSAGES,
    message,
    messages,
    over_rc,
    over_ud,
    over_uet,
    with_immediate,
)
from uetproto import decode
from uetproto import layers as uet
from uetproto.schemas import SCHEMAS, SHARP
from uetproto.wire.capture import pcap
from uetproto.wire.forms import MCAST_FORMS, SHARP_FORMS
from uetproto.wire.headers.sharp_am import ATTRIBUTES

LOCK = message(0x20, LOCK_BODY)
MAD = bytes.fromhex("010b0202") + bytes(12) + bytes.fromhex("0023") + bytes(46) + bytes.fromhex("003f0101") + bytes(188)


@pytest.fixture(autouse=True)
def _bound() -> Iterator[None]:
    uet.bind_roce()
    uet.bind_sharp()
    uet.bind_mcast()
    yield
    uet.unbind_mcast()
    uet.unbind_sharp()
    uet.unbind_roce()


# Construct ------------------------------------------------------------------------------------------------------------


@examples(60)
@given(messages())
def test_schema_of_messages(data: bytes) -> None:
    frame = over_rc(data)
    found = [layer for layer in decode(frame, sharp=True).layers if layer.form in SHARP_FORMS]
    parsed = SHARP.parse(data)
    assert layers_in(parsed) == [(layer.form, dict(layer.values)) for layer in found]
    assert SHARP.build(parsed) == data


def test_names_of_codes_and_bits() -> None:
    parsed = SCHEMAS["sharp"].parse(MESSAGES[6])
    assert (parsed.opcode, parsed.op, parsed.dtype, parsed.coll) == ("AGG_RESULT", "SUM", "FLOAT", "ALLREDUCE")
    assert str(parsed.flags) == "FIRST|LAST|REPRO|FINAL"
    assert parsed.flags == 0x1888
    assert SCHEMAS["sharp"].build(dict(parsed)) == MESSAGES[6][:32]
    named = {"opcode": "AGG_RESULT", "flags": "FINAL|REPRO"}
    assert SCHEMAS["sharp"].build(named) == SCHEMAS["sharp"].build({"opcode": 0x90, "flags": 0x0088})
    assert str(SCHEMAS["sharp"].parse(bytes(31) + b"\1").flags) == "0x1"  # a bit without a name
    for wrong in ({"flags": "FINAL|NOTHING"}, {"opcode": "AGG_REQ|ERROR"}):
        with pytest.raises(ConstructError):
            SCHEMAS["sharp"].build(wrong)


# Scapy ----------------------------------------------------------------------------------------------------------------


def agree(frame: bytes, link: str = "ethernet") -> None:
    """Scapy dissects to the layers of `decode` and builds the same bytes."""
    found = decode(frame, link=link, sharp=True, mcast=True)
    packet = (uet.Lrh if link == "infiniband" else Ether)(frame)
    assert uet.layer_values(packet) == [(layer.form, dict(layer.values)) for layer in found.layers]
    assert bytes(packet) == frame
    if found.pad:
        assert packet[uet.SharpPad].pad == found.pad


def test_there_is_a_layer_for_every_form() -> None:
    names = [cls.__name__ for cls in (*uet.SHARP_LAYERS.values(), *uet.MCAST_LAYERS.values())]
    assert names[:3] == ["Sharp", "SharpExtUdh", "SharpExtTgt"]
    assert names[-3:] == ["SharpAmAnActiveJobs", "Mcast", "McastRing"]
    assert len(names) == len(SHARP_FORMS) + len(MCAST_FORMS)
    assert all(getattr(uet, name) is not None for name in names)
    assert set(names) | {"SharpRanks", "SharpPad", "bind_sharp", "unbind_mcast"} <= set(uet.__all__)


@pytest.mark.parametrize("kind", CARRIERS)
@pytest.mark.parametrize(
    "data", [MESSAGES[0], MESSAGES[7], JOIN_REQ, ERROR, LOCK], ids=["up", "down", "join", "error", "lock"]
)
def test_messages_over_roce(data: bytes, kind: str) -> None:
    agree(over_rc(data, kind), LINKS.get(kind, "ethernet"))
    agree(over_ud(data, kind), LINKS.get(kind, "ethernet"))


@pytest.mark.parametrize("data", [MESSAGES[0], JOIN_REQ, ERROR, LOCK], ids=["up", "join", "error", "lock"])
def test_messages_over_uet(data: bytes) -> None:
    for crc in (False, True):
        agree(over_uet(data, crc=crc))
        agree(over_uet(data, crc=crc, pds="pds.rod_req", ipv6=True))
    agree(over_uet(data, info=0))
    agree(over_uet(data[:31] + b"\1" + data[32:]))


def test_management_and_immediates() -> None:
    agree(over_ud(MAD, qp=1, q_key=0x80010000))
    agree(with_immediate(0x12345678, 0x65, 0xFFFFFF, b"data"))
    agree(with_immediate(5 << 3, 0x05, 0x12))
    agree(with_immediate(5 << 3, 0x05, 0x12, b"data"))
    for attribute in ATTRIBUTES:
        agree(over_ud(MAD[:16] + attribute.to_bytes(2, "big") + MAD[18:], qp=1, q_key=0x80010000))


@examples(60)
@given(messages(), st.data())
def test_any_message_and_damage(data: bytes, draw: st.DataObject) -> None:
    agree(over_rc(data))
    frame = bytearray(over_uet(data, crc=True))
    agree(bytes(frame))
    at = draw.draw(st.integers(98, len(frame) - 1))
    frame[at] ^= 1 << draw.draw(st.integers(0, 7))
    assert bytes(Ether(bytes(frame))) == bytes(frame)


def test_building() -> None:
    """Lengths and pad are computed, unless they are given."""
    below = Ether() / IP(src="10.0.0.1", dst="10.0.0.2") / UDP(sport=0xC000) / uet.Bth(opcode="RC_SEND_ONLY")
    base = uet.Sharp(opcode="AGG_REQ", job_id=5, group_id=7, count=8, op="SUM", dtype="FLOAT", tag_dtype="NULL",
                     coll="ALLREDUCE", flags="FIRST+LAST+REPRO")  # fmt: skip
    frame = bytes(below / base / struct.pack(">8f", *range(1, 9)))
    assert len(frame) == 122
    assert frame[54:-4] == MESSAGES[0]

    join = uet.Sharp(opcode="GROUP_JOIN_REQ", job_id=5, group_id=7, op="NULL", dtype="NULL", tag_dtype="NULL",
                     coll="NOT_APPLICABLE", child_idx=255)  # fmt: skip
    body = uet.SharpJoinReq(member_count=1, group_size=4, want_osts=2, user_data_per_ost=128, features=3, qpn=17)
    assert bytes(below / join / body / uet.SharpRanks(ranks=[0]))[54:-4] == JOIN_REQ

    join.flags, cookie = "UDH", uet.SharpExtUdh(data=9)
    extended = decode(bytes(below / join / cookie / body / uet.SharpRanks(ranks=[0])), sharp=True)
    assert extended["sharp"]["ext_words"] == 2
    assert [layer.form for layer in extended.layers[-3:]] == ["sharp.ext.udh", "sharp.join_req", "sharp.ranks"]
    assert bytes(uet.Sharp(payload_len=5, ext_words=3) / b"abc")[22:24] == b"\0\5"


def test_only_when_asked_for() -> None:
    uet.unbind_sharp()
    uet.unbind_mcast()
    for frame in (over_rc(MESSAGES[0]), over_uet(MESSAGES[0]), with_immediate(0x407, 0x65, 0xFFFFFF, b"data")):
        packet = Ether(frame)
        assert uet.layer_values(packet) == [(layer.form, dict(layer.values)) for layer in decode(frame).layers]
        assert bytes(packet) == frame


# Columns --------------------------------------------------------------------------------------------------------------


def any_frame(rng: random.Random) -> tuple[int, bytes, int]:
    data = rng.choice(
        (*MESSAGES, JOIN_REQ, ERROR, LOCK, message(0x10, bytes(6), 0x0300, bytes(32)), message(0x30, bytes(8)))
    )
    kind = rng.choice(CARRIERS)
    link = pcap.INFINIBAND if kind in LINKS else pcap.ETHERNET
    carrier = rng.randrange(6)
    if carrier == 0:
        frame = over_rc(data, kind, opcode=rng.choice((0, 1, 4, 4, 4, 0x24)))
    elif carrier == 1:
        frame = over_ud(data, kind, qp=rng.choice((0xFFFFFF, 0x12)))
    elif carrier == 2:
        attribute = rng.choice((*ATTRIBUTES, 0x25)).to_bytes(2, "big")
        frame = over_ud(MAD[:16] + attribute + MAD[18:], kind, qp=1, q_key=rng.choice((0x80010000, 1)))
    elif carrier == 3:
        link = pcap.ETHERNET
        opcode, qp, load = rng.choice(
            ((0x65, 0xFFFFFF, b"data"), (5, 0x12, b""), (5, 0x12, b"data"), (3, 0x12, b"data"))
        )
        frame = with_immediate(rng.choice((0x407, 40, 0xDEAD << 3 | 1)), opcode, qp, load)
    else:
        link = pcap.ETHERNET
        frame = over_uet(data, crc=rng.random() < 0.5, info=rng.choice((8, 8, 7)), ipv6=rng.random() < 0.5)
    damaged = bytearray(frame)
    for _ in range(rng.choice((0, 0, 0, 1))):
        damaged[min(20 + int(rng.expovariate(1 / 40)), len(damaged) - 1)] ^= 1 << rng.randrange(8)
    if rng.random() < 0.2:
        del damaged[rng.randrange(len(damaged) + 1) :]
    return link, bytes(damaged), len(damaged) + rng.choice((0, 0, 9))


def test_columns_are_what_decode_finds(tmp_path: Path) -> None:
    rng = random.Random(7)
    path = write(tmp_path / "any.pcapng", [any_frame(rng) for _ in range(1500)], (pcap.ETHERNET, pcap.INFINIBAND))
    found = agrees(path, sharp=True, mcast=True)
    wanted: set[Any] = {*SHARP_FORMS, *MCAST_FORMS} - {"sharp.join_resp"}
    assert wanted <= set(found.forms)
    agrees(path)
    agrees(path, sharp=True)
    agrees(path, mcast=True)


def test_columns_of_the_example(tmp_path: Path) -> None:
    frames = [(pcap.ETHERNET, over_rc(data), len(over_rc(data))) for data in MESSAGES]
    rows = agrees(write(tmp_path / "example.pcap", frames), sharp=True)["sharp"]
    assert rows["child_idx"].tolist() == [0, 1, 0, 0, 1, 1, 0, 1, 0, 1, 0, 1]
    assert rows["flags"].tolist() == [0x1880] * 6 + [0x1888] * 6
