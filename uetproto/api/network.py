# SPDX-License-Identifier: GPL-2.0-only
"""This module has the emulated networks of the APIs: connected nodes, each with an engine, in one virtual time.

`emulator.network` builds the clock, links, switches, faults, NICs and taps; no other module of the APIs imports it.
Virtual time advances only in `wait`, `advance` and `close`. A time is an integer, in picoseconds, or a text such as "10
us".
"""

import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, fields, replace
from ipaddress import ip_address
from typing import Any, Self

from uetproto.api.checks import ArgumentChecks
from uetproto.api.node import LocalNode, NodePlace
from uetproto.api.places import NetworkKeywords, PlaceSpec
from uetproto.emulator.congestion import CC_KEYS, OFF, SWITCH_KEYS, NetworkPlane, SwitchConfig, hops_of
from uetproto.emulator.network.build import build, headroom, with_headroom
from uetproto.emulator.network.clock import Clock
from uetproto.emulator.network.config import TRAINS, NetworkConfig, NetworkFeatures, NodeAttachment
from uetproto.emulator.network.layouts import LAYOUTS, Layout, cables_between_switches, layout_of, places_of
from uetproto.emulator.network.nic import RING
from uetproto.emulator.network.pfc import Pfc
from uetproto.emulator.network.ports import MOST_PORTS, port_names, port_obstacle, port_of
from uetproto.emulator.network.switch import MOST_GROUPS
from uetproto.emulator.network.vlan import Vlan
from uetproto.engine.contract import MICROSECOND, NEVER
from uetproto.engine.roce.ud import is_multicast
from uetproto.errors import LocalError, unfit
from uetproto.framing.dscp import Dscp
from uetproto.framing.framer import Framer
from uetproto.framing.roce import group_mac
from uetproto.framing.uet import Encapsulation
from uetproto.impair.faults import Faults
from uetproto.impair.red import Red
from uetproto.impair.unencoded_frames import NOT_ENCODED, WIRES
from uetproto.knobs import KeyType, keys_of
from uetproto.toml.values import BOOLEAN, BYTES, FAULTS, RATE, integer, one_of
from uetproto.toml.values import time as time_key
from uetproto.wire.capture.pcap import ETHERNET, open_writer

_TIME = time_key()
PORTS = integer(1, MOST_PORTS)
_OPTIONS = {
    "topology": one_of(("switch", "pair", *LAYOUTS)), "rate": RATE, "delay": _TIME, "mtu": integer(68, 65535),
    "ports": PORTS,
    "trimming": BOOLEAN, "metered": BOOLEAN, "sharp": BOOLEAN, "inner_delay": _TIME,
    "most_groups": integer(0, MOST_GROUPS), "wire": one_of(WIRES),
    "trains": one_of(TRAINS),
}  # fmt: skip
_FIRST = int(ip_address("10.0.0.1"))
BURST = 256
"""Number of events that are processed between two checks of a condition."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkOptions(NetworkFeatures):
    """This record describes an emulated network: what connects its nodes, which frames have faults, and which frames
    are captured."""

    shape: Mapping[str, int] | None = None
    """Parameters of the topology, such as {"hosts_per_leaf": 4, "spines": 2}, {"k": 4, "levels": 3} or
    {"gpus_per_node": 8}; None stands for the defaults."""
    rate: int | str = "400 Gb/s"
    """Rate of each cable: a number of bits per second, or a text."""
    ports: int = 1
    """Number of ports of each host's NIC, unless its `PlaceSpec.ports` is given; each port has a cable."""
    delay: int | str = MICROSECOND
    """Propagation delay of each cable: a number of picoseconds, or a text."""
    queue_capacity: int | str | None = None
    """Number of bytes that an output queue of a switch holds for each traffic class; None stands for 1 MiB, with PFC
    for what its headroom needs, if that is more, and with congestion control for a bandwidth-delay product."""
    inner_rate: int | str | None = None
    """Rate of the inner ports of a switch, which lead to the nodes that it contains; None stands for the sum of the
    rates of all cables of the switch."""
    inner_delay: int | str = "100 ns"
    """Propagation delay of the inner ports of a switch: a number of picoseconds, or a text."""
    cc: str | Mapping[str, Any] = OFF
    """Congestion control of UET: "nscc", "rccc", "nscc+rccc", or "off" (cms.md §3, §4), or a dictionary with the keys
    of `[cc]` in keys.md, such as {"algorithm": "nscc", "entropy_values": 16}. With it, each endpoint has the
    time-outs, and switches have the queues, that fit the network. It goes with `trimming`."""
    lb: str = "mixed"
    """Path selection with congestion control: "oblivious", "bitmap", "reps" or "mixed" (cms.md §5)."""
    switch: Mapping[str, Any] | None = None
    """Parameters of the switches (cms.md §7), by the keys of `[switch]` in keys.md, such as {"shared_buffer":
    "16 MiB"}. None: plain queues, or with congestion control the defaults of these keys."""
    vlan: Mapping[str, int] | None = None
    """VLAN tag of all frames on cables: `id`, and the priorities `priority` of data, `trimmed` and `control`, such as
    {"id": 100}. PFC pauses the priority of data. None: frames have no tag."""
    faults: Faults | Mapping[str, Any] | None = None
    """Faults of the frames that the nodes in `faults_from` send, as a `Faults` or as its keywords; None stands for no
    faults."""
    faults_from: Iterable[str] = "all"
    seed: int = 0
    """Seed of all random numbers; two runs with the same seed are equal."""
    capture: str | None = None
    """Name of a capture file, .pcapng or .pcap (also .gz), for the frames that pass the ports of the nodes in `taps`;
    with None nothing is captured."""
    taps: Iterable[str] | None = None
    """Places that are captured: names of nodes, for their ports, of cables between switches, such as "leaf0.spine1",
    both directions, and of switches, such as "leaf0", for all their cables; "all" nodes; or None for the first node
    alone. Each place is an interface of the capture."""

    @property
    def has_several_switches(self) -> bool:
        """Return whether the topology is one of several switches."""
        return self.topology in LAYOUTS

    @classmethod
    def of(cls, keywords: NetworkKeywords, **more: Any) -> Self:
        """Return the options that the keywords of a public constructor describe. Raises `TypeError` for an unknown
        keyword."""
        legal = NetworkKeywords.__annotations__
        for name in keywords:
            if name not in legal:
                raise TypeError(f"unexpected keyword argument {name!r}; legal: {', '.join(legal)}")
        return cls(**keywords, **more)


class EmulatedNetwork(ABC):
    """This class represents all nodes with their connections and their virtual time; it is a `contract.EndpointDriver`.
    Each transport has a subclass, which makes the nodes."""

    spec: type[PlaceSpec] = PlaceSpec
    """Class of the nodes' specifications."""
    checks: ArgumentChecks[Any, Any]
    legal_faults: Mapping[str, KeyType] = FAULTS
    has_congestion_contexts = False
    """Whether endpoints ask congestion control contexts."""
    nodes: Mapping[str, LocalNode]

    def __init__(
        self, nodes: Iterable[str] | Mapping[str, Any], options: NetworkOptions, *, dscp: Dscp, comment: str
    ) -> None:
        """Build the network. Raises the error of `invalid` for illegal arguments, `OSError` for the capture file."""
        self.plane: NetworkPlane | None
        """What the network is for congestion control, and for switches with queues by the rules of UET. None: there
        are neither."""
        checked = {name: self.checked(name, getattr(options, name), key) for name, key in _OPTIONS.items()}
        if options.queue_capacity is not None:
            checked["queue_capacity"] = self.checked("queue_capacity", options.queue_capacity, BYTES)
        red, pfc, capture = options.red, options.pfc, options.capture
        self.typed("seed", options.seed, int)
        for name, value, kind in (("capture", capture, str), ("red", red, Red), ("pfc", pfc, Pfc)):
            if value is not None:
                self.typed(name, value, kind)
        self.clock = Clock()
        self.seed = options.seed
        self.closed = False
        self.dead: set[str] = set()
        """Nodes that were killed."""
        self.killed: dict[str, None] = {}
        """Names that `kill` was given."""
        self.busy: list[Callable[[], bool]] = []
        """Functions that return whether an event is still expected, although all nodes are quiescent."""
        specs = self._specs(nodes)
        hosts = sum(spec.at is None for spec in specs.values())
        if hosts < 2 or (checked["topology"] == "pair" and hosts != 2):
            raise self.invalid("nodes", f"{hosts} nodes", "two at least, and two for a pair", id="wrong-count")
        layout = self._layout(checked["topology"], hosts, {} if options.shape is None else options.shape)
        self._check_inner(specs, checked["topology"], layout)
        self.plane = self._plane(options, checked, hops_of(layout, checked["topology"]))
        inner_rate = None if options.inner_rate is None else self.checked("inner_rate", options.inner_rate, RATE)
        ports = self._ports(specs, checked.pop("ports"))
        cables = {"switch": sum(ports.values())}
        if layout is not None:
            cables = {name: len(layout.leaving[at]) for at, name in enumerate(layout.switches, layout.size)}
            for rank, number in enumerate(ports.values()):
                cables[layout.name(layout.neighbour(rank))] += number - 1
        places = self._places(specs, checked["rate"], inner_rate, cables, ports)
        self.nodes = {place.name: self.node(place, specs[place.name]) for place in places}
        self._check_addresses(places)
        rules, host_marks = None, True
        if self.plane is not None:
            checked |= {"queue_capacity": self.plane.queue, "hash_salt": self.plane.switch.hash_salt}
            rules, red, host_marks = self.plane.rules, red or self.plane.red, self.plane.host_marks
        config = NetworkConfig(
            **checked, layout=layout, red=red, pfc=pfc, rules=rules, host_marks=host_marks,
            vlan=None if options.vlan is None else self._vlan(options.vlan, pfc),
        )  # fmt: skip
        self.check_mtu(config.mtu)
        faults = self._faults(Faults() if options.faults is None else options.faults)
        if config.wire == "objects":
            self._check_unencoded(options, faults)
        if pfc is not None:
            self._check_pfc(config, pfc, options.queue_capacity)
            if options.queue_capacity is None:
                config = with_headroom(config, self.nodes.values())
        obstacle = port_obstacle(dict.fromkeys(self.nodes, 1) | ports, config.topology, pfc=pfc is not None)
        if obstacle is not None:
            raise self.invalid(f"nodes[{obstacle.node!r}].ports", obstacle.value, obstacle.legal, id="wrong-ports")
        everybody = isinstance(options.faults_from, str) and options.faults_from == "all"
        at_risk = [
            name for name in self._members("faults_from", options.faults_from)
            if not everybody or self.nodes[name].at is None
        ]  # fmt: skip
        tapped = self._places_tapped(options.taps, layout)
        ends = cables_between_switches(layout)
        config = replace(config, taps={end: at for at, name in enumerate(tapped) for end in ends.get(name, ())})
        self._owned = ExitStack()
        writer = None
        if capture is not None:
            about = None if self.plane is None else self.plane.told
            interfaces = [
                (f"{name}.0", ETHERNET, about) if name in self.nodes else (name, ETHERNET, None) for name in tapped
            ]
            writer = self._owned.enter_context(open_writer(capture, comment=comment, interfaces=interfaces))
        attachments = {
            name: NodeAttachment(
                address=node.address,
                rate=node.rate,
                engine=node.engine,
                framer=self.framer(node),
                on_event=node.tell,
                tap=tapped.index(name) if name in tapped else None,
                faults=faults if name in at_risk else None,
                at=node.at,
                ports=node.ports,
                ring=1 if self.plane is not None and self.plane.controls else RING,
            )
            for name, node in self.nodes.items()
        }
        self.network = build(self.clock, config, attachments, dscp=dscp, chance=self.chance, writer=writer)
        for node in self.nodes.values():
            node.driver = self

    # Methods that the network of a transport defines

    @abstractmethod
    def node(self, place: NodePlace, spec: Any) -> LocalNode:
        """Make the node whose place in the network is `place`; `spec`, of the class `self.spec`, is its
        specification."""

    @abstractmethod
    def framer(self, node: Any) -> Framer:
        """Return the framer of a node that the method `node` has made; a framer encapsulates the packets of its
        node."""

    @abstractmethod
    def check_mtu(self, mtu: int) -> None:
        """Raise the error of `invalid` if the longest packet of any node is longer than `mtu` bytes."""

    @property
    @abstractmethod
    def stalled(self) -> bool:
        """Return whether every open operation waits for something that only the program can do, such as posting a
        receive."""

    @property
    @abstractmethod
    def full_packet(self) -> tuple[int, Encapsulation]:
        """Return the largest payload of a packet, and what is around it."""

    # Building

    def _plane(self, options: NetworkOptions, checked: Mapping[str, Any], hops: int) -> NetworkPlane | None:
        """Return what the network is for congestion control and switches. `checked` has the options of cables, and
        `hops` is the number of links on the longest path. Endpoints get the time-out of the plane, unless they have one
        that is not the default."""
        text = isinstance(options.cc, str)
        cc = self._chosen("cc", {"algorithm": options.cc} if text else options.cc, CC_KEYS)
        switch = self._chosen("switch", {} if options.switch is None else options.switch, SWITCH_KEYS)
        algorithm = cc.pop("algorithm", OFF)
        if algorithm == OFF and cc:
            raise self.invalid("cc", options.cc, "a dictionary with an algorithm", id="wrong-type")
        if algorithm != OFF and not self.has_congestion_contexts:
            raise self.invalid("cc", options.cc, OFF, id="not-with-protocol")
        if algorithm == OFF and options.switch is None:
            return None
        payload, how = self.full_packet
        name = "switch."
        try:
            config = SwitchConfig(**switch)
            name = "" if text else "cc."
            plane = NetworkPlane(
                rate=checked["rate"], delay=checked["delay"], hops=hops, how=how, trimming=checked["trimming"],
                payload_mtu=payload, algorithm=algorithm, lb=cc.get("lb", options.lb), switch=config, given=cc,
                capacity=checked.get("queue_capacity"),
            )  # fmt: skip
            plane.check()
        except LocalError as error:
            if error.name in SWITCH_KEYS:
                name = "switch."
            told = "cc" if error.name == "algorithm" else f"{name}{error.name}"
            given = cc | switch
            value = options.cc if error.name == "algorithm" else given.get(error.name, getattr(options, error.name, ""))
            raise self.invalid(told, value, error.legal, id=error.id) from None
        return plane

    def _vlan(self, given: Any, pfc: Pfc | None) -> Vlan:
        chosen = self._chosen("vlan", given, keys_of(Vlan))
        if "id" not in chosen:
            raise self.invalid("vlan", given, 'a dictionary such as {"id": 100}', id="wrong-type")
        if pfc is not None and chosen.setdefault("priority", pfc.priority) != pfc.priority:
            raise self.invalid(
                "vlan.priority", chosen["priority"], f"{pfc.priority}, the priority that PFC pauses",
                id="inconsistent-values"
            )  # fmt: skip
        try:
            return Vlan(**chosen)
        except LocalError as error:
            raise self.invalid(f"vlan.{error.name}", given[error.name], error.legal, id=error.id) from None

    def _chosen(self, name: str, given: Any, keys: Mapping[str, KeyType]) -> dict[str, Any]:
        """Return the checked parameters of a dictionary that an option is."""
        if not isinstance(given, Mapping):
            raise self.invalid(name, given, f"a dictionary with {', '.join(keys)}", id="wrong-type")
        for key in given:
            if key not in keys:
                raise self.invalid(f"{name}.{key}", given[key], f"{name} has {', '.join(keys)}", id="unknown-argument")
        return {key: self.checked(f"{name}.{key}", value, keys[key]) for key, value in given.items()}

    def _specs(self, nodes: Any) -> dict[str, Any]:
        """Return the specifications of the nodes, by name."""
        names = self._listed("nodes", nodes)
        specs = {name: nodes[name] if isinstance(nodes, Mapping) else self.spec() for name in names}
        for name, spec in specs.items():
            if not isinstance(spec, self.spec):
                self.typed(f"nodes[{name!r}]", spec, self.spec)
        return specs

    def _layout(self, topology: str, hosts: int, shape: Any) -> Layout | None:
        if not isinstance(shape, Mapping):
            raise self.invalid("shape", shape, 'a dictionary such as {"hosts_per_leaf": 4}', id="wrong-type")
        try:
            return layout_of(topology, hosts, shape)
        except LocalError as error:
            raise self.invalid(error.name, error.value, error.legal, id=error.id) from None

    def _check_inner(self, specs: Mapping[str, PlaceSpec], topology: str, layout: Layout | None) -> None:
        switches = {"switch": ("switch",), "pair": ()}.get(topology) or (() if layout is None else layout.switches)
        for name, spec in specs.items():
            if spec.at is not None and spec.at not in switches:
                legal = ", ".join(switches) or "a topology with switches"
                raise self.invalid(f"nodes[{name!r}].at", spec.at, legal, id="unknown-place")

    def _ports(self, specs: Mapping[str, PlaceSpec], default: int) -> dict[str, int]:
        """Return the number of ports of each host."""
        ports = {}
        for name, spec in specs.items():
            number = default if spec.ports is None else self.checked(f"nodes[{name!r}].ports", spec.ports, PORTS)
            if spec.at is None:
                ports[name] = number
            elif spec.ports not in (None, 1):
                raise self.invalid(
                    f"nodes[{name!r}].ports", spec.ports, "1, as the node is within a switch", id="wrong-ports"
                )
        return ports

    def _places(
        self, specs: Mapping[str, PlaceSpec], rate: int, inner_rate: int | None, cables: Mapping[str, int],
        ports: Mapping[str, int],
    ) -> list[NodePlace]:  # fmt: skip
        places = []
        for number, (name, spec) in enumerate(specs.items()):
            try:
                address = ip_address(_FIRST + number if spec.address is None else spec.address)
            except ValueError:
                raise self.invalid(
                    f"nodes[{name!r}].address", spec.address, "an IPv4 or IPv6 address", id="wrong-address"
                ) from None
            own_rate = rate
            if spec.at is not None:
                own_rate = inner_rate or rate * cables[spec.at]
            if spec.rate is not None:
                own_rate = self.checked(f"nodes[{name!r}].rate", spec.rate, RATE)
            places.append(NodePlace(name, int(address), address.version, own_rate, spec.at, ports.get(name, 1)))
        return places

    def _check_addresses(self, places: list[NodePlace]) -> None:
        if len({place.address & 0xFFFFFFFF for place in places}) < len(places):
            raise self.invalid(
                "nodes", "two addresses with the same last four bytes", "a different one for each node", id="duplicate"
            )
        if len({place.ip_version for place in places}) > 1:
            raise self.invalid("nodes", "IPv4 and IPv6", "one of them for all nodes", id="inconsistent-values")

    def _check_unencoded(self, options: NetworkOptions, faults: Faults) -> None:
        given = {name: bool(getattr(options, name)) for name in NOT_ENCODED}
        given["trimming"] = options.trimming and not self.has_congestion_contexts
        given |= {f"faults that {name}": bool(getattr(faults, name)) for name in ("corrupt", "trim")}
        for name, wanted in given.items():
            if wanted:
                raise self.invalid("wire", f"objects, with {name}", "bytes", id="wire-objects")

    def _check_pfc(self, config: NetworkConfig, pfc: Pfc, given: Any) -> None:
        if config.topology == "pair":
            raise self.invalid(
                "pfc", "topology pair", "a topology with switches: it is the switch that pauses", id="not-with-topology"
            )
        least = headroom(config, pfc, self.nodes.values())
        if given is not None and config.capacity < least:
            raise self.invalid("queue_capacity", given, f"{least} bytes, for pfc", id="inconsistent-values")
        buffer = None if config.rules is None else config.rules.shared_buffer
        if buffer is not None and buffer < (least := headroom(config, pfc, self.nodes.values(), shared=True)):
            raise self.invalid("switch.shared_buffer", buffer, f"{least} bytes, for pfc", id="inconsistent-values")

    def _members(self, name: str, chosen: Iterable[str]) -> tuple[str, ...]:
        members = tuple(self.nodes) if isinstance(chosen, str) and chosen == "all" else self._listed(name, chosen)
        for member in members:
            if member not in self.nodes:
                raise self.invalid(name, member, f"all, or some of {', '.join(self.nodes)}", id="unknown-node")
        return members

    def _places_tapped(self, chosen: Iterable[str] | None, layout: Layout | None) -> tuple[str, ...]:
        """Return the places that a capture is taken at. Raises the error of `invalid` for one that does not exist."""
        if chosen is None:
            return tuple(self.nodes)[:1]
        if isinstance(chosen, str) and chosen == "all":
            return tuple(self.nodes)
        hosts = tuple(name for name, node in self.nodes.items() if node.at is None)
        found: dict[str, None] = {}
        for name in self._listed("taps", chosen):
            if name in self.nodes:
                found[name] = None
                continue
            try:
                found |= dict.fromkeys(places_of(layout, name, hosts))
            except LocalError as error:
                raise self.invalid("taps", name, f"all, or some of {error.legal}", id=error.id) from None
        return tuple(found)

    def _listed(self, name: str, names: Any) -> tuple[str, ...]:
        """Return a list of names as a tuple; a text alone is no list."""
        found = tuple(names) if isinstance(names, Iterable) and not isinstance(names, str) else None
        if found is None or not all(isinstance(one, str) for one in found):
            raise self.invalid(name, names, 'a list of names, such as ("a", "b")', id="wrong-type")
        if len(set(found)) < len(found):
            raise self.invalid(name, names, "each name once", id="duplicate")
        return found

    def _faults(self, given: Faults | Mapping[str, Any]) -> Faults:
        """Return the faults, checked: shares or lists of frame numbers, and times."""
        if isinstance(given, Faults):
            told = [(part.name, getattr(given, part.name), part.default) for part in fields(Faults)]
            given = {name: list(v) if isinstance(v, frozenset) else v for name, v, default in told if v != default}
        if not isinstance(given, Mapping):
            raise self.invalid("faults", given, "Faults(...), or its keywords", id="wrong-type")
        for name in given:
            if name not in self.legal_faults:
                raise self.invalid("faults", name, ", ".join(self.legal_faults), id="unknown-argument")
        return Faults(**{name: self.checked(f"faults.{name}", value, FAULTS[name]) for name, value in given.items()})

    def checked(self, name: str, value: Any, key: KeyType) -> Any:
        """Check and convert `value` by `key`, and return the result. Raises the error of `invalid` for an illegal
        value."""
        try:
            return key.check(value)
        except ValueError:
            raise self.invalid(name, value, key.legal, id=unfit(value)) from None

    def invalid(self, name: str, value: Any, legal: str, *, id: str) -> LocalError:
        """Return the API's error for an illegal argument; the error states the argument's name, the illegal value and
        the legal values."""
        error: LocalError = self.checks.invalid(name, value, legal, id=id)
        return error

    def typed(self, name: str, value: Any, kind: type) -> None:
        """Raise the error of `invalid` if the type of `value` is not `kind`."""
        if type(value) is not kind:
            raise self.invalid(name, value, _KINDS.get(kind, f"{kind.__name__}(...)"), id="wrong-type")

    def chance(self, *component: str) -> random.Random:
        """Return a random generator for one component of the network. Each component has its own, so that the draws of
        one component do not change those of another."""
        return random.Random("/".join((str(self.seed), *component)))

    # Groups

    def join(self, group: int, node: str, port: int | None = None) -> None:
        """Join a node to a multicast group, whose address is given as a number; the switches then send frames of the
        group only to the nodes that have joined it.

        The frames reach the node at its port number `port`; with None the entropy value of each frame selects the port.
        If no node has joined a group, its frames go to all nodes. Raises the error of `invalid` if the address is no
        multicast address, if the node is unknown, or if a switch already has too many groups.
        """
        self._group(lambda mac, name: self.network.join(mac, name, port), group, node)

    def leave(self, group: int, node: str) -> None:
        """Remove a node from a multicast group that it has joined."""
        self._group(self.network.leave, group, node)

    def _group(self, change: Callable[[bytes, str], None], group: int, node: str) -> None:
        version = next(iter(self.nodes.values())).ip_version
        if not is_multicast(group, version):
            raise self.invalid("group", f"{group:#x}", f"a multicast address of IPv{version}", id="wrong-address")
        try:
            change(group_mac(group, version).to_bytes(6, "big"), node)
        except LocalError as error:
            raise self.invalid(error.name, error.value, error.legal, id=error.id) from None

    def kill(self, name: str) -> None:
        """Cut off a node, or a switch with all nodes within the switch: from now on all frames to it and from it are
        lost."""
        known = {*self.nodes, *self.network.switches}
        if name not in known:
            raise self.invalid("name", name, ", ".join(sorted(known)), id="unknown-node")
        self.killed[name] = None
        self.dead |= {node.name for node in self.nodes.values() if name in (node.name, node.at)}
        ends = {name, *(port_names(name, self.nodes[name].ports) if name in self.nodes else ())}
        for hop in (*self.network.hops, *self.network.inner_hops):
            if not ends.isdisjoint((hop.source, hop.target)):
                hop.link.cut()

    @property
    def obituary(self) -> str:
        """Return a text that names the nodes and switches that were killed, as the end of an error text; the text is
        empty if none were killed."""
        return f"; dead: {', '.join(self.killed)}" if self.killed else ""

    # Time

    @property
    def now(self) -> int:
        """Return the present virtual time in picoseconds."""
        return self.clock.now

    def submit(self, node: str, work: Any) -> None:
        """Pass a work request to the engine of a node, and send the packets that the engine then has ready."""
        self.network.nics[node].submit(work)

    def call_soon(self, action: Callable[[], None]) -> None:
        """Call `action` at the present instant, after the events that are being passed on now."""
        clock = self.clock

        def act(_: object) -> None:
            clock.settle()
            action()

        clock.at(clock.now, act)

    @property
    def idle(self) -> bool:
        """Return whether nothing more happens unless the program acts; timers of quiescent nodes are disregarded."""
        until = self.clock.next
        if until <= self.clock.now or any(busy() for busy in self.busy):
            return False
        if until <= self.clock.now + self.network.longest_flight:
            return not self._quiescent and self.stalled
        return self._quiescent or self.stalled

    @property
    def _quiescent(self) -> bool:
        return all(node.quiescent for node in self.nodes.values())

    def wake(self) -> None:
        """Make a running `wait` check its condition at once."""
        self.clock.stop()

    def wait(self, condition: Callable[[], bool], timeout: int | None = None, burst: int = BURST) -> bool:
        """Run virtual time until `condition()` is true, and return whether the condition is true at the end. The
        condition is checked every `burst` events and after each call of `wake`.

        The call returns after `timeout` picoseconds at the latest; with None it returns when nothing more happens
        unless the program acts (`idle`).
        """
        clock = self.clock
        limit = NEVER if timeout is None else clock.now + timeout
        while not condition():
            if clock.next > limit or clock.next == NEVER or (timeout is None and self.idle):
                if timeout is not None:
                    self.advance(limit - clock.now)
                return condition()
            clock.run(limit, burst)
        return True

    def advance(self, duration: int) -> None:
        """Let `duration` picoseconds pass."""
        self.clock.advance(duration)

    def close(self, drain: bool = True) -> None:
        """Close the network and complete its capture. If `drain` is True, frames in flight arrive first."""
        self.closed = True
        try:
            if drain:
                self.wait(lambda: False)
        finally:
            if self.network.capture is not None:
                self.network.capture.close()
                self.network.capture = None
            self._owned.close()


_KINDS: dict[type, str] = {int: "a whole number", str: "a text"}

__all__ = [
    "BURST", "FAULTS", "MOST_PORTS", "EmulatedNetwork", "Faults", "NetworkKeywords", "NetworkOptions",
    "NetworkPlane", "Pfc", "PlaceSpec", "Red", "port_of",
]  # fmt: skip
