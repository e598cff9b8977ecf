"""Fabrics of several switches: each hop has a queue, a rate and a delay of its own (collectives.md §4.2).

A switch sends a frame on by one of the shortest ways to its destination; of equal ones a hash of source, destination
and entropy chooses, so that a flow keeps its way and its order. Frames to groups follow the tree of their source.
"""

from collections.abc import Callable, Mapping, Sequence

from uetproto.emulator.clock import Clock
from uetproto.emulator.framing import mac_of
from uetproto.emulator.layouts import LAYOUTS, Layout
from uetproto.emulator.queue import OutputQueue
from uetproto.emulator.red import Marker
from uetproto.emulator.switch import Switch
from uetproto.emulator.tap import Capture
from uetproto.emulator.topology import (
    Cabling,
    Hop,
    Network,
    Station,
    add_station,
    fates_of,
    link_to,
    marker_to,
    new_link,
    pair,
    scripted,
    star,
    tapped,
)
from uetproto.engine.contract import SECOND
from uetproto.errors import LocalError


class _Ways:
    """What one switch knows of the others (`switch.Beyond`)."""

    def __init__(self, layout: Layout, vertex: int, ranks: Mapping[bytes, int], trees: "_Trees") -> None:
        self._layout = layout
        self._vertex = vertex
        self._ranks = ranks
        self._trees = trees
        self.ports: dict[int, OutputQueue] = {}
        """To other switches, by the number of the link."""

    def ways(self, mac: bytes) -> Sequence[OutputQueue]:
        rank = self._ranks.get(mac)
        return () if rank is None else [self.ports[link] for link in self._layout.next_links(self._vertex, rank)]

    def branches(self, source: bytes) -> Sequence[OutputQueue]:
        rank = self._ranks.get(source)
        tree = frozenset[int]() if rank is None else self._trees.of(rank)
        return [queue for link, queue in self.ports.items() if link in tree]


class _Trees:
    """The links of the multicast tree of each rank, made when they are needed."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._trees: dict[int, frozenset[int]] = {}

    def of(self, rank: int) -> frozenset[int]:
        tree = self._trees.get(rank)
        if tree is None:
            tree = self._trees[rank] = frozenset(self._layout.tree(rank))
        return tree


def fabric(clock: Clock, cabling: Cabling, stations: Mapping[str, Station], capture: Capture | None = None) -> Network:
    """Switches and stations as `cabling.layout` says. Raises `LocalError` for PFC, which only a single switch does."""
    layout, names = cabling.layout, list(stations)
    if layout is None or layout.size != len(stations):
        size = "none" if layout is None else f"one for {layout.size} stations"
        raise LocalError(f"layout: {size}; legal: one for {len(stations)} stations")
    if cabling.pfc is not None:
        raise LocalError(f"pfc: is not done between switches, topology {layout.kind} has several; legal: switch")
    network = Network()
    ranks = {mac_of(station.address).to_bytes(6, "big"): rank for rank, station in enumerate(stations.values())}
    trees = _Trees(layout)
    ways = [_Ways(layout, layout.size + number, ranks, trees) for number in range(len(layout.switches))]
    for name, beyond in zip(layout.switches, ways, strict=True):
        network.switches[name] = Switch(
            dscp=cabling.dscp, trimming=cabling.trimming, fates=fates_of(capture), name=name, beyond=beyond
        )
    switches = list(network.switches.values())
    for (mac, rank), name in zip(ranks.items(), names, strict=True):
        station, at = stations[name], layout.neighbour(rank) - layout.size
        port = add_station(clock, cabling, network, name, station, switches[at], capture, leaf=layout.switches[at])
        down = link_to(clock, cabling, station, tapped(clock, port, station, capture))
        network.hops.append(Hop(layout.switches[at], name, down))
        network.queues[name] = queue = OutputQueue(
            clock,
            down,
            capacity=cabling.queue_capacity,
            level_of=cabling.dscp.level,
            marker=marker_to(cabling, network, name, station, capture),
        )
        switches[at].attach(mac, queue)
    for number, (source, target) in enumerate(layout.links):
        if source >= layout.size and target >= layout.size:
            trunk = _trunk(clock, cabling, network, layout.name(source), layout.name(target), capture)
            ways[source - layout.size].ports[number] = trunk
    return network


def _trunk(
    clock: Clock, cabling: Cabling, network: Network, source: str, target: str, capture: Capture | None
) -> OutputQueue:
    """A port of a switch, and the link from it to another switch."""
    if cabling.trunk_rate is None:
        raise LocalError("trunk_rate: None; legal: bits a second of the cables between switches")
    link = new_link(clock, cabling, cabling.trunk_rate, network.switches[target])
    network.hops.append(Hop(source, target, link))
    name = f"{source} > {target}"
    marker = None
    if cabling.red is not None:
        if cabling.trunk_rng is None:
            raise LocalError("trunk_rng: None; legal with red: what makes a seeded generator for a queue")
        marker = network.markers[name] = Marker(cabling.red, cabling.trunk_rng(name), fates_of(capture))
    network.trunks[name] = queue = OutputQueue(
        clock, link, capacity=cabling.queue_capacity, level_of=cabling.dscp.level, marker=marker
    )
    return queue


def time_between(cabling: Cabling) -> int:
    """Picoseconds from the first switch to the last, at most, if all queues on the way are full: 0 for one switch."""
    layout = cabling.layout
    if layout is None or cabling.trunk_rate is None:
        return 0
    most = max(layout.hops(0, rank) for rank in range(layout.size)) - 2
    waiting = 3 * cabling.queue_capacity + cabling.mtu
    return max(0, most) * (8 * SECOND * waiting // cabling.trunk_rate + cabling.delay)


Builder = Callable[[Clock, Cabling, Mapping[str, Station], Capture | None], Network]

TOPOLOGIES: dict[str, Builder] = {"switch": star, "pair": pair, "scripted": scripted, **dict.fromkeys(LAYOUTS, fabric)}

__all__ = ["TOPOLOGIES", "Builder", "fabric", "time_between"]
