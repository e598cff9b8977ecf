# SPDX-License-Identifier: GPL-2.0-only
"""This module has the actions of a PDC for its timers, secure start, close and end, and the default actions (pds.md §6,
§11, §13).

`settle` finds the inputs that follow from progress (all packets are acknowledged, or the PDC is drained), and
`run_timers` finds those that follow from time. Both functions pass these inputs to `Pdc.step`, which takes all other
events, too.
"""

from typing import TYPE_CHECKING, Any, NamedTuple, cast

from uetproto.engine.contract import NEVER, Datagram, PdcErrorReason, PdsError, TrafficClass, Trim
from uetproto.engine.pds import congestion
from uetproto.engine.pds.control import take_psn_cp
from uetproto.engine.pds.destination import apply_clear, handle_not_new, take_request
from uetproto.engine.pds.messages import Ack, Control, Nack, Request
from uetproto.engine.pds.nacks import FATAL_CODES, NACKS
from uetproto.engine.pds.pdc import Pdc
from uetproto.engine.pds.psn_window import CLOSING, PsnWindow, Verdict
from uetproto.engine.pds.service import Locking
from uetproto.engine.pds.source import emit_request, queue_cp
from uetproto.engine.pds.states import Input, Role, State
from uetproto.wire.headers.uet_pds import AckReq, CtlType, NackCode, NextHdr, PdsType
from uetproto.wire.tuples import PdsAckEpsnHeader, PdsAckHeader

if TYPE_CHECKING:
    from uetproto.engine.pds.sublayer import Pds

_M32 = 0xFFFFFFFF


_REFUSED = 8
"""Number of refused Start_PSNs that a target keeps for one PDC, the newest ones."""


def settle(pdc: Pdc, now: int) -> None:
    """Find out how far the close of a PDC has come, and pass the corresponding input to its state machine: for example
    ALL_ACKED when all packets are acknowledged (pds.md §6.4, §6.5).
    """
    while True:
        before = pdc.state
        if pdc.role is Role.INITIATOR:
            if before is State.QUIESCE and pdc.open_message is None and not pdc.locks and not pdc.cps:
                pdc.step(Input.MESSAGES_DONE, now)
            elif before is State.ACK_WAIT and not pdc.tx.records and pdc.tx.room():
                pdc.step(Input.ALL_ACKED, now)
            elif before is State.CLOSE_ACK_WAIT and not pdc.tx.records:
                pdc.step(Input.CLOSE_ACKED, now)
        elif before is State.ACK_WAIT and not _has_unsent(pdc) and pdc.close_psn == (pdc.rx.cack + 1) & _M32:
            pdc.step(Input.DRAINED, now)
        if pdc.state is before:
            return


def _has_unsent(pdc: Pdc) -> bool:
    """Return True when the PDC has something to send, or has un-ACKed packets."""
    return bool(pdc.tx.records or pdc.queue or pdc.cps) or pdc.open_message is not None


def _has_return_data(pdc: Pdc) -> bool:
    """Return True when the PDC has return data that is not sent, or not acknowledged; CLOSE_REQ does not count."""
    unacked = any(record.message is not None for record in pdc.tx.records.values())
    return unacked or bool(pdc.queue) or pdc.open_message is not None


# Time


def run_timers(pdc: Pdc, now: int) -> None:
    """Run every timer that is due, except PDS_Clear_Time. `source.pump` runs that timer after it has sent requests."""
    for record in pdc.tx.expired(now):
        if pdc.tx.may_repeat(record.rto_cnt) or congestion.was_heard(pdc, record):
            pdc.step(Input.RTO, record, now)
        else:
            pdc.step(Input.EXHAUSTED, PdcErrorReason.RTO_EXHAUSTED, now)
            return
    for record in pdc.tx.paused(now):
        if record.rto_at == NEVER:  # else going back on ROD has retransmitted the packet already
            pdc.step(Input.RETX_TIME, record, now)
    if pdc.stored_at <= now:
        pdc.stored_at = NEVER
        pdc.step(Input.STORED_TIME, now)
    if pdc.close_at <= now:
        pdc.close_at = NEVER
        pdc.step(Input.CLOSE_REQ_TIME, now)
    if pdc.pending_at <= now:
        pdc.pending_at = NEVER
        pdc.step(Input.NEW_PDC_TIME, now)
    if pdc.probe_at <= now:
        pdc.probe_at = NEVER
        pdc.step(Input.PROBE_TIME, now)
    if pdc.idle_wake <= now:
        over = pdc.touched + pdc.idle_time
        pdc.idle_wake = over if over > now else NEVER
        if over <= now:
            pdc.step(Input.IDLE, now)
            pdc.watch_idle(now)


# Secure start (pds.md §6.6)


def renumber(pdc: Pdc, nack: Nack, datagram: Datagram, now: int) -> None:
    """Change to the Start_PSN that the target demands, and send all packets again as first transmissions.

    A NACK that demands the present Start_PSN is ignored. A NACK about a PSN that was not sent is dropped: the NACK is
    late, and concerns an earlier PDC with the same PDCID, or an earlier Start_PSN.
    """
    delta = (nack.payload - pdc.tx.start) & _M32
    if not delta:
        return
    if (nack.psn - pdc.tx.start) & _M32 >= (pdc.tx.next - pdc.tx.start) & _M32:
        pdc.counters.bad_nack += 1
        return
    pdc.learn(nack.spdcid)
    records = pdc.tx.renumber(delta, now)
    congestion.restart(pdc, records, now)
    for record in records:
        if record.message is not None and record.message.lock and not record.index:
            cast(Locking, record.message).began(pdc, record.psn)
        if record.ctl_type is not None:
            pdc.send_control(record.ctl_type, record.psn, 1, record.index, 0)
        elif not congestion.is_held(record):
            emit_request(pdc, record, 0, record.ar, record.clear_psn, now)
    pdc.rx = PsnWindow(pdc.tx.start, pdc.config.mp_range, pdc.rx.rod)
    for name in ("clear_sent", "clear_wanted", "message_clear"):
        setattr(pdc, name, (getattr(pdc, name) + delta) & _M32)
    pdc.owner.wake(pdc, pdc.deadline())


def pend(pdc: Pdc, packet: Request | Control, datagram: Datagram, demanded: int, now: int) -> None:
    """Put a new PDC into PENDING, for at most New_PDC_Time, and demand another Start_PSN."""
    pdc.enter(State.PENDING)
    pdc.demanded = demanded
    pdc.pending_at = now + pdc.config.new_pdc_time
    pdc.idle_wake = NEVER
    pdc.owner.wake(pdc, pdc.pending_at)
    demand_start(pdc, packet, datagram, now)


def demand_start(pdc: Pdc, packet: Request | Control, datagram: Datagram, now: int) -> None:
    """Send NACK NEW_START_PSN for a packet whose Start_PSN is not accepted. Nothing is delivered to SES."""
    if packet.start_psn not in pdc.refused_starts:
        pdc.refused_starts = (*pdc.refused_starts[1 - _REFUSED :], packet.start_psn)
    nameless = pdc.config.new_start_spdcid == "zero"
    pdc.nack(NackCode.NEW_START_PSN, packet, datagram, pdc.demanded, nameless=nameless)


def confirm(pdc: Pdc, packet: Request | Control, datagram: Datagram, now: int) -> None:
    """Start both PSN spaces at the Start_PSN of the packet that confirms the PDC, and process this packet."""
    pdc.pending_at = NEVER
    pdc.begin(packet.start_psn, packet.start_psn)
    pdc.owner.opened(pdc)
    if isinstance(packet, Request):
        take_request(pdc, packet, datagram, now)
    else:
        take_psn_cp(pdc, packet, datagram, now)


def refuse_gap(pdc: Pdc, packet: Request | Control, datagram: Datagram, now: int) -> None:
    """Send NACK ROD_OOO in PENDING. On ROD, only the packet with psn = Start_PSN confirms the PDC (pds.md §6.2 item
    7).
    """
    pdc.nack(NackCode.ROD_OOO, packet, datagram, packet.start_psn)


def give_up_pending(pdc: Pdc, now: int) -> None:
    """Release a PENDING PDC after New_PDC_Time, and count the expiry."""
    pdc.owner.pending_timeout()
    _end(pdc, None)


# Close (pds.md §6.4, §6.5)


def remember_close(pdc: Pdc, now: int) -> None:
    """Note a request to close, which takes effect in ESTABLISHED.

    A PDC in CREATING closes when it is ESTABLISHED. A closing PDC ignores the request.
    """
    pdc.close_req = True


def quiesce(pdc: Pdc, now: int) -> None:
    """Begin the close: no new message starts on this PDC, and queued messages move to another PDC."""
    pdc.close_req = True
    messages = list(pdc.queue)
    congestion.withdraw(pdc, messages)
    pdc.queue.clear()
    pdc.owner.rebind(messages, now)


def keep_alive(pdc: Pdc, now: int) -> None:
    """Send NOOP on an idle PDC that a read keeps open, to find out whether the target still has the PDC (pds.md §13).

    If the target does not have the PDC, the data of the read never arrives (pds.md §10). The next NOOP follows after
    the idle time, or after the RTO if that is longer.
    """
    if pdc.locks and not pdc.tx.records and not pdc.cps:
        queue_cp(pdc, CtlType.NOOP, 0, now)
    pdc.idle_wake = now + max(pdc.idle_time, pdc.config.rto_init_time)
    pdc.owner.wake(pdc, pdc.idle_wake)


def take_close_req(pdc: Pdc, control: Control, datagram: Datagram, now: int) -> bool:
    """Acknowledge CLOSE_REQ and begin the close (pds.md §6.4). Return False for a duplicate."""
    taken = take_psn_cp(pdc, control, datagram, now)
    if taken:
        quiesce(pdc, now)
    return taken


def begin_close(pdc: Pdc, now: int) -> None:
    """Enter ACK_WAIT, in which the initiator waits until all packets are acknowledged."""
    pdc.close_req = False


def send_close(pdc: Pdc, now: int) -> None:
    """Send CLOSE_CMD with the next PSN."""
    pdc.send_psn_cp(CtlType.CLOSE_CMD, 0, now)
    pdc.clear_at = NEVER  # CLOSE_CMD clears all lower PSNs


def ask_close(pdc: Pdc, now: int) -> None:
    """Send CLOSE_REQ as the target, and wait at most Close_REQ_Time for CLOSE_CMD."""
    pdc.close_at = now + pdc.config.close_req_time
    pdc.owner.wake(pdc, pdc.close_at)
    queue_cp(pdc, CtlType.CLOSE_REQ, 0, now)


def take_close(pdc: Pdc, control: Control, datagram: Datagram, now: int) -> bool:
    """Process CLOSE_CMD, which clears all lower PSNs. The ACK of the CLOSE_CMD is sent when the PDC is drained."""
    psn = control.psn
    apply_clear(pdc, (psn - 1) & _M32)
    if pdc.rx.classify(psn) is not Verdict.NEW:
        return handle_not_new(pdc, control, datagram, now, NextHdr.NONE)
    if pdc.config.close_drain == "error" and _has_return_data(pdc):
        pdc.nack(NackCode.CLOSING_IN_ERR, control, datagram)
        _end(pdc, PdsError(PdcErrorReason.CLOSE_TIMEOUT))
        return True
    pdc.rx.take(psn, CLOSING)
    pdc.close_psn = psn
    pdc.close_at = NEVER
    pdc.closing_ack = (datagram.ecn_marked, control.retx, datagram.entropy)
    return True


def finish_close(pdc: Pdc, now: int) -> None:
    """End the PDC and send the ACK of CLOSE_CMD, which may carry the Expected_PSN after the close (pds.md §6.5)."""
    old = tombstone_of(pdc, True)
    free(pdc, now)
    old.send_closing_ack(pdc.owner, *pdc.closing_ack)


def tombstone_of(pdc: Pdc, drained: bool) -> "Tombstone":
    """Return the record that is kept of a closed PDC. If `drained` is true, the record has the PSN of the CLOSE_CMD, so
    that a retransmitted CLOSE_CMD can be acknowledged.
    """
    close_psn = pdc.close_psn if drained else None
    return Tombstone(pdc.local_id, pdc.peer, pdc.peer_id, pdc.rx.start, close_psn)


def free(pdc: Pdc, *_: Any) -> None:
    """End the PDC without error, as all requests of SES are acknowledged."""
    _end(pdc, None)


def fail_by_nack(pdc: Pdc, nack: Nack, datagram: Datagram, now: int) -> None:
    """End the PDC in error after a NACK of class FATAL (pds.md §6.7)."""
    _end(pdc, PdsError(PdcErrorReason.NACK_FATAL, nack.code, NACKS[nack.code].retryable))


def fail_exhausted(pdc: Pdc, reason: PdcErrorReason, now: int) -> None:
    """End the PDC in error, because the retransmissions of a packet, or the PSNs of the PDC, are used up."""
    _end(pdc, PdsError(reason))


def fail_closing(pdc: Pdc, *why: Any) -> None:
    """End in error a PDC whose close did not complete, and send NACK CLOSING_IN_ERR to the initiator."""
    reason = why[0] if isinstance(why[0], PdcErrorReason) else PdcErrorReason.CLOSE_TIMEOUT
    nack = Nack(NackCode.CLOSING_IN_ERR, 0, 0, 0, pdc.rx.max_rcvd, pdc.local_id, pdc.peer_id, 0)
    pdc.owner.put_nack(pdc.peer, nack, pdc.entropy)
    _end(pdc, PdsError(reason))


def _end(pdc: Pdc, error: PdsError | None) -> None:
    """Enter CLOSED: disarm all timers, and report an error for each un-ACKed packet of SES (pds.md §6.7)."""
    pdc.enter(State.CLOSED)
    pdc.clear_at = pdc.stored_at = pdc.close_at = pdc.idle_wake = pdc.unblock_at = NEVER
    pdc.pending_at = pdc.probe_at = NEVER
    pdc.clear_owed = False
    pdc.cps = pdc.probe = pdc.held = None
    pdc.rx.forget()
    records = pdc.tx.drop_all()
    congestion.leave(pdc, records)
    if error is not None:
        pdc.counters.pdc_close_in_err += 1
        for record in records:
            if record.message is not None:
                pdc.user.on_error(record.message, record.index, error)
        if pdc.open_message is not None:
            pdc.user.on_error(pdc.open_message, -1, error)
            pdc.open_message = None
        for message in pdc.queue:
            pdc.user.on_error(message, -1, error)
        pdc.queue.clear()
    pdc.owner.released(pdc, error)


# Default actions


def ignore(pdc: Pdc, *_: Any) -> None:
    """Do nothing."""


def drop(pdc: Pdc, *_: Any) -> bool:
    """Drop and count a packet that is not possible in this state."""
    pdc.counters.unexpected += 1
    return False


def refuse_unexpected(pdc: Pdc, packet: Request | Control, datagram: Datagram, now: int) -> bool:
    """Send NACK UNEXP_EVENT for a packet that is not possible in this state.

    A control packet without ar is dropped instead.
    """
    pdc.counters.unexpected += 1
    if packet.ar or isinstance(packet, Request):
        pdc.nack(NackCode.UNEXP_EVENT, packet, datagram)
    return False


class Tombstone(NamedTuple):
    """A tombstone is the record of a closed PDC, which is kept for MSL (pds.md §6.2 item 9, §20 row 17).

    By this record the target drops late SYN packets of the PDC, which must not open another PDC. It also answers a
    retransmitted CLOSE_CMD, whose ACK was lost.
    """

    local_id: int
    peer: int
    peer_id: int
    start: int
    """Start_PSN of the forward direction."""
    close_psn: int | None
    """PSN of the CLOSE_CMD. It is None if the PDC ended in error."""

    def send_closing_ack(self, owner: "Pds", marked: int, retx: int, entropy: int) -> None:
        """Send the ACK of the CLOSE_CMD, which may carry the Expected_PSN (pds.md §6.5, observed.md `closing_ack`)."""
        assert self.close_psn is not None
        config = owner.config
        offset = 0 if config.closing_ack == "at_close_psn" else 1
        copied = retx if config.ack_copies_retx else 0
        cack, local, peer = (self.close_psn - offset) & _M32, self.local_id, self.peer_id
        policy = owner.start_policy if config.closing_ack_epsn else None
        expected = None if policy is None else policy.expected
        message, header = None, b""
        if owner.objects:
            message = Ack(
                PdsType.ACK, NextHdr.NONE, marked, copied, AckReq.NONE, self.close_psn, None, cack, local, peer, 0,
                cack, 0, 0, expected,
            )  # fmt: skip
        elif expected is not None:
            header = PdsAckEpsnHeader.pack(
                m=marked, retx=copied, req=AckReq.NONE, ack_psn_offset=offset, cack_psn=cack, spdcid=local,
                dpdcid=peer, expected_psn=expected,
            )  # fmt: skip
        else:
            header = PdsAckHeader.pack(NextHdr.NONE, marked, copied, AckReq.NONE, offset, cack, local, peer)
        owner.counters.ack_tx += 1
        owner.out.append(Datagram(
            owner.address, self.peer, header, b"", TrafficClass.CONTROL, entropy, False, Trim.NO, owner.ip_version,
            message,
        ))  # fmt: skip


def nack_event(pdc: Pdc, nack: Nack) -> Input | None:
    """Return the input of the state table for a NACK, or None for a fatal code about a PSN that was never sent (pds.md
    §12).

    Acknowledged PSNs count as sent, and so does Start_PSN − 1: a target that ends a close in error names the last PSN
    that it has received, if any.
    """
    if nack.code not in FATAL_CODES:
        return Input.NEW_START if nack.code == NackCode.NEW_START_PSN else Input.NACK
    tx = pdc.tx
    return Input.NACK_FATAL if (nack.psn + 1 - tx.start) & _M32 <= (tx.next - tx.start) & _M32 else None
