# SPDX-License-Identifier: GPL-2.0-only
"""This module handles the in-network algorithms of `uetproto collective`: where they are legal, what they cost, and
what they report.

The costs of SHARP come from the aggregation manager of a fabric of the same shape, with its trees, quotas and refusals
(sharp.md §4.2).
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any, NamedTuple

from uetproto.api.distributed.networks.packets import PacketNetwork
from uetproto.api.distributed.networks.sharp_works import check as check_operation
from uetproto.collectives.costs.in_network import MulticastCosts, SharpCosts
from uetproto.collectives.costs.measure import AggregationPort, GroupPort, InNetwork
from uetproto.collectives.multicast.config import MulticastConfig
from uetproto.collectives.offload import OffloadRequest
from uetproto.engine.sharp.config import SharpConfig
from uetproto.engine.sharp.host.work import GroupJoined
from uetproto.engine.sharp.management import OTHER_PORT, PARENT_PORT
from uetproto.engine.sharp.manager.grants import JobGrant, Rail
from uetproto.engine.sharp.options import BY_NAME, disabled
from uetproto.errors import LocalError, argument, similar
from uetproto.knobs import BOOL, SIZE, TIME, UNITS, knobs_of, with_unit

SHARP = frozenset({"sharp", "hcoll_sharp"})
"""Algorithms that need SHARP aggregation nodes in the network."""
CARRIERS = {"sharp": ("uet", "roce"), "hcoll_sharp": ("uet", "roce"), "multicast": ("roce",)}
"""Maps each in-network algorithm to the transports that can carry it."""


class Offer(NamedTuple):
    """This record describes what the aggregation manager grants to a group of ranks, and what that costs."""

    costs: SharpCosts
    threshold: int | None
    """Size in bytes from which vectors are streamed. It is None if no vector is streamed."""
    edges: int
    """Number of edges of the aggregation tree, E in the formula (sharp.md §4.4)."""
    window: int
    """Number of bytes of a stream that may be in flight (sharp.md §3.3). The formula assumes that this window never
    delays a stream."""
    trees: int
    """Number of aggregation trees of the job. Some of them may not be able to stream."""


def refusal(algorithm: str, transport: str, kind: str) -> str | None:
    """Return why a fabric cannot carry out an algorithm, or None if it can."""
    if transport not in CARRIERS[algorithm]:
        return f"{algorithm} over {transport}; legal with {argument('transport', ', '.join(CARRIERS[algorithm]))}"
    if kind == "pair":
        return f"{algorithm} with {argument('topology', 'pair')}, which has no switch; legal: the others"
    return None


def offer(network: PacketNetwork, ranks: Sequence[int], asked: OffloadRequest, hop: float, rate: float) -> Offer | str:
    """Return what the aggregation manager grants to the ranks, or a text that says why it grants nothing. `hop` is the
    delay of a cable in seconds, and `rate` is its rate in bytes per second."""
    sharp = network.sharp  # type: ignore[attr-defined]  # those of CARRIERS have it
    fabric = sharp.fabric
    why: str | None = sharp.why_not(replace(asked, ranks=tuple(ranks))) or disabled(fabric.options, asked.op)
    if why is not None:
        return why
    try:
        check_operation(asked, fabric.config)
    except LocalError as error:
        return str(error)
    grant = fabric.begin_job(ranks)
    if not isinstance(grant, JobGrant):
        return f"no job: {grant.name} ({grant.value})"
    rail, options = grant.rails[0], fabric.options
    streaming = [each for each in grant.rails if each.sat]
    inner = network.world.network.inner_hops[0].link.delay / 1e12
    latency = SharpCosts(levels_of(grant), 0, hop + inner, 0, rate)
    costs = latency._replace(
        user_data=grant.user_data, lock=latency.latency if streaming else 0.0,
        osts=sum(options.osts_of(each.osts, each.groups) for each in grant.rails), trees=max(1, len(streaming)),
        lanes=lanes_of(streaming or grant.rails),
    )  # fmt: skip
    threshold = options.sat_threshold if streaming else None
    window = fabric.config.sat_chunk * fabric.config.sat_window
    return Offer(costs, threshold, len(ranks) + len(rail.part.ans) - 1, window, len(grant.rails))


def levels_of(grant: JobGrant) -> int:
    """Return the largest number of aggregation nodes on the path from a host to the root of the job."""
    rail = grant.rails[0]
    leaves = {place.an for place in rail.llt}
    return 1 + max(rail.tree.path(leaf).index(rail.part.root) for leaf in leaves)


def lanes_of(rails: Sequence[Rail]) -> float:
    """Return the number of rails divided by the largest number of these rails that share a cable."""
    cables: Counter[tuple[int, int | None]] = Counter()
    for rail in rails:
        nodes = rail.tree.nodes
        cables.update((guid, nodes[guid].parent) for guid in rail.part.ans if guid != rail.part.root)
        cables.update((nodes[place.an].children[place.child_idx].guid, place.an) for place in rail.llt)
    return len(rails) / max(cables.values())


def multicast_costs(network: PacketNetwork, op: str, alpha: float, way: float, rate: float) -> MulticastCosts:
    """Return the values for the cost formula of multicast. Several roots send at once only if their number divides the
    number of ranks (collectives.md §3.10.1)."""
    roots = network.multicast.config(network.size).roots  # type: ignore[attr-defined]  # those of CARRIERS have it
    several = op == "all_gather" and network.size % roots == 0
    return MulticastCosts(alpha, way, rate, roots if several else 1)


# Options ------------------------------------------------------------------------------------------------------------


def sharp_settings(given: Iterable[str]) -> dict[str, Any]:
    """Return the settings of `--sharp NAME=VALUE`. A name is a published option or a field of `SharpConfig`. The value
    of a published option stays a text."""
    legal = f"options such as SHARP_COLL_ENABLE_SAT, fields such as {', '.join(list(_SHARP_FIELDS)[:3])}"
    found: dict[str, Any] = {}
    for name, value in _pairs("sharp", given):
        if name in _SHARP_FIELDS:
            knob = _SHARP_FIELDS[name]
            is_switch = knob.legal == BOOL
            found[name] = (
                _SWITCHES.get(value, value) if is_switch else _number(argument("sharp", name), value, knob.unit)
            )
        elif name in BY_NAME:
            found[name] = value
        else:
            hint = similar(name, (*_SHARP_FIELDS, *BY_NAME))
            raise LocalError(argument("sharp", f"{name}={value}"), f"no such name{hint}", legal, id="unknown-argument")
    return found


def multicast_settings(given: Iterable[str]) -> dict[str, Any]:
    """Return the settings of `--multicast NAME=VALUE`, whose names are fields of `MulticastConfig`."""
    names = [part.name for part in fields(MulticastConfig)]
    found = {}
    for name, value in _pairs("multicast", given):
        if name not in names:
            raise LocalError(
                argument("multicast", f"{name}={value}"), f"no such name{similar(name, names)}", ", ".join(names),
                id="unknown-argument"
            )  # fmt: skip
        found[name] = _number(argument("multicast", name), value, TIME if name == "least" else "")
    MulticastConfig(**found)
    return found


_SHARP_FIELDS = knobs_of(SharpConfig)
_SWITCHES = {"0": False, "false": False, "1": True, "true": True}


def _pairs(option: str, given: Iterable[str]) -> Iterable[tuple[str, str]]:
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise LocalError(argument(option, text), "legal is NAME=VALUE", id="wrong-format")
        yield name, value


def _number(option: str, text: str, unit: str) -> Any:
    """Return the value of a field; a time has a unit, a size may have one. Raises `LocalError` for another text."""
    number = _value(text)
    if unit not in UNITS or (type(number) is int and (unit == SIZE or not number)):
        return number
    units, legal = UNITS[unit]
    try:
        return with_unit(text, units)
    except ValueError:
        raise LocalError(
            f"{option}={text}", "has no unit" if type(number) is int else "is not legal", legal, id="missing-unit"
        ) from None


def _value(text: str) -> Any:
    """Return a number if the text is one, as in 128, 0xc005 or 2.5; otherwise the text."""
    for number in (int, lambda text: int(text, 0), float):
        try:
            return number(text)
        except ValueError:
            continue
    return text


# Reports -----------------------------------------------------------------------------------------------------------


class OffloadMonitor:
    """An offload monitor collects what the network reports while a collective runs in it."""

    def __init__(self, network: PacketNetwork) -> None:
        self._network = network
        self._sharp = getattr(network, "sharp", None)
        self._joined: int | None = None
        if self._sharp is not None:
            for node in self._sharp.fabric.ranks:
                node.listeners.append(self._event)

    def _event(self, event: Any) -> None:
        if isinstance(event, GroupJoined):
            self._joined = self._network.now

    @property
    def _made(self) -> int:
        """Return the picoseconds from the first request to join a group until all ranks were members."""
        begun = None if self._sharp is None else self._sharp.fabric.joined_from
        return 0 if begun is None or self._joined is None else self._joined - begun

    @property
    def grant(self) -> JobGrant | None:
        """Return the grant of the SHARP job that runs at present, or None if no job runs."""
        jobs = self._sharp.fabric.manager.jobs.values() if self._sharp is not None else ()
        return next((job.grant for job in jobs), None)

    @property
    def fell_back(self) -> bool:
        """Return whether the ranks carried out the collective themselves, either after SHARP had failed or without a
        try of SHARP."""
        notes = [] if self._sharp is None else self._sharp.notes
        return self.by_ranks is not None or any(note.startswith("fell back") for note in notes)

    @property
    def by_ranks(self) -> str | None:
        """Return the algorithm by which the ranks carried out the collective without a try of SHARP. Return None if
        SHARP was tried."""
        return self._sharp.by_ranks[0] if self._sharp is not None and self._sharp.by_ranks else None

    def report(self) -> InNetwork:
        """Return the counters and the notes that switches, aggregation nodes and ranks have reported so far."""
        built = self._network.world.network
        switches = built.switches or ({} if built.switch is None else {"switch": built.switch})
        groups = [
            GroupPort(switch, port, *count)
            for switch, one in switches.items()
            for port, count in sorted(one.group_ports.items())
        ]
        counters: dict[str, dict[str, int]] = {}
        ports: tuple[AggregationPort, ...] = ()
        notes: tuple[str, ...] = ()
        traps: tuple[str, ...] = ()
        log: tuple[str, ...] = ()
        if self._sharp is not None:
            fabric = self._sharp.fabric
            notes = tuple(self._sharp.notes)
            if "SHARP_COLL_LOG_LEVEL" in fabric.options.given or fabric.options.collnet_enable:
                log = tuple(self._sharp.log.lines)
            traps = tuple(f"{name}: {trap.trap.name}, syndrome {trap.syndrome}" for name, trap in fabric.traps)
            counters = {name: _not_zero(node.counters) for name, node in (fabric.hosts | fabric.nodes).items()}
            ports = tuple(
                AggregationPort(name, _PORTS.get(port, f"child {port}"), _not_zero(count.read()))
                for name, node in fabric.nodes.items()
                for port, count in sorted(node.ports.by_port.items())
            )
            for hop in built.inner_hops:
                if hop.link.frames:
                    way, name = ("sent", hop.source) if hop.source in fabric.nodes else ("received", hop.target)
                    counters[name] |= {f"frames_{way}": hop.link.frames, f"bytes_{way}": hop.link.bytes}
        return InNetwork(
            groups=tuple(groups), counters={name: found for name, found in counters.items() if found}, ports=ports,
            notes=notes, traps=traps, log=log, made=self._made,
        )  # fmt: skip


_PORTS = {PARENT_PORT: "parent", OTHER_PORT: "others"}
"""Names of the ports that lead to no child."""


def _not_zero(counters: Mapping[str, int]) -> dict[str, int]:
    return {name: count for name, count in counters.items() if count}
