"""What an audit of captures found, over all vantage points."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from uetproto.audit.finding import Finding
from uetproto.audit.judge import Judge, RuleTally
from uetproto.audit.rule import Rule

NO_KEYS = "no keys"
"""Why all sealed packets stay closed."""


@dataclass(slots=True)
class AuditReport:
    """What was found in all captures."""

    tallies: dict[str, RuleTally]
    """By rule, over all vantage points."""
    findings: list[Finding] = field(default_factory=list)
    """In the order of files, interfaces and packets; equal ones of several vantage points are one."""
    vantages: list[tuple[str, str]] = field(default_factory=list)
    """File and interface."""
    packets: int = 0
    """Records read."""
    others: int = 0
    """Of these: neither UET nor RoCE, or of a link type that is not decoded."""
    copies: int = 0
    """Of these: seen before, by another mirror port."""
    forgotten: Counter[str] = field(default_factory=Counter)
    """Conversations dropped because they were silent or too many, by which."""
    unopened: Counter[str] = field(default_factory=Counter)
    """Sealed packets of which only the security header was judged, by why."""

    @classmethod
    def of(cls, rules: Iterable[Rule]) -> "AuditReport":
        """One of nothing yet."""
        return cls({rule.id: RuleTally(rule) for rule in rules})

    def add(self, judge: Judge, file: str, interface: str) -> None:
        """What the rules said at one vantage point."""
        for finding in judge.findings:
            finding.file, finding.interface, finding.vantage = file, interface, len(self.vantages)
        self.findings += sorted(judge.findings, key=lambda finding: finding.packet)
        for name, tally in judge.tallies.items():
            self.tallies[name].add(tally)
        self.vantages.append((file, interface))
