# SPDX-License-Identifier: GPL-2.0-only
"""No command writes over what it reads, by whatever name; text files of the user are read within a bound."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.cli.frames import capture, frame, invoke, write
from tests.support.effort import effort
from uetproto import LocalError
from uetproto.audit.baseline import Baseline
from uetproto.cli import terminal
from uetproto.emulator.scenario.settings import load as load_scenario
from uetproto.engine.tss.keys import KeyRing
from uetproto.textfile import read_bounded
from uetproto.traffic.profile import load as load_profile

SCENARIO = "[nodes.a]\naddress = '10.0.0.1'\n[nodes.b]\naddress = '10.0.0.2'\n[run]\ninput = 'data.pcapng'\n"

COMMANDS = {  # name: (the command; IN is read, OUT is written, the file that IN is)
    "run, its input": ("run SCENARIO -o OUT", "data.pcapng"),
    "run, set by hand": ("run gradient --set input=IN -o OUT", "data.pcapng"),
    "run, the scenario": ("run SCENARIO -o OUT", "scenario.toml"),
    "generate, the profile": ("generate PROFILE -o OUT --packets 10", "profile.toml"),
    "open": ("open IN --keys KEYS -o OUT", "data.pcapng"),
    "open, the keys": ("open CAPTURE --keys IN -o OUT", "keys.pcapng"),
    "audit": ("audit IN -o OUT", "data.pcapng"),
    "audit, tables": ("audit IN --junit OUT", "data.pcapng"),
    "audit, the baseline": ("audit CAPTURE --baseline IN --junit OUT", "known.jsonl"),
    "stats": ("stats IN --plot OUT", "data.svg"),
    "stats, the keys": ("stats CAPTURE --keys IN --plot OUT", "keys.svg"),
    "ladder": ("ladder IN --svg OUT", "data.svg"),
    "collective, the matrix": ("collective all_reduce --gpus IN -o OUT --topology rails", "matrix.pcapng"),
    "collective, the matrix again": ("collective all_reduce --gpus IN --plot OUT --topology rails", "matrix.svg"),
}


def same(path: Path) -> Path:
    return path


def through_a_symbolic_link(path: Path) -> Path:
    link = path.with_name(f"link{path.suffix}")
    link.symlink_to(path)
    return link


def through_a_hard_link(path: Path) -> Path:
    link = path.with_name(f"hard{path.suffix}")
    os.link(path, link)
    return link


@pytest.mark.parametrize("way", [same, through_a_symbolic_link, through_a_hard_link])
@pytest.mark.parametrize("name", COMMANDS)
def test_an_input_is_never_written_over(name: str, way: Callable[[Path], Path], tmp_path: Path) -> None:
    line, file = COMMANDS[name]
    made = capture(tmp_path / "capture.pcap", [frame(11, 12, *write(73728, 0, size=4096), payload=bytes(4096))])
    (tmp_path / "scenario.toml").write_text(SCENARIO)
    (tmp_path / "profile.toml").write_text("")
    (tmp_path / "keys.toml").write_text("")
    given = tmp_path / file
    if not given.exists():
        given.write_bytes(Path(made).read_bytes())
    (tmp_path / "data.pcapng").exists() or (tmp_path / "data.pcapng").write_bytes(b"input")
    before = given.read_bytes()
    names = {"SCENARIO": tmp_path / "scenario.toml", "PROFILE": tmp_path / "profile.toml", "CAPTURE": made,
             "KEYS": tmp_path / "keys.toml", "IN": given, "OUT": way(given)}  # fmt: skip
    words = line.replace("input=IN", f"input={given}").split()
    result = invoke(*(str(names.get(word, word)) for word in words))
    assert result.exit_code == 2
    assert "would overwrite" in result.stderr
    assert given.read_bytes() == before


LINES = ("open - --keys keys.toml -o OUT", "audit - --junit OUT", "audit - --parquet OUT", "stats - --plot OUT",
         "ladder - --svg OUT")  # fmt: skip
WAYS = (same, through_a_hard_link)


@pytest.mark.parametrize(("line", "way"), [
    (line, way) for number, line in enumerate(LINES) for way in effort((WAYS[number % 2],), WAYS, WAYS)
])  # fmt: skip
def test_the_file_behind_standard_input_is_never_written_over(
    line: str, way: Callable[[Path], Path], tmp_path: Path
) -> None:
    folder = tmp_path / "tables"
    folder.mkdir()
    name = {"open": "data.pcapng", "audit": "packets.parquet", "stats": "data.svg", "ladder": "data.svg"}
    given = folder / name[line.split()[0]]
    frames = [frame(11, 12, *write(73728, 0, size=4096), payload=bytes(4096))]
    given.write_bytes(Path(capture(tmp_path / "made.pcap", frames)).read_bytes())
    (tmp_path / "keys.toml").write_text("")
    if "--parquet" in line:
        out = folder
        if way is not same:
            given = given.rename(tmp_path / "other")
            os.link(given, folder / "packets.parquet")
    else:
        out = way(given)
    before = given.read_bytes()
    with given.open("rb") as standard_input:
        result = subprocess.run(
            [sys.executable, "-m", "uetproto", *line.replace("OUT", str(out)).split()],
            stdin=standard_input, capture_output=True, text=True, cwd=tmp_path, check=False,
        )  # fmt: skip
    assert result.returncode == 2, result.stderr
    assert "would overwrite FILE" in result.stderr
    assert given.read_bytes() == before


READERS: dict[str, Callable[[str], object]] = {
    "a scenario": load_scenario, "a profile": load_profile, "keys": KeyRing.read, "a baseline": Baseline.read,
    "any text": read_bounded,
}  # fmt: skip


@pytest.mark.parametrize("kind", READERS)
def test_a_text_file_has_a_bound(kind: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    endless = tmp_path / "endless.toml"
    endless.symlink_to("/dev/zero")
    monkeypatch.setattr("uetproto.audit.baseline._MOST", 1 << 20)
    with pytest.raises(LocalError, match=r"endless\.toml: more than \d+ MiB"):
        READERS[kind](str(endless))


def test_a_matrix_has_a_bound() -> None:
    result = invoke("collective", "all_reduce", "--gpus", "/dev/zero")
    assert (result.exit_code, "/dev/zero: more than 16 MiB" in result.stderr) == (2, True)


def test_the_bound_itself_is_legal(tmp_path: Path) -> None:
    file = tmp_path / "text"
    file.write_bytes(bytes(8))
    assert read_bounded(file, 8) == bytes(8)
    with pytest.raises(LocalError):
        read_bounded(file, 7)


STRANGE = '"\\u001b[2J\\u001b]0;title\\u0007"'


def test_names_of_a_scenario_control_no_terminal(tmp_path: Path) -> None:
    scenario = tmp_path / "strange.toml"
    nodes = f"[nodes.{STRANGE}]\naddress = '10.0.0.1'\n[nodes.b]\naddress = '10.0.0.2'\n"
    (tmp_path / "data").write_bytes(bytes(100))
    scenario.write_text(f"{nodes}[run]\ninput = 'data'\ninitiator = {STRANGE}\ntarget = 'b'\n")
    result = invoke("run", str(scenario))
    assert (result.exit_code, result.stderr) == (0, "")
    assert "100 bytes from \N{REPLACEMENT CHARACTER}[2J" in result.stdout
    assert "\x1b" not in result.stdout
    wrong = invoke("run", str(scenario), "--set", "run.target=c")
    assert wrong.exit_code == 2
    assert "\x1b" not in result.stdout + wrong.stderr + wrong.stdout


@pytest.mark.parametrize("colours", [False, True])
@pytest.mark.parametrize("name", ["a\x1b[31mx", "a\nx", "a\tx"])
def test_a_name_of_a_scenario_sets_no_style_and_ends_no_line(
    name: str, colours: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    quoted = json.dumps(name)
    scenario = tmp_path / "strange.toml"
    (tmp_path / "data").write_bytes(bytes(100))
    nodes = f"[nodes.{quoted}]\naddress = '10.0.0.1'\n[nodes.b]\naddress = '10.0.0.2'\n"
    scenario.write_text(f"{nodes}[run]\ninput = 'data'\ninitiator = {quoted}\ntarget = 'b'\n")
    if colours:
        monkeypatch.setattr("uetproto.cli.run.painter", lambda: terminal._coloured)
        monkeypatch.setattr("uetproto.cli.terminal.painter", lambda: terminal._coloured)
    done = invoke("run", str(scenario))
    assert done.exit_code == 0
    assert ("\x1b" in done.stdout, "\x1b[31m" in done.stdout, "\t" in done.stdout) == (colours, False, False)
    assert all(line.startswith(("strange", "  ", "\x1b[1mstrange")) for line in done.stdout.splitlines())
    assert f"from {terminal.printable(name)} to b" in done.stdout


def test_a_style_passes_only_where_there_are_colours(capsys: pytest.CaptureFixture[str]) -> None:
    terminal.tell(["\x1b[31mred\x1b[0m"])
    assert "\x1b" not in capsys.readouterr().out
