# SPDX-License-Identifier: GPL-2.0-only
"""The golden captures: each run of the manifest gives the same bytes again."""

import hashlib
import tomllib
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tests.support import paths
from uetproto.cli.main import cli
from uetproto.emulator.run.play import run
from uetproto.emulator.scenario.settings import load, names

PCAPS = paths.PCAPS
MANIFEST = tomllib.loads((PCAPS / "manifest.toml").read_text(encoding="utf-8"))["capture"]
SCENARIOS = [entry for entry in MANIFEST if "scenario" in entry]
COMMANDS = [entry for entry in MANIFEST if "command" in entry]


@pytest.mark.parametrize("entry", SCENARIOS, ids=lambda entry: entry["file"])
def test_same_bytes_again(entry: dict[str, Any], tmp_path: Path) -> None:
    scenario = load(entry["scenario"], [*entry["settings"], f"seed={entry['seed']}"])
    output = tmp_path / entry["file"]
    result = run(scenario, output=str(output), check=True)
    assert not result.findings, result
    assert result.ok is not entry.get("fails", False), result
    compare(entry, output)


@pytest.mark.parametrize("entry", COMMANDS, ids=lambda entry: entry["file"])
def test_same_bytes_from_the_command(entry: dict[str, Any], tmp_path: Path) -> None:
    output = tmp_path / entry["file"]
    result = CliRunner().invoke(cli, [*entry["command"], "-o", str(output)])
    assert result.exit_code == 0, result.output
    compare(entry, output)


def compare(entry: dict[str, Any], output: Path) -> None:
    data = output.read_bytes()
    assert data == (PCAPS / entry["file"]).read_bytes()
    assert hashlib.sha256(data).hexdigest() == entry["sha256"]


def test_each_capture_has_one_origin() -> None:
    assert all(("scenario" in entry) is not ("command" in entry) for entry in MANIFEST)


def test_every_capture_is_in_the_manifest() -> None:
    assert {path.name for path in PCAPS.glob("*.pcapng")} == {entry["file"] for entry in MANIFEST}


def test_every_shipped_scenario_has_a_capture() -> None:
    assert {entry["scenario"] for entry in SCENARIOS} == set(names())


def test_gradient_is_the_one_of_the_package() -> None:
    shipped = paths.ROOT / "uetproto/emulator/scenarios/gradient.npy"
    assert (PCAPS / "gradient.npy").read_bytes() == shipped.read_bytes()
    assert shipped.stat().st_size == 128 + 12_288
