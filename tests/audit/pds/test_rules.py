# SPDX-License-Identifier: GPL-2.0-only
"""Every rule about PDCs: a conversation that violates it, found at the right packet, and one that is right."""

import os
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.support.audit.build import GOLDEN, IPDCID, ROOT, TPDCID, A, B, PdsAudit, head, seen_of_capture
from tests.support.audit.pds_rules import (
    ALL,
    OPEN,
    START,
    TWO,
    Line,
    ack,
    ack_of_a,
    back,
    close,
    cp,
    found,
    nack,
    packets,
    req,
    syn,
)
from tests.support.each import each
from tests.support.interop.refprov_packets import ring
from uetproto.audit.pds.rules import NOT_OBSERVABLE, RULES
from uetproto.audit.reader.options import Options
from uetproto.audit.rule import CHOICE, Severity
from uetproto.engine.tss.keys import KeyRing
from uetproto.wire.headers.uet_pds import AckReq, CtlType, NackCode

REFPROV = Path(os.environ.get("UETPROTO_SHARED", ROOT.parent / "shared")) / "captures" / "refprov"
OTHERS = ("roce", "incast-roce", "collective")
UET = sorted(path for path in GOLDEN.glob("*.pcapng") if not path.name.startswith(OTHERS))
M16 = 0xFFFF


def cp_of_b(kind: CtlType, psn: int = 0, payload: int = 0, **others: Any) -> Line:
    _, header, more = cp(kind, psn, payload, **({"spdcid": TPDCID, "dpdcid": IPDCID} | others))
    return B, header, more


def rcvd(units: int) -> Line:
    """Return an ACK with rcvd_bytes."""
    return with_rcvd(ack(START, START, sack_bitmap=1), units)


def with_rcvd(line: Line, units: int) -> Line:
    """Return an ACK_CC with rcvd_bytes."""
    src, header, more = line
    return src, header, more | {"more": (head("pds.cc_state.nscc", rcvd_bytes=units),)}


def whole(line: Line) -> Line:
    """Return a request of 1,080 nominal bytes."""
    src, header, more = line
    return src, header, more | {"ses": head("ses.request_std"), "size": 984}


def asks(line: Line, target: int, size: int = 984) -> Line:
    """Return a request with a demand. With its headers and the 40 bytes that nominal sizes have, it has 1,084 bytes."""
    src, header, more = line
    state = head("pds.req_cc_state", ccc_id=0, credit_target=target)
    return src, header, more | {"more": (state,), "ses": head("ses.request_std"), "size": size}


def credit(quanta: int) -> Line:
    return cp_of_b(CtlType.CREDIT, payload=quanta)


ASKED = (asks(syn(START), 10), ack(START, START))
"""A PDC whose context asks for 10 quanta."""


def run_of(first: int, last: int) -> tuple[Line, ...]:
    """Return the requests that follow START at these distances."""
    return tuple(whole(req(START + psn, START)) for psn in range(first, last + 1))


class Case(NamedTuple):
    """A conversation in which only the last packet differs: as it should be, and as it must not be."""

    before: tuple[Line, ...]
    right: Line
    wrong: Line
    options: Options = ALL


CASES: dict[str, Case] = {
    "PDS-PSN-TWO-CONTENTS": Case(OPEN, syn(START, retx=1), syn(START, retx=1, seen={"content": 5})),
    "PDS-RETX-FIRST": Case(OPEN, syn(START + 1), syn(START + 1, retx=1)),
    "PDS-RETX-MISSING": Case(TWO, syn(START), syn(START, ar=1)),
    "PDS-COPIES": Case(
        (*OPEN, *(syn(START, retx=1) for _ in range(10))), req(START + 1, START), syn(START, retx=1)),
    "PDS-SILENT": Case(
        (syn(START), syn(START, retx=1), cp(CtlType.ACK_REQ, START, ar=1)), ack(START, START), syn(START, retx=1)),
    "PDS-RETX-BACKOFF": Case(
        (syn(START), syn(START, retx=1, seen={"time_ns": 10_000})),
        syn(START, retx=1, seen={"time_ns": 30_000}), syn(START, retx=1, seen={"time_ns": 15_000})),
    "PDS-FIRST-CONSECUTIVE": Case(
        (*OPEN, req(START + 2, START), ack(START + 2, START), cp(CtlType.ACK_REQ, START, ar=1)),
        req(START + 1, START), close(START + 3)),
    "PDS-ROD-ORDER": Case(
        (syn(START, kind="rod"), syn(START + 2, kind="rod")),
        syn(START + 1, kind="rod", retx=1), syn(START + 1, kind="rod")),
    "PDS-MODE": Case(OPEN, req(START + 1, START), req(START + 1, START, kind="rod")),
    "PDS-SPDCID-ZERO": Case(OPEN, req(START + 1, START), req(START + 1, START, spdcid=0)),
    "PDS-DPDCID": Case(OPEN, req(START, retx=1), req(START, retx=1, dpdcid=9)),
    "PDS-SPDCID": Case((*OPEN, req(START + 1, START)), req(START + 2, START), req(START + 2, START, spdcid=9)),
    "PDS-STRANGER": Case(OPEN, req(START + 1, START), req(START + 1, START, spdcid=9, dpdcid=8)),
    "PDS-PDC-INFO": Case(OPEN, syn(START + 1), syn(START + 1, pdc_info=8)),
    "PDS-START": Case(OPEN, syn(START + 1), syn(START + 1, start=START + 1)),
    "PDS-STILL-OPEN": Case(
        (*OPEN, syn(9_000_000, 8_999_999, start=9_000_000)), syn(9_000_001, 8_999_999, start=9_000_000),
        syn(START + 1)),
    "PDS-PSN-JUMP": Case((*OPEN, req(START + 1, START)), req(START + 2, START), req(START + (1 << 20), START + 9)),
    "PDS-SYN-LATE": Case((*OPEN, req(START + 1, START)), req(START + 2, START), syn(START + 2, START)),
    "PDS-SYN-AGAIN": Case((*OPEN, req(START + 1, START)), req(START + 1, START, retx=1), syn(START + 1, START, retx=1)),
    "PDS-START-DISTANCE": Case(
        (*OPEN, close(START + 1), ack(START + 1, START + 1)),
        syn(START + 2, START + 1, start=START + 2), syn(START - 90, START - 91, start=START - 90)),
    "PDS-RENUMBERED": Case(
        (syn(START), nack(START, NackCode.NEW_START_PSN, nack_payload=9000)),
        syn(9000, 8999, start=9000, seen={"content": START}), syn(9000, 8999, start=9000, seen={"content": 1})),
    "PDS-NEW-AFTER-CLOSE": Case((*OPEN, close(START + 1)), close(START + 1, retx=1), req(START + 2, START)),
    "PDS-CLEAR-POSITIVE": Case(OPEN, req(START + 1, START), req(START + 1, START + 1)),
    "PDS-CLEAR-FALLS": Case(
        (*TWO, req(START + 2, START + 1)), req(START + 3, START + 1), req(START + 3, START)),
    "PDS-CLEAR-EARLY": Case((), syn(START), syn(START, START - 2)),
    "PDS-CLEAR-AHEAD": Case((*OPEN, req(START + 1, START)), req(START + 2, START), req(START + 2, START + 1)),
    "PDS-WINDOW": Case(
        (*OPEN, req(START + 1, START)), req(START + 2, START), req(START + 2, START - 1023)),
    "PDS-CP-NO-ACK": Case(OPEN, cp(CtlType.CLEAR_CMD, payload=START), cp(CtlType.CLEAR_CMD, payload=START, ar=1)),
    "PDS-CP-ACK": Case(OPEN, cp(CtlType.NOOP, START + 1, ar=1), cp(CtlType.NOOP, START + 1)),
    "PDS-ACK-REQ-AR": Case(OPEN, cp(CtlType.ACK_REQ, START, ar=1), cp(CtlType.ACK_REQ, START)),
    "PDS-CP-ISROD": Case(OPEN, close(START + 1), close(START + 1, isrod=1)),
    "PDS-CP-PSN": Case(OPEN, cp(CtlType.CLEAR_CMD, payload=START), cp(CtlType.CLEAR_CMD, START, START)),
    "PDS-CP-PAYLOAD": Case(OPEN, close(START + 1), close(START + 1, ctl_payload=1)),
    "PDS-CLOSE-CMD-ROLE": Case(OPEN, close(START + 1), cp_of_b(CtlType.CLOSE_CMD, START, ar=1)),
    "PDS-CLOSE-REQ-ROLE": Case(
        OPEN, cp_of_b(CtlType.CLOSE_REQ, START, ar=1), cp(CtlType.CLOSE_REQ, START + 1, ar=1)),
    "PDS-CLOSE-UNACKED": Case(
        (syn(START), syn(START + 1), ack(START, START)), ack(START + 1, START + 1), close(START + 2)),
    "PDS-ACK-REQ-SILENT": Case(
        (syn(START), *[cp(CtlType.ACK_REQ, START, ar=1)] * 3),
        cp(CtlType.ACK_REQ, START - 1, ar=1), cp(CtlType.ACK_REQ, START, ar=1)),
    "PDS-ACK-REQ-UNSENT": Case(OPEN, cp(CtlType.ACK_REQ, START, ar=1), cp(CtlType.ACK_REQ, START + 1, ar=1)),
    "PDS-CLEAR-CMD-UNSENT": Case(
        OPEN, cp(CtlType.CLEAR_CMD, payload=START), cp(CtlType.CLEAR_CMD, payload=START + 1)),
    "PDS-CLEAR-CMD-AHEAD": Case(
        (*OPEN, req(START + 1, START)), cp(CtlType.CLEAR_CMD, payload=START),
        cp(CtlType.CLEAR_CMD, payload=START + 1)),
    "PDS-CLEAR-CMD-EARLY": Case(
        OPEN, cp(CtlType.CLEAR_CMD, payload=START), cp(CtlType.CLEAR_CMD, payload=START - 2)),
    "PDS-ACK-EARLY": Case(OPEN, ack(START, START - 1), ack(START, START - 2)),
    "PDS-ACK-UNSENT": Case(OPEN, ack(START, START), ack(START + 1, START)),
    "PDS-ACK-RETX": Case((syn(START, retx=1),), ack(START, START, retx=1), ack(START, START)),
    "PDS-CACK-BEHIND-CLEAR": Case(
        (*OPEN, req(START + 1, START)), ack(START + 1, START), ack(START + 1, START - 1)),
    "PDS-CACK-HOLE": Case(
        (syn(START), syn(START + 2)), ack(START + 2, START), ack(START + 2, START + 2)),
    "PDS-CACK-UNCLEARED": Case(
        (syn(START), ack(START, START - 1, req=AckReq.CLEAR), syn(START + 1)),
        ack(START + 1, START - 1), ack(START + 1, START + 1)),
    "PDS-CACK-FALLS": Case(TWO, ack(START, START + 1), ack(START, START)),
    "PDS-RCVD-BYTES-FALLS": Case((*OPEN, rcvd(9)), rcvd(9), rcvd(8)),
    "PDS-CREDIT-FALLS": Case((*ASKED, credit(8)), credit(8), credit(7)),
    "PDS-CREDIT-BEYOND": Case((*ASKED, credit(10)), credit(10 + 64), credit(10 + 65)),
    "PDS-CREDIT-OVERDRAWN": Case(
        (*ASKED, credit(4), asks(req(START + 1, START), 10)),
        asks(req(START + 2, START), 10, 984 - 64 - 12), asks(req(START + 2, START), 10)),
    "PDS-WINDOW-EXCEEDED": Case(  # a window of 6,000 bytes
        (whole(syn(START)), rcvd(5), *run_of(1, 6)), with_rcvd(ack(START + 1, START + 1, sack_bitmap=1), 9),
        *run_of(7, 7), replace(ALL, cc="rate=8 Gb/s,base_rtt=4 us,mtu=1080")),
    "PDS-WINDOW-INFERRED": Case(  # a packet in a µs, and a base RTT of 2 µs: twice 3,240 bytes
        (whole(syn(START)), whole(syn(START + 1)), rcvd(5), *run_of(2, 7)),
        with_rcvd(ack(START + 1, START + 1, sack_bitmap=1), 9), *run_of(8, 8)),
    "PDS-TWO-TARGETS": Case(OPEN, ack(START, START), ack(START, START, spdcid=9)),
    "PDS-SACK-UNSENT": Case(
        OPEN, ack(START, START, sack_bitmap=1), ack(START, START, sack_bitmap=3)),
    "PDS-SACK-ZERO": Case(
        TWO, ack(START, START + 1, sack_psn_offset=-1, sack_bitmap=3),
        ack(START, START + 1, sack_psn_offset=-1, sack_bitmap=2)),
    "PDS-MPR-ZERO": Case(OPEN, ack(START, START, sack_bitmap=1), ack(START, START, sack_bitmap=1, mpr=0)),
    "PDS-CLEAR-REQ-CACK": Case(
        (syn(START),), ack(START, START - 1, req=AckReq.CLEAR), ack(START, START, req=AckReq.CLEAR)),
    "PDS-CLOSE-ASKED": Case(
        (*OPEN, back(START, START - 1)), ack_of_a(START, START), ack_of_a(START, START, req=AckReq.CLOSE)),
    "PDS-CLOSE-CACK": Case((*OPEN, close(START + 1)), ack(START + 1, START + 1), ack(START + 1, START)),
    "PDS-CLOSE-RETURN": Case(
        (*OPEN, back(START, START - 1), close(START + 1)), ack_of_a(START, START), ack(START + 1, START + 1)),
    "PDS-EXPECTED-PSN": Case(
        (*OPEN, close(START + 1)),
        (B, head("pds.ack.epsn", cack_psn=START + 1, spdcid=TPDCID, dpdcid=IPDCID, expected_psn=START + 2), {}),
        (B, head("pds.ack.epsn", cack_psn=START + 1, spdcid=TPDCID, dpdcid=IPDCID, expected_psn=START + 1), {})),
    "PDS-NACK-UNSENT": Case(
        OPEN, nack(START, NackCode.RCVD_SES_PROCG), nack(START + 1, NackCode.RCVD_SES_PROCG)),
    "PDS-NACK-SPDCID": Case(
        OPEN, nack(START, NackCode.INV_DPDCID, spdcid=0), nack(START, NackCode.INV_DPDCID)),
    "PDS-NACK-ROD-OOO": Case(
        (syn(START, kind="rod"), syn(START + 1, kind="rod")),
        nack(START + 1, NackCode.ROD_OOO, nack_payload=START),
        nack(START + 1, NackCode.ROD_OOO, nack_payload=START + 1)),
    "PDS-NACK-NEW-START": Case(
        (syn(START),), nack(START, NackCode.NEW_START_PSN, nack_payload=9000),
        nack(START, NackCode.NEW_START_PSN, nack_payload=START)),
}  # fmt: skip


def test_control_packets_that_open_a_pdc_have_a_start() -> None:
    """NOOP has no CLEAR_PSN: behind the newest PSN it may begin another PDC, before it the PDC is the same."""
    noop = {"ctl_type": CtlType.NOOP, "ar": 1, "spdcid": 7}
    lines = [*TWO, (A, head("pds.cp.syn", psn=START + 2, psn_offset=0, **noop), {})]
    assert found(lines) == []
    lines[-1] = (A, head("pds.cp.syn", psn=START + 2, psn_offset=1, **noop), {})
    assert found(lines) == [("PDS-START", len(TWO))]


SHOWN_LATER = ("PDS-STILL-OPEN",)
"""Rules that find the packet before the last one."""


def test_each_rule_has_a_violation() -> None:
    assert set(CASES) == {rule.id for rule in RULES}


@pytest.mark.parametrize("rule", CASES)
def test_violation_is_found_where_it_is(rule: str) -> None:
    case = CASES[rule]
    assert (rule, len(case.before) - (rule in SHOWN_LATER)) in found((*case.before, case.wrong), case.options)


@each("rule", CASES)
def test_nothing_is_found_where_all_is_well(rule: str) -> None:
    case = CASES[rule]
    assert rule not in dict(found((*case.before, case.right), case.options))


@each("rule", RULES)
def test_finding_can_be_read(rule: Any) -> None:
    case = CASES[rule.id]
    audit = PdsAudit(case.options)
    audit.see(packets((*case.before, case.wrong)))
    one = next(finding for finding in audit.end() if finding.rule is rule)
    assert one.as_dict()["text"].startswith(rule.says)
    assert one.expected != one.seen
    assert one.flow["src"]


@each("rule", RULES)
def test_only_what_a_source_says_is_more_than_a_note(rule: Any) -> None:
    assert rule.severity is Severity.NOTE or rule.cite.startswith("UE 1.0.")
    assert rule.cite == CHOICE or rule.cite.startswith("UE 1.0.")


def test_every_invariant_is_judged_or_explained() -> None:
    """Those of pds.md §18 but 29 (messages) and 45 (RUDI), which other rules judge."""
    judged = {one for rule in RULES for one in rule.covers}
    explained = {one for one, _ in NOT_OBSERVABLE}
    assert judged | explained | {"pds 29", "pds 45"} == {f"pds {number}" for number in range(1, 54)}
    assert not judged & explained


def test_rules_that_need_what_was_not_promised_rest() -> None:
    case = CASES["PDS-ACK-UNSENT"]
    assert found((*case.before, case.wrong), Options()) == []


def test_an_ack_may_answer_an_ack_req() -> None:
    """Then it copies the retx of that, and not that of the request (pds.md §8)."""
    asked = cp(CtlType.ACK_REQ, START, ar=1)
    for retx in range(2):
        assert found((syn(START, retx=1), asked, ack(START, START, retx=retx)), Options()) == []


# What may be of another PDC -------------------------------------------------------------------------------------------

ROD = syn(START, kind="rod"), ack(START, START), close(START + 1, isrod=1), ack(START + 1, START + 1)
"""A ROD PDC from beginning to end."""
NEXT = syn(START + 2, START + 1, start=START + 2), ack(START + 2, START + 2, spdcid=4)
"""The next one on the same PDCID of A, at another target."""
SAME = syn(START + 2, START + 1, start=START + 2), ack(START + 2, START + 2)
"""Likewise at the same target."""


@pytest.mark.parametrize("before", [ROD, ROD[2:], ()], ids=["seen", "end seen", "not seen"])
@pytest.mark.parametrize(
    "late",
    [
        cp(CtlType.CLEAR_CMD, payload=START - 5),
        cp(CtlType.ACK_REQ, START, ar=1, isrod=1),
        cp_of_b(CtlType.CLEAR_REQ, payload=START, isrod=1),
        cp_of_b(CtlType.CLOSE_CMD, START, ar=1),
        nack(START + 1, NackCode.ROD_OOO, nack_payload=START),
    ],
    ids=["CLEAR_CMD", "ACK_REQ", "CLEAR_REQ", "CLOSE_CMD", "ROD_OOO"],
)
def test_late_packet_of_another_pdc_contradicts_nothing(before: tuple[Line, ...], late: Line) -> None:
    assert found((*before, *NEXT, late), Options()) == []


@pytest.mark.parametrize("late", [
    cp(CtlType.CLEAR_CMD, payload=START),
    nack(START, NackCode.ROD_OOO, nack_payload=START - 1),
])  # fmt: skip
def test_late_packet_of_the_pdc_before_contradicts_nothing(late: Line) -> None:
    """Both PDCs have the same PDCIDs."""
    assert found((*ROD, *SAME, late), Options()) == []


@pytest.mark.parametrize(("psn", "is_found"), [(START + 2, True), (START + 4, False)])
def test_another_mode_may_be_of_a_pdc_whose_beginning_was_not_seen(psn: int, is_found: bool) -> None:
    lines = (*ROD[:2], req(START + 1, START, kind="rod"), req(psn, START + 1))
    assert (("PDS-MODE", 3) in found(lines, Options())) is is_found


def test_late_nack_may_ask_for_more_than_one_copy() -> None:
    """Its copies, too: when they come to the source, nobody else sees (pds.md §11.2)."""
    copies = [syn(START, retx=1, seen={"time_ns": time_ns}) for time_ns in (20_000, 30_000, 31_000)]
    late = ("PDS-RETX-BACKOFF", 4)
    assert late not in found((syn(START), nack(START, NackCode.TRIMMED), *copies))
    assert late in found((syn(START), nack(START + 1, NackCode.TRIMMED), *copies))


def test_syn_again_may_be_right() -> None:
    """Of two copies nobody knows which was sent first, and a PDC that failed may be followed by another."""
    later = req(START, retx=1), syn(START, retx=1)
    assert found((*OPEN, *later), Options()) == []
    assert found((syn(START + 1), req(START, retx=1), syn(START, retx=1)), Options()) == []


def test_another_mode_in_a_copy() -> None:
    lines = (*ROD[:2], req(START + 1, START, kind="rod"), req(START + 1, START, retx=1))
    assert ("PDS-MODE", 3) in found(lines, Options())


def test_a_copy_that_outlives_its_pdc_opens_another() -> None:
    """Until it is closed no other target answers: of what was sent once both answers are known (pds.md §6.2 9)."""
    again, other = syn(START, retx=1), ack(START, START, spdcid=9, retx=1)
    assert found((*TWO, again, other), Options()) == []
    assert found((*TWO, ack(START + 1, START + 1, spdcid=9)), Options()) == [("PDS-TWO-TARGETS", 4)]


def test_rod_ooo_before_there_is_a_pdc_expects_nothing() -> None:
    """Whether nack_payload is then Start_PSN is not said anywhere (pds.md §6.2 7)."""
    assert found((syn(START + 1, kind="rod"), nack(START + 1, NackCode.ROD_OOO, spdcid=0, nack_payload=2**31))) == []


def test_rod_ooo_for_a_packet_on_rud() -> None:
    assert found((*TWO, nack(START + 1, NackCode.ROD_OOO, nack_payload=START)), Options()) == [("PDS-NACK-ROD-OOO", 4)]


# Captures -------------------------------------------------------------------------------------------------------------


def keys_of(path: Path) -> KeyRing | None:
    keys = path.with_suffix(".keys.toml")
    return KeyRing.read(keys) if keys.exists() else None


@each("path", UET)
def test_golden_captures_are_right(path: Path) -> None:
    options = Options(keys=keys_of(path))
    for seen in seen_of_capture(path, options):
        audit = PdsAudit(options)
        audit.see(seen)
        assert audit.end() == []


HABITS = {
    "PDS-CP-ISROD": "isrod 0 in every control packet",
    "PDS-CLOSE-CACK": "closing ACK: cack = close_psn - 1",
    "PDS-EXPECTED-PSN": "Expected_PSN after close = Start_PSN + 1",
}
"""Rules that the reference provider departs from, and the row of observed.md that says so."""


@pytest.mark.skipif(not REFPROV.exists(), reason=f"no captures of the reference provider in {REFPROV}")
def test_reference_captures_show_its_habits_and_nothing_else() -> None:
    shown = set()
    for path in sorted(REFPROV.glob("*.pcap")):
        options = Options(keys=ring() if "tss" in path.name else None)
        for seen in seen_of_capture(path, options):
            audit = PdsAudit(options)
            audit.see(seen)
            shown |= {finding.rule.id for finding in audit.end()}
            assert all(finding.severity is not Severity.ERROR for finding in audit.judge.findings)
    assert shown == set(HABITS)
