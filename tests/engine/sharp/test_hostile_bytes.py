# SPDX-License-Identifier: GPL-2.0-only
"""Bytes from outside, in every state of nodes and hosts: nothing raises, nothing is done by halves (sharp.md §6, 3)."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.support.sharp.fabric import HOSTS, A, S, Wire
from tests.support.sharp.node_operations import aggregate, chunk, ready, request, streaming
from tests.support.sharp.nodes import GROUP, JOB, LEAF_A, LLT, SAT, SPINE, Net
from uetproto.engine.contract import SECOND
from uetproto.engine.sharp.host.endpoint import SharpHost
from uetproto.engine.sharp.host.work import Aggregate, LeaveGroup
from uetproto.engine.sharp.manager.grants import JobGrant
from uetproto.engine.sharp.messages import (
    Heartbeat,
    JoinRequest,
    JoinResponse,
    LockBody,
    SharpFault,
    SharpMessage,
    parse,
)
from uetproto.engine.sharp.node.aggregation_node import SharpNode
from uetproto.engine.sharp.node.sat_operations import SatOperations
from uetproto.engine.sharp.options import SharpOptions
from uetproto.wire.headers.sharp import Coll, Dtype, Op, SharpOpcode, Status

PLAUSIBLE = [
    *(request("H0", seq) for seq in (0, 1, 2, 2**31, 2**32 - 1)),
    *(chunk("H0", at, seq=seq, last=at == 64) for at in (0, 32, 64, 32 * 64) for seq in (0, 1)),
    *(SharpMessage(SharpOpcode.AGG_RESULT, tree, JOB, GROUP, seq, 0, 2, Op.SUM, Dtype.UNSIGNED, coll=Coll.ALLREDUCE,
                   child_idx=0, flags=0x1888, body=bytes(8)) for tree in (LLT, SAT) for seq in (0, 1)),
    *(SharpMessage(opcode, LLT, JOB, GROUP, 0, body=JoinRequest(4, 2, 128, 3, 0, ranks).pack())
      for opcode in (SharpOpcode.GROUP_JOIN_REQ,) for ranks in ((), (0,), (1, 2), (0, 0), tuple(range(40)))),
    *(SharpMessage(SharpOpcode.GROUP_JOIN_RESP, LLT, JOB, GROUP, 0, status=status,
                   body=JoinResponse(4, 4, osts, 128).pack())
      for status in (0, 0x0D, 0xEE) for osts in (0, 2)),
    *(SharpMessage(opcode, LLT, JOB, GROUP, 0)
      for opcode in (SharpOpcode.GROUP_LEAVE_REQ, SharpOpcode.GROUP_LEAVE_RESP)),
    *(SharpMessage(opcode, LLT, JOB, GROUP, 0, status=status, body=LockBody(SAT, batch, token, 100, target).pack())
      for opcode in (0x20, 0xA0, 0x21, 0xA1) for status in (0, 0x13, 0xEE) for batch in (0, 1, 0xFFFF)
      for token in (0, 1) for target in (1, 0xFFFF)),
    *(SharpMessage(opcode, tree, JOB, GROUP, seq, status=status,
                   body=SharpFault(status, 1, 0x10, 9, frozenset({1})).pack())
      for opcode in (0x7E, 0x7F) for tree in (LLT, SAT) for seq in (0, 1, 9) for status in (0, 0x0C, 0x10, 0x1C, 0xEE)),
    *(SharpMessage(opcode, 0xFFFF, 0, 0, 0, body=Heartbeat(1, 2).pack()) for opcode in (0x30, 0xB0)),
]  # fmt: skip


@st.composite
def bytes_from_outside(draw: st.DrawFn) -> bytes:
    """A message, one with a few bytes changed, a piece of one, or anything."""
    data = bytearray(draw(st.sampled_from(PLAUSIBLE)).pack())
    match draw(st.integers(0, 4)):
        case 0:
            return draw(st.binary(max_size=100))
        case 1:
            return bytes(data[: draw(st.integers(0, len(data)))])
        case 2 | 3:
            for _ in range(draw(st.integers(1, 3))):
                data[draw(st.integers(0, len(data) - 1))] = draw(st.sampled_from([0, 1, 2, 0x0C, 0x7F, 0x80, 0xFF]))
    return bytes(data)


def joining() -> Net:
    net = Net()
    net.join(("H0", "H2"), size=4)
    return net


def collecting() -> Net:
    net = ready()
    aggregate(net, hosts=("H0",))
    return net


def going_up() -> Net:
    net = ready()
    aggregate(net, hosts=("H0", "H1"))
    return net


def failed() -> Net:
    net = ready()
    aggregate(net, hosts=("H0",))
    net.nodes[LEAF_A].lost(net.ends["H1", 100][1], 0)
    return net


def leaving() -> Net:
    net = ready()
    net.keep = lambda source, target, data: target != SPINE
    net.leave(("H0", "H1"))
    return net


def done() -> Net:
    net = ready()
    aggregate(net)
    return net


def under_stream() -> Net:
    net = streaming()
    net.send("H0", chunk("H0", 0))
    net.run()
    return net


STATES = [Net, joining, ready, collecting, going_up, done, streaming, under_stream, failed, leaving]


def seen(node: SharpNode) -> Any:
    """All that a message could have changed."""
    return node.pool.used(), {
        key: (
            group.state, group.operations.base, group.ranks, group.left, group.granted, group.lock.state,
            group.lock.asked, {key: (op.state, dict(op.operands)) for key, op in group.operations.ops.items()},
        ) for key, group in node.groups.items()
    }, node.deadline()  # fmt: skip


def bounded(node: SharpNode) -> None:
    assert min(node.pool.used()) >= 0
    assert len(node.groups) <= 2 * 51
    for group in node.groups.values():
        operations, window = group.operations, max(group.window, 1)
        most = 2 * node.config.sat_window * window if isinstance(operations, SatOperations) else window
        assert len(operations.ops) <= most
        assert len(operations.cached) <= window
        assert len(group.lock.next) <= len(group.members)


@given(
    state=st.sampled_from(STATES), name=st.sampled_from([LEAF_A, SPINE]),
    messages=st.lists(
        st.tuples(st.sampled_from([1, 2, 3, 100, 163, 631, 632, None]), bytes_from_outside()), max_size=25
    ),
    later=st.sampled_from([0, 20, 200, 2000]),
)  # fmt: skip
def test_a_node(state: Any, name: str, messages: list[tuple[int | None, bytes]], later: int) -> None:
    net = state()
    node = net.nodes[name]
    net.collect()
    for conn, data in messages:
        before = repr(seen(node))
        node.message(conn, data, net.now)
        if isinstance(parse(data), Status) or conn is None:
            out = node.poll(net.now)
            assert len(out) <= 1
            assert repr(seen(node)) == before
        node.poll(net.now)
        bounded(node)
    node.poll(net.now + later * SECOND // 1000)
    node.cleanup()
    assert node.pool.used() == (0, 0, 0, 0)
    assert not node.groups


def _host(busy: int) -> tuple[Wire, SharpHost]:
    wire = Wire(options=SharpOptions.of({"SHARP_COLL_ENABLE_SAT": "1", "SHARP_COLL_SAT_THRESHOLD": "1000"}))
    wire.manager.start()
    grant = wire.manager.begin_job([HOSTS], JOB)
    assert isinstance(grant, JobGrant)
    wire.join(grant)
    host = wire.hosts[HOSTS[0]]
    for op_id, count in enumerate((40, 5000, 1)[:busy]):
        host.submit(Aggregate(
            op_id=op_id, group_id=GROUP, coll=Coll.ALLREDUCE, op=Op.SUM, dtype=Dtype.UNSIGNED, data=bytes(4 * count),
            count=count,
        ), 0)  # fmt: skip
    wire.dead |= {A, S}
    host.poll(0)
    return wire, host


@given(
    busy=st.integers(0, 3), leave=st.booleans(), tree=st.sampled_from([0, 2]),
    messages=st.lists(st.tuples(st.sampled_from([0x11, 0x12, 5, None]), bytes_from_outside()), max_size=25),
)  # fmt: skip
def test_a_host(busy: int, leave: bool, tree: int, messages: list[tuple[int | None, bytes]]) -> None:
    _, host = _host(busy)
    if leave:
        host.submit(LeaveGroup(GROUP), 0)
    told = []
    for conn, data in messages:
        data = (
            data[:2] + tree.to_bytes(2, "big") + data[4:]
            if len(data) > 4 and data[2:4] in (b"\0\0", b"\0\x3f")
            else data
        )
        host.message(conn, data, 0)
        assert len(host.poll(0)) <= 3 * 64
        told += host.events()
    for at in range(40):
        host.poll(at * SECOND)
        told += host.events()
    ended = [event.op_id for event in told if hasattr(event, "op_id")]
    assert sorted(ended) == list(range(busy)), "each ends once, whatever comes"
