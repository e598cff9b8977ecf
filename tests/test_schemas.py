"""The Construct schemas against the golden vectors, the codec, and what users of Construct expect."""

import copy
import json
import pickle
from random import Random
from typing import Any

import pytest
from construct import Bytes, ConstructError, GreedyBytes, Int16ub, IntegerError, MappingError, StreamError, Struct
from hypothesis import given
from hypothesis import strategies as st

from tests.support import paths
from tests.support.strategies import bytes_of, headers, random_header, random_stack, random_values, stacks, values_of
from uetproto import encode
from uetproto.schemas import LRH, ROCE, SCHEMAS, SHARP, UET
from uetproto.wire.codec import codec_of
from uetproto.wire.forms import FORMS, UET_FORMS
from uetproto.wire.headers.uet_pds import NackCode
from uetproto.wire.headers.uet_ses import Opcode
from uetproto.wire.packet import Layer, Packet

VECTORS = json.loads(paths.VECTORS.read_text())["vectors"]


def test_there_is_a_schema_for_every_form() -> None:
    assert list(SCHEMAS) == list(FORMS)
    assert {form: schema.sizeof() for form, schema in SCHEMAS.items()} == {f: h.size for f, h in FORMS.items()}


@pytest.mark.parametrize("form", sorted({vector["form"] for vector in VECTORS}))
def test_vectors(form: str) -> None:
    vectors = [vector for vector in VECTORS if vector["form"] == form]
    assert len(vectors) == 5
    for vector in vectors:
        data = bytes.fromhex(vector["hex"])
        parsed = SCHEMAS[form].parse(data)
        assert list(parsed.items()) == list(vector["fields"].items())
        assert SCHEMAS[form].build(vector["fields"]) == data
        assert SCHEMAS[form].build(parsed) == data


@pytest.mark.parametrize("form", FORMS)
def test_random_bytes_read_as_the_codec_reads_them(form: str) -> None:
    rng, codec, schema = Random(form), codec_of(FORMS[form]), SCHEMAS[form]
    for _ in range(100):
        data = random_header(FORMS[form], rng)
        parsed = schema.parse(data)
        assert list(parsed.items()) == list(codec.decode(data).items())
        assert schema.build(parsed) == data
        values = random_values(FORMS[form], rng, legal=False)
        assert schema.build(values) == codec.encode(values)


@given(st.data())
def test_any_bytes_and_any_values_survive(data: Any) -> None:
    header = data.draw(headers)
    raw = data.draw(bytes_of(header))
    assert SCHEMAS[header.name].build(SCHEMAS[header.name].parse(raw)) == raw
    values = data.draw(values_of(header, legal=False))
    assert SCHEMAS[header.name].parse(SCHEMAS[header.name].build(values)) == values


@pytest.mark.parametrize("form", FORMS)
def test_missing_fields_take_their_default(form: str) -> None:
    assert SCHEMAS[form].build({}) == codec_of(FORMS[form]).encode({})


def test_a_named_code_is_number_and_name() -> None:
    schema = SCHEMAS["ses.request_std.som"]
    data = schema.build({"opcode": "FETCHING_ATOMIC"})
    assert data == schema.build({"opcode": 4}) == schema.build({"opcode": Opcode.FETCHING_ATOMIC})
    opcode = schema.parse(data).opcode
    assert opcode == 4
    assert opcode == "FETCHING_ATOMIC"
    assert opcode == Opcode.FETCHING_ATOMIC
    assert opcode not in (3, "ATOMIC")
    assert (int(opcode), opcode.intvalue, str(opcode), repr(opcode)) == (4, 4, "FETCHING_ATOMIC", "FETCHING_ATOMIC (4)")
    assert {4: "by number"}[opcode] == "by number"
    assert schema.build({"opcode": opcode}) == data


def test_an_unknown_code_survives() -> None:
    schema = SCHEMAS["pds.nack"]
    data = schema.build({"nack_code": 0xC0})
    assert 0xC0 not in list(NackCode)
    assert schema.parse(data).nack_code == 0xC0
    assert schema.build(schema.parse(data)) == data


def test_reserved_bits_and_signs_are_kept() -> None:
    schema = SCHEMAS["pds.ack"]
    parsed = schema.parse(bytes.fromhex("3c41fffe000000070001ffff"))
    assert (parsed.rsvd, parsed.rsvd2, parsed.ack_psn_offset, parsed.dpdcid) == (1, 1, -2, 0xFFFF)
    assert schema.build(parsed).hex() == "3c41fffe000000070001ffff"


def test_a_parsed_header_can_be_copied() -> None:
    parsed = SCHEMAS["pds.ack"].parse(bytes.fromhex("3a000000000000070001ffff"))
    for twin in (copy.deepcopy(parsed), pickle.loads(pickle.dumps(parsed))):
        assert twin == parsed
        assert twin.type == "ACK"


@pytest.mark.parametrize(
    ("form", "values", "error", "where", "why"),
    [
        ("pds.ack", {"m": 2}, IntegerError, "header -> m", "2 is not in 0 … 1"),
        ("pds.ack", {"m": -1}, IntegerError, "header -> m", "-1 is not in 0 … 1"),
        ("pds.ack", {"ack_psn_offset": 32768}, IntegerError, "header -> ack_psn_offset", "-32768 … 32767"),
        ("pds.ack", {"ack_psn_offset": -32769}, IntegerError, "header -> ack_psn_offset", "-32768 … 32767"),
        ("pds.ack", {"cack_psn": None}, IntegerError, "header -> cack_psn", "None is not an integer"),
        ("pds.ack", {"cack_psn": 1.0}, IntegerError, "header -> cack_psn", "1.0 is not an integer"),
        ("pds.ack", {"type": "WRITE"}, MappingError, "header -> type", "no code called 'WRITE'"),
        ("pds.ack", {"psn": 1}, MappingError, "header -> psn", "no such field in pds.ack"),
        ("pds.ccx_state", {"ack_ccx_state": 1 << 128}, IntegerError, "header -> ack_ccx_state", "is not in 0"),
    ],
)
def test_what_does_not_fit_is_refused_with_its_path(
    form: str, values: dict[str, Any], error: type[ConstructError], where: str, why: str
) -> None:
    packet = Struct("header" / SCHEMAS[form])
    with pytest.raises(error) as refusal:
        packet.build({"header": values})
    assert refusal.value.path == f"(building) -> {where}"
    assert why in str(refusal.value)


def test_short_data_is_refused() -> None:
    for form, schema in SCHEMAS.items():
        with pytest.raises(StreamError):
            schema.parse(bytes(FORMS[form].size - 1))


def test_a_schema_is_a_member_like_any_other() -> None:
    packet = Struct("magic" / Bytes(2), "pds" / SCHEMAS["pds.nack"], "rest" / GreedyBytes)
    data = b"ab" + SCHEMAS["pds.nack"].build({"nack_code": "ROD_OOO", "nack_psn": 9}) + b"cd"
    parsed = packet.parse(data)
    assert (parsed.pds.nack_code, parsed.pds.nack_psn, parsed.rest) == ("ROD_OOO", 9, b"cd")
    assert packet.build(parsed) == data
    assert SCHEMAS["entropy"].build(Struct("entropy" / Int16ub, "rsvd" / Int16ub).parse(b"abcd")) == b"abcd"
    assert len(SCHEMAS["entropy"][3].parse(bytes(12))) == 3


# The whole stack


def _as_list(stack: list[Layer]) -> list[dict[str, Any]]:
    return [{"form": layer.form, "fields": layer.values} for layer in stack]


def _encoded(stack: list[Layer]) -> bytes:
    return b"".join(codec_of(FORMS[layer.form]).encode(layer.values) for layer in stack)


def test_stacks_follow_the_table() -> None:
    rng = Random(7)
    packet = Struct("headers" / UET, "payload" / GreedyBytes)
    seen = set()
    for _ in range(2000):
        stack = random_stack(rng)
        seen |= {layer.form for layer in stack}
        data = _encoded(stack) + b"payload"
        parsed = packet.parse(data)
        assert parsed.headers == _as_list(stack)
        assert parsed.payload == b"payload"
        assert packet.build(parsed) == data
    assert seen == {*UET_FORMS} - {"entropy"}


@given(stacks)
def test_stacks_build_from_plain_lists(stack: list[Layer]) -> None:
    assert UET.build(_as_list(stack)) == _encoded(stack)


@pytest.mark.parametrize(
    ("data", "path", "why"),
    [
        ("f800", "0", "f800"),
        ("17800000000000000000ffff", "0 -> next_hdr", "15 is reserved"),
        ("38", "0", "2"),
        ("3900000000000000000000", "0", "10"),
        ("3a0000000000000000000000", "1", "2"),
    ],
)
def test_stacks_that_are_none(data: str, path: str, why: str) -> None:
    with pytest.raises(ConstructError) as refusal:
        UET.parse(bytes.fromhex(data))
    assert refusal.value.path == f"(parsing) -> {path}"
    assert why in str(refusal.value)


def test_an_unknown_form_is_refused() -> None:
    with pytest.raises(MappingError) as refusal:
        UET.build([{"form": "pds.cp", "fields": {}}, {"form": "pds.xyz", "fields": {}}])
    assert refusal.value.path == "(building) -> 1"


def _headers(*forms: str | tuple[str, dict[str, Any]]) -> list[dict[str, Any]]:
    pairs = [(form, {}) if isinstance(form, str) else form for form in forms]
    return [{"form": form, "fields": fields} for form, fields in pairs]


@pytest.mark.parametrize(
    ("schema", "forms"),
    [
        (UET, ["pds.rud_req", "ses.request_std.som"]),
        (UET, ["pds.rud_cc_req.syn", "pds.req_cc_state", "ses.send_std.som", "ses.ext.rendezvous"]),
        (UET, ["pds.rod_req", "ses.request_std.som", "ses.ext.sync", "ses.ext.atomic"]),
        (UET, ["pds.ack_cc", "pds.cc_state.credit", "ses.response"]),
        (UET, ["pds.ack.epsn"]),
        (ROCE, ["bth", "reth"]),
        (ROCE, ["bth", "deth", "imm"]),
        (LRH, ["lrh", "grh", "bth"]),
        (LRH, ["lrh", "bth", "aeth"]),
        (SHARP, ["sharp"]),
    ],
)
def test_headers_announce_those_that_follow(schema: Any, forms: list[str]) -> None:
    """No header that is built is lost when it is parsed."""
    assert [layer.form for layer in schema.parse(schema.build(_headers(*forms)))] == forms


def test_what_follows_is_filled_as_encode_fills_it() -> None:
    """The table of `wire.defaults` is one for all; what is given stays, a 0 too."""
    packet = Struct("headers" / UET, "payload" / GreedyBytes)
    for fields in ({}, {"request_length": 0, "message_id": 0}, {"eom": 0}, {"opcode": "READ"}):
        named = {name: 2 if value == "READ" else value for name, value in fields.items()}
        layers = [Layer("pds.rud_req", {"psn": 7}), Layer("ses.request_std.som", named)]
        wanted = encode(Packet(layers, b"data"), fill=True)
        headers = _headers(("pds.rud_req", {"psn": 7}), ("ses.request_std.som", fields))
        assert packet.build({"headers": headers, "payload": b"data"}) == wanted
        assert UET.build(headers, payload=b"data") + b"data" == wanted
        assert packet.parse(wanted).headers[1].fields.items() >= fields.items()


@pytest.mark.parametrize(
    ("schema", "headers", "path", "why"),
    [
        (UET, _headers("pds.nack", "ses.response"), "1", "ses.response cannot follow pds.nack"),
        (UET, _headers("ses.response", "pds.nack"), "0", "ses.response cannot stand here"),
        (UET, _headers("pds.rud_req", "pds.ack"), "1", "pds.ack cannot follow pds.rud_req"),
        (UET, _headers(("pds.rud_req", {"next_hdr": 0}), "ses.response"), "1", "ses.response cannot follow"),
        (UET, _headers(("pds.rud_req", {"next_hdr": 4}), "ses.request_std"), "1", "ses.request_std cannot stand here"),
        (UET, _headers(("pds.rud_req", {"next_hdr": 3})), "1", "a header of ses must follow"),
        (UET, _headers(("pds.rud_req", {"next_hdr": 9}), "ses.response"), "0 -> next_hdr", "9 is reserved"),
        (UET, _headers("pds.rud_cc_req", "ses.request_std"), "1", "cannot stand here"),
        (UET, _headers("pds.rud_req", ("ses.send_std.som", {"opcode": "WRITE"})), "1", "it is ses.request_std.som"),
        (UET, _headers("pds.rud_req", ("ses.request_std.som", {"som": 0})), "1", "it is ses.request_std"),
        (UET, _headers("pds.rud_req", "ses.request_std.som", "ses.ext.sync", "ses.ext.sync"), "2", "cannot follow"),
        (UET, [], "0", "a header of pds must follow"),
        (ROCE, _headers(("bth", {"opcode": 4}), "reth"), "1", "reth cannot follow bth"),
        (ROCE, _headers("reth"), "0", "reth cannot stand here"),
        (LRH, _headers(("lrh", {"lnh": 2}), "grh"), "1", "grh cannot stand here"),
        (SHARP, _headers("sharp.join_req"), "0", "sharp stands here"),
        (SHARP, _headers("sharp", "sharp.ext.udh"), "1", "not sharp.ext.udh"),
        (SHARP, _headers(("sharp", {"flags": "UDH"})), "1", "sharp.ext.udh must follow"),
    ],
)
def test_impossible_orders_are_refused(schema: Any, headers: list[Any], path: str, why: str) -> None:
    with pytest.raises(ConstructError) as refusal:
        schema.build(headers)
    assert refusal.value.path == f"(building) -> {path}"
    assert why in str(refusal.value)
