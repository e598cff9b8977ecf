"""The event list: what happens next, in integer picoseconds."""

from collections import deque
from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any, TypeAlias

from uetproto.engine.contract import NEVER
from uetproto.errors import LocalError

_Event: TypeAlias = tuple[Callable[[Any], object], Any]


class Clock:
    """Virtual time `now`, and what is still to happen. Events of one instant happen in the order they were entered.

    Instants are sorted, not events: copies of a frame arrive everywhere at once, and are many.
    """

    __slots__ = ("_events", "_instants", "_stopped", "now")

    def __init__(self) -> None:
        self.now = 0
        self._instants: list[int] = []
        """A heap: each that has events, once."""
        self._events: dict[int, _Event | deque[_Event]] = {}
        """Of each instant: one, or several in their order."""
        self._stopped = False

    def at(self, time: int, action: Callable[[Any], object], argument: Any = None) -> None:
        """At `time`, call `action(argument)`. Raises `LocalError` for an instant that has passed."""
        there = self._events.get(time)
        if there is None:
            if time < self.now:
                raise LocalError("clock", f"{time} ps has passed, it is {self.now} ps")
            self._events[time] = (action, argument)
            heappush(self._instants, time)
        elif isinstance(there, deque):
            there.append((action, argument))
        else:
            self._events[time] = deque((there, (action, argument)))

    def __len__(self) -> int:
        """Events that are still to come."""
        return sum(len(due) if isinstance(due, deque) else 1 for due in self._events.values())

    @property
    def next(self) -> int:
        """When the next event happens; NEVER if none does."""
        return self._instants[0] if self._instants else NEVER

    def advance(self, duration: int) -> None:
        """Let `duration` pass, whatever stops in between: time stays at its end."""
        until = self.now + duration
        while self.next <= until:
            self.run(until)
        self.now = until

    def stop(self) -> None:
        """`run` returns after the event that calls this."""
        self._stopped = True

    def run(self, until: int = NEVER, events: int = -1) -> bool:
        """Let events happen up to the instant `until`, at most `events` of them (-1: any number).

        True if the limit `events` ended it; False if nothing is left before `until`, or `stop` was called. Time stays
        at the last event.
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
                if not due:  # what this one enters for the same instant begins anew
                    heappop(instants)
                    del pending[time]
                action(argument)
                if self._stopped:
                    return False
        return False
