# SPDX-License-Identifier: GPL-2.0-only
"""`dist` as torch.distributed has it (collectives.md §1.1 … §1.3): groups, collectives, and the ranks themselves."""

import signal
import threading
from datetime import timedelta

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.distributed.collectives import (
    run,
)
from tests.support.effort import examples
from uetproto.api import distributed as dist
from uetproto.errors import LocalError

SUM = dist.ReduceOp.SUM


# Golden values (§1.3)


def test_golden_all_to_all_single():
    def program(rank):
        out = np.zeros(4, int)
        dist.all_to_all_single(out, np.arange(4 * rank, 4 * rank + 4))
        return out.tolist()

    assert run(program) == [[rank, rank + 4, rank + 8, rank + 12] for rank in range(4)]


def test_golden_reduce_scatter_tensor():
    def program(rank):
        out = np.zeros(2, int)
        dist.reduce_scatter_tensor(out, np.arange(4))
        return out.tolist()

    assert run(program, 2) == [[0, 2], [4, 6]]


def test_golden_all_reduce():
    def program(rank):
        x = np.array([[1, 2], [3, 4]][rank])
        assert dist.all_reduce(x) is None
        return x.tolist()

    assert run(program, 2) == [[4, 6]] * 2


# Every operation


@pytest.mark.parametrize("async_op", [False, True])
@pytest.mark.parametrize("mode", ["cpu", "stream"])
def test_every_collective(async_op, mode):
    def zeros(*shape):
        return dist.Tensor(np.zeros(*shape))

    def full(*values):
        return dist.Tensor(np.full(*values))

    def program(rank):
        done = []

        def call(function, *args, **more):
            work = function(*args, async_op=async_op, **more)
            if async_op:
                assert work.wait() is True
            if mode == "stream":
                dist.synchronize()
            done.append(args[0])

        call(dist.broadcast, full(3, rank), 2)
        call(dist.all_reduce, full(3, rank + 1), dist.ReduceOp.PRODUCT)
        call(dist.all_gather, [zeros(2, int) for _ in range(4)], full(2, rank))
        call(dist.all_gather, [zeros(i, int) for i in range(4)], full(rank, rank))
        call(dist.all_gather_into_tensor, zeros((4, 2), int), full(2, rank))
        call(dist.reduce_scatter, zeros(2, int), [full(2, 10 * i + rank) for i in range(4)])
        call(dist.reduce_scatter, zeros(rank, int), [full(i, 10 * i + rank) for i in range(4)])
        call(dist.all_to_all, [zeros(1, int) for _ in range(4)], [dist.Tensor([10 * rank + i]) for i in range(4)])
        call(dist.scatter, zeros(2, int), [full(2, i) for i in range(4)] if rank == 1 else None, src=1)
        gathered = [zeros(1, int) for _ in range(4)] if rank == 3 else None
        work = dist.gather(dist.Tensor([rank]), gathered, dst=3, async_op=async_op)
        if async_op:
            work.wait()
        total = dist.Tensor([rank])
        call(dist.reduce, total, 1)
        dist.synchronize()
        dist.barrier()
        found = [[a.tolist() for a in x] if isinstance(x, list) else x.tolist() for x in done[:-1]]
        return found, gathered, int(total[0])

    results = run(program, mode=mode)
    for rank, (found, gathered, total) in enumerate(results):
        assert found == [
            [2] * 3,
            [24] * 3,
            [[i] * 2 for i in range(4)],
            [[i] * i for i in range(4)],
            [[i] * 2 for i in range(4)],
            [4 * 10 * rank + 6] * 2,
            [4 * 10 * rank + 6] * rank,
            [[10 * i + rank] for i in range(4)],
            [rank] * 2,
        ]
        assert gathered is None if rank != 3 else [int(x[0]) for x in gathered] == [0, 1, 2, 3]
        assert rank != 1 or total == 6


@examples(25)
@given(st.integers(1, 6), st.integers(0, 33), st.sampled_from(["int8", "uint64", "float32"]), st.integers(0, 99))
def test_all_reduce_is_reduce_scatter_and_all_gather_is_reduce_and_broadcast(size, each, dtype, seed):
    """Invariants 1 … 3."""
    inputs = np.random.default_rng(seed).integers(0, 99, (size, size * each)).astype(dtype)

    def program(rank):
        one, two, three = (inputs[rank].copy() for _ in range(3))
        dist.all_reduce(one)
        part = np.zeros(each, dtype)
        dist.reduce_scatter_tensor(part, two)
        dist.all_gather_into_tensor(two, part)
        dist.reduce(three, 0)
        dist.broadcast(three, 0)
        return one.tobytes(), two.tobytes(), three.tobytes()

    want = inputs.sum(axis=0, dtype=dtype).tobytes()
    assert run(program, size) == [(want,) * 3] * size


@examples(25)
@given(st.integers(1, 5), st.data())
def test_all_to_all_and_back_is_the_identity(size, data):
    """Invariant 14, with splits of any size."""
    splits = [[data.draw(st.integers(0, 3)) for _ in range(size)] for _ in range(size)]

    def program(rank):
        sends, takes = splits[rank], [row[rank] for row in splits]
        given = np.arange(sum(sends) * 2, dtype=np.float32).reshape(-1, 2) + 100 * rank
        there, back = np.zeros((sum(takes), 2), np.float32), np.zeros_like(given)
        dist.all_to_all_single(there, given, takes, sends)
        dist.all_to_all_single(back, there, sends, takes)
        return np.array_equal(given, back)

    assert all(run(program, size))


@pytest.mark.parametrize("algorithm", ["ring", "double_tree", "naive_exchange", {"all_reduce": "recursive_doubling"}])
def test_the_algorithm_of_a_world(algorithm):
    def program(rank):
        x = np.full(5, rank)
        dist.all_reduce(x)
        return x.tolist()

    assert run(program, algorithm=algorithm) == [[6] * 5] * 4


def test_the_algorithm_of_a_call_and_what_it_cost():
    def program(rank):
        work = dist.all_reduce(np.zeros(16, np.float32), async_op=True, algorithm="ring")
        work.wait()
        return work.counted.steps, work.counted.bytes_sent

    assert run(program) == [(6, 96)] * 4


def test_without_a_name_the_size_decides():
    def program(rank, count, op):
        dist.init_process_group()
        x = np.zeros(count, np.uint8)
        work = dist.all_reduce(x, async_op=True) if op == "all_reduce" else dist.all_gather_into_tensor(
            x, x[: count // 8], async_op=True
        )  # fmt: skip
        work.wait()
        return work.counted.steps

    small, large = 32 << 10, (32 << 10) + 8
    assert dist.run(program, (small, "all_reduce"), ranks=8)[0] == 3  # recursive doubling
    assert dist.run(program, (large, "all_reduce"), ranks=8)[0] == 14  # ring
    assert dist.run(program, (small, "all_gather"), ranks=8)[0] == 3  # Bruck
    assert dist.run(program, (large, "all_gather"), ranks=8)[0] == 7  # ring


def test_a_reduction_takes_its_time():
    """§2: gamma for each byte reduced, here of the ring a half of what is received."""

    def program(rank):
        dist.init_process_group()
        dist.all_reduce(np.zeros(4000, np.uint8), algorithm="ring")
        return round(dist.now() * 10**12)

    free, paid = dist.run(program, ranks=4), dist.run(program, ranks=4, gamma=7)
    assert [late - soon for late, soon in zip(paid, free, strict=True)] == [3 * 1000 * 7] * 4


def test_a_hierarchical_algorithm_knows_the_nodes_of_a_group():
    def program(rank):
        some = dist.new_group([0, 1, 4, 5])
        x = np.full(8, rank)
        if rank in (0, 1, 4, 5):
            dist.all_reduce(x, group=some)
        return x.tolist()

    results = run(program, 6, algorithm="split_rail", nodes=[[0, 1, 2], [3, 4, 5]])
    assert results[0] == [10] * 8
    assert results[2] == [2] * 8


@pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, np.float16, np.complex64, np.uint8])
def test_types(dtype):
    def program(rank):
        x = np.ones(5, dtype)
        dist.all_reduce(x)
        return x

    for x in run(program):
        assert x.dtype == dtype
        assert x.tolist() == [4] * 5


def test_complex_and_its_real_type_are_the_only_ones_that_mix():
    def program(rank):
        dist.all_gather([np.zeros(1, np.float32) for _ in range(2)], np.zeros(1, np.float64))

    with pytest.raises(ValueError, match="dtype: inputs float64, outputs float32; legal: the same for all"):
        run(program, 2)


@pytest.mark.parametrize("transport", ["model", "uet", "roce"])
def test_real_numbers_become_complex_ones(transport):
    def program(rank):
        real = np.array([rank, rank + 10], np.float32)
        one, blocks, total = (np.zeros(count, np.complex64) for count in (4, 2, 1))
        several = [np.zeros(2, np.complex64) for _ in range(2)]
        dist.all_gather_into_tensor(one, real)
        dist.all_gather(several, real)
        dist.all_to_all_single(blocks, real)
        dist.reduce_scatter(total, [np.array([1], np.float32), np.array([2j], np.complex64)])
        return one.tolist(), [x.tolist() for x in several], blocks.tolist(), total.tolist()

    results = run(program, 2, transport=transport)
    for rank in (0, 1):
        assert results[rank] == ([0, 10, 1, 11], [[0, 10], [1, 11]], [10 * rank, 10 * rank + 1], [[2, 4j][rank]])


def test_complex_numbers_do_not_become_real_ones():
    """A half of each would be lost."""

    def program(rank):
        dist.all_gather([np.zeros(1, np.float32) for _ in range(2)], np.ones(1, np.complex64))

    with pytest.raises(ValueError, match="dtype: inputs complex64, outputs float32; legal: outputs complex64"):
        run(program, 2)


# Groups (§1.1)


def test_groups_and_ranks():
    def program(rank):
        group = dist.new_group([3, 1])
        if rank in (1, 3):
            x = np.array([rank])
            dist.broadcast(x, 3, group=group)  # a global rank
            assert dist.get_process_group_ranks(group) == [1, 3]
            assert dist.get_global_rank(group, 1) == 3
            assert dist.get_group_rank(group, 3) == 1
            return dist.get_rank(group), dist.get_world_size(group), dist.get_rank(), x.tolist()
        assert group == dist.GroupMember.NON_GROUP_MEMBER
        with pytest.warns(UserWarning, match="is no member of the group"):
            assert dist.all_reduce(np.zeros(1), group=group) is None
        with pytest.warns(UserWarning, match="is no member of the group"):
            assert dist.recv(np.zeros(1), 1, group=group) == -1
        return dist.get_rank(group), dist.get_world_size(group)

    assert run(program) == [(-1, -1), (0, 2, 1, [3]), (-1, -1), (1, 2, 3, [3])]


def test_a_rank_outside_the_group_is_refused():
    def program(rank):
        group = dist.new_group([0, 1])
        if rank < 2:
            dist.broadcast(np.zeros(1), 2, group=group)

    with pytest.raises(ValueError, match="src: 2; legal: a global rank of the group: 0, 1"):
        run(program, 3)


def test_without_a_group_every_call_is_refused():
    for call in (dist.barrier, dist.get_rank, lambda: dist.send(np.zeros(1), 1), lambda: dist.new_group([0])):
        with pytest.raises(ValueError, match="there is no default group yet"):
            dist.run(lambda rank, call=call: call())


def test_init_says_what_it_is_told():
    def program(rank):
        assert not dist.is_initialized()
        dist.init_process_group("gloo", rank=rank, world_size=2, timeout=timedelta(seconds=5))
        assert dist.is_initialized()
        with pytest.raises(ValueError, match="called twice"):
            dist.init_process_group()
        dist.destroy_process_group()
        with pytest.raises(ValueError, match="backend: 'mpi'; legal: gloo, nccl, None"):
            dist.init_process_group("mpi")
        with pytest.raises(ValueError, match="world_size: 3; legal: 2"):
            dist.init_process_group(world_size=3)
        with pytest.raises(ValueError, match=f"rank: 5; legal: {rank}, which this rank is, or -1"):
            dist.init_process_group(rank=5)

    dist.run(program)


@pytest.mark.parametrize(("backend", "minutes"), [(None, 30), ("gloo", 30), ("nccl", 10)])
def test_the_usual_time_outs(backend, minutes):
    """§1.1: of the backend; a further group has that of the first one, or its own."""

    def program(rank):
        dist.init_process_group(backend)
        group, shorter = dist.new_group(), dist.new_group(timeout=timedelta(seconds=7))
        if rank == 1:
            return dist.sleep(3 * 3600)
        found = []
        for each in (None, group, shorter):
            began = dist.now()
            with pytest.raises(dist.TimeoutError):
                dist.recv(np.zeros(1), 1, group=each)
            found.append(round(dist.now() - began))
        return found

    assert dist.run(program)[0] == [60 * minutes, 60 * minutes, 7]


def test_outside_of_a_rank_nothing_works():
    assert not dist.is_initialized()
    with pytest.raises(LocalError, match="called outside of a rank"):
        dist.barrier()


# Ranks


def test_tutorial_style():
    """A function of rank and size, as the tutorials have it."""

    def ring(rank, size):
        dist.init_process_group("gloo", rank=rank, world_size=size)
        x = np.zeros(1)
        if rank == 0:
            dist.send(x + 1, dst=1)
            dist.recv(x, src=size - 1)
        else:
            dist.recv(x, src=rank - 1)
            dist.send(x + 1, dst=(rank + 1) % size)
        return x[0]

    assert dist.run(ring, args=(5,), ranks=5) == [5.0, 1.0, 2.0, 3.0, 4.0]


def test_exactly_one_rank_runs_at_a_time():
    inside = []

    def program(rank):
        for _ in range(20):
            inside.append(rank)
            assert len(inside) == 1
            sum(range(2000))
            inside.clear()
            dist.barrier()

    run(program, 6)


def test_no_thread_is_left_and_the_first_error_comes_out():
    before = threading.active_count()

    def program(rank):
        try:
            if rank == 2:
                raise KeyError("mine")
            dist.barrier()
        finally:
            dist.barrier()

    with pytest.raises(KeyError, match="mine") as raised:
        run(program)
    assert threading.active_count() == before
    assert any("raised by rank" in note for note in raised.value.__notes__) or raised.value.__context__ is not None


def test_a_program_that_never_ends_can_be_interrupted():
    if threading.current_thread() is not threading.main_thread():
        pytest.skip("signals go to the main thread")
    before, main = threading.active_count(), threading.main_thread().ident

    def program(rank):
        if rank == 1:
            signal.pthread_kill(main, signal.SIGINT)
            while True:
                pass
        dist.barrier()

    with pytest.raises(KeyboardInterrupt):
        run(program, 3)
    assert threading.active_count() == before


def test_threads_end_even_when_the_run_is_interrupted(monkeypatch):
    before = threading.active_count()
    world = dist.World(3)

    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(world.network, "advance", interrupted)

    def program(rank):
        dist.init_process_group()
        dist.all_reduce(np.zeros(4))

    with pytest.raises(KeyboardInterrupt):
        world.run(program)
    assert threading.active_count() == before


def test_one_program_one_trace():
    def program(rank):
        rng = np.random.default_rng(rank)
        for _ in range(5):
            dist.sleep(float(rng.random()) * 1e-6)
            dist.all_reduce(rng.random(100))
        return dist.now()

    def once():
        world = dist.World(5)

        def ready(rank):
            dist.init_process_group()
            return program(rank)

        return world.run(ready), world.trace, world.counted

    assert once() == once()


def test_a_world_runs_twice_and_never_within_itself():
    world = dist.World(2)

    def program(rank):
        dist.init_process_group()
        with pytest.raises(LocalError, match="called in a rank"):
            world.run(program)
        dist.barrier()
        return dist.now()

    first = world.run(program)
    assert world.run(program) > first


# Barriers


@examples(20)
@given(st.integers(1, 7), st.lists(st.lists(st.integers(0, 30), min_size=7, max_size=7), min_size=1, max_size=4))
def test_nobody_leaves_a_barrier_before_the_last_one_came(size, delays):
    """Invariant 15."""

    def program(rank):
        times = []
        for row in delays:
            dist.sleep(row[rank] * 1e-6)
            entered = dist.now()
            dist.barrier()
            times.append((entered, dist.now()))
        return times

    for crossing in zip(*run(program, size), strict=True):
        assert max(entered for entered, _ in crossing) <= min(left for _, left in crossing)


def test_monitored_barrier_names_who_is_missing():
    def program(rank, everyone):
        dist.init_process_group()
        if rank in (1, 3):
            dist.sleep(60)
        dist.monitored_barrier(timeout=timedelta(seconds=2), wait_all_ranks=everyone)

    with pytest.raises(TimeoutError, match=r"rank 1 did not come in 2 s"):
        dist.run(program, (False,), ranks=4)
    with pytest.raises(dist.TimeoutError, match=r"ranks 1, 3 did not come in 2 s"):
        dist.run(program, (True,), ranks=4)
    run(lambda rank: dist.monitored_barrier(timeout=1.5))


# Point to point (§1.1, §1.3)


@pytest.mark.parametrize("mode", ["cpu", "stream"])
@pytest.mark.parametrize("transport", ["model", "uet", "roce"])
def test_a_receive_from_any_rank_says_from_which(transport, mode):
    def program(rank):
        if rank != 1:
            dist.sleep(1 + rank)
            return dist.send(dist.Tensor(np.full(2, rank)), 1, tag=7)
        x = dist.Tensor(np.zeros(2, int))
        found = [(dist.recv(x, tag=7), x.tolist()) for _ in range(2)]
        work = dist.irecv(x, tag=7)
        assert mode == "stream" or work.source_rank() == -1
        work.wait(60)
        return [*found, (work.source_rank(), x.tolist())]

    assert run(program, mode=mode, transport=transport)[1] == [(rank, [rank] * 2) for rank in (0, 2, 3)]


@pytest.mark.parametrize("transport", ["model", "uet", "roce"])
def test_of_one_tag_first_in_is_first_out(transport):
    def program(rank):
        if rank == 0:
            for work in [dist.isend(np.array([tag, number]), 1, tag=tag) for number in range(3) for tag in (4, 5)]:
                work.wait()
            return None
        found = [np.zeros(2, int) for _ in range(6)]
        for number, tag in enumerate((5, 5, 4, 5, 4, 4)):
            dist.recv(found[number], 0, tag=tag)
        return [x.tolist() for x in found]

    assert run(program, 2, transport=transport)[1] == [[5, 0], [5, 1], [4, 0], [5, 2], [4, 1], [4, 2]]


# Work (§1.2)


def test_sync_is_async_and_wait():
    """Invariant 19: the same result, the same messages."""

    def world_of(waits):
        world = dist.World(4)

        def program(rank):
            dist.init_process_group()
            x = np.arange(10.0) * rank
            work = dist.all_reduce(x, async_op=waits)
            if waits:
                work.wait()
            return x.tolist(), dist.now()

        return world.run(program), world.counted, world.network.messages

    assert world_of(True) == world_of(False)


def test_is_completed_lets_time_pass_and_stays_true():
    """Invariant 20."""

    def program(rank):
        x = np.zeros(1 << 16)
        work = dist.all_reduce(x, async_op=True)
        looks = 0
        while not work.is_completed():
            looks += 1
        assert work.wait() is True
        assert work.is_completed()
        assert work.is_success()
        return looks

    assert min(run(program)) > 3


def test_wait_raises_in_time_and_the_same_error_each_time():
    def program(rank):
        if rank == 1:
            dist.sleep(5)
            dist.send(np.zeros(1), 0)
            return None
        work = dist.irecv(np.zeros(1), 1)
        with pytest.raises(TimeoutError, match=r"irecv\(src=1, tag=0\) #0 of group 0 took more than 2 s") as first:
            work.wait(timedelta(seconds=2))
        assert dist.now() == 2
        with pytest.raises(dist.TimeoutError) as again:
            work.wait()
        assert again.value is first.value
        assert work.is_completed()
        assert not work.is_success()
        return dist.recv(np.zeros(1), 1)

    assert run(program, 2) == [1, None]


def test_the_group_has_a_timeout():
    def program(rank):
        dist.init_process_group(timeout=1)
        if rank == 1:
            dist.sleep(3)
        dist.all_reduce(np.zeros(3))

    with pytest.raises(TimeoutError, match=r"all_reduce #0 of group 0 took more than 1 s: it waits for rank 1 to join"):
        dist.run(program)


@pytest.mark.parametrize("timeout", ["1 s", -1, True, float("inf"), float("nan")])
def test_what_a_timeout_can_be(timeout):
    def program(rank):
        dist.init_process_group(timeout=timeout)

    with pytest.raises(ValueError, match=r"timeout: .*; legal: a timedelta, or seconds of virtual time"):
        dist.run(program)


# Tensors of torch, without torch


class FakeTensor:
    """What a torch CPU tensor shows."""

    def __init__(self, array, kind="cpu", knows_numpy=True):
        self.array, self.knows_numpy = array, knows_numpy
        self.device = type("device", (), {"type": kind})()
        self.dtype = f"torch.{array.dtype.name}"
        self.shape = array.shape

    def detach(self):
        return self

    def numpy(self):
        if not self.knows_numpy:
            raise TypeError("Got unsupported ScalarType BFloat16")
        return self.array

    def data_ptr(self):
        return self.array.ctypes.data

    def numel(self):
        return self.array.size

    def element_size(self):
        return self.array.itemsize

    def is_contiguous(self):
        return self.array.flags.c_contiguous


@pytest.mark.parametrize(
    "array", [np.ones(4, np.float32), np.ones(4, ml_dtypes.bfloat16), np.ones(0, ml_dtypes.bfloat16)]
)
def test_a_torch_tensor_is_taken_by_its_memory(array):
    def program(rank):
        x = FakeTensor(array.copy(), knows_numpy=array.dtype == np.float32)
        dist.all_reduce(x)
        return x.array.tolist()

    assert run(program, 2) == [[2] * array.size] * 2


def test_what_has_an_array_interface_is_taken():
    class Shared:
        def __init__(self, array):
            self.__array_interface__ = array.__array_interface__
            self.array = array

    def program(rank):
        x = Shared(np.ones(3))
        dist.all_reduce(x)
        return x.array.tolist()

    assert run(program, 2) == [[2.0] * 3] * 2


@pytest.mark.parametrize(("value", "error", "text"), [
    ([1, 2], TypeError, "tensor: list; legal: a NumPy array, or a torch tensor in CPU memory"),
    (np.float32(1), TypeError, "tensor: float32; legal: a NumPy array"),
    (np.zeros((4, 4))[:, 0], ValueError, r"tensor: strides \(32,\); legal: a contiguous tensor"),
    (np.array(["a"]), ValueError, "tensor: dtype: .*; legal, in native byte order: bool"),
    (FakeTensor(np.zeros(1), "cuda"), ValueError, "tensor: a tensor in cuda memory; legal: a NumPy array"),
    (np.frombuffer(b"12345678"), ValueError, "tensor: read-only; legal: a writable tensor"),
])  # fmt: skip
def test_what_no_tensor_is(value, error, text):
    with pytest.raises(error, match=text):
        run(lambda rank: dist.all_reduce(value), 2)


@pytest.mark.parametrize(("arguments", "text"), [
    ({"ranks": 0}, "ranks: 0; legal: a whole number, 1 … 16384"),
    ({"mode": "gpu"}, "mode: 'gpu'; legal: cpu, stream"),
    ({"transport": "ib"}, "transport: 'ib'; legal: model, uet, roce"),
    ({"algorithm": "magic"}, "algorithm: 'magic'; legal: "),
    ({"algorithm": {"all_reduce": "pairwise"}}, "algorithm: 'pairwise' of all_reduce; legal: naive_star, "),
    ({"eager_threshold": -1}, "eager_threshold: -1; legal: bytes, 0 and more"),
    ({"gamma": -1}, "gamma: -1; legal: picoseconds a byte"),
    ({"speed": 3}, "speed: an unknown argument; legal: path"),
])  # fmt: skip
def test_what_a_world_cannot_be(arguments, text):
    with pytest.raises(ValueError, match=text):
        dist.World(**arguments)
