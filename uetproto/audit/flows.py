"""The conversations that are open, and no more: what is silent or too many is forgotten, and counted."""

from collections.abc import Callable, Hashable, Iterator
from typing import Generic, Protocol, TypeVar

SILENT = 60 * 10**9
"""Nanoseconds without a packet after which a flow is over."""

SWEEP = 4096
"""Packets between two sweeps, at least."""

PER_PACKET = 4
"""Flows that may be looked at for each packet without being felt; less than two would not keep up with short ones."""


class Flowing(Protocol):
    """What is followed."""

    @property
    def last_ns(self) -> int:
        """When its last packet was seen."""


K = TypeVar("K", bound=Hashable)
F = TypeVar("F", bound=Flowing)


class Flows(Generic[K, F]):
    """Flows by key; several keys may lead to one flow. `sweep` from time to time keeps them bounded."""

    def __init__(self, most: int, forgotten: Callable[[F], None] = lambda _: None) -> None:
        """`most`: flows that are kept. `forgotten` is told of each that is dropped."""
        self._most = most
        self._forgotten = forgotten
        self.by_key: dict[K, F] = {}
        self.silent = 0
        """Dropped because nothing was heard of them."""
        self.evicted = 0
        """Dropped because there were too many."""
        self._waited = 0

    @property
    def forgotten(self) -> dict[str, int]:
        """What was dropped, by why."""
        return {"silent": self.silent, "evicted": self.evicted}

    def __iter__(self) -> Iterator[F]:
        """Each flow once."""
        return iter({id(flow): flow for flow in self.by_key.values()}.values())

    def is_due(self) -> bool:
        """Asked every `SWEEP` packets: whether so many have passed that a sweep costs each of them next to nothing."""
        self._waited += SWEEP
        if self._waited * PER_PACKET < len(self.by_key):
            return False
        self._waited = 0
        return True

    def sweep(self, now: int) -> None:
        """Drop what has been silent, and of the rest what was heard of least lately."""
        over = [flow for flow in self if flow.last_ns < now - SILENT]
        self.silent += len(over)
        if len(self.by_key) > self._most:  # several keys may be of one flow
            heard = sorted((flow for flow in self if flow.last_ns >= now - SILENT), key=lambda flow: flow.last_ns)
            evicted = heard[: max(0, len(heard) - self._most)]
            self.evicted += len(evicted)
            over += evicted
        if over:
            gone = {id(flow) for flow in over}
            self.by_key = {key: flow for key, flow in self.by_key.items() if id(flow) not in gone}
            for flow in over:
                self._forgotten(flow)
