# SPDX-License-Identifier: GPL-2.0-only
"""What shells complete: commands, options, and the names that arguments and options take."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.shell_completion import get_completion_class

from tests.support.cli.frames import invoke, program
from uetproto.audit.rules import BY_ID
from uetproto.cli.completion.values import _VALUES
from uetproto.cli.main import COMMANDS, COMPLETE_VARIABLE, cli
from uetproto.emulator.scenario.settings import names


@pytest.fixture(autouse=True)
def _asked_by_a_shell(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(COMPLETE_VARIABLE, "bash_complete")


def completed(*words: str) -> list[str]:
    """Return what may stand in place of the last word; "<file>" for the names of files."""
    shell = get_completion_class("bash")
    assert shell is not None
    found = shell(cli, {}, "uetproto", COMPLETE_VARIABLE).get_completions(list(words[:-1]), words[-1])
    return ["<file>" if one.type == "file" else one.value for one in found]


def test_every_command() -> None:
    assert completed("") == list(COMMANDS)
    assert completed("co") == [name for name in COMMANDS if name.startswith("co")]
    assert completed("scenario", "") == ["list", "new", "show"]


def test_every_option_of_every_command() -> None:
    for name in COMMANDS:
        command = cli.get_command(cli.make_context("uetproto", [], resilient_parsing=True), name)
        assert command is not None
        offered = completed(name, "--")
        for param in command.params:
            if param.param_type_name == "option":
                assert set(param.opts[-1:]) <= {*offered, "-o", "-i", "-h"}, (name, param.opts)


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (("run", "gradient-lo"), ["gradient-lossy"]),
        (("run", "./x"), ["<file>"]),
        (("run", ""), names()),
        (("run", "gradient", "--set", "pds.mp_"), ["pds.mp_range="]),
        (("send", "gradient-lo"), ["gradient-lossy"]),
        (("scenario", "show", "ladder-L30"), ["ladder-L30", "ladder-L30b"]),
        (("scenario", "new", "x.toml", "--from", "gradient-lo"), ["gradient-lossy"]),
        (("generate", "be"), ["bench"]),
        (("generate", "bench", "--mutate", "bad-c"), ["bad-crc="]),
        (("audit", "x.pcap", "--rules", ""), list(BY_ID)),
        (("audit", "x.pcap", "--rules", "WIRE-CRC,PDS-MO"), ["WIRE-CRC,PDS-MODE"]),
        (("audit", "--explain", "SES-VERS"), ["SES-VERSION"]),
        (("audit", "--personality", "ref"), ["refprov"]),
        (("audit", "x.pcap", "--fail-on", "w"), ["warning"]),
        (("dissect", "x"), ["<file>"]),
        (("diff", "x"), ["<file>"]),
        (("open", "x.pcap", "--keys", "k"), ["<file>"]),
        (("dissect", "--crc", "o"), ["on", "off"]),
        (("dissect", "--color", "al"), ["always"]),
        (("--color", "ne"), ["never"]),
        (("fuzz", "rud"), ["rud", "rudi"]),
        (("collective", "all_red"), ["all_reduce"]),
        (("collective", "all_reduce", "--compare", "ring,double"), ["ring,double_tree"]),
        (("collective", "all_reduce", "--topology", "leaf"), ["leaf-spine"]),
        (("fabric", "inc"), ["incast"]),
        (("fabric", "incast", "--cc", "nscc,rc"), ["nscc,rccc"]),
        (("bench", "--only", "deco"), ["decode"]),
        (("serve", "--path", "ra"), ["raw"]),
        (("completion", ""), ["bash", "zsh", "fish"]),
    ],
)
def test_values(words: tuple[str, ...], found: list[str]) -> None:
    assert completed(*words) == found


def test_every_row_names_an_argument_or_option_and_has_values() -> None:
    for (path, name), values in _VALUES.items():
        assert list(values()), name
        group, _, below = path.partition(" ")
        for one in [group] if group else list(COMMANDS):
            command = cli.get_command(cli.make_context("uetproto", [], resilient_parsing=True), one)
            command = command.commands[below] if below and command is not None else command  # type: ignore[attr-defined]
            given = {word for param in command.params for word in (*param.opts, param.name)}  # type: ignore[union-attr]
            if name in given:
                break
        else:
            pytest.fail(f"{path} has no {name}")


def test_bash_completes(tmp_path: Path) -> None:
    """A real bash, with what the command prints."""
    done = invoke("completion", "bash")
    assert done.exit_code == 0
    script = tmp_path / "complete.bash"
    script.write_text(done.stdout)
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "uetproto").write_text(f'#!/bin/sh\nexec {sys.executable} -m uetproto "$@"\n')
    (folder / "uetproto").chmod(0o755)
    asked = (
        f". {script}; COMP_WORDS=(uetproto run gradient-lo); COMP_CWORD=2; _uetproto_completion uetproto;"
        ' echo "${COMPREPLY[@]}"'
    )
    environment = {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"}
    environment.pop(COMPLETE_VARIABLE)
    said = subprocess.run(["bash", "-c", asked], capture_output=True, text=True, env=environment, check=True)
    assert said.stdout == "gradient-lossy\n"
    assert "compopt -o nospace" in done.stdout, "no space behind a key of --set"
    assert "compadd -U -S ''" in invoke("completion", "zsh").stdout


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_are_answered_in_their_form(shell: str) -> None:
    assert f"{COMPLETE_VARIABLE}={shell}_complete" in invoke("completion", shell).stdout
    asked = {
        COMPLETE_VARIABLE: f"{shell}_complete",
        "COMP_WORDS": "uetproto dis",
        "COMP_CWORD": "1" if shell == "zsh" else "dis",
    }
    with program(env=asked) as process:
        out, _ = process.communicate()
    assert out.decode().split()[:2] == (["plain", "dissect"] if shell == "zsh" else ["plain,dissect", "Show"])
