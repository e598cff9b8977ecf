# SPDX-License-Identifier: GPL-2.0-only
"""What the pages about Python show runs as it stands, and what they say in comments is true."""

import re
import shlex
from pathlib import Path

import pytest

from tests.support.cli.frames import invoke
from tests.support.paths import PCAPS
from tests.test_pages import blocks


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "pcaps").symlink_to(PCAPS)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def ran(page: str) -> int:
    """Run the blocks of a page, and return how many values in comments were compared."""
    scope: dict[str, object] = {}
    checked = 0
    for block in blocks(page, "python"):
        exec(compile(block, page, "exec"), scope)
        for line in block.splitlines():
            expression, _, said = line.partition("  # ")
            if re.fullmatch(r"\d+|True|False", said) and not line.startswith((" ", "from", "import")):
                assert str(eval(expression, scope)) == said, line
                checked += 1
    return checked


def test_filters(here: Path) -> None:
    assert ran("docs/reference/filters.md") >= 4
    for line in "".join(blocks("docs/reference/filters.md", "sh")).splitlines():
        result = invoke(*shlex.split(line)[1:])
        assert (result.exit_code, bool(result.stdout)) == (0, True), line


def test_tables(here: Path) -> None:
    assert ran("docs/howto/tables.md") >= 4
    for block in blocks("docs/howto/tables.md", "sh"):
        for line in block.splitlines():
            result = invoke(*shlex.split(line)[1:])
            assert (result.exit_code, bool(result.stdout)) == (0, True), (line, result.stderr)


def test_python(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert ran("docs/howto/python.md") >= 10
    assert (here / "ladder.svg").exists()
    told = capsys.readouterr().out
    assert "ROD_REQ" in told
    assert "bad-crc: " in told
    assert len(re.findall(r"rccc +\d hosts: mean +\d+\.\d\d µs", told)) == 2
