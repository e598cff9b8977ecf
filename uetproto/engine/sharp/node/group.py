"""One group at an aggregation node: who takes part, by the table `sharp_states.GROUP` (sharp.md §3.1).

Root is the node that QuotaConfig says, or the only participating child that it hands this to (group trim): then
JOIN_RESP has is_root = 1 and every rank of the group is below that child. A root that keeps a single child to itself
answers is_root = 0 (**choice**: the page has is_root = 1 also where nothing is handed on).
"""

from typing import TYPE_CHECKING

from uetproto.engine.sharp.messages import JoinRequest, JoinResponse, SharpMessage
from uetproto.engine.sharp.node.lock import GroupLock
from uetproto.engine.sharp.node.membership import Membership
from uetproto.engine.sharp.node.operations import GroupOperations
from uetproto.engine.sharp.node.pool import NodeTree, Quota
from uetproto.engine.sharp.node.sat import SatOperations
from uetproto.engine.sharp.node.states import GROUP, GroupInput, GroupState, OpInput
from uetproto.wire.headers.sharp import SharpOpcode, Status
from uetproto.wire.serial import diff32

if TYPE_CHECKING:
    from uetproto.engine.sharp.node.aggregation_node import SharpNode

_MGID_IB = 0xFF12A01BFE80 << 80
_MGID_IPV4 = 0xFFFF << 32 | 239 << 24


class AggregationGroup(Membership):
    """What a node knows of a (tree, group), and what becomes of it."""

    def __init__(self, node: "SharpNode", tree: NodeTree, quota: Quota | None, job_id: int, group_id: int) -> None:
        super().__init__(node, tree, quota, job_id, group_id)
        self.operations = SatOperations(self) if tree.mode else GroupOperations(self)
        self.lock = GroupLock(self)

    # What happens

    def handle(self, event: GroupInput, child: int | None = None, message: SharpMessage | None = None) -> None:
        """One step of the table."""
        row = GROUP.get((self.state, event))
        if row is None:
            return self.node.discard()
        action, self.state = row
        getattr(self, action)(child, message)
        if self.state is GroupState.NONE:
            self.node.forget(self)
        return None

    def join(self, child: int, message: SharpMessage) -> None:
        """GROUP_JOIN_REQ."""
        request = JoinRequest.unpack(message.body)
        self._seqs[child] = message.seq
        if self.state in (GroupState.NONE, GroupState.JOINING):
            self._joins[child] = message.seq
        ranks, known = set(request.ranks), self.ranks.get(child, set())
        others = set().union(*(theirs for other, theirs in self.ranks.items() if other != child))
        if self.state is GroupState.NONE:
            self.refusal = self.node.pool.admit(self, request)
            event = GroupInput.JOIN_REFUSED if self.refusal else GroupInput.JOIN
        elif (
            message.job_id != self.job_id or request.group_size != self.size or ranks & others
            or len(ranks | known | others) > self.size
        ):  # fmt: skip
            self.refusal, event = Status.MISMATCH, GroupInput.JOIN_WRONG
        else:
            repeats = ranks <= known and not self._begins_anew(child, message)
            self.refusal, event = Status.MISMATCH, GroupInput.JOIN_KNOWN if repeats else GroupInput.JOIN
        self.handle(event, child, message)
        if self.state is GroupState.JOINING and self.is_root and self._ranks_known == self.size:
            self.handle(GroupInput.COMPLETE)

    def _begins_anew(self, child: int, message: SharpMessage) -> bool:
        """A child joins a group that is complete, and means another one: it has left this one, or forgotten it, so that
        its control counter is beyond that of the JOIN_REQ which made it a member. Its operations would meet results of
        its former life (**choice**: refused, until all have left)."""
        if self.state is not GroupState.READY:
            return False
        return child not in self.members or child in self.left or diff32(message.seq, self._joins[child]) > 0

    @property
    def _ranks_known(self) -> int:
        return sum(map(len, self.ranks.values()))

    def answered(self, message: SharpMessage) -> None:
        """GROUP_JOIN_RESP of the parent."""
        if message.status:
            self.code = _status(message.status)
        self.handle(GroupInput.REJECTED if message.status else GroupInput.ACCEPTED, None, message)

    def leave(self, child: int, message: SharpMessage) -> None:
        """GROUP_LEAVE_REQ."""
        self._seqs[child] = message.seq
        if self.state is GroupState.JOINING:
            self.code = Status.CANCELLED
        gone = self.left | self.dead | {child}
        self.handle(GroupInput.LEAVE_LAST if gone >= self.ranks.keys() else GroupInput.LEAVE, child, message)

    def child_lost(self, child: int) -> None:
        """Its connection is in error. When nobody is left who could leave, the group does."""
        if child not in self.ranks or child in self.dead:
            return
        self.dead.add(child)
        self.code = self.code or Status.CHILD_DOWN
        self.handle(GroupInput.CHILD_LOST, child)
        if self.state is GroupState.FAILED and self.left | self.dead >= self.ranks.keys():
            self.handle(GroupInput.LEAVE_LAST, child)

    def parent_lost(self) -> None:
        """The connection to the parent is in error; a root that a parent made needs none."""
        if not (self.is_root and self.state is GroupState.READY):
            self.code = self.code or Status.PARENT_DOWN
            self.handle(GroupInput.PARENT_LOST)

    def fatal(self, code: Status) -> None:
        """An operation ended with a code that ends the group."""
        if self.state is GroupState.READY:
            self.code = code
            self.handle(GroupInput.FATAL)

    def expired(self) -> None:
        """T_join, also of leaving (**choice**: the page gives leaving no time)."""
        self.code = self.code or Status.TIMEOUT_NO_PROGRESS
        self.handle(GroupInput.T_JOIN)

    def request(self, child: int, message: SharpMessage, data: bytes) -> None:
        """AGG_REQ."""
        if child in self.left or child not in self.ranks:
            self.refuse_stranger(child, message)
        elif self.state is GroupState.READY:
            self.operations.request(child, message, data)
        else:
            self.handle(GroupInput.REQUEST, child, message)

    # Actions of the table

    def create(self, child: int, message: SharpMessage) -> None:
        """Create the context, keep OSTs for it, start T_join."""
        self.want = JoinRequest.unpack(message.body)
        self.size = self.want.group_size
        self.node.start(self, self.node.config.t_join)
        self.add(child, message)

    def add(self, child: int, message: SharpMessage) -> None:
        """Child → ranks; if not root, forward a JOIN_REQ with the new ranks only."""
        request, want, most = JoinRequest.unpack(message.body), self.want, self._most_data()
        assert want is not None
        new = tuple(rank for rank in request.ranks if rank not in self.ranks.get(child, ()))
        self.ranks.setdefault(child, set()).update(new)
        self.want = want = want._replace(
            want_osts=min(want.want_osts or self.reserved, request.want_osts or self.reserved, self.reserved),
            user_data_per_ost=min(want.user_data_per_ost or most, request.user_data_per_ost or most, most),
            features=want.features & request.features,
        )
        if not self.is_root:
            body = want._replace(qpn=self.tree.parent or 0, ranks=new).pack()
            self.ask_parent(SharpOpcode.GROUP_JOIN_REQ, body)

    def grant(self, *_: object) -> None:
        """Root: min(want_osts, quota), JOIN_RESP OK to every child."""
        want = self.want
        assert want is not None
        mgid = mlid = qkey = 0
        config = self.node.config
        if config.multicasts(want.user_data_per_ost) and not self.tree.mode:
            base, part = (_MGID_IB, 0xFFFFFFFF) if config.mgid == "ib" else (_MGID_IPV4, 0xFFFFFF)
            mgid, mlid, qkey = base | self.group_id & part, self.node.next_mlid(), config.qkey
        self.granted = JoinResponse(
            0, self.size, want.want_osts, want.user_data_per_ost, want.features, mgid=mgid, mlid=mlid, qkey=qkey
        )
        self._ready()

    def relay_grant(self, _: object, message: SharpMessage) -> None:
        """Store what is granted, relay it with own depth and child_idx."""
        self.granted = granted = JoinResponse.unpack(message.body)
        self.own_idx = granted.child_idx
        self.is_root = bool(granted.is_root) and self._ranks_known == self.size
        self._ready()

    def _ready(self) -> None:
        self.node.stop(self)
        self.members = tuple(sorted(self.ranks))
        self.node.pool.reserve(self, self.granted.granted_osts)
        trims = self.is_root and len(self.members) == 1 and self.depth > 1
        if trims and self.node.config.group_trim:
            self.node.counters["trimmed"] += 1
        for child in self.members:
            self.repeat_grant(child)
        self.node.watch()

    def repeat_grant(self, child: int, _: object = None) -> None:
        """JOIN_RESP OK."""
        alone = self.depth > 1 and len(self.members) == 1
        body = self.granted._replace(
            member_count=self._ranks_known, child_idx=child, depth=self.depth,
            is_root=int(self.is_root and (not alone or self.node.config.group_trim)),
        ).pack()  # fmt: skip
        self.answer(child, SharpOpcode.GROUP_JOIN_RESP, Status.OK, body)

    def refuse_join(self, child: int, _: object) -> None:
        """JOIN_RESP with what is wrong, to this child."""
        self.answer(child, SharpOpcode.GROUP_JOIN_RESP, self.code or self.refusal, JoinResponse(child_idx=child).pack())

    def _refuse_all(self, code: Status, but: int | None = None) -> None:
        self.code = code
        for child in self.ranks:
            if child != but and child not in self.dead:
                self.refuse_join(child, None)

    def relay_refusal(self, *_: object) -> None:
        """The error of the parent goes down."""
        self._refuse_all(self.code)

    def give_up(self, child: int | None, message: SharpMessage | None) -> None:
        """JOIN_RESP with the reason down, LEAVE up: T_join, an end of a connection, or a child that leaves."""
        if message is not None and child is not None:
            self.answer(child, SharpOpcode.GROUP_LEAVE_RESP, Status.OK)
        self._refuse_all(self.code, child)
        if self._forwards():
            self.ask_parent(SharpOpcode.GROUP_LEAVE_REQ)

    def serve(self, child: int, message: SharpMessage) -> None:
        """The operations, or the lock, take it."""
        self.lock.request(child, message)

    def mark(self, child: int, _: object) -> None:
        """It has left: what is open fails, the child is answered with all others."""
        self.left.add(child)
        self.operations.end_all(OpInput.CANCEL, Status.CANCELLED)
        self.end_locks()

    def forward_leave(self, child: int, _: object) -> None:
        """The last one: LEAVE up; the root answers."""
        self.left.add(child)
        self.operations.end_all(OpInput.CANCEL, Status.CANCELLED)
        self.end_locks()
        self.node.start(self, self.node.config.t_join)
        if self._forwards():
            self.ask_parent(SharpOpcode.GROUP_LEAVE_REQ)
        else:
            self.handle(GroupInput.LEFT)

    def _forwards(self) -> bool:
        quota = self.quota
        return self.tree.parent is not None and self.tree.parent not in self.node.dead and not (quota and quota.is_root)

    def finish_leave(self, *_: object) -> None:
        """LEAVE_RESP to the children that left; everything is free."""
        for child in sorted(self.left - self.dead):
            self.answer(child, SharpOpcode.GROUP_LEAVE_RESP, Status.OK)

    def fail_child(self, child: int, _: object) -> None:
        """ERROR CHILD_DOWN to children and parent, trap 0, release the lock."""
        self._fail_all(OpInput.CHILD_LOST, Status.CHILD_DOWN, frozenset((child,)))

    def lose_another(self, *_: object) -> None:
        """It need not leave any more."""

    def fail_parent(self, *_: object) -> None:
        """ERROR PARENT_DOWN to the children, trap 0, release the lock."""
        self._fail_all(OpInput.PARENT_LOST, Status.PARENT_DOWN, frozenset())

    def lose_parent(self, *_: object) -> None:
        """Nothing more goes up."""

    def _fail_all(self, event: OpInput, code: Status, children: frozenset[int]) -> None:
        self.code = code
        if not self.operations.end_all(event, code, children):
            seq = self.operations.base
            self.tell(self.error(seq, code, children, 0))
            self.node.raise_trap(code, self, children, seq)
        self.end_locks()

    def fail(self, *_: object) -> None:
        """Release the lock; the ERROR has left already."""
        self.end_locks()

    def end_locks(self) -> None:
        """The locks that this group holds or waits for, and those of the same group on its paired tree."""
        self.node.end_locks(self)

    def refuse_stranger(self, child: int, message: SharpMessage) -> None:
        """A child that is not in the group, or has left it: ERROR, or the response of a control request."""
        self.node.refuse(self.conn_of(child), message, Status.NOT_MEMBER)

    def refuse_request(self, child: int, message: SharpMessage) -> None:
        """ERROR with the stored code."""
        code = self.code or Status.CANCELLED
        if message.opcode == SharpOpcode.UNLOCK_REQ:
            return self.answer(child, SharpOpcode.UNLOCK_RESP, code, message.body)
        self.node.send(self.conn_of(child), self.error(message.seq, code, frozenset(), message.opcode))
        return None

    def cancel(self, *_: object) -> None:
        """ERROR CANCELLED to the children, free everything."""
        self.tell(self.error(self.operations.base, Status.CANCELLED, frozenset(), 0), parent=False)

    def ignore(self, *_: object) -> None:
        """Nothing."""


def _status(code: int) -> Status:
    return Status(code) if code in Status.__members__.values() else Status.CANCELLED
