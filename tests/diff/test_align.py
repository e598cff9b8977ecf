# SPDX-License-Identifier: GPL-2.0-only
"""The alignment of two sequences: what belongs together does, each item once, and no longer order is overlooked."""

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from tests.support.effort import examples
from uetproto.diff.align import aligned, increasing

ITEMS = st.lists(st.integers(0, 5), max_size=12)


@given(a=ITEMS, b=ITEMS)
@examples(400)
def test_every_item_has_one_place(a: list[int], b: list[int]) -> None:
    found = aligned(a, b)
    pairs = found.kept + found.moved
    assert sorted([i for i, _ in pairs] + found.missing) == list(range(len(a)))
    assert sorted([j for _, j in pairs] + found.extra) == list(range(len(b)))
    assert all(a[i] == b[j] for i, j in pairs)
    assert [j for _, j in found.kept] == sorted(j for _, j in found.kept)
    assert not {a[i] for i in found.missing} & {b[j] for j in found.extra}, "equal items are left on both sides"


@given(st.permutations(range(9)))
@examples(200)
def test_of_items_that_are_there_once_as_few_as_possible_move(order: list[int]) -> None:
    def longest(at: int, low: int) -> int:
        if at == len(order):
            return 0
        least = longest(at + 1, low)
        return least if order[at] < low else max(least, 1 + longest(at + 1, order[at] + 1))

    assert len(aligned(list(range(9)), order).kept) == longest(0, 0) == len(increasing(order))


def test_long_sequences_of_few_items() -> None:
    """Where nothing is there once, and the longest common subsequence would take too long."""
    a = [Random(1).randrange(3) for _ in range(3_000)]
    b = a[:1_400] + a[1_500:] + [7]
    found = aligned(a, b)
    assert len(found.missing) == 100
    assert found.extra == [len(b) - 1]
