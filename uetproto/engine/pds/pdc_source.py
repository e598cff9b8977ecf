"""Source half of a PDC: sends requests, takes ACKs and NACKs, repeats.

UE 1.0.1 §3.5.12, §3.5.16.3, §3.5.20; pds.md §7, §9.3, §11, §12.
"""

from collections import deque
from typing import cast

from uetproto.engine.contract import NEVER, Datagram, Mode, PdcErrorReason, Probed, TrafficClass, Trim
from uetproto.engine.pds.messages import Ack, Control, Nack, Request, build_request, build_syn_request
from uetproto.engine.pds.nacks import NACKS
from uetproto.engine.pds.pdc_base import PdcBase
from uetproto.engine.pds.psn_window import MPR_UNIT, SACK_BITS
from uetproto.engine.pds.retransmit import MAX_CLEAR_OFFSET, MAX_SYN_OFFSET, Record, rto_waits
from uetproto.engine.pds.service import Locking, Outgoing, is_no_response
from uetproto.engine.pds.states import Input, Role, State
from uetproto.wire.headers.uet_pds import AckReq, CtlType, NackCode, NextHdr, PdsType
from uetproto.wire.serial import diff32

_M32 = 0xFFFFFFFF
# Looked up once: with every packet, Class.MEMBER would cost as much as a call.
_CREATING, _SEND, _SEND_MORE = State.CREATING, Input.SEND, Input.SEND_MORE
_DATA, _NO_TRIM, _ROD, _NO_HEADER = TrafficClass.DATA, Trim.NO, Mode.ROD, NextHdr.NONE
_PSN_LIMIT = 1 << 31
_PSN_MARGIN = 1 << 23
"""PSNs left for open messages when the PSN limit starts a close (pds.md §2.2)."""


class PdcSource(PdcBase):
    """Actions of the source half; `tx` has the numbers."""

    __slots__ = ()

    # Sending (pds.md §7.1)

    def pump(self, now: int, limit: int) -> int:
        """Sends what may leave: control packets, requests, then a CLEAR that no request carries (pds.md §6.4, §9.3).

        Returns the number of first transmissions, at most `limit`.
        """
        sent = 0
        asked = self.unblock_at <= now != self.touched  # and not answered right now
        self.unblock_at = NEVER
        if self.cps:
            sent = self._pump_cps(now, limit)
        if self.queue or self.open_message is not None:
            room = self._room() + sent
            while sent < limit and sent < room:
                found = self._rows[_SEND if self.open_message is None else _SEND_MORE]
                if found is None or (self.open_message is None and not self.queue):
                    break
                found[0](self, now)  # stays in its state
                sent += 1
            if sent:
                self.touched = now
        if (
            self.tx.window_at_cack and limit and not sent and not self.tx.records and self._room() == 0
            and (self.cps or self.queue or self.open_message is not None or self.closes)
        ):  # fmt: skip
            self._unblock(asked, now)
        if self.clear_owed:
            self._send_clear_cmd(self.tx.clear_psn)
        if self.clear_at <= now or (self.clear_at != NEVER and self.config.clear_cmd == "immediate"):
            self.step(Input.CLEAR_TIME, now)
        return sent

    def _pump_cps(self, now: int, limit: int) -> int:
        """Control packets with a PSN obey the window; they carry no CLEAR, so it goes ahead if it matters (§7.1)."""
        tx, cps = self.tx, self.cps
        assert cps is not None
        sent = 0
        while cps and sent < limit and self._room() > 0:
            if diff32(tx.next, tx.peer_cack) > tx.mp_range and diff32(tx.clear_psn, self.clear_sent) > 0:
                self._send_clear_cmd(tx.clear_psn)
            ctl_type, payload = cps.popleft()
            psn = self._send_psn_cp(ctl_type, payload, now)
            sent += 1
            if (psn - tx.start) & _M32 >= _PSN_LIMIT - 2 and self.config.limit_psn_range:
                self.step(Input.EXHAUSTED, PdcErrorReason.PSN_LIMIT, now)
                break
        self.touched = now
        return sent

    def queue_cp(self, ctl_type: CtlType, payload: int, now: int) -> None:
        """NOOP, NEGOTIATION, CLOSE_REQ: leaves before the next request (pds.md §13)."""
        if self.cps is None:
            self.cps = deque()
        self.cps.append((ctl_type, payload))

    def take_return(self, message: Outgoing, now: int) -> None:
        """Target: read data takes the return direction of the PDC on which the read came (pds.md §10)."""
        self.queue.append(message)

    def _room(self) -> int:
        """PSNs that may be used now: the window, and the reach of psn_offset before the PDC is established (§7.1)."""
        tx = self.tx
        if self.state is _CREATING:
            return min(tx.room(), MAX_SYN_OFFSET + 1 - ((tx.next - tx.start) & _M32))
        return tx.room()

    def send(self, now: int) -> None:
        """Sends the next packet of the open message, or the first of the next message."""
        message = self.open_message
        tx = self.tx
        if message is None:
            self.open_message = message = self.queue.popleft()
            self.message_clear = tx.clear_psn
            if message.lock:
                self.locks += 1
                cast(Locking, message).began(self, tx.next)
        index, header, payload, last = message.next_packet()
        if last:
            self.open_message = None
        config = self.config
        psn = tx.next
        clear = (tx.una - 1) & _M32
        if config.clear_source != "explicit":
            clear = tx.peer_cack
        elif config.clear_at != "packet":
            if (psn - self.message_clear) & _M32 > MAX_CLEAR_OFFSET:
                self.message_clear = clear  # a long message: the offset has 16 bits
            clear = self.message_clear
        ar = config.enb_ack_per_pkt or (last and config.ar_on_eom)
        record = Record(psn, message, index, message.next_hdr, header, payload, ar, clear)
        self._emit_request(record, 0, ar, clear)
        tx.track(record, now)
        self.counters.data_tx += 1
        if record.rto_at < self.wake_at:
            self.owner.wake(self, record.rto_at)
        if self.probe_at == NEVER and config.inferred_loss == "probe":
            self._arm_probe(now)
        if (psn - tx.start) & _M32 >= _PSN_LIMIT - _PSN_MARGIN and config.limit_psn_range:
            self._near_the_psn_limit((psn - tx.start) & _M32, now)

    def _near_the_psn_limit(self, used: int, now: int) -> None:
        """Limit_PSN_Range: closes in time; a message that takes all the PSNs left ends in error (pds.md §2.2)."""
        if used >= _PSN_LIMIT - 2:  # the last one is for CLOSE_CMD
            self.step(Input.EXHAUSTED, PdcErrorReason.PSN_LIMIT, now)
        elif self.state is State.ESTABLISHED:
            self.counters.psn_limit_close += 1
            self.step(Input.CLOSE, now)

    def send_syn(self, now: int) -> None:
        """As `send`; the packet carries syn and psn_offset because the state is CREATING."""
        self.send(now)

    def _emit_request(self, record: Record, retx: int, ar: int, clear: int) -> None:
        psn, mode, owner = record.psn, self.mode, self.owner
        message = None
        header = record.header
        if owner.objects:
            syn = int(self.state is _CREATING)
            message = Request(
                mode, record.next_hdr, retx, ar, syn, clear, psn, self.local_id, 0 if syn else self.peer_id,
                self.tx.start if syn else 0, 0, int(syn and self.reserved),
            )  # fmt: skip
        elif self.state is _CREATING:
            header = build_syn_request(
                mode, record.next_hdr, retx, ar, -((psn - clear) & _M32), psn, self.local_id,
                (psn - self.tx.start) & _M32, self.reserved,
            ) + header  # fmt: skip
        else:
            header = build_request(
                mode, record.next_hdr, retx, ar, -((psn - clear) & _M32), psn, self.local_id, self.peer_id
            ) + header  # fmt: skip
        owner.out.append(Datagram(
            owner.address, self.peer, header, record.payload,
            TrafficClass.DATA_RTX if retx else _DATA,
            self.entropy if mode is _ROD else self._next_entropy(),
            False, _NO_TRIM, owner.ip_version, message,
        ))  # fmt: skip
        if clear != self.clear_sent and diff32(clear, self.clear_sent) > 0:
            self.clear_sent = clear
        if self.clear_at != NEVER and diff32(self.clear_wanted, clear) <= 0:
            self.clear_at = NEVER
        if self.clear_owed and clear == self.tx.clear_psn:
            self.clear_owed = False

    @property
    def closes(self) -> bool:
        """Initiator: CLOSE_CMD is the next to leave (pds.md §6.4)."""
        return self.state is State.ACK_WAIT and self.role is Role.INITIATOR

    def _unblock(self, asked: bool, now: int) -> None:
        """The literal window is full, and nothing is un-ACKed: asks for CACK. A peer that was `asked` and is silent is
        asked again as often, and as late, as a packet would be repeated (pds.md §11.1)."""
        if asked and not self.tx.may_repeat(self.cack_asks):
            self.step(Input.EXHAUSTED, PdcErrorReason.RTO_EXHAUSTED, now)
            return
        self.cack_asks = self.cack_asks + 1 if asked else 0
        self._ask_for_cack()
        waits = rto_waits(self.config.rto_init_time)
        self.unblock_at = now + max(waits[min(self.cack_asks, len(waits) - 1)], 1)
        self.owner.wake(self, self.unblock_at)

    def _ask_for_cack(self) -> None:
        """The literal window is full of guaranteed answers: clears them, asks about the last one (pds.md §7.1)."""
        clear = self.tx.clear_psn
        if diff32(clear, self.tx.start) >= 0:  # else nothing was acknowledged yet
            self._send_clear_cmd(clear)
            self._send_control(CtlType.ACK_REQ, clear, self.config.ack_req_ar, 0, 0)

    # Acknowledgements (pds.md §7.2)

    def take_ack(self, ack: Ack, datagram: Datagram, now: int) -> bool:
        """Marks what the ACK acknowledges, hands its response to SES; False for an ACK of packets never sent."""
        tx = self.tx
        if not tx.plausible(ack):
            self.counters.bad_ack += 1
            return False
        if ack.spdcid != self.peer_id:
            self._learn(ack.spdcid)
        older = diff32(ack.cack_psn, tx.peer_cack) < 0
        if ack.probe_opaque is None:  # else it has no ACK_PSN, all the rest is as ever (§20 row 25)
            record = tx.records.get(ack.ack_psn)
            if record is not None:
                response = datagram.header[ack.size :]
                if is_no_response(response, ack.next_hdr):
                    self._mark_pending(record, now)
                else:
                    tx.forget(record)
                    if record.message is not None:
                        self.user.on_response(record.message, record.index, ack.next_hdr, response, now)
        answer = self.user.on_response
        for record in tx.take_cack(ack.cack_psn):
            if record.message is not None:
                answer(record.message, record.index, _NO_HEADER, None, now)
        if ack.type != PdsType.ACK:
            if not older and ack.mpr:
                tx.mp_range = ack.mpr * MPR_UNIT
            tx.take_sack(ack.sack_base, ack.sack_bitmap, now)
        tx.advance()
        self._wake_for_lowest()
        if ack.epsn is not None and self.state is State.CLOSE_ACK_WAIT and ack.ack_psn == tx.last:
            self._take_expected(ack.epsn)
        if self.config.inferred_loss != "off":
            self._infer_loss(ack, now)
        elif ack.probe_opaque is not None:
            self._match_probe(ack, now)
        if diff32(self.clear_wanted, self.clear_sent) > 0:
            self._want_rest(now)
        if ack.req == AckReq.CLEAR:
            self._want_clear(ack, now)
        elif ack.req == AckReq.CLOSE and self.role is Role.INITIATOR and self.allows(Input.CLOSE):
            self.step(Input.CLOSE, now)
        return True

    def _take_expected(self, expected: int) -> None:
        """The ACK of our CLOSE_CMD tells where the next PDC may begin (pds.md §6.6)."""
        policy = self.owner.start_policy
        if policy is not None and self.config.closing_ack_epsn:
            policy.told(expected)

    def _mark_pending(self, record: Record, now: int) -> None:
        """The destination has the packet and SES works on it: no budget runs out meanwhile (pds.md §7.2, §11.2)."""
        record.rto_cnt = 0
        self.tx.mark_received(record, now)
        self._wake_for_lowest()

    def _wake_for_lowest(self) -> None:
        """Marks and ACKs move timers: a pause ends, and ROD times another PSN, the lowest one."""
        at = self.tx.deadline()
        if at < self.wake_at:
            self.owner.wake(self, at)

    def _want_clear(self, ack: Ack, now: int) -> None:
        """req = CLEAR: arms PDS_Clear_Time unless the clear is on its way; a repeated ACK says that it got lost."""
        if diff32(ack.ack_psn, self.clear_sent) <= 0 and not ack.retx:
            return
        if self.clear_at == NEVER:
            self.clear_wanted = ack.ack_psn
            self.clear_at = now + self.config.pds_clear_time
            self.owner.wake(self, self.clear_at)
        elif diff32(ack.ack_psn, self.clear_wanted) > 0:
            self.clear_wanted = ack.ack_psn

    def _want_rest(self, now: int) -> None:
        """What was asked to be cleared had to wait for lower PSNs: some of them are acknowledged now."""
        if self.clear_at == NEVER and diff32(self.tx.clear_psn, self.clear_sent) > 0:
            self.clear_at = now + self.config.pds_clear_time
            self.owner.wake(self, self.clear_at)

    # Refusals (pds.md §11.2, §12)

    def take_nack(self, nack: Nack, datagram: Datagram, now: int) -> None:
        """Repeats what was refused, at once or after NACK_Retx_Time; never acknowledges anything."""
        tx = self.tx
        entry = NACKS.get(nack.code)
        record = tx.records.get(nack.psn)
        if (
            entry is None or record is None or (record.dst_rcvd and not entry.after_dst_rcvd) or entry.ignored
            or (entry.opening and self.state is not _CREATING)
        ):  # fmt: skip
            self.counters.bad_nack += 1
            return
        self._learn(nack.spdcid)
        if nack.code == NackCode.RCVD_SES_PROCG:
            self._mark_pending(record, now)
            return
        if nack.code == NackCode.ROD_OOO:
            self._go_back_to_expected(nack, now)
            return
        if record.retx_at != NEVER:
            return  # its retransmission is scheduled
        tx.unmark(record)
        if not self._count_nack(record, now):
            return
        if entry.delayed:
            tx.delay(record, now)
            self.owner.wake(self, record.retx_at)
        else:
            self._repeat_from(record, now)

    def _count_nack(self, record: Record, now: int) -> bool:
        if not self.tx.may_be_refused(record):
            self.step(Input.EXHAUSTED, PdcErrorReason.NACK_EXHAUSTED, now)
            return False
        record.nack_cnt += 1
        self.counters.retx_nack += 1
        return True

    def _go_back_to_expected(self, nack: Nack, now: int) -> None:
        """ROD_OOO: resend from the expected PSN, once for each value of it (pds.md §11.3, §20 row 4)."""
        tx = self.tx
        expected = nack.payload
        if diff32(expected, tx.una) < 0 or diff32(expected, tx.last) > 0:
            expected = tx.una
        record = tx.records.get(expected)
        if self.mode is not Mode.ROD or record is None:
            self.counters.bad_nack += 1
        elif diff32(expected, tx.went_back_to) > 0 and record.retx_at == NEVER and self._count_nack(record, now):
            self._repeat_from(record, now, back=True)

    # Repeating (pds.md §11)

    def repeat(self, record: Record, now: int) -> None:
        """RTO: resends the packet; asks by ACK_REQ for the answer to one that arrived; ROD: goes back."""
        if not self.tx.in_window(record.psn):
            if self.tx.window_at_cack:
                record.rto_cnt += 1  # else it would ask a dead peer for ever
                self._ask_for_cack()
            self._arm(record, now)
            return
        record.rto_cnt += 1
        if record.ctl_type is not None or not record.dst_rcvd:  # else an ACK_REQ is sent in its place
            self.counters.retx_rto += 1
        self._repeat_from(record, now)

    def repeat_refused(self, record: Record, now: int) -> None:
        """NACK_Retx_Time is over: resends the packet; ROD: goes back to it."""
        self._repeat_from(record, now)

    def _repeat_from(self, record: Record, now: int, back: bool = False) -> None:
        """RUD: this packet. ROD: this and all later ones; a selective source does so only for a peer that discards."""
        tx = self.tx
        if self.mode is Mode.RUD or (not tx.rod and not back):
            self._repeat_one(record, now)
            return
        tx.went_back_to = record.psn
        for later in tx.from_psn(record.psn):
            if later is record or not later.dst_rcvd:
                self._repeat_one(later, now)
            else:
                self._arm(later, now)

    def _arm(self, record: Record, now: int) -> None:
        self.tx.arm(record, now)
        if record.rto_at < self.wake_at:
            self.owner.wake(self, record.rto_at)

    def _repeat_one(self, record: Record, now: int) -> None:
        tx = self.tx
        self._arm(record, now)
        if not tx.in_window(record.psn):
            return  # the destination shrank its window; the RTO tries again
        self.touched = now
        if record.ctl_type is not None:
            self._send_control(record.ctl_type, record.psn, 1, record.index, 1)
        elif record.dst_rcvd:
            message_id = record.message.message_id if record.message is not None else 0
            self._send_control(CtlType.ACK_REQ, record.psn, self.config.ack_req_ar, message_id, 0)
        else:
            clear = record.clear_psn
            if self.config.clear_on_retransmission == "current":
                clear = tx.clear_psn if self.config.clear_source == "explicit" else tx.peer_cack
            self._emit_request(record, 1, 1, clear)

    # Inferred loss (pds.md §11.4)

    def _infer_loss(self, ack: Ack, now: int) -> None:
        """Enough PSNs reported above a gap, or the answer to a PROBE: resends what is missing, once a recovery."""
        tx = self.tx
        probed = self._match_probe(ack, now) if ack.probe_opaque is not None else None
        if tx.recovery_end is None:
            lost: list[Record] = []
            if tx.sacked >= self.config.inferred_loss_packets:
                lost = tx.overtaken()
            elif probed is not None:
                seen = ack.cack_psn if ack.type == PdsType.ACK else (ack.sack_base + SACK_BITS - 1) & _M32
                told = diff32(seen, probed) > 0 or ack.type == PdsType.ACK  # an ACK without bitmap: nothing above CACK
                lost = tx.missing(probed if told else seen)
            if lost:
                tx.recovery_end = tx.last
                self.counters.retx_inferred += len(lost)
                for record in lost:
                    self._repeat_one(record, now)
        self._arm_probe(now, answered=True, renewed=ack.probe_opaque is None)

    def _match_probe(self, ack: Ack, now: int) -> int | None:
        """The highest PSN sent before the PROBE that this ACK answers; None: it is another one."""
        if self.probe is None or self.probe[0] != ack.probe_opaque:
            return None
        _, last, sent_at = self.probe
        self.probe = None
        self.owner.tell(Probed(self.peer, self.local_id, now - sent_at))
        return last

    def _arm_probe(self, now: int, answered: bool = False, renewed: bool = True) -> None:
        """A PROBE leaves when no ACK comes for Tail_Loss_Time.

        Answers to PROBEs renew nothing: else one would follow the other until the RTO, which may be far away.
        """
        if self.config.inferred_loss == "probe":
            if renewed:
                self.probes_left = self.config.max_tail_loss_retx
            established = answered or self.state is not _CREATING  # a PROBE cannot come before the first answer
            self.probe_at = now + self.config.tail_loss_time if established and self.tx.records else NEVER
            if self.probe_at < self.wake_at:
                self.owner.wake(self, self.probe_at)

    # Clear (pds.md §9.3)

    def answer_clear_req(self, control: Control, datagram: Datagram, now: int) -> None:
        """CLEAR_REQ: the next request carries the CLEAR; without one a CLEAR_CMD leaves at the next poll."""
        self.clear_owed = True

    def send_clear(self, now: int) -> None:
        """PDS_Clear_Time is over: CLEAR_CMD, as far as all is acknowledged; `_want_rest` sees to the rest."""
        clear = self.tx.clear_psn
        again = diff32(self.clear_wanted, self.clear_sent) <= 0
        if diff32(clear, self.clear_sent) > 0 or again:
            self._send_clear_cmd(clear)
        self.clear_at = NEVER

    def _send_clear_cmd(self, clear: int) -> None:
        self.clear_owed = False
        self._send_control(CtlType.CLEAR_CMD, 0, 0, clear, 0)
        if diff32(clear, self.clear_sent) > 0:
            self.clear_sent = clear
