# SPDX-License-Identifier: GPL-2.0-only
"""Every rule about SHARP groups: messages that violate it, and a twin that is right."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.support.audit.build import GOLDEN, PLAIN
from tests.support.audit.frames import audited, frames_of
from tests.support.audit.sharp_rules import (
    ALL,
    JOINED,
    NODE,
    ONE,
    TWO,
    UP,
    WHOLE,
    Line,
    SharpAudit,
    join,
    observed,
    request,
    result,
)
from uetproto.audit.auditor import audit
from uetproto.audit.reader.options import Options
from uetproto.audit.rule import CHOICE, Severity
from uetproto.audit.sharp.rules import RULES
from uetproto.audit.sharp.tracker import COPIES, EDGES, OPERATIONS, WAITING
from uetproto.wire.forms import ROCE_PORT
from uetproto.wire.headers.sharp import Dtype, Flag, Op, SharpOpcode
from uetproto.wire.mutate.frame import open_frame
from uetproto.wire.stack import decode


def leave(child: int, index: int, **others: Any) -> Line:
    return child, NODE, SharpOpcode.GROUP_LEAVE_REQ, {"child_idx": index}, others


def left(child: int, index: int) -> Line:
    return NODE, child, SharpOpcode.GROUP_LEAVE_RESP, {"child_idx": index}, {}


class Case(NamedTuple):
    """A violation, its packets, and what is right instead."""

    rule: str
    wrong: list[Line]
    packets: tuple[int, ...]
    right: list[Line]
    carrier: str = "roce"


SHORTS = {"payload_len": 6, "count": 3, "dtype": Dtype.SHORT}
"""Three elements, which a pad follows."""
SEVERAL = [*JOINED, request(ONE, 0), request(TWO, 1), result(ONE, 0)]
CASES = (
    Case("SHARP-HEADER", [request(ONE, 0, op=Op.LAND, dtype=Dtype.FLOAT)], (0,), [request(ONE, 0, op=Op.LAND)]),
    Case("SHARP-JOB", [*SEVERAL, result(TWO, 1, job_id=6)], (5,), [*SEVERAL, result(TWO, 1)]),
    Case("SHARP-STRANGER", [*JOINED, request(ONE, 7)], (2,), [*JOINED, request(ONE, 0)]),
    Case("SHARP-STRANGER", [*JOINED, request(ONE, 0), result(ONE, 1)], (3,),
         [*JOINED, request(ONE, 0), result(ONE, 0)]),
    Case("SHARP-SEQUENCE", [*JOINED, request(ONE, 0), request(ONE, 0, 40)], (3,),
         [*JOINED, request(ONE, 0), request(ONE, 0, 1)]),
    Case("SHARP-RESULT", [request(ONE, 0), result(ONE, 0, op=Op.MAX)], (0, 1), [request(ONE, 0), result(ONE, 0)]),
    Case("SHARP-LENGTH", [request(ONE, 0, seen={"size": 44})], (0,), [request(ONE, 0)]),
    Case("SHARP-LENGTH", [request(ONE, 0, **SHORTS, seen={"pad": b"\0\1"})], (0,),
         [request(ONE, 0, **SHORTS, seen={"pad": b"\0\0"})]),
    Case("SHARP-LENGTH", [request(ONE, 0, **SHORTS, seen={"payload": b"123456\0\1"})], (0,),
         [request(ONE, 0, **SHORTS, seen={"payload": b"123456\0\0"})], "uet"),
    Case("SHARP-COMPLETE", [*JOINED, request(ONE, 0), UP], (3,), [*JOINED, request(ONE, 0), request(TWO, 1), UP]),
    Case("SHARP-WINDOW", [*JOINED, *(request(ONE, 0, seq) for seq in range(3))], (4,),
         [*JOINED, request(ONE, 0), request(ONE, 0, 1), result(ONE, 0), request(ONE, 0, 2)]),
    Case("SHARP-WINDOW", [request(ONE, 0, vec_off=64 * i, flags=Flag.SAT) for i in range(65)], (64,),
         [request(ONE, 0, vec_off=64 * i, flags=Flag.SAT) for i in range(64)]),
    Case("SHARP-EDGE-LOAD", [request(ONE, 0), request(ONE, 0)], (0, 1),
         [request(ONE, 0), request(ONE, 0, flags=WHOLE | Flag.RETX), request(ONE, 0, seen={"psn": 0})]),
    Case("SHARP-EDGE-LOAD", [request(ONE, 0), result(ONE, 0), result(ONE, 0)], (1, 2),
         [request(ONE, 0), result(ONE, 0), result(ONE, 0, flags=WHOLE | Flag.RETX)]),
    Case("SHARP-MISMATCH", [request(ONE, 0), request(TWO, 1, op=Op.MIN), result(ONE, 0)], (0, 1, 2),
         [request(ONE, 0), request(TWO, 1, flags=WHOLE | Flag.NODATA, payload_len=0), result(ONE, 0)]),
    Case("SHARP-OVER-UET", [request(ONE, 0, seen={"pdc_info": 0})], (0,), [request(ONE, 0)], "uet"),
    Case("SHARP-OVER-UET", [request(ONE, 0, seen={"job_id": 6})], (0,), [request(ONE, 0)], "uet"),
    Case("SHARP-OVER-UET", [request(ONE, 0, seen={"request_length": 44})], (0,), [request(ONE, 0)], "uet"),
    Case("SHARP-OVER-UET", [request(ONE, 0, flags=WHOLE | Flag.MCAST)], (0,), [request(ONE, 0)], "uet"),
)  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.rule)
def test_violation(case: Case) -> None:
    (found,) = SharpAudit(asked=case.rule).see(observed(case.wrong, case.carrier))
    assert (found.rule.id, found.packets) == (case.rule, case.packets)
    assert found.text
    assert found.as_dict()["flow"]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.rule)
def test_twin(case: Case) -> None:
    assert SharpAudit(asked=case.rule).see(observed(case.right, case.carrier)) == []


def test_every_rule_has_a_case_and_is_a_note() -> None:
    assert {case.rule for case in CASES} == {rule.id for rule in RULES} - {"SHARP-UNASKED", "SHARP-MESSAGE"}
    assert {(rule.severity, rule.cite) for rule in RULES} == {(Severity.NOTE, CHOICE)}
    assert {name for rule in RULES for name in rule.covers} == {f"sharp {n}" for n in (2, 3, 4, 5, 13, 15, 20, 26)}


def test_a_multicast_result_ends_the_operation_of_all() -> None:
    more = [request(ONE, 0, 1), result(0xE0000001, 255, flags=WHOLE | Flag.MCAST), request(ONE, 0, 2)]
    assert SharpAudit().see(observed([*JOINED, request(ONE, 0), *more])) == []


RETX = WHOLE | Flag.RETX
MULTICAST = {"granted": 2, "mgid": 0xFFFF_EF00_0001}


def multicasts(child: int, index: int) -> Line:
    return NODE, child, SharpOpcode.GROUP_JOIN_RESP, {"child_idx": index, "payload_len": 40}, MULTICAST


def rules_of(lines: Iterable[Line], carrier: str = "roce", options: Options = ALL) -> list[str]:
    return [found.rule.id for found in SharpAudit(options).see(observed(lines, carrier))]


def test_what_nobody_asked_for() -> None:
    asked: Line = (ONE, NODE, SharpOpcode.GROUP_JOIN_REQ, {"child_idx": 255, "payload_len": 18}, {})
    for lines, packets in (
        ([join(ONE, 0)], [0]),
        ([asked, join(ONE, 0)], []),
        ([asked, join(ONE, 0), result(ONE, 0)], [2]),
        ([asked, join(ONE, 0), request(ONE, 0, flags=RETX), result(ONE, 0, flags=RETX)], []),
    ):
        found = SharpAudit(asked="SHARP-UNASKED").see(observed(lines))
        assert [(each.rule.id, each.packet) for each in found] == [("SHARP-UNASKED", packet) for packet in packets]


def test_a_queue_pair_of_sharp_sends_nothing_else() -> None:
    frames = frames_of("collective-sharp.pcapng")
    first = decode(frames[27], sharp=True)
    assert first["sharp"]["opcode"] == SharpOpcode.AGG_REQ
    opened = open_frame(frames[27], "ethernet", ROCE_PORT)
    assert opened is not None
    other = opened.flipped(next(layer.offset for layer in first.layers if layer.form == "sharp"), 7).frame
    report = audited([*frames[:27], other, *frames[28:]], rules=("sharp-*",))
    assert [(each.rule.id, each.packet) for each in report.findings] == [("SHARP-MESSAGE", 27)]


@pytest.mark.parametrize("gone", [leave(ONE, 0), left(ONE, 0)], ids=["asked", "answered"])
def test_a_group_that_was_left_begins_again(gone: Line) -> None:
    """Either direction alone shows it."""
    life = [request(ONE, 0), result(ONE, 0)]
    assert rules_of([*life, gone, *life]) == []
    assert rules_of([*life, *life]) == ["SHARP-EDGE-LOAD"] * 2


def test_that_a_group_was_left_may_not_have_been_seen() -> None:
    """Unless nothing is missing, operation 0 once more is the first of the next life."""
    lives = [request(ONE, 0, op=Op.MIN), result(ONE, 0, op=Op.MIN), request(ONE, 0), request(TWO, 1), result(ONE, 0)]
    assert rules_of(lives, options=PLAIN) == []
    assert rules_of(lives) == ["SHARP-EDGE-LOAD", "SHARP-MISMATCH", "SHARP-EDGE-LOAD"]
    assert rules_of([request(ONE, 0, 1), request(ONE, 0, 1)], options=PLAIN) == ["SHARP-EDGE-LOAD"]
    late = [request(ONE, 0), request(ONE, 0, seen={"retx": 1}), request(TWO, 1, op=Op.MIN), result(ONE, 0)]
    assert rules_of(late, "uet", PLAIN) == ["SHARP-MISMATCH"]


def test_a_late_copy_is_not_of_the_next_life() -> None:
    old = request(ONE, 0, op=Op.MIN, seen={"psn": 0})
    next_life = [request(ONE, 0), request(TWO, 1), result(ONE, 0)]
    assert rules_of([old, leave(ONE, 0), old, *next_life]) == []
    other = request(ONE, 0, op=Op.MIN)
    assert rules_of([old, leave(ONE, 0), other, *next_life]) == ["SHARP-EDGE-LOAD", "SHARP-MISMATCH"]


def test_what_was_not_seen_the_first_time_may_be_of_an_earlier_life() -> None:
    """PDS says that it is sent again; as a contribution it counts."""
    late = request(ONE, 0, op=Op.MIN, seen={"retx": 1})
    assert rules_of([late, request(ONE, 0), request(TWO, 1), result(ONE, 0)], "uet") == []
    assert rules_of([*JOINED, late, request(TWO, 1), UP], "uet") == []
    again = result(ONE, 0, seen={"retx": 1})
    assert rules_of([request(ONE, 0), request(TWO, 1, op=Op.MIN), again], "uet") == []


def test_what_is_sent_again_may_overtake_the_first() -> None:
    """And is one of three that are no violation, where the other two are one."""
    again = request(ONE, 0, flags=RETX)
    assert rules_of([again, request(ONE, 0)]) == []
    assert rules_of([request(ONE, 0), again, request(ONE, 0)]) == ["SHARP-EDGE-LOAD"]


def test_messages_are_put_into_the_order_of_time() -> None:
    """Some were held until it was clear whether their flow has a CRC, others changed places on their way to a file."""
    lines = [*JOINED, *(line for seq in range(9) for line in (request(ONE, 0, seq), result(ONE, 0, seq)))]
    packets = observed(lines)
    results = [seen for seen in packets if seen.src == NODE]
    assert SharpAudit().see([*(seen for seen in packets if seen.src != NODE), *results]) == []
    swapped = [*packets[:2], *(packets[at ^ 1] for at in range(2, len(packets)))]
    assert SharpAudit().see(seen._replace(number=at) for at, seen in enumerate(swapped)) == []


def test_only_so_many_messages_wait() -> None:
    audit = SharpAudit()
    for seen in observed(request(ONE, 0, seq) for seq in range(2 * WAITING)):
        audit.tracker.see(seen)
    assert len(audit.tracker._waiting) == WAITING
    (group,) = audit.tracker._by_key.values()
    assert len(group.operations) == WAITING


def test_only_so_many_copies_are_known() -> None:
    audit = SharpAudit()
    audit.see(observed(request(ONE, 0, seq) for seq in range(COPIES + 10)))
    assert len(audit.tracker._copies) == COPIES
    first = request(ONE, 0, 1, seen={"psn": 0})
    assert rules_of([first, *(request(ONE, 0, seq, group_id=2) for seq in range(1, COPIES + 10)), first]) == []


def test_results_by_multicast_may_not_come_by() -> None:
    """As at a node that is not the root: what is open there nobody can say, until one of them was seen."""
    audit = SharpAudit()
    group = [multicasts(ONE, 0), multicasts(TWO, 1)]
    assert audit.see(observed([*group, *(request(ONE, 0, seq) for seq in range(5))])) == []
    tally = audit.judge.tallies["SHARP-WINDOW"]
    assert tally.not_judged == {"results by multicast do not come by here": 5}
    seen_once = [request(ONE, 0), result(0xE0000001, 255, flags=WHOLE | Flag.MCAST)]
    assert rules_of([*group, *seen_once, *(request(ONE, 0, seq) for seq in range(1, 4))]) == ["SHARP-WINDOW"]


def test_an_error_ends_all_chunks_of_an_operation() -> None:
    chunks = [request(ONE, 0, vec_off=64 * at, flags=Flag.SAT) for at in range(64)]
    error: Line = (NODE, ONE, SharpOpcode.ERROR, {"child_idx": 255, "payload_len": 40}, {})
    more = [request(ONE, 0, 1, vec_off=64 * at, flags=Flag.SAT) for at in range(2)]
    assert rules_of([*chunks, error, *more]) == []
    assert rules_of([*chunks, *more]) == ["SHARP-WINDOW"] * 2


def test_a_message_in_several_packets() -> None:
    """Over UET its first packet holds less than its header tells."""
    packets = observed([request(ONE, 0, count=512, payload_len=2048, seen={"size": 2048, "eom": 0})], "uet")
    audit = SharpAudit()
    assert audit.see(packets) == []
    assert audit.judge.tallies["SHARP-LENGTH"].not_judged == {"not all of the message is there": 1}


def test_silent_groups_are_forgotten() -> None:
    tracker = SharpAudit().tracker
    for seen in observed([request(ONE, 0)]):
        tracker.see(seen)
    tracker.sweep(61 * 10**9)
    assert tracker.groups.forgotten == {"silent": 1, "evicted": 0}
    assert not tracker._by_key


def test_a_crowd_of_children_costs_no_memory() -> None:
    """Of one group, one operation and one child no more is remembered than can be."""
    audit = SharpAudit()
    audit.see(observed(request(index, index, 0) for index in range(2 * EDGES)))
    audit.see(observed(request(1, 1, seq) for seq in range(2 * OPERATIONS)))
    (group,) = audit.tracker._by_key.values()
    audit.see(observed(result(index, index, 0) for index in range(4 * EDGES)))
    assert max(len(operation.crossed) for operation in group.operations.values()) == 2 * EDGES
    assert len(group.open) == EDGES
    assert max(map(len, group.open.values())) == OPERATIONS == len(group.operations)


def test_a_message_behind_what_cannot_be_read() -> None:
    """A message over UET whose SES has another version is looked at, not followed."""
    frames = []
    for frame in frames_of("collective-sharp-uet.pcapng"):
        opened = open_frame(frame, "ethernet", ROCE_PORT)
        index = opened and opened.find("version", prefix="ses.send_std")
        frames.append(frame if opened is None or index is None else opened.changed(index, "version", 1).frame)
    tally = audited(frames).tallies["SHARP-LENGTH"]
    assert tally.not_judged["SES not understood"] == tally.asked > 0


@pytest.mark.parametrize("path", sorted(GOLDEN.glob("collective-*.pcapng")), ids=lambda path: path.stem)
@pytest.mark.parametrize("complete", [False, True])
def test_golden(path: Path, complete: bool) -> None:
    report = audit([path], Options(rules=("sharp-*",), complete=complete))
    assert [(finding.rule.id, finding.packets) for finding in report.findings] == []
    assert bool(report.tallies["SHARP-LENGTH"].judged) == ("sharp" in path.name)
