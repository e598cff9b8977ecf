# SPDX-License-Identifier: GPL-2.0-only
"""All-reduce of ranks that share nodes: SHARP among the leaders of nodes or sockets (collectives.md §3.8)."""

from typing import Any

import numpy as np
import pytest

from tests.support.api.sharp_worlds import bits, fold, network_of, run, sharp_of, world
from uetproto.api import distributed as dist
from uetproto.api.distributed.networks.sharp_errors import SharpError

OVER = pytest.mark.parametrize("transport", ["roce", "uet"])
RANKS = 8
RAILS: dict[str, Any] = {"topology": "rails", "shape": {"gpus_per_node": 4}}
"""Two nodes of four."""
SPREAD: dict[str, Any] = {"nodes": [[0, 4], [1, 5], [2, 6], [3, 7]]}
"""Four nodes of two on leaves of two."""


def all_reduce(values: list[Any], op: Any = dist.ReduceOp.SUM) -> Any:
    def program(rank: int) -> bytes:
        x = values[rank].copy()
        dist.all_reduce(x, op, algorithm="hcoll_sharp")
        return bits(x)

    return program


def floats(count: int = 2500) -> list[Any]:
    draw = np.random.default_rng(7)
    return [draw.normal(size=count).astype(np.float32) for _ in range(RANKS)]


def senders(made: dist.World) -> set[str]:
    world = network_of(made).world
    return {name for name, nic in world.network.nics.items() if world.nodes[name].at is None and nic.sent}


@OVER
@pytest.mark.parametrize(
    ("given", "leaders"),
    [
        (RAILS, (0, 4)),
        ({**RAILS, "sockets": 2}, (0, 2, 4, 6)),
        (SPREAD, (0, 1, 2, 3)),
        ({"nodes": 2}, (0, 4)),
    ],
    ids=["rails", "sockets", "spread", "two"],
)
def test_only_leaders_send_packets(transport: str, given: dict[str, Any], leaders: tuple[int, ...]) -> None:
    """Invariant 38: whole numbers are those of the flat result; every leader sends the vector once."""
    values = [np.arange(2500, dtype=np.int64) ** 2 + 17**rank for rank in range(RANKS)]
    told = {"algorithm": {"all_reduce": "hcoll_sharp"}} if "sockets" in given else {}
    made = world(RANKS, transport, metered=True, **given, **told)
    assert run(all_reduce(values), made) == [bits(sum(values[1:], values[0]))] * RANKS
    assert senders(made) == {f"rank{rank}" for rank in leaders}
    payload = {hop.source: hop.payload for hop in network_of(made).world.network.hops if hop.source.startswith("rank")}
    assert payload == {f"rank{rank}": 8 * 2500 if rank in leaders else 0 for rank in range(RANKS)}
    members = {group.work.group_size for host in sharp_of(made).fabric.hosts.values() for group in host.groups.values()}
    assert members == {len(leaders)}


@OVER
def test_all_have_the_same_bits(transport: str) -> None:
    values = floats()
    results = run(all_reduce(values), world(RANKS, transport, **RAILS))
    assert len(set(results)) == 1
    total = np.frombuffer(results[0], np.float32)
    assert np.allclose(total, np.sum(values, axis=0), atol=1e-4)


def test_the_order_of_pairs_is_known() -> None:
    """Two ranks a node: a node's sum is that of its pair, the rest is the tree's."""
    values = floats()
    results = run(all_reduce(values), world(RANKS, **SPREAD))
    assert results == [bits(fold((((0, 4), (1, 5)), ((2, 6), (3, 7))), values, "SUM"))] * RANKS


@pytest.mark.parametrize("op", ["AVG", "MAX"])
def test_what_is_done_before_and_after_is_done_once(op: str) -> None:
    for type_ in (np.int32, np.float64):
        values = [np.arange(100).astype(type_) + 3 * rank for rank in range(RANKS)]
        (result,) = set(run(all_reduce(values, getattr(dist.ReduceOp, op)), world(RANKS, **RAILS)))
        wanted = np.arange(100) + (21 if op == "MAX" else 10 if type_ is np.int32 else 10.5)
        assert np.allclose(np.frombuffer(result, type_), wanted)


def test_hops_within_nodes_cost_bytes_and_time() -> None:
    """Three ranks a node hand in a vector and get one; a slower bus takes longer."""
    values = floats()
    times = []
    for bandwidth in (160 * 10**9, 10**9):
        made = world(RANKS, **RAILS, intra_bandwidth=bandwidth)
        run(all_reduce(values), made)
        assert sum(network_of(made).intra.sent.values()) == 2 * 2 * 3 * 10_000
        times.append(max(event.now for event in made.trace if event.state == "done"))
    assert times[1] - times[0] > 2 * 10_000 * 1000 * 0.9  # 10 kB at 1 GB/s, twice at least


def test_a_group_has_leaders_of_its_own() -> None:
    values = floats()

    def program(rank: int) -> bytes:
        group = dist.new_group([1, 3, 4, 5, 6])
        x = values[rank].copy()
        if group is not dist.GroupMember.NON_GROUP_MEMBER:
            dist.all_reduce(x, group=group, algorithm="hcoll_sharp")
        return bits(x)

    made = world(RANKS, **RAILS)
    results = run(program, made)
    assert len({results[rank] for rank in (1, 3, 4, 5, 6)}) == 1
    assert senders(made) == {"rank1", "rank4"}


def test_one_node_needs_no_network() -> None:
    made = world(4, topology="switch", shape={}, nodes=1)
    assert len(set(run(all_reduce(floats()), made))) == 1
    assert senders(made) == set()


def test_without_nodes_each_rank_is_one() -> None:
    made = world(4)
    values = floats()
    assert run(all_reduce(values), made) == [bits(fold(((0, 1), (2, 3)), values, "SUM"))] * 4


def test_sockets_that_do_not_share_a_node_evenly() -> None:
    made = world(RANKS, algorithm={"all_reduce": "hcoll_sharp"}, sockets=3, **RAILS)
    with pytest.raises(ValueError, match="sockets: 3 do not share 4 ranks a node evenly; legal are 1, 2, 4"):
        run(lambda rank: dist.all_reduce(np.ones(2)), made)


def test_leaders_fall_back_and_fail_as_others_do() -> None:
    values = floats()
    probes = world(RANKS, sharp={"HCOLL_ENABLE_SHARP": 1, "SHARP_COLL_JOB_QUOTA_OSTS": 1000}, **RAILS)
    assert len(set(run(all_reduce(values), probes))) == 1
    assert sharp_of(probes).notes == ["fell back: sharp: no job for ranks 0, 4: QUOTA (-7)"]
    made = world(RANKS, **RAILS)
    network = network_of(made)
    network.world.clock.at(3_000_000, lambda _: network.kill("rank4"))
    with pytest.raises(SharpError, match=r"says rank4 of an\.leaf0"):
        run(lambda rank: [dist.all_reduce(values[rank], algorithm="hcoll_sharp") for _ in range(50)], made)
