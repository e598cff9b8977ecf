# SPDX-License-Identifier: GPL-2.0-only
"""`uetproto fuzz`: what it prints, what it writes, and how it ends."""

import json
import os
import signal
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.cli.frames import invoke, program
from tests.support.each import each
from tests.support.effort import effort
from uetproto import UetError
from uetproto.check.finding import NOT_SHRUNK, FuzzFinding, folder_for, to_toml
from uetproto.check.fuzz import MACHINES, FuzzTally
from uetproto.check.toml_text import BELOW
from uetproto.check.uet.episode import PAYLOAD, UetEpisode, row
from uetproto.check.uet.simulator import UetSimulator
from uetproto.check.wire import ALL
from uetproto.cli import fuzz as module
from uetproto.cli.fuzz import MOST_JOBS, NOT_REPLAYED, FuzzPlan, keep, spread
from uetproto.cli.terminal import painter
from uetproto.emulator.scenario.settings import load
from uetproto.engine.config import PdsConfig
from uetproto.engine.contract import MILLISECOND, Mode
from uetproto.engine.pds.pdc_pool import Preset
from uetproto.engine.pds.psn_window import PsnWindow, Verdict
from uetproto.errors import MissingPackageError
from uetproto.steps.uet import ACTIONS, ANSWERS, MessageSpec, UetStep
from uetproto.wire.capture.pcap import open_capture

FINDING = FuzzFinding(
    machine="rud",
    seed="7/12",
    settings=UetEpisode(
        ({"mp_range": 128, "rto_init_time": 3 * MILLISECOND, "ar_on_eom": False}, {"clear_cmd": "immediate"}),
        99,
        (Preset(start_psn=0xFFFFFFFF), Preset(pdcid=5)),
    ),
    steps=(UetStep("submit", message=MessageSpec()), UetStep("deliver"), UetStep("deliver", number=1)),
    drawn=1834,
    text='pds 1: delivered twice "0x5"\nand more\x1b[31m',
    kind="pds 1",
)

# What is written ------------------------------------------------------------------------------------------------------

STEPS = [
    UetStep("submit", message=MessageSpec()),
    UetStep("submit", 1, message=MessageSpec(40, Mode.ROD, "read", 77, "return", True)),
    UetStep("submit", message=MessageSpec(1, Mode.UUD, message_id=0)),
    UetStep("submit", message=MessageSpec(2, Mode.RUDI, "write", 3, "later")),
    *(UetStep(action, number=5) for action in ("deliver", "drop", "dup", "trim", "mark")),
    UetStep("deliver", number=ALL),
    UetStep("trim", number=5, at=1),
    UetStep("submit", message=MessageSpec(context=2)),
    UetStep("corrupt", number=3, at=20),
    UetStep("advance", number=0),
    UetStep("advance", number=1_234_567),
    UetStep("advance", number=5 * MILLISECOND),
    UetStep("allow", number=3),
    UetStep("allow", 1, number=ALL),
    *(UetStep("respond", 1, 333, answer=answer) for answer in ANSWERS if answer not in ("later", "no_response")),
    *(UetStep(action, node) for action in ("close", "ask_close", "noop", "probe", "restart") for node in (0, 1)),
    *(UetStep(action, node, 7) for action in ("negotiate", "ask_credit", "give_credit", "lose") for node in (0, 1)),
    UetStep("inject", 0, data=bytes(range(12))),
    UetStep("inject", 1, data=b"\xff"),
]


def written(tmp_path: Path, finding: FuzzFinding) -> Path:
    path = tmp_path / "finding.toml"
    path.write_text(to_toml(finding), encoding="utf-8")
    return path


def test_all_actions_are_here() -> None:
    assert {step.action for step in STEPS} == set(ACTIONS)


@each("step", STEPS)
def test_a_step_is_read_as_it_was_written(step: UetStep, tmp_path: Path) -> None:
    scenario = load(str(written(tmp_path, replace(FINDING, steps=(step,)))))
    if step.action == "corrupt":  # of the frame
        step = step._replace(at=step.at + BELOW)
    assert [row.step for row in scenario.script] == [step]


def test_a_folder_is_tried_and_nothing_is_left_behind(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    for name in ("there", "new", "there/a/b"):
        assert folder_for(str(tmp_path / name)) == tmp_path / name
    assert [path.name for path in tmp_path.rglob("*")] == ["there"]


def test_settings_are_read_as_they_were_written(tmp_path: Path) -> None:
    scenario = load(str(written(tmp_path, FINDING)))
    assert (scenario.run.ses, scenario.run.seed, scenario.run.payload) == ("scripted", 99, PAYLOAD)
    assert scenario.run.description == 'pds 1: delivered twice "0x5"'
    for node, knobs, preset in zip(("a", "b"), FINDING.settings.knobs, FINDING.settings.presets, strict=True):
        assert scenario.nodes[node].pds == PdsConfig(**knobs)
        assert scenario.nodes[node].preset == preset


def test_the_head_of_a_file() -> None:
    lines = to_toml(replace(FINDING, only_objects=True)).splitlines()
    assert lines[:6] == [
        "# Found by `uetproto fuzz rud`, episode 7/12: 3 steps",
        "# of 1834, after shrinking.",
        "# Only without bytes: with packets encoded and decoded these steps do not fail.",
        '# pds 1: delivered twice "0x5"',
        "# and more\ufffd[31m",
        "",
    ]


def test_the_head_says_when_it_was_not_shrunk() -> None:
    assert to_toml(replace(FINDING, given_up=True)).splitlines()[1] == f"# of 1834, {NOT_SHRUNK}."


@pytest.mark.parametrize(
    ("picoseconds", "text"),
    [
        (0, "0 ps"),
        (999, "999 ps"),
        (1000, "1 ns"),
        (1500, "1500 ps"),
        (10**6, "1 us"),
        (3 * 10**9, "3 ms"),
        (60 * 10**12, "60 s"),
    ],
)
def test_times_have_their_largest_unit(picoseconds: int, text: str) -> None:
    assert row(UetStep("advance", number=picoseconds)) == {"advance": text}


@pytest.mark.parametrize(
    ("kind", "name"),
    [("pds 1", "pds-1-7-12"), ("IndexError in uet_pdc._ack", "indexerror-in-uet_pdc._ack-7-12"), ("../x", "..-x-7-12")],
)
def test_names_of_files(kind: str, name: str) -> None:
    assert replace(FINDING, kind=kind).name == name


# What is printed ------------------------------------------------------------------------------------------------------


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run with two findings of one kind, and one of another."""

    def fuzz(machine: str, seed: int, **more: Any) -> Iterator[FuzzTally]:
        yield FuzzTally(steps=1000, moves=1100, episodes=1, digest=1)
        yield FuzzTally(steps=500, moves=600, episodes=1, failed=1, digest=2, findings=[FINDING])
        yield FuzzTally(steps=400, moves=500, episodes=1, failed=1, digest=3, findings=[replace(FINDING, seed="7/13")])
        yield FuzzTally(steps=300, moves=400, episodes=1, failed=1, digest=4, findings=[replace(FINDING, kind="pds 2")])

    monkeypatch.setattr(module, "fuzz", fuzz)


def test_findings_for_programs(found: None, tmp_path: Path) -> None:
    result = invoke("fuzz", "rud", "--steps", "2200", "--seed", "7", "--jobs", "1", "-o", str(tmp_path), "--json")
    first, second, last = map(json.loads, result.stdout.splitlines())
    assert result.exit_code == 1
    assert result.stderr == ""
    assert (first["file"], first["text"], first["seed"]) == (f"{tmp_path}/pds-1-7-12.toml", FINDING.text, "7/12")
    assert second["file"] == f"{tmp_path}/pds-2-7-12.toml"
    assert sorted(path.name for path in tmp_path.glob("*.toml")) == ["pds-1-7-12.toml", "pds-2-7-12.toml"]
    assert last.pop("steps_per_second") > 0
    assert last == {
        "machine": "rud", "steps": 2200, "machine_steps": 2600, "findings": 2, "seed": 7, "jobs": 1, "episodes": 4,
        "failed": 3, "digest": "000000000000000a",
    }  # fmt: skip


def test_findings_for_people(found: None, tmp_path: Path) -> None:
    result = invoke("fuzz", "rud", "--steps", "2200", "--seed", "7", "--jobs", "1", "-o", str(tmp_path))
    lines = result.stdout.splitlines()
    assert result.exit_code == 1
    assert lines[0] == 'pds 1: delivered twice "0x5"'
    assert lines[1] == "  episode 7/12 of rud, 3 steps of 1,834"
    assert lines[2] == f"  {tmp_path}/pds-1-7-12.toml"
    assert lines[-1].startswith("rud: 2,600 steps in ")
    assert lines[-1].endswith(" a second with 1 process, seed 7; 2 findings in 3 of 4 episodes")


def test_what_people_are_told_of_an_unfinished_finding(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """That it is as it was found, and was not replayed to its end: here a replay that would hang."""
    monkeypatch.setattr(UetSimulator, "finish", hang)
    finding = replace(FINDING, given_up=True)
    kept = keep(finding, tmp_path, lambda: True)
    assert kept.replay == NOT_REPLAYED
    module._tell(finding, kept, False, painter())
    lines = capsys.readouterr().out.splitlines()
    assert lines[2:] == [f"  {NOT_SHRUNK}", f"  {tmp_path}/pds-1-7-12.toml", f"  {NOT_REPLAYED}"]


def hang(world: UetSimulator) -> None:
    """What comes after the steps takes for ever."""
    while True:
        world.steps += 1


def test_a_replay_that_finds_nothing(tmp_path: Path) -> None:
    """Not even when a message was lost on the way, which is no fault of anybody."""
    kept = keep(
        replace(FINDING, steps=(UetStep("submit", message=MessageSpec()), UetStep("drop"))), tmp_path, lambda: False
    )
    assert kept.replay == ""


def test_the_capture_of_a_finding(found: None, tmp_path: Path) -> None:
    invoke("fuzz", "--jobs", "1", "-o", str(tmp_path))
    with open_capture(tmp_path / "pds-1-7-12.pcapng") as records:
        assert len(list(records)) == 2  # a request and its ACK


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["xyz"], f"uetproto: xyz: no such machine; legal: {', '.join([*MACHINES][:3])}, … ("),
        (["rud", "rod"], "unexpected extra argument"),
        (["--seconds", "0"], "--seconds"),
        (["--steps", "0"], "--steps"),
        (["--jobs", "0"], "--jobs"),
        (["--jobs", str(MOST_JOBS + 1), "--steps", "1"], f"not in the range 1<=x<={MOST_JOBS}"),
        (["--seed", "-1"], "--seed"),
        (["--steps", "1", "--seconds", "1"], "--seconds and --steps exclude each other"),
        (["-o", __file__], f"-o {__file__}: is not a folder; legal: a folder"),
        (["-o", f"{__file__}/x/y", "--steps", "1"], f"-o {__file__}/x/y: Not a directory; legal: a folder that can be"),
        (["-o", "/proc", "--steps", "1"], "-o /proc: "),
        (["-o", "/proc/findings/x", "--steps", "1"], "-o /proc/findings/x: "),
    ],
)
def test_misuse(arguments: list[str], said: str) -> None:
    result = invoke("fuzz", *arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert said in result.stderr


# Real runs ------------------------------------------------------------------------------------------------------------


def played(*arguments: str) -> list[dict[str, Any]]:
    """Findings, and at the end the summary."""
    result = invoke("fuzz", *arguments, "--json")
    lines: list[dict[str, Any]] = [json.loads(line) for line in result.stdout.splitlines()]
    assert result.exit_code == (1 if lines[-1]["findings"] else 0), result.stderr
    return lines


def duplicates_are_new(self: PsnWindow, psn: int) -> Verdict:
    """Breaks pds.md §8.1."""
    verdict = CLASSIFY(self, psn)
    return Verdict.NEW if verdict is Verdict.DUPLICATE else verdict


def duplicates_raise(self: PsnWindow, psn: int) -> Verdict:
    """Breaks architecture.md rule 5."""
    verdict = CLASSIFY(self, psn)
    return {Verdict.NEW: verdict}[verdict] if verdict in (Verdict.NEW, Verdict.DUPLICATE) else verdict


CLASSIFY = PsnWindow.classify


@pytest.mark.parametrize(
    ("rule", "text"),
    [(duplicates_are_new, "pds 1: delivered twice 0x"), (duplicates_raise, "pds 48: KeyError: ")],
)
def test_a_broken_rule_is_found_and_replayed(
    rule: Callable[[PsnWindow, int], Verdict], text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Found, made small, written; `uetproto run` fails in the same way, and not once the rule is whole again."""
    monkeypatch.setattr(PsnWindow, "classify", rule)
    seed = effort(7, 4, 4)  # of 4, the settings take ten thousand tries to shrink
    findings = played("rud", "--steps", "1000", "--seed", str(seed), "--jobs", "1", "-o", str(tmp_path))[:-1]
    found = next(one for one in findings if one["text"].startswith(text))
    assert found["steps"] <= 20
    assert found["replay"].startswith(text)
    assert not found["only_objects"]
    with open_capture(found["capture"]) as records:
        assert list(records)
    result = invoke("run", found["file"], "--check")
    assert result.exit_code == 1
    assert text in result.stdout
    monkeypatch.undo()
    assert text not in invoke("run", found["file"], "--check").stdout


def test_one_seed_one_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("uetproto.check.fuzz.EFFORT", -1)  # what is found, if anything, need not be small

    def digest(seed: str) -> tuple[str, list[dict[str, Any]]]:
        *findings, last = played("mixed", "--steps", "1500", "--seed", seed, "--jobs", "1", "-o", str(tmp_path))
        assert last["steps"] == 1500
        return last["digest"], findings

    first = digest("7")
    assert first == digest("7")
    assert first[0] != digest("8")[0]


def test_nothing_is_written_where_nothing_is_found(tmp_path: Path) -> None:
    *findings, last = played("uud", "--steps", "500", "--jobs", "1", "-o", str(tmp_path / "none"))
    assert (findings, last["failed"]) == ([], 0)
    assert not (tmp_path / "none").exists()


def test_processes_share_the_steps(tmp_path: Path) -> None:
    last = played("rudi", "--steps", "3001", "--jobs", "2", "--seed", "1", "-o", str(tmp_path))[-1]
    assert (last["machine"], last["steps"], last["jobs"], last["seed"]) == ("rudi", 3001, 2, 1)


def test_time_is_up(tmp_path: Path) -> None:
    assert played("rudi", "--seconds", "1", "--jobs", "1", "-o", str(tmp_path))[-1]["steps"] > 0


def test_processes_end_when_they_are_told() -> None:
    total = FuzzTally()
    for tally in spread(FuzzPlan("rudi", 1, None, 1_000_000, 2), lambda: total.steps > 0):
        total.add(tally)
    assert total.steps > 0


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_interrupted(jobs: str, tmp_path: Path) -> None:
    """On a terminal, where progress says when it has begun; it ends in good order."""
    terminal, theirs = os.openpty()
    options = ("--seconds", "600", "--jobs", jobs, "--json", "-o", str(tmp_path))
    with (
        program("fuzz", "rudi", *options, stderr=theirs, start_new_session=True) as process,
        os.fdopen(terminal, "rb", 0) as seen,
    ):
        os.close(theirs)
        while b" a second, " not in seen.read(1 << 16):
            pass
        os.killpg(process.pid, signal.SIGINT)  # as Ctrl-C does
        out, _ = process.communicate(timeout=60)
        assert process.returncode == 130
        assert b"Traceback" not in seen.read(1 << 16)
    assert json.loads(out.splitlines()[-1])["steps"] > 0


@pytest.mark.parametrize("end", ["time", "Ctrl-C"])
def test_it_ends_at_once_while_it_shrinks(end: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An attempt that does not fail would take for ever; what was found is written as it is."""
    finish = UetSimulator.finish

    def slow(world: UetSimulator) -> None:
        if world.objects:
            finish(world)
        elif end == "time":
            hang(world)
        else:
            os.kill(os.getpid(), signal.SIGINT)
            hang(world)

    monkeypatch.setattr(PsnWindow, "classify", duplicates_are_new)
    monkeypatch.setattr(UetSimulator, "finish", slow)
    seconds = "1" if end == "time" else "1000000"
    result = invoke("fuzz", "rud", "--seconds", seconds, "--seed", "4", "--jobs", "1", "-o", str(tmp_path), "--json")
    finding, last = map(json.loads, result.stdout.splitlines())
    assert result.exit_code == (1 if end == "time" else 130)
    assert (finding["given_up"], last["findings"]) == (True, 1)
    assert NOT_SHRUNK in Path(finding["file"]).read_text(encoding="utf-8")


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_a_closed_pipe_ends_silently(jobs: str, tmp_path: Path) -> None:
    with program("fuzz", "uud", "--steps", effort("100", "500", "500"), "--jobs", jobs, "-o", str(tmp_path)) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(30) == 0


def test_a_worker_that_dies(capfd: pytest.CaptureFixture[str]) -> None:
    """It tells why, and the others are ended."""
    with pytest.raises(UetError, match="a worker ended with status 1"):
        list(spread(FuzzPlan("no such machine", 1, None, 600, 2), lambda: False))
    assert "no such machine" in capfd.readouterr().err


def test_an_error_of_a_worker_is_told_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """A package that is there and cannot be imported is found only by the workers: one error, no traceback."""
    (tmp_path / "cryptography").mkdir()
    (tmp_path / "cryptography" / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(MissingPackageError, match="security: needs the package cryptography"):
        list(spread(FuzzPlan("tss", 1, None, 600, 2), lambda: False))
    assert capfd.readouterr().err == ""
