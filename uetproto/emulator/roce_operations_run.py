"""Scenarios of operations over RoCE: work requests at both ends, and a model of all memory that they change.

Each region, receive and local buffer is an `Area`: the bytes that the adapters see, and beside them those that should
be there. Completions change the latter as roce.md §8 to §12 say, and both are compared.
"""

import hashlib
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from uetproto.emulator.operations import NONE, Operation
from uetproto.emulator.result import Memories, Outcome, Result
from uetproto.emulator.roce_operations import POSTED, opcode_of
from uetproto.emulator.roce_settings import FULL_ACCESS
from uetproto.emulator.roce_world import QKEY, RoceWorld
from uetproto.emulator.settings import Scenario
from uetproto.emulator.timetable import Area, Timetable, drawn
from uetproto.emulator.verify import Judge
from uetproto.emulator.world import SLICE, Progress
from uetproto.engine.roce_contract import (
    Access,
    AddressVector,
    ModifyQp,
    PostRecv,
    PostSend,
    PostSrqRecv,
    QpType,
    SendFlags,
    Sge,
    Status,
    WcOpcode,
    WorkCompletion,
)
from uetproto.engine.roce_memory import MemoryRegion
from uetproto.engine.roce_requester import RcRequester
from uetproto.engine.roce_segments import ATOMIC_SIZE
from uetproto.engine.roce_ud import GRH_SIZE
from uetproto.errors import LocalError
from uetproto.wire.roce import MULTICAST_QP

_FLAGS = {"fence": SendFlags.FENCE, "solicited": SendFlags.SOLICITED, "inline": SendFlags.INLINE}
_WORD = 1 << 64

_RIGHTS = {
    "write": Access.REMOTE_WRITE,
    "read": Access.REMOTE_READ,
    "compare_swap": Access.REMOTE_ATOMIC,
    "fetch_add": Access.REMOTE_ATOMIC,
}
"""What works on the memory of the peer, and the right that queue pair and region must give."""

_REFUSED = ("REM_INV_REQ_ERR", "REM_ACCESS_ERR")
"""Statuses of a request of which the packet at fault has changed nothing."""


@dataclass(slots=True, eq=False)
class _Doing:
    """An operation on its way."""

    number: int
    row: Operation
    began: bool = False
    ended_at: int | None = None
    status: str = NONE
    match: bool = True
    length: int = 0
    area: Area | None = None
    """Of a receive, a read or an atomic: the buffer; of what is sent, its bytes."""
    delivered: bool = False
    """Of a send: a receive has it."""
    received: int = 0
    """Bytes that the completion of a receive tells."""
    settled: bool = False
    """Its effects are part of what is expected."""

    def get(self, name: str, default: Any = None) -> Any:
        return self.row.fields.get(name, default)

    @property
    def data(self) -> bytes:
        return bytes(self.area.expected) if self.area is not None else b""


class RoceOperations(RoceWorld):
    """The rows of `scenario.operations`, played; then `outcome`."""

    def __init__(self, scenario: Scenario) -> None:
        super().__init__(scenario)
        self.kind: QpType = scenario.run.transport
        self.doing = [_Doing(number, row) for number, row in enumerate(scenario.operations)]
        self.regions: dict[tuple[str, int], tuple[Area, MemoryRegion]] = {}
        """By node and key."""
        self.areas: list[Area] = []
        self._timetable = Timetable(self.clock, self.doing, self._begin, self._advance)

    # Playing

    def play(self, progress: Progress | None) -> None:
        self._advance(None)
        total = sum(doing.get("length", 0) for doing in self.doing)
        before = None
        while self.clock.run(self.scenario.run.time_limit, SLICE):
            if progress is not None:
                progress(sum(doing.length for doing in self.doing if doing.ended_at is not None), total)
            standing = self._standing()
            if standing is not None and standing == before:
                break  # the same again and again: a receiver that is never ready (rnr_retry 7)
            before = standing
        else:
            if len(self.clock):
                self.failure = "the time limit was reached"
        self.done_at = max((d.ended_at for d in self.doing if d.ended_at is not None), default=self.clock.now)
        self.run_out()

    def _standing(self) -> list[int] | None:
        """How far the requesters have come; None while a row is yet to begin, and where nothing is ever repeated."""
        if not self._timetable.all_begun or self.kind is not QpType.RC:
            return None
        requesters = (qp.requester for hca in self.hcas.values() for qp in hca.qps.values())
        return [requester.una for requester in requesters if isinstance(requester, RcRequester)]

    def _advance(self, _: object) -> None:
        self._timetable.advance()

    def _begin(self, doing: _Doing) -> None:
        doing.began = True
        try:
            getattr(self, f"_{doing.row.do}", self._post)(doing)
        except LocalError as error:
            raise LocalError(f"{doing.row.where}: {error}") from error
        if doing.row.do not in (*POSTED, "receive"):
            self._ended(doing, Status.SUCCESS.name)

    def _ended(self, doing: _Doing, status: str) -> None:
        doing.ended_at = self.clock.now
        doing.status = status

    # What a row does

    def _area(self, doing: _Doing, length: int, base: int = 0) -> Area:
        """Memory of a row: equal bytes, or drawn from the seed."""
        if "value" in doing.row.fields:
            content = bytes([doing.get("value")]) * length
        else:
            content = drawn(self.chance("operation", str(doing.number)), length)
        area = Area(content, base)
        self.areas.append(area)
        return area

    def _sge(self, doing: _Doing, node: str, length: int, access: Access) -> tuple[Sge, ...]:
        """A buffer of its own for a row."""
        doing.area = area = self._area(doing, length)
        region = self.hcas[node].reg_mr(self.pd_of(doing.get("qp")), area.actual, access=access)
        return (Sge(0, length, doing.get("lkey", region.lkey)),)

    def _post(self, doing: _Doing) -> None:
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
            area, _ = self.regions.get((self._peer(doing), doing.get("key")), (None, None))
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

    def _way(self, doing: _Doing) -> dict[str, Any]:
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

    def _receive(self, doing: _Doing) -> None:
        node, qp = doing.row.node, doing.get("qp")
        doing.length = doing.get("length")
        sg_list = self._sge(doing, node, doing.length, Access.LOCAL_WRITE)
        srq = self.srq_of(qp)
        if srq is None:
            work: Any = PostRecv(qp_num=self.number_of(qp), wr_id=doing.number, sg_list=sg_list)
        else:
            work = PostSrqRecv(srq_num=srq, wr_id=doing.number, sg_list=sg_list)
        self.network.nics[node].submit(work)

    def _region(self, doing: _Doing) -> None:
        node, key = doing.row.node, doing.get("key")
        area = self._area(doing, doing.get("length"), doing.get("base", self.scenario.run.base))
        access = doing.get("access", FULL_ACCESS)
        region = self.hcas[node].reg_mr(self.pds[node], area.actual, addr=area.base, access=access, rkey=key)
        self.regions[node, key] = area, region

    def _deregister(self, doing: _Doing) -> None:
        node, key = doing.row.node, doing.get("key")
        if (node, key) not in self.regions:
            raise LocalError(f"key: {key:#x} is not registered at {node}")
        self.hcas[node].dereg_mr(self.regions[node, key][1])

    def _modify(self, doing: _Doing) -> None:
        number = self.number_of(doing.get("qp"))
        self.network.nics[doing.row.node].submit(ModifyQp(qp_num=number, state=doing.get("to_state")))

    def _peer(self, doing: _Doing) -> str:
        """The node at the other end."""
        peer = self.scenario.qps[doing.get("qp")].peer
        assert peer is not None
        return self.scenario.qps[peer].node

    # What comes of it

    def on_event(self, name: str) -> Callable[[Any], None]:
        def take(event: Any) -> None:
            if not isinstance(event, WorkCompletion):
                return
            doing = self.doing[event.wr_id]
            if event.receive:
                self._received(doing, event)
            else:
                self._sent(doing, event)
            self._ended(doing, event.status.name)
            self._advance(None)

        return take

    def _sent(self, doing: _Doing, event: WorkCompletion) -> None:
        """A work request has ended; those before it that are not signaled have, too."""
        for before in self.doing[: doing.number]:
            unsignaled = before.row.do in POSTED and not before.get("signaled", True)
            if unsignaled and before.began and before.ended_at is None and before.get("qp") == doing.get("qp"):
                self._settle(before)
        if event.ok:
            self._settle(doing)

    def _settle(self, doing: _Doing) -> None:
        """Its effects on memory become part of what is expected. On UC it has but left: its end is seen at the end."""
        if doing.settled or doing.row.do == "send" or self.kind is not QpType.RC:
            return
        doing.settled = True
        area, at = self._place(doing)
        if area is None:
            doing.match = not doing.length  # of no bytes nothing is asked (§8 check 8)
        elif doing.row.do == "write":
            area.put(at, doing.data)
        elif doing.row.do == "read":
            self._store(doing, bytes(area.expected[at : at + doing.length]))
        else:
            own = self.hcas[doing.row.node].config.atomic_order
            old, new = self._executed(doing, area, at)
            area.put(at, new)
            self._store(doing, int.from_bytes(old, self._order(doing)).to_bytes(ATOMIC_SIZE, own))

    def _place(self, doing: _Doing) -> tuple[Area | None, int]:
        """Where at the peer it works: area and byte; None: nowhere."""
        area, region = self.regions.get((self._peer(doing), doing.get("key")), (None, None))
        at = doing.get("offset", 0)
        if area is None or region is None or not 0 <= at <= at + doing.length <= len(area.actual):
            return None, at
        right = _RIGHTS[doing.row.do]
        peer = self.scenario.qps[str(self.scenario.qps[doing.get("qp")].peer)]
        return (area if region.access & peer.attributes["access_flags"] & right else None), at

    def _mtu(self, doing: _Doing) -> int:
        config = self.hcas[doing.row.node].config
        return int(self.scenario.qps[doing.get("qp")].attributes.get("path_mtu", config.path_mtu))

    @staticmethod
    def _store(doing: _Doing, data: bytes) -> None:
        assert doing.area is not None
        doing.area.put(0, data)

    def _order(self, doing: _Doing) -> Literal["little", "big"]:
        """Byte order of the memory that an atomic works on (§12)."""
        return self.hcas[self._peer(doing)].config.atomic_order

    def _executed(self, doing: _Doing, area: Area, at: int) -> tuple[bytes, bytes]:
        """An atomic: what is there before and after it (§12)."""
        order = self._order(doing)
        before = bytes(area.expected[at : at + ATOMIC_SIZE])
        old = int.from_bytes(before, order)
        if doing.row.do == "fetch_add":
            new = (old + doing.get("add")) % _WORD
        else:
            new = doing.get("swap") if old == doing.get("compare") else old
        return before, new.to_bytes(ATOMIC_SIZE, order)

    def _received(self, doing: _Doing, event: WorkCompletion) -> None:
        """A receive has ended; which message it took is told by its bytes."""
        area = doing.area
        assert area is not None
        if not event.ok:
            return
        start = GRH_SIZE if self.kind is QpType.UD else 0
        with_data = event.opcode is WcOpcode.RECV
        doing.received = event.byte_len if with_data else 0
        stored = bytes(area.actual[start : event.byte_len]) if with_data else None
        sent = self._sender_of(event, event.byte_len - start, stored)
        if sent is None:
            doing.match = False
            return
        sent.delivered = True
        if start:
            area.put(0, bytes(area.actual[:start]))
            doing.match = _is_network_header(bytes(area.actual[:start]), self.hcas[sent.row.node].address)
        if stored is not None:
            area.put(start, sent.data)

    def _sender_of(self, event: WorkCompletion, length: int, stored: bytes | None) -> _Doing | None:
        """The oldest message that it can be; one to a group may come to many."""
        do = "write" if stored is None else "send"
        for doing in self.doing:
            taken = doing.delivered and not isinstance(doing.get("to"), int)
            if not doing.began or taken or doing.row.do != do or doing.length != length:
                continue
            told = (doing.get("imm"), doing.get("invalidate"), self.number_of(doing.get("qp")))
            if told != (event.imm_data, event.invalidated_rkey, event.src_qp):
                continue
            if stored is None or doing.data == stored:
                return doing
        return None

    # The result

    def outcome(self, judge: Judge | None, output: str | None) -> Result:
        """What became of each row, and all memory compared."""
        for doing in self.doing:
            if doing.began and not doing.settled:
                self._settle_last(doing)
        outcomes = [self._outcome(doing) for doing in self.doing if doing.row.do in (*POSTED, "receive")]
        wrong = [
            f"operation {o.operation} ({o.do}) ended with {o.return_code}, {o.expect} was expected"
            for o in outcomes
            if o.return_code != o.expect
        ]
        self.failure = "; ".join((*((self.failure,) if self.failure else ()), *wrong)) or None
        expected, actual = (hashlib.sha256() for _ in range(2))
        for area in self.areas:
            expected.update(area.expected)
            actual.update(area.actual)
        same = all(o.match for o in outcomes) and all(area.same(0, len(area.actual)) for area in self.areas)
        moved = sum(o.length for o in outcomes if o.do in POSTED and o.return_code == Status.SUCCESS.name)
        memories = Memories(same, expected.hexdigest(), actual.hexdigest(), moved)
        return replace(
            self.result(memories, judge, output), operations=tuple(asdict(outcome) for outcome in outcomes)
        )  # fmt: skip

    def _settle_last(self, doing: _Doing) -> None:
        """Writes on UC, what failed, and what ended without a completion: part of it may be in memory."""
        do = doing.row.do
        if do == "receive":
            self._leave_parts(doing)
        if do not in _RIGHTS:
            return
        area, at = self._place(doing)
        if area is None:
            return
        mtu = self._mtu(doing)
        if do == "read":
            assert doing.area is not None
            doing.area.may_put(0, bytes(area.expected[at : at + doing.length]), mtu, waits=True)
        elif do == "write":
            if self._must_be_there(doing):
                area.put(at, doing.data)
            else:
                area.may_put(at, doing.data, mtu, waits=doing.status not in _REFUSED)
        elif doing.status not in _REFUSED:
            _, new = self._executed(doing, area, at)
            if area.actual[at : at + ATOMIC_SIZE] == new:
                area.put(at, new)

    def _must_be_there(self, doing: _Doing) -> bool:
        """A WRITE that arrived, if no completion says so: a receive does, or nothing can have stopped it."""
        left = doing.status == (Status.SUCCESS.name if doing.get("signaled", True) else NONE)
        stopped = self.scenario.faults or "imm" in doing.row.fields
        return doing.delivered or bool(left and not stopped)

    def _leave_parts(self, doing: _Doing) -> None:
        """A receive: packets of messages that were not completed are left in it, but never on RC in one that was."""
        area = doing.area
        if area is None or (self.kind is QpType.RC and doing.status == Status.SUCCESS.name):
            return
        for sent in self.doing:
            if sent.row.do == "send" and sent.began and not sent.delivered:
                mtu = self._mtu(sent)
                for start in range(0, sent.length, mtu):
                    at, end = max(start, doing.received), start + mtu
                    area.may_put(at, sent.data[at:end], mtu, waits=True)

    def _outcome(self, doing: _Doing) -> Outcome:
        row = doing.row
        arrives = row.do == "send" or "imm" in row.fields
        reliable = arrives and self.kind is QpType.RC and doing.status == Status.SUCCESS.name
        match = doing.match and (doing.delivered or not reliable) and self._is_there(doing)
        return Outcome(doing.number, row.do, row.node, doing.length, doing.status, row.expect, match, doing.ended_at)

    def _is_there(self, doing: _Doing) -> bool:
        """Its bytes are as they should be, at both ends."""
        if doing.area is not None and not doing.area.same(0, len(doing.area.actual)):
            return False
        area, at = self._place(doing) if doing.row.do in _RIGHTS else (None, 0)
        return area is None or area.same(at, doing.length)


def _is_network_header(data: bytes, source: int) -> bool:
    """An IPv6 header, or 20 bytes and an IPv4 header, from `source` (§11)."""
    if data[0] >> 4 == 6:
        return data[8:24] == source.to_bytes(16, "big")
    return data[20] == 0x45 and data[32:36] == source.to_bytes(4, "big")
