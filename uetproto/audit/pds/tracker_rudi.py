# SPDX-License-Identifier: GPL-2.0-only
"""This module follows packets without a PDC: RUDI requests and their responses, and UUD requests (pds.md §15).

The tracker of messages follows the contents of RUDI packets; it gets the pkt_id in place of the PSN.
"""

from dataclasses import dataclass, field
from enum import auto
from typing import Any, NamedTuple

from uetproto.audit.contract import MessageTracker
from uetproto.audit.finding import Flow
from uetproto.audit.flows import Flows
from uetproto.audit.judge import Judge
from uetproto.audit.reader.address import ends
from uetproto.audit.reader.observed import Head, ObservedPacket, head_class
from uetproto.audit.reader.options import Options
from uetproto.audit.rule import Event
from uetproto.wire.headers.uet_pds import RUDI_REQ, RUDI_RESP, UUD_REQ

PKT_IDS = 4_096
"""Number of requests of a flow that remain when its oldest requests are dropped. This happens when the flow has twice
as many requests."""


class RudiEvent(Event):
    """This enumeration has the events of packets without a PDC. A rule gets a `RudiExchange` with each event, but an
    `AuditedDatagram` with `DATAGRAM`."""

    REQUEST = auto()
    """The first copy of a RUDI request was seen."""
    AGAIN = auto()
    """Another request came with the same pkt_id and the same addresses. `first` of the exchange is the earlier
    request."""
    RESPONSE = auto()
    """A RUDI response came."""
    SILENT = auto()
    """The tracker dropped a request, and no response to this request was seen."""
    DATAGRAM = auto()
    """A UUD request came."""


class RudiHead(NamedTuple):
    """This record has the header fields of a RUDI packet that the tracker of messages reads, under the names that they
    have on a PDC; `psn` is the pkt_id."""

    psn: int
    next_hdr: int
    retx: int
    form: str = RUDI_REQ.name


@dataclass(slots=True, eq=False)
class RudiFlow:
    """This class holds the RUDI requests from one address to another. It implements `MessageDirection`."""

    src: int
    dst: int
    last_ns: int = 0
    exchanges: "dict[int, RudiExchange]" = field(default_factory=dict)
    """Maps a pkt_id to its request. The oldest entries are dropped."""
    ses: Any = None

    def flow(self) -> Flow:
        return ends(self.src, self.dst)


@dataclass(slots=True, eq=False)
class RudiExchange:
    """This class holds a RUDI request and whether it was answered."""

    rudi: RudiFlow
    pkt_id: int
    first: ObservedPacket | None
    """First copy of the request, or None if no copy was seen."""
    answered: bool = False

    def flow(self) -> Flow:
        return {**self.rudi.flow(), "pkt_id": self.pkt_id}


class AuditedDatagram(NamedTuple):
    """This record has the addresses of a UUD request; rules get it with the event `DATAGRAM`."""

    src: int
    dst: int

    def flow(self) -> Flow:
        return ends(self.src, self.dst)


class RudiTracker:
    """This class follows RUDI and UUD. It finds the request of a response by the addresses and the pkt_id."""

    __slots__ = ("_complete", "_request", "_response", "_ses", "_tell", "flows")

    def __init__(self, judge: Judge, options: Options, ses: MessageTracker) -> None:
        self._tell = tell = judge.rules.tell(RudiEvent)
        self._request, self._response = tell[RudiEvent.REQUEST], tell[RudiEvent.RESPONSE]
        self._ses = ses
        self._complete = options.complete
        self.flows: Flows[tuple[int, int], RudiFlow] = Flows(options.max_flows, self._gone)

    def see(self, seen: ObservedPacket) -> None:
        """Follow a RUDI or UUD packet."""
        kind = type(seen.head)
        if kind is _REQUEST:
            self._take_request(seen)
        elif kind is _RESPONSE:
            self._take_response(seen)
        elif kind is _DATAGRAM:
            self._tell[RudiEvent.DATAGRAM](AuditedDatagram(seen.src, seen.dst), seen)

    def _flow(self, src: int, dst: int, now: int) -> RudiFlow:
        rudi = self.flows.by_key.get((src, dst))
        if rudi is None:
            rudi = self.flows.by_key[src, dst] = RudiFlow(src, dst)
            rudi.ses = self._ses.open(rudi, ordered=False)
        rudi.last_ns = now
        return rudi

    def _take_request(self, seen: ObservedPacket) -> None:
        rudi = self._flow(seen.src, seen.dst, seen.time_ns)
        pkt_id: int = seen.head.pkt_id
        exchange = rudi.exchanges.get(pkt_id)
        if exchange is not None and exchange.first is not None:
            self._tell[RudiEvent.AGAIN](exchange, seen)
            if None in (seen.content, exchange.first.content) or seen.content == exchange.first.content:
                return
            if self._complete and not exchange.answered:
                return  # told: the answer is that to the first
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
            self._tell[RudiEvent.SILENT](exchange, exchange.first)

    def _gone(self, rudi: RudiFlow) -> None:
        for exchange in rudi.exchanges.values():
            self._over(exchange)
        rudi.exchanges.clear()
        self._ses.close(rudi)

    def sweep(self, now_ns: int) -> None:
        if self.flows.is_due():
            self.flows.sweep(now_ns)


def _numbered(seen: ObservedPacket) -> ObservedPacket:
    head: Head = seen.head
    return seen._replace(head=RudiHead(head.pkt_id, head.next_hdr, head.retx))


_REQUEST: Any = head_class(RUDI_REQ.name)
_RESPONSE: Any = head_class(RUDI_RESP.name)
_DATAGRAM: Any = head_class(UUD_REQ.name)
