# SPDX-License-Identifier: GPL-2.0-only
"""This module writes the outcome of `uetproto audit` as JUnit XML, for programs that run tests. Each rule is a test
case.
"""

from uetproto.audit.finding import Finding
from uetproto.audit.judge import RuleTally
from uetproto.audit.outcome import AuditOutcome, why
from uetproto.cli.audit.reproduce_hints import reproduce_hints
from uetproto.cli.audit.text import flow_words
from uetproto.cli.junit import JunitCase, junit_text
from uetproto.wire.words.summary import count
from uetproto.wire.words.text import numbered

_MOST = 100  # number of findings of a rule that are listed in full


def junit(outcome: AuditOutcome) -> str:
    """Return the XML, with a test case for each rule. A rule with a finding of at least `--fail-on` fails, and a rule
    that was not judged is skipped. Less severe findings are output of a test case that passes."""
    found = outcome.by_rule()
    tallies = outcome.report.tallies
    failing = {name for name, group in found.items() if any(map(outcome.fails, group))}
    cases = [_case(name, tally, found.get(name, []), outcome, name in failing) for name, tally in tallies.items()]
    return junit_text("uetproto audit", cases)


def _case(name: str, tally: RuleTally, found: list[Finding], outcome: AuditOutcome, failing: bool) -> JunitCase:
    rule, group = tally.rule, f"uetproto.audit.{name.partition('-')[0].lower()}"  # "pds" of PDS-PSN-TWO-CONTENTS
    if found:
        worst = found[0].severity.value
        lines = [_line(finding, outcome) for finding in found[:_MOST]]
        rest = len(found) - len(lines) + outcome.unlisted(rule.id)
        lines += [f"and {rest} more"] if rest else []
        text = "\n".join([f"{rule.says} [{rule.cite}]", *lines])
        if not failing:
            return JunitCase(group, name, "system-out", text=text)
        number = count(len(found) + outcome.unlisted(rule.id), worst)
        return JunitCase(group, name, "failure", f"{number}: {rule.says}", text, worst)
    if not tally.judged:
        return JunitCase(group, name, "skipped", "; ".join(why(tally, outcome.report)))
    return JunitCase(group, name)


def _line(finding: Finding, outcome: AuditOutcome) -> str:
    places = "; ".join(
        ", ".join(filter(None, (place.file, place.interface, numbered(place.packets[-1]))))
        for place in finding.everywhere
    )
    said = f"expected {finding.expected}; seen {finding.seen}"
    shown = "".join(f"\n  {line}" for line in reproduce_hints(finding, outcome.options))
    return ": ".join(filter(None, (places, flow_words(dict(finding.flow)), said))) + shown
