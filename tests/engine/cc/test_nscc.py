# SPDX-License-Identifier: GPL-2.0-only
"""NSCC: each branch of cms.md §3.3 to §3.5 by numbers computed by hand, and the properties 2 to 8 of §10."""

from collections.abc import Iterator
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

from uetproto.engine.cc.config import CcConfig
from uetproto.engine.cc.nscc import Nscc
from uetproto.engine.contract import MICROSECOND, AckReport, Trim

NOTES, HTSIM = CcConfig(), CcConfig(form="htsim")
R, T, MTU, WND = NOTES.base_rtt, NOTES.target_qdelay, NOTES.mtu, NOTES.max_wnd


def flying(size: int = 100_000, config: CcConfig = NOTES, cwnd: float | None = None) -> Nscc:
    cc = Nscc(config)
    cc.sent(size, 0)
    cc.last_adjust = 0
    if cwnd is not None:
        cc.cwnd = cwnd
    return cc


def ack(new: int = 4096, delay: int = 0, marked: bool = False, **more: Any) -> AckReport:
    return AckReport(new, marked, R + delay, **more)


def test_the_window_is_full_to_the_byte() -> None:
    cc = Nscc(NOTES)
    assert cc.may_send(WND, 0)
    cc.sent(WND - MTU, 0)
    assert cc.may_send(MTU, 0)
    assert not cc.may_send(MTU + 1, 0)
    assert cc.sent(MTU, 0), "the window is full: the packet asks for an ACK"
    assert not Nscc(NOTES).sent(MTU, 0)
    small = Nscc(NOTES)
    small.cwnd = NOTES.ack_gen_trigger - 1
    assert small.sent(0, 0)


def test_proportional_increase() -> None:
    cc = flying(cwnd=100_000)
    cc.acked(ack(4096, T // 2), 1)
    assert cc.inc_bytes == pytest.approx(NOTES.alpha * 4096 * (T - T // 2))
    assert cc.cwnd == 100_000, "it is added later"
    cc.acked(ack(4096, T // 2), R)
    collected = NOTES.alpha * 8192 * (T - T // 2)
    assert cc.cwnd == pytest.approx(100_000 + collected / 100_000 + NOTES.eta)
    assert (cc.inc_bytes, cc.received) == (0, 0)


def test_fast_increase_after_a_window_without_delay() -> None:
    cc = flying(cwnd=10_000)
    cc.acked(ack(10_000), 1)
    assert (cc.fi_count, cc.increase_mode) == (10_000, False)
    before = cc.cwnd
    cc.acked(ack(256), 2)
    assert cc.increase_mode
    assert cc.cwnd == pytest.approx(before + 256 * NOTES.fi_scale)
    cc.acked(ack(256, MICROSECOND), 3)
    assert not cc.increase_mode
    assert cc.fi_count == 0


def test_fair_increase_above_the_target_without_a_mark() -> None:
    cc = flying(cwnd=100_000)
    cc.acked(ack(4096, T), 1)
    assert cc.inc_bytes == pytest.approx(NOTES.fi * 4096)


def test_a_mark_below_the_target_changes_nothing() -> None:
    cc = flying(cwnd=100_000)
    cc.acked(ack(4096, T - 1, marked=True), 1)
    assert (cc.cwnd, cc.inc_bytes) == (100_000, 0)


def test_multiplicative_decrease_once_an_rtt() -> None:
    cc = flying(cwnd=100_000)
    now = R + 1
    cc.last_adjust = now + 10 * R  # nothing is added
    cc.acked(ack(256, 2 * T, marked=True), now)
    share = 1 - 0.8 * (2 * T - T) / (2 * T)
    assert cc.average == 2 * T, "the first sample counts whole"
    assert cc.cwnd == pytest.approx(100_000 * share)
    cc.acked(ack(256, 2 * T, marked=True), now + R)
    assert cc.cwnd == pytest.approx(100_000 * share), "not more than R later"
    cc.acked(ack(256, 50 * T, marked=True), now + 2 * R)
    assert cc.cwnd == pytest.approx(50_000 * share), "by half at most"


def test_averages() -> None:
    cc = flying(config=HTSIM)
    cc.acked(ack(0, 2 * T), 1)  # unmarked and above the target
    assert cc.average == pytest.approx(0.0125 * R / 4)
    cc.acked(ack(0, T // 2), 2)
    assert cc.average == pytest.approx(0.0125 * R / 4 + 0.0125 * (T // 2 - 0.0125 * R / 4))
    notes = flying()
    notes.acked(ack(0, T), R // 2)
    assert notes.average == pytest.approx(T / 2)


def test_an_rtt_below_the_base_lowers_base_and_largest_window() -> None:
    cc = flying()
    cc.acked(AckReport(256, False, R // 2), 1)
    assert cc.base_rtt == R // 2
    assert cc.max_wnd == pytest.approx(WND / 2, abs=2)


def test_without_an_rtt_only_counters_change() -> None:
    cc = flying(50_000)
    cc.acked(AckReport(4096, True, None), 1)
    assert (cc.inflight, cc.achieved, cc.received, cc.bytes_ignored) == (50_000 - 4096, 4096, 4096, 4096)
    assert (cc.cwnd, cc.qa_endtime) == (WND, 0)


def test_a_trimmed_packet_takes_its_size() -> None:
    cc = flying(50_000)
    cc.nacked(MTU, Trim.TRIMMED, True, None, 1)
    assert (cc.inflight, cc.cwnd, cc.trigger_qa) == (50_000 - MTU, WND - MTU, True)
    cc.nacked(MTU, Trim.LAST_HOP, True, None, 2)
    assert cc.cwnd == WND - 2 * MTU
    cc.nacked(MTU, Trim.NO, False, None, 3)
    assert (cc.inflight, cc.cwnd) == (50_000 - 3 * MTU, WND - 2 * MTU)
    both = flying(50_000, CcConfig(algorithm="nscc+rccc"))
    both.nacked(MTU, Trim.LAST_HOP, True, None, 1)
    assert (both.cwnd, both.trigger_qa) == (WND, False), "the receiver has the last hop"


def test_a_loss_takes_its_size_but_one_packet_stays() -> None:
    cc = flying(50_000, cwnd=MTU + 100)
    cc.lost(MTU, 1)
    assert (cc.cwnd, cc.inflight) == (MTU, 50_000 - MTU)


def test_quick_adapt_sets_the_window_to_what_was_delivered() -> None:
    cc = flying(200_000)
    cc.acked(ack(256), 1)
    assert cc.qa_endtime == 1 + R + T
    cc.acked(AckReport(20_000, False, None), 2)
    cc.nacked(MTU, Trim.TRIMMED, True, None, 3)
    assert cc.cwnd == WND - MTU, "the period is not over"
    at = cc.qa_endtime
    achieved = cc.achieved
    cc.nacked(MTU, Trim.TRIMMED, True, None, at)
    assert cc.cwnd == achieved == 20_000
    assert (cc.bytes_to_ignore, cc.bytes_ignored) == (cc.inflight, 0)
    cc.acked(ack(256, 3 * T, marked=True), at + 2 * R)
    assert cc.cwnd == 20_000, "old, marked packets change nothing"


def test_the_destination_shrinks_and_restores_the_window() -> None:
    cc = flying(128_000, cwnd=128_000)
    for _ in range(1000):
        cc.acked(AckReport(128, False, None, penalty=64), 1)
        cc.sent(128, 1)
    assert cc.cwnd == pytest.approx(64_000, rel=0.01), "64 in all ACKs of an RTT halves it"
    assert cc.saved_cwnd == 128_000
    cc.acked(AckReport(0, False, None, restore=True), 2)
    assert (cc.cwnd, cc.saved_cwnd) == (128_000, 0)
    for _ in range(40):
        cc.acked(AckReport(12_800, False, None, penalty=127), 3)
    assert cc.cwnd == MTU


EVENTS = st.lists(st.one_of(
    st.tuples(st.just("ack"), st.integers(0, 40_000), st.booleans(), st.none() | st.integers(0, 6 * T)),
    st.tuples(st.just("nack"), st.sampled_from(Trim), st.booleans()), st.tuples(st.just("lost")),
    st.tuples(st.just("send")), st.tuples(st.just("wait"), st.integers(1, 2 * R)),
), max_size=60)  # fmt: skip


def play(cc: Nscc, events: list[Any]) -> Iterator[tuple[str, float, float, int]]:
    """Play events; yield after each one its kind, the window before and after, and the time."""
    now = 1
    for kind, *more in events:
        before = cc.cwnd
        if kind == "wait":
            now += more[0]
        elif kind == "send":
            if cc.may_send(MTU, now):
                assert cc.inflight + MTU <= cc.cwnd
                cc.sent(MTU, now)
        elif kind == "ack":
            rtt = None if more[2] is None else NOTES.base_rtt * 3 // 4 + more[2]
            cc.acked(AckReport(more[0], more[1], rtt), now)
        elif kind == "nack":
            cc.nacked(MTU, more[0], more[1], None, now)
        else:
            cc.lost(MTU, now)
        yield kind, before, cc.cwnd, now


@given(st.sampled_from([NOTES, HTSIM]), EVENTS)
def test_whatever_happens(config: CcConfig, events: list[Any]) -> None:
    """Properties 2, 4, 6 and 7."""
    cc = Nscc(config)
    base, largest, cuts, adapted = cc.base_rtt, cc.max_wnd, [-(10**12)], [-(10**12)]
    for kind, before, after, now in play(cc, events):
        assert after >= MTU
        assert cc.base_rtt <= base
        assert cc.max_wnd <= largest
        base, largest = cc.base_rtt, cc.max_wnd
        if after > before:
            assert after <= cc.max_wnd
        if kind == "ack" and after < before and cc.last_dec == now and cuts[-1] != now:
            assert after >= before / 2 - 1 or after == MTU
            assert now - cuts[-1] > base
            cuts.append(now)
        if cc.qa_endtime == now + cc.base_rtt + T and cc.bytes_to_ignore and cc.bytes_ignored == 0 and after < before:
            assert now - adapted[-1] >= R * 3 // 4 + T or now == adapted[-1]
            adapted.append(now)


@given(st.lists(st.integers(0, 40_000), max_size=40))
def test_unmarked_acks_below_the_target_never_lower_the_window(sizes: list[int]) -> None:
    """Property 5."""
    cc = flying(cwnd=50_000)
    for number, size in enumerate(sizes):
        before = cc.cwnd
        cc.acked(ack(size, T // 2), number * R // 4)
        assert cc.cwnd >= before
