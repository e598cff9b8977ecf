# SPDX-License-Identifier: GPL-2.0-only
"""Blocks from everyone to everyone (collectives.md §3.6, invariant 14)."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.collectives.cases import Case, cases, inputs, integers
from tests.support.collectives.executor import execute
from tests.support.effort import examples
from uetproto.collectives.algorithms.catalogue import schedule
from uetproto.collectives.costs.check import check
from uetproto.errors import LocalError


@given(name=st.sampled_from(["pairwise", "xor"]), data=st.data())
def test_every_step_is_a_permutation_without_fixed_points(name: str, data: st.DataObject) -> None:
    size = 1 << data.draw(st.integers(1, 5)) if name == "xor" else data.draw(st.integers(2, 40))
    columns = schedule("all_to_all", name, size, size).arrays()
    for step in range(size - 1):
        here = columns["step"] == step
        assert sorted(columns["src"][here].tolist()) == list(range(size)) == sorted(columns["dst"][here].tolist())
        assert not np.any(columns["src"][here] == columns["dst"][here])


@examples(60)
@given(case=cases([("all_to_all", name) for name in ("pairwise", "xor", "linear")]), seed=st.integers(0, 2**32))
def test_back_with_transposed_splits_is_the_identity(case: Case, seed: int) -> None:
    made = case.schedule
    data = inputs(made, integers(seed))
    there = execute(made, data, seed=seed)
    back = schedule("all_to_all", made.algorithm, made.size, splits=case.splits.T.tolist())
    for before, after in zip(data, execute(back, there, seed=seed), strict=True):
        np.testing.assert_array_equal(before, after)


def test_the_golden_pairwise_step() -> None:
    made = schedule("all_to_all", "pairwise", 4, 4)
    assert [next(made.steps(rank)).sends[0].peer for rank in range(4)] == [3, 0, 1, 2]


@given(rounds=st.integers(1, 5), each=st.integers(0, 5))
def test_bruck_sends_half_of_the_blocks_a_step(rounds: int, each: int) -> None:
    size = 1 << rounds
    found = check(schedule("all_to_all", "bruck", size, each * size))
    assert found.sent.tolist() == [size // 2 * each * rounds] * size
    assert found.messages == rounds * size


def test_what_is_refused() -> None:
    with pytest.raises(LocalError, match=r"size: 6 is no power of two.*pairwise"):
        schedule("all_to_all", "xor", 6, 6)
    with pytest.raises(LocalError, match="splits: bruck takes blocks of one size"):
        schedule("all_to_all", "bruck", 2, splits=[[1, 2], [0, 1]])
    with pytest.raises(LocalError, match="count: 7 elements are not 3 equal blocks"):
        schedule("all_to_all", "pairwise", 3, 7)
    with pytest.raises(LocalError, match="splits: not 2 rows of 2"):
        schedule("all_to_all", "pairwise", 2, splits=[[1, 2]])
