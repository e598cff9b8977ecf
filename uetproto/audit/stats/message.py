# SPDX-License-Identifier: GPL-2.0-only
"""This module measures a message and its requests while they are open. A request is *open* from its first copy until an
ACK covers it."""

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

from uetproto.audit.finding import Flow
from uetproto.audit.stats.rows import MessageRow
from uetproto.wire.flow_crc import NOTHING


class OpenRequest:
    """This class holds a request that is open: a copy of it was seen, and no ACK covers it yet."""

    __slots__ = ("cause", "is_open", "last_ns", "length", "message", "once", "size", "time_ns")

    def __init__(self, time_ns: int, length: int, size: int, cause: str | None) -> None:
        self.time_ns = self.last_ns = time_ns
        self.length = length
        self.size = size
        self.is_open = False
        self.cause = cause
        """Reason why the first copy that was seen is a retransmission, or None if that copy is no retransmission."""
        self.once = cause is None
        """Whether the request was sent only once, so that an ACK can only answer that copy."""
        self.message: MessageMeter | None = None


@dataclass(slots=True, eq=False)
class MessageMeter:
    """This class holds the measurements of a message that is open."""

    key: Any
    """Key of the message in its flow: the tracker's state of the message or, for RoCE, the first PSN of the message."""
    psn: int
    opcode: str
    first_ns: int
    message_id: int | None = None
    length: int | None = None
    last_ns: int | None = None
    """Time of the last response in nanoseconds, or None if no response was seen."""
    begun: bool = False
    """Whether the first packet of the message was seen."""
    end: int | None = None
    """PSN of the last packet of the message, or None if it was not seen."""
    is_over: bool = False
    expected: int = 0
    """Number of bytes that the target returns if the message succeeds."""
    returned: int = 0
    waiting: int = 0
    """Number of packets of the message that no ACK covers yet."""
    packets: int = 0
    bytes: int = 0
    payload: int = 0
    resent: defaultdict[str, int] = field(default_factory=lambda: defaultdict(int))

    def add(self, request: OpenRequest) -> None:
        """Count a request packet of the message."""
        self.packets += 1
        self.bytes += request.length
        self.payload += request.size
        if request.cause is not None:
            self.resent[request.cause] += 1
        request.message = self
        self.waiting += request.is_open

    @property
    def latency(self) -> int | None:
        if not self.begun or self.end is None or self.waiting or self.last_ns is None:
            return None
        return max(0, self.last_ns - self.first_ns)

    @property
    def is_complete(self) -> bool:
        """Return whether all packets of the message were seen."""
        return getattr(self.key, "complete", False)

    def row(self, flow: Flow, latency: int | None) -> MessageRow:
        return MessageRow(
            flow=flow, opcode=self.opcode, message_id=self.message_id, psn=self.psn, length=self.length,
            first_ns=self.first_ns, packets=self.packets, bytes=self.bytes, payload=self.payload + self.returned,
            resent=dict(self.resent) or NOTHING, latency=latency,
        )  # fmt: skip
