# SPDX-License-Identifier: GPL-2.0-only
"""A deferred message at its initiator, and its restart on a lossy wire (ses.md §5.7, §5.8, §15 item 30)."""

from typing import Any

import pytest

from tests.support.engine.world import JOB
from tests.support.ses.headers import build_som
from tests.support.ses.requests import MTU, SLOW, A, B, Pair, Pdc
from tests.support.ses.world import MS, US
from uetproto.engine import Mode
from uetproto.engine.contract import SendKind
from uetproto.engine.pds.messages import Ack, Nack, parse
from uetproto.engine.pds.service import Response
from uetproto.engine.ses.headers import parse_ses_response
from uetproto.engine.ses.transfer import MessageState
from uetproto.wire.headers.uet_pds import NackCode, NextHdr
from uetproto.wire.headers.uet_ses import Opcode, ReturnCode


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
    assert transfer.state is MessageState.DEFERRED
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
    assert restart(x, **{"token": token, **wrong}) is ReturnCode.OP_VIOLATION
    (transfer,) = x.a.initiator.transfers
    assert (transfer.state, transfer.token) == (MessageState.DEFERRED, token)
    x.post()
    x.settle()
    assert x.completions()[0].ok
    assert x.received()[0].length == 4 * MTU


def test_restart_of_what_is_not_deferred() -> None:
    x, token = deferred()
    x.post()
    x.settle()
    assert x.completions()[0].ok
    assert restart(x, token=token) is ReturnCode.OP_VIOLATION


def test_used_token_of_an_initiator() -> None:
    x, token = deferred()
    assert restart(x, token=token) is ReturnCode.OK
    x.poll()
    assert restart(x, token=token) is ReturnCode.OP_VIOLATION


@pytest.mark.parametrize("at", [0, 2 * MTU, 4 * MTU])
def test_restart_position(at: int) -> None:
    """§5.8: the bytes that the target holds are not sent again."""
    x, token = deferred()
    before = len(x.log.packets)
    assert restart(x, token=token, offset=at) is ReturnCode.OK
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
    pdc = Pdc(Mode.RUD, 3 if token == "other source" else A)
    answer = x.b.target.on_request(pdc, 1, NextHdr.REQUEST_STD, header, 0, b"z" * MTU, x.now)
    assert isinstance(answer, Response)
    assert parse_ses_response(answer.header, answer.next_hdr).return_code == ReturnCode.OP_VIOLATION
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
    assert states == [MessageState.DEFERRED] * 8 + [MessageState.BACKOFF]
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
