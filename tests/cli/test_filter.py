# SPDX-License-Identifier: GPL-2.0-only
"""`--filter` of the commands, and of `Capture.filter`: the same packets, and nothing else changes."""

import json
import sys
from pathlib import Path
from subprocess import PIPE, Popen

import pytest

import uetproto
from tests.support.cli.frames import invoke
from tests.support.paths import PCAPS

LOSSY = str(PCAPS / "gradient-lossy.pcapng")
AGAIN = "uetp.analysis.retransmission"


def numbers(filter_: str, *options: str, file: str = LOSSY) -> list[int]:
    result = invoke("dissect", "--json", file, "--filter", filter_, *options)
    assert result.exit_code == 0, result.output
    return [json.loads(line)["index"] + 1 for line in result.stdout.splitlines()]


def test_dissect() -> None:
    assert numbers(AGAIN) == [15, 16, 19]
    assert numbers(AGAIN, "--count", "2") == [15, 16]
    assert numbers("uetp.acked_in == 13") == [1]
    whole = invoke("dissect", LOSSY).stdout
    shown = invoke("dissect", LOSSY, "--filter", AGAIN).stdout
    assert shown.count("#") == 3
    assert all(line in whole for line in shown.splitlines()), "times are those of the whole capture"


def test_ladder() -> None:
    rows = invoke("ladder", "--json", LOSSY, "--filter", AGAIN).stdout.splitlines()
    assert [one["index"] for line in rows if (one := json.loads(line))["row"] == "packet"] == [14, 15, 18]
    nothing = invoke("ladder", LOSSY, "--filter", "uetp.psn == 1")
    assert nothing.exit_code == 2
    assert "no packets match --filter" in nothing.stderr
    marked = invoke("ladder", LOSSY, "--filter", "uetp.psn == 1", "--mark", "3")
    assert "#3" in marked.stdout


def test_stats() -> None:
    summary = json.loads(invoke("stats", "--json", LOSSY, "--filter", "uetp.psn <= 73735").stdout.splitlines()[-1])
    assert summary["packets"] == 8
    lines = invoke("stats", "--per-packet", LOSSY, "--filter", AGAIN).stdout.splitlines()
    every = invoke("stats", "--per-packet", LOSSY).stdout.splitlines()
    assert lines == [every[number - 1] for number in (15, 16, 19)]


def test_audit_tells_findings_of_chosen_packets_and_says_what_it_leaves_out(tmp_path: Path) -> None:
    path = str(tmp_path / "x.pcapng")
    assert invoke("generate", "mixed", "-o", path, "--packets", "300", "--mutate", "bad-crc=0.05").exit_code == 0
    every = [json.loads(line) for line in invoke("audit", "--json", path).stdout.splitlines()]
    one = every[0]["packets"][0]
    result = invoke("audit", "--json", path, "--filter", f"frame.number == {one + 1}")
    told = [json.loads(line) for line in result.stdout.splitlines()]
    assert result.exit_code == 1
    assert told[:-1] == [finding for finding in every[:-1] if one in finding["packets"]]
    assert told[-1]["unwanted"] == len(every) - len(told)
    assert told[-1]["rules"] == every[-1]["rules"], "all packets are judged"
    text = invoke("audit", path, "--filter", "uetp.psn == 1")
    assert text.exit_code == 0
    assert f"not told: {len(every) - 1} findings that no packet of --filter shows" in text.stdout


def test_sealed_packets_are_filtered_by_what_is_inside(tmp_path: Path) -> None:
    path = str(tmp_path / "sealed.pcapng")
    assert invoke("generate", "sealed", "-o", path, "--packets", "40").exit_code == 0
    assert numbers("uetp.psn", file=path) == []
    inside = numbers("uetp.psn", "--keys", f"{path}.keys.toml", file=path)
    assert 10 < len(inside) < 40
    found = uetproto.open(path, keys=f"{path}.keys.toml").filter("uetp.psn")
    assert [packet.number for packet in found] == inside


def test_pipes() -> None:
    data = Path(LOSSY).read_bytes()
    done = invoke("dissect", "--json", "-", "--filter", AGAIN, data=data)
    assert [json.loads(line)["index"] for line in done.stdout.splitlines()] == [14, 15, 18]
    for command in (("dissect", "--json"), ("stats", "--json"), ("stats", "--per-packet"), ("audit", "--json")):
        later = invoke(*command, "-", "--filter", "uetp.acked_in > 5", data=data)
        assert (later.exit_code, later.stderr.count("names that tell of later packets read it several times")) == (0, 1)
        assert (
            later.stdout.replace('"-"', json.dumps(LOSSY))
            == invoke(*command, LOSSY, "--filter", "uetp.acked_in > 5").stdout
        )
    for command in (("ladder", "--json"), ("stats", "--json"), ("audit", "--json", "--rules", "WIRE-*")):
        piped = invoke(*command, "-", "--filter", AGAIN, data=data)
        assert (piped.exit_code, piped.stderr) == (0, "")
        assert piped.stdout.replace('"-"', json.dumps(LOSSY)) == invoke(*command, LOSSY, "--filter", AGAIN).stdout


def test_packets_of_a_pipe_are_told_while_it_is_open() -> None:
    """Nobody waits for the end of a pipe whose filter asks for no later packets."""
    command = [sys.executable, "-m", "uetproto", "dissect", "-", "--fields", "number", "--filter", AGAIN, "--crc", "on"]
    with Popen(command, stdin=PIPE, stdout=PIPE, text=False) as reader:
        assert reader.stdin is not None
        assert reader.stdout is not None
        reader.stdin.write(Path(LOSSY).read_bytes())
        reader.stdin.flush()
        assert reader.stdout.readline() == b"15\n"
        reader.stdin.close()
        assert reader.wait() == 0


@pytest.mark.parametrize("command", ["dissect", "ladder", "stats", "audit"])
def test_a_wrong_filter_is_misuse(command: str) -> None:
    result = invoke(command, LOSSY, "--filter", "uetp.pns == 1")
    assert result.exit_code == 2
    assert "did you mean uetp.psn" in result.stderr
    assert "--filter" in invoke(command, "--help").stdout


def test_dissect_refuses_packet_and_filter() -> None:
    result = invoke("dissect", LOSSY, "--filter", "uetp", "--packet", "3")
    assert result.exit_code == 2
    assert "--packet: with --filter" in result.stderr


def test_python() -> None:
    capture = uetproto.open(LOSSY)
    again = capture.filter(AGAIN)
    assert [packet.number for packet in again] == [15, 16, 19]
    assert (len(again), again[0].number) == (3, 15)
    assert [packet.number for packet in again.filter("uetp.psn == 73740")] == [19]
    assert again.stats().packets == 3
    assert again.audit().ok
    assert repr(again.ladder()).count("retx") == 3
    with pytest.raises(uetproto.LocalError, match=r"did you mean uetp\.psn"):
        capture.filter("uetp.pns")
    merged = uetproto.open(LOSSY, LOSSY, offsets_ns=[0, 2_000_000]).filter("uetp.psn and uetp.pdc == 1")
    assert len(merged) == len(list(merged)) == 16  # PDC 1 is that of the other tap


def test_values_by_name() -> None:
    packet = uetproto.open(LOSSY)[3]
    assert (packet["uetp.psn"], packet["uetp.retx"], packet["ip.src"]) == (73731, False, 0x0A00000B)
    assert packet["udp.port"] == [packet["udp.srcport"], 4793]
    assert "uetp.cack_psn" not in packet
    assert packet.get("uetp.cack_psn") is None
    assert packet.get("uetp.cack_psn", 5) == 5
    with pytest.raises(KeyError):
        packet["uetp.cack_psn"]
    with pytest.raises(uetproto.LocalError, match=r"did you mean uetp\.psn"):
        packet["uetp.pns"]
    for name in ("uetp.pdc", "frame.time_relative"):
        with pytest.raises(uetproto.LocalError, match=r"were not analysed; legal: packets of capture\.analysed\(\)"):
            packet[name]
    told = [packet.get("uetp.acked_in") for packet in uetproto.open(LOSSY).analysed()]
    lines = map(json.loads, invoke("stats", "--per-packet", LOSSY).stdout.splitlines())
    assert told == [line.get("uetp.acked_in") for line in lines]
    assert told[0] == 13
    last = uetproto.open(LOSSY).analysed()[16]
    assert last["uetp.acks"][0] == 2
    assert last["frame.time_relative"] == 18365e-9
