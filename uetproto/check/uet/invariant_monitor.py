# SPDX-License-Identifier: GPL-2.0-only
"""This module has the monitor of one endpoint. It stands between PDS and SES, sees all packets, and checks the
invariants.

The monitor keeps shadow state, which is its own record of each PDC. The monitor takes the record from the packets in
and out, and from the requests and answers that PDS and SES exchange (`service.PdsUser`). The driver of the endpoint
calls `receive`, `poll` and `passed` of the monitor in place of the methods of the PDS. Each call examines only the PSNs
and counters that changed, of the PDCs that the call touched. After every `scan_every` calls, and at the end, the
monitor examines all PSNs and counters of all PDCs (`scan`).
"""

from collections import deque

from uetproto.check.registry import Disruption, InvariantViolation
from uetproto.check.uet.invariants import plan
from uetproto.check.uet.invariants_protocol import marks_of, pds_36_idempotence
from uetproto.check.uet.registry import Occasion
from uetproto.check.uet.ses_invariants import SesRules
from uetproto.check.uet.shadow_state import (
    ANSWERED,
    CONSUMING,
    FAILED,
    M32,
    OPEN,
    PdcShadow,
    SentPacket,
    TrackedMessage,
    behind,
)
from uetproto.engine.contract import NEVER, Buffer, Datagram, Mode, PdcClosed, PdcOpened, PdsError, Trim
from uetproto.engine.pds.messages import Ack, Control, Message, Nack, Request, Rudi, Uud, parse
from uetproto.engine.pds.nacks import NACKS
from uetproto.engine.pds.pdc import Pdc
from uetproto.engine.pds.service import SES_SIZE, Connection, Outgoing, PdsUser, Refusal, Response
from uetproto.engine.pds.states import Role, State
from uetproto.engine.pds.sublayer import Pds
from uetproto.errors import RemoteError
from uetproto.wire.headers.uet_pds import CtlType, NackCode

SCAN_EVERY = 64
"""Number of calls of the monitor between two examinations of all PDCs."""
_KEPT = 1 << 16
"""Number of PDC instances, and of delivered pkt_ids, that are kept."""
_CLOSED, _PENDING, _WHOLE = State.CLOSED, State.PENDING, Trim.NO
_IDEMPOTENT = frozenset(code for code, entry in NACKS.items() if entry.delayed) | {
    NackCode.ROD_OOO, NackCode.NEW_START_PSN, NackCode.RCVD_SES_PROCG,
}  # fmt: skip
"""Codes of NACKs that change nothing when they arrive twice in a row."""


class InvariantMonitor:
    """The monitor is the `service.PdsUser` that a PDS calls. It passes each call on to `user`, the SES."""

    __slots__ = (
        "_by_peer", "_closed", "_gone", "_initiators", "_just_closed", "_last", "_last_at", "_targets", "_touched",
        "_until_scan", "cause", "config", "disruptions", "last_psn", "late", "now", "other", "pdc_count", "pds",
        "plans", "preset", "raised", "rudi_sent", "rudi_taken", "scan_every", "ses", "shadows", "tracks", "trimmed",
        "user", "uud_asked", "uud_sent",
    )  # fmt: skip

    pds: Pds
    other: "InvariantMonitor"

    def __init__(self, user: PdsUser, scan_every: int = SCAN_EVERY) -> None:
        self.user = user
        self.scan_every = self._until_scan = scan_every
        self.now = 0
        self.cause: Message | None = None
        """Message that arrived in the present step. It is None if no message arrived."""
        self.trimmed = False
        self.late = False
        """Whether SES responds only when it is polled. A packet that is sent then need not answer the one that
        arrived."""
        self.ses: SesRules | None = None
        """Rules of SES for packets that are sent. It is None if packets are not checked against them."""
        self.preset = False
        """Whether the Start_PSN of the next PDC was set by a test or scenario."""
        self.raised: BaseException | None = None
        self.disruptions = Disruption.NONE
        self.shadows: dict[int, PdcShadow] = {}
        """Shadow state by local PDCID. The shadow state of a closed PDC stays until its PDCID is used again."""
        self.tracks: dict[Outgoing, TrackedMessage] = {}
        self.last_psn: dict[int, int] = {}
        """Maps a PDCID to the last PSN of the previous PDC that had it."""
        self.rudi_sent: dict[int, SentPacket] = {}
        """Outstanding RUDI requests that this endpoint sent, by pkt_id."""
        self.rudi_taken: dict[int, None] = {}
        """Values of pkt_id of the RUDI requests that were delivered to this endpoint's SES."""
        self.uud_asked = self.uud_sent = self.pdc_count = 0
        self._touched: list[PdcShadow] = []
        self._initiators: dict[tuple[int, int], PdcShadow] = {}
        """Shadow state of initiators by PDCID and Start_PSN, also of closed ones."""
        self._by_peer: dict[int, PdcShadow] = {}
        """Shadow state of targets by PDCID of the peer."""
        self._targets: dict[tuple[int, int, int], PdcShadow] = {}
        """Shadow state of targets by instance: {address, PDCID, Start_PSN}."""
        self._gone: dict[tuple[int, int], int] = {}
        """End of the quarantine of closed PDCs, by {peer, PDCID}."""
        self._just_closed: dict[int, PdcShadow] = {}
        """Shadow state of PDCs that closed in this step, by PDCID."""
        self._closed: deque[tuple[int, PdcShadow]] = deque()
        self._last_at = 0
        self._last: Datagram | None = None
        """The last packet that arrived, if it is an ACK or NACK."""

    def attach(self, pds: Pds, other: "InvariantMonitor") -> None:
        """Become the user of `pds`, before `pds` is used. `other` is the monitor of the peer."""
        self.pds = pds
        self.other = other
        self.config = pds.config
        pds.user = self
        self._choose_plans()

    def adopt(self) -> None:
        """Make shadow state for the PDCs that a test or scenario set up as established."""
        for pdc in self.pds.pdcs.values():
            self._open(pdc, adopted=True)

    def disrupted(self, disruption: Disruption) -> None:
        """Note a disruption, after which some invariants are no longer checked."""
        self.disruptions |= disruption
        self._choose_plans()
        for shadow in self.shadows.values():
            shadow.plan = self.plans[shadow.pdc.mode]

    def _choose_plans(self) -> None:
        self.plans = {mode: plan(self.config, mode, self.disruptions) for mode in Mode}

    # What drives the endpoint

    def receive(self, packet: Datagram, now: int) -> None:
        """Call `Pds.receive`. The caller must call `poll` next, so that the invariants are checked."""
        self.now = now
        message = packet.message
        if message is None:
            try:
                message = parse(packet.header, packet.trimmed)
            except RemoteError:
                message = None
        self.cause = message
        trimmed = self.trimmed = packet.trimmed is not _WHOLE
        kind = type(message)
        if kind is Ack or kind is Nack:
            if self._last is not None and self._last_at == now and self._is_copy(packet, self._last):
                self._receive_again(message, packet, now)
                return
            self._last, self._last_at = packet, now
        else:
            self._last = None
            if kind is Control and message.ctl_type in CONSUMING and not trimmed:
                shadow = self._receiver(message)
                if shadow is not None and behind(shadow.cack, message.psn):
                    shadow.cps.add(message.psn)
            elif kind is Rudi:
                self.pdc_count = len(self.pds.pdcs)
        self.pds.receive(packet, now)

    def poll(self, now: int, limit: int = NEVER) -> list[Datagram]:
        """Call `Pds.poll`. Check the packets that are sent, and the changes that this call and earlier ones have
        made."""
        self.now = now
        packets = self.pds.poll(now, limit)
        self.examine(packets)
        return packets

    def passed(self, now: int) -> None:
        """Check the invariants that may be violated because time has passed."""
        self.now = now
        for shadow in self.shadows.values():
            for check in shadow.plan.arrived.get(Occasion.TIME_PASSED, ()):
                check(shadow, False)

    @staticmethod
    def _is_copy(packet: Datagram, other: Datagram) -> bool:
        if packet.message is not None:
            return packet.message is other.message
        return bytes(packet.header) == bytes(other.header)

    def _receive_again(self, message: Ack | Nack, packet: Datagram, now: int) -> None:
        """Receive the ACK or NACK that arrived just before once more."""
        pdc = self.pds.pdcs.get(message.dpdcid)
        before = None if pdc is None else marks_of(pdc)
        self.pds.receive(packet, now)
        if before is not None and (type(message) is Ack or self._waits(message)):
            pds_36_idempotence(before, marks_of(pdc))

    def _waits(self, nack: Message) -> bool:
        """Return whether a NACK must change nothing when it arrives a second time at once.

        This holds for some codes, if a retransmission that they ask for is delayed.
        """
        if type(nack) is not Nack or nack.code not in _IDEMPOTENT:
            return False
        return bool(self.config.nack_retx_time) or not NACKS[nack.code].delayed

    # What passes between PDS and SES

    def on_request(
        self, pdc: Connection, psn: int, next_hdr: int, data: Buffer, at: int, payload: Buffer, now: int
    ) -> Response | Refusal | None:
        answer = self.user.on_request(pdc, psn, next_hdr, data, at, payload, now)
        if type(answer) is Refusal:
            return answer
        if not pdc.local_id:
            if pdc.mode is Mode.RUDI:
                self.rudi_taken.pop(psn, None)
                self.rudi_taken[psn] = None
                if len(self.rudi_taken) > _KEPT:
                    del self.rudi_taken[next(iter(self.rudi_taken))]
            return answer
        shadow = self.shadows.get(pdc.local_id)
        if shadow is None or shadow.pdc is not pdc or shadow.start != pdc.tx.start:
            shadow = self._open(pdc)  # type: ignore[arg-type]
        header = data[at : at + SES_SIZE[next_hdr]]
        for check in shadow.plan.delivery:
            check(shadow, psn, header, payload)
        shadow.taken, shadow.answered = True, answer is not None
        if type(self.cause) is Request and self.cause.psn == psn and self.cause.ar:
            shadow.asked.add(psn)
        shadow.turn = (psn + 1) & M32
        if answer is None or not answer.final:  # type: ignore[union-attr]
            shadow.got[psn] = None
        else:
            shadow.got[psn] = answer  # type: ignore[assignment]
            if answer.gtd:  # type: ignore[union-attr]
                shadow.gtd[psn] = answer  # type: ignore[assignment]
        return answer

    def respond(self, connection: Connection, psn: int, response: Response, now: int) -> None:
        """Call `Pds.respond_late`, by which SES answers a packet that was delivered in an earlier step."""
        self.now = now
        if connection.local_id and response.final:
            shadow = self.shadows.get(connection.local_id)
            if shadow is not None and shadow.pdc is connection and shadow.state is not _CLOSED:
                shadow.got[psn] = response
                shadow.answered = True
                if response.gtd:
                    shadow.gtd[psn] = response
                self._touched.append(shadow)
        self.pds.respond_late(connection, psn, response, now)

    def on_reread(self, pdc: Connection, psn: int, next_hdr: int, data: Buffer, at: int, payload: Buffer) -> Response:
        return self.user.on_reread(pdc, psn, next_hdr, data, at, payload)

    def on_response(self, message: Outgoing, index: int, next_hdr: int, response: Buffer | None, now: int) -> None:
        track = self.tracks.get(message)
        if track is None:
            track = self.tracks[message] = TrackedMessage(self, message, None)
        shadow = track.shadow
        if shadow is None and message.mode is Mode.UUD:
            self.uud_asked += 1
            track.marks.append(OPEN)
        for check in self.plans[message.mode].outcome:
            check(shadow, track, index, None, response)
        track.marks[index] = ANSWERED
        if shadow is None and message.mode is Mode.RUDI:
            self.rudi_sent.pop(track.psns[index], None)
        self.user.on_response(message, index, next_hdr, response, now)

    def on_error(self, message: Outgoing, index: int, error: PdsError) -> None:
        track = self.tracks.get(message)
        if track is None:
            track = self.tracks[message] = TrackedMessage(self, message, None)
        for check in self.plans[message.mode].outcome:
            check(track.shadow, track, index, error, None)
        if index < 0:
            track.failed = True
        else:
            track.marks[index] = FAILED
            if track.shadow is None:
                self.rudi_sent.pop(track.psns[index], None)
        self.user.on_error(message, index, error)

    def on_closed(self, pdc: Connection) -> None:
        shadow = self.shadows.get(pdc.local_id)
        if shadow is not None and shadow.pdc is pdc:
            for check in shadow.plan.closed:
                check(shadow, True)
            shadow.state = _CLOSED
            self._just_closed[pdc.local_id] = shadow
            quarantine = self.now + self.config.msl
            if shadow.pdc.tx.next != shadow.pdc.tx.start:
                self.last_psn[pdc.local_id] = shadow.pdc.tx.last
            self._gone[pdc.peer, pdc.local_id] = quarantine
            self._closed.append((quarantine, shadow))
            if shadow.pdc.rx.max_rcvd == (shadow.pdc.rx.start - 1) & M32:
                self._targets.pop((pdc.peer, shadow.pdc.peer_id, shadow.pdc.rx.start), None)  # no packet was accepted
        self.user.on_closed(pdc)

    # Shadow states

    def _open(self, pdc: Pdc, adopted: bool = False) -> PdcShadow:
        """Make the shadow of a PDC that is new, or begin it anew after NEW_START_PSN."""
        shadow = self.shadows.get(pdc.local_id)
        if shadow is None or shadow.pdc is not pdc:
            self._forget_closed()
            shadow = PdcShadow(self, pdc, self.plans[pdc.mode], adopted)
            initiator = pdc.role is Role.INITIATOR
            opened = PdcOpened(pdc.peer, pdc.local_id, pdc.mode, initiator, pdc.tx.start)
            for check in shadow.plan.leaves.get(PdcOpened, ()):
                check(shadow, opened, None, None)
            if pdc.state is not _PENDING:
                for check in shadow.plan.arrived.get(PdcOpened, ()):
                    check(shadow, False)
            self.preset = False
            self.shadows[pdc.local_id] = shadow
            if not initiator:
                self._by_peer[pdc.peer_id] = shadow
        else:
            self._initiators.pop((pdc.local_id, shadow.start), None)
            peer, shadow.peer = shadow.peer, None  # the old one may belong to a PDC that a late copy opened
            if peer is not None:
                peer.peer = None
            shadow.begin(pdc.tx.start, pdc.rx.start - 1)
            if self.ses is not None:
                self.ses.begun_anew(shadow)
        self._join(shadow)
        return shadow

    def _join(self, shadow: PdcShadow) -> None:
        """Link a shadow with that of the other end."""
        pdc = shadow.pdc
        if pdc.role is Role.INITIATOR:
            self._initiators[pdc.local_id, pdc.tx.start] = shadow
            if len(self._initiators) > _KEPT:
                del self._initiators[next(iter(self._initiators))]
        elif pdc.state is not _PENDING:
            self._targets[pdc.peer, pdc.peer_id, pdc.rx.start] = shadow
            source = self.other._initiators.get((pdc.peer_id, pdc.rx.start))
            if source is not None:
                shadow.peer = source
                source.peer = shadow

    def _forget_closed(self) -> None:
        """Forget instances whose quarantine is over."""
        closed = self._closed
        while closed and closed[0][0] <= self.now:
            pdc = closed.popleft()[1].pdc
            self._targets.pop((pdc.peer, pdc.peer_id, pdc.rx.start), None)

    def had(self, pdc: Pdc) -> bool:
        """Return whether another target PDC existed within the last MSL that had the same peer, the same PDCID of the
        peer and the same Start_PSN as `pdc`."""
        return (pdc.peer, pdc.peer_id, pdc.rx.start) in self._targets

    def is_quarantined(self, peer: int, pdcid: int) -> bool:
        """Return whether a PDC with this peer and this PDCID is in use, or was closed less than one MSL ago."""
        before = self.shadows.get(pdcid)
        used = before is not None and before.state is not _CLOSED and before.pdc.peer == peer
        quarantined = self.config.pdcid_quarantine == "MSL" and self._gone.get((peer, pdcid), 0) > self.now
        return used or quarantined

    def brings(self, psn: int) -> bool:
        """Return whether the packet that arrived in this step is a request with this PSN. If it is not, the request
        with this PSN was stored before."""
        return isinstance(self.cause, Request) and self.cause.psn == psn

    def starts_at(self, start: int) -> bool:
        """Return whether the packet that arrived in this step is a SYN packet with this Start_PSN."""
        cause = self.cause
        return isinstance(cause, Request | Control) and bool(cause.syn) and cause.start_psn == start

    def _of(self, pdcid: int) -> PdcShadow | None:
        """Return the shadow of a local PDCID, open or just closed."""
        shadow = self.shadows.get(pdcid)
        pdc = self.pds.pdcs.get(pdcid)
        if pdc is not None and (shadow is None or shadow.pdc is not pdc or shadow.start != pdc.tx.start):
            return self._open(pdc)
        return shadow

    def _receiver(self, message: Request | Control | Ack | Nack) -> PdcShadow | None:
        """Return the shadow of the PDC that a packet belongs to; None if it is unknown. There is only one peer."""
        if message.dpdcid:
            return self._of(message.dpdcid)
        if type(message) is not Request and type(message) is not Control:
            return None
        shadow = self._by_peer.get(message.spdcid)
        if shadow is None or shadow.state is _CLOSED:
            found = (p for p in self.pds.pdcs.values() if p.peer_id == message.spdcid and p.role is Role.TARGET)
            pdc = next(found, None)
            return None if pdc is None else self._of(pdc.local_id)
        return self._of(shadow.pdc.local_id)

    # Examination

    def examine(self, packets: list[Datagram]) -> None:
        """Check the packets that are sent, then the PDCs that changed. After every `scan_every` calls, check
        all PDCs."""
        cause = self.cause
        shadow = None if cause is None else self._arrival(cause)
        for packet in packets:
            self._leaves(packet)
        if shadow is not None and shadow.pdc.state is not _CLOSED:
            for check in shadow.plan.arrived.get(type(cause), ()):
                check(shadow, False)
        touched = self._touched
        if touched:
            for shadow in touched:
                self._judge(shadow)
                shadow.answered = False
            touched.clear()
        self.cause = None
        if self._just_closed:
            self._just_closed.clear()
        self._until_scan -= 1
        if self._until_scan <= 0:
            self.scan()

    def scan(self) -> None:
        """Check all PSNs and counters of every PDC."""
        self._until_scan = self.scan_every
        for pdc in self.pds.pdcs.values():
            shadow = self._of(pdc.local_id)
            if shadow is None:
                shadow = self._open(pdc)
            if pdc.state is not _PENDING:
                for check in shadow.plan.step:
                    check(shadow, True)
                shadow.note()
            if pdc.wake_at > pdc.deadline():
                raise InvariantViolation("deadline", "PDC looked at too late", pdc.wake_at, pdc.deadline())

    def _arrival(self, cause: Message) -> PdcShadow | None:
        kind = type(cause)
        if kind is Rudi or kind is Uud:
            return None
        pdcid = cause.dpdcid  # type: ignore[union-attr]
        shadow = self.shadows.get(pdcid)
        if shadow is None or self.pds.pdcs.get(pdcid) is not shadow.pdc or shadow.start != shadow.pdc.tx.start:
            shadow = self._receiver(cause)  # type: ignore[arg-type]
        if shadow is not None:
            shadow.heard_at = self.now
            if kind is Control and cause.ctl_type in CONSUMING and behind(shadow.cack, cause.psn):  # type: ignore[union-attr]
                shadow.cps.add(cause.psn)  # type: ignore[union-attr]
            if shadow not in self._touched:
                self._touched.append(shadow)
        return shadow

    def _judge(self, shadow: PdcShadow) -> None:
        """Check a PDC after a step, if any of its numbers has changed."""
        pdc = shadow.pdc
        state = pdc.state
        shadow.taken = shadow.refused = False
        if state is _CLOSED or state is _PENDING:
            return
        tx, rx = pdc.tx, pdc.rx
        if tx.start != shadow.start:
            self._open(pdc)
        if (
            rx.cack != shadow.cack or rx.max_rcvd != shadow.max_rcvd or rx.max_clear != shadow.max_clear
            or len(rx.slots) != shadow.slots or rx.stored != shadow.stored or rx.waiting != shadow.waiting
        ):  # fmt: skip
            for check in shadow.plan.step:
                check(shadow, False)
            shadow.note()
        elif tx.una != shadow.una or tx.next != shadow.next or tx.peer_cack != shadow.peer_cack:
            for check in shadow.plan.source:
                check(shadow, False)
            shadow.note_source()
        shadow.state = state

    def _leaves(self, packet: Datagram) -> None:
        message = packet.message
        if message is None:
            message = parse(packet.header)
        kind = type(message)
        if kind is Rudi or kind is Uud or (kind is Nack and message.rudi):
            self._leaves_without_pdc(message, packet)
            return
        pdcid = message.spdcid
        shadow = self.shadows.get(pdcid)
        if shadow is None or self.pds.pdcs.get(pdcid) is not shadow.pdc or shadow.start != shadow.pdc.tx.start:
            shadow = self._of(pdcid)
        if self._just_closed and message.dpdcid:
            shadow = self._just_closed.get(pdcid, shadow)  # a new PDC with this PDCID has no dpdcid yet
        if type(self.cause) is Uud:
            for check in self.plans[Mode.UUD].leaves.get(kind, ()):
                check(self, message, packet, None)
        if shadow is None:
            return
        pdc = shadow.pdc
        if pdc.state is _CLOSED:
            if kind is Ack:
                for check in shadow.plan.leaves[PdcClosed]:
                    check(shadow, message, packet, None)
            return
        sent = None
        if kind is Request:
            sent = shadow.sent.get(message.psn)
            if sent is None:
                sent = self._first(shadow, message, packet)
                checks = shadow.plan.first
            else:
                checks = shadow.plan.copy
        else:
            checks = shadow.plan.leaves[kind]
            if kind is Control and message.ctl_type in CONSUMING:
                sent = shadow.sent.get(message.psn)
                if sent is None:
                    sent = self._first(shadow, message, packet)
        for check in checks:
            check(shadow, message, packet, sent)
        if self.ses is not None:
            self.ses.leaves(shadow, message, packet, sent)
        if sent is not None:
            self._note_sent(shadow, sent, message)
        elif kind is Ack:
            shadow.note_ack(message)
        elif kind is Nack:
            shadow.refused = True
        elif kind is Control and message.ctl_type == CtlType.ACK_REQ and message.psn in shadow.sent:
            shadow.sent[message.psn].copies = 1  # the peer has reported it; without an answer it is sent again
        if shadow not in self._touched:
            self._touched.append(shadow)

    def _first(self, shadow: PdcShadow, message: Request | Control, packet: Datagram) -> SentPacket:
        """Return the record of a first transmission; the record of the PDS tells its message."""
        record = shadow.pdc.tx.records.get(message.psn)
        if type(message) is Control:
            return SentPacket(message.psn, None, 0, b"", b"", message.ctl_type)
        track, index = None, 0
        if record is not None and record.message is not None:
            index = record.index
            track = self.tracks.get(record.message)
            if track is None:
                track = self.tracks[record.message] = TrackedMessage(self, record.message, shadow)
        return SentPacket(message.psn, track, index, packet.header[message.size :], packet.payload, None)

    def _note_sent(self, shadow: PdcShadow, sent: SentPacket, message: Request | Control) -> None:
        """Update the record of a packet after it was checked."""
        if not sent.copies:
            psn = sent.psn
            shadow.sent[psn] = sent
            shadow.expected = (psn + 1) & M32
            shadow.sent_at = self.now
            track = sent.track
            if track is not None:
                shadow.message, shadow.message_index = track.message, sent.index
                track.shadow = shadow
                if sent.index == len(track.marks):
                    track.psns.append(psn)
                    track.marks.append(OPEN)
                else:
                    track.psns[sent.index] = psn  # renumbered
            elif sent.ctl_type == CtlType.CLOSE_CMD:
                shadow.close_cmd = psn
        else:
            record = shadow.pdc.tx.records.get(sent.psn)
            if record is not None:
                sent.rto_cnt, sent.nack_cnt = record.rto_cnt, record.nack_cnt
        sent.copies += 1
        sent.at = self.now

    def _leaves_without_pdc(self, message: Rudi | Uud | Nack, packet: Datagram) -> None:
        sent = None
        if type(message) is Rudi and not message.response:
            request = self.pds.without_pdc.outstanding.get(message.pkt_id)
            sent = self.rudi_sent.get(message.pkt_id)
            if request is not None and (sent is None or sent.track is None or sent.track.message is not request.message
                                        or sent.index != request.index):  # fmt: skip
                track = self.tracks.get(request.message)
                if track is None:
                    track = self.tracks[request.message] = TrackedMessage(self, request.message, None)
                sent = SentPacket(message.pkt_id, track, request.index, packet.header, packet.payload, None)
        checks = (self.plans[Mode.UUD] if type(message) is Uud else self.plans[Mode.RUDI]).leaves.get(type(message), ())
        for check in checks:
            check(self, message, packet, sent)
        if type(message) is Uud:
            self.uud_sent += 1
        elif type(self.cause) is Uud:
            for check in self.plans[Mode.UUD].leaves.get(type(message), ()):
                check(self, message, packet, None)
        if sent is not None:
            if not sent.copies:
                self.rudi_sent[sent.psn] = sent
                assert sent.track is not None
                sent.track.psns.append(sent.psn)
                sent.track.marks.append(OPEN)
            sent.copies += 1
