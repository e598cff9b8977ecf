# SPDX-License-Identifier: GPL-2.0-only
"""This module injects faults: a port drops, copies, delays, damages or trims frames before it passes them on, at random
or by number.

The random generator is seeded, so that runs with the same seed are equal.
"""

from collections import Counter
from dataclasses import dataclass, field

from uetproto.engine.contract import MICROSECOND, Rng
from uetproto.framing.dscp import Dscp
from uetproto.framing.sizes import ETHERNET_SIZE
from uetproto.impair.frame_outcome import FrameOutcome, FrameOutcomes
from uetproto.impair.link import FrameReceiver
from uetproto.impair.timeline import Timeline
from uetproto.impair.trim import trim

Which = float | frozenset[int]
"""Type of a selection of frames. A number from 0 to 1 is the share of frames that are selected at random. A set has the
numbers of the selected frames."""


@dataclass(frozen=True, slots=True)
class Faults:
    """Faults say which frames are dropped, copied, delayed, damaged or trimmed.

    At each port, the arriving frames are numbered from 0. All times are in picoseconds.
    """

    drop: Which = 0.0
    trim: Which = 0.0
    """Frames that are trimmed as by a switch with a full queue. A frame that must not be trimmed passes unchanged."""
    corrupt: Which = 0.0
    """Frames in which one random bit behind the Ethernet header is inverted, on a real link behind all lower
    headers."""
    duplicate: Which = 0.0
    reorder: Which = 0.0
    """Frames that wait until `reorder_by` later frames have passed, but for at most `reorder_time`."""
    delay: Which = 0.0
    reorder_by: int = 1
    reorder_time: int = 10 * MICROSECOND
    delay_time: int = 10 * MICROSECOND

    def __bool__(self) -> bool:
        return any((self.drop, self.trim, self.corrupt, self.duplicate, self.reorder, self.delay))


@dataclass(slots=True)
class _ReorderedFrame:
    """A reordered frame waits until `passes` other frames have passed."""

    frame: bytes
    passes: int


@dataclass(slots=True)
class FaultyPort:
    """A faulty port applies faults to the frames that it passes on to `sink`. `done` counts the applied faults by
    name.
    """

    clock: Timeline
    sink: FrameReceiver
    faults: Faults
    rng: Rng
    dscp: Dscp
    outcomes: FrameOutcomes = field(default_factory=FrameOutcomes)
    intact: int = ETHERNET_SIZE
    """Number of first bytes of a frame that are never damaged."""
    number: int = 0
    done: Counter[str] = field(default_factory=Counter)
    _held: list[_ReorderedFrame] = field(default_factory=list)

    def take(self, frame: bytes) -> None:
        """Apply the faults to a frame that arrives now, and pass on what is left of it."""
        faults = self.faults
        number = self.number
        self.number += 1
        if self._hits(faults.drop, number, "drop"):
            self.outcomes.lost(frame)
            return
        if faults.trim and self._chosen(faults.trim, number):
            short = trim(frame, self.dscp, last_hop=False)
            if short is not None:
                self.done["trim"] += 1
                self.outcomes.changed(frame, short, FrameOutcome.TRIMMED)
                frame = short
        if self._hits(faults.corrupt, number, "corrupt"):
            damaged = self._corrupted(frame)
            self.outcomes.changed(frame, damaged, FrameOutcome.DAMAGED)
            frame = damaged
        copies = 1
        if self._hits(faults.duplicate, number, "duplicate"):
            self.outcomes.copied(frame)
            copies = 2
        if self._hits(faults.reorder, number, "reorder"):
            held = _ReorderedFrame(frame, faults.reorder_by)
            self._held.append(held)
            self.clock.at(self.clock.now + faults.reorder_time, self._release, held)
            copies -= 1
        elif self._hits(faults.delay, number, "delay"):
            self.clock.at(self.clock.now + faults.delay_time, self._pass, frame)
            copies -= 1
        for _ in range(copies):
            self._pass(frame)

    def _chosen(self, which: Which, number: int) -> bool:
        if isinstance(which, frozenset):
            return number in which
        return which > 0 and self.rng.random() < which

    def _hits(self, which: Which, number: int, name: str) -> bool:
        if which and self._chosen(which, number):
            self.done[name] += 1
            return True
        return False

    def _corrupted(self, frame: bytes) -> bytes:
        bits = (len(frame) - self.intact) * 8
        if bits <= 0:
            return frame
        bit = int(self.rng.random() * bits)
        damaged = bytearray(frame)
        damaged[self.intact + bit // 8] ^= 0x80 >> bit % 8
        return bytes(damaged)

    def _pass(self, frame: bytes) -> None:
        """Pass a frame on, then the frames that waited for it."""
        self.sink.take(frame)
        if self._held:
            for held in self._held:
                held.passes -= 1
            ready = [held for held in self._held if held.passes <= 0]
            self._held = [held for held in self._held if held.passes > 0]
            for held in ready:
                self.sink.take(held.frame)

    def _release(self, held: _ReorderedFrame) -> None:
        """Pass on a reordered frame that still waits when its time has expired."""
        if any(held is other for other in self._held):
            self._held = [other for other in self._held if other is not held]
            self.sink.take(held.frame)
