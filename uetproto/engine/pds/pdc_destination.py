"""Destination half of a PDC: takes requests, acknowledges, keeps guaranteed responses.

UE 1.0.1 §3.5.12.2, §3.5.17, §3.5.20; pds.md §8, §9, §10, §14.
"""

from uetproto.engine.contract import NEVER, Buffer, Datagram, Mode, Negotiated, TrafficClass, Trim
from uetproto.engine.pds.messages import Ack, Control, Request, build_ack, build_ack_cc
from uetproto.engine.pds.pdc_base import PdcBase
from uetproto.engine.pds.psn_window import DONE, MPR_UNIT, Buffered, Closing, Done, Slot, Stored, Verdict, Waiting
from uetproto.engine.pds.service import (
    RETURN_DATA,
    SES_SIZE,
    Refusal,
    Response,
    build_default_response,
    message_id_of,
)
from uetproto.engine.pds.states import Input, Role, State
from uetproto.errors import LocalError
from uetproto.wire.headers.uet_pds import AckReq, CtlType, NackCode, NextHdr, PdsType
from uetproto.wire.serial import diff32

_M32 = 0xFFFFFFFF
# Looked up once: with every packet, Class.MEMBER would cost as much as a call.
_NEW = Verdict.NEW
_ASSUMED_RANGE = 8 * MPR_UNIT
"""MP_RANGE that a source assumes until an ACK_CC tells another: Default_MPR of pds.md §17."""
CLEAR_REQ_PERIODS = 4
"""A target asks for the clear after so many PDS_Clear_Time (pds.md §9.3)."""


class PdcDestination(PdcBase):
    """Actions of the destination half; `rx` has the numbers."""

    __slots__ = ()

    # Requests (pds.md §8)

    def take_request(self, request: Request, datagram: Datagram, now: int) -> bool:
        """A request: CLEAR first, then the window; a new PSN is delivered once. False: refused or not new."""
        rx = self.rx
        if request.clear_psn != rx.max_clear:
            self._clear(request.clear_psn)
        if rx.classify(request.psn) is not _NEW or (self.close_psn is not None and self._beyond_close(request.psn)):
            message_id = message_id_of(datagram.header, request.size, request.next_hdr)
            return self._not_new(request, datagram, now, NextHdr.RESPONSE, message_id)
        taken = self._deliver(request, datagram, now)
        if rx.buffered:
            self._deliver_buffered(now)
        return taken

    def _deliver(self, request: Request, datagram: Datagram, now: int) -> bool:
        """A NEW request: resources, SES, its answer (pds.md §6.3 rows 16 and 17)."""
        rx, config, psn = self.rx, self.config, request.psn
        if rx.stored + rx.waiting >= config.max_gtd_del - 1 and not self._room_for_response(psn):
            self._nack(NackCode.NO_GTD_DEL_AVAIL, request, datagram)
            return False
        if rx.waiting + rx.buffered >= config.max_packet_buffers:
            self._nack(NackCode.NO_PKT_BUFFER, request, datagram)
            return False
        if request.spdcid != self.peer_id:
            self._learn(request.spdcid)
        data, at = datagram.header, request.size
        payload = datagram.payload or data[at + SES_SIZE[request.next_hdr] :]
        answer = self.user.on_request(self, psn, request.next_hdr, data, at, payload, now)
        if isinstance(answer, Refusal):
            self._nack(answer.code, request, datagram)
            return False
        self.counters.data_rx += 1
        size = len(payload)
        self.ack_gen_count += size if size > config.ack_gen_min_pkt_add else config.ack_gen_min_pkt_add
        if (
            answer is not None and answer.final and not answer.gtd and not rx.waiting
            and not (request.ar or request.retx or request.syn or datagram.ecn_marked)
        ):  # fmt: skip
            rx.take(psn, DONE)  # the common case of what follows: only ACK_Gen_Trigger can ask for an ACK
            if self.ack_gen_count >= config.ack_gen_trigger:
                self._send_ack(psn, answer.next_hdr, answer.header, 0, 0, AckReq.NONE, datagram.entropy)
            return True
        created = rx.max_rcvd == (rx.start - 1) & _M32 and bool(request.syn)
        waiting = Waiting(request.ar, request.retx, datagram.ecn_marked, datagram.entropy, created)
        if answer is None or not answer.final:
            rx.take(psn, waiting)
            if answer is not None:
                self._send_placeholder(psn, waiting, answer)
        else:
            rx.take(psn, self._slot_of(answer))
            self._answered(psn, waiting, answer, now)
        return True

    def _room_for_response(self, psn: int) -> bool:
        """The last place is kept for the lowest PSN that is missing: CLEAR cannot pass it, and so free no other."""
        rx, most = self.rx, self.config.max_gtd_del
        taken = rx.stored + rx.waiting
        return taken < most - 1 or (taken < most and psn == rx.lowest_missing())

    def _slot_of(self, answer: Response) -> Slot:
        """What is kept of an answer: a guaranteed one until it is cleared (pds.md §9.2, §10)."""
        if not answer.gtd:
            return DONE
        kept = self.config.store_ack_read_data or answer.next_hdr not in RETURN_DATA or not answer.rereadable
        return Stored(answer.next_hdr, answer.header if kept else None)

    def _keep_for_later(self, packet: Request | Control, datagram: Datagram) -> None:
        """`rod_gap = reorder`: a packet after a gap waits for its turn (pds.md §20 row 3).

        The last buffer is kept for the packet that is missing.
        """
        if self.rx.waiting + self.rx.buffered >= self.config.max_packet_buffers - 1:
            self._nack(NackCode.NO_PKT_BUFFER, packet, datagram)
        else:
            self.rx.keep(packet.psn, Buffered(packet, datagram))

    def _deliver_buffered(self, now: int) -> None:
        """The gap is closed: what waited behind it follows in order, as far as nothing is missing or refused."""
        while (slot := self.rx.next_turn()) is not None:
            if isinstance(slot.packet, Request):
                taken = self._deliver(slot.packet, slot.datagram, now)
            else:
                taken = self.take_cp_in_turn(slot.packet, slot.datagram, now)
                if slot.packet.ctl_type == CtlType.CLOSE_REQ:
                    self.step(Input.CLOSE, now)
            if not taken:
                self.rx.keep(slot.packet.psn, slot)  # a SACK may have told of it; the next copy tries again
                break

    def _slot_now(self, psn: int, now: int) -> Slot | None:
        """What is known of a PSN that somebody asks about; one that SES refused before gets another chance."""
        if isinstance(self.rx.slots.get(psn), Buffered):
            self._deliver_buffered(now)
        return self.rx.slots.get(psn)

    def respond(self, psn: int, answer: Response, now: int) -> None:
        """SES answers a delivered packet. Raises `LocalError` when that packet does not wait for an answer."""
        slot = self.rx.slots.get(psn)
        if not isinstance(slot, Waiting):
            raise LocalError(f"PDC {self.local_id}: PSN {psn:#x} does not wait for a response")
        if not answer.final:
            self._send_placeholder(psn, slot, answer)
            return
        kept = self._slot_of(answer)
        assert isinstance(kept, Stored | Done)
        self.rx.answer(psn, kept)
        self._answered(psn, slot, answer, now)

    def _send_placeholder(self, psn: int, waiting: Waiting, answer: Response) -> None:
        """NO_RESPONSE: goes out where an ACK is due; the PSN stays incomplete (pds.md §8.2)."""
        if self._ack_due(waiting):
            self._send_ack_for(psn, waiting, answer)

    def _ack_due(self, packet: Waiting) -> bool:
        config = self.config
        return bool(
            packet.ar or packet.retx or packet.created or packet.asked
            or (packet.marked and config.ack_on_ecn)
            or self.ack_gen_count >= config.ack_gen_trigger
        )  # fmt: skip

    def _answered(self, psn: int, packet: Waiting, answer: Response, now: int) -> None:
        """The response of a PSN is known: an ACK is sent if one is due; ROD: in PSN order (pds.md §8.3)."""
        if answer.gtd and self.stored_at == NEVER:
            self.stored_at = now + (CLEAR_REQ_PERIODS * self.config.pds_clear_time or self.config.rto_init_time or 1)
            self.owner.wake(self, self.stored_at)
        if self.mode is Mode.ROD and (self.rx.waiting or self._held):
            self._answered_in_turn(psn, packet, answer)
        elif answer.gtd or self._ack_due(packet):
            self._send_ack_for(psn, packet, answer)

    def _answered_in_turn(self, psn: int, packet: Waiting, answer: Response) -> None:
        """ROD: an ACK waits until all packets before its own are answered."""
        held = self._held = self._held or {}
        held[psn] = (answer, packet)
        edge = self.rx.lowest(Waiting) if self.rx.waiting else None
        for ready in sorted(held, key=self.rx.above_cack):
            if edge is not None and diff32(ready, edge) > 0:
                break
            answer, packet = held.pop(ready)
            if answer.gtd or self._ack_due(packet):
                self._send_ack_for(ready, packet, answer)

    def _send_ack_for(self, psn: int, packet: Waiting, answer: Response) -> None:
        req = AckReq.CLEAR if isinstance(self.rx.slots.get(psn), Stored) else AckReq.NONE
        self._send_ack(psn, answer.next_hdr, answer.header, packet.marked, packet.retx, req, packet.entropy)

    def _send_ack(
        self, psn: int, next_hdr: int, response: Buffer, marked: int, retx: int, req: int, entropy: int
    ) -> None:
        """pds.md §8.4. The ACK takes the entropy of the packet it speaks about (cms.md §1)."""
        rx, config = self.rx, self.config
        if req == AckReq.NONE and self.role is Role.TARGET and self.state is State.QUIESCE:
            req = AckReq.CLOSE
        if not config.ack_copies_retx:
            retx = 0
        self.ack_gen_count = 0
        self.counters.ack_tx += 1
        told = config.ack_cc == "when_gap" and (rx.max_rcvd != rx.cack or rx.mp_range != _ASSUMED_RANGE)
        base = rx.sack_base(config.sack_base, psn) if told or config.ack_cc == "always" else None
        kind = TrafficClass.DATA if len(response) > config.trimmable_ack_size else TrafficClass.CONTROL
        self._emit_ack(next_hdr, response, marked, retx, req, psn, None, base, entropy, kind)
        if base is not None:
            rx.ack_sent()

    def _emit_ack(
        self, next_hdr: int, response: Buffer, marked: int, retx: int, req: int, psn: int, opaque: int | None,
        base: int | None, entropy: int, kind: TrafficClass,
    ) -> None:  # fmt: skip
        """An ACK of `psn`, or with `opaque` the answer to a PROBE; with `base` an ACK_CC or ACK_CCX that has a SACK."""
        rx, config = self.rx, self.config
        cack, local, peer = rx.cack, self.local_id, self.peer_id
        if self.owner.objects:
            what = PdsType.ACK if base is None else PdsType.ACK_CCX if config.ack_ccx else PdsType.ACK_CC
            mpr, bitmap = (0, 0) if base is None else (config.mp_range // MPR_UNIT, rx.sack_bitmap(base))
            ack = Ack(
                what, next_hdr, marked, retx, req, cack if opaque is not None else psn, opaque, cack, local, peer, mpr,
                cack if base is None else base, bitmap, 0,
            )  # fmt: skip
            self._put(response, entropy, ack, kind)
            return
        about = psn - cack if opaque is None else opaque
        offset = ((about + 0x8000) & 0xFFFF) - 0x8000
        probe = int(opaque is not None)
        if base is None:
            header = build_ack(next_hdr, marked, retx, req, offset, cack, local, peer, probe)
        else:
            sack_offset = ((base - cack + 0x8000) & 0xFFFF) - 0x8000
            header = build_ack_cc(
                next_hdr, marked, retx, req, offset, cack, local, peer, config.mp_range // MPR_UNIT, sack_offset,
                rx.sack_bitmap(base), probe, config.ack_ccx,
            )  # fmt: skip
        self._put(header + response if response else header, entropy, None, kind)

    def _not_new(
        self, packet: Request | Control, datagram: Datagram, now: int, next_hdr: int, message_id: int = 0
    ) -> bool:
        """What is not NEW (pds.md §8.1): a NACK, the duplicate table, or nothing. Always False."""
        psn = packet.psn
        verdict = self.rx.classify(psn)
        if self._beyond_close(psn):
            self._nack(NackCode.CLOSING, packet, datagram)
        elif verdict is Verdict.AHEAD:
            self.counters.oor_ahead += 1
            self._nack(NackCode.PSN_OOR_WINDOW, packet, datagram)
        elif verdict is Verdict.BEHIND:
            self.counters.oor_behind += 1
        elif (
            verdict is Verdict.GAP and self._reorders and not datagram.trimmed
            and not (isinstance(packet, Control) and packet.ctl_type == CtlType.CLOSE_CMD)
        ):  # fmt: skip
            self._keep_for_later(packet, datagram)
        elif verdict is Verdict.GAP:
            self._nack(NackCode.ROD_OOO, packet, datagram, self.rx.expected)
        elif verdict is not Verdict.NEW:
            self._duplicate(packet, datagram, now, next_hdr, message_id)
        return False

    @property
    def _reorders(self) -> bool:
        return self.config.rod_gap == "reorder" or self.config.rod_recovery == "selective"

    def _beyond_close(self, psn: int) -> bool:
        """Newer than the CLOSE_CMD that arrived."""
        return self.close_psn is not None and diff32(psn, self.close_psn) > 0

    def _duplicate(
        self, packet: Request | Control, datagram: Datagram, now: int, next_hdr: int, message_id: int
    ) -> None:
        """Never delivered again; answered when it is marked as a retransmission (pds.md §8.1, second table)."""
        psn = packet.psn
        if not packet.retx and self.config.dup_without_retx == "drop":
            self.counters.dup_no_retx += 1
            return
        self.counters.dup_rx += 1
        slot = self.rx.slots.get(psn) if datagram.trimmed else self._slot_now(psn, now)
        if isinstance(slot, Waiting | Buffered | Closing):
            self._nack(NackCode.RCVD_SES_PROCG, packet, datagram)
            return
        req: int = AckReq.NONE
        response: Buffer = b""
        if isinstance(slot, Stored):
            stored, next_hdr = slot.response, slot.next_hdr
            if stored is None and slot.next_hdr in RETURN_DATA and isinstance(packet, Request):
                if datagram.trimmed:
                    self._refuse_trimmed(packet, datagram)  # what to read is cut off
                    return
                again = self._read_again(packet, datagram)
                stored, next_hdr = again.header, again.next_hdr
            if stored is None:
                self._nack(NackCode.GTD_RESP_UNAVAIL, packet, datagram)
                return
            response, req = stored, AckReq.CLEAR
        elif next_hdr == NextHdr.RESPONSE:
            response = build_default_response(message_id)
        self._send_ack(psn, next_hdr, response, datagram.ecn_marked, packet.retx, req, datagram.entropy)

    def _read_again(self, request: Request, datagram: Datagram) -> Response:
        """The data of a read was in its ACK and is not stored: SES reads it once more (pds.md §10)."""
        data, at = datagram.header, request.size
        payload = datagram.payload or data[at + SES_SIZE[request.next_hdr] :]
        return self.user.on_reread(self, request.psn, request.next_hdr, data, at, payload)

    def _refuse_trimmed(self, request: Request, datagram: Datagram) -> None:
        trimmed = datagram.trimmed is Trim.TRIMMED
        self._nack(NackCode.TRIMMED if trimmed else NackCode.TRIMMED_LASTHOP, request, datagram)

    def take_trimmed(self, request: Request, datagram: Datagram, now: int) -> bool:
        """Only the header arrived (pds.md §14): NACK TRIMMED; after a ROD gap ROD_OOO; its CLEAR is ignored."""
        verdict = self.rx.classify(request.psn)
        if verdict is Verdict.NEW and not self._beyond_close(request.psn):
            self._refuse_trimmed(request, datagram)
        elif verdict not in (Verdict.AHEAD, Verdict.BEHIND):
            self._not_new(request, datagram, now, NextHdr.RESPONSE)
        return False

    def _clear(self, value: int) -> None:
        """A CLEAR_PSN arrived, in a request or a CLEAR_CMD: frees guaranteed responses (pds.md §9.3)."""
        if not self.rx.clear(value):
            self.counters.bad_clear += 1
        elif not self.rx.stored:
            self.stored_at = NEVER

    def take_cp_in_turn(self, control: Control, datagram: Datagram, now: int) -> bool:
        """A control packet with a PSN that is NEW: takes its place, and is acknowledged (pds.md §13)."""
        self._learn(control.spdcid)
        self.rx.take(control.psn, DONE)
        if control.ctl_type == CtlType.NEGOTIATION:
            self.owner.tell(Negotiated(self.peer, self.local_id, control.payload))
        self._send_ack(control.psn, NextHdr.NONE, b"", datagram.ecn_marked, control.retx, AckReq.NONE, datagram.entropy)
        return True
