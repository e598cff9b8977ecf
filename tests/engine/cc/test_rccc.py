# SPDX-License-Identifier: GPL-2.0-only
"""RCCC: the sender, the pacer of the receiver, and properties 13 and 14 of cms.md §10."""

import hypothesis.strategies as st
import pytest
from hypothesis import given

from uetproto.engine.cc.config import CcConfig
from uetproto.engine.cc.rccc import EMPTY, GRANT, PATIENCE, QUANTUM, CreditPacer, Rccc
from uetproto.engine.contract import NEVER, SECOND, AckReport, Trim

CONFIG = CcConfig(algorithm="rccc")
WND, R = CONFIG.max_wnd, CONFIG.base_rtt
M24, HALF = 0xFFFFFF, 1 << 23


def sender(active: int = 1) -> Rccc:
    return Rccc(CONFIG, lambda: active)


def test_the_first_window_is_a_guess_that_ends_with_the_first_answer() -> None:
    cc = sender()
    assert cc.may_send(4150, 0)
    cc.sent(4150, 0)
    cc.acked(AckReport(), 1)
    assert (cc.credit, cc.may_send(4150, 1)) == (0, False)
    late = sender()
    while late.may_send(4150, 0):
        asks = late.sent(4150, 0)
    assert asks, "no credit is left: the packet asks for an ACK"
    assert -4150 < late.credit <= 0
    late.nacked(4150, Trim.TRIMMED, True, None, 1)
    assert late.credit <= 0


def test_grants_add_up_and_older_ones_do_not() -> None:
    cc = sender()
    cc.credited(10, 0)
    assert (cc.credit, cc.granted) == (10 * QUANTUM, 10)
    cc.credited(4, 0)
    assert (cc.credit, cc.granted) == (10 * QUANTUM, 10)
    cc.granted = 0xFFFFFE
    cc.credited(3, 0)
    assert (cc.credit, cc.granted) == (15 * QUANTUM, 3), "24 bits wrap"
    cc.credited(0x7FFFFF, 0)
    assert cc.credit == WND, "at most MaxWnd"
    cc.acked(AckReport(credit=0x7FFFFF), 0)
    assert cc.credit == WND


def test_demand() -> None:
    cc = sender()
    assert cc.demand(0) == 0
    assert cc.demand(1) == -(-CONFIG.mtu // QUANTUM), "a packet at least while it guesses"
    cc.acked(AckReport(), 0)
    assert cc.demand(QUANTUM + 1) == 2
    assert cc.demand(10**9) == -(-WND // QUANTUM)
    cc.credited(5, 0)
    assert cc.demand(0) == 5
    assert cc.demand(7 * QUANTUM) == 5 + 2
    shared = sender(4)
    shared.acked(AckReport(), 0)
    assert shared.demand(400 * QUANTUM) == 100


def test_without_feedback_a_credit_request_follows() -> None:
    cc = sender()
    assert cc.deadline() == NEVER
    cc.credit = 100
    cc.sent(4150, 7)
    assert cc.deadline() == 7 + PATIENCE * R
    cc.acked(AckReport(), 1000)
    assert cc.deadline() == 1000 + PATIENCE * R
    assert cc.on_time(5000, cc.deadline())
    cc.credited(50, 0)
    assert cc.deadline() == NEVER, "it has credit"
    cc.credit = 0
    assert not cc.on_time(0, 10**9)
    assert cc.deadline() == NEVER, "nothing waits"


def drained(pacer: CreditPacer, until: int = SECOND) -> list[tuple[int, int, int]]:
    """Return time, PDCID and cumulative grant of each CREDIT."""
    found = []
    while (at := pacer.deadline()) <= until:
        found += [(at, *one) for one in pacer.due(at)]
    return found


@given(st.lists(st.integers(0, 3000), min_size=1, max_size=8))
def test_no_grant_beyond_the_target_and_no_rate_beyond_the_share(targets: list[int]) -> None:
    pacer = CreditPacer(lambda now: CONFIG.rate, 0)
    for number, target in enumerate(targets):
        pacer.asked((number, 0), number, target, 0)
    found = drained(pacer)
    last = {pdcid: granted for _, pdcid, granted in found}
    assert last == {number: target for number, target in enumerate(targets) if target}
    if found:
        quanta = sum(targets)
        assert found[-1][0] >= (quanta - GRANT) * QUANTUM * 8 * SECOND * 100 // (99 * CONFIG.rate) - len(found)


def test_equal_senders_get_equal_shares_in_each_round() -> None:
    pacer = CreditPacer(lambda now: CONFIG.rate, 0)
    for number in range(5):
        pacer.asked((number, 0), number, 10 * GRANT, 0)
    found = drained(pacer)
    for turn in range(10):
        assert sorted(pdcid for _, pdcid, _ in found[5 * turn : 5 * turn + 5]) == list(range(5))
    assert {granted for _, _, granted in found[-5:]} == {10 * GRANT}


def test_demands_of_long_ago_and_of_pdcs_that_are_gone() -> None:
    pacer = CreditPacer(lambda now: CONFIG.rate, 0)
    pacer.asked((1, 0), 7, 2 * GRANT, 0)
    pacer.asked((1, 0), 7, GRANT, 0)  # older
    assert [one[1:] for one in drained(pacer)] == [(7, GRANT), (7, 2 * GRANT)]
    assert pacer.granted((1, 0)) == 2 * GRANT
    assert pacer.granted((2, 0)) is None
    pacer.asked((1, 0), 7, 2 * GRANT, 10**9)
    assert pacer.deadline() == NEVER, "it has all of that"
    pacer.asked((1, 0), 7, 0xFFFFFF & (2 * GRANT - 5), 10**9)
    assert pacer.deadline() == NEVER
    pacer.asked((1, 0), 7, 3 * GRANT, 10**9)
    assert pacer.deadline() >= 10**9
    pacer.closed(7)
    assert pacer.deadline() == NEVER
    assert EMPTY * QUANTUM == 1024


def test_credit_in_advance_is_given_only_while_nobody_asks() -> None:
    pacer = CreditPacer(lambda now: CONFIG.rate, 3 * GRANT)
    pacer.asked((1, 0), 1, GRANT, 0)
    pacer.asked((2, 0), 2, 2 * GRANT, 0)
    assert [one[1:] for one in drained(pacer)] == [
        (1, GRANT), (2, GRANT), (2, 2 * GRANT),  # asked for
        (1, 2 * GRANT), (2, 3 * GRANT), (1, 3 * GRANT), (2, 4 * GRANT), (1, 4 * GRANT), (2, 5 * GRANT),
    ]  # fmt: skip
    pacer.asked((1, 0), 1, 2 * GRANT, 10**9)
    assert [one[1:] for one in drained(pacer)] == [(1, 5 * GRANT)], "it has used some"


def test_a_time_to_ask_that_passed_while_nothing_waited_is_not_in_the_past() -> None:
    sender = Rccc(CONFIG, lambda: 1)
    sender.sent(CONFIG.max_wnd, 0)
    later = 10**12
    assert sender.deadline() < later
    assert not sender.may_send(CONFIG.mtu, later)
    assert sender.deadline() == later + 1
    assert sender.on_time(CONFIG.mtu, later + 1)


@pytest.mark.parametrize("last", [4000, 200_000, HALF - 5, HALF + 9, M24 - 3000])
def test_a_restarted_receiver_goes_on_where_the_sender_is(last: int) -> None:
    """From 0 its grants would be older than the sender's last one for as long as it took to reach that."""
    cc = sender()
    cc.acked(AckReport(), 0)
    cc.granted = last
    pacer = CreditPacer(lambda now: CONFIG.rate, WND // QUANTUM)
    pacer.asked((1, 0), 7, cc.demand(10**9) or 0, 0)
    turns = 0
    while not cc.may_send(4150, 0):
        for _, granted in pacer.due(pacer.deadline()):
            cc.credited(granted, 0)
            turns += 1
        assert turns <= 2
    for _ in range(100):
        for _, granted in pacer.due(pacer.deadline()):
            cc.credited(granted, 0)
    assert cc.credit == WND


def test_a_new_sender_is_granted_from_0() -> None:
    cc = sender()
    pacer = CreditPacer(lambda now: CONFIG.rate, WND // QUANTUM)
    cc.acked(AckReport(), 0)
    pacer.asked((1, 0), 7, cc.demand(10**9) or 0, 0)
    assert pacer.due(pacer.deadline()) == [(7, GRANT)]
