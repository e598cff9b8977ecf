# SPDX-License-Identifier: GPL-2.0-only
"""Colours, width and progress: by option, by environment, on a terminal and in pipes."""

import io
import os
import pty
from pathlib import Path

import pytest

from tests.support.cli.frames import invoke, program
from tests.support.paths import PCAPS
from uetproto.cli.captures import ReadingLine, progress_words
from uetproto.cli.main import COMMANDS
from uetproto.cli.terminal import PLAIN_WIDTH, choose_colours, width
from uetproto.wire.capture.pcap import open_capture

CAPTURE = str(PCAPS / "gradient.pcapng")
COMMANDS_WITH_COLOURS = (["dissect", "--count", "1"], ["stats"], ["audit"], ["ladder"])


@pytest.fixture(autouse=True)
def unset(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("COLUMNS", "NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)


def is_coloured(*arguments: str) -> bool:
    return "\x1b[" in invoke(*arguments).stdout


@pytest.mark.parametrize("command", COMMANDS_WITH_COLOURS, ids=" ".join)
def test_colours_in_a_pipe(command: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The option decides; then NO_COLOR, then FORCE_COLOR; a pipe has no colours by itself."""
    shown = [*command, CAPTURE]
    assert not is_coloured(*shown)
    assert is_coloured(*shown, "--color", "always")
    assert is_coloured("--color", "always", *shown)
    assert not is_coloured(*shown), "the option does not outlive its command"
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert is_coloured(*shown)
    assert not is_coloured(*shown, "--color", "never")
    monkeypatch.setenv("NO_COLOR", "1")
    assert not is_coloured(*shown)
    assert is_coloured(*shown, "--color", "always")
    monkeypatch.setenv("NO_COLOR", "")
    assert is_coloured(*shown)
    assert "\x1b" not in invoke(*command, "--json", CAPTURE).stdout


def test_every_command_has_the_option() -> None:
    for name in COMMANDS:
        assert "--color" in invoke(name, "--help").stdout, name
    done = invoke("stats", CAPTURE, "--color", "alway")
    assert (done.exit_code, "(did you mean always?)" in done.stderr) == (2, True)


@pytest.mark.parametrize(
    ("said", "columns"),
    [("60", 60), ("1", 40), ("99999", 10_000), ("0", PLAIN_WIDTH), ("-5", PLAIN_WIDTH), ("x", PLAIN_WIDTH),
     ("9" * 5000, PLAIN_WIDTH), ("", PLAIN_WIDTH)],
)  # fmt: skip
def test_columns_count_in_pipes(said: str, columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", said)
    with monkeypatch.context() as patched:
        patched.setattr("sys.stdout", io.StringIO())
        assert width() == columns
    lines = invoke("ladder", CAPTURE).stdout.splitlines() if columns < 200 else []
    assert all(len(line) <= columns for line in lines)


def test_how_far_a_capture_is_read() -> None:
    assert progress_words(0, None, 0.0) == "0 packets"
    assert progress_words(1, None, 0.5) == "1 packet, 2 packets/s"
    assert progress_words(120_000, 0.25, 10.0) == "120,000 packets, 12,000 packets/s, 25%, 0:30 left"
    assert progress_words(4096, 0.01, 30.0) == "4,096 packets, 137 packets/s, 1%, 49:30 left"
    assert progress_words(5, 1.0, 2.0) == "5 packets, 2 packets/s, 100%, 0:00 left"


def test_the_share_of_a_file_that_was_read(tmp_path: Path) -> None:
    shown: list[str] = []
    path = tmp_path / "long.pcapng"
    assert invoke("generate", "bench", "-o", str(path), "--packets", "3000", "--seed", "1").exit_code == 0
    line = ReadingLine(shown.append, open_capture)
    with line.open(str(path)) as reader:
        shares = [reader.share or 0.0 for _ in reader]
        line(3000)
    assert shares == sorted(shares)
    assert 0 < shares[0] < 0.5
    assert shares[-1] == 1.0
    assert shown[0].startswith("3,000 packets, ")
    assert "packets/s, 100%" in shown[0]
    read, write = os.pipe()
    os.write(write, path.read_bytes()[:4096])
    os.close(write)
    with open(read, "rb", buffering=0) as stream, open_capture(stream) as piped:
        assert piped.share is None


def test_a_bar_with_per_cent_on_a_terminal(tmp_path: Path) -> None:
    """Standard error is a terminal here; standard output stays as it is."""
    master, slave = pty.openpty()
    arguments = ("generate", "bench", "-o", str(tmp_path / "x.pcap"), "--packets", "4000", "--seed", "1")
    with program(*arguments, stderr=slave, env={"TERM": "xterm", "COLUMNS": "120"}) as process:
        os.close(slave)
        out = b""
        try:
            while data := os.read(master, 1 << 16):
                out += data
        except OSError:  # what Linux says when the other side is closed
            pass
        os.close(master)
        assert process.wait() == 0
    assert b"%" in out
    assert b"/4000" in out
    assert b"packets" in out


def test_the_choice_is_forgotten() -> None:
    choose_colours("always")
    assert not is_coloured("dissect", "--count", "1", CAPTURE)
