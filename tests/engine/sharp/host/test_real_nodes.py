# SPDX-License-Identifier: GPL-2.0-only
"""Hosts and real nodes: every collective, multicast, races for a lock, rails (sharp.md §4.3, §6 items 16, 18, 25)."""

import pytest

from tests.support.sharp.fabric import HOSTS, Wire
from tests.support.sharp.host_real_nodes import (
    SAT,
    fabric,
    run,
)
from uetproto.engine.contract import MILLISECOND, SECOND
from uetproto.engine.sharp.host.work import Aggregate, AggregateDone, AggregateFailed, GroupJoined, JoinGroup
from uetproto.wire.headers.sharp import Coll, Dtype, Op, Status


@pytest.mark.parametrize("count", [5, 1000, 50_000])
@pytest.mark.parametrize("settings", [{}, SAT])
def test_every_collective(settings: dict[str, str], count: int) -> None:
    wire = fabric(settings)
    assert run(wire, Coll.ALLREDUCE, count, op=Op.SUM) == [bytes([10]) * count] * 4
    assert run(wire, Coll.BCAST, count, root=2, op_id=2) == [bytes([3]) * count] * 4
    assert run(wire, Coll.REDUCE, count, op=Op.MAX, root=1, op_id=3) == [b"", bytes([4]) * count, b"", b""]
    assert run(wire, Coll.REDUCE, count, op=Op.MAX, root=3, op_id=4) == [b"", b"", b"", bytes([4]) * count]
    assert run(wire, Coll.BARRIER, 0, op_id=5) == [b""] * 4
    assert run(wire, Coll.ALLREDUCE, count, op=Op.MIN, op_id=6) == [bytes([1]) * count] * 4


def test_payload_sent_is_payload_received() -> None:
    wire = fabric()
    run(wire, Coll.ALLREDUCE, 1000, op=Op.SUM)
    up = [len(d) for source, _, d in wire.log if source == 100 and d[1] == 0x10]
    down = [len(d) for _, target, d in wire.log if target == 100 and d[1] == 0x90]
    assert sum(up) - 32 * len(up) == sum(down) - 32 * len(down) == 1000


@pytest.mark.parametrize("lost", [set(), {101}, set(HOSTS)])
def test_results_by_multicast_and_without(lost: set[int]) -> None:
    wire = fabric(multicast=True)
    for address, told in wire.happened.items():
        joined = told[0]
        assert isinstance(joined, GroupJoined)
        wire.ports[address].join(joined.mgid, joined.qkey, 0)
    wire.lose = lost
    assert run(wire, Coll.ALLREDUCE, 20, op=Op.SUM) == [bytes([10]) * 20] * 4


def test_a_batch_of_one_locks_each_time() -> None:
    wire = fabric({**SAT, "SHARP_COLL_SAT_LOCK_BATCH_SIZE": "1"})
    for op_id in range(3):
        run(wire, Coll.ALLREDUCE, 9000, op=Op.SUM, op_id=op_id)
    assert sum(source == 100 and data[1] == 0x20 for source, _, data in wire.log) == 3
    assert [node.pool.used().locks for node in wire.nodes.values()] == [0] * 3


def test_a_silent_member_fails_all() -> None:
    wire = fabric()
    for address in (102, 100, 101):  # the leaf of the silent one is the first to wait
        wire.hosts[address].submit(Aggregate(op_id=1, group_id=7, coll=Coll.BARRIER), wire.now)
        wire.run(wire.now + MILLISECOND)
    wire.run(wire.now + 60 * SECOND)
    for told in list(wire.happened.values())[:3]:
        failed = told[1]
        assert isinstance(failed, AggregateFailed)
        assert failed.status is Status.TIMEOUT_NO_PROGRESS
        assert failed.trouble.fault is not None
        assert (failed.trouble.fault.an_id, failed.trouble.fault.children) == (0xB, {1})


def test_two_groups_race_for_a_lock() -> None:
    wire = fabric(SAT)
    for host in wire.hosts.values():
        group = host.groups[7].work
        host.submit(JoinGroup(group_id=8, job_id=1, group_size=4, llt=group.llt, sat=group.sat), wire.now)
    wire.run()
    for rank, host in enumerate(wire.hosts.values()):
        for group_id in (7, 8) if rank % 2 else (8, 7):
            host.submit(Aggregate(
                op_id=group_id, group_id=group_id, coll=Coll.ALLREDUCE, op=Op.SUM, dtype=Dtype.UINT8,
                data=bytes(9000), count=9000,
            ), wire.now)  # fmt: skip
    wire.run(wire.now + 10 * SECOND)
    for told in wire.happened.values():
        assert sorted(e.op_id for e in told if isinstance(e, AggregateDone)) == [7, 8]


def give(wire: Wire, rank: int, op_id: int, *, group: int = 7) -> None:
    """9000 bytes, others for every member and every collective."""
    host = list(wire.hosts.values())[rank]
    host.submit(Aggregate(
        op_id=op_id, group_id=group, coll=Coll.ALLREDUCE, op=Op.SUM, dtype=Dtype.UINT8,
        data=bytes([10 * op_id + rank]) * 9000, count=9000,
    ), wire.now)  # fmt: skip


@pytest.mark.parametrize("late", [50, 150, 250, 310, 390, 450, 700, 900])
def test_a_late_member_gets_no_wrong_result(late: int) -> None:
    """The others have given up to lock for the first collective, and would have asked for the second already."""
    wire = fabric(SAT)
    for rank in range(3):
        for op_id in (1, 2, 3):
            give(wire, rank, op_id)
    wire.run(wire.now + late * MILLISECOND)
    for op_id in (1, 2, 3):
        give(wire, 3, op_id)
    wire.run(wire.now + 10 * SECOND)
    for told in wire.happened.values():
        done = {e.op_id: bytes(e.data) for e in told if isinstance(e, AggregateDone)}
        assert done == {op_id: bytes([40 * op_id + 6]) * 9000 for op_id in (1, 2, 3)}


def test_a_lock_asked_for_too_early_decides_nothing() -> None:
    """Group 7 holds it. When the early lock of group 8 is refused, one member has an operation, the others not yet."""
    wire = fabric({**SAT, "SHARP_COLL_LOCK_ON_COMM_INIT": "1"})
    for host in wire.hosts.values():
        group = host.groups[7].work
        host.submit(JoinGroup(group_id=8, job_id=1, group_size=4, llt=group.llt, sat=group.sat), wire.now)
    wire.run()
    give(wire, 0, 1, group=8)
    wire.run(wire.now + 110 * MILLISECOND)
    for rank in (1, 2, 3):
        give(wire, rank, 1, group=8)
    wire.run(wire.now + 10 * SECOND)
    for told in wire.happened.values():
        assert [e.data for e in told if isinstance(e, AggregateDone)] == [bytes([46]) * 9000]
    traps = [trap for node in wire.nodes.values() for trap in node.events()]
    assert not traps, "nobody asked alone until its time was over"
