# SPDX-License-Identifier: GPL-2.0-only
"""This module has the rows `[[faults.target]]` of a scenario, which say which valid requests a target refuses (ses.md
§10 step 18).
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from uetproto.engine.ses.headers import SesRequest
from uetproto.wire.headers.uet_ses import ReturnCode


@dataclass(frozen=True, slots=True)
class TargetFault:
    """A target fault is a rule that says which requests a target refuses, and with which return code."""

    node: str
    fits: Mapping[str, int]
    """Fields of `SesRequest`, each with the value that a packet must have to be refused."""
    packets: frozenset[int] | None
    """Numbers of the packets to refuse, counted from 0 among the packets that fit. If it is None, all of them are
    refused."""
    answer: ReturnCode


def refusals(rules: Iterable[TargetFault]) -> Callable[[SesRequest], ReturnCode | None] | None:
    """Return a function that is called before a request is executed. It returns the return code of the first rule that
    refuses the request, or None if no rule does.

    If there are no rules, return None in place of the function.
    """
    rules = tuple(rules)
    seen = [0] * len(rules)

    def fault(request: SesRequest) -> ReturnCode | None:
        answer = None
        for number, rule in enumerate(rules):
            if all(getattr(request, name) == value for name, value in rule.fits.items()):
                hit = rule.packets is None or seen[number] in rule.packets
                seen[number] += 1
                if hit and answer is None:
                    answer = rule.answer
        return answer

    return fault if rules else None
