# SPDX-License-Identifier: GPL-2.0-only
"""The ring: the golden run of collectives.md §6.1, its formulas and what its partial sums hold (invariants 4-7)."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.collectives.executor import World, execute
from tests.support.collectives.reference import traversals
from tests.support.effort import examples
from uetproto.collectives.algorithms.catalogue import schedule
from uetproto.collectives.algorithms.chunks import offset_of, size_of
from uetproto.collectives.algorithms.schedule import Fold
from uetproto.collectives.costs.check import check

GOLDEN = [  # a step a row, a sender a column: chunk, payload, result at the receiver
    ["c3 12 13 14 15 => 124 126 128 130", "c0 100 101 102 103 => 300 302 304 306",
     "c1 204 205 206 207 => 508 510 512 514", "c2 308 309 310 311 => 316 318 320 322"],
    ["c2 316 318 320 322 => 424 427 430 433", "c3 124 126 128 130 => 336 339 342 345",
     "c0 300 302 304 306 => 600 603 606 609", "c1 508 510 512 514 => 512 515 518 521"],
    ["c1 512 515 518 521 => 616 620 624 628", "c2 424 427 430 433 => 632 636 640 644",
     "c3 336 339 342 345 => 648 652 656 660", "c0 600 603 606 609 => 600 604 608 612"],
    ["c0", "c1", "c2", "c3"],
    ["c3", "c0", "c1", "c2"],
    ["c2", "c3", "c0", "c1"],
]  # fmt: skip


def test_the_golden_run() -> None:
    made = schedule("all_reduce", "ring", 4, 16)
    data = [np.arange(16, dtype=np.float32) + 100 * rank for rank in range(4)]
    chunk = {
        (step, src): start // 4
        for step, src, start in zip(*(made.arrays()[k].tolist() for k in ("step", "src", "start")), strict=True)
    }
    seen = {}
    world = World(made, data, watch=lambda step, src, dst, payload: seen.update({(step, src): (dst, payload)}))
    results = world.run()
    for step, row in enumerate(GOLDEN):
        for src, text in enumerate(row):
            dst, payload = seen[step, src]
            assert dst == (src + 1) % 4
            name, *numbers = text.partition(" => ")[0].split()
            assert name == f"c{chunk[step, src]}"
            assert not numbers or payload.tolist() == [float(number) for number in numbers]
            if stored := text.partition(" => ")[2]:  # what the receiver sends on in the next step
                assert " ".join(f"{value:g}" for value in seen[step + 1, dst][1]) == stored
    for result in results:
        np.testing.assert_array_equal(result, 600 + 4 * np.arange(16))
    assert [4 * sent for sent in world.elements_sent] == [96] * 4
    assert (4 * sum(world.elements_sent), world.messages, made.length) == (384, 24, 6)
    assert 4 * traversals(made, leaf=[0] * 4) == 768


@given(size=st.integers(2, 40), count=st.integers(0, 200))
def test_steps_and_bytes(size: int, count: int) -> None:
    found = check(schedule("all_reduce", "ring", size, count))
    sizes = [size_of(chunk, count, size) for chunk in range(size)]
    assert found.steps == 2 * (size - 1)
    assert found.sent.tolist() == [2 * count - sizes[rank] - sizes[(rank + 1) % size] for rank in range(size)]
    assert found.elements == 2 * (size - 1) * count


def test_the_golden_bytes() -> None:  # §6.4
    assert check(schedule("all_reduce", "ring", 4, 10)).sent.tolist() == [14, 15, 16, 15]


def disjoint(left: frozenset[int], right: frozenset[int]) -> frozenset[int]:
    assert not left & right, "a contribution twice"
    return left | right


UNION = np.frompyfunc(disjoint, 2, 1)


@examples(25)
@given(size=st.integers(2, 16), seed=st.integers(0, 2**32))
def test_partial_sums_are_of_an_interval_of_ranks(size: int, seed: int) -> None:
    """What is sent in step s+1 is what was combined in step s: chunk r-2-s, of ranks r, r-1, .. r-1-s."""
    made = schedule("all_reduce", "ring", size, size)
    data = [np.array([frozenset([rank])] * size, dtype=object) for rank in range(size)]

    def watch(step: int, src: int, dst: int, payload: np.ndarray) -> None:
        held = {(src - back) % size for back in range(min(step, size - 1) + 1)}
        assert payload.tolist() == [held]

    results = World(made, data, UNION, seed, watch).run()
    assert all(element == set(range(size)) for result in results for element in result)


@given(size=st.integers(2, 30), rank=st.integers(0, 29))
def test_a_rank_forwards_what_it_received_last(size: int, rank: int) -> None:
    made = schedule("all_reduce", "ring", size, 3 * size)
    steps = list(made.steps(rank % size))
    for before, after in itertools.pairwise(steps):
        assert after.sends[0].start == before.receives[0].start


@pytest.mark.parametrize("nodes", [None, 1, 2, 3, 6, [[5, 2, 0], [1, 4, 3]]])
def test_next_is_one_cycle(nodes: object) -> None:
    made = schedule("all_reduce", "ring" if nodes is None else "nccl_ring", 6, 12, nodes=nodes)  # type: ignore[arg-type]
    follows = {rank: {send.peer for step in made.steps(rank) for send in step.sends} for rank in range(6)}
    precedes = {rank: {receive.peer for step in made.steps(rank) for receive in step.receives} for rank in range(6)}
    at, seen = 0, []
    for _ in range(6):
        seen.append(at)
        (after,) = follows[at]
        assert precedes[after] == {at}
        at = after
    assert at == 0
    assert sorted(seen) == list(range(6))


@pytest.mark.parametrize("size", [2, 3, 5, 8])
def test_the_order_in_which_a_chunk_is_combined(size: int) -> None:
    """((x_(c+1) op x_(c+2)) op ...) op x_c."""
    made = schedule("all_reduce", "ring", size, size)
    concat = np.frompyfunc(lambda left, right: f"({left}{right})", 2, 1)
    results = execute(made, [np.array([str(rank)] * size, dtype=object) for rank in range(size)], concat)
    for chunk in range(size):
        order = [str((chunk + 1 + i) % size) for i in range(size)]
        wanted = order[0]
        for name in order[1:]:
            wanted = f"({wanted}{name})"
        assert {result[offset_of(chunk, size, size)] for result in results} == {wanted}


def test_halves() -> None:
    scatter, gather = (list(schedule(op, "ring", 5, 5).steps(2)) for op in ("reduce_scatter", "all_gather"))
    assert [step.receives[0].fold for step in scatter] == [Fold.INCOMING_FIRST] * 4
    assert [step.receives[0].fold for step in gather] == [Fold.STORE] * 4
    assert [step.sends[0].start for step in scatter] == [1, 0, 4, 3]
    assert [step.sends[0].start for step in gather] == [2, 1, 0, 4]
