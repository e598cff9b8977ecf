"""This module has timers in real time, which the loop of a live link runs between packets."""

from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count
from typing import Any

from uetproto.engine.contract import NEVER
from uetproto.live.time import MonotonicClock


class Timers:
    """Timers are the `impair.timeline.Timeline` of a live link. Functions of one instant are called in the order in
    which they were added, and late rather than early."""

    __slots__ = ("_clock", "_due", "_numbers")

    def __init__(self, clock: MonotonicClock) -> None:
        self._clock = clock
        self._due: list[tuple[int, int, Callable[[Any], object], Any]] = []
        self._numbers = count()

    @property
    def now(self) -> int:
        """Return the time in picoseconds."""
        return self._clock.now

    @property
    def next(self) -> int:
        """Return the instant of the next function in picoseconds, or NEVER if there is none."""
        return self._due[0][0] if self._due else NEVER

    def at(self, time: int, action: Callable[[Any], object], argument: Any = None) -> None:
        """Call `action(argument)` at the instant `time`, or soon if it has passed."""
        heappush(self._due, (time, next(self._numbers), action, argument))

    def run(self, now: int) -> bool:
        """Call the functions that are due at the instant `now`, and return whether there were any."""
        due = self._due
        if not due or due[0][0] > now:
            return False
        while due and due[0][0] <= now:
            _, _, action, argument = heappop(due)
            action(argument)
        return True
