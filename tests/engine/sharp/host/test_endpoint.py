# SPDX-License-Identifier: GPL-2.0-only
"""The host side against a node that does what the test says (sharp.md §3.4)."""

import pytest

from tests.support.sharp.host_endpoint import (
    LLT,
    RESULT,
    Bench,
)
from uetproto.engine.contract import MILLISECOND, SECOND
from uetproto.engine.sharp.config import SharpConfig
from uetproto.engine.sharp.host.endpoint import SharpHost
from uetproto.engine.sharp.host.work import (
    Aggregate,
    AggregateDone,
    AggregateFailed,
    Attachment,
    GroupFailed,
    GroupLeft,
    JoinGroup,
    LeaveGroup,
)
from uetproto.engine.sharp.messages import LockBody, SharpFault
from uetproto.engine.sharp.options import SharpOptions
from uetproto.errors import LocalError
from uetproto.wire.headers.sharp import Coll, Dtype, Flag, LibsharpStatus, Op, SharpOpcode, Status


def test_a_join_request_is_that_of_the_worked_example() -> None:
    host = SharpHost(0)
    host.submit(JoinGroup(group_id=7, job_id=5, group_size=4, llt=Attachment(0, LLT)), 0)
    assert host.poll(0)[0].data == bytes.fromhex(
        "10010000 00000005 00000007 00000000 00000000 00000012 0c0c0cff ff000000"
        "00010004 00020080 00000003 00000011 00000000"
    )


def test_at_most_w_fragments_are_open_and_order_is_kept() -> None:
    bench = Bench(osts=2)
    bench.sum(300)
    first = bench.sent()
    assert [(m.seq, m.vec_off, m.count) for m in first] == [(0, 0, 128), (1, 128, 128)]
    assert [m.flags & (Flag.FIRST | Flag.LAST) for m in first] == [Flag.FIRST, 0]
    bench.answer(first[1], RESULT, body=first[1].body)  # the later one: the window does not move
    assert bench.sent() == []
    bench.answer(first[0], RESULT, body=first[0].body)
    [last] = bench.sent()
    assert (last.seq, last.vec_off, last.flags & Flag.LAST) == (2, 256, Flag.LAST)
    bench.answer(last, RESULT, body=last.body)
    bench.answer(last, RESULT, body=bytes(44))  # a duplicate changes nothing
    assert bench.host.events() == [AggregateDone(1, Status.OK, bytearray(k % 251 for k in range(300)))]


def test_seq_goes_around() -> None:
    bench = Bench(osts=2)
    flow = bench.host.groups[7].llt
    flow.base = flow.next = flow.end = 2**32 - 1
    bench.sum(200)
    sent = bench.sent()
    assert [m.seq for m in sent] == [2**32 - 1, 0]
    for one in sent:
        bench.answer(one, RESULT, body=one.body)
    assert [type(e) for e in bench.host.events()] == [AggregateDone]


def test_a_nack_waits_and_sends_the_same_bytes_with_retx() -> None:
    bench = Bench()
    bench.sum(8)
    [first] = bench.sent()
    for _ in range(7):
        bench.answer(first, SharpOpcode.NACK, status=Status.OST_EXHAUSTED, body=SharpFault(Status.OST_EXHAUSTED).pack())
        assert bench.later(9 * MILLISECOND) == []
        [again] = bench.later(MILLISECOND)
        assert (again.flags, again.body) == (first.flags | Flag.RETX, first.body)
    bench.answer(first, SharpOpcode.NACK, status=Status.OST_EXHAUSTED, body=SharpFault(Status.OST_EXHAUSTED).pack())
    failed = bench.host.events()[0]
    assert isinstance(failed, AggregateFailed)
    assert failed.trouble.code is LibsharpStatus.NO_RESOURCE


@pytest.mark.parametrize(("mode", "falls_back"), [(1, True), (2, False), (3, False), (4, False)])
def test_an_error_fails_what_is_open_and_the_group(mode: int, falls_back: bool) -> None:
    bench = Bench()
    bench.host.groups[7].options = SharpOptions.of({"HCOLL_ENABLE_SHARP": str(mode)})
    bench.sum(300)
    first = bench.sent()[0]
    fault = SharpFault(Status.TIMEOUT_NO_PROGRESS, 1, 0x10, 10, frozenset({1}))
    bench.answer(first, SharpOpcode.ERROR, status=Status.TIMEOUT_NO_PROGRESS, body=fault.pack())
    failed, group = bench.host.events()
    assert (failed.op_id, failed.status, failed.trouble.fall_back) == (1, Status.TIMEOUT_NO_PROGRESS, falls_back)
    assert failed.trouble.fault == fault
    assert isinstance(group, GroupFailed)
    bench.sum(8, op_id=2)
    assert [e.op_id for e in bench.host.events()] == [2]


def test_nobody_answers() -> None:
    bench = Bench()
    bench.sum(8)
    bench.sent()
    assert bench.host.deadline() == 30 * SECOND
    [error] = bench.later(30 * SECOND)
    assert (error.opcode, error.status) == (SharpOpcode.ERROR, Status.TIMEOUT_NO_PROGRESS)
    fault = SharpFault.unpack(error.body)
    assert (fault.code, fault.origin_depth, fault.opcode) == (Status.TIMEOUT_NO_PROGRESS, 0, SharpOpcode.AGG_REQ)
    assert [type(e) for e in bench.host.events()] == [AggregateFailed, GroupFailed]


def test_sat_locks_streams_and_counts_its_batch() -> None:
    bench = Bench(osts=64, sat=True, SAT_LOCK_BATCH_SIZE="1", SAT_THRESHOLD="1000")
    assert [m.tree_id for m in bench.joins] == [0, 63]
    bench.sum(200_000)
    [lock] = bench.sent()
    assert (lock.tree_id, lock.body.hex()) == (0, "003f00010000000000000064ffff0000")
    bench.answer(lock, SharpOpcode.LOCK_RESP, body=LockBody(63, 1, 99).pack())
    chunks = bench.sent()
    assert len(chunks) == 64
    assert {m.flags & (Flag.SAT | Flag.LOCK) for m in chunks} == {Flag.SAT | Flag.LOCK}
    while chunks:
        one = chunks.pop(0)
        bench.answer(one, RESULT, body=one.body)
        chunks += bench.sent()
        assert len(chunks) <= 64
    assert [type(e) for e in bench.host.events()] == [AggregateDone]
    bench.sum(2000, op_id=2)
    assert [m.opcode for m in bench.sent()] == [SharpOpcode.LOCK_REQ]  # the batch was one operation


@pytest.mark.parametrize(("status", "tries"), [(Status.LOCK_BUSY, 2), (Status.LOCK_DENIED, 1)])
def test_without_a_lock_it_goes_by_the_llt(status: Status, tries: int) -> None:
    bench = Bench(sat=True)
    bench.sum(9000)
    for _ in range(tries):
        [lock] = bench.sent() or bench.later(100 * MILLISECOND)
        assert lock.opcode == SharpOpcode.LOCK_REQ
        bench.answer(lock, SharpOpcode.LOCK_RESP, status=status, body=LockBody(63).pack())
    assert [m.tree_id for m in bench.sent()] == [0, 0]


def test_leaving_unlocks_first() -> None:
    bench = Bench(sat=True, LOCK_ON_COMM_INIT="1")
    [lock] = bench.sent()
    bench.answer(lock, SharpOpcode.LOCK_RESP, body=LockBody(63, token=5).pack())
    bench.host.submit(LeaveGroup(7), 0)
    [unlock] = bench.sent()
    assert (unlock.opcode, LockBody.unpack(unlock.body).token) == (SharpOpcode.UNLOCK_REQ, 5)
    bench.answer(unlock, SharpOpcode.UNLOCK_RESP, body=unlock.body)
    leaves = bench.sent()
    assert [m.tree_id for m in leaves] == [0, 63]
    for leave in leaves:
        bench.answer(leave, SharpOpcode.GROUP_LEAVE_RESP)
    assert bench.host.events() == [GroupLeft(7)]
    assert bench.host.groups == {}
    assert bench.host.deadline() is None


def test_what_does_not_come_by_multicast_is_asked_for_again() -> None:
    bench = Bench(mgid=0xFF12)
    bench.sum(8)
    [first] = bench.sent()
    assert first.flags & Flag.MCAST
    [again] = bench.later(500 * MILLISECOND)
    assert again.flags == first.flags | Flag.RETX


def test_what_comes_by_multicast_begins_the_wait_for_the_rest_again() -> None:
    bench = Bench(mgid=0xFF12)
    bench.sum(200)
    first, second = bench.sent()
    assert bench.later(300 * MILLISECOND) == []
    bench.answer(first, RESULT, body=first.body)
    assert bench.sent() == []
    assert bench.later(499 * MILLISECOND) == []
    [again] = bench.later(MILLISECOND)
    assert (again.seq, again.flags) == (second.seq, second.flags | Flag.RETX)
    more = [len(bench.later(500 * MILLISECOND)) for _ in range(10)]
    assert sum(more) == SharpConfig().retry - 1


@pytest.mark.parametrize(
    ("op", "dtype", "status"),
    [
        (Op.BXOR, Dtype.FLOAT, Status.OP_DTYPE_ILLEGAL),
        (Op.MINLOC, Dtype.FLOAT, Status.OP_DTYPE_ILLEGAL),
        (Op.NULL, Dtype.FLOAT, Status.OP_UNSUPPORTED),
    ],
)
def test_what_sharp_does_not_do_is_refused(op: Op, dtype: Dtype, status: Status) -> None:
    bench = Bench()
    bench.host.submit(Aggregate(op_id=1, group_id=7, coll=Coll.ALLREDUCE, op=op, dtype=dtype, data=b"1234", count=1), 0)
    [failed] = bench.host.events()
    assert (failed.status, failed.trouble.code) == (status, LibsharpStatus.NOT_SUPPORTED)
    assert bench.sent() == []


@pytest.mark.parametrize(
    ("wrong", "name"),
    [({"count": 2}, "data"), ({"group_id": 8}, "group_id"), ({"coll": Coll.REDUCE}, "root")],
)
def test_a_call_that_contradicts_itself(wrong: dict[str, object], name: str) -> None:
    good = {
        "op_id": 1,
        "group_id": 7,
        "coll": Coll.ALLREDUCE,
        "op": Op.SUM,
        "dtype": Dtype.INT8,
        "data": b"1",
        "count": 1,
    }
    with pytest.raises(LocalError, match=f"^{name}"):
        Bench().host.submit(Aggregate(**{**good, **wrong}), 0)  # type: ignore[arg-type]


def test_bytes_from_outside_never_raise() -> None:
    bench = Bench(sat=True)
    bench.sum(300)
    for message in bench.sent():
        good = bytearray(message.pack())
        for opcode in SharpOpcode:
            good[1] = opcode
            bench.host.message(LLT, bytes(good), 0)
        for end in range(len(good)):
            bench.host.message(LLT, bytes(good[:end]), 0)
