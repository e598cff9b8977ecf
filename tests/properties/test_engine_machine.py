# SPDX-License-Identifier: GPL-2.0-only
"""PDC and SES over an adversarial wire: whatever it does, exactly the bytes sent arrive (pds.md §18, ses.md §15)."""

import random
from contextlib import suppress
from typing import Any

import hypothesis.strategies as st
from hypothesis import given, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from tests.support.effort import examples
from tests.support.engine.fep_world import Adversity, FepWorld
from uetproto.check.uet.simulator import UetSimulator
from uetproto.check.uet.step_generator import PROFILES, UetStepGenerator
from uetproto.engine import (
    PDC_MODES,
    AskClose,
    Close,
    Completion,
    Fep,
    Mode,
    PdsConfig,
    Preset,
    Region,
    SesConfig,
    Write,
)
from uetproto.engine.pds.states import Role, State
from uetproto.errors import LocalError
from uetproto.steps.uet import ANSWERS, MessageSpec, UetStep

A, B, JOB, KEY, SIZE = 1, 2, 101, 7, 64 * 1024
MS = 10**9
ENDLESS = {"max_rto_retx_cnt": 15, "max_nack_retx_cnt": 31, "idle_time": 0}

KNOBS = st.fixed_dictionaries({
    "mp_range": st.sampled_from([128, 256, 1024]), "default_mpr": st.sampled_from([1, 2, 8]),
    "ack_gen_trigger": st.sampled_from([0, 2048, 16384]), "enb_ack_per_pkt": st.booleans(),
    "ack_cc": st.sampled_from(["when_gap", "always", "never"]), "clear_cmd": st.sampled_from(["timer", "immediate"]),
    "sack_base": st.sampled_from(["tracked", "trigger", "cack_plus_1"]),
    "dup_without_retx": st.sampled_from(["drop", "answer"]), "ar_on_eom": st.booleans(),
    "ack_on_gap_close": st.booleans(),
    "window_base": st.sampled_from(["clear", "cack"]), "clear_at": st.sampled_from(["packet", "message"]),
    "clear_on_retransmission": st.sampled_from(["current", "as_first_sent"]),
    "closing_ack": st.sampled_from(["at_close_psn", "before_close_psn"]),
    "ack_copies_retx": st.booleans(), "ack_req_ar": st.booleans(),
})  # fmt: skip
START = st.sampled_from([None, 1, 0x7FFFFFF0, 0xFFFFFFF8, 0xFFFFFFFF])


def simulator(knobs: dict[str, Any], start: int | None, latency: int = 0, seed: int = 0) -> tuple[FepWorld, bytearray]:
    ses = SesConfig(payload_mtu=1024, write_latency=latency, idle_message_time=0)
    a, b = (Fep(n, random.Random(seed + n), pds=PdsConfig(**{**ENDLESS, **knobs}), ses=ses) for n in (A, B))
    a.pds.preset(Preset(start_psn=start))
    memory = bytearray(SIZE)
    b.attach(JOB).register(Region(KEY, memory))
    return FepWorld(a, b), memory


class Transfers(RuleBasedStateMachine):
    """Single steps of the wire, chosen by Hypothesis; `FepWorld` checks the invariants after each."""

    @initialize(
        knobs=KNOBS, mode=st.sampled_from(PDC_MODES), start=START, latency=st.sampled_from([0, 0, 3 * MS]),
    )  # fmt: skip
    def begin(self, knobs: dict[str, Any], mode: Mode, start: int | None, latency: int) -> None:
        self.mode = mode
        self.simulator, self.memory = simulator(knobs, start, latency)
        self.expected = bytearray(SIZE)
        self.outcome: dict[int, bool] = {}
        self.at = 0

    @rule(length=st.sampled_from([0, 1, 1023, 1024, 1025, 3000, 9000]), good=st.booleans() | st.just(True),
          dc=st.booleans(), data=st.none() | st.integers(0, 2**64 - 1))  # fmt: skip
    def write(self, length: int, good: bool, dc: bool, data: int | None) -> None:
        if self.at + length > SIZE:
            return
        content = random.Random(self.at).randbytes(length)
        number = len(self.outcome)
        self.outcome[number] = good
        self.simulator.submit(A, Write(
            peer=B, data=content, key=KEY if good else KEY + 1, job_id=JOB, offset=self.at, mode=self.mode,
            context=number, delivery_complete=dc, completion_data=data,
        ))  # fmt: skip
        if good:
            self.expected[self.at : self.at + length] = content
        self.at += length

    def _flying(self) -> bool:
        return hasattr(self, "simulator") and bool(self.simulator.wire.flight)

    @precondition(_flying)
    @rule(index=st.integers(0, 200))
    def deliver(self, index: int) -> None:
        self.simulator.deliver(self.simulator.number(index))

    @precondition(_flying)
    @rule(count=st.integers(1, 40))
    def deliver_in_order(self, count: int) -> None:
        for _ in range(min(count, len(self.simulator.wire.flight))):
            self.simulator.deliver(self.simulator.number(0))

    @precondition(_flying)
    @rule(index=st.integers(0, 200))
    def drop(self, index: int) -> None:
        del self.simulator.wire.flight[self.simulator.number(index)]

    @precondition(_flying)
    @rule(index=st.integers(0, 200))
    def duplicate(self, index: int) -> None:
        self.simulator.wire.copy(self.simulator.number(index))

    @precondition(_flying)
    @rule(index=st.integers(0, 200), last=st.booleans())
    def trim(self, index: int, last: bool) -> None:
        self.simulator.wire.trim(self.simulator.number(index), last)

    @precondition(_flying)
    @rule(index=st.integers(0, 200))
    def mark(self, index: int) -> None:
        self.simulator.wire.mark(self.simulator.number(index))

    @rule(duration=st.sampled_from([1, MS // 2, MS, 5 * MS, 40 * MS]))
    def wait(self, duration: int) -> None:
        self.simulator.pass_time(duration)

    def _open(self) -> bool:
        return hasattr(self, "simulator") and bool(self.simulator.feps[A].pds.pdcs)

    @precondition(_open)
    @rule()
    def close(self) -> None:
        self.simulator.submit(A, Close(peer=B))

    def _target_open(self) -> bool:
        if not hasattr(self, "simulator"):
            return False
        return any(
            p.state is State.ESTABLISHED for p in self.simulator.feps[B].pds.pdcs.values() if p.role is Role.TARGET
        )

    @precondition(_target_open)
    @rule()
    def target_asks_for_close(self) -> None:
        pdcs = self.simulator.feps[B].pds.pdcs.values()
        self.simulator.submit(B, AskClose(pdcid=next(p.local_id for p in pdcs if p.state is State.ESTABLISHED)))

    def teardown(self) -> None:
        """A network that finally delivers: everything arrives, is answered, cleared and closed (items 49–51)."""
        if not hasattr(self, "simulator"):
            return
        simulator, chance = self.simulator, random.Random(1)
        simulator.run(chance, Adversity())
        done = {e.context: e.ok for e in simulator.events[A] if isinstance(e, Completion)}
        errors = [e for e in simulator.events[A] if isinstance(e, Completion) and e.error is not None]
        assert not errors
        assert done == self.outcome
        assert self.memory == self.expected
        if any(p.role is Role.INITIATOR for p in simulator.feps[A].pds.pdcs.values()):
            simulator.submit(A, Close(peer=B))
        simulator.run(chance, Adversity())
        assert not simulator.feps[A].pds.pdcs
        assert not simulator.feps[B].pds.pdcs
        assert not simulator.feps[B].target.messages


TestTransfers = Transfers.TestCase
TestTransfers.settings = settings()  # those of the profile


class Steps(RuleBasedStateMachine):
    """PDS alone, scripted SES, every mode: single steps of `check.uet.simulator.UetSimulator`, chosen by Hypothesis."""

    @initialize(
        knobs=KNOBS, start=START, objects=st.booleans(), secure=st.sampled_from(["off", "off", "expected", "random"]),
    )  # fmt: skip
    def begin(self, knobs: dict[str, Any], start: int | None, objects: bool, secure: str) -> None:
        settings = {
            **ENDLESS,
            **knobs,
            "secure_start": secure,
            "close_req_time": 10_000 * MS,
            "pend_timeout": 600_000 * MS,
        }
        self.simulator = UetSimulator(1, (settings, settings), (Preset(start_psn=start), Preset()), objects=objects)
        self.messages = 0

    def apply(self, step: UetStep) -> None:
        with suppress(LocalError):  # there is no such PDC
            self.simulator.apply(step)

    @rule(mode=st.sampled_from(Mode), op=st.sampled_from(["send", "read", "write"]), answer=st.sampled_from(ANSWERS),
          packets=st.sampled_from([1, 1, 2, 5, 200]), node=st.integers(0, 1))  # fmt: skip
    def submit(self, mode: Mode, op: str, answer: str, packets: int, node: int) -> None:
        self.messages += 1
        if mode is Mode.UUD:
            op, packets = "send", 1
        elif mode is Mode.RUDI and op == "send":
            op = "write"
        if op != "read" and answer in ("data", "return"):
            answer = "ok"
        self.apply(UetStep("submit", node, message=MessageSpec(packets, mode, op, self.messages, answer)))

    def _flying(self) -> bool:
        return hasattr(self, "simulator") and bool(self.simulator.flight)

    def number(self, index: int) -> int:
        return list(self.simulator.flight)[index % len(self.simulator.flight)]

    @precondition(_flying)
    @rule(action=st.sampled_from(["deliver", "deliver", "deliver", "drop", "dup", "trim", "mark"]),
          index=st.integers(0, 300), last=st.integers(0, 1))  # fmt: skip
    def packet(self, action: str, index: int, last: int) -> None:
        self.apply(UetStep(action, 0, self.number(index), last))

    @precondition(_flying)
    @rule(count=st.integers(1, 60))
    def deliver_in_order(self, count: int) -> None:
        for _ in range(min(count, len(self.simulator.flight))):
            self.apply(UetStep("deliver", 0, self.number(0)))

    @precondition(lambda self: hasattr(self, "simulator") and self.simulator.sent)
    @rule(back=st.integers(1, 900))
    def stale(self, back: int) -> None:
        self.apply(UetStep("dup", 0, self.simulator.sent - back))

    @rule(duration=st.sampled_from([1, MS // 2, MS, 5 * MS, 40 * MS, 2500 * MS]))
    def wait(self, duration: int) -> None:
        self.apply(UetStep("advance", 0, duration))

    @rule(node=st.integers(0, 1), answer=st.sampled_from(["ok", "gtd", "no_response"]), index=st.integers(0, 300))
    def respond(self, node: int, answer: str, index: int) -> None:
        waiting = list(self.simulator.ses[node].waiting)
        if waiting:
            self.apply(UetStep("respond", node, waiting[index % len(waiting)][1], 0, answer))

    @rule(action=st.sampled_from(["close", "ask_close", "noop", "negotiate", "probe", "ask_credit", "give_credit"]),
          node=st.integers(0, 1))  # fmt: skip
    def wish(self, action: str, node: int) -> None:
        self.apply(UetStep(action, node, 5))

    def teardown(self) -> None:
        if hasattr(self, "simulator"):
            self.simulator.finish()


TestSteps = Steps.TestCase
TestSteps.settings = settings()


@given(seed=st.integers(0, 2**32), profile=st.sampled_from(list(PROFILES)))
@examples(40)
def test_episodes(seed: int, profile: str) -> None:
    """The seeded loop of the fuzzer."""
    chance = random.Random(seed)
    generator = UetStepGenerator(profile, chance)
    w = UetSimulator(seed, generator.knobs, generator.presets, objects=bool(seed % 2))
    for _ in range(300):
        with suppress(LocalError):  # not at this moment
            w.apply(generator.choose(w))
    w.finish()


@given(
    seed=st.integers(0, 2**32), knobs=KNOBS, mode=st.sampled_from(PDC_MODES), start=START,
    adversity=st.builds(
        Adversity, drop=st.sampled_from([0.0, 0.05, 0.3]), duplicate=st.sampled_from([0.0, 0.1]),
        reorder=st.sampled_from([0.0, 0.2, 1.0]), trim=st.sampled_from([0.0, 0.1]), mark=st.sampled_from([0.0, 0.1]),
    ),
)  # fmt: skip
@examples(25)
def test_transfers_by_chance(
    seed: int, knobs: dict[str, Any], mode: Mode, start: int | None, adversity: Adversity
) -> None:
    """Longer runs, more packets than a window."""
    chance = random.Random(seed)
    w, memory = simulator(knobs, start, seed=seed)
    content = chance.randbytes(SIZE)
    for at in range(0, SIZE, 20_000):
        w.submit(A, Write(peer=B, data=content, start=at, length=min(20_000, SIZE - at), offset=at, key=KEY,
                          job_id=JOB, mode=mode))  # fmt: skip
    w.run(chance, adversity)
    assert memory == content
    w.submit(A, Close(peer=B))
    w.run(chance, adversity)


@given(seed=st.integers(0, 2**32), mode=st.sampled_from(PDC_MODES), drop=st.sampled_from([0.2, 0.5, 0.8, 1.0]))
@examples(30)
def test_budgets_that_end(seed: int, mode: Mode, drop: float) -> None:
    """Items 6, 7, 44, 52: each operation ends once; success means its bytes are there; no timer is left."""
    chance = random.Random(seed)
    w, memory = simulator({"max_rto_retx_cnt": 2, "max_nack_retx_cnt": 2, "idle_time": 1000 * MS}, None, seed=seed)
    content = chance.randbytes(SIZE)
    for number, at in enumerate(range(0, SIZE, 8192)):
        w.submit(A, Write(peer=B, data=content, start=at, length=8192, offset=at, key=KEY, job_id=JOB, mode=mode,
                          context=number))  # fmt: skip
    w.run(chance, Adversity(drop=drop, reorder=0.2, duplicate=0.1, trim=0.1))
    for _ in range(20):
        w.pass_time(5_000 * MS)
        w.run(chance, Adversity())
    ends = [event for event in w.events[A] if isinstance(event, Completion)]
    assert sorted(event.context for event in ends) == list(range(SIZE // 8192))
    for event in ends:
        at = event.context * 8192
        assert not event.ok or memory[at : at + 8192] == content[at : at + 8192]
    assert w.feps[A].deadline() is None
    assert w.feps[B].pds.deadline() is None


def _trace(seed: int, start: int | None = None) -> list[tuple[int, int, bytes]]:
    chance = random.Random(seed)
    w, _ = simulator({}, start, seed=seed)
    w.submit(A, Write(peer=B, data=bytes(30_000), key=KEY, job_id=JOB, mode=Mode.RUD if seed % 2 else Mode.ROD))
    w.run(chance, Adversity(drop=0.1, reorder=0.2, duplicate=0.05, trim=0.05))
    return w.trace


@given(seed=st.integers(0, 2**32))
@examples(10)
def test_one_seed_one_trace(seed: int) -> None:
    """architecture.md rule 6."""
    assert _trace(seed) == _trace(seed)


@given(seed=st.integers(0, 2**32), start=st.integers(1, 2**32 - 1), shift=st.integers(1, 2**32 - 1))
@examples(10)
def test_shift_invariance(seed: int, start: int, shift: int) -> None:
    """pds.md §18 item 23: Start_PSN + k gives the same trace with all PSNs + k."""
    one, other = _trace(seed, start), _trace(seed, (start + shift) & 0xFFFFFFFF)
    assert [(t, source, _shifted(data, shift)) for t, source, data in one] == other


def _shifted(data: bytes, shift: int) -> bytes:
    """The PSN field of a packet (bytes 4–7 of every PDS header here), and PSNs in the payload of NACK and CP, + k."""

    def plus(at: int) -> bytes:
        return ((int.from_bytes(data[at : at + 4], "big") + shift) & 0xFFFFFFFF).to_bytes(4, "big")

    kind, changed = data[0] >> 3, bytearray(data)
    clears = kind == 11 and (data[0] & 7) << 1 | data[1] >> 7 in (2, 3)
    if not clears:
        changed[4:8] = plus(4)
    if clears or (kind == 10 and data[2] == 0x0D):
        changed[12:16] = plus(12)
    return bytes(changed)
