# SPDX-License-Identifier: GPL-2.0-only
"""Bytes on the links: what schedules and random messages put there (collectives.md §2, §3.10.7, §7)."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.collectives.topology_graph import SMALL
from tests.support.effort import examples
from uetproto import LocalError
from uetproto.collectives.algorithms.catalogue import schedule
from uetproto.collectives.costs.link_bytes import DENSE, LinkBytes, link_bytes
from uetproto.collectives.topology.graph import Topology
from uetproto.collectives.topology.kinds import topology


def ring_all_gather(shape: Topology, block: int) -> LinkBytes:
    """The messages of the schedule, on the links."""
    arrays = schedule("all_gather", "ring", shape.size, block * shape.size).arrays()
    return link_bytes(shape, arrays["src"], arrays["dst"], arrays["count"])


@pytest.mark.parametrize(
    ("ranks", "hosts", "leaves", "trav", "inj", "egress_ratio"),
    [
        (4, 4, 1, 24, 12, 1.000),
        (8, 4, 2, 140, 56, 1.167),
        (16, 4, 4, 600, 240, 1.184),
        (64, 16, 4, 8568, 4032, 1.058),
        (188, 16, 12, 74800, 35156, 1.060),
        (188, 18, 11, 74426, 35156, 1.055),
        (1024, 16, 64, 2226048, 1047552, 1.059),
    ],
)
def test_ring_on_a_leaf_spine(
    ranks: int, hosts: int, leaves: int, trav: int, inj: int, egress_ratio: float
) -> None:  # fmt: skip
    """The table of §3.10.7, its multicast column from the trees, and the ratio 2(N-1)/N (invariant 36)."""
    shape = topology("leaf-spine", ranks, hosts_per_leaf=hosts)
    ring = ring_all_gather(shape, 3)
    assert len({shape.neighbour(rank) for rank in range(ranks)}) == leaves
    assert (ring.trav, ring.inj) == (3 * trav, 3 * inj)
    assert ring.links.sum() == pytest.approx(ring.trav)
    multicast = sum(3 * len(shape.tree(rank)) for rank in range(min(ranks, 4))) * ranks // min(ranks, 4)
    assert ring.trav * ranks == multicast * 2 * (ranks - 1)
    assert round(ring.egress / (multicast - 3 * ranks), 3) == egress_ratio


def test_ring_all_reduce_of_one_leaf() -> None:
    """§6.1: N = 4, 64 bytes, 768 in all."""
    arrays = schedule("all_reduce", "ring", 4, 16).arrays()
    on = link_bytes(topology("switch", 4), arrays["src"], arrays["dst"], 4 * arrays["count"])
    assert (on.trav, on.inj, on.tx.tolist(), on.rx.tolist()) == (768, 384, [96] * 4, [96] * 4)


@pytest.mark.parametrize(
    ("ranks", "trav"),
    [(2, 4), (4, 24), (8, 112), (16, 480), (32, 2108), (64, 8820), (128, 35560), (256, 142800), (1024, 2291520)],
)
def test_ring_on_the_tree_of_the_artifact(ranks: int, trav: int) -> None:
    """16 hosts a switch, two switches a pod, distances the same both ways (§7, last column)."""
    edges, pods = -(-ranks // 16), -(-ranks // 32)
    names = (*(f"edge{e}" for e in range(edges)), *(f"pod{p}" for p in range(pods)), "core")
    hosts = [(rank, ranks + rank // 16) for rank in range(ranks)]
    trunks = [(ranks + edge, ranks + edges + edge // 2) for edge in range(edges)]
    trunks += [(ranks + edges + pod, ranks + edges + pods) for pod in range(pods)]
    shape = Topology("own", ranks, names, tuple(hosts + trunks))
    assert ring_all_gather(shape, 1).trav == trav


@examples(60)
@given(st.data())
def test_as_if_every_message_were_followed(data: st.DataObject) -> None:
    """Equal paths share at each switch: the same, message by message and switch by switch."""
    shape = data.draw(st.sampled_from(list(SMALL.values())))
    rank = st.integers(0, shape.size - 1)
    messages = data.draw(st.lists(st.tuples(rank, rank, st.integers(0, 1000)), max_size=30))
    columns = np.array(messages, dtype=np.int64).reshape(-1, 3).T
    found = link_bytes(shape, *columns)
    links, within, trav = np.zeros(len(shape.links)), np.zeros(shape.size), 0
    for source, target, size in messages:
        if shape.together(source, target):
            within[source] += size if source != target else 0
            continue
        trav += size * shape.hops(source, target)
        load = {source: float(size)}
        for _ in range(shape.hops(source, target)):
            ahead: dict[int, float] = {}
            for vertex, amount in load.items():
                ways = shape.next_links(vertex, target)
                for link in ways:
                    links[link] += amount / len(ways)
                    end = shape.links[link].target
                    ahead[end] = ahead.get(end, 0) + amount / len(ways)
            load = ahead
    assert np.allclose(found.links, links)
    assert (found.trav, found.within.tolist()) == (trav, within.tolist())
    assert found.egress + found.inj == found.trav == pytest.approx(found.links.sum())
    assert found.tx.sum() == found.rx.sum()


def test_rails_with_and_without_relay() -> None:
    """All to all of 3 nodes by 4 GPUs: over the spines, or first within the node (§4.2)."""
    shape = topology("rails", 12, gpus_per_node=4, spines=2)
    source, target = np.divmod(np.arange(144), 12)
    straight, relayed = (link_bytes(shape, source, target, 10, relay=relay) for relay in (False, True))
    assert straight.inj == relayed.inj == 12 * 8 * 10
    assert straight.trav == 10 * 12 * 2 * (1 * 2 + 3 * 4)
    assert relayed.trav == 10 * 12 * 8 * 2
    assert not [name for name, _ in relayed.table() if "spine" in name]
    assert straight.within.tolist() == [30] * 12
    assert relayed.within.tolist() == [30 + 2 * 3 * 10] * 12
    assert (relayed.tx == 80).all()


def test_many_ranks_and_many_bytes() -> None:
    ranks = DENSE + 4
    shape = topology("leaf-spine", ranks, hosts_per_leaf=64, spines=2)
    rank = np.arange(ranks)
    on = link_bytes(shape, rank, (rank + 1) % ranks, 1 << 40)
    assert on.trav == (2 * ranks + 2 * 65) << 40
    assert dict(on.table())["rank0 > leaf0"] == 1 << 40


@pytest.mark.parametrize(
    ("source", "target", "size", "message"),
    [
        ([0], [5], [1], "target: int64 from 5 to 5; legal: 0 … 4"),
        ([-1], [0], [1], "source: int64 from -1"),
        ([0], [1], [-1], "size: int64 from -1"),
        ([0], [1], [0.5], "size: float64"),
    ],
)
def test_what_cannot_be_is_refused(source: list[int], target: list[int], size: list[float], message: str) -> None:
    with pytest.raises(LocalError, match=message):
        link_bytes(SMALL["switch"], source, target, size)
