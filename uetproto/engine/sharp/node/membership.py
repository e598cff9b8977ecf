"""What a node knows of one group, and how it speaks for it: to a child, to all, to the parent (sharp.md §2.5, §3.1)."""

from typing import TYPE_CHECKING

from uetproto.engine.contract import NEVER
from uetproto.engine.sharp.config import buffer_bytes
from uetproto.engine.sharp.messages import JoinRequest, JoinResponse, SharpFault, SharpMessage
from uetproto.engine.sharp.node.ost import OstEntry
from uetproto.engine.sharp.node.states import GroupState
from uetproto.wire.headers.sharp import SharpOpcode, Status

if TYPE_CHECKING:
    from uetproto.engine.sharp.node.aggregation_node import SharpNode
    from uetproto.engine.sharp.node.lock import GroupLock
    from uetproto.engine.sharp.node.operations import GroupOperations
    from uetproto.engine.sharp.node.pool import NodeTree, Quota


class Membership:
    """A (tree, group): `sharp_group.Group` is what happens to it."""

    operations: "GroupOperations"
    lock: "GroupLock"

    def __init__(self, node: "SharpNode", tree: "NodeTree", quota: "Quota | None", job_id: int, group_id: int) -> None:
        self.node = node
        self.tree = tree
        self.quota = quota
        self.tree_id, self.job_id, self.group_id = tree.tree_id, job_id, group_id
        self.state = GroupState.NONE
        self.deadline = NEVER
        self.ranks: dict[int, set[int]] = {}
        """Of each child that takes part."""
        self.members: tuple[int, ...] = ()
        """Those children, ascending."""
        self.left: set[int] = set()
        self.dead: set[int] = set()
        self.size = 0
        self.want: JoinRequest | None = None
        """What all requests together ask for: the least of each."""
        self.reserved = 0
        """OSTs of the pool and of the quota that are kept for it, whether in use or not."""
        self.is_root = tree.parent is None or (quota is not None and quota.is_root)
        self.own_idx = 0xFF
        self.depth = tree.depth
        self.granted = JoinResponse()
        self.code = Status.OK
        """Why it FAILED, or was given up."""
        self.refusal = Status.OK
        """What is wrong with the last JOIN_REQ."""
        self._seqs: dict[int, int] = {}
        """The control counter of the last request of each child: its answer has the same."""
        self._joins: dict[int, int] = {}
        """That of its last JOIN_REQ before the group was complete."""

    def note_seq(self, child: int, seq: int) -> None:
        self._seqs[child] = seq

    # What the operations ask

    @property
    def window(self) -> int:
        """W."""
        return self.granted.granted_osts

    @property
    def user_data(self) -> int:
        return self.granted.user_data_per_ost

    @property
    def mgid(self) -> int:
        return self.granted.mgid

    def conn_of(self, child: int) -> int:
        return self.tree.children[child]

    def child_of_rank(self, rank: int) -> int:
        """The child with this rank below it; -1: none."""
        return next((child for child, ranks in self.ranks.items() if rank in ranks), -1)

    def take_ost(self) -> bool:
        """An OST for one more operation. Without the lazy policy they came with the group, or with its lock."""
        return self.node.pool.take_ost()

    def give_ost(self, op: OstEntry) -> None:
        """Back to the pool."""
        if op.ost:
            op.ost = False
            self.node.pool.give_ost()

    # What it sends

    def send_up(self, data: bytes) -> None:
        if self.tree.parent is not None:
            self.node.send(self.tree.parent, data)

    def tell(self, data: bytes, *, parent: bool = True, but: int | None = None) -> None:
        """The same message to every child, and to the parent."""
        for child in self.members or self.ranks:
            if child != but and child not in self.dead and child not in self.left:
                self.node.send(self.conn_of(child), data)
        if parent and not self.is_root:
            self.send_up(data)

    def error(self, seq: int, code: int, children: frozenset[int] = frozenset(), opcode: int = 0x10) -> bytes:
        """ERROR of an operation of this group (§3.2)."""
        body = SharpFault(code, self.depth, opcode, self.node.an_id, children).pack()
        return SharpMessage(
            SharpOpcode.ERROR, self.tree_id, self.job_id, self.group_id, seq, status=code, body=body
        ).pack()  # fmt: skip

    def nack(self, child: int, message: SharpMessage, code: Status) -> None:
        """NACK: nothing was consumed; it names the chunk too (**choice**)."""
        body = SharpFault(code, self.depth, message.opcode, self.node.an_id, frozenset((child,))).pack()
        self.node.counters["nacks"] += 1
        self.node.ports[self.conn_of(child)].rnr_events += 1
        self.node.send(self.conn_of(child), SharpMessage(
            SharpOpcode.NACK, self.tree_id, self.job_id, self.group_id, message.seq, message.vec_off,
            child_idx=child, status=code, body=body,
        ).pack())  # fmt: skip

    def answer(self, child: int, opcode: int, status: int, body: bytes = b"") -> None:
        """A control response to a child."""
        self.node.send(self.conn_of(child), SharpMessage(
            opcode, self.tree_id, self.job_id, self.group_id, self._seqs.get(child, 0), child_idx=child, status=status,
            body=body,
        ).pack())  # fmt: skip

    def ask_parent(self, opcode: int, body: bytes = b"", status: int = 0) -> None:
        """A control request to the parent."""
        parent = self.tree.parent
        if parent is not None:
            self.node.send(parent, SharpMessage(
                opcode, self.tree_id, self.job_id, self.group_id, self.node.control_seq(parent),
                child_idx=0xFF if opcode == SharpOpcode.GROUP_JOIN_REQ else self.own_idx, status=status, body=body,
            ).pack())  # fmt: skip

    def _most_data(self) -> int:
        """User data that an OST of this job may hold."""
        config, quota = self.node.config, self.quota
        return min(config.max_user_data, quota.user_data if quota is not None and quota.user_data else 1024)

    @property
    def buffer_cost(self) -> int:
        """Bytes for one OST (§1.7); what streams needs none of them (**choice**)."""
        if self.tree.mode:
            return 0
        quota, config = self.quota, self.node.config
        return buffer_bytes(
            config, self._most_data(), max(1, len(self.tree.children)),
            reproducible=quota is not None and quota.reproducible,
        )  # fmt: skip
