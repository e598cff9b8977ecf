# SPDX-License-Identifier: GPL-2.0-only
"""Memory in buffers and files (ses.md §2.6, §2.8)."""

import io
import os
import tempfile
from array import array
from pathlib import Path

import hypothesis.strategies as st
import pytest
from hypothesis import given

from uetproto.emulator.run import files
from uetproto.engine import BufferMemory, FileMemory, Region, memory
from uetproto.engine.memory import MemoryWindow, as_memory, run_memory
from uetproto.errors import LocalError

SIZE = 300


@given(steps=st.lists(st.tuples(st.integers(0, SIZE - 1), st.binary(max_size=70)), max_size=20),
       window=st.integers(1, 90), windows=st.integers(1, 3), there=st.integers(0, SIZE))  # fmt: skip
def test_a_file_is_like_a_buffer(steps: list[tuple[int, bytes]], window: int, windows: int, there: int) -> None:
    """Windows, evictions, a file shorter than the memory: what was written is read, and is in the file in the end."""
    file = io.BytesIO(b"\xaa" * there)
    memory, model = FileMemory(file, SIZE, window, windows), bytearray((b"\xaa" * there).ljust(SIZE, b"\0"))
    for offset, data in steps:
        data = data[: SIZE - offset]
        memory.write(offset, data)
        model[offset : offset + len(data)] = data
        assert bytes(memory.read(offset // 2, SIZE - offset)) == model[offset // 2 : offset // 2 + SIZE - offset]
    memory.flush()
    assert file.getvalue().ljust(SIZE, b"\0") == model


@given(steps=st.lists(st.tuples(st.integers(0, SIZE - 1), st.integers(1, 200)), max_size=12),
       windows=st.integers(1, 6), most=st.integers(1, 25))  # fmt: skip
def test_a_system_file_is_like_a_buffer(steps: list[tuple[int, int]], windows: int, most: int) -> None:
    """Windows that follow each other are written at once, even if the system takes few bytes of them; who reads by the
    file itself after a flush finds them."""

    def pwritev(file: int, views: list[memoryview], at: int) -> int:
        return os.pwrite(file, b"".join(views)[:most], at)

    for buffering in (0, 16):
        with tempfile.TemporaryFile(buffering=buffering) as file, pytest.MonkeyPatch.context() as patch:
            patch.setattr(memory.os, "pwritev", pwritev)
            found, model = FileMemory(file, SIZE, 10, windows), bytearray(SIZE)
            for number, (offset, length) in enumerate(steps):
                length = min(length, SIZE - offset)
                for at in range(offset, offset + length, 5):  # as packets do
                    data = bytes([number + 1]) * min(5, offset + length - at)
                    found.write(at, data)
                    model[at : at + len(data)] = data
                assert bytes(found.read(offset // 2, SIZE - offset)) == model[offset // 2 : offset // 2 + SIZE - offset]
                if number % 3 == 2:
                    found.flush()
                    file.seek(0)
                    assert (file.read(SIZE) or b"").ljust(SIZE, b"\0") == model
            found.flush()
            file.seek(0)
            assert (file.read(SIZE) or b"").ljust(SIZE, b"\0") == model


def test_windows_that_follow_each_other_are_written_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A message of 64 windows takes a call for each eight of them, not one for each."""
    calls: list[int] = []
    pwritev = os.pwritev
    monkeypatch.setattr(
        memory.os, "pwritev", lambda file, views, at: calls.append(len(views)) or pwritev(file, views, at)
    )
    with (tmp_path / "file").open("w+b") as file:
        target = FileMemory(file, 64 * 16, window=16, windows=8)
        for at in range(0, 64 * 16, 4):
            target.write(at, bytes([at // 4]) * 4)
        target.flush()
    assert (tmp_path / "file").read_bytes() == b"".join(bytes([at]) * 4 for at in range(256))
    assert (sum(calls), calls[0], len(calls)) == (64, 8, 8)


def test_a_window_with_views_is_not_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A view keeps its bytes when its window leaves RAM. Without a view, the window is used for other bytes."""
    made: list[int] = []
    monkeypatch.setattr(memory, "bytearray", lambda size: made.append(size) or bytearray(size), raising=False)
    data = bytes(at % 251 for at in range(SIZE))
    source = FileMemory(io.BytesIO(data), SIZE, window=10, windows=2)
    views = [source.read(offset, 10) for offset in range(0, 60, 10)]
    assert (b"".join(views), made) == (data[:60], [10] * 6)
    del views
    assert b"".join(bytes(source.read(offset, 10)) for offset in range(60, SIZE, 10)) == data[60:]
    assert made == [10] * 6


def test_buffers_of_other_types() -> None:
    numbers = array("I", [1, 2, 3])
    memory = BufferMemory(numbers)
    memory.write(4, (7).to_bytes(4, "little"))
    assert (memory.length, list(numbers)) == (12, [1, 7, 3])
    with pytest.raises(LocalError, match="no contiguous buffer"):
        BufferMemory(5)


@pytest.mark.parametrize(("offset", "length", "inside"), [
    (0x1000, 16, True), (0x1000, 17, False), (0xFFF, 1, False), (0x1010, 0, True), (0x1011, 0, False),
    ((1 << 64) - 1, 2, False),
])  # fmt: skip
def test_bounds(offset: int, length: int, inside: bool) -> None:
    """ses.md §10 step 14."""
    assert Region(1, bytearray(16), base=0x1000).covers(offset, length) is inside


@pytest.mark.parametrize("key", [-1, 1 << 64, 1 << 56])
def test_illegal_keys(key: int) -> None:
    with pytest.raises(LocalError, match="key"):
        Region(key, bytearray(1))


def test_a_key_is_registered_once() -> None:
    from uetproto.engine.ses.checks import Processes

    process = Processes().attach(1, 0, (15,))
    process.register(Region(1, bytearray(1)))
    with pytest.raises(LocalError, match="registered already"):
        process.register(Region(1, bytearray(1)))


@given(start=st.integers(0, 40), size=st.integers(1, 30), count=st.integers(1, 6), window=st.integers(1, 90))
def test_runs_are_single_pieces(start: int, size: int, count: int, window: int) -> None:
    """What trains read and write at once, in buffers, files and parts of them, is what single calls read and write."""
    data = bytes(at % 251 for at in range(SIZE))
    for make in (bytearray, lambda data: FileMemory(io.BytesIO(data), SIZE, window, 2)):
        one, other = (run_memory(MemoryWindow(as_memory(make(data)), 7, SIZE - 7)) for _ in range(2))
        assert one is not None
        assert other is not None
        places = range(start, start + size * count, size)
        assert [bytes(piece) for piece in one.read_run(start, size, count)] == [
            bytes(other.read(place, size)) for place in places
        ]
        pieces = [bytes([200 + at]) * size for at in range(count)]
        write = one.writer(start, pieces)
        for at, place in enumerate(places):
            write(at)
            other.write(place, pieces[at])
        assert bytes(one.read(0, SIZE - 7)) == bytes(other.read(0, SIZE - 7))
    assert run_memory(MemoryWindow(object(), 0, 5)) is None  # type: ignore[arg-type]


def test_runs_of_an_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "WINDOW", 100)
    data = bytes(at % 251 for at in range(SIZE))
    (tmp_path / "input").write_bytes(data)
    with (tmp_path / "input").open("rb") as file:
        source = files.SourceFile(file)
        for start, size, count in ((0, 30, 3), (90, 30, 3), (150, 30, 5), (20, 10, 3), (0, 1, SIZE), (290, 10, 1)):
            pieces = source.read_run(start, size, count)
            assert (len(pieces), b"".join(pieces)) == (count, data[start : start + size * count])
        with pytest.raises(OSError, match="ends at byte"):
            source.read_run(270, 20, 2)
