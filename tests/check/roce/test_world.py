# SPDX-License-Identifier: GPL-2.0-only
"""The simulator of two queue pairs: what its steps do, and what it takes for a fault of somebody."""

import random
from typing import Any

import pytest

from uetproto.check.registry import Disruption, InvariantViolation
from uetproto.check.roce.simulator import RoceSimulator
from uetproto.check.roce.step_generator import PROFILES, RoceStepGenerator
from uetproto.check.wire import ALL
from uetproto.engine.contract import MILLISECOND, SECOND
from uetproto.engine.roce.contract import Opcode, QpState, QpType, SendFlags, Status
from uetproto.errors import LocalError
from uetproto.steps.roce import RoceStep, SendSpec

Op, S = Opcode, Status


def simulator(kind: QpType = QpType.RC, knobs: dict[str, Any] | None = None, **qp: Any) -> RoceSimulator:
    return RoceSimulator(kind, (knobs or {}, knobs or {}), ({"sq_psn": 5, **qp}, {"sq_psn": 5, **qp}), twin=True)


def exchange(w: RoceSimulator, *steps: RoceStep) -> RoceSimulator:
    for step in steps:
        w.apply(step)
    while w.flight:
        w.apply(RoceStep("deliver", number=ALL))
    return w


def send(opcode: Opcode = Op.SEND, length: int = 8, node: int = 0, **more: Any) -> RoceStep:
    return RoceStep("send", node, length, send=SendSpec(opcode, **more))


@pytest.mark.parametrize("opcode", [o for o in Opcode if o is not Op.ATOMIC_WRITE])
@pytest.mark.parametrize("cut", [0, 3])
def test_every_send_ends_well(opcode: Opcode, cut: int) -> None:
    w = exchange(simulator(), RoceStep("recv", 1, simulator().longest, at=cut), send(opcode)._replace(at=cut))
    (work,) = w.shadows[0].works
    assert work.done
    assert work.ended
    assert work.there() == work.data
    assert w.innocent


@pytest.mark.parametrize(
    ("fault", "opcode", "status"),
    [
        ("rkey", Op.RDMA_WRITE, S.REM_ACCESS_ERR),
        ("domain", Op.RDMA_READ, S.REM_ACCESS_ERR),
        ("right", Op.RDMA_WRITE, S.REM_ACCESS_ERR),
        ("range", Op.RDMA_READ, S.REM_ACCESS_ERR),
        ("range", Op.ATOMIC_FETCH_AND_ADD, S.REM_ACCESS_ERR),
        ("alignment", Op.ATOMIC_CMP_AND_SWP, S.REM_INV_REQ_ERR),
        ("lkey", Op.SEND, S.LOC_PROT_ERR),
        ("lkey", Op.RDMA_READ, S.LOC_PROT_ERR),
    ],
)
def test_faults_of_sends(fault: str, opcode: Opcode, status: Status) -> None:
    """roce.md §10; and nobody but the one who did it is blamed."""
    w = exchange(simulator(), send(opcode, fault=fault))
    assert w.shadows[0].errors == [status]
    assert w.ends[0].qp.state is QpState.ERR
    assert w.guilty
    w.finish()


@pytest.mark.parametrize(("step", "status"), [
    (RoceStep("recv", 1, 4), S.REM_INV_REQ_ERR), (RoceStep("recv", 1, 100, fault="lkey"), S.REM_OP_ERR),
])  # fmt: skip
def test_faults_of_receives(step: RoceStep, status: Status) -> None:
    w = exchange(simulator(), step, send())
    assert w.shadows[0].errors == [status]
    assert w.guilty


@pytest.mark.parametrize(
    "step",
    [
        send(fault="rkey"),
        send(Op.RDMA_WRITE, 0, fault="rkey"),
        send(Op.RDMA_WRITE, fault="alignment"),
        send(fault="qkey"),
        send(fault="lkey", flags=SendFlags.SIGNALED | SendFlags.INLINE),
        send(length=1 << 16),
        RoceStep("recv", 1, 1 << 16),
        RoceStep("recv", 1, 8, fault="rkey"),
        RoceStep("deliver", number=7),
        RoceStep("dup", number=7),
        RoceStep("modify", state=QpState.INIT),
        RoceStep("modify", state=QpState.SQE),
    ],
)
def test_what_is_not_possible(step: RoceStep) -> None:
    with pytest.raises(LocalError):
        simulator().apply(step)


def test_damage() -> None:
    """With an ICRC it never arrives; without one it does, and what it does is nobody's fault but the forger's."""
    w = exchange(simulator(), send(Op.RDMA_WRITE), RoceStep("corrupt", number=0, at=30))
    assert (w.disruptions, w.shadows[1].heard) == (Disruption.NONE, 0)
    w = simulator(knobs={"icrc": False})
    w.apply(send(Op.RDMA_WRITE))
    w.apply(RoceStep("corrupt", number=0, at=30))
    assert w.disruptions is Disruption.FORGED
    exchange(w)
    w.finish()


def test_a_new_connection() -> None:
    """Nothing of the one before is left: an old packet cannot be copied, an ATOMIC finds what is there."""
    w = exchange(simulator(), send(Op.ATOMIC_FETCH_AND_ADD, add=3))
    exchange(w, RoceStep("modify", 1, state=QpState.ERR), send())
    w.apply(RoceStep("connect", number=0xFFFFFF))
    assert not w.flight
    with pytest.raises(LocalError):
        w.apply(RoceStep("dup", number=0))
    exchange(w, send(Op.ATOMIC_FETCH_AND_ADD, add=4))
    assert w.shadows[0].works[0].old == 3
    assert w.ends[1].counter.data == (7).to_bytes(8, "little")
    assert w.innocent
    w.finish()


def test_a_dead_network_ends_it() -> None:
    """Item 9, with counts that end; nobody is asked where they do not."""
    w = simulator(rnr_retry=6)
    w.apply(send(Op.RDMA_WRITE))
    w.apply(RoceStep("advance", number=2 * SECOND))
    assert w.shadows[0].errors == [S.RETRY_EXC_ERR]
    w = simulator(knobs={"retry_cnt_seven": "endless"})
    w.apply(send(Op.RDMA_WRITE))
    w.apply(RoceStep("advance", number=2 * SECOND))
    w.finish()
    assert w.shadows[0].errors == []
    assert w.shadows[0].works[0].done


def test_a_limit_keeps_packets_back() -> None:
    w = simulator(path_mtu=256)
    w.apply(RoceStep("allow", number=2))
    w.apply(send(Op.RDMA_WRITE, 1000))
    assert len(w.flight) == 2
    w.apply(RoceStep("allow", number=ALL))
    assert len(w.flight) == 4


@pytest.mark.parametrize("profile", sorted(PROFILES))
def test_one_seed_one_run(profile: str) -> None:
    def play(number: int) -> list[bytes]:
        generator = RoceStepGenerator(profile, random.Random(f"{profile}/{number}"))
        w = RoceSimulator(generator.kind, generator.knobs, generator.qps)
        for _ in range(300):
            try:
                w.apply(generator.choose(w))
            except LocalError:
                continue
        return [bytes(packet.header) for packet in w.wire.history if packet is not None]

    assert play(1) == play(1) != play(2)


def test_a_twin_that_stops_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    w = simulator()
    twin = w._twin
    assert twin is not None

    def stop(step: RoceStep) -> None:
        raise KeyError("stopped")

    monkeypatch.setattr(twin, "apply", stop)
    with pytest.raises(InvariantViolation, match="roce 10: the shifted run stops: KeyError"):
        w.apply(RoceStep("advance", number=MILLISECOND))
