# SPDX-License-Identifier: GPL-2.0-only
"""Theory beside schedules: every formula gives the steps and bytes counted (figures of collectives.md §3 and §7)."""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.collectives.reference import lower_bound, multicast_on_leaf_spine, ring_on_leaf_spine, traversals
from tests.support.effort import examples
from uetproto.collectives.algorithms.catalogue import ALGORITHMS, HIERARCHICAL, OPTIONS, expected, schedule, scheduled
from uetproto.collectives.costs.check import check
from uetproto.collectives.costs.formulas import Costs, bus_bandwidth, bus_factor, nccl_latency, nccl_time, nic_bytes
from uetproto.errors import LocalError

COSTS = Costs(alpha=1e-6, beta=1e-10, gamma=1e-11)
NAMES = [(op, name) for op in ALGORITHMS for name in scheduled(op)]


def test_every_algorithm_has_a_formula() -> None:
    for rows in ALGORITHMS.values():
        assert {name for name, row in rows.items() if row.make} == {name for name, row in rows.items() if row.formula}


@examples(240)
@given(pair=st.sampled_from(NAMES), size=st.integers(1, 33), data=st.data())
def test_steps_and_bytes_are_those_of_the_schedule(pair: tuple[str, str], size: int, data: st.DataObject) -> None:
    op, name = pair
    if ALGORITHMS[op][name].powers_of_two:
        size = 1 << size.bit_length() - 1
    more: dict[str, Any] = {}
    if name in HIERARCHICAL:
        more["nodes"] = data.draw(st.sampled_from([n for n in range(1, size + 1) if size % n == 0]))
        if name in OPTIONS["between"]:
            more["between"] = data.draw(st.sampled_from(["ring", "halving_doubling", "recursive_doubling"]))
        if name in OPTIONS["sockets"]:
            local = size // more["nodes"]
            more["sockets"] = data.draw(st.sampled_from([n for n in range(1, local + 1) if local % n == 0]))
        if name in OPTIONS["channels"]:
            more["channels"] = data.draw(st.integers(1, size // more["nodes"]))
    if name in OPTIONS["slices"]:
        more["slices"] = data.draw(st.integers(1, 4))
    even = size * 32 * 27 * 5 * 7 * more.get("channels", 1)  # every chunk is as large as the others
    whole = 0 if op == "barrier" else even
    made = schedule(op, name, size, whole, **more)
    found, theory = check(made), expected(op, name, size, whole, COSTS, **more)
    assert made.length == theory.steps
    assert found.elements == pytest.approx(theory.injected)
    assert max(found.sent) == pytest.approx(theory.sent)


def test_times() -> None:
    size, length = 16, 1 << 20
    a, b, g, _ = COSTS
    share = (size - 1) / size
    assert expected("all_reduce", "ring", size, length, COSTS).time == pytest.approx(
        2 * (size - 1) * a + 2 * share * length * b + share * length * g
    )
    assert expected("all_reduce", "halving_doubling", size, length, COSTS).time == pytest.approx(
        8 * a + 2 * share * length * b + share * length * g
    )
    assert expected("all_reduce", "recursive_doubling", size, length, COSTS).time == pytest.approx(
        4 * (a + length * b + length * g)
    )
    assert expected("all_gather", "ring", size, length, COSTS).time == pytest.approx(15 * (a + length / 16 * b))
    assert expected("barrier", "dissemination", size, 0, COSTS).time == pytest.approx(4 * a)


@pytest.mark.parametrize(("op", "name", "beta", "gamma"), [  # the table of §3.0 for N = 8, in units of D; n = D/8
    ("all_reduce", "naive_star", 14, 7),
    ("all_reduce", "naive_exchange", 7, 7),
    ("all_reduce", "ring", 14 / 8, 7 / 8),
    ("all_reduce", "tree", 4 * 3 - 2, 0),
    ("all_reduce", "double_tree", (4 * 3 - 2) / 2, 0),
    ("all_reduce", "recursive_doubling", 3, 3),
    ("all_reduce", "halving_doubling", 14 / 8, 7 / 8),
    ("reduce_scatter", "ring", 7 / 8, 7 / 8),
    ("reduce_scatter", "halving", 7 / 8, 7 / 8),
    ("all_gather", "ring", 7 / 8, 0),
    ("all_gather", "doubling", 7 / 8, 0),
    ("all_gather", "bruck", 7 / 8, 0),
    ("broadcast", "binomial", 3, 0),
    ("reduce", "binomial", 3, 3),
    ("scatter", "binomial", 7 / 8, 0),
    ("gather", "binomial", 7 / 8, 0),
    ("all_to_all", "pairwise", 7 / 8, 0),
    ("all_to_all", "linear", 7 / 8, 0),
    ("all_to_all", "bruck", 3 * 4 / 8, 0),
])  # fmt: skip
def test_bytes_and_reductions_take_the_time_of_the_page(op: str, name: str, beta: float, gamma: float) -> None:
    assert expected(op, name, 8, 80, Costs(0, 1)).time == pytest.approx(80 * beta)
    assert expected(op, name, 8, 80, Costs(0, 0, 1)).time == pytest.approx(80 * gamma)


def test_a_ring_of_nodes_is_as_slow_as_its_slowest_hop() -> None:
    """A chunk of a channel's share between nodes, or all chunks that a rank sends within one, a step."""
    slow, fast = Costs(10, 1), Costs(1, 0.01)
    for channels, step in ((1, 10 + 100), (2, 10 + 50), (4, 10 + 25)):
        found = expected("all_reduce", "nccl_ring", 8, 800, slow, nodes=2, inside=fast, channels=channels)
        assert found.time == pytest.approx(14 * step)
    crowded = expected("all_reduce", "nccl_ring", 8, 800, Costs(1, 0), nodes=2, inside=Costs(1, 1), channels=4)
    assert crowded.time == pytest.approx(14 * 3 * (1 + 25))  # each rank is the last of one of the four rings


@pytest.mark.parametrize(("name", "options", "wanted"), [  # M = 4, G = 2, D = 80: the last column of §3.8
    ("nccl_ring", {}, 2 * 7 / 8 * 80),
    ("nccl_ring", {"channels": 2}, 2 * 7 / 8 * 40),
    ("nccl_tree", {}, 2 * 80),
    ("nccl_tree", {"channels": 2}, 2 * 40),
    ("rab", {}, 2 * 3 / 4 * 80),
    ("hcoll", {"between": "halving_doubling"}, 2 * 3 / 4 * 80),
    ("hcoll", {"between": "recursive_doubling"}, 2 * 80),
    ("split_rail", {}, 2 * 3 / 4 * 80 / 2),
])  # fmt: skip
def test_bytes_between_nodes_by_nic(name: str, options: dict[str, Any], wanted: float) -> None:
    assert nic_bytes(name, 4, 2, 80, **options) == pytest.approx(wanted)
    assert nic_bytes(name, 1, 8, 80, **options) == 0


def test_a_pipeline_fills_a_tree_and_then_takes_the_messages_of_the_busiest_port() -> None:
    """Each further slice takes 3 messages of an inner rank of one tree, and 4 half as long of a rank in two trees."""
    for costs, messages in ((Costs(0, 1), 0), (Costs(1, 1), 1), (Costs(1, 1, gap=0), 1)):
        shared = costs.gap == 0  # messages at once share alpha
        fill = 6 if shared else 10
        single = expected("all_reduce", "tree", 8, 80, costs, slices=10).time
        assert single == pytest.approx(fill * messages + 10 * 8 + 9 * ((1 if shared else 3) * messages + 3 * 8))
        double = expected("all_reduce", "double_tree", 8, 80, costs, slices=10).time
        assert double == pytest.approx(fill * messages + 10 * 4 + 9 * ((1 if shared else 4) * messages + 4 * 4))


@given(pair=st.sampled_from(NAMES), size=st.integers(1, 70))
def test_a_step_costs_an_alpha(pair: tuple[str, str], size: int) -> None:
    """But where messages start at once: each of them costs one, or they share it."""
    found = expected(*pair, size, 0, Costs(1, 0))
    shared = expected(*pair, size, 0, Costs(1, 0, gap=0))
    assert shared.time == pytest.approx(shared.steps)
    if pair[1] in ("tree", "double_tree"):
        inner = 4 * math.log2(size) - 2 if size > 1 else 0.0  # an inner rank of a full tree has two children
        assert found.steps <= found.time <= 2 * found.steps
        assert not math.log2(size).is_integer() or found.time == pytest.approx(inner)
        return
    at_once = {
        ("all_reduce", "naive_exchange"): size - 1, ("all_to_all", "linear"): size - 1,
        ("barrier", "counter"): 2 * (size - 1), ("barrier", "knomial"): _knomial_messages(size),
    }  # fmt: skip
    assert found.time == pytest.approx(at_once.get(pair, found.steps))


def _knomial_messages(size: int) -> int:
    """Of rank 0, which is a proxy if there are extras: to three others while there are four groups, and so on."""
    rounds = [3] * int(math.log(size + 0.5, 4))
    left = size // 4 ** len(rounds)
    return sum(rounds) + left - 1 + 2 * (size > left * 4 ** len(rounds))


@pytest.mark.parametrize(("protocol", "ring", "tree"), [
    # M = 2, G = 4: base + 12 max(nvlink, post) + 2 network; base + 2 (3 nvlink + network)
    ("LL", 6.6 + 12 * 1.0 + 2 * 2.7, 6.8 + 2 * (3 * 0.6 + 5.0)),
    ("LL128", 14.0 + 12 * 1.9 + 2 * 4.0, 14.0 + 2 * (3 * 1.25 + 8.5)),
    ("Simple", 8.4 + 12 * 3.4 + 2 * 14.0, 8.4 + 2 * (3 * 4.0 + 14.0)),
])  # fmt: skip
def test_the_tuner_by_nvlink(protocol: str, ring: float, tree: float) -> None:
    assert nccl_latency("ring", 2, 4, protocol) == pytest.approx(ring)
    assert nccl_latency("tree", 2, 4, protocol) == pytest.approx(tree)


@pytest.mark.parametrize(("protocol", "ring", "tree"), [
    ("LL", 6.6 + 12 * 1.0 + 2 * 2.7, 6.8 + 2 * (3 * 1.0 + 5.0)),
    ("LL128", 14.0 + 12 * 2.5 + 2 * 4.0, 14.0 + 2 * (3 * 1.9 + 8.5)),
    ("Simple", 8.4 + 12 * 5.7 + 2 * 14.0, 8.4 + 2 * (3 * 4.0 + 14.0)),
])  # fmt: skip
def test_the_tuner_by_pcie(protocol: str, ring: float, tree: float) -> None:
    assert nccl_latency("ring", 2, 4, protocol, link="pcie") == pytest.approx(ring)
    assert nccl_latency("tree", 2, 4, protocol, link="pcie") == pytest.approx(tree)


def test_posting_takes_longer_than_a_hop_on_amd() -> None:
    """2 us there; three times as much for Simple."""
    assert nccl_latency("ring", 2, 4, "LL", post_overhead=2.0) == pytest.approx(6.6 + 12 * 2.0 + 2 * 2.7)
    assert nccl_latency("ring", 2, 4, post_overhead=2.0) == pytest.approx(8.4 + 12 * 6.0 + 2 * 14.0)


@given(size=st.integers(2, 1024), length=st.integers(1, 1 << 30))
def test_no_algorithm_beats_the_lower_bound(size: int, length: int) -> None:
    for op in ("all_reduce", "all_gather", "broadcast"):
        bound = lower_bound(op, size, length, COSTS)
        for name in set(scheduled(op)) - HIERARCHICAL:
            assert expected(op, name, size, length, COSTS).time >= bound * (1 - 1e-9)


def test_latency_is_linear_for_the_ring_and_logarithmic_for_trees() -> None:
    def latency(name: str, size: int) -> float:
        return expected("all_reduce", name, size, 0, COSTS).time / COSTS.alpha

    assert [round(latency("ring", size)) for size in (2, 16, 128, 1024)] == [2, 30, 254, 2046]
    assert [round(latency("double_tree", size)) for size in (2, 16, 128, 1024)] == [2, 14, 26, 38]


def test_the_golden_tuner() -> None:
    assert nccl_latency("ring", 16, 8) == pytest.approx(1190.0)
    assert nccl_latency("tree", 16, 8) == pytest.approx(176.4)
    assert nccl_time("ring", 16, 8, 1e6, 1000.0) == pytest.approx(1190.0 + 1e6 / (1000.0 * 128 / 254))
    assert nccl_time("tree", 16, 8, 1e6, 1000.0) == pytest.approx(176.4 + 1e6 / 460.0)


@pytest.mark.parametrize(
    ("size", "hosts", "ring", "multicast", "injected", "egress"),
    [
        (4, 4, 24, 16, 12, 1.000),
        (8, 4, 140, 80, 56, 1.167),
        (16, 4, 600, 320, 240, 1.184),
        (64, 16, 8568, 4352, 4032, 1.058),
        (188, 16, 74800, 37600, 35156, 1.060),
        (188, 18, 74426, 37412, 35156, 1.055),
        (1024, 16, 2226048, 1114112, 1047552, 1.059),
    ],
)
def test_the_golden_traffic(size: int, hosts: int, ring: int, multicast: int, injected: int, egress: float) -> None:
    around, copied = ring_on_leaf_spine(size, hosts), multicast_on_leaf_spine(size, hosts)
    assert around == (ring, injected)
    assert copied == (multicast, size)
    assert around.egress / copied.egress == pytest.approx(egress, abs=5e-4)
    assert math.isclose(ring / multicast, 2 * (size - 1) / size)
    if size < 1024:
        assert traversals(schedule("all_gather", "ring", size, size), [rank // hosts for rank in range(size)]) == ring


def test_bandwidths() -> None:
    assert bus_factor("all_reduce", 4) == 1.5
    assert bus_factor("all_gather", 4) == bus_factor("reduce_scatter", 4) == bus_factor("all_to_all", 4) == 0.75
    assert bus_factor("broadcast", 4) == bus_factor("reduce", 4) == 1
    assert bus_bandwidth("all_reduce", 4, 100, 2) == 75


def test_what_has_no_formula_is_refused() -> None:
    with pytest.raises(LocalError, match=r"algorithm: no formula for all_reduce by 'star'; there are naive_star"):
        expected("all_reduce", "star", 4, 4, COSTS)


def test_times_over_nodes() -> None:  # §3.8: i inside a node, x between nodes
    nodes, local, length, slices = 8, 4, 1 << 20, 16
    a, b, _, _ = COSTS
    inside = Costs(1e-7, 1e-11, 0.0)
    q = length / slices
    chain_tree = expected("all_reduce", "nccl_tree", 32, length, COSTS, nodes=nodes, inside=inside, slices=slices)
    assert chain_tree.time == pytest.approx(
        6 * (inside.alpha + q * inside.beta) + 10 * (a + q / 2 * b) + (slices - 1) * (4 * a + 2 * q * b)
    )
    rail = expected("all_reduce", "ring", nodes, length / local, COSTS).time
    split = expected("all_reduce", "split_rail", 32, length, COSTS, nodes=nodes, inside=inside)
    assert split.time == pytest.approx(6 * (inside.alpha + length / local * inside.beta) + rail)
    leaders = expected("all_reduce", "rab", 32, length, COSTS, nodes=nodes, inside=inside)
    within = 4 * (inside.alpha + length * inside.beta)
    assert leaders.time == pytest.approx(within + expected("all_reduce", "ring", nodes, length, COSTS).time)
