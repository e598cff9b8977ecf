# SPDX-License-Identifier: GPL-2.0-only
"""sharp.md §7, message by message and byte for byte: three aggregation nodes, four hosts."""

import struct

import pytest

from tests.support.sharp.nodes import GROUP, HOSTS, JOB, LEAF_A, LEAF_B, LEAF_OF, LLT, SAT, SPINE, Net, read
from uetproto.engine.sharp.messages import JoinResponse, LockBody, SharpFault
from uetproto.wire.headers.sharp import SharpOpcode, Status, Syndrome, Trap

REQ = "10100000 00000005 00000007 00000000 00000000 00080020 02040c01"
RESULT = "10900000 00000005 00000007 00000000 00000000 00080020 02040c01"
FACTORS = {"H0": 1.0, "H1": 10.0, "H2": 0.5, "H3": 100.0}
VECTORS = {
    "H0": "3f800000 40000000 40400000 40800000 40a00000 40c00000 40e00000 41000000",
    "H1": "41200000 41a00000 41f00000 42200000 42480000 42700000 428c0000 42a00000",
    "H2": "3f000000 3f800000 3fc00000 40000000 40200000 40400000 40600000 40800000",
    "H3": "42c80000 43480000 43960000 43c80000 43fa0000 44160000 442f0000 44480000",
    "A": "41300000 41b00000 42040000 42300000 425c0000 42840000 429a0000 42b00000",
    "B": "42c90000 43490000 4396c000 43c90000 43fb4000 4416c000 442fe000 44490000",
    "S": "42df0000 435f0000 43a74000 43df0000 440b6000 44274000 44432000 445f0000",
}
IDX = {"H0": "00", "H1": "01", "H2": "00", "H3": "01", "A": "00", "B": "01"}


def hexed(*parts: str) -> bytes:
    return bytes.fromhex("".join(parts))


def request(host: str, flags: str = "1880") -> bytes:
    return hexed(REQ, IDX[host], "00", flags, VECTORS[host])


def result(child: str, flags: str = "1888") -> bytes:
    return hexed(RESULT, IDX[child], "00", flags, VECTORS["S"])


@pytest.fixture
def net() -> Net:
    net = Net()
    net.join()
    return net


def test_the_operands_are_those_of_the_page() -> None:
    for host, factor in FACTORS.items():
        assert hexed(VECTORS[host]) == struct.pack(">8f", *(factor * k for k in range(1, 9)))


def test_group_set_up() -> None:
    net = Net()
    net.join()
    first = hexed(
        "10010000 00000005 00000007 00000000 00000000 00000012 0c0c0cff ff000000",
        "00010004 00020080 00000003 00000011 0000 0000",
    )
    assert net.log[0] == ("H0", LEAF_A, first)
    requests = [(s, t) for s, t, data in net.log if data[1] == SharpOpcode.GROUP_JOIN_REQ]
    assert sorted(requests) == sorted([(h, LEAF_OF[h]) for h in HOSTS] + [(LEAF_OF[h], SPINE) for h in HOSTS])
    answers = {(s, t): read(data) for s, t, data in net.log if data[1] == SharpOpcode.GROUP_JOIN_RESP}
    assert len(answers) == 6
    mgid = 0xFF12A01BFE80 << 80 | 7
    for child, idx in ((LEAF_A, 0), (LEAF_B, 1)):
        body = JoinResponse.unpack(answers[SPINE, child].body)
        assert body == JoinResponse(4, 4, 2, 128, 3, idx, 2, 1, mgid, 0xC005, net.config.qkey)
    for host in HOSTS:
        answer = answers[LEAF_OF[host], host]
        assert answer.status == Status.OK
        body = JoinResponse.unpack(answer.body)
        assert body == JoinResponse(2, 4, 2, 128, 3, int(IDX[host]), 1, 0, mgid, 0xC005, net.config.qkey)


def test_the_mgid_over_ipv4() -> None:
    from uetproto.engine.sharp.config import SharpConfig

    net = Net(SharpConfig(heartbeat=0))
    net.join(group=0x12345678)
    body = JoinResponse.unpack(net.received("H0")[0].body)
    assert body.mgid == 0xFFFF << 32 | 239 << 24 | 0x345678


def test_twelve_messages(net: Net) -> None:
    net.clear()
    for host in HOSTS:
        net.send(host, request(host))
    net.run()
    assert len(net.log) == 12
    assert set(net.log) == {
        *((host, LEAF_OF[host], request(host)) for host in HOSTS),
        (LEAF_A, SPINE, hexed(REQ, "00001880", VECTORS["A"])),
        (LEAF_B, SPINE, hexed(REQ, "01001880", VECTORS["B"])),
        *((SPINE, leaf, result(leaf)) for leaf in (LEAF_A, LEAF_B)),
        *((LEAF_OF[host], host, result(host)) for host in HOSTS),
    }
    assert net.traps == []


def test_by_multicast(net: Net) -> None:
    net.clear()
    for host in HOSTS:
        net.send(host, request(host, "1c80"))
    net.run()
    assert net.multicasts == [(0xFF12A01BFE80 << 80 | 7, hexed(RESULT, "ff001c88", VECTORS["S"]))]
    bare = "10900000 00000005 00000007 00000000 00000000 00080000 02040c01"
    assert set(net.log[-2:]) == {(SPINE, leaf, hexed(bare, IDX[leaf], "001898")) for leaf in (LEAF_A, LEAF_B)}
    assert all(net.received(host) == [] for host in HOSTS)


def test_a_lost_multicast_comes_over_the_connection(net: Net) -> None:
    for host in HOSTS:
        net.send(host, request(host, "1c80"))
    net.run()
    net.clear()
    net.send("H1", request("H1", "1ca0"))
    net.run()
    assert net.inbox["H1"] == [result("H1", "18a8")]
    assert [net.inbox[host] for host in ("H0", "H2", "H3")] == [[], [], []]
    net.send("H0", request("H0", "1ca0"))
    net.run()
    assert net.inbox["H0"] == [result("H0", "18a8")]


def test_one_that_wants_no_multicast(net: Net) -> None:
    net.clear()
    for host in HOSTS:
        net.send(host, request(host, "1880" if host == "H3" else "1c80"))
    net.run()
    assert net.multicasts == []
    assert [net.inbox[host] for host in HOSTS] == [[result(host)] for host in HOSTS]


def test_h3_silent(net: Net) -> None:
    net.clear()
    for host in HOSTS[2:3]:
        net.send(host, request(host))
    net.wait(1)
    for host in HOSTS[:2]:
        net.send(host, request(host))
    net.wait(1000)
    error = hexed(
        "107f0000 00000005 00000007 00000000 00000000 00000028 0c0c0cff ff110000",
        "11011000 0000000a 40000000", "00" * 28,
    )  # fmt: skip
    told = [(s, t) for s, t, data in net.log if data == error]
    assert sorted(told) == sorted([
        (LEAF_B, "H2"), (LEAF_B, "H3"), (LEAF_B, SPINE), (SPINE, LEAF_A), (LEAF_A, "H0"), (LEAF_A, "H1"),
    ])  # fmt: skip
    assert all(net.inbox[host] == [error] for host in HOSTS)
    [(name, trap)] = net.traps
    assert (name, trap.trap, trap.syndrome) == (LEAF_B, Trap.SHARP_ERROR, Syndrome.OST_NO_PROGRESS_TIMEOUT)
    assert (trap.job_id, trap.tree_id, trap.group_id, trap.seq) == (JOB, LLT, GROUP, 0)
    net.send("H3", request("H3"))  # too late: the stored error
    net.run()
    assert net.inbox["H3"] == [error, error]
    net.wait(5000)
    assert [data for _, _, data in net.log].count(error) == 7


def test_h1_sends_another_dtype(net: Net) -> None:
    net.clear()
    net.send("H0", request("H0"))
    bad = bytearray(request("H1"))
    bad[25], bad[21] = 5, 4
    net.send("H1", bytes(bad))
    for host in HOSTS[2:]:
        net.send(host, request(host))
    net.wait(10)
    for host in HOSTS:
        [error] = net.received(host)
        assert (error.opcode, error.status, error.seq) == (SharpOpcode.ERROR, Status.MISMATCH, 0)
        assert SharpFault.unpack(error.body) == SharpFault(Status.MISMATCH, 1, SharpOpcode.AGG_REQ, 9, frozenset({1}))
    assert [trap.trap for _, trap in net.traps] == [Trap.INVALID_REQUEST]


def test_h0_repeats_after_its_result(net: Net) -> None:
    for host in HOSTS:
        net.send(host, request(host))
    net.run()
    net.clear()
    net.send("H0", request("H0"))
    net.run()
    assert net.log == [("H0", LEAF_A, request("H0")), (LEAF_A, "H0", result("H0", "18a8"))]


def test_streaming() -> None:
    net = Net()
    net.join()
    net.join(tree=SAT)
    net.clear()
    net.lock()
    sent = [data for source, _, data in net.log if source == "H0"]
    assert [data[32:] for data in sent] == [hexed("003fffff 00000000 00000064 ffff0000")]
    for host in HOSTS:
        [answer] = net.received(host)
        assert (answer.opcode, answer.status) == (SharpOpcode.LOCK_RESP, Status.OK)
        assert LockBody.unpack(answer.body)._replace(token=0) == LockBody(SAT, 0xFFFF, 0, 100)
    net.clear()
    for host in HOSTS:
        data = bytearray(request(host, "d880"))
        data[2:4] = SAT.to_bytes(2, "big")
        net.send(host, bytes(data))
    net.run()
    assert len(net.log) == 12
    for host in HOSTS:
        [got] = net.received(host)
        assert (got.flags, got.body, got.tree_id) == (0xD888, hexed(VECTORS["S"]), SAT)
