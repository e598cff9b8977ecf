# SPDX-License-Identifier: GPL-2.0-only
"""What theory promises of switches, and how ring, tree and SHARP are chosen between (sharp.md §4.4)."""

import pytest

from tests.support.collectives.reference import multicast_on_leaf_spine, ring_on_leaf_spine, sharp_levels
from uetproto.collectives.algorithms.catalogue import ALGORITHMS, buffers
from uetproto.collectives.algorithms.schedule import Counts
from uetproto.collectives.costs.choice import SharpOffer, choose_all_reduce
from uetproto.collectives.costs.formulas import Costs
from uetproto.collectives.costs.in_network import (
    FORMULAS,
    InNetworkCase,
    MulticastCosts,
    SharpCosts,
    llt_time,
    multicast_traversals,
    sat_time,
    sharp_time,
    sharp_traversals,
)

SHARP = SharpCosts(levels=2, endpoint=1e-6, hop=1e-6, reduce=5e-7, rate=50e9, user_data=128, osts=16, lock=5e-6)


def test_every_algorithm_of_the_network_has_a_formula() -> None:
    assert {op: {name for name, row in rows.items() if not row.make} for op, rows in ALGORITHMS.items()} == {
        op: set(FORMULAS.get(op, {})) for op in ALGORITHMS
    }


@pytest.mark.parametrize(
    ("hosts", "ring", "ratio", "steps", "tree", "hops"),
    [
        (4,    1.5,     1.50, 6,    4,  2),
        (8,    1.75,    1.75, 14,   6,  2),
        (64,   1.96875, 1.97, 126,  12, 4),
        (1024, 1.99805, 2.00, 2046, 20, 4),
    ],
)  # fmt: skip
def test_the_table_of_the_page(hosts: int, ring: float, ratio: float, steps: int, tree: int, hops: int) -> None:
    levels = sharp_levels(hosts, 32)
    found = FORMULAS["all_reduce"]["sharp"](
        InNetworkCase(size=hosts, length=1 << 20, sharp=SHARP._replace(levels=levels))
    )
    assert found.steps == hops == 2 * levels
    assert found.sent == 1 << 20
    assert 2 * (hosts - 1) / hosts / (found.sent / (1 << 20)) == pytest.approx(ring, abs=1e-5)
    assert ring == pytest.approx(ratio, abs=5e-3)
    assert (2 * (hosts - 1), 2 * (hosts - 1).bit_length()) == (steps, tree)


def test_times() -> None:
    """By hand: 2·1 + 2·(2·1 + 0.5) = 7 µs up and down."""
    assert SHARP.latency == pytest.approx(7e-6)
    one = 7e-6 + 2 * 100 / 50e9
    assert llt_time(SHARP, 100) == pytest.approx(one)
    full = 7e-6 + 2 * 128 / 50e9
    assert llt_time(SHARP, 1280) == pytest.approx(full + 9 * full / 16)  # operations in flight are the limit
    wide = SHARP._replace(osts=1 << 20)
    assert llt_time(wide, 1280) == pytest.approx(full + 9 * 160 / 50e9)  # and here the cable is
    assert llt_time(SHARP, 100, times=4) == pytest.approx(one + 3 * one / 16, rel=0.1)
    assert sat_time(SHARP, 50_000) == pytest.approx(5e-6 + 7e-6 + 1e-6)
    assert sharp_time(SHARP, 8095, 8096) == llt_time(SHARP, 8095)
    assert sharp_time(SHARP, 8096, 8096) == sat_time(SHARP, 8096)
    assert sharp_time(SHARP, 1 << 20, None) == llt_time(SHARP, 1 << 20)


def test_streams_on_several_trees() -> None:
    """A part has a threshold's bytes at least; trees that share a cable share its rate."""
    two = SHARP._replace(trees=2, lanes=2)
    fixed = SHARP.lock + SHARP.latency
    assert sat_time(two, 50_000, 10_000) == pytest.approx(fixed + 0.5e-6)
    assert sat_time(two, 20_000, 10_000) == pytest.approx(fixed + 0.2e-6)
    assert sat_time(two, 19_999, 10_000) == sat_time(SHARP, 19_999, 10_000)
    assert sat_time(two._replace(lanes=1), 50_000, 10_000) == sat_time(SHARP, 50_000)
    assert sharp_time(two, 50_000, 10_000) == sat_time(two, 50_000, 10_000)


def test_blocks_that_are_streamed_have_a_lock_each() -> None:
    asked = InNetworkCase(size=4, length=40_000, sharp=SHARP, threshold=10_000)
    assert FORMULAS["reduce_scatter"]["sharp"](asked).time == pytest.approx(4 * sat_time(SHARP, 10_000))


def test_leaders_stay_within_their_nodes_but_for_one() -> None:
    """collectives.md §3.8: up within the node, SHARP, down again."""
    found = FORMULAS["all_reduce"]["hcoll_sharp"](
        InNetworkCase(size=32, length=100, sharp=SHARP, local=8, inside=Costs(1e-6, 1e-11))
    )
    assert found.steps == 3 + 4 + 3
    assert found.sent == 100 + 3 * 100
    assert found.injected == 4 * 100 + 2 * 28 * 100
    assert found.time == pytest.approx(sharp_time(SHARP, 100, None) + 6 * (1e-6 + 1e-9))


def test_multicast() -> None:
    """collectives.md §3.0: N/M steps, n a rank; a broadcast is one step however many ranks there are."""
    costs = MulticastCosts(alpha=3e-6, way=2e-6, rate=50e9, roots=2)
    found = FORMULAS["all_gather"]["multicast"](InNetworkCase(size=8, length=80_000, multicast=costs))
    assert (found.steps, found.sent, found.injected) == (4, 10_000, 80_000)
    assert found.time == pytest.approx(2 * 3 * 3e-6 + 4 * (2 * 10_000 / 50e9 + 2e-6) + 2e-6)
    few, many = (
        FORMULAS["broadcast"]["multicast"](InNetworkCase(size=size, length=10**6, multicast=costs._replace(roots=1)))
        for size in (4, 128)
    )
    assert few.steps == many.steps == 1
    assert many.time - few.time == pytest.approx(2 * 5 * 3e-6)  # the barriers


@pytest.mark.parametrize(("size", "hosts"), [(4, 4), (8, 4), (16, 4), (64, 16), (188, 16), (188, 18), (1024, 16)])
def test_traversals(size: int, hosts: int) -> None:
    """Invariant 36: ring / multicast and ring / SHARP are 2(N-1)/N exactly."""
    leaves = -(-size // hosts)
    multicast = multicast_traversals(size, leaves, 7, size)
    assert multicast == 7 * multicast_on_leaf_spine(size, hosts).traversals
    assert ring_on_leaf_spine(size, hosts).traversals * 7 * size == multicast * 2 * (size - 1)
    edges = size + (leaves if leaves > 1 else 0)
    ring = 2 * ring_on_leaf_spine(size, hosts).traversals * 7
    assert ring * size == sharp_traversals(edges, 7 * size) * 2 * (size - 1)


def test_188_hosts() -> None:
    """The promises of collectives.md §3.9 and §3.10.7 hold."""
    ring, multicast = ring_on_leaf_spine(188, 16).traversals, multicast_traversals(188, 12, 1, 188)
    assert (ring, multicast) == (74800, 37600)
    assert ring / multicast == pytest.approx(1.989, abs=5e-4)
    assert 2 * ring / 188 == pytest.approx(795.74, abs=5e-3)
    assert sharp_traversals(188 + 12, 1) == 400


# The choice ---------------------------------------------------------------------------------------------------------

COSTS = Costs(alpha=12e-6, beta=2e-11)


@pytest.mark.parametrize(
    ("length", "offer", "chosen"),
    [
        (8, SharpOffer(SHARP, 8096), "sharp"),
        (1 << 24, SharpOffer(SHARP, 8096), "sharp"),
        (1 << 24, SharpOffer(SHARP, None), "ring"),  # fragments are slower than the ring
        (8, SharpOffer(None), "double_tree"),
        (1 << 28, SharpOffer(None), "ring"),
    ],
)
def test_choice(length: int, offer: SharpOffer, chosen: str) -> None:
    found = choose_all_reduce(16, length, COSTS, offer)
    assert found.algorithm == chosen
    times = {one.algorithm: one.time for one in found.candidates}
    assert list(times) == ["ring", "double_tree", "sharp"]
    assert (times["sharp"] is None) == (offer.costs is None)
    assert times[chosen] == min(time for time in times.values() if time is not None)


def test_a_choice_says_why() -> None:
    found = choose_all_reduce(16, 8, COSTS, SharpOffer(None, refused="no job: NO_RESOURCE (-5)"))
    assert "sharp         not possible   no job: NO_RESOURCE (-5)" in found.text()
    assert " * double_tree " in found.text()
    assert found.as_dict()["candidates"][2] == {
        "algorithm": "sharp",
        "time_ps": None,
        "why": "no job: NO_RESOURCE (-5)",
    }
    assert found.as_dict()["candidates"][0]["time_ps"] == round((30 * 12e-6 + 30 / 16 * 8 * 2e-11) * 1e12)


# Buffers ------------------------------------------------------------------------------------------------------------


def test_what_ranks_hold() -> None:
    """A schedule of no messages says it."""
    assert buffers("all_reduce", "sharp", 4, 12).counts(3) == Counts(12, 12, 0)
    assert buffers("reduce_scatter", "sharp", 4, 12).counts(3)[:2] == (12, 3)
    assert buffers("all_gather", "multicast", 4, 12).counts(3)[:2] == (3, 12)
    assert [buffers(op, "sharp", 4, 12).root for op in ("all_reduce", "reduce", "broadcast")] == [None, 0, 0]
    assert len(buffers("all_gather", "multicast", 4, 12).arrays()["step"]) == 0
