"""This module has rows `[[faults.target]]`: valid requests that a target refuses (ses.md §10 step 18)."""

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
    """Numbers of the packets that fit, counted from 0; None: all."""
    answer: ReturnCode


def refusals(rules: Iterable[TargetFault]) -> Callable[[SesRequest], ReturnCode | None] | None:
    """Return a function that returns, before a request is executed, the code of the first rule that fits it, or None.

    Return None in place of the function if there are no rules.
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
