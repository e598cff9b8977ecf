# SPDX-License-Identifier: GPL-2.0-only
"""Completion events, asynchronous events, shared receive queues, flush, and the data path report (roce.md §6, §10)."""

import pytest

from tests.support.api.verbs_network import ends
from uetproto.api import verbs
from uetproto.engine.data_path import cost

Errno, EventType, Opcode, QpState = verbs.Errno, verbs.EventType, verbs.Opcode, verbs.QpState
QpType, SendFlags, Status, VerbsError = verbs.QpType, verbs.SendFlags, verbs.Status, verbs.VerbsError
SILENT = SendFlags(0)
SOLICITED = SendFlags.SIGNALED | SendFlags.SOLICITED


# Completion queues


def test_an_armed_queue_notifies_once() -> None:
    with (e := ends()).net:
        for _ in range(3):
            e.b.post_recv(e.target[:8])
        cq = e.b.recv_cq
        with pytest.raises(VerbsError, match=r"cq: not armed .*arm\(\)"):
            cq.get_event()
        cq.arm()
        assert not cq.get_event()
        e.send(Opcode.SEND, b"1")
        e.send(Opcode.SEND, b"2")
        assert cq.get_event()
        e.net.run()
        assert len(cq.poll(9)) == 2
        cq.arm()
        assert not cq.get_event("1 ms")
        e.send(Opcode.SEND, b"3")
        e.net.run()
        assert cq.get_event()
        assert len(cq) == 1


def test_what_is_there_is_not_notified() -> None:
    with (e := ends()).net:
        e.b.post_recv(e.target[:8])
        e.send(Opcode.SEND, b"1")
        e.net.run()
        e.b.recv_cq.arm()
        assert not e.b.recv_cq.get_event()
        assert len(e.b.recv_cq) == 1


@pytest.mark.parametrize("opcode", [Opcode.SEND, Opcode.RDMA_WRITE_WITH_IMM])
def test_only_solicited(opcode: Opcode) -> None:
    with (e := ends()).net:
        for _ in range(3):
            e.b.post_recv(e.target[:8])
        cq = e.b.recv_cq
        cq.arm(solicited_only=True)
        e.send(opcode, b"1")
        assert not cq.get_event()
        e.send(opcode, b"2", send_flags=SOLICITED)
        assert cq.get_event()
        assert [entry.solicited for entry in cq.poll(9)] == [False, True]


def test_an_error_is_solicited_and_armed_for_all_stays() -> None:
    with (e := ends()).net:
        e.b.post_recv(e.target[:8])
        e.b.recv_cq.arm(solicited_only=True)
        e.b.modify(QpState.ERR)
        assert e.b.recv_cq.get_event()
        e.a.send_cq.arm()
        e.a.send_cq.arm(solicited_only=True)
        e.send(Opcode.SEND, b"1")
        assert e.a.send_cq.get_event()


def test_overrun() -> None:
    with verbs.Network() as net:
        a, b = (net.device(name).alloc_pd() for name in "ab")
        mr = b.reg_mr(bytearray(8))
        qp, peer = a.create_qp(QpType.RC, a.device.create_cq(2)), b.create_qp(QpType.RC, b.device.create_cq())
        verbs.connect(qp, peer)
        for number in range(4):
            qp.post_send(Opcode.RDMA_WRITE, b"x", wr_id=number, remote_addr=mr.addr, rkey=mr.rkey)
        assert net.device("a").get_async_event() == verbs.AsyncEvent(EventType.CQ_ERR, qp.send_cq)
        net.run()
        assert qp.state is QpState.ERR
        assert [entry.wr_id for entry in qp.send_cq.wait(4)] == [0, 1]
        with pytest.raises(VerbsError, match="cq: completions were lost, it holds 2") as raised:
            qp.send_cq.poll()
        assert raised.value.errno is Errno.EOVERFLOW


def test_unsignalled_sends() -> None:
    """They complete silently, unless they fail; wr_id need not differ."""
    with (e := ends()).net:
        for number in range(5):
            flags = SendFlags.SIGNALED if number == 3 else SILENT
            e.send(Opcode.RDMA_WRITE, e.source[:8], wr_id=number // 3, send_flags=flags)
        e.net.run()
        assert [entry.wr_id for entry in e.done(5)] == [1]
        e.send(Opcode.RDMA_WRITE, e.source[:8], wr_id=8, send_flags=SILENT, rkey=1)
        assert [(entry.wr_id, entry.status) for entry in e.done(2)] == [(8, Status.REM_ACCESS_ERR)]


def test_all_sends_may_be_signalled_by_the_queue_pair() -> None:
    with (e := ends(qp={"sq_sig_all": True})).net:
        e.send(Opcode.RDMA_WRITE, e.source[:8], send_flags=SILENT)
        assert len(e.done()) == 1


def test_flush() -> None:
    """Sends and receives end in posting order, posted before or after (roce.md §6)."""
    with (e := ends()).net:
        for number in range(3):
            e.a.post_recv(e.source[:8], wr_id=number)
            e.send(Opcode.SEND, b"x", wr_id=10 + number, send_flags=SILENT)
        e.a.modify(QpState.ERR)
        e.a.post_recv(e.source[:8], wr_id=3)
        e.send(Opcode.SEND, b"x", wr_id=13)
        received, sent = e.a.recv_cq.wait(9), e.done(9)
        assert {entry.status for entry in received + sent} == {Status.WR_FLUSH_ERR}
        assert [entry.wr_id for entry in received] == [0, 1, 2, 3]
        assert [entry.wr_id for entry in sent] == [10, 11, 12, 13]
        e.a.modify(QpState.RESET)
        with pytest.raises(VerbsError, match="RESET"):
            e.a.post_recv()


# Asynchronous events


def test_communication_established() -> None:
    """The first request to a queue pair in RTR."""
    with verbs.Network() as net:
        a, b = (net.device(name).alloc_pd() for name in "ab")
        x, y = (pd.create_qp(QpType.UD, pd.device.create_cq()) for pd in (a, b))
        for qp in (x, y):
            qp.modify(QpState.INIT, pkey_index=0, port=1, qkey=5)
            qp.modify(QpState.RTR)
        x.modify(QpState.RTS, sq_psn=0)
        way = {"ah": a.create_ah(net.device("b")), "remote_qpn": y.qp_num, "remote_qkey": 5}
        x.post_send(Opcode.SEND, b"1", **way)
        assert net.device("b").get_async_event() == verbs.AsyncEvent(EventType.COMM_EST, y)
        x.post_send(Opcode.SEND, b"2", **way)
        assert net.device("b").get_async_event() is None
        assert not net.device("a").events


def test_send_queue_drained() -> None:
    with (e := ends(given={"max_rd_atomic": 1})).net:
        e.send(Opcode.RDMA_WRITE, e.source[:40_000])
        e.send(Opcode.RDMA_WRITE, e.source[:8])
        e.a.modify(QpState.SQD)
        e.send(Opcode.RDMA_WRITE, e.source[:16])
        with pytest.raises(VerbsError, match="state: SQD → RTS"):
            e.a.modify(QpState.RTS)
        assert e.a.device.get_async_event() == verbs.AsyncEvent(EventType.SQ_DRAINED, e.a)
        before = len(e.done(3))
        assert before < 3
        e.a.modify(QpState.RTS)
        assert before + len(e.done(3 - before)) == 3


@pytest.mark.parametrize(
    ("fields", "status", "event"),
    [
        ({"rkey": 1}, Status.REM_ACCESS_ERR, EventType.QP_ACCESS_ERR),
        ({"opcode": Opcode.ATOMIC_FETCH_AND_ADD, "offset": 1}, Status.REM_INV_REQ_ERR, EventType.QP_FATAL),
    ],
)
def test_the_peer_refuses(fields: dict[str, int], status: Status, event: EventType) -> None:
    """Both queue pairs go to ERR, and the one that refused says so."""
    with (e := ends()).net:
        opcode, offset = fields.pop("opcode", Opcode.RDMA_WRITE), fields.pop("offset", 0)
        e.send(Opcode(opcode), e.source[:8], remote_addr=e.target.addr + offset, **fields)
        assert e.done()[0].status is status
        assert (e.a.state, e.b.state) == (QpState.ERR, QpState.ERR)
        assert list(e.b.device.events) == [verbs.AsyncEvent(event, e.b)]
        assert not e.a.device.events
        assert not any(bytes(e.target))


def test_a_send_that_is_too_long() -> None:
    with (e := ends()).net:
        e.b.post_recv(e.target[:7], wr_id=4)
        e.send(Opcode.SEND, e.source[:8])
        (sent,), (got,) = e.done(), e.received()
        assert (sent.status, got.status, got.wr_id) == (Status.REM_INV_REQ_ERR, Status.LOC_LEN_ERR, 4)
        assert not any(bytes(e.target))


def test_a_shared_receive_queue_and_its_limit() -> None:
    with (e := ends(srq=True)).net:
        srq = e.b.srq
        assert srq is not None
        other = e.b.pd.create_qp(QpType.RC, e.b.send_cq, e.b.recv_cq, srq)
        mine = e.a.pd.create_qp(QpType.RC, e.a.send_cq)
        verbs.connect(mine, other)
        with pytest.raises(VerbsError, match=r"qp: .*srq.post_recv"):
            e.b.post_recv()
        srq.post_recv([verbs.RecvWr(sg_list=e.target[8 * n : 8 * n + 8], wr_id=n) for n in range(4)])
        srq.modify(limit=3)
        assert (len(srq), srq.query()["srq_limit"]) == (4, 3)
        e.send(Opcode.SEND, b"one")
        assert e.b.device.get_async_event() is None
        mine.post_send(Opcode.SEND, b"two")
        assert e.b.device.get_async_event() == verbs.AsyncEvent(EventType.SRQ_LIMIT_REACHED, srq)
        e.send(Opcode.SEND, b"three")
        assert e.b.device.get_async_event() is None
        got = e.received(3)
        assert [(entry.wr_id, entry.qp_num) for entry in got] == [(0, e.b.qp_num), (1, other.qp_num), (2, e.b.qp_num)]
        assert e.target.read(0, 24) == b"one".ljust(8, b"\0") + b"two".ljust(8, b"\0") + b"three".ljust(8, b"\0")
        e.b.modify(QpState.ERR)
        assert (len(srq), e.received()) == (1, [])


# The data path report


def test_data_paths() -> None:
    """A WRITE has a passive side, where nobody posts; a SEND costs each side its own."""
    with (e := ends()).net:
        a, b = e.a.device, e.b.device
        a.data_path, b.data_path = verbs.Path.NONE, verbs.Path.RDMA
        here, there = (
            qp.pd.reg_mr(bytearray(1 << 16), kind=verbs.MemoryKind.GPU) for qp in (e.a, e.b)
        )  # fmt: skip
        e.send(Opcode.RDMA_WRITE, here[:60_000], remote_addr=there.addr, rkey=there.rkey, wr_id=1)
        e.b.post_recv([e.target[:100], there[:1000]], wr_id=2)
        e.send(Opcode.SEND, e.source[:300], wr_id=3)
        e.done(2), e.received()
        report = e.net.data_path_report()
        told = [(s.device, s.wr_id, s.passive, s.report.size, s.report.cpu_posts) for s in report.sides]
        assert sorted(told) == [("a", 1, False, 60_000, 1), ("b", 1, True, 60_000, 0), ("b", 2, False, 200, 1)]
        whole = cost(verbs.Path.NONE, 60_000)
        assert report.of("a").time == whole.time
        assert report.of("a").bytes_per_hop == dict(whole.hops)
        assert (report.copies, report.cpu_posts, report.cpu_bytes) == (2, 2, 60_000)
        post = verbs.PathConfig().cpu_post_time
        passive = next(side for side in report.sides if side.passive)
        assert passive.report.time == cost(verbs.Path.RDMA, 60_000).time - post


def test_data_path_of_async_has_no_cpu() -> None:
    with (e := ends()).net:
        e.a.device.data_path = verbs.Path.ASYNC
        gpu = e.a.pd.reg_mr(bytearray(4096), kind=verbs.MemoryKind.GPU)
        for _ in range(3):
            e.send(Opcode.RDMA_READ, gpu, send_flags=SILENT)
        e.send(Opcode.RDMA_WRITE, gpu)
        e.done()
    report = e.net.data_path_report()
    assert (len(report.sides), report.cpu_posts, report.cpu_bytes, report.copies) == (4, 0, 0, 0)
    assert report.bytes_per_hop == {verbs.Hop.PCIE: 4 * 4096, verbs.Hop.NIC: 4 * 4096}


def test_no_data_path_no_report() -> None:
    with (e := ends()).net:
        gpu = e.a.pd.reg_mr(bytearray(4096), kind=verbs.MemoryKind.GPU)
        e.send(Opcode.RDMA_WRITE, gpu)
        e.done()
        assert e.net.data_path_report().sides == ()
        with pytest.raises(VerbsError, match=r"data_path: .*Path.NONE, Path.RDMA, Path.ASYNC, None"):
            e.a.device.data_path = verbs.Path.STORAGE_DIRECT
        with pytest.raises(VerbsError, match=r"path_config: 5 .*PathConfig"):
            e.a.device.path_config = 5  # type: ignore[assignment]


def test_hops_are_those_of_the_device() -> None:
    """100 bytes over a PCIe of 10 bytes a microsecond: 10 µs, beside latencies and the CPU."""
    slow = verbs.PathConfig(pcie_bandwidth=10**7, pcie_latency=0, nic_latency=0, cpu_post_time=7)
    with (e := ends()).net:
        e.a.device.data_path, e.a.device.path_config = verbs.Path.RDMA, slow
        gpu = e.a.pd.reg_mr(bytearray(100), kind=verbs.MemoryKind.GPU)
        e.send(Opcode.RDMA_WRITE, gpu)
        e.done()
    assert e.net.data_path_report().time == 10 * 10**6 + 7
