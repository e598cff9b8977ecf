# SPDX-License-Identifier: GPL-2.0-only
"""`SharpHost` is the SHARP endpoint of a rank on one rail: it joins groups and runs collectives (sharp.md §3.4)."""

from collections import Counter
from typing import Any

from uetproto.engine.contract import NEVER
from uetproto.engine.sharp.config import SharpConfig
from uetproto.engine.sharp.contract import OutgoingMessage
from uetproto.engine.sharp.host.flow import TreeFlow
from uetproto.engine.sharp.host.group import HostGroup
from uetproto.engine.sharp.host.states import HostGroupInput, HostGroupState
from uetproto.engine.sharp.host.trains import ResultRun
from uetproto.engine.sharp.host.work import Aggregate, AggregateFailed, Event, JoinGroup, LeaveGroup, Trouble, Work
from uetproto.engine.sharp.messages import Heartbeat, SharpMessage, parse
from uetproto.engine.sharp.options import SharpOptions
from uetproto.errors import LocalError, shown
from uetproto.wire.headers.sharp import DTYPE_SIZES, Coll, Dtype, Op, SharpOpcode, Status

_FLOATS = frozenset({Dtype.FLOAT, Dtype.DOUBLE, Dtype.FLOAT_SHORT, Dtype.BFLOAT16})
_INTEGER_OPS = frozenset({Op.LAND, Op.BAND, Op.LOR, Op.BOR, Op.LXOR, Op.BXOR})
_LOCATED = frozenset({Op.MINLOC, Op.MAXLOC})


class SharpHost:
    """A SHARP host is an `Element` that runs the collectives of a host, or of one rank of a host, on one rail.

    It makes no connections itself: `JoinGroup` names connections that exist.
    """

    def __init__(self, rank: int, config: SharpConfig | None = None, options: SharpOptions | None = None) -> None:
        self.rank = rank
        self.config = config or SharpConfig()
        self.options = options or SharpOptions()
        self.groups: dict[int, HostGroup] = {}
        self.counters: Counter[str] = Counter()
        """Numbers of messages, by name. "sent" and "received" count all messages, and "nacks" counts NACKs for open
        pieces. "discarded" counts messages that were malformed or belonged to no group. "late" counts results and
        errors of operations that were complete."""
        self._flows: dict[tuple[int, int], tuple[HostGroup, TreeFlow]] = {}
        """Maps tree and group to the group and its flow."""
        self._controls: Counter[int] = Counter()
        """Maps each connection to the `seq` of its next control message."""
        self.trains = False
        """Whether results of a stream are taken with less work where nothing distinguishes them."""
        self._runs: dict[int | None, ResultRun | None] = {}
        """Maps each connection to the run of the last result, if it is in one."""
        self._out: list[OutgoingMessage] = []
        self._events: list[Event] = []

    # Work

    def submit(self, work: Work, now: int) -> None:
        """Accept work. Raises `LocalError` for work that is not legal."""
        if isinstance(work, JoinGroup):
            self._join(work, now)
        elif isinstance(work, LeaveGroup):
            group = self._group(work.group_id)
            if not group.step(HostGroupInput.LEAVE, now):
                raise LocalError(
                    "group_id", f"{work.group_id} is {group.state.name}; it is left once", id="wrong-state"
                )
        else:
            self._aggregate(work, now)

    def _join(self, work: JoinGroup, now: int) -> None:
        if work.group_id in self.groups:
            raise LocalError(
                "group_id", f"{work.group_id} is joined already; each has its own number", id="already-there"
            )
        rank = self.rank if work.rank is None else work.rank
        if not 0 <= rank < work.group_size <= 0xFFFF:
            raise LocalError(
                "group_size", f"{shown(work.group_size)}; {rank + 1} … 65535 for rank {rank}", id="out-of-range"
            )
        if not 0 <= work.job_id < 1 << 24:
            raise LocalError("job_id", f"{shown(work.job_id)}; 0 … {(1 << 24) - 1}", id="out-of-range")
        group = HostGroup(work, rank, self.config, self.options, self._events.append, self._control)
        self.groups[work.group_id] = group
        for flow in group.flows:
            self._flows[flow.tree_id, work.group_id] = group, flow
        group.join(now)

    def _aggregate(self, work: Aggregate, now: int) -> None:
        group = self._group(work.group_id)
        check(work, group.rank, group.work.group_size)
        status = unsupported(work)
        if status is not None:
            # Every member refuses alike, and the group stays READY.
            self._events.append(AggregateFailed(work.op_id, Trouble(status, self.options.fall_back)))
            return
        group.collective(work, now)

    def _group(self, group_id: int) -> HostGroup:
        if group_id not in self.groups:
            raise LocalError(
                "group_id", f"{shown(group_id)} was not joined; there are {sorted(self.groups)}", id="not-registered"
            )
        return self.groups[group_id]

    def _control(self, flow: TreeFlow, opcode: SharpOpcode, body: bytes) -> bytes:
        seq = self._controls[flow.conn]
        self._controls[flow.conn] = seq + 1 & 2**32 - 1
        child = flow.child_idx if flow.joined else 0xFF
        return SharpMessage(opcode, flow.tree_id, flow.job_id, flow.group_id, seq, child_idx=child, body=body).pack()

    # An `Element`

    def message(self, conn: int | None, data: bytes, now: int) -> None:
        """Handle a message of the leaf aggregation node, or of a multicast group."""
        self.counters["received"] += 1
        run = self._runs.get(conn)
        if run is not None and run.header.fits(data) and run.take(data):
            return
        message = parse(data)
        if isinstance(message, Status):
            self.counters["discarded"] += 1
            return
        if message.opcode == SharpOpcode.HEARTBEAT and conn is not None:
            answer = Heartbeat(self.rank, Heartbeat.unpack(message.body).counter)
            message.opcode, message.body = SharpOpcode.HEARTBEAT_RESP, answer.pack()
            self._out.append(OutgoingMessage(conn, message.pack()))
            return
        group, flow = self._flows.get((message.tree_id, message.group_id), (None, None))
        if group is None or flow is None or conn not in (flow.conn, None) or message.job_id != flow.job_id:
            self.counters["discarded"] += 1
            return
        self._dispatch(group, flow, message, now)
        if self.trains and message.opcode == SharpOpcode.AGG_RESULT and conn is not None:
            self._runs[conn] = ResultRun.of(group, flow, message, data)
        if group.state is HostGroupState.LEFT:
            self._forget(group)

    def _dispatch(self, group: HostGroup, flow: TreeFlow, message: SharpMessage, now: int) -> None:
        match message.opcode:
            case SharpOpcode.AGG_RESULT:
                self.counters["late"] += not group.result(flow, message, now)
            case SharpOpcode.GROUP_JOIN_RESP:
                group.join_answered(flow, message, now)
            case SharpOpcode.GROUP_LEAVE_RESP:
                group.left_one(flow, now)
            case SharpOpcode.LOCK_RESP:
                group.locked(message, now)
            case SharpOpcode.UNLOCK_RESP:
                group.unlocked(now)
            case SharpOpcode.NACK:
                self.counters["nacks"] += group.nack(flow, message, now)
            case SharpOpcode.ERROR:
                self.counters["late"] += not group.error(flow, message, now)
            case SharpOpcode.HEARTBEAT_RESP:
                pass
            case _:
                self.counters["discarded"] += 1

    def acknowledged(self, conn: int, handle: int, now: int) -> None:
        """Do nothing: the host waits for results, not for acknowledgements."""

    def lost(self, conn: int, now: int) -> None:
        """Handle the failure of a connection: all groups that use the connection fail."""
        for group in list(self.groups.values()):
            if any(flow.conn == conn for flow in group.flows):
                group.lost(now)
                if group.state is HostGroupState.LEFT:
                    self._forget(group)

    def poll(self, now: int) -> list[OutgoingMessage]:
        """Fire the timers that are due and return the messages to send."""
        for group in list(self.groups.values()):
            if group.deadline() <= now:
                group.poll(now)
            if group.out:
                self._out += group.out
                group.out = []
            if group.state is HostGroupState.LEFT:
                self._forget(group)
        out, self._out = self._out, []
        self.counters["sent"] += len(out)
        return out

    def deadline(self) -> int | None:
        """Return the time at which `poll` is due at the latest: 0 if a message waits to be sent, and None if no timer
        runs."""
        if self._out or any(group.out for group in self.groups.values()):
            return 0
        nearest = min((group.deadline() for group in self.groups.values()), default=NEVER)
        return None if nearest == NEVER else nearest

    def events(self) -> list[Any]:
        """Return the events since the last call."""
        events, self._events[:] = self._events[:], []
        return events

    def _forget(self, group: HostGroup) -> None:
        self._out += group.out
        self.groups.pop(group.work.group_id, None)
        for flow in group.flows:
            self._flows.pop((flow.tree_id, group.work.group_id), None)


def check(work: Aggregate, rank: int, group_size: int) -> None:
    """Check that the arguments of a collective agree with each other. Raises `LocalError`, which names the field and
    its legal values."""
    if work.coll not in (Coll.BARRIER, Coll.ALLREDUCE, Coll.REDUCE, Coll.BCAST):
        raise LocalError("coll", f"{shown(work.coll)}; BARRIER, ALLREDUCE, REDUCE or BCAST", id="unknown-name")
    rooted = work.coll in (Coll.REDUCE, Coll.BCAST)
    if rooted and (work.root is None or not 0 <= work.root < group_size):
        raise LocalError(
            "root", f"{shown(work.root)}; {work.coll.name} needs a rank, 0 … {group_size - 1}", id="out-of-range"
        )
    empty = work.coll == Coll.BARRIER or (work.coll == Coll.BCAST and work.root != rank)
    element = DTYPE_SIZES[work.dtype] + DTYPE_SIZES[work.tag_dtype]
    if work.count < 0 or (work.coll == Coll.BARRIER and work.count):
        raise LocalError("count", f"{shown(work.count)}; at least 0, and 0 of a BARRIER", id="out-of-range")
    expected = 0 if empty else work.count * element
    if memoryview(work.data).nbytes != expected:
        raise LocalError(
            "data",
            f"{memoryview(work.data).nbytes} bytes; {expected} = {work.count} × {element} bytes for a"
            f" {work.coll.name} of {work.dtype.name} at rank {rank}",
            id="wrong-length",
        )


def unsupported(work: Aggregate) -> Status | None:
    """Return the status for a collective that no aggregation node can run (sharp.md §2.8 rule 3); None if the host
    finds no obstacle."""
    if work.coll in (Coll.BARRIER, Coll.BCAST):
        return None
    if work.op == Op.NULL:
        return Status.OP_UNSUPPORTED
    if work.dtype == Dtype.NULL:
        return Status.DTYPE_UNSUPPORTED
    located = work.op in _LOCATED
    if (work.op in _INTEGER_OPS and work.dtype in _FLOATS) or located == (work.tag_dtype == Dtype.NULL):
        return Status.OP_DTYPE_ILLEGAL
    return None
