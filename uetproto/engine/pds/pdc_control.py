"""Control packets of a PDC, both halves: what they ask, and what answers them.

UE 1.0.1 §3.5.16; pds.md §13, §9.3 (clear), §11.4 (probes).
"""

from uetproto.engine.contract import Credited, Datagram, TrafficClass
from uetproto.engine.pds.messages import Control
from uetproto.engine.pds.pdc_destination import CLEAR_REQ_PERIODS, PdcDestination
from uetproto.engine.pds.pdc_source import PdcSource
from uetproto.engine.pds.psn_window import Buffered, Closing, Stored, Verdict, Waiting
from uetproto.engine.pds.retransmit import RTO_INFINITE
from uetproto.engine.pds.service import RETURN_DATA, build_default_response
from uetproto.wire.headers.uet_pds import AckReq, CtlType, NackCode, NextHdr
from uetproto.wire.serial import diff32

_CREDIT_MASK = 0xFFFFFF
"""A credit has 24 bits (UE 1.0.1 §3.6.14)."""


class PdcControl(PdcSource, PdcDestination):
    """Actions for control packets."""

    __slots__ = ()

    # With a PSN: NOOP, NEGOTIATION, CLOSE_REQ (CLOSE_CMD: `uet_pdc`)

    def take_psn_cp(self, control: Control, datagram: Datagram, now: int) -> bool:
        """A control packet that consumes a PSN: complete once processed, acknowledged at once."""
        psn = control.psn
        if self.rx.classify(psn) is not Verdict.NEW or self._beyond_close(psn):
            return self._not_new(control, datagram, now, NextHdr.NONE)
        taken = self.take_cp_in_turn(control, datagram, now)
        if self.rx.buffered:
            self._deliver_buffered(now)
        return taken

    def take_negotiation(self, control: Control, datagram: Datagram, now: int) -> bool:
        """NEGOTIATION: as NOOP, and its 32 bits are told; this revision defines no features."""
        return self.take_psn_cp(control, datagram, now)

    # ACK_REQ

    def answer_ack_req(self, control: Control, datagram: Datagram, now: int) -> bool:
        """ACK_REQ asks about a PSN that was sent before: its response, or why there is none. Refuses a stranger."""
        rx, psn = self.rx, control.psn
        slot = self._slot_now(psn, now)
        verdict = rx.classify(psn)
        if verdict in (Verdict.AHEAD, Verdict.BEHIND):
            return False
        if isinstance(slot, Waiting | Buffered | Closing):
            if isinstance(slot, Waiting):
                slot.asked = True
            self._nack(NackCode.RCVD_SES_PROCG, control, datagram)
        elif verdict in (Verdict.NEW, Verdict.GAP):
            self._nack(NackCode.PKT_NOT_RCVD, control, datagram)
        elif isinstance(slot, Stored):
            if slot.response is None:
                lost = slot.next_hdr not in RETURN_DATA
                self._nack(NackCode.GTD_RESP_UNAVAIL if lost else NackCode.ACK_WITH_DATA, control, datagram)
            else:
                self._send_ack(
                    psn, slot.next_hdr, slot.response, datagram.ecn_marked, control.retx, AckReq.CLEAR, datagram.entropy
                )
        else:
            response = build_default_response(control.payload & 0xFFFF)
            self._send_ack(
                psn, NextHdr.RESPONSE, response, datagram.ecn_marked, control.retx, AckReq.NONE, datagram.entropy
            )
        return True

    # CLEAR_CMD, CLEAR_REQ (pds.md §9.3)

    def take_clear(self, control: Control, datagram: Datagram, now: int) -> None:
        """CLEAR_CMD frees guaranteed responses (pds.md §9.3); its psn is ignored (§20 row 8)."""
        self._clear(control.payload)

    def ask_clear(self, now: int) -> None:
        """A guaranteed response waits for long: CLEAR_REQ, again and again (pds.md §9.3).

        A peer that is silent meanwhile is asked Max_RTO_Retx_Cnt times: it may be gone, and nothing else ends this.
        """
        lowest = self.rx.lowest(Stored)
        self.clear_asks = self.clear_asks + 1 if self.touched <= self.clear_asked_at else 1
        self.clear_asked_at = now
        limit = self.config.max_rto_retx_cnt
        if lowest is not None and (limit == RTO_INFINITE or self.clear_asks <= limit):
            self._send_control(CtlType.CLEAR_REQ, 0, 0, lowest, 0)
            self.stored_at = now + (CLEAR_REQ_PERIODS * self.config.pds_clear_time or self.config.rto_init_time or 1)

    # PROBE (pds.md §11.4, §20 row 25)

    def send_probe(self, now: int) -> None:
        """PROBE: asks for CACK and SACK from the lowest un-ACKed PSN on; psn is the last one sent."""
        tx = self.tx
        opaque = self.owner.rng.getrandbits(16)
        self.probe = (opaque, tx.last, now)
        self._send_control(CtlType.PROBE, tx.last, 1, tx.una, 0, opaque=opaque)

    def probe_for_loss(self, now: int) -> None:
        """Tail_Loss_Time without an ACK: a PROBE, Max_Tail_Loss_Retx times; then the RTO has the word."""
        if self.probes_left and self.tx.records:
            self.probes_left -= 1
            self.send_probe(now)
            self.probe_at = now + self.config.tail_loss_time

    def answer_probe(self, control: Control, datagram: Datagram, now: int) -> None:
        """The current CACK and SACK, and the opaque echoed; no SES response (pds.md §7.2)."""
        rx, base = self.rx, control.payload
        if not -0x8000 <= diff32(base, rx.cack) <= 0x7FFF:
            base = rx.sack_track
        self.counters.ack_tx += 1
        self.ack_gen_count = 0
        self._emit_ack(
            NextHdr.NONE, b"", datagram.ecn_marked, 0, AckReq.NONE, rx.cack, control.opaque,
            None if self.config.ack_cc == "never" else base, datagram.entropy, TrafficClass.CONTROL,
        )  # fmt: skip

    # CREDIT, CREDIT_REQ: no rate control follows yet

    def send_credit(self, ctl_type: CtlType, amount: int, now: int) -> None:
        """CREDIT, or CREDIT_REQ with a credit target."""
        self._send_control(ctl_type, 0, 0, amount & _CREDIT_MASK, 0)

    def take_credit(self, control: Control, datagram: Datagram, now: int) -> None:
        """CREDIT is told to whoever drives the engine."""
        self.owner.tell(Credited(self.peer, self.local_id, control.payload & _CREDIT_MASK))

    def answer_credit_req(self, control: Control, datagram: Datagram, now: int) -> None:
        """CREDIT_REQ: all that was asked for is granted."""
        self._send_control(CtlType.CREDIT, 0, 0, control.payload & _CREDIT_MASK, 0, datagram.entropy)
