# SPDX-License-Identifier: GPL-2.0-only
"""This module collects all rules of an audit, and the invariants that no capture can show."""

from collections.abc import Sequence
from fnmatch import fnmatchcase

from uetproto.audit.pds import rules as rules_pds
from uetproto.audit.pds import rules_rudi
from uetproto.audit.roce import rules as rules_roce
from uetproto.audit.roce import rules_wire as rules_roce_wire
from uetproto.audit.rule import Rule
from uetproto.audit.ses import rules as rules_ses
from uetproto.audit.sharp import rules as rules_sharp
from uetproto.audit.tss import rules as rules_tss
from uetproto.audit.wire import rules as rules_wire
from uetproto.errors import LocalError, argument, listed, similar

RULES: tuple[Rule, ...] = (
    *rules_wire.RULES,
    *rules_pds.RULES,
    *rules_ses.RULES,
    *rules_rudi.RULES,
    *rules_tss.RULES,
    *rules_roce_wire.RULES,
    *rules_roce.RULES,
    *rules_sharp.RULES,
)
"""All rules, in the order of the protocol layers."""

NOT_OBSERVABLE: tuple[tuple[str, str], ...] = (
    *rules_pds.NOT_OBSERVABLE,
    *rules_ses.NOT_OBSERVABLE,
    *rules_roce.NOT_OBSERVABLE,
)
"""Invariants that no packet can contradict, each with the reason."""

BY_ID = {rule.id: rule for rule in RULES}


def chosen_rules(globs: Sequence[str]) -> tuple[Rule, ...]:
    """Return the rules whose ids match one of `globs`, without those that match a glob with a leading "-".

    If no glob adds rules, all rules are chosen first. Raises `LocalError` for a glob that no rule matches, and if no
    rule is left.
    """
    wanted = set(BY_ID) if all(glob.startswith("-") for glob in globs) else set()
    for glob in globs:
        matching = {name for name in BY_ID if fnmatchcase(name, glob.removeprefix("-").upper())}
        if not matching:
            raise LocalError(argument("rules", glob), f"matches none{known_rules(glob)}", id="unknown-rule")
        wanted = wanted - matching if glob.startswith("-") else wanted | matching
    if not wanted:
        raise LocalError(argument("rules", ",".join(globs)), f"leaves none{known_rules('')}", id="unknown-rule")
    return tuple(rule for rule in RULES if rule.id in wanted)


def known_rules(name: str) -> str:
    """Return the text that an error message puts behind an unknown name: rules with a similar id, and how to list all
    rules."""
    return f"{similar(name.strip('*?-'), BY_ID)}; there are {listed(BY_ID, 'uetproto audit --list-rules')}"
