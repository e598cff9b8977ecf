# SPDX-License-Identifier: GPL-2.0-only
"""This module follows SES messages: their packets, the bytes that are missing, their time (analysis.md §5)."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from uetproto.audit.per_packet.late import LateValues
from uetproto.audit.per_packet.seen import PacketSeen
from uetproto.audit.per_packet.sender import KnownPsn, Row
from uetproto.wire.crc import CRC_SIZE
from uetproto.wire.headers.uet_ses import OPCODE_PROFILES, PAYLOAD_MTUS, Opcode, ResponseOpcode
from uetproto.wire.implied import implied_payload

_FETCHES = frozenset(code for code, row in OPCODE_PROFILES.items() if row.fetches)


class SesPart(NamedTuple):
    """This record describes what a request carries of its message."""

    opcode: int
    id: int | None
    """message_id; None: the header has none, and the packet is the whole message."""
    som: bool
    total: int
    """Bytes that the packets of the message carry together; of a READ, those that come back."""
    size: int
    """Bytes that this packet carries."""


def _part_of(seen: PacketSeen, ses: Mapping[str, Any]) -> SesPart:
    """Return what a request carries."""
    opcode, id, total, som = ses["opcode"], ses.get("message_id"), ses["request_length"], bool(ses["som"])
    if opcode in (Opcode.READ, Opcode.MSG_ERROR):
        return SesPart(opcode, id, som, total, 0)
    implied = implied_payload(seen.layers)
    if id is None or (som and ses["eom"]):
        return SesPart(opcode, id, True, implied or 0, implied or 0)
    for form, values, _ in seen.layers:
        if form == "ses.ext.rendezvous":
            total = values["eager_length"]
    if implied is None:  # the first packet of several: it carries a payload MTU
        implied = seen.left - CRC_SIZE if seen.left - CRC_SIZE in PAYLOAD_MTUS else seen.left
    return SesPart(opcode, id, som, total, implied)


class SesMessage:
    """This class follows a message."""

    __slots__ = ("begun", "fetches", "index", "missing", "read", "record", "since_ns", "total", "unacked")

    def __init__(self, part: SesPart, index: int, record: KnownPsn, time_ns: int) -> None:
        self.index, self.record, self.since_ns = index, record, time_ns
        """Index of the message, record of its first packet that was seen, and time of this packet."""
        self.begun = False
        """Whether the packet with som = 1 was seen."""
        self.total = self.missing = part.total
        self.unacked = 0
        """Packets that were seen and are not acknowledged."""
        self.read = part.opcode == Opcode.READ
        self.fetches = part.opcode in _FETCHES
        """Whether the message ends with data that comes back."""


def note_request(messages: dict[int, Any], record: KnownPsn, seen: PacketSeen, row: Row, late: LateValues) -> None:
    """Note a request. `messages` has the messages of its direction by message_id; `record` is that of its PSN."""
    part = _part_of(seen, seen.ses or {})
    message: SesMessage | None = record.message
    if message is None:
        message = None if part.id is None else messages.get(part.id)
        if message is None or (part.som and message.begun) or not message.missing or message.total != part.total:
            message = SesMessage(part, late.messages.add(seen.number), record, seen.time_ns)
            if part.id is not None:
                messages[part.id] = message
        message.begun = message.begun or part.som
        record.message = message
        if not record.acked:
            message.unacked += 1
    if not record.counted and not seen.trimmed:
        record.counted = True
        if not message.read:
            _arrive(message, part.size, seen.number, late)
    late.message[seen.number] = message.index
    row["uetp.msg.missing"] = message.missing


def note_acked(record: KnownPsn, time_ns: int, late: LateValues) -> None:
    """Note that a packet was acknowledged for the first time."""
    message: SesMessage | None = record.message
    if message is not None:
        message.unacked -= 1
        if not message.unacked and not message.missing and not message.fetches:
            _finish(message, time_ns, late)


def note_response(asked: KnownPsn, seen: PacketSeen, first: bool, row: Row, late: LateValues) -> None:
    """Note an ACK that names the PSN of `asked`, or a packet with a response to it. `first`: its data did not come
    before."""
    message: SesMessage | None = asked.message
    if message is not None:
        late.message[seen.number] = message.index
    ses = seen.ses
    if ses is None or ses["opcode"] == ResponseOpcode.NO_RESPONSE:
        return
    row["uetp.response_to"] = asked.number
    if not late.response_in[asked.number]:
        late.response_in[asked.number] = seen.number
    if message is None or not message.fetches or "payload_length" not in ses:
        return
    if message.read:
        if first:
            _arrive(message, ses["payload_length"], seen.number, late)
        row["uetp.msg.missing"] = message.missing
    if not message.missing:
        _finish(message, seen.time_ns, late)


def _arrive(message: SesMessage, size: int, number: int, late: LateValues) -> None:
    """Count bytes of a message, which packet `number` carried."""
    message.missing = max(0, message.missing - size)
    if not message.missing and not late.messages.last[message.index]:
        late.messages.last[message.index] = number


def _finish(message: SesMessage, time_ns: int, late: LateValues) -> None:
    if late.messages.time_ns[message.index] < 0:
        late.messages.time_ns[message.index] = max(0, time_ns - message.since_ns)
