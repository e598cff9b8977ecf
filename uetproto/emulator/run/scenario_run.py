# SPDX-License-Identifier: GPL-2.0-only
"""This module has what all runs on an emulated network share, for any transport and application: engines, NICs, links,
time.
"""

import random
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from uetproto.emulator.network.build import build
from uetproto.emulator.network.built import BuiltNetwork
from uetproto.emulator.network.clock import Clock
from uetproto.emulator.network.config import NodeAttachment
from uetproto.emulator.network.layouts import cables_between_switches
from uetproto.emulator.network.nic import RING
from uetproto.emulator.network.tap import FrameWriter, TapCapture
from uetproto.emulator.run.result import Memories, RunResult
from uetproto.emulator.run.verify import FrameJudge
from uetproto.emulator.scenario.settings import NodeConfig, Scenario
from uetproto.engine.contract import Engine
from uetproto.framing.dscp import Dscp
from uetproto.framing.framer import Framer

Progress = Callable[[int, int], None]
"""Type of a function `progress(done, total)`. `done` is the number of bytes that have been moved so far, and `total` is
the number of all bytes."""

SLICE = 20_000
"""Number of events between two reports of progress."""


def ignore(event: Any) -> None:
    """Do nothing: the application of the target expects no event."""


class ScenarioRun(ABC):
    """This is the base class of runs on a network. A subclass makes the engines, and has the application in its methods
    `play` and `on_event`.
    """

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.clock = Clock()
        self.engines: dict[str, Engine] = {}
        """Engines that the NICs drive, or their guards. The key is the name of the node; a subclass adds the
        entries."""
        self.network = BuiltNetwork()
        self.capture: TapCapture | None = None
        self.done_at: int | None = None
        """Virtual time in picoseconds at which the application ended. It is None while the application runs."""
        self.failure: str | None = None

    # The application

    @abstractmethod
    def play(self, progress: Progress | None) -> None:
        """Run until the application has ended or the time limit is reached. Then let frames in transit arrive."""

    @abstractmethod
    def on_event(self, name: str) -> Callable[[Any], None]:
        """Return the function that takes the events of the engine of the node `name`."""

    def end(self, failure: str | None) -> None:
        """End the application. `failure` is the reason if the run failed, and None otherwise."""
        if self.done_at is None:
            self.failure = failure
            self.done_at = self.clock.now
            self.clock.stop()

    @property
    def unanswered(self) -> bool:
        """Return whether the transport acknowledges nothing. The run then ends when the last frame has arrived."""
        return False

    # Building

    @abstractmethod
    def framer(self, node: NodeConfig) -> Framer:
        """Return the framer for the NIC of a node."""

    def dscp(self) -> Dscp:
        """Return the DSCP of each traffic class."""
        return self.scenario.encapsulation.dscp

    def guard(self, judge: FrameJudge) -> None:  # noqa: B027  only UET has invariants
        """Do nothing: no invariants are checked over this transport."""

    def chance(self, *component: str) -> random.Random:
        """Return a random number generator for a component of the run. No other component draws from it."""
        return random.Random("/".join((str(self.scenario.run.seed), *component)))

    def connect(self, writer: FrameWriter | None) -> None:
        """Join the nodes by the network. Frames that pass the taps are written to `writer`, if it is not None."""
        scenario, config = self.scenario, self.scenario.fabric
        nodes = {
            name: NodeAttachment(
                address=node.address,
                rate=node.rate or config.rate,
                engine=self.engines[name],
                framer=self.framer(node),
                on_event=self.on_event(name),
                tap=scenario.taps.index(name) if name in scenario.taps else None,
                faults=scenario.faults if name in scenario.faults_from else None,
                ports=node.ports,
                ring=1 if scenario.plane is not None and scenario.plane.controls else RING,
            )
            for name, node in scenario.nodes.items()
        }
        if scenario.steps:
            config = replace(config, topology="scripted")
        self.network = build(self.clock, config, nodes, dscp=self.dscp(), chance=self.chance, writer=writer)
        self.capture = self.network.capture
        for cable, instant in scenario.failing:
            self.clock.at(instant, self._cut, cables_between_switches(config.layout)[cable])

    def _cut(self, ends: tuple[str, str]) -> None:
        for hop in self.network.hops:
            if f"{hop.source} > {hop.target}" in ends:
                hop.link.cut()

    # The end

    def run_out(self) -> None:
        """Stop the NICs, and let frames in transit arrive. The run has failed if the application has not ended
        before.
        """
        clock = self.clock
        if self.done_at is None:
            self.done_at = clock.now
            if self.failure is None:
                self.failure = "the time limit was reached" if len(clock) else "nothing is left to happen"
        for nic in self.network.nics.values():
            nic.stop()
        clock.run()
        if self.unanswered:
            self.done_at = max(self.done_at, *(nic.received_at for nic in self.network.nics.values()))

    def close(self) -> None:
        if self.capture is not None:
            self.capture.close()

    @abstractmethod
    def nacks(self) -> dict[str, int]:
        """Return how many NACKs the nodes have sent. The key is the name of the NACK's code."""

    @abstractmethod
    def counters(self) -> dict[str, dict[str, int]]:
        """Return the counters of each node."""

    def result(self, memories: Memories, judge: FrameJudge | None, output: str | None) -> RunResult:
        """Return the result of a run that has ended."""
        run_, network, nacks = self.scenario.run, self.network, self.nacks()
        queues = network.queues | network.trunks
        corrupted = sum(port.done["corrupt"] for port in network.faults.values())
        assert self.done_at is not None
        return RunResult(
            scenario=self.scenario.name,
            seed=run_.seed,
            match=memories.same,
            sha256_source=memories.sha256_source,
            sha256_target=memories.sha256_target,
            bytes=memories.bytes,
            wire_bytes=sum(link.bytes for link in network.links.values()),
            queue_peaks={name: queue.peak for name, queue in queues.items() if queue.peak},
            packets=sum(nic.sent for nic in network.nics.values()),
            retransmissions=sum(nic.repeated for nic in network.nics.values()),
            nacks=sum(nacks.values()),
            virtual_time_ps=self.done_at,
            capture=output,
            failure=self.failure,
            happened=self.happened(),
            nacks_by_code=nacks,
            counters=self.counters(),
            checked=judge.frames if judge else None,
            findings=judge.findings(corrupted) if judge else (),
            trains=network.trains if self.scenario.fabric.trains == "on" else {},
        )

    def happened(self) -> dict[str, int]:
        """Return counts of faults, drops, marks, pauses and refused frames. Counts of 0 are left out."""
        counts: Counter[str] = Counter()
        for port in self.network.faults.values():
            counts.update(port.done)
        for switch in self.network.switches.values():
            counts.update(switch_dropped=switch.dropped, switch_trimmed=switch.trimmed, switch_unknown=switch.unknown)
        counts.update(switch_marked=sum(marker.marked for marker in self.network.markers.values()))
        counts.update(pauses=sum(ingress.pauses for ingress in self.network.ingresses.values()))
        for nic in self.network.nics.values():
            framer = nic.framer
            counts.update(bad_crc=framer.bad_crc, bad_header=framer.bad_header, foreign=framer.foreign)
        return {name: count for name, count in counts.items() if count}
