"""This module has the clock of virtual time, which holds the events to come. Times are integers, in picoseconds."""

from collections import deque
from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any, TypeAlias

from uetproto.engine.contract import NEVER
from uetproto.errors import LocalError

_ClockEvent: TypeAlias = tuple[Callable[[Any], object], Any]


class Clock:
    """A clock has the virtual time `now` and the events to come. Events of the same instant run in the order in which
    they were added.

    Only the instants are sorted, not the events, because many copies of a frame arrive at the same instant.
    """

    __slots__ = ("_events", "_instants", "_stopped", "now")

    def __init__(self) -> None:
        self.now = 0
        self._instants: list[int] = []
        """Heap of the instants that have events, each once."""
        self._events: dict[int, _ClockEvent | deque[_ClockEvent]] = {}
        """Events of each instant: one, or several in their order."""
        self._stopped = False

    def at(self, time: int, action: Callable[[Any], object], argument: Any = None) -> None:
        """Call `action(argument)` at `time`. Raises `LocalError` for an instant that has passed."""
        events = self._events
        if time not in events:
            if time < self.now:
                raise LocalError("clock", f"{time} ps has passed, it is {self.now} ps")
            events[time] = (action, argument)
            heappush(self._instants, time)
            return
        there = events[time]
        if isinstance(there, deque):
            there.append((action, argument))
        else:
            events[time] = deque((there, (action, argument)))

    def __len__(self) -> int:
        """Return the number of events to come."""
        return sum(len(due) if isinstance(due, deque) else 1 for due in self._events.values())

    @property
    def next(self) -> int:
        """Return the instant of the next event in picoseconds, or NEVER if there is none."""
        return self._instants[0] if self._instants else NEVER

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
        instants, pending = self._instants, self._events
        self._stopped = False
        while instants and instants[0] <= until:
            if events == 0:
                return True
            self.now = time = instants[0]
            due = pending[time]
            if not isinstance(due, deque):
                events -= 1
                heappop(instants)
                del pending[time]
                due[0](due[1])
                if self._stopped:
                    return False
                continue
            while due and events:
                events -= 1
                action, argument = due.popleft()
                if not due:  # an event that `action` enters for the same instant makes a new entry
                    heappop(instants)
                    del pending[time]
                action(argument)
                if self._stopped:
                    return False
        return False
