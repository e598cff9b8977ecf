"""The emulated network below the API: nodes with a fabric endpoint each, joined, and virtual time for all of them.

Nothing is emulated here: clock, links, switch, faults, NICs and taps are those of `uetproto.emulator`, which no other
module of the API imports. Virtual time moves only in `wait`, `advance` and `close`; times are integer picoseconds, or
texts such as "10 us".
"""

import random
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, replace
from ipaddress import ip_address
from typing import Any

from uetproto.api.fi_errors import invalid
from uetproto.emulator.clock import Clock
from uetproto.emulator.faults import Faults
from uetproto.emulator.framer_uet import Encapsulation, UetFramer
from uetproto.emulator.keys import BOOLEAN, BYTES, DSCP, RATE, WHICH, Key, integer, one_of
from uetproto.emulator.keys import time as time_key
from uetproto.emulator.link import ETHERNET_SIZE
from uetproto.emulator.nic import Nic
from uetproto.emulator.switch import Dscp
from uetproto.emulator.tap import Capture
from uetproto.emulator.topology import TOPOLOGIES, Cabling, Station
from uetproto.engine.config import PdsConfig, SesConfig
from uetproto.engine.contract import MICROSECOND, NEVER, SECOND, Event, Receive, Work
from uetproto.engine.fep import Fep
from uetproto.wire.pcap import ETHERNET, open_writer

HEADERS = 12 + 44 + 24
"""Transport headers of the longest packet that carries payload: PDS, standard SES request, rendezvous extension."""

_TIME = time_key()
_FAULTS = {
    **dict.fromkeys(("drop", "trim", "corrupt", "duplicate", "reorder", "delay"), WHICH),
    "reorder_by": integer(1, 1 << 16), "reorder_time": time_key(1), "delay_time": time_key(1),
}  # fmt: skip
_CABLES = {
    "topology": one_of(("switch", "pair")), "rate": RATE, "delay": _TIME, "mtu": integer(68, 65535),
    "queue_capacity": BYTES, "trimming": BOOLEAN,
}  # fmt: skip
_HOW = {"udp": BOOLEAN, "crc": BOOLEAN, "udp_port": integer(1, 65535), "ip_protocol": integer(0, 255)}
_FIRST = int(ip_address("10.0.0.1"))
_BURST = 256  # events between two looks at whether all is idle


def _checked(name: str, value: Any, key: Key) -> Any:
    try:
        return key.check(value)
    except ValueError:
        raise invalid(name, value, key.legal) from None


def duration(name: str, value: Any) -> int:
    """Picoseconds of a whole number or a text such as "1 ms". Raises FI_EINVAL."""
    picoseconds: int = _checked(name, value, _TIME)
    return picoseconds


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSpec:
    """A node to be built; None is what holds for all."""

    address: str | None = None
    """IPv4 or IPv6; default: 10.0.0.1 and so on, in the order of the nodes."""
    rate: int | str | None = None
    """Bits a second of its cable."""
    pds: PdsConfig | None = None
    ses: SesConfig | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Cables:
    """What joins the nodes."""

    topology: str = "switch"
    rate: int | str = "400 Gb/s"
    delay: int | str = MICROSECOND
    mtu: int = 9216
    queue_capacity: int | str = 1 << 20
    trimming: bool = False
    how: Encapsulation = field(default_factory=Encapsulation)


class Node:
    """One node: its fabric endpoint and its NIC. A `contract.Port` but for `run`, which is the world's."""

    def __init__(self, name: str, fep: Fep, ip_version: int, rate: int, pds: PdsConfig, ses: SesConfig) -> None:
        self.name = name
        self.fep = fep
        self.ip_version = ip_version
        self.rate = rate
        self.pds = pds
        self.ses = ses
        self.listeners: list[Callable[[Event], None]] = []
        """Each is told every event."""
        self.nic: Nic
        self.clock: Clock

    @property
    def now(self) -> int:
        return self.clock.now

    def submit(self, work: Work) -> None:
        self.nic.submit(work)

    def soon(self, action: Callable[[], None]) -> None:
        """At this instant, when the events at hand have been told."""
        self.clock.at(self.clock.now, lambda _: action())

    def cancel(self, receive: Receive) -> bool:
        """False: a message has matched it already."""
        done: bool = self.fep.cancel(receive, self.clock.now)
        for event in self.fep.events():
            self.tell(event)
        return done

    def tell(self, event: Event) -> None:
        for listener in tuple(self.listeners):
            listener(event)


class World:
    """All nodes, what joins them, and the time."""

    def __init__(
        self, nodes: Iterable[str] | Mapping[str, NodeSpec], *, cables: Cables, faults: Faults | Mapping[str, Any],
        faults_from: Iterable[str], seed: int, capture: str | None, taps: Iterable[str] | None, comment: str,
        pds: PdsConfig, ses: SesConfig,
    ) -> None:  # fmt: skip
        """Raises FI_EINVAL for what cannot be, `OSError` for the capture file."""
        cables = _checked_cables(cables)
        for name, value, kind in (("seed", seed, int), ("pds", pds, PdsConfig), ("ses", ses, SesConfig)):
            _typed(name, value, kind)
        if capture is not None:
            _typed("capture", capture, str)
        self.clock = Clock()
        self.seed = seed
        specs = _specs(nodes)
        if len(specs) < 2 or (cables.topology == "pair" and len(specs) != 2):
            raise invalid("nodes", f"{len(specs)} nodes", "two at least, and two for a pair")
        self.nodes = {
            name: self._node(name, spec, number, int(cables.rate), pds, ses)
            for number, (name, spec) in enumerate(specs.items())
        }
        self._check(cables)
        faults = _faults(faults)
        at_risk = self._members("faults_from", faults_from)
        tapped = self._members("taps", tuple(self.nodes)[:1] if taps is None else taps)
        delay, capacity = int(cables.delay), int(cables.queue_capacity)
        self._owned = ExitStack()
        self._capture: Capture | None = None
        slowest = min(node.rate for node in self.nodes.values())
        held = max(faults.reorder_time if faults.reorder else 0, faults.delay_time if faults.delay else 0)
        patience = 8 * SECOND * (cables.mtu + ETHERNET_SIZE) // slowest + delay + held + 2  # rounded up, and over
        self._flight = 2 * patience + 8 * SECOND * 3 * capacity // slowest
        """No frame is longer on its way, through full queues."""
        if capture is not None:
            interfaces = [(f"{name}.0", ETHERNET) for name in tapped]
            writer = self._owned.enter_context(open_writer(capture, comment=comment, interfaces=interfaces))
            self._capture = Capture(self.clock, writer, patience)
        stations = {
            name: Station(
                address=node.fep.address,
                rate=node.rate,
                engine=node.fep,
                framer=UetFramer(node.fep.address, node.ip_version, cables.how, ecn_capable=node.pds.ecn_capable),
                on_event=node.tell,
                tap=tapped.index(name) if name in tapped else None,
                faults=faults if name in at_risk else None,
                rng=self._chance(name, "faults"),
            )
            for name, node in self.nodes.items()
        }
        cabling = Cabling(
            delay=delay, mtu=cables.mtu, queue_capacity=capacity, trimming=cables.trimming, dscp=cables.how.dscp
        )
        self.network = TOPOLOGIES[cables.topology](self.clock, cabling, stations, self._capture)
        for name, node in self.nodes.items():
            node.clock, node.nic = self.clock, self.network.nics[name]

    def _node(self, name: str, spec: NodeSpec, number: int, rate: int, pds: PdsConfig, ses: SesConfig) -> Node:
        try:
            address = ip_address(_FIRST + number if spec.address is None else spec.address)
        except ValueError:
            raise invalid(f"nodes[{name!r}].address", spec.address, "an IPv4 or IPv6 address") from None
        pds, ses = pds if spec.pds is None else spec.pds, ses if spec.ses is None else spec.ses
        for part, value, kind in (("pds", pds, PdsConfig), ("ses", ses, SesConfig)):
            _typed(f"nodes[{name!r}].{part}", value, kind)
        own_rate = rate if spec.rate is None else _checked(f"nodes[{name!r}].rate", spec.rate, RATE)
        fep = Fep(int(address), self._chance(name, "engine"), pds=pds, ses=ses, ip_version=address.version)
        return Node(name, fep, address.version, own_rate, pds, ses)

    def _check(self, cables: Cables) -> None:
        nodes = list(self.nodes.values())
        if len({node.fep.address & 0xFFFFFFFF for node in nodes}) < len(nodes):
            raise invalid("nodes", "two addresses with the same last four bytes", "a different one for each node")
        if len({node.ip_version for node in nodes}) > 1:
            raise invalid("nodes", "IPv4 and IPv6", "one of them for all nodes")
        for node in nodes:
            needed = cables.how.size(node.ip_version) + HEADERS + node.ses.payload_mtu
            if needed > cables.mtu:
                raise invalid("mtu", cables.mtu, f"{needed} and more, for a payload_mtu of {node.ses.payload_mtu}")

    def _chance(self, *component: str) -> random.Random:
        """Each component draws from a generator of its own, so that one cannot disturb another."""
        return random.Random("/".join((str(self.seed), *component)))

    def _members(self, name: str, chosen: Iterable[str]) -> tuple[str, ...]:
        members = tuple(self.nodes) if isinstance(chosen, str) and chosen == "all" else _listed(name, chosen)
        for member in members:
            if member not in self.nodes:
                raise invalid(name, member, f"all, or some of {', '.join(self.nodes)}")
        return members

    # Time

    @property
    def idle(self) -> bool:
        """Nothing more happens by itself but idle timers, and questions about messages that no receive has taken."""
        if all(node.fep.quiescent for node in self.nodes.values()):
            return self.clock.next > self.clock.now + self._flight
        return self.clock.next > self.clock.now and self._stalled

    @property
    def _stalled(self) -> bool:
        """All that is open are messages that wait at their targets for a receive."""
        feps = [node.fep for node in self.nodes.values()]
        held: dict[int, set[tuple[int, int]]] = {}
        for fep in feps:
            messages = fep.held
            if messages is None:
                return False
            held[fep.address] = messages
        return all(fep.stalled(held) for fep in feps)

    def wake(self) -> None:
        """`wait` looks at its condition at once."""
        self.clock.stop()

    def wait(self, condition: Callable[[], bool], timeout: int | None = None, burst: int = _BURST) -> bool:
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

    def advance(self, duration: int) -> None:
        """Lets so many picoseconds pass."""
        self.clock.advance(duration)

    def close(self, drain: bool = True) -> None:
        """What is under way arrives; the capture is whole afterwards."""
        try:
            if drain:
                self.wait(lambda: False)
        finally:
            if self._capture is not None:
                self._capture.close()
                self._capture = None
            self._owned.close()


_KINDS: dict[type, str] = {int: "a whole number", str: "a text"}


def _typed(name: str, value: Any, kind: type) -> None:
    if type(value) is not kind:
        raise invalid(name, value, _KINDS.get(kind, f"{kind.__name__}(...)"))


def _checked_cables(given: Cables) -> Cables:
    """With numbers in place of texts. Raises FI_EINVAL."""
    _typed("how", given.how, Encapsulation)
    for name, key in _HOW.items():
        _checked(f"how.{name}", getattr(given.how, name), key)
    _typed("how.dscp", given.how.dscp, Dscp)
    classes = asdict(given.how.dscp)
    for name, value in classes.items():
        _checked(f"how.dscp.{name}", value, DSCP)
    if len(set(classes.values())) < len(classes):
        raise invalid("how.dscp", given.how.dscp, "a different one for each traffic class")
    return replace(given, **{name: _checked(name, getattr(given, name), key) for name, key in _CABLES.items()})


def _listed(name: str, names: Any) -> tuple[str, ...]:
    """Texts, each once: one text is no list of its letters. Raises FI_EINVAL."""
    found = tuple(names) if isinstance(names, Iterable) and not isinstance(names, str) else None
    if found is None or not all(isinstance(one, str) for one in found):
        raise invalid(name, names, 'a list of names, such as ("a", "b")')
    if len(set(found)) < len(found):
        raise invalid(name, names, "each name once")
    return found


def _specs(nodes: Any) -> dict[str, NodeSpec]:
    """What is to be built, by name. Raises FI_EINVAL."""
    specs = {name: nodes[name] if isinstance(nodes, Mapping) else NodeSpec() for name in _listed("nodes", nodes)}
    for name, spec in specs.items():
        _typed(f"nodes[{name!r}]", spec, NodeSpec)
    return specs


def _faults(given: Faults | Mapping[str, Any]) -> Faults:
    """What goes wrong, by the names of `Faults`: shares or lists of frame numbers, and times. Raises FI_EINVAL."""
    if isinstance(given, Faults):
        given = {name: list(v) if isinstance(v, frozenset) else v for name, v in asdict(given).items()}
    if not isinstance(given, Mapping):
        raise invalid("faults", given, "Faults(...), or its keywords")
    for name in given:
        if name not in _FAULTS:
            raise invalid("faults", name, ", ".join(_FAULTS))
    return Faults(**{name: _checked(f"faults.{name}", value, _FAULTS[name]) for name, value in given.items()})


__all__ = ["Cables", "Encapsulation", "Faults", "Node", "NodeSpec", "World", "duration"]
