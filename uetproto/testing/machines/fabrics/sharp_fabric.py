# SPDX-License-Identifier: GPL-2.0-only
"""This module has a SHARP fabric with real aggregation nodes, agents, a manager and hosts, on a wire in memory
(sharp.md §7)."""

from collections import deque
from collections.abc import Sequence

from uetproto.engine.sharp.config import SharpConfig
from uetproto.engine.sharp.contract import Element
from uetproto.engine.sharp.host.endpoint import SharpHost
from uetproto.engine.sharp.host.work import Attachment, JoinGroup
from uetproto.engine.sharp.manager.agent import SharpAgent
from uetproto.engine.sharp.manager.aggregation_manager import SharpManager
from uetproto.engine.sharp.manager.grants import JobGrant
from uetproto.engine.sharp.manager.trees import FabricGraph, FabricSwitch
from uetproto.engine.sharp.node.aggregation_node import SharpNode
from uetproto.engine.sharp.options import SharpOptions
from uetproto.testing.machines.picture import DrawnMessage
from uetproto.testing.machines.world import WorldFailure
from uetproto.wire.headers.sharp import SharpOpcode
from uetproto.wire.inside import message_of
from uetproto.wire.words.sharp import sharp_words

A, B, S = 0xA, 0xB, 0x5
HOSTS = (100, 101, 102, 103)
SEVEN = FabricGraph([
    FabricSwitch(guid=A, ports={9: S}, hosts={1: 100, 2: 101}),
    FabricSwitch(guid=B, ports={9: S}, hosts={1: 102, 2: 103}),
    FabricSwitch(guid=S, ports={1: A, 2: B}, hosts={}),
])  # fmt: skip
KEY = 0xFEED

NAMES = {A: "leaf A", B: "leaf B", S: "spine"} | {address: f"host {rank}" for rank, address in enumerate(HOSTS)}
"""Names of the elements in ladders."""
_TONES = {
    SharpOpcode.AGG_REQ: "data", SharpOpcode.AGG_RESULT: "ack", SharpOpcode.NACK: "nack", SharpOpcode.ERROR: "bad",
}  # fmt: skip


def sharp_text(data: bytes, again: bool = False) -> tuple[str, str]:
    """Return a SHARP message in words, and its tone in a ladder; `again`: it is a copy."""
    layers = message_of(data, 0, range(len(data), len(data) + 1)).layers
    text = " ".join(filter(None, (sharp_words(layer.form, layer.values) for layer in layers)))
    tone = "retx" if again else _TONES.get(layers[0].values["opcode"], "control")
    return text.removeprefix("SHARP "), tone


class SharpWirePorts:
    """This class has the connections of one station."""

    def __init__(self, wire: "SharpWire", address: int) -> None:
        self.wire = wire
        self.address = address
        self.next = 0x10
        self.open: set[int] = set()

    def allocate(self) -> int:
        self.next += 1
        self.open.add(self.next)
        return self.next

    def connect(
        self, conn: int, *, address: int, remote: int, own_psn: int, their_psn: int, now: int, flow_label: int = 0
    ) -> None:  # fmt: skip
        self.wire.ends[self.address, conn] = (address, remote)

    def release(self, conn: int, now: int) -> None:
        self.open.remove(conn)
        self.wire.ends.pop((self.address, conn), None)

    def join(self, group: int, qkey: int, now: int) -> None:
        self.wire.members.setdefault(group, []).append(self.address)


class SharpWire:
    """The wire is reliable and in order, but for multicast messages, which `lose` may drop."""

    def __init__(
        self, fabric: FabricGraph = SEVEN, config: SharpConfig | None = None, options: SharpOptions | None = None,
    ) -> None:  # fmt: skip
        self.config = config or SharpConfig(lab_radix=2, llt_trees=2, heartbeat=0)
        self.options = options or SharpOptions()
        self.now = 0
        self.elements: dict[int, Element] = {}
        self.ports: dict[int, SharpWirePorts] = {}
        self.ends: dict[tuple[int, int], tuple[int, int]] = {}
        self.members: dict[int, list[int]] = {}
        self.lose: set[int] = set()
        """Addresses that multicast does not reach."""
        self.log: list[tuple[int, int, bytes]] = []
        self.queue: deque[tuple[int, int, int | None, bytes, int, int]] = deque()
        self.nodes: dict[int, SharpNode] = {}
        self.agents: dict[int, SharpAgent] = {}
        self.dead: set[int] = set()
        for guid, switch in fabric.switches.items():
            self.ports[guid] = SharpWirePorts(self, guid)
            if switch.has_an:
                self.nodes[guid] = self.elements[guid] = SharpNode(guid, self.config)
                self.agents[guid] = SharpAgent(self.nodes[guid], self.ports[guid], KEY)
        self.manager = SharpManager(fabric, self.mad, self.config, self.options, KEY)
        self.hosts: dict[int, SharpHost] = {}
        self.happened: dict[int, list[object]] = {}

    def mad(self, an: int, data: bytes) -> bytes:
        return b"" if an in self.dead else self.agents[an].handle(data, self.now)

    def host(self, address: int, rank: int) -> SharpHost:
        self.ports[address] = SharpWirePorts(self, address)
        self.hosts[address] = self.elements[address] = SharpHost(rank, self.config, self.options)
        self.happened[address] = []
        return self.hosts[address]

    def attach(self, address: int, grant: JobGrant, rank: int) -> tuple[Attachment, Attachment | None]:
        """Connect a host to its leaf, on the LLT and the SAT."""
        rail = grant.rails[0]
        made = []
        for place in (rail.llt[rank], *rail.sat[rank : rank + 1]):
            ports = self.ports[address]
            conn = ports.allocate()
            ports.connect(conn, address=place.an, remote=place.conn, own_psn=0, their_psn=0, now=self.now)
            assert self.manager.connect(place, address=address, remote=conn) == 0
            made.append(Attachment(place.tree_id, conn))
        return made[0], made[1] if len(made) > 1 else None

    def join(self, grant: JobGrant, addresses: Sequence[int] = HOSTS, group: int = 7, multicast: bool = False) -> None:
        """Make all hosts of a job members of a group."""
        for rank, address in enumerate(addresses):
            host = self.host(address, rank)
            llt, sat = self.attach(address, grant, rank)
            host.submit(JoinGroup(
                group_id=group, job_id=grant.job_id, group_size=len(addresses), llt=llt, sat=sat, multicast=multicast
            ), self.now)  # fmt: skip
        self.run()

    def run(self, until: int = 0) -> None:
        """Run until nothing is on its way, or until a time."""
        while True:
            self._collect()
            while self.queue:
                source, target, conn, data, own, handle = self.queue.popleft()
                self.log.append((source, target, data))
                self.elements[target].message(conn, data, self.now)
                if conn is not None:
                    self.elements[source].acknowledged(own, handle, self.now)
                self._collect(source, target)
            due = [at for one in self.elements.values() if (at := one.deadline()) is not None and at <= until]
            if not due:
                self.now = max(self.now, until)
                return
            self.now = max(self.now, min(due))

    def _collect(self, *addresses: int) -> None:
        """Take what these elements, or all, send."""
        for address in addresses or tuple(self.elements):
            element = self.elements[address]
            for out in element.poll(self.now):
                if out.conn is None:
                    for member in self.members.get(out.group, []):
                        if member not in self.lose:
                            self.queue.append((address, member, None, out.data, 0, 0))
                elif (address, out.conn) in self.ends and address not in self.dead:
                    target, remote = self.ends[address, out.conn]
                    if target not in self.dead:
                        self.queue.append((address, target, remote, out.data, out.conn, out.handle))
            if address in self.happened:
                self.happened[address] += element.events()


Link = tuple[int, int, int | None, int]
"""From, to, and the connection as either calls it; None: multicast."""


class DisorderedSharpWire(SharpWire):
    """This wire delivers messages and acknowledgements one by one, in the order that the caller asks for."""

    def __init__(self, config: SharpConfig, options: SharpOptions) -> None:
        super().__init__(config=config, options=options)
        self.links: dict[Link, deque[tuple[bytes, int]]] = {}
        self.acks: list[tuple[int, int, int]] = []
        """From whom, on which connection, and the handle."""
        self.old: list[tuple[Link, bytes]] = []
        self.messages: list[tuple[int, Link, bytes, bool]] = []
        """Time, connection and content of each message that arrived, and whether it came once more."""

    def collect(self) -> None:
        """Take what the elements send."""
        self._collect(*(address for address in self.elements if address not in self.dead))
        while self.queue:
            source, target, conn, data, own, handle = self.queue.popleft()
            self.links.setdefault((source, target, conn, own), deque()).append((data, handle))

    def ready(self) -> list[Link]:
        """Return the connections with something on its way."""
        return [link for link, messages in self.links.items() if messages]

    def step(self, link: Link, *, acknowledge: bool = True) -> None:
        """Deliver the oldest message of a connection."""
        source, target, conn, own = link
        data, handle = self.links[link].popleft()
        if target in self.dead:
            return
        self.old.append((link, data))
        self.messages.append((self.now, link, data, False))
        self.elements[target].message(conn, data, self.now)
        if conn is not None and handle:
            self.acks.append((source, own, handle))
        if acknowledge:
            self.acknowledge()
        self.collect()

    def again(self, link: Link, data: bytes) -> None:
        """Deliver a message once more."""
        self.messages.append((self.now, link, data, True))
        self.elements[link[1]].message(link[2], data, self.now)
        self.collect()

    def drawn(self) -> list[DrawnMessage]:
        """Return the messages that arrived, as a ladder shows them."""
        return [
            DrawnMessage(time, NAMES[link[0]], NAMES[link[1]], *sharp_text(data, again))
            for time, link, data, again in self.messages
        ]

    def acknowledge(self) -> None:
        """Deliver all acknowledgements."""
        acks, self.acks = self.acks, []
        for address, conn, handle in acks:
            if address not in self.dead:
                self.elements[address].acknowledged(conn, handle, self.now)

    def settle(self) -> None:
        """Deliver everything; no time passes."""
        self.collect()
        for _ in range(100_000):
            links = self.ready()
            if not links:
                break
            self.step(links[0])
        if self.ready():
            raise WorldFailure("SHARP-QUIET", "messages never end")
        self.acknowledge()
        self.collect()

    def wait(self, duration: int) -> None:
        """Let time pass; timers fire when they are due."""
        end = self.now + duration
        self.settle()
        while True:
            due = [
                at for address, one in self.elements.items()
                if address not in self.dead and (at := one.deadline()) is not None and at <= end
            ]  # fmt: skip
            if not due:
                break
            self.now = max(self.now, min(due))
            self.settle()
        self.now = end

    def kill(self, address: int) -> None:
        """Make an element say and hear no more; the carriers of its neighbours tell them."""
        self.dead.add(address)
        for link, messages in self.links.items():
            if address in link[:2]:
                messages.clear()
        for (here, conn), (there, _) in list(self.ends.items()):
            if there == address and here not in self.dead:
                self.elements[here].lost(conn, self.now)
        self.collect()
