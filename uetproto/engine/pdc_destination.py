"""Destination half of a PDC: takes requests, acknowledges, keeps guaranteed responses.

UE 1.0.1 §3.5.12.2, §3.5.16, §3.5.17, §3.5.20; pds.md §8, §9, §13, §14.
"""

from uetproto.engine.contract import NEVER, Buffer, Datagram, Mode, Trim
from uetproto.engine.messages import (
    SES_SIZE,
    Control,
    Request,
    build_ack,
    build_ack_cc,
    build_made_up_response,
    message_id_of,
)
from uetproto.engine.pdc_base import PdcBase
from uetproto.engine.psn_window import DONE, MPR_UNIT, Closing, Stored, Verdict, Waiting
from uetproto.engine.service import Refusal, Response
from uetproto.engine.states import Role, State
from uetproto.errors import LocalError
from uetproto.wire.serial import diff32
from uetproto.wire.uet_pds import AckReq, CtlType, NackCode, NextHdr

_M32 = 0xFFFFFFFF
# Looked up once: with every packet, Class.MEMBER would cost as much as a call.
_NEW = Verdict.NEW
_ASSUMED_RANGE = 8 * MPR_UNIT
"""MP_RANGE that a source assumes until an ACK_CC tells another: Default_MPR of pds.md §17."""
_CLEAR_REQ_PERIODS = 4
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
        psn = request.psn
        if rx.classify(psn) is not _NEW or (self.close_psn is not None and self._beyond_close(psn)):
            message_id = message_id_of(datagram.header, request.size, request.next_hdr)
            return self._not_new(request, datagram, NextHdr.RESPONSE, message_id)
        if rx.stored + rx.waiting >= self.config.max_gtd_del:
            self._nack(NackCode.NO_GTD_DEL_AVAIL, request, datagram)
            return False
        if not self.peer_id:
            self._learn(request.spdcid)
        data, at = datagram.header, request.size
        payload = datagram.payload or data[at + SES_SIZE[request.next_hdr] :]
        answer = self.user.on_request(self, psn, request.next_hdr, data, at, payload, now)
        if isinstance(answer, Refusal):
            self._nack(answer.code, request, datagram)
            return False
        config = self.config
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
            rx.take(psn, Stored(answer.next_hdr, answer.header) if answer.gtd else DONE)
            self._answered(psn, waiting, answer, now)
        return True

    def respond(self, psn: int, answer: Response, now: int) -> None:
        """SES answers a delivered packet. Raises `LocalError` when that packet does not wait for an answer."""
        slot = self.rx.slots.get(psn)
        if not isinstance(slot, Waiting):
            raise LocalError(f"PDC {self.local_id}: PSN {psn:#x} does not wait for a response")
        if not answer.final:
            self._send_placeholder(psn, slot, answer)
            return
        self.rx.answer(psn, Stored(answer.next_hdr, answer.header) if answer.gtd else DONE)
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
            self.stored_at = now + max(_CLEAR_REQ_PERIODS * self.config.pds_clear_time, 1)
            self.owner.wake(self, self.stored_at)
        if self.mode is Mode.ROD:
            self._held[psn] = (answer, packet)
            edge = self.rx.lowest(Waiting) if self.rx.waiting else None
            for held in sorted(self._held, key=self.rx.above_cack):
                if edge is not None and diff32(held, edge) > 0:
                    break
                answer, packet = self._held.pop(held)
                if answer.gtd or self._ack_due(packet):
                    self._send_ack_for(held, packet, answer)
        elif answer.gtd or self._ack_due(packet):
            self._send_ack_for(psn, packet, answer)

    def _send_ack_for(self, psn: int, packet: Waiting, answer: Response) -> None:
        req = AckReq.CLEAR if isinstance(self.rx.slots.get(psn), Stored) else AckReq.NONE
        self._send_ack(psn, answer.next_hdr, answer.header, packet.marked, packet.retx, req, packet.entropy)

    def _send_ack(
        self, psn: int, next_hdr: int, response: Buffer, marked: int, retx: int, req: int, entropy: int
    ) -> None:
        """pds.md §8.4. The ACK takes the entropy of the packet it speaks about (cms.md §1)."""
        rx, config = self.rx, self.config
        cack = rx.cack
        if req == AckReq.NONE and self.role is Role.TARGET and self.state is State.QUIESCE:
            req = AckReq.CLOSE
        if not config.ack_copies_retx:
            retx = 0
        offset = ((psn - cack + 0x8000) & 0xFFFF) - 0x8000
        told = config.ack_cc == "when_gap" and (rx.max_rcvd != cack or rx.mp_range != _ASSUMED_RANGE)
        if told or config.ack_cc == "always":
            base = rx.sack_base(config.sack_base, psn)
            sack_offset = ((base - cack + 0x8000) & 0xFFFF) - 0x8000
            header = build_ack_cc(
                next_hdr, marked, retx, req, offset, cack, self.local_id, self.peer_id,
                config.mp_range // MPR_UNIT, sack_offset, rx.sack_bitmap(base),
            )  # fmt: skip
            rx.ack_sent()
        else:
            header = build_ack(next_hdr, marked, retx, req, offset, cack, self.local_id, self.peer_id)
        self.ack_gen_count = 0
        self.counters.ack_tx += 1
        self._put(header + response, entropy)

    def _not_new(self, packet: Request | Control, datagram: Datagram, next_hdr: int, message_id: int = 0) -> bool:
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
        elif verdict is Verdict.GAP:
            self._nack(NackCode.ROD_OOO, packet, datagram, self.rx.expected)
        elif verdict is not Verdict.NEW:
            self._duplicate(packet, datagram, next_hdr, message_id)
        return False

    def _beyond_close(self, psn: int) -> bool:
        """Newer than the CLOSE_CMD that arrived."""
        return self.close_psn is not None and diff32(psn, self.close_psn) > 0

    def _duplicate(self, packet: Request | Control, datagram: Datagram, next_hdr: int, message_id: int) -> None:
        """Never delivered again; answered when it is marked as a retransmission (pds.md §8.1, second table)."""
        psn = packet.psn
        if not packet.retx and self.config.dup_without_retx == "drop":
            self.counters.dup_no_retx += 1
            return
        self.counters.dup_rx += 1
        slot = self.rx.slots.get(psn)
        if isinstance(slot, Waiting | Closing):
            self._nack(NackCode.RCVD_SES_PROCG, packet, datagram)
            return
        req: int = AckReq.NONE
        response: Buffer = b""
        if isinstance(slot, Stored):
            next_hdr, response, req = slot.next_hdr, slot.response, AckReq.CLEAR
        elif next_hdr == NextHdr.RESPONSE:
            response = build_made_up_response(message_id)
        self._send_ack(psn, next_hdr, response, datagram.ecn_marked, packet.retx, req, datagram.entropy)

    def take_trimmed(self, request: Request, datagram: Datagram, now: int) -> bool:
        """Only the header arrived (pds.md §14): NACK TRIMMED; after a ROD gap ROD_OOO; its CLEAR is ignored."""
        verdict = self.rx.classify(request.psn)
        if verdict is Verdict.NEW and not self._beyond_close(request.psn):
            code = NackCode.TRIMMED if datagram.trimmed is Trim.TRIMMED else NackCode.TRIMMED_LASTHOP
            self._nack(code, request, datagram)
        elif verdict not in (Verdict.AHEAD, Verdict.BEHIND):
            self._not_new(request, datagram, NextHdr.RESPONSE)
        return False

    # Control packets (pds.md §13)

    def take_psn_cp(self, control: Control, datagram: Datagram, now: int) -> bool:
        """A control packet that consumes a PSN: complete once processed, acknowledged at once."""
        psn = control.psn
        if self.rx.classify(psn) is not Verdict.NEW or self._beyond_close(psn):
            return self._not_new(control, datagram, NextHdr.NONE)
        self._learn(control.spdcid)
        self.rx.take(psn, DONE)
        self._send_ack(psn, NextHdr.NONE, b"", datagram.ecn_marked, control.retx, AckReq.NONE, datagram.entropy)
        return True

    def answer_ack_req(self, control: Control, datagram: Datagram, now: int) -> bool:
        """ACK_REQ asks about a PSN that was sent before: its response, or why there is none. Refuses a stranger."""
        rx, psn = self.rx, control.psn
        verdict = rx.classify(psn)
        slot = rx.slots.get(psn)
        if verdict in (Verdict.AHEAD, Verdict.BEHIND):
            return False
        if isinstance(slot, Waiting | Closing):
            if isinstance(slot, Waiting):
                slot.asked = True
            self._nack(NackCode.RCVD_SES_PROCG, control, datagram)
        elif verdict in (Verdict.NEW, Verdict.GAP):
            self._nack(NackCode.PKT_NOT_RCVD, control, datagram)
        elif isinstance(slot, Stored):
            self._send_ack(
                psn, slot.next_hdr, slot.response, datagram.ecn_marked, control.retx, AckReq.CLEAR, datagram.entropy
            )
        else:
            response = build_made_up_response(control.payload & 0xFFFF)
            self._send_ack(
                psn, NextHdr.RESPONSE, response, datagram.ecn_marked, control.retx, AckReq.NONE, datagram.entropy
            )
        return True

    def take_clear(self, control: Control, datagram: Datagram, now: int) -> None:
        """CLEAR_CMD frees guaranteed responses (pds.md §9.3); its psn is ignored (§20 row 8)."""
        self._clear(control.payload)

    def _clear(self, value: int) -> None:
        if not self.rx.clear(value):
            self.counters.bad_clear += 1
        elif not self.rx.stored:
            self.stored_at = NEVER

    def ask_clear(self, now: int) -> None:
        """A guaranteed response waits for long: CLEAR_REQ, again and again (pds.md §9.3)."""
        lowest = self.rx.lowest(Stored)
        if lowest is not None:
            self._send_control(CtlType.CLEAR_REQ, 0, 0, lowest, 0)
            self.stored_at = now + max(_CLEAR_REQ_PERIODS * self.config.pds_clear_time, 1)
