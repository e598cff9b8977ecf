# SPDX-License-Identifier: GPL-2.0-only
"""Faults: by share and by number, seeded, each of them doing what its name says."""

import random

import pytest

from uetproto.emulator.network.clock import Clock
from uetproto.engine.contract import Datagram
from uetproto.framing.dscp import Dscp, dscp_of
from uetproto.framing.uet import Encapsulation, UetFramer
from uetproto.impair.faults import Faults, FaultyPort


class Sink:
    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.seen: list[tuple[int, bytes]] = []

    def take(self, frame: bytes) -> None:
        self.seen.append((self.clock.now, frame))


def through(faults: Faults, frames: list[bytes], seed: int = 1, gap: int = 100) -> tuple[FaultyPort, Sink]:
    clock = Clock()
    sink = Sink(clock)
    port = FaultyPort(clock, sink, faults, random.Random(seed), Dscp())
    for number, frame in enumerate(frames):
        clock.at(number * gap, port.take, frame)
    clock.run()
    return port, sink


def numbered(count: int = 6) -> list[bytes]:
    return [bytes([number]) + bytes(99) for number in range(count)]


def order(sink: Sink) -> list[int]:
    return [frame[0] for _, frame in sink.seen]


def test_nothing_goes_wrong_by_itself() -> None:
    assert not Faults()
    port, sink = through(Faults(), numbered())
    assert order(sink) == list(range(6))
    assert not port.done


@pytest.mark.parametrize(
    ("faults", "expected"),
    [
        (Faults(drop=frozenset((1, 4))), [0, 2, 3, 5]),
        (Faults(duplicate=frozenset((2,))), [0, 1, 2, 2, 3, 4, 5]),
        (Faults(reorder=frozenset((2,))), [0, 1, 3, 2, 4, 5]),
        (Faults(reorder=frozenset((2,)), reorder_by=2), [0, 1, 3, 4, 2, 5]),
        (Faults(reorder=frozenset((1, 2))), [0, 3, 1, 2, 4, 5]),
        (Faults(reorder=frozenset((5,))), [0, 1, 2, 3, 4, 5]),
        (Faults(delay=frozenset((1,)), delay_time=250), [0, 2, 3, 1, 4, 5]),
        (Faults(drop=frozenset((0,)), duplicate=frozenset((0, 1))), [1, 1, 2, 3, 4, 5]),
    ],
)
def test_by_number(faults: Faults, expected: list[int]) -> None:
    assert order(through(faults, numbered())[1]) == expected


def test_held_back_and_nothing_follows() -> None:
    _, sink = through(Faults(reorder=frozenset((5,)), reorder_time=7000), numbered())
    assert sink.seen[-1][0] == 500 + 7000


def test_corrupt_changes_one_bit_behind_the_ethernet_header() -> None:
    frames = [bytes(100)] * 500
    port, sink = through(Faults(corrupt=1.0), frames)
    assert port.done == {"corrupt": 500}
    places = set()
    for _, frame in sink.seen:
        assert sum(byte.bit_count() for byte in frame) == 1
        places.add(next(at for at, byte in enumerate(frame) if byte))
    assert min(places) == 14
    assert max(places) == 99


def test_trim_cuts_data_only() -> None:
    data = UetFramer(1, 4, Encapsulation()).frame(Datagram(1, 2, bytes(56), bytes(1000)))
    port, sink = through(Faults(trim=1.0), [data, bytes(64)])
    assert port.done == {"trim": 1}
    assert [len(frame) for _, frame in sink.seen] == [58, 64]
    assert dscp_of(sink.seen[0][1]) == 16


def test_shares_are_shares() -> None:
    port, _ = through(Faults(drop=0.1, duplicate=0.2, reorder=0.3), numbered(1) * 10_000)
    assert 900 < port.done["drop"] < 1100
    assert 1650 < port.done["duplicate"] < 1950
    assert 2500 < port.done["reorder"] < 2900


def test_one_seed_one_run() -> None:
    faults = Faults(drop=0.1, duplicate=0.1, reorder=0.1, corrupt=0.1, delay=0.1)
    runs = [through(faults, numbered(200), seed=seed)[1].seen for seed in (1, 1, 2)]
    assert runs[0] == runs[1]
    assert runs[0] != runs[2]
