# SPDX-License-Identifier: GPL-2.0-only
"""This module has what large memory needs: zeros and huge pages of the system (docs/explanation/speed.md), and a
comparison that copies little."""

import mmap
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event, Thread

_HUGE = Path("/sys/kernel/mm/transparent_hugepage")
_PROCESS = Path("/proc/self")
_COLLAPSE = 25
"""MADV_COLLAPSE of Linux 6.1, which the module mmap does not name: replace the pages of a range by huge pages."""
_LEAST, _GROWTH = 96 << 20, 16 << 20
"""Bytes that a process has in memory before it pays to move them, and by which they grow at least before this is
repeated. A huge page of more than `_GROWTH` bytes would waste memory, and is not used."""
_AT_ONCE = 64 << 20
"""Number of bytes that are moved with one call, so that the thread ends soon after the run."""
_INTERVAL = 0.1
"""Seconds between two looks at the size of the process."""
_COMPARED = 1 << 18
"""Number of bytes of each memory that are compared at a time."""


def zeros(size: int, *, huge: bool = False) -> memoryview:
    """Return `size` bytes that are 0 and can be written. The system provides each page when it is first touched. With
    `huge`, it provides huge pages if it has them; this is for memory that is used as a whole.

    Raises `OSError` or `OverflowError` if the system refuses so many bytes.
    """
    if not size:
        return memoryview(bytearray())
    block = mmap.mmap(-1, size, access=mmap.ACCESS_COPY)
    if huge and _size_of_huge_pages() and hasattr(mmap, "MADV_HUGEPAGE"):
        with suppress(OSError):  # the system refuses huge pages
            block.madvise(mmap.MADV_HUGEPAGE)
    return memoryview(block)


def same_bytes(wanted: memoryview, found: Iterable[memoryview]) -> bool:
    """Return whether `wanted` begins with the bytes of each of `found`, none of which is longer.

    They are compared piece by piece, so that each piece of `wanted` is in a cache for all of them.
    """
    left = list(found)
    for at in range(0, wanted.nbytes, _COMPARED):
        piece = bytearray(wanted[at : at + _COMPARED])  # compares itself with any memory by `memcmp`
        left = [memory for memory in left if memory.nbytes > at]
        for memory in left:
            part = memory[at : at + _COMPARED]
            if (piece if len(part) == len(piece) else piece[: len(part)]) != part:
                return False
    return True


@contextmanager
def huge_pages() -> Iterator[None]:
    """Move the memory of this process into huge pages within the `with` block, and again while the process grows.

    A thread does it. This is for a program that runs in its own process: memory of which only a few pages are used
    would take whole huge pages. Where the system does not do it, nothing happens, and the run is the same.
    """
    size, ended = _size_of_huge_pages(), Event()
    thread = Thread(target=_gather, args=(size, ended), name="huge pages", daemon=True)
    started = False
    if size:
        with suppress(RuntimeError):  # the system permits no other thread
            thread.start()
            started = True
    try:
        yield
    finally:
        ended.set()
        if started:
            thread.join()


def _gather(size: int, ended: Event) -> None:
    """Move memory into huge pages of `size` bytes each time that the process has grown, until `ended` is set, or until
    the system shows that it cannot do it."""
    with suppress(ImportError, OSError, AttributeError):
        import ctypes  # some builds of Python have none

        madvise = ctypes.CDLL(None).madvise
        madvise.argtypes = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
        least = _LEAST
        while not ended.wait(_INTERVAL):
            used = _resident()
            if used < least:
                continue
            least = used + max(_GROWTH, used // 8)
            for start, end in _parts(_heap(), size):
                if ended.is_set():
                    return
                madvise(start, end - start, _COLLAPSE)  # an error says that some pages are as they were


def _parts(ranges: list[tuple[int, int]], size: int) -> Iterator[tuple[int, int]]:
    """Yield the parts of ranges that are whole huge pages of `size` bytes, each of at most `_AT_ONCE` bytes."""
    for start, end in ranges:
        last = end // size * size
        for first in range(-(-start // size) * size, last, _AT_ONCE):
            yield first, min(first + _AT_ONCE, last)


def _size_of_huge_pages() -> int:
    """Return the size of a huge page in bytes, or 0 if the system has none, shall use none, or has too large ones."""
    try:
        if "[never]" in (_HUGE / "enabled").read_text():
            return 0
        size = int((_HUGE / "hpage_pmd_size").read_text())
    except (OSError, ValueError):
        return 0
    return size if 0 < size <= _GROWTH else 0


def _resident() -> int:
    """Return the number of bytes of the process that are in memory."""
    return int((_PROCESS / "statm").read_text().split()[1]) * mmap.PAGESIZE


def _heap() -> list[tuple[int, int]]:
    """Return the ranges of private memory that the process can write and that belongs to no file. The stack of the main
    thread is not among them; those of other threads have no mark."""
    found = []
    with (_PROCESS / "maps").open("rb") as lines:  # names of files may have any bytes
        for line in lines:
            addresses, rights, _, _, inode, *name = line.split(maxsplit=5)
            if rights == b"rw-p" and inode == b"0" and (not name or name[0].startswith((b"[heap]", b"[anon"))):
                start, end = addresses.split(b"-")
                found.append((int(start, 16), int(end, 16)))
    return found
