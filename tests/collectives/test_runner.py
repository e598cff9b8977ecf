# SPDX-License-Identifier: GPL-2.0-only
"""The runner (collectives.md §1.6, §3.0, §6): any schedule over the model network puts the right numbers everywhere."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.collectives.runner_bench import execute, schedule
from tests.support.effort import examples
from uetproto.collectives.model import ModelNetwork, Path
from uetproto.collectives.reduce_ops import ReduceOp
from uetproto.collectives.runner import Execution, ScratchPool
from uetproto.collectives.transport import CollectiveTimers, Purpose, Tag
from uetproto.errors import LocalError
from uetproto.testing.machines.fabrics.collectives import EVERY, expected, planned


def inputs_of(plan, rng):
    return [rng.integers(-99, 99, plan.counts(rank).input) for rank in range(plan.size)]


@pytest.mark.parametrize(("op", "algorithm"), EVERY, ids="-".join)
@examples(8)
@given(size=st.integers(1, 9), count=st.integers(0, 40), root=st.integers(0, 8), seed=st.integers(0, 99))
def test_every_algorithm_gives_what_numpy_gives(op, algorithm, size, count, root, seed):
    plan = planned(op, algorithm, size, count, root)
    size, root = plan.size, root % plan.size
    rng = np.random.default_rng(seed)
    inputs = inputs_of(plan, rng)
    wanted = expected(plan, [given.copy() for given in inputs], root)
    ran = execute(plan, inputs, order=list(map(int, rng.permutation(size))))
    assert ran.errors == [[None]] * size
    for output, want in zip(ran.outputs, wanted, strict=True):
        if want is not None:
            assert output.tolist() == want.tolist()
    assert sum(one.bytes_sent for one in ran.counted) == sum(one.bytes_received for one in ran.counted)
    if size == 1:  # invariant 18: a local copy
        assert ran.network.messages == 0
        assert ran.time == 0


def test_golden_ring_of_four():
    """§6.1: 600 + 4i everywhere, 96 bytes and 6 steps a rank."""
    inputs = [np.array([100 * rank + i for i in range(16)], np.float32) for rank in range(4)]
    ran = execute(schedule("all_reduce", "ring", 4, 16), inputs)
    for output in ran.outputs:
        assert output.tolist() == [600 + 4 * i for i in range(16)]
    assert [one.bytes_sent for one in ran.counted] == [96] * 4
    assert [one.steps for one in ran.counted] == [6] * 4
    assert ran.network.messages == 24


def test_golden_chunks_of_ten():
    """§6.4: count 10 over 4 ranks: ring tx is 14, 15, 16, 15 elements."""
    ran = execute(
        schedule("all_reduce", "ring", 4, 10),
        [np.arange(10, dtype=np.int64)] * 1 + [np.ones(10, np.int64) for _ in range(3)],
    )
    assert [one.bytes_sent // 8 for one in ran.counted] == [14, 15, 16, 15]


@pytest.mark.parametrize(("algorithm", "n_alpha", "n_beta", "n_gamma"), [
    ("ring", 6, 6 / 4, 3 / 4), ("recursive_doubling", 2, 2, 2), ("halving_doubling", 4, 6 / 4, 3 / 4),
    ("naive_star", 6, 6, 3),
])  # fmt: skip
def test_time_is_that_of_the_formula(algorithm, n_alpha, n_beta, n_gamma):
    """§3.0, N = 4, D = 1 MiB."""
    size, count = 4, 1 << 17
    path = Path(alpha=5_000_000, rate=80 * 10**9)  # 100 ps a byte
    inputs = [np.ones(count, np.int64) for _ in range(size)]
    ran = execute(schedule("all_reduce", algorithm, size, count), inputs, network=ModelNetwork(size, path), gamma=10)
    assert ran.time == n_alpha * 5_000_000 + int((n_beta * 100 + n_gamma * 10) * 8 * count)


def test_float_order_is_the_documented_one():
    """Naive star: the root, then ascending ranks; not what another order gives."""
    values = [1e8, 1.0, -1e8, 1.0]
    inputs = [np.array([value], np.float32) for value in values]
    ran = execute(schedule("all_reduce", "naive_star", 4, 1), inputs)
    total = np.float32(values[0])
    for value in values[1:]:
        total = np.float32(total + np.float32(value))
    assert [float(output[0]) for output in ran.outputs] == [float(total)] * 4


def test_a_dead_rank_fails_what_depends_on_it():
    network = ModelNetwork(3)
    network.fail(1, "its cable is cut")
    inputs = [np.ones(6, np.int64) for _ in range(3)]
    ran = execute(schedule("all_reduce", "ring", 3, 6), inputs, network=network)
    assert all(len(told) <= 1 for told in ran.errors)
    assert "its cable is cut" in str(ran.errors[1][0])


def test_wrong_buffers_are_refused_before_anything_is_sent():
    network = ModelNetwork(2)
    plan = schedule("all_reduce", "ring", 2, 4)
    with pytest.raises(LocalError, match="input: 3 elements; legal for rank 0 of this all_reduce: 4"):
        Execution(plan, 0, network.end(0), input=np.zeros(3), output=np.zeros(4), done=print)
    assert network.messages == 0


def test_scratch_memory_is_used_again():
    pool = ScratchPool()
    block = pool.take(100)
    pool.give(block)
    assert pool.take(128) is block
    assert pool.take(128) is not block


@given(st.integers(0, 1), *(st.integers(0, (1 << width) - 1) for width in (13, 18, 18, 14)))
def test_a_tag_fits_64_bits_and_comes_back(purpose, group, sequence, step, piece):
    tag = Tag(Purpose(purpose), group, sequence, step, piece)
    assert tag.pack() < 1 << 64
    assert Tag.unpack(tag.pack()) == tag


def test_timers_fire_in_order_unless_cancelled():
    timers, told = CollectiveTimers(), []
    for name, instant in (("c", 5), ("a", 3), ("b", 3)):
        timers.at(instant, lambda name=name: told.append(name))
    cancelled = timers.at(1, lambda: told.append("never"), vital=False)
    assert timers.vital == 3
    timers.cancel(cancelled)
    assert timers.next == 3
    while timers.fire(4):
        pass
    assert told == ["a", "b"]
    assert (timers.next, timers.vital) == (5, 1)


def test_a_message_of_the_wrong_size_writes_nothing():
    network = ModelNetwork(2)
    into, told = bytearray(8), []
    tag = Tag(Purpose.POINT_TO_POINT, 0, 1)
    network.end(0).send(1, tag, memoryview(b"123"), told.append)
    network.end(1).receive(0, tag, memoryview(into), told.append)
    network.advance(10**9)
    while network.timers.next is not None:
        network.advance(network.timers.next)
        network.timers.fire(network.now)
    assert into == bytes(8)
    assert ["3 bytes sent, 8 awaited" in str(failure) for failure in told] == [True, True]


def test_the_network_needs_a_rank_that_exists():
    with pytest.raises(LocalError, match="peer: 2; legal: 0 … 1"):
        ModelNetwork(2).end(0).send(2, Tag(Purpose.COLLECTIVE, 0, 0), memoryview(b""), print)


def test_average_and_premultiplied_sum():
    plan = schedule("reduce_scatter", "ring", 4, 8)
    inputs = [np.full(8, 2.0 * rank, np.float64) for rank in range(4)]
    before = [given.copy() for given in inputs]
    assert [o.tolist() for o in execute(plan, inputs, ReduceOp.AVG).outputs] == [[3.0, 3.0]] * 4
    assert [o.tolist() for o in execute(plan, inputs, ReduceOp.PREMUL_SUM(0.5)).outputs] == [[6.0, 6.0]] * 4
    assert all(np.array_equal(a, b) for a, b in zip(inputs, before, strict=True))  # an input is only read
