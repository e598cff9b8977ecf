# SPDX-License-Identifier: GPL-2.0-only
"""The rows of `uetproto bench` about the audit: what they measure is real, whatever the machine."""

from pathlib import Path

import pytest

from uetproto.bench import audit as bench_audit
from uetproto.bench.audit import conversations, cut, measure, rate
from uetproto.errors import LocalError
from uetproto.traffic import profile
from uetproto.traffic.generate import generate
from uetproto.wire.capture.pcap import PcapWriter, open_capture
from uetproto.wire.stack import decode


def test_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_audit, "PACKETS", 20_000)
    monkeypatch.setattr(bench_audit, "PDCS", 5_000)
    monkeypatch.setattr(bench_audit, "_OPEN", 1_000)
    asked = []

    def in_a_process(arguments: list[str]) -> tuple[dict[str, float], int]:
        """Return what is left, and costs of 100 PDCs: 4,000 bytes each, with interfaces of their own 9,000."""
        asked.append(arguments[1])
        apart = len(asked) == 3
        return {"left": 3.0, "before": 1_000.0, "seconds": 0.012 if apart else 0.007}, 901_000 if apart else 401_000

    *speeds, left, size, time, more_size, more_time = measure(True, tmp_path, in_a_process)
    for speed in speeds:
        assert (speed.value > 0, speed.unit, speed.asked, speed.most) == (True, "packets/s", 100_000, False)
    assert [speed.what for speed in speeds] == [
        "audit 2,000 packets of long writes",
        "audit the first 96 bytes of each",
    ]
    assert (left.value, left.unit, left.most) == (3.0, "bytes", True)
    assert [(row.unit, round(row.value, 3), row.most) for row in (size, time, more_size, more_time)] == [
        ("bytes", 4_000, True), ("µs", 70, True), ("bytes", 5_000, True), ("µs", 50, True),
    ]  # fmt: skip
    assert asked[0] == "from uetproto.bench.audit import main; main(50)"
    assert len(asked) == 3
    assert list(tmp_path.iterdir()) == []


def test_a_capture_cut_short_ends_within_ses(tmp_path: Path) -> None:
    """No header of UET but PDS is whole, and the lengths are those of before."""
    generate(profile.load("bench"), str(tmp_path / "whole.pcapng"), packets=50)
    cut(tmp_path / "whole.pcapng", tmp_path / "cut.pcapng")
    with open_capture(tmp_path / "whole.pcapng") as whole, open_capture(tmp_path / "cut.pcapng") as short:
        pairs = list(zip(whole, short, strict=True))
    assert len(pairs) == 50
    for before, after in pairs:
        assert after == before._replace(data=before.data[:96], offset=after.offset)
        if after.length > 96:
            packet = decode(after.data, length=after.length)
            assert packet.layers[-1].form.startswith("pds.")
            assert packet.raw


def test_main_prints_what_is_left(capsys: pytest.CaptureFixture[str]) -> None:
    bench_audit.main(2_000)
    assert capsys.readouterr().out.startswith('{"left": ')


def test_what_is_wrong_is_no_rate(tmp_path: Path) -> None:
    path = tmp_path / "wrong.pcapng"
    mutations = {"clear-positive": 0.1}
    generate(profile.load("bench"), str(path), packets=200, mutations=mutations)
    with pytest.raises(LocalError, match="findings in 200 packets, all of them right"):
        rate(path, 200)


def test_conversations_are_whole_and_apart(tmp_path: Path) -> None:
    """A request, its ACK, a close and its ACK: every PDC has names of its own, and every CRC is right."""
    names = set()
    records = [*conversations(0, 3), *conversations(59_999, 60_001)]
    for record in records:
        packet = decode(record.data)
        assert packet.error is None
        assert packet.trailer is not None
        assert packet.trailer.ok
        names.add((frozenset((packet["ipv4"]["src"], packet["ipv4"]["dst"])), packet.layers[3].values["spdcid"]))
    assert len(names) == 5
    assert [record.time_ns for record in records] == sorted(record.time_ns for record in records)
    with PcapWriter(tmp_path / "a.pcap") as writer:
        writer.write_many((record.time_ns for record in records), (record.data for record in records))
    with pytest.raises(LocalError, match="0 findings in 20 packets"):
        rate(tmp_path / "a.pcap", 19)
