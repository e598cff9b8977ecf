# SPDX-License-Identifier: GPL-2.0-only
"""UC and UD (roce.md §11), multicast, congestion notification (§13)."""

from dataclasses import replace
from typing import Any

import pytest

from tests.support.roce.responder import OPERATION_OF, hand, packet, reth
from tests.support.roce.world import BASE, QP_A, QP_B, US, A, B, World
from uetproto.engine.roce.config import RoceConfig
from uetproto.engine.roce.contract import (
    AddressVector,
    Notified,
    Opcode,
    PostSend,
    QpState,
    QpType,
    RocePacket,
    SendFlags,
    Status,
    WcFlags,
)
from uetproto.engine.roce.hca import Hca
from uetproto.engine.roce.packets import keys_match, parse, source_port
from uetproto.engine.roce.segments import MessageStep
from uetproto.errors import LocalError
from uetproto.wire.codec import codec_of
from uetproto.wire.headers.ethernet import IPV4, internet_checksum
from uetproto.wire.headers.roce import Operation, Transport

SMALL = RoceConfig(path_mtu=256, credits=False)
UC = Transport.UC << 5


def uc(step: MessageStep, psn: int, payload: bytes, headers: bytes = b"") -> RocePacket:
    return packet(UC | OPERATION_OF[step], psn, headers, payload, a=0)


# UC ------------------------------------------------------------------------------------------------------------------


def test_uc_sends_complete_when_they_have_left() -> None:
    """§11: no ACK; a = 0."""
    w = World(QpType.UC, a=SMALL)
    w.send(Opcode.RDMA_WRITE, 600, wr_id=4)
    assert [(c.wr_id, c.status, c.byte_len) for c in w.done()] == [(4, Status.SUCCESS, 600)]
    assert [(p.opcode, p.psn, p.a) for p in w.sent()] == [(0x26, 5, 0), (0x27, 6, 0), (0x28, 7, 0)]
    w.deliver_all()
    assert w.sent(w.b) == []


def test_uc_solicits_at_the_end() -> None:
    """§2 se: only on the last packet of a SEND."""
    w = World(QpType.UC, a=SMALL)
    for opcode in (Opcode.SEND, Opcode.RDMA_WRITE, Opcode.RDMA_WRITE_WITH_IMM):
        w.send(opcode, 600, send_flags=SendFlags.SIGNALED | SendFlags.SOLICITED)
    assert [p.se for p in w.sent()] == [0, 0, 1, 0, 0, 0, 0, 0, 1]


def test_uc_error_drops_the_rest_of_the_message() -> None:
    """§11: also what follows in order; the receive is that of the next message."""
    w = World(QpType.UC, a=SMALL)
    w.recv(1000, wr_id=3)
    hand(w, uc(MessageStep.SEND_FIRST, 5, payload=b"a" * 256))
    hand(w, uc(MessageStep.SEND_MIDDLE, 6, payload=b"b" * 252))
    hand(w, uc(MessageStep.SEND_LAST, 7, payload=b"c"))
    assert w.b.hca.counters == {"wrong length": 1, "out of order": 1}
    assert w.received() == []
    hand(w, uc(MessageStep.SEND_ONLY, 8, payload=b"d" * 4))
    assert [(c.wr_id, c.status, c.byte_len) for c in w.received()] == [(3, Status.SUCCESS, 4)]


def test_uc_pulls_a_message_apart() -> None:
    """A driver that takes packet by packet: the completion comes with the last."""
    w = World(QpType.UC, a=SMALL)
    w.a.hca.submit(PostSend(qp_num=QP_A, sg_list=w.a.sge(0, 600)), 0)
    for left in (1, 1):
        assert len(w.take(left)) == 1
        assert w.done() == []
    w.take(1)
    assert len(w.done()) == 1


@pytest.mark.parametrize("lost", [0, 1, 2])
def test_uc_gap_drops_the_message_and_keeps_the_receive(lost: int) -> None:
    """§11: everything is dropped until a FIRST or ONLY comes, which starts afresh at its own PSN."""
    w = World(QpType.UC, a=SMALL)
    w.recv(1000, wr_id=1)
    w.recv(1000, wr_id=2)
    w.a.memory[:600] = b"\x11" * 600
    w.send(Opcode.SEND, 600)
    w.drop(lost)
    w.a.memory[:600] = b"\x22" * 600
    w.send(Opcode.SEND, 600)
    w.deliver_all()
    assert [(c.wr_id, c.byte_len) for c in w.received()] == [(1, 600)]
    assert w.b.memory[:600] == b"\x22" * 600
    assert w.b.qp.state is QpState.RTS


def test_uc_data_of_a_dropped_write_stays() -> None:
    """§11: in part."""
    w = World(QpType.UC, a=SMALL)
    w.a.memory[:600] = b"\x11" * 600
    w.send(Opcode.RDMA_WRITE, 600)
    w.drop(1)
    w.deliver_all()
    assert w.b.memory[:600] == b"\x11" * 256 + bytes(344)


@pytest.mark.parametrize(("sent", "why"), [
    (uc(MessageStep.SEND_ONLY, 5, b"abcd"), "no receive"), (uc(MessageStep.SEND_LAST, 5, b"abcd"), "out of order"),
    (uc(MessageStep.RDMA_WRITE_ONLY, 5, b"abcd", reth(4, r_key=9)), "remote access"),
    (uc(MessageStep.RDMA_WRITE_ONLY, 5, b"abcd", reth(5)), "wrong length"),
    (packet(UC | Operation.RDMA_READ_REQUEST, 5, reth(4)), "out of order"),
    (packet(UC | Operation.ACKNOWLEDGE, 5, bytes(4)), "state"),
])  # fmt: skip
def test_uc_errors_leave_the_queue_pair_up(sent: RocePacket, why: str) -> None:
    """§11: any other error drops the message."""
    w = World(QpType.UC, a=SMALL)
    assert hand(w, sent) == []
    if why == "state":  # responses do not exist on UC
        why = "unknown opcode"
    assert w.b.hca.counters == {why: 1}
    assert w.b.qp.state is QpState.RTS
    w.recv(10)
    hand(w, uc(MessageStep.SEND_ONLY, 6, b"good"))
    assert [c.byte_len for c in w.received()] == [4]


def test_uc_too_long_for_the_receive() -> None:
    """§11, §15 item 7, 12: dropped, the receive is used by the next message; nothing behind it is written."""
    w = World(QpType.UC, a=SMALL)
    w.recv(300, wr_id=1)
    w.a.memory[:600] = b"\x11" * 600
    w.send(Opcode.SEND, 600)
    w.deliver_all()
    assert w.received() == []
    assert w.b.memory[300:600] == bytes(300)
    w.send(Opcode.SEND, 300)
    w.deliver_all()
    assert [(c.wr_id, c.byte_len) for c in w.received()] == [(1, 300)]


def test_uc_write_with_immediate_without_a_receive() -> None:
    """§11: no receive posted drops the message too."""
    w = World(QpType.UC, a=SMALL)
    w.send(Opcode.RDMA_WRITE_WITH_IMM, 600)
    w.deliver_all()
    assert w.b.hca.counters == {"no receive": 1}


def test_uc_psn_wraps() -> None:
    """§15 item 10."""
    w = World(QpType.UC, a=SMALL, psn=0xFFFFFE)
    w.recv(2000)
    w.send(Opcode.SEND, 1000)
    assert [p.psn for p in w.sent()] == [0xFFFFFE, 0xFFFFFF, 0, 1]
    w.deliver_all()
    assert len(w.received()) == 1


# UD ------------------------------------------------------------------------------------------------------------------

TO_B: dict[str, Any] = {"ah": AddressVector(B), "remote_qpn": QP_B, "remote_qkey": 0x11111111}


def ipv4(dst: int = B) -> bytes:
    values = {"ihl": 5, "total_length": 60, "ttl": 64, "protocol": 17, "src": A, "dst": dst}
    return codec_of(IPV4).encode(values | {"checksum": internet_checksum(codec_of(IPV4).encode(values))})


def test_ud_datagram() -> None:
    """§11: 40 bytes before the payload: 20 undefined ones (choice: 0) and the IPv4 header; byte_len counts them."""
    w = World(QpType.UD, a=SMALL)
    w.a.memory[:4] = b"data"
    w.recv(100)
    w.send(Opcode.SEND_WITH_IMM, 4, imm_data=9, **TO_B)
    assert w.statuses() == [Status.SUCCESS]
    w.b.hca.receive(replace(w.wire.pop(), network=ipv4()), 0)
    w.collect()
    (got,) = w.received()
    assert (got.byte_len, got.src_qp, got.imm_data) == (44, QP_A, 9)
    assert got.wc_flags == WcFlags.GRH | WcFlags.WITH_IMM
    assert w.b.memory[:44] == bytes(20) + ipv4() + b"data"


@pytest.mark.parametrize(("network", "fill", "first", "flags"), [
    (bytes(range(40)), 7, bytes(range(40)), WcFlags.GRH), (ipv4(), 7, b"\x07" * 20 + ipv4(), WcFlags.GRH),
    (b"", 7, b"\x07" * 40, WcFlags(0)),
])  # fmt: skip
def test_ud_first_bytes(network: bytes, fill: int, first: bytes, flags: WcFlags) -> None:
    """§11: GRH or IPv6 header as received; payload at 40 always."""
    w = World(QpType.UD, a=RoceConfig(path_mtu=256, ud_ipv4_fill=fill))
    w.a.memory[:4] = b"data"
    w.recv(44)
    w.send(Opcode.SEND, 4, **TO_B)
    w.b.hca.receive(replace(w.wire.pop(), network=network), 0)
    w.collect()
    assert w.b.memory[:44] == first + b"data"
    assert w.received()[0].wc_flags == flags


@pytest.mark.parametrize(("length", "change", "why"), [
    (43, {}, "wrong length"), (44, {"remote_qkey": 5}, "q_key"), (44, {"remote_qpn": 0x99}, "destqp"),
    (None, {}, "no receive"),
])  # fmt: skip
def test_ud_silent_drops(length: int | None, change: dict[str, int], why: str) -> None:
    """§11: the receive stays; the sender does not know."""
    w = World(QpType.UD, a=SMALL)
    if length is not None:
        w.recv(length)
    w.send(Opcode.SEND, 4, **(TO_B | change))
    w.deliver_all()
    assert (w.statuses(), w.received()) == ([Status.SUCCESS], [])
    assert w.b.hca.counters == {why: 1}
    assert len(w.b.qp.receives.items) == (length is not None)
    assert w.b.memory == bytes(1 << 16)


def test_ud_bad_key_of_the_receive() -> None:
    w = World(QpType.UD, a=SMALL)
    w.recv(100)
    w.b.hca.dereg_mr(w.b.mr)
    w.send(Opcode.SEND, 4, **TO_B)
    w.deliver_all()
    assert w.b.hca.counters == {"cannot be stored": 1}


def test_ud_own_qkey() -> None:
    """§11: with bit 31 in the work request the own q_key goes out."""
    w = World(QpType.UD, a=SMALL)
    w.send(Opcode.SEND, 4, **(TO_B | {"remote_qkey": 0x80000001}))
    assert w.sent()[0].values["q_key"] == 0x11111111


def test_ud_management_qkey() -> None:
    """§11: queue pair 1 uses 0x80010000, towards its like and from it."""
    w = World(QpType.UD, a=SMALL, up=False)
    for side, peer in ((w.a, w.b), (w.b, w.a)):
        side.hca.create_qp(QpType.UD, side.pd, number=1)
        side.number = 1
        for state in (QpState.INIT, QpState.RTR, QpState.RTS):
            w.modify(side, state, **w.attributes(side, peer, state, 5, {}))
    w.recv(100)
    for q_key, arrives in ((0x11111111, False), (0x80010000, True)):
        w.send(Opcode.SEND, 4, **(TO_B | {"remote_qpn": 1, "remote_qkey": q_key}))
        assert w.sent()[-1].values["q_key"] == q_key
        w.deliver_all()
        assert bool(w.received()) is arrives


def test_partition_of_a_completion() -> None:
    """§11: which P_Key it was, by its index."""
    w = World(QpType.UD, a=SMALL, up=False)
    for side, peer in ((w.a, w.b), (w.b, w.a)):
        side.hca.pkeys = (0xFFFF, 0x8001)
        for state in (QpState.INIT, QpState.RTR, QpState.RTS):
            w.modify(side, state, **w.attributes(side, peer, state, 5, {"pkey_index": 1}))
    w.recv(100)
    w.send(Opcode.SEND, 4, **TO_B)
    w.deliver_all()
    assert [p.p_key for p in w.sent()] == [0x8001]
    assert [c.pkey_index for c in w.received()] == [1]


def test_ud_psn_is_not_checked() -> None:
    """§11: it counts up and wraps."""
    w = World(QpType.UD, a=SMALL, psn=0xFFFFFF)
    for _ in range(3):
        w.recv(100)
        w.send(Opcode.SEND, 4, **TO_B)
    assert [p.psn for p in w.sent()] == [0xFFFFFF, 0, 1]
    w.deliver(2)
    w.deliver_all()
    assert len(w.received()) == 3


GROUP = 0xE0000007  # 224.0.0.7


def group_world(**changes: Any) -> tuple[World, list[int]]:
    """A's queue pair and two of B are attached, one of them twice."""
    w = World(QpType.UD, a=RoceConfig(path_mtu=256, **changes))
    second = w.b.hca.create_qp(QpType.UD, w.b.pd)
    w.b.number = second
    for state in (QpState.INIT, QpState.RTR, QpState.RTS):
        w.modify(w.b, state, **w.attributes(w.b, w.a, state, 0, {}))
    w.b.number = QP_B
    for number in (QP_B, second, second):
        w.b.hca.attach_mcast(number, 0xFFFF << 32 | GROUP)
    w.a.hca.attach_mcast(QP_A, GROUP)
    return w, [QP_B, second]


def test_multicast() -> None:
    """§11: one copy for each attached queue pair; the sender's own gets one too [M]."""
    w, numbers = group_world()
    w.recv(100, side=w.a)
    for number in numbers:
        w.recv(100, at=200 * number, qp_num=number)
    w.a.memory[500:504] = b"data"
    w.send(Opcode.SEND, 4, at=500, ah=AddressVector(GROUP), remote_qpn=0xFFFFFF, remote_qkey=0x11111111)
    sent = w.wire.pop()
    assert (sent.dst, parse(sent).destqp) == (GROUP, 0xFFFFFF)  # type: ignore[union-attr]
    w.b.hca.receive(sent, 0)
    w.collect()
    assert [c.qp_num for c in w.received()] == numbers
    (own,) = w.done(w.a, True)
    assert (own.byte_len, own.src_qp, own.wc_flags) == (44, QP_A, WcFlags.GRH)
    header = codec_of(IPV4).decode(w.a.memory, 20)
    assert (header["dst"], header["src"], header["total_length"]) == (GROUP, A, 20 + 8 + 12 + 8 + 4 + 4)
    assert internet_checksum(bytes(w.a.memory[20:40])) == 0
    assert w.a.memory[40:44] == b"data"


def test_multicast_without_loopback() -> None:
    w, _ = group_world(multicast_loopback=False)
    w.recv(100, side=w.a)
    w.send(Opcode.SEND, 4, ah=AddressVector(GROUP), remote_qpn=0xFFFFFF, remote_qkey=0x11111111)
    assert w.done(w.a, True) == []


def test_detached() -> None:
    w, (_, second) = group_world()
    w.b.hca.detach_mcast(second, GROUP)
    with pytest.raises(LocalError, match="not attached"):
        w.b.hca.detach_mcast(second, GROUP)
    w.b.hca.destroy_qp(QP_B)
    assert w.b.hca.groups == {GROUP: []}


@pytest.mark.parametrize(("kind", "gid", "text"), [
    (QpType.RC, GROUP, "legal: a queue pair of type UD"), (QpType.UD, B, "no multicast group"),
    (QpType.UD, 0xFF << 120 | 5, "no multicast group of IPv4"),
])  # fmt: skip
def test_illegal_groups(kind: QpType, gid: int, text: str) -> None:
    w = World(kind, a=SMALL)
    with pytest.raises(LocalError, match=text):
        w.b.hca.attach_mcast(QP_B, gid)


def test_multicast_over_ipv6() -> None:
    """§11: MGID ffxx:… is the IPv6 address; the GRH as it would be."""
    hca = Hca(0xFE80 << 112 | 1, ip_version=6, config=SMALL)
    hca.attach_mcast(hca.create_qp(QpType.UD, hca.alloc_pd()), 0xFF12 << 112 | 7)
    assert list(hca.groups) == [0xFF12 << 112 | 7]


# Numbers and marks ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("a", "b", "match"), [
    (0xFFFF, 0xFFFF, True), (0xFFFF, 0x7FFF, True), (0x7FFF, 0x7FFF, False), (0x8000, 0x8000, False),
    (0x8001, 0x0001, True), (0x8001, 0x8002, False),
])  # fmt: skip
def test_partitions(a: int, b: int, match: bool) -> None:
    """§2: the low 15 bits equal and not 0, at least one full member."""
    assert keys_match(a, b) is match


@pytest.mark.parametrize(("label", "own", "remote", "port"), [
    (0x12345, 0, 0, 0x2345 ^ 4 | 0xC000), (0, 0x11, 0x12, 0xC132), (0, 0xABCDEF, 0x123456, 0xC3C8),
    (0, 0xFFFFFF, 0xFFFFFE, 0xFF12),
])  # fmt: skip
def test_source_ports(label: int, own: int, remote: int, port: int) -> None:
    """§1; the same both ways."""
    assert source_port(label, own, remote) == source_port(label, remote, own) == port


def test_one_notification_in_an_interval() -> None:
    """§13: per queue pair at most one in `cnp_interval`; it is neither acknowledged nor counted."""
    w = World(a=RoceConfig(path_mtu=256, cnp=True, credits=False))
    for at in (0, 49 * US, 50 * US, 99 * US):
        w.now = at
        w.send(Opcode.RDMA_WRITE, 4)
        w.wire[0].ecn_marked = True
        w.deliver_all()
    assert [p.opcode for p in w.sent(w.b)].count(0x81) == 2
    assert [e for e in w.a.events if isinstance(e, Notified)] == [Notified(QP_A)] * 2
    assert w.statuses() == [Status.SUCCESS] * 4


def test_no_notifications_unless_asked_for() -> None:
    w = World(a=SMALL)
    w.send(Opcode.RDMA_WRITE, 4, send_flags=SendFlags.SIGNALED)
    w.wire[0].ecn_marked = True
    w.deliver_all()
    assert [p.opcode for p in w.sent(w.b)] == [0x11]


def test_uc_unknown_va() -> None:
    """A region of nobody: `BASE` is registered, below it is nothing."""
    w = World(QpType.UC, a=SMALL)
    w.send(Opcode.RDMA_WRITE, 4, remote_addr=BASE - 4)
    w.deliver_all()
    assert w.b.hca.counters == {"remote access": 1}
