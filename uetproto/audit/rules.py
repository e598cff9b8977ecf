"""All rules of an audit: those of every tracker, and what no capture can show."""

from uetproto.audit import (
    rules_pds,
    rules_roce,
    rules_roce_wire,
    rules_rudi,
    rules_ses,
    rules_sharp,
    rules_tss,
    rules_wire,
)
from uetproto.audit.rule import Rule

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
"""In the order of the layers."""

NOT_OBSERVABLE: tuple[tuple[str, str], ...] = (
    *rules_pds.NOT_OBSERVABLE,
    *rules_ses.NOT_OBSERVABLE,
    *rules_tss.NOT_OBSERVABLE,
    *rules_roce.NOT_OBSERVABLE,
)
"""Numbered invariants that no packet can contradict, and why."""

BY_ID = {rule.id: rule for rule in RULES}
