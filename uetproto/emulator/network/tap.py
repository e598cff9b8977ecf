# SPDX-License-Identifier: GPL-2.0-only
"""This module captures frames: a tap before a sink or a link records each frame and passes it on unchanged.

If the network drops, trims or damages a frame after the tap, the record has a comment that says so (pcapng only).
"""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import count
from operator import itemgetter
from typing import Protocol

from uetproto.emulator.network.clock import Clock
from uetproto.impair.frame_outcome import FrameOutcome, FrameOutcomes
from uetproto.impair.link import FrameReceiver, TrainSender

_BATCH = 256
"""Number of records sorted and written at once."""
_PS = 1000
"""Picoseconds in a nanosecond."""

_TapRecord = tuple[int, int, bytes, int, bool]
"""Type of a record: time in picoseconds, order of entry, frame, interface, and whether the frame is followed."""


class RecordWriter(Protocol):
    """A record writer takes frames, as the writers of `wire.capture` do."""

    def write_many(self, times_ns: Iterable[int], frames: Iterable[bytes], *, interface: int = 0) -> None: ...


class FrameWriter(RecordWriter, Protocol):
    """A frame writer is the writer of a capture file, such as those of `wire.capture.pcap`."""

    def write(self, time_ns: int, data: bytes, *, interface: int = 0, comment: str | None = None) -> None: ...


class TapCapture:
    """A capture sorts the records of all taps of a run by time.

    If a frame waits for a busy link, its record is added before the frame leaves. The record is kept until the frame
    has left, and then for `patience` picoseconds more. In this time the network reports the outcome of the frame. If
    `patience` is None, the record is kept until all copies of the frame have arrived or are lost.
    """

    __slots__ = (
        "_clock",
        "_number",
        "_patience",
        "_pending",
        "_several",
        "_wait",
        "_writer",
        "frames",
        "on_cable",
        "outcomes",
    )

    def __init__(self, clock: Clock, writer: FrameWriter, patience: int | None = 0) -> None:
        self._clock = clock
        self._writer = writer
        self._patience = patience
        self._wait = _BATCH  # number of records at which `add` writes records next
        self.outcomes = FrameOutcomes()
        """Outcomes of frames. The parts of the network that drop or change frames report them here."""
        self.on_cable: Callable[[bytes], bytes] | None = None
        """Function that returns a frame as it is on a cable, if it differs there."""
        self._number = count()
        self._pending: list[_TapRecord] = []
        self._several = False
        self.frames = 0

    def add(self, time: int, frame: bytes, interface: int, leaves: bool = False) -> None:
        """Record a frame with the time `time` in picoseconds, which is now or later. If `leaves` is True, the frame
        leaves its node, and the network may still drop or change the frame.
        """
        pending = self._pending
        pending.append((time, next(self._number), frame, interface, leaves))
        if leaves:
            self.outcomes.follow(frame)
        if interface:
            self._several = True
        if len(pending) >= self._wait:
            self._drain(self._clock.now - (self._patience or 0), settled=self._patience is None)
            self._wait = 2 * len(self._pending) + _BATCH

    def add_many(self, times: Sequence[int], frames: Sequence[bytes], interface: int, leaves: bool) -> None:
        """Record frames as `add` does."""
        pending, number, follow = self._pending, self._number, self.outcomes.follow
        if interface or len(pending) + len(frames) >= self._wait:
            for time, frame in zip(times, frames, strict=True):
                self.add(time, frame, interface, leaves)
            return
        pending += [(time, next(number), frame, 0, leaves) for time, frame in zip(times, frames, strict=True)]
        if leaves:
            for frame in frames:
                follow(frame)

    def close(self) -> None:
        """Write the remaining records, except those of frames that have not left their node."""
        self._drain(self._clock.now)
        self._pending.clear()

    def _drain(self, until: int, settled: bool = False) -> None:
        """Write the records up to the time `until`; later records cannot have earlier times.

        With `settled`, write only the records before the first frame that is still on its way.
        """
        pending = self._pending
        pending.sort()
        end = bisect_right(pending, until, key=itemgetter(0))
        outcomes = self.outcomes
        if settled:
            end = next((at for at in range(end) if pending[at][4] and outcomes.is_under_way(pending[at][2])), end)
        ready, self._pending = pending[:end], pending[end:]
        self.frames += end
        comments: dict[int, FrameOutcome] = {}
        """Outcomes of frames, by the order of entry."""
        forget = outcomes.forget
        for _, number, frame, _, followed in ready:
            if followed and (outcome := forget(frame)) is not None:
                comments[number] = outcome
        if self.on_cable is not None:
            ready = [(time, number, self.on_cable(frame), tap, found) for time, number, frame, tap, found in ready]
        if self._several or comments:
            for time, number, frame, interface, _ in ready:
                self._writer.write(time // _PS, frame, interface=interface, comment=comments.get(number))
        else:
            self._writer.write_many([record[0] // _PS for record in ready], [record[2] for record in ready])


@dataclass(slots=True, eq=False)
class InTap:
    """An in-tap is a tap before a sink. It records the frames that arrive, at the instant of their last bit."""

    clock: Clock
    sink: FrameReceiver
    capture: TapCapture
    interface: int

    def take(self, frame: bytes) -> None:
        self.capture.add(self.clock.now, frame, self.interface)
        self.sink.take(frame)


@dataclass(slots=True, eq=False)
class OutTap:
    """An out-tap is a tap before a link. It records the frames that are sent, at the instant of their first bit."""

    link: TrainSender
    capture: TapCapture
    interface: int
    follows: bool = True
    """Whether the network reports what happens to the frames behind this tap."""

    @property
    def busy_until(self) -> int:
        return self.link.busy_until

    def send(self, frame: bytes) -> int:
        start = self.link.send(frame)
        self.capture.add(start, frame, self.interface, leaves=self.follows)
        return start

    def send_many(self, frames: Sequence[bytes]) -> list[int]:
        starts = self.link.send_many(frames)
        self.capture.add_many(starts, frames, self.interface, self.follows)
        return starts
