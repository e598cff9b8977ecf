# SPDX-License-Identifier: GPL-2.0-only
"""This module runs one traffic matrix in one fabric, over UET in mode RUD, with one seed, and measures it."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import blake2s
from io import BytesIO
from itertools import accumulate
from random import Random
from typing import Any

from uetproto.emulator.congestion import OFF, NetworkPlane, SwitchConfig, hops_of
from uetproto.emulator.flows import Flow
from uetproto.emulator.network.build import build
from uetproto.emulator.network.clock import Clock
from uetproto.emulator.network.config import NetworkConfig, NodeAttachment
from uetproto.emulator.network.layouts import Layout, cable_of, cables_between_switches, layout_of, places_of
from uetproto.emulator.network.nic import RING
from uetproto.emulator.network.tap import FrameWriter
from uetproto.engine.cc.registry import CongestionContexts
from uetproto.engine.config import PdsConfig, SesConfig
from uetproto.engine.contract import MICROSECOND, SECOND, Completion, Event, Mode, Rng, Write
from uetproto.engine.fep import Fep
from uetproto.engine.memory import Region
from uetproto.engine.pds.nacks import nacks_of
from uetproto.engine.ses.addressing import Process
from uetproto.errors import LocalError
from uetproto.fabric.matrix import TrafficMatrix
from uetproto.fabric.result import StudyResult, summarize
from uetproto.fabric.samples import Sampler
from uetproto.framing.uet import Encapsulation, UetFramer
from uetproto.garbage import seldom_collected
from uetproto.system_memory import same_bytes, zeros
from uetproto.wire.capture.base import ETHERNET

SLOW = 4
"""Number by which the rate of a slow link is divided."""
JOB, FIRST_ADDRESS = 1, 0x0A000001
_MTU_SLACK = 9216
_DRAWN = 1 << 24
"""Number of bytes that are drawn at a time, a multiple of 4."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyConfig:
    """This class has the parameters of a study."""

    rate: int = 100 * 10**9
    """Rate of each link in bits a second."""
    delay: int = MICROSECOND
    """Delay of each link in picoseconds."""
    topology: str = "fat-tree"
    parameters: dict[str, int] = field(default_factory=dict)
    """Parameters of the topology, such as `k` of a fat tree."""
    queue: int | None = None
    """Bytes that a queue of a switch holds. None: a bandwidth-delay product in whole packets, or `DEEP` of them without
    trimming."""
    trim: bool = True
    """Whether switches trim packets that find no room."""
    slow_links: int = 0
    """Number of links from core switches to the first aggregation switch that have a quarter of the rate."""
    cc: str = OFF
    """Congestion control: `CcConfig.algorithm`, or `OFF`."""
    lb: str = "mixed"
    """Path selection with congestion control (`CcConfig.lb`)."""
    profile: str = "recommended"
    """How congestion control and switches behave, `recommended` by the notes or as `htsim`, the UEC simulator."""
    taps: tuple[str, ...] | None = None
    """Places that a capture shows: names of hosts, such as h3, of cables between switches, such as leaf0.spine1, and of
    switches, such as leaf0, for all their cables. None: all hosts."""
    failing: tuple[tuple[str, int], ...] = ()
    """Cables between switches that are cut, both directions, and the instants in picoseconds."""
    sample: int | None = None
    """Picoseconds between samples of windows and queues (`samples.Sampler`). None: there are none."""
    wire: str = "bytes"
    """Form of the frames, `bytes` or `objects` (`NetworkFeatures.wire`)."""
    trains: str = "auto"
    """Whether runs of equal packets are handled together (`NetworkFeatures.trains`)."""
    given: dict[str, Any] = field(default_factory=dict)
    """Parameters of congestion control that do not follow from the network (`congestion.CC_KEYS`)."""
    switch: SwitchConfig = field(default_factory=SwitchConfig)
    seed: int = 1
    limit: int = SECOND
    """Picoseconds of virtual time after which a study is given up."""
    pds: PdsConfig = field(default_factory=lambda: PdsConfig(
        max_rto_retx_cnt=15, max_nack_retx_cnt=31, idle_time=0,
    ))  # fmt: skip
    ses: SesConfig = field(default_factory=SesConfig)
    how: Encapsulation = field(default_factory=Encapsulation)


class Study:
    """A study has the network, the endpoints and the memories of one run."""

    def __init__(self, config: StudyConfig, matrix: TrafficMatrix, writer: FrameWriter | None = None) -> None:
        """Build the network. With `writer`, all frames that hosts send and receive are captured.

        Raises `LocalError` for parameters that do not fit.
        """
        self.config = config
        self.matrix = matrix
        self.clock = Clock()
        self.open = len(matrix.flows)
        self.ended: dict[int, int] = {}
        """Time at which each flow ended, by its number."""
        self.failed: list[str] = []
        self.layout = layout_of(config.topology, matrix.hosts, config.parameters)
        self.plane = self._plane(config, self.layout)
        self.plane.check()
        self.taps = self.places(config, matrix)
        """Interfaces of the capture: places by name, in order."""
        self._flows = {flow.number: flow for flow in matrix.flows}
        self.memories = _memories(matrix)
        """Memory of the target of each flow, by its number."""
        most = max(flow.size for flow in matrix.flows)
        self._data = memoryview(_drawn(Random(config.seed), most))
        self.managers: dict[str, CongestionContexts] = {}
        """Congestion control of each host, by its name; empty without congestion control."""
        self._pds = config.pds if config.cc == OFF else self.plane.tuned(config.pds)
        self.feps = {f"h{host}": self._fep(host) for host in range(matrix.hosts)}
        self.network = build(
            self.clock, self._network(), {name: self._attachment(name, fep) for name, fep in self.feps.items()},
            dscp=config.how.dscp, chance=self._chance, writer=writer,
        )  # fmt: skip
        self._register()
        for cable, instant in config.failing:
            self.clock.at(instant, self._cut, cables_between_switches(self.layout)[cable_of(self.layout, cable)])
        self.sampler = None if config.sample is None else Sampler(self, config.sample)

    @staticmethod
    def _plane(config: StudyConfig, layout: Layout | None) -> NetworkPlane:
        return NetworkPlane(
            rate=config.rate, delay=config.delay, hops=hops_of(layout, config.topology), how=config.how,
            payload_mtu=config.ses.payload_mtu, trimming=config.trim, algorithm=config.cc, lb=config.lb,
            profile=config.profile, capacity=config.queue, given=config.given, switch=config.switch,
        )  # fmt: skip

    @classmethod
    def interfaces(cls, config: StudyConfig, matrix: TrafficMatrix) -> list[tuple[str, int, str | None]]:
        """Return the interfaces of a capture: name, link type, and at hosts what they have of congestion control.
        Raises `LocalError` for a place that does not exist."""
        layout = layout_of(config.topology, matrix.hosts, config.parameters)
        about, cables = cls._plane(config, layout).told, cables_between_switches(layout)
        return [(name, ETHERNET, None if name in cables else about) for name in cls.places(config, matrix)]

    @staticmethod
    def places(config: StudyConfig, matrix: TrafficMatrix) -> tuple[str, ...]:
        """Return the interfaces of a capture, in their order. Raises `LocalError` for a place that does not exist."""
        hosts = tuple(f"h{host}" for host in range(matrix.hosts))
        if config.taps is None:
            return hosts
        layout = layout_of(config.topology, matrix.hosts, config.parameters)
        return tuple(dict.fromkeys(place for name in config.taps for place in places_of(layout, name, hosts)))

    def flow(self, number: int) -> Flow:
        """Return the flow with a number."""
        return self._flows[number]

    def _cut(self, ends: tuple[str, str]) -> None:
        for hop in self.network.hops:
            if f"{hop.source} > {hop.target}" in ends:
                hop.link.cut()

    def _network(self) -> NetworkConfig:
        config, plane = self.config, self.plane
        controlled = config.cc != OFF or config.switch != SwitchConfig()
        cables = cables_between_switches(self.layout)
        return NetworkConfig(
            topology=config.topology, wire=config.wire, trains=config.trains, layout=self.layout,
            mtu=_MTU_SLACK, trimming=config.trim,
            rate=config.rate, delay=config.delay, queue_capacity=plane.queue, red=plane.red if controlled else None,
            rules=plane.rules if controlled else None, host_marks=plane.host_marks, slow=self._slow(),
            hash_salt=plane.switch.hash_salt,
            taps={end: self.taps.index(name) for name, ends in cables.items() if name in self.taps for end in ends},
        )  # fmt: skip

    def _slow(self) -> dict[str, int]:
        """Return the links that are slow: the first ones from core switches to the first aggregation switch (cms.md
        §11.2)."""
        count, layout = self.config.slow_links, self.layout
        if not count:
            return {}
        names = [] if layout is None else [
            f"{layout.name(source)} > {layout.name(target)}" for source, target in layout.links
            if source >= layout.size and layout.name(source).startswith("core") and layout.name(target) == "pod0.agg0"
        ]  # fmt: skip
        if count > len(names):
            legal = f"0 … {len(names)} links to pod0.agg0" if names else "0: only a fat tree of three levels has them"
            raise LocalError("slow-links", f"{count} is not legal", legal, id="out-of-range")
        return dict.fromkeys(names[:count], SLOW)

    def _chance(self, *names: str) -> Rng:
        digest = blake2s("\0".join(names).encode(), key=self.config.seed.to_bytes(8, "big")).digest()
        return Random(int.from_bytes(digest, "big"))

    def _fep(self, host: int) -> Fep:
        config, congestion = self.config, None
        if config.cc != OFF:
            congestion = self.managers[f"h{host}"] = self.plane.contexts(self._chance(f"h{host}", "cc"))
        return Fep(
            FIRST_ADDRESS + host, self._chance(f"h{host}", "engine"), pds=self._pds, ses=config.ses,
            congestion=congestion, objects=config.wire == "objects",
        )  # fmt: skip

    def _attachment(self, name: str, fep: Fep) -> NodeAttachment:
        return NodeAttachment(
            address=fep.address, rate=self.config.rate, engine=fep, framer=UetFramer(fep.address, 4, self.config.how),
            on_event=self._on_event,
            tap=self.taps.index(name) if name in self.taps else None, ring=RING if self.config.cc == OFF else 1,
        )  # fmt: skip

    @staticmethod
    def name_of(address: int) -> str:
        """Return the name of the host with an address."""
        return f"h{address - FIRST_ADDRESS}"

    def _register(self) -> None:
        processes: dict[int, Process] = {}
        for flow in self.matrix.flows:
            process = processes.get(flow.target)
            if process is None:
                process = processes[flow.target] = self.feps[f"h{flow.target}"].attach(JOB)
            process.register(Region(flow.number, self.memories[flow.number]))

    # The run

    def run(self, progress: Callable[[int, int], None] | None = None) -> StudyResult:
        """Run all flows, and return what was measured. `progress` is called with the flows that ended, and the time."""
        for flow in self.matrix.flows:
            self.clock.at(flow.start, self._start, flow.number)
        with seldom_collected():
            while self.open and self.clock.run(self.config.limit, 100_000):
                if progress is not None:
                    progress(len(self.ended), self.clock.now)
        if self.open:
            self.failed.append(f"{self.open} flows did not end within {self.clock.now / MICROSECOND:,.0f} µs")
        if self.network.capture is not None:
            self.network.capture.close()
        return summarize(self)

    def _start(self, number: int) -> None:
        flow = self._flows[number]
        self.network.nics[f"h{flow.source}"].submit(Write(
            peer=FIRST_ADDRESS + flow.target, mode=Mode.RUD, job_id=JOB, key=number, data=self._data[: flow.size],
            context=number,
        ))  # fmt: skip

    def _on_event(self, event: Event) -> None:
        if isinstance(event, Completion):
            self.open -= 1
            self.ended[event.context] = self.clock.now
            if not event.ok:
                self.failed.append(f"flow {event.context}: {event.error or event.return_code.name}")
            if not self.open:
                self.clock.stop()

    def matches(self) -> bool:
        """Return whether the memory of each target has the bytes that were sent."""
        return same_bytes(self._data, self.memories.values())

    def retransmissions(self) -> Counter[str]:
        """Return how many packets were sent again, by cause."""
        found: Counter[str] = Counter()
        for fep in self.feps.values():
            found.update(fep.retransmitted)
        return found

    def nacks(self) -> dict[str, int]:
        """Return how many NACKs were sent, by code."""
        return nacks_of(fep.pds.nack_tx for fep in self.feps.values())


def _memories(matrix: TrafficMatrix) -> dict[int, memoryview]:
    """Return memory for each flow, by its number. Raises `LocalError` if the system refuses so much."""
    ends = list(accumulate(flow.size for flow in matrix.flows))
    try:
        block = zeros(ends[-1], huge=True)
    except (OSError, OverflowError) as error:
        raise LocalError(
            "flows", f"{ends[-1]:,} bytes at their targets: {error}", "less than this host has", id="out-of-range"
        ) from None
    return {flow.number: block[end - flow.size : end] for flow, end in zip(matrix.flows, ends, strict=True)}


def _drawn(rng: Random, size: int) -> bytes:
    """Return `size` random bytes, the same as those of `randbytes`, which cannot draw as many at once."""
    drawn = BytesIO()
    for at in range(0, size, _DRAWN):
        drawn.write(rng.randbytes(min(_DRAWN, size - at)))
    return drawn.getvalue()
