# SPDX-License-Identifier: GPL-2.0-only
"""Bounds of the numbers, tested at their ends (roce.md §2.1, §6, §7, §15 item 10)."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.each import each
from tests.support.roce.world import World
from uetproto.engine.contract import NEVER, Buffer
from uetproto.engine.roce.config import RoceConfig
from uetproto.engine.roce.contract import Opcode, Sge, Status
from uetproto.engine.roce.psn import HALF, MASK, add, count_of_packets, diff
from uetproto.errors import LocalError
from uetproto.knobs import knobs_of
from uetproto.wire.headers.roce import Operation, count_of

BASE = 0x2000_0000
LARGE = 2**31


class LazyMemory:
    """As many bytes as one likes, of which only the last written place is kept."""

    def __init__(self, length: int) -> None:
        self.length = length
        self.written = 0
        self.last = 0
        self.zeros = bytes(4096)

    def read(self, offset: int, length: int) -> Buffer:
        assert 0 <= offset <= offset + length <= self.length
        return memoryview(self.zeros)[:length]

    def write(self, offset: int, data: Buffer) -> None:
        assert 0 <= offset <= offset + len(data) <= self.length
        self.written += len(data)
        self.last = offset

    def flush(self) -> None:
        """Nothing to do."""


def lazy(psn: int = 5, **changes: Any) -> World:
    config = RoceConfig(**({"path_mtu": 256, "credits": False} | changes))
    return World(a=config, memories=(LazyMemory(LARGE), LazyMemory(LARGE)), psn=psn)


@pytest.mark.parametrize("psn", [0, 5, MASK])
def test_read_of_the_longest_message_at_the_smallest_mtu(psn: int) -> None:
    """§6, §7: 2^31 bytes at 256 are 2^23 PSNs, the most that may be unacknowledged: it goes alone.

    The response is made packet by packet; it is followed at its start, in its middle, where it is resumed after a
    loss, and at its end. Nothing else is sent meanwhile.
    """
    w = lazy(psn, max_unacked_psns=HALF)
    w.send(Opcode.RDMA_READ, LARGE)
    w.send(Opcode.RDMA_WRITE, 4)
    (request,) = w.sent()
    assert (request.operation, request.psn, request.values["dmalen"]) == (Operation.RDMA_READ_REQUEST, psn, LARGE)
    assert w.a.qp.requester.una + HALF == w.a.qp.requester.next
    w.b.hca.receive(w.wire.pop(), 0)
    w.log.clear()
    for _ in range(100):
        for packet in w.b.hca.poll(0, 10):
            w.a.hca.receive(packet, 0)
    assert w.a.memory.last == 999 * 256

    # The responder is moved to near the end: everything between is lost, the requester asks from its middle, and as
    # all but the last 1,000 packets have come by then, the end is reached without making 8 million packets here.
    requester, responder = w.a.qp.requester, w.b.qp.responder
    assert responder.epsn == add(psn, HALF)
    requester.una += HALF - 2000
    responder.answers.clear()
    w.now = requester.deadline()
    (again,) = w.a.hca.poll(w.now, 1)
    w.b.hca.receive(again, w.now)
    answers = w.b.hca.poll(w.now, 2000)
    assert len(answers) == 1000
    for packet in answers:
        w.a.hca.receive(packet, w.now)
    w.take()
    assert w.a.memory.last == LARGE - 256
    assert w.statuses() == [Status.SUCCESS]
    assert [(p.operation, p.psn) for p in w.sent()] == [(Operation.RDMA_WRITE_ONLY, add(psn, HALF))]
    w.deliver_all()
    assert w.statuses() == [Status.SUCCESS] * 2


def test_a_read_longer_than_the_window_goes_alone() -> None:
    """§7: `max_unacked_psns` holds for everything else."""
    w = lazy(max_unacked_psns=8)
    w.send(Opcode.RDMA_WRITE, 256 * 3)
    w.send(Opcode.RDMA_READ, 256 * 20)
    w.send(Opcode.RDMA_WRITE, 256 * 20)
    assert [p.psn for p in w.sent()] == [5, 6, 7]
    w.wire[:] = w.wire[:3]
    while w.wire:
        requester = w.a.qp.requester
        assert requester.next - requester.una <= 20
        w.deliver()
    assert w.statuses() == [Status.SUCCESS] * 3


@pytest.mark.parametrize("window", [1, 2, 7])
def test_window(window: int) -> None:
    """§7: at most so many PSNs are unacknowledged."""
    w = lazy(max_unacked_psns=window)
    for _ in range(3):
        w.send(Opcode.RDMA_WRITE, 256 * 5)
    while w.wire:
        assert w.a.qp.requester.next - w.a.qp.requester.una <= window
        w.deliver()
    assert (w.statuses(), w.now) == ([Status.SUCCESS] * 3, 0)


@pytest.mark.parametrize("psn", [MASK - 20, MASK - 3, MASK, 0])
def test_psn_and_msn_wrap(psn: int) -> None:
    """§15 item 10: losses included; the MSN is that of a queue pair that has carried many messages."""
    w = World(a=RoceConfig(path_mtu=256), psn=psn)
    w.b.qp.responder.msn = MASK - 2
    requester = w.a.qp.requester
    requester.head = requester.at = MASK - 1
    requester.posted = MASK - 2
    requester.lsn = MASK - 2
    w.b.memory[:3000] = bytes(i % 251 for i in range(3000))
    for number in range(6):
        w.recv(1000, at=8000 + 1000 * number)
        w.send(Opcode.SEND, 600, wr_id=number)
        w.send(Opcode.RDMA_READ, 700, at=20000, to=number * 100, wr_id=100 + number)
        w.send(Opcode.ATOMIC_FETCH_AND_ADD, 8, at=30000, to=40000, compare_add=1, wr_id=200 + number)
    count = 0

    def fate(_: object) -> bool:
        nonlocal count
        count += 1
        return count % 7 != 3

    w.run(fate)
    assert [c.wr_id for c in w.done()] == [base + number for number in range(6) for base in (0, 100, 200)]
    assert set(w.statuses()) == {Status.SUCCESS}
    assert int.from_bytes(w.b.memory[40000:40008], "little") == 6
    assert w.b.qp.responder.msn == add(MASK - 2, 18)
    assert w.a.memory[20000:20700] == w.b.memory[500:1200]


ANSWERED = [Opcode.RDMA_READ, Opcode.ATOMIC_FETCH_AND_ADD]


@pytest.mark.parametrize("opcode", [Opcode.SEND, Opcode.RDMA_WRITE, *ANSWERED])
def test_each_kind_of_message_wraps_the_numbers(opcode: Opcode) -> None:
    """§7, §15 item 10: PSN and MSN go from 2^24 − 1 to 0 with it, and what follows is still found again."""
    w = World(a=RoceConfig(path_mtu=256, credits=False), psn=MASK)
    w.b.qp.responder.msn = MASK
    w.recv(8)
    w.send(opcode, 8, at=100)
    w.deliver_all()
    assert (w.sent(w.b)[-1].psn, w.sent(w.b)[-1].values["msn"], w.b.qp.responder.epsn) == (MASK, 0, 0)
    for again in ANSWERED:
        w.send(again, 8, at=200, to=4000, compare_add=1)
        request = w.wire[0]
        for _ in range(2):  # the second one is a duplicate
            w.wire[:] = [request]
            w.deliver()
        w.deliver_all()
    assert [parsed.psn for parsed in w.sent(w.b)] == [MASK, 0, 0, 1, 1]
    assert w.statuses() == [Status.SUCCESS] * 3
    assert int.from_bytes(w.b.memory[4000:4008], "little") == 1
    assert w.b.qp.responder.msn == 2


def test_the_duplicate_half() -> None:
    """§7: ePSN − 2^23 is a duplicate, ePSN + 2^23 − 1 ahead."""
    assert (diff(5 - HALF, 5), diff(5 + HALF - 1, 5), diff(5 + HALF, 5)) == (-HALF, HALF - 1, -HALF)


@given(a=st.integers(0, MASK), count=st.integers(-HALF, HALF - 1))
def test_differences(a: int, count: int) -> None:
    assert diff(add(a, count), a) == count


@pytest.mark.parametrize(("length", "mtu", "count"), [
    (0, 256, 1), (1, 256, 1), (256, 256, 1), (257, 256, 2), (2**31, 256, 2**23), (2**31, 4096, 2**19),
])  # fmt: skip
def test_packets_of_a_message(length: int, mtu: int, count: int) -> None:
    assert count_of_packets(length, mtu) == count


@pytest.mark.parametrize("left", [0, 1, 2, 3, 5, 6, 7, 8, 11, 12, 48, 49])
def test_credit_codes(left: int) -> None:
    """§2.1: n(c) is never more than what is there, and the next code would be."""
    w = World(a=RoceConfig())
    for _ in range(left):
        w.recv(1)
    code = w.b.qp.responder._credit_code()
    assert count_of(code) <= left < count_of(code + 1)


def test_the_largest_credit_code_is_not_the_one_without_limit() -> None:
    w = World(a=RoceConfig())
    w.b.qp.receives.items.extend([None] * 60000)
    assert w.b.qp.responder._credit_code() == 0x1E


# Parameters ----------------------------------------------------------------------------------------------------------


@each("name", list(RoceConfig.__dataclass_fields__))
def test_limits(name: str) -> None:
    """Both ends are legal, what is beyond is not, and neither is another type."""
    limit = knobs_of(RoceConfig)[name].legal
    for value in (limit[0], limit[-1]):
        assert getattr(RoceConfig(**{name: value}), name) == value
    wrong = [None, 1.5, "no such choice"]
    wrong += [limit[0] - 1, limit[-1] + 1, True] if isinstance(limit, range) else [123456]
    for value in wrong:
        with pytest.raises(LocalError, match=f"{name}: .* is not legal; legal: "):
            knobs_of(RoceConfig)[name].check(name, value)


def test_defaults() -> None:
    """§14, word for word."""
    config = RoceConfig()
    assert (config.path_mtu, config.timeout, config.retry_cnt, config.rnr_retry, config.min_rnr_timer) == (
        4096, 8, 7, 7, 12,
    )  # fmt: skip
    assert (config.max_rd_atomic, config.max_dest_rd_atomic, config.max_unacked_psns) == (16, 16, 2**15)
    assert (config.ack_req_interval, config.ack_coalesce, config.ack_delay, config.credits) == (64, 1, 0, True)
    assert (config.udp_port, config.m, config.hop_limit, config.dscp, config.ecn) == (4791, 1, 64, 26, "ect0")
    assert (config.cnp, config.rd, config.icrc) == (False, "raw", True)


def test_endless_timer() -> None:
    w = lazy(timeout=0)
    w.send(Opcode.RDMA_WRITE, sg_list=(Sge(BASE, 4, w.a.mr.lkey),))
    assert w.a.qp.requester.deadline() == NEVER
