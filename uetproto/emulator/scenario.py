"""A scenario, run: two endpoints, a message from a file to the memory of the other, and what came of it."""

import random
import tempfile
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import BinaryIO

from uetproto.emulator.clock import Clock
from uetproto.emulator.files import Comparison, Extent, SourceFile, TargetFile, compare, data_extent
from uetproto.emulator.link import ETHERNET_SIZE
from uetproto.emulator.result import Result, comment_of, counters_of, nacks_of
from uetproto.emulator.scripted import play
from uetproto.emulator.settings import Node, Scenario
from uetproto.emulator.steps import ALL, ScriptedFep, never_came
from uetproto.emulator.tap import Capture, Writer
from uetproto.emulator.topology import TOPOLOGIES, Cabling, Network, Station
from uetproto.emulator.verify import Guards, Judge
from uetproto.engine import Fep
from uetproto.engine.contract import SECOND, Close, Completion, Engine, Event, PdcClosed, Write
from uetproto.engine.memory import BufferMemory, Memory, Region
from uetproto.engine.pdc_pool import Preset
from uetproto.errors import LocalError
from uetproto.wire.malloc import keep_freed_memory
from uetproto.wire.pcap import ETHERNET, open_writer

Progress = Callable[[int, int], None]
"""`progress(done, total)`: bytes in the memory of the target."""

IN_MEMORY = 64 << 20
"""Targets up to so many bytes are in memory, larger ones in a temporary file."""

_SLICE = 20_000  # events between two looks at the progress


def run(
    scenario: Scenario,
    *,
    output: str | None = None,
    check: bool = False,
    progress: Progress | None = None,
) -> Result:
    """Run `scenario` to its end; write what passes the taps to the file `output` ("-": standard output).

    Raises `LocalError` for what cannot be, `OSError` for a file. An interrupt leaves a valid capture.
    """
    if scenario.run.input is None:
        return play(scenario, output, check)
    return _transfer(scenario, scenario.run.input, output, check, progress)


def _transfer(scenario: Scenario, source: Path, output: str | None, check: bool, progress: Progress | None) -> Result:
    """The bytes of a file go from one memory to the other."""
    keep_freed_memory()
    with ExitStack() as owned:
        file = owned.enter_context(source.open("rb"))
        extent = data_extent(source, file)
        world = World(scenario, file, extent, owned)
        judge = Judge(scenario) if check else None
        if judge is not None:
            world.guard(judge)
        writer: Writer | None = None
        if output is not None:
            interfaces = [(f"{name}.0", ETHERNET) for name in scenario.taps]
            writer = owned.enter_context(open_writer(output, comment=comment_of(scenario), interfaces=interfaces))
        world.connect(judge.watch(writer) if judge else writer)
        try:
            world.play(progress)
        finally:
            world.finish()
        return world.result(compare(file, world.extent, world.target), judge, output)


class World:
    """Everything of one run."""

    def __init__(self, scenario: Scenario, source: BinaryIO, extent: Extent, owned: ExitStack) -> None:
        self.scenario = scenario
        self.extent = extent
        self.clock = Clock()
        self.feps = {name: self._fep(node) for name, node in scenario.nodes.items()}
        self.engines: dict[str, Engine] = dict(self.feps)
        """What the NICs drive: the endpoints, or those that watch them."""
        self.source = SourceFile(source)
        self.target: Memory
        if extent.length > IN_MEMORY:
            file = owned.enter_context(tempfile.TemporaryFile())  # noqa: SIM115
            self.target = TargetFile(file, extent.length)
        else:
            self.target = BufferMemory(bytearray(extent.length))
        run_ = scenario.run
        job = run_.job_id if run_.relative else None
        process = self.feps[run_.target].attach(job, run_.pid_on_fep, (run_.resource_index,))
        process.register(Region(run_.key, self.target, base=run_.base))
        self.network = Network()
        self.capture: Capture | None = None
        self.open = 1
        """Writes that are not complete."""
        self.done_at: int | None = None
        """When the initiator had nothing left to do."""
        self.failure: str | None = None

    def _fep(self, node: Node) -> Fep:
        kind = ScriptedFep if self.scenario.steps else Fep
        chance = self.chance(node.name, "engine")
        return kind(node.address, chance, pds=node.pds, ses=node.ses, ip_version=node.ip_version)

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
                on_event=self._initiator_event if name == scenario.run.initiator else _ignore,
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

    def play(self, progress: Progress | None) -> None:
        """Until the initiator is done, the transfer has failed, or the time is up; then what is under way arrives."""
        clock, run_ = self.clock, self.scenario.run
        if self.scenario.steps:
            self._play_steps()
            return
        target = self.feps[run_.target]
        packet = self.scenario.nodes[run_.initiator].ses.payload_mtu
        self._submit(0, self.extent.length)
        while clock.run(run_.time_limit, _SLICE):
            if progress is not None:
                progress(min(target.pds.counters.data_rx * packet, self.extent.length), self.extent.length)
        if self.done_at is None:
            self.done_at = clock.now
            if self.failure is None:
                self.failure = "the time limit was reached" if len(clock) else "nothing is left to happen"
        for nic in self.network.nics.values():
            nic.stop()
        clock.run()

    def _play_steps(self) -> None:
        """The script, row by row; what is on the wire at its end stays there."""
        clock, wire = self.clock, self.network.wire
        assert wire is not None
        target = self.feps[self.scenario.run.target]
        assert isinstance(target, ScriptedFep)
        submitted = 0
        self.open = sum(step.action == "submit" for step in self.scenario.steps)
        for step in self.scenario.steps:
            if step.action == "submit":
                left = self.extent.length - submitted
                length = left if step.numbers[0] == ALL else step.numbers[0]
                if length > left:
                    raise LocalError(f"{step.where}: the input has only {left} bytes left")
                self._submit(submitted, length)
                submitted += length
            elif step.action == "respond":
                target.script[step.numbers[0]] = step
            elif step.action == "advance":
                clock.advance(step.numbers[0])
            else:
                wire.play(step)
            clock.advance(0)
        self.extent = Extent(self.extent.start, submitted)
        if self.done_at is None:
            self.done_at = clock.now
        if self.open and self.failure is None:
            self.failure = f"{self.open} messages are not complete after the last step"
        unasked = never_came((row.where, psn) for psn, row in target.script.items() if psn not in target.asked)
        self.failure = "; ".join((*((self.failure,) if self.failure else ()), *unasked)) or None

    def finish(self) -> None:
        """The capture is whole, whatever happened."""
        if self.capture is not None:
            self.capture.close()

    def result(self, compared: Comparison, judge: Judge | None, output: str | None) -> Result:
        scenario = self.scenario
        nacks = nacks_of(fep.pds for fep in self.feps.values())
        assert self.done_at is not None
        return Result(
            scenario=scenario.name,
            seed=scenario.run.seed,
            match=compared.same,
            sha256_source=compared.sha256_source,
            sha256_target=compared.sha256_target,
            bytes=self.extent.length,
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

    # The application at the initiator

    def _submit(self, start: int, length: int) -> None:
        """Write `length` bytes of the data, from their byte `start` on, to the same place of the target."""
        run_ = self.scenario.run
        write = Write(
            peer=self.scenario.nodes[run_.target].address,
            data=self.source,
            start=self.extent.start + start,
            length=length,
            key=run_.key,
            job_id=run_.job_id,
            offset=(run_.base if run_.offset is None else run_.offset) + start,
            mode=run_.mode,
            pid_on_fep=run_.pid_on_fep,
            resource_index=run_.resource_index,
            initiator=run_.initiator_id,
            relative=run_.relative,
            delivery_complete=run_.delivery_complete,
            completion_data=run_.completion_data,
        )
        self.network.nics[run_.initiator].submit(write)

    def _initiator_event(self, event: Event) -> None:
        run_ = self.scenario.run
        if isinstance(event, Completion):
            self.open -= 1
            if not event.ok:
                reason = event.error.reason.value if event.error else event.return_code.name
                self._end(f"message {event.message_id}: {reason}")
            elif self.open:
                return
            elif run_.close and any(pdc.peer == event.peer for pdc in self.feps[run_.initiator].pds.pdcs.values()):
                self.network.nics[run_.initiator].submit(Close(peer=event.peer, mode=run_.mode))
            else:
                self._end(None)
        elif isinstance(event, PdcClosed) and not self.open:
            self._end(f"the PDC was not closed: {event.error.reason.value}" if event.error else None)

    def _end(self, failure: str | None) -> None:
        if self.done_at is None:
            self.failure = failure
            self.done_at = self.clock.now
            self.clock.stop()


def _ignore(event: Event) -> None:
    """The target's application waits for nothing."""
