"""This module writes the outcome of `uetproto audit` as JUnit XML, for programs that run tests. Each rule is a test
case.
"""

import re
from xml.etree import ElementTree

from uetproto.audit.finding import Finding
from uetproto.audit.judge import RuleTally
from uetproto.audit.outcome import AuditOutcome, why
from uetproto.cli.audit.reproduce_hints import reproduce_hints
from uetproto.cli.audit.text import flow_words
from uetproto.wire.words.summary import count
from uetproto.wire.words.text import numbered

_MOST = 100  # number of findings of a rule that are listed in full
_ILLEGAL = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")  # in XML 1.0


def junit(outcome: AuditOutcome) -> str:
    """Return the XML, with a test case for each rule. A rule with a finding of at least `--fail-on` fails, and a rule
    that was not judged is skipped. Less severe findings are output of a test case that passes."""
    found = outcome.by_rule()
    tallies = outcome.report.tallies
    failing = {name for name, group in found.items() if any(map(outcome.fails, group))}
    skipped = [name for name, tally in tallies.items() if not tally.judged and name not in found]
    suite = ElementTree.Element(
        "testsuite", name="uetproto audit", tests=str(len(tallies)), failures=str(len(failing)), errors="0",
        skipped=str(len(skipped)),
    )  # fmt: skip
    for name, tally in tallies.items():
        layer = name.partition("-")[0].lower()  # "pds" of PDS-PSN-TWO-CONTENTS
        case = ElementTree.SubElement(suite, "testcase", classname=f"uetproto.audit.{layer}", name=name)
        _judged(case, tally, found.get(name, []), outcome, name in failing)
    root = ElementTree.Element("testsuites")
    root.append(suite)
    ElementTree.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ElementTree.tostring(root, encoding="unicode") + "\n"


def _judged(
    case: ElementTree.Element, tally: RuleTally, found: list[Finding], outcome: AuditOutcome, failing: bool
) -> None:  # fmt: skip
    rule = tally.rule
    if found:
        worst = found[0].severity.value
        lines = [_line(finding, outcome) for finding in found[:_MOST]]
        rest = len(found) - len(lines) + outcome.unlisted(rule.id)
        lines += [f"and {rest} more"] if rest else []
        number = count(len(found) + outcome.unlisted(rule.id), worst)
        text = _ILLEGAL.sub("\N{REPLACEMENT CHARACTER}", "\n".join([f"{rule.says} [{rule.cite}]", *lines]))
        if failing:
            ElementTree.SubElement(case, "failure", message=f"{number}: {rule.says}", type=worst).text = text
        else:
            ElementTree.SubElement(case, "system-out").text = text
    elif not tally.judged:
        ElementTree.SubElement(case, "skipped", message="; ".join(why(tally, outcome.report)))


def _line(finding: Finding, outcome: AuditOutcome) -> str:
    places = "; ".join(
        ", ".join(filter(None, (place.file, place.interface, numbered(place.packets[-1]))))
        for place in finding.everywhere
    )
    said = f"expected {finding.expected}; seen {finding.seen}"
    shown = "".join(f"\n  {line}" for line in reproduce_hints(finding, outcome.options))
    return ": ".join(filter(None, (places, flow_words(dict(finding.flow)), said))) + shown
