# SPDX-License-Identifier: GPL-2.0-only
"""An initiator: message ids, generations, back-off, turns, ends and errors (ses.md §3, §5.12, §12)."""

from itertools import pairwise
from typing import Any

import pytest

from tests.support.engine.world import KEY, B
from tests.support.ses.initiator_rules import (
    refuse_first,
    refuse_with,
)
from tests.support.ses.operations import SECOND, Peers
from tests.support.ses.requests import NARROW, SAFE, completions, index_of
from uetproto.engine import Datagram, Mode
from uetproto.engine.contract import MILLISECOND, Nop, Read, Receive, Send, Write
from uetproto.engine.ses.headers import SesRequest
from uetproto.engine.ses.peer_order import PeerOrder
from uetproto.wire.headers.uet_ses import Opcode, ReturnCode, Space


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
    lane: Any = PeerOrder()
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
    stale = [ReturnCode.BAD_GENERATION] * 200
    refuse_with(x, [*stale, ReturnCode.UNCOR_TRNSNT, *stale])
    x.submit(Send(peer=0, data=b"x", mode=Mode.RUD))
    x.settle(2000)
    done = x.completion()
    assert (done.ok, done.refusals) == (True, 1)


@pytest.mark.parametrize("work", [Write(peer=0, data=b"x", key=KEY), Read(peer=0, into=bytearray(9000), key=KEY)])
def test_rma_sends_no_generation(work: Write | Read) -> None:
    """Whatever a target says about it (ses.md §2.4): a target that refuses RMA for its generation does so once."""
    x = Peers(bytearray(9000))
    index_of(x, Space.RMA).generation = 5
    refuse_first(x, 9, ReturnCode.BAD_GENERATION)
    x.submit(work)
    x.settle()
    done = x.completion()
    assert (done.ok, done.return_code) == (False, ReturnCode.BAD_GENERATION)
    assert {r.ri_generation for r in x.requests()} == {0}
    assert len({r.message_id for r in x.requests()}) == 1, "it is not sent again"


def test_rma_with_the_generation_of_untagged_sends() -> None:
    """`rma_generation` untagged (observed.md): what a refused send learned serves RMA too, and the other way round."""
    x = Peers(ses={"rma_generation": "untagged"})
    refuse_with(x, [ReturnCode.BAD_GENERATION])
    x.submit(Write(peer=0, data=b"x", key=KEY))
    x.settle()
    x.post(bytearray(9))
    x.submit(Send(peer=0, data=b"x"))
    x.submit(Write(peer=0, data=b"x", key=KEY))
    x.settle()
    assert [done.ok for done in completions(x)] == [True] * 3
    assert [r.ri_generation for r in x.requests()] == [0, 1, 1, 1]


def test_a_generation_that_was_sent_already() -> None:
    """ses.md §12: BAD_GENERATION with the generation that the request had: sending it again would change nothing."""
    x = Peers()
    x.post(bytearray(9))
    x.b.target.fault = lambda request: ReturnCode.BAD_GENERATION
    x.submit(Send(peer=0, data=b"x"))
    x.settle()
    assert x.completion().return_code is ReturnCode.BAD_GENERATION
    assert len(x.requests()) == 1


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
