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
from typing import Any

from uetproto.emulator.clock import Clock
from uetproto.emulator.fabrics import TOPOLOGIES, time_between
from uetproto.emulator.faults import Faults
from uetproto.emulator.framing import Framer
from uetproto.emulator.keys import BOOLEAN, BYTES, RATE, WHICH, Key, integer, one_of
from uetproto.emulator.keys import time as time_key
from uetproto.emulator.layouts import LAYOUTS, layout_of
from uetproto.emulator.link import ETHERNET_SIZE
from uetproto.emulator.nic import Nic
from uetproto.emulator.payload import PayloadSize
from uetproto.emulator.pfc import Pfc, check_capacity
from uetproto.emulator.red import Red
from uetproto.emulator.switch import Dscp
from uetproto.emulator.tap import Capture
from uetproto.emulator.topology import Cabling, Station
from uetproto.engine.contract import MICROSECOND, NEVER, SECOND, Engine
from uetproto.errors import LocalError
from uetproto.wire.pcap import ETHERNET, open_writer

_TIME = time_key()
FAULTS = {
    **dict.fromkeys(("drop", "trim", "corrupt", "duplicate", "reorder", "delay"), WHICH),
    "reorder_by": integer(1, 1 << 16), "reorder_time": time_key(1), "delay_time": time_key(1),
}  # fmt: skip
_CABLES = {
    "topology": one_of(("switch", "pair", *LAYOUTS)), "rate": RATE, "delay": _TIME, "mtu": integer(68, 65535),
    "queue_capacity": BYTES, "trimming": BOOLEAN, "metered": BOOLEAN,
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Cables:
    """What joins the nodes."""

    topology: str = "switch"
    """switch, pair, leaf-spine, fat-tree, rails; node i is rank i."""
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


@dataclass(frozen=True, slots=True)
class Place:
    """Where a node is: what every transport knows about it."""

    name: str
    address: int
    ip_version: int
    rate: int
    """Bits a second."""


class Node:
    """One node: its engine and its NIC. A `contract.Port` but for `run`, which is the world's."""

    def __init__(self, place: Place, engine: Engine, framer: Framer) -> None:
        self.name = place.name
        self.address = place.address
        self.ip_version = place.ip_version
        self.rate = place.rate
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
    legal_faults: Mapping[str, Key] = FAULTS
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
        specs = self._specs(nodes)
        if len(specs) < 2 or (cables.topology == "pair" and len(specs) != 2):
            raise self.invalid("nodes", f"{len(specs)} nodes", "two at least, and two for a pair")
        if not isinstance(cables.shape, Mapping):
            raise self.invalid("shape", cables.shape, 'a dictionary such as {"hosts_per_leaf": 4}')
        try:
            layout = layout_of(cables.topology, len(specs), cables.shape)
        except LocalError as error:
            name, _, message = str(error).partition(": ")
            raise self.invalid(name, *message.split("; legal: ")) from None
        places = self._places(specs, int(cables.rate))
        self.nodes = {place.name: self.node(place, specs[place.name]) for place in places}
        self._check_addresses(places)
        self.check_mtu(cables.mtu)
        delay, capacity = int(cables.delay), int(cables.queue_capacity)
        if cables.pfc is not None:
            self._check_pfc(cables, cables.pfc)
        faults = self._faults(faults)
        at_risk = self._members("faults_from", faults_from)
        tapped = self._members("taps", tuple(self.nodes)[:1] if taps is None else taps)
        self._owned = ExitStack()
        self._capture: Capture | None = None
        cabling = Cabling(
            delay=delay, mtu=cables.mtu, queue_capacity=capacity, trimming=cables.trimming, dscp=dscp, red=cables.red,
            pfc=cables.pfc, layout=layout, trunk_rate=int(cables.rate),
            trunk_rng=lambda queue: self.chance(queue, "red"), payload_of=PayloadSize(dscp) if cables.metered else None,
        )  # fmt: skip
        slowest = min(node.rate for node in self.nodes.values())
        held = max(faults.reorder_time if faults.reorder else 0, faults.delay_time if faults.delay else 0)
        patience = 8 * SECOND * (cables.mtu + ETHERNET_SIZE) // slowest + delay + held + 2  # rounded up, and over
        patience += time_between(cabling)
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
            self.typed(f"nodes[{name!r}]", spec, self.spec)
        return specs

    def _places(self, specs: Mapping[str, PlaceSpec], rate: int) -> list[Place]:
        places = []
        for number, (name, spec) in enumerate(specs.items()):
            try:
                address = ip_address(_FIRST + number if spec.address is None else spec.address)
            except ValueError:
                raise self.invalid(f"nodes[{name!r}].address", spec.address, "an IPv4 or IPv6 address") from None
            own_rate = rate if spec.rate is None else self.checked(f"nodes[{name!r}].rate", spec.rate, RATE)
            places.append(Place(name, int(address), address.version, own_rate))
        return places

    def _check_addresses(self, places: list[Place]) -> None:
        if len({place.address & 0xFFFFFFFF for place in places}) < len(places):
            raise self.invalid("nodes", "two addresses with the same last four bytes", "a different one for each node")
        if len({place.ip_version for place in places}) > 1:
            raise self.invalid("nodes", "IPv4 and IPv6", "one of them for all nodes")

    def _check_pfc(self, cables: Cables, pfc: Pfc) -> None:
        if cables.topology != "switch":
            raise self.invalid("pfc", f"topology {cables.topology}", "topology switch: it is the switch that pauses")
        delay = int(cables.delay)
        shares = sorted(pfc.most(rate=node.rate, delay=delay, mtu=cables.mtu) for node in self.nodes.values())
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

    def checked(self, name: str, value: Any, key: Key) -> Any:
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

    # Time

    def duration(self, name: str, value: Any) -> int:
        """Picoseconds of a whole number or a text such as "1 ms"."""
        picoseconds: int = self.checked(name, value, _TIME)
        return picoseconds

    @property
    def idle(self) -> bool:
        """Nothing more happens by itself but idle timers, and what waits for the program."""
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
            if clock.next > limit or not len(clock) or (timeout is None and self.idle):
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
