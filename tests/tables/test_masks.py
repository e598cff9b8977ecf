# SPDX-License-Identifier: GPL-2.0-only
"""Filters over columns want the packets that filters want one by one."""

from pathlib import Path
from random import Random

import pytest

import uetproto
from tests.support.cli.frames import frame, invoke, write
from tests.support.effort import effort
from tests.support.filters import FilterDraws, passed, seen_values
from tests.support.paths import PCAPS
from uetproto.analysis import filtering
from uetproto.analysis.decoding import Decoding
from uetproto.analysis.sources import CaptureSource
from uetproto.filters.display_filter import DisplayFilter
from uetproto.tables.masks import bulk, is_mask
from uetproto.wire.capture.pcap import open_writer

LOSSY = PCAPS / "gradient-lossy.pcapng"
FEW = [PCAPS / f"{name}.pcapng" for name in ("gradient-lossy", "gradient-v6", "roce-fetch-add", "ses-atomic")]
CAPTURES, FILTERS = effort((FEW, 25), (sorted(PCAPS.glob("*.pcapng")), 30), (sorted(PCAPS.glob("*.pcapng")), 200))


def wanted_in_bulk(path: Path, text: str) -> list[int]:
    found = bulk(DisplayFilter(text), path, Decoding())
    assert found is not None
    return [index + 1 for index, one in enumerate(found) if one]


def agrees(path: Path, count: int) -> int:
    """Draw filters for a capture, compare those that columns reach, and return how many they were."""
    draws = FilterDraws(Random(f"{path.name} masks"), seen_values(path))
    texts = [text for text in (draws.filter() for _ in range(count)) if is_mask(DisplayFilter(text).tree)]
    assert {text: wanted_in_bulk(path, text) for text in texts} == {text: passed(path, text) for text in texts}
    return len(texts)


def test_random_filters() -> None:
    assert sum(agrees(path, FILTERS) for path in CAPTURES) > FILTERS


def test_mixed_traffic(tmp_path: Path) -> None:
    path = tmp_path / "mixed.pcapng"
    assert invoke("generate", "mixed", "-o", str(path), "--packets", str(effort(150, 3_000, 3_000))).exit_code == 0
    assert agrees(path, effort(30, 200, 200)) > 5


@pytest.mark.parametrize(
    ("text", "reached"),
    [
        ("uetp.psn == 7 and not (uetp.opcode in {WRITE, 3..5} or all ip.addr > 10.0.0.1)", True),
        ("uetp.pds.ack.cack_psn & 3 == 1 and udp.port and frame.number < 9 and frame.time_relative > 0.1", True),
        ("eth.src == 02:00:0a:00:00:01 and ip.src == 10.0.0.0/8 and uetp.retx == 1", True),
        ("uetp.psn == 7 and uetp.pdc == 1", False),
        ("uetp.acked_in", False),
        ("uetp.spdcid == uetp.dpdcid", False),
        ("frame contains 00", False),
        ("eth.src[0] == 02", False),
        ("ipv6.src == ::1", False),
        ("uetp.len > 5", False),
    ],
)
def test_what_columns_reach(text: str, reached: bool) -> None:
    assert is_mask(DisplayFilter(text).tree) is reached


def test_when_packets_are_read_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sealed packets, changed times and merged captures are not read in columns, if that makes a difference."""
    place, plain = DisplayFilter("frame.number == 3"), DisplayFilter("uetp.psn == 73730")
    asked: list[str] = []
    monkeypatch.setattr("uetproto.tables.masks.bulk", lambda wanted, source, decoding: asked.append(wanted.text))
    for wanted, sources in (
        (plain, [CaptureSource(str(LOSSY))]), (place, [CaptureSource(str(LOSSY))]),
        (place, [CaptureSource(str(LOSSY))] * 2), (plain, [CaptureSource(str(LOSSY), offset_ns=5)]),
    ):  # fmt: skip
        filtering.matching(wanted, sources, Decoding())
    assert asked == [plain.text, place.text]


def test_a_time_that_does_not_fit(tmp_path: Path) -> None:
    path = tmp_path / "late.pcapng"
    with open_writer(str(path)) as writer:
        for time_ns in (5, (1 << 64) - 1, 1 << 63):
            writer.write(time_ns, frame(1, 2, *write(73728, 0)))
    assert bulk(DisplayFilter("frame.time_relative > 1"), path, Decoding()) is None
    late = uetproto.open(path).filter("frame.time_relative > 1")
    assert [packet.number for packet in late] == [2, 3]
    assert len(uetproto.open(path).filter("frame.time_relative > 1")) == 2
