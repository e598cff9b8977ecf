# SPDX-License-Identifier: GPL-2.0-only
"""This module measures two rates by turns: the rate of the library, and the rate of other code that does the same
work."""

from collections.abc import Callable
from time import process_time
from typing import Any, NamedTuple


class BenchResult(NamedTuple):
    """A bench result is a row of the table: the library's rate, the baseline's, and the required ratio of both."""

    name: str
    what: str
    rate: float
    """Number of calls per second of CPU."""
    baseline: str
    baseline_rate: float
    least: float
    """Required ratio."""
    memory: int | None = None
    """Peak of memory in bytes."""
    memory_limit: int | None = None

    @property
    def ratio(self) -> float:
        return self.rate / self.baseline_rate

    @property
    def reached(self) -> bool:
        within = self.memory is None or self.memory_limit is None or self.memory <= self.memory_limit
        return self.ratio >= self.least and within


def rate(function: Callable[[], Any], seconds: float) -> float:
    """Return the number of calls of `function` per second of CPU, measured for about `seconds`."""
    calls, elapsed = 1, 0.0
    while elapsed < seconds / 4:  # find a number of calls that lasts long enough for the clock
        elapsed = _time(function, calls)
        if elapsed >= seconds / 2:
            return calls / elapsed
        calls = max(calls + 1, int(calls * min(10, seconds / max(elapsed, 1e-9))))
    return calls / _time(function, calls)


def _time(function: Callable[[], Any], calls: int) -> float:
    start = process_time()
    for _ in range(calls):
        function()
    return process_time() - start


def by_turns(ours: Callable[[], Any], theirs: Callable[[], Any], seconds: float, turns: int = 5) -> tuple[float, float]:
    """Return the best rate of each of two functions, measured alternately, so that other load on the machine affects
    both equally."""
    rates = [(rate(ours, seconds / turns), rate(theirs, seconds / turns)) for _ in range(turns)]
    return max(a for a, _ in rates), max(b for _, b in rates)
