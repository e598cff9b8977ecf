# SPDX-License-Identifier: GPL-2.0-only
"""This module reads the input file of a run, finds the data in it, and compares the data with the target's memory."""

import ast
import hashlib
import math
import os
import re
import stat
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import BinaryIO, NamedTuple

from uetproto.emulator.run.result import Memories
from uetproto.engine.contract import Buffer
from uetproto.engine.memory import Memory, with_runs
from uetproto.errors import LocalError

WINDOW = 1 << 20
"""Number of bytes of a file that are in memory at the same time."""

_NPY = b"\x93NUMPY"


class Extent(NamedTuple):
    """An extent is the part of a file that is data: the offset of its first byte, and its length in bytes."""

    start: int
    length: int


def data_extent(file: BinaryIO) -> Extent:
    """Return which part of a file is data: the whole file, or, in a .npy file, all bytes behind the header.

    Raises `LocalError` for a .npy file without a valid header, and for a file without a size, such as a pipe or device.
    """
    status = os.fstat(file.fileno())
    if not stat.S_ISREG(status.st_mode):
        raise LocalError("is not a regular file; an input is read twice, to send and to compare", id="wrong-input-file")
    size = status.st_size
    if Path(file.name).suffix != ".npy":
        return Extent(0, size)
    file.seek(0)
    head = file.read(12)
    if len(head) < 12 or not head.startswith(_NPY) or head[6] not in (1, 2, 3):
        raise LocalError(
            "is not a .npy file (versions 1 to 3); another suffix takes its bytes as they are", id="wrong-input-file"
        )
    width = 2 if head[6] == 1 else 4
    start = 8 + width + int.from_bytes(head[8 : 8 + width], "little")
    file.seek(8 + width)
    try:
        described = ast.literal_eval(file.read(start - 8 - width).decode())
        kind, shape = described["descr"], described["shape"]
        items = math.prod(shape)
    except (ValueError, SyntaxError, TypeError, KeyError) as error:
        raise LocalError("its header is not that of a .npy file", id="wrong-input-file") from error
    if match := re.fullmatch(r"[<>|=][biufcmMSVU?](\d+).*", kind if isinstance(kind, str) else ""):
        expected = items * int(match[1]) * (4 if kind[1] == "U" else 1)
        if size - start != expected:
            raise LocalError(f"{size - start} bytes of data, its header says {expected}", id="wrong-input-file")
    elif isinstance(kind, str):
        raise LocalError(f"holds objects ({kind}), which are not plain bytes", id="wrong-input-file")
    return Extent(start, size - start)


@with_runs
class SourceFile:
    """A source file is a file whose bytes become a message or a read-only memory region. It is read in windows, from
    front to back.
    """

    def __init__(self, file: BinaryIO) -> None:
        self._fd = file.fileno()
        self._start = 0
        self._window = b""
        self.length = os.fstat(self._fd).st_size

    def read(self, offset: int, length: int) -> bytes:
        """Return `length` bytes of the file from `offset` on. Raises `OSError` if the file has become shorter."""
        at = offset - self._start
        if at < 0:
            return self._fetch(offset, length)
        if at + length > len(self._window):
            self._window = self._fetch(offset, length, WINDOW)
            self._start, at = offset, 0
        return self._window[at : at + length]

    def read_run(self, offset: int, size: int, count: int) -> list[Buffer]:
        """Return what `count` calls of `read` would return for pieces of `size` bytes."""
        first = self.read(offset, size)  # so that the window has what follows, as far as it goes
        start, window = offset - self._start, self._window
        if start < 0 or start + count * size > len(window):
            return [first, *(self.read(offset + at * size, size) for at in range(1, count))]
        return [window[at : at + size] for at in range(start, start + count * size, size)]

    def write(self, offset: int, data: Buffer) -> None:
        raise LocalError("memory", "an input is only read", id="wrong-input-file")

    def writer(self, offset: int, pieces: Sequence[Buffer]) -> Callable[[int], None]:
        raise LocalError("memory", "an input is only read", id="read-only")

    def flush(self) -> None:
        """Do nothing."""

    def _fetch(self, offset: int, least: int, wanted: int = 0) -> bytes:
        data = os.pread(self._fd, max(least, wanted), offset)
        if len(data) < least:
            raise OSError(f"the input ends at byte {offset + len(data)}, it had {self.length} bytes before")
        return data


def compare(source: BinaryIO, extent: Extent, target: Memory) -> Memories:
    """Compare the part `extent` of the input with the target's memory, byte by byte, and return the digests of both."""
    digest = hashlib.sha256()
    other = None
    source.seek(extent.start)
    with ThreadPoolExecutor(1) as beside:  # one window is hashed while the next is read
        hashed = beside.submit(digest.update, b"")
        for at in range(0, extent.length, WINDOW):
            size = min(WINDOW, extent.length - at)
            sent = source.read(size)
            arrived = bytes(target.read(at, size))  # bytes compare faster than views
            hashed.result()
            if other is None and arrived != sent:
                other = digest.copy()
            hashed = beside.submit(digest.update, sent)
            if other is not None:
                other.update(arrived)
    sha256 = digest.hexdigest()
    return Memories(other is None, sha256, sha256 if other is None else other.hexdigest(), extent.length)
