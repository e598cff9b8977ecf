# SPDX-License-Identifier: GPL-2.0-only
"""NCCL's rings and trees on rails: a ring a rail, and nothing on the spines (collectives.md §4.2, invariant 41)."""

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.effort import examples
from uetproto.collectives.algorithms.catalogue import schedule
from uetproto.collectives.algorithms.schedule import Schedule
from uetproto.collectives.costs.check import check
from uetproto.collectives.costs.link_bytes import LinkBytes, link_bytes
from uetproto.collectives.topology.graph import Topology
from uetproto.collectives.topology.kinds import topology


def on_rails(made: Schedule, shape: Topology) -> LinkBytes:
    columns = made.arrays()
    return link_bytes(shape, columns["src"], columns["dst"], columns["count"], relay=True)


def ring_of(made: Schedule, start: int, end: int) -> list[int]:
    """The ranks in the order in which the chunks between two elements go round, from the one of the first message."""
    columns = made.arrays()
    of_channel = (columns["start"] >= start) & (columns["start"] < end)
    after = dict(zip(columns["src"][of_channel].tolist(), columns["dst"][of_channel].tolist(), strict=True))
    ring = [min(after)]
    while after[ring[-1]] != ring[0]:
        ring.append(after[ring[-1]])
    return ring


def test_the_rings_of_three_nodes_by_four() -> None:
    """By hand: node after node, each from GPU r on; the last GPU of a node is the one before r."""
    made = schedule("all_reduce", "nccl_ring", 12, 4 * 12, nodes=3, channels=4)
    wanted = [
        [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11],
        [1, 2, 3, 0, 5, 6, 7, 4, 9, 10, 11, 8],
        [2, 3, 0, 1, 6, 7, 4, 5, 10, 11, 8, 9],
        [3, 0, 1, 2, 7, 4, 5, 6, 11, 8, 9, 10],
    ]
    for rail, order in enumerate(wanted):
        ring = ring_of(made, rail * 12, rail * 12 + 12)
        at = ring.index(order[0])
        assert ring[at:] + ring[:at] == order
        assert topology("rails", 12, gpus_per_node=4).rail_ring(rail) == tuple(order)


@examples(60)
@given(nodes=st.integers(2, 6), rails=st.integers(1, 6), each=st.integers(1, 3))
def test_each_rail_carries_its_share_and_the_spines_nothing(nodes: int, rails: int, each: int) -> None:
    size, share = nodes * rails, nodes * rails * each
    made = schedule("all_reduce", "nccl_ring", size, rails * share, nodes=nodes, channels=rails)
    check(made)
    shape = topology("rails", size, gpus_per_node=rails)
    found = on_rails(made, shape)
    once = 2 * (size - 1) * share // size  # what a ring takes over every hop of it: 2(N-1)/N of D/R
    assert found.tx.tolist() == found.rx.tolist() == [once] * size
    by_rail = {(f"leaf{shape.local(rank)}", f"rank{rank}"): once for rank in range(size)}
    links = {tuple(name.split(" > ")): amount for name, amount in found.table()}
    assert links == by_rail | {(rank, leaf): amount for (leaf, rank), amount in by_rail.items()}
    # A hop within the node more for each message that leaves it: from the last GPU to GPU r, whose NIC it takes.
    within = 2 * (size - 1) * rails * share - nodes * rails * once
    extra = nodes * rails * once if rails > 1 else 0
    assert found.within.sum() == within + extra


def test_a_message_leaves_through_the_nic_of_its_rail() -> None:
    shape = topology("rails", 12, gpus_per_node=4)
    columns = schedule("all_reduce", "nccl_ring", 12, 48, nodes=3, channels=4).arrays()
    for source, target, start in {*zip(*(columns[name].tolist() for name in ("src", "dst", "start")), strict=True)}:
        rail = start // 12
        if not shape.together(source, target):
            assert shape.local(target) == rail  # it enters at GPU r
            assert shape.local(source) == (rail - 1) % 4  # from the last GPU of the node
            over = shape.relay(source, target)
            assert (shape.node(over), shape.local(over)) == (shape.node(source), rail)


@pytest.mark.parametrize("name", ["nccl_tree", "split_rail"])
def test_trees_and_split_rails_stay_on_theirs(name: str) -> None:
    options: dict[str, Any] = {"channels": 4, "slices": 3} if name == "nccl_tree" else {}
    found = on_rails(schedule("all_reduce", name, 12, 480, nodes=3, **options), topology("rails", 12, gpus_per_node=4))
    assert not [link for link, _ in found.table() if "spine" in link]
    leaves = [sum(amount for link, amount in found.table() if link.startswith(f"leaf{rail} ")) for rail in range(4)]
    assert leaves == [2 * (3 - 1) * 480 / 4] * 4  # 2(M-1) times its quarter


@given(nodes=st.integers(2, 9), rails=st.integers(1, 4))
def test_twice_as_many_roots_as_rails(nodes: int, rails: int) -> None:
    """A pair of trees a rail (§4.2): the heads at which a reduction ends are all different."""
    made = schedule("all_reduce", "nccl_tree", nodes * rails, 8 * rails, nodes=nodes, channels=rails)
    columns = made.arrays()
    away = columns["src"] // rails != columns["dst"] // rails
    up = away & (columns["fold"] != 0)
    halves = columns["start"] // 4  # two a channel
    roots = set()
    for half in range(2 * rails):
        of_tree = up & (halves == half)
        (root,) = set(columns["dst"][of_tree].tolist()) - set(columns["src"][of_tree].tolist())
        roots.add(root)
    assert len(roots) == 2 * rails
    assert sorted(root % rails for root in roots) == sorted([*range(rails)] * 2)


def test_slices_are_one_pipeline_through_chains_and_trees() -> None:
    """Of a slice each step is one after that of the slice before it, and no step is lost between chain and tree."""
    made = schedule("all_reduce", "nccl_tree", 12, 12 * 8, nodes=4, slices=4)
    assert made.length == 2 * (3 - 1) + 2 * 2 + 4 - 1
    columns = made.arrays()
    piece = columns["start"] % 48 // 12
    moves = [
        sorted(zip(*(columns[name][piece == k].tolist() for name in ("step", "src", "dst")), strict=True))
        for k in range(4)
    ]
    for before, after in itertools.pairwise(moves):
        assert [(step + 1, src, dst) for step, src, dst in before] == after
    assert np.bincount([step for step, *_ in moves[0]], minlength=8).min() > 0
