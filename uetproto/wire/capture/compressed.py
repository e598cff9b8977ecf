# SPDX-License-Identifier: GPL-2.0-only
"""This module decompresses captures while they are read: gzip, zstd, xz and lz4, in bounded memory."""

import lzma
import zlib
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Protocol

from uetproto.errors import missing_package

CHUNK = 1 << 18
"""Bytes asked of the system at once; larger ones fall out of the processor's cache."""
MAGIC = 6
"""Number of bytes by which a compressed file is known."""
_PIECE = 1 << 6  # bytes of zstd expanded at once: a block of 4 bytes may expand to 128 KiB
_ENOUGH = 1 << 16  # bytes that are returned together
_WINDOW = 1 << 27  # bytes of memory that a file of zstd or xz may ask for


class Expansion(Protocol):
    """This protocol describes a compressed stream: `read` returns its bytes, `fault` says why it ended early."""

    fault: str

    def read(self, size: int) -> bytes:
        """Return at least one byte and at most about `size` bytes; return no bytes at the end."""


Read = Callable[[int], bytes | None]


def expansion(data: bytes, read: Read) -> Expansion | None:
    """Return what decompresses a stream that begins with `data` and goes on with what `read` returns.

    Return None if it is not compressed. Raises `LocalError` if the package that decompresses it is not installed.
    """
    for magic, make in _KINDS.items():
        if data.startswith(magic):
            return make(data, read)
    return None


class _Gunzip:
    """This class decompresses in bounded memory and returns all bytes before damage (`fault`), unlike `gzip`."""

    def __init__(self, data: bytes, read: Read) -> None:
        self._data = data
        self._read = read
        self._inflate = zlib.decompressobj(zlib.MAX_WBITS | 16)
        self.fault = ""

    def read(self, size: int) -> bytes:
        """Return at least one byte and at most about `size` bytes; return no bytes at the end."""
        while not self.fault:
            if self._inflate.eof and not self._next_member():
                return b""
            data = self._data or self._read(CHUNK)
            if not data:
                self.fault = "gzip data end early"
                return self._inflate.flush()
            before = self._inflate.copy()
            try:
                out = self._inflate.decompress(data, size)
                self._data = self._inflate.unconsumed_tail
            except zlib.error as error:
                self.fault = f"gzip data are damaged: {error}"
                out = _salvage(before, data)
            if out:
                return out
        return b""

    def _next_member(self) -> bool:
        """Skip padding of zeros to the next gzip member; return False at the end of the file."""
        data = _behind_padding(self._inflate.unused_data, self._read)
        if not data:
            return False
        self._data = data
        self._inflate = zlib.decompressobj(zlib.MAX_WBITS | 16)
        return True


def _salvage(inflate: "zlib._Decompress", data: bytes) -> bytes:
    """Return the decompressed bytes that precede the error in `data`."""
    out = bytearray()
    with suppress(zlib.error):
        for at in range(len(data)):
            out += inflate.decompress(data[at : at + 1])
    return bytes(out)


def _behind_padding(data: bytes | None, read: Read) -> bytes | None:
    """Return what follows zeros at the start of `data` and of what `read` returns."""
    while data and not (data := data.lstrip(b"\0")):
        data = read(CHUNK)
    return data or read(CHUNK)


class _Frames:
    """This class decompresses a stream of frames, each with a decompressor of its own, in bounded memory.

    Bytes before damage are returned, but for those of the block that is damaged.
    """

    def __init__(
        self, data: bytes, read: Read, *, name: str, make: Callable[[], Any],
        expand: Callable[[Any, bytes, int], bytes], piece: int, errors: tuple[type[Exception], ...],
    ) -> None:  # fmt: skip
        """`make` makes the decompressor of a frame, and `expand` calls it with at most `piece` bytes. `errors` are what
        it raises for damaged bytes."""
        self.fault = ""
        self._data: bytes = data
        self._read = read
        self._name, self._make, self._expand, self._piece, self._errors = name, make, expand, piece, errors
        self._frame = make()

    def read(self, size: int) -> bytes:
        """Return at least one byte and at most about `size` bytes; return no bytes at the end."""
        parts = []
        held = 0
        while held < min(size, _ENOUGH) and not self.fault and (out := self._next(size)):
            parts.append(out)
            held += len(out)
        return b"".join(parts)

    def _next(self, size: int) -> bytes:
        """Return what the next piece expands to, at least one byte, or no bytes at the end."""
        while not self.fault:
            if self._frame.eof:
                following = _behind_padding((self._frame.unused_data or b"") + self._data, self._read)
                if not following:
                    return b""
                self._data, self._frame = following, self._make()
            piece = b""
            if getattr(self._frame, "needs_input", True):
                data = self._data or self._read(CHUNK)
                if not data:
                    self.fault = f"{self._name} data end early"
                    return b""
                piece, self._data = data[: self._piece], data[self._piece :]
            try:
                out = self._expand(self._frame, piece, size)
            except self._errors as error:
                self.fault = f"{self._name} data are damaged: {error}"
                return b""
            if out:
                return out
        return b""


def _limited(frame: Any, data: bytes, size: int) -> bytes:
    out: bytes = frame.decompress(data, max_length=size)
    return out


def _unlimited(frame: Any, data: bytes, size: int) -> bytes:
    out: bytes = frame.decompress(data)
    return out


def _xz(data: bytes, read: Read) -> Expansion:
    def make() -> Any:
        return lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=_WINDOW)

    return _Frames(data, read, name="xz", make=make, expand=_limited, piece=CHUNK, errors=(lzma.LZMAError,))


def _zstd(data: bytes, read: Read) -> Expansion:
    try:
        import zstandard
    except ImportError:
        raise missing_package("a capture compressed with zstd", "zstandard", "compression") from None
    context = zstandard.ZstdDecompressor(max_window_size=_WINDOW)
    return _Frames(
        data, read, name="zstd", make=context.decompressobj, expand=_unlimited, piece=_PIECE,
        errors=(zstandard.ZstdError,),
    )  # fmt: skip


def _lz4(data: bytes, read: Read) -> Expansion:
    try:
        from lz4.frame import LZ4FrameDecompressor
    except ImportError:
        raise missing_package("a capture compressed with lz4", "lz4", "compression") from None
    return _Frames(
        data, read, name="lz4", make=LZ4FrameDecompressor, expand=_limited, piece=CHUNK, errors=(RuntimeError,)
    )


_KINDS: dict[bytes, Callable[[bytes, Read], Expansion]] = {
    b"\x1f\x8b": _Gunzip,
    b"\xfd7zXZ\0": _xz,
    b"\x28\xb5\x2f\xfd": _zstd,
    b"\x04\x22\x4d\x18": _lz4,
}
