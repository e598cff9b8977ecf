# SPDX-License-Identifier: GPL-2.0-only
"""This module prints the outcome of `uetproto audit`: findings by rule and flow, then how often each
rule was judged."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby, islice
from typing import TYPE_CHECKING, Any

from uetproto.audit.finding import Finding
from uetproto.audit.judge import RuleTally
from uetproto.audit.outcome import AuditOutcome, why
from uetproto.audit.report import AuditReport
from uetproto.audit.rule import Severity
from uetproto.cli.audit.reproduce_hints import reproduce_hints
from uetproto.cli.terminal import Paint, printable
from uetproto.wire.words.summary import count
from uetproto.wire.words.text import numbered

if TYPE_CHECKING:  # loaded where a table is printed
    from rich.table import Table

STYLES = {Severity.ERROR: "alarm", Severity.WARNING: "yellow", Severity.NOTE: "cyan"}

_FLOWS = 4  # flows of a rule that are shown in full
_LINES = 3  # findings of a flow that are shown in full
_NUMBERS = 8  # further packets that are listed by number
_WITHIN = ("message_id", "psn", "pkt_id", "tsc")  # fields that tell findings of one flow apart
_INDENT = "    "


def findings(outcome: AuditOutcome, paint: Paint) -> Iterator[str]:
    """Yield the lines of the findings, the most severe first."""
    for name, found in outcome.by_rule().items():
        rule, severity = found[0].rule, found[0].severity
        number = len(found) + outcome.unlisted(name)
        yield f"{paint(f'{severity.value} {name}', STYLES[severity])}: {count(number, 'finding')}"
        yield f"  {rule.says} {paint(f'[{rule.cite}]', 'dim')}"
        flows = [list(group) for _, group in groupby(sorted(found, key=_flow), _flow)]
        flows.sort(key=lambda group: group[0].packet)
        for group in flows[:_FLOWS]:
            yield from _of_flow(group, outcome, paint)
        if len(flows) > _FLOWS:
            rest = sum(map(len, flows[_FLOWS:]))
            yield f"  and {count(rest, 'finding')} in {count(len(flows) - _FLOWS, 'more flow')}; --json has all"
        yield ""


def _flow(finding: Finding) -> tuple[str, ...]:
    outer = {name: value for name, value in finding.flow.items() if name not in _WITHIN}
    return (finding.file, finding.interface, *map(str, outer.items()))


def _of_flow(found: Sequence[Finding], outcome: AuditOutcome, paint: Paint) -> Iterator[str]:
    first = found[0]
    outer = {name: value for name, value in first.flow.items() if name not in _WITHIN}
    where = [first.file if outcome.several else "", first.interface, flow_words(outer)]
    if any(where):
        yield "  " + paint(printable(", ".join(filter(None, where))), "bold")
    for finding in found[:_LINES]:
        inner = flow_words({name: finding.flow[name] for name in _WITHIN if name in finding.flow})
        packet = numbered(finding.packet) + (f" (about {inner})" if inner else "")
        yield printable(f"{_INDENT}{packet}: expected {finding.expected}; seen {finding.seen}")
        for place in finding.places:
            there = ", ".join(filter(None, (place.file, place.interface, numbered(place.packets[-1]))))
            yield printable(f"{_INDENT}  also {there}")
    more = found[_LINES:]
    if more:
        numbers = ", ".join(numbered(finding.packet) for finding in more[:_NUMBERS])
        rest = f" and {len(more) - _NUMBERS} more" if len(more) > _NUMBERS else ""
        yield f"{_INDENT}also {numbers}{rest}"
    for line in reproduce_hints(first, outcome.options):
        yield _INDENT + paint(printable(line), "green")


def flow_words(flow: dict[str, Any]) -> str:
    """Return a flow in words: "10.0.0.1 → 10.0.0.2, spdcid 5, dpdcid 9"."""
    ends = {"src", "dst"} if {"src", "dst"} <= flow.keys() else set()
    parts = [f"{flow['src']} → {flow['dst']}"] if ends else []
    parts += [f"{name} {value}" for name, value in flow.items() if name not in ends and value is not None]
    return ", ".join(parts)


# Coverage -------------------------------------------------------------------------------------------------------------


def coverage(outcome: AuditOutcome) -> "Table":
    """Return a table that says how often each rule was judged. Rules with equal counts share a row, but each rule that
    was violated has a row of its own."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), show_edge=False)
    for name in _NUMBERED:
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("rules")
    rows: dict[tuple[Any, ...], list[str]] = {}
    report = outcome.report
    for name, tally in report.tallies.items():
        numbers = (tally.judged, tally.passed, tally.failed, tally.not_judged.total())
        rows.setdefault((numbers, _reasons(tally, report), name if tally.failed else ""), []).append(name)
    for (numbers, reasons, failed), names in sorted(rows.items(), key=_place):
        was_met = any(numbers)
        text = Text(", ".join(names if was_met else _in_families(names, report.tallies)))
        if reasons:
            text.append(f" (not judged: {reasons})", style="dim")
        table.add_row(*(f"{number:,}" for number in numbers), text, style="bold red" if failed else "")
    return table


def _place(row: tuple[tuple[Any, ...], list[str]]) -> tuple[Any, ...]:
    """Return a key that sorts rules that failed first, and rules without any case last."""
    (judged, _, failed, not_judged), _, _ = row[0]
    return not failed, -judged, not not_judged


_NUMBERED = ("judged", "passed", "failed", "not judged")


def _in_families(names: Sequence[str], known: Iterable[str]) -> Iterator[str]:
    """Yield rules without any case, by family: "TSS-* (9)", "the other 30 of PDS-*"."""
    sizes = Counter(map(_family, known))
    for family, group in groupby(names, _family):
        members = list(group)
        if len(members) == sizes[family] > 1:
            yield f"{family}-* ({len(members)})"
        elif len(members) > max(3, sizes[family] // 2):
            yield f"the other {len(members)} of {family}-*"
        else:
            yield from members


def _family(name: str) -> str:
    return name.partition("-")[0]


def _reasons(tally: RuleTally, report: AuditReport) -> str:
    reasons = why(tally, report)
    if len(reasons) == 1:
        return next(iter(reasons))
    return "; ".join(f"{text} ({number:,})" for text, number in reasons.items())


def verdict(outcome: AuditOutcome, baseline: str | None, paint: Paint) -> Iterator[str]:
    """Yield the last lines, which say how many findings and packets there are, how many rules were judged, and what
    was left out."""
    report = outcome.report
    words = [
        paint(count(number, severity.value), STYLES[severity]) for severity, number in outcome.counts.items() if number
    ]
    found = ", ".join(words) or paint("no findings", "green")
    judged = sum(tally.judged > 0 for tally in report.tallies.values())
    packets = f"{report.packets:,} packet{'s' * (report.packets != 1)}"
    yield f"{found} in {packets}; {judged} of {len(report.tallies)} rules judged"
    if report.others == report.packets > 0:
        yield "  " + paint(
            "nothing to judge: --udp-port, --ip-protocol and --roce-port say where UET and RoCE are", "alarm"
        )
    if report.keys_open_nothing:
        yield "  " + paint("the keys open none of the sealed packets: what is inside was not judged", "alarm")
    if outcome.hidden:
        yield f"  {count(len(outcome.hidden), 'finding')} hidden by {printable(baseline or '')}"
    if len(report.vnis) > 1:
        yield f"  tunnels have {len(report.vnis):,} VNIs: equal addresses in different ones are different hosts"
    left_out = outcome.left_out()
    if left_out:
        yield "  " + printable("; ".join(f"{what}: {number:,}" for what, number in left_out.items()))


def head(files: Sequence[str], paint: Paint) -> str:
    """Return the names of the audited files in one line."""
    shown = list(islice(files, _FLOWS))
    rest = f" and {len(files) - len(shown)} more" if len(files) > len(shown) else ""
    return paint(printable(", ".join(shown) + rest), "bold")
