# SPDX-License-Identifier: GPL-2.0-only
"""What ACKs carry: rcvd_bytes, service_time, ooo_count, grants, and the penalty of a host that is too slow (cms.md §1,
§3.4)."""

import random

import pytest

from uetproto.engine.cc.config import CcConfig
from uetproto.engine.cc.nscc import Nscc
from uetproto.engine.cc.receiver import MOST_PENALTY, HostBuffer
from uetproto.engine.cc.registry import CongestionContexts
from uetproto.engine.contract import MICROSECOND, NEVER, SECOND, AckReport, CongestionReceiver, Mode
from uetproto.wire.headers.uet_pds import CcType
from uetproto.wire.tuples import PdsCcStateCreditHeader, PdsCcStateNsccHeader

MTU = CcConfig().mtu
GIGA = 10**9


def contexts(**more: object) -> CongestionContexts:
    return CongestionContexts(CcConfig(**more), random.Random(1), overhead=52, largest=MTU)  # type: ignore[arg-type]


def nscc_of(receiver: CongestionReceiver, arrived_at: int = 0, ooo: int = 0, now: int = 0) -> PdsCcStateNsccHeader:
    kind, state = receiver.ack_state(arrived_at, ooo, now)
    assert kind == CcType.NSCC
    return PdsCcStateNsccHeader.read(state)


def test_what_an_ack_carries() -> None:
    receiver = contexts().receiver(9, Mode.RUD, 3)
    receiver.arrived(257, 0)
    told = nscc_of(receiver, 1000, 7, 1000 + 3 * 128_000 + 127_999)
    assert (told.rcvd_bytes, told.service_time, told.ooo_count) == (2, 3, 7), "rounded up, down, and as it is"
    receiver.arrived((1 << 32) - 257, 0)
    assert nscc_of(receiver).rcvd_bytes == 0, "24 bits wrap"
    late = nscc_of(receiver, 0, 1 << 20, SECOND)
    assert (late.service_time, late.ooo_count) == (0xFFFF, 0xFFFE)
    assert receiver.granted() is None


def test_grants_in_acks() -> None:
    made = contexts(algorithm="rccc")
    receiver = made.receiver(9, Mode.RUD, 3)
    assert receiver.granted() is None, "no request has named its context"
    receiver.asked(5, 1000, 0)
    made.grants(0)
    assert receiver.granted() == 64
    kind, state = receiver.ack_state(0, 4, 0)
    assert kind == CcType.CREDIT
    assert (PdsCcStateCreditHeader.read(state).credit, PdsCcStateCreditHeader.read(state).ooo_count) == (64, 4)


def test_the_penalty_follows_the_backlog_and_ends_with_it() -> None:
    host = HostBuffer(8 * GIGA, 1000)  # a byte a nanosecond
    assert host.penalty(0) == (0, 0)
    host.arrived(1000, 0)
    assert host.penalty(0) == (0, 0), "as many may wait"
    host.arrived(500, 0)
    assert host.penalty(0) == (0, 1 + 127 // 2)
    host.arrived(5000, 0)
    assert host.penalty(0) == (0, MOST_PENALTY)
    assert host.waiting(2_500_000) == 4000
    assert host.penalty(5_500_000) == (0, 0), "1,000 wait: no penalty, but the windows stay small"
    assert host.penalty(6_000_000) == (1, 0), "500: the windows are restored"
    assert host.penalty(9_000_000) == (1, 0)
    host.arrived(1200, 9_000_000)
    assert host.penalty(9_000_000)[1] > 0
    assert HostBuffer(0, 1).penalty(0) == (0, 0)


def test_the_host_of_a_nic_is_one() -> None:
    """All senders are slowed down, whoever it is that sends too much."""
    made = contexts(host_rate=GIGA, host_backlog=1000)
    one, other = made.receiver(9, Mode.RUD, 3), made.receiver(8, Mode.ROD, 4)
    one.arrived(3000, 0)
    assert nscc_of(other).rcv_cwnd_pend == MOST_PENALTY
    assert nscc_of(other).rcvd_bytes == 0


def test_credits_are_paced_as_the_host_takes_data() -> None:
    made = contexts(algorithm="rccc", host_rate=10 * GIGA, host_backlog=1000)
    receiver = made.receiver(9, Mode.RUD, 3)
    receiver.asked(0, 1000, 0)
    made.grants(0)
    quick = made.deadline()
    receiver.arrived(10**6, quick)
    made.grants(quick)
    assert made.deadline() - quick == pytest.approx(10 * quick, rel=0.001)
    assert quick < NEVER


@pytest.mark.parametrize(("penalty", "share"), [(64, 0.5), (32, 0.75), (127, 0.0)])
def test_a_penalty_in_all_acks_of_an_rtt_shrinks_the_window_by_that_share(penalty: int, share: float) -> None:
    """The sender sends what the window lets it, and every packet is acknowledged (UE 1.0.1 §3.6.13)."""
    config = CcConfig(rate=800 * GIGA)
    cc = Nscc(config)
    size, before = 256, cc.cwnd
    flying = 0
    while cc.may_send(size, 0):
        cc.sent(size, 0)
        flying += 1
    for _ in range(flying):  # the ACKs of what was in flight: an RTT
        cc.acked(AckReport(size, False, None, penalty), MICROSECOND)
        while cc.may_send(size, MICROSECOND):
            cc.sent(size, MICROSECOND)
    assert cc.cwnd == pytest.approx(max(share * before, before / 128, config.mtu), rel=0.01)
    assert cc.saved_cwnd == before
    cc.acked(AckReport(0, False, None, restore=True), 2 * MICROSECOND)
    assert (cc.cwnd, cc.saved_cwnd) == (before, 0)


def test_a_credit_req_before_any_request() -> None:
    """A context may ask before a request has told its ccc_id, as all of them were lost. Its grants count on then."""
    made = contexts(algorithm="rccc")
    receiver = made.receiver(9, Mode.RUD, 3)
    receiver.asked(None, 100, 0)
    assert made.grants(0) == [(3, 64)]
    receiver.asked(5, 100, 0)
    assert receiver.granted() == 64
    assert made.grants(SECOND)[0] == (3, 100), "the next turn of the same context"
