# SPDX-License-Identifier: GPL-2.0-only
"""States of queue pairs, what may be posted, flush (roce.md §6)."""

from itertools import pairwise
from typing import Any

import pytest

from tests.support.each import each
from tests.support.roce.world import BASE, QP_A, World
from uetproto.engine.roce.config import RoceConfig
from uetproto.engine.roce.contract import (
    AddressVector,
    AsyncType,
    ModifyQp,
    Opcode,
    PostRecv,
    PostSend,
    PostSrqRecv,
    QpState,
    QpType,
    SendFlags,
    Sge,
    Status,
)
from uetproto.engine.roce.hca import Hca
from uetproto.engine.roce.qp import LEGAL, REQUIRED
from uetproto.errors import LocalError

S = QpState
SMALL = RoceConfig(path_mtu=256, credits=False)
ROUTES = {
    S.RESET: (), S.INIT: (S.INIT,), S.RTR: (S.INIT, S.RTR), S.RTS: (S.INIT, S.RTR, S.RTS),
    S.SQD: (S.INIT, S.RTR, S.RTS, S.SQD), S.ERR: (S.INIT, S.ERR),
}  # fmt: skip


def at(state: QpState, kind: QpType = QpType.RC) -> World:
    """A is in this state, B in RTS."""
    w = World(kind, a=SMALL)
    w.modify(w.a, S.RESET)
    if state is S.SQE:
        go(w, S.RTS)
        w.send(sg_list=(Sge(0, 4, 0x9999),), **UD_TO_B)
        assert w.statuses() == [Status.LOC_PROT_ERR]
        w.a.events.clear()
    else:
        go(w, state)
    return w


UD_TO_A: dict[str, Any] = {"ah": AddressVector(0x0A000001), "remote_qpn": 0x11, "remote_qkey": 0x11111111}
UD_TO_B: dict[str, Any] = {"ah": AddressVector(0x0A000002), "remote_qpn": 0x12, "remote_qkey": 0x11111111}


def go(w: World, state: QpState) -> None:
    for step in ROUTES[state]:
        given = w.attributes(w.a, w.b, step, 5, {}) if step in REQUIRED[w.kind] else {}
        w.modify(w.a, step, **given)


@each("old", [s for s in S if s is not S.SQE])
@each("new", S)
def test_transitions(old: QpState, new: QpState) -> None:
    """§6, the first table; SQD with nothing to drain may go to RTS."""
    w = at(old)
    given = w.attributes(w.a, w.b, new, 5, {}) if new in REQUIRED[w.kind] and new != old and old != S.SQD else {}
    if new in LEGAL[old]:
        w.modify(w.a, new, **given)
        assert w.a.qp.state is new
    else:
        with pytest.raises(LocalError, match=f"state: {old.name} → {new.name} is not legal; legal: "):
            w.modify(w.a, new, **given)
        assert w.a.qp.state is old


def test_the_table_of_transitions() -> None:
    """§6, word for word."""
    assert {old.name: " ".join(new.name for new in to) for old, to in LEGAL.items()} == {
        "RESET": "INIT", "INIT": "INIT RTR ERR RESET", "RTR": "RTS ERR RESET", "RTS": "RTS SQD ERR RESET",
        "SQD": "SQD RTS ERR RESET", "SQE": "RTS ERR RESET", "ERR": "RESET",
    }  # fmt: skip


@pytest.mark.parametrize(("kind", "state", "name"), [
    (kind, state, name) for kind, rows in REQUIRED.items() for state, names in rows.items() for name in names
])  # fmt: skip
def test_attributes_that_must_be_given(kind: QpType, state: QpState, name: str) -> None:
    """§6, the third table."""
    w = World(kind, a=SMALL)
    w.modify(w.a, S.RESET)
    for before, after in pairwise((S.RESET, S.INIT, S.RTR, S.RTS)):
        given = w.attributes(w.a, w.b, after, 5, {})
        if after is state:
            del given[name]
            with pytest.raises(LocalError, match=f"{name}: must be given"):
                w.modify(w.a, after, **given)
            assert w.a.qp.state is before
            return
        w.modify(w.a, after, **given)


@pytest.mark.parametrize(("change", "text"), [
    ({"path_mtu": 300}, "path_mtu: 300 is not legal; legal: 256, 512"), ({"dest_qpn": 1 << 24}, "dest_qpn"),
    ({"qkey": 1}, "qkey: no attribute of type RC"), ({"sq_psn": 3}, "sq_psn: not legal from INIT to RTR"),
    ({"min_rnr_timer": 32}, r"min_rnr_timer: 32 is not legal; legal: 0 … 31"), ({"av": 7}, "av"),
    ({"pkey_index": 1}, "pkey_index"), ({"access_flags": 16}, "access_flags"),
])  # fmt: skip
def test_attributes_that_may_not_be(change: dict[str, Any], text: str) -> None:
    w = World(a=SMALL)
    w.modify(w.a, S.RESET)
    w.modify(w.a, S.INIT, **w.attributes(w.a, w.b, S.INIT, 5, {}))
    with pytest.raises(LocalError, match=text):
        w.modify(w.a, S.RTR, **(w.attributes(w.a, w.b, S.RTR, 5, {}) | change))


@pytest.mark.parametrize("name", ["av", "path_mtu", "dest_qpn", "rq_psn", "max_dest_rd_atomic", "sq_psn"])
def test_attributes_that_stay_while_it_runs(name: str) -> None:
    w = World(a=SMALL)
    given = w.attributes(w.a, w.b, S.RTR, 5, {}) | w.attributes(w.a, w.b, S.RTS, 5, {})
    with pytest.raises(LocalError, match=f"{name}: not legal from RTS to RTS"):
        w.modify(w.a, S.RTS, **{name: given[name]})


@pytest.mark.parametrize(("state", "kind", "outcome"), [
    (S.RESET, QpType.RC, "refused"), (S.INIT, QpType.RC, "queued"), (S.RTR, QpType.RC, "queued"),
    (S.RTS, QpType.RC, "queued"), (S.SQD, QpType.RC, "queued"), (S.SQE, QpType.UD, "queued"),
    (S.ERR, QpType.RC, "flushed"),
])  # fmt: skip
def test_post_recv(state: QpState, kind: QpType, outcome: str) -> None:
    """§6, the second table."""
    w = at(state, kind)
    work = PostRecv(qp_num=QP_A, wr_id=7)
    if outcome == "refused":
        with pytest.raises(LocalError, match="post_recv is legal from INIT on"):
            w.a.hca.submit(work, 0)
        return
    w.a.hca.submit(work, 0)
    w.collect()
    assert w.statuses(w.a, True) == ([Status.WR_FLUSH_ERR] if outcome == "flushed" else [])
    assert len(w.a.qp.receives.items) == (outcome == "queued")


@pytest.mark.parametrize(("state", "kind", "outcome"), [
    (S.RESET, QpType.RC, "refused"), (S.INIT, QpType.RC, "refused"), (S.RTR, QpType.RC, "refused"),
    (S.RTS, QpType.RC, "sent"), (S.SQD, QpType.RC, "queued"), (S.SQE, QpType.UD, "flushed"),
    (S.ERR, QpType.RC, "flushed"),
])  # fmt: skip
def test_post_send(state: QpState, kind: QpType, outcome: str) -> None:
    """§6, the second table; what is flushed completes signalled or not."""
    w = at(state, kind)
    more = UD_TO_B if kind is QpType.UD else {}
    if outcome == "refused":
        with pytest.raises(LocalError, match=f"is in {state.name}; post_send is legal from RTS on"):
            w.send(length=4, send_flags=SendFlags(0), **more)
        return
    w.log.clear()
    w.send(length=4, send_flags=SendFlags(0), **more)
    assert len(w.sent()) == (outcome == "sent")
    assert w.statuses() == ([Status.WR_FLUSH_ERR] if outcome == "flushed" else [])


@pytest.mark.parametrize(("state", "kind", "served"), [
    (S.RESET, QpType.RC, False), (S.INIT, QpType.RC, False), (S.RTR, QpType.RC, True), (S.RTS, QpType.RC, True),
    (S.SQD, QpType.RC, True), (S.SQE, QpType.UC, True), (S.SQE, QpType.UD, True), (S.ERR, QpType.RC, False),
])  # fmt: skip
def test_requests_in(state: QpState, kind: QpType, served: bool) -> None:
    """§6, the second table."""
    w = at(state, kind)
    if state is not S.RESET:
        w.recv(100, side=w.a)
    w.send(Opcode.SEND, 4, side=w.b, **(UD_TO_A if kind is QpType.UD else {}))
    w.deliver()
    assert (Status.SUCCESS in w.statuses(w.a, True)) is served


def test_drained() -> None:
    """§6: those begun are finished, then SQ_DRAINED; back to RTS only then; those queued are sent after it."""
    w = World(a=SMALL, given={"max_rd_atomic": 1})
    w.send(Opcode.RDMA_WRITE, 600)
    w.send(Opcode.RDMA_READ, 4)
    w.send(Opcode.RDMA_READ, 4, at=100)
    w.modify(w.a, S.SQD)
    assert w.asynchronous(w.a) == []
    with pytest.raises(LocalError, match="state: SQD → RTS is not legal; legal: SQD, ERR, RESET"):
        w.modify(w.a, S.RTS)
    w.deliver_all()
    assert w.asynchronous(w.a) == [AsyncType.SQ_DRAINED]
    assert len(w.done()) == 2
    w.modify(w.a, S.RTS)
    w.take()
    w.deliver_all()
    assert w.statuses() == [Status.SUCCESS] * 3
    w.modify(w.a, S.SQD)
    assert w.asynchronous(w.a) == [AsyncType.SQ_DRAINED] * 2


def test_flush_in_posting_order() -> None:
    """§6: every send and receive, signalled or not; nothing more after it."""
    w = World(a=SMALL)
    for number in range(3):
        w.send(Opcode.RDMA_WRITE, 4, wr_id=number, send_flags=SendFlags(0))
        w.recv(4, side=w.a, wr_id=10 + number)
    w.modify(w.a, S.ERR)
    assert [(c.wr_id, c.status) for c in w.done()] == [(number, Status.WR_FLUSH_ERR) for number in range(3)]
    assert [(c.wr_id, c.status) for c in w.done(w.a, True)] == [(10 + n, Status.WR_FLUSH_ERR) for n in range(3)]
    w.run()
    assert len(w.done()) == 3
    assert w.a.hca.quiescent


def test_flush_of_a_receive_in_use() -> None:
    w = World(a=SMALL)
    w.recv(1000, wr_id=1)
    w.recv(1000, wr_id=2)
    w.send(Opcode.SEND, 600)
    w.deliver()
    w.modify(w.b, S.ERR)
    assert [(c.wr_id, c.status) for c in w.received()] == [(1, Status.WR_FLUSH_ERR), (2, Status.WR_FLUSH_ERR)]


def test_reset_throws_all_away() -> None:
    """§6: without completions; and the numbers start anew."""
    w = World(a=SMALL)
    w.send(Opcode.RDMA_WRITE, 4)
    w.recv(4, side=w.a)
    w.modify(w.a, S.RESET)
    w.modify(w.b, S.RESET)
    w.wire.clear()
    assert w.done() == w.done(w.a, True) == []
    assert not w.a.qp.receives.items
    for side, peer in ((w.a, w.b), (w.b, w.a)):
        for state in (S.INIT, S.RTR, S.RTS):
            w.modify(side, state, **w.attributes(side, peer, state, 99, {}))
    w.send(Opcode.RDMA_WRITE, 4)
    assert w.sent()[-1].psn == 99
    w.deliver_all()
    assert w.statuses() == [Status.SUCCESS]
    assert w.sent(w.b)[-1].values["msn"] == 1


def test_no_answers_after_err() -> None:
    """§6: a response that is being sent ends when the user says ERR."""
    w = World(a=SMALL)
    w.send(Opcode.RDMA_READ, 600)
    w.b.hca.receive(w.wire.pop(), 0)
    w.modify(w.b, S.ERR)
    w.take()
    assert w.wire == []


@pytest.mark.parametrize("kind", [QpType.UC, QpType.UD])
def test_a_failed_send_takes_uc_and_ud_to_sqe(kind: QpType) -> None:
    """§6: SQE: receives go on, sends are flushed; and RTS again."""
    w = World(kind, a=SMALL)
    more = UD_TO_B if kind is QpType.UD else {}
    w.recv(100, side=w.a)
    for number, lkey in enumerate((0x1234, 0x9999, 0x1234)):
        w.a.hca.submit(PostSend(qp_num=QP_A, wr_id=number, sg_list=(Sge(BASE, 4, lkey),), **more), 0)
    w.take()
    assert [(c.wr_id, c.status) for c in w.done()] == [(0, 0), (1, Status.LOC_PROT_ERR), (2, Status.WR_FLUSH_ERR)]
    assert w.a.qp.state is S.SQE
    assert w.done(w.a, True) == []
    w.modify(w.a, S.RTS)
    w.send(length=4, **more)
    assert w.statuses()[-1] == Status.SUCCESS


# What may be posted --------------------------------------------------------------------------------------------------

HAVE = {
    QpType.RC: set(Opcode) - {Opcode.ATOMIC_WRITE},
    QpType.UC: {Opcode.SEND, Opcode.SEND_WITH_IMM, Opcode.RDMA_WRITE, Opcode.RDMA_WRITE_WITH_IMM},
    QpType.UD: {Opcode.SEND, Opcode.SEND_WITH_IMM},
}


@pytest.mark.parametrize("kind", QpType)
@pytest.mark.parametrize("opcode", Opcode)
def test_transport_table(kind: QpType, opcode: Opcode) -> None:
    """§6: SEND on UD, UC, RC; WRITE on UC, RC; READ and ATOMIC on RC; SEND_WITH_INV not on UC."""
    w = World(kind, a=SMALL)
    more = UD_TO_B if kind is QpType.UD else {}
    if opcode in HAVE[kind]:
        w.send(opcode, 8, **more)
        assert len(w.wire) == 1
    else:
        with pytest.raises(LocalError, match=f"opcode: {opcode.name} is not legal on {kind.name}; services"):
            w.send(opcode, 8, **more)


@pytest.mark.parametrize(("kind", "most"), [(QpType.RC, 2**31), (QpType.UC, 2**31), (QpType.UD, 256)])
@pytest.mark.parametrize("over", [0, 1])
def test_longest_message(kind: QpType, most: int, over: int) -> None:
    """§6: inclusive; refused at post_send with the reason."""
    w = World(kind, a=SMALL)
    work = PostSend(qp_num=QP_A, sg_list=(Sge(BASE, most + over, 1),), **(UD_TO_B if kind is QpType.UD else {}))
    if over:
        with pytest.raises(LocalError, match=rf"sg_list: a message of {most + 1} bytes is not legal on {kind.name}"):
            w.a.hca.submit(work, 0)
    else:
        w.a.hca.submit(work, 0)


@pytest.mark.parametrize(("change", "text"), [
    ({"opcode": Opcode.ATOMIC_FETCH_AND_ADD}, "sg_list: 4 bytes"), ({"imm_data": 1 << 32}, "imm_data"),
    ({"remote_addr": -1}, "remote_addr"), ({"rkey": 1 << 32}, "rkey"), ({"swap": 1 << 64}, "swap"),
    ({"send_flags": SendFlags.INLINE}, "inline: bytes"), ({"inline": b"x"}, "inline: bytes"),
    ({"inline": b"x", "send_flags": SendFlags.INLINE}, "inline: not legal with sg_list"),
    ({"inline": b"x", "send_flags": SendFlags.INLINE, "opcode": Opcode.RDMA_READ, "sg_list": ()},
     "inline: not legal with RDMA_READ"),
    ({"sg_list": (Sge(BASE, -1, 1),)}, "sg_list"), ({"opcode": 77}, "opcode: 77 is not legal"),
    ({"qp_num": 0x999}, "qp_num: there is no queue pair"),
])  # fmt: skip
def test_refused_sends(change: dict[str, Any], text: str) -> None:
    w = World(a=SMALL)
    work: dict[str, Any] = {"qp_num": QP_A, "opcode": Opcode.SEND, "sg_list": w.a.sge(0, 4)} | change
    with pytest.raises(LocalError, match=text):
        w.a.hca.submit(PostSend(**work), 0)
    assert w.take() == []


def test_no_reads_without_max_rd_atomic() -> None:
    w = World(a=SMALL, given={"max_rd_atomic": 0})
    with pytest.raises(LocalError, match="max_rd_atomic 0"):
        w.send(Opcode.RDMA_READ, 4)


def test_ud_needs_an_address() -> None:
    w = World(QpType.UD, a=SMALL)
    with pytest.raises(LocalError, match="ah: needed on UD"):
        w.send(length=4)


def test_queues_have_ends() -> None:
    hca = Hca(1)
    pd = hca.alloc_pd()
    number = hca.create_qp(QpType.UD, pd, max_send_wr=1, max_recv_wr=1)
    for state, given in ((S.INIT, {"pkey_index": 0, "port": 1, "qkey": 1}), (S.RTR, {}), (S.RTS, {"sq_psn": 0})):
        hca.submit(ModifyQp(qp_num=number, state=state, attributes=given), 0)
    hca.submit(PostRecv(qp_num=number), 0)
    with pytest.raises(LocalError, match="max_recv_wr"):
        hca.submit(PostRecv(qp_num=number), 0)
    hca.submit(PostSend(qp_num=number, ah=AddressVector(2)), 0)
    with pytest.raises(LocalError, match="max_send_wr"):
        hca.submit(PostSend(qp_num=number, ah=AddressVector(2)), 0)


# Objects -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("change", "text"), [
    ({"pd": 9}, "pd: 9"), ({"access": 2}, "LOCAL_WRITE"), ({"access": 8}, "LOCAL_WRITE"), ({"access": 64}, "access"),
    ({"rkey": 1 << 32}, "rkey"), ({"addr": (1 << 64) - 3}, "addr"), ({"memory": b"fixed"}, "memory: read-only"),
])  # fmt: skip
def test_illegal_regions(change: dict[str, Any], text: str) -> None:
    hca = Hca(1)
    given: dict[str, Any] = {"pd": hca.alloc_pd(), "memory": bytearray(4)} | change
    with pytest.raises(LocalError, match=text):
        hca.reg_mr(given.pop("pd"), given.pop("memory"), **given)


def test_keys_are_unique() -> None:
    hca = Hca(1)
    pd = hca.alloc_pd()
    first = hca.reg_mr(pd, bytearray(4), rkey=0x1000)
    assert hca.reg_mr(pd, bytearray(4)).rkey != first.rkey
    with pytest.raises(LocalError, match="rkey"):
        hca.reg_mr(pd, bytearray(4), rkey=0x1000)
    hca.dereg_mr(first)
    with pytest.raises(LocalError, match="not registered"):
        hca.dereg_mr(first)


def test_shared_receive_queue() -> None:
    """§6, §15 item 6: taken in order by whoever needs one; the limit is told once; a flush leaves them there."""
    w = World(a=SMALL, srq=True)
    assert w.b.srq is not None
    with pytest.raises(LocalError, match="shared receive queue; legal: PostSrqRecv"):
        w.recv(4)
    for number in range(4):
        w.b.hca.submit(PostSrqRecv(srq_num=w.b.srq, wr_id=number, sg_list=w.b.sge(number * 10, 10)), 0)
    w.b.hca.modify_srq(w.b.srq, 3)
    for _ in range(3):
        w.send(Opcode.SEND, 4)
    w.deliver_all()
    assert [c.wr_id for c in w.received()] == [0, 1, 2]
    assert w.asynchronous(w.b) == [AsyncType.SRQ_LIMIT_REACHED]
    w.modify(w.b, S.ERR)
    assert len(w.received()) == 3
    assert len(w.b.hca.srqs[w.b.srq].items) == 1


def test_destroyed() -> None:
    w = World(a=SMALL)
    w.send(Opcode.RDMA_WRITE, 4)
    w.a.hca.destroy_qp(QP_A)
    w.run()
    assert w.done() == []
    with pytest.raises(LocalError, match="there is no queue pair"):
        w.a.hca.destroy_qp(QP_A)


def test_strange_work() -> None:
    with pytest.raises(LocalError, match="work: str is not legal; legal: PostSend"):
        Hca(1).submit("work", 0)  # type: ignore[arg-type]
