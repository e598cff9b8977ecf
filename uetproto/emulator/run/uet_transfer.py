# SPDX-License-Identifier: GPL-2.0-only
"""This module transfers a file over UET: it writes the file to the memory of the target."""

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace

from uetproto.emulator.network.scripted_wire import ALL
from uetproto.emulator.run.file_transfer import FileTransfer
from uetproto.emulator.run.files import Extent, SourceFile
from uetproto.emulator.run.result import RunResult
from uetproto.emulator.run.scenario_run import SLICE, Progress, ignore
from uetproto.emulator.run.scripted_fep import ScriptedFep, never_came
from uetproto.emulator.run.uet_run import UetRun
from uetproto.emulator.run.verify import FrameJudge
from uetproto.emulator.scenario.settings import Scenario
from uetproto.engine.contract import Close, Completion, Event, PdcClosed, Write
from uetproto.engine.memory import Region
from uetproto.errors import LocalError


class UetTransfer(UetRun):
    """This run writes a file to the memory of the target, in one message, or in as many messages as a script
    submits.
    """

    def __init__(self, scenario: Scenario, owned: ExitStack) -> None:
        super().__init__(scenario)
        self.transfer = FileTransfer(scenario.run, owned)
        self.extent = self.transfer.extent
        """Part of the input that is written. A script may write less than the whole input."""
        self.source = SourceFile(self.transfer.file)
        run_ = scenario.run
        job = run_.job_id if run_.relative else None
        process = self.feps[run_.target].attach(job, run_.pid_on_fep, (run_.resource_index,))
        process.register(Region(run_.key, self.transfer.memory, base=run_.base))
        self.open = 1
        """Number of writes that have not completed."""

    def on_event(self, name: str) -> Callable[[Event], None]:
        return self._initiator_event if name == self.scenario.run.initiator else ignore

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
        """Play the script row by row; frames that are on the wire at its end are not delivered."""
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
                    raise LocalError(f"the input has only {left} bytes left", place=step.where, id="input-too-short")
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

    def outcome(self, judge: FrameJudge | None, output: str | None) -> RunResult:
        found = self.result(self.transfer.memories(self.extent), judge, output)
        return replace(found, memory=self.transfer.places(self.scenario.run, self.extent))

    # The application at the initiator

    def _submit(self, start: int, length: int) -> None:
        """Write `length` bytes of the data, from byte `start` on, to the same place of the target."""
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
