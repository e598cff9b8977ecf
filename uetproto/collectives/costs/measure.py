# SPDX-License-Identifier: GPL-2.0-only
"""This module counts the steps and bytes of a collective at its transport, and computes steps and bytes by its formula.

`MeasuredCollective` is the JSON object of `uetproto collective` (interfaces.md §10).
"""

from array import array
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from uetproto.collectives.algorithms.catalogue import ALGORITHMS, expected
from uetproto.collectives.algorithms.schedule import Schedule
from uetproto.collectives.costs.choice import AlgorithmChoice
from uetproto.collectives.costs.formulas import Costs, Expected, bus_bandwidth
from uetproto.collectives.costs.link_bytes import LinkBytes, link_bytes
from uetproto.collectives.topology.graph import Topology
from uetproto.collectives.transport import (
    SECOND,
    CollectiveNetwork,
    CollectiveTimers,
    Done,
    NetworkCounts,
    RankTransport,
    Tag,
    TransportError,
)
from uetproto.errors import SuggestsNames


class MeasuredNetwork(CollectiveNetwork):
    """This class wraps another network. It counts the steps that have messages, and the messages and bytes that ranks
    send."""

    def __init__(
        self, network: CollectiveNetwork, tick: Callable[[int], None] = lambda messages: None, *, timed: bool = False
    ) -> None:
        """Wrap a network. `tick` is called for every message, with the number of messages so far. With `timed`, the
        time of each message is kept."""
        self.timed = timed
        self.network = network
        self.size = network.size
        self.offload = network.offload
        self.steps: set[int] = set()
        self.messages = 0
        self.sent = [0] * network.size
        self.times = array("q")
        """Time of each message in picoseconds, from when its sender was told to send it until it has ended."""
        self._tick = tick
        self._ends = [_WatchedEnd(self, network.end(rank)) for rank in range(network.size)]

    @property
    def timers(self) -> CollectiveTimers:  # type: ignore[override]  # it has no own
        return self.network.timers

    @property
    def nodes(self) -> Sequence[Sequence[int]] | None:
        return self.network.nodes

    @property
    def now(self) -> int:
        return self.network.now

    @property
    def counts(self) -> NetworkCounts:
        return self.network.counts

    def end(self, rank: int) -> RankTransport:
        return self._ends[rank]

    def run(self, ready: Callable[[], bool], limit: int | None) -> bool:
        return self.network.run(ready, limit)

    def advance(self, instant: int) -> None:
        self.network.advance(instant)

    def close(self, drain: bool) -> None:
        self.network.close(drain)

    def count(self, rank: int, step: int, length: int) -> None:
        """Count a message of `length` bytes that a rank sends."""
        self.steps.add(step)
        self.messages += 1
        self.sent[rank] += length
        self._tick(self.messages)


class _WatchedEnd:
    """This class is the `RankTransport` of a rank, and counts the messages that the rank sends."""

    def __init__(self, network: MeasuredNetwork, end: RankTransport) -> None:
        self._end = end
        self._count = network.count
        self._send = end.send
        self._timed, self._times = network.timed, network.times
        self.rank = end.rank
        self.size = end.size
        self.receive = end.receive
        self.after = end.after

    @property
    def now(self) -> int:
        return self._end.now

    def send(self, peer: int, tag: Tag, data: memoryview, done: Done) -> None:
        self._count(self.rank, tag.step, data.nbytes)
        start, times = self._end.now, self._times

        def ended(failure: TransportError | None) -> None:
            times.append(self._end.now - start)
            done(failure)

        self._send(peer, tag, data, ended if self._timed else done)


class FormulaResult(NamedTuple):
    """This record holds steps, bytes and time by a formula. The bytes are those of the busiest rank."""

    steps: int
    bytes_per_rank: float
    time: float
    """Time in picoseconds."""

    def as_dict(self) -> dict[str, Any]:
        return {"steps": self.steps, "bytes_per_rank": _whole(self.bytes_per_rank), "time_ps": round(self.time)}


def formula(
    op: str, algorithm: str, size: int, length: int, costs: Costs, *, nodes: int, inside: Costs, **options: Any
) -> FormulaResult | None:
    """Return the steps, bytes and time of an algorithm by its formula, or None if the algorithm has no formula.
    `options` are those of `catalogue.schedule`."""
    if ALGORITHMS[op][algorithm].formula is None:
        return None
    return in_picoseconds(expected(op, algorithm, size, length, costs, nodes=nodes, inside=inside, **options))


def in_picoseconds(found: Expected) -> FormulaResult:
    """Convert expected costs, which are in seconds, to a formula result, which is in picoseconds."""
    return FormulaResult(found.steps, found.sent, found.time * SECOND)


def promised(schedule: Schedule, topology: Topology, itemsize: int, *, relay: bool = True) -> LinkBytes:
    """Return the bytes that a schedule puts on every link. If `relay` is True, messages to other rails are relayed, as
    in `link_bytes`."""
    columns = schedule.arrays()
    sizes = columns["count"].astype(np.int64) * itemsize
    return link_bytes(topology, columns["src"], columns["dst"], sizes, relay=relay)


class LinkCount(NamedTuple):
    """This record holds the counts of one direction of a cable."""

    link: str
    """Names of the two ends, sender first, as in "rank0 > leaf0"."""
    frames: int
    wire: int
    """Number of bytes of all frames, with headers and acknowledgements."""
    payload: int
    """Number of payload bytes that belong to messages of the collective."""


class GroupPort(NamedTuple):
    """This record says how many copies of multicast frames a switch sent through one of its ports."""

    switch: str
    port: str
    """Name of the neighbour that the port connects to."""
    frames: int
    bytes: int


class AggregationPort(NamedTuple):
    """This record holds the counters that an aggregation node has for one of its ports."""

    node: str
    port: str
    counters: dict[str, int]
    """Counters by their published names (sharp.md §1.8). Counters that are 0 are left out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InNetwork:
    """This record describes how the network carried out a collective."""

    groups: tuple[GroupPort, ...] = ()
    counters: dict[str, dict[str, int]] = field(default_factory=dict)
    """Counters of SHARP by the name of the host or aggregation node. Counters that are 0 are left out."""
    ports: tuple[AggregationPort, ...] = ()
    notes: tuple[str, ...] = ()
    """Reasons why the ranks carried out the collective themselves. There are none if the network carried out the
    collective."""
    traps: tuple[str, ...] = ()
    """Traps that aggregation nodes sent to the manager."""
    log: tuple[str, ...] = ()
    """Lines of the log of SHARP. It is empty unless `SHARP_COLL_LOG_LEVEL` is set."""
    made: int = 0
    """Picoseconds that it took to join all ranks to their group. This time is not part of the time of the
    collective."""

    def as_dict(self) -> dict[str, Any]:
        groups: dict[str, dict[str, dict[str, int]]] = {}
        for one in self.groups:
            groups.setdefault(one.switch, {})[one.port] = {"frames": one.frames, "bytes": one.bytes}
        ports: dict[str, dict[str, dict[str, int]]] = {}
        for each in self.ports:
            ports.setdefault(each.node, {})[each.port] = each.counters
        return {
            "group_time_ps": self.made, "group_ports": groups, "counters": self.counters, "notes": list(self.notes),
            "aggregation_ports": ports, "traps": list(self.traps),
            "log": list(self.log),
        }  # fmt: skip


class MessageTimes(NamedTuple):
    """This record holds the times of the messages between hosts, from when a sender was told to send one until it has
    ended, in picoseconds."""

    p50: int
    p99: int
    max: int


def message_times(times: Sequence[int]) -> MessageTimes | None:
    """Return the times of messages, or None if there are none."""
    if not times:
        return None
    ordered = sorted(times)
    p50, p99 = (ordered[min(len(ordered) - 1, share * len(ordered) // 100)] for share in (50, 99))
    return MessageTimes(p50, p99, ordered[-1])


@dataclass(frozen=True, slots=True)
class MeasuredCollective(SuggestsNames):
    """This record holds the measurements of one collective."""

    op: str
    algorithm: str
    ranks: int
    bytes: int
    """Size of the full vector in bytes."""
    steps: int
    messages: int
    sent: tuple[int, ...]
    """Bytes that each rank sent."""
    links: tuple[LinkCount, ...] | None
    """Counts of all links. It is None if the transport has no packets."""
    promised: int | None
    """Bytes that the schedule, or a formula, puts on all links together: `trav` (collectives.md §2). It is None if
    neither predicts them."""
    time: int
    """Virtual time in picoseconds until the last rank is done."""
    formula: FormulaResult | None
    correct: bool
    transport: str
    topology: str
    """Name of the topology as `--topology` takes it, with the parameters that differ from its defaults."""
    dtype: str
    seed: int
    ports: int = 1
    """Number of ports of each NIC."""
    cc: str = "off"
    """Congestion control, as `--cc` takes it."""
    lb: str | None = None
    """Path selection with the congestion control of UET. It is None otherwise."""
    message_times: MessageTimes | None = None
    """Times of the messages. It is None if the transport has no packets, or the network carried out the collective."""
    counts: NetworkCounts | None = None
    """Counts of frames that were lost and of packets that were sent again, from the start until all ranks are done. It
    is None if nothing was run."""
    network: InNetwork | None = None
    """Report about the network. It is None unless the network was asked to carry out the collective."""
    trains: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Only with `trains = "on"`: what each node has of trains (`TrainTally.as_dict`)."""
    choice: AlgorithmChoice | None = None
    """Choice that `--algorithm auto` made. It is None for other algorithms."""

    @property
    def wire(self) -> int | None:
        """Return the bytes of all frames on all links, or None if the transport has no packets."""
        return None if self.links is None else sum(link.wire for link in self.links)

    @property
    def payload(self) -> int:
        """Return the payload bytes on all links. They are counted on the links or, on a transport without packets,
        computed from the schedule."""
        return self.promised or 0 if self.links is None else sum(link.payload for link in self.links)

    @property
    def busiest(self) -> int:
        """Return the bytes that the busiest rank sends."""
        return max(self.sent)

    @property
    def busiest_nic(self) -> int:
        """Return the payload bytes that the busiest NIC sends, including those that it forwards for other ranks."""
        sent: Counter[str] = Counter()
        for link in self.links or ():
            if link.link.startswith("rank"):
                sent[link.link.partition(" ")[0].partition(".")[0]] += link.payload  # of all ports of a NIC
        return max(sent.values(), default=0)

    @property
    def injected(self) -> int:
        """Return `inj` (collectives.md §2): the bytes that all ranks send together."""
        return sum(self.sent)

    @property
    def algbw(self) -> float:
        """Return algbw (collectives.md §2), the bytes of the full vector per second. It is 0 if the collective takes no
        time."""
        return self.bytes / (self.time / SECOND) if self.time else 0.0

    @property
    def busbw(self) -> float:
        """Return busbw in bytes per second (collectives.md §2), which can be compared with the rate of a link. It is 0
        if the collective takes no time."""
        return bus_bandwidth(self.op, self.ranks, self.bytes, self.time / SECOND) if self.time else 0.0

    def _counted(self) -> dict[str, Any]:
        counts = self.counts
        if counts is None:
            return dict.fromkeys(("drops", "trims", "marks", "retransmissions"))
        return {
            "drops": counts.drops, "trims": counts.trims, "marks": counts.marks,
            "retransmissions": dict(sorted(counts.retransmissions.items())),
        }  # fmt: skip

    @property
    def losses(self) -> str | None:
        """Return a text about lost frames and retransmitted packets, or None if there were none."""
        counts = self.counts
        if counts is None or not (counts.drops or counts.trims or counts.retransmissions):
            return None
        lost = f"{counts.drops:,} frames dropped, {counts.trims:,} trimmed"
        again = ", ".join(f"{cause} {number:,}" for cause, number in sorted(counts.retransmissions.items()))
        return f"{lost}, {sum(counts.retransmissions.values()):,} packets sent again" + (again and f" ({again})")

    def as_dict(self) -> dict[str, Any]:
        found = {
            "op": self.op,
            "algorithm": self.algorithm,
            "ranks": self.ranks,
            "bytes": self.bytes,
            "steps": self.steps,
            "bytes_per_rank_tx": list(self.sent),
            "bytes_on_links": self.wire,
            "payload_on_links": self.payload,
            "virtual_time_ps": self.time,
            "formula": None if self.formula is None else self.formula.as_dict(),
            "correct": self.correct,
            **self._counted(),
            "transport": self.transport,
            "topology": self.topology,
            "dtype": self.dtype,
            "seed": self.seed,
            "ports": self.ports,
            "cc": self.cc,
            "lb": self.lb,
            "message_times": None if self.message_times is None else self.message_times._asdict(),
        }
        if self.network is not None:
            found["in_network"] = self.network.as_dict()
        if self.trains:
            found["trains"] = dict(self.trains)
        if self.choice is not None:
            found["choice"] = self.choice.as_dict()
        return found


def _whole(number: float) -> float:
    return int(number) if number == int(number) else number
