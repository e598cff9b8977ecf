# SPDX-License-Identifier: GPL-2.0-only
"""The Construct schemas of headers against the golden vectors, the codec, and what users of Construct expect."""

import copy
import json
import pickle
from enum import IntFlag
from random import Random
from typing import Any

import pytest
from construct import (
    BitsInteger,
    Bytes,
    BytesInteger,
    ConstructError,
    Default,
    Enum,
    Flag,
    FlagsEnum,
    GreedyBytes,
    Int16ub,
    IntegerError,
    MappingError,
    Renamed,
    StreamError,
    Struct,
    Transformed,
)  # fmt: skip
from hypothesis import given
from hypothesis import strategies as st

from tests.support import paths
from tests.support.each import each
from tests.support.effort import effort
from tests.support.strategies import bytes_of, headers, random_header, random_values, values_of
from uetproto.schemas import SCHEMAS
from uetproto.wire.codec import codec_of
from uetproto.wire.forms import FORMS
from uetproto.wire.headers.uet_pds import NackCode
from uetproto.wire.headers.uet_ses import Opcode

VECTORS = json.loads(paths.VECTORS.read_text())["vectors"]


def test_there_is_a_schema_for_every_form() -> None:
    assert list(SCHEMAS) == list(FORMS)
    assert {form: schema.sizeof() for form, schema in SCHEMAS.items()} == {f: h.size for f, h in FORMS.items()}


@each("form", sorted({vector["form"] for vector in VECTORS}))
def test_vectors(form: str) -> None:
    vectors = [vector for vector in VECTORS if vector["form"] == form]
    assert len(vectors) == 5
    for vector in vectors:
        data = bytes.fromhex(vector["hex"])
        parsed = SCHEMAS[form].parse(data)
        assert list(parsed.items()) == list(vector["fields"].items())
        assert SCHEMAS[form].build(vector["fields"]) == data
        assert SCHEMAS[form].build(parsed) == data


@each("form", FORMS)
def test_random_bytes_read_as_the_codec_reads_them(form: str) -> None:
    rng, codec, schema = Random(form), codec_of(FORMS[form]), SCHEMAS[form]
    for _ in range(effort(40, 100, 100)):
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
    values = data.draw(values_of(header))
    assert SCHEMAS[header.name].parse(SCHEMAS[header.name].build(values)) == values


@each("form", FORMS)
def test_missing_fields_take_their_default(form: str) -> None:
    assert SCHEMAS[form].build({}) == codec_of(FORMS[form]).encode({})


def test_none_takes_the_default_as_everywhere_in_construct() -> None:
    assert SCHEMAS["pds.ack"].build({"cack_psn": None, "type": None}) == SCHEMAS["pds.ack"].build({})


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


def constructs_of(form: str) -> dict[str, Any]:
    """Return the construct of each field of a form, below its name and its default."""
    schema = SCHEMAS[form]
    found = {}
    for member in (schema.subcon if isinstance(schema, Transformed) else schema).subcons:
        construct = member
        while isinstance(construct, Renamed | Default):
            construct = construct.subcon
        found[member.name] = (member, construct)
    return found


@each("form", FORMS)
def test_a_schema_is_a_tree_of_the_constructs_that_its_rows_say(form: str) -> None:
    header, found = FORMS[form], constructs_of(form)
    assert list(found) == list(header.names)
    whole = all(field.bits % 8 == 0 for field in header.fields)
    assert isinstance(SCHEMAS[form], Struct if whole else Transformed)
    assert header.title in SCHEMAS[form].docs
    for field in header.fields:
        member, construct = found[field.name]
        assert member.docs == field.doc
        if field.values is not None:
            kind = FlagsEnum if issubclass(field.values, IntFlag) else Enum
            assert isinstance(construct, kind)
            some = next(iter(field.values))
            assert getattr(construct, some.name) == some.name
        elif field.bits == 1:
            assert isinstance(construct, type(Flag))
        else:
            assert isinstance(construct, BytesInteger if whole else BitsInteger)


@each("form", FORMS)
def test_a_compiled_schema_reads_and_builds_the_same(form: str) -> None:
    rng, schema = Random(form), SCHEMAS[form]
    compiled = schema.compile()
    for _ in range(10):
        data = random_header(FORMS[form], rng)
        parsed = schema.parse(data)
        assert compiled.parse(data) == parsed
        assert compiled.build(parsed) == schema.build(parsed) == data


def test_bits_are_attributes_items_and_text() -> None:
    schema = SCHEMAS["sharp.join_req"]
    data = schema.build({"features": "LLT|SAT"})
    assert data == schema.build({"features": {"LLT": True, "SAT": 1, "REPRODUCIBLE": False}})
    features = schema.parse(data).features
    assert (features.LLT, features["SAT"], features.REPRODUCIBLE) == (True, True, False)
    assert (features, str(features)) == (5, "LLT|SAT")
    assert {name for name in list(features.keys()) if features[name]} == {"LLT", "SAT"}
    assert "SAT_EXCLUSIVE_LOCK" in dir(features)
    with pytest.raises(AttributeError):
        _ = features.NOTHING
    assert pickle.loads(pickle.dumps(features)).SAT


def test_bits_without_a_name_are_kept() -> None:
    schema = SCHEMAS["sharp.join_req"]
    data = schema.build({"features": 0x80000001})
    assert str(schema.parse(data).features) == "LLT|0x80000000"
    assert schema.build({"features": "LLT|0x80000000"}) == data
    with pytest.raises(MappingError, match="features has no code called '0xg'"):
        schema.build({"features": "0xg"})


@pytest.mark.parametrize("wrong", [1, "text", [], b"bytes"])
def test_fields_are_a_mapping(wrong: Any) -> None:
    with pytest.raises(MappingError, match="the fields of a header are a mapping, not"):
        SCHEMAS["pds.ack"].build(wrong)


def test_errors_propose_a_name() -> None:
    with pytest.raises(MappingError, match=r"no such field in pds\.ack \(did you mean cack_psn\?"):
        SCHEMAS["pds.ack"].build({"cackpsn": 1})
    with pytest.raises(MappingError, match=r"no code called 'ROD_OO' \(did you mean ROD_OOO"):
        SCHEMAS["pds.nack"].build({"nack_code": "ROD_OO"})
    with pytest.raises(IntegerError, match="a number of 4001 bits is not in 0"):
        SCHEMAS["pds.ack"].build({"cack_psn": 1 << 4000})


def test_a_form_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ConstructError, match=r"'pds.akc' is no form \(did you mean pds.ack or .*\); legal: ethernet, "):
        SCHEMAS["pds.akc"]
    with pytest.raises(KeyError):
        SCHEMAS["pds.akc"]
    assert SCHEMAS.get("pds.akc") is None
    assert "pds.akc" not in SCHEMAS
