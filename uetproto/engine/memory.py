# SPDX-License-Identifier: GPL-2.0-only
"""This module has the memory of messages, in buffers or files, and the regions that have a key (ses.md §2.6, §14.2)."""

import os
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from io import BufferedRandom, FileIO
from typing import Any, BinaryIO, Protocol, TypeVar, cast

from uetproto.engine.contract import Buffer
from uetproto.errors import LocalError
from uetproto.wire.headers.uet_ses import ReturnCode

IDEMPOTENT_SAFE = 1 << 63
"""Bit of a memory key which says that a repeated write to the region does no harm (ses.md §2.6)."""
_RESERVED_KEY_BITS = 0x3F << 56
_SYSTEM_FILES = frozenset({BufferedRandom, FileIO} if hasattr(os, "pwritev") else ())
"""Types of files to which the system writes several windows at once."""
_IOV_MAX = 1024
"""Largest number of windows that the system takes at once."""


class Memory(Protocol):
    """Memory has a length in bytes, and is read and written at byte offsets."""

    @property
    def length(self) -> int: ...

    def read(self, offset: int, length: int) -> Buffer: ...

    def write(self, offset: int, data: Buffer) -> None: ...

    def flush(self) -> None: ...


class RunMemory(Memory, Protocol):
    """Run memory also reads and writes runs of pieces that have the same size, for trains (`engine.train`)."""

    def read_run(self, offset: int, size: int, count: int) -> list[Buffer]:
        """Return what `count` calls of `read` would return for pieces of `size` bytes."""

    def writer(self, offset: int, pieces: Sequence[Buffer]) -> Callable[[int], None]:
        """Return a function that writes one of these pieces of equal size, given by its index, to its place from
        `offset` on."""


_Kind = TypeVar("_Kind", bound=type[RunMemory])
_RUN_MEMORIES: set[type] = set()


def with_runs(kind: _Kind) -> _Kind:
    """Let trains use the runs of a class of memory. A subclass of it may read or write in another way, and must be
    decorated itself."""
    _RUN_MEMORIES.add(kind)
    return kind


def run_memory(memory: object) -> RunMemory | None:
    """Return `memory` if trains can use its runs, and otherwise None."""
    if type(memory) is MemoryWindow:
        return memory if memory.has_runs else None
    return cast(RunMemory, memory) if type(memory) in _RUN_MEMORIES else None


@lru_cache(maxsize=256)
def _cuts(size: int, count: int) -> list[slice]:
    """Return the slices that cut bytes into `count` successive pieces of `size` bytes; trains have few sizes."""
    return [slice(start, start + size) for start in range(0, count * size, size)]


def _cut(view: memoryview, start: int, size: int, count: int) -> Iterator[memoryview]:
    """Return `count` successive pieces of `size` bytes, the first of which begins at `start`."""
    return map(view[start:].__getitem__, _cuts(size, count))


@with_runs
class BufferMemory:
    """A buffer memory is an object with the buffer protocol (bytes, bytearray, memoryview, array), seen as bytes."""

    __slots__ = ("length", "read_only", "view")

    def __init__(self, buffer: Any) -> None:
        try:
            self.view = memoryview(buffer).cast("B")
        except (TypeError, ValueError) as error:
            raise LocalError(
                "memory", f"{type(buffer).__name__} is no contiguous buffer", id="not-contiguous"
            ) from error
        self.length = len(self.view)
        self.read_only = self.view.readonly

    def read(self, offset: int, length: int) -> Buffer:
        return self.view[offset : offset + length]

    def read_run(self, offset: int, size: int, count: int) -> list[Buffer]:
        """Return what `count` calls of `read` would return for pieces of `size` bytes."""
        return list(_cut(self.view, offset, size, count))

    def write(self, offset: int, data: Buffer) -> None:
        self.view[offset : offset + len(data)] = data

    def writer(self, offset: int, pieces: Sequence[Buffer]) -> Callable[[int], None]:
        """Return a function that writes one of these pieces of equal size, given by its index, to its place from
        `offset` on."""
        view, cuts = self.view[offset:], _cuts(len(pieces[0]), len(pieces))

        def write(index: int) -> None:
            view[cuts[index]] = pieces[index]

        return write

    def flush(self) -> None:
        """Do nothing: writes take effect at once."""


@with_runs
class FileMemory:
    """A file memory is an open binary file of any length. Only a few windows of the file are in RAM.

    `file` must be seekable, and writable if a peer writes to it. The caller closes the file after a call of `flush`. A
    view that `read` returned stays valid when its window leaves RAM, but later writes do not appear in the view.
    """

    __slots__ = ("_blank", "_dirty", "_file", "_last", "_window", "_windows", "length", "window", "windows")

    def __init__(self, file: BinaryIO, length: int | None = None, window: int = 1 << 17, windows: int = 8) -> None:
        """`length` is the size of the memory, by default that of the file; bytes beyond the file's end read as 0.

        At most `windows` windows of `window` bytes are in RAM. Raises `LocalError` if either is less than 1.
        """
        if window < 1 or windows < 1:
            raise LocalError(
                "window", f"{window} × {windows} is not legal", "at least one window of 1 byte", id="out-of-range"
            )
        self._file = file
        self.window = window
        self.windows = windows
        self.length = file.seek(0, 2) if length is None else length
        self._windows: OrderedDict[int, memoryview] = OrderedDict()
        self._last = -1
        """Number of the window that was used last, which is `_window`."""
        self._window = memoryview(b"")
        self._dirty: dict[int, list[int]] = {}
        """Bytes of each window that are not written to the file yet: [first, last + 1], or [0, -1] when they are."""
        self._blank: set[int] = set()
        """Windows that were not read from the file: only their bytes in `_dirty` are valid."""

    def read(self, offset: int, length: int) -> Buffer:
        number, start = divmod(offset, self.window)
        if start + length <= self.window:
            return self._load(number)[start : start + length]
        pieces = []
        while length:
            number, start = divmod(offset, self.window)
            piece = bytes(self._load(number)[start : start + length])
            pieces.append(piece)
            offset += len(piece)
            length -= len(piece)
        return b"".join(pieces)

    def read_run(self, offset: int, size: int, count: int) -> list[Buffer]:
        """Return what `count` calls of `read` would return for pieces of `size` bytes."""
        pieces: list[Buffer] = []
        while count:
            number, start = divmod(offset, self.window)
            here = min(count, (self.window - start) // size)
            if here:
                view = self._load(number)
                pieces += _cut(view, start, size, here)
            else:  # the piece is in two windows
                here = 1
                pieces.append(self.read(offset, size))
            count -= here
            offset += here * size
        return pieces

    def write(self, offset: int, data: Buffer) -> None:
        number, start = divmod(offset, self.window)
        end = start + len(data)
        dirty = self._dirty.get(number)
        if dirty is not None and dirty[0] <= start <= dirty[1] and end <= self.window:
            # The common case, with the same result as below: the write goes on where another one has ended.
            self._open(number)[start:end] = data
            if end > dirty[1]:
                dirty[1] = end
            return
        view = memoryview(data)
        while len(view):
            number, start = divmod(offset, self.window)
            piece = view[: self.window - start]
            end = start + len(piece)
            dirty = self._dirty.get(number)
            if dirty is None:
                if number not in self._windows:
                    self._blank.add(number)
                dirty = [start, end]
            elif end < dirty[0] or start > dirty[1]:
                self._load(number)
            self._open(number)[start:end] = piece
            dirty[:] = min(dirty[0], start), max(dirty[1], end)
            self._dirty[number] = dirty
            offset += len(piece)
            view = view[len(piece) :]

    def writer(self, offset: int, pieces: Sequence[Buffer]) -> Callable[[int], None]:
        """Return a function that writes one of these pieces of equal size, given by its index, to its place from
        `offset` on."""
        size, most = len(pieces[0]), self.window - len(pieces[0])
        number = offset // self.window
        first, dirty = offset - number * self.window, self._dirty.get(number) or [0, -1]
        window = self._windows[number] if dirty[1] > 0 else self._window

        def write(index: int) -> None:
            nonlocal first, window, dirty
            start = first + index * size
            if start == dirty[1] and start <= most:  # goes on where the last write has ended
                dirty[1] = end = start + size
                window[start:end] = pieces[index]
            else:
                at = offset + index * size
                self.write(at, pieces[index])
                number = (at + size - 1) // self.window
                first, window, dirty = offset - number * self.window, self._windows[number], self._dirty[number]

        return write

    def flush(self) -> None:
        """Write all changed windows to the file object, and flush the file object."""
        for number in sorted(self._dirty):
            self._store(number)
        for number in self._blank:
            self._windows.pop(number, None)
        self._blank.clear()
        self._last = -1
        self._file.flush()

    def _load(self, number: int) -> memoryview:
        """Return a window with all its bytes."""
        found = number in self._windows
        window = self._open(number)
        if not found:
            self._blank.discard(number)
            self._fill(number, 0, self.window)
        elif number in self._blank:
            first, last = self._dirty[number]
            self._fill(number, 0, first)
            self._fill(number, last, self.window)
            self._blank.remove(number)
        return window

    def _open(self, number: int) -> memoryview:
        """Return a window. If it was not in RAM, its bytes say nothing."""
        if number == self._last:
            return self._window
        found = self._windows.get(number)
        if found is not None:
            self._windows.move_to_end(number)
        else:
            spare = None
            while len(self._windows) >= self.windows:
                oldest = next(iter(self._windows))
                self._store(oldest)
                self._blank.discard(oldest)
                spare = _unseen(self._windows.pop(oldest))
            found = self._windows[number] = spare or memoryview(bytearray(self.window))
        self._last, self._window = number, found
        return found

    def _fill(self, number: int, start: int, end: int) -> None:
        """Read the bytes from `start` to `end` of a window from the file. Bytes beyond the file's end are 0."""
        if start < end:
            self._file.seek(number * self.window + start)
            view = self._windows[number][start:end]
            found: int = self._file.readinto(view)  # type: ignore[attr-defined]
            view[found:] = bytes(end - start - found)

    def _store(self, number: int) -> None:
        """Write the changed bytes of a window to the file, and with them the windows behind it that are changed as a
        whole: the system takes several windows at once in less time."""
        dirty = self._dirty.pop(number, None)
        if dirty is None:
            return
        at, changed = number * self.window + dirty[0], [self._windows[number][slice(*dirty)]]
        while dirty[1] == self.window and self._dirty.get(number + 1) == [0, self.window]:
            dirty[:] = 0, -1
            number += 1
            dirty = self._dirty.pop(number)
            self._blank.discard(number)
            changed.append(self._windows[number])
        dirty[:] = 0, -1
        if type(self._file) in _SYSTEM_FILES:
            self._file.seek(0, 2)  # a buffered file writes its buffer, and forgets what it has read
            _write_all(self._file.fileno(), changed, at)
        else:
            self._file.seek(at)
            for view in changed:
                self._file.write(view)


def _write_all(file: int, views: list[memoryview], at: int) -> None:
    """Write views one after the other to a file, from the offset `at` on."""
    while views:
        written = os.pwritev(file, views[:_IOV_MAX], at)
        at += written
        while views and written >= len(views[0]):
            written -= len(views.pop(0))
        if written:
            views[0] = views[0][written:]


def _unseen(window: memoryview) -> memoryview | None:
    """Return a window again, or None if there is another view of its bytes. `window` is released."""
    buffer = cast(bytearray, window.obj)
    window.release()
    try:
        buffer.append(buffer.pop())  # a buffer cannot change its size while there is a view of it
    except BufferError:
        return None
    return memoryview(buffer)


class MemoryWindow:
    """A memory window is a part of another memory."""

    __slots__ = ("_memory", "_runs", "_start", "length")

    def __init__(self, memory: Memory, start: int, length: int) -> None:
        self._memory = memory
        self._runs = run_memory(memory)
        self._start = start
        self.length = length

    @property
    def read_only(self) -> bool:
        return bool(getattr(self._memory, "read_only", False))

    def read(self, offset: int, length: int) -> Buffer:
        return self._memory.read(self._start + offset, length)

    @property
    def has_runs(self) -> bool:
        """Return whether trains can use the runs of the memory."""
        return self._runs is not None

    def read_run(self, offset: int, size: int, count: int) -> list[Buffer]:
        assert self._runs is not None
        return self._runs.read_run(self._start + offset, size, count)

    def write(self, offset: int, data: Buffer) -> None:
        self._memory.write(self._start + offset, data)

    def writer(self, offset: int, pieces: Sequence[Buffer]) -> Callable[[int], None]:
        assert self._runs is not None
        return self._runs.writer(self._start + offset, pieces)

    def flush(self) -> None:
        self._memory.flush()


def as_memory(data: Any) -> Memory:
    """Return `data` itself if it has `read` and `length`, and otherwise a `BufferMemory` of its bytes."""
    if type(data) is memoryview or type(data) is bytes:
        return BufferMemory(data)
    if hasattr(data, "read") and hasattr(data, "length"):
        memory: Memory = data
        return memory
    return BufferMemory(data)


class Region:
    """A region is registered memory {key, base, length, access}. Packets reach the region only while it is enabled
    (ses.md §14.2).

    `base` is 0 in zero-based mode. Otherwise it is the virtual address that the first byte has for peers (ses.md §2.8).
    """

    __slots__ = (
        "base", "enabled", "fault", "idempotent_safe", "job_restriction", "key", "length", "memory", "on_read",
        "remote_read", "remote_write",
    )  # fmt: skip

    def __init__(
        self, key: int, memory: Any, *, base: int = 0, remote_write: bool = True, remote_read: bool = True,
        job_restriction: int | None = None, enabled: bool = True,
    ) -> None:  # fmt: skip
        if not 0 <= key < 1 << 64 or key & _RESERVED_KEY_BITS:
            raise LocalError("key", f"{key:#x} is not legal", "64 bits with bits 61 … 56 zero", id="out-of-range")
        self.key = key
        self.memory = as_memory(memory)
        self.length = length = self.memory.length
        if remote_write and length and getattr(self.memory, "read_only", False):
            raise LocalError("memory", "read-only; legal with remote_write=False", id="read-only")
        if not 0 <= base <= (1 << 64) - length:
            raise LocalError("base", f"{base:#x} is not legal", f"0 … {(1 << 64) - length:#x}", id="out-of-range")
        self.base = base
        self.remote_write = remote_write
        self.remote_read = remote_read
        self.job_restriction = job_restriction
        self.idempotent_safe = bool(key & IDEMPOTENT_SAFE)
        self.enabled = enabled
        self.fault: ReturnCode | None = None
        """Return code with which every access fails (AT_*, HOST_*), for tests (ses.md §10 step 18). If it is None, no
        access fails for this reason."""
        self.on_read: Callable[[int, int], None] | None = None
        """Function that is called when a peer has read and acknowledged bytes of the region. Its arguments are the
        number of bytes and the time. It is None if there is nothing to call."""

    def covers(self, offset: int, length: int) -> bool:
        """Return whether the bytes [offset, offset + length) lie inside the region (ses.md §10 step 14)."""
        return self.base <= offset and offset + length <= self.base + self.length
