# SPDX-License-Identifier: GPL-2.0-only
"""`uetproto generate` with trains and without: captures, lists of mutations, results, counters, times and memory are
the same. Random profiles are among the runs of `tools/trains`."""

from pathlib import Path
from typing import Any

import pytest

from tests.support.trains.play import difference, play
from tests.support.trains.programs import Tables
from uetproto import LocalError, generate
from uetproto.engine.pds.trains import ReceivedTrain
from uetproto.traffic.wire import TrafficPort


def packets_in_trains(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list to which each train that is sent from now on adds the number of its packets."""
    sent: list[int] = []
    send = TrafficPort._send_train

    def count(port: TrafficPort, train: Any, *more: Any) -> tuple[int, int]:
        sent.append(len(train.heads))
        return send(port, train, *more)

    monkeypatch.setattr(TrafficPort, "_send_train", count)
    return sent


@pytest.mark.parametrize(
    ("profile", "fault"),
    [("bench", "loss"), ("bench", "reorder"), ("bench", "trim"), ("roce-bench", "loss"), ("roce-bench", "reorder")],
)
def test_a_train_splits_where_the_wire_disturbs_it(
    profile: str, fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent = packets_in_trains(monkeypatch)
    for tap in ("initiator", "target", "wire"):
        keys = {"sizes": "64 KiB", fault: 0.01, "tap": tap}
        tables: Tables = {"traffic": {"profile": profile, "packets": 700}, "keys": keys}
        single = play(tables, "off", tmp_path)
        sent.clear()
        assert difference(single, play(tables, "on", tmp_path)) is None
        assert sum(sent) > 250
        assert sum(single["result"]["happened"].values()) > 3


def test_most_packets_of_long_writes_are_in_trains(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    sent = packets_in_trains(monkeypatch)
    for profile in ("bench", "roce-bench"):
        sent.clear()
        generate(profile, packets=2000, output=tmp_path / "it.pcap")
        assert 1700 < sum(sent) < 2500
        sent.clear()
        generate(profile, packets=2000, output=tmp_path / "it.pcap", trains="off")
        assert not sent


def test_trains_of_sealed_packets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys rotate within trains, and old ones are forgotten while packets are on their way."""
    sent = packets_in_trains(monkeypatch)
    keys = {
        "operations": "write", "modes": "rud", "sizes": "64 KiB", "loss": 0.002, "security.rotate_guard": "1 us",
        "security.rotate_at": 300, "security.epoch_at": 700,
    }  # fmt: skip
    tables: Tables = {"traffic": {"profile": "sealed", "packets": 1500}, "keys": keys}
    single = play(tables, "off", tmp_path)
    assert difference(single, play(tables, "on", tmp_path)) is None
    assert sum(sent) > 500
    for node in single["result"]["security"].values():
        assert node["sealed"] > 20
    assert any(node["refused"] for node in single["result"]["security"].values())


def test_a_packet_that_is_sent_again_while_a_train_is_in_flight(tmp_path: Path) -> None:
    """The RTO of a train stood behind that of a packet which was sent again after the train, and came late."""
    keys = {
        "sizes": 5000, "modes": "rod,rud", "pdcs": 2, "loss": 0.02, "reorder": 0.002, "protocol_errors": 0.1,
        "trim": 0.02, "pds.rod_recovery": "selective", "pds.max_gtd_del": 4,
    }  # fmt: skip
    tables: Tables = {"traffic": {"profile": "bench", "packets": 250, "seed": 18446744073709351301}, "keys": keys}
    assert difference(*(play(tables, how, tmp_path) for how in ("off", "auto"))) is None


def test_a_fault_of_trains_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settle = ReceivedTrain.settle

    def forget(run: ReceivedTrain, index: int, count: int, now: int) -> None:
        settle(run, index, count, now)
        run._pdc.ack_gen_count -= 1024 * (index == len(run._train.heads) - 1)

    monkeypatch.setattr(ReceivedTrain, "settle", forget)
    tables: Tables = {"traffic": {"profile": "bench", "packets": 300}, "keys": {"sizes": 100_000}}
    found = difference(*(play(tables, how, tmp_path) for how in ("off", "auto")))
    assert (found or "").startswith("packet ")


@pytest.mark.parametrize(
    ("profile", "settings"),
    [("roce-ud", {}), ("bench", {"pds.enb_ack_per_pkt": True}), ("bench", {"modes": "rudi"})],
)
def test_on_is_refused_where_no_endpoint_makes_trains(profile: str, settings: dict[str, Any], tmp_path: Path) -> None:
    file = tmp_path / "it.pcap"
    with pytest.raises(LocalError, match="trains on: nothing of this profile is a train: "):
        generate(profile, settings, trains="on", output=file)
    assert not file.exists()


@pytest.mark.parametrize("wrong", ["maybe", "", 3, None])
def test_other_values_are_refused(wrong: Any) -> None:
    with pytest.raises(LocalError, match=r"trains: .* is not legal.*legal: auto, on, off"):
        generate("bench", trains=wrong)
