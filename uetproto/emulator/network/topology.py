"""Nodes joined: around one switch, two of them by a cable, or by a wire that waits for a script; `fabrics`: the rest.

On its way from a node a frame passes its NIC, its gate (with PFC), a tap (if any), the link, faults (if any), then the
switch and its output queue, the link to the other node, a tap, the gate and the NIC there.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from uetproto.emulator.network.clock import Clock
from uetproto.emulator.network.faults import Faults, FaultyPort
from uetproto.emulator.network.frame_outcome import Fates
from uetproto.emulator.network.layouts import Layout
from uetproto.emulator.network.link import Link, Port, Sender
from uetproto.emulator.network.nic import Nic
from uetproto.emulator.network.payload import MeteredLink
from uetproto.emulator.network.pfc import Gate, Ingress, Pauser, Pfc, check_capacity
from uetproto.emulator.network.queue import OutputQueue, level_by
from uetproto.emulator.network.red import Marker, Red
from uetproto.emulator.network.scripted_wire import ScriptedWire
from uetproto.emulator.network.switch import MOST_GROUPS, Beyond, Switch, check_group
from uetproto.emulator.network.tap import Capture, InTap, OutTap
from uetproto.engine.contract import Engine, Rng
from uetproto.errors import LocalError
from uetproto.framing.dscp import Dscp
from uetproto.framing.framer import Framer, mac_of


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
    at: str | None = None
    """The switch of which it is part, as an aggregation node is: joined by an inner port. None: a host, where the
    layout puts it."""


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
    payload_of: Callable[[bytes], int] | None = None
    """Links also count payload; None: they do not, and are faster."""
    inner_delay: int = 100_000
    """Of inner ports, picoseconds."""
    most_groups: int = MOST_GROUPS
    """Multicast groups that a switch holds."""
    size_of: Callable[[bytes], int] = len
    """Bytes of a frame; of one that is not encoded too (`objects`)."""

    def delay_of(self, station: Station) -> int:
        """Of its cable, or of its inner port."""
        return self.delay if station.at is None else self.inner_delay


class Hop(NamedTuple):
    """One direction of a cable: its link counts frames and bytes."""

    source: str
    target: str
    link: Link

    @property
    def payload(self) -> int:
        """Bytes of it that went over the link; 0 without `Cabling.payload_of`."""
        return self.link.payload if isinstance(self.link, MeteredLink) else 0


class Seat(NamedTuple):
    """Where a station is."""

    switch: Switch
    mac: bytes
    vertex: int
    """Of the layout: the rank, or for an inner station its switch; 0 without a layout."""


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
    """All links, those to and from the nodes among them, but for those of inner ports."""
    inner_hops: list[Hop] = field(default_factory=list)
    """To and from inner stations: no packet crosses a cable there."""
    seats: dict[str, Seat] = field(default_factory=dict)
    """Stations at switches."""
    members: dict[bytes, set[str]] = field(default_factory=dict)
    """Who joined each group, by its MAC address."""
    joined: int = 0
    """How often somebody has joined or left."""
    trunks: dict[str, OutputQueue] = field(default_factory=dict)
    """Queues from switch to switch, by names as in "leaf0 > spine1"."""
    markers: dict[str, Marker] = field(default_factory=dict)
    """With RED, of the queue towards each node, and from switch to switch."""
    ingresses: dict[str, Ingress] = field(default_factory=dict)
    """With PFC, the port of the switch at which each node is."""
    gates: dict[str, Gate] = field(default_factory=dict)
    """With PFC, between each node and its link."""
    wire: ScriptedWire | None = None

    def join(self, group: bytes, station: str) -> None:
        """From now on frames to the group, a MAC address, come to those that joined only, over a tree to them.

        Raises `LocalError` for what is no group, for nobody, and where a switch holds as many groups as it can.
        """
        seat = self._seat(group, station)
        if seat is None:
            return
        for switch in self.switches.values():
            if not switch.has_room(group):
                raise LocalError(
                    "group", f"{switch.name} holds {len(switch.groups)} of them", f"at most {switch.most_groups}"
                )
        for switch in self.switches.values():
            switch.hold(group)
        seat.switch.join(group, seat.mac)
        self.members.setdefault(group, set()).add(station)
        self._renew()

    def leave(self, group: bytes, station: str) -> None:
        """The switches forget a group that everybody has left. Raises `LocalError` for who has not joined."""
        seat = self._seat(group, station)
        if seat is None:
            return
        members = self.members.get(group, set())
        if station not in members:
            raise LocalError("station", f"{station} has not joined {group.hex(':')}", _names(members))
        members.remove(station)
        seat.switch.leave(group, seat.mac)
        if not members:
            del self.members[group]
            for switch in self.switches.values():
                switch.forget(group)
        self._renew()

    def _seat(self, group: bytes, station: str) -> Seat | None:
        """None where no switch is, and all is for everybody."""
        check_group(group)
        if station not in self.nics:
            raise LocalError("station", f"there is no {station}", _names(self.nics))
        return self.seats.get(station)

    def _renew(self) -> None:
        self.joined += 1
        for switch in self.switches.values():
            switch.renew()


def _names(names: Iterable[str]) -> str:
    return ", ".join(sorted(names)) or "nobody"


class _Entrance:
    """A port whose other side is known only when all is built."""

    sink: Port

    def take(self, frame: bytes) -> None:
        self.sink.take(frame)


def star(clock: Clock, cabling: Cabling, stations: Mapping[str, Station], capture: Capture | None = None) -> Network:
    """All around one switch. Raises `LocalError` for queues in which PFC has no headroom."""
    network = Network()
    network.switch = switch = new_switch(cabling, "switch", capture)
    network.switches[switch.name] = switch
    pauser = None
    if cabling.pfc is not None:
        _check_headroom(cabling, cabling.pfc, stations)
        pauser = Pauser(clock, cabling.pfc, cabling.dscp)
    for name, station in stations.items():
        if station.at is not None:
            switch_at(network, name, station)
        port = add_station(clock, cabling, network, name, station, switch, capture, cabling.pfc)
        add_port(clock, cabling, network, name, station, Seat(switch, mac_bytes(station), 0), port, capture, pauser)
    return network


def switch_at(network: Network, name: str, station: Station) -> Switch:
    """Of which an inner station is part. Raises `LocalError` if there is none of this name."""
    if station.at not in network.switches:
        legal = ", ".join(network.switches) or "a topology with switches"
        raise LocalError("at", f"{name} is at {station.at}", legal)
    return network.switches[station.at]


def add_port(
    clock: Clock, cabling: Cabling, network: Network, name: str, station: Station, seat: Seat, port: Port,
    capture: Capture | None, pauser: Pauser | None = None,
) -> None:  # fmt: skip
    """The port of its switch to a station, whose frames `port` takes."""
    inner = station.at is not None
    down = link_to(clock, cabling, station, tapped(clock, port, station, capture))
    (network.inner_hops if inner else network.hops).append(Hop(seat.switch.name, name, down))
    network.queues[name] = queue = OutputQueue(
        clock,
        down,
        capacity=cabling.queue_capacity,
        level_of=level_by(cabling.dscp),
        marker=marker_to(cabling, network, name, station, capture),
        ledger=pauser,
        size_of=cabling.size_of,
    )
    seat.switch.attach(seat.mac, queue, name=name, inner=inner)
    network.seats[name] = seat
    if pauser is not None:
        network.ingresses[name] = pauser.attach(seat.mac, queue.ahead, down.duration)


def new_switch(cabling: Cabling, name: str, capture: Capture | None, beyond: Beyond | None = None) -> Switch:
    return Switch(
        dscp=cabling.dscp,
        trimming=cabling.trimming,
        fates=fates_of(capture),
        name=name,
        beyond=beyond,
        most_groups=cabling.most_groups,
        size_of=cabling.size_of,
    )


def mac_bytes(station: Station) -> bytes:
    return mac_of(station.address).to_bytes(6, "big")


def pair(clock: Clock, cabling: Cabling, stations: Mapping[str, Station], capture: Capture | None = None) -> Network:
    """Two nodes and a cable."""
    _no_inner("pair", stations)
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
    _no_inner("scripted", stations)
    network = Network()
    network.wire = wire = ScriptedWire(clock, cabling.dscp, fates_of(capture))
    for name, station in stations.items():
        link: Sender = wire
        if capture is not None and station.tap is not None:
            link = OutTap(link, capture, station.tap)
        network.nics[name] = nic = Nic(clock, station.engine, station.framer, link, station.on_event)
        wire.attach(mac_of(station.address).to_bytes(6, "big"), tapped(clock, nic, station, capture))
    return network


def _no_inner(topology: str, stations: Mapping[str, Station]) -> None:
    for name, station in stations.items():
        if station.at is not None:
            raise LocalError("at", f"{name} is at {station.at}", f"none, topology {topology} has no switches")


def link_to(clock: Clock, cabling: Cabling, station: Station, sink: Port) -> Link:
    """To or from a node."""
    return new_link(clock, cabling, station.rate, sink, cabling.delay_of(station))


def new_link(clock: Clock, cabling: Cabling, rate: int, sink: Port, delay: int) -> Link:
    if cabling.payload_of is None:
        return Link(clock, sink, rate=rate, delay=delay, mtu=cabling.mtu, size_of=cabling.size_of)
    return MeteredLink(
        clock, sink, cabling.payload_of, rate=rate, delay=delay, mtu=cabling.mtu, size_of=cabling.size_of
    )


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
        raise LocalError("red_rng", f"{name} has none; legal with red: a seeded generator for each station")
    network.markers[name] = marker = Marker(cabling.red, station.red_rng, fates_of(capture))
    return marker


def _check_headroom(cabling: Cabling, pfc: Pfc, stations: Mapping[str, Station]) -> None:
    """All but one may send to that one."""
    shares = sorted(pfc.most(rate=s.rate, delay=cabling.delay_of(s), mtu=cabling.mtu) for s in stations.values())
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
    (network.hops if station.at is None else network.inner_hops).append(Hop(name, leaf, wire))
    link: Sender = wire
    if capture is not None and station.tap is not None:
        link = OutTap(link, capture, station.tap)
    gate = None
    if pfc is not None:
        link = network.gates[name] = gate = Gate(clock, link, wire.duration, pfc, cabling.dscp)
    network.nics[name] = nic = Nic(clock, station.engine, station.framer, link, station.on_event, gate)
    return nic if gate is None else gate
