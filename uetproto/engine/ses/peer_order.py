# SPDX-License-Identifier: GPL-2.0-only
"""Messages on ROD keep their order across retries. After a refusal, later messages to the same service wait (ses.md
§12)."""

from bisect import insort
from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from uetproto.engine.ses.transfer import MessageTransfer


class PeerOrder:
    """This class keeps the ROD messages to one service in order, and says which messages may be sent.

    A service is a resource index of a process at a peer.
    """

    __slots__ = ("open", "refused", "waiting")

    def __init__(self) -> None:
        self.open: dict[int, MessageTransfer] = {}
        """Messages that were passed to PDS and have not ended, in the order of submission."""
        self.refused: list[MessageTransfer] = []
        """Open messages that were refused, oldest first. A refused message is sent again only when no older message is
        open."""
        self.waiting: deque[MessageTransfer] = deque()
        """Messages that were not sent yet, and wait until no refused message is open."""

    def holds_back(self, transfer: "MessageTransfer") -> bool:
        """Add a new message, and return True if it must wait because an earlier message was refused."""
        if self.refused:
            self.waiting.append(transfer)
            return True
        self.open[transfer.number] = transfer
        return False

    def is_oldest(self, transfer: "MessageTransfer") -> bool:
        """Return True when no message that was submitted before `transfer` is open."""
        return next(iter(self.open), transfer.number) == transfer.number

    def refuse(self, transfer: "MessageTransfer") -> bool:
        """Store a refused message, and return True if it is the oldest open message, which may be sent again first."""
        if transfer not in self.refused:
            insort(self.refused, transfer, key=lambda other: other.number)
        return self.is_oldest(transfer)

    def leave(self, transfer: "MessageTransfer") -> "list[MessageTransfer]":
        """Remove a message that has ended, and return the messages that may be sent now."""
        self.open.pop(transfer.number, None)
        if transfer in self.refused:
            self.refused.remove(transfer)
        if self.refused:
            return self.refused[:1] if self.is_oldest(self.refused[0]) else []
        waiting = list(self.waiting)
        self.waiting.clear()
        self.open.update((one.number, one) for one in waiting)
        return waiting
