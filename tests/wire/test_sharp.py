# SPDX-License-Identifier: GPL-2.0-only
"""SHARP and multicast immediates in frames: the bytes of sharp.md §7, where messages sit, what is none of them."""

import random
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.effort import examples
from tests.support.wire.sharp_frames import (
    CARRIERS,
    ERROR,
    ERROR_START,
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
from uetproto import Layer, Packet, Trailer, decode, encode
from uetproto.collectives.multicast import wire as multicast_wire
from uetproto.engine.sharp.messages import SharpMessage, parse
from uetproto.wire.codec import codec_of
from uetproto.wire.fields import Origin
from uetproto.wire.forms import FORMS, SHARP_FORMS
from uetproto.wire.headers.sharp import (
    COUNTERPARTS,
    COUNTERS,
    DTYPE_SIZES,
    RETRYABLE,
    Dtype,
    Flag,
    LibsharpStatus,
    Op,
    SharpOpcode,
    Status,
    Syndrome,
    Trap,
    following,
    ranks_of,
)
from uetproto.wire.headers.sharp_am import ATTRIBUTES, MAD_SIZE


def plain(form: str, **values: int) -> Layer:
    return Layer(form, codec_of(FORMS[form]).decode(codec_of(FORMS[form]).encode(values)))


AGG = {"job_id": 5, "group_id": 7, "count": 8, "op": Op.SUM, "dtype": Dtype.FLOAT, "tag_dtype": Dtype.NULL, "coll": 1}
CONTROL = {"job_id": 5, "group_id": 7, "op": Op.NULL, "dtype": Dtype.NULL, "tag_dtype": Dtype.NULL, "coll": 0xFF}


def filled(layers: list[Layer], payload: bytes = b"") -> bytes:
    """The message alone: of a frame that is filled in, what lies behind the BTH and before the ICRC."""
    below = decode(over_rc(b"")).layers
    return encode(Packet([*below, *layers], payload, Trailer("icrc", 0)), fill=True)[54:-4]


# The example, byte for byte -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", range(12))
def test_the_twelve_messages(number: int) -> None:
    """sharp.md §7."""
    factors = (1, 10, 11, 0.5, 100, 100.5, *[111.5] * 6)
    vector = struct.pack(">8f", *(factors[number] * k for k in range(1, 9)))
    down = number >= 6
    child = (0, 1, 0, 0, 1, 1, 0, 1, 0, 1, 0, 1)[number]
    flags = Flag.FIRST | Flag.LAST | Flag.REPRO | (Flag.FINAL if down else 0)
    opcode = SharpOpcode.AGG_RESULT if down else SharpOpcode.AGG_REQ
    assert filled([plain("sharp", **AGG, opcode=opcode, child_idx=child, flags=flags)], vector) == MESSAGES[number]

    packet = decode(over_rc(MESSAGES[number]), sharp=True)
    assert packet["sharp"] == plain("sharp", **AGG, opcode=opcode, child_idx=child, flags=flags, payload_len=32).values
    assert packet.payload == vector
    assert packet.pad == b""


def test_join_request() -> None:
    """sharp.md §7: 52 bytes, of which 18 are the body and 2 the pad."""
    layers = [
        plain("sharp", **CONTROL, opcode=SharpOpcode.GROUP_JOIN_REQ, child_idx=0xFF),
        plain("sharp.join_req", member_count=1, group_size=4, want_osts=2, user_data_per_ost=128, features=3, qpn=17),
        Layer("sharp.ranks", {"raw": bytes(2)}),
    ]
    assert filled(layers) == JOIN_REQ
    assert len(JOIN_REQ) == 52
    packet = decode(over_rc(JOIN_REQ), sharp=True)
    assert [layer.form for layer in packet.layers[-3:]] == ["sharp", "sharp.join_req", "sharp.ranks"]
    assert packet["sharp"]["payload_len"] == 18
    assert ranks_of(packet["sharp.ranks"]["raw"]) == (0,)
    assert (packet.payload, packet.pad) == (b"", bytes(2))


def test_error_and_lock() -> None:
    """sharp.md §7: H3 silent, and the SAT variant."""
    layers = [
        plain("sharp", **CONTROL, opcode=SharpOpcode.ERROR, child_idx=0xFF, status=Status.TIMEOUT_NO_PROGRESS),
        plain("sharp.fault", code=Status.TIMEOUT_NO_PROGRESS, depth=1, opcode=0x10, an_id=10, children=1 << 254),
    ]
    assert filled(layers) == ERROR
    assert ERROR.startswith(ERROR_START)
    lock = plain("sharp.lock", sat_tree_id=63, batch=0xFFFF, timeout_ms=100, target_rank=0xFFFF)
    assert codec_of(FORMS["sharp.lock"]).encode(lock.values) == LOCK_BODY
    assert Flag.SAT | Flag.LOCK | Flag.FIRST | Flag.LAST | Flag.REPRO == 0xD880


def test_codes() -> None:
    """sharp.md §1.6, §1.8, §2.7."""
    assert " ".join(op.name for op in Op) == "MAX MIN SUM PROD LAND BAND LOR BOR LXOR BXOR MAXLOC MINLOC NULL"
    sizes = (4, 4, 8, 8, 4, 8, 2, 2, 2, 2, 1, 1, 0)
    assert tuple(DTYPE_SIZES[dtype] for dtype in Dtype) == sizes
    assert list(Dtype) == list(range(13))
    assert [status.value for status in LibsharpStatus] == list(range(0, -21, -1))
    assert list(Status) == list(range(0x21))
    assert {Status.OST_EXHAUSTED, Status.SEQ_STALE, Status.SEQ_AHEAD} == RETRYABLE
    assert COUNTERPARTS[Status.LOCK_DENIED] == (LibsharpStatus.LOCK_DENIED,) == (-19,)
    assert COUNTERPARTS[Status.SAT_UNBALANCED] == (7, 8)
    assert set(Status) - set(COUNTERPARTS) == {
        Status.SEQ_STALE,
        Status.SEQ_AHEAD,
        Status.CANCELLED,
        Status.TREE_DISABLED,
    }
    assert (len(COUNTERS), Syndrome.SAT_BAD_DATA_GRANULARITY, Trap.AM_KEY_VIOLATION) == (19, 10, 4)
    for opcode in SharpOpcode:
        if opcode < 0x7E:
            answer = SharpOpcode(opcode + 0x80).name
            assert answer.removesuffix("_RESP").removesuffix("_RESULT") == opcode.name.removesuffix("_REQ")


def test_what_is_published_is_marked() -> None:
    """sharp.md §8: the data plane and the bodies of attributes are ours, codes and the MAD are published."""
    assert {form for form, header in SHARP_FORMS.items() if header.origin is Origin.PUBLISHED} == {"sharp.am"}
    base, mad, joined = FORMS["sharp"], FORMS["sharp.am"], FORMS["sharp.join_resp"]
    assert [base.origin_of(base[name]) for name in ("op", "opcode")] == [Origin.OUR_PLACE, Origin.OURS]
    assert [mad.origin_of(mad[name]) for name in ("method", "am_key")] == [Origin.PUBLISHED, Origin.OURS]
    assert joined.origin_of(joined["mgid"]) is Origin.INFERRED


# Where a message sits -------------------------------------------------------------------------------------------------

OFFSETS = {"local": 20, "global": 60, "ipv4": 54, "ipv6": 74, "v1": 66}


@pytest.mark.parametrize("kind", CARRIERS)
def test_in_rc_and_ud(kind: str) -> None:
    """sharp.md §2.1: offsets and trailers."""
    link = LINKS.get(kind, "ethernet")
    frame = over_rc(MESSAGES[0], kind)
    assert len(frame) == OFFSETS[kind] + 64 + (6 if kind in LINKS else 4)
    if kind == "ipv4":
        assert len(frame) == 122
    packet = decode(frame, link=link, sharp=True)
    assert packet.layers[-1].form == "sharp"
    assert packet.layers[-1].offset == OFFSETS[kind]
    assert packet.layers[-2].values["padcnt"] == 0
    assert encode(packet) == encode(packet, fill=True) == frame
    assert "sharp" not in decode(frame, link=link)

    frame = over_ud(MESSAGES[6], kind)
    packet = decode(frame, link=link, sharp=True)
    assert packet.layers[-1].form == "sharp"
    assert packet.layers[-1].offset == OFFSETS[kind] + 8
    assert "sharp" not in decode(over_ud(MESSAGES[6], kind, qp=0x12), link=link, sharp=True)


@pytest.mark.parametrize(
    ("offset", "how"),
    [
        (98, {}),
        (118, {"ipv6": True}),
        (98, {"pds": "pds.rod_req"}),
        (102, {"pds": "pds.rod_cc_req.syn"}),
        (122, {"pds": "pds.rud_cc_req", "ipv6": True}),
        (94, {"entropy": True}),
        (114, {"entropy": True, "ipv6": True}),
    ],
)
def test_in_uet(offset: int, how: dict[str, object]) -> None:
    """sharp.md §2.1: on a reserved PDC, known by its header data."""
    for crc in (False, True):
        frame = over_uet(MESSAGES[0], crc=crc, **how)  # type: ignore[arg-type]
        assert len(frame) == offset + 64 + 4 * crc
        packet = decode(frame, sharp=True)
        assert packet.error is None
        assert packet.layers[-1].form == "sharp"
        assert packet.layers[-1].offset == offset
        assert packet.payload == MESSAGES[0][32:]
        assert encode(packet) == encode(packet, fill=True) == frame
        assert "sharp" not in decode(frame)
    assert len(over_uet(MESSAGES[0])) == 162


def test_not_on_an_ordinary_pdc() -> None:
    """sharp.md §2.1: dropped where use_rsv_pdc was not set, and it takes the header data to know one."""
    for frame in (over_uet(MESSAGES[0], info=7), over_uet(MESSAGES[0], magic=0x53485251)):
        packet = decode(frame, sharp=True)
        assert packet.layers[-1].form == "ses.send_std.som"
        assert packet.payload == MESSAGES[0]


def test_first_packet_of_a_longer_message() -> None:
    """Each packet is read alone: the first has the headers, the others have payload."""
    long = message(0x90, random.Random(1).randbytes(4000), 0xF880 & ~0x2000, op=2, dtype=4, coll=1)
    for frame in (over_rc(long[:1024], opcode=0x00), over_uet(long[:1024], length=len(long), eom=0)):
        packet = decode(frame, sharp=True)
        assert packet.layers[-1].form == "sharp"
        assert packet["sharp"]["payload_len"] == 4000
        assert packet.payload == long[32:1024]
        assert encode(packet) == encode(packet, fill=True) == frame
    assert "sharp" not in decode(over_rc(long[1024:2048], opcode=0x01), sharp=True)
    assert "sharp" not in decode(over_rc(long[:1024], opcode=0x04), sharp=True)  # an Only is whole
    assert "sharp" not in decode(over_rc(long, opcode=0x00), sharp=True)  # a First is not
    assert "sharp" not in decode(over_rc(MESSAGES[0], opcode=0x24), sharp=True)  # UC


def test_management() -> None:
    """sharp.md §2.9: a MAD of class 0x0B, each attribute that is laid out."""
    for attribute, header in ATTRIBUTES.items():
        body = random.Random(attribute).randbytes(header.size)
        head = codec_of(FORMS["sharp.am"]).encode({
            "base_version": 1, "mgmt_class": 0x0B, "class_version": 2, "method": 2, "attr_id": attribute, "tid": 99,
        })  # fmt: skip
        assert len(head + body) == MAD_SIZE
        assert head[:4] == b"\x01\x0b\x02\x02"
        assert head[16:18] == attribute.to_bytes(2, "big")
        frame = over_ud(head + body, qp=1, q_key=0x80010000)
        packet = decode(frame, sharp=True)
        assert [layer.form for layer in packet.layers[-2:]] == ["sharp.am", header.name]
        assert packet.layers[-1].offset - packet.layers[-2].offset == 64
        assert encode(packet) == encode(packet, fill=True) == frame
        for other in (over_ud(head + body, qp=2, q_key=0x80010000), over_ud(head + body, qp=1, q_key=1)):
            assert "sharp" not in decode(other, sharp=True)


# What is no message ---------------------------------------------------------------------------------------------------

BROKEN = {
    "version": (0, 0x20),
    "extensions": (0, 0x12),
    "opcode": (1, 0x03),
    "job": (4, 0x01),
    "length": (23, 0x24),
    "reserved flag": (31, 0x81),
    "extension flag": (30, 0x19),
}


@pytest.mark.parametrize("what", BROKEN)
def test_what_contradicts_itself(what: str) -> None:
    """sharp.md §2.8, rule 1: over RoCE it is payload, over UET a message that is malformed."""
    at, value = BROKEN[what]
    broken = MESSAGES[0][:at] + bytes([value]) + MESSAGES[0][at + 1 :]
    packet = decode(over_rc(broken), sharp=True)
    assert "sharp" not in packet
    assert packet.payload == broken
    packet = decode(over_uet(broken), sharp=True)
    assert packet.layers[-1].form == "sharp"
    assert packet.error is not None
    assert packet.error.kind == "malformed"
    assert packet.error.reason.startswith("sharp.")
    assert encode(packet) == over_uet(broken)


def test_reserved_bits_of_bodies_and_pad() -> None:
    """sharp.md §2.2, §2.8."""
    lock = message(0x20, LOCK_BODY)
    wrong = (message(0x20, LOCK_BODY[:-1]), message(0x7F, bytes(41)), message(0x01, JOIN_REQ[32:48] + bytes(4)))
    assert all("sharp" not in decode(over_rc(data), sharp=True) for data in wrong)
    for whole in (lock, JOIN_REQ, ERROR):
        at = {lock: 47, JOIN_REQ: 51, ERROR: 35}[whole]
        assert whole[at] == 0
        broken = bytearray(whole)
        broken[at] = 1
        assert "sharp" in decode(over_rc(whole), sharp=True)
        assert "sharp" not in decode(over_rc(bytes(broken)), sharp=True)


@examples(150)
@given(messages(), st.data())
def test_the_aggregation_node_takes_the_same_messages(data: bytes, draw: st.DataObject) -> None:
    """sharp.md §2.8, rule 1, is asked twice: of a packet in a capture, and of a message that has arrived."""
    assert isinstance(parse(data), SharpMessage)
    damaged = bytearray(data)
    for _ in range(draw.draw(st.integers(1, 3))):
        bit = draw.draw(st.integers(0, len(data) * 8 - 1))
        damaged[bit // 8] ^= 1 << bit % 8
    found = decode(over_rc(bytes(damaged)), sharp=True)
    assert any(layer.form == "sharp" for layer in found.layers) == isinstance(parse(bytes(damaged)), SharpMessage)


# Immediates of multicast ----------------------------------------------------------------------------------------------


def test_multicast_immediates() -> None:
    """collectives.md §3.10.1: bits 0-7 the task, bits 8-31 the chunk; only where somebody asks."""
    frame = with_immediate(0x123456_78, 0x65, 0xFFFFFF, b"data")
    packet = decode(frame, mcast=True)
    assert packet.layers[-1] == Layer("mcast", {"chunk_id": 0x123456, "task_id": 0x78}, 62)
    assert encode(packet) == encode(packet, fill=True) == frame
    assert decode(frame)["imm"] == {"immdt": 0x12345678}
    assert "imm" in decode(with_immediate(0x407, 0x65, 0x12, b"data"), mcast=True)
    chunk = multicast_wire.ChunkImmediate.unpack(0x12345678)
    assert packet["mcast"] == chunk._asdict()


def test_ring_immediates() -> None:
    """collectives.md §3.10.1: bits 0-2 the type, bits 3-31 the owner."""
    need, fin = with_immediate(5 << 3, 0x05, 0x12), with_immediate(0xDEAD << 3 | 1, 0x05, 0x12)
    assert decode(need, mcast=True).layers[-1].values == {"owner": 5, "type": 0}
    assert decode(need, mcast=True).layers[-1].values == multicast_wire.RingImmediate.unpack(5 << 3)._asdict()
    assert with_immediate(multicast_wire.FIN.pack(), 0x05, 0x12) == fin
    assert decode(fin, mcast=True).layers[-1] == Layer("mcast.ring", {"owner": 0xDEAD, "type": 1}, 54)
    assert encode(decode(fin, mcast=True)) == fin
    for other in (
        with_immediate(5 << 3, 0x05, 0x12, b"data"),
        with_immediate(5 << 3 | 1, 0x05, 0x12),
        with_immediate(5 << 3 | 2, 0x05, 0x12),
    ):
        assert decode(other, mcast=True).layers[-1].form == "imm"


# Any message ----------------------------------------------------------------------------------------------------------


@examples(150)
@given(messages(), st.sampled_from(CARRIERS))
def test_round_trip(data: bytes, kind: str) -> None:
    """All opcodes with all flags and extensions: every byte of the message is somewhere, and comes back."""
    frames = {over_rc(data, kind): LINKS.get(kind, "ethernet"), over_uet(data): "ethernet"}
    for frame, link in frames.items():
        packet = decode(frame, link=link, sharp=True)
        assert packet.error is None
        layers = packet.layers[[layer.form for layer in packet.layers].index("sharp") :]
        values = layers[0].values
        wanted = [header.name for header in following(values["opcode"], values["flags"])]
        assert [layer.form for layer in layers[1:] if layer.form != "sharp.ranks"] == wanted
        start = layers[0].offset
        assert layers[-1].offset + layers[-1].size - start + len(packet.payload) + len(packet.pad) == len(data)
        assert len(packet.pad) == -values["payload_len"] % 4
        assert encode(packet) == encode(packet, fill=True) == frame


@examples(80)
@given(messages(), st.data())
def test_prefixes_and_damage_never_raise(data: bytes, draw: st.DataObject) -> None:
    for frame in (over_rc(data), over_ud(data), over_uet(data, crc=draw.draw(st.booleans()))):
        cut = draw.draw(st.integers(0, len(frame)))
        packet = decode(frame[:cut], length=len(frame), sharp=True, mcast=True)
        assert encode(packet) == frame[:cut]
        damaged = bytearray(frame)
        for _ in range(draw.draw(st.integers(1, 4))):
            bit = draw.draw(st.integers(42 * 8, len(frame) * 8 - 1))
            damaged[bit // 8] ^= 1 << bit % 8
        for broken in (bytes(damaged), bytes(damaged)[:cut]):
            assert encode(decode(broken, sharp=True, mcast=True)) == broken


def test_a_truncated_message_keeps_its_headers() -> None:
    frame = over_rc(message(0x10, bytes(1000), 0x1800, op=2, dtype=4, coll=1))
    packet = decode(frame[:96], length=len(frame), sharp=True)
    assert packet.layers[-1].form == "sharp"
    assert packet.notes == ("truncated",)
    assert packet.error is None
    assert len(packet.payload) == 96 - 86
