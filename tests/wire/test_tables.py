# SPDX-License-Identifier: GPL-2.0-only
"""The tables: what is refused at import, and what every back-end relies on."""

import pytest

from tests.support.each import each
from uetproto.errors import LocalError
from uetproto.wire.codec import codec_of
from uetproto.wire.fields import Field, Header
from uetproto.wire.forms import FORMS, NEXT, UET_FORMS, matches


def header(*fields: Field, size: int) -> Header:
    return Header("test.header", "Test", "ours", size, fields)


@pytest.mark.parametrize(
    ("fields", "size"),
    [
        ((Field(7, "a"),), 1),  # the bits do not add up
        ((Field(8, "a"), Field(8, "a")), 2),  # twice
        ((Field(8, "payload"),), 1),  # Scapy owns that name
        ((Field(8, "not a name"),), 1),
        ((Field(4, "a"), Field(68, "b")), 9),  # wide and not byte-aligned
        ((Field(4, "a"), Field(64, "b"), Field(4, "c")), 9),  # spans nine bytes
        ((Field(8, "a", only=(256,)),), 1),
        ((Field(8, "a", only=(-1,)),), 1),
    ],
)
def test_a_bad_table_is_refused(fields: tuple[Field, ...], size: int) -> None:
    with pytest.raises(ValueError, match=r"test\.header"):
        header(*fields, size=size)


def test_rows_by_name() -> None:
    ack = FORMS["pds.ack"]
    assert ack["cack_psn"].bits == 32
    assert ack.offset_of("cack_psn") == 32
    with pytest.raises(KeyError, match=r"pds\.ack\.nothing"):
        ack["nothing"]
    with pytest.raises(KeyError):
        ack.offset_of("nothing")


def test_reserved_fields_are_numbered_in_order() -> None:
    """wire.md §0: rsvd, rsvd2, rsvd3 … in order of appearance."""
    for form in UET_FORMS.values():
        reserved = [name for name in form.names if name.startswith("rsvd")]
        assert reserved == ["rsvd", *(f"rsvd{n}" for n in range(2, len(reserved) + 1))][: len(reserved)]


def test_what_tells_forms_apart_lies_in_the_first_two_bytes() -> None:
    for form in FORMS.values():
        for row in form.fields:
            if row.only and form.name in UET_FORMS:
                assert form.offset_of(row.name) + row.bits <= 16


def test_every_form_can_be_reached() -> None:
    reached = {h for row in NEXT for candidates in (*row.then.values(), row.otherwise or ()) for h in candidates}
    assert {h.name for h in reached} | {"entropy"} == set(UET_FORMS)


def test_candidates_are_told_apart() -> None:
    """Of the candidates of one row, each is the first to match for some first two bytes."""
    for candidates in {some for row in NEXT for some in (*row.then.values(), row.otherwise or ())}:
        taken = {next((h for h in candidates if matches(h, word)), None) for word in range(65536)}
        assert set(candidates) <= taken


@each("form", FORMS)
def test_encode_refuses_what_does_not_fit(form: str) -> None:
    codec = codec_of(FORMS[form])
    for field in FORMS[form].fields:
        for value in (field.high + 1, field.low - 1, field.high + 1 << 72):
            with pytest.raises(LocalError, match=rf"{form}\.{field.name}: -?\d+ is not in"):
                codec.encode({field.name: value})
        assert codec.decode(codec.encode({field.name: field.high}))[field.name] == field.high
        assert codec.decode(codec.encode({field.name: field.low}))[field.name] == field.low
    with pytest.raises(LocalError, match=r"no such field.*; legal: "):
        codec.encode({"nothing": 1})
    with pytest.raises(LocalError, match="no such field"):
        codec.encode({**codec.decode(bytes(codec.size)), "nothing": 1})
    with pytest.raises(LocalError, match="is not an integer"):
        codec.encode({FORMS[form].fields[0].name: "1"})  # type: ignore[dict-item]


@each("form", FORMS)
def test_defaults_identify_the_form(form: str) -> None:
    codec = codec_of(FORMS[form])
    values = codec.decode(codec.encode({}))
    assert all(values[f.name] == f.default for f in FORMS[form].fields)
