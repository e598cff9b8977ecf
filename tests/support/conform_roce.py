# SPDX-License-Identifier: GPL-2.0-only
"""A peer of RoCE tests in this process, in virtual time: our adapter behind a link, and its queue pairs."""

import random
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from ipaddress import ip_address
from typing import Any

from uetproto.api import verbs
from uetproto.api.node import NodePlace
from uetproto.api.verbs.node import VerbsNode
from uetproto.cli.live.tested_pairs import TestedPairs, opened_of, work_of
from uetproto.conform.acting import PeerAct
from uetproto.conform.roce.packets import RoceFacts
from uetproto.conform.roce.pairs import CompletedWork, OpenPair, PairWish, PeerSetup, TakenMessage, message_of
from uetproto.engine.contract import MICROSECOND
from uetproto.engine.roce.config import RoceConfig
from uetproto.engine.roce.hca import Hca
from uetproto.examples import conform_driver
from uetproto.framing.roce import RoceFramer

US, PEER, PATH_MTU = "10.0.0.1", "10.0.0.2", 256
US_OF = {4: US, 6: "fe80::1"}
_READS = ("read", "fetch", "cas")
_LATENCY = 5 * MICROSECOND


class RocePeer:
    """Our adapter, driven with frames. A subclass may change those that arrive and those that leave."""

    idle = None
    closed = False

    def __init__(self, version: int = 4, path_mtu: int = PATH_MTU, **config: Any) -> None:
        self.now = 0
        self.settings = RoceConfig(**{"path_mtu": path_mtu, "cnp": True} | config)
        address = int(ip_address(PEER)) if version == 4 else 0xFE80 << 112 | 2
        peer = int(ip_address(US)) if version == 4 else 0xFE80 << 112 | 1
        self.node = VerbsNode(
            NodePlace("peer", address, version), Hca(address, config=self.settings, ip_version=version)
        )
        self.node.driver = self
        self.framer = RoceFramer(address, version, self.settings)
        network = verbs.Network.driven(self, {"peer": self.node}, random.Random(7))
        device = network.device("peer")
        pd, other = self.pd, _ = device.alloc_pd(), device.alloc_pd()
        self.tested = TestedPairs(pd, other, peer, path_mtu)
        self.facts = RoceFacts(
            address=address, local=peer, ip_version=version, path_mtu=path_mtu, pairs=DirectPairs(self)
        )  # fmt: skip

    # The driver of the device

    def submit(self, node: str, work: Any) -> None:
        self.node.engine.submit(work, self.now)
        self._tell()

    def call_soon(self, action: Callable[[], None]) -> None:
        action()

    def wake(self) -> None: ...

    def wait(self, condition: Callable[[], bool], timeout: int | None = None, burst: int = 0) -> bool:
        return condition()

    def close(self, drain: bool = True) -> None: ...

    # Frames

    def deliver(self, frame: bytes) -> None:
        packet = self.framer.packet(frame)
        if packet is not None:
            self.node.engine.receive(packet, self.now)

    def _tell(self) -> None:
        for event in self.node.engine.events():
            self.node.tell(event)

    def poll(self) -> list[bytes]:
        frames = [self.framer.frame(packet) for packet in self.node.engine.poll(self.now)]
        self._tell()
        self.tested.collect()
        return frames


class RoceActor:
    """Implements `roce.acting.PairActor` with the adapter of a peer as the requester, whose queue pair has a number of
    its own."""

    tells = True

    def __init__(self, peer: RocePeer) -> None:
        self.peer = peer
        self.cq: verbs.CQ | None = None

    def begin(self, act: PeerAct) -> None:
        self.end()
        pd, self.act = self.peer.pd, act
        self.cq = pd.device.create_cq()
        self.qp = pd.create_qp(verbs.QpType[act.mode.upper()], self.cq)
        self.first = act.place["peer_psn"]
        number = {**act.place, "length": act.length}
        conform_driver.connect(self.qp, US_OF[self.peer.node.ip_version], number)
        self.made()
        self.entries: list[verbs.WorkCompletion] = []
        self.mr = conform_driver.post(self.qp, act.operation, US_OF[self.peer.node.ip_version], number, act.data)

    def made(self) -> None:
        """Is called once the queue pair is there."""

    def pair(self) -> tuple[int, int] | None:
        return self.qp.qp_num, self.first

    def ended(self) -> str | None:
        assert self.cq is not None
        self.entries += self.cq.poll(8)
        return ("ok" if self.entries[0].ok else "error") if self.entries else None

    def words(self) -> str:
        return str(self.entries)

    def result(self) -> bytes | None:
        return conform_driver.result(self.mr, self.act.operation) if self.act.operation in _READS else None

    def end(self) -> None:
        if self.cq is not None:
            self.qp.destroy()
            self.mr.dereg()
            self.cq.destroy()
            self.cq = None


class DirectPairs:
    """The queue pairs of a peer in this process."""

    def __init__(self, peer: RocePeer, lacks: Sequence[str] = ()) -> None:
        self.peer, self.lacks, self.gone = peer, lacks, False

    def open(self, wishes: Sequence[PairWish], regions: Sequence[int] = ()) -> PeerSetup | str:
        asked = [{"kind": wish.kind, "qp_num": wish.number, "psn": wish.psn, **wish.settings} for wish in wishes]
        told = {"pairs": asked, "regions": [*regions]}
        return opened_of(wishes, self.peer.tested.open(told), len(regions))

    def messages(self, pair: OpenPair) -> list[TakenMessage]:
        found = []
        while (told := self.peer.tested.messages({"qp_num": pair.theirs})["message"]) is not None:
            found.append(message_of(told))
        return found

    def post(self, pair: OpenPair, work: Mapping[str, Any]) -> None:
        told = {name: value.hex() if isinstance(value, bytes) else value for name, value in work.items()}
        self.peer.tested.post({"qp_num": pair.theirs, **told})

    def completed(self, pair: OpenPair) -> list[CompletedWork]:
        found = []
        while (told := self.peer.tested.completed({"qp_num": pair.theirs})["completion"]) is not None:
            found.append(work_of(told))
        return found

    def close(self, opened: PeerSetup) -> None:
        self.peer.tested.close()


class RoceLink:
    """Implements `player.Link` with a peer at the other end."""

    def __init__(self, peer: RocePeer) -> None:
        self.now = 0
        self.peer = peer
        self._arrived: deque[tuple[int, bytes]] = deque()

    def entropy(self, value: int) -> int:
        return value

    def send(self, frame: bytes) -> None:
        self.peer.now = self.now
        self.peer.deliver(frame)

    def _poll(self) -> None:
        self._arrived.extend((self.now + _LATENCY, frame) for frame in self.peer.poll())

    def receive(self, until: int) -> bytes | None:
        self._poll()  # as late as that, so that an adapter may answer several packets at once
        while True:
            if self._arrived and self._arrived[0][0] <= until:
                at, frame = self._arrived.popleft()
                self.now = self.peer.now = max(at, self.now)
                return frame
            due = self.peer.node.engine.deadline()
            if due is None or due > until:
                self.now = self.peer.now = max(until, self.now)
                return None
            self.now = self.peer.now = max(due, self.now)
            self._poll()
