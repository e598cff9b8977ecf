# SPDX-License-Identifier: GPL-2.0-only
"""`uetproto diff`: what it prints, its exit status, pipes, and what it refuses."""

import json
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.support.cli.frames import ack, capture, frame, invoke, write

REQUESTS = [frame(11, 12, *write(73728 + at, 1024 * at, syn=at < 2), payload=bytes([at]) * 1024) for at in range(4)]
ACKS = [frame(12, 11, *ack(73728 + at)) for at in range(4)]
WRONG = frame(12, 11, *ack(73729, m=1))


@pytest.fixture
def files(tmp_path: Path) -> tuple[str, str]:
    """Two captures. In the second one an ACK differs, a request is missing, and another one comes twice."""
    other = [REQUESTS[0], REQUESTS[1], REQUESTS[3], REQUESTS[3], ACKS[0], WRONG, *ACKS[2:]]
    return str(capture(tmp_path / "a.pcap", [*REQUESTS, *ACKS])), str(capture(tmp_path / "b.pcap", other))


GOLDEN = """\
missing A#3 10.0.0.11 → 10.0.0.12 PDC 5 → 9
extra B#4 10.0.0.11 → 10.0.0.12 PDC 5 → 9
changed A#6 B#6 10.0.0.12 → 10.0.0.11 PDC 9 → 5: pds.ack.m 0 1
"""


def test_what_a_person_sees(files: tuple[str, str]) -> None:
    result = invoke("diff", *files)
    assert result.exit_code == 1
    lines = result.stdout.splitlines()
    assert lines[-1] == "3 differences: 1 changed, 1 missing, 1 extra; 6 packets are the same"
    assert [line[0] for line in lines if "│" in line and "#" in line] == ["-", "+", "~"]
    assert any(line.split() == ["pds.ack.m", "0", "│", "1"] for line in lines)
    few = invoke("diff", *files, "--count", "1").stdout
    assert "these are the first 1; --count N shows more" in few
    assert all(len(line) <= 100 for line in lines)


def test_what_programs_see(files: tuple[str, str]) -> None:
    assert invoke("diff", *files, "--golden").stdout == GOLDEN
    *found, summary = map(json.loads, invoke("diff", *files, "--json").stdout.splitlines())
    assert [one["kind"] for one in found] == ["missing", "extra", "changed"]
    assert found[2]["fields"] == [{"field": "pds.ack.m", "a": 0, "b": 1}]
    assert found[0]["a"] == {"index": 2, "number": 3, "summary": "ROD_REQ PSN 73730 · WRITE id 1 2048–3072 of 12288"}
    assert found[0]["b"] is None
    assert summary == {
        "kind": "summary", "files": list(files), "differs": True, "packets": [8, 8], "same": 6, "changed": 1,
        "moved": 0, "missing": 1, "extra": 1, "unopened": 0,
    }  # fmt: skip
    suite = ElementTree.fromstring(invoke("diff", *files, "--junit", "-").stdout)[0]
    assert (suite.get("tests"), suite.get("failures")) == ("3", "2")


def test_other_addresses(files: tuple[str, str], tmp_path: Path) -> None:
    """Traffic that goes between 10.0.0.21 and 10.0.0.22 instead is the same if --map says so."""
    a, b = ({"src": one, "dst": other} for one, other in ((21, 22), (22, 21)))
    there = [
        frame(*a.values(), *write(73728 + at, 1024 * at, syn=at < 2), payload=bytes([at]) * 1024) for at in range(4)
    ] + [frame(*b.values(), *ack(73728 + at)) for at in range(4)]
    other = str(capture(tmp_path / "there.pcap", there))
    assert invoke("diff", files[0], other).exit_code == 1
    options = ("--map", "10.0.0.11=10.0.0.21,10.0.0.12=10.0.0.22", "--ignore", "ethernet")
    assert invoke("diff", files[0], other, *options).stdout.splitlines()[-1] == "no difference: 8 packets are the same"
    there[5] = frame(22, 21, *ack(73729, m=1))
    result = invoke("diff", files[0], str(capture(tmp_path / "m.pcap", there)), *options, "--golden")
    assert result.stdout == "changed A#6 B#6 10.0.0.12 → 10.0.0.11 PDC 9 → 5: pds.ack.m 0 1\n"


def test_a_filter(files: tuple[str, str]) -> None:
    result = invoke("diff", *files, "--golden", "--filter", "uetp.pds.ack")
    assert result.stdout.startswith("changed A#6 B#6 ")
    assert len(result.stdout.splitlines()) == 1
    assert invoke("diff", *files, "--filter", "uetp.pds.cp").exit_code == 0
    assert "did you mean" in invoke("diff", *files, "--filter", "uetp.pds.ac").stderr


def test_equal_captures(files: tuple[str, str]) -> None:
    result = invoke("diff", files[0], files[0])
    assert result.exit_code == 0
    assert result.stdout.splitlines()[-1] == "no difference: 8 packets are the same"
    assert invoke("diff", files[0], files[0], "--golden").stdout == ""
    assert invoke("diff", files[0], files[0], "--junit", "-").stdout.count("testcase") == 1


def test_a_pipe(files: tuple[str, str]) -> None:
    with open(files[1], "rb") as pipe:
        done = subprocess.run(
            [sys.executable, "-m", "uetproto", "diff", files[0], "-", "--golden"], stdin=pipe, capture_output=True,
            text=True, check=False,
        )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (1, GOLDEN, "")


def test_damage_is_a_fault(files: tuple[str, str], tmp_path: Path) -> None:
    cut = tmp_path / "cut.pcap"
    cut.write_bytes(Path(files[0]).read_bytes()[:-3])
    result = invoke("diff", str(cut), str(cut))
    assert result.exit_code == 1
    assert "damaged at byte" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--ignore", "ipv4.tlt"], "did you mean ipv4.ttl"),
        (["--map", "10.0.0.11"], "pairs of IP addresses"),
        (["--map", "10.0.0.11=x"], "IP addresses"),
        (["--map", "10.0.0.11=::1"], "one version of IP"),
        (["--json", "--golden"], "exclude each other"),
        (["--json", "--junit", "-"], "standard output for itself"),
        (["--junit", "/nowhere/x.xml"], "there is no directory"),
    ],
)
def test_misuse(files: tuple[str, str], arguments: list[str], says: str) -> None:
    result = invoke("diff", *files, *arguments)
    assert result.exit_code == 2
    assert says in result.stderr
    assert invoke("diff", files[0], "nowhere.pcap").exit_code == 2
