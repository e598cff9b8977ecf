# SPDX-License-Identifier: GPL-2.0-only
"""Deferrable sends between two endpoints: stops, tokens, restarts, reserved buffers (ses.md §5.7, §5.8)."""

from typing import Any

import pytest

from tests.support.engine.world import JOB, A, B
from tests.support.ses.headers import build_som
from tests.support.ses.operations import SECOND, Peers, content
from tests.support.ses.requests import NARROW, index_of
from uetproto.engine import Mode
from uetproto.engine.contract import Received, Send, SendKind
from uetproto.engine.pds.service import Refusal
from uetproto.engine.ses.headers import parse_ses_request
from uetproto.wire.headers.uet_pds import NackCode, NextHdr
from uetproto.wire.headers.uet_ses import Opcode, ResponseList, ResponseOpcode, ReturnCode


def restart(token: int = 1, *, theirs: int = 9, initiator: int = 16, job: int = JOB, eom: int = 1, at: int = 0) -> Any:
    header = build_som(Opcode.DEFERRABLE_RTR, 0, 0, 1, 0, eom, 5, job, 0, 15, at, initiator, theirs << 32 | token, 0, 0)
    return parse_ses_request(header, 0, NextHdr.REQUEST_STD)


def stopped(length: int = 20_000, **knobs: Any) -> Peers:
    x = Peers(ses=knobs)
    x.submit(Send(peer=0, data=content(length), mode=Mode.RUD, kind=SendKind.DEFERRABLE))
    x.run()
    return x


@pytest.mark.parametrize(
    "wrong",
    [{"token": 2}, {"initiator": 17}, {"job": JOB + 1}, {"eom": 0}, {"at": 5}, {"at": 4096 * 5}, {"at": 20_001}],
    ids=str,
)
def test_a_restart_that_is_none(wrong: dict[str, int]) -> None:
    """Token, owner, JobID; the restart position: nothing changes (ses.md §5.8)."""
    x = stopped()
    assert x.a.initiator.on_restart(restart(**wrong), x.now) is ReturnCode.OP_VIOLATION
    before = len(x.requests())
    x.run()
    assert len(x.requests()) == before
    assert x.a.initiator.on_restart(restart(), x.now) is None


@pytest.mark.parametrize("at", [0, 4096, 20_000])
def test_where_a_restart_begins(at: int) -> None:
    """ses.md §5.8: obey other values than 0 of buffer_offset (§17 row 13)."""
    x = stopped()
    x.sent.clear()
    x.b.target.fault = lambda request: ReturnCode.UNCOR  # the token here is not one of the other end
    assert x.a.initiator.on_restart(restart(at=at), x.now) is None
    x.run()
    first = x.requests()[0]
    assert (first.som, first.message_offset, first.tokens) == (1, 0, (2, 9))
    assert first.request_length == 20_000 - at
    data = next(data for source, data in x.sent if source == A)
    assert data[-len(content(20_000)[at : at + 4096]) :] == content(20_000)[at : at + 4096] or at == 20_000


def test_a_restart_before_the_answer_that_stops() -> None:
    """It is to come again: on RUD it may overtake that answer."""
    x = Peers()
    x.submit(Send(peer=0, data=content(20_000), mode=Mode.RUD, kind=SendKind.DEFERRABLE))
    x.a.poll(x.now)
    assert x.a.initiator.on_restart(restart(), x.now) == Refusal(NackCode.NO_RESOURCE)


def test_deferrable_that_is_truncated_is_not_stopped() -> None:
    """list EXPECTED: it has its buffer (ses.md §5.7 D2a)."""
    x = Peers()
    x.post(bytearray(5000))
    x.submit(Send(peer=0, data=content(20_000), mode=Mode.RUD, kind=SendKind.DEFERRABLE))
    x.settle()
    done = x.completion()
    assert (done.ok, done.modified) == (True, 5000)
    assert not x.a.initiator.deferrals  # its token is free


def test_a_stopped_message_ends() -> None:
    """D3: EOM without payload, the same opcode, message_offset = what was sent; the state of the message is gone."""
    x = Peers(pds=NARROW)
    x.submit(Send(peer=0, data=content(3_000_000), mode=Mode.RUD, kind=SendKind.DEFERRABLE))
    x.run()
    *before, end = x.requests()
    assert (end.opcode, end.eom, end.som, end.payload_length) == (Opcode.DEFERRABLE_SEND, 1, 0, 0)
    assert end.message_offset == 4096 * len(before) < 3_000_000
    assert not x.b.target.messages
    assert x.b.target.waiting  # a restart is to come


@pytest.mark.parametrize("stop_list", ["all", "first"])
def test_list_of_the_answers_that_stop(stop_list: str) -> None:
    """observed.md `stop_list`."""
    x = stopped(stop_list=stop_list)
    answers = [r for r in x.answers() if r.opcode == ResponseOpcode.RESPONSE]
    overflow = [r.list == ResponseList.OVERFLOW for r in answers]
    assert len(overflow) == 5
    assert overflow == ([True] * 5 if stop_list == "all" else [True] + [False] * 4)
    assert {(r.return_code, r.modified_length) for r in answers} == {(ReturnCode.OK, 0)}


@pytest.mark.parametrize("tokens", ["strict", "reuse"])
def test_what_a_restart_has_on_the_wire(tokens: str) -> None:
    """observed.md `deferral_tokens`: a new message with {T_i', T_t}, or the same id with {T_i, 0}."""
    x = stopped(deferral_tokens=tokens)
    first = x.requests()[0]
    x.sent.clear()
    x.post(bytearray(20_000))
    x.settle()
    again = x.requests()[0]
    (rtr,) = x.requests(B)
    if tokens == "strict":
        assert (first.tokens, rtr.rtr_tokens, again.tokens) == ((1, 0), (1, 1), (2, 1))
        assert again.message_id != first.message_id
    else:
        assert (first.tokens, rtr.rtr_tokens, again.tokens) == ((0, 0), (0, 0), (0, 0))
        assert again.message_id == first.message_id
    assert x.completion().ok


def test_most_pending_deferrals() -> None:
    """ses.md §5.7 D2b: no entry is left: NO_MATCH."""
    x = Peers(ses={"max_pending_deferrals": 2})
    for _ in range(3):
        x.submit(Send(peer=0, data=content(20), mode=Mode.RUD, kind=SendKind.DEFERRABLE))
    x.run()
    assert [r.return_code for r in x.answers()].count(ReturnCode.NO_MATCH) == 1
    assert index_of(x).pending == 2


def test_a_part_of_a_buffer_is_reserved() -> None:
    """What a stopped message does not need is for others (ses.md §5.5, §15 item 30)."""
    x = Peers()
    x.submit(Send(peer=0, data=b"\1" * 30, mode=Mode.RUD, kind=SendKind.DEFERRABLE))
    x.run()
    into = bytearray(100)
    x.post(into, least=10)
    x.submit(Send(peer=0, data=b"\2" * 20, mode=Mode.RUD))
    x.settle()
    assert into[:50] == b"\1" * 30 + b"\2" * 20
    assert {(got.start, got.length) for got in x.received()} == {(0, 30), (30, 20)}


@pytest.mark.parametrize(
    "wrong", [{"source": 3}, {"initiator": 17}, {"job": JOB + 1}, {"token": 2}], ids=lambda wrong: next(iter(wrong))
)
def test_a_restart_of_another(wrong: dict[str, int]) -> None:
    """Unknown T_t, another owner: OP_VIOLATION, and the buffer stays reserved (ses.md §5.7 D6, §15 item 29)."""
    x = stopped(8)
    x.b.attach(JOB + 1)
    x.b.initiator.submit = lambda job, now: None  # type: ignore[method-assign]
    x.b.target.queues.begin = lambda job, now: None
    into = bytearray(8)
    x.post(into)

    class Pdc:
        mode, peer, local_id = Mode.RUD, wrong.get("source", A), 77

    tokens = 2 << 32 | wrong.get("token", 1)
    job, initiator = wrong.get("job", JOB), wrong.get("initiator", 16)
    header = build_som(Opcode.DEFERRABLE_SEND, 0, 0, 1, 0, 1, 9, job, 0, 15, tokens, initiator, 0, 0, 8)
    answer = x.b.target.on_request(Pdc(), 1, NextHdr.REQUEST_STD, header, 0, b"intruder", x.now)
    assert answer.header[1] == ReturnCode.OP_VIOLATION  # type: ignore[union-attr]
    assert into == bytes(8)
    assert 1 in x.b.target.queues._tokens


def test_nobody_restarts_into_a_reserved_buffer() -> None:
    """The receive ends in error when no restart comes: counted from the RTR on (ses.md §5.7)."""
    x = stopped(8)
    x.now += 3 * SECOND
    x.post(bytearray(8))
    x.a.initiator.on_restart = lambda request, now: None  # type: ignore[method-assign]
    x.a.target.restart = lambda request, now: None
    x.run()
    begun = x.now
    x.now = begun + 4 * SECOND
    x.run()
    assert x.received() == []
    x.now = begun + 5 * SECOND
    x.run()
    (got,) = x.received()
    assert got.return_code is ReturnCode.DROPPED


def test_a_refused_restart_ends_its_receive() -> None:
    """Nobody knows the message any more: the receive need not wait (ses.md §5.8)."""
    x = stopped(8)
    x.a.initiator.deferrals.clear()
    x.post(bytearray(8))
    x.run()
    (got,) = x.received()
    assert (got.return_code, got.length) == (ReturnCode.OP_VIOLATION, 0)


def test_received_of_a_deferred_send_tells_its_tag() -> None:
    x = Peers()
    x.submit(Send(peer=0, data=content(20), tag=9, mode=Mode.RUD, kind=SendKind.DEFERRABLE))
    x.run()
    x.post(bytearray(20), tag=9)
    x.settle()
    (got,) = [event for event in x.b.events() if isinstance(event, Received)]
    assert (got.tag, got.length, got.return_code) == (9, 20, ReturnCode.OK)
