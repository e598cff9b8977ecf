# SPDX-License-Identifier: GPL-2.0-only
"""Memory from the system: zeros, and huge pages where the system has them."""

import ctypes
import errno
import os
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from threading import Event
from types import SimpleNamespace

import pytest

from uetproto import system_memory
from uetproto.system_memory import huge_pages, same_bytes, zeros

MIB = 1 << 20


@pytest.fixture
def huge(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that says that the system has huge pages of 2 MiB."""
    (tmp_path / "enabled").write_text("always [madvise] never")
    (tmp_path / "hpage_pmd_size").write_text("2097152\n")
    monkeypatch.setattr(system_memory, "_HUGE", tmp_path)
    return tmp_path


# Zeros


@pytest.mark.parametrize("wanted", [False, True])
@pytest.mark.parametrize("size", [0, 1, 4097, 5 * MIB])
def test_zeros_can_be_written(size: int, wanted: bool, huge: Path) -> None:
    block = zeros(size, huge=wanted)
    assert (block.nbytes, block.readonly, block.format) == (size, False, "B")
    assert bytearray(block) == bytes(size)
    block[:] = b"\xa5" * size
    assert bytearray(block) == b"\xa5" * size


@pytest.mark.skipif(sys.platform != "linux", reason="huge pages of Linux")
@pytest.mark.parametrize("refused", [False, True])
@pytest.mark.parametrize("wanted", [False, True])
def test_huge_pages_are_asked_for(wanted: bool, refused: bool, huge: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    class Block(system_memory.mmap.mmap):
        def madvise(self, advice: int, *more: int) -> None:
            asked.append(advice)
            if refused:
                raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))

    monkeypatch.setattr(system_memory.mmap, "mmap", Block)
    assert zeros(MIB, huge=wanted).nbytes == MIB
    assert asked == [14] * wanted


@pytest.mark.parametrize("size", [1 << 60, 1 << 70])
def test_more_than_the_system_has_is_refused(size: int) -> None:
    with pytest.raises((OSError, OverflowError)):
        zeros(size)


# Comparison


def test_the_same_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of lengths at and around the pieces: equal ones, and those of which any one byte differs."""
    monkeypatch.setattr(system_memory, "_COMPARED", 4)
    wanted = memoryview(bytes(range(11)))
    for length in range(12):
        found = bytearray(wanted[:length])
        others = [wanted, memoryview(found), wanted[:5], wanted[:0]]
        assert same_bytes(wanted, others)
        for at in range(length):
            found[at] ^= 1
            assert not same_bytes(wanted, others)
            found[at] ^= 1


# Huge pages for a heap

GROWING = """
import ctypes, mmap, time
from pathlib import Path
from uetproto.system_memory import huge_pages

def in_huge_pages():
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("AnonHugePages")) << 10

def can():
    "Whether the system moves some pages of this process into huge pages."
    block = mmap.mmap(-1, 8 << 20, access=mmap.ACCESS_COPY)
    block[:] = bytes([1]) * len(block)
    start = ctypes.addressof(ctypes.c_char.from_buffer(block))
    madvise = ctypes.CDLL(None).madvise
    madvise.argtypes = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
    madvise((start + (2 << 20) - 1) & -(2 << 20), 4 << 20, 25)
    return in_huge_pages() >= 4 << 20

if can():
    before, moved = in_huge_pages(), 0
    with huge_pages():
        objects = [str(number) * 9 for number in range(10**6)]
        for _ in range(600):
            moved = max(moved, in_huge_pages() - before)
            if moved < 32 << 20:
                time.sleep(0.05)
    assert objects == [str(number) * 9 for number in range(10**6)]
    print(moved)
else:
    print("no")
"""


@pytest.mark.skipif(not Path("/proc/self/smaps_rollup").exists(), reason="nothing tells what is in huge pages")
def test_a_heap_that_grows_moves_into_huge_pages() -> None:
    """A process of its own has some 100 MiB of objects. They move, and none has changed."""
    found = subprocess.run([sys.executable, "-c", GROWING], capture_output=True, text=True, check=True).stdout
    if found == "no\n":
        pytest.skip("this system moves no memory into huge pages: Linux from 6.1 on does")
    assert int(found) >= 32 * MIB


@pytest.mark.parametrize("ends_after", [1, 99])
def test_what_is_asked_of_the_system(ends_after: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whole huge pages within the ranges are asked for, at first and each time that the process has grown."""
    asked: list[tuple[int, int, int]] = []
    sizes = iter([system_memory._LEAST - 1, system_memory._LEAST, system_memory._LEAST + 1, 1 << 40])
    looks, ended = iter([False] * 4), Event()

    def madvise(start: int, length: int, advice: int) -> int:
        asked.append((start, length, advice))
        if len(asked) == ends_after:
            ended.set()
        return -1  # an error changes nothing

    monkeypatch.setattr(ended, "wait", lambda timeout: ended.is_set() or next(looks, True))
    monkeypatch.setattr(ctypes, "CDLL", lambda name: SimpleNamespace(madvise=madvise))
    monkeypatch.setattr(system_memory, "_resident", lambda: next(sizes))
    monkeypatch.setattr(system_memory, "_AT_ONCE", 0x2000)
    monkeypatch.setattr(system_memory, "_heap", lambda: [(0x1000, 0x7800), (0x7800, 0x9000), (0xA000, 0xB000)])
    system_memory._gather(0x2000, ended)
    assert asked == [(0x2000, 0x2000, 25), (0x4000, 0x2000, 25)][:ends_after] * min(ends_after, 2)


@pytest.mark.parametrize(
    ("enabled", "size", "found"),
    [
        ("always [madvise] never", "2097152\n", 2 * MIB),
        ("[always] madvise never", "2097152\n", 2 * MIB),
        ("always madvise [never]", "2097152\n", 0),
        ("[always] madvise never", "536870912\n", 0),
        ("[always] madvise never", "?", 0),
        ("[always] madvise never", None, 0),
        (None, "2097152\n", 0),
    ],
)
def test_what_the_system_has(
    enabled: str | None, size: str | None, found: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, text in (("enabled", enabled), ("hpage_pmd_size", size)):
        if text is not None:
            (tmp_path / name).write_text(text)
    monkeypatch.setattr(system_memory, "_HUGE", tmp_path)
    assert system_memory._size_of_huge_pages() == found
    monkeypatch.setattr(system_memory, "_gather", lambda size, ended: ended.wait())
    with huge_pages():
        assert _has_thread() == bool(found)
    assert not _has_thread()


def _has_thread() -> bool:
    return "huge pages" in [thread.name for thread in threading.enumerate()]


def test_the_thread_ends_with_an_error(huge: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(system_memory, "_gather", lambda size, ended: ended.wait())
    with suppress(KeyError), huge_pages():
        assert _has_thread()
        raise KeyError
    assert not _has_thread()


def test_a_system_that_permits_no_thread(huge: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def start(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", start)
    with huge_pages():
        assert not _has_thread()


def test_a_process_that_cannot_see_itself(huge: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without /proc the thread ends, and says nothing."""
    said: list[object] = []
    monkeypatch.setattr(threading, "excepthook", said.append)
    monkeypatch.setattr(system_memory, "_PROCESS", huge / "none")
    monkeypatch.setattr(system_memory, "_INTERVAL", 0)
    with huge_pages():
        for thread in threading.enumerate():
            if thread.name == "huge pages":
                thread.join()
    assert said == []


def test_only_private_memory_of_no_file_is_moved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "maps").write_bytes(
        b"10000-20000 rw-p 00000000 00:00 0 \n"
        b"30000-40000 r--p 00000000 00:00 0 \n"
        b"50000-60000 rw-p 00000000 00:00 0                          [heap]\n"
        b"70000-80000 rw-p 00000000 08:01 12 /usr/lib/a\xe9 \xc2\x85\rlibrary.so\n"
        b"90000-a0000 rw-s 00000000 00:01 0 /dev/zero (deleted)\n"
        b"b0000-c0000 rw-p 00000000 00:00 0 [anon: glibc: malloc]\n"
        b"d0000-e0000 rw-p 00000000 00:00 0                          [stack]\n"
    )
    monkeypatch.setattr(system_memory, "_PROCESS", tmp_path)
    assert system_memory._heap() == [(0x10000, 0x20000), (0x50000, 0x60000), (0xB0000, 0xC0000)]
