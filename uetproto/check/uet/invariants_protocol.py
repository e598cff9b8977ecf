# SPDX-License-Identifier: GPL-2.0-only
"""This module has invariants 24–48 and 53 of pds.md §18, which concern the protocol."""

from typing import Any

from uetproto.check.registry import Disruption
from uetproto.check.uet.registry import Occasion, Packet, PdsScope, broken, invariant
from uetproto.check.uet.shadow_state import M32, OLDER, PdcShadow, Sent, behind
from uetproto.engine.config import PdsConfig
from uetproto.engine.contract import NEVER, PDC_MODES, Datagram, Mode, PdcClosed, PdcOpened
from uetproto.engine.pds.messages import Ack, Control, Nack, Request, Rudi, Uud
from uetproto.engine.pds.psn_window import StoredSlot
from uetproto.engine.pds.retransmit import NACK_INFINITE, RTO_CAP, RTO_INFINITE
from uetproto.engine.pds.states import Role, State
from uetproto.wire.headers.uet_pds import CONTROLS, AckReq, CtlType, NackCode
from uetproto.wire.serial import diff32

_TWO_ENDS = Disruption.FORGED | Disruption.RESTARTED
_QUIET: frozenset[int] = frozenset(kind for kind, control in CONTROLS.items() if not control.ar)
_MOST_RECORDS = 32640
_START_DISTANCE = 1 << 16


@invariant(24, PdsScope.PACKET, Request, Control)
def pds_24_retx(shadow: PdcShadow, packet: Packet, datagram: Datagram, sent: Sent) -> None:
    """A packet has retx = 0 exactly if it is a first transmission. A packet that is renumbered after NEW_START_PSN
    counts as a first transmission."""
    if sent is not None and bool(packet.retx) != bool(sent.copies):
        raise broken(24, f"retx = {packet.retx} on transmission {sent.copies + 1} of", packet.psn)


@invariant(25, PdsScope.PACKET, Request, Control)
def pds_25_syn(shadow: PdcShadow, packet: Packet, datagram: Datagram, sent: Sent) -> None:
    """A packet has syn = 1 exactly while its sender is an initiator that does not know the PDCID of the target yet. It
    then has psn − psn_offset = Start_PSN and psn_offset ≤ 4095."""
    pdc = shadow.pdc
    if not packet.syn:
        if pdc.state is State.CREATING:
            raise broken(25, "syn = 0 in CREATING", packet.psn)
    elif pdc.state is not State.CREATING and shadow.state is not State.CREATING:
        raise broken(25, f"syn = 1 in {pdc.state.name}", packet.psn)
    elif sent is not None and (packet.start_psn != pdc.tx.start or (packet.psn - packet.start_psn) & M32 > 4095):
        raise broken(25, "psn − psn_offset is not Start_PSN, or psn_offset > 4095", packet.psn, packet.start_psn)


@invariant(26, PdsScope.PACKET, Request, Control, PdcOpened)
def pds_26_pdcid(shadow: PdcShadow, packet: Packet | PdcOpened, datagram: Datagram | None, sent: Sent) -> None:
    """The spdcid of a packet with a PSN is never 0. The local PDCIDs of all live and quarantined PDCs towards one FEP
    are different."""
    if type(packet) is PdcOpened:
        if shadow.end.is_quarantined(packet.peer, packet.pdcid):
            raise broken(26, "PDCID in use again before MSL", packet.pdcid)
    elif packet.spdcid != shadow.pdc.local_id or not packet.spdcid:  # type: ignore[union-attr]
        raise broken(26, "spdcid", packet.spdcid)  # type: ignore[union-attr]


@invariant(27, PdsScope.STEP, PdcOpened, void_after=_TWO_ENDS)
def pds_27_one_target(shadow: PdcShadow, full: bool) -> None:
    """Any number of SYN packets of one instance creates exactly one target PDC."""
    pdc = shadow.pdc
    if pdc.role is Role.TARGET and shadow.end.had(pdc):
        raise broken(27, "a second target PDC for", pdc.peer, pdc.peer_id, pdc.rx.start)


@invariant(28, PdsScope.PACKET, Request)
def pds_28_one_mode(shadow: PdcShadow, packet: Request, datagram: Datagram, sent: Sent) -> None:
    """A PDC carries one mode only; ROD and RUD never share a PDC."""
    if packet.mode is not shadow.pdc.mode:
        raise broken(28, f"{packet.mode.name} on a PDC of mode {shadow.pdc.mode.name}", packet.psn)


@invariant(29, PdsScope.PACKET, Occasion.FIRST_TRANSMISSION)
def pds_29_no_interleaving(shadow: PdcShadow, packet: Request, datagram: Datagram, sent: Sent) -> None:
    """Packets of two messages are not interleaved in the order of PSNs of one direction."""
    if sent is not None and not sent.copies and sent.track is not None:
        message = sent.track.message
        expected = shadow.message_index + 1 if message is shadow.message else 0
        if sent.index != expected:
            raise broken(29, f"packet {sent.index} of message {message.message_id} in place of {expected}", packet.psn)


@invariant(30, PdsScope.PACKET, Occasion.FIRST_TRANSMISSION, Control)
def pds_30_nothing_new_while_closing(shadow: PdcShadow, packet: Packet, datagram: Datagram, sent: Sent) -> None:
    """After a close has begun, no first packet of a message is accepted for a PDC. After CLOSE_CMD no new
    PSN is used."""
    if sent is not None and not sent.copies:
        if shadow.close_cmd is not None:
            raise broken(30, "a new PSN after CLOSE_CMD", packet.psn)
        begins = sent.track is not None and sent.index == 0
        if begins and shadow.pdc.role is Role.INITIATOR and shadow.state > State.ESTABLISHED:
            raise broken(30, f"a message begins in {shadow.state.name}", packet.psn)


@invariant(31, PdsScope.PACKET, Control)
def pds_31_who_closes(shadow: PdcShadow, packet: Control, datagram: Datagram, sent: Sent) -> None:
    """CLOSE_CMD is sent only by the initiator, and for the first time only with unack_cnt = 0, open_msg = 0 and locks
    = 0. CLOSE_REQ is sent only by the target.
    """
    pdc = shadow.pdc
    if packet.ctl_type == CtlType.CLOSE_CMD:
        if pdc.role is not Role.INITIATOR:
            raise broken(31, "CLOSE_CMD from a target")
        others = [psn for psn in pdc.tx.records if psn != packet.psn]
        if not packet.retx and (others or pdc.open_message is not None or pdc.locks):
            raise broken(31, f"CLOSE_CMD with {len(others)} packets un-ACKed, {pdc.locks} locks, or an open message")
    elif packet.ctl_type == CtlType.CLOSE_REQ and pdc.role is not Role.TARGET:
        raise broken(31, "CLOSE_REQ from an initiator")


@invariant(32, PdsScope.PACKET, Ack, PdcClosed)
def pds_32_closing_ack(shadow: PdcShadow, packet: Ack, datagram: Datagram, sent: Sent) -> None:
    """The ACK of a CLOSE_CMD is sent only when no packet of the return direction is un-ACKed."""
    pdc = shadow.pdc
    closing = pdc.close_psn is not None and packet.ack_psn == pdc.close_psn and packet.probe_opaque is None
    if closing and pdc.tx.una != pdc.tx.next:
        raise broken(32, "CLOSE_CMD acknowledged with return data un-ACKed from", pdc.tx.una)


@invariant(33, PdsScope.PACKET, Ack, Nack)
def pds_33_no_answer_to_answers(shadow: PdcShadow, packet: Ack | Nack, datagram: Datagram, sent: Sent) -> None:
    """No ACK or NACK is ever answered by a packet. Control packets without `ar` get no ACK.

    The closing ACK may be sent when an ACK arrives that completes the close. It answers the CLOSE_CMD, not that ACK.
    """
    arrived, pdc = shadow.end.cause, shadow.pdc
    if isinstance(arrived, Ack | Nack) or (isinstance(arrived, Control) and arrived.ctl_type in _QUIET):
        if isinstance(packet, Nack):
            answers = packet.code != NackCode.CLOSING_IN_ERR
        else:
            answers = pdc.close_psn is None or packet.ack_psn != pdc.close_psn
        if answers and not shadow.end.late:
            raise broken(33, f"{type(packet).__name__} in answer to {type(arrived).__name__}")


@invariant(34, PdsScope.STEP, Request, Control)
def pds_34_refused_changes_nothing(shadow: PdcShadow, full: bool) -> None:
    """A packet that is NACKed or dropped leaves the destination's PSN state unchanged, except that its CLEAR_PSN takes
    effect."""
    rx = shadow.pdc.rx
    if shadow.refused and not shadow.taken and not rx.buffered and rx.max_rcvd != shadow.max_rcvd:
        raise broken(34, "refused, and received", rx.max_rcvd, shadow.max_rcvd)


@invariant(35, PdsScope.STEP, Ack, Nack)
def pds_35_unsent_changes_nothing(shadow: PdcShadow, full: bool) -> None:
    """An ACK of a PSN that was never sent changes nothing. A NACK of a PSN outside una … next − 1 changes nothing."""
    arrived, tx = shadow.end.cause, shadow.pdc.tx
    foreign = False
    if isinstance(arrived, Ack):
        claimed = arrived.ack_psn if arrived.probe_opaque is None else arrived.cack_psn
        foreign = not (behind(arrived.cack_psn, shadow.next) and behind(claimed, shadow.next))
    elif isinstance(arrived, Nack) and arrived.code != NackCode.NEW_START_PSN:
        foreign = behind(arrived.psn, shadow.una) or not behind(arrived.psn, shadow.next)
    if foreign and (tx.una != shadow.una or tx.peer_cack != shadow.peer_cack):
        raise broken(35, f"{type(arrived).__name__} of what was never sent moves una", shadow.una, tx.una)


def marks_of(pdc: Any) -> tuple[Any, ...]:
    """Return the state of a PDC that ACKs and NACKs may change at its source: PSNs, marks of packets, and scheduled
    retransmissions."""
    tx = pdc.tx
    records = tuple((r.psn, r.dst_rcvd, r.rto_cnt, r.nack_cnt, r.retx_at) for r in tx.records.values())
    return pdc.state, tx.start, tx.una, tx.peer_cack, tx.mp_range, records


@invariant(36, PdsScope.PAIR)
def pds_36_idempotence(once: tuple[Any, ...], twice: tuple[Any, ...]) -> None:
    """Processing the same ACK twice in a row has the effect of processing it once, except on counters and on the state
    of RTT and congestion control. The same holds for a NACK with delayed retransmission, for ROD_OOO and for
    NEW_START_PSN.

    A repeated NACK with immediate retransmission may cause one more copy, within Max_NACK_Retx_Cnt. The arguments are
    `marks_of` the PDC after the first and after the second time.
    """
    if once != twice:
        raise broken(36, f"the second time changes {once} to {twice}")


@invariant(37, PdsScope.PAIR)
def pds_37_confluence(one: Any, other: Any) -> None:
    """Any order of the same set of ACKs leads to the same set of acked packets, una, CLEAR_PSN and peer_cack.

    The arguments are the PDCs of two runs that get the ACKs in different orders.
    """
    views = [(set(pdc.tx.records), pdc.tx.una, pdc.tx.clear_psn, pdc.tx.peer_cack) for pdc in (one, other)]
    if views[0] != views[1]:
        raise broken(37, f"the order of ACKs matters: {views[0]} and {views[1]}")


@invariant(38, PdsScope.PACKET, Occasion.RETRANSMISSION)
def pds_38_no_needless_copy(shadow: PdcShadow, packet: Request, datagram: Datagram, sent: Sent) -> None:
    """A PSN that is acked or dst_rcvd is not retransmitted as data. Only ROD may resend one that is dst_rcvd, by
    go-back-N."""
    if packet.retx:
        record = shadow.pdc.tx.records.get(packet.psn)
        if record is None:
            if shadow.pdc.state is not State.CLOSED:
                raise broken(38, "resent, and acknowledged", packet.psn)
        elif record.dst_rcvd and shadow.pdc.mode is not Mode.ROD:
            raise broken(38, "resent, and received", packet.psn)


@invariant(39, PdsScope.STEP, Occasion.SOURCE_CHANGE, Occasion.DESTINATION_CHANGE, void_after=Disruption.LOST)
def pds_39_stored_responses(shadow: PdcShadow, full: bool) -> None:
    """The stored responses are exactly those to gtd_del PSNs newer than max_clear. A direction has records of at most
    MP_RANGE PSNs."""
    rx, gtd = shadow.pdc.rx, shadow.gtd
    count = len(gtd)
    if count and rx.max_clear != shadow.max_clear:
        count -= sum(psn & M32 in gtd for psn in shadow.cleared())
    if rx.stored != count:
        raise broken(39, f"{rx.stored} stored responses in place of {count}")
    if len(rx.slots) > rx.mp_range or len(shadow.pdc.tx.records) > _MOST_RECORDS:
        raise broken(39, f"{len(rx.slots)} records at the destination, {len(shadow.pdc.tx.records)} at the source")
    if full:
        there = {psn for psn, slot in rx.slots.items() if isinstance(slot, StoredSlot)}
        wanted = {psn for psn in gtd if (rx.max_clear - psn) & OLDER}
        if there != wanted:
            raise broken(39, f"stored responses {sorted(there)} in place of {sorted(wanted)}")


@invariant(40, PdsScope.PACKET, Ack, void_after=Disruption.LOST)
def pds_40_guaranteed_ack(shadow: PdcShadow, packet: Ack, datagram: Datagram, sent: Sent) -> None:
    """As long as a gtd_del PSN is not cleared, it is acknowledged by an ACK with this ACK_PSN, its response and req =
    CLEAR, and never only by the ACK of another packet."""
    if shadow.gtd and packet.probe_opaque is None:
        psn = packet.ack_psn
        answer = shadow.gtd.get(psn)
        if answer is not None and (shadow.pdc.rx.max_clear - psn) & OLDER:
            if packet.req != AckReq.CLEAR:
                raise broken(40, f"req = {packet.req} in the ACK of", psn)
            if datagram.header[packet.size :] != answer.header:
                raise broken(40, "another response in the ACK of", psn)


@invariant(41, PdsScope.STEP, Occasion.DESTINATION_CHANGE)
def pds_41_ack_count(shadow: PdcShadow, full: bool) -> None:
    """Whenever no response is pending, ack_gen_count is less than ACK_Gen_Trigger. After an ACK is sent it is 0."""
    pdc = shadow.pdc
    count = pdc.ack_gen_count
    if count and count >= pdc.config.ack_gen_trigger and not pdc.rx.waiting:
        raise broken(41, f"{count} bytes without an ACK")


def _times_itself(config: PdsConfig, mode: Mode) -> bool:
    return mode is Mode.RUD and config.inferred_loss == "off"


@invariant(42, PdsScope.PACKET, Occasion.RETRANSMISSION, when=_times_itself)
def pds_42_back_off(shadow: PdcShadow, packet: Request, datagram: Datagram, sent: Sent) -> None:
    """A PSN has at most Max_RTO_Retx_Cnt copies that an RTO caused. The n-th of these copies is sent RTO_Init_Time ·
    2^(n−1), but at most 8 s, after the previous transmission unless a NACK intervened, or congestion control has found
    another RTO."""
    record = shadow.pdc.tx.records.get(packet.psn)
    if sent is None or not sent.copies or record is None:
        return
    config = shadow.pdc.config
    limit = config.max_rto_retx_cnt
    if limit != RTO_INFINITE and record.rto_cnt > limit:
        raise broken(42, f"RTO copy {record.rto_cnt} of", packet.psn)
    if shadow.pdc.tx.rto is None and record.nack_cnt == sent.nack_cnt and record.rto_cnt == sent.rto_cnt + 1:
        wait = min(config.rto_init_time << sent.rto_cnt, RTO_CAP)
        if shadow.end.now - sent.at < wait:
            raise broken(42, f"RTO copy {record.rto_cnt} after {shadow.end.now - sent.at} ps, of", packet.psn)


def _counted(config: PdsConfig, mode: Mode) -> bool:
    ends = config.max_rto_retx_cnt != RTO_INFINITE and config.max_nack_retx_cnt != NACK_INFINITE
    return ends and _times_itself(config, mode)


@invariant(43, PdsScope.PACKET, Occasion.RETRANSMISSION, when=_counted)
def pds_43_copies(shadow: PdcShadow, packet: Request, datagram: Datagram, sent: Sent) -> None:
    """On RUD a PSN is sent at most 1 + Max_RTO_Retx_Cnt + Max_NACK_Retx_Cnt times. After an ACK_REQ, which asks about
    a packet that was reported as received, the count begins anew."""
    config = shadow.pdc.config
    if sent is not None and sent.copies > config.max_rto_retx_cnt + config.max_nack_retx_cnt:
        raise broken(43, f"copy {sent.copies + 1} of", packet.psn)


@invariant(44, PdsScope.STEP, PdcClosed)
def pds_44_nothing_left_open(shadow: PdcShadow, full: bool) -> None:
    """When a PDC ends with an error, SES gets exactly one error for every un-ACKed packet and none for an ACKed one.
    No timer of the PDC stays armed."""
    pdc = shadow.pdc
    for sent in shadow.sent.values():
        if not shadow.outcome_known(sent):
            raise broken(44, "closed, and SES got neither response nor error for", sent.psn)
    if pdc.deadline() != NEVER:
        raise broken(44, "a timer of a closed PDC is armed for", pdc.deadline())


def _rudi(config: PdsConfig, mode: Mode) -> bool:
    return mode is Mode.RUDI


@invariant(45, PdsScope.PACKET, Rudi, when=_rudi)
def pds_45_rudi(end: Any, packet: Rudi, datagram: Datagram, sent: Sent) -> None:
    """On RUDI all outstanding packets have different pkt_ids. A packet that succeeds was delivered at least once. The
    destination keeps no state."""
    if packet.response:
        if packet.pkt_id not in end.rudi_taken:
            raise broken(45, "an answer to what was not delivered, pkt_id", packet.pkt_id)
        if type(end.cause) is Rudi and len(end.pds.pdcs) != end.pdc_count:
            raise broken(45, "a RUDI request makes a PDC, pkt_id", packet.pkt_id)
    elif sent is not None and not sent.copies and packet.pkt_id in end.rudi_sent:
        raise broken(45, "a pkt_id of two outstanding packets", packet.pkt_id)


def _uud(config: PdsConfig, mode: Mode) -> bool:
    return mode is Mode.UUD


@invariant(46, PdsScope.PACKET, Uud, Ack, Nack, Rudi, when=_uud)
def pds_46_uud(end: Any, packet: Any, datagram: Datagram, sent: Sent) -> None:
    """On UUD the packets on the wire are the requests of SES, and no packet is ever sent back."""
    if type(packet) is Uud:
        if end.uud_sent >= end.uud_asked:
            raise broken(46, f"{end.uud_sent + 1} packets on the wire for {end.uud_asked} requests")
    elif type(end.cause) is Uud and not end.late:
        raise broken(46, f"{type(packet).__name__} in answer to UUD")


def _draws_far(config: PdsConfig, mode: Mode) -> bool:
    return mode in PDC_MODES and config.secure_start != "expected"


@invariant(47, PdsScope.STEP, PdcOpened, when=_draws_far)
def pds_47_start_psn(shadow: PdcShadow, full: bool) -> None:
    """Each Start_PSN of a PDCID is at a circular distance of at least 2^16 from the last PSN that was used with this
    PDCID. With secure start it is newer than that PSN (pds.md §6.6).

    This is not checked with `secure_start` = expected: before the first close, Start_PSNs are drawn at random from the
    whole circle, where "newer" is not transitive.
    """
    pdc = shadow.pdc
    last = shadow.end.last_psn.get(pdc.local_id)
    drawn = pdc.role is Role.INITIATOR and not shadow.end.preset
    if drawn and last is not None and abs(diff32(pdc.tx.start, last)) < _START_DISTANCE:
        raise broken(47, "Start_PSN too near to the last PSN of this PDCID", pdc.tx.start, last)


@invariant(48, PdsScope.STEP, BaseException)
def pds_48_robustness(end: Any, full: bool) -> None:
    """No bytes, and no valid packet with one changed field, may cause an exception. Such input changes state only if
    it passes the checks of pds.md §6.3."""
    if end.raised is not None:
        raise broken(48, f"{type(end.raised).__name__}: {end.raised}") from end.raised


def _tells_of_gaps(config: PdsConfig, mode: Mode) -> bool:
    return mode is Mode.RUD and config.ack_on_gap_close


@invariant(53, PdsScope.STEP, Occasion.DESTINATION_CHANGE, when=_tells_of_gaps)
def pds_53_closed_gap(shadow: PdcShadow, full: bool) -> None:
    """On RUD with ack_on_gap_close, a PSN with ar = 1 may be acknowledged while a PSN below it is missing. When that
    gap is closed, the next answer of SES is sent in an ACK, unless an earlier ACK has reported the closed gap."""
    if shadow.answered and shadow.early:
        cack = shadow.pdc.rx.cack
        untold = [psn for psn in shadow.early if diff32(psn, cack) <= 1]
        if untold:
            raise broken(53, "a gap closed, and no ACK tells so, below", *untold)
