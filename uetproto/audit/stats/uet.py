# SPDX-License-Identifier: GPL-2.0-only
"""This module updates the meters of flows and messages at each event of PDCs, SES messages, RUDI and UUD."""

from uetproto.audit.judge import Heard
from uetproto.audit.pds.tracker_rudi import AuditedDatagram, RudiEvent, RudiExchange
from uetproto.audit.pds.tracker_state import M32, PdcDirection, PdsEvent
from uetproto.audit.reader.observed import Head, ObservedPacket
from uetproto.audit.ses.tracker_events import SesEvent
from uetproto.audit.ses.tracker_message import AuditedMessage, ReturnedData
from uetproto.audit.stats.flow import FlowMeter
from uetproto.audit.stats.message import MessageMeter
from uetproto.audit.stats.meters import Meters, name_in
from uetproto.wire.headers.uet_pds import NackCode
from uetproto.wire.headers.uet_ses import Opcode

# PDCs -----------------------------------------------------------------------------------------------------------------


def _first(meters: Meters, direction: PdcDirection, seen: ObservedPacket) -> None:
    head = seen.head
    flow = meters.counted("pdc", direction, M32, seen)
    flow.first(head.psn, meters.length, meters.size(seen), seen.time_ns, bool(head.retx))


def _again(meters: Meters, direction: PdcDirection, seen: ObservedPacket) -> None:
    flow = meters.counted("pdc", direction, M32, seen)
    flow.again(seen.head.psn, meters.length, seen.time_ns, bool(seen.head.retx))


def _trimmed(meters: Meters, direction: PdcDirection, seen: ObservedPacket) -> None:
    flow = meters.counted("pdc", direction, M32, seen)
    flow.trim(seen.head.psn, seen.time_ns)


def _ack(meters: Meters, direction: PdcDirection, seen: ObservedPacket) -> None:
    flow = meters.of("pdc", direction, M32)
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


def _nack(meters: Meters, direction: PdcDirection, seen: ObservedPacket) -> None:
    flow = meters.of("pdc", direction, M32)
    head, now = seen.head, seen.time_ns
    code = f"NACK {name_in(NackCode, head.nack_code)}"
    flow.refuse(code, head.nack_psn, now)
    if direction.pdc.rod:  # all later packets are sent again, too (pds.md §11.3)
        start = head.nack_payload if head.nack_code == NackCode.ROD_OOO else head.nack_psn
        flow.rewind(code, start, now)


# Messages -------------------------------------------------------------------------------------------------------------


def _message_begins(meters: Meters, message: AuditedMessage, seen: ObservedPacket) -> None:
    flow = meters.flows.get(message.sender.direction)
    if flow is None:
        return
    meter = MessageMeter(message, message.psn, name_in(Opcode, message.opcode), seen.time_ns)
    meter.message_id, meter.length = message.message_id, message.length
    if message.fetches:
        meter.expected = 1 if message.atomic is not None else message.length
    flow.begin(meter)
    _carry(flow, meter, seen)


def _message_goes_on(meters: Meters, message: AuditedMessage, seen: ObservedPacket) -> None:
    flow = meters.flows.get(message.sender.direction)
    meter = None if flow is None else flow.messages.get(message)
    if flow is not None and meter is not None:
        _carry(flow, meter, seen)


def _carry(flow: FlowMeter, meter: MessageMeter, seen: ObservedPacket) -> None:
    ses: Head = seen.ses
    if ses.som:
        meter.begun = True
        meter.first_ns = seen.time_ns
    if ses.eom:
        meter.end = seen.head.psn
    flow.carry(meter)


def _message_data(meters: Meters, returned: ReturnedData, seen: ObservedPacket) -> None:
    message = returned.message
    flow = None if message is None else meters.flows.get(message.sender.direction)
    meter = None if flow is None else flow.messages.get(message)
    if flow is not None and meter is not None:
        flow.add_returned(meter, max(0, seen.size), seen.time_ns)


# RUDI, UUD ------------------------------------------------------------------------------------------------------------


def _rudi_request(meters: Meters, exchange: RudiExchange, seen: ObservedPacket) -> None:
    head = seen.head
    flow = meters.counted("rudi", exchange.rudi, M32, seen)
    flow.newest = None  # a pkt_id says nothing about the order
    flow.first(head.pkt_id, meters.length, meters.size(seen), seen.time_ns, bool(head.retx))


def _rudi_again(meters: Meters, exchange: RudiExchange, seen: ObservedPacket) -> None:
    flow = meters.counted("rudi", exchange.rudi, M32, seen)
    flow.again(seen.head.pkt_id, meters.length, seen.time_ns, bool(seen.head.retx))


def _rudi_response(meters: Meters, exchange: RudiExchange, seen: ObservedPacket) -> None:
    flow = meters.of("rudi", exchange.rudi, M32)
    flow.acks += 1
    if seen.size > 0:
        flow.returned += seen.size
    flow.acknowledged(seen.head.pkt_id, seen.time_ns)


def _datagram(meters: Meters, datagram: AuditedDatagram, seen: ObservedPacket) -> None:
    flow = meters.counted("uud", datagram, M32, seen)
    flow.carried(meters.size(seen), seen.time_ns)


HEARD: Heard = {
    PdsEvent.FIRST: _first, PdsEvent.AGAIN: _again, PdsEvent.TRIMMED: _trimmed,
    PdsEvent.ACK: _ack, PdsEvent.NACK: _nack,
    SesEvent.OPENED: _message_begins, SesEvent.LATER: _message_goes_on,
    SesEvent.RETURNED: _message_data,
    RudiEvent.REQUEST: _rudi_request, RudiEvent.AGAIN: _rudi_again,
    RudiEvent.RESPONSE: _rudi_response, RudiEvent.DATAGRAM: _datagram,
}  # fmt: skip
"""Maps each event to the function that updates the meters of a vantage point at that event."""
