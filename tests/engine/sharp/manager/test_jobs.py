# SPDX-License-Identifier: GPL-2.0-only
"""Jobs from beginning to end over real nodes; quotas, refusals, the AM_Key (sharp.md §4.2, §6 items 14 and 28)."""

import struct

import pytest

from tests.support.sharp.fabric import HOSTS, KEY, SEVEN, A, B, S, Wire
from uetproto.engine.sharp.config import SharpConfig
from uetproto.engine.sharp.host.work import Aggregate, AggregateDone, GroupJoined, GroupLeft, LeaveGroup
from uetproto.engine.sharp.manager.grants import JobGrant
from uetproto.engine.sharp.manager.mads import Mad, read
from uetproto.engine.sharp.options import SharpOptions
from uetproto.errors import LocalError
from uetproto.wire.headers.sharp import AmAttribute, AmMethod, Coll, Dtype, LibsharpStatus, MadStatus, Op, Trap
from uetproto.wire.headers.sharp_am import QuotaOp


def job(wire: Wire, *hosts: int) -> JobGrant:
    grant = wire.manager.begin_job([hosts or HOSTS])
    assert isinstance(grant, JobGrant), grant
    return grant


def sum_of(wire: Wire, values: int = 8) -> list[bytes]:
    """Every host gives k, 10k, k/2, 100k as in §7."""
    for factor, host in zip((1, 10, 0.5, 100), wire.hosts.values(), strict=True):
        data = struct.pack(f">{values}f", *(factor * (k % 8 + 1) for k in range(values)))
        host.submit(Aggregate(
            op_id=1, group_id=7, coll=Coll.ALLREDUCE, op=Op.SUM, dtype=Dtype.FLOAT, data=data, count=values
        ), wire.now)  # fmt: skip
    wire.run(wire.now + 10**12)
    done = [[e for e in events if isinstance(e, AggregateDone)] for events in wire.happened.values()]
    assert [len(one) for one in done] == [1] * 4, wire.happened
    return [bytes(one[0].data) for one in done]


@pytest.mark.parametrize("settings", [{}, {"SHARP_COLL_ENABLE_SAT": "1", "SHARP_COLL_SAT_THRESHOLD": "1024"}])
@pytest.mark.parametrize("values", [8, 1000, 70_000])
def test_a_job_from_beginning_to_end(settings: dict[str, str], values: int) -> None:
    wire = Wire(options=SharpOptions.of(settings))
    wire.manager.start()
    grant = job(wire)
    assert grant.rails[0].part.root == S
    assert grant.rails[0].osts == 51
    wire.join(grant)
    assert all(isinstance(events[0], GroupJoined) for events in wire.happened.values()), wire.happened
    expected = struct.pack(f">{values}f", *(111.5 * (k % 8 + 1) for k in range(values)))
    assert sum_of(wire, values) == [expected] * 4
    sat = any(data[2:4] == b"\0\2" and data[1] == 0x10 for _, _, data in wire.log)
    assert sat == bool(settings and values >= 256)
    for host in wire.hosts.values():
        host.submit(LeaveGroup(7), wire.now)
    wire.run()
    assert all(isinstance(events[-1], GroupLeft) for events in wire.happened.values())
    assert [tuple(node.pool.used()) for node in wire.nodes.values()] == [(0, 0, 0, 0)] * 3
    assert [wire.manager.active_jobs(an) for an in (A, B, S)] == [[1]] * 3
    wire.manager.end_job(1)
    assert [wire.manager.active_jobs(an) for an in (A, B, S)] == [[]] * 3
    for guid in (A, B, S):
        assert wire.ports[guid].open == set()
        assert not wire.nodes[guid].trees
        assert not wire.nodes[guid].quotas
        assert wire.manager.ans[guid].osts == wire.config.osts


def test_the_end_of_a_job_cancels_what_is_open() -> None:
    wire = Wire()
    wire.manager.start()
    wire.join(job(wire))
    wire.hosts[100].submit(Aggregate(op_id=1, group_id=7, coll=Coll.BARRIER), wire.now)
    wire.run()
    wire.manager.end_job(1)
    assert [tuple(node.pool.used()) for node in wire.nodes.values()] == [(0, 0, 0, 0)] * 3


def test_a_job_below_one_leaf_has_that_leaf_as_root() -> None:
    wire = Wire()
    wire.manager.start()
    grant = job(wire, 102, 103)
    assert grant.rails[0].part == (B, (B,))
    assert wire.manager.active_jobs(S) == []


def test_a_host_is_in_one_job_of_a_tree() -> None:
    wire = Wire()
    wire.manager.start()
    assert [job(wire).rails[0].tree.tree_id for _ in range(2)] == [0, 1]
    assert wire.manager.begin_job([HOSTS]) is LibsharpStatus.NO_TREES


def refusal(config: SharpConfig, ports: list[int], **settings: str) -> object:
    wire = Wire(config=config, options=SharpOptions.of(settings))
    wire.manager.start()
    answer = wire.manager.begin_job([ports])
    assert all(not ports.open for ports in wire.ports.values())
    assert not wire.manager.jobs
    return answer


SMALL = {"lab_radix": 2, "llt_trees": 1}


@pytest.mark.parametrize(
    ("config", "settings", "status"),
    [
        ({"osts": 4}, {}, LibsharpStatus.QUOTA),  # 20 % of 4 is none
        ({"groups": 4}, {}, LibsharpStatus.QUOTA),
        ({"qps": 2}, {}, LibsharpStatus.QUOTA),
        ({"buffers": 1000}, {}, LibsharpStatus.QUOTA),
        ({}, {"SHARP_COLL_JOB_QUOTA_OSTS": "257"}, LibsharpStatus.QUOTA),
        ({"max_user_data": 64}, {}, LibsharpStatus.INVALID),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused_by_the_published_code(config: dict, settings: dict, status: object) -> None:
    assert refusal(SharpConfig(**SMALL, **config), list(HOSTS), **settings) is status


def test_a_host_that_no_tree_reaches() -> None:
    assert refusal(SharpConfig(**SMALL), [100, 999]) is LibsharpStatus.NO_TREES


def test_exclusive_locks() -> None:
    required = {"SHARP_COLL_ENABLE_SAT": "1", "SHARP_COLL_JOB_REQ_EXCLUSIVE_LOCK_MODE": "2"}
    wire = Wire(options=SharpOptions.of(required))
    wire.manager.start()
    assert job(wire).exclusive
    assert wire.manager.begin_job([HOSTS]) is LibsharpStatus.QUOTA
    wire.manager.options = SharpOptions.of({"SHARP_COLL_ENABLE_SAT": "1"})
    second = job(wire)
    assert not second.exclusive
    assert second.rails[0].sat == ()
    wire.manager.end_job(1)
    wire.manager.end_job(2)
    assert job(wire).exclusive


def test_a_wrong_key_changes_nothing_and_is_one_trap() -> None:
    wire = Wire()
    wire.manager.start()
    wire.manager.begin_job([HOSTS], job_id=5)
    agent = wire.agents[S]
    clear = Mad(method=AmMethod.SET, attribute=AmAttribute.QUOTA_CONFIG, am_key=KEY + 1,
                values={"job_id": 5, "tree_id": 0, "op": QuotaOp.CLEAR})  # fmt: skip
    answer = read(agent.handle(clear.pack(), 0))
    assert answer is not None
    assert (answer.status, answer.am_key) == (MadStatus.BAD_FIELD, 0)
    assert wire.manager.active_jobs(S) == [5]
    traps = [read(trap) for trap in agent.traps()]
    assert [trap.values["trap"] for trap in traps if trap] == [Trap.AM_KEY_VIOLATION]
    info = read(agent.handle(Mad(method=AmMethod.GET, attribute=AmAttribute.AN_INFO, am_key=1).pack(), 0))
    assert info is not None
    assert (info.am_key, info.values["osts"], agent.traps()) == (0, 256, [])


def test_a_dead_spine_leaves_partial_trees() -> None:
    wire = Wire()
    wire.manager.start()
    job(wire)
    wire.dead.add(S)
    assert wire.manager.an_died(S) == [1]
    assert all(tree.partial for tree in wire.manager.trees)
    wire.manager.end_job(1)
    assert wire.manager.begin_job([HOSTS]) is LibsharpStatus.NO_TREES


def test_static_trees_are_there_from_the_start() -> None:
    wire = Wire(options=SharpOptions.of({"dynamic_tree_allocation": "0"}))
    wire.manager.start()
    assert sorted(wire.nodes[A].trees) == [0, 1, 2, 3]
    wire.join(job(wire))
    assert sorted(wire.nodes[A].trees[0].children) == [0, 1]
    wire.manager.end_job(1)
    assert len(wire.ports[A].open) == 4
    assert [dict(wire.nodes[A].trees[tree].children) for tree in range(4)] == [{}] * 4
    assert wire.manager.ans[A].qps == wire.config.qps - 4


def test_static_trees_that_do_not_fit() -> None:
    config = SharpConfig(lab_radix=2, llt_trees=9, qps=20)
    with pytest.raises(LocalError, match="dynamic_tree_allocation"):
        Wire(config=config, options=SharpOptions.of({"dynamic_tree_allocation": "0"})).manager.start()


@pytest.mark.parametrize("size", [0, 64, 255, 256, 300])
def test_any_bytes_are_answered_or_dropped(size: int) -> None:
    wire = Wire(SEVEN)
    for filler in (0, 1, 0x0B, 0xFF):
        wire.agents[A].handle(bytes([1, 0x0B, 2, 2]).ljust(size, bytes([filler]))[:size], 0)
