# SPDX-License-Identifier: GPL-2.0-only
"""This module prints rules for `uetproto audit --list-rules` and `--explain`, as text and as JSON."""

import json
from collections.abc import Iterator, Sequence
from textwrap import wrap
from typing import Any

from rich import box
from rich.table import Table

from uetproto import LocalError
from uetproto.audit.examples import examples
from uetproto.audit.personality import PERSONALITIES
from uetproto.audit.rule import Requires, Rule
from uetproto.audit.rules import BY_ID, known_rules
from uetproto.check.uet.invariants import INVARIANTS
from uetproto.cli.audit.text import STYLES, flow_words
from uetproto.cli.terminal import Paint

MEANS = {
    Requires.PRESENCE: "nothing: packets that were seen contradict each other, whatever is missing",
    Requires.ABSENCE: "--complete: it depends on a packet that was not seen",
    Requires.ORDER: "--ordered: it depends on the order of capture",
    Requires.REFPROV: "--personality refprov: it tells what the UEC reference provider makes of packets that are right",
}


def as_dict(rule: Rule) -> dict[str, Any]:
    """Return a rule as the JSON object that `--list-rules --json` prints."""
    return {
        "kind": "rule", "rule": rule.id, "severity": rule.severity.value, "needs": rule.requires.name.lower(),
        "says": rule.says, "cite": rule.cite, "covers": list(rule.covers),
    }  # fmt: skip


def listed(rules: Sequence[Rule]) -> Table:
    """Return a table with a row for each rule."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), show_edge=False)
    table.add_column("rule", no_wrap=True)
    table.add_column("severity", no_wrap=True)
    table.add_column("needs", no_wrap=True)
    table.add_column("what must hold")
    table.add_column("source")
    for rule in rules:
        needs = "" if rule.requires is Requires.PRESENCE else rule.requires.value.removeprefix("needs ")
        table.add_row(rule.id, rule.severity.value, needs, rule.says, rule.cite)
    return table


def json_rules(rules: Sequence[Rule]) -> Iterator[str]:
    return (json.dumps(as_dict(rule), ensure_ascii=False) for rule in rules)


def named(name: str) -> Rule:
    """Return the rule with this id. Raises `LocalError`, with similar ids, if there is no such rule."""
    rule = BY_ID.get(name.upper())
    if rule is None:
        raise LocalError(f"--explain {name}", f"there is no such rule{known_rules(name)}", id="unknown-rule")
    return rule


def explained(rule: Rule, columns: int, paint: Paint) -> Iterator[str]:
    """Yield the lines that explain a rule."""
    severity = rule.severity
    yield f"{paint(rule.id, 'bold')}: {paint(severity.value, STYLES[severity])}"
    yield from _paragraph("must hold", rule.says, columns)
    yield from _paragraph("source", rule.cite, columns)
    yield from _paragraph("needs", MEANS[rule.requires], columns)
    for invariant in rule.covers:
        yield from _paragraph("invariant", f"{invariant}{_statement(invariant)}", columns)
    for name, habits in PERSONALITIES.items():
        if rule.id in habits:
            yield from _paragraph(name, f"{habits[rule.id]}: a note with --personality {name}", columns)
    found = examples().get(rule.id)
    if found is not None:
        told = (flow_words(found["flow"]), f"expected {found['expected']}", f"seen {found['seen']}")
        for number, text in enumerate(filter(None, told)):
            yield from _paragraph("" if number else "example", text, columns)


def _statement(invariant: str) -> str:
    """Return the text of an invariant of packet delivery, which the emulator's checks have, too."""
    page, _, number = invariant.partition(" ")
    if page != "pds" or int(number) not in INVARIANTS:
        return ""
    return f": {' '.join(INVARIANTS[int(number)].statement.split())}"


def _paragraph(name: str, text: str, columns: int) -> Iterator[str]:
    lines = wrap(text, columns, initial_indent=f"  {name:12}", subsequent_indent=" " * 14, break_on_hyphens=False)
    yield from lines or [f"  {name}"]
