"""One packet delivery context: the actions of the tables in `states`, both roles (pds.md §5–§14).

A PDC has a source half (`tx`, `retransmit.Sender`) and a destination half (`rx`, `psn_window.PsnWindow`), one for
each direction in which it takes part: an initiator sends forward and receives return packets, a target the reverse.
Every event enters by `step`; what is due because of progress (all acknowledged, drained) follows in `settle`.
"""

from typing import Any, NamedTuple, cast

from uetproto.engine.contract import NEVER, Datagram, PdcErrorReason, PdsError
from uetproto.engine.pds.messages import Ack, Control, Nack, Request, build_ack, build_ack_epsn
from uetproto.engine.pds.nacks import FATAL_CODES, NACKS
from uetproto.engine.pds.pdc_base import Owner, Row
from uetproto.engine.pds.pdc_control import PdcControl
from uetproto.engine.pds.psn_window import CLOSING, PsnWindow, Verdict
from uetproto.engine.pds.service import Locking
from uetproto.engine.pds.states import STATES, Input, Role, State, row
from uetproto.wire.headers.uet_pds import AckReq, CtlType, NackCode, NextHdr, PdsType

_M32 = 0xFFFFFFFF


_REFUSED = 8
"""Refused Start_PSNs that a target remembers: each costs the initiator another flight."""


class Pdc(PdcControl):
    """One end of a PDC: both halves, the start, the timers, the close."""

    __slots__ = ()

    def settle(self, now: int) -> None:
        """Progress that closes the PDC, step by step (pds.md §6.4, §6.5)."""
        while True:
            before = self.state
            if self.role is Role.INITIATOR:
                if before is State.QUIESCE and self.open_message is None and not self.locks and not self.cps:
                    self.step(Input.MESSAGES_DONE, now)
                elif before is State.ACK_WAIT and not self.tx.records and self.tx.room():
                    self.step(Input.ALL_ACKED, now)
                elif before is State.CLOSE_ACK_WAIT and not self.tx.records:
                    self.step(Input.CLOSE_ACKED, now)
            elif before is State.ACK_WAIT and not self._sends and self._forward_complete():
                self.step(Input.DRAINED, now)
            if self.state is before:
                return

    @property
    def _sends(self) -> bool:
        """Something is to be sent, or not acknowledged."""
        return bool(self.tx.records or self.queue or self.cps) or self.open_message is not None

    @property
    def _returns(self) -> bool:
        """Return data is to be sent, or not acknowledged; a CLOSE_REQ is none."""
        unacked = any(record.message is not None for record in self.tx.records.values())
        return unacked or bool(self.queue) or self.open_message is not None

    def _forward_complete(self) -> bool:
        return self.close_psn is not None and self.rx.cack == (self.close_psn - 1) & _M32

    # Time

    def on_time(self, now: int) -> None:
        """Runs every timer that is due, but for a CLEAR: that leaves in `pump`, if no request carries it."""
        for record in self.tx.expired(now):
            if self.tx.may_repeat(record.rto_cnt):
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
        if self.pending_at <= now:
            self.pending_at = NEVER
            self.step(Input.NEW_PDC_TIME, now)
        if self.probe_at <= now:
            self.probe_at = NEVER
            self.step(Input.PROBE_TIME, now)
        if self.idle_wake <= now:
            over = self.touched + self.idle_time
            self.idle_wake = over if over > now else NEVER
            if over <= now:
                self.step(Input.IDLE, now)
                self._watch_idle(now)

    # Secure start (pds.md §6.6)

    def renumber(self, nack: Nack, datagram: Datagram, now: int) -> None:
        """Initiator: the target demands another Start_PSN; all moves there and is sent again, for the first time.

        What asks for the present one says nothing new, whatever packet it is about. Else a NACK about another PSN than
        those from Start_PSN on is late: of another PDC that had the PDCID before, or about a Start_PSN that was left
        since. What the target demands now, it says about the present one.
        """
        delta = (nack.payload - self.tx.start) & _M32
        if not delta:
            return
        if (nack.psn - self.tx.start) & _M32 >= (self.tx.next - self.tx.start) & _M32:
            self.counters.bad_nack += 1
            return
        self._learn(nack.spdcid)
        for record in self.tx.renumber(delta, now):
            if record.message is not None and record.message.lock and not record.index:
                cast(Locking, record.message).began(self, record.psn)
            if record.ctl_type is not None:
                self._send_control(record.ctl_type, record.psn, 1, record.index, 0)
            else:
                self._emit_request(record, 0, record.ar, record.clear_psn)
        self.rx = PsnWindow(self.tx.start, self.config.mp_range, self.rx.rod)
        for name in ("clear_sent", "clear_wanted", "message_clear"):
            setattr(self, name, (getattr(self, name) + delta) & _M32)
        self.owner.wake(self, self.deadline())

    def pend(self, packet: Request | Control, datagram: Datagram, demanded: int, now: int) -> None:
        """Target: PENDING from its first packet on, for New_PDC_Time."""
        self.enter(State.PENDING)
        self.demanded = demanded
        self.pending_at = now + self.config.new_pdc_time
        self.idle_wake = NEVER
        self.owner.wake(self, self.pending_at)
        self.demand_start(packet, datagram, now)

    def demand_start(self, packet: Request | Control, datagram: Datagram, now: int) -> None:
        """NACK NEW_START_PSN, for each packet that does not begin where it should; nothing is delivered."""
        if packet.start_psn not in self.refused_starts:
            self.refused_starts = (*self.refused_starts[1 - _REFUSED :], packet.start_psn)
        nameless = self.config.new_start_spdcid == "zero"
        self._nack(NackCode.NEW_START_PSN, packet, datagram, self.demanded, nameless=nameless)

    def confirm(self, packet: Request | Control, datagram: Datagram, now: int) -> None:
        """The initiator follows: both spaces begin here, and the packet is handled as one of an ESTABLISHED PDC."""
        self.pending_at = NEVER
        self.begin(packet.start_psn, packet.start_psn)
        self.owner.opened(self)
        if isinstance(packet, Request):
            self.take_request(packet, datagram, now)
        else:
            self.take_psn_cp(packet, datagram, now)

    def refuse_gap(self, packet: Request | Control, datagram: Datagram, now: int) -> None:
        """PENDING, ROD: the Start_PSN is good, but it takes its own packet to confirm it (pds.md §6.2 item 7)."""
        self._nack(NackCode.ROD_OOO, packet, datagram, packet.start_psn)

    def give_up_pending(self, now: int) -> None:
        """New_PDC_Time is over: frees the PDC, counts, reports."""
        self.owner.pending_timeout()
        self._end(None)

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

    def keep_alive(self, now: int) -> None:
        """Closing, but a read holds the PDC, and nobody speaks: NOOP asks whether the target still has it (pds.md §13).

        If not, the data never comes (pds.md §10). The next one waits for the RTO of this one, if the idle time is less.
        """
        if self.locks and not self.tx.records and not self.cps:
            self.queue_cp(CtlType.NOOP, 0, now)
        self.idle_wake = now + max(self.idle_time, self.config.rto_init_time)
        self.owner.wake(self, self.idle_wake)

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
        self._send_psn_cp(CtlType.CLOSE_CMD, 0, now)
        self.clear_at = NEVER  # CLOSE_CMD clears everything below it

    def ask_close(self, now: int) -> None:
        """Target: CLOSE_REQ asks the initiator to close; waits for Close_REQ_Time."""
        self.close_at = now + self.config.close_req_time
        self.owner.wake(self, self.close_at)
        self.queue_cp(CtlType.CLOSE_REQ, 0, now)

    def take_close(self, control: Control, datagram: Datagram, now: int) -> bool:
        """CLOSE_CMD: clears all forward PSNs below it; complete, and acknowledged, when the PDC is drained."""
        psn = control.psn
        self._clear((psn - 1) & _M32)
        if self.rx.classify(psn) is not Verdict.NEW:
            return self._not_new(control, datagram, now, NextHdr.NONE)
        if self.config.close_drain == "error" and self._returns:
            self._nack(NackCode.CLOSING_IN_ERR, control, datagram)
            self._end(PdsError(PdcErrorReason.CLOSE_TIMEOUT))
            return True
        self.rx.take(psn, CLOSING)
        self.close_psn = psn
        self.close_at = NEVER
        self.closing_ack = (datagram.ecn_marked, control.retx, datagram.entropy)
        return True

    def finish_close(self, now: int) -> None:
        """Drained: the ACK of CLOSE_CMD (pds.md §6.5), which may tell the Expected_PSN that the close left behind."""
        old = self.tombstone(True)
        self.free(now)
        message, header = old.closing_ack(self.owner, *self.closing_ack[:2])
        self._put(header, self.closing_ack[2], message)
        self.counters.ack_tx += 1

    def tombstone(self, drained: bool) -> "Tombstone":
        """What is kept of the PDC when it is gone; after an error no CLOSE_CMD is acknowledged any more."""
        close_psn = self.close_psn if drained else None
        return Tombstone(self.local_id, self.peer, self.peer_id, self.rx.start, close_psn)

    def free(self, *_: Any) -> None:
        """Ends without error; every request of SES was acknowledged before."""
        self._end(None)

    def fail_by_nack(self, nack: Nack, datagram: Datagram, now: int) -> None:
        """A NACK of class FATAL ends the PDC in error (pds.md §6.7)."""
        self._end(PdsError(PdcErrorReason.NACK_FATAL, nack.code, NACKS[nack.code].retryable))

    def fail_exhausted(self, reason: PdcErrorReason, now: int) -> None:
        """The retransmission budget of a packet is used up: ends in error."""
        self._end(PdsError(reason))

    def fail_closing(self, *why: Any) -> None:
        """Target: the close does not come to its end; NACK CLOSING_IN_ERR tells the initiator."""
        reason = why[0] if isinstance(why[0], PdcErrorReason) else PdcErrorReason.CLOSE_TIMEOUT
        self._put_nack(NackCode.CLOSING_IN_ERR, 0, 0, self.rx.max_rcvd, self.local_id, self.peer_id, 0, self.entropy)
        self._end(PdsError(reason))

    def _end(self, error: PdsError | None) -> None:
        """CLOSED: no timer stays armed; one error for each un-ACKed packet of SES (pds.md §6.7)."""
        self.enter(State.CLOSED)
        self.clear_at = self.stored_at = self.close_at = self.idle_wake = self.unblock_at = NEVER
        self.pending_at = self.probe_at = NEVER
        self.clear_owed = False
        self.cps = self.probe = self._held = None
        self.rx.forget()
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


class Tombstone(NamedTuple):
    """What is kept of a closed PDC for MSL: late copies of its packets must not open another one (pds.md §6.2 item 9),
    and a CLOSE_CMD whose ACK got lost is answered again (§20 row 17)."""

    local_id: int
    peer: int
    peer_id: int
    start: int
    """Start_PSN of the forward space."""
    close_psn: int | None

    def closing_ack(self, owner: Owner, marked: int, retx: int) -> tuple[Ack | None, bytes]:
        """The ACK of the CLOSE_CMD, as an object or as bytes (pds.md §6.5, observed.md `closing_ack`)."""
        assert self.close_psn is not None
        config = owner.config
        offset = 0 if config.closing_ack == "at_close_psn" else 1
        copied = retx if config.ack_copies_retx else 0
        cack, local, peer = (self.close_psn - offset) & _M32, self.local_id, self.peer_id
        policy = owner.start_policy if config.closing_ack_epsn else None
        expected = None if policy is None else policy.expected
        if owner.objects:
            return Ack(
                PdsType.ACK, NextHdr.NONE, marked, copied, AckReq.NONE, self.close_psn, None, cack, local, peer, 0,
                cack, 0, 0, expected,
            ), b""  # fmt: skip
        if expected is not None:
            return None, build_ack_epsn(marked, copied, offset, cack, local, peer, expected)
        return None, build_ack(NextHdr.NONE, marked, copied, AckReq.NONE, offset, cack, local, peer)


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
        return Input.NEW_START if nack.code == NackCode.NEW_START_PSN else Input.NACK
    tx = pdc.tx
    return Input.NACK_FATAL if (nack.psn + 1 - tx.start) & _M32 <= (tx.next - tx.start) & _M32 else None
