# SPDX-License-Identifier: GPL-2.0-only
"""This module has the clock of a live link, and timers, which its loop runs between packets. No other module of the
package knows what time it is."""

import time
from collections.abc import Callable, Iterable
from heapq import heappop, heappush
from itertools import count
from typing import Any

from uetproto.engine.contract import NEVER


class MonotonicClock:
    """This class counts picoseconds from its construction on, whatever is done to the clock of the day."""

    __slots__ = ("_began", "_day_began")

    def __init__(self) -> None:
        self._began = time.monotonic_ns()
        self._day_began = time.time_ns()

    @property
    def now(self) -> int:
        """Return the time in picoseconds."""
        return (time.monotonic_ns() - self._began) * 1000

    def of_day(self, now: int) -> int:
        """Return the time of day of the instant `now`, in nanoseconds since 1970, for the records of a capture."""
        return self._day_began + now // 1000


_COUNTS = 1 << 15


def counter_now() -> int:
    """Return a counter of 46 bits that no program of this host has reached: a clock of the day that does not go back
    counts 32,768 times a second, which is more often than a program seals packets (tss.md §4)."""
    return time.time_ns() * _COUNTS // 10**9


class Timers:
    """Timers are the `impair.timeline.Timeline` of a live link. Functions of one instant are called in the order in
    which they were added, and late rather than early.

    A function that is late finds as the time `now` the instant for which it was meant, so that what is late does not
    make later what follows from it.
    """

    __slots__ = ("_clock", "_due", "_instant", "_numbers")

    def __init__(self, clock: MonotonicClock) -> None:
        self._clock = clock
        self._due: list[tuple[int, int, Callable[[Any], object], Any]] = []
        self._numbers = count()
        self._instant: int | None = None

    @property
    def now(self) -> int:
        """Return the time in picoseconds."""
        return self._clock.now if self._instant is None else self._instant

    @property
    def next(self) -> int:
        """Return the instant of the next function in picoseconds, or NEVER if there is none."""
        return self._due[0][0] if self._due else NEVER

    def at(self, time: int, action: Callable[[Any], object], argument: Any = None) -> None:
        """Call `action(argument)` at the instant `time`, or soon if it has passed."""
        heappush(self._due, (time, next(self._numbers), action, argument))

    def at_each(self, time: int, step: int, action: Callable[[Any], object], arguments: Iterable[Any]) -> None:
        """Call `action` with each of `arguments`, with the first one at `time`, and each other one `step` later."""
        for number, argument in enumerate(arguments):
            self.at(time + number * step, action, argument)

    def after(self, duration: int, action: Callable[[Any], object], argument: Any = None) -> None:
        """Call `action(argument)` when `duration` picoseconds have passed from now on, however late this call is."""
        self.at(self._clock.now + duration, action, argument)

    def run(self, now: int) -> bool:
        """Call the functions that are due at the instant `now`, and return whether there were any."""
        due = self._due
        if not due or due[0][0] > now:
            return False
        try:
            while due and due[0][0] <= now:
                self._instant, _, action, argument = heappop(due)
                action(argument)
        finally:
            self._instant = None
        return True
