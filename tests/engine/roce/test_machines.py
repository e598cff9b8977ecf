# SPDX-License-Identifier: GPL-2.0-only
"""A rule-based machine for each transport: two queue pairs, an adversarial wire, the invariants of roce.md §15.

The simulator, and the model that judges it, are those of the fuzzer (`check.roce.simulator`); here Hypothesis chooses
the steps, and makes those that fail smaller.
"""

import random
from contextlib import suppress
from typing import Any

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from tests.support.effort import examples
from tests.support.roce.world import MS, World
from uetproto.check.roce.simulator import RoceSimulator
from uetproto.check.wire import ALL
from uetproto.engine.roce.config import RoceConfig
from uetproto.engine.roce.contract import Opcode, QpState, QpType, SendFlags, Status
from uetproto.engine.roce.packets import parse
from uetproto.engine.roce.segments import KINDS
from uetproto.errors import LocalError
from uetproto.steps.roce import RoceStep, SendSpec
from uetproto.wire.headers.roce import Operation

LENGTHS = st.sampled_from([0, 1, 4, 255, 256, 257, 512, 700, 2000])
NODES = st.sampled_from([0, 1])
FLAGS = st.sampled_from([SendFlags.SIGNALED, SendFlags(0), SendFlags.SIGNALED | SendFlags.FENCE])

KNOBS = st.fixed_dictionaries({
    "credits": st.booleans(), "ack_coalesce": st.sampled_from([1, 1, 3, 8]), "ack_delay": st.sampled_from([0, MS // 3]),
    "max_unacked_psns": st.sampled_from([1, 4, 64, 2**15]), "ack_req_interval": st.sampled_from([0, 2, 64]),
    "max_rd_atomic": st.sampled_from([1, 2, 16]), "psn_nak": st.sampled_from(["once", "every"]),
    "duplicate_write": st.sampled_from(["always", "requested"]), "in_rnr_wait": st.sampled_from(["ignore", "resend"]),
    "implied_nak": st.sampled_from(["once", "every"]), "atomic_order": st.sampled_from(["little", "big"]),
    "min_rnr_timer": st.sampled_from([1, 12]), "retry_cnt_seven": st.sampled_from(["seven", "endless"]),
})  # fmt: skip
START = st.sampled_from([0, 5, 0x7FFFFE, 0xFFFFF0, 0xFFFFFF])


class Machine(RuleBasedStateMachine):
    """Whatever the wire and the applications do."""

    kind = QpType.RC
    faults = ("rkey", "domain", "right", "range", "alignment", "lkey")

    @initialize(knobs=KNOBS, psn=START, srq=st.booleans(), twin=st.booleans())
    def start(self, knobs: dict[str, Any], psn: int, srq: bool, twin: bool) -> None:
        config = {**knobs, "path_mtu": 256}
        qp = {"sq_psn": psn, "srq": srq}
        self.simulator = RoceSimulator(self.kind, (config, config), (qp, qp), twin=twin)

    def ready(self) -> bool:
        return hasattr(self, "simulator")

    def flying(self) -> bool:
        return self.ready() and bool(self.simulator.flight)

    def apply(self, action: str, node: int = 0, number: int = 0, **more: Any) -> None:
        with suppress(LocalError):  # not at this moment
            self.simulator.apply(RoceStep(action, node, number, **more))

    def packet(self, index: int) -> int:
        return list(self.simulator.flight)[index % len(self.simulator.flight)]

    # What applications do

    @precondition(ready)
    @rule(node=NODES, opcode=st.sampled_from(list(KINDS)), length=LENGTHS, flags=FLAGS, add=st.integers(1, 2**64 - 1))
    def send(self, node: int, opcode: Opcode, length: int, flags: SendFlags, add: int) -> None:
        length = min(length, self.simulator.longest)
        self.apply("send", node, length, at=length // 3, send=SendSpec(opcode, flags, add))

    @precondition(ready)
    @rule(node=NODES, opcode=st.sampled_from(list(KINDS)), fault=st.data())
    def send_wrong(self, node: int, opcode: Opcode, fault: st.DataObject) -> None:
        self.apply("send", node, 8, send=SendSpec(opcode, fault=fault.draw(st.sampled_from(self.faults))))

    @precondition(ready)
    @rule(node=NODES, short=st.integers(0, 9))
    def receive(self, node: int, short: int) -> None:
        whole = self.simulator.longest + self.simulator.headroom
        self.apply("recv", node, 100 if short == 9 else whole, at=50)

    @precondition(ready)
    @rule(node=NODES, state=st.sampled_from([QpState.SQD, QpState.RTS, QpState.SQD, QpState.RTS, QpState.ERR]))
    def modify(self, node: int, state: QpState) -> None:
        self.apply("modify", node, state=state)

    @precondition(ready)
    @rule(psn=START)
    def connect(self, psn: int) -> None:
        """Only where nothing else is left to do."""
        if any(end.qp.state is QpState.ERR for end in self.simulator.ends):
            self.apply("connect", 0, psn)

    # What the wire does

    @precondition(flying)
    @rule(index=st.integers(0, 200))
    def deliver(self, index: int) -> None:
        self.apply("deliver", 0, self.packet(index))

    @precondition(flying)
    @rule(count=st.integers(1, 60))
    def deliver_in_order(self, count: int) -> None:
        for _ in range(min(count, len(self.simulator.flight))):
            self.apply("deliver", 0, self.packet(0))

    @precondition(flying)
    @rule(index=st.integers(0, 200), action=st.sampled_from(["drop", "dup", "mark"]))
    def befall(self, index: int, action: str) -> None:
        self.apply(action, 0, self.packet(index))

    @precondition(ready)
    @rule(node=NODES, limit=st.sampled_from([0, 1, 3, ALL]))
    def allow(self, node: int, limit: int) -> None:
        self.apply("allow", node, limit)

    @precondition(ready)
    @rule(duration=st.sampled_from([1, MS // 10, MS, 3 * MS]))
    def wait(self, duration: int) -> None:
        self.apply("advance", 0, duration)

    def teardown(self) -> None:
        if self.ready():
            self.simulator.finish()


class Uc(Machine):
    kind = QpType.UC
    faults = ("rkey", "domain", "right", "range", "lkey")


class Ud(Machine):
    kind = QpType.UD
    faults = ("lkey", "qkey")


class RcRecovers(RuleBasedStateMachine):
    """Finite counts: every request ends, whatever is lost (item 9)."""

    @initialize(share=st.sampled_from([0.0, 0.05, 0.3, 0.9]), retry=st.sampled_from([0, 1, 7]),
                rnr=st.sampled_from([0, 6]), seed=st.integers(0, 2**32))  # fmt: skip
    def begin(self, share: float, retry: int, rnr: int, seed: int) -> None:
        config = RoceConfig(path_mtu=256, retry_cnt=retry, rnr_retry=rnr, min_rnr_timer=1)
        self.simulator = World(a=config)
        self.share, self.chance, self.posted = share, random.Random(seed), 0

    @rule(opcode=st.sampled_from([Opcode.SEND, Opcode.RDMA_WRITE, Opcode.RDMA_READ]), length=LENGTHS)
    def post_send(self, opcode: Opcode, length: int) -> None:
        self.simulator.send(opcode, length, wr_id=self.posted)
        self.posted += 1

    @rule()
    def post_recv(self) -> None:
        self.simulator.recv(2000)

    def teardown(self) -> None:
        if not hasattr(self, "simulator"):
            return
        self.simulator.run(lambda _: self.chance.random() >= self.share)
        assert [c.wr_id for c in self.simulator.done()] == list(range(self.posted))
        assert self.simulator.a.hca.deadline() is None or self.simulator.a.hca.quiescent


TestRc = Machine.TestCase
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
