"""Scenarios of operations over RoCE: the work requests of both ends, posted in time, and what came of each."""

import hashlib
from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any

from uetproto.emulator.run.operation_schedule import Area, Timetable, drawn
from uetproto.emulator.run.result import Memories, Outcome, Result
from uetproto.emulator.run.roce_effects import Effects, RoceDoing
from uetproto.emulator.run.roce_world import QKEY, RoceWorld
from uetproto.emulator.run.verify import Judge
from uetproto.emulator.run.world import Progress
from uetproto.emulator.scenario.operations import NONE
from uetproto.emulator.scenario.roce_operations import POSTED, opcode_of
from uetproto.emulator.scenario.roce_settings import FULL_ACCESS
from uetproto.emulator.scenario.settings import Scenario
from uetproto.engine.roce.contract import (
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
"""Events between two looks at how far all is."""
_REFUSALS = 10
"""RNR NAKs one after the other, after which no receive was posted meanwhile."""


class RoceOperations(RoceWorld):
    """The rows of `scenario.operations`, played; then `outcome`."""

    def __init__(self, scenario: Scenario) -> None:
        super().__init__(scenario)
        self.doing = [RoceDoing(number, row) for number, row in enumerate(scenario.operations)]
        self.effects = Effects(scenario, self.hcas, self.doing)
        self._timetable = Timetable(self.clock, self.doing, self._begin, self._advance)

    # Playing

    def play(self, progress: Progress | None) -> None:
        self._advance(None)
        total = sum(doing.get("length", 0) for doing in self.doing)
        while self.clock.run(self.scenario.run.time_limit, _LOOK):
            if progress is not None:
                progress(sum(doing.length for doing in self.doing if doing.ended_at is not None), total)
            if self._never_ready():
                break
        else:
            if len(self.clock):
                self.failure = "the time limit was reached"
        open_ = any(d.began and d.ended_at is None and d.row.expect != NONE for d in self.doing)
        ends = [d.ended_at for d in self.doing if d.ended_at is not None]
        self.done_at = self.clock.now if open_ or not ends else max(ends)
        self.run_out()

    def _never_ready(self) -> bool:
        """All that is left waits for receives that nobody will post: rnr_retry 7 is endless (§9)."""
        requesters = [qp.requester for hca in self.hcas.values() for qp in hca.qps.values()]
        busy = [requester for requester in requesters if requester is not None and requester.busy]
        refused = [requester.refused if isinstance(requester, RcRequester) else 0 for requester in busy]
        return not self._timetable.ready and bool(refused) and min(refused) > _REFUSALS

    def posting(self) -> set[str]:
        return {doing.row.node for doing in self.doing if doing.row.do in (*POSTED, "receive")}

    def _advance(self, _: object) -> None:
        self._timetable.advance()

    def _begin(self, doing: RoceDoing) -> None:
        doing.began = True
        try:
            getattr(self, f"_{doing.row.do}", self._post)(doing)
        except LocalError as error:
            raise LocalError(*error.args, place=doing.row.where) from error
        if doing.row.do not in (*POSTED, "receive"):
            self._ended(doing, Status.SUCCESS.name)

    def _ended(self, doing: RoceDoing, status: str) -> None:
        doing.ended_at = self.clock.now
        doing.status = status

    # What a row does

    def _area(self, doing: RoceDoing, length: int, base: int = 0) -> Area:
        """Memory of a row: equal bytes, or drawn from the seed."""
        if "value" in doing.row.fields:
            content = bytes([doing.get("value")]) * length
        else:
            content = drawn(self.chance("operation", str(doing.number)), length)
        area = Area(content, base)
        self.effects.areas.append(area)
        return area

    def _sge(self, doing: RoceDoing, node: str, length: int, access: Access) -> tuple[Sge, ...]:
        """A buffer of its own for a row."""
        doing.area = area = self._area(doing, length)
        region = self.hcas[node].reg_mr(self.pd_of(doing.get("qp")), area.actual, access=access)
        return (Sge(0, length, doing.get("lkey", region.lkey)),)

    def _post(self, doing: RoceDoing) -> None:
        """One of `POSTED`."""
        row = doing.row
        reads = row.do not in ("send", "write")
        doing.length = doing.get("length", ATOMIC_SIZE)
        flags = SendFlags.SIGNALED if doing.get("signaled", True) else SendFlags(0)
        for name, flag in _FLAGS.items():
            flags |= flag if doing.get(name) else SendFlags(0)
        more: dict[str, Any] = {}
        if doing.get("inline"):
            doing.area = self._area(doing, doing.length)
            more["inline"] = doing.area.actual
        else:
            more["sg_list"] = self._sge(doing, row.node, doing.length, Access.LOCAL_WRITE if reads else Access(0))
        if row.do != "send":
            area, _ = self.effects.regions.get((self.effects.peer(doing), doing.get("key")), (None, None))
            base = self.scenario.run.base if area is None else area.base
            more |= {"rkey": doing.get("key"), "remote_addr": base + doing.get("offset", 0)}
        if row.do == "compare_swap":
            more |= {"compare_add": doing.get("compare"), "swap": doing.get("swap")}
        elif row.do == "fetch_add":
            more["compare_add"] = doing.get("add")
        if "to" in row.fields:
            more |= self._way(doing)
        self.network.nics[row.node].submit(PostSend(
            qp_num=self.number_of(doing.get("qp")),
            wr_id=doing.number,
            opcode=opcode_of(row.do, row.fields),
            send_flags=flags,
            imm_data=doing.get("imm", 0),
            invalidate_rkey=doing.get("invalidate", 0),
            **more,
        ))  # fmt: skip

    def _way(self, doing: RoceDoing) -> dict[str, Any]:
        """Of a datagram: to a queue pair or to a group."""
        to = doing.get("to")
        if isinstance(to, int):
            return {"ah": AddressVector(to), "remote_qpn": MULTICAST_QP, "remote_qkey": doing.get("qkey", QKEY)}
        setup = self.scenario.qps[to]
        return {
            "ah": AddressVector(self.scenario.nodes[setup.node].address),
            "remote_qpn": setup.number,
            "remote_qkey": doing.get("qkey", setup.attributes.get("qkey", QKEY)),
        }

    def _receive(self, doing: RoceDoing) -> None:
        node, qp = doing.row.node, doing.get("qp")
        doing.length = doing.get("length")
        sg_list = self._sge(doing, node, doing.length, Access.LOCAL_WRITE)
        srq = self.srq_of(qp)
        if srq is None:
            work: Any = PostRecv(qp_num=self.number_of(qp), wr_id=doing.number, sg_list=sg_list)
        else:
            work = PostSrqRecv(srq_num=srq, wr_id=doing.number, sg_list=sg_list)
        self.network.nics[node].submit(work)

    def _region(self, doing: RoceDoing) -> None:
        node, key = doing.row.node, doing.get("key")
        area = self._area(doing, doing.get("length"), doing.get("base", self.scenario.run.base))
        access = doing.get("access", FULL_ACCESS)
        region = self.hcas[node].reg_mr(self.pds[node], area.actual, addr=area.base, access=access, rkey=key)
        self.effects.regions[node, key] = area, region

    def _deregister(self, doing: RoceDoing) -> None:
        node, key = doing.row.node, doing.get("key")
        if (node, key) not in self.effects.regions:
            raise LocalError("key", f"{key:#x} is not registered at {node}")
        self.hcas[node].dereg_mr(self.effects.regions[node, key][1])

    def _modify(self, doing: RoceDoing) -> None:
        number = self.number_of(doing.get("qp"))
        self.network.nics[doing.row.node].submit(ModifyQp(qp_num=number, state=doing.get("to_state")))

    # What comes of it

    def on_event(self, name: str) -> Callable[[Any], None]:
        def take(event: Any) -> None:
            if not isinstance(event, WorkCompletion):
                return
            doing = self.doing[event.wr_id]
            if event.receive:
                self.effects.received(doing, event)
            else:
                self.effects.sent(doing, event)
            self._ended(doing, event.status.name)
            self._advance(None)

        return take

    # The result

    def outcome(self, judge: Judge | None, output: str | None) -> Result:
        """What became of each row, and all memory compared."""
        self.effects.settle_last()
        outcomes = [self._outcome(doing) for doing in self.doing if doing.row.do in (*POSTED, "receive")]
        wrong = [
            f"operation {o.operation} ({o.do}) ended with {o.return_code}, {o.expect} was expected"
            for o in outcomes
            if o.return_code != o.expect
        ]
        self.failure = "; ".join((*((self.failure,) if self.failure else ()), *wrong)) or None
        expected, actual = (hashlib.sha256() for _ in range(2))
        for area in self.effects.areas:
            expected.update(area.expected)
            actual.update(area.actual)
        same = all(o.match for o in outcomes) and all(area.same(0, len(area.actual)) for area in self.effects.areas)
        moved = sum(o.length for o in outcomes if o.do in POSTED and o.return_code == Status.SUCCESS.name)
        memories = Memories(same, expected.hexdigest(), actual.hexdigest(), moved)
        return replace(
            self.result(memories, judge, output), operations=tuple(asdict(outcome) for outcome in outcomes)
        )  # fmt: skip

    def _outcome(self, doing: RoceDoing) -> Outcome:
        row, match = doing.row, self.effects.match(doing)
        return Outcome(doing.number, row.do, row.node, doing.length, doing.status, row.expect, match, doing.ended_at)
