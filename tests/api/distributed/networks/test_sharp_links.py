# SPDX-License-Identifier: GPL-2.0-only
"""What SHARP costs, counted on the links: payload of hosts, of edges, of the fabric; hops (sharp.md §4.4, §6)."""

from functools import cache
from typing import Any

import numpy as np
import pytest

from tests.support.api.sharp_worlds import network_of, run, sharp_of, world
from tests.support.effort import effort
from uetproto.api import distributed as dist
from uetproto.api.distributed.networks.packets import RECORD

COUNT = effort(768, 3072, 3072)
"""Of float64, 6 or 24 KiB; 2, 4, 6 and 8 divide it."""
LLT = {"SHARP_COLL_ENABLE_SAT": 0, "SHARP_COLL_ENABLE_MCAST_TARGET": 0, "SHARP_COLL_JOB_QUOTA_PAYLOAD_PER_OST": 1024}
KINDS: dict[str | None, dict[str, Any] | None] = {"llt": LLT, "sat": {}, None: None}
TREES = pytest.mark.parametrize("sharp", ["llt", "sat"])
OVER = pytest.mark.parametrize("transport", ["roce", "uet"])


def all_reduce(algorithm: str) -> Any:
    def program(rank: int) -> None:
        x = np.ones(COUNT)
        dist.all_reduce(x, algorithm=algorithm)
        assert (x == dist.get_world_size()).all()

    return program


def payload_of(made: dist.World) -> dict[tuple[str, str], int]:
    return {(hop.source, hop.target): hop.payload for hop in network_of(made).world.network.hops}


@cache
def crossed_by(algorithm: str, transport: str, ranks: int, sharp: str | None = None) -> dict[tuple[str, str], int]:
    """Run an all_reduce once for all tests; return the payload of each way."""
    made = world(ranks, transport, KINDS[sharp], metered=True)
    run(all_reduce(algorithm), made)
    return payload_of(made)


@TREES
@OVER
@pytest.mark.parametrize("ranks", [2, 4, 6, 8])
def test_a_host_sends_what_it_has_and_receives_as_much(transport: str, sharp: str, ranks: int) -> None:
    """Invariant 16, and the published ratio: of a ring each host sends 2(N - 1)/N times as much, exactly."""
    length = 8 * COUNT
    by_sharp, by_ring = crossed_by("sharp", transport, ranks, sharp), crossed_by("ring", transport, ranks)
    told = 2 * (ranks - 1) * RECORD  # by each rank: where the other may write
    for rank in range(ranks):
        assert [by_sharp[way] for way in by_sharp if f"rank{rank}" in way] == [length, length]
        for way in by_ring:
            if f"rank{rank}" in way:
                assert (by_ring[way] - told) * ranks == 2 * (ranks - 1) * length


@OVER
def test_all_hosts_of_a_switch_at_once(transport: str) -> None:
    """Its aggregation node takes what comes by all cables at once: nothing is lost, nothing sent again."""
    made = world(12, transport, metered=True, topology="switch", shape={}, wire="objects")
    count = effort(1 << 14, 1 << 15, 1 << 15)
    run(lambda rank: dist.all_reduce(np.ones(count), algorithm="sharp"), made)
    assert set(payload_of(made).values()) == {8 * count}


@TREES
@OVER
@pytest.mark.parametrize(("ranks", "leaves"), [(4, 2), (6, 3), (3, 2), (2, 1)])
def test_every_edge_of_the_tree_is_crossed_twice(transport: str, sharp: str, ranks: int, leaves: int) -> None:
    """trav = 2·E·D with one root above the leaves (collectives.md §3.9); hops within a switch are not counted."""
    edges = ranks + (leaves if leaves > 1 else 0)
    crossed = crossed_by("sharp", transport, ranks, sharp)
    assert sum(crossed.values()) == 2 * edges * 8 * COUNT
    assert set(crossed.values()) <= {0, 8 * COUNT}


@OVER
def test_the_tree_sends_one_message_an_edge(transport: str) -> None:
    """One AGG_REQ up and one AGG_RESULT down a segment, and OSTs are freed (collectives.md §8 items 15 and 37)."""
    made = world(4, transport, LLT)

    def program(rank: int) -> list[int]:
        dist.barrier(algorithm="sharp")
        counts = []
        for length in (1, 128, 129):
            before = dict(hosts[f"rank{rank}"].counters)
            dist.all_reduce(np.zeros(8 * length, np.uint8), algorithm="sharp")
            after = hosts[f"rank{rank}"].counters
            counts += [after[what] - before[what] for what in ("sent", "received")]
        return counts

    fabric = sharp_of(made).fabric
    hosts = fabric.hosts
    assert run(program, made) == [[1, 1, 1, 1, 2, 2]] * 4
    assert all(0 <= node.pool.used().osts <= 51 for node in fabric.nodes.values())  # 20 % of 256
    sharp_of(made).close()
    for node in fabric.nodes.values():
        assert (node.pool.used().osts, node.pool.used().groups, node.pool.used().locks, node.pool.used().buffers) == (
            0,
            0,
            0,
            0,
        )


def test_a_multicast_result_crosses_every_link_once() -> None:
    """The root sends it once, and switches copy it."""
    made = world(4, sharp={"SHARP_COLL_ENABLE_SAT": 0}, metered=True)

    def program(rank: int) -> None:
        dist.all_reduce(np.zeros(32, np.float32), algorithm="sharp")

    run(program, made)
    crossed = payload_of(made)
    assert sorted(crossed.values(), reverse=True)[:12] == [128] * 12
    assert sum(crossed.values()) == 12 * 128
    switches = network_of(made).world.network.switches
    assert {name: switch.group_frames.frames for name, switch in switches.items()} == {
        "leaf0": 1, "leaf1": 1, "spine0": 1, "spine1": 0,
    }  # fmt: skip
    assert sum(sum(switch.copies.values()) for switch in switches.values()) == 4


@OVER
def test_latency_grows_with_the_depth_of_the_tree(transport: str) -> None:
    """Two hops a level (§4.4): a leaf, a leaf and a spine, three levels."""
    shapes: list[dict[str, Any]] = [
        {"topology": "switch", "shape": {}},
        {"shape": {"hosts_per_leaf": 4}},
        {"topology": "fat-tree", "shape": {"k": 4, "levels": 3}},
    ]

    def program(rank: int) -> float:
        dist.barrier(algorithm="sharp")
        start = dist.now()
        dist.barrier(algorithm="sharp")
        return dist.now() - start

    sharp = {"SHARP_COLL_ENABLE_MCAST_TARGET": 0}
    times = [max(run(program, world(8, transport, sharp, **shape))) for shape in shapes]
    one, two, three = times
    hop = 1e-6
    assert 2 * hop < one < 3 * hop
    for less, more in ((one, two), (two, three)):
        assert 2 * hop < more - less < 3.5 * hop
