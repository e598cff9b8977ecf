"""Every kind of damage is found at the right packet by the right rule, and nothing else that only follows from it."""

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from itertools import groupby

import pytest

from tests.audit.kinds import pds_kinds, ses_kinds
from tests.audit.kinds.kind import CERTAIN, Item, Kind, changed, judged, keys_of, promises, told, trace_of
from uetproto.audit.finding import Finding
from uetproto.audit.reader.options import Options
from uetproto.audit.rules import BY_ID

KINDS: Sequence[Kind] = sorted([*pds_kinds.KINDS, *ses_kinds.KINDS], key=lambda kind: kind.capture)
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
        for options in (promises(kind), CERTAIN):
            findings = judged(trace, options_of(kind, options))
            found = {(finding.rule.id, finding.packet) for finding in findings if finding.rule.id not in ignored}
            if not wanted <= found <= wanted | {(rule, packet) for rule in kind.also}:
                wrong.append((kind.says, kind.rule, packet, told(findings)))
    assert wrong == []


@pytest.mark.parametrize(("capture", "keys"), CAPTURES)
def test_nothing_worse_than_a_note_before(capture: str, keys: bool) -> None:
    assert [finding for finding in before(capture, keys) if finding.severity.value != "note"] == []


@pytest.mark.parametrize("capture", sorted({capture for capture, _ in CAPTURES}))
def test_encoding_changes_nothing(capture: str) -> None:
    """What a change makes right again is what was there before."""
    for item in trace_of(capture):
        again = changed(item)
        assert isinstance(again, Item)
        assert again.frame == item.frame


def test_every_kind_names_a_rule() -> None:
    assert {rule for kind in KINDS for rule in (kind.rule, *kind.also)} <= BY_ID.keys()
    assert len({kind.says for kind in KINDS}) == len(KINDS)
