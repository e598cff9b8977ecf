"""What the parts of an aggregation node ask it for: to send, a timer, a trap, a lock (sharp.md §1.8, §3.3)."""

from collections import Counter
from heapq import heappop, heappush
from typing import Any, NamedTuple, Protocol

from uetproto.engine.contract import NEVER, Rng
from uetproto.engine.sharp.config import SharpConfig
from uetproto.engine.sharp.contract import OutgoingMessage
from uetproto.engine.sharp.node.counters import PortCounters, PortsByConnection
from uetproto.engine.sharp.node.group import AggregationGroup
from uetproto.engine.sharp.node.heartbeats import HeartbeatMonitor
from uetproto.engine.sharp.node.lock import GroupLock
from uetproto.engine.sharp.node.ost import OstEntry
from uetproto.engine.sharp.node.pool import NodeTree, Quota, ResourcePool
from uetproto.engine.sharp.node.sat import SatOperations
from uetproto.wire.headers.sharp import COUNTERPARTS, Flag, Status, Syndrome, Trap

_RETX = int(Flag.RETX)


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


class Services:
    """The state of a node, and what everything in it shares."""

    heartbeats: HeartbeatMonitor

    def __init__(self, an_id: int, config: SharpConfig, rng: Rng | None = None) -> None:
        self.an_id = an_id
        self.config = config
        self.rng = rng
        self.now = 0
        self.counters: Counter[str] = Counter()
        self.trees: dict[int, NodeTree] = {}
        self.quotas: dict[tuple[int, int], Quota] = {}
        """By (job, tree)."""
        self.groups: dict[tuple[int, int], AggregationGroup] = {}
        """By (tree, group)."""
        self.pool = ResourcePool(config)
        self.dead: set[int] = set()
        """Connections in error."""
        self.ports = PortsByConnection(self.trees)
        self.source: PortCounters | None = None
        """Where the message is from that is being taken; None: none is."""
        self._out: list[OutgoingMessage] = []
        self._events: list[TrapRaised] = []
        self._timers: list[tuple[int, int, Timed]] = []
        self._count = 0
        """Orders timers of one instant, and numbers handles."""
        self._awaited: dict[int, tuple[OstEntry, int]] = {}
        """Results whose arrival is to be known, by handle."""
        self._control: Counter[int] = Counter()
        self._tokens = 0
        self._mlids = 0

    # What groups, operations and locks ask for

    def send(self, conn: int, data: bytes, handle: int = 0) -> None:
        if conn not in self.dead:
            self._out.append(OutgoingMessage(conn, data, handle))
            port = self.ports[conn]
            port.packets_sent += 1
            port.rcds_sent_bytes += len(data)
            if data[31] & _RETX:
                port.retry_packets_sent += 1

    def send_group(self, data: bytearray, group: int) -> None:
        """To a multicast group."""
        self._out.append(OutgoingMessage(None, bytes(data), 0, group))
        port = self.ports[None]
        port.packets_sent += 1
        port.rcds_sent_bytes += len(data)

    def expect(self, op: OstEntry, child: int) -> int:
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
        if self.source is not None:
            self.source.sharp_discards += 1

    def forget(self, group: AggregationGroup) -> None:
        """A group is gone: nothing of it stays."""
        if self.groups.get((group.tree_id, group.group_id)) is group:
            del self.groups[group.tree_id, group.group_id]
            self.end_locks(group)
            group.operations.close()
            self.stop(group)
            self.pool.release(group)

    def raise_trap(self, code: Status, group: AggregationGroup, children: frozenset[int], seq: int) -> None:
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

    def may_lock(self, group: AggregationGroup, sat_tree_id: int) -> Status:
        """Whether this group may ask for this SAT tree."""
        tree = self.trees.get(sat_tree_id)
        quota = self.quotas.get((group.job_id, sat_tree_id))
        if tree is None or not tree.mode or tree.llt_tree_id != group.tree_id:
            return Status.UNKNOWN_TREE
        if quota is None:
            return Status.UNKNOWN_JOB
        own = self.quotas.get((group.job_id, group.tree_id))
        return Status.LOCK_DENIED if quota.prevent_lock or (own is not None and own.prevent_lock) else Status.OK

    def lock_of(self, group: AggregationGroup) -> GroupLock | None:
        """The lock that this group of a SAT tree needs."""
        paired = self.groups.get((group.tree.llt_tree_id, group.group_id))
        if paired is None or paired.job_id != group.job_id or paired.lock.body.sat_tree_id != group.tree_id:
            return None
        return paired.lock

    def holds_lock(self, group: AggregationGroup) -> bool:
        """Its stream may run."""
        lock = self.lock_of(group)
        return lock is not None and lock.held

    def sat_group(self, lock: GroupLock) -> AggregationGroup | None:
        """The group of the SAT tree that a lock is for."""
        return self.groups.get((lock.body.sat_tree_id, lock.group.group_id))

    def streaming(self, lock: GroupLock) -> bool:
        """An operation of its group is open."""
        group = self.sat_group(lock)
        return group is not None and isinstance(group.operations, SatOperations) and group.operations.busy

    def end_locks(self, group: AggregationGroup) -> None:
        """Its own, or that of its pair."""
        lock = self.lock_of(group) if group.tree.mode else group.lock
        if lock is not None:
            lock.end()
