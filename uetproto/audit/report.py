"""Collects findings and counts of an audit over all vantage points."""

from collections import Counter
from dataclasses import dataclass, field

from uetproto.audit.finding import Finding
from uetproto.audit.judge import Judge, RuleTally

NO_KEYS = "no keys"
"""Says why no sealed packet was opened."""


@dataclass(slots=True)
class AuditReport:
    """Holds what was found in all captures."""

    tallies: dict[str, RuleTally]
    """Maps the id of a rule to its counts over all vantage points."""
    findings: list[Finding] = field(default_factory=list)
    """Lists findings by file, interface and packet; a finding that several vantage points share is listed once."""
    vantages: list[tuple[str, str]] = field(default_factory=list)
    """Lists the vantage points by file and interface."""
    packets: int = 0
    """Counts the records read."""
    others: int = 0
    """Counts the records that are neither UET nor RoCE, or have a link type that is not decoded."""
    copies: int = 0
    """Counts the records that repeat an earlier one, as a mirror port makes them."""
    forgotten: Counter[str] = field(default_factory=Counter)
    """Counts the conversations that were dropped because they were silent or too many, by kind and reason."""
    unopened: Counter[str] = field(default_factory=Counter)
    """Counts the sealed packets of which only the security header was judged, by reason."""

    opened: int = 0
    """Counts the sealed packets that the keys open."""
    partial: bool = False
    """Tells whether the audit was interrupted before the end of the captures."""

    @property
    def keys_open_nothing(self) -> bool:
        """Tell whether there were keys and sealed packets, and no key opened any packet."""
        return not self.opened and any(number for reason, number in self.unopened.items() if reason != NO_KEYS)

    def add(self, judge: Judge, file: str, interface: str) -> None:
        """Add what the rules found at one vantage point."""
        for finding in judge.findings:
            finding.file, finding.interface, finding.vantage = file, interface, len(self.vantages)
        self.findings += sorted(judge.findings, key=lambda finding: finding.packet)
        for name, tally in judge.tallies.items():
            self.tallies[name].add(tally)
        self.vantages.append((file, interface))
