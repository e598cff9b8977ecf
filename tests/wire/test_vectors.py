"""Golden vectors, packed by separate code: the tables say the same, and every prefix is refused."""

import json
from pathlib import Path
from typing import Any

import pytest

from uetproto import decode
from uetproto.wire.codec import codec_of
from uetproto.wire.forms import FORMS, UET_FORMS

VECTORS: list[dict[str, Any]] = json.loads((Path(__file__).parent.parent / "vectors/uet.json").read_text())["vectors"]


def by_form(vector: dict[str, Any]) -> str:
    return str(vector["form"])


def test_every_form_has_five_vectors() -> None:
    assert len(UET_FORMS) == 52
    for form in UET_FORMS:
        assert sum(vector["form"] == form for vector in VECTORS) == 5


@pytest.mark.parametrize("vector", VECTORS, ids=by_form)
def test_vector_both_ways(vector: dict[str, Any]) -> None:
    codec = codec_of(FORMS[vector["form"]])
    data, fields = bytes.fromhex(vector["hex"]), vector["fields"]
    assert list(codec.decode(data).items()) == list(fields.items())  # values, and their order
    assert codec.unpack(data) == tuple(fields.values())
    assert codec.encode(fields) == data
    assert codec.pack(*fields.values()) == data
    assert codec.decode(b"\xff" * 3 + data + b"\xff", 3) == fields


FIRST_BYTES = {  # what makes a frame end in the form: the UET headers before it
    "entropy": "",
    "tss": "", "tss.ssi": "",
    "pds.req_cc_state": "68000000" + "00" * 8,  # after pds.rud_cc_req
    "pds.cc_state.nscc": "40000000" + "00" * 20,  # after pds.ack_cc with cc_type 0
    "pds.cc_state.credit": "40000000" + "00" * 8 + "10" + "00" * 11,
    "pds.cc_state.other": "40000000" + "00" * 8 + "20" + "00" * 11,
    "pds.ccx_state": "48000000" + "00" * 20,
    "pds.nack_ccx_state": "60000000" + "00" * 12,
    "ses.ext.rendezvous": "11800000" + "00" * 8 + "0603" + "00" * 42,  # after ses.send_std.som
    "ses.ext.atomic": "11800000" + "00" * 8 + "0303" + "00" * 42,
    "ses.ext.atomic_cas": "11800000" + "00" * 8 + "0303" + "00" * 42,
    "ses.ext.sync": "11800000" + "00" * 8 + "1003" + "00" * 42,
    "ses.response": "3a000000" + "00" * 8,  # after pds.ack
    "ses.response_data": "3a800000" + "00" * 8,
    "ses.response_data_small": "3b000000" + "00" * 8,
}  # fmt: skip


def uet_before(form: str) -> bytes:
    """The shortest legal UET bytes that lead to `form`."""
    if form in FIRST_BYTES or form.startswith("pds."):
        return bytes.fromhex(FIRST_BYTES.get(form, ""))
    size = {"ses.request_small": 1, "medium": 2, "std": 3}
    code = next(value for name, value in size.items() if name in form)
    return (2 << 11 | code << 7).to_bytes(2, "big") + bytes(10)  # pds.rud_req


def frame_around(uet: bytes, *, native: bool, total: int | None = None) -> bytes:
    """Ethernet, IPv4 and UDP, or the entropy header, packed here by hand."""
    inner = uet if native else bytes.fromhex("c00012b9") + (8 + len(uet)).to_bytes(2, "big") + b"\0\0" + uet
    length = 20 + (len(inner) if total is None else total)
    ip = (
        bytes.fromhex("4520")
        + length.to_bytes(2, "big")
        + bytes.fromhex("00004000 40")
        + bytes([253 if native else 17])
    )
    return bytes(12) + b"\x08\x00" + ip + b"\0\0" + bytes.fromhex("0a00000b 0a00010b") + inner


@pytest.mark.parametrize("vector", VECTORS, ids=by_form)
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
