# SPDX-License-Identifier: GPL-2.0-only
"""This module has the numbered invariants of ses.md §15 that concern one endpoint: segmentation and responses.

They need complete SES headers, as a real SES sends them, or a scripted SES with an `mtu`.
"""

from dataclasses import dataclass
from typing import Any

from uetproto.check.registry import InvariantViolation
from uetproto.check.uet.shadow_state import PdcShadow, SentPacket, behind
from uetproto.engine.contract import Buffer, Datagram
from uetproto.engine.pds.messages import Ack, Message, Request
from uetproto.engine.pds.psn_window import StoredSlot
from uetproto.engine.ses.headers import Extensions, SesRequest, parse_extensions, parse_ses_request
from uetproto.wire.headers.uet_pds import NextHdr
from uetproto.wire.headers.uet_ses import DEFERRABLES, AtomicOpcode, Opcode, ResponseOpcode, ReturnCode


def _need(condition: bool, number: str, text: str, *values: Any) -> None:
    if not condition:
        raise InvariantViolation(number, text, *values)


class SesRules:
    """This class has the rules of SES for packets that an endpoint sends. The monitor calls `leaves` for each packet
    of a PDC."""

    def __init__(self, mtu: int, lone_read_eom: bool = True) -> None:
        self._mtu = mtu
        self._lone_read_eom = lone_read_eom
        self._segments: dict[PdcShadow, SegmentChecks] = {}

    def begun_anew(self, shadow: PdcShadow) -> None:
        """Forget the open message of a PDC whose packets are sent anew, from another Start_PSN."""
        self._segments.pop(shadow, None)

    def leaves(self, shadow: PdcShadow, packet: Message, datagram: Datagram, sent: SentPacket | None) -> None:
        """Check a packet that the endpoint of this monitor sends. Raises `InvariantViolation`."""
        if type(packet) is Ack:
            ses_12_13_responses(shadow, packet, datagram.header[packet.size :])
        elif type(packet) is Request and sent is not None and not sent.copies:
            segments = self._segments.get(shadow)
            if segments is None:
                segments = self._segments[shadow] = SegmentChecks(self._mtu, self._lone_read_eom)
            segments.add(packet, datagram.header[packet.size :], datagram.payload)


def ses_12_13_responses(shadow: PdcShadow, packet: Ack, response: Buffer) -> None:
    """A DEFAULT_RESPONSE has the code OK or NULL and the list EXPECTED. A response with any other code is a RESPONSE,
    and is guaranteed."""
    if packet.next_hdr == NextHdr.RESPONSE:
        opcode, code = response[0] & 0x3F, response[1] & 0x3F
        fine = code in (ReturnCode.OK, ReturnCode.NULL)
        if opcode == ResponseOpcode.DEFAULT_RESPONSE:
            _need(fine and response[0] >> 6 == 0, "ses 12", "default response with code", code)
        elif not fine:
            rx = shadow.pdc.rx
            guaranteed = isinstance(rx.slots.get(packet.ack_psn), StoredSlot) or not behind(
                rx.max_clear, packet.ack_psn
            )
            _need(guaranteed, "ses 13", "error not guaranteed, PSN", packet.ack_psn)


@dataclass(slots=True)
class MessageOnWire:
    """This record has the state of a message whose first transmissions are checked (ses.md §15 items 1–7, 16)."""

    first: SesRequest
    body: int
    """Number of bytes of the message that are split into packets. A rendezvous has only its eager bytes split, a
    compare-and-swap has none, and other messages have all."""
    at: int = 0
    """Offset in bytes of the next packet in the message."""


@dataclass(slots=True)
class SegmentChecks:
    """Segment checks examine the messages of one direction, in the order in which their packets are first sent.

    `mtu` is the payload of a full packet in bytes; `lone_read_eom` is the sender's setting of this name.
    """

    mtu: int
    lone_read_eom: bool = True
    open: MessageOnWire | None = None

    def add(self, packet: Request, header: Buffer, payload: Buffer) -> None:
        """Check a request that is sent for the first time. `payload` begins with the extension headers. Raises
        `InvariantViolation`."""
        if packet.next_hdr != NextHdr.REQUEST_STD:
            return  # return data, or a form whose messages are one packet without an id
        request = parse_ses_request(header, 0, packet.next_hdr)
        if self._ends_early(request, len(payload)):
            self.open = None
            return
        extensions = parse_extensions(request.opcode, payload)
        size = len(payload) - extensions.size
        if self.open is None:
            _need(bool(request.som), "ses 3", "a message begins without SOM")
            self.open = MessageOnWire(request, _body(request, extensions))
        else:
            _need(not request.som, "ses 3", "SOM inside a message")
            self._same(request)
            _need(request.opcode == self.open.first.opcode, "ses 5/16", "opcode changes inside a message")
        message = self.open
        if request.opcode == Opcode.READ:
            _need(size == 0, "ses 7", "payload of a READ", size)
            size = min(self.mtu, message.body) if request.som else request.payload_length or 0
        implied = min(self.mtu, message.body) if request.som else request.payload_length
        _need(size == implied, "ses 7", "payload length", size)
        lone_read = request.opcode == Opcode.READ and bool(request.som) and size == message.body
        ends = bool(request.eom) or (lone_read and not self.lone_read_eom)
        _need(size == self.mtu or (ends and size < self.mtu), "ses 6", "short packet inside a message")
        _need(request.message_offset == message.at, "ses 2", "gap or overlap at", request.message_offset)
        message.at += size
        _need(ends == (message.at >= message.body), "ses 3", "EOM at", message.at, message.body)
        if ends:
            _need(message.at == message.body, "ses 1", "bytes of the message", message.at, message.body)
            self.open = None

    def _ends_early(self, request: SesRequest, payload: int) -> bool:
        """Return whether a packet is MSG_ERROR, or ends a stopped deferrable send (ses.md §5.12, §5.7 D3); check it."""
        message = self.open
        if message is None or request.som or not request.eom or request.payload_length:
            return False
        self._same(request)
        ends = request.opcode == Opcode.MSG_ERROR
        _need(ends or request.opcode in DEFERRABLES, "ses 1", "a message ends early with opcode", request.opcode)
        _need(not payload, "ses 1", "payload of the end of a message", payload)
        _need(request.message_offset == message.at, "ses 1", "a message ends early at", request.message_offset)
        return True

    def _same(self, request: SesRequest) -> None:
        assert self.open is not None
        first = self.open.first
        for name in ("message_id", "buffer_offset", "key", "initiator", "job_id", "pid_on_fep", "resource_index",
                     "ri_generation", "request_length"):  # fmt: skip
            same = getattr(first, name) == getattr(request, name)
            _need(same, "ses 5/16", f"{name} changes inside a message, or messages are interleaved")


def _body(request: SesRequest, extensions: Extensions) -> int:
    if extensions.rendezvous is not None:
        return extensions.rendezvous.eager_length
    atomic = extensions.atomic
    without = atomic is not None and (atomic.compare is not None or atomic.opcode in _NO_OPERAND)
    return 0 if without else request.request_length


_NO_OPERAND = (AtomicOpcode.READ, AtomicOpcode.INVAL)
