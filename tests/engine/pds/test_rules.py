# SPDX-License-Identifier: GPL-2.0-only
"""Rules of pds.md that no ladder shows: limits, quarantine, idleness, entropy, pending messages, fatal ends."""

import random

import pytest

from tests.support.engine.world import JOB, KEY, A, B, Pair
from tests.support.ladders.ladder import IPDCID, MS, TPDCID, Ladder
from tests.support.pds.headers import build_ack, build_control, build_nack, build_syn_control
from uetproto.engine import (
    AskClose,
    Close,
    Completion,
    Datagram,
    Fep,
    Mode,
    Paused,
    PdcClosed,
    PdcErrorReason,
    PdcOpened,
    PdsConfig,
    Preset,
    Write,
)
from uetproto.engine.contract import PDC_MODES
from uetproto.engine.pds import pdc_pool
from uetproto.engine.pds.messages import Ack, Nack, parse
from uetproto.engine.pds.states import State
from uetproto.errors import LocalError
from uetproto.wire.headers.uet_pds import AckReq, CtlType, NackCode, NextHdr

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


def steps_to_rest(x: Ladder) -> int:
    """Polls until no timer is armed at either end; those of a PDC that is alone come to some dozen."""
    for steps in range(1000):
        due = [at for end in (x.a, x.b) if (at := end.pds.deadline()) is not None]
        if not due:
            return steps
        x.now = max(x.now, min(due))
        x.a.poll()
        x.b.poll()
    raise AssertionError(f"timers still ring at {x.now} ps")


def test_idleness_rings_only_where_a_state_has_a_row_for_it() -> None:
    """pds.md §6.4, §6.5, §16: nothing to CREATING, and nothing to a target that has asked for the close."""
    x = Ladder(established=False, idle_time=1)
    x.a.send(1)
    assert steps_to_rest(x) < 20
    assert x.a.state is State.CLOSED
    x = Ladder(idle_time=1)
    x.wait(1)
    assert (x.a.state, x.b.state) == (State.CLOSE_ACK_WAIT, State.QUIESCE)
    assert steps_to_rest(x) < 40
    assert (x.a.state, x.b.state) == (State.CLOSED, State.CLOSED)


def test_idle_time_longer_than_the_way_there() -> None:
    """pds.md §16: it rang in CREATING, to which it is nothing; ESTABLISHED begins with a packet."""
    x = Ladder(established=False, idle_time=MS, b={"idle_time": 0}, rto_init_time=8 * MS)
    x.a.send(1)
    x.wait(5 * MS)
    x.b.rx(x.a.sent("REQ"))
    x.a.rx(x.b.sent("ACK"))
    x.wait(MS - 1)
    assert x.a.state is State.ESTABLISHED
    x.wait(1)
    x.a.sent("CLOSE_CMD")


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
    for bad in ({"pdcid": 0}, {"pdcid": 1 << 16}, {"start_psn": 1 << 32}):
        with pytest.raises(LocalError):
            a.pds.preset(Preset(**bad))
    a.pds.adopt(B, Mode.RUD, True, Preset(pdcid=5))
    with pytest.raises(LocalError, match="in use"):
        a.pds.adopt(B, Mode.ROD, True, Preset(pdcid=5))


def test_rud_and_rod_never_share_a_pdc() -> None:
    """pds.md §18 item 28."""
    pair = Pair(bytearray(100))
    pair.write(bytes(10), mode=Mode.RUD)
    pair.write(bytes(10), mode=Mode.ROD)
    pair.run()
    assert {pdc.mode for pdc in pair.a.pds.pdcs.values()} == set(PDC_MODES)
    assert len(pair.b.pds.pdcs) == 2


def test_no_ack_is_ever_answered() -> None:
    """pds.md §18 item 33: ACK and NACK for strangers vanish."""
    pair = Pair(bytearray(100))
    pair.write(bytes(10))
    pair.run()
    pair.a.submit(Close(peer=B), pair.now)
    pair.run()
    answers = [data for source, data in pair.sent if source == B]
    for data in answers:
        assert type(parse(data)).__name__ == "Ack"
        pair.a.receive(Datagram(B, A, data), pair.now)
    assert pair.a.poll(pair.now) == []
    assert pair.a.pds.counters.no_pdc == len(answers)


def test_pdcids_that_rest_are_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """pds.md §6.3 row 6: closed PDCs rest for MSL; when all PDCIDs do, neither a peer nor SES makes it raise."""
    monkeypatch.setattr(pdc_pool, "_MAX_PDCID", 4)
    b = Fep(B, random.Random(1))

    def say(data: bytes) -> Ack | Nack:
        b.receive(Datagram(A, B, data), 0)
        answer = parse(bytes(b.poll(0)[0].header))
        assert isinstance(answer, Ack | Nack)
        return answer

    for spdcid in range(1, 5):
        opened = say(build_syn_control(CtlType.NOOP, 0, 0, 1, 500, spdcid, 0))
        say(build_control(CtlType.CLOSE_CMD, 0, 0, 1, 501, spdcid, opened.spdcid))
    refused = say(build_syn_control(CtlType.NOOP, 0, 0, 1, 500, 5, 0))
    assert isinstance(refused, Nack)
    assert (refused.code, refused.spdcid) == (NackCode.NO_PDC_AVAIL, 0)
    b.submit(Write(peer=A, data=b"x", key=1), 0)
    assert Paused(True) in b.events()
    assert b.poll(2000 * MS)[0].dst == A


def test_waiting_messages_keep_their_place() -> None:
    """pds.md §3: ROD is in order of submission, also when the first message had to wait for a PDC."""
    pair = Pair(bytearray(10), pds={"max_pdcs": 1})
    pair.write(b"0")
    pair.run()
    pair.a.submit(Write(peer=B + 1, data=b"1", key=KEY), pair.now)
    pair.close()
    for source, target in ((pair.a, pair.b), (pair.b, pair.a)):
        for packet in source.poll(pair.now):
            target.receive(packet, pair.now)
    pair.a.submit(Write(peer=B + 1, data=b"2", key=KEY), pair.now)
    assert [bytes(packet.payload) for packet in pair.a.poll(pair.now)] == [b"1", b"2"]


def test_close_before_the_first_ack() -> None:
    """pds.md §6.4 CREATING: the wish is remembered; what did not start waits for another PDC, from now on."""
    pair = Pair(bytearray(8_000_000), pds={"max_pdcs": 1})
    pair.now = 200 * MS
    for context in (1, 2):
        pair.write(bytes(5_000_000), context=context)
    pair.a.poll(pair.now, 1)
    pair.close()
    pair.run()
    ends = {event.context: event.ok for event in pair.a.events() if isinstance(event, Completion)}
    assert ends == {1: True, 2: True}


def test_rod_repeats_once_after_many_refusals() -> None:
    """pds.md §11.3: the pauses of several packets end together; go-back-N from the lowest repeats them all."""
    x = Ladder(Mode.ROD)
    x.a.send(4)
    for _ in range(4):
        x.a.sent("REQ")
    for psn in (334, 335, 336):
        x.a.rx_bytes(B, build_nack(NackCode.NO_PKT_BUFFER, 0, 0, psn, TPDCID, IPDCID))
    x.a.rx_bytes(B, build_ack(NextHdr.NONE, 0, 0, 0, 0, 333, TPDCID, IPDCID))
    x.wait(MS)
    for psn in (334, 335, 336):
        x.a.sent("REQ", psn=psn, retx=1)
    x.a.silent()


def test_a_slow_target_does_not_use_up_the_budget() -> None:
    """pds.md §11.2: RCVD_SES_PROCG sets rto_cnt to 0, in the answer to each ACK_REQ too."""
    pair = Pair(bytearray(10), ses={"write_latency": 500 * MS})
    pair.write(bytes(10), delivery_complete=True)
    pair.run()
    while not pair.a.pds.quiescent:
        pair.wait()
    assert [event.ok for event in pair.a.events() if isinstance(event, Completion)] == [True]
    assert 500 * MS <= pair.now < 502 * MS


def test_a_pause_that_ends_early_arms_the_rto() -> None:
    """pds.md §11.2: the packet is there after all, so its RTO counts again: earlier than the pause would have ended."""
    x = Ladder(nack_retx_time=8 * SECOND)
    x.a.send(1)
    x.a.sent("REQ")
    x.now = MS // 2
    for code in (NackCode.NO_RESOURCE, NackCode.RCVD_SES_PROCG):
        x.a.rx_bytes(B, build_nack(code, 0, 0, 333, TPDCID, IPDCID))
    x.wait(MS)
    x.a.sent("ACK_REQ", psn=333)


def test_both_ends_close() -> None:
    """pds.md §6.5 ACK_WAIT: while CLOSE_REQ is not acknowledged, no ACK covers the CLOSE_CMD (§18 item 32)."""
    x = Ladder()
    x.a.send(1)
    request = x.a.sent("REQ")
    x.b.rx(request)
    x.a.rx(x.b.sent("ACK"))
    x.b.submit(AskClose(pdcid=TPDCID))
    close_req = x.b.sent("CLOSE_REQ")
    x.a.submit(Close(peer=B))
    x.b.rx(x.a.sent("CLOSE_CMD", psn=334))
    assert x.b.state is State.ACK_WAIT
    x.b.silent()
    x.b.rx(request, retx=True)
    x.b.sent("ACK", ack=333, cack=333)
    x.b.rx_bytes(A, build_control(CtlType.ACK_REQ, 0, 0, 1, 334, IPDCID, TPDCID))
    x.b.sent("NACK", code=NackCode.RCVD_SES_PROCG)
    x.b.rx_bytes(A, build_control(CtlType.CLEAR_CMD, 0, 0, 0, 0, IPDCID, TPDCID, 334))
    assert x.b.pdc.rx.max_clear == 333
    x.a.rx(close_req)
    x.b.rx(x.a.sent("ACK", ack=48, cack=48))
    x.a.rx(x.b.sent("ACK", ack=334, cack=334))
    for end in (x.a, x.b):
        assert [event.error for event in end.pds.events() if isinstance(event, PdcClosed)] == [None]


def test_a_close_that_never_drains_ends() -> None:
    """pds.md §16, idle: CLOSE_CMD beyond a gap, after the idle time has rung once."""
    x = Ladder(idle_time=10 * MS)
    x.wait(10 * MS)
    x.b.rx_bytes(A, build_ack(NextHdr.NONE, 0, 0, 0, 0, 48, IPDCID, TPDCID))
    x.b.rx_bytes(A, build_control(CtlType.CLOSE_CMD, 0, 0, 1, 340, IPDCID, TPDCID))
    assert x.b.state is State.ACK_WAIT
    x.wait(20 * MS)
    assert x.b.state is State.CLOSED


def test_a_closed_pdc_keeps_no_responses() -> None:
    """pds.md §6.7: stored responses are released, though the tombstone stays for MSL."""
    x = Ladder()
    x.b.ses.otherwise = "gtd"
    x.a.send(3)
    for _ in range(3):
        x.b.rx(x.a.sent("REQ"))
    x.b.submit(AskClose(pdcid=TPDCID))
    assert x.b.pdc.rx.slots
    x.b.rx_bytes(A, build_nack(NackCode.UNEXP_EVENT, 0, 0, 48, IPDCID, TPDCID))
    assert x.b.state is State.CLOSED
    assert not x.b.pdc.rx.slots
    assert x.b.pds.deadline() is None


def test_clear_of_the_first_packet_in_a_long_message() -> None:
    """observed.md `clear_at` = message: as long as 16 bits of clear_psn_offset reach."""
    pair = Pair(bytearray(40_000 * 1024), pds={"clear_at": "message", "default_mpr": 255, "mp_range": 32640},
                ses={"payload_mtu": 1024})  # fmt: skip
    pair.write(bytes(40_000 * 1024))
    pair.run()
    assert [event.ok for event in pair.a.events() if isinstance(event, Completion)] == [True]


def test_a_request_takes_the_place_of_a_repeated_clear() -> None:
    """pds.md §9.3: the timer of a CLEAR that got lost is cancelled by a request that carries it."""
    x = Ladder()
    x.a.send(1)
    x.a.sent("REQ")
    x.a.rx_bytes(B, build_ack(NextHdr.NONE, 0, 0, AckReq.CLEAR, 1, 332, TPDCID, IPDCID))
    x.wait(MS)
    x.a.sent("CLEAR_CMD", payload=333)
    x.a.rx_bytes(B, build_ack(NextHdr.NONE, 0, 1, AckReq.CLEAR, 1, 332, TPDCID, IPDCID))
    x.a.send(1)
    x.a.sent("REQ", psn=334, clear=333)
    x.a.rx_bytes(B, build_ack(NextHdr.NONE, 0, 0, 0, 0, 334, TPDCID, IPDCID))
    x.wait(2 * MS)
    x.a.silent()


def test_the_psn_limit_hands_messages_on_at_once() -> None:
    """pds.md §2.2: what the full PDC does not start leaves on the new one in the same poll."""
    pair = Pair(bytearray(10))
    pair.write(bytes(10))
    pair.run()
    pdc = next(iter(pair.a.pds.pdcs.values()))
    pdc.tx.start = (pdc.tx.next - ((1 << 31) - (1 << 23))) & 0xFFFFFFFF
    for _ in range(3):
        pair.write(b"x")
    assert len([packet for packet in pair.a.poll(pair.now) if packet.payload]) == 3


def test_more_than_half_the_psns() -> None:
    """Limit_PSN_Range = 0: beyond Start_PSN + 2^31 duplicates are still answered, and ACKs believed."""
    x = Ladder(limit_psn_range=False)
    for half in (x.a.pdc.tx, x.b.pdc.rx):
        half.start = (333 - (1 << 31) - 5) & 0xFFFFFFFF
    x.a.send(1)
    request = x.a.sent("REQ")
    x.b.rx(request)
    lost = x.b.sent("ACK")
    x.b.rx(request, retx=True)
    x.a.rx(x.b.sent("ACK", ack=333, cack=333, retx=1))
    assert len(x.a.ses.responses) == 1
    x.a.rx(lost)
    assert x.a.pds.counters.bad_ack == 0


def test_timers_of_many_messages_are_few() -> None:
    """One entry a PDC counts; overtaken ones do not pile up during the idle time."""
    pair = Pair(bytearray(10))
    for _ in range(1500):
        pair.write(b"x")
        pair.run()
        pair.now += 2 * MS
        pair.run()
    assert len(pair.a.pds._wakes) <= 3


def test_a_deadline_may_be_early_but_never_late() -> None:
    """contract.Engine.deadline."""
    pair = Pair(bytearray(100_000))
    for mode in PDC_MODES:
        pair.write(bytes(50_000), mode=mode)
    packets = pair.a.poll(0)
    for packet in packets[3:]:
        pair.b.receive(packet, 0)
    for packet in pair.b.poll(0):
        pair.a.receive(packet, 0)
    for _ in range(50):
        told = pair.a.pds.deadline()
        real = min((pdc.deadline() for pdc in pair.a.pds.pdcs.values()), default=None)
        assert real is None or (told is not None and told <= real)
        if told is None:
            break
        pair.a.poll(told)
    assert not pair.a.pds.pdcs
