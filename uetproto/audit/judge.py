# SPDX-License-Identifier: GPL-2.0-only
"""This module calls the rules that subscribe to an event of a tracker, and counts and keeps their verdicts.

If a rule has not judged an event, its tally gives a reason:

rule not asked     the options do not promise what the rule `requires`
rule asked         the rule, or the tracker for it, says `Inconclusive`: the packets seen do not decide
rule asked         an earlier finding obscures the conversation (`Rule.obscures`), and may be the cause of this one, too
at the end         the packets may belong to two conversations (`Subject.doubt`): their findings are withdrawn
at the end         packets were missing, though none should be (`Judge.missing`): findings of absence are withdrawn
at the end         the capture cut the end of the packet (`RuleTable.lost`)
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple, Protocol

from uetproto.audit.finding import Finding, Flow
from uetproto.audit.reader.observed import ObservedPacket
from uetproto.audit.rule import Inconclusive, Requires, Rule, Severity, Violation

MOST = 10_000
"""Greatest number of findings of one rule that are kept; further findings are only counted."""

Tell = Callable[[Any, ObservedPacket], None]
"""Type of the functions that a tracker calls at an event, with the state of the conversation and the packet."""
Heard = Mapping[Enum, Callable[[Any, Any, ObservedPacket], None]]
"""Maps an event to a function that is called at the event with `Judge.listener` and the arguments of `Tell`."""
CUT = "cut by the capture"
"""Reason why a rule could not judge the end of a packet."""


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
    """This protocol describes a conversation in which packets contradict each other. The tracker makes such an object
    when it sees the contradiction."""

    @property
    def doubt(self) -> str | None:
        """Return why the packets may belong to two conversations, or None if they belong to one. It is called at the
        end of the capture."""


class ExpectedEvents(NamedTuple):
    """This record lists the events of one sort of packet that is as expected. Trackers do not report these events; such
    packets are counted instead."""

    judged: tuple[Enum, ...]
    lost: tuple[Enum, ...]
    """Events that are not judged because the capture cut the end of the packets."""


@dataclass(slots=True)
class RuleTally:
    """This class counts the events at which a rule was asked, and what the rule said."""

    rule: Rule
    asked: int = 0
    failed: int = 0
    not_judged: Counter[str] = field(default_factory=Counter)
    """Maps a reason to the number of events that were not judged for this reason."""

    def add(self, other: "RuleTally") -> None:
        """Add the counts of another tally. That tally counts the events of the same rule at another vantage point."""
        self.asked += other.asked
        self.failed += other.failed
        self.not_judged.update(other.not_judged)

    @property
    def judged(self) -> int:
        return self.asked - self.not_judged.total()

    @property
    def passed(self) -> int:
        return self.judged - self.failed


class RuleTable:
    """This class holds the rules of an audit, the events to which each rule subscribes, and the tallies of the rules
    over all vantage points.

    Everything that is the same for all vantage points is here, so that another vantage point costs little.
    """

    def __init__(
        self, rules: Iterable[Rule], *, complete: bool = False, ordered: bool = False,
        excused: Mapping[str, str] | None = None, heard: Heard | None = None, personality: str | None = None,
    ) -> None:  # fmt: skip
        """Subscribe the rules to their events. Rules of absence need the promise `complete`, rules of order the promise
        `ordered`; without it they are not asked. `excused` maps the id of a rule that a personality departs from to an
        explanation; findings of such a rule are notes. `heard` holds the functions that are called at events with the
        listener of the vantage point. `personality` is the implementation that one end is said to be."""
        promised = {
            Requires.PRESENCE: True, Requires.ABSENCE: complete, Requires.ORDER: ordered,
            Requires.REFPROV: personality == "refprov",
        }  # fmt: skip
        self._promised = {requires for requires, is_promised in promised.items() if is_promised}
        self._heard = heard or {}
        self.excused = excused or {}
        self.tallies = {rule.id: RuleTally(rule) for rule in rules}
        self.judge: Judge
        """Judge of the vantage point of the present packet."""
        self.expected: dict[int, tuple[ExpectedEvents, list[int]]] = {}
        """Number of packets that are as expected, for each `ExpectedEvents`, by its `id`."""
        self.doubtful: set[type[Enum]] = set()
        """Classes of events whose packets may belong to two conversations."""
        self.lost: Counter[Enum] = Counter()
        """Number of packets, by event, that were not judged because the capture cut their end."""
        self._judged: defaultdict[Enum, list[RuleTally]] = defaultdict(list)
        """Maps an event to the rules that are asked at it."""
        self._counted: defaultdict[Enum, list[RuleTally]] = defaultdict(list)
        """Maps an event to the rules for which it counts as judged."""
        for tally in self.tallies.values():
            self._judged[tally.rule.on].append(tally)
            self._counted[tally.rule.of or tally.rule.on].append(tally)
        self._tell: dict[type[Enum], Mapping[Any, Tell]] = {}
        self._counts: dict[Enum, list[int]] = {}
        """Number of times that each event occurred."""

    def tell(self, events: type[Enum]) -> Mapping[Any, Tell]:
        """Return a map from each event of a class to the function that trackers call at the event."""
        known = self._tell.get(events)
        if known is None:
            known = self._tell[events] = {event: self._on(event) for event in events}
        return known

    def _on(self, event: Enum) -> Tell:
        """Return the function that trackers call at `event`. Without rules and listeners for the event, the function
        only counts."""
        judged = [(tally, tally.rule.check) for tally in self._judged[event] if tally.rule.requires in self._promised]
        heard = self._heard.get(event)
        count = self._counts[event] = [0]

        def count_it(_state: Any, _seen: ObservedPacket) -> None:
            count[0] += 1

        def tell(state: Any, seen: ObservedPacket) -> None:
            count[0] += 1
            for tally, check in judged:
                verdict = check(state, seen)
                if verdict is not None:
                    self.judge.note(tally, verdict, state, seen)
            if heard is not None and (listener := self.judge.listener) is not None:
                heard(listener, state, seen)

        return tell if judged or heard is not None else count_it

    def count(self, events: ExpectedEvents, number: int) -> None:
        """Count `number` packets that are as expected and have these events."""
        known = self.expected.get(id(events))
        if known is None:
            known = self.expected[id(events)] = events, [0]
        known[1][0] += number

    def end(self) -> None:
        """Add the counts of events to the tallies. This must be called after the judges of all vantage points have
        ended."""
        asked: Counter[Enum] = Counter()
        for events, (number,) in self.expected.values():
            asked.update(dict.fromkeys(events.judged, number))
            self.lost.update(dict.fromkeys(events.lost, number))
        for event, tallies in self._counted.items():
            count = self._counts.get(event, [0])
            told, lost = count[0] + asked[event], self.lost[event]
            count[0] = 0
            for tally in tallies:
                tally.asked += told + lost
                if tally.rule.requires not in self._promised and told:
                    tally.not_judged[tally.rule.requires.value] += told
                if lost:
                    tally.not_judged[CUT] += lost
        self.expected.clear()
        self.lost.clear()
        for tally in self.tallies.values():  # a failed check counts as judged even if `of` never happened
            tally.asked = max(tally.asked, tally.failed + tally.not_judged.total())


class _Noted:
    """This class holds what a judge keeps. It is made with the first violation, as most vantage points have none."""

    __slots__ = ("contradictions", "findings", "obscured", "unseen")

    def __init__(self) -> None:
        self.findings: list[Finding] = []
        self.contradictions: list[tuple[Finding, RuleTally, Subject]] = []
        """Findings that may be withdrawn at the end."""
        self.obscured: dict[Place, None] = {}
        """Ends of conversations in which findings of absence and order may follow from an earlier finding."""
        self.unseen: dict[str, int] = {}
        """Number of findings of each rule of absence, by the id of the rule."""


class Judge:
    """This class counts the verdicts of the rules at one vantage point, and keeps their findings."""

    __slots__ = ("_noted", "listener", "missing", "rules", "subject_of")

    def __init__(self, rules: RuleTable) -> None:
        """Make the judge of one vantage point, and expect packets of this vantage point until `enter` of another judge
        is called."""
        self.rules = rules
        self.listener: Any = None
        """First argument of the functions of `Heard`. If it is None, they are not called."""
        self.subject_of: Callable[[ObservedPacket], Subject | None] | None = None
        """Function that returns the conversation of a packet with an event in `RuleTable.doubtful`, or None if the
        conversation is certain."""
        self.missing: str | None = None
        """Reason why packets are missing, though `complete` promised that none are. It is None if no packet is known to
        be missing."""
        self._noted: _Noted | None = None
        self.enter()

    def enter(self) -> None:
        """Note that the next packets are of this vantage point."""
        self.rules.judge = self

    @property
    def findings(self) -> list[Finding]:
        return [] if self._noted is None else self._noted.findings

    @property
    def in_doubt(self) -> list[Finding]:
        """Return the findings that may be withdrawn at the end."""
        return [] if self._noted is None else [finding for finding, _, _ in self._noted.contradictions]

    @property
    def is_blank(self) -> bool:
        """Return whether no violation was noted, so that a new judge would do the same as this one."""
        return self._noted is None

    @property
    def is_certain(self) -> bool:
        """Return whether no conversation is in doubt: no finding can be withdrawn because its packets may belong to two
        conversations."""
        return self._noted is None or not self._noted.contradictions

    @property
    def tallies(self) -> dict[str, RuleTally]:
        """Return the tallies over all vantage points."""
        return self.rules.tallies

    def note(self, tally: RuleTally, verdict: Violation | Inconclusive, state: Any, seen: ObservedPacket) -> None:
        """Count the verdict of a rule, and keep a violation as a finding."""
        if isinstance(verdict, Inconclusive):
            tally.not_judged[verdict.why] += 1
            return
        noted = self._noted
        if noted is None:
            noted = self._noted = _Noted()
        rule = tally.rule
        flow: Flow = state.flow()
        if rule.obscures or rule.requires is not Requires.PRESENCE:
            hosts, places = _places(flow)
            if rule.requires is not Requires.PRESENCE and any(place in noted.obscured for place in (*hosts, *places)):
                tally.not_judged[FOLLOWS] += 1
                return
            if rule.obscures and len(noted.obscured) < MOST:
                noted.obscured |= dict.fromkeys(places or hosts)
        severity = Severity.NOTE if rule.id in self.rules.excused else rule.severity
        tally.failed += 1
        if rule.requires is Requires.ABSENCE:
            noted.unseen[rule.id] = noted.unseen.get(rule.id, 0) + 1
        if tally.failed > MOST:
            return
        packets = (*verdict.others, seen.number)
        finding = Finding(rule, severity, packets, seen.time_ns, flow, verdict.expected, verdict.seen)
        noted.findings.append(finding)
        if self.subject_of is None or not verdict.others or severity is Severity.NOTE:
            return
        if type(rule.on) in self.rules.doubtful and (subject := self.subject_of(seen)) is not None:
            noted.contradictions.append((finding, tally, subject))

    def end(self) -> None:
        """Withdraw the findings that are in doubt. This must be called after the last packet."""
        noted = self._noted
        if noted is None:
            return
        doubtful = set()
        for finding, tally, subject in noted.contradictions:
            if subject.doubt is not None:
                doubtful.add(id(finding))
                tally.failed -= 1
                tally.not_judged[subject.doubt] += 1
                if finding.rule.requires is Requires.ABSENCE:
                    noted.unseen[finding.rule.id] -= 1
        if doubtful:
            noted.findings = [finding for finding in noted.findings if id(finding) not in doubtful]
        noted.contradictions.clear()
        if self.missing is not None:
            self.withdraw_absence(self.missing)

    def withdraw_absence(self, missing: str) -> None:
        """Withdraw the findings of absence, because packets are missing; `missing` is the reason."""
        noted = self._noted
        if noted is None:
            return
        for name, failed in noted.unseen.items():
            tally = self.tallies[name]
            tally.not_judged[missing] += failed
            tally.failed -= failed
        if noted.unseen:
            noted.findings = [finding for finding in noted.findings if finding.rule.requires is not Requires.ABSENCE]
            noted.unseen.clear()
