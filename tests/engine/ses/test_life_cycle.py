# SPDX-License-Identifier: GPL-2.0-only
"""The life of a message at its initiator (ses.md §12): each row of the table, and retries."""

import heapq
import random
from itertools import pairwise
from typing import Any

import pytest

from tests.support.engine.world import JOB, KEY
from tests.support.ses.requests import MTU, SLOW, A, B, Pair
from tests.support.ses.world import MS, SECOND, US, Loss
from uetproto.engine import Mode
from uetproto.engine.contract import Completion, Send, SendKind, Write
from uetproto.engine.pds.service import Refusal
from uetproto.engine.ses.transfer import MESSAGE, MessageInput, MessageState, MessageTransfer
from uetproto.wire.headers.uet_pds import NackCode, NextHdr
from uetproto.wire.headers.uet_ses import Opcode, ReturnCode

S, I, C = MessageState, MessageInput, ReturnCode  # noqa: E741


# The table ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> list[tuple[MessageState, MessageInput, MessageState]]:
    """{state, input, next state} of all that happens."""
    found: list[tuple[MessageState, MessageInput, MessageState]] = []
    step = MessageTransfer.step

    def watched(self: MessageTransfer, event: MessageInput, now: int) -> None:
        before, after = self.state, MESSAGE[self.state, event][1]
        found.append((before, event, after))
        step(self, event, now)

    monkeypatch.setattr(MessageTransfer, "step", watched)
    return found


LONG = 40 * MTU


def _plain() -> Pair:
    """A message of two packets: one that is sent as a whole passes both states at once."""
    x = Pair()
    x.do(Write(peer=0, data=bytes(MTU + 1), key=KEY))
    x.settle()
    return x


def _windowed(**ses: Any) -> Pair:
    """A few packets leave, then answers come: the message is still being sent."""
    return Pair(pds={"default_mpr": 1}, loss=SLOW, **ses)


def _hold_back(x: Pair, packets: int = 4) -> None:
    """Lets a few packets out, and then time for their answers."""
    for packet in x.a.poll(x.now, packets):
        x._sent(packet)
        x._carry(packet)
    at = x.now + 15 * US
    while (due := x.wire) and due[0][0] <= at:
        _deliver(x)


def _deliver(x: Pair) -> None:
    at, _, packet = heapq.heappop(x.wire)
    x.now = max(x.now, at)
    x.feps[packet.dst].receive(packet, x.now)
    for out in x.b.poll(x.now):
        x._sent(out)
        x._carry(out)


def _refused_while_sending(kind: str) -> Pair:
    x = Pair(loss=SLOW, unexpected_policy="refuse")
    if kind == "REFUSED":
        x.submit(A, Write(peer=B, job_id=JOB, data=bytes(LONG), key=5, mode=Mode.RUD))
    elif kind == "REFUSED_FOR_NOW":
        x.submit(A, Send(peer=B, job_id=JOB, data=bytes(LONG), mode=Mode.RUD))
    elif kind == "STALE":
        x.index().generation = 9
        x.post()
        x.submit(A, Send(peer=B, job_id=JOB, data=bytes(LONG), mode=Mode.RUD))
    elif kind == "STOPPED":
        x.submit(A, Send(peer=B, job_id=JOB, data=bytes(LONG), mode=Mode.RUD, kind=SendKind.DEFERRABLE))
    _hold_back(x)
    _hold_back(x)
    if kind in ("REFUSED_FOR_NOW", "STOPPED"):
        x.post()
    x.settle()
    return x


def _no_network(after: int) -> Pair:
    """PDS gives up: all packets after so many are lost."""
    x = Pair(loss=SLOW)
    x.submit(A, Write(peer=B, job_id=JOB, data=bytes(LONG if after else 1), key=KEY, mode=Mode.RUD))
    return x


def _lose_all(x: Pair) -> Pair:
    x.lost = lambda packet: True
    x.settle()
    return x


def _pds_error_waiting() -> Pair:
    return _lose_all(_no_network(0))


def _pds_error_sending() -> Pair:
    """The window is shut, and nothing is acknowledged."""
    x = Pair(pds={"default_mpr": 1, "mp_range": 128}, loss=SLOW)
    x.submit(A, Write(peer=B, job_id=JOB, data=bytes(300 * MTU), key=KEY, mode=Mode.RUD))
    return _lose_all(x)


def _pds_error_queued() -> Pair:
    """Behind another message of the same PDC, which never gets out."""
    x = Pair(pds={"default_mpr": 1, "mp_range": 128}, loss=SLOW)
    x.submit(A, Write(peer=B, job_id=JOB, data=bytes(300 * MTU), key=KEY, mode=Mode.ROD))
    x.submit(A, Write(peer=B, job_id=JOB, data=bytes(1), key=KEY, mode=Mode.ROD))
    return _lose_all(x)


def _pds_error_draining() -> Pair:
    x = Pair(loss=SLOW)
    x.submit(A, Write(peer=B, job_id=JOB, data=bytes(LONG), key=5, mode=Mode.RUD))
    _hold_back(x)
    _hold_back(x)
    return _lose_all(x)


def _single(kind: str) -> Pair:
    """The answer comes after the last packet."""
    x = Pair(unexpected_policy="refuse", message_retry_limit=2)
    if kind == "REFUSED":
        x.do(Write(peer=0, data=b"x", key=5))
    elif kind == "STALE":
        x.index().generation = 9
        x.post()
        x.send()
    else:
        x.send(mode=Mode.RUD, kind=SendKind.DEFERRABLE if kind == "STOPPED" else SendKind.PLAIN)
        x.run(MS)
        x.post()
    x.settle()
    return x


def _never(kind: SendKind) -> Pair:
    x = Pair(unexpected_policy="refuse", message_retry_limit=2)
    x.send(bytes(4 * MTU), mode=Mode.RUD, kind=kind)
    x.settle()
    return x


def _unread_rendezvous() -> Pair:
    """The target answers the eager part, and never reads."""
    x = Pair()
    x.post()
    x.b.target.queues.begin = lambda job, now: None
    x.send(bytes(4 * MTU), kind=SendKind.RENDEZVOUS)
    x.run(20 * SECOND)
    return x


SCENARIOS = {
    (S.QUEUED, I.FIRST_SENT): (S.SENDING, _plain),
    (S.QUEUED, I.PDS_ERROR): (S.ERROR, _pds_error_queued),
    (S.SENDING, I.LAST_SENT): (S.WAIT, _plain),
    (S.SENDING, I.REFUSED): (S.DRAIN, lambda: _refused_while_sending("REFUSED")),
    (S.SENDING, I.REFUSED_FOR_NOW): (S.BACKOFF, lambda: _refused_while_sending("REFUSED_FOR_NOW")),
    (S.SENDING, I.STALE): (S.QUEUED, lambda: _refused_while_sending("STALE")),
    (S.SENDING, I.STOPPED): (S.DEFERRED, lambda: _refused_while_sending("STOPPED")),
    (S.SENDING, I.PDS_ERROR): (S.ERROR, _pds_error_sending),
    (S.WAIT, I.REFUSED): (S.DRAIN, lambda: _single("REFUSED")),
    (S.WAIT, I.REFUSED_FOR_NOW): (S.BACKOFF, lambda: _single("REFUSED_FOR_NOW")),
    (S.WAIT, I.STALE): (S.QUEUED, lambda: _single("STALE")),
    (S.WAIT, I.STOPPED): (S.DEFERRED, lambda: _single("STOPPED")),
    (S.WAIT, I.COMPLETE): (S.DONE, _plain),
    (S.WAIT, I.TIMEOUT): (S.ERROR, _unread_rendezvous),
    (S.WAIT, I.PDS_ERROR): (S.ERROR, _pds_error_waiting),
    (S.BACKOFF, I.TIME): (S.QUEUED, lambda: _never(SendKind.PLAIN)),
    (S.BACKOFF, I.EXHAUSTED): (S.ERROR, lambda: _never(SendKind.PLAIN)),
    (S.DEFERRED, I.RESTART): (S.QUEUED, lambda: _single("STOPPED")),
    (S.DEFERRED, I.TIMEOUT): (S.ERROR, lambda: _never(SendKind.DEFERRABLE)),
    (S.DRAIN, I.LAST_SENT): (S.DRAIN, lambda: _refused_while_sending("REFUSED")),
    (S.DRAIN, I.COMPLETE): (S.ERROR, lambda: _single("REFUSED")),
    (S.DRAIN, I.PDS_ERROR): (S.ERROR, _pds_error_draining),
}
"""What drives each row of ses.md §12, and the state after it."""


SILENT = {(S.DRAIN, I.REFUSED)}
"""Rows of the engine's table that it does not take: in DRAIN the first error stays (§9.3)."""


def test_table_has_the_rows_of_the_page() -> None:
    assert set(SCENARIOS) == set(MESSAGE) - SILENT
    assert {pair: after for pair, (_, after) in MESSAGE.items() if pair not in SILENT} == {
        pair: after for pair, (after, _) in SCENARIOS.items()
    }


@pytest.mark.parametrize("pair", SCENARIOS, ids=lambda pair: f"{pair[0].name}-{pair[1].name}")
def test_row(pair: tuple[MessageState, MessageInput], steps: list[Any]) -> None:
    """The input comes in that state, leads where the page says, and each operation completes once."""
    after, scenario = SCENARIOS[pair]
    x = scenario()
    assert (*pair, after) in steps
    assert len(x.completions()) == len(x.log.submitted)
    assert not x.a.initiator.transfers
    assert not x.a.initiator.messages


@pytest.mark.parametrize("kind", ["REFUSED", "REFUSED_FOR_NOW", "STALE"])
def test_msg_error_ends_what_was_not_sent(kind: str) -> None:
    """§12, §5.12: MSG_ERROR if EOM was not sent; message_offset tells how much was."""
    x = _refused_while_sending(kind)
    ends = [p for p in x.log.packets if p.request.opcode == Opcode.MSG_ERROR]
    assert len(ends) == 1
    request = ends[0].request
    sent = [p for p in x.log.packets if p.request.message_id == request.message_id]
    assert (request.som, request.eom, ends[0].payload, sent[-1]) == (0, 1, 0, ends[0])
    assert request.message_offset == sum(p.payload for p in sent) < LONG
    assert x.a.quiescent
    assert not x.b.target.messages


def test_stop_ends_with_its_own_opcode() -> None:
    """§5.7 D3."""
    x = _refused_while_sending("STOPPED")
    first = [p for p in x.log.packets if p.src == A and p.request.message_id == x.log.packets[0].request.message_id]
    last = first[-1]
    assert (last.request.opcode, last.request.eom, last.request.som, last.payload) == (Opcode.DEFERRABLE_SEND, 1, 0, 0)
    assert last.request.message_offset == sum(p.payload for p in first) < LONG
    assert x.completions()[0].ok


# Retry ----------------------------------------------------------------------------------------------------------------


def test_back_off_doubles() -> None:
    """A first wait of 50–100 ms, doubled each time; a new message each time (§12)."""
    x = Pair(unexpected_policy="refuse", message_retry_limit=5)
    times: list[int] = []
    sent = x._sent

    def watch(packet: Any) -> None:
        before = len(x.log.packets)
        sent(packet)
        if len(x.log.packets) > before:
            times.append(x.now)

    x._sent = watch  # type: ignore[method-assign]
    x.send(mode=Mode.RUD)
    x.settle()
    waits = [after - before for before, after in pairwise(times)]
    assert len(waits) == 5
    first = waits[0]
    assert 50 * MS <= first <= 101 * MS
    for n, wait in enumerate(waits):
        assert abs(wait - (first << n)) < MS
    assert len({p.request.message_id for p in x.log.packets}) == 6
    (done,) = x.completions()
    assert (done.return_code, done.refusals, done.ok) == (C.NO_MATCH, 6, False)


def test_first_waits_differ() -> None:
    """Drawn at random, so that not all come again at once."""
    x = Pair(unexpected_policy="refuse", message_retry_limit=1)
    for n in range(8):
        x.send(mode=Mode.RUD, context=n)
    at: list[int] = []
    x.listeners.append(lambda address, event: at.append(x.now) if isinstance(event, Completion) else None)
    x.settle()
    assert len(set(at)) == 8
    assert all(50 * MS <= time <= 101 * MS for time in at)


@pytest.mark.parametrize("limit", [1, 10])
def test_retry_limit(limit: int) -> None:
    x = Pair(unexpected_policy="refuse", message_retry_limit=limit)
    x.send(mode=Mode.RUD)
    x.settle()
    (done,) = x.completions()
    assert not done.ok
    assert len(x.log.packets) == limit + 1


def test_no_retry_limit() -> None:
    x = Pair(unexpected_policy="refuse", message_retry_limit=0, backoff_limit=SECOND)
    x.send(mode=Mode.RUD)
    x.run(60 * SECOND)
    assert x.completions() == []
    x.post()
    x.settle()
    (done,) = x.completions()
    assert done.ok
    assert done.refusals > 20


@pytest.mark.parametrize("times", [255, 256, 257])
def test_bad_generation_in_a_row(times: int) -> None:
    """At most 256 of them are repaired; they are no refusals (§12)."""
    x = Pair()
    x.post()
    x.index().generation = 1
    left = [times - 1]
    on_request = x.b.on_request

    def move(*arguments: Any) -> Any:
        answer = on_request(*arguments)
        if left[0] and arguments[2] == NextHdr.REQUEST_STD:
            left[0] -= 1
            x.index().generation = (x.index().generation + 1) & 0xFF
        return answer

    x.b.on_request = move  # type: ignore[method-assign,assignment]
    x.send(mode=Mode.RUD)
    x.settle()
    (done,) = x.completions()
    assert done.ok == (times <= 256)
    assert done.refusals == 0
    if not done.ok:
        assert done.return_code is C.BAD_GENERATION


def test_generation_is_kept_for_the_next_message() -> None:
    x = Pair()
    x.index().generation = 9
    for _ in range(2):
        x.post()
        x.send()
        x.settle()
    assert [p.request.ri_generation for p in x.log.packets] == [0, 9, 9]


@pytest.mark.parametrize("count", [2, 7])
@pytest.mark.parametrize("seed", range(4))
def test_order_on_rod(count: int, seed: int) -> None:
    """Sends refused while others are under way are matched in the order of submission (§2.4, §12)."""
    rng = random.Random(seed)
    x = Pair(unexpected_policy="refuse", loss=Loss(0.1, 0.1, US, 30 * US), message_retry_limit=0)
    posted = []
    for n in range(count):
        x.send(bytes([n]) * rng.choice([1, MTU, 3 * MTU]), mode=Mode.ROD)
        x.run(rng.choice([0, 5 * US, 50 * US]))
        if rng.random() < 0.5:
            posted.append(x.post())
    while len(posted) < count:
        posted.append(x.post())
        x.run(rng.choice([0, 100 * MS]))
    x.settle()
    assert [receive.into[0] for receive in posted] == list(range(count))
    assert all(done.ok for done in x.completions())


def test_refusal_is_not_seen_by_ses() -> None:
    """Step 11 of §10 is a NACK: PDS repeats the packet, the message is not refused."""
    x = Pair(max_rx_messages=1, pds={"max_nack_retx_cnt": 31})
    seen = []
    on_request = x.b.on_request

    def look(*arguments: Any) -> Any:
        seen.append(on_request(*arguments))
        return seen[-1]

    x.b.on_request = look  # type: ignore[method-assign,assignment]
    x.loss = Loss(0.3, 0, US, 30 * US)
    for n in range(3):
        x.do(Write(peer=0, data=bytes([n]) * 3 * MTU, key=KEY, offset=3 * n * MTU, mode=Mode.RUD, context=n))
    x.settle()
    assert [(done.ok, done.refusals) for done in x.completions()] == [(True, 0)] * 3
    assert Refusal(NackCode.NO_SES_MSG_AVAIL) in seen


def test_what_a_generation_refused_makes_room() -> None:
    """§2.4: its packets are refused one by one. Those that found no room left no trace, and the late one is alone."""
    x = Pair(max_rx_messages=1, pds={"max_nack_retx_cnt": 31})
    x.index().generation = 9
    x.post()
    sent = iter(range(1000))
    x.lost = lambda packet: packet.src == A and next(sent) in (1, 2)  # the end of the write, the beginning of the send
    x.do(Write(peer=0, data=bytes(2 * MTU), key=KEY, mode=Mode.RUD))
    x.send(bytes(3 * MTU), mode=Mode.RUD)
    x.run(SECOND)
    assert [done.ok for done in x.completions()] == [True, True]
    assert not x.b.target.messages
