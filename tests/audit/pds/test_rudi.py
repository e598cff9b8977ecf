# SPDX-License-Identifier: GPL-2.0-only
"""RUDI and UUD: every rule violated and kept, and messages whose packets have pkt_ids."""

from typing import Any, NamedTuple

import pytest

from tests.support.audit.build import A, B, head, packet
from tests.support.audit.pds_rudi import (
    KEY,
    Bench,
    Line,
    answer,
    found,
    req,
)
from tests.support.audit.ses_rules import part
from uetproto.audit.flows import SILENT
from uetproto.audit.pds.rules_rudi import RULES
from uetproto.audit.pds.tracker_rudi import PKT_IDS
from uetproto.audit.rule import Severity
from uetproto.wire.headers.uet_ses import Opcode, ReturnCode


def datagram(**fields: int) -> Line:
    values = {"opcode": Opcode.DATAGRAM_SEND, "som": 1, "eom": 1, "request_length": 64} | fields
    form = "ses.send_std.som" if values["som"] else "ses.send_std"
    return Line(A, head("pds.uud_req", next_hdr=3), head(form, **values), 0)


class Case(NamedTuple):
    """`wrong` behind `before` violates the rule, `right` does not."""

    before: tuple[Line, ...]
    wrong: Line
    right: Line
    after: tuple[Line, ...] = ()


SEND = part(0, opcode=Opcode.SEND, length=64)

CASES: dict[str, Case] = {
    "RUDI-OPERATION": Case((), req()._replace(ses=SEND.ses), req()),
    "RUDI-COMPLETION-DATA": Case((), req(hd=1), req()),
    "RUDI-KEY": Case((), req(memory_key=7), req()),
    "RUDI-PKT-ID-TWO-CONTENTS": Case((req(),), req(content=1, message_id=6), req(retx=1)),
    "RUDI-UNASKED": Case((req(),), answer(2), answer()),
    "RUDI-SILENT": Case((), req(), req(), (answer(),)),
    "UUD-OPCODE": Case((), datagram(opcode=Opcode.SEND), datagram()),
    "UUD-WHOLE": Case((), datagram(eom=0), datagram()),
    "UUD-MESSAGE-ID": Case((), datagram(message_id=1), datagram()),
}


def test_each_rule_has_a_violation() -> None:
    assert set(CASES) == {rule.id for rule in RULES}


@pytest.mark.parametrize("rule", CASES)
def test_violation_is_found_where_it_is(rule: str) -> None:
    case = CASES[rule]
    assert (rule, len(case.before)) in found((*case.before, case.wrong))


@pytest.mark.parametrize("rule", CASES)
def test_nothing_is_found_where_all_is_well(rule: str) -> None:
    case = CASES[rule]
    assert rule not in dict(found((*case.before, case.right, *case.after)))


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_only_what_a_source_says_is_more_than_a_note(rule: Any) -> None:
    assert rule.severity is Severity.NOTE or rule.cite.startswith("UE 1.0.1 §")


def test_message_of_several_packets_is_followed() -> None:
    lines = [req(10 + k, k, k, 4096) for k in range(4)]
    assert found([*lines, *(answer(10 + k, modified_length=4096) for k in range(4))]) == []
    lines[2] = req(12, 2, 2, 4096, job_id=1)
    assert ("SES-JOB-CHANGE", 2) in found(lines)


def test_response_is_judged_with_its_request() -> None:
    assert ("SES-RESPONSE-WRONG-ID", 1) in found([req(), answer(message_id=6)])
    assert ("SES-DEFAULT-WITH-ERROR", 1) in found([req(), answer(code=ReturnCode.BAD_MKEY, opcode=0)])


def test_pkt_ids_need_not_be_a_sequence() -> None:
    """Neighbours with one message id may be of two messages."""
    lines = [req(10, 0, 0, 4096), req(11, 1, 1, 4096), req(12, 0, 2, 4096, memory_key=KEY + 1)]
    assert {rule for rule, _ in found(lines)} == {"RUDI-SILENT", "SES-UNFINISHED"}


def test_read_data_comes_with_the_response() -> None:
    ask = req(opcode=Opcode.READ)
    ses = head(
        "ses.response_data", opcode=2, return_code=1, job_id=9, read_request_message_id=5, payload_length=64,
        modified_length=64,
    )  # fmt: skip
    assert found([ask, Line(B, head("pds.rudi_resp", next_hdr=5, pkt_id=1), ses, 0)]) == []


def test_what_is_kept_is_bounded() -> None:
    bench = Bench()
    for number in range(3 * PKT_IDS):
        line = req(number)
        bench.tracker.see(packet(number, A, B, line.head, line.content, ses=line.ses, size=64))
    (flow,) = bench.tracker.flows
    assert len(flow.exchanges) <= 2 * PKT_IDS
    bench.tracker.sweep(2 * SILENT)
    assert bench.tracker.flows.forgotten == {"silent": 1, "evicted": 0}
