# SPDX-License-Identifier: GPL-2.0-only
"""The bytes of messages in Wireshark: put together over their packets, within a limit, as data, text or numbers."""

from collections.abc import Iterator
from pathlib import Path
from random import Random

import numpy as np
import pytest

from tests.support.audit.build import GOLDEN
from tests.support.interop.tshark import copied, folder, needs_tshark, run
from uetproto import decode
from uetproto.api import fi
from uetproto.wire.capture.pcap import open_capture

pytestmark = needs_tshark

ON = ("-o", "uetp.reassemble:TRUE")
OFFSETS = {"ses-read": 3, "ses-rudi-read": 2, "ses-deferrable-send": 3, "ses-rendezvous-send": 2, "ses-send": 3}
"""Golden captures, and how many packets the first message has that is put together."""


@pytest.fixture
def home() -> Iterator[Path]:
    with folder() as path:
        yield path


def fields(path: Path, home: Path, *names: str, options: tuple[str, ...] = ON) -> list[list[str]]:
    """Return the fields of each packet that has one of them."""
    wanted = [word for name in names for word in ("-e", name)]
    out, _ = run(["-r", path, *options, "-T", "fields", *wanted], home)
    return [line.split("\t") for line in out.splitlines() if line.strip()]


def test_what_was_written_and_read_over_a_bad_network(home: Path) -> None:
    """The bytes are those of the memory, whatever was lost, copied, reordered or trimmed before this tap."""
    path, rng = home / "bad.pcapng", Random(1)
    faults = {"drop": 0.05, "duplicate": 0.05, "reorder": 0.05, "trim": 0.05}
    written, remote = rng.randbytes(50_000), rng.randbytes(30_000)
    with fi.Fabric(capture=str(path), taps="all", trimming=True, faults=faults, seed=3) as fabric:
        a, b = fabric.endpoint("a"), fabric.endpoint("b")
        target, source, there = bytearray(len(written)), b.domain.mr_reg(bytearray(remote)), bytearray(len(remote))
        a.write(written, b.address, 0, b.domain.mr_reg(target).key)
        a.read(there, b.address, 0, source.key)
        a.cq.sread(2)
    assert (bytes(target), bytes(there)) == (written, remote)
    found = {bytes.fromhex(data) for (data,) in fields(path, home, "uetp.reassembled.data")}
    assert found == {written, remote}


def test_the_segments_of_golden_captures_have_the_bytes(home: Path) -> None:
    """The payloads of the frames that the plugin names, in the order of their offsets, are the message."""
    for name, least in OFFSETS.items():
        path = GOLDEN / f"{name}.pcapng"
        with open_capture(path) as capture:
            packets = [decode(record.data, length=record.length) for record in capture]
        rows = fields(copied(path, home), home, "frame.number", "uetp.segment", "uetp.reassembled.data")
        whole = [row for row in rows if len(row) == 3 and row[2]]
        assert whole, name
        for number, frames, data in whole:
            numbers = [int(one) for one in frames.split(",")]
            parts = {}
            for one in numbers:
                packet = packets[one - 1]
                values = {key: value for layer in packet.layers for key, value in layer.values.items()}
                parts[values.get("message_offset", 0)] = packet.payload
            assert b"".join(parts[offset] for offset in sorted(parts)).hex() == data, name
            assert max(numbers) == int(number)
        assert len(whole[0][1].split(",")) >= least


def test_each_segment_tells_where_the_message_is(home: Path) -> None:
    path = copied(GOLDEN / "gradient-lossy.pcapng", home)
    rows = fields(path, home, "frame.number", "uetp.reassembled_in", options=("-2", *ON))
    places = [row for row in rows if len(row) == 2 and row[1]]
    assert len(places) >= 11
    assert len({place for _, place in places}) == 1
    assert fields(path, home, "uetp.reassembled.data", "uetp.reassembled_in", options=("-2",)) == [], "it is off"


def test_what_does_not_fit_is_dropped_and_told(home: Path) -> None:
    path = copied(GOLDEN / "gradient-lossy.pcapng", home)
    out, _ = run(["-r", path, *ON, "-o", "uetp.reassemble_most:3000", "-V"], home)
    assert "The bytes of 1 unfinished messages were dropped: preference reassemble_most" in out
    assert "Reassembled message" not in out


def test_payload_as_numbers_and_text(home: Path) -> None:
    path = home / "text.pcapng"
    numbers = np.arange(-300, 300, dtype="<f4")
    with fi.Fabric(capture=str(path)) as fabric:
        a, b = fabric.endpoint("a"), fabric.endpoint("b")
        memory = b.domain.mr_reg(bytearray(4096))
        a.write("größer als".encode(), b.address, 0, memory.key)
        a.write(numbers.tobytes(), b.address, 0, memory.key)
        a.cq.sread(2)
    ((first, *_), *_) = fields(path, home, "uetp.payload.text", options=("-o", "uetp.payload:text"))
    assert first == "größer als"
    for how, kind in (("float32", "<f4"), ("float16", "<f2"), ("bfloat16", "bf16"), ("int32", "<i4")):
        rows = fields(path, home, "uetp.payload.number", options=("-o", f"uetp.payload:{how}"))
        shown = np.array([float(one) for one in rows[-1][0].split(",")])
        raw = numbers.tobytes()
        if kind == "bf16":
            wanted = np.frombuffer(b"".join(b"\0\0" + raw[i : i + 2] for i in range(0, 512, 2)), "<f4")
        else:
            wanted = np.frombuffer(raw, kind)[:256]
        assert np.array_equal(shown, wanted.astype(float), equal_nan=True), how
    out, _ = run(["-r", path, "-o", "uetp.payload:float32", "-V"], home)
    assert "[256 of 600 numbers are shown]" in out
