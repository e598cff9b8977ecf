# SPDX-License-Identifier: GPL-2.0-only
"""This module asks the system for huge pages.

Linux finds a page of memory by tables, and a processor keeps few entries of them. In a virtual machine each address is
translated twice. A run whose objects are spread over hundreds of MiB may take a third of its time to find small pages;
huge pages, most often of 2 MiB, make this time small (docs/explanation/speed.md).
"""

import ctypes
import mmap
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event, Thread

_HUGE = Path("/sys/kernel/mm/transparent_hugepage")
_PROCESS = Path("/proc/self")
_COLLAPSE = 25
"""MADV_COLLAPSE of Linux 6.1, which the module mmap does not name: use huge pages in place of the pages that there
are."""
_LEAST, _GROWTH = 96 << 20, 16 << 20
"""Bytes that a process has in memory before it pays to move them, and by which they grow before this is repeated."""
_INTERVAL = 0.1
"""Seconds between two looks at the size of the process."""


def zeros(size: int, *, huge: bool = False) -> memoryview:
    """Return `size` bytes that are 0 and can be written. The system provides each page when it is first touched. With
    `huge`, it provides huge pages if it has them; this is for memory that is used as a whole.

    Raises `OSError` if the system has no room for so many bytes.
    """
    if not size:
        return memoryview(bytearray())
    block = mmap.mmap(-1, size, access=mmap.ACCESS_COPY)
    if huge and hasattr(mmap, "MADV_HUGEPAGE"):
        with suppress(OSError):  # a kernel without huge pages
            block.madvise(mmap.MADV_HUGEPAGE)
    return memoryview(block)


@contextmanager
def huge_pages() -> Iterator[None]:
    """Move the memory of this process into huge pages within the `with` block, and again while the process grows.

    A thread does it. This is for a program that runs in its own process: memory that other parts of a process use
    sparsely would become larger. Nothing happens if the system has no huge pages.
    """
    size, ended = _size_of_huge_pages(), Event()
    if not size:
        yield
        return
    thread = Thread(target=_gather, args=(size, ended), name="huge pages", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _gather(size: int, ended: Event) -> None:
    """Move memory into huge pages of `size` bytes each time that the process has grown, until `ended` is set."""
    madvise = ctypes.CDLL(None).madvise
    madvise.argtypes = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
    least = _LEAST
    while not ended.wait(_INTERVAL):
        used = _resident()
        if used >= least:
            least = used + _GROWTH
            for start, end in _heap():
                first, last = -(-start // size) * size, end // size * size
                if first < last:
                    madvise(first, last - first, _COLLAPSE)  # an error says that the range is as it was


def _size_of_huge_pages() -> int:
    """Return the size of a huge page in bytes, or 0 if the system has none or shall use none."""
    try:
        if "[never]" in (_HUGE / "enabled").read_text():
            return 0
        return int((_HUGE / "hpage_pmd_size").read_text())
    except (OSError, ValueError):
        return 0


def _resident() -> int:
    """Return the number of bytes of the process that are in memory."""
    return int((_PROCESS / "statm").read_text().split()[1]) * mmap.PAGESIZE


def _heap() -> list[tuple[int, int]]:
    """Return the ranges of addresses that the process can write and that are neither files nor stacks."""
    found = []
    for line in (_PROCESS / "maps").read_text().splitlines():
        addresses, rights, _, _, inode, *name = line.split(maxsplit=5)
        if rights == "rw-p" and inode == "0" and (not name or name[0].startswith(("[heap]", "[anon"))):
            start, end = addresses.split("-")
            found.append((int(start, 16), int(end, 16)))
    return found
