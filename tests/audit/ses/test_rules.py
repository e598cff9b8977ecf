# SPDX-License-Identifier: GPL-2.0-only
"""Every rule about messages: packets that violate it, found at the right one, and packets that are right."""

from typing import Any, NamedTuple

import pytest

from tests.support.audit.build import head
from tests.support.audit.ses_rules import (
    ID,
    LENGTH,
    MTU,
    START,
    SYNC,
    TWO,
    Bench,
    C,
    Line,
    Op,
    atomic,
    deferrable,
    error,
    found,
    part,
    read,
    restart,
    returned,
    rsp,
    rtr,
    short,
    sync,
    whole,
)
from tests.support.each import each
from uetproto.audit.rule import CHOICE, Severity
from uetproto.audit.ses.rules import NOT_OBSERVABLE, RULES
from uetproto.wire.headers.uet_ses import AtomicDatatype, AtomicOpcode

# Packets --------------------------------------------------------------------------------------------------------------


EAGER = head("ses.ext.rendezvous", eager_length=MTU)
_AT_ONCE = part(0, length=64)
_AT_ONCE_ROD = part(0, length=64, opcode=Op.SEND, mode="rod")


class Case(NamedTuple):
    """`wrong` behind `before` violates the rule, `right` does not."""

    before: tuple[Line, ...]
    wrong: Line
    right: Line
    after: tuple[Line, ...] = ()


CASES: dict[str, Case] = {
    "SES-FORM": Case((), short(form="ses.request_medium", next_hdr=2, opcode=Op.DEFERRABLE_RTR, request_length=0),
                     short(form="ses.request_medium", next_hdr=2)),
    "SES-DATAGRAM-ON-PDC": Case((), part(0, opcode=Op.DATAGRAM_SEND, length=64), _AT_ONCE),
    "SES-DEFERRABLE-ON-ROD": Case((), part(0, opcode=Op.DEFERRABLE_SEND, length=64, mode="rod"),
                                  part(0, opcode=Op.DEFERRABLE_SEND, length=64)),
    "SES-SHORT-FORM-WHOLE": Case((), short(eom=0), short()),
    "SES-ATOMIC-WHOLE": Case((), atomic(eom=0), atomic()),
    "SES-SMALL-HD": Case((), short(hd=1), short()),
    "SES-EMPTY": Case((), rtr(request_length=8), rtr()),
    "SES-MESSAGE-ID-ZERO": Case((), part(0, message_id=0), part(0)),
    "SES-RMA-GENERATION": Case((), part(0, ri_generation=3), part(0, opcode=Op.SEND, ri_generation=3)),
    "SES-HEADER-DATA": Case((), part(0, header_data=1), part(0, header_data=1, hd=1)),
    "SES-INDEX-ZERO": Case((), part(0, resource_index=0), part(0)),
    "SES-TOKEN-ZERO": Case((), part(0, opcode=Op.DEFERRABLE_SEND, initiator_restart_token=0),
                           part(0, opcode=Op.DEFERRABLE_SEND)),
    "SES-EAGER-LENGTH": Case((), part(0, opcode=Op.RENDEZVOUS_SEND, length=64, more=(EAGER,)),
                             part(0, opcode=Op.RENDEZVOUS_SEND, eom=1, more=(EAGER,))),
    "SES-SYNC-COUNT": Case((), part(0, opcode=Op.SYNC_WRITE, length=64, hd=1, more=(SYNC._replace(count=0),)),
                           part(0, opcode=Op.SYNC_WRITE, length=64, hd=1, more=(SYNC,))),

    "SES-OPCODE-CHANGE": Case(whole()[:2], part(2, opcode=Op.SEND), part(2), (part(3),)),
    "SES-KEY-CHANGE": Case(whole()[:2], part(2, memory_key=1), part(2)),
    "SES-JOB-CHANGE": Case(whole()[:2], part(2, job_id=1), part(2)),
    "SES-LENGTH-CHANGE": Case(whole()[:2], part(2, request_length=LENGTH + 1), part(2)),
    "SES-ADDRESS-CHANGE": Case(whole()[:2], part(2, initiator=1), part(2)),
    "SES-BUFFER-OFFSET-CHANGE": Case(whole()[:2], part(2, buffer_offset=1), part(2)),
    "SES-DC-CHANGE": Case(whole()[:2], part(2, dc=1), part(2)),
    "SES-HD-BEHIND": Case(
        (part(1, hd=1), part(2, hd=1), part(3, hd=1)), part(0, hd=1, header_data=5), part(0, hd=0)),
    "SES-HD-LATER": Case(whole(hd=1)[:3], part(3, hd=0), part(3, hd=1)),

    "SES-SOM-TWICE": Case(whole()[:2], part(2, som=1), part(2), (part(3),)),
    "SES-EOM-TWICE": Case((part(0), part(1), part(3)), part(2, eom=1), part(2)),
    "SES-OFFSET-OVERLAP": Case(whole()[:2], part(2, message_offset=MTU), part(2), (part(3),)),
    "SES-OFFSET-ALIGNED": Case(whole()[:2], part(2, message_offset=MTU + 7), part(2), (part(3),)),
    "SES-OFFSET-ORDER": Case(whole()[:2], part(2, message_offset=3 * MTU, eom=1), part(2)),
    "SES-BEYOND-LENGTH": Case(whole()[:3], part(3, size=MTU + 1), part(3)),
    "SES-EOM-EARLY": Case(whole()[:2], part(2, eom=1), part(2)),
    "SES-EOM-MISSING": Case(whole()[:3], part(3, eom=0), part(3)),
    "SES-PAYLOAD-SIZE": Case(whole()[:2], part(2, size=MTU - 1), part(2)),
    "SES-PAYLOAD-MTU": Case(whole(length=TWO), part(0, psn=START + 2, message_id=6, length=TWO, size=TWO, eom=1),
                            part(0, psn=START + 2, message_id=6, length=TWO)),
    "SES-PACKET-COUNT": Case(whole()[:2], part(2, eom=1), part(2), (part(3),)),
    "SES-INTERLEAVED": Case((part(0), part(1), part(3)), part(0, psn=START + 2, length=64, message_id=6), part(2)),
    "SES-SOM-MISSING": Case(whole(), part(1, psn=START + 4, message_id=6), part(0, psn=START + 4, message_id=6)),
    "SES-UNFINISHED": Case((), part(0), _AT_ONCE),
    "SES-MSG-ERROR-FLAGS": Case(whole()[:2], error(2, eom=0), error(2)),
    "SES-MSG-ERROR-LATE": Case(whole(), error(4), error(4, message_id=6)),

    "SES-MESSAGE-ID-HELD": Case((*whole(), *(rsp(START + k) for k in range(4)), part(0, psn=START + 4, length=64)),
                                part(1, retx=1, clear=START), part(1, retx=1)),
    "SES-MESSAGE-ID-UNANSWERED": Case(
        (*whole(), *(rsp(START + k) for k in range(3))),
        part(0, psn=START + 4, length=64), part(0, psn=START + 4, length=64, message_id=6)),
    "SES-WENT-ON": Case((part(0), part(1), rsp(code=C.BAD_MKEY, req=1)), part(2, clear=START), part(2)),
    "SES-RTR-UNKNOWN": Case((deferrable(),), rtr(receiver_token=99), rtr()),
    "SES-RTR-OWNER": Case((deferrable(),), rtr(job_id=1), rtr()),
    "SES-RESTART-UNKNOWN": Case((deferrable(), rtr()), restart(target_restart_token=5), restart()),
    "SES-RESTART-OWNER": Case((deferrable(), rtr()), restart(initiator=1), restart()),
    "SES-RESTART-TWICE": Case((deferrable(), rtr(), restart()), restart(1), restart(1, target_restart_token=0)),
    "SES-SYNC-MEMBERS": Case((sync(0), sync(1)), sync(2, count=2), sync(2, count=3)),

    "SES-DEFAULT-WITH-ERROR": Case(whole(), rsp(code=C.BAD_MKEY, opcode=0), rsp(code=C.BAD_MKEY)),
    "SES-DEFAULT-LIST": Case(whole(opcode=Op.SEND), rsp(list=1), rsp(list=1, opcode=1)),
    "SES-RESPONSE-NULL": Case(whole(), rsp(code=C.NULL, opcode=1), rsp(code=C.NULL)),
    "SES-RESPONSE-HEADER": Case(whole(), rsp(opcode=2), rsp()),
    "SES-RESPONSE-WRONG-ID": Case(whole(), rsp(message_id=6), rsp(message_id=0)),
    "SES-RESPONSE-WRONG-JOB": Case(whole(), rsp(job_id=6), rsp(job_id=0)),
    "SES-RESPONSE-DATA": Case(whole(), returned(ack=START), rsp()),
    "SES-RESPONSE-OVERFLOW": Case(whole(), rsp(list=1, opcode=1), rsp()),
    "SES-MODIFIED-LENGTH": Case(whole(), rsp(modified_length=5), rsp(modified_length=0)),
    "SES-AMO-CODE": Case(whole(), rsp(code=C.AMO_UNALIGNED), rsp(code=C.BAD_ADDR)),
    "SES-MESSAGING-CODE": Case(whole(), rsp(code=C.NO_MATCH), rsp(code=C.BAD_MKEY)),
    "SES-RESPONSE-TWICE": Case((*whole(), rsp(code=C.BAD_MKEY)), rsp(code=C.BAD_ADDR), rsp(code=C.BAD_MKEY)),
    "SES-RESPONSE-FORGOTTEN": Case((*whole(), rsp(code=C.BAD_MKEY)), rsp(), rsp(code=C.BAD_MKEY)),
    "SES-RESPONSE-UNGUARANTEED": Case((_AT_ONCE,), rsp(code=C.BAD_MKEY), rsp(code=C.BAD_MKEY, req=1)),
    "SES-SAME-GENERATION": Case((part(0, opcode=Op.SEND, ri_generation=3),),
                                rsp(code=C.BAD_GENERATION, ri_generation=3),
                                rsp(code=C.BAD_GENERATION, ri_generation=4)),
    "SES-DISABLED-GEN-ACCEPTED": Case(
        (_AT_ONCE_ROD, part(0, psn=START + 1, length=64, opcode=Op.SEND, mode="rod", message_id=6),
         rsp(code=C.DISABLED_GEN)),
        rsp(START + 1, message_id=6, modified_length=64), rsp(START + 1, message_id=6, modified_length=0)),
    "SES-ROD-NO-MATCH": Case((_AT_ONCE_ROD,), rsp(code=C.NO_MATCH), rsp(code=C.DISABLED_GEN)),
    "SES-RESPONSE-GENERATION": Case(whole(), rsp(ri_generation=1), rsp()),
    "SES-STOP-LIST": Case((*whole(opcode=Op.DEFERRABLE_SEND), rsp(list=1, opcode=1, modified_length=0)),
                          rsp(START + 1, opcode=1, modified_length=0),
                          rsp(START + 1, list=1, opcode=1, modified_length=0)),
    "SES-STOP-AGAIN": Case((deferrable(), rtr(), restart()),
                           rsp(START + 1, list=1, opcode=1, modified_length=0, message_id=6),
                           rsp(START + 1, list=1, opcode=1, modified_length=64, message_id=6)),
    "SES-ATOMIC-DATATYPE": Case(
        (atomic(atomic_opcode=AtomicOpcode.BXOR, atomic_datatype=AtomicDatatype.DOUBLE),),
        rsp(modified_length=8), rsp(code=C.AMO_UNSUPPORTED_DT)),
    "SES-ATOMIC-SIZE": Case((atomic(length=12),), rsp(modified_length=12), rsp(code=C.AMO_UNSUPPORTED_SIZE)),
    "SES-ATOMIC-ALIGNED": Case((atomic(buffer_offset=4),), rsp(modified_length=8), rsp(code=C.AMO_UNALIGNED)),

    "SES-DATA-UNASKED": Case(read(), returned(read_request_message_id=6), returned()),
    "SES-DATA-NO-READ": Case(whole(), returned(), rsp()),
    "SES-DATA-JOB": Case(read(), returned(job_id=1), returned()),
    "SES-DATA-BEYOND": Case(read(), returned(3, message_offset=3 * MTU + 1), returned(3)),
    "SES-DATA-SIZE": Case(read(), returned(1, payload_length=9), returned(1)),
    "SES-DATA-OVERLAP": Case((*read(), returned(0), returned(1)), returned(1, psn=60), returned(2)),
    "SES-DATA-TWO-WAYS": Case((*read(), returned(0)), returned(1, ack=START + 1), returned(1)),
    "SES-DATA-MODIFIED-LENGTH": Case(read(), returned(modified_length=MTU), returned()),
    "SES-DATA-HEADER": Case(read(), returned(opcode=1), returned()),
    "SES-DATA-CODE": Case(read(), returned(return_code=C.BAD_ADDR), returned()),
    "SES-RESPONSE-MESSAGE-ID": Case(
        (*read(), returned(0, response_message_id=ID)),
        returned(1, response_message_id=0), returned(1, response_message_id=ID)),
}  # fmt: skip


def test_each_rule_has_a_violation() -> None:
    assert set(CASES) == {rule.id for rule in RULES}


@pytest.mark.parametrize("rule", CASES)
def test_violation_is_found_where_it_is(rule: str) -> None:
    case = CASES[rule]
    assert (rule, len(case.before)) in found((*case.before, case.wrong, *case.after))


@each("rule", CASES)
def test_nothing_is_found_where_all_is_well(rule: str) -> None:
    case = CASES[rule]
    assert rule not in dict(found((*case.before, case.right, *case.after)))


@each("rule", RULES)
def test_finding_can_be_read(rule: Any) -> None:
    case = CASES[rule.id]
    findings = Bench().see((*case.before, case.wrong, *case.after))
    one = next(finding for finding in findings if finding.rule is rule)
    assert one.as_dict()["text"].startswith(rule.says)
    assert one.expected != one.seen
    assert one.flow["src"]


@each("rule", RULES)
def test_only_what_a_source_says_is_more_than_a_note(rule: Any) -> None:
    assert rule.severity is Severity.NOTE or rule.cite.startswith("UE 1.0.1 §")
    assert rule.cite == CHOICE or rule.cite.startswith("UE 1.0.1 §")


def test_every_invariant_is_judged_or_explained() -> None:
    """Those of ses.md §15; RUDI has rules of its own."""
    judged = {one for rule in RULES for one in rule.covers if one.startswith("ses")}
    explained = {one for one, _ in NOT_OBSERVABLE}
    assert judged | explained | {"ses 33"} == {f"ses {number}" for number in range(1, 37)}
    assert not judged & explained
