# SPDX-License-Identifier: GPL-2.0-only
"""Fabrics of several switches: paths, order, copies to groups, link counters, scenario keys (collectives.md §4.2)."""

import random
from collections import Counter, defaultdict
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import pytest

from tests.support.emulator.network_fabrics import (
    DELAY,
    FIRST,
    Bench,
    roce,
)
from tests.support.emulator.roce_frames import RATE, data
from uetproto import LocalError
from uetproto.collectives.algorithms.catalogue import schedule
from uetproto.collectives.costs.link_bytes import link_bytes
from uetproto.emulator.network.build import time_between
from uetproto.emulator.network.layouts import MOST_CABLES, Layout, layout_of
from uetproto.emulator.network.pfc import Pfc
from uetproto.emulator.network.switch import flow_of
from uetproto.emulator.run.play import run
from uetproto.emulator.scenario.settings import load
from uetproto.engine.contract import Datagram, Trim
from uetproto.framing.uet import Encapsulation, UetFramer
from uetproto.impair.frame_outcome import FrameOutcomes
from uetproto.impair.red import Red

REQUEST = bytes.fromhex("1980ffff000120000001000001090001000000650000000f") + bytes(32)
UDP, NATIVE = Encapsulation(), Encapsulation(udp=False)


def uet(source: int, target: int, entropy: int = 0, size: int = 1000, how: Encapsulation = UDP) -> bytes:
    """A ROD request."""
    framer = UetFramer(FIRST + source, 4, how)
    return framer.frame(Datagram(FIRST + source, FIRST + target, REQUEST, bytes(size), entropy=entropy))


LAYOUTS: dict[str, dict[str, Any]] = {
    "leaf-spine": {"stations": 7, "hosts_per_leaf": 2, "spines": 3},
    "fat-tree": {"stations": 16, "k": 4},
    "rails": {"stations": 8, "gpus_per_node": 4, "spines": 2},
}
each = pytest.mark.parametrize("kind", LAYOUTS)


# Ways -----------------------------------------------------------------------------------------------------------------


@each
def test_everyone_reaches_everyone_once_by_a_shortest_way(kind: str) -> None:
    bench = Bench(kind, **LAYOUTS[kind])
    size = bench.shape.size
    for source in range(size):
        for target in range(size):
            if source != target:
                bench.send(source, roce(source, target))
    bench.clock.run()
    for target, inbox in enumerate(bench.inboxes):
        assert sorted(inbox.frames) == sorted(roce(source, target) for source in range(size) if source != target)
    hops = sum(bench.shape.hops(a, b) for a in range(size) for b in range(size))
    assert sum(bench.counters().values()) == hops
    happened = [(switch.dropped, switch.unknown) for switch in bench.network.switches.values()]
    assert set(happened) == {(0, 0)}
    assert set(bench.counters()) <= {(bench.shape.name(a), bench.shape.name(b)) for a, b in bench.shape.links}


@pytest.mark.parametrize(("target", "hops"), [(1, 2), (2, 4), (15, 6)])
def test_each_hop_takes_its_time(target: int, hops: int) -> None:
    """Store and forward: 20 ns for 1000 bytes at 400 Gb/s, and the delay, of each link."""
    bench = Bench("fat-tree", 16, k=4)
    bench.send(0, roce(0, target))
    bench.clock.run()
    assert [time for time, _ in bench.inboxes[target].seen] == [hops * (20_000 + DELAY)]


def test_a_slow_cable_between_switches_is_a_bottleneck() -> None:
    bench = Bench("leaf-spine", 4, hosts_per_leaf=2, spines=1, rate=RATE // 10)
    for number in range(5):
        bench.send(0, roce(0, 2, number))
    bench.clock.run()
    times = [time for time, _ in bench.inboxes[2].seen]
    assert [later - sooner for sooner, later in pairwise(times)] == [200_000] * 4
    assert bench.network.trunks["leaf0 > spine0"].peak == 4000


@pytest.mark.parametrize("how", [UDP, NATIVE], ids=["udp", "native"])
def test_flows_spread_over_equal_ways_and_each_keeps_its_own(how: Encapsulation) -> None:
    """Entropy is the UDP source port, or the entropy header in its place. All four cores are used."""
    bench = Bench("fat-tree", 16, k=4, dscp=how.dscp)
    for entropy in range(400):
        for _ in range(3):
            bench.send(0, uet(0, 15, entropy, how=how))
    bench.clock.run()
    cores = {source: count for (source, _), count in bench.counters().items() if source.startswith("core")}
    assert len(cores) == 4
    assert all(count % 3 == 0 and 210 <= count <= 390 for count in cores.values()), cores
    aggs = [count for (source, target), count in bench.counters().items() if source == "pod0.edge0" and "agg" in target]
    assert len(aggs) == 2
    assert bench.network.switches["pod0.edge0"].forwarded == 1200


def test_sources_and_destinations_count_too() -> None:
    """One entropy for all, as of a simple sender: pairs of ranks spread all the same."""
    bench = Bench("leaf-spine", 32, hosts_per_leaf=16, spines=4)
    for source in range(16):
        for target in range(16, 32):
            bench.send(source, uet(source, target, 7))
    bench.clock.run()
    up = [count for (source, target), count in bench.counters().items() if source == "leaf0" and "spine" in target]
    assert len(up) == 4
    assert all(40 <= count <= 90 for count in up), up


def test_the_way_depends_on_nothing_else() -> None:
    """Size, sequence, ECN and DSCP do not move a flow; runs are the same."""
    assert flow_of(roce(0, 1, 5, 100)) == flow_of(roce(0, 1, 9, 4000)) != flow_of(roce(1, 0))
    assert flow_of(uet(0, 1, 3)) != flow_of(uet(0, 1, 4))
    assert flow_of(uet(0, 1, 3, how=NATIVE)) != flow_of(uet(0, 1, 4, how=NATIVE))
    sixes = [data(src=0xFD00 << 112 | 1, dst=0xFD00 << 112 | 2, version=6, psn=psn) for psn in (0, 1)]
    assert flow_of(sixes[0]) == flow_of(sixes[1]) != flow_of(data(src=1, dst=2))
    both = []
    for _ in range(2):
        bench = Bench("fat-tree", 16, k=4)
        for entropy in range(50):
            bench.send(1, uet(1, 14, entropy))
        bench.clock.run()
        both.append(bench.counters())
    assert both[0] == both[1]


@pytest.mark.parametrize("seed", range(3))
def test_a_flow_stays_in_order(seed: int) -> None:
    """Full queues everywhere, frames of any size, several flows between any two."""
    chance = random.Random(seed)
    bench = Bench("fat-tree", 8, k=4, dscp=UDP.dscp)
    sent: dict[tuple[int, int, int], list[int]] = defaultdict(list)
    for number in range(1500):
        source, target = chance.sample(range(8), 2)
        entropy, size = chance.randrange(3), 256 * number % 8999 + 4
        bench.send(source, uet(source, target, entropy, size) + number.to_bytes(4, "big"))
        sent[source, target, entropy].append(number)
    bench.clock.run()
    got: dict[tuple[int, int, int], list[int]] = defaultdict(list)
    for target, inbox in enumerate(bench.inboxes):
        for frame in inbox.frames:
            source = int.from_bytes(frame[26:30], "big") - FIRST
            got[source, target, int.from_bytes(frame[34:36], "big")].append(int.from_bytes(frame[-4:], "big"))
    assert got == sent


# Bytes ----------------------------------------------------------------------------------------------------------------


@each
@pytest.mark.parametrize(("op", "algorithm"), [("all_gather", "ring"), ("all_reduce", "ring")])
def test_counters_are_those_of_the_schedule(kind: str, op: str, algorithm: str) -> None:
    """Invariant 42: each message as one frame; hosts' links exactly, and all equal paths of a switch together."""
    bench = Bench(kind, **LAYOUTS[kind])
    shape = bench.shape
    arrays = schedule(op, algorithm, shape.size, 16 * shape.size + 5).arrays()
    sizes = 100 + arrays["count"]
    for source, target, size in zip(arrays["src"].tolist(), arrays["dst"].tolist(), sizes.tolist(), strict=True):
        bench.send(source, roce(source, target, size=size))
    bench.clock.run()
    counted = bench.counters(lambda link: link.bytes)
    plain = Layout(shape.kind, shape.size, shape.switches, shape.cables)  # without nodes: all goes over the network
    expected = link_bytes(plain, arrays["src"], arrays["dst"], sizes)
    assert sum(counted.values()) == expected.trav
    assert sum(count for (source, _), count in counted.items() if source in bench.network.switches) == expected.egress
    for (source, target), count in counted.items():
        if "rank" in source + target:
            assert count == dict(expected.table())[f"{source} > {target}"]
    ups: Counter[str] = Counter()
    for (source, target), count in counted.items():
        ups[source] += count
        ups[f"to {target}"] += count
    for name in (name for name in shape.switches if name.startswith("leaf") or ".edge" in name):
        links = [link for link, (a, b) in enumerate(shape.links) if shape.name(a) == name]
        assert ups[name] == pytest.approx(expected.links[links].sum())


@pytest.mark.parametrize("kind", ["switch", "pair"])
def test_a_star_and_a_pair_count_too(kind: str) -> None:
    bench = Bench(kind, 2)
    bench.send(0, roce(0, 1))
    bench.clock.run()
    ways = [("rank0", "switch"), ("switch", "rank1")] if kind == "switch" else [("rank0", "rank1")]
    assert bench.counters() == dict.fromkeys(ways, 1)
    assert len(bench.network.hops) == 2 * len(ways)


# Groups ---------------------------------------------------------------------------------------------------------------


@each
def test_a_group_is_a_tree_without_loops(kind: str) -> None:
    """Every other station has one copy; each link of the tree carries one, no other carries any."""
    size = Bench(kind, **LAYOUTS[kind]).shape.size
    for source in range(size):
        bench = Bench(kind, **LAYOUTS[kind])
        frame = data(src=FIRST + source, dst=0xE0010203)
        bench.send(source, frame)
        bench.clock.run()
        assert [len(inbox.frames) for inbox in bench.inboxes] == [int(rank != source) for rank in range(size)]
        names = {(bench.shape.name(a), bench.shape.name(b)) for a, b in map(
            bench.shape.links.__getitem__, bench.shape.tree(source))}  # fmt: skip
        assert bench.counters() == dict.fromkeys(names, 1)
        assert max(len(inbox.seen) for inbox in bench.inboxes) == 1


def test_members_of_a_group() -> None:
    """Whom a leaf was told of; the copy still comes to the leaf."""
    bench = Bench("leaf-spine", 6, hosts_per_leaf=2, spines=1)
    leaf = bench.network.switches["leaf1"]
    group, member = bytes.fromhex("01005e010203"), roce(0, 3)[:6]
    leaf.join(group, member)
    bench.send(0, data(src=FIRST, dst=0xE0010203))
    bench.clock.run()
    assert [len(inbox.frames) for inbox in bench.inboxes] == [0, 1, 0, 1, 1, 1]


def test_nobody() -> None:
    """Unknown stations, unknown sources of groups, and addresses of the link go nowhere, and are counted."""
    bench = Bench("leaf-spine", 4, hosts_per_leaf=2)
    bench.send(0, data(src=FIRST, dst=FIRST + 99))
    bench.send(0, Pfc().frame(0xFFFF))
    bench.send(0, data(src=FIRST + 77, dst=0xE0010203))
    bench.clock.run()
    assert [len(inbox.frames) for inbox in bench.inboxes] == [1, 1, 0, 0]  # at its own switch alone
    assert bench.network.switches["leaf0"].unknown == 2
    assert not [hop for hop in bench.counters() if "spine" in hop[1]]


# Queues ---------------------------------------------------------------------------------------------------------------


def test_trimmed_between_switches_is_not_the_last_hop() -> None:
    """cms.md §7."""
    for rates, trim in (({"rate": RATE // 100}, Trim.TRIMMED), ({}, Trim.LAST_HOP)):
        bench = Bench("leaf-spine", 8, hosts_per_leaf=4, dscp=UDP.dscp, queue_capacity=2000, trimming=True, **rates)
        for source in range(4):
            for entropy in range(8):
                bench.send(source, uet(source, 7, entropy))
        bench.clock.run()
        framer = UetFramer(FIRST + 7, 4, UDP)
        trims = Counter(cast(Datagram, framer.packet(frame)).trimmed for frame in bench.inboxes[7].frames)
        assert trims[trim] > 0
        assert sum(trims.values()) + sum(switch.dropped for switch in bench.network.switches.values()) == 32


def test_lost_between_switches() -> None:
    bench = Bench("leaf-spine", 4, hosts_per_leaf=2, spines=1, queue_capacity=2500, rate=RATE // 10)
    for number in range(9):
        bench.send(0, roce(0, 2, number))
    bench.clock.run()
    dropped = {name: switch.dropped for name, switch in bench.network.switches.items() if switch.dropped}
    assert dropped == {"leaf0": 9 - len(bench.inboxes[2].frames)}


def test_marks_between_switches() -> None:
    """RED at each queue, each with chance of its own, which is made when it first decides."""
    names = []

    def chance(name: str, use: str) -> random.Random:
        names.append(name)
        assert use == "red"
        return random.Random(name)

    red = Red(kmin=0, kmax=4000, pmax=0.5)
    bench = Bench("leaf-spine", 4, hosts_per_leaf=2, spines=1, red=red, chance=chance, rate=RATE // 10)
    for number in range(20):
        bench.send(0, roce(0, 2, number))
    bench.clock.run()
    marked = sum(frame[15] & 3 == 3 for frame in bench.inboxes[2].frames)
    assert marked == bench.network.markers["leaf0 > spine0"].marked > 10
    assert set(bench.network.markers) == {*bench.network.trunks, "rank0", "rank1", "rank2", "rank3"}
    assert names == ["leaf0 > spine0"]


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"pfc": Pfc(), "queue_capacity": 9}, "queue_capacity: 9 bytes leave no headroom for pfc; legal: [0-9]+ bytes"),
        ({"layout": None}, "layout: none; legal: one for 4 stations"),
        ({"layout": layout_of("fat-tree", 5, {})}, "layout: one for 5 stations; legal: one for 4 stations"),
    ],
)
def test_what_cannot_be_is_refused(more: dict[str, Any], message: str) -> None:
    with pytest.raises(LocalError, match=message):
        Bench("fat-tree", 4, **more)


def test_time_between_switches() -> None:
    """Two links more between leaves, four more over a core; 24 Mbit and a frame wait at most."""
    config = Bench("leaf-spine", 8, queue_capacity=10**6).config
    assert time_between(config) == 2 * (20 * (3 * 10**6 + 9216) + DELAY)
    assert time_between(Bench("switch", 8).config) == 0
    assert time_between(Bench("leaf-spine", 4, hosts_per_leaf=4).config) == 0


def test_outcomes_follow_a_frame_over_several_switches() -> None:
    bench = Bench("leaf-spine", 6, hosts_per_leaf=2, spines=1)
    outcomes = FrameOutcomes()
    for switch in bench.network.switches.values():
        switch._outcomes = outcomes
    frame = data(src=FIRST, dst=0xE0010203)
    outcomes.follow(frame)
    way = outcomes.transit(frame)
    assert way is not None
    bench.send(0, frame)
    bench.clock.run()
    assert (way.copies, way.outcome) == (5, None)


# Scenarios ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "settings",
    [
        ("fabric.topology=fat-tree",),
        ("fabric.topology=fat-tree", "fabric.k=6", "fabric.levels=2"),
        ("fabric.topology=leaf-spine", "fabric.hosts_per_leaf=1", "fabric.spines=3"),
        ("fabric.topology=rails", "fabric.gpus_per_node=1"),
        ("fabric.topology=fat-tree", "encapsulation=native", "mode=rud"),
        ("fabric.topology=fat-tree", "nodes.rank0.address=fd00::a00:b", "nodes.rank2.address=fd00::a00:10b"),
    ],
)
def test_a_gradient_over_a_fabric(settings: tuple[str, ...]) -> None:
    result = run(load("gradient", settings), check=True)
    assert result.ok, result
    assert result.retransmissions == 0
    assert not result.happened


def test_farther_is_later() -> None:
    times = [
        run(load("gradient", [f"fabric.topology={kind}", *more])).virtual_time_ps
        for kind, more in (
            ("switch", ()),
            ("leaf-spine", ("fabric.hosts_per_leaf=2",)),
            ("fat-tree", ("fabric.levels=2", "fabric.k=2")),
            ("fat-tree", ("fabric.k=2",)),
        )
    ]  # fmt: skip
    assert times[0] == times[1] < times[2] < times[3]


@pytest.mark.parametrize("scenario", ["gradient-lossy", "gradient-roce"])
def test_losses_are_repaired_and_seeds_repeat(scenario: str, tmp_path: Path) -> None:
    captures = []
    for number in range(2):
        output = tmp_path / f"{number}.pcapng"
        result = run(load(scenario, ["fabric.topology=fat-tree"]), output=str(output))
        assert result.ok, result
        captures.append(output.read_bytes())
    assert captures[0] == captures[1]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (("topology=ring",), "'ring' is not legal; legal: switch, pair, leaf-spine, fat-tree, rails"),
        (("topology=leaf-spine", "hosts_per_leaf=1", "leaves=1"),
         "2 ranks do not fit this leaf-spine; legal: 1 ranks, or leaves 2 and more, or hosts_per_leaf 2 and more"),
        (("topology=fat-tree", "k=3"), "fabric.k: 3 ports a switch; legal: an even number"),
        (("topology=fat-tree", "levels=4"), "fabric.levels: 4; legal: 2, 3"),
        (("topology=fat-tree", "k=0"), "0 is not legal; legal: a whole number, 1 … 4096"),
        (("topology=fat-tree", "k=64"), f"fabric.topology: .* cables.*; legal: at most {MOST_CABLES}"),
        (("topology=fat-tree", "spines=2"), "fabric.spines: does not go with topology fat-tree; legal: k, levels"),
        (("k=4",), "fabric.k: does not go with topology switch; legal: topology fat-tree"),
        (("topology=pair", "spines=4"), "does not go with topology pair; legal: topology leaf-spine, rails"),
        (("topology=pair", "pfc=true"), "fabric.pfc: is what a switch does; legal: a topology with switches"),
    ],
)  # fmt: skip
def test_keys_that_cannot_be(settings: tuple[str, ...], message: str) -> None:
    with pytest.raises(LocalError, match=message):
        load("gradient", [f"fabric.{setting}" for setting in settings])


def test_the_layout_is_of_the_nodes_in_their_order() -> None:
    scenario = load("gradient", ["fabric.topology=leaf-spine", "fabric.hosts_per_leaf=1"])
    layout = scenario.fabric.layout
    assert layout is not None
    assert (layout.size, layout.hops(0, 1)) == (2, 4)
    assert load("gradient").fabric.layout is None
