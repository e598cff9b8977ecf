# SPDX-License-Identifier: GPL-2.0-only
"""Groups over several switches, and stations that are part of a switch (collectives.md §3.10.7, sharp.md §1.2)."""

from collections import Counter
from typing import Any

import pytest

from tests.support.emulator.network_fabrics import DELAY, FIRST, Bench, roce
from tests.support.emulator.network_groups import (
    GROUP,
)
from tests.support.emulator.roce_frames import RATE, data, mac
from uetproto import LocalError
from uetproto.api.network import NetworkOptions
from uetproto.api.verbs.emulated import VerbsNetwork
from uetproto.api.verbs.errors import VerbsError
from uetproto.api.verbs.node import NodeSpec
from uetproto.emulator.network.pfc import Pfc
from uetproto.emulator.network.switch import MOST_GROUPS, GroupCount
from uetproto.engine.roce.config import RoceConfig

GROUP_MAC = bytes.fromhex("01005e010203")
SIZE = 1000

KINDS: dict[str, dict[str, Any]] = {
    "switch": {"stations": 5},
    "leaf-spine": {"stations": 7, "hosts_per_leaf": 2, "spines": 3},
    "fat-tree": {"stations": 16, "k": 4},
    "rails": {"stations": 8, "gpus_per_node": 4, "spines": 2},
}
each = pytest.mark.parametrize("kind", KINDS)


def to_group(source: int, size: int = SIZE) -> bytes:
    return data(size, src=FIRST + source, dst=GROUP)


def joined(kind: str, members: list[int], **more: Any) -> Bench:
    bench = Bench(kind, **(KINDS[kind] | more))
    for rank in members:
        bench.network.join(GROUP_MAC, f"rank{rank}")
    return bench


def got(bench: Bench) -> list[int]:
    return [len(inbox.seen) for inbox in bench.inboxes]


# Groups ---------------------------------------------------------------------------------------------------------------


@each
def test_members_have_one_copy_and_nobody_else_any(kind: str) -> None:
    members = [0, 1, 3, 4]
    for source in range(KINDS[kind]["stations"]):
        bench = joined(kind, members)
        bench.send(source, to_group(source))
        bench.clock.run()
        expected = [int(rank in members and rank != source) for rank in range(len(bench.inboxes))]
        assert got(bench) == expected
        counters = bench.counters()
        assert set(counters.values()) == {1}  # no link twice
        if kind != "switch":
            targets = [rank for rank in members if rank != source]
            tree = set(bench.shape.tree(source, targets))
            assert len(counters) == len(tree)
            ends = {name for _, name in counters}  # pruned: all that it reaches is used
            assert all(name.startswith("rank") or any(a == name for a, _ in counters) for name in ends)


@pytest.mark.parametrize(("hosts", "leaf"), [(4, 4), (8, 4), (16, 4), (20, 8)])
def test_links_of_a_group(hosts: int, leaf: int) -> None:
    """N links under one leaf, N + L over L of them (collectives.md §3.10.7)."""
    leaves = -(-hosts // leaf)
    bench = Bench("leaf-spine", hosts, hosts_per_leaf=leaf, spines=2)
    for rank in range(hosts):
        bench.network.join(GROUP_MAC, f"rank{rank}")
    for source in range(hosts):
        bench.send(source, to_group(source))
    bench.clock.run()
    links = hosts if leaves == 1 else hosts + leaves
    assert sum(hop.link.frames for hop in bench.network.hops) == hosts * links
    assert sum(hop.link.bytes for hop in bench.network.hops) == hosts * links * SIZE
    assert got(bench) == [hosts - 1] * hosts


def test_a_leaf_without_members_sees_nothing() -> None:
    bench = joined("leaf-spine", [0, 4])
    bench.send(0, to_group(0))
    bench.clock.run()
    assert {name for hop in bench.counters() for name in hop if name.startswith("leaf")} == {"leaf0", "leaf2"}


def test_counters_of_each_port() -> None:
    bench = joined("leaf-spine", [0, 1, 2, 3], spines=1)
    for source, size in ((0, 1000), (0, 500), (2, 300)):
        bench.send(source, to_group(source, size))
    bench.send(0, roce(0, 3))  # to one: counted elsewhere
    bench.clock.run()
    switches = bench.network.switches
    assert switches["leaf0"].group_ports == {
        "spine0": GroupCount(2, 1500), "rank0": GroupCount(1, 300), "rank1": GroupCount(3, 1800),
    }  # fmt: skip
    assert switches["spine0"].group_ports == {"leaf1": GroupCount(2, 1500), "leaf0": GroupCount(1, 300)}
    assert switches["leaf0"].group_frames == GroupCount(3, 1800)
    assert switches["leaf2"].group_ports == {}
    assert switches["leaf0"].copies == {mac(FIRST): 1, mac(FIRST + 1): 3}
    before = switches["leaf0"].group_ports
    bench.network.join(GROUP_MAC, "rank5")  # counters outlive a change
    assert switches["leaf0"].group_ports == before
    bench.send(0, to_group(0))
    bench.clock.run()
    assert switches["leaf0"].group_ports["rank1"] == GroupCount(4, 2800)
    assert switches["leaf2"].group_ports == {"rank5": GroupCount(1, 1000)}


def test_counters_stay_when_many_join_and_leave() -> None:
    bench = joined("switch", [0, 1])
    assert bench.network.switch is not None
    for _ in range(5000):
        bench.network.switch.take(to_group(0))
        bench.network.switch.renew()
    assert bench.network.switch.group_ports == {"rank1": GroupCount(5000, 5000 * SIZE)}
    assert len(bench.network.switch._earlier) < 5000


@each
def test_leaving(kind: str) -> None:
    """The last one takes the group along: then all have what is for it, as before anybody joined."""
    bench = joined(kind, [1, 2, 3])
    bench.network.leave(GROUP_MAC, "rank2")
    bench.send(0, to_group(0))
    bench.clock.run()
    assert got(bench)[:5] == [0, 1, 0, 1, 0]
    with pytest.raises(LocalError, match="station: rank2 has not joined 01:00:5e:01:02:03; legal: rank1, rank3"):
        bench.network.leave(GROUP_MAC, "rank2")
    for name in ("rank1", "rank3"):
        bench.network.leave(GROUP_MAC, name)
    assert all(switch.groups == () for switch in bench.network.switches.values())
    bench.send(0, to_group(0))
    bench.clock.run()
    assert got(bench) == [0, 2, 1, 2] + [1] * (len(bench.inboxes) - 4)


def test_the_most_groups_that_a_switch_holds() -> None:
    bench = Bench("leaf-spine", 4, hosts_per_leaf=2, spines=1, most_groups=2)
    groups = [GROUP_MAC[:5] + bytes([number]) for number in range(3)]
    for group in groups[:2]:
        bench.network.join(group, "rank0")
    with pytest.raises(LocalError, match="group: leaf0 holds 2 of them; legal: at most 2"):
        bench.network.join(groups[2], "rank1")
    bench.network.join(groups[1], "rank1")  # one that is held
    bench.network.leave(groups[0], "rank0")
    bench.network.join(groups[2], "rank1")
    assert {switch.groups for switch in bench.network.switches.values()} == {(groups[1], groups[2])}
    assert MOST_GROUPS == 16383


@pytest.mark.parametrize(
    ("group", "station", "message"),
    [
        (b"\2" + bytes(5), "rank0", "group: 02:00:00:00:00:00 is none; legal: 01:00:5e:… and 33:33:…"),
        (GROUP_MAC, "nobody", "station: there is no nobody; legal: rank0, rank1, rank2"),
    ],
)
def test_misuse_of_groups(group: bytes, station: str, message: str) -> None:
    with pytest.raises(LocalError, match=message):
        Bench("switch", 3).network.join(group, station)


def test_a_cable_has_no_groups() -> None:
    bench = Bench("pair", 2)
    bench.network.join(GROUP_MAC, "rank0")
    bench.send(0, to_group(0))
    bench.clock.run()
    assert got(bench) == [0, 1]


# Stations that are part of a switch -----------------------------------------------------------------------------------

INNER = {
    "switch": ("switch",),
    "leaf-spine": ("leaf0", "leaf2", "spine1", "spine2"),
    "fat-tree": ("pod0.edge0", "pod1.agg1", "core0"),
    "rails": ("rail0", "spine1"),
}
INNER_DELAY, INNER_RATE = 100_000, 4 * RATE


def with_inner(kind: str, **more: Any) -> tuple[Bench, list[str]]:
    names = switches_of(kind)
    return Bench(kind, **(KINDS[kind] | more), inner={f"an.{name}": name for name in names}), names


def switches_of(kind: str) -> list[str]:
    bench = Bench(kind, **KINDS[kind])
    return [name for name in INNER[kind] if name in bench.network.switches] or list(bench.network.switches)[:2]


@each
def test_everybody_reaches_inner_stations_over_shortest_ways(kind: str) -> None:
    bench, names = with_inner(kind)
    ranks = KINDS[kind]["stations"]
    stations = list(bench.stations)
    for source in range(len(stations)):
        for target in range(len(stations)):
            if source != target:
                bench.send(source, roce(source, target))
    bench.clock.run()
    assert got(bench) == [len(stations) - 1] * len(stations)
    assert all((s.unknown, s.dropped) == (0, 0) for s in bench.network.switches.values())
    inner = Counter({(hop.source, hop.target): hop.link.frames for hop in bench.network.inner_hops})
    assert inner == {way: len(stations) - 1 for name in names for way in ((name, f"an.{name}"), (f"an.{name}", name))}
    assert not any("an." in hop.source + hop.target for hop in bench.network.hops)
    if kind != "switch":
        shape = bench.shape
        assert shape.size == ranks
        hosts = sum(shape.hops(a, b) for a in range(ranks) for b in range(ranks))
        vertex = {name: shape.size + shape.switches.index(name) for name in names}
        to_switches = sum(_far(shape, rank, vertex[name]) for rank in range(ranks) for name in names)
        between = sum(_between(shape, vertex[a], vertex[b]) for a in names for b in names if a != b)
        assert sum(bench.counters().values()) == hosts + 2 * to_switches + between


def _between(shape: Any, start: int, end: int) -> int:
    """Links of a shortest way between switches, found anew."""
    found, edge = {start: 0}, [start]
    for vertex in edge:
        for a, b in shape.links:
            if a == vertex and b >= shape.size and b not in found:
                found[b] = found[a] + 1
                edge.append(b)
    return found[end]


def _far(shape: Any, rank: int, switch: int) -> int:
    return 1 + _between(shape, shape.neighbour(rank), switch)


def test_time_to_an_inner_station() -> None:
    """Two links, and the port within: faster and nearer."""
    bench = Bench("leaf-spine", **KINDS["leaf-spine"], inner={"an": "spine1"})
    bench.send(0, roce(0, 7))
    bench.clock.run()
    assert [time for time, _ in bench.inboxes[7].seen] == [2 * (20_000 + DELAY) + 5_000 + INNER_DELAY]


@each
def test_groups_do_not_come_to_inner_stations_that_have_not_joined(kind: str) -> None:
    bench, names = with_inner(kind)
    ranks = KINDS[kind]["stations"]
    bench.send(0, to_group(0))
    bench.clock.run()
    assert got(bench) == [0] + [1] * (ranks - 1) + [0] * len(names)
    bench.network.join(GROUP_MAC, f"an.{names[-1]}")
    bench.network.join(GROUP_MAC, "rank1")
    bench.send(0, to_group(0))
    bench.clock.run()
    assert got(bench) == [0, 2] + [1] * (ranks - 2) + [0] * (len(names) - 1) + [1]


@each
def test_a_group_from_an_inner_station(kind: str) -> None:
    """Over the tree of its switch: each link carries one copy, and none leads back."""
    bench, names = with_inner(kind)
    ranks = KINDS[kind]["stations"]
    for rank in range(1, ranks):
        bench.network.join(GROUP_MAC, f"rank{rank}")
    bench.send(ranks + len(names) - 1, to_group(ranks + len(names) - 1))
    bench.clock.run()
    assert got(bench) == [0] + [1] * (ranks - 1) + [0] * len(names)
    assert set(bench.counters().values()) == {1}
    if kind != "switch":
        vertex = bench.shape.size + bench.shape.switches.index(names[-1])
        assert len(bench.counters()) == len(bench.shape.tree(vertex, range(1, ranks)))


def test_pfc_counts_inner_stations() -> None:
    bench = Bench("switch", 3, inner={"an": "switch"}, pfc=Pfc())
    assert set(bench.network.ingresses) == {"rank0", "rank1", "rank2", "an"}


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("switch", "at: an is at leaf9; legal: switch"),
        ("leaf-spine", "at: an is at leaf9; legal: leaf0, leaf1, leaf2, leaf3, spine0, spine1, spine2"),
        ("pair", "at: an is at leaf9; legal: none, topology pair has no switches"),
    ],
)
def test_inner_stations_that_cannot_be(kind: str, message: str) -> None:
    with pytest.raises(LocalError, match=message):
        Bench(kind, **KINDS.get(kind, {"stations": 2}), inner={"an": "leaf9"})


# The world of the API -------------------------------------------------------------------------------------------------


def world(**options: Any) -> VerbsNetwork:
    nodes = {"a": NodeSpec(), "an0": NodeSpec(at="leaf0"), "b": NodeSpec(), "an1": NodeSpec(at="spine0", rate="1 Tb/s")}
    given = {"topology": "leaf-spine", "shape": {"hosts_per_leaf": 1, "spines": 1}} | options
    return VerbsNetwork(nodes, NetworkOptions(**given), config=RoceConfig())


def test_nodes_within_switches() -> None:
    made = world(metered=True, sharp=True)
    assert list(made.nodes) == ["a", "an0", "b", "an1"]
    assert [node.rate for node in made.nodes.values()] == [RATE, 2 * RATE, RATE, 10**12]  # two cables
    assert [node.at for node in made.nodes.values()] == [None, "leaf0", None, "spine0"]
    assert {hop.source for hop in made.network.hops} == {"a", "b", "leaf0", "leaf1", "spine0"}
    assert {hop.link.delay for hop in made.network.inner_hops} == {INNER_DELAY}
    assert {hop.link.delay for hop in world(inner_delay="7 ns").network.inner_hops} == {7_000}
    assert world(inner_rate="2 Tb/s").nodes["an0"].rate == 2 * 10**12


def test_groups_of_a_world() -> None:
    made = world(most_groups=1)
    made.join(GROUP, "a")
    made.join(GROUP, "an1")
    assert made.network.members == {GROUP_MAC: {"a", "an1"}}
    for arguments, message in (
        ((GROUP + 1, "a"), "group: leaf0 holds 1 of them.* at most 1"),
        ((0x0A000001, "a"), "group: 0xa000001.*a multicast address of IPv4"),
        ((GROUP, "c"), "station: there is no c.*a, an0, an1, b"),
    ):
        with pytest.raises(VerbsError, match=message):
            made.join(*arguments)
    made.leave(GROUP, "a")
    made.leave(GROUP, "an1")
    assert made.network.members == {}


def test_nodes_within_switches_that_are_not_there() -> None:
    with pytest.raises(VerbsError, match=r"nodes\['an0'\].at: leaf0 is not legal; legal: switch"):
        world(topology="switch", shape={})
    with pytest.raises(VerbsError, match="most_groups: -1"):
        world(most_groups=-1)


def test_headroom_for_nodes_within_a_switch() -> None:
    """The world and the network below it ask for the same."""
    nodes = {"a": NodeSpec(), "b": NodeSpec(), "an": NodeSpec(at="switch")}

    def made(capacity: int) -> VerbsNetwork:
        options = NetworkOptions(pfc=Pfc(), queue_capacity=capacity, faults_from=[])
        return VerbsNetwork(nodes, options, config=RoceConfig())

    shares = sorted(
        Pfc().most(rate=rate, delay=delay, mtu=9216)
        for rate, delay in ((RATE, DELAY), (RATE, DELAY), (INNER_RATE, INNER_DELAY))
    )
    least = sum(shares[1:])
    assert made(least).nodes["an"].at == "switch"
    with pytest.raises(VerbsError, match=f"queue_capacity: {least - 1}.*{least} bytes, for pfc"):
        made(least - 1)


def test_an_engine_around_an_adapter() -> None:
    class Around:
        def __init__(self, hca: Any) -> None:
            self.hca = hca

    nodes = {"a": NodeSpec(), "b": NodeSpec(around=Around)}  # type: ignore[arg-type]
    made = VerbsNetwork(nodes, NetworkOptions(), config=RoceConfig())
    node = made.nodes["b"]
    assert isinstance(node.engine, Around)
    assert node.engine.hca is node.hca
    assert made.nodes["a"].engine is made.nodes["a"].hca
