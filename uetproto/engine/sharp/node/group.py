# SPDX-License-Identifier: GPL-2.0-only
"""A group at an aggregation node follows the state table `states.GROUP` (sharp.md §3.1).

The root of a group is the node that QuotaConfig names. If only one child of that node takes part, this child has all
ranks of the group. The node may then make the child the root (group trim), by a JOIN_RESP with is_root = 1. A node that
may not trim sends is_root = 0 to a single child, by a choice of this project; in sharp.md it sends is_root = 1 in this
case as well.
"""

from typing import Any

from uetproto.engine.contract import NEVER
from uetproto.engine.sharp.config import buffer_bytes
from uetproto.engine.sharp.management import NodeTree, Quota
from uetproto.engine.sharp.messages import JoinRequest, JoinResponse, SharpFault, SharpMessage, status_or
from uetproto.engine.sharp.node.contract import NodeServices
from uetproto.engine.sharp.node.lock import GroupLock
from uetproto.engine.sharp.node.operations import GroupOperations, LltOperations
from uetproto.engine.sharp.node.ost import OstEntry
from uetproto.engine.sharp.node.sat_operations import SatOperations
from uetproto.engine.sharp.node.states import GROUP, GroupInput, GroupState, OpInput
from uetproto.engine.sharp.state_tables import TableMachine
from uetproto.wire.headers.sharp import SharpOpcode, Status
from uetproto.wire.serial import diff32

_MGID_IB = 0xFF12A01BFE80 << 80
_MGID_IPV4 = 0xFFFF << 32 | 239 << 24


class AggregationGroup(TableMachine, table=GROUP):
    """An aggregation group is the part of a group on one tree at one node: its ranks, its grant, its operations and its
    lock."""

    state: GroupState

    def __init__(self, node: NodeServices, tree: NodeTree, quota: Quota | None, job_id: int, group_id: int) -> None:
        self.node = node
        self.tree = tree
        self.quota = quota
        self.tree_id, self.job_id, self.group_id = tree.tree_id, job_id, group_id
        self.state = GroupState.NONE
        self.deadline = NEVER
        self.ranks: dict[int, set[int]] = {}
        """Maps each participating child to the ranks below it."""
        self.members: tuple[int, ...] = ()
        """Lists the participating children in ascending order."""
        self.left: set[int] = set()
        self.dead: set[int] = set()
        self.size = 0
        self.want: JoinRequest | None = None
        """Holds, for each resource, the smallest amount that a JOIN_REQ asks for."""
        self.reserved = 0
        """Number of OSTs that are reserved in the pool and in the quota, in use or not."""
        self.is_root = tree.parent is None or (quota is not None and quota.is_root)
        self.own_idx = 0xFF
        self.depth = tree.depth
        self.granted = JoinResponse()
        self.code = Status.OK
        """Reason why the group FAILED or was given up; OK if neither happened."""
        self.refusal = Status.OK
        """Status to send if the last JOIN_REQ is refused."""
        self._seqs: dict[int, int] = {}
        """Maps each child to the seq of its last control request, which the response repeats."""
        self._joins: dict[int, int] = {}
        """Maps each child to the seq of its last JOIN_REQ before the group was complete."""
        self.operations: GroupOperations = (SatOperations if tree.mode else LltOperations)(self, node)
        self.lock = GroupLock(self, node)

    # What the operations and the lock use

    def note_seq(self, child: int, seq: int) -> None:
        """Store the seq of a child's last control request."""
        self._seqs[child] = seq

    @property
    def window(self) -> int:
        """Return the window W, the number of operations that may be open at a time."""
        return self.granted.granted_osts

    def conn_of(self, child: int) -> int:
        """Return the connection to a child."""
        return self.tree.children[child]

    def child_of_rank(self, rank: int) -> int:
        """Return the child whose subtree contains a rank; -1 if there is none."""
        return next((child for child, ranks in self.ranks.items() if rank in ranks), -1)

    def release_ost(self, op: OstEntry) -> None:
        """Give the OST of an operation back to the pool."""
        if op.ost:
            op.ost = False
            self.node.pool.release_ost()

    # What the group sends

    def _message(self, opcode: int, seq: int, **fields: Any) -> bytes:
        return SharpMessage(opcode, self.tree_id, self.job_id, self.group_id, seq, **fields).pack()

    def send_up(self, data: bytes) -> None:
        """Send a message to the parent, if there is one."""
        if self.tree.parent is not None:
            self.node.send(self.tree.parent, data)

    def send_all(self, data: bytes, *, parent: bool = True, but: int | None = None) -> None:
        """Send the same message to every child except `but`, and to the parent if `parent` is true and this node is not
        the root."""
        for child in self.members or self.ranks:
            if child != but and child not in self.dead and child not in self.left:
                self.node.send(self.conn_of(child), data)
        if parent and not self.is_root:
            self.send_up(data)

    def error(self, seq: int, code: int, children: frozenset[int], opcode: int) -> bytes:
        """Return the ERROR of an operation of this group (sharp.md §3.2)."""
        body = SharpFault(code, self.depth, opcode, self.node.an_id, children).pack()
        return self._message(SharpOpcode.ERROR, seq, status=code, body=body)

    def nack(self, child: int, message: SharpMessage, code: Status) -> None:
        """Send a NACK for a request of a child. By a choice of this project, the NACK carries the vec_off of the
        request as well."""
        body = SharpFault(code, self.depth, message.opcode, self.node.an_id, frozenset((child,))).pack()
        self.node.counters["nacks"] += 1
        self.node.ports[self.conn_of(child)].rnr_events += 1
        nack = self._message(
            SharpOpcode.NACK, message.seq, vec_off=message.vec_off, child_idx=child, status=code, body=body
        )
        self.node.send(self.conn_of(child), nack)

    def respond(self, child: int, opcode: int, status: int, body: bytes = b"") -> None:
        """Send a control response to a child."""
        response = self._message(opcode, self._seqs.get(child, 0), child_idx=child, status=status, body=body)
        self.node.send(self.conn_of(child), response)

    def ask_parent(self, opcode: int, body: bytes = b"", status: int = 0) -> None:
        """Send a control request to the parent, if there is one."""
        parent = self.tree.parent
        if parent is not None:
            child = 0xFF if opcode == SharpOpcode.GROUP_JOIN_REQ else self.own_idx
            seq = self.node.control_seq(parent)
            self.node.send(parent, self._message(opcode, seq, child_idx=child, status=status, body=body))

    # Limits

    def _max_user_data(self) -> int:
        """Return the bytes of user data that an OST of this job may hold."""
        config, quota = self.node.config, self.quota
        return min(config.max_user_data, quota.user_data if quota is not None and quota.user_data else 1024)

    @property
    def buffer_cost(self) -> int:
        """Return the number of buffer bytes of one OST (sharp.md §1.7). It is 0 for a group on a SAT, by a choice of
        this project."""
        if self.tree.mode:
            return 0
        quota, config = self.quota, self.node.config
        return buffer_bytes(
            config, self._max_user_data(), max(1, len(self.tree.children)),
            reproducible=quota is not None and quota.reproducible,
        )  # fmt: skip

    # Inputs

    def handle(self, event: GroupInput, child: int | None = None, message: SharpMessage | None = None) -> None:
        """Take the step of the state table for an input. A group that enters NONE is removed from the node, with
        everything that it holds."""
        if not self.step(event, child, message):
            self.node.discard()
        elif self.state is GroupState.NONE:
            self.node.forget(self)

    def join(self, child: int, message: SharpMessage) -> None:
        """Handle a GROUP_JOIN_REQ."""
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
        """Tell whether a JOIN_REQ for a READY group is for a new group with the same group_id.

        It is for a new group if its sender has left this group, was never a member, or has forgotten the group. A
        sender that has forgotten the group sends a newer seq than in the JOIN_REQ that made it a member. The request is
        refused until all children have left, as otherwise operations of the new group would get results of the old
        group. This is a choice of this project.
        """
        if self.state is not GroupState.READY:
            return False
        return child not in self.members or child in self.left or diff32(message.seq, self._joins[child]) > 0

    @property
    def _ranks_known(self) -> int:
        return sum(map(len, self.ranks.values()))

    def answered(self, message: SharpMessage) -> None:
        """Handle a GROUP_JOIN_RESP of the parent."""
        if message.status:
            self.code = status_or(message.status, Status.CANCELLED)
        self.handle(GroupInput.REJECTED if message.status else GroupInput.ACCEPTED, None, message)

    def leave(self, child: int, message: SharpMessage) -> None:
        """Handle a GROUP_LEAVE_REQ."""
        self._seqs[child] = message.seq
        if self.state is GroupState.JOINING:
            self.code = Status.CANCELLED
        gone = self.left | self.dead | {child}
        self.handle(GroupInput.LEAVE_LAST if gone >= self.ranks.keys() else GroupInput.LEAVE, child, message)

    def child_lost(self, child: int) -> None:
        """Handle the failure of the connection to a child.

        A FAILED group goes to LEAVING when every participating child has left or is down.
        """
        if child not in self.ranks or child in self.dead:
            return
        self.dead.add(child)
        self.code = self.code or Status.CHILD_DOWN
        self.handle(GroupInput.CHILD_LOST, child)
        if self.state is GroupState.FAILED and self.left | self.dead >= self.ranks.keys():
            self.handle(GroupInput.LEAVE_LAST, child)

    def parent_lost(self) -> None:
        """Handle the failure of the connection to the parent; a READY group that has its root here needs no parent."""
        if not (self.is_root and self.state is GroupState.READY):
            self.code = self.code or Status.PARENT_DOWN
            self.handle(GroupInput.PARENT_LOST)

    def fatal(self, code: Status) -> None:
        """Fail the group, because an operation failed with a status that ends the group."""
        if self.state is GroupState.READY:
            self.code = code
            self.handle(GroupInput.FATAL)

    def expired(self) -> None:
        """Handle the expiry of T_join, in JOINING or LEAVING. The timer in LEAVING is a choice of this project;
        sharp.md has none."""
        self.code = self.code or Status.TIMEOUT_NO_PROGRESS
        self.handle(GroupInput.T_JOIN)

    def request(self, child: int, message: SharpMessage, data: bytes) -> None:
        """Handle an AGG_REQ."""
        if child in self.left or child not in self.ranks:
            self.node.refuse(self.conn_of(child), message, Status.NOT_MEMBER)
        elif self.state is GroupState.READY:
            self.operations.request(child, message, data)
        else:
            self.handle(GroupInput.REQUEST, child, message)

    # Actions of the table

    def create(self, child: int, message: SharpMessage) -> None:
        """Create the context of the group and start T_join."""
        self.want = JoinRequest.unpack(message.body)
        self.size = self.want.group_size
        self.node.start(self, self.node.config.t_join)
        self.add(child, message)

    def add(self, child: int, message: SharpMessage) -> None:
        """Add the ranks of a child; unless this node is the root, forward a JOIN_REQ with the new ranks only."""
        request, want, most = JoinRequest.unpack(message.body), self.want, self._max_user_data()
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
        """As the root, grant the OSTs and user data that all members accept, and send JOIN_RESP OK to every child."""
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
        """Store the grant of the parent and forward it with the node's own depth and the child_idx of each child."""
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
        """Send JOIN_RESP OK to a child."""
        alone = self.depth > 1 and len(self.members) == 1
        body = self.granted._replace(
            member_count=self._ranks_known, child_idx=child, depth=self.depth,
            is_root=int(self.is_root and (not alone or self.node.config.group_trim)),
        ).pack()  # fmt: skip
        self.respond(child, SharpOpcode.GROUP_JOIN_RESP, Status.OK, body)

    def refuse_join(self, child: int, _: object) -> None:
        """Send JOIN_RESP with the reason of the refusal to a child."""
        code = self.code or self.refusal
        self.respond(child, SharpOpcode.GROUP_JOIN_RESP, code, JoinResponse(child_idx=child).pack())

    def _refuse_all(self, code: Status, but: int | None = None) -> None:
        self.code = code
        for child in self.ranks:
            if child != but and child not in self.dead:
                self.refuse_join(child, None)

    def relay_refusal(self, *_: object) -> None:
        """Forward the refusal of the parent to all children."""
        self._refuse_all(self.code)

    def give_up(self, child: int | None, message: SharpMessage | None) -> None:
        """Give up a group that will not become complete: send JOIN_RESP with the reason to the children, and LEAVE_REQ
        to the parent."""
        if message is not None and child is not None:
            self.respond(child, SharpOpcode.GROUP_LEAVE_RESP, Status.OK)
        self._refuse_all(self.code, child)
        if self._forwards():
            self.ask_parent(SharpOpcode.GROUP_LEAVE_REQ)

    def serve(self, child: int, message: SharpMessage) -> None:
        """Hand a lock request to the lock."""
        self.lock.request(child, message)

    def mark(self, child: int, _: object) -> None:
        """Mark a child as left, and cancel open operations; the child gets LEAVE_RESP when all children have left."""
        self.left.add(child)
        self.operations.end_all(OpInput.CANCEL, Status.CANCELLED)
        self.end_locks()

    def forward_leave(self, child: int, _: object) -> None:
        """Send LEAVE_REQ to the parent, as the last child has left; a root finishes the leave at once."""
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
        """Send LEAVE_RESP to the children that have left and are not down."""
        for child in sorted(self.left - self.dead):
            self.respond(child, SharpOpcode.GROUP_LEAVE_RESP, Status.OK)

    def fail_child(self, child: int, _: object) -> None:
        """Send ERROR CHILD_DOWN to children and parent, raise trap 0, and end the lock of the group."""
        self._fail_all(OpInput.CHILD_LOST, Status.CHILD_DOWN, frozenset((child,)))

    def fail_parent(self, *_: object) -> None:
        """Send ERROR PARENT_DOWN to the children, raise trap 0, and end the lock of the group."""
        self._fail_all(OpInput.PARENT_LOST, Status.PARENT_DOWN, frozenset())

    def _fail_all(self, event: OpInput, code: Status, children: frozenset[int]) -> None:
        self.code = code
        if not self.operations.end_all(event, code, children):
            seq = self.operations.base
            self.send_all(self.error(seq, code, children, 0))
            self.node.raise_trap(code, self, children, seq)
        self.end_locks()

    def fail(self, *_: object) -> None:
        """End the lock of the group; the operation that failed has sent the ERROR already."""
        self.end_locks()

    def end_locks(self) -> None:
        """End the lock that this group holds or waits for; a group on a SAT uses the lock of its paired LLT group."""
        lock = self.node.lock_of(self) if self.tree.mode else self.lock
        if lock is not None:
            lock.end()

    def refuse_request(self, child: int, message: SharpMessage) -> None:
        """Answer a request of a child with the stored code: an UNLOCK_REQ gets UNLOCK_RESP, and any other request gets
        ERROR."""
        code = self.code or Status.CANCELLED
        if message.opcode == SharpOpcode.UNLOCK_REQ:
            return self.respond(child, SharpOpcode.UNLOCK_RESP, code, message.body)
        self.node.send(self.conn_of(child), self.error(message.seq, code, frozenset(), message.opcode))
        return None

    def cancel(self, *_: object) -> None:
        """Send ERROR CANCELLED to the children, as management ends the group."""
        self.send_all(self.error(self.operations.base, Status.CANCELLED, frozenset(), 0), parent=False)

    def ignore(self, *_: object) -> None:
        """Do nothing, as the input has no effect in this state."""
