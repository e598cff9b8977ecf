# SPDX-License-Identifier: GPL-2.0-only
"""Large leaves, several rails, and what the manager hears and draws (sharp.md §2.9, §4.1, §4.2)."""

from itertools import count

import pytest

from tests.support.sharp.fabric import HOSTS, A, B, S, Wire
from uetproto.engine.contract import SECOND
from uetproto.engine.sharp.config import SharpConfig
from uetproto.engine.sharp.host.work import Aggregate, AggregateDone, Attachment, JoinGroup
from uetproto.engine.sharp.manager.grants import JobGrant
from uetproto.engine.sharp.manager.mads import Mad, read
from uetproto.engine.sharp.manager.trees import FabricGraph, FabricSwitch
from uetproto.engine.sharp.options import SharpOptions
from uetproto.wire.headers.sharp import AmAttribute, AmMethod, Coll, Dtype, LibsharpStatus, MadStatus, Op, Trap
from uetproto.wire.headers.sharp_am import TreeOp


@pytest.mark.parametrize("hosts", [44, 45, 100])
def test_more_children_than_fit_a_mad(hosts: int) -> None:
    ports = tuple(range(100, 100 + hosts))
    fabric = FabricGraph([FabricSwitch(guid=1, ports={}, hosts=dict(enumerate(ports, 1)))])
    wire = Wire(
        fabric, SharpConfig(radix=128, llt_trees=1, heartbeat=0), SharpOptions.of({"SHARP_COLL_ENABLE_SAT": "1"})
    )
    wire.manager.start()
    grant = wire.manager.begin_job([ports])
    assert isinstance(grant, JobGrant), grant
    tree = wire.nodes[1].trees[0]
    assert sorted(tree.children) == list(range(hosts))
    assert len(set(tree.children.values())) == hosts
    wire.join(grant, ports)
    for host in wire.hosts.values():
        host.submit(Aggregate(
            op_id=1, group_id=7, coll=Coll.ALLREDUCE, op=Op.SUM, dtype=Dtype.UNSIGNED_SHORT, data=b"\0\1", count=1
        ), wire.now)  # fmt: skip
    wire.run(wire.now + SECOND)
    for told in wire.happened.values():
        [done] = [one for one in told if isinstance(one, AggregateDone)]
        assert done.data == hosts.to_bytes(2, "big")
    wire.manager.end_job(grant.job_id)
    assert not wire.ports[1].open


@pytest.mark.parametrize(("children", "status"), [(44, MadStatus.OK), (45, MadStatus.BAD_FIELD)])
def test_44_children_fit_a_mad(children: int, status: MadStatus) -> None:
    wire = Wire(config=SharpConfig(radix=64, heartbeat=0))
    agent = wire.agents[A]
    agent.qps = dict.fromkeys(range(1, 45), 0)
    rows = {f"child{at}_{name}": at + (name == "qpn") for at in range(44) for name in ("idx", "qpn")}
    values = {"tree_id": 0, "op": TreeOp.SET, "llt_tree_id": 0xFFFF, "n_children": children, **rows}
    mad = Mad(method=AmMethod.SET, attribute=AmAttribute.TREE_CONFIG, values=values, am_key=0xFEED)
    answer = read(agent.handle(mad.pack(), 0))
    assert answer is not None
    assert answer.status == status
    assert (0 in wire.nodes[A].trees) == (status is MadStatus.OK)


@pytest.mark.parametrize("op", [TreeOp.SET, TreeOp.UPDATE])
def test_a_child_needs_a_connection_that_was_allocated(op: TreeOp) -> None:
    wire = Wire()
    wire.manager.start()
    assert isinstance(wire.manager.begin_job([HOSTS]), JobGrant)
    before = dict(wire.nodes[A].trees[0].children)
    values = {"tree_id": 0, "op": op, "llt_tree_id": 0xFFFF, "n_children": 1, "child0_idx": 0, "child0_qpn": 0x999}
    mad = Mad(method=AmMethod.SET, attribute=AmAttribute.TREE_CONFIG, values=values, am_key=0xFEED)
    answer = read(wire.agents[A].handle(mad.pack(), 0))
    assert answer is not None
    assert answer.status == MadStatus.BAD_FIELD
    assert wire.nodes[A].trees[0].children == before


def test_two_rails_of_one_job() -> None:
    """Every host has a port on either leaf pair; a tree and a group for each rail (§4.1)."""
    second = (200, 201, 202, 203)
    fabric = FabricGraph([
        FabricSwitch(guid=A, ports={9: S}, hosts={1: 100, 2: 101, 3: 200, 4: 201}),
        FabricSwitch(guid=B, ports={9: S}, hosts={1: 102, 2: 103, 3: 202, 4: 203}),
        FabricSwitch(guid=S, ports={1: A, 2: B}, hosts={}),
    ])  # fmt: skip
    wire = Wire(fabric, SharpConfig(lab_radix=4, llt_trees=2, heartbeat=0))
    wire.manager.start()
    grant = wire.manager.begin_job([HOSTS, second])
    assert isinstance(grant, JobGrant), grant
    assert [rail.tree.tree_id for rail in grant.rails] == [0, 1]
    for number, (rail, ports) in enumerate(zip(grant.rails, (HOSTS, second), strict=True)):
        for rank, address in enumerate(ports):
            host, end = wire.host(address, rank), wire.ports[address]
            place = rail.llt[rank]
            conn = end.allocate()
            end.connect(conn, address=place.an, remote=place.conn, own_psn=0, their_psn=0, now=0)
            assert wire.manager.connect(place, address=address, remote=conn) == 0
            host.submit(JoinGroup(
                group_id=7 + number, job_id=grant.job_id, group_size=4, llt=Attachment(place.tree_id, conn)
            ), 0)  # fmt: skip
    wire.run()
    for address, host in wire.hosts.items():
        group = 7 if address in HOSTS else 8
        host.submit(Aggregate(
            op_id=group, group_id=group, coll=Coll.ALLREDUCE, op=Op.SUM, dtype=Dtype.UINT8, data=bytes([group]), count=1
        ), 0)  # fmt: skip
    wire.run(SECOND)
    for address, told in wire.happened.items():
        [done] = [one for one in told if isinstance(one, AggregateDone)]
        assert done.data == bytes([28 if address in HOSTS else 32])
    wire.manager.end_job(grant.job_id)
    assert [node.pool.used() for node in wire.nodes.values()] == [(0, 0, 0, 0)] * 3
    assert all(not wire.ports[an].open and not wire.nodes[an].quotas for an in (A, B, S))


@pytest.mark.parametrize(("mode", "exclusive"), [(0, False), (1, True)])
def test_a_job_takes_one_semaphore_for_all_its_trees(mode: int, exclusive: bool) -> None:
    """Each of its trees is a flow of the node, of which there are two (§1.1, §4.2)."""
    options = {"SHARP_COLL_ENABLE_SAT": "1", "SHARP_COLL_JOB_REQ_EXCLUSIVE_LOCK_MODE": str(mode)}
    wire = Wire(config=SharpConfig(lab_radix=2, llt_trees=4, heartbeat=0), options=SharpOptions.of(options))
    wire.manager.start()
    first, second = (wire.manager.begin_job([HOSTS] * rails) for rails in (3, 1))
    assert isinstance(first, JobGrant)
    assert isinstance(second, JobGrant)
    assert [bool(rail.sat) for rail in first.rails] == [True, True, False]
    assert [bool(rail.sat) for rail in second.rails] == [not exclusive], "others share it, or have none"
    assert (first.exclusive, second.exclusive) == (exclusive, False)
    for grant in (first, second):
        wire.manager.end_job(grant.job_id)
    assert {(an.exclusive, an.shared, an.flows) for an in wire.manager.ans.values()} == {(0, 0, 0)}


def test_exclusive_jobs_take_no_more_flows_than_there_are() -> None:
    """Two semaphores and two flows: a job with two trees leaves a semaphore, but no flow."""
    options = SharpOptions.of({"SHARP_COLL_ENABLE_SAT": "1"})
    wire = Wire(config=SharpConfig(lab_radix=2, llt_trees=4, heartbeat=0, semaphores=2), options=options)
    wire.manager.start()
    jobs = [wire.manager.begin_job([HOSTS] * rails) for rails in (2, 1)]
    assert [[bool(rail.sat) for rail in job.rails] for job in jobs if isinstance(job, JobGrant)] == [
        [True, True], [False],
    ]  # fmt: skip
    wire.manager.options = SharpOptions.of(
        {"SHARP_COLL_ENABLE_SAT": "1", "SHARP_COLL_JOB_REQ_EXCLUSIVE_LOCK_MODE": "2"}
    )
    assert wire.manager.begin_job([HOSTS]) is LibsharpStatus.QUOTA


@pytest.mark.parametrize(("osts", "lazy", "streams"), [
    (67, False, [False, False]),  # a window of 64 and two groups with two OSTs each
    (68, False, [True, False]), (131, False, [True, False]), (132, False, [True, True]), (67, True, [True, True]),
])  # fmt: skip
def test_a_stream_needs_osts_for_its_window(osts: int, lazy: bool, streams: list[bool]) -> None:
    """Otherwise each lock would be LOCK_BUSY, and the vectors would wait for it in vain (§4.2 item 7)."""
    options = SharpOptions.of({"SHARP_COLL_ENABLE_SAT": "1", "SHARP_COLL_JOB_QUOTA_OSTS": "2"})
    config = SharpConfig(lab_radix=2, llt_trees=2, heartbeat=0, osts=osts, lazy_ost=lazy)
    wire = Wire(config=config, options=options)
    wire.manager.start()
    grant = wire.manager.begin_job([HOSTS, HOSTS])
    assert isinstance(grant, JobGrant), grant
    assert [bool(rail.sat) for rail in grant.rails] == streams
    wire.manager.end_job(grant.job_id)
    assert {an.reserved for an in wire.manager.ans.values()} == {0}


def test_a_flow_label_reaches_the_leaf() -> None:
    """The management datagram QPCConfig carries the flow label to the leaf (§2.9)."""
    wire = Wire()
    labels = []
    wire.manager.start()
    grant = wire.manager.begin_job([HOSTS])
    assert isinstance(grant, JobGrant)
    place = grant.rails[0].llt[0]
    connect = wire.ports[place.an].connect
    wire.ports[place.an].connect = lambda conn, **to: (labels.append(to["flow_label"]), connect(conn, **to))[1]  # type: ignore[method-assign]
    assert wire.manager.connect(place, address=100, remote=0x11, flow_label=0x12345) == LibsharpStatus.OK
    assert labels == [0x12345]


def test_psns_between_nodes_are_drawn() -> None:
    """Of either direction its own, and both ends know both."""
    wire = Wire()
    numbers = count(1000)
    wire.manager.psn = lambda: next(numbers)
    told: dict[tuple[int, int], tuple[int, int, int, int]] = {}
    for guid, ports in wire.ports.items():

        def connect(
            conn: int, *, address: int, remote: int, own_psn: int, their_psn: int, now: int, flow_label: int = 0,
            guid: int = guid,
        ) -> None:  # fmt: skip
            told[guid, conn] = address, remote, own_psn, their_psn

        ports.connect = connect  # type: ignore[method-assign]
    wire.manager.start()
    assert isinstance(wire.manager.begin_job([HOSTS]), JobGrant)
    assert len(told) == 8
    assert len({own for _, _, own, _ in told.values()}) == 8
    for (guid, conn), (address, remote, own, theirs) in told.items():
        assert told[address, remote] == (guid, conn, theirs, own)


def test_the_manager_hears_traps() -> None:
    wire = Wire()
    wire.manager.start()
    assert isinstance(wire.manager.begin_job([HOSTS]), JobGrant)
    wire.nodes[A].message(0x11, bytes(36), 0)
    [raised] = wire.nodes[A].events()
    wire.agents[A].trap(raised)
    [mad] = wire.agents[A].traps()
    assert wire.manager.trap(mad)
    [notice] = wire.manager.traps
    assert (notice["trap"], notice["an_lid"], notice["local_qpn"]) == (Trap.INVALID_REQUEST, A, 0x11)
    for wrong in (b"", mad[:255], bytes(256), mad[:3] + b"\x02" + mad[4:], mad[:17] + b"\x20" + mad[18:]):
        assert not wire.manager.trap(wrong)
    assert len(wire.manager.traps) == 1
