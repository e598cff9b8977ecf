"""Events of the trackers come in, rules that subscribe to them are asked, and what they say is counted and kept.

A rule that has not judged an event *rested*, and its tally says why:

    it is not asked    what it `needs` was not promised
    when it is asked   it says `Inconclusive`, or the tracker does in its place: what was seen does not tell
    at the end         the conversation may have been another one (`Subject.doubt`): what was found is taken back
    at the end         packets were missing, though none should be (`Judge.missing`): what was found of absence as well
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Protocol

from uetproto.audit.finding import Finding, Flow
from uetproto.audit.reader.observed import ObservedPacket
from uetproto.audit.rule import Inconclusive, Requires, Rule, Severity, Violation

MOST = 10_000
"""Findings kept of one rule; the others are counted."""

Tell = Callable[[Any, ObservedPacket], None]
"""What a tracker calls when something has happened: its state of what it follows, and the packet."""


class Subject(Protocol):
    """The conversation in which packets contradict each other, as far as is known then."""

    @property
    def doubt(self) -> str | None:
        """Asked at the end: why they may be of two conversations. None: they are of one."""


@dataclass(slots=True)
class RuleTally:
    """How often a rule was asked, and with what success."""

    rule: Rule
    asked: int = 0
    failed: int = 0
    not_judged: Counter[str] = field(default_factory=Counter)
    """Not judged, by why."""

    def add(self, other: "RuleTally") -> None:
        """What the same rule was asked elsewhere."""
        self.asked += other.asked
        self.failed += other.failed
        self.not_judged.update(other.not_judged)

    @property
    def judged(self) -> int:
        return self.asked - self.not_judged.total()

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
        promised = {Requires.PRESENCE: True, Requires.ABSENCE: complete, Requires.ORDER: ordered}
        self._promised = {needs for needs, is_promised in promised.items() if is_promised}
        self._excused = excused or {}
        self.tallies = {rule.id: RuleTally(rule) for rule in rules}
        self._judged: defaultdict[Enum, list[RuleTally]] = defaultdict(list)
        """By the event at which rules are asked."""
        self._counted: defaultdict[Enum, list[RuleTally]] = defaultdict(list)
        """By the event that counts as judged."""
        for tally in self.tallies.values():
            self._judged[tally.rule.on].append(tally)
            self._counted[tally.rule.of or tally.rule.on].append(tally)
        self.findings: list[Finding] = []
        self.subjects: dict[type[Enum], Callable[[ObservedPacket], Subject | None]] = {}
        """By the events of a tracker: the conversation of a packet; None: no doubt that earlier ones are of it, too."""
        self.missing: str | None = None
        """Why there are packets that nobody saw, though `complete` promised that there are none."""
        self._contradictions: list[tuple[Finding, RuleTally, Subject]] = []
        """Findings that may have to be taken back."""
        self._listeners: dict[Enum, list[Tell]] = {}
        self._events: list[tuple[list[int], list[RuleTally]]] = []
        """How often each event came, and whose rules it counts for."""

    def listen(self, event: Enum, listener: Tell) -> None:
        """Have `listener` called at every `event`, too; before any tracker is made."""
        self._listeners.setdefault(event, []).append(listener)

    def on(self, event: Enum) -> Tell:
        """What a tracker calls at `event`; no more than a count where nobody wants to know."""
        judged = [(tally, tally.rule.check) for tally in self._judged[event] if tally.rule.requires in self._promised]
        listeners = tuple(self._listeners.get(event, ()))
        count = [0]
        self._events.append((count, self._counted[event]))

        def count_it(_state: Any, _seen: ObservedPacket) -> None:
            count[0] += 1

        def tell(state: Any, seen: ObservedPacket) -> None:
            count[0] += 1
            for tally, check in judged:
                verdict = check(state, seen)
                if verdict is not None:
                    self._note(tally, verdict, state, seen)
            for listener in listeners:
                listener(state, seen)

        return tell if judged or listeners else count_it

    def _note(self, tally: RuleTally, verdict: Violation | Inconclusive, state: Any, seen: ObservedPacket) -> None:
        if isinstance(verdict, Inconclusive):
            tally.not_judged[verdict.why] += 1
            return
        rule = tally.rule
        severity = Severity.NOTE if rule.id in self._excused else rule.severity
        tally.failed += 1
        if tally.failed > MOST:
            return
        flow: Flow = state.flow()
        packets = (*verdict.others, seen.number)
        finding = Finding(rule, severity, packets, seen.time_ns, flow, verdict.expected, verdict.seen)
        self.findings.append(finding)
        find = self.subjects.get(type(rule.on)) if verdict.others and severity is not Severity.NOTE else None
        if find is not None and (subject := find(seen)) is not None:
            self._contradictions.append((finding, tally, subject))

    def end(self) -> None:
        """Events are counted once for all rules that judge them: hand that on to the tallies."""
        for count, tallies in self._events:
            for tally in tallies:
                tally.asked += count[0]
                if tally.rule.requires not in self._promised and count[0]:
                    tally.not_judged[tally.rule.requires.value] += count[0]
            count[0] = 0
        self._take_back()
        if self.missing is not None:
            self._rest_on(self.missing)
        for tally in self.tallies.values():  # what failed was judged, also where nothing happened that counts
            tally.asked = max(tally.asked, tally.failed + tally.not_judged.total())

    def _rest_on(self, missing: str) -> None:
        """The capture does not have every packet: what was found of absence was not judged."""
        for tally in self.tallies.values():
            if tally.rule.requires is Requires.ABSENCE and tally.failed:
                tally.not_judged[missing] += tally.failed
                tally.failed = 0
        self.findings = [finding for finding in self.findings if finding.rule.requires is not Requires.ABSENCE]

    def _take_back(self) -> None:
        """What was found where it is doubtful whose packets they are was not judged."""
        doubtful = set()
        for finding, tally, subject in self._contradictions:
            if subject.doubt is not None:
                doubtful.add(id(finding))
                tally.failed -= 1
                tally.not_judged[subject.doubt] += 1
        self.findings = [finding for finding in self.findings if id(finding) not in doubtful]
        self._contradictions.clear()
