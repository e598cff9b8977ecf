# SPDX-License-Identifier: GPL-2.0-only
"""The golden frames of roce.md §5 from the BTH to the pad: what the engine sends, bit by bit."""

from tests.support.roce.world import BASE, World
from uetproto.engine.contract import Datagram
from uetproto.engine.roce.config import RoceConfig
from uetproto.engine.roce.contract import AddressVector, Opcode, PostSend, QpState, QpType, SendFlags

WRITE = "0a70ffff00000012800000050000000020000000000012340000000568656c6c6f000000"
ACK = "1140ffff00000011000000051f000001"
NAK = "1140ffff000000110000000660000001"
COMPARE_SWAP = "1340ffff000000128000000600000000200000080000123411223344556677880102030405060708"
ATOMIC_ACK = "1240ffff00000011000000061f0000020102030405060708"
UD = "6540ffff00ffffff0000000011111111000000770000040764617461"
CNP = "8100ffff400000120000000000000000000000000000000000000000"

NO_LIMIT = RoceConfig(credits=False)


def bytes_of(packet: Datagram) -> str:
    return (bytes(packet.header) + bytes(packet.payload)).hex()


def world() -> World:
    world = World(a=NO_LIMIT)
    world.b.hca.dereg_mr(world.b.mr)
    world.b.mr = world.b.hca.reg_mr(world.b.pd, world.b.memory, addr=BASE, access=15, rkey=0x1234)
    return world


def test_write_and_its_ack() -> None:
    w = world()
    w.a.memory[:5] = b"hello"
    w.send(Opcode.RDMA_WRITE, 5)
    assert bytes_of(w.wire[0]) == WRITE
    w.deliver()
    assert bytes_of(w.wire[0]) == ACK


def test_sequence_error() -> None:
    """PSN 6 is lost, PSN 7 comes: ePSN 6, MSN 1."""
    w = world()
    w.a.memory[:5] = b"hello"
    w.send(Opcode.RDMA_WRITE, 5)
    w.deliver_all()
    w.send(Opcode.RDMA_WRITE, 5)
    w.send(Opcode.RDMA_WRITE, 5)
    w.drop()
    w.deliver()
    assert bytes_of(w.wire[0]) == NAK


def test_compare_and_swap() -> None:
    w = world()
    w.b.memory[8:16] = (0x0102030405060708).to_bytes(8, "little")
    w.a.memory[:5] = b"hello"
    w.send(Opcode.RDMA_WRITE, 5, to=100)
    w.deliver_all()
    w.send(Opcode.ATOMIC_CMP_AND_SWP, 8, to=8, swap=0x1122334455667788, compare_add=0x0102030405060708)
    assert bytes_of(w.wire[0]) == COMPARE_SWAP
    w.deliver()
    assert bytes_of(w.wire[0]) == ATOMIC_ACK
    assert int.from_bytes(w.b.memory[8:16], "little") == 0x1122334455667788


def test_datagram_to_a_group() -> None:
    w = World(QpType.UD, psn=0)
    number = w.a.hca.create_qp(QpType.UD, w.a.pd, number=0x77)
    w.a.number = number
    for state in (QpState.INIT, QpState.RTR, QpState.RTS):
        w.modify(w.a, state, **w.attributes(w.a, w.b, state, 0, {}))
    group = AddressVector(0xFF12 << 112 | 7)
    w.a.hca.submit(PostSend(
        qp_num=number, opcode=Opcode.SEND_WITH_IMM, inline=b"data", send_flags=SendFlags.INLINE, ah=group,
        imm_data=0x407, remote_qpn=0xFFFFFF, remote_qkey=0x11111111,
    ), 0)  # fmt: skip
    assert [bytes_of(packet) for packet in w.a.hca.poll(0)] == [UD]


def test_congestion_notification() -> None:
    """It goes to the queue pair of the sender: B has sent what A saw marked."""
    w = World(a=RoceConfig(cnp=True))
    w.send(Opcode.RDMA_WRITE, 5, side=w.b)
    w.wire[0].ecn_marked = True
    w.deliver()
    notification = next(p for p in w.wire if bytes(p.header)[0] == 0x81)
    assert bytes_of(notification) == CNP
