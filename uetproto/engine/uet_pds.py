"""Packet delivery of one fabric endpoint: finds the PDC of a packet or a message, opens and releases PDCs.

Receive validation follows the order of pds.md §6.3 (UE 1.0.1 §3.5.8.2, §3.5.9.2); a packet without a PDC meets the
table `states.CLOSED`, every other one the table of its PDC. SES is its `user` (`service.PdsUser`); a harness may put a
scripted one in its place.
"""

import heapq
from collections import deque
from dataclasses import dataclass
from typing import Any

from uetproto.engine.config import PdsConfig
from uetproto.engine.contract import (
    NEVER,
    AskClose,
    Close,
    Datagram,
    Event,
    Mode,
    Paused,
    PdcClosed,
    PdcErrorReason,
    PdcOpened,
    PdsError,
    Rng,
    TrafficClass,
    Trim,
)  # fmt: skip
from uetproto.engine.messages import Ack, Control, Nack, Request, build_nack, parse
from uetproto.engine.service import Counters, Outgoing, PdsUser, Response
from uetproto.engine.states import Input, Role, State, row
from uetproto.engine.uet_pdc import Pdc, nack_event
from uetproto.errors import LocalError, RemoteError
from uetproto.wire.serial import diff32
from uetproto.wire.uet_pds import CtlType, NackCode

_M32 = 0xFFFFFFFF
# Looked up once: with every packet, Class.MEMBER would cost as much as a call.
_REQUEST, _ESTABLISHED = Input.REQUEST, State.ESTABLISHED
_MAX_PDCID = 0xFFFF
_STALE_TIMERS = 1000
"""Overtaken entries that may stay in the heap of timers, beside one a PDC."""
_START_DISTANCE = 1 << 16
"""A Start_PSN keeps this distance from the last PSN used on its PDCID (pds.md §2.2)."""

_CP_INPUT: dict[int, Input] = {
    CtlType.NOOP: Input.NOOP,
    CtlType.ACK_REQ: Input.ACK_REQ,
    CtlType.CLEAR_CMD: Input.CLEAR_CMD,
    CtlType.CLEAR_REQ: Input.CLEAR_REQ,
    CtlType.CLOSE_CMD: Input.CLOSE_CMD,
    CtlType.CLOSE_REQ: Input.CLOSE_REQ,
}


@dataclass(slots=True)
class Preset:
    """Numbers for a PDC, in place of drawn ones (`[preset]`, interfaces.md §5).

    For a PDC still to be opened: `pdcid` and `start_psn`, used once. For `Pds.adopt`, an ESTABLISHED PDC in the middle
    of its life, also the others; nothing is in flight: CACK = CLEAR = the PSN before `forward_next`, `return_next`.
    """

    pdcid: int | None = None
    start_psn: int | None = None
    peer_pdcid: int = 0
    forward_next: int = 0
    return_next: int = 0


class Pds:
    """The five calls, for packet delivery alone. `send`, `respond` are the calls of SES (pds.md §4)."""

    def __init__(
        self, address: int, config: PdsConfig, rng: Rng, user: PdsUser, ip_version: int = 4,
        events: list[Event] | None = None,
    ) -> None:  # fmt: skip
        """`events` is the list to which events are added, by default one of its own."""
        self.address = address
        self.ip_version = ip_version
        self.config = config
        self.rng = rng
        self.user = user
        self.counters = Counters()
        self.nack_tx: dict[int, int] = {}
        """NACKs sent, by code."""
        self.pdcs: dict[int, Pdc] = {}
        """By local PDCID."""
        self.out: list[Datagram] = []
        self._by_peer: dict[tuple[int, int], Pdc] = {}
        """By {address, PDCID} of the peer, where its PDCID is known."""
        self._current: dict[tuple[Mode, int], Pdc] = {}
        """The PDC on which messages to {mode, peer} start."""
        self._waiting: deque[tuple[int, Outgoing]] = deque()
        """Messages without a PDC, with the time when they give up."""
        self._presets: deque[Preset] = deque()
        self._active: dict[Pdc, None] = {}
        """PDCs that may have something to send."""
        self._timers: list[tuple[int, int, Pdc]] = []
        self._timer_count = 0
        self._resting: deque[tuple[int, Pdc]] = deque()
        """Closed PDCs, with the time when their PDCID and tombstone are released."""
        self._quarantine: set[int] = set()
        self._tombstones: dict[tuple[int, int], Pdc] = {}
        """Targets closed less than MSL ago, by {address, PDCID} of the peer (§6.2 item 9)."""
        self._last_psn: dict[int, int] = {}
        self._next_id = 1
        self._events: list[Event] = [] if events is None else events
        self._now = 0

    # Set-up by a harness

    def preset(self, preset: Preset) -> None:
        """Numbers for the next PDC that is opened here, in either role."""
        if preset.pdcid is not None and not (0 < preset.pdcid <= 0xFFFF):
            raise LocalError(f"pdcid: {preset.pdcid} is not legal; legal: 1 … 65535")
        if preset.start_psn is not None and not (0 <= preset.start_psn <= _M32):
            raise LocalError(f"start_psn: {preset.start_psn} is not legal; legal: 0 … {_M32}")
        self._presets.append(preset)

    def adopt(self, peer: int, mode: Mode, initiator: bool, preset: Preset, now: int = 0) -> Pdc:
        """Makes an ESTABLISHED PDC with the numbers of `preset`. Raises `LocalError` when the PDCID is taken."""
        local = self._allocate(preset)
        forward, back = preset.forward_next & _M32, preset.return_next & _M32
        role, sends, receives = (Role.INITIATOR, forward, back) if initiator else (Role.TARGET, back, forward)
        pdc = Pdc(self, role, mode, peer, local, preset.peer_pdcid, sends, receives, now)
        pdc.enter(State.ESTABLISHED)
        if preset.start_psn is not None:
            pdc.tx.start = pdc.rx.start = preset.start_psn
        if initiator:
            self._current[mode, peer] = pdc
        self._register(pdc)
        return pdc

    # The five calls

    def submit(self, work: Close | AskClose, now: int) -> None:
        """Close: every PDC opened to that peer; AskClose: one PDC of which this endpoint is the target.

        Raises `LocalError` when there is none.
        """
        self._advance(now)
        if isinstance(work, AskClose):
            found = [p for p in self.pdcs.values() if p.local_id == work.pdcid and p.role is Role.TARGET]
        else:
            found = [
                p for p in self.pdcs.values()
                if p.peer == work.peer and p.role is Role.INITIATOR and work.mode in (None, p.mode)
            ]  # fmt: skip
        if not found:
            raise LocalError(f"{work}: no such PDC")
        for pdc in found:
            pdc.step(Input.CLOSE, now)
            self._after(pdc, now)

    def send(self, message: Outgoing, now: int) -> None:
        """`ses_pds_tx_req` of a whole message: it leaves packet by packet when there is room."""
        self._advance(now)
        self._run_waiting(now)  # those that came before keep their place
        self._bind(message, now)

    def respond(self, pdcid: int, psn: int, response: Response, now: int) -> None:
        """`ses_pds_tx_rsp` for a packet delivered before; nothing happens when its PDC is gone.

        Raises `LocalError` when that packet does not wait for a response.
        """
        self._advance(now)
        pdc = self.pdcs.get(pdcid)
        if pdc is not None:
            pdc.step(Input.RESPOND, psn, response, now)
            self._after(pdc, now)

    def receive(self, packet: Datagram, now: int) -> None:
        """One packet from the network: pds.md §6.3, row by row."""
        if now != self._now:
            self._advance(now)
        try:
            message = parse(packet.header, packet.trimmed)  # row 1
        except RemoteError:
            self.counters.undecodable += 1
            return
        if type(message) is Request:
            self._receive_request(message, packet, now)
        elif packet.trimmed:  # row 2
            self.counters.trimmed_rx += 1
        elif type(message) is Control:
            self._receive_control(message, packet, now)
        elif type(message) is Ack:
            self._receive_ack(message, packet, now)
        elif type(message) is Nack:
            self._receive_nack(message, packet, now)

    def poll(self, now: int, limit: int = NEVER) -> list[Datagram]:
        """Runs due timers, then lets every PDC send what it may; see `contract.Engine`."""
        if now != self._now:
            self._advance(now)
        timers = self._timers
        rung: list[Pdc] = []
        while timers and timers[0][0] <= now:
            at, _, pdc = heapq.heappop(timers)
            if pdc.wake_at == at:  # else overtaken by an earlier one, or the PDC is closed
                pdc.wake_at = NEVER
                pdc.on_time(now)
                self._after(pdc, now)
                rung.append(pdc)
        if self._waiting:
            self._run_waiting(now)
        turn = list(self._active)
        while turn:
            for pdc in turn:
                sent = pdc.pump(now, limit)
                limit -= sent
                if pdc.state is not _ESTABLISHED and pdc.state is not State.CREATING:
                    self._after(pdc, now)
                if limit > 0 or sent:
                    self._active.pop(pdc, None)
                if limit <= 0 and sent and pdc.state is not State.CLOSED:
                    self._active[pdc] = None  # may have more: at the end of the row, so that all have their turn
            # What was opened meanwhile, because a PDC that reached its PSN limit handed on its messages.
            turn = [pdc for pdc in self._active if pdc not in turn] if limit > 0 else []
        for pdc in rung:
            if pdc.state is not State.CLOSED:
                self.wake(pdc, max(pdc.deadline(), now + 1))
        sent_now, self.out = self.out, []
        return sent_now

    def deadline(self) -> int | None:
        """The earliest timer of any PDC, or of a message without a PDC; maybe early, see `contract.Engine`."""
        timers = self._timers
        while timers and timers[0][2].wake_at != timers[0][0]:
            heapq.heappop(timers)
        at = timers[0][0] if timers else NEVER
        if self._waiting and self._waiting[0][0] < at:
            at = self._waiting[0][0]
        return at if at != NEVER else None

    def events(self) -> list[Event]:
        if not self._events:
            return []
        events = self._events[:]
        self._events.clear()
        return events

    @property
    def quiescent(self) -> bool:
        """No packet is to be sent or answered; only idle timers may be armed (pds.md §18 item 51)."""
        return not self._waiting and not self.out and all(pdc.quiescent for pdc in self.pdcs.values())

    # Receiving, after the common rows

    def _receive_request(self, request: Request, packet: Datagram, now: int) -> None:
        trimmed = packet.trimmed
        if trimmed:
            self.counters.trimmed_rx += 1
        if request.syn:
            pdc = self._by_peer.get((packet.src, request.spdcid))
            if pdc is None:
                late = request.mode is Mode.ROD and request.psn != request.start_psn
                self._meet_closed(Input.TRIMMED if trimmed else self._syn_input(request, packet, late, now), request,
                                  packet, now)  # fmt: skip
                return
            if not self._syn_fits(pdc, request, packet):
                return
        else:
            pdc = self.pdcs.get(request.dpdcid)
            if pdc is None:  # row 11
                self._meet_closed(Input.TRIMMED if trimmed else Input.REQUEST, request, packet, now)
                return
            known = packet.src == pdc.peer and request.spdcid == pdc.peer_id != 0
            if not known and not self._is_of(pdc, packet.src, request.spdcid):  # row 12
                self._refuse(NackCode.PDC_HDR_MISMATCH, request, packet)
                return
        if request.mode is not pdc.mode:  # row 13
            self._refuse(NackCode.PDC_MODE_MISMATCH, request, packet, pdc.local_id)
            return
        pdc.step(Input.TRIMMED if trimmed else _REQUEST, request, packet, now)
        self._received(pdc, now)

    def _receive_control(self, control: Control, packet: Datagram, now: int) -> None:
        event = _CP_INPUT.get(control.ctl_type, Input.OTHER_CP)
        if control.syn:
            pdc = self._by_peer.get((packet.src, control.spdcid))
            if pdc is None:
                opens = event is Input.NOOP  # row 5
                late = bool(control.isrod) and control.psn != control.start_psn
                event = self._syn_input(control, packet, late, now) if opens else Input.SYN_CP
                self._meet_closed(event, control, packet, now)
                return
            if not self._syn_fits(pdc, control, packet):
                return
        else:
            pdc = self.pdcs.get(control.dpdcid)
            if pdc is None:
                if event is Input.CLOSE_CMD and self._tombstone(control, packet) is not None:
                    event = Input.OLD_CLOSE_CMD
                self._meet_closed(event, control, packet, now)
                return
            if not self._is_of(pdc, packet.src, control.spdcid):
                self._refuse(NackCode.PDC_HDR_MISMATCH, control, packet)
                return
        if self.config.cp_mode_check and bool(control.isrod) != (pdc.mode is Mode.ROD):
            self._refuse(NackCode.PDC_MODE_MISMATCH, control, packet, pdc.local_id)
            return
        pdc.step(event, control, packet, now)
        self._received(pdc, now)

    def _receive_ack(self, ack: Ack, packet: Datagram, now: int) -> None:
        pdc = self.pdcs.get(ack.dpdcid)
        if pdc is None:
            self._meet_closed(Input.ACK, ack, packet, now)
        elif not self._is_of(pdc, packet.src, ack.spdcid):  # row 3
            self.counters.bad_ack += 1
        else:
            pdc.step(Input.ACK, ack, packet, now)
            self._received(pdc, now)

    def _receive_nack(self, nack: Nack, packet: Datagram, now: int) -> None:
        pdc = None if nack.rudi else self.pdcs.get(nack.dpdcid)
        if pdc is None:
            self._meet_closed(Input.NACK, nack, packet, now)
            return
        event = nack_event(pdc, nack)
        if event is None or packet.src != pdc.peer or (nack.spdcid and not self._is_of(pdc, packet.src, nack.spdcid)):
            self.counters.bad_nack += 1
            return
        pdc.step(event, nack, packet, now)
        self._received(pdc, now)

    def _is_of(self, pdc: Pdc, src: int, spdcid: int) -> bool:
        """Address and PDCID of the sender fit the PDC (rows 3, 12); any PDCID fits while none is known (row 4)."""
        return src == pdc.peer and spdcid == (pdc.peer_id or spdcid) != 0

    def learned(self, pdc: Pdc) -> None:
        """`Owner`: an initiator knows the PDCID of its target now."""
        self._by_peer[pdc.peer, pdc.peer_id] = pdc

    def _syn_fits(self, pdc: Pdc, packet: Request | Control, datagram: Datagram) -> bool:
        """Rows 9 and 10: a SYN packet of a known PDC has its Start_PSN, and never comes from a target.

        A control packet with psn 0 (CLEAR_CMD, CREDIT, …) has no PSN from which a Start_PSN could follow.
        """
        wrong_start = packet.start_psn != pdc.rx.start and not (isinstance(packet, Control) and packet.psn == 0)
        if pdc.role is Role.INITIATOR or wrong_start:
            self._refuse(NackCode.INVALID_SYN, packet, datagram, pdc.local_id)
            return False
        return True

    def _syn_input(self, packet: Request | Control, datagram: Datagram, late: bool, now: int) -> Input:
        """What a packet that can open a PDC is to `states.CLOSED`: rows 6 and 8, and the tombstone of §6.2 item 9."""
        old = self._tombstones.get((datagram.src, packet.spdcid))
        if old is not None and old.rx.start == packet.start_psn:
            return Input.SYN_OLD
        if late:
            return Input.SYN_GAP
        return Input.SYN if self._has_room() else Input.SYN_NO_ROOM

    # Actions of the table CLOSED

    def _meet_closed(self, event: Input, packet: Any, datagram: Datagram, now: int) -> None:
        found = row(Role.CLOSED, State.CLOSED, event)
        assert found is not None
        getattr(self, found[0])(packet, datagram, now)

    def drop(self, packet: Any, datagram: Datagram, now: int) -> None:
        """No PDC is its own: dropped, counted."""
        self.counters.no_pdc += 1

    def refuse_unknown(self, packet: Request | Control, datagram: Datagram, now: int) -> None:
        """NACK INV_DPDCID (§6.3 row 11)."""
        self.counters.no_pdc += 1
        self._refuse(NackCode.INV_DPDCID, packet, datagram)

    def refuse_unknown_cp(self, packet: Control, datagram: Datagram, now: int) -> None:
        """NACK INV_DPDCID if it asks for an answer, else dropped (§13)."""
        self.counters.no_pdc += 1
        if packet.ar:
            self._refuse(NackCode.INV_DPDCID, packet, datagram)

    def refuse_gap(self, packet: Request | Control, datagram: Datagram, now: int) -> None:
        """NACK ROD_OOO with Start_PSN; no PDC is created (§6.2 item 7)."""
        self._refuse(NackCode.ROD_OOO, packet, datagram, 0, packet.start_psn)

    def refuse_no_pdc(self, packet: Request | Control, datagram: Datagram, now: int) -> None:
        """NACK NO_PDC_AVAIL (§6.3 row 6)."""
        self._refuse(NackCode.NO_PDC_AVAIL, packet, datagram)

    def repeat_closing_ack(self, packet: Control, datagram: Datagram, now: int) -> None:
        """The ACK of a CLOSE_CMD again (§20 row 17)."""
        old = self._tombstone(packet, datagram)
        assert old is not None
        self.counters.ack_tx += 1
        self._put(datagram, old.closing_header(packet.retx))

    def open_target(self, packet: Request | Control, datagram: Datagram, now: int) -> None:
        """Creates the PDC and handles the packet as one of its own (§6.2 item 3)."""
        mode = packet.mode if isinstance(packet, Request) else (Mode.ROD if packet.isrod else Mode.RUD)
        local = self._allocate(self._presets.popleft() if self._presets else Preset())
        start = packet.start_psn
        pdc = Pdc(self, Role.TARGET, mode, datagram.src, local, packet.spdcid, start, start, now)
        self._register(pdc)
        pdc.step(Input.REQUEST if isinstance(packet, Request) else Input.NOOP, packet, datagram, now)
        self._received(pdc, now)

    def open_initiator(self, peer: int, mode: Mode, now: int) -> Pdc:
        """Allocates PDCID and Start_PSN; the first poll sends (§6.2 item 1)."""
        preset = self._presets.popleft() if self._presets else Preset()
        local = self._allocate(preset)
        start = self._draw_start(local) if preset.start_psn is None else preset.start_psn
        pdc = Pdc(self, Role.INITIATOR, mode, peer, local, 0, start, start, now)
        self._current[mode, peer] = pdc
        self._register(pdc)
        return pdc

    # PDCs and their names

    def _has_room(self) -> bool:
        """One more PDC may be opened: below the limit, and a PDCID is free. Closed ones count while they rest."""
        open_now = len(self.pdcs)
        return open_now < self.config.max_pdcs and open_now + len(self._resting) < _MAX_PDCID

    def _allocate(self, preset: Preset) -> int:
        """A local PDCID, never 0, not in use and not in quarantine."""
        if preset.pdcid is not None:
            if preset.pdcid in self.pdcs:
                raise LocalError(f"PDCID {preset.pdcid} is in use")
            return preset.pdcid
        for _ in range(_MAX_PDCID):
            local = self._next_id
            self._next_id = local % _MAX_PDCID + 1
            if local not in self.pdcs and local not in self._quarantine:
                return local
        raise LocalError("no PDCID is free")

    def _draw_start(self, local: int) -> int:
        """Random, not 0, away from the last PSN used on this PDCID (§2.2)."""
        last = self._last_psn.get(local)
        while True:
            start = self.rng.getrandbits(32)
            if start and (last is None or abs(diff32(start, last)) >= _START_DISTANCE):
                return start

    def _register(self, pdc: Pdc) -> None:
        self.pdcs[pdc.local_id] = pdc
        if pdc.peer_id:
            self._by_peer[pdc.peer, pdc.peer_id] = pdc
        self._events.append(PdcOpened(pdc.peer, pdc.local_id, pdc.mode, pdc.role is Role.INITIATOR, pdc.tx.start))
        self.wake(pdc, pdc.deadline())

    def released(self, pdc: Pdc, error: PdsError | None) -> None:
        """`Owner`: the PDC is CLOSED; its PDCID rests for MSL."""
        pdc.wake_at = NEVER
        del self.pdcs[pdc.local_id]
        if pdc.peer_id and self._by_peer.get((pdc.peer, pdc.peer_id)) is pdc:
            del self._by_peer[pdc.peer, pdc.peer_id]
        if self._current.get((pdc.mode, pdc.peer)) is pdc:
            del self._current[pdc.mode, pdc.peer]
        self._active.pop(pdc, None)
        self._last_psn[pdc.local_id] = pdc.tx.last
        until = self._now + self.config.msl
        self._resting.append((until, pdc))
        if self.config.pdcid_quarantine:
            self._quarantine.add(pdc.local_id)
        if pdc.role is Role.TARGET:
            self._tombstones[pdc.peer, pdc.peer_id] = pdc
        self._events.append(PdcClosed(pdc.peer, pdc.local_id, pdc.mode, pdc.role is Role.INITIATOR, error))
        self.user.on_closed(pdc)

    def _tombstone(self, packet: Control, datagram: Datagram) -> Pdc | None:
        """The PDC that this CLOSE_CMD closed before (§20 row 17)."""
        old = self._tombstones.get((datagram.src, packet.spdcid))
        return old if old and old.local_id == packet.dpdcid and old.close_psn == packet.psn else None

    # Messages

    def _bind(self, message: Outgoing, now: int) -> None:
        """The PDC of {mode, peer}, a new one, or a place in the queue (§6.1)."""
        pdc = self._current.get((message.mode, message.peer))
        if pdc is None or not pdc.allows(Input.SEND) or pdc.close_req:
            if not self._has_room():
                if not self._waiting:
                    self._events.append(Paused(True))
                self._waiting.append((now + self.config.pend_timeout, message))
                return
            pdc = self.open_initiator(message.peer, message.mode, now)
        pdc.queue.append(message)
        self._active[pdc] = None

    def rebind(self, messages: list[Outgoing], now: int) -> None:
        """`Owner`: messages of a PDC that closes go to another one."""
        for message in messages:
            self._bind(message, now)

    def _run_waiting(self, now: int) -> None:
        if not self._waiting:
            return
        while self._waiting and (self._waiting[0][0] <= now or self._has_room()):
            _, message = self._waiting.popleft()
            if self._has_room():
                self._bind(message, now)
            else:
                self.user.on_error(message, -1, PdsError(PdcErrorReason.PEND_TIMEOUT, retryable=True))
        if not self._waiting:
            self._events.append(Paused(False))

    # Time and output

    def wake(self, pdc: Pdc, at: int) -> None:
        """`Owner`: the entry of a PDC in the heap is never later than its deadline; an entry it overtakes is stale."""
        if at < pdc.wake_at:
            pdc.wake_at = at
            self._timer_count += 1
            heapq.heappush(self._timers, (at, self._timer_count, pdc))
            if len(self._timers) > len(self.pdcs) + _STALE_TIMERS:
                self._timers[:] = [(p.wake_at, n, p) for n, p in enumerate(self.pdcs.values()) if p.wake_at != NEVER]
                heapq.heapify(self._timers)

    def _after(self, pdc: Pdc, now: int) -> None:
        """After any event of a PDC: what follows from progress, and it may send again."""
        if pdc.state is not State.ESTABLISHED and pdc.state is not State.CREATING:
            pdc.settle(now)
            if pdc.state is State.CLOSED:
                return
        self._active[pdc] = None

    def _received(self, pdc: Pdc, now: int) -> None:
        """After a packet of a PDC."""
        pdc.touched = now
        if pdc.state is not _ESTABLISHED:
            self._after(pdc, now)
        elif pdc.has_work:
            self._active[pdc] = None

    def _advance(self, now: int) -> None:
        if now < self._now:
            raise LocalError(f"time goes back from {self._now} to {now} ps")
        self._now = now
        resting = self._resting
        while resting and resting[0][0] <= now:
            old = resting.popleft()[1]
            self._quarantine.discard(old.local_id)
            if self._tombstones.get((old.peer, old.peer_id)) is old:
                del self._tombstones[old.peer, old.peer_id]

    def _refuse(
        self, code: NackCode, packet: Request | Control, datagram: Datagram, spdcid: int = 0, payload: int = 0
    ) -> None:
        """A NACK for a packet that no PDC takes (§6.3)."""
        self.nack_tx[code] = self.nack_tx.get(code, 0) + 1
        self._put(datagram, build_nack(
            code, datagram.ecn_marked, packet.retx, packet.psn, spdcid, packet.spdcid, payload))  # fmt: skip

    def _put(self, answered: Datagram, header: bytes) -> None:
        self.out.append(Datagram(
            self.address, answered.src, header, b"", TrafficClass.CONTROL, answered.entropy, False, Trim.NO,
            self.ip_version,
        ))  # fmt: skip
