"""What docs/python.md shows runs as it stands, and what it says in comments is true."""

import re
from pathlib import Path

import pytest

from tests.support.paths import PCAPS
from tests.test_pages import blocks


def test_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "pcaps").symlink_to(PCAPS)
    monkeypatch.chdir(tmp_path)
    scope: dict[str, object] = {}
    checked = 0
    for block in blocks("docs/python.md", "python"):
        exec(compile(block, "docs/python.md", "exec"), scope)
        for line in block.splitlines():
            expression, _, said = line.partition("  # ")
            if re.fullmatch(r"\d+|True|False", said) and not line.startswith((" ", "from", "import")):
                assert str(eval(expression, scope)) == said, line
                checked += 1
    assert checked >= 10
    assert (tmp_path / "ladder.svg").exists()
    told = capsys.readouterr().out
    assert "ROD_REQ" in told
    assert "bad-crc: " in told
    assert len(re.findall(r"rccc +\d hosts: mean +\d+\.\d\d µs", told)) == 2
