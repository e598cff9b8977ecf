# SPDX-License-Identifier: GPL-2.0-only
"""The optional stream mode (collectives.md §1.2): calls are queued, the program goes on, and reads wait."""

import copy
import io
import pickle
import re
import struct
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.support.distributed.collectives import run
from uetproto.api import distributed as dist
from uetproto.errors import LocalError


def stream(program, ranks=2, **world):
    return run(program, ranks, mode="stream", **world)


def zeros(count=4):
    return dist.Tensor(np.zeros(count))


def test_a_collective_returns_before_its_result_is_there():
    def program(rank):
        x = dist.Tensor([1.0])
        dist.all_reduce(x)
        early = dist.now()
        return early, x[0], dist.now() > 0

    assert stream(program) == [(0.0, 2.0, True)] * 2


def test_operations_of_the_stream_run_in_order():
    def program(rank):
        x = dist.Tensor([1])
        for _ in range(5):
            dist.all_reduce(x)
        return x.item()

    assert stream(program) == [32, 32]


def test_wait_makes_the_stream_wait_and_not_the_program():
    def program(rank):
        x, y = dist.Tensor([1]), dist.Tensor([0, 0])
        work = dist.all_reduce(x, async_op=True)
        assert work.is_completed()  # queued
        work.wait()
        assert dist.now() == 0
        dist.all_gather_into_tensor(y, x)  # after the work
        dist.all_reduce(x)
        assert dist.now() == 0
        return x.item(), y.tolist()

    assert stream(program) == [(4, [2, 2])] * 2


def test_wait_with_a_time_out_makes_the_program_wait():
    def program(rank):
        work = dist.all_reduce(dist.Tensor([1]), async_op=True)
        work.wait(1)
        return 0 < dist.now() < 1

    assert stream(program) == [True, True]


@pytest.mark.parametrize("first", [dist.isend, dist.irecv, dist.send, dist.recv])
def test_the_first_call_between_two_ranks_really_waits(first):
    def program(rank):
        if rank == 1:
            dist.sleep(2)
            (dist.recv if "send" in first.__name__ else dist.send)(zeros(), 0)
            return 2.0
        first(zeros(), 1)
        return dist.now()

    assert stream(program) == [2.0, 2.0]


def test_a_peer_that_never_calls_is_explained():
    with pytest.raises(dist.DeadlockError, match=r"rank 0: connect\(peer=1\) #0 of group 0 waits for rank 1"):
        stream(lambda rank: dist.isend(zeros(), 1) and None if rank == 0 else None)


def test_a_receive_from_any_rank_that_nobody_answers_is_explained():
    with pytest.raises(dist.DeadlockError, match=r"missing participant.*\n  rank 1: recv\(src=any, tag=0\) #0"):
        stream(lambda rank: dist.recv(zeros()) if rank == 1 else None)


def test_errors_come_out_at_the_end():
    def program(rank):
        dist.all_reduce(zeros(2 + rank))
        dist.all_reduce(zeros(2))
        return "not read"

    with pytest.raises(dist.CollectiveMismatchError, match="shape"):
        stream(program)


def test_both_modes_give_the_same():
    def program(rank):
        x, part = dist.Tensor(np.arange(12.0) + rank), zeros(4)
        for _ in range(3):
            dist.all_reduce(x, dist.ReduceOp.AVG)
        dist.reduce_scatter_tensor(part, x, async_op=True).wait()
        dist.all_gather_into_tensor(x, part)
        return x.tolist()

    assert stream(program, 3) == run(program, 3)


# Reads and writes wait

READS: dict[str, Callable[[dist.Tensor], Any]] = {
    "str": str, "repr": repr, "format": lambda t: f"{t}", "print": lambda t: print(t, file=io.StringIO()),
    "element": lambda t: t[1], "element of a slice": lambda t: t[1:][0], "indices": lambda t: t[[0, 1]],
    "mask": lambda t: t[np.ones(4, bool)], "as indices": lambda t: np.arange(9)[np.asarray(t, int)],
    "as indices of a tensor": lambda t: dist.Tensor(np.arange(9))[t.astype(int)], "iteration": list,
    "in": lambda t: 4 in t, "arithmetic": lambda t: t + 1, "on the right": lambda t: 1 - t,
    "array on the left": lambda t: np.ones(4) * t, "comparison": lambda t: t == 4, "ufunc": np.sin,
    "ufunc with out": lambda t: np.add(t, 1, out=np.zeros(4)), "two results": lambda t: np.asarray(divmod(t, 3)),
    "condition of a ufunc": lambda t: np.add(1, 1, out=np.zeros(4), where=t.astype(bool)), "reduction": np.add.reduce,
    "sum": np.sum, "mean": lambda t: t.mean(), "max": max, "clip": lambda t: np.clip(t, 1, 2), "norm": np.linalg.norm,
    "concatenate": lambda t: np.concatenate([t, t]), "allclose": lambda t: np.allclose(t, 1), "where": np.where,
    "float": lambda t: float(t[:1].reshape(())), "int": lambda t: int(t[1:2].reshape(())),
    "complex": lambda t: complex(t[1:2].reshape(())), "index": lambda t: range(9)[t[1:2].reshape(()).astype(int)],
    "bool": lambda t: bool(t[1:2]), "any": lambda t: t.any(), "item": lambda t: t[:1].item(),
    "asarray": np.asarray, "array": np.array, "astype": lambda t: t.astype(int), "copy": lambda t: t.copy(),
    "copy.copy": copy.copy, "deepcopy": copy.deepcopy, "pickle": lambda t: pickle.loads(pickle.dumps(t)),
    "tensor": dist.Tensor, "bytes": bytes, "tobytes": lambda t: t.tobytes(), "tolist": lambda t: t.tolist(),
    "numpy": lambda t: t.numpy(), "struct": lambda t: struct.pack("4d", *t), "dlpack": np.from_dlpack,
    "buffer": lambda t: bytes(t.__buffer__(0)), "reshaped by a copy": lambda t: t.reshape(2, 2).T.reshape(-1),
    "matrix": lambda t: t.reshape(2, 2) @ np.eye(2), "save": lambda t: np.save(io.BytesIO(), t),
    "source of a change": lambda t: zeros().__setitem__(slice(None), t),
}  # fmt: skip
"""Ways in which a program reads a tensor."""
WRITES: dict[str, Callable[[dist.Tensor], Any]] = {
    "element": lambda t: t.__setitem__(0, 9), "slice": lambda t: t.__setitem__(slice(None), 9),
    "mask": lambda t: t.__setitem__(np.ones(4, bool), 9), "fill": lambda t: t.fill(9), "sort": lambda t: t[::-1].sort(),
    "ufunc": lambda t: np.add(1, 1, out=t), "put": lambda t: t.put(0, 9), "at": lambda t: np.add.at(t, 0, 1),
    "reduction": lambda t: np.add.reduce(np.ones((4, 4)), out=t), "out of a method": lambda t: t.cumsum(out=t),
}  # fmt: skip
"""Ways in which a program changes a tensor."""


all_doors = pytest.mark.parametrize(
    "door", [*READS.values(), *WRITES.values()], ids=[*READS, *(f"write {name}" for name in WRITES)]
)


@all_doors
def test_what_never_comes_is_explained_where_it_is_used(door):
    """Not with stale zeros."""
    seen = []

    def program(rank):
        x = zeros()
        if rank == 0:
            dist.send(x, 1)
            return
        dist.recv(x, 0)
        dist.recv(x, 0)  # nobody sends it
        seen.append("returned")
        seen.append(door(x))

    with pytest.raises(dist.DeadlockError) as raised:
        stream(program)
    assert seen == ["returned"]
    head, line = str(raised.value).splitlines()
    assert head == "missing participant: rank 0 has finished"
    rest = r"(read|written) at test_stream_mode.py:\d+"
    text = r"  rank 1: recv\(src=0, tag=0\) #1 of group 0 waits for rank 0 to call send\(dst=1, tag=0\); its tensor is "
    assert re.fullmatch(text + (rest if door in WRITES.values() else rest.replace("|written", "")), line)


def shown(value: Any) -> Any:
    return (type(value), value.tolist()) if isinstance(value, (np.ndarray, dist.Tensor)) else repr(value)


@all_doors
def test_what_is_read_is_the_result(door):
    """The same as of a tensor that no operation has used."""

    def program(rank):
        x = dist.Tensor([1.0, 2.0, 0.5, 1.5])
        dist.all_reduce(x)
        found = shown(door(x))
        return found, x.tolist()

    ready = dist.Tensor([2.0, 4.0, 1.0, 3.0])
    assert stream(program) == [(shown(door(ready)), ready.tolist())] * 2


@pytest.mark.parametrize("look", [
    lambda t: t.shape, len, lambda t: t.dtype, lambda t: t[1:].nbytes, lambda t: t.reshape(2, 2).T.shape,
    lambda t: t[2:].__getitem__(0), lambda t: t[2:].fill(9),
])  # fmt: skip
def test_what_needs_no_element_of_it_does_not_wait(look):
    def program(rank):
        x = zeros()
        if rank == 0:
            dist.recv(x[:2], 1)
            look(x)
            return dist.now(), x.tolist()
        return dist.send(dist.Tensor([5.0, 6.0]), 0)

    now, found = stream(program)[0]
    assert now == 0
    assert found[:2] == [5, 6]


def test_a_rank_that_does_not_join_is_explained_at_the_read():
    def program(rank):
        x = zeros()
        if rank:
            dist.all_reduce(x)
            x.sum()

    with pytest.raises(
        dist.DeadlockError, match=r"rank 1: all_reduce #0 .* waits for rank 0 to join; its tensor is re"
    ):
        stream(program)


@pytest.mark.parametrize("mode", ["cpu", "stream"])
def test_a_read_before_wait_is_told_and_waits(mode):
    """On a GPU the value would be undefined."""

    def program(rank):
        x = dist.Tensor([1.0])
        work = dist.all_reduce(x, async_op=True)
        with pytest.warns(UserWarning, match="all_reduce #0 of group 0: its tensor is read before wait") as told:
            early = x[0]
        assert told[0].filename == __file__
        return early, x[0], work.wait()

    assert run(program, 2, mode=mode) == [(2, 2, True)] * 2


@pytest.mark.parametrize("mode", ["cpu", "stream"])
@pytest.mark.parametrize("door", WRITES.values(), ids=WRITES)
def test_a_change_before_wait_is_refused_and_changes_nothing(door, mode):
    def program(rank):
        x = dist.Tensor(np.arange(4.0))
        works = dist.batch_isend_irecv([dist.P2POp((dist.isend, dist.irecv)[rank], x, 1 - rank)])
        if rank == 0:
            with pytest.raises(dist.BufferModifiedError, match=r"isend\(dst=1, tag=0\) #0 .* changed before wait"):
                door(x)
        works[0].wait()
        return x.tolist()

    assert run(program, 2, mode=mode) == [[0, 1, 2, 3]] * 2


def test_a_change_after_a_queued_send_does_not_reach_the_peer():
    """The stream orders the two; a NumPy array would have sent 9."""

    def program(rank):
        x = dist.Tensor(np.arange(4.0))
        if rank == 0:
            dist.send(x, 1)
            x[...] = 9
        else:
            dist.recv(x, 0)
        return x.tolist()

    assert stream(program) == [[9] * 4, [0, 1, 2, 3]]


def test_an_operation_on_what_another_has_under_way_waits_for_it_or_is_refused():
    def program(rank):
        x, y = zeros(), dist.Tensor([1.0] * 4)
        work = dist.all_reduce(y, async_op=True)
        with pytest.raises(
            ValueError, match=r"tensor: shares memory with one of all_reduce #0.*wait\(\) for that first"
        ):
            dist.all_reduce(y)  # the current stream does not wait for the other
        work.wait()
        dist.all_reduce(y)
        return y.tolist(), x.tolist()

    assert stream(program) == [([4] * 4, [0] * 4)] * 2


def test_a_failed_operation_fails_each_read_until_the_tensor_is_written():
    kept = []

    def program(rank):
        x = zeros()
        if rank:
            return
        kept.append(x)
        with pytest.raises(dist.DeadlockError) as first:
            dist.recv(x[1:3], 1)
        for read in (str, sum, lambda t: t[1]):
            with pytest.raises(dist.DeadlockError) as again:
                read(x)
            assert again.value is first.value
        assert x[0] == 0
        x[1] = 5
        with pytest.raises(dist.DeadlockError):
            x.tolist()
        x[1:] = 7
        assert x.tolist() == [0, 7, 7, 7]
        with pytest.raises(dist.DeadlockError):
            dist.recv(x, 1)

    run(program, 2)
    with pytest.raises(dist.DeadlockError):
        print(kept[0])


def test_what_is_still_open_at_the_end_of_a_failed_run_stays_unread():
    kept = {}

    def program(rank):
        kept[rank] = zeros()
        dist.all_reduce(kept[rank])
        if rank == 1:
            raise KeyError
        dist.recv(kept[rank], 1)

    with pytest.raises(KeyError):
        stream(program)
    with pytest.raises(dist.AbortedError):
        str(kept[0])


def test_a_tensor_is_returned_with_its_result():
    def program(rank):
        x = dist.Tensor([1.0, 2.0])
        dist.all_reduce(x)
        return x

    assert [x.tolist() for x in stream(program)] == [[2, 4]] * 2


def test_another_rank_does_not_wait_for_a_tensor():
    kept = []

    def program(rank):
        if rank == 0:
            kept.append(zeros())
            dist.recv(kept[0], 1)
        else:
            dist.sleep(1)
            str(kept[0])

    with pytest.raises(LocalError, match=r"recv\(src=1, tag=0\) #0 of group 0: is of rank 0"):
        stream(lambda rank: program(rank) if rank == 0 else (dist.irecv(zeros(), 0, tag=1), program(rank)))


class TorchTensor:
    """It shows what a torch tensor in CPU memory shows."""

    device, dtype, shape = None, "torch.float64", (4,)

    def data_ptr(self) -> int:
        return 0

    def numpy(self) -> Any:
        return np.arange(4.0)


@pytest.mark.parametrize("value", [np.zeros(4), TorchTensor()], ids=["array", "torch"])
@pytest.mark.parametrize("call", [
    lambda x: dist.all_reduce(x), lambda x: dist.send(x, 1), lambda x: dist.isend(x, 1), lambda x: dist.broadcast(x, 0),
    lambda x: dist.all_gather([zeros(), x], zeros()), lambda x: dist.all_gather_into_tensor(zeros(8), x),
    lambda x: dist.batch_isend_irecv([dist.P2POp(dist.isend, zeros(), 1), dist.P2POp(dist.irecv, x, 1)]),
])  # fmt: skip
def test_what_a_program_reads_unseen_is_refused(call, value):
    """Nobody sees when a program reads an array; torch refuses tensors in CPU memory there, with a RuntimeError."""

    def program(rank):
        if rank == 0:
            with pytest.raises(RuntimeError, match=r"in stream mode; legal: a tensor that dist.Tensor\(values\) makes"):
                call(value)
            call(dist.Tensor(value))

    with pytest.raises(dist.DeadlockError):  # the other rank takes no part
        stream(program)


def test_a_tensor_is_a_copy():
    mine = np.zeros(4)
    x = dist.Tensor(mine)
    mine[0] = 9
    y = dist.Tensor(x)
    y[1] = 8
    copied = np.array(x)
    copied[2] = 7
    with pytest.raises(ValueError, match="read-only"):
        np.asarray(x)[3] = 6
    with pytest.raises(ValueError, match="becomes an array only by a copy"):
        np.array(x, copy=False)
    assert x.tolist() == [0] * 4
    x[1:][1:][0] = 5
    x.reshape(2, 2).T[0, 0] = 4
    assert x.tolist() == [4, 0, 5, 0]


@pytest.mark.parametrize(("values", "text"), [
    ([[1], [1, 2]], "values: .*inhomogeneous"), ([object()], "values: elements of type object; legal: numbers"),
])  # fmt: skip
def test_what_no_tensor_can_be(values, text):
    with pytest.raises(dist.TensorError, match=text):
        dist.Tensor(values)


def test_what_a_tensor_does_not_have_is_said():
    with pytest.raises(AttributeError, match=r"a Tensor has no ctypes: numpy.asarray\(tensor\) is a copy"):
        _ = zeros().ctypes
