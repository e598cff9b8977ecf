# SPDX-License-Identifier: GPL-2.0-only
"""This module knows where captures are from: paths, bytes and open files, one or several that are merged by time."""

import io
import os
import sys
from collections.abc import Iterator, Sequence
from heapq import merge
from itertools import count
from typing import Any, BinaryIO, NamedTuple

from uetproto.errors import LocalError, shown, similar
from uetproto.wire.capture.base import CaptureInterface, CaptureReader, Record, StatedPort
from uetproto.wire.capture.pcap import LINK_NAMES, open_capture

Openable = str | os.PathLike[str] | bytes | BinaryIO
"""Type of what can be opened: a path, the bytes of a capture, or a file that is open for reading bytes."""

MOST_OFFSET_NS = 1 << 62
"""Largest difference of clocks, in nanoseconds: 146 years. Times stay within 64 bits."""

_LINK_NUMBERS: dict[str, int] = {}
for _number, _name in LINK_NAMES.items():
    _LINK_NUMBERS.setdefault(_name, _number)


class CaptureSource:
    """A source is one capture, which can be opened again unless it is a pipe."""

    def __init__(self, source: Openable, offset_ns: int = 0, link: str | None = None) -> None:
        """Note where the capture is from. `offset_ns` is added to each time, and `link` replaces each link type. Raises
        `LocalError` for what cannot be opened."""
        if link is not None and (not isinstance(link, str) or link not in _LINK_NUMBERS):
            raise LocalError(
                "link", f"{shown(link)} is not legal{similar(link, _LINK_NUMBERS)}", ", ".join(_LINK_NUMBERS),
                id="unknown-name"
            )  # fmt: skip
        if type(offset_ns) is not int or abs(offset_ns) > MOST_OFFSET_NS:
            legal = f"a whole number of ns for each capture, -{MOST_OFFSET_NS} to {MOST_OFFSET_NS}"
            raise LocalError("offsets_ns", f"{shown(offset_ns)} is not legal", legal, id="wrong-type")
        self._source, self._offset_ns = source, offset_ns
        self._link = None if link is None else _LINK_NUMBERS[link]
        self._start: int | None = 0
        self._used = False
        self._head = b""
        self._reader: CaptureReader | None = None
        if isinstance(source, bytes | bytearray | memoryview):
            self.name = "bytes"
        elif isinstance(source, str | os.PathLike):
            self.name = os.fspath(source)
            if self.name == "-" or _is_pipe(self.name):
                self._start = None
        elif isinstance(source, io.TextIOBase) or not hasattr(source, "read"):
            raise LocalError(
                "source", f"{shown(source)} is not legal", "a path, bytes, or a file open for bytes", id="wrong-type"
            )
        else:
            self.name = str(getattr(source, "name", "stream"))
            self._start = source.tell() if hasattr(source, "seekable") and source.seekable() else None

    def seekable(self) -> bool:
        """Return whether the capture can be read again. A pipe cannot."""
        return self._start is not None

    def open(self) -> CaptureReader:
        """Return a reader at the start of the capture. Raises `LocalError` for what is no capture, and for a pipe that
        was read before; raises `OSError` if the file cannot be opened."""
        source: str | os.PathLike[str] | bytes | BinaryIO = self._source
        if self._start is None:
            if self._used:
                raise LocalError(
                    self.name, "is a pipe that was read before", "to read it once, or to open a file", id="read-twice"
                )
            self._used = True
        elif isinstance(source, bytes | bytearray | memoryview):
            source = io.BytesIO(source)
        elif not isinstance(source, str | os.PathLike):
            source = _OwnPlace(source, self._start)  # type: ignore[assignment]  # it reads as a file does
        reader = open_capture(source)  # type: ignore[arg-type]  # bytes were replaced
        if self._offset_ns or self._link is not None:
            reader.change(self._changed)
        self._reader = reader
        return reader

    @property
    def share(self) -> float | None:
        """Return the part that the latest reader has read, from 0 to 1; None if that is not known, as for a pipe."""
        return None if self._reader is None else self._reader.share

    def raw(self) -> str | os.PathLike[str] | BinaryIO:
        """Return what `columns.iter_batches` reads: a path, or a file of its own at the start of the capture. Raises
        `LocalError` for a pipe that was read before, and for a capture whose link type is replaced."""
        source = self._source
        if self._link is not None:
            raise LocalError(
                "link", "tables have the link types that the capture states", "without link", id="conflicting-arguments"
            )
        if self._start is None:
            return self._begun()
        if isinstance(source, bytes | bytearray | memoryview):
            return io.BytesIO(source)
        if not isinstance(source, str | os.PathLike):  # a second reader would move its position
            source.seek(self._start)
            return io.BytesIO(source.read())
        return source

    @property
    def plain_size(self) -> int | None:
        """Return the size of a file that is not compressed; None for anything else."""
        if not isinstance(self._source, str | os.PathLike) or self._start is None or self.name.endswith(_COMPRESSED):
            return None
        return os.path.getsize(self._source) or None

    def _begun(self) -> BinaryIO:
        """Return a pipe whose beginning is kept, because it names the interfaces."""
        if self._used:
            raise LocalError(
                self.name, "is a pipe that was read before", "to read it once, or to open a file", id="read-twice"
            )
        self._used = True
        source: Any = self._source
        is_path = isinstance(source, str | os.PathLike)
        if is_path:
            source = sys.stdin.buffer if self.name == "-" else open(source, "rb")  # noqa: SIM115
        self._head = source.read(_HEAD)
        return io.BufferedReader(_Resumed(self._head, source, is_path and self.name != "-"))

    def first_interfaces(self) -> list[str]:
        """Return the names of the interfaces that stand before the first packet; of a pipe, after `raw`."""
        with open_capture(io.BytesIO(self._head)) if self._start is None else self.open() as reader:
            next(reader, None)
            return [one.name for one in reader.interfaces]

    @property
    def is_changed(self) -> bool:
        """Return whether times or link types are not those that the capture states."""
        return bool(self._offset_ns) or self._link is not None

    @property
    def offset_ns(self) -> int:
        """Return the number of nanoseconds that is added to each time."""
        return self._offset_ns

    def chosen(self, wanted: bytearray) -> CaptureReader:
        """Return a reader of the packets whose item in `wanted`, by their index, is not 0. Raises the errors of
        `open`."""
        reader = self.open()
        size = len(wanted)
        reader.change(lambda records: (one for one in records if one.index < size and wanted[one.index]))
        return reader

    def _changed(self, records: Iterator[Record]) -> Iterator[Record]:
        for record in records:
            link = record.link if self._link is None else self._link
            yield record._replace(time_ns=record.time_ns + self._offset_ns, link=link)


class _OwnPlace(io.RawIOBase):
    """This class reads an open file from a place of its own, as several readers of one file do by turns."""

    def __init__(self, file: BinaryIO, place: int) -> None:
        self._file, self._place = file, place

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        self._file.seek(self._place)
        data = self._file.read(len(buffer))
        buffer[: len(data)] = data
        self._place += len(data)
        return len(data)


class _Resumed(io.RawIOBase):
    """This class is a stream of which the first bytes were read before."""

    def __init__(self, head: bytes, rest: BinaryIO, owned: bool) -> None:
        """Begin with `head`; `rest` follows, and is closed at its end if it is `owned`."""
        self._head, self._rest, self._owned = io.BytesIO(head), rest, owned

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._head.read(len(buffer))
        if not data and not self._rest.closed:
            data = self._rest.read(len(buffer))
            if not data and self._owned:
                self._rest.close()
        buffer[: len(data)] = data
        return len(data)


_COMPRESSED = (".gz", ".zst", ".xz", ".lz4")
_HEAD = 1 << 16
"""Bytes of a pipe in which names of interfaces are looked for."""


def _is_pipe(path: str) -> bool:
    """Return whether a path is that of a pipe or device. A folder is none, and cannot be opened."""
    return os.path.exists(path) and not os.path.isfile(path) and not os.path.isdir(path)


class SourceDamage(NamedTuple):
    """This tuple reports a part of a capture that cannot be read: the capture, where in it, and why."""

    source: str
    offset: int
    """Start of the part in the uncompressed capture, in bytes."""
    reason: str

    def __str__(self) -> str:
        return f"{self.source}: damaged at byte {self.offset}: {self.reason}"


class MergedReader:
    """This reader returns the records of several captures by their times, in constant memory. It is a context manager.

    Records of one capture keep their order. Interfaces are numbered over all captures, in the order of their first
    records.
    """

    def __init__(self, sources: Sequence[CaptureSource]) -> None:
        self._sources = sources
        self._readers: list[CaptureReader] = []
        self.interfaces: list[CaptureInterface] = []
        self.names: list[str] = []
        """Name of the capture of each interface."""
        self.is_merged = len(sources) > 1
        self.section = 0
        """Number of the section of a pcapng; all captures count as one, since no number of an interface comes again."""
        self.sources: list[int] = []
        """Number of the capture of each interface."""
        self.places: list[str] = []
        """Name of each interface behind that of its capture, if several captures are merged; no two are the same."""
        try:
            for source in sources:
                self._readers.append(source.open())
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> "MergedReader":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Close what the reader opened."""
        for reader in self._readers:
            reader.close()

    @property
    def udp_ports(self) -> frozenset[StatedPort]:
        """Return the UDP ports of UET that the captures have stated so far."""
        return frozenset().union(*(reader.udp_ports for reader in self._readers))

    @property
    def damage(self) -> list[SourceDamage]:
        """Return the damage found so far."""
        pairs = zip(self._sources, self._readers, strict=True)
        return [SourceDamage(source.name, *damage) for source, reader in pairs for damage in reader.damage]

    def __iter__(self) -> Iterator[Record]:
        if len(self._readers) == 1:
            reader = self._readers[0]
            self.interfaces = reader.interfaces
            name = self._sources[0].name
            for record in reader:
                while len(self.names) <= record.interface:
                    self.names.append(name)
                    self.sources.append(0)
                yield record
            return
        index = count()
        titles = _titles([source.name for source in self._sources])
        numbers: dict[tuple[int, int], int] = {}
        for at, record in merge(*map(self._placed, count(), self._readers), key=_time_of):
            place = at, record.interface
            number = numbers.get(place)
            if number is None:
                number = numbers[place] = len(self.interfaces)
                interface = self._readers[at].interfaces[record.interface]
                self.interfaces.append(interface)
                self.names.append(self._sources[at].name)
                self.places.append(f"{titles[at]} {interface.name or record.interface}")
                self.sources.append(at)
            yield record._replace(index=next(index), interface=number)

    @staticmethod
    def _placed(at: int, reader: CaptureReader) -> Iterator[tuple[int, Record]]:
        for record in reader:
            yield at, record


def _titles(names: Sequence[str]) -> list[str]:
    """Return a short name for each capture: its file name, its path if others have this file name, and a number behind
    it if others have this path."""
    short = [os.path.basename(name) for name in names]
    found: list[str] = []
    for name, title in zip(names, short, strict=True):
        title = title if short.count(title) == 1 else name
        found.append(title if title not in found else f"{title} ({len(found) + 1})")
    return found


def _time_of(placed: tuple[int, Record]) -> int:
    return placed[1].time_ns
