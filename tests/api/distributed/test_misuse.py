# SPDX-License-Identifier: GPL-2.0-only
"""Misuse is found, not hung (collectives.md §1.4, §1.5): each wrong program ends with an error that explains it."""

import threading
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.distributed.collectives import run
from tests.support.effort import examples
from uetproto.api import distributed as dist
from uetproto.api.distributed.deadlock import explain, shortest_cycle
from uetproto.errors import LocalError


def zeros(count=4):
    return np.zeros(count, np.float32)


# Deadlocks


def test_golden_both_send_first():
    """§6.4: the cycle 0 -> 1 -> 0."""

    def program(rank):
        dist.send(zeros(), 1 - rank, tag=5)
        dist.recv(zeros(), 1 - rank, tag=5)

    with pytest.raises(dist.DeadlockError) as raised:
        run(program, 2)
    assert raised.value.cycle == (0, 1)
    assert str(raised.value).splitlines() == [
        "deadlock: 0 -> 1 -> 0",
        "  rank 0: send(dst=1, tag=5) #0 of group 0 waits for rank 1 to call recv(src=0, tag=5)",
        "  rank 1: send(dst=0, tag=5) #0 of group 0 waits for rank 0 to call recv(src=1, tag=5)",
    ]


def test_small_messages_are_copied_up_to_the_threshold():
    def program(rank, count):
        dist.init_process_group()
        x, y = np.full(count, rank, np.float32), zeros(count)
        dist.send(x, 1 - rank)
        x[...] = 9  # the buffer is free
        dist.recv(y, 1 - rank)
        return y.tolist()

    assert dist.run(program, (4,), eager_threshold=16) == [[1] * 4, [0] * 4]
    with pytest.raises(dist.DeadlockError):
        dist.run(program, (5,), eager_threshold=16)


def test_grouping_the_pair_fixes_it():
    def program(rank):
        y = zeros()
        ops = [dist.P2POp(dist.isend, np.full(4, rank, np.float32), 1 - rank), dist.P2POp(dist.irecv, y, 1 - rank)]
        for work in dist.batch_isend_irecv(ops):
            work.wait()
        return y.tolist()

    assert run(program, 2) == [[1] * 4, [0] * 4]


def test_a_ring_of_receives():
    with pytest.raises(dist.DeadlockError) as raised:
        run(lambda rank: dist.recv(zeros(), (rank + 1) % 5), 5)
    assert raised.value.cycle == (0, 1, 2, 3, 4)


def test_a_wrong_tag_is_pointed_out():
    def program(rank):
        if rank == 0:
            dist.send(zeros(), 1, tag=1)
        else:
            dist.recv(zeros(), 0, tag=2)

    with pytest.raises(dist.DeadlockError, match=r"call recv\(src=0, tag=1\); rank 1 has tag 2 there"):
        run(program, 2)


@pytest.mark.parametrize("call", [lambda x: dist.recv(x, 0), lambda x: dist.recv(x), lambda x: dist.irecv(x, 0).wait()])
def test_a_receive_that_nobody_sends(call):
    with pytest.raises(dist.DeadlockError, match=r"missing participant: rank.* finished\n  rank 1: i?recv"):
        run(lambda rank: call(zeros()) if rank == 1 else None, 3)


@pytest.mark.parametrize("op", [dist.isend, dist.irecv])
def test_an_operation_that_is_left_behind(op):
    """Nobody waits for it, and nobody answers."""
    with pytest.raises(
        dist.DeadlockError, match=rf"missing participant: rank 0 has finished\n  rank 1: {op.__name__}\("
    ):
        run(lambda rank: op(zeros(), 0) and None if rank == 1 else None, 2)


def test_a_rank_that_skips_a_collective():
    def program(rank):
        if rank != 2:
            dist.all_reduce(zeros())

    with pytest.raises(dist.DeadlockError) as raised:
        run(program)
    assert "missing participant: rank 2 has finished" in str(raised.value)
    assert "rank 3: all_reduce #0 of group 0 waits for rank 2 to join" in str(raised.value)
    assert [wait.rank for wait in raised.value.waits] == [0, 1, 3]


def test_a_collective_against_a_receive():
    def program(rank):
        dist.recv(zeros(), 1) if rank == 0 else dist.barrier()

    with pytest.raises(dist.DeadlockError) as raised:
        run(program, 2)
    assert raised.value.cycle == (0, 1)


def test_groups_in_a_different_order():
    def program(rank):
        dist.new_group([0, 1] if rank == 0 else [1, 2])

    with pytest.raises(ValueError, match="the same groups in the same order on all ranks"):
        run(program, 3)


def test_polling_for_ever_is_found():
    def program(rank):
        work = dist.irecv(zeros(), 1 - rank)
        while not work.is_completed():
            pass

    with pytest.raises(dist.DeadlockError, match="deadlock: 0 -> 1 -> 0"):
        run(program, 2)


@pytest.mark.parametrize("mode", ["cpu", "stream"])
def test_hoping_for_success_for_ever_is_found(mode):
    def program(rank):
        work = dist.batch_isend_irecv([dist.P2POp(dist.irecv, dist.Tensor(zeros()), 1 - rank)])[0]
        while not work.is_success():
            pass

    with pytest.raises(dist.DeadlockError, match="deadlock: 0 -> 1 -> 0"):
        run(program, 2, mode=mode)


def test_watching_the_clock_lets_time_pass():
    def program(rank):
        if rank == 0:
            while dist.now() < 0.001:
                pass
            dist.send(zeros(), 1)
        else:
            dist.recv(zeros(), 0)
        return dist.now()

    assert all(0.001 <= now < 0.0011 for now in run(program, 2))


def test_no_deadlock_while_a_rank_sleeps():
    """Invariant 23: a pending timer may change everything."""

    def program(rank):
        if rank == 0:
            dist.sleep(3600 * 0.4)
            dist.send(zeros(), 1)
        else:
            dist.recv(zeros(), 0)
        return dist.now() > 1000

    assert run(program, 2) == [True, True]


def test_a_program_may_go_on_after_a_deadlock():
    def program(rank):
        with pytest.raises(dist.DeadlockError):
            dist.recv(zeros(), 1 - rank)
        x = np.array([rank])
        dist.all_reduce(x)
        return int(x[0])

    assert run(program, 2) == [1, 1]


def test_threads_are_gone_after_a_deadlock():
    before = threading.active_count()
    with pytest.raises(dist.DeadlockError):
        run(lambda rank: dist.recv(zeros(), (rank + 1) % 8), 8)
    assert threading.active_count() == before


@pytest.mark.parametrize(("edges", "cycle"), [
    ({}, ()), ({0: {1}, 1: {2}}, ()), ({0: {1}, 1: {2}, 2: {1}}, (1, 2)),
    ({0: {1}, 1: {2}, 2: {0}, 3: {4}, 4: {3}}, (3, 4)), ({0: {1, 2}, 1: {2}, 2: {0}}, (0, 2)), ({7: {7}}, (7,)),
])  # fmt: skip
def test_the_shortest_cycle(edges, cycle):
    assert shortest_cycle(edges) == cycle


def test_without_waits_there_is_still_a_sentence():
    assert str(explain([], [])) == "deadlock: nothing is under way"


# Mismatches


@pytest.mark.parametrize(("call", "text"), [
    (lambda odd: dist.broadcast(zeros(), 0) if odd else dist.all_reduce(zeros()),
     "op is broadcast on rank 2, all_reduce on rank 0"),
    (lambda odd: dist.broadcast(zeros(), 1 if odd else 0), "root is 1 on rank 2, 0 on rank 0"),
    (lambda odd: dist.reduce(zeros(), 1 if odd else 0), "root is 1 on rank 2, 0 on rank 0"),
    (lambda odd: dist.all_reduce(zeros(), dist.ReduceOp.MAX if odd else dist.ReduceOp.SUM),
     "reduce op is MAX on rank 2, SUM on rank 0"),
    (lambda odd: dist.all_reduce(np.zeros(4, np.int64 if odd else np.float32)),
     "dtype is int64 on rank 2, float32 on rank 0"),
    (lambda odd: dist.all_reduce(zeros(5 if odd else 4)), r"shape is \(\(5,\),\) on rank 2, \(\(4,\),\) on rank 0"),
    (lambda odd: dist.all_reduce(zeros().reshape((2, 2) if odd else (4,))), r"shape is \(\(2, 2\),\) on rank 2"),
    (lambda odd: dist.all_reduce(zeros(), algorithm="ring" if odd else "tree"),
     "algorithm is ring on rank 2, tree on rank 0"),
    (lambda odd: dist.all_gather([zeros(4) for _ in range(3)] + [zeros(5 if odd else 4)], zeros()),
     "sizes is .* on rank 2"),
])  # fmt: skip
def test_a_collective_that_differs(call, text):
    """Invariant 21: all ranks are told, rank and field are named, no byte moves."""
    world, told = dist.World(4), []

    def program(rank):
        dist.init_process_group()
        try:
            call(rank == 2)
        except dist.CollectiveMismatchError as error:
            told.append((rank, str(error)))
            raise

    with pytest.raises(dist.CollectiveMismatchError, match=f"collective #0 of group 0: {text}"):
        world.run(program)
    assert sorted(rank for rank, _ in told) == [0, 1, 2, 3]
    assert len({text for _, text in told}) == 1
    assert world.network.messages == 0


def test_the_odd_one_is_named_even_if_it_is_the_first():
    with pytest.raises(dist.CollectiveMismatchError, match="op is barrier on rank 0, all_reduce on rank 1"):
        run(lambda rank: dist.all_reduce(zeros()) if rank else dist.barrier())


@pytest.mark.parametrize(("algorithm", "nodes", "text"), [
    ("split_rail", 3, "all_reduce #0: nodes: .*"),
    ("split_rail", None, "all_reduce #0: nodes: split_rail needs to know"),
])  # fmt: skip
def test_ranks_that_do_not_fit_the_nodes(algorithm, nodes, text):
    with pytest.raises(ValueError, match=text):
        run(lambda rank: dist.all_reduce(zeros()), algorithm=algorithm, nodes=nodes)


def test_splits_that_do_not_fit():
    def program(rank):
        sends = [2, 1] if rank == 0 else [1, 2]
        takes = [2, 2] if rank == 0 else [1, 2]
        dist.all_to_all_single(zeros(sum(takes)), zeros(3), takes, sends)

    with pytest.raises(dist.CollectiveMismatchError, match="splits: rank 1 sends 1 elements to rank 0, which awaits 2"):
        run(program, 2)


def test_a_mismatch_is_found_also_when_a_rank_is_missing():
    def program(rank):
        if rank == 0:
            dist.all_reduce(zeros())
        elif rank == 1:
            dist.barrier()

    with pytest.raises(dist.CollectiveMismatchError, match="op is barrier on rank 1, all_reduce on rank 0"):
        run(program, 3)


@pytest.mark.parametrize(("receiver", "text"), [
    (np.zeros(3, np.float32), "3 float32"), (np.zeros(5, np.float32), "5 float32"), (np.zeros(4, np.int32), "4 int32"),
])  # fmt: skip
def test_a_message_that_does_not_fit(receiver, text):
    """Both ranks are told; nothing is written."""
    receiver[...] = 7
    told = []

    def program(rank):
        try:
            dist.send(zeros(), 1) if rank == 0 else dist.recv(receiver, 0)
        except dist.SizeMismatchError as error:
            told.append(str(error))
            raise

    with pytest.raises(dist.SizeMismatchError, match=f"rank 0 sends 4 float32, rank 1 awaits {text}"):
        run(program, 2)
    assert len(told) == 2
    assert set(receiver.tolist()) == {7}


# Buffers in use


def test_a_send_buffer_that_is_written_to():
    def program(rank):
        x = zeros()
        if rank == 0:
            work = dist.isend(x, 1)
            x[0] = 1
            work.wait()
        else:
            dist.recv(x, 0)

    with pytest.raises(dist.BufferModifiedError, match=r"isend\(dst=1, tag=0\) #0 of group 0: its buffer was changed"):
        run(program, 2)


@pytest.mark.parametrize("call", [
    lambda x, rank: dist.isend(x, 1) if rank == 0 else dist.irecv(zeros(), 0),
    lambda x, rank: dist.all_gather_into_tensor(zeros(8), x, async_op=True),
])  # fmt: skip
def test_a_buffer_that_is_changed_through_another_view(call):
    def program(rank):
        whole = zeros()
        work = call(whole[:], rank)
        if rank == 0:
            whole[1] = 1
            with pytest.raises(dist.BufferModifiedError) as first:
                work.wait()
            with pytest.raises(dist.BufferModifiedError) as again:
                work.wait()
            assert again.value is first.value
        else:
            work.wait()

    run(program, 2)


def test_reading_is_no_change_and_the_buffer_is_free_afterwards():
    """Invariant 22: no false alarm."""

    def program(rank):
        x = np.arange(4.0)
        works = [dist.isend(x, peer) for peer in range(3) if peer != rank]
        works += [dist.irecv(np.zeros(4), peer) for peer in range(3) if peer != rank]
        assert x.sum() == 6
        assert not x.flags.writeable
        for work in works:
            work.wait()
        x[0] = 1
        return x.flags.writeable

    assert run(program, 3) == [True] * 3


def test_views_that_overlap_are_unlocked_in_any_order():
    def program(rank):
        x = np.arange(8.0)
        part = x[:4]
        works = [dist.isend(x, 1 - rank, tag=1), dist.isend(part, 1 - rank, tag=0)]
        dist.recv(np.zeros(4), 1 - rank, tag=0)
        dist.recv(np.zeros(8), 1 - rank, tag=1)
        for work in works:
            work.wait()
        x[0] = part[1] = 3
        return True

    assert run(program, 2) == [True, True]


def test_an_output_may_share_memory_with_the_input():
    """As FSDP does: the own block is a part of the whole."""

    def program(rank):
        whole = np.zeros(6)
        whole[2 * rank : 2 * rank + 2] = rank
        dist.all_gather_into_tensor(whole, whole[2 * rank : 2 * rank + 2], async_op=True).wait()
        part = whole[2 * rank : 2 * rank + 2]
        dist.reduce_scatter_tensor(part, whole, async_op=True).wait()
        return part.tolist()

    assert run(program, 3) == [[0, 0], [3, 3], [6, 6]]


def test_an_array_of_the_programs_own_that_is_read_only_is_its_own_error():
    def program(rank):
        mine = zeros()
        mine.flags.writeable = False
        dist.barrier()
        mine[0] = 1

    with pytest.raises(ValueError, match="read-only") as raised:
        run(program, 2)
    assert not isinstance(raised.value, dist.DistError)


@pytest.mark.parametrize("transport", ["model", "uet", "roce"])
@pytest.mark.parametrize("shift", [0, 1])
def test_what_arrives_does_not_change_what_is_yet_to_be_sent(transport, shift):
    """all_to_all in place, or with buffers that overlap: the same result as with buffers apart."""

    def program(rank):
        x = np.arange(4.0 + shift) + 10 * rank
        dist.all_to_all_single(x[shift:], x[:4])
        return x[shift:].tolist()

    assert run(program, 4, transport=transport) == [[rank, 10 + rank, 20 + rank, 30 + rank] for rank in range(4)]


def test_what_has_still_to_come_is_not_sent_on():
    """The same memory, in an operation that reads it before the one that fills it is done."""

    def program(rank):
        x = zeros(6)
        if rank == 0:
            work = dist.irecv(x[:4], 1)
            for call in (lambda: dist.send(x[3:], 1), lambda: dist.all_gather_into_tensor(zeros(12), x, async_op=True)):
                with pytest.raises(ValueError, match=r"tensor: shares memory with one of irecv\(src=1, tag=0\) #0"):
                    call()
            dist.batch_isend_irecv([dist.P2POp(dist.isend, x[2:2], 1), dist.P2POp(dist.isend, x[4:], 1)])  # beside it
            work.wait()
            dist.send(x[:4], 1)
        else:
            dist.recv(zeros(0), 0)
            dist.recv(zeros(2), 0)
            dist.send(zeros(4) + 5, 0)
            dist.recv(x[:4], 0)
        return x.tolist()

    assert run(program, 2) == [[5] * 4 + [0] * 2] * 2


def test_two_receives_into_the_same_memory():
    def program(rank):
        x = zeros(6)
        if rank == 0:
            dist.irecv(x[:4], 1)
            with pytest.raises(ValueError, match=r"tensor: shares memory with one of irecv\(src=1, tag=0\) #0"):
                dist.irecv(x[2:], 1)
            with pytest.raises(ValueError, match="shares memory"):
                dist.all_gather_into_tensor(x[3:5], zeros(1))
            dist.recv(x[4:], 1, tag=1)  # beside it
        else:
            dist.send(zeros(2), 0, tag=1)
            dist.send(zeros(4), 0)

    run(program, 2)


def test_no_tensor_stays_locked_after_an_error():
    x = zeros()

    def program(rank):
        dist.isend(x, 1 - rank)
        raise KeyError

    with pytest.raises(KeyError):
        run(program, 2)
    assert x.flags.writeable


def test_poison_shows_what_is_read_too_early():
    def program(rank):
        x = zeros()
        if rank == 0:
            work = dist.irecv(x, 1)
            early = np.isnan(x).all()
            work.wait()
            return bool(early), x.tolist()
        return dist.send(np.ones(4, np.float32), 0)

    assert run(program, 2, poison=True)[0] == (True, [1] * 4)


# Arguments that torch refuses too


class NoTensor:
    """It only looks like one."""

    data_ptr = None


SHARED = zeros(5)


@pytest.mark.parametrize(("call", "error", "text"), [
    (lambda rank: dist.send(zeros(), rank), ValueError, "dst: 0, the rank itself; legal: another rank"),
    (lambda rank: dist.send(zeros(), 9), ValueError, "dst: 9; legal: a global rank of the group: 0, 1"),
    (lambda rank: dist.recv(zeros(), -1), ValueError, "src: -1"),
    (lambda rank: dist.send(zeros(), 1 - rank, tag="a"), ValueError, "tag: 'a'; legal: a whole number"),
    (lambda rank: dist.gather(zeros(), [zeros(), zeros()], dst=1), ValueError, "gather_list: a list on rank 0"),
    (lambda rank: dist.gather(zeros(), None, dst=rank), ValueError, "gather_list: None; legal: a list of 2 tensors"),
    (lambda rank: dist.scatter(zeros(), [zeros()], src=rank), ValueError, "scatter_list: 1 tensors; legal: 2"),
    (lambda rank: dist.scatter(zeros(), [zeros(), zeros(3)], src=rank), ValueError, "scatter_list: tensors of 3, 4"),
    (lambda rank: dist.all_gather([zeros()], zeros()), ValueError, "tensor_list: 1 tensors; legal: 2"),
    (lambda rank: dist.all_gather(zeros(), zeros()), TypeError, "tensor_list: ndarray; legal: a list of 2 tensors"),
    (lambda rank: dist.all_gather([zeros(3), zeros(3)], zeros()), ValueError, r"tensor_list\[0\]: 3 elements"),
    (lambda rank: dist.all_gather_into_tensor(zeros(), zeros()), ValueError, "output_tensor: 4 elements; legal: 2"),
    (lambda rank: dist.reduce_scatter_tensor(zeros(), zeros()), ValueError, "input: 4 elements; legal: 2 times 4"),
    (lambda rank: dist.all_to_all_single(zeros(3), zeros(3)), ValueError, "input_split_sizes: none, for 3 rows"),
    (lambda rank: dist.all_to_all_single(zeros(), zeros(), [2, 2], [3, 2]), ValueError, r"input_split_sizes: \[3, 2\]"),
    (lambda rank: dist.all_to_all_single(zeros(), zeros(), [2, 2], [5, -1]), ValueError, "2 numbers, 0 and more"),
    (lambda rank: dist.gather(zeros(), [zeros(), zeros(3)], dst=rank), ValueError, "gather_list: tensors of 3, 4"),
    (lambda rank: dist.all_reduce(np.zeros(1, complex), dist.ReduceOp.MAX), ValueError, "op: MAX on complex128"),
    (lambda rank: dist.all_reduce(zeros(), "sum"), ValueError, "op: 'sum'; legal: a ReduceOp"),
    (lambda rank: dist.all_reduce(zeros(), algorithm="pairwise"), ValueError, "algorithm: 'pairwise' of all_reduce"),
    (lambda rank: dist.P2POp(dist.send, zeros(), 1), ValueError, "op: send; legal: dist.isend, dist.irecv"),
    (lambda rank: dist.batch_isend_irecv([]), ValueError, r"p2p_op_list: \[\]; legal: a list of P2POp"),
    (lambda rank: dist.batch_isend_irecv((dist.P2POp(dist.isend, zeros(), 1),)), ValueError, "legal: a list of P2POp"),
    (lambda rank: dist.batch_isend_irecv([1]), ValueError, "an item that is no P2POp"),
    (lambda rank: dist.new_group([0, 0]), ValueError, r"ranks: \[0, 0\]; legal: ranks 0 … 1, each once"),
    (lambda rank: dist.get_rank("all"), ValueError, "group: 'all'; legal: what new_group returned"),
    (lambda rank: dist.get_rank(np.zeros(2)), ValueError, "group: array"),
    (lambda rank: dist.send(zeros(), [1]), ValueError, r"dst: \[1\]; legal: a global rank of the group: 0, 1"),
    (lambda rank: dist.broadcast(zeros(), {}), ValueError, "src: {}; legal: a global rank"),
    (lambda rank: dist.scatter(zeros(), None, np.zeros(2)), ValueError, "src: array"),
    (lambda rank: dist.gather(zeros(), np.zeros((2, 4)), dst=1), ValueError, "gather_list: a list on rank 0"),
    (lambda rank: dist.get_group_rank(None, [0]), ValueError, "global_rank"),
    (lambda rank: dist.get_global_rank(None, "a"), ValueError, "group_rank: 'a'; legal: 0 … 1"),
    (lambda rank: dist.new_group(5), ValueError, "ranks: 5; legal: ranks 0 … 1"),
    (lambda rank: dist.new_group(["a", 1]), ValueError, "ranks: "),
    (lambda rank: dist.new_group([0.0, 1.0]), ValueError, "ranks: "),
    (lambda rank: dist.all_reduce(zeros(), None), ValueError, "op: None; legal: a ReduceOp"),
    (lambda rank: dist.all_to_all_single(zeros(), zeros(), 2, 2), ValueError, "input_split_sizes: 2; legal: a list"),
    (lambda rank: dist.all_to_all_single(zeros(), zeros(), None, [1.5, 2.5]), ValueError, "a list of whole numbers"),
    (lambda rank: dist.P2POp(zeros(), zeros(), 1), ValueError, "op: array"),
    (lambda rank: dist.all_reduce(np.ma.array(zeros(), mask=[0, 1, 0, 0])), TypeError, "tensor: MaskedArray; legal"),
    (lambda rank: dist.all_reduce(zeros().view(np.recarray)), TypeError, "tensor: recarray; legal"),
    (lambda rank: dist.all_reduce(NoTensor()), TypeError, "tensor: NoTensor: "),
    (lambda rank: dist.all_gather([SHARED, SHARED[1:]], SHARED), ValueError, r"tensor_list\[1\] share memory"),
    (lambda rank: dist.sleep(1e300), ValueError, "duration: 1e[+]300; legal: a timedelta, or seconds"),
    (lambda rank: dist.irecv(zeros(), 1).wait(10**400), ValueError, "timeout: 1000"),
])  # fmt: skip
def test_arguments(call, error, text):
    """Refused before anything is sent: the other rank has not even come."""
    world = dist.World(2)

    def program(rank):
        dist.init_process_group()
        if rank == 0:
            call(rank)

    with pytest.raises(error, match=text):
        world.run(program)
    assert world.network.messages == 0


@pytest.mark.parametrize(("argument", "text"), [
    ({"transport": []}, r"transport: \[\]; legal: model, uet, roce"),
    ({"gamma": float("nan")}, "gamma: nan; legal: picoseconds a byte"),
    ({"gamma": float("inf")}, "gamma: inf"),
    ({"nodes": 1.5}, "nodes: 1.5; legal: how many, or a list of the ranks of each"),
    ({"nodes": 0}, "nodes: 0"),
    ({"nodes": [0, 1]}, r"nodes: \[0, 1\]"),
    ({"path": 5}, "path: 5; legal: a Path, or a function"),
])  # fmt: skip
def test_arguments_of_the_world(argument, text):
    with pytest.raises(LocalError, match=text):
        dist.World(2, **argument)


def test_a_batch_has_one_group():
    def program(rank):
        other = dist.new_group([0, 1])
        ops = [dist.P2POp(dist.isend, zeros(), 1 - rank), dist.P2POp(dist.irecv, zeros(), 1 - rank, group=other)]
        dist.batch_isend_irecv(ops)

    with pytest.raises(ValueError, match="items of several groups; legal: one group for all"):
        run(program, 2)


@pytest.mark.parametrize(("op", "peer", "text"), [
    (dist.isend, 0, "the rank itself"), (dist.irecv, 1, "an item receives into memory that another one uses"),
])  # fmt: skip
def test_of_a_batch_with_a_wrong_item_nothing_begins(op, peer, text):
    def program(rank):
        if rank == 0:
            mine = zeros() + 1
            with pytest.raises(ValueError, match=text):
                dist.batch_isend_irecv([dist.P2POp(dist.isend, mine, 1), dist.P2POp(op, mine[2:], peer)])
            return dist.send(zeros() + 2, 1)
        x = zeros()
        dist.recv(x, 0)
        return x.tolist()

    assert run(program, 2)[1] == [2] * 4


# Failures


def test_a_failed_rank_is_told_to_all_that_need_it():
    """Invariant 16."""
    told = {}

    def program(rank):
        if rank == 1:
            dist.sleep(1)
            raise KeyError("rank 1 is ill")
        try:
            dist.all_reduce(zeros()) if rank < 3 else dist.recv(zeros(), 1)
        except dist.AbortedError as error:
            with pytest.raises(dist.AbortedError, match="rank 1 failed: KeyError"):  # it stays so
                dist.all_reduce(zeros())
            told[rank] = str(error)

    with pytest.raises(KeyError, match="rank 1 is ill"):
        run(program)
    assert sorted(told) == [0, 2, 3]
    assert all("rank 1 failed: KeyError: 'rank 1 is ill'" in text for text in told.values())


def test_a_failed_link_reaches_every_member():
    world, told = dist.World(3), []
    world.network.fail(1, "its cable is cut")

    def program(rank):
        dist.init_process_group()
        try:
            dist.all_reduce(zeros())
        except dist.AbortedError as error:
            told.append(str(error))
        except dist.TransportError as error:
            told.append(str(error))

    world.run(program)
    assert len(told) == 3
    assert all("its cable is cut" in text for text in told)


def test_a_time_out_of_one_rank_reaches_the_others():
    def program(rank):
        if rank == 0:
            dist.sleep(9)
            error = AssertionError
            with pytest.raises(
                dist.AbortedError, match=r"rank 1 failed in its all_reduce #0: rank 1: .* took more than"
            ):
                dist.all_reduce(zeros())
            return error
        work = dist.all_reduce(zeros(), async_op=True)
        with pytest.raises(dist.TimeoutError if rank == 1 else dist.AbortedError):
            work.wait(2 if rank == 1 else 5)
        return dist.now()

    assert run(program, 3)[1:] == [2.0, 2.0]


def test_the_cause_is_raised_though_its_rank_ends_last():
    def program(rank):
        if rank == 0:
            dist.sleep(9)
        try:
            dist.all_reduce(zeros(), async_op=True).wait(2 if rank == 1 else 5)
        except dist.TimeoutError:
            dist.sleep(20)
            raise

    with pytest.raises(dist.TimeoutError, match=r"rank 1: all_reduce #0 .* took more than 2 s"):
        run(program, 3)


@pytest.mark.parametrize("transport", ["model", "uet", "roce"])
def test_what_takes_longer_than_its_time_out_is_no_deadlock(transport):
    """Invariant 23: bytes are still under way when nothing but time-outs is left to come before them."""

    def program(rank):
        dist.init_process_group(timeout=1e-6)
        dist.all_reduce(zeros(1 << 16))

    with pytest.raises(dist.TimeoutError, match="took more than 1e-06 s: it is under way"):
        dist.run(program, transport=transport)


# Random point-to-point programs (invariants 23, 24)


@st.composite
def exchanges(draw):
    """Messages (source, destination, tag), in one global order."""
    size = draw(st.integers(2, 5))
    ranks = st.integers(0, size - 1)
    pairs = st.tuples(ranks, ranks, st.integers(0, 2)).filter(lambda m: m[0] != m[1])
    return size, draw(st.lists(pairs, max_size=12))


def point(rank, number, message):
    """This rank's part of a message."""
    source, destination, tag = message
    if rank == source:
        dist.send(np.array([number]), destination, tag=tag)
    elif rank == destination:
        x = np.array([-1])
        dist.recv(x, source, tag=tag)
        assert x[0] == number


@examples(40)
@given(exchanges())
def test_one_global_order_never_deadlocks(case):
    """§1.5, rule 6."""
    size, messages = case

    def program(rank):
        for number, message in enumerate(messages):
            point(rank, number, message)

    run(program, size)


@examples(40)
@given(exchanges(), st.randoms(use_true_random=False))
def test_a_batch_never_deadlocks_in_any_order(case, rng):
    size, messages = case
    orders = [rng.sample(range(len(messages)), len(messages)) for _ in range(size)]

    def program(rank):
        ops, boxes = [], []
        order = sorted(orders[rank], key=lambda number: (messages[number], number))  # of one key in order …
        rng_order = sorted(range(len(order)), key=lambda i: (messages[order[i]][2], i))  # … else as it comes
        for number in (order[i] for i in rng_order):
            source, destination, tag = messages[number]
            if rank == source:
                ops.append(dist.P2POp(dist.isend, np.array([number]), destination, tag=tag))
            elif rank == destination:
                boxes.append((number, np.array([-1])))
                ops.append(dist.P2POp(dist.irecv, boxes[-1][1], source, tag=tag))
        for work in dist.batch_isend_irecv(ops) if ops else ():
            work.wait()
        return all(box[0] == number for number, box in boxes)

    assert all(run(program, size))


@examples(60)
@given(exchanges(), st.randoms(use_true_random=False))
def test_any_order_ends_or_is_explained(case, rng):
    """Each rank does its part in an order of its own: what hangs is explained by who really waits."""
    size, messages = case
    orders = [rng.sample(range(len(messages)), len(messages)) for _ in range(size)]

    def program(rank):
        for number in orders[rank]:
            source, destination, tag = messages[number]
            if rank == source:
                dist.send(np.zeros(1), destination, tag=tag)
            elif rank == destination:
                dist.recv(np.zeros(1), source, tag=tag)

    found = None
    try:
        run(program, size)
    except dist.DeadlockError as error:
        found = error
    if found is None:
        return
    needs = {wait.rank: set(wait.needs) for wait in found.waits}
    assert found.cycle or "missing participant" in str(found)
    assert all(b in needs[a] for a, b in zip(found.cycle, found.cycle[1:] + found.cycle[:1], strict=True))


@examples(40)
@given(exchanges(), st.data())
def test_a_message_without_an_answer_is_found(case, data):
    size, messages = case
    if not messages:
        return
    lost = data.draw(st.integers(0, len(messages) - 1))

    def program(rank):
        for number, message in enumerate(messages):
            if number != lost or rank == message[0]:
                point(rank, number, message)

    # A later message of the same key may be taken for the lost one: then its number is wrong.
    with pytest.raises((dist.DeadlockError, AssertionError)):
        run(program, size)


def generator(rank: int) -> Iterator[int]:
    yield rank


async def coroutine(rank: int) -> None: ...


async def asynchronous_generator(rank: int) -> AsyncIterator[int]:
    yield rank


class Called:
    async def __call__(self, rank: int) -> None: ...


@pytest.mark.parametrize("program", [generator, coroutine, asynchronous_generator, Called(), partial(generator)])
def test_a_program_of_ranks_that_a_call_does_not_run_is_refused(program: Callable[[int], object]) -> None:
    with pytest.raises(dist.ArgumentError, match="a function of the rank that runs when it is called"):
        dist.run(program)


@pytest.mark.parametrize("program", [generator, coroutine, asynchronous_generator])
def test_what_a_call_did_not_run_is_no_result(program: Callable[[int], object]) -> None:
    with pytest.raises(dist.ArgumentError, match="which has not run"):
        dist.run(lambda rank: program(rank))


@pytest.mark.parametrize("ranks", [10**9, 16_385, 0, True])
def test_the_number_of_ranks_has_a_bound(ranks: int) -> None:
    with pytest.raises(dist.ArgumentError, match="a whole number, 1 … 16384"):
        dist.run(print, ranks=ranks)
