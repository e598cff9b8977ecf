"""A file written into the memory of the other end by RDMA WRITE, over RC or UC."""

import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, BinaryIO

from uetproto.emulator.run.files import Extent, SourceFile, TargetFile, compare
from uetproto.emulator.run.result import Memories, RunResult
from uetproto.emulator.run.roce_run import RoceRun
from uetproto.emulator.run.scenario_run import IN_MEMORY, SLICE, Progress
from uetproto.emulator.run.verify import FrameJudge
from uetproto.emulator.scenario.roce_settings import FULL_ACCESS
from uetproto.emulator.scenario.settings import Scenario
from uetproto.engine.contract import Buffer
from uetproto.engine.memory import BufferMemory, Memory
from uetproto.engine.roce.contract import Access, Opcode, PostSend, Sge, WorkCompletion
from uetproto.errors import LocalError


class _Part:
    """The data of a file, as memory that nobody writes."""

    def __init__(self, source: SourceFile, extent: Extent) -> None:
        self._source = source
        self._start = extent.start
        self.length = extent.length

    def read(self, offset: int, length: int) -> Buffer:
        return self._source.read(self._start + offset, length)

    def write(self, offset: int, data: Buffer) -> None:
        raise LocalError("memory", "an input is only read")

    def flush(self) -> None:
        """Nothing to do."""


class RoceTransfer(RoceRun):
    """One RDMA WRITE, or as many as the input needs, from a file to the memory of the target."""

    def __init__(self, scenario: Scenario, source: BinaryIO, extent: Extent, owned: ExitStack) -> None:
        super().__init__(scenario)
        self.extent = extent
        self._file = source
        run_ = scenario.run
        self.target: Memory
        if extent.length > IN_MEMORY:
            self.target = TargetFile(owned.enter_context(tempfile.TemporaryFile()), extent.length)  # noqa: SIM115
        else:
            self.target = BufferMemory(bytearray(extent.length))
        hca, pd = self.hcas[run_.target], self.pds[run_.target]
        self._there = hca.reg_mr(pd, self.target, addr=run_.base, access=FULL_ACCESS, rkey=run_.key)
        hca, pd = self.hcas[run_.initiator], self.pds[run_.initiator]
        self._here = hca.reg_mr(pd, _Part(SourceFile(source), extent), access=Access(0))
        self.open = 0
        """Writes that are not complete."""
        self._done = 0

    def on_event(self, name: str) -> Callable[[Any], None]:
        return self._completed if name == self.scenario.run.initiator else _ignore

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
                sg_list=(Sge(start, length, self._here.lkey),),
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
        """The memory of the target compared with the file."""
        compared = compare(self._file, self.extent, self.target)
        memories = Memories(compared.same, compared.sha256_source, compared.sha256_target, self.extent.length)
        return self.result(memories, judge, output)


def _ignore(event: Any) -> None:
    """The target's application waits for nothing."""
