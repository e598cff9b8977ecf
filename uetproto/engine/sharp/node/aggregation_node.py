# SPDX-License-Identifier: GPL-2.0-only
"""An aggregation node receives and sends whole messages over connections (sharp.md §3).

`SharpNode` finds tree, job, group and child of a message in the order of sharp.md §2.8, and hands the message to the
group (`group`), its operations (`operations`, `sat_operations`) or its lock (`lock`). `manager.agent` serves the MADs
of management.
"""

from collections import Counter
from collections.abc import Mapping
from typing import Any

from uetproto.engine.contract import NEVER, Rng
from uetproto.engine.sharp.config import MAX_SAT_ID, SharpConfig
from uetproto.engine.sharp.contract import OutgoingMessage
from uetproto.engine.sharp.management import NodeTree, Quota, TrapRaised
from uetproto.engine.sharp.messages import HEADER, HEADER_SIZE, SharpFault, SharpMessage, parse
from uetproto.engine.sharp.node.contract import GroupContext, Timed
from uetproto.engine.sharp.node.counters import PortCounters, PortsByConnection
from uetproto.engine.sharp.node.group import AggregationGroup
from uetproto.engine.sharp.node.heartbeats import HeartbeatMonitor
from uetproto.engine.sharp.node.lock import GroupLock
from uetproto.engine.sharp.node.ost import OstEntry
from uetproto.engine.sharp.node.packing import is_retransmission
from uetproto.engine.sharp.node.pool import ResourcePool
from uetproto.engine.sharp.node.sat_operations import SatOperations
from uetproto.engine.sharp.node.states import GroupInput
from uetproto.engine.sharp.node.timers import TimerQueue
from uetproto.engine.sharp.node.trains import RequestRun
from uetproto.errors import LocalError
from uetproto.wire.headers.sharp import COUNTERPARTS, SharpOpcode, Status, Syndrome, Trap

_O = SharpOpcode
_HEARTBEATS = (_O.HEARTBEAT, _O.HEARTBEAT_RESP)
_RESPONSE = 0x80
_ANSWERED = frozenset({_O.GROUP_JOIN_REQ, _O.GROUP_LEAVE_REQ, _O.LOCK_REQ, _O.UNLOCK_REQ})
"""Control requests, which are refused by the status of their response; a refused AGG_REQ gets ERROR."""
_REQUESTS = _ANSWERED | {_O.AGG_REQ}
_BODY_OF_REFUSED_JOIN = bytes(12) + b"\xff" + bytes(27)


class SharpNode:
    """This class is an aggregation node, an `Element` that a carrier drives."""

    def __init__(self, an_id: int, config: SharpConfig, rng: Rng | None = None) -> None:
        self.an_id = an_id
        self.config = config
        self.rng = rng
        self.now = 0
        self.counters: Counter[str] = Counter()
        self.trees: dict[int, NodeTree] = {}
        self.quotas: dict[tuple[int, int], Quota] = {}
        """Maps (job, tree) to the quota."""
        self.groups: dict[tuple[int, int], AggregationGroup] = {}
        """Maps (tree, group) to the group."""
        self.pool = ResourcePool(config)
        self.dead: set[int] = set()
        """Connections that have failed."""
        self.ports = PortsByConnection(self.trees)
        self.heartbeats = HeartbeatMonitor(self)
        self.trains = False
        """Whether requests of a stream are taken with less work where nothing distinguishes them."""
        self._runs: dict[int | None, RequestRun | None] = {}
        """Maps the connection to each child to the run of its last request, if it is in one. The table is cleared when
        a tree, a quota or a group changes."""
        self._source: PortCounters | None = None
        """Port of the message that is being handled; None while a timer is handled."""
        self._out: list[OutgoingMessage] = []
        self._events: list[TrapRaised] = []
        self._timers = TimerQueue()
        self._handles = 0
        self._awaited: dict[int, tuple[OstEntry, int]] = {}
        """Maps each handle to the operation and the child whose acknowledgement is awaited."""
        self._control: Counter[int] = Counter()
        self._tokens = 0
        self._mlids = 0

    # Management (sharp.md §2.9)

    def set_tree(
        self, tree_id: int, *, mode: int, llt_tree_id: int, parent: int | None, children: Mapping[int, int],
        depth: int = 1,
    ) -> None:  # fmt: skip
        """Serve TreeConfig SET. `depth` is the level of the node, 1 for a leaf. By a choice of this project, the
        manager says the level."""
        limit = self.config.children
        if not 0 <= tree_id <= MAX_SAT_ID:
            raise LocalError("tree_id", f"{tree_id} is not legal", f"0 … {MAX_SAT_ID}", id="out-of-range")
        if tree_id not in self.trees and len(self.trees) >= self.config.tree_table_size:
            raise LocalError(
                "tree_id", f"no room for tree {tree_id}", f"{self.config.tree_table_size} trees at a time",
                id="resources-exhausted"
            )  # fmt: skip
        if len(children) > limit or not all(0 <= child < limit for child in children):
            raise LocalError(
                "children", f"{sorted(children)} is not legal", f"child_idx 0 … {limit - 1}", id="out-of-range"
            )
        if len({*children.values(), parent}) <= len(children):
            raise LocalError(
                "children", "a connection is used twice", "one for each child and the parent", id="duplicate"
            )
        if tree_id in self.trees:
            self.cleanup(tree=tree_id)
        self.trees[tree_id] = NodeTree(tree_id, mode, llt_tree_id, parent, dict(children), depth)
        self.ports.clear()
        self._runs.clear()
        self.dead.difference_update(children.values(), () if parent is None else (parent,))

    def update_tree(self, tree_id: int, children: Mapping[int, int]) -> None:
        """Serve TreeConfig UPDATE: add children; a child whose connection is 0 is removed, and its groups end."""
        tree = self.trees[tree_id]
        gone = {index for index, conn in children.items() if not conn}
        for group in list(self.groups.values()):
            if group.tree is tree and not gone.isdisjoint(group.ranks):
                group.handle(GroupInput.CLEANUP)
        tree.children = {index: conn for index, conn in {**tree.children, **children}.items() if conn}
        tree.child_of = {conn: index for index, conn in tree.children.items()}
        self.ports.clear()
        self._runs.clear()

    def remove_tree(self, tree_id: int) -> None:
        """Serve TreeConfig REMOVE: remove a tree, its groups and its quotas."""
        self.cleanup(tree=tree_id)
        self.trees.pop(tree_id, None)
        self.ports.clear()
        self._runs.clear()
        for key in [key for key in self.quotas if key[1] == tree_id]:
            del self.quotas[key]

    def disable_tree(self, tree_id: int) -> None:
        """Serve TreeConfig DISABLE: refuse all further requests on a tree."""
        if tree_id in self.trees:
            self.trees[tree_id].enabled = False
            self._runs.clear()

    def set_quota(self, quota: Quota) -> None:
        """Serve QuotaConfig SET: make a job active on a tree."""
        if quota.tree_id not in self.trees:
            raise LocalError("tree_id", f"{quota.tree_id} is not configured", sorted(self.trees), id="not-registered")
        self.quotas[quota.job_id, quota.tree_id] = quota

    def clear_quota(self, job: int, tree: int) -> None:
        """Serve QuotaConfig CLEAR: end the groups of a job on a tree, and remove the quota."""
        self.cleanup(job, tree)
        self.quotas.pop((job, tree), None)
        self._runs.clear()

    def cleanup(self, job: int | None = None, tree: int | None = None) -> None:
        """Serve ResourceCleanup: end the groups of a job on a tree and send ERROR CANCELLED to their children. None
        stands for every job, or for every tree."""
        for group in list(self.groups.values()):
            if job in (None, group.job_id) and tree in (None, group.tree_id):
                group.handle(GroupInput.CLEANUP)

    # Element

    def message(self, conn: int | None, data: bytes, now: int) -> None:
        """Handle a message that arrived on a connection, or by multicast if `conn` is None."""
        self.now = now
        port = self._source = self.ports[conn]
        port.hba_received_packets += 1
        port.hba_received_bytes += len(data)
        run = self._runs.get(conn)
        if run is not None and run.header.fits(data) and run.take(data):
            return None
        message = parse(data)
        if not isinstance(message, SharpMessage):
            return self._malformed(conn, data, message)
        if conn is None:
            return self.discard()  # no aggregation node is in a multicast group
        if message.opcode in _HEARTBEATS:
            return self.heartbeats.receive(conn, message)
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
            if self.trains:
                self._runs[group.conn_of(child)] = RequestRun.of(group, group.operations, child, message, data)
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
        """Handle the acknowledgement of a result by a child."""
        self.now = now
        known = self._awaited.pop(handle, None)
        if known is not None:
            op, child = known
            op.owner.acknowledged(op, child)

    def lost(self, conn: int, now: int) -> None:
        """Handle the failure of a connection: the child or parent at its other end counts as down."""
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
        """Fire the timers that are due and return the messages to send."""
        self.now = now
        self._source = None
        self._timers.fire(now)
        out, self._out = self._out, []
        return out

    def deadline(self) -> int | None:
        """Return the time at which `poll` is due at the latest; None if no timer runs and nothing is to be sent."""
        if self._out:
            return self.now
        first = self._timers.nearest()
        return None if first == NEVER else first

    def events(self) -> list[Any]:
        """Return the traps raised since the last call."""
        events, self._events = self._events, []
        return events

    # Refusals

    def refuse(self, conn: int, message: SharpMessage, status: Status) -> None:
        """Apply rule 2 of sharp.md §2.8: send the refusal of a request to its sender alone; never answer a response."""
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
        """Apply rule 1 of sharp.md §2.8: raise trap 1, and send ERROR to the sender of what looks like a request."""
        self.counters["bad_messages"] += 1
        if len(data) < HEADER_SIZE or conn is None:
            self._events.append(TrapRaised(Trap.INVALID_REQUEST, 0, 0, 0xFFFF, conn or 0, 0, 0))
            return
        _, opcode, tree_id, job_id, group_id, seq, *_ = HEADER.unpack_from(data)
        self._events.append(TrapRaised(Trap.INVALID_REQUEST, 0, job_id & 0xFFFFFF, tree_id, conn, group_id, seq))
        if opcode in _REQUESTS:
            self._send_error(conn, SharpMessage(opcode, tree_id, job_id & 0xFFFFFF, group_id, seq), status, 0xFF, 0)

    # What groups, operations and locks use

    def send(self, conn: int, data: bytes, handle: int = 0) -> None:
        """Send a message on a connection; drop it if the connection is in error."""
        if conn not in self.dead:
            self._out.append(OutgoingMessage(conn, data, handle))
            port = self.ports[conn]
            port.packets_sent += 1
            port.rcds_sent_bytes += len(data)
            port.retry_packets_sent += is_retransmission(data)

    def send_group(self, data: bytearray, group: int) -> None:
        """Send a message to a multicast group."""
        self._out.append(OutgoingMessage(None, bytes(data), 0, group))
        port = self.ports[None]
        port.packets_sent += 1
        port.rcds_sent_bytes += len(data)

    def expect(self, op: OstEntry, child: int) -> int:
        """Return a new handle for the message that brings a child the result of an operation. When the carrier
        acknowledges the handle, the child has the result."""
        self._handles += 1
        self._awaited[self._handles] = op, child
        return self._handles

    def start(self, timed: Timed, delay: int) -> None:
        """Start or restart the timer of an object, with a delay in picoseconds; a delay of 0 stops the timer."""
        if delay:
            self._timers.start(timed, self.now + delay)
        else:
            self.stop(timed)

    def stop(self, timed: Timed) -> None:
        """Stop the timer of an object."""
        timed.deadline = NEVER

    def watch(self) -> None:
        """Start the heartbeats of READY groups."""
        self.heartbeats.watch()

    def control_seq(self, conn: int) -> int:
        """Return the seq of the next control message on a connection, and increment it."""
        self._control[conn] += 1
        return self._control[conn] - 1 & 0xFFFFFFFF

    def next_token(self) -> int:
        """Return a new lock token, which is never 0."""
        self._tokens += 1
        return self._tokens & 0xFFFFFFFF or self.next_token()

    def next_mlid(self) -> int:
        """Return the MLID of the next multicast group."""
        self._mlids += 1
        return min(self.config.first_mlid + self._mlids - 1, 0xFFFE)

    def discard(self) -> None:
        """Count a message that is dropped without an answer."""
        self.counters["sharp_discards"] += 1
        if self._source is not None:
            self._source.sharp_discards += 1

    def forget(self, group: GroupContext) -> None:
        """Remove a group, and release everything that it holds."""
        found = self.groups.get((group.tree_id, group.group_id))
        if found is group:
            del self.groups[group.tree_id, group.group_id]
            found.end_locks()
            found.operations.close()
            self._runs.clear()
            self.stop(found)
            self.pool.release(found)

    def raise_trap(self, code: Status, group: GroupContext, children: frozenset[int], seq: int) -> None:
        """Raise the trap that is published for a status, if there is one (sharp.md §2.7)."""
        found = next((item for item in COUNTERPARTS.get(code, ()) if isinstance(item, Trap | Syndrome)), None)
        conn = next((group.conn_of(child) for child in sorted(children)), 0)
        self.counters["errors"] += 1
        if found is not None:
            trap, syndrome = (Trap.SHARP_ERROR, found) if isinstance(found, Syndrome) else (found, 0)
            self._events.append(TrapRaised(trap, syndrome, group.job_id, group.tree_id, conn, group.group_id, seq))

    # Locks: each is on an LLT group, for a SAT tree (sharp.md §3.3)

    def may_lock(self, group: GroupContext, sat_tree_id: int) -> Status:
        """Return OK if a group may lock a SAT tree, otherwise the status of the refusal."""
        tree = self.trees.get(sat_tree_id)
        quota = self.quotas.get((group.job_id, sat_tree_id))
        if tree is None or not tree.mode or tree.llt_tree_id != group.tree_id:
            return Status.UNKNOWN_TREE
        if quota is None:
            return Status.UNKNOWN_JOB
        own = self.quotas.get((group.job_id, group.tree_id))
        return Status.LOCK_DENIED if quota.prevent_lock or (own is not None and own.prevent_lock) else Status.OK

    def lock_of(self, group: GroupContext) -> GroupLock | None:
        """Return the lock under which a group may run operations on a SAT tree. The paired LLT group owns this lock.
        Return None if there is no lock for this SAT tree."""
        paired = self.groups.get((group.tree.llt_tree_id, group.group_id))
        if paired is None or paired.job_id != group.job_id or paired.lock.body.sat_tree_id != group.tree_id:
            return None
        return paired.lock

    def stream_of(self, sat_tree_id: int, group_id: int) -> SatOperations | None:
        """Return the operations of a group on a SAT tree; None if there is no such group."""
        group = self.groups.get((sat_tree_id, group_id))
        return group.operations if group is not None and isinstance(group.operations, SatOperations) else None
