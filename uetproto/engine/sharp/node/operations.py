"""The operations of a group on a low-latency tree, by the table `sharp_states.OPERATION` (sharp.md §3.2).

W = granted_osts operations may be open, `base` is the lowest one that is not yet finished for all children. `sharp_sat`
does the same for chunks.
"""

from typing import TYPE_CHECKING

from uetproto.engine.sharp.messages import NOT_APPLICABLE, SharpMessage
from uetproto.engine.sharp.node.checks import check_request
from uetproto.engine.sharp.node.ost import SIGNED, OstEntry, signature_of
from uetproto.engine.sharp.node.refusals import Refusals
from uetproto.engine.sharp.node.results import pack_for, retransmitted
from uetproto.engine.sharp.node.states import OPERATION, OpInput, OpState
from uetproto.engine.sharp.numeric import fold
from uetproto.wire.headers.sharp import Coll, Flag, SharpOpcode, Status
from uetproto.wire.serial import add32, diff32

if TYPE_CHECKING:
    from uetproto.engine.sharp.node.group import AggregationGroup

_NODATA, _MCAST, _LE, _REPRO, _FINAL, _LOCK, _UNLOCK = (
    int(flag) for flag in (Flag.NODATA, Flag.MCAST, Flag.LE, Flag.REPRO, Flag.FINAL, Flag.LOCK, Flag.UNLOCK)
)


class GroupOperations(Refusals):
    """All of one group."""

    sat = False

    def __init__(self, group: "AggregationGroup") -> None:
        self.group = group
        self.node = group.node
        self.base = 0
        self.ops: dict[object, OstEntry] = {}
        self.cached: dict[int, OstEntry] = {}
        """The last W that were finished."""
        self._newest: dict[int, int] = {}
        """The last seq of each child."""

    # What happens

    def request(self, child: int, message: SharpMessage, data: bytes) -> None:
        """AGG_REQ of a child of the group."""
        status = check_request(
            message, user_data=self.group.user_data, prod=self.node.config.prod, sat=self.sat, locked=self._locked()
        )
        self._note(child, message)
        op = self._find(message)
        if op is None:
            op = OstEntry(self, message.seq, message.vec_off)
            event, status = self._place(child, message, status)
        elif op.state is not OpState.COLLECT:
            event = OpInput.REQ_AGAIN
        elif status or (status := self._unfit(child, message)):
            event = OpInput.REQ_BAD
        elif child in op.operands:
            known = op.raw[child]
            same = data == known or retransmitted(data) == retransmitted(known)
            event, status = (OpInput.REQ_AGAIN, status) if same else (OpInput.REQ_CHANGED, Status.DATA_CORRUPT)
        elif signature_of(message) != op.signature or (message.coll == Coll.BCAST and _second(op, message)):
            event, status = OpInput.REQ_OTHER, self._difference(op, message)
        else:
            event = OpInput.REQ
        if status:
            op.code, op.faulty = status, frozenset((child,))
        self.handle(op, event, child, message, data)

    def from_parent(self, message: SharpMessage, data: bytes) -> None:
        """AGG_RESULT or NACK."""
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
            return self.node.discard()  # SEQ_STALE: T_result ends it
        last = op.refused >= self.node.config.rnr_retry
        if last and op.state is OpState.UP:
            op.code = Status(message.status)
        return self.handle(op, OpInput.NACK_LAST if last else OpInput.NACK, None, message, data)

    def error(self, child: int | None, message: SharpMessage, data: bytes) -> None:
        """ERROR from a child; None: from the parent."""
        op = self._for_error(message.seq)
        if op is None:
            return self.node.discard()
        event = OpInput.ERROR_ABOVE if child is None else OpInput.ERROR_BELOW
        return self.handle(op, event, child, message, data)

    def end_all(self, event: OpInput, code: Status, children: frozenset[int] = frozenset()) -> int:
        """Every open operation fails; how many errors were raised, one for each seq."""
        seqs = set()
        for op in list(self.ops.values()):
            if op.state in (OpState.COLLECT, OpState.UP):
                op.code, op.faulty = code, children
                self.handle(op, event)
                seqs.add(op.seq)
        return len(seqs)

    def expired(self, op: OstEntry) -> None:
        """Its timer is due."""
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

    def acknowledged(self, op: OstEntry, child: int) -> None:
        """The result has arrived at a child."""
        op.finished.add(child)
        if len(op.finished) >= len(self.group.members):
            self.advance()

    def handle(
        self,
        op: OstEntry,
        event: OpInput,
        child: int | None = None,
        message: SharpMessage | None = None,
        data: bytes = b"",
    ) -> None:
        """One step of the table."""
        row = OPERATION.get((op.state, event))
        if row is None:
            return self.node.discard()
        action, op.state = row
        getattr(self, action)(op, child, message, data)
        return None

    # Where a request belongs: chunks differ

    def _note(self, child: int, message: SharpMessage) -> None:
        """How far a child is says what it has."""
        if diff32(message.seq, self._newest.get(child, self.base)) > 0:
            self._newest[child] = message.seq
            self.advance()

    def _find(self, message: SharpMessage) -> OstEntry | None:
        return self.ops.get(message.seq)

    def _locked(self) -> bool:
        return False

    def _unfit(self, child: int, message: SharpMessage) -> Status:
        """What is wrong with a request beside the others of its operation: nothing on an LLT."""
        return Status.OK

    def _difference(self, op: OstEntry, message: SharpMessage) -> Status:
        """What a signature is that differs from the latched one."""
        return Status.MISMATCH

    def _place(self, child: int, message: SharpMessage, status: Status) -> tuple[OpInput, Status]:
        """A request that begins an operation, or is out of the window (§2.8 rule 6)."""
        seq, window = message.seq, self.group.window
        self._make_room(seq)
        ahead = diff32(seq, self.base)
        if ahead < 0:
            return (OpInput.REQ_CACHED if seq in self.cached else OpInput.REQ_STALE), Status.OK
        if ahead >= window:
            before = self.ops.get(add32(seq, -window))
            early = before is not None and before.state is OpState.UP and self._by_multicast(before)
            return OpInput.REQ_EARLY if early else OpInput.REQ_AHEAD, Status.OK
        if status:
            return OpInput.REQ_BAD, status
        if not self.group.take_ost():
            return OpInput.REQ_NO_OST, Status.OK
        return OpInput.REQ, Status.OK

    def _for_error(self, seq: int) -> OstEntry | None:
        """The operation that an ERROR means: one that nothing is known of, if the seq is in the window."""
        if not 0 <= diff32(seq, self.base) < self.group.window:
            return None
        return self.ops.get(seq) or OstEntry(self, seq, 0)

    # Actions of the table

    def allocate(self, op: OstEntry, child: int, message: SharpMessage, data: bytes) -> None:
        """Take an OST, latch the signature, start T_ost."""
        op.ost = True
        op.head = message
        op.signature = signature_of(message)
        self.ops[self._key(op)] = op
        self.node.start(op, self.node.config.t_ost)
        self.store(op, child, message, data)

    def store(self, op: OstEntry, child: int, message: SharpMessage, data: bytes) -> None:
        """Keep the operand of this child; the last one ends the collecting."""
        flags = message.flags
        op.operands[child] = None if flags & _NODATA else message.body
        op.raw[child] = data
        if message.udh:
            op.cookies[child] = message.udh
        op.merged[0] &= flags
        op.merged[1] |= flags & _UNLOCK
        if len(op.operands) == len(self.group.members):
            self.handle(op, OpInput.ALL_ROOT if self.group.is_root else OpInput.ALL_UP)

    def _reduce(self, op: OstEntry) -> bytes | None:
        """In ascending child order, or in that of arrival (§3.5); None: all are NODATA."""
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
        """Reduce, send one request to the parent with the own child_idx, start T_result."""
        vector = self._reduce(op)
        flags = op.message.flags & (SIGNED | _LOCK) | op.merged[0] & _MCAST | op.merged[1]
        op.up = pack_for(
            op.message, SharpOpcode.AGG_REQ, vector, self.group.own_idx, flags, target=op.message.target
        )  # fmt: skip
        self.group.send_up(op.up)
        self.node.start(op, self.node.config.t_result)

    def send_again(self, op: OstEntry, *_: object) -> None:
        """The same request with RETX."""
        op.tries += not op.rnr
        op.rnr = False
        self.node.counters["retries"] += 1
        self.group.send_up(retransmitted(op.up))
        self.node.start(op, self.node.config.t_result)

    def wait_rnr(self, op: OstEntry, *_: object) -> None:
        """T_rnr, then send again."""
        op.refused += 1
        op.rnr = True
        self.node.start(op, self.node.config.t_rnr)

    def distribute(self, op: OstEntry, *_: object) -> None:
        """Reduce at the root: the final result (§4.3)."""
        vector = self._reduce(op)
        head = op.message
        op.result = SharpMessage(
            SharpOpcode.AGG_RESULT, head.tree_id, head.job_id, head.group_id, head.seq, head.vec_off, head.count,
            head.op, head.dtype, head.tag_dtype, head.coll, NOT_APPLICABLE, Status.OK,
            head.flags & (SIGNED | _LOCK) | op.merged[1] | _FINAL | (_NODATA if vector is None else 0),
            body=vector or b"",
        )  # fmt: skip
        self.node.stop(op)
        self._spread(op)

    def forward_result(self, op: OstEntry, _: object, message: SharpMessage, data: bytes) -> None:
        """The result of the parent goes on, payload as it is."""
        self.node.stop(op)
        op.up = op.up if self._by_multicast(op) else b""
        op.result = message
        self._spread(op)
        early, op.early = op.early, {}
        for child, request in early.items():
            self.request(child, *request)

    def hold_back(self, op: OstEntry, child: int, message: SharpMessage, data: bytes) -> None:
        """Until this node has the result that the child has (**choice**: the page would have it refused)."""
        self.ops[add32(op.seq, -self.group.window)].early[child] = message, data

    def _spread(self, op: OstEntry) -> None:
        """The result goes out: at once on an LLT; chunks wait for those before them."""
        self._send_results(op)

    def drop_duplicate(self, *_: object) -> None:
        """Count it: the result will answer it."""
        self.node.counters["dup"] += 1

    def evict(self, op: OstEntry, *_: object) -> None:
        """Forget it, but for the cache, and give its OST back."""
        del self.ops[op.seq]
        self.group.give_ost(op)
        if op.result is not None:
            self.cached[op.seq] = op
        self.cached.pop(add32(op.seq, -self.group.window), None)

    # The window

    def advance(self) -> None:
        """`base` goes past everything that is finished for all children."""
        while (op := self.ops.get(self.base)) is not None:
            if op.state is OpState.DONE and self._has_finished(op):
                self._finish_base()
            elif op.state is OpState.ERR and op.over:
                self.handle(op, OpInput.T_ERR)
                self.base = add32(self.base, 1)
            else:
                return

    def _make_room(self, seq: int) -> None:
        """A child is a window further: it has the result of `seq` - W, and what all of them were sent is as good as
        acknowledged, on connections that lose nothing (**choice**: else a child that is quicker than the ACK of its
        sibling is refused and waits T_rnr). The cache has it for a window more."""
        while diff32(seq, self.base) >= self.group.window and self._is_answered(self.base):
            self._finish_base()

    def _is_answered(self, seq: int) -> bool:
        """Its result has left, to every child."""
        op = self.ops.get(seq)
        return op is not None and op.state is OpState.DONE

    def _finish_base(self) -> None:
        self.handle(self.ops[self.base], OpInput.FINISHED)
        self.base = add32(self.base, 1)

    def _has_finished(self, op: OstEntry) -> bool:
        window, newest = self.group.window, self._newest
        return all(
            child in op.finished or diff32(newest.get(child, op.seq), op.seq) >= window for child in self.group.members
        )

    def close(self) -> None:
        """The group is gone: nothing stays, no timer fires."""
        for op in self.ops.values():
            self.node.stop(op)
            self.group.give_ost(op)
        self.ops.clear()
        self.cached.clear()


def _second(op: OstEntry, message: SharpMessage) -> bool:
    """BCAST: another one has data already."""
    return not message.flags & _NODATA and any(vector is not None for vector in op.operands.values())
