# SPDX-License-Identifier: GPL-2.0-only
"""DCQCN: the rate of a queue pair, and the packets that keep to it (roce.md §13)."""

import random
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise
from typing import Any

import pytest

from tests.support.roce.responder import packet, reth
from tests.support.roce.world import BASE, QP_A, QP_B, US, A, B, Side, World
from uetproto.engine.contract import NEVER
from uetproto.engine.roce.config import RoceConfig
from uetproto.engine.roce.contract import (
    AddressVector,
    ModifyQp,
    Notified,
    Opcode,
    PostSend,
    QpState,
    QpType,
    RocePacket,
    SendFlags,
    Status,
)
from uetproto.engine.roce.dcqcn import ONE, Rate
from uetproto.wire.headers.roce import Operation

G = 10**9
M = 10**6
LINE = 100 * G
MB10 = 10_000_000
CNP = 0x81
ON = RoceConfig(congestion="dcqcn", path_mtu=1024, credits=False)
STEADY = replace(ON, dcqcn_increase_timer=10 * 10**12, dcqcn_byte_counter=2**32 - 1)
"""Rates only fall."""


def cut_twice() -> Rate:
    """R_T 50 Gb/s, R_C 25 Gb/s: the second CNP comes before α has fallen. The timer's steps are at 105, 160, … µs."""
    rate = Rate(ON, LINE)
    rate.on_cnp(0)
    rate.on_cnp(50 * US)
    assert (rate.target, rate.current, rate.alpha) == (50 * G, 25 * G, ONE)
    return rate


# The rate -------------------------------------------------------------------------------------------------------------


def test_defaults() -> None:
    """§13 and §14, word for word."""
    config = RoceConfig()
    assert (config.congestion, config.cnp, config.notifies) == ("off", False, False)
    assert (config.cnp_interval, config.cnp_dscp, config.cnp_ecn) == (50 * US, 48, "not_ect")
    assert (config.dcqcn_g, config.dcqcn_initial_alpha) == (256, 1024)
    assert (config.dcqcn_alpha_timer, config.dcqcn_increase_timer) == (55 * US, 55 * US)
    assert (config.dcqcn_byte_counter, config.dcqcn_rate_ai, config.dcqcn_fast_recovery) == (10 * M, 40 * M, 5)


def test_the_first_cut_halves() -> None:
    rate = Rate(ON, LINE)
    assert (rate.rate(10**12), rate.paced) == (LINE, False)
    rate.on_cnp(10**12)
    assert (rate.target, rate.current, rate.alpha, rate.paced) == (LINE, LINE // 2, ONE, True)


def test_fast_recovery() -> None:
    """Half of the way to R_T every 55 µs, five times, not a picosecond early."""
    rate = Rate(ON, LINE)
    rate.on_cnp(7)
    for step, expected in enumerate((75.0, 87.5, 93.75, 96.875, 98.4375), start=1):
        before = rate.current
        assert rate.rate(7 + step * 55 * US - 1) == before
        assert rate.rate(7 + step * 55 * US) == expected * G
        assert rate.target == LINE


def test_alpha() -> None:
    """One fall after 55 µs; a CNP 5 µs later cuts by half of it, and α goes up again."""
    rate = Rate(ON, LINE)
    rate.on_cnp(0)
    assert rate.rate(55 * US) == 75 * G
    assert rate.alpha == ONE * 255 // 256
    rate.on_cnp(60 * US)
    assert rate.target == 75 * G
    assert rate.current == 75 * G * 257 // 512 == 37_646_484_375
    assert Fraction(rate.alpha, ONE) == Fraction(65281, 65536)  # 255/256 × 255/256 + 1/256


def test_alpha_falls_to_nothing() -> None:
    """After a second without a CNP the next one changes next to nothing; α then is 1/256."""
    rate = Rate(ON, LINE)
    rate.on_cnp(0)
    rate.on_cnp(10**12)
    assert (rate.target, rate.current, rate.alpha) == (LINE, LINE, ONE // 256)
    rate.on_cnp(10**12)
    assert rate.current == LINE * 511 // 512


def test_initial_alpha() -> None:
    rate = Rate(replace(ON, dcqcn_initial_alpha=512), LINE)
    rate.on_cnp(0)
    assert rate.current == 75 * G


def test_additive_increase_by_the_timer() -> None:
    rate = cut_twice()
    assert rate.rate(325 * US) == 49_218_750_000  # after five steps
    assert rate.target == 50 * G
    assert rate.rate(380 * US) == 49_629_375_000
    assert rate.target == 50_040 * M
    assert rate.rate(435 * US) == 49_854_687_500
    assert rate.target == 50_080 * M


def test_additive_increase_by_bytes() -> None:
    """The same steps, made by the byte counter: 10 MB each, in as many packets as it needs."""
    rate = cut_twice()
    rates = []
    for _ in range(7):
        rate.sent(MB10 - 1, 60 * US)
        before = rate.current
        rate.sent(1, 60 * US)
        assert rate.current > before
        rates.append(rate.current)
    assert rates[4:] == [49_218_750_000, 49_629_375_000, 49_854_687_500]
    assert (rate.timer_steps, rate.byte_steps, rate.target) == (0, 7, 50_080 * M)


def test_both_count_for_themselves() -> None:
    """Three steps of one and three of the other are still fast recovery."""
    rate = cut_twice()
    rate.sent(3 * MB10, 105 * US)
    assert rate.rate(215 * US) == 25 * G + 25 * G * 63 // 64
    assert (rate.timer_steps, rate.byte_steps, rate.target) == (3, 3, 50 * G)


def test_hyper_increase() -> None:
    """Both past five: R_T grows by i × 400 Mb/s, i being how far the lower count is past."""
    rate = cut_twice()
    rate.rate(380 * US)
    assert (rate.timer_steps, rate.target) == (6, 50_040 * M)
    targets = []
    for _ in range(6):
        rate.sent(MB10, 380 * US)
        targets.append(rate.target // M)
    assert targets == [50_080, 50_120, 50_160, 50_200, 50_240, 50_640]
    before = rate.current
    assert rate.rate(435 * US) == (51_040 * M + before + 1) // 2  # 7 and 6: i = 1
    rate.sent(MB10, 435 * US)  # 7 and 7: i = 2
    assert rate.target == 51_840 * M


def test_a_cnp_restarts_both() -> None:
    """Timer, byte counter, and the steps of both."""
    rate = cut_twice()
    rate.sent(6 * MB10 + MB10 - 1, 104 * US)
    assert (rate.timer_steps, rate.byte_steps) == (0, 6)
    rate.on_cnp(104 * US)
    cut = rate.current
    rate.sent(1, 104 * US)
    assert rate.rate(159 * US - 1) == cut
    assert (rate.timer_steps, rate.byte_steps, rate.rate(159 * US)) == (0, 0, (rate.target + cut + 1) // 2)
    rate.sent(MB10 - 1, 159 * US)
    assert (rate.timer_steps, rate.byte_steps) == (1, 1)


def test_a_timer_comes_before_a_cnp() -> None:
    rate = Rate(ON, LINE)
    rate.on_cnp(0)
    rate.on_cnp(55 * US)
    assert rate.target == 75 * G


def test_line_speed_is_reached_and_not_passed() -> None:
    rate = cut_twice()
    assert rate.rate(10**12) == LINE == rate.target
    assert not rate.paced
    rate.sent(1500, 10**12)
    assert rate.ready_at == 0


@pytest.mark.parametrize(("least", "line", "expected"), [(100 * M, LINE, 100 * M), (G, LINE, G), (G, G // 2, G // 2)])
def test_no_cut_goes_below_the_least_rate(least: int, line: int, expected: int) -> None:
    rate = Rate(replace(ON, dcqcn_rate_min=least), line)
    for _ in range(20):
        rate.on_cnp(0)
        assert rate.current >= expected
    assert rate.current == expected


def test_the_next_packet_waits_for_the_bytes_of_the_last() -> None:
    """1500 bytes at 3 Gb/s: 4 µs; 1000 bytes: 2.66… µs, rounded up."""
    rate = Rate(STEADY, 6 * G)
    rate.on_cnp(0)
    rate.sent(1500, 10)
    assert rate.ready_at == 10 + 4 * US
    rate.sent(1000, 5 * US)
    assert rate.ready_at == 5 * US + 2_666_667


class Reference:
    """§13 in fractions, asked in every microsecond."""

    def __init__(self) -> None:
        self.current = self.target = Fraction(LINE)
        self.alpha = Fraction(1)
        self.last: int | None = None
        self.timer = self.counter = self.bytes = 0

    def increase(self) -> None:
        if self.timer > 5 and self.counter > 5:
            self.target += (min(self.timer, self.counter) - 5) * 400 * M
        elif self.timer > 5 or self.counter > 5:
            self.target += 40 * M
        self.target = min(self.target, Fraction(LINE))
        self.current = (self.current + self.target) / 2

    def microsecond(self, now: int) -> None:
        if self.last is not None and now > self.last and (now - self.last) % 55 == 0:
            self.alpha *= Fraction(255, 256)
            self.timer += 1
            self.increase()

    def on_cnp(self, now: int) -> None:
        self.target = self.current
        self.current *= 1 - self.alpha / 2
        self.alpha = self.alpha * Fraction(255, 256) + Fraction(1, 256)
        self.last, self.timer, self.counter, self.bytes = now, 0, 0, 0

    def sent(self, size: int) -> None:
        self.bytes += size
        while self.bytes >= MB10:
            self.bytes -= MB10
            self.counter += 1
            self.increase()


@pytest.mark.parametrize("seed", range(8))
def test_against_fractions(seed: int) -> None:
    """CNPs and packets at random, with an error below 10⁻⁹; how often a rate is asked changes nothing."""
    rng = random.Random(seed)
    often, rarely, reference = Rate(ON, LINE), Rate(ON, LINE), Reference()
    for now in range(2500):
        reference.microsecond(now)
        often.rate(now * US)
        what = rng.random()
        if what < 0.01:
            reference.on_cnp(now)
            often.on_cnp(now * US)
            rarely.on_cnp(now * US)
        elif what < 0.1 and often.paced:
            size = rng.choice((4166, 300_000, 4 * MB10))
            reference.sent(size)
            often.sent(size, now * US)
            rarely.sent(size, now * US)
        assert abs(often.current - reference.current) * 10**9 <= LINE
        if now % 500 == 499:
            assert rarely.rate(now * US) == often.current
            assert (rarely.target, rarely.alpha) == (often.target, often.alpha)


# Packets in their time ------------------------------------------------------------------------------------------------


def notification(src: int = B, destqp: int = QP_A, opcode: int = CNP) -> RocePacket:
    head = bytes((opcode, 0, 0xFF, 0xFF, 0x40)) + destqp.to_bytes(3, "big") + bytes(8)
    return RocePacket(src, A, head + bytes(16))


def paced(kind: QpType = QpType.RC, config: RoceConfig = STEADY, **more: Any) -> World:
    """Both sides at 2 Gb/s; a CNP has halved A's rate: 8 ns a byte."""
    w = World(kind, a=config, **more)
    w.a.hca.line_rate = w.b.hca.line_rate = 2 * G
    w.a.hca.receive(notification(), w.now)
    w.take()
    return w


def send(w: World, length: int, opcode: Opcode = Opcode.SEND, side: Side | None = None) -> None:
    """Posted, and nothing more."""
    side = side or w.a
    peer = w.b if side is w.a else w.a
    more: dict[str, Any] = {"remote_addr": BASE, "rkey": peer.mr.rkey}
    if w.kind is QpType.UD:
        more = {"ah": AddressVector(peer.hca.address), "remote_qpn": peer.number, "remote_qkey": 0x11111111}
    work = PostSend(qp_num=side.number, opcode=opcode, sg_list=side.sge(0, length), **more)
    side.hca.submit(work, w.now)


def times(w: World, until: int = NEVER, fate: Callable[[RocePacket], bool] = lambda _: True) -> list[tuple[int, int]]:
    """When each packet of A with data leaves, and its opcode; what `fate` lets through arrives at once."""
    found = []
    w.take()
    while True:
        while w.wire:
            if w.wire[0].src == A and len(w.wire[0].payload):
                found.append((w.now, w.wire[0].header[0]))
            if fate(w.wire[0]):
                w.deliver()
            else:
                w.drop()
        due = w.deadline()
        if due is None or due > until:
            return found
        w.now = max(w.now, due)
        w.take()


def gaps(seen: list[tuple[int, int]]) -> list[int]:
    return [later - earlier for (earlier, _), (later, _) in pairwise(seen)]


def test_one_write() -> None:
    """FIRST is 14 + 20 + 8 + 12 + 16 + 1024 + 4 bytes, the others 16 less."""
    w = paced()
    send(w, 4096, Opcode.RDMA_WRITE)
    first, other = 1098 * 8000, 1082 * 8000
    expected = [0, first, first + other, first + 2 * other]
    assert times(w) == list(zip(expected, (0x06, 0x07, 0x07, 0x08), strict=True))
    assert w.statuses() == [Status.SUCCESS]
    assert w.a.hca.quiescent


@pytest.mark.parametrize(("kind", "size"), [(QpType.RC, 1082), (QpType.UC, 1082), (QpType.UD, 1090)])
@pytest.mark.parametrize("icrc", [True, False])
def test_messages(kind: QpType, size: int, icrc: bool) -> None:
    """One packet each, and each waits; nothing rests meanwhile."""
    w = paced(kind, replace(STEADY, icrc=icrc))
    for _ in range(4):
        w.recv(1024 + 40)
        send(w, 1024)
    each = size * 8000
    assert [at for at, _ in times(w, until=2 * each)] == [0, each, 2 * each]
    assert not w.a.hca.quiescent
    assert [at for at, _ in times(w)] == [3 * each]
    assert w.a.hca.quiescent
    assert len(w.received()) == 4


def test_the_rate_rises_between_packets() -> None:
    """1082 bytes at 1 Gb/s; after the timer's first step at 1.5 Gb/s, after the second at 1.75 Gb/s."""
    w = paced(QpType.UC, ON)
    for _ in range(19):
        send(w, 1024)
    slow, faster, fastest = 8_656_000, 5_770_667, 4_946_286
    # of the packets at 0 … 51.9 µs, 60.6 … 106.8 µs, and after 110 µs
    assert gaps(times(w)) == [slow] * 7 + [faster] * 9 + [fastest] * 2


def test_responses_to_a_read() -> None:
    """They are A's data, too; what A asks for and acknowledges meanwhile does not wait."""
    w = paced()
    send(w, 3072, Opcode.RDMA_READ, side=w.b)
    # FIRST and LAST have an AETH of 4 bytes
    assert times(w, until=0) == [(0, 0x0D)]
    w.now = 1
    send(w, 100, Opcode.RDMA_READ)
    assert not w.take(), "a request keeps its place"
    ends = [1086 * 8000, (1086 + 1082) * 8000]
    assert times(w) == list(zip(ends, (0x0E, 0x0F), strict=True))
    assert w.statuses(w.a) == w.statuses(w.b) == [Status.SUCCESS]


def test_answers_without_data_do_not_wait() -> None:
    """ACK and CNP leave between two packets of a slow queue pair."""
    w = paced()
    send(w, 2048, Opcode.RDMA_WRITE)
    w.take()
    w.wire.clear()
    w.now = 100
    send(w, 4, Opcode.RDMA_WRITE, side=w.b)
    w.take()
    w.wire[0].ecn_marked = True
    w.deliver()
    assert sorted(p.header[0] for p in w.wire) == [Operation.ACKNOWLEDGE, CNP]


def test_requests_without_data_cost_nothing() -> None:
    """READ requests leave together where no data was sent before."""
    w = paced()
    for _ in range(5):
        send(w, 4, Opcode.RDMA_READ)
    assert len(w.take()) == 5


def test_others_are_not_slowed_down() -> None:
    """Another queue pair of the same adapter still sends at once."""
    w = paced(QpType.UC)
    other = w.a.hca.create_qp(QpType.UD, w.a.pd)
    for state in (QpState.INIT, QpState.RTR, QpState.RTS):
        given = {QpState.INIT: {"pkey_index": 0, "port": 1, "qkey": 1}, QpState.RTS: {"sq_psn": 0}}.get(state, {})
        w.a.hca.submit(ModifyQp(qp_num=other, state=state, attributes=given), 0)
    for _ in range(20):
        send(w, 1024)
        w.a.hca.submit(PostSend(
            qp_num=other, inline=b"data", send_flags=SendFlags.INLINE, ah=AddressVector(B), remote_qpn=QP_B,
        ), 0)  # fmt: skip
    transports = [p.header[0] >> 5 for p in w.a.hca.poll(0)]
    assert (transports.count(QpType.UC), transports.count(QpType.UD)) == (1, 20)


def test_a_slow_driver() -> None:
    """With a limit of nothing nothing leaves, and nothing is forgotten."""
    w = paced(QpType.UC)
    send(w, 1024)
    send(w, 1024)
    assert w.a.hca.poll(0, 0) == []
    assert len(w.a.hca.poll(0, 1)) == 1
    assert w.a.hca.deadline() == 8_656_000
    assert w.a.hca.poll(8_656_000, 0) == []
    assert len(w.a.hca.poll(9_000_000, 5)) == 1


def test_packets_far_apart_are_no_reason_for_a_time_out() -> None:
    """At 100 Mb/s 64 packets, of which only the last asks for an acknowledgement, take 21 ms; `timeout` is 1 ms."""
    w = World(a=replace(STEADY, path_mtu=4096), size=1 << 18)
    w.a.hca.line_rate = LINE
    for _ in range(12):
        w.a.hca.receive(notification(), 0)
    assert w.a.qp.rate.current == 100 * M
    send(w, 1 << 18, Opcode.RDMA_WRITE)
    assert len(times(w)) == 64
    assert w.now > 20 * 1000 * US
    assert w.statuses() == [Status.SUCCESS]
    assert w.a.qp.requester.retransmitted == 0


def test_what_is_sent_again_is_paced_too() -> None:
    w = paced()
    send(w, 2048, Opcode.RDMA_WRITE)
    lost = iter([False])
    seen = times(w, fate=lambda p: next(lost, True))
    assert [opcode for _, opcode in seen] == [0x06, 0x08, 0x06, 0x08]
    assert gaps(seen) == [1098 * 8000, 1082 * 8000, 1098 * 8000]
    assert w.statuses() == [Status.SUCCESS]


@pytest.mark.parametrize("kind", QpType)
@pytest.mark.parametrize("end", ["RESET", "ERR", "destroy"])
def test_ends_while_waiting(kind: QpType, end: str) -> None:
    """Nothing more leaves, and the adapter comes to rest; a new life starts at line speed."""
    w = paced(kind)
    for _ in range(4):
        send(w, 1024)
    assert len(w.take()) == 1
    w.wire.clear()
    if end == "destroy":
        w.a.hca.destroy_qp(QP_A)
    else:
        w.modify(w.a, QpState[end])
    assert times(w) == []
    assert w.a.hca.quiescent
    if end == "RESET":
        assert w.a.qp.rate is None


def test_drained_at_its_rate() -> None:
    """SQD: what was begun goes on, in its time."""
    w = paced(QpType.UC)
    send(w, 2048, Opcode.RDMA_WRITE)
    w.take()
    w.modify(w.a, QpState.SQD)
    assert w.asynchronous(w.a) == []
    assert [at for at, _ in times(w)] == [0, 1098 * 8000]
    assert len(w.asynchronous(w.a)) == 1


# CNPs -----------------------------------------------------------------------------------------------------------------


def marked(w: World) -> None:
    """Everything is delivered, all of it with CE but CNPs."""
    w.take()
    for _ in range(1000):
        if not w.wire:
            return
        if w.wire[0].header[0] != CNP:
            w.wire[0].ecn_marked = True
        w.deliver()
    raise AssertionError("it does not end")


@pytest.mark.parametrize(("config", "notifies"), [
    (RoceConfig(), False), (RoceConfig(cnp=True), True), (RoceConfig(congestion="dcqcn"), True),
    (RoceConfig(congestion="dcqcn", cnp=True), True),
])  # fmt: skip
def test_who_notifies(config: RoceConfig, notifies: bool) -> None:
    w = World(a=config)
    assert config.notifies is notifies
    send(w, 4, Opcode.RDMA_WRITE)
    marked(w)
    assert w.b.hca.counters.get("cnp sent", 0) == w.a.hca.counters.get("cnp received", 0) == notifies


@pytest.mark.parametrize(("opcode", "by_a", "by_b"), [
    (Opcode.RDMA_WRITE, 0, 1), (Opcode.RDMA_READ, 1, 0), (Opcode.ATOMIC_FETCH_AND_ADD, 0, 0),
])  # fmt: skip
def test_marked_data_and_nothing_else_is_notified(opcode: Opcode, by_a: int, by_b: int) -> None:
    """Also the data of a READ, by its requester; not requests without data, nor acknowledgements."""
    w = World(a=ON)
    send(w, 8, opcode)
    marked(w)
    assert w.statuses() == [Status.SUCCESS]
    assert w.a.hca.counters.get("cnp sent", 0) == w.b.hca.counters.get("cnp received", 0) == by_a
    assert w.b.hca.counters.get("cnp sent", 0) == w.a.hca.counters.get("cnp received", 0) == by_b


@pytest.mark.parametrize("kind", QpType)
def test_at_most_one_in_an_interval(kind: QpType) -> None:
    """Every 10 µs a marked message, for 200 µs."""
    w = World(kind, a=ON)
    for number in range(20):
        w.now = number * 10 * US
        w.recv(1000)
        send(w, 100)
        marked(w)
    assert w.a.hca.counters["cnp received"] == w.b.hca.counters["cnp sent"] == 4
    assert [e for e in w.a.events if isinstance(e, Notified)] == [Notified(QP_A)] * 4


def test_a_cnp_is_of_the_default_partition() -> None:
    """Whatever that of the queue pair is: it is taken."""
    w = World(a=ON, up=False)
    for side, peer in ((w.a, w.b), (w.b, w.a)):
        side.hca.pkeys = (0x8001,)
        for state in (QpState.INIT, QpState.RTR, QpState.RTS):
            w.modify(side, state, **w.attributes(side, peer, state, 5, {}))
    send(w, 100, Opcode.RDMA_WRITE)
    marked(w)
    assert [p.p_key for p in w.sent(w.b)] == [0xFFFF, 0x8001]
    assert w.a.hca.counters["cnp received"] == 1


def test_each_queue_pair_has_an_interval_of_its_own() -> None:
    """Two at the same adapter are marked at the same time: two CNPs."""
    w = World(QpType.UD, a=ON)
    other = w.b.hca.create_qp(QpType.UD, w.b.pd)
    for state in (QpState.INIT, QpState.RTR, QpState.RTS):
        given = w.attributes(w.b, w.a, state, 5, {})
        w.b.hca.submit(ModifyQp(qp_num=other, state=state, attributes=given), 0)
    for number in (QP_B, other):
        w.recv(1000, qp_num=number)
        w.send(Opcode.SEND, 100, ah=AddressVector(B), remote_qpn=number, remote_qkey=0x11111111)
    marked(w)
    assert w.b.hca.counters["cnp sent"] == 2


def test_reads_and_writes_share_the_interval() -> None:
    """A queue pair that is written to and reads from the same peer: one CNP for both."""
    w = World(a=ON)
    send(w, 100, Opcode.RDMA_READ)
    send(w, 100, Opcode.RDMA_WRITE, side=w.b)
    marked(w)
    assert w.a.hca.counters["cnp sent"] == 1


@pytest.mark.parametrize("kind", QpType)
def test_a_cut_from_end_to_end(kind: QpType) -> None:
    """Marked data of A: B notifies, A halves."""
    w = World(kind, a=ON)
    w.a.hca.line_rate = LINE
    w.recv(1000)
    send(w, 100)
    assert w.a.qp.rate is None
    marked(w)
    assert w.a.qp.rate.current == LINE // 2
    assert w.b.qp.rate is None


@pytest.mark.parametrize("kind", QpType)
@pytest.mark.parametrize("state", [QpState.RESET, QpState.INIT, QpState.RTR, QpState.RTS, QpState.ERR])
def test_in_every_state(kind: QpType, state: QpState) -> None:
    w = World(kind, a=ON, up=False)
    w.a.hca.line_rate = LINE
    for step in (QpState.INIT, QpState.RTR, QpState.RTS):
        if state in (QpState.ERR, QpState.RTS) or (state is not QpState.RESET and step <= state):
            w.modify(w.a, step, **w.attributes(w.a, w.b, step, 5, {}))
    if state is QpState.ERR:
        w.modify(w.a, state)
    w.a.hca.receive(notification(), 0)
    heeded = state in (QpState.RTR, QpState.RTS)
    assert w.a.hca.counters == {"cnp received" if heeded else "state": 1}
    assert (w.a.qp.rate is not None) == heeded
    assert bool(w.a.hca.events()) == heeded


@pytest.mark.parametrize(("what", "why"), [
    (notification(destqp=0x99), "destqp"), (notification(destqp=0xFFFFFF), None), (notification(src=B + 1), "peer"),
    (notification(opcode=0x85), "unknown opcode"), (notification(opcode=0x80), "cnp received"),
    (replace(notification(), header=notification().header[:20]), "length"),
])  # fmt: skip
def test_odd_ones(what: RocePacket, why: str | None) -> None:
    w = World(a=ON)
    w.a.hca.line_rate = LINE
    w.a.hca.receive(what, 0)
    assert w.a.hca.counters == ({} if why is None else {why: 1})
    assert (w.a.qp.rate is not None) == (why == "cnp received")


def test_without_a_line_rate_nothing_is_paced() -> None:
    """The driver has not said how fast its port is; who watches still hears of the CNP."""
    w = World(a=ON)
    w.a.hca.receive(notification(), 0)
    assert w.a.qp.rate is None
    assert w.a.hca.events() == [Notified(QP_A)]


def test_off_hears_of_cnps_and_does_nothing() -> None:
    w = paced(config=replace(STEADY, congestion="off"))
    assert w.a.qp.rate is None
    assert w.a.events == [Notified(QP_A)]
    send(w, 4096, Opcode.RDMA_WRITE)
    assert len(w.take()) == 4


def test_same_packets() -> None:
    """Without congestion DCQCN changes nothing; with a CNP, only the times."""

    def packets(config: RoceConfig, notified: bool) -> list[bytes]:
        w = World(a=config)
        w.a.hca.line_rate = 2 * G
        if notified:
            w.a.hca.receive(notification(), 0)
        w.recv(9000)
        send(w, 9000)
        send(w, 3000, Opcode.RDMA_READ)
        send(w, 5000, Opcode.RDMA_WRITE)
        w.run()
        assert w.statuses() == [Status.SUCCESS] * 3
        return [bytes(p.header) + bytes(p.payload) for p in w.log if p.src == A]

    off = packets(replace(ON, congestion="off"), False)
    assert off == packets(ON, False) == packets(replace(ON, congestion="off"), True) == packets(ON, True)


def test_a_request_that_was_marked_is_served() -> None:
    """The CNP leaves before the answer does."""
    w = World(a=ON)
    request = packet(Operation.RDMA_WRITE_ONLY, 5, reth(4), b"data")
    request.ecn_marked = True
    w.b.hca.receive(request, 0)
    assert [p.header[0] for p in w.b.hca.poll(0)] == [CNP, Operation.ACKNOWLEDGE]


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("kind", QpType)
def test_a_bad_wire(kind: QpType, seed: int) -> None:
    """Marks and losses at random, both ways: it ends, everything completes, and at RC without an error."""
    rng = random.Random(seed)
    w = World(kind, a=replace(ON, path_mtu=256, dcqcn_rate_min=M, retry_cnt_seven="endless"))
    w.a.hca.line_rate = w.b.hca.line_rate = G
    w.a.hca.receive(notification(), 0)
    w.b.hca.receive(notification(A, QP_B), 0)
    opcodes = [Opcode.SEND, Opcode.RDMA_WRITE, Opcode.RDMA_READ][: {QpType.RC: 3, QpType.UC: 2, QpType.UD: 1}[kind]]
    posted = {w.a: 0, w.b: 0}
    for side, peer in ((w.a, w.b), (w.b, w.a)):
        for _ in range(20):
            w.recv(2100, side=peer)
            length = rng.choice((0, 1, 100, 256) if kind is QpType.UD else (0, 1, 256, 700, 2000))
            send(w, length, rng.choice(opcodes), side)
            posted[side] += 1

    def fate(sent: RocePacket) -> bool:
        sent.ecn_marked = sent.header[0] != CNP and rng.random() < 0.3
        return rng.random() < 0.95

    w.run(fate)
    for side, count in posted.items():
        assert w.statuses(side) == [Status.SUCCESS] * count
        assert side.hca.quiescent
    assert sum(side.hca.counters["cnp received"] for side in posted) > 2
