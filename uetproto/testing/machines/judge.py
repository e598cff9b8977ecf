# SPDX-License-Identifier: GPL-2.0-only
"""The judge is an audit that runs while the frames are exchanged, at the port of the implementation that is tested.

The judge sees every frame that the implementation receives or sends, in order. The audit therefore also applies the
rules that need a complete capture, in order. A finding counts if the implementation sent its packet.
"""

from collections import Counter
from dataclasses import dataclass, field, replace

from uetproto.audit.auditor import Auditor, rule_table
from uetproto.audit.finding import Finding
from uetproto.audit.judge import Judge
from uetproto.audit.reader.options import Options
from uetproto.audit.reader.records import Readers, Reading
from uetproto.audit.rule import Severity
from uetproto.audit.rules import chosen_rules
from uetproto.testing.adapters.adapter import PortFrame
from uetproto.wire.capture.base import Record
from uetproto.wire.capture.pcap import ETHERNET

NANOSECOND = 1000
"""Picoseconds in a nanosecond."""


@dataclass(slots=True)
class Verdicts:
    """Verdicts are the counts of what was judged and what was not, over all runs of a machine."""

    judged: Counter[str] = field(default_factory=Counter)
    """Number of checks of each rule or invariant."""
    not_judged: dict[str, Counter[str]] = field(default_factory=dict)
    """For each rule or invariant by name: how often it could not be judged, by reason."""

    @property
    def never_judged(self) -> dict[str, str]:
        """Return the rules and invariants that were never judged, and why not."""
        return {
            name: reasons.most_common(1)[0][0]
            for name, reasons in sorted(self.not_judged.items())
            if not self.judged[name]
        }

    def __str__(self) -> str:
        """Return what was never judged; rules and invariants with one reason stand together."""
        by_reason: dict[str, list[str]] = {}
        for name, why in self.never_judged.items():
            by_reason.setdefault(why, []).append(name)
        return "; ".join(f"{', '.join(names)} ({why})" for why, names in by_reason.items())

    def skip(self, name: str, why: str, number: int = 1) -> None:
        """Count `number` checks of a rule or invariant that were not possible."""
        self.not_judged.setdefault(name, Counter())[why] += number

    def add(self, other: "Verdicts") -> None:
        """Add the counts of `other`."""
        self.judged += other.judged
        for name, reasons in other.not_judged.items():
            self.not_judged[name] = self.not_judged.get(name, Counter()) + reasons


class LiveJudge:
    """A live judge audits frames one by one."""

    def __init__(self, options: Options, readers: Readers) -> None:
        """Make the judge of one run. `readers` may be shared by runs with the same options."""
        self._judge = Judge(rule_table(options, chosen_rules(options.rules)))
        self._auditor = Auditor(options, self._judge)
        self._reading = Reading(ETHERNET, options, self._auditor.see, readers=readers)
        self.frames: list[PortFrame] = []
        self.notes: tuple[str, ...] = ()
        """Beginnings of the names of rules whose notes count as findings."""
        self._known = 0
        """Number of findings that were looked at."""

    def take(self, frame: bytes, now: int, sent: bool, whole: bytes | None = None) -> None:
        """Audit a frame that the implementation sends or receives at `now`, in picoseconds; `whole` is the frame as it
        left if it was damaged on the way."""
        number = len(self.frames)
        self.frames.append(PortFrame(now, frame, sent, whole))
        record = Record(number, now // NANOSECOND, frame, len(frame), 0, ETHERNET, 0, None)
        self._reading.take(record)

    @property
    def others(self) -> int:
        """Return the number of frames that belong to no protocol that is audited."""
        return self._reading.others

    def finding(self) -> Finding | None:
        """Return a new finding about a frame that the implementation sent, or None if there is no new finding."""
        doubtful = {id(found) for found in self._judge.in_doubt}
        findings = self._judge.findings
        while self._known < len(findings):
            found = findings[self._known]
            self._known += 1
            if self._counts(found) and id(found) not in doubtful:
                return found
        return None

    def _counts(self, found: Finding) -> bool:
        counts = found.severity is not Severity.NOTE or found.rule.id.startswith(self.notes)
        return counts and self.frames[found.packet].sent

    def end(self, verdicts: Verdicts) -> Finding | None:
        """Finish the audit: no frame follows. Count what was judged. Return a finding that the audit could
        have withdrawn until now, or None."""
        self._reading.end()
        self._auditor.end_reading(self._reading)
        self._auditor.end()
        self._judge.rules.end()
        for name, tally in self._judge.tallies.items():
            verdicts.judged[name] += tally.judged
            for why, number in tally.not_judged.items():
                verdicts.skip(name, why, number)
        return next((found for found in self._judge.findings if self._counts(found)), None)


def judged_at_port(options: Options) -> Options:
    """Return the options for frames that were recorded at the port of an endpoint: nothing is missing or out of
    order."""
    return replace(options, complete=True, ordered=True)
