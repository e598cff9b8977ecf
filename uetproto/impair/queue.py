# SPDX-License-Identifier: GPL-2.0-only
"""This module has the output queues of switch ports. Each queue has three classes with strict priority, and drops a
frame that finds no room.
"""

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache
from typing import Protocol

from uetproto.engine.contract import Rng
from uetproto.errors import LocalError
from uetproto.framing.dscp import Dscp, dscp_of
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


# Looked up once, as plain numbers: with every frame, Class.MEMBER would cost as much as a call.
_HIGH, _MEDIUM, _LOW = map(int, Level)

_NEVER = 1 << 62
_NEVER_MARKS = (_NEVER, _NEVER, _NEVER)
"""A number of bytes that never wait, for each level."""

KIND = slice(12, 16)
"""Where a frame has its EtherType, and with IP its DSCP."""
_KINDS = 1 << 10
"""Number of kinds of frames that are kept."""


class Levels(dict[bytes, int]):
    """This table has the level of each kind of frame, which is its bytes at `KIND`. It is looked up by the DSCP once,
    and then kept."""

    def __init__(self, dscp: Dscp, trimmed: int = Level.MEDIUM) -> None:
        """`trimmed` is the level of trimmed packets."""
        self._by_dscp = {dscp.trimmed: int(trimmed), dscp.trimmed_last_hop: int(trimmed), dscp.control: _HIGH}

    def __missing__(self, kind: bytes) -> int:
        dscp = dscp_of(bytes(KIND.start) + kind)
        if len(self) >= _KINDS:
            self.clear()
        self[kind] = level = _LOW if dscp is None else self._by_dscp.get(dscp, _LOW)
        return level


levels_by = lru_cache(maxsize=64)(Levels)
"""Function that returns the levels for a DSCP and the level of trimmed packets; equal queues share them."""


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

    A frame that finds the link idle is sent at once, without an event. A transmission is never interrupted. `levels`
    has the level of a frame, by `KIND`. A `marker` may mark a frame with CE; the probability depends on how many bytes
    wait at the frame's level when it arrives.
    """

    __slots__ = (
        "_awake", "_before", "_buffer", "_bytes", "_clock", "_held", "_is_overtaken", "_is_plain", "_levels", "_limits",
        "_link", "_marks_above", "_marks_early", "_marks_late", "_observer", "_peak", "_size_of", "_waiting",
    )  # fmt: skip

    def __init__(
        self,
        clock: Timeline,
        link: FrameSender,
        *,
        capacity: int,
        levels: Mapping[bytes, int],
        marker: Marker | None = None,
        observer: QueueObserver | None = None,
        size_of: Callable[[bytes], int] = len,
        buffer: SharedBuffer | None = None,
    ) -> None:
        if capacity < 0:
            raise LocalError("queue", f"capacity {capacity}", "0 bytes and more", id="out-of-range")
        self._clock = clock
        self._link = link
        self._levels = levels
        self._size_of = size_of
        self._waiting: tuple[deque[bytes], ...] = (deque(), deque(), deque())  # at each level
        self._bytes = [0, 0, 0]
        self._awake = False  # whether an event will serve the queue
        self._held = False  # whether data may not be sent, as PFC pauses it
        self._is_overtaken = False  # whether `ahead` was called
        self._observer = observer
        self._buffer = buffer
        self._peak = self._before = 0  # most bytes since `watch_from`, and before it
        self._limits = (capacity, capacity, capacity)  # of each level
        self._marks_early = marker
        self._marks_late: Marker | None = None
        """What marks data when it leaves the queue, in place of when it arrives."""
        self._marks_above = _NEVER_MARKS  # bytes at each level above which `_marks_late` may mark
        self._is_plain = buffer is None and marker is None and observer is None  # whether `_admit` does nothing

    @property
    def capacity(self) -> int:
        """Return the number of bytes of data that the queue holds."""
        return self._limits[_LOW]

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
        self._is_overtaken = True
        self._link.send(frame)

    def put(self, frame: bytes) -> bool:
        """Send a frame, or let it wait for the link. Return False if there is no room for the frame."""
        link = self._link
        awake = self._awake
        if not awake and self._clock.now >= link.busy_until and not (self._held and self._levels[frame[KIND]] == _LOW):
            link.send(frame)
            return True
        level, size, sizes = self._levels[frame[KIND]], self._size_of(frame), self._bytes
        waiting = sizes[level] + size
        if waiting > self._limits[level]:
            waiting = self._make_room(frame, level, waiting)
            if not waiting:
                return False
        if not self._is_plain:
            admitted = self._admit(frame, size, waiting)
            if admitted is None:
                return False
            frame = admitted
        sizes[level] = waiting
        self._waiting[level].append(frame)
        if waiting > self._peak:
            self._peak = waiting
        if not awake and not (self._held and level == _LOW):
            self._awake = True
            self._clock.at(link.busy_until, self._serve)
        return True

    def _admit(self, frame: bytes, size: int, waiting: int) -> bytes | None:
        """Return a frame as it waits, marked or unchanged, and tell all that count what waits. Return None if the
        shared buffer has no room for it. With the frame, `waiting` bytes wait at its level."""
        if self._buffer is not None:
            if not self._buffer.admits(size, waiting):
                return None
            self._buffer.take(size)
        if self._marks_early is not None:
            frame = self._marks_early.pass_on(frame, waiting - size)
        if self._observer is not None:
            self._observer.enters(frame)
        return frame

    def _make_room(self, frame: bytes, level: int, waiting: int) -> int:
        """Return how many bytes wait at a level with a frame for which the level is full, or 0 if it finds no room.
        Without the frame and this call, `waiting` bytes would wait at most."""
        return 0

    def hold(self) -> None:
        """Send no data from now on (PFC). All other frames still leave."""
        self._held = True

    def release(self) -> None:
        """Send data again."""
        self._held = False
        if not self._awake and self._waiting[_LOW]:
            self._awake = True
            self._clock.at(max(self._clock.now, self._link.busy_until), self._serve)

    def _serve(self, _: object) -> None:
        """Send the first frame of the first level that has one, as the link is free."""
        link = self._link
        if self._is_overtaken and self._clock.now < link.busy_until:
            self._clock.at(link.busy_until, self._serve)
            return
        high, medium, low = self._waiting
        if high:
            level, frame = _HIGH, high.popleft()
        elif low and not self._held and not (medium and not self._prefers_data(medium[0], low[0])):
            level, frame = _LOW, low.popleft()
        elif medium:
            level, frame = _MEDIUM, medium.popleft()
        else:
            self._awake = False
            return
        size, sizes = self._size_of(frame), self._bytes
        sizes[level] = left = sizes[level] - size
        link.send(frame if left <= self._marks_above[level] else self._marked(frame, left))
        if not self._is_plain:
            self._leaves(frame, size)
        if high or medium or (low and not self._held):
            self._clock.at(link.busy_until, self._serve)
        else:
            self._awake = False

    def _marked(self, frame: bytes, left: int) -> bytes:
        """Return a frame as it leaves the queue, marked or unchanged, with `left` bytes behind it at its level."""
        return frame if self._marks_late is None else self._marks_late.pass_on(frame, left)

    def _leaves(self, frame: bytes, size: int) -> None:
        """Tell all that count what waits that a frame waits no longer."""
        if self._buffer is not None:
            self._buffer.take(-size)
        if self._observer is not None:
            self._observer.leaves(frame)

    def _prefers_data(self, trimmed: bytes, data: bytes) -> bool:
        """Return whether data leaves before a trimmed packet, if both wait. They are the first ones of their levels."""
        return False


class UetQueue(OutputQueue):
    """This output queue follows `QueueRules`."""

    __slots__ = ("_again", "_coin", "_sent", "_weights", "evict")

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
            clock, link, capacity=capacity, levels=levels_by(dscp, _HIGH if rules.one_header_queue else _MEDIUM),
            observer=observer, size_of=size_of, buffer=buffer,
        )  # fmt: skip
        self._marks_late = marker
        if marker is not None:
            self._marks_above = (_NEVER, _NEVER, marker.red.kmin)
        weight = rules.medium_weight
        self._weights = None if weight == 1 else (weight, 1 - weight)
        self._sent = 0.0  # bytes at the level LOW minus those at MEDIUM, by their weights, while both wait
        self._limits = (rules.control_capacity, rules.control_capacity, capacity)
        self._again = (dscp.data_rtx, rules.again_capacity)
        self._coin = coin if rules.coin else None
        self.evict: Callable[[bytes], None] | None = None
        """Function that trims or drops a packet that had waited. None: no packet that waits is trimmed."""

    def _make_room(self, frame: bytes, level: int, waiting: int) -> int:
        """Return how many bytes wait at a level with a frame, or 0. Retransmitted data finds more room than other data;
        a coin may decide that the last packet that waits makes room for data."""
        dscp, limit = self._again
        if level != _LOW:
            return 0
        if waiting <= limit and dscp_of(frame) == dscp:
            return waiting
        if self.evict is None or self._coin is None or not self._waiting[level] or self._coin.getrandbits(1):
            return 0
        last = self._waiting[level].pop()
        size = self._size_of(last)
        self._bytes[level] -= size
        self._leaves(last, size)
        self.evict(last)
        return waiting - size if waiting - size <= self._limits[level] else 0

    def _prefers_data(self, trimmed: bytes, data: bytes) -> bool:
        weights = self._weights
        if weights is None:
            return False
        prefers = self._sent < 0 or not weights[0]
        self._sent += self._size_of(data) / weights[1] if prefers else -self._size_of(trimmed) / weights[0]
        return prefers
