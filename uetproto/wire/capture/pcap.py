# SPDX-License-Identifier: GPL-2.0-only
"""This module reads and writes captures in the formats pcap and pcapng, compressed or not.

    with open_capture("in.pcapng.gz") as reader, open_writer("out.pcap") as writer:
        for record in reader:
            writer.write(record.time_ns, record.data, length=record.length)
    for damage in reader.damage: ...

The pcap format (draft-ietf-opsawg-pcap) and everything that users import are here; pcapng is in `pcapng.py`.
"""

import io
import os
import re
import struct
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import BinaryIO

from uetproto.errors import LocalError, typed
from uetproto.wire.capture.base import (
    BATCH,
    ERF,
    ETHERNET,
    INFINIBAND,
    IPV4,
    IPV6,
    LARGE,
    LINK_NAMES,
    MAX_LENGTH,
    RAW,
    RAW_BSD,
    RAW_OPENBSD,
    SECOND,
    SLL,
    SLL2,
    SNAPLEN,
    CaptureInterface,
    CaptureReader,
    CaptureWriter,
    Damage,
    Record,
    Source,
    Window,
    in_turns,
    make_record,
    pack,
)
from uetproto.wire.capture.pcapng import SECTION, PcapngReader, PcapngWriter

__all__ = [
    "ERF", "ETHERNET", "INFINIBAND", "IPV4", "IPV6", "LINK_NAMES", "RAW", "RAW_BSD", "RAW_OPENBSD", "SLL", "SLL2",
    "SNAPLEN", "CaptureInterface", "CaptureReader", "CaptureWriter", "Damage", "PcapReader", "PcapWriter",
    "PcapngReader", "PcapngWriter", "Record", "open_capture", "open_writer",
]  # fmt: skip

_MICRO, _NANO, _MODIFIED = 0xA1B2C3D4, 0xA1B23C4D, 0xA1B2CD34
# First four bytes -> byte order, ticks a second, layout of a record's header. The modified format (old Linux patches)
# has eight more bytes there: the kernel's interface number, protocol and packet type.
_MAGICS = {
    struct.pack(order + "I", magic): (order, ticks, order + layout)
    for order in "<>"
    for magic, ticks, layout in ((_MICRO, 10**6, "4I"), (_NANO, 10**9, "4I"), (_MODIFIED, 10**6, "4I8x"))
}
_HEADER = "I2H2i2I"  # magic, version (2), time zone and accuracy (always 0), snap length, link type
_HEADER_SIZE = 24
_LINK = 0xFFFF  # mask of the link type; the bits above it describe a frame check sequence
_DAY = 86_400  # seconds; two records further apart than this are taken for a chance match


def open_capture(source: Source, *, max_record: int = SNAPLEN) -> CaptureReader:
    """Return a reader of a capture: a path, "-" for standard input, or an open binary file, which may be a pipe.

    `max_record` is the largest size of a frame in bytes. A record that states a larger size is taken for damage. Raises
    `LocalError` for a file that is not a capture, and `OSError` for a file that cannot be opened.
    """
    if not 0 < max_record <= MAX_LENGTH:
        raise LocalError(f"max_record is {max_record}; legal are 1 to {MAX_LENGTH}", id="out-of-range")
    with ExitStack() as owned:
        stream: BinaryIO
        if not isinstance(source, str | os.PathLike):
            if isinstance(source, io.TextIOBase) or not hasattr(source, "read"):
                raise LocalError(f"{source!r} is no path and no file that is open for reading bytes", id="wrong-type")
            stream = source
        elif source == "-":
            if sys.stdin is None:
                raise LocalError("-: standard input is closed", id="stdin-twice")
            stream = sys.stdin.buffer
        else:
            stream = owned.enter_context(open(source, "rb", buffering=0))
        window = Window(stream)
        at = window.fill(0, 4)
        magic = window.data[at : at + 4]
        # From here on the reader closes the file; if no reader was made, it is closed here.
        if magic in _MAGICS:
            return PcapReader(window, owned.pop_all(), max_record)
        if magic == SECTION:
            return PcapngReader(window, owned.pop_all(), max_record)
        name = source if isinstance(source, str | os.PathLike) else getattr(source, "name", "the stream")
        kind = f"starts with {magic.hex(' ')}" if magic else window.fault or "is empty"
        raise LocalError(
            str(name), f"not a capture: {kind}; legal are pcap and pcapng, also compressed with gzip, zstd, xz or lz4",
            id="not-a-capture"
        )  # fmt: skip


def open_writer(
    path: str | os.PathLike[str],
    *,
    comment: str | None = None,
    interfaces: Sequence[tuple[str, int] | tuple[str, int, str | None]] = (("", ETHERNET),),
) -> CaptureWriter:
    """Return a writer of a capture. The suffix of the path selects the format, .pcap or .pcapng. A further suffix .gz
    compresses the capture.

    The path "-" is standard output, in pcapng. `interfaces` are pairs of name and link type, a comment may be the third
    part, and `comment` is about the whole capture. A pcap cannot hold names or comments: they are dropped. Raises
    `LocalError` for another suffix, and for a pcap of several interfaces.
    """
    typed("path", path, (str, os.PathLike), 'a path, or "-"')
    name = os.fspath(path)
    suffix = name.lower().removesuffix(".gz").rpartition(".")[2]
    if suffix == "pcap":
        if len(interfaces) != 1:
            raise LocalError(
                name, f"a pcap has one interface, not {len(interfaces)}: use .pcapng", id="frame-does-not-fit"
            )
        return PcapWriter(path, interfaces[0][1])
    if suffix != "pcapng" and name != "-":
        raise LocalError(name, 'legal are names in .pcap, .pcapng, .pcap.gz, .pcapng.gz, and "-"', id="wrong-suffix")
    writer = PcapngWriter(path, comment)
    try:
        for name, link, *about in interfaces:
            writer.add_interface(name, link, comment=about[0] if about else None)
    except LocalError:
        writer.close()
        raise
    return writer


class PcapReader(CaptureReader):
    """This reader returns the records of a pcap. `open_capture` makes it."""

    def __init__(self, window: Window, owned: ExitStack, max_record: int) -> None:
        super().__init__(window, owned)
        window.fill(0, _HEADER_SIZE)
        order, self._ticks, layout = _MAGICS[window.data[:4]]
        self._layout = struct.Struct(layout)
        self._limit = max_record
        self._last: int | None = None  # seconds of the last record before the damage
        self._reach = max_record + 2 * self._layout.size
        # Both lengths of a plausible record are below 2^24, and the captured length is not 0.
        length = rb"...\0" if order == "<" else rb"\0..."
        self._likely = re.compile(rb"(?=.{8}(?!\0{4})" + length * 2 + rb")", re.DOTALL)
        if len(window.data) >= _HEADER_SIZE:
            *_, snaplen, link = struct.unpack_from(order + _HEADER, window.data)
            self.interfaces.append(CaptureInterface("", link & _LINK, snaplen, self._ticks))
            if snaplen:  # many writers write up to 65535 bytes whatever snap length they state
                self._limit = min(max_record, max(snaplen, 65_535))

    def _read(self) -> Iterator[Record]:
        window, limit, ticks = self._window, self._limit, self._ticks
        if not self.interfaces:
            self._note(0, "the file header is cut short")
            return
        link, unit = self.interfaces[0].link, SECOND // ticks
        unpack, head = self._layout.unpack_from, self._layout.size
        index, at = 0, _HEADER_SIZE
        data, base, size = window.data, window.base, len(window.data)
        while True:
            if at + head > size:
                at = window.fill(at, head)
                data, base, size = window.data, window.base, len(window.data)
                if at + head > size:
                    if at < size:
                        self._note(base + at, f"the record is cut short: {size - at} bytes of its header")
                    return
            seconds, fraction, captured, length = unpack(data, at)
            end = at + head + captured
            if (
                captured <= limit
                and captured <= length <= MAX_LENGTH
                and fraction < ticks
                and (length or seconds or fraction)
            ):
                if end > size:
                    at = window.fill(at, head + captured)
                    data, base, size = window.data, window.base, len(window.data)
                    end = at + head + captured
                if end <= size:
                    time_ns = seconds * SECOND + fraction * unit
                    yield make_record((index, time_ns, data[at + head : end], length, 0, link, base + at, None))
                    index += 1
                    at = end
                    self._last = seconds
                    continue
            at = self._resume(at, self._fault(fraction, captured, length))
            if at < 0:
                return
            data, base, size = window.data, window.base, len(window.data)

    def _fault(self, fraction: int, captured: int, length: int) -> str:
        """Return why a record was refused."""
        if captured > self._limit:
            return f"captured length {captured} is more than {self._limit}"
        if captured > length:
            return f"captured length {captured} is more than the original length {length}"
        if length > MAX_LENGTH:
            return f"original length {length} is more than {MAX_LENGTH}"
        if fraction >= self._ticks:
            return f"time: fraction {fraction} of a second is not less than {self._ticks}"
        if not length:
            return "zeros where a record should start"
        return f"the record is cut short: the file ends within its {captured} bytes"

    def _plausible(self, data: bytes, at: int) -> bool:
        head = self._layout.size
        seconds = self._last
        for _ in range(2):
            if at + head > len(data):
                return False
            now, fraction, captured, length = self._layout.unpack_from(data, at)
            if not (0 < captured <= self._limit and captured <= length <= MAX_LENGTH and fraction < self._ticks):
                return False
            if seconds is not None and abs(now - seconds) > _DAY:
                return False
            seconds = now
            at += head + captured
            if at == len(data):  # the stream ends here: a window with more bytes would hold `_reach` bytes
                return True
        return True


class PcapWriter(CaptureWriter):
    """This writer writes a pcap. Times must be from 1970 to 2106. Without `nanoseconds` they are cut to
    microseconds."""

    def __init__(
        self,
        target: Source,
        link: int = ETHERNET,
        nanoseconds: bool = True,
        snaplen: int = SNAPLEN,
        big_endian: bool = False,
    ) -> None:
        order = ">" if big_endian else "<"
        self._pack = struct.Struct(order + "4I").pack
        self._snaplen = snaplen or SNAPLEN
        self._plain = min(self._snaplen, LARGE)  # bytes of the largest frame that is buffered without a cut
        self._unit = 1 if nanoseconds else 1000
        magic = _NANO if nanoseconds else _MICRO
        super().__init__(target, pack(order, _HEADER, magic, 2, 4, 0, 0, snaplen, link))

    def write(
        self, time_ns: int, data: bytes, *, interface: int = 0, length: int | None = None, comment: str | None = None
    ) -> None:
        size = wire = len(data)
        if length is not None or interface or size > self._plain or len(self._parts) > BATCH or type(data) is not bytes:
            if interface:
                raise LocalError(f"interface {interface}: a pcap has only interface 0", id="frame-does-not-fit")
            data, wire = self._fit(data, length, self._snaplen)
            size = len(data)
        try:
            # One call, so that an interrupt cannot come between a header and its frame.
            self._parts += (self._pack(time_ns // SECOND, time_ns % SECOND // self._unit, size, wire), data)
        except (struct.error, TypeError) as error:
            raise LocalError(
                f"time {time_ns} ns or length {wire} does not fit a pcap: {error}", id="frame-does-not-fit"
            ) from error

    def _records(
        self, times_ns: Sequence[int], frames: Sequence[bytes], interface: int | Sequence[int]
    ) -> list[bytes] | None:  # fmt: skip
        sizes = list(map(len, frames))
        if max(sizes) > self._plain or (interface if isinstance(interface, int) else any(interface)):
            return None
        head, unit = self._pack, self._unit
        rows = zip(times_ns, sizes, strict=True)
        return in_turns([head(at // SECOND, at % SECOND // unit, size, size) for at, size in rows], frames)
