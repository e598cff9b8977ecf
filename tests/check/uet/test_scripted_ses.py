# SPDX-License-Identifier: GPL-2.0-only
"""Scripted SES: its headers are legal, its answers are those that travel with the packets (ses.md §3–§5, §9)."""

from typing import Any

import pytest

from uetproto.check.uet.scripted_ses import content
from uetproto.check.uet.simulator import UetSimulator
from uetproto.check.wire import ALL
from uetproto.engine.contract import Mode
from uetproto.engine.pds.service import SES_SIZE
from uetproto.engine.ses.headers import parse_ses_request, parse_ses_response
from uetproto.errors import LocalError
from uetproto.steps.uet import ANSWERS, MessageSpec, UetStep
from uetproto.wire.headers.uet_pds import NackCode, NextHdr
from uetproto.wire.headers.uet_ses import Opcode, ResponseList, ResponseOpcode, ReturnCode
from uetproto.wire.tuples import SesResponseDataHeader

MTU = 1024
STD = NextHdr.REQUEST_STD


def simulator(mtu: int | None = MTU) -> UetSimulator:
    return UetSimulator(3, objects=True, mtu=mtu)


def submitted(what: MessageSpec, mtu: int | None = MTU) -> tuple[UetSimulator, list[Any]]:
    """The packets of one message, on the wire."""
    w = simulator(mtu)
    w.apply(UetStep("submit", message=what))
    return w, list(w.flight.values())


@pytest.mark.parametrize(
    ("op", "mode", "opcode"),
    [
        ("send", Mode.RUD, Opcode.SEND),
        ("write", Mode.ROD, Opcode.WRITE),
        ("read", Mode.RUD, Opcode.READ),
        ("write", Mode.RUDI, Opcode.WRITE),
    ],
)
def test_the_packets_of_a_message(op: str, mode: Mode, opcode: Opcode) -> None:
    """ses.md §7.1: one SOM, one EOM, whole packets, offsets without gaps."""
    _, packets = submitted(MessageSpec(3, mode, op, 9))
    requests = [parse_ses_request(p.header, 0, STD) for p in packets]
    assert [len(p.header) for p in packets] == [44] * 3
    assert [(r.som, r.eom) for r in requests] == [(1, 0), (0, 0), (0, 1)]
    assert {(r.opcode, r.message_id, r.request_length, r.version) for r in requests} == {(opcode, 9, 3 * MTU, 0)}
    assert [(r.payload_length, r.message_offset) for r in requests] == [(None, 0), (MTU, MTU), (MTU, 2 * MTU)]
    expected = [b""] * 3 if op == "read" else [content(9, index, MTU) for index in range(3)]
    assert [p.payload for p in packets] == expected


def test_a_datagram_has_no_message_id() -> None:
    """ses.md §5.6."""
    _, (packet,) = submitted(MessageSpec(1, Mode.UUD, message_id=9))
    request = parse_ses_request(packet.header, 0, STD)
    assert (request.opcode, request.message_id, request.som, request.eom) == (Opcode.DATAGRAM_SEND, 0, 1, 1)


def test_lean_packets_share_a_header() -> None:
    _, packets = submitted(MessageSpec(3), mtu=None)
    assert packets[0].header is packets[2].header
    assert [p.payload for p in packets] == [bytes(4), b"\0\0\0\1", b"\0\0\0\2"]


def test_the_answer_travels_in_the_header() -> None:
    for number, answer in enumerate(ANSWERS):
        _, (packet,) = submitted(MessageSpec(1, op="read", answer=answer))
        assert parse_ses_request(packet.header, 0, STD).initiator == number


@pytest.mark.parametrize(
    ("op", "answer", "opcode", "code", "which", "gtd"),
    [
        ("send", "ok", ResponseOpcode.DEFAULT_RESPONSE, ReturnCode.OK, ResponseList.EXPECTED, False),
        ("send", "gtd", ResponseOpcode.RESPONSE, ReturnCode.OK, ResponseList.OVERFLOW, True),
        ("write", "gtd", ResponseOpcode.RESPONSE, ReturnCode.BAD_ADDR, ResponseList.EXPECTED, True),
        ("send", "no_response", ResponseOpcode.NO_RESPONSE, ReturnCode.OK, ResponseList.EXPECTED, False),
        ("read", "return", ResponseOpcode.DEFAULT_RESPONSE, ReturnCode.OK, ResponseList.EXPECTED, False),
        ("read", "gtd", ResponseOpcode.RESPONSE, ReturnCode.BAD_ADDR, ResponseList.EXPECTED, True),
    ],
)
def test_answers(
    op: str, answer: str, opcode: ResponseOpcode, code: ReturnCode, which: ResponseList, gtd: bool
) -> None:
    """ses.md §9.1, §9.7."""
    w, _ = submitted(MessageSpec(1, op=op, message_id=5, answer=answer))
    w.apply(UetStep("deliver", 0, 0))
    ack = w.flight[1]
    response = parse_ses_response(ack.header, ack.message.next_hdr)
    assert (response.opcode, response.return_code, response.list) == (opcode, code, which)
    assert response.message_id == 5
    assert bool(w.monitors[1].shadows[1].gtd) is gtd


@pytest.mark.parametrize("answer", ANSWERS[6:])
def test_a_refusal_is_for_the_first_time_only(answer: str) -> None:
    w, _ = submitted(MessageSpec(1, answer=answer))
    w.apply(UetStep("deliver", 0, 0))
    assert w.monitors[1].pds.nack_tx == {NackCode[answer.upper()]: 1}
    assert w.ses[1].delivered == 0
    w.finish()
    assert w.ses[1].delivered == w.ses[0].answered == 1


def test_later() -> None:
    w, _ = submitted(MessageSpec(1, answer="later"))
    w.apply(UetStep("deliver", 0, 0))
    assert not w.flight
    (psn,) = (key[1] for key in w.ses[1].waiting)
    with pytest.raises(LocalError, match="not legal for a packet that was taken"):
        w.apply(UetStep("respond", 1, psn, 0, "no_resource"))
    w.apply(UetStep("respond", 1, psn, 0, "ok"))
    assert len(w.flight) == 1
    assert not w.ses[1].waiting


def test_read_data_in_the_ack() -> None:
    """pds.md §10: a read of at most Max_ACK_Data_Size."""
    w, (packet,) = submitted(MessageSpec(1, op="read", message_id=5, answer="data"))
    assert parse_ses_request(packet.header, 0, STD).request_length == 16
    w.apply(UetStep("deliver", 0, 0))
    ack = w.flight[1]
    assert ack.message.next_hdr == NextHdr.RESPONSE_DATA
    size = SES_SIZE[NextHdr.RESPONSE_DATA]
    head = SesResponseDataHeader.read(ack.header)
    assert (head.opcode, head.return_code) == (ResponseOpcode.RESPONSE_W_DATA, ReturnCode.OK)
    assert (head.response_message_id, head.read_request_message_id) == (0, 5)
    assert (head.payload_length, head.modified_length, head.message_offset) == (16, 16, 0)
    assert ack.header[size:] == content(5, 0, 16)


@pytest.mark.parametrize("mode", [Mode.RUD, Mode.ROD])
def test_read_data_in_the_return_direction(mode: Mode) -> None:
    """ses.md §5.4, §9.6: the PDC is held until the last byte is there."""
    w, _ = submitted(MessageSpec(3, mode, "read", 5, "return"))
    w.apply(UetStep("deliver", 0, ALL))
    w.apply(UetStep("close"))
    assert w.monitors[0].pds.pdcs[1].locks == 1
    back = [p for p in w.wire.history[: w.sent] if p and getattr(p.message, "next_hdr", 0) == NextHdr.RESPONSE_DATA]
    heads = [SesResponseDataHeader.read(p.header) for p in back]
    assert [head.message_offset for head in heads] == [0, MTU, 2 * MTU]
    assert {
        (head.opcode, head.read_request_message_id, head.payload_length, head.modified_length) for head in heads
    } == {(ResponseOpcode.RESPONSE_W_DATA, 5, MTU, 3 * MTU)}
    assert [p.payload for p in back] == [content(5, index, MTU) for index in range(3)]
    w.finish()
    assert not w.monitors[0].pds.pdcs
    assert w.ses[0].delivered == 3


def test_a_read_that_fails_holds_nothing() -> None:
    w, _ = submitted(MessageSpec(2, op="read", message_id=5, answer="gtd"))
    w.apply(UetStep("close"))
    w.finish()
    assert not w.monitors[0].pds.pdcs


@pytest.mark.parametrize("answer", ["data", "return", "gtd", "ok"])
def test_rudi_answers_are_not_guaranteed(answer: str) -> None:
    """ses.md §9.7."""
    w, _ = submitted(MessageSpec(1, Mode.RUDI, "read", 5, answer))
    w.apply(UetStep("deliver", 0, 0))
    response = w.flight[1]
    assert response.message.response
    expected = NextHdr.RESPONSE if answer == "gtd" else NextHdr.RESPONSE_DATA
    assert response.message.next_hdr == expected
    w.finish()
    assert w.ses[0].answered == 1


@pytest.mark.parametrize(
    "what",
    [
        MessageSpec(0),
        MessageSpec(1, op="atomic"),
        MessageSpec(1, answer="perhaps"),
        MessageSpec(2, Mode.UUD),
        MessageSpec(1, Mode.UUD, op="write"),
        MessageSpec(1, Mode.RUDI, op="send"),
    ],
)
def test_what_cannot_be_sent(what: MessageSpec) -> None:
    """pds.md §3."""
    with pytest.raises(LocalError, match="is not legal"):
        simulator().apply(UetStep("submit", message=what))
