# SPDX-License-Identifier: GPL-2.0-only
"""wireshark.md: its commands run, its filters are filters, and the output that it shows is what comes out."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import paths
from tests.support.interop.tshark import folder, needs_tshark, run
from uetproto.cli.main import cli

pytestmark = needs_tshark

PAGE = (paths.ROOT / "docs" / "howto" / "wireshark.md").read_text(encoding="utf-8")


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    with folder() as path:
        monkeypatch.setenv("HOME", str(path))
        monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
        monkeypatch.chdir(path)
        yield path


def test_commands_and_their_output(home: Path) -> None:
    """Every command, one after the other; `doctor` has a test of its own."""
    ran, compared, out = 0, 0, ""
    for language, block in re.findall(r"^```(sh|text)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL):
        if language == "text":
            assert out == block
            compared += 1
            continue
        out = ""
        for line in block.splitlines():
            program, *arguments = shlex.split(line)
            if program == "tshark":
                out += run(arguments, home, scripts=())[0]
            elif arguments != ["wireshark", "doctor"]:
                assert cli.status(arguments) == 0, line
            ran += 1
    assert (ran, compared) >= (6, 1)


def test_filters(home: Path) -> None:
    """The filters of the table, in one run."""
    rows = re.findall(r"^\|.*\| ([^|]*(?:\|\|[^|]*)*) \|$", PAGE, re.MULTILINE)
    filters = [text for row in rows for text in re.findall(r"`([^`]+)`", row)]
    assert len(filters) > 15
    capture = paths.PCAPS / "gradient-lossy.pcapng"
    copy = home / capture.name
    copy.write_bytes(capture.read_bytes())
    run(["-r", copy, "-c", "1", "-Y", " || ".join(f"({text})" for text in filters)], home)
