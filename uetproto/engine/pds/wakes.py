# SPDX-License-Identifier: GPL-2.0-only
"""The wake queue of an endpoint says which PDC has a timer that is due next (pds.md §16).

Most times are a fixed interval after the present: an RTO, or the idle time. They come in ascending order, so that a
time nearly always is the last one of a run. Two runs, one for short and one for long intervals, keep an entry at the
same cost for any number of PDCs; a heap has the few times that fit neither.
"""

from collections import deque
from collections.abc import Iterable
from heapq import heappop, heappush

from uetproto.engine.contract import NEVER
from uetproto.engine.pds.pdc import Pdc

Wake = tuple[int, int, Pdc]
"""Time in picoseconds, number of the entry, and PDC."""

STALE = 1000
"""Number of stale entries that stay in the queue, in addition to two entries for each PDC."""


class WakeQueue:
    """This class has the time at which each PDC of an endpoint is looked at next.

    An entry counts if its time is `Pdc.wake_at`. It is stale if an earlier time of its PDC has come since, or if the
    PDC is closed. The entry of the idle time stays while earlier times come and go (`Pdc.idle_queued`).
    """

    __slots__ = ("_count", "_heap", "_late", "_soon", "head")

    def __init__(self) -> None:
        self._soon: deque[Wake] = deque()
        self._late: deque[Wake] = deque()
        self._heap: list[Wake] = []
        self._count = 0
        self.head: Wake | None = None
        """The first entry, stale or not, or None if there is none."""

    def __len__(self) -> int:
        return len(self._soon) + len(self._late) + len(self._heap)

    def put(self, at: int, pdc: Pdc) -> None:
        """Set `wake_at` of a PDC, and add an entry unless the one of its idle time has this time."""
        pdc.wake_at = at
        if at == pdc.idle_queued:
            return
        if at == pdc.idle_wake:
            pdc.idle_queued = at
        self._count += 1
        entry = at, self._count, pdc
        soon, late = self._soon, self._late
        if soon and late and soon[-1][0] > late[-1][0]:
            soon, late = self._soon, self._late = late, soon
        if late and at >= late[-1][0]:
            late.append(entry)
        elif not soon or at >= soon[-1][0]:
            soon.append(entry)
        elif not late:
            late.append(entry)
        else:
            heappush(self._heap, entry)
        if self.head is None or at < self.head[0]:
            self.head = entry

    def pop(self, now: int) -> Pdc | None:
        """Remove and return the first PDC whose time has come, with `wake_at` reset, or return None."""
        while (head := self.head) is not None and head[0] <= now:
            at, _, pdc = head
            self._drop()
            if pdc.wake_at == at:
                pdc.wake_at = NEVER
                return pdc
        return None

    def deadline(self) -> int:
        """Return the first time that counts, or NEVER if there is none."""
        while (head := self.head) is not None:
            if head[2].wake_at == head[0]:
                return head[0]
            self._drop()
        return NEVER

    def sweep(self, pdcs: Iterable[Pdc]) -> None:
        """Remove all entries that are stale; `pdcs` are the open PDCs."""
        kept = sorted((pdc.wake_at, number, pdc) for number, pdc in enumerate(pdcs) if pdc.wake_at != NEVER)
        for at, _, pdc in kept:
            pdc.idle_queued = at if at == pdc.idle_wake else NEVER
        self._soon, self._late, self._heap = deque(kept), deque(), []
        self.head = kept[0] if kept else None

    def _drop(self) -> None:
        """Remove the first entry; there is one."""
        soon, late, heap = self._soon, self._late, self._heap
        head = self.head
        if soon and soon[0] is head:
            soon.popleft()
        elif late and late[0] is head:
            late.popleft()
        else:
            heappop(heap)
        assert head is not None
        at, _, pdc = head
        if at == pdc.idle_queued:
            pdc.idle_queued = NEVER
        head = soon[0] if soon else None
        if late and (head is None or late[0] < head):
            head = late[0]
        self.head = heap[0] if heap and (head is None or heap[0] < head) else head
