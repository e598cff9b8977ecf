"""A rule-based machine for each transport: two queue pairs, an adversarial wire, the invariants of roce.md §15.

The judge is a plain dict of bytes for each side: what every work request must do to the memories, in posting order.
"""

import random
from collections import defaultdict
from typing import Any

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from tests.roce.world import BASE, MS, Side, World
from tests.strategies import examples
from uetproto.engine.roce_config import RoceConfig
from uetproto.engine.roce_contract import (
    AddressVector,
    Opcode,
    PostSend,
    QpState,
    QpType,
    SendFlags,
    Sge,
    Status,
    WorkCompletion,
)
from uetproto.engine.roce_packets import parse
from uetproto.engine.roce_psn import diff
from uetproto.errors import LocalError
from uetproto.wire.roce import Operation

SIZE = 1 << 18
COUNTER = SIZE - 64
"""The atomics of all work act on the 8 bytes there."""
RECEIVES = 1 << 16
"""Receives are behind it, below the counter, enough for all sends; WRITEs and READs before it."""
SENDING = (Opcode.SEND, Opcode.SEND_WITH_IMM)
LENGTHS = st.sampled_from([0, 1, 4, 255, 256, 257, 512, 700, 2000])

KNOBS = st.fixed_dictionaries({
    "credits": st.booleans(), "ack_coalesce": st.sampled_from([1, 1, 3, 8]), "ack_delay": st.sampled_from([0, MS // 3]),
    "max_unacked_psns": st.sampled_from([1, 4, 64, 2**15]), "ack_req_interval": st.sampled_from([0, 2, 64]),
    "max_rd_atomic": st.sampled_from([1, 2, 16]), "psn_nak": st.sampled_from(["once", "every"]),
    "duplicate_write": st.sampled_from(["always", "requested"]), "in_rnr_wait": st.sampled_from(["ignore", "resend"]),
    "implied_nak": st.sampled_from(["once", "every"]), "atomic_order": st.sampled_from(["little", "big"]),
    "min_rnr_timer": st.sampled_from([1, 12]),
})  # fmt: skip
START = st.sampled_from([0, 5, 0x7FFFFE, 0xFFFFF0, 0xFFFFFF])


class Model:
    """What a side has posted, and what must have come of it."""

    def __init__(self) -> None:
        self.sends: list[PostSend] = []
        self.receives: list[tuple[int, int, int]] = []
        """(wr_id, offset, length)."""
        self.bytes: dict[int, int] = {}
        """Of the memory: what must be at an offset; what is not here is 0."""


class Wire(RuleBasedStateMachine):
    """Rules that all transports have."""

    kind = QpType.RC
    faithful = True
    """Whatever is posted is done at last."""

    def begin(self, knobs: dict[str, Any], psn: int) -> None:
        config = RoceConfig(path_mtu=256, retry_cnt_seven="endless", max_dest_rd_atomic=16, **knobs)
        self.knobs = config
        self.world = World(self.kind, a=config, size=SIZE, psn=psn)
        self.models = {side: Model() for side in (self.world.a, self.world.b)}
        self.places = dict.fromkeys(self.models, 0)
        """Where the next WRITE or READ of a side goes: each place is used once, so that order does not matter."""
        self.receive_places = dict.fromkeys(self.models, RECEIVES)
        self.seen: dict[Side, dict[bool, list[WorkCompletion]]] = {side: {False: [], True: []} for side in self.models}
        self.counted = dict.fromkeys(self.models, 0)

    def peer(self, side: Side) -> Side:
        return self.world.b if side is self.world.a else self.world.a

    def side(self, first: bool) -> Side:
        return self.world.a if first else self.world.b

    def ready(self) -> bool:
        return hasattr(self, "world")

    def flying(self) -> bool:
        return self.ready() and bool(self.world.wire)

    # What applications do

    def post(self, side: Side, opcode: Opcode, length: int, **more: Any) -> None:
        model, number = self.models[side], len(self.models[side].sends)
        work = PostSend(qp_num=side.number, wr_id=number, opcode=opcode, imm_data=number, **more)
        side.hca.submit(work, self.world.now)
        model.sends.append(work)
        self.look()

    @precondition(ready)
    @rule(first=st.booleans(), length=LENGTHS)
    def post_recv(self, first: bool, length: int) -> None:
        side = self.side(first)
        place = self.receive_places[side]
        length = max(length, 700)
        if place + length > COUNTER:
            return
        self.receive_places[side] += length
        model = self.models[side]
        model.receives.append((len(model.receives), place, length))
        self.world.recv(length, at=place, side=side, wr_id=len(model.receives) - 1)

    # What the wire does

    @precondition(flying)
    @rule(index=st.integers(0, 200))
    def deliver(self, index: int) -> None:
        self.world.deliver(index % len(self.world.wire))
        self.look()

    @precondition(flying)
    @rule(count=st.integers(1, 60))
    def deliver_in_order(self, count: int) -> None:
        for _ in range(min(count, len(self.world.wire))):
            self.world.deliver()
        self.look()

    @precondition(flying)
    @rule(index=st.integers(0, 200))
    def drop(self, index: int) -> None:
        self.world.drop(index % len(self.world.wire))

    @precondition(flying)
    @rule(index=st.integers(0, 200))
    def duplicate(self, index: int) -> None:
        self.world.wire.append(self.world.wire[index % len(self.world.wire)])

    @precondition(ready)
    @rule(first=st.booleans(), limit=st.sampled_from([0, 1, 3]))
    def poll_a_little(self, first: bool, limit: int) -> None:
        self.world.wire += (sent := self.side(first).hca.poll(self.world.now, limit))
        self.world.log += sent
        self.look()

    @precondition(ready)
    @rule(duration=st.sampled_from([1, MS // 10, MS, 3 * MS]))
    def wait(self, duration: int) -> None:
        self.world.pass_time(duration)
        self.look()

    # What must hold at any time

    def look(self) -> None:
        """Completions: once each, in posting order per queue, nothing after the last (item 1, 6)."""
        world = self.world
        world.collect()
        for side, queues in self.seen.items():
            for event in side.events[self.counted[side] :]:
                if isinstance(event, WorkCompletion):
                    self.on_completion(side, event, queues[event.receive])
            self.counted[side] = len(side.events)
        self.check()

    def on_completion(self, side: Side, event: WorkCompletion, queue: list[WorkCompletion]) -> None:
        assert event.wr_id == len(queue), (event, len(queue))
        queue.append(event)
        if event.receive:
            assert event.wr_id < len(self.models[side].receives)
        else:
            assert event.wr_id < len(self.models[side].sends)

    def check(self) -> None:
        """What each transport has besides."""

    def teardown(self) -> None:
        if self.ready():
            self.finish()

    def finish(self) -> None:
        """A network that delivers at last."""
        self.world.run(limit=20_000)
        self.look()


def content(side_number: int, number: int, length: int) -> bytes:
    return random.Random(side_number << 32 | number).randbytes(length)


class Rc(Wire):
    """Everything arrives exactly once, whatever the wire does (items 1 to 10)."""

    kind = QpType.RC

    @initialize(knobs=KNOBS, psn=START)
    def start(self, knobs: dict[str, Any], psn: int) -> None:
        self.begin(knobs, psn)
        self.broken = False
        self.adds: dict[Side, list[int]] = defaultdict(list)
        self.olds: dict[Side, list[int]] = defaultdict(list)

    def _place(self, side: Side, length: int) -> int | None:
        """A place that no other work request of either side has, the same in both memories."""
        place = max(self.places.values())
        if place + length > RECEIVES:
            return None
        self.places[side] = place + max(length, 8)
        return place

    @precondition(Wire.ready)
    @rule(first=st.booleans(), opcode=st.sampled_from([Opcode.RDMA_WRITE, Opcode.RDMA_WRITE_WITH_IMM, *SENDING]),
          length=LENGTHS, fence=st.booleans())  # fmt: skip
    def post_send(self, first: bool, opcode: Opcode, length: int, fence: bool) -> None:
        side = self.side(first)
        length = min(length, 700) if opcode in SENDING else length
        if (place := self._place(side, length)) is None or self.broken:
            return
        data = content(side.number, len(self.models[side].sends), length)
        side.memory[place : place + length] = data
        self._expect(side, place, data)
        if opcode not in SENDING:
            self._expect(self.peer(side), place, data)
        flags = SendFlags.SIGNALED | (SendFlags.FENCE if fence else SendFlags(0))
        self.post(side, opcode, length, sg_list=side.sge(place, length), remote_addr=BASE + place,
                  rkey=self.peer(side).mr.rkey, send_flags=flags)  # fmt: skip

    @precondition(Wire.ready)
    @rule(first=st.booleans(), length=LENGTHS)
    def post_read(self, first: bool, length: int) -> None:
        side, peer = self.side(first), self.peer(self.side(first))
        if (place := self._place(side, length)) is None or self.broken:
            return
        data = content(side.number, len(self.models[side].sends), length)
        peer.memory[place : place + length] = data
        self._expect(peer, place, data)
        self._expect(side, place, data)
        self.post(side, Opcode.RDMA_READ, length, sg_list=side.sge(place, length), remote_addr=BASE + place,
                  rkey=peer.mr.rkey)  # fmt: skip

    @precondition(Wire.ready)
    @rule(first=st.booleans(), add=st.integers(1, 2**64 - 1))
    def post_fetch_and_add(self, first: bool, add: int) -> None:
        side = self.side(first)
        if (place := self._place(side, 8)) is None or self.broken:
            return
        self.adds[side].append(add)
        self.post(side, Opcode.ATOMIC_FETCH_AND_ADD, 8, sg_list=side.sge(place, 8), remote_addr=BASE + COUNTER,
                  rkey=self.peer(side).mr.rkey, compare_add=add)  # fmt: skip

    def _expect(self, side: Side, place: int, data: bytes) -> None:
        self.models[side].bytes.update(enumerate(data, place))

    @precondition(Wire.ready)
    @rule(first=st.booleans(), how=st.sampled_from(["key", "range", "misaligned", "own key", "err"]))
    def break_it(self, first: bool, how: str) -> None:
        """The end of the connection: flushed once, in order, and nothing more (item 1, 7)."""
        if self.broken or len(self.models[self.world.a].sends) < 3:
            return
        side = self.side(first)
        self.broken = True
        if how == "err":
            self.world.modify(side, QpState.ERR)
            self.look()
            return
        model, rkey = self.models[side], self.peer(side).mr.rkey
        opcode, sge, key, at = {
            "key": (Opcode.RDMA_WRITE, side.sge(0, 4), 0x9999, BASE),
            "range": (Opcode.RDMA_WRITE, side.sge(0, 4), rkey, BASE + SIZE - 2),
            "misaligned": (Opcode.ATOMIC_FETCH_AND_ADD, side.sge(0, 8), rkey, BASE + COUNTER - 1),
            "own key": (Opcode.RDMA_READ, (Sge(BASE, 4, 0x9999),), rkey, BASE),
        }[how]
        work = PostSend(
            qp_num=side.number, wr_id=len(model.sends), opcode=opcode, sg_list=sge, rkey=key, remote_addr=at
        )
        side.hca.submit(work, self.world.now)
        model.sends.append(work)
        self.look()

    def check(self) -> None:
        for side in self.models:
            requester, peer = side.qp.requester, self.peer(side)
            assert requester.unanswered <= self.knobs.max_rd_atomic  # item 8
            responder = peer.qp.responder
            assert diff(requester.next & 0xFFFFFF, responder.epsn) >= 0  # item 5
            if side.qp.state is QpState.RTS and peer.qp.state is QpState.RTS:
                assert responder.msn <= len(self.models[side].sends)  # item 4
            for event in self.seen[side][False]:
                assert self.broken or event.status is Status.SUCCESS, event

    def finish(self) -> None:
        world = self.world
        for side in self.models:
            while len(self.models[side].receives) < len(self.models[self.peer(side)].sends) and not self.broken:
                self.post_recv(side is world.a, 700)
        if self.broken:
            world.steps(400)  # who is left alone asks for ever
            self.look()
            self._judge_the_end()
            return
        super().finish()
        for side, model in self.models.items():
            peer = self.peer(side)
            assert len(self.seen[side][False]) == len(model.sends)
            wanted = [s for s in model.sends if s.opcode in (*SENDING, Opcode.RDMA_WRITE_WITH_IMM)]
            got = self.seen[peer][True]
            assert len(got) == len(wanted)
            for sent, event in zip(wanted, got, strict=True):
                _, place, _ = self.models[peer].receives[event.wr_id]
                length = sum(part.length for part in sent.sg_list)
                assert event.byte_len == length
                assert event.imm_data == (None if sent.opcode is Opcode.SEND else sent.imm_data)
                if sent.opcode in SENDING:
                    self._expect(peer, place, content(side.number, sent.wr_id, length))
            assert peer.qp.responder.msn == len(model.sends)
        self._judge_memory()

    def _judge_memory(self) -> None:
        for side, model in self.models.items():
            peer = self.peer(side)
            places = [s.sg_list[0].addr - BASE for s in model.sends if s.opcode is Opcode.ATOMIC_FETCH_AND_ADD]
            value = 0
            for place, add in zip(places, self.adds[side], strict=True):  # item 3: each add once, in order
                assert int.from_bytes(side.memory[place : place + 8], self.knobs.atomic_order) == value
                model.bytes.update(enumerate(value.to_bytes(8, self.knobs.atomic_order), place))
                value = (value + add) % 2**64
            total = value.to_bytes(8, self.knobs.atomic_order)
            self.models[peer].bytes.update(enumerate(total, COUNTER))
        for side, model in self.models.items():
            wanted = bytearray(SIZE)
            for at, value in model.bytes.items():
                wanted[at] = value
            assert side.memory == wanted  # items 2, 7

    def _judge_the_end(self) -> None:
        for side, model in self.models.items():
            if side.qp.state is not QpState.ERR:
                self.world.modify(side, QpState.ERR)
                self.look()
            statuses = [event.status for event in self.seen[side][False]]
            assert len(statuses) == len(model.sends)
            good = [status is Status.SUCCESS for status in statuses]
            assert good == sorted(good, reverse=True)
            assert all(status is Status.WR_FLUSH_ERR for status in statuses[good.count(True) + 1 :])
            assert len(self.seen[side][True]) == len(model.receives)
            side.hca.submit(PostSend(qp_num=side.number, wr_id=len(model.sends)), self.world.now)
            model.sends.append(PostSend(qp_num=side.number))
        self.look()


class Uc(Wire):
    """What arrives is whole: each receive has one message, in the order sent, some are missing (item 12)."""

    kind = QpType.UC

    @initialize(psn=START)
    def start(self, psn: int) -> None:
        self.begin({}, psn)
        self.sources: dict[Side, list[bytes]] = defaultdict(list)

    @precondition(Wire.ready)
    @rule(first=st.booleans(), opcode=st.sampled_from(SENDING), length=LENGTHS)
    def post_send(self, first: bool, opcode: Opcode, length: int) -> None:
        side = self.side(first)
        place = self.places[side]
        if place + length > RECEIVES:
            return
        self.places[side] += length
        data = content(side.number, len(self.sources[side]), length)
        side.memory[place : place + length] = data
        self.sources[side].append(data)
        self.post(side, opcode, length, sg_list=side.sge(place, length))

    def on_completion(self, side: Side, event: WorkCompletion, queue: list[WorkCompletion]) -> None:
        super().on_completion(side, event, queue)
        assert event.status is Status.SUCCESS
        if event.receive:
            _, place, length = self.models[side].receives[event.wr_id]
            assert event.byte_len <= length
            data = bytes(side.memory[place : place + event.byte_len])
            sources = self.sources[self.peer(side)]
            assert data in sources if event.imm_data is None else data == sources[event.imm_data]

    def check(self) -> None:
        for side in self.models:
            assert side.qp.state is QpState.RTS

    def finish(self) -> None:
        super().finish()
        for side, model in self.models.items():
            assert len(self.seen[side][False]) == len(model.sends)


class Ud(Uc):
    """Each datagram is whole, behind 40 bytes; it may be missing, come twice or late (item 12)."""

    kind = QpType.UD

    @initialize(psn=START)
    def start(self, psn: int) -> None:
        super().start(psn)

    @precondition(Wire.ready)
    @rule(first=st.booleans(), opcode=st.sampled_from(SENDING), length=LENGTHS, right=st.booleans() | st.just(True))
    def post_send(self, first: bool, opcode: Opcode, length: int, right: bool = True) -> None:
        side, peer = self.side(first), self.peer(self.side(first))
        place = self.places[side]
        if place + length > RECEIVES:
            return
        more = {
            "ah": AddressVector(peer.hca.address), "remote_qpn": peer.number,
            "remote_qkey": 0x11111111 if right else 0x22222222, "sg_list": side.sge(place, length),
        }  # fmt: skip
        if length > 256:
            try:
                side.hca.submit(PostSend(qp_num=side.number, opcode=opcode, **more), self.world.now)
            except LocalError as error:
                assert "sg_list" in str(error)  # noqa: PT017
                return
            raise AssertionError("a message over the MTU was taken")
        self.places[side] += length
        data = content(side.number, len(self.sources[side]), length)
        side.memory[place : place + length] = data
        self.sources[side].append(data if right else b"never")
        self.post(side, opcode, length, **more)

    def on_completion(self, side: Side, event: WorkCompletion, queue: list[WorkCompletion]) -> None:
        Wire.on_completion(self, side, event, queue)
        assert event.status is Status.SUCCESS
        if event.receive:
            _, place, length = self.models[side].receives[event.wr_id]
            assert 40 <= event.byte_len <= length
            assert bytes(side.memory[place : place + 40]) == bytes(40)
            data = bytes(side.memory[place + 40 : place + event.byte_len])
            sources = self.sources[self.peer(side)]
            assert data in sources if event.imm_data is None else data == sources[event.imm_data]


class RcRecovers(RuleBasedStateMachine):
    """Finite counts: every request ends, whatever is lost (item 9)."""

    @initialize(share=st.sampled_from([0.0, 0.05, 0.3, 0.9]), retry=st.sampled_from([0, 1, 7]),
                rnr=st.sampled_from([0, 6]), seed=st.integers(0, 2**32))  # fmt: skip
    def begin(self, share: float, retry: int, rnr: int, seed: int) -> None:
        config = RoceConfig(path_mtu=256, retry_cnt=retry, rnr_retry=rnr, min_rnr_timer=1)
        self.world = World(a=config)
        self.share, self.chance, self.posted = share, random.Random(seed), 0

    @rule(opcode=st.sampled_from([Opcode.SEND, Opcode.RDMA_WRITE, Opcode.RDMA_READ]), length=LENGTHS)
    def post_send(self, opcode: Opcode, length: int) -> None:
        self.world.send(opcode, length, wr_id=self.posted)
        self.posted += 1

    @rule()
    def post_recv(self) -> None:
        self.world.recv(2000)

    def teardown(self) -> None:
        if not hasattr(self, "world"):
            return
        self.world.run(lambda _: self.chance.random() >= self.share)
        assert [c.wr_id for c in self.world.done()] == list(range(self.posted))
        assert self.world.a.hca.deadline() is None or self.world.a.hca.quiescent


TestRc = Rc.TestCase
TestUc = Uc.TestCase
TestUd = Ud.TestCase
TestRcRecovers = RcRecovers.TestCase
TestRc.settings = TestUc.settings = TestUd.settings = TestRcRecovers.settings = settings(examples(40))


def test_sent_again_is_the_same() -> None:
    """§9: same PSN, same bytes on every retransmission; a READ moves on instead."""
    w = World(a=RoceConfig(path_mtu=256, credits=False))
    chance = random.Random(3)
    for number in range(20):
        w.recv(700, at=30000 + 700 * number)
        w.send((Opcode.SEND, Opcode.RDMA_WRITE_WITH_IMM, Opcode.RDMA_READ)[number % 3], 600, at=600 * number)
    w.run(lambda _: chance.random() > 0.1)
    assert set(w.statuses()) == {Status.SUCCESS}
    first: dict[int, bytes] = {}
    for packet in w.log:
        parsed = parse(packet)
        assert parsed is not None
        if packet.src == w.a.hca.address and parsed.operation != Operation.RDMA_READ_REQUEST:
            data = bytes(packet.header) + bytes(packet.payload)
            assert first.setdefault(parsed.psn, data) == data
    assert w.a.qp.requester.retransmitted > 0
