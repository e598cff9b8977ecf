"""What comes back: responses in ACKs, read data in ACKs and in the return direction (ses.md §9)."""

from typing import TYPE_CHECKING, Any, NamedTuple

from uetproto.audit.finding import Flow
from uetproto.audit.reader.observed import Head, ObservedPacket, head_class
from uetproto.audit.ses.atomics import ELEMENT
from uetproto.audit.ses.tracker_message import DEFAULT, AuditedMessage
from uetproto.wire.headers.uet_ses import RESPONSE, RESPONSE_DATA, RESPONSE_DATA_SMALL

if TYPE_CHECKING:
    from uetproto.audit.ses.tracker_sender import MessageSender

PLAIN: Any = head_class(RESPONSE.name)
LONG: Any = head_class(RESPONSE_DATA.name)
SHORT: Any = head_class(RESPONSE_DATA_SMALL.name)
RESPONSES = frozenset({PLAIN, LONG, SHORT})


class ReturnedData:
    """Read data: one packet in the return direction, or in an ACK."""

    __slots__ = ("good", "in_ack", "job", "message", "number", "psn", "response_id", "sender", "sure")

    def __init__(
        self, sender: "MessageSender", message: AuditedMessage | None, seen: ObservedPacket, psn: int,
        in_ack: bool, sure: bool,
    ) -> None:  # fmt: skip
        self.sender = sender
        self.message = message
        """The read that it answers; None: not seen."""
        self.number = seen.number
        self.psn = psn
        """Its own, or in an ACK that of the request."""
        self.in_ack = in_ack
        self.sure = sure
        """It names the PSN of its request, or no packet is missing: else a read not seen may have had the same id."""
        self.job: int = seen.ses.job_id  # type: ignore[union-attr]  # read data has one
        self.response_id: int = getattr(seen.ses, "response_message_id", 0)

        self.good = (*DEFAULT, self.response_id, 0, self.job)
        """All but modified_length of the response to it."""

    def flow(self) -> Flow:
        return self.sender.flow() if self.message is None else self.message.flow()

    def offset(self, ses: Head) -> int:
        """Where in the read it belongs; the small form answers reads of one packet."""
        return int(getattr(ses, "message_offset", 0))

    def expected(self, ses: Head) -> int:
        """Bytes that the request of this offset asked for; -1: not known."""
        message = self.message
        if message is None:
            return -1
        if message.atomic is not None:
            return ELEMENT.get(message.atomic.atomic_datatype, -1)
        if message.head.som and message.head.eom:
            return message.length
        return min(message.mtu, message.length - self.offset(ses)) if message.mtu else -1


class AuditedAnswer(NamedTuple):
    """A response in an ACK, and the packet that it is for."""

    sender: "MessageSender"
    psn: int | None
    request: AuditedMessage | ReturnedData | None
    """None: not seen."""
    number: int
    """Of the packet that it is for."""
    earlier: tuple[Head, int] | None
    """A response for the same PSN that is not to be lost."""

    @property
    def message(self) -> AuditedMessage | None:
        return self.request if isinstance(self.request, AuditedMessage) else None

    @property
    def others(self) -> tuple[int, ...]:
        return () if self.request is None else (self.number,)

    def flow(self) -> Flow:
        flow = self.sender.flow() if self.request is None else self.request.flow()
        return {**flow, "psn": self.psn}


class Interruption(NamedTuple):
    """A packet between those of another message."""

    message: AuditedMessage
    psn: int
    message_id: int | None
    number: int
    """Of a packet of the other one."""

    def flow(self) -> Flow:
        return self.message.flow()


class RepeatedId(NamedTuple):
    """A message that has the id of an earlier one."""

    message: AuditedMessage
    psn: int | None
    """A packet of the earlier one that is not acknowledged; None: all are."""
    number: int
    """Of that packet, or of the earlier message."""

    def flow(self) -> Flow:
        return self.message.flow()
