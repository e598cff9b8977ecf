# SPDX-License-Identifier: GPL-2.0-only
"""The life of a message at its target: MSG_ERROR, ie, time, close (ses.md §5.12, §5.13, §7.2)."""

import pytest

from tests.support.engine.world import JOB, KEY
from tests.support.ses.headers import build_later, build_som
from tests.support.ses.operations import SECOND, Peers
from tests.support.ses.requests import MTU, SLOW, A, B, Here, Pair, ask, index_of, later, som
from tests.support.ses.world import MS, US
from uetproto.engine import Close, Mode
from uetproto.engine.contract import MessageFailed, Send, Write
from uetproto.wire.headers.uet_pds import NextHdr
from uetproto.wire.headers.uet_ses import Opcode, ReturnCode

# MSG_ERROR (ses.md §5.12) ---------------------------------------------------------------------------------------------


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
    assert Pair().ask_b(msg_error()) is ReturnCode.OP_VIOLATION


@pytest.mark.parametrize(("som", "eom"), [(1, 1), (0, 0), (1, 0)])
def test_msg_error_flags(som: int, eom: int) -> None:
    """§5.12 rule 2; the message is not harmed."""
    x = Pair()
    first, second = two_packets()
    assert x.ask_b(first, bytes(MTU)) is ReturnCode.OK
    assert x.ask_b(msg_error(som, eom)) is ReturnCode.OP_VIOLATION
    assert x.ask_b(second, bytes(MTU)) is ReturnCode.OK


def test_second_msg_error() -> None:
    """§5.12 rule 3: the bytes before it are still missing, so the message is still known."""
    x = Pair()
    _, second = two_packets()
    later = build_later(Opcode.WRITE, 0, 0, 1, 0, 0, 9, JOB, 0, 15, 0, 16, KEY, MTU, MTU, 4 * MTU)
    assert second
    assert x.ask_b(later, bytes(MTU)) is ReturnCode.OK
    end = build_later(Opcode.MSG_ERROR, 0, 0, 1, 0, 1, 9, JOB, 0, 15, 0, 16, KEY, 0, 3 * MTU, 4 * MTU)
    assert x.ask_b(end) is ReturnCode.INITIATOR_ERROR
    assert x.ask_b(end) is ReturnCode.OP_VIOLATION
    assert x.b.target.messages


@pytest.mark.parametrize("order", ["before", "after"])
def test_msg_error_of_a_good_message(order: str) -> None:
    """§5.12 rule 4: the receive completes with INITIATOR_ERROR, when all bytes that were sent are there."""
    x = Pair()
    receive = x.post()
    first = build_som(Opcode.SEND, 0, 0, 1, 0, 0, 9, JOB, 0, 15, 0, 16, 0, 0, 4 * MTU)
    second = build_later(Opcode.SEND, 0, 0, 1, 0, 0, 9, JOB, 0, 15, 0, 16, 0, MTU, MTU, 4 * MTU)
    end = build_later(Opcode.MSG_ERROR, 0, 0, 1, 0, 1, 9, JOB, 0, 15, 0, 16, 0, 0, 2 * MTU, 4 * MTU)
    assert x.ask_b(first, bytes(MTU)) is ReturnCode.OK
    if order == "before":
        assert x.ask_b(end) is ReturnCode.INITIATOR_ERROR
        x.poll()
        assert x.received() == []
        assert x.ask_b(second, bytes(MTU)) is ReturnCode.INITIATOR_ERROR
    else:
        assert x.ask_b(second, bytes(MTU)) is ReturnCode.OK
        assert x.ask_b(end) is ReturnCode.INITIATOR_ERROR
    x.poll()
    (got,) = x.received()
    assert (got.receive, got.return_code) == (receive, ReturnCode.INITIATOR_ERROR)
    assert not x.b.target.messages


def test_msg_error_of_a_failed_message() -> None:
    """§5.12 rule 4: the first error is echoed."""
    x = Pair()
    first, _ = two_packets(key=5)
    assert x.ask_b(first, bytes(MTU)) is ReturnCode.BAD_MKEY
    assert x.ask_b(msg_error(key=5)) is ReturnCode.BAD_MKEY
    assert failures(x) == [ReturnCode.BAD_MKEY]
    assert not x.b.target.messages


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


# The flag ie (ses.md §5.13) -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("which", [0, 1])
def test_initiator_error_flag(which: int) -> None:
    """§5.13: memory is left alone, never RC_OK, the message completes in error."""
    x = Pair()
    receive = x.post()
    headers = [bytearray(h) for h in two_packets(Opcode.SEND, 0)]
    headers[which][1] |= 0x10
    codes = [x.ask_b(bytes(h), b"y" * MTU) for h in headers]
    assert codes[which] is ReturnCode.INITIATOR_ERROR
    assert receive.into[which * MTU : (which + 1) * MTU] == bytes(MTU)
    x.poll()
    (got,) = x.received()
    assert got.return_code is ReturnCode.INITIATOR_ERROR


def test_ie_after_another_error() -> None:
    """It is recorded only if the message has no earlier error."""
    x = Pair()
    first, second = two_packets(key=5)
    assert x.ask_b(first, bytes(MTU)) is ReturnCode.BAD_MKEY
    late = bytearray(second)
    late[1] |= 0x10
    assert x.ask_b(bytes(late), bytes(MTU)) is ReturnCode.BAD_MKEY


# Time and close (ses.md §7.2) -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("opcode", [Opcode.WRITE, Opcode.SEND])
def test_idle_message(opcode: Opcode) -> None:
    """State that gets no packet is dropped after 5000 ms (§7.2); its receive ends in error."""
    x = Pair()
    if opcode is Opcode.SEND:
        x.post()
    first, _ = two_packets(opcode, KEY if opcode is Opcode.WRITE else 0)
    assert x.ask_b(first, bytes(MTU)) is ReturnCode.OK
    x.run(4999 * MS)
    assert x.b.target.messages
    x.run(10 * MS)
    assert not x.b.target.messages
    assert [event.return_code for event in x.received()] == ([ReturnCode.DROPPED] if opcode is Opcode.SEND else [])


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
    assert done.return_code is ReturnCode.UNDELIVERABLE
    assert not x.b.target.messages
    assert [event.return_code for event in x.received()] == [ReturnCode.DROPPED]


def test_close_waits_for_messages() -> None:
    """An orderly close: what was submitted before it completes (pds.md §6.4)."""
    x = Pair(loss=SLOW)
    x.do(Write(peer=0, data=bytes(20 * MTU), key=KEY))
    x.submit(A, Close(peer=B))
    x.settle()
    assert [done.ok for done in x.completions()] == [True]
