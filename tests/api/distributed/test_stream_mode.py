"""The optional stream mode (collectives.md §1.2): calls are queued, the program goes on."""

import numpy as np
import pytest

from tests.support.distributed.collectives import run
from uetproto.api import distributed as dist


def stream(program, ranks=2, **world):
    return run(program, ranks, mode="stream", **world)


def test_a_collective_returns_before_its_result_is_there():
    def program(rank):
        x = np.array([1.0])
        dist.all_reduce(x)
        early = x[0], dist.now()
        dist.synchronize()
        return early, x[0], dist.now() > 0

    assert stream(program) == [((1.0, 0.0), 2.0, True)] * 2


def test_operations_of_the_stream_run_in_order():
    def program(rank):
        x = np.array([1])
        for _ in range(5):
            dist.all_reduce(x)
        dist.synchronize()
        return int(x[0])

    assert stream(program) == [32, 32]


def test_wait_makes_the_stream_wait_and_not_the_program():
    def program(rank):
        x, y = np.array([1]), np.array([0])
        work = dist.all_reduce(x, async_op=True)
        assert work.is_completed()  # queued
        work.wait()
        assert dist.now() == 0
        dist.all_gather_into_tensor(np.zeros(2, int), x)  # after the work
        dist.synchronize()
        return int(x[0]), int(y[0])

    assert stream(program) == [(2, 0)] * 2


def test_wait_with_a_time_out_makes_the_program_wait():
    def program(rank):
        work = dist.all_reduce(np.array([1]), async_op=True)
        work.wait(1)
        return 0 < dist.now() < 1

    assert stream(program) == [True, True]


def test_the_trap_a_receive_without_a_sender_returns():
    """The hang appears only when the host reads the tensor; the first call between two ranks really waits."""
    reached = []

    def program(rank):
        x = np.zeros(1)
        if rank == 0:
            dist.send(x, 1)
            dist.synchronize()
        else:
            dist.recv(x, 0)
            dist.recv(x, 0)  # nobody sends it
            reached.append(rank)
            dist.synchronize()

    with pytest.raises(dist.DeadlockError, match=r"rank 1: recv\(src=0, tag=0\) #1"):
        stream(program)
    assert reached == [1]


@pytest.mark.parametrize("first", [dist.isend, dist.irecv, dist.send, dist.recv])
def test_the_first_call_between_two_ranks_really_waits(first):
    def program(rank):
        if rank == 1:
            dist.sleep(2)
            (dist.recv if "send" in first.__name__ else dist.send)(np.zeros(1), 0)
            return 2.0
        first(np.zeros(1), 1)
        return dist.now()

    assert stream(program) == [2.0, 2.0]


def test_a_peer_that_never_calls_is_explained():
    with pytest.raises(dist.DeadlockError, match=r"rank 0: connect\(peer=1\) #0 of group 0 waits for rank 1"):
        stream(lambda rank: dist.isend(np.zeros(1), 1) and None if rank == 0 else None)


def test_a_receive_from_any_rank_that_nobody_answers_is_explained():
    with pytest.raises(dist.DeadlockError, match=r"missing participant.*\n  rank 1: recv\(src=any, tag=0\) #0"):
        stream(lambda rank: dist.recv(np.zeros(1)) if rank == 1 else None)


def test_errors_come_out_at_the_end():
    def program(rank):
        dist.all_reduce(np.zeros(2 + rank))
        dist.all_reduce(np.zeros(2))
        return "not read"

    with pytest.raises(dist.CollectiveMismatchError, match="shape"):
        stream(program)


def test_both_modes_give_the_same():
    def program(rank):
        x = np.arange(12.0) + rank
        for _ in range(3):
            dist.all_reduce(x, dist.ReduceOp.AVG)
        part = np.zeros(4)
        dist.reduce_scatter_tensor(part, x, async_op=True).wait()
        dist.all_gather_into_tensor(x, part)
        dist.synchronize()
        return x.tolist()

    assert stream(program, 3) == run(program, 3)
