# SPDX-License-Identifier: GPL-2.0-only
"""Random runs with trains and without: captures, completions in their order and at their instants, results, counters,
times and states are the same (`tools/trains`).
"""

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.effort import effort
from tests.support.trains.draw import KINDS, draw, kind_of
from tests.support.trains.play import difference, play, toml_of
from tests.support.trains.programs import Tables
from tests.support.trains.shrink import shrink
from tests.support.trains.watch import Watch
from uetproto.emulator.network.message_port import MessagePort
from uetproto.emulator.network.train_port import TrainPort
from uetproto.engine.fep import Fep
from uetproto.engine.pds.trains import ReceivedTrain
from uetproto.engine.train_splits import ACK, SOURCE, TARGET, Asked, Split, TrainTally
from uetproto.traffic.wire import TrafficPort

RUNS = effort(300, 3000, 20_000)
MET = {
    *((SOURCE, split) for split in (Split.ROOM, Split.EDGE, Split.KIND, Split.MODE, Split.NOT_ESTABLISHED, Split.LOCKED,
                                    Split.RETRANSMISSION, Split.MEMORY)),
    *((TARGET, split) for split in (Split.NOT_ESTABLISHED, Split.GAP, Split.MESSAGE, Split.BUSY)),
    (ACK, Split.ACK_SAYS_MORE),
}  # fmt: skip
"""Conditions that apply in random runs; `tests/engine/test_train_splits.py` has the others, too."""


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
    made: Counter[str] = Counter()
    announced: Counter[str] = Counter()
    refused: Counter[str] = Counter()
    kind = ""

    def counted(send: Callable[..., Any], found: Counter[str] = made) -> Callable[..., Any]:
        def count(*given: Any) -> Any:
            found[kind] += 1
            return send(*given)

        return count

    monkeypatch.setattr(TrainPort, "send", counted(TrainPort.send))
    monkeypatch.setattr(TrafficPort, "_send_train", counted(TrafficPort._send_train))
    monkeypatch.setattr(MessagePort, "announce", counted(MessagePort.announce, announced))
    tallies, make = list[TrainTally](), TrainTally.__init__
    monkeypatch.setattr(TrainTally, "__init__", lambda tally: (make(tally), tallies.append(tally))[0])
    applied: set[tuple[Asked, Split]] = set()
    for seed in range(RUNS):
        kind, tables = kind_of(seed), draw(seed)
        monkeypatch.setattr(Watch, "closely", not seed % 3)
        single = play(tables, "off", tmp_path)
        refused[kind] += "error" in single
        found = difference(single, play(tables, "auto", tmp_path))
        assert found is None, f"tools/trains --first {seed} --runs 1: {found}"
        for tally in tallies:
            for at, counts in ((SOURCE, tally.source), (TARGET, tally.target), (ACK, tally.ack)):
                applied |= {(at, split) for split, count in zip(Split, counts, strict=True) if count}
        tallies.clear()
    assert {(at, split) for at, split in applied if at not in split.asked} == set()
    assert MET - applied == set()
    assert made.keys() | {"sharp"} == KINDS.keys()
    assert made.total() > RUNS // 2
    assert announced.keys() >= {"sharp", "fabric"}
    assert refused.total() < RUNS // 20


def test_a_completion_at_a_later_instant_is_a_difference(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = {"do": "write", "end": 0, "peer": 1, "length": 9000, "buffer": 0, "region": 1, "addr": 0}
    tables = _program([write, {"do": "advance", "time": 10**9}, write])
    single = play(tables, "off", tmp_path)
    make = Fep.__init__

    def late(fep: Fep, *given: Any, **named: Any) -> None:
        make(fep, *given, **named)
        take, held = fep.events, list[Any]()

        def earlier() -> list[Any]:
            found, held[:] = held[:], take()
            return found

        fep.events = earlier

    monkeypatch.setattr(Fep, "__init__", late)
    assert (difference(single, play(tables, "off", tmp_path)) or "").startswith("event")


def _program(rows: list[Tables]) -> Tables:
    """Return a program over fi of two endpoints."""
    return {
        "fi": {"nodes": 2, "taps": "all", "rate": "100 Gb/s", "delay": "9 us"}, "ses": {"payload_mtu": 1024},
        "end": [{"node": node, "type": "rdm", "order": "none"} for node in (0, 1)], "step": rows,
    }  # fmt: skip


def test_memory_that_changes_while_packets_are_under_way(tmp_path: Path) -> None:
    """The receiver stored what the memory of the sender had when a packet arrived, not what the packet had."""
    write = {"do": "write", "end": 0, "peer": 1, "length": 90_000, "buffer": 0, "region": 1, "addr": 0}
    scribble = {"do": "scribble", "end": 0, "buffer": 0, "length": 90_000}
    tables = _program([write, {"do": "advance", "time": 7_000_000}, scribble])
    assert difference(play(tables, "off", tmp_path), play(tables, "auto", tmp_path)) is None
    tables["verbs"] = tables.pop("fi")
    tables |= {"pair": [{"one": 0, "two": 1, "type": "rc"}], "roce": {"path_mtu": 1024}}
    assert difference(play(tables, "off", tmp_path), play(tables, "auto", tmp_path)) is None


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
