# SPDX-License-Identifier: GPL-2.0-only
"""This module has the local buffers of operations: the bytes of an object with the buffer protocol, or of a list of
such objects, are used without a copy.

A `FileMemory`, which is an open file, may be given instead of a buffer, for more bytes than fit into memory.
"""

import re
from collections.abc import Iterable
from typing import Any

from uetproto.api.fi.errors import Errno, invalid
from uetproto.engine.contract import Buffer
from uetproto.engine.memory import FileMemory

_LISTS = list, tuple
_NAMES = re.compile(":[^:]*:")
"""Matches the names of fields in the format of a buffer (PEP 3118)."""


def view_of(name: str, buffer: Any, writable: bool = False) -> memoryview:
    """Return a view of the bytes of one buffer.

    Raises FI_EINVAL for an object that is no buffer, for a buffer whose elements are Python objects, and for read-only
    memory if `writable` is True.
    """
    try:
        view = memoryview(buffer)
        if view.format != "B" or view.ndim != 1 or not view.c_contiguous:
            if "O" in _NAMES.sub("", view.format):
                raise invalid(
                    name, "a buffer of objects", "one of plain elements: pointers say nothing to a peer",
                    id="wrong-type"
                )  # fmt: skip
            view = view.cast("B")
    except (TypeError, ValueError) as error:
        raise invalid(
            name, type(buffer).__name__, "a contiguous buffer: bytes, bytearray, memoryview, array",
            id="not-contiguous"
        ) from error  # fmt: skip
    if writable and view.readonly:
        raise invalid(name, f"a read-only {type(buffer).__name__}", "a writable buffer", id="read-only")
    return view


class Buffers:
    """This class represents the buffers of one operation, its gather or scatter list, as one contiguous memory."""

    __slots__ = ("_file", "length", "views")

    def __init__(self, name: str, buffer: Any, limit: int, writable: bool = False) -> None:
        """Take a buffer or a list of buffers. Raises FI_EINVAL for other objects, and for more than `limit` buffers."""
        self._file = buffer if isinstance(buffer, FileMemory) else None
        if self._file is not None:
            self.views: list[memoryview] = []
            self.length = self._file.length
            return
        if not isinstance(buffer, _LISTS):
            view = view_of(name, buffer, writable)
            self.views, self.length = [view], len(view)
            return
        if len(buffer) > limit:
            raise invalid(name, f"a list of {len(buffer)}", f"at most {limit} buffers (iov_limit)", id="too-many")
        self.views = [view_of(name, part, writable) for part in buffer]
        self.length = sum(map(len, self.views))

    def pieces(self, offset: int, length: int) -> Iterable[memoryview]:
        """Yield the views of the bytes in [offset, offset + length), in order."""
        for view in self.views:
            if offset < len(view) and length > 0:
                piece = view[offset : offset + length]
                yield piece
                length -= len(piece)
                offset = 0
            else:
                offset = max(0, offset - len(view))

    def read(self, offset: int, length: int) -> Buffer:
        """Return the bytes in [offset, offset + length): as a view if they are in one buffer, otherwise as a copy."""
        pieces = list(self.pieces(offset, length))
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def write(self, offset: int, data: Buffer) -> None:
        """Write `data` to the buffers, from the byte number `offset` on."""
        source, at = memoryview(data), 0
        for piece in self.pieces(offset, len(source)):
            piece[:] = source[at : at + len(piece)]
            at += len(piece)

    def flush(self) -> None:
        """Do nothing, because the buffers are in memory."""

    def copied(self) -> bytes:
        """Return a copy of all bytes, as an inject sends it."""
        return bytes(self._file.read(0, self.length)) if self._file is not None else b"".join(self.views)

    @property
    def owners(self) -> list[object]:
        """Return the objects whose memory the buffers use; empty buffers are left out."""
        return [self._file] if self._file is not None else [view.obj for view in self.views if len(view)]

    @property
    def whole(self) -> Any:
        """Return the memory in the form that the engine takes: the file, the bytes of the only buffer, or, for several
        buffers, this object."""
        if self._file is not None:
            return self._file
        return self.views[0] if len(self.views) == 1 else self


def check_registered(name: str, buffers: Buffers, registered: Iterable[object]) -> None:
    """Raise FI_EINVAL for a buffer that is neither one of the `registered` objects nor a view of such an object
    (FI_MR_LOCAL)."""
    owners = list(registered)
    for used in buffers.owners:
        if not any(used is owner for owner in owners):
            legal = "a buffer, or a view of one, that mr_reg made known and that is not closed (FI_MR_LOCAL)"
            raise invalid(name, f"an unregistered {type(used).__name__}", legal, Errno.FI_EINVAL, id="not-registered")
