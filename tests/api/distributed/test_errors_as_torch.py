# SPDX-License-Identifier: GPL-2.0-only
"""Errors are of the classes that torch.distributed raises for the same calls, so that a program's handlers catch them.

The table says the class; where torch is installed, torch is the judge of the table.
"""

import builtins
import multiprocessing
from collections.abc import Callable
from datetime import timedelta
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from uetproto.api import distributed as dist
from uetproto.api.distributed.networks.sharp_errors import SharpRefusedError
from uetproto.errors import UetError

Call = Callable[[Any, Callable[..., Any]], Any]
"""A call of rank 0 of two, with the module and its `zeros(*shape, dtype=…)`."""

CASES: dict[str, tuple[type[Exception], Call]] = {
    "tag of send": (RuntimeError, lambda d, zeros: d.send(zeros(4), 1, tag=-1)),
    "tag of recv": (RuntimeError, lambda d, zeros: d.recv(zeros(4), 1, tag=-1)),
    "tag of recv from any": (RuntimeError, lambda d, zeros: d.recv(zeros(4), tag=-1)),
    "tag of isend": (RuntimeError, lambda d, zeros: d.isend(zeros(4), 1, tag=-1)),
    "tag of irecv": (RuntimeError, lambda d, zeros: d.irecv(zeros(4), 1, tag=-1)),
    "tag of a batch": (RuntimeError, lambda d, zeros: d.batch_isend_irecv([d.P2POp(d.isend, zeros(4), 1, tag=-1)])),
    "tag is text": (TypeError, lambda d, zeros: d.send(zeros(4), 1, tag="a")),
    "tag of 32 bits": (TypeError, lambda d, zeros: d.send(zeros(4), 1, tag=2**31)),
    "send to itself": (ValueError, lambda d, zeros: d.send(zeros(4), 0)),
    "isend to itself": (ValueError, lambda d, zeros: d.isend(zeros(4), 0)),
    "send to a negative rank": (ValueError, lambda d, zeros: d.send(zeros(4), -1)),
    "send to no rank": (ValueError, lambda d, zeros: d.send(zeros(4), 2)),
    "recv from a negative rank": (ValueError, lambda d, zeros: d.recv(zeros(4), -1)),
    "broadcast from no rank": (ValueError, lambda d, zeros: d.broadcast(zeros(4), 2)),
    "reduce to a negative rank": (ValueError, lambda d, zeros: d.reduce(zeros(4), -1)),
    "rank of a group outside": (ValueError, lambda d, zeros: d.get_group_rank(d.group.WORLD, 9)),
    "send of a list": (TypeError, lambda d, zeros: d.send([1], 1)),
    "all_reduce of a number": (TypeError, lambda d, zeros: d.all_reduce(1.5)),
    "send of a strided tensor": (RuntimeError, lambda d, zeros: d.send(zeros(4, 4).T, 1)),
    "recv into a strided tensor": (RuntimeError, lambda d, zeros: d.recv(zeros(4, 4).T, 1)),
    "all_gather into a tensor": (TypeError, lambda d, zeros: d.all_gather(zeros(4), zeros(4))),
    "all_gather into too few": (RuntimeError, lambda d, zeros: d.all_gather([zeros(4)], zeros(4))),
    "gather of two types": (ValueError, lambda d, zeros: d.gather(zeros(4, dtype="int8"), [zeros(4), zeros(4)], 0)),
    "gather without a list": (ValueError, lambda d, zeros: d.gather(zeros(4), None, 0)),
    "gather with a list elsewhere": (ValueError, lambda d, zeros: d.gather(zeros(4), [zeros(4), zeros(4)], 1)),
    "gather into too few": (RuntimeError, lambda d, zeros: d.gather(zeros(4), [zeros(4)], 0)),
    "gather into other sizes": (RuntimeError, lambda d, zeros: d.gather(zeros(4), [zeros(4), zeros(3)], 0)),
    "scatter without a list": (ValueError, lambda d, zeros: d.scatter(zeros(4), None, 0)),
    "scatter with a list elsewhere": (ValueError, lambda d, zeros: d.scatter(zeros(4), [zeros(4), zeros(4)], 1)),
    "scatter of too few": (RuntimeError, lambda d, zeros: d.scatter(zeros(4), [zeros(4)], 0)),
    "scatter of other sizes": (RuntimeError, lambda d, zeros: d.scatter(zeros(4), [zeros(4), zeros(3)], 0)),
    "no reduce op": (TypeError, lambda d, zeros: d.all_reduce(zeros(4), "sum")),
    "MAX of complex": (ValueError, lambda d, zeros: d.all_reduce(zeros(4, dtype="complex64"), d.ReduceOp.MAX)),
    "BAND of float": (RuntimeError, lambda d, zeros: d.all_reduce(zeros(4), d.ReduceOp.BAND)),
    "rows that do not divide": (RuntimeError, lambda d, zeros: d.all_to_all_single(zeros(3), zeros(3))),
    "splits of another sum": (RuntimeError, lambda d, zeros: d.all_to_all_single(zeros(4), zeros(4), [2, 2], [3, 2])),
    "too many splits": (RuntimeError, lambda d, zeros: d.all_to_all_single(zeros(4), zeros(4), [2, 2], [1, 1, 2])),
    "a number as splits": (TypeError, lambda d, zeros: d.all_to_all_single(zeros(4), zeros(4), 2, 2)),
    "op of a P2POp": (ValueError, lambda d, zeros: d.P2POp(d.send, zeros(4), 1)),
    "tuple of P2POps": (ValueError, lambda d, zeros: d.batch_isend_irecv((d.P2POp(d.isend, zeros(4), 1),))),
    "ranks of new_group": (ValueError, lambda d, zeros: d.new_group([0, 9])),
    "a number as ranks": (TypeError, lambda d, zeros: d.new_group(5)),
    "two initialisations": (ValueError, lambda d, zeros: d.init_process_group("gloo")),
}  # fmt: skip
LATER: dict[str, tuple[type[Exception], Call]] = {
    "both names of a peer": (ValueError, lambda d, zeros: d.send(zeros(4), 1, group_dst=1)),
    "no peer": (ValueError, lambda d, zeros: d.send(zeros(4))),
    "both names of a root": (ValueError, lambda d, zeros: d.broadcast(zeros(4), 0, group_src=0)),
    "no root": (ValueError, lambda d, zeros: d.broadcast(zeros(4))),
    "send to itself in the group": (ValueError, lambda d, zeros: d.send(zeros(4), group_dst=0)),
    "root outside of the group": (ValueError, lambda d, zeros: d.broadcast(zeros(4), group_src=2)),
}
"""Calls with the arguments `group_src` and `group_dst`, which torch has since 2.6."""


def arrays(*shape: int, dtype: str = "float32") -> Any:
    return np.zeros(shape, dtype)


@pytest.mark.parametrize(("error", "call"), [*CASES.values(), *LATER.values()], ids=[*CASES, *LATER])
def test_the_class_is_that_of_the_table(error: type[Exception], call: Call) -> None:
    def program(rank: int) -> None:
        dist.init_process_group()
        if rank == 0:
            with pytest.raises(error) as raised:
                call(dist, arrays)
            assert isinstance(raised.value, UetError)

    world = dist.World(2)
    world.run(program)
    assert world.network.messages == 0


def test_what_fails_under_way_is_a_runtime_error() -> None:
    failures = [
        dist.DeadlockError, dist.TimeoutError, dist.AbortedError, dist.TransportError, dist.SizeMismatchError,
        dist.CollectiveMismatchError, dist.BufferModifiedError, SharpRefusedError,
    ]  # fmt: skip
    assert all(issubclass(error, RuntimeError) for error in failures)
    assert issubclass(dist.TimeoutError, builtins.TimeoutError)


@pytest.mark.parametrize("call", [
    lambda: dist.get_rank(), lambda: dist.all_reduce(arrays(4)), lambda: dist.now(),
    lambda: dist.run(lambda rank: dist.get_world_size()), lambda: dist.run(lambda rank: dist.barrier()),
])  # fmt: skip
def test_before_there_is_a_group(call: Callable[[], Any]) -> None:
    with pytest.raises(ValueError, match=r"dist: called outside of a rank|group: there is no default group"):
        call()


@pytest.mark.parametrize("timeout", ["1 s", True, None])
def test_what_no_time_is(timeout: Any) -> None:
    with pytest.raises(TypeError, match=r"duration: .*; legal: a timedelta, or seconds of virtual time"):
        dist.run(lambda rank: dist.sleep(timeout))


def torch_rank(rank: int, path: str, queue: Any) -> None:
    """One of two processes that run the calls of rank 0 on torch over gloo."""
    import torch
    import torch.distributed as torch_dist

    store = torch_dist.FileStore(path, 2)
    torch_dist.init_process_group("gloo", store=store, rank=rank, world_size=2, timeout=timedelta(seconds=20))
    if rank:
        store.wait(["done"], timedelta(minutes=5))
        return
    version = tuple(map(int, torch.__version__.split("+")[0].split(".")[:2]))
    for name, (_, call) in {**CASES, **(LATER if version >= (2, 6) else {})}.items():
        try:
            call(torch_dist, lambda *shape, dtype="float32": torch.zeros(shape, dtype=getattr(torch, dtype)))
        except Exception as error:
            queue.put((name, [each.__name__ for each in type(error).__mro__]))
        else:
            queue.put((name, []))
    store.set("done", "1")
    queue.put(None)


@pytest.mark.skipif(find_spec("torch") is None, reason="torch, which judges the table, is not installed")
def test_torch_raises_the_class_of_the_table(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    ranks = [context.Process(target=torch_rank, args=(rank, str(tmp_path / "store"), queue)) for rank in range(2)]
    for process in ranks:
        process.start()
    found = dict(iter(lambda: queue.get(timeout=300), None))
    for process in ranks:
        process.join(60)
    table = {**CASES, **LATER}
    assert {name: names for name, names in found.items() if table[name][0].__name__ not in names} == {}
