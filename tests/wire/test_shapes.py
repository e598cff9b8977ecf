# SPDX-License-Identifier: GPL-2.0-only
"""The compiled shapes do exactly what the long way does, for perfect frames and for any damage to them."""

import random
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.each import each
from tests.support.effort import effort
from tests.support.strategies import random_frame
from tests.support.wire.stack import CRC, ETHERNET, IPV4, REQUEST, STACKS, UDP, WRITE, frame
from tests.support.wire.vectors import VECTORS, frame_around, uet_before
from uetproto import Layer, Packet, decode, encode
from uetproto.bench.frames import roce_write
from uetproto.wire import fast_walk, stack
from uetproto.wire.fields import Header
from uetproto.wire.forms import FORMS, rows_after
from uetproto.wire.headers.uet_ses import STANDARD
from uetproto.wire.implied import DECIDING
from uetproto.wire.packet import Trailer
from uetproto.wire.shapes import NATIVE
from uetproto.wire.stack import TRIMMED_DSCP, assemble
from uetproto.wire.walk import walk

ACK = Layer("pds.ack", {"next_hdr": 4, "cack_psn": 9, "spdcid": 2, "dpdcid": 1})
ACK_CC = Layer("pds.ack_cc", {"next_hdr": 4, "cack_psn": 9, "sack_bitmap": 5})
LATER = Layer("ses.request_std", {"opcode": 1, "payload_length": 16, "message_offset": 4096, "request_length": 8192})
UET = {
    "write": (REQUEST, WRITE),
    "later": (REQUEST, LATER),
    "ack": (ACK, Layer("ses.response", {"opcode": 0, "return_code": 1})),
    "ack_cc": (ACK_CC, Layer("pds.cc_state.nscc", {}), Layer("ses.response", {})),
    "cp": (Layer("pds.cp", {"ctl_type": 4, "ar": 1}),),
    "atomic": (REQUEST, Layer("ses.request_std.som", {"opcode": 3, "eom": 1, "request_length": 16}),
               Layer("ses.ext.atomic", {"atomic_opcode": 2, "atomic_datatype": 7})),
}  # fmt: skip
PAYLOADS = {"ack": b"", "ack_cc": b"", "cp": b""}
FRAMES = {
    f"{uet}, {name}": frame(*lower, *UET[uet], payload=PAYLOADS.get(uet, bytes(16)), trailer=trailer)
    for uet in UET
    for name, lower in {"plain": (ETHERNET, IPV4, UDP), **STACKS}.items()
    for trailer in (CRC,)
}


@pytest.fixture(autouse=True)
def _nothing_known() -> Iterator[None]:
    stack._fast_walks.clear()
    yield
    stack._fast_walks.clear()


def long_way(data: bytes, crc: str = "auto", link: str = "ethernet") -> Packet:
    return walk(data, (link, crc, 4793, 253, 4791, TRIMMED_DSCP, "raw"), False)


def known() -> int:
    """How many stacks of lower headers are compiled."""
    return sum(len(lowers) for fast in stack._fast_walks.values() for lowers in fast._by_type.values())


@pytest.mark.parametrize("name", FRAMES)
def test_same_on_good_and_damaged_frames(name: str) -> None:
    data = FRAMES[name]
    for _ in range(12):
        assert decode(data) == long_way(data)
    assert known() == (0 if "options" in name or "hop" in name or "atomic fragment" in name else 1)
    rng = random.Random(name)
    for _ in range(effort(60, 400, 4000)):
        mutated = bytearray(data)
        for _ in range(rng.randrange(1, 3)):
            mutated[rng.randrange(len(mutated))] = rng.getrandbits(8)
        damaged = bytes(mutated[: len(data) - rng.choice((0, 0, 0, 1, 4, 30))]) + bytes(rng.choice((0, 0, 1, 6)))
        assert decode(damaged) == long_way(damaged)
    for position in range(len(data) * 8):  # every single bit
        flipped = bytearray(data)
        flipped[position // 8] ^= 1 << position % 8
        assert decode(bytes(flipped)) == long_way(bytes(flipped))


@pytest.mark.parametrize("crc", ["auto", "on", "off"])
def test_same_under_every_crc_setting(crc: str) -> None:
    frames = list(FRAMES.values())
    for data in frames * 10:
        assert decode(data, crc=crc) == long_way(data, crc)
    assert known() > 2


def test_lower_headers_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("uetproto.wire.fast_walk._MOST", 4)
    for data in list(FRAMES.values()) * 10:
        assert decode(data) == long_way(data)
    assert 0 < known() <= 4


def test_values_that_select_nothing_share_what_was_compiled() -> None:
    rng = random.Random(1)
    for _ in range(200):
        dscp = rng.choice([code for code in range(64) if code not in TRIMMED_DSCP])
        request = Layer(REQUEST.form, {**REQUEST.values, "retx": rng.getrandbits(1), "ar": rng.getrandbits(1)})
        write = Layer(WRITE.form, {**WRITE.values, "rel": rng.getrandbits(1), "ie": rng.getrandbits(1)})
        network = Layer("ipv4", {**IPV4.values, "dscp": dscp})
        data = frame(ETHERNET, network, UDP, request, write, payload=bytes(16), trailer=CRC)
        assert decode(data) == long_way(data)
    assert known() == 1
    assert fast_walk._fork((STANDARD,)).mask == 0b0011_1111_0000_0011  # opcode, eom, som


def test_sealed_frames_and_roce_take_the_fast_walk() -> None:
    rng = random.Random(1)
    frames = [random_frame(rng, encapsulation="udp", version=4, tags=0, extensions=False) for _ in range(400)]
    frames += [encode(roce_write(24, psn), fill=True) for psn in range(20)]
    for data in frames:
        assert decode(data) == long_way(data)
    (fast,) = stack._fast_walks.values()
    assert [data for data in frames if fast.read(data) != long_way(data)] == []


@each("header", FORMS.values())
def test_what_selects_lies_in_the_first_two_bytes(header: Header) -> None:
    """The forks read no more; a field behind them selects at once among headers of one size that end a branch."""
    for name in (*DECIDING, *(field.name for field in header.fields if field.only)):
        if name in header.names and header.name.startswith(("pds", "ses", "tss")):
            assert fast_walk._mask(header, name), name
    rows = [row for row in rows_after(header) if row.by is not None and not fast_walk._mask(header, row.by)]
    for row in rows if header.name not in NATIVE + ("grh",) else ():
        assert row is rows_after(header)[0]
        groups = [*row.then.values(), row.otherwise]
        assert len({group[0].size for group in groups if group}) == 1
        assert all(group and len(group) == 1 and not rows_after(group[0]) for group in groups)
        assert header[row.by or ""].bits <= 8 - header.offset_of(row.by or "") % 8


def test_stacks_of_any_depth_are_not_remembered() -> None:
    encode(Packet([Layer("ipv6.ext", {"raw": bytes(8)})] * 5000))
    assert max(map(len, stack._writers._by_forms), default=0) < 100


def test_a_form_is_not_taken_for_its_sibling() -> None:
    """An atomic is no compare-and-swap, which would have been chosen before it."""
    request = Layer("ses.request_std.som", {"opcode": 4, "eom": 1, "request_length": 32})
    plain = frame(
        ETHERNET, IPV4, UDP, REQUEST, request, Layer("ses.ext.atomic", {"atomic_opcode": 2}), payload=bytes(32)
    )
    swap = frame(ETHERNET, IPV4, UDP, REQUEST, request, Layer("ses.ext.atomic_cas", {}), payload=b"")
    for data in [plain] * 12 + [swap] * 12 + [plain, swap]:
        assert decode(data) == long_way(data)


def test_every_vector_after_any_other() -> None:
    """Each vector in its shortest frame, in many orders: whatever was learnt before, the result is the long way's."""
    rng = random.Random(1)
    frames = [
        frame_around(uet_before(v["form"]) + bytes.fromhex(v["hex"]), native=v["form"] == "entropy") for v in VECTORS
    ]
    for crc in ("off", "auto"):
        for _ in range(12):
            rng.shuffle(frames)
            for data in frames:
                assert decode(data, crc=crc) == long_way(data, crc)


def test_a_short_frame_after_a_shape_is_known() -> None:
    data = FRAMES["ack, plain"]
    for _ in range(12):
        decode(data)
    for cut in range(len(data)):
        assert decode(data[:cut]) == long_way(data[:cut])
        assert decode(data[:cut], length=len(data)).notes == ("truncated",)


@pytest.mark.parametrize("fill", [False, True])
def test_encoding_is_the_same(fill: bool) -> None:
    rng = random.Random(1)
    packets = [decode(data) for data in FRAMES.values()]
    for packet in packets * 12:
        assert encode(packet, fill=fill) == assemble(packet, fill)
        layers = []
        for layer in packet.layers:
            values: dict[str, Any] = dict(layer.values)
            name = rng.choice(list(values))
            if name != "raw":
                values[name] = rng.choice((0, 1, rng.getrandbits(8), -1, 1 << 70, "x"))
            if rng.random() < 0.1:
                del values[name]
            if rng.random() < 0.05:
                values["nothing"] = 1
            layers.append(Layer(layer.form, values))
        changed = Packet(layers, packet.payload, packet.trailer, raw=bytes(rng.randrange(3)))
        assert outcome(encode, changed, fill) == outcome(assemble, changed, fill)


def outcome(function: Any, packet: Packet, fill: bool) -> Any:
    try:
        return function(packet, fill=fill)
    except stack.LocalError as error:
        return str(error)


def test_same_without_a_crc_under_auto() -> None:
    """A frame that ends without a CRC is known too; one that might have one takes the long way."""
    plain = [decode(data) for data in FRAMES.values()]
    frames = [encode(Packet(p.layers, p.payload), fill=True) for p in plain]
    for data in frames * 12:
        assert decode(data) == long_way(data)
        assert decode(data).trailer is None
    assert known() > 2
    for data, packet in zip(frames, plain, strict=True):
        for tail in (b"\0\0\0\0", encode(packet)[-4:]):
            longer = encode(Packet(packet.layers, packet.payload + tail), fill=True)
            assert decode(longer) == long_way(longer)
        for position in range(0, len(data) * 8, effort(3, 1, 1)):  # 3 and 8 have no common divisor: each bit of a byte
            flipped = bytearray(data)
            flipped[position // 8] ^= 1 << position % 8
            assert decode(bytes(flipped)) == long_way(bytes(flipped))


def test_a_partial_packet_is_compiled_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Filling takes no layer-by-layer way once the fields that are given were met some times."""
    whole = decode(next(iter(FRAMES.values())))
    keep = {"psn", "opcode", "src", "dst", "next_hdr", "raw"}
    layers = [Layer(form, {n: v for n, v in values.items() if n in keep}) for form, values, _ in whole.layers]
    partial = Packet(layers, whole.payload, whole.trailer)
    frames = {encode(partial, fill=True) for _ in range(40)}
    monkeypatch.setattr(stack, "assemble", None)
    assert {encode(partial, fill=True)} == frames


@pytest.mark.parametrize("fill", [False, True])
@pytest.mark.parametrize("packet", [
    Packet([REQUEST, WRITE], b"abc", CRC, pad=b"pad"), Packet([REQUEST], b"abc", vcrc=Trailer("vcrc", 7)),
    Packet([Layer("bth", {})], b"abc"), Packet([ETHERNET, IPV4, UDP, REQUEST], b"abc", CRC, pad=b"pad"),
])  # fmt: skip
def test_no_part_is_lost_once_a_shape_is_known(packet: Packet, fill: bool) -> None:
    packet.layers = stack.completed(packet).layers
    if fill and packet.trailer and packet.layers[0].form != "ethernet":
        packet.trailer = None  # no IP header to count from
    assert {encode(packet, fill=fill) for _ in range(40)} == {assemble(packet, fill)}
