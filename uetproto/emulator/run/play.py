"""A scenario, run: two endpoints, a message from a file to the memory of the other, and what came of it."""

import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import BinaryIO

from uetproto.emulator.network.scripted_wire import ALL
from uetproto.emulator.network.tap import Writer
from uetproto.emulator.run.files import Extent, SourceFile, TargetFile, compare, data_extent
from uetproto.emulator.run.result import Memories, RunResult, comment_of
from uetproto.emulator.run.roce_operations import RoceOperationsRun
from uetproto.emulator.run.roce_script import play as play_roce
from uetproto.emulator.run.roce_transfer import RoceTransfer
from uetproto.emulator.run.scenario_run import IN_MEMORY, SLICE, Progress, ScenarioRun
from uetproto.emulator.run.scripted_fep import ScriptedFep, never_came
from uetproto.emulator.run.uet_operations import UetOperationsRun
from uetproto.emulator.run.uet_run import UetRun
from uetproto.emulator.run.uet_script import play
from uetproto.emulator.run.verify import FrameJudge
from uetproto.emulator.scenario.roce_settings import UET
from uetproto.emulator.scenario.settings import Scenario
from uetproto.engine.contract import Close, Completion, Event, PdcClosed, Write
from uetproto.engine.memory import BufferMemory, Memory, Region
from uetproto.errors import LocalError
from uetproto.wire.capture.pcap import ETHERNET, open_writer
from uetproto.wire.malloc import keep_freed_memory


def run(
    scenario: Scenario,
    *,
    output: str | None = None,
    check: bool = False,
    progress: Progress | None = None,
) -> RunResult:
    """Run `scenario` to its end; write what passes the taps to the file `output` ("-": standard output).

    Raises `LocalError` for what cannot be, `OSError` for a file. An interrupt leaves a valid capture.
    """
    over_uet = scenario.run.transport == UET
    if scenario.operations:
        with ExitStack() as owned:
            exchange = UetOperationsRun(scenario) if over_uet else RoceOperationsRun(scenario)
            judge = _play(exchange, owned, output, check, progress)
            return exchange.outcome(judge, output)
    if scenario.run.input is None:
        return (play if over_uet else play_roce)(scenario, output, check)
    return _transfer(scenario, scenario.run.input, output, check, progress)


def _transfer(
    scenario: Scenario, source: Path, output: str | None, check: bool, progress: Progress | None
) -> RunResult:
    """The bytes of a file go from one memory to the other."""
    keep_freed_memory()
    with ExitStack() as owned:
        file = owned.enter_context(source.open("rb"))
        extent = data_extent(source, file)
        if scenario.run.transport != UET:
            roce = RoceTransfer(scenario, file, extent, owned)
            return roce.outcome(_play(roce, owned, output, check, progress), output)
        transfer = UetTransfer(scenario, file, extent, owned)
        judge = _play(transfer, owned, output, check, progress)
        compared = compare(file, transfer.extent, transfer.target)
        memories = Memories(
            compared.same, compared.sha256_source, compared.sha256_target, transfer.extent.length
        )  # fmt: skip
        return transfer.result(memories, judge, output)


def _play(
    simulator: ScenarioRun, owned: ExitStack, output: str | None, check: bool, progress: Progress | None
) -> FrameJudge | None:  # fmt: skip
    """Watched, captured, and to its end."""
    scenario = simulator.scenario
    judge = FrameJudge(scenario) if check else None
    if judge is not None:
        simulator.guard(judge)
    writer: Writer | None = None
    if output is not None:
        interfaces = [(f"{name}.0", ETHERNET) for name in scenario.taps]
        writer = owned.enter_context(open_writer(output, comment=comment_of(scenario), interfaces=interfaces))
    simulator.connect(judge.watch(writer) if judge else writer)
    try:
        simulator.play(progress)
    finally:
        simulator.finish()
    return judge


class UetTransfer(UetRun):
    """One message, or as many as the input needs, from a file to the memory of the target."""

    def __init__(self, scenario: Scenario, source: BinaryIO, extent: Extent, owned: ExitStack) -> None:
        super().__init__(scenario)
        self.extent = extent
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
        self.open = 1
        """Writes that are not complete."""

    def on_event(self, name: str) -> Callable[[Event], None]:
        return self._initiator_event if name == self.scenario.run.initiator else _ignore

    def play(self, progress: Progress | None) -> None:
        clock, run_ = self.clock, self.scenario.run
        if self.scenario.steps:
            self._play_steps()
            return
        target = self.feps[run_.target]
        packet = self.scenario.nodes[run_.initiator].ses.payload_mtu
        self._submit(0, self.extent.length)
        while clock.run(run_.time_limit, SLICE):
            if progress is not None:
                progress(min(target.pds.counters.data_rx * packet, self.extent.length), self.extent.length)
        self.run_out()

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
                    raise LocalError(f"the input has only {left} bytes left", place=step.where)
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
                self.end(f"message {event.message_id}: {reason}")
            elif self.open:
                return
            elif run_.close and any(pdc.peer == event.peer for pdc in self.feps[run_.initiator].pds.pdcs.values()):
                self.network.nics[run_.initiator].submit(Close(peer=event.peer, mode=run_.mode))
            else:
                self.end(None)
        elif isinstance(event, PdcClosed) and not self.open:
            self.end(f"the PDC was not closed: {event.error.reason.value}" if event.error else None)


def _ignore(event: Event) -> None:
    """The target's application waits for nothing."""
