# SPDX-License-Identifier: GPL-2.0-only
"""A read whose packets are answered, and whose PDC ends before the data comes: it fails (ses.md §5.4)."""

import random
from collections.abc import Iterable

import pytest

from tests.support.engine.world import JOB, KEY, A, B, Pair
from uetproto.engine import Close, Datagram, Fep, Write
from uetproto.engine.contract import MILLISECOND, Completion, PdcErrorReason, Read
from uetproto.engine.pds.messages import Ack, Control, Nack, parse
from uetproto.engine.pds.states import State
from uetproto.wire.headers.uet_pds import CtlType, NackCode

IDLE = 10 * MILLISECOND


def test_a_read_ends_with_its_pdc() -> None:
    """The target answers, then nothing is heard of it any more: a write on the same PDC uses up its retransmissions."""
    pair = Pair(bytearray(20_000))
    pair.a.submit(Read(peer=B, key=KEY, job_id=JOB, into=bytearray(20_000), context="read"), 0)
    for packet in pair.a.poll(0):
        pair.b.receive(Datagram(A, B, bytes(packet.header) + bytes(packet.payload)), 0)
    for packet in pair.b.poll(0):
        if isinstance(parse(packet.header, packet.trimmed), Ack):  # the data itself is lost
            pair.a.receive(Datagram(B, A, bytes(packet.header) + bytes(packet.payload)), 0)
    pair.a.submit(Write(peer=B, key=KEY, job_id=JOB, data=b"x", context="write"), 0)
    while (due := pair.a.deadline()) is not None and pair.a.pds.pdcs:
        pair.a.poll(due)
    ended = {event.context: event.error for event in pair.a.events() if isinstance(event, Completion)}
    assert {name: error and error.reason for name, error in ended.items()} == {
        "write": PdcErrorReason.RTO_EXHAUSTED,
        "read": PdcErrorReason.PEER_CLOSED,
    }
    assert pair.a.quiescent


def deliver(end: Fep, packets: Iterable[Datagram], now: int) -> None:
    for packet in packets:
        end.receive(Datagram(packet.src, packet.dst, bytes(packet.header) + bytes(packet.payload)), now)


def reading(**pds: int) -> Pair:
    """A has the answers to its requests, and not the data."""
    pair = Pair(bytearray(20_000), pds={"idle_time": IDLE, **pds})
    pair.a.submit(Read(peer=B, key=KEY, job_id=JOB, into=bytearray(20_000), context="read"), 0)
    deliver(pair.b, pair.a.poll(0), 0)
    deliver(pair.a, [packet for packet in pair.b.poll(0) if isinstance(parse(packet.header, packet.trimmed), Ack)], 0)
    return pair


def read_error(pair: Pair) -> PdcErrorReason | None:
    (ended,) = [event for event in pair.a.events() if isinstance(event, Completion)]
    return ended.error.reason if ended.error else None


def noops(packets: Iterable[Datagram]) -> list[Datagram]:
    found = [(packet, parse(packet.header, packet.trimmed)) for packet in packets]
    return [packet for packet, said in found if isinstance(said, Control) and said.ctl_type == CtlType.NOOP]


@pytest.mark.parametrize("closes", [False, True])
def test_a_target_that_is_silent(closes: bool) -> None:
    """pds.md §13, §16: idle, A closes, which the lock of the read forbids; idle still, it asks by NOOP (keep-alive)."""
    pair = reading()
    if closes:
        pair.a.submit(Close(peer=B), 0)
    asked = []
    while pair.a.pds.pdcs:
        now = pair.a.deadline()
        assert now is not None
        asked += [(now, packet.header[1] >> 4 & 1) for packet in noops(pair.a.poll(now))]
    first = IDLE if closes else 2 * IDLE
    assert asked == [(first + after * MILLISECOND, int(after > 0)) for after in (0, 1, 3, 7, 15, 31)]
    assert read_error(pair) is PdcErrorReason.PEER_CLOSED
    assert pair.a.quiescent


def test_a_target_that_forgot_its_pdc() -> None:
    """pds.md §12: it says INV_DPDCID."""
    pair = reading()
    anew = Fep(B, random.Random(2))
    pair.a.poll(IDLE)
    deliver(anew, pair.a.poll(2 * IDLE), 2 * IDLE)
    (refusal,) = anew.poll(2 * IDLE)
    assert isinstance(nack := parse(refusal.header, refusal.trimmed), Nack)
    assert nack.code == NackCode.INV_DPDCID
    deliver(pair.a, [refusal], 2 * IDLE)
    assert read_error(pair) is PdcErrorReason.PEER_CLOSED


def test_a_target_that_takes_its_time() -> None:
    """It has the PDC, and says so as often as it is asked; then the read ends well, and the PDC closes."""
    pair = reading(max_rto_retx_cnt=15)
    (pdc,), (other,) = pair.a.pds.pdcs.values(), pair.b.pds.pdcs.values()
    other.idle_time = 0
    now, asked, late = 0, 0, []
    while asked < 5:
        now = min(at for end in (pair.a, pair.b) if (at := end.deadline()) is not None)
        asks = pair.a.poll(now)
        asked += len(noops(asks))
        deliver(pair.b, asks, now)
        answers = pair.b.poll(now)
        acks = [packet for packet in answers if isinstance(parse(packet.header, packet.trimmed), Ack)]
        late += [packet for packet in answers if packet not in acks]
        deliver(pair.a, acks, now)
    assert (now, pdc.state) == (6 * IDLE, State.QUIESCE)
    deliver(pair.a, late, now)
    pair.now = now
    pair.run()
    assert read_error(pair) is None
    assert not pair.a.pds.pdcs


@pytest.mark.parametrize("idle_time", [0, 1])
def test_it_asks_no_more_often_than_the_rto(idle_time: int) -> None:
    """An idle time of 1 ps is no reason to ask each picosecond; 0 is none to ask."""
    pair = reading(idle_time=idle_time, rto_init_time=MILLISECOND)
    asked = 0
    while (now := pair.a.deadline()) is not None and now <= 10 * MILLISECOND:
        asks = noops(pair.a.poll(now))
        asked += len(asks)
        deliver(pair.b, asks, now)
        deliver(pair.a, [p for p in pair.b.poll(now) if isinstance(parse(p.header, p.trimmed), Ack)], now)
    assert asked == (10 if idle_time else 0)
