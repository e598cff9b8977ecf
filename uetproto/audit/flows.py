"""This module limits the number of open conversations: those that are silent or too many are dropped and counted."""

from collections.abc import Callable, Hashable, Iterator
from typing import Generic, Protocol, TypeVar

SILENT = 60 * 10**9
"""Nanoseconds without a packet after which a flow is taken as ended."""

SWEEP = 4096
"""Least number of packets between two sweeps."""

PER_PACKET = 4
"""Number of flows that a sweep may visit for each packet; below 2, sweeps would not keep up with short flows."""


class Flowing(Protocol):
    """This protocol represents a conversation of `Flows`."""

    @property
    def last_ns(self) -> int:
        """Return the time of the last packet of the conversation in nanoseconds."""


K = TypeVar("K", bound=Hashable)
F = TypeVar("F", bound=Flowing)


class Flows(Generic[K, F]):
    """A map from keys to flows; several keys may lead to one flow. `sweep` limits the number of flows."""

    def __init__(self, most: int, forgotten: Callable[[F], None] = lambda _: None) -> None:
        """Make an empty table. `most`: flows that are kept. `forgotten` is called with each flow that is dropped."""
        self._most = most
        self._forgotten = forgotten
        self.by_key: dict[K, F] = {}
        self.silent = 0
        self.evicted = 0
        self._waited = 0

    @property
    def forgotten(self) -> dict[str, int]:
        """Return how many flows were dropped, by reason."""
        return {"silent": self.silent, "evicted": self.evicted}

    def __iter__(self) -> Iterator[F]:
        """Yield every flow once."""
        return iter({id(flow): flow for flow in self.by_key.values()}.values())

    def is_due(self) -> bool:
        """Return whether enough packets have passed for a sweep to cost little; called every `SWEEP` packets."""
        self._waited += SWEEP
        if self._waited * PER_PACKET < len(self.by_key):
            return False
        self._waited = 0
        return True

    def sweep(self, now: int) -> None:
        """Drop flows that are silent, and of the other flows the least recent ones if there are too many."""
        over = [flow for flow in self if flow.last_ns < now - SILENT]
        self.silent += len(over)
        if len(self.by_key) > self._most:  # several keys may lead to one flow
            heard = sorted((flow for flow in self if flow.last_ns >= now - SILENT), key=lambda flow: flow.last_ns)
            evicted = heard[: max(0, len(heard) - self._most)]
            self.evicted += len(evicted)
            over += evicted
        if over:
            gone = {id(flow) for flow in over}
            self.by_key = {key: flow for key, flow in self.by_key.items() if id(flow) not in gone}
            for flow in over:
                self._forgotten(flow)
