# SPDX-License-Identifier: GPL-2.0-only
"""The tree builder over random fat trees (sharp.md §4.2, §6 item 27)."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.effort import examples
from tests.support.sharp.fabric import SEVEN, A, B, S
from uetproto.engine.sharp.manager.trees import AggregationTree, FabricGraph, FabricSwitch, TreeChild, build_trees
from uetproto.errors import LocalError


@st.composite
def fat_trees(draw: st.DrawFn) -> FabricGraph:
    """Pods of leaves and spines, and cores; some switches do not aggregate."""
    pods, leaves, spines = (draw(st.integers(1, 3)) for _ in range(3))
    cores = draw(st.integers(1, 3)) if pods > 1 else 0
    cables: dict[int, list[int]] = {}

    def join(a: int, b: int) -> None:
        cables.setdefault(a, []).append(b)
        cables.setdefault(b, []).append(a)

    hosts: dict[int, list[int]] = {}
    for pod in range(pods):
        for leaf in range(leaves):
            guid = 1000 + pod * 10 + leaf
            hosts[guid] = [guid * 100 + host for host in range(draw(st.integers(1, 3)))]
            for spine in range(spines):
                join(guid, 2000 + pod * 10 + spine)
        for spine in range(spines):
            for core in range(cores):
                join(2000 + pod * 10 + spine, 3000 + core)
    silent = draw(st.sets(st.sampled_from(sorted(cables)), max_size=2))
    return FabricGraph([
        FabricSwitch(
            guid=guid, ports=dict(enumerate(others, 10)), hosts=dict(enumerate(hosts.get(guid, []))),
            has_an=guid not in silent,
        )
        for guid, others in cables.items()
    ])  # fmt: skip


def legal(tree: AggregationTree, radix: int) -> None:
    assert [guid for guid, node in tree.nodes.items() if node.parent is None] == [tree.root]
    below = [child.guid for node in tree.nodes.values() for child in node.children if not child.is_host]
    assert sorted([*below, tree.root]) == sorted(tree.nodes)  # each has one parent
    for guid, node in tree.nodes.items():
        assert len(node.children) <= radix
        assert tree.path(guid)[-1] == tree.root
        assert len(set(node.children)) == len(node.children)
        for child in node.children:
            assert child.is_host or tree.nodes[child.guid].parent == guid


@examples(60)
@given(fabric=fat_trees(), n=st.integers(1, 4), radix=st.integers(2, 6))
def test_every_tree_is_a_tree(fabric: FabricGraph, n: int, radix: int) -> None:
    trees = build_trees(fabric, n, radix)
    assert trees == build_trees(fabric, n, radix)
    for number, tree in enumerate(trees):
        assert (tree.tree_id, tree.sat_id) == (number, number + n)
        legal(tree, radix)
        reached = {child.guid for node in tree.nodes.values() for child in node.children if child.is_host}
        assert tree.partial == (reached != fabric.hosts)
        for switch in fabric.switches.values():
            assert switch.has_an or switch.guid not in tree.nodes


def test_the_tree_of_the_worked_example() -> None:
    [tree] = build_trees(SEVEN, 1, 2)
    assert tree.root == S
    assert tree.nodes[S].children == (TreeChild(A, False), TreeChild(B, False))
    assert tree.nodes[A].children == (TreeChild(100, True), TreeChild(101, True))
    assert (tree.sat_id, tree.partial) == (1, False)
    part = tree.part_for([100, 101])
    assert part is not None
    assert part == (A, (A,))
    assert tree.part_for([100, 999]) is None


def spines(count: int, leaves: int = 2) -> FabricGraph:
    """Leaf and spine, one host a leaf."""
    low = [
        FabricSwitch(guid=1 + i, ports={s: 100 + s for s in range(count)}, hosts={99: 1000 + i}) for i in range(leaves)
    ]
    high = [FabricSwitch(guid=100 + s, ports={i: 1 + i for i in range(leaves)}, hosts={}) for s in range(count)]
    return FabricGraph([*low, *high])


def test_roots_take_turns() -> None:
    # The second tree pays for a root that has a tree, the lowest GUID wins ties (§4.1).
    assert [tree.root for tree in build_trees(spines(3), 5, 16)] == [100, 101, 102, 100, 101]


def test_hosts_come_first_then_ports() -> None:
    leaf = FabricSwitch(guid=1, ports={5: 2}, hosts={7: 11, 3: 12})
    graph = FabricGraph([leaf, FabricSwitch(guid=2, ports={1: 1}, hosts={})])
    assert build_trees(graph, 1, 16)[0].nodes[1].children == (TreeChild(12, True), TreeChild(11, True))


def test_what_does_not_fit_leaves_a_partial_tree() -> None:
    [tree] = build_trees(spines(1, leaves=4), 1, 3)
    assert tree.partial
    assert len(tree.nodes[tree.root].children) == 3


def test_cables_have_two_ends() -> None:
    with pytest.raises(LocalError, match="both ends"):
        FabricGraph([FabricSwitch(guid=1, ports={0: 2}, hosts={}), FabricSwitch(guid=2, ports={}, hosts={})])


def test_a_tree_reaches_the_ports_of_one_plane() -> None:
    """Planes take turns; a node has as many children as a plane has ports, not as all ports together (§4.1)."""
    planes = {guid: guid // 100 - 1 for guid in (100, 101, 200, 201, 202)}
    fabric = FabricGraph([
        FabricSwitch(guid=A, ports={9: S}, hosts={1: 100, 2: 200, 3: 201}, planes=planes),
        FabricSwitch(guid=B, ports={9: S}, hosts={1: 101, 2: 202}, planes=planes),
        FabricSwitch(guid=S, ports={1: A, 2: B}, hosts={}, planes=planes),
    ])  # fmt: skip
    trees = build_trees(fabric, 4, 2)
    reached = [{child.guid for node in tree.nodes.values() for child in node.children if child.is_host}
               for tree in trees]  # fmt: skip
    assert reached == [{100, 101}, {200, 201, 202}] * 2
    assert [tree.tree_id for tree in trees] == [0, 1, 2, 3]
    assert not any(tree.partial for tree in trees)
    together = FabricGraph([replace(switch, planes={}) for switch in fabric.switches.values()])
    assert all(tree.partial for tree in build_trees(together, 4, 2))
    assert build_trees(FabricGraph([FabricSwitch(guid=A, ports={}, hosts={})]), 2, 2) == []
