# SPDX-License-Identifier: GPL-2.0-only
"""Pure topologies: what fits, hops, routes, cuts, rails and trees (collectives.md §4.2)."""

from itertools import pairwise, permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.collectives.topology_graph import (
    SMALL,
    bisection,
    cut,
    route_count,
)
from tests.support.effort import examples
from uetproto import LocalError
from uetproto.collectives.topology.graph import Topology
from uetproto.collectives.topology.kinds import PARAMETERS, topology

each = pytest.mark.parametrize("shape", SMALL.values(), ids=SMALL)


# Sizes ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("k", "levels", "hosts"), [(4, 2, 8), (8, 2, 32), (4, 3, 16), (6, 3, 54), (8, 3, 128)])
def test_a_fat_tree_has_k_ports_a_switch(k: int, levels: int, hosts: int) -> None:
    tree = topology("fat-tree", hosts, k=k, levels=levels)
    assert {len(tree.leaving[vertex]) for vertex in range(hosts, hosts + len(tree.switches))} == {k}
    with pytest.raises(LocalError, match=f"{hosts + 1} ranks do not fit this fat-tree; legal: {hosts} ranks, or k"):
        topology("fat-tree", hosts + 1, k=k, levels=levels)


def test_by_default_there_is_room() -> None:
    assert [len(topology("fat-tree", ranks).switches) for ranks in (2, 3, 16, 17)] == [5, 20, 20, 45]
    shape = topology("leaf-spine", 9)
    assert [shape.name(shape.neighbour(rank)) for rank in (0, 3, 4, 8)] == ["leaf0", "leaf0", "leaf1", "leaf2"]
    assert shape.switches[-1] == "spine3"


@pytest.mark.parametrize(
    ("kind", "ranks", "parameters", "message"),
    [
        ("ring", 4, {}, "topology: 'ring' is not legal; legal: pair, switch, leaf-spine, fat-tree, rails"),
        ("pair", 3, {}, "3 ranks do not fit a pair; legal: 2 ranks"),
        ("pair", 2, {"k": 4}, "k: does not go with topology pair; legal: no parameter"),
        ("rails", 8, {"k": 4}, "k: does not go with topology rails; legal: spines, gpus_per_node"),
        ("fat-tree", 8, {"k": 5}, "k: 5 .*an even number"),
        ("fat-tree", 8, {"levels": 4}, "levels: 4; legal: 2, 3"),
        ("fat-tree", 99, {"k": 6}, "99 ranks do not fit this fat-tree; legal: 54 ranks, or k 8 and more"),
        ("leaf-spine", 9, {"hosts_per_leaf": 4, "leaves": 2},
         "9 ranks do not fit this leaf-spine; legal: 8 ranks, or leaves 3 and more, or hosts_per_leaf 5 and more"),
        ("leaf-spine", 9, {"spines": 0}, "spines: 0; legal: a whole number, 1 and more"),
        ("leaf-spine", 9, {"leaves": True}, "leaves: True; legal"),
        ("leaf-spine", 9, {"leaves": 10**5, "spines": 10**5}, "10000000000 cables .*legal: at most"),
        ("fat-tree", 9, {"k": 10**9}, "cables between switches"),
        ("switch", 0, {}, "ranks: 0; legal"),
        ("switch", 2, {"places": (0, 0)}, r"places: \[0, 0\]; legal: 2 different slots, 0 … 1"),
        ("fat-tree", 2, {"k": 4, "places": (0, 16)}, r"legal: 2 different slots, 0 … 15"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused(kind: str, ranks: int, parameters: dict[str, object], message: str) -> None:
    with pytest.raises(LocalError, match=message):
        topology(kind, ranks, **parameters)  # type: ignore[arg-type]


def test_a_graph_of_ones_own_must_join_all() -> None:
    with pytest.raises(LocalError, match="exactly one for each of 3 ranks"):
        Topology("own", 3, ("s",), ((0, 3), (1, 3)))
    with pytest.raises(LocalError, match="not all ranks are joined"):
        Topology("own", 4, ("s", "t"), ((0, 4), (1, 4), (2, 5), (3, 5)))
    with pytest.raises(LocalError, match="not all ranks are joined"):
        Topology("own", 4, (), ((0, 1), (2, 3)))
    with pytest.raises(LocalError, match="rank: 2; legal: 0 … 1"):
        SMALL["pair"].hops(0, 2)


# Routes ---------------------------------------------------------------------------------------------------------------


def test_hops() -> None:
    """2 links on one leaf, 4 in one pod, 6 over a core (§4.2)."""
    tree = SMALL["fat-tree of 3"]
    assert [tree.hops(0, rank) for rank in (0, 1, 2, 3, 4, 15)] == [0, 2, 4, 4, 6, 6]
    assert [SMALL["fat-tree of 2"].hops(0, rank) for rank in (1, 2, 7)] == [2, 4, 4]
    assert (SMALL["pair"].hops(0, 1), SMALL["switch"].hops(0, 4)) == (1, 2)
    assert [route_count(tree, 0, rank) for rank in (1, 2, 15)] == [1, 2, 4]


@each
def test_routes_are_shortest_whole_and_the_same_both_ways(shape: Topology) -> None:
    for a, b in permutations(range(shape.size), 2):
        routes = list(shape.routes(a, b))
        assert len(routes) == len(set(routes)) == route_count(shape, a, b) > 0
        for route in routes:
            links = [shape.links[link] for link in route]
            assert (links[0].source, links[-1].target, len(links)) == (a, b, shape.hops(a, b))
            assert all(here.target == there.source >= shape.size for here, there in pairwise(links))
        assert {tuple(link ^ 1 for link in reversed(route)) for route in routes} == set(shape.routes(b, a))


def test_no_shorter_way_exists() -> None:
    """Distances from scratch, by relaxing every link often enough."""
    for shape in SMALL.values():
        for a in range(shape.size):
            far = {a: 0}
            for _ in range(len(shape.switches) + 2):
                for source, target in shape.links:
                    if source in far and far[source] + 1 < far.get(target, 99):
                        far[target] = far[source] + 1
            assert [far[b] for b in range(shape.size)] == [shape.hops(a, b) for b in range(shape.size)]


@pytest.mark.parametrize(
    ("shape", "cables"),
    [
        (topology("fat-tree", 16, k=4), 8),  # all of one half at full rate
        (topology("fat-tree", 128, k=8), 64),
        (topology("fat-tree", 32, k=8, levels=2), 16),
        (topology("leaf-spine", 16, hosts_per_leaf=4, spines=2), 4),  # oversubscribed, 2 : 1
        (topology("leaf-spine", 16, hosts_per_leaf=4), 8),
        (topology("switch", 9), 4),
        (topology("pair", 2), 1),
    ],
)
def test_bisection(shape: Topology, cables: int) -> None:
    assert bisection(shape) == cables


@examples(150)
@given(st.data())
def test_a_cut_is_the_least_of_all(data: st.DataObject) -> None:
    """Of all ways to put the switches on one of the two sides."""
    ranks, switches = 8, data.draw(st.integers(1, 6))
    at = st.integers(ranks, ranks + switches - 1)
    hosts = [(rank, data.draw(at)) for rank in range(ranks)]
    trunks = data.draw(st.lists(st.tuples(at, at).filter(lambda ends: ends[0] != ends[1]), max_size=12)) if (
        switches > 1) else []  # fmt: skip
    line = [(ranks + number, ranks + number + 1) for number in range(switches - 1)]  # so that all are joined
    shape = Topology("own", ranks, tuple("abcdef"[:switches]), (*hosts, *trunks, *line))
    side = frozenset(data.draw(st.sets(st.integers(0, ranks - 1))))
    least = min(
        sum((a in here) is not (b in here) for a, b in shape.cables)
        for chosen in range(1 << switches)
        for here in [side | {ranks + number for number in range(switches) if chosen >> number & 1}]
    )
    assert cut(shape, side) == least


# Rails ----------------------------------------------------------------------------------------------------------------


def test_one_rail_is_one_switch_hop() -> None:
    """NIC r of every node is at leaf r (§4.2, invariant 41)."""
    shape = topology("rails", 32, gpus_per_node=8)
    assert shape.nodes == 4
    for a, b in permutations(range(32), 2):
        if not shape.together(a, b):
            same = a % 8 == b % 8
            assert shape.hops(a, b) == (2 if same else 4)
            over = shape.relay(a, b)
            assert (shape.node(over), shape.local(over)) == (a // 8, b % 8)
            assert (over == a) is same
            assert shape.hops(over, b) == 2
        else:
            assert shape.relay(a, b) == a


def test_by_default_a_rail_has_a_spine_a_node() -> None:
    """So all of a leaf can send over the spines at once."""
    switches = topology("rails", 24, gpus_per_node=8).switches
    assert switches == (*(f"leaf{rail}" for rail in range(8)), *(f"spine{node}" for node in range(3)))


def test_the_ring_of_a_rail_leaves_by_its_own_nic() -> None:
    shape = topology("rails", 12, gpus_per_node=4)
    for rail in range(4):
        ring = shape.rail_ring(rail)
        assert sorted(ring) == list(range(12))
        for here, there in pairwise((*ring, ring[0])):
            if not shape.together(here, there):
                assert shape.local(there) == rail  # enters at GPU `rail` …
                assert shape.local(shape.relay(here, there)) == rail  # … and left by the NIC of that rail
    assert shape.rail_ring(1) == (1, 2, 3, 0, 5, 6, 7, 4, 9, 10, 11, 8)
    with pytest.raises(LocalError, match="rail: 4; legal: 0 … 3"):
        shape.rail_ring(4)


# Trees ----------------------------------------------------------------------------------------------------------------


@each
def test_a_tree_reaches_all_by_shortest_ways_and_none_twice(shape: Topology) -> None:
    for source in range(shape.size):
        links = [shape.links[link] for link in shape.tree(source)]
        depth = {source: 0}
        waiting = list(links)
        while waiting:
            ready = [link for link in waiting if link.source in depth]
            assert ready, "a branch that hangs in the air"
            for link in ready:
                assert link.target not in depth, "a loop, or a second copy"
                depth[link.target] = depth[link.source] + 1
                waiting.remove(link)
        assert all(depth[rank] == shape.hops(source, rank) for rank in range(shape.size))
        ends = {link.target for link in links} - {link.source for link in links}
        assert all(end < shape.size for end in ends), "no branch ends at a switch"


def test_trees_of_a_leaf_spine() -> None:
    """N + L links with L leaves, N with one (§3.10.7)."""
    assert [len(topology("leaf-spine", n, hosts_per_leaf=h).tree(3)) for n, h in ((4, 4), (8, 4), (188, 16))] == [
        4, 10, 200,
    ]  # fmt: skip


def test_trees_of_different_sources_use_different_spines() -> None:
    shape = topology("leaf-spine", 16, hosts_per_leaf=4, spines=4)
    used = {shape.name(shape.links[link].source) for rank in range(4) for link in shape.tree(rank)}
    assert {f"spine{number}" for number in range(4)} <= used


@examples(30)
@given(st.data())
def test_any_size(data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from([kind for kind in PARAMETERS if kind != "pair"]))
    ranks = data.draw(st.integers(1, 64))
    gpus = data.draw(st.integers(1, 8))
    shape = topology(kind, ranks, gpus_per_node=gpus)
    a, b = (data.draw(st.integers(0, ranks - 1)) for _ in range(2))
    assert shape.hops(a, b) == shape.hops(b, a) <= 6
    assert route_count(shape, a, b) == route_count(shape, b, a)
    assert shape.nodes == -(-ranks // gpus)
    assert len(shape.tree(a)) >= ranks - 1
