# SPDX-License-Identifier: GPL-2.0-only
"""This module captures frames: a tap before a sink or a link records each frame and passes it on unchanged.

If the network drops, trims or damages a frame after the tap, the record has a comment that says so (pcapng only).
"""

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import repeat
from operator import itemgetter
from typing import Protocol

from uetproto.emulator.network.clock import Clock
from uetproto.impair.frame_outcome import FrameOutcome, FrameOutcomes
from uetproto.impair.link import FrameReceiver, TrainSender

_BATCH = 128
"""Number of records that are sorted and written at once."""
_PS = 1000
"""Picoseconds in a nanosecond."""
_TIME = itemgetter(0)


class RecordWriter(Protocol):
    """A record writer takes frames, as the writers of `wire.capture` do."""

    def write_many(self, times_ns: Sequence[int], frames: Sequence[bytes]) -> None: ...


class FrameWriter(Protocol):
    """A frame writer is the writer of a capture file, such as those of `wire.capture.pcap`."""

    def write(self, time_ns: int, data: bytes, *, interface: int = 0, comment: str | None = None) -> None: ...

    def write_many(self, times_ns: Sequence[int], frames: Sequence[bytes], *, interface: Sequence[int]) -> None: ...


class TapCapture:
    """A capture sorts the records of all taps of a run by time.

    If a frame waits for a busy link, its record is added before the frame leaves. The record is kept until the frame
    has left, and then for `patience` picoseconds more. In this time the network reports the outcome of the frame. If
    `patience` is None, the record is kept until all copies of the frame have arrived or are lost.
    """

    __slots__ = (
        "_clock",
        "_patience",
        "_pending",
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
        self._pending: list[tuple[int, bytes, int, bool]] = []
        """Records: time in picoseconds, frame, interface, and whether the frame is followed; those of one time are in
        the order of entry."""
        self.frames = 0

    def add(self, time: int, frame: bytes, interface: int, leaves: bool = False) -> None:
        """Record a frame with the time `time` in picoseconds, which is now or later. If `leaves` is True, the frame
        leaves its node, and the network may still drop or change the frame.
        """
        self._pending.append((time, frame, interface, leaves))
        if leaves:
            self.outcomes.follow(frame)
        if len(self._pending) >= self._wait:
            self._write_some()

    def add_many(self, times: Sequence[int], frames: Sequence[bytes], interface: int, leaves: bool) -> None:
        """Record frames as `add` does."""
        self._pending += zip(times, frames, repeat(interface), repeat(leaves))
        if leaves:
            self.outcomes.follow_many(frames)
        if len(self._pending) >= self._wait:
            self._write_some()

    def close(self) -> None:
        """Write the remaining records, except those of frames that have not left their node."""
        self._drain(self._clock.now)
        self._pending.clear()

    def _write_some(self) -> None:
        """Write the records that no later record precedes, and whose outcome is known."""
        self._drain(self._clock.now - (self._patience or 0), settled=self._patience is None)
        self._wait = 2 * len(self._pending) + _BATCH

    def _drain(self, until: int, settled: bool = False) -> None:
        """Write the records up to the time `until`; later records cannot have earlier times.

        With `settled`, write only the records before the first frame that is still on its way.
        """
        pending, outcomes = self._pending, self.outcomes
        pending.sort(key=_TIME)
        end = bisect_right(pending, until, key=_TIME)
        if settled:
            followed = ((at, frame) for at, (_, frame, _, leaves) in enumerate(pending[:end]) if leaves)
            end = next((at for at, frame in followed if outcomes.is_under_way(frame)), end)
        if not end:
            return
        times, frames, interfaces, leaving = zip(*pending[:end], strict=True)
        self._pending = pending = pending[end:]
        self.frames += end
        comments: dict[int, FrameOutcome] = {}
        """Outcomes of frames, by the place of the record."""
        if outcomes.changes:
            for at in range(end):
                if leaving[at] and (outcome := outcomes.forget(frames[at])) is not None:
                    comments[at] = outcome
        else:
            outcomes.follow_only([frame for _, frame, _, leaves in pending if leaves])
        self._write([time // _PS for time in times], frames, interfaces, comments)

    def _write(
        self, times_ns: list[int], frames: Sequence[bytes], interfaces: Sequence[int],
        comments: dict[int, FrameOutcome],
    ) -> None:  # fmt: skip
        """Write records in the order of time."""
        if self.on_cable is not None:
            frames = list(map(self.on_cable, frames))
        start = 0
        for at, comment in comments.items():
            if at > start:
                self._writer.write_many(times_ns[start:at], frames[start:at], interface=interfaces[start:at])
            self._writer.write(times_ns[at], frames[at], interface=interfaces[at], comment=comment)
            start = at + 1
        self._writer.write_many(times_ns[start:], frames[start:], interface=interfaces[start:])


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
