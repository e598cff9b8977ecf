# SPDX-License-Identifier: GPL-2.0-only
"""A group that is left and joined again: nobody waits in vain, and nothing of its former life comes back (sharp.md
§3.1, §3.3, §3.4)."""

import pytest

from tests.support.sharp.fabric import HOSTS as ADDRESSES
from tests.support.sharp.host_endpoint import Bench
from tests.support.sharp.host_real_nodes import SAT as STREAMS
from tests.support.sharp.host_real_nodes import fabric, run
from tests.support.sharp.node_operations import aggregate, only, ready, stream, streaming
from tests.support.sharp.nodes import GROUP, HOSTS, JOB, LLT, SAT, Net
from uetproto.engine.contract import MILLISECOND, SECOND
from uetproto.engine.sharp.config import SharpConfig
from uetproto.engine.sharp.host.work import GroupFailed, GroupJoined, GroupLeft, LeaveGroup
from uetproto.engine.sharp.messages import JoinRequest, JoinResponse, LockBody, SharpMessage
from uetproto.wire.headers.sharp import Coll, Op, SharpOpcode, Status

# The node: UNLOCK_REQ is answered, whatever ends the lock -----------------------------------------------------------


def unlock(net: Net, host: str, seq: int = 99) -> None:
    token = net.nodes["A"].groups[LLT, GROUP].lock.body.token
    body = LockBody(SAT, 0xFFFF, token, 100).pack()
    net.send(host, SharpMessage(SharpOpcode.UNLOCK_REQ, LLT, JOB, GROUP, seq, body=body))
    net.run()


def unlocked(net: Net, host: str) -> list[tuple[int, int]]:
    """Status and control counter of each UNLOCK_RESP."""
    return [(m.status, m.seq) for m in net.received(host) if m.opcode == SharpOpcode.UNLOCK_RESP]


@pytest.mark.parametrize("leaver", ["H1", "H0"])
def test_who_has_unlocked_is_answered_when_a_child_leaves(leaver: str) -> None:
    net = streaming()
    unlock(net, "H0")
    assert net.received("H0") == []
    net.leave([leaver])
    counter = 99 if leaver == "H1" else net.control["H0"] - 1  # of its last request
    assert unlocked(net, "H0") == [(Status.OK, counter)]
    assert unlocked(net, "H1") == []


@pytest.mark.parametrize("dies", [True, False])
def test_who_has_unlocked_is_answered_when_the_group_ends(dies: bool) -> None:
    net = streaming()
    unlock(net, "H0")
    if dies:
        net.nodes["A"].lost(2, net.now)  # that of H1
    else:
        net.nodes["A"].cleanup(JOB)
    net.run()
    assert unlocked(net, "H0") == [(Status.OK, 99)]


def test_who_has_unlocked_is_answered_when_the_batch_is_used_up() -> None:
    net = streaming(batch=1)
    stream(net, {"vec_off": 0, "last": True}, hosts=HOSTS[:3])
    unlock(net, "H0")
    stream(net, {"vec_off": 0, "last": True}, hosts=HOSTS[3:])
    assert unlocked(net, "H0") == [(Status.OK, 99)]
    assert [node.pool.used().locks for node in net.nodes.values()] == [0, 0, 0]


# The node: a child that begins anew -----------------------------------------------------------------------------------


def join(net: Net, host: str, seq: int) -> SharpMessage:
    body = JoinRequest(4, 2, 128, 3, 0x11, (HOSTS.index(host),)).pack()
    net.send(host, SharpMessage(SharpOpcode.GROUP_JOIN_REQ, LLT, JOB, GROUP, seq, body=body))
    net.run()
    return only(net, host)


def test_a_repeat_gets_the_answer_again_and_who_begins_anew_is_refused() -> None:
    net = ready()
    aggregate(net)
    net.clear()
    assert join(net, "H0", 0).status == Status.OK  # the same request, once more
    assert join(net, "H0", 1).status == Status.MISMATCH
    aggregate(net, 1)
    assert only(net, "H0").opcode == SharpOpcode.AGG_RESULT  # the group goes on


def test_who_has_left_is_no_member_until_all_have() -> None:
    net = ready()
    net.leave(["H0"])
    assert join(net, "H0", 0).status == Status.MISMATCH
    assert join(net, "H0", net.control["H0"]).status == Status.MISMATCH
    net.leave(HOSTS[1:])
    net.clear()
    net.join()
    assert [JoinResponse.unpack(only(net, host).body).granted_osts for host in HOSTS] == [2] * 4


def test_a_stranger_without_ranks_is_refused() -> None:
    net = Net()
    net.join(HOSTS[:1] + HOSTS[2:])
    body = JoinRequest(3, 2, 128, 3, 0x11, ()).pack()
    net.send("H1", SharpMessage(SharpOpcode.GROUP_JOIN_REQ, LLT, JOB, GROUP, 0, body=body))
    net.run()
    assert only(net, "H1").status == Status.MISMATCH


# The host: it never goes without LEAVE_REQ ----------------------------------------------------------------------------

WAIT = 2 * SharpConfig().t_join


def leaving() -> tuple[Bench, SharpMessage]:
    """It holds the lock, leaves, and has sent this UNLOCK_REQ."""
    bench = Bench(sat=True, LOCK_ON_COMM_INIT="1")
    [lock] = bench.sent()
    bench.answer(lock, SharpOpcode.LOCK_RESP, body=LockBody(63, token=5).pack())
    bench.host.submit(LeaveGroup(7), 0)
    [unlock] = bench.sent()
    return bench, unlock


def test_without_an_answer_to_unlock_it_leaves_all_the_same() -> None:
    bench, unlock = leaving()
    assert bench.host.deadline() == WAIT
    leaves = bench.later(WAIT)
    assert [(m.opcode, m.tree_id) for m in leaves] == [(SharpOpcode.GROUP_LEAVE_REQ, tree) for tree in (0, 63)]
    assert bench.host.events() == []
    bench.answer(unlock, SharpOpcode.UNLOCK_RESP, body=unlock.body)
    assert bench.sent() == []  # it has said so already
    for leave in leaves:
        bench.answer(leave, SharpOpcode.GROUP_LEAVE_RESP)
    assert bench.host.events() == [GroupLeft(7)]


def test_without_an_answer_to_leave_it_is_gone() -> None:
    bench, _ = leaving()
    bench.later(WAIT)
    assert bench.later(WAIT - 1) == []
    assert bench.host.events() == []
    bench.later(1)
    assert bench.host.events() == [GroupLeft(7)]


# Both -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("locked", [False, True])
def test_nothing_of_a_former_life_comes_back(locked: bool) -> None:
    """One member does not leave, so that the others do by time. When one of these comes back it is refused; once all
    have left, results are those of what is handed in then."""
    settings = {**STREAMS, "SHARP_COLL_LOCK_ON_COMM_INIT": "1"} if locked else {}
    wire = fabric(settings, t_join=100 * MILLISECOND)
    joins = [host.groups[7].work for host in wire.hosts.values()]
    assert run(wire, Coll.ALLREDUCE, 100, op=Op.SUM) == [bytes([10]) * 100] * 4

    def leave(addresses: tuple[int, ...]) -> None:
        for address in addresses:
            wire.hosts[address].submit(LeaveGroup(7), wire.now)
        wire.run(wire.now + SECOND)

    def come_back(addresses: tuple[int, ...]) -> None:
        for address in addresses:
            wire.happened[address].clear()
            wire.hosts[address].submit(joins[ADDRESSES.index(address)], wire.now)
        wire.run(wire.now + SECOND)

    leave(ADDRESSES[:3])
    assert [wire.happened[address][-1] for address in ADDRESSES[:3]] == [GroupLeft(7)] * 3
    come_back(ADDRESSES[:1])
    [refused] = wire.happened[ADDRESSES[0]]
    assert isinstance(refused, GroupFailed)
    assert refused.status == Status.MISMATCH
    leave((ADDRESSES[0], ADDRESSES[3]))
    come_back(ADDRESSES)
    assert [type(told[0]) for told in wire.happened.values()] == [GroupJoined] * 4
    assert run(wire, Coll.ALLREDUCE, 100, op=Op.MAX, op_id=2) == [bytes([4]) * 100] * 4


# Multicast ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("path_mtu", "user_data", "offered"), [(256, 224, True), (256, 228, False), (512, 228, True)])
def test_a_group_has_a_multicast_address_where_its_results_are_one_packet(
    path_mtu: int, user_data: int, offered: bool
) -> None:
    wire = fabric({"SHARP_COLL_JOB_QUOTA_PAYLOAD_PER_OST": str(user_data)}, multicast=True, path_mtu=path_mtu)
    joined = [event for told in wire.happened.values() for event in told if isinstance(event, GroupJoined)]
    assert [(event.user_data, bool(event.mgid)) for event in joined] == [(user_data, offered)] * 4
