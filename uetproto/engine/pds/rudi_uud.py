# SPDX-License-Identifier: GPL-2.0-only
"""This module delivers packets without a PDC: RUDI retransmits a request until it is answered, UUD never retransmits.

UE 1.0.1 §3.5.7.3, §3.5.7.4, §3.5.12.7; pds.md §3, §11, §12 (nt = 1), §14, §15. The destination keeps no state between
packets.
"""

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from uetproto.engine.contract import NEVER, Buffer, Datagram, Mode, PdcErrorReason, PdsError, TrafficClass, Trim
from uetproto.engine.pds.messages import Nack, Rudi, Uud
from uetproto.engine.pds.nacks import FATAL_CODES, NACKS
from uetproto.engine.pds.retransmit import NACK_INFINITE, RTO, RTO_INFINITE, rto_waits
from uetproto.engine.pds.service import SES_SIZE, Outgoing, Refusal, Response, is_no_response
from uetproto.engine.train_splits import Split
from uetproto.errors import LocalError
from uetproto.wire.headers.uet_pds import NackCode, NextHdr

if TYPE_CHECKING:
    from uetproto.engine.pds.sublayer import Pds

_M32 = 0xFFFFFFFF
_ALONE = Split.MODE.number
RUDI_WINDOW = 1024
"""Number of RUDI requests that may be outstanding; the specification sets no limit, and RUDI has no congestion
control."""

REPEATING = frozenset({
    NackCode.TRIMMED, NackCode.TRIMMED_LASTHOP,
    NackCode.NO_PKT_BUFFER, NackCode.NO_SES_MSG_AVAIL, NackCode.NO_RESOURCE,
    NackCode.EXP_NACK_NORMAL, NackCode.EXP_NACK_ERR,
})  # fmt: skip
"""NACK codes after which a RUDI request is retransmitted. A code of class FATAL ends the request. All other codes
concern PSNs or PDCs, and are ignored (pds.md §12, last paragraph)."""

_BLOCK_BITS = 16


@dataclass(slots=True, eq=False)
class Exchange:
    """An exchange is the `Connection` of a single delivered RUDI or UUD packet. It holds the values that the answer
    copies from the packet.

    If SES answers later, it passes the exchange back with the answer. Each copy of a retransmitted request has its own
    exchange. The fields of an exchange never change.
    """

    peer: int
    mode: Mode
    pkt_id: int
    """Packet id of a RUDI request, or 0 for UUD."""
    retx: int
    marked: int
    """Whether the packet arrived with the ECN mark CE."""
    entropy: int
    local_id: int = 0


@dataclass(slots=True, eq=False)
class Outstanding:
    """An unanswered RUDI request is kept with header and payload, so that it can be retransmitted."""

    pkt_id: int
    message: Outgoing
    index: int
    header: bytes
    payload: Buffer
    entropy: int
    rto_cnt: int = 0
    nack_cnt: int = 0
    due_at: int = NEVER
    """Time at which the timer of the request expires. A request has one timer, for its RTO or for NACK_Retx_Time."""
    refused: bool = False
    """Whether the timer runs for NACK_Retx_Time. The RTO does not run during that time (pds.md §11.2)."""
    cause: str = RTO
    """Cause of the next retransmission, which is `RTO` or the name of a NACK code."""


class RudiTimers:
    """The timers of RUDI requests are kept in one queue for each waiting time, so that each queue is in time order.

    A request may get another deadline while its entry is in a queue; the entry then has no effect.
    """

    __slots__ = ("_queues",)

    def __init__(self) -> None:
        self._queues: dict[int, deque[tuple[int, Outstanding]]] = {}

    def arm(self, request: Outstanding, wait: int, now: int) -> None:
        request.due_at = now + wait
        queue = self._queues.get(wait)
        if queue is None:
            queue = self._queues[wait] = deque()
        queue.append((request.due_at, request))

    def deadline(self) -> int:
        """Return the time at which the next timer expires, or NEVER if no timer is armed."""
        first = NEVER
        for queue in self._queues.values():
            while queue and queue[0][1].due_at != queue[0][0]:
                queue.popleft()
            if queue and queue[0][0] < first:
                first = queue[0][0]
        return first

    def due(self, now: int) -> list[Outstanding]:
        """Return the requests whose timers have expired, in the order of their deadlines, and disarm these timers."""
        found: list[tuple[int, Outstanding]] = []
        for queue in self._queues.values():
            while queue and (queue[0][0] <= now or queue[0][1].due_at != queue[0][0]):
                at, request = queue.popleft()
                if request.due_at == at:
                    request.due_at = NEVER
                    found.append((at, request))
        return [request for _, request in sorted(found, key=lambda entry: entry[0])]


class RudiUud:
    """This class sends and receives the RUDI and UUD packets of one fabric endpoint."""

    def __init__(self, owner: "Pds") -> None:
        self.owner = owner
        self.config = owner.config
        self.counters = owner.counters
        self.next_id: int | None = None
        """Lowest pkt_id that the next RUDI request may have, or None if the first pkt_id is still to be drawn."""
        self.outstanding: dict[int, Outstanding] = {}
        """Unanswered RUDI requests by pkt_id."""
        self._rudi: deque[Outgoing] = deque()
        self._uud: deque[Outgoing] = deque()
        """Messages on UUD of which packets are still to be sent. `_rudi` has those on RUDI."""
        self._timers = RudiTimers()
        self._block_release: dict[int, int] = {}
        """End of the quarantine for each group of 2^16 pkt_ids. A quarantine ends MSL after the last request with a
        pkt_id of the group has ended (pds.md §15)."""
        self._block = -1
        """Block of the last pkt_id that was used."""
        self._resume_at = NEVER
        """End of the quarantine for which sending waits; NEVER: sending does not wait."""

    # The source

    def send(self, message: Outgoing, now: int) -> None:
        """Queue a message of mode RUDI or UUD, whose packets `pump` sends."""
        (self._uud if message.mode is Mode.UUD else self._rudi).append(message)

    @property
    def quiescent(self) -> bool:
        """Return True when no message is queued, and no RUDI request is unanswered."""
        return not (self._uud or self._rudi or self.outstanding)

    def pump(self, now: int, limit: int = NEVER) -> int:
        """Send UUD packets, then as many RUDI requests as `RUDI_WINDOW` permits.

        Return the number of first transmissions, at most `limit`.
        """
        sent = 0
        while self._uud and sent < limit:
            self._send_uud(now)
            sent += 1
        while self._rudi and sent < limit and len(self.outstanding) < RUDI_WINDOW:
            pkt_id = self._find_id(now)
            if pkt_id is None:
                break
            self._send_rudi(pkt_id, now)
            sent += 1
        return sent

    def _send_uud(self, now: int) -> None:
        """Send a UUD packet, and report success to SES at once, as no answer follows (pds.md §15)."""
        message = self._uud[0]
        index, header, payload, last = message.next_packet()
        if last:
            self._uud.popleft()
        self.counters.uud_tx += 1
        self.owner.tally.source[_ALONE] += 1
        entropy = self.owner.rng.getrandbits(16)
        self.owner.put(message.peer, Uud(message.next_hdr, 0), entropy, header, payload, TrafficClass.DATA)
        self.owner.user.on_response(message, index, NextHdr.NONE, None, now)

    def _send_rudi(self, pkt_id: int, now: int) -> None:
        message = self._rudi[0]
        index, header, payload, last = message.next_packet()
        if last:
            self._rudi.popleft()
        request = Outstanding(pkt_id, message, index, header, payload, self.owner.rng.getrandbits(16))
        self.outstanding[pkt_id] = request
        self.next_id = (pkt_id + 1) & _M32
        self.counters.rudi_tx += 1
        self.owner.tally.source[_ALONE] += 1
        self._transmit(request, 0, now)

    def _find_id(self, now: int) -> int | None:
        """Return the next pkt_id that no unanswered request has; None while its block is in quarantine."""
        pkt_id = self.owner.rng.getrandbits(32) if self.next_id is None else self.next_id
        while pkt_id in self.outstanding:
            pkt_id = (pkt_id + 1) & _M32
        self.next_id = pkt_id
        block = pkt_id >> _BLOCK_BITS
        if block != self._block:
            if self._block_release.get(block, 0) > now:
                self._resume_at = self._block_release[block]
                return None
            self._block = block
        return pkt_id

    def _transmit(self, request: Outstanding, retx: int, now: int) -> None:
        message = Rudi(
            False, request.message.next_hdr, 0, retx if self.config.rudi_marks_retx else 0, request.pkt_id, 0
        )
        traffic_class = TrafficClass.DATA_RTX if retx else TrafficClass.DATA
        self.owner.put(request.message.peer, message, request.entropy, request.header, request.payload, traffic_class)
        request.refused = False
        waits = rto_waits(self.config.rto_init_time)
        self._timers.arm(request, waits[min(request.rto_cnt, len(waits) - 1)], now)

    def _repeat(self, request: Outstanding, now: int) -> None:
        """Retransmit a request with another entropy value, as its path may have lost the packet."""
        self.counters.count_retransmission(request.cause)
        drawn = self.owner.rng.getrandbits(16)
        request.entropy = drawn if drawn != request.entropy else drawn ^ 1
        self._transmit(request, 1, now)

    def receive_response(self, response: Rudi, datagram: Datagram, now: int) -> None:
        """Pass a response to SES if its request is outstanding. Any other response is counted and dropped."""
        if datagram.trimmed:
            self.counters.trimmed_rx += 1
            return
        request = self._outstanding(response.pkt_id, datagram)
        if request is None:
            return
        answer = datagram.header[response.size :]
        if is_no_response(answer, response.next_hdr):
            return  # the final response follows
        self._forget(request, now)
        self.owner.user.on_response(request.message, request.index, response.next_hdr, answer, now)

    def receive_nack(self, nack: Nack, datagram: Datagram, now: int) -> None:
        """Handle a NACK with nt = 1. The code of the NACK decides what happens to the request: it is retransmitted at
        once, it is retransmitted after NACK_Retx_Time, it ends in error, or nothing changes (pds.md §12).
        """
        request = self._outstanding(nack.psn, datagram)
        if request is None:
            return
        if nack.code in FATAL_CODES:
            self._fail(request, PdsError(PdcErrorReason.NACK_FATAL, nack.code, NACKS[nack.code].retryable), now)
        elif nack.code not in REPEATING:
            self.counters.bad_nack += 1
        elif not request.refused:  # else a retransmission is scheduled (pds.md §11.2)
            request.cause = NackCode(nack.code).name
            self._take_refusal(request, NACKS[nack.code].delayed, now)

    def _take_refusal(self, request: Outstanding, delayed: bool, now: int) -> None:
        limit = self.config.max_nack_retx_cnt
        if limit != NACK_INFINITE and request.nack_cnt >= limit:
            self._fail(request, PdsError(PdcErrorReason.NACK_EXHAUSTED), now)
            return
        request.nack_cnt += 1
        self.counters.retx_nack += 1
        if delayed:
            request.refused = True
            self._timers.arm(request, self.config.nack_retx_time, now)
        else:
            self._repeat(request, now)

    def _outstanding(self, pkt_id: int, datagram: Datagram) -> Outstanding | None:
        """Return the unanswered request that a packet answers; None, and count the packet, if there is none."""
        request = self.outstanding.get(pkt_id)
        if request is None or request.message.peer != datagram.src:
            self.counters.rudi_late += 1
            return None
        return request

    def _forget(self, request: Outstanding, now: int) -> None:
        del self.outstanding[request.pkt_id]
        request.due_at = NEVER
        self._block_release[request.pkt_id >> _BLOCK_BITS] = now + self.config.msl

    def _fail(self, request: Outstanding, error: PdsError, now: int) -> None:
        """End a request in error; the packets of its message that were not sent yet fail, too."""
        self._forget(request, now)
        message = request.message
        cut = bool(self._rudi) and self._rudi[0] is message
        if cut:
            self._rudi.popleft()
        self.owner.user.on_error(message, request.index, error)
        if cut:
            self.owner.user.on_error(message, -1, error)

    # Time

    def deadline(self) -> int:
        """Return the time at which `on_time` is to be called next, or NEVER if no timer is armed."""
        return min(self._timers.deadline(), self._resume_at)

    def on_time(self, now: int) -> None:
        """Retransmit each request whose RTO or NACK_Retx_Time has expired, or end the request in error after too many
        RTOs (pds.md §11)."""
        if self._resume_at <= now:
            self._resume_at = NEVER
        limit = self.config.max_rto_retx_cnt
        for request in self._timers.due(now):
            if request.refused:
                self._repeat(request, now)
            elif limit != RTO_INFINITE and request.rto_cnt >= limit:
                self._fail(request, PdsError(PdcErrorReason.RTO_EXHAUSTED), now)
            else:
                request.rto_cnt += 1
                self.counters.retx_rto += 1
                request.cause = RTO
                self._repeat(request, now)

    # The destination

    def receive_request(self, request: Rudi | Uud, datagram: Datagram, now: int) -> None:
        """Deliver each copy of a RUDI or UUD request to SES. A RUDI request is answered here if SES returns the
        response, and later by `respond` if SES returns None."""
        if datagram.trimmed:
            self.counters.trimmed_rx += 1
        if isinstance(request, Rudi):
            self._take_rudi(request, datagram, now)
        elif not datagram.trimmed:
            self._take_uud(request, datagram, now)

    def _take_rudi(self, request: Rudi, datagram: Datagram, now: int) -> None:
        retx = request.retx if self.config.rudi_marks_retx else 0
        marked = int(datagram.ecn_marked)
        exchange = Exchange(datagram.src, Mode.RUDI, request.pkt_id, retx, marked, datagram.entropy)
        if datagram.trimmed:
            last_hop = datagram.trimmed is Trim.LAST_HOP
            self._refuse(exchange, NackCode.TRIMMED_LASTHOP if last_hop else NackCode.TRIMMED)
            return
        answer = self._deliver(exchange, request, datagram, now)
        if isinstance(answer, Refusal):
            self._refuse(exchange, answer.code)
            return
        self.counters.rudi_rx += 1
        if answer is not None:
            self.respond(exchange, answer, now)

    def _take_uud(self, request: Uud, datagram: Datagram, now: int) -> None:
        exchange = Exchange(datagram.src, Mode.UUD, 0, 0, int(datagram.ecn_marked), datagram.entropy)
        if isinstance(self._deliver(exchange, request, datagram, now), Refusal):
            self.counters.uud_dropped += 1
        else:
            self.counters.uud_rx += 1

    def _deliver(
        self, exchange: Exchange, request: Rudi | Uud, datagram: Datagram, now: int
    ) -> Response | Refusal | None:
        data, at = datagram.header, request.size
        payload = datagram.payload or data[at + SES_SIZE[request.next_hdr] :]
        return self.owner.user.on_request(exchange, exchange.pkt_id, request.next_hdr, data, at, payload, now)

    def respond(self, exchange: Exchange, response: Response, now: int) -> None:
        """Answer a delivered RUDI request (`ses_pds_tx_rsp`). NO_RESPONSE is not sent, because the source retransmits.

        Raises `LocalError` for UUD, which is never answered.
        """
        if exchange.mode is not Mode.RUDI:
            raise LocalError(
                "exchange", f"a packet of mode {exchange.mode.name} is never answered", "RUDI", id="not-with-mode"
            )
        if response.final:
            message = Rudi(True, response.next_hdr, exchange.marked, exchange.retx, exchange.pkt_id, 0)
            self.owner.put(exchange.peer, message, exchange.entropy, response.header, b"", TrafficClass.DATA)

    def _refuse(self, exchange: Exchange, code: NackCode) -> None:
        nack = Nack(code, 1, exchange.retx, exchange.marked, exchange.pkt_id, 0, 0, 0)
        self.owner.put_nack(exchange.peer, nack, exchange.entropy)
