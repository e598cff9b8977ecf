# SPDX-License-Identifier: GPL-2.0-only
"""`dist` over packets: losses change the time, and never a result (collectives.md §8, invariants 16, 23, 25, 26)."""

import numpy as np
import pytest

from tests.support.distributed.collectives import run
from uetproto.api import distributed as dist

TRANSPORTS = ["uet", "roce"]
FAULTS = {"drop": 0.05, "duplicate": 0.05, "reorder": 0.05, "reorder_by": 3}


def program(rank):
    """One of everything."""
    size = dist.get_world_size()
    x = np.arange(5000) * (rank + 1)
    dist.all_reduce(x, algorithm="ring")
    part = np.zeros(7, np.float32)
    dist.reduce_scatter_tensor(part, np.arange(7 * size, dtype=np.float32) + rank)
    whole = np.zeros(7 * size, np.float32)
    dist.all_gather_into_tensor(whole, part)
    there = np.zeros(3 * size, np.int16)
    dist.all_to_all_single(there, np.arange(3 * size, dtype=np.int16) + 100 * rank)
    dist.broadcast(x[:9], 1)
    box = np.zeros(600)
    ops = [
        dist.P2POp(dist.isend, np.full(600, float(rank)), (rank + 1) % size),
        dist.P2POp(dist.irecv, box, (rank - 1) % size),
    ]
    for work in dist.batch_isend_irecv(ops):
        work.wait()
    dist.barrier()
    return [array.tobytes() for array in (x, part, whole, there, box)]


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("faults", [{}, FAULTS], ids=["clean", "faults"])
def test_the_same_results_as_without_packets(transport, size, faults):
    assert run(program, size, transport=transport, faults=faults, seed=size) == run(program, size)


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_one_seed_one_trace(transport):
    def once():
        with dist.World(3, transport=transport, faults=FAULTS, seed=7) as world:
            world.run(lambda rank: (dist.init_process_group(), program(rank))[1])
            return world.now, world.trace

    assert once() == once()


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_deadlock_is_found_although_packets_were_lost(transport):
    def wrong(rank):
        dist.all_reduce(np.ones(2000))
        dist.recv(np.zeros(1), 1 - rank)

    with pytest.raises(dist.DeadlockError, match="deadlock: 0 -> 1 -> 0"):
        run(wrong, 2, transport=transport, faults={"drop": 0.1}, seed=1)


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_cut_link_fails_every_member(transport):
    """The retries end first; then all that depend on them, and the report says on which rank."""
    told = []

    def cut(rank):
        dist.init_process_group()
        try:
            dist.all_reduce(np.ones(3000))
        except (dist.AbortedError, dist.TransportError) as error:
            told.append(str(error))

    dist.run(cut, ranks=3, transport=transport, faults={"drop": 1.0}, faults_from=["rank1"])
    assert len(told) == 3
    assert all("from rank" in text or "rank 1" in text for text in told)


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_sleep_is_waited_for_though_the_network_is_idle(transport):
    def late(rank):
        if rank == 0:
            dist.sleep(5)
        dist.barrier()
        return dist.now() > 5

    assert run(late, 2, transport=transport) == [True, True]


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_the_capture_is_whole_after_the_run(transport, tmp_path):
    file = tmp_path / "ring.pcapng"
    run(lambda rank: dist.all_reduce(np.ones(100)), 2, transport=transport, capture=str(file))
    assert file.stat().st_size > 500
