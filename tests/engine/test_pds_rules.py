"""Rules of pds.md that no ladder shows: limits, quarantine, idleness, entropy, pending messages, fatal ends."""

import random

import pytest

from tests.engine.world import JOB, KEY, A, B, Pair
from tests.ladders.ladder import MS, Ladder
from uetproto.engine import (
    AskClose,
    Close,
    Completion,
    Fep,
    Mode,
    Paused,
    PdcClosed,
    PdcErrorReason,
    PdcOpened,
    PdsConfig,
    Preset,
    Write,
)  # fmt: skip
from uetproto.engine.messages import Nack, parse
from uetproto.engine.states import State
from uetproto.errors import LocalError
from uetproto.wire.uet_pds import NackCode

SECOND = 1000 * MS


def test_initiator_closes_an_idle_pdc() -> None:
    """pds.md §16, idle: 60 s."""
    pair = Pair(bytearray(10))
    pair.write(bytes(10))
    pair.run()
    assert pair.a.quiescent
    while pair.a.pds.pdcs:
        pair.wait()
    assert 60 * SECOND <= pair.now < 61 * SECOND
    assert [e.error for e in pair.a.events() if isinstance(e, PdcClosed)] == [None]
    assert [e.error for e in pair.b.events() if isinstance(e, PdcClosed)] == [None]


def test_a_target_whose_initiator_vanished_gives_up() -> None:
    """pds.md §16, idle: the target asks for the close by CLOSE_REQ; nobody answers: error close."""
    x = Ladder(idle_time=10 * MS)
    x.b.pds.poll(10 * MS)
    x.now = 10 * MS
    assert x.b.state is State.QUIESCE
    x.wait(SECOND)
    assert x.b.state is State.CLOSED
    (closed,) = [event for event in x.b.pds.events() if isinstance(event, PdcClosed)]
    assert closed.error is not None
    assert closed.error.reason is PdcErrorReason.RTO_EXHAUSTED


def test_close_req_time() -> None:
    """pds.md §6.5 row QUIESCE: the initiator acknowledges CLOSE_REQ, but its open message never ends."""
    x = Ladder(max_rto_retx_cnt=15)
    x.a.send(2, now=1)
    x.b.rx(x.a.sent("REQ"))
    x.b.submit(AskClose(pdcid=3))
    x.a.rx(x.b.sent("CLOSE_REQ"))
    x.b.rx(x.a.sent("ACK"))
    (last,) = x.b.pds.poll(SECOND)
    nack = parse(bytes(last.header))
    assert isinstance(nack, Nack)
    assert nack.code == NackCode.CLOSING_IN_ERR
    assert x.b.state is State.CLOSED
    (closed,) = [event for event in x.b.pds.events() if isinstance(event, PdcClosed)]
    assert closed.error is not None
    assert closed.error.reason is PdcErrorReason.CLOSE_TIMEOUT


def test_queued_messages_go_to_another_pdc() -> None:
    """pds.md §6.4 QUIESCE: no packet with som on this PDC."""
    pair = Pair(bytearray(10_000_000))
    pair.write(bytes(5_000_000))
    for packet in pair.a.poll(0):
        pair.b.receive(packet, 0)
    pair.write(bytes(100), context="second")
    pair.close()
    pair.run()
    opened = [event for event in pair.a.events() if isinstance(event, PdcOpened | Completion)]
    assert [type(event) for event in opened].count(PdcOpened) == 2
    assert [event.context for event in opened if isinstance(event, Completion)] == ["second", None]


def test_messages_wait_for_a_pdc() -> None:
    """pds.md §6.1: pause, then an error after Pend_Timeout."""
    a = Fep(A, random.Random(1), pds=PdsConfig(max_pdcs=1))
    for peer in (B, B + 1):
        a.submit(Write(peer=peer, data=b"x", key=1, context=peer), 0)
    assert Paused(True) in a.events()
    a.poll(100 * MS)
    waited = [event for event in a.events() if isinstance(event, Completion)]
    assert [(event.context, event.error and event.error.reason) for event in waited] == [
        (B + 1, PdcErrorReason.PEND_TIMEOUT),
    ]  # fmt: skip


def test_pdcids_rest_for_msl() -> None:
    """pds.md §6.2 item 9; Start_PSN keeps its distance, §18 item 47."""
    pair = Pair(bytearray(10))
    opened: list[PdcOpened] = []
    for _ in range(3):
        pair.write(bytes(10))
        pair.run()
        pair.close()
        pair.run()
        opened += [event for event in pair.a.events() if isinstance(event, PdcOpened)]
    assert [event.pdcid for event in opened] == [1, 2, 3]


def test_psn_limit_closes() -> None:
    """Limit_PSN_Range: a new PDC takes over before 2^31 PSNs are used (pds.md §2.2)."""
    pair = Pair(bytearray(100_000))
    pair.write(bytes(10))
    pair.run()
    pdc = next(iter(pair.a.pds.pdcs.values()))
    other = next(iter(pair.b.pds.pdcs.values()))
    jump = (1 << 31) - (1 << 23) - 3
    for number in ("start",):
        setattr(pdc.tx, number, (pdc.tx.start - jump) & 0xFFFFFFFF)
        setattr(other.rx, number, (other.rx.start - jump) & 0xFFFFFFFF)
    for _ in range(5):
        pair.write(bytes(10))
        pair.run()
    assert pair.a.pds.counters.psn_limit_close == 1
    assert len([event for event in pair.a.events() if isinstance(event, PdcOpened)]) == 2


def test_rud_spreads_entropy_rod_does_not() -> None:
    """cms.md §8: RUD uses each value once a round; a ROD PDC has one."""
    for mode, count in ((Mode.RUD, 16), (Mode.ROD, 1)):
        pair = Pair(bytearray(64 * 4096), pds={"entropy_values": 16})
        pair.write(bytes(64 * 4096), mode=mode)
        values = [packet.entropy for packet in pair.a.poll(0)]
        assert [len(set(values[i : i + 16])) for i in range(0, 64, 16)] == [count] * 4


def test_every_handle_fails_once_when_the_network_is_dead() -> None:
    """pds.md §18 item 52: CLOSED within 63 ms."""
    a = Fep(A, random.Random(1))
    for number in range(3):
        a.submit(Write(peer=B, data=bytes(2_000_000), key=KEY, job_id=JOB, context=number, mode=Mode.RUD), 0)
    now = 0
    a.poll(now)
    while (due := a.deadline()) is not None:
        now = due
        a.poll(now)
    assert now == 63 * MS
    ends = [event for event in a.events() if isinstance(event, Completion)]
    assert [(e.context, e.error and e.error.reason) for e in ends] == [
        (number, PdcErrorReason.RTO_EXHAUSTED) for number in range(3)
    ]
    assert a.pds.counters.pdc_close_in_err == 1


def test_limited_polls_give_all_pdcs_their_turn() -> None:
    a = Fep(A, random.Random(1))
    for peer in (B, B + 1, B + 2):
        a.submit(Write(peer=peer, data=bytes(100_000), key=1), 0)
    assert [{packet.dst for packet in a.poll(0, 5)} for _ in range(6)] == [{B}, {B + 1}, {B + 2}] * 2
    assert len(a.poll(0)) == 3 * 25 - 30


def test_presets_are_checked() -> None:
    a = Fep(A, random.Random(1))
    for bad in (Preset(pdcid=0), Preset(pdcid=1 << 16), Preset(start_psn=1 << 32)):
        with pytest.raises(LocalError):
            a.pds.preset(bad)
    a.pds.adopt(B, Mode.RUD, True, Preset(pdcid=5))
    with pytest.raises(LocalError, match="in use"):
        a.pds.adopt(B, Mode.ROD, True, Preset(pdcid=5))


def test_rud_and_rod_never_share_a_pdc() -> None:
    """pds.md §18 item 28."""
    pair = Pair(bytearray(100))
    pair.write(bytes(10), mode=Mode.RUD)
    pair.write(bytes(10), mode=Mode.ROD)
    pair.run()
    assert {pdc.mode for pdc in pair.a.pds.pdcs.values()} == set(Mode)
    assert len(pair.b.pds.pdcs) == 2


def test_no_ack_is_ever_answered() -> None:
    """pds.md §18 item 33: ACK and NACK for strangers vanish."""
    pair = Pair(bytearray(100))
    pair.write(bytes(10))
    pair.run()
    pair.a.submit(Close(peer=B), pair.now)
    pair.run()
    answers = [data for source, data in pair.sent if source == B]
    from uetproto.engine import Datagram

    for data in answers:
        assert type(parse(data)).__name__ == "Ack"
        pair.a.receive(Datagram(B, A, data), pair.now)
    assert pair.a.poll(pair.now) == []
    assert pair.a.pds.counters.no_pdc == len(answers)
