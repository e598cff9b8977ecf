# SPDX-License-Identifier: GPL-2.0-only
"""Captures of others: each finding is a habit of the reference provider that is known, or is explained here.

The rows are those of the second table of observed.md: what is different on the wire. A row names the rule that shows
it and the captures in which it is met, or says why nobody can see it there.
"""

from collections import Counter
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support import paths
from tests.support.interop.refprov_packets import keys_of
from uetproto.audit.auditor import audit
from uetproto.audit.personality import excused_by
from uetproto.audit.reader.options import Options
from uetproto.audit.report import AuditReport
from uetproto.audit.rule import Severity
from uetproto.audit.rules import BY_ID
from uetproto.wire.capture.pcap import open_capture

SHARED = paths.SHARED
REFPROV, ROCE = SHARED / "captures" / "refprov", SHARED / "captures" / "roce"
OBSERVED = SHARED / "spec" / "observed.md"

needs_refprov = pytest.mark.skipif(not REFPROV.is_dir(), reason=f"no captures of the reference provider in {REFPROV}")
needs_roce = pytest.mark.skipif(not ROCE.is_dir(), reason=f"no captures of RoCE in {ROCE}")

DEFERRED = frozenset({"rud_ack_cc_reorder", "rud_defer_send"})
CONTROLLED = frozenset({"rod_atomic", "rod_close", "rod_drop", "tss_close"})
ALL = frozenset({
    "rod_ack_cc", "rod_ack_ccx", "rod_ack_coalesced", "rod_atomic", "rod_close", "rod_drop", "rod_rma_4096",
    "rod_send_100", "rod_send_4096", "rod_sync_write_100", "rod_tagged_100", "rud_ack_cc_reorder", "rud_defer_send",
    "rud_drop", "rud_no_match", "rud_send_4096", "rudi_rma_4096", "tss_1rtt", "tss_close", "tss_cluster", "tss_direct",
    "uud_send_100", "v6_send_4096", "v6_tss_cluster",
})  # fmt: skip
DATAGRAMS = frozenset({"uud_send_100"})
IN_ORDER = frozenset({"tss_close"})
"""In others an ACK is seen behind one that was sent later."""


class Habit(NamedTuple):
    """A row of observed.md."""

    knob: str
    """As the row names it, of several the first."""
    rules: tuple[str, ...] = ()
    captures: frozenset[str] = frozenset()
    """Those in which it is found."""
    why: str = ""
    """Why it is not, or only in captures said to be complete and in order."""


COMPLETE = "an ACK may be of a first copy that was not seen: only a complete capture shows it"
AGAIN = "PSNs of a PDC come again in the next: only a complete capture in its order tells which an ACK is of"
HABITS = (
    Habit("closing_ack", ("PDS-CLOSE-CACK",), frozenset({"rod_close"})),
    Habit("closing_ack", ("PDS-CLOSE-CACK",), frozenset({"tss_close"}), AGAIN),
    Habit("expected_psn_after_close", ("PDS-EXPECTED-PSN",), frozenset({"tss_close"})),
    Habit("cp_isrod", ("PDS-CP-ISROD",), CONTROLLED),
    Habit("ack_req_ar", why="no capture has an ACK_REQ"),
    Habit("ack_copies_retx", ("PDS-ACK-RETX",), frozenset({"rod_drop", "rud_ack_cc_reorder", "rud_drop"}), COMPLETE),
    Habit("rudi_marks_retx", why="no RUDI request is repeated in them"),
    Habit("clear_on_retransmission", why="an old CLEAR_PSN is right: a packet may say less than its sender knows"),
    Habit("clear_at", why="likewise"),
    Habit("rod_recovery", why="a target may keep what is out of order, and a source send what was asked for"),
    Habit("uud_opcode", ("UUD-OPCODE",), DATAGRAMS),
    Habit("uud_opcode", ("UUD-MESSAGE-ID",), DATAGRAMS),
    Habit("first_message_id", ("SES-MESSAGE-ID-ZERO",), ALL - DATAGRAMS),
    Habit("stop_list", ("SES-STOP-LIST",), DEFERRED),
    Habit("deferral_tokens", ("SES-TOKEN-ZERO",), DEFERRED),
    Habit("rtr_resource_index", ("SES-INDEX-ZERO",), DEFERRED),
    Habit("rod_refusal", ("SES-ROD-NO-MATCH",), frozenset({"rod_drop"})),
    Habit("response_generation", ("SES-RESPONSE-GENERATION",), frozenset({"rod_drop"})),
    Habit("hd_in", ("SES-HD-LATER",), frozenset({"rod_rma_4096", "rudi_rma_4096"})),
    Habit("response_message_id", why="our targets send the id of the read, too"),
    Habit("ecn_capable", ("WIRE-ECN",), ALL),
    Habit("clear_nacks", ("TSS-CLEAR-AMONG-SEALED",), frozenset({"tss_1rtt"})),
    Habit("strict_tsc_halves", why="no capture is of mode client-server, nor of mode direct over IPv6"),
)
"""UUD carries SEND, and message ids: one row, two rules."""

BEYOND: dict[str, str] = {
    "retry_message_id": "a refused message goes again with the id it had: that message is over, so its id is free",
    "lone_read_eom": "eom 0 says that more may come: nothing that is seen contradicts it",
    "return_modified_length": "the length of the whole read may have been modified, for all that the packets show",
}
"""Habits that the captures have and observed.md does not: no rule can tell them from what is right."""


def captures() -> list[Path]:
    return sorted(REFPROV.glob("*.pcap"))


@cache
def report_of(path: Path, promised: bool = False, personality: str | None = None) -> AuditReport:
    """`promised`: everything is there; and where a habit needs that, it is in its order."""
    ordered = promised and path.stem in IN_ORDER
    return audit([path], Options(keys=keys_of(path), complete=promised, ordered=ordered, personality=personality))


def rules_in(path: Path, promised: bool = False) -> set[str]:
    return {finding.rule.id for finding in report_of(path, promised).findings}


@needs_refprov
def test_all_captures_are_read() -> None:
    assert {path.stem for path in captures()} == ALL
    for path in captures():
        with open_capture(path) as capture:
            assert report_of(path).packets == sum(1 for _ in capture)
        assert not report_of(path).others
        assert not report_of(path).unopened


@needs_refprov
@pytest.mark.parametrize("capture", sorted(ALL))
def test_each_finding_is_a_habit(capture: str) -> None:
    """And each habit that the capture shows is found."""
    path = REFPROV / f"{capture}.pcap"
    here = [habit for habit in HABITS if capture in habit.captures]
    assert rules_in(path) == {rule for habit in here if not habit.why for rule in habit.rules}
    assert rules_in(path, promised=True) == {rule for habit in here for rule in habit.rules}


@needs_refprov
def test_a_habit_is_found_wherever_it_is() -> None:
    """Not only once, where the row says how often."""
    found = Counter(finding.rule.id for path in captures() for finding in report_of(path, promised=True).findings)
    assert found["UUD-OPCODE"] == 12, "all datagrams"
    assert found["PDS-CLOSE-CACK"] == 10 + 8, "all closing ACKs"
    assert found["PDS-EXPECTED-PSN"] == 8
    assert found["PDS-CP-ISROD"] == 20 + 10 + 19 + 8, "all control packets of PDCs of ROD"
    assert found["SES-ROD-NO-MATCH"] == 8
    assert found["SES-INDEX-ZERO"] == 1 + 3, "all DEFERRABLE_RTR"
    assert found["TSS-CLEAR-AMONG-SEALED"] == 2, "both NACKs"


@needs_refprov
@pytest.mark.parametrize("promised", [False, True])
def test_the_personality_leaves_only_notes(promised: bool) -> None:
    for path in captures():
        findings = report_of(path, promised, "refprov").findings
        assert {finding.severity for finding in findings} <= {Severity.NOTE}
        hidden = Counter(finding.rule.id for finding in report_of(path, promised).findings)
        hidden.subtract(finding.rule.id for finding in findings)
        assert max(hidden.values(), default=0) <= 0, "and hides none"


@pytest.mark.skipif(not OBSERVED.exists(), reason=f"{OBSERVED} is not here")
def test_every_row_is_here() -> None:
    different = OBSERVED.read_text(encoding="utf-8").partition("## Different")[2]
    knobs = [line.rpartition("| `")[2].partition("`")[0] for line in different.splitlines() if "§" in line[:12]]
    assert list(dict.fromkeys(habit.knob for habit in HABITS)) == knobs


def test_habits_name_rules_that_are_excused() -> None:
    for habit in HABITS:
        assert bool(habit.rules) == bool(habit.captures)
        assert habit.rules or habit.why
        for rule in habit.rules:
            assert rule in excused_by("refprov")
            assert rule in BY_ID
    assert not BEYOND.keys() & {habit.knob for habit in HABITS}


# RoCE -----------------------------------------------------------------------------------------------------------------

OTHERS: dict[str, int] = {"nvme-discover": 4, "rdma-nccl2": 11, "read2": 3}
"""Packets that are no RoCE: TCP, ARP and the like."""


@needs_roce
def test_roce_captures_are_right() -> None:
    """Adapters and soft RoCE: nothing is found, also where all packets are said to be there in their order.

    Two captures have changed addresses, and no right ICRC. In one the adapter has noted answers before their
    requests: its order is not that of sending, as the promise says.
    """
    assert {path.stem for path in ROCE.glob("*.pcap")} == {
        "dc-small", "native-erf", "nvme-discover", "rdma-nccl2", "read2", "rocev1", "send", "write",
    }  # fmt: skip
    for path in sorted(ROCE.glob("*.pcap")):
        report = audit([path], Options())
        changed = {"ROCE-ICRC-CAPTURE"} if path.stem in ("dc-small", "rdma-nccl2") else set()
        assert {finding.rule.id for finding in report.findings} == changed
        assert report.others == OTHERS.get(path.stem, 0)
        assert sum(tally.judged for tally in report.tallies.values())
        promised = audit([path], Options(complete=True, ordered=True)).findings
        disordered = {"ROCE-PSN-NOT-SENT"} if path.stem == "nvme-discover" else set()
        assert {finding.rule.id for finding in promised} == changed | disordered
        assert {each.rule.id for each in audit([path], Options(complete=True)).findings} == changed
