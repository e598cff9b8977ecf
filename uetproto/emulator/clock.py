"""The event list: what happens next, in integer picoseconds."""

from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count
from typing import Any

from uetproto.engine.contract import NEVER
from uetproto.errors import LocalError


class Clock:
    """Virtual time `now`, and what is still to happen. Events of one instant happen in the order they were entered."""

    __slots__ = ("_heap", "_number", "_stopped", "now")

    def __init__(self) -> None:
        self.now = 0
        self._heap: list[tuple[int, int, Callable[[Any], object], Any]] = []
        self._number = count()
        self._stopped = False

    def at(self, time: int, action: Callable[[Any], object], argument: Any = None) -> None:
        """At `time`, call `action(argument)`. Raises `LocalError` for an instant that has passed."""
        if time < self.now:
            raise LocalError(f"clock: {time} ps has passed, it is {self.now} ps")
        heappush(self._heap, (time, next(self._number), action, argument))

    def __len__(self) -> int:
        """Events that are still to come."""
        return len(self._heap)

    @property
    def next(self) -> int:
        """When the next event happens; NEVER if none does."""
        return self._heap[0][0] if self._heap else NEVER

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
        heap = self._heap
        self._stopped = False
        while heap and heap[0][0] <= until:
            if events == 0:
                return True
            events -= 1
            self.now, _, action, argument = heappop(heap)
            action(argument)
            if self._stopped:
                return False
        return False
