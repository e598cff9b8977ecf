"""The numbered invariants of pds.md §18 and ses.md §15, one function each, over what a `World` wrote down.

A function gets the ledger of one end of a PDC and what it is about, and raises `Violation` with its number. `STATE`
holds after every event, `SENT` for every packet that leaves, `DELIVERED` for every packet that reaches SES, `ANSWERED`
for every response or error that SES gets back.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from uetproto.engine.contract import Mode
from uetproto.engine.messages import Ack, Control, Message, Nack, Request, SesRequest, parse_ses_request
from uetproto.engine.psn_window import DONE, Stored, Waiting
from uetproto.engine.service import Response
from uetproto.engine.states import Role, State
from uetproto.engine.uet_pdc import Pdc
from uetproto.wire.serial import diff32
from uetproto.wire.uet_pds import AckReq, CtlType, NextHdr
from uetproto.wire.uet_ses import ResponseOpcode, ReturnCode

_M32 = 0xFFFFFFFF
CONSUMING = frozenset({CtlType.NOOP, CtlType.CLOSE_CMD, CtlType.CLOSE_REQ, CtlType.NEGOTIATION})


class Violation(AssertionError):  # noqa: N818 - the word of the pages
    """An invariant does not hold; the text begins with its number, as in `pds 13`."""


@dataclass(slots=True)
class Ledger:
    """What happened at one end of one PDC, seen from outside."""

    pdc: Pdc
    low: dict[str, int] = field(default_factory=dict)
    """Numbers that never decrease: the highest value seen."""
    contents: dict[int, bytes] = field(default_factory=dict)
    """PSN → SES header and payload, or type of the control packet, as first sent."""
    first_sent: list[int] = field(default_factory=list)
    copies: dict[int, int] = field(default_factory=dict)
    delivered: list[int] = field(default_factory=list)
    """Requests that SES took, in order."""
    delivered_set: set[int] = field(default_factory=set)
    answers: dict[int, Response] = field(default_factory=dict)
    """Final responses of the local SES, by PSN delivered."""
    outcomes: dict[tuple[int, int], str] = field(default_factory=dict)
    """(message, packet) of the local SES → response or error."""
    true_up_to: int | None = None
    """CACK when `pds_14_cack_truth` looked last."""
    peer: "Ledger | None" = None


State_ = Callable[[Ledger], None]
STATE: list[State_] = []
SENT: list[Callable[[Ledger, Message, bytes], None]] = []
DELIVERED: list[Callable[[Ledger, int, bytes], None]] = []


def _need(condition: bool, number: str, text: str, *values: Any) -> None:
    if not condition:
        raise Violation(f"{number}: {text} {' '.join(f'{v:#x}' if isinstance(v, int) else str(v) for v in values)}")


def _state(function: State_) -> State_:
    STATE.append(function)
    return function


def _sent(function: Callable[[Ledger, Message, bytes], None]) -> Callable[[Ledger, Message, bytes], None]:
    SENT.append(function)
    return function


def _delivered(function: Callable[[Ledger, int, bytes], None]) -> Callable[[Ledger, int, bytes], None]:
    DELIVERED.append(function)
    return function


# pds.md §18: numbers -------------------------------------------------------------------------------------------------


@_state
def pds_10_11_numbers_never_decrease(ledger: Ledger) -> None:
    """CACK, peer_cack, CLEAR_PSN, max_clear."""
    pdc = ledger.pdc
    now = {
        "cack": pdc.rx.cack, "max_clear": pdc.rx.max_clear, "peer_cack": pdc.tx.peer_cack, "clear": pdc.tx.clear_psn,
    }  # fmt: skip
    for name, value in now.items():
        _need(diff32(value, ledger.low.get(name, value)) >= 0, "pds 10/11", f"{name} decreases to", value)
    ledger.low = now


@_state
def pds_12_source_order(ledger: Ledger) -> None:
    """peer_cack ≤ CLEAR_PSN = una − 1 ≤ next − 1."""
    tx = ledger.pdc.tx
    _need(diff32(tx.peer_cack, tx.clear_psn) <= 0, "pds 12", "peer CACK beyond CLEAR", tx.peer_cack, tx.clear_psn)
    _need(diff32(tx.clear_psn, tx.last) <= 0, "pds 12", "CLEAR beyond what was sent", tx.clear_psn, tx.last)
    _need(tx.una == tx.next or tx.una in tx.records, "pds 12", "una is acknowledged", tx.una)


@_state
def pds_13_destination_order(ledger: Ledger) -> None:
    """max_clear ≤ CACK ≤ max_rcvd."""
    rx = ledger.pdc.rx
    _need(diff32(rx.max_clear, rx.cack) <= 0, "pds 13", "max_clear beyond CACK", rx.max_clear, rx.cack)
    _need(diff32(rx.cack, rx.max_rcvd) <= 0, "pds 13", "CACK beyond max_rcvd", rx.cack, rx.max_rcvd)


@_state
def pds_14_cack_truth(ledger: Ledger) -> None:
    """Up to CACK everything is delivered, responded, and not gtd_del or cleared."""
    rx = ledger.pdc.rx
    before = (rx.start - 1) & _M32 if ledger.true_up_to is None else ledger.true_up_to
    ledger.true_up_to = rx.cack
    for psn in range(before + 1, before + 1 + diff32(rx.cack, before)):
        answer = ledger.answers.get(psn & _M32)
        if answer is None:
            peer = ledger.peer
            is_cp = peer is None or peer.contents.get(psn & _M32) == b"CP"
            _need(is_cp, "pds 14", "CACK covers what was not answered", psn)
        elif answer.gtd:
            _need(diff32(psn & _M32, rx.max_clear) <= 0, "pds 14", "CACK covers an uncleared response", psn)


@_state
def pds_15_cack_maximality(ledger: Ledger) -> None:
    """PSN CACK + 1 is not complete."""
    rx = ledger.pdc.rx
    slot = rx.slots.get((rx.cack + 1) & _M32)
    complete = slot is DONE or (isinstance(slot, Stored) and diff32(rx.cack + 1, rx.max_clear) <= 0)
    _need(not complete, "pds 15", "CACK could advance from", rx.cack)


@_state
def pds_39_stored_responses(ledger: Ledger) -> None:
    """Stored are exactly the gtd_del PSNs above max_clear; at most MP_RANGE records in each direction."""
    rx, tx = ledger.pdc.rx, ledger.pdc.tx
    stored = {psn for psn, slot in rx.slots.items() if isinstance(slot, Stored)}
    _need(len(stored) == rx.stored, "pds 39", "count of stored responses", len(stored), rx.stored)
    waiting = sum(isinstance(slot, Waiting) for slot in rx.slots.values())
    _need(waiting == rx.waiting, "pds 39", "count of waiting packets", waiting, rx.waiting)
    should = {p for p, answer in ledger.answers.items() if answer.gtd and diff32(p, rx.max_clear) > 0}
    _need(stored == should, "pds 39", "stored responses", stored ^ should)
    _need(len(rx.slots) <= rx.mp_range, "pds 39", "records at the destination", len(rx.slots))
    _need(len(tx.records) <= 32640, "pds 39", "records at the source", len(tx.records))


@_state
def pds_41_acks_are_not_late(ledger: Ledger) -> None:
    """Between ACKs less than ACK_Gen_Trigger bytes arrive, whenever no response is pending."""
    pdc = ledger.pdc
    if not pdc.rx.waiting and pdc.state is not State.CLOSED:
        count = pdc.ack_gen_count
        _need(count == 0 or count < pdc.config.ack_gen_trigger, "pds 41", "bytes without an ACK", count)


@_state
def timers_are_told(ledger: Ledger) -> None:
    """The manager looks at a PDC not later than its next timer (`contract.Engine.deadline`)."""
    pdc = ledger.pdc
    if pdc.state is not State.CLOSED:
        _need(pdc.wake_at <= pdc.deadline(), "deadline", "told too late", pdc.wake_at, pdc.deadline())


@_state
def pds_18_marks_at_the_source(ledger: Ledger) -> None:
    """What the source holds for acknowledged or received is received at the destination."""
    peer, tx = ledger.peer, ledger.pdc.tx
    if peer is None or peer.pdc.state is State.CLOSED:
        return
    _need(diff32(tx.clear_psn, peer.pdc.rx.max_rcvd) <= 0, "pds 18", "acknowledged, not received", tx.clear_psn)
    for record in tx.records.values():
        _need(not record.dst_rcvd or peer.pdc.rx.received(record.psn), "pds 18", "dst_rcvd, not received", record.psn)


# pds.md §18: packets that leave --------------------------------------------------------------------------------------


@_sent
def pds_16_clear_on_the_wire(ledger: Ledger, packet: Message, ses: bytes) -> None:
    """psn + clear_psn_offset < psn, and never beyond the CLEAR_PSN of the source."""
    if isinstance(packet, Request):
        _need(diff32(packet.clear_psn, packet.psn) < 0, "pds 16", "a packet clears itself", packet.psn)
        clear = ledger.pdc.tx.clear_psn
        _need(diff32(packet.clear_psn, clear) <= 0, "pds 16", "CLEAR on the wire", packet.clear_psn, clear)


@_sent
def pds_17_ack_psn_was_received(ledger: Ledger, packet: Message, ses: bytes) -> None:
    """ACK_PSN is a PSN that the destination has received."""
    if isinstance(packet, Ack):
        rx = ledger.pdc.rx
        _need(rx.received(packet.ack_psn), "pds 17", "ACK of what was not received", packet.ack_psn)
        _need(diff32(packet.ack_psn, rx.start) >= 0, "pds 17", "ACK from before the start", packet.ack_psn)


@_sent
def pds_18_sack_bits(ledger: Ledger, packet: Message, ses: bytes) -> None:
    """Every set SACK bit is a PSN ≤ CACK or a received one."""
    if isinstance(packet, Ack):
        for bit in range(packet.sack_bitmap.bit_length()):
            if packet.sack_bitmap >> bit & 1:
                psn = (packet.sack_base + bit) & _M32
                _need(ledger.pdc.rx.received(psn), "pds 18", "SACK of what was not received", psn)


@_sent
def pds_20_24_first_transmissions(ledger: Ledger, packet: Message, ses: bytes) -> None:
    """First transmissions have consecutive PSNs and retx = 0, all others retx = 1; no PSN has two contents."""
    consumes = isinstance(packet, Request) or (isinstance(packet, Control) and packet.ctl_type in CONSUMING)
    if not consumes:
        return
    assert isinstance(packet, Request | Control)
    content = ses if isinstance(packet, Request) else b"CP"
    if packet.psn in ledger.contents:
        _need(bool(packet.retx), "pds 24", "retx = 0 on a copy of", packet.psn)
        _need(content == ledger.contents[packet.psn], "pds 20", "two contents of", packet.psn)
    else:
        last = ledger.first_sent[-1] if ledger.first_sent else packet.psn - 1
        _need((last + 1) & _M32 == packet.psn, "pds 20", "PSN out of turn", packet.psn, last)
        _need(not packet.retx, "pds 24", "retx = 1 on the first transmission of", packet.psn)
        ledger.first_sent.append(packet.psn)
        ledger.contents[packet.psn] = content
    ledger.copies[packet.psn] = ledger.copies.get(packet.psn, 0) + 1


@_sent
def pds_21_window(ledger: Ledger, packet: Message, ses: bytes) -> None:
    """psn ≤ CLEAR_PSN + mp_range."""
    if isinstance(packet, Request):
        tx = ledger.pdc.tx
        _need(diff32(packet.psn, tx.clear_psn) <= tx.mp_range, "pds 21", "outside the window", packet.psn)


@_sent
def pds_25_syn(ledger: Ledger, packet: Message, ses: bytes) -> None:
    """syn = 1 exactly from an initiator that does not know its target; Start_PSN fits."""
    if isinstance(packet, Request | Control):
        creating = ledger.pdc.state is State.CREATING
        _need(bool(packet.syn) == creating, "pds 25", "syn in the state", ledger.pdc.state.name)
        if packet.syn and packet.psn in ledger.contents:
            _need(packet.start_psn == ledger.pdc.tx.start, "pds 25", "Start_PSN", packet.start_psn)


@_sent
def pds_26_pdcid(ledger: Ledger, packet: Message, ses: bytes) -> None:
    """spdcid of a request is never 0."""
    if isinstance(packet, Request):
        _need(packet.spdcid == ledger.pdc.local_id != 0, "pds 26", "spdcid", packet.spdcid)


@_sent
def pds_31_who_closes(ledger: Ledger, packet: Message, ses: bytes) -> None:
    """CLOSE_CMD: initiator only, nothing un-ACKed but itself; CLOSE_REQ: target only."""
    if isinstance(packet, Control) and packet.ctl_type == CtlType.CLOSE_CMD:
        _need(ledger.pdc.role is Role.INITIATOR, "pds 31", "CLOSE_CMD from a target")
        others = [psn for psn in ledger.pdc.tx.records if psn != packet.psn]
        _need(not others and ledger.pdc.open_message is None, "pds 31", "CLOSE_CMD with packets un-ACKed", others)
    if isinstance(packet, Control) and packet.ctl_type == CtlType.CLOSE_REQ:
        _need(ledger.pdc.role is Role.TARGET, "pds 31", "CLOSE_REQ from an initiator")


@_sent
def pds_32_closing_ack(ledger: Ledger, packet: Message, ses: bytes) -> None:
    """No ACK covers the CLOSE_CMD before the PDC is drained; the one that does is its last packet."""
    close_psn = ledger.pdc.close_psn
    if isinstance(packet, Ack) and close_psn is not None:
        _need(diff32(packet.cack_psn, close_psn) < 0, "pds 32", "CLOSE_CMD is covered", packet.cack_psn)


@_sent
def pds_43_copies(ledger: Ledger, packet: Message, ses: bytes) -> None:
    """RUD: at most 1 + Max_RTO_Retx_Cnt + Max_NACK_Retx_Cnt copies of a PSN."""
    config = ledger.pdc.config
    if isinstance(packet, Request) and ledger.pdc.mode is Mode.RUD and config.max_rto_retx_cnt < 15:
        limit = 1 + config.max_rto_retx_cnt + config.max_nack_retx_cnt
        if config.max_nack_retx_cnt < 31:
            _need(ledger.copies.get(packet.psn, 0) <= limit, "pds 43", "copies of", packet.psn)


@_sent
def pds_40_guaranteed_acks(ledger: Ledger, packet: Message, ses: bytes) -> None:
    """The ACK of an uncleared gtd_del PSN carries its own response and req = CLEAR (also 8)."""
    if isinstance(packet, Ack):
        slot = ledger.pdc.rx.slots.get(packet.ack_psn)
        if isinstance(slot, Stored):
            _need(packet.req == AckReq.CLEAR, "pds 40", "req of", packet.ack_psn)
            _need(ses == slot.response, "pds 8", "another response for", packet.ack_psn)


@_sent
def ses_12_13_responses(ledger: Ledger, packet: Message, ses: bytes) -> None:
    """DEFAULT_RESPONSE is OK or NULL and EXPECTED; any other code is a RESPONSE, and guaranteed."""
    if isinstance(packet, Ack) and packet.next_hdr == NextHdr.RESPONSE:
        opcode, code = ses[0] & 0x3F, ses[1] & 0x3F
        fine = code in (ReturnCode.OK, ReturnCode.NULL)
        if opcode == ResponseOpcode.DEFAULT_RESPONSE:
            _need(fine and ses[0] >> 6 == 0, "ses 12", "default response with code", code)
        elif not fine:
            slot = ledger.pdc.rx.slots.get(packet.ack_psn)
            cleared = diff32(packet.ack_psn, ledger.pdc.rx.max_clear) <= 0
            _need(isinstance(slot, Stored) or cleared, "ses 13", "error not guaranteed, PSN", packet.ack_psn)


# pds.md §18: delivery ------------------------------------------------------------------------------------------------


@_delivered
def pds_1_at_most_once(ledger: Ledger, psn: int, ses: bytes) -> None:
    _need(psn not in ledger.delivered_set, "pds 1", "delivered twice", psn)


@_delivered
def pds_2_rod_order(ledger: Ledger, psn: int, ses: bytes) -> None:
    """ROD: Start_PSN, Start_PSN + 1, … minus control packets."""
    if ledger.pdc.mode is Mode.ROD and ledger.delivered:
        last = ledger.delivered[-1]
        peer = ledger.peer
        between = [p & _M32 for p in range(last + 1, last + diff32(psn, last))]
        skipped = [p for p in between if peer is None or peer.contents.get(p) != b"CP"]
        _need(diff32(psn, last) > 0 and not skipped, "pds 2", "out of order", psn, last)


@_delivered
def pds_3_same_bytes(ledger: Ledger, psn: int, ses: bytes) -> None:
    if ledger.peer is not None:
        _need(ledger.peer.contents.get(psn) == ses, "pds 3", "other bytes than were sent", psn)


@_delivered
def pds_4_state(ledger: Ledger, psn: int, ses: bytes) -> None:
    """Not on a closed PDC, nor newer than close_psn."""
    pdc = ledger.pdc
    _need(pdc.state is not State.CLOSED, "pds 4", "delivered on a closed PDC", psn)
    if pdc.close_psn is not None:
        _need(diff32(psn, pdc.close_psn) < 0, "pds 4", "delivered beyond CLOSE_CMD", psn)


@_delivered
def pds_5_window(ledger: Ledger, psn: int, ses: bytes) -> None:
    rx = ledger.pdc.rx
    _need(1 <= diff32(psn, rx.cack) <= rx.mp_range, "pds 5", "outside the window", psn, rx.cack)


# pds.md §18 6, 7; ses.md §15 -----------------------------------------------------------------------------------------


def pds_6_one_outcome(ledger: Ledger, handle: tuple[int, int], outcome: str) -> None:
    """Every packet of SES gets exactly one of {response, error}."""
    before = ledger.outcomes.get(handle)
    _need(before is None, "pds 6", f"packet {handle} got {before} and {outcome}")
    ledger.outcomes[handle] = outcome


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

    def add(self, packet: Request, ses: bytes) -> None:
        """One first transmission. Raises `Violation`."""
        if packet.next_hdr != NextHdr.REQUEST_STD:
            return
        request, payload = parse_ses_request(ses, 0, packet.next_hdr), len(ses) - 44
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
        if message.first.opcode != 0x0F and len(message.ranges) == max(1, -(-length // self.mtu)):
            at = 0
            for offset, size in message.ranges:
                _need(offset == at, "ses 2", "gap or overlap at", offset)
                at += size
            _need(at == length, "ses 1", "bytes of the message", at, length)


__all__ = ["DELIVERED", "SENT", "STATE", "Ledger", "Nack", "Segments", "Violation", "pds_6_one_outcome"]
