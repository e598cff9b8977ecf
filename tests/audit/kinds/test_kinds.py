# SPDX-License-Identifier: GPL-2.0-only
"""Every kind of damage is found at the right packet by the right rule, and nothing else that only follows from it."""

import re
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from itertools import groupby

import pytest

from tests.audit.kinds import other_kinds, pds_kinds, ses_kinds
from tests.audit.kinds.kind import (
    CERTAIN,
    Item,
    Kind,
    changed,
    insert,
    judged,
    keys_of,
    layer,
    promises,
    told,
    trace_of,
)
from tests.support import paths
from tests.support.each import each
from uetproto.audit.finding import Finding
from uetproto.audit.reader.options import Options
from uetproto.audit.rules import BY_ID, NOT_OBSERVABLE

KINDS: Sequence[Kind] = sorted([*pds_kinds.KINDS, *ses_kinds.KINDS, *other_kinds.KINDS], key=lambda kind: kind.capture)
CAPTURES = sorted({(kind.capture, kind.keys) for kind in KINDS})


def options_of(kind: Kind, options: Options) -> Options:
    return replace(options, keys=keys_of(kind.capture) if kind.keys else None)


@cache
def before(capture: str, keys: bool) -> tuple[Finding, ...]:
    """What is found of a capture that nobody has changed, in which all is promised."""
    return tuple(judged(trace_of(capture), replace(CERTAIN, keys=keys_of(capture) if keys else None)))


@pytest.mark.parametrize(
    ("capture", "kinds"), [(name, list(group)) for name, group in groupby(KINDS, lambda kind: kind.capture)]
)
def test_found(capture: str, kinds: list[Kind]) -> None:
    wrong = []
    for kind in kinds:
        trace = list(trace_of(capture))
        packet = kind.change(trace, kind.at(trace)) + kind.found
        ignored = {finding.rule.id for finding in before(capture, kind.keys)} - {kind.rule}
        wanted = {(kind.rule, packet)}
        for options in [promises(kind)] if promises(kind) == CERTAIN else [promises(kind), CERTAIN]:
            findings = judged(trace, options_of(kind, options))
            found = {(finding.rule.id, finding.packet) for finding in findings if finding.rule.id not in ignored}
            if not wanted <= found <= wanted | {(rule, packet) for rule in kind.also}:
                wrong.append((kind.says, kind.rule, packet, told(findings)))
    assert wrong == []


@each("capture, keys", CAPTURES)
def test_nothing_worse_than_a_note_before(capture: str, keys: bool) -> None:
    assert [finding for finding in before(capture, keys) if finding.severity.value != "note"] == []


@each("capture", sorted({capture for capture, _ in CAPTURES}))
def test_encoding_changes_nothing(capture: str) -> None:
    """What a change makes right again is what was there before."""
    for item in trace_of(capture):
        again = changed(item)
        assert isinstance(again, Item)
        assert again.frame == item.frame


def test_every_kind_names_a_rule() -> None:
    assert {rule for kind in KINDS for rule in (kind.rule, *kind.also)} <= BY_ID.keys()
    assert len({kind.says for kind in KINDS}) == len(KINDS)


def test_a_default_response_behind_a_clear_is_right() -> None:
    """The third request, which takes the fast path, has cleared what the second one was answered."""
    trace = list(trace_of("ses-compare-swap"))
    ack = layer("pds.ack", next_hdr=4, cack_psn=73729, spdcid=1, dpdcid=1)
    insert(ack, layer("ses.response", return_code=1), back=True)(trace, 4)
    assert judged(trace, CERTAIN) == []
    del trace[4]
    assert "SES-RESPONSE-FORGOTTEN" in {finding.rule.id for finding in judged(trace, CERTAIN)}


# Whether every invariant and every section has a kind -----------------------------------------------------------------

NOT_SHOWN: dict[str, str] = {
    "tss.md §1": "the place of a security header is that of a header of TSS: without it nothing is sealed",
    "tss.md §3": "the state of a domain is inside an end",
    "tss.md §5": "keys do not go over the wire; a wrong one shows as an ICV (tss.md §7)",
    "tss.md §13": "test vectors", "tss.md §14": "the properties of the sections before", "tss.md §15": "open points",
    "roce.md §0": "names", "roce.md §1": "another encapsulation is another protocol",
    "roce.md §5": "golden frames",
    "roce.md §10": "completions are inside an end",
    "roce.md §14": "parameters", "roce.md §15": "the invariants of the sections before",
    "roce.md §16": "other software", "roce.md §17": "sources",
    "tss.md §7.2": "the crypto offset is a setting of both ends; what lies before it is authenticated all the same",
    "sharp.md §1.1": "products and their limits", "sharp.md §1.2": "the model, of which sharp.md §3 has the messages",
    "sharp.md §1.3": "the flow, of which sharp.md §3 has the messages",
    "sharp.md §1.4": "the transport below (roce.md §9)",
    "sharp.md §1.7": "management, which no rule follows", "sharp.md §1.8": "traps and counters of management",
    "sharp.md §1.9": "values of logs", "sharp.md §1.10": "other formats",
    "sharp.md §2.9": "management, which no rule follows",
    "sharp.md §4.1": "facts about products", "sharp.md §4.2": "trees are a manager's choice",
    "sharp.md §5": "the configuration of hosts and of a manager",
    "sharp.md §6": "the invariants of the sections before", "sharp.md §7": "a worked example",
    "sharp.md §8": "what is public", "sharp.md §9": "sources", "sharp.md §10": "lines of a deck",
}  # fmt: skip
"""Sections that no damage to a capture can contradict, and why."""


def _text(page: str) -> str:
    return (paths.ROOT / "docs/protocol" / page).read_text(encoding="utf-8")


def _whole(section: str) -> str:
    return re.sub(r"(§\d+).*", r"\1", section)


@pytest.mark.parametrize("page", ["tss.md", "roce.md", "sharp.md"])
def test_every_section_has_a_kind_or_a_reason(page: str) -> None:
    """The reason for a section holds for its parts; a kind of a part is one of the section."""
    sections = {f"{page} §{number}" for number in re.findall(r"^##+ (\d+(?:\.\d+)?)\.? ", _text(page), re.MULTILINE)}
    about = {kind.about for kind in KINDS if kind.about.startswith(page)}
    assert about <= sections
    reasons = {section for section in NOT_SHOWN if section.startswith(page)}
    shown = about | {_whole(section) for section in about}
    assert {section for section in sections - shown if section in reasons or _whole(section) not in reasons} == reasons


@pytest.mark.parametrize(("page", "section"), [("pds", 18), ("ses", 15)])
def test_every_invariant_has_a_kind_or_a_reason(page: str, section: int) -> None:
    """RULES.md gives the reasons."""
    text = re.split(r"^## ", _text(f"{page}.md").partition(f"\n## {section}.")[2], flags=re.MULTILINE)[0]
    numbers = [int(number) for number in re.findall(r"^(\d+)\. ", text, re.MULTILINE)]
    assert numbers == list(range(1, len(numbers) + 1))
    assert len(numbers) > 35
    shown = {kind.about for kind in KINDS if kind.about.startswith(f"{page} ")}
    hidden = {invariant for invariant, _ in NOT_OBSERVABLE}
    assert {f"{page} {number}" for number in numbers} <= shown | hidden


def test_kinds_are_many() -> None:
    assert len(KINDS) >= 300
