# SPDX-License-Identifier: GPL-2.0-only
"""One capture, five readers: `dissect --json`, tshark, Construct, Scapy and columns say the same of every packet.

Over the golden captures, and over the real ones of the reference provider where they are there. What tshark says of
RoCE is in `test_roce_golden`.
"""

import json
import os
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from scapy.layers.l2 import Ether

from tests.support.each import each
from tests.support.effort import effort
from tests.support.interop.golden import (
    GOLDEN,
    OVER_UET,
    ROOT,
    packets,
)
from tests.support.interop.same_fields import assert_same
from tests.support.interop.tshark import folder, needs_tshark, shown_file
from uetproto import columns
from uetproto.cli.main import cli
from uetproto.layers import layer_values
from uetproto.schemas import SCHEMAS
from uetproto.wire.forms import FORMS, UET_FORMS

REFPROV = Path(os.environ.get("UETPROTO_SHARED", ROOT.parent / "shared")) / "captures/refprov"
REAL = sorted(REFPROV.glob("*.pcap"))
ALL = [pytest.param(path, id=path.name) for path in GOLDEN + REAL]
real_only = pytest.mark.skipif(not REAL, reason=f"no captures of the reference provider in {REFPROV}")


def dissect(path: Path, *options: str) -> list[dict[str, Any]]:
    with redirect_stdout(StringIO()) as out, redirect_stderr(StringIO()) as errors:
        status = cli.status(["dissect", "--json", *options, str(path)])
    assert (status, errors.getvalue()) == (0, "")  # neither damage nor a malformed packet
    return [json.loads(line) for line in out.getvalue().splitlines()]


@each("path", GOLDEN + REAL)
def test_dissect_says_what_decode_says(path: Path) -> None:
    rows = dissect(path)
    for row, (data, packet) in zip(rows, packets(path), strict=True):
        assert [(layer["form"], layer["offset"]) for layer in row["layers"]] == [
            (x.form, x.offset) for x in packet.layers
        ]
        for layer, ours in zip(row["layers"], packet.layers, strict=True):
            values = {k: v.hex() if isinstance(v, bytes) else v for k, v in ours.values.items()}
            assert list(layer["fields"].items()) == list(values.items())
        assert row["captured"] == len(data)
        assert row["payload"] == {"offset": packet.payload_offset, "length": len(packet.payload)}
        assert row["trailer"] == (packet.trailer and packet.trailer._asdict())


@each("path", GOLDEN + REAL)
def test_construct_and_scapy_say_the_same(path: Path) -> None:
    for data, packet in islice(packets(path), None, None, effort(5, 1, 1)):
        for layer in packet.layers:
            if layer.form in FORMS:
                schema, there = SCHEMAS[layer.form], data[layer.offset : layer.offset + layer.size]
                parsed = schema.parse(there)
                assert {name: int(parsed[name]) for name in layer.values} == layer.values
                assert schema.build(layer.values) == there
        ours = [(layer.form, dict(layer.values)) for layer in packet.layers if layer.form in UET_FORMS]
        scapys = Ether(data)
        assert [row for row in layer_values(scapys) if row[0] in UET_FORMS] == ours
        assert bytes(scapys) == data


@each("path", GOLDEN + REAL)
def test_columns_say_the_same(path: Path) -> None:
    table = columns.read(path)
    wanted: dict[str, list[tuple[int, dict[str, int]]]] = {}
    for index, (_, packet) in enumerate(packets(path)):
        for layer in packet.layers:
            if layer.form in FORMS:
                wanted.setdefault(layer.form, []).append((index, dict(layer.values)))
    assert set(table) == set(wanted)
    for form, rows in wanted.items():
        assert table[form]["index"].tolist() == [index for index, _ in rows]
        for field in FORMS[form].fields:
            column = table[form][field.name].tolist()
            if field.bits > 64:
                column = [int.from_bytes(value, "big") for value in column]
            assert column == [values[field.name] for _, values in rows]


@needs_tshark
@pytest.mark.parametrize("crc", [True, False])
def test_tshark_agrees_and_finds_nothing_malformed(crc: bool) -> None:
    """A pcapng file may have several sections: all captures one after the other are one. The plugin knows flows by
    their addresses alone, so that captures without CRC are another file."""
    files = [path for path in OVER_UET if ("nocrc" not in path.name) is crc]
    with folder() as home:
        copy = home / "golden.pcapng"
        copy.write_bytes(b"".join(path.read_bytes() for path in files))
        copy.chmod(0o644)
        ours = [(f"{path.name} {at}", packet) for path in files for at, (_, packet) in enumerate(packets(path))]
        for found, (what, packet) in zip(shown_file(copy, home), ours, strict=True):
            assert_same(found, packet, what)
            assert found is not None
            assert not found.experts & {"malformed", "reserved", "short", "crc"}, what


@real_only
def test_every_crc_of_the_reference_provider_is_right() -> None:
    """tss.md §12: range, place and byte order. Sealed packets have an ICV instead."""
    assert len(REAL) == 24
    plain = sealed = 0
    for path in REAL:
        for row in dissect(path, "--crc", "auto"):
            if row["error"]:
                assert row["error"]["kind"] == "unknown"  # ARP, neighbour discovery
            elif "sealed" in row["notes"]:
                assert row["trailer"]["kind"] == "icv"
                sealed += 1
            else:
                assert row["trailer"]["kind"] == "crc32c"
                assert row["trailer"]["ok"] is True
                plain += 1
    assert (plain, sealed) == (2288, 178)
