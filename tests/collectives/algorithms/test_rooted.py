# SPDX-License-Identifier: GPL-2.0-only
"""One root: binomial trees and stars (collectives.md §3.2, invariant 13)."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.collectives.executor import execute
from tests.support.effort import examples
from uetproto.collectives.algorithms.catalogue import schedule
from uetproto.collectives.costs.check import check

OPS = ("broadcast", "reduce", "scatter", "gather")
CONCAT = np.frompyfunc(lambda left, right: f"({left}{right})", 2, 1)


@examples(100)
@given(op=st.sampled_from(OPS), name=st.sampled_from(["binomial", "linear"]), size=st.integers(1, 64), data=st.data())
def test_the_messages_are_the_edges_of_a_tree(op: str, name: str, size: int, data: st.DataObject) -> None:
    root = data.draw(st.integers(0, size - 1))
    columns = schedule(op, name, size, size, root=root).arrays()
    up = op in ("reduce", "gather")
    parent = dict(zip(columns["src" if up else "dst"].tolist(), columns["dst" if up else "src"].tolist(), strict=True))
    assert len(columns["step"]) == size - 1 == len(parent)
    assert root not in parent
    for rank in range(size):
        steps = 0
        while rank != root:
            rank, steps = parent[rank], steps + 1
        assert steps <= (size - 1).bit_length()


@given(size=st.integers(1, 64))
def test_a_parent_clears_the_lowest_bit_and_serves_its_largest_child_first(size: int) -> None:
    made = schedule("broadcast", "binomial", size, 1)
    for rank in range(size):
        children = [send.peer for step in made.steps(rank) for send in step.sends]
        low = rank & -rank if rank else 1 << 62
        assert children == [rank + (1 << k) for k in range(6, -1, -1) if (1 << k) < low and rank + (1 << k) < size]


@given(size=st.integers(1, 64))
def test_subtrees_partition_the_ranks(size: int) -> None:
    """Over the edge to v goes [v, v + its lowest bit), cut at N."""
    columns = schedule("scatter", "binomial", size, size).arrays()
    for dst, start, count in zip(*(columns[name].tolist() for name in ("dst", "start", "count")), strict=True):
        assert start == dst
        assert count == min(dst & -dst, size - dst)


@examples(60)
@given(op=st.sampled_from(OPS), size=st.integers(1, 20), root=st.integers(0, 19), seed=st.integers(0, 2**32))
def test_the_root_may_have_any_name(op: str, size: int, root: int, seed: int) -> None:
    """Ranks renamed so that the root is 0 send the same bytes in the same steps."""
    root %= size
    renamed, plain = (schedule(op, "binomial", size, 3 * size, root=at).arrays() for at in (root, 0))
    for name in ("step", "start", "count"):
        assert renamed[name].tolist() == plain[name].tolist()
    for name in ("src", "dst"):
        assert ((renamed[name] - root) % size).tolist() == plain[name].tolist()


@pytest.mark.parametrize(("name", "wanted"), [("binomial", "(((01)(23))((45)6))"), ("linear", "((((((01)2)3)4)5)6)")])
def test_the_order_of_reduce(name: str, wanted: str) -> None:
    """Own, then the children in ascending order."""
    data = [np.array([str(rank)], dtype=object) for rank in range(7)]
    result = execute(schedule("reduce", name, 7, 1), data, CONCAT)[0][0]
    assert result == wanted


@pytest.mark.parametrize(("name", "wanted"), [("naive_star", "((((20)1)3)4)"), ("naive_exchange", "((((01)2)3)4)")])
def test_the_order_of_the_naive_ones(name: str, wanted: str) -> None:
    data = [np.array([str(rank)], dtype=object) for rank in range(5)]
    results = execute(schedule("all_reduce", name, 5, 1, root=2), data, CONCAT)
    assert {result[0] for result in results} == {wanted}


def test_an_exchange_begins_with_the_next_rank() -> None:
    made = schedule("all_reduce", "naive_exchange", 5, 8)
    assert [send.peer for send in next(made.steps(2)).sends] == [3, 4, 0, 1]


def test_bytes_of_a_scatter() -> None:
    assert check(schedule("scatter", "binomial", 8, 8)).elements == 7 + 1 + 2 + 1 + 1  # subtrees 4+2+1, 2+1, 1, 1
