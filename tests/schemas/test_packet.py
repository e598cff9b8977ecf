# SPDX-License-Identifier: GPL-2.0-only
"""Whole packets as Construct schemas: named parts, what follows, trailers, and what is refused."""

import io
import json
from collections.abc import Mapping
from contextlib import suppress
from itertools import islice
from random import Random
from typing import Any

import pytest
from construct import (
    ChecksumError,
    ConstructError,
    Container,
    GreedyRange,
    Int8ub,
    Int16ub,
    Prefixed,
    SizeofError,
    StringError,
    Struct,
    Switch,
)  # fmt: skip
from hypothesis import given
from hypothesis import strategies as st

from tests.schemas.user_script import FORMS as USER_FORMS
from tests.schemas.user_script import psn_of, write
from tests.support import paths
from tests.support.effort import effort
from tests.support.schemas import layers_in, parts_of
from tests.support.strategies import random_stack
from uetproto import decode, encode
from uetproto.schemas import LRH, NATIVE, ROCE, SCHEMAS, SHARP, UET
from uetproto.testing import packets
from uetproto.wire.capture.pcap import open_capture
from uetproto.wire.codec import codec_of
from uetproto.wire.forms import FORMS, ROCE_FORMS, SHARP_FORMS, UET_FORMS
from uetproto.wire.headers import roce, sharp
from uetproto.wire.packet import Layer, Packet, Trailer

SEALED = ("tss", "tss.ssi")


def encoded(stack: list[Layer]) -> bytes:
    return b"".join(codec_of(FORMS[layer.form]).encode(layer.values) for layer in stack)


def forms(packet: Mapping[str, Any]) -> list[str]:
    return [form for form, _ in layers_in(packet)]


# UET


def test_packets_of_all_forms_survive() -> None:
    """Built from the named parts, a packet is parsed to the same; names stand for numbers both ways."""
    rng, seen = Random(7), set()
    for _ in range(effort(500, 10_000, 100_000)):
        stack = random_stack(rng)
        seen |= {layer.form for layer in stack}
        packet: dict[str, Any] = dict.fromkeys(UET.parts) | parts_of(UET, stack)
        packet |= {"payload": rng.randbytes(rng.randrange(8)), "trailer": None}
        if stack[0].form in SEALED:
            packet["trailer"] = rng.randbytes(16)
        data = UET.build(packet)
        assert data == encoded(stack) + packet["payload"] + (packet["trailer"] or b"")
        parsed = UET.parse(data)
        assert parsed == packet
        assert layers_in(parsed) == [(layer.form, dict(layer.values)) for layer in stack]
        assert UET.build(parsed) == data
    assert seen == {*UET_FORMS} - {"entropy"}


def test_a_packet_of_four_words() -> None:
    data = UET.build({"pds": {"type": "RUD_REQ", "psn": 7}, "ses": {"opcode": "WRITE"}, "payload": b"data"})
    layers = [Layer("pds.rud_req", {"psn": 7}), Layer("ses.request_std.som", {"opcode": 1})]
    assert data == encode(Packet(layers, b"data"), fill=True)
    packet = UET.parse(data)
    assert (packet.pds.psn, packet.ses.opcode, packet.ses.request_length, packet.payload) == (7, "WRITE", 4, b"data")
    assert (packet.pds._form, packet.ses._form, packet.tss, packet.sync) == (*(x.form for x in layers), None, None)
    packet.pds.psn = 8
    assert UET.parse(UET.build(packet)).pds.psn == 8


@given(packets())
def test_stacks_build_from_parts(whole: Packet) -> None:
    stack = [layer for layer in whole.layers if layer.form.startswith(("pds.", "ses.", "tss"))]
    packet: dict[str, Any] = parts_of(UET, stack)
    if stack[0].form in SEALED:
        packet["trailer"] = bytes(16)
    assert UET.build(packet) == encoded(stack) + packet.get("trailer", b"")


def test_what_follows_is_filled_as_encode_fills_it() -> None:
    """The table of `wire.defaults` is one for all; what is given stays, a 0 too."""
    for fields in ({}, {"request_length": 0, "message_id": 0}, {"eom": 0}, {"opcode": "READ"}):
        named = {name: 2 if value == "READ" else value for name, value in fields.items()}
        layers = [Layer("pds.rud_req", {"psn": 7}), Layer("ses.request_std.som", named)]
        wanted = encode(Packet(layers, b"data"), fill=True)
        packet = {"pds": {"type": "RUD_REQ", "psn": 7}, "ses": fields, "payload": b"data"}
        assert UET.build(packet) == wanted
        assert UET.parse(wanted).ses.items() >= fields.items()


@pytest.mark.parametrize(
    ("pds", "ses", "found"),
    [
        ({"type": "RUD_REQ"}, {}, ["pds.rud_req", "ses.request_std.som"]),
        ({"type": "ROD_REQ", "syn": 1}, {"som": 0}, ["pds.rod_req.syn", "ses.request_std"]),
        ({"type": "RUD_REQ"}, {"message_offset": 4096}, ["pds.rud_req", "ses.request_std"]),
        ({"type": "RUD_REQ", "next_hdr": "REQUEST_SMALL"}, {}, ["pds.rud_req", "ses.request_small"]),
        ({"type": "RUD_REQ"}, {"form": "ses.send_medium"}, ["pds.rud_req", "ses.send_medium"]),
        ({"type": "ACK"}, {}, ["pds.ack", "ses.response"]),
        ({"type": "ACK"}, None, ["pds.ack"]),
        ({"type": "ACK", "form": "pds.ack.probe"}, None, ["pds.ack.probe"]),
        ({"type": "RUDI_RESP"}, {"modified_length": 0}, ["pds.rudi_resp", "ses.response"]),
        ({"type": "CP", "ctl_type": "PROBE"}, None, ["pds.cp"]),
    ],
)  # fmt: skip
def test_the_form_is_the_first_that_has_the_given_fields(
    pds: dict[str, Any], ses: dict[str, Any] | None, found: list[str]
) -> None:
    assert forms(UET.parse(UET.build({"pds": pds, "ses": ses}))) == found


def test_extensions_are_parts() -> None:
    packet = UET.parse(UET.build({"pds": {"type": "RUD_CC_REQ"}, "cc": {"ccc_id": 3}, "ses": {}, "rendezvous": {}}))
    assert forms(packet)[1::2] == ["pds.req_cc_state", "ses.ext.rendezvous"]
    packet = UET.parse(UET.build({"pds": {"type": "ROD_REQ"}, "ses": {}, "sync": {"count": 2}, "atomic": {}}))
    assert forms(packet) == ["pds.rod_req", "ses.request_std.som", "ses.ext.sync", "ses.ext.atomic"]
    assert packet.sync.count == 2


def test_a_parsed_packet_can_be_changed_to_another_form() -> None:
    packet = UET.parse(UET.build({"pds": {"type": "RUD_REQ", "psn": 5}, "ses": {"opcode": "WRITE"}, "payload": b"x"}))
    packet.pds.type = "ROD_REQ"
    changed = UET.parse(UET.build(packet))
    assert (changed.pds._form, changed.pds.psn, changed.payload) == ("pds.rod_req", 5, b"x")


def test_native_packets_begin_with_the_entropy_header() -> None:
    data = NATIVE.build({"entropy": {"entropy": 0xABCD}, "pds": {"type": "NACK"}})
    assert data[:4].hex() == "abcd0000"
    assert NATIVE.parse(data).pds._form == "pds.nack"


# Trailers of UET


def test_a_crc_is_computed_and_checked_over_what_the_caller_says() -> None:
    layers = [Layer("ethernet", {}), Layer("ipv4", {}), Layer("udp", {}), Layer("pds.rud_req", {}),
              Layer("ses.request_std.som", {})]  # fmt: skip
    packet = decode(encode(Packet(layers, b"payload"), fill=True))
    plain = encode(Packet(packet.layers, b"payload"), fill=False)[42:]
    over = encode(Packet(packet.layers, b"payload"), fill=False)[26:40] + bytes(2)
    data = UET.build(UET.parse(plain), over=over)
    assert data[:-4] == plain
    assert UET.parse(data, over=over).trailer == int.from_bytes(data[-4:], "big")
    for at in (0, 20, len(data) - 1):
        wrong = bytearray(data)
        wrong[at] ^= 1 << 2
        with pytest.raises(ConstructError) as refusal:
            UET.parse(bytes(wrong), over=over)
        if at > 2:  # below, another header starts
            assert isinstance(refusal.value, ChecksumError)
            assert refusal.value.path == "(parsing) -> trailer"
    unchecked = UET.parse(data, crc=True)
    assert unchecked.trailer == int.from_bytes(data[-4:], "big")
    assert UET.build(unchecked, crc=True) == data
    assert UET.parse(data).payload == b"payload" + data[-4:]


def test_a_sealed_packet_is_cipher_text_and_icv() -> None:
    data = UET.build({"tss": {"sdi": 5, "ssi": 9}, "payload": b"sealed", "trailer": bytes(range(16))})
    packet = UET.parse(data)
    assert (packet.tss._form, packet.tss.sp, packet.pds) == ("tss.ssi", True, None)
    assert (packet.payload, packet.trailer) == (b"sealed", bytes(range(16)))


@pytest.mark.parametrize(
    ("packet", "arguments", "why"),
    [
        ({"pds": {"type": "ACK"}, "trailer": 5}, {}, "needs crc=True"),
        ({"pds": {"type": "ACK"}}, {"crc": True}, "cannot be computed"),
        ({"tss": {}}, {}, "cannot be computed"),
    ],
)
def test_a_trailer_is_never_guessed(packet: dict[str, Any], arguments: dict[str, Any], why: str) -> None:
    with pytest.raises(ConstructError, match=why) as refusal:
        UET.build(packet, **arguments)
    assert refusal.value.path == "(building) -> trailer"


def test_over_is_bytes() -> None:
    ack, send = b"\x38" + bytes(11), b"\x04" + bytes(15)
    for schema, packet, data in ((UET, {"pds": {"type": "ACK"}}, ack), (ROCE, {"bth": {"opcode": 4}}, send)):
        for call in (lambda: schema.parse(data, over=5), lambda: schema.build(packet, over=5)):  # noqa: B023
            with pytest.raises(StringError, match="over is bytes, not int") as refusal:
                call()
            assert refusal.value.path.endswith(" -> trailer")
    for over in (b"", b"12"):
        with pytest.raises(ConstructError, match=f"over has {len(over)} bytes; legal: an IPv4") as short:
            ROCE.parse(send, over=over)
        assert short.value.path == "(parsing) -> trailer"
    with pytest.raises(ConstructError, match="begins with its LRH"):
        LRH.build({"lrh": {"lnh": "LOCAL"}, "bth": {"opcode": 4}}, over=b"\x45" + bytes(27))


# As users of Construct use a construct


def test_a_packet_is_a_member_like_any_other() -> None:
    records = GreedyRange(Struct("number" / Int16ub, "packet" / Prefixed(Int16ub, UET)))
    packets = [{"number": n, "packet": {"pds": {"type": "ACK", "cack_psn": n}}} for n in range(3)]
    data = records.build(packets)
    assert [one.packet.pds.cack_psn for one in records.parse(data)] == [0, 1, 2]
    assert records.build(records.parse(data)) == data


def test_streams_and_sizes() -> None:
    data = UET.build({"pds": {"type": "ACK"}, "payload": b"x"})
    stream = io.BytesIO(b"before" + data)
    stream.seek(6)
    assert UET.parse_stream(stream).payload == b"x"
    with pytest.raises(SizeofError):
        UET.sizeof()
    assert SCHEMAS["pds.ack"].sizeof() == 12
    assert isinstance(UET.pds.subcon, Switch)
    assert set(UET.pds.subcon.cases) > {"pds.ack", "pds.rud_req.syn"}


# RoCE and InfiniBand


def test_roce_trailers() -> None:
    write = {"bth": {"opcode": "RC_RDMA_WRITE_ONLY"}, "reth": {"dmalen": 3}, "payload": b"abc"}
    with pytest.raises(ConstructError, match="the ICRC is missing") as refusal:
        ROCE.build(write)
    assert refusal.value.path == "(building) -> trailer"
    layers = [Layer("ethernet", {}), Layer("ipv4", {}), Layer("udp", {}), Layer("bth", {"opcode": 10}),
              Layer("reth", {"dmalen": 3})]  # fmt: skip
    frame = encode(Packet(layers, b"abc", Trailer("icrc", 0)), fill=True)
    packet = ROCE.parse(frame[42:], over=frame[14:42])
    assert (packet.payload, packet.pad, packet.bth.padcnt, packet.reth.dmalen) == (b"abc", bytes(1), 1, 3)
    assert ROCE.build(packet, over=frame[14:42]) == frame[42:]
    assert ROCE.build(write | {"bth": packet.bth}, over=frame[14:42]) == frame[42:]
    assert ROCE.parse(frame[42:]).trailer == packet.trailer
    with pytest.raises(ChecksumError):
        ROCE.parse(frame[42:-1] + bytes([frame[-1] ^ 1]), over=frame[14:42])
    with pytest.raises(ConstructError, match="over has 42 bytes; legal"):
        ROCE.parse(frame[42:], over=frame[:42])


def test_both_crcs_of_infiniband() -> None:
    data = LRH.build({"lrh": {}, "grh": {}, "bth": {"opcode": "RC_SEND_ONLY"}, "payload": b"abcde"})
    packet = LRH.parse(data)
    assert (packet.lrh.pktlen, packet.grh.paylen, packet.bth.padcnt) == ((len(data) - 2) // 4, 12 + 8 + 4, 3)
    found = decode(data, link="infiniband")
    assert found.trailer is not None
    assert found.vcrc is not None
    assert found.trailer.ok
    assert found.vcrc.ok
    assert LRH.build(packet) == data
    assert LRH.build(packet, crc=False) == data
    wrong = data[:-1] + bytes([data[-1] ^ 1])
    with pytest.raises(ChecksumError) as refusal:
        LRH.parse(wrong)
    assert refusal.value.path == "(parsing) -> vcrc"
    assert LRH.build(LRH.parse(wrong, crc=False), crc=False) == wrong


def test_roce_packets_of_all_opcodes_survive() -> None:
    rng, seen = Random(5), set()
    for opcode, headers in roce.SEQUENCES.items():
        for _ in range(effort(2, 20, 200)):
            stack = random_stack(rng, (roce.BTH,))
            while stack[0].values["opcode"] != opcode:
                stack = random_stack(rng, (roce.BTH,))
                stack[0].values["opcode"] = opcode  # type: ignore[index]
                stack = [stack[0], *(Layer(h.name, codec_of(h).decode(rng.randbytes(h.size))) for h in headers)]
            pad, payload = stack[0].values["padcnt"], rng.randbytes(4)
            packet = dict.fromkeys(ROCE.parts) | parts_of(ROCE, stack)
            packet |= {"payload": payload, "pad": bytes(pad), "trailer": rng.getrandbits(32)}
            data = ROCE.build(packet)
            assert data[:-4] == encoded(stack) + payload + bytes(pad)
            assert ROCE.parse(data) == packet
            seen |= {layer.form for layer in stack}
    assert seen == {*ROCE_FORMS} - {"lrh", "grh"}


# SHARP


def test_a_join_has_its_ranks() -> None:
    data = SHARP.build({"sharp": {"opcode": "GROUP_JOIN_REQ"}, "udh": {"data": 5}, "body": {}, "ranks": [1, 2, 3]})
    message = SHARP.parse(data)
    assert (message.body.member_count, list(message.ranks), message.sharp.payload_len) == (3, [1, 2, 3], 22)
    assert (message.sharp.flags.UDH, message.sharp.ext_words, message.pad) == (True, 2, bytes(2))
    assert SHARP.build(message) == data


def test_a_vector_is_the_payload() -> None:
    data = SHARP.build({"sharp": {"opcode": "AGG_REQ", "dtype": "FLOAT", "count": 2}, "payload": bytes(range(8))})
    message = SHARP.parse(data + b"the next")
    assert (message.payload, message.body, message.pad) == (bytes(range(8)), None, b"")


def test_messages_of_all_opcodes_survive() -> None:
    seen = set()
    for opcode in sharp.SharpOpcode:
        for extensions in ((), ("udh",), ("tgt",), ("udh", "tgt")):
            parts = {part: {} for part in extensions} | ({"body": {}} if opcode in sharp.BODIES else {})
            vector = bytes(7) if opcode in sharp.VECTORS else b""
            message = SHARP.parse(SHARP.build({"sharp": {"opcode": opcode}, "payload": vector, **parts}))
            assert message.payload == vector
            assert SHARP.parse(SHARP.build(message)) == message
            seen |= set(forms(message))
    assert seen == {form for form in SHARP_FORMS if not form.startswith("sharp.am")}


# What is refused


@pytest.mark.parametrize(
    ("data", "path", "why"),
    [
        ("f800", "pds", "f800"),
        ("17800000000000000000ffff", "ses", "15 is reserved"),
        ("38", "tss", "2"),
        ("3900000000000000000000", "pds", "12"),
        ("3a0000000000000000000000", "ses", "2"),
    ],
)
def test_bytes_that_are_no_packet(data: str, path: str, why: str) -> None:
    with pytest.raises(ConstructError) as refusal:
        UET.parse(bytes.fromhex(data))
    assert refusal.value.path.startswith("(parsing) -> ")
    assert why in str(refusal.value)


@pytest.mark.parametrize(
    ("schema", "packet", "path", "why"),
    [
        (UET, {"pds": {"type": "NACK"}, "ses": {}}, "ses", "it cannot follow pds.nack"),
        (UET, {"ses": {}}, "pds", "tss or pds must stand here"),
        (UET, {}, "pds", "tss or pds must stand here"),
        (UET, {"tss": {}, "pds": {"type": "ACK"}}, "pds", "it cannot follow tss"),
        (UET, {"pds": {"type": "RUD_REQ", "next_hdr": 0}, "ses": {}}, "ses", "it cannot follow pds.rud_req"),
        (UET, {"pds": {"type": "RUD_REQ", "next_hdr": 4}, "ses": {"form": "ses.request_std"}}, "ses", "cannot stand"),
        (UET, {"pds": {"type": "RUD_REQ", "next_hdr": 3}}, "ses", "ses must stand here"),
        (UET, {"pds": {"type": "RUD_REQ", "next_hdr": 9}, "ses": {}}, "pds -> next_hdr", "9 is reserved"),
        (UET, {"pds": {"type": "RUD_CC_REQ"}, "ses": {}}, "cc", "cc must stand here"),
        (UET, {"pds": {"type": "RUD_REQ"}, "ses": {"form": "ses.send_std.som", "opcode": "WRITE"}}, "ses",
         "it is ses.request_std.som"),
        (UET, {"pds": {"type": "RUD_REQ"}, "ses": {"form": "ses.request_std.som", "som": 0}}, "ses",
         "it is ses.request_std"),
        (UET, {"pds": {"form": "pds.xyz"}}, "pds", "there is no form called 'pds.xyz' here"),
        (UET, {"pds": {"psn": 1}}, "pds -> type", "the type is missing"),
        (UET, {"pds": {"type": "ACKK"}}, "pds -> type", "did you mean ACK"),
        (UET, {"pds": {"type": "ACK", "psn": 1}}, "pds -> psn", "there is no such field"),
        (UET, {"pds": 5}, "pds", "a header is a mapping of fields, not int"),
        (UET, {"pds": {"type": "ACK"}, "foo": 1}, "foo", "there is no such part; legal: tss, pds"),
        (UET, {"pds": {"type": "ACK"}, "payload": "text"}, "payload", "a payload is bytes, not str"),
        (UET, {"pds": {"type": "ACK", "cack_psn": "x"}}, "pds -> cack_psn", "'x' is not an integer"),
        (UET, {"pds": {"type": "RUD_REQ"}, "ses": {"form": "ses.request_medium"}, "payload": bytes(70_000)},
         "ses -> request_length", "70000 is not in 0 … 16383"),
        (UET, [], "", "a packet is a mapping of parts, not list"),
        (ROCE, {"bth": {"opcode": 4}, "pad": 5}, "pad", "a pad is bytes, not int"),
        (SHARP, {"sharp": {"opcode": "AGG_REQ"}, "pad": 5}, "pad", "a pad is bytes, not int"),
        (SHARP, {"sharp": {}, "ranks": 5}, "ranks", "ranks are a list of numbers, not int"),
        (ROCE, {"bth": {"opcode": 4}, "reth": {}, "trailer": 0}, "reth", "it cannot follow bth"),
        (ROCE, {"reth": {}}, "bth", "bth must stand here"),
        (LRH, {"lrh": {"lnh": 2}, "grh": {}}, "bth", "bth must stand here"),
        (SHARP, {"body": {}}, "sharp", "sharp must stand here"),
        (SHARP, {"sharp": {}, "body": {}}, "sharp -> opcode", "the opcode is missing"),
        (SHARP, {"sharp": {"flags": "UDH"}}, "udh", "udh must stand here"),
        (SHARP, {"sharp": {"flags": 0}, "udh": {}}, "udh", "it cannot follow sharp"),
        (SHARP, {"sharp": {"opcode": "AGG_REQ", "payload_len": 5}}, "sharp -> payload_len", "5 is not the 0 bytes"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused_with_its_path(schema: Any, packet: Any, path: str, why: str) -> None:
    with pytest.raises(ConstructError) as refusal:
        schema.build(packet)
    assert refusal.value.path == "(building)" + (f" -> {path}" if path else "")
    assert why in str(refusal.value)


@pytest.mark.parametrize("schema", [UET, NATIVE, ROCE, LRH, SHARP], ids=["UET", "NATIVE", "ROCE", "LRH", "SHARP"])
def test_no_bytes_raise_another_error(schema: Any) -> None:
    rng = Random(3)
    heads = [b"", *(bytes([type << 3]) for type in range(1, 15)), b"\x04", b"\x0a", b"\x01\x00\x10"]
    for _ in range(effort(300, 5000, 50_000)):
        data = rng.choice(heads) + rng.randbytes(rng.randrange(90))
        try:
            parsed = schema.parse(data)
        except ConstructError:
            continue
        arguments = {"crc": False} if schema is LRH else {}
        assert data.startswith(schema.build(parsed, **arguments))


NAMES = (
    "pds", "ses", "tss", "sharp", "bth", "lrh", "body", "payload", "pad", "trailer", "ranks", "type", "form", "opcode",
    "flags",
)  # fmt: skip
LEAVES = st.none() | st.integers() | st.floats() | st.text(max_size=5) | st.binary(max_size=5)
HEADS = st.fixed_dictionaries({}, optional={
    "pds": st.fixed_dictionaries({"type": st.integers(0, 16)}),
    "bth": st.fixed_dictionaries({"opcode": st.sampled_from((4, 10, 17, 36, 100))}),
    "lrh": st.fixed_dictionaries({"lnh": st.integers(0, 3)}),
    "sharp": st.fixed_dictionaries({"opcode": st.integers(0, 20)}),
})  # fmt: skip


def nested(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=4)


@given(st.recursive(LEAVES, nested, max_leaves=8), HEADS, st.fixed_dictionaries({}, optional={
    "over": LEAVES | st.just(b"\x45" + bytes(27)), "crc": LEAVES,
}))  # fmt: skip
def test_no_value_raises_another_error(value: Any, heads: dict[str, Any], arguments: dict[str, Any]) -> None:
    for schema in (UET, ROCE, LRH, SHARP):
        with suppress(ConstructError):
            schema.build(value, **arguments)
        known = {name: fields for name, fields in heads.items() if name in schema.parts}
        with suppress(ConstructError):
            schema.build(value | known if isinstance(value, dict) else known, **arguments)


# Vectors and captures


def test_golden_packets_survive() -> None:
    count = 0
    for path in sorted(paths.PCAPS.rglob("*.pcapng")):
        with open_capture(path) as capture:
            for record in islice(capture, None, None, effort(3, 1, 1)):
                packet = decode(record.data)
                start = next((layer.offset for layer in packet.layers if layer.form in UET_FORMS), None)
                if start is None or packet.error or packet.notes:
                    continue
                schema = NATIVE if any(layer.form == "entropy" for layer in packet.layers) else UET
                end = len(record.data) - len(packet.raw)
                data = record.data[start:end]
                arguments = {"crc": True} if packet.trailer and packet.trailer.kind == "crc32c" else {}
                parsed = schema.parse(data, **arguments)
                assert schema.build(parsed, **arguments) == data
                assert parsed.payload == packet.payload
                count += 1
    assert count > 100


def test_every_vector_is_a_part() -> None:
    vectors = json.loads(paths.VECTORS.read_text())["vectors"]
    parts = {header.name: part for part, headers in NATIVE.parts.items() for header in headers}
    for vector in vectors:
        if vector["form"] in parts:
            data = bytes.fromhex(vector["hex"])
            part = getattr(NATIVE, parts[vector["form"]]).subcon.cases[vector["form"]]
            assert part.build(part.parse(data)) == data
            assert part.parse(data) == Container(vector["fields"])


def test_a_typed_script_of_a_user() -> None:
    assert psn_of(write(9, b"data")) == 9
    assert psn_of(b"\xff") is None
    assert "pds.ack" in USER_FORMS


def test_a_packet_is_a_member_of_what_is_compiled() -> None:
    record = Struct("port" / Int8ub, "packet" / Prefixed(Int16ub, UET))
    values = {"port": 7, "packet": {"pds": {"type": "ACK", "cack_psn": 9}}}
    compiled = record.compile()
    assert compiled.build(values) == record.build(values)
    assert compiled.parse(record.build(values)) == record.parse(record.build(values))
    whole = UET.compile()
    assert whole.build(values["packet"], over=b"") == UET.build(values["packet"], over=b"")
    with pytest.raises(ChecksumError):
        whole.parse(whole.build(values["packet"], over=b"") + b"1", over=b"")
