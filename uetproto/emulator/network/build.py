# SPDX-License-Identifier: GPL-2.0-only
"""This module builds a network from its parameters and its nodes, for any application.

A frame passes first the NIC of its sender, the gate (with PFC), a tap, the link and the faults. Then it passes the
switch and one of its output queues. At last it passes the link to the receiver, a tap, the gate and the NIC of the
receiver.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple, Protocol, cast

from uetproto.emulator.network.built import BuiltNetwork, LinkHop, SwitchPort
from uetproto.emulator.network.clock import Clock
from uetproto.emulator.network.config import NetworkConfig, NodeAttachment
from uetproto.emulator.network.layouts import LAYOUTS, cables_between_switches
from uetproto.emulator.network.message_port import MessagePort
from uetproto.emulator.network.nic import Nic
from uetproto.emulator.network.payload import MeteredLink, PayloadSize
from uetproto.emulator.network.pfc import PauseGate, Pauser, Pfc, TrunkPort
from uetproto.emulator.network.ports import PortLinks, PortQueues, port_names, port_obstacle
from uetproto.emulator.network.routing import LayoutRouting, MulticastTrees
from uetproto.emulator.network.scripted_wire import ScriptedWire
from uetproto.emulator.network.switch import Routing, Switch
from uetproto.emulator.network.tap import FrameWriter, InTap, OutTap, TapCapture
from uetproto.emulator.network.train_port import ExpectedFrames, TrainPort
from uetproto.emulator.network.vlan import size_with_tag
from uetproto.engine.contract import SECOND, Rng
from uetproto.engine.train import LEAST, MessageEngine, TrainEngine
from uetproto.engine.train_splits import Split
from uetproto.errors import LocalError
from uetproto.framing.dscp import Dscp
from uetproto.framing.framer import SplitFramer, TrainFramer, mac_of
from uetproto.framing.sizes import ETHERNET_SIZE
from uetproto.framing.tss import SealingFramer
from uetproto.impair import unencoded_frames
from uetproto.impair.faults import FaultyPort
from uetproto.impair.frame_outcome import FrameOutcomes
from uetproto.impair.link import EmulatedLink, FrameReceiver, FrameSender, TrainSender
from uetproto.impair.queue import OutputQueue, SharedBuffer, UetQueue, levels_by
from uetproto.impair.red import Marker
from uetproto.impair.unencoded_frames import UnencodedFramer
from uetproto.wire.headers.ethernet import VLAN as VLAN_TAG

Nodes = Mapping[str, NodeAttachment]
Chance = Callable[[str, str], Rng]
"""Type of a function that returns a seeded random generator. Its arguments are the name of a node or queue, and what
the generator is for: "faults", "red" or "coin"."""


def build(
    clock: Clock, config: NetworkConfig, nodes: Nodes, *, dscp: Dscp, chance: Chance, writer: FrameWriter | None = None
) -> BuiltNetwork:
    """Build a network of `nodes`; frames that pass tapped ports are written to `writer`.

    `dscp` holds the DSCPs by which switches tell traffic classes apart. Raises `LocalError` for an illegal parameter.
    """
    build_topology = TOPOLOGIES[config.topology]
    _check_ports(config, nodes)
    if config.pfc is not None and config.queue_capacity is None:
        config = with_headroom(config, nodes.values())
    patience = None if config.topology == "scripted" else decision_time(config, nodes)
    capture = None if writer is None else TapCapture(clock, writer, patience)
    builder = _NetworkBuilder(clock, config, nodes, dscp, chance, capture)
    build_topology(builder)
    splits = builder.network.splits
    if config.trains == "on" and splits.keys() >= builder.network.nics.keys():
        why = "; ".join(dict.fromkeys(split.when for split in splits.values()))
        raise LocalError(
            "trains", f"on, but nothing in this network is a train: {why}", "auto, off", id="inconsistent-values"
        )
    builder.network.longest_flight = longest_flight(config, nodes)
    return builder.network


def _check_ports(config: NetworkConfig, nodes: Nodes) -> None:
    """Raise `LocalError` where nodes cannot have several ports."""
    ports = {name: node.ports for name, node in nodes.items()}
    obstacle = port_obstacle(ports, config.topology, pfc=config.pfc is not None)
    if obstacle is not None:
        raise LocalError("ports", f"{obstacle.node}: {obstacle.value}", obstacle.legal, id="wrong-ports")
    inner = next((name for name, node in nodes.items() if node.ports > 1 and node.at is not None), None)
    if inner is not None:
        raise LocalError("ports", f"{inner}: {ports[inner]}, within a switch", "1", id="wrong-ports")


def time_between(config: NetworkConfig) -> int:
    """Return the longest time in picoseconds that a frame needs from the first to the last switch of its path. It is 0
    if the network has at most one switch.
    """
    layout = config.layout
    if layout is None:
        return 0
    most = max(layout.hops(0, rank) for rank in range(layout.size)) - 2
    waiting = 3 * config.capacity + config.mtu
    return max(0, most) * (8 * SECOND * waiting // config.rate + config.delay)


def decision_time(config: NetworkConfig, nodes: Nodes) -> int:
    """Return the longest time in picoseconds from the first bit of a frame on the wire until faults and switches have
    handled the frame.
    """
    slowest = min(node.rate for node in nodes.values())
    held = 0
    for faults in (node.faults for node in nodes.values() if node.faults):
        held = max(held, faults.reorder_time if faults.reorder else 0, faults.delay_time if faults.delay else 0)
    time = 8 * SECOND * (config.mtu + ETHERNET_SIZE) // slowest + config.delay + held + 2  # 2 covers rounding
    time += time_between(config)
    inner = [node.rate for node in nodes.values() if node.at is not None]
    if inner:
        time += 8 * SECOND * (3 * config.capacity + config.mtu) // min(inner) + config.inner_delay
    return time


def longest_flight(config: NetworkConfig, nodes: Nodes) -> int:
    """Return the longest time in picoseconds that a frame can be under way, even through full queues and PFC pauses."""
    slowest = min(node.rate for node in nodes.values())
    paused = 0 if config.pfc is None else SECOND * 512 * config.pfc.quanta // slowest
    return 2 * decision_time(config, nodes) + 8 * SECOND * 3 * config.capacity // slowest + paused


class PlacedRate(Protocol):
    """This protocol has the attributes of a node that `headroom` reads."""

    @property
    def rate(self) -> int: ...
    @property
    def at(self) -> str | None: ...


class NodeRate(NamedTuple):
    """This record is a node as `headroom` reads it: the rate of its cable, and the switch that contains it."""

    rate: int
    at: str | None = None


def with_headroom(config: NetworkConfig, nodes: Iterable[PlacedRate]) -> NetworkConfig:
    """Return the configuration with queues that hold as much as the headroom of PFC needs."""
    if config.pfc is None:
        return config
    return replace(config, queue_capacity=max(config.capacity, headroom(config, config.pfc, nodes)))


def headroom(config: NetworkConfig, pfc: Pfc, nodes: Iterable[PlacedRate], *, shared: bool = False) -> int:
    """Return the largest number of bytes that may wait in one switch on their way to one neighbour.

    It is the sum of the numbers for all other neighbours (`Pfc.most`). With `shared`, return the largest number of
    bytes that may wait in one switch.
    """
    layout = config.layout
    switches: dict[str, list[int]] = {} if layout is None else {name: [] for name in layout.switches}
    hosts = 0
    for node in nodes:
        at = node.at
        if at is None:
            at = "" if layout is None else layout.name(layout.neighbour(hosts))
            hosts += 1
        delay = config.delay if node.at is None else config.inner_delay
        switches.setdefault(at if layout is not None else "", []).append(
            pfc.most(rate=node.rate, delay=delay, mtu=config.mtu)
        )
    for ends in cables_between_switches(layout).values():
        for end in ends:  # "leaf0 > spine1": a neighbour of spine1
            switches[end.partition(" > ")[2]].append(pfc.most(rate=config.rate, delay=config.delay, mtu=config.mtu))
    return max(sum(sorted(shares)[0 if shared else 1 :]) for shares in switches.values())


class DeferredRng:
    """A deferred random generator is made when it first draws, as most queues never draw."""

    __slots__ = ("_make", "getrandbits", "random")

    getrandbits: Callable[[int], int]
    random: Callable[[], float]

    def __init__(self, make: Callable[[], Rng]) -> None:
        self._make = make

    def __getattr__(self, name: str) -> Any:
        """Make the generator, whose functions replace this call from now on."""
        made = self._make()
        self.getrandbits, self.random = made.getrandbits, made.random
        return object.__getattribute__(self, name)


class _Forward:
    """A forward port passes frames on to `sink`, which is set when all parts are built."""

    sink: FrameReceiver

    def take(self, frame: bytes) -> None:
        self.sink.take(frame)


@dataclass
class _NetworkBuilder:
    clock: Clock
    config: NetworkConfig
    nodes: Nodes
    dscp: Dscp
    chance: Chance
    capture: TapCapture | None

    def __post_init__(self) -> None:
        config, capture = self.config, self.capture
        self.outcomes = FrameOutcomes() if capture is None else capture.outcomes
        self.network = BuiltNetwork(capture=capture)
        self._trunk_ports: dict[str, TrunkPort] = {}
        self._expected: ExpectedFrames = {}
        self._trunk_links: dict[str, EmulatedLink] = {}
        self._encodes = config.wire == "bytes"
        self._size_of: Callable[[bytes], int] = len if self._encodes else unencoded_frames.size_of
        self._mtu = config.mtu
        if config.vlan is not None:
            self._size_of, self._mtu = size_with_tag(self._size_of), config.mtu + VLAN_TAG.size
            if capture is not None:
                capture.on_cable = config.vlan.tagger(self.dscp)
            if config.pfc is not None and config.pfc.priority != config.vlan.priority:
                legal = f"{config.vlan.priority}, the priority of data"
                raise LocalError(
                    "pfc_priority", f"{config.pfc.priority} pauses no data", legal, id="inconsistent-values"
                )
        self._meter = PayloadSize(self.dscp, sharp=config.sharp) if config.metered else None
        self._payload_of = self._meter if self._encodes or self._meter is None else unencoded_frames.payload_of

    # Topologies

    def star(self) -> None:
        """Attach all nodes to one switch. Raises `LocalError` for queues in which PFC has no headroom."""
        network = self.network
        network.switch = switch = self._switch("switch")
        self._check_headroom()
        pauser = self._pauser()
        for name, node in self.nodes.items():
            if node.at is not None:
                self._switch_at(name, node)
            self._attach(name, node, SwitchPort(switch, mac_bytes(node), 0), pauser)

    def pair(self) -> None:
        """Join two nodes by a cable."""
        self._no_inner()
        ends = (_Forward(), _Forward())
        others = reversed(list(self.nodes))
        for (name, node), other, there, here in zip(self.nodes.items(), others, ends, reversed(ends), strict=True):
            nic = self._add_node(name, node, there, leaf=other)
            here.sink = self._tapped(node, nic)

    def scripted(self) -> None:
        """Join the nodes by a wire that keeps every frame until a script step takes it: no rate, delay or queues."""
        self._no_inner()
        self.network.wire = wire = ScriptedWire(self.clock, self.dscp, self.outcomes)
        for name, node in self.nodes.items():
            nic = Nic(self.clock, node.engine, node.framer, self._out_tap(node, cast(TrainSender, wire)), node.on_event)
            self.network.splits[name] = Split.SCRIPT
            self.network.nics[name] = nic
            wire.attach(mac_bytes(node), self._tapped(node, nic))

    def fabric(self) -> None:
        """Join switches and nodes as the layout says. Raises `LocalError` for queues in which PFC has no headroom."""
        network, layout = self.network, self.config.layout
        hosts = {name: node for name, node in self.nodes.items() if node.at is None}
        if layout is None or layout.size != len(hosts):
            size = "none" if layout is None else f"one for {layout.size} stations"
            raise LocalError("layout", size, f"one for {len(hosts)} stations", id="wrong-count")
        self._check_headroom()
        vertices = {mac_bytes(node): rank for rank, node in enumerate(hosts.values())}
        trees = MulticastTrees(layout, network)
        routings = [
            LayoutRouting(layout, layout.size + number, vertices, trees) for number in range(len(layout.switches))
        ]
        switches = [self._switch(name, routing) for name, routing in zip(layout.switches, routings, strict=True)]
        ports = {
            name: SwitchPort(switches[layout.neighbour(rank) - layout.size], mac_bytes(node), rank)
            for rank, (name, node) in enumerate(hosts.items())
        }
        for name, node in self.nodes.items():
            if node.at is not None:
                switch, mac = self._switch_at(name, node), mac_bytes(node)
                vertices[mac] = layout.size + switches.index(switch)
                ports[name] = SwitchPort(switch, mac, vertices[mac])
        pausers = {name: self._pauser() for name in layout.switches}
        for name, node in self.nodes.items():
            self._attach(name, node, ports[name], pausers[ports[name].switch.name])
        for number, (source, target) in enumerate(layout.links):
            if source >= layout.size and target >= layout.size:
                trunk = self._trunk(layout.name(source), layout.name(target), pausers)
                routings[source - layout.size].trunks[number] = trunk
        for name, port in self._trunk_ports.items():
            back = " > ".join(reversed(name.split(" > ")))
            network.ingresses[name] = port.lead(network.trunks[back], self._trunk_links[back].duration)

    def _check_headroom(self) -> None:
        config = self.config
        if config.pfc is None:
            return
        least, room = headroom(config, config.pfc, self.nodes.values()), config.capacity
        if room < least:
            raise LocalError(
                "queue_capacity", f"{room} bytes leave no headroom for pfc", f"{least} bytes and more",
                id="inconsistent-values"
            )  # fmt: skip
        buffer = None if config.rules is None else config.rules.shared_buffer
        if buffer is not None:
            least = headroom(config, config.pfc, self.nodes.values(), shared=True)
            if buffer < least:
                raise LocalError(
                    "shared_buffer", f"{buffer} bytes leave no headroom for pfc", f"{least} bytes and more",
                    id="inconsistent-values"
                )  # fmt: skip

    def _pauser(self) -> Pauser | None:
        return None if self.config.pfc is None else Pauser(self.clock, self.config.pfc, self.dscp)

    def _no_inner(self) -> None:
        for name, node in self.nodes.items():
            if node.at is not None:
                legal = f"none, topology {self.config.topology} has no switches"
                raise LocalError("at", f"{name} is at {node.at}", legal, id="unknown-place")

    # Parts

    def _switch(self, name: str, routing: Routing | None = None) -> Switch:
        rules = self.config.rules
        if rules is not None and rules.shared_buffer is not None:
            self.network.buffers[name] = SharedBuffer(rules.shared_buffer, rules.buffer_share)
        switch = self.network.switches[name] = Switch(
            dscp=self.dscp,
            trimming=self.config.trimming,
            outcomes=self.outcomes,
            name=name,
            routing=routing,
            most_groups=self.config.most_groups,
            size_of=self._size_of,
            flow_of=None if self._encodes else unencoded_frames.read_flow,
            salt=self.config.hash_salt,
        )
        return switch

    def _switch_at(self, name: str, node: NodeAttachment) -> Switch:
        """Return the switch that an inner node is part of. Raises `LocalError` for an unknown switch."""
        switches = self.network.switches
        if node.at not in switches:
            legal = ", ".join(switches) or "a topology with switches"
            raise LocalError("at", f"{name} is at {node.at}", legal, id="unknown-place")
        return switches[node.at]

    def _attach(self, name: str, node: NodeAttachment, port: SwitchPort, pauser: Pauser | None = None) -> None:
        network, switch, inner = self.network, port.switch, node.at is not None
        sink = self._tapped(node, self._add_node(name, node, switch, leaf=switch.name, with_pfc=pauser is not None))
        queues = []
        for end in port_names(name, node.ports):
            down = self._link(sink, node.rate, self._delay(node))
            (network.inner_hops if inner else network.hops).append(LinkHop(switch.name, end, down))
            queue = network.queues[end] = self._queue(end, switch.name, down, pauser)
            queues.append(queue)
            if isinstance(queue, UetQueue):
                queue.evict = partial(switch.trim_or_drop, queue)
            if pauser is not None:
                network.ingresses[end] = pauser.attach(port.mac, queue.ahead, down.duration)
        switch.attach(port.mac, queues[0] if node.ports == 1 else PortQueues(queues), name=name, inner=inner)
        network.seats[name] = port

    def _add_node(
        self, name: str, node: NodeAttachment, sink: FrameReceiver, *, leaf: str, with_pfc: bool = False
    ) -> FrameReceiver:
        """Add the NIC of a node and all parts between the NIC and `sink`, the switch `leaf`.

        Return the part that takes frames to the node.
        """
        clock, network = self.clock, self.network
        if node.faults:
            rng = self.chance(name, "faults")
            sink = network.faults[name] = FaultyPort(clock, sink, node.faults, rng, self.dscp, self.outcomes)
        wires = {end: self._link(sink, node.rate, self._delay(node)) for end in port_names(name, node.ports)}
        network.links |= wires
        hops = network.hops if node.at is None else network.inner_hops
        hops += [LinkHop(end, leaf, wire) for end, wire in wires.items()]
        wire, *others = wires.values()
        sender = self._out_tap(node, PortLinks((wire, *others)) if others else wire)
        link: TrainSender = sender
        gate = None
        if with_pfc and self.config.pfc is not None:
            link = network.gates[name] = gate = PauseGate(clock, link, wire.duration, self.config.pfc, self.dscp)
        framer = node.framer if self._encodes else UnencodedFramer(cast(SplitFramer, node.framer), self._meter)
        nic = Nic(clock, node.engine, framer, link, node.on_event, gate, node.ring)
        network.nics[name] = nic
        receiver = nic if self.config.trains == "off" else self._with_trains(name, nic, node, link)
        if gate is None:
            return receiver
        gate.port = receiver
        return gate

    def _with_trains(self, name: str, nic: Nic, node: NodeAttachment, link: TrainSender) -> FrameReceiver:
        """Return what takes frames to a NIC: its message port or its train port, if its engine and its framer know
        messages or trains."""
        engine, framer, split = node.engine, node.framer, None
        if not self._encodes:
            split = Split.OBJECTS
        elif not isinstance(framer, SealingFramer) and isinstance(engine, MessageEngine) and engine.use_messages():
            nic.messages = MessagePort(self.clock, nic, engine, self.outcomes.announced)
            if isinstance(engine, TrainEngine) and engine.tally.network is not None:
                self.network.splits[name] = engine.tally.network
            return nic.messages
        elif node.ring < LEAST:
            split = Split.CONGESTION_CONTROL
        elif not isinstance(engine, TrainEngine) or not isinstance(framer, TrainFramer):
            split = Split.ENGINE
        elif not engine.use_trains():
            split = engine.tally.network
        else:
            nic.trains = TrainPort(self.clock, nic, engine, framer, link, self._expected)
            return nic.trains
        assert split is not None
        self.network.splits[name] = split
        return nic

    def _trunk(self, source: str, target: str, pausers: Mapping[str, Pauser | None]) -> OutputQueue:
        """Add a port of a switch, and the link from it to another switch."""
        name = f"{source} > {target}"
        share = self.config.slow.get(name, 1)
        sink: FrameReceiver = self.network.switches[target]
        pauser = pausers[target]
        if pauser is not None and self.config.pfc is not None:
            sink = self._trunk_ports[name] = TrunkPort(self.clock, pauser, sink, self.config.pfc)
        link = self._trunk_links[name] = self._link(sink, self.config.rate // share, self.config.delay)
        self.network.hops.append(LinkHop(source, target, link))
        tap = None if self.capture is None else self.config.taps.get(name)
        port = link if self.capture is None or tap is None else OutTap(link, self.capture, tap, follows=False)
        queue = self.network.trunks[name] = self._queue(name, source, port, pausers[source], share)
        if isinstance(queue, UetQueue):
            queue.evict = partial(self.network.switches[source].trim_or_drop, queue, last_hop=False)
        return queue

    def _link(self, sink: FrameReceiver, rate: int, delay: int) -> EmulatedLink:
        mtu, size_of = self._mtu, self._size_of
        if self._payload_of is None:
            return EmulatedLink(self.clock, sink, rate=rate, delay=delay, mtu=mtu, size_of=size_of)
        return MeteredLink(self.clock, sink, self._payload_of, rate=rate, delay=delay, mtu=mtu, size_of=size_of)

    def _queue(
        self, name: str, switch: str, link: FrameSender, pauser: Pauser | None = None, share: int = 1
    ) -> OutputQueue:
        """Make an output queue of a switch."""
        marker, capacity = None, self.config.capacity // share
        if self.config.red is not None and (self.config.host_marks or name not in self.network.nics):
            red = self.config.red
            if share > 1:
                red = replace(red, kmin=red.kmin // share, kmax=red.kmax // share)
            marker = self.network.markers[name] = Marker(red, self._rng(name, "red"), self.outcomes)
        if self.config.rules is not None:
            return UetQueue(
                self.clock, link, self.config.rules, capacity=capacity, dscp=self.dscp, marker=marker,
                coin=self._rng(name, "coin"), observer=pauser, size_of=self._size_of,
                buffer=self.network.buffers.get(switch),
            )  # fmt: skip
        return OutputQueue(
            self.clock,
            link,
            capacity=capacity,
            levels=levels_by(self.dscp),
            marker=marker,
            observer=pauser,
            size_of=self._size_of,
        )

    def _rng(self, name: str, use: str) -> Rng:
        return DeferredRng(partial(self.chance, name, use))

    def _delay(self, node: NodeAttachment) -> int:
        return self.config.delay if node.at is None else self.config.inner_delay

    def _tapped(self, node: NodeAttachment, sink: FrameReceiver) -> FrameReceiver:
        return sink if self.capture is None or node.tap is None else InTap(self.clock, sink, self.capture, node.tap)

    def _out_tap(self, node: NodeAttachment, link: TrainSender) -> TrainSender:
        return link if self.capture is None or node.tap is None else OutTap(link, self.capture, node.tap)


TOPOLOGIES: dict[str, Callable[[_NetworkBuilder], None]] = {
    "switch": _NetworkBuilder.star,
    "pair": _NetworkBuilder.pair,
    "scripted": _NetworkBuilder.scripted,
    **dict.fromkeys(LAYOUTS, _NetworkBuilder.fabric),
}


def mac_bytes(node: NodeAttachment) -> bytes:
    """Return the MAC address of a node, in 6 bytes."""
    return mac_of(node.address).to_bytes(6, "big")
