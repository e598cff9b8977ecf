# SPDX-License-Identifier: GPL-2.0-only
"""An aggregation node sends heartbeats; a child that does not answer them counts as down (sharp.md §3.1)."""

from uetproto.engine.contract import NEVER
from uetproto.engine.sharp.messages import Heartbeat, SharpMessage
from uetproto.engine.sharp.node.contract import NodeServices
from uetproto.engine.sharp.node.states import GroupState
from uetproto.wire.headers.sharp import INVALID_TREE, SharpOpcode


class HeartbeatMonitor:
    """The monitor runs one timer for all connections to children of READY groups."""

    def __init__(self, node: NodeServices) -> None:
        self.node = node
        self.deadline = NEVER
        self.missed: dict[int, int] = {}
        """Maps each connection to the number of heartbeats without an answer."""
        self._counter = 0

    def watch(self) -> None:
        """Start the timer, unless the timer runs or `heartbeat` is 0. A group that becomes READY calls this method."""
        if self.deadline == NEVER:
            self.node.start(self, self.node.config.heartbeat)

    def receive(self, conn: int, message: SharpMessage) -> None:
        """Answer a HEARTBEAT; a HEARTBEAT_RESP resets the number of missed heartbeats of its connection."""
        if message.opcode == SharpOpcode.HEARTBEAT:
            body = Heartbeat(self.node.an_id, Heartbeat.unpack(message.body).counter).pack()
            self.node.send(conn, SharpMessage(
                SharpOpcode.HEARTBEAT_RESP, message.tree_id, message.job_id, message.group_id, message.seq, body=body
            ).pack())  # fmt: skip
        else:
            self.missed.pop(conn, None)

    def expired(self) -> None:
        """Send the next heartbeats; a child that has not answered `heartbeats_missed` of them counts as down."""
        node = self.node
        conns = {
            group.conn_of(child)
            for group in node.groups.values() if group.state is GroupState.READY
            for child in group.members if child not in group.left
        } - node.dead  # fmt: skip
        self.missed = {conn: self.missed.get(conn, 0) for conn in conns}
        for conn in sorted(conns):
            if self.missed[conn] >= node.config.heartbeats_missed:
                node.ports[conn].timeout_events += 1
                node.lost(conn, node.now)
                continue
            self.missed[conn] += 1
            self._counter = self._counter + 1 & 0xFFFFFFFF
            body = Heartbeat(node.an_id, self._counter).pack()
            node.send(conn, SharpMessage(
                SharpOpcode.HEARTBEAT, INVALID_TREE, 0, 0, node.control_seq(conn), body=body
            ).pack())  # fmt: skip
        if conns:
            self.watch()
