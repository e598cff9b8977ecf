# SPDX-License-Identifier: GPL-2.0-only
"""The small print of aggregation nodes: edges of rules that no example comes to (sharp.md §2.8, §3.1–§3.3, §4.3)."""

import struct

import pytest

from tests.support.sharp.fabric import HOSTS as ADDRESSES
from tests.support.sharp.host_real_nodes import SAT as STREAMS
from tests.support.sharp.host_real_nodes import fabric, run
from tests.support.sharp.node_groups import join, lock, lock_of
from tests.support.sharp.node_operations import FLAGS, aggregate, chunk, only, ready, request, stream, streaming
from tests.support.sharp.nodes import GROUP, HOSTS, JOB, LEAF_A, LEAF_B, LLT, SAT, SPINE, Net, read
from uetproto.engine.contract import MILLISECOND
from uetproto.engine.sharp.config import SharpConfig
from uetproto.engine.sharp.management import Quota
from uetproto.engine.sharp.messages import LockBody, SharpMessage
from uetproto.engine.sharp.node.aggregation_node import SharpNode
from uetproto.engine.sharp.node.pool import ResourcePool
from uetproto.engine.sharp.node.states import LockState
from uetproto.engine.sharp.numeric import fold
from uetproto.wire.headers.sharp import Coll, Dtype, Flag, Op, SharpOpcode, Status, Syndrome, Trap

# Groups --------------------------------------------------------------------------------------------------------------


def test_a_ready_group_waits_for_nothing() -> None:
    assert [node.deadline() for node in ready().nodes.values()] == [None] * 3


def test_who_gives_up_joining_leaves_above() -> None:
    net = Net()
    join(net, "H0")
    net.keep = lambda source, target, data: source != SPINE
    net.wait(5001)
    assert [data[1] for source, target, data in net.log if (source, target) == (LEAF_A, SPINE)] == [
        SharpOpcode.GROUP_JOIN_REQ, SharpOpcode.GROUP_LEAVE_REQ,
    ]  # fmt: skip


def test_who_leaves_a_group_that_is_joining_is_answered_once() -> None:
    net = Net()
    net.join(HOSTS[:2], size=4)
    net.clear()
    net.leave(("H0",))
    assert only(net, "H0").opcode == SharpOpcode.GROUP_LEAVE_RESP
    told = only(net, "H1")
    assert (told.opcode, told.status) == (SharpOpcode.GROUP_JOIN_RESP, Status.CANCELLED)


def test_a_group_that_is_joining_is_cancelled() -> None:
    net = Net()
    join(net, "H0")
    net.received("H0")
    net.nodes[LEAF_A].cleanup(JOB)
    net.run()
    assert only(net, "H0").status == Status.CANCELLED
    assert net.nodes[LEAF_A].pool.used().groups == 0


def test_cleanup_tells_children_and_not_the_parent() -> None:
    net = ready()
    net.nodes[LEAF_A].cleanup(JOB)
    net.run()
    assert [only(net, host).status for host in HOSTS[:2]] == [Status.CANCELLED] * 2
    assert not [data for source, target, data in net.log if target == SPINE]


# Operations ----------------------------------------------------------------------------------------------------------


def test_a_failed_operation_holds_the_window_for_t_err() -> None:
    net = ready()
    aggregate(net, 0, hosts=("H0",))
    aggregate(net, 0, hosts=("H1",), op=Op.MAX)
    net.wait(1)
    net.clear()
    aggregate(net, 1)
    net.wait(998)
    aggregate(net, 2, hosts=("H0",))
    assert [m.status for m in net.received("H0")] == [Status.OK, Status.SEQ_AHEAD]
    net.wait(2)
    aggregate(net, 2)
    assert [m.status for m in net.received("H0")] == [Status.OK]


def test_a_request_that_is_ahead_of_a_multicast_waits_for_it() -> None:
    """Hosts have the result before their leaf has: what they send next is held back, not refused."""
    net = ready()
    for seq in (0, 1):
        for host in HOSTS:
            net.send(host, request(host, seq, flags=FLAGS | Flag.MCAST))
    net.keep = lambda source, target, data: (source, target) != (SPINE, LEAF_A)
    net.run()
    assert len(net.multicasts) == 2
    for host in HOSTS[:2]:
        net.send(host, request(host, 2, flags=FLAGS | Flag.MCAST))
    net.send("H0", request("H0", 4, flags=FLAGS | Flag.MCAST))
    net.run()
    assert [m.status for m in net.received("H0")] == [Status.SEQ_AHEAD], "that is too far"
    assert net.received("H1") == []
    net.keep = lambda source, target, data: True
    net.wait(501)  # the leaf asks again
    assert 2 in net.nodes[LEAF_A].groups[LLT, GROUP].operations.ops
    for host in HOSTS[2:]:
        net.send(host, request(host, 2, flags=FLAGS | Flag.MCAST))
    net.run()
    assert [read(data).seq for _, data in net.multicasts] == [0, 1, 2]


@pytest.mark.parametrize("settings", [{}, STREAMS])
@pytest.mark.parametrize("root", [0, 1, 3])
def test_reduce_brings_the_payload_to_one(settings: dict[str, str], root: int) -> None:
    """Invariant 25, on the wire."""
    wire = fabric(settings)
    run(wire, Coll.REDUCE, 5000, op=Op.SUM, root=root)
    got = dict.fromkeys(ADDRESSES, 0)
    for _, target, data in wire.log:
        if data[1] == SharpOpcode.AGG_RESULT and target in got:
            got[target] += len(data) - 32
            assert bool(data[31] & Flag.NODATA) == (target != ADDRESSES[root])
    assert got == {address: 5000 * (rank == root) for rank, address in enumerate(ADDRESSES)}


@pytest.mark.parametrize(("batch", "locks"), [(1, 4), (2, 2), (3, 2), (65535, 1)])
def test_so_many_operations_a_lock(batch: int, locks: int) -> None:
    """Invariant 19, as hosts and nodes count alike."""
    wire = fabric({**STREAMS, "SHARP_COLL_SAT_LOCK_BATCH_SIZE": str(batch)})
    for op_id in range(4):
        run(wire, Coll.ALLREDUCE, 9000, op=Op.SUM, op_id=op_id)
    assert sum(source == 100 and data[1] == SharpOpcode.LOCK_REQ for source, _, data in wire.log) == locks
    held = [node.pool.used().locks for node in wire.nodes.values()]
    assert held == [int(4 % batch > 0)] * 3


def test_another_target_is_another_lock() -> None:
    """The leaves unlock one after the other: who asks again at once waits for the rest."""
    wire = fabric({**STREAMS, "SHARP_COLL_SAT_LOCK_BATCH_SIZE": "2"})
    for op_id, root in enumerate((0, None, 3, 3, None, None, None)):
        coll = Coll.ALLREDUCE if root is None else Coll.REDUCE
        results = run(wire, coll, 5000, op=Op.SUM, root=root, op_id=op_id)
        assert results == [bytes([10]) * 5000 if root in (None, rank) else b"" for rank in range(4)]
    assert not any(node.counters["errors"] for node in wire.nodes.values())


# Locks ---------------------------------------------------------------------------------------------------------------


def test_who_unlocked_waits_for_the_next_lock() -> None:
    net = streaming()
    token = net.nodes[SPINE].groups[LLT, GROUP].lock.body.token
    for host in HOSTS[:2]:
        lock(net, host, SharpOpcode.UNLOCK_REQ, token=token)
        lock(net, host, target=2)
        assert SharpOpcode.LOCK_RESP not in [m.opcode for m in net.received(host)]
    for host in HOSTS[2:]:
        lock(net, host, SharpOpcode.UNLOCK_REQ, token=token)
        lock(net, host, target=2)
    for host in HOSTS:
        message = net.received(host)[-1]
        assert (message.opcode, message.status) == (SharpOpcode.LOCK_RESP, Status.OK)
        body = LockBody.unpack(message.body)
        assert (body.target_rank, body.token != token) == (2, True)
    assert [lock_of(net, name) for name in (LEAF_A, LEAF_B, SPINE)] == [LockState.L_HELD] * 3


def test_children_that_want_other_batches() -> None:
    net = ready()
    net.join(tree=SAT)
    for host, batch in zip(HOSTS, (1, 1, 1, 2), strict=True):
        net.lock((host,), batch=batch)
    assert [net.received(host)[-1].status for host in HOSTS] == [Status.MISMATCH] * 4
    assert [node.pool.used().locks for node in net.nodes.values()] == [0] * 3


@pytest.mark.parametrize("tree", [LLT, SAT])
def test_prevent_lock_on_either_tree(tree: int) -> None:
    net = ready()
    for node in net.nodes.values():
        node.set_quota(Quota(JOB, tree, osts=51, prevent_lock=True))
    net.lock(("H0",))
    assert only(net, "H0").status == Status.LOCK_DENIED


def test_semaphores_flows_and_osts_bound_locks() -> None:
    pool = ResourcePool(SharpConfig(semaphores=2, sat_flows_per_an=3, sat_window=4, osts=12))
    assert [pool.acquire_semaphore(tree) for tree in (63, 63, 63, 64, 65)] == [True, True, False, True, False]
    pool.release_semaphore(63)
    pool.osts += 1
    assert not pool.acquire_semaphore(65), "one OST is missing"
    pool.osts -= 1
    assert pool.acquire_semaphore(65)


def test_a_stream_without_acknowledgements_does_not_grow() -> None:
    net = streaming(SharpConfig(lab_radix=2, heartbeat=0, mgid="ib", sat_window=4))
    net.acknowledge = False
    for number in range(40):
        stream(net, {"vec_off": 32 * number, "last": number == 39})
        for node in net.nodes.values():
            assert len(node.groups[SAT, GROUP].operations.ops) <= 2 * 4
    assert [m.vec_off for m in net.received("H3")] == [*range(0, 40 * 32, 32)]
    net.clear()
    for seq in range(1, 12):
        stream(net, {"vec_off": 0, "last": True, "seq": seq})
        for host in HOSTS:
            assert [(m.opcode, m.seq) for m in net.received(host)] == [(SharpOpcode.AGG_RESULT, seq)]


def test_a_chunk_goes_when_one_child_acknowledged_it_and_the_other_is_a_window_further() -> None:
    net = streaming(SharpConfig(lab_radix=2, heartbeat=0, mgid="ib", sat_window=4))
    net.acknowledge = False
    stream(net, *({"vec_off": 32 * number} for number in range(4)))
    operations = net.nodes[LEAF_A].groups[SAT, GROUP].operations
    held = list(operations.ops.values())
    assert [op.vec_off for op in held] == [0, 32, 64, 96]
    for op in held:
        operations.acknowledged(op, 0)
    assert list(operations.ops.values()) == held
    net.send("H1", chunk("H1", 128))
    net.run()
    assert [op.vec_off for op in operations.ops.values()] == [32, 64, 96, 128]


def test_what_streams_is_not_forgotten_while_a_child_may_need_it() -> None:
    """A child that is behind gets the chunk again."""
    net = streaming()
    net.acknowledge = False
    stream(net, {"vec_off": 0}, {"vec_off": 32})
    net.clear()
    net.send("H1", chunk("H1", 0, flags=chunk("H1", 0).flags | Flag.RETX))
    net.run()
    again = only(net, "H1")
    assert (again.vec_off, bool(again.flags & Flag.RETX), again.body) == (0, True, struct.pack(">8I", *[12] * 8))


# The rest ------------------------------------------------------------------------------------------------------------


def test_a_trap_names_what_it_is_about() -> None:
    node = SharpNode(9, SharpConfig())
    node.message(3, bytes(31), 0)
    data = bytearray(request("H0", 5).pack())
    data[31] |= 1
    node.message(4, bytes(data), MILLISECOND)
    first, second = node.events()
    assert first == (Trap.INVALID_REQUEST, 0, 0, 0xFFFF, 3, 0, 0)
    assert second == (Trap.INVALID_REQUEST, 0, JOB, LLT, 4, GROUP, 5)
    [out] = node.poll(MILLISECOND)
    error = read(out.data)
    assert (out.conn, error.status, error.seq, error.child_idx) == (4, Status.BAD_HEADER, 5, 0xFF)


def test_a_lock_that_times_out_is_a_trap() -> None:
    net = ready()
    net.join(tree=SAT)
    net.clear()
    net.lock(("H0",))
    net.wait(101)
    assert net.traps
    assert all(
        trap[:2] == (Trap.SHARP_ERROR, Syndrome.LOCK_SEMAPHORE_TIMEOUT) and trap.tree_id == LLT for _, trap in net.traps
    )


def test_control_messages_are_counted_from_0() -> None:
    net = ready(SharpConfig(lab_radix=2, heartbeat=0, mgid="ib"))
    net.leave()
    up = [read(data) for source, target, data in net.log if (source, target) == (LEAF_A, SPINE)]
    assert [(m.opcode, m.seq) for m in up] == [(SharpOpcode.GROUP_LEAVE_REQ, 2)], "after two JOIN_REQ: 0 and 1"


@pytest.mark.parametrize(
    ("values", "total"),
    [
        ((0x3F80, 0x3B80), 0x3F80),  # 1 + 2^-8: a tie, to the even one below
        ((0x3F81, 0x3B80), 0x3F82),  # 1 + 2^-7 + 2^-8: a tie, to the even one above
        ((0x3F81, 0x3B7F), 0x3F81),  # a little less than the tie
        ((0x3F80, 0x3B81), 0x3F81),  # a little more
        ((0x7F7F, 0x7B00), 0x7F80),  # over the greatest: infinity
    ],
)  # fmt: skip
def test_bf16_rounds_to_the_nearest_even(values: tuple[int, int], total: int) -> None:
    operands = [value.to_bytes(2, "big") for value in values]
    assert fold(Op.SUM, Dtype.BFLOAT16, 12, operands, little_endian=False) == total.to_bytes(2, "big")


def test_a_message_of_nobody_is_no_member() -> None:
    net = ready()
    net.nodes[LEAF_A].message(9, request("H0").pack(), 0)
    [out] = net.nodes[LEAF_A].poll(0)
    assert (out.conn, read(out.data).status) == (9, Status.NOT_MEMBER)
    assert isinstance(read(out.data), SharpMessage)
