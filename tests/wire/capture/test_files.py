# SPDX-License-Identifier: GPL-2.0-only
"""Captures: what is written is read back, by us and by others; damage is reported and never raises."""

import gzip
import io
import lzma
import os
import random
import re
import shutil
import struct
import subprocess
import sys
import threading
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

import lz4.frame
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support import paths
from tests.support.each import each
from tests.support.effort import effort
from uetproto.errors import LocalError
from uetproto.wire.capture import pcap
from uetproto.wire.capture.pcap import (
    CaptureInterface,
    CaptureReader,
    CaptureWriter,
    PcapngWriter,
    PcapWriter,
    Record,
    open_capture,
    open_writer,
)

SHARED = paths.SHARED / "captures"
START = 1_700_000_000_123_456_000  # whole microseconds, so that every resolution keeps it
FRAMES = [bytes([n + 1]) * size for n, size in enumerate((60, 61, 62, 63, 98, 1514))]
TIMES = [START + n * 1_000_000 for n in range(len(FRAMES))]


def make(form: str, *, big_endian: bool = False, nanoseconds: bool = True) -> bytes:
    """A capture of `FRAMES`."""
    out = io.BytesIO()
    with writer(form, out, big_endian=big_endian, nanoseconds=nanoseconds) as capture:
        capture.write_many(TIMES, FRAMES)
    return out.getvalue()


def writer(form: str, out: BinaryIO, *, big_endian: bool = False, nanoseconds: bool = True) -> CaptureWriter:
    if form == "pcap":
        return PcapWriter(out, nanoseconds=nanoseconds, big_endian=big_endian)
    capture = PcapngWriter(out, big_endian=big_endian)
    capture.add_interface("a.0", nanoseconds=nanoseconds)
    return capture


def read(data: bytes) -> tuple[list[Record], CaptureReader]:
    with open_capture(io.BytesIO(data)) as reader:
        return list(reader), reader


def offsets(data: bytes) -> list[int]:
    return [record.offset for record in read(data)[0]]


def patched(data: bytes, at: int, new: bytes) -> bytes:
    return data[:at] + new + data[at + len(new) :]


def block(kind: int, body: bytes, order: str = "<") -> bytes:
    """One pcapng block, made by hand."""
    total = struct.pack(order + "I", len(body) + 12)
    return struct.pack(order + "I", kind) + total + body + total


def section(order: str = "<") -> bytes:
    return block(0x0A0D0D0A, struct.pack(order + "I2Hq", 0x1A2B3C4D, 1, 0, -1), order)


def interface(options: bytes = b"", *, link: int = 1, snaplen: int = 0, order: str = "<") -> bytes:
    return block(1, struct.pack(order + "H2xI", link, snaplen) + options, order)


def packet(ticks: int, data: bytes, *, number: int = 0, length: int | None = None, order: str = "<") -> bytes:
    head = struct.pack(order + "5I", number, ticks >> 32, ticks & 0xFFFFFFFF, len(data), length or len(data))
    return block(6, head + data + bytes(-len(data) & 3), order)


forms = pytest.mark.parametrize("form", ["pcap", "pcapng"])
orders = pytest.mark.parametrize("big_endian", [False, True], ids=["little", "big"])


# ------------------------------------------------------------------------------------------------- round trips


@forms
@orders
@pytest.mark.parametrize("nanoseconds", [False, True], ids=["us", "ns"])
@pytest.mark.parametrize("compressed", [False, True], ids=["plain", "gzip"])
def test_round_trip(form: str, big_endian: bool, nanoseconds: bool, compressed: bool) -> None:
    data = make(form, big_endian=big_endian, nanoseconds=nanoseconds)
    records, reader = read(gzip.compress(data) if compressed else data)
    assert [(r.index, r.time_ns, r.data, r.length) for r in records] == [
        (n, TIMES[n], frame, len(frame)) for n, frame in enumerate(FRAMES)
    ]
    assert {(r.interface, r.link, r.comment) for r in records} == {(0, 1, None)}
    assert reader.damage == []
    name = "a.0" if form == "pcapng" else ""
    assert reader.interfaces == [CaptureInterface(name, 1, pcap.SNAPLEN, 10**9 if nanoseconds else 10**6)]


@forms
def test_write_and_write_many_make_the_same_bytes(form: str) -> None:
    one, many = io.BytesIO(), io.BytesIO()
    frames = [bytes(n % 200 + 1) for n in range(3000)] + [bytes(9000)]
    times = range(0, len(frames) * 7, 7)
    with writer(form, one) as capture:
        for time_ns, frame in zip(times, frames, strict=True):
            capture.write(time_ns, frame)
    with writer(form, many) as capture:
        capture.write_many(iter(times), iter(frames))
    assert one.getvalue() == many.getvalue()
    assert [(r.time_ns, r.data) for r in read(one.getvalue())[0]] == list(zip(times, frames, strict=True))


@forms
@settings(deadline=None)
@given(
    # The filter leaves out an empty frame at time 0: a pcap's reader takes that record for zeros in a damaged file.
    rows=st.lists(st.tuples(st.integers(0, 2**32 * 10**9 - 1), st.binary(max_size=70), st.integers(0, 9)).filter(any))
)
def test_any_frames_round_trip(form: str, rows: list[tuple[int, bytes, int]]) -> None:
    out = io.BytesIO()
    with writer(form, out) as capture:
        for time_ns, data, lost in rows:
            capture.write(time_ns, data, length=len(data) + lost)
    records, reader = read(out.getvalue())
    assert [(r.time_ns, r.data, r.length - len(r.data)) for r in records] == rows
    assert reader.damage == []


@forms
def test_offsets_are_those_of_the_records(form: str) -> None:
    data = make(form)
    head = 24 if form == "pcap" else 28 + 40
    assert offsets(data)[0] == head
    for record in read(data)[0]:
        start = record.offset + (16 if form == "pcap" else 28)
        assert data[start : start + len(record.data)] == record.data


def test_modified_pcap() -> None:
    frame = b"m" * 60
    record = struct.pack(">4I8x", 5, 7, len(frame), 100) + frame
    records, reader = read(struct.pack(">I2H4I", 0xA1B2CD34, 2, 4, 0, 0, 96, 101) + 2 * record)
    assert [(r.time_ns, r.data, r.length, r.link) for r in records] == 2 * [(5_000_007_000, frame, 100, 101)]
    assert reader.damage == []


def test_link_type_without_the_bits_of_the_check_sequence() -> None:
    data = patched(make("pcap"), 20, struct.pack("<I", 0x2400_0001))
    assert read(data)[1].interfaces[0].link == pcap.ETHERNET


def test_names_of_links() -> None:
    assert set(pcap.LINK_NAMES.values()) == {"ethernet", "raw", "sll", "sll2", "infiniband", "erf"}
    assert [pcap.LINK_NAMES[n] for n in (1, 12, 14, 101, 113, 197, 228, 229, 247, 276)] == (
        ["ethernet", "raw", "raw", "raw", "sll", "erf", "raw", "raw", "infiniband", "sll2"]
    )


# ------------------------------------------------------------------------------------------------------- pcapng


def test_comments_and_interfaces() -> None:
    out = io.BytesIO()
    with PcapngWriter(out, "CRC is there") as capture:
        assert capture.add_interface("a.0") == 0
        capture.write(1, b"one")
        assert capture.add_interface("b.1", pcap.RAW, 96, "tail port", nanoseconds=False) == 1
        capture.write(2_999, b"two!", interface=1, comment="seen twice")
        capture.write(3_999, b"three", interface=1, comment="")
    records, reader = read(out.getvalue())
    assert reader.comments == ["CRC is there"]
    assert reader.interfaces == [
        CaptureInterface("a.0", 1, pcap.SNAPLEN, 10**9),
        CaptureInterface("b.1", 101, 96, 10**6, 0, "tail port"),
    ]
    assert [r[1:6] + (r.comment,) for r in records] == [
        (1, b"one", 3, 0, 1, None),
        (2_000, b"two!", 4, 1, 101, "seen twice"),
        (3_000, b"three", 5, 1, 101, ""),
    ]


def test_sections_in_both_orders_and_blocks_of_every_kind() -> None:
    old = struct.pack(">2H4I", 0, 3, 0, 7_000, 5, 9) + b"obsol\0\0\0"
    data = (
        section()
        + block(4, bytes(8))
        + interface(snaplen=4)
        + block(3, struct.pack("<I", 6) + b"simp")  # cut by the snap length
        + block(0x4000_0BAD, b"custom..")
        + packet(5_000, b"first")
        + section(">")
        + interface(link=113, order=">")
        + interface(link=276, order=">")
        + block(2, old, ">")
        + block(0x7777, b"", ">")
        + packet(6_000, b"last", number=1, length=1000, order=">")
        + block(5, bytes(12), ">")
    )
    records, reader = read(data)
    assert reader.damage == []
    assert [tuple(r)[1:6] for r in records] == [
        (0, b"simp", 6, 0, 1),
        (5_000_000, b"first", 5, 0, 1),
        (7_000_000, b"obsol", 9, 1, 113),
        (6_000_000, b"last", 1000, 2, 276),
    ]


@pytest.mark.parametrize(
    ("resolution", "offset", "ticks", "time_ns"),
    [
        (0, 0, 3, 3 * 10**9),
        (9, -2, 5, 5 - 2 * 10**9),
        (12, 0, 5_999, 5),
        (0x80 | 10, 1, 1536, 2_500_000_000),
        (0xFF, 0, 2**64 - 1, 0),
        (0x7F, 0, 2**64 - 1, 0),
    ],
)
def test_resolution_and_offset_of_times(resolution: int, offset: int, ticks: int, time_ns: int) -> None:
    options = struct.pack("<2HB3x", 9, 1, resolution) + struct.pack("<2Hq", 14, 8, offset) + bytes(4)
    (record,), reader = read(section() + interface(options) + packet(ticks, b"data"))
    assert record.time_ns == time_ns
    assert reader.interfaces[0].offset == offset


def test_options_of_wrong_sizes_are_left_out() -> None:
    options = struct.pack("<2H", 9, 0) + struct.pack("<2H4x", 14, 4) + struct.pack("<2H", 2, 900)
    (record,), reader = read(section() + interface(options) + packet(1, b"data"))
    assert (record.time_ns, reader.interfaces, reader.damage) == (1000, [CaptureInterface("", 1, 0)], [])


# ------------------------------------------------------------------------------------------- sources and targets


def test_pipe_is_read_as_it_comes() -> None:
    """Each record arrives while the pipe is still open, without a read-ahead that would block."""
    reading, writing = os.pipe()
    with open(reading, "rb") as source, open(writing, "wb", buffering=0) as sink, PcapWriter(sink) as capture:
        capture.write(1, FRAMES[0])
        capture.flush()
        reader = open_capture(source)
        for n in range(3):
            assert next(reader).data == FRAMES[n]
            capture.write(1, FRAMES[n + 1])
            capture.flush()


@forms
@pytest.mark.parametrize("compressed", [False, True], ids=["plain", "gzip"])
def test_large_capture_through_a_pipe_in_bounded_memory(form: str, compressed: bool) -> None:
    reading, writing = os.pipe()
    frame = os.urandom(4096)

    def feed() -> None:
        with open(writing, "wb") as raw:
            sink = gzip.GzipFile("", "wb", 0, raw, mtime=0) if compressed else raw
            with sink, writer(form, sink) as capture:  # type: ignore[arg-type]
                capture.write_many(range(5000), (frame for _ in range(5000)))

    thread = threading.Thread(target=feed)
    with open(reading, "rb") as source:
        tracemalloc.start()
        thread.start()
        with open_capture(source) as reader:
            count = sum(record.data == frame for record in reader)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        thread.join()
    assert count == 5000
    assert peak < 12 << 20  # of 20 MB; the writer holds 2 MB twice


def test_members_of_gzip_and_padding() -> None:
    data = make("pcap")
    records, reader = read(gzip.compress(data[:100]) + gzip.compress(data[100:]) + bytes(512))
    assert ([r.data for r in records], reader.damage) == (FRAMES, [])


@pytest.mark.parametrize("name", ["x.pcap", "x.pcapng", "x.pcap.gz", "X.PCAPNG.GZ"])
def test_suffix_chooses_the_format(tmp_path: Path, name: str) -> None:
    contents = []
    for copy in (f"a.{name}", f"b.{name}"):  # another name must not change the bytes
        with open_writer(tmp_path / copy, comment="no CRC", interfaces=[("a", pcap.SLL)]) as capture:
            capture.write_many(TIMES, FRAMES)
        contents.append((tmp_path / copy).read_bytes())
    assert contents[0] == contents[1]
    assert contents[0].startswith(b"\x1f\x8b") == name.lower().endswith(".gz")
    with open_capture(tmp_path / f"a.{name}") as reader:
        assert [r.data for r in reader] == FRAMES
    assert reader.comments == (["no CRC"] if "pcapng" in name.lower() else [])
    assert reader.interfaces[0].link == pcap.SLL


def test_standard_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    out = io.BytesIO()
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(out))
    with open_writer("-") as capture:
        capture.write(7, b"frame")
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(out.getvalue())))
    assert [(r.time_ns, r.data) for r in open_capture("-")] == [(7, b"frame")]


def test_interrupted_capture_is_whole(tmp_path: Path) -> None:
    def frames() -> Iterator[bytes]:
        yield from FRAMES
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), open_writer(tmp_path / "x.pcap") as capture:
        capture.write_many(range(100), frames())
    with open_capture(tmp_path / "x.pcap") as reader:
        assert [r.data for r in reader] == FRAMES
    assert reader.damage == []


def test_flush_while_many_are_written() -> None:
    """A source of frames may itself flush the capture: nothing is lost or repeated."""
    out = io.BytesIO()

    def frames() -> Iterator[bytes]:
        for frame in FRAMES:
            yield frame
            capture.flush()

    with PcapWriter(out) as capture:
        capture.write_many(TIMES, frames())
    assert [r.data for r in read(out.getvalue())[0]] == FRAMES


def test_frames_that_may_change_are_copied() -> None:
    out, frame = io.BytesIO(), bytearray(b"before")
    with PcapWriter(out) as capture:
        capture.write(1, frame)
        capture.write_many([2], [frame])
        frame[:] = b"after!"
    assert [r.data for r in read(out.getvalue())[0]] == [b"before", b"before"]


@forms
def test_snap_length_cuts(form: str) -> None:
    out = io.BytesIO()
    capture: CaptureWriter
    if form == "pcap":
        capture = PcapWriter(out, snaplen=64)
    else:
        capture = PcapngWriter(out)
        capture.add_interface(snaplen=64)
    with capture:
        capture.write(1, bytes(100))
        capture.write_many([2], [bytes(100)])
        capture.write(3, bytes(100), length=4198)
    records, reader = read(out.getvalue())
    assert [(len(r.data), r.length) for r in records] == [(64, 100), (64, 100), (64, 4198)]
    assert reader.damage == []


# ------------------------------------------------------------------------------------------------------- misuse


NO_CAPTURES = [b"", b"\xd4", b"#!/bin/sh\n", bytes(100), gzip.compress(b"text", mtime=0), b"\x1f\x8b\x08"]


@pytest.mark.parametrize("data", NO_CAPTURES)
def test_not_a_capture(data: bytes) -> None:
    with pytest.raises(LocalError, match="not a capture"):
        open_capture(io.BytesIO(data))


def test_not_a_capture_names_the_file(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("hello")
    with pytest.raises(LocalError, match=r"notes\.txt: not a capture"):
        open_capture(tmp_path / "notes.txt")
    with pytest.raises(FileNotFoundError):
        open_capture(tmp_path / "missing.pcap")
    (tmp_path / "broken.gz").write_bytes(b"\x1f\x8b" + bytes(100))
    with pytest.raises(LocalError, match=r"broken\.gz: not a capture: gzip data are damaged"):
        open_capture(tmp_path / "broken.gz")


@pytest.mark.parametrize(
    "misuse",
    [
        lambda path: open_writer(path / "x.txt"),
        lambda path: open_writer(path / "x.pcap", interfaces=[("a", 1), ("b", 1)]),
        lambda path: open_writer(path / "x.pcapng", interfaces=[("a", 1 << 16)]),
        lambda path: PcapWriter(io.BytesIO(), link=-1),
        lambda path: PcapWriter(io.BytesIO()).write(-1, b"x"),
        lambda path: PcapWriter(io.BytesIO()).write(2**32 * 10**9, b"x"),
        lambda path: PcapWriter(io.BytesIO()).write(0, b"x", interface=1),
        lambda path: PcapWriter(io.BytesIO()).write(0, b"xyz", length=2),
        lambda path: PcapWriter(io.BytesIO()).write_many([0, 1], [b"x"]),
        lambda path: PcapWriter(io.BytesIO()).write_many([-1], [b"x"]),
        lambda path: PcapWriter(io.BytesIO()).write_many([0], [b"x"], interface=1),
        lambda path: PcapngWriter(io.BytesIO()).write(0, b"x"),
        lambda path: PcapngWriter(io.BytesIO()).write_many([0], [b"x"]),
        lambda path: writer("pcapng", io.BytesIO()).write(-1, b"x"),
        lambda path: writer("pcapng", io.BytesIO()).write(0, b"x", interface=-1),
        lambda path: writer("pcapng", io.BytesIO()).write(0, b"x", comment="x" * 70_000),
        lambda path: writer("pcapng", io.BytesIO()).write_many([0], []),
        lambda path: open_capture(io.BytesIO(), max_record=0),
        lambda path: open_capture(io.StringIO("text")),  # type: ignore[arg-type]
        lambda path: open_capture(3),  # type: ignore[arg-type]
        lambda path: PcapWriter(io.BytesIO()).write(0, "text"),  # type: ignore[arg-type]
        lambda path: PcapWriter(io.BytesIO()).write(None, b"x"),  # type: ignore[arg-type]
        lambda path: writer("pcapng", io.BytesIO()).write(0, "text"),  # type: ignore[arg-type]
        lambda path: writer("pcapng", io.BytesIO()).write(1.5, b"x"),  # type: ignore[arg-type]
    ],
)
def test_misuse(misuse: Callable[[Path], object], tmp_path: Path) -> None:
    with pytest.raises(LocalError):
        misuse(tmp_path)


# ------------------------------------------------------------------------------------------------------- damage


@forms
@orders
def test_every_prefix_reads(form: str, big_endian: bool) -> None:
    data = make(form, big_endian=big_endian)
    starts = [*offsets(data), len(data)]
    borders = {*starts, *([28] if form == "pcapng" else [])}
    for size in range(4, len(data)):
        records, reader = read(data[:size])
        assert [r.data for r in records] == FRAMES[: sum(start <= size for start in starts[1:])]
        if size in borders:
            assert reader.damage == []
        else:
            (damage,) = reader.damage
            assert damage.offset == max((border for border in borders if border <= size), default=0)
            assert "cut short" in damage.reason


def test_every_prefix_of_gzip_reads() -> None:
    data = gzip.compress(make("pcap"), mtime=0)
    counts = []
    for size in range(40, len(data)):
        records, reader = read(data[:size])
        assert [r.data for r in records] == FRAMES[: len(records)]
        assert "gzip" in reader.damage[-1].reason
        counts.append(len(records))
    assert counts == sorted(counts)
    assert counts[-1] == len(FRAMES)


COMPRESSED = {"zstd": zstandard.ZstdCompressor().compress, "xz": lzma.compress, "lz4": lz4.frame.compress}
"""What compresses a capture, but for gzip."""
each_kind = pytest.mark.parametrize("kind", COMPRESSED)


@each_kind
def test_other_compressions(kind: str, tmp_path: Path) -> None:
    """A file is known by its first bytes; frames may follow each other, as parallel compressors write them."""
    data, compress = make("pcapng"), COMPRESSED[kind]
    for whole in (compress(data), compress(data[:500]) + compress(data[500:])):
        (tmp_path / "x").write_bytes(whole)
        with open_capture(tmp_path / "x") as reader:
            assert [record.data for record in reader] == FRAMES
        assert reader.damage == []


@each_kind
def test_other_compressions_that_are_cut_or_damaged(kind: str) -> None:
    data = COMPRESSED[kind](make("pcap"))
    records: list[Record] = []
    for size in range(len(data) // 2, len(data), 7):
        with suppress(LocalError):  # the first block was cut
            records, reader = read(data[:size])
        if not records:
            continue
        assert [record.data for record in records] == FRAMES[: len(records)]
        assert f"{kind} data end early" in reader.damage[-1].reason, size
    with pytest.raises(LocalError, match=f"{kind} data are damaged"):
        read(data[:8] + bytes(byte ^ 0xFF for byte in data[8:]))


def test_a_compression_without_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    for module, kind in (("zstandard", "zstd"), ("lz4.frame", "lz4")):
        monkeypatch.setitem(sys.modules, module, None)
        with pytest.raises(LocalError, match=rf"compressed with {kind}: needs the package .*\[compression\]"):
            read(COMPRESSED[kind](make("pcap")))


def test_damaged_gzip_gives_what_was_before() -> None:
    data = make("pcap")
    records, reader = read(patched(gzip.compress(data), -8, b"\0\0\0\0"))
    assert [r.data for r in records] == FRAMES
    (damage,) = reader.damage
    assert damage.offset == len(data)
    assert "gzip" in damage.reason


# Where in a record of which form, the new bytes, words of the reason.
WRONG = [
    ("pcap", 8, b"\xff\xff\xff\xff", "captured length 4294967295 is more than"),
    ("pcap", 8, struct.pack("<I", 300_000), "captured length 300000 is more than"),
    ("pcap", 8, struct.pack("<I", 64), "more than the original length"),
    ("pcap", 12, struct.pack("<I", 2**31), "original length 2147483648"),
    ("pcap", 4, struct.pack("<I", 10**9), "fraction"),
    ("pcap", 0, bytes(16), "zeros"),
    ("pcap", 8, struct.pack("<2I", 200_000, 200_000), "cut short"),
    ("pcapng", 4, b"\xff\xff\xff\xff", "block length is 4294967295"),
    ("pcapng", 4, struct.pack("<I", 97), "block length is 97"),
    ("pcapng", 4, struct.pack("<I", 100), "block length is 100 in front"),
    ("pcapng", 4, struct.pack("<I", 300_000), "cut short"),
    ("pcapng", 92, b"\xff\xff\xff\xff", "4294967295 behind"),
    ("pcapng", 8, struct.pack("<I", 1), "interface 1"),
    ("pcapng", 20, struct.pack("<I", 65), "room for 64"),
    ("pcapng", 24, struct.pack("<I", 60), "original length 60"),
]


@each("form, where, new, reason", WRONG)
@each("position", [0, 2, 3])
def test_reading_resumes_after_a_damaged_record(form: str, where: int, new: bytes, reason: str, position: int) -> None:
    frames = [bytes([n + 1]) * 63 for n in range(6)]
    out = io.BytesIO()
    with writer(form, out) as capture:
        capture.write_many(TIMES, frames)
    start = offsets(out.getvalue())[position]
    records, reader = read(patched(out.getvalue(), start + where, new))
    assert [r.data for r in records] == frames[:position] + frames[position + 1 :]
    assert [r.index for r in records] == list(range(5))
    (damage,) = reader.damage
    assert damage.offset == start
    assert reason in damage.reason


@forms
@pytest.mark.parametrize("junk", [bytes(700_000), b"\xff" * 700_000, b"uet " * 200_000], ids=["zeros", "ones", "text"])
def test_reading_resumes_after_junk_longer_than_the_window(form: str, junk: bytes) -> None:
    data = make(form)
    middle = offsets(data)[3]
    records, reader = read(data[:middle] + junk + data[middle:])
    assert [r.data for r in records] == FRAMES
    assert [d.offset for d in reader.damage] == [middle]


@forms
def test_junk_is_searched_once(form: str) -> None:
    junk = random.Random(1).randbytes(12 << 20)
    searched = 0

    class Likely:
        def finditer(self, data: bytes, start: int, stop: int) -> Iterator[re.Match[bytes]]:
            nonlocal searched
            searched += min(stop, len(data)) - start
            return likely.finditer(data, start, stop)

    with open_capture(io.BytesIO(make(form) + junk)) as reader:
        likely = reader._likely
        reader._likely = Likely()  # type: ignore[assignment]
        assert len(list(reader)) >= len(FRAMES)
    assert len(junk) / 2 < searched < len(junk) * 1.1


@forms
def test_bytes_lost_in_the_middle(form: str) -> None:
    data = make(form)
    start = offsets(data)[2]
    records, reader = read(data[: start + 10] + data[start + 21 :])
    assert [r.data for r in records][:2] == FRAMES[:2]
    assert [r.data for r in records][-2:] == FRAMES[-2:]
    assert reader.damage[0].offset == start


@forms
def test_frames_over_the_maximum_are_damage(form: str) -> None:
    out = io.BytesIO()
    with writer(form, out) as capture:
        capture.write_many(TIMES[:3], [b"a" * 60, b"b" * 200_000, b"c" * 60])
    with open_capture(io.BytesIO(out.getvalue()), max_record=65_536) as reader:
        assert [r.data[:1] for r in reader] == [b"a", b"c"]
    assert len(reader.damage) == 1


def test_damage_does_not_fill_the_memory() -> None:
    data = section() + interface() + packet(1, b"", number=5) * 30_000
    records, reader = read(data)
    assert records == []
    assert len(reader.damage) == 10_001
    assert reader.damage[-1].reason == "further damage is not listed"


CAPTURES = [make(form, big_endian=big) for form in ("pcap", "pcapng") for big in (False, True)]
CAPTURES += [gzip.compress(CAPTURES[0], mtime=0), gzip.compress(CAPTURES[2], mtime=0)]
CAPTURES += [compress(CAPTURES[0]) for compress in COMPRESSED.values()]


def read_anything(data: bytes) -> None:
    """Read what may be damaged: no exception but the one, and what comes out is consistent."""
    try:
        records, reader = read(data)
    except LocalError:
        return
    assert [r.index for r in records] == list(range(len(records)))
    assert all(len(r.data) <= r.length for r in records)
    assert all(r.link == reader.interfaces[r.interface].link for r in records)


@settings(deadline=None)
@given(
    capture=st.sampled_from(CAPTURES),
    flips=st.lists(st.tuples(st.integers(0, 10_000), st.integers(1, 255)), min_size=1, max_size=8),
)
def test_flipped_bytes_never_raise(capture: bytes, flips: list[tuple[int, int]]) -> None:
    data = bytearray(capture)
    for at, flip in flips:
        data[at % len(data)] ^= flip
    read_anything(bytes(data))


@settings(deadline=None)
@given(
    start=st.sampled_from([b"", b"\x1f\x8b\x08\0", section() + interface(), section(">"), CAPTURES[0][:24]]),
    parts=st.lists(st.one_of(st.binary(max_size=80), st.sampled_from([packet(1, b"x"), section(), interface()]))),
)
def test_random_bytes_never_raise(start: bytes, parts: list[bytes]) -> None:
    read_anything(start + b"".join(parts))


BOMB = effort(20, 50, 50) << 20
"""Bytes in a compressed capture: more than a test of memory permits."""


@pytest.mark.parametrize(
    "data",
    [
        CAPTURES[0][:24] + struct.pack("<4I", 1, 1, 0x7FFF_FFFF, 0x7FFF_FFFF),
        section() + struct.pack("<2I", 6, 0xFFFF_FFFC) + bytes(100),
        section() + struct.pack("<2I", 0x99, 0xFFFF_FFFC) + bytes(100),
        section() + interface(struct.pack("<2H", 2, 60_000) + b"n" * 60_000) * 300,
        gzip.compress(CAPTURES[0] + bytes(BOMB)),
        *(compress(CAPTURES[0] + bytes(BOMB)) for compress in COMPRESSED.values()),
    ],
    ids=["pcap", "packet", "block", "names", "bomb", *COMPRESSED],
)
def test_memory_is_bounded(data: bytes) -> None:
    tracemalloc.start()
    try:
        read_anything(data)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 16 << 20


# ------------------------------------------------------------------------------------------------------- others


@pytest.fixture
def written(tmp_path: Path, form: str, big_endian: bool) -> Path:
    """A capture that others are to read: frames to the nanosecond."""
    path = tmp_path / f"x.{form}"
    with open(path, "wb") as file, writer(form, file, big_endian=big_endian) as capture:
        for n, frame in enumerate(FRAMES):
            capture.write(START + n * 1_000_000_001, frame, comment=f"frame {n}" if n % 2 else None)
    return path


@forms
@orders
@pytest.mark.skipif(not shutil.which("tshark"), reason="tshark is not installed")
def test_tshark_agrees(written: Path, form: str) -> None:
    fields = ["frame.time_epoch", "frame.len", "frame.cap_len", "frame.comment"]
    command = ["tshark", "-n", "-r", str(written), "-Tfields", *(f"-e{field}" for field in fields)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "appears" not in done.stderr  # to be cut short, or to be damaged
    expected = []
    for n, frame in enumerate(FRAMES):
        seconds, fraction = divmod(START + n * 1_000_000_001, 10**9)
        comment = f"frame {n}" if form == "pcapng" and n % 2 else ""
        expected.append([f"{seconds}.{fraction:09d}", str(len(frame)), str(len(frame)), comment])
    assert [line.split("\t") for line in done.stdout.splitlines()] == expected


@forms
@orders
def test_scapy_agrees(written: Path) -> None:
    utils = pytest.importorskip("scapy.utils")
    packets = utils.rdpcap(str(written))
    assert [bytes(packet) for packet in packets] == FRAMES
    assert [int(packet.time * 10**9) for packet in packets] == [START + n * 1_000_000_001 for n in range(len(FRAMES))]


@pytest.mark.skipif(not SHARED.is_dir(), reason=f"captures of others are not there: {SHARED}")
def test_captures_of_others_read_without_damage() -> None:
    paths = sorted(SHARED.glob("**/*.pcap"))
    assert paths
    for path in paths:
        with open_capture(path) as reader:
            count = sum(1 for _ in reader)
        assert count, path
        assert reader.damage == [], path
        assert reader.interfaces[0].link in pcap.LINK_NAMES, path
