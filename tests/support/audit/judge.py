# SPDX-License-Identifier: GPL-2.0-only
"""This module has a judge of a capture with one vantage point."""

from collections.abc import Iterable
from typing import Any

from uetproto.audit.judge import Heard, Judge, RuleTable
from uetproto.audit.rule import Rule


class OnlyJudge(Judge):
    """This judge is the only one of its rules, so that their tallies are complete when it ends."""

    def __init__(
        self, rules: Iterable[Rule], *, complete: bool = False, ordered: bool = False, heard: Heard | None = None,
        listener: Any = None, personality: str | None = None,
    ) -> None:  # fmt: skip
        super().__init__(RuleTable(rules, complete=complete, ordered=ordered, heard=heard, personality=personality))
        self.listener = listener

    def end(self) -> None:
        super().end()
        self.rules.end()
