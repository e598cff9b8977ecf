# SPDX-License-Identifier: GPL-2.0-only
"""The packet delivery sublayer (PDS) of a fabric endpoint opens and releases PDCs, and finds the PDC of a packet or of
a message.

Received packets are checked in the order of pds.md §6.3 (UE 1.0.1 §3.5.8.2, §3.5.9.2); a packet without a PDC is an
input of the table `states.CLOSED`, every other packet is an input of the table of its PDC. SES is the `user`
(`service.PdsUser`); tests may pass another user.
"""

from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, get_args

from uetproto.engine.config import PdsConfig
from uetproto.engine.contract import (
    NEVER,
    PDC_MODES,
    AskClose,
    AskCredit,
    Buffer,
    Close,
    CongestionContext,
    CongestionManager,
    Datagram,
    Event,
    GiveCredit,
    Mode,
    Negotiate,
    NewPdcTimeouts,
    Noop,
    Paused,
    PdcClosed,
    PdcErrorReason,
    PdcOpened,
    PdsError,
    PdsWork,
    Probe,
    Rng,
    TrafficClass,
    Trim,
)  # fmt: skip
from uetproto.engine.pds import actions as _compiled  # noqa: F401 - compiles the tables of PDCs
from uetproto.engine.pds.congestion import offer, paced_at, run_congestion
from uetproto.engine.pds.lifecycle import nack_event, pend, run_timers, settle
from uetproto.engine.pds.messages import Ack, Control, Message, Nack, Request, Rudi, Uud, parse
from uetproto.engine.pds.pdc import Pdc
from uetproto.engine.pds.pdc_pool import PdcPool, Preset, is_sender
from uetproto.engine.pds.rudi_uud import Exchange, RudiUud
from uetproto.engine.pds.secure_start import StartPolicy
from uetproto.engine.pds.service import (
    ADDRESS_BITS,
    Connection,
    Counters,
    Outgoing,
    PdsUser,
    Response,
    check_endpoint,
    check_number,
)
from uetproto.engine.pds.source import pump
from uetproto.engine.pds.states import CLOSED, CONTROL_INPUTS, PACKETS, Input, Role, State
from uetproto.engine.pds.wakes import STALE, WakeQueue
from uetproto.engine.train_splits import TrainTally
from uetproto.errors import LocalError, RemoteError
from uetproto.wire.headers.uet_pds import CONTROLS, CpPsn, CtlType, NackCode

_M32 = 0xFFFFFFFF
# Looked up once: with every packet, Class.MEMBER would cost as much as a call.
_REQUEST, _ACK, _SEND = Input.REQUEST, Input.ACK, Input.SEND
_ESTABLISHED, _CREATING, _CLOSED = State.ESTABLISHED, State.CREATING, State.CLOSED
_OPENING = tuple(CONTROL_INPUTS[kind] for kind, control in CONTROLS.items() if control.opens)
"""The control packets that can open a PDC (pds.md §6.2 item 3)."""
_WITHOUT_PSN = frozenset(kind for kind, control in CONTROLS.items() if control.psn is CpPsn.NONE)
"""The control packets whose psn says nothing, such as CLEAR_CMD (pds.md §13)."""

_Key = tuple[Mode, int, int, bool]


_BITS = {"target": 24, "credit": 24, "features": 32}
"""Size in bits of each value that work passes to a control packet (pds.md §13)."""


def _check_mode(mode: object, legal: Iterable[Mode]) -> None:
    if not isinstance(mode, Mode) or mode not in legal:
        raise LocalError("mode", f"{mode!r} is not legal here", ", ".join(m.name for m in legal), id="not-with-mode")


def _check_response(response: object) -> None:
    if not isinstance(response, Response):
        raise LocalError("response", f"{response!r} is not legal", "a Response", id="wrong-type")


class Pds:
    """A `Pds` has the five calls of `contract.Engine`, and the calls of `service.PacketDelivery` for SES (pds.md
    §4)."""

    def __init__(
        self, address: int, config: PdsConfig, rng: Rng, user: PdsUser, ip_version: int = 4,
        events: list[Event] | None = None, objects: bool = False, pool: PdcPool | None = None,
        congestion: CongestionManager | None = None,
    ) -> None:  # fmt: skip
        """Make an endpoint, which adds its events to the list `events`, or to a new list if `events` is None.

        With `objects`, PDS headers are passed as objects (`Datagram.message`) and not as bytes, and nothing else
        changes. Without `congestion`, there is no congestion control. Raises `LocalError` for arguments that are not
        legal.
        """
        check_endpoint(address, ip_version, config)
        self.config = config
        self.congestion = congestion
        self._paced = congestion if congestion is not None and congestion.paces else None
        self.held: dict[CongestionContext, dict[Pdc, None]] = {}
        """PDCs whose congestion control context forbids to send, until its next event."""
        self.rng = rng
        self.pool = pool = pool or PdcPool(config, rng)
        self.pdcs = pool.pdcs
        """The open PDCs by local PDCID."""
        self.preset, self.reserve, self.release, self.learned = pool.preset, pool.reserve, pool.release, pool.learned
        self.address = address
        self.ip_version = ip_version
        self.addresses = 1 << ADDRESS_BITS[ip_version]
        """Number of addresses of the version of IP."""
        self.user = user
        self.objects = self.messages = objects
        """`messages`: whether `Datagram.message` is set, as the peer takes packets as they were sent."""
        self.counters = Counters()
        self.nack_tx: dict[int, int] = {}
        self.nack_rx: dict[int, int] = {}
        """Number of NACKs that were received for each code. `nack_tx` counts the NACKs that were sent."""
        self.out: list[Any] = []
        self.without_pdc = RudiUud(self)
        self._plain = False
        """Whether RUDI or UUD may have something to do."""
        self.trains = False  # whether packets are sent as trains where nothing distinguishes them
        self.tally = TrainTally()
        self.called = False
        """Whether the last `poll` may have called the user."""
        self._current: dict[_Key, Pdc] = {}
        """The PDC on which new messages of {mode, peer, context, reserved} start."""
        self._waiting: deque[tuple[int, Outgoing]] = deque()
        """Messages without a PDC, with the time when they fail."""
        self._active: dict[Pdc, None] = {}
        """PDCs that may have something to send."""
        self._wakes = WakeQueue()
        self._leaving: Pdc | None = None
        """The idle PDC that is being closed to make room for another one."""
        self._idle_seen = False
        """Whether a PDC may have become idle since the last search for one to close."""
        self._events: list[Event] = [] if events is None else events
        self._now = 0

    # Set-up by a harness

    def adopt(self, peer: int, mode: Mode, initiator: bool, preset: Preset, now: int = 0) -> Pdc:
        """Make an ESTABLISHED PDC with the numbers of `preset`, for tests. Raises `LocalError` when the PDCID is in
        use."""
        _check_mode(mode, PDC_MODES)
        local = self.pool.allocate(preset)
        forward, back = preset.forward_next, preset.return_next
        role, sends, receives = (Role.INITIATOR, forward, back) if initiator else (Role.TARGET, back, forward)
        pdc = Pdc(self, role, mode, peer, local, preset.peer_pdcid, sends, receives, now)
        pdc.enter(State.ESTABLISHED)
        pdc.ack_gen_count = preset.ack_gen_count
        if preset.start_psn is not None:
            pdc.tx.start = pdc.rx.start = preset.start_psn
        if initiator:
            self._current[pdc.key] = pdc
        self._register(pdc)
        return pdc

    # The five calls

    def submit(self, work: PdsWork, now: int) -> None:
        """Do work on PDCs, as the class of the work says (`contract.PdsWork`).

        Raises `LocalError` when the work names no open PDC, or when the state of the PDC does not allow the work.
        """
        if not isinstance(work, PdsWork):
            legal = ", ".join(kind.__name__ for kind in get_args(PdsWork))
            raise LocalError("work", f"{type(work).__name__} is not legal", legal, id="wrong-type")
        self._check(work)
        self.advance(now)
        if isinstance(work, Noop | Negotiate):
            self._submit_cp(work, now)
            return
        found = [
            p for p in self.pdcs.values()
            if (p.peer == work.peer and p.role is Role.INITIATOR and work.mode in (None, p.mode)
                and work.pdcid in (0, p.local_id) if isinstance(work, Close) else p.local_id == work.pdcid)
            and not (isinstance(work, AskClose) and p.role is not Role.TARGET)
        ]  # fmt: skip
        if not found:
            raise LocalError(f"{work}: no such PDC", id="unknown-pdc")
        for pdc in found:
            if isinstance(work, Probe):
                pdc.step(Input.SEND_PROBE, now)
            elif isinstance(work, AskCredit):
                pdc.step(Input.SEND_CREDIT, CtlType.CREDIT_REQ, work.target, now)
            elif isinstance(work, GiveCredit):
                pdc.step(Input.SEND_CREDIT, CtlType.CREDIT, work.credit, now)
            else:
                pdc.step(Input.CLOSE, now)
            self._after(pdc, now)

    def _check(self, work: PdsWork) -> None:
        for name, bits in _BITS.items():
            check_number(name, getattr(work, name, 0), 0, bits)
        check_number("peer", getattr(work, "peer", 1), 1, ADDRESS_BITS[self.ip_version])

    def _submit_cp(self, work: Noop | Negotiate, now: int) -> None:
        """Send NOOP or NEGOTIATION on a PDC of {mode, peer}, of either role, or on a new one."""
        _check_mode(work.mode, PDC_MODES)
        pdc = self._current.get((work.mode, work.peer, 0, False))
        if pdc is None or not pdc.allows(Input.SEND_CP):
            mine = (p for p in self.pdcs.values() if p.peer == work.peer and p.mode is work.mode)
            pdc = next((p for p in mine if p.allows(Input.SEND_CP)), None)
        if pdc is None:
            if not self.pool.has_room(False):
                raise LocalError(f"{work}: no PDC is free", id="resources-exhausted")
            pdc = self.open_initiator(work.peer, work.mode, now)
        if isinstance(work, Negotiate):
            pdc.step(Input.SEND_CP, CtlType.NEGOTIATION, work.features & _M32, now)
        else:
            pdc.step(Input.SEND_CP, CtlType.NOOP, 0, now)
        self._after(pdc, now)

    def send(self, message: Outgoing, now: int) -> None:
        """Queue a whole message (`ses_pds_tx_req`), whose packets are sent when the window permits.

        Raises `LocalError` for an illegal mode or peer address.
        """
        if not isinstance(message.mode, Mode):
            _check_mode(message.mode, Mode)
        if type(message.peer) is not int or not 0 < message.peer < self.addresses:
            check_number("peer", message.peer, 1, ADDRESS_BITS[self.ip_version])
        if now != self._now:
            self.advance(now)
        if message.mode not in PDC_MODES:
            self.without_pdc.send(message, now)
            self._plain = True
            return
        if self._waiting:
            self._run_waiting(now)  # earlier messages keep their place
        self._bind(message, now)

    def send_return(self, pdcid: int, message: Outgoing, now: int) -> None:
        """Queue read data on the return direction of the PDC on which the read request arrived (`ses_pds_tx_ret`,
        pds.md §10).

        Raises `LocalError` if this endpoint is not the target of the PDC. If the PDC was released, the message fails.
        """
        self.advance(now)
        pdc = self.pdcs.get(pdcid)
        if pdc is None:
            self.user.on_error(message, -1, PdsError(PdcErrorReason.PEER_CLOSED))
            return
        pdc.step(Input.RETURN, message, now)
        self._after(pdc, now)

    def unlock(self, pdcid: int, now: int) -> None:
        """Release a lock of a PDC (`ses_pds_unlock`, pds.md §4). A released PDC is ignored.

        Raises `LocalError` when the PDC has no lock.
        """
        self.advance(now)
        pdc = self.pdcs.get(pdcid)
        if pdc is not None:
            if not pdc.locks:
                raise LocalError(f"PDC {pdcid} is not locked", id="not-registered")
            pdc.locks -= 1
            self._after(pdc, now)

    def respond_late(self, connection: Connection, psn: int, response: Response, now: int) -> None:
        """Answer a packet for which `on_request` returned None. `connection` is the first argument of that call.

        Raises `LocalError` as `respond` does.
        """
        _check_response(response)
        if isinstance(connection, Exchange):
            self.advance(now)
            self.without_pdc.respond(connection, response, now)
        else:
            self.respond(connection.local_id, psn, response, now)

    def respond(self, pdcid: int, psn: int, response: Response, now: int) -> None:
        """Answer a packet for which `on_request` returned None (`ses_pds_tx_rsp`). A released PDC is ignored.

        Raises `LocalError` when the packet does not wait for a response, or when `response` is a `Refusal`, because a
        packet cannot be refused later.
        """
        _check_response(response)
        self.advance(now)
        pdc = self.pdcs.get(pdcid)
        if pdc is not None:
            pdc.step(Input.RESPOND, psn, response, now)
            self._after(pdc, now)

    def receive(self, packet: Datagram, now: int) -> None:
        """Check a packet from the network, with the checks of pds.md §6.3 in their order, and process the packet."""
        if now != self._now:
            self.advance(now)
        message: Message = packet.message
        if message is None:
            try:
                message = parse(packet.header, packet.trimmed)  # row 1
            except RemoteError:
                if packet.trimmed:
                    self.counters.trimmed_rx += 1
                else:
                    self.counters.undecodable += 1
                return
        kind = type(message)
        if kind is Request:
            self._receive_request(message, packet, now)  # type: ignore[arg-type]
        elif kind is Rudi or kind is Uud:
            self._receive_without_pdc(message, packet, now)  # type: ignore[arg-type]
        elif packet.trimmed:  # row 2
            self.counters.trimmed_rx += 1
        elif kind is Ack:
            self._receive_ack(message, packet, now)  # type: ignore[arg-type]
        elif kind is Control:
            self._receive_control(message, packet, now)  # type: ignore[arg-type]
        elif kind is Nack:
            self._receive_nack(message, packet, now)  # type: ignore[arg-type]

    def _receive_without_pdc(self, message: Rudi | Uud, packet: Datagram, now: int) -> None:
        if isinstance(message, Rudi) and message.response:
            self.without_pdc.receive_response(message, packet, now)
        else:
            self.without_pdc.receive_request(message, packet, now)

    def poll(self, now: int, limit: int = NEVER) -> list[Datagram]:
        """Run the timers that are due, then return the packets that the windows of the PDCs permit
        (`contract.Engine`)."""
        if now != self._now:
            self.advance(now)
        head = self._wakes.head
        rings = head is not None and head[0] <= now
        paced = self._paced is not None and paced_at(self._paced, self.held) <= now
        if not (rings or self._active or self._waiting or self._plain or paced):
            self.called = False
            if not self.out:
                return []
            sent, self.out = self.out, []
            return sent
        self.called = True
        rung = self._ring(now) if rings else ()
        if self._waiting:
            self._run_waiting(now)
        if self._plain:
            self.without_pdc.on_time(now)
            limit -= self.without_pdc.pump(now, limit)
            self._plain = not self.without_pdc.quiescent
        if paced and self._paced is not None:
            run_congestion(self, self._paced, now)
        if self._active:
            limit = self._pump(now, limit)
        if self._waiting and self._idle_seen:
            self._run_waiting(now)  # what was sent, such as a CLEAR, has left a PDC idle
            if self._active:
                self._pump(now, limit)
        for pdc in rung:
            if pdc.state is not _CLOSED:
                self.wake(pdc, max(pdc.deadline(), now + 1))
        sent, self.out = self.out, []
        return sent

    def _ring(self, now: int) -> list[Pdc]:
        """Run the timers that are due; return the PDCs that had one."""
        rung = []
        while (pdc := self._wakes.pop(now)) is not None:
            if pdc.quiescent and not self._waiting and (due := pdc.deadline()) > now:
                self.wake(pdc, due)  # the packet whose timer this was is acknowledged
                continue
            run_timers(pdc, now)
            self._after(pdc, now)
            rung.append(pdc)
        return rung

    def _pump(self, now: int, limit: int) -> int:
        """Let each active PDC send; those that may have more to send, but for `limit`, stay active. Return what is left
        of `limit`."""
        active = self._active
        turn = list(active)
        while turn:
            for pdc in turn:
                sent = pump(pdc, now, limit)
                limit -= sent
                if pdc.state is not _ESTABLISHED and pdc.state is not _CREATING:
                    self._after(pdc, now)
                elif self._waiting and pdc.idle:
                    self._idle_seen = True
                if sent or limit > 0:
                    active.pop(pdc, None)
                    if limit <= 0 and pdc.state is not _CLOSED:
                        active[pdc] = None  # it may have more to send, after all other PDCs
            # PDCs opened meanwhile: a PDC that reached its PSN limit has passed its messages to them.
            turn = [pdc for pdc in active if pdc not in turn] if active and limit > 0 else []
        return limit

    def deadline(self) -> int | None:
        """Return the earliest time at which a timer may expire, or None if no timer is armed (`contract.Engine`)."""
        at = self._wakes.deadline()
        if self._waiting and self._waiting[0][0] < at:
            at = self._waiting[0][0]
        if self._plain:
            at = min(at, self.without_pdc.deadline())
        if self._paced is not None:
            at = min(at, paced_at(self._paced, self.held))
        return at if at != NEVER else None

    def events(self) -> list[Event]:
        told = self._events
        if not told:
            return []
        events = told[:]
        told.clear()
        return events

    @property
    def start_policy(self) -> StartPolicy | None:
        """Return the policy of secure start (pds.md §6.6), or None if initiators choose the Start_PSN."""
        return self.pool.start_policy

    @property
    def expected_psn(self) -> int | None:
        """Return the Expected_PSN that must survive a restart of the endpoint, as `PdcPool.expected_psn` explains."""
        return self.pool.expected_psn

    @property
    def now(self) -> int:
        """Return the time of the last call, in picoseconds."""
        return self._now

    @property
    def quiescent(self) -> bool:
        """Return True when no packet is to be sent or answered. Idle timers may still be armed (pds.md §18 item 51)."""
        return (
            not self._waiting and not self.out and not self._plain
            and all(pdc.quiescent for pdc in self.pdcs.values())
        )  # fmt: skip

    # Receiving, after the common rows

    def _receive_request(self, request: Request, packet: Datagram, now: int) -> None:
        trimmed = packet.trimmed
        if trimmed:
            self.counters.trimmed_rx += 1
        if request.syn:
            pdc = self.pool.of_syn(packet.src, request.spdcid)
            if pdc is None:
                event = Input.TRIMMED if trimmed else self._syn_input(request, request.mode, packet)
                self._meet_closed(event, request, packet, now)
                return
            if pdc.state is State.PENDING:
                self._receive_pending(pdc, request, request.mode, packet, now)
                return
            if not self._syn_fits(pdc, request, packet):
                return
        else:
            pdc = self.pdcs.get(request.dpdcid)
            if pdc is None:  # row 11
                self._meet_closed(Input.TRIMMED if trimmed else Input.REQUEST, request, packet, now)
                return
            known = packet.src == pdc.peer and request.spdcid == pdc.peer_id != 0
            if not known and not is_sender(pdc, packet.src, request.spdcid):  # row 12
                self._refuse(NackCode.PDC_HDR_MISMATCH, request, packet)
                return
        if request.mode is not pdc.mode:  # row 13
            self._refuse(NackCode.PDC_MODE_MISMATCH, request, packet, pdc.local_id)
            return
        pdc.take(Input.TRIMMED if trimmed else _REQUEST, request, packet, now)
        self.received(pdc, now)

    def _receive_control(self, control: Control, packet: Datagram, now: int) -> None:
        event = CONTROL_INPUTS.get(control.ctl_type, Input.OTHER_CP)
        if control.syn:
            pdc = self.pool.of_syn(packet.src, control.spdcid)
            mode = Mode.ROD if control.isrod else Mode.RUD
            if pdc is None:
                opens = event in _OPENING  # row 5
                self._meet_closed(
                    self._syn_input(control, mode, packet) if opens else Input.SYN_CP, control, packet, now
                )
                return
            if pdc.state is State.PENDING and event in _OPENING:
                self._receive_pending(pdc, control, mode, packet, now)
                return
            if not self._syn_fits(pdc, control, packet):
                return
        else:
            pdc = self.pdcs.get(control.dpdcid)
            if pdc is None:
                if event is Input.CLOSE_CMD and self.pool.tombstone(control, packet.src) is not None:
                    event = Input.OLD_CLOSE_CMD
                self._meet_closed(event, control, packet, now)
                return
            if not is_sender(pdc, packet.src, control.spdcid):
                self._refuse(NackCode.PDC_HDR_MISMATCH, control, packet)
                return
        if self.config.cp_mode_check and bool(control.isrod) != (pdc.mode is Mode.ROD):
            self._refuse(NackCode.PDC_MODE_MISMATCH, control, packet, pdc.local_id)
            return
        pdc.take(event, control, packet, now)
        self.received(pdc, now)

    def _receive_ack(self, ack: Ack, packet: Datagram, now: int) -> None:
        pdc = self.pdcs.get(ack.dpdcid)
        if pdc is None:
            self._meet_closed(Input.ACK, ack, packet, now)
        elif (
            not (packet.src == pdc.peer and ack.spdcid == pdc.peer_id != 0)
            and not is_sender(pdc, packet.src, ack.spdcid)
        ):  # row 3  # fmt: skip
            self.counters.bad_ack += 1
        else:
            pdc.take(_ACK, ack, packet, now)
            self.received(pdc, now)

    def _receive_nack(self, nack: Nack, packet: Datagram, now: int) -> None:
        self.nack_rx[nack.code] = self.nack_rx.get(nack.code, 0) + 1
        if nack.rudi:
            self.without_pdc.receive_nack(nack, packet, now)
            return
        pdc = self.pdcs.get(nack.dpdcid)
        if pdc is None:
            self._meet_closed(Input.NACK, nack, packet, now)
            return
        event = nack_event(pdc, nack)
        if event is None or packet.src != pdc.peer or (nack.spdcid and not is_sender(pdc, packet.src, nack.spdcid)):
            self.counters.bad_nack += 1
            return
        pdc.take(event, nack, packet, now)
        self.received(pdc, now)

    def _syn_fits(self, pdc: Pdc, packet: Request | Control, datagram: Datagram) -> bool:
        """Apply rows 9 and 10 of pds.md §6.3 to a SYN packet of a known PDC; return False if it is refused or dropped.

        Only an initiator sends syn, and always with the same Start_PSN. A control packet without a PSN (CLEAR_CMD,
        CREDIT, …) tells no Start_PSN.
        """
        tells_none = isinstance(packet, Control) and packet.ctl_type in _WITHOUT_PSN
        wrong_start = packet.start_psn != pdc.rx.start and not tells_none
        if wrong_start and packet.start_psn in pdc.refused_starts:
            self.counters.unexpected += 1  # a late packet with a Start_PSN that was refused before
            return False
        if pdc.role is Role.INITIATOR or wrong_start:
            self._refuse(NackCode.INVALID_SYN, packet, datagram, pdc.local_id)
            return False
        return True

    def _syn_input(self, packet: Request | Control, mode: Mode, datagram: Datagram) -> Input:
        """Return the input of `states.CLOSED` for a packet with syn (pds.md §6.2 item 9, §6.3 rows 6 to 8)."""
        if (datagram.src, packet.spdcid, packet.start_psn) in self.pool.tombstones:
            return Input.SYN_OLD
        if not self.pool.has_room(bool(packet.reserved)):
            return Input.SYN_NO_PDC
        if len(self.pool.cccs) >= self.config.max_cccs and datagram.src not in self.pool.cccs:
            return Input.SYN_NO_CCC
        if self.pool.targets >= self.config.max_bitmaps:
            return Input.SYN_NO_BITMAP
        if self.start_policy is not None and self.start_policy.demand(packet.start_psn) is not None:
            return Input.SYN_INSECURE
        return Input.SYN_GAP if self._leaves_gap(packet, mode) else Input.SYN

    def _leaves_gap(self, packet: Request | Control, mode: Mode) -> bool:
        """Return whether a SYN packet cannot open a PDC, as the packets before it are missing (pds.md §6.2 item 7)."""
        return mode is Mode.ROD and packet.psn != packet.start_psn and not self.config.keeps_gaps

    def _receive_pending(self, pdc: Pdc, packet: Request | Control, mode: Mode, datagram: Datagram, now: int) -> None:
        """Process a packet with syn for a PDC in PENDING, which waits for another Start_PSN (pds.md §6.5)."""
        assert self.start_policy is not None
        event = Input.CONFIRM
        if datagram.trimmed:
            event = Input.TRIMMED
        elif not self.start_policy.confirms(packet.start_psn, pdc.demanded):
            event = Input.OTHER_START
        elif mode is not pdc.mode:
            # The peer has used the PDCID again, in another mode; its retransmission opens a PDC after New_PDC_Time.
            self.counters.unexpected += 1
            return
        elif self._leaves_gap(packet, mode):
            event = Input.SYN_GAP
        pdc.step(event, packet, datagram, now)
        self.received(pdc, now)

    # Actions of the table CLOSED

    def _meet_closed(self, event: Input, packet: Any, datagram: Datagram, now: int) -> None:
        CLOSED_ACTIONS[event](self, packet, datagram, now)

    def drop(self, packet: Any, datagram: Datagram, now: int) -> None:
        """Drop and count a packet that belongs to no PDC."""
        self.counters.no_pdc += 1

    def refuse_unknown(self, packet: Request | Control, datagram: Datagram, now: int) -> None:
        """Send NACK INV_DPDCID (pds.md §6.3 row 11)."""
        self.counters.no_pdc += 1
        self._refuse(NackCode.INV_DPDCID, packet, datagram)

    def refuse_unknown_cp(self, packet: Control, datagram: Datagram, now: int) -> None:
        """Send NACK INV_DPDCID for a control packet with ar = 1, and drop any other control packet (pds.md §13)."""
        self.counters.no_pdc += 1
        if packet.ar:
            self._refuse(NackCode.INV_DPDCID, packet, datagram)

    def refuse_gap(self, packet: Request | Control, datagram: Datagram, now: int) -> None:
        """Send NACK ROD_OOO, which asks for the packet with Start_PSN. No PDC is created (pds.md §6.2 item 7)."""
        self._refuse(NackCode.ROD_OOO, packet, datagram, 0, packet.start_psn)

    def refuse_no_pdc(self, packet: Request | Control, datagram: Datagram, now: int) -> None:
        """Send NACK NO_PDC_AVAIL (pds.md §6.3 row 6), and close an idle PDC to make room for the retransmission."""
        self._refuse(NackCode.NO_PDC_AVAIL, packet, datagram)
        if not packet.reserved:
            self._make_room(None, now)

    def refuse_no_ccc(self, packet: Request | Control, datagram: Datagram, now: int) -> None:
        """Send NACK NO_CCC_AVAIL (pds.md §6.3 row 6)."""
        self._refuse(NackCode.NO_CCC_AVAIL, packet, datagram)

    def refuse_no_bitmap(self, packet: Request | Control, datagram: Datagram, now: int) -> None:
        """Send NACK NO_BITMAP (pds.md §6.3 row 6)."""
        self._refuse(NackCode.NO_BITMAP, packet, datagram)

    def repeat_closing_ack(self, packet: Control, datagram: Datagram, now: int) -> None:
        """Send the ACK of a CLOSE_CMD again (pds.md §20 row 17)."""
        old = self.pool.tombstone(packet, datagram.src)
        assert old is not None
        old.send_closing_ack(self, datagram.ecn_marked, packet.retx, datagram.entropy)

    def open_target(self, packet: Request | Control, datagram: Datagram, now: int) -> None:
        """Create a PDC whose target is this endpoint, and process the packet (pds.md §6.2 item 3)."""
        pdc = self._make_target(packet, datagram, now)
        event = Input.REQUEST if isinstance(packet, Request) else CONTROL_INPUTS[packet.ctl_type]
        pdc.step(event, packet, datagram, now)
        self.received(pdc, now)

    def open_pending(self, packet: Request | Control, datagram: Datagram, now: int) -> None:
        """Create a PDC in PENDING whose target is this endpoint, and demand another Start_PSN (pds.md §6.6)."""
        assert self.start_policy is not None
        demanded = self.start_policy.demand(packet.start_psn)
        assert demanded is not None
        pend(self._make_target(packet, datagram, now, pending=True), packet, datagram, demanded, now)

    def _make_target(self, packet: Request | Control, datagram: Datagram, now: int, *, pending: bool = False) -> Pdc:
        mode = packet.mode if isinstance(packet, Request) else (Mode.ROD if packet.isrod else Mode.RUD)
        local = self.pool.allocate(self.pool.presets.popleft() if self.pool.presets else Preset())
        start = packet.start_psn
        pdc = Pdc(
            self, Role.TARGET, mode, datagram.src, local, packet.spdcid, start, start, now,
            reserved=bool(packet.reserved),
        )  # fmt: skip
        self._register(pdc, pending=pending)
        return pdc

    def open_reserved(
        self, pdcid: int, peer: int, mode: Mode, context: int, now: int, entropy: int | None = None
    ) -> None:  # fmt: skip
        """Open a PDC with the reserved PDCID `pdcid` for the reserved messages of {mode, peer, context}.

        The PDC is not closed when it is idle, but only by the caller. If `entropy` is given, all requests of the PDC
        have this entropy value, and otherwise the PDC chooses its entropy values. Raises `LocalError` if the PDCID is
        not reserved or is in use.
        """
        if pdcid not in self.pool.spare:
            raise LocalError("pdcid", f"{pdcid!r} is not legal", "a reserved one that no PDC has", id="already-there")
        self.advance(now)
        pdc = self.open_initiator(peer, mode, now, context, True, Preset(pdcid=pdcid))
        pdc.idle_time, pdc.idle_wake = 0, NEVER
        if entropy is not None:
            pdc.entropy, pdc.paths = entropy, 1

    def open_initiator(
        self, peer: int, mode: Mode, now: int, context: int = 0, reserved: bool = False, preset: Preset | None = None
    ) -> Pdc:
        """Open a PDC whose initiator is this endpoint (pds.md §6.2 item 1).

        PDCID and Start_PSN are those of the preset. If the preset has none, this method chooses them. The next poll
        sends the first packets.
        """
        if preset is None:
            preset = self.pool.presets.popleft() if self.pool.presets else Preset()
        local = self.pool.allocate(preset)
        start = preset.start_psn
        if start is None and self.start_policy is not None:
            start = self.start_policy.first()
        if start is None:
            start = self.pool.draw_start(local)
        pdc = Pdc(self, Role.INITIATOR, mode, peer, local, 0, start, start, now, context=context, reserved=reserved)
        self._current[pdc.key] = pdc
        self._register(pdc)
        self._make_room(pdc, now)
        return pdc

    # PDCs

    def _make_room(self, new: Pdc | None, now: int) -> None:
        """Close the PDC that is idle longest if fewer PDCs than Close_Thresh are free; one closes at a time (pds.md
        §6.1). `new` is not closed."""
        closing = self._leaving is not None and self._leaving.state is not _CLOSED
        if closing or self.pool.free >= self.config.close_thresh:
            return
        idle = [p for p in self.pdcs.values() if p is not new and not p.reserved and p.idle]
        if idle:
            self._leaving = min(idle, key=lambda pdc: pdc.touched)
            self._leaving.step(Input.CLOSE, now)
            self._after(self._leaving, now)

    def _register(self, pdc: Pdc, *, pending: bool = False) -> None:
        self.pool.enroll(pdc)
        if not pending:
            self.opened(pdc)
        self.wake(pdc, pdc.deadline())

    def opened(self, pdc: Pdc) -> None:
        """Report `PdcOpened`. A PENDING PDC is reported only when a later packet has shown that the first packet of the
        PDC was no replay (tss.md §11).
        """
        pdc.opened = True
        self._events.append(PdcOpened(pdc.peer, pdc.local_id, pdc.mode, pdc.role is Role.INITIATOR, pdc.tx.start))

    def released(self, pdc: Pdc, error: PdsError | None) -> None:
        """Release a PDC that has entered CLOSED, and report `PdcClosed`."""
        pdc.wake_at = NEVER
        if self.congestion is not None:
            self.congestion.closed(pdc.local_id)
        if pdc.cc is not None:
            self.free(pdc.cc)  # its packets are no longer in flight
        self._idle_seen = True
        self.pool.quarantine(pdc, error is None, self._now)
        if self._current.get(pdc.key) is pdc:
            del self._current[pdc.key]
        self._active.pop(pdc, None)
        if pdc.opened:
            self._events.append(PdcClosed(pdc.peer, pdc.local_id, pdc.mode, pdc.role is Role.INITIATOR, error))
        self.user.on_closed(pdc)

    # Messages

    def _bind(self, message: Outgoing, now: int) -> None:
        """Queue a message on the PDC of {mode, peer, context}, on a new PDC, or until a PDC is free (pds.md §6.1)."""
        pdc = self._taker(message)
        if pdc is None:
            if not self.pool.has_room(message.reserved):
                if not self._waiting:
                    self._events.append(Paused(True))
                self._waiting.append((now + self.config.pend_timeout, message))
                if not message.reserved:  # the PDC that closes is not of the reserved ones
                    self._make_room(None, now)
                return
            pdc = self.open_initiator(message.peer, message.mode, now, message.context, message.reserved)
        pdc.queue.append(message)
        offer(pdc, message)
        self._active[pdc] = None

    def _taker(self, message: Outgoing) -> Pdc | None:
        """Return the open PDC of {mode, peer, context} on which a message may start; None: there is none."""
        pdc = self._current.get((message.mode, message.peer, message.context, message.reserved))
        return pdc if pdc is not None and pdc.rows[_SEND] is not None and not pdc.close_req else None

    def rebind(self, messages: list[Outgoing], now: int) -> None:
        """Queue messages of a closing PDC on another PDC. No packet of these messages has been sent."""
        for message in messages:
            self._bind(message, now)

    def _run_waiting(self, now: int) -> None:
        if not self._waiting:
            return
        waiting, self._waiting = self._waiting, deque()
        for until, message in waiting:
            if self._taker(message) is not None or self.pool.has_room(message.reserved):
                self._bind(message, now)
            elif until <= now:
                self.user.on_error(message, -1, PdsError(PdcErrorReason.PEND_TIMEOUT, retryable=True))
            else:
                self._waiting.append((until, message))
        if not self._waiting:
            self._events.append(Paused(False))
        elif self._idle_seen:
            self._idle_seen = False
            if not all(message.reserved for _, message in self._waiting):
                self._make_room(None, now)

    def pending_timeout(self) -> None:
        """Count an expiry of New_PDC_Time, and report when the count reaches New_PDC_Timeout_Thresh (pds.md §6.5)."""
        self.counters.new_pdc_timeout_cnt += 1
        if self.counters.new_pdc_timeout_cnt == self.config.new_pdc_timeout_thresh:
            self._events.append(NewPdcTimeouts(self.counters.new_pdc_timeout_cnt))

    def is_still(self, pdc: Pdc, polled: bool) -> bool:
        """Return whether a packet that causes nothing leaves a poll nothing to do, now if `polled`, or else later."""
        if self._waiting or self.held or (polled and (self._active or self._plain or self._paced or self.out)):
            return False
        return not pdc.has_work or (not polled and pdc in self._active)

    def is_active(self, pdc: Pdc) -> bool:
        """Return whether the next poll lets a PDC send."""
        return pdc in self._active

    def only_sends(self, now: int) -> bool:
        """Return whether a poll would only let active PDCs send, each of which may open another one (`TrainEngine`)."""
        if self._waiting or self.held or self._plain or self._paced:
            return False
        head = self._wakes.head
        return (head is None or head[0] > now) and self.pool.free - len(self._active) > self.config.close_thresh

    def is_quiet(self, now: int, until: int) -> bool:
        """Return whether a poll now does nothing, there is no event, and no timer expires before `until`."""
        head = self._wakes.head
        return not (
            self._active or self.out or now >= until or (head is not None and head[0] < until) or self._events
            or self._waiting or self._plain or self._paced
        )  # fmt: skip

    def tell(self, event: Event) -> None:
        """Add an event to the list that `events` returns."""
        self._events.append(event)

    # Time and output

    def wake(self, pdc: Pdc, at: int) -> None:
        """Look at a PDC at a time, if it is earlier than `wake_at` of the PDC."""
        if at < pdc.wake_at:
            self._wakes.put(at, pdc)
            if len(self._wakes) > 2 * len(self.pdcs) + STALE:
                self._wakes.sweep(self.pdcs.values())

    def _after(self, pdc: Pdc, now: int) -> None:
        """Run the inputs that follow from an event of a PDC (`settle`), and let the PDC send at the next poll."""
        self._idle_seen = True
        if pdc.state is not State.ESTABLISHED and pdc.state is not State.CREATING:
            settle(pdc, now)
            if pdc.state is State.CLOSED:
                return
        self._active[pdc] = None

    def received(self, pdc: Pdc, now: int) -> None:
        """Do what follows every received packet of a PDC: restart the idle time, and let the PDC send."""
        pdc.touched = now
        if self._waiting and pdc.idle:
            self._idle_seen = True
        if self.held and pdc.cc is not None:
            self.free(pdc.cc)
        if pdc.state is not _ESTABLISHED:
            self._after(pdc, now)
        elif pdc.has_work:
            self._active[pdc] = None

    def hold(self, pdc: Pdc) -> None:
        """Let a PDC wait for the next event of its congestion control context, which forbids it to send."""
        assert pdc.cc is not None
        self.held.setdefault(pdc.cc, {})[pdc] = None

    def free(self, context: CongestionContext) -> None:
        """Let the PDCs that wait for an event of a context send at the next poll."""
        self._active.update(self.held.pop(context, {}))

    def stir(self, pdc: Pdc) -> None:
        """Let a PDC send at the next poll."""
        self._active[pdc] = None

    def advance(self, now: int) -> None:
        """Set the time of this call. Raises `LocalError` for one that has passed."""
        if now < self._now:
            raise LocalError(f"time goes back from {self._now} to {now} ps", id="time-passed")
        self._now = now
        if self.pool.expiring:
            self.pool.release_expired(now)

    def _refuse(
        self, code: NackCode, packet: Request | Control, datagram: Datagram, spdcid: int = 0, payload: int = 0
    ) -> None:
        """Send a NACK for a packet that is not passed to a PDC (pds.md §6.3), but drop a control packet without ar
        (pds.md §13)."""
        if isinstance(packet, Control) and not packet.ar:
            self.counters.unexpected += 1
            return
        nack = Nack(code, 0, packet.retx, datagram.ecn_marked, packet.psn, spdcid, packet.spdcid, payload)
        self.put_nack(datagram.src, nack, datagram.entropy)

    def put_nack(self, peer: int, nack: Nack, entropy: int) -> None:
        """Send and count a NACK."""
        self.nack_tx[nack.code] = self.nack_tx.get(nack.code, 0) + 1
        self.put(peer, nack, entropy)

    def put(
        self, peer: int, message: Control | Nack | Rudi | Uud, entropy: int, ses: bytes = b"", payload: Buffer = b"",
        kind: TrafficClass = TrafficClass.CONTROL,
    ) -> None:  # fmt: skip
        """Send a packet; its PDS header is passed as bytes, or as an object if `objects` is set."""
        header, value = (ses, message) if self.objects else (message.pack() + ses, None)
        self.out.append(Datagram(
            self.address, peer, header, payload, kind, entropy, False, Trim.NO, self.ip_version, value,
        ))  # fmt: skip


CLOSED_ACTIONS: dict[Input, Callable[[Pds, Any, Datagram, int], None]] = {
    event: vars(Pds)[action] for (_, event), (action, _) in CLOSED.items() if event in PACKETS
}
"""Method of `Pds` for each input that is a packet without a PDC, as the table `states.CLOSED` says."""
