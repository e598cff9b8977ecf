# SPDX-License-Identifier: GPL-2.0-only
"""Every algorithm does what its operation promises, whatever the order in which messages fly (invariants 1-3, 18)."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.collectives.cases import NAMES, WITH_DATA, Case, cases, inputs, integers, promised
from tests.support.collectives.executor import World, execute
from tests.support.effort import examples
from uetproto.collectives.algorithms.catalogue import schedule
from uetproto.collectives.costs.check import check

OPERATIONS = {"sum": np.add, "product": np.multiply, "min": np.minimum, "max": np.maximum, "bxor": np.bitwise_xor}


@examples(400)
@given(
    case=cases(WITH_DATA), seed=st.integers(0, 2**32), op=st.sampled_from(sorted(OPERATIONS)),
    dtype=st.sampled_from([np.int8, np.uint16, np.int32, np.int64]),
)  # fmt: skip
def test_results_are_those_of_numpy(case: Case, seed: int, op: str, dtype: type) -> None:
    data = inputs(case.schedule, integers(seed, dtype))
    kept = [array.copy() for array in data]
    results = execute(case.schedule, data, OPERATIONS[op], seed)
    with np.errstate(over="ignore"):
        for rank, wanted in promised(case, data, OPERATIONS[op]).items():
            np.testing.assert_array_equal(results[rank], wanted.astype(dtype))
    for array, before in zip(data, kept, strict=True):
        np.testing.assert_array_equal(array, before)


@examples(150)
@given(case=cases([pair for pair in WITH_DATA if pair[0] == "all_reduce"]), seed=st.integers(0, 2**32))
def test_floats_are_the_same_bits_on_all_ranks_and_near_the_sum(case: Case, seed: int) -> None:
    random = np.random.default_rng(seed)
    data = inputs(case.schedule, lambda rank, count: random.standard_normal(count).astype(np.float32))
    results = execute(case.schedule, data, seed=seed)
    assert len({result.tobytes() for result in results}) == 1
    again = execute(case.schedule, data, seed=seed + 1)
    assert again[0].tobytes() == results[0].tobytes()
    np.testing.assert_allclose(results[0], np.sum(data, axis=0, dtype=np.float64), rtol=1e-4, atol=1e-4)


@examples(200)
@given(case=cases(), seed=st.integers(0, 2**32))
def test_steps_and_arrays_say_the_same(case: Case, seed: int) -> None:
    made = case.schedule
    columns = made.arrays()
    assert len({len(column) for column in columns.values()}) == 1
    rows = list(zip(*(column.tolist() for column in columns.values()), strict=True))
    sent, received = [], []
    for rank in range(made.size):
        numbers = [step.number for step in made.steps(rank)]
        assert numbers == sorted(set(numbers))
        for step in made.steps(rank):
            assert step.number < max(made.length, 1)
            sent += [(step.number, rank, *send) for send in step.sends]
            received += [(step.number, receive.peer, rank, *receive[1:]) for receive in step.receives]
    assert sorted(sent) == sorted((step, src, dst, *at, count) for step, src, dst, *at, _, _, count, _ in rows)
    assert sorted(received) == sorted((step, src, dst, *of_receiver) for step, src, dst, _, _, *of_receiver in rows)


@examples(200)
@given(case=cases(), seed=st.integers(0, 2**32))
def test_the_proof_and_the_run_agree(case: Case, seed: int) -> None:
    found = check(case.schedule)
    world = World(case.schedule, inputs(case.schedule, integers(seed)), seed=seed)
    world.run()
    assert found.messages == world.messages
    assert found.sent.tolist() == world.elements_sent
    assert found.received.tolist() == world.elements_received
    assert found.elements == sum(world.elements_sent) == sum(world.elements_received)


@pytest.mark.parametrize(("op", "name"), NAMES)
def test_one_rank_sends_nothing(op: str, name: str) -> None:
    made = schedule(op, name, 1, 0 if op == "barrier" else 5, nodes=1)
    assert made.length == 0
    assert len(made.arrays()["step"]) == 0
    assert not any(step.sends or step.receives for step in made.steps(0))
    if op != "barrier":
        (result,) = execute(made, [np.arange(5)])
        np.testing.assert_array_equal(result, np.arange(5))


@examples(60)
@given(size=st.integers(1, 12), count=st.integers(0, 40), root=st.integers(0, 11), seed=st.integers(0, 2**32))
def test_all_reduce_is_what_two_operations_make(size: int, count: int, root: int, seed: int) -> None:
    data = [integers(seed + rank)(rank, count) for rank in range(size)]
    whole = execute(schedule("all_reduce", "ring", size, count), data)
    parts = execute(schedule("reduce_scatter", "ring", size, count), data)
    gathered = execute(schedule("all_gather", "ring", size, count), parts)
    root %= size
    reduced = execute(schedule("reduce", "binomial", size, count, root=root), data)
    sent_out = execute(schedule("broadcast", "binomial", size, count, root=root), [reduced[root]] * size)
    for rank in range(size):
        np.testing.assert_array_equal(whole[rank], gathered[rank])
        np.testing.assert_array_equal(whole[rank], sent_out[rank])


def test_the_small_goldens() -> None:  # collectives.md §1.3
    data = [np.arange(4 * rank, 4 * rank + 4) for rank in range(4)]
    for name in ("pairwise", "xor", "linear", "bruck"):
        results = execute(schedule("all_to_all", name, 4, 4), data)
        assert [result.tolist() for result in results] == [[rank, rank + 4, rank + 8, rank + 12] for rank in range(4)]
    for name in ("ring", "halving"):
        results = execute(schedule("reduce_scatter", name, 2, 4), [np.arange(4), np.arange(4)])
        assert [result.tolist() for result in results] == [[0, 2], [4, 6]]
    results = execute(schedule("all_reduce", "ring", 2, 2), [np.array([1, 2]), np.array([3, 4])])
    assert [result.tolist() for result in results] == [[4, 6], [4, 6]]
