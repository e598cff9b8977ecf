# SPDX-License-Identifier: GPL-2.0-only
"""This module measures a flow, which is what one end of a conversation sends to the other end, while the conversation
is open.

A request is *open* from its first copy until an ACK covers it. A meter keeps open requests and open messages. Of closed
requests and messages, it keeps counts and histograms only.
"""

from collections import defaultdict
from typing import Any, NamedTuple, Protocol

from uetproto.audit.finding import Flow
from uetproto.audit.stats.message import MessageMeter, OpenRequest
from uetproto.audit.stats.rows import FlowRow
from uetproto.audit.stats.times import Times
from uetproto.audit.stats.trace import Trace
from uetproto.wire.flow_crc import NOTHING

MESSAGES = 1_024
"""Greatest number of messages that a meter keeps open; when there are more, the older half is closed."""
NOTES = 4_096
"""Greatest number of refused PSNs, and of trimmed PSNs, that a meter keeps. If there are more, the oldest is
dropped."""

TRIMMED, TIMER, UNKNOWN = "trimmed", "RTO?", "unknown"
"""Causes of a retransmission besides the code of a NACK. `TRIMMED`: a trimmed copy was seen. `TIMER`: only an earlier
copy was seen, so that the timer may have expired, or the source inferred a loss. `UNKNOWN`: nothing was seen."""


class MeterOwner(Protocol):
    """This protocol describes the part of `Meters` that a flow's meter uses."""

    requests: int
    """Greatest number of requests that a meter keeps open; when there are more, the older half is dropped."""

    def over(self, flow: "FlowMeter", message: "MessageMeter", latency: int | None) -> None:
        """Take the measurements of a message that is closed. Its latency is passed, so that all share one number."""


class Rewound(NamedTuple):
    """This record describes a NACK after which all PSNs from `start` to `last` have to be sent again."""

    start: int
    last: int
    code: str
    time_ns: int
    obeyed: dict[int, None]
    """PSNs of this range that were sent again since: the NACK is not the cause if they are sent once more."""


class FlowMeter:
    """This class is a meter: it measures what one end of a conversation sends to the other end."""

    __slots__ = (
        "_flow", "acks", "answered", "busy_ns", "bytes", "cack", "cut", "depth", "duplicates", "first_ns",
        "half", "kind", "last_ns", "latency", "marked", "mask", "messages", "newest", "nothing", "number_of_messages",
        "outstanding", "outstanding_bytes", "owner", "packets", "payload", "refusals", "refused", "reordered",
        "request", "resent", "returned", "rewound", "state", "trace", "trimmed", "window_bytes", "window_packets",
    )  # fmt: skip

    def __init__(self, kind: str, state: Any, mask: int, time_ns: int, owner: MeterOwner) -> None:
        """Open a meter. `state` is the tracker's state of the flow, and `mask` is the largest PSN."""
        self.kind = kind
        self.state = state
        self.owner = owner
        self.mask, self.half = mask, mask // 2 + 1
        self.first_ns = self.last_ns = self.busy_ns = time_ns
        """Hold times of packets and ACKs; `busy_ns` is the last time at which payload was sent or acknowledged."""
        self.packets = self.bytes = self.payload = self.returned = 0
        self.duplicates = self.trimmed = self.marked = self.acks = 0
        self.resent: defaultdict[str, int] = defaultdict(int)
        self.refusals: defaultdict[str, int] = defaultdict(int)

        self.newest: int | None = None
        """Newest PSN of a first transmission."""
        self.reordered = self.depth = 0
        self.outstanding: dict[int, OpenRequest] = {}
        """Maps a PSN to its open request."""
        self.outstanding_bytes = 0
        self.window_packets = self.window_bytes = 0
        self.cack: int | None = None
        """PSN up to which all is acknowledged."""
        self.nothing = True
        """Whether no ACK was seen."""
        self.request: OpenRequest | None = None
        """Request that was seen last, for the message that it belongs to."""
        self.refused: dict[int, str] = {}
        """Maps a PSN that was not sent again yet to the code of the NACK that refused it."""
        self.rewound: Rewound | None = None
        self.cut: dict[int, None] = {}
        """PSNs that were seen trimmed and were not sent again yet."""

        self.messages: dict[Any, MessageMeter] = {}
        """Maps the tracker's state of a message, or its first PSN, to the open message."""
        self.number_of_messages = 0
        self.answered, self.latency = Times(), Times()
        self._flow: Flow = NOTHING
        self.trace: Trace | None = None

    # Packets sent -----------------------------------------------------------------------------------------------------

    def count(self, length: int, time_ns: int, marked: bool) -> None:
        """Count a packet that this end sent. `length` is its number of bytes on the wire, and `marked` says that it has
        CE."""
        self.packets += 1
        self.bytes += length
        self.last_ns = time_ns
        if marked:
            self.marked += 1

    def carried(self, size: int, time_ns: int) -> None:
        """Count `size` bytes of payload that were not seen before."""
        if size:
            self.payload += size
            self.busy_ns = time_ns

    def first(self, psn: int, length: int, size: int, time_ns: int, again: bool) -> None:
        """Count the first copy of a request that was seen. `length` is the number of bytes of this copy on the wire,
        and `size` is the number of bytes of its payload. `again` says that this copy is a retransmission."""
        self.carried(size, time_ns)
        cause = None
        if again:
            cause = self.cause_of(psn, None)
            self.resent[cause] += 1
        else:
            self._order(psn)
        request = self.request = OpenRequest(time_ns, length, size, cause)
        if self.trace is not None:
            self.trace.add(self.trace.sent if cause is None else self.trace.resent, psn, time_ns)
        if self.cack is not None and (self.cack - psn) & self.mask < self.half:
            return  # its ACK was seen before
        outstanding = self.outstanding
        if psn in outstanding:  # another connection, with the same PSN
            self.outstanding_bytes -= outstanding[psn].size
        outstanding[psn] = request
        request.is_open = True
        self.outstanding_bytes += size
        if len(outstanding) > self.owner.requests:  # no window is so wide
            self._drop_oldest()
        elif len(outstanding) > self.window_packets:
            self.window_packets = len(outstanding)
        if self.outstanding_bytes > self.window_bytes:
            self.window_bytes = self.outstanding_bytes

    def again(self, psn: int, length: int, time_ns: int, retransmitted: bool) -> None:
        """Count another copy of a request. `retransmitted` says that this copy is marked as a retransmission; a copy
        that the network made has no such mark."""
        if not retransmitted:
            self.duplicates += 1
            return
        request = self.outstanding.get(psn)
        cause = self.cause_of(psn, request)
        if cause == UNKNOWN:
            cause = TIMER
        self.resent[cause] += 1
        if request is not None:
            request.once = False
            request.last_ns = time_ns
            if request.message is not None:
                request.message.packets += 1
                request.message.bytes += length
                request.message.resent[cause] += 1
        if self.trace is not None:
            self.trace.add(self.trace.resent, psn, time_ns)

    def trim(self, psn: int, time_ns: int) -> None:
        """Count a request that a switch trimmed."""
        self.trimmed += 1
        self.cut[psn] = None
        if len(self.cut) > NOTES:
            del self.cut[next(iter(self.cut))]
        if self.trace is not None:
            self.trace.add(self.trace.trimmed, psn, time_ns)

    def cause_of(self, psn: int, request: OpenRequest | None) -> str:
        """Return why a PSN is sent again: the code of a NACK, `TRIMMED` or `UNKNOWN`. The cause is then forgotten."""
        is_cut = psn in self.cut
        self.cut.pop(psn, None)
        refused = self.refused.pop(psn, None)
        rewound = self.rewound
        if rewound is not None and self.is_rewound(psn) and psn not in rewound.obeyed:
            rewound.obeyed[psn] = None
            if len(rewound.obeyed) > NOTES:
                del rewound.obeyed[next(iter(rewound.obeyed))]
            if refused is None and (request is None or request.last_ns <= rewound.time_ns):
                refused = rewound.code
        if refused is not None:
            return refused
        return TRIMMED if is_cut else UNKNOWN

    def is_rewound(self, psn: int) -> bool:
        """Return whether this PSN is in the range of PSNs that a NACK demanded to be sent again."""
        if self.rewound is None:
            return False
        start = self.rewound.start
        return (psn - start) & self.mask <= (self.rewound.last - start) & self.mask

    def _order(self, psn: int) -> None:
        newest = self.newest
        if newest is None or 0 < (psn - newest) & self.mask < self.half:
            self.newest = psn
            return
        self.reordered += 1
        depth = (newest - psn) & self.mask
        if depth > self.depth:
            self.depth = depth

    def _drop_oldest(self) -> None:
        """Drop the older half of the open requests: no ACK comes."""
        for psn in list(self.outstanding)[: len(self.outstanding) // 2]:
            request = self.outstanding.pop(psn)
            request.is_open = False
            self.outstanding_bytes -= request.size
            if request.message is not None:
                request.message.begun = False  # the latency of the message will not be known

    # ACKs and NACKs ---------------------------------------------------------------------------------------------------

    def acknowledged_to(self, cack: int, time_ns: int) -> None:
        """Note an ACK of all PSNs up to `cack`."""
        self.nothing = False
        self.last_ns = max(self.last_ns, time_ns)
        before, outstanding, mask = self.cack, self.outstanding, self.mask
        if before is not None and not 0 < (cack - before) & mask < self.half:
            return
        self.cack = cack
        if self.trace is not None:
            self.trace.add(self.trace.acknowledged, cack, time_ns)
        if before is not None and (cack - before) & mask <= len(outstanding):
            for step in range(1, ((cack - before) & mask) + 1):
                psn = (before + step) & mask
                if psn in outstanding:
                    self.acknowledged(psn, time_ns)
            return
        for psn in [psn for psn in outstanding if (cack - psn) & mask < self.half]:
            self.acknowledged(psn, time_ns)

    def acknowledged(self, psn: int, time_ns: int) -> None:
        """Note an ACK of this PSN."""
        request = self.outstanding.pop(psn, None)
        if request is None:
            return
        self.nothing = False
        self.last_ns = max(self.last_ns, time_ns)
        request.is_open = False
        self.outstanding_bytes -= request.size
        if request.size:
            self.busy_ns = time_ns
        if request.once and time_ns >= request.time_ns:
            self.answered.add(time_ns - request.time_ns)
        message = request.message
        if message is not None:
            message.waiting -= 1
            message.last_ns = time_ns
            if not message.waiting:
                self.close_if_complete(message)

    def refuse(self, code: str, psn: int, time_ns: int) -> None:
        """Note a NACK that refuses this PSN with `code`."""
        self.refusals[code] += 1
        self.refused[psn] = code
        if len(self.refused) > NOTES:
            del self.refused[next(iter(self.refused))]
        if self.trace is not None:
            self.trace.add(self.trace.refused, psn, time_ns)

    def rewind(self, code: str, psn: int, time_ns: int) -> None:
        """Note that a NACK with `code` demands that all requests from this PSN on be sent again."""
        newest = self.newest
        if newest is None or (newest - psn) & self.mask >= self.half:
            newest = psn
        self.rewound = Rewound(psn, newest, code, time_ns, {})

    # Messages ---------------------------------------------------------------------------------------------------------

    def begin(self, message: MessageMeter) -> None:
        """Add the meter of a message that begins."""
        before = self.messages.get(message.key)
        if before is not None:  # another connection, with the same PSN
            self._close(before)
        self.number_of_messages += 1
        self.messages[message.key] = message
        if len(self.messages) > MESSAGES:
            for old in list(self.messages.values())[: MESSAGES // 2]:
                self._close(old)

    def carry(self, message: MessageMeter) -> None:
        """Add the request that was seen last to `message`, to which it belongs."""
        request = self.request
        if request is not None and request.message is None:
            message.add(request)

    def add_returned(self, message: MessageMeter, size: int, time_ns: int) -> None:
        """Add `size` bytes of data for which a message asked."""
        message.returned += size
        message.last_ns = time_ns
        if not message.waiting:
            self.close_if_complete(message)

    def close_if_complete(self, message: MessageMeter) -> None:
        """Close a message if all its packets are acknowledged and all data for which it asked has come."""
        end = message.end
        if end is None or message.is_over or message.returned < message.expected:
            return
        if message.is_complete or (self.cack is not None and (self.cack - end) & self.mask < self.half):
            self._close(message)

    def _close(self, message: MessageMeter) -> None:
        del self.messages[message.key]
        message.is_over = True
        latency = message.latency
        if latency is not None:
            self.latency.add(latency)
        self.owner.over(self, message, latency)

    # Another connection -----------------------------------------------------------------------------------------------

    def begin_again(self) -> None:
        """Close all open messages and requests, because another connection begins."""
        for message in list(self.messages.values()):
            self._close(message)
        self.outstanding.clear()
        self.outstanding_bytes = 0
        self.newest = self.cack = self.request = self.rewound = None
        self.refused.clear()
        self.cut.clear()

    # The end ----------------------------------------------------------------------------------------------------------

    def end(self) -> None:
        """Close the open messages."""
        for message in list(self.messages.values()):
            self._close(message)

    def flow(self) -> Flow:
        """Return a map with the addresses and numbers of the flow. All rows of the flow share this map."""
        flow: Flow = self.state.flow()
        if flow != self._flow:
            self._flow = flow
        return self._flow

    def row(self) -> FlowRow:
        """Return the row of the closed flow."""
        return FlowRow(
            kind=self.kind, flow=self.flow(), number=getattr(self.state, "number", 1),
            mode=getattr(self.state, "mode", None), first_ns=self.first_ns, last_ns=self.last_ns, busy_ns=self.busy_ns,
            packets=self.packets, bytes=self.bytes, payload=self.payload, returned=self.returned,
            resent=dict(self.resent) or NOTHING, duplicates=self.duplicates, trimmed=self.trimmed, marked=self.marked,
            reordered=self.reordered, depth=self.depth, acks=self.acks, refused=dict(self.refusals) or NOTHING,
            window=None if self.nothing else (self.window_packets, self.window_bytes),
            answered=self.answered.quantiles(), messages=self.number_of_messages, latency=self.latency.quantiles(),
        )  # fmt: skip
