"""Everything that a run with real SES has, whatever its application does: endpoints, NICs, links, time and chance."""

import random
from collections import Counter
from collections.abc import Callable

from uetproto.emulator.clock import Clock
from uetproto.emulator.faults import refusals
from uetproto.emulator.link import ETHERNET_SIZE
from uetproto.emulator.result import Memories, Result, counters_of, nacks_of
from uetproto.emulator.settings import Node, Scenario
from uetproto.emulator.steps import ScriptedFep
from uetproto.emulator.tap import Capture, Writer
from uetproto.emulator.topology import TOPOLOGIES, Cabling, Network, Station
from uetproto.emulator.verify import Guards, Judge
from uetproto.engine import Fep
from uetproto.engine.contract import SECOND, Engine, Event
from uetproto.engine.pdc_pool import Preset

Progress = Callable[[int, int], None]
"""`progress(done, total)`: bytes in the memory of the target."""

SLICE = 20_000
"""Events between two looks at the progress."""


class World:
    """Everything of one run; its application is what a subclass does in `play` and `on_event`."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.clock = Clock()
        self.feps = {name: self._fep(node) for name, node in scenario.nodes.items()}
        self.engines: dict[str, Engine] = dict(self.feps)
        """What the NICs drive: the endpoints, or those that watch them."""
        self.network = Network()
        self.capture: Capture | None = None
        self.done_at: int | None = None
        """When the application had nothing left to do."""
        self.failure: str | None = None

    # The application

    def play(self, progress: Progress | None) -> None:
        """Until the application is done, has failed, or the time is up; then what is under way arrives."""
        raise NotImplementedError

    def on_event(self, name: str) -> Callable[[Event], None]:
        """Takes the events of the endpoint at node `name`."""
        raise NotImplementedError

    def end(self, failure: str | None) -> None:
        """The application is done."""
        if self.done_at is None:
            self.failure = failure
            self.done_at = self.clock.now
            self.clock.stop()

    # Building

    def _fep(self, node: Node) -> Fep:
        kind = ScriptedFep if self.scenario.steps else Fep
        chance = self.chance(node.name, "engine")
        fep = kind(node.address, chance, pds=node.pds, ses=node.ses, ip_version=node.ip_version)
        fep.target.fault = refusals(rule for rule in self.scenario.target_faults if rule.node == node.name)
        return fep

    def _preset(self, node: Node) -> None:
        pds, run_ = self.feps[node.name].pds, self.scenario.run
        if node.preset.peer_pdcid and node.name in (run_.initiator, run_.target):
            first = node.name == run_.initiator
            peer = self.scenario.nodes[run_.target if first else run_.initiator].address
            pds.adopt(peer, run_.mode, first, node.preset)
        elif node.preset != Preset():
            pds.preset(node.preset)

    def guard(self, judge: Judge) -> None:
        """Let the two engines of the transfer be watched."""
        run_ = self.scenario.run
        guards = Guards(self.feps[run_.initiator], self.feps[run_.target], judge.find)
        for name in (run_.initiator, run_.target):
            self.engines[name] = guards.of(self.feps[name])

    def chance(self, *component: str) -> random.Random:
        """Each component draws from a generator of its own, so that one cannot disturb another."""
        return random.Random("/".join((str(self.scenario.run.seed), *component)))

    def connect(self, writer: Writer | None) -> None:
        """Join the nodes; what passes the taps goes to `writer`."""
        for node in self.scenario.nodes.values():
            self._preset(node)
        scenario, fabric = self.scenario, self.scenario.fabric
        cabling = Cabling(
            delay=fabric.delay,
            mtu=fabric.mtu,
            queue_capacity=fabric.queue_capacity,
            trimming=fabric.trimming,
            how=fabric.how,
        )
        stations = {
            name: Station(
                address=node.address,
                ip_version=node.ip_version,
                rate=node.rate or fabric.rate,
                engine=self.engines[name],
                on_event=self.on_event(name),
                tap=scenario.taps.index(name) if name in scenario.taps else None,
                faults=scenario.faults if name in scenario.faults_from else None,
                rng=self.chance(name, "faults"),
            )
            for name, node in scenario.nodes.items()
        }
        if writer is not None:
            self.capture = Capture(self.clock, writer, self._patience())
        self.network = TOPOLOGIES["scripted" if scenario.steps else fabric.topology](
            self.clock, cabling, stations, self.capture
        )
        for name, nic in self.network.nics.items():
            nic.framer.ecn_capable = scenario.nodes[name].pds.ecn_capable

    def _patience(self) -> int | None:
        """Longest time from the first bit of a frame until faults and the switch have decided about it."""
        fabric, faults = self.scenario.fabric, self.scenario.faults
        if self.scenario.steps:
            return None
        rate = min(node.rate or fabric.rate for node in self.scenario.nodes.values())
        held = max(faults.reorder_time if faults.reorder else 0, faults.delay_time if faults.delay else 0)
        return 8 * SECOND * (fabric.mtu + ETHERNET_SIZE) // rate + fabric.delay + held + 2  # rounded up, and over

    # The end

    def run_out(self) -> None:
        """Time is over for the application; what is under way still arrives."""
        clock = self.clock
        if self.done_at is None:
            self.done_at = clock.now
            if self.failure is None:
                self.failure = "the time limit was reached" if len(clock) else "nothing is left to happen"
        for nic in self.network.nics.values():
            nic.stop()
        clock.run()

    def finish(self) -> None:
        """The capture is whole, whatever happened."""
        if self.capture is not None:
            self.capture.close()

    def result(self, memories: Memories, judge: Judge | None, output: str | None) -> Result:
        scenario = self.scenario
        nacks = nacks_of(fep.pds for fep in self.feps.values())
        assert self.done_at is not None
        return Result(
            scenario=scenario.name,
            seed=scenario.run.seed,
            match=memories.same,
            sha256_source=memories.sha256_source,
            sha256_target=memories.sha256_target,
            bytes=memories.bytes,
            packets=sum(nic.sent for nic in self.network.nics.values()),
            retransmissions=sum(nic.repeated for nic in self.network.nics.values()),
            nacks=sum(nacks.values()),
            virtual_time_ps=self.done_at,
            capture=output,
            failure=self.failure,
            happened=self._happened(),
            nacks_by_code=nacks,
            counters=counters_of({name: fep.pds for name, fep in self.feps.items()}),
            checked=judge.frames if judge else None,
            findings=judge.findings(self._corrupted()) if judge else (),
        )

    def _corrupted(self) -> int:
        return sum(port.done["corrupt"] for port in self.network.faults.values())

    def _happened(self) -> dict[str, int]:
        counts: Counter[str] = Counter()
        for port in self.network.faults.values():
            counts.update(port.done)
        if (switch := self.network.switch) is not None:
            counts.update(switch_dropped=switch.dropped, switch_trimmed=switch.trimmed, switch_unknown=switch.unknown)
        for nic in self.network.nics.values():
            framer = nic.framer
            counts.update(bad_crc=framer.bad_crc, bad_header=framer.bad_header, foreign=framer.foreign)
        return {name: count for name, count in counts.items() if count}
