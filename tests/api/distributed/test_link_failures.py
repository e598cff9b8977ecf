# SPDX-License-Identifier: GPL-2.0-only
"""A link that fails during a run: an error at every rank that depends on it, which says which (collectives.md §5)."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.support.effort import effort
from uetproto.api import distributed as dist
from uetproto.engine.roce.config import RoceConfig

SECOND = 10**12
WHY = {"uet": "no answer after the last retransmission", "roce": "RETRY_EXC_ERR"}

over = pytest.mark.parametrize("transport", ["uet", "roce"])


def told_by(program: Callable[[int], Any], ranks: int, **world: Any) -> tuple[list[str], float]:
    """What each rank was told, and when all were, in seconds of virtual time."""

    def asked(rank: int) -> str:
        dist.init_process_group()
        try:
            program(rank)
        except (dist.TransportError, dist.AbortedError, dist.DeadlockError) as error:
            return str(error)
        return "done"

    with dist.World(ranks, **world) as made:
        told = made.run(asked)
        return told, made.now / SECOND


ALGORITHMS: list[tuple[str, dict[str, Any]]] = [
    ("ring", {}),
    ("double_tree", {}),
    ("recursive_doubling", {}),
    ("naive_star", {}),
    ("split_rail", {"nodes": 4}),
    ("nccl_ring", {"nodes": 4}),
    ("rab", {"nodes": 4}),
    ("split_rail", {"topology": "rails", "shape": {"gpus_per_node": 2}}),
    ("ring", {"topology": "rails", "shape": {"gpus_per_node": 2}}),
    ("ring", {"topology": "leaf-spine", "shape": {"hosts_per_leaf": 2}}),
]
CUTS = [
    (*algorithm, after) for at, algorithm in enumerate(ALGORITHMS) for turn, after in enumerate((0, 5, 12))
    if (at + turn) % effort(2, 1, 1) == 0
]  # fmt: skip
"""Algorithm, more of it, and after how many frames the link fails: in `ci`, every second one."""


@over
@pytest.mark.parametrize(("algorithm", "more", "after"), CUTS, ids=str)
def test_a_link_fails_during_a_collective(transport: str, algorithm: str, more: dict[str, Any], after: int) -> None:
    """Nothing more leaves rank 2: all ranks are told so, none waits for its time-out, and none is done.

    A rank may have what it needs of the round in which it happens; it finds the others gone in the next one, and why.
    """

    def program(rank: int) -> None:
        for _ in range(30):
            dist.all_reduce(np.full(600, rank))

    cut = {"drop": list(range(after, 20000))}
    told, now = told_by(
        program, 8, transport=transport, algorithm=algorithm, faults=cut, faults_from=["rank2"], **more
    )  # fmt: skip
    assert all("rank 2" in text and WHY[transport] in text for text in told), told
    assert now < 1


@over
@pytest.mark.parametrize("op", ["broadcast", "all_to_all", "barrier", "reduce_scatter", "gather"])
def test_a_link_fails_during_any_operation(transport: str, op: str) -> None:
    def program(rank: int) -> None:
        x, y = np.arange(40), np.zeros(40, int)
        calls: dict[str, Callable[[], Any]] = {
            "broadcast": lambda: dist.broadcast(x, 2),
            "all_to_all": lambda: dist.all_to_all_single(y, x),
            "barrier": dist.barrier,
            "reduce_scatter": lambda: dist.reduce_scatter_tensor(y[:10], x),
            "gather": lambda: dist.gather(x, [y.copy() for _ in range(4)] if rank == 0 else None, 0),
        }
        for _ in range(3):
            calls[op]()

    told, now = told_by(program, 4, transport=transport, faults={"drop": 1.0}, faults_from=["rank2"])
    assert all("rank 2" in text and WHY[transport] in text for text in told), told
    assert now < 1


@over
def test_who_does_not_need_it_goes_on(transport: str) -> None:
    """Ranks 0 and 3 talk to each other, rank 1 to the one that is cut off."""

    def program(rank: int) -> None:
        x = np.zeros(5000)
        for _ in range(10):
            if rank in (0, 1):
                dist.send(x, 3 - rank)
            else:
                dist.recv(x, 3 - rank)

    told, _ = told_by(program, 4, transport=transport, faults={"drop": 1.0}, faults_from=["rank2"])
    assert told[0] == told[3] == "done"
    assert all("rank 2" in told[rank] and WHY[transport] in told[rank] for rank in (1, 2))


@pytest.mark.parametrize("later", [False, True], ids=["behind the failed one", "after it"])
@pytest.mark.parametrize("cut", [0, 1])
def test_what_is_flushed_is_told_the_cause(later: bool, cut: int) -> None:
    """Of a queue pair that is down all further work ends with WR_FLUSH_ERR (roce.md §8), which explains nothing: each
    message tells what took the queue pair down."""

    def program(rank: int) -> list[str]:
        dist.init_process_group()
        x, told = np.zeros(12), []
        call = dist.isend if rank == 0 else dist.irecv

        def some(first: int) -> None:
            works = [call(x[tag : tag + 1], 1 - rank, tag=tag) for tag in range(first, first + 6)]
            for work in works:
                assert work is not None
                with pytest.raises(dist.TransportError) as raised:
                    work.wait()
                told.append(str(raised.value))

        some(0)
        if later:
            dist.sleep(1)
            some(6)
        return told

    config = RoceConfig(retry_cnt=1)
    with dist.World(
        2, transport="roce", faults={"drop": 1.0}, faults_from=[f"rank{cut}"], config=config
    ) as world:  # fmt: skip
        results = world.run(program)
    for told in results:
        assert len(told) == 6 * (1 + later)
        assert all("RETRY_EXC_ERR" in text and "FLUSH" not in text for text in told), told
