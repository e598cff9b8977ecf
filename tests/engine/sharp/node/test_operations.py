# SPDX-License-Identifier: GPL-2.0-only
"""What an aggregation node does with requests, row by row: sharp.md §2.8 and §3.2, beyond the example of §7."""

import struct
from typing import Any

import pytest

from tests.support.sharp.node_operations import (
    FLAGS,
    STREAM,
    aggregate,
    chunk,
    only,
    ready,
    request,
    stream,
    streaming,
)
from tests.support.sharp.nodes import GROUP, HOSTS, JOB, LEAF_A, LEAF_B, LLT, SAT, SPINE, Net, read
from uetproto.engine.contract import MILLISECOND
from uetproto.engine.sharp.config import SharpConfig
from uetproto.engine.sharp.management import Quota
from uetproto.engine.sharp.messages import JoinRequest, SharpFault, SharpMessage, SharpTarget
from uetproto.engine.sharp.node.aggregation_node import SharpNode
from uetproto.engine.sharp.node.states import OpState
from uetproto.wire.headers.sharp import Coll, Dtype, Flag, Op, SharpOpcode, Status, TargetType, Trap

# Order of checks (§2.8): each message breaks its rule and every later one --------------------------------------------


@pytest.fixture
def net() -> Net:
    return ready()


@pytest.mark.parametrize(
    ("changes", "status"),
    [
        ({"tree": 9, "group": 9, "op": 99}, Status.UNKNOWN_TREE),
        ({"group": 9, "op": 99}, Status.UNKNOWN_GROUP),
        ({"op": 13, "dtype": 13, "count": 7}, Status.OP_UNSUPPORTED),
        ({"coll": 4, "dtype": 13, "count": 7}, Status.OP_UNSUPPORTED),
        ({"op": Op.NULL, "count": 7}, Status.OP_UNSUPPORTED),
        ({"dtype": 13, "count": 7}, Status.DTYPE_UNSUPPORTED),
        ({"op": Op.MINLOC, "tag_dtype": 13, "count": 7}, Status.DTYPE_UNSUPPORTED),
        ({"dtype": Dtype.NULL, "count": 7}, Status.DTYPE_UNSUPPORTED),
        ({"op": Op.BAND, "dtype": Dtype.FLOAT, "count": 7}, Status.OP_DTYPE_ILLEGAL),
        ({"op": Op.MAXLOC, "count": 7}, Status.OP_DTYPE_ILLEGAL),
        ({"tag_dtype": Dtype.INT, "count": 7}, Status.OP_DTYPE_ILLEGAL),
        ({"coll": Coll.BCAST, "count": 7}, Status.OP_DTYPE_ILLEGAL),
        ({"count": 7, "flags": FLAGS | Flag.SAT}, Status.LENGTH),
        ({"flags": FLAGS | Flag.NODATA}, Status.LENGTH),
        ({"vec_off": 2, "flags": FLAGS | Flag.SAT}, Status.LENGTH),
        ({"values": tuple(range(33)), "flags": FLAGS | Flag.SAT}, Status.LENGTH),
        ({"flags": FLAGS | Flag.SAT}, Status.NOT_LOCKED),
    ],
)
def test_the_first_failure_wins(net: Net, changes: dict[str, Any], status: Status) -> None:
    net.send("H0", request("H0", **changes))
    net.run()
    message = only(net, "H0")
    assert (message.opcode, message.status) == (SharpOpcode.ERROR, status)
    assert SharpFault.unpack(message.body).code == status
    told = [net.received(host) for host in HOSTS[1:]]
    known = status not in (Status.UNKNOWN_TREE, Status.UNKNOWN_GROUP)
    assert [len(messages) for messages in told] == [known] * 3, "the operation is dead for everybody"


def test_rule_2_tree_disabled_job_and_member(net: Net) -> None:
    net.send("H0", SharpMessage(SharpOpcode.AGG_REQ, LLT, 6, GROUP, 0))
    net.run()
    assert only(net, "H0").status == Status.UNKNOWN_JOB
    net.join(HOSTS[:2], group=8, size=2)
    net.clear()
    net.send("H2", request("H2", group=8))
    net.run()
    assert only(net, "H2").status == Status.UNKNOWN_GROUP
    net.nodes[LEAF_A].disable_tree(LLT)
    net.send("H0", SharpMessage(SharpOpcode.AGG_REQ, LLT, 6, 9, 0))
    net.run()
    assert only(net, "H0").status == Status.TREE_DISABLED


def test_a_child_that_is_no_member() -> None:
    net = Net()
    net.join(("H0", "H2"), size=2)
    net.clear()
    net.send("H1", request("H1"))
    net.run()
    assert only(net, "H1").status == Status.NOT_MEMBER
    assert net.log[-1][0] == LEAF_A


def test_prod_may_be_off() -> None:
    net = ready(SharpConfig(lab_radix=2, heartbeat=0, prod=False))
    net.send("H0", request("H0", op=Op.PROD))
    net.run()
    assert only(net, "H0").status == Status.OP_UNSUPPORTED


def test_every_truncation_and_reserved_bit_is_refused(net: Net) -> None:
    """Invariant 3: no exception, no change."""
    good = request("H0").pack()
    state = net.nodes[LEAF_A].groups[LLT, GROUP].operations
    broken = [good[:n] for n in range(len(good))]
    broken += [
        good[:at] + bytes((good[at] ^ bit,)) + good[at + 1 :]
        for at, bit in ((0, 0x10), (0, 1), (31, 1), (31, 4), (30, 2), (1, 8))
    ]
    broken += [good + b"\0", good + bytes(4), good[:33]]
    odd = bytearray(request("H0", dtype=Dtype.UINT8, count=3, body=b"abc").pack())
    odd[-1] = 1
    for data in (*broken, bytes(odd)):
        net.nodes[LEAF_A].message(1, data, net.now)
        assert not state.ops
    assert net.nodes[LEAF_A].counters["bad_messages"] == len(broken) + 1
    assert {trap.trap for trap in net.nodes[LEAF_A].events()} == {Trap.INVALID_REQUEST}
    assert all(read(out.data).status in (1, 2) for out in net.nodes[LEAF_A].poll(net.now))


# Collectives (§4.3) -------------------------------------------------------------------------------------------------


def test_barrier(net: Net) -> None:
    changes: dict[str, Any] = {
        "op": Op.NULL, "dtype": Dtype.NULL, "coll": Coll.BARRIER, "values": (), "flags": FLAGS | Flag.NODATA,
    }  # fmt: skip
    aggregate(net, hosts=HOSTS[:3], **changes)
    assert all(net.received(host) == [] for host in HOSTS), "nobody leaves before the last has entered"
    aggregate(net, hosts=HOSTS[3:], **changes)
    assert [only(net, host).flags for host in HOSTS] == [FLAGS | Flag.NODATA | Flag.FINAL] * 4


@pytest.mark.parametrize("root", HOSTS)
def test_broadcast(net: Net, root: str) -> None:
    for host in HOSTS:
        flags, body = (FLAGS, b"12345678") if host == root else (FLAGS | Flag.NODATA, b"")
        net.send(host, request(host, op=Op.NULL, coll=Coll.BCAST, flags=flags, body=body))
    net.run()
    assert [only(net, host).body for host in HOSTS] == [b"12345678"] * 4


def test_two_roots_of_a_broadcast(net: Net) -> None:
    aggregate(net, hosts=("H0", "H2"), op=Op.NULL, coll=Coll.BCAST)
    for host in ("H1", "H3"):
        net.send(host, request(host, op=Op.NULL, coll=Coll.BCAST, flags=FLAGS | Flag.NODATA, body=b""))
    net.run()
    assert [only(net, host).status for host in HOSTS] == [Status.MISMATCH] * 4


@pytest.mark.parametrize("target", HOSTS)
def test_reduce_follows_one_path(net: Net, target: str) -> None:
    aggregate(net, coll=Coll.REDUCE, target=SharpTarget(TargetType.SINGLE, HOSTS.index(target)))
    for host in HOSTS:
        message = only(net, host)
        assert message.body == (struct.pack(">2I", 4, 8) if host == target else b"")
        assert bool(message.flags & Flag.NODATA) == (host != target)
        assert (message.count, message.target) == (2, None)


def test_cookies_come_back_to_who_sent_them(net: Net) -> None:
    for host in HOSTS:
        net.send(host, request(host, udh=host.encode() * 4 if host != "H2" else b""))
    net.run()
    assert [only(net, host).udh for host in HOSTS] == [b"H0" * 4, b"H1" * 4, b"", b"H3" * 4]
    assert not any(read(data).udh for source, target, data in net.log if SPINE in (source, target))


@pytest.mark.parametrize(("flags", "total"), [(FLAGS, 1.0), (FLAGS & ~Flag.REPRO, 0.0)])
def test_order_of_folding(flags: int, total: float) -> None:
    """f32 operands of children 0, 1, 2: 1e8, -1e8, 1; child 2 comes before child 1 (§3.5)."""
    node = SharpNode(1, SharpConfig(heartbeat=0))
    node.set_tree(LLT, mode=0, llt_tree_id=0xFFFF, parent=None, children={0: 10, 1: 11, 2: 12})
    node.set_quota(Quota(JOB, LLT))
    for rank in range(3):
        body = JoinRequest(3, 2, 128, 3, 0, (rank,)).pack()
        node.message(10 + rank, SharpMessage(SharpOpcode.GROUP_JOIN_REQ, LLT, JOB, GROUP, 0, body=body).pack(), 0)
    node.poll(0)
    for child, value in ((0, 1e8), (2, 1.0), (1, -1e8)):
        body = struct.pack(">f", value)
        message = request("H0", dtype=Dtype.FLOAT, count=1, flags=flags, child_idx=child, body=body)
        node.message(10 + child, message.pack(), 0)
    assert [struct.unpack(">f", read(out.data).body) for out in node.poll(0)] == [(total,)] * 3


# Rows of §3.2 --------------------------------------------------------------------------------------------------------


def test_other_bytes_from_the_same_child(net: Net) -> None:
    net.send("H0", request("H0"))
    net.send("H0", request("H0", flags=FLAGS | Flag.RETX))
    net.run()
    assert net.nodes[LEAF_A].counters["dup"] == 1
    net.send("H0", request("H0", values=(1, 3)))
    net.run()
    assert [only(net, host).status for host in HOSTS] == [Status.DATA_CORRUPT] * 4
    net.send("H1", request("H1", 1))
    net.run()
    assert only(net, "H1").status == Status.DATA_CORRUPT, "the group FAILED"


@pytest.mark.parametrize(
    ("seq", "status"), [(2, Status.SEQ_AHEAD), (2**31 - 1, Status.SEQ_AHEAD), (2**32 - 1, Status.SEQ_STALE)]
)
def test_out_of_the_window(net: Net, seq: int, status: Status) -> None:
    net.send("H1", request("H1", seq))
    net.run()
    message = only(net, "H1")
    assert (message.opcode, message.status, message.seq, message.child_idx) == (SharpOpcode.NACK, status, seq, 1)
    assert SharpFault.unpack(message.body) == SharpFault(status, 1, SharpOpcode.AGG_REQ, 9, frozenset({1}))


def test_cache_and_what_is_older(net: Net) -> None:
    for seq in range(4):
        aggregate(net, seq)
    net.clear()
    net.send("H0", request("H0", 3))
    net.send("H0", request("H0", 2))
    net.send("H0", request("H0", 1))
    net.run()
    again, cached, stale = net.received("H0")
    assert [(m.opcode, m.seq) for m in (again, cached)] == [(SharpOpcode.AGG_RESULT, 3), (SharpOpcode.AGG_RESULT, 2)]
    assert again.flags & cached.flags & Flag.RETX
    assert (stale.opcode, stale.status) == (SharpOpcode.NACK, Status.SEQ_STALE)


def test_without_acknowledgements_the_next_window_says_it(net: Net) -> None:
    """seq ≥ this + W: one that is quicker than the ACK of its sibling is not refused."""
    net.acknowledge = False
    for seq in range(8):
        aggregate(net, seq)
        for host in HOSTS:
            assert (only(net, host).opcode, read(net.log[-1][2]).seq) == (SharpOpcode.AGG_RESULT, seq)
    assert net.nodes[LEAF_A].groups[LLT, GROUP].operations.base == 6
    assert all(not node.counters["nacks"] for node in net.nodes.values())
    net.send("H0", request("H0", 6))
    net.run()
    assert only(net, "H0").flags & Flag.RETX


def test_hosts_that_get_multicasts_need_not_acknowledge(net: Net) -> None:
    for seq in range(8):
        aggregate(net, seq, flags=FLAGS | Flag.MCAST)
    assert len(net.multicasts) == 8
    assert all(net.received(host) == [] for host in HOSTS)


def test_serial_numbers_wrap(net: Net) -> None:
    for node in net.nodes.values():
        node.groups[LLT, GROUP].operations.base = 2**32 - 2
    for seq in (2**32 - 2, 2**32 - 1, 0, 1, 2):
        aggregate(net, seq)
        assert [only(net, host).opcode for host in HOSTS] == [SharpOpcode.AGG_RESULT] * 4


def test_the_parent_is_asked_again_and_then_is_down() -> None:
    net = ready()
    net.keep = lambda source, target, data: target != SPINE
    aggregate(net)
    net.wait(499)
    assert net.inbox["H0"] == []
    net.wait(500 * 8)
    assert [only(net, host).status for host in HOSTS] == [Status.PARENT_DOWN] * 4
    assert net.nodes[LEAF_A].counters["retries"] == net.config.retry
    assert {(name, trap.trap) for name, trap in net.traps} == {(LEAF_A, Trap.QP_ERROR), (LEAF_B, Trap.QP_ERROR)}


def test_a_result_of_another_signature(net: Net) -> None:
    aggregate(net, hosts=HOSTS[:2])
    bad = request("H0", op=Op.MAX)
    bad.opcode, bad.flags = SharpOpcode.AGG_RESULT, FLAGS | Flag.FINAL
    net.nodes[LEAF_A].message(100 + LLT, bad.pack(), net.now)
    net.run()
    assert [only(net, host).status for host in HOSTS] == [Status.DATA_CORRUPT] * 4


def test_lazy_osts_are_refused_and_come_again() -> None:
    net = ready(SharpConfig(lab_radix=2, heartbeat=0, lazy_ost=True, osts=1))
    aggregate(net, 0, hosts=("H0", "H2", "H3"))
    aggregate(net, 1, hosts=("H0",))
    assert only(net, "H0").status == Status.OST_EXHAUSTED
    assert net.nodes[LEAF_A].pool.used().osts == 1
    aggregate(net, 0, hosts=("H1",))
    assert [only(net, host).opcode for host in HOSTS] == [SharpOpcode.AGG_RESULT] * 4
    assert [node.pool.used().osts for node in net.nodes.values()] == [0, 0, 0]


def test_a_parent_without_osts_is_asked_again() -> None:
    net = ready(SharpConfig(lab_radix=2, heartbeat=0, lazy_ost=True, osts=2))
    net.nodes[SPINE].pool.osts = 2
    aggregate(net)
    net.wait(45)
    assert net.nodes[LEAF_A].counters["retries"] == 4
    net.nodes[SPINE].pool.osts = 0
    net.wait(10)
    assert [only(net, host).opcode for host in HOSTS] == [SharpOpcode.AGG_RESULT] * 4
    net.nodes[SPINE].pool.osts = 2
    aggregate(net, 1)
    net.wait(200)
    assert {only(net, host).status for host in HOSTS} == {Status.OST_EXHAUSTED}


def test_an_error_of_a_host_is_relayed_unchanged(net: Net) -> None:
    body = SharpFault(Status.CANCELLED, 0, 0, 77).pack()
    error = SharpMessage(SharpOpcode.ERROR, LLT, JOB, GROUP, 0, status=Status.CANCELLED, body=body).pack()
    net.send("H0", error)
    net.run()
    assert net.inbox["H0"] == []
    assert [net.inbox[host] for host in HOSTS[1:]] == [[error]] * 3
    net.clear()
    net.send("H1", error)  # once for each operation
    net.run()
    assert len(net.log) == 1
    net.send("H1", request("H1"))
    net.run()
    assert net.inbox["H1"] == [error]


def test_after_t_err_the_window_goes_on(net: Net) -> None:
    bad = request("H0", op=99)
    net.send("H0", bad)
    net.run()
    net.wait(1001)
    net.clear()
    aggregate(net, 1)
    aggregate(net, 2)
    assert [len(net.received(host)) for host in HOSTS] == [2] * 4


def test_the_bitmap_names_the_missing(net: Net) -> None:
    aggregate(net, hosts=("H0",))
    net.wait(1)
    aggregate(net, hosts=("H2", "H3"))
    net.wait(1001)
    message = only(net, "H3")
    assert SharpFault.unpack(message.body) == SharpFault(
        Status.TIMEOUT_NO_PROGRESS, 1, SharpOpcode.AGG_REQ, 9, frozenset({1})
    )


# Streaming (§3.3) ---------------------------------------------------------------------------------------------------


def test_chunks_move_up_before_the_last_one() -> None:
    net = streaming()
    stream(net, {"vec_off": 0})
    assert [only(net, host).vec_off for host in HOSTS] == [0] * 4
    stream(net, {"vec_off": 32}, {"vec_off": 64, "values": 3, "last": True})
    for host in HOSTS:
        assert [(m.vec_off, m.body) for m in net.received(host)] == [
            (32, struct.pack(">8I", *[12] * 8)),
            (64, struct.pack(">3I", 12, 12, 12)),
        ]


def test_more_chunks_than_the_window() -> None:
    net = streaming()
    for at in range(0, 200 * 32, 32):
        stream(net, {"vec_off": at, "last": at == 199 * 32})
    assert [[m.vec_off for m in net.received(host)] for host in HOSTS] == [[*range(0, 200 * 32, 32)]] * 4
    assert not net.nodes[SPINE].groups[SAT, GROUP].operations.ops


def test_results_leave_in_ascending_order() -> None:
    net = streaming()
    for vec_off in (64, 32, 0):
        stream(net, {"vec_off": vec_off, "last": vec_off == 64})
    for host in HOSTS:
        assert [m.vec_off for m in net.received(host)] == [0, 32, 64]


@pytest.mark.parametrize(
    ("chunks", "bad", "status"),
    [
        ([{"vec_off": 0}], {"vec_off": 64 * 32}, Status.SAT_OST_OVERFLOW),
        ([{"vec_off": 0}], {"vec_off": 32, "values": 7}, Status.SAT_GRANULARITY),
        ([{"vec_off": 0}], {"vec_off": 32, "values": 16}, Status.SAT_GRANULARITY),
        ([{"vec_off": 0, "last": True}], {"vec_off": 32}, Status.SAT_UNBALANCED),
        ([], {"vec_off": 0, "target": SharpTarget(TargetType.SINGLE, 1)}, Status.SAT_TARGET_HDR),
        ([], {"vec_off": 1_073_741_760, "values": 16, "last": True}, Status.LENGTH),
        ([], {"vec_off": 0, "values": 1024}, Status.LENGTH),
        ([], {"vec_off": 0, "flags": STREAM & ~Flag.LOCK}, Status.NOT_LOCKED),
        ([], {"vec_off": 0, "flags": STREAM & ~Flag.SAT}, Status.NOT_LOCKED),
    ],
)
def test_chunks_that_do_not_fit(chunks: list[dict[str, Any]], bad: dict[str, Any], status: Status) -> None:
    net = streaming()
    stream(net, *chunks, hosts=("H0",))
    net.send("H0", chunk("H0", **bad))
    net.run()
    for host in HOSTS:
        message = only(net, host)
        assert (message.opcode, message.status, message.seq) == (SharpOpcode.ERROR, status, 0)


@pytest.mark.parametrize("other", [{"vec_off": 0, "last": True}, {"vec_off": 0, "values": 16}])
def test_children_that_disagree(other: dict[str, Any]) -> None:
    net = streaming()
    net.send("H0", chunk("H0", 0))
    net.send("H1", chunk("H1", **other))
    net.run()
    assert [only(net, host).status for host in HOSTS] == [Status.SAT_UNBALANCED] * 4


def test_the_target_of_a_lock() -> None:
    net = streaming(target=2)
    stream(net, {"vec_off": 0, "last": True, "coll": Coll.REDUCE})
    assert [bool(only(net, host).body) for host in HOSTS] == [False, False, True, False]


def test_sat_equals_llt() -> None:
    """Invariant 12, and 16: as much comes as was sent."""
    values = {host: [float(k * 1.1 ** (rank * 3)) for k in range(32)] for rank, host in enumerate(HOSTS)}
    net = ready()
    for host in HOSTS:
        net.send(
            host, request(host, values=tuple(range(32)), dtype=Dtype.FLOAT, body=struct.pack(">32f", *values[host]))
        )
    net.run()
    flat = only(net, "H3").body
    for size in (8, 16, 24, 32):
        net = streaming()
        for at in range(0, 32, size):
            part = {host: values[host][at : at + size] for host in HOSTS}
            for host in HOSTS:
                body = struct.pack(f">{len(part[host])}f", *part[host])
                net.send(host, chunk(host, 4 * at, len(part[host]), last=at + size >= 32, dtype=Dtype.FLOAT, body=body))
        net.run()
        assert b"".join(message.body for message in net.received("H0")) == flat


def test_operations_stay_in_the_window_of_the_pool() -> None:
    net = streaming()
    assert [node.pool.used() for node in net.nodes.values()] == [
        (66, 2, 1, node.pool.used().buffers) for node in net.nodes.values()
    ]
    assert all(op.state is OpState.COLLECT for op in net.nodes[LEAF_A].groups[SAT, GROUP].operations.ops.values())


def test_quota_bounds_what_is_granted() -> None:
    net = Net(quota=Quota(JOB, LLT, osts=1, groups=2, user_data=64))
    net.join()
    node = net.nodes[SPINE]
    granted = node.groups[LLT, GROUP].granted
    assert (granted.granted_osts, granted.user_data_per_ost) == (1, 64)
    assert net.now < MILLISECOND
