"""The context: its states, what its algorithms agree on, and what it weighs (cms.md §2)."""

import random
import tracemalloc

from tests.support.each import each
from uetproto.engine.cc.config import CcConfig
from uetproto.engine.cc.context import Ccc
from uetproto.engine.cc.entropy import OnePath
from uetproto.engine.cc.registry import ALGORITHMS, CongestionContexts
from uetproto.engine.contract import AckReport, CccState, Mode, Trim

SIZE = 4150


def context(algorithm: str, **more: object) -> Ccc:
    made = CongestionContexts(CcConfig(algorithm=algorithm, **more), random.Random(1), overhead=52, largest=SIZE)  # type: ignore[arg-type]
    found = made.context(9, Mode.RUD)
    assert found is made.context(9, Mode.RUD)
    assert found is not made.context(9, Mode.ROD)
    assert isinstance(found, Ccc)
    return found


@each("algorithm", ["nscc", "rccc", "nscc+rccc"])
def test_states(algorithm: str) -> None:
    ccc = context(algorithm)
    assert ccc.state(SIZE, 0) is CccState.IDLE
    ccc.offered(200 * SIZE)
    assert ccc.state(SIZE, 0) is CccState.READY
    sent = 0
    while ccc.state(SIZE, 0) is CccState.READY:
        ccc.sent(SIZE, False, 0)
        sent += 1
    assert ccc.state(SIZE, 0) is CccState.ACTIVE
    assert (ccc.inflight_pkts, ccc.backlog) == (sent, (200 - sent) * SIZE)
    ccc.offered(-ccc.backlog)
    assert ccc.state(SIZE, 0) is CccState.PENDING
    ccc.nacked(SIZE, Trim.TRIMMED, True, None, 1)
    assert (ccc.waiting_rtx, ccc.rtx_backlog, ccc.inflight_pkts) == (1, SIZE, sent - 1)
    assert ccc.state(SIZE, 1) in (CccState.READY, CccState.ACTIVE)
    ccc.settled(SIZE, True)
    ccc.acked(sent - 1, AckReport(new=(sent - 1) * SIZE), 2)
    assert ccc.state(SIZE, 2) is CccState.IDLE


def test_both_algorithms_have_to_agree() -> None:
    ccc = context("nscc+rccc")
    nscc, rccc = ccc.algorithms
    nscc.cwnd = 0  # type: ignore[attr-defined]
    assert not ccc.may_send(SIZE, 0)
    nscc.cwnd = 10**6  # type: ignore[attr-defined]
    assert ccc.may_send(SIZE, 0)
    rccc.credit = 0  # type: ignore[attr-defined]
    assert not ccc.may_send(SIZE, 0)


def test_only_credits_have_a_demand() -> None:
    assert context("nscc").demand() is None
    both = context("nscc+rccc")
    both.offered(10**9)
    both.acked(0, AckReport(), 0)
    nscc = both.algorithms[0]
    nscc.cwnd = 10_000  # type: ignore[attr-defined]
    assert both.demand() == -(-(10_000 + SIZE) // 256), "not more than the window lets out"


@each("algorithm", ["nscc", "rccc", "nscc+rccc"])
def test_a_context_is_light(algorithm: str) -> None:
    """It takes less than 1 KiB, the state of its entropy values apart."""
    config = CcConfig(algorithm=algorithm)
    entropy = OnePath(random.Random(1), 0)
    tracemalloc.start()
    try:
        kept = []
        for number in range(200):
            ccc = Ccc(
                number & 0xFF, [ALGORITHMS[name](config, lambda: 1) for name in algorithm.split("+")], entropy, config
            )
            ccc.offered(10**9)
            for step in range(3):
                ccc.sent(SIZE + step, False, 10**9 + step)
                ccc.acked(1, AckReport(SIZE, True, 10**8 + step), 10**10 + step)
            kept.append(ccc)
        size = tracemalloc.get_traced_memory()[0] / len(kept)
    finally:
        tracemalloc.stop()
    assert size < 1024, size
