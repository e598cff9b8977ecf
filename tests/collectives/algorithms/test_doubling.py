# SPDX-License-Identifier: GPL-2.0-only
"""Recursive doubling and halving, Bruck, and the fold to a power of two (collectives.md §3.5, §6.4, invariant 12)."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.collectives.executor import World, execute
from tests.support.effort import examples
from uetproto.collectives.algorithms.catalogue import schedule
from uetproto.collectives.algorithms.doubling import Folding
from uetproto.collectives.costs.check import check
from uetproto.errors import LocalError

CONCAT = np.frompyfunc(lambda left, right: f"({left}{right})", 2, 1)


def names(size: int, count: int) -> list[np.ndarray]:
    return [np.array([str(rank)] * count, dtype=object) for rank in range(size)]


def pairs(ranks: list[str], distances: list[int]) -> str:
    """The order that partners agree on: the lower one's operand first."""
    held = list(ranks)
    for distance in distances:
        held = [f"({held[min(v, v ^ distance)]}{held[max(v, v ^ distance)]})" for v in range(len(held))]
    assert len(set(held)) == 1
    return held[0]


def folded(size: int) -> list[str]:
    """What the virtual ranks start from: a proxy has combined its extra's vector."""
    extras = size - (1 << size.bit_length() - 1)
    proxies = [f"({2 * v}{2 * v + 1})" for v in range(extras)]
    return proxies + [str(rank) for rank in range(2 * extras, size)]


def test_the_golden_fold() -> None:
    folding = Folding(6)
    assert (folding.members, folding.extras) == (4, 2)
    assert folding.rank(np.arange(4)).tolist() == [0, 2, 4, 5]
    first = {
        (send.peer, rank)
        for rank in range(6)
        for send in next(schedule("all_reduce", "recursive_doubling", 6, 1).steps(rank)).sends
    }
    assert {(0, 1), (2, 3)} <= first


@pytest.mark.parametrize("size", [2, 3, 4, 6, 7, 8, 12, 16])
def test_the_order_of_recursive_doubling(size: int) -> None:
    results = execute(schedule("all_reduce", "recursive_doubling", size, 2), names(size, 2), CONCAT)
    rounds = size.bit_length() - 1
    assert {text for result in results for text in result} == {pairs(folded(size), [1 << k for k in range(rounds)])}


@pytest.mark.parametrize("size", [2, 3, 4, 6, 7, 8, 12, 16])
def test_the_order_of_halving(size: int) -> None:
    """Distances from far to near; block v is finished at v, from what the partners on its side have."""
    start, rounds = folded(size), size.bit_length() - 1

    def combined(v: int, distances: list[int]) -> str:
        if not distances:
            return start[v]
        *earlier, distance = distances
        return f"({combined(min(v, v ^ distance), earlier)}{combined(max(v, v ^ distance), earlier)})"

    members = 1 << rounds
    results = execute(schedule("all_reduce", "halving_doubling", size, members), names(size, members), CONCAT)
    distances = [members >> k + 1 for k in range(rounds)]
    for result in results:
        assert result.tolist() == [combined(v, distances) for v in range(members)]


@examples(30)
@given(rounds=st.integers(0, 5), seed=st.integers(0, 2**32))
def test_after_step_k_aligned_groups_hold_the_same(rounds: int, seed: int) -> None:
    size = 1 << rounds
    union = np.frompyfunc(lambda left, right: left | right, 2, 1)
    data = [np.array([frozenset([rank])], dtype=object) for rank in range(size)]

    def watch(step: int, src: int, dst: int, payload: np.ndarray) -> None:
        low = src >> step << step
        assert dst == src ^ (1 << step)
        assert payload[0] == set(range(low, low + (1 << step)))  # what the group agrees on after the step before

    World(schedule("all_reduce", "recursive_doubling", size, 1), data, union, seed, watch).run()


@given(size=st.integers(1, 70))
def test_a_power_of_two_has_no_extras(size: int) -> None:
    power = size & (size - 1) == 0
    assert (Folding(size).extras == 0) is power
    assert schedule("all_reduce", "recursive_doubling", size, 4).length == size.bit_length() - 1 + 2 * (not power)
    assert schedule("all_reduce", "halving_doubling", size, 4).length == 2 * (size.bit_length() - 1) + 2 * (not power)


def test_the_golden_halving() -> None:  # 64 bytes are 16 elements
    made = schedule("reduce_scatter", "halving", 8, 16)
    assert [[4 * send.count for send in step.sends] for step in made.steps(3)] == [[32], [16], [8]]
    assert (4 * check(made).sent).tolist() == [56] * 8


def test_the_golden_bruck() -> None:
    made = schedule("all_gather", "bruck", 5, 5)
    assert all([step.sends[0].count for step in made.steps(rank)] == [1, 2, 1] for rank in range(5))


@given(size=st.integers(1, 70))
def test_bruck_sends_each_rank_the_others_blocks(size: int) -> None:
    found = check(schedule("all_gather", "bruck", size, size))
    assert found.sent.tolist() == [size - 1] * size == found.received.tolist()
    assert found.steps == (size - 1).bit_length()


@pytest.mark.parametrize("size", [3, 6, 12])
def test_doubling_alone_needs_a_power_of_two(size: int) -> None:
    with pytest.raises(LocalError, match=f"size: {size} is no power of two.*bruck"):
        schedule("all_gather", "doubling", size, size)
