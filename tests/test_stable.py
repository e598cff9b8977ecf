# SPDX-License-Identifier: GPL-2.0-only
"""The list of what is stable (docs/reference/stable.md) names what exists."""

import importlib
import json
import re
import shlex
from pathlib import Path

import pytest

from uetproto.cli.main import COMMANDS, cli

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "stable.md"
ARGUMENTS = {
    "run": "gradient",
    "fuzz": "--steps 40 --seed 1 --jobs 1",
    "generate": "mixed --packets 20 -o m.pcapng",
    "collective": "all_reduce --ranks 2 --bytes 4KiB",
    "fabric": "incast --hosts 2 --flow-size 4096",
    "scenario list": "gradient",
    "export": "g.pcapng -o g.csv",
    "diff": "g.pcapng g.pcapng",
}
"""What the commands of the section JSON get; all others get a capture."""


def rows(section: str) -> list[list[str]]:
    """Return the rows of the tables of a section, without their first two lines."""
    text = PAGE.read_text(encoding="utf-8").partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    tables = re.findall(r"^\|[-|]+\|\n((?:\|.*\n)+)", text, re.MULTILINE)
    return [[cell.strip() for cell in row.strip("|").split("|")] for table in tables for row in table.splitlines()]


def names(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def test_python_names() -> None:
    found = {}
    for module, stable in rows("Python"):
        (name,) = names(module)
        found[name] = importlib.import_module(name)
        every = found[name].__all__
        assert set(names(stable)) - {"__all__"} <= set(every)
        if "all of" in stable:
            assert len(names(stable)) == 1 or set(names(stable)) - {"__all__"} == set(every)
            assert all(hasattr(found[name], one) for one in every)
    assert len(found) == 9


def test_commands() -> None:
    listed = [name for command, _ in rows("Commands") for name in names(command)]
    assert sorted(listed) == sorted(COMMANDS)


@pytest.mark.parametrize(
    ("arguments", "status"), [("run gradient", 0), ("diff {0} {1}", 1), ("run no-such", 2), ("audit no-such.pcapng", 2)]
)
def test_exit_status(arguments: str, status: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C and SIGTERM are those of tests/cli/test_main.py."""
    assert {row[0] for row in rows("Commands")} >= {"0", "1", "2", "130", "143"}
    monkeypatch.chdir(tmp_path)
    pcaps = PAGE.parents[2] / "pcaps"
    line = arguments.format(pcaps / "gradient.pcapng", pcaps / "gradient-lossy.pcapng")
    assert cli.status(shlex.split(line)) == status


def test_json(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "g.pcapng").write_bytes((PAGE.parents[2] / "pcaps" / "gradient.pcapng").read_bytes())
    listed = rows("JSON")
    assert len(listed) >= 12
    for command, keys in listed:
        words = names(command)[0].removesuffix(" --json")
        assert cli.status([*words.split(), *shlex.split(ARGUMENTS.get(words, "g.pcapng")), "--json"]) == 0
        last = json.loads(capsys.readouterr().out.splitlines()[-1])
        assert set(names(keys)) <= set(last), words
