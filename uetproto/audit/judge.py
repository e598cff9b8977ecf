"""Events of the trackers come in, rules that subscribe to them are asked, and what they say is counted and kept."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from uetproto.audit.finding import Finding, Flow
from uetproto.audit.rule import Needs, Rests, Rule, Severity, Wrong
from uetproto.audit.seen import Seen

MOST = 10_000
"""Findings kept of one rule; the others are counted."""

Tell = Callable[[Any, Seen], None]
"""What a tracker calls when something has happened: its state of what it follows, and the packet."""


@dataclass(slots=True)
class Tally:
    """How often a rule was asked, and with what success."""

    rule: Rule
    asked: int = 0
    failed: int = 0
    rested: Counter[str] = field(default_factory=Counter)
    """Not judged, by why."""

    @property
    def judged(self) -> int:
        return self.asked - self.rested.total()

    @property
    def passed(self) -> int:
        return self.judged - self.failed


class Judge:
    """The rules over one vantage point."""

    def __init__(
        self,
        rules: Iterable[Rule],
        *,
        complete: bool = False,
        ordered: bool = False,
        excused: Mapping[str, str] | None = None,
    ) -> None:
        """`excused`: rules that a personality departs from, and why; what they find is a note."""
        promised = {Needs.PRESENCE: True, Needs.ABSENCE: complete, Needs.ORDER: ordered}
        self._promised = {needs for needs, is_promised in promised.items() if is_promised}
        self._excused = excused or {}
        self.tallies = {rule.id: Tally(rule) for rule in rules}
        self._judged: defaultdict[Enum, list[Tally]] = defaultdict(list)
        """By the event at which rules are asked."""
        self._counted: defaultdict[Enum, list[Tally]] = defaultdict(list)
        """By the event that counts as judged."""
        for tally in self.tallies.values():
            self._judged[tally.rule.on].append(tally)
            self._counted[tally.rule.of or tally.rule.on].append(tally)
        self.findings: list[Finding] = []
        self._listeners: dict[Enum, list[Tell]] = {}
        self._events: list[tuple[list[int], list[Tally]]] = []

    def listen(self, event: Enum, listener: Tell) -> None:
        """Have `listener` called at every `event`, too; before any tracker is made."""
        self._listeners.setdefault(event, []).append(listener)

    def on(self, event: Enum) -> Tell:
        """What a tracker calls at `event`."""
        judged = [(tally, tally.rule.check) for tally in self._judged[event] if tally.rule.needs in self._promised]
        listeners = tuple(self._listeners.get(event, ()))
        count = [0]
        self._events.append((count, self._counted[event]))

        def count_it(_state: Any, _seen: Seen) -> None:
            count[0] += 1

        def tell(state: Any, seen: Seen) -> None:
            count[0] += 1
            for tally, check in judged:
                verdict = check(state, seen)
                if verdict is not None:
                    self._note(tally, verdict, state, seen)
            for listener in listeners:
                listener(state, seen)

        return tell if judged or listeners else count_it

    def _note(self, tally: Tally, verdict: Wrong | Rests, state: Any, seen: Seen) -> None:
        if isinstance(verdict, Rests):
            tally.rested[verdict.why] += 1
            return
        tally.failed += 1
        if tally.failed > MOST:
            return
        rule = tally.rule
        severity = Severity.NOTE if rule.id in self._excused else rule.severity
        flow: Flow = state.flow()
        packets = (*verdict.others, seen.number)
        self.findings.append(Finding(rule, severity, packets, seen.time_ns, flow, verdict.expected, verdict.seen))

    def end(self) -> None:
        """Events are counted once for all rules that judge them: hand that on to the tallies."""
        for count, tallies in self._events:
            for tally in tallies:
                tally.asked += count[0]
                if tally.rule.needs not in self._promised and count[0]:
                    tally.rested[tally.rule.needs.value] += count[0]
            count[0] = 0
        for tally in self.tallies.values():  # what failed was judged, also where nothing happened that counts
            tally.asked = max(tally.asked, tally.failed + tally.rested.total())
