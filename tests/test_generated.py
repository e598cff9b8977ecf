# SPDX-License-Identifier: GPL-2.0-only
"""Generated files are those that the tables make."""

import re
import runpy
import shutil
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from tests.support.effort import effort
from uetproto.cli.completion import command as completion
from uetproto.cli.main import COMMANDS, cli
from uetproto.wire.fields import Field, Header
from uetproto.wire.forms import UET_FORMS
from uetproto.wireshark import lua

ROOT = Path(__file__).parents[1]
GENERATE = ROOT / "tools" / "generate"
FILES = (
    "uetproto/wireshark/uetproto.lua",
    "uetproto/wire/TABLES.md",
    "uetproto/wire/tuples.pyi",
    "uetproto/wire/lookup/__init__.pyi",
    "uetproto/filters/lookup/__init__.pyi",
    "uetproto/layers/__init__.pyi",
    "uetproto/engine/STATES.md",
    "uetproto/audit/RULES.md",
    "uetproto/conform/COVERAGE.md",
    "docs/reference/keys.md",
    "docs/explanation/speed.md",
    *(f"docs/man/{page.name}" for page in sorted((ROOT / "docs" / "man").glob("*.1"))),
    *completion.FILES.values(),
)


def test_there_is_a_man_page_for_each_command_and_no_other() -> None:
    names = {"uetproto.1", *(f"uetproto-{name}.1" for name in COMMANDS)}
    assert {page.name for page in (ROOT / "docs" / "man").iterdir()} == names
    for name in names:
        text = (ROOT / "docs" / "man" / name).read_text(encoding="utf-8")
        title = name.removesuffix(".1").replace("-", "\\-")
        assert f".SH NAME\n{title} \\- " in text
        assert "\b" not in text
        assert not re.search(r"^\.(?!TH |SH |TP$|PP$|nf$|fi$|\\\" SPDX)", text, re.MULTILINE), name


@pytest.mark.parametrize("name", ["report", "serve", "scenario list", "wireshark install"])
def test_help_has_both_names_whatever_the_context_of_the_first_use_says(name: str) -> None:
    command: click.Command = cli
    for word in name.split():
        assert isinstance(command, click.Group)
        found = command.get_command(click.Context(command), word)
        assert found is not None
        command = found
    command.get_params(click.Context(command))
    for option in ("-h", "--help"):
        assert CliRunner().invoke(cli, [*name.split(), option]).output.startswith(f"Usage: uetproto {name} ")


def test_a_usage_error_names_the_option_for_help() -> None:
    assert "Try 'uetproto generate --help' for help" in CliRunner().invoke(cli, ["generate"]).output


def test_the_wheel_installs_man_pages_and_completions_where_they_are_looked_for() -> None:
    scripts = {place.rpartition("/")[0]: [place] for place in completion.FILES.values()}
    with (ROOT / "pyproject.toml").open("rb") as file:
        placed = tomllib.load(file)["tool"]["setuptools"]["data-files"]
    assert placed == {"share/man/man1": ["docs/man/*.1"]} | scripts
    there = {path.relative_to(ROOT).as_posix() for path in (ROOT / "share").rglob("*") if path.is_file()}
    assert there == {*completion.FILES.values()}


def test_committed_files_are_up_to_date(generate: Callable[..., int]) -> None:
    """In this process: `tools/test` starts the command."""
    assert generate("--check") == 0


@pytest.fixture
def generate(monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    """Return the program tools/generate as a function of its arguments."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    main = runpy.run_path(str(GENERATE))["main"]

    def run(*arguments: object) -> int:
        monkeypatch.setattr(sys, "argv", [str(GENERATE), *map(str, arguments)])
        status: int = main()
        return status

    return run


@pytest.mark.parametrize("name", FILES[: effort(1, 3, 3)])
def test_a_changed_file_is_found_and_mended(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], generate: Callable[..., int]
) -> None:
    for file in FILES:
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / file).exists():
            shutil.copyfile(ROOT / file, tmp_path / file)
    changed = tmp_path / name
    changed.write_text(changed.read_text(encoding="utf-8").replace("cack_psn", "cack_spn", 1), encoding="utf-8")
    assert generate("--check", "--root", tmp_path) == 1
    told = capsys.readouterr()
    assert "cack_spn" in told.out
    assert "tools/generate" in told.err

    assert generate("--root", tmp_path) == 0
    assert changed.read_bytes() == (ROOT / name).read_bytes()


def test_one_filter_name_has_one_type() -> None:
    lua.check(UET_FORMS.values())
    wide = Header("pds.x", "X", "", 2, (Field(16, "a"),))
    wider = Header("pds.x.syn", "X", "", 4, (Field(32, "a"),))
    with pytest.raises(ValueError, match=r"uetp\.pds\.x\.a: uint16 in pds\.x, uint32 in pds\.x\.syn"):
        lua.check((wide, wider))


@pytest.mark.parametrize(
    ("form", "name"),
    [
        ("pds.ack.probe", "uetp.pds.ack"),
        ("pds.cc_state.nscc", "uetp.pds.cc_state.nscc"),
        ("ses.ext.atomic", "uetp.ses.ext.atomic"),
        ("ses.request_std.som", "uetp.ses.request_std"),
        ("tss.ssi", "uetp.tss"),
    ],
)
def test_display_filters(form: str, name: str) -> None:
    assert lua.display_filter(form) == name
    assert lua.display_filter(form, "type") == f"{name}.type"
