# SPDX-License-Identifier: GPL-2.0-only
"""Scripts with scripted SES on real frames: what steps do on the wire, what the taps see, what the result says."""

import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from uetproto import LocalError, Packet, decode
from uetproto.check.finding import FuzzFinding, to_toml
from uetproto.check.toml_text import BELOW
from uetproto.check.uet.episode import UetEpisode
from uetproto.check.wire import ALL, HISTORY
from uetproto.emulator.run.play import run
from uetproto.emulator.run.result import RunResult
from uetproto.emulator.run.uet_script import UetScript
from uetproto.emulator.scenario.settings import load, names
from uetproto.engine.contract import Mode
from uetproto.engine.pds.pdc_pool import Preset
from uetproto.steps.uet import ACTIONS, MessageSpec, UetStep
from uetproto.wire.capture.pcap import open_capture

HEAD = """\
[run]
ses = "scripted"
mode = "rud"
[nodes.a]
address = "10.0.0.1"
[nodes.b]
address = "10.0.0.2"
"""


def play(
    tmp_path: Path, rows: str, *settings: str, head: str = HEAD, check: bool = True
) -> tuple[RunResult, list[Packet]]:
    """The result, and what passed the ports of both nodes; one row a line, `; ` between its keys."""
    steps = "".join("[[step]]\n" + row.strip().replace("; ", "\n") + "\n" for row in rows.strip().splitlines())
    path = tmp_path / "script.toml"
    path.write_text(head + steps, encoding="utf-8")
    capture = tmp_path / "script.pcapng"
    result = run(load(str(path), ["tap.nodes=all", *settings]), output=str(capture), check=check)
    with open_capture(capture) as reader:
        packets = [decode(record.data) for record in reader]
    return result, packets


def forms(packets: list[Packet]) -> list[str]:
    return [next(layer.form for layer in packet.layers if layer.form.startswith("pds.")) for packet in packets]


LADDERS_THAT_FAIL = {"ladder-L09c", "ladder-L23", "ladder-L28"}


@pytest.mark.parametrize("name", [name for name in names() if name.startswith("ladder-")])
def test_ladders(name: str) -> None:
    """Every invariant holds, to the end of what is still on its way; and whether the messages got through."""
    result = run(load(name), check=True)
    assert not result.findings
    assert result.ok is (name not in LADDERS_THAT_FAIL)
    assert result.match is (result.sha256_source == result.sha256_target)


def test_all_goes_well(tmp_path: Path) -> None:
    result, packets = play(tmp_path, 'submit = 2\ndeliver = "all"\ndeliver = "all"')
    assert result.ok, result
    assert (result.bytes, result.packets, result.virtual_time_ps) == (128, 4, 0)
    assert forms(packets) == ["pds.rud_req.syn"] * 3 + ["pds.ack", "pds.rud_req.syn"] + ["pds.ack"] * 3
    payloads = [packet.payload for packet in packets if packet.payload]
    assert payloads[0] != payloads[1]


@pytest.mark.parametrize(
    "settings",
    [
        ("encapsulation=native",),
        ("crc=off",),
        ("nodes.a.address=fd00::1", "nodes.b.address=fd00::2"),
        ("nodes.a.address=192.168.7.9", "nodes.b.address=10.1.2.3", "run.initiator=b", "run.target=a"),
        ("mode=rod", "run.payload=4"),
        ("nodes.a.personality=refprov", "nodes.b.personality=refprov"),
    ],
)
def test_variants(tmp_path: Path, settings: tuple[str, ...]) -> None:
    result, packets = play(tmp_path, 'submit = 2\ndeliver = "all"\ndeliver = "all"\nadvance = "1 s"', *settings)
    assert result.ok, result
    assert all(packet.error is None for packet in packets)


def test_what_is_lost_differs(tmp_path: Path) -> None:
    result, _ = play(tmp_path, "submit = 1\ndrop = 0")
    assert (result.match, result.failure) == (False, None)
    result, _ = play(tmp_path, 'submit = 1\ndrop = 0\nadvance = "1 ms"\ndeliver = 1\ndeliver = 2')
    assert (result.ok, result.retransmissions) == (True, 1)


def test_read_data_comes_back(tmp_path: Path) -> None:
    for answer, size in (("return", 128), ("data", 16)):
        packets = 2 if answer == "return" else 1
        rows = f'submit = {packets}; op = "read"; answer = "{answer}"\n' + 'deliver = "all"\n' * 3
        result, _ = play(tmp_path, rows)
        assert (result.ok, result.bytes) == (True, size)
    result, _ = play(tmp_path, 'submit = 1; op = "read"; answer = "return"\ndeliver = 0')
    assert not result.match


def test_a_damaged_frame_is_found_by_its_crc(tmp_path: Path) -> None:
    """With a CRC32C it is dropped; without, the byte reaches SES."""
    rows = "submit = 1\ncorrupt = 0; at = 110\ndeliver = 0"
    result, packets = play(tmp_path, rows, check=False)
    assert (result.match, result.happened) == (False, {"bad_crc": 1})
    assert [packet.trailer and packet.trailer.ok for packet in packets] == [True, False]
    result, _ = play(tmp_path, rows.replace("deliver = 0", "dup = 0\ndeliver = 0\ndeliver = 1"), check=False)
    assert result.happened == {"bad_crc": 2}
    result, packets = play(tmp_path, rows, "crc=off", check=False)
    assert (result.match, result.happened) == (False, {})
    assert forms(packets)[-1] == "pds.ack"


def test_trim(tmp_path: Path) -> None:
    head = HEAD + "[pds]\nenb_ack_per_pkt = true\n"
    rows = "submit = 1\ndeliver = 0\ndeliver = 1\nsubmit = 1\ntrim = 2{}\ndeliver = 2"
    for more, code in (("", "TRIMMED"), ("; last_hop = true", "TRIMMED_LASTHOP")):
        result, packets = play(tmp_path, rows.format(more), head=head)
        assert result.nacks_by_code == {code: 1}
        assert ["trimmed" in packet.notes for packet in packets].count(True) == 1


def test_a_switch_leaves_control_alone(tmp_path: Path) -> None:
    _, packets = play(tmp_path, "submit = 1\ndeliver = 0\ntrim = 1\nmark = 1\ndeliver = 1")
    assert forms(packets) == ["pds.rud_req.syn"] * 2 + ["pds.ack"] * 2
    assert [packet["ipv4"]["ecn"] for packet in packets] == [2, 2, 0, 0]


def test_what_was_not_trimmed_is_counted(tmp_path: Path) -> None:
    result, _ = play(tmp_path, "submit = 2\ndeliver = 0\ntrim = 2\ntrim = 1")
    assert result.happened == {"not_trimmed": 1}


# Answers to packets that never come, and memory ----------------------------------------------------------------------


@pytest.mark.parametrize(
    "rows", ["respond = 9; gtd = true\nsubmit = 1\ndeliver = 0", 'respond = 9; node = "a"; answer = "ok"']
)
def test_an_answer_to_what_never_comes_fails_the_run(tmp_path: Path, rows: str) -> None:
    result, _ = play(tmp_path, rows)
    where = f"{tmp_path}/script.toml:8: step.0"
    assert result.failure == f"{where}: PSN 9 (0x9) did not come before the last step"
    assert not result.ok


def test_several_answers_that_nobody_needed(tmp_path: Path) -> None:
    result, _ = play(tmp_path, "respond = 9; gtd = true\nrespond = 8; gtd = true\nrespond = 7; gtd = true")
    assert result.failure is not None
    assert result.failure.endswith("step.0: PSN 9 (0x9) did not come before the last step, and 2 more such rows")


def test_an_answer_to_what_comes(tmp_path: Path) -> None:
    head = HEAD + "[preset.a]\nstart_psn = 9\n"
    result, _ = play(tmp_path, "respond = 9; gtd = true\nsubmit = 1\ndeliver = 0\ndeliver = 1", head=head)
    assert result.ok, result


def test_a_message_takes_no_memory_before_it_leaves(tmp_path: Path) -> None:
    """256 MiB, of which the window lets four out."""
    path = tmp_path / "script.toml"
    path.write_text(HEAD + "[[step]]\nsubmit = 65536\n", encoding="utf-8")
    scenario = load(str(path), ["run.payload=4096"])
    tracemalloc.start()
    try:
        result = run(scenario)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert result.bytes == 256 << 20
    assert peak < 32 << 20


def test_what_has_arrived_takes_no_memory_again(tmp_path: Path) -> None:
    """Bytes that repeat themselves are kept once, frames as long as they can be copied."""
    path = tmp_path / "script.toml"
    path.write_text(HEAD + "[[step]]\nsubmit = 5000\n" + '[[step]]\ndeliver = "all"\n' * 400, encoding="utf-8")
    script = UetScript(load(str(path)))
    assert script.play() is None
    taken = script.records[1].taken
    assert len(taken) == 5000
    assert len({id(data) for data in taken.values()}) <= 256
    assert script.sent > 5 * HISTORY
    assert len(script.wire.frames) <= 3 * HISTORY


@pytest.mark.parametrize("addresses", [(), ("nodes.a.address=fd00::1", "nodes.b.address=fd00::2")])
def test_mark(tmp_path: Path, addresses: tuple[str, ...]) -> None:
    _, packets = play(tmp_path, "submit = 1\nmark = 0\ndeliver = 0\ndeliver = 1", *addresses)
    ip = "ipv6" if addresses else "ipv4"
    assert [packet[ip]["ecn"] for packet in packets] == [2, 3, 0, 0]
    assert packets[-1]["pds.ack"]["m"] == 1


def test_not_ecn_capable(tmp_path: Path) -> None:
    """observed.md: data with ToS 0x00, all else with 0xb8."""
    _, packets = play(
        tmp_path, "submit = 1\ndeliver = 0\ndeliver = 1", "nodes.a.pds.ecn_capable=off", check=False
    )  # fmt: skip
    assert [(packet["ipv4"]["dscp"], packet["ipv4"]["ecn"]) for packet in packets] == [(0, 0)] * 2 + [(0x2E, 0)] * 2


def test_inject_is_a_frame_too(tmp_path: Path) -> None:
    rows = 'inject = "58 88 00 00 00 00 01 4d 00 07 00 63 00 00 00 00"'  # ACK_REQ for PDC 99
    result, packets = play(tmp_path, rows)
    assert forms(packets) == ["pds.cp", "pds.nack"]
    assert (packets[0]["ipv4"]["src"], packets[0]["ipv4"]["dscp"]) == (0x0A000001, 46)
    assert result.nacks_by_code == {"INV_DPDCID": 1}


def test_a_restarted_node_has_forgotten(tmp_path: Path) -> None:
    """What it counted too; the NACKs that it sent have been sent."""
    result, _ = play(
        tmp_path, 'submit = 1\ndeliver = 0\ndeliver = 1\nrestart = "b"\nsubmit = 1\ndeliver = 2\ndeliver = 3'
    )
    assert result.failure == "message 2: a NACK of class FATAL"
    assert result.counters["b"] == {"no_pdc": 1}


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ("deliver = 0", ":8: step.0: frame 0 is not on the wire; nothing is"),
        ("submit = 2\ndrop = 0\ndrop = 0", ":12: step.2: frame 0 is not on the wire; legal: 1"),
        ("submit = 9\ndrop = [0, 4]\ndrop = 4", ":12: step.2: frame 4 is not on the wire; legal: 1 … 3, 5 … 8"),
        ('close = "a"', ":8: step.0: node a has opened no PDC, so that none can be closed"),
        ("submit = 1\ncorrupt = 0; at = 900", ":10: step.1: frame 0 has 166 bytes; legal: at = 0 … 165"),
        ('noop = "a"\ndup = 7', ":10: step.1: frame 7 cannot be copied; legal: 0"),
    ],
)
def test_what_is_not_possible_now(tmp_path: Path, rows: str, message: str) -> None:
    with pytest.raises(LocalError) as caught:
        play(tmp_path, rows)
    assert str(caught.value).removeprefix(f"{tmp_path}/").startswith(f"script.toml{message}")


def test_the_wire_must_come_to_rest_after_the_script(tmp_path: Path) -> None:
    """With --check what is on its way arrives after the last step; no tap sees it."""
    result, packets = play(tmp_path, "submit = 3\ndeliver = 1")
    assert not result.findings
    assert result.checked == len(packets) == 5


def test_what_the_fuzzer_writes_is_read(tmp_path: Path) -> None:
    """One row for each action (`check.steps.ACTIONS`)."""
    message = MessageSpec(2, Mode.ROD, "read", 7, "data", reserved=True, context=3)
    steps = (
        UetStep("submit", 1, message=message),
        UetStep("allow", 0, 3), UetStep("allow", 1, ALL),
        *(UetStep(action, 0, 5) for action in ("deliver", "drop", "dup", "trim", "mark")),
        UetStep("deliver", 0, ALL),
        UetStep("corrupt", 0, 5, at=9),
        UetStep("advance", 0, 1_500_000),
        UetStep("respond", 0, 333, answer="no_pkt_buffer"),
        *(UetStep(action, 1) for action in ("close", "ask_close", "noop", "probe", "restart")),
        *(UetStep(action, 1, 8) for action in ("negotiate", "ask_credit", "give_credit", "lose")),
        UetStep("inject", 1, data=b"\x58\x00"),
    )  # fmt: skip
    assert {step.action for step in steps} == set(ACTIONS)
    knobs: tuple[dict[str, Any], dict[str, Any]] = ({"rto_init_time": 2_000_000, "pdcid_quarantine": 0}, {})
    presets = (Preset(pdcid=7, start_psn=5), Preset())
    finding = FuzzFinding("rud", "0/0", UetEpisode(knobs, 5, presets), steps, len(steps), "pds 1: a text", "pds 1")
    path = tmp_path / "finding.toml"
    path.write_text(to_toml(finding), encoding="utf-8")
    scenario = load(str(path))
    at = [step.at + BELOW if step.action == "corrupt" else step.at for step in steps]
    assert [row.step for row in scenario.script] == [step._replace(at=a) for step, a in zip(steps, at, strict=True)]
    first = scenario.nodes["a"]
    assert (first.pds.rto_init_time, first.pds.pdcid_quarantine, first.preset) == (2_000_000, 0, presets[0])
