# SPDX-License-Identifier: GPL-2.0-only
"""The entry point: lazy commands, exit statuses, errors in words, closed pipes, interrupts."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from tests.support.cli.frames import capture, frame, invoke, program, write
from tests.support.effort import effort
from uetproto import LocalError, RemoteError, __version__
from uetproto.cli.collective.run import PreparedCase
from uetproto.cli.interrupt import raised
from uetproto.cli.main import COMMANDS, Commands

HEAVY = ("scapy", "numpy", "construct", "rich", "cryptography")


@pytest.fixture
def gradient(tmp_path: Path) -> str:
    frames = [frame(11, 12, *write(73728 + k, 4096 * k, size=4096), payload=bytes(4096)) for k in range(3)]
    return capture(tmp_path / "gradient.pcap", frames)


def loaded(*lines: list[str]) -> Iterator[list[str]]:
    """Yield the modules that a process has loaded after each of its runs of the program."""
    code = (
        "import json, sys\nfrom uetproto.cli.main import cli\n"
        "for line in json.loads(sys.argv[1]):\n"
        "    try: cli.main(line)\n    except SystemExit as ended: assert not ended.code, ended\n"
        "    print(json.dumps(list(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code, json.dumps(lines)], capture_output=True, text=True, check=True)
    modules = done.stderr.splitlines()[-len(lines) :]
    return map(json.loads, modules)


def test_help_imports_no_command() -> None:
    (modules,) = loaded(["--help"])
    assert not {module for module, _ in COMMANDS.values()} & set(modules)
    assert not set(HEAVY) & set(modules)


def test_showing_packets_loads_no_heavy_package(gradient: str) -> None:
    lines = [["dissect", gradient], ["dissect", "--json", gradient], ["ladder", gradient]]
    for line, modules in zip(lines, loaded(*lines), strict=True):
        assert not set(HEAVY) & set(modules), line


def test_json_loads_no_heavy_package(gradient: str) -> None:
    lines = [["audit", "--json", gradient], ["stats", "--json", gradient]]
    for line, modules in zip(lines, loaded(*lines), strict=True):
        assert not {*HEAVY, "uetproto.check"} & set(modules), line


def test_a_live_link_loads_no_emulator() -> None:
    lines = [["serve", "--help"], ["send", "--help"]]
    for line, modules in zip(lines, loaded(*lines), strict=True):
        assert "uetproto.engine.fep" in modules, line
        assert not [name for name in modules if name.startswith(("uetproto.emulator", "uetproto.check", *HEAVY))], line


SCRIPT = """
run = {input = "input.bin", mode = "rod", initiator = "a", target = "b"}
nodes = {a = {address = "10.0.0.1"}, b = {address = "10.0.0.2"}}
step = [{submit = "all"}, {deliver = "all"}, {deliver = "all"}]
"""


def test_runs_load_the_checks_only_for_check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("script.toml").write_text(SCRIPT)
    Path("input.bin").write_bytes(bytes(64))
    scenarios = ["gradient", "gradient-roce", "roce-send", "ses-atomic", "script.toml"]
    for scenario, modules in zip(scenarios, loaded(*(["run", name, "--json"] for name in scenarios)), strict=True):
        assert "uetproto.emulator.run.uet_run" in modules, scenario
        assert not [name for name in modules if name.startswith(("uetproto.check", *HEAVY))], scenario


def test_help_names_every_command() -> None:
    result = invoke("--help")
    assert result.exit_code == 0
    for name, (_, text) in COMMANDS.items():
        assert f"{name} " in result.stdout
        assert text in result.stdout


@pytest.mark.parametrize("name", COMMANDS)
def test_help_of_a_command_has_an_example(name: str) -> None:
    for option in ("--help", "-h"):
        result = invoke(name, option)
        assert result.exit_code == 0
        assert f"uetproto {name} " in result.stdout
        assert "Example" in result.stdout
        assert "Exit status: 0; 1 " in result.stdout or name not in ("dissect", "ladder")


def test_version() -> None:
    with program("--version") as process:
        assert process.communicate() == (f"uetproto {__version__}\n".encode(), b"")
        assert process.returncode == 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["disect"], "there is no command 'disect' (did you mean dissect?); there are run, scenario, "),
        (["--nonsense"], "--nonsense"),
        (["dissect"], "Missing argument 'FILE...'"),
        (["dissect", "--count", "-1", "x"], "--count"),
        (["dissect", "--crc", "maybe", "x"], "maybe"),
        (["ladder", "x", "--svg", "y", "--json"], "--svg and --json exclude each other"),
        (["ladder", "x", "--width", "1000000000000"], "--width"),
        (["dissect", "no\x1b[31m"], "uetproto: no\ufffd[31m: No such file"),
    ],
)
def test_misuse_is_status_2(arguments: list[str], said: str) -> None:
    result = invoke(*arguments)
    assert result.exit_code == 2
    assert said in result.stderr
    assert result.stdout == ""


@pytest.mark.parametrize("command", ["dissect", "ladder"])
def test_files_that_cannot_be_read(command: str, tmp_path: Path) -> None:
    missing, other, folder = tmp_path / "no.pcap", tmp_path / "text", str(tmp_path)
    other.write_text("this is not a capture")
    result = invoke(command, str(missing))
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == f"uetproto: {missing}: No such file or directory [file-not-found]\n"
    result = invoke(command, str(other))
    assert result.exit_code == 2
    assert result.stderr.startswith(f"uetproto: {other}: not a capture: ")
    assert invoke(command, folder).stderr == f"uetproto: {folder}: Is a directory [is-a-directory]\n"


@pytest.mark.parametrize(
    ("error", "status", "said"),
    [
        (LocalError("pds.mpr: 0 is not legal"), 2, "uetproto: pds.mpr: 0 is not legal\n"),
        (LocalError("a\nb", id="wrong-type"), 2, "uetproto: a [wrong-type]\nb\n"),
        (RemoteError("it sent nonsense", 3, id="peer-refused"), 1, "uetproto: it sent nonsense [peer-refused]\n"),
        (OSError(28, "No space left on device"), 2, "uetproto: No space left on device [io-error]\n"),
        (BrokenPipeError(32, "Broken pipe"), 0, ""),
        (KeyboardInterrupt(), 130, ""),
        (click.exceptions.Exit(1), 1, ""),
    ],
)
def test_what_a_command_raises(error: BaseException, status: int, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    @click.command()
    def failing() -> None:
        raise error

    monkeypatch.setattr(Commands, "get_command", lambda self, ctx, name: failing)
    result = invoke("bench")
    assert (result.exit_code, result.stderr) == (status, said)


def test_a_closed_pipe_ends_silently(tmp_path: Path) -> None:
    path = capture(tmp_path / "long.pcap", [frame(1, 2, *write(73728, 0), payload=bytes(1024))] * 2000)
    with program("dissect", "--json", path) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline().startswith(b'{"index": 0')
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait() == 0


QUIET = [["--help"], ["dissect", "--help"], ["dissect"], ["stats"], ["audit", "--list-rules"]]
MORE = [["--version"], ["ladder"], ["audit"], ["collective", "all_reduce", "--ranks", "2", "--transport", "model"]]


@pytest.mark.parametrize("arguments", QUIET + MORE[: effort(0, 4, 4)])
def test_a_pipe_closed_before_the_last_flush(arguments: list[str], gradient: str) -> None:
    read, written = os.pipe()
    os.close(read)
    file = [gradient] if arguments in (["dissect"], ["ladder"], ["stats"], ["audit"]) else []
    with program(*arguments, *file, stdout=written) as process:
        os.close(written)
        assert process.communicate()[1] == b""
        assert process.returncode == 0


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
def test_a_full_disk_is_told_in_one_line(gradient: str) -> None:
    with open("/dev/full", "wb") as full, program("dissect", gradient, stdout=full) as process:
        assert process.communicate()[1] == b"uetproto: No space left on device [io-error]\n"
        assert process.returncode == 2


def test_interrupted_is_130(gradient: str) -> None:
    with program("dissect", "--json", "-", stdin=subprocess.PIPE, env={"PYTHONUNBUFFERED": "1"}) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdin.write(Path(gradient).read_bytes())
        process.stdin.flush()
        assert process.stdout.readline().startswith(b'{"index": 0')  # it has begun; now it waits for more
        process.send_signal(signal.SIGINT)
        assert process.wait(10) == 130
        assert process.stderr.read() == b""


STARTED = """
import os, signal
from uetproto.cli.entry import run
set_handler = signal.signal
def signal_set(number, handler):
    set_handler(number, handler)
    if number == signal.SIGTERM:
        signal.signal = set_handler
        os.write(1, b"+")
signal.signal = signal_set
run()
"""
"""Runs the program, and says so when the handlers of the entry point are in place."""


@pytest.mark.parametrize("milliseconds", [0, 5, 20, 60, 120, 250])
@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_leaves_no_traceback_at_any_moment(sent: signal.Signals, milliseconds: int, gradient: str) -> None:
    """It comes while modules are imported, while a capture is read, or while the command waits for more."""
    command = [sys.executable, "-c", STARTED, "audit", gradient, "-"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.read(1) == b"+"
        time.sleep(milliseconds / 1000)
        process.send_signal(sent)
        assert process.wait(10) == 128 + sent
        assert b"Traceback" not in process.stderr.read()


def test_the_package_loads_nothing_before_the_handlers_are_set() -> None:
    code = "import sys, uetproto.cli.entry; print(*sorted(n for n in sys.modules if n.startswith('uetproto')))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["uetproto", "uetproto.cli", "uetproto.cli.entry"]


@pytest.mark.parametrize(("raised", "status"), [("CtrlC()", 130), ("SystemExit(143)", 143)])
@pytest.mark.parametrize("where", ["exec('raise error')", "type('Kind', (), {'field': Named()})"])
def test_a_signal_within_exec_or_while_a_class_is_made(raised: str, status: int, where: str) -> None:
    """Python ends a process by SIGINT after `exec` of a text, and makes a RuntimeError of `__set_name__`."""
    code = f"""
import sys
from uetproto.cli import entry, main
from uetproto.cli.interrupt import CtrlC
class Named:
    def __set_name__(self, owner, name): raise {raised}
error = {raised}
main.cli.invoke = lambda ctx: {where}
sys.argv = ["uetproto", "wireshark", "path"]
entry.run()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (status, "")


ENDED = [("audit", signal.SIGINT), ("stats", signal.SIGTERM), ("audit", signal.SIGTERM), ("stats", signal.SIGINT)]


@pytest.mark.parametrize(("command", "sent"), ENDED[: effort(2, 4, 4)])
def test_what_was_read_before_a_signal_is_printed_as_partial(
    command: str, sent: signal.Signals, gradient: str, tmp_path: Path
) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for more, told in (["--json"], '"partial": true'), ([], "gradient.pcap"):
        with program(command, *more, gradient, str(pipe)) as process, pipe.open("wb"):  # the first file is read now
            process.send_signal(sent)
            out, err = process.communicate(timeout=10)
        assert process.returncode == 128 + sent
        assert told in out.decode()
        assert err == b"uetproto: partial: interrupted after 3 packets\n"


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_algorithms_that_ran_before_a_signal_are_printed(sent: signal.Signals, monkeypatch: pytest.MonkeyPatch) -> None:
    done = PreparedCase.run

    def run(case: PreparedCase, *arguments: object) -> object:
        if case.algorithm == "recursive_doubling":
            signal.raise_signal(sent)
        return done(case, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(PreparedCase, "run", run)
    with raised():
        result = invoke("collective", "all_reduce", "--transport", "model", "--compare", "ring,recursive_doubling,tree")
    assert result.exit_code == 128 + sent
    assert "ring" in result.stdout
    assert "partial: interrupted in recursive_doubling, 4 ranks, after 1 of 3 runs" in result.stderr


def test_a_signal_within_a_destructor_is_raised_behind_it() -> None:
    class Closing:
        def __del__(self) -> None:
            signal.raise_signal(signal.SIGTERM)

    def work() -> None:
        Closing()
        time.sleep(5)

    with raised(), pytest.raises(SystemExit) as ended:
        work()
    assert ended.value.code == 143


def test_a_terminal_without_the_characters(gradient: str) -> None:
    with program("dissect", gradient, env={"PYTHONIOENCODING": "ascii"}) as process:
        out, err = process.communicate()
        assert (process.returncode, err) == (0, b"")
        assert b"0.000 ?s" in out


def test_standard_output_closed(gradient: str) -> None:
    done = subprocess.run(
        f"{sys.executable} -m uetproto dissect {gradient} >&-", shell=True, stderr=subprocess.PIPE, check=True
    )
    assert done.stderr == b""


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("dissect - 2>&1 <&-", b"uetproto: -: standard input is closed [stdin-twice]\n"),
        ("dissect missing.pcap 2>&-", b""),  # not to standard output, where packets go
    ],
)
def test_standard_input_and_error_closed(line: str, said: bytes) -> None:
    done = subprocess.run(f"{sys.executable} -m uetproto {line}", shell=True, capture_output=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (2, said, b"")
