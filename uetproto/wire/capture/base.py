# SPDX-License-Identifier: GPL-2.0-only
"""This module has the parts that pcap and pcapng share: records, link types, stream input, recovery after damage."""

import gzip
import os
import re
import struct
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from io import BufferedWriter
from itertools import repeat
from stat import S_ISREG
from typing import Any, BinaryIO, NamedTuple, Self, cast

from uetproto.errors import LocalError
from uetproto.wire.capture.compressed import CHUNK, MAGIC, Expansion, expansion

# Numbers of the registry of link types (draft-ietf-opsawg-pcaplinktype).
ETHERNET = 1
RAW = 101
RAW_BSD = 12  # internal number of some systems, which they wrote instead of RAW
RAW_OPENBSD = 14
IPV4 = 228
IPV6 = 229
SLL = 113
SLL2 = 276
ERF = 197
INFINIBAND = 247

LINK_NAMES = {
    ETHERNET: "ethernet",
    RAW: "raw",
    RAW_BSD: "raw",
    RAW_OPENBSD: "raw",
    IPV4: "raw",
    IPV6: "raw",
    SLL: "sll",
    SLL2: "sll2",
    ERF: "erf",
    INFINIBAND: "infiniband",
}
"""Value of the argument `link` of `uetproto.decode`, by link type."""

SNAPLEN = 262_144
"""The snap length that tcpdump and Wireshark use for "everything", in bytes."""

MAX_LENGTH = 0xFFFFFF
"""Size of the largest possible frame in bytes. A record that states a longer frame is taken for damage."""

SECOND = 1_000_000_000
"""Number of nanoseconds that make a second."""

_SCAN = 1 << 16  # new bytes to read before the search for a record goes on
_LOOK = 16  # bytes that `_likely` looks at, at most
BATCH = 1000  # parts (two or three a record) for one write to the system, which takes 1024 at most
_IOV_MAX = 1024
_RECORDS = 256  # records that are made at once; these are not more than `BATCH` parts
LARGE = 8192  # bytes; larger frames are not collected: joining saves little and costs memory
_MAX_DAMAGE = 10_000  # entries kept, so that a file of nothing but damage does not fill the memory

Source = str | os.PathLike[str] | BinaryIO


class Record(NamedTuple):
    """A record is one captured frame."""

    index: int  # type: ignore[assignment]  # counts the records read, from 0; hides tuple.index
    time_ns: int  # since the epoch of the capture; 0 where the format has no time (Simple Packet Block)
    data: bytes
    length: int  # bytes on the wire; more than `data` where the capture was cut
    interface: int  # index into `CaptureReader.interfaces`
    link: int  # link type of that interface
    offset: int  # start of the record in the (uncompressed) stream, in bytes
    comment: str | None


make_record: Callable[[tuple[Any, ...]], Record] = partial(tuple.__new__, Record)
"""Fast constructor of a `Record`: it takes half the time of the Python constructor of a named tuple."""


@dataclass(frozen=True, slots=True)
class CaptureInterface:
    """An interface is the network interface on which frames were captured, as the capture describes it."""

    name: str
    link: int
    snaplen: int  # bytes; 0: no limit
    resolution: int = 1_000_000  # ticks a second
    offset: int = 0  # seconds added to every time
    comment: str | None = None


class Damage(NamedTuple):
    """This tuple reports a part of a capture that cannot be read, and the reason why.

    `offset` is the start of this part in the uncompressed stream, in bytes.
    """

    offset: int
    reason: str


class Window:
    """A window keeps a part of a stream in memory: `data`, which begins at offset `base` of the uncompressed stream."""

    def __init__(self, stream: BinaryIO) -> None:
        # `read1` returns the bytes that a pipe holds already; `read` would wait for a full chunk.
        self._read: Callable[[int], bytes | None] = getattr(stream, "read1", stream.read)
        self._compressed: Expansion | None = None
        self.data = b""
        self.base = 0
        self.ended = False
        self._stream = stream
        self.fill(0, MAGIC)
        self._compressed = expansion(self.data, self._read)
        if self._compressed is not None:
            self._read = self._compressed.read
            self.data = b""
            self.ended = False

    @property
    def fault(self) -> str:
        """Return the reason why a compressed stream ended early. The text is empty if the stream did not end early."""
        return self._compressed.fault if self._compressed else ""

    @property
    def share(self) -> float | None:
        """Return the part of the file that has been read, from 0 to 1. It is None for a pipe, and for a stream that is
        no file."""
        try:
            status = os.fstat(self._stream.fileno())
            return (
                min(self._stream.tell() / status.st_size, 1.0) if S_ISREG(status.st_mode) and status.st_size else None
            )
        except (OSError, ValueError, AttributeError):
            return None

    def fill(self, at: int, need: int) -> int:
        """Read until `data` holds `need` bytes from index `at` on, or the stream ends.

        Return the new index of the byte that was at `at`, because bytes before it may be dropped from `data`.
        """
        have = len(self.data) - at
        if have >= need or self.ended:
            return at
        parts = [self.data[at:]]
        self.base += at
        while have < need and not self.ended:
            if chunk := self._read(CHUNK):
                parts.append(chunk)
                have += len(chunk)
            else:
                self.ended = True
        self.data = b"".join(parts)
        return 0


_PORTS = re.compile(r"\buetproto\b[^\n]*\b(UET|RoCE) at UDP ports (\d{1,5}(?:, \d{1,5}){1,7})\b")


class StatedPort(NamedTuple):
    """This tuple is a UDP port that a capture states of itself."""

    port: int
    roce: bool = False
    """Whether packets to the port are RoCE; else they are UET."""


def ports_told(ports: Iterable[int], *, roce: bool = False) -> str:
    """Return the text with which the comment of a capture states the UDP ports of UET, or those of RoCE."""
    return f"{'RoCE' if roce else 'UET'} at UDP ports {', '.join(map(str, ports))}"


def stated_ports(comment: str) -> frozenset[StatedPort]:
    """Return the UDP ports that the comment of a capture of ours states; there are none, or several."""
    found = _PORTS.search(comment)
    ports = () if found is None else map(int, found[2].split(", "))
    roce = found is not None and found[1] == "RoCE"
    return frozenset(StatedPort(port, roce) for port in ports if 0 < port < 1 << 16)


class CaptureReader(ABC):
    """A reader returns the records of one capture, one after the other, in bounded memory.

    Damage raises no error: the reader appends it to the list `damage` when it finds it. The lists `interfaces` and
    `comments` (of sections) also grow while records are read. A reader is a context manager, which closes a file that
    the reader opened.
    """

    _likely: re.Pattern[bytes]  # matches wherever a record may start, and sometimes elsewhere
    _reach: int  # bytes that `_plausible` may look at

    def __init__(self, window: Window, owned: ExitStack) -> None:
        self.interfaces: list[CaptureInterface] = []
        self.comments: list[str] = []
        self.udp_ports: frozenset[StatedPort] = frozenset()
        """UDP ports that the comments state."""
        self.damage: list[Damage] = []
        self.section = 0
        """Index of the first interface of the present section. No frame of an interface before it follows."""
        self._window = window
        self._owned = owned
        self._records = self._all()

    def change(self, changed: Callable[[Iterator[Record]], Iterator[Record]]) -> None:
        """Return from now on what `changed` makes of the records: others, fewer, or changed ones."""
        read = self._records
        records = changed(read)

        def all_of_them() -> Generator[Record, None, None]:
            try:
                yield from records
            finally:
                read.close()

        self._records = all_of_them()

    def _add_comment(self, text: str) -> None:
        self.comments.append(text)
        self.udp_ports |= stated_ports(text)

    @property
    def share(self) -> float | None:
        """Return the part of the file that has been read, from 0 to 1; None if that is not known, as for a pipe."""
        return self._window.share

    def __iter__(self) -> Iterator[Record]:
        return self._records

    def __next__(self) -> Record:
        return next(self._records)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """End the iteration over records, and close the file if this reader opened it."""
        self._records.close()
        self._owned.close()

    def _all(self) -> Generator[Record, None, None]:
        yield from self._read()
        window = self._window
        if window.fault:
            self._note(window.base + len(window.data), window.fault)

    @abstractmethod
    def _read(self) -> Iterator[Record]:
        """Return the records up to the end of the stream."""

    @abstractmethod
    def _plausible(self, data: bytes, at: int) -> bool:
        """Return whether a record starts at `at`: it must be valid, and another valid record or the end must follow."""

    def _note(self, offset: int, reason: str) -> None:
        if len(self.damage) < _MAX_DAMAGE:
            self.damage.append(Damage(offset, reason))
        elif len(self.damage) == _MAX_DAMAGE:
            self.damage.append(Damage(offset, "further damage is not listed"))

    def _resume(self, at: int, reason: str) -> int:
        """Note the damage at position `at`, and return the position of the next plausible record, or -1."""
        window = self._window
        self._note(window.base + at, reason)
        at += 1
        while True:
            at = window.fill(at, self._reach + _SCAN)
            data = window.data
            stop = len(data) if window.ended else len(data) - self._reach
            # A record behind `stop` is found in the next window, which holds more bytes behind it.
            for match in self._likely.finditer(data, at, stop + _LOOK):
                found = match.start()
                if found >= stop:
                    break
                if self._plausible(data, found):
                    return found
            if window.ended:
                return -1
            at = stop


class CaptureWriter(ABC):
    """A writer writes records to a capture: an open file, a path, or "-" for standard output.

    A path that ends in ".gz" is compressed. Output is buffered and complete after `close`, which the context manager
    calls also after an exception, so an interrupted program leaves a whole capture. The bytes depend only on what is
    written, and not on the clock or the host.
    """

    def __init__(self, target: Source, head: bytes) -> None:
        self._owned = ExitStack()
        self._file = _open_target(target, self._owned)
        own = isinstance(target, str | os.PathLike) and target != "-"
        self._gathers = own and type(self._file) is BufferedWriter and hasattr(os, "writev")
        """Whether the system takes the parts without a copy, as nobody else writes to the file."""
        self._parts: list[bytes] = [head]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    @abstractmethod
    def write(
        self, time_ns: int, data: bytes, *, interface: int = 0, length: int | None = None, comment: str | None = None
    ) -> None:
        """Add a frame. Raises `LocalError` for values that cannot be written.

        If `data` was cut, `length` is the number of bytes that the frame had on the wire. A frame that is longer than
        the snap length of the interface is cut. A comment is dropped in a pcap, whose records have none.
        """

    def write_many(
        self, times_ns: Iterable[int], frames: Iterable[bytes], *, interface: int | Sequence[int] = 0
    ) -> None:  # fmt: skip
        """Add many whole frames, one for each time. With sequences this is faster than `write`.

        `interface` is the interface of all frames, or a sequence with that of each. Raises `LocalError` for a frame or
        time that cannot be written.
        """
        if isinstance(times_ns, Sequence) and isinstance(frames, Sequence) and len(times_ns) == len(frames):
            for start in range(0, len(frames), _RECORDS):
                some = slice(start, start + _RECORDS)
                one = interface if isinstance(interface, int) else interface[some]
                self._write_batch(times_ns[some], frames[some], one)
        else:
            self._write_each(times_ns, frames, interface)

    def _write_batch(self, times_ns: Sequence[int], frames: Sequence[bytes], interface: int | Sequence[int]) -> None:
        try:
            records = self._records(times_ns, frames, interface) if set(map(type, frames)) == {bytes} else None
        except (struct.error, TypeError):  # `write` says which of them is wrong
            records = None
        if records is None:
            self._write_each(times_ns, frames, interface)
            return
        if len(self._parts) + len(records) > BATCH:
            self._drain()
        self._parts += records  # one call, so that an interrupt cannot come between a header and its frame
        if len(self._parts) > BATCH // 2:  # while the frames are still in a cache of the processor
            self._drain()

    def _write_each(self, times_ns: Iterable[int], frames: Iterable[bytes], interface: int | Sequence[int]) -> None:
        each = repeat(interface) if isinstance(interface, int) else iter(interface)
        try:
            for time_ns, data in zip(times_ns, frames, strict=True):
                self.write(time_ns, data, interface=next(each))
        except (StopIteration, ValueError) as error:
            raise LocalError(
                f"times, frames, interfaces: not equally many: {error}", id="frame-does-not-fit"
            ) from error

    @abstractmethod
    def _records(
        self, times_ns: Sequence[int], frames: Sequence[bytes], interface: int | Sequence[int]
    ) -> list[bytes] | None:  # fmt: skip
        """Return the parts of the records of whole frames, or None if `write` has to look at each of them."""

    def flush(self) -> None:
        """Pass everything that was written so far to the operating system."""
        self._drain()
        self._file.flush()

    def close(self) -> None:
        """Flush the file, and close it if this writer opened it."""
        with self._owned:
            self._drain()

    def _drain(self) -> None:
        # The list is emptied before the write, so that an interrupt in between may lose whole records, but never
        # repeats one or writes a part of one.
        parts, self._parts = self._parts, []
        if self._gathers and 1 < len(parts) <= _IOV_MAX:
            size = sum(map(len, parts))  # before the write, which drives the parts out of the cache of the processor
            written = os.writev(self._file.fileno(), parts)
            if written == size:
                return
            parts = [b"".join(parts)[written:]]  # of a pipe, or of a disk that is full
        joined = b"".join(parts)
        if joined:
            self._file.write(joined)
            if self._gathers:
                self._file.flush()

    def _fit(self, data: bytes, length: int | None, snaplen: int) -> tuple[bytes, int]:
        """Return the bytes of a frame to write, and its length on the wire; first flush the buffer if it is full."""
        if len(self._parts) > BATCH or len(data) > LARGE:
            self._drain()
        try:
            data = bytes(memoryview(data))  # copies a buffer, as its owner may change it before it is written
        except TypeError as error:
            raise LocalError(f"a frame is bytes: {error}", id="frame-does-not-fit") from error
        length = len(data) if length is None else length
        if length < len(data):
            raise LocalError(f"length {length} is less than the {len(data)} bytes captured", id="frame-does-not-fit")
        return data[:snaplen], length


def in_turns(*columns: Sequence[Any]) -> list[Any]:
    """Return one list of columns of equal length: of each column the first value, then of each the second, and so
    on.
    """
    width = len(columns)
    values: list[Any] = [None] * (width * len(columns[0]))
    for number, column in enumerate(columns):
        values[number::width] = column
    return values


def _open_target(target: Source, owned: ExitStack) -> BinaryIO:
    """Return the file to write, and add the files to close at the end to `owned`."""
    if isinstance(target, str | os.PathLike) and target != "-":
        file: BinaryIO = owned.enter_context(open(target, "wb"))  # noqa: SIM115
        if not os.fspath(target).lower().endswith(".gz"):
            return file
        # The gzip header has no name and no time, so that the same records give the same bytes.
        return cast("BinaryIO", owned.enter_context(gzip.GzipFile("", "wb", 6, file, mtime=0)))
    file = sys.stdout.buffer if isinstance(target, str | os.PathLike) else target
    owned.callback(file.flush)
    return file


def pack(order: str, layout: str, *values: int) -> bytes:
    """Pack values as `struct.pack` does. Raises `LocalError` for a value that does not fit."""
    try:
        return struct.pack(order + layout, *values)
    except struct.error as error:
        raise LocalError(f"a value does not fit its field of a capture: {error}", id="frame-does-not-fit") from error
