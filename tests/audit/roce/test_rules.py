# SPDX-License-Identifier: GPL-2.0-only
"""Every rule about queue pairs: packets that violate it, found at the right one, and a twin that is right."""

import os
import random
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support.audit.build import GOLDEN, ROOT, seen_of_capture
from tests.support.audit.roce_rules import (
    ALL,
    PMTU,
    UC,
    Line,
    O,
    RoceAudit,
    ack,
    answer,
    atomic,
    cnp,
    data,
    datagram,
    marked,
    observed,
    only,
    read,
    req,
    value,
    write,
)
from tests.support.each import each
from uetproto.audit.auditor import Auditor, audit
from uetproto.audit.reader.options import Options
from uetproto.audit.roce.rules import NOT_OBSERVABLE, RULES
from uetproto.audit.roce.rules_wire import RULES as WIRE_RULES
from uetproto.audit.roce.tracker_state import MOST
from uetproto.audit.rule import Severity
from uetproto.wire.headers.roce import Nak
from uetproto.wire.mutate.roce import CHANGES, CHANGES_OF_HISTORY

CAPTURES = Path(os.environ.get("UETPROTO_SHARED", ROOT.parent / "shared")) / "captures" / "roce"


class Case(NamedTuple):
    """A violation, its packets, and what is right instead."""

    rule: str
    wrong: list[Line]
    packets: tuple[int, ...]
    right: list[Line]


def _to(destqp: int, line: Line) -> Line:
    src, dst, header, others = line
    return src, dst, header._replace(destqp=destqp), others


NAK = ack(1, 1, Nak.PSN_SEQUENCE_ERROR)
REFUSED = ack(1, 1, Nak.REMOTE_ACCESS_ERROR)
CASES = (
    Case("ROCE-KEY-CHANGE", [only(0), only(1, p_key=0xFFFE), only(2)], (0, 1),
         [only(0), only(1, p_key=0x7FFF), only(2)]),
    Case("ROCE-KEY-CHANGE", [only(0), ack(0, p_key=0xFFFE)], (0, 1), [only(0), ack(0, p_key=0x7FFF)]),
    Case("ROCE-KEY-CHANGE", [datagram(0, 1), datagram(1, 2, 0xFEFF)], (0, 1), [datagram(0, 1), datagram(1, 2)]),
    Case("ROCE-KEY-CHANGE", [only(0), ack(0), cnp(p_key=0xFFFE)], (2,),
         [marked(only(0)), cnp(p_key=0x8001)]),  # nothing else is seen of its queue pair
    Case("ROCE-PATH-MTU", write(0, 3 * PMTU, (PMTU, 2 * PMTU, 0)), (0, 1), write(0, 3 * PMTU, (PMTU,) * 3)),
    Case("ROCE-PATH-MTU", [*write(0, 2 * PMTU + 10), only(3, PMTU + 4)], (0, 3), [*write(0, 2 * PMTU + 10), only(3)]),
    Case("ROCE-PATH-MTU", [only(0, PMTU + 4), *write(1, 2 * PMTU + 10)], (0, 1),
         [only(0, PMTU), *write(1, 2 * PMTU + 10)]),
    Case("ROCE-OPCODE-ORDER", [*write(0, 2 * PMTU + 10)[:2], req(O.SEND_LAST, 2, 10)], (1, 2),
         write(0, 2 * PMTU + 10)),
    Case("ROCE-OPCODE-ORDER", [req(O.SEND_FIRST, 0, PMTU), only(1)], (0, 1),
         [req(O.SEND_FIRST, 0, PMTU), req(O.SEND_LAST, 1, 8)]),
    Case("ROCE-OPCODE-ORDER", [only(0), req(O.SEND_LAST, 2, 8), only(1)], (1, 2),
         [only(0), only(2), only(1)]),
    Case("ROCE-OPCODE-ORDER", [only(0), only(1), req(O.SEND_LAST, 1, 8), only(2)], (0, 2),
         [only(0), only(1), only(1), only(2)]),
    Case("ROCE-OPCODE-ORDER",
         [req(O.SEND_FIRST, 0, PMTU, transport=UC), req(O.RDMA_WRITE_LAST, 1, 8, transport=UC)], (0, 1),
         [req(O.SEND_FIRST, 0, PMTU, transport=UC), only(1, transport=UC)]),
    Case("ROCE-PSN-TWO-CONTENTS", [only(0), only(1), only(0, content=1), only(2)], (0, 2),
         [only(0), only(1), only(0), only(2)]),
    Case("ROCE-PSN-TWO-CONTENTS", [only(0), only(1), only(0, content=1)], (0, 2), [only(0), only(1), only(0)]),
    Case("ROCE-READ-PSN", [read(0), *data(0), only(3), read(1, 9)], (0, 5),
         [read(0), *data(0), only(3), read(1, PMTU + 10, va=0x20000000 + PMTU)]),
    Case("ROCE-READ-PSN", [read(0), *data(0), only(3), only(1)], (0, 5), [read(0), *data(0), only(3), only(3)]),
    Case("ROCE-PSN-GAP", [only(0), only(2)], (1,), [only(0), only(1), only(2)]),
    Case("ROCE-PSN-JUMP", [only(0), only(1 << 20), only(2)], (1,), [only(0), only(1 << 20), only((1 << 20) + 1)]),
    Case("ROCE-PSN-JUMP", [only(0), only(1 << 20), ack(1)], (1,), [only(0), only(1 << 20), ack(1 << 20)]),
    Case("ROCE-PSN-JUMP", [req(O.SEND_FIRST, 0, PMTU), req(O.SEND_LAST, 1 << 20, 8)], (1,),
         [req(O.SEND_FIRST, 0, PMTU), req(O.SEND_LAST, 1, 8)]),
    Case("ROCE-DESTQP", [only(0), _to(9, only(1)), _to(9, only(2)), only(3)], (0, 1), [only(0), _to(9, only(5))]),
    Case("ROCE-DESTQP", [only(0), ack(0), only(1), _to(9, ack(1, 2))], (1, 3), [only(0), ack(0), only(1), ack(1, 2)]),
    Case("ROCE-PSN-ORDER", [only(0), only(2), only(1), only(3)], (1, 2), [only(0), only(1), only(2), only(1), only(3)]),
    Case("ROCE-PSN-ORDER", [only(n, transport=UC) for n in (0, 3, 1, 4)], (1, 2),
         [only(n, transport=UC) for n in (0, 1, 3, 4)]),
    Case("ROCE-ATOMIC-ALIGNED", [atomic(0, 0x20000004)], (0,), [atomic(0)]),
    Case("ROCE-UD-PSN", [datagram(0, 1), datagram(0, 2)], (0, 1), [datagram(0, 1), datagram(0, 1), datagram(1, 2)]),
    Case("ROCE-PSN-NOT-SENT", [only(0), ack(0), ack(1 << 22), only(1)], (2,), [only(0), ack(0), only(1), ack(1, 2)]),
    Case("ROCE-PSN-NOT-SENT", [only(0), ack(1 << 22)], (1,), [only(0), ack(0)]),
    Case("ROCE-PSN-NOT-SENT", [only(0), ack(1)], (1,), [only(0), only(1), ack(1, 2)]),
    Case("ROCE-PSN-NOT-SENT", [only(0), ack(5), *(only(n) for n in range(1, 9))], (1,), [read(0), *data(0), only(3)]),
    Case("ROCE-PSN-NOT-SENT", [read(0, 100), *data(0, (50, 50))], (2,), [read(0), *data(0)]),
    Case("ROCE-ACK-ALONE", [only(0), atomic(1), ack(1, 2)], (1, 2), [only(0), atomic(1), value(1, 5, 2), ack(1, 2)]),
    Case("ROCE-ACK-ALONE", [only(0), read(1, 10), ack(1, 2)], (1, 2), [only(0), read(1, 10), only(0), ack(1, 2)]),
    Case("ROCE-ACK-ALONE", [read(0), ack(2)], (0, 1), [read(0), *data(0), ack(2)]),
    Case("ROCE-RESPONSE-KIND", [read(0), *data(0)[:1], ack(1)], (0, 2), [read(0), *data(0), ack(2)]),
    Case("ROCE-RESPONSE-KIND", [only(0), value(0, 5), only(1)], (0, 1), [atomic(0), value(0, 5), only(1)]),
    Case("ROCE-RESPONSE-KIND", [only(0), *data(0, (8, 8))[:1], only(1)], (0, 1),
         [read(0, 2 * PMTU), *data(0, (PMTU,) * 2)]),
    Case("ROCE-READ-ORDER", [only(0), read(1), *data(1)[1:], answer(O.RDMA_READ_RESPONSE_MIDDLE, 1, PMTU)], (1, 4),
         [only(0), read(1), *data(1)]),
    Case("ROCE-LENGTH", write(0, 2 * PMTU + 11), (0, 2), write(0, 2 * PMTU + 10)),
    Case("ROCE-LENGTH", [*write(0, 2 * PMTU + 11)[::2], write(0, 2 * PMTU + 11)[1]], (0, 2),
         [*write(0, 2 * PMTU + 10)[::2], write(0, 2 * PMTU + 10)[1]]),
    Case("ROCE-LENGTH", [read(0, 2 * PMTU + 11), *data(0)], (0, 3), [read(0), *data(0)]),
    Case("ROCE-LENGTH", [read(0, 100), *data(0)], (0, 1), [read(0), *data(0)]),
    Case("ROCE-ATOMIC-ANSWER", [atomic(0), value(0, 5), atomic(0), value(0, 6)], (1, 3),
         [atomic(0), value(0, 5), atomic(0), value(0, 5)]),
    Case("ROCE-MSN", [only(0), ack(0), only(1), ack(1, 3)], (1, 3), [only(0), ack(0), only(1), ack(1, 2)]),
    Case("ROCE-MSN", [*write(0, 2 * PMTU + 10), ack(0, 0), ack(2, 0)], (3, 4),
         [*write(0, 2 * PMTU + 10), ack(0, 0), ack(2, 1)]),
    Case("ROCE-ANSWER-AFTER-NAK", [only(0), only(1), REFUSED, ack(1, 2)], (2, 3), [only(0), only(1), REFUSED, REFUSED]),
    Case("ROCE-NAK-AGAIN", [only(0), only(2), NAK, NAK, only(1)], (2, 3),
         [only(0), only(1), NAK, only(1), NAK, only(1)]),
    Case("ROCE-NAK-UNHEEDED", [only(0), only(1), only(2), NAK], (3,), [only(0), only(1), only(2), NAK, only(1)]),
    Case("ROCE-CNP-UNMARKED", [only(0), cnp()], (1,), [marked(only(0)), cnp()]),
)  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.rule)
def test_violation(case: Case) -> None:
    """It is found at the right packets; what shows nothing but itself has no other findings, but for its absences."""
    found = [finding for finding in RoceAudit().see(observed(case.wrong)) if finding.rule.id == case.rule]
    assert [finding.packets for finding in found] == [case.packets]
    assert found[0].text
    assert found[0].as_dict()["flow"]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.rule)
def test_twin(case: Case) -> None:
    audit = RoceAudit()
    assert case.rule not in [finding.rule.id for finding in audit.see(observed(case.right))]
    assert [f for f in RoceAudit(Options()).see(observed(case.right)) if f.severity is not Severity.NOTE] == []


def test_every_rule_has_a_case() -> None:
    assert {case.rule for case in CASES} == {rule.id for rule in RULES} | {"ROCE-LENGTH"}


def test_rules_of_mutations_are_here_or_about_single_packets() -> None:
    wanted = {rule for _, rule in (*CHANGES.values(), *CHANGES_OF_HISTORY.values()) if rule} | {"ROCE-KEY-CHANGE"}
    assert wanted <= {rule.id for rule in (*RULES, *WIRE_RULES)}


def test_each_invariant_is_judged_or_said_not_to_be_observable() -> None:
    judged = {name for rule in RULES for name in rule.covers}
    apart = {name for name, _ in NOT_OBSERVABLE}
    assert judged.isdisjoint(apart)
    assert judged | apart == {f"roce {number}" for number in range(1, 13)}


# What must not be found -----------------------------------------------------------------------------------------------


def test_notes_and_absences_need_promises() -> None:
    findings = [f.rule.id for case in CASES for f in RoceAudit(Options()).see(observed(case.wrong))]
    assert not {"ROCE-PSN-GAP", "ROCE-NAK-UNHEEDED", "ROCE-CNP-UNMARKED", "ROCE-NAK-AGAIN"} & set(findings)


def why(lines: list[Line], rule: str, options: Options) -> tuple[int, int, dict[str, int]]:
    """How often a rule was asked and failed, and why it was not judged."""
    audit_ = RoceAudit(options)
    audit_.see(observed(lines))
    tally = audit_.judge.tallies[rule]
    return tally.asked, tally.failed, dict(tally.not_judged)


def test_answers_a_little_ahead_of_their_requests() -> None:
    """Without the promise of order they are wrong if the requests never come; a new connection leaves it open."""
    complete, rule = Options(complete=True), "ROCE-PSN-NOT-SENT"
    lines = [only(0), ack(0), ack(3, 4), *(only(n) for n in (1, 2, 3))]
    assert why(lines, rule, complete) == (2, 0, {"needs --ordered": 1})
    assert why(lines[:-1], rule, complete) == (2, 1, {})
    assert why(lines, rule, ALL) == (2, 1, {})
    anew = [*lines[:3], only(1 << 22), ack(1 << 22)]
    assert why(anew, rule, complete) == (3, 0, {"the queue pairs may have been connected anew": 1})
    many = [only(0), *(ack(n) for n in range(2, 90))]
    assert why(many, rule, complete) == (88, 64, {"too many such answers": 24})


def test_order_of_first_transmissions_needs_the_first_copies() -> None:
    """A request that comes late on RC may be sent again, unless nothing is missing; UC sends nothing again."""
    ordered, rule = Options(ordered=True), "ROCE-PSN-ORDER"
    assert why([only(0), only(2), only(1)], rule, ordered) == (3, 0, {"needs --complete": 1})
    assert why([only(n, transport=UC) for n in (0, 2, 1)], rule, ordered) == (3, 1, {})
    assert why([only(5), only(4), only(6)], rule, ALL) == (3, 0, {"it may be sent again": 1})
    assert why([only(0), only(2), only(1)], "ROCE-PSN-GAP", Options(complete=True)) == (3, 0, {})
    assert why([only(0), only(3), only(1)], "ROCE-PSN-GAP", Options(complete=True)) == (3, 1, {})


def test_the_rest_of_a_read_is_asked_for_behind_a_short_read() -> None:
    """The first answer shows the path MTU of the READ that needs it, although a READ that does not is newer."""
    first = [read(0), read(3, 8), data(0)[0]]
    rest = read(1, PMTU + 10, va=0x20000000 + PMTU)
    assert why([*first, rest], "ROCE-PSN-ORDER", ALL) == (2, 0, {})
    assert RoceAudit().see(observed([*first, rest])) == []


def test_answers_before_the_first_request_wait_for_it() -> None:
    """A capture need not be in the order of time."""
    assert RoceAudit().see(observed([ack(0), ack(1, 2), only(0), only(1)])) == []
    (found,) = RoceAudit().see(observed([ack(0), ack(1, 4), only(0), only(1), ack(1, 2)]))[:1]
    assert found.rule.id == "ROCE-MSN"


def test_a_new_connection_on_the_same_queue_pairs_has_other_requests() -> None:
    """After a refusal, from a PSN far away, or request by request where the PSNs are the same."""
    refused = [only(0), only(1), REFUSED, only(0, content=1), only(1, content=1), ack(1, 2)]
    assert RoceAudit(Options()).see(observed(refused)) == []
    away = [only(0), only(1), only(1 << 20, content=1), only(1 << 20 | 1), ack(1 << 20 | 1, 2)]
    assert RoceAudit().see(observed(away)) == []
    same = [only(0), only(1), ack(1, 2), only(0, 4, content=1), only(1, 4, content=1), ack(1, 2)]
    assert RoceAudit().see(observed(same)) == []


def test_queue_pairs_with_equal_psns_are_told_apart_by_source_port_or_not_at_all() -> None:
    """An ACK of one says nothing of the other."""

    def pair(number: int, *lines: Line, port: bool) -> list[Line]:
        return [
            (src, dst, bth._replace(destqp=bth.destqp + 0x100 * number), more | ({"entropy": number} if port else {}))
            for src, dst, bth, more in lines
        ]

    one = [only(0), ack(0, 1), only(1), ack(1, 2)]
    other = [only(0), ack(0, 7), only(1), ack(1, 8)]
    for port in (True, False):
        lines = [x for two in zip(pair(1, *one, port=port), pair(2, *other, port=port), strict=True) for x in two]
        assert RoceAudit().see(observed(lines)) == []
    wrong = [only(0), ack(0, 7), only(1), ack(1, 9)]
    lines = pair(1, *one, port=True) + pair(2, *wrong, port=True)
    assert [f.rule.id for f in RoceAudit().see(observed(lines))] == ["ROCE-MSN"]


def test_unknown_sizes_are_not_judged() -> None:
    """A capture that kept less."""
    lines = [(src, dst, bth, more | {"size": -1, "content": None}) for src, dst, bth, more in write(0, 1)]
    assert RoceAudit().see(observed([*lines, *lines])) == []


def test_memory_is_bounded() -> None:
    audit = RoceAudit()
    for i, seen in enumerate(observed([only(i) for i in range(3 * MOST)])):
        audit.tracker.see(seen)
        if i % 4096 == 0:
            audit.tracker.sweep(seen.time_ns)
    (stream,) = audit.tracker.flows
    assert len(stream.records) <= MOST
    audit.tracker.sweep(stream.last_ns + 61 * 10**9)
    assert audit.tracker.flows.forgotten == {"silent": 1, "evicted": 0}
    assert not audit.tracker._by_key
    assert not audit.tracker._by_hosts


# Captures -------------------------------------------------------------------------------------------------------------

ROCE = sorted(path for path in GOLDEN.glob("*.pcapng") if "roce" in path.name or path.name.startswith("collective"))
ON_PURPOSE = {
    "roce-fail-unaligned.pcapng": [("ROCE-ATOMIC-ALIGNED", (0,))],
    "roce-fail-icrc.pcapng": [("ROCE-ICRC", (0,))],
}
"""Scenarios that show how a peer takes it."""


@each("path", ROCE)
def test_golden(path: Path) -> None:
    found = [(f.rule.id, f.packets) for f in audit([path], Options(rules=("roce-*",))).findings]
    assert found == ON_PURPOSE.get(path.name, [])


VIEWS = ("half", "thinned", "one direction", "doubled", "disordered")


@pytest.mark.parametrize("view", VIEWS)
def test_views(view: str) -> None:
    """What a tap did not see, or saw twice or late, is no error and no warning."""
    rng = random.Random(view)
    for path in ROCE:
        for interface in seen_of_capture(path):
            packets = interface[len(interface) // 2 :] if view == "half" else list(interface)
            if view == "thinned":
                packets = [seen for seen in packets if rng.random() < 0.9]
            elif view == "one direction":
                packets = [seen for seen in packets if seen.src == packets[0].src]
            elif view == "doubled":
                packets = [seen for seen in packets for _ in range(2)]
            elif view == "disordered":
                packets.sort(key=lambda seen: seen.number + 4 * rng.random())
            auditor = Auditor(Options(rules=("roce-*",)))
            for seen in packets:
                auditor.see(seen)
            auditor.end()
            found = [(f.rule.id, f.packets) for f in auditor.judge.findings if f.severity is not Severity.NOTE]
            assert [f for f in found if f not in ON_PURPOSE.get(path.name, [])] == [], path.name


OTHERS: dict[str, dict[str, int]] = {
    # capture                findings of RoCE by rule
    "dc-small.pcap":         {"ROCE-ICRC-CAPTURE": 2},  # a vendor's transport: not followed
    "native-erf.pcap":       {},
    "nvme-discover.pcap":    {},
    "rdma-nccl2.pcap":       {"ROCE-ICRC-CAPTURE": 2},  # the capture changed addresses: no ICRC of these is right
    "read2.pcap":            {},
    "rocev1.pcap":           {},
    "send.pcap":             {},
    "write.pcap":            {},
}  # fmt: skip
"""Real adapters: what is found in their captures, each explained."""


@pytest.mark.skipif(not CAPTURES.is_dir(), reason=f"{CAPTURES} is not here")
@pytest.mark.parametrize("name", OTHERS)
def test_real_adapters(name: str) -> None:
    found: dict[str, int] = {}
    for finding in audit([CAPTURES / name], Options(rules=("roce-*",))).findings:
        found[finding.rule.id] = found.get(finding.rule.id, 0) + 1
    assert found == OTHERS[name]


@pytest.mark.skipif(not CAPTURES.is_dir(), reason=f"{CAPTURES} is not here")
def test_every_capture_of_a_real_adapter_is_in_the_table() -> None:
    assert {path.name for path in CAPTURES.iterdir()} == set(OTHERS)
