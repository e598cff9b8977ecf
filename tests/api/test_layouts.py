# SPDX-License-Identifier: GPL-2.0-only
"""Fabrics of several switches below the APIs: as by a switch, only farther (collectives.md §4.2)."""

from dataclasses import replace
from typing import Any

import pytest

from tests.support.api.verbs_network import ends
from uetproto import LocalError
from uetproto.api import fi, verbs
from uetproto.collectives.costs.link_bytes import link_bytes
from uetproto.collectives.topology.kinds import topology as plan
from uetproto.engine.config import PdsConfig

NODES = tuple(f"rank{rank}" for rank in range(8))
DATA = bytes(range(250)) * 16


def arrival(target: int, **settings: Any) -> int:
    """When a write from the first node is complete there, with answers after that."""
    with fi.Fabric(nodes=NODES, **settings) as fabric:
        a, b = (fabric.endpoint(NODES[rank]) for rank in (0, target))
        region = b.domain.mr_reg(memory := bytearray(4000))
        a.write(DATA, b.address, 0, region.key)
        assert a.cq.sread(1)[0].ok
        assert memory == DATA
        return fabric.now


@pytest.mark.parametrize(
    ("topology", "shape", "target", "hops"),
    [
        ("leaf-spine", {"hosts_per_leaf": 4, "spines": 2}, 3, 2),
        ("leaf-spine", {"hosts_per_leaf": 4, "spines": 2}, 4, 4),
        ("fat-tree", {"k": 4}, 7, 6),
        ("rails", {"gpus_per_node": 4}, 4, 2),
        ("rails", {"gpus_per_node": 4}, 5, 4),
    ],
)
def test_a_write_goes_there_and_back(topology: str, shape: dict[str, int], target: int, hops: int) -> None:
    """Two ways of so many links of 1 µs each, and a little for the bytes."""
    now = arrival(target, topology=topology, shape=shape)
    assert 2 * hops * 1_000_000 < now < 2 * hops * 1_000_000 * 1.1
    assert (now == arrival(target)) is (hops == 2)


def test_losses_over_a_fabric_are_repaired() -> None:
    assert arrival(7, topology="fat-tree", faults={"drop": [0, 1]}) > arrival(7, topology="fat-tree")


@pytest.mark.parametrize(
    ("topology", "shape"),
    [
        ("switch", {}),
        ("leaf-spine", {"hosts_per_leaf": 2, "spines": 3}),
        ("fat-tree", {"k": 4}),
        ("rails", {"gpus_per_node": 4}),
    ],
)
def test_payload_on_the_links(topology: str, shape: dict[str, int]) -> None:
    """Everyone writes to everyone: each byte is counted once a link, and no header is (invariant 42)."""
    one_way = PdsConfig(entropy_values=1)  # if packets are sprayed, an ACK may be due only after the RTO (pds.md §8.3)
    with fi.Fabric(nodes=NODES, topology=topology, shape=shape, pds=one_way, metered=True) as fabric:
        ends = [fabric.endpoint(name) for name in NODES]
        regions = [end.domain.mr_reg(bytearray(8 * 5000)) for end in ends]
        pairs = [(a, b) for a in range(8) for b in range(8) if a != b]
        for a, b in pairs:
            ends[a].write(bytes(4500 + a), ends[b].address, 5000 * a, regions[b].key)
        assert [len(end.cq.sread(7, threshold=7)) for end in ends] == [7] * 8
        graph = replace(plan(topology, 8, **shape), gpus_per_node=1)  # no message stays within a node
        source, target = zip(*pairs, strict=True)
        expected = link_bytes(graph, source, target, [4500 + a for a in source])
        assert sum(hop.payload for hop in fabric.world.network.hops) == expected.trav
        for rank, name in enumerate(NODES):
            assert sum(hop.payload for hop in fabric.world.network.hops if hop.source == name) == expected.tx[rank]
        assert fabric.world.network.hops[0].link.bytes > fabric.world.network.hops[0].payload


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"topology": "leaf-spine", "shape": {"k": 2}}, "k: does not go with topology leaf-spine.*hosts_per_leaf"),
        ({"topology": "switch", "shape": {"k": 2}}, "k: does not go with topology switch.*topology fat-tree"),
        ({"topology": "fat-tree", "shape": {"k": 2, "levels": 2}}, "2 ranks, or k 4 and more"),
        ({"topology": "fat-tree", "shape": {"k": 3}}, "k: 3 ports a switch.*an even number"),
        ({"topology": "fat-tree", "shape": {"k": "4"}}, "k: '4'.*a whole number"),
        ({"topology": "fat-tree", "shape": {"ranks": 4}}, "ranks: does not go with"),
        ({"topology": "fat-tree", "shape": {4: 4}}, "4: does not go with"),
        ({"topology": "fat-tree", "shape": 4}, "shape: 4.*a dictionary such as"),
    ],
)
@pytest.mark.parametrize("kind", [fi.Fabric, verbs.Network])
def test_shapes_that_cannot_be(kind: Any, arguments: dict[str, Any], text: str) -> None:
    with pytest.raises(LocalError, match=text):
        kind(("a", "b", "c"), **arguments)


def test_pfc_is_for_switches() -> None:
    """Queues that have no capacity of their own hold what the headroom needs; those that have one must."""
    with pytest.raises(LocalError, match=r"pfc: topology pair .*a topology with switches"):
        verbs.Network(("a", "b"), topology="pair", pfc=verbs.Pfc())
    for nodes in (2, 12):
        with verbs.Network(map(str, range(nodes)), topology="rails", pfc=verbs.Pfc()) as grown:
            capacity = next(iter(grown.world.network.queues.values())).capacity
        with pytest.raises(LocalError, match=rf"queue_capacity: {capacity - 1} is not legal; legal: {capacity} bytes"):
            verbs.Network(map(str, range(nodes)), topology="rails", pfc=verbs.Pfc(), queue_capacity=capacity - 1)


def test_a_group_over_a_fabric() -> None:
    """Each member has one copy, wherever it is, and who is no member none."""
    group = "::ffff:224.1.2.3"
    with (e := ends(verbs.QpType.UD, nodes=NODES, topology="fat-tree", shape={"k": 4})).net:
        members = [e.b]
        for name in NODES[3:]:
            pd = e.net.device(name).alloc_pd()
            members.append(pd.create_qp(verbs.QpType.UD, pd.device.create_cq()))
            verbs.connect(e.a, members[-1])
        for qp in members:
            qp.attach_mcast(group)
            for _ in range(2):
                qp.post_recv(qp.pd.reg_mr(bytearray(64)))
        ways = {"ah": e.a.pd.create_ah(group), "remote_qpn": verbs.MULTICAST_QP}
        e.send(verbs.Opcode.SEND, b"to all", **ways)
        e.net.run()
        assert [[entry.byte_len for entry in qp.recv_cq.poll(9)] for qp in members] == [[46]] * 6
