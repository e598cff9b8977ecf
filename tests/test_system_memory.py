# SPDX-License-Identifier: GPL-2.0-only
"""Memory from the system: zeros, and huge pages where the system has them."""

import subprocess
import sys
from pathlib import Path

import pytest

from uetproto import system_memory
from uetproto.system_memory import HeapPages, zeros

MIB = 1 << 20


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
from pathlib import Path
from uetproto.system_memory import HeapPages

def in_huge_pages():
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("AnonHugePages")) << 10

pages = HeapPages()
small, objects = pages.gather(), [str(number) * 9 for number in range(10**6)]
before, gathered = in_huge_pages(), pages.gather()
assert objects == [str(number) * 9 for number in range(10**6)]
print(small, gathered, in_huge_pages() - before, pages.gather())
"""


def test_a_heap_that_grows_is_gathered() -> None:
    """A process of its own has a large heap. What is said to be in huge pages is there, and no object has changed."""
    found = subprocess.run([sys.executable, "-c", GROWING], capture_output=True, text=True, check=True).stdout
    small, gathered, gained, again = map(int, found.split())
    assert (small, again) == (0, 0)  # too little to gather, and no growth
    assert gained >= gathered // 2  # objects that were freed since need none
    if _collapses():
        assert gained > 64 * MIB


def _collapses() -> bool:
    """Whether this system moves memory to huge pages when it is asked: Linux from 6.1 on, unless it shall never."""
    try:
        enabled = (system_memory._HUGE / "enabled").read_text()
        release = Path("/proc/sys/kernel/osrelease").read_text().split(".")
    except OSError:
        return False
    return "[never]" not in enabled and (int(release[0]), int(release[1])) >= (6, 1)


@pytest.mark.parametrize("kernel", ["none", "never", "unreadable"])
def test_a_system_without_huge_pages(kernel: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if kernel != "none":
        (tmp_path / "enabled").write_text("always madvise [never]" if kernel == "never" else "[always] madvise never")
        (tmp_path / "hpage_pmd_size").write_text("2097152" if kernel == "never" else "?")
    monkeypatch.setattr(system_memory, "_HUGE", tmp_path)
    monkeypatch.setattr(system_memory, "_LEAST", 0)
    assert HeapPages().gather() == 0


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
