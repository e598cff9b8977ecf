# SPDX-License-Identifier: GPL-2.0-only
"""This module reads the file of `--baseline`. Findings that the file lists are counted but not printed.

A baseline is the output of `uetproto audit --json`, or lines written by hand. A line hides each finding that has the
same `rule`, `flow`, `expected` and `seen`. A line may omit each of these except `rule`, and may omit fields of `flow`;
what a line omits is not compared. Packet numbers are not compared either. For example, `{"rule": "PDS-ACK-RETX"}` hides
all findings of this rule.

A line of `--json` hides its finding in every capture of the same traffic, because PSNs, which start at a random value,
are not compared.
"""

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from uetproto.audit.finding import Finding, unnumbered
from uetproto.errors import LocalError
from uetproto.textfile import read_bounded

_MOST = 1 << 28
"""Number of bytes of the largest baseline: some 500,000 findings."""
_TEXTS = ("expected", "seen")
_RANDOM = frozenset({"psn", "pkt_id", "tsc"})
"""Fields of a flow that begin with a random value."""
_LARGE = re.compile(r"\bPSNs? \d+|\b\d{7,}\b|\b0x[0-9a-f]{6,}\b")
"""Matches PSNs and other numbers of a text that begin with a random value."""
_LEGAL = 'legal: a line of --json, or {"rule": …, "flow": {…}, "expected": …, "seen": …}, of which rule suffices'


class Baseline:
    """This class holds the lines of a baseline; each line names a rule and describes findings that are known."""

    def __init__(self, lines: Iterable[Mapping[str, Any]]) -> None:
        self._known: dict[str, list[tuple[Mapping[str, Any], Mapping[str, str]]]] = {}
        for line in lines:
            texts = {name: _unnumbered(line[name]) for name in _TEXTS if name in line}
            flow = line.get("flow", {})
            if "kind" in line:  # a line that `--json` printed, not one written by hand
                flow = {name: value for name, value in flow.items() if name not in _RANDOM}
            self._known.setdefault(line["rule"], []).append((flow, texts))

    @classmethod
    def read(cls, path: str) -> "Baseline":
        """Read a baseline from a file. Raises `LocalError` for a line that does not describe a finding, and `OSError`
        for an unreadable file."""
        found = []
        lines = read_bounded(path, _MOST).decode("utf-8-sig", errors="replace").split("\n")
        for number, text in enumerate(lines, 1):
            if text.strip():
                line = _line(text, f"{path}, line {number}")
                if line.get("kind", "finding") == "finding":
                    found.append(line)
        return cls(found)

    @property
    def rules(self) -> list[str]:
        """Return the ids of the rules that the lines name; ids that only another version of the package has may be
        among them."""
        return list(self._known)

    def knows(self, finding: Finding) -> bool:
        """Return whether a line of the baseline hides the finding."""
        own = {"expected": _unnumbered(finding.expected), "seen": _unnumbered(finding.seen)}
        flow = json.loads(json.dumps(dict(finding.flow), default=str))
        return any(
            known.items() <= flow.items() and texts.items() <= own.items()
            for known, texts in self._known.get(finding.rule.id, ())
        )

    def split(self, findings: Iterable[Finding]) -> tuple[list[Finding], list[Finding]]:
        """Return two lists: the findings that no line hides, and the findings that a line hides."""
        new: list[Finding] = []
        known: list[Finding] = []
        for finding in findings:
            (known if self.knows(finding) else new).append(finding)
        return new, known


def _unnumbered(text: str) -> str:
    return _LARGE.sub("PSN", unnumbered(text))


def _line(text: str, where: str) -> dict[str, Any]:
    try:
        line = json.loads(text)
    except (ValueError, RecursionError):
        line = None
    if not isinstance(line, dict):
        raise LocalError(f"{where}: no JSON object; {_LEGAL}", id="wrong-baseline")
    if line.get("kind", "finding") != "finding":
        return line
    kinds = {"rule": str, "flow": dict, "expected": str, "seen": str}
    wrong = [name for name, kind in kinds.items() if name in line and not isinstance(line[name], kind)]
    if "rule" not in line or wrong:
        raise LocalError(f"{where}: {wrong[0] if wrong else 'no rule'}; {_LEGAL}", id="wrong-baseline")
    return line
