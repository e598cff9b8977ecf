"""Holds the states of events about two messages or packets: answers, interruptions, ids that are used again."""

from dataclasses import dataclass
from typing import Any, NamedTuple

from uetproto.audit.finding import Flow
from uetproto.audit.reader.observed import head_class
from uetproto.audit.ses.tracker_message import (
    AboutMessage,
    AuditedMessage,
    GuaranteedAnswer,
    MessageSender,
    ReturnedData,
)
from uetproto.wire.headers.uet_ses import RESPONSE, RESPONSE_DATA, RESPONSE_DATA_SMALL

PLAIN: Any = head_class(RESPONSE.name)
LONG: Any = head_class(RESPONSE_DATA.name)
SHORT: Any = head_class(RESPONSE_DATA_SMALL.name)
RESPONSES = frozenset({PLAIN, LONG, SHORT})


class AuditedAnswer(NamedTuple):
    """Holds a response in an ACK, and the packet that it answers."""

    sender: MessageSender
    psn: int | None
    request: AuditedMessage | ReturnedData | None
    """Holds the message or read data that the response answers; None: not seen."""
    number: int
    """Holds the number of the packet that the response answers."""
    earlier: GuaranteedAnswer | None
    """Holds a guaranteed response for the same PSN."""
    success: int | None = None
    """Holds the number of a packet in which SES reports success for the same PSN."""
    cleared: int | None = None
    """Holds the newest CLEAR_PSN of the source of a PDC; None if there was none, and always None for RUDI."""

    @property
    def message(self) -> AuditedMessage | None:
        return self.request if isinstance(self.request, AuditedMessage) else None

    @property
    def others(self) -> tuple[int, ...]:
        return () if self.request is None else (self.number,)

    def flow(self) -> Flow:
        flow = self.sender.flow() if self.request is None else self.request.flow()
        return {**flow, "psn": self.psn}


@dataclass(slots=True)
class Interruption(AboutMessage):
    """Holds a packet between those of another message."""

    psn: int
    message_id: int | None
    number: int
    """Holds the number of a packet of the other message."""


@dataclass(slots=True)
class RepeatedId(AboutMessage):
    """Holds a message that has the id of an earlier one."""

    psn: int | None
    """Holds the PSN of a packet of the earlier message that is not acknowledged; None: all are acknowledged."""
    number: int
    """Holds the number of that packet; if all are acknowledged, that of any packet of the earlier message."""
