# SPDX-License-Identifier: GPL-2.0-only
"""The context: its states, what its algorithms agree on, and what it weighs (cms.md §2)."""

import random
import tracemalloc

from tests.support.each import each
from uetproto.engine.cc.config import CcConfig
from uetproto.engine.cc.context import Ccc
from uetproto.engine.cc.entropy import OnePath
from uetproto.engine.cc.nscc import Nscc
from uetproto.engine.cc.registry import ALGORITHMS, CongestionContexts
from uetproto.engine.contract import SECOND, AckReport, CccState, Mode, PathFeedback, Trim

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
    ccc.found(SIZE)
    ccc.acked(sent - 1, AckReport(new=sent * SIZE), 2)
    assert ccc.state(SIZE, 2) is CccState.IDLE
    assert all(one.inflight == 0 for one in ccc.algorithms if isinstance(one, Nscc))


@each("algorithm", ["nscc", "rccc", "nscc+rccc"])
def test_what_a_pdc_leaves_behind_is_taken_back(algorithm: str) -> None:
    ccc = context(algorithm)
    ccc.offered(3 * SIZE)
    for _ in range(3):
        ccc.sent(SIZE, False, 0)
    ccc.lost(SIZE, 1)
    ccc.acked(1, AckReport(new=SIZE + 200), 2)  # rcvd_bytes is rounded up
    ccc.settled(1, SIZE - 200, 1, SIZE)
    assert ccc.state(SIZE, 2) is CccState.IDLE
    assert (ccc.waiting_rtx, ccc.rtx_backlog, ccc.inflight_pkts) == (0, 0, 0)
    assert all(one.inflight == 0 for one in ccc.algorithms if isinstance(one, Nscc))


def test_a_time_out_follows_the_round_trip_times() -> None:
    fixed, measured = context("nscc"), context("nscc", rto="rtt")
    assert measured.rto() is None, "no ACK has shown a round-trip time"
    base = CcConfig().base_rtt
    for ccc in (fixed, measured):
        assert ccc.acked(0, AckReport(rtt=4 * base), 1) == ccc.rto()
    assert fixed.rto() is None
    assert measured.rto() == 4 * base + 4 * 2 * base, "RFC 6298"
    for _ in range(100):
        measured.acked(0, AckReport(rtt=base // 2), 2)
    assert measured.rto() == 3 * base, "at least"


def test_what_a_probe_shows_as_missing_may_be_on_its_way() -> None:
    """cms.md §6: a PROBE overtakes data that waits; without trimming the simulator's rule holds."""
    base, target = CcConfig().base_rtt, CcConfig().target_qdelay
    assert context("nscc").patience() == 0, "nothing is measured"
    for trimming, late in ((True, 0), (True, 1), (False, 1)):
        ccc = context("nscc", trimming=trimming)
        ccc.acked(0, AckReport(rtt=base + CcConfig(trimming=trimming).target_qdelay - 1 + late), 1)
        assert ccc.patience() == (2 * (base + target) if trimming and late else 0)
        for now in range(30):
            ccc.acked(0, AckReport(rtt=base), now)
        assert ccc.patience() == 0


def test_one_probe_for_the_base_rtt() -> None:
    assert not context("nscc").wants_probe
    assert not context("rccc", base_rtt_probe=True).wants_probe
    ccc = context("nscc", base_rtt_probe=True, probe_allowance=1000)
    assert ccc.wants_probe
    (nscc,) = ccc.algorithms
    assert isinstance(nscc, Nscc)
    before = nscc.base_rtt
    ccc.probed(before - 1000)
    assert nscc.base_rtt == before
    ccc.probed(before // 2)
    assert nscc.base_rtt == before // 2 + 1000
    assert nscc.max_wnd < CcConfig().max_wnd
    off = context("nscc")
    off.probed(1)
    assert off.algorithms[0].base_rtt == before, "the PROBE of a tail loss"  # type: ignore[attr-defined]


def test_pdcs_on_rod_choose_for_themselves() -> None:
    made = CongestionContexts(CcConfig(), random.Random(1), overhead=52, largest=SIZE)
    rud, rod = made.context(9, Mode.RUD), made.context(9, Mode.ROD)
    assert rud.paths() is rud.paths()
    one, other = rod.paths(), rod.paths()
    assert one.next(0) == one.next(0) != other.next(0)
    slow = CongestionContexts(CcConfig(base_rtt=SECOND), random.Random(1), overhead=52, largest=SIZE)
    path = slow.context(9, Mode.ROD).paths()
    first = path.next(0)
    path.heard(first, PathFeedback.ECN, 10 * SECOND - 1)
    assert path.next(0) == first, "t_reroute is 10 RTTs at least"
    path.heard(first, PathFeedback.ECN, 10 * SECOND)
    assert path.next(0) != first


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
    config = CcConfig(algorithm=algorithm, rto="rtt", base_rtt_probe=True)
    path = OnePath(random.Random(1), 0)

    def paths() -> OnePath:
        return path

    tracemalloc.start()
    try:
        kept = []
        for number in range(200):
            ccc = Ccc(
                number & 0xFF, [ALGORITHMS[name](config, lambda: 1) for name in algorithm.split("+")], paths, config
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
