"""Measures conversations while they are audited: packets, retransmissions and why, windows, times, messages.

A `Measure` listens to the events of the trackers of one vantage point. What is open has a meter (`measure_flow.py`);
what is over is a row (`measure_rows.py`).
"""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

from uetproto.audit.auditor import Report, audit
from uetproto.audit.finding import Flow
from uetproto.audit.flows import SILENT
from uetproto.audit.judge import Judge
from uetproto.audit.measure_flow import FlowMeter, MessageMeter
from uetproto.audit.measure_rows import ROWS, Rows
from uetproto.audit.measure_times import Times
from uetproto.audit.measure_trace import Trace
from uetproto.audit.options import Options
from uetproto.audit.seen import Seen
from uetproto.audit.tracker_pds_state import M32, PdsEvent
from uetproto.audit.tracker_roce_state import AFTER, BEFORE, IDLE, M24, READ_RESPONSES, RoceEvent
from uetproto.audit.tracker_rudi import RudiEvent
from uetproto.audit.tracker_ses_events import SesEvent
from uetproto.wire.crc import CRC_SIZE
from uetproto.wire.ethernet import Ecn
from uetproto.wire.icrc import ICRC_SIZE
from uetproto.wire.pcap import Record
from uetproto.wire.pcap_base import Source
from uetproto.wire.roce import Nak, Operation, Transport
from uetproto.wire.stack import implied_payload
from uetproto.wire.uet_pds import NackCode
from uetproto.wire.uet_ses import Opcode

SWEEP = 4_096
"""Packets after which what is over becomes a row, at least."""
REQUESTS, MOST_OPEN, LEAST_OPEN = 1_000_000, 32_768, 128
"""Open requests that are kept of all flows together, and the bounds of one flow's share. No window of a PDC is wider
(UE 1.0.1 §3.5.8.2)."""
TRACES = 256
"""Flows whose course is kept for a picture: those with the most packets."""

Listener = Callable[[Any, Seen], None]


@dataclass(slots=True)
class Drawn:
    """A flow that may be drawn."""

    flow: dict[str, Any]
    kind: str
    packets: int
    trace: Trace
    answered: Times
    latency: Times


@dataclass(slots=True)
class Measured:
    """What one vantage point shows."""

    file: str
    interface: str
    flows: Rows
    messages: Rows
    kinds: Counter[str] = field(default_factory=Counter)
    """Packets by their first header of UET or RoCE."""
    packets: int = 0
    bytes: int = 0
    first_ns: int | None = None
    """None: there was none."""
    last_ns: int = 0
    answered: Times = field(default_factory=Times)
    """Over all flows, as in a row; likewise the next."""
    latency: dict[str, Times] = field(default_factory=dict)
    """By opcode."""
    drawn: list[Drawn] = field(default_factory=list)
    unwanted: set[int] = field(default_factory=set)
    """PDCIDs and queue pairs that there are, where only some were asked for; not all, if there are many."""


def numbers_of(flow: Flow) -> set[int]:
    """The PDCIDs, or the queue pair, of a flow."""
    return {flow[name] for name in ("spdcid", "dpdcid", "destqp", "srcqp") if flow.get(name)}


class Measure:
    """The meters of one vantage point. `listen` subscribes them; `take` and `see` are told of everything before."""

    def __init__(
        self, file: str, interface: str, *, most: int, rows: int = ROWS, wanted: int | None = None,
        draw: bool = False, crc: bool = True,
    ) -> None:  # fmt: skip
        """`most`: flows that are open at a time. `wanted`: only those with this PDCID or queue pair. `draw`: keep
        courses for a picture. `crc`: packets of which the capture kept less had a CRC32C."""
        self.measured = Measured(file, interface, Rows(rows), Rows(rows))
        self.most = MOST_OPEN
        self._most_flows = most
        self._number = wanted
        self._draw = draw
        self._crc = CRC_SIZE if crc else 0
        self._flows: dict[Any, FlowMeter] = {}
        self._traced: list[FlowMeter] = []
        self._lengths: dict[int, int] = {}
        self._length = 0
        self._now = 0
        self._until_sweep = SWEEP
        self._swept = 0

    # Every packet -----------------------------------------------------------------------------------------------------

    def take(self, record: Record) -> None:
        """A record, before it is read."""
        self._lengths[record.index] = record.length
        if len(self._lengths) > _HELD:  # packets of other protocols never come
            for index in list(self._lengths)[: _HELD // 2]:
                del self._lengths[index]

    def see(self, seen: Seen) -> None:
        """A packet of UET or RoCE, before the trackers see it."""
        measured = self.measured
        length = self._lengths.pop(seen.number, None)
        now = seen.time_ns
        if length is not None:  # else it is what was in a sealed packet, which was counted
            self._length = length
            measured.packets += 1
            measured.bytes += length
            measured.kinds[_NONE if seen.head is None else seen.head.form] += 1
        if measured.first_ns is None or now < measured.first_ns:
            measured.first_ns = now
        if now > measured.last_ns:
            measured.last_ns = now
        self._now = now
        self._until_sweep -= 1
        if not self._until_sweep:
            self._sweep(now)

    def listen(self, judge: Judge) -> None:
        """Subscribe to the events that say what is what."""
        for event, listener in self._listeners().items():
            judge.listen(event, listener)

    def _listeners(self) -> dict[Enum, Listener]:
        return {
            PdsEvent.FIRST: self._pds_first, PdsEvent.AGAIN: self._pds_again, PdsEvent.TRIMMED: self._pds_trimmed,
            PdsEvent.ACK: self._pds_ack, PdsEvent.NACK: self._pds_nack,
            SesEvent.OPENED: self._message_begins, SesEvent.LATER: self._message_goes_on,
            SesEvent.RETURNED: self._message_data,
            RudiEvent.REQUEST: self._rudi_request, RudiEvent.AGAIN: self._rudi_again,
            RudiEvent.RESPONSE: self._rudi_response, RudiEvent.DATAGRAM: self._datagram,
            RoceEvent.PACKET: self._roce_packet, RoceEvent.ANEW: self._roce_anew, RoceEvent.REQUEST: self._roce_request,
            RoceEvent.AGAIN: self._roce_again, RoceEvent.IN_READ: self._roce_again,
            RoceEvent.RESPONSE: self._roce_response,
        }  # fmt: skip

    # PDCs -------------------------------------------------------------------------------------------------------------

    def _pds_first(self, direction: Any, seen: Seen) -> None:
        flow = self._flows.get(direction) or self._open("pdc", direction, M32)
        head = seen.head
        flow.count(self._length, seen.time_ns, seen.ecn == _CE)
        size = self._size(seen)
        flow.first(head.psn, self._length, size, seen.time_ns, bool(head.retx))

    def _size(self, seen: Seen) -> int:
        """Bytes of payload; where the capture kept less what the headers say, or what the length leaves."""
        if seen.size >= 0:
            return seen.size
        packet = seen.packet
        if packet is None or seen.is_trimmed or not packet.layers:
            return 0
        rest = self._length - packet.payload_offset
        if "bth" in packet:
            return max(0, rest - int(packet["bth"]["padcnt"]) - ICRC_SIZE)
        implied = implied_payload(packet.layers)
        return max(0, rest - self._crc if implied is None else implied)

    def _pds_again(self, direction: Any, seen: Seen) -> None:
        flow = self._flows.get(direction) or self._open("pdc", direction, M32)
        flow.count(self._length, seen.time_ns, seen.ecn == _CE)
        flow.again(seen.head.psn, self._length, seen.time_ns, bool(seen.head.retx))

    def _pds_trimmed(self, direction: Any, seen: Seen) -> None:
        flow = self._flows.get(direction) or self._open("pdc", direction, M32)
        flow.count(self._length, seen.time_ns, seen.ecn == _CE)
        flow.trim(seen.head.psn, seen.time_ns)

    def _pds_ack(self, direction: Any, seen: Seen) -> None:
        flow = self._flows.get(direction) or self._open("pdc", direction, M32)
        head, now = seen.head, seen.time_ns
        flow.acks += 1
        if seen.size > 0:
            flow.returned += seen.size
        cack = head.cack_psn
        flow.acknowledged_to(cack, now)
        if "ack_psn_offset" in head._fields and head.ack_psn_offset > 0:
            flow.acknowledged((cack + head.ack_psn_offset) & M32, now)
        if "sack_bitmap" in head._fields and head.sack_bitmap:
            base, bitmap = cack + head.sack_psn_offset, head.sack_bitmap
            while bitmap:
                bit = bitmap & -bitmap
                flow.acknowledged((base + bit.bit_length() - 1) & M32, now)
                bitmap ^= bit

    def _pds_nack(self, direction: Any, seen: Seen) -> None:
        flow = self._flows.get(direction) or self._open("pdc", direction, M32)
        head, now = seen.head, seen.time_ns
        code = f"NACK {_name(NackCode, head.nack_code)}"
        flow.refuse(code, head.nack_psn, now)
        if direction.pdc.rod:  # what comes behind is sent again, too (pds.md §11.3)
            start = head.nack_payload if head.nack_code == NackCode.ROD_OOO else head.nack_psn
            flow.rewind(code, start, now)

    # Messages of SES --------------------------------------------------------------------------------------------------

    def _message_begins(self, message: Any, seen: Seen) -> None:
        flow = self._flows.get(message.sender.direction)
        if flow is None:
            return
        meter = MessageMeter(message, message.psn, _name(Opcode, message.opcode), seen.time_ns)
        meter.message_id, meter.length = message.message_id, message.length
        if message.fetches:
            meter.expected = 1 if message.atomic is not None else message.length
        flow.begin(meter)
        self._carry(flow, meter, seen)

    def _message_goes_on(self, message: Any, seen: Seen) -> None:
        flow = self._flows.get(message.sender.direction)
        meter = None if flow is None else flow.messages.get(message)
        if flow is not None and meter is not None:
            self._carry(flow, meter, seen)

    @staticmethod
    def _carry(flow: FlowMeter, meter: MessageMeter, seen: Seen) -> None:
        ses: Any = seen.ses
        if ses.som:
            meter.begun = True
            meter.first_ns = seen.time_ns
        if ses.eom:
            meter.end = seen.head.psn
        flow.carry(meter)

    def _message_data(self, returned: Any, seen: Seen) -> None:
        message = returned.message
        flow = None if message is None else self._flows.get(message.sender.direction)
        meter = None if flow is None else flow.messages.get(message)
        if flow is not None and meter is not None:
            flow.give_back(meter, max(0, seen.size), seen.time_ns)

    # RUDI, UUD --------------------------------------------------------------------------------------------------------

    def _rudi_request(self, exchange: Any, seen: Seen) -> None:
        flow = self._flows.get(exchange.rudi) or self._open("rudi", exchange.rudi, M32)
        flow.count(self._length, seen.time_ns, seen.ecn == _CE)
        flow.newest = None  # its numbers are no sequence
        size = self._size(seen)
        flow.first(seen.head.pkt_id, self._length, size, seen.time_ns, bool(seen.head.retx))

    def _rudi_again(self, exchange: Any, seen: Seen) -> None:
        flow = self._flows.get(exchange.rudi) or self._open("rudi", exchange.rudi, M32)
        flow.count(self._length, seen.time_ns, seen.ecn == _CE)
        flow.again(seen.head.pkt_id, self._length, seen.time_ns, bool(seen.head.retx))

    def _rudi_response(self, exchange: Any, seen: Seen) -> None:
        flow = self._flows.get(exchange.rudi) or self._open("rudi", exchange.rudi, M32)
        flow.acks += 1
        if seen.size > 0:
            flow.returned += seen.size
        flow.acknowledged(seen.head.pkt_id, seen.time_ns)

    def _datagram(self, datagram: Any, seen: Seen) -> None:
        flow = self._flows.get(datagram) or self._open("uud", datagram, M32)
        flow.count(self._length, seen.time_ns, seen.ecn == _CE)
        flow.carried(self._size(seen), seen.time_ns)

    # RoCE -------------------------------------------------------------------------------------------------------------

    def _roce_packet(self, stream: Any, seen: Seen) -> None:
        flow = self._flows.get(stream) or self._open("qp", stream, M24)
        flow.count(self._length, seen.time_ns, seen.ecn == _CE)
        opcode = seen.head.opcode
        if opcode & 0x1F in READ_RESPONSES or opcode >> 5 == Transport.UD:
            flow.carried(self._size(seen), seen.time_ns)

    def _roce_anew(self, stream: Any, _: Seen) -> None:
        for each in (stream, stream.other):
            flow = self._flows.get(each)
            if flow is not None:
                flow.begin_again()

    def _roce_request(self, stream: Any, seen: Seen) -> None:
        flow = self._flows.get(stream) or self._open("qp", stream, M24)
        psn, operation, now = seen.head.psn, seen.head.opcode & 0x1F, seen.time_ns
        size = self._size(seen)
        flow.first(psn, self._length, size, now, flow.is_rewound(psn))
        if BEFORE[operation] == IDLE:
            meter = MessageMeter(psn, psn, _opcode_of(operation), now)
            meter.begun = True
            if operation in _SAY_LENGTH:
                meter.length = seen.more[0].dmalen
            elif AFTER[operation] == IDLE:
                meter.length = size
            if operation == Operation.RDMA_READ_REQUEST:
                meter.expected = meter.length or 0
            flow.begin(meter)
        else:
            found = _around(flow, psn)
            if found is None:
                return
            meter = found
        if AFTER[operation] == IDLE:
            meter.end = psn
        flow.carry(meter)

    def _roce_again(self, stream: Any, seen: Seen) -> None:
        flow = self._flows.get(stream)
        if flow is not None:
            flow.again(seen.head.psn, self._length, seen.time_ns, True)

    def _roce_response(self, stream: Any, seen: Seen) -> None:
        """An answer: `stream` is its sender's."""
        flow = None if stream.other is None else self._flows.get(stream.other)
        if flow is None:
            return
        psn, operation, now = seen.head.psn, seen.head.opcode & 0x1F, seen.time_ns
        flow.acks += 1
        if operation in READ_RESPONSES:
            flow.acknowledged_to(psn, now)
            meter = _around(flow, psn)
            if meter is not None and meter.expected:
                flow.give_back(meter, self._size(seen), now)
            return
        syndrome = seen.more[0].syndrome & 0x7F
        if operation == Operation.ACKNOWLEDGE and syndrome >= _REFUSES:
            code = f"NAK {_name(Nak, syndrome)}" if syndrome >= Nak.PSN_SEQUENCE_ERROR else "RNR NAK"
            flow.acknowledged_to((psn - 1) & M24, now)
            flow.refuse(code, psn, now)
            flow.rewind(code, psn, now)
        else:
            flow.acknowledged_to(psn, now)

    # Flows ------------------------------------------------------------------------------------------------------------

    def over(self, flow: FlowMeter, message: MessageMeter) -> None:
        """A message is over."""
        said = flow.state.flow()
        if not self._wanted(said):
            return
        self.measured.messages.add(message.row(said))
        latency = message.latency
        if latency is not None:
            self.measured.latency.setdefault(message.opcode, Times()).add(latency)

    def end(self) -> Measured:
        """There are no more packets."""
        for state in list(self._flows):
            self._close(state)
        self._traced = self._most_interesting(TRACES)
        self.measured.drawn = [
            Drawn(dict(flow.state.flow()), flow.kind, flow.packets, flow.trace, flow.answered, flow.latency)
            for flow in self._traced
            if flow.trace is not None
        ]
        return self.measured

    def _open(self, kind: str, state: Any, mask: int) -> FlowMeter:
        flow = self._flows[state] = FlowMeter(kind, state, mask, self._now, self)
        if self._draw and kind != "rudi":
            flow.trace = Trace(mask)
            self._traced.append(flow)
            if len(self._traced) > 2 * TRACES:
                self._traced = self._most_interesting(TRACES)
        return flow

    def _most_interesting(self, most: int) -> list[FlowMeter]:
        """The flows to draw that have most packets; the others have a course no more."""
        wanted = [flow for flow in self._traced if self._wanted(flow.state.flow())]
        wanted.sort(key=lambda flow: -flow.packets)
        kept = wanted[:most]
        for flow in self._traced:
            if flow not in kept:
                flow.trace = None
        return kept

    def _close(self, state: Any) -> None:
        row = self._flows[state].end()
        flow = self._flows.pop(state)
        if self._wanted(row.flow):
            self.measured.flows.add(row)
            self.measured.answered.merge(flow.answered)
        elif len(self.measured.unwanted) < _UNWANTED:
            self.measured.unwanted |= numbers_of(row.flow)

    def _wanted(self, flow: Flow) -> bool:
        return self._number is None or self._number in numbers_of(flow)

    def _sweep(self, now: int) -> None:
        """What is over becomes a row: PDCs that were closed and are quiet since, the silent, the surplus."""
        flows = self._flows
        for state in [state for state, flow in flows.items() if self._is_over(flow, now)]:
            self._close(state)
        if len(flows) > 2 * self._most_flows:
            oldest = sorted(flows, key=lambda state: flows[state].last_ns)
            for state in oldest[: len(flows) - 2 * self._most_flows]:
                self._close(state)
        self.most = max(LEAST_OPEN, min(MOST_OPEN, REQUESTS // max(1, len(flows))))
        self._until_sweep = max(SWEEP, len(flows))
        self._swept = now

    def _is_over(self, flow: FlowMeter, now: int) -> bool:
        if flow.last_ns < now - SILENT:
            return True
        return flow.kind == "pdc" and flow.state.pdc.closed and flow.last_ns < self._swept


_UNWANTED = 64
_HELD = 65_536
"""Lengths of records that wait for their packet."""
_NONE = "none"
_CE = Ecn.CE
_REFUSES = 0x20
"""Syndromes from here on are no ACKs (roce.md §2.1)."""
_SAY_LENGTH = frozenset({
    Operation.RDMA_WRITE_FIRST, Operation.RDMA_WRITE_ONLY, Operation.RDMA_WRITE_ONLY_WITH_IMMEDIATE,
    Operation.RDMA_READ_REQUEST,
})  # fmt: skip


def _name(names: type[Enum], value: int) -> str:
    try:
        return names(value).name
    except ValueError:
        return f"{value:#x}"


def _opcode_of(operation: int) -> str:
    """`RDMA_WRITE` for RDMA_WRITE_FIRST."""
    name = Operation(operation).name
    for part in ("_FIRST", "_ONLY"):
        name = name.replace(part, "")
    return name


def _around(flow: FlowMeter, psn: int) -> MessageMeter | None:
    """The message that began last before a PSN."""
    for meter in reversed(flow.messages.values()):
        if (psn - meter.psn) & flow.mask < flow.half:
            return meter
    return None


def measure(
    files: Iterable[Source],
    options: Options,
    progress: Callable[[int], None] | None = None,
    *,
    interface: str | None = None,
    number: int | None = None,
    draw: bool = False,
    rows: int = ROWS,
) -> tuple[Report, list[Measured]]:
    """The measurements of captures, by vantage point, and what `audit` reports beside: only damage is judged.

    `interface`: only of the one with this name, or number. `number`: only flows of this PDCID, or queue pair.
    `draw`: keep the course of flows for a picture. Raises `LocalError` as `audit` does.
    """
    measures = Measures(options, interface=interface, number=number, draw=draw, rows=rows)
    report = audit(files, replace(options, rules=("CAP-DAMAGED",)), progress, measures)
    return report, measures.end()


class Measures:
    """The measurements of all vantage points: what `audit` takes as `listen`."""

    def __init__(
        self, options: Options, *, interface: str | None = None, number: int | None = None, draw: bool = False,
        rows: int = ROWS,
    ) -> None:  # fmt: skip
        """As `measure`."""
        self._most = options.max_flows
        self._crc = options.crc != "off"
        self._interface = interface
        self._wanted = number
        self._draw = draw
        self._rows = rows
        self._measures: list[Measure] = []

    def __call__(self, judge: Judge, file: str, interface: str, number: int) -> Measure | None:
        if self._interface not in (None, interface, str(number)):
            return None
        measure = Measure(
            file, interface, most=self._most, rows=self._rows, wanted=self._wanted, draw=self._draw, crc=self._crc
        )
        measure.listen(judge)
        self._measures.append(measure)
        return measure

    def end(self) -> list[Measured]:
        """What was measured; once."""
        return [measure.end() for measure in self._measures]
