# SPDX-License-Identifier: GPL-2.0-only
"""A group at a host follows the state table `states.GROUP` (sharp.md §3.4).

Collectives begin in the order of submission. If a collective waits for a lock, all later collectives wait, too. All
members therefore give the same seq to a collective. Collectives that have begun run concurrently, on the LLT and on the
SAT.
"""

from collections import deque
from collections.abc import Callable, Sequence

from uetproto.engine.contract import NEVER
from uetproto.engine.sharp.config import MAX_SAT_MESSAGE, SharpConfig
from uetproto.engine.sharp.contract import OutgoingMessage
from uetproto.engine.sharp.host.flow import HostOperation, TreeFlow
from uetproto.engine.sharp.host.lock import HostLock
from uetproto.engine.sharp.host.states import GROUP, HostGroupInput, HostGroupState, HostLockInput, HostLockState
from uetproto.engine.sharp.host.work import (
    Aggregate,
    AggregateDone,
    AggregateFailed,
    Event,
    GroupFailed,
    GroupJoined,
    GroupLeft,
    JoinGroup,
    Trouble,
)
from uetproto.engine.sharp.messages import JoinRequest, JoinResponse, LockBody, SharpFault, SharpMessage, status_or
from uetproto.engine.sharp.options import SharpOptions
from uetproto.engine.sharp.state_tables import TableMachine
from uetproto.errors import LocalError
from uetproto.wire.headers.sharp import EVERY_RANK, Coll, Feature, Flag, SharpOpcode, Status

_DEFAULT_OSTS, _DEFAULT_USER_DATA = 2, 128
"""Defaults of what a group requests, the values of the logs (sharp.md §1.9)."""

_ANSWER_WAITS = 2
"""Number of T_join for which a host waits for an answer, a choice of this project (`HostGroupInput.TIME`)."""

_GROUP_IS_DEAD = frozenset({
    Status.UNKNOWN_TREE, Status.UNKNOWN_JOB, Status.UNKNOWN_GROUP, Status.NOT_MEMBER, Status.CHILD_DOWN,
    Status.PARENT_DOWN, Status.CANCELLED, Status.TREE_DISABLED,
})  # fmt: skip
"""Errors that concern the whole group and not one operation."""


class HostGroup(TableMachine, table=GROUP):
    """A host group is a group as one member sees it, with state, flows, SAT lock and collectives."""

    state: HostGroupState

    def __init__(
        self, work: JoinGroup, rank: int, config: SharpConfig, options: SharpOptions,
        emit: Callable[[Event], None], control: Callable[[TreeFlow, SharpOpcode, bytes], bytes],
    ) -> None:  # fmt: skip
        self.work = work
        self.rank = rank
        self.config = config
        self.options = options
        self.emit = emit
        self.control = control
        """Function that returns a packed control message of a flow."""
        self.state = HostGroupState.JOINING
        self.out: list[OutgoingMessage] = []
        self.llt = self._flow(work.llt.tree_id, work.llt.conn, sat=False)
        self.flows = [self.llt]
        self.sat: TreeFlow | None = None
        self.lock: HostLock | None = None
        if work.sat is not None:
            self.sat = self._flow(work.sat.tree_id, work.sat.conn, sat=True)
            self.flows.append(self.sat)
            self.lock = HostLock(work.sat.tree_id, config, options, self._send_lock)
        self.answer = JoinResponse()
        """JOIN_RESP of the LLT, with what the LLT grants to the group."""
        self.waiting: deque[HostOperation] = deque()
        """Collectives that have not begun."""
        self.timer = NEVER
        """Time at which the host gives up waiting for JOIN_RESP, UNLOCK_RESP or LEAVE_RESP: 2 · T_join after the
        request."""
        self.to_leave: set[int] = set()
        """Numbers of the trees whose LEAVE_RESP is awaited."""
        self.trouble: Trouble | None = None

    def _flow(self, tree_id: int, conn: int, *, sat: bool) -> TreeFlow:
        return TreeFlow(tree_id, conn, self.work.job_id, self.work.group_id, sat=sat)

    def send(self, flow: TreeFlow, opcode: SharpOpcode, body: bytes = b"") -> None:
        """Send a control message on the tree of a flow."""
        self.out.append(OutgoingMessage(flow.conn, self.control(flow, opcode, body)))

    def _send_lock(self, opcode: SharpOpcode, body: LockBody) -> None:
        self.send(self.llt, opcode, body.pack())

    # Joining

    def join(self, now: int) -> None:
        """Send JOIN_REQ on all trees. The JOIN_REQ on the SAT requests 0 bytes of user data (sharp.md §1.9)."""
        work, options = self.work, self.options
        features = Feature.LLT | (Feature.REPRODUCIBLE if self.config.repro else Feature(0))
        if self.sat is not None:
            features |= Feature.SAT
        osts = work.want_osts or options.osts_per_group or _DEFAULT_OSTS
        data = work.user_data or options.user_data or _DEFAULT_USER_DATA
        self.timer = now + _ANSWER_WAITS * self.config.t_join
        for flow in self.flows:
            wants = (self.config.sat_window, 0) if flow.sat else (osts, data)
            body = JoinRequest(work.group_size, *wants, features, flow.conn, (self.rank,))
            self.send(flow, SharpOpcode.GROUP_JOIN_REQ, body.pack())

    def join_answered(self, flow: TreeFlow, message: SharpMessage, now: int) -> None:
        """Handle a JOIN_RESP of one tree."""
        if self.state is not HostGroupState.JOINING:
            return
        if message.status != Status.OK:
            self.step(HostGroupInput.REFUSED, now, self._trouble(message.status))
            return
        answer = JoinResponse.unpack(message.body)
        flow.child_idx, flow.joined = answer.child_idx, True
        flow.window = self.config.sat_window if flow.sat else answer.granted_osts
        flow.most = answer.granted_osts
        flow.room = self.config.sat_chunk if flow.sat else answer.user_data_per_ost
        if not flow.sat:
            self.answer = answer
        if all(flow.joined for flow in self.flows):
            self.step(HostGroupInput.ALL_JOINED, now)

    def joined(self, now: int) -> None:
        """Report `GroupJoined`, and request the lock of the SAT already now if `lock_on_comm_init` is set."""
        self.timer = NEVER
        answer = self.answer
        mgid = answer.mgid if self.by_multicast else 0
        streams = self.sat is not None
        self.emit(GroupJoined(
            self.work.group_id, answer.granted_osts, answer.user_data_per_ost, answer.child_idx, streams, mgid,
            answer.qkey if mgid else 0,
        ))  # fmt: skip
        if self.lock is not None and self.options.lock_on_comm_init:
            self.lock.want(EVERY_RANK, now, early=True)

    @property
    def by_multicast(self) -> bool:
        """Tell whether LLT results are requested by multicast: the carrier and the options permit multicast, and the
        group has an MGID."""
        return bool(self.work.multicast and self.options.mcast_target and self.answer.mgid)

    # Collectives

    def collective(self, work: Aggregate, now: int) -> None:
        """Run a collective. Raises `LocalError` unless the group is READY or BUSY."""
        if not self.step(HostGroupInput.COLLECTIVE, now, work):
            raise LocalError(
                "group_id", f"{work.group_id} is {self.state.name}; collectives need READY or BUSY", id="wrong-state"
            )

    def begin(self, now: int, work: Aggregate) -> None:
        """Queue a collective. A vector that is too long for a SAT fails the group."""
        operation = HostOperation(work, self.rank, False, now + self.config.coll_timeout)
        threshold = self.options.sat_threshold
        operation.streams = self.sat is not None and operation.nbytes >= threshold and work.coll != Coll.BARRIER
        if operation.streams and operation.nbytes > MAX_SAT_MESSAGE:
            self.step(HostGroupInput.ERROR, now, self._trouble(Status.LENGTH), [operation])
            return
        self.waiting.append(operation)
        self.pump(now)

    def refuse(self, now: int, work: Aggregate) -> None:
        """Report `AggregateFailed` for a collective that is called in a failed group."""
        assert self.trouble is not None
        self.emit(AggregateFailed(work.op_id, self.trouble))

    def pump(self, now: int) -> None:
        """Begin the waiting collectives that may begin, and send as many pieces as the windows allow."""
        while self.waiting and (flow := self._flow_for(self.waiting[0], now)) is not None:
            operation = self.waiting.popleft()
            flow.begin(operation, self._flags(flow) | (Flag.LE if operation.work.little_endian else 0))
            if flow is self.sat:
                assert self.lock is not None
                self.lock.begin()
            elif self.by_multicast and operation.work.coll != Coll.REDUCE:
                operation.flags |= Flag.MCAST
                operation.multicast_deadline = now + self.config.t_result
        for flow in self.flows:
            if flow.sendable > 0:
                self.out += [OutgoingMessage(flow.conn, data) for data in flow.send()]

    def _flow_for(self, operation: HostOperation, now: int) -> TreeFlow | None:
        """Return the flow on which an operation may begin now; None if it waits for a lock."""
        lock = self.lock
        if not operation.streams or lock is None or self.sat is None:
            return self.llt
        if lock.given_up is not None:
            # After LOCK_BUSY on all tries, or LOCK_DENIED, the operation uses the LLT.
            lock.given_up = None
            operation.streams, operation.instead = False, True
            return self.llt
        if any(one.instead for one in self.llt.operations):
            return None  # its result shows that all members use the LLT; no member requests the lock before
        if lock.state is HostLockState.HELD:
            if lock.left and lock.target == operation.target:
                return self.sat if len(self.sat.operations) < self.sat.most else None
            if not self.sat.operations:
                lock.step(HostLockInput.RELEASE if lock.left else HostLockInput.SPENT, now)
        lock.want(operation.target, now)
        return None

    def _flags(self, flow: TreeFlow) -> int:
        flags = Flag.REPRO if self.config.repro else Flag(0)
        return flags | Flag.SAT | Flag.LOCK if flow.sat else flags

    def result(self, flow: TreeFlow, message: SharpMessage, now: int) -> bool:
        """Handle an AGG_RESULT; return False if it is the result of no open piece."""
        piece = flow.piece_of(message)
        if piece is None or not flow.take(*piece, message):
            return False
        operation = piece[0]
        operation.repeats = 0
        if operation.multicast_deadline != NEVER:
            operation.multicast_deadline = now + self.config.t_result
        if operation.finished == operation.pieces:
            flow.operations.remove(operation)
            self.emit(AggregateDone(operation.work.op_id, Status.OK, operation.result))
            if flow is self.sat and self.lock is not None and not self.lock.left and not flow.operations:
                self.lock.step(HostLockInput.SPENT, now)
        self.pump(now)
        if not self.in_progress:
            self.step(HostGroupInput.ALL_DONE, now)
        return True

    @property
    def in_progress(self) -> bool:
        """Tell whether any collective is waiting or running."""
        return bool(self.waiting) or any(flow.operations for flow in self.flows)

    def idle(self, now: int) -> None:
        """Do nothing, because all collectives are complete."""

    def locked(self, message: SharpMessage, now: int) -> None:
        """Handle a LOCK_RESP."""
        if self.lock is not None:
            self.lock.answer(message.status, LockBody.unpack(message.body), now)
            if not self.waiting:
                self.lock.given_up = None
            self.pump(now)

    def unlocked(self, now: int) -> None:
        """Handle an UNLOCK_RESP."""
        if self.lock is not None:
            self.lock.step(HostLockInput.RELEASED, now)
            if self.state is not HostGroupState.LEAVING:
                self.pump(now)
            elif not self.to_leave:
                self.ask_to_leave(now)

    # NACK and ERROR

    def nack(self, flow: TreeFlow, message: SharpMessage, now: int) -> bool:
        """Handle a NACK; return False if it refuses no open piece."""
        piece = flow.piece_of(message)
        return piece is not None and self.step(HostGroupInput.NACK, now, flow, piece[1], message)

    def wait(self, now: int, flow: TreeFlow, number: int, message: SharpMessage) -> None:
        """Wait T_rnr before the retransmission of a piece; fail the group if the piece gets more than `rnr_retry`
        NACKs."""
        if flow.refuse(number, now + self.config.t_rnr) > self.config.rnr_retry:
            self.step(HostGroupInput.ERROR, now, self._trouble(message.status, SharpFault.unpack(message.body)))

    def error(self, flow: TreeFlow, message: SharpMessage, now: int) -> bool:
        """Handle an ERROR; return False if it concerns only operations that are complete."""
        if message.status not in _GROUP_IS_DEAD and flow.is_old(message.seq):
            return False
        return self.step(HostGroupInput.ERROR, now, self._trouble(message.status, SharpFault.unpack(message.body)))

    def fail(self, now: int, trouble: Trouble, also: list[HostOperation] | None = None) -> None:
        """Fail the group, all its open collectives, and the collectives in `also`."""
        self.timer = NEVER
        self.trouble = trouble
        self._fail_all(trouble, also or [])
        self.emit(GroupFailed(self.work.group_id, trouble))

    def time_out(self, now: int) -> None:
        """Fail the group because a collective timed out. First send ERROR up the trees, so that the other members do
        not wait for this member. This is a choice of this project."""
        for flow in self.flows:
            if flow.operations:
                oldest = flow.operations[0]
                status = Status.TIMEOUT_NO_PROGRESS
                seq = oldest.seq if flow.sat else flow.base & 2**32 - 1
                fault = SharpFault(status, 0, SharpOpcode.AGG_REQ, self.rank)
                error = SharpMessage(
                    SharpOpcode.ERROR, flow.tree_id, flow.job_id, flow.group_id, seq, status=status, body=fault.pack()
                )
                self.out.append(OutgoingMessage(flow.conn, error.pack()))
        self.fail(now, self._trouble(Status.TIMEOUT_NO_PROGRESS))

    def lost(self, now: int) -> None:
        """Handle the failure of a connection to the leaf aggregation node."""
        if self.state is HostGroupState.LEAVING:
            self.step(HostGroupInput.ALL_LEFT, now)
        else:
            self.step(HostGroupInput.ERROR, now, self._trouble(Status.PARENT_DOWN))

    def _trouble(self, status: int, fault: SharpFault | None = None) -> Trouble:
        return Trouble(status_or(status, Status.BAD_HEADER), self.options.fall_back, fault)

    def _fail_all(self, trouble: Trouble, also: Sequence[HostOperation] = ()) -> None:
        """Report the failure of all open collectives and of those in `also`, and forget them."""
        for operation in [*(one for flow in self.flows for one in flow.operations), *self.waiting, *also]:
            self.emit(AggregateFailed(operation.work.op_id, trouble))
        self.waiting.clear()
        for flow in self.flows:
            flow.operations.clear()
            flow.missing.clear()
            flow.again.clear()

    # Leaving

    def leave(self, now: int) -> None:
        """Cancel open collectives and release the lock, then send LEAVE_REQ."""
        self._fail_all(self._trouble(Status.CANCELLED))
        self.timer = now + _ANSWER_WAITS * self.config.t_join
        if self.lock is not None:
            self.lock.step(HostLockInput.RELEASE, now)
            if self.lock.state is HostLockState.RELEASING and self.trouble is None:
                return
        self.ask_to_leave(now)

    def ask_to_leave(self, now: int) -> None:
        """Send LEAVE_REQ on all trees."""
        self.timer = now + _ANSWER_WAITS * self.config.t_join
        for flow in self.flows:
            self.to_leave.add(flow.tree_id)
            self.send(flow, SharpOpcode.GROUP_LEAVE_REQ)

    def left_one(self, flow: TreeFlow, now: int) -> None:
        """Handle a LEAVE_RESP of one tree."""
        self.to_leave.discard(flow.tree_id)
        if not self.to_leave:
            self.step(HostGroupInput.ALL_LEFT, now)

    def left(self, now: int) -> None:
        """Report `GroupLeft`."""
        self.timer = NEVER
        self.emit(GroupLeft(self.work.group_id))

    # Time

    def poll(self, now: int) -> None:
        """Fire the timers that are due."""
        if self.timer <= now:
            self.timer = NEVER
            if self.state is HostGroupState.LEAVING and not self.to_leave:
                self.step(HostGroupInput.NOT_UNLOCKED, now)
            else:
                joining = self.state is HostGroupState.JOINING
                self.step(HostGroupInput.TIME, now, *([self._trouble(Status.GROUP_EXHAUSTED)] if joining else []))
        if self.lock is not None:
            self.lock.poll(now)
        for flow in self.flows:
            if flow.again:
                self.out += [OutgoingMessage(flow.conn, data) for data in flow.due(now)]
        for operation in self.llt.operations:
            if operation.multicast_deadline <= now:
                operation.repeats += 1
                more = operation.repeats < self.config.retry
                operation.multicast_deadline = now + self.config.t_result if more else NEVER
                numbers = self.llt.open_of(operation)
                self.out += [OutgoingMessage(self.llt.conn, data) for data in self.llt.repeat(numbers)]
        if any(operation.deadline <= now for operation in self._oldest()):
            self.step(HostGroupInput.COLL_TIMEOUT, now)

    def _oldest(self) -> list[HostOperation]:
        """Return the oldest operation of each queue, whose deadline is the earliest."""
        queues = [*(flow.operations for flow in self.flows), self.waiting]
        return [queue[0] for queue in queues if queue]

    def deadline(self) -> int:
        """Return the time at which `poll` is due at the latest; `NEVER` if no timer runs."""
        nearest = self.timer
        if self.lock is not None:
            nearest = min(nearest, self.lock.retry_at)
        if self.waiting:
            nearest = min(nearest, self.waiting[0].deadline)
        for flow in self.flows:
            if flow.operations:
                nearest = min(nearest, flow.operations[0].deadline)
            if flow.again:
                nearest = min(nearest, *flow.again.values())
        for operation in self.llt.operations:
            nearest = min(nearest, operation.multicast_deadline)
        return nearest
