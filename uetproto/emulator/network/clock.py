# SPDX-License-Identifier: GPL-2.0-only
"""This module has the clock of virtual time, which holds the events to come. Times are integers, in picoseconds."""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from heapq import heappop, heappush
from itertools import chain, count, islice, repeat
from operator import itemgetter, length_hint
from typing import Any, TypeAlias

from uetproto.engine.contract import NEVER
from uetproto.errors import LocalError

_ClockEvent: TypeAlias = tuple[int, Callable[[Any], object], Any]
"""Type of an event: its time, what is called, and with which argument."""
_BITS, _MOST_BITS = 17, 20
"""Number of bits of a time in picoseconds that are below the number of its span, at first (131 ns) and at most (1 µs):
in a longer span many events are added while it runs, when a burst follows a quiet time."""
_LOOK, _FEW, _MANY = 63, 24, 600
"""Bits of the number of a span that are 0 when the clock looks at the number of its events; number of events below
which spans become twice as long, and above which they become half as long."""
_TIME = itemgetter(0)


class Clock:
    """A clock has the virtual time `now` and the events to come. Events of the same instant run in the order in which
    they were added.

    Events are kept in short spans of time. A span is sorted when its first event is due, as most events are entered
    long before: this costs less than to sort each event into a heap. The length of the spans follows the number of
    events in them, which changes nothing but the time that they take.
    """

    __slots__ = ("_bits", "_coming", "_due", "_end", "_number", "_numbers", "_spans", "_stopped", "late", "now")

    def __init__(self) -> None:
        self.now = 0
        self._bits = _BITS
        """Number of bits of a time that are below the number of its span."""
        self._numbers: list[int] = []
        """Heap of the numbers of the spans in `_spans`."""
        self._spans: dict[int, list[_ClockEvent]] = {}
        """Events of each later span, in the order in which they were added."""
        self._due: list[_ClockEvent] = []
        """Events of the span that runs, in the order of their times."""
        self._coming: Iterator[_ClockEvent] = iter(self._due)
        """Iterator over `_due`, at the event that is due next. What is added while the span runs is behind that."""
        self._number = -1
        """Number of the span that runs, or ran last; -1 if there is none."""
        self._end = 0
        """Instant behind this span."""
        self._stopped = False
        self.late: list[Callable[[], None]] = []
        """Functions that complete what has happened and was not worked off yet, as nobody has looked."""

    def settle(self) -> None:
        """Work off everything that has happened, before somebody looks at any part of the network or changes it."""
        late = self.late
        while late:
            late.pop()()

    def at(self, time: int, action: Callable[[Any], object], argument: Any = None) -> None:
        """Call `action(argument)` at `time`. Raises `LocalError` for an instant that has passed, at the latest when the
        clock runs on."""
        span = self._spans.get(time >> self._bits)
        if span is None:
            self._begin(time, action, argument)
        else:
            span.append((time, action, argument))

    def at_each(self, time: int, step: int, action: Callable[[Any], object], arguments: Iterable[Any]) -> None:
        """Call `action` with each of `arguments`, with the first one at `time`, and each other one `step` picoseconds
        later than the one before it. Raises `LocalError` as `at` does."""
        spans, bits = self._spans, self._bits
        events = list(zip(count(time, step), repeat(action), arguments))
        start = 0
        while start < len(events):
            number = (time + start * step) >> bits
            end = -((time - ((number + 1) << bits)) // step)  # index of the first event behind this span
            span = spans.get(number)
            if span is None:
                self._begin(*events[start])
                start += 1
            else:
                span += events[start:end]
                start = end

    def _begin(self, time: int, action: Callable[[Any], object], argument: Any) -> None:
        """Add an event to the span that runs, or as the first one of a later span."""
        if time < self.now:
            raise _passed(time, self.now)
        number, event, left = time >> self._bits, (time, action, argument), length_hint(self._coming)
        if number == self._number:
            if left:
                due = self._due
                due.insert(bisect_left(due, (time + 1,)), event)  # behind those of the same instant
            else:
                self._due = due = [event]
                self._coming = iter(due)
            return
        if number < self._number and left:  # `_up_to` has begun a span of which nothing was due
            self._add_span(self._number, self._due[-left:])
            self._number, self._due, self._coming = -1, [], iter(())
        self._add_span(number, [event])

    def _add_span(self, number: int, events: list[_ClockEvent]) -> None:
        self._spans[number] = events
        heappush(self._numbers, number)

    def __len__(self) -> int:
        """Return the number of events to come."""
        return length_hint(self._coming) + sum(map(len, self._spans.values()))

    @property
    def next(self) -> int:
        """Return the instant of the next event in picoseconds, or NEVER if there is none."""
        left = length_hint(self._coming)
        if left:
            return self._due[-left][0]
        return min(map(_TIME, self._spans[self._numbers[0]])) if self._numbers else NEVER

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
        left = length_hint(self._coming)
        if left:
            due = self._due
            self._due = due[-left:]
            self._coming = iter(self._due)
            del due[-left:]  # ends the loop over them

    def run(self, until: int = NEVER, events: int = -1) -> bool:
        """Run the events up to the instant `until`, but at most `events` of them, unless `events` is -1.

        Return True if the limit `events` ended the call. Return False if no event is left up to `until`, or if `stop`
        was called. `now` stays at the last event.
        """
        try:
            return self.go_on(until, events)
        finally:
            self.settle()

    def go_on(self, until: int = NEVER, events: int = -1) -> bool:
        """Run events as `run` does, but leave it to the caller to call `settle` before somebody looks."""
        self._stopped = False
        coming = chain.from_iterable(self._in_order(until))
        for self.now, action, argument in coming if events < 0 else islice(coming, events):
            action(argument)
        left = length_hint(self._coming) > 0 or bool(self._numbers)
        return not self._stopped and left and self.next <= until

    def _in_order(self, until: int) -> Iterator[Iterator[_ClockEvent]]:
        """Yield iterators over the events up to `until`, for one span after the other."""
        while not self._stopped:
            if not length_hint(self._coming):
                if not self._numbers or self._numbers[0] << self._bits > until:
                    return
                self._open()
            if self._end > until:  # only some of its events are due, or none
                yield self._up_to(until)
                return
            yield self._coming

    def _open(self) -> None:
        """Go on to the next span. All events of the last one have run."""
        number, events = self._number, len(self._due)
        if not number & _LOOK:
            if events < _FEW and self._bits < _MOST_BITS:
                self._divide(self._bits + 1)
            elif events > _MANY and self._bits:
                self._divide(self._bits - 1)
        self._number = number = heappop(self._numbers)
        self._due = due = self._spans.pop(number)
        self._end = (number + 1) << self._bits
        if len(due) > 1:
            due.sort(key=_TIME)
        self._coming = iter(due)
        if due[0][0] < self.now:
            raise _passed(due[0][0], self.now)

    def _up_to(self, until: int) -> Iterator[_ClockEvent]:
        """Yield the events of the span that runs, up to `until`."""
        while (left := length_hint(self._coming)) and self._due[-left][0] <= until and not self._stopped:
            yield next(self._coming)

    def _divide(self, bits: int) -> None:
        """Divide time into spans of another length, while none runs."""
        events = [event for number in sorted(self._numbers) for event in self._spans.pop(number)]
        self._bits = bits
        for event in events:  # those of one instant stay in their order
            self._spans.setdefault(event[0] >> bits, []).append(event)
        self._numbers[:] = sorted(self._spans)


def _passed(time: int, now: int) -> LocalError:
    return LocalError("clock", f"{time} ps has passed, it is {now} ps", id="time-passed")
