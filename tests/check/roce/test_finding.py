# SPDX-License-Identifier: GPL-2.0-only
"""What the fuzzer finds between two queue pairs is written as a scenario, read again, and replayed on real frames."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.cli.frames import invoke
from tests.support.each import each
from uetproto.check.finding import FuzzFinding, to_toml
from uetproto.check.roce.episode import RoceEpisode, simpler
from uetproto.check.toml_text import BELOW
from uetproto.check.wire import ALL
from uetproto.emulator.scenario.settings import load
from uetproto.engine.contract import MILLISECOND
from uetproto.engine.roce.config import RoceConfig
from uetproto.engine.roce.contract import Access, Opcode, QpState, QpType, SendFlags
from uetproto.engine.roce.responder import RcResponder
from uetproto.engine.roce.segments import KINDS, MessageStep
from uetproto.errors import LocalError
from uetproto.steps.roce import ACTIONS, FLAGS, RECV_FAULTS, SEND_FAULTS, RoceStep, SendSpec
from uetproto.wire.capture.pcap import open_capture

FINDING = FuzzFinding(
    machine="rc",
    seed="7/12",
    settings=RoceEpisode(
        ({"ack_delay": 3 * MILLISECOND, "credits": False}, {"atomic_order": "big"}),
        QpType.RC,
        ({"path_mtu": 256, "sq_psn": 0xFFFFFF, "retry_cnt": 3}, {"path_mtu": 256, "sq_psn": 5, "srq": True}),
    ),
    steps=(RoceStep("recv", 1, 2048), RoceStep("send", number=700), RoceStep("deliver", number=ALL)),
    drawn=1834,
    text="roce 3: twice",
    kind="roce 3",
)

STEPS = [
    *(RoceStep("send", number=8, send=SendSpec(opcode)) for opcode in KINDS),
    *(RoceStep("send", number=8, send=SendSpec(flags=SendFlags.SIGNALED ^ flag)) for flag in FLAGS.values()),
    *(RoceStep("send", number=8, send=SendSpec(fault=fault)) for fault in SEND_FAULTS if fault),
    RoceStep("send", 1, 700, at=300, send=SendSpec(Opcode.ATOMIC_CMP_AND_SWP, add=2**64 - 1, compare=2**63)),
    RoceStep("recv", 1, 2048, at=40),
    *(RoceStep("recv", 0, 5, fault=fault) for fault in RECV_FAULTS),
    *(RoceStep(action, number=5) for action in ("deliver", "drop", "dup", "mark")),
    RoceStep("deliver", number=ALL),
    RoceStep("corrupt", number=3, at=20),
    RoceStep("advance", number=0),
    RoceStep("advance", number=1_234_567),
    RoceStep("allow", number=3),
    RoceStep("allow", 1, number=ALL),
    *(RoceStep("modify", 1, state=s) for s in (QpState.RTS, QpState.SQD, QpState.ERR, QpState.RESET)),
    RoceStep("modify", attributes=(("access_flags", Access.LOCAL_WRITE | Access.REMOTE_READ), ("timeout", 0))),
    RoceStep("connect", number=0xFFFFFD),
    RoceStep("inject", 1, data=bytes(range(12))),
]


def written(tmp_path: Path, finding: FuzzFinding) -> Path:
    path = tmp_path / "finding.toml"
    path.write_text(to_toml(finding), encoding="utf-8")
    return path


def test_all_actions_are_here() -> None:
    assert {step.action for step in STEPS} == set(ACTIONS)


@each("step", STEPS)
def test_a_step_is_read_as_it_was_written(step: RoceStep, tmp_path: Path) -> None:
    scenario = load(str(written(tmp_path, replace(FINDING, steps=(step,)))))
    if step.action == "corrupt":  # of the frame
        step = step._replace(at=step.at + BELOW)
    if step.action == "send" and step.send is None:
        step = step._replace(send=SendSpec())
    assert [row.step for row in scenario.script] == [step]


def test_settings_are_read_as_they_were_written(tmp_path: Path) -> None:
    scenario = load(str(written(tmp_path, FINDING)))
    assert scenario.nodes["a"].roce == RoceConfig(**FINDING.settings.knobs[0])
    assert scenario.nodes["b"].roce == RoceConfig(**FINDING.settings.knobs[1])
    a, b = (scenario.qps[name] for name in "ab")
    assert (a.sq_psn, a.srq, a.attributes["retry_cnt"]) == (0xFFFFFF, None, 3)
    assert (b.sq_psn, b.srq, b.attributes["path_mtu"]) == (5, "shared", 256)


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ('deliver = 5', "frame 5 is not on the wire"),
        ('send = 700\nopcode = "RDMA_READ"\nfault = "qkey"', "fault: 'qkey' is not legal with RDMA_READ of 700 bytes"),
        ('modify = "RTR"', "modify: 'RTR' is not legal; legal: RTS, SQD, ERR, RESET"),
        ('recv = 8\nnode = "c"', "no such node: 'c'; legal: a, b"),
        ('recv = 8\nfault = "rkey"', "fault: 'rkey' is not legal; legal: lkey"),
        ('send = 8\nat = 5', "at: does not go with send"),
        ("corrupt = 0", "corrupt needs at"),
        ("dup = 9", "packet 9 cannot be copied"),
        ("send = 60000", "send: 60000 bytes; legal: 0 … 2048"),
    ],
)  # fmt: skip
def test_misuse(rows: str, said: str, tmp_path: Path) -> None:
    path = written(tmp_path, replace(FINDING, steps=()))
    path.write_text(path.read_text() + f"\n[[step]]\n{rows}\n")
    result = invoke("run", str(path))
    assert result.exit_code == 2
    assert said in result.stderr


@pytest.mark.parametrize(
    ("change", "said"),
    [('input = "x"', "run.input: does not go with rows [[step]]"), ('mode = "rod"', "run.mode: does not go with")],
)
def test_what_does_not_go_with_steps(change: str, said: str, tmp_path: Path) -> None:
    path = written(tmp_path, FINDING)
    path.write_text(path.read_text().replace("[run]", f"[run]\n{change}"))
    with pytest.raises(LocalError, match=said.replace("[", r"\[")):
        load(str(path))


def test_a_script_is_played_on_real_frames(tmp_path: Path) -> None:
    """A lost packet, a damaged one, a marked one: the bytes arrive, and nothing is found."""
    steps = (
        RoceStep("recv", 1, 2048),
        RoceStep("send", number=700),
        RoceStep("drop", number=1),
        RoceStep("deliver", number=ALL),
        RoceStep("corrupt", number=3, at=12),
        RoceStep("advance", number=2 * MILLISECOND),
        RoceStep("mark", number=6),
        RoceStep("deliver", number=ALL),
        RoceStep("deliver", number=ALL),
    )
    path = written(tmp_path, replace(FINDING, steps=steps))
    result = invoke("run", str(path), "--check", "--json", "--tap", "all", "-o", str(tmp_path / "a.pcapng"))
    found = json.loads(result.stdout)
    assert result.exit_code == 0, result.stdout
    assert (found["match"], found["bytes"], found["findings"]) == (True, 700, [])
    assert found["happened"] == {"bad_crc": 1}
    assert found["retransmissions"] > 0
    with open_capture(tmp_path / "a.pcapng") as records:
        assert len(list(records)) == found["checked"]


def duplicates_act(self: RcResponder, parsed: Any, now: int) -> None:
    """Breaks roce.md §15 item 3."""
    if parsed.step is MessageStep.ATOMIC:
        self._atomic(parsed)
    else:
        DUPLICATE(self, parsed, now)


def duplicates_raise(self: RcResponder, parsed: Any, now: int) -> None:
    raise KeyError("duplicate")


DUPLICATE = RcResponder._take_duplicate


@pytest.mark.parametrize(
    ("rule", "text"), [(duplicates_act, "roce 3: an ATOMIC acts"), (duplicates_raise, "KeyError: 'duplicate'")]
)
def test_a_broken_rule_is_found_and_replayed(
    rule: Any, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Found, made small, written; `uetproto run` fails in the same way, and not once the rule is whole again."""
    monkeypatch.setattr(RcResponder, "_take_duplicate", rule)
    result = invoke("fuzz", "rc", "--steps", "1500", "--seed", "1", "--jobs", "1", "--json", "-o", str(tmp_path))
    findings = [json.loads(line) for line in result.stdout.splitlines()][:-1]
    found = next(one for one in findings if one["text"].startswith(text))
    assert found["steps"] <= 8
    assert found["replay"].startswith(text)
    with open_capture(found["capture"]) as records:
        assert list(records)
    monkeypatch.undo()
    again = invoke("run", found["file"], "--check")
    assert text not in again.stdout + again.stderr
    assert "0 findings" in again.stdout


def test_simpler_steps_come_to_an_end() -> None:
    for step in STEPS:
        seen = {step}
        found = [step]
        while found:
            one = next((s for s in simpler(found.pop()) if s not in seen), None)
            if one is not None:
                assert one != step
                seen.add(one)
                found.append(one)
        assert len(seen) < 100
