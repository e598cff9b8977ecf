"""Aggregation nodes in the switches of a network of ranks, and their manager (sharp.md §1.2, §4.2).

An aggregation node is a node of the world that is part of a switch, with an adapter or endpoint of its own; so its
messages are packets like all others. MADs of the manager do not cross the network: they are handed over at once.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from uetproto.api.distributed_errors import invalid
from uetproto.api.world import Cables, Node, World
from uetproto.collectives.topology import Topology
from uetproto.collectives.topology_kinds import topology
from uetproto.engine.sharp_agent import SharpAgent
from uetproto.engine.sharp_carrier import Carrier
from uetproto.engine.sharp_config import SharpConfig
from uetproto.engine.sharp_host import SharpHost
from uetproto.engine.sharp_host_states import State
from uetproto.engine.sharp_manager import JobGrant, Place, SharpManager
from uetproto.engine.sharp_node import SharpNode, TrapRaised
from uetproto.engine.sharp_options import Options
from uetproto.engine.sharp_station import Station
from uetproto.engine.sharp_trees import Fabric, Switch
from uetproto.errors import LocalError
from uetproto.wire.sharp import LibsharpStatus

PRESETS = {"HCOLL_ENABLE_SHARP": "2", "SHARP_COLL_ENABLE_SAT": "1", "SHARP_COLL_IB_TIMEOUT": "10"}
"""Before the published defaults: who asks for SHARP by name is told when there is none; large vectors are streamed; and
a packet that is lost is sent again before its operation is given up (T_ost)."""

_AM_KEY = 0x53484152
SharpSettings = bool | Mapping[str, Any]
"""True, or options by their published names and fields of `SharpConfig`."""


def settings(given: Any) -> tuple[SharpConfig, Options] | None:
    """What `sharp=` means; None: no aggregation nodes. Raises `ArgumentError` naming what is legal."""
    if given is None or given is False:
        return None
    if given is True:
        given = {}
    if not isinstance(given, Mapping) or not all(isinstance(name, str) for name in given):
        raise invalid("sharp", repr(given), "True, or a dict of options such as SHARP_COLL_ENABLE_SAT or sat_chunk")
    fields = {name: value for name, value in given.items() if name in SharpConfig.__dataclass_fields__}
    texts = {name: str(value) for name, value in given.items() if name not in fields}
    return SharpConfig(**({"heartbeat": 0} | fields)), Options.of(texts, PRESETS)


class SharpFabric:
    """All aggregation nodes of a world, all hosts, and the manager. Made before the world: it equips its nodes."""

    def __init__(
        self, config: SharpConfig, options: Options, carrier_of: Callable[[Any, Any, Options], Carrier],
        multicast: bool,
    ) -> None:  # fmt: skip
        """`carrier_of(node, element, options)` makes a carrier on the engine of a node."""
        self.config = config
        self.options = options
        self.multicast = multicast
        """The carrier can."""
        self.hosts: dict[str, SharpHost] = {}
        self.nodes: dict[str, SharpNode] = {}
        self.carriers: dict[str, Carrier] = {}
        self.traps: list[tuple[str, TrapRaised]] = []
        """And the node that raised each."""
        self.ranks: list[Node] = []
        self.world: World
        self.manager: SharpManager
        self._agents: dict[int, SharpAgent] = {}
        self._names: dict[int, str] = {}
        self._carrier_of = carrier_of
        self._psn: Callable[[], int]

    def equip(self, node: Node) -> None:
        """While the world is built: a host, or an aggregation node, on the engine of a node."""
        element: Any
        if node.at is None:
            element = self.hosts[node.name] = SharpHost(len(self.hosts), self.config, self.options)
        else:
            element = self.nodes[node.name] = SharpNode(node.address, self.config)
            node.listeners.append(self._trapped(node.name))
        carrier = self.carriers[node.name] = self._carrier_of(node, element, self.options)
        node.engine = Station(node.engine, carrier)

    def _trapped(self, name: str) -> Callable[[Any], None]:
        def event(event: Any) -> None:
            if isinstance(event, TrapRaised):
                self.traps.append((name, event))

        return event

    def start(self, world: World, ranks: Sequence[Node], layout: Topology | None, psn: Callable[[], int]) -> None:
        """The world is there: agents, and the manager, which has yet to look around."""
        self.world, self.ranks, self._psn = world, list(ranks), psn
        self._names = {node.address: name for name, node in world.nodes.items()}
        for name, node in self.nodes.items():
            self._agents[world.nodes[name].address] = SharpAgent(node, self.carriers[name], _AM_KEY)
        by_switch = {node.at: node.address for node in world.nodes.values() if node.at is not None}
        self.manager = SharpManager(
            Fabric(list(_switches(self.ranks, layout, by_switch))), self._mad, self.config, self.options, _AM_KEY
        )
        self._started = False

    def _mad(self, an: int, data: bytes) -> bytes:
        agent = self._agents.get(an)
        return b"" if agent is None else agent.handle(data, self.world.clock.now)

    def begin_job(self, ranks: Sequence[int]) -> JobGrant | LibsharpStatus:
        """For a group of ranks: as many trees as `SHARP_COLL_GROUPS_PER_COMM` says."""
        if not self._started:
            self._started = True
            self.manager.start()
        ports = [self.ranks[rank].address for rank in ranks]
        return self.manager.begin_job([ports] * self.options.groups_per_comm)

    def connect(self, host: str, place: Place) -> tuple[int, int]:
        """A host and its leaf, for one tree; the tree and the connection of the host."""
        carrier, node = self.carriers[host], self.world.nodes[host]
        own, theirs = self._psn(), self._psn()
        conn = carrier.allocate()
        carrier.connect(
            conn, address=place.an, remote=place.conn, own_psn=own, their_psn=theirs, now=self.world.clock.now
        )
        status = self.manager.connect(place, address=node.address, remote=conn, own_psn=theirs, their_psn=own)
        if status != LibsharpStatus.OK:
            raise LocalError(f"sharp: {host} to {self.name_of(place.an)}: {status.name} ({status.value})")
        return place.tree_id, conn

    @property
    def busy(self) -> bool:
        """A host awaits something."""
        states = (State.JOINING, State.BUSY, State.LEAVING)
        return any(group.state in states for host in self.hosts.values() for group in host.groups.values())

    def name_of(self, an: int) -> str:
        """Of an aggregation node, or of whoever else has this number."""
        return self._names.get(an, f"node {an:#x}")

    def children_of(self, grant: JobGrant, an: int, children: Iterable[int]) -> list[str]:
        """The names of children of an aggregation node, in the first tree that has it."""
        for rail in grant.rails:
            node = rail.tree.nodes.get(an)
            if node is not None:
                return [self.name_of(node.children[one].guid) for one in sorted(children) if one < len(node.children)]
        return []


def layout_of_cables(cables: Cables, hosts: int) -> Topology | None:
    """None: one switch. Raises `ArgumentError` where there is none."""
    if cables.topology == "pair":
        raise invalid("sharp", "topology pair", "a topology with switches")
    if cables.topology == "switch":
        return None
    shape: dict[str, Any] = dict(cables.shape)
    return topology(cables.topology, hosts, **shape)


def aggregation_nodes(cables: Cables, hosts: int, spec: Callable[..., Any]) -> dict[str, Any]:
    """One in every switch, by name; `spec(at=...)` makes what the world takes."""
    layout = layout_of_cables(cables, hosts)
    return {an_name(switch): spec(at=switch) for switch in (("switch",) if layout is None else layout.switches)}


def an_name(switch: str) -> str:
    """Of the aggregation node of a switch."""
    return f"an.{switch}"


def _switches(ranks: Sequence[Node], layout: Topology | None, by_switch: Mapping[str, int]) -> Iterable[Switch]:
    """As the manager sees them: a GUID is an address."""
    if layout is None:
        yield Switch(guid=by_switch["switch"], ports={}, hosts={at + 1: node.address for at, node in enumerate(ranks)})
        return
    guids = [*(node.address for node in ranks), *(by_switch[name] for name in layout.switches)]
    for number, name in enumerate(layout.switches, layout.size):
        ends = [layout.links[link].target for link in layout.leaving[number]]
        yield Switch(
            guid=by_switch[name],
            ports={port: guids[end] for port, end in enumerate(ends, 1) if end >= layout.size},
            hosts={port: guids[end] for port, end in enumerate(ends, 1) if end < layout.size},
        )


__all__ = [
    "PRESETS", "SharpFabric", "SharpSettings", "aggregation_nodes", "an_name", "layout_of_cables", "settings",
]  # fmt: skip
