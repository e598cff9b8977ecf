# SPDX-License-Identifier: GPL-2.0-only
"""Habits that captures of the reference provider show and observed.md has no row for: each way of each knob."""

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support.engine.world import KEY, A
from tests.support.ladders.ladder import TPDCID
from tests.support.pds.control_and_reads import secure
from tests.support.ses.initiator_rules import refuse_first
from tests.support.ses.operations import Peers, content
from tests.support.ses.requests import ask, completions, som
from uetproto.check.registry import InvariantViolation
from uetproto.check.uet.ses_invariants import SegmentChecks
from uetproto.engine.contract import Read, Send
from uetproto.engine.pds.states import State
from uetproto.wire.headers.uet_pds import NackCode, NextHdr
from uetproto.wire.headers.uet_ses import Opcode, ReturnCode

MTU = 4096


@pytest.mark.parametrize(("knob", "spdcid"), [("own", TPDCID), ("zero", 0)])
def test_who_demands_another_start(knob: str, spdcid: int) -> None:
    """`new_start_spdcid`, pds.md §6.6: with either the initiator follows."""
    x = secure(new_start_spdcid=knob)
    x.a.send(1)
    x.b.rx(x.a.sent("REQ", psn=5000))
    x.a.rx(x.b.sent("NACK", code=NackCode.NEW_START_PSN, spdcid=spdcid, payload=9000))
    x.b.rx(x.a.sent("REQ", psn=9000, syn=1, retx=0))
    x.a.rx(x.b.sent("ACK", ack=9000, spdcid=TPDCID))
    assert (x.a.state, x.b.state, x.b.ses.delivered) == (State.ESTABLISHED, State.ESTABLISHED, [9000])


@pytest.mark.parametrize(("knob", "lengths"), [("packet", [MTU, MTU, 808]), ("read", [9000, 9000, 9000])])
def test_what_the_answer_to_return_data_counts(knob: str, lengths: list[int]) -> None:
    """`return_modified_length`, ses.md §9.4."""
    x = Peers(bytearray(content(9000)), ses={"return_modified_length": knob})
    into = bytearray(9000)
    x.submit(Read(peer=0, into=into, key=KEY))
    x.settle()
    assert x.completion().ok
    assert into == content(9000)
    assert [answer.modified_length for answer in x.answers(A)] == lengths


@pytest.mark.parametrize("code", [ReturnCode.NO_MATCH, ReturnCode.BAD_GENERATION])
@pytest.mark.parametrize(("knob", "ids"), [("new", [1, 2, 3, 4]), ("same", [1, 1, 1, 2])])
def test_the_id_of_a_retry(knob: str, ids: list[int], code: ReturnCode) -> None:
    """`retry_message_id`, ses.md §12: refused twice, and then the next message."""
    x = Peers(ses={"retry_message_id": knob})
    x.post(bytearray(9), least=1)
    refuse_first(x, 2, code)
    for _ in range(2):
        x.submit(Send(peer=0, data=b"x"))
        x.settle()
    assert [request.message_id for request in x.requests()] == ids
    assert all(completion.ok for completion in completions(x))


@pytest.mark.parametrize("knob", [True, False])
@pytest.mark.parametrize(("length", "eoms"), [(0, 1), (100, 1), (MTU, 1), (MTU + 1, 2)])
def test_where_a_read_ends(length: int, eoms: int, knob: bool) -> None:
    """`lone_read_eom`, ses.md §3: the last packet has eom, but for the only one where the knob is off."""
    x = Peers(bytearray(content(9000)), ses={"lone_read_eom": knob})
    into = bytearray(length)
    x.submit(Read(peer=0, into=into, key=KEY))
    x.settle()
    assert x.completion().ok
    assert into == content(9000)[:length]
    expected = [0] * (eoms - 1) + [1]
    assert [request.eom for request in x.requests()] == (expected if knob or eoms > 1 else [0])


@pytest.mark.parametrize(
    ("opcode", "length", "eom", "knob", "code"),
    [
        (Opcode.READ, 100, 0, True, ReturnCode.OP_VIOLATION),
        (Opcode.READ, 100, 0, False, ReturnCode.OK),
        (Opcode.READ, 100, 1, False, ReturnCode.OK),
        (Opcode.READ, MTU + 1, 0, False, ReturnCode.OK),
        (Opcode.READ, MTU + 1, 1, False, ReturnCode.OP_VIOLATION),
        (Opcode.WRITE, 100, 0, False, ReturnCode.OP_VIOLATION),
    ],
)
def test_which_ends_a_target_takes(opcode: int, length: int, eom: int, knob: bool, code: ReturnCode) -> None:
    """`lone_read_eom`, ses.md §10 step 10: nothing else than READs of one packet goes without."""
    x = Peers(ses={"lone_read_eom": knob})
    payload = b"" if opcode == Opcode.READ else bytes(length)
    assert ask(x, som(opcode, length, eom=eom), payload) & 0x3F == code


@pytest.mark.parametrize(
    ("opcode", "eom", "knob", "rule"),
    [
        (Opcode.READ, 0, True, "ses 6"),
        (Opcode.READ, 0, False, None),
        (Opcode.READ, 1, False, None),
        (Opcode.WRITE, 0, False, "ses 6"),
    ],
)
def test_which_ends_the_invariants_take(opcode: int, eom: int, knob: bool, rule: str | None) -> None:
    """`lone_read_eom`, ses.md §15 item 3: held to what the sender's knob says."""
    segments = SegmentChecks(MTU, knob)
    packet: Any = SimpleNamespace(next_hdr=NextHdr.REQUEST_STD)
    payload = b"" if opcode == Opcode.READ else bytes(100)
    broken = nullcontext() if rule is None else pytest.raises(InvariantViolation, match=f"^{rule}:")
    with broken:
        segments.add(packet, som(opcode, 100, eom=eom), payload)
    assert (segments.open is None) == (rule is None)
