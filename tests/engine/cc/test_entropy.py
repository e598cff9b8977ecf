# SPDX-License-Identifier: GPL-2.0-only
"""Path selection: the orders of cms.md §5, and properties 15 and 16 of §10."""

import random

import hypothesis.strategies as st
from hypothesis import given

from uetproto.engine.cc.entropy import EXPLORE, FREEZE, RING, Bitmap, Mixed, Oblivious, OnePath, Reps
from uetproto.engine.contract import PathFeedback as Heard

SIZE = 64


def rng(seed: int = 1) -> random.Random:
    return random.Random(seed)


@given(st.integers(0, 2**32), st.sampled_from([1, 2, 64, 256]))
def test_a_round_uses_every_value_once(seed: int, size: int) -> None:
    one = Oblivious(rng(seed), size)
    rounds = [[one.next(0) for _ in range(size)] for _ in range(4)]
    for found in rounds:
        assert len(set(found)) == size
        assert {value & ~(size - 1) for value in found} == {found[0] & ~(size - 1)}
    assert size < 64 or len({tuple(found) for found in rounds}) > 1, "another order in each round"


def test_a_value_with_a_penalty_is_passed_over_and_forgiven() -> None:
    one, other = Bitmap(rng(), SIZE), Oblivious(rng(), SIZE)
    order = [other.next(0) for _ in range(SIZE)]
    one.heard(order[3], Heard.ECN, 0)
    assert [one.next(0) for _ in range(SIZE - 1)] == order[:3] + order[4:], "passed over once"
    assert max(one.penalties) == 0


@given(st.lists(st.tuples(st.integers(0, SIZE - 1), st.sampled_from(Heard)), max_size=200))
def test_penalties_stay_in_bounds_and_clean_values_are_never_skipped(heard: list[tuple[int, Heard]]) -> None:
    one = Bitmap(rng(), SIZE)
    upper = one.next(0) & ~(SIZE - 1)
    for index, feedback in heard:
        one.heard(upper | index, feedback, 0)
        assert 0 <= min(one.penalties) <= max(one.penalties) <= 15
    clean = {index for index in range(SIZE) if not one.penalties[index]}
    assert clean <= {one.next(0) & (SIZE - 1) for _ in range(2 * SIZE)}


def test_when_all_have_penalties_one_is_chosen_all_the_same() -> None:
    one = Bitmap(rng(), 4)
    upper = one.next(0) & ~3
    for index in range(4):
        one.heard(upper | index, Heard.TIMEOUT, 0)
    assert len([one.next(0) for _ in range(100)]) == 100


@given(st.lists(st.one_of(
    st.tuples(st.just("heard"), st.integers(0, SIZE - 1), st.sampled_from(Heard)), st.tuples(st.just("next")),
    st.tuples(st.just("wait"), st.integers(0, FREEZE)),
), max_size=120))  # fmt: skip
def test_reps_recycles_only_what_came_back_unmarked(events: list[tuple[object, ...]]) -> None:
    one, now, good = Reps(rng(), SIZE), 0, set()
    upper = one.next(0) & ~(SIZE - 1)
    for kind, *more in events:
        if kind == "wait":
            now += more[0]  # type: ignore[operator]
        elif kind == "next":
            assert one.next(now) & ~(SIZE - 1) == upper
        else:
            value = upper | more[0]  # type: ignore[operator]
            one.heard(value, more[1], now)  # type: ignore[arg-type]
            if more[1] is Heard.NO_ECN:
                good.add(value)
        assert len(one.ring) <= RING
        assert set(one.ring) <= good


def test_a_time_out_freezes_the_ring() -> None:
    one = Reps(rng(), SIZE)
    upper = one.next(0) & ~(SIZE - 1)
    for index in (1, 2, 3):
        one.heard(upper | index, Heard.NO_ECN, 0)
    one.heard(upper | 9, Heard.TIMEOUT, 5)
    assert {one.next(6) for _ in range(12)} == {upper | index for index in (1, 2, 3)}
    one.heard(upper | 4, Heard.NO_ECN, 7)
    assert len(one.ring) == 3, "nothing enters a frozen ring"
    drawn = [one.next(5 + FREEZE) for _ in range(EXPLORE)]
    assert len(set(drawn)) > 4
    assert not one.ring


def test_mixed_uses_the_oldest_good_value_first_and_else_the_bitmap() -> None:
    one, other = Mixed(rng(), SIZE), Bitmap(rng(), SIZE)
    order = [other.next(0) for _ in range(5)]
    assert [one.next(0) for _ in range(5)] == order
    one.heard(order[2], Heard.NO_ECN, 0)
    one.heard(order[0], Heard.NO_ECN, 0)
    one.heard(order[1], Heard.ECN, 0)
    assert [one.next(0), one.next(0), one.next(0)] == [order[2], order[0], other.next(0)]


def test_values_of_others_are_not_heard() -> None:
    for kind in (Bitmap, Reps, Mixed):
        one = kind(rng(), SIZE)
        foreign = (one.next(0) & ~(SIZE - 1)) ^ 0x8000
        for feedback in Heard:
            one.heard(foreign, feedback, 0)
        same = kind(rng(), SIZE)
        same.next(0)
        assert [one.next(0) for _ in range(SIZE)] == [same.next(0) for _ in range(SIZE)]


def test_one_path_changes_after_bad_news_but_not_too_often() -> None:
    one = OnePath(rng(), 100)
    first = one.next(0)
    one.heard(first, Heard.NO_ECN, 150)
    one.heard(first ^ 1, Heard.TIMEOUT, 150)
    assert one.next(150) == first
    one.heard(first, Heard.NACK, 150)
    second = one.next(150)
    assert second != first
    one.heard(second, Heard.ECN, 249)
    assert one.next(249) == second
    one.heard(second, Heard.ECN, 250)
    assert one.next(250) != second
