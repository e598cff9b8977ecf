"""The life of a message at its initiator (ses.md §12): each row of the table, retries, deferral, rendezvous, errors."""

import heapq
import random
from itertools import pairwise
from typing import Any

import pytest

from tests.ses.world import MS, SECOND, US, Loss, World
from uetproto.engine import Close, Mode, Region, SesConfig
from uetproto.engine.contract import (
    Addressed,
    Atomic,
    Completion,
    Event,
    MessageFailed,
    Receive,
    Received,
    Send,
    SendKind,
    Write,
)
from uetproto.engine.messages import Ack, Nack, parse
from uetproto.engine.service import Refusal, Response
from uetproto.engine.ses_headers import build_later, build_som, parse_ses_response
from uetproto.engine.ses_opcodes import Space
from uetproto.engine.ses_process import IndexState
from uetproto.engine.ses_transfer import MESSAGE, MessageInput, MessageState, Transfer
from uetproto.wire.uet_pds import NackCode, NextHdr
from uetproto.wire.uet_ses import AtomicDatatype, AtomicOpcode, Opcode, ReturnCode

A, B, JOB, KEY, MTU = 1, 2, 101, 0x0001000000000007, 1024
S, I, C = MessageState, MessageInput, ReturnCode  # noqa: E741


class Pair(World):
    """A sends, B receives; both have a process of the job, B a region."""

    def __init__(self, *, pds: dict[str, Any] | None = None, loss: Loss | None = None, **ses: Any) -> None:
        super().__init__((A, B), ses=ses, mtu=MTU, pds=pds, loss=loss)
        self.a, self.b = self.feps[A], self.feps[B]
        self.mine, self.theirs = self.a.attach(JOB), self.b.attach(JOB)
        self.region = self.theirs.register(Region(KEY, self.memory(bytearray(64 * MTU))))

    def send(self, data: bytes = b"x", **fields: Any) -> None:
        self.do(Send(peer=B, data=data, **fields))

    def do(self, work: Addressed) -> None:
        work.peer, work.job_id = B, JOB
        self.submit(A, work)
        self.poll()

    def post(self, size: int = 64 * MTU, **fields: Any) -> Receive:
        receive = Receive(into=bytearray(size), job_id=JOB, **fields)
        self.submit(B, receive)
        self.poll()
        return receive

    def completions(self) -> list[Completion]:
        return [event for event in self.events[A] if isinstance(event, Completion)]

    def received(self) -> list[Received]:
        return [event for event in self.events[B] if isinstance(event, Received)]

    def index(self, space: Space = Space.SEND) -> Any:
        return self.theirs.spaces[space][15]

    def ask_b(self, header: bytes, payload: bytes = b"", mode: Mode = Mode.RUD) -> Any:
        """A request from nowhere, between PDS and SES."""
        return self._ask(self.b, header, payload, mode)

    def ask_a(self, header: bytes, payload: bytes = b"", mode: Mode = Mode.RUD) -> Any:
        return self._ask(self.a, header, payload, mode)

    def _ask(self, fep: Any, header: bytes, payload: bytes, mode: Mode) -> Any:
        pdc = _Pdc(mode)
        answer = fep.target.on_request(pdc, 1, NextHdr.REQUEST_STD, header, 0, payload, self.now)
        if isinstance(answer, Response):
            return ReturnCode(parse_ses_response(answer.header, answer.next_hdr).return_code)
        return answer


class _Pdc:
    def __init__(self, mode: Mode, peer: int = B) -> None:
        self.mode, self.peer, self.local_id = mode, peer, 4711


# The table -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> list[tuple[MessageState, MessageInput, MessageState]]:
    """{state, input, next state} of all that happens."""
    found: list[tuple[MessageState, MessageInput, MessageState]] = []
    step = Transfer.step

    def watched(self: Transfer, event: MessageInput, now: int) -> None:
        before, after = self.state, MESSAGE[self.state, event][1]
        found.append((before, event, after))
        step(self, event, now)

    monkeypatch.setattr(Transfer, "step", watched)
    return found


LONG = 40 * MTU
SLOW = Loss(0, 0, 10 * US, 10 * US)


def _plain() -> Pair:
    x = Pair()
    x.do(Write(peer=0, data=b"abc", key=KEY))
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


# Retry ---------------------------------------------------------------------------------------------------------------


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


# Deferral (ses.md §5.7, §5.8) -----------------------------------------------------------------------------------------


def restart(x: Pair, *, token: int, initiator: int = 16, job: int = JOB, theirs: int = 7, offset: int = 0) -> Any:
    """A DEFERRABLE_RTR, as it comes to the initiator."""
    return x.ask_a(build_som(Opcode.DEFERRABLE_RTR, 0, 0, 1, 0, 1, 3, job, 0, 15, offset, initiator,
                             theirs << 32 | token, 0, 0))  # fmt: skip


def deferred() -> tuple[Pair, int]:
    """A message that waits for its restart, and its token."""
    x = Pair()
    x.send(bytes(4 * MTU), mode=Mode.RUD, kind=SendKind.DEFERRABLE)
    x.run(MS)
    (transfer,) = x.a.initiator.transfers
    assert transfer.state is S.DEFERRED
    assert transfer.token
    return x, transfer.token


@pytest.mark.parametrize(
    "wrong",
    [{"token": 999}, {"token": 0}, {"initiator": 17}, {"job": 202}, {"offset": 5}, {"offset": 5 * MTU}],
    ids=str,
)
def test_bad_restart_changes_nothing(wrong: dict[str, int]) -> None:
    """Token, owner, JobID (§5.8); a restart position inside a packet (§17 item 13)."""
    x, token = deferred()
    x.a.attach(202)
    assert restart(x, **{"token": token, **wrong}) is C.OP_VIOLATION
    (transfer,) = x.a.initiator.transfers
    assert (transfer.state, transfer.token) == (S.DEFERRED, token)
    x.post()
    x.settle()
    assert x.completions()[0].ok
    assert x.received()[0].length == 4 * MTU


def test_restart_of_what_is_not_deferred() -> None:
    x, token = deferred()
    x.post()
    x.settle()
    assert x.completions()[0].ok
    assert restart(x, token=token) is C.OP_VIOLATION


def test_used_token_of_an_initiator() -> None:
    x, token = deferred()
    assert restart(x, token=token) is C.OK
    x.poll()
    assert restart(x, token=token) is C.OP_VIOLATION


@pytest.mark.parametrize("at", [0, 2 * MTU, 4 * MTU])
def test_restart_position(at: int) -> None:
    """§5.8: the bytes that the target holds are not sent again."""
    x, token = deferred()
    before = len(x.log.packets)
    assert restart(x, token=token, offset=at) is C.OK
    x.poll()
    later = x.log.packets[before:]
    assert sum(p.payload for p in later) == 4 * MTU - at
    assert later[0].request.tokens[1] == 7


@pytest.mark.parametrize("token", ["unknown", "used", "other job", "other owner", "other source"])
def test_bad_token_of_a_restarted_message(token: str) -> None:
    """§5.7 D6: OP_VIOLATION; the buffer stays reserved."""
    x = Pair()
    x.send(bytes(2 * MTU), mode=Mode.RUD, kind=SendKind.DEFERRABLE)
    x.run(MS)
    if token != "used":
        x.lost = lambda packet: packet.src == B
    receive = x.post(2 * MTU)
    if token == "used":
        x.settle()
    x.b.attach(202)
    job = 202 if token == "other job" else JOB
    initiator = 99 if token == "other owner" else 16
    number = 55 if token == "unknown" else 1
    header = build_som(Opcode.DEFERRABLE_SEND, 0, 0, 1, 0, 1, 77, job, 0, 15, 9 << 32 | number, initiator, 0, 0, MTU)
    pdc = _Pdc(Mode.RUD, 3 if token == "other source" else A)
    answer = x.b.target.on_request(pdc, 1, NextHdr.REQUEST_STD, header, 0, b"z" * MTU, x.now)
    assert isinstance(answer, Response)
    assert parse_ses_response(answer.header, answer.next_hdr).return_code == C.OP_VIOLATION
    assert b"z" not in receive.into
    x.lost = lambda packet: False
    x.settle()
    assert x.completions()[0].ok
    assert [event.receive for event in x.received()] == [receive]


def test_restart_gets_the_reserved_buffer() -> None:
    """§15 item 30: whatever was posted, or came, in between."""
    x = Pair(loss=SLOW)
    data = bytes(range(256)) * 16
    x.send(data, mode=Mode.RUD, kind=SendKind.DEFERRABLE)
    x.run(MS)
    first = x.post(len(data))
    second = x.post(len(data))
    x.send(b"another")
    x.settle()
    found = {bytes(event.receive.into[: event.length]): event.receive for event in x.received()}
    assert found == {data: first, b"another": second}


def test_restart_overtakes_the_stop() -> None:
    """The RTR comes before the answer that stops the message: it is asked for again, and nothing is lost."""
    x = Pair(loss=SLOW)
    stops = [2]

    def lose_stop(packet: Any) -> bool:
        message = parse(bytes(packet.header) + bytes(packet.payload))
        if packet.src == B and isinstance(message, Ack) and stops[0]:
            stops[0] -= 1
            return True
        return False

    x.lost = lose_stop
    x.send(b"x" * MTU, mode=Mode.RUD, kind=SendKind.DEFERRABLE)
    x.run(30 * US)
    nacks = []
    carry = x._carry
    x._carry = lambda packet: (nacks.append(packet) if _is_nack(packet) else None, carry(packet))[1]  # type: ignore[method-assign,func-returns-value]
    receive = x.post(MTU)
    x.settle()
    assert nacks
    assert x.completions()[0].ok
    assert receive.into == b"x" * MTU


def _is_nack(packet: Any) -> bool:
    message = parse(bytes(packet.header) + bytes(packet.payload))
    return packet.src == A and isinstance(message, Nack) and message.code == NackCode.NO_RESOURCE


def test_pending_deferrals_have_a_limit() -> None:
    """8 of them; then NO_MATCH (§5.7 D2b)."""
    x = Pair()
    for n in range(9):
        x.send(bytes([n]), mode=Mode.RUD, kind=SendKind.DEFERRABLE)
    x.run(MS)
    states = [t.state for t in x.a.initiator.transfers]
    assert states == [S.DEFERRED] * 8 + [S.BACKOFF]
    for _ in range(9):
        x.post()
    x.settle()
    assert all(done.ok for done in x.completions())


def test_deferral_is_forgotten_at_both_ends() -> None:
    """5000 ms: the initiator completes with an error; a later receive meets nothing (§5.7)."""
    x = Pair()
    x.send(mode=Mode.RUD, kind=SendKind.DEFERRABLE)
    x.run(5001 * MS)
    (done,) = x.completions()
    assert done.timed_out
    x.post()
    x.settle()
    assert x.received() == []
    assert not [p for p in x.log.packets if p.request.opcode == Opcode.DEFERRABLE_RTR]


# Rendezvous (ses.md §5.9) ---------------------------------------------------------------------------------------------


def test_rendezvous_whose_read_fails() -> None:
    """The receive completes in error; the initiator learns of it by time only."""
    x = Pair(rendezvous_time=SECOND)
    x.post()
    x.send(bytes(4 * MTU), kind=SendKind.RENDEZVOUS)
    for region in x.mine.regions.values():
        region.remote_read = False
    x.settle()
    (got,) = x.received()
    assert got.return_code is C.PERM_VIOLATION
    (done,) = x.completions()
    assert done.timed_out
    assert SECOND <= x.now <= 2 * SECOND
    assert not x.mine.regions


def test_rendezvous_that_is_truncated() -> None:
    """The target has all that it has room for, and says so in modified_length (§9.4)."""
    x = Pair()
    receive = x.post(3 * MTU)
    x.send(bytes([7]) * 8 * MTU, kind=SendKind.RENDEZVOUS)
    x.settle()
    (got,) = x.received()
    assert (got.return_code, got.length) == (C.OK, 3 * MTU)
    assert receive.into == bytes([7]) * 3 * MTU
    (done,) = x.completions()
    assert done.ok
    assert done.modified == 3 * MTU


# Held messages (ses.md §11.2) -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("mode", "code"), [(Mode.RUD, C.NO_MATCH), (Mode.ROD, C.DISABLED_GEN)])
@pytest.mark.parametrize("limit", ["messages", "bytes"])
def test_held_messages_have_a_limit(mode: Mode, code: ReturnCode, limit: str) -> None:
    """64 messages, 1 MiB by default; then NO_MATCH on RUD, DISABLED_GEN on ROD."""
    assert (SesConfig().unexpected_messages, SesConfig().unexpected_bytes) == (64, 1 << 20)
    x = Pair() if limit == "messages" else Pair(unexpected_bytes=64 * MTU)
    sizes = [1] * 65 if limit == "messages" else [32 * MTU, 32 * MTU, 1]
    for size in sizes:
        x.send(bytes(size), mode=mode)
        x.run(10 * MS)
    codes = [r.return_code for asked in x.log.asked for r, _ in asked.answers]
    assert set(codes) == {code}
    assert len(x.index().held) == len(sizes) - 1
    assert (x.index().state is IndexState.DISABLED_GEN) == (mode is Mode.ROD)
    for size in sizes:
        x.post(size)
    x.settle()
    assert [done.ok for done in x.completions()] == [True] * len(sizes)
    if mode is Mode.ROD:
        assert [event.message_length for event in x.received()] == sizes
    assert x.index().held_bytes == 0


# The target's side: time, close, MSG_ERROR, ie ------------------------------------------------------------------------


def two_packets(opcode: int = Opcode.WRITE, key: int = KEY) -> tuple[bytes, bytes]:
    """Headers of a message of 2 MTU."""
    address = (9, JOB, 0, 15, 0, 16, key)
    return (build_som(opcode, 0, 0, 1, 0, 0, *address, 0, 2 * MTU),
            build_later(opcode, 0, 0, 1, 0, 1, *address, MTU, MTU, 2 * MTU))  # fmt: skip


def msg_error(som: int = 0, eom: int = 1, offset: int = MTU, message_id: int = 9, key: int = KEY) -> bytes:
    address = (message_id, JOB, 0, 15, 0, 16, key)
    if som:
        return build_som(Opcode.MSG_ERROR, 0, 0, 1, 0, eom, *address, 0, 2 * MTU)
    return build_later(Opcode.MSG_ERROR, 0, 0, 1, 0, eom, *address, 0, offset, 2 * MTU)


def failures(x: Pair) -> list[ReturnCode]:
    x.poll()
    return [event.return_code for event in x.events[B] if isinstance(event, MessageFailed)]


def test_msg_error_of_no_message() -> None:
    """§5.12 rule 1."""
    assert Pair().ask_b(msg_error()) is C.OP_VIOLATION


@pytest.mark.parametrize(("som", "eom"), [(1, 1), (0, 0), (1, 0)])
def test_msg_error_flags(som: int, eom: int) -> None:
    """§5.12 rule 2; the message is not harmed."""
    x = Pair()
    first, second = two_packets()
    assert x.ask_b(first, bytes(MTU)) is C.OK
    assert x.ask_b(msg_error(som, eom)) is C.OP_VIOLATION
    assert x.ask_b(second, bytes(MTU)) is C.OK


def test_second_msg_error() -> None:
    """§5.12 rule 3: the bytes before it are still missing, so the message is still known."""
    x = Pair()
    _, second = two_packets()
    later = build_later(Opcode.WRITE, 0, 0, 1, 0, 0, 9, JOB, 0, 15, 0, 16, KEY, MTU, MTU, 4 * MTU)
    assert second
    assert x.ask_b(later, bytes(MTU)) is C.OK
    end = build_later(Opcode.MSG_ERROR, 0, 0, 1, 0, 1, 9, JOB, 0, 15, 0, 16, KEY, 0, 3 * MTU, 4 * MTU)
    assert x.ask_b(end) is C.INITIATOR_ERROR
    assert x.ask_b(end) is C.OP_VIOLATION
    assert x.b.target.messages


@pytest.mark.parametrize("order", ["before", "after"])
def test_msg_error_of_a_good_message(order: str) -> None:
    """§5.12 rule 4: the receive completes with INITIATOR_ERROR, when all bytes that were sent are there."""
    x = Pair()
    receive = x.post()
    first = build_som(Opcode.SEND, 0, 0, 1, 0, 0, 9, JOB, 0, 15, 0, 16, 0, 0, 4 * MTU)
    second = build_later(Opcode.SEND, 0, 0, 1, 0, 0, 9, JOB, 0, 15, 0, 16, 0, MTU, MTU, 4 * MTU)
    end = build_later(Opcode.MSG_ERROR, 0, 0, 1, 0, 1, 9, JOB, 0, 15, 0, 16, 0, 0, 2 * MTU, 4 * MTU)
    assert x.ask_b(first, bytes(MTU)) is C.OK
    if order == "before":
        assert x.ask_b(end) is C.INITIATOR_ERROR
        x.poll()
        assert x.received() == []
        assert x.ask_b(second, bytes(MTU)) is C.INITIATOR_ERROR
    else:
        assert x.ask_b(second, bytes(MTU)) is C.OK
        assert x.ask_b(end) is C.INITIATOR_ERROR
    x.poll()
    (got,) = x.received()
    assert (got.receive, got.return_code) == (receive, C.INITIATOR_ERROR)
    assert not x.b.target.messages


def test_msg_error_of_a_failed_message() -> None:
    """§5.12 rule 4: the first error is echoed."""
    x = Pair()
    first, _ = two_packets(key=5)
    assert x.ask_b(first, bytes(MTU)) is C.BAD_MKEY
    assert x.ask_b(msg_error(key=5)) is C.BAD_MKEY
    assert failures(x) == [C.BAD_MKEY]
    assert not x.b.target.messages


@pytest.mark.parametrize("which", [0, 1])
def test_initiator_error_flag(which: int) -> None:
    """§5.13: memory is left alone, never RC_OK, the message completes in error."""
    x = Pair()
    receive = x.post()
    headers = [bytearray(h) for h in two_packets(Opcode.SEND, 0)]
    headers[which][1] |= 0x10
    codes = [x.ask_b(bytes(h), b"y" * MTU) for h in headers]
    assert codes[which] is C.INITIATOR_ERROR
    assert receive.into[which * MTU : (which + 1) * MTU] == bytes(MTU)
    x.poll()
    (got,) = x.received()
    assert got.return_code is C.INITIATOR_ERROR


def test_ie_after_another_error() -> None:
    """It is recorded only if the message has no earlier error."""
    x = Pair()
    first, second = two_packets(key=5)
    assert x.ask_b(first, bytes(MTU)) is C.BAD_MKEY
    late = bytearray(second)
    late[1] |= 0x10
    assert x.ask_b(bytes(late), bytes(MTU)) is C.BAD_MKEY


@pytest.mark.parametrize("opcode", [Opcode.WRITE, Opcode.SEND])
def test_idle_message(opcode: Opcode) -> None:
    """State that gets no packet is dropped after 5000 ms (§7.2); its receive ends in error."""
    x = Pair()
    if opcode is Opcode.SEND:
        x.post()
    first, _ = two_packets(opcode, KEY if opcode is Opcode.WRITE else 0)
    assert x.ask_b(first, bytes(MTU)) is C.OK
    x.run(4999 * MS)
    assert x.b.target.messages
    x.run(10 * MS)
    assert not x.b.target.messages
    assert [event.return_code for event in x.received()] == ([C.DROPPED] if opcode is Opcode.SEND else [])


def test_close_with_messages_under_way() -> None:
    """A PDC that ends in error takes its messages with it, at both ends; each completes once."""
    x = Pair(pds={"default_mpr": 1, "mp_range": 128}, loss=SLOW)
    x.post()
    x.submit(A, Send(peer=B, job_id=JOB, data=bytes(300 * MTU), mode=Mode.ROD, context="cut"))
    x.run(30 * US)
    assert x.b.target.messages
    x.lost = lambda packet: True
    x.run(60 * SECOND)
    (done,) = x.completions()
    assert done.error is not None
    assert done.return_code is C.UNDELIVERABLE
    assert not x.b.target.messages
    assert [event.return_code for event in x.received()] == [C.DROPPED]


def test_close_waits_for_messages() -> None:
    """An orderly close: what was submitted before it completes (pds.md §6.4)."""
    x = Pair(loss=SLOW)
    x.do(Write(peer=0, data=bytes(20 * MTU), key=KEY))
    x.submit(A, Close(peer=B))
    x.settle()
    assert [done.ok for done in x.completions()] == [True]


def test_held_message_outlives_its_pdc() -> None:
    """It is whole: a receive takes it still."""
    x = Pair()
    x.send(b"held", mode=Mode.RUD)
    x.run(MS)
    x.lost = lambda packet: True
    (pdc,) = x.b.pds.pdcs.values()
    x.b.on_closed(pdc)
    receive = x.post()
    x.poll()
    assert receive.into[:4] == b"held"


# Completion levels (ses.md §13.1, §13.2) ------------------------------------------------------------------------------

LATENCY = 50 * US


def _works() -> dict[str, Any]:
    one = (1).to_bytes(8, "little")
    return {
        "write": Write(peer=0, data=b"x" * 3 * MTU, key=KEY),
        "small write": Write(peer=0, data=b"x", key=KEY),
        "rudi write": Write(peer=0, data=b"x", key=1 << 63 | 9, mode=Mode.RUDI),
        "send": Send(peer=0, data=b"x" * 3 * MTU),
        "truncated send": Send(peer=0, data=b"x" * 100 * MTU),
        "atomic": Atomic(peer=0, opcode=AtomicOpcode.SUM, datatype=AtomicDatatype.UINT64, data=one, key=KEY),
        "fetching atomic": Atomic(peer=0, opcode=AtomicOpcode.SUM, datatype=AtomicDatatype.UINT64, data=one, key=KEY,
                                  result=bytearray(8)),
        "sync write": Write(peer=0, data=b"x", key=KEY, sync=(1, 1)),
    }  # fmt: skip


@pytest.mark.parametrize("complete", [False, True])
@pytest.mark.parametrize("kind", _works())
def test_delivery_complete(kind: str, complete: bool) -> None:
    """With dc the answer waits until the effect is observable, without it does not."""
    x = Pair(write_latency=LATENCY, sync_operations=True)
    x.theirs.register(Region(1 << 63 | 9, bytearray(64)))
    x.post(64 * MTU)
    work = _works()[kind]
    work.delivery_complete = complete
    at: list[int] = []

    def listen(address: int, event: Event) -> None:
        if isinstance(event, Completion):
            at.append(x.now)

    x.listeners.append(listen)
    x.do(work)
    x.settle()
    assert x.completions()[0].ok
    assert (at[0] >= LATENCY) == complete


def test_delivery_complete_of_a_held_message() -> None:
    x = Pair(write_latency=LATENCY)
    x.send(b"x", delivery_complete=True)
    x.run(MS)
    posted = x.now
    x.post()
    at: list[int] = []
    x.listeners.append(lambda address, event: at.append(x.now) if isinstance(event, Completion) else None)
    x.settle()
    assert at[0] >= posted + LATENCY


def test_all_packets_have_the_same_dc() -> None:
    """§13.2."""
    x = Pair(write_latency=LATENCY)
    x.do(Write(peer=0, data=bytes(5 * MTU), key=KEY, delivery_complete=True))
    x.settle()
    assert {p.request.dc for p in x.log.packets} == {1}


def test_truncated_to_nothing() -> None:
    """§9.4: modified_length is what was written, also when that is nothing."""
    x = Pair()
    x.post(0)
    x.send(b"ten bytes!")
    x.settle()
    (done,) = x.completions()
    assert done.ok
    assert done.modified == 0


def test_error_in_a_sync_group() -> None:
    """§5.14: an error in any message makes the one that ends the group fail; not only when its time is over."""
    x = Pair(sync_operations=True)
    x.do(Write(peer=0, data=b"x", key=5, sync=(1, 0), mode=Mode.RUD, context="bad"))
    x.do(Write(peer=0, data=b"y", key=KEY, sync=(1, 2), mode=Mode.RUD, completion_data=1, context="end"))
    x.run(SECOND)
    codes = {done.context: done.return_code for done in x.completions()}
    assert codes["bad"] is C.BAD_MKEY
    assert "end" in codes
    assert codes["end"] is not C.OK


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
