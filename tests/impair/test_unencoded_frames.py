# SPDX-License-Identifier: GPL-2.0-only
"""Frames that are not encoded: the same times, counters and results as with bytes (architecture.md, rule 4)."""

from typing import Any

import pytest

from tests.support.emulator.network_groups import GROUP
from uetproto.api.fi.emulated import FiNetwork
from uetproto.api.fi.errors import FiError
from uetproto.api.fi.node import NodeSpec as FiSpec
from uetproto.api.network import EmulatedNetwork, NetworkOptions, Pfc, Red
from uetproto.api.verbs.emulated import VerbsNetwork
from uetproto.api.verbs.errors import VerbsError
from uetproto.api.verbs.node import VerbsNode
from uetproto.engine.config import PdsConfig, SesConfig
from uetproto.engine.contract import Datagram, TrafficClass
from uetproto.engine.roce.config import RoceConfig
from uetproto.engine.roce.contract import (
    Access,
    AddressVector,
    ModifyQp,
    Opcode,
    PostRecv,
    PostSend,
    QpType,
    RocePacket,
    Sge,
    WorkCompletion,
)
from uetproto.engine.roce.qp import bring_up_steps
from uetproto.framing.roce import RoceFramer
from uetproto.framing.uet import Encapsulation, UetFramer
from uetproto.impair.unencoded_frames import UnencodedFrame, UnencodedFramer, size_of

QKEY, SLOT = 7, 4136
A, B = 0x0A000001, 0x0A000002


def world(wire: str, size: int = 6, **given: Any) -> VerbsNetwork:
    options: dict[str, Any] = {
        "topology": "leaf-spine", "shape": {"hosts_per_leaf": 2, "spines": 2}, "metered": True, "wire": wire,
        "queue_capacity": 20_000,
    }  # fmt: skip
    return VerbsNetwork(
        [f"n{i}" for i in range(size)], NetworkOptions(**{"seed": 3} | options | given), config=RoceConfig()
    )


class Ud:
    """A node with a queue pair of type UD that has joined the group."""

    def __init__(self, made: VerbsNetwork, node: VerbsNode, receives: int = 64) -> None:
        self.node, self.hca = node, node.hca
        pd = self.hca.alloc_pd()
        self.memory = bytearray(receives * SLOT)
        region = self.hca.reg_mr(pd, self.memory, access=Access.LOCAL_WRITE)
        self.data = bytearray(range(256)) * 64
        self.source = self.hca.reg_mr(pd, self.data)
        self.number = self.hca.create_qp(QpType.UD, pd)
        for state, attributes in bring_up_steps(
            QpType.UD, self.hca.config, {"pkey_index": 0, "port": 1, "qkey": QKEY, "sq_psn": 0}
        ):
            self.hca.submit(ModifyQp(qp_num=self.number, state=state, attributes=attributes), 0)
        for slot in range(receives):
            where = (Sge(slot * SLOT, SLOT, region.lkey),)
            self.hca.submit(PostRecv(qp_num=self.number, wr_id=slot, sg_list=where), 0)
        self.hca.attach_mcast(self.number, GROUP)
        made.join(GROUP, node.name)
        self.events: list[tuple[int, Any]] = []
        node.listeners.append(lambda event: self.events.append((node.now, event)))

    def multicast(self, number: int, size: int) -> None:
        self.node.submit(PostSend(
            qp_num=self.number, wr_id=number, opcode=Opcode.SEND_WITH_IMM, imm_data=number,
            sg_list=(Sge(number, size, self.source.lkey),), ah=AddressVector(GROUP), remote_qpn=0xFFFFFF,
            remote_qkey=QKEY,
        ))  # fmt: skip


def told(made: EmulatedNetwork) -> dict[str, Any]:
    """All that is counted."""
    network = made.network
    return {
        "now": made.clock.now,
        "hops": [(h.source, h.target, h.link.frames, h.link.bytes, h.payload) for h in network.hops],
        "queues": {name: queue.peak for name, queue in (network.queues | network.trunks).items()},
        "switches": {
            name: (s.forwarded, s.dropped, s.unknown, s.group_ports, s.group_frames, s.copies)
            for name, s in network.switches.items()
        },
        "faults": {name: dict(port.done) for name, port in network.faults.items()},
        "nics": {name: (nic.sent, nic.received, nic.repeated) for name, nic in network.nics.items()},
    }  # fmt: skip


@pytest.mark.parametrize("red", [None, Red(kmin=2000, kmax=9000, pmax=0.5)])
@pytest.mark.parametrize("faults", [{}, {"drop": 0.1, "duplicate": 0.1, "reorder": 0.2, "delay": 0.1}])
def test_multicast(faults: dict[str, float], red: Red | None) -> None:
    """Queues overflow: all roots send at once. Every event, every byte received, every counter."""
    found = []
    for wire in ("bytes", "objects"):
        made = world(wire, faults=faults, red=red)
        ends = [Ud(made, node) for node in made.nodes.values()]
        for number in range(8):
            for end in ends:
                end.multicast(number, 1000 + 397 * number)
        made.wait(lambda: False)
        found.append((told(made), [end.events for end in ends], [bytes(end.memory) for end in ends],
                      [end.hca.counters for end in ends]))  # fmt: skip
    assert found[0] == found[1]
    assert found[0][0]["now"] > 0
    dropped = sum(counts[1] for counts in found[0][0]["switches"].values())
    received = sum(isinstance(event, WorkCompletion) and event.receive for events in found[0][1] for _, event in events)
    assert dropped > 0
    assert received > 100


def test_a_sender_may_change_its_buffer() -> None:
    """Once the send is complete, although the frame is still under way."""
    made = world("objects")
    ends = [Ud(made, node) for node in made.nodes.values()]
    ends[0].multicast(0, 1000)
    assert any(isinstance(event, WorkCompletion) for _, event in ends[0].events)
    ends[0].data[:1000] = bytes(1000)
    made.wait(lambda: False)
    assert ends[1].memory[40:1040] == (bytes(range(256)) * 4)[:1000]


@pytest.mark.parametrize("wire", ["bytes", "objects"])
def test_those_who_only_count(wire: str) -> None:
    """The engine sees nothing of the group: no receive is used; times and links are the same."""
    both = []
    for diverts in (False, True):
        made = world(wire)
        ends = [Ud(made, node) for node in made.nodes.values()]
        seen: list[int] = []
        if diverts:
            for end in ends:
                made.network.nics[end.node.name].divert(GROUP, lambda packet, now, seen=seen: seen.append(now))
        for number in range(4):
            ends[0].multicast(number, 4096)
        made.wait(lambda: False)
        receives = [sum(event.receive for _, event in end.events) for end in ends]
        assert receives == [4] + [0 if diverts else 4] * 5  # the sender's own copies never leave its adapter
        both.append(told(made))
        if diverts:
            assert len(seen) == sum(nic.received for nic in made.network.nics.values()) > 0
            made.network.nics[ends[1].node.name].divert(GROUP, None)
            before = told(made)
            ends[0].multicast(0, 64)
            made.wait(lambda: False)
            assert sum(event.receive for _, event in ends[1].events) == 1
            both[-1] = before
    assert both[0] == both[1]


def test_uet() -> None:
    """Frames of all classes and lengths over a network that loses and reorders."""
    found = []
    for wire in ("bytes", "objects"):
        made = FiNetwork(
            {"a": FiSpec(), "b": FiSpec()},
            NetworkOptions(wire=wire, metered=True, faults={"drop": 0.1, "reorder": 0.1}, seed=1),
            how=Encapsulation(), pds=PdsConfig(), ses=SesConfig(),
        )  # fmt: skip
        framers = [nic.framer for nic in made.network.nics.values()]
        assert all(isinstance(framer, UnencodedFramer) is (wire == "objects") for framer in framers)
        frames = [framers[0].frame(Datagram(
            made.nodes["a"].address, made.nodes["b"].address, bytes.fromhex("1980ffff00012000000001000001090001000000"),
            bytes(size), kind, entropy=5)) for kind in TrafficClass for size in (24, 1000)]  # fmt: skip
        sizes = [len(frame) if wire == "bytes" else size_of(frame) for frame in frames]
        for frame in frames:
            made.network.links["a"].send(frame)
        arrived = [framers[1].packet(frame) for frame in frames]
        made.clock.run()
        found.append((sizes, arrived, told(made)))
    assert found[0] == found[1]


@pytest.mark.parametrize("version", [4, 6])
def test_what_arrives(version: int) -> None:
    """Field by field as of a frame that was encoded and decoded; somebody else's is counted."""
    src, dst = (A, B) if version == 4 else (0xFD00 << 112 | A, 0xFD00 << 112 | B)
    group = GROUP if version == 4 else 0xFF0E << 112 | 1
    here, there, other = (RoceFramer(address, version, RoceConfig()) for address in (src, dst, src + 9))
    objects = [UnencodedFramer(framer) for framer in (here, there, other)]
    for target in (dst, group):
        for kind in TrafficClass:
            for first in (0x04, 0x64, 0x81):
                packet = RocePacket(
                    src, target, bytes([first, *bytes(11)]), bytes(20), kind, 0xC001, ip_version=version
                )
                frame, encoded = objects[0].frame(packet), here.frame(packet)
                assert size_of(frame) == len(encoded)
                assert encoded.startswith(frame)
                assert objects[1].packet(frame) == there.packet(encoded)
    ours = objects[0].frame(RocePacket(src, dst, bytes(12), ip_version=version))
    assert objects[2].packet(ours) is None
    assert objects[2].foreign == 1
    assert type(ours) is UnencodedFrame


@pytest.mark.parametrize("capable", [True, False])
@pytest.mark.parametrize("crc", [True, False])
def test_what_arrives_of_uet(capable: bool, crc: bool) -> None:
    how = Encapsulation(crc=crc)
    here, there = (UetFramer(address, 4, how, ecn_capable=capable) for address in (A, B))
    for kind in TrafficClass:
        packet = Datagram(A, B, bytes.fromhex("1980ffff") + bytes(20), bytes(100), kind, entropy=9)
        frame, encoded = UnencodedFramer(here).frame(packet), here.frame(packet)
        assert size_of(frame) == len(encoded)
        assert UnencodedFramer(there).packet(frame) == there.packet(encoded)


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"capture": "x.pcapng"}, "capture"),
        ({"trimming": True}, "trimming"),
        ({"topology": "switch", "shape": {}, "pfc": Pfc()}, "pfc"),
        ({"faults": {"corrupt": 0.1}}, "faults that corrupt"),
    ],
)
def test_what_needs_bytes(given: dict[str, Any], named: str) -> None:
    with pytest.raises(VerbsError, match=f"wire: objects, with {named} is not legal; legal: bytes"):
        world("objects", **given)


def test_what_needs_bytes_of_uet() -> None:
    with pytest.raises(FiError, match="wire: objects, with faults that trim"):
        FiNetwork(
            {"a": FiSpec(), "b": FiSpec()}, NetworkOptions(wire="objects", faults={"trim": 0.1}, seed=1),
            how=Encapsulation(), pds=PdsConfig(), ses=SesConfig(),
        )  # fmt: skip
    with pytest.raises(VerbsError, match="wire: paper is not legal; legal: bytes, objects"):
        world("paper")
