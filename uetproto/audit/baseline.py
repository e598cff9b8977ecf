"""`--baseline`: findings that are known already are told no more, but counted.

A baseline is what `uetproto audit --json` printed once, or lines written by hand. A line hides the findings that agree
with it in all that it says of `rule`, `flow`, `expected` and `seen`; of `flow`, what it leaves out may be anything, and
numbers of packets do not count. So `{"rule": "PDS-ACK-RETX"}` hides a rule, and a line of `--json` its finding in every
capture of the same traffic, also where it starts at other PSNs: they are random, and do not count there.
"""

import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from uetproto.audit.finding import Finding, unnumbered
from uetproto.errors import LocalError

_TEXTS = ("expected", "seen")
_RANDOM = frozenset({"psn", "pkt_id", "tsc"})
"""Of a flow: what is drawn, or counts on from something drawn."""
_LARGE = re.compile(r"\bPSNs? \d+|\b\d{7,}\b|\b0x[0-9a-f]{6,}\b")
"""In texts, PSNs and what counts as they do."""
_LEGAL = 'legal: a line of --json, or {"rule": …, "flow": {…}, "expected": …, "seen": …}, of which rule suffices'


class Baseline:
    """The lines of a file, by rule."""

    def __init__(self, lines: Iterable[Mapping[str, Any]]) -> None:
        self._known: dict[str, list[tuple[Mapping[str, Any], Mapping[str, str]]]] = {}
        for line in lines:
            texts = {name: _unnumbered(line[name]) for name in _TEXTS if name in line}
            flow = line.get("flow", {})
            if "kind" in line:  # printed, not written
                flow = {name: value for name, value in flow.items() if name not in _RANDOM}
            self._known.setdefault(line["rule"], []).append((flow, texts))

    @classmethod
    def read(cls, path: str) -> "Baseline":
        """Raises `LocalError` for what is no line of findings, `OSError` for a file that cannot be read."""
        found = []
        with Path(path).open(encoding="utf-8-sig", errors="replace") as file:
            for number, text in enumerate(file, 1):
                if text.strip():
                    line = _line(text, f"{path}, line {number}")
                    if line.get("kind", "finding") == "finding":
                        found.append(line)
        return cls(found)

    @property
    def rules(self) -> list[str]:
        """Those that lines are about, which another version may have had."""
        return list(self._known)

    def knows(self, finding: Finding) -> bool:
        """Whether a line hides it."""
        own = {"expected": _unnumbered(finding.expected), "seen": _unnumbered(finding.seen)}
        flow = json.loads(json.dumps(dict(finding.flow), default=str))
        return any(
            known.items() <= flow.items() and texts.items() <= own.items()
            for known, texts in self._known.get(finding.rule.id, ())
        )

    def split(self, findings: Iterable[Finding]) -> tuple[list[Finding], list[Finding]]:
        """New ones, and those that are known."""
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
        raise LocalError(f"{where}: no JSON object; {_LEGAL}")
    if line.get("kind", "finding") != "finding":
        return line
    kinds = {"rule": str, "flow": dict, "expected": str, "seen": str}
    wrong = [name for name, kind in kinds.items() if name in line and not isinstance(line[name], kind)]
    if "rule" not in line or wrong:
        raise LocalError(f"{where}: {wrong[0] if wrong else 'no rule'}; {_LEGAL}")
    return line
