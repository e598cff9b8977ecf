# SPDX-License-Identifier: GPL-2.0-only
"""This module has assertions that tshark, with the plugin, and `decode` show the same fields of a frame."""

from tests.support.interop.tshark import (
    Shown,
    number,
)
from uetproto import Layer, Packet
from uetproto.wire.forms import FORMS, UET_FORMS
from uetproto.wire.serial import add32
from uetproto.wireshark.lua import filter_name


def assert_same(found: Shown | None, packet: Packet, what: str) -> None:
    """Assert that tshark and `decode` say the same of a frame."""
    layers = [layer for layer in packet.layers if layer.form in UET_FORMS]
    assert found is not None, what
    assert [(b.name, b.place) for b in found.branches] == [
        (filter_name(layer.form), (layer.offset, layer.size)) for layer in layers
    ], what
    for branch, layer in zip(found.branches, layers, strict=True):
        header = FORMS[layer.form]
        assert {name: number(text) for name, text in branch.values.items()} == dict(layer.values), what
        for field in header.fields:
            start = layer.offset * 8 + header.offset_of(field.name)
            first, end = start // 8, (start + field.bits + 7) // 8
            assert branch.places[field.name] == (first, end - first), f"{what}: {layer.form}.{field.name}"
    assert_same_rest(found, packet, what)
    assert_derived(found, layers, what)


def assert_same_rest(found: Shown, packet: Packet, what: str) -> None:
    notes, error, trailer = packet.notes, packet.error, packet.trailer
    assert ("trimmed" in found.own.values) == ("trimmed" in notes), what
    assert ("trimmed" in found.experts) == ("trimmed" in notes), what
    assert ("sealed" in found.own.values) == ("sealed" in notes), what
    assert ("crc_suspect" in found.experts) == ("crc-suspect" in notes), what
    if error is None or error.offset >= 34:  # what IP says about its own lengths is left to Wireshark
        malformed = found.experts & {"malformed", "reserved", "short"}
        assert bool(malformed) == (error is not None), f"{what}: {malformed} {error}"
    if packet.payload:
        assert found.own.places.get("payload") == (packet.payload_offset, len(packet.payload)), what
    else:
        assert "payload" not in found.own.values, what
    icv = trailer.value if trailer and trailer.kind == "icv" else None
    crc = trailer.value if trailer and trailer.kind == "crc32c" else None
    assert found.number("icv") == icv, what
    assert found.number("crc") == crc, what
    status = None if crc is None or trailer is None else {True: 1, False: 0, None: 2}[trailer.ok]
    assert found.number("crc.status") == status, what
    assert ("crc" in found.experts) == (status == 0), what


def assert_derived(found: Shown, layers: list[Layer], what: str) -> None:
    for name, base, offset, sign in (
        ("ack_psn", "cack_psn", "ack_psn_offset", 1),
        ("sack_base", "cack_psn", "sack_psn_offset", 1),
        ("clear_psn", "psn", "clear_psn_offset", 1),
        ("start_psn", "psn", "psn_offset", -1),
    ):
        expected = [add32(v[base], sign * v[offset]) for _, v, _ in layers if base in v and offset in v]
        assert ([found.number(name)] if name in found.own.values else []) == expected, f"{what}: {name}"
