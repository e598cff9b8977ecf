# SPDX-License-Identifier: GPL-2.0-only
"""This module has what `Capture.audit`, `stats` and `ladder` return."""

from base64 import b64encode
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from uetproto.analysis.arguments import check_path
from uetproto.analysis.html import table_html
from uetproto.analysis.row_views import RowView
from uetproto.audit.finding import Finding
from uetproto.audit.outcome import AuditOutcome, summary
from uetproto.audit.rule import Severity
from uetproto.audit.stats.meters import Measurements
from uetproto.audit.stats.rows import FlowRow, MessageRow
from uetproto.errors import LocalError, SuggestsNames
from uetproto.wire.words.summary import duration
from uetproto.wire.words.text import count

FlowRows = RowView[FlowRow]
"""Type of tables of flows."""
MessageRows = RowView[MessageRow]
"""Type of tables of messages."""


class AuditResult(SuggestsNames):
    """This class is the result of an audit: its findings, and how often each rule was judged."""

    def __init__(self, outcome: AuditOutcome) -> None:
        self.outcome = outcome
        self.findings = RowView("finding", outcome.findings, _FINDING, Finding.as_dict)
        """Findings, in the order of the packets."""

    @property
    def ok(self) -> bool:
        """Return whether there is no error, as `uetproto audit` judges by default."""
        return not self.outcome.failed

    @property
    def errors(self) -> list[Finding]:
        """Return the findings that are errors."""
        return [one for one in self.outcome.findings if one.severity is Severity.ERROR]

    def __iter__(self) -> Iterator[Finding]:
        return iter(self.findings)

    def __len__(self) -> int:
        return len(self.findings)

    def __bool__(self) -> bool:
        raise TypeError("an audit is neither true nor false: ask `audit.ok`, or `audit.findings`")

    def as_dict(self) -> dict[str, Any]:
        """Return the summary that `uetproto audit --json` prints, with the findings."""
        return summary(self.outcome) | {"kind": "audit", "findings": self.findings.as_dicts()}

    def __repr__(self) -> str:
        return f"{self.findings!r}\n{self.verdict}"

    @property
    def verdict(self) -> str:
        """Return in one line how many packets and rules were judged, and how many findings there are."""
        found = self.outcome.counts.items()
        counts = ", ".join(f"{number:,} of severity {one.value}" for one, number in found if number)
        judged = sum(1 for tally in self.outcome.report.tallies.values() if tally.judged)
        return f"{count(self.outcome.report.packets, 'packet')}, {judged} rules judged, findings: {counts or 'none'}"

    def _repr_html_(self) -> str:
        return self.findings._repr_html_() + table_html(["audit"], [[self.verdict]])


_FINDING = {
    "rule": lambda one: one.rule.id,
    "severity": lambda one: one.severity.value,
    "packet": lambda one: f"#{one.packet + 1}",
    "flow": lambda one: ", ".join(f"{name} {value}" for name, value in one.flow.items() if value is not None),
    "expected": lambda one: one.expected,
    "seen": lambda one: one.seen,
    "source": lambda one: one.rule.cite,
}


class StatsResult(SuggestsNames):
    """This class has the measurements of a capture: flows, messages, and sums for each interface."""

    def __init__(self, measured: Sequence[Measurements]) -> None:
        self.measured = measured
        """Measurements of each interface."""
        self.flows = flows_of(measured)
        self.messages: MessageRows = RowView(
            "message", [row for one in measured for row in one.messages.kept], _MESSAGE, MessageRow.as_dict,
            sum(one.messages.others.get("rows", 0) for one in measured),
        )  # fmt: skip

    @property
    def packets(self) -> int:
        """Return the number of packets of UET and RoCE."""
        return sum(one.packets for one in self.measured)

    @property
    def bytes(self) -> int:
        """Return the number of their bytes on the wire."""
        return sum(one.bytes for one in self.measured)

    @property
    def resent(self) -> dict[str, int]:
        """Return the number of retransmissions by cause."""
        found: dict[str, int] = {}
        for one in self.measured:
            for cause, number in one.flows.resent.items():
                found[cause] = found.get(cause, 0) + number
        return found

    @property
    def _again(self) -> str:
        return ", ".join(f"{number:,} {cause}" for cause, number in self.resent.items()) or "none"

    def as_dict(self) -> dict[str, Any]:
        """Return all of it as one dictionary."""
        return {
            "packets": self.packets, "bytes": self.bytes, "resent": self.resent,
            "flows": self.flows.as_dicts(), "messages": self.messages.as_dicts(),
        }  # fmt: skip

    def __repr__(self) -> str:
        return f"{count(self.packets, 'packet')}, {self.bytes:,} bytes, sent again: {self._again}\n{self.flows!r}"

    def _repr_html_(self) -> str:
        head = table_html(["packets", "bytes", "sent again"], [[f"{self.packets:,}", f"{self.bytes:,}", self._again]])
        return head + self.flows._repr_html_() + self.messages._repr_html_()


def flows_of(measured: Sequence[Measurements], kind: str | None = None) -> FlowRows:
    """Return the flows of all interfaces, of one kind if it is given."""
    rows = [row for one in measured for row in one.flows.kept if kind in (None, row.kind)]
    others = sum(one.flows.others.get("rows", 0) for one in measured)
    what = {None: "flow", "pdc": "PDC direction", "qp": "queue pair direction"}[kind]
    return RowView(what, rows, _FLOW, FlowRow.as_dict, others)


def _ends(row: FlowRow | MessageRow) -> str:
    return ", ".join(f"{name} {value}" for name, value in row.flow.items() if value is not None)


_FLOW = {
    "kind": lambda row: row.kind,
    "flow": _ends,
    "mode": lambda row: row.mode,
    "packets": lambda row: f"{row.packets:,}",
    "bytes": lambda row: f"{row.bytes:,}",
    "payload": lambda row: f"{row.payload:,}",
    "sent again": lambda row: ", ".join(f"{number} {cause}" for cause, number in row.resent.items()),
    "window": lambda row: row.window and row.window[0],
    "messages": lambda row: f"{row.messages:,}",
    "goodput Gb/s": lambda row: None if row.goodput is None else f"{row.goodput / 1e9:.3f}",
}
_MESSAGE = {
    "opcode": lambda row: row.opcode,
    "flow": _ends,
    "id": lambda row: row.message_id,
    "PSN": lambda row: row.psn,
    "length": lambda row: None if row.length is None else f"{row.length:,}",
    "packets": lambda row: f"{row.packets:,}",
    "sent again": lambda row: ", ".join(f"{number} {cause}" for cause, number in row.resent.items()),
    "latency": lambda row: None if row.latency is None else duration(row.latency),
}


class Ladder(SuggestsNames):
    """This class is a message sequence chart. It prints as text, and a notebook shows it as a picture."""

    def __init__(self, text: str, svg: str) -> None:
        self.text = text
        """Chart as text."""
        self.svg = svg
        """Chart as the text of an SVG file."""

    def save(self, path: str) -> None:
        """Write the chart to a file: as a picture if the name ends in .svg, as text if it ends in .txt.

        Raises `LocalError` for another name, and `OSError` if the file cannot be written.
        """
        check_path("path", path)
        suffix = Path(path).suffix.lower()
        if suffix not in (".svg", ".txt"):
            raise LocalError("path", f"{path} is not legal", "names in .svg or .txt", id="wrong-suffix")
        Path(path).write_text(self.svg if suffix == ".svg" else f"{self.text}\n", encoding="utf-8")

    def __repr__(self) -> str:
        return self.text or "(no packets)"

    def _repr_html_(self) -> str:
        """Return the picture as an image, because the style of an SVG within a page would change the other ones."""
        data = b64encode(self.svg.encode()).decode()
        return f'<img alt="message sequence chart" src="data:image/svg+xml;base64,{data}">'
