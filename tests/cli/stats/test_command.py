# SPDX-License-Identifier: GPL-2.0-only
"""`uetproto stats`: text, JSON lines, pictures, misuse."""

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from tests.support.audit.build import GOLDEN
from tests.support.cli.frames import ARP, capture, frame, invoke, program, write
from uetproto.cli.main import COMMANDS
from uetproto.cli.stats.text import rate
from uetproto.wire.capture.pcap import open_writer
from uetproto.wire.capture.pcapng import PcapngWriter

LOSSY = str(GOLDEN / "gradient-lossy.pcapng")
READ = str(GOLDEN / "ses-read.pcapng")
INCAST = str(GOLDEN / "incast-roce.pcapng")
TIMES = {"count", "p50_ns", "p90_ns", "p99_ns", "max_ns"}


def call(*arguments: str) -> Result:
    return invoke("stats", *arguments)


def lines(*arguments: str) -> list[dict[str, Any]]:
    done = call("--json", *arguments)
    assert done.exit_code == 0, done.output
    return [json.loads(line) for line in done.stdout.splitlines()]


# Text -----------------------------------------------------------------------------------------------------------------


def test_text() -> None:
    done = call(LOSSY)
    assert done.exit_code == 0
    text = done.stdout
    assert "gradient-lossy.pcapng, rank0.0: 20 packets, 16,148 bytes in 1.02 ms" in text
    assert re.search(r"^10\.0\.0\.11 → 10\.0\.1\.11 +16 +12,288 ", text, re.M)
    assert re.search(r"^  PDC 1 → 1, ROD *$", text, re.M)
    for part in ("sent again 3:", "NACK ROD_OOO 2", "RTO? 1", "refused 1: NACK ROD_OOO"):
        assert part in text
    assert re.search(r"^WRITE +1 +18\.4 µs", text, re.M)
    assert done.stderr == ""


def test_text_of_roce() -> None:
    text = call(INCAST).stdout
    assert "RC, queue pair 24" in text
    assert "RDMA_WRITE" in text


def test_sealed_packets_say_where_the_keys_go() -> None:
    sealed = GOLDEN / "gradient-sealed-direct.pcapng"
    assert "--keys opens them" in call(str(sealed)).stdout
    opened = call(str(sealed), "--keys", str(sealed.with_suffix(".keys.toml"))).stdout
    assert "12,288" in opened
    assert "--keys opens" not in opened


def test_each_message_of_one_pdc(tmp_path: Path) -> None:
    done = invoke("generate", "sends", "-o", str(tmp_path / "a.pcapng"), "--packets", "400", "--set", "pdcs=2")
    assert done.exit_code == 0
    everything = lines(str(tmp_path / "a.pcapng"))
    wanted = next(line for line in everything if line["kind"] == "pdc")["flow"]["spdcid"]
    text = call(str(tmp_path / "a.pcapng"), "--pdc", str(wanted)).stdout
    messages = [line for line in lines(str(tmp_path / "a.pcapng"), "--pdc", str(wanted)) if line["kind"] == "message"]
    assert 1 < len(messages) < len([line for line in everything if line["kind"] == "message"])
    shown = messages[:64]
    assert all(f"PSN {message['psn']}," in text for message in shown)
    assert (f"and {len(messages) - 64} more message" in text) is (len(messages) > 64)


def test_other_packets_are_told_of(tmp_path: Path) -> None:
    done = call(capture(tmp_path / "a.pcapng", [ARP, frame(1, 2, *write(73728, 0, syn=1), payload=bytes(1024))]))
    assert "of other protocols: 1" in done.stdout


def test_an_empty_capture(tmp_path: Path) -> None:
    done = call(capture(tmp_path / "a.pcapng", []))
    assert (done.exit_code, done.stdout) == (0, "no packets\n")


@pytest.mark.parametrize(
    ("bits", "text"),
    [(None, "–"), (0, "0 b/s"), (999, "999 b/s"), (1_000, "1 kb/s"), (22_650_691_244, "22.7 Gb/s"),
     (400 * 10**9, "400 Gb/s"), (1_600 * 10**9, "1.6 Tb/s")],
)  # fmt: skip
def test_rates(bits: int | None, text: str) -> None:
    assert rate(bits) == text


def test_help_says_what_the_words_mean() -> None:
    text = " ".join(call("--help").stdout.split())
    for word in ('"trimmed"', '"RTO?"', '"unknown"', "Window:", "To ACK:", "Latency:", "Reordered:"):
        assert word in text
    assert COMMANDS["stats"][0] == "uetproto.cli.stats.command"


# JSON -----------------------------------------------------------------------------------------------------------------


def test_json() -> None:
    flow, message, summary = lines(LOSSY)
    assert (flow["kind"], flow["mode"], flow["packets"], flow["payload"]) == ("pdc", "ROD", 16, 12288)
    assert flow["flow"] == {"src": "10.0.0.11", "dst": "10.0.1.11", "spdcid": 1, "dpdcid": 1}
    assert flow["resent"] == {"NACK ROD_OOO": 2, "RTO?": 1}
    assert flow["refused"] == {"NACK ROD_OOO": 1}
    assert set(flow["request_to_ack"]) == set(flow["message_latency"]) == TIMES
    assert (message["kind"], message["opcode"], message["length"], message["packets"]) == (
        "message",
        "WRITE",
        12288,
        14,
    )
    assert message["latency_ns"] == flow["message_latency"]["max_ns"]
    assert (summary["kind"], summary["packets"], summary["flows"], summary["messages"]) == ("summary", 20, 1, 1)
    assert summary["kinds"]["pds.nack"] == 1
    assert (summary["other_flows"], summary["other_messages"]) == ({}, {})
    assert all(line["file"] == LOSSY and line["interface"] == "rank0.0" for line in (flow, message, summary))


def test_each_file_has_a_summary() -> None:
    found = lines(LOSSY, READ, INCAST)
    assert [line["file"] for line in found if line["kind"] == "summary"] == [LOSSY, READ, INCAST]


def test_json_of_one_pdc_or_queue_pair() -> None:
    assert {line["kind"] for line in lines(READ, "--pdc", "1")} == {"pdc", "message", "summary"}
    (there, message, _) = lines(INCAST, "--pdc", "24")
    assert there["flow"]["destqp"] == message["flow"]["destqp"] == 24


def test_standard_input() -> None:
    data = Path(READ).read_bytes()
    done = invoke("stats", "-", "--json", data=data)
    from_file = lines(READ)
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert [line | {"file": ""} for line in found] == [line | {"file": ""} for line in from_file]


def test_a_reader_that_goes_away_is_no_fault() -> None:
    with program("stats", "--json", INCAST) as process:
        assert process.stdout is not None
        process.stdout.close()
        assert process.wait(60) == 0


# Interfaces -----------------------------------------------------------------------------------------------------------


def test_interfaces(tmp_path: Path) -> None:
    file = str(tmp_path / "two.pcapng")
    assert invoke("run", "gradient", "--tap", "all", "-o", file).exit_code == 0
    names = [line["interface"] for line in lines(file) if line["kind"] == "summary"]
    assert len(names) > 1
    for wanted in (names[1], "1"):
        assert {line["interface"] for line in lines(file, "--interface", wanted)} == {names[1]}
    done = call(file, "--interface", "nowhere")
    assert done.exit_code == 2
    assert f"there are {', '.join(names)}" in done.stderr


# Pictures -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("file", [LOSSY, READ, INCAST], ids=lambda file: Path(file).stem)
def test_pictures(file: str, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    pictures = []
    for name in ("a.svg", "b.svg", "a.png") if file == LOSSY else ("a.svg",):
        done = call(file, "--plot", str(tmp_path / name))
        assert done.exit_code == 0, done.stderr
        assert f"drawn in {tmp_path / name}" in done.stdout
        pictures.append((tmp_path / name).read_bytes())
    if file == LOSSY:
        assert pictures[0] == pictures[1]  # the same bytes each time
        assert pictures[2].startswith(b"\x89PNG")
    text = pictures[0].decode()
    for part in ("sent", "acknowledged", "PSN behind the first", "how long it took"):
        assert part in text
    assert ("sent again" in text) is (file != READ)
    assert text.count("PSN behind the first") == (2 if file == READ else 1)  # the PDC of a read has data in return


def test_a_picture_of_one_pdc(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    path = tmp_path / "a.svg"
    assert call(INCAST, "--pdc", "20", "--plot", str(path)).exit_code == 0
    assert "destqp 20" in path.read_text()


@pytest.mark.parametrize(("command", "late", "told"), [
    ("stats", {4}, "1 point"), ("stats", set(range(6)), "5 points"), ("audit", set(range(6)), "5 points, 1 mark"),
])  # fmt: skip
def test_what_has_a_time_beyond_64_bits_is_not_drawn_and_told(
    command: str, late: set[int], told: str, tmp_path: Path
) -> None:
    pytest.importorskip("matplotlib")
    file, picture = tmp_path / "late.pcapng", tmp_path / "a.svg"
    with open_writer(file) as writer:
        for number in range(6):
            head, ses = write(73728 + number % 5, 1024 * (number % 5), syn=1)
            data = frame(11, 12, head, ses, payload=bytes([number // 5]) * 1024)  # the last is no new request
            writer.write((1 << 64) - 1 if number in late else 1000 * number, data)
    rules = ["--rules", "PDS-PSN-TWO-CONTENTS"] if command == "audit" else []
    done = invoke(command, str(file), "--plot", str(picture), *rules)
    assert done.stderr == f"uetproto: {picture}: not drawn, as the time does not fit 64 bits: {told}\n"
    assert "</svg>" in picture.read_text()


def test_without_matplotlib_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    done = call(LOSSY, "--plot", str(tmp_path / "a.svg"))
    assert done.exit_code == 2
    assert "pip install 'uetproto[plot]'" in done.stderr


# Bad input ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ("no-such.pcapng", "no-such.pcapng: No such file or directory"),
        ("LOSSY no-such.pcapng", "no-such.pcapng: No such file or directory"),
        ("UUD --pdc 77", "--pdc 77: there is none; there is no PDC, no queue pair"),
        ("UUD --plot a.svg", "--plot: there is nothing to draw: no PDC, no queue pair"),
        ("LOSSY --plot", "Option '--plot' requires an argument"),
        ("LOSSY --pdc 77", "--pdc 77: there is none; there are 1"),
        ("LOSSY --pdc 77 --plot a.svg", "--pdc 77: there is none; there are 1"),
        ("LOSSY --plot a.gif", "legal are names in .png, .svg"),
        ("LOSSY --plot nowhere/a.svg", "there is no directory nowhere"),
        ("- -", "standard input can be read once"),
        ("UUD --plot a.svg", "there is nothing to draw"),
    ],
)
def test_misuse(arguments: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    known = {"LOSSY": LOSSY, "UUD": str(GOLDEN / "gradient-sealed-direct.pcapng")}
    done = call(*(known.get(word, word) for word in arguments.split()))
    assert done.exit_code == 2
    assert says in done.stderr
    assert done.stdout == ""


def test_a_picture_does_not_overwrite_the_capture(tmp_path: Path) -> None:
    file = tmp_path / "capture.svg"
    file.write_bytes(Path(LOSSY).read_bytes())
    done = call(str(file), "--plot", str(file))
    assert done.exit_code == 2
    assert "would overwrite FILE" in done.stderr
    assert file.read_bytes() == Path(LOSSY).read_bytes()


def test_damage_is_a_fault_and_the_rest_is_measured(tmp_path: Path) -> None:
    file = tmp_path / "a.pcapng"
    file.write_bytes(Path(INCAST).read_bytes()[:-50])
    done = call(str(file))
    assert done.exit_code == 1
    assert "a.pcapng: damaged behind #299, at byte" in done.stderr
    assert "RC, queue pair 24" in done.stdout


def test_per_packet() -> None:
    done = call("--per-packet", LOSSY)
    assert done.exit_code == 0
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [row["number"] for row in rows] == list(range(1, 21))
    assert {row["interface"] for row in rows} == {"rank0.0"}
    assert rows[14] | {"uetp.psn": 73738, "uetp.retransmission_of": 11, "uetp.acked_in": 17} == rows[14]
    assert rows[14]["uetp.analysis.retransmission"] is True
    assert rows[16]["uetp.acks"] == [*range(2, 11), 15, 16]


def test_per_packet_names_the_file_of_several(tmp_path: Path) -> None:
    other = tmp_path / "other.pcap"
    capture(other, [ARP])
    rows = [json.loads(line) for line in call("--per-packet", str(other), READ).stdout.splitlines()]
    assert rows[0] == {"number": 1, "file": str(other), "interface": ""}
    assert rows[1]["file"] == READ
    assert rows[1]["uetp.pdc"] == 0


def test_per_packet_opens_sealed_packets() -> None:
    sealed = GOLDEN / "gradient-sealed-direct.pcapng"
    plain = call("--per-packet", str(sealed))
    assert "uetp.pdc" not in plain.stdout
    opened = call("--per-packet", str(sealed), "--keys", str(sealed.with_suffix(".keys.toml")))
    assert opened.exit_code == 0
    assert "uetp.acked_in" in opened.stdout


def test_per_packet_misuse() -> None:
    assert call("--per-packet", "--plot", "x.svg", LOSSY).exit_code == 2
    done = call("--per-packet", "--interface", "none", LOSSY)
    several = call("--per-packet", "--interface", "none", str(GOLDEN / "ladder-L18.pcapng"), LOSSY, LOSSY)
    assert "there is no such interface; there are " in several.stderr
    assert several.stderr.count("rank0.0") == 1
    assert len(several.stderr) > len(done.stderr)  # the interfaces of each file
    assert done.exit_code == 2
    assert "rank0.0" in done.stderr


def test_per_packet_of_an_interface_without_packets(tmp_path: Path) -> None:
    file = tmp_path / "idle.pcapng"
    with file.open("wb") as stream, PcapngWriter(stream) as writer:
        for name in ("busy", "idle"):
            writer.add_interface(name=name)
        writer.write(0, ARP)
    for wanted, number in (("busy", 1), ("idle", 0), ("1", 0)):
        done = call("--per-packet", "--interface", wanted, str(file))
        assert (done.exit_code, len(done.stdout.splitlines())) == (0, number), done.output
