# SPDX-License-Identifier: GPL-2.0-only
"""Scripted runs: `[[step]]` rows say what happens on the wire."""

from pathlib import Path

import pytest

from uetproto import LocalError, decode
from uetproto.emulator.run.play import run
from uetproto.emulator.run.result import RunResult
from uetproto.emulator.scenario.settings import SHIPPED, load
from uetproto.wire.capture.pcap import open_capture

HEAD = (SHIPPED / "gradient.toml").read_text(encoding="utf-8")


def script(steps: str) -> str:
    """One row a line; what is behind a semicolon belongs to it."""
    rows = (row.strip().replace("; ", "\n") for row in steps.strip().splitlines())
    return "\n".join(f"[[step]]\n{row}" for row in rows)


def play(tmp_path: Path, steps: str, head: str = HEAD) -> tuple[RunResult, list[str]]:
    """The result, and what passed the ports of both nodes: the PDS forms."""
    path = tmp_path / "script.toml"
    path.write_text(head + "\n" + script(steps), encoding="utf-8")
    capture = tmp_path / "script.pcapng"
    result = run(load(str(path), ["tap.nodes=all"]), output=str(capture), check=True)
    with open_capture(capture) as reader:
        forms = [next(layer.form for layer in decode(r.data).layers if layer.form.startswith("pds.")) for r in reader]
    return result, forms


def refusal(tmp_path: Path, steps: str, head: str = HEAD) -> str:
    with pytest.raises(LocalError) as caught:
        play(tmp_path, steps, head)
    return str(caught.value).removeprefix(f"{tmp_path}/")


def test_all_goes_well(tmp_path: Path) -> None:
    steps = """submit = "all"
        deliver = [0, 1, 2]
        deliver = "all"
        deliver = "all"
        deliver = "all" """
    result, forms = play(tmp_path, steps)
    assert result.ok, result
    assert result.bytes == 12_288
    assert forms.count("pds.rod_req.syn") == 6  # sent and received
    assert forms.count("pds.cp") == 2
    assert result.virtual_time_ps == 0


def test_loss_is_repaired_when_time_passes(tmp_path: Path) -> None:
    steps = """submit = 1000
        drop = 0
        advance = "999 us"
        advance = "1 us"
        deliver = 1
        deliver = "all" """
    result, _ = play(tmp_path, steps)
    assert result.ok, result
    assert (result.bytes, result.retransmissions) == (1000, 1)


def test_dup_trim_corrupt(tmp_path: Path) -> None:
    """Frames 0, 1, 2; 0 twice, 1 cut, 2 damaged; then what was lost comes again."""
    steps = """submit = "all"
        dup = 0
        trim = 1
        corrupt = 2; at = 100
        deliver = [0, 3, 1, 2]
        deliver = "all"
        deliver = "all"
        advance = "2 ms"
        deliver = "all"
        deliver = "all"
        deliver = "all"
        deliver = "all" """
    result, _ = play(tmp_path, steps)
    assert result.match, result
    assert result.nacks == 1
    assert result.retransmissions >= 2
    assert result.happened == {"bad_crc": 1}


def test_respond(tmp_path: Path) -> None:
    steps = """submit = 4096
        respond = 0x12000; gtd = true; code = "BAD_MKEY"
        deliver = 0
        deliver = "all" """
    result, _ = play(tmp_path, steps)
    assert result.failure == "message 1: BAD_MKEY"
    assert not result.match
    result, _ = play(tmp_path, steps.replace("gtd = true", "gtd = false").replace("BAD_MKEY", "OK"))
    assert (result.failure, result.match) == (None, False)  # acknowledged, and yet not written


def test_an_answer_to_what_never_comes_fails_the_run(tmp_path: Path) -> None:
    rows = 'respond = 5; gtd = true\nsubmit = 4096\ndeliver = 0\ndeliver = "all"\ndeliver = "all"\ndeliver = "all"'
    result, _ = play(tmp_path, rows)
    assert result.match
    assert not result.ok
    assert result.failure == f"{tmp_path}/script.toml:37: step.0: PSN 5 (0x5) did not come before the last step"
    result, _ = play(tmp_path, "submit = 1\nrespond = 5; gtd = true")
    assert result.failure is not None
    assert result.failure.startswith("1 messages are not complete after the last step; ")
    assert "step.1: PSN 5" in result.failure


def test_not_complete_at_the_end(tmp_path: Path) -> None:
    result, _ = play(tmp_path, "submit = 1\nsubmit = 2\ndeliver = 0")
    assert result.failure == "2 messages are not complete after the last step"
    assert result.bytes == 3


def test_established_pdc(tmp_path: Path) -> None:
    """`[preset]` puts both ends into the middle of a PDC's life (pds.md §19)."""
    head = (
        HEAD.replace("[preset.rank0]\nstart_psn = 0x12000", "")
        + """
[preset.rank0]
pdcid = 7
peer_pdcid = 3
forward_next = 333
return_next = 48
[preset.rank2]
pdcid = 3
peer_pdcid = 7
forward_next = 333
return_next = 48
"""
    )
    result, forms = play(tmp_path, 'submit = 100\ndeliver = 0\ndeliver = "all"\ndeliver = "all"\ndeliver = "all"', head)
    assert result.ok, result
    assert "pds.rod_req" in forms
    with open_capture(tmp_path / "script.pcapng") as reader:
        values = decode(next(iter(reader)).data)["pds.rod_req"]
    assert (values["psn"], values["spdcid"], values["dpdcid"], values["clear_psn_offset"]) == (333, 7, 3, -1)


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        ("deliver = 0", ":37: step.0: frame 0 is not on the wire; nothing is"),
        ("submit = 10\ndrop = 0\ndrop = 0", ":41: step.2: frame 0 is not on the wire; nothing is"),
        ("submit = 10\ncorrupt = 0", ":39: step.1: corrupt needs at; legal: a whole number, 0 … 65535"),
        ("submit = 20000", ":37: step.0: the input has only 12288 bytes left"),
        ('submit = "some"', ":38: step.0.submit: 'some' is not legal; legal: bytes, or \"all\""),
        ("submit = 1\nfly = 1", ":40: step.1.fly: unknown key; legal: submit, deliver, drop"),
        (
            "at = 1",
            ":37: step.0: has 0 actions; legal: one of submit, deliver, drop, dup, trim, corrupt, advance, respond",
        ),
        ("advance = -1", ":38: step.0.advance: -1 is not legal; legal: a time such as"),
        ("deliver = [1, -2]", ":38: step.0.deliver: [1, -2] is not legal; legal: a frame number counted from 0"),
    ],
)
def test_refusals(tmp_path: Path, steps: str, message: str) -> None:
    assert refusal(tmp_path, steps).startswith(f"script.toml{message}")


def test_not_with_faults(tmp_path: Path) -> None:
    assert "a script leaves nothing to chance" in refusal(tmp_path, "submit = 1", HEAD + "\n[faults]\ndrop = 0.1\n")


def test_half_a_preset(tmp_path: Path) -> None:
    head = HEAD + "\nforward_next = 5\n"
    assert "also needs pdcid, peer_pdcid, return_next" in refusal(tmp_path, "submit = 1", head)
