# SPDX-License-Identifier: GPL-2.0-only
"""This module plays operations over RoCE: it posts the work requests of both ends, each at its time."""

from collections.abc import Callable
from typing import Any

from uetproto.emulator.flows import PATTERNS
from uetproto.emulator.run.operation_schedule import MemoryArea, OperationSchedule, drawn, result_of
from uetproto.emulator.run.result import RunResult
from uetproto.emulator.run.roce_effects import RoceEffects, RoceOperation
from uetproto.emulator.run.roce_run import QKEY, RoceRun
from uetproto.emulator.run.scenario_run import Progress
from uetproto.emulator.run.verify import FrameJudge
from uetproto.emulator.scenario.operations import NONE
from uetproto.emulator.scenario.roce_operations import KINDS, POSTED, opcode_of
from uetproto.emulator.scenario.settings import Scenario
from uetproto.engine.roce.contract import (
    FULL_ACCESS,
    Access,
    AddressVector,
    ModifyQp,
    PostRecv,
    PostSend,
    PostSrqRecv,
    SendFlags,
    Sge,
    Status,
    WorkCompletion,
)
from uetproto.engine.roce.requester import RcRequester
from uetproto.engine.roce.segments import ATOMIC_SIZE
from uetproto.errors import LocalError
from uetproto.wire.headers.roce import MULTICAST_QP

_FLAGS = {"fence": SendFlags.FENCE, "solicited": SendFlags.SOLICITED, "inline": SendFlags.INLINE}

_LOOK = 2_000
"""Number of events from one check whether the run has ended to the next."""
_REFUSALS = 10
"""Number of successive RNR NAKs after which a requester counts as stuck."""


class RoceOperationsRun(RoceRun):
    """This run plays operations over RoCE."""

    def __init__(self, scenario: Scenario) -> None:
        super().__init__(scenario)
        self.operations = [RoceOperation(number, row) for number, row in enumerate(scenario.operations)]
        self.effects = RoceEffects(scenario, self.hcas, self.operations)
        self._schedule = OperationSchedule(self.clock, self.operations, self._begin, self._advance)

    # Playing

    def play(self, progress: Progress | None) -> None:
        self._advance(None)
        total = sum(operation.get("length", 0) for operation in self.operations)
        while self.clock.run(self.scenario.run.time_limit, _LOOK):
            if progress is not None:
                progress(
                    sum(operation.length for operation in self.operations if operation.ended_at is not None), total
                )
            if self._never_ready():
                break
        else:
            if len(self.clock):
                self.failure = "the time limit was reached"
        open_ = any(d.began and d.ended_at is None and d.row.expect != NONE for d in self.operations)
        ends = [d.ended_at for d in self.operations if d.ended_at is not None]
        self.done_at = self.clock.now if open_ or not ends else max(ends)
        self.run_out()

    def _never_ready(self) -> bool:
        """Return whether all busy requesters wait for receives that no row will post.

        With rnr_retry 7 they would retry without end (roce.md §9).
        """
        requesters = [qp.requester for hca in self.hcas.values() for qp in hca.qps.values()]
        busy = [requester for requester in requesters if requester is not None and requester.busy]
        refused = [requester.refused if isinstance(requester, RcRequester) else 0 for requester in busy]
        return not self._schedule.ready and bool(refused) and min(refused) > _REFUSALS

    def posting(self) -> set[str]:
        return {operation.row.node for operation in self.operations if operation.row.do in (*POSTED, "receive")}

    def _advance(self, _: object) -> None:
        self._schedule.advance()

    def _begin(self, operation: RoceOperation) -> None:
        _ACTIONS[operation.row.do](self, operation)
        if operation.row.do not in (*POSTED, "receive"):
            self._schedule.end(operation, Status.SUCCESS.name)

    # What a row does

    def _area(self, operation: RoceOperation, length: int, base: int = 0) -> MemoryArea:
        """Return new memory for a row, filled with equal bytes or with bytes drawn from the seed."""
        if "value" in operation.row.fields:
            content = bytes([operation.get("value")]) * length
        else:
            content = drawn(self.chance("operation", str(operation.number)), length)
        area = MemoryArea(content, base)
        self.effects.areas.append(area)
        return area

    def _sge(self, operation: RoceOperation, node: str, length: int, access: Access) -> tuple[Sge, ...]:
        operation.area = area = self._area(operation, length)
        region = self.hcas[node].reg_mr(self.pd_of(operation.get("qp")), area.actual, access=access)
        return (Sge(0, length, operation.get("lkey", region.lkey)),)

    def _post(self, operation: RoceOperation) -> None:
        row = operation.row
        reads = row.do not in ("send", "write")
        operation.length = operation.get("length", ATOMIC_SIZE)
        flags = SendFlags.SIGNALED if operation.get("signaled", True) else SendFlags(0)
        for name, flag in _FLAGS.items():
            flags |= flag if operation.get(name) else SendFlags(0)
        more: dict[str, Any] = {}
        if operation.get("inline"):
            operation.area = self._area(operation, operation.length)
            more["inline"] = operation.area.actual
        else:
            more["sg_list"] = self._sge(
                operation, row.node, operation.length, Access.LOCAL_WRITE if reads else Access(0)
            )
        if row.do != "send":
            area, _ = self.effects.regions.get((self.effects.peer(operation), operation.get("key")), (None, None))
            base = self.scenario.run.base if area is None else area.base
            more |= {"rkey": operation.get("key"), "remote_addr": base + operation.get("offset", 0)}
        if row.do == "compare_swap":
            more |= {"compare_add": operation.get("compare"), "swap": operation.get("swap")}
        elif row.do == "fetch_add":
            more["compare_add"] = operation.get("add")
        if "to" in row.fields:
            more |= self._way(operation)
        self.network.nics[row.node].submit(PostSend(
            qp_num=self.number_of(operation.get("qp")),
            wr_id=operation.number,
            opcode=opcode_of(row.do, row.fields),
            send_flags=flags,
            imm_data=operation.get("imm", 0),
            invalidate_rkey=operation.get("invalidate", 0),
            **more,
        ))  # fmt: skip

    def _way(self, operation: RoceOperation) -> dict[str, Any]:
        """Return the destination of a datagram: a queue pair or a group."""
        to = operation.get("to")
        if isinstance(to, int):
            return {"ah": AddressVector(to), "remote_qpn": MULTICAST_QP, "remote_qkey": operation.get("qkey", QKEY)}
        setup = self.scenario.qps[to]
        return {
            "ah": AddressVector(self.scenario.nodes[setup.node].address),
            "remote_qpn": setup.number,
            "remote_qkey": operation.get("qkey", setup.attributes.get("qkey", QKEY)),
        }

    def _receive(self, operation: RoceOperation) -> None:
        node, qp = operation.row.node, operation.get("qp")
        operation.length = operation.get("length")
        sg_list = self._sge(operation, node, operation.length, Access.LOCAL_WRITE)
        srq = self.srq_of(qp)
        if srq is None:
            work: Any = PostRecv(qp_num=self.number_of(qp), wr_id=operation.number, sg_list=sg_list)
        else:
            work = PostSrqRecv(srq_num=srq, wr_id=operation.number, sg_list=sg_list)
        self.network.nics[node].submit(work)

    def _region(self, operation: RoceOperation) -> None:
        node, key = operation.row.node, operation.get("key")
        area = self._area(operation, operation.get("length"), operation.get("base", self.scenario.run.base))
        access = operation.get("access", FULL_ACCESS)
        region = self.hcas[node].reg_mr(self.pds[node], area.actual, addr=area.base, access=access, rkey=key)
        self.effects.regions[node, key] = area, region

    def _deregister(self, operation: RoceOperation) -> None:
        node, key = operation.row.node, operation.get("key")
        if (node, key) not in self.effects.regions:
            raise LocalError("key", f"{key:#x} is not registered at {node}", id="not-registered")
        self.hcas[node].dereg_mr(self.effects.regions[node, key][1])

    def _modify(self, operation: RoceOperation) -> None:
        number = self.number_of(operation.get("qp"))
        self.network.nics[operation.row.node].submit(ModifyQp(qp_num=number, state=operation.get("to_state")))

    # Events

    def on_event(self, name: str) -> Callable[[Any], None]:
        def take(event: Any) -> None:
            if not isinstance(event, WorkCompletion):
                return
            operation = self.operations[event.wr_id]
            if event.receive:
                self.effects.received(operation, event)
            else:
                self.effects.sent(operation, event)
            self._schedule.end(operation, event.status.name)
            self._advance(None)

        return take

    # The result

    def outcome(self, judge: FrameJudge | None, output: str | None) -> RunResult:
        self.effects.settle_last()
        found = [one for one in self.operations if one.row.do in (*POSTED, "receive")]
        outcomes = [one.outcome(self.effects.match(one)) for one in found]
        moved = sum(one.length for one in outcomes if one.do in POSTED and one.return_code == Status.SUCCESS.name)
        return result_of(self, outcomes, self.effects.areas, moved, judge, output)


_ACTIONS: dict[str, Callable[[RoceOperationsRun, RoceOperation], None]] = {
    **dict.fromkeys(POSTED, RoceOperationsRun._post),
    "receive": RoceOperationsRun._receive,
    "region": RoceOperationsRun._region,
    "deregister": RoceOperationsRun._deregister,
    "modify": RoceOperationsRun._modify,
}
"""Functions that play a row, by its `do`."""
assert _ACTIONS.keys() | PATTERNS.keys() == KINDS.keys()
