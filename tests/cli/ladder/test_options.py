# SPDX-License-Identifier: GPL-2.0-only
"""`uetproto ladder --merge --fold --columns --why`: taps, runs, and what the packets before say."""

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

import uetproto
from tests.support.cli.frames import ack, capture, frame, invoke, nack, trimmed, write
from tests.support.effort import effort
from tests.support.paths import PCAPS
from uetproto.analysis.commands import fabric
from uetproto.audit.reader.options import Options
from uetproto.audit.windows import windows_of
from uetproto.cli.ladder.rows import Arrow, folded
from uetproto.cli.ladder.taps import learned, merged
from uetproto.wire.capture.pcap import PcapngWriter, open_capture

DATA = bytes(1024)
REQUESTS = [frame(11, 12, *write(73728 + at, 1024 * at, syn=int(at < 2)), payload=DATA) for at in range(8)]
ACK = frame(12, 11, *ack(73735))


def taps(path: Path, rows: list[tuple[str, int, bytes]]) -> str:
    """A capture of several interfaces; rows are an interface, a time in ns, and a frame."""
    with PcapngWriter(path) as writer:
        number = {name: writer.add_interface(name) for name in dict.fromkeys(name for name, _, _ in rows)}
        for name, time_ns, data in sorted(rows, key=lambda row: row[1]):
            writer.write(time_ns, data, interface=number[name])
    return str(path)


@pytest.fixture
def three(tmp_path: Path) -> str:
    """Eight requests seen at a, the cable s0.s1 and b; one is trimmed on the way, one is lost, and one comes twice."""
    rows = []
    for at, data in enumerate(REQUESTS):
        rows.append(("a.0", 100 * at, data))
        if at != 3:
            rows.append(("s0.s1", 100 * at + 1_000, trimmed(data, 98) if at == 5 else data))
            rows.append(("b.0", 100 * at + 2_000, trimmed(data, 98) if at == 5 else data))
    rows += [("b.0", 2_750, REQUESTS[6]), ("b.0", 3_000, ACK), ("s0.s1", 4_000, ACK), ("a.0", 5_000, ACK)]
    rows += [("a.0", 2_000_000, frame(11, 12, *write(73736, 8192), payload=DATA))]
    return taps(tmp_path / "three.pcapng", rows)


def rows_of(*arguments: str) -> list[dict[str, object]]:
    result = invoke("ladder", *arguments, "--json")
    assert result.exit_code == 0, result.stderr
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_copies_at_several_interfaces_are_one_arrow(three: str) -> None:
    rows = [row for row in rows_of(three, "--merge", "--all") if row["row"] == "packet"]
    assert [row["tone"] for row in rows] == ["data"] * 3 + ["lost", "data", "trimmed"] + ["data"] * 3 + ["ack", "data"]
    assert rows[0]["seen"] == [
        {"place": "a", "time_ns": 0, "number": 1}, {"place": "s0.s1", "time_ns": 1_000, "number": 9},
        {"place": "b", "time_ns": 2_000, "number": 16},
    ]  # fmt: skip
    assert "s0.s1 +1.000 µs, arrived +2.000 µs" in str(rows[0]["text"])
    assert "[trimmed before s0.s1]" in str(rows[5]["text"])
    assert [str(row["text"]).count("[appeared at b]") for row in rows].count(1) == 1
    assert [one["place"] for one in rows[9]["seen"]] == ["b", "s0.s1", "a"]  # type: ignore[attr-defined]
    chart = invoke("ladder", three, "--merge", "--all", "--width", "140").stdout.splitlines()
    assert chart[0].split() == ["time", "10.0.0.11", "s0.s1", "10.0.0.12"]
    assert chart[2].count("◆") == 1
    assert "╳" in chart[5]
    drawing = ElementTree.fromstring(invoke("ladder", three, "--merge", "--svg", "-").stdout)
    assert [one.text for one in drawing.iter("{http://www.w3.org/2000/svg}text") if one.get("class") == "host"] == [
        "10.0.0.11", "s0.s1", "10.0.0.12",
    ]  # fmt: skip


def test_numbers_choose_arrows_by_any_of_their_copies(three: str) -> None:
    """Packet 17 is the copy at b of packet 2."""
    rows = [row for row in rows_of(three, "--merge", "--all", "--packets", "17") if row["row"] == "packet"]
    assert [[one["number"] for one in row["seen"]] for row in rows] == [[2, 10, 17]]  # type: ignore[attr-defined]
    assert rows[0]["time_ns"] == 0


def test_a_clock_that_is_behind_does_not_turn_the_arrow(tmp_path: Path) -> None:
    rows = [("a.0", 1_000 + 100 * at, data) for at, data in enumerate(REQUESTS)]
    rows += [("b.0", 900 + 100 * at, data) for at, data in enumerate(REQUESTS)]
    rows += [("b.0", 2_000, ACK), ("a.0", 4_000, ACK)]
    found = rows_of(taps(tmp_path / "skewed.pcapng", rows), "--merge", "--all")
    assert all(len(row["seen"]) == 2 for row in found)  # type: ignore[arg-type]
    told = {tuple(one["place"] for one in row["seen"]) for row in found}  # type: ignore[attr-defined]
    assert told in ({("a", "b"), ("b", "a")}, {("b", "a")}), "which clock is right, the packets do not say"


def test_merging_keeps_every_copy_once() -> None:
    """Any interleaving of copies: each belongs to one arrow, and none to two of one interface."""
    from random import Random

    for seed in range(effort(40, 400, 4_000)):
        rng = Random(seed)
        arrows = []
        for number in range(rng.randrange(1, 60)):
            src = rng.choice(((1, 32), (2, 32)))
            dst = (3, 32) if rng.random() < 0.5 else (3 - src[0], 32)
            arrows.append(Arrow(number, rng.randrange(5_000_000), src, dst, "data", "x", None, 0,
                                place=rng.choice(("a.0", "b.0", "s0.s1")), same=rng.randrange(6)))  # fmt: skip
        arrows.sort(key=lambda one: one.time_ns)
        found = list(merged(arrows, learned(arrows), within=rng.choice((0, 1_000_000))))
        assert sorted(one.number for arrow in found for one in arrow.seen) == sorted(one.index + 1 for one in arrows)
        assert all(len({one.place for one in arrow.seen}) == len(arrow.seen) for arrow in found)


def test_files_of_several_hosts_are_merged_though_their_interfaces_have_one_name(tmp_path: Path) -> None:
    rows = [("eth0", 100 * at, data) for at, data in enumerate(REQUESTS)] + [("eth0", 5_000, ACK)]
    one = taps(tmp_path / "10.0.0.11.pcapng", rows)
    there = [("eth0", 3_001_000 + 100 * at, data) for at, data in enumerate(REQUESTS)] + [("eth0", 3_004_000, ACK)]
    other = taps(tmp_path / "10.0.0.12.pcapng", there)
    ladder = uetproto.open(one, other, offsets_ns=[0, -3_000_000]).ladder(merge=True, width=160)
    assert "arrived +1.000 µs" in str(ladder)
    assert str(ladder).splitlines()[0].split() == ["time", "10.0.0.11", "10.0.0.12"]
    rows = rows_of(one, other, "--offsets", "0,-3000000", "--all")
    assert [len(row["seen"]) for row in rows if row["row"] == "packet"] == [2] * len([*REQUESTS, ACK])  # type: ignore[arg-type]
    wanted = rows_of(one, other, "--offsets", "0,-3000000", "--all", "--filter", "uetp.type != ACK")
    assert [row["text"] for row in wanted] == [row["text"] for row in rows if row["tone"] == "data"]
    alone = invoke("ladder", one, other, "--interface", "1", "--width", "160")
    assert f"{len(REQUESTS) + 1} packets of other interfaces" in alone.stderr


def test_copies_in_files_of_one_name_are_one_arrow(tmp_path: Path) -> None:
    files = []
    for at, name in enumerate(("a", "b")):
        (tmp_path / name).mkdir()
        files.append(taps(tmp_path / name / "x.pcapng", [("eth0", 1_000 * at, REQUESTS[0])]))
    for paths in (files, [files[0], files[0]]):
        [row] = rows_of(*paths)
        places = [one["place"] for one in row["seen"]]  # type: ignore[attr-defined]
        assert len(places) == len(set(places)) == 2


def test_a_pipe_is_drawn_like_a_file(three: str) -> None:
    for arguments in (["--merge"], ["--filter", "uetp.psn > 73730"], ["--columns", "cwnd"]):
        from_pipe = invoke("ladder", "-", *arguments, data=Path(three).read_bytes())
        assert from_pipe.stdout == invoke("ladder", three, *arguments).stdout != ""


def test_times_far_away(three: str, tmp_path: Path) -> None:
    assert invoke("ladder", three, "--offsets", f"{1 << 62}", "--why").exit_code == 0
    refused = invoke("ladder", three, "--offsets", f"{1 << 63}", "--why")
    assert refused.exit_code == 2
    assert "is not legal" in refused.stderr
    content = Path(capture(tmp_path / "late.pcapng", REQUESTS[:2], step_ns=10**12)).read_bytes()
    nanoseconds, seconds = bytes((9, 0, 1, 0, 9)), bytes((9, 0, 1, 0, 0))
    assert content.count(nanoseconds) == 1
    path = tmp_path / "seconds.pcapng"
    path.write_bytes(content.replace(nanoseconds, seconds))  # the second packet is beyond 64 bits of nanoseconds
    assert invoke("ladder", str(path), "--why").exit_code == 0
    assert invoke("report", str(path), "-o", str(tmp_path / "late.html")).exit_code == 0


def test_names_of_interfaces_do_not_control_the_terminal(tmp_path: Path) -> None:
    rows = [(f"\x1b[31m{name}", 100 * at, data) for name in "ab" for at, data in enumerate(REQUESTS)]
    rows += [("\x1b]0;x", 50, REQUESTS[0])]
    assert "\x1b" not in invoke("ladder", taps(tmp_path / "names.pcapng", rows), "--merge").stdout


def test_runs_are_folded(tmp_path: Path) -> None:
    path = capture(tmp_path / "run.pcapng", [*REQUESTS, ACK, *REQUESTS[:2]])
    rows = [row for row in rows_of(path, "--fold") if row["row"] == "packet"]
    assert [row.get("count", 1) for row in rows] == [8, 1, 1, 1]
    assert str(rows[0]["text"]).startswith("8 × ROD_REQ SYN PSN 73728–73735 · WRITE")
    assert sum(getattr(row, "count", 0) for row in folded([])) == 0


def test_columns_and_reasons(tmp_path: Path) -> None:
    again = frame(11, 12, *write(73731, 3072, retx=1), payload=DATA)
    frames = [*REQUESTS[:4], frame(12, 11, *ack(73730)), frame(12, 11, nack(73731, 73731)), again, again]
    path = capture(tmp_path / "again.pcapng", frames)
    result = invoke("ladder", path, "--columns", "state,flight,rtt,timer", "--why", "--all", "--width", "160")
    lines = result.stdout.splitlines()
    assert lines[0].split()[:5] == ["time", "state", "flight", "rtt", "timer"]
    reasons = [line.split("↳ ")[1].rstrip(" │") for line in lines if "↳" in line]
    assert reasons == [
        "pds.md §6.2: opens a PDC, or the opening has no answer yet",
        "pds.md §6.2: opens a PDC, or the opening has no answer yet",
        "pds.md §8.3: acknowledges #1, #2, #3",
        "pds.md §12: refused, ROD_OOO",
        "pds.md §11.2: sent again after NACK ROD_OOO #6",
        "pds.md §11.2: sent again after NACK ROD_OOO #6",
    ]
    rows = [line for line in lines if "ROD_REQ" in line or "ACK" in line]
    assert rows[4].split()[2:5] == ["ESTABLISHED", "2", "µs"]
    assert " 3 µs " in rows[6]
    assert "↳" not in invoke("ladder", path).stdout


def test_an_ordered_pdc_goes_back_to_the_expected_psn() -> None:
    shown = invoke("ladder", str(PCAPS / "gradient-lossy.pcapng"), "--why", "--all").stdout
    reasons = [line.split("↳ ")[1].rstrip(" │") for line in shown.splitlines() if "sent again" in line]
    assert reasons == [
        "pds.md §11.2: sent again after NACK ROD_OOO #14",
        "pds.md §11.2: sent again after NACK ROD_OOO #14",
        "pds.md §11.1, §11.4: sent again after 1 ms, the RTO or an inferred loss",
    ]


def test_columns_of_an_interface_that_is_not_the_first(three: str) -> None:
    result = invoke("ladder", three, "--interface", "a.0", "--columns", "flight", "--why", "--all", "--width", "160")
    assert result.exit_code == 0, result.stderr
    other = invoke("ladder", three, "--interface", "b.0", "--columns", "flight,cwnd", "--why", "--all")
    assert other.exit_code == 0, other.stderr
    assert result.stdout.splitlines()[2].split()[2:4] == ["1.1", "KiB"]


def test_windows_of_nscc_stand_beside_the_requests_whose_windows_are_known(tmp_path: Path) -> None:
    path = tmp_path / "nscc.pcapng"
    fabric("incast", hosts=4, flow_size="200 kB", cc="nscc", output=str(path))
    windows = windows_of(str(path), Options())
    drawn = rows_of(str(path), "--interface", "2", "--columns", "flight,cwnd", "--all")
    told = {row["number"] for row in drawn if "cwnd" in row.get("columns", {})}  # type: ignore[operator]
    assert told == {row["number"] for row in drawn if row.get("number") in windows}
    assert len(told) > 10
    assert all(4_096 < windows[number] < 1 << 20 for number in told)  # type: ignore[index]
    with open_capture(str(path)) as reader:
        found = [(reader.interfaces[one.interface].name, one.time_ns, one.data) for one in reader]
    places = sorted({name for name, _, _ in found})
    halves = [taps(tmp_path / f"{at}.pcapng", [row for row in found if (row[0] in places[:1]) == at]) for at in (0, 1)]
    together = uetproto.open(*halves)
    inferred = windows_of(taps(tmp_path / "whole.pcapng", found), Options())  # without what our taps state
    assert sorted(together._windows().values()) == sorted(inferred.values())
    drawn_together = together.ladder(columns=["cwnd"], width=120)
    assert drawn_together.text == together.ladder(columns=["cwnd"], merge=True, width=120).text
    assert " KiB " in drawn_together.text
    assert invoke("ladder", *halves, "--columns", "cwnd", "--width", "120", "--count", "200").stdout.splitlines() == [
        line for line in drawn_together.text.splitlines() if line != "(the first 200 rows)"
    ]


def test_a_capture_with_nothing_to_draw_says_so(tmp_path: Path) -> None:
    path = capture(tmp_path / "other.pcap", [bytes(12) + b"\x08\x06" + bytes(46)])
    assert repr(uetproto.open(path).ladder()) == (
        "(no packets to draw; not drawn: 1 packet without UET or RoCE between IP addresses)"
    )
    for command, told in (("ladder", "no packets to draw"), ("report", "the page has no ladder")):
        done = invoke(command, str(path), *(["-o", str(tmp_path / "x.html")] if command == "report" else []))
        assert done.exit_code == 0
        assert told in done.stderr


def test_the_reasons_cite_sections_that_exist() -> None:
    pages = Path(__file__).parents[3] / "docs" / "protocol"
    text = (Path(uetproto.__file__).parent / "cli" / "ladder" / "details.py").read_text(encoding="utf-8")
    import re

    for page, section in re.findall(r"(\w+\.md) §([\d.]*\d)", text):
        assert re.search(rf"^#+ {re.escape(section)}[ .]", (pages / page).read_text(encoding="utf-8"), re.MULTILINE)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--columns", "stat"], "did you mean state"),
        (["--merge", "--interface", "0"], "draws all interfaces"),
        (["--offsets", "0,1"], "has 2 numbers; legal: one for each of 1 file"),
        (["--offsets", "0,,1"], "whole numbers of nanoseconds"),
        (["--fold", "--all"], "exclude each other"),
    ],
)
def test_misuse(three: str, arguments: list[str], says: str) -> None:
    result = invoke("ladder", three, *arguments)
    assert result.exit_code == 2
    assert says in result.stderr


def test_in_python(three: str) -> None:
    ladder = uetproto.open(three).ladder(merge=True, fold=True, columns=["flight"], why=True, width=140)
    assert "s0.s1" in str(ladder)
    with pytest.raises(uetproto.LocalError, match="did you mean flight"):
        uetproto.open(three).ladder(columns=["fligt"])
