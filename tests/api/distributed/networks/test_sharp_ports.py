# SPDX-License-Identifier: GPL-2.0-only
"""NICs with several ports in `distributed`: a SHARP tree for each port (sharp.md §4.1, §4.2)."""

from collections import Counter
from typing import Any

import numpy as np
import pytest

from tests.support.api.sharp_worlds import network_of, run, sharp_of, world
from uetproto.api import distributed as dist

OVER = pytest.mark.parametrize("transport", ["roce", "uet"])


def frames(made: dist.World) -> Counter[str]:
    """Frames to and from hosts so far, by the number of the port."""
    found: Counter[str] = Counter()
    for hop in network_of(made).world.network.hops:
        for end in (hop.source, hop.target):
            if end.startswith("rank"):
                found[end.partition(".")[2]] += hop.link.frames
    return found


@OVER
@pytest.mark.parametrize(("more", "turns"), [({}, 2), ({"SHARP_COLL_GROUPS_PER_COMM": 1}, 1)])
def test_every_packet_of_a_tree_uses_its_port(transport: str, more: dict[str, Any], turns: int) -> None:
    """Joins, requests, results by RC, PDC or multicast, and ACKs; vectors that are not divided take turns."""
    made = world(4, transport, more, ports=2)
    seen = []

    def program(rank: int) -> None:
        for _ in range(4):
            dist.all_reduce(np.zeros(100, np.uint8), algorithm="sharp")
            dist.sleep(0.001)  # the last ACK has come
            if not rank:
                seen.append(frames(made))

    run(program, made)
    for number, (before, after) in enumerate(zip([Counter(), *seen[:-1]], seen, strict=True)):
        assert {port for port, count in (after - before).items() if count} == {str(number % turns)}


@OVER
@pytest.mark.parametrize("topology", ["switch", "leaf-spine"])
def test_a_large_vector_uses_both_ports_alike(transport: str, topology: str) -> None:
    values = np.arange(8192, dtype=np.float32)

    def program(rank: int) -> bytes:
        x = values * (rank + 1)
        dist.all_reduce(x, algorithm="sharp")
        return x.tobytes()

    shape = {"hosts_per_leaf": 2} if topology == "leaf-spine" else None
    made = world(4, transport, ports=2, metered=True, topology=topology, shape=shape)
    assert run(program, made) == [(values * 10).tobytes()] * 4
    sent = {hop.source: hop.payload for hop in network_of(made).world.network.hops if hop.source.startswith("rank")}
    assert sent == {f"rank{rank}.{port}": values.nbytes // 2 for rank in range(4) for port in range(2)}
    [job] = sharp_of(made).fabric.manager.jobs.values() or [None]
    assert job is not None
    assert [rail.tree.tree_id for rail in job.grant.rails] == [0, 1]


def test_a_tree_has_one_port_of_each_host() -> None:
    """So 32 hosts with two ports fit the 32 children that an aggregation node has."""
    made = world(32, ports=2, topology="switch", shape=None)
    with made:
        grant = sharp_of(made).fabric.begin_job(range(32))
        assert [len(rail.llt) for rail in grant.rails] == [32, 32]  # type: ignore[union-attr]
        hosts = [{child.guid for child in rail.tree.nodes[rail.tree.root].children} for rail in grant.rails]  # type: ignore[union-attr]
        assert [len(of) for of in hosts] == [32, 32]
        assert not hosts[0] & hosts[1]


@pytest.mark.parametrize("before", [2, 3])
def test_a_dead_host_is_named_whatever_the_port(before: int) -> None:
    """Its leaf waits for it on the tree of either port."""
    made = world(4, sharp={"t_ost": 10**9}, ports=2)

    def program(rank: int) -> None:
        for _ in range(before):
            dist.barrier(algorithm="sharp")
        if not rank:
            network_of(made).kill("rank3")
        dist.barrier(algorithm="sharp")

    with pytest.raises(dist.TransportError, match=r"TIMEOUT_NO_PROGRESS .*, says an\.leaf1 of rank3"):
        run(program, made)


@pytest.mark.parametrize("ports", [0, 5, "2", None, True])
def test_ports_are_refused(ports: Any) -> None:
    with pytest.raises(ValueError, match=r"ports: .* is not legal; legal: a whole number, 1 … 4"):
        world(4, ports=ports)
