# SPDX-License-Identifier: GPL-2.0-only
"""This module transfers a file over RoCE: it writes the file to the target's memory by RDMA WRITE, over RC or UC."""

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

from uetproto.emulator.run.file_transfer import FileTransfer
from uetproto.emulator.run.files import SourceFile
from uetproto.emulator.run.result import RunResult
from uetproto.emulator.run.roce_run import RoceRun
from uetproto.emulator.run.scenario_run import SLICE, Progress, ignore
from uetproto.emulator.run.verify import FrameJudge
from uetproto.emulator.scenario.settings import Scenario
from uetproto.engine.memory import MemoryWindow
from uetproto.engine.roce.contract import FULL_ACCESS, Access, Opcode, PostSend, Sge, WorkCompletion


class RoceTransfer(RoceRun):
    """This run writes a file to the memory of the target, in as many RDMA WRITEs as the file needs."""

    def __init__(self, scenario: Scenario, owned: ExitStack) -> None:
        super().__init__(scenario)
        self.transfer = FileTransfer(scenario.run, owned)
        self.extent = extent = self.transfer.extent
        run_ = scenario.run
        hca, pd = self.hcas[run_.target], self.pds[run_.target]
        hca.reg_mr(pd, self.transfer.memory, addr=run_.base, access=FULL_ACCESS, rkey=run_.key)
        hca, pd = self.hcas[run_.initiator], self.pds[run_.initiator]
        source = MemoryWindow(SourceFile(self.transfer.file), extent.start, extent.length)
        self._source = hca.reg_mr(pd, source, addr=run_.source_base, access=Access(0))
        self.open = 0
        """Number of WRITEs that have not completed."""

    def on_event(self, name: str) -> Callable[[Any], None]:
        return self._completed if name == self.scenario.run.initiator else ignore

    def play(self, progress: Progress | None) -> None:
        clock, run_, extent = self.clock, self.scenario.run, self.extent
        qp = next(setup for setup in self.scenario.qps.values() if setup.node == run_.initiator)
        most = self.hcas[run_.initiator].config.max_message
        starts = range(0, extent.length, most) or range(1)
        self.open = len(starts)
        for start in starts:
            length = min(most, extent.length - start)
            self.network.nics[run_.initiator].submit(PostSend(
                qp_num=qp.number,
                opcode=Opcode.RDMA_WRITE,
                sg_list=(Sge(run_.source_base + start, length, self._source.lkey),),
                remote_addr=(run_.base if run_.offset is None else run_.offset) + start,
                rkey=run_.key,
            ))  # fmt: skip
        sent = self.network.nics[run_.initiator]
        packet = self.scenario.nodes[run_.initiator].roce.path_mtu
        while clock.run(run_.time_limit, SLICE):
            if progress is not None:
                progress(min(sent.sent * packet, extent.length), extent.length)
        self.run_out()

    def _completed(self, event: Any) -> None:
        if not isinstance(event, WorkCompletion):
            return
        self.open -= 1
        if not event.ok:
            self.end(f"the WRITE ended with {event.status.name}")
        elif not self.open:
            self.end(None)

    def outcome(self, judge: FrameJudge | None, output: str | None) -> RunResult:
        found = self.result(self.transfer.memories(self.extent), judge, output)
        return replace(found, memory=self.transfer.places(self.scenario.run, self.extent))
