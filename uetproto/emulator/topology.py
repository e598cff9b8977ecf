"""Nodes joined: around one switch, two of them by a cable, or by a wire that waits for a script; `fabrics`: the rest.

On its way from a node a frame passes its NIC, its gate (with PFC), a tap (if any), the link, faults (if any), then the
switch and its output queue, the link to the other node, a tap, the gate and the NIC there.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from uetproto.emulator.clock import Clock
from uetproto.emulator.fates import Fates
from uetproto.emulator.faults import Faults, FaultyPort
from uetproto.emulator.framing import Framer, mac_of
from uetproto.emulator.layouts import Layout
from uetproto.emulator.link import Link, Port, Sender
from uetproto.emulator.nic import Nic
from uetproto.emulator.payload import MeteredLink, PayloadSize
from uetproto.emulator.pfc import Gate, Ingress, Pauser, Pfc, check_capacity
from uetproto.emulator.queue import OutputQueue
from uetproto.emulator.red import Marker, Red
from uetproto.emulator.steps import ScriptedWire
from uetproto.emulator.switch import Dscp, Switch
from uetproto.emulator.tap import Capture, InTap, OutTap
from uetproto.engine.contract import Engine, Rng
from uetproto.errors import LocalError


@dataclass(frozen=True, slots=True, kw_only=True)
class Station:
    """A node to be joined. `tap`: the interface of the capture to which its port is written; None: not tapped."""

    address: int
    rate: int
    """Of its cable, bits a second, both ways."""
    engine: Engine
    framer: Framer
    on_event: Callable[[Any], None]
    tap: int | None = None
    faults: Faults | None = None
    rng: Rng
    """Chance for the faults."""
    red_rng: Rng | None = None
    """Chance for the marks of the queue towards it; needed with `Cabling.red`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cabling:
    """What is the same for all links, NICs and ports."""

    delay: int
    mtu: int
    queue_capacity: int
    trimming: bool
    dscp: Dscp
    """Traffic classes, which the switch tells apart."""
    red: Red | None = None
    """The queues of the switch mark packets; None: they do not."""
    pfc: Pfc | None = None
    """The switch pauses stations, data only, and they heed it; None: neither."""
    layout: Layout | None = None
    """Of several switches; rank i is the i-th station."""
    trunk_rate: int | None = None
    """Of each cable between switches, bits a second."""
    trunk_rng: Callable[[str], Rng] | None = None
    """Chance for the marks of a queue between switches, by its name; needed with `red`."""
    payload_of: PayloadSize | None = None
    """Links also count payload; None: they do not, and are faster."""


class Hop(NamedTuple):
    """One direction of a cable: its link counts frames and bytes."""

    source: str
    target: str
    link: Link

    @property
    def payload(self) -> int:
        """Bytes of it that went over the link; 0 without `Cabling.payload_of`."""
        return self.link.payload if isinstance(self.link, MeteredLink) else 0


@dataclass(slots=True)
class Network:
    """What was built."""

    nics: dict[str, Nic] = field(default_factory=dict)
    links: dict[str, Link] = field(default_factory=dict)
    """From each node."""
    faults: dict[str, FaultyPort] = field(default_factory=dict)
    queues: dict[str, OutputQueue] = field(default_factory=dict)
    """Towards each node."""
    switch: Switch | None = None
    """If there is one."""
    switches: dict[str, Switch] = field(default_factory=dict)
    hops: list[Hop] = field(default_factory=list)
    """All links, those to and from the nodes among them."""
    trunks: dict[str, OutputQueue] = field(default_factory=dict)
    """Queues from switch to switch, by names as in "leaf0 > spine1"."""
    markers: dict[str, Marker] = field(default_factory=dict)
    """With RED, of the queue towards each node, and from switch to switch."""
    ingresses: dict[str, Ingress] = field(default_factory=dict)
    """With PFC, the port of the switch at which each node is."""
    gates: dict[str, Gate] = field(default_factory=dict)
    """With PFC, between each node and its link."""
    wire: ScriptedWire | None = None


class _Entrance:
    """A port whose other side is known only when all is built."""

    sink: Port

    def take(self, frame: bytes) -> None:
        self.sink.take(frame)


def star(clock: Clock, cabling: Cabling, stations: Mapping[str, Station], capture: Capture | None = None) -> Network:
    """All around one switch. Raises `LocalError` for queues in which PFC has no headroom."""
    network = Network()
    network.switch = switch = Switch(dscp=cabling.dscp, trimming=cabling.trimming, fates=fates_of(capture))
    network.switches[switch.name] = switch
    pauser = None
    if cabling.pfc is not None:
        _check_headroom(cabling, cabling.pfc, stations)
        pauser = Pauser(clock, cabling.pfc, cabling.dscp)
    for name, station in stations.items():
        port = add_station(clock, cabling, network, name, station, switch, capture, cabling.pfc)
        down = link_to(clock, cabling, station, tapped(clock, port, station, capture))
        network.hops.append(Hop(switch.name, name, down))
        network.queues[name] = queue = OutputQueue(
            clock,
            down,
            capacity=cabling.queue_capacity,
            level_of=switch.dscp.level,
            marker=marker_to(cabling, network, name, station, capture),
            ledger=pauser,
        )
        mac = mac_of(station.address).to_bytes(6, "big")
        switch.attach(mac, queue)
        if pauser is not None:
            network.ingresses[name] = pauser.attach(mac, queue.ahead, down.duration)
    return network


def pair(clock: Clock, cabling: Cabling, stations: Mapping[str, Station], capture: Capture | None = None) -> Network:
    """Two nodes and a cable."""
    network = Network()
    entrances = (_Entrance(), _Entrance())
    others = reversed(list(stations))
    for (name, station), other, there, here in zip(
        stations.items(), others, entrances, reversed(entrances), strict=True
    ):
        nic = add_station(clock, cabling, network, name, station, there, capture, leaf=other)
        here.sink = tapped(clock, nic, station, capture)
    return network


def scripted(
    clock: Clock, cabling: Cabling, stations: Mapping[str, Station], capture: Capture | None = None
) -> Network:
    """A wire that keeps every frame until a step takes it: no rate, no delay, no queues."""
    network = Network()
    network.wire = wire = ScriptedWire(clock, cabling.dscp, fates_of(capture))
    for name, station in stations.items():
        link: Sender = wire
        if capture is not None and station.tap is not None:
            link = OutTap(link, capture, station.tap)
        network.nics[name] = nic = Nic(clock, station.engine, station.framer, link, station.on_event)
        wire.attach(mac_of(station.address).to_bytes(6, "big"), tapped(clock, nic, station, capture))
    return network


def link_to(clock: Clock, cabling: Cabling, station: Station, sink: Port) -> Link:
    """To or from a node."""
    return new_link(clock, cabling, station.rate, sink)


def new_link(clock: Clock, cabling: Cabling, rate: int, sink: Port) -> Link:
    if cabling.payload_of is None:
        return Link(clock, sink, rate=rate, delay=cabling.delay, mtu=cabling.mtu)
    return MeteredLink(clock, sink, cabling.payload_of, rate=rate, delay=cabling.delay, mtu=cabling.mtu)


def tapped(clock: Clock, port: Port, station: Station, capture: Capture | None) -> Port:
    """What takes the frames that come to a node."""
    return port if capture is None or station.tap is None else InTap(clock, port, capture, station.tap)


def fates_of(capture: Capture | None) -> Fates:
    """To whom faults and switch tell what they do."""
    return Fates() if capture is None else capture.fates


def marker_to(
    cabling: Cabling, network: Network, name: str, station: Station, capture: Capture | None
) -> Marker | None:
    """Of the queue towards a node."""
    if cabling.red is None:
        return None
    if station.red_rng is None:
        raise LocalError(f"red_rng: {name} has none; legal with red: a seeded generator for each station")
    network.markers[name] = marker = Marker(cabling.red, station.red_rng, fates_of(capture))
    return marker


def _check_headroom(cabling: Cabling, pfc: Pfc, stations: Mapping[str, Station]) -> None:
    """All but one may send to that one."""
    shares = sorted(pfc.most(rate=s.rate, delay=cabling.delay, mtu=cabling.mtu) for s in stations.values())
    check_capacity(cabling.queue_capacity, shares[1:])


def add_station(
    clock: Clock,
    cabling: Cabling,
    network: Network,
    name: str,
    station: Station,
    sink: Port,
    capture: Capture | None,
    pfc: Pfc | None = None,
    *,
    leaf: str = "switch",
) -> Port:
    """The node's NIC, and all between it and `sink`, which is called `leaf`.

    Returns what takes frames that come to the node.
    """
    if station.faults:
        sink = network.faults[name] = FaultyPort(
            clock, sink, station.faults, station.rng, cabling.dscp, fates_of(capture)
        )
    network.links[name] = wire = link_to(clock, cabling, station, sink)
    network.hops.append(Hop(name, leaf, wire))
    link: Sender = wire
    if capture is not None and station.tap is not None:
        link = OutTap(link, capture, station.tap)
    gate = None
    if pfc is not None:
        link = network.gates[name] = gate = Gate(clock, link, wire.duration, pfc, cabling.dscp)
    network.nics[name] = nic = Nic(clock, station.engine, station.framer, link, station.on_event, gate)
    return nic if gate is None else gate
