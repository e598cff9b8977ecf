# SPDX-License-Identifier: GPL-2.0-only
"""The tracker of PDCs: which instance a packet belongs to, what is new about it, and how little is remembered."""

from collections import Counter
from random import Random
from typing import Any

from tests.support.audit.build import GOLDEN, IPDCID, A, B, PdsAudit, seen_of_capture
from tests.support.audit.pds_rules import (
    OPEN,
    START,
    TWO,
    ack,
    ack_of_a,
    back,
    close,
    cp,
    nack,
    packets,
    req,
    syn,
)
from tests.support.audit.pds_tracker import (
    TRIMMED,
    follow,
)
from uetproto.audit.pds.tracker_state import HOLES, MOST, TIMES, PdsEvent
from uetproto.audit.reader.options import Options
from uetproto.wire.headers.uet_pds import CtlType, NackCode

M32 = 0xFFFFFFFF
FAR = START + 0x123456


def messages(audit: PdsAudit) -> list[tuple[str, int, Any]]:
    return list(audit.ses.told)


# What a PSN is --------------------------------------------------------------------------------------------------------


def test_first_sight_and_copies() -> None:
    log, audit = follow((syn(START), syn(START + 1), syn(START, retx=1), req(START + 3), req(START + 2, retx=1)))
    assert [number for _, number in log.of("FIRST")] == [0, 1, 3, 4]
    assert [number for _, number in log.of("AGAIN")] == [2]
    assert messages(audit) == [
        ("request", 0, True), ("request", 1, True), ("request", 2, False), ("request", 3, True), ("request", 4, True),
    ]  # fmt: skip


def test_trimmed_request_is_no_first_sight() -> None:
    log, audit = follow((*OPEN, req(START + 1, START, seen=TRIMMED), req(START + 1, START, retx=1)))
    assert log.of("TRIMMED") == [(1, 2)]
    assert messages(audit)[-1] == ("request", 3, True)


def test_each_direction_has_its_own_psns() -> None:
    forward = req(START + 1, START), ack(START + 1, START + 1)
    lines = (*OPEN, back(50, 49), back(51, 49), ack_of_a(51, 51, next_hdr=4), *forward)
    log, audit = follow(lines)
    assert audit.judge.findings == []
    assert [number for _, number in log.of("ACKED")] == [1, 4, 6]
    assert [each for each in messages(audit) if each[0] != "request"] == [
        ("data", 2, True), ("data", 3, True), ("response", 4, 51),
    ]  # fmt: skip


def test_numbers_wrap() -> None:
    start = M32 - 1
    lines = [syn((start + n) & M32, M32 - 2, start=start, psn_offset=n, clear_psn_offset=-1 - n) for n in range(4)]
    lines += [ack(0, 0, cack_psn=M32 - 2, ack_psn_offset=3), ack(1, 1), req(2, 1)]
    log, audit = follow(lines, Options(complete=True))
    assert audit.end() == []
    assert len(log.of("FIRST")) == 5


def test_ack_is_told_with_the_request_it_answers() -> None:
    answered: list[tuple[int, int]] = []
    heard = {PdsEvent.ACKED: lambda numbers, state, seen: numbers.append((state.was.number, seen.number))}
    audit = PdsAudit(heard=heard, listener=answered)
    audit.see(packets((*TWO, ack(START, START + 1))))
    assert answered == [(0, 2), (1, 3)]


# What is normal -------------------------------------------------------------------------------------------------------


def test_acks_may_overtake_each_other() -> None:
    assert follow((syn(START), syn(START + 1), ack(START + 1, START + 1), ack(START, START)))[1].judge.findings == []


def test_syn_packets_may_come_after_the_first_ack() -> None:
    assert follow((*OPEN, syn(START + 1), req(START + 2), syn(START + 1, retx=1)))[1].judge.findings == []


def test_first_copies_may_be_missing() -> None:
    assert follow((*OPEN, req(START + 1, START, retx=1), req(START + 2, START - 1)))[1].judge.findings == []


def test_middle_of_a_conversation() -> None:
    clear = cp(CtlType.CLEAR_CMD, payload=9)
    lines = (ack(7, 7), req(9, 7), back(70, 69), req(8, 7), ack_of_a(70, 70), clear, ack(9, 9))
    log, audit = follow(lines)
    assert audit.judge.findings == []
    assert len(log.of("OPEN")) == 1


def test_one_direction_alone() -> None:
    assert follow((ack(7, 7), ack(8, 8), ack(6, 6), nack(9, NackCode.NO_RESOURCE)))[1].judge.findings == []


# Instances ------------------------------------------------------------------------------------------------------------


def test_credit_req_names_no_psn() -> None:
    """Its 0, far from those of the PDC, is no sign of another one."""
    start = 1 << 20
    lines = (syn(start, start - 1, start=start), ack(start, start), cp(CtlType.CREDIT_REQ), req(start + 1, start))
    log, _ = follow(lines)
    assert log.of("CONTROL") == [(1, 2)]
    assert log.of("FIRST") == [(1, 0), (1, 3)]


def test_pdcids_used_again() -> None:
    lines = (
        *OPEN, close(START + 1), ack(START + 1, START + 1),
        syn(FAR, FAR - 1, start=FAR, seen={"content": 7}), ack(FAR, FAR, spdcid=4),
        req(FAR + 1, FAR, dpdcid=4), ack(FAR + 1, FAR + 1, spdcid=4),
    )  # fmt: skip
    log, audit = follow(lines)
    assert audit.judge.findings == []
    assert log.of("REUSED") == [(2, 4)]
    assert log.of("ACKED")[-2:] == [(2, 5), (2, 7)]


def test_late_packets_of_the_instance_before() -> None:
    lines = (*TWO, syn(FAR, FAR - 1, start=FAR), ack(START, START), syn(START + 1, retx=1), ack(FAR, FAR))
    log, audit = follow(lines)
    assert audit.judge.findings == []
    assert log.of("AGAIN") == [(1, 6)]
    assert log.of("ACKED")[-1] == (2, 7)


def test_reuse_that_only_psns_show() -> None:
    log, audit = follow((req(START), req(START + 1), req(FAR, FAR - 1), req(FAR + 1, FAR - 1), ack(FAR, FAR)))
    assert audit.judge.findings == []
    assert log.of("FIRST") == [(1, 0), (1, 1), (2, 2), (2, 3)]


def test_new_start_psn_moves_a_pdc() -> None:
    lines = (
        syn(START), syn(START + 1), nack(START, NackCode.NEW_START_PSN, nack_payload=9000),
        syn(9000, 8999, start=9000, seen={"content": START}), syn(9001, 8999, start=9000, seen={"content": START + 1}),
        nack(START + 1, NackCode.NEW_START_PSN, nack_payload=9000), ack(9000, 9000), req(9002, 9000),
    )  # fmt: skip
    log, audit = follow(lines)
    assert audit.judge.findings == []
    assert log.of("RENUMBERED") == [(2, 3), (2, 4)]


def test_psns_used_again_after_a_failure() -> None:
    """A secure start begins at the same PSN again, if the PDC before was not closed."""
    late = {"time_ns": 3 * 10**9, "content": 5}
    log, audit = follow((*OPEN, syn(START, seen=late)))
    assert audit.judge.findings == []
    assert log.of("FIRST") == [(1, 0), (2, 2)]


# Memory ---------------------------------------------------------------------------------------------------------------


def test_closed_pdcs_leave_nothing() -> None:
    audit = PdsAudit()
    lines = (*OPEN, close(START + 1), ack(START + 1, START + 1))
    for pdc in range(3_000):
        for seen in packets(lines):
            audit.tracker.see(seen._replace(src=seen.src + 2 * pdc, dst=seen.dst + 2 * pdc))
    for now in range(4):
        audit.tracker.sweep(now)
    ends = audit.tracker.table
    assert len(ends.by_key) == 0
    assert audit.ses.open_directions == 0
    assert sum(audit.tracker.table.forgotten.values()) == 0


def test_silent_and_surplus_pdcs_are_forgotten() -> None:
    audit = PdsAudit(Options(max_flows=10))
    for pdc in range(30):
        for seen in packets(OPEN):
            audit.tracker.see(seen._replace(src=seen.src + 2 * pdc, dst=seen.dst + 2 * pdc, time_ns=pdc))
    audit.tracker.sweep(40)
    assert audit.tracker.table.forgotten == {"silent": 0, "evicted": 20}
    audit.tracker.sweep(10**12)
    assert audit.tracker.table.forgotten == {"silent": 10, "evicted": 20}
    assert audit.ses.open_directions == 0


def test_sights_are_bounded() -> None:
    audit = PdsAudit()
    audit.see(packets(OPEN))
    for seen in packets(req(START + 1 + n, START + n) for n in range(3 * MOST)):
        audit.tracker.see(seen)
    direction = audit.tracker.table.by_key[A, IPDCID, B]
    assert MOST // 2 <= len(direction.records) <= MOST
    assert direction.floor == START + 1 + 3 * MOST - len(direction.records)
    log_before = Counter(messages(audit))
    audit.see(packets([req(START + 1, START, retx=1)]))
    assert Counter(messages(audit)) - log_before == Counter([("request", 0, False)])


def test_anything_may_follow_anything() -> None:
    """Packets of golden captures on one pair of ends, with fields of their headers exchanged: nothing raises."""
    rng = Random(9)
    places = [place for path in sorted(GOLDEN.glob("ladder-L[12]*.pcapng")) for place in seen_of_capture(path)]
    all_seen = [seen for place in places for seen in place[:50] if seen.head is not None]
    values = [value for seen in all_seen for value in seen.head]
    audit = PdsAudit(Options(complete=True, ordered=True, max_flows=20))
    for number in range(10_000):
        seen = rng.choice(all_seen)
        names = [name for name in seen.head._fields if name not in ("type", "syn", "p", "nt") and rng.random() < 0.1]
        header = seen.head._replace(**{name: rng.choice(values) for name in names})
        audit.see([seen._replace(number=number, src=1 + rng.getrandbits(1), dst=1 + rng.getrandbits(1), head=header)])
        if number % 500 == 0:
            audit.tracker.sweep(number)
    audit.tracker.sweep(10**15)
    audit.end()
    assert audit.ses.open_directions == 0


def test_trimmed_copy_may_be_acknowledged() -> None:
    lines = (*OPEN, req(START, retx=1, seen=TRIMMED), ack(START, START, retx=1))
    assert follow(lines, Options(complete=True))[1].judge.findings == []


def test_what_is_not_seen_is_bounded() -> None:
    audit = PdsAudit()
    lines = [*OPEN, *(req(START + 4_000 * n, START + 4_000 * n - 1) for n in range(1, 100))]
    lines += [syn(START, retx=1)] * 200 + [nack(n, NackCode.NO_RESOURCE) for n in range(10_000)]
    audit.see(packets(lines))
    direction = audit.tracker.table.by_key[A, IPDCID, B]
    sizes = (len(direction.holes), len(direction.copies[START]), len(direction.nacked))
    assert all(size <= most for size, most in zip(sizes, (2 * HOLES, TIMES, HOLES), strict=True))
