"""The aggregation node: whole messages in and out, by connection (sharp.md §3).

It finds tree, job, group and child of a message in the order of §2.8, and hands it on: to the group (`sharp_group`),
its operations (`sharp_llt`, `sharp_sat`) or its lock (`sharp_lock`). `sharp_agent` speaks the MADs of management.
"""

from collections.abc import Mapping
from heapq import heappop
from typing import Any

from uetproto.engine.contract import NEVER, Rng
from uetproto.engine.sharp.config import MAX_SAT_ID, SharpConfig
from uetproto.engine.sharp.contract import OutgoingMessage
from uetproto.engine.sharp.messages import HEADER, HEADER_SIZE, SharpFault, SharpMessage, parse
from uetproto.engine.sharp.node.group import AggregationGroup
from uetproto.engine.sharp.node.heartbeats import HeartbeatMonitor
from uetproto.engine.sharp.node.pool import NodeTree, Quota, Used
from uetproto.engine.sharp.node.services import Services, TrapRaised
from uetproto.engine.sharp.node.states import GroupInput
from uetproto.errors import LocalError
from uetproto.wire.headers.sharp import SharpOpcode, Status, Trap

_O = SharpOpcode
_HEARTBEATS = (_O.HEARTBEAT, _O.HEARTBEAT_RESP)
_RESPONSE = 0x80
_ANSWERED = frozenset({_O.GROUP_JOIN_REQ, _O.GROUP_LEAVE_REQ, _O.LOCK_REQ, _O.UNLOCK_REQ})
"""Control requests: their response says what is wrong. AGG_REQ gets ERROR."""
_REQUESTS = _ANSWERED | {_O.AGG_REQ}
_BODY_OF_REFUSED_JOIN = bytes(12) + b"\xff" + bytes(27)


class SharpNode(Services):
    """One aggregation node, an `Element`."""

    def __init__(self, an_id: int, config: SharpConfig, rng: Rng | None = None) -> None:
        super().__init__(an_id, config, rng)
        self.heartbeats = HeartbeatMonitor(self)

    # Management (§2.9)

    def set_tree(
        self, tree_id: int, *, mode: int, llt_tree_id: int, parent: int | None, children: Mapping[int, int],
        depth: int = 1,
    ) -> None:  # fmt: skip
        """TreeConfig SET. `depth`: levels up to here, 1 is a leaf (**choice**: an aggregation node is told)."""
        limit = self.config.children
        if not 0 <= tree_id <= MAX_SAT_ID:
            raise LocalError("tree_id", f"{tree_id} is not legal", f"0 … {MAX_SAT_ID}")
        if tree_id not in self.trees and len(self.trees) >= self.config.tree_table_size:
            raise LocalError("tree_id", f"no room for tree {tree_id}", f"{self.config.tree_table_size} trees at a time")
        if len(children) > limit or not all(0 <= child < limit for child in children):
            raise LocalError("children", f"{sorted(children)} is not legal", f"child_idx 0 … {limit - 1}")
        if len({*children.values(), parent}) <= len(children):
            raise LocalError("children", "a connection is used twice", "one for each child and the parent")
        if tree_id in self.trees:
            self.cleanup(tree=tree_id)
        self.trees[tree_id] = NodeTree(tree_id, mode, llt_tree_id, parent, dict(children), depth)
        self.ports.clear()
        self.dead.difference_update(children.values(), () if parent is None else (parent,))

    def update_tree(self, tree_id: int, children: Mapping[int, int]) -> None:
        """TreeConfig UPDATE: these children come, or go if their connection is 0, and with them their groups."""
        tree = self.trees[tree_id]
        gone = {index for index, conn in children.items() if not conn}
        for group in list(self.groups.values()):
            if group.tree is tree and not gone.isdisjoint(group.ranks):
                group.handle(GroupInput.CLEANUP)
        tree.children = {index: conn for index, conn in {**tree.children, **children}.items() if conn}
        tree.child_of = {conn: index for index, conn in tree.children.items()}
        self.ports.clear()

    def remove_tree(self, tree_id: int) -> None:
        """TreeConfig REMOVE: with everything that is on it."""
        self.cleanup(tree=tree_id)
        self.trees.pop(tree_id, None)
        self.ports.clear()
        for key in [key for key in self.quotas if key[1] == tree_id]:
            del self.quotas[key]

    def disable_tree(self, tree_id: int) -> None:
        """TreeConfig DISABLE: what comes is refused."""
        if tree_id in self.trees:
            self.trees[tree_id].enabled = False

    def set_quota(self, quota: Quota) -> None:
        """QuotaConfig SET: the job is active here from now on."""
        if quota.tree_id not in self.trees:
            raise LocalError("tree_id", f"{quota.tree_id} is not configured", sorted(self.trees))
        self.quotas[quota.job_id, quota.tree_id] = quota

    def clear_quota(self, job: int, tree: int) -> None:
        """QuotaConfig CLEAR: the job is not active here any more; its groups end."""
        self.cleanup(job, tree)
        self.quotas.pop((job, tree), None)

    def cleanup(self, job: int | None = None, tree: int | None = None) -> None:
        """ResourceCleanup: ERROR CANCELLED to the children of the groups that are meant, and they are gone."""
        for group in list(self.groups.values()):
            if job in (None, group.job_id) and tree in (None, group.tree_id):
                group.handle(GroupInput.CLEANUP)

    @property
    def used(self) -> Used:
        """What is in use."""
        return self.pool.used()

    # Element

    def message(self, conn: int | None, data: bytes, now: int) -> None:
        """A message has arrived."""
        self.now = now
        port = self.source = self.ports[conn]
        port.hba_received_packets += 1
        port.hba_received_bytes += len(data)
        message = parse(data)
        if not isinstance(message, SharpMessage):
            return self._malformed(conn, data, message)
        if conn is None:
            return self.discard()  # no aggregation node is in a multicast group
        if message.opcode in _HEARTBEATS:
            return self.heartbeats.take(conn, message)
        tree = self.trees.get(message.tree_id)
        if tree is None:
            return self.refuse(conn, message, Status.UNKNOWN_TREE)
        if not tree.enabled:
            return self.refuse(conn, message, Status.TREE_DISABLED)
        group = self.groups.get((message.tree_id, message.group_id))
        if conn == tree.parent:
            if group is None or group.job_id != message.job_id:
                return self.discard()
            return self._from_parent(group, message, data)
        quota = self.quotas.get((message.job_id, message.tree_id))
        if quota is None:
            return self.refuse(conn, message, Status.UNKNOWN_JOB)
        child = tree.child_of.get(conn)
        if message.opcode == _O.GROUP_JOIN_REQ and child is not None:
            if group is None:
                group = AggregationGroup(self, tree, quota, message.job_id, message.group_id)
                self.groups[message.tree_id, message.group_id] = group
            return group.join(child, message)
        if group is None or group.job_id != message.job_id:
            return self.refuse(conn, message, Status.UNKNOWN_GROUP)
        if child is None or child not in group.ranks or child in group.left:
            return self.refuse(conn, message, Status.NOT_MEMBER)
        return self._from_child(group, child, message, data)

    def _from_child(self, group: AggregationGroup, child: int, message: SharpMessage, data: bytes) -> None:
        opcode = message.opcode
        if opcode == _O.AGG_REQ:
            group.request(child, message, data)
        elif opcode == _O.GROUP_LEAVE_REQ:
            group.leave(child, message)
        elif opcode in (_O.LOCK_REQ, _O.UNLOCK_REQ):
            group.handle(GroupInput.REQUEST, child, message)
        elif opcode == _O.ERROR:
            group.operations.error(child, message, data)
        else:
            self.discard()

    def _from_parent(self, group: AggregationGroup, message: SharpMessage, data: bytes) -> None:
        opcode = message.opcode
        if opcode == _O.AGG_RESULT or opcode == _O.NACK:
            group.operations.from_parent(message, data)
        elif opcode == _O.GROUP_JOIN_RESP:
            group.answered(message)
        elif opcode == _O.GROUP_LEAVE_RESP:
            group.handle(GroupInput.LEFT)
        elif opcode == _O.LOCK_RESP:
            group.lock.answered(message)
        elif opcode == _O.ERROR:
            if SharpFault.unpack(message.body).opcode == _O.LOCK_REQ:
                group.lock.answered(message)
            else:
                group.operations.error(None, message, data)
        elif opcode != _O.UNLOCK_RESP:
            self.discard()

    def acknowledged(self, conn: int, handle: int, now: int) -> None:
        """A result has arrived at a child."""
        self.now = now
        known = self._awaited.pop(handle, None)
        if known is not None:
            op, child = known
            op.owner.acknowledged(op, child)

    def lost(self, conn: int, now: int) -> None:
        """A connection is in error: children and parents on it are down."""
        self.now = now
        if conn in self.dead:
            return
        self.dead.add(conn)
        for group in list(self.groups.values()):
            if group.tree.parent == conn:
                group.parent_lost()
            elif conn in group.tree.child_of:
                group.child_lost(group.tree.child_of[conn])

    def poll(self, now: int) -> list[OutgoingMessage]:
        """What is to be sent; fires timers that are due."""
        self.now = now
        self.source = None
        while self._next_timer() <= now:
            timed = heappop(self._timers)[2]
            timed.deadline = NEVER
            timed.expired()
        out, self._out = self._out, []
        return out

    def deadline(self) -> int | None:
        """When to poll at the latest."""
        if self._out:
            return self.now
        first = self._next_timer()
        return None if first == NEVER else first

    def events(self) -> list[Any]:
        """Traps since the last call."""
        events, self._events = self._events, []
        return events

    # Refusals

    def refuse(self, conn: int, message: SharpMessage, status: Status) -> None:
        """Rule 2: the sender alone is told, and an answer is never answered."""
        opcode = message.opcode
        tree = self.trees.get(message.tree_id)
        child = 0xFF if tree is None else tree.child_of.get(conn, 0xFF)
        if opcode in _ANSWERED:
            body = _BODY_OF_REFUSED_JOIN if opcode == _O.GROUP_JOIN_REQ else message.body
            self.send(conn, SharpMessage(
                opcode + _RESPONSE, message.tree_id, message.job_id, message.group_id, message.seq, child_idx=child,
                status=status, body=body,
            ).pack())  # fmt: skip
        elif opcode == _O.AGG_REQ:
            self._send_error(conn, message, status, child, 0 if tree is None else tree.depth)
        else:
            self.discard()

    def _send_error(self, conn: int, message: SharpMessage, status: Status, child: int, depth: int) -> None:
        children = frozenset(() if child == 0xFF else (child,))
        self.send(conn, SharpMessage(
            _O.ERROR, message.tree_id, message.job_id, message.group_id, message.seq, status=status,
            body=SharpFault(status, depth, message.opcode, self.an_id, children).pack(),
        ).pack())  # fmt: skip

    def _malformed(self, conn: int | None, data: bytes, status: Status) -> None:
        """Rule 1: trap 1, and ERROR to the sender of what looks like a request."""
        self.counters["bad_messages"] += 1
        if len(data) < HEADER_SIZE or conn is None:
            return self._trap(Trap.INVALID_REQUEST, 0, 0, 0xFFFF, conn or 0, 0, 0)
        _, opcode, tree_id, job_id, group_id, seq, *_ = HEADER.unpack_from(data)
        self._trap(Trap.INVALID_REQUEST, 0, job_id & 0xFFFFFF, tree_id, conn, group_id, seq)
        if opcode in _REQUESTS:
            self._send_error(conn, SharpMessage(opcode, tree_id, job_id & 0xFFFFFF, group_id, seq), status, 0xFF, 0)
        return None


__all__ = ["Quota", "SharpNode", "TrapRaised", "Used"]
