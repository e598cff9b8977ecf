# SPDX-License-Identifier: GPL-2.0-only
"""Random runs with trains and without: captures, results, counters, times and states are the same (`tools/trains`)."""

from pathlib import Path

import pytest

from tests.support.effort import effort
from tests.support.trains.draw import Tables, draw
from tests.support.trains.play import difference, play, toml_of
from tests.support.trains.shrink import shrink
from uetproto.emulator.network.train_port import TrainPort
from uetproto.engine.pds.trains import ReceivedTrain
from uetproto.wire.capture.pcap import open_capture

RUNS = effort(300, 3000, 20_000)


def _write(**more: Tables) -> Tables:
    """Return a run of one WRITE of 200,000 bytes."""
    return {
        "run": {"mode": "rud", "initiator": "a", "target": "b"},
        "nodes": {"a": {"address": "10.0.0.1"}, "b": {"address": "10.0.0.2"}},
        "ses": {"payload_mtu": 1024}, "fabric": {"rate": "100 Gb/s"}, **more,
        "operation": [{"do": "region", "length": 200_000, "key": 7}, {"do": "write", "length": 200_000, "key": 7}],
    }  # fmt: skip


@pytest.mark.filterwarnings("ignore:.*masks MaxWnd")
def test_random_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = 0
    send = TrainPort.send

    def count(port: TrainPort, train: object) -> int:
        nonlocal made
        made += 1
        return send(port, train)  # type: ignore[arg-type]

    monkeypatch.setattr(TrainPort, "send", count)
    refused = 0
    for seed in range(RUNS):
        tables = draw(seed)
        single = play(tables, "off", tmp_path)
        refused += "error" in single
        found = difference(single, play(tables, "auto", tmp_path))
        assert found is None, f"tools/trains --first {seed} --runs 1: {found}"
    assert made > RUNS // 2
    assert refused < RUNS // 20


def test_sealed_packets_leave_sealed(tmp_path: Path) -> None:
    """Packets of a train were framed as those that are not sealed."""
    tables = _write(security={"sdi": 1, "key": "07" * 32})
    assert difference(play(tables, "off", tmp_path), play(tables, "auto", tmp_path)) is None
    with open_capture(tmp_path / "auto.pcapng") as capture:
        frames = [record.data for record in capture]
    assert len(frames) > 200
    assert {frame[42] >> 3 for frame in frames} == {1}  # the type of the security header


def test_a_difference_is_told_and_made_small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settle = ReceivedTrain.settle

    def forget(run: ReceivedTrain, index: int, count: int, now: int) -> None:
        settle(run, index, count, now)
        psn = (run._psn + index - run._pdc.rx.start) & 0xFFFFFFFF
        run._pdc.ack_gen_count -= 1024 * (psn >= 100)

    monkeypatch.setattr(ReceivedTrain, "settle", forget)
    tables = _write(tap={"nodes": "all"}, pds={"ack_gen_trigger": 5000})

    def told(tables: Tables) -> str | None:
        return difference(play(tables, "off", tmp_path), play(tables, "auto", tmp_path))

    assert (told(tables) or "").startswith("packet ")
    small = shrink(tables, lambda tables: told(tables) is not None, 60)
    assert told(small) is not None
    assert len(toml_of(small)) < len(toml_of(tables))
    assert 100 * 1024 < small["operation"][-1]["length"] < 150_000
