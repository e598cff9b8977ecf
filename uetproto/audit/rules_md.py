# SPDX-License-Identifier: GPL-2.0-only
"""This module makes the text of RULES.md, which describes every rule."""

from collections.abc import Iterator
from itertools import groupby

from uetproto.audit.examples import examples
from uetproto.audit.personality import PERSONALITIES
from uetproto.audit.rule import Requires, Rule
from uetproto.audit.rules import NOT_OBSERVABLE, RULES

_HEAD = """\
# Rules of the audit

The rules of `uetproto audit`, and the sources that they cite. `tools/generate` writes this file from the tables
`*/rules*.py` in this folder: do not edit it.

A rule without a requirement is judged in every capture: packets that were seen contradict each other, whatever is
missing. A rule that needs `--complete` depends on a packet that was not seen; a rule that needs `--ordered` depends on
the order of capture. Without the option such a rule is not judged, and the summary counts it so. Rules that cite
"uetproto choice" are notes at most. Invariants have the numbers of the pages in `docs/protocol`.
"""

_LAYERS = {
    "CAP": "The capture", "WIRE": "A UET packet alone", "PDS": "Packet delivery", "SES": "Semantics", "RUDI": "RUDI",
    "UUD": "UUD", "TSS": "Security", "ROCE": "RoCE and InfiniBand", "SHARP": "SHARP", "MCAST": "Multicast",
}  # fmt: skip
"""Maps the first word of an id to a heading."""

_HABITS, _UNSEEN = "Habits of implementations", "What no capture shows"


def rules_markdown() -> str:
    """Return the text of RULES.md."""
    return "\n".join(_lines()) + "\n"


def layer(rule: Rule) -> str:
    """Return the heading of the section to which a rule belongs."""
    return _LAYERS[rule.id.partition("-")[0]]


def _lines() -> Iterator[str]:
    yield _HEAD
    order = list(_LAYERS.values())
    by_layer = [
        (title, list(rules))
        for title, rules in groupby(sorted(RULES, key=lambda rule: order.index(layer(rule))), layer)
    ]
    for title, number in [*((title, len(rules)) for title, rules in by_layer), (_HABITS, 0), (_UNSEEN, 0)]:
        yield f"- [{title}](#{title.lower().replace(' ', '-')})" + (f", {number}" if number else "")
    yield ""
    for title, rules in by_layer:
        yield f"## {title}"
        yield ""
        for rule in rules:
            yield from _rule(rule)
    yield f"## {_HABITS}"
    yield ""
    for name, habits in PERSONALITIES.items():
        yield f"With `--personality {name}` findings of these rules are notes."
        yield ""
        yield "| rule | habit |"
        yield "|---|---|"
        yield from (f"| {rule} | {habit} |" for rule, habit in habits.items())
        yield ""
    yield f"## {_UNSEEN}"
    yield ""
    yield "| invariant | why |"
    yield "|---|---|"
    numbers: dict[tuple[str, str], list[str]] = {}
    for invariant, reason in NOT_OBSERVABLE:
        page, counted = invariant.split()
        numbers.setdefault((page, reason), []).append(counted)
    for (page, reason), each in numbers.items():
        yield f"| {page} {', '.join(each)} | {reason} |"


def _rule(rule: Rule) -> Iterator[str]:
    yield f"### {rule.id}"
    yield ""
    needs = "" if rule.requires is Requires.PRESENCE else f"; needs `{rule.requires.value.removeprefix('needs ')}`"
    covers = f"; invariant{'s' * (len(rule.covers) > 1)} {', '.join(rule.covers)}" if rule.covers else ""
    yield f"{rule.says} *{rule.severity.value}*, {rule.cite}{needs}{covers}"
    yield ""
    found = examples().get(rule.id)
    if found is not None:
        yield f"> expected {found['expected']}; seen {found['seen']}"
        yield ""
