# SPDX-License-Identifier: GPL-2.0-only
"""An aggregation node keeps its timers in one heap, where a timer that was restarted or stopped leaves a stale
entry."""

from heapq import heappop, heappush

from uetproto.engine.contract import NEVER
from uetproto.engine.sharp.node.contract import Timed


class TimerQueue:
    """A timer queue holds the timers of a node. An owner has one timer, whose deadline (picoseconds) is
    `owner.deadline`."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Timed]] = []
        self._count = 0
        """Number of timers started so far; timers with equal deadlines expire in the order of their start."""

    def start(self, owner: Timed, deadline: int) -> None:
        """Start the timer of `owner`, or restart it."""
        self._count += 1
        owner.deadline = deadline
        heappush(self._heap, (deadline, self._count, owner))

    def nearest(self) -> int:
        """Return the earliest deadline; `NEVER` if no timer runs."""
        heap = self._heap
        while heap and heap[0][2].deadline != heap[0][0]:
            heappop(heap)
        return heap[0][0] if heap else NEVER

    def fire(self, now: int) -> None:
        """Call `expired` of every owner whose timer is due, in the order of the deadlines."""
        while self.nearest() <= now:
            owner = heappop(self._heap)[2]
            owner.deadline = NEVER
            owner.expired()
