# SPDX-License-Identifier: GPL-2.0-only
"""Golden vectors, packed by separate code: the tables say the same, and every prefix is refused."""

from typing import Any

from tests.support.each import each
from tests.support.wire.vectors import (
    VECTORS,
    frame_around,
    uet_before,
)
from uetproto import decode
from uetproto.wire.codec import codec_of, header_class
from uetproto.wire.forms import FORMS, UET_FORMS


def by_form(vector: dict[str, Any]) -> str:
    return str(vector["form"])


def test_every_form_has_five_vectors() -> None:
    assert len(UET_FORMS) == 52
    for form in UET_FORMS:
        assert sum(vector["form"] == form for vector in VECTORS) == 5


@each("vector", VECTORS)
def test_vector_both_ways(vector: dict[str, Any]) -> None:
    codec = codec_of(FORMS[vector["form"]])
    data, fields = bytes.fromhex(vector["hex"]), vector["fields"]
    assert list(codec.decode(data).items()) == list(fields.items())  # values, and their order
    named = header_class(FORMS[vector["form"]])
    assert named.read(data) == named.unpack(data) == named(**fields)
    assert named.read(b"\xff" * 3 + data, 3) == named.unpack(b"\xff" * 3 + data, 3) == named(**fields)
    assert codec.encode(fields) == data
    assert named.pack(**fields) == data
    assert codec.decode(b"\xff" * 3 + data + b"\xff", 3) == fields


@each("vector", VECTORS)
def test_vector_in_a_frame_and_every_prefix(vector: dict[str, Any]) -> None:
    """Cut anywhere: the form is there exactly when all its bytes are, and the fault says where."""
    form, data = vector["form"], bytes.fromhex(vector["hex"])
    native = form == "entropy"
    before = uet_before(form)
    for cut in range(len(data) + 1):
        frame = frame_around(before + data[:cut], native=native)
        packet = decode(frame, crc="off")
        found = [layer for layer in packet.layers if layer.form == form]
        assert bool(found) == (cut == len(data))
        if found:
            assert found[0].values == vector["fields"]
            assert found[0].offset == len(frame) - len(data)
        else:
            assert packet.error is not None
            assert packet.error.kind == "malformed"
            assert packet.error.offset == len(frame) - cut
