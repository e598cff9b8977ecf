"""Fabrics of several switches: each hop has a queue, a rate and a delay of its own (collectives.md §4.2).

A switch sends a frame on by one of the shortest ways to its destination; of equal ones a hash of source, destination
and entropy chooses, so that a flow keeps its way and its order. Frames to groups follow the tree of their source.
"""

from collections.abc import Callable, Mapping, Sequence

from uetproto.emulator.network.clock import Clock
from uetproto.emulator.network.layouts import LAYOUTS, Layout
from uetproto.emulator.network.queue import OutputQueue, level_by
from uetproto.emulator.network.red import Marker
from uetproto.emulator.network.tap import Capture
from uetproto.emulator.network.topology import (
    Cabling,
    Hop,
    Network,
    Seat,
    Station,
    add_port,
    add_station,
    fates_of,
    mac_bytes,
    new_link,
    new_switch,
    pair,
    scripted,
    star,
    switch_at,
)
from uetproto.engine.contract import SECOND
from uetproto.errors import LocalError


class _Ways:
    """What one switch knows of the others (`switch.Beyond`)."""

    def __init__(self, layout: Layout, vertex: int, vertices: Mapping[bytes, int], trees: "_Trees") -> None:
        self._layout = layout
        self._vertex = vertex
        self._vertices = vertices
        self._trees = trees
        self.ports: dict[int, OutputQueue] = {}
        """To other switches, by the number of the link."""

    def ways(self, mac: bytes) -> Sequence[OutputQueue]:
        end, layout = self._vertices.get(mac), self._layout
        if end is None:
            return ()
        onward = layout.next_links if end < layout.size else layout.links_towards
        return [self.ports[link] for link in onward(self._vertex, end)]

    def branches(self, group: bytes, source: bytes) -> Mapping[str, OutputQueue]:
        vertex = self._vertices.get(source)
        tree = frozenset[int]() if vertex is None else self._trees.of(group, vertex)
        name, links = self._layout.name, self._layout.links
        return {name(links[link].target): queue for link, queue in self.ports.items() if link in tree}


class _Trees:
    """The links of the multicast tree of each rank and each switch, made when they are needed."""

    def __init__(self, layout: Layout, network: Network) -> None:
        self._layout = layout
        self._network = network
        self._trees: dict[tuple[bytes | None, int], frozenset[int]] = {}
        self._joined = 0

    def of(self, group: bytes, vertex: int) -> frozenset[int]:
        """To those that joined; to all ranks if nobody did."""
        network = self._network
        if self._joined != network.joined:
            self._joined = network.joined
            self._trees.clear()
        members = network.members.get(group)
        key = group if members else None, vertex
        tree = self._trees.get(key)
        if tree is None:
            targets = None if members is None else sorted({network.seats[name].vertex for name in members})
            tree = self._trees[key] = frozenset(self._layout.tree(vertex, targets))
        return tree


def fabric(clock: Clock, cabling: Cabling, stations: Mapping[str, Station], capture: Capture | None = None) -> Network:
    """Switches and stations as `cabling.layout` says. Raises `LocalError` for PFC, which only a single switch does."""
    layout = cabling.layout
    hosts = {name: station for name, station in stations.items() if station.at is None}
    inner = {name: station for name, station in stations.items() if station.at is not None}
    if layout is None or layout.size != len(hosts):
        size = "none" if layout is None else f"one for {layout.size} stations"
        raise LocalError("layout", size, f"one for {len(hosts)} stations")
    if cabling.pfc is not None:
        raise LocalError("pfc", f"is not done between switches, topology {layout.kind} has several", "switch")
    network = Network()
    vertices = {mac_bytes(station): rank for rank, station in enumerate(hosts.values())}
    trees = _Trees(layout, network)
    ways = [_Ways(layout, layout.size + number, vertices, trees) for number in range(len(layout.switches))]
    for name, beyond in zip(layout.switches, ways, strict=True):
        network.switches[name] = new_switch(cabling, name, capture, beyond)
    switches = list(network.switches.values())
    seats = {}
    for rank, (name, station) in enumerate(hosts.items()):
        seats[name] = Seat(switches[layout.neighbour(rank) - layout.size], mac_bytes(station), rank)
    for name, station in inner.items():
        switch, mac = switch_at(network, name, station), mac_bytes(station)
        vertices[mac] = layout.size + switches.index(switch)
        seats[name] = Seat(switch, mac, vertices[mac])
    for name, station in stations.items():
        seat = seats[name]
        port = add_station(clock, cabling, network, name, station, seat.switch, capture, leaf=seat.switch.name)
        add_port(clock, cabling, network, name, station, seat, port, capture)
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
        raise LocalError("trunk_rate", "None", "bits a second of the cables between switches")
    link = new_link(clock, cabling, cabling.trunk_rate, network.switches[target], cabling.delay)
    network.hops.append(Hop(source, target, link))
    name = f"{source} > {target}"
    marker = None
    if cabling.red is not None:
        if cabling.trunk_rng is None:
            raise LocalError("trunk_rng", "None; legal with red: what makes a seeded generator for a queue")
        marker = network.markers[name] = Marker(cabling.red, cabling.trunk_rng(name), fates_of(capture))
    network.trunks[name] = queue = OutputQueue(
        clock,
        link,
        capacity=cabling.queue_capacity,
        level_of=level_by(cabling.dscp),
        marker=marker,
        size_of=cabling.size_of,
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
