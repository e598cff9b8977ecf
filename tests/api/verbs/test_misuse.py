# SPDX-License-Identifier: GPL-2.0-only
"""What the verbs refuse: at the call, with an errno, the argument and what is legal; nothing has changed then."""

from collections.abc import Callable
from itertools import repeat
from pathlib import Path
from typing import Any

import pytest

from tests.support.api.verbs_network import SIZE, Ends, ends
from uetproto import LocalError
from uetproto.api import verbs

Errno, Opcode, QpState, QpType, Status = verbs.Errno, verbs.Opcode, verbs.QpState, verbs.QpType, verbs.Status
RC, UC, UD = QpType.RC, QpType.UC, QpType.UD


def refused(errno: verbs.Errno, text: str, call: Callable[..., Any], *args: Any, **more: Any) -> verbs.VerbsError:
    with pytest.raises(verbs.VerbsError, match=text) as raised:
        call(*args, **more)
    assert raised.value.errno is errno
    assert isinstance(raised.value, LocalError)
    return raised.value


# The transport table (roce.md §6)

SERVICES = {
    Opcode.SEND: (RC, UC, UD),
    Opcode.SEND_WITH_IMM: (RC, UC, UD),
    Opcode.RDMA_WRITE: (RC, UC),
    Opcode.RDMA_WRITE_WITH_IMM: (RC, UC),
    Opcode.SEND_WITH_INV: (RC,),
    Opcode.RDMA_READ: (RC,),
    Opcode.ATOMIC_CMP_AND_SWP: (RC,),
    Opcode.ATOMIC_FETCH_AND_ADD: (RC,),
    Opcode.ATOMIC_WRITE: (),
}


@pytest.mark.parametrize("kind", QpType)
@pytest.mark.parametrize("opcode", Opcode)
def test_the_transport_table(kind: QpType, opcode: Opcode) -> None:
    with (e := ends(kind)).net:
        e.b.post_recv(e.target)
        if kind in SERVICES[opcode]:
            e.send(opcode, e.source[:8], invalidate_rkey=e.target.rkey)
            assert e.done()[0].ok
        else:
            refused(Errno.EINVAL, f"opcode: {opcode.name} is not legal on {kind.name}", e.send, opcode, e.source[:8])
            assert e.a.send_cq.wait() == []


class Endless:
    """More bytes than anybody has: zeros, and what is written is not kept."""

    length = 2**31 + 1

    def read(self, offset: int, length: int) -> bytes:
        return bytes(length)

    def write(self, offset: int, data: Any) -> None:
        """Gone."""

    def flush(self) -> None:
        """Nothing to do."""


@pytest.mark.parametrize(
    ("kind", "opcode", "limit"),
    [
        (RC, Opcode.SEND, 2**31), (RC, Opcode.RDMA_WRITE, 2**31), (RC, Opcode.RDMA_READ, 2**31),
        (UC, Opcode.SEND, 2**31), (UC, Opcode.RDMA_WRITE_WITH_IMM, 2**31), (UD, Opcode.SEND, 4096),
    ],
)  # fmt: skip
def test_the_longest_message(kind: QpType, opcode: Opcode, limit: int) -> None:
    e = ends(kind)
    mr = e.a.pd.reg_mr(Endless())
    refused(Errno.EINVAL, rf"sg_list: a message of {limit + 1} bytes .*0 … {limit}", e.send, opcode, mr[: limit + 1])
    e.send(opcode, mr[:limit])
    refused(Errno.EINVAL, "bytes INLINE .*at most 256", e.send, Opcode.SEND, mr, send_flags=verbs.SendFlags.INLINE)


# Work requests

WRONG_SENDS: list[tuple[str, dict[str, Any], str]] = [
    ("opcode", {"opcode": 77}, "opcode: 77 .*RDMA_WRITE"),
    ("flags", {"send_flags": 16}, "send_flags: 0x10 .*FENCE"),
    ("wr_id", {"wr_id": -1}, "wr_id: -1 "),
    ("immediate", {"imm_data": 1 << 32}, "imm_data: .*32 bits"),
    ("address", {"remote_addr": -1}, "remote_addr: .*64 bits"),
    ("rkey", {"rkey": None}, "rkey: None .*32 bits"),
    ("list", {"sg_list": 5}, r"sg_list: 5 .*mr\[0:64\]"),
    ("a text", {"sg_list": "ping"}, "sg_list: ping "),
    ("piece", {"sg_list": [5]}, "sg_list: 5 "),
    ("length", {"sg_list": verbs.Sge(0, -1, 0)}, "sg_list: length: -1"),
    ("lkey", {"sg_list": verbs.Sge(0, 1, None)}, "sg_list: lkey: None"),  # type: ignore[arg-type]
    ("long inline", {"sg_list": bytes(257)}, "257 bytes INLINE .*256"),
    ("inline answer", {"opcode": Opcode.RDMA_READ, "sg_list": b"x"}, "inline: not legal with RDMA_READ"),
    ("inline elsewhere", {"sg_list": verbs.Sge(0, 1, 9), "send_flags": 8}, "sg_list: .*registered"),
    ("short atomic", {"opcode": Opcode.ATOMIC_FETCH_AND_ADD, "sg_list": ()}, "sg_list: 0 bytes .*legal: 8"),
    ("ah", {"ah": 5}, "ah: 5 .*create_ah"),
    ("unknown field", {"color": 1}, "post_send: color .*opcode, sg_list"),
]


@pytest.mark.parametrize(("fields", "text"), [row[1:] for row in WRONG_SENDS], ids=[row[0] for row in WRONG_SENDS])
def test_wrong_sends(fields: dict[str, Any], text: str) -> None:
    e = ends()
    wanted = {"opcode": Opcode.RDMA_WRITE, "sg_list": e.source[:8], "rkey": e.target.rkey} | fields
    opcode = wanted.pop("opcode")
    refused(Errno.EINVAL, text, e.a.post_send, opcode, **wanted)


def test_datagrams_need_a_way() -> None:
    e = ends(UD)
    refused(Errno.EINVAL, "ah: needed on UD", e.a.post_send, Opcode.SEND, b"x")
    other = e.a.device.alloc_pd().create_ah("10.0.0.2")
    refused(Errno.EINVAL, "ah: of another protection domain", e.a.post_send, Opcode.SEND, b"x", ah=other)
    e.ahs[0].destroy()
    refused(Errno.EINVAL, "ah: destroyed", e.a.post_send, Opcode.SEND, b"x", ah=e.ahs[0])
    refused(Errno.EINVAL, "ah: destroyed", e.ahs[0].destroy)


def test_a_list_says_which_one() -> None:
    with (e := ends()).net:
        good = verbs.SendWr(opcode=Opcode.RDMA_WRITE, sg_list=b"x", remote_addr=e.target.addr, rkey=e.target.rkey)
        bad = verbs.SendWr(opcode=Opcode.ATOMIC_WRITE)
        assert refused(Errno.EINVAL, "opcode: ", e.a.post_send, [good, good, bad, good]).bad_wr == 2
        assert len(e.done(3)) == 2
        refused(Errno.EINVAL, "wr: 5 ", e.a.post_send, [5])
        refused(Errno.EINVAL, "post_send: .*beside", e.a.post_send, good, wr_id=5)
        e.a.post_recv([verbs.RecvWr(wr_id=1), verbs.RecvWr(wr_id=2)])
        wrong = [verbs.RecvWr(), verbs.RecvWr(wr_id=1 << 64)]
        assert refused(Errno.EINVAL, "wr_id: ", e.a.post_recv, wrong).bad_wr == 1


def test_full_queues() -> None:
    with (e := ends(qp={"max_send_wr": 2, "max_recv_wr": 2}, given={"rnr_retry": 7})).net:
        e.a.post_send(Opcode.SEND, b"1")
        e.a.post_send(Opcode.SEND, b"2")
        refused(Errno.ENOMEM, "qp: 2 sends are posted; legal: a larger max_send_wr", e.a.post_send, Opcode.SEND, b"3")
        e.b.post_recv(e.target[:4])
        e.b.post_recv(e.target[:4])
        refused(Errno.ENOMEM, "qp: 2 receives are posted; legal: a larger max_recv_wr", e.b.post_recv)
        assert len(e.done(2)) == 2
        e.a.post_send(Opcode.SEND, b"3")
        e.b.post_recv(e.target[:4])
        srq = e.a.pd.create_srq(max_wr=1)
        srq.post_recv()
        refused(Errno.ENOMEM, "srq: 1 receives are posted; legal: a larger max_wr", srq.post_recv)


@pytest.mark.parametrize(
    ("state", "send", "recv"),
    [
        (QpState.RESET, "RESET; post_send is legal from RTS on", "RESET; post_recv is legal from INIT on"),
        (QpState.INIT, "INIT; post_send is legal from RTS on", None),
        (QpState.RTR, "RTR; post_send is legal from RTS on", None),
    ],
)
def test_posting_in_a_wrong_state(state: QpState, send: str, recv: str | None) -> None:
    with verbs.Network() as net:
        pd = net.device("a").alloc_pd()
        qp = pd.create_qp(UD, pd.device.create_cq())
        if state >= QpState.INIT:
            qp.modify(QpState.INIT, pkey_index=0, port=1, qkey=5)
        if state is QpState.RTR:
            qp.modify(QpState.RTR)
        assert qp.query()["qp_state"] is qp.state is state
        ah = pd.create_ah(net.device("b"))
        refused(Errno.EINVAL, send, qp.post_send, Opcode.SEND, b"x", ah=ah)
        if recv is not None:
            refused(Errno.EINVAL, recv, qp.post_recv)
        else:
            qp.post_recv()


def test_own_keys_are_a_matter_of_the_completion() -> None:
    """A plain Sge is not looked at before its turn (roce.md §10): LOC_PROT_ERR."""
    with (e := ends()).net:
        e.send(Opcode.RDMA_WRITE, verbs.Sge(e.source.addr + SIZE - 1, 2, e.source.lkey))
        assert e.done()[0].status is Status.LOC_PROT_ERR


# Objects

OTHER = "one of device b is not legal; legal: one of device a"


def test_objects_of_others() -> None:
    e = ends()
    pd, cq = e.a.pd, e.a.send_cq
    refused(Errno.EINVAL, f"send_cq: {OTHER}", pd.create_qp, RC, e.b.send_cq)
    refused(Errno.EINVAL, f"recv_cq: {OTHER}", pd.create_qp, RC, cq, e.b.send_cq)
    refused(Errno.EINVAL, f"srq: {OTHER}", pd.create_qp, RC, cq, cq, e.b.pd.create_srq())
    refused(Errno.EINVAL, "qp_type: 2 .*RC, UC, UD", pd.create_qp, 2, cq)
    refused(Errno.EINVAL, "send_cq: None .*CQ", pd.create_qp, RC, None)
    refused(Errno.EINVAL, "sg_list: a region of another protection domain", e.a.post_send, Opcode.SEND, e.target)
    elsewhere = e.a.device.alloc_pd().reg_mr(bytearray(8))
    refused(Errno.EINVAL, "sg_list: a region of another protection domain", e.a.post_recv, elsewhere[:4])
    refused(Errno.EINVAL, "node: c .*a, b", e.net.device, "c")
    refused(Errno.EINVAL, "gid: .* queue pair of type UD|qp_num: .*UD", e.a.attach_mcast, "224.0.0.1")


def test_the_order_of_closing() -> None:
    with (e := ends(UD, srq=True)).net:
        qp, srq = e.b, e.b.srq
        assert srq is not None
        refused(Errno.EBUSY, "pd: 4 of AH, MR, QP, SRQ are in it", qp.pd.dealloc)
        refused(Errno.EBUSY, "cq: 1 queue pairs use it", qp.send_cq.destroy)
        refused(Errno.EBUSY, "srq: 1 queue pairs use it", srq.destroy)
        qp.attach_mcast("224.0.0.1")
        refused(Errno.EBUSY, "qp: attached to 1 groups", qp.destroy)
        refused(Errno.EINVAL, "gid: ", qp.detach_mcast, "224.0.0.2")
        qp.detach_mcast("224.0.0.1")
        qp.destroy()
        for one in (srq, qp.send_cq, qp.recv_cq, e.ahs[1]):
            one.destroy()
        e.target.dereg()
        qp.pd.dealloc()
        gone: list[tuple[str, Callable[..., Any], tuple[Any, ...]]] = [
            ("qp", qp.post_send, (Opcode.SEND,)), ("qp", qp.post_recv, ()), ("qp", qp.destroy, ()),
            ("qp", qp.modify, (QpState.INIT,)), ("qp", qp.query, ()), ("qp", qp.attach_mcast, ("224.0.0.1",)),
            ("srq", srq.post_recv, ()), ("srq", srq.destroy, ()), ("cq", qp.send_cq.poll, ()),
            ("cq", qp.send_cq.wait, ()), ("cq", qp.send_cq.arm, ()), ("cq", qp.send_cq.destroy, ()),
            ("ah", e.ahs[1].destroy, ()), ("mr", e.target.dereg, ()), ("pd", qp.pd.dealloc, ()),
            ("pd", qp.pd.reg_mr, (bytearray(1),)), ("pd", qp.pd.create_srq, ()), ("pd", qp.pd.create_ah, ("10.0.0.1",)),
            ("qp_b", verbs.connect, (e.a, qp)),
        ]  # fmt: skip
        for name, call, arguments in gone:
            refused(Errno.EINVAL, f"^{name}: ", call, *arguments)
        refused(Errno.EINVAL, "^mr: ", lambda: e.target[:5])


def test_a_region_that_is_gone() -> None:
    """Work that was posted fails in its turn; new work is refused; the peer gets REM_ACCESS_ERR."""
    with (e := ends()).net:
        part = e.source[:8]
        e.source.dereg()
        refused(Errno.EINVAL, "sg_list: the region was deregistered", e.send, Opcode.RDMA_WRITE, part)
        rkey, addr = e.target.rkey, e.target.addr
        e.target.dereg()
        e.a.post_send(Opcode.RDMA_WRITE, b"x", remote_addr=addr, rkey=rkey)
        assert e.done()[0].status is Status.REM_ACCESS_ERR


WRONG_REGIONS: list[tuple[str, tuple[Any, ...], dict[str, Any], str]] = [
    ("memory", (5,), {}, "memory: int is no contiguous buffer"),
    ("read-only", (b"x",), {}, "memory: read-only; legal without LOCAL_WRITE"),
    ("rights", (bytearray(8), verbs.Access.REMOTE_WRITE), {}, "access: REMOTE_WRITE .*with LOCAL_WRITE"),
    ("access", (bytearray(8), 64), {}, "access: 0x40 .*LOCAL_WRITE"),
    ("address", (bytearray(8),), {"addr": -1}, "addr: -1"),
    ("end", (bytearray(8),), {"addr": (1 << 64) - 4}, "addr: 0xfff"),
    ("kind", (bytearray(8),), {"kind": "gpu"}, "kind: gpu .*HOST, GPU"),
]


@pytest.mark.parametrize(
    ("arguments", "more", "text"), [row[1:] for row in WRONG_REGIONS], ids=[row[0] for row in WRONG_REGIONS]
)
def test_wrong_regions(arguments: tuple[Any, ...], more: dict[str, Any], text: str) -> None:
    pd = verbs.Network().device("a").alloc_pd()
    refused(Errno.EINVAL, text, pd.reg_mr, *arguments, **more)
    pd.dealloc()


def test_pieces_of_a_region() -> None:
    memory = bytearray(b"0123456789")
    pd = verbs.Network().device("a").alloc_pd()
    mr = pd.reg_mr(memory, addr=1 << 40)
    other = pd.reg_mr(b"fixed", verbs.Access.REMOTE_READ)
    assert (len(mr), bytes(mr), bytes(mr[2:4])) == (10, b"0123456789", b"23")
    assert (mr[-2:].addr, mr[8:99].length, mr[5:2].length) == (mr.addr + 8, 2, 0)
    mr[1:3] = b"xy"
    assert memory == b"0xy3456789"
    refused(Errno.EINVAL, "mr.*slice", lambda: mr[3])  # type: ignore[index]
    refused(Errno.EINVAL, "mr.*slice", lambda: mr[::2])
    refused(Errno.EINVAL, "3 bytes .*2, as many", mr.__setitem__, slice(0, 2), b"123")
    refused(Errno.EINVAL, "mr.*slice", lambda: mr["a":])  # type: ignore[misc]
    refused(Errno.EINVAL, "mr.*bytes", mr.__setitem__, slice(0, 2), "12")
    refused(Errno.EINVAL, "mr.*bytes", mr.__setitem__, slice(0, 2), memoryview(b"1234")[::2])
    refused(Errno.EINVAL, "read-only", other.__setitem__, slice(0, 2), b"12")
    refused(Errno.EINVAL, "length: 11", mr.read, 0, 11)


@pytest.mark.parametrize(
    "given", [10**5000, [10**5000], bytes(1 << 20), "x" * (1 << 20), [b"x"] * (1 << 16)],
    ids=["number", "list of a number", "bytes", "text", "list"],
)  # fmt: skip
def test_what_is_long_is_not_repeated(given: Any) -> None:
    """A message shows its beginning: neither the limit of Python for digits nor the size of a buffer matters."""
    with (e := ends()).net:
        for call in (e.a.post_recv, e.a.pd.reg_mr, e.a.pd.create_ah, e.net.device, verbs.Network):
            if call != e.a.pd.reg_mr or not isinstance(given, bytes):
                assert len(str(refused(Errno.EINVAL, ".", call, given))) < 1000
        for name in ("imm_data", "rkey", "wr_id", "ah", "send_flags"):
            assert len(str(refused(Errno.EINVAL, name, e.a.post_send, Opcode.SEND, **{name: given}))) < 1000
        assert len(str(refused(Errno.EINVAL, "sq_psn", verbs.connect, *_fresh(e), sq_psn=given))) < 1000
    with pytest.raises(LocalError, match="path_mtu") as raised:
        verbs.RoceConfig(path_mtu=given)
    assert len(str(raised.value)) < 1000


def _fresh(e: Ends) -> list[verbs.QP]:
    """Two more queue pairs, in RESET."""
    return [qp.pd.create_qp(qp.qp_type, qp.send_cq) for qp in (e.a, e.b)]


def test_lists_have_an_end() -> None:
    with (e := ends()).net:
        refused(Errno.EINVAL, "sg_list", e.a.post_send, Opcode.SEND, repeat(e.source))
        refused(Errno.EINVAL, "sg_list", e.b.post_recv, repeat(e.target))


def test_what_is_destroyed_says_so() -> None:
    with (e := ends(srq=True)).net:
        srq = e.b.srq
        assert srq is not None
        e.b.destroy()
        srq.destroy()
        assert e.b.peer is None
        assert "destroyed" in repr(e.b)
        refused(Errno.EINVAL, "srq: destroyed", len, srq)


# States and the exchange


def test_modify() -> None:
    net = verbs.Network()
    pd = net.device("a").alloc_pd()
    qp = pd.create_qp(RC, pd.device.create_cq())
    begin = {"pkey_index": 0, "port": 1, "access_flags": verbs.ALL}
    refused(Errno.EINVAL, "state: 9 ", qp.modify, 9)
    refused(Errno.EINVAL, "state: RESET → RTS is not legal; legal: INIT", qp.modify, QpState.RTS)
    refused(Errno.EINVAL, "port: must be given", qp.modify, QpState.INIT, pkey_index=0, access_flags=0)
    refused(Errno.EINVAL, "access_flags: x ", qp.modify, QpState.INIT, **begin | {"access_flags": "x"})
    refused(Errno.EINVAL, "pkey_index: 1 ", qp.modify, QpState.INIT, **begin | {"pkey_index": 1})
    refused(Errno.EINVAL, "qkey: no attribute of type RC", qp.modify, QpState.INIT, **begin, qkey=1)
    qp.modify(QpState.INIT, **begin)
    ready = {"path_mtu": 512, "dest_qpn": 5, "rq_psn": 0, "max_dest_rd_atomic": 1, "min_rnr_timer": 1}
    refused(Errno.EINVAL, "av: '10.0.0.2' is no AddressVector", qp.modify, QpState.RTR, **ready, av="10.0.0.2")
    ah = pd.create_ah(net.device("b"))
    refused(Errno.EINVAL, "path_mtu: 8192|path_mtu: 300", qp.modify, QpState.RTR, **ready | {"path_mtu": 300}, av=ah)
    qp.modify(QpState.RTR, **ready, av=ah)
    assert (qp.query()["path_mtu"], qp.query()["av"], qp.query()["qp_state"]) == (512, ah.av, QpState.RTR)


def test_a_path_mtu_that_the_cable_does_not_carry() -> None:
    net = verbs.Network(mtu=1500, config=verbs.RoceConfig(path_mtu=1024))
    assert net.device("a").query().active_mtu == 1024
    a, b = (net.device(name).alloc_pd() for name in "ab")
    pair = a.create_qp(RC, a.device.create_cq()), b.create_qp(RC, b.device.create_cq())
    refused(Errno.EINVAL, "path_mtu: 2048 .*at most 1024", verbs.connect, *pair, path_mtu=2048)
    assert [qp.state for qp in pair] == [QpState.RESET] * 2
    verbs.connect(*pair)


def test_connect() -> None:
    e = ends()
    refused(Errno.EINVAL, "qp_a: in RTS .*RESET", verbs.connect, e.a, e.b)
    x, y = (qp.pd.create_qp(RC, qp.send_cq) for qp in (e.a, e.b))
    refused(Errno.EINVAL, "qp_b: 5 .*create_qp", verbs.connect, x, 5)
    refused(Errno.EINVAL, "qp_b: RC of a", verbs.connect, x, x)
    refused(Errno.EINVAL, "qp_b: UC of b", verbs.connect, x, e.b.pd.create_qp(UC, e.b.send_cq))
    there = verbs.Network().device("b").alloc_pd()
    refused(Errno.EINVAL, "same network", verbs.connect, x, there.create_qp(RC, there.device.create_cq()))
    refused(Errno.EINVAL, "attributes: dest_qpn .*legal: access_flags", verbs.connect, x, y, dest_qpn=5)
    refused(Errno.EINVAL, "retry_cnt: 8 ", verbs.connect, x, y, retry_cnt=8)
    assert (x.state, y.state) == (QpState.RESET, QpState.RESET)
    assert verbs.connect(x, y, sq_psn=0xFFFFFF) == ()
    assert x.query()["rq_psn"] == y.query()["sq_psn"] == 0xFFFFFF


def test_both_ends_agree() -> None:
    small = verbs.RoceConfig(path_mtu=512, max_dest_rd_atomic=2)
    e = ends(nodes={"a": verbs.NodeSpec(), "b": verbs.NodeSpec(config=small)})
    assert [qp.query()["path_mtu"] for qp in (e.a, e.b)] == [512, 512]
    assert (e.a.query()["max_rd_atomic"], e.b.query()["max_rd_atomic"]) == (2, 16)


# The network

CUT: list[tuple[str, dict[str, Any], str]] = [
    ("one node", {"nodes": ("a",)}, "nodes: 1 nodes"),
    ("letters", {"nodes": "ab"}, "nodes: ab .*list of names"),
    ("topology", {"topology": "ring"}, "topology: ring .*switch, pair"),
    ("mtu", {"mtu": 1500}, "mtu: 1500 .*4160 and more, for a path_mtu of 4096"),
    ("trim", {"faults": {"trim": 0.5}}, "faults: trim .*legal: drop, corrupt"),
    ("trim too", {"faults": verbs.Faults(trim=0.5)}, "faults: trim "),
    ("share", {"faults": verbs.Faults(drop=1.5)}, "faults.drop: 1.5"),
    ("config", {"config": {}}, r"config: \{\} .*RoceConfig"),
    ("own config", {"nodes": {"a": verbs.NodeSpec(config=5), "b": verbs.NodeSpec()}}, "config: 5"),  # type: ignore[arg-type]
    ("pkeys", {"nodes": {"a": verbs.NodeSpec(pkeys=()), "b": verbs.NodeSpec()}}, "pkeys: .*one partition key"),
    ("pkey", {"nodes": {"a": verbs.NodeSpec(pkeys=(1 << 16,)), "b": verbs.NodeSpec()}}, "pkeys: 65536"),
    ("red", {"red": True}, r"red: True .*Red"),
    ("pfc and a cable", {"pfc": verbs.Pfc(), "topology": "pair"}, "pfc: topology pair"),
    ("no headroom", {"pfc": verbs.Pfc(), "queue_capacity": 1000}, "queue_capacity: 1000 .*bytes, for pfc"),
    ("seed", {"seed": "x"}, "seed: x"),
]


@pytest.mark.parametrize(("arguments", "text"), [row[1:] for row in CUT], ids=[row[0] for row in CUT])
def test_what_cannot_be_built(arguments: dict[str, Any], text: str, tmp_path: Path) -> None:
    refused(Errno.EINVAL, text, verbs.Network, capture=str(tmp_path / "x.pcapng"), **arguments)
    assert not list(tmp_path.iterdir())


def test_addresses() -> None:
    pd = verbs.Network().device("a").alloc_pd()
    assert pd.create_ah("::ffff:10.0.0.2").av == pd.create_ah(0x0A000002).av == pd.create_ah("10.0.0.2").av
    for wrong in ("fd00::1", "here", None, b"\1\2\3\4", 1 << 200):
        refused(Errno.EINVAL, "dst: .*IPv4", pd.create_ah, wrong)
    refused(Errno.EINVAL, "flow_label: ", pd.create_ah, "10.0.0.2", flow_label=1 << 20)
    refused(Errno.EINVAL, "hop_limit: 0", pd.create_ah, "10.0.0.2", hop_limit=0)
    qp = pd.create_qp(UD, pd.device.create_cq())
    refused(Errno.EINVAL, "gid: .*no multicast group", qp.attach_mcast, "10.0.0.2")
    device = pd.device
    assert (device.query().gid, device.query().active_speed) == ("::ffff:10.0.0.1", 400 * 10**9)


def test_when_the_network_is_closed() -> None:
    e: Ends = ends()
    e.send(Opcode.RDMA_WRITE, e.source[:8])
    e.net.close()
    assert e.a.send_cq.poll()[0].ok
    e.net.close()
    device, pd = e.a.device, e.a.pd
    for call in (lambda: e.send(Opcode.SEND), e.a.post_recv, device.alloc_pd, device.create_cq, pd.create_srq):
        refused(Errno.EINVAL, "network: closed", call)


def test_time() -> None:
    with verbs.Network() as net:
        assert net.run("1 us")
        assert net.now == 1_000_000
        refused(Errno.EINVAL, "until: 5 .*1000000 ps and later", net.run, 5)
        cq = net.device("a").create_cq(4)
        assert cq.wait(timeout="1 ms") == []
        assert net.now == 1_001_000_000
        refused(Errno.EINVAL, "timeout: soon", cq.wait, timeout="soon")
        refused(Errno.EINVAL, "count: 0", cq.poll, 0)
        refused(Errno.EINVAL, "depth: 0", net.device("a").create_cq, 0)
