# SPDX-License-Identifier: GPL-2.0-only
"""This module translates events of queue pairs into calls of the meters."""

from uetproto.audit.judge import Heard
from uetproto.audit.reader.observed import ObservedPacket
from uetproto.audit.roce.tracker_state import AFTER, BEFORE, IDLE, M24, READ_RESPONSES, QpStream, RoceEvent
from uetproto.audit.stats.flow import FlowMeter
from uetproto.audit.stats.message import MessageMeter
from uetproto.audit.stats.meters import Meters, name_in
from uetproto.wire.headers.roce import Nak, Operation, Transport

_REFUSES = 0x20
"""Bounds the syndromes of ACKs: greater ones refuse a request (roce.md §2.1)."""
_SAY_LENGTH = frozenset({
    Operation.RDMA_WRITE_FIRST, Operation.RDMA_WRITE_ONLY, Operation.RDMA_WRITE_ONLY_WITH_IMMEDIATE,
    Operation.RDMA_READ_REQUEST,
})  # fmt: skip


def _packet(meters: Meters, stream: QpStream, seen: ObservedPacket) -> None:
    flow = meters.counted("qp", stream, M24, seen)
    opcode = seen.head.opcode
    if opcode & 0x1F in READ_RESPONSES or opcode >> 5 == Transport.UD:
        flow.carried(meters.size(seen), seen.time_ns)


def _anew(meters: Meters, stream: QpStream, _: ObservedPacket) -> None:
    for each in (stream, stream.other):
        flow = meters.flows.get(each)
        if flow is not None:
            flow.begin_again()


def _request(meters: Meters, stream: QpStream, seen: ObservedPacket) -> None:
    flow = meters.of("qp", stream, M24)
    psn, operation, now = seen.head.psn, seen.head.opcode & 0x1F, seen.time_ns
    size = meters.size(seen)
    flow.first(psn, meters.length, size, now, flow.is_rewound(psn))
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


def _again(meters: Meters, stream: QpStream, seen: ObservedPacket) -> None:
    flow = meters.flows.get(stream)
    if flow is not None:
        flow.again(seen.head.psn, meters.length, seen.time_ns, True)


def _response(meters: Meters, stream: QpStream, seen: ObservedPacket) -> None:
    """Follow an answer; `stream` is that of its sender."""
    flow = None if stream.other is None else meters.flows.get(stream.other)
    if flow is None:
        return
    psn, operation, now = seen.head.psn, seen.head.opcode & 0x1F, seen.time_ns
    flow.acks += 1
    if operation in READ_RESPONSES:
        flow.acknowledged_to(psn, now)
        meter = _around(flow, psn)
        if meter is not None and meter.expected:
            flow.add_returned(meter, meters.size(seen), now)
        return
    syndrome = seen.more[0].syndrome & 0x7F
    if operation == Operation.ACKNOWLEDGE and syndrome >= _REFUSES:
        code = f"NAK {name_in(Nak, syndrome)}" if syndrome >= Nak.PSN_SEQUENCE_ERROR else "RNR NAK"
        flow.acknowledged_to((psn - 1) & M24, now)
        flow.refuse(code, psn, now)
        flow.rewind(code, psn, now)
    else:
        flow.acknowledged_to(psn, now)


HEARD: Heard = {
    RoceEvent.PACKET: _packet, RoceEvent.ANEW: _anew, RoceEvent.REQUEST: _request,
    RoceEvent.AGAIN: _again, RoceEvent.IN_READ: _again, RoceEvent.RESPONSE: _response,
}  # fmt: skip
"""Maps an event to the function that passes it to the meters of a vantage point."""


def _opcode_of(operation: int) -> str:
    """Return the name of an operation without FIRST and ONLY: "RDMA_WRITE" for RDMA_WRITE_FIRST."""
    name = Operation(operation).name
    for part in ("_FIRST", "_ONLY"):
        name = name.replace(part, "")
    return name


def _around(flow: FlowMeter, psn: int) -> MessageMeter | None:
    """Return the message that began last at or before a PSN; None: there is none."""
    for meter in reversed(flow.messages.values()):
        if (psn - meter.psn) & flow.mask < flow.half:
            return meter
    return None
