# SPDX-License-Identifier: GPL-2.0-only
"""This module limits the number of open conversations. It drops conversations that are silent; if too many are left, it
drops the least recent ones. It counts what it drops."""

from bisect import bisect_left
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import Generic, Protocol, TypeVar

SILENT = 60 * 10**9
"""Time without a packet after which a flow is taken as ended, in nanoseconds."""

SWEEP = 4096
"""Least number of packets between two calls of `Flows.sweep`."""

PER_PACKET = 4
"""Number of flows that `Flows.sweep` may visit for each packet of the capture. With a value below 2, sweeps would not
keep up with short flows."""


class Flowing(Protocol):
    """This protocol describes a conversation that `Flows` holds."""

    @property
    def last_ns(self) -> int:
        """Return the time of the last packet of the conversation in nanoseconds."""


class Bounded(Protocol):
    """This protocol describes a table that holds the flows of one type at one vantage point."""

    most: int
    """Greatest number of flows of this type that all vantage points together keep."""
    since: int | None
    """Time in nanoseconds: the next sweep drops the flows whose last packet is older. It is None unless all tables of
    this type together hold too many flows."""

    def __len__(self) -> int: ...

    def times(self) -> Iterable[int]:
        """Return the time of the last packet of each flow in nanoseconds."""


def choose_surplus(tables: Sequence[Bounded]) -> None:
    """If tables of one type together hold too many flows, set their `since` so that the next sweep drops the least
    recent flows."""
    most = tables[0].most
    if sum(map(len, tables)) > most:
        times = sorted((time for table in tables for time in table.times()), reverse=True)
        for table in tables if len(times) > most else ():
            table.since = times[most - 1]


K = TypeVar("K", bound=Hashable)
F = TypeVar("F", bound=Flowing)


class Flows(Generic[K, F]):
    """This class maps keys to flows, which are conversations; several keys may lead to the same flow. `sweep` limits
    the number of flows."""

    __slots__ = ("_forgotten", "_waited", "by_key", "evicted", "most", "silent", "since")

    def __init__(self, most: int, forgotten: Callable[[F], None] = lambda _: None) -> None:
        """Make an empty map. `most` is the number of flows that a sweep keeps; `forgotten` is called with each flow
        that is dropped."""
        self.most = most
        self.since: int | None = None
        self._forgotten = forgotten
        self.by_key: dict[K, F] = {}
        self.silent = 0
        self.evicted = 0
        self._waited = 0

    @property
    def forgotten(self) -> dict[str, int]:
        """Return how many flows were dropped, by reason: silent flows, and flows that were evicted because there were
        too many."""
        return {"silent": self.silent, "evicted": self.evicted}

    def __iter__(self) -> Iterator[F]:
        """Yield every flow once."""
        return iter({id(flow): flow for flow in self.by_key.values()}.values())

    def __len__(self) -> int:
        """Return the number of keys."""
        return len(self.by_key)

    def times(self) -> Iterator[int]:
        """Yield the time of the last packet of each flow in nanoseconds."""
        return (flow.last_ns for flow in self)

    def is_due(self) -> bool:
        """Return whether enough packets have passed since the last sweep that another sweep costs little per packet.
        The caller asks every `SWEEP` packets."""
        self._waited += SWEEP
        if self._waited * PER_PACKET < len(self.by_key) and self.since is None:
            return False
        self._waited = 0
        return True

    def sweep(self, now: int) -> None:
        """Drop the flows that are silent at `now` (nanoseconds). If too many flows are left, drop the least recent of
        them."""
        over = [flow for flow in self if flow.last_ns < now - SILENT]
        self.silent += len(over)
        if len(self.by_key) > self.most or self.since is not None:  # several keys may lead to one flow
            heard = sorted((flow for flow in self if flow.last_ns >= now - SILENT), key=lambda flow: flow.last_ns)
            surplus = max(0, len(heard) - self.most)
            if self.since is not None:
                surplus = max(surplus, bisect_left(heard, self.since, key=lambda flow: flow.last_ns))
                self.since = None
            self.evicted += surplus
            over += heard[:surplus]
        if over:
            gone = {id(flow) for flow in over}
            self.by_key = {key: flow for key, flow in self.by_key.items() if id(flow) not in gone}
            for flow in over:
                self._forgotten(flow)
