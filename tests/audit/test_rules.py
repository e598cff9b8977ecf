# SPDX-License-Identifier: GPL-2.0-only
"""The table of all rules: unique ids, sources, invariants that exist; examples; personalities."""

import re
from collections import Counter

import pytest

from tests.support.each import each
from uetproto.audit.examples import examples
from uetproto.audit.personality import PERSONALITIES, excused_by
from uetproto.audit.rule import CHOICE, Rule, Severity
from uetproto.audit.rules import BY_ID, NOT_OBSERVABLE, RULES
from uetproto.audit.rules_md import layer, rules_markdown
from uetproto.errors import LocalError
from uetproto.wire.mutate import roce as mutate_roce
from uetproto.wire.mutate import uet as mutate_uet

SOURCES = re.compile(r"UE 1\.0\.\d §\d|IBTA |RFC \d+ §\d|IEEE ")
PAGES = re.compile(r"\b[a-z]+\.md\b")
INVARIANTS = {
    "pds": range(1, 54),
    "ses": range(1, 37),
    "tss": range(1, 40),
    "roce": range(1, 60),
    "sharp": range(1, 40),
}


def test_ids_are_unique() -> None:
    assert [name for name, times in Counter(rule.id for rule in RULES).items() if times > 1] == []
    assert len(BY_ID) == len(RULES)


@each("rule", RULES)
def test_a_row(rule: Rule) -> None:
    """An error or a warning has a source, a choice of ours is a note; nobody is referred to pages that he has not."""
    assert re.fullmatch(r"[A-Z]+(-[A-Z0-9]+)+", rule.id)
    assert layer(rule)
    assert re.fullmatch(r"[^\n]+\.", rule.says), "one sentence"
    assert not PAGES.search(rule.says + rule.cite)
    if rule.severity is not Severity.NOTE:
        assert CHOICE not in rule.cite
        assert SOURCES.match(rule.cite)
    assert rule.cite == CHOICE or SOURCES.match(rule.cite) or rule.severity is Severity.NOTE
    for invariant in rule.covers:
        page, number = invariant.split(" ")
        assert int(number) in INVARIANTS[page]


def test_every_invariant_of_packet_delivery_and_semantics_is_judged_or_excused() -> None:
    """Of RUDI, UUD and messages, too, which other trackers follow."""
    spoken_of = {one for rule in RULES for one in rule.covers} | {one for one, _ in NOT_OBSERVABLE}
    wanted = {f"{page} {number}" for page in ("pds", "ses") for number in INVARIANTS[page]}
    assert sorted(wanted - spoken_of) == []


def test_what_no_capture_shows_says_why_once() -> None:
    names = [invariant for invariant, _ in NOT_OBSERVABLE]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("module", [mutate_uet, mutate_roce], ids=lambda module: module.__name__.split(".")[-1])
def test_every_mutation_names_a_rule(module: object) -> None:
    tables = {**module.CHANGES, **module.CHANGES_OF_HISTORY}  # type: ignore[attr-defined]
    assert {rule for _, rule in tables.values() if rule} - BY_ID.keys() == set()


def test_every_rule_has_an_example() -> None:
    """`python -m tests.audit.collect_examples` writes them anew."""
    assert BY_ID.keys() - examples().keys() == set()
    assert examples().keys() - BY_ID.keys() == set()
    for name, found in examples().items():
        assert found["cite"] == BY_ID[name].cite
        assert found["text"].startswith(BY_ID[name].says)
        assert found["expected"]
        assert found["seen"]


def test_the_document_has_every_rule_once() -> None:
    heads = re.findall(r"^### (\S+)$", rules_markdown(), re.MULTILINE)
    assert sorted(heads) == sorted(BY_ID)


@pytest.mark.parametrize("name", PERSONALITIES)
def test_personalities_excuse_rules_that_exist(name: str) -> None:
    assert excused_by(name).keys() - BY_ID.keys() == set()


def test_an_unknown_personality() -> None:
    assert excused_by(None) == {}
    with pytest.raises(LocalError, match=r"personality nobody: is not known; legal: refprov"):
        excused_by("nobody")
