"""Order on ROD across retries: after a refusal all younger messages to the same service wait for their turn.

ses.md §12: per destination messages are numbered; a refused one goes first.
"""

from bisect import insort
from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from uetproto.engine.ses_initiator import Transfer


class Lane:
    """Messages to one {FEP, RI} on ROD, as far as their order is in danger."""

    __slots__ = ("refused", "waiting")

    def __init__(self) -> None:
        self.refused: list[Transfer] = []
        """Refused and not yet accepted, oldest first; only the first one is sent again."""
        self.waiting: deque[Transfer] = deque()
        """Not sent at all."""

    def holds_back(self, transfer: "Transfer") -> bool:
        """A new message: it waits while a refused one is before it."""
        if self.refused:
            self.waiting.append(transfer)
            return True
        return False

    def refuse(self, transfer: "Transfer") -> bool:
        """A message was refused; True when it is the one whose turn it is."""
        if transfer not in self.refused:
            insort(self.refused, transfer, key=lambda other: other.number)
        return self.refused[0] is transfer

    def refused_before(self, transfer: "Transfer") -> bool:
        """An older message waits for its turn."""
        return bool(self.refused) and self.refused[0].number < transfer.number

    def leave(self, transfer: "Transfer") -> "list[Transfer]":
        """A message came to its end; those that go on now."""
        if transfer not in self.refused:
            return []
        self.refused.remove(transfer)
        if self.refused:
            return self.refused[:1]
        waiting = list(self.waiting)
        self.waiting.clear()
        return waiting
