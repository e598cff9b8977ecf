"""This module has the clock of a live link. No other module of the package knows what time it is."""

import time


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
