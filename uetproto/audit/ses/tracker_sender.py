"""The messages of one direction of a PDC, or of RUDI between two addresses; all that is kept of them is bounded."""

from typing import Any, Protocol

from uetproto.audit.finding import Flow
from uetproto.audit.ses.tracker_answers import ReturnedData
from uetproto.audit.ses.tracker_message import AuditedMessage

PSNS = 2_048
"""PSNs of a direction that are remembered, at least; at most twice as many."""
MESSAGES = 1_024
"""Likewise messages."""


class MessageDirection(Protocol):
    """One direction of a PDC (`audit/pds/tracker_state.py`), or of RUDI."""

    ses: Any
    """What `SesTracker.open` returned."""

    def flow(self) -> Flow: ...


class MessageSender:
    """The messages of one direction of a PDC."""

    __slots__ = ("current", "direction", "echoed", "loose", "messages", "mtu", "refused", "rod", "sent")

    def __init__(self, direction: MessageDirection, loose: bool = False) -> None:
        self.direction = direction
        self.loose = loose
        """RUDI: its numbers need not be a sequence, so that neighbours say nothing."""
        self.messages: dict[int, AuditedMessage] = {}
        """The last one with each id."""
        self.sent: dict[int, tuple[AuditedMessage | ReturnedData, int]] = {}
        """By PSN: whose packet, and its number."""
        self.current: AuditedMessage | None = None
        """The one whose packet was seen last."""
        self.mtu = 0
        """Payload MTU that the last message of several packets showed."""
        self.rod = False
        self.echoed: set[int] = set()
        """Reads whose data had their own id as response_message_id; two at most."""
        self.refused: dict[tuple[int, ...], tuple[int, int, int]] = {}
        """By index: generation that was refused with DISABLED_GEN, highest PSN of that, packet."""

    def flow(self) -> Flow:
        return self.direction.flow()

    def trim(self) -> None:
        """Forget the oldest."""
        shorten(self.sent, PSNS)
        shorten(self.messages, MESSAGES)


def shorten(kept: dict[Any, Any], least: int) -> None:
    """When there are twice as many as are to be kept, the older half goes."""
    if len(kept) > 2 * least:
        for key in list(kept)[: len(kept) - least]:
            del kept[key]
