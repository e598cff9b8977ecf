# SPDX-License-Identifier: GPL-2.0-only
"""Bytes from outside never raise, whatever they are; what is dropped is counted (roce.md §8 check 1)."""

import random

import pytest

from tests.support.roce.responder import atomic, packet, reth
from tests.support.roce.world import BASE, QP_B, A, B, World
from tests.support.strategies import mutate
from uetproto.engine.contract import Datagram
from uetproto.engine.roce.config import RoceConfig
from uetproto.engine.roce.contract import Opcode, QpState, QpType, RocePacket
from uetproto.wire.headers.roce import SEQUENCES, Operation

SMALL = RoceConfig(path_mtu=256, cnp=True)
REQUESTS = (
    packet(Operation.SEND_ONLY, 5, payload=b"abcd"), packet(Operation.RDMA_WRITE_FIRST, 5, reth(600), bytes(256)),
    packet(Operation.RDMA_READ_REQUEST, 5, reth(600)), packet(Operation.FETCH_ADD, 5, atomic(swap=1)),
    packet(Operation.SEND_ONLY_WITH_IMMEDIATE, 5, bytes(4), b"abc"),
)  # fmt: skip


@pytest.mark.parametrize("kind", QpType)
@pytest.mark.parametrize("state", [QpState.INIT, QpState.RTR, QpState.RTS, QpState.ERR])
def test_any_bytes(kind: QpType, state: QpState) -> None:
    """Every opcode, behind a plausible BTH or none, with any number of bytes, at both ends."""
    rng = random.Random(kind * 10 + state)
    w = World(kind, a=SMALL)
    for number in range(1500):
        if number % 50 == 0:
            w = World(kind, a=SMALL, up=state in (QpState.RTS, QpState.ERR))
            if state is QpState.ERR:
                w.modify(w.b, QpState.ERR)
            elif not w.b.qp.responder:
                for step in (QpState.INIT, QpState.RTR)[: 2 if state is QpState.RTR else 1]:
                    w.modify(w.b, step, **w.attributes(w.b, w.a, step, 5, {}))
            w.recv(1000)
            if state is QpState.RTS and kind is QpType.RC:
                w.send(Opcode.RDMA_READ, 1000, side=w.b)
                w.send(Opcode.RDMA_WRITE, 1000, side=w.b)
        known = list(SEQUENCES)
        head = bytes([rng.choice(known) if rng.getrandbits(1) else rng.getrandbits(8), 0x40, 255, 255, 0])
        head += QP_B.to_bytes(3, "big") + bytes([rng.choice((0, 0x80)), 0, 0, rng.choice((4, 5, 6, 7))])
        data = head + rng.randbytes(rng.choice((0, 4, 8, 16, 20, 28, 256, 272, 300)))
        if rng.getrandbits(2) == 0:
            data = mutate(data, rng)
        w.b.hca.receive(RocePacket(A, B, data, ecn_marked=bool(rng.getrandbits(1))), w.now)
        w.take()
    assert w.b.hca.counters


@pytest.mark.parametrize("number", range(len(REQUESTS)))
def test_damaged_requests(number: int) -> None:
    """A SEND writes nothing outside its receive, whatever became of it."""
    rng = random.Random(number)
    for _ in range(400):
        w = World(a=SMALL)
        w.recv(1000)
        w.b.hca.receive(RocePacket(A, B, mutate(bytes(REQUESTS[number].header), rng)), 0)
        w.take()
        assert len(w.b.memory) == 1 << 16
        assert number in (1, 2, 3) or w.b.memory[1000:] == bytes((1 << 16) - 1000)
        assert all(event.number == QP_B for event in w.b.events if hasattr(event, "number"))


def test_plain_datagrams_are_taken() -> None:
    """A driver that knows no network header may hand over what it has."""
    w = World(a=SMALL)
    sent = packet(Operation.RDMA_WRITE_ONLY, 5, reth(4, BASE), b"abcd")
    w.b.hca.receive(Datagram(A, B, sent.header), 0)
    assert w.b.memory[:4] == b"abcd"
