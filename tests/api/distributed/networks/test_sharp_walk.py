# SPDX-License-Identifier: GPL-2.0-only
"""Every published option of SHARP acts, or is named as accepted without effect (sharp.md §5)."""

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.api.sharp_worlds import network_of, run, sharp_of, world
from uetproto.api import distributed as dist
from uetproto.engine.sharp.options import OPTIONS, WITHOUT_EFFECT
from uetproto.errors import LocalError

CONTENTION = (
    ("sat_flows_per_an", 1), ("SHARP_COLL_JOB_REQ_EXCLUSIVE_LOCK_MODE", 0), ("SHARP_COLL_SAT_LOCK_RETRY_TIMEOUT", 1),
)  # fmt: skip
"""Settings with which a group finds the only flow of the aggregation nodes locked by another."""
STREAMED = {"SHARP_COLL_SAT_THRESHOLD": 512}

ACTING: dict[str, tuple[Any, tuple[tuple[str, Any], ...]]] = {
    "SHARP_COLL_LOG_LEVEL": (3, ()),
    "SHARP_COLL_ENABLE_SAT": (0, ()),
    "SHARP_COLL_SAT_THRESHOLD": (64, ()),
    "SHARP_COLL_SAT_LOCK_BATCH_SIZE": (1, ()),
    "SHARP_COLL_SAT_LOCK_RETRY_COUNT": (3, CONTENTION),
    "SHARP_COLL_SAT_LOCK_RETRY_TIMEOUT": (2, CONTENTION),
    "SHARP_COLL_GROUPS_PER_COMM": (2, ()),
    "SHARP_COLL_JOB_QUOTA_PAYLOAD_PER_OST": (64, ()),
    "SHARP_COLL_JOB_QUOTA_OSTS": (8, ()),
    "SHARP_COLL_JOB_QUOTA_MAX_GROUPS": (3, ()),
    "SHARP_COLL_JOB_QUOTA_MAX_QPS_PER_PORT": (2, ()),
    "SHARP_COLL_OSTS_PER_GROUP": (5, ()),
    "SHARP_COLL_LOCK_ON_COMM_INIT": (1, ()),
    "SHARP_COLL_NUM_COLL_GROUP_RESOURCE_ALLOC_THRESHOLD": (1, ()),
    "SHARP_COLL_JOB_REQ_EXCLUSIVE_LOCK_MODE": (0, ()),
    "SHARP_COLL_ENABLE_MCAST_TARGET": (0, ()),
    "SHARP_COLL_GROUP_IS_TARGET": (0, (("SHARP_COLL_ENABLE_MCAST_TARGET", 0),)),
    "SHARP_COLL_ENABLE_GROUP_TRIM": (0, ()),
    "SHARP_COLL_IB_TIMEOUT": (12, ()),
    "SHARP_COLL_IB_RETRY_COUNT": (3, ()),
    "SHARP_COLL_IB_RNR_TIMER": (9, ()),
    "SHARP_COLL_IB_RNR_RETRY": (2, ()),
    "HCOLL_ENABLE_SHARP": (0, ()),
    "HCOLL_SHARP_NP": (5, ()),
    "HCOLL_BCOL_P2P_ALLREDUCE_SHARP_MAX": (128, ()),
    "HCOLL_SBGP": ("p2p", ()),
    "HCOLL_ML_DISABLE_ALLREDUCE": (1, ()),
    "HCOLL_ML_DISABLE_REDUCE": (1, ()),
    "HCOLL_ML_DISABLE_BARRIER": (1, ()),
    "HCOLL_ML_DISABLE_BCAST": (1, ()),
    "NCCL_COLLNET_ENABLE": (1, ()),
    "NCCL_SHARP_DISABLE": (1, ()),
    "NCCL_SHARP_GROUP_SIZE_THRESH": (5, ()),
    "root_guids_file": (None, ()),
    "dynamic_tree_allocation": (0, ()),
    "per_prio_default_quota": (40, ()),
    "per_prio_default_sat_quota": (9, ()),
    "sat_jobs_default_absolute_osts": (12, ()),
}
"""A value of each option that acts, and the settings beside it."""
SILENT = {"HCOLL_MAIN_IB": "mlx5_0:1", "HCOLL_BCOL": "basesmuma,basesmuma,ucx_p2p", "ib_port_guid": 5,
          "dynamic_tree_algorithm": 1}  # fmt: skip


@cache
def observed(settings: tuple[tuple[str, Any], ...]) -> dict[str, Any]:
    """What four ranks and the manager do with these settings."""
    made = world(4, sharp=STREAMED | dict(settings), nodes=2)

    def program(rank: int) -> float:
        other = dist.new_group([0, 2, 3])
        dist.barrier(algorithm="sharp")
        for size in (300, 600, 600):
            dist.all_reduce(np.ones(size, np.uint8), algorithm="sharp")
        dist.all_reduce(np.ones(100, np.uint8), algorithm="hcoll_sharp")
        if rank != 1:
            dist.all_reduce(np.ones(600, np.uint8), group=other, algorithm="sharp")
        dist.reduce(np.ones(64, np.uint8), 0, algorithm="sharp")
        dist.broadcast(np.ones(64, np.uint8), 0, algorithm="sharp")
        return dist.now()

    network, sharp = network_of(made), sharp_of(made)
    manager, mads = sharp.fabric.manager, []
    send = manager.send

    def recorded(an: int, data: bytes) -> bytes:
        mads.append((an, data))
        return send(an, data)

    manager.send = recorded
    try:
        result: Any = run(program, made)
    except LocalError as error:
        result = str(error)
    nodes = network.world.nodes.values()
    return {
        "result": result, "mads": mads, "log": sharp.log.lines,
        "nodes": [node.config for node in sharp.fabric.nodes.values()],
        "hosts": [host.counters for host in sharp.fabric.hosts.values()],
        "counters": [node.counters for node in sharp.fabric.nodes.values()],
        "attributes": [
            (qp.attributes.timeout, qp.attributes.retry_cnt, qp.attributes.min_rnr_timer, qp.attributes.rnr_retry)
            for node in nodes for qp in node.hca.qps.values()  # type: ignore[attr-defined]
        ],
        "notes": sharp.notes,
    }  # fmt: skip


def test_all_options_are_here() -> None:
    assert {option.name for option in OPTIONS} == {*ACTING, *SILENT}
    assert {option.name for option in OPTIONS if option.meaning.endswith(WITHOUT_EFFECT)} == set(SILENT)


@pytest.mark.parametrize("name", ACTING)
def test_what_acts(name: str, tmp_path: Path) -> None:
    value, beside = ACTING[name]
    if name == "root_guids_file":
        (tmp_path / "roots").write_text("# the second spine\nan.spine1\n\n")
        value = str(tmp_path / "roots")
    without, found = observed(beside), observed((*(one for one in beside if one[0] != name), (name, value)))
    assert {key for key in without if without[key] != found[key]} - {"notes"}


@pytest.mark.parametrize("name", SILENT)
def test_what_does_not_act_is_named(name: str) -> None:
    without, found = observed(()), observed(((name, SILENT[name]),))
    assert found == without | {"notes": [f"{name}: accepted without effect", *without["notes"]]}


def test_options_of_queue_pairs_are_named_over_uet() -> None:
    texts = {"SHARP_COLL_IB_TIMEOUT": 12, "SHARP_COLL_ENABLE_MCAST_TARGET": 0, "SHARP_COLL_ENABLE_SAT": 0}
    with world(4, "uet", texts) as made:
        assert sharp_of(made).notes == [
            f"{name}: accepted without effect over this transport"
            for name in ("SHARP_COLL_ENABLE_MCAST_TARGET", "SHARP_COLL_IB_TIMEOUT")
        ]


@pytest.mark.parametrize(
    ("name", "value", "legal"),
    [
        ("HCOLL_SBGP", "nonsense", "some of basesmsocket,basesmuma and then p2p"),
        ("HCOLL_SBGP", "p2p,basesmuma", "some of basesmsocket,basesmuma and then p2p"),
        ("HCOLL_SBGP", "basesmuma", "some of basesmsocket,basesmuma and then p2p"),
        ("HCOLL_BCOL", "ucx_p2p,basesmuma", "basesmuma,… and then ucx_p2p"),
        ("HCOLL_BCOL", "basesmuma,ucx_p2p", "3, one for each of basesmsocket,basesmuma,p2p"),
        ("HCOLL_ML_DISABLE_ALLREDUCE", "often", "0, 1"),
    ],
)
def test_what_is_no_value_is_refused(name: str, value: str, legal: str) -> None:
    with pytest.raises(ValueError, match=f"{name}: .*; legal: {legal}"):
        world(8, sharp={name: value})


def test_roots_are_aggregation_nodes_that_exist(tmp_path: Path) -> None:
    """By name, or by GUID, which is the address here; a leaf below which not all hosts are makes a partial tree."""
    path = tmp_path / "roots"
    path.write_text("an.spine9\n")
    with pytest.raises(ValueError, match=r"sharp: root_guids_file: 'an\.spine9'; legal: an\.leaf0 or 0x"):
        world(8, sharp={"root_guids_file": str(path)})
    for text, root in (("an.spine1", "an.spine1"), ("0x0a00000c # spine 1", "an.spine1"), ("an.leaf0", "an.leaf0")):
        path.write_text(text)
        made = world(8, sharp={"root_guids_file": str(path)}, shape={"hosts_per_leaf": 4})
        with made:
            fabric = sharp_of(made).fabric
            fabric.begin_job(range(4))
            assert {fabric.name_of(tree.root) for tree in fabric.manager.trees} == {root}


@pytest.mark.parametrize(
    ("subgroups", "leaders"), [("", 4), ("basesmuma,p2p", 2), ("basesmsocket,basesmuma,p2p", 2),
                               ("basesmsocket,p2p", 4), ("p2p", 8)],
)  # fmt: skip
def test_the_hierarchy_says_who_uses_the_network(subgroups: str, leaders: int) -> None:
    """Of eight ranks on two hosts with two sockets each."""
    made = world(8, sharp={"HCOLL_SBGP": subgroups}, nodes=2, sockets=2, algorithm={"all_reduce": "hcoll_sharp"})

    def program(rank: int) -> float:
        x = np.full(4, rank, np.float32)
        dist.all_reduce(x)
        return float(x[0])

    assert run(program, made) == [28.0] * 8
    [job] = sharp_of(made).fabric.manager.jobs.values()
    assert len(job.grant.rails[0].llt) == leaders
