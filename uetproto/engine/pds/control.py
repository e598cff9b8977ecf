# SPDX-License-Identifier: GPL-2.0-only
"""These actions send and answer the control packets of a PDC, in either of its halves.

The sources are UE 1.0.1 §3.5.16 and pds.md §13, §9.3 (clear), §11.4 (probes).
"""

from uetproto.engine.contract import Credited, Datagram, TrafficClass
from uetproto.engine.pds.destination import (
    CLEAR_REQ_PERIODS,
    apply_clear,
    current_slot,
    deliver_buffered,
    emit_ack,
    handle_not_new,
    is_beyond_close,
    send_ack,
    take_cp_in_turn,
)
from uetproto.engine.pds.messages import Control
from uetproto.engine.pds.pdc import Pdc
from uetproto.engine.pds.psn_window import BufferedSlot, ClosingSlot, StoredSlot, UnansweredSlot, Verdict
from uetproto.engine.pds.retransmit import RTO_INFINITE
from uetproto.engine.pds.service import RETURN_DATA, build_default_response
from uetproto.wire.headers.uet_pds import AckReq, CtlType, NackCode, NextHdr
from uetproto.wire.serial import diff32

_CREDIT_MASK = 0xFFFFFF
"""A credit has 24 bits (UE 1.0.1 §3.6.14)."""
_BEHIND = 1 << 23
"""Bit of a difference of credits that is set if the first one is behind the second."""


# Packets that consume a PSN: NOOP, NEGOTIATION, CLOSE_REQ (for CLOSE_CMD see `lifecycle`)


def take_psn_cp(pdc: Pdc, control: Control, datagram: Datagram, now: int) -> bool:
    """Process NOOP, NEGOTIATION or CLOSE_REQ: acknowledge a NEW packet, and report a NEGOTIATION.

    Return False for a packet that is not NEW, or whose PSN is beyond the CLOSE_CMD.
    """
    psn = control.psn
    if pdc.rx.classify(psn) is not Verdict.NEW or is_beyond_close(pdc, psn):
        return handle_not_new(pdc, control, datagram, now, NextHdr.NONE)
    taken = take_cp_in_turn(pdc, control, datagram, now)
    if pdc.rx.buffered:
        deliver_buffered(pdc, now)
    return taken


# ACK_REQ


def answer_ack_req(pdc: Pdc, control: Control, datagram: Datagram, now: int) -> bool:
    """Answer ACK_REQ with the response to its PSN, or with a NACK. Return False for a PSN outside the window."""
    rx, psn = pdc.rx, control.psn
    slot = current_slot(pdc, psn, now)
    verdict = rx.classify(psn)
    if verdict in (Verdict.AHEAD, Verdict.BEHIND):
        return False
    if isinstance(slot, UnansweredSlot | BufferedSlot | ClosingSlot):
        if isinstance(slot, UnansweredSlot):
            slot.asked = True
        pdc.nack(NackCode.RCVD_SES_PROCG, control, datagram)
    elif verdict in (Verdict.NEW, Verdict.GAP):
        pdc.nack(NackCode.PKT_NOT_RCVD, control, datagram)
    elif isinstance(slot, StoredSlot):
        if slot.response is None:
            lost = slot.next_hdr not in RETURN_DATA
            pdc.nack(NackCode.GTD_RESP_UNAVAIL if lost else NackCode.ACK_WITH_DATA, control, datagram)
        else:
            marked, entropy = datagram.ecn_marked, datagram.entropy
            send_ack(pdc, psn, slot.next_hdr, slot.response, marked, control.retx, AckReq.CLEAR, entropy)
    else:
        response = build_default_response(control.payload & 0xFFFF)
        send_ack(pdc, psn, NextHdr.RESPONSE, response, datagram.ecn_marked, control.retx, AckReq.NONE, datagram.entropy)
    return True


# CLEAR_CMD, CLEAR_REQ (pds.md §9.3)


def take_clear(pdc: Pdc, control: Control, datagram: Datagram, now: int) -> None:
    """Release guaranteed responses on CLEAR_CMD (pds.md §9.3). The psn of a CLEAR_CMD is ignored (pds.md §20 row 8)."""
    apply_clear(pdc, control.payload)


def ask_clear(pdc: Pdc, now: int) -> None:
    """Send CLEAR_REQ for the lowest stored response, and arm the timer for the next CLEAR_REQ (pds.md §9.3).

    A silent peer gets at most Max_RTO_Retx_Cnt of these packets, as it may no longer exist.
    """
    lowest = pdc.rx.lowest(StoredSlot)
    pdc.clear_asks = pdc.clear_asks + 1 if pdc.touched <= pdc.clear_asked_at else 1
    pdc.clear_asked_at = now
    limit = pdc.config.max_rto_retx_cnt
    if lowest is not None and (limit == RTO_INFINITE or pdc.clear_asks <= limit):
        pdc.send_control(CtlType.CLEAR_REQ, 0, 0, lowest, 0)
        pdc.stored_at = now + (CLEAR_REQ_PERIODS * pdc.config.pds_clear_time or pdc.config.rto_init_time or 1)


# PROBE (pds.md §11.4, §20 row 25)


def send_probe(pdc: Pdc, now: int) -> None:
    """Send PROBE, which asks for CACK and for a SACK from the lowest un-ACKed PSN on.

    The psn of the PROBE is the last PSN sent.
    """
    tx = pdc.tx
    opaque = pdc.owner.rng.getrandbits(16)
    pdc.probe = (opaque, tx.last, now)
    pdc.send_control(CtlType.PROBE, tx.last, 1, tx.una, 0, opaque=opaque)


def probe_for_loss(pdc: Pdc, now: int) -> None:
    """Send a PROBE after Tail_Loss_Time without an ACK, at most Max_Tail_Loss_Retx times.

    After that, only the RTO causes retransmissions.
    """
    if pdc.probes_left and pdc.tx.records:
        pdc.probes_left -= 1
        send_probe(pdc, now)
        pdc.probe_at = now + pdc.config.tail_loss_time


def answer_probe(pdc: Pdc, control: Control, datagram: Datagram, now: int) -> None:
    """Answer PROBE with CACK, SACK and the opaque value of the PROBE, without a SES response (pds.md §7.2)."""
    rx, base = pdc.rx, control.payload
    if not -0x8000 <= diff32(base, rx.cack) <= 0x7FFF:
        base = rx.sack_track
    pdc.counters.ack_tx += 1
    pdc.ack_gen_count = 0
    emit_ack(
        pdc, NextHdr.NONE, b"", datagram.ecn_marked, 0, AckReq.NONE, rx.cack, control.opaque,
        None if pdc.config.ack_cc == "never" else base, datagram.entropy, TrafficClass.CONTROL,
    )  # fmt: skip


# CREDIT, CREDIT_REQ


def send_credit(pdc: Pdc, ctl_type: CtlType, amount: int, now: int) -> None:
    """Send CREDIT with `amount` as the credit, or CREDIT_REQ with `amount` as the credit target."""
    pdc.send_control(ctl_type, 0, 0, amount & _CREDIT_MASK, 0)


def take_credit(pdc: Pdc, control: Control, datagram: Datagram, now: int) -> None:
    """Pass a grant to the congestion control context, and report it to the driver."""
    if pdc.cc is not None:
        pdc.cc.credited(control.payload & _CREDIT_MASK, now)
    pdc.owner.tell(Credited(pdc.peer, pdc.local_id, control.payload & _CREDIT_MASK))


def answer_credit_req(pdc: Pdc, control: Control, datagram: Datagram, now: int) -> None:
    """Pass a demand to the congestion control of the receiver; without one, grant all the credit that CREDIT_REQ asks
    for. If that was granted before, its CREDIT was lost, and is repeated (cms.md §4)."""
    target = control.payload & _CREDIT_MASK
    if pdc.cc_rx is not None:
        pdc.cc_rx.asked(None, target, now)
        granted = pdc.cc_rx.granted()
        if granted is not None and not (granted - target) & _BEHIND:
            pdc.send_control(CtlType.CREDIT, 0, 0, granted, 0)
        return
    pdc.send_control(CtlType.CREDIT, 0, 0, control.payload & _CREDIT_MASK, 0, datagram.entropy)
