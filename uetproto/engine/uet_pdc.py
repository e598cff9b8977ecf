"""One packet delivery context: the actions of the tables in `states`, both roles (pds.md §5–§14).

A PDC has a source half (`tx`, `retransmit.Sender`) and a destination half (`rx`, `psn_window.PsnWindow`), one for
each direction in which it takes part: an initiator sends forward and receives return packets, a target the reverse.
Every event enters by `step`; what is due because of progress (all acknowledged, drained) follows in `settle`.
"""

from typing import Any

from uetproto.engine.contract import NEVER, Datagram, PdcErrorReason, PdsError
from uetproto.engine.messages import Control, Nack, Request, build_ack, build_nack
from uetproto.engine.nacks import FATAL_CODES, NACKS
from uetproto.engine.pdc_base import Row
from uetproto.engine.pdc_destination import PdcDestination
from uetproto.engine.pdc_source import PdcSource
from uetproto.engine.psn_window import CLOSING, Verdict
from uetproto.engine.states import STATES, Input, Role, State, row
from uetproto.wire.uet_pds import AckReq, CtlType, NackCode, NextHdr

_M32 = 0xFFFFFFFF


class Pdc(PdcSource, PdcDestination):
    """One end of a PDC: both halves, the timers, the close."""

    __slots__ = ()

    def settle(self, now: int) -> None:
        """Progress that closes the PDC, step by step (pds.md §6.4, §6.5)."""
        while True:
            before = self.state
            if self.role is Role.INITIATOR:
                if before is State.QUIESCE and self.open_message is None:
                    self.step(Input.MESSAGES_DONE, now)
                elif before is State.ACK_WAIT and not self.tx.records:
                    self.step(Input.ALL_ACKED, now)
                elif before is State.CLOSE_ACK_WAIT and not self.tx.records:
                    self.step(Input.CLOSE_ACKED, now)
            elif before is State.ACK_WAIT and not self.tx.records and self._forward_complete():
                self.step(Input.DRAINED, now)
            if self.state is before:
                return

    def _forward_complete(self) -> bool:
        return self.close_psn is not None and self.rx.cack == (self.close_psn - 1) & _M32

    # Time

    def on_time(self, now: int) -> None:
        """Runs every timer that is due, but for a CLEAR: that leaves in `pump`, if no request carries it."""
        for record in self.tx.expired(now):
            if self.tx.may_repeat(record):
                self.step(Input.RTO, record, now)
            else:
                self.step(Input.EXHAUSTED, PdcErrorReason.RTO_EXHAUSTED, now)
                return
        for record in self.tx.paused(now):
            if record.rto_at == NEVER:  # else ROD has resent it with one before it
                self.step(Input.RETX_TIME, record, now)
        if self.stored_at <= now:
            self.stored_at = NEVER
            self.step(Input.STORED_TIME, now)
        if self.close_at <= now:
            self.close_at = NEVER
            self.step(Input.CLOSE_REQ_TIME, now)
        if self.idle_wake <= now:
            time = self.config.idle_time
            idle = self.touched + time <= now
            self.idle_wake = (now if idle else self.touched) + time
            if idle:
                self.step(Input.IDLE, now)

    # Close (pds.md §6.4, §6.5)

    def remember_close(self, now: int) -> None:
        """The wish to close is known already, or is acted on when the PDC is established."""
        self.close_req = True

    def quiesce(self, now: int) -> None:
        """No new message starts here; what is queued goes to another PDC."""
        self.close_req = True
        messages = list(self.queue)
        self.queue.clear()
        self.owner.rebind(messages, now)

    def take_close_req(self, control: Control, datagram: Datagram, now: int) -> bool:
        """CLOSE_REQ is acknowledged first, then the PDC closes (pds.md §6.4)."""
        taken = self.take_psn_cp(control, datagram, now)
        if taken:
            self.quiesce(now)
        return taken

    def begin_close(self, now: int) -> None:
        """Closing: waits until all is acknowledged."""
        self.close_req = False

    def send_close(self, now: int) -> None:
        """CLOSE_CMD, with the next PSN."""
        self._send_psn_cp(CtlType.CLOSE_CMD, now)
        self.clear_at = NEVER  # CLOSE_CMD clears everything below it

    def send_close_req(self, now: int) -> None:
        """Target: asks the initiator to close, and waits for Close_REQ_Time."""
        self.close_at = now + self.config.close_req_time
        self._send_psn_cp(CtlType.CLOSE_REQ, now)

    def take_close(self, control: Control, datagram: Datagram, now: int) -> bool:
        """CLOSE_CMD: clears all forward PSNs below it; complete, and acknowledged, when the PDC is drained."""
        psn = control.psn
        self._clear((psn - 1) & _M32)
        if self.rx.classify(psn) is not Verdict.NEW:
            return self._not_new(control, datagram, NextHdr.NONE)
        self.rx.take(psn, CLOSING)
        self.close_psn = psn
        self.close_at = NEVER
        self.closing_ack = (datagram.ecn_marked, control.retx, datagram.entropy)
        return True

    def finish_close(self, now: int) -> None:
        """Drained: the ACK of CLOSE_CMD (pds.md §6.5, observed.md `closing_ack`)."""
        self._put(self.closing_header(self.closing_ack[1]), self.closing_ack[2])
        self.counters.ack_tx += 1
        self.free(now)

    def closing_header(self, retx: int) -> bytes:
        """The closing ACK; a tombstone repeats it."""
        assert self.close_psn is not None
        offset = 0 if self.config.closing_ack == "at_close_psn" else 1
        copied = retx if self.config.ack_copies_retx else 0
        cack = (self.close_psn - offset) & _M32
        return build_ack(
            NextHdr.NONE, self.closing_ack[0], copied, AckReq.NONE, offset, cack, self.local_id, self.peer_id
        )

    def free(self, *_: Any) -> None:
        """Ends without error; every request of SES was acknowledged before."""
        self._end(None)

    def fail_by_nack(self, nack: Nack, datagram: Datagram, now: int) -> None:
        """A NACK of class FATAL ends the PDC in error (pds.md §6.7)."""
        self._end(PdsError(PdcErrorReason.NACK_FATAL, nack.code, NACKS[nack.code].retryable))

    def fail_exhausted(self, reason: PdcErrorReason, now: int) -> None:
        """The retransmission budget of a packet is used up: ends in error."""
        self._end(PdsError(reason))

    def fail_closing(self, *_: Any) -> None:
        """Target: the close does not come to its end; NACK CLOSING_IN_ERR tells the initiator."""
        header = build_nack(NackCode.CLOSING_IN_ERR, 0, 0, self.rx.max_rcvd, self.local_id, self.peer_id)
        self._put(header, self.entropy)
        nack_tx = self.owner.nack_tx
        nack_tx[NackCode.CLOSING_IN_ERR] = nack_tx.get(NackCode.CLOSING_IN_ERR, 0) + 1
        self._end(PdsError(PdcErrorReason.CLOSE_TIMEOUT))

    def _end(self, error: PdsError | None) -> None:
        """CLOSED: no timer stays armed; one error for each un-ACKed packet of SES (pds.md §6.7)."""
        self.enter(State.CLOSED)
        self.clear_at = self.stored_at = self.close_at = self.idle_wake = self.unblock_at = NEVER
        self.clear_owed = False
        self.rx.forget()
        self._held.clear()
        records = self.tx.drop_all()
        if error is not None:
            self.counters.pdc_close_in_err += 1
            for record in records:
                if record.message is not None:
                    self.user.on_error(record.message, record.index, error)
            if self.open_message is not None:
                self.user.on_error(self.open_message, -1, error)
                self.open_message = None
            for message in self.queue:
                self.user.on_error(message, -1, error)
            self.queue.clear()
        self.owner.released(self, error)

    # Default rows

    def ignore(self, *_: Any) -> None:
        """Nothing to do."""

    def drop(self, *_: Any) -> bool:
        """Not possible in this state: dropped, counted."""
        self.counters.unexpected += 1
        return False

    def refuse_unexpected(self, packet: Request | Control, datagram: Datagram, now: int) -> bool:
        """Not possible in this state: NACK UNEXP_EVENT; a control packet without ar is dropped (pds.md §13)."""
        self.counters.unexpected += 1
        if packet.ar or isinstance(packet, Request):
            self._nack(NackCode.UNEXP_EVENT, packet, datagram)
        return False


def _compile(role: Role) -> dict[State, list[Row]]:
    """The table of a role with methods in place of names, one list a state, indexed by input."""
    compiled: dict[State, list[Row]] = {}
    for state in STATES[role]:
        rows: list[Row] = []
        for event in Input:
            found = row(role, state, event)
            rows.append((getattr(Pdc, found[0]), found[1]) if found is not None else None)
        compiled[state] = rows
    return compiled


Pdc.compiled = {role: _compile(role) for role in (Role.INITIATOR, Role.TARGET)}


def nack_event(pdc: Pdc, nack: Nack) -> Input | None:
    """Input that a NACK is to this PDC; None: a fatal code for a PSN never sent, not to be believed (pds.md §12).

    Acknowledged PSNs count as sent here; a target that gives up names the last PSN it has, which may be Start_PSN − 1.
    """
    if nack.code not in FATAL_CODES:
        return Input.NACK
    tx = pdc.tx
    return Input.NACK_FATAL if (nack.psn + 1 - tx.start) & _M32 <= (tx.next - tx.start) & _M32 else None
