"""This module asks the rules that subscribe to an event of a tracker, and counts and keeps their answers.

Where a rule has not judged an event, its tally says why:

    it is not asked    the options do not promise what it `requires`
    when it is asked   the rule, or the tracker for it, says `Inconclusive`: the packets seen do not decide
    when it is asked   an earlier finding obscures the conversation (`Rule.obscures`): what is missing follows from it
    at the end         the conversation may have been another one (`Subject.doubt`): its findings are withdrawn
    at the end         packets were missing, though none should be (`Judge.missing`): findings of absence are withdrawn
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
"""Greatest number of findings of one rule that are kept; further findings are only counted."""

Tell = Callable[[Any, ObservedPacket], None]
"""Type of the functions that a tracker calls at an event, with the state of the conversation and the packet."""


Place = tuple[object, ...]
"""Key of an end of a conversation: its address, the address of its peer, and, for a PDC, its PDCID."""
FOLLOWS = "it may follow from another finding"
"""Reason why a rule of absence or of order is not judged after a finding that obscures the conversation."""


def _places(flow: Flow) -> tuple[tuple[Place, ...], tuple[Place, ...]]:
    """Return the two hosts of a finding, in either order, and the ends of its PDC that have a PDCID."""
    src, dst = flow.get("src"), flow.get("dst")
    ends = (src, dst, flow.get("spdcid")), (dst, src, flow.get("dpdcid"))
    return ((src, dst), (dst, src)), tuple(end for end in ends if end[-1])


class Subject(Protocol):
    """A subject is a conversation in which packets contradict each other; the tracker makes it when it sees the
    contradiction."""

    @property
    def doubt(self) -> str | None:
        """Return why the packets may belong to two conversations, None if they belong to one; called at the end."""


@dataclass(slots=True)
class RuleTally:
    """This class counts how often a rule was asked, and with what result."""

    rule: Rule
    asked: int = 0
    failed: int = 0
    not_judged: Counter[str] = field(default_factory=Counter)
    """Numbers of events that were not judged, by reason."""

    def add(self, other: "RuleTally") -> None:
        """Add the counts of the same rule at another vantage point."""
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
    """This class asks the rules at one vantage point."""

    def __init__(
        self, rules: Iterable[Rule], *, complete: bool = False, ordered: bool = False,
        excused: Mapping[str, str] | None = None,
    ) -> None:  # fmt: skip
        """Subscribe the rules. `excused`: rules that a personality departs from, and how; their findings are notes."""
        promised = {Requires.PRESENCE: True, Requires.ABSENCE: complete, Requires.ORDER: ordered}
        self._promised = {requires for requires, is_promised in promised.items() if is_promised}
        self._excused = excused or {}
        self.tallies = {rule.id: RuleTally(rule) for rule in rules}
        self._judged: defaultdict[Enum, list[RuleTally]] = defaultdict(list)
        """Maps an event to the rules that are asked at it."""
        self._counted: defaultdict[Enum, list[RuleTally]] = defaultdict(list)
        """Maps an event to the rules for which it counts as judged."""
        for tally in self.tallies.values():
            self._judged[tally.rule.on].append(tally)
            self._counted[tally.rule.of or tally.rule.on].append(tally)
        self.findings: list[Finding] = []
        self.subjects: dict[type[Enum], Callable[[ObservedPacket], Subject | None]] = {}
        """Maps the event class of a tracker to a function that returns the conversation of a packet; None: the
        conversation is certain."""
        self.missing: str | None = None
        """Reason why packets are missing, though `complete` promised that the capture has all; None: no packet is known
        to be missing."""
        self._contradictions: list[tuple[Finding, RuleTally, Subject]] = []
        """Findings that may be withdrawn at the end."""
        self._obscured: set[Place] = set()
        """Ends of conversations in which findings of absence and order may follow from an earlier finding."""
        self._listeners: dict[Enum, list[Tell]] = {}
        self._events: list[tuple[list[int], list[RuleTally]]] = []
        """Number of times that each event occurred, with the rules that each occurrence counts as judged."""

    def listen(self, event: Enum, listener: Tell) -> None:
        """Call `listener` at every `event`; to be called before any tracker is made."""
        self._listeners.setdefault(event, []).append(listener)

    def on(self, event: Enum) -> Tell:
        """Return the function that a tracker calls at `event`; without rules and listeners it only counts."""
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
        flow: Flow = state.flow()
        if rule.obscures or rule.requires is not Requires.PRESENCE:
            hosts, places = _places(flow)
            if rule.requires is not Requires.PRESENCE and not self._obscured.isdisjoint((*hosts, *places)):
                tally.not_judged[FOLLOWS] += 1
                return
            if rule.obscures and len(self._obscured) < MOST:
                self._obscured.update(places or hosts)
        severity = Severity.NOTE if rule.id in self._excused else rule.severity
        tally.failed += 1
        if tally.failed > MOST:
            return
        packets = (*verdict.others, seen.number)
        finding = Finding(rule, severity, packets, seen.time_ns, flow, verdict.expected, verdict.seen)
        self.findings.append(finding)
        find = self.subjects.get(type(rule.on)) if verdict.others and severity is not Severity.NOTE else None
        if find is not None and (subject := find(seen)) is not None:
            self._contradictions.append((finding, tally, subject))

    def end(self) -> None:
        """Add the counts of events to the tallies, and withdraw findings that are in doubt."""
        for count, tallies in self._events:
            for tally in tallies:
                tally.asked += count[0]
                if tally.rule.requires not in self._promised and count[0]:
                    tally.not_judged[tally.rule.requires.value] += count[0]
            count[0] = 0
        self._withdraw_doubtful()
        if self.missing is not None:
            self._withdraw_absence(self.missing)
        for tally in self.tallies.values():  # a failed check counts as judged even if `of` never happened
            tally.asked = max(tally.asked, tally.failed + tally.not_judged.total())

    def _withdraw_absence(self, missing: str) -> None:
        for tally in self.tallies.values():
            if tally.rule.requires is Requires.ABSENCE and tally.failed:
                tally.not_judged[missing] += tally.failed
                tally.failed = 0
        self.findings = [finding for finding in self.findings if finding.rule.requires is not Requires.ABSENCE]

    def _withdraw_doubtful(self) -> None:
        doubtful = set()
        for finding, tally, subject in self._contradictions:
            if subject.doubt is not None:
                doubtful.add(id(finding))
                tally.failed -= 1
                tally.not_judged[subject.doubt] += 1
        self.findings = [finding for finding in self.findings if id(finding) not in doubtful]
        self._contradictions.clear()
