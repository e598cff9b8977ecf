# SPDX-License-Identifier: GPL-2.0-only
"""`uetproto scenario`: shipped scenarios are listed and shown, and a new file runs and overwrites nothing."""

import json
import shutil
import tomllib
from pathlib import Path

import pytest

from tests.support.cli.frames import invoke
from uetproto import LocalError
from uetproto.cli.scenario.template import template
from uetproto.emulator.scenario.settings import SECTIONS, SHIPPED, load, names


def test_list() -> None:
    every = [json.loads(line) for line in invoke("scenario", "list", "--json").stdout.splitlines()]
    assert [one["name"] for one in every] == names()
    text = invoke("scenario", "list", "ses-w*").stdout
    assert text.startswith("ses-write       WRITE of 12,288 bytes, ROD, three packets\n")
    assert len(text.splitlines()) == len([name for name in names() if name.startswith("ses-w")])
    done = invoke("scenario", "list", "gradiant*")
    assert (done.exit_code, "did you mean gradient" in done.stderr) == (2, True)


def test_show() -> None:
    assert invoke("scenario", "show", "gradient").stdout == (SHIPPED / "gradient.toml").read_text()
    done = invoke("scenario", "show", "ladder-L99")
    assert (done.exit_code, "no such scenario" in done.stderr) == (2, True)
    assert "uetproto scenario list" in done.stderr


@pytest.mark.parametrize("source", [[], ["--from", "gradient-lossy"]])
def test_new(source: list[str], tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    assert invoke("scenario", "new", str(file), *source).exit_code == 0
    done = invoke("run", str(file), "--check", "--json")
    assert done.exit_code == 0
    assert json.loads(done.stdout)["match"] is True
    before = file.read_bytes()
    again = invoke("scenario", "new", str(file))
    assert (again.exit_code, file.read_bytes()) == (2, before)
    assert "exists" in again.stderr
    assert invoke("scenario", "new", str(tmp_path / "mine.txt")).exit_code == 2
    assert invoke("scenario", "new", str(tmp_path / "no" / "mine.toml")).exit_code == 2


def test_data_below_the_new_file_are_named_relative_to_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder may be moved as a whole; data elsewhere have their whole path."""
    shipped = tmp_path / "project" / "lib"
    shipped.mkdir(parents=True)
    for name in ("gradient.toml", "gradient.npy"):
        shutil.copy(SHIPPED / name, shipped)
    monkeypatch.setattr("uetproto.cli.scenario.command.SHIPPED", shipped)
    (tmp_path / "elsewhere").mkdir()
    for folder, told in (("project", "lib/gradient.npy"), ("elsewhere", str(shipped / "gradient.npy"))):
        file = tmp_path / folder / "mine.toml"
        assert invoke("scenario", "new", str(file), "--from", "gradient").exit_code == 0
        assert tomllib.loads(file.read_text(encoding="utf-8"))["run"]["input"] == told
    moved = (tmp_path / "project").rename(tmp_path / "moved")
    assert invoke("run", str(moved / "mine.toml")).exit_code == 0


def test_every_key_is_there_and_its_default_is_legal(tmp_path: Path) -> None:
    """A key that is set to its default changes nothing, unless it needs another key, or rows of another kind."""
    lines = template().splitlines()
    keys = {
        line[1:].split(" = ")[0]: number for number, line in enumerate(lines) if line[:1] == "#" and line[1:2] != " "
    }
    for section in SECTIONS:
        if section.name in ("run", "fabric", "pds", "ses", "cc", "faults", "tap"):
            assert all(name in keys or f"{name} = " in template() for name in section.keys)
    tried = 0
    for name, number in keys.items():
        if not name or lines[number].endswith("…"):
            continue
        changed = [*lines[:number], lines[number][1:], *lines[number + 1 :]]
        tomllib.loads("\n".join(changed))
        refusal = _refusal(_written(tmp_path, changed))
        assert not refusal or any(words in refusal for words in NEEDS), lines[number]
        tried += not refusal
    assert tried > 120


NEEDS = ("has no effect without", "does not go with rows")


def _refusal(path: Path) -> str:
    try:
        load(str(path))
    except LocalError as error:
        return str(error)
    return ""


def _written(folder: Path, lines: list[str]) -> Path:
    path = folder / "one.toml"
    path.write_text("\n".join(lines))
    return path
