# SPDX-License-Identifier: GPL-2.0-only
"""Rails with packets (collectives.md §4.2): who leaves a host by which NIC, and over whom a message goes (PXN)."""

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from uetproto import decode
from uetproto.api import distributed as dist
from uetproto.api.distributed.networks.packets import RECORD, PacketNetwork
from uetproto.collectives.costs.link_bytes import link_bytes
from uetproto.collectives.topology.kinds import topology
from uetproto.errors import LocalError
from uetproto.wire.capture.pcap import open_capture

OVER = [("uet", {}), ("uet", {"way": "send"}), ("roce", {})]
GPUS, RANKS, COUNT = 4, 12, 50

over = pytest.mark.parametrize(("transport", "options"), OVER, ids=["uet", "uet-send", "roce"])


def rails(transport: str, **options: Any) -> dist.World:
    return dist.World(
        RANKS, transport=transport, topology="rails", shape={"gpus_per_node": GPUS}, metered=True, **options
    )


def all_to_all(rank: int) -> list[int]:
    """Every rank to every other: nine in twelve go to another host, nine in twelve of these to another rail."""
    dist.init_process_group()
    out = np.zeros(RANKS * COUNT, np.int64)
    dist.all_to_all_single(out, np.arange(RANKS * COUNT) + 1000 * rank)
    return out.reshape(RANKS, COUNT)[:, 0].tolist()


def run(world: dist.World, program: Callable[[int], Any] = all_to_all) -> list[Any]:
    with world:
        return world.run(program)


def hops(world: dist.World) -> list[Any]:
    assert isinstance(world.network, PacketNetwork)
    return world.network.world.network.hops


@over
@pytest.mark.parametrize("faults", [{}, {"drop": 0.05, "reorder": 0.1}], ids=["clean", "lossy"])
def test_on_rails_packets_enter_and_leave_on_the_same_nic(
    transport: str, options: dict[str, Any], faults: dict[str, float], tmp_path: Any
) -> None:
    """Invariant 41: of no packet, be it an ACK, does the rail change; and spines carry nothing."""
    path = tmp_path / "run.pcapng"
    world = rails(transport, cross_nic=0, faults=faults, seed=2, capture=str(path), taps="all", **options)
    told = run(world)
    assert told == [[1000 * peer + COUNT * rank for peer in range(RANKS)] for rank in range(RANKS)]
    with open_capture(str(path)) as reader:
        ends = {(p["ipv4"]["src"], p["ipv4"]["dst"]) for record in reader for p in [decode(record.data)]}
    first = int.from_bytes(bytes((10, 0, 0, 1)), "big")
    assert len(ends) == RANKS * 2  # of each rank those to its peers in two hosts
    assert all((a - first) % GPUS == (b - first) % GPUS and a != b for a, b in ends)
    for hop in hops(world):
        assert (hop.link.bytes == 0) == ("spine" in hop.source + hop.target), hop


@over
@pytest.mark.parametrize("cross_nic", [0, 1, 2, None])
def test_the_bytes_of_every_policy(transport: str, options: dict[str, Any], cross_nic: int | None) -> None:
    """Invariant 42, with the way over the relay, or straight through the spines; records go back to who sends."""
    told = {} if cross_nic is None else {"cross_nic": cross_nic}
    world = rails(transport, **told, **options)
    run(world)
    pairs = np.array(list(itertools.permutations(range(RANKS), 2)))
    layout, relay = topology("rails", RANKS, gpus_per_node=GPUS), cross_nic != 1
    data = link_bytes(layout, *pairs.T, np.full(len(pairs), COUNT * 8), relay=relay)
    senders = np.array([layout.relay(a, b) if relay else a for a, b in pairs.tolist()])
    apart = np.array([not layout.together(a, b) for a, b in pairs.tolist()])
    record = 0 if options.get("way") == "send" else RECORD
    records = link_bytes(layout, pairs[apart, 1], senders[apart], np.full(apart.sum(), record))
    assert sum(hop.payload for hop in hops(world)) == data.trav + records.trav
    network = world.network
    assert isinstance(network, PacketNetwork)
    assert [network.intra.sent[rank] for rank in range(RANKS)] == data.within.tolist()
    assert any("spine" in hop.source and hop.payload for hop in hops(world)) is not relay


@over
def test_two_ranks_of_a_host_send_the_same_tag_over_one_relay(transport: str, options: dict[str, Any]) -> None:
    """To the same rank: it is the origin that tells the messages apart, in whatever order they are awaited."""

    def program(rank: int) -> list[int]:
        dist.init_process_group()
        got = np.zeros((3, 5), int)
        if rank < 3:
            dist.send(np.full(5, rank + 1), 7, tag=3)
        elif rank == 7:
            for peer in (2, 0, 1):
                dist.recv(got[peer], peer, tag=3)
        return got[:, 4].tolist()

    assert run(rails(transport, **options), program)[7] == [1, 2, 3]


@over
def test_hosts_on_any_fabric_have_rails(transport: str, options: dict[str, Any], tmp_path: Any) -> None:
    """The i-th ranks of all hosts are a rail."""
    path = tmp_path / "run.pcapng"
    world = dist.World(4, transport=transport, hosts=[[0, 3], [2, 1]], capture=str(path), taps="all", **options)
    with world:
        world.run(lambda rank: (dist.init_process_group(), dist.barrier()))
    with open_capture(str(path)) as reader:
        ends = {(p["ipv4"]["src"] & 255, p["ipv4"]["dst"] & 255) for record in reader for p in [decode(record.data)]}
    assert ends == {(1, 3), (3, 1), (4, 2), (2, 4)}  # ranks 0 and 2, 3 and 1


@over
@pytest.mark.parametrize(("target", "hops"), [(6, 0), (5, 1)], ids=["same rail", "other rail"])
def test_the_hop_to_the_relay_takes_its_time(transport: str, options: dict[str, Any], target: int, hops: int) -> None:
    def program(rank: int) -> int:
        dist.init_process_group()
        x = np.zeros(1000, np.uint8)
        dist.send(x, target) if rank == 2 else dist.recv(x, 2) if rank == target else None
        return round(dist.now() * 10**12)

    slow = {"intra_latency": 5 * 10**9, "intra_bandwidth": 10**9}  # 5 ms, and a ns a byte
    took = run(rails(transport, **slow, **options), program)[target]
    assert hops * (5 * 10**9 + 10**6) < took < hops * (5 * 10**9 + 10**6) + 10**9


def test_the_order_of_hosts_does_not_move_nics() -> None:
    """On rails it is the fabric that says which NIC is on which rail."""
    wanted = [[0, 1], [2, 3]]
    world = dist.World(4, transport="roce", topology="rails", shape={"gpus_per_node": 2}, hosts=[[3, 2], [1, 0]])
    with world:
        assert world.nodes == wanted


@over
def test_a_host_without_that_rail_sends_straight(transport: str, options: dict[str, Any]) -> None:
    def program(rank: int) -> int:
        dist.init_process_group()
        x = np.full(3, rank)
        dist.send(x, 1) if rank == 2 else dist.recv(x, 2) if rank == 1 else None
        return int(x[0])

    world = dist.World(3, transport=transport, hosts=[[0, 1], [2]], metered=True, **options)
    assert run(world, program)[1] == 2
    assert next(hop for hop in hops(world) if hop.source == "rank2").payload > 0


@over
def test_a_relay_whose_cable_is_cut_is_named(transport: str, options: dict[str, Any]) -> None:
    """At both ends, and the ranks that do not need it go on."""

    def program(rank: int) -> str:
        dist.init_process_group()
        x = np.zeros(9)
        try:
            if rank == 0:
                dist.send(x, 5)
            elif rank == 5:
                dist.recv(x, 0)
            elif rank in (2, 6):
                dist.send(x, 6) if rank == 2 else dist.recv(x, 2)
        except dist.TransportError as error:
            return str(error)
        return "done"

    told = run(rails(transport, faults={"drop": 1.0}, faults_from=["rank1"], **options), program)
    assert [rank for rank in range(RANKS) if told[rank] != "done"] == [0, 5]
    why = "RETRY_EXC_ERR" if transport == "roce" else "no answer after the last retransmission"
    for rank in (0, 5):
        assert "message from rank 0 to rank 5, over rank 1: " in told[rank]
        assert why in told[rank]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"cross_nic": 3}, "cross_nic: 3; legal: 0 never leave the rail, 1 allow, 2 prefer"),
        ({"cross_nic": True}, "cross_nic: True; legal"),
        ({"cross_nic": 0, "hosts": [[0, 1, 2], [3]]}, "cross_nic: 0 with hosts .*; legal: 1, 2, or as many ranks"),
    ],
)
def test_a_policy_that_cannot_be(options: dict[str, Any], text: str) -> None:
    with pytest.raises(LocalError, match=text) as raised:
        dist.World(4, transport="roce", **options)
    assert isinstance(raised.value, ValueError)
