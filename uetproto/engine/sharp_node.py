"""The aggregation node: whole messages in and out, by connection (sharp.md §3).

It finds tree, job, group and child of a message in the order of §2.8, and hands it on: to the group (`sharp_group`),
its operations (`sharp_llt`, `sharp_sat`) or its lock (`sharp_lock`). `sharp_agent` speaks the MADs of management.
"""

from collections import Counter
from collections.abc import Mapping
from heapq import heappop, heappush
from typing import Any, NamedTuple, Protocol

from uetproto.engine.contract import NEVER, Rng
from uetproto.engine.sharp_config import MAX_SAT_ID, SharpConfig
from uetproto.engine.sharp_contract import Outgoing
from uetproto.engine.sharp_group import Group
from uetproto.engine.sharp_heartbeats import Heartbeats
from uetproto.engine.sharp_lock import GroupLock
from uetproto.engine.sharp_messages import HEADER, HEADER_SIZE, Fault, Message, parse
from uetproto.engine.sharp_ost import Operation
from uetproto.engine.sharp_pool import Pool, Quota, Tree, Used
from uetproto.engine.sharp_sat import SatOperations
from uetproto.engine.sharp_states import GroupInput
from uetproto.errors import LocalError
from uetproto.wire.sharp import COUNTERPARTS, SharpOpcode, Status, Syndrome, Trap

_O = SharpOpcode
_HEARTBEATS = (_O.HEARTBEAT, _O.HEARTBEAT_RESP)
_RESPONSE = 0x80
_ANSWERED = frozenset({_O.GROUP_JOIN_REQ, _O.GROUP_LEAVE_REQ, _O.LOCK_REQ, _O.UNLOCK_REQ})
"""Control requests: their response says what is wrong. AGG_REQ gets ERROR."""
_REQUESTS = _ANSWERED | {_O.AGG_REQ}
_BODY_OF_REFUSED_JOIN = bytes(12) + b"\xff" + bytes(27)


class TrapRaised(NamedTuple):
    """For the manager (§1.8)."""

    trap: Trap
    syndrome: int
    """`Syndrome` where the trap is SHARP_ERROR, else 0."""
    job_id: int
    tree_id: int
    conn: int
    """0: no single one is meant."""
    group_id: int
    seq: int


class Timed(Protocol):
    """What a timer is for."""

    deadline: int

    def expired(self) -> None: ...


class SharpNode:
    """One aggregation node, an `Element`."""

    def __init__(self, an_id: int, config: SharpConfig, rng: Rng | None = None) -> None:
        self.an_id = an_id
        self.config = config
        self.rng = rng
        self.now = 0
        self.counters: Counter[str] = Counter()
        self.trees: dict[int, Tree] = {}
        self.quotas: dict[tuple[int, int], Quota] = {}
        """By (job, tree)."""
        self.groups: dict[tuple[int, int], Group] = {}
        """By (tree, group)."""
        self.pool = Pool(config)
        self.dead: set[int] = set()
        """Connections in error."""
        self.heartbeats = Heartbeats(self)
        self._out: list[Outgoing] = []
        self._events: list[TrapRaised] = []
        self._timers: list[tuple[int, int, Timed]] = []
        self._count = 0
        """Orders timers of one instant, and numbers handles."""
        self._awaited: dict[int, tuple[Operation, int]] = {}
        """Results whose arrival is to be known, by handle."""
        self._control: Counter[int] = Counter()
        self._tokens = 0
        self._mlids = 0

    # Management (§2.9)

    def set_tree(
        self, tree_id: int, *, mode: int, llt_tree_id: int, parent: int | None, children: Mapping[int, int],
        depth: int = 1,
    ) -> None:  # fmt: skip
        """TreeConfig SET. `depth`: levels up to here, 1 is a leaf (**choice**: an aggregation node is told)."""
        limit = self.config.children
        if not 0 <= tree_id <= MAX_SAT_ID:
            raise LocalError(f"tree_id: {tree_id} is not legal; legal: 0 … {MAX_SAT_ID}")
        if tree_id not in self.trees and len(self.trees) >= self.config.tree_table_size:
            raise LocalError(
                f"tree_id: no room for tree {tree_id}; legal: {self.config.tree_table_size} trees at a time"
            )
        if len(children) > limit or not all(0 <= child < limit for child in children):
            raise LocalError(f"children: {sorted(children)} is not legal; legal: child_idx 0 … {limit - 1}")
        if len({*children.values(), parent}) <= len(children):
            raise LocalError("children: a connection is used twice; legal: one for each child and the parent")
        if tree_id in self.trees:
            self.cleanup(tree=tree_id)
        self.trees[tree_id] = Tree(tree_id, mode, llt_tree_id, parent, dict(children), depth)
        self.dead.difference_update(children.values(), () if parent is None else (parent,))

    def remove_tree(self, tree_id: int) -> None:
        """TreeConfig REMOVE: with everything that is on it."""
        self.cleanup(tree=tree_id)
        self.trees.pop(tree_id, None)
        for key in [key for key in self.quotas if key[1] == tree_id]:
            del self.quotas[key]

    def disable_tree(self, tree_id: int) -> None:
        """TreeConfig DISABLE: what comes is refused."""
        if tree_id in self.trees:
            self.trees[tree_id].enabled = False

    def set_quota(self, quota: Quota) -> None:
        """QuotaConfig SET: the job is active here from now on."""
        if quota.tree_id not in self.trees:
            raise LocalError(f"tree_id: {quota.tree_id} is not configured; legal: {sorted(self.trees)}")
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
        message = parse(data)
        if not isinstance(message, Message):
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
                group = Group(self, tree, quota, message.job_id, message.group_id)
                self.groups[message.tree_id, message.group_id] = group
            return group.join(child, message)
        if group is None or group.job_id != message.job_id:
            return self.refuse(conn, message, Status.UNKNOWN_GROUP)
        if child is None or child not in group.ranks or child in group.left:
            return self.refuse(conn, message, Status.NOT_MEMBER)
        return self._from_child(group, child, message, data)

    def _from_child(self, group: Group, child: int, message: Message, data: bytes) -> None:
        opcode = message.opcode
        if opcode == _O.AGG_REQ:
            group.request(child, message, data)
        elif opcode == _O.GROUP_LEAVE_REQ:
            group.leave(child, message)
        elif opcode in (_O.LOCK_REQ, _O.UNLOCK_REQ):
            group.handle(GroupInput.REQUEST, child, message)
        elif opcode == _O.ERROR:
            group.operations.error_below(child, message, data)
        else:
            self.discard()

    def _from_parent(self, group: Group, message: Message, data: bytes) -> None:
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
            if Fault.unpack(message.body).opcode == _O.LOCK_REQ:
                group.lock.answered(message)
            else:
                group.operations.from_parent(message, data)
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

    def poll(self, now: int) -> list[Outgoing]:
        """What is to be sent; fires timers that are due."""
        self.now = now
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

    # What groups, operations and locks ask for

    def send(self, conn: int, data: bytes, handle: int = 0) -> None:
        if conn not in self.dead:
            self._out.append(Outgoing(conn, data, handle))

    def send_group(self, data: bytearray, group: int) -> None:
        """To a multicast group."""
        self._out.append(Outgoing(None, bytes(data), 0, group))

    def expect(self, op: Operation, child: int) -> int:
        """A handle that says when this child has the result."""
        self._count += 1
        self._awaited[self._count] = op, child
        return self._count

    def start(self, timed: Timed, delay: int) -> None:
        """A timer; of those of one owner the last counts. A delay of 0: none."""
        if not delay:
            return self.stop(timed)
        self._count += 1
        timed.deadline = self.now + delay
        heappush(self._timers, (timed.deadline, self._count, timed))
        return None

    def stop(self, timed: Timed) -> None:
        timed.deadline = NEVER

    def _next_timer(self) -> int:
        timers = self._timers
        while timers and timers[0][2].deadline != timers[0][0]:
            heappop(timers)
        return timers[0][0] if timers else NEVER

    def control_seq(self, conn: int) -> int:
        """The control counter of a connection."""
        self._control[conn] += 1
        return self._control[conn] - 1 & 0xFFFFFFFF

    def next_token(self) -> int:
        self._tokens += 1
        return self._tokens & 0xFFFFFFFF or self.next_token()

    def next_mlid(self) -> int:
        self._mlids += 1
        return min(self.config.first_mlid + self._mlids - 1, 0xFFFE)

    def watch(self) -> None:
        self.heartbeats.watch()

    def discard(self) -> None:
        """Dropped, counted."""
        self.counters["sharp_discards"] += 1

    def forget(self, group: Group) -> None:
        """A group is gone: nothing of it stays."""
        if self.groups.get((group.tree_id, group.group_id)) is group:
            del self.groups[group.tree_id, group.group_id]
            self.end_locks(group)
            group.operations.close()
            self.stop(group)
            self.pool.release(group)

    def raise_trap(self, code: Status, group: Group, children: frozenset[int], seq: int) -> None:
        """The trap that is published for a status, if there is one (§2.7)."""
        what = next((item for item in COUNTERPARTS.get(code, ()) if isinstance(item, Trap | Syndrome)), None)
        conn = next((group.conn_of(child) for child in sorted(children)), 0)
        self.counters["errors"] += 1
        if isinstance(what, Syndrome):
            self._trap(Trap.SHARP_ERROR, what, group.job_id, group.tree_id, conn, group.group_id, seq)
        elif what is not None:
            self._trap(what, 0, group.job_id, group.tree_id, conn, group.group_id, seq)

    def _trap(self, *what: Any) -> None:
        self._events.append(TrapRaised(*what))

    # Locks: each on an LLT group, for a SAT tree

    def may_lock(self, group: Group, sat_tree_id: int) -> Status:
        """Whether this group may ask for this SAT tree."""
        tree = self.trees.get(sat_tree_id)
        quota = self.quotas.get((group.job_id, sat_tree_id))
        if tree is None or not tree.mode or tree.llt_tree_id != group.tree_id:
            return Status.UNKNOWN_TREE
        if quota is None:
            return Status.UNKNOWN_JOB
        own = self.quotas.get((group.job_id, group.tree_id))
        return Status.LOCK_DENIED if quota.prevent_lock or (own is not None and own.prevent_lock) else Status.OK

    def lock_of(self, group: Group) -> GroupLock | None:
        """The lock that this group of a SAT tree needs."""
        paired = self.groups.get((group.tree.llt_tree_id, group.group_id))
        if paired is None or paired.job_id != group.job_id or paired.lock.body.sat_tree_id != group.tree_id:
            return None
        return paired.lock

    def holds_lock(self, group: Group) -> bool:
        """Its stream may run."""
        lock = self.lock_of(group)
        return lock is not None and lock.held

    def sat_group(self, lock: GroupLock) -> Group | None:
        """The group of the SAT tree that a lock is for."""
        return self.groups.get((lock.body.sat_tree_id, lock.group.group_id))

    def streaming(self, lock: GroupLock) -> bool:
        """An operation of its group is open."""
        group = self.sat_group(lock)
        return group is not None and isinstance(group.operations, SatOperations) and group.operations.busy

    def end_locks(self, group: Group) -> None:
        """Its own, or that of its pair."""
        lock = self.lock_of(group) if group.tree.mode else group.lock
        if lock is not None:
            lock.end()

    # Refusals

    def refuse(self, conn: int, message: Message, status: Status) -> None:
        """Rule 2: the sender alone is told, and an answer is never answered."""
        opcode = message.opcode
        tree = self.trees.get(message.tree_id)
        child = 0xFF if tree is None else tree.child_of.get(conn, 0xFF)
        if opcode in _ANSWERED:
            body = _BODY_OF_REFUSED_JOIN if opcode == _O.GROUP_JOIN_REQ else message.body
            self.send(conn, Message(
                opcode + _RESPONSE, message.tree_id, message.job_id, message.group_id, message.seq, child_idx=child,
                status=status, body=body,
            ).pack())  # fmt: skip
        elif opcode == _O.AGG_REQ:
            self._send_error(conn, message, status, child, 0 if tree is None else tree.depth)
        else:
            self.discard()

    def _send_error(self, conn: int, message: Message, status: Status, child: int, depth: int) -> None:
        children = frozenset(() if child == 0xFF else (child,))
        self.send(conn, Message(
            _O.ERROR, message.tree_id, message.job_id, message.group_id, message.seq, status=status,
            body=Fault(status, depth, message.opcode, self.an_id, children).pack(),
        ).pack())  # fmt: skip

    def _malformed(self, conn: int | None, data: bytes, status: Status) -> None:
        """Rule 1: trap 1, and ERROR to the sender of what looks like a request."""
        self.counters["bad_messages"] += 1
        if len(data) < HEADER_SIZE or conn is None:
            return self._trap(Trap.INVALID_REQUEST, 0, 0, 0xFFFF, conn or 0, 0, 0)
        _, opcode, tree_id, job_id, group_id, seq, *_ = HEADER.unpack_from(data)
        self._trap(Trap.INVALID_REQUEST, 0, job_id & 0xFFFFFF, tree_id, conn, group_id, seq)
        if opcode in _REQUESTS:
            self._send_error(conn, Message(opcode, tree_id, job_id & 0xFFFFFF, group_id, seq), status, 0xFF, 0)
        return None


__all__ = ["Quota", "SharpNode", "TrapRaised", "Used"]
