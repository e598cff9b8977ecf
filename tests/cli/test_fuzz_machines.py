# SPDX-License-Identifier: GPL-2.0-only
"""`uetproto fuzz MACHINE --adapter …` on implementations with faults, and `uetproto run` with what it found."""

import json
import subprocess
import sys
from functools import partialmethod
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.support.cli.frames import invoke
from uetproto.cli import fuzz as command
from uetproto.engine.sharp.host.endpoint import SharpHost
from uetproto.testing.machines.finding import FindingFile, MachineFailure, MachineFinding, keep
from uetproto.testing.machines.machine import PlayedMachine, legal_values, strategies_of
from uetproto.testing.machines.named import PLACES, machine_named, machines_named
from uetproto.testing.machines.search import Round
from uetproto.wire.capture.pcap import open_capture

RUNS = settings(database=None, derandomize=True, deadline=None, suppress_health_check=list(HealthCheck))
BROKEN = "tests.testing.machines.broken"


def fuzzed(*arguments: str, machine: str = "pdc") -> tuple[int, list[dict[str, Any]]]:
    """Exit status; findings, and at the end the summary."""
    result = invoke("fuzz", machine, *arguments, "--json")
    return result.exit_code, [json.loads(line) for line in result.stdout.splitlines()]


@pytest.fixture
def shortened_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is found only loses the steps that it does not need, which takes a tenth of the time."""
    monkeypatch.setattr(Round, "__init__", partialmethod(Round.__init__, shrinks=False))


def test_a_fault_is_found_written_and_played_again(tmp_path: Path) -> None:
    status, lines = fuzzed("--adapter", f"{BROKEN}:Foreign", "--steps", "500", "--seed", "7", "-o", str(tmp_path))
    assert (status, len(lines)) == (1, 2), lines
    finding, last = lines
    assert (finding["rule"], finding["replay"], finding["given_up"]) == ("FRAME", finding["text"], False)
    assert finding["steps"] <= 3
    assert (last["steps"], last["findings"]) == (500, 1)
    assert last["times"]["FRAME"] == last["failed"] > 1  # one of its name is written, all are counted
    with open_capture(finding["capture"]) as records:
        assert len(list(records)) >= 1
    assert "10.0.0.1 is the implementation" in Path(finding["ladder"]).read_text("utf-8")

    again = invoke("run", finding["file"])
    assert (again.exit_code, "FRAME: no frame of the protocol" in again.stdout) == (1, True), again.output
    mended = invoke("run", finding["file"], "--set", "run.adapter=pdc", "-o", str(tmp_path / "again.pcap"))
    assert (mended.exit_code, "no longer fails" in mended.stdout) == (0, True), mended.output
    with open_capture(tmp_path / "again.pcap") as records:
        assert len(list(records)) > 1


@pytest.mark.usefixtures("shortened_only")
def test_tss_of_somebody_else_is_driven_by_its_machine(tmp_path: Path) -> None:
    adapter = "tests.testing.machines.broken_tss:CounterStays"
    status, (finding, last) = fuzzed(
        "--adapter", adapter, "--steps", "400", "--seed", "1", "-o", str(tmp_path), machine="tss"
    )
    assert (status, finding["rule"], last["steps"]) == (1, "TSS-NONCE-REUSED", 400)
    assert invoke("run", finding["file"]).exit_code == 1
    assert invoke("run", finding["file"], "--set", "run.adapter=tss").exit_code == 0


def test_one_seed_one_run(tmp_path: Path) -> None:
    first, again, other = (fuzzed("--steps", "100", "--seed", seed, "-o", str(tmp_path)) for seed in "778")
    assert (first[0], first[1][-1]["steps"], first[1][-1]["findings"]) == (0, 100, 0)
    assert first[1][-1]["digest"] == again[1][-1]["digest"] != other[1][-1]["digest"]
    assert list(tmp_path.iterdir()) == []


def test_machines_take_turns(tmp_path: Path) -> None:
    status, (last,) = fuzzed("--steps", "600", "--seed", "1", "-o", str(tmp_path), machine="ses")
    assert (status, last["machine"], last["steps"], last["findings"]) == (0, "ses", 600, 0)
    assert last["episodes"] >= 12  # 10 of the one, the rest of the other
    assert [kind.name for kind in machines_named("ses")] == ["ses_target", "ses_initiator"]


def test_what_a_black_box_hides_is_told(tmp_path: Path) -> None:
    result = invoke("fuzz", "pdc", "--adapter", f"{BROKEN}:BlackBox", "--steps", "50", "-o", str(tmp_path))
    assert result.exit_code == 0, result.output
    told = result.stdout.splitlines()[-1]
    assert told.startswith("not judged: ")
    assert "PDC-CACK-FORWARD, PDC-CLEAR-FORWARD, PDC-WINDOW (observe gives no PDCs)" in told


def test_a_command_that_ends_is_a_finding(tmp_path: Path) -> None:
    adapter = f"{sys.executable} -c 'import sys; sys.exit(3)'"
    status, (finding, _) = fuzzed("--adapter", adapter, "--steps", "5", "-o", str(tmp_path))
    assert (status, finding["rule"], finding["capture"]) == (1, "adapter-died", None)
    assert invoke("run", finding["file"]).exit_code == 1


HANGS = """
import os, signal
from uetproto.testing import PdcEngine

class Adapter(PdcEngine):
    def deliver(self, frame):
        for _ in range(2):
            os.kill(os.getpid(), signal.SIGTERM)
"""


def test_a_second_signal_within_a_call_of_the_adapter_is_no_fault_of_it(tmp_path: Path) -> None:
    (tmp_path / "hangs.py").write_text(HANGS)
    command = [sys.executable, "-m", "uetproto", "fuzz", "pdc", "--adapter", "hangs:Adapter", "--steps", "500"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (143, "", "")


@pytest.mark.usefixtures("shortened_only")
def test_our_engines_in_a_fabric_are_driven_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def twice(host: SharpHost) -> list[object]:
        return [event for event in events(host) for _ in range(2)]

    events = SharpHost.events
    monkeypatch.setattr(SharpHost, "events", twice)
    status, lines = fuzzed("--steps", "300", "--seed", "1", "-o", str(tmp_path), machine="sharp")
    assert status == 1
    assert lines[0]["rule"] == "SHARP-ENDS-ONCE", lines[0]["text"]
    assert lines[0]["steps"] <= 8
    again = invoke("run", lines[0]["file"])
    assert again.exit_code == 1
    assert "├──────▶│" in again.stdout
    assert "GROUP_JOIN_REQ tree 0 group 7 seq 0" in again.stdout
    monkeypatch.undo()
    assert invoke("run", lines[0]["file"]).exit_code == 0


@pytest.mark.parametrize("name", PLACES)
def test_steps_are_read_as_they_were_written(name: str, tmp_path: Path) -> None:
    played = []
    kind = machine_named(name)

    def note(machine: PlayedMachine) -> None:
        kind.teardown(machine)
        played.append(machine.played)

    try:
        watched = type("Noted", (kind,), {"teardown": note, "__module__": __name__})
        run_state_machine_as_test(watched, settings=settings(RUNS, max_examples=2, stateful_step_count=20))
    finally:
        watched.release()
    for steps in played:
        path = keep(MachineFinding(name, None, "1/0", MachineFailure("x", 'a "text"\n', tuple(steps)), 3), tmp_path)
        file = FindingFile(path)
        assert file.steps(file.machine()) == [(rule, dict(arguments)) for rule, arguments in steps]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["sharp", "--adapter", f"{BROKEN}:Deaf"], "--adapter: sharp drives our engines only; legal: no --adapter"),
        (["pdc", "--adapter", "nothing"], "'nothing': is no adapter; legal: pdc, "),
        (["pdc", "--adapter", "no.such:Stack"], "no.such:Stack: the module is not imported: No module named 'no'"),
        (["pdc", "--adapter", f"{BROKEN}:Stack"], "has no attribute 'Stack'"),
        (["pdc", "--adapter", "pathlib:PurePath"], "--adapter: PurePosixPath('.') is no adapter"),
        (
            ["rud", "--adapter", f"{BROKEN}:Deaf"],
            "no machine for it; legal: pdc, roce, ses_initiator, ses_target, sharp_node, tss, ses [not-with-machine]\n",
        ),
        (["pdc", "--steps", "1", "--seconds", "1"], "--seconds and --steps exclude each other"),
        (["pdc", "--jobs", "2"], "--jobs: does not go with pdc"),
        (["pdc", "--episode", "2", "--seed", "1"], "--episode: does not go with pdc"),
        (["pdcs"], "pdcs: no such machine (did you mean pdc?)"),
    ],
)
def test_misuse(arguments: list[str], said: str) -> None:
    result = invoke("fuzz", *arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert said in result.stderr


def test_a_module_that_is_no_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "no_python_at_all.py").write_text("class:", "utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    result = invoke("fuzz", "pdc", "--adapter", "no_python_at_all:Stack")
    assert result.exit_code == 2
    assert "no_python_at_all:Stack: the module is not imported: SyntaxError" in result.stderr


def test_without_hypothesis_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "HYPOTHESIS", False)
    monkeypatch.setattr(command, "TESTED", ())
    result = invoke("fuzz", "pdc")
    assert result.exit_code == 2
    assert "fuzz pdc: needs the package hypothesis" in result.stderr
    assert "'uetproto[testing]'" in result.stderr


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[run]\nmachine = "pdcs"', ":2: machine: 'pdcs' is no machine (did you mean pdc?); legal: pdc, "),
        ('[run]\nmachine = "pdc"\nspeed = 1', ":3: run.speed: is no key of a finding; legal: machine, adapter"),
        ('[run]\nmachine = "pdc"\nadapter = "x"', ":3: 'x': is no adapter; legal: pdc, "),
        ('[run]\nmachine = "pdc"\n[pds]', ":3: pds: is no key of a finding; legal: run, step"),
        ('[run]\nmachine = "pdc"\n[[step]]\nrule = "begun"', ":4: step.0.rule: 'begun' is no rule of pdc (did"),
        ('[run]\nmachine = "pdc"\n[[step]]\nindex = 1', ":3: step.0.rule: is missing; legal: begin, "),
        ('[run]\nmachine = "pdc"\n[[step]]\nrule = "drop"\nat = 1', ":5: step.0.at: is no argument of drop; legal: "),
        ('[run]\nmachine = "pdc"\n[[step]]\nrule = "drop"', ":3: step.0.index: is missing: drop needs it; legal:"),
        ('[run]\nmachine = "pdc"\n[[step]]\nrule = "exchange"\nnode = 2\nmode = "rud"',
         ":5: step.0.node: 2 is not legal; legal: 0 … 1"),
        ('[run]\nmachine = "pdc"\n[[step]]\nrule = "exchange"\nnode = 0\nmode = "rux"',
         ":6: step.0.mode: 'rux' is not legal; legal: rud, rod"),
        ('[run]\nmachine = "pdc"\n[[step]]\nrule = "wait"\nduration = -1', ":5: step.0.duration: -1 is not legal"),
        ('[run]\nmachine = "pdc"\n[[step]]\nrule = "begin"\nseed = 0\nknobs = {max_pdcs = "x"}',
         ":6: step.0.knobs: {'max_pdcs': 'x'} is not legal; legal: for max_pdcs 0 … 1000"),
        ('[run]\nmachine = "pdc"\n[[step]]\nrule = "begin"\nseed = 0\nknobs = {speed = 1}', "and not 'speed'"),
    ],
)  # fmt: skip
def test_wrong_findings(text: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "finding.toml"
    path.write_text(text, "utf-8")
    result = invoke("run", str(path))
    assert (result.exit_code, result.stdout) == (2, "")
    assert str(path) in result.stderr
    assert said in result.stderr


@pytest.mark.parametrize("name", PLACES)
def test_arguments_of_rules_are_checked(name: str) -> None:
    """Of what the strategies draw; two do not tell it, a tuple and a permutation."""
    rules = machine_named(name).steps.items()
    arguments = {(rule, key): drawn for rule, play in rules for key, drawn in strategies_of(play).items()}
    left_out = {key for key, drawn in arguments.items() if legal_values(drawn, object()) is None}
    assert arguments
    assert left_out <= {("begin", "psns"), ("everybody", "order")}
