# SPDX-License-Identifier: GPL-2.0-only
"""This module is packet delivery as the reference provider does it, written from observed.md: a peer for tests, and no
part of our engines. It does only what that page says of it, and what an exchange needs besides.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Protocol

from uetproto.engine.contract import MILLISECOND, NEVER
from uetproto.wire.headers.uet_pds import AckReq, CtlType, NackCode, NextHdr, PdsType
from uetproto.wire.serial import add32, diff32
from uetproto.wire.tuples import (
    PdsAckHeader,
    PdsCpHeader,
    PdsCpSynHeader,
    PdsNackHeader,
    PdsRodReqHeader,
    PdsRodReqSynHeader,
    PdsRudReqHeader,
    PdsRudReqSynHeader,
)

WINDOW = 128
TIMEOUT = 100 * MILLISECOND
RETRIES = 4
NO_SES = bytes(12)


@dataclass
class Answer:
    """What SES says to a packet: the SES response and what follows it. A `nack` refuses the packet."""

    ses: bytes = b""
    next_hdr: int = NextHdr.RESPONSE
    guaranteed: bool = False
    nack: NackCode | None = None


class Ses(Protocol):
    """The semantics above a `ProviderPdc`."""

    def on_request(self, pdc: "ProviderPdc", body: bytes, next_hdr: int) -> Answer: ...
    def on_answer(self, handle: object, next_hdr: int, ses: bytes) -> None: ...


@dataclass
class Unacked:
    """A packet that was sent and not acknowledged."""

    psn: int
    next_hdr: int
    body: bytes
    clear: int
    handle: object
    due: int
    tries: int = 0


@dataclass
class Received:
    """A packet above CACK: buffered (`answer` None), or answered."""

    body: bytes
    next_hdr: int
    ar: bool
    answer: Answer | None = None
    singly: bool = False
    """Whether an ACK has named it."""


@dataclass
class ProviderPdc:
    """A PDC at the provider; both PSN spaces begin at `start`."""

    out: Callable[[bytes], None]
    ses: Ses
    rod: bool
    local: int
    peer: int
    start: int
    now: int = 0
    dead: bool = False
    unacked: dict[int, Unacked] = field(default_factory=dict)
    waiting: list[tuple[int, bytes, int | None, object]] = field(default_factory=list)
    got: dict[int, Received] = field(default_factory=dict)
    quiet: int = 0
    """Bytes that arrived since the last ACK."""

    def __post_init__(self) -> None:
        self.next = self.una = self.start
        self.cack = self.cleared = add32(self.start, -1)
        self.owed_clear: int | None = None
        self.message_clear = self.cack

    # The source half

    def send(self, bodies: list[tuple[int, bytes]], handle: object) -> None:
        """Queue the packets of a message; all of them carry the CLEAR_PSN of its first packet."""
        for index, (next_hdr, body) in enumerate(bodies):
            self.waiting.append((next_hdr, body, index, handle))
        self.pump()

    def pump(self) -> None:
        while self.waiting and not self.dead and diff32(self.next, self.una) < WINDOW:
            next_hdr, body, index, handle = self.waiting.pop(0)
            if not index:
                self.message_clear = add32(self.una, -1)
            record = Unacked(self.next, next_hdr, body, self.message_clear, handle, self.now + TIMEOUT)
            self.unacked[record.psn] = record
            self.next = add32(self.next, 1)
            self._transmit(record, 0)

    def _transmit(self, record: Unacked, retx: int) -> None:
        offset = diff32(record.clear, record.psn)
        plain, syn = (PdsRodReqHeader, PdsRodReqSynHeader) if self.rod else (PdsRudReqHeader, PdsRudReqSynHeader)
        if self.peer:
            head = plain.pack(record.next_hdr, retx, 1, offset, record.psn, self.local, self.peer)
        else:
            where = diff32(record.psn, self.start)
            head = syn.pack(record.next_hdr, retx, 1, offset, record.psn, self.local, 0, where)
        self.out(head + record.body)

    def on_time(self, now: int) -> None:
        self.now = now
        for record in list(self.unacked.values()):
            if record.due <= now:
                self._again(record, TIMEOUT << record.tries)

    def _again(self, record: Unacked, wait: int) -> None:
        record.tries += 1
        if record.tries > RETRIES:
            self.dead = True
            return
        record.due = self.now + wait
        self._transmit(record, 1)

    def deadline(self) -> int:
        return NEVER if self.dead else min((record.due for record in self.unacked.values()), default=NEVER)

    def take_ack(self, data: bytes, now: int) -> None:
        self.now = now
        ack = PdsAckHeader.read(data)
        size = PdsAckHeader.size + (16 if ack.type == PdsType.ACK_CC else 0)
        self.peer = self.peer or ack.spdcid
        psn = add32(ack.cack_psn, ack.ack_psn_offset)
        named = self.unacked.pop(psn, None)
        if named is not None:
            self.ses.on_answer(named.handle, ack.next_hdr, data[size:])
        for covered in [psn for psn in self.unacked if diff32(psn, ack.cack_psn) <= 0]:
            self.ses.on_answer(self.unacked.pop(covered).handle, NextHdr.NONE, b"")
        while self.una != self.next and self.una not in self.unacked:
            self.una = add32(self.una, 1)
        if ack.req == AckReq.CLEAR:
            self.owed_clear = psn
        if self.owed_clear is not None and diff32(add32(self.una, -1), self.owed_clear) >= 0:
            self.owed_clear = None
            self._control(CtlType.CLEAR_CMD, 0, add32(self.una, -1))
        self.pump()

    def take_nack(self, data: bytes, now: int) -> None:
        self.now = now
        nack = PdsNackHeader.read(data)
        record = self.unacked.get(nack.nack_psn)
        if record is None or nack.nack_code == NackCode.RCVD_SES_PROCG:
            return
        if nack.nack_code == NackCode.ROD_OOO:
            self._again(record, TIMEOUT)  # only the PSN named, at once: nack_payload is ignored
        elif nack.nack_code in (NackCode.INV_DPDCID, NackCode.PDC_MODE_MISMATCH, NackCode.INVALID_SYN):
            self.dead = True

    def _control(self, kind: CtlType, psn: int, payload: int) -> None:
        if self.peer:
            self.out(PdsCpHeader.pack(kind, 0, 0, 0, 0, psn, self.local, self.peer, payload))  # isrod 0, also on ROD
        else:
            self.out(PdsCpSynHeader.pack(kind, 0, 0, 0, 0, psn, self.local, 0, 0, payload))

    # The destination half

    def take_request(self, data: bytes, size: int, now: int) -> None:
        self.now = now
        head = PdsRudReqHeader.read(data)
        self.clear(add32(head.psn, head.clear_psn_offset))
        ahead = diff32(head.psn, self.cack)
        if ahead > WINDOW:
            self.nack(NackCode.PSN_OOR_WINDOW, head.psn, head.retx)
        elif ahead <= 0:
            self.ack(head.psn, Answer(_ok_again(data[size:])))
        elif head.psn in self.got:
            self._duplicate(head.psn, self.got[head.psn], head.retx)
        else:
            packet = Received(data[size:], head.next_hdr, bool(head.ar or head.syn))
            self.got[head.psn] = packet
            if self.rod:
                self._deliver_in_order(head.retx)
            else:
                self._deliver(head.psn, packet, head.retx)

    def _deliver_in_order(self, retx: int) -> None:
        """Packets after a gap wait, and send no NACK."""
        psn = add32(self.cack, 1)
        while psn in self.got:
            packet = self.got[psn]
            if packet.answer is None and not self._deliver(psn, packet, retx):
                return
            psn = add32(psn, 1)

    def _deliver(self, psn: int, packet: Received, retx: int) -> bool:
        answer = self.ses.on_request(self, packet.body, packet.next_hdr)
        if answer.nack is not None:
            del self.got[psn]
            self.nack(answer.nack, psn, retx)
            return False
        packet.answer = answer
        self.quiet += len(packet.body)
        self._advance()
        if packet.ar or answer.guaranteed or self.quiet >= 16_384:
            packet.singly = True
            self.ack(psn, answer)
        return True

    def _duplicate(self, psn: int, packet: Received, retx: int) -> None:
        """A copy of a packet that was never acknowledged singly is "still being worked on"."""
        if packet.answer is None or not packet.singly:
            self.nack(NackCode.RCVD_SES_PROCG, psn, retx)
        else:
            self.ack(psn, packet.answer)

    def clear(self, value: int) -> None:
        if diff32(value, self.cleared) > 0:
            self.cleared = value
            self._advance()
            if self.rod and self.got:
                self._deliver_in_order(0)

    def _advance(self) -> None:
        """CACK stays below a guaranteed response that was not cleared."""
        while True:
            psn = add32(self.cack, 1)
            packet = self.got.get(psn)
            if packet is None or packet.answer is None:
                return
            if packet.answer.guaranteed and diff32(psn, self.cleared) > 0:
                return
            del self.got[psn]
            self.cack = psn

    def ack(self, psn: int, answer: Answer) -> None:
        self.quiet = 0
        req = AckReq.CLEAR if answer.guaranteed else AckReq.NONE
        head = PdsAckHeader.pack(answer.next_hdr, 0, 0, req, diff32(psn, self.cack), self.cack, self.local, self.peer)
        self.out(head + answer.ses)

    def nack(self, code: NackCode, psn: int, retx: int) -> None:
        self.out(PdsNackHeader.pack(NextHdr.NONE, 0, retx, code, 0, psn, self.local, self.peer, 0))

    def take_control(self, data: bytes, now: int) -> None:
        self.now = now
        head = PdsCpHeader.read(data)
        if head.ctl_type == CtlType.CLEAR_CMD:
            self.clear(head.ctl_payload)
        elif head.ctl_type == CtlType.CLEAR_REQ:
            self._control(CtlType.CLEAR_CMD, 0, add32(self.una, -1))
        elif head.ctl_type == CtlType.ACK_REQ and diff32(head.psn, self.cack) > 0:  # else its window has moved on
            packet = self.got.get(head.psn)
            if packet is None:
                self.nack(NackCode.PKT_NOT_RCVD, head.psn, 0)
            else:
                self._duplicate(head.psn, packet, 0)
        elif head.ctl_type == CtlType.CLOSE_CMD:
            self.clear(add32(head.psn, -1))
            before = add32(head.psn, -1)
            self.out(PdsAckHeader.pack(NextHdr.NONE, 0, 0, AckReq.NONE, 1, before, self.local, self.peer))


def _ok_again(body: bytes) -> bytes:
    """Return the default response to a packet below the window: RC_NULL, and the message_id of the packet."""
    message_id = body[2:4] if len(body) >= 4 else bytes(2)
    return bytes(2) + message_id + bytes(8)


def draw_start(chance: Random) -> int:
    return chance.getrandbits(32)
