"""Captures: wrappers around a port and a link, which hand everything on unchanged."""

from bisect import bisect_right
from collections.abc import Iterable
from itertools import count
from typing import Protocol

from uetproto.emulator.clock import Clock
from uetproto.emulator.link import Port, Sender

_BATCH = 256  # records put in order and written at once
_PS = 1000  # in a nanosecond

_Record = tuple[int, int, bytes, int]  # time in picoseconds, order of entry, frame, interface


class Writer(Protocol):
    """`uetproto.wire.pcap.CaptureWriter`, or anything that takes frames."""

    def write(self, time_ns: int, data: bytes, *, interface: int = 0) -> None: ...

    def write_many(self, times_ns: Iterable[int], frames: Iterable[bytes], *, interface: int = 0) -> None: ...


class Capture:
    """What all taps of a run write to, in the order of time.

    A frame that was handed to a busy link leaves later: its record waits here until its time has come.
    """

    __slots__ = ("_clock", "_number", "_pending", "_several", "_writer", "frames")

    def __init__(self, clock: Clock, writer: Writer) -> None:
        self._clock = clock
        self._writer = writer
        self._number = count()
        self._pending: list[_Record] = []
        self._several = False
        self.frames = 0
        """Frames written."""

    def add(self, time: int, frame: bytes, interface: int) -> None:
        """`time` is now or later."""
        pending = self._pending
        pending.append((time, next(self._number), frame, interface))
        if interface:
            self._several = True
        if len(pending) >= _BATCH:
            self._drain()

    def close(self) -> None:
        """Write what is left; a frame that never left the node is not part of the capture."""
        self._drain()
        self._pending.clear()

    def _drain(self) -> None:
        """Whatever is added from now on has a time not before now: all up to now is in its final order."""
        pending = self._pending
        pending.sort()
        end = bisect_right(pending, self._clock.now, key=_time_of)
        ready, self._pending = pending[:end], pending[end:]
        self.frames += end
        if self._several:
            for time, _, frame, interface in ready:
                self._writer.write(time // _PS, frame, interface=interface)
        else:
            self._writer.write_many([record[0] // _PS for record in ready], [record[2] for record in ready])


def _time_of(record: _Record) -> int:
    return record[0]


class InTap:
    """In front of a port: what arrives, at the instant of its last bit."""

    __slots__ = ("_capture", "_clock", "_interface", "_sink")

    def __init__(self, clock: Clock, sink: Port, capture: Capture, interface: int) -> None:
        self._clock = clock
        self._sink = sink
        self._capture = capture
        self._interface = interface

    def take(self, frame: bytes) -> None:
        self._capture.add(self._clock.now, frame, self._interface)
        self._sink.take(frame)


class OutTap:
    """In front of a link: what is sent, at the instant of its first bit."""

    __slots__ = ("_capture", "_interface", "_link")

    def __init__(self, link: Sender, capture: Capture, interface: int) -> None:
        self._link = link
        self._capture = capture
        self._interface = interface

    @property
    def busy_until(self) -> int:
        return self._link.busy_until

    def send(self, frame: bytes) -> int:
        start = self._link.send(frame)
        self._capture.add(start, frame, self._interface)
        return start
