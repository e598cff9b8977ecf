# SPDX-License-Identifier: GPL-2.0-only
"""This module has aggregation nodes, joined by a wire that a test controls, and hosts that are only names."""

from collections import deque
from collections.abc import Callable, Iterable

from uetproto.engine.contract import MILLISECOND
from uetproto.engine.sharp.config import SharpConfig
from uetproto.engine.sharp.management import Quota, TrapRaised
from uetproto.engine.sharp.messages import JoinRequest, LockBody, SharpMessage, parse
from uetproto.engine.sharp.node.aggregation_node import SharpNode
from uetproto.wire.headers.sharp import SharpOpcode

JOB, GROUP, LLT, SAT = 5, 7, 0, 63
SPINE, LEAF_A, LEAF_B = "S", "A", "B"
HOSTS = ("H0", "H1", "H2", "H3")
LEAF_OF = {"H0": LEAF_A, "H1": LEAF_A, "H2": LEAF_B, "H3": LEAF_B}
AN_IDS = {LEAF_A: 9, LEAF_B: 10, SPINE: 11}


def read(data: bytes) -> SharpMessage:
    """Return a message, and assert that it is valid."""
    message = parse(data)
    assert isinstance(message, SharpMessage), message
    return message


class Net:
    """The network of sharp.md §7 has hosts H0, H1 on leaf A, H2, H3 on leaf B, and spine S above; LLT 0 and SAT 63 have
    the same shape.

    A connection of tree t with child c has the number 10·t + c + 1 at the node above, that with the parent 100 + t at
    the node below. Every connection is reliable and in order; `keep` says what arrives all the same.
    """

    def __init__(self, config: SharpConfig | None = None, *, quota: Quota | None = None) -> None:
        self.config = config or SharpConfig(lab_radix=2, heartbeat=0, mgid="ib")
        self.now = 0
        self.nodes = {name: SharpNode(an_id, self.config) for name, an_id in AN_IDS.items()}
        self.ends: dict[tuple[str, int], tuple[str, int]] = {}
        """(node, connection) → (who is there, its connection)."""
        self.wire: deque[tuple[str, str, int, bytes, int, int]] = deque()
        self.log: list[tuple[str, str, bytes]] = []
        """(from, to, message), as delivered."""
        self.inbox: dict[str, list[bytes]] = {host: [] for host in HOSTS}
        self.multicasts: list[tuple[int, bytes]] = []
        self.traps: list[tuple[str, TrapRaised]] = []
        self.acknowledge = True
        self.keep: Callable[[str, str, bytes], bool] = lambda source, target, data: True
        self.control = dict.fromkeys(HOSTS, 0)
        quota = quota or Quota(JOB, LLT, osts=51, groups=51, user_data=128)
        for tree in (LLT, SAT):
            for leaf, hosts in ((LEAF_A, HOSTS[:2]), (LEAF_B, HOSTS[2:])):
                self._tree(leaf, tree, dict(enumerate(hosts)), 1, parent=True)
            self._tree(SPINE, tree, {0: LEAF_A, 1: LEAF_B}, 2, parent=False)
            for name, node in self.nodes.items():
                node.set_quota(quota._replace(tree_id=tree, is_root=name == SPINE))

    def _tree(self, name: str, tree: int, children: dict[int, str], depth: int, *, parent: bool) -> None:
        up = 100 + tree
        conns = {child: 10 * tree + child + 1 for child in children}
        for child, below in children.items():
            self.ends[name, conns[child]] = (below, up)
            self.ends[below, up] = (name, conns[child])
        self.nodes[name].set_tree(
            tree, mode=int(tree == SAT), llt_tree_id=LLT if tree == SAT else 0xFFFF, parent=up if parent else None,
            children=conns, depth=depth,
        )  # fmt: skip

    # The wire

    def send(self, host: str, data: bytes | SharpMessage) -> None:
        """Send a message of a host, on the connection of the tree that the message names."""
        packed = data.pack() if isinstance(data, SharpMessage) else data
        tree = int.from_bytes(packed[2:4], "big")
        node, conn = self.ends[host, 100 + (tree if tree in (LLT, SAT) else LLT)]
        self.wire.append((host, node, conn, packed, 0, 0))

    def collect(self) -> None:
        """Put on the wire what the nodes send."""
        for name, node in self.nodes.items():
            for out in node.poll(self.now):
                if out.conn is None:
                    self.multicasts.append((out.group, out.data))
                else:
                    target, conn = self.ends[name, out.conn]
                    self.wire.append((name, target, conn, out.data, out.conn, out.handle))
            self.traps += [(name, trap) for trap in node.events()]

    def step(self) -> None:
        """Deliver the oldest message."""
        source, target, conn, data, own, handle = self.wire.popleft()
        if not self.keep(source, target, data):
            return
        self.log.append((source, target, data))
        if target in self.inbox:
            self.inbox[target].append(data)
        else:
            self.nodes[target].message(conn, data, self.now)
        if handle and self.acknowledge:
            self.nodes[source].acknowledged(own, handle, self.now)

    def run(self) -> None:
        """Deliver messages until none is on its way; no time passes."""
        self.collect()
        while self.wire:
            self.step()
            self.collect()

    def wait(self, milliseconds: float) -> None:
        """Let time pass; timers fire when they are due."""
        end = self.now + int(milliseconds * MILLISECOND)
        self.run()
        while True:
            due = [at for node in self.nodes.values() if (at := node.deadline()) is not None and at <= end]
            if not due:
                break
            self.now = max(self.now, min(due))
            self.run()
        self.now = end
        self.run()

    # What hosts do

    def join(
        self, hosts: Iterable[str] = HOSTS, *, tree: int = LLT, size: int | None = None, group: int = GROUP
    ) -> None:
        """Send JOIN_REQ of each host, and deliver everything that follows."""
        hosts = tuple(hosts)
        for host in hosts:
            rank = HOSTS.index(host)
            want = 2 if tree == LLT else 4
            body = JoinRequest(size or len(hosts), want, 128, 3, 0x11, (rank,)).pack()
            self.send(host, SharpMessage(SharpOpcode.GROUP_JOIN_REQ, tree, JOB, group, self._seq(host), body=body))
        self.run()

    def leave(self, hosts: Iterable[str] = HOSTS, *, tree: int = LLT, group: int = GROUP) -> None:
        """Send GROUP_LEAVE_REQ of each host, and deliver everything that follows."""
        for host in hosts:
            self.send(host, SharpMessage(SharpOpcode.GROUP_LEAVE_REQ, tree, JOB, group, self._seq(host)))
        self.run()

    def lock(
        self, hosts: Iterable[str] = HOSTS, *, batch: int = 0xFFFF, target: int = 0xFFFF, group: int = GROUP
    ) -> None:
        """Send LOCK_REQ of each host on the LLT, and deliver everything that follows."""
        for host in hosts:
            body = LockBody(SAT, batch, 0, 100, target).pack()
            self.send(host, SharpMessage(SharpOpcode.LOCK_REQ, LLT, JOB, group, self._seq(host), body=body))
        self.run()

    def _seq(self, host: str) -> int:
        self.control[host] += 1
        return self.control[host] - 1

    def received(self, host: str) -> list[SharpMessage]:
        """Return the messages that a host has received since the last call."""
        messages, self.inbox[host] = [read(data) for data in self.inbox[host]], []
        return messages

    def inbox_of(self, host: str, group: int) -> list[SharpMessage]:
        """Return the messages of one group that a host has received."""
        return [message for message in map(read, self.inbox[host]) if message.group_id == group]

    def clear(self) -> None:
        """Forget what has been delivered."""
        self.log.clear()
        for host in HOSTS:
            self.inbox[host].clear()
        self.traps.clear()
