# SPDX-License-Identifier: GPL-2.0-only
"""`uetproto generate` as a user types it."""

import json
import os
import pty
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.cli.generate import status
from uetproto.cli import generate as module
from uetproto.traffic.coverage_uet import POSSIBLE
from uetproto.wire.capture.pcap import open_capture
from uetproto.wire.headers.uet_ses import OPCODE_PROFILES
from uetproto.wire.mutate.mutation import ABOUT, ALL

COMMAND = [sys.executable, "-m", "uetproto", "generate"]


def count(path: Path) -> int:
    with open_capture(path) as capture:
        found = sum(1 for _ in capture)
    assert not capture.damage
    return found


def test_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "b.pcap"
    assert status("bench", "-o", str(path), "--packets", "2000", "--seed", "3", "--mutate", "bad-crc=0.01") == 0
    out, err = capsys.readouterr()
    lines = out.splitlines()
    assert err == ""
    assert lines[0].startswith("bench: 2,000 packets, ")
    assert lines[0].endswith(" µs of virtual time, seed 3")
    assert lines[1].startswith("  operations: WRITE ")
    assert lines[2].startswith("  completions: OK ")
    assert lines[3].startswith("  mutations: bad-crc ")
    assert lines[4] == f"  capture {path}, mutations {path}.mutations.jsonl"
    assert count(path) == 2000


def test_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "a.pcapng"
    arguments = ("atomics", "-o", str(path), "--packets", "5000", "--report", "coverage", "--json")
    assert status(*arguments, "--set", "depth=64") == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["profile"], found["seed"], found["packets"], found["capture"]) == ("atomics", 0, 5000, str(path))
    assert sum(found["operations"].values()) - sum(found["completions"].values()) == 64, "as many are open"
    coverage = found["coverage"]
    assert tuple(coverage) == tuple(POSSIBLE)
    assert set(coverage["requests"]) == {"ATOMIC", "FETCHING_ATOMIC", "TSEND_ATOMIC", "TSEND_FETCH_ATOMIC"}
    assert len(coverage["atomics"]) == 300, "all cells that are legal"
    assert set(coverage["returns"]) == {"OK"}
    assert {"ses.ext.atomic", "ses.ext.atomic_cas", "ses.request_small", "ses.request_medium"} <= set(coverage["forms"])


def test_mixed_meets_all_kinds_of_operations(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ("mixed", "-o", str(tmp_path / "m.pcap"), "--packets", "8000", "--report", "coverage")
    assert status(*arguments, "--json") == 0
    coverage = json.loads(capsys.readouterr().out)["coverage"]
    later = {"TSEND_ATOMIC", "TSEND_FETCH_ATOMIC", "MSG_ERROR", "SYNC_WRITE", "SYNC_ATOMIC", "DEFERRABLE_RTR"}
    assert {code.name for code in OPCODE_PROFILES} - later <= set(coverage["requests"])
    assert len(coverage["returns"]) > 5
    assert status(*arguments) == 0
    lines = capsys.readouterr().out.splitlines()
    assert any(line.startswith(f"  requests {len(coverage['requests'])} of 18 ") for line in lines)
    assert any(line.split() == ["WRITE", f"{coverage['requests']['WRITE']:,}"] for line in lines)


def test_a_mutation_that_never_applied_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ("bench", "-o", str(tmp_path / "b.pcap"), "--packets", "500", "--set", "crc=off")
    assert status(*arguments, "--mutate", "bad-crc=0.5", "--mutate", "job-change=0.5") == 0
    assert "  mutations: bad-crc 0, job-change " in capsys.readouterr().out


def test_the_help_says_what_mutations_do(capsys: pytest.CaptureFixture[str]) -> None:
    assert status("--help") == 0
    lines = capsys.readouterr().out.splitlines()
    assert tuple(ABOUT) == ALL
    for name in ALL:
        assert any(line.split() == [name, *ABOUT[name].split()] for line in lines), name


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
def test_a_full_disk_names_the_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "full.pcap"
    path.symlink_to("/dev/full")
    assert status("bench", "-o", str(path), "--packets", "5000") == 2
    assert capsys.readouterr().err == f"uetproto: {path}: No space left on device [io-error]\n"


def test_the_default_is_a_number_of_packets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "b.pcap"
    assert module.DEFAULT_PACKETS == 100_000
    monkeypatch.setattr(module, "DEFAULT_PACKETS", 1500)
    assert status("bench", "-o", str(path), "--set", "sizes=64", "--set", "crc=off") == 0
    assert count(path) == 1500


def test_duration(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for text in ("20 us", "20000000 ps"):
        path = tmp_path / "d.pcap"
        assert status("bench", "-o", str(path), "--duration", text, "--json") == 0
        found = json.loads(capsys.readouterr().out)
        assert found["packets"] == count(path)
        assert 15_000_000 < found["virtual_time_ps"] <= 20_000_000


def test_standard_output() -> None:
    done = subprocess.run([*COMMAND, "bench", "-o", "-", "--packets", "50"], capture_output=True, check=True)
    assert done.stdout.startswith(b"\n\r\r\n")
    assert done.stderr.decode().startswith("bench: 50 packets, ")
    dissect = [sys.executable, "-m", "uetproto", "dissect", "--json", "-"]
    shown = subprocess.run(dissect, input=done.stdout, capture_output=True, check=True)
    assert len(shown.stdout.splitlines()) == 50


def test_a_closed_pipe_ends_silently() -> None:
    with subprocess.Popen([*COMMAND, "bench", "-o", "-"], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.read(1000)
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(60) == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("nothing",), "nothing: no such profile; legal: atomics, bench, lossy, mixed, roce-bench, roce-mixed, "),
        (("bench", "--set", "losses=1"), "--set losses: unknown key"),
        (("bench", "--set", "transport=rc"), "--set transport: modes: unknown key with transport rc; legal: "),
        (("bench", "--mutate", "typo=1"), "--mutate typo=1: 'typo' is no mutation"),
        (
            ("bench", "--mutate", "bad-crc=0.1", "--mutate", "bad-crc=0.2"),
            "--mutate bad-crc=0.2: bad-crc is there twice; legal: each mutation once",
        ),
        (
            ("bench", "--duration", "5"),
            '--duration 5: has no unit; legal: a time such as "1 ms" (ps, ns, us, ms, s, min), 1 ps',
        ),
        (("bench", "--set", "delay=5"), "--set delay: 5 has no unit; legal: a time such as"),
        (("bench", "--duration", "soon"), "--duration soon: is no time; legal: a time such as"),
        (("bench", "--duration", "0"), "--duration 0: has no unit; legal: a time such as"),
    ],
)
def test_misuse(tmp_path: Path, arguments: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "x.pcap"
    assert status(*arguments, "-o", str(path)) == 2
    assert message in capsys.readouterr().err
    assert not path.exists()


def test_more_misuse(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert status("bench") == 2
    assert status("bench", "-o", "x.pcap", "--packets", "0") == 2
    assert status("bench", "-o", str(tmp_path / "x.txt")) == 2
    assert "legal are names in .pcap, .pcapng" in capsys.readouterr().err
    assert status("bench", "-o", "-", "--json") == 2
    assert "both want standard output" in capsys.readouterr().err
    assert status(str(tmp_path / "none.toml"), "-o", str(tmp_path / "x.pcap")) == 2
    assert status("bench", "-o", str(tmp_path / "none" / "x.pcap")) == 2


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_interrupted(number: signal.Signals, code: int, tmp_path: Path) -> None:
    """Capture and side file are whole, and agree."""
    path = tmp_path / "long.pcap"
    command = [*COMMAND, "bench", "-o", str(path), "--packets", "100000000", "--mutate", "bad-crc=0.1"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        while not (path.exists() and path.stat().st_size > 1 << 20):
            assert process.poll() is None
            time.sleep(0.05)
        process.send_signal(number)
        out, err = process.communicate(timeout=60)
    assert process.returncode == code
    told = f"uetproto: bench was interrupted; {path} is whole up to here\n" if number == signal.SIGINT else ""
    assert (out, err.decode()) == (b"", told)
    rows = [json.loads(line) for line in Path(f"{path}.mutations.jsonl").read_text(encoding="utf-8").splitlines()]
    packets = count(path)
    assert packets > 800
    assert 0.9 * packets < rows[-1]["index"] < packets


def test_progress_on_a_terminal(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    command = [*COMMAND, "bench", "-o", str(tmp_path / "p.pcap"), "--packets", "25000"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=theirs) as process:
        os.close(theirs)
        shown = b""
        while True:
            try:
                part = os.read(ours, 4096)
            except OSError:
                break
            if not part:
                break
            shown += part
        assert process.wait(60) == 0
    os.close(ours)
    assert b"packets" in shown
    assert "━".encode() in shown
