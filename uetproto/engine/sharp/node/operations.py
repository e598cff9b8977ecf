# SPDX-License-Identifier: GPL-2.0-only
"""An aggregation node runs the operations of a group by the state table `states.OPERATION` (sharp.md §3.2).

`GroupOperations` has what LLT and SAT share: it sends requests to the parent and results to the children, and handles
NACK and ERROR. `LltOperations` adds the window of a low-latency tree, and `sat_operations.SatOperations` the windows of
a streaming tree.
"""

from abc import ABC, abstractmethod
from typing import ClassVar

from uetproto.engine.sharp.messages import CHILD_AT, NOT_APPLICABLE, SharpFault, SharpMessage, status_or
from uetproto.engine.sharp.node.checks import check_request
from uetproto.engine.sharp.node.contract import GroupContext, NodeServices
from uetproto.engine.sharp.node.ost import SIGNED, OstEntry, signature_of
from uetproto.engine.sharp.node.packing import address_result, pack_for, pack_result, retransmitted
from uetproto.engine.sharp.node.states import OPERATION, OpInput, OpState
from uetproto.engine.sharp.numeric import fold
from uetproto.engine.sharp.state_tables import CompiledTable, compile_table
from uetproto.wire.headers.sharp import EVERY_RANK, Coll, Flag, SharpOpcode, Status, TargetType
from uetproto.wire.serial import add32, diff32

_NODATA, _MCAST, _LE, _REPRO, _FINAL, _LOCK, _UNLOCK = (
    int(flag) for flag in (Flag.NODATA, Flag.MCAST, Flag.LE, Flag.REPRO, Flag.FINAL, Flag.LOCK, Flag.UNLOCK)
)

_INDEXES = [bytes((child,)) for child in range(256)]
"""Byte of child_idx of each child."""
FATAL = frozenset({Status.DATA_CORRUPT, Status.CHILD_DOWN, Status.PARENT_DOWN})
"""If an operation fails with one of these statuses, its group fails as well."""


class GroupOperations(ABC):
    """This class holds the operations of one group that are open, finished or failed.

    Subclasses decide to which operation a request belongs, when results are sent, and what the window is.
    """

    sat: ClassVar[bool]
    compiled: ClassVar[CompiledTable]

    def __init_subclass__(cls) -> None:
        cls.compiled = compile_table(OPERATION, cls)

    def __init__(self, group: GroupContext, node: NodeServices) -> None:
        self.group = group
        self.node = node
        self.base = 0
        """The lowest seq that is not yet finished for all children."""
        self.ops: dict[object, OstEntry] = {}
        self.cached: dict[int, OstEntry] = {}
        """Maps each seq of the last W finished operations to its operation, whose result may be sent again."""

    # Inputs

    def request(self, child: int, message: SharpMessage, data: bytes) -> None:
        """Handle an AGG_REQ of a child of the group."""
        status = check_request(
            message,
            user_data=self.group.granted.user_data_per_ost,
            prod=self.node.config.prod,
            sat=self.sat,
            locked=self.is_locked,
        )
        self._note_progress(child, message)
        op = self._find(message)
        if op is None:
            op = OstEntry(self, message.seq, message.vec_off)
            event, status = self._classify_first(child, message, status)
        elif op.state is not OpState.COLLECT:
            event = OpInput.REQ_AGAIN
        elif status or (status := self._check_fit(child, message)):
            event = OpInput.REQ_BAD
        elif child in op.operands:
            known = op.raw[child]
            same = data == known or retransmitted(data) == retransmitted(known)
            event, status = (OpInput.REQ_AGAIN, status) if same else (OpInput.REQ_CHANGED, Status.DATA_CORRUPT)
        elif signature_of(message) != op.signature or (message.coll == Coll.BCAST and _is_second(op, message)):
            event, status = OpInput.REQ_OTHER, self._difference(op, message)
        else:
            event = OpInput.REQ
        if status:
            op.code, op.faulty = status, frozenset((child,))
        self.handle(op, event, child, message, data)

    def from_parent(self, message: SharpMessage, data: bytes) -> None:
        """Handle an AGG_RESULT or a NACK of the parent."""
        if message.opcode == SharpOpcode.NACK:
            port = self.node.ports[self.group.tree.parent]
            if message.status == Status.OST_EXHAUSTED:
                port.rnr_naks += 1
            else:
                port.out_of_sequence_naks += 1
        op = self._find(message) or self.cached.get(message.seq)
        if op is None:
            self.node.counters["stale"] += 1
            return None
        if message.opcode == SharpOpcode.AGG_RESULT:
            same = op.head is not None and signature_of(message)[:-1] == op.signature[:-1]
            if not same and op.state is OpState.UP:
                op.code, op.faulty, op.opcode = Status.DATA_CORRUPT, frozenset(), message.opcode
            return self.handle(op, OpInput.RESULT if same else OpInput.RESULT_OTHER, None, message, data)
        if message.status not in (Status.OST_EXHAUSTED, Status.SEQ_AHEAD):
            return self.node.discard()  # after SEQ_STALE, T_result ends the operation
        last = op.refused >= self.node.config.rnr_retry
        if last and op.state is OpState.UP:
            op.code = Status(message.status)
        return self.handle(op, OpInput.NACK_LAST if last else OpInput.NACK, None, message, data)

    def error(self, child: int | None, message: SharpMessage, data: bytes) -> None:
        """Handle an ERROR from a child, or from the parent if `child` is None."""
        op = self._find_for_error(message.seq)
        if op is None:
            return self.node.discard()
        event = OpInput.ERROR_ABOVE if child is None else OpInput.ERROR_BELOW
        return self.handle(op, event, child, message, data)

    def end_all(self, event: OpInput, code: Status, children: frozenset[int] = frozenset()) -> int:
        """Fail every open operation. Return the number of errors raised, one for each seq."""
        seqs = set()
        for op in list(self.ops.values()):
            if op.state in (OpState.COLLECT, OpState.UP):
                op.code, op.faulty = code, children
                self.handle(op, event)
                seqs.add(op.seq)
        return len(seqs)

    def expired(self, op: OstEntry) -> None:
        """Handle the expiry of the timer of an operation: T_ost, T_result, T_rnr or T_err, according to its state."""
        node = self.node
        if op.state is OpState.COLLECT:
            op.code = Status.TIMEOUT_NO_PROGRESS
            op.faulty = frozenset(self.group.members) - op.operands.keys()
            for child in op.faulty:
                node.ports[self.group.conn_of(child)].timeout_events += 1
            self.handle(op, OpInput.T_OST)
        elif op.state is OpState.UP:
            if op.rnr:
                self.handle(op, OpInput.T_RNR)
                return
            node.ports[self.group.tree.parent].timeout_events += 1
            if op.tries < node.config.retry:
                self.handle(op, OpInput.T_RESULT)
            else:
                op.code = Status.PARENT_DOWN
                self.handle(op, OpInput.T_RESULT_LAST)
        elif op.state is OpState.ERR:
            op.over = True
            self.advance()

    def handle(
        self, op: OstEntry, event: OpInput, child: int | None = None, message: SharpMessage | None = None,
        data: bytes = b"",
    ) -> None:  # fmt: skip
        """Take the step of the state table for an input; a message for which the table has no entry is counted and
        dropped."""
        row = self.compiled.get((op.state, event))
        if row is None:
            return self.node.discard()
        action, op.state = row
        action(self, op, child, message, data)
        return None

    # What LLT and SAT do differently

    @abstractmethod
    def _note_progress(self, child: int, message: SharpMessage) -> None:
        """Note the newest request of a child, which implies that the child has the results of a window before."""

    @abstractmethod
    def _find(self, message: SharpMessage) -> OstEntry | None:
        """Return the operation or chunk that a message belongs to."""

    @abstractmethod
    def _find_for_error(self, seq: int) -> OstEntry | None:
        """Return the operation that an ERROR is about, a new one if none is known; None for a seq out of the window."""

    @abstractmethod
    def _key(self, op: OstEntry) -> object:
        """Return the key of an operation in `ops`."""

    @property
    def is_locked(self) -> bool:
        """Tell whether the group holds the lock that the requests of a SAT need."""
        return False

    @abstractmethod
    def _target_rank(self, op: OstEntry) -> int:
        """Return the rank that the result is for, or `EVERY_RANK`."""

    @abstractmethod
    def _classify_first(self, child: int, message: SharpMessage, status: Status) -> tuple[OpInput, Status]:
        """Classify a request that begins an operation or is out of the window; `status` is what its checks found."""

    def _check_fit(self, child: int, message: SharpMessage) -> Status:
        """Check a request against the other requests of its operation."""
        return Status.OK

    def _difference(self, op: OstEntry, message: SharpMessage) -> Status:
        """Return the status of a request whose signature differs from the latched one."""
        return Status.MISMATCH

    @abstractmethod
    def acknowledged(self, op: OstEntry, child: int) -> None:
        """Record that a child has acknowledged the result of an operation or chunk."""

    @abstractmethod
    def advance(self) -> None:
        """Advance `base` past all operations that are finished for all children."""

    @abstractmethod
    def evict(self, op: OstEntry, *_: object) -> None:
        """Forget an operation or chunk and release its OST."""

    @abstractmethod
    def _is_answered(self, seq: int) -> bool:
        """Tell whether the result of an operation has been sent to every child."""

    @abstractmethod
    def _finish_base(self) -> None:
        """Finish the operation at `base` and advance `base` by one."""

    def _make_room(self, seq: int) -> None:
        """Advance the window for a request of `seq`, whose sender has the result of `seq` - W.

        A result that was sent to all children counts as acknowledged, as connections lose no messages. This is a choice
        of this project. Without it, a child could send its next request before the ACK of a sibling arrives, and would
        get a NACK and wait T_rnr. The cache keeps the results for one more window.
        """
        while diff32(seq, self.base) >= self.group.window and self._is_answered(self.base):
            self._finish_base()

    # Actions of the table: requests

    def allocate(self, op: OstEntry, child: int, message: SharpMessage, data: bytes) -> None:
        """Begin an operation with its first request: take an OST, store the signature, and start T_ost."""
        op.ost = True
        op.head = message
        op.signature = signature_of(message)
        self.ops[self._key(op)] = op
        self.node.start(op, self.node.config.t_ost)
        self.store(op, child, message, data)

    def store(self, op: OstEntry, child: int, message: SharpMessage, data: bytes) -> None:
        """Store the operand of a child; the operand of the last child ends the collection."""
        if message.udh:
            op.cookies[child] = message.udh
        self.keep(op, child, message.flags, None if message.flags & _NODATA else message.body, data)

    def keep(self, op: OstEntry, child: int, flags: int, operand: bytes | None, data: bytes) -> None:
        """Keep the operand and the request `data` of a child, and end the collection if it is the last one."""
        op.operands[child] = operand
        op.raw[child] = data
        op.merged[0] &= flags
        op.merged[1] |= flags & _UNLOCK
        if len(op.operands) == len(self.group.members):
            self.handle(op, OpInput.ALL_ROOT if self.group.is_root else OpInput.ALL_UP)

    def _reduce(self, op: OstEntry) -> bytes | None:
        """Return the operands reduced in ascending child order, or in the order of arrival (sharp.md §3.5).

        Return None if all operands are NODATA.
        """
        head, operands = op.message, op.operands
        order = sorted(operands) if head.flags & _REPRO else operands
        vectors = [vector for child in order if (vector := operands[child]) is not None]
        op.raw.clear()
        for child in operands:
            operands[child] = None
        if not vectors:
            return None
        return fold(
            head.op, head.dtype, head.tag_dtype, vectors,
            little_endian=bool(head.flags & _LE), acc_native=self.node.config.acc_native,
        )  # fmt: skip

    def send_up(self, op: OstEntry, *_: object) -> None:
        """Reduce the operands, send the parent one request with the node's own child_idx, and start T_result."""
        vector = self._reduce(op)
        flags = op.message.flags & (SIGNED | _LOCK) | op.merged[0] & _MCAST | op.merged[1]
        own, target = self.group.own_idx, op.message.target
        op.up = pack_for(op.message, SharpOpcode.AGG_REQ, vector, own, flags, target=target)
        self.group.send_up(op.up)
        self.node.start(op, self.node.config.t_result)

    def send_again(self, op: OstEntry, *_: object) -> None:
        """Retransmit the request to the parent, with the flag RETX."""
        op.tries += not op.rnr
        op.rnr = False
        self.node.counters["retries"] += 1
        self.group.send_up(retransmitted(op.up))
        self.node.start(op, self.node.config.t_result)

    def wait_rnr(self, op: OstEntry, *_: object) -> None:
        """Wait T_rnr before the retransmission of a request that the parent refused."""
        op.refused += 1
        op.rnr = True
        self.node.start(op, self.node.config.t_rnr)

    def hold_back(self, op: OstEntry, child: int, message: SharpMessage, data: bytes) -> None:
        """Hold a request back. The child that sent it has received an earlier result by multicast, and this node has
        not: the request waits until this node has the result, too. This is a choice of this project; in sharp.md the
        request is refused."""
        self.ops[add32(op.seq, -self.group.window)].early[child] = message, data

    def drop_duplicate(self, *_: object) -> None:
        """Drop a duplicate request and count it. The result will answer it."""
        self.node.counters["dup"] += 1

    # Actions of the table: results

    def distribute(self, op: OstEntry, *_: object) -> None:
        """Reduce the operands as the root, and send the result to the children (sharp.md §4.3)."""
        vector = self._reduce(op)
        head = op.message
        op.result = SharpMessage(
            SharpOpcode.AGG_RESULT, head.tree_id, head.job_id, head.group_id, head.seq, head.vec_off, head.count,
            head.op, head.dtype, head.tag_dtype, head.coll, NOT_APPLICABLE, Status.OK,
            head.flags & (SIGNED | _LOCK) | op.merged[1] | _FINAL | (_NODATA if vector is None else 0),
            body=vector or b"",
        )  # fmt: skip
        self.node.stop(op)
        self._send_results(op)

    def forward_result(self, op: OstEntry, _: object, message: SharpMessage, data: bytes) -> None:
        """Forward the result of the parent to the children, with its payload unchanged."""
        self.node.stop(op)
        op.up = op.up if self._by_multicast(op) else b""
        op.result = message
        self._send_results(op)
        early, op.early = op.early, {}
        for child, request in early.items():
            self.request(child, *request)

    def _by_multicast(self, op: OstEntry) -> bool:
        """Tell whether the result goes by multicast: every child requested it, and the group has an MGID."""
        return bool(
            op.merged[0] & _MCAST and self.group.granted.mgid and op.message.coll != Coll.REDUCE and not self.sat
        )

    def _send_results(self, op: OstEntry) -> None:
        """Send a result to the children; on a SAT, after the results of all lower vec_off."""
        assert op.result is not None
        op.answered = True
        group = self.group
        if self._by_multicast(op) and (group.is_root or op.result.flags & _NODATA):
            if group.is_root:
                self.node.send_group(pack_result(op.result, NOT_APPLICABLE, extra=_MCAST), group.granted.mgid)
            if group.depth > 1:  # aggregation nodes below release their OST; hosts receive the multicast
                for child in group.members:
                    self._send_result(op, child, pack_result(op.result, child, without=True))
            else:  # hosts do not acknowledge a multicast: it counts as received and stays in the cache (choice)
                op.finished.update(group.members)
                self.advance()
            return
        full = pack_result(op.result, 0)
        bare = pack_result(op.result, 0, without=True) if op.message.coll == Coll.REDUCE else full
        target = self._target_child(op)
        if target is None and not op.cookies:
            front, behind = bytes(full[:CHILD_AT]), bytes(full[CHILD_AT + 1 :])
            for child in group.members:
                data = b"".join((front, _INDEXES[child], behind))
                self.node.send(group.conn_of(child), data, self.node.expect(op, child))
            return
        for child in group.members:
            self._send_result(op, child, bytearray(full if target is None or child == target else bare))

    def _target_child(self, op: OstEntry) -> int | None:
        """Return the only child that gets the payload, as the target rank is below it; None for all, -1 for none."""
        if op.message.coll != Coll.REDUCE:
            return None
        rank = self._target_rank(op)
        return None if rank == EVERY_RANK else self.group.child_of_rank(rank)

    def _send_result(self, op: OstEntry, child: int, data: bytearray, *, again: bool = False) -> None:
        """Send a packed result to a child, with its index and the cookie that it sent."""
        address_result(data, child, op.cookies.get(child), again=again)
        self.node.send(self.group.conn_of(child), bytes(data), self.node.expect(op, child))

    def repeat_result(self, op: OstEntry, child: int, message: SharpMessage, data: bytes) -> None:
        """Retransmit the result to a child. If the result came by multicast and this node does not have its payload,
        request the payload from the parent first."""
        op = self.cached.get(op.seq, op) if op.head is None else op
        self.node.counters["dup"] += 1
        if op.result is None or not op.answered:
            return
        if op.result.flags & _NODATA and op.up and self._by_multicast(op) and not self.group.is_root:
            op.waiting.add(child)
            self.group.send_up(retransmitted(op.up))
            return
        target = self._target_child(op)
        self._send_result(op, child, pack_result(op.result, 0, without=target not in (None, child)), again=True)

    def take_late_result(self, op: OstEntry, _: object, message: SharpMessage, data: bytes) -> None:
        """Forward the payload of a repeated result to the children that wait for it. If no child waits, drop the
        result."""
        if op.waiting:
            op.result, op.up = message, b""
            waiting, op.waiting = op.waiting, set()
            for child in sorted(waiting):
                self._send_result(op, child, pack_result(message, 0), again=True)
        else:
            self.node.counters["dup"] += 1

    # Actions of the table: NACK and ERROR (sharp.md §2.5, §3.2)

    def refuse(self, op: OstEntry, child: int, message: SharpMessage, data: bytes) -> None:
        """Send a child a NACK with the status `op.code`."""
        self.group.nack(child, message, op.code)

    def raise_error(self, op: OstEntry, *_: object) -> None:
        """Send ERROR to every child and to the parent, and raise a trap; the operation fails."""
        group = self.group
        op.error = group.error(op.seq, op.code, op.faulty, op.opcode)
        self.node.raise_trap(op.code, group, op.faulty, op.seq)
        group.send_all(op.error)
        self._fail(op)

    def relay_down(self, op: OstEntry, child: None, message: SharpMessage, data: bytes) -> None:
        """Forward the ERROR of the parent, unchanged, to every child."""
        op.error, op.code = data, _code(message)
        self.group.send_all(data, parent=False)
        self._fail(op)

    def relay_around(self, op: OstEntry, child: int, message: SharpMessage, data: bytes) -> None:
        """Forward the ERROR of a child, unchanged, to the parent and to all other children."""
        op.error, op.code = data, _code(message)
        self.group.send_all(data, but=child)
        self._fail(op)

    def _fail(self, op: OstEntry) -> None:
        op.raw.clear()
        op.up = b""
        self.ops.setdefault(self._key(op), op)
        self.node.start(op, self.node.config.t_err)
        if op.code in FATAL:
            self.group.fatal(op.code)

    def repeat_error(self, op: OstEntry, child: int, message: SharpMessage, data: bytes) -> None:
        """Send ERROR with the stored code to a child."""
        self.node.send(self.group.conn_of(child), op.error)

    # The end of the group

    def close(self) -> None:
        """Release all OSTs and stop all timers, as the group ends."""
        for op in self.ops.values():
            self.node.stop(op)
            self.group.release_ost(op)
        self.ops.clear()
        self.cached.clear()


class LltOperations(GroupOperations):
    """This class holds the operations of a group on a low-latency tree. At most W = granted_osts of these operations
    are open at a time."""

    sat = False

    def __init__(self, group: GroupContext, node: NodeServices) -> None:
        super().__init__(group, node)
        self._newest: dict[int, int] = {}
        """Maps each child to its last seq."""

    def _note_progress(self, child: int, message: SharpMessage) -> None:
        if diff32(message.seq, self._newest.get(child, self.base)) > 0:
            self._newest[child] = message.seq
            self.advance()

    def _find(self, message: SharpMessage) -> OstEntry | None:
        return self.ops.get(message.seq)

    def _find_for_error(self, seq: int) -> OstEntry | None:
        if not 0 <= diff32(seq, self.base) < self.group.window:
            return None
        return self.ops.get(seq) or OstEntry(self, seq, 0)

    def _key(self, op: OstEntry) -> object:
        return op.seq

    def _target_rank(self, op: OstEntry) -> int:
        target = op.message.target
        return target.rank if target is not None and target.type == TargetType.SINGLE else EVERY_RANK

    def _classify_first(self, child: int, message: SharpMessage, status: Status) -> tuple[OpInput, Status]:
        """Apply rule 6 of sharp.md §2.8."""
        seq, window = message.seq, self.group.window
        self._make_room(seq)
        ahead = diff32(seq, self.base)
        if ahead < 0:
            return (OpInput.REQ_CACHED if seq in self.cached else OpInput.REQ_STALE), Status.SEQ_STALE
        if ahead >= window:
            before = self.ops.get(add32(seq, -window))
            early = before is not None and before.state is OpState.UP and self._by_multicast(before)
            return OpInput.REQ_EARLY if early else OpInput.REQ_AHEAD, Status.SEQ_AHEAD
        if status:
            return OpInput.REQ_BAD, status
        if not self.node.pool.allocate_ost():
            return OpInput.REQ_NO_OST, Status.OST_EXHAUSTED
        return OpInput.REQ, Status.OK

    def acknowledged(self, op: OstEntry, child: int) -> None:
        op.finished.add(child)
        if len(op.finished) >= len(self.group.members):
            self.advance()

    def evict(self, op: OstEntry, *_: object) -> None:
        """Move an operation to the cache and release its OST."""
        del self.ops[op.seq]
        self.group.release_ost(op)
        if op.result is not None:
            self.cached[op.seq] = op
        self.cached.pop(add32(op.seq, -self.group.window), None)

    def advance(self) -> None:
        while (op := self.ops.get(self.base)) is not None:
            if op.state is OpState.DONE and self._has_finished(op):
                self._finish_base()
            elif op.state is OpState.ERR and op.over:
                self.handle(op, OpInput.T_ERR)
                self.base = add32(self.base, 1)
            else:
                return

    def _is_answered(self, seq: int) -> bool:
        op = self.ops.get(seq)
        return op is not None and op.state is OpState.DONE

    def _finish_base(self) -> None:
        self.handle(self.ops[self.base], OpInput.FINISHED)
        self.base = add32(self.base, 1)

    def _has_finished(self, op: OstEntry) -> bool:
        """Tell whether every child has acknowledged the result, or has sent a request that implies it."""
        window, newest = self.group.window, self._newest
        return all(
            child in op.finished or diff32(newest.get(child, op.seq), op.seq) >= window for child in self.group.members
        )


def _is_second(op: OstEntry, message: SharpMessage) -> bool:
    """Tell whether a request of a BCAST has data although another one has data already."""
    return not message.flags & _NODATA and any(vector is not None for vector in op.operands.values())


def _code(message: SharpMessage) -> Status:
    """Return the code of an ERROR; CANCELLED for a code that is not known."""
    return status_or(SharpFault.unpack(message.body).code, Status.CANCELLED)
