# SPDX-License-Identifier: GPL-2.0-only
"""This module has the clock of virtual time, which holds the events to come. Times are integers, in picoseconds."""

from bisect import bisect_left
from collections.abc import Callable, Iterable
from heapq import heappop, heappush
from operator import itemgetter
from typing import Any, TypeAlias

from uetproto.engine.contract import NEVER
from uetproto.errors import LocalError

_ClockEvent: TypeAlias = tuple[int, Callable[[Any], object], Any]
"""Type of an event: its time, negative so that the span that runs can be in order with the next event last, what is
called, and with which argument."""
_SPAN = 17
"""Number of bits of a time in picoseconds that are below the number of its span: a span takes 131 ns."""
_TIME = itemgetter(0)


class Clock:
    """A clock has the virtual time `now` and the events to come. Events of the same instant run in the order in which
    they were added.

    Events are kept in short spans of time. A span is sorted when its first event is due, as most events are entered
    long before: this costs less than to sort each event into a heap.
    """

    __slots__ = ("_due", "_number", "_numbers", "_spans", "_stopped", "late", "looks", "now")

    def __init__(self) -> None:
        self.now = 0
        self._numbers: list[int] = []
        """Heap of the numbers of the spans in `_spans`."""
        self._spans: dict[int, list[_ClockEvent]] = {}
        """Events of each later span, in the order in which they were added."""
        self._due: list[_ClockEvent] = []
        """Events of the span that runs; the last one is due next."""
        self._number = -1
        """Number of the span that runs."""
        self._stopped = False
        self.late: list[Callable[[], None]] = []
        """Functions that complete what has happened and was not worked off yet, as nobody has looked."""

        self.looks = 0
        """Number of times that somebody may have looked at the network, or changed a part of it."""

    def settle(self) -> None:
        """Work off everything that has happened, before somebody looks at any part of the network or changes it."""
        self.looks += 1
        late = self.late
        while late:
            late.pop()()

    def at(self, time: int, action: Callable[[Any], object], argument: Any = None) -> None:
        """Call `action(argument)` at `time`. Raises `LocalError` for an instant that has passed."""
        span = self._spans.get(time >> _SPAN)
        if span is None or time < self.now:
            self._begin(time, action, argument)
        else:
            span.append((-time, action, argument))

    def at_each(self, time: int, step: int, action: Callable[[Any], object], arguments: Iterable[Any]) -> None:
        """Call `action` with each of `arguments`, with the first one at `time`, and each other one `step` later than
        the one before it. Raises `LocalError` for an instant that has passed."""
        spans, now = self._spans, self.now
        for argument in arguments:
            span = spans.get(time >> _SPAN)
            if span is None or time < now:
                self._begin(time, action, argument)
            else:
                span.append((-time, action, argument))
            time += step

    def _begin(self, time: int, action: Callable[[Any], object], argument: Any) -> None:
        """Add an event to the span that runs, or as the first one of a later span."""
        number = time >> _SPAN
        if time < self.now:
            raise LocalError("clock", f"{time} ps has passed, it is {self.now} ps", id="time-passed")
        if number != self._number:
            self._spans[number] = [(-time, action, argument)]
            heappush(self._numbers, number)
            return
        due = self._due
        due.insert(bisect_left(due, (-time,)), (-time, action, argument))  # behind those of the same instant

    def __len__(self) -> int:
        """Return the number of events to come."""
        return len(self._due) + sum(map(len, self._spans.values()))

    @property
    def next(self) -> int:
        """Return the instant of the next event in picoseconds, or NEVER if there is none."""
        if self._due:
            return -self._due[-1][0]
        return -max(map(_TIME, self._spans[self._numbers[0]])) if self._numbers else NEVER

    def advance(self, duration: int) -> None:
        """Run the events of the next `duration` picoseconds. Then `now` is the end of this time, even if an event calls
        `stop`.
        """
        until = self.now + duration
        while self.next <= until:
            self.run(until)
        self.now = until

    def stop(self) -> None:
        """Make `run` return after the event that calls this method."""
        self._stopped = True

    def run(self, until: int = NEVER, events: int = -1) -> bool:
        """Run the events up to the instant `until`, but at most `events` of them, unless `events` is -1.

        Return True if the limit `events` ended the call. Return False if no event is left up to `until`, or if `stop`
        was called. `now` stays at the last event.
        """
        try:
            return self._run(until, events)
        finally:
            self.settle()

    def _run(self, until: int, events: int) -> bool:
        self._stopped = False
        while True:
            due = self._due
            while due:
                time, action, argument = event = due.pop()
                time = -time
                if time > until or not events:
                    due.append(event)
                    if self.now >> _SPAN != self._number:
                        self._put_back()
                    return time <= until
                events -= 1
                self.now = time
                action(argument)
                if self._stopped:
                    return False
            if not self._numbers:
                return False
            self._number = number = heappop(self._numbers)
            self._due = due = self._spans.pop(number)
            if len(due) > 1:
                due.reverse()
                due.sort(key=_TIME)

    def _put_back(self) -> None:
        """Let no span run, as events may be added now that are before it."""
        self._spans[self._number] = self._due[::-1]
        heappush(self._numbers, self._number)
        self._due.clear()
        self._number = -1
