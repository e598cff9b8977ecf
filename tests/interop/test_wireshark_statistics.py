# SPDX-License-Identifier: GPL-2.0-only
"""`tshark -z uetp,…`: what the plugin counts, against `stats` and `stats --per-packet`."""

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support import paths
from tests.support.cli.frames import invoke
from tests.support.interop.tshark import folder, needs_tshark, run

pytestmark = needs_tshark

Rows = dict[str, list[list[str]]]
"""Type of what is printed: by the first word of the title, the rows of the table, split at two spaces."""


@pytest.fixture
def home() -> Iterator[Path]:
    with folder() as path:
        yield path


def statistics(capture: Path, home: Path, *names: str, extra: tuple[str, ...] = ()) -> Rows:
    options = [word for name in names for word in ("-z", f"uetp,{name}")]
    out, _ = run(["-q", *options, *extra, "-r", capture], home)
    tables: Rows = {}
    for block in out.split("=" * 100 + "\n"):
        if block.startswith("UET "):
            title, _, *lines = block.splitlines()
            rows = [[cell.strip() for cell in line.split("  ") if cell.strip()] for line in lines]
            tables[title.split()[1].strip(",:")] = rows[1:]
    return tables


def seconds(text: str) -> float:
    number, unit = text.split()
    return float(number) * {"us": 1e-6, "ms": 1e-3, "s": 1}[unit]


def test_a_capture_with_losses(home: Path) -> None:
    capture = home / "lossy.pcapng"
    capture.write_bytes((paths.PCAPS / "gradient-lossy.pcapng").read_bytes())
    assert statistics(capture, home, "pdc", "nack", "msg", "srt") == {
        "PDCs": [
            ["0", "10.0.0.11 -> 10.0.1.11", "16", "15888", "ROD_OOO 2, RTO? 1", "1", *["4.047 us"] * 5],
            ["0", "10.0.1.11 -> 10.0.0.11", "4", "260", "-", "0", *"-----"],
        ],
        "NACKs": [["NACK", "ROD_OOO", "1"], ["return code", "OK", "2"]],
        "messages": [["WRITE", "1", "12288", "1", *["18.365 us"] * 5]],
        "service": [["WRITE", "2", "4.047 us", "9.048 us", "4.047 us", "14.048 us", "14.048 us"]],
    }
    only = statistics(capture, home, "pdc,uetp.nack_code", "nack", extra=("-T", "fields", "-e", "frame.number"))
    assert only["PDCs"][0][:4] == ["0", "10.0.1.11 -> 10.0.0.11", "1", "62"]
    assert only["NACKs"] == [["NACK", "ROD_OOO", "1"], ["return code", "OK", "2"]]


def test_traffic_against_stats(home: Path) -> None:
    """The same numbers come from `stats --per-packet`, and the same retransmissions from `stats`."""
    capture = home / "traffic.pcapng"
    assert invoke("generate", "lossy", "-o", str(capture), "--packets", "400", "--seed", "3").exit_code == 0
    capture.chmod(0o644)
    packets = [json.loads(line) for line in invoke("stats", "--per-packet", str(capture)).output.splitlines()]
    found = statistics(capture, home, "pdc", "msg", "nack", "srt")

    counted = Counter(packet["uetp.pdc"] for packet in packets if "uetp.pdc" in packet)
    shown: Counter[int] = Counter()
    for row in found["PDCs"]:
        shown[int(row[0])] += int(row[2])
    assert shown == counted
    rtts = [packet["uetp.analysis.rtt"] for packet in packets if "uetp.analysis.rtt" in packet]
    with_rtts = [row for row in found["PDCs"] if row[5] != "0"]
    assert sum(int(row[5]) for row in with_rtts) == len(rtts) > 0
    assert max(seconds(row[10]) for row in with_rtts) == pytest.approx(max(rtts), rel=1e-3)
    assert min(seconds(row[6]) for row in with_rtts) == pytest.approx(min(rtts), rel=1e-3)

    again = sum(packet.get("uetp.analysis.retransmission", False) for packet in packets if "uetp.pdc" in packet)
    causes = [cause.rsplit(" ", 1) for row in found["PDCs"] if row[4] != "-" for cause in row[4].split(", ")]
    assert sum(int(number) for _, number in causes) == again > 0
    by_cause: Counter[str] = Counter()
    for cause, number in causes:
        by_cause[cause] += int(number)
    told: Counter[str] = Counter()
    for row in map(json.loads, invoke("stats", "--json", str(capture)).output.splitlines()):
        for cause, number in (row["resent"] if row["kind"] == "pdc" else {}).items():
            told[cause.removeprefix("NACK ")] += number
    assert by_cause == told

    times = {packet["uetp.msg"]: packet["uetp.msg.time"] for packet in packets if "uetp.msg.time" in packet}
    assert sum(int(row[3]) for row in found["messages"]) == len(times) > 0
    assert max(seconds(row[8]) for row in found["messages"]) == pytest.approx(max(times.values()), rel=1e-3)

    nacks = Counter(row[1] for row in found["NACKs"] for _ in range(int(row[2])) if row[0] == "NACK")
    assert nacks == Counter(code_name(packet["uetp.nack_code"]) for packet in packets if "uetp.nack_code" in packet)
    answered = sum("uetp.response_in" in packet for packet in packets)
    assert sum(int(row[1]) for row in found["service"]) == answered > 0


def code_name(code: Any) -> str:
    from uetproto.wire.headers.uet_pds import NackCode

    return NackCode(code).name
