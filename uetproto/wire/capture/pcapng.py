# SPDX-License-Identifier: GPL-2.0-only
"""This module reads and writes pcapng, a file of sections (draft-ietf-opsawg-pcapng).

A section consists of blocks, and each block has its length at its start and at its end.
"""

import re
import struct
from collections.abc import Iterator, Sequence
from contextlib import ExitStack

from uetproto.errors import LocalError
from uetproto.wire.capture.base import (
    BATCH,
    ETHERNET,
    LARGE,
    MAX_LENGTH,
    SECOND,
    SNAPLEN,
    CaptureInterface,
    CaptureReader,
    CaptureWriter,
    Record,
    Source,
    Window,
    in_turns,
    make_record,
    pack,
)

SECTION = b"\n\r\r\n"
"""Bytes of the type of a Section Header Block, which are the same in both byte orders. A file transfer in text mode
changes these bytes, so a reader notices that the file was damaged."""

_SHB, _IDB, _PB, _SPB, _EPB = 0x0A0D0D0A, 1, 2, 3, 6
_REGISTERED = {_SHB, *range(1, 11), 0xBAD, 0x4000_0BAD}  # types that may follow a good block when searching for one
_ORDERS = {struct.pack(order + "I", 0x1A2B3C4D): order for order in "<>"}  # by byte-order magic
_COMMENT, _NAME, _TSRESOL, _TSOFFSET = 1, 2, 9, 14  # options; the last three of an interface
_OPTION_SIZES = {_TSRESOL: 1, _TSOFFSET: 8}

# These limits hold for all but frames, whatever the file states.
_MAX_BLOCK = 1 << 22  # bytes; names and secrets have blocks larger than any frame
_ANY = (12, _MAX_BLOCK)
_MAX_OPTIONS = 1 << 17  # bytes beside the frame in its block
_MAX_INTERFACES = 1 << 16
_MAX_TEXT = 1 << 22  # characters of names and comments that are kept
_DAY = 86_400 * SECOND  # nanoseconds; two records further apart than this are taken for a chance match


class PcapngReader(CaptureReader):
    """This reader returns the records of a pcapng. `open_capture` makes it.

    The interfaces of all sections are numbered in one series, from 0.
    """

    def __init__(self, window: Window, owned: ExitStack, max_record: int) -> None:
        super().__init__(window, owned)
        self._max_record = max_record
        most = max_record + _MAX_OPTIONS
        # Least and most bytes of a block, by type; `_ANY` for the others.
        self._sizes = {
            _EPB: (32, most),
            _PB: (32, most),
            _SPB: (16, most),
            _SHB: (28, _MAX_BLOCK),
            _IDB: (20, _MAX_BLOCK),
        }
        self._reach = max(_MAX_BLOCK, most) + 12
        # For each interface of the section: link type, nanoseconds a tick (numerator, denominator), offset in ns.
        self._clocks: list[tuple[int, int, int, int]] = []
        self._last: int | None = None  # time_ns of the last record
        self._room = _MAX_TEXT
        window.fill(0, 12)
        # Where the first header is damaged, little-endian is the better guess.
        self._set_order(_ORDERS.get(window.data[8:12], "<"))

    def _set_order(self, order: str) -> None:
        self._order = order
        self._u32 = struct.Struct(order + "I")
        self._head = struct.Struct(order + "2I")  # type and length of a block
        self._packet = struct.Struct(order + "5I")  # interface, time (high, low), captured and original length
        kind = rb"[\1\2\3\6]\0\0\0" if order == "<" else rb"\0\0\0[\1\2\3\6]"
        self._likely = re.compile(kind + rb"|\n\r\r\n")

    def _read(self) -> Iterator[Record]:
        index = 0
        for kind, block, offset in self._blocks():
            if kind == _EPB:
                number, high, low, captured, length = self._packet.unpack_from(block, 8)
                start = 28
            elif kind == _PB:
                _, high, low, captured, length = self._packet.unpack_from(block, 8)
                (number,) = struct.unpack_from(self._order + "H", block, 8)
                start = 28
            elif kind == _SPB:
                (length,) = self._u32.unpack_from(block, 8)
                number = high = low = 0
                start = 12
                captured = min(length, len(block) - 16, self._snaplen())
            else:
                self._describe(kind, block, offset)
                continue

            # The block itself is whole, so damage in here concerns this frame alone.
            room = len(block) - 4 - start
            if number >= len(self._clocks):
                self._note(offset, f"frame of interface {number}, which its section does not describe")
            elif captured > room or captured > self._max_record or not captured <= length <= MAX_LENGTH:
                self._note(offset, f"captured length {captured}, original length {length}, room for {room} bytes")
            else:
                link, numerator, denominator, shift = self._clocks[number]
                time_ns = 0 if kind == _SPB else (high << 32 | low) * numerator // denominator + shift
                comment = None
                if room - captured > 3 and kind != _SPB:
                    options = self._options(block, start + captured + (-captured & 3))
                    if _COMMENT in options:
                        comment = options[_COMMENT].decode(errors="replace")
                frame = block[start : start + captured]
                yield make_record((index, time_ns, frame, length, self.section + number, link, offset, comment))
                index += 1
                self._last = time_ns

    def _blocks(self) -> Iterator[tuple[int, bytes, int]]:
        """Return whole blocks: type, bytes, offset. A section header sets `_order` to the byte order of its section."""
        window, sizes = self._window, self._sizes
        at = 0
        data, size = window.data, len(window.data)
        while True:
            if at + 12 > size:
                at = window.fill(at, 12)
                data, size = window.data, len(window.data)
                if at + 12 > size:
                    if at < size:
                        self._note(window.base + at, f"the block is cut short: {size - at} bytes of its header")
                    return
            kind, total = self._head.unpack_from(data, at)
            if kind == _SHB and (order := _ORDERS.get(data[at + 8 : at + 12])) and order != self._order:
                self._set_order(order)
                kind, total = self._head.unpack_from(data, at)
            least, most = sizes.get(kind, _ANY)
            if least <= total <= most and not total & 3:
                if at + total > size:
                    at = window.fill(at, total)
                    data, size = window.data, len(window.data)
                end = at + total
                if end > size:
                    fault = f"the block is cut short: the file ends within its {total} bytes"
                elif data[at + 4 : at + 8] == data[end - 4 : end]:
                    yield kind, data[at:end], window.base + at
                    at = end
                    continue
                else:
                    fault = f"block length is {total} in front and {self._u32.unpack_from(data, end - 4)[0]} behind"
            else:
                fault = f"block length is {total}; legal are multiples of 4 from {least} to {most}"
            at = self._resume(at, fault)
            if at < 0:
                return
            data, size = window.data, len(window.data)

    def _plausible(self, data: bytes, at: int) -> bool:
        end = self._end(data, at)
        if end > len(data) or not end or data[at + 4 : at + 8] != data[end - 4 : end]:
            return False
        if data[at : at + 4] == self._u32.pack(_EPB):
            number, high, low, captured, _ = self._packet.unpack_from(data, at + 8)
            if number >= len(self._clocks) or captured > end - at - 32:
                return False
            _, numerator, denominator, shift = self._clocks[number]
            time_ns = (high << 32 | low) * numerator // denominator + shift
            if self._last is not None and abs(time_ns - self._last) > _DAY:
                return False
        return end == len(data) or bool(self._end(data, end))

    def _end(self, data: bytes, at: int) -> int:
        """Return where the block at `at` ends; 0 if its header is not valid."""
        if at + 12 > len(data):
            return 0
        head = self._head
        if data.startswith(SECTION, at):
            if not (order := _ORDERS.get(data[at + 8 : at + 12])):
                return 0
            head = struct.Struct(order + "2I")
        kind, total = head.unpack_from(data, at)
        least, most = self._sizes.get(kind, _ANY)
        return at + total if kind in _REGISTERED and least <= total <= most and not total & 3 else 0

    def _describe(self, kind: int, block: bytes, offset: int) -> None:
        """Process a block that is not a frame: a section or an interface; any other block is ignored."""
        if kind == _SHB:
            if block[8:12] not in _ORDERS:
                self._note(offset, "the section has no byte-order magic")
            self.section = len(self.interfaces)
            self._clocks = []
            if _COMMENT in (options := self._options(block, 24)) and self._room:
                self._add_comment(self._text(options[_COMMENT]))
        elif kind == _IDB:
            if len(self.interfaces) == _MAX_INTERFACES:
                self._note(offset, f"more than {_MAX_INTERFACES} interfaces")
                return
            link, snaplen = struct.unpack_from(self._order + "H2xI", block, 8)
            options = self._options(block, 16)
            resolution = options.get(_TSRESOL, b"\6")[0]
            ticks = 2 ** (resolution & 0x7F) if resolution & 0x80 else 10**resolution
            (shift,) = struct.unpack(self._order + "q", options.get(_TSOFFSET, bytes(8)))
            name = self._text(options.get(_NAME, b""))
            comment = self._text(options[_COMMENT]) if _COMMENT in options else None
            scale = (SECOND // ticks, 1) if SECOND % ticks == 0 else (SECOND, ticks)
            clock = (link, *scale, shift * SECOND)
            if self.interfaces:  # there may be thousands, most of them alike: they share their numbers
                before = self.interfaces[-1]
                snaplen = before.snaplen if before.snaplen == snaplen else snaplen
                ticks = before.resolution if before.resolution == ticks else ticks
                clock = self._clocks[-1] if self._clocks and self._clocks[-1] == clock else clock
            self.interfaces.append(CaptureInterface(name, link, snaplen, ticks, shift, comment))
            self._clocks.append(clock)

    def _snaplen(self) -> int:
        """Return the snap length of the section's first interface, to which all Simple Packet Blocks belong."""
        return (self.interfaces[self.section].snaplen if self._clocks else 0) or self._max_record

    def _options(self, block: bytes, at: int) -> dict[int, bytes]:
        """Return the options from `at` to the end of `block`, by code: the first of each code; one of a wrong size is
        left out.
        """
        options: dict[int, bytes] = {}
        last = len(block) - 4
        while at + 4 <= last:
            code, size = struct.unpack_from(self._order + "2H", block, at)
            at += 4
            if not code or at + size > last:
                break
            if size == _OPTION_SIZES.get(code, size):
                options.setdefault(code, block[at : at + size])
            at += size + (-size & 3)
        return options

    def _text(self, raw: bytes) -> str:
        text = raw.decode(errors="replace").rstrip("\0")[: self._room]
        self._room = max(0, self._room - len(text) - 1)  # an empty text takes memory, too
        return text


class PcapngWriter(CaptureWriter):
    """This writer writes a pcapng of one section, which may have a comment. `add_interface` must add an interface
    before its frames are written."""

    def __init__(self, target: Source, comment: str | None = None, *, big_endian: bool = False) -> None:
        self._order = ">" if big_endian else "<"
        # Version 1.0; the length of the section is not known.
        body = pack(self._order, "I2Hq", 0x1A2B3C4D, 1, 0, -1) + self._options((_COMMENT, comment))
        self._head = struct.Struct(self._order + "7I").pack
        # Padding and the length repeated, by the number of bytes that pad.
        self._tails = [struct.Struct(f"{self._order}{pad}xI").pack for pad in range(4)]
        self._interfaces: list[tuple[int, int]] = []  # nanoseconds a tick, snap length
        super().__init__(target, self._block(_SHB, body))

    def add_interface(
        self,
        name: str = "",
        link: int = ETHERNET,
        snaplen: int = SNAPLEN,
        comment: str | None = None,
        nanoseconds: bool = True,
    ) -> int:
        """Add an interface, and return its number for `write`. Raises `LocalError` for a value that does not fit.

        Times of its frames are written in nanoseconds, or cut to microseconds without `nanoseconds`.
        """
        resolution = b"\x09" if nanoseconds else b"\x06"
        body = pack(self._order, "H2xI", link, snaplen)
        body += self._options((_NAME, name or None), (_COMMENT, comment), (_TSRESOL, resolution))
        self._parts.append(self._block(_IDB, body))
        self._interfaces.append((1 if nanoseconds else 1000, snaplen or SNAPLEN))
        return len(self._interfaces) - 1

    def write(
        self, time_ns: int, data: bytes, *, interface: int = 0, length: int | None = None, comment: str | None = None
    ) -> None:
        size = wire = len(data)
        try:
            unit, snaplen = self._interfaces[interface]
        except IndexError:
            raise LocalError(
                f"interface {interface}: {len(self._interfaces)} were added", id="frame-does-not-fit"
            ) from None
        if length is not None or size > snaplen or size > LARGE or len(self._parts) > BATCH or type(data) is not bytes:
            data, wire = self._fit(data, length, snaplen)
            size = len(data)
        pad = -size & 3
        total = 32 + size + pad
        if comment is not None:
            options = self._options((_COMMENT, comment))
            data, pad, total = data + bytes(pad) + options, 0, total + len(options)
        try:
            ticks = time_ns // unit
            head = self._head(_EPB, total, interface, ticks >> 32, ticks & 0xFFFFFFFF, size, wire)
        except (struct.error, TypeError) as error:
            raise LocalError(
                f"time {time_ns} ns, length {wire} or interface does not fit a pcapng: {error}", id="frame-does-not-fit"
            ) from error
        # One call, so that an interrupt cannot come between a header and its frame.
        self._parts += (head, data, self._tails[pad](total))

    def _records(
        self, times_ns: Sequence[int], frames: Sequence[bytes], interface: int | Sequence[int]
    ) -> list[bytes] | None:  # fmt: skip
        sizes = list(map(len, frames))
        interfaces = [interface] * len(sizes) if isinstance(interface, int) else interface
        used = set(interfaces)
        if min(used) < 0 or max(used) >= len(self._interfaces):
            return None
        kinds = {self._interfaces[one] for one in used}
        if len(kinds) > 1:
            return None
        ((unit, snaplen),) = kinds
        if max(sizes) > min(snaplen, LARGE):
            return None
        head = self._head
        totals = {size: 32 + size + (-size & 3) for size in set(sizes)}
        tails = {size: self._tails[-size & 3](total) for size, total in totals.items()}
        heads = [
            head(_EPB, totals[size], one, at // unit >> 32, at // unit & 0xFFFFFFFF, size, size)
            for at, size, one in zip(times_ns, sizes, interfaces, strict=True)
        ]
        return in_turns(heads, frames, [tails[size] for size in sizes])

    def _block(self, kind: int, body: bytes) -> bytes:
        total = pack(self._order, "I", len(body) + 12)
        return pack(self._order, "I", kind) + total + body + total

    def _options(self, *options: tuple[int, str | bytes | None]) -> bytes:
        """Encode the options that are not None, and the end of options; nothing if there are none."""
        out = b""
        for code, value in options:
            if value is not None:
                raw = value.encode(errors="replace") if isinstance(value, str) else value
                out += pack(self._order, "2H", code, len(raw)) + raw + bytes(-len(raw) & 3)
        return out and out + bytes(4)
