# SPDX-License-Identifier: GPL-2.0-only
"""Messages as the audit follows them: whose packet is whose, whatever is missing, late, or seen twice."""

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random

import pytest

from tests.support.audit.build import GOLDEN, ROOT, A, B, head, packet, seen_of_capture
from tests.support.audit.ses_rules import (
    ID,
    JOB,
    LENGTH,
    MTU,
    START,
    Bench,
    Line,
    found,
    part,
    read,
    returned,
    rsp,
    whole,
)
from tests.support.each import each
from uetproto.audit.auditor import Auditor
from uetproto.audit.finding import Finding
from uetproto.audit.pds.rules_rudi import RULES as RUDI_RULES
from uetproto.audit.reader.observed import Head, ObservedPacket, head_class
from uetproto.audit.reader.options import Options
from uetproto.audit.ses.rules import RULES
from uetproto.audit.ses.tracker_events import SesEvent
from uetproto.audit.ses.tracker_message import MESSAGES, PSNS
from uetproto.engine.tss.keys import KeyRing
from uetproto.wire.forms import FORMS
from uetproto.wire.headers.uet_ses import REQUESTS, RESPONSES, Opcode, ReturnCode

REFPROV = Path(os.environ.get("UETPROTO_SHARED", ROOT.parent / "shared")) / "captures" / "refprov"
OTHERS = ("roce", "incast-roce", "collective")
UET = sorted(path for path in GOLDEN.glob("*.pcapng") if not path.name.startswith(OTHERS))
ALL_RULES = RULES + RUDI_RULES


def counted(bench: Bench, rule: str) -> int:
    return bench.judge.tallies[rule].judged


# Whose packet is whose ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", [(0, 1, 2, 3), (3, 2, 1, 0), (2, 0, 3, 1), (1, 3, 0, 2)])
def test_packets_of_a_message_come_in_any_order(order: Sequence[int]) -> None:
    bench = Bench()
    assert bench.see([part(k) for k in order]) == []
    assert counted(bench, "SES-OPCODE-CHANGE") == 3
    assert counted(bench, "SES-PACKET-COUNT") == 1


def test_long_message_is_followed_to_its_end() -> None:
    length = 300 * MTU
    bench = Bench()
    assert bench.see(whole(length=length)) == []
    assert counted(bench, "SES-PACKET-COUNT") == 1


ANSWERED = tuple(rsp(START + k) for k in range(4))


def test_id_is_used_again_behind_eom() -> None:
    again = [part(k, psn=START + 4 + k, memory_key=1) for k in range(4)]
    bench = Bench()
    assert bench.see([*whole(), *ANSWERED, *again]) == []
    assert counted(bench, "SES-PACKET-COUNT") == 2


@pytest.mark.parametrize("lost", [(3,), (2, 3), (1, 2, 3), (3, 4), (3, 4, 5), (0, 3, 4, 7)])
def test_id_is_used_again_and_the_packets_between_were_not_seen(lost: Sequence[int]) -> None:
    """Nothing says that the packets behind the gap are of the first message: another key is no finding."""
    again = [part(k, psn=START + 4 + k, memory_key=1) for k in range(4)]
    seen, seen_again = ([line for line in lines if line.psn - START not in lost] for lines in (whole(), again))
    assert [rule for rule, _ in found([*seen, *ANSWERED, *seen_again])] in (
        [],
        ["SES-UNFINISHED"],
        ["SES-UNFINISHED"] * 2,
    )


def test_psns_may_wrap() -> None:
    first = 0xFFFFFFFE
    assert found([part(k, psn=(first + k) & 0xFFFFFFFF) for k in range(4)]) == []


def test_other_psns_between_the_packets_of_a_message() -> None:
    """A control packet, or read data of this end, takes a PSN of the same space."""
    bench = Bench()
    lines = [part(0), part(1), part(2, psn=START + 3), part(3, psn=START + 4)]
    assert [finding.rule.id for finding in bench.see(lines)] == []
    assert counted(bench, "SES-OFFSET-ORDER") == 3


def test_third_packet_says_which_of_two_is_wrong() -> None:
    assert ("SES-KEY-CHANGE", 0) in found([part(0, memory_key=1), part(1), part(2), part(3)])
    assert ("SES-KEY-CHANGE", 1) in found([part(0), part(1, memory_key=1), part(2), part(3)])
    assert ("SES-KEY-CHANGE", 1) in found([part(0, length=2 * MTU), part(1, length=2 * MTU, memory_key=1)])


def test_misplaced_packet_is_recognised_when_its_neighbours_come() -> None:
    assert ("SES-SOM-TWICE", 2) in found([part(0), part(1), part(3, som=1, eom=0), part(2)])


def test_overlap_is_told_when_the_other_packet_comes() -> None:
    assert ("SES-OFFSET-OVERLAP", 2) in found([part(0), part(1), part(2, message_offset=3 * MTU), part(3)])


def test_retransmission_is_compared_with_the_message() -> None:
    bench = Bench()
    for number, line in enumerate(whole()):
        bench.one(line, packet(number, A, B, line.head, ses=line.ses, size=line.size))
    line = part(2, job_id=1)
    bench.tracker.request(bench.forward, packet(9, A, B, line.head, ses=line.ses, size=line.size), False)
    assert [finding.rule.id for finding in bench.judge.findings] == ["SES-JOB-CHANGE"]


def test_length_that_is_not_known_is_not_judged() -> None:
    """A truncated capture has headers without their payload."""
    assert found([part(k, carried=-1) for k in range(4)]) == []


def test_message_of_one_size_begins_with_any_packet() -> None:
    bench = Bench()
    assert [finding.rule.id for finding in bench.see([part(2), part(3)])] == ["SES-UNFINISHED"]
    assert counted(bench, "SES-OPCODE-CHANGE") == 1


# What comes back ------------------------------------------------------------------------------------------------------


def test_usual_responses_are_counted_and_nothing_else() -> None:
    answered: list[int] = []
    bench = Bench(heard={SesEvent.ANSWERED: lambda numbers, _, seen: numbers.append(seen.number)}, listener=answered)
    assert bench.see([*whole(), *(rsp(START + k) for k in range(4)), rsp(modified_length=0)]) == []
    assert counted(bench, "SES-RESPONSE-WRONG-ID") == 5
    assert answered == [8]


def test_response_to_what_was_not_seen_rests() -> None:
    bench = Bench()
    assert bench.see([rsp()]) == []
    assert bench.judge.tallies["SES-RESPONSE-WRONG-ID"].not_judged == {"request not seen": 1}


def test_read_is_answered_in_the_return_direction() -> None:
    acks = [rsp(50 + k, src=A, message_id=0, modified_length=MTU) for k in range(4)]
    bench = Bench()
    assert bench.see([*read(), *(returned(k) for k in (1, 0, 3, 2)), *acks]) == []
    assert counted(bench, "SES-DATA-OVERLAP") == 4
    assert counted(bench, "SES-RESPONSE-WRONG-JOB") == 4


def test_response_to_read_data_has_its_id() -> None:
    wrong = rsp(50, src=A, message_id=ID, modified_length=MTU)
    assert ("SES-RESPONSE-WRONG-ID", 5) in found(
        [*read(), returned(0), wrong._replace(ses=wrong.ses._replace(opcode=1))]
    )


def test_read_is_answered_in_the_ack_and_repeated() -> None:
    line = returned(ack=START, length=16)
    assert found([*read(16), line, line]) == []


# Bounded, and never surprised -----------------------------------------------------------------------------------------


def test_what_is_kept_is_bounded() -> None:
    bench = Bench()
    for number in range(5 * PSNS):
        line = part(0, psn=START + number, length=64, message_id=1 + number)
        bench.one(line, packet(number, A, B, line.head, ses=line.ses, size=64))
    assert len(bench.forward.ses.sent) <= 2 * PSNS + 256
    assert len(bench.forward.ses.messages) <= 2 * MESSAGES + 256
    bench.tracker.close(bench.forward)
    assert not bench.forward.ses.sent
    assert not bench.forward.ses.messages


def test_any_header_anywhere_is_borne() -> None:
    """Whatever a form and its fields are, nothing is raised, and every finding can be read."""
    random = Random(9)
    forms = [header.name for header in (*REQUESTS, *RESPONSES)]
    opcodes = [*map(int, Opcode), 0x2A]
    codes = [*map(int, ReturnCode), 0x31]

    def value(name: str, bits: int) -> int:
        if name == "opcode":
            return random.choice(opcodes)
        if name == "return_code":
            return random.choice(codes)
        few = {"payload_length": MTU, "message_offset": MTU * random.getrandbits(2), "request_length": LENGTH}
        return few.get(name, 0) if random.getrandbits(2) else random.getrandbits(bits)

    def some() -> Head:
        form = random.choice(forms)
        return head_class(form)(*(value(field.name, field.bits) for field in FORMS[form].fields))

    bench = Bench()
    for number in range(4000):
        ses = None if not random.getrandbits(5) else some()
        extension = FORMS[random.choice(("ses.ext.atomic", "ses.ext.atomic_cas", "ses.ext.rendezvous", "ses.ext.sync"))]
        more = head_class(extension.name)(*(random.getrandbits(min(5, field.bits)) for field in extension.fields))
        kind = head_class(random.choice(("pds.rud_req", "pds.rod_req")))
        leads = kind._make(START + random.getrandbits(4) for _ in kind._fields)._replace(next_hdr=random.getrandbits(2))
        size = random.choice((-1, 0, 8, MTU))
        seen = packet(number, A, B, leads, ses=ses, more=(more,) if random.getrandbits(1) else (), size=size)
        way = random.getrandbits(2)
        direction = random.choice((bench.forward, bench.back))
        if way < 2:
            bench.tracker.request(direction, seen, bool(random.getrandbits(2)))
        elif way == 2:
            bench.tracker.data(direction, seen, True)
        else:
            ack = seen._replace(head=head("pds.ack", req=random.getrandbits(2)))
            bench.tracker.response(direction, ack, random.choice((None, START + random.getrandbits(4))))
    bench.tracker.sweep(0)
    bench.tracker.end()
    assert bench.judge.findings
    assert all(finding.as_dict() for finding in bench.judge.findings)


# Captures -------------------------------------------------------------------------------------------------------------


def options_of(path: Path) -> Options:
    keys = path.with_suffix(".keys.toml")
    return Options(keys=KeyRing.read(keys) if keys.exists() else None)


def audited(packets: Sequence[ObservedPacket], options: Options) -> list[Finding]:
    auditor = Auditor(options, rules=ALL_RULES)
    for seen in packets:
        auditor.see(seen)
    auditor.end()
    return auditor.judge.findings


def findings_of(path: Path) -> set[str]:
    options = options_of(path)
    return {finding.rule.id for packets in seen_of_capture(path, options) for finding in audited(packets, options)}


@each("path", UET)
def test_golden_captures_are_right(path: Path) -> None:
    named = {"RUDI-KEY"} if path.stem.startswith("ladder-L29") else set()
    assert findings_of(path) == named


View = Callable[[Sequence[ObservedPacket], Random], list[ObservedPacket]]
VIEWS: dict[str, View] = {
    "a tenth lost": lambda seen, random: [one for one in seen if random.random() > 0.1],
    "half lost": lambda seen, random: [one for one in seen if random.random() > 0.5],
    "second half": lambda seen, random: list(seen[len(seen) // 2 :]),
    "one direction": lambda seen, random: [one for one in seen if one.src == seen[0].src],
    "out of order": lambda seen, random: sorted(seen, key=lambda one: one.number + 8 * random.random()),
}


@pytest.mark.parametrize("view", VIEWS)
def test_parts_of_right_captures_are_right(view: str) -> None:
    random = Random(1)
    for path in UET:
        options = options_of(path)
        for packets in seen_of_capture(path, options):
            found = audited(VIEWS[view](packets, random), options) if packets else []
            assert {finding.rule.id for finding in found} <= {"RUDI-KEY"}, path.name


HABITS = {
    "SES-MESSAGE-ID-ZERO": "message ids begin with 0",
    "SES-ROD-NO-MATCH": "ROD without a buffer: NO_MATCH for the first",
    "SES-RESPONSE-GENERATION": "the current generation in every response",
    "SES-HD-LATER": "hd only in the SOM packet",
    "SES-TOKEN-ZERO": "token 0 in use",
    "SES-STOP-LIST": "only the first packet's stop response has list OVERFLOW",
    "SES-INDEX-ZERO": "RTR has resource_index 0",
    "UUD-OPCODE": "UUD carries SEND",
    "UUD-MESSAGE-ID": "message ids on UUD",
}
"""Rules that the reference provider departs from, and the row of observed.md that says so."""


@pytest.mark.skipif(not REFPROV.exists(), reason=f"no captures of the reference provider in {REFPROV}")
def test_reference_captures_show_its_habits_and_nothing_else() -> None:
    shown = {rule for path in sorted(REFPROV.glob("*.pcap")) for rule in findings_of(path)}
    assert shown == set(HABITS)


def test_lines_are_as_the_tests_say() -> None:
    line = part(2)
    assert isinstance(line, Line)
    assert (line.ses.message_offset, line.ses.job_id, line.psn) == (2 * MTU, JOB, START + 2)
