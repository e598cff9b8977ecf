# SPDX-License-Identifier: GPL-2.0-only
"""This module has the records that rules get with events about two packets or two messages: an answer and its request,
two messages of which one interrupts the other, and two messages with the same id."""

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
    """This record holds a response in an ACK, and the packet that the response answers."""

    sender: MessageSender
    psn: int | None
    request: AuditedMessage | ReturnedData | None
    """Message or read data that the response answers, or None if it was not seen."""
    number: int
    """Number of the packet that the response answers."""
    earlier: GuaranteedAnswer | None
    """Guaranteed response that was seen earlier for the same PSN, or None."""
    success: int | None = None
    """Number of a packet in which SES reports success for the same PSN, or None."""
    cleared: int | None = None
    """Newest CLEAR_PSN of the source of a PDC, or None if there was none. It is always None for RUDI."""

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
    """This record describes two messages whose packets are interleaved, or two messages in sequence of which the second
    begins without SOM."""

    psn: int
    message_id: int | None
    number: int
    """Number of a packet of one of the two messages. The packet of the event belongs to the other one of the two."""


@dataclass(slots=True)
class RepeatedId(AboutMessage):
    """This record describes a message that has the message_id of an earlier message."""

    psn: int | None
    """PSN of an unacknowledged packet of the earlier message, or None if all packets of that message were
    acknowledged."""
    number: int
    """Number of the packet with the PSN `psn`; if `psn` is None, the number of any packet of the earlier message."""
