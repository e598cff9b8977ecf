# SPDX-License-Identifier: GPL-2.0-only
"""Endpoints on another driver than an emulated network: what a driver on real sockets needs is what stands here."""

import random
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from uetproto.api import fi, verbs
from uetproto.api.fi.node import FiNode
from uetproto.api.node import LocalNode, NodePlace
from uetproto.api.verbs.node import VerbsNode
from uetproto.engine.config import PdsConfig, SesConfig
from uetproto.engine.contract import MICROSECOND, EndpointDriver
from uetproto.engine.fep import Fep
from uetproto.engine.roce.config import RoceConfig
from uetproto.engine.roce.hca import Hca
from uetproto.engine.roce.qp import bring_up_steps
from uetproto.framing.framer import LowerHeaders, SplitFramer
from uetproto.framing.roce import RoceFramer
from uetproto.framing.uet import Encapsulation, UetFramer

A, B = 0x0A000001, 0x0A000002
Wires = dict[int, deque[tuple[LowerHeaders, bytes]]]


class SocketDriver:
    """One local node and its queue of datagrams, as a UDP socket has it; time is what the loop counts.

    `others` are the drivers at the far ends: each turn of the loop gives them one too.
    """

    def __init__(self, node: LocalNode, framer: SplitFramer, wires: Wires) -> None:
        self.node, self.framer, self.wires = node, framer, wires
        self.wires[node.address] = deque()
        self.now = 0
        self.closed = False
        self.idle = None  # nobody knows what the far end does
        self.others: list[SocketDriver] = []
        self.soon: deque[Callable[[], None]] = deque()
        node.driver = self

    def submit(self, node: str, work: Any) -> None:
        assert node == self.node.name
        self.node.engine.submit(work, self.now)
        self._turn()

    def call_soon(self, action: Callable[[], None]) -> None:
        self.soon.append(action)

    def wake(self) -> None:
        """The loop checks its condition after every turn anyway."""

    def wait(self, condition: Callable[[], bool], timeout: int | None = None, burst: int = 0) -> bool:
        end = None if timeout is None else self.now + timeout
        while not condition():
            if end is not None and self.now >= end:
                return False
            for driver in (self, *self.others):
                driver.now = self.now + MICROSECOND
                driver._turn()
        return True

    def close(self, drain: bool = True) -> None:
        self.closed = True

    def _turn(self) -> None:
        """Socket in, timers, socket out, events."""
        engine, arrived = self.node.engine, self.wires[self.node.address]
        while arrived:
            lower, transport = arrived.popleft()
            packet = self.framer.open(transport, lower)
            if packet is not None:
                engine.receive(packet, self.now)
        for packet in engine.poll(self.now):
            lower = LowerHeaders(packet.src, packet.dst, packet.entropy)
            self.wires[packet.dst].append((lower, self.framer.seal(packet)))
        for event in engine.events():
            self.node.tell(event)
        while self.soon:
            self.soon.popleft()()


def joined(nodes: Sequence[LocalNode], framers: Sequence[SplitFramer]) -> list[SocketDriver]:
    wires: Wires = {}
    drivers = [SocketDriver(node, framer, wires) for node, framer in zip(nodes, framers, strict=True)]
    for driver in drivers:
        driver.others = [other for other in drivers if other is not driver]
    return drivers


def fabrics() -> list[fi.Fabric]:
    """Two fabrics, one at each end, each with its own node only."""
    pds, ses = PdsConfig(), SesConfig()
    nodes = []
    for name, address in (("a", A), ("b", B)):
        fep = Fep(address, random.Random(name), pds=pds, ses=ses)
        nodes.append(FiNode(NodePlace(name, address, 4), fep, pds, ses))
    drivers = joined(nodes, [UetFramer(node.address, 4, Encapsulation()) for node in nodes])
    return [fi.Fabric.driven(driver, {node.name: node}) for driver, node in zip(drivers, nodes, strict=True)]


def networks() -> list[verbs.Network]:
    nodes = [VerbsNode(NodePlace(name, at, 4), Hca(at, config=RoceConfig())) for name, at in (("a", A), ("b", B))]
    drivers = joined(nodes, [RoceFramer(node.address, 4, node.config) for node in nodes])
    return [
        verbs.Network.driven(driver, {node.name: node}, random.Random(node.name))
        for driver, node in zip(drivers, nodes, strict=True)
    ]


def test_an_emulated_network_is_a_driver() -> None:
    with fi.Fabric() as fabric, verbs.Network() as network:
        drivers: list[EndpointDriver] = [fabric.world, network.world]
        assert [driver.idle for driver in drivers] == [True, True]
        assert (fabric.driver, network.driver) == (fabric.world, network.world)


def test_fi_write() -> None:
    here, there = fabrics()
    a, b = here.endpoint("a"), there.endpoint("b")
    a.av.insert(b.address.pack())  # as the two ends tell each other out of band
    memory = bytearray(20_000)
    region = b.domain.mr_reg(memory)
    a.write(bytes(range(200)) * 100, b.address, 0, region.key, context="w")
    (entry,) = a.cq.sread(timeout="1 s")
    assert (entry.ok, entry.op_context) == (True, "w")
    assert memory == bytes(range(200)) * 100
    assert 0 < here.now < 10**12


def test_fi_messages() -> None:
    """Sends and their receives, one of them fenced."""
    here, there = fabrics()
    a, b = here.endpoint("a"), there.endpoint("b")
    a.av.insert(b.address)
    b.av.insert(a.address)
    first, second = bytearray(100), bytearray(5000)
    b.recv(first)
    b.recv(second)
    a.send(b"first", b.address)
    a.send(b"second" * 800, b.address, flags=fi.Flag.FENCE)
    assert [entry.ok for entry in a.cq.sread(2, threshold=2)] == [True, True]
    assert [entry.ok for entry in b.cq.sread(2, threshold=2)] == [True, True]
    assert (first[:5], second[:4800]) == (b"first", b"second" * 800)


def test_a_wait_ends_in_time() -> None:
    here, _ = fabrics()
    a = here.endpoint("a")
    a.recv(bytearray(8))
    assert a.cq.sread(timeout="30 us") == []
    assert here.now == 30 * MICROSECOND
    assert here.run("50 us")
    assert here.now == 50 * MICROSECOND
    with pytest.raises(fi.FiError, match="until: None is not legal; legal: an instant, or a condition"):
        here.run()
    here.close()
    with pytest.raises(fi.FiError, match="the fabric is closed"):
        here.domain("a")


def test_verbs_write() -> None:
    here, there = networks()
    ends = []
    for network, name in ((here, "a"), (there, "b")):
        pd = network.device(name).alloc_pd()
        ends.append((pd, pd.create_qp(verbs.QpType.RC, pd.device.create_cq())))
    (pd, qp), (far_pd, far) = ends
    for one, other, psn, rq_psn in ((qp, far, 5, 9), (far, qp, 9, 5)):
        device = one.device
        wanted = {
            "pkey_index": 0, "port": 1, "access_flags": verbs.ALL, "av": verbs.AddressVector(other.device.node.address),
            "dest_qpn": other.qp_num, "sq_psn": psn, "rq_psn": rq_psn,
        }  # fmt: skip
        for state, values in bring_up_steps(one.qp_type, device.config, wanted):
            one.modify(state, **values)
    source, target = pd.reg_mr(bytearray(b"gradient" * 2000)), far_pd.reg_mr(bytearray(16_000))
    qp.post_send(verbs.Opcode.RDMA_WRITE, source, remote_addr=target.addr, rkey=target.rkey, wr_id=7)
    (entry,) = qp.send_cq.wait(timeout="1 s")
    assert (entry.status, entry.wr_id) == (verbs.Status.SUCCESS, 7)
    assert bytes(target) == b"gradient" * 2000
    assert here.now > 0
