# SPDX-License-Identifier: GPL-2.0-only
"""Who takes part, what a node has, and what ends: sharp.md §3.1, the lock of §3.3, §1.7, and management."""

import pytest

from tests.support.sharp.node_groups import (
    join,
    lock,
    lock_of,
)
from tests.support.sharp.node_operations import aggregate, chunk, only, ready, request, stream, streaming
from tests.support.sharp.nodes import GROUP, HOSTS, JOB, LEAF_A, LEAF_B, LLT, SAT, SPINE, Net
from uetproto.engine.contract import MILLISECOND
from uetproto.engine.sharp.config import SharpConfig, buffer_bytes
from uetproto.engine.sharp.management import Quota
from uetproto.engine.sharp.messages import Heartbeat, JoinResponse, LockBody, SharpMessage
from uetproto.engine.sharp.node.aggregation_node import SharpNode
from uetproto.engine.sharp.node.pool import Used
from uetproto.engine.sharp.node.states import GroupState, LockState
from uetproto.errors import LocalError
from uetproto.knobs import knobs_of
from uetproto.wire.headers.sharp import Flag, SharpOpcode, Status, Syndrome, Trap

NOTHING = Used(0, 0, 0, 0)


# Group ---------------------------------------------------------------------------------------------------------------


def test_join_is_idempotent_and_repeats_the_answer() -> None:
    net = Net()
    join(net, "H0")
    join(net, "H0")
    assert len([data for _, target, data in net.log if target == SPINE]) == 1
    for host in HOSTS[1:]:
        join(net, host)
    net.received("H0")
    join(net, "H0")
    assert JoinResponse.unpack(only(net, "H0").body).granted_osts == 2


def test_join_that_does_not_fit() -> None:
    net = Net()
    join(net, "H0")
    join(net, "H1", ranks=(0,))
    assert only(net, "H1").status == Status.MISMATCH
    join(net, "H1", size=3)
    assert only(net, "H1").status == Status.MISMATCH
    join(net, "H1", ranks=())
    join(net, "H1", job=6)
    assert only(net, "H1").status == Status.UNKNOWN_JOB
    for host in HOSTS[1:]:
        join(net, host)
    assert [only(net, host).status for host in HOSTS] == [Status.OK] * 4


def test_groups_of_a_quota() -> None:
    net = Net(quota=Quota(JOB, LLT, groups=1))
    net.join()
    net.clear()
    net.join(group=8)
    assert [only(net, host).status for host in HOSTS] == [Status.GROUP_EXHAUSTED] * 4
    net.leave()
    net.clear()
    net.join(group=8)
    assert [only(net, host).status for host in HOSTS] == [Status.OK] * 4


def test_osts_of_a_quota() -> None:
    net = Net(quota=Quota(JOB, LLT, osts=3))
    net.join()
    net.join(group=8)
    assert [net.nodes[SPINE].groups[LLT, group].window for group in (7, 8)] == [2, 1]
    net.clear()
    net.join(group=9)
    assert {only(net, host).status for host in HOSTS} == {Status.QUOTA}


def test_the_root_refuses_for_all() -> None:
    net = Net()
    net.nodes[SPINE].clear_quota(JOB, LLT)
    net.join()
    assert {message.status for host in HOSTS for message in net.received(host)} == {Status.UNKNOWN_JOB}
    assert [node.pool.used() for node in net.nodes.values()] == [NOTHING] * 3


def test_a_group_that_is_not_complete_is_given_up() -> None:
    net = Net()
    net.join(HOSTS[:3], size=4)
    net.wait(4999)
    assert all(net.received(host) == [] for host in HOSTS)
    net.wait(1)
    assert [only(net, host).status for host in HOSTS[:3]] == [Status.TIMEOUT_NO_PROGRESS] * 3
    assert [node.pool.used() for node in net.nodes.values()] == [NOTHING] * 3
    assert not any(node.groups for node in net.nodes.values())


def test_leaving() -> None:
    net = ready()
    net.leave(HOSTS[:3])
    assert all(net.received(host) == [] for host in HOSTS)
    net.leave(HOSTS[3:])
    assert [only(net, host).opcode for host in HOSTS] == [SharpOpcode.GROUP_LEAVE_RESP] * 4
    assert [node.pool.used() for node in net.nodes.values()] == [NOTHING] * 3


def test_who_leaves_cancels_what_is_open() -> None:
    net = ready()
    aggregate(net, hosts=("H0", "H2"))
    net.leave(("H1",))
    assert [only(net, host).status for host in ("H0", "H2", "H3")] == [Status.CANCELLED] * 3
    net.send("H1", request("H1", 1))
    net.run()
    assert only(net, "H1").status == Status.NOT_MEMBER


def test_a_child_that_dies() -> None:
    net = ready()
    aggregate(net, hosts=HOSTS[1:])
    net.nodes[LEAF_A].lost(1, net.now)
    net.run()
    assert [only(net, host).status for host in HOSTS[1:]] == [Status.CHILD_DOWN] * 3
    assert [(name, trap.trap) for name, trap in net.traps] == [(LEAF_A, Trap.QP_ERROR)]
    assert all(node.groups[LLT, GROUP].state is GroupState.FAILED for node in net.nodes.values())
    net.send("H3", request("H3", 1))
    net.run()
    assert only(net, "H3").status == Status.CHILD_DOWN
    net.leave(HOSTS[1:])
    assert [only(net, host).opcode for host in HOSTS[1:]] == [SharpOpcode.GROUP_LEAVE_RESP] * 3
    assert [node.pool.used() for node in net.nodes.values()] == [NOTHING] * 3


def test_a_dead_child_of_an_idle_group() -> None:
    net = ready()
    net.nodes[LEAF_B].lost(2, net.now)
    net.run()
    assert [only(net, host).status for host in HOSTS[:3]] == [Status.CHILD_DOWN] * 3


def test_a_dead_switch() -> None:
    """Leaf A loses its parent, the spine its child: both tell everybody that is left."""
    net = ready()
    aggregate(net, hosts=("H0", "H3"))
    net.nodes[LEAF_A].lost(100, net.now)
    net.nodes[SPINE].lost(1, net.now)
    net.run()
    assert [only(net, host).status for host in HOSTS] == [Status.PARENT_DOWN] * 2 + [Status.CHILD_DOWN] * 2
    assert not {(LEAF_A, SPINE), (SPINE, LEAF_A)} & {(source, target) for source, target, _ in net.log[3:]}
    net.leave()
    assert [node.pool.used() for node in net.nodes.values()] == [NOTHING] * 3


def test_heartbeats() -> None:
    net = Net(SharpConfig(lab_radix=2))
    net.join()
    net.clear()
    for _ in range(3):
        net.wait(1000)
        for host in HOSTS[1:]:
            beat = only(net, host)
            body = Heartbeat.unpack(beat.body)
            answer = SharpMessage(
                SharpOpcode.HEARTBEAT_RESP, 0xFFFF, 0, 0, beat.seq, body=Heartbeat(77, body.counter).pack()
            )
            net.send(host, answer)
        net.run()
    net.clear()
    net.wait(1000)
    assert [message.status for message in net.received("H1") if message.opcode == SharpOpcode.ERROR] == [
        Status.CHILD_DOWN
    ]
    net.send("H3", SharpMessage(SharpOpcode.HEARTBEAT, 0xFFFF, 0, 0, 5, body=Heartbeat(3, 4).pack()))
    net.clear()
    net.run()
    answer = only(net, "H3")
    assert (answer.opcode, answer.seq, Heartbeat.unpack(answer.body)) == (
        SharpOpcode.HEARTBEAT_RESP,
        5,
        Heartbeat(10, 4),
    )


@pytest.mark.parametrize("trim", [True, False])
def test_group_trim(trim: bool) -> None:
    """All members are on leaf A: it becomes the root, and nothing goes to the spine."""
    net = Net(SharpConfig(lab_radix=2, heartbeat=0, group_trim=trim))
    net.join(HOSTS[:2])
    assert [JoinResponse.unpack(only(net, host).body).is_root for host in HOSTS[:2]] == [trim] * 2
    net.clear()
    aggregate(net, hosts=HOSTS[:2])
    assert any(SPINE in (source, target) for source, target, _ in net.log) != trim
    assert [only(net, host).flags & Flag.FINAL for host in HOSTS[:2]] == [Flag.FINAL] * 2
    net.leave(HOSTS[:2])
    assert [node.pool.used() for node in net.nodes.values()] == [NOTHING] * 3


def test_cleanup() -> None:
    net = streaming()
    aggregate(net, hosts=("H0",))
    stream(net, {"vec_off": 0}, hosts=("H0",))
    for node in net.nodes.values():
        node.cleanup(job=JOB)
    assert [node.pool.used() for node in net.nodes.values()] == [NOTHING] * 3
    net.run()
    assert {message.status for host in HOSTS for message in net.received(host)} == {Status.CANCELLED}
    assert all(node.deadline() is None for node in net.nodes.values())


# Lock ----------------------------------------------------------------------------------------------------------------


def test_lock_comes_and_goes() -> None:
    net = streaming()
    token = net.nodes[SPINE].groups[LLT, GROUP].lock.body.token
    lock(net, "H0")
    assert LockBody.unpack(only(net, "H0").body).token == token
    lock(net, "H0", SharpOpcode.UNLOCK_REQ, token=token + 1)
    assert only(net, "H0").status == Status.NOT_LOCKED
    for host in HOSTS:
        lock(net, host, SharpOpcode.UNLOCK_REQ, token=token)
    assert [(m.opcode, m.status) for m in map(only, [net] * 4, HOSTS)] == [(SharpOpcode.UNLOCK_RESP, Status.OK)] * 4
    assert [lock_of(net, name) for name in (LEAF_A, LEAF_B, SPINE)] == [LockState.L_FREE] * 3


def test_open_operations_finish_before_an_unlock() -> None:
    net = streaming()
    token = net.nodes[SPINE].groups[LLT, GROUP].lock.body.token
    stream(net, {"vec_off": 0, "last": True}, hosts=HOSTS[:3])
    for host in HOSTS:
        lock(net, host, SharpOpcode.UNLOCK_REQ, token=token)
    assert lock_of(net, LEAF_A) is LockState.L_HELD
    stream(net, {"vec_off": 0, "last": True}, hosts=HOSTS[3:])
    for host in HOSTS:
        assert [m.opcode for m in net.received(host)] == [SharpOpcode.AGG_RESULT, SharpOpcode.UNLOCK_RESP]


@pytest.mark.parametrize("batch", [1, 3])
def test_a_batch(batch: int) -> None:
    """Invariant 19."""
    net = streaming(batch=batch)
    for seq in range(batch):
        assert net.nodes[SPINE].pool.used().locks == 1
        stream(net, {"vec_off": 0, "last": True, "seq": seq})
    assert [node.pool.used().locks for node in net.nodes.values()] == [0, 0, 0]
    net.clear()
    net.send("H0", chunk("H0", 0, last=True, seq=batch))
    net.run()
    assert [only(net, host).status for host in HOSTS] == [Status.NOT_LOCKED] * 4
    assert net.traps[0][1].syndrome == Syndrome.BAD_SAT_REQUEST_CLASSIFICATION


def test_flag_unlock() -> None:
    net = streaming()
    stream(net, {"vec_off": 0, "last": True, "flags": 0xD880 | Flag.UNLOCK})
    assert [node.pool.used().locks for node in net.nodes.values()] == [0, 0, 0]


def test_two_groups_race() -> None:
    """Invariant 18."""
    net = Net()
    for group in (7, 8):
        net.join(group=group)
        net.join(group=group, tree=SAT)
    net.clear()
    for host in HOSTS:
        for group in (7, 8) if host in HOSTS[:2] else (8, 7):
            body = LockBody(SAT, 0xFFFF, 0, 100).pack()
            net.send(host, SharpMessage(SharpOpcode.LOCK_REQ, LLT, JOB, group, 9, body=body))
    net.run()
    ends = {group: {m.status for host in HOSTS for m in net.inbox_of(host, group)} for group in (7, 8)}
    assert all(len(statuses) == 1 for statuses in ends.values())
    assert sum(statuses == {Status.OK} for statuses in ends.values()) <= 1
    assert Status.LOCK_BUSY in set.union(*ends.values())


def test_a_lock_that_nobody_completes() -> None:
    net = ready()
    net.join(tree=SAT)
    net.clear()
    for host in HOSTS[:3]:
        lock(net, host)
    net.wait(100)
    assert [only(net, host).status for host in HOSTS[:3]] == [Status.LOCK_TIMEOUT] * 3
    assert {(trap.trap, trap.syndrome) for _, trap in net.traps} == {
        (Trap.SHARP_ERROR, Syndrome.LOCK_SEMAPHORE_TIMEOUT)
    }
    assert [node.pool.used().locks for node in net.nodes.values()] == [0, 0, 0]


@pytest.mark.parametrize("again", [False, True])
def test_a_lock_that_comes_too_late_is_given_back(again: bool) -> None:
    """Leaf A gives up; B completes just then, and the root grants."""
    net = ready()
    net.join(tree=SAT)
    net.clear()
    for host in HOSTS[:3]:
        lock(net, host)
    for name in (SPINE, LEAF_B):  # as if they had begun later
        net.nodes[name].start(net.nodes[name].groups[LLT, GROUP].lock, 200 * MILLISECOND)
    net.wait(110)
    assert only(net, "H0").status == Status.LOCK_TIMEOUT
    lock(net, "H3")
    assert [only(net, host).status for host in HOSTS[2:]] == [Status.OK] * 2
    assert lock_of(net, LEAF_A) is LockState.L_FREE
    token = net.nodes[LEAF_B].groups[LLT, GROUP].lock.body.token
    if again:  # it never used it, so it takes part
        for host in HOSTS[:2]:
            lock(net, host)
        assert [net.received(host)[-1].status for host in HOSTS[:2]] == [Status.OK] * 2
        assert lock_of(net, LEAF_A) is LockState.L_HELD
    for host in HOSTS[2:]:
        lock(net, host, SharpOpcode.UNLOCK_REQ, token=token)
    assert (lock_of(net, SPINE) is LockState.L_HELD) == again
    if again:
        for host in HOSTS[:2]:
            lock(net, host, SharpOpcode.UNLOCK_REQ, token=token)
    assert [node.pool.used().locks for node in net.nodes.values()] == [0, 0, 0]


@pytest.mark.parametrize(
    ("targets", "status"),
    [
        ((1, 1, 1, 2), Status.SAT_MULTI_TARGET),
        ((1, 2, 1, 2), Status.SAT_MULTI_TARGET),
        ((9, 9, 9, 9), Status.SAT_NO_DEST),
    ],
)
def test_targets_of_a_lock(targets: tuple[int, ...], status: Status) -> None:
    net = ready()
    net.join(tree=SAT)
    net.clear()
    for host, target in zip(HOSTS, targets, strict=True):
        lock(net, host, target=target)
    assert [only(net, host).status for host in HOSTS] == [status] * 4


def test_prevent_lock() -> None:
    net = Net(quota=Quota(JOB, LLT, prevent_lock=True))
    net.join()
    net.clear()
    lock(net, "H0")
    assert only(net, "H0").status == Status.LOCK_DENIED


def test_a_lock_ends_with_its_group() -> None:
    net = streaming()
    stream(net, {"vec_off": 0}, hosts=("H0",))
    net.nodes[LEAF_A].lost(1, net.now)
    net.run()
    assert [node.pool.used().locks for node in net.nodes.values()] == [0, 0, 0]


# Management ---------------------------------------------------------------------------------------------------------


def test_buffers_by_the_published_formula() -> None:
    config = SharpConfig(line_size=128, worst_case_lines=1)
    assert buffer_bytes(config, 64, 32, reproducible=True) == 4 * 2 * 128
    assert buffer_bytes(config, 128, 32, reproducible=True) == 8 * 2 * 128
    assert buffer_bytes(config, 1024, 252, reproducible=True) == 63 * 8 * 2 * 128
    assert buffer_bytes(config, 128, 32, reproducible=False) == 2 * 128
    assert buffer_bytes(config, 1024, 32, reproducible=False) == 5 * 2 * 128


def test_buffers_bound_a_grant() -> None:
    net = Net(SharpConfig(lab_radix=2, heartbeat=0, buffers=256))
    net.join()
    assert net.nodes[SPINE].groups[LLT, GROUP].window == 1
    assert net.nodes[SPINE].pool.used().buffers == 256


def test_misuse_is_told() -> None:
    node = SharpNode(1, SharpConfig())
    with pytest.raises(LocalError, match=r"children: .* legal: child_idx 0 … 31"):
        node.set_tree(0, mode=0, llt_tree_id=0xFFFF, parent=None, children={32: 1})
    with pytest.raises(LocalError, match="tree_id: 1023 is not legal"):
        node.set_tree(1023, mode=0, llt_tree_id=0xFFFF, parent=None, children={})
    with pytest.raises(LocalError, match="a connection is used twice"):
        node.set_tree(0, mode=0, llt_tree_id=0xFFFF, parent=1, children={0: 1})
    with pytest.raises(LocalError, match="tree_id: 3 is not configured"):
        node.set_quota(Quota(1, 3))
    with pytest.raises(LocalError, match="sat_chunk: 33 is not legal; legal: 32 … 4064 in steps of 32"):
        SharpConfig(sat_chunk=33)
    assert knobs_of(SharpConfig)["radix"].legal == range(16, 253)


def test_a_tree_that_is_removed() -> None:
    net = ready()
    net.nodes[LEAF_A].remove_tree(LLT)
    assert net.nodes[LEAF_A].pool.used() == NOTHING
    net.send("H0", request("H0"))
    net.run()
    assert [message.status for message in net.received("H0")] == [Status.CANCELLED, Status.UNKNOWN_TREE]
    assert net.now < MILLISECOND


def test_a_child_that_management_takes_away() -> None:
    """Its groups end as by ResourceCleanup; nothing of them is left that could fire."""
    net = ready()
    aggregate(net, hosts=("H1",))
    net.nodes[LEAF_A].update_tree(LLT, {0: 0})
    net.wait(100_000)
    assert [only(net, host).status for host in HOSTS[:2]] == [Status.CANCELLED] * 2
    assert net.nodes[LEAF_A].pool.used() == NOTHING
    net.send("H0", request("H0"))
    net.run()
    assert only(net, "H0").status == Status.UNKNOWN_GROUP
