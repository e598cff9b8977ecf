# SPDX-License-Identifier: GPL-2.0-only
"""Atomics that are as usual are only counted: nothing else is said of them than by asking all rules."""

from pathlib import Path

import pytest

from tests.support.audit.build import GOLDEN
from tests.support.effort import effort
from uetproto.audit.auditor import audit
from uetproto.audit.finding import Finding
from uetproto.audit.reader.options import Options
from uetproto.audit.report import AuditReport
from uetproto.audit.ses import tracker_message as tracker_ses_message
from uetproto.traffic.generate import generate
from uetproto.traffic.profile import load
from uetproto.wire.mutate.mutation import NAMES

PROFILES = {
    "atomics": ("atomics", ["protocol_errors=0.3"]),
    "mixed": ("mixed", ["loss=0.02"]),
}
SHARES = (0.0, 0.01)
"""Of each mutation."""
CAPTURES = sorted(GOLDEN.glob("ses-*atomic*.pcapng"))


def told(report: AuditReport) -> tuple[list[str], dict[str, tuple[int, int, dict[str, int]]]]:
    """Findings, and the table of what was judged."""
    return sorted(map(_line, report.findings)), {
        rule: (tally.asked, tally.failed, dict(tally.not_judged)) for rule, tally in report.tallies.items()
    }


def _line(finding: Finding) -> str:
    return f"{finding.rule.id} {finding.packets} {finding.text}"


def both_ways(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usual = told(audit([path], Options()))
    with monkeypatch.context() as each:
        each.setattr(tracker_ses_message, "is_usual", lambda *_: False)
        each.setattr(tracker_ses_message, "_PLAIN_SHORT", frozenset())
        assert told(audit([path], Options())) == usual


@pytest.mark.parametrize("share", SHARES)
@pytest.mark.parametrize("name", PROFILES)
def test_generated(name: str, share: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    profile, settings = PROFILES[name]
    path = tmp_path / "a.pcapng"
    mutations = dict.fromkeys(NAMES, share)
    generate(load(profile, [*settings, "seed=5"]), str(path), packets=effort(1_200, 3_000, 3_000), mutations=mutations)
    both_ways(path, monkeypatch)


@pytest.mark.parametrize("path", CAPTURES, ids=lambda path: path.stem)
def test_golden(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    both_ways(path, monkeypatch)
