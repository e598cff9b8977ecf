# SPDX-License-Identifier: GPL-2.0-only
"""`uetproto ladder`: rows, the terminal's chart, SVG, JSON."""

import json
import re
import subprocess
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from tests.support import paths
from tests.support.cli.frames import ARP, ack, capture, close, frame, invoke, layer, nack, program, trimmed, write
from tests.support.each import each
from uetproto import Layer, Packet, Trailer, encode
from uetproto.cli.ladder.chart import Chart
from uetproto.cli.ladder.rows import Arrow, More, Pause, Row, rows
from uetproto.impair.frame_outcome import FrameOutcome
from uetproto.wire.capture.pcap import open_writer

DATA = bytes(1024)


def story(target: int = 12) -> list[tuple[int, bytes]]:
    """A write of which a packet is lost, one damaged, one trimmed; times in ns."""
    a, b = 11, target
    events = [(85 * k, frame(a, b, *write(73728 + k, 1024 * k, syn=int(k < 2)), payload=DATA)) for k in range(7)]
    events += [
        (600, frame(a, b, *write(73735, 7168), payload=DATA)[:-1] + b"\0"),
        (2_000, frame(b, a, *ack(73730))),
        (2_085, frame(b, a, nack(73732, 73731))),
        (3_000, frame(a, b, *write(73731, 3072, retx=1), payload=DATA)),
        (3_085, trimmed(frame(a, b, *write(73736, 8192), payload=DATA), 98)),
        (1_003_000, frame(a, b, close(73740))),
        (1_004_000, ARP),
        (1_005_000, frame(b, a, *ack(73740))),
    ]
    return events


def stored(path: Path, events: list[tuple[int, bytes]]) -> str:
    with open_writer(path) as writer:
        for time_ns, data in events:
            writer.write(time_ns, data)
    return str(path)


@pytest.fixture
def small(tmp_path: Path) -> str:
    return stored(tmp_path / "small.pcapng", story())


CHART = """\
time            10.0.0.11                                                               10.0.0.12
                │                                                                               │
      0.000 µs  ├───────────── ROD_REQ SYN PSN 73728 · WRITE id 1 0–1024 of 12288 ─────────────▶│
                │                          … 5 more, PSN 73729–73733 …                          │
      0.510 µs  ├────────────── ROD_REQ PSN 73734 · WRITE id 1 6144–7168 of 12288 ─────────────▶│
      0.600 µs  ├───────── ROD_REQ PSN 73735 · WRITE id 1 7168–8192 of 12288 [CRC BAD] ────────╳│
      2.000 µs  │◀─────────────────────── ACK PSN 73730 CACK 73730 · OK ────────────────────────┤
      2.085 µs  │◀─────────────────── NACK ROD_OOO PSN 73732 expects 73731 ─────────────────────┤
      3.000 µs  ├╌╌╌╌╌╌╌╌╌╌╌ ROD_REQ PSN 73731 retx · WRITE id 1 3072–4096 of 12288 ╌╌╌╌╌╌╌╌╌╌╌▶│
      3.085 µs  ├───────── ROD_REQ PSN 73736 · WRITE id 1 8192–9216 of 12288 [trimmed] ────────✂│
                ┊                                  1 ms later                                   ┊
   1.003000 ms  ├────────────────────────── CP CLOSE_CMD PSN 73740 ar ─────────────────────────▶│
   1.005000 ms  │◀─────────────────────── ACK PSN 73740 CACK 73740 · OK ────────────────────────┤
"""


def test_chart_of_two_hosts(small: str) -> None:
    result = invoke("ladder", small, "--width", "97")
    assert result.stdout == CHART
    assert result.stderr == "uetproto: not drawn: 1 packet without UET or RoCE between IP addresses\n"
    assert result.exit_code == 0
    assert invoke("ladder", "-", "--width", "97", data=Path(small).read_bytes()).stdout == CHART


def test_chart_of_three_hosts(tmp_path: Path) -> None:
    path = capture(
        tmp_path / "three.pcapng",
        [
            frame(11, 12, *write(73728, 0, syn=1), payload=DATA),
            frame(11, 13, *write(73728, 0, syn=1), payload=DATA),
            frame(12, 11, *ack(73728)),
            frame(13, 11, nack(73730, 73729)),
        ],
    )
    assert (
        invoke("ladder", path, "--width", "106").stdout
        == """\
time        10.0.0.11         10.0.0.12         10.0.0.13
                │                 │                 │
      0.000 µs  ├────────────────▶│                 │  ROD_REQ SYN PSN 73728 · WRITE id 1 0–1024 of 12288
      1.000 µs  ├─────────────────┼────────────────▶│  ROD_REQ SYN PSN 73728 · WRITE id 1 0–1024 of 12288
      2.000 µs  │◀────────────────┤                 │  ACK PSN 73728 CACK 73728 · OK
      3.000 µs  │◀────────────────┼─────────────────┤  NACK ROD_OOO PSN 73730 expects 73729
"""
    )


def test_hosts_that_turn_up_late_get_a_new_heading(tmp_path: Path) -> None:
    frames = [frame(11, host, *write(73728, 0, syn=1), payload=DATA) for host in (12, 12, 13)]
    path = capture(tmp_path / "x.pcapng", frames)
    assert invoke("ladder", path).stdout.count("time") == 1
    lines = invoke("ladder", "-", data=Path(path).read_bytes()).stdout.splitlines()
    assert [len(line.split()) for line in lines if "time" in line] == [3, 4]


def test_hosts_without_a_lifeline_are_not_kept() -> None:
    chart = Chart(100, lambda text, style: text)
    drawn = (Arrow(n, n, (n, 32), (n + 1, 32), "data", "text", None, None) for n in range(5000))
    lines = list(chart.lines(drawn))
    assert len(lines) == 2 + 5000  # one heading
    assert len(chart._hosts) < 20
    assert lines[-1].split("●")[-1].startswith("  0.0.19.135→0.0.19.136")


@each("numbered", [False, True])
@each("columns", [40, 60, 80, 140])
@each("hosts", [1, 2, 3, 9, 60])
def test_no_line_is_wider_than_asked(columns: int, hosts: int, numbered: bool) -> None:
    chart = Chart(columns, lambda text, style: text, numbered)
    drawn: list[Row] = [Pause(10**6)]
    for number in range(hosts):
        ends = (0x0A000001, 32), (0x0A000001 + number, 32)
        drawn += [
            Arrow(number, number * 10**9, *ends, "data", "word " * 30, number, None),
            More(1000, *ends, "retx", (1, 2**32 - 1)),
            Arrow(number, number * 10**9, ends[1], ends[0], "bad", "word " * 30, number, None),
            Arrow(number, number * 10**9, *ends, "lost", "word " * 30, number, None),
        ]
    lines = list(chart.lines(drawn))
    assert len(lines) == 2 + 1 + 4 * hosts
    assert max(map(len, lines)) <= columns
    most = {40: 2, 60: 2, 80: 4, 140: 11} if numbered else {40: 2, 60: 3, 80: 5, 140: 13}
    assert ("others" in lines[0]) == (hosts > most[columns])


def test_long_addresses_keep_their_end() -> None:
    host = 0xFD000000000000000000AAAABBBBCC00
    drawn: list[Row] = [Arrow(0, 0, (host + k, 128), (host + k + 1, 128), "data", "x", None, None) for k in range(3)]
    heading = next(Chart(80, lambda text, style: text).lines(drawn))
    assert heading.split() == ["time", "…b:cc00", "…b:cc01", "…b:cc02", "…b:cc03"]


# Rows -----------------------------------------------------------------------------------------------------------------


def arrow(index: int, time_ns: int, like: object = 0, psn: int | None = None, way: int = 1) -> Arrow:
    src, dst = ((1, 32), (2, 32))[::way]
    return Arrow(index, time_ns, src, dst, "data", str(index), psn, like)


def drawn(arrows: list[Arrow], collapse: bool = True) -> list[Any]:
    """Rows in short: an index, (how many, PSNs), or a pause in ns as a string."""
    return [
        row.index if isinstance(row, Arrow) else (row.count, row.psns) if isinstance(row, More) else str(row.ns)
        for row in rows(arrows, collapse)
    ]


def test_runs_of_similar_packets() -> None:
    def run(length: int) -> list[Arrow]:
        return [arrow(k, 85 * k, psn=2**32 - 2 + k & 0xFFFFFFFF) for k in range(length)]

    assert drawn([]) == []
    assert [drawn(run(n)) for n in (1, 2, 5)] == [[0], [0, 1], [0, 1, 2, 3, 4]]
    assert drawn(run(6)) == [0, (4, (2**32 - 1, 2)), 5]
    assert drawn(run(500)) == [0, (498, (2**32 - 1, 496)), 499]
    assert drawn(run(500), collapse=False) == list(range(500))
    gap = run(8)
    del gap[4]
    assert drawn(gap) == [0, (5, None), 7]


def test_what_ends_a_run() -> None:
    same = [arrow(k, 0) for k in range(6)]
    assert drawn([*same, arrow(6, 0, like=1), arrow(7, 0)]) == [0, (4, None), 5, 6, 7]
    assert drawn([*same, arrow(6, 0, way=-1)]) == [0, (4, None), 5, 6]
    assert drawn([*same, *(arrow(k, 10**6) for k in range(6, 12))]) == [0, (4, None), 5, "1000000", 6, (4, None), 11]


def test_pauses_are_long_for_their_capture() -> None:
    assert drawn([arrow(0, 0), arrow(1, 99_999, 1)]) == [0, 1]
    assert drawn([arrow(0, 0), arrow(1, 100_000, 1)]) == [0, "100000", 1]
    slow = [arrow(k, 60_000 * k, k) for k in range(10)]
    assert drawn([*slow, arrow(10, 60_000 * 9 + 300_000, 10)]) == list(range(11))
    assert drawn([*slow, arrow(10, 60_000 * 9 + 700_000, 10)]) == [*range(10), "700000", 10]


# Lost packets ---------------------------------------------------------------------------------------------------------


def lossy(path: Path, hosts: tuple[int, int] = (12, 12)) -> str:
    """What `uetproto run` writes of packets that its network has lost, cut or damaged."""
    first, last = hosts
    records = [
        (frame(11, first, *write(73728, 0, syn=1), payload=DATA), None),
        (frame(11, last, *write(73729, 1024), payload=DATA), FrameOutcome.LOST),
        (frame(11, last, *write(73730, 2048), payload=DATA), FrameOutcome.TRIMMED),
        (frame(11, last, *write(73731, 3072), payload=DATA), FrameOutcome.DAMAGED),
        (frame(last, 11, *ack(73728)), FrameOutcome.LOST),
        (frame(last, 11, *ack(73728)), "of another program"),
    ]
    with open_writer(path) as writer:
        for number, (data, comment) in enumerate(records):
            writer.write(number * 1000, data, comment=comment)
    return str(path)


LOSSY = """\
time            10.0.0.11                                                               10.0.0.12
                │                                                                               │
      0.000 µs  ├───────────── ROD_REQ SYN PSN 73728 · WRITE id 1 0–1024 of 12288 ─────────────▶│
      1.000 µs  ├────── ROD_REQ PSN 73729 · WRITE id 1 1024–2048 of 12288 [lost] ─────╳         │
      2.000 µs  ├─── ROD_REQ PSN 73730 · WRITE id 1 2048–3072 of 12288 [trimmed on the way] ───✂│
      3.000 µs  ├─── ROD_REQ PSN 73731 · WRITE id 1 3072–4096 of 12288 [damaged on the way] ───╳│
      4.000 µs  │         ╳─────────────── ACK PSN 73728 CACK 73728 · OK [lost] ────────────────┤
      5.000 µs  │◀─────────────────────── ACK PSN 73728 CACK 73728 · OK ────────────────────────┤
"""


def test_lost_packets_do_not_arrive(tmp_path: Path) -> None:
    path = lossy(tmp_path / "x.pcapng")
    result = invoke("ladder", path, "--width", "97")
    assert (result.exit_code, result.stdout) == (0, LOSSY)
    tones = [json.loads(line)["tone"] for line in invoke("ladder", path, "--json").stdout.splitlines()]
    assert tones == ["data", "lost", "trimmed", "bad", "lost", "ack"]


def test_lost_packets_among_three_hosts(tmp_path: Path) -> None:
    """They pass the lifelines between."""
    lines = invoke("ladder", lossy(tmp_path / "x.pcapng", (12, 13)), "--width", "106").stdout.splitlines()
    assert [line[16:54].rstrip() for line in lines[2:]] == [
        "├────────────────▶│                 │",
        "├─────────────────┼────────────╳    │",
        "├─────────────────┼────────────────✂│",
        "├─────────────────┼────────────────╳│",
        "│    ╳────────────┼─────────────────┤",
        "│◀────────────────┼─────────────────┤",
    ]


def test_lost_packets_in_a_drawing(tmp_path: Path) -> None:
    root = picture(lossy(tmp_path / "x.pcapng"))
    left, right = (float(one.get("x1", "")) for one in root.iter(f"{SVG}line") if one.get("class") == "life")
    ends = [float(one.get("x2", "")) for one in root.iter(f"{SVG}line") if one.get("class") == "arrow lost"]
    there, back, _ = ends  # the third is in the legend
    assert left + 0.7 * (right - left) < there < right - 0.1 * (right - left)
    assert left + 0.1 * (right - left) < back < right - 0.7 * (right - left)
    middles = [float(one.get("x", "")) for one in root.iter(f"{SVG}text") if one.get("class") == "label lost"]
    assert middles == pytest.approx([(left + there) / 2, (right + back) / 2], abs=6)  # beside the cross
    assert "lost on the way" in texts(root, "legend")


def test_a_run_is_drawn_with_its_losses(tmp_path: Path) -> None:
    path = str(tmp_path / "x.pcapng")
    assert invoke("run", "ladder-L19", "-o", path).exit_code == 0
    lines = [line for line in invoke("ladder", path).stdout.splitlines() if "[lost]" in line]
    assert len(lines) == 1
    assert re.search(r"├─.* PSN 333 .*─╳ +│$", lines[0])


# Options --------------------------------------------------------------------------------------------------------------


def test_json_rows(small: str) -> None:
    result = invoke("ladder", small, "--json")
    seen = [json.loads(line) for line in result.stdout.splitlines()]
    assert seen[0] == {
        "row": "packet", "index": 0, "number": 1, "time_ns": 0, "ip_version": 4, "src": 0x0A00000B, "dst": 0x0A00000C,
        "tone": "data", "text": "ROD_REQ SYN PSN 73728 · WRITE id 1 0–1024 of 12288",
    }  # fmt: skip
    assert seen[1] == {
        "row": "more", "count": 5, "ip_version": 4, "src": 0x0A00000B, "dst": 0x0A00000C,
        "tone": "data", "text": "5 more, PSN 73729–73733",
    }  # fmt: skip
    assert seen[8] == {"row": "pause", "duration_ns": 999_915}
    assert [row["tone"] for row in seen if row["row"] == "packet"] == [
        "data", "data", "bad", "ack", "nack", "retx", "trimmed", "control", "ack",
    ]  # fmt: skip
    every = [json.loads(line) for line in invoke("ladder", small, "--json", "--all").stdout.splitlines()]
    assert [row.get("index") for row in every] == [*range(12), None, 12, 14]


def test_json_is_the_same_in_any_locale(small: str) -> None:
    with program("ladder", small, "--json", env={"PYTHONIOENCODING": "latin-1"}) as process:
        assert process.communicate()[0].decode("ascii") == invoke("ladder", small, "--json").stdout


def test_count_stops(small: str) -> None:
    result = invoke("ladder", small, "--count", "3", "--width", "97")
    assert result.stdout == "".join(CHART.splitlines(keepends=True)[:5])
    assert result.stderr == "uetproto: these are the first 3 rows; --count N draws more\n"
    assert invoke("ladder", small, "--count", "0").stdout == ""
    assert "first" not in invoke("ladder", small, "--count", "10").stderr


def test_one_interface(tmp_path: Path) -> None:
    path = tmp_path / "taps.pcapng"
    with open_writer(path, interfaces=[("a.p0", 1), ("b.p0", 1)]) as writer:
        for time_ns, data in story():
            writer.write(time_ns + 1000, data, interface=1)
        writer.write(9000, frame(11, 12, close(1)), interface=0)

    def lines(*arguments: str) -> int:
        return len(invoke("ladder", str(path), "--all", *arguments).stdout.splitlines())

    assert lines() == lines("--interface", "0") == lines("--interface", "a.p0") == 2 + 1
    assert lines("--interface", "1") == lines("--interface", "b.p0") == 2 + 14 + 1
    assert "15 packets of other interfaces" in invoke("ladder", str(path)).stderr
    result = invoke("ladder", str(path), "--interface", "c")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == f"uetproto: {path}: there is no interface c; there are 0 a.p0, 1 b.p0 [unknown-interface]\n"
    assert "there is no interface 99" in invoke("ladder", str(path), "--interface", "9" * 5000).stderr


def test_a_message_lists_few_interfaces(tmp_path: Path) -> None:
    with open_writer(tmp_path / "taps.pcapng", interfaces=[(f"{number}" * 1000, 1) for number in range(200)]):
        pass
    said = invoke("ladder", str(tmp_path / "taps.pcapng"), "--interface", "c").stderr
    assert said.endswith("…, … [unknown-interface]\n")
    assert len(said) < 1000


def test_a_crc_is_wrong_where_the_others_of_the_flow_are_right(tmp_path: Path) -> None:
    frames = [frame(11, 12, *write(psn, 0, size=4096, syn=1), payload=bytes(4096)) for psn in range(73728, 73733)]
    frames[2] = frames[2][:-1] + bytes([frames[2][-1] ^ 1])
    chart = invoke("ladder", capture(tmp_path / "x.pcap", frames)).stdout
    assert [line.count("[CRC BAD]") for line in chart.splitlines() if "PSN" in line] == [0, 0, 1, 0, 0]


def test_one_pdc(tmp_path: Path) -> None:
    other = frame(11, 12, layer("pds.cp", ctl_type=0, psn=1, spdcid=77, dpdcid=78))
    path = capture(tmp_path / "x.pcapng", [other, frame(11, 12, close(2)), frame(12, 11, *ack(2)), other])
    for pdc, packets in (("77", 2), ("78", 2), ("5", 2), ("9", 2), ("6", 0)):
        assert len(invoke("ladder", path, "--pdc", pdc, "--json", "--all").stdout.splitlines()) == packets


@pytest.mark.parametrize(
    ("data", "status"),
    [(frame(1, 2, close(1)), 0), (ARP, 0), (frame(1, 2, *write(1, 1024), payload=b"short"), 1)],
    ids=["good", "no UET", "malformed"],
)
def test_exit_status(data: bytes, status: int, tmp_path: Path) -> None:
    path = capture(tmp_path / "x.pcap", [data])
    assert invoke("ladder", path).exit_code == status
    assert invoke("ladder", path, "--svg", str(tmp_path / "x.svg")).exit_code == status


def test_damage(small: str, tmp_path: Path) -> None:
    path = tmp_path / "cut.pcapng"
    path.write_bytes(Path(small).read_bytes()[:-30])
    result = invoke("ladder", str(path))
    assert result.exit_code == 1
    assert f"uetproto: {path}: damaged at byte " in result.stderr
    assert "CLOSE_CMD" in result.stdout


def test_a_closed_pipe_ends_silently(tmp_path: Path) -> None:
    events = [(k * 1000, frame(1, 2, *(ack(k) if k % 2 else write(k, 0)), payload=b"")) for k in range(4000)]
    with program("ladder", stored(tmp_path / "long.pcap", events)) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait() == 0


def test_colours_are_on_the_arrow() -> None:
    chart = Chart(60, lambda text, style: f"<{style}>{text}</>" if style else text)
    nacked = Arrow(0, 0, (1, 32), (2, 32), "nack", "NACK", None, None)
    *_, line = chart.lines([nacked])
    assert re.fullmatch(r" +0\.000 µs  ├<red>─+ NACK ─+▶</>│", line)


# SVG ------------------------------------------------------------------------------------------------------------------

SVG = "{http://www.w3.org/2000/svg}"


def picture(path: str, *arguments: str) -> ElementTree.Element:
    result = invoke("ladder", path, "--svg", "-", *arguments)
    return ElementTree.fromstring(result.stdout)


def texts(root: ElementTree.Element, kind: str) -> list[str]:
    return ["".join(one.itertext()) for one in root.iter(f"{SVG}text") if one.get("class", "").split()[0] == kind]


def test_svg(small: str, tmp_path: Path) -> None:
    out = tmp_path / "small.svg"
    result = invoke("ladder", small, "--svg", str(out))
    assert (result.exit_code, result.stdout) == (0, "")
    root = ElementTree.fromstring(out.read_text())
    assert root.tag == f"{SVG}svg"
    assert texts(root, "title") == ["small.pcapng"]
    assert texts(root, "host") == ["10.0.0.11", "10.0.0.12"]
    assert texts(root, "time")[0] == "0.000 µs"
    assert texts(root, "pause") == ["⋯ 1 ms later ⋯"]
    labels = texts(root, "label")
    assert labels[0] == "ROD_REQ SYN PSN 73728 · WRITE id 1 0–1024 of 12288"
    assert labels[1] == "… 5 more, PSN 73729–73733 …"
    assert len(labels) == 10
    assert texts(root, "legend") == [
        "request or data", "ACK, response", "control packet", "retransmission", "trimmed", "NACK",
        "malformed, CRC or ICV error",
    ]  # fmt: skip
    assert "prefers-color-scheme: dark" in out.read_text()
    wide, high = float(root.get("width", "")), float(root.get("height", ""))
    for one in root.iter():
        for name in ("x", "x1", "x2"):
            assert 0 <= float(one.get(name, 0)) <= wide
        for name in ("y", "y1", "y2"):
            assert 0 <= float(one.get(name, 0)) <= high


def test_svg_of_many_hosts(tmp_path: Path) -> None:
    frames = [frame(11, host, *write(73728, 0, syn=1), payload=DATA) for host in range(12, 17)]
    root = picture(capture(tmp_path / "x.pcapng", frames))
    assert len(texts(root, "host")) == 6
    assert len(texts(root, "beside")) == 5


def test_svg_is_bounded_and_says_so(tmp_path: Path) -> None:
    events = [(k * 1000, frame(1, 2, *(ack(k) if k % 2 else [close(k)]))) for k in range(300)]
    path = stored(tmp_path / "x.pcapng", events)
    root = picture(path)
    assert len(texts(root, "label")) == 200
    assert texts(root, "note") == ["the first 200 packets"]
    assert len(texts(picture(path, "--count", "250"), "label")) == 250
    assert texts(picture(path, "--count", "300"), "note") == []


def test_svg_of_nothing_and_of_names_with_markup(tmp_path: Path) -> None:
    root = picture(capture(tmp_path / "<a> & b\x01.pcap", [ARP]))
    assert texts(root, "title") == ["<a> & b\N{REPLACEMENT CHARACTER}.pcap"]
    assert texts(root, "label") == []


def test_svg_is_the_same_in_any_locale(small: str) -> None:
    with program("ladder", small, "--svg", "-", env={"PYTHONIOENCODING": "latin-1"}) as process:
        text = process.communicate()[0].decode("ascii")
    assert text == invoke("ladder", small, "--svg", "-").stdout
    assert "ROD_REQ SYN PSN 73728 · WRITE" in "".join(ElementTree.fromstring(text).itertext())


def test_svg_does_not_overwrite_the_capture(small: str) -> None:
    before = Path(small).read_bytes()
    result = invoke("ladder", small, "--svg", small)
    assert (result.exit_code, Path(small).read_bytes()) == (2, before)
    assert ": would overwrite FILE" in result.stderr


def test_svg_that_cannot_be_written(small: str, tmp_path: Path) -> None:
    result = invoke("ladder", small, "--svg", str(tmp_path / "no" / "x.svg"))
    assert result.exit_code == 2
    assert result.stderr.endswith(f": there is no directory {tmp_path / 'no'} [cannot-write]\n")


def test_a_pipe_is_drawn_as_it_comes(small: str) -> None:
    with program("ladder", "-", stdin=subprocess.PIPE, env={"PYTHONUNBUFFERED": "1"}) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(Path(small).read_bytes())
        process.stdin.flush()
        assert "CLOSE_CMD" in "".join(process.stdout.readline().decode() for _ in range(12))
        process.stdin.close()
        process.stdin = None
        assert process.communicate()[1].startswith(b"uetproto: not drawn: 1 packet")


PCAPS = paths.PCAPS


@pytest.mark.parametrize(
    ("name", "tones"),
    [
        # FIRST, lost MIDDLE, 2 × MIDDLE, LAST; NAK; from the lost one on again; ACK
        ("roce-fail-sequence", "data lost data data data nack retx retx retx retx ack"),
        # both READs are new, so are the answers, whose PSNs are those of the requests
        ("roce-read-several", "data data data data data data data"),
        ("gradient-roce", "data data data ack"),
    ],
)
def test_retransmissions_of_roce(name: str, tones: str) -> None:
    """No packet of RC says that it was sent before: its PSN does."""
    done = invoke("ladder", str(PCAPS / f"{name}.pcapng"), "--json", "--all")
    assert [json.loads(line)["tone"] for line in done.stdout.splitlines()] == tones.split()


def test_a_lost_last_packet_is_sent_again() -> None:
    """Nothing beyond it was seen, but itself."""
    done = invoke("ladder", str(PCAPS / "roce-fail-last-lost.pcapng"), "--json")
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    tones = [row["tone"] for row in rows if row["row"] == "packet"]
    assert tones.index("lost") < tones.index("retx")


@pytest.mark.parametrize(
    ("numbers", "indices"),
    [
        ("3", [2]), ("1-2", [0, 1]), ("4-6", [3, 4, 5]), ("19-99", [18, 19]), ("4,18-19,1", [0, 3, 17, 18]),
    ],
)  # fmt: skip
def test_only_some_packets(numbers: str, indices: list[int]) -> None:
    path = str(PCAPS / "gradient-lossy.pcapng")
    rows = invoke("ladder", path, "--json", "--all", "--packets", numbers)
    assert rows.exit_code == 0
    drawn = [json.loads(line) for line in rows.stdout.splitlines()]
    every = [json.loads(line) for line in invoke("ladder", path, "--json", "--all").stdout.splitlines()]
    texts = [row["text"] for row in every if row["row"] == "packet"]
    assert [row["text"] for row in drawn if row["row"] == "packet"] == [texts[index] for index in indices]


def test_what_came_before_tells_retransmissions_of_roce() -> None:
    done = invoke("ladder", str(PCAPS / "roce-fail-sequence.pcapng"), "--json", "--all", "--packets", "7-9")
    assert [json.loads(line)["tone"] for line in done.stdout.splitlines()] == ["retx"] * 3


@pytest.mark.parametrize(
    "numbers", ["", "-", "7-", "-7", "a", "1-b", "1-2-3", "1,", ",1", "1-2;3", "0", "0-2", "9" * 5000]
)
def test_what_are_no_packets(small: str, numbers: str) -> None:
    done = invoke("ladder", small, f"--packets={numbers}")
    assert done.exit_code == 2
    assert "legal are numbers of packets from 1, such as 7 or 7-12" in done.stderr


def test_a_range_that_holds_nothing_is_refused(small: str) -> None:
    done = invoke("ladder", small, "--packets", "1,5-2")
    assert (done.exit_code, done.stdout) == (2, "")
    assert "5-2: the last number is below the first; legal: 2-5" in done.stderr


# Numbers and marks ----------------------------------------------------------------------------------------------------

MARKED = """\
time                     10.0.0.11                                                      10.0.0.12
                         │                                                                      │
      0.000 µs      #1   ├───────── ROD_REQ SYN PSN 73728 · WRITE id 1 0–1024 of 12288 ────────▶│
      0.085 µs      #2   ├─────── ROD_REQ SYN PSN 73729 · WRITE id 1 1024–2048 of 12288 ───────▶│
      0.170 µs      #3   ├───────── ROD_REQ PSN 73730 · WRITE id 1 2048–3072 of 12288 ─────────▶│
      0.255 µs      #4▸  ├───────── ROD_REQ PSN 73731 · WRITE id 1 3072–4096 of 12288 ─────────▶│
      0.340 µs      #5   ├───────── ROD_REQ PSN 73732 · WRITE id 1 4096–5120 of 12288 ─────────▶│
   1.005000 ms     #15▸  │◀────────────────── ACK PSN 73740 CACK 73740 · OK ────────────────────┤
"""


def test_marked_packets_are_rows_of_their_own(small: str) -> None:
    """Whatever the other options choose; without the mark, #4 is in a run (`CHART`)."""
    done = invoke("ladder", small, "--packets", "1-5", "--mark", "4", "--mark", "15", "--width", "97")
    drawn = [line for line in done.stdout.splitlines(keepends=True) if "later" not in line]
    assert (done.exit_code, "".join(drawn)) == (0, MARKED)
    rows = [json.loads(line) for line in invoke("ladder", small, "--json", "--mark", "4").stdout.splitlines()]
    assert [row["index"] for row in rows[:5]] == [0, 1, 2, 3, 4]
    assert [row["index"] for row in rows if row.get("marked")] == [3]
    assert "marked" not in rows[0]
    other = invoke("ladder", small, "--json", "--mark", "4", "--pdc", "6").stdout.splitlines()
    assert [json.loads(line)["index"] for line in other] == [3]


def test_marks_in_a_drawing(small: str) -> None:
    assert "#" not in "".join(texts(picture(small), "time"))
    numbers = [text for text in texts(picture(small, "--mark", "4"), "time") if text.startswith("#")]
    assert numbers[:5] == ["#1", "#2", "#3", "#4 ▸", "#5"]


def test_marks_that_are_not_there(small: str) -> None:
    """#14 is ARP."""
    said = invoke("ladder", small, "--mark", "4", "--mark", "99", "--mark", "14").stderr
    assert said.startswith("uetproto: not drawn: #14, #99 of --mark\n")
    assert "--mark" not in invoke("ladder", small, "--mark", "4").stderr
    assert "--mark" not in invoke("ladder", small, "--mark", "15", "--count", "1").stderr


@pytest.mark.parametrize("arguments", [["--pdc", "6"], ["--packets", "14"], ["--packets", "40-50", "--json"]])
def test_nothing_to_draw_is_said(small: str, arguments: list[str]) -> None:
    done = invoke("ladder", small, *arguments)
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.startswith(f"uetproto: no packets match {arguments[0]}\n")
    assert "match" not in invoke("ladder", small, "--count", "0").stderr
    assert "match" not in invoke("ladder", small, "--pdc", "5").stderr


# Queue pairs ----------------------------------------------------------------------------------------------------------


def queue_pairs(path: str, number: int) -> list[tuple[int, str]]:
    """What `--pdc` draws: packets, and the queue pair that each is sent to."""
    rows = [
        json.loads(line)
        for line in invoke("ladder", path, "--json", "--all", "--pdc", str(number)).stdout.splitlines()
    ]  # fmt: skip
    return [(row["index"], row["text"].partition(" QP ")[2].split()[0]) for row in rows if row["row"] == "packet"]


def roce(index: int, port: int, qp: int, opcode: int, way: int = 1, *more: Layer) -> bytes:
    src, dst = (11, 12)[::way]
    below = [
        layer("ethernet", dst=2, src=3, type=0x0800),
        layer("ipv4", dscp=26, ecn=2, df=1, ttl=64, protocol=17, src=0x0A000000 + src, dst=0x0A000000 + dst),
        layer("udp", sport=port, dport=4791),
    ]
    bth = layer("bth", opcode=opcode, destqp=qp, psn=index, p_key=0xFFFF)
    return encode(Packet([*below, bth, *more], b"", Trailer("icrc", 0)), fill=True)


def test_a_queue_pair_and_the_answers_to_it(tmp_path: Path) -> None:
    """An answer names only whom it is for; the source port tells whose it is."""
    aeth, deth = layer("aeth", syndrome=0x1F, msn=1), layer("deth", q_key=1, srcqp=70_000)
    send, ud_send, acknowledge = 0x04, 0x64, 0x11
    frames = [
        roce(0, 50_000, 70_001, send),
        roce(1, 50_001, 70_002, send),
        roce(0, 50_000, 81, acknowledge, -1, aeth),
        roce(1, 50_001, 82, acknowledge, -1, aeth),
        roce(2, 50_000, 83, send),  # another queue pair, the same way
        roce(0, 50_000, 70_005, ud_send, 1, deth),
        roce(0, 50_000, 84, ud_send, -1, deth),  # datagrams say who sends them
    ]
    path = capture(tmp_path / "x.pcapng", frames)
    assert queue_pairs(path, 70_001) == [(0, "70001"), (2, "81")]
    assert queue_pairs(path, 82) == [(3, "82")]
    assert queue_pairs(path, 70_000) == [(5, "70005"), (6, "84")]
    assert queue_pairs(path, 70_005) == [(5, "70005")]
    assert queue_pairs(path, 85) == []


def test_a_queue_pair_of_a_run(tmp_path: Path) -> None:
    """All answers to it are there, and what else is sent to its number."""
    path = str(PCAPS / "roce-fail-sequence.pcapng")
    every = [json.loads(line) for line in invoke("ladder", path, "--json", "--all").stdout.splitlines()]
    number = int(every[0]["text"].partition(" QP ")[2].split()[0])
    drawn = queue_pairs(path, number)
    assert [index for index, _ in drawn] == [row["index"] for row in every if row["row"] == "packet"]
    assert len({qp for _, qp in drawn}) == 2
