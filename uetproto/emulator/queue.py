"""The output queue of a switch port: three classes, strict priority, drop-tail."""

from collections import deque
from collections.abc import Callable
from enum import IntEnum

from uetproto.emulator.clock import Clock
from uetproto.emulator.link import Sender
from uetproto.errors import LocalError


class Level(IntEnum):
    """Queues of a port, the first is served first (cms.md §7)."""

    HIGH = 0
    """ACK, NACK, control packets."""
    MEDIUM = 1
    """Trimmed packets."""
    LOW = 2
    """Data."""


class OutputQueue:
    """Frames that wait for one link. `capacity`, in bytes, holds for each level; `level_of` tells that of a frame.

    A frame that finds the link idle does not wait and costs no event. A transmission under way is never interrupted.
    """

    __slots__ = ("_awake", "_bytes", "_clock", "_level_of", "_link", "_waiting", "capacity", "peak")

    def __init__(self, clock: Clock, link: Sender, *, capacity: int, level_of: Callable[[bytes], Level]) -> None:
        if capacity < 0:
            raise LocalError(f"queue: capacity {capacity}; legal: 0 bytes and more")
        self._clock = clock
        self._link = link
        self._level_of = level_of
        self._waiting: tuple[deque[bytes], ...] = tuple(deque() for _ in Level)
        self._bytes = [0 for _ in Level]
        self._awake = False  # whether an event will look at the queue again
        self.capacity = capacity
        self.peak = 0
        """Most bytes that ever waited at one level."""

    def put(self, frame: bytes) -> bool:
        """Send now or wait; False if there is no room."""
        if not self._awake and self._clock.now >= self._link.busy_until:
            self._link.send(frame)
            return True
        level = self._level_of(frame)
        waiting = self._bytes[level] + len(frame)
        if waiting > self.capacity:
            return False
        self._bytes[level] = waiting
        self._waiting[level].append(frame)
        if waiting > self.peak:
            self.peak = waiting
        if not self._awake:
            self._awake = True
            self._clock.at(self._link.busy_until, self._serve)
        return True

    def _serve(self, _: object) -> None:
        """The link is free: the first frame of the first level that has one."""
        for level, frames in enumerate(self._waiting):
            if frames:
                frame = frames.popleft()
                self._bytes[level] -= len(frame)
                self._link.send(frame)
                break
        if any(self._waiting):
            self._clock.at(self._link.busy_until, self._serve)
        else:
            self._awake = False
