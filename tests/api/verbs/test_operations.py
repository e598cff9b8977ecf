# SPDX-License-Identifier: GPL-2.0-only
"""The verbs end to end: every operation on every transport, bytes compared, the capture read (roce.md §6, §10–§12)."""

import os
import subprocess
import sys
import tracemalloc
from pathlib import Path

import pytest

from tests.support import paths
from tests.support.api.verbs_network import SIZE, A, counting, ends, frames, operations, packets
from tests.support.effort import effort
from uetproto.api import verbs
from uetproto.wire.headers.roce import Operation

Opcode, QpType, Status, WcOpcode = verbs.Opcode, verbs.QpType, verbs.Status, verbs.WcOpcode
RC, UC, UD = QpType.RC, QpType.UC, QpType.UD

PING_PONG = """\
from uetproto.api import verbs
with verbs.Network(["a", "b"], capture="pingpong.pcapng") as net:
    a, b = [net.device(name).alloc_pd() for name in "ab"]
    ping, pong = [pd.create_qp(verbs.QpType.RC, pd.device.create_cq()) for pd in (a, b)]
    verbs.connect(ping, pong)
    ball, racket = a.reg_mr(bytearray(b"ping")), b.reg_mr(bytearray(4))
    pong.post_recv(racket)
    ping.post_send(verbs.Opcode.SEND, ball)
    pong.recv_cq.wait()
    racket[1:2] = b"o"
    pong.post_send(verbs.Opcode.RDMA_WRITE, racket, remote_addr=ball.addr, rkey=ball.rkey)
    print(pong.send_cq.wait()[0].status.name, bytes(ball))
"""


def test_ping_pong_in_twelve_lines(tmp_path: Path) -> None:
    assert len(PING_PONG.splitlines()) == 12
    root = str(paths.ROOT)
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", PING_PONG], cwd=tmp_path, capture_output=True, text=True,
        env=os.environ | {"PYTHONPATH": root},
    )  # fmt: skip
    assert (done.stdout, done.stderr) == ("SUCCESS b'pong'\n", "")
    assert operations(tmp_path / "pingpong.pcapng") == [
        Operation.SEND_ONLY, Operation.ACKNOWLEDGE, Operation.RDMA_WRITE_ONLY, Operation.ACKNOWLEDGE,
    ]  # fmt: skip


def test_the_module_shows_the_same_program() -> None:
    shown = (verbs.__doc__ or "").partition("::\n\n")[2].partition("\n\n")[0]
    assert [line[4:] for line in shown.splitlines()] == PING_PONG.splitlines()[1:]


LENGTHS = [0, 1, 255, 256, 257, 4096, 40_001]


@pytest.mark.parametrize("kind", [RC, UC])
@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("opcode", [Opcode.SEND, Opcode.SEND_WITH_IMM])
def test_send(kind: QpType, opcode: Opcode, length: int, tmp_path: Path) -> None:
    path = tmp_path / "x.pcapng"
    e = ends(kind, path, config=verbs.RoceConfig(path_mtu=1024))
    with e.net:
        e.b.post_recv(e.target[100:], wr_id=7)
        e.send(opcode, e.source[3 : 3 + length], imm_data=0x01020304, wr_id=9)
        (sent,), (got,) = e.done(), e.received()
    assert (sent.wr_id, sent.status, sent.opcode) == (9, Status.SUCCESS, WcOpcode.SEND)
    assert (got.wr_id, got.status, got.opcode, got.byte_len) == (7, Status.SUCCESS, WcOpcode.RECV, length)
    assert got.imm_data == (0x01020304 if opcode is Opcode.SEND_WITH_IMM else None)
    assert e.target.read(100, length) == counting()[3 : 3 + length]
    assert not any(e.target.read(0, 100) + e.target.read(100 + length, 99))
    requests = packets(path, A)
    assert len(requests) == max(1, -(-length // 1024))
    assert b"".join(bytes(p.payload) for p in requests) == counting()[3 : 3 + length]
    assert {p["bth"]["opcode"] >> 5 for p in requests} == {kind}


@pytest.mark.parametrize("kind", [RC, UC])
@pytest.mark.parametrize("length", LENGTHS)
def test_write(kind: QpType, length: int, tmp_path: Path) -> None:
    path = tmp_path / "x.pcapng"
    e = ends(kind, path)
    with e.net:
        e.send(Opcode.RDMA_WRITE, e.source[:length], remote_addr=e.target.addr + 5)
        (done,) = e.done()
    assert (done.status, done.opcode, done.byte_len) == (Status.SUCCESS, WcOpcode.RDMA_WRITE, length)
    assert e.target.read(5, length) == counting()[:length]
    first = packets(path)[0]["reth"]
    assert (first["va"], first["r_key"], first["dmalen"]) == (e.target.addr + 5, e.target.rkey, length)
    assert not e.b.recv_cq.poll()


@pytest.mark.parametrize("kind", [RC, UC])
def test_write_with_immediate(kind: QpType) -> None:
    with (e := ends(kind)).net:
        e.b.post_recv(verbs.RecvWr(wr_id=3))
        e.send(Opcode.RDMA_WRITE_WITH_IMM, e.source[:10_000], imm_data=5)
        (got,) = e.received()
    assert (got.wr_id, got.opcode, got.byte_len, got.imm_data) == (3, WcOpcode.RECV_RDMA_WITH_IMM, 10_000, 5)
    assert e.target.read(0, 10_000) == counting()[:10_000]


@pytest.mark.parametrize("length", LENGTHS)
def test_read(length: int, tmp_path: Path) -> None:
    path = tmp_path / "x.pcapng"
    with (e := ends(RC, path)).net:
        e.target[:] = counting()
        e.source[:] = bytes(SIZE)
        e.send(Opcode.RDMA_READ, e.source[1 : 1 + length], remote_addr=e.target.addr + 2)
        (done,) = e.done()
    assert (done.status, done.opcode, done.byte_len) == (Status.SUCCESS, WcOpcode.RDMA_READ, length)
    assert e.source.read(1, length) == counting()[2 : 2 + length]
    assert operations(path)[0] is Operation.RDMA_READ_REQUEST


def test_atomics() -> None:
    with (e := ends()).net:
        e.target[8:16] = (40).to_bytes(8, "little")
        where = {"remote_addr": e.target.addr + 8}
        e.send(Opcode.ATOMIC_FETCH_AND_ADD, e.source[:8], compare_add=2, **where)
        e.send(Opcode.ATOMIC_CMP_AND_SWP, e.source[8:16], compare_add=42, swap=1 << 63, **where)
        e.send(Opcode.ATOMIC_CMP_AND_SWP, e.source[16:24], compare_add=42, swap=5, **where)
        done = e.done(3)
    assert [entry.opcode for entry in done] == [WcOpcode.FETCH_ADD, WcOpcode.COMP_SWAP, WcOpcode.COMP_SWAP]
    assert [int.from_bytes(e.source.read(at, 8), "little") for at in (0, 8, 16)] == [40, 42, 1 << 63]
    assert int.from_bytes(e.target.read(8, 8), "little") == 1 << 63


def test_send_with_invalidate() -> None:
    with (e := ends()).net:
        e.b.post_recv(e.target[:8])
        e.send(Opcode.SEND_WITH_INV, b"x", invalidate_rkey=e.target.rkey)
        (got,) = e.received()
        e.send(Opcode.RDMA_WRITE, e.source[:8])
        assert e.done(2)[1].status is Status.REM_ACCESS_ERR
    assert (got.invalidated_rkey, got.wc_flags) == (e.target.rkey, verbs.WcFlags.WITH_INV)


@pytest.mark.parametrize("nodes", ["ipv4", "ipv6"])
@pytest.mark.parametrize("opcode", [Opcode.SEND, Opcode.SEND_WITH_IMM])
def test_datagram(nodes: str, opcode: Opcode, tmp_path: Path) -> None:
    """The payload is behind 40 bytes: the IPv6 header, or an IPv4 header behind zeros (roce.md §11)."""
    path = tmp_path / "x.pcapng"
    six = {name: verbs.NodeSpec(address=f"fd00::{name}") for name in "ab"}
    e = ends(UD, path, nodes=six if nodes == "ipv6" else ("a", "b"))
    with e.net:
        e.b.post_recv(e.target[: verbs.GRH_SIZE + 4096])
        e.send(opcode, e.source[:4096], imm_data=6, remote_qkey=verbs.OWN_QKEY)
        (got,) = e.received()
    assert (got.byte_len, got.src_qp, got.imm_data) == (4136, e.a.qp_num, 6 if opcode is Opcode.SEND_WITH_IMM else None)
    assert verbs.WcFlags.GRH in got.wc_flags
    assert e.target.read(40, 4096) == counting()[:4096]
    ((packet,), (frame,)) = packets(path), frames(path)
    assert packet["deth"]["q_key"] == verbs.QKEY
    network = frame[14:54] if nodes == "ipv6" else bytes(20) + frame[14:34]
    assert e.target.read(0, 40) == network


def test_datagram_that_does_not_fit_is_dropped() -> None:
    with (e := ends(UD)).net:
        e.b.post_recv(e.target[:139])
        e.send(Opcode.SEND, e.source[:100])
        assert [entry.ok for entry in e.done()] == [True]
        assert e.received() == []
    assert e.b.device.counters == {"wrong length": 1}


@pytest.mark.parametrize("topology", ["pair", "switch"])
def test_multicast(topology: str) -> None:
    """One copy for each queue pair attached, the sender's own too; none once detached."""
    with (e := ends(UD, topology=topology)).net:
        group = "::ffff:224.1.2.3"
        third = e.b.pd.create_qp(UD, e.b.recv_cq)
        verbs.connect(e.a, third)
        for qp in (e.a, e.b, third):
            qp.attach_mcast(group)
        e.b.attach_mcast("224.1.2.3")
        ways = {"ah": e.a.pd.create_ah(group), "remote_qpn": verbs.MULTICAST_QP}
        own = e.a.pd.reg_mr(bytearray(64))
        e.a.post_recv(own)
        for number, qp in enumerate((e.b, third)):
            for twice in range(2):
                qp.post_recv(e.target[128 * number : 128 * number + 64], wr_id=twice)
        e.send(Opcode.SEND, b"to all", **ways)
        e.net.run()
        assert sorted(entry.qp_num for entry in e.received(2)) == [e.b.qp_num, third.qp_num]
        assert [entry.byte_len for entry in e.a.recv_cq.poll()] == [46]
        assert own.read(40, 6) == e.target.read(40, 6) == e.target.read(168, 6) == b"to all"
        third.detach_mcast(group)
        third.destroy()
        e.send(Opcode.SEND, b"again", **ways)
        assert [entry.qp_num for entry in e.received(2)] == [e.b.qp_num]


def test_multicast_over_ipv6() -> None:
    six = {name: verbs.NodeSpec(address=f"fd00::{name}") for name in "ab"}
    with (e := ends(UD, nodes=six, topology="pair")).net:
        e.b.attach_mcast("ff12::7")
        e.b.post_recv(e.target)
        e.send(Opcode.SEND, b"data", ah=e.a.pd.create_ah("ff12::7"), remote_qpn=verbs.MULTICAST_QP)
        assert e.received()[0].byte_len == 44
    assert e.target.read(40, 4) == b"data"


@pytest.mark.parametrize("seed", range(3))
def test_loss_is_repaired(seed: int, tmp_path: Path) -> None:
    """Ten percent of all frames are lost, damaged or doubled: RC repeats, nothing is done twice."""
    path = tmp_path / "x.pcapng"
    faults = {"drop": 0.05, "corrupt": 0.03, "duplicate": 0.02}
    e = ends(RC, path, seed=seed, faults=faults, config=verbs.RoceConfig(path_mtu=256))
    with e.net:
        for number in range(20):
            e.b.post_recv(e.target[1000 * number : 1000 * number + 1000], wr_id=number)
            e.send(Opcode.SEND, e.source[1000 * number : 1000 * number + 1000], wr_id=number)
        e.send(Opcode.RDMA_WRITE, e.source[20_000:40_000], remote_addr=e.target.addr + 20_000)
        e.send(Opcode.ATOMIC_FETCH_AND_ADD, e.source[:8], compare_add=3, remote_addr=e.target.addr + SIZE - 8)
        done, got = e.done(22), e.received(20)
    assert {entry.status for entry in done + got} == {Status.SUCCESS}
    assert [entry.wr_id for entry in got] == list(range(20))
    assert e.target.read(0, 40_000) == counting()[:40_000]
    assert e.target.read(SIZE - 8, 8) == bytes([3, 0, 0, 0, 0, 0, 0, 0])
    sent = [packet["bth"]["psn"] for packet in packets(path, A)]  # as they left: what is damaged is so later
    assert len(sent) > len(set(sent)) == 20 * 4 + 79 + 1


def test_nobody_answers() -> None:
    with (e := ends(faults={"drop": 1.0}, given={"retry_cnt": 2})).net:
        e.send(Opcode.RDMA_WRITE, e.source[:8], wr_id=1)
        e.send(Opcode.RDMA_WRITE, e.source[:8], wr_id=2, send_flags=verbs.SendFlags(0))
        done = e.done(2)
        assert e.a.state is verbs.QpState.ERR
    assert [(entry.wr_id, entry.status) for entry in done] == [(1, Status.RETRY_EXC_ERR), (2, Status.WR_FLUSH_ERR)]


@pytest.mark.parametrize("timer", [1, 12, 31])
def test_waiting_for_a_receive_has_an_end(timer: int) -> None:
    """rnr_retry 7 asks without end: `wait` ends when only the program can help, and goes on when it did."""
    with (e := ends(given={"min_rnr_timer": timer})).net:
        other = e.a.pd.create_qp(UD, e.a.send_cq), e.b.pd.create_qp(UD, e.b.recv_cq)
        ways = verbs.connect(*other)
        e.send(Opcode.SEND, e.source[:8])
        assert e.done() == []
        other[1].post_recv(e.target[100:200])
        other[0].post_send(Opcode.SEND, b"x", ah=ways[0], remote_qpn=other[1].qp_num, remote_qkey=verbs.QKEY)
        e.net.run()
        assert [entry.byte_len for entry in e.received()] == [41]
        e.b.post_recv(e.target[:8])
        assert [entry.ok for entry in e.done(2)] == [True, True]


@pytest.mark.parametrize("length", [0, 4096, 8192, 5 * 4096, SIZE])
@pytest.mark.parametrize("both", [False, True])
def test_waiting_in_vain_ends_whatever_is_sent(length: int, both: bool) -> None:
    """Also where the packets of a round of RNR NAKs and waits come again and again in the same places."""
    with (e := ends()).net:
        e.send(Opcode.SEND, e.source[:length])
        if both:
            e.b.post_send(Opcode.SEND, e.target[:length])
        assert e.done() == []
        e.b.post_recv(e.target)
        assert e.done()[0].ok


def test_waiting_for_a_receive_that_cannot_come() -> None:
    """The peer is in ERR by now: nobody answers, and that has an end of its own."""
    with (e := ends()).net:
        e.send(Opcode.SEND, e.source[:8])
        assert e.done() == []
        e.b.modify(verbs.QpState.ERR)
        assert e.done()[0].status is Status.RETRY_EXC_ERR


def test_a_retry_count_without_end() -> None:
    """As in rxe: `wait` ends while the peer is down, and goes on when it is up again."""
    with (e := ends(config=verbs.RoceConfig(retry_cnt_seven="endless"))).net:
        psn = e.b.query()["rq_psn"]
        for state in (verbs.QpState.ERR, verbs.QpState.RESET):
            e.b.modify(state)
        e.send(Opcode.RDMA_WRITE, e.source[:8])
        assert e.done() == []
        e.b.modify(verbs.QpState.INIT, pkey_index=0, port=1, access_flags=verbs.ALL)
        e.b.modify(
            verbs.QpState.RTR, av=e.b.pd.create_ah(e.a.device), path_mtu=4096, dest_qpn=e.a.qp_num, rq_psn=psn,
            max_dest_rd_atomic=1, min_rnr_timer=1,
        )  # fmt: skip
        assert e.done()[0].ok
    assert e.target.read(0, 8) == counting()[:8]


def test_not_ready_too_often() -> None:
    with (e := ends(given={"rnr_retry": 3})).net:
        e.send(Opcode.SEND, e.source[:8])
        (done,) = e.done()
    assert (done.status, done.ok) == (Status.RNR_RETRY_EXC_ERR, False)


def test_loop_within_a_device() -> None:
    """Both queue pairs on one adapter, around the switch."""
    with verbs.Network() as net:
        pd = net.device("a").alloc_pd()
        cq = pd.device.create_cq()
        x, y = pd.create_qp(RC, cq), pd.create_qp(RC, cq)
        verbs.connect(x, y)
        mr = pd.reg_mr(bytearray(b"there....."))
        x.post_send(Opcode.RDMA_WRITE, mr[:5], remote_addr=mr.addr + 5, rkey=mr.rkey)
        assert cq.wait()[0].ok
    assert bytes(mr) == b"therethere"


def test_scatter_and_gather() -> None:
    with (e := ends(qp={"max_inline_data": 64})).net:
        e.b.post_recv([e.target[10:12], e.target[20:20], e.target[30:33]])
        e.send(Opcode.SEND, [e.source[0:2], verbs.Sge(e.source.addr + 50, 3, e.source.lkey)])
        e.b.post_recv(e.target[40:50])
        e.send(Opcode.SEND, e.source[7:9], send_flags=verbs.SendFlags.INLINE | verbs.SendFlags.SIGNALED)
        e.source[7:9] = b"xx"
        assert [entry.byte_len for entry in e.received(2)] == [5, 2]
    data = counting()
    assert e.target.read(10, 2) == data[:2]
    assert e.target.read(30, 3) == data[50:53]
    assert e.target.read(40, 2) == data[7:9]


def test_large_files_in_little_memory(tmp_path: Path) -> None:
    """A WRITE of many MiB from file to file, through windows."""
    blocks = effort(14, 24, 24)
    size = blocks << 20
    source, target = tmp_path / "source", tmp_path / "target"
    block = os.urandom(1 << 20)
    source.write_bytes(block * blocks)
    with source.open("rb") as left, target.open("w+b") as right, (e := ends()).net:
        there, here = verbs.FileMemory(left, window=1 << 16), verbs.FileMemory(right, size, window=1 << 16)
        mr = e.b.pd.reg_mr(here, kind=verbs.MemoryKind.GPU)
        tracemalloc.start()
        mine = e.a.pd.reg_mr(there, verbs.Access(0))
        e.send(Opcode.RDMA_WRITE, mine, remote_addr=mr.addr, rkey=mr.rkey)
        assert e.done()[0].byte_len == size
        assert tracemalloc.get_traced_memory()[1] < size // 8
        tracemalloc.stop()
        here.flush()
    assert target.read_bytes() == block * blocks


def test_one_seed_one_run(tmp_path: Path) -> None:
    traces = []
    for seed in (1, 1, 2):
        path = tmp_path / f"{len(traces)}.pcapng"
        e = ends(RC, path, seed=seed, faults={"drop": 0.1}, config=verbs.RoceConfig(path_mtu=256))
        with e.net:
            e.send(Opcode.RDMA_WRITE, e.source[:20_000])
            e.done()
        traces.append(frames(path))
    assert traces[0] == traces[1] != traces[2]


def test_congestion_is_notified(tmp_path: Path) -> None:
    """Two senders, RED and DCQCN: CNPs come, and all arrives."""
    config = verbs.RoceConfig(congestion="dcqcn", path_mtu=1024)
    path = tmp_path / "x.pcapng"
    with verbs.Network(["a", "b", "c"], config=config, red=verbs.Red(), pfc=verbs.Pfc(), capture=str(path)) as net:
        target = net.device("c").alloc_pd()
        senders = [net.device(name).alloc_pd() for name in "ab"]
        regions, queues = [], []
        for pd in senders:
            qp, peer = (one.create_qp(RC, one.device.create_cq()) for one in (pd, target))
            verbs.connect(qp, peer)
            mr = target.reg_mr(bytearray(1 << 20))
            qp.post_send(Opcode.RDMA_WRITE, pd.reg_mr(bytearray(b"\7") * (1 << 20)), remote_addr=mr.addr, rkey=mr.rkey)
            regions.append(mr)
            queues.append(qp)
        assert [qp.send_cq.wait()[0].ok for qp in queues] == [True, True]
        assert all(bytes(mr) == b"\7" * (1 << 20) for mr in regions)
        assert net.device("c").counters["cnp sent"] > 0
        assert "cnp received" in net.device("a").counters


def test_over_ipv6(tmp_path: Path) -> None:
    """RC with all its kinds of packets; each ICRC is right."""
    path = tmp_path / "x.pcapng"
    six = {name: verbs.NodeSpec(address=f"fd00::{name}") for name in "ab"}
    with (e := ends(RC, path, nodes=six)).net:
        e.b.post_recv(e.target[:9000])
        e.send(Opcode.SEND, e.source[:9000])
        e.send(Opcode.RDMA_READ, e.source[10_000:19_000])
        e.send(Opcode.ATOMIC_FETCH_AND_ADD, e.source[:8], compare_add=1, remote_addr=e.target.addr + 16_000)
        assert [entry.ok for entry in e.done(3)] == [True] * 3
    assert e.target.read(0, 9000) == counting()[:9000] == e.source.read(10_000, 9000)
    assert {packet.layers[1].form for packet in packets(path)} == {"ipv6"}
    assert e.a.device.gid == "fd00::a"


def test_partitions_are_apart() -> None:
    """Keys that do not match drop silently: nobody answers."""
    keys = {"a": verbs.NodeSpec(pkeys=(0xFFFF, 0x8001)), "b": verbs.NodeSpec(pkeys=(0xFFFF, 0x8002))}
    with (e := ends(nodes=keys, given={"pkey_index": 1, "retry_cnt": 1})).net:
        e.send(Opcode.RDMA_WRITE, e.source[:8])
        assert e.done()[0].status is Status.RETRY_EXC_ERR
        assert e.b.device.counters == {"p_key": 2}


def test_rights_of_the_queue_pair() -> None:
    with (e := ends(given={"access_flags": verbs.Access.REMOTE_READ})).net:
        e.send(Opcode.RDMA_READ, e.source[:8])
        e.send(Opcode.RDMA_WRITE, e.source[:8])
        assert [entry.status for entry in e.done(2)] == [Status.SUCCESS, Status.REM_INV_REQ_ERR]


def test_a_failed_send_of_uc_is_repaired() -> None:
    """To SQE, where receives go on; back to RTS (roce.md §6)."""
    with (e := ends(UC)).net:
        e.send(Opcode.RDMA_WRITE, verbs.Sge(0, 8, 0))
        e.send(Opcode.RDMA_WRITE, e.source[:8])
        assert [entry.status for entry in e.done(2)] == [Status.LOC_PROT_ERR, Status.WR_FLUSH_ERR]
        assert e.a.state is verbs.QpState.SQE
        e.a.modify(verbs.QpState.RTS)
        e.send(Opcode.RDMA_WRITE, e.source[:8])
        assert e.done()[0].ok


def test_many_that_wait_for_receives_have_an_end() -> None:
    """Short times between the questions of thirty queue pairs; one more is busy meanwhile, and ends first."""
    with (e := ends(given={"min_rnr_timer": 1})).net:
        pairs = [(e.a.pd.create_qp(RC, e.a.send_cq), e.b.pd.create_qp(RC, e.b.send_cq)) for _ in range(30)]
        for qp, peer in pairs:
            verbs.connect(qp, peer, min_rnr_timer=1)
            qp.post_send(Opcode.SEND, b"x")
        e.send(Opcode.RDMA_WRITE, e.source, wr_id=5)
        assert [entry.wr_id for entry in e.done(31)] == [5]
        for _, peer in pairs:
            peer.post_recv(e.target)
        assert len(e.done(30)) == 30
