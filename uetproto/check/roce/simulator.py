# SPDX-License-Identifier: GPL-2.0-only
"""This module simulates two adapters with one queue pair each, step by step, and checks the invariants after each
step.

A run is a function of its settings and its steps (`steps.RoceStep`). The invariants are those of roce.md §15.
"""

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from itertools import islice
from typing import Any

from uetproto.check.registry import Disruption
from uetproto.check.roce.endpoint import (
    BASE,
    FOREIGN_KEY,
    LOCAL_KEY,
    NO_KEY,
    OTHER_QKEY,
    QKEY,
    RIGHTS,
    SPARE_KEY,
    WINDOW_KEY,
    RoceEndpoint,
    parts_of,
)
from uetproto.check.roce.invariants import CompletionRecord, RoceScope, broken, endless, ends, plan
from uetproto.check.roce.model import REGION, MemoryAccess, MemoryPlace, PlaceUse, PostedReceive, PostedWork, QpShadow
from uetproto.check.roce.model import content as content_of
from uetproto.check.simulator import TRANSIT, Simulator
from uetproto.check.wire import ADDRESSES, ALL, HISTORY, DatagramWire
from uetproto.engine.contract import NEVER, SECOND
from uetproto.engine.roce.config import ENDLESS, RoceConfig
from uetproto.engine.roce.contract import (
    AddressVector,
    ModifyQp,
    Opcode,
    PostRecv,
    PostSend,
    PostSrqRecv,
    QpState,
    QpType,
    RocePacket,
    SendFlags,
    Status,
    WorkCompletion,
)
from uetproto.engine.roce.packets import Parsed, parse
from uetproto.engine.roce.psn import MASK, count_of_packets, diff
from uetproto.engine.roce.qp import Qp, bring_up_steps
from uetproto.engine.roce.requester import RcRequester
from uetproto.engine.roce.responder import RcResponder
from uetproto.engine.roce.segments import ATOMIC_SIZE, ATOMICS, KINDS
from uetproto.engine.roce.ud import GRH_SIZE
from uetproto.errors import LocalError
from uetproto.steps.roce import ACTIONS, RECV_FAULTS, SEND_FAULTS, RoceStep, SendSpec
from uetproto.wire.headers.roce import RESPONSES, Operation

LONGEST = 8
MOST_ARRIVALS = 20_000
"""Number of packets and timers without progress after which `finish` stops."""
FEW_ARRIVALS = 1_000
"""Number of packets and timers without progress after which `finish` stops, if no request has to complete."""
PATIENCE = 10 * SECOND
"""Virtual time in picoseconds without progress after which `finish` stops, unless every request must succeed."""
NEAR_WRAP = MASK - 2
"""First PSN and first MSN of a twin, which is a second simulator whose PSNs and MSNs wrap soon."""

_SILENT = (Operation.ACKNOWLEDGE, Operation.ATOMIC_ACKNOWLEDGE)
"""Answers that the limit of packets does not hold back."""


class RoceSimulator(Simulator[RoceStep, DatagramWire], actions=ACTIONS):
    """This simulator has two adapters, numbered 0 and 1, the wire between them, and the virtual time."""

    def __init__(
        self,
        kind: QpType,
        knobs: tuple[dict[str, Any], dict[str, Any]] = ({}, {}),
        qps: tuple[dict[str, Any], dict[str, Any]] = ({}, {}),
        *,
        twin: bool = False,
        judged: bool = True,
        first_msn: int = 0,
        wire: DatagramWire | None = None,
    ) -> None:
        """Connect two queue pairs. `knobs` are settings of `RoceConfig` for each end; `qps` are attributes of the
        queue pairs, and may have `srq` and `number`.

        With `twin`, a second simulator takes the same steps with PSNs and MSNs that wrap soon, and does not check
        invariants itself (`judged` is false). `wire` replaces the plain `DatagramWire`.
        """
        super().__init__(wire or DatagramWire())
        self.kind = kind
        self.configs = tuple(RoceConfig(**settings) for settings in knobs)
        self.qps = qps
        self.first_msn = first_msn
        self.judged = judged
        self.limits = [NEVER, NEVER]
        """Number of packets that each end may still send, or `NEVER` if it is not limited. Acknowledgments are not
        counted."""
        self.disruptions = Disruption.NONE
        self.guilty = False
        """Whether a step of the present connection had a fault, so that requests may fail."""
        self._damaged: set[int] = set()
        """Packets on the wire that an ICRC refuses."""
        self._oldest = 0
        """First packet of the present connection."""
        self._posted = [0, 0]
        """Number of work requests of each end; the next one is the wr_id of the next request."""
        self._plan = plan(kind, self.disruptions)
        self.ends = tuple(
            RoceEndpoint(node, kind, self.configs[node], qps[node], partial(self._accessed, node)) for node in (0, 1)
        )
        self.shadows = [QpShadow(0, 0), QpShadow(0, 0)]
        self._twin: RoceSimulator | None = None
        starts = [qp.get("sq_psn", 0) for qp in qps]
        if twin:
            near = tuple({**qp, "sq_psn": NEAR_WRAP - number} for number, qp in enumerate(qps))
            self._twin = RoceSimulator(kind, knobs, (near[0], near[1]), judged=False, first_msn=NEAR_WRAP)
        self._connect(starts)

    @property
    def path_mtu(self) -> int:
        return int(self.qps[0].get("path_mtu", self.configs[0].path_mtu))

    @property
    def longest(self) -> int:
        """Return the number of bytes of the longest message."""
        return self.path_mtu * (1 if self.kind is QpType.UD else LONGEST)

    @property
    def headroom(self) -> int:
        """Return the number of bytes that precede the message in the buffer of a receive. On UD this is the size of the
        GRH, and otherwise 0."""
        return GRH_SIZE if self.kind is QpType.UD else 0

    def node_of(self, address: int) -> int:
        return ADDRESSES.index(address)

    def peer(self, node: int) -> QpShadow:
        return self.shadows[1 - node]

    def order(self, node: int) -> Any:
        return self.configs[node].atomic_order

    @property
    def innocent(self) -> bool:
        """Return whether no step had a fault and no setting lets a request fail."""
        if self.guilty or self.disruptions:
            return False
        one, other = (end.qp.attributes for end in self.ends)
        return one.max_rd_atomic <= other.max_dest_rd_atomic and other.max_rd_atomic <= one.max_dest_rd_atomic

    @property
    def good(self) -> bool:
        """Return whether every request must succeed at last."""
        return self.innocent and all(
            endless(end.qp) and end.qp.attributes.rnr_retry == ENDLESS and end.qp.attributes.timeout
            for end in self.ends
        )

    def apply(self, step: RoceStep) -> None:
        first = self.sent
        try:
            super().apply(step)
        except LocalError:
            if self._twin is not None:
                with suppress(LocalError):
                    self._twin.apply(step)
            raise
        self._compare(lambda twin: twin.apply(step), first)

    def _compare(self, move: Callable[["RoceSimulator"], None], first: int) -> None:
        """Let the twin do the same as this simulator, and compare the packets that both have sent."""
        if self._twin is None:
            return
        if self.disruptions:
            self._twin = None  # injected bytes have PSNs of their own
            return
        try:
            move(self._twin)
        except Exception as error:
            raise broken(10, f"the shifted run stops: {type(error).__name__}: {error}") from error
        self._ask(RoceScope.PAIR, self, self._twin, first)

    def _ask(self, scope: RoceScope, *arguments: Any) -> None:
        if self.judged:
            for check in self._plan[scope]:
                check(*arguments)

    def settle(self, node: int) -> None:
        self._collect(node)
        limit = self.limits[node]
        for packet in self.ends[node].hca.poll(self.now, limit):
            if packet.payload:
                packet.header, packet.payload = bytes(packet.header) + bytes(packet.payload), b""
            self._leaves(node, packet)
        self._collect(node)
        self._ask(RoceScope.STEP, self, 0)
        self._ask(RoceScope.STEP, self, 1)

    def _leaves(self, node: int, packet: RocePacket) -> None:
        self._ask(RoceScope.BYTES, packet.header)
        parsed = parse(packet)
        if parsed is not None:
            self._note_sent(node, parsed)
            self._ask(RoceScope.PACKET, self, node, parsed)
            if self.limits[node] != NEVER and parsed.operation not in _SILENT:
                self.limits[node] = max(0, self.limits[node] - 1)
        self.wire.send([packet], self.now)

    def _note_sent(self, node: int, parsed: Parsed) -> None:
        """Find the send that a first transmission belongs to, and note its PSNs."""
        shadow = self.shadows[node]
        if (parsed.operation in RESPONSES and self.kind is QpType.RC) or parsed.opcode >> 5 != self.kind:
            return
        if parsed.psn != shadow.next & MASK:
            return
        work = shadow.begun[-1] if shadow.begun else None
        if work is None or shadow.next == work.end:
            work = shadow.begins()
            if work is None:
                return
            work.first = shadow.next
            work.end = work.first + count_of_packets(work.length, self.path_mtu)
            shadow.begun.append(work)
            shadow.next = work.end if work.answered else work.first + 1
            self._ask(RoceScope.FIRST, self, node, work)
        else:
            shadow.next += 1

    def _collect(self, node: int) -> None:
        """Take completions, and note how far the peer's requests are executed."""
        end, peer = self.ends[node], self.shadows[1 - node]
        responder = end.qp.responder
        if isinstance(responder, RcResponder):
            peer.epsn += diff(responder.epsn, peer.epsn & MASK)
            begun = peer.begun
            while peer.executed < len(begun) and begun[peer.executed].end <= peer.epsn:
                peer.executed += 1
        for event in end.hca.events():
            if isinstance(event, WorkCompletion):
                self._completed(node, event)

    def _completed(self, node: int, event: WorkCompletion) -> None:
        shadow = self.shadows[node]
        queue: Any = shadow.receives if event.receive else shadow.sends
        skipped: list[Any] = []
        work = None
        for one in queue:
            if one.wr_id == event.wr_id:
                work = one
                break
            skipped.append(one)
        done = CompletionRecord(event, work, skipped if work is not None else [], shadow.failed[event.receive])
        if event.receive and event.ok and type(work) is PostedReceive:
            done.before = self.headroom
            done.message = self._message_of(node, event, work)
        self._ask(RoceScope.COMPLETION, self, node, done)
        if done.message is not None and type(work) is PostedReceive:
            done.message.executed = True
            if done.message.far is None:
                done.message.got = bytes(work.place.data[done.before : event.byte_len])
        if not event.ok:
            if not done.flushing and event.status is not Status.WR_FLUSH_ERR:
                shadow.errors.append(event.status)
            shadow.failed[event.receive] = True
        if work is not None:
            for _ in range(len(skipped) + 1):
                queue.popleft().done = True

    def _message_of(self, node: int, event: WorkCompletion, receive: PostedReceive) -> PostedWork | None:
        """Return the peer's send that used a receive: on RC the next send that uses a receive, otherwise the latest
        send with the same data or immediate."""
        peer = self.shadows[1 - node]
        if self.kind is QpType.RC:
            while peer.delivered < len(peer.begun):
                work = peer.begun[peer.delivered]
                peer.delivered += 1
                if work.receives:
                    return work
            return None
        data = receive.place.data[self.headroom : event.byte_len]
        for work in reversed(peer.begun):
            if event.imm_data is not None:
                if work.wr_id == event.imm_data:
                    return work
            elif work.opcode is Opcode.SEND and work.data == data and not work.send.fault:
                return work
        return None

    def _accessed(self, node: int, access: MemoryAccess) -> None:
        """Note that the engine reads or writes memory; an ATOMIC begins by reading the counter."""
        place = access.place
        if place is not None and place.use is PlaceUse.COUNTER and access.data is None:
            self._begin_atomic(node)
        self._ask(RoceScope.MEMORY, self, node, access)

    def _begin_atomic(self, node: int) -> None:
        peer = self.shadows[1 - node]
        peer.writing = None
        while peer.atomics < len(peer.begun):
            work = peer.begun[peer.atomics]
            peer.atomics += 1
            if work.atomic and not work.send.fault:
                work.old = int.from_bytes(self.ends[node].counter.data, self.order(node))
                work.data = work.old.to_bytes(ATOMIC_SIZE, self.order(1 - node))
                work.executed = True
                peer.writing = work
                return

    # What the applications do

    def _do_send(self, step: RoceStep) -> None:
        node, send = step.node, step.send or SendSpec()
        end, shadow = self.ends[node], self.shadows[node]
        kind = KINDS[send.opcode]
        length = ATOMIC_SIZE if send.opcode in ATOMICS else step.number
        if length > self.longest:
            raise LocalError("send", f"{length} bytes", f"0 … {self.longest}", id="step-impossible")
        self._check_fault(send, length)
        work = PostedWork(self._posted[node], send, length, content_of(node, self._posted[node], length))
        inline = bool(send.flags & SendFlags.INLINE)
        lkey = NO_KEY if send.fault == "lkey" else LOCAL_KEY
        at, remote = 0, 0
        if not inline:
            use = PlaceUse.SINK if kind.answered else PlaceUse.SOURCE
            work.near = MemoryPlace(use, bytearray(length) if kind.answered else bytearray(work.data), work)
            at = end.local.add(work.near)
        if send.opcode in ATOMICS:
            work.data = b""
            if send.compare is None and send.opcode is Opcode.ATOMIC_CMP_AND_SWP:
                value = int.from_bytes(self.ends[1 - node].counter.data, self.order(1 - node))
                work.send = send = send._replace(compare=value)
        elif not (kind.receives and send.opcode is not Opcode.RDMA_WRITE_WITH_IMM):
            use = PlaceUse.SOURCE if kind.answered else PlaceUse.TARGET
            work.far = MemoryPlace(use, bytearray(work.data) if kind.answered else bytearray(length), work)
            remote = self.ends[1 - node].window.add(work.far)
        end.hca.submit(self._post_send(work, node, at, remote, step.at, lkey), self.now)
        self._posted[node] += 1
        self.guilty = self.guilty or bool(send.fault)
        shadow.works.append(work)
        shadow.sends.append(work)
        shadow.heard = self.now
        self.settle(node)

    def _check_fault(self, send: SendSpec, length: int) -> None:
        remote = ("rkey", "domain", "right", "range", "alignment")
        legal = send.fault in SEND_FAULTS and (length or send.fault in ("", "qkey"))
        if send.fault in remote:
            legal = legal and send.opcode not in _SENDS
        if send.fault == "alignment":
            legal = legal and send.opcode in ATOMICS
        if send.fault == "lkey":
            legal = legal and not send.flags & SendFlags.INLINE
        if not legal or (send.fault == "qkey" and self.kind is not QpType.UD):
            raise LocalError(
                "fault", f"{send.fault!r} is not legal with {send.opcode.name} of {length} bytes", id="step-impossible"
            )

    def _post_send(self, work: PostedWork, node: int, at: int, remote: int, cut: int, lkey: int) -> PostSend:
        send, length = work.send, work.length
        rkey = {"rkey": NO_KEY, "domain": FOREIGN_KEY, "right": LOCAL_KEY}.get(send.fault, WINDOW_KEY)
        if send.fault == "range":
            remote = REGION - length + (8 if send.opcode in ATOMICS else 1)
        inline = work.data if send.flags & SendFlags.INLINE else None
        more: dict[str, Any] = {}
        if send.opcode in ATOMICS:
            remote += 4 * (send.fault == "alignment")
            swap = send.opcode is Opcode.ATOMIC_CMP_AND_SWP
            more = {"compare_add": send.compare or 0, "swap": send.add} if swap else {"compare_add": send.add}
        if self.kind is QpType.UD:
            more["ah"] = AddressVector(ADDRESSES[1 - node])
            more["remote_qpn"] = self.ends[1 - node].number
            more["remote_qkey"] = OTHER_QKEY if send.fault == "qkey" else self.qps[1 - node].get("qkey", QKEY)
        return PostSend(
            qp_num=self.ends[node].number, wr_id=work.wr_id, opcode=send.opcode, send_flags=send.flags,
            imm_data=work.wr_id,
            sg_list=() if inline is not None else parts_of(at, length, cut, lkey), inline=inline,
            invalidate_rkey=SPARE_KEY if send.opcode is Opcode.SEND_WITH_INV else 0,
            remote_addr=BASE + remote, rkey=rkey, **more,
        )  # fmt: skip

    def _do_recv(self, step: RoceStep) -> None:
        node, length = step.node, step.number
        if length > self.longest + self.headroom or step.fault not in RECV_FAULTS:
            raise LocalError("recv", f"{length} bytes", f"0 … {self.longest + self.headroom}", id="step-impossible")
        end, shadow = self.ends[node], self.shadows[node]
        bad = bool(step.fault) or length < self.longest + self.headroom
        place = MemoryPlace(PlaceUse.RECEIVE, bytearray(length))
        receive = PostedReceive(self._posted[node], length, place, bad)
        place.owner = receive
        parts = parts_of(end.local.add(place), length, step.at, NO_KEY if step.fault == "lkey" else LOCAL_KEY)
        self._posted[node] += 1
        if end.srq is not None:
            end.hca.submit(PostSrqRecv(srq_num=end.srq, wr_id=receive.wr_id, sg_list=parts), self.now)
        else:
            end.hca.submit(PostRecv(qp_num=self.ends[node].number, wr_id=receive.wr_id, sg_list=parts), self.now)
        shadow.receives.append(receive)
        self.guilty = self.guilty or bad
        self.settle(node)

    def _do_modify(self, step: RoceStep) -> None:
        node = step.node
        qp, shadow = self.ends[node].qp, self.shadows[node]
        if step.state in (QpState.INIT, QpState.RTR):
            raise LocalError("modify", step.state.name, "RTS, SQD, ERR, RESET; else connect", id="step-impossible")
        held = qp.held is not None
        self.ends[node].hca.submit(
            ModifyQp(qp_num=self.ends[node].number, state=step.state, attributes=dict(step.attributes)), self.now
        )
        shadow.heard = self.now
        self.guilty = self.guilty or step.state in (QpState.ERR, QpState.RESET)
        self.guilty = self.guilty or qp.attributes.access_flags != RIGHTS
        if step.state is QpState.RESET:
            self._forget(node, held)
        elif step.state is QpState.RTS:
            shadow.failed[False] = False
        self.settle(node)

    def _forget(self, node: int, held: bool) -> None:
        """Discard all work without completions, as RESET does; unused receives of a shared queue stay."""
        shadow = self.shadows[node]
        kept = list(shadow.receives)[held:] if self.ends[node].srq is not None else []
        for work in shadow.sends:
            work.done = True
        for receive in shadow.receives:
            receive.done = not any(receive is one for one in kept)
        shadow.sends.clear()
        shadow.receives.clear()
        shadow.receives.extend(kept)

    def _do_connect(self, step: RoceStep) -> None:
        for node, end in enumerate(self.ends):
            held = end.qp.held is not None
            if end.qp.state is not QpState.RESET:
                end.hca.submit(ModifyQp(qp_num=self.ends[node].number, state=QpState.RESET), self.now)
            self._collect(node)
            self._forget(node, held)
        self.wire.flight.clear()
        self._oldest = self.sent
        self._connect([step.number & MASK, step.number & MASK] if self.judged else [NEAR_WRAP, NEAR_WRAP - 1])

    def _connect(self, starts: list[int]) -> None:
        """Bring both queue pairs up to RTS, with these first PSNs."""
        self.disruptions = Disruption.NONE
        self._plan = plan(self.kind, self.disruptions)
        for node, end in enumerate(self.ends):
            receives = self.shadows[node].receives
            start = starts[node]
            self.shadows[node] = QpShadow(start, start, epsn=start, receives=receives, heard=self.now)
            end.local.forget()
            end.window.forget()
            for state, attributes in bring_up_steps(self.kind, self.configs[node], self._wanted(node, starts)):
                end.hca.submit(ModifyQp(qp_num=self.ends[node].number, state=state, attributes=attributes), self.now)
            self._start_msn(end.qp)
        self.guilty = any(receive.bad for shadow in self.shadows for receive in shadow.receives)
        self._damaged.clear()

    def _wanted(self, node: int, starts: list[int]) -> dict[str, Any]:
        wanted = {
            "pkey_index": 0, "port": 1, "access_flags": RIGHTS, "av": AddressVector(ADDRESSES[1 - node]),
            "dest_qpn": self.ends[1 - node].number, "rq_psn": starts[1 - node], "qkey": QKEY,
        }  # fmt: skip
        return wanted | self.qps[node] | {"sq_psn": starts[node]}

    def _start_msn(self, qp: Qp) -> None:
        """Set the counters as if `first_msn` messages had been executed already."""
        if isinstance(qp.requester, RcRequester) and isinstance(qp.responder, RcResponder):
            qp.responder.msn = self.first_msn & MASK
            qp.requester.head = qp.requester.at = self.first_msn + 1
            qp.requester.posted = qp.requester.lsn = self.first_msn

    # What the wire does

    def _do_allow(self, step: RoceStep) -> None:
        limit = self.limits[step.node]
        self.limits[step.node] = NEVER if step.number == ALL else (0 if limit == NEVER else limit) + step.number
        self.shadows[step.node].heard = self.now
        self.settle(step.node)

    def _arrives(self, number: int) -> None:
        packet = self.wire.flight.pop(number)
        node = self.node_of(packet.dst)
        if number in self._damaged:
            self._damaged.discard(number)
            return
        self.ends[node].hca.receive(packet, self.now)
        self.shadows[node].heard = self.now
        self.settle(node)

    def _do_dup(self, step: RoceStep) -> None:
        for number in self._there(step) if step.number == ALL else [step.number]:
            copied = self.wire.copy(number) if number >= self._oldest else None
            if copied is None:
                raise LocalError(f"packet {number} cannot be copied any more", id="step-impossible")
            if number in self._damaged:
                self._damaged.add(copied)

    def _do_mark(self, step: RoceStep) -> None:
        for number in self._there(step):
            self.wire.mark(number)

    def _do_corrupt(self, step: RoceStep) -> None:
        """Change a bit. With an ICRC the receiver refuses the packet; without one the packet arrives changed."""
        for number in self._there(step):
            packet = self.wire.flight[number]
            data = bytearray(packet.header)
            if step.at >= len(data):
                raise LocalError("at", f"packet {number} has {len(data)} bytes", id="step-impossible")
            if self.configs[self.node_of(packet.dst)].icrc:
                self._damaged.add(number)
                continue
            data[step.at] ^= 1
            packet.header = bytes(data)
            self._ask(RoceScope.BYTES, packet.header)
            self._forged()

    def _do_inject(self, step: RoceStep) -> None:
        self._ask(RoceScope.BYTES, step.data)
        self._forged()
        node = step.node
        self.ends[node].hca.receive(RocePacket(ADDRESSES[1 - node], ADDRESSES[node], step.data), self.now)
        self.shadows[node].heard = self.now
        self.settle(node)

    def _forged(self) -> None:
        self.disruptions |= Disruption.FORGED
        self._plan = plan(self.kind, self.disruptions)

    def _do_advance(self, step: RoceStep) -> None:
        """Let time pass; then the wire drops all but its newest `HISTORY` packets."""
        self._run_to(self.now + step.number)
        for number in list(islice(self.flight, max(0, len(self.flight) - HISTORY))):
            del self.flight[number]
        for node in (0, 1):
            self._ask(RoceScope.TIME, self, node, False)

    def _due(self, node: int) -> int:
        due = self.ends[node].hca.deadline()
        return NEVER if due is None else due

    # The end

    def finish(self) -> None:
        """Let the network deliver all packets, post missing receives and resume halted queue pairs. All requests must
        then end (roce.md §15 item 9)."""
        first = self.sent
        self._become_quiet()
        self._compare(RoceSimulator.finish, first)

    def _become_quiet(self) -> None:
        for node in (0, 1):
            self.limits[node] = NEVER
            self.shadows[node].heard = self.now
            self.settle(node)
        until = self.now + PATIENCE
        most = MOST_ARRIVALS if self.good or any(ends(end.qp) for end in self.ends) else FEW_ARRIVALS
        before, left = self._progress(), most
        while left:
            left -= 1
            if not self._progresses():
                break
            if before != (now := self._progress()):
                before, left = now, most
                until = self.now + PATIENCE
            if self.now > until and not self.good:
                break
        for node in (0, 1):
            self._ask(RoceScope.TIME, self, node, True)

    def _progresses(self) -> bool:
        """Deliver one packet, or run one timer; return whether there was any."""
        self.steps += 1
        for node, end in enumerate(self.ends):
            if end.qp.state is QpState.SQD and end.qp.drained:
                self._do_modify(RoceStep("modify", node))
            if self._needs_receive(node):
                self._do_recv(RoceStep("recv", node, self.longest + self.headroom))
        if self.wire.flight:
            self._run_to(self.now + TRANSIT)
            if self.wire.flight:
                self._arrives(next(iter(self.wire.flight)))
            return True
        due = min(self._due(0), self._due(1))
        if due == NEVER:
            return False
        self._run_to(max(due, self.now))
        return True

    def _needs_receive(self, node: int) -> bool:
        """Return whether an end has no receive left for what its peer has to send."""
        able = self.ends[node].qp.state in (QpState.RTS, QpState.SQD)
        return able and not self.shadows[node].receives and any(w.receives for w in self.shadows[1 - node].sends)

    def _progress(self) -> tuple[object, ...]:
        """Return values that stay equal in a simulation that makes no progress."""
        return tuple(
            (end.qp.state, len(shadow.sends), len(shadow.receives), shadow.epsn, getattr(end.qp.requester, "una", 0))
            for end, shadow in zip(self.ends, self.shadows, strict=True)
        )


_SENDS = (Opcode.SEND, Opcode.SEND_WITH_IMM, Opcode.SEND_WITH_INV)
