"""Messages on ROD keep their order across retries: after a refusal, later ones to the same service wait (ses.md
§12)."""

from bisect import insort
from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from uetproto.engine.ses.transfer import MessageTransfer


class PeerOrder:
    """The ROD messages to one service (a resource index of a process at a peer), and which of them may be sent."""

    __slots__ = ("open", "refused", "waiting")

    def __init__(self) -> None:
        self.open: dict[int, MessageTransfer] = {}
        """Messages that were passed to PDS and have not ended, in the order of submission."""
        self.refused: list[MessageTransfer] = []
        """Open messages that were refused, oldest first; one is sent again only when no older message is open."""
        self.waiting: deque[MessageTransfer] = deque()
        """Later messages, which wait until no refused message is open."""

    def holds_back(self, transfer: "MessageTransfer") -> bool:
        """Add a new message; return True when the message must wait for an earlier message that was refused."""
        if self.refused:
            self.waiting.append(transfer)
            return True
        self.open[transfer.number] = transfer
        return False

    def is_oldest(self, transfer: "MessageTransfer") -> bool:
        """Return True when no older message is open; an older one that is refused must be sent again first."""
        return next(iter(self.open), transfer.number) == transfer.number

    def refuse(self, transfer: "MessageTransfer") -> bool:
        """Note a refused message; return True when it is the oldest open one, which is sent again first."""
        if transfer not in self.refused:
            insort(self.refused, transfer, key=lambda other: other.number)
        return self.is_oldest(transfer)

    def leave(self, transfer: "MessageTransfer") -> "list[MessageTransfer]":
        """Remove a message that ended; return the messages that may be sent now."""
        self.open.pop(transfer.number, None)
        if transfer in self.refused:
            self.refused.remove(transfer)
        if self.refused:
            return self.refused[:1] if self.is_oldest(self.refused[0]) else []
        waiting = list(self.waiting)
        self.waiting.clear()
        self.open.update((one.number, one) for one in waiting)
        return waiting
