# SPDX-License-Identifier: GPL-2.0-only
"""Messages that come before their receive are held: which, how many, how long (ses.md §11.2, §16)."""

import pytest

from tests.support.engine.world import A, B
from tests.support.ses.operations import MODES, SECOND, Peers
from tests.support.ses.requests import MTU, Pair, completions, index_of
from tests.support.ses.world import MS
from uetproto.engine import Datagram, Mode, SesConfig
from uetproto.engine.contract import MILLISECOND, NEVER, Atomic, Send, SendKind
from uetproto.engine.ses.addressing import IndexState
from uetproto.wire.headers.uet_ses import AtomicDatatype, AtomicOpcode, Opcode, ResponseOpcode, ReturnCode


def refused_by_opcode(x: Peers, opcode: int, code: ReturnCode) -> None:
    x.b.target.fault = lambda request: code if request.opcode == opcode else None


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


def test_a_message_that_rests_needs_no_timer() -> None:
    """It may rest for ever; the next one has its idle time nevertheless."""
    soon = MILLISECOND // 2  # before the RTO
    x = Peers(ses={"idle_message_time": soon})

    def send(length: int) -> None:
        x.submit(Send(peer=0, data=bytes(length), mode=Mode.RUD))
        packet = x.a.poll(x.now)[0]
        x.b.receive(Datagram(A, B, bytes(packet.header) + bytes(packet.payload), entropy=packet.entropy), x.now)

    send(10)
    x.now += soon
    x.b.poll(x.now)
    assert x.b.target.deadline() == NEVER
    send(8192)
    assert x.b.target.deadline() == x.now + soon
    x.now += soon
    x.b.poll(x.now)
    assert [message.length for message in index_of(x).held] == [10]


@pytest.mark.parametrize(("mode", "code"), [(Mode.RUD, ReturnCode.NO_MATCH), (Mode.ROD, ReturnCode.DISABLED_GEN)])
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
