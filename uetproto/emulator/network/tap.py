"""Captures: wrappers around a port and a link, which hand everything on unchanged.

The record of a frame that the network loses, cuts or damages after it has left says so in a comment (pcapng only).
"""

from bisect import bisect_right
from collections.abc import Iterable
from itertools import count
from typing import Protocol

from uetproto.emulator.network.clock import Clock
from uetproto.emulator.network.frame_outcome import Fates, Way
from uetproto.emulator.network.link import Port, Sender

_BATCH = 256  # records put in order and written at once
_PS = 1000  # in a nanosecond

_Record = tuple[int, int, bytes, int, Way | None]  # time in picoseconds, order of entry, frame, interface, its way


class Writer(Protocol):
    """`uetproto.wire.pcap.CaptureWriter`, or anything that takes frames."""

    def write(self, time_ns: int, data: bytes, *, interface: int = 0, comment: str | None = None) -> None: ...

    def write_many(self, times_ns: Iterable[int], frames: Iterable[bytes], *, interface: int = 0) -> None: ...


class Capture:
    """What all taps of a run write to, in the order of time.

    A frame that was handed to a busy link leaves later: its record waits here until its time has come, and for
    `patience` picoseconds more, in which its fate is told; None: until all its copies have arrived or are lost.
    """

    __slots__ = ("_clock", "_number", "_patience", "_pending", "_several", "_wait", "_writer", "fates", "frames")

    def __init__(self, clock: Clock, writer: Writer, patience: int | None = 0) -> None:
        self._clock = clock
        self._writer = writer
        self._patience = patience
        self._wait = _BATCH  # records until the next look at what may be written
        self.fates = Fates()
        """To be told by all that loses or changes frames."""
        self._number = count()
        self._pending: list[_Record] = []
        self._several = False
        self.frames = 0
        """Frames written."""

    def add(self, time: int, frame: bytes, interface: int, leaves: bool = False) -> None:
        """`time` is now or later. `leaves`: the network may still lose or change the frame."""
        pending = self._pending
        pending.append((time, next(self._number), frame, interface, self.fates.follow(frame) if leaves else None))
        if interface:
            self._several = True
        if len(pending) >= self._wait:
            self._drain(self._clock.now - (self._patience or 0), settled=self._patience is None)
            self._wait = 2 * len(self._pending) + _BATCH

    def close(self) -> None:
        """Write what is left; a frame that never left the node is not part of the capture."""
        self._drain(self._clock.now)
        self._pending.clear()

    def _drain(self, until: int, settled: bool = False) -> None:
        """Whatever is added from now on has a time not before now: all up to now is in its final order.

        `settled`: only up to the first frame that is still on its way.
        """
        pending = self._pending
        pending.sort()
        end = bisect_right(pending, until, key=_time_of)
        if settled:
            end = next((at for at, (*_, way) in enumerate(pending[:end]) if way is not None and way.copies), end)
        ready, self._pending = pending[:end], pending[end:]
        self.frames += end
        told = False
        for *_, way in ready:
            if way is not None:
                self.fates.forget(way)
                told = told or way.fate is not None
        if self._several or told:
            for time, _, frame, interface, way in ready:
                self._writer.write(time // _PS, frame, interface=interface, comment=way.fate if way else None)
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
        self._capture.add(start, frame, self._interface, leaves=True)
        return start
