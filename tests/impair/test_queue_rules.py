# SPDX-License-Identifier: GPL-2.0-only
"""Queues by the rules of UET (cms.md §7): marks, weights, limits, and memory that the queues of a switch share."""

from random import Random

import pytest

from uetproto.emulator.network.clock import Clock
from uetproto.framing.dscp import Dscp
from uetproto.impair.queue import QueueRules, SharedBuffer, UetQueue
from uetproto.impair.red import Marker, Red
from uetproto.wire.headers.ethernet import Ecn

DSCP = Dscp()
SIZE = 1000
CAPACITY = 20 * SIZE


class Wire:
    """A link on which a byte lasts a picosecond."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.busy_until = 0
        self.sent: list[bytes] = []

    def send(self, frame: bytes) -> int:
        start = max(self.clock.now, self.busy_until)
        self.busy_until = start + len(frame)
        self.sent.append(frame)
        return start


class Bench:
    def __init__(self, buffer: SharedBuffer | None = None, red: Red | None = None, **rules: float) -> None:
        self.clock = Clock()
        self.wire = Wire(self.clock)
        given = {"control_capacity": CAPACITY, "again_capacity": CAPACITY * 3 // 2} | rules
        self.queue = UetQueue(
            self.clock, self.wire, QueueRules(**given), capacity=CAPACITY, dscp=DSCP,  # type: ignore[arg-type]
            marker=None if red is None else Marker(red, Random(1)), coin=Random(2), buffer=buffer,
        )  # fmt: skip

    def put(self, dscp: int, number: int = 0, size: int = SIZE) -> bool:
        return self.queue.put(frame(dscp, number, size))

    def drain(self) -> list[int]:
        """The DSCPs of all frames, in the order in which they leave."""
        self.clock.run()
        return [one[15] >> 2 for one in self.wire.sent]


def frame(dscp: int, number: int = 0, size: int = SIZE) -> bytes:
    head = bytes(12) + b"\x08\x00\x45" + bytes((dscp << 2 | Ecn.ECT0,)) + bytes(18)
    return head + number.to_bytes(4, "big") + bytes(size - len(head) - 4)


@pytest.mark.parametrize("weight", [0.25, 0.5, 0.75])
def test_trimmed_packets_and_data_share_the_rate_by_weight(weight: float) -> None:
    bench = Bench(medium_weight=weight)
    assert all(bench.put(dscp) for _ in range(20) for dscp in (DSCP.data, DSCP.trimmed))
    order = bench.drain()[1:25]  # the first frame found an idle link; both classes wait during these
    assert order.count(DSCP.trimmed) == pytest.approx(weight * 24, abs=1)


@pytest.mark.parametrize("one_queue", [False, True])
def test_trimmed_packets_wait_behind_control_packets_or_with_them(one_queue: bool) -> None:
    """The simulator has one queue of headers, first in, first out (cms.md §7), with one limit."""
    bench = Bench(one_header_queue=one_queue)
    headers = [DSCP.trimmed, DSCP.control, DSCP.trimmed_last_hop, DSCP.control]
    assert all(map(bench.put, (DSCP.data, DSCP.data, *headers)))
    order = headers if one_queue else sorted(headers, key=lambda one: one != DSCP.control)
    assert bench.drain() == [DSCP.data, *order, DSCP.data]
    assert all(bench.put(DSCP.control) for _ in range(16))
    assert [bench.put(DSCP.trimmed) for _ in range(8)].count(True) == (4 if one_queue else 8)  # of 20 frames


def test_weights_count_bytes() -> None:
    """Trimmed packets are short: a half of the rate is four of them for each packet of data."""
    bench = Bench(medium_weight=0.5)
    for _ in range(20):
        assert bench.put(DSCP.data)
        assert all(bench.put(DSCP.trimmed, size=SIZE // 4) for _ in range(4))
    order = bench.drain()[1:50]
    assert order.count(DSCP.trimmed) == pytest.approx(4 * order.count(DSCP.data), abs=4)


@pytest.mark.parametrize(("weight", "first"), [(1.0, DSCP.trimmed), (0.0, DSCP.data)])
def test_with_the_weights_1_and_0_one_class_goes_first(weight: float, first: int) -> None:
    bench = Bench(medium_weight=weight)
    assert all(bench.put(dscp) for _ in range(10) for dscp in (DSCP.data, DSCP.trimmed))
    order = bench.drain()[1:]
    assert set(order[:9]) == {first}


def test_control_goes_before_both() -> None:
    bench = Bench(medium_weight=0.75)
    for dscp in (DSCP.data, DSCP.data, DSCP.trimmed, DSCP.control):
        bench.put(dscp)
    assert bench.drain()[1] == DSCP.control


def test_retransmitted_data_finds_half_as_much_room_again() -> None:
    bench = Bench()
    assert [bench.put(DSCP.data) for _ in range(22)].count(True) == 21  # one is on the link
    assert [bench.put(DSCP.data_rtx) for _ in range(11)].count(True) == 10
    assert not bench.put(DSCP.data)


def test_a_deterministic_mark_depends_on_what_is_left_behind() -> None:
    bench = Bench(red=Red(kmin=5 * SIZE, kmax=5 * SIZE, pmax=1.0))
    for number in range(12):
        bench.put(DSCP.data, number)
    bench.drain()
    marked = [one[15] & 3 == Ecn.CE for one in bench.wire.sent]
    left = [0, *range(10, -1, -1)]  # the first never waited
    assert marked == [count > 5 for count in left]


def test_queues_share_the_memory_of_a_switch() -> None:
    """What one queue holds, the other cannot; the memory is free again when all has left."""
    buffer = SharedBuffer(10 * SIZE)
    one, other = Bench(buffer), Bench(buffer)
    assert [one.put(DSCP.data) for _ in range(9)].count(True) == 9
    assert [other.put(DSCP.data) for _ in range(9)].count(True) == 3  # one on the link, two in the memory
    assert buffer.used == buffer.peak == 10 * SIZE
    assert not other.put(DSCP.control)
    one.drain()
    assert buffer.used == 2 * SIZE
    assert other.put(DSCP.control)
    other.drain()
    assert buffer.used == 0


def test_a_queue_has_at_most_its_share_of_what_is_free() -> None:
    """With the share 1 a queue alone gets a half: then as much is free as it holds."""
    bench = Bench(SharedBuffer(10 * SIZE, 1.0))
    assert [bench.put(DSCP.data) for _ in range(10)].count(True) == 1 + 5


def test_an_evicted_packet_frees_its_memory() -> None:
    buffer = SharedBuffer(2 * CAPACITY)
    bench = Bench(buffer, again_capacity=CAPACITY, coin=True)
    evicted: list[bytes] = []
    bench.queue.evict = evicted.append
    for number in range(40):
        bench.put(DSCP.data, number)
    assert evicted
    assert buffer.used == CAPACITY
    bench.drain()
    assert buffer.used == 0
