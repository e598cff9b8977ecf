# SPDX-License-Identifier: GPL-2.0-only
"""A RoCE adapter (HCA) is an `Engine` with queue pairs, memory regions and multicast groups (roce.md §6–§13)."""

from collections import deque
from collections.abc import Callable
from dataclasses import replace
from heapq import heappop, heappush
from typing import Any, get_args

from uetproto.engine.contract import NEVER, Datagram
from uetproto.engine.roce import messages
from uetproto.engine.roce.config import RoceConfig
from uetproto.engine.roce.contract import (
    Access,
    AddressVector,
    AsyncNotice,
    AsyncType,
    ModifyQp,
    Notified,
    PostRecv,
    PostSend,
    PostSrqRecv,
    QpState,
    QpType,
    RoceEvent,
    RocePacket,
    RoceWork,
    Status,
)
from uetproto.engine.roce.dcqcn import Rate
from uetproto.engine.roce.memory import MemoryKind, Regions, RoceMemoryRegion
from uetproto.engine.roce.packets import MessagePacket, Parsed, RocePath, congestion_notification, keys_match, parse
from uetproto.engine.roce.qp import (
    LEGAL,
    MessageUser,
    Qp,
    ReceiveQueue,
    RequesterHalf,
    ResponderHalf,
    UserMessage,
)
from uetproto.engine.roce.requester import RcRequester
from uetproto.engine.roce.responder import RcResponder
from uetproto.engine.roce.segments import KINDS
from uetproto.engine.roce.trains import admit, quiet_acks, take_quiet_ack
from uetproto.engine.roce.uc import UcRequester, UcResponder
from uetproto.engine.roce.ud import UdRequester, UdResponder, group_of, is_multicast, network_header
from uetproto.engine.roce.wr_checks import check_list, check_send
from uetproto.engine.train import ArrivingRun, Train, TrainAck
from uetproto.engine.train_splits import TrainTally
from uetproto.errors import LocalError
from uetproto.wire.headers.ethernet import ETHERNET, IPV4, IPV6, UDP
from uetproto.wire.headers.roce import CNP_OPCODE, MULTICAST_QP, RESPONSES, Transport
from uetproto.wire.icrc import ICRC_SIZE

_HALVES: dict[QpType, tuple[Callable[[Qp], RequesterHalf], Callable[[Qp], ResponderHalf]]] = {
    QpType.RC: (RcRequester, RcResponder),
    QpType.UC: (UcRequester, UcResponder),
    QpType.UD: (UdRequester, UdResponder),
}

_BURST = 16
"""Largest number of packets that a queue pair sends before the next queue pair sends."""
_FIRST_QP = 0x11
"""Number of the first queue pair. The numbers 0 and 1 are for management (roce.md §2)."""
_CNP_BODY = bytes(16)


class Hca:
    """An adapter has one port and one address. It is an `Engine` with `RocePacket`, `RoceWork` and `RoceEvent`.

    A call that is not legal raises `LocalError`. A received packet never causes an exception; `counters` counts dropped
    packets by reason.
    """

    def __init__(
        self, address: int, *, config: RoceConfig | None = None, ip_version: int = 4, pkeys: tuple[int, ...] = (0xFFFF,)
    ) -> None:
        self.address = address
        self.ip_version = ip_version
        self.config = config or RoceConfig()
        self.pkeys = pkeys
        self.line_rate: int | None = None
        """Line speed of the port in bits a second, which the driver sets. DCQCN starts with this rate, and does not run
        if it is None (roce.md §13)."""
        self._below = ETHERNET.size + (IPV4 if ip_version == 4 else IPV6).size + UDP.size + ICRC_SIZE
        """Number of bytes that a RoCEv2 frame has in addition to the `RocePacket`."""
        self.regions = Regions()
        self.qps: dict[int, Qp] = {}
        self.srqs: dict[int, ReceiveQueue] = {}
        self.groups: dict[int, list[int]] = {}
        """Numbers of the queue pairs that are attached to each multicast group, by the address of the group."""
        self.pending_events: list[RoceEvent] = []
        self.counters: dict[str, int] = {}
        """Number of dropped and repeated packets by reason."""
        self.retransmitted: dict[str, int] = {}
        """Number of retransmitted requests for each cause, for instance `requester.TIMEOUT`."""
        self.trains = False
        """Whether packets are sent as trains where nothing distinguishes them."""
        self.tally = TrainTally()
        self._pds = 0
        self._srq_numbers = 0
        self._out: list[RocePacket] = []
        self._looped: deque[tuple[RocePacket, int]] = deque()
        self._active: dict[int, None] = {}
        """Numbers of the queue pairs that may have packets to send, in the order in which they send."""
        self._timers: list[tuple[int, int]] = []
        """Heap of pairs of time and queue pair number. A time may be too early, as nearly every packet restarts a
        timer."""

    # Objects

    def alloc_pd(self) -> int:
        """Allocate a protection domain and return its number (ibv_alloc_pd)."""
        self._pds += 1
        return self._pds

    def _check_pd(self, pd: int) -> None:
        if not 1 <= pd <= self._pds:
            raise LocalError("pd", f"{pd!r} is none of the {self._pds} allocated", id="not-registered")

    def reg_mr(
        self, pd: int, memory: Any, *, addr: int = 0, access: int = Access.LOCAL_WRITE, rkey: int | None = None,
        kind: MemoryKind = MemoryKind.HOST,
    ) -> RoceMemoryRegion:  # fmt: skip
        """Register `memory`, whose first byte gets the virtual address `addr` (ibv_reg_mr)."""
        self._check_pd(pd)
        return self.regions.register(pd, memory, addr, access, rkey, kind)

    def dereg_mr(self, region: RoceMemoryRegion) -> None:
        """Remove a region (ibv_dereg_mr)."""
        self.regions.deregister(region)

    def create_srq(self, pd: int, limit: int = 0) -> int:
        """Create a shared receive queue and return its number (ibv_create_srq).

        SRQ_LIMIT_REACHED is reported when the queue has fewer than `limit` receives.
        """
        self._check_pd(pd)
        self._srq_numbers += 1
        queue = self.srqs[self._srq_numbers] = ReceiveQueue(pd, self._srq_numbers, True)
        queue.limit = limit
        return queue.number

    def modify_srq(self, number: int, limit: int) -> None:
        """Set the limit of a shared receive queue for the next SRQ_LIMIT_REACHED (ibv_modify_srq)."""
        self._srq(number).limit = limit

    def _srq(self, number: int) -> ReceiveQueue:
        if number not in self.srqs:
            raise LocalError("srq_num", f"there is no shared receive queue {number!r}", id="not-registered")
        return self.srqs[number]

    def create_qp(
        self, kind: QpType, pd: int, *, number: int | None = None, srq: int | None = None, max_send_wr: int = 1 << 16,
        max_recv_wr: int = 1 << 16,
    ) -> int:  # fmt: skip
        """Create a queue pair in RESET and return its number (ibv_create_qp)."""
        self._check_pd(pd)
        if number is None:
            number = _FIRST_QP
            while number in self.qps:
                number += 1
        if not 0 <= number < MULTICAST_QP or number in self.qps:
            raise LocalError(
                "number", f"{number!r} is not legal", "24 bits that no other queue pair has", id="already-there"
            )
        receives = ReceiveQueue(pd, number, False) if srq is None else self._srq(srq)
        self.qps[number] = Qp(self, number, QpType(kind), pd, receives, max_send_wr, max_recv_wr)
        return number

    def destroy_qp(self, number: int) -> None:
        """Destroy a queue pair (ibv_destroy_qp)."""
        qp = self._qp(number)
        qp.reset()
        del self.qps[number]
        self._active.pop(number, None)
        for members in self.groups.values():
            if number in members:
                members.remove(number)

    def _qp(self, number: int) -> Qp:
        if number not in self.qps:
            raise LocalError("qp_num", f"there is no queue pair {number!r}", id="unknown-queue-pair")
        return self.qps[number]

    def attach_mcast(self, number: int, gid: int) -> None:
        """Attach a queue pair to a multicast group, unless it is already attached (ibv_attach_mcast)."""
        members = self._members(number, gid)
        if number not in members:
            members.append(number)

    def detach_mcast(self, number: int, gid: int) -> None:
        """Detach a queue pair from a multicast group (ibv_detach_mcast)."""
        members = self._members(number, gid)
        if number not in members:
            raise LocalError("gid", f"queue pair {number:#x} is not attached to {gid:#x}", id="not-registered")
        members.remove(number)

    def _members(self, number: int, gid: int) -> list[int]:
        group = group_of(gid)
        if self._qp(number).kind is not QpType.UD:
            raise LocalError("qp_num", f"{number:#x} is not legal", "a queue pair of type UD", id="not-with-mode")
        if not is_multicast(group, self.ip_version):
            raise LocalError("gid", f"{gid:#x} is no multicast group of IPv{self.ip_version}", id="wrong-address")
        return self.groups.setdefault(group, [])

    # The five calls

    def receive(self, packet: Datagram, now: int) -> None:
        """Process a received packet, which has the bytes from the BTH to the pad. The driver has checked the ICRC.

        Received bytes never cause an exception.
        """
        if not isinstance(packet, RocePacket):
            packet = RocePacket(
                packet.src, packet.dst, packet.header, packet.payload, packet.traffic_class, packet.entropy,
                packet.ecn_marked, packet.trimmed, packet.ip_version,
            )  # fmt: skip
        parsed = parse(packet)
        if parsed is None:
            self.count("length")
        elif parsed.tver:
            self.count("version")
        elif parsed.destqp == MULTICAST_QP:
            for number in tuple(self.groups.get(packet.dst, ())):
                self._deliver(self.qps[number], parsed, now)
        else:
            qp = self.qps.get(parsed.destqp)
            if qp is None:
                self.count("destqp")
            else:
                self._deliver(qp, parsed, now)

    def submit(self, work: RoceWork, now: int) -> None:
        """Post a send or a receive, or modify a queue pair. Raises `LocalError` for work that is not legal."""
        if isinstance(work, PostSend):
            self._post_send(work, now)
        elif isinstance(work, PostRecv):
            self._post_recv(work)
        elif isinstance(work, PostSrqRecv):
            check_list(work.sg_list)
            self._srq(work.srq_num).items.append(work)
        elif isinstance(work, ModifyQp):
            self._modify(self._qp(work.qp_num), work.state, work.attributes)
        else:
            legal = ", ".join(kind.__name__ for kind in get_args(RoceWork))
            raise LocalError("work", f"{type(work).__name__} is not legal", legal, id="wrong-type")

    def poll(self, now: int, limit: int = NEVER) -> list[RocePacket]:
        """Run the timers that are due, and return the packets to send.

        At most `limit` of these packets are requests or packets of READ responses. Other responses are not limited.
        """
        self._run_timers(now)
        left, turns = limit, len(self._active)
        while self._active and turns:
            turns -= 1
            number = next(iter(self._active))
            del self._active[number]
            qp = self.qps[number]
            burst = min(left, _BURST)
            if qp.rate is None:
                sent = self._pump(qp, now, burst)
                more = sent == burst
            else:
                sent, more = self._pump_paced(qp, qp.rate, now, burst)
            left -= sent
            if more:
                self._active[number] = None
                turns += 1 if left else 0
            self._schedule_timer(qp)
            while self._looped:
                packet, at = self._looped.popleft()
                self.receive(packet, at)
        out, self._out = self._out, []
        return out

    def _pump(self, qp: Qp, now: int, budget: int) -> int:
        sent = qp.responder.pump(now, self._out, budget) if qp.responder is not None else 0
        if qp.requester is not None:
            sent += qp.requester.pump(now, self._out, budget - sent)
        return sent

    def _pump_paced(self, qp: Qp, rate: Rate, now: int, budget: int) -> tuple[int, bool]:
        """Let a queue pair with a DCQCN rate send; return the number of packets, and whether it may send more now.

        Below line speed a packet with data waits for the time that the last one takes at the rate (roce.md §13).
        Requests without data keep their order among packets with data; responses without data never wait.
        """
        paced = rate.rate(now) < rate.line
        if now < rate.ready_at:
            budget = 0
        elif paced:
            budget = min(budget, 1)
        start = len(self._out)
        sent = self._pump(qp, now, budget)
        if paced:
            for packet in self._out[start:]:
                if len(packet.payload):
                    rate.sent(self._below + len(packet.header) + len(packet.payload), now)
        full = sent == budget
        rate.waits = full and now < rate.ready_at
        return sent, full and not rate.waits

    def deadline(self) -> int | None:
        """Return the latest time of the next `poll`, or None if no timer is armed."""
        return self._timers[0][0] if self._timers else None

    def events(self) -> list[RoceEvent]:
        """Return the events that have occurred since the last call."""
        happened, self.pending_events = self.pending_events, []
        return happened

    @property
    def quiescent(self) -> bool:
        """Return True when no packet is to be sent, no response is awaited and no request is to be answered."""
        return not (self._active or self._out) and not any(
            (qp.requester and qp.requester.busy) or (qp.rate and qp.rate.waits) for qp in self.qps.values()
        )

    # Trains (`train.TrainEngine`)

    def use_trains(self) -> bool:
        self.trains = True
        return True

    def only_sends(self, now: int) -> bool:
        return False  # all packets that have arrived are processed before each poll

    def admit(self, train: Train, index: int, polled: bool) -> ArrivingRun | None:
        return admit(self, train, index, polled)

    def quiet_acks(self, receiver: int, psn: int, polled: bool) -> int | None:
        return quiet_acks(self, receiver, psn, polled)

    def take_quiet_ack(self, ack: TrainAck, now: int) -> bool:
        return take_quiet_ack(self, ack, now)

    # Messages (`messages`)

    def serve_messages(self, number: int, user: MessageUser) -> None:
        """Send and receive the messages of a queue pair with less work where nothing distinguishes them."""
        self._qp(number).messages = user

    def send_message(self, message: UserMessage, now: int) -> None:
        """Post a SEND of inline bytes that asks for a completion, as a `PostSend` does."""
        qp = self.qps.get(message.qp_num)
        if (
            qp is None or qp.requester is None or qp.behaviour.post_send != "queue"
            or qp.requester.posted_now >= qp.max_send_wr
        ):  # fmt: skip
            self._post_send(message.work(), now)
        else:
            qp.requester.post_message(message)
            self.mark_active(qp)

    def take_message(self, packet: object, now: int) -> bool:
        """Process a packet whose frame the driver has recognized. Return False if `receive` must take the frame."""
        return isinstance(packet, MessagePacket) and messages.take(self, packet, now)

    def is_active(self, qp: Qp) -> bool:
        """Return whether the next poll lets a queue pair send."""
        return qp.number in self._active

    def is_still(self, qp: Qp, polled: bool) -> bool:
        """Return whether a packet that causes nothing leaves a poll nothing to do, now if `polled`, or else later."""
        if not polled:
            self.mark_active(qp)
            return True
        idle = qp.requester is None or not qp.requester.posted_now
        return idle and qp.rate is None and not (self._active or self._out or self._looped)

    # Packets

    def count(self, what: str) -> None:
        self.counters[what] = self.counters.get(what, 0) + 1

    def _deliver(self, qp: Qp, parsed: Parsed, now: int) -> None:
        """Apply the rest of check 1 (roce.md §8) to a packet: drop and count it, or hand it to the queue pair."""
        if parsed.opcode >> 5 == Transport.CNP:
            self._notified(qp, parsed, now)
            return
        response = parsed.operation in RESPONSES
        if parsed.opcode >> 5 != qp.kind:
            self.count("transport")
        elif not (qp.behaviour.finishes if response else qp.behaviour.serves):
            self.count("state")
        elif not keys_match(parsed.p_key, qp.p_key):
            self.count("p_key")
        elif qp.kind is not QpType.UD and parsed.packet.src != qp.attributes.av.dst:
            self.count("peer")
        elif response:
            if parsed.known and qp.requester is not None:
                if parsed.packet.ecn_marked:
                    self._answer_mark(qp, parsed, now)
                qp.requester.take(parsed, now)
                self.mark_active(qp)
            else:
                self.count("unknown opcode")
        elif qp.responder is not None:
            if qp.state is QpState.RTR and not qp.established:
                qp.established = True
                self.pending_events.append(AsyncNotice(AsyncType.COMM_EST, qp.number))
            if parsed.packet.ecn_marked and parsed.known:
                self._answer_mark(qp, parsed, now)
            qp.responder.take(parsed, now)
            self.mark_active(qp)

    def _notified(self, qp: Qp, parsed: Parsed, now: int) -> None:
        """Handle a CNP, which has no PSN and no acknowledgement (roce.md §13); its default P_Key is not checked."""
        if not parsed.known:
            self.count("unknown opcode")
        elif not qp.behaviour.serves:
            self.count("state")
        elif qp.kind is not QpType.UD and parsed.packet.src != qp.attributes.av.dst:
            self.count("peer")
        else:
            self.count("cnp received")
            self.pending_events.append(Notified(qp.number))
            if self.config.congestion == "dcqcn" and self.line_rate is not None:
                if qp.rate is None:
                    qp.rate = Rate(self.config, self.line_rate)
                qp.rate.on_cnp(now)

    def _answer_mark(self, qp: Qp, parsed: Parsed, now: int) -> None:
        """Send a CNP for marked data of a request or a READ response, at most one in `cnp_interval` (roce.md §13)."""
        if not self.config.notifies or not len(parsed.payload) or now < qp.next_cnp:
            return
        qp.next_cnp = now + self.config.cnp_interval
        remote = parsed.values["srcqp"] if qp.kind is QpType.UD else qp.attributes.dest_qpn
        peer = AddressVector(parsed.packet.src)
        path = RocePath(qp.kind, qp.number, self.address, self.ip_version, peer, remote, qp.p_key, self.config)
        self._out.append(congestion_notification(path, CNP_OPCODE, _CNP_BODY))
        self.count("cnp sent")

    def loop_back(self, packet: RocePacket, now: int) -> None:
        """Deliver a copy of a multicast packet that this adapter sends. The copy goes to the queue pairs of the same
        adapter that are attached to the group (roce.md §11).
        """
        if self.groups.get(packet.dst):
            self._looped.append((replace(packet, network=network_header(packet, self.config)), now))

    # Work

    def _post_send(self, work: PostSend, now: int) -> None:
        qp = self._qp(work.qp_num)
        how = qp.behaviour.post_send
        if how == "refuse":
            raise LocalError(
                "qp_num", f"{qp.number:#x} is in {qp.state.name}; post_send is legal from RTS on", id="wrong-state"
            )
        check_send(qp, work)
        if how == "flush":
            qp.complete_send(work, KINDS[work.opcode].completion, Status.WR_FLUSH_ERR, 0, 0)
            return
        assert qp.requester is not None
        qp.requester.post(work)
        self.mark_active(qp)

    def _post_recv(self, work: PostRecv) -> None:
        qp = self._qp(work.qp_num)
        check_list(work.sg_list)
        if qp.receives.shared:
            raise LocalError("qp_num", f"{qp.number:#x} has a shared receive queue", "PostSrqRecv", id="not-with-mode")
        if qp.behaviour.post_recv == "refuse":
            raise LocalError(
                "qp_num", f"{qp.number:#x} is in {qp.state.name}; post_recv is legal from INIT on", id="wrong-state"
            )
        if qp.behaviour.post_recv == "flush":
            qp.held = work
            qp.end_receive(Status.WR_FLUSH_ERR)
        elif len(qp.receives.items) >= qp.max_recv_wr:
            raise LocalError(
                "qp_num", f"{qp.max_recv_wr} receives are posted on {qp.number:#x} (max_recv_wr)", id="queue-full"
            )
        else:
            qp.receives.items.append(work)

    def _modify(self, qp: Qp, state: QpState, given: dict[str, Any]) -> None:
        old = qp.state
        if state not in LEGAL[old] or (old is QpState.SQD and state is QpState.RTS and not qp.drained):
            legal = ", ".join(to.name for to in LEGAL[old] if old is not QpState.SQD or qp.drained or to.name != "RTS")
            raise LocalError("state", f"{old.name} → {QpState(state).name} is not legal", legal, id="wrong-state")
        if state is QpState.RESET:
            qp.reset()
            self._active.pop(qp.number, None)
            return
        qp.attributes.check(qp.kind, old, state, given, len(self.pkeys))
        qp.set(given)
        if state is QpState.ERR:
            if qp.responder is not None:
                qp.responder.forget()
            qp.to_error()
            return
        qp.enter(state)
        make_requester, make_responder = _HALVES[qp.kind]
        if state is QpState.RTR:
            qp.responder = make_responder(qp)
        elif state is QpState.RTS and qp.requester is None:
            qp.requester = make_requester(qp)
        qp.drained = state is QpState.SQD and qp.drained
        qp.drain()
        self.mark_active(qp)

    # Time

    def mark_active(self, qp: Qp) -> None:
        """Mark a queue pair, so that the next `poll` sends its packets and reads its deadline."""
        self._active[qp.number] = None

    def _schedule_timer(self, qp: Qp) -> None:
        at = min(
            qp.requester.deadline() if qp.requester is not None else NEVER,
            qp.responder.deadline() if qp.responder is not None else NEVER,
        )
        if qp.rate is not None:
            at = min(at, qp.rate.deadline())
        if at < qp.queued_at:
            qp.queued_at = at
            heappush(self._timers, (at, qp.number))

    def _run_timers(self, now: int) -> None:
        while self._timers and self._timers[0][0] <= now:
            at, number = heappop(self._timers)
            qp = self.qps.get(number)
            if qp is None or qp.queued_at != at:
                continue
            qp.queued_at = NEVER
            if qp.rate is not None:
                qp.rate.waits = False  # the next poll lets the queue pair send, and sets the flag again
            if qp.responder is not None:
                qp.responder.on_time(now)
            if qp.requester is not None:
                qp.requester.on_time(now)
            self.mark_active(qp)
