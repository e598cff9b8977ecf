"""The numbered invariants of ses.md §15 that one endpoint shows: how a message is cut into packets, how it is answered.

They need whole SES headers: a real SES, or a scripted one that is not lean.
"""

from dataclasses import dataclass, field
from typing import Any

from uetproto.check.ledger import Ledger, Sent, behind
from uetproto.check.registry import Violation
from uetproto.engine.contract import Buffer, Datagram
from uetproto.engine.messages import (
    Ack,
    Message,
    Request,
)
from uetproto.engine.psn_window import Stored
from uetproto.engine.ses_headers import (
    SesRequest,
    parse_ses_request,
)
from uetproto.wire.uet_pds import NextHdr
from uetproto.wire.uet_ses import Opcode, ResponseOpcode, ReturnCode


def _need(condition: bool, number: str, text: str, *values: Any) -> None:
    if not condition:
        raise Violation(number, text, *values)


class SesRules:
    """What leaves one endpoint, held to the rules of SES; `leaves` is called for each packet of a PDC."""

    def __init__(self, mtu: int) -> None:
        self._mtu = mtu
        self._segments: dict[Ledger, Segments] = {}

    def leaves(self, ledger: Ledger, packet: Message, datagram: Datagram, sent: Sent | None) -> None:
        """Raises `Violation`."""
        if type(packet) is Ack:
            ses_12_13_responses(ledger, packet, datagram.header[packet.size :])
        elif type(packet) is Request and sent is not None and not sent.copies:
            segments = self._segments.get(ledger)
            if segments is None:
                segments = self._segments[ledger] = Segments(self._mtu)
            segments.add(packet, datagram.header[packet.size :], len(datagram.payload))


def ses_12_13_responses(ledger: Ledger, packet: Ack, response: Buffer) -> None:
    """DEFAULT_RESPONSE is OK or NULL and EXPECTED; any other code is a RESPONSE, and guaranteed."""
    if packet.next_hdr == NextHdr.RESPONSE:
        opcode, code = response[0] & 0x3F, response[1] & 0x3F
        fine = code in (ReturnCode.OK, ReturnCode.NULL)
        if opcode == ResponseOpcode.DEFAULT_RESPONSE:
            _need(fine and response[0] >> 6 == 0, "ses 12", "default response with code", code)
        elif not fine:
            rx = ledger.pdc.rx
            guaranteed = isinstance(rx.slots.get(packet.ack_psn), Stored) or not behind(rx.max_clear, packet.ack_psn)
            _need(guaranteed, "ses 13", "error not guaranteed, PSN", packet.ack_psn)


@dataclass(slots=True)
class MessageOnWire:
    """First transmissions of one message (ses.md §15 items 1–7, 16)."""

    first: SesRequest
    ranges: list[tuple[int, int]] = field(default_factory=list)
    soms: int = 0
    eoms: int = 0


class Segments:
    """The messages of one direction in the order of first transmission."""

    def __init__(self, mtu: int) -> None:
        self.mtu = mtu
        self.open: MessageOnWire | None = None

    def add(self, packet: Request, header: Buffer, payload: int) -> None:
        """One first transmission, with so many bytes of payload. Raises `Violation`."""
        if packet.next_hdr != NextHdr.REQUEST_STD:
            return
        request = parse_ses_request(header, 0, packet.next_hdr)
        if self.open is None:
            _need(bool(request.som), "ses 3", "a message begins without SOM")
            self.open = MessageOnWire(request)
        message, first = self.open, self.open.first
        for name in ("message_id", "buffer_offset", "key", "initiator", "job_id", "pid_on_fep", "resource_index",
                     "ri_generation", "request_length"):  # fmt: skip
            same = getattr(first, name) == getattr(request, name)
            _need(same, "ses 5/16", f"{name} changes inside a message, or messages are interleaved")
        message.soms += request.som
        message.eoms += request.eom
        implied = min(self.mtu, request.request_length) if request.som else request.payload_length
        _need(payload == implied, "ses 7", "payload length", payload)
        whole = payload == self.mtu or (bool(request.eom) and payload < self.mtu)
        _need(whole, "ses 6", "short packet inside a message")
        message.ranges.append((request.message_offset, payload))
        if request.eom:
            self._check(message)
            self.open = None

    def _check(self, message: MessageOnWire) -> None:
        length = message.first.request_length
        _need(message.soms == message.eoms == 1, "ses 3", "SOM and EOM", message.soms, message.eoms)
        if message.first.opcode != Opcode.MSG_ERROR and len(message.ranges) == max(1, -(-length // self.mtu)):
            at = 0
            for offset, size in message.ranges:
                _need(offset == at, "ses 2", "gap or overlap at", offset)
                at += size
            _need(at == length, "ses 1", "bytes of the message", at, length)
