# SPDX-License-Identifier: GPL-2.0-only
"""This module judges frames one by one while they arrive, as `uetproto capture --audit` does, and tells each finding as
soon as it is made."""

from typing import NamedTuple

from uetproto.audit.auditor import Auditor, rule_table
from uetproto.audit.finding import Finding
from uetproto.audit.judge import Judge
from uetproto.audit.reader.options import Options
from uetproto.audit.reader.records import Readers, Reading
from uetproto.audit.report import NO_KEYS, AuditReport, PacketCounts
from uetproto.audit.rules import chosen_rules
from uetproto.audit.wire.tracker import report_damage
from uetproto.wire.capture.pcap import Record


class StreamEnd(NamedTuple):
    """This record has what the end of the frames tells."""

    report: AuditReport
    new: list[Finding]
    """Findings that were made at the end."""
    withdrawn: list[Finding]
    """Findings that were told before, and do not hold."""


class StreamAudit:
    """This class judges the frames of one interface."""

    def __init__(self, options: Options, link: int) -> None:
        """Begin without frames; `link` is the link type of all of them. Raises `LocalError` for unknown rules or an
        unknown personality."""
        self._options = options
        self._rules = rule_table(options, chosen_rules(options.rules))
        self._judge = Judge(self._rules)
        self._auditor = Auditor(options, self._judge)
        self._reading = Reading(link, options, self._auditor.see, readers=Readers(link, options, pipe=True))
        self._take = self._reading.take
        self._told = 0
        self._packets = 0

    def take(self, record: Record) -> list[Finding]:
        """Audit the next frame, and return the findings that are new.

        Some of them may be withdrawn at the end, if packets turn out to be missing or to belong to two conversations.
        """
        self._packets += 1
        self._take(record)
        found = self._judge.findings
        if len(found) == self._told:
            return []
        new = found[self._told :]
        self._told = len(found)
        return new

    def end(self, file: str, interface: str, missing: str | None = None) -> StreamEnd:
        """Finish the audit: no frame follows. Return the report, what is new, and what is withdrawn.

        `missing` is the reason why frames are missing. The report names `file` and `interface`, and has no findings
        that were withdrawn.
        """
        judge, auditor, reading = self._judge, self._auditor, self._reading
        reading.end()
        auditor.end_reading(reading)
        told = {id(finding): finding for finding in judge.findings[: self._told]}
        judge.missing = missing or reading.missing
        forgotten = auditor.end()
        report_damage(self._rules, [])
        self._rules.end()
        unopened = reading.unopened
        if auditor.sealed and self._options.keys is None:
            unopened = {NO_KEYS: auditor.sealed}
        report = AuditReport(self._rules.tallies, packets=self._packets, vnis=reading.vnis)
        counts = PacketCounts(reading.others, reading.copies, reading.opened, forgotten, unopened)
        report.add(judge.findings, file, interface, counts)
        kept = {id(finding) for finding in report.findings}
        return StreamEnd(
            report,
            [finding for finding in report.findings if id(finding) not in told],
            [finding for number, finding in told.items() if number not in kept],
        )
