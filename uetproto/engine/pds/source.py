# SPDX-License-Identifier: GPL-2.0-only
"""The source half of a PDC sends requests, handles ACKs and NACKs, and retransmits.

UE 1.0.1 §3.5.12, §3.5.16.3, §3.5.20; pds.md §7, §9.3, §11, §12.
"""

from collections import deque
from typing import cast

from uetproto.engine.config import PROBING
from uetproto.engine.contract import NEVER, Datagram, Mode, PdcErrorReason, Probed, TrafficClass, Trim
from uetproto.engine.pds import congestion
from uetproto.engine.pds.messages import USE_RSV_PDC, Ack, Control, Nack, Request
from uetproto.engine.pds.nacks import NACKS
from uetproto.engine.pds.pdc import Pdc
from uetproto.engine.pds.psn_window import SACK_BITS
from uetproto.engine.pds.retransmit import (
    INFERRED,
    MAX_CLEAR_OFFSET,
    MAX_SYN_OFFSET,
    NEAR_PSN_LIMIT,
    PSN_LIMIT,
    RTO,
    SendRecord,
    rto_waits,
)
from uetproto.engine.pds.service import Locking, Outgoing, is_no_response
from uetproto.engine.pds.states import Input, Role, State
from uetproto.engine.pds.trains import send_train, take_ack_of_trains
from uetproto.wire.headers.uet_pds import AckReq, CtlType, NackCode, NextHdr, PdsType
from uetproto.wire.serial import diff32
from uetproto.wire.tuples import PdsReqCcStateHeader, PdsRudReqHeader, PdsRudReqSynHeader

_M32 = 0xFFFFFFFF
# Looked up once: with every packet, Class.MEMBER would cost as much as a call.
_CREATING, _SEND, _SEND_MORE = State.CREATING, Input.SEND, Input.SEND_MORE
_DATA, _NO_TRIM, _ROD, _NO_HEADER = TrafficClass.DATA, Trim.NO, Mode.ROD, NextHdr.NONE
_ACK, _CLEAR, _CLOSE, _RESPONSE = PdsType.ACK, AckReq.CLEAR, AckReq.CLOSE, NextHdr.RESPONSE
_WITH_STATE = {Mode.RUD: PdsType.RUD_CC_REQ, Mode.ROD: PdsType.ROD_CC_REQ}
_SIGN = 1 << 31
"""Bit of a difference of PSNs that is set if the first PSN is below the second."""


# Sending (pds.md §7.1)


def pump(pdc: Pdc, now: int, limit: int) -> int:
    """Send the queued control packets and requests that the window permits, then a CLEAR_CMD if a CLEAR is due and no
    request carried it (pds.md §6.4, §9.3).

    Return the number of first transmissions, at most `limit`.
    """
    sent = 0
    asked = False
    if pdc.unblock_at != NEVER:
        asked = pdc.unblock_at <= now != pdc.touched  # the time for an answer is over, and no packet arrived just now
        pdc.unblock_at = NEVER
    if pdc.cps:
        sent = _pump_cps(pdc, now, limit)
    if pdc.again:
        sent += _pump_again(pdc, now, limit - sent)
    if (pdc.queue or pdc.open_message is not None) and not pdc.again:
        room = (pdc.tx.room() if pdc.state is not _CREATING else _room(pdc)) + sent
        while sent < limit and sent < room and (pdc.open_message is not None or pdc.queue):
            found = pdc.rows[_SEND if pdc.open_message is None else _SEND_MORE]
            if found is None or (pdc.cc is not None and not congestion.may_send(pdc, now)):
                break
            if pdc.locks and _is_held_back(pdc):
                break
            if pdc.owner.trains and (taken := send_train(pdc, now, min(limit, room) - sent)):
                sent += taken
                continue
            found[0](pdc, now)  # these inputs do not change the state
            sent += 1
        if sent:
            pdc.touched = now
    if (
        pdc.tx.window_at_cack and limit and not sent and not pdc.tx.flying and _room(pdc) == 0
        and (
            pdc.cps or pdc.queue or pdc.open_message is not None
            or (pdc.state is State.ACK_WAIT and pdc.role is Role.INITIATOR)  # CLOSE_CMD waits (pds.md §6.4)
        )
    ):  # fmt: skip
        _unblock(pdc, asked, now)
    if pdc.clear_owed:
        _send_clear_cmd(pdc, pdc.tx.clear_psn)
    if pdc.clear_at != NEVER and (pdc.clear_at <= now or pdc.config.clear_cmd == "immediate"):
        pdc.step(Input.CLEAR_TIME, now)
    return sent


def _is_held_back(pdc: Pdc) -> bool:
    """Return whether the next packet is one of a read that waits until earlier reads of the PDC have their data."""
    message = pdc.open_message if pdc.open_message is not None else pdc.queue[0]
    return message.lock and cast(Locking, message).is_held_back(pdc)


def _pump_again(pdc: Pdc, now: int, limit: int) -> int:
    """Retransmit the packets that wait, as far as congestion control allows (cms.md §2). Return their number."""
    sent = 0
    while sent < limit and (record := congestion.next_again(pdc, now)) is not None:
        anew = not record.sends
        ask = congestion.sent_again(pdc, record, now)
        if anew:
            pdc.touched = now
            _arm(pdc, record, now)
            emit_request(pdc, record, 0, int(ask or record.ar), record.clear_psn, now)
        else:
            _retransmit_now(pdc, record, now, record.cause)
        sent += 1
    return sent


def _pump_cps(pdc: Pdc, now: int, limit: int) -> int:
    """Send the queued control packets that consume a PSN.

    A control packet cannot carry a CLEAR_PSN. If the window permits it only after a new CLEAR_PSN, a CLEAR_CMD precedes
    it (pds.md §7.1).
    """
    tx, cps = pdc.tx, pdc.cps
    assert cps is not None
    sent = 0
    while cps and sent < limit and _room(pdc) > 0:
        if diff32(tx.next, tx.peer_cack) > tx.mp_range and diff32(tx.clear_psn, pdc.clear_sent) > 0:
            _send_clear_cmd(pdc, tx.clear_psn)
        ctl_type, payload = cps.popleft()
        psn = pdc.send_psn_cp(ctl_type, payload, now)
        sent += 1
        if (psn - tx.start) & _M32 >= PSN_LIMIT - 2 and pdc.config.limit_psn_range:
            pdc.step(Input.EXHAUSTED, PdcErrorReason.PSN_LIMIT, now)
            break
    pdc.touched = now
    return sent


def queue_cp(pdc: Pdc, ctl_type: CtlType, payload: int, now: int) -> None:
    """Queue a control packet that consumes a PSN. It is sent before the next request (pds.md §13)."""
    if pdc.cps is None:
        pdc.cps = deque()
    pdc.cps.append((ctl_type, payload))


def take_return(pdc: Pdc, message: Outgoing, now: int) -> None:
    """Queue read data on the return direction of the PDC on which the read request arrived (pds.md §10)."""
    pdc.queue.append(message)
    congestion.offer(pdc, message)


def _room(pdc: Pdc) -> int:
    """Return how many PSNs may be used now: the window, and in CREATING also psn_offset, limit them (pds.md §7.1)."""
    tx = pdc.tx
    if pdc.state is _CREATING:
        return min(tx.room(), MAX_SYN_OFFSET + 1 - ((tx.next - tx.start) & _M32))
    return tx.room()


def send(pdc: Pdc, now: int) -> None:
    """Send the next packet of the open message, or the first packet of the next message if no message is open.

    In CREATING the packet carries syn = 1.
    """
    message = pdc.open_message
    tx = pdc.tx
    if message is None:
        pdc.open_message = message = pdc.queue.popleft()
        pdc.message_clear = tx.clear_psn
        if message.lock:
            pdc.locks += 1
            cast(Locking, message).began(pdc, tx.next)
    index, header, payload, last = message.next_packet()
    if last:
        pdc.open_message = None
    config = pdc.config
    psn = tx.next
    clear = (tx.una - 1) & _M32
    if config.clear_source != "explicit":
        clear = tx.peer_cack
    elif config.clear_at != "packet":
        if (psn - pdc.message_clear) & _M32 > MAX_CLEAR_OFFSET:
            pdc.message_clear = clear  # the message is too long: clear_psn_offset has 16 bits
        clear = pdc.message_clear
    ar = config.enb_ack_per_pkt or (last and config.ar_on_eom)
    if pdc.cc is None:
        record = SendRecord(psn, message, index, message.next_hdr, header, payload, ar, clear)
    else:
        record = congestion.first_sent(pdc, psn, message, index, header, payload, ar, clear, now)
        ar = record.ar
    emit_request(pdc, record, 0, ar, clear, now)
    tx.track(record, now)
    pdc.counters.data_tx += 1
    if record.rto_at < pdc.wake_at:
        pdc.owner.wake(pdc, record.rto_at)
    if pdc.probe_at == NEVER and config.inferred_loss in PROBING:
        _arm_probe(pdc, now)
    if (psn - tx.start) & _M32 >= NEAR_PSN_LIMIT and config.limit_psn_range:
        _near_the_psn_limit(pdc, (psn - tx.start) & _M32, now)


def _near_the_psn_limit(pdc: Pdc, used: int, now: int) -> None:
    """Close the PDC before its PSNs are used up (Limit_PSN_Range); end it in error when they are (pds.md §2.2)."""
    if used >= PSN_LIMIT - 2:  # the last PSN is for CLOSE_CMD
        pdc.step(Input.EXHAUSTED, PdcErrorReason.PSN_LIMIT, now)
    elif pdc.state is State.ESTABLISHED:
        pdc.counters.psn_limit_close += 1
        pdc.step(Input.CLOSE, now)


def emit_request(pdc: Pdc, record: SendRecord, retx: int, ar: int, clear: int, now: int) -> None:
    psn, mode, owner, cc = record.psn, pdc.mode, pdc.owner, pdc.cc
    message, ccc_id, target, header = None, 0, None, record.header
    kind: int = mode
    if cc is None:
        entropy = pdc.entropy if mode is _ROD else pdc.next_entropy()
    else:
        entropy = record.entropy = pdc.selection.next(now)
        if cc.demands:
            ccc_id, target = cc.ccc_id, cc.demand()
            assert target is not None
            kind = _WITH_STATE[mode]
            header = PdsReqCcStateHeader.pack(ccc_id, target) + header
    syn = pdc.state is _CREATING
    if owner.objects:
        header = record.header
    elif syn:
        header = PdsRudReqSynHeader.pack(
            record.next_hdr, retx, ar, -((psn - clear) & _M32), psn, pdc.local_id,
            USE_RSV_PDC if pdc.reserved else 0, (psn - pdc.tx.start) & _M32, type=kind,
        ) + header  # fmt: skip
    else:
        header = PdsRudReqHeader.pack(
            record.next_hdr, retx, ar, -((psn - clear) & _M32), psn, pdc.local_id, pdc.peer_id, type=kind
        ) + header  # fmt: skip
    if owner.messages:
        peer_id, start, reserved = (0, pdc.tx.start, int(pdc.reserved)) if syn else (pdc.peer_id, 0, 0)
        message = Request(
            mode, record.next_hdr, retx, ar, int(syn), clear, psn, pdc.local_id, peer_id, start,
            len(header) - len(record.header), reserved, ccc_id, target,
        )  # fmt: skip
    owner.out.append(Datagram(
        owner.address, pdc.peer, header, record.payload,
        TrafficClass.DATA_RTX if retx else _DATA,
        entropy, False, _NO_TRIM, owner.ip_version, message,
    ))  # fmt: skip
    if clear != pdc.clear_sent and not (clear - pdc.clear_sent) & _SIGN:
        pdc.clear_sent = clear
    if pdc.clear_at != NEVER and diff32(pdc.clear_wanted, clear) <= 0:
        pdc.clear_at = NEVER
    if pdc.clear_owed and clear == pdc.tx.clear_psn:
        pdc.clear_owed = False


def _unblock(pdc: Pdc, asked: bool, now: int) -> None:
    """Ask the peer for CACK, as a window that starts at CACK is full although every packet is acknowledged.

    `asked`: an earlier ACK_REQ got no answer. The ACK_REQ is repeated with the intervals and the limit of RTO
    retransmissions (pds.md §11.1).
    """
    if asked and not pdc.tx.may_repeat(pdc.cack_asks):
        pdc.step(Input.EXHAUSTED, PdcErrorReason.RTO_EXHAUSTED, now)
        return
    pdc.cack_asks = pdc.cack_asks + 1 if asked else 0
    _ask_for_cack(pdc)
    waits = rto_waits(pdc.config.rto_init_time)
    pdc.unblock_at = now + max(waits[min(pdc.cack_asks, len(waits) - 1)], 1)
    pdc.owner.wake(pdc, pdc.unblock_at)


def _ask_for_cack(pdc: Pdc) -> None:
    """Send CLEAR_CMD for the guaranteed responses that hold CACK back, and ACK_REQ for the last one (pds.md §7.1)."""
    clear = pdc.tx.clear_psn
    if diff32(clear, pdc.tx.start) >= 0:  # else nothing is acknowledged yet
        _send_clear_cmd(pdc, clear)
        pdc.send_control(CtlType.ACK_REQ, clear, pdc.config.ack_req_ar, 0, 0)


# Acknowledgements (pds.md §7.2)


def take_ack(pdc: Pdc, ack: Ack, datagram: Datagram, now: int) -> bool:
    """Process an ACK, and pass its response to SES.

    If the ACK acknowledges a PSN that was never sent, only count the ACK, and return False.
    """
    tx, cack = pdc.tx, ack.cack_psn
    start, after = tx.start, tx.next
    if (cack + 1 - start) & _M32 > (after - start) & _M32 or not (ack.ack_psn - after) & _SIGN:
        pdc.counters.bad_ack += 1  # a PSN that was never sent, or is below Start_PSN − 1 (pds.md §7.2 step 2)
        return False
    if ack.spdcid != pdc.peer_id:
        pdc.learn(ack.spdcid)
    if tx.runs and take_ack_of_trains(pdc, ack, datagram, now):
        return True
    older = (cack - tx.peer_cack) & _SIGN
    answer = pdc.user.on_response
    named = tx.records.get(ack.ack_psn)
    if named is not None and ack.probe_opaque is None:  # the answer to a PROBE has no ACK_PSN (§20 row 25)
        response, next_hdr = datagram.header[ack.size :], ack.next_hdr
        if is_no_response(response, next_hdr):
            _mark_pending(pdc, named, now)
        else:
            tx.forget(named)
            if named.message is not None:
                answer(named.message, named.index, next_hdr, response, now)
    if not older and cack != tx.peer_cack:
        for record in tx.take_cack(cack):
            if record.message is not None:
                answer(record.message, record.index, _NO_HEADER, None, now)
    if ack.type != _ACK:
        if not older and ack.mpr:
            tx.offer(ack.mpr)
        if ack.sack_bitmap:
            tx.take_sack(ack.sack_base, ack.sack_bitmap, now)
    if pdc.cc is not None:
        congestion.acked(pdc, ack, named, datagram, now)
    if tx.records:
        tx.advance()
        _wake_for_lowest(pdc)
        for record in tx.back_inside():
            _retransmit_one(pdc, record, now, record.cause)
    else:
        tx.drained()
    if ack.epsn is not None and pdc.state is State.CLOSE_ACK_WAIT and ack.ack_psn == tx.last:
        _take_expected(pdc, ack.epsn)
    if pdc.config.inferred_loss != "off":
        _infer_loss(pdc, ack, now)
    elif ack.probe_opaque is not None:
        _match_probe(pdc, ack, now)
    if pdc.clear_wanted != pdc.clear_sent and not (pdc.clear_wanted - pdc.clear_sent) & _SIGN:
        _want_rest(pdc, now)
    if ack.req == _CLEAR:
        _want_clear(pdc, ack, now)
    elif ack.req == _CLOSE and pdc.role is Role.INITIATOR and pdc.allows(Input.CLOSE):
        pdc.step(Input.CLOSE, now)
    return True


def _take_expected(pdc: Pdc, expected: int) -> None:
    """Store the Expected_PSN of the target, which the ACK of CLOSE_CMD carries (pds.md §6.6)."""
    policy = pdc.owner.start_policy
    if policy is not None and pdc.config.closing_ack_epsn:
        policy.told(expected)


def _mark_pending(pdc: Pdc, record: SendRecord, now: int) -> None:
    """Mark a packet as received by a destination whose SES has not answered yet, and reset its RTO count (pds.md §7.2,
    §11.2)."""
    record.rto_cnt = 0
    record.asked = False
    pdc.tx.mark_received(record, now)
    _wake_for_lowest(pdc)


def _wake_for_lowest(pdc: Pdc) -> None:
    """Report the earliest timer to the owner: marks and ACKs change timers, and ROD times only the lowest PSN."""
    at = pdc.tx.deadline()
    if at < pdc.wake_at:
        pdc.owner.wake(pdc, at)


def _want_clear(pdc: Pdc, ack: Ack, now: int) -> None:
    """Arm PDS_Clear_Time on req = CLEAR, unless the CLEAR was sent; a retransmitted ACK shows that it was lost."""
    if diff32(ack.ack_psn, pdc.clear_sent) <= 0 and not ack.retx:
        return
    if pdc.clear_at == NEVER:
        pdc.clear_wanted = ack.ack_psn
        pdc.clear_at = now + pdc.config.pds_clear_time
        pdc.owner.wake(pdc, pdc.clear_at)
    elif diff32(ack.ack_psn, pdc.clear_wanted) > 0:
        pdc.clear_wanted = ack.ack_psn


def _want_rest(pdc: Pdc, now: int) -> None:
    """Arm PDS_Clear_Time again if more PSNs can be cleared: a CLEAR that the peer asked for waits for lower PSNs."""
    if pdc.clear_at == NEVER and diff32(pdc.tx.clear_psn, pdc.clear_sent) > 0:
        pdc.clear_at = now + pdc.config.pds_clear_time
        pdc.owner.wake(pdc, pdc.clear_at)


# Refusals (pds.md §11.2, §12)


def take_nack(pdc: Pdc, nack: Nack, datagram: Datagram, now: int) -> None:
    """Process a NACK of class NORMAL or ERR. For most codes a packet is retransmitted, at once or later.

    `nacks.NACKS` has the reaction to each code. A NACK acknowledges no packet.
    """
    tx = pdc.tx
    entry = NACKS.get(nack.code)
    record = tx.records.get(nack.psn)
    if (
        entry is None or record is None or (record.dst_rcvd and not entry.after_dst_rcvd) or entry.ignored
        or (entry.opening and pdc.state is not _CREATING)
    ):  # fmt: skip
        pdc.counters.bad_nack += 1
        return
    pdc.learn(nack.spdcid)
    if nack.code == NackCode.RCVD_SES_PROCG:
        _mark_pending(pdc, record, now)
        return
    if nack.code == NackCode.ROD_OOO:
        _go_back_to_expected(pdc, nack, now)
        return
    if record.retx_at != NEVER or congestion.is_held(record):
        return  # the packet waits for its retransmission already
    congestion.refused(pdc, record, nack, datagram, now)
    tx.unmark(record)
    record.cause = NackCode(nack.code).name
    if nack.code == NackCode.PSN_OOR_WINDOW and tx.shrink(record):
        pdc.counters.retx_nack += 1
        _arm(pdc, record, now)
        return
    if not _count_nack(pdc, record, now):
        return
    if entry.delayed:
        tx.delay(record, now)
        pdc.owner.wake(pdc, record.retx_at)
    else:
        retransmit_from(pdc, record, now)


def _count_nack(pdc: Pdc, record: SendRecord, now: int) -> bool:
    if not pdc.tx.may_be_refused(record):
        pdc.step(Input.EXHAUSTED, PdcErrorReason.NACK_EXHAUSTED, now)
        return False
    record.nack_cnt += 1
    pdc.counters.retx_nack += 1
    return True


def _go_back_to_expected(pdc: Pdc, nack: Nack, now: int) -> None:
    """Retransmit from the PSN that a ROD_OOO says is expected, once for each such PSN (pds.md §11.3, §20 row 4)."""
    tx = pdc.tx
    expected = nack.payload
    if diff32(expected, tx.una) < 0 or diff32(expected, tx.last) > 0:
        expected = tx.una
    record = tx.records.get(expected)
    if pdc.mode is not Mode.ROD or record is None:
        pdc.counters.bad_nack += 1
    elif diff32(expected, tx.went_back_to) > 0 and record.retx_at == NEVER and _count_nack(pdc, record, now):
        record.cause = NackCode.ROD_OOO.name
        retransmit_from(pdc, record, now, back=True)


# Retransmission (pds.md §11)


def retransmit(pdc: Pdc, record: SendRecord, now: int) -> None:
    """Retransmit a packet whose RTO has expired, or send ACK_REQ if the peer has reported the packet as received.

    If an ACK_REQ got no answer, the packet itself is sent: a peer may drop an ACK_REQ for a PSN below its window.
    """
    if congestion.wait_on(pdc, record, now):
        return
    if not pdc.tx.in_window(record.psn):
        if pdc.tx.window_at_cack:
            record.rto_cnt += 1  # so that ACK_REQs to a silent peer end
            _ask_for_cack(pdc)
        _arm(pdc, record, now)
        return
    record.rto_cnt += 1
    if record.asked:
        pdc.tx.unmark(record)
    if record.ctl_type is not None or not record.dst_rcvd:  # else an ACK_REQ is sent instead
        pdc.counters.retx_rto += 1
    record.cause = RTO
    retransmit_from(pdc, record, now)


def retransmit_from(pdc: Pdc, record: SendRecord, now: int, back: bool = False) -> None:
    """Retransmit a packet, and with go-back-N on ROD all later packets as well.

    Later packets that the peer has reported as received are not sent; only their RTO is armed again. With `back`,
    go-back-N applies even if `rod_recovery` is selective, because ROD_OOO shows that the peer discards packets after a
    gap.
    """
    tx = pdc.tx
    if pdc.mode is Mode.RUD or (not tx.rod and not back):
        _retransmit_one(pdc, record, now, record.cause)
        return
    tx.went_back_to = record.psn
    for later in tx.from_psn(record.psn):
        if later is record or not later.dst_rcvd:
            _retransmit_one(pdc, later, now, record.cause, later is record)
        else:
            _arm(pdc, later, now)


def _arm(pdc: Pdc, record: SendRecord, now: int) -> None:
    pdc.tx.arm(record, now)
    if record.rto_at < pdc.wake_at:
        pdc.owner.wake(pdc, record.rto_at)


def _retransmit_one(pdc: Pdc, record: SendRecord, now: int, cause: str, named: bool = True) -> None:
    """Retransmit a packet; `named` is the argument of `congestion.hold_again`."""
    if not record.dst_rcvd and congestion.hold_again(pdc, record, cause, now, named):
        pdc.owner.stir(pdc)
    else:
        _retransmit_now(pdc, record, now, cause)


def _retransmit_now(pdc: Pdc, record: SendRecord, now: int, cause: str) -> None:
    tx = pdc.tx
    _arm(pdc, record, now)
    if not tx.in_window(record.psn):
        return  # the destination has made its window smaller; the next RTO tries again
    pdc.touched = now
    if record.ctl_type is not None:
        pdc.counters.count_retransmission(cause)
        pdc.send_control(record.ctl_type, record.psn, 1, record.index, 1)
    elif record.dst_rcvd:
        message_id = record.message.message_id if record.message is not None else 0
        record.asked = True
        pdc.send_control(CtlType.ACK_REQ, record.psn, pdc.config.ack_req_ar, message_id, 0)
    else:
        clear = record.clear_psn
        if pdc.config.clear_on_retransmission == "current":
            clear = tx.clear_psn if pdc.config.clear_source == "explicit" else tx.peer_cack
        pdc.counters.count_retransmission(cause)
        emit_request(pdc, record, 1, 1, clear, now)


# Inferred loss (pds.md §11.4)


def _infer_loss(pdc: Pdc, ack: Ack, now: int) -> None:
    """Retransmit the packets that an ACK shows to be lost: it reports enough PSNs above a gap, or it answers a PROBE.

    Such a recovery lasts until CACK reaches the PSN that was the last one sent when the recovery began; no other begins
    meanwhile.
    """
    tx = pdc.tx
    probed = _match_probe(pdc, ack, now) if ack.probe_opaque is not None else None
    by_count = pdc.config.inferred_loss == "ooo"
    if tx.records and (by_count or tx.recovery_end is None):
        lost = congestion.overtaken(pdc) if by_count else []
        if lost:
            pass
        elif not by_count and tx.sacked >= pdc.config.inferred_loss_packets:
            lost = tx.overtaken()
        elif probed is not None:
            seen = ack.cack_psn if ack.type == PdsType.ACK else (ack.sack_base + SACK_BITS - 1) & _M32
            told = diff32(seen, probed) > 0 or ack.type == PdsType.ACK  # no bitmap: nothing above CACK was received
            lost = congestion.surely_lost(pdc, tx.missing(probed if told else seen), now)
        if lost:
            tx.recovery_end = tx.last if tx.recovery_end is None else tx.recovery_end
            pdc.counters.retx_inferred += len(lost)
            for record in lost:
                _retransmit_one(pdc, record, now, INFERRED)
    _arm_probe(pdc, now, answered=True, renewed=ack.probe_opaque is None)


def _match_probe(pdc: Pdc, ack: Ack, now: int) -> int | None:
    """Report the round-trip time of the outstanding PROBE, and return the highest PSN sent before it.

    Return None if this ACK answers another PROBE.
    """
    if pdc.probe is None or pdc.probe[0] != ack.probe_opaque:
        return None
    _, last, sent_at = pdc.probe
    pdc.probe = None
    pdc.owner.tell(Probed(pdc.peer, pdc.local_id, now - sent_at))
    congestion.probed(pdc, now - sent_at)
    return last


def _arm_probe(pdc: Pdc, now: int, answered: bool = False, renewed: bool = True) -> None:
    """Arm Tail_Loss_Time, after which a PROBE is sent if no ACK arrives; `renewed` resets the count of PROBEs.

    Answers to PROBEs do not reset the count, else PROBEs would continue until the RTO.
    """
    config = pdc.config
    if config.inferred_loss not in PROBING:
        return
    if renewed:
        pdc.probes_left = config.max_tail_loss_retx
    pdc.probe_at = NEVER
    if pdc.tx.records and (answered or pdc.state is not _CREATING):  # a PROBE needs the PDCID of the target
        pdc.probe_at = at = now + config.tail_loss_time
        if at < pdc.wake_at:
            pdc.owner.wake(pdc, at)


# Clear (pds.md §9.3)


def answer_clear_req(pdc: Pdc, control: Control, datagram: Datagram, now: int) -> None:
    """Answer CLEAR_REQ at the next poll, by the CLEAR_PSN of a request, or by CLEAR_CMD if no request is sent."""
    pdc.clear_owed = True


def send_clear(pdc: Pdc, now: int) -> None:
    """Send CLEAR_CMD for all PSNs that can be cleared, because PDS_Clear_Time has expired.

    `_want_rest` arms the timer again for PSNs that can be cleared only later.
    """
    clear = pdc.tx.clear_psn
    again = diff32(pdc.clear_wanted, pdc.clear_sent) <= 0
    if diff32(clear, pdc.clear_sent) > 0 or again:
        _send_clear_cmd(pdc, clear)
    pdc.clear_at = NEVER


def _send_clear_cmd(pdc: Pdc, clear: int) -> None:
    pdc.clear_owed = False
    pdc.send_control(CtlType.CLEAR_CMD, 0, 0, clear, 0)
    if diff32(clear, pdc.clear_sent) > 0:
        pdc.clear_sent = clear
