"""Rules of ses.md that a change of one line would break: numbers, limits, flags, turns."""

import random
import struct
from itertools import pairwise
from typing import Any

import pytest

from tests.engine.test_ses_operations import MODES, SECOND, Peers, content
from tests.engine.world import JOB, KEY, A, B
from uetproto.engine import Completion, Datagram, Mode, Region, SesConfig
from uetproto.engine.contract import (
    MILLISECOND,
    NEVER,
    Atomic,
    MessageFailed,
    Nop,
    PdcErrorReason,
    PdsError,
    Read,
    Receive,
    Received,
    RemoteWrite,
    Send,
    SendKind,
    Write,
)
from uetproto.engine.messages import parse
from uetproto.engine.service import Refusal
from uetproto.engine.ses_headers import (
    SesRequest,
    Sync,
    build_later,
    build_response_data,
    build_som,
    parse_extensions,
    parse_ses_request,
)
from uetproto.engine.ses_lanes import Lane
from uetproto.engine.ses_opcodes import Space
from uetproto.engine.ses_process import IndexState
from uetproto.engine.ses_returns import ReturnData
from uetproto.engine.ses_segments import Reassembly
from uetproto.engine.ses_sync import SyncGroups
from uetproto.engine.ses_target import default_response
from uetproto.errors import LocalError
from uetproto.wire.uet_pds import NackCode, NextHdr
from uetproto.wire.uet_ses import AtomicDatatype, AtomicOpcode, Opcode, ResponseList, ResponseOpcode, ReturnCode

SAFE = 1 << 63 | 5
NARROW = {"default_mpr": 1, "mp_range": 128}
"""A window of 128 packets: a long message is not all sent when the first answer comes."""


def refuse_first(x: Peers, count: int, code: ReturnCode) -> None:
    """The first `count` requests are answered with `code`."""
    seen = []

    def fault(request: SesRequest) -> ReturnCode | None:
        seen.append(request)
        return code if len(seen) <= count else None

    x.b.target.fault = fault


def refused_by_opcode(x: Peers, opcode: int, code: ReturnCode) -> None:
    x.b.target.fault = lambda request: code if request.opcode == opcode else None


def completions(x: Peers) -> list[Completion]:
    return [event for event in x.a.events() if isinstance(event, Completion)]


def index_of(x: Peers, space: Space = Space.SEND) -> Any:
    return x.process.spaces[space][15]


# Initiator: ids, retries (ses.md §3, §12) ----------------------------------------------------------------------------


def test_message_ids_go_round() -> None:
    """Neither 0 nor 0xffff is ever allocated (ses.md §3)."""
    x = Peers()
    x.a.initiator._next_id = 0xFFFE
    for _ in range(2):
        x.submit(Nop(peer=0))
    x.settle()
    assert [r.message_id for r in x.requests()] == [0xFFFE, 1]


@pytest.mark.parametrize(("times", "ok"), [(2, True), (256, True), (257, False)])
def test_generations_in_a_row(times: int, ok: bool) -> None:
    """At most 256 repairs in a row; they do not count as refusals (ses.md §12)."""
    x = Peers(ses={"message_retry_limit": 1})
    x.post(bytearray(1000), least=1)
    refuse_first(x, times, ReturnCode.BAD_GENERATION)
    x.submit(Send(peer=0, data=b"x", mode=Mode.RUD))
    x.settle(1000)
    done = x.completion()
    assert (done.ok, done.refusals) == (ok, 0)
    assert done.return_code is (ReturnCode.OK if ok else ReturnCode.BAD_GENERATION)


def test_no_limit_of_refusals() -> None:
    """0: unlimited (ses.md §16)."""
    x = Peers(ses={"message_retry_limit": 0, "backoff_limit": SECOND})
    refuse_first(x, 15, ReturnCode.UNCOR_TRNSNT)
    x.submit(Write(peer=0, data=b"x", key=KEY))
    x.settle(2000)
    done = x.completion()
    assert (done.ok, done.refusals) == (True, 15)


def test_waits_double_up_to_their_limit() -> None:
    """ses.md §12: a first wait between 50 and 100 ms, doubled, with an upper bound."""
    x = Peers(ses={"backoff_limit": 300 * MILLISECOND})
    at: list[int] = []

    def fault(request: SesRequest) -> ReturnCode | None:
        at.append(x.now)
        return ReturnCode.UNCOR_TRNSNT if len(at) < 6 else None

    x.b.target.fault = fault
    x.submit(Write(peer=0, data=b"x", key=KEY))
    x.settle(1000)
    waits = [(b - a) / MILLISECOND for a, b in pairwise(at)]
    assert 50 <= waits[0] <= 101
    assert waits[1] == pytest.approx(2 * waits[0], abs=1)
    assert waits[2] == pytest.approx(min(4 * waits[0], 300), abs=1)
    assert waits[3:] == pytest.approx([300, 300], abs=1)


def test_generation_of_a_service_is_that_of_all_jobs() -> None:
    """An absolute address has no JobID (ses.md §2.2)."""
    x = Peers()
    service = x.b.attach(None, 7)
    service.spaces[Space.SEND][15].generation = 3
    for job in (1, 2):
        x.b.submit(Receive(into=bytearray(9), job_id=None, pid_on_fep=7), x.now)
        x.a.submit(Send(peer=B, data=b"x", job_id=job, pid_on_fep=7, relative=False), x.now)
        x.settle()
    assert [done.ok for done in completions(x)] == [True, True]
    assert [r.return_code for r in x.answers()].count(ReturnCode.BAD_GENERATION) == 1


def test_turns_in_a_lane() -> None:
    """ses.md §12: whatever the order in which refusals come, the oldest message goes first."""

    class Numbered:
        def __init__(self, number: int) -> None:
            self.number = number

    one, two, three, late = (Numbered(n) for n in (1, 2, 3, 4))
    lane: Any = Lane()
    assert not any(lane.holds_back(sent) for sent in (one, two, three))
    assert lane.is_oldest(one)
    assert not lane.refuse(two)  # the answer of `one` is not known yet
    assert lane.refuse(one)
    assert not lane.refuse(three)
    assert lane.refused == [one, two, three]
    assert lane.holds_back(late)
    assert lane.leave(one) == [two]
    assert lane.leave(two) == [three]
    assert lane.leave(three) == [late]
    assert lane.is_oldest(late)
    assert lane.leave(late) == []
    assert not lane.open


@pytest.mark.parametrize("hd_in", ["all", "som"])
def test_where_hd_is(hd_in: str) -> None:
    """observed.md `hd_in`; the packet that ends a message early is one of its packets (ses.md §7.1 item 6)."""
    x = Peers(ses={"hd_in": hd_in}, pds=NARROW)
    x.submit(Write(peer=0, data=bytes(12_000), key=KEY, completion_data=0))
    x.settle()
    later = int(hd_in == "all")
    assert [r.hd for r in x.requests()] == [1, later, later]
    x.sent.clear()
    x.submit(Write(peer=0, data=bytes(3_000_000), key=5, completion_data=0))
    x.settle()
    *_, end = x.requests()
    assert (end.opcode, end.hd, end.eom) == (Opcode.MSG_ERROR, later, 1)


def test_where_a_message_ends_early() -> None:
    """message_offset of MSG_ERROR: the bytes handed to PDS before it (ses.md §5.12)."""
    x = Peers(pds=NARROW)
    x.submit(Write(peer=0, data=bytes(3_000_000), key=5))
    x.settle()
    *before, end = x.requests()
    assert end.opcode == Opcode.MSG_ERROR
    assert end.message_offset == 4096 * len(before) < 3_000_000
    assert not x.b.target.messages


def give(x: Peers, packet: Datagram) -> None:
    """Takes a packet to the other end."""
    data = bytes(packet.header) + bytes(packet.payload)
    x.sent.append((packet.src, data))
    end = x.b if packet.dst == B else x.a
    end.receive(Datagram(packet.src, packet.dst, data, entropy=packet.entropy), x.now)


def test_rudi_has_no_msg_error() -> None:
    """ses.md §5.1: MSG_ERROR is for RUD and ROD."""
    x = Peers(ses={"profile": "hpc"})
    x.submit(Write(peer=0, data=bytes(20_000), key=SAFE, mode=Mode.RUDI))
    (packet,) = x.a.poll(x.now, 1)
    give(x, packet)
    for answer in x.b.poll(x.now):
        give(x, answer)
    x.settle()
    assert x.completion().return_code is ReturnCode.BAD_MKEY
    assert [r.opcode for r in x.requests()] == [Opcode.WRITE] * 5


def test_the_first_error_stays() -> None:
    """ses.md §9.3: other errors of the same message do not count."""
    x = Peers()
    x.submit(Write(peer=0, data=bytes(8192), key=5))
    first, second = x.a.poll(x.now)
    give(x, first)
    x.b.detach(x.process)
    give(x, second)
    x.settle()
    assert [r.return_code for r in x.answers()] == [ReturnCode.BAD_MKEY, ReturnCode.BAD_JOB_ID]
    assert x.completion().return_code is ReturnCode.BAD_MKEY


def test_a_generation_that_moves_behind_a_refused_message() -> None:
    """The younger one waits for its turn; it was not refused (ses.md §12)."""
    x = Peers(ses={"unexpected_policy": "refuse"})
    for n in range(2):
        x.submit(Send(peer=0, data=bytes([n]), context=n))
    one, two = x.a.poll(x.now)
    give(x, one)
    for answer in x.b.poll(x.now):
        give(x, answer)
    into = [bytearray(1), bytearray(1)]
    for buffer in into:
        x.post(buffer)
    give(x, two)
    x.settle()
    assert b"".join(into) == b"\0\1"
    assert [(done.context, done.ok, done.refusals) for done in completions(x)] == [(0, True, 1), (1, True, 0)]


def test_repairs_count_in_a_row() -> None:
    """ses.md §12: at most 256 in a row; a refusal for another reason breaks it."""
    x = Peers()
    x.post(bytearray(1000), least=1)
    seen: list[SesRequest] = []

    def fault(request: SesRequest) -> ReturnCode | None:
        seen.append(request)
        if len(seen) == 201:
            return ReturnCode.UNCOR_TRNSNT
        return ReturnCode.BAD_GENERATION if len(seen) < 402 else None

    x.b.target.fault = fault
    x.submit(Send(peer=0, data=b"x", mode=Mode.RUD))
    x.settle(2000)
    done = x.completion()
    assert (done.ok, done.refusals) == (True, 1)


def test_rma_sends_no_generation() -> None:
    """Whatever a target says about it (ses.md §2.4)."""
    x = Peers()
    index_of(x, Space.RMA).generation = 5
    refuse_first(x, 1, ReturnCode.BAD_GENERATION)
    x.submit(Write(peer=0, data=b"x", key=KEY))
    x.settle()
    assert x.completion().ok
    assert [r.ri_generation for r in x.requests()] == [0, 0]


def test_a_retry_waits_for_a_message_id() -> None:
    """All ids are taken when its back-off ends (ses.md §3)."""
    x = Peers()
    refuse_first(x, 1, ReturnCode.UNCOR_TRNSNT)
    x.submit(Write(peer=0, data=b"x", key=KEY))
    x.run()

    class Other:
        pdc, psn = None, 0

        def __init__(self, message_id: int) -> None:
            self.message_id = message_id

    initiator = x.a.initiator
    others: Any = {n: Other(n) for n in range(1, 0xFFFF)}
    initiator.messages.update(others)
    x.now += SECOND
    x.run()
    assert len(x.requests()) == 1
    initiator.forget(others[500])
    x.run()
    assert [r.message_id for r in x.requests()] == [1, 500]
    assert x.completion().ok


def test_an_answer_with_the_id_of_another_message() -> None:
    """Ignored and counted (ses.md §9.3)."""
    x = Peers()

    def other_id(request: SesRequest) -> ReturnCode:
        request.message_id = 999
        return ReturnCode.BAD_MKEY

    x.b.target.fault = other_id
    x.submit(Write(peer=0, data=b"x", key=KEY))
    x.settle()
    assert x.a.initiator.bad_responses == 1


# Return data (ses.md §9.6) -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("at", "value", "code"),
    [
        (4, JOB + 1, ReturnCode.BAD_JOB_ID), (10, 4000, ReturnCode.OP_VIOLATION), (12, 77, ReturnCode.OP_VIOLATION),
        (16, 9000, ReturnCode.OP_VIOLATION), (16, 8191, ReturnCode.OP_VIOLATION), (8, 99, ReturnCode.UNDELIVERABLE),
    ],
    ids=["job", "payload_length", "modified_length", "offset", "end", "id"],
)  # fmt: skip
def test_return_data_that_is_not_that_of_the_read(at: int, value: int, code: ReturnCode) -> None:
    """JobID of the read; offset and length in it; modified_length its request_length (ses.md §5.4, §10)."""
    x = Peers(bytearray(content(4096 * 2)))
    send = x.b.target.returns.send

    def changed(pdc: Any, psn: int, next_hdr: int, header: bytes, *rest: Any) -> Any:
        size = 2 if at in (8, 10) else 4
        return send(pdc, psn, next_hdr, header[:at] + value.to_bytes(size, "big") + header[at + size :], *rest)

    x.b.target.returns.send = changed  # type: ignore[method-assign,assignment]
    into = bytearray(8192)
    x.submit(Read(peer=0, into=into, key=KEY))
    x.run()
    codes = {r.return_code for r in x.answers(A)}
    assert code in codes
    assert codes <= {code, ReturnCode.OP_VIOLATION}
    assert into == bytes(8192)
    assert not any(done.ok for done in completions(x))


def test_return_data_on_another_pdc() -> None:
    """A message is known by its PDC too (ses.md §9.6: the same PDC)."""
    x = Peers(bytearray(content(8192)))
    into = bytearray(8192)
    x.submit(Read(peer=0, into=into, key=KEY))
    x.a.poll(x.now)
    header = build_response_data(1, JOB, 4096, 8192, 0)
    answer = x.a.on_request(Here(), 1, NextHdr.RESPONSE_DATA, header, 0, bytes(4096), x.now)
    assert answer.header[1] == ReturnCode.UNDELIVERABLE  # type: ignore[union-attr]
    assert x.a.initiator.bad_responses == 1


def test_what_may_be_read_again() -> None:
    """Data of a read; of a fetching atomic the stored value must be repeated (ses.md §9.6)."""
    x = Peers()
    for opcode, extension, payload, again in (
        (Opcode.READ, b"", b"", True), (Opcode.FETCHING_ATOMIC, bytes((2, 7, 2, 0)), bytes(8), False),
    ):  # fmt: skip
        answer = x.b.target.on_request(Here(), 1, NextHdr.REQUEST_STD, som(opcode, 8), 0, extension + payload, x.now)
        assert (answer.gtd, answer.rereadable) == (True, again)  # type: ignore[union-attr]


def test_who_hears_that_a_region_was_read() -> None:
    """All bytes, in ACKs and in the return direction (ses.md §5.4)."""
    x = Peers(bytearray(20_000))
    read: list[int] = []
    x.region.on_read = lambda size, now: read.append(size)
    for length in (10, 9000):
        x.submit(Read(peer=0, into=bytearray(length), key=KEY))
        x.settle()
        assert sum(read) == length
        read.clear()


def test_all_data_goes_the_same_way() -> None:
    """Also a short last packet, in the return direction, when the read does not fit an ACK (ses.md §9.6)."""
    x = Peers(bytearray(content(5000)))
    into = bytearray(4100)
    x.submit(Read(peer=0, into=into, key=KEY))
    x.settle()
    assert into == content(5000)[:4100]
    carriers = [parse(data) for source, data in x.sent if source == B]
    with_data = [c for c in carriers if getattr(c, "next_hdr", NextHdr.NONE) == NextHdr.RESPONSE_DATA]
    assert [type(c).__name__ for c in with_data] == ["Request", "Request"]


# Restarts (ses.md §5.7, §5.8) ----------------------------------------------------------------------------------------


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


# Messages without a buffer (ses.md §11.2) ----------------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
def test_an_atomic_is_not_held(mode: Mode) -> None:
    """hold is for SEND, TAGGED_SEND and rendezvous."""
    x = Peers()
    x.submit(Atomic(peer=0, opcode=AtomicOpcode.SUM, datatype=AtomicDatatype.UINT8, data=b"a", tag=3, mode=mode))
    x.run()
    (answer,) = x.answers()
    assert answer.return_code == (ReturnCode.NO_MATCH if mode is Mode.RUD else ReturnCode.DISABLED_GEN)
    into = bytearray(1)
    x.post(into, tag=3)
    x.settle()
    assert x.completion().ok
    assert into == b"a"


def test_an_atomic_is_not_truncated() -> None:
    """A target location that is too short: BAD_ADDR, whatever is done with sends (ses.md §10 step 14)."""
    x = Peers()
    into = bytearray(3)
    x.post(into, tag=3)
    x.submit(Atomic(peer=0, opcode=AtomicOpcode.SUM, datatype=AtomicDatatype.UINT32, data=b"abcd", tag=3))
    x.settle()
    assert x.completion().return_code is ReturnCode.BAD_ADDR
    assert into == bytes(3)


def test_alignment_inside_a_receive() -> None:
    """ses.md §6.3: the address is that in the buffer, behind what came before."""
    x = Peers()
    x.post(bytearray(64), tag=3, least=1)
    for datatype, data in ((AtomicDatatype.UINT8, b"a"), (AtomicDatatype.UINT32, b"abcd")):
        x.submit(Atomic(peer=0, opcode=AtomicOpcode.SUM, datatype=datatype, data=data, tag=3))
    x.settle()
    assert [done.return_code for done in completions(x)] == [ReturnCode.OK, ReturnCode.AMO_UNALIGNED]


def test_how_much_is_held() -> None:
    """Bytes and messages of a queue; room comes back with each receive, and with a bad end (ses.md §16)."""
    x = Peers(ses={"unexpected_bytes": 100, "message_retry_limit": 1, "backoff_limit": 100 * MILLISECOND})
    for _ in range(3):
        x.submit(Send(peer=0, data=bytes(40), mode=Mode.RUD))
    x.run()
    codes = [r.return_code for r in x.answers() if r.opcode == ResponseOpcode.RESPONSE]
    assert codes == [ReturnCode.NO_MATCH]
    assert index_of(x).held_bytes == 80
    for left in (40, 0):
        x.post(bytearray(40))
        assert index_of(x).held_bytes == left
    x.post(bytearray(40))
    x.settle()
    assert [done.ok for done in completions(x)] == [True] * 3
    # A held message whose source gives up
    refused_by_opcode(x, Opcode.NO_OP, ReturnCode.OK)
    x.submit(Send(peer=0, data=bytes(90), mode=Mode.RUD))
    x.run()
    assert index_of(x).held_bytes == 90
    (message,) = list(index_of(x).held)
    x.b.target.queues.drop_held(message, ReturnCode.DROPPED)
    assert index_of(x).held_bytes == 0


def test_stopped_messages_do_not_count_as_held() -> None:
    x = Peers(ses={"unexpected_messages": 1})
    x.submit(Send(peer=0, data=bytes(40), mode=Mode.RUD, kind=SendKind.DEFERRABLE))
    x.submit(Send(peer=0, data=bytes(40), mode=Mode.RUD))
    x.run()
    assert len(index_of(x).held) == 2
    assert ReturnCode.NO_MATCH not in [r.return_code for r in x.answers()]


def test_posting_does_not_undo_its_owner() -> None:
    """DISABLED stays until it is enabled; DISABLED_GEN does not (ses.md §2.4)."""
    x = Peers()
    index_of(x).disable()
    x.post(bytearray(9))
    assert index_of(x).state is IndexState.DISABLED
    x.submit(Send(peer=0, data=b"x"))
    x.settle()
    assert x.completion().return_code is ReturnCode.DISABLED


def test_generations_go_round() -> None:
    """modulo 256 (ses.md §2.4)."""
    x = Peers(ses={"unexpected_policy": "refuse"})
    index_of(x).generation = 255
    x.a.initiator.generations[B, JOB, 0, Space.SEND, 15] = 255
    x.submit(Send(peer=0, data=b"x"))
    x.run()
    (answer,) = x.answers()
    assert (answer.return_code, answer.ri_generation) == (ReturnCode.DISABLED_GEN, 255)  # §9.2: the current one
    x.post(bytearray(1))
    assert index_of(x).generation == 0
    x.settle()
    assert x.completion().ok


@pytest.mark.parametrize(("knob", "told"), [("always", 5), ("on_error", 0)])
def test_generation_in_good_answers(knob: str, told: int) -> None:
    """observed.md `response_generation`."""
    x = Peers(ses={"response_generation": knob})
    index_of(x).generation = index_of(x, Space.RMA).generation = 5
    x.a.initiator.generations[B, JOB, 0, Space.SEND, 15] = 5
    x.post(bytearray(9000))
    x.submit(Send(peer=0, data=bytes(9000)))
    x.submit(Nop(peer=0))
    x.settle()
    assert [done.ok for done in completions(x)] == [True, True]
    assert {r.ri_generation for r in x.answers()} == {told}


def test_datagrams_have_no_generation() -> None:
    """ses.md §2.4."""
    x = Peers()
    into = bytearray(9)
    x.post(into)
    index_of(x).generation = 4
    x.submit(Send(peer=0, data=b"x", mode=Mode.UUD))
    x.settle()
    assert into[:1] == b"x"


def test_offset_in_a_receive() -> None:
    """A buffer_offset that is not 0 starts that many bytes into the buffer (ses.md §2.8), and takes its room."""
    x = Peers()
    into = bytearray(10)
    x.post(into)
    x.submit(Send(peer=0, data=b"abcdefgh", offset=4))
    x.settle()
    assert into == bytes(4) + b"abcdef"
    assert x.completion().modified == 6
    y = Peers(ses={"truncation_policy": "refuse"})
    y.post(bytearray(10))
    y.submit(Send(peer=0, data=b"abcdefgh", offset=4))
    y.settle()
    assert y.completion().return_code is ReturnCode.TOO_LONG


def test_truncated_in_a_later_packet() -> None:
    """Each answer says what is written (ses.md §9.4), also those before the last."""
    x = Peers()
    x.post(bytearray(5000))
    x.submit(Send(peer=0, data=content(12_288)))
    x.settle()
    assert [(r.opcode, r.modified_length) for r in x.answers()] == [(ResponseOpcode.RESPONSE, 5000)] * 3


def test_a_buffer_of_one_job() -> None:
    """ses.md §2.2: an absolute service, a buffer for one client."""
    x = Peers()
    x.b.attach(None, 7)
    into = bytearray(9)
    x.b.submit(Receive(into=into, job_id=None, pid_on_fep=7, only_job=1), x.now)
    for job in (2, 1):
        x.a.submit(Send(peer=B, data=b"x", job_id=job, pid_on_fep=7, relative=False, mode=Mode.RUD), x.now)
        x.settle()
    assert [done.return_code for done in completions(x)] == [ReturnCode.BAD_JOB_ID, ReturnCode.OK]


def test_queue_of_receives_has_an_end() -> None:
    x = Peers(ses={"rx_size": 2})
    for _ in range(2):
        x.post(bytearray(1))
    with pytest.raises(LocalError, match="rx_size"):
        x.post(bytearray(1))
    x.post(bytearray(1), tag=1)  # a queue of its own


def test_wildcards_are_hpc() -> None:
    """ses.md §4.3."""
    x = Peers(ses={"profile": "ai_full"})
    with pytest.raises(LocalError, match="ignore"):
        x.post(bytearray(1), tag=1, ignore=1)
    x.post(bytearray(1), tag=1)


def test_a_held_message_outlives_its_pdc() -> None:
    """It is whole: a receive may still take it."""
    x = Peers()
    x.submit(Send(peer=0, data=b"hello", mode=Mode.RUD))
    x.run()
    for pdc in list(x.b.pds.pdcs.values()):
        x.b.on_closed(pdc)
    answered: list[int] = []
    x.b.target.late = lambda pdc, psn, answer, now: answered.append(psn)
    into = bytearray(5)
    x.post(into)
    x.b.target.on_time(x.now)
    assert into == b"hello"
    assert answered == []  # there is nobody to answer
    assert [got.return_code for got in x.received()] == [ReturnCode.OK]


def test_half_a_held_message_does_not_rest() -> None:
    """ses.md §7.2: idle state is dropped, unless all is there and waits for a receive."""
    x = Peers()
    x.submit(Send(peer=0, data=bytes(8192), mode=Mode.RUD))
    first, _ = x.a.poll(x.now)
    x.submit(Send(peer=0, data=bytes(10), mode=Mode.RUD))
    whole = x.a.poll(x.now)[0]
    for packet in (first, whole):
        x.b.receive(Datagram(A, B, bytes(packet.header) + bytes(packet.payload), entropy=packet.entropy), x.now)
    assert len(index_of(x).held) == 2
    x.b.poll(x.now + 6 * SECOND)
    assert [message.length for message in index_of(x).held] == [10]


# Sync groups (ses.md §5.14) ------------------------------------------------------------------------------------------


def synced(**knobs: Any) -> Peers:
    return Peers(ses={"sync_operations": True, **knobs})


def member(x: Peers, total: int = 0, group: int = 7, **fields: Any) -> None:
    data = fields.pop("data", b"w")
    x.submit(Write(peer=0, data=data, key=KEY, sync=(group, total), mode=Mode.RUD, context=total, **fields))
    x.run()


def test_second_end_of_a_sync_group() -> None:
    x = synced()
    member(x, 3)
    member(x, 3)
    (done,) = completions(x)
    assert done.return_code is ReturnCode.OP_VIOLATION


def test_more_messages_than_announced() -> None:
    """Before the end comes: it is the end that is wrong (ses.md §5.14)."""
    x = synced()
    for _ in range(2):
        member(x)
    member(x, 2)
    assert [done.return_code for done in completions(x)] == [ReturnCode.OK, ReturnCode.OK, ReturnCode.OP_VIOLATION]


def test_an_error_in_a_sync_group() -> None:
    """The first error fails the end too (ses.md §5.14)."""
    x = synced()
    member(x, 2, completion_data=1)

    class Fails:
        length = 100_000

        def read(self, offset: int, length: int) -> bytes:
            return bytes(length)

        def write(self, offset: int, data: Any) -> None:
            raise OSError

        def flush(self) -> None: ...

    x.process.register(Region(55, Fails()))
    x.submit(Write(peer=0, data=b"w", key=55, sync=(7, 0), mode=Mode.RUD, context=0))
    x.run()
    assert {done.context: done.return_code for done in completions(x)} == {
        0: ReturnCode.HOST_UNSUCCESS_CMPL, 2: ReturnCode.HOST_UNSUCCESS_CMPL,
    }  # fmt: skip
    assert not any(isinstance(event, RemoteWrite) for event in x.b.events())


def test_message_error_in_a_sync_group() -> None:
    """MSG_ERROR is an error of the message like others: the end, which waits, gets it."""
    x = synced()
    late: list[int] = []
    x.b.target.late = lambda pdc, psn, answer, now: late.append(answer.header[1])
    end, part = struct.pack(">HH", 7, 2), struct.pack(">HH", 7, 0)
    x.b.target.on_request(Here(), 1, NextHdr.REQUEST_STD, som(Opcode.SYNC_WRITE, 1, message_id=2), 0, end + b"e", 0)
    assert ask(x, som(Opcode.SYNC_WRITE, 20_000, eom=0), part + bytes(4096)) == ReturnCode.OK
    assert ask(x, later(20_000, 0, 4096, eom=1, opcode=Opcode.MSG_ERROR)) == ReturnCode.INITIATOR_ERROR
    x.b.target.on_time(0)
    assert late == [ReturnCode.INITIATOR_ERROR]


def test_a_sync_group_that_is_not_complete() -> None:
    """Its state is dropped in time; the end gets DROPPED."""
    x = synced(sync_group_time=10 * MILLISECOND)
    member(x, 2)
    x.settle(1000)
    assert x.completion().return_code is ReturnCode.DROPPED
    assert 10 * MILLISECOND <= x.now < 20 * MILLISECOND


def test_first_error_of_a_sync_group() -> None:
    """It is that which the end gets; until then the group has a deadline (ses.md §5.14)."""

    class Message:
        def __init__(self, total: int) -> None:
            self.source, self.sync = A, Sync(7, total)

    groups: Any = SyncGroups(SesConfig())
    one, two, end = Message(0), Message(0), Message(3)
    assert [groups.join(message, 5) for message in (one, two, end)] == [None] * 3
    assert groups.deadline() == 5 + 60 * SECOND
    got: list[ReturnCode | None] = []
    groups.end(end, got.append)
    groups.fail(one, ReturnCode.AT_PERM)
    groups.fail(two, ReturnCode.UNCOR)
    assert got == [ReturnCode.AT_PERM]
    assert groups.deadline() == NEVER


def test_sync_groups_have_a_limit() -> None:
    x = synced(max_rx_messages=1)
    member(x, 2)
    member(x, 2, group=8)
    assert ReturnCode.UNCOR_TRNSNT in [r.return_code for r in x.answers()]


# Forms, profiles, pieces (ses.md §4) ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("profile", "code"), [("ai_base", ReturnCode.UNSUPPORTED_OP), ("ai_full", ReturnCode.OK)])
def test_short_headers_and_profiles(profile: str, code: ReturnCode) -> None:
    x = Peers(ses={"optimized_headers": True, "profile": profile})
    x.submit(Write(peer=0, data=b"x", key=KEY))
    x.settle()
    assert x.requests()[0].next_hdr == NextHdr.REQUEST_MEDIUM
    assert x.completion().return_code is code


@pytest.mark.parametrize(("profile", "code"), [("ai_full", ReturnCode.UNSUPPORTED_OP), ("hpc", ReturnCode.OK)])
def test_rudi_and_profiles(profile: str, code: ReturnCode) -> None:
    x = Peers(ses={"profile": profile})
    x.process.register(Region(SAFE, bytearray(10)))
    x.submit(Write(peer=0, data=b"x", key=SAFE, mode=Mode.RUDI))
    x.settle()
    assert x.completion().return_code is code


@pytest.mark.parametrize(
    ("work", "form"),
    [
        ({"offset": 4}, NextHdr.REQUEST_MEDIUM), ({"completion_data": 5}, NextHdr.REQUEST_MEDIUM),
        ({"offset": 4, "completion_data": 5}, NextHdr.REQUEST_STD), ({"key": 1 << 62 | 5}, NextHdr.REQUEST_SMALL),
        ({"key": 1 << 62 | 5, "completion_data": 5}, NextHdr.REQUEST_MEDIUM),
        ({"key": 1 << 62 | 1 << 12}, NextHdr.REQUEST_MEDIUM), ({"data": bytes(16_384)}, NextHdr.REQUEST_STD),
        ({"data": bytes(8192)}, NextHdr.REQUEST_MEDIUM), ({"data": bytes(8193)}, NextHdr.REQUEST_STD),
    ],
)  # fmt: skip
def test_which_header(work: dict[str, Any], form: NextHdr) -> None:
    """ses.md §4.1."""
    x = Peers(ses={"optimized_headers": True, "payload_mtu": 8192})
    for key in (1 << 62 | 5, 1 << 62 | 1 << 12):
        x.process.register(Region(key, bytearray(20_000)))
    x.submit(Write(**{"peer": 0, "data": b"abc", "key": KEY, **work}))
    x.settle()
    assert x.requests()[0].next_hdr == form
    assert x.completion().ok
    told = [event.data for event in x.b.events() if isinstance(event, RemoteWrite)]
    assert told == ([5] if "completion_data" in work else [])


@pytest.mark.parametrize("mode", MODES)
def test_pieces_of_a_large_write(mode: Mode) -> None:
    """ses.md §8.4: several messages, completion data with the last."""
    x = Peers(ses={"max_msg_size": 5000})
    x.submit(Write(peer=0, data=content(12_000), key=KEY, offset=10, completion_data=7, mode=mode))
    x.settle()
    assert bytes(x.memory[10:12_010]) == content(12_000)
    assert [event.length for event in x.b.events() if isinstance(event, RemoteWrite)] == [2000]
    into = bytearray(12_020)
    x.submit(Read(peer=0, into=into, key=KEY, offset=10, start=20, length=12_000, mode=mode))
    x.settle()
    assert into[20:] == content(12_000)
    assert [done.modified for done in completions(x)] == [12_000, 12_000]


def test_where_a_rendezvous_is_read() -> None:
    """The extension names a process and an index of the initiator; both must be there (ses.md §5.9)."""
    x = Peers()
    x.a.attach(JOB, 3, (20,))
    x.post(bytearray(20_000))
    with pytest.raises(LocalError, match="local_pid"):
        x.submit(Send(peer=0, data=content(20_000), kind=SendKind.RENDEZVOUS, local_pid=3, local_index=15))
    x.submit(Send(peer=0, data=content(20_000), kind=SendKind.RENDEZVOUS, local_pid=3, local_index=20))
    x.run()
    (read,) = {(r.pid_on_fep, r.resource_index) for r in x.requests(B)}
    assert read == (3, 20)
    assert x.completion().ok


def test_source_of_a_rendezvous_is_for_its_job() -> None:
    """ses.md §14.2: a restricted region is invisible to other jobs, and nobody may write to it."""
    x = Peers()
    x.submit(Send(peer=0, data=content(20_000), kind=SendKind.RENDEZVOUS))
    (region,) = x.mine.regions.values()
    assert (region.job_restriction, region.remote_read, region.remote_write) == (JOB, True, False)
    assert region.key >> 48 & 1  # assigned by the provider (§2.6)


def test_nobody_reads_a_rendezvous() -> None:
    """ses.md §16: after 5000 ms its source gives up, and takes the region back."""
    x = Peers()
    x.post(bytearray(20_000))
    x.submit(Send(peer=0, data=content(20_000), kind=SendKind.RENDEZVOUS))
    for region in x.mine.regions.values():
        region.remote_read = False
    x.run()
    x.now += 4 * SECOND
    x.run()
    assert completions(x) == []
    x.now += SECOND
    x.run()
    done = x.completion()
    assert (done.timed_out, done.ok) == (True, False)
    assert not x.mine.regions
    (got,) = x.received()
    assert got.return_code is ReturnCode.PERM_VIOLATION


def test_a_rendezvous_that_is_cut_to_its_eager_part() -> None:
    """Nothing is left to be read."""
    x = Peers()
    into = bytearray(1000)
    x.post(into)
    x.submit(Send(peer=0, data=content(20_000), kind=SendKind.RENDEZVOUS))
    x.settle()
    assert into == content(20_000)[:1000]
    assert x.requests(B) == []
    assert x.completion().ok


# Malformed requests (ses.md §10 steps 10, 15, 16) --------------------------------------------------------------------


class Here:
    """A connection, as SES sees it."""

    mode, peer, local_id = Mode.RUD, A, 77


def ask(x: Peers, header: bytes, payload: bytes = b"", next_hdr: int = NextHdr.REQUEST_STD) -> int:
    answer = x.b.target.on_request(Here(), random.getrandbits(32), next_hdr, header, 0, payload, x.now)
    return int(answer.header[1])  # type: ignore[union-attr]


def som(opcode: int, length: int, *, eom: int = 1, key: int = KEY, message_id: int = 1, offset: int = 0) -> bytes:
    return build_som(opcode, 0, 0, 1, 0, eom, message_id, JOB, 0, 15, offset, 16, key, 0, length)


def later(length: int, size: int, at: int, *, eom: int = 0, offset: int = 0, opcode: int = Opcode.WRITE) -> bytes:
    return build_later(opcode, 0, 0, 1, 0, eom, 1, JOB, 0, 15, offset, 16, KEY, size, at, length)


@pytest.mark.parametrize(("length", "payload"), [(1, b""), (0, b"x"), (1, b"x")])
def test_no_op_has_nothing(length: int, payload: bytes) -> None:
    """ses.md §5.2."""
    assert ask(Peers(), som(Opcode.NO_OP, length), payload) == ReturnCode.OP_VIOLATION


def test_rendezvous_with_more_eager_bytes_than_it_has() -> None:
    """ses.md §5.9: eager_length ≤ request_length."""
    extension = struct.pack(">I", 20) + bytes(20)
    x = Peers()
    x.post(bytearray(100))
    assert ask(x, som(Opcode.RENDEZVOUS_SEND, 10, key=0), extension + bytes(20)) == ReturnCode.OP_VIOLATION


@pytest.mark.parametrize(
    ("atomic", "length", "payload", "code"),
    [
        (bytes((0x0D, 7, 2, 0)) + bytes(32), 8, b"", ReturnCode.OP_VIOLATION),
        (bytes((0x0D, 7, 2, 0)) + bytes(32), 32, b"", ReturnCode.OK),
        (bytes((0x0D, 7, 2, 0)) + bytes(32), 32, b"x", ReturnCode.OP_VIOLATION),
        (bytes((0x0B, 7, 2, 0)), 8, b"12345678", ReturnCode.OP_VIOLATION),
        (bytes((0x0B, 7, 2, 0)), 8, b"", ReturnCode.OK),
        (bytes((0x02, 7, 2, 0)), 16, bytes(16), ReturnCode.AMO_UNSUPPORTED_SIZE),
    ],
)
def test_operands(atomic: bytes, length: int, payload: bytes, code: ReturnCode) -> None:
    """ses.md §6.3: 32 bytes of a compare-and-swap, none of READ; a fetching one has one element."""
    assert ask(Peers(), som(Opcode.FETCHING_ATOMIC, length), atomic + payload) == code


@pytest.mark.parametrize(("read", "write"), [(False, True), (True, False)])
def test_fetching_needs_both_rights(read: bool, write: bool) -> None:
    """ses.md §10 step 13."""
    x = Peers()
    x.region.remote_read, x.region.remote_write = read, write
    assert ask(x, som(Opcode.FETCHING_ATOMIC, 8), bytes((2, 7, 2, 0)) + bytes(8)) == ReturnCode.PERM_VIOLATION


@pytest.mark.parametrize(
    ("header", "payload"),
    [
        (later(20_000, 4096, 4096, offset=8), 4096), (later(20_001, 4096, 4096), 4096),
        (later(20_000, 4095, 4096), 4096), (later(20_000, 4096, 8000), 4096),
        (later(20_000, 4096, 4000), 4096), (later(20_000, 4096, 0), 4096),
        (later(20_000, 0, 4096, eom=1), 0), (later(20_000, 3616, 16_384), 3616), (later(20_000, 4096, 16_384), 4096),
        (later(20_000, 4096, 8192, opcode=Opcode.SEND), 4096),
    ],
)  # fmt: skip
def test_a_later_packet_that_does_not_belong(header: bytes, payload: int) -> None:
    """ses.md §7.1, §10 steps 10 and 16; nothing is stored."""
    x = Peers()
    assert ask(x, som(Opcode.WRITE, 20_000, eom=0), bytes(4096)) == ReturnCode.OK
    assert ask(x, later(20_000, 4096, 12_288), bytes(4096)) == ReturnCode.OK  # the short way has begun
    assert ask(x, header, b"x" * payload) == ReturnCode.OP_VIOLATION
    assert bytes(x.memory) == bytes(100_000)


@pytest.mark.parametrize("header", [later(20_000, 4096, 0), later(8192, 0, 8192, eom=1)], ids=["at 0", "empty end"])
def test_a_packet_that_is_seen_first(header: bytes) -> None:
    """What is wrong with it by itself (ses.md §7.1)."""
    x = Peers()
    assert ask(x, header, bytes(4096 if header[1] & 2 == 0 else 0)) == ReturnCode.OP_VIOLATION


def test_atomic_read_is_for_fetching() -> None:
    """ses.md §6.1."""
    code = ask(Peers(), som(Opcode.ATOMIC, 8), bytes((0x0B, 7, 2, 0)))
    assert code in (ReturnCode.AMO_UNSUPPORTED_OP, ReturnCode.AMO_UNSUPPORTED_SIZE)


def test_return_data_without_a_pdc() -> None:
    """The PDC is gone before or after PDS has the data: nothing of it is left (ses.md §15 item 36)."""
    x = Peers()
    returns, pdc, accepted = x.b.target.returns, Here(), default_response(parse_ses_request(som(2, 9), 0, 3))
    answers = [returns.send(pdc, n, NextHdr.RESPONSE_DATA, b"", b"x", None, accepted) for n in range(300)]
    assert [answer is None for answer in answers] == [n >= 255 for n in range(300)]
    returns.closed(pdc)
    assert returns._accepted == {}
    returns.flush(x.b.pds, x.now)
    assert (returns.open, returns.queued) == (0, False)
    assert returns._waiting == {}
    returns.open = 1
    lost = ReturnData(returns, pdc, NextHdr.RESPONSE_DATA, b"", b"x", None)
    lost.on_error(0, PdsError(PdcErrorReason.PEER_CLOSED), x.now)
    assert returns.open == 0


def test_what_arrived() -> None:
    """Packets ahead of a gap are not there twice either, nor does a gap close over one (ses.md §7.1)."""
    arrived = Reassembly(100)
    assert arrived.add(20, 10)
    assert not arrived.add(20, 10)
    assert arrived.ranges() == [(20, 10)]
    assert arrived.add(0, 10)
    assert arrived.ranges() == [(0, 10), (20, 10)]
    assert not arrived.add(5, 5)


def test_message_error_of_a_message_that_is_none() -> None:
    """ses.md §5.12 (1), (2)."""
    x = Peers()
    assert ask(x, later(20_000, 0, 4096, eom=1, opcode=Opcode.MSG_ERROR)) == ReturnCode.OP_VIOLATION
    ask(x, som(Opcode.WRITE, 20_000, eom=0), bytes(4096))
    for header in (som(Opcode.MSG_ERROR, 20_000), later(20_000, 0, 4096, opcode=Opcode.MSG_ERROR)):
        assert ask(x, header) == ReturnCode.OP_VIOLATION
    assert x.b.target.messages


def test_message_error_waits_for_what_was_sent() -> None:
    """ses.md §5.12 (4): state is free when these bytes are there; the receive of the message ends in error."""
    x = Peers()
    x.post(bytearray(30_000))
    later_send = later(20_000, 4096, 4096, opcode=Opcode.SEND)
    end = later(20_000, 0, 8192, eom=1, opcode=Opcode.MSG_ERROR)
    assert ask(x, som(Opcode.SEND, 20_000, eom=0), bytes(4096)) == ReturnCode.OK
    assert ask(x, end) == ReturnCode.INITIATOR_ERROR
    assert x.received() == []
    assert ask(x, later_send, bytes(4096)) == ReturnCode.INITIATOR_ERROR
    (got,) = x.received()
    assert got.return_code is ReturnCode.INITIATOR_ERROR
    assert not x.b.target.messages


def test_message_error_of_a_held_message() -> None:
    """Its packets are answered, and no receive gets it."""
    x = Peers()
    header = som(Opcode.SEND, 20_000, eom=0)
    x.b.target.on_request(Here(), 1, NextHdr.REQUEST_STD, header, 0, bytes(4096), x.now)
    assert ask(x, later(20_000, 0, 4096, eom=1, opcode=Opcode.MSG_ERROR)) == ReturnCode.INITIATOR_ERROR
    late: list[int] = []
    x.b.target.late = lambda pdc, psn, answer, now: late.append(answer.header[1])
    x.b.target.on_time(x.now)
    assert late == [ReturnCode.INITIATOR_ERROR]
    assert not index_of(x).held
    assert [event.return_code for event in x.b.events() if isinstance(event, MessageFailed)] == [
        ReturnCode.INITIATOR_ERROR
    ]


def test_a_region_that_has_an_address() -> None:
    """ses.md §2.8: virtual addresses, for all that touches a region."""
    x = Peers(bytearray(struct.pack("<Q", 40)) + bytes(56), base=0x20000000)
    x.submit(Atomic(peer=0, opcode=AtomicOpcode.SUM, datatype=AtomicDatatype.UINT64, data=struct.pack("<Q", 2), key=KEY,
                    offset=0x20000000))  # fmt: skip
    into = bytearray(8)
    x.submit(Read(peer=0, into=into, key=KEY, offset=0x20000000))
    x.settle()
    assert struct.unpack("<Q", into) == (42,)


def test_extension_of_a_sync_write() -> None:
    x = synced()
    member(x, 1, data=bytes(5000))
    found = [parse_extensions(Opcode.SYNC_WRITE, data[12 + 44 :]).sync for source, data in x.sent if source == A]
    assert found[:2] == [(7, 1), (7, 1)]


def test_received_of_a_deferred_send_tells_its_tag() -> None:
    x = Peers()
    x.submit(Send(peer=0, data=content(20), tag=9, mode=Mode.RUD, kind=SendKind.DEFERRABLE))
    x.run()
    x.post(bytearray(20), tag=9)
    x.settle()
    (got,) = [event for event in x.b.events() if isinstance(event, Received)]
    assert (got.tag, got.length, got.return_code) == (9, 20, ReturnCode.OK)


@pytest.mark.parametrize("first", ["receive", "send"])
def test_key_field_of_an_untagged_send(first: str) -> None:
    """The target ignores it (ses.md §2.7)."""
    x = Peers()
    if first == "receive":
        x.post(bytearray(1))
    x.b.target.on_request(Here(), 1, NextHdr.REQUEST_STD, som(Opcode.SEND, 1, key=99), 0, b"x", x.now)
    if first == "send":
        x.post(bytearray(1))
    (got,) = x.received()
    assert (got.tag, got.length) == (0, 1)
