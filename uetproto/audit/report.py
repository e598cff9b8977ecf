# SPDX-License-Identifier: GPL-2.0-only
"""This module collects the findings and counts of an audit over all vantage points."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from uetproto.audit.finding import Finding
from uetproto.audit.judge import RuleTally
from uetproto.wire.flow_crc import NOTHING

NO_KEYS = "no keys"
"""Reason why no sealed packet was opened."""


class PacketCounts(NamedTuple):
    """This record has counts of one vantage point: records that were not judged, sealed packets that were opened,
    sealed packets that were not opened, and conversations that were dropped. `AuditReport` has the sums of these
    counts."""

    others: int = 0
    copies: int = 0
    opened: int = 0
    forgotten: Mapping[str, int] = NOTHING
    unopened: Mapping[str, int] = NOTHING


@dataclass(slots=True)
class AuditReport:
    """This class holds the findings of all captures, and the counts of packets and of judged events."""

    tallies: dict[str, RuleTally]
    """Map from the id of a rule to its counts, summed over all vantage points."""
    findings: list[Finding] = field(default_factory=list)
    """Findings, sorted by vantage point and packet. A finding that several vantage points share is listed once."""
    vantages: list[tuple[str, str]] = field(default_factory=list)
    """File and interface of each vantage point."""
    packets: int = 0
    """Number of records that were read."""
    others: int = 0
    """Number of records that are neither UET nor RoCE, or have a link type that is not decoded."""
    copies: int = 0
    """Number of records that are copies of an earlier record, made by a mirror port."""
    forgotten: Counter[str] = field(default_factory=Counter)
    """Number of conversations that were dropped because they were silent, or because there were too many. They are
    counted by type of conversation and reason."""
    unopened: Counter[str] = field(default_factory=Counter)
    """Number of sealed packets of which only the security header was judged, by the reason why they were not opened."""

    opened: int = 0
    """Number of sealed packets that the keys opened."""
    vnis: set[int] = field(default_factory=set)
    """VNIs of the tunnels of VXLAN and GENEVE, at most 1,000 a capture. Conversations with different VNIs are not told
    apart."""
    partial: bool = False
    """Whether the audit was interrupted before the end of the captures."""

    @property
    def keys_open_nothing(self) -> bool:
        """Return whether there were keys and sealed packets, but no key opened any packet."""
        return not self.opened and any(number for reason, number in self.unopened.items() if reason != NO_KEYS)

    def add(self, findings: Sequence[Finding], file: str, interface: str, counts: PacketCounts) -> None:
        """Add the findings of one vantage point, and the counts of what was left out there."""
        for finding in findings:
            finding.file, finding.interface, finding.vantage = file, interface, len(self.vantages)
        if findings:
            self.findings += sorted(findings, key=lambda finding: finding.packet)
        self.vantages.append((file, interface))
        self.others += counts.others
        self.copies += counts.copies
        if counts.forgotten:
            self.forgotten.update(counts.forgotten)
        if counts.unopened:
            self.unopened.update(counts.unopened)
        self.opened += counts.opened
