# SPDX-License-Identifier: GPL-2.0-only
"""Memory from the system: zeros, and huge pages where the system has them."""

import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from threading import Event
from types import SimpleNamespace

import pytest

from uetproto import system_memory
from uetproto.system_memory import huge_pages, zeros

MIB = 1 << 20


def _collapses() -> bool:
    """Whether this system moves memory into huge pages when it is asked: Linux from 6.1 on, unless it shall never."""
    try:
        enabled = (system_memory._HUGE / "enabled").read_text()
        release = Path("/proc/sys/kernel/osrelease").read_text().split(".")
    except OSError:
        return False
    return "[never]" not in enabled and (int(release[0]), int(release[1])) >= (6, 1)


@pytest.mark.parametrize("huge", [False, True])
@pytest.mark.parametrize("size", [0, 1, 4097, 5 * MIB])
def test_zeros_can_be_written(size: int, huge: bool) -> None:
    block = zeros(size, huge=huge)
    assert (block.nbytes, block.readonly, block.format) == (size, False, "B")
    assert bytearray(block) == bytes(size)
    block[:] = b"\xa5" * size
    assert bytearray(block) == b"\xa5" * size


def test_more_than_the_system_has_is_refused() -> None:
    with pytest.raises(OSError, match="annot allocate"):
        zeros(1 << 60)


GROWING = """
import time
from pathlib import Path
from uetproto.system_memory import huge_pages

def in_huge_pages():
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("AnonHugePages")) << 10

before = in_huge_pages()
with huge_pages():
    objects = [str(number) * 9 for number in range(10**6)]
    for _ in range(200):
        if in_huge_pages() - before < 64 << 20:
            time.sleep(0.05)
assert objects == [str(number) * 9 for number in range(10**6)]
print(in_huge_pages() - before)
"""


@pytest.mark.skipif(not _collapses(), reason="this system moves no memory into huge pages: Linux from 6.1 on does")
def test_a_heap_that_grows_moves_into_huge_pages() -> None:
    """A process of its own has some 100 MiB of objects. They move, and none has changed."""
    found = subprocess.run([sys.executable, "-c", GROWING], capture_output=True, text=True, check=True).stdout
    assert int(found) >= 64 * MIB


def test_what_is_asked_of_the_system(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whole huge pages within the ranges are asked for, at first and each time that the process has grown."""
    asked: list[tuple[int, int, int]] = []
    sizes = iter([system_memory._LEAST - 1, system_memory._LEAST, system_memory._LEAST + 1, 1 << 40])

    def madvise(start: int, length: int, advice: int) -> int:
        asked.append((start, length, advice))
        return -1  # an error changes nothing

    class Ended(Event):
        def wait(self, timeout: float | None = None) -> bool:
            return not looks or looks.pop()

    looks = [False] * 4
    monkeypatch.setattr(system_memory.ctypes, "CDLL", lambda name: SimpleNamespace(madvise=madvise))
    monkeypatch.setattr(system_memory, "_resident", lambda: next(sizes))
    monkeypatch.setattr(system_memory, "_heap", lambda: [(0x1000, 0x5800), (0x5800, 0x7000), (0x8000, 0x9000)])
    system_memory._gather(0x2000, Ended())
    assert asked == [(0x2000, 0x2000, 25)] * 2


def test_a_system_without_huge_pages_has_no_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(system_memory, "_HUGE", tmp_path)
    for enabled, size in (("", None), ("always madvise [never]", "2097152"), ("[always] madvise never", "?")):
        (tmp_path / "enabled").write_text(enabled)
        if size is not None:
            (tmp_path / "hpage_pmd_size").write_text(size)
        with huge_pages():
            assert "huge pages" not in [thread.name for thread in threading.enumerate()]


@pytest.mark.parametrize("fails", [False, True])
def test_the_thread_ends_with_the_block(fails: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "enabled").write_text("always [madvise] never")
    (tmp_path / "hpage_pmd_size").write_text("2097152")
    monkeypatch.setattr(system_memory, "_HUGE", tmp_path)
    monkeypatch.setattr(system_memory, "_gather", lambda size, ended: ended.wait())
    with suppress(KeyError), huge_pages():
        assert "huge pages" in [thread.name for thread in threading.enumerate()]
        if fails:
            raise KeyError
    assert "huge pages" not in [thread.name for thread in threading.enumerate()]


def test_only_memory_of_objects_is_gathered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "maps").write_text(
        "10000-20000 rw-p 00000000 00:00 0 \n"
        "30000-40000 r--p 00000000 00:00 0 \n"
        "50000-60000 rw-p 00000000 00:00 0                          [heap]\n"
        "70000-80000 rw-p 00000000 08:01 12 /usr/lib/a library.so\n"
        "90000-a0000 rw-s 00000000 00:01 0 /dev/zero (deleted)\n"
        "b0000-c0000 rw-p 00000000 00:00 0 [anon: glibc: malloc]\n"
        "d0000-e0000 rw-p 00000000 00:00 0                          [stack]\n"
    )
    monkeypatch.setattr(system_memory, "_PROCESS", tmp_path)
    assert system_memory._heap() == [(0x10000, 0x20000), (0x50000, 0x60000), (0xB0000, 0xC0000)]
