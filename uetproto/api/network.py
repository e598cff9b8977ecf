"""The emulated network below the API: nodes with an engine each, joined, and virtual time for all of them.

Nothing is emulated here: clock, links, switch, faults, NICs and taps are those of `uetproto.emulator`, which no other
module of the API imports, but those that make the nodes of one transport (`fi_node`, `verbs_node`). Virtual time moves
only in `wait`, `advance` and `close`; times are integer picoseconds, or texts such as "10 us".
"""

import random
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, fields, replace
from ipaddress import ip_address
from typing import Any, cast

from uetproto.emulator.network import unencoded_frames as objects
from uetproto.emulator.network.clock import Clock
from uetproto.emulator.network.fabrics import TOPOLOGIES, time_between
from uetproto.emulator.network.faults import Faults
from uetproto.emulator.network.layouts import LAYOUTS, Layout, layout_of
from uetproto.emulator.network.nic import Nic
from uetproto.emulator.network.payload import PayloadSize
from uetproto.emulator.network.pfc import Pfc, check_capacity
from uetproto.emulator.network.red import Red
from uetproto.emulator.network.switch import MOST_GROUPS
from uetproto.emulator.network.tap import Capture
from uetproto.emulator.network.topology import Cabling, Station
from uetproto.emulator.network.unencoded_frames import NOT_ENCODED, WIRES, ObjectFramer
from uetproto.engine.contract import MICROSECOND, NEVER, SECOND, Engine
from uetproto.engine.roce.ud import is_multicast
from uetproto.errors import LocalError
from uetproto.framing.dscp import Dscp
from uetproto.framing.framer import Framer, SplitFramer
from uetproto.framing.roce import group_mac
from uetproto.framing.sizes import ETHERNET_SIZE
from uetproto.toml.values import BOOLEAN, BYTES, RATE, WHICH, KeyType, integer, one_of
from uetproto.toml.values import time as time_key
from uetproto.wire.capture.pcap import ETHERNET, open_writer

_TIME = time_key()
FAULTS = {
    **dict.fromkeys(("drop", "trim", "corrupt", "duplicate", "reorder", "delay"), WHICH),
    "reorder_by": integer(1, 1 << 16), "reorder_time": time_key(1), "delay_time": time_key(1),
}  # fmt: skip
_CABLES = {
    "topology": one_of(("switch", "pair", *LAYOUTS)), "rate": RATE, "delay": _TIME, "mtu": integer(68, 65535),
    "queue_capacity": BYTES, "trimming": BOOLEAN, "metered": BOOLEAN, "sharp": BOOLEAN, "inner_delay": _TIME,
    "most_groups": integer(0, MOST_GROUPS), "wire": one_of(WIRES),
}  # fmt: skip
_FIRST = int(ip_address("10.0.0.1"))
BURST = 256
"""Events between two looks at whether all is idle."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaceSpec:
    """Where a node is to be; None is what holds for all."""

    address: str | None = None
    """IPv4 or IPv6; default: 10.0.0.1 and so on, in the order of the nodes."""
    rate: int | str | None = None
    """Bits a second of its cable."""
    at: str | None = None
    """The switch of which it is part, as an aggregation node is, by its name: switch, leaf0, spine1, pod0.agg1, core0.
    None: a host, and the next rank of the topology."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cables:
    """What joins the nodes."""

    topology: str = "switch"
    """switch, pair, leaf-spine, fat-tree, rails; node i is rank i, those within switches not counted."""
    shape: Mapping[str, int] = field(default_factory=dict)
    """Parameters of the last three: hosts_per_leaf, leaves, spines; k, levels; gpus_per_node, spines."""
    rate: int | str = "400 Gb/s"
    delay: int | str = MICROSECOND
    mtu: int = 9216
    queue_capacity: int | str = 1 << 20
    trimming: bool = False
    red: Red | None = None
    """Marks that the queues of the switch make; None: none."""
    pfc: Pfc | None = None
    """Pauses that the switch asks for; None: none."""
    metered: bool = False
    """Links count payload too."""
    sharp: bool = False
    """Of SENDs that are messages of SHARP the payload is the vector (sharp.md §2.2)."""
    inner_rate: int | str | None = None
    """Of ports within a switch, to those that are part of it; None: as all cables of the switch together."""
    inner_delay: int | str = "100 ns"
    most_groups: int = MOST_GROUPS
    """Multicast groups that a switch holds."""
    wire: str = "bytes"
    """objects: frames are not encoded; times and counters are the same, a long run is shorter. Nothing that needs bytes
    goes with it: capture, trimming, red, pfc, faults that corrupt or trim."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a node is: what every transport knows about it."""

    name: str
    address: int
    ip_version: int
    rate: int
    """Bits a second."""
    at: str | None = None
    """The switch of which it is part."""


class Node:
    """One node: its engine and its NIC. A `contract.Port` but for `run`, which is the world's."""

    def __init__(self, place: Place, engine: Engine, framer: Framer) -> None:
        self.name = place.name
        self.address = place.address
        self.ip_version = place.ip_version
        self.rate = place.rate
        self.at = place.at
        self.engine = engine
        self.framer = framer
        self.listeners: list[Callable[[Any], None]] = []
        """Each is told every event."""
        self.nic: Nic
        self.clock: Clock

    @property
    def now(self) -> int:
        return self.clock.now

    @property
    def quiescent(self) -> bool:
        """Its engine has nothing to send, to await or to answer."""
        raise NotImplementedError

    def submit(self, work: Any) -> None:
        self.nic.submit(work)

    def soon(self, action: Callable[[], None]) -> None:
        """At this instant, when the events at hand have been told."""
        self.clock.at(self.clock.now, lambda _: action())

    def tell(self, event: Any) -> None:
        for listener in tuple(self.listeners):
            listener(event)


class World:
    """All nodes, what joins them, and the time. A subclass says what the nodes are, and when they are at an end."""

    spec: type[PlaceSpec] = PlaceSpec
    """Of its nodes."""
    legal_faults: Mapping[str, KeyType] = FAULTS
    nodes: Mapping[str, Node]

    def __init__(
        self, nodes: Iterable[str] | Mapping[str, Any], *, cables: Cables, dscp: Dscp,
        faults: Faults | Mapping[str, Any], faults_from: Iterable[str], seed: int, capture: str | None,
        taps: Iterable[str] | None, comment: str,
    ) -> None:  # fmt: skip
        """Raises what `invalid` returns for what cannot be, `OSError` for the capture file."""
        checked = {name: self.checked(name, getattr(cables, name), key) for name, key in _CABLES.items()}
        cables = replace(cables, **checked)
        self.typed("seed", seed, int)
        for name, value, kind in (("capture", capture, str), ("red", cables.red, Red), ("pfc", cables.pfc, Pfc)):
            if value is not None:
                self.typed(name, value, kind)
        self.clock = Clock()
        self.seed = seed
        self.closed = False
        self.dead: set[str] = set()
        """Nodes that were killed."""
        self.killed: dict[str, None] = {}
        """The names that `kill` was given."""
        self.busy: list[Callable[[], bool]] = []
        """Each tells whether something is awaited that comes by itself, though all nodes are quiet until then."""
        specs = self._specs(nodes)
        hosts = sum(spec.at is None for spec in specs.values())
        if hosts < 2 or (cables.topology == "pair" and hosts != 2):
            raise self.invalid("nodes", f"{hosts} nodes", "two at least, and two for a pair")
        if not isinstance(cables.shape, Mapping):
            raise self.invalid("shape", cables.shape, 'a dictionary such as {"hosts_per_leaf": 4}')
        try:
            layout = layout_of(cables.topology, hosts, cables.shape)
        except LocalError as error:
            raise self.invalid(error.name, error.value, error.legal) from None
        self._check_inner(specs, cables.topology, layout)
        inner_rate = None if cables.inner_rate is None else self.checked("inner_rate", cables.inner_rate, RATE)
        ports = {"switch": hosts}
        if layout is not None:
            ports = {name: len(layout.leaving[at]) for at, name in enumerate(layout.switches, layout.size)}
        places = self._places(specs, int(cables.rate), inner_rate, ports)
        self.nodes = {place.name: self.node(place, specs[place.name]) for place in places}
        self._check_addresses(places)
        self.check_mtu(cables.mtu)
        payload_of: Callable[[bytes], int] | None = PayloadSize(dscp, sharp=cables.sharp) if cables.metered else None
        if cables.wire == "objects":
            self._check_objects(cables, capture)
            for node in self.nodes.values():
                node.framer = ObjectFramer(cast(SplitFramer, node.framer), payload_of)
            payload_of = None if payload_of is None else objects.payload_of
        delay, capacity = int(cables.delay), int(cables.queue_capacity)
        if cables.pfc is not None:
            self._check_pfc(cables, cables.pfc)
        faults = self._faults(faults)
        for name in ("corrupt", "trim"):
            if cables.wire == "objects" and getattr(faults, name):
                raise self.invalid("wire", f"objects, with faults that {name}", "bytes")
        everybody = isinstance(faults_from, str) and faults_from == "all"
        at_risk = [
            name for name in self._members("faults_from", faults_from)
            if not everybody or self.nodes[name].at is None
        ]  # fmt: skip
        tapped = self._members("taps", tuple(self.nodes)[:1] if taps is None else taps)
        self._owned = ExitStack()
        self._capture: Capture | None = None
        cabling = Cabling(
            delay=delay, mtu=cables.mtu, queue_capacity=capacity, trimming=cables.trimming, dscp=dscp, red=cables.red,
            pfc=cables.pfc, layout=layout, trunk_rate=int(cables.rate),
            trunk_rng=lambda queue: self.chance(queue, "red"),
            payload_of=payload_of, inner_delay=int(cables.inner_delay), most_groups=cables.most_groups,
            size_of=len if cables.wire == "bytes" else objects.size_of,
        )  # fmt: skip
        slowest = min(node.rate for node in self.nodes.values())
        held = max(faults.reorder_time if faults.reorder else 0, faults.delay_time if faults.delay else 0)
        patience = 8 * SECOND * (cables.mtu + ETHERNET_SIZE) // slowest + delay + held + 2  # rounded up, and over
        patience += time_between(cabling)
        inner = [node.rate for node in self.nodes.values() if node.at is not None]
        if inner:
            patience += 8 * SECOND * (3 * capacity + cables.mtu) // min(inner) + cabling.inner_delay
        paused = 0 if cables.pfc is None else SECOND * 512 * cables.pfc.quanta // slowest
        self.flight = 2 * patience + 8 * SECOND * 3 * capacity // slowest + paused
        """No frame is longer on its way, through full queues."""
        if capture is not None:
            interfaces = [(f"{name}.0", ETHERNET) for name in tapped]
            writer = self._owned.enter_context(open_writer(capture, comment=comment, interfaces=interfaces))
            self._capture = Capture(self.clock, writer, patience)
        stations = {
            name: Station(
                address=node.address,
                rate=node.rate,
                engine=node.engine,
                framer=node.framer,
                on_event=node.tell,
                tap=tapped.index(name) if name in tapped else None,
                faults=faults if name in at_risk else None,
                rng=self.chance(name, "faults"),
                red_rng=self.chance(name, "red"),
                at=node.at,
            )
            for name, node in self.nodes.items()
        }
        self.network = TOPOLOGIES[cables.topology](self.clock, cabling, stations, self._capture)
        for name, node in self.nodes.items():
            node.clock, node.nic = self.clock, self.network.nics[name]

    # What belongs to a transport

    def node(self, place: Place, spec: Any) -> Node:
        """Makes a node; `spec` is one of `self.spec`."""
        raise NotImplementedError

    def check_mtu(self, mtu: int) -> None:
        """Raises what `invalid` returns if the longest packet of a node has more bytes."""
        raise NotImplementedError

    @property
    def stalled(self) -> bool:
        """All that is open waits for what only the program can do."""
        raise NotImplementedError

    def invalid(self, name: str, value: Any, legal: str) -> LocalError:
        """The error for an argument: what it is, and what would have been right."""
        raise NotImplementedError

    # Building

    def _specs(self, nodes: Any) -> dict[str, Any]:
        """What is to be built, by name."""
        names = self._listed("nodes", nodes)
        specs = {name: nodes[name] if isinstance(nodes, Mapping) else self.spec() for name in names}
        for name, spec in specs.items():
            if not isinstance(spec, self.spec):
                self.typed(f"nodes[{name!r}]", spec, self.spec)
        return specs

    def _check_inner(self, specs: Mapping[str, PlaceSpec], topology: str, layout: Layout | None) -> None:
        switches = {"switch": ("switch",), "pair": ()}.get(topology) or (() if layout is None else layout.switches)
        for name, spec in specs.items():
            if spec.at is not None and spec.at not in switches:
                legal = ", ".join(switches) or "a topology with switches"
                raise self.invalid(f"nodes[{name!r}].at", spec.at, legal)

    def _places(
        self, specs: Mapping[str, PlaceSpec], rate: int, inner_rate: int | None, ports: Mapping[str, int]
    ) -> list[Place]:
        places = []
        for number, (name, spec) in enumerate(specs.items()):
            try:
                address = ip_address(_FIRST + number if spec.address is None else spec.address)
            except ValueError:
                raise self.invalid(f"nodes[{name!r}].address", spec.address, "an IPv4 or IPv6 address") from None
            own_rate = rate
            if spec.at is not None:
                own_rate = inner_rate or rate * ports[spec.at]
            if spec.rate is not None:
                own_rate = self.checked(f"nodes[{name!r}].rate", spec.rate, RATE)
            places.append(Place(name, int(address), address.version, own_rate, spec.at))
        return places

    def _check_addresses(self, places: list[Place]) -> None:
        if len({place.address & 0xFFFFFFFF for place in places}) < len(places):
            raise self.invalid("nodes", "two addresses with the same last four bytes", "a different one for each node")
        if len({place.ip_version for place in places}) > 1:
            raise self.invalid("nodes", "IPv4 and IPv6", "one of them for all nodes")

    def _check_objects(self, cables: Cables, capture: str | None) -> None:
        given = {"capture": capture is not None} | {n: bool(getattr(cables, n)) for n in NOT_ENCODED if n != "capture"}
        for name, wanted in given.items():
            if wanted:
                raise self.invalid("wire", f"objects, with {name}", "bytes")

    def _check_pfc(self, cables: Cables, pfc: Pfc) -> None:
        if cables.topology != "switch":
            raise self.invalid("pfc", f"topology {cables.topology}", "topology switch: it is the switch that pauses")
        delays = {True: int(cables.delay), False: int(cables.inner_delay)}
        shares = sorted(
            pfc.most(rate=node.rate, delay=delays[node.at is None], mtu=cables.mtu) for node in self.nodes.values()
        )
        try:
            check_capacity(int(cables.queue_capacity), shares[1:])  # all but one may send to that one
        except LocalError:
            raise self.invalid("queue_capacity", cables.queue_capacity, f"{sum(shares[1:])} bytes, for pfc") from None

    def _members(self, name: str, chosen: Iterable[str]) -> tuple[str, ...]:
        members = tuple(self.nodes) if isinstance(chosen, str) and chosen == "all" else self._listed(name, chosen)
        for member in members:
            if member not in self.nodes:
                raise self.invalid(name, member, f"all, or some of {', '.join(self.nodes)}")
        return members

    def _listed(self, name: str, names: Any) -> tuple[str, ...]:
        """Texts, each once: one text is no list of its letters."""
        found = tuple(names) if isinstance(names, Iterable) and not isinstance(names, str) else None
        if found is None or not all(isinstance(one, str) for one in found):
            raise self.invalid(name, names, 'a list of names, such as ("a", "b")')
        if len(set(found)) < len(found):
            raise self.invalid(name, names, "each name once")
        return found

    def _faults(self, given: Faults | Mapping[str, Any]) -> Faults:
        """What goes wrong, by the names of `Faults`: shares or lists of frame numbers, and times."""
        if isinstance(given, Faults):
            told = [(part.name, getattr(given, part.name), part.default) for part in fields(Faults)]
            given = {name: list(v) if isinstance(v, frozenset) else v for name, v, default in told if v != default}
        if not isinstance(given, Mapping):
            raise self.invalid("faults", given, "Faults(...), or its keywords")
        for name in given:
            if name not in self.legal_faults:
                raise self.invalid("faults", name, ", ".join(self.legal_faults))
        return Faults(**{name: self.checked(f"faults.{name}", value, FAULTS[name]) for name, value in given.items()})

    def checked(self, name: str, value: Any, key: KeyType) -> Any:
        try:
            return key.check(value)
        except ValueError:
            raise self.invalid(name, value, key.legal) from None

    def typed(self, name: str, value: Any, kind: type) -> None:
        if type(value) is not kind:
            raise self.invalid(name, value, _KINDS.get(kind, f"{kind.__name__}(...)"))

    def chance(self, *component: str) -> random.Random:
        """Each component draws from a generator of its own, so that one cannot disturb another."""
        return random.Random("/".join((str(self.seed), *component)))

    # Groups

    def join(self, group: int, node: str) -> None:
        """Frames to the multicast group, an address as a number, come to those that joined only, over a tree to them.

        As long as nobody has joined a group all have what is for it. Raises what `invalid` returns for what is no group
        and for nobody, and where a switch holds as many as it can.
        """
        self._group(self.network.join, group, node)

    def leave(self, group: int, node: str) -> None:
        """The end of `join`."""
        self._group(self.network.leave, group, node)

    def _group(self, change: Callable[[bytes, str], None], group: int, node: str) -> None:
        version = next(iter(self.nodes.values())).ip_version
        if not is_multicast(group, version):
            raise self.invalid("group", f"{group:#x}", f"a multicast address of IPv{version}")
        try:
            change(group_mac(group, version).to_bytes(6, "big"), node)
        except LocalError as error:
            raise self.invalid(error.name, error.value, error.legal) from None

    def kill(self, name: str) -> None:
        """A node, or a switch with all that is part of it, is dead: from now on nothing comes to it or from it."""
        known = {*self.nodes, *self.network.switches}
        if name not in known:
            raise self.invalid("name", name, ", ".join(sorted(known)))
        self.killed[name] = None
        self.dead |= {node.name for node in self.nodes.values() if name in (node.name, node.at)}
        for hop in (*self.network.hops, *self.network.inner_hops):
            if name in (hop.source, hop.target):
                hop.link.cut()

    @property
    def obituary(self) -> str:
        """For the end of an error: who was killed."""
        return f"; dead: {', '.join(self.killed)}" if self.killed else ""

    # Time

    def duration(self, name: str, value: Any) -> int:
        """Picoseconds of a whole number or a text such as "1 ms"."""
        picoseconds: int = self.checked(name, value, _TIME)
        return picoseconds

    @property
    def idle(self) -> bool:
        """Nothing more happens by itself but idle timers, and what waits for the program."""
        if any(busy() for busy in self.busy):
            return False
        if all(node.quiescent for node in self.nodes.values()):
            return self.clock.next > self.clock.now + self.flight
        return self.clock.next > self.clock.now and self.stalled

    def wake(self) -> None:
        """`wait` looks at its condition at once."""
        self.clock.stop()

    def wait(self, condition: Callable[[], bool], timeout: int | None = None, burst: int = BURST) -> bool:
        """Runs virtual time until `condition()`; looks every `burst` events, and when `wake` is called.

        `timeout`: picoseconds, which have passed when it returns False. None: until nothing more would
        happen (`idle`).
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

    def run(self, until: int | str | Callable[[], bool] | None = None) -> bool:
        """Runs virtual time to an instant, until a condition holds, or (None) until nothing more would happen."""
        if until is None:
            self.wait(lambda: False)
            return True
        if callable(until):
            return self.wait(until, burst=1)
        instant = self.duration("until", until)
        if instant < self.clock.now:
            raise self.invalid("until", until, f"{self.clock.now} ps and later")
        self.advance(instant - self.clock.now)
        return True

    def advance(self, duration: int) -> None:
        """Lets so many picoseconds pass."""
        self.clock.advance(duration)

    def close(self, drain: bool = True) -> None:
        """What is under way arrives; the capture is whole afterwards."""
        self.closed = True
        try:
            if drain:
                self.wait(lambda: False)
        finally:
            if self._capture is not None:
                self._capture.close()
                self._capture = None
            self._owned.close()


_KINDS: dict[type, str] = {int: "a whole number", str: "a text"}

__all__ = ["BURST", "FAULTS", "Cables", "Faults", "Node", "Pfc", "Place", "PlaceSpec", "Red", "World"]
