# SPDX-License-Identifier: GPL-2.0-only
"""This module has the measurements of a study."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from uetproto.engine.contract import SECOND
from uetproto.errors import SuggestsNames

if TYPE_CHECKING:
    from uetproto.fabric.study import Study


@dataclass(frozen=True, slots=True)
class FlowTimes:
    """This class has flow completion times, from the start of a flow to the ACK of its last packet at the sender.

    Times are in picoseconds.
    """

    min: int
    mean: float
    p50: int
    p99: int
    max: int


@dataclass(frozen=True, slots=True)
class LinkLoads:
    """This class has the bytes that links between switches carried: of the least and the most used link, and the mean
    of all."""

    min: int
    mean: float
    max: int


@dataclass(frozen=True, slots=True)
class StudyResult(SuggestsNames):
    """A study result has the counts of one run, for the whole fabric."""

    pattern: str
    hosts: int
    rate: int
    cc: str
    lb: str
    profile: str
    seed: int
    trim: bool
    flows: int
    """Number of flows that ended."""
    fct: FlowTimes | None
    """None: no flow ended."""
    parts: dict[str, FlowTimes]
    """Times of the flows of each pattern, if there are several."""
    goodput: float
    """Payload bits a second, of all flows that ended, from the first start to the last end."""
    fairness: float
    """Jain's index of the mean rates of the flows: 1 if all are equal, 1 / flows if one has everything."""
    marks: int
    trims: int
    drops: int
    retransmissions: dict[str, int]
    acks: int
    nacks: dict[str, int]
    path_load: LinkLoads | None
    queue_peak: int
    """Largest number of bytes that ever waited in one level of one queue."""
    packets: int
    """Number of first transmissions."""
    virtual_time_ps: int
    match: bool
    """Whether all memories have the bytes that were sent."""
    failure: str | None = None
    trains: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Only with `trains = "on"`: what each host has of trains (`TrainTally.as_dict`)."""

    def as_dict(self) -> dict[str, Any]:
        """Return the result as the JSON object of `uetproto fabric --json`."""
        found = asdict(self)
        if not self.trains:
            del found["trains"]
        return found


def percentile(ordered: Sequence[int], share: float) -> int:
    """Return a percentile of sorted numbers, by the nearest rank."""
    return ordered[max(0, min(len(ordered) - 1, -int(-share * len(ordered) // 1) - 1))]


def flow_times(times: Sequence[int]) -> FlowTimes:
    """Return the least, mean, middle and greatest of flow completion times, of which there is one at least."""
    ordered = sorted(times)
    mean = sum(ordered) / len(ordered)
    return FlowTimes(ordered[0], mean, percentile(ordered, 0.5), percentile(ordered, 0.99), ordered[-1])


def jain(rates: Sequence[float]) -> float:
    """Return Jain's fairness index of rates."""
    squares = sum(rate * rate for rate in rates)
    return sum(rates) ** 2 / (len(rates) * squares) if squares else 1.0


def summarize(study: "Study") -> StudyResult:
    """Return what a study that has run measured."""
    config, matrix, network = study.config, study.matrix, study.network
    ended = [(flow, study.ended[flow.number]) for flow in matrix.flows if flow.number in study.ended]
    times = [end - flow.start for flow, end in ended]
    parts = {
        part: flow_times([end - flow.start for flow, end in ended if flow.part == part])
        for part in dict.fromkeys(flow.part for flow, _ in ended)
    }
    fct = None
    goodput, fairness = 0.0, 1.0
    if times:
        fct = flow_times(times)
        span = max(end for _, end in ended) - min(flow.start for flow, _ in ended)
        goodput = 8 * SECOND * sum(flow.size for flow, _ in ended) / span
        fairness = jain([flow.size / (end - flow.start) for flow, end in ended])
    match = study.matches()
    failure = "; ".join(study.failed[:3]) or (None if match else "the memory of a target differs from what was sent")
    loads = [hop.link.bytes for hop in network.hops if f"{hop.source} > {hop.target}" in network.trunks]
    load = LinkLoads(min(loads), sum(loads) / len(loads), max(loads)) if loads else None
    queues = (*network.queues.values(), *network.trunks.values())
    return StudyResult(
        matrix.name, matrix.hosts, config.rate, config.cc, config.lb, config.profile, config.seed, config.trim,
        len(ended), fct, parts if len(parts) > 1 else {}, goodput, fairness,
        network.marks, network.trims, network.drops, dict(study.retransmissions()),
        sum(fep.pds.counters.ack_tx for fep in study.feps.values()), study.nacks(), load,
        max((queue.peak for queue in queues), default=0), sum(fep.pds.counters.data_tx for fep in study.feps.values()),
        study.clock.now, match, failure, network.trains if config.trains == "on" else {},
    )  # fmt: skip
