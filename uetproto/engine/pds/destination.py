# SPDX-License-Identifier: GPL-2.0-only
"""The destination half of a PDC delivers requests to SES, acknowledges them, and stores guaranteed responses.

The sources are UE 1.0.1 §3.5.12.2, §3.5.17, §3.5.20 and pds.md §8, §9, §10, §14.
"""

from uetproto.engine.contract import NEVER, Buffer, Datagram, Mode, Negotiated, TrafficClass, Trim
from uetproto.engine.pds.messages import CC_STATE, Ack, Control, Request
from uetproto.engine.pds.pdc import Pdc
from uetproto.engine.pds.psn_window import (
    DONE,
    MPR_UNIT,
    BufferedSlot,
    ClosingSlot,
    CompleteSlot,
    Slot,
    StoredSlot,
    UnansweredSlot,
    Verdict,
)
from uetproto.engine.pds.service import RETURN_DATA, SES_SIZE, Refusal, Response, build_default_response, message_id_of
from uetproto.engine.pds.states import Input, Role, State
from uetproto.errors import LocalError
from uetproto.wire.headers import uet_pds
from uetproto.wire.headers.uet_pds import AckReq, CcType, CtlType, NackCode, NextHdr, PdsType
from uetproto.wire.serial import diff32
from uetproto.wire.tuples import PdsAckCcHeader, PdsAckHeader

_M32 = 0xFFFFFFFF
# Looked up once: with every packet, Class.MEMBER would cost as much as a call.
_NEW = Verdict.NEW
_NO_REQ, _CLOSE_REQ, _TARGET, _QUIESCE = AckReq.NONE, AckReq.CLOSE, Role.TARGET, State.QUIESCE
_DATA, _CONTROL, _NO_TRIM, _ACK = TrafficClass.DATA, TrafficClass.CONTROL, Trim.NO, PdsType.ACK
ASSUMED_RANGE = 8 * MPR_UNIT
"""MP_RANGE that a source assumes until an ACK_CC states another: Default_MPR (pds.md §17)."""
_ACK_CC = {
    False: (PdsType.ACK_CC, CcType.NSCC, bytes(uet_pds.CC_STATE_NSCC.size)),
    True: (PdsType.ACK_CCX, 0, bytes(uet_pds.CCX_STATE.size)),
}
"""Type of an ACK with a SACK, its cc_type, and its congestion control state, by `ack_ccx`. The state is zero without
congestion control, and begins with that of an ACK_CC else."""
CLEAR_REQ_PERIODS = 4
"""Number of PDS_Clear_Time periods after which a target asks for a CLEAR (pds.md §9.3)."""


# Requests (pds.md §8)


def take_request(pdc: Pdc, request: Request, datagram: Datagram, now: int) -> bool:
    """Process the CLEAR_PSN of a request, and then its PSN. Return whether the request was delivered to SES."""
    rx, clear = pdc.rx, request.clear_psn
    if clear != rx.max_clear:
        if clear == rx.cack and not rx.stored:  # the common case, with the same result as below
            rx.max_clear = clear
            pdc.stored_at = NEVER
        else:
            apply_clear(pdc, clear)
    if request.credit_target is not None and pdc.cc_rx is not None:
        pdc.cc_rx.asked(request.ccc_id, request.credit_target, now)
    if rx.classify(request.psn) is not _NEW or (pdc.close_psn is not None and is_beyond_close(pdc, request.psn)):
        message_id = message_id_of(datagram.header, request.size, request.next_hdr)
        return handle_not_new(pdc, request, datagram, now, NextHdr.RESPONSE, message_id)
    taken = _deliver(pdc, request, datagram, now)
    if rx.buffered:
        deliver_buffered(pdc, now)
    return taken


def _deliver(pdc: Pdc, request: Request, datagram: Datagram, now: int) -> bool:
    """Deliver a NEW request to SES, if there are resources for it, and answer it (pds.md §6.3 rows 16 and 17).

    Return False if it was refused with a NACK.
    """
    rx, config, psn = pdc.rx, pdc.config, request.psn
    if rx.stored + rx.waiting >= config.max_gtd_del - 1 and not _room_for_response(pdc, psn):
        pdc.nack(NackCode.NO_GTD_DEL_AVAIL, request, datagram)
        return False
    if rx.waiting + rx.buffered >= config.max_packet_buffers:
        pdc.nack(NackCode.NO_PKT_BUFFER, request, datagram)
        return False
    if request.spdcid != pdc.peer_id:
        pdc.learn(request.spdcid)
    data, at = datagram.header, request.size
    payload = datagram.payload or data[at + SES_SIZE[request.next_hdr] :]
    answer = pdc.user.on_request(pdc, psn, request.next_hdr, data, at, payload, now)
    if isinstance(answer, Refusal):
        pdc.nack(answer.code, request, datagram)
        return False
    pdc.counters.data_rx += 1
    if pdc.cc_rx is not None:
        pdc.cc_rx.arrived(nominal_size(pdc, request, datagram), now)
    size = len(payload)
    pdc.ack_gen_count += size if size > config.ack_gen_min_pkt_add else config.ack_gen_min_pkt_add
    if answer is not None and answer.final and not answer.gtd and not rx.waiting and not pdc.held:
        # The common case, with the same result as below.
        ar, retx, marked = request.ar, request.retx, datagram.ecn_marked
        created = request.syn and rx.max_rcvd == (rx.start - 1) & _M32
        rx.take(psn, DONE)
        if (
            ar or retx or created or (marked and config.ack_on_ecn)
            or pdc.ack_gen_count >= config.ack_gen_trigger or rx.gap_closed
        ):  # fmt: skip
            if ar and psn != rx.cack and config.ack_on_gap_close:
                rx.note_early(psn)
            send_ack(pdc, psn, answer.next_hdr, answer.header, marked, retx, _NO_REQ, datagram.entropy)
        return True
    created = rx.max_rcvd == (rx.start - 1) & _M32 and bool(request.syn)
    waiting = UnansweredSlot(request.ar, request.retx, datagram.ecn_marked, datagram.entropy, created, since=now)
    if answer is None or not answer.final:
        rx.take(psn, waiting)
        if answer is not None:
            _send_placeholder(pdc, psn, waiting, answer)
    else:
        rx.take(psn, _slot_of(pdc, answer))
        _answered(pdc, psn, waiting, answer, now)
    return True


def nominal_size(pdc: Pdc, request: Request, datagram: Datagram) -> int:
    """Return the nominal size of a request that arrived whole (cms.md §1)."""
    manager = pdc.owner.congestion
    assert manager is not None
    size = len(datagram.header) + len(datagram.payload) + manager.overhead
    return size if request.size else size + request.packed_size


def _room_for_response(pdc: Pdc, psn: int) -> bool:
    """Return True when there is room to store the response to a PSN; room for the lowest missing PSN is kept free.

    While that PSN is missing, no CLEAR_PSN can be above it, and no stored response above it can be released.
    """
    rx, most = pdc.rx, pdc.config.max_gtd_del
    taken = rx.stored + rx.waiting
    return taken < most - 1 or (taken < most and psn == rx.lowest_missing())


def _slot_of(pdc: Pdc, answer: Response) -> Slot:
    """Return the slot for an answer; a guaranteed response is stored until a CLEAR (pds.md §9.2, §10)."""
    if not answer.gtd:
        return DONE
    kept = pdc.config.store_ack_read_data or answer.next_hdr not in RETURN_DATA or not answer.rereadable
    return StoredSlot(answer.next_hdr, answer.header if kept else None)


def _keep_for_later(pdc: Pdc, packet: Request | Control, datagram: Datagram) -> None:
    """Buffer a packet after a gap until the gap is filled (`rod_gap = reorder`, pds.md §20 row 3).

    The last buffer is kept for the missing packet. A packet that finds no other buffer is refused with NACK
    NO_PKT_BUFFER.
    """
    if pdc.rx.waiting + pdc.rx.buffered >= pdc.config.max_packet_buffers - 1:
        pdc.nack(NackCode.NO_PKT_BUFFER, packet, datagram)
    else:
        pdc.rx.keep(packet.psn, BufferedSlot(packet, datagram))


def deliver_buffered(pdc: Pdc, now: int) -> None:
    """Deliver buffered packets in order, up to the first packet that is missing or refused."""
    while (slot := pdc.rx.next_turn()) is not None:
        if isinstance(slot.packet, Request):
            taken = _deliver(pdc, slot.packet, slot.datagram, now)
        else:
            taken = take_cp_in_turn(pdc, slot.packet, slot.datagram, now)
            if slot.packet.ctl_type == CtlType.CLOSE_REQ:
                pdc.step(Input.CLOSE, now)
        if not taken:
            pdc.rx.keep(slot.packet.psn, slot)  # a SACK may have reported it; a duplicate causes the next try
            break


def current_slot(pdc: Pdc, psn: int, now: int) -> Slot | None:
    """Return the slot of a PSN, or None if there is no slot. The slot records what happened to the packet. If the
    packet is buffered, first try again to deliver it, as SES may have refused it before.
    """
    if isinstance(pdc.rx.slots.get(psn), BufferedSlot):
        deliver_buffered(pdc, now)
    return pdc.rx.slots.get(psn)


def respond(pdc: Pdc, psn: int, answer: Response, now: int) -> None:
    """Process a late answer of SES to a delivered packet.

    Raises `LocalError` if the packet does not wait for an answer.
    """
    slot = pdc.rx.slots.get(psn)
    if not isinstance(slot, UnansweredSlot):
        raise LocalError(f"PDC {pdc.local_id}: PSN {psn:#x} does not wait for a response", id="not-registered")
    if not answer.final:
        _send_placeholder(pdc, psn, slot, answer)
        return
    kept = _slot_of(pdc, answer)
    assert isinstance(kept, StoredSlot | CompleteSlot)
    pdc.rx.answer(psn, kept)
    _answered(pdc, psn, slot, answer, now)


def _send_placeholder(pdc: Pdc, psn: int, waiting: UnansweredSlot, answer: Response) -> None:
    """Send NO_RESPONSE if an ACK is due; the PSN stays incomplete (pds.md §8.2)."""
    if _ack_due(pdc, waiting):
        _send_ack_for(pdc, psn, waiting, answer)


def _ack_due(pdc: Pdc, packet: UnansweredSlot) -> bool:
    config = pdc.config
    return bool(
        packet.ar or packet.retx or packet.created or packet.asked
        or (packet.marked and config.ack_on_ecn)
        or pdc.ack_gen_count >= config.ack_gen_trigger or pdc.rx.gap_closed
    )  # fmt: skip


def _answered(pdc: Pdc, psn: int, packet: UnansweredSlot, answer: Response, now: int) -> None:
    """Send the ACK of an answered PSN, if an ACK is due; on ROD ACKs are sent in PSN order (pds.md §8.3)."""
    if answer.gtd and pdc.stored_at == NEVER:
        pdc.stored_at = now + (CLEAR_REQ_PERIODS * pdc.config.pds_clear_time or pdc.config.rto_init_time or 1)
        pdc.owner.wake(pdc, pdc.stored_at)
    if pdc.mode is Mode.ROD and (pdc.rx.waiting or pdc.held):
        _answered_in_turn(pdc, psn, packet, answer)
    elif answer.gtd or _ack_due(pdc, packet):
        _send_ack_for(pdc, psn, packet, answer)


def _answered_in_turn(pdc: Pdc, psn: int, packet: UnansweredSlot, answer: Response) -> None:
    """Send ACKs on ROD in PSN order: each waits until all lower PSNs are answered."""
    held = pdc.held = pdc.held or {}
    held[psn] = (answer, packet)
    edge = pdc.rx.lowest(UnansweredSlot) if pdc.rx.waiting else None
    for ready in sorted(held, key=pdc.rx.above_cack):
        if edge is not None and diff32(ready, edge) > 0:
            break
        answer, packet = held.pop(ready)
        if answer.gtd or _ack_due(pdc, packet):
            _send_ack_for(pdc, ready, packet, answer)


def _send_ack_for(pdc: Pdc, psn: int, packet: UnansweredSlot, answer: Response) -> None:
    rx = pdc.rx
    req = AckReq.CLEAR if isinstance(rx.slots.get(psn), StoredSlot) else AckReq.NONE
    if packet.ar and pdc.config.ack_on_gap_close:
        rx.note_early(psn)
    send_ack(pdc, psn, answer.next_hdr, answer.header, packet.marked, packet.retx, req, packet.entropy, packet.since)


def send_ack(
    pdc: Pdc,
    psn: int,
    next_hdr: int,
    response: Buffer,
    marked: int,
    retx: int,
    req: int,
    entropy: int,
    since: int | None = None,
) -> None:
    """Send an ACK (pds.md §8.4), with the entropy of the packet that it acknowledges (cms.md §1)."""
    rx, config = pdc.rx, pdc.config
    if pdc.state is _QUIESCE and req == _NO_REQ and pdc.role is _TARGET:
        req = _CLOSE_REQ
    if not config.ack_copies_retx:
        retx = 0
    pdc.ack_gen_count = 0
    pdc.counters.ack_tx += 1
    always = config.ack_cc == "always" or pdc.cc_rx is not None
    told = config.ack_cc == "when_gap" and (rx.max_rcvd != rx.cack or rx.mp_range != ASSUMED_RANGE)
    base = rx.sack_base(config.sack_base, psn) if told or always else None
    kind = _DATA if len(response) > config.trimmable_ack_size else _CONTROL
    emit_ack(pdc, next_hdr, response, marked, retx, req, psn, None, base, entropy, kind, since)
    if base is not None:
        rx.ack_sent()


def emit_ack(
    pdc: Pdc, next_hdr: int, response: Buffer, marked: int, retx: int, req: int, psn: int, opaque: int | None,
    base: int | None, entropy: int, kind: TrafficClass, since: int | None = None,
) -> None:  # fmt: skip
    """Emit an ACK of `psn`, or, if `opaque` is given, the answer to a PROBE. If `base` is given, the ACK is an ACK_CC
    or ACK_CCX with a SACK that begins at `base`. `since`: when the packet that causes the ACK arrived, if not now.
    """
    rx, config, owner = pdc.rx, pdc.config, pdc.owner
    cack, local, peer = rx.cack, pdc.local_id, pdc.peer_id
    rx.gap_closed = False
    what, mpr, bitmap, cc_type, state = _ACK, 0, 0, 0, b""
    if base is not None:
        what, cc_type, state = _ACK_CC[config.ack_ccx]
        if pdc.cc_rx is not None:
            cc_type, told = pdc.cc_rx.ack_state(owner.now if since is None else since, len(rx.slots), owner.now)
            state = told.ljust(len(state), b"\0")
        mpr, bitmap = config.mp_range // MPR_UNIT, rx.sack_bitmap(base)
    message, header = None, b""
    if not owner.objects:
        about = psn - cack if opaque is None else opaque
        offset, probe = ((about + 0x8000) & 0xFFFF) - 0x8000, opaque is not None
        if base is None:
            header = PdsAckHeader.pack(next_hdr, marked, retx, req, offset, cack, local, peer, p=probe)
        else:
            header = PdsAckCcHeader.pack(
                next_hdr, marked, retx, req, offset, cack, local, peer, cc_type, 0, mpr,
                ((base - cack + 0x8000) & 0xFFFF) - 0x8000, bitmap, type=what, p=probe,
            ) + state  # fmt: skip
    if owner.messages:
        message = Ack(
            what, next_hdr, marked, retx, req, cack if opaque is not None else psn, opaque, cack, local, peer, mpr,
            cack if base is None else base, bitmap, len(header), None, cc_type, state[:CC_STATE],
        )  # fmt: skip
    owner.out.append(Datagram(
        owner.address, pdc.peer, header + response, b"", kind, entropy, False, _NO_TRIM, owner.ip_version, message,
    ))  # fmt: skip


def handle_not_new(
    pdc: Pdc, packet: Request | Control, datagram: Datagram, now: int, next_hdr: int, message_id: int = 0
) -> bool:
    """Handle a packet that is not NEW, or whose PSN is beyond the CLOSE_CMD: refuse, answer, buffer or drop it (pds.md
    §8.1).

    Always return False, as the packet was not delivered.
    """
    psn = packet.psn
    verdict = pdc.rx.classify(psn)
    if is_beyond_close(pdc, psn):
        pdc.nack(NackCode.CLOSING, packet, datagram)
    elif verdict is Verdict.AHEAD:
        pdc.counters.oor_ahead += 1
        pdc.nack(NackCode.PSN_OOR_WINDOW, packet, datagram)
    elif verdict is Verdict.BEHIND:
        pdc.counters.oor_behind += 1
    elif (
        verdict is Verdict.GAP and not datagram.trimmed and pdc.config.keeps_gaps
        and not (isinstance(packet, Control) and packet.ctl_type == CtlType.CLOSE_CMD)
    ):  # fmt: skip
        _keep_for_later(pdc, packet, datagram)
    elif verdict is Verdict.GAP:
        pdc.nack(NackCode.ROD_OOO, packet, datagram, pdc.rx.expected)
    elif verdict is not Verdict.NEW:
        _duplicate(pdc, packet, datagram, now, next_hdr, message_id)
    return False


def is_beyond_close(pdc: Pdc, psn: int) -> bool:
    """Return whether a CLOSE_CMD has arrived and `psn` is newer than the PSN of the CLOSE_CMD."""
    return pdc.close_psn is not None and diff32(psn, pdc.close_psn) > 0


def _duplicate(
    pdc: Pdc, packet: Request | Control, datagram: Datagram, now: int, next_hdr: int, message_id: int
) -> None:
    """Answer a duplicate, unless it has no retx; never deliver it again (pds.md §8.1, second table)."""
    psn = packet.psn
    if not packet.retx and pdc.config.dup_without_retx == "drop":
        pdc.counters.dup_no_retx += 1
        return
    pdc.counters.dup_rx += 1
    slot = pdc.rx.slots.get(psn) if datagram.trimmed else current_slot(pdc, psn, now)
    if isinstance(slot, UnansweredSlot | BufferedSlot | ClosingSlot):
        pdc.nack(NackCode.RCVD_SES_PROCG, packet, datagram)
        return
    req: int = AckReq.NONE
    response: Buffer = b""
    if isinstance(slot, StoredSlot):
        stored, next_hdr = slot.response, slot.next_hdr
        if stored is None and slot.next_hdr in RETURN_DATA and isinstance(packet, Request):
            if datagram.trimmed:
                _refuse_trimmed(pdc, packet, datagram)  # the part that says what to read is cut off
                return
            again = _read_again(pdc, packet, datagram)
            stored, next_hdr = again.header, again.next_hdr
        if stored is None:
            pdc.nack(NackCode.GTD_RESP_UNAVAIL, packet, datagram)
            return
        response, req = stored, AckReq.CLEAR
    elif next_hdr == NextHdr.RESPONSE:
        response = build_default_response(message_id)
    send_ack(pdc, psn, next_hdr, response, datagram.ecn_marked, packet.retx, req, datagram.entropy)


def _read_again(pdc: Pdc, request: Request, datagram: Datagram) -> Response:
    """Return read data that was sent in an ACK and not stored: SES reads it again (pds.md §10)."""
    data, at = datagram.header, request.size
    payload = datagram.payload or data[at + SES_SIZE[request.next_hdr] :]
    return pdc.user.on_reread(pdc, request.psn, request.next_hdr, data, at, payload)


def _refuse_trimmed(pdc: Pdc, request: Request, datagram: Datagram) -> None:
    trimmed = datagram.trimmed is Trim.TRIMMED
    pdc.nack(NackCode.TRIMMED if trimmed else NackCode.TRIMMED_LASTHOP, request, datagram)


def take_trimmed(pdc: Pdc, request: Request, datagram: Datagram, now: int) -> bool:
    """Send NACK TRIMMED for a packet of which only the header arrived, or ROD_OOO if the packet came after a gap and
    would have been discarded (pds.md §14).

    The CLEAR_PSN of the packet is ignored. Always return False, as the packet was not delivered.
    """
    verdict = pdc.rx.classify(request.psn)
    wanted = verdict is Verdict.NEW or (verdict is Verdict.GAP and pdc.config.keeps_gaps)
    if wanted and not is_beyond_close(pdc, request.psn):
        _refuse_trimmed(pdc, request, datagram)
    elif verdict not in (Verdict.AHEAD, Verdict.BEHIND):
        handle_not_new(pdc, request, datagram, now, NextHdr.RESPONSE)
    return False


def apply_clear(pdc: Pdc, value: int) -> None:
    """Release the guaranteed responses up to the CLEAR_PSN of a request or CLEAR_CMD (pds.md §9.3)."""
    if not pdc.rx.clear(value):
        pdc.counters.bad_clear += 1
    elif not pdc.rx.stored:
        pdc.stored_at = NEVER


def take_cp_in_turn(pdc: Pdc, control: Control, datagram: Datagram, now: int) -> bool:
    """Complete a NEW control packet that consumes a PSN, and acknowledge it (pds.md §13)."""
    pdc.learn(control.spdcid)
    pdc.rx.take(control.psn, DONE)
    if control.ctl_type == CtlType.NEGOTIATION:
        pdc.owner.tell(Negotiated(pdc.peer, pdc.local_id, control.payload))
    if pdc.config.ack_on_gap_close:
        pdc.rx.note_early(control.psn)
    send_ack(pdc, control.psn, NextHdr.NONE, b"", datagram.ecn_marked, control.retx, AckReq.NONE, datagram.entropy)
    return True
