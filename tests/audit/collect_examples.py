# SPDX-License-Identifier: GPL-2.0-only
"""Writes uetproto/audit/examples.jsonl: of each rule the first finding that the tests of the rules produce.

    python -m tests.audit.collect_examples

The files of tests and the tests within them have one order, so the same tests give the same examples.
"""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from uetproto.audit import examples
from uetproto.audit.finding import Finding
from uetproto.audit.judge import Judge
from uetproto.audit.rules import RULES

HERE = Path(__file__).parent
OTHERS = frozenset(
    HERE / name
    for name in (
        "test_views.py",
        "test_memory.py",
        "test_refprov.py",
        "test_manifest.py",
        "test_rules.py",
        "stats/test_measure.py",
        "kinds/test_kinds.py",
    )
)
"""Holds the files of tests that are not about single rules."""


class Collector:
    """A plugin of pytest: keeps what judges find."""

    def __init__(self) -> None:
        self.found: dict[str, Finding] = {}
        self._note = Judge.note

    def pytest_sessionstart(self) -> None:
        collector, note = self, self._note

        def kept(judge: Judge, *arguments: Any) -> None:
            before = len(judge.findings)
            note(judge, *arguments)
            for finding in judge.findings[before:]:
                collector.found.setdefault(finding.rule.id, finding)

        Judge.note = kept  # type: ignore[method-assign]


def main() -> int:
    collector = Collector()
    files = [str(path) for path in sorted(HERE.rglob("test_*.py")) if path not in OTHERS]
    status = pytest.main(["-q", "-p", "no:randomly", *files], plugins=[collector])
    lines = []
    for rule in RULES:
        if rule.id in collector.found:
            line = collector.found[rule.id].as_dict()
            line["severity"] = rule.severity.value
            for place in (line, *line.get("places", ())):
                place["file"] = Path(place["file"]).name  # its folder differs from run to run
            lines.append(json.dumps(line, ensure_ascii=False, default=str) + "\n")
        else:
            print(f"{rule.id}: no test has a finding of it", file=sys.stderr)
    target = Path(examples.__file__).with_name(examples.FILE)
    target.write_text("".join(lines), encoding="utf-8", newline="\n")
    return int(status)


if __name__ == "__main__":
    sys.exit(main())
