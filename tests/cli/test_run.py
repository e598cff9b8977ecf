# SPDX-License-Identifier: GPL-2.0-only
"""`uetproto run` as a user types it."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from uetproto import decode
from uetproto.cli.main import cli
from uetproto.emulator.scenario.settings import SHIPPED
from uetproto.wire.capture.pcap import open_capture

SHA256 = "6fbf56bdd054114393a4419b816208f0ea6b3b635d1beb4263296250debfc6e1"
COMMAND = [sys.executable, "-m", "uetproto", "run"]


def status(*arguments: str) -> int:
    return cli.status(["run", *arguments])  # type: ignore[attr-defined, no-any-return]


def test_text(capsys: pytest.CaptureFixture[str]) -> None:
    assert status("gradient", "--check") == 0
    out, err = capsys.readouterr()
    assert err == ""
    lines = out.splitlines()
    assert lines[0] == "gradient: 12,288 bytes from rank0 to rank2, ROD, payload MTU 4096, seed 101"
    assert lines[1] == f"  source  sha256 {SHA256}"
    assert lines[2] == f"  target  sha256 {SHA256}  match"
    assert lines[3].startswith("  7 packets, 0 retransmissions, 0 NACKs, 8.3")
    assert lines[4:] == [
        "  memory  rank0 0x20000000 to 0x20002fff; rank2 base 0x0, offsets 0 to 12,287",
        "  rank0: data tx 3", "  rank2: ack tx 3, data rx 3", "  check: 7 frames judged, 0 findings",
    ]  # fmt: skip


def test_the_memory_is_that_of_the_worked_example(capsys: pytest.CaptureFixture[str]) -> None:
    """ses.md §8.1: the local base, and zero-based offsets; over RoCE the target's region has the base, too."""
    for name, more, target in (("gradient", (), 0), ("gradient-roce", (), 0x20000000), ("gradient", ("offset=0",), 0)):
        assert status(name, "--json", *(f"--set=run.{one}" for one in more)) == 0
        memory = json.loads(capsys.readouterr().out)["memory"]
        assert memory == {"source_base": 0x20000000, "target_base": target, "offset": 0, "length": 12_288}
    assert status("gradient", "--set=run.source_base=0x1000", "--set=run.base=4096") == 0
    assert (
        "  memory  rank0 0x00001000 to 0x00003fff; rank2 base 0x1000, offsets 0 to 12,287\n" in capsys.readouterr().out
    )


@pytest.mark.parametrize(
    "arguments", [("roce-uc-write",), ("gradient-roce", "--set=run.transport=uc"), ("ses-datagram-send",)]
)
def test_without_acknowledgements_a_run_ends_when_the_last_frame_arrives(
    arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "all.pcapng"
    assert status(*arguments, "--json", "-o", str(path), "--tap", "all") == 0
    with open_capture(path) as reader:
        last = max(record.time_ns for record in reader)
    assert json.loads(capsys.readouterr().out)["virtual_time_ps"] // 1000 == last > 2000


def test_an_ack_req_is_no_retransmission(capsys: pytest.CaptureFixture[str]) -> None:
    """pds.md §19 L19: after three RTOs one packet is sent again, and two ACK_REQs ask about those that arrived."""
    assert status("ladder-L19", "--json") == 0
    data = json.loads(capsys.readouterr().out)
    assert data["retransmissions"] == data["counters"]["a"]["retx_rto"] == 1


def test_json_and_capture(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "g.pcapng"
    assert status("gradient", "-o", str(path), "--json", "--seed", "7") == 0
    data = json.loads(capsys.readouterr().out)
    assert (data["scenario"], data["seed"], data["match"], data["bytes"]) == ("gradient", 7, True, 12_288)
    assert data["sha256_source"] == data["sha256_target"] == SHA256
    assert data["capture"] == str(path)
    with open_capture(path) as reader:
        assert sum(1 for _ in reader) == data["packets"]


def test_what_the_peer_did_wrong_is_counted(capsys: pytest.CaptureFixture[str]) -> None:
    """NACKs by code, and what each node counted."""
    assert status("ladder-L18", "--json") == 0
    data = json.loads(capsys.readouterr().out)
    assert (data["nacks"], data["nacks_by_code"]) == (2, {"ROD_OOO": 2})
    assert data["counters"] == {"a": {"retx_nack": 1, "data_tx": 4}, "b": {"ack_tx": 4, "data_rx": 4}}
    assert status("ladder-L18") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "ladder-L18: 256 bytes from a to b, ROD, scripted SES, seed 0"
    assert lines[4:] == ["  NACKs: ROD_OOO 2", "  a: retx nack 1, data tx 4", "  b: ack tx 4, data rx 4"]


def test_several_scenarios(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert status("gradient", "gradient-rud", "--json") == 0
    lines = capsys.readouterr().out.splitlines()
    assert [json.loads(line)["scenario"] for line in lines] == ["gradient", "gradient-rud"]
    assert status("gradient", "gradient-rud", "-o", str(tmp_path / "g.pcapng")) == 2
    assert "one scenario, here are 2" in capsys.readouterr().err


def test_taps(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for tap, names in (
        ("all", ["rank0.0", "rank2.0"]), ("rank2", ["rank2.0"]), ("rank2,rank0.0", ["rank2.0", "rank0.0"]),
    ):  # fmt: skip
        path = tmp_path / "g.pcapng"
        assert status("gradient", "--tap", tap, "-o", str(path)) == 0
        with open_capture(path) as reader:
            assert sum(1 for _ in reader) == 7 * len(names)
            assert [interface.name for interface in reader.interfaces] == names
    capsys.readouterr()
    assert status("gradient", "--tap", "all", "-o", str(tmp_path / "g.pcap")) == 2
    assert ".pcapng" in capsys.readouterr().err
    assert not (tmp_path / "g.pcap").exists()
    assert status("gradient", "--tap", "nobody") == 2
    told = "--tap: no such node: 'nobody'; legal: all, rank0, rank2 [unknown-node]"
    assert capsys.readouterr().err == f"uetproto: {told}\n"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "Missing argument"),
        (("nothing-like-it",), "no such scenario"),
        (("./nowhere.toml",), "nowhere.toml: No such file"),
        (("gradient", "-o", "g.txt"), "g.txt"),
        (("gradient", "-o", "/nowhere/g.pcap"), "-o /nowhere/g.pcap: there is no directory /nowhere"),
        (("gradient", "--seed", "x"), "--seed"),
        (("gradient", "--set", "mode=fast"), "legal: rod, rud"),
        (
            ("gradient", "--set", "input=/nowhere"),
            "--set run.input: /nowhere: No such file or directory; legal: the path of a file",
        ),
        (("gradient", "-o", "-", "--json"), "standard output"),
    ],
)
def test_misuse(arguments: tuple[str, ...], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert status(*arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert words in err


@pytest.mark.parametrize(
    ("name", "data", "said"), [("no.bin", None, "No such file or directory"), ("bad.npy", b"no", "is not a .npy file")]
)
def test_an_input_that_cannot_be_read_is_told_with_its_place(
    name: str, data: bytes | None, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (SHIPPED / "gradient.toml").read_text().replace('"gradient.npy"', f'"{name}"')
    (tmp_path / "mine.toml").write_text(text)
    if data is not None:
        (tmp_path / name).write_bytes(data)
    assert status(str(tmp_path / "mine.toml")) == 2
    err = capsys.readouterr().err
    assert err.startswith(f"uetproto: {tmp_path}/mine.toml:6: run.input: {tmp_path}/{name}: {said}")


def test_a_fault_is_exit_1(capsys: pytest.CaptureFixture[str]) -> None:
    assert status("gradient", "--set", "faults.drop=1.0", "--json") == 1
    data = json.loads(capsys.readouterr().out)
    assert data["match"] is False
    assert "no answer" in data["failure"]
    assert status("gradient", "--set", "faults.drop=1.0") == 1
    out = capsys.readouterr().out
    assert "differs" in out
    assert "failed: message 1" in out


def test_damage_that_nobody_sees(capsys: pytest.CaptureFixture[str]) -> None:
    """Without a CRC a flipped bit of the payload reaches the memory."""
    settings = ("--set", "crc=off", "--set", "faults.corrupt=[0]", "--set", "faults.from=rank0")
    assert status("gradient", *settings, "--json") == 1
    data = json.loads(capsys.readouterr().out)
    assert data["failure"] is None
    assert data["match"] is False
    assert data["sha256_source"] != data["sha256_target"]
    assert status("gradient", *settings[2:]) == 0


def test_npy(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good = (SHIPPED / "gradient.npy").read_bytes()
    for name, data, words in (
        ("short.npy", good[:-1], "12287 bytes of data, its header says 12288"),
        ("none.npy", b"not numpy at all", "is not a .npy file"),
        ("empty.npy", b"", "is not a .npy file"),
        ("head.npy", good[:10] + b"x" * 118, "its header is not that of"),
        ("objects.npy", good.replace(b"'<f4'", b"'|O' "), "holds objects"),
    ):
        path = tmp_path / name
        path.write_bytes(data)
        assert status("gradient", "--set", f"input={path}") == 2
        assert words in capsys.readouterr().err
    raw = tmp_path / "gradient.bin"
    raw.write_bytes(good)
    assert status("gradient", "--set", f"input={raw}", "--json") == 0
    assert json.loads(capsys.readouterr().out)["bytes"] == 12_288 + 128


def test_standard_output(tmp_path: Path) -> None:
    done = subprocess.run([*COMMAND, "gradient", "-o", "-"], capture_output=True, check=True)
    path = tmp_path / "g.pcapng"
    path.write_bytes(done.stdout)
    with open_capture(path) as reader:
        assert sum(1 for _ in reader) == 7
    assert b"match" in done.stderr


@pytest.mark.parametrize(("sent", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_interrupt_leaves_a_valid_capture(sent: signal.Signals, status: int, tmp_path: Path) -> None:
    source, path = tmp_path / "input.bin", tmp_path / "g.pcap"
    with source.open("wb") as file:
        file.truncate(1 << 30)
    process = subprocess.Popen(
        [*COMMAND, "gradient", "--set", f"input={source}", "-o", str(path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    while process.poll() is None and not (path.exists() and path.stat().st_size > 1 << 20):
        time.sleep(0.02)
    process.send_signal(sent)
    _, err = process.communicate(timeout=30)
    assert process.returncode == status
    assert b"Traceback" not in err
    with open_capture(path) as reader:
        frames = [record.data for record in reader]
        assert not reader.damage
    assert len(frames) > 200
    for frame in frames[:50] + frames[-50:]:
        assert decode(frame, crc="on").error is None


def test_an_input_is_a_regular_file() -> None:
    done = subprocess.run(
        [*COMMAND, "gradient", "--set", "input=/dev/zero"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "/dev/zero: is not a regular file" in done.stderr


def test_help_and_imports() -> None:
    code = "import sys, uetproto.cli.run; print({'scapy', 'numpy', 'construct', 'rich'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
    done = subprocess.run([*COMMAND, "--help"], capture_output=True, text=True, check=True, env={**os.environ})
    assert "gradient-lossy" in done.stdout


def test_a_script_in_which_no_time_passes_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    """Rows of a script pass virtual time only where they advance it."""
    assert status("ladder-L18", "ladder-L01") == 0
    out = capsys.readouterr().out
    assert "13 packets, 3 retransmissions, 2 NACKs, no virtual time passes\n" in out
    assert "0 ps of" not in out
    assert ", 10.000 ms of virtual time\n" in out
