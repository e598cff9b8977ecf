# SPDX-License-Identifier: GPL-2.0-only
"""This module has the output queues of switch ports. Each queue has three classes with strict priority, and drops a
frame that finds no room.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from typing import Protocol

from uetproto.engine.contract import Rng
from uetproto.errors import LocalError
from uetproto.framing.dscp import IPV4_TYPE, Dscp, dscp_of
from uetproto.impair.link import FrameSender
from uetproto.impair.red import Marker
from uetproto.impair.timeline import Timeline


class Level(IntEnum):
    """A level is a class of frames in an output queue. A port serves the levels in this order (cms.md §7)."""

    HIGH = 0
    """Level of ACKs, NACKs and control packets."""
    MEDIUM = 1
    """Level of trimmed packets."""
    LOW = 2
    """Level of data packets."""


# Looked up once: with every frame, Class.MEMBER would cost as much as a call.
_HIGH, _MEDIUM, _LOW = Level


def level_by(dscp: Dscp, trimmed: Level = Level.MEDIUM) -> Callable[[bytes], Level]:
    """Return a function that returns the level of a frame by the DSCP of the frame; `trimmed` is that of trimmed
    packets."""
    levels: dict[int | None, Level] = dict.fromkeys((dscp.trimmed, dscp.trimmed_last_hop), trimmed)
    levels[dscp.control] = _HIGH
    get = levels.get

    def level_of(frame: bytes) -> Level:
        # `dscp_of`, without a call for the most frequent kind of frame
        return get(frame[15] >> 2 if frame[12:14] == IPV4_TYPE else dscp_of(frame), _LOW)

    return level_of


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueRules:
    """These rules are those of UET for the queues of switches (cms.md §7), in place of the plain ones.

    Data is marked when it leaves a queue, by the bytes that it leaves behind. Only data is marked.
    """

    control_capacity: int
    """Number of bytes that each of the levels HIGH and MEDIUM holds."""
    again_capacity: int
    """Number of bytes up to which retransmitted data finds room at the level LOW."""
    coin: bool = False
    """Whether a coin decides if data that finds no room is trimmed itself, or the last packet that waits, in whose
    place it then waits, as in the UEC simulator."""
    medium_weight: float = 1.0
    """Share of the rate that trimmed packets have while data waits, too, 0 to 1. With 1 they always go first."""
    one_header_queue: bool = False
    """Whether trimmed packets wait with control packets, in one queue, as in the UEC simulator."""
    shared_buffer: int | None = None
    """Number of bytes that all output queues of a switch hold together. None: each queue has memory of its own."""
    buffer_share: float | None = None
    """One level of one queue holds at most this number times the free bytes of the shared buffer. None: no limit."""


class SharedBuffer:
    """A shared buffer is the memory of a switch in which the frames of all its output queues wait."""

    __slots__ = ("capacity", "peak", "share", "used")

    def __init__(self, capacity: int, share: float | None = None) -> None:
        """Make a buffer of `capacity` bytes. One level of one queue may hold at most `share` times what is free; None:
        there is no such limit (a dynamic threshold)."""
        self.capacity = capacity
        self.share = share
        self.used = self.peak = 0

    def admits(self, size: int, waiting: int) -> bool:
        """Return whether a frame of `size` bytes finds room, with which `waiting` bytes would wait at its level."""
        free = self.capacity - self.used
        return size <= free and (self.share is None or waiting <= self.share * free)

    def take(self, size: int) -> None:
        """Note that a frame begins to wait, or with a negative `size`, that it leaves."""
        self.used = used = self.used + size
        if used > self.peak:
            self.peak = used


class QueueObserver(Protocol):
    """A queue observer is called when a frame begins to wait in a queue, and when the frame leaves the queue.
    `pfc.Pauser` is one.
    """

    def enters(self, frame: bytes) -> None:
        """Note that a frame begins to wait."""

    def leaves(self, frame: bytes) -> None:
        """Note that a frame has left the queue for the link."""


class OutputQueue:
    """An output queue holds frames that wait for one link, up to `capacity` bytes for each level.

    A frame that finds the link idle is sent at once, without an event. A transmission is never interrupted. `level_of`
    returns the level of a frame. A `marker` may mark a frame with CE; the probability depends on how many bytes wait at
    the frame's level when it arrives.
    """

    __slots__ = (
        "_awake", "_before", "_buffer", "_bytes", "_clock", "_held", "_level_of", "_link", "_observer", "_peak",
        "_size_of", "_waiting", "capacity", "marker",
    )  # fmt: skip
    _marks_late = False
    """Whether data is marked when it leaves the queue and not when it arrives."""

    def __init__(
        self,
        clock: Timeline,
        link: FrameSender,
        *,
        capacity: int,
        level_of: Callable[[bytes], Level],
        marker: Marker | None = None,
        observer: QueueObserver | None = None,
        size_of: Callable[[bytes], int] = len,
        buffer: SharedBuffer | None = None,
    ) -> None:
        if capacity < 0:
            raise LocalError("queue", f"capacity {capacity}", "0 bytes and more", id="out-of-range")
        self._clock = clock
        self._link = link
        self._level_of = level_of
        self._size_of = size_of
        self._waiting: tuple[deque[bytes], ...] = tuple(deque() for _ in Level)
        self._bytes = [0 for _ in Level]
        self._awake = False  # whether an event will serve the queue
        self._held = False  # whether data may not be sent, as PFC pauses it
        self._observer = observer
        self._buffer = buffer
        self._peak = self._before = 0  # most bytes since `watch_from`, and before it
        self.capacity = capacity
        self.marker = marker

    @property
    def peak(self) -> int:
        """Return the largest number of bytes that ever waited at one level."""
        return max(self._before, self._peak)

    @property
    def length(self) -> int:
        """Return the number of bytes that wait now, at all levels."""
        return sum(self._bytes)

    @property
    def late_peak(self) -> int:
        """Return the largest number of bytes that waited at one level since the instant of `watch_from`."""
        return self._peak

    def watch_from(self, instant: int) -> None:
        """Make `late_peak` count only from `instant` (picoseconds) on. A caller can thus leave out the start of a
        run."""
        self._clock.at(instant, self._watch)

    def _watch(self, _: object) -> None:
        self._before = self.peak
        self._peak = max(self._bytes)

    def ahead(self, frame: bytes) -> None:
        """Send a frame before all frames that wait."""
        self._link.send(frame)

    def put(self, frame: bytes) -> bool:
        """Send a frame, or let it wait for the link. Return False if there is no room for the frame."""
        if not self._awake and self._clock.now >= self._link.busy_until and not (self._held and self._is_data(frame)):
            self._link.send(frame)
            return True
        level = self._level_of(frame)
        size = self._size_of(frame)
        waiting = self._bytes[level] + size
        if waiting > self.capacity or (self._buffer is not None and not self._buffer.admits(size, waiting)):
            return False
        if self.marker is not None:
            frame = self.marker.pass_on(frame, self._bytes[level])
        self._append(level, frame, waiting)
        return True

    def _append(self, level: Level, frame: bytes, waiting: int) -> None:
        """Let a frame wait; with it, `waiting` bytes wait at its level."""
        if self._buffer is not None:
            self._buffer.take(waiting - self._bytes[level])
        self._bytes[level] = waiting
        self._waiting[level].append(frame)
        if waiting > self._peak:
            self._peak = waiting
        if self._observer is not None:
            self._observer.enters(frame)
        if not self._awake and not (self._held and level is _LOW):
            self._awake = True
            self._clock.at(self._link.busy_until, self._serve)

    def hold(self) -> None:
        """Send no data from now on (PFC). All other frames still leave."""
        self._held = True

    def release(self) -> None:
        """Send data again."""
        self._held = False
        if not self._awake and self._waiting[_LOW]:
            self._awake = True
            self._clock.at(max(self._clock.now, self._link.busy_until), self._serve)

    def _is_data(self, frame: bytes) -> bool:
        return self._level_of(frame) is _LOW

    def _next(self) -> int | None:
        """Return the level whose first frame leaves next, or None if no frame may leave."""
        high, medium, low = self._waiting
        if high:
            return _HIGH
        if medium:
            return _MEDIUM
        return _LOW if low and not self._held else None

    def _serve(self, _: object) -> None:
        """Send the first frame of the first level that has one, as the link is free."""
        clock, link = self._clock, self._link
        if clock.now < link.busy_until:  # another frame was sent by `ahead`
            clock.at(link.busy_until, self._serve)
            return
        level = self._next()
        if level is not None:
            frame = self._waiting[level].popleft()
            size = self._size_of(frame)
            self._bytes[level] = left = self._bytes[level] - size
            if self._buffer is not None:
                self._buffer.take(-size)
            if level is _LOW and self._marks_late and self.marker is not None:
                link.send(self.marker.pass_on(frame, left))
            else:
                link.send(frame)
            if self._observer is not None:
                self._observer.leaves(frame)
        high, medium, low = self._waiting
        if high or medium or (low and not self._held):
            clock.at(link.busy_until, self._serve)
        else:
            self._awake = False


class UetQueue(OutputQueue):
    """This output queue follows `QueueRules`."""

    __slots__ = ("_again", "_coin", "_limits", "_sent", "_weights", "evict")
    _marks_late = True

    def __init__(
        self,
        clock: Timeline,
        link: FrameSender,
        rules: QueueRules,
        *,
        capacity: int,
        dscp: Dscp,
        marker: Marker | None,
        coin: Rng,
        observer: QueueObserver | None = None,
        size_of: Callable[[bytes], int] = len,
        buffer: SharedBuffer | None = None,
    ) -> None:
        """Make a queue whose level LOW holds `capacity` bytes. `coin` decides which packet is trimmed."""
        super().__init__(
            clock, link, capacity=capacity, level_of=level_by(dscp, _HIGH if rules.one_header_queue else _MEDIUM),
            marker=marker, observer=observer, size_of=size_of, buffer=buffer,
        )  # fmt: skip
        weight = rules.medium_weight
        self._weights = None if weight == 1 else (weight, 1 - weight)
        self._sent = 0.0  # bytes at the level LOW minus those at MEDIUM, by their weights, while both wait
        self._limits = (rules.control_capacity, rules.control_capacity, capacity)
        self._again = (dscp.data_rtx, rules.again_capacity)
        self._coin = coin if rules.coin else None
        self.evict: Callable[[bytes], None] | None = None
        """Function that trims or drops a packet that had waited. None: no packet that waits is trimmed."""

    def put(self, frame: bytes) -> bool:
        """Send a frame, or let it wait for the link. Return False if there is no room for the frame."""
        if not self._awake and self._clock.now >= self._link.busy_until and not (self._held and self._is_data(frame)):
            self._link.send(frame)
            return True
        level = self._level_of(frame)
        size = self._size_of(frame)
        waiting = self._bytes[level] + size
        buffer = self._buffer
        if waiting > self._limits[level]:
            dscp, limit = self._again
            if level is not _LOW:
                return False
            if waiting > limit or dscp_of(frame) != dscp:
                if self.evict is None or self._coin is None or not self._waiting[level] or self._coin.getrandbits(1):
                    return False
                last = self._waiting[level].pop()
                waiting -= self._size_of(last)
                self._bytes[level] -= self._size_of(last)
                if buffer is not None:
                    buffer.take(-self._size_of(last))
                if self._observer is not None:
                    self._observer.leaves(last)
                self.evict(last)
                if waiting > self._limits[level]:
                    return False
        if buffer is not None and not buffer.admits(size, waiting):
            return False
        self._append(level, frame, waiting)
        return True

    def _next(self) -> int | None:
        high, medium, low = self._waiting
        if high:
            return _HIGH
        weights = self._weights
        if weights is None or self._held or not medium or not low:
            return _MEDIUM if medium else _LOW if low and not self._held else None
        level = _LOW if self._sent < 0 or not weights[0] else _MEDIUM
        size = self._size_of(self._waiting[level][0])
        self._sent += size / weights[1] if level is _LOW else -size / weights[0]
        return level
