"""Follows what goes without a PDC: RUDI requests and their responses, UUD (pds.md §15).

The messages in RUDI requests are those of `tracker_ses`, with pkt_id in place of the PSN.
"""

from enum import Enum, auto
from typing import Any, NamedTuple

from uetproto.audit.finding import Flow
from uetproto.audit.flows import Flows
from uetproto.audit.judge import Judge
from uetproto.audit.reader.address import ends
from uetproto.audit.reader.observed import Head, ObservedPacket, head_class
from uetproto.audit.reader.options import Options
from uetproto.audit.ses.tracker import SesTracker
from uetproto.audit.ses.tracker_sender import MessageSender
from uetproto.wire.headers.uet_pds import RUDI_REQ, RUDI_RESP, UUD_REQ

PKT_IDS = 4_096
"""Requests of a flow that are remembered."""


class RudiEvent(Enum):
    """State: `RudiExchange`, of UUD `AuditedDatagram`."""

    REQUEST = auto()
    """The first copy that was seen of a RUDI request."""
    AGAIN = auto()
    """Another one with its pkt_id, from and to the same; `first` is the other."""
    RESPONSE = auto()
    """A RUDI response."""
    SILENT = auto()
    """A request to which no response was seen."""
    DATAGRAM = auto()
    """A UUD request."""


class Numbered(NamedTuple):
    """The head of a RUDI packet, as the messages of a PDC see one."""

    psn: int
    next_hdr: int
    retx: int
    form: str = RUDI_REQ.name


class RudiFlow:
    """The requests from one address to another: `PdcDirection` of the messages."""

    __slots__ = ("dst", "exchanges", "last_ns", "ses", "src")

    def __init__(self, src: int, dst: int) -> None:
        self.src = src
        self.dst = dst
        self.last_ns = 0
        self.exchanges: dict[int, RudiExchange] = {}
        """By pkt_id; the oldest are forgotten."""
        self.ses: Any = None

    def flow(self) -> Flow:
        return ends(self.src, self.dst)


class RudiExchange:
    """A RUDI request, and whether it was answered."""

    __slots__ = ("answered", "first", "pkt_id", "rudi")

    def __init__(self, rudi: RudiFlow, pkt_id: int, first: ObservedPacket | None) -> None:
        self.rudi = rudi
        self.pkt_id = pkt_id
        self.first = first
        """Its first copy; None: not seen."""
        self.answered = False

    def flow(self) -> Flow:
        return {**self.rudi.flow(), "pkt_id": self.pkt_id}


class AuditedDatagram(NamedTuple):
    """A UUD request."""

    src: int
    dst: int

    def flow(self) -> Flow:
        return ends(self.src, self.dst)


class RudiTracker:
    """RUDI and UUD. A response finds its request by addresses and pkt_id."""

    def __init__(self, judge: Judge, options: Options, ses: SesTracker) -> None:
        self._request = judge.on(RudiEvent.REQUEST)
        self._again = judge.on(RudiEvent.AGAIN)
        self._response = judge.on(RudiEvent.RESPONSE)
        self._silent = judge.on(RudiEvent.SILENT)
        self._datagram = judge.on(RudiEvent.DATAGRAM)
        self._ses = ses
        self._flows: Flows[tuple[int, int], RudiFlow] = Flows(options.max_flows, self._gone)

    @property
    def forgotten(self) -> dict[str, int]:
        return self._flows.forgotten

    def see(self, seen: ObservedPacket) -> None:
        """A RUDI or UUD packet."""
        kind = type(seen.head)
        if kind is _REQUEST:
            self._take_request(seen)
        elif kind is _RESPONSE:
            self._take_response(seen)
        elif kind is _DATAGRAM:
            self._datagram(AuditedDatagram(seen.src, seen.dst), seen)

    def _flow(self, src: int, dst: int, now: int) -> RudiFlow:
        rudi = self._flows.by_key.get((src, dst))
        if rudi is None:
            rudi = self._flows.by_key[src, dst] = RudiFlow(src, dst)
            rudi.ses = MessageSender(rudi, loose=True)
        rudi.last_ns = now
        return rudi

    def _take_request(self, seen: ObservedPacket) -> None:
        rudi = self._flow(seen.src, seen.dst, seen.time_ns)
        pkt_id: int = seen.head.pkt_id
        exchange = rudi.exchanges.get(pkt_id)
        if exchange is not None and exchange.first is not None:
            self._again(exchange, seen)
            if None in (seen.content, exchange.first.content) or seen.content == exchange.first.content:
                return
        exchange = rudi.exchanges[pkt_id] = RudiExchange(rudi, pkt_id, seen)
        if len(rudi.exchanges) > 2 * PKT_IDS:
            for old in list(rudi.exchanges)[:PKT_IDS]:
                self._over(rudi.exchanges.pop(old))
        self._request(exchange, seen)
        self._ses.request(rudi, _numbered(seen), True)

    def _take_response(self, seen: ObservedPacket) -> None:
        rudi = self._flow(seen.dst, seen.src, seen.time_ns)
        pkt_id: int = seen.head.pkt_id
        exchange = rudi.exchanges.get(pkt_id) or RudiExchange(rudi, pkt_id, None)
        exchange.answered = True
        self._response(exchange, seen)
        self._ses.response(rudi, _numbered(seen), pkt_id)

    def _over(self, exchange: RudiExchange) -> None:
        if exchange.first is not None and not exchange.answered:
            self._silent(exchange, exchange.first)

    def _gone(self, rudi: RudiFlow) -> None:
        for exchange in rudi.exchanges.values():
            self._over(exchange)
        self._ses.close(rudi)

    def sweep(self, now_ns: int) -> None:
        if self._flows.is_due():
            self._flows.sweep(now_ns)

    def end(self) -> None:
        """The capture ends: what is not answered yet may be answered behind its end."""


def _numbered(seen: ObservedPacket) -> ObservedPacket:
    head: Head = seen.head
    return seen._replace(head=Numbered(head.pkt_id, head.next_hdr, head.retx))


_REQUEST: Any = head_class(RUDI_REQ.name)
_RESPONSE: Any = head_class(RUDI_RESP.name)
_DATAGRAM: Any = head_class(UUD_REQ.name)
