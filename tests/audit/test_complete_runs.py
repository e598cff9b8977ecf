# SPDX-License-Identifier: GPL-2.0-only
"""Random runs of which nothing is missing, in the order of sending: all rules are judged, and nothing is found."""

from dataclasses import replace

import pytest

from tests.support.audit.network import MIDDLE, Faults, Run
from tests.support.audit.random_runs import random_run
from tests.support.audit.views import capture, is_wrong, on_purpose, told
from tests.support.effort import effort
from uetproto.audit.auditor import audit
from uetproto.audit.reader.options import Options
from uetproto.audit.report import AuditReport
from uetproto.audit.rule import Requires
from uetproto.audit.rules import RULES

RUNS, SLICES = effort(12, 1_000, 10_000), 4
RARE = frozenset({
    "PDS-RCVD-BYTES-FALLS", "PDS-CREDIT-FALLS", "PDS-CREDIT-BEYOND", "PDS-CREDIT-OVERDRAWN",
    "PDS-WINDOW-EXCEEDED", "PDS-WINDOW-INFERRED",
    "PDS-START-DISTANCE", "SES-UNFINISHED", "SES-MESSAGE-ID-UNANSWERED", "SES-SYNC-MEMBERS", "RUDI-SILENT",
    "ROCE-ANSWER-AFTER-NAK", "SHARP-COMPLETE", "SHARP-SEQUENCE", "SHARP-STRANGER", "SHARP-UNASKED",
    "SHARP-WINDOW", "SES-HD-BEHIND",
})  # fmt: skip
"""Rules about what these runs have little of, or none."""


def complete(seed: int) -> tuple[Run, AuditReport] | None:
    """Seen in the middle, where all that is sent comes by: only behind it something happens to packets."""
    run = random_run(seed)
    if not isinstance(run, Run):
        return None
    run = replace(run, before=Faults())
    security = run.profile.security
    options = Options(complete=True, ordered=True, keys=None if security is None else security.ring())
    return run, audit([capture(run.emulate()[MIDDLE])], options)


@pytest.mark.parametrize("part", range(SLICES))
def test_nothing_is_found(part: int) -> None:
    for seed in range(part, RUNS, SLICES):
        found = complete(seed)
        if found is None:
            continue
        run, report = found
        allowed = on_purpose(run)
        wrong = [finding for finding in report.findings if is_wrong(finding) and finding.rule.id not in allowed]
        assert [told(seed, "complete", finding) for finding in wrong] == []


def test_rules_that_need_a_promise_are_judged() -> None:
    """That they have found nothing is said of something."""
    missing = {rule.id for rule in RULES if rule.requires is not Requires.PRESENCE} - RARE
    for seed in range(64):
        found = complete(seed)
        if found is not None:
            missing -= {name for name, tally in found[1].tallies.items() if tally.judged}
        if not missing:
            break
    assert missing == set()
