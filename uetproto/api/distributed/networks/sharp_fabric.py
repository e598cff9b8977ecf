# SPDX-License-Identifier: GPL-2.0-only
"""This module adds aggregation nodes to a network of ranks, one in each switch, and a manager that configures them
(sharp.md §1.2, §4.2).

An aggregation node is a node of the emulated network with its own adapter or endpoint, so its messages are packets like
all others. MADs of the manager do not cross the network; they are delivered at once.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from uetproto.api.distributed.errors import invalid
from uetproto.api.network import MOST_PORTS, EmulatedNetwork, NetworkOptions, port_of
from uetproto.api.node import LocalNode
from uetproto.collectives.topology.graph import Topology
from uetproto.collectives.topology.kinds import topology
from uetproto.engine.sharp.carriers.carrier import Carrier, entropy_of
from uetproto.engine.sharp.carriers.station import SharpStation
from uetproto.engine.sharp.config import SharpConfig
from uetproto.engine.sharp.host.endpoint import SharpHost
from uetproto.engine.sharp.host.states import HostGroupState
from uetproto.engine.sharp.management import TrapRaised
from uetproto.engine.sharp.manager.agent import SharpAgent
from uetproto.engine.sharp.manager.aggregation_manager import DEFAULT_USER_DATA, SharpManager
from uetproto.engine.sharp.manager.grants import AttachPoint, JobGrant
from uetproto.engine.sharp.manager.trees import FabricGraph, FabricSwitch
from uetproto.engine.sharp.node.aggregation_node import SharpNode
from uetproto.engine.sharp.options import SharpOptions
from uetproto.errors import LocalError, shown
from uetproto.knobs import fits
from uetproto.textfile import read_bounded
from uetproto.wire.headers.sharp import LibsharpStatus

PRESETS = {"HCOLL_ENABLE_SHARP": "2", "SHARP_COLL_ENABLE_SAT": "1", "SHARP_COLL_IB_TIMEOUT": "10"}
"""Values that replace published defaults. With these values, a collective fails if the program requests SHARP by name
and SHARP cannot run; large vectors are streamed; and a lost packet is retransmitted before its operation is given up
(T_ost)."""

_AM_KEY = 0x53484152

_MOST_LABELS = (1 << 14) - 1
"""Number of flow labels that have different entropy values."""

E = TypeVar("E", SharpHost, SharpNode)


def settings(given: Any, cables: NetworkOptions, **carrier: tuple[Any, ...]) -> tuple[SharpConfig, SharpOptions] | None:
    """Return the parameters and options that `given`, the argument `sharp=`, selects.

    The result is None if `given` is None or False, as there are no aggregation nodes then. Otherwise `given` is True,
    or a dict whose keys are published option names and fields of `SharpConfig`. By default a job has a tree for each
    port of the hosts. `carrier` has the fields of `SharpConfig` that the transport restricts, with their legal values;
    the first value is the default. Raises `ArgumentError`, which states what is legal.
    """
    if given is None or given is False:
        return None
    if given is True:
        given = {}
    if not isinstance(given, Mapping) or not all(isinstance(name, str) for name in given):
        raise invalid(
            "sharp", repr(given), "True, or a dict of options such as SHARP_COLL_ENABLE_SAT or sat_chunk",
            id="wrong-type"
        )  # fmt: skip
    fields = {name: value for name, value in given.items() if name in SharpConfig.__dataclass_fields__}
    texts = {name: str(value) for name, value in given.items() if name not in fields}
    for name, legal in carrier.items():
        if fields.setdefault(name, legal[0]) not in legal:
            raise invalid(
                f"sharp: {name}", repr(fields[name]), f"{', '.join(map(str, legal))}, over this transport",
                id="not-with-transport"
            )  # fmt: skip
    trees = cables.ports if fits(cables.ports, range(1, MOST_PORTS + 1)) else 1  # the network refuses anything else
    options = SharpOptions.of(texts, PRESETS | {"SHARP_COLL_GROUPS_PER_COMM": str(trees)})
    return SharpConfig(**({"heartbeat": 0, "group_trim": options.group_trim} | fields)), options


class SharpFabric:
    """This class has the aggregation nodes, the SHARP hosts and the manager of an emulated network (`world`). The
    `SharpFabric` is made first; the network is then built from the result of `SharpFabric.specs`."""

    def __init__(
        self, config: SharpConfig, options: SharpOptions, carrier_of: Callable[[Any, Any, SharpOptions], Carrier],
        multicast: bool, unused: Sequence[str] = (),
    ) -> None:  # fmt: skip
        """Make the object. `carrier_of(engine, element, options)` returns a carrier, which moves SHARP messages, on an
        adapter or endpoint. `unused` has the options that have no effect on such carriers."""
        self.config = config
        self.options = options
        self.unused = tuple(name for name in unused if name in options.given)
        """Options that the user set and that have no effect over this transport."""
        self.multicast = multicast
        """Whether the carrier supports multicast."""
        self.hosts: dict[str, SharpHost] = {}
        self.nodes: dict[str, SharpNode] = {}
        self.carriers: dict[str, Carrier] = {}
        self.traps: list[tuple[str, TrapRaised]] = []
        """Traps, with the node that raised each."""
        self.ranks: list[LocalNode] = []
        self.world: EmulatedNetwork
        self.manager: SharpManager
        self.joined_from: int | None = None
        """Instant at which the first rank asked to join a group; None: none has."""
        self._agents: dict[int, SharpAgent] = {}
        self._names: dict[int, str] = {}
        self._carrier_of = carrier_of
        self._psn: Callable[[], int]
        self._labels = 0

    def specs(self, hosts: Sequence[str], cables: NetworkOptions, spec: Callable[..., Any]) -> dict[str, Any]:
        """Return the specifications of the nodes to build, which are the hosts and an aggregation node in every switch.
        `spec` is the class of the specifications."""
        layout = layout_of_cables(cables, len(hosts))
        switches = ("switch",) if layout is None else layout.switches
        return {
            **{name: spec(around=self._around(name, self.hosts, self._host)) for name in hosts},
            **{an_name(at): spec(at=at, around=self._around(an_name(at), self.nodes, self._node)) for at in switches},
        }

    def _host(self, _: Any) -> SharpHost:
        return SharpHost(len(self.hosts), self.config, self.options)

    def _node(self, engine: Any) -> SharpNode:
        return SharpNode(engine.address, self.config)

    def _around(self, name: str, elements: dict[str, E], make: Callable[[Any], E]) -> Callable[[Any], SharpStation]:
        """Return a function that makes a SHARP element (a host or a node) and puts it around an engine."""

        def around(engine: Any) -> SharpStation:
            element = elements[name] = make(engine)
            carrier = self.carriers[name] = self._carrier_of(engine, element, self.options)
            return SharpStation(engine, carrier)

        return around

    def start(
        self, world: EmulatedNetwork, ranks: Sequence[LocalNode], layout: Topology | None, psn: Callable[[], int]
    ) -> None:
        """Create the manager, and an agent for each aggregation node, in the emulated network `world`. The manager
        discovers the aggregation nodes later, when the first job begins."""
        self.world, self.ranks, self._psn = world, list(ranks), psn
        self._names = {
            port_guid(node, port): name for name, node in world.nodes.items() for port in range(node.ports)
        }  # fmt: skip
        for name, node in self.nodes.items():
            self._agents[world.nodes[name].address] = SharpAgent(node, self.carriers[name], _AM_KEY)
            world.nodes[name].listeners.append(self._trapped(name))
        by_switch = {node.at: node.address for node in world.nodes.values() if node.at is not None}
        self.manager = SharpManager(
            FabricGraph(list(_switches(self.ranks, layout, by_switch))), self._mad, self.config, self.options, _AM_KEY,
            psn=psn, roots=self._roots(),
        )  # fmt: skip
        self._started = False
        world.busy.append(self._awaits)

    def _roots(self) -> frozenset[int] | None:
        """Return the GUIDs in `root_guids_file`, which may name aggregation nodes instead; None: there is no file."""
        path = self.options.root_guids_file
        if not path:
            return None
        known = {name: self.world.nodes[name].address for name in self.nodes}
        roots = set()
        for line in read_bounded(path).decode(errors="replace").splitlines():
            text = line.partition("#")[0].strip()
            guid = known.get(text, _number(text))
            if guid in known.values():
                roots.add(guid)
            elif text:
                legal = ", ".join(f"{name} or {guid:#x}" for name, guid in known.items())
                raise invalid("sharp: root_guids_file", shown(text), legal, id="wrong-format")
        return frozenset(roots)

    def _trapped(self, name: str) -> Callable[[Any], None]:
        def event(event: Any) -> None:
            if isinstance(event, TrapRaised):
                self.traps.append((name, event))
                agent = self._agents[self.world.nodes[name].address]
                agent.trap(event)
                for mad in agent.traps():
                    self.manager.trap(mad)

        return event

    def _mad(self, an: int, data: bytes) -> bytes:
        if an not in self._agents or self._names[an] in self.world.dead:
            return b""
        return self._agents[an].handle(data, self.world.clock.now)

    def begin_job(self, ranks: Sequence[int]) -> JobGrant | LibsharpStatus:
        """Begin a job for a group of ranks; return its grant, or the status with which it is refused.

        The job has as many trees as `SHARP_COLL_GROUPS_PER_COMM` says; they use the ports of the hosts in turn.
        """
        if not self._started:
            self._started = True
            self.manager.start()
        for an in [an for an in self.manager.ans if self._names[an] in self.world.dead]:
            self.manager.an_died(an)
        options = self.options
        data = options.user_data or DEFAULT_USER_DATA
        if not options.group_is_target and not (
            self.multicast and options.mcast_target and self.config.multicasts(data)
        ):
            return LibsharpStatus.MCAST_TARGET
        members = [self.ranks[rank] for rank in ranks]
        return self.manager.begin_job([
            [port_guid(node, self.port_of(node, rail)) for node in members] for rail in range(options.groups_per_comm)
        ])  # fmt: skip

    def joins(self) -> None:
        """Note that a rank asks to join a group now; `joined_from` keeps the time of the first such request."""
        if self.joined_from is None:
            self.joined_from = self.world.clock.now

    def port_of(self, node: LocalNode, rail: int) -> int:
        """Return the number of the port that the host `node` uses for the rail (the tree) number `rail` of a job."""
        return rail % node.ports

    def connect(self, host: str, rail: int, place: AttachPoint) -> tuple[int, int]:
        """Connect a host to its leaf aggregation node `place`, for the tree of the rail `rail`. Return the ID of the
        tree and the number of the connection at the host."""
        carrier, node = self.carriers[host], self.world.nodes[host]
        own, theirs, label = self._psn(), self._psn(), self._label(node, rail)
        conn = carrier.allocate()
        carrier.connect(
            conn, address=place.an, remote=place.conn, own_psn=own, their_psn=theirs, now=self.world.clock.now,
            flow_label=label,
        )  # fmt: skip
        status = self.manager.connect(
            place, address=node.address, remote=conn, own_psn=theirs, their_psn=own, flow_label=label
        )
        if status != LibsharpStatus.OK:
            raise LocalError(
                "sharp", f"{host} to {self.name_of(place.an)}: {status.name} ({status.value})", id="sharp-failed"
            )
        return place.tree_id, conn

    def _label(self, node: LocalNode, rail: int) -> int:
        """Return a flow label whose entropy value selects the port of a rail; 0 if the host has a single port."""
        if node.ports == 1:
            return 0
        while True:
            self._labels = self._labels % _MOST_LABELS + 1
            if port_of(entropy_of(self._labels), node.ports) == self.port_of(node, rail):
                return self._labels

    def _awaits(self) -> bool:
        states = (HostGroupState.JOINING, HostGroupState.BUSY, HostGroupState.LEAVING)
        return any(group.state in states for host in self.hosts.values() for group in host.groups.values())

    def name_of(self, an: int) -> str:
        """Return the name of the node whose address is `an`, or one of whose ports has the GUID `an`."""
        return self._names.get(an, f"node {an:#x}")


def layout_of_cables(cables: NetworkOptions, hosts: int) -> Topology | None:
    """Return the topology that `cables` names, or None if the network is a single switch. Raises `ArgumentError` if the
    network has no switch."""
    if cables.topology == "pair":
        raise invalid("sharp", "topology pair", "a topology with switches", id="not-with-topology")
    if cables.topology == "switch":
        return None
    if not isinstance(cables.shape, Mapping):
        raise invalid("shape", repr(cables.shape), 'a dictionary such as {"hosts_per_leaf": 4}', id="wrong-type")
    shape: dict[str, Any] = dict(cables.shape)
    return topology(cables.topology, hosts, **shape)


def _number(text: str) -> int:
    """Return the number that a text says, or -1."""
    try:
        return int(text, 0)
    except ValueError:
        return -1


def an_name(switch: str) -> str:
    """Return the name of the aggregation node of a switch."""
    return f"an.{switch}"


def _switches(
    ranks: Sequence[LocalNode], layout: Topology | None, by_switch: Mapping[str, int]
) -> Iterable[FabricSwitch]:
    """Yield the switches as the manager sees them, whose GUIDs are addresses; the ports of a host are its planes."""
    planes = {port_guid(node, port): port for node in ranks for port in range(node.ports)}
    if layout is None:
        yield FabricSwitch(guid=by_switch["switch"], ports={}, hosts=dict(enumerate(planes, 1)), planes=planes)
        return
    for number, name in enumerate(layout.switches, layout.size):
        ends: list[tuple[bool, int]] = []
        for end in (layout.links[link].target for link in layout.leaving[number]):
            if end < layout.size:
                ends += [(True, port_guid(ranks[end], port)) for port in range(ranks[end].ports)]
            else:
                ends.append((False, by_switch[layout.name(end)]))
        yield FabricSwitch(
            guid=by_switch[name],
            ports={port: guid for port, (is_host, guid) in enumerate(ends, 1) if not is_host},
            hosts={port: guid for port, (is_host, guid) in enumerate(ends, 1) if is_host},
            planes=planes,
        )


def port_guid(node: LocalNode, port: int) -> int:
    """Return the GUID of a host's port; the GUID of the first port is the address of the host."""
    return port << 128 | node.address
