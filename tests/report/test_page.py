# SPDX-License-Identifier: GPL-2.0-only
"""The page of `uetproto report`: what it holds, and how it behaves in headless Chromium."""

import re
from pathlib import Path
from typing import Any

import pytest

import uetproto
from tests.support.chromium import needs_chromium, opened
from tests.support.cli.frames import ARP, ack, capture, frame, invoke, nack, write
from tests.support.effort import effort
from tests.support.traffic.generate import made
from uetproto.analysis.commands import run
from uetproto.traffic.generate import generate
from uetproto.traffic.profile import load
from uetproto.wire.capture.pcap import PcapngWriter

PACKETS = effort(1_200, 20_000, 20_000)
MUTATED = 0.005


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A capture of mixed traffic with reserved bits that are set, and its page."""
    folder = tmp_path_factory.mktemp("report")
    path, target = folder / "mixed.pcapng", folder / "mixed.html"
    generate(load("mixed"), str(path), packets=PACKETS, mutations={"reserved-bit": MUTATED})
    uetproto.open(path).report(target)
    return path, target


def test_a_page_is_a_file(page: tuple[Path, Path]) -> None:
    result = invoke("report", str(page[0]), "-o", "-")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "standard output" in result.stderr


def test_the_page_needs_nothing_else(page: tuple[Path, Path]) -> None:
    html = page[1].read_text(encoding="utf-8")
    assert re.findall(r"""\s(?:src|href)\s*=|url\(|@import|https?://""", html) == []
    assert html.count("<script") == html.count("</script>") == 2


FIELDS = (Path(__file__).parent / "fields.js").read_text(encoding="utf-8")


@needs_chromium
def test_fields_that_the_page_shows_are_those_of_the_packets(page: tuple[Path, Path], tmp_path: Path) -> None:
    """The program of the page takes them from the bytes by the tables of the headers."""
    told, console = opened(page[1].read_text(encoding="utf-8"), tmp_path, FIELDS)
    assert console == []
    packets = list(uetproto.open(page[0], sharp=True))
    assert len(told) == len(packets)
    for number, layers in told:
        expected = [
            (layer.form, {name: str(int(value)) for name, value in layer.values.items()})
            for layer in packets[number - 1].layers
        ]
        assert [(form, values) for form, values in layers] == expected


ACT = (Path(__file__).parent / "act.js").read_text(encoding="utf-8")


@needs_chromium
@pytest.mark.parametrize(("width", "scheme"), [(1400, 1), (380, 0)], ids=["wide light", "narrow dark"])
def test_the_page_scrolls_filters_and_finds(page: tuple[Path, Path], tmp_path: Path, width: int, scheme: int) -> None:
    arguments = (f"--window-size={width},900", f"--blink-settings=preferredColorScheme={scheme}")
    told, console = opened(page[1].read_text(encoding="utf-8"), tmp_path, ACT, *arguments)
    assert console == []
    packets = list(uetproto.open(page[0]))
    wanted = [
        one.number for one in packets
        if "10.0.0.1" in (one.src, one.dst) and ("pds.ack" in one or "pds.ack_cc" in one)
    ]  # fmt: skip
    assert told["rows"] == told["back"] == told["whole"] == len(packets)
    assert 0 < told["drawn"] < 100, "rows out of sight are in the document"
    assert told["filtered"] == wanted
    assert told["count"] == f"{len(wanted):,} of {len(packets):,} rows"
    assert told["nonsense"] == 0
    assert told["numbers"] == [5, 6, 7, 8, 9]
    found = [one.number for one in packets if "TAGGED_SEND" in one.summary()]
    assert told["found"] == len(found) > 1
    assert (told["first"], told["second"]) == (f"1 of {len(found):,}", f"2 of {len(found):,}")
    assert told["picked"].startswith(f"#{found[1]} ")
    assert told["inSight"]
    assert (told["none"], told["disabled"], told["without"]) == ("nothing", True, False)
    assert told["larger"] and told["smaller"]  # noqa: PT018
    assert told["folded"] < told["runs"] == len(packets)
    assert all(int(one) >= 3 for one in told["folds"])
    assert 0 < told["range"] < len(packets)
    assert told["inRange"] and told["button"]  # noqa: PT018
    findings = uetproto.open(page[0]).audit().findings
    assert told["findings"] == len(findings) > 0
    assert (told["jumped"], told["after"]) == (findings[-1].packet + 1, len(packets))
    assert told["lit"] == 6  # the destination of Ethernet
    assert told["up"] == told["jumped"] - 2
    assert told["last"] == len(packets) - 1
    assert told["focus"] == "search"
    assert told["wide"] <= told["room"] <= width
    assert told["plots"] == [True, True]


@needs_chromium
def test_the_console_of_a_page_is_heard(tmp_path: Path) -> None:
    found, console = opened("<body></body>", tmp_path, "() => { console.log('heard'); return 1; }")
    assert found == 1
    assert "heard" in console[0]


LEGIBLE = (Path(__file__).parent / "legible.js").read_text(encoding="utf-8")


@needs_chromium
@pytest.mark.parametrize("scheme", [0, 1], ids=["dark", "light"])
def test_the_page_is_legible(tmp_path: Path, scheme: int) -> None:
    again = frame(11, 12, *write(73729, 1024, retx=1), payload=bytes(1024))
    bad = frame(11, 12, *write(73730, 2048), payload=bytes(1024))[:-1] + b"\0"
    frames = [frame(11, 12, *write(73728, 0, syn=1), payload=bytes(1024)), frame(12, 11, *ack(73728))]
    path = capture(tmp_path / "all.pcapng", [*frames, frame(12, 11, nack(73729, 73729)), again, bad])
    uetproto.open(path).report(tmp_path / "all.html")
    html = (tmp_path / "all.html").read_text(encoding="utf-8")
    found, console = opened(html, tmp_path, LEGIBLE, f"--blink-settings=preferredColorScheme={scheme}")
    assert console == []
    assert set(found["tones"]) == {"data", "ack", "nack", "retx", "bad"}
    assert found["least"] >= 4.5
    assert found["size"] >= 13


# What it holds --------------------------------------------------------------------------------------------------------


def data_of(path: Path, **options: Any) -> dict[str, Any]:
    import json

    target = path.with_suffix(".html")
    uetproto.open(path).report(target, **options)
    [text] = re.findall(r'id="data">(.*?)</script>', target.read_text(encoding="utf-8"), re.DOTALL)
    found: dict[str, Any] = json.loads(text)
    return found


def test_copies_at_both_ends_are_one_row(tmp_path: Path) -> None:
    run("gradient-lossy", tap="all", output=str(tmp_path / "all.pcapng"))
    data = data_of(tmp_path / "all.pcapng")
    alone = data_of(Path(str(run("gradient-lossy", output=str(tmp_path / "one.pcapng")) and tmp_path / "one.pcapng")))
    assert len(data["time"]) == len(data["bytes"]) < 2 * len(alone["time"])
    assert data["places"] == ["rank0", "rank2"]
    assert all(len(copies) == 2 for copies in data["seen"].values())
    assert {one["name"].partition(" ")[0] for one in data["series"]} == {"in", "between"}
    between = next(one for one in data["series"] if one["name"] == "between rank0 and rank2")
    assert between["value"][-1] == 0
    assert max(between["value"]) > 0


def test_rows_are_limited_and_the_page_says_so(tmp_path: Path) -> None:
    path = made(tmp_path, "roce-mixed", packets=60)
    data = data_of(path, rows=25)
    assert len(data["time"]) == 25
    assert "the page has the first 25 rows" in path.with_suffix(".html").read_text(encoding="utf-8")
    assert not data_of(path)["cut"]


@pytest.mark.parametrize("frames", [[], [ARP], [b"\0" * 9]], ids=["none", "no IP", "noise"])
def test_captures_without_rows(frames: list[bytes], tmp_path: Path) -> None:
    path = tmp_path / "odd.pcapng"
    capture(path, frames)
    assert data_of(path)["time"] == []


@needs_chromium
def test_nothing_of_a_capture_becomes_a_part_of_the_page(tmp_path: Path) -> None:
    name = "</script><script>alert(1)</script><!--"
    path = tmp_path / "hostile.pcapng"
    frames = [frame(11, 12, *write(73728, 0, syn=1), payload=bytes(1024)), frame(12, 11, *ack(73728))]
    with PcapngWriter(path) as writer:
        for number in range(2):
            writer.add_interface(name + str(number))
            for at, data in enumerate(frames):
                writer.write(1_000 * at + number, data, interface=number)
    data_of(path)
    found, console = opened(
        path.with_suffix(".html").read_text(encoding="utf-8"), tmp_path,
        "() => [document.scripts.length, D.places.join(), document.querySelectorAll('#heads span').length]",
    )  # fmt: skip
    assert console == []
    assert found[0] == 3  # two of the page, one of this test
    assert "</script>" in found[1]


# The command ----------------------------------------------------------------------------------------------------------


def test_the_command(tmp_path: Path) -> None:
    path = made(tmp_path, "lossy", packets=80)
    target = tmp_path / "lossy.html"
    result = invoke("report", str(path), "-o", str(target), "--filter", "uetp.pds.rud_req || uetp.pds.rod_req")
    assert result.exit_code == 0, result.stderr
    assert result.stdout.endswith(f"bytes: {target}\n")
    assert invoke("report", str(path), "-o", str(path)).exit_code == 2
    assert invoke("report", str(path)).exit_code == 2
    several = invoke("report", str(path), str(path), "--offsets", "0,1", "-o", str(target))
    assert several.exit_code == 0, several.stderr
    assert "whole numbers" in invoke("report", str(path), "--offsets", "x", "-o", str(target)).stderr
    assert invoke("report", str(path), "--offsets", "1,2", "-o", str(target)).exit_code == 2
    cut = tmp_path / "cut.pcapng"
    cut.write_bytes(path.read_bytes()[:-30])
    damaged = invoke("report", str(cut), "-o", str(target))
    assert damaged.exit_code == 1
    assert "damaged at byte" in damaged.stderr
