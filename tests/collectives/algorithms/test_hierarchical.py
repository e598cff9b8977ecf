# SPDX-License-Identifier: GPL-2.0-only
"""all_reduce over nodes (collectives.md §3.8, invariant 38)."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.collectives.executor import World
from tests.support.collectives.reference import rail_bytes
from tests.support.effort import examples
from uetproto.collectives.algorithms.catalogue import schedule
from uetproto.collectives.algorithms.pattern import steps_for as lg
from uetproto.collectives.algorithms.schedule import Schedule
from uetproto.collectives.costs.check import check

NODES = st.integers(1, 6)
LOCAL = st.integers(1, 6)


def between_nodes(made: Schedule, local: int) -> np.ndarray:
    """Elements that each rank sends to other nodes, ranks being dealt in order."""
    columns = made.arrays()
    away = columns["src"] // local != columns["dst"] // local
    return np.bincount(columns["src"][away], columns["count"][away], made.size)


@given(nodes=NODES, local=LOCAL, share=st.integers(0, 3))
def test_every_rail_carries_its_part(nodes: int, local: int, share: int) -> None:
    count = nodes * local * share
    made = schedule("all_reduce", "split_rail", nodes * local, count, nodes=nodes)
    wanted = rail_bytes(nodes, local, count)
    assert between_nodes(made, local).tolist() == pytest.approx([wanted] * (nodes * local))
    assert made.length == 2 * (local - 1) + 2 * (nodes - 1)
    columns = made.arrays()
    away = columns["src"] // local != columns["dst"] // local
    assert np.all((columns["src"] % local == columns["dst"] % local)[away])  # rings a rail


@given(nodes=NODES, local=LOCAL, share=st.integers(0, 3))
def test_only_leaders_talk_in_rab(nodes: int, local: int, share: int) -> None:
    count = nodes * share
    made = schedule("all_reduce", "rab", nodes * local, count, nodes=nodes)
    sent = between_nodes(made, local)
    assert sent.sum() == 2 * (nodes - 1) * count
    assert sent.tolist() == [2 * (nodes - 1) * share * (rank % local == 0) for rank in range(nodes * local)]
    assert made.length == 2 * lg(local) + 2 * (nodes - 1)


@given(nodes=NODES, local=LOCAL)
def test_nccl_tree(nodes: int, local: int) -> None:
    made = schedule("all_reduce", "nccl_tree", nodes * local, 8, nodes=nodes)
    assert made.length == 2 * (local - 1 + lg(nodes))
    sent = between_nodes(made, local)
    assert not sent[np.arange(nodes * local) % local != 0].any()
    assert sent.max() <= 2 * 8


@given(nodes=st.integers(2, 6), local=LOCAL, data=st.data())
def test_nccl_tree_has_a_pair_of_trees_a_rail(nodes: int, local: int, data: st.DataObject) -> None:
    """§4.2: with R channels R pairs, whose heads have the local indices 0 .. R-1; each carries its share."""
    channels = data.draw(st.integers(1, local))
    made = schedule("all_reduce", "nccl_tree", nodes * local, 24 * channels, nodes=nodes, channels=channels)
    columns = made.arrays()
    away = columns["src"] // local != columns["dst"] // local
    src, dst = (columns[name][away] % local for name in ("src", "dst"))
    assert np.array_equal(src, dst)
    by_rail = np.bincount(src, columns["count"][away], local)
    assert by_rail.tolist() == [2 * (nodes - 1) * 24] * channels + [0] * (local - channels)


@given(nodes=st.integers(2, 6), local=LOCAL, data=st.data())
def test_nccl_ring_leaves_a_node_at_its_last_rank(nodes: int, local: int, data: st.DataObject) -> None:
    channels = data.draw(st.integers(1, local))
    made = schedule("all_reduce", "nccl_ring", nodes * local, 24, nodes=nodes, channels=channels)
    assert made.length == 2 * (nodes * local - 1)
    columns = made.arrays()
    away = columns["src"] // local != columns["dst"] // local
    src, dst = (columns[name][away] % local for name in ("src", "dst"))
    ways = set(zip(src.tolist(), dst.tolist(), strict=True))
    assert ways == {((channel - 1) % local, channel) for channel in range(channels)}


@given(nodes=NODES, sockets=st.integers(1, 3), ranks=st.integers(1, 3))
def test_hcoll_has_three_levels(nodes: int, sockets: int, ranks: int) -> None:
    local = sockets * ranks
    made = schedule("all_reduce", "hcoll", nodes * local, 8 * nodes, nodes=nodes, sockets=sockets)
    levels = 2 * (sockets > 1) + 2 * (ranks > 1)
    assert made.length == levels + 2 * (nodes - 1)
    sent = between_nodes(made, local)
    assert not sent[np.arange(nodes * local) % local != 0].any()


PHASES = {"rab": lambda local: lg(local), "hcoll": lambda local: int(local > 1), "nccl_tree": lambda local: local - 1}


@examples(60)
@given(name=st.sampled_from(sorted(PHASES)), nodes=st.integers(2, 5), local=LOCAL, seed=st.integers(0, 2**32))
def test_a_leader_holds_its_nodes_reduction_when_it_turns_to_others(
    name: str, nodes: int, local: int, seed: int
) -> None:
    between: dict[str, Any] = {} if name == "nccl_tree" else {"between": "recursive_doubling"}
    made = schedule("all_reduce", name, nodes * local, 2, nodes=nodes, **between)
    union = np.frompyfunc(lambda left, right: left | right, 2, 1)
    data = [np.array([frozenset([rank])] * 2, dtype=object) for rank in range(made.size)]

    def watch(step: int, src: int, dst: int, payload: np.ndarray) -> None:
        if src // local != dst // local:
            node = set(range(src // local * local, (src // local + 1) * local))
            assert step >= PHASES[name](local)
            assert node <= payload[0], "a node's contribution is not whole"
            assert all(
                set(range(rank // local * local, (rank // local + 1) * local)) <= payload[0] for rank in payload[0]
            )

    results = World(made, data, union, seed, watch).run()
    assert all(element == set(range(made.size)) for result in results for element in result)


@pytest.mark.parametrize("between", ["ring", "halving_doubling", "recursive_doubling", "double_tree"])
@pytest.mark.parametrize("name", ["rab", "split_rail", "hcoll"])
def test_any_all_reduce_between_nodes(name: str, between: str) -> None:
    check(schedule("all_reduce", name, 24, 100, nodes=6, between=between))
