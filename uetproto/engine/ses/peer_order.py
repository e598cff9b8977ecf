"""Order on ROD across retries: after a refusal all younger messages to the same service wait for their turn.

ses.md §12: per destination messages are numbered; a refused one goes first.
"""

from bisect import insort
from collections import deque
from typing import Generic, Protocol, TypeVar


class OrderedMessage(Protocol):
    """A message with its place in the order of submission."""

    @property
    def number(self) -> int: ...


T = TypeVar("T", bound=OrderedMessage)


class PeerOrder(Generic[T]):
    """Messages to one {FEP, RI} on ROD."""

    __slots__ = ("open", "refused", "waiting")

    def __init__(self) -> None:
        self.open: dict[int, T] = {}
        """Sent, and not at their end, in the order of submission."""
        self.refused: list[T] = []
        """Of these, refused and not yet accepted, oldest first; only the oldest open one is sent again."""
        self.waiting: deque[T] = deque()
        """Not sent at all."""

    def holds_back(self, transfer: T) -> bool:
        """A new message: it waits while a refused one is before it."""
        if self.refused:
            self.waiting.append(transfer)
            return True
        self.open[transfer.number] = transfer
        return False

    def is_oldest(self, transfer: T) -> bool:
        """No older message is under way, which may have been refused without our knowing it yet."""
        return next(iter(self.open), transfer.number) == transfer.number

    def refuse(self, transfer: T) -> bool:
        """A message was refused; True when it is the one whose turn it is."""
        if transfer not in self.refused:
            insort(self.refused, transfer, key=lambda other: other.number)
        return self.is_oldest(transfer)

    def leave(self, transfer: T) -> list[T]:
        """A message came to its end; those that go on now."""
        self.open.pop(transfer.number, None)
        if transfer in self.refused:
            self.refused.remove(transfer)
        if self.refused:
            return self.refused[:1] if self.is_oldest(self.refused[0]) else []
        waiting = list(self.waiting)
        self.waiting.clear()
        self.open.update((one.number, one) for one in waiting)
        return waiting
