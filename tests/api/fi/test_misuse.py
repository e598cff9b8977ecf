# SPDX-License-Identifier: GPL-2.0-only
"""What cannot be is refused at the call: libfabric's errno, the argument, what is legal, and nothing has changed."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.support.api.fi_network import Pair, pair
from uetproto.api import fi

Flag, Errno, Op, Datatype = fi.Flag, fi.Errno, fi.Op, fi.Datatype
WORD = Datatype.UINT64
BUF = bytearray(8)
SES = fi.SesConfig(max_msg_size=1000, inject_size=16, iov_limit=2)
Call = Callable[[Pair], Any]

OBJECTS = np.array([1, "x"], object)
OTHER = fi.Fabric().domain("a")


def closed(part: Any) -> Any:
    part.close()
    return part


ROWS: list[tuple[str, Call, fi.Errno, str]] = [
    # call                                                                         errno               text
    ("tag of 65 bits", lambda p: p.a.tsend(b"x", p.dest, 1 << 64), Errno.FI_EINVAL, "tag: .*0xffffffffffffffff"),
    ("negative tag", lambda p: p.a.tinject(b"x", p.dest, -1), Errno.FI_EINVAL, "tag: -0x1"),
    ("tag no number", lambda p: p.a.tsend(b"x", p.dest, "t"), Errno.FI_EINVAL, "tag: t "),
    ("tag of a receive", lambda p: p.b.trecv(BUF, fi.ADDR_UNSPEC, 1 << 64), Errno.FI_EINVAL, "tag: "),
    ("mask of 65 bits", lambda p: p.b.trecv(BUF, fi.ADDR_UNSPEC, 0, 1 << 64), Errno.FI_EINVAL, "ignore: "),
    ("negative address", lambda p: p.a.write(b"x", p.dest, -1, 1), Errno.FI_EINVAL, "addr: -0x1"),
    ("address of 65 bits", lambda p: p.a.read(BUF, p.dest, 1 << 64, 1), Errno.FI_EINVAL, "addr: "),
    ("beyond 64 bits", lambda p: p.a.write(b"xx", p.dest, (1 << 64) - 1, 1), Errno.FI_EINVAL, "addr: .*64 bits"),
    ("negative key", lambda p: p.a.write(b"x", p.dest, 0, -1), Errno.FI_EINVAL, "key: "),
    ("key of 65 bits", lambda p: p.a.read(BUF, p.dest, 0, 1 << 64), Errno.FI_EINVAL, "key: "),
    ("data of 65 bits", lambda p: p.a.write(b"x", p.dest, 0, 1, data=1 << 64), Errno.FI_EINVAL, "data: "),
    ("negative data", lambda p: p.a.send(b"x", p.dest, data=-1), Errno.FI_EINVAL, "data: "),
    ("unknown peer", lambda p: p.a.send(b"x", 99), Errno.FI_EINVAL, "dest: 99 .*av.insert"),
    ("unspecified peer", lambda p: p.a.write(b"x", fi.ADDR_UNSPEC, 0, 1), Errno.FI_EINVAL, "dest: "),
    ("address not inserted", lambda p: p.a.send(b"x", fi.Address(fa=9)), Errno.FI_EINVAL, "dest: .*av.insert"),
    ("unknown source", lambda p: p.a.read(BUF, 99, 0, 1), Errno.FI_EINVAL, "src: 99"),
    ("directed to nobody", lambda p: p.b.recv(BUF, 99), Errno.FI_EINVAL, "src: 99"),
    ("itself", lambda p: p.a.send(b"x", p.a.av.insert(p.a.address)), Errno.FI_EINVAL, "dest: .*loop-back"),
    ("no buffer", lambda p: p.a.send(1, p.dest), Errno.FI_EINVAL, "buf: int .*buffer"),
    ("strided", lambda p: p.a.send(memoryview(BUF)[::2], p.dest), Errno.FI_EINVAL, "buf: memoryview"),
    ("read into bytes", lambda p: p.a.read(b"x", p.dest, 0, 1), Errno.FI_EINVAL, "buf: a read-only bytes"),
    ("receive into bytes", lambda p: p.b.recv(b"x"), Errno.FI_EINVAL, "buf: a read-only bytes"),
    ("iov_limit", lambda p: p.a.send([b"x"] * 3, p.dest), Errno.FI_EINVAL, "buf: a list of 3 .*at most 2"),
    ("inject_size", lambda p: p.a.inject(bytes(17), p.dest), Errno.FI_EINVAL, "buf: 17 bytes .*at most 16"),
    ("inject_size, write", lambda p: p.a.inject_write(bytes(17), p.dest, 0, 1), Errno.FI_EINVAL, "inject_size"),
    ("inject_size, flag", lambda p: p.a.send(bytes(17), p.dest, flags=Flag.INJECT), Errno.FI_EINVAL, "inject_size"),
    ("max_msg_size", lambda p: p.a.send(bytes(1001), p.dest), Errno.FI_EMSGSIZE, "buf: 1001 bytes .*at most 1000"),
    ("max_msg_size, read", lambda p: p.a.read(bytearray(1001), p.dest, 0, 1), Errno.FI_EMSGSIZE, "at most 1000"),
    ("unknown flag", lambda p: p.a.send(b"x", p.dest, flags=Flag.RMA), Errno.FI_EBADFLAGS, "flags: RMA .*FENCE"),
    ("flag of others", lambda p: p.a.write(b"x", p.dest, 0, 1, flags=Flag.MATCH_COMPLETE), Errno.FI_EBADFLAGS,
     "flags: MATCH_COMPLETE"),
    ("multi-receive, tagged", lambda p: p.b.trecv(BUF, fi.ADDR_UNSPEC, 1, flags=Flag.MULTI_RECV), Errno.FI_EBADFLAGS,
     "flags: MULTI_RECV"),
    ("multi-receive, short", lambda p: p.b.recv(BUF, flags=Flag.MULTI_RECV), Errno.FI_EINVAL, "min_multi_recv"),
    ("inject a read", lambda p: p.a.read(BUF, p.dest, 0, 1, flags=Flag.INJECT), Errno.FI_EBADFLAGS, "flags: INJECT "),
    ("data without data", lambda p: p.a.send(b"x", p.dest, flags=Flag.REMOTE_CQ_DATA), Errno.FI_EINVAL, "data=…"),
    ("half an element", lambda p: p.a.atomic(bytes(12), p.dest, 0, 1, WORD, Op.SUM), Errno.FI_EINVAL,
     "buf: 12 bytes .*8 bytes"),
    ("no element", lambda p: p.a.atomic(b"", p.dest, 0, 1, WORD, Op.SUM), Errno.FI_EINVAL, "buf: 0 bytes"),
    ("more than one packet", lambda p: p.a.atomic(bytes(4104), p.dest, 0, 1, WORD, Op.SUM), Errno.FI_EINVAL,
     "buf: 4104 bytes .*4096 bytes at most"),
    ("two elements fetched", lambda p: p.a.fetch_atomic(bytes(16), BUF, p.dest, 0, 1, WORD, Op.SUM), Errno.FI_EINVAL,
     "buf: 16 bytes .*one element, 8 bytes"),
    ("short result", lambda p: p.a.fetch_atomic(BUF, bytearray(4), p.dest, 0, 1, WORD, Op.SUM), Errno.FI_EINVAL,
     "result: 4 bytes"),
    ("read-only result", lambda p: p.a.fetch_atomic(BUF, bytes(8), p.dest, 0, 1, WORD, Op.SUM), Errno.FI_EINVAL,
     "result: a read-only bytes"),
    ("short compare", lambda p: p.a.compare_atomic(BUF, b"x", BUF, p.dest, 0, 1, WORD, Op.CSWAP), Errno.FI_EINVAL,
     "compare: 1 bytes"),
    ("compare of a sum", lambda p: p.a.compare_atomic(BUF, BUF, BUF, p.dest, 0, 1, WORD, Op.SUM), Errno.FI_EINVAL,
     "op: SUM"),
    ("swap without compare", lambda p: p.a.atomic(BUF, p.dest, 0, 1, WORD, Op.CSWAP), Errno.FI_EINVAL, "op: CSWAP"),
    ("read without result", lambda p: p.a.atomic(BUF, p.dest, 0, 1, WORD, Op.READ), Errno.FI_EINVAL, "op: READ"),
    ("BOR of doubles", lambda p: p.a.atomic(BUF, p.dest, 0, 1, Datatype.DOUBLE, Op.BOR), Errno.FI_EOPNOTSUPP,
     "op: BOR on DOUBLE"),
    ("unknown operation", lambda p: p.a.atomic(BUF, p.dest, 0, 1, WORD, 99), Errno.FI_EOPNOTSUPP, "op: 99"),
    ("unknown datatype", lambda p: p.a.atomic(BUF, p.dest, 0, 1, 99, Op.SUM), Errno.FI_EOPNOTSUPP, "op: SUM on 99"),
    ("cancel what is not posted", lambda p: p.b.cancel("c"), Errno.FI_ENOENT, "context: c "),
    ("read no entries", lambda p: p.a.cq.read(0), Errno.FI_EINVAL, "count: 0"),
    ("wait a text", lambda p: p.a.cq.sread(1, "soon"), Errno.FI_EINVAL, "timeout: .*1 ms"),
    ("bind when enabled", lambda p: p.a.bind(p.a.domain.cntr_open(), Flag.SEND), Errno.FI_EOPBADSTATE, "enabled"),
    ("enable twice", lambda p: p.a.enable(), Errno.FI_EOPBADSTATE, "enabled; legal: new"),
    ("close what is bound", lambda p: p.a.cq.close(), Errno.FI_EBUSY, "cq: "),
    ("close the vector", lambda p: p.a.av.close(), Errno.FI_EBUSY, "av: "),
    ("close the domain", lambda p: p.b.domain.close(), Errno.FI_EBUSY, "1 endpoints and 1 regions"),
    ("directed to an unknown id", lambda p: p.b.recv(BUF, p.b.av.insert(fi.Address(fa=1))), Errno.FI_EINVAL,
     "src: .*initiator id is known"),
    ("flags of a counter", lambda p: p.a.domain.endpoint().bind(p.a.domain.cntr_open(), Flag.RMA), Errno.FI_EBADFLAGS,
     "flags: "),
    ("flags of a region", lambda p: p.b.domain.mr_reg(bytearray(1), flags=Flag.RMA_EVENT).bind(
        p.b.domain.cntr_open(), Flag.READ), Errno.FI_EBADFLAGS, "flags: "),
    ("queue of a new endpoint", lambda p: p.a.domain.endpoint().cq, Errno.FI_ENOCQ, "no completion queue"),
    ("index taken", lambda p: p.a.domain.endpoint(resource_index=15), Errno.FI_EADDRINUSE, "resource_index: 15"),
    ("index 0", lambda p: p.a.domain.endpoint(resource_index=0), Errno.FI_EINVAL, "resource_index: 0"),
    ("initiator of 33 bits", lambda p: p.a.domain.endpoint(initiator_id=1 << 32), Errno.FI_EINVAL, "initiator_id: "),
    ("PIDonFEP taken", lambda p: p.fabric.domain("a", pid_on_fep=0), Errno.FI_EADDRINUSE, "pid_on_fep: 0"),
    ("unknown node", lambda p: p.fabric.domain("c"), Errno.FI_EINVAL, "node: c .*a, b"),
    ("queue of nothing", lambda p: p.a.domain.cq_open(0), Errno.FI_EINVAL, "size: 0"),
    ("unknown format", lambda p: p.a.domain.cq_open(1, 9), Errno.FI_EINVAL, "format: 9"),
    ("mr_mode", lambda p: p.fabric.domain("a", mr_mode=fi.MrMode(1)), Errno.FI_EINVAL, "mr_mode: "),
    ("mr_mode of 70 bits", lambda p: p.fabric.domain("a", mr_mode=1 << 70), Errno.FI_EINVAL, "mr_mode: 0x4000"),
    ("job", lambda p: p.fabric.domain("a", "x"), Errno.FI_EINVAL, "job: x "),
    ("endpoint type", lambda p: p.a.domain.endpoint(1), Errno.FI_EINVAL, "ep_type: 1 .*DGRAM, RDM"),
    ("order", lambda p: p.a.domain.endpoint(msg_order="x"), Errno.FI_EINVAL, "msg_order: x .*RAR, "),
    ("unknown order", lambda p: p.a.domain.endpoint(msg_order=1 << 20), Errno.FI_EINVAL, "msg_order: 0x100000 "),
    ("negative order", lambda p: p.a.domain.endpoint(msg_order=-1), Errno.FI_EINVAL, "msg_order: "),
    ("op_flags", lambda p: p.a.domain.endpoint(op_flags=None), Errno.FI_EBADFLAGS, "op_flags: None .*FENCE"),
    ("op_flags of others", lambda p: p.a.domain.endpoint(op_flags=Flag.RECV), Errno.FI_EBADFLAGS, "op_flags: RECV "),
    ("flags, none", lambda p: p.a.send(b"x", p.dest, flags=None), Errno.FI_EBADFLAGS, "flags: None .*FENCE"),
    ("flags, text", lambda p: p.a.read(BUF, p.dest, 0, 1, flags="x"), Errno.FI_EBADFLAGS, "flags: x "),
    ("flags, True", lambda p: p.a.write(b"x", p.dest, 0, 1, flags=True), Errno.FI_EBADFLAGS, "flags: True"),
    ("flags of 70 bits", lambda p: p.a.write(b"x", p.dest, 0, 1, flags=1 << 70), Errno.FI_EBADFLAGS, "flags: 0x4000"),
    ("flags of a receive", lambda p: p.b.recv(BUF, flags=1.5), Errno.FI_EBADFLAGS, "flags: 1.5 .*MULTI_RECV"),
    ("flags of mr_reg", lambda p: p.b.domain.mr_reg(BUF, flags=1 << 70), Errno.FI_EBADFLAGS, "flags: .*RMA_EVENT"),
    ("access", lambda p: p.b.domain.mr_reg(BUF, "x"), Errno.FI_EINVAL, "access: x .*REMOTE_READ"),
    ("no access", lambda p: p.b.domain.mr_reg(BUF, Flag.NONE), Errno.FI_EINVAL, "access: none"),
    ("counted, 70 bits", lambda p: p.a.domain.endpoint().bind(p.a.domain.cntr_open(), 1 << 70), Errno.FI_EBADFLAGS,
     "flags: 0x4000"),
    ("flags of a queue", lambda p: p.a.domain.endpoint().bind(p.a.domain.cq_open(), "x"), Errno.FI_EBADFLAGS,
     "flags: x"),
    ("wait for a text", lambda p: p.a.domain.cntr_open().wait("x"), Errno.FI_EINVAL, "threshold: x"),
    ("count a half", lambda p: p.a.domain.cntr_open().add(1.5), Errno.FI_EINVAL, "value: 1.5"),
    ("count down", lambda p: p.a.domain.cntr_open().add(-3), Errno.FI_EINVAL, "value: -0x3"),
    ("set nothing", lambda p: p.a.domain.cntr_open().set(None), Errno.FI_EINVAL, "value: None"),
    ("capabilities", lambda p: fi.Address(fa=1, fep_cap="x"), Errno.FI_EINVAL, "fep_cap: x"),
    ("min_multi_recv", lambda p: setattr(p.b, "min_multi_recv", 0), Errno.FI_EINVAL, "min_multi_recv: 0"),
    ("operation, a list", lambda p: p.a.atomic(BUF, p.dest, 0, 1, WORD, []), Errno.FI_EOPNOTSUPP, r"op: \[\]"),
    ("datatype, a table", lambda p: p.a.atomic(BUF, p.dest, 0, 1, {}, Op.SUM), Errno.FI_EOPNOTSUPP, "SUM on {}"),
    ("fetch into nothing", lambda p: p.a.fetch_atomic(BUF, None, p.dest, 0, 1, WORD, Op.SUM), Errno.FI_EINVAL,
     "result: None"),
    ("swap into nothing", lambda p: p.a.compare_atomic(BUF, BUF, None, p.dest, 0, 1, WORD, Op.CSWAP), Errno.FI_EINVAL,
     "result: None"),
    ("compare with nothing", lambda p: p.a.compare_atomic(BUF, None, BUF, p.dest, 0, 1, WORD, Op.CSWAP),
     Errno.FI_EINVAL, "compare: None"),
    ("objects, received", lambda p: p.b.recv(OBJECTS), Errno.FI_EINVAL, "buf: a buffer of objects"),
    ("objects, sent", lambda p: p.a.write(OBJECTS, p.dest, 0, 1), Errno.FI_EINVAL, "buf: a buffer of objects"),
    ("objects, registered", lambda p: p.b.domain.mr_reg(OBJECTS), Errno.FI_EINVAL, "buf: a buffer of objects"),
    ("objects in records", lambda p: p.b.recv(np.zeros(2, [("n", "i4"), ("o", object)])), Errno.FI_EINVAL,
     "buf: a buffer of objects"),
    ("vector of others", lambda p: p.a.domain.endpoint().bind(OTHER.av_open()), Errno.FI_EDOMAIN, "av: .*fabric"),
    ("queue of others", lambda p: p.a.domain.endpoint().bind(OTHER.cq_open()), Errno.FI_EDOMAIN, "cq: .*fabric"),
    ("counter of others", lambda p: p.a.domain.endpoint().bind(OTHER.cntr_open(), Flag.SEND), Errno.FI_EDOMAIN,
     "counter: .*fabric"),
    ("counter of others, region", lambda p: p.b.domain.mr_reg(BUF, flags=Flag.RMA_EVENT).bind(OTHER.cntr_open()),
     Errno.FI_EDOMAIN, "counter: .*fabric"),
    ("closed vector", lambda p: p.a.domain.endpoint().bind(closed(p.a.domain.av_open())), Errno.FI_EINVAL,
     "av: is closed"),
    ("closed queue", lambda p: p.a.domain.endpoint().bind(closed(p.a.domain.cq_open())), Errno.FI_EINVAL,
     "cq: is closed"),
    ("closed counter", lambda p: p.a.domain.endpoint().bind(closed(p.a.domain.cntr_open()), Flag.SEND),
     Errno.FI_EINVAL, "counter: is closed"),
    ("count in a closed one", lambda p: closed(p.a.domain.cntr_open()).add(), Errno.FI_EOPBADSTATE, "is closed"),
    ("wait for a closed one", lambda p: closed(p.a.domain.cntr_open()).wait(0), Errno.FI_EOPBADSTATE, "is closed"),
    ("look up in a closed one", lambda p: closed(p.a.domain.av_open()).lookup(0), Errno.FI_EOPBADSTATE, "is closed"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "errno", "text"), [row[1:] for row in ROWS], ids=[row[0] for row in ROWS])
def test_refused_at_the_call(call: Call, errno: fi.Errno, text: str) -> None:
    two = pair(ses=SES)
    with pytest.raises(fi.FiError, match=text) as raised:
        call(two)
    assert raised.value.errno is errno
    assert len(two.fabric.world.clock) == 0, "nothing was sent"
    assert two.fabric.world.idle
    assert (two.a.cq.read(9), two.b.cq.read(9)) == ([], [])
    two.a.write(b"works", two.dest, 0, two.mr.key)
    assert [entry.ok for entry in two.a.cq.sread(9)] == [True]
    assert two.memory.startswith(b"works")


CALLS: list[tuple[str, Call]] = [
    ("send", lambda p: p.a.send(b"x", p.dest)),
    ("tsend", lambda p: p.a.tsend(b"x", p.dest, 1)),
    ("inject", lambda p: p.a.inject(b"x", p.dest)),
    ("tinject", lambda p: p.a.tinject(b"x", p.dest, 1)),
    ("recv", lambda p: p.a.recv(BUF)),
    ("trecv", lambda p: p.a.trecv(BUF, fi.ADDR_UNSPEC, 1)),
    ("write", lambda p: p.a.write(b"x", p.dest, 0, p.mr.key)),
    ("inject_write", lambda p: p.a.inject_write(b"x", p.dest, 0, p.mr.key)),
    ("read", lambda p: p.a.read(BUF, p.dest, 0, p.mr.key)),
    ("atomic", lambda p: p.a.atomic(BUF, p.dest, 0, p.mr.key, WORD, Op.SUM)),
    ("inject_atomic", lambda p: p.a.inject_atomic(BUF, p.dest, 0, p.mr.key, WORD, Op.SUM)),
    ("fetch_atomic", lambda p: p.a.fetch_atomic(BUF, bytearray(8), p.dest, 0, p.mr.key, WORD, Op.SUM)),
    ("compare_atomic", lambda p: p.a.compare_atomic(BUF, BUF, bytearray(8), p.dest, 0, p.mr.key, WORD, Op.CSWAP)),
]  # fmt: skip
_CALLS = pytest.mark.parametrize("call", [row[1] for row in CALLS], ids=[row[0] for row in CALLS])


@_CALLS
@pytest.mark.parametrize("end", ["close", "disable"])
def test_an_endpoint_that_is_not_enabled(call: Call, end: str) -> None:
    two = pair()
    dest = two.dest
    getattr(two.a, end)()
    with pytest.raises(fi.FiError, match=f"it is {end}d; legal: enabled") as raised:
        call(two)
    assert raised.value.errno is Errno.FI_EOPBADSTATE
    assert dest == 0
    assert len(two.fabric.world.clock) == 0


@_CALLS
def test_fi_mr_local(call: Call) -> None:
    """A buffer that is not registered is refused, a view of one that is may be used; an inject copies anyway."""
    two = pair(mr_mode=fi.MrMode.LOCAL)
    submitted: list[Any] = []
    two.a.domain.node.submit = submitted.append  # type: ignore[method-assign]
    name = next(name for name, row in CALLS if row is call)
    if "inject" in name:
        call(two)
        assert len(submitted) == 1
        return
    with pytest.raises(fi.FiError, match=r"an unregistered (bytes|bytearray) .*FI_MR_LOCAL") as raised:
        call(two)
    assert raised.value.errno is Errno.FI_EINVAL
    assert submitted == []
    mine = bytearray(64)
    mr = two.a.domain.mr_reg(mine)
    two.a.send(memoryview(mine)[8:16], two.dest)
    assert len(submitted) == 1
    mr.close()
    with pytest.raises(fi.FiError, match="FI_MR_LOCAL"):
        two.a.send(memoryview(mine)[8:16], two.dest)


def test_what_an_endpoint_needs() -> None:
    domain = fi.Fabric().domain("a")
    endpoint = domain.endpoint()
    with pytest.raises(fi.FiError, match="no address vector") as raised:
        endpoint.enable()
    assert raised.value.errno is Errno.FI_ENOAV
    endpoint.bind(domain.av_open())
    endpoint.bind(domain.cq_open(), Flag.TRANSMIT)
    with pytest.raises(fi.FiError, match="completion queues for TRANSMIT and for RECV") as raised:
        endpoint.enable()
    assert raised.value.errno is Errno.FI_ENOCQ
    for again, text in ((domain.av_open(), "av: a second"), (domain.cq_open(), "cq: a second"), (7, "bind: int")):
        with pytest.raises(fi.FiError, match=text):
            endpoint.bind(again)  # type: ignore[arg-type]
    with pytest.raises(fi.FiError, match="flags: ") as raised:
        endpoint.bind(domain.cq_open(), Flag.FENCE)
    assert raised.value.errno is Errno.FI_EBADFLAGS
    endpoint.bind(domain.cq_open(), Flag.RECV)
    assert not domain.process.indices
    endpoint.enable()
    assert list(domain.process.indices) == [15]


def test_datagrams_know_no_rma_and_no_tags() -> None:
    two = pair(ep_type=fi.EpType.DGRAM)
    for name, call in CALLS:
        if name in ("send", "inject", "recv", "trecv"):
            continue
        with pytest.raises(fi.FiError, match="endpoint: DGRAM") as raised:
            call(two)
        assert raised.value.errno is Errno.FI_EOPNOTSUPP
    with pytest.raises(fi.FiError, match=r"4097 bytes .*at most 4096") as raised:
        two.a.send(bytes(4097), two.dest)
    assert raised.value.errno is Errno.FI_EMSGSIZE
    with pytest.raises(fi.FiError, match="completion levels") as raised:
        two.a.send(b"x", two.dest, flags=Flag.DELIVERY_COMPLETE)
    assert raised.value.errno is Errno.FI_EOPNOTSUPP


LACKS: list[tuple[str, Call, str]] = [  # what a peer with that profile alone cannot (ses.md §4.3)
    ("ai_base", lambda p: p.a.read(BUF, p.dest, 0, 1), "READ"),
    ("ai_base", lambda p: p.a.tsend(b"x", p.dest, 1), "TAGGED_SEND"),
    ("ai_base", lambda p: p.a.fetch_atomic(BUF, BUF, p.dest, 0, 1, WORD, Op.SUM), "FETCHING_ATOMIC"),
    ("ai_base", lambda p: p.a.compare_atomic(BUF, BUF, BUF, p.dest, 0, 1, WORD, Op.CSWAP), "FETCHING_ATOMIC"),
    ("ai_full", lambda p: p.a.atomicmsg(BUF, p.dest, 0, 1, WORD, Op.SUM, flags=Flag.TAGGED), "TSEND_ATOMIC"),
    ("ai_full", lambda p: p.a.atomicmsg(BUF, p.dest, 0, 1, WORD, Op.SUM, result=BUF, flags=Flag.TAGGED),
     "TSEND_FETCH_ATOMIC"),
]  # fmt: skip


@pytest.mark.parametrize(("profile", "call", "opcode"), LACKS)
def test_what_the_peer_lacks(profile: str, call: Call, opcode: str) -> None:
    two = pair(nodes={"a": fi.NodeSpec(), "b": fi.NodeSpec(ses=fi.SesConfig(profile=profile))})
    with pytest.raises(fi.FiError, match=f"dest: {opcode} to .*legal: a peer with") as raised:
        call(two)
    assert raised.value.errno is Errno.FI_EOPNOTSUPP
    assert len(two.fabric.world.clock) == 0


def test_wildcards_need_the_profile_here() -> None:
    two = pair(ses=fi.SesConfig(profile="ai_full"))
    with pytest.raises(fi.FiError, match=r"ignore: 0x1 .*hpc"):
        two.b.trecv(BUF, fi.ADDR_UNSPEC, 1, 1)


def test_everything_closes() -> None:
    two = pair()
    domain, cq, av = two.b.domain, two.b.cq, two.b.av
    two.mr.close()
    two.b.close()
    two.b.close()
    for part in (cq, av, domain):
        part.close()
    assert two.fabric.domains == [two.a.domain]
    for call in (domain.av_open, domain.cq_open, domain.cntr_open, domain.endpoint, lambda: domain.mr_reg(BUF)):
        with pytest.raises(fi.FiError, match="closed") as raised:
            call()
        assert raised.value.errno is Errno.FI_EOPBADSTATE
    with pytest.raises(fi.FiError, match="cq: is closed"):
        cq.read()
    with pytest.raises(fi.FiError, match="av: is closed"):
        av.insert(two.a.address)
    assert two.fabric.domain("b").pid_on_fep == 0


def test_records_of_plain_elements_are_buffers() -> None:
    """Also with a field whose name is O: only the kinds of elements count."""
    two = pair()
    records = np.zeros(2, [("O", "<i4"), ("x", "<f4")])
    two.b.recv(records)
    two.a.send(bytes(range(16)), two.b.address)
    assert two.a.cq.sread(1)[0].ok
    assert records.tobytes() == bytes(range(16))


def test_cancel_by_an_array() -> None:
    two = pair()
    array = np.arange(3)
    two.b.recv(bytearray(1), context=np.arange(3))
    two.b.recv(bytearray(2), context=array)
    assert two.b.cancel(array)
    (entry,) = two.b.cq.read(9)
    assert entry.op_context is array


def test_all_numbers_are_taken() -> None:
    domain = fi.Fabric().domain("a")
    domain.endpoints = dict.fromkeys(range(15, 4096))  # type: ignore[assignment]
    with pytest.raises(fi.FiError, match="resource_index: all ") as raised:
        domain.endpoint()
    assert raised.value.errno is Errno.FI_ENOSPC
    fabric = fi.Fabric()
    for _ in range(4096):
        fabric.domain("a")
    with pytest.raises(fi.FiError, match="pid_on_fep: all 4096 of node a") as raised:
        fabric.domain("a")
    assert raised.value.errno is Errno.FI_ENOSPC
    assert fabric.domain("b").pid_on_fep == 0


def test_nothing_is_opened_when_the_fabric_is_closed() -> None:
    two = pair()
    domain = two.a.domain
    two.fabric.close()
    for call in (domain.av_open, domain.cq_open, domain.cntr_open, domain.endpoint, lambda: domain.mr_reg(BUF)):
        with pytest.raises(fi.FiError, match="the fabric is closed") as raised:
            call()
        assert raised.value.errno is Errno.FI_EOPBADSTATE


def test_bytes_of_a_compare_and_swap() -> None:
    """One element, as of other fetching atomics, though the message has two operands of 16 bytes."""
    two = pair()
    two.a.compare_atomic(bytes(8), bytes(8), bytearray(8), two.dest, 0, two.mr.key, WORD, Op.CSWAP)
    two.a.fetch_atomic(bytes(8), bytearray(8), two.dest, 0, two.mr.key, WORD, Op.SUM)
    entries = two.a.cq.sread(2, threshold=2)
    assert [(entry.ok, entry.len) for entry in entries if isinstance(entry, fi.CqMsgEntry)] == [(True, 8), (True, 8)]
