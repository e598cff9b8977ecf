# SPDX-License-Identifier: GPL-2.0-only
"""What the fuzzer finds under attack is written as text, and its seed plays it again."""

import json
import re
import sys
from pathlib import Path

import pytest

pytest.importorskip("cryptography")

from tests.support.cli.frames import invoke
from uetproto.check.finding import FuzzFinding, to_text
from uetproto.check.fuzz import MACHINES, by_turns
from uetproto.check.tss.episode import TssEpisode
from uetproto.check.tss.steps import TssStep
from uetproto.engine.pds.secure_start import ExpectedStart

FINDING = FuzzFinding(
    machine="tss",
    seed="7/12",
    settings=TssEpisode(({"mode": "cluster", "has_ssi": True}, {"msl": 5}), 99),
    steps=(TssStep("write", number=1, how="rud"), TssStep("deliver")),
    drawn=1834,
    text="tss 4: b: delivered twice: 1 bytes at 0",
    kind="tss 4",
)


def test_text() -> None:
    assert FINDING.again == "uetproto fuzz tss --seed 7 --episode 12"
    assert to_text(FINDING).splitlines() == [
        "tss 4: b: delivered twice: 1 bytes at 0", "",
        "2 steps of 1834, after shrinking;",
        "the whole episode again: uetproto fuzz tss --seed 7 --episode 12", "",
        "draws 99", "mode = cluster", "has_ssi = True", "pds.msl = 5", "",
        "write    number 1 how rud", "deliver",
    ]  # fmt: skip


def test_found_made_small_told_and_played_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A floor that never rises: the replay that gets through is left of the episode (tss.md §11)."""
    monkeypatch.setattr(ExpectedStart, "demand", lambda self, start: None)
    result = invoke("fuzz", "tss", "--steps", "6000", "--seed", "1", "--jobs", "1", "-o", str(tmp_path))
    assert result.exit_code == 1
    lines = result.stdout.splitlines()
    file, command = lines[2].strip(), lines[3].strip()
    assert re.fullmatch(r"uetproto fuzz tss --seed 1 --episode \d+", command)
    text = Path(file).read_text(encoding="utf-8")
    assert text.startswith(lines[0])
    assert command in text
    steps = text.rpartition("\n\n")[2].splitlines()
    assert len(steps) <= 25
    repeated = invoke(*command.split()[1:], "-o", str(tmp_path / "again"), "--json")
    finding, last = map(json.loads, repeated.stdout.splitlines())
    assert (finding["text"], finding["again"]) == (lines[0], command)
    assert (last["episodes"], last["failed"]) == (1, 1)
    monkeypatch.undo()
    assert invoke(*command.split()[1:], "-o", str(tmp_path / "whole")).exit_code == 0


@pytest.mark.parametrize("more", [["--episode", "1"], ["--seed", "1", "--episode", "1", "--steps", "9"],
                                  ["--seed", "1", "--episode", "1", "--jobs", "2"]])  # fmt: skip
def test_an_episode_has_a_seed(more: list[str]) -> None:
    result = invoke("fuzz", "tss", *more)
    assert result.exit_code == 2
    assert "--episode: needs --seed" in result.stderr


def test_without_the_package(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """All the others are played by turns, and what is left out is told; asked for by name it says what it needs."""
    monkeypatch.setitem(sys.modules, "cryptography", None)
    monkeypatch.setitem(sys.modules, "cryptography.exceptions", None)
    assert by_turns() == tuple(name for name in MACHINES if name != "tss")
    needs = "tss: needs the package cryptography; pip install 'uetproto[security]'"
    result = invoke("fuzz", "tss", "--steps", "9", "--jobs", "2", "-o", str(tmp_path))
    assert (result.exit_code, result.stderr) == (2, f"uetproto: {needs} [missing-package]\n")
    result = invoke("fuzz", "--steps", "9", "--jobs", "1", "-o", str(tmp_path))
    assert (result.exit_code, result.stderr) == (0, f"uetproto: left out: {needs}\n")
