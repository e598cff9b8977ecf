# SPDX-License-Identifier: GPL-2.0-only
"""This module has the outcome of `uetproto audit` for every form of output: the findings, the findings that a baseline
hides, and counts."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from uetproto.audit.finding import Finding, FindingPlace
from uetproto.audit.judge import RuleTally
from uetproto.audit.report import NO_KEYS, AuditReport
from uetproto.audit.rule import Severity
from uetproto.errors import SuggestsNames

NEVER_MET = "nothing of the kind in the capture"
UNOPENED = "nothing of the kind in the capture but for what is sealed"
"""Reason why a rule was not judged, if only sealed packets could have been cases of it."""

_RANK = {severity: rank for rank, severity in enumerate(Severity)}


@dataclass(slots=True)
class AuditOutcome(SuggestsNames):
    """This class has the outcome of an audit of some files."""

    report: AuditReport
    least: Severity
    """Least severity of the findings that make the exit status 1, from `--fail-on`."""
    findings: list[Finding] = field(default_factory=list)
    hidden: list[Finding] = field(default_factory=list)
    """Findings that the baseline hides."""
    unwanted: int = 0
    """Number of findings that no packet of a filter shows."""
    options: Sequence[str] = ()
    """Command-line options with which other commands read the packets in the same way."""

    def fails(self, finding: Finding) -> bool:
        """Return whether a finding makes the exit status 1."""
        return _RANK[finding.severity] <= _RANK[self.least]

    @property
    def failed(self) -> bool:
        """Return whether the exit status is 1, because of a finding or because the keys open no sealed packet."""
        return any(map(self.fails, self.findings)) or self.report.keys_open_nothing

    @property
    def counts(self) -> dict[Severity, int]:
        """Return the number of findings by severity, without those that the baseline hides."""
        found = Counter(finding.severity for finding in self.findings)
        return {severity: found[severity] for severity in Severity}

    @property
    def several(self) -> bool:
        """Return whether the findings concern more than one file."""
        return len({place.file for finding in self.findings for place in finding.everywhere}) > 1

    def by_rule(self) -> dict[str, list[Finding]]:
        """Return the findings by rule, without those that the baseline hides. Rules with more severe findings come
        first; rules of equal severity have the order of the report."""
        order = {name: number for number, name in enumerate(self.report.tallies)}
        groups: dict[str, list[Finding]] = {}
        for finding in sorted(self.findings, key=lambda one: (_RANK[one.severity], order[one.rule.id])):
            groups.setdefault(finding.rule.id, []).append(finding)
        return groups

    def unlisted(self, rule: str) -> int:
        """Return how many violations of a rule were only counted. There are no findings for these violations."""
        told = (*self.findings, *self.hidden)
        kept = sum(len(finding.everywhere) for finding in told if finding.rule.id == rule)
        return 0 if self.unwanted else max(0, self.report.tallies[rule].failed - kept)

    def left_out(self) -> dict[str, int]:
        """Return the numbers of packets and conversations that were not audited, or only in part, by description."""
        return left_out(self.report)


def shown_by(findings: Iterable[Finding], wanted: Mapping[str, Sequence[int]]) -> list[Finding]:
    """Return the findings that at least one wanted packet shows. `wanted` has an item for each packet of a file, which
    is not 0 if the packet is wanted."""

    def is_wanted(place: FindingPlace) -> bool:
        of_file = wanted[place.file]
        return any(index < len(of_file) and of_file[index] for index in place.packets)

    return [one for one in findings if any(map(is_wanted, one.everywhere))]


def left_out(report: AuditReport) -> dict[str, int]:
    """Return the numbers of packets that were not followed, and of conversations that were dropped, by description."""
    dropped = {f"dropped: {what.replace(': ', ' ')}": number for what, number in report.forgotten.items() if number}
    return unread(report) | dropped


def unread(report: AuditReport) -> dict[str, int]:
    """Return the numbers of packets that were read but not audited, or audited only in part, by description."""
    said = {"of other protocols": report.others, "copies of a mirror port": report.copies}
    for reason, number in report.unopened.items():
        said["sealed, which --keys would open" if reason == NO_KEYS else f"sealed, {reason}"] = number
    return {what: number for what, number in said.items() if number}


def why(tally: RuleTally, report: AuditReport) -> dict[str, int]:
    """Return the number of cases in which a rule was not judged, by reason. If the rule had no case at all, the only
    reason has the number 0."""
    if tally.asked:
        return dict(tally.not_judged.most_common())
    return {UNOPENED if report.unopened else NEVER_MET: 0}


def json_lines(outcome: AuditOutcome) -> Iterator[str]:
    """Yield the findings, then the summary, as lines of JSON (interfaces.md §8)."""
    for finding in outcome.findings:
        yield json.dumps(finding.as_dict(), ensure_ascii=False, default=str)
    yield json.dumps(summary(outcome), ensure_ascii=False)


def summary(outcome: AuditOutcome) -> dict[str, Any]:
    report = outcome.report
    return {
        "kind": "summary",
        "packets": report.packets,
        **({"partial": True} if report.partial else {}),
        "findings": {severity.value: number for severity, number in outcome.counts.items()},
        "hidden": len(outcome.hidden),
        **({"unwanted": outcome.unwanted} if outcome.unwanted else {}),
        "others": report.others,
        "copies": report.copies,
        **({"vnis": len(report.vnis)} if len(report.vnis) > 1 else {}),
        "unopened": dict(report.unopened),
        "forgotten": dict(report.forgotten),
        "rules": {
            name: {
                "judged": tally.judged, "passed": tally.passed, "failed": tally.failed,
                "not_judged": tally.not_judged.total(), "why": why(tally, report),
            }
            for name, tally in report.tallies.items()
        },
    }  # fmt: skip
