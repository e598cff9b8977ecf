# SPDX-License-Identifier: GPL-2.0-only
"""Binary trees: the parent tables of collectives.md §3.4, the golden of §6.2, their shape (invariants 8-11)."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.collectives.executor import World, execute
from tests.support.effort import examples
from uetproto.collectives.algorithms.catalogue import schedule
from uetproto.collectives.algorithms.pattern import steps_for as lg
from uetproto.collectives.algorithms.trees import NONE, children, depths, parents
from uetproto.collectives.costs.check import check

TABLES = """
|  2 | -1 0                      | 1 -1                      |
|  3 | -1 2 0                    | 1 -1 0                    |
|  4 | -1 2 0 2                  | 1 3 1 -1                  |
|  5 | -1 2 4 2 0                | 1 -1 3 0 3                |
|  6 | -1 2 4 2 0 4              | 1 5 3 1 3 -1              |
|  7 | -1 2 4 2 0 6 4            | 5 -1 3 5 3 1 0            |
|  8 | -1 2 4 2 0 6 4 6          | 1 3 1 7 5 3 5 -1          |
| 12 | -1 2 4 2 8 6 4 6 0 10 8 10 | 1 3 1 11 5 7 5 3 9 7 9 -1 |
"""


@pytest.mark.parametrize("row", TABLES.strip().splitlines())
def test_the_parent_tables(row: str) -> None:
    size, first, second = ([int(word) for word in cell.split()] for cell in row.strip("|").split("|"))
    assert parents(size[0]).tolist() == first
    assert parents(size[0], second=True).tolist() == second


def reference(size: int, rank: int) -> tuple[int, int, int]:
    """Parent, left and right child in tree A, as the page's formulas read."""
    if rank == 0:
        return NONE, (1 << (lg(size) - 1) if size > 1 else NONE), NONE
    low = rank & -rank
    parent = rank + low if rank // low % 4 == 1 and rank + low < size else rank - low
    left = rank - low // 2 if low > 1 else NONE
    halves = [low >> i for i in range(1, low.bit_length()) if rank + (low >> i) < size]
    return parent, left, rank + halves[0] if halves else NONE


@given(size=st.integers(1, 1024))
def test_tree_a_is_that_of_the_formulas(size: int) -> None:
    wanted = [reference(size, rank) for rank in range(size)]
    left, right = children(size)
    assert list(zip(parents(size).tolist(), left.tolist(), right.tolist(), strict=True)) == wanted


@given(size=st.integers(2, 1024))
def test_tree_b_is_tree_a_with_other_names(size: int) -> None:
    def label(rank: int) -> int:
        if rank == NONE:
            return NONE
        return size - 1 - rank if size % 2 == 0 else (rank + 1) % size

    for first, second in zip(
        (parents(size), *children(size)), (parents(size, second=True), *children(size, second=True)), strict=True
    ):
        assert all(second[label(rank)] == label(int(of)) for rank, of in enumerate(first))


@examples(100)
@given(size=st.integers(2, 1024))
def test_the_shape_of_both_trees(size: int) -> None:
    edges = np.zeros(size, dtype=int)
    for second in (False, True):
        parent = parents(size, second=second)
        left, right = children(size, second=second)
        (root,) = np.flatnonzero(parent == NONE)
        assert root == (0 if not second else size - 1 if size % 2 == 0 else 1)
        number = (left != NONE).astype(int) + (right != NONE)
        assert number.sum() == size - 1
        assert number[root] == 1
        for child in (left, right):
            there = np.flatnonzero(child != NONE)
            assert (parent[child[there]] == there).all()
        assert depths(parent).max() == lg(size)  # so all are below the root
        edges += number + (parent != NONE)
    assert edges.max() <= 4
    assert edges.sum() == 4 * (size - 1)


@given(size=st.integers(2, 512))
def test_who_is_inner_in_both_trees(size: int) -> None:
    inner = [set(parents(size, second=second).tolist()) - {NONE} for second in (False, True)]
    if size % 2:
        assert inner[0] & inner[1] == {0}
    else:
        assert inner[0] & inner[1] == set()
    assert inner[0] | inner[1] == set(range(size))
    assert set(range(size)) - inner[0] == set(range(1, size, 2))


@given(size=st.integers(2, 200), half=st.integers(0, 20))
def test_bytes_are_those_of_the_edges(size: int, half: int) -> None:
    found = check(schedule("all_reduce", "double_tree", size, 2 * half))
    edges = np.zeros(size, dtype=int)
    for second in (False, True):
        parent = parents(size, second=second)
        edges += parent != NONE
        np.add.at(edges, parent[parent != NONE], 1)
    assert found.sent.tolist() == (edges * half).tolist() == found.received.tolist()
    assert found.elements == 2 * (size - 1) * 2 * half
    assert found.steps == 2 * lg(size)
    assert found.messages == 4 * (size - 1)


def test_the_golden_run() -> None:  # §6.2: 64 bytes are 16 elements
    made = schedule("all_reduce", "double_tree", 8, 16)
    levels: dict[int, set[tuple[int, int, int]]] = {}
    sums: dict[tuple[int, int], float] = {}

    def watch(step: int, src: int, dst: int, payload: np.ndarray) -> None:
        assert len(payload) == 8
        sums[step, src] = payload[0]

    results = World(made, [np.full(16, rank, dtype=np.float32) for rank in range(8)], watch=watch).run()
    for step, src, dst, start in zip(
        *(made.arrays()[k].tolist() for k in ("step", "src", "dst", "start")), strict=True
    ):
        levels.setdefault(step, set()).add((start, src, dst))
    assert levels == {
        0: {(0, 1, 2), (0, 3, 2), (0, 5, 6), (0, 7, 6), (8, 2, 1), (8, 0, 1), (8, 6, 5), (8, 4, 5)},
        1: {(0, 2, 4), (0, 6, 4), (8, 1, 3), (8, 5, 3)},
        2: {(0, 4, 0), (8, 3, 7)},
        3: {(0, 0, 4), (8, 7, 3)},
        4: {(0, 4, 2), (0, 4, 6), (8, 3, 5), (8, 3, 1)},
        5: {(0, 2, 1), (0, 2, 3), (0, 6, 5), (0, 6, 7), (8, 5, 6), (8, 5, 4), (8, 1, 2), (8, 1, 0)},
    }
    assert {key: sums[key] for key in ((1, 2), (1, 6), (2, 4), (3, 0), (1, 1), (1, 5), (2, 3), (3, 7))} == {
        (1, 2): 6, (1, 6): 18, (2, 4): 28, (3, 0): 28, (1, 1): 3, (1, 5): 15, (2, 3): 21, (3, 7): 28,
    }  # fmt: skip
    assert all((result == 28).all() for result in results)
    found = check(made)
    assert (4 * found.sent).tolist() == [64, 128, 128, 128, 128, 128, 128, 64]
    assert (4 * found.elements, found.messages, found.steps) == (896, 28, 6)


@pytest.mark.parametrize("slices", [1, 3])
@pytest.mark.parametrize("size", [2, 3, 5, 8, 12])
def test_the_order_in_which_a_rank_combines(size: int, slices: int) -> None:
    """own op left op right."""

    def combined(rank: int, second: bool) -> str:
        text = str(rank)
        for child in children(size, second=second):
            if child[rank] != NONE:
                text = f"({text}{combined(int(child[rank]), second)})"
        return text

    made = schedule("all_reduce", "double_tree", size, 2 * slices, slices=slices)
    concat = np.frompyfunc(lambda left, right: f"({left}{right})", 2, 1)
    results = execute(made, [np.array([str(rank)] * 2 * slices, dtype=object) for rank in range(size)], concat)
    roots = [int(np.flatnonzero(parents(size, second=second) == NONE)[0]) for second in (False, True)]
    for result in results:
        assert set(result[:slices]) == {combined(roots[0], False)}
        assert set(result[slices:]) == {combined(roots[1], True)}


@given(size=st.integers(2, 40), slices=st.integers(1, 9))
def test_a_slice_more_is_a_step_more(size: int, slices: int) -> None:
    assert schedule("all_reduce", "double_tree", size, 64, slices=slices).length == 2 * lg(size) + slices - 1
