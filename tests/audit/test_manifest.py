# SPDX-License-Identifier: GPL-2.0-only
"""The golden captures: each gives exactly the findings that the manifest lists for it, notes too, and most give none.

What is listed is what the scenario does on purpose, of what a packet shows: a target that refuses what it is asked for
violates nothing, nor does a packet that gets lost.
"""

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest

from tests.support import paths
from tests.support.cli.frames import invoke
from tests.support.each import each
from uetproto.audit.auditor import audit
from uetproto.audit.reader.options import Options
from uetproto.audit.report import AuditReport
from uetproto.audit.rule import Severity
from uetproto.audit.rules import BY_ID
from uetproto.engine.tss.keys import KeyRing

PCAPS = paths.PCAPS
MANIFEST = tomllib.loads((PCAPS / "manifest.toml").read_text(encoding="utf-8"))["capture"]
SEALED = [entry for entry in MANIFEST if (PCAPS / entry["file"]).with_suffix(".keys.toml").exists()]

WHY: dict[str, str] = {
    "ladder-L29.pcapng":                 "scripted endpoints have one key, 7, for all that they write",
    "ladder-L29b.pcapng":                "likewise",
    "secure-start-clear-nack.pcapng":    "the reference provider: no ECT(0), and NACKs outside the seal",
    "ses-fail-amo-unsupported-op.pcapng": "an atomic operation that nobody knows",
    "roce-fail-icrc.pcapng":             "its first packet is damaged",
    "roce-fail-unaligned.pcapng":        "an atomic operation at an address that ends in 4",
}  # fmt: skip
"""Captures that violate something, and how."""


def found(report: AuditReport) -> list[str]:
    """As the manifest has it."""
    return [" ".join(map(str, (finding.rule.id, *finding.packets))) for finding in report.findings]


def keys_of(entry: dict[str, Any]) -> KeyRing | None:
    return KeyRing.read((PCAPS / entry["file"]).with_suffix(".keys.toml")) if entry in SEALED else None


@each("entry", MANIFEST)
def test_findings(entry: dict[str, Any]) -> None:
    report = audit([PCAPS / entry["file"]], Options(keys=keys_of(entry)))
    assert found(report) == entry.get("audit", [])
    assert report.packets > report.others
    assert not report.others or "pfc" in entry["file"], "frames of PFC are no packets"
    assert set(report.unopened) <= {"trimmed"}, "a switch has cut off the ends of these"


@pytest.mark.parametrize("entry", SEALED, ids=lambda entry: entry["file"])
def test_sealed_without_keys(entry: dict[str, Any]) -> None:
    """Security headers are audited, and what is in clear; there is nothing more to be found."""
    assert set(found(audit([PCAPS / entry["file"]], Options()))) <= set(entry.get("audit", []))


def test_what_is_listed_is_explained() -> None:
    assert {entry["file"] for entry in MANIFEST if entry.get("audit")} == WHY.keys()


def test_the_command_over_all() -> None:
    """All in one go: the same findings, of which equal ones are told once, and the status says that some are errors."""
    result = invoke("audit", "--json", *(str(PCAPS / entry["file"]) for entry in MANIFEST))
    *rows, summary = [json.loads(line) for line in result.stdout.splitlines()]
    assert summary["kind"] == "summary"
    told = {
        (Path(place["file"]).name, " ".join(map(str, (row["rule"], *place["packets"]))))
        for row in rows
        for place in (row, *row.get("places", ()))
    }
    sealed = {entry["file"] for entry in SEALED}
    wanted = {(entry["file"], text) for entry in MANIFEST for text in entry.get("audit", [])}
    assert {row for row in told if row[0] not in sealed} == {row for row in wanted if row[0] not in sealed}
    assert told <= wanted
    assert any(BY_ID[row["rule"]].severity is Severity.ERROR for row in rows)
    assert result.exit_code == 1
