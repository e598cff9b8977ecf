# SPDX-License-Identifier: GPL-2.0-only
"""RED: which packets are marked, and that a mark changes nothing else (roce.md §13)."""

import random
from collections.abc import Iterable

import pytest

from tests.support.emulator.roce_frames import DSCP, OVERHEAD, RATE, V6, A, B, Sink, cnp, data, mac, port
from uetproto import LocalError, decode
from uetproto.emulator.network.clock import Clock
from uetproto.emulator.network.switch import Switch
from uetproto.engine.roce.config import RoceConfig
from uetproto.framing.roce import RoceFramer
from uetproto.impair.frame_outcome import FrameOutcome, FrameOutcomes
from uetproto.impair.link import EmulatedLink
from uetproto.impair.queue import OutputQueue, levels_by
from uetproto.impair.red import Marker, Red, mark
from uetproto.wire.headers.ethernet import internet_checksum

ALWAYS = Red(kmin=0, kmax=0, pmax=0)


class Chance:
    """Draws that are known before."""

    def __init__(self, draws: Iterable[float]) -> None:
        self.draws = list(draws)

    def random(self) -> float:
        return self.draws.pop(0)

    def getrandbits(self, k: int, /) -> int:
        raise AssertionError


def marking(
    clock: Clock, red: Red, draws: Iterable[float], capacity: int = 1 << 20
) -> tuple[Sink, OutputQueue, Marker]:
    sink, marker = Sink(clock), Marker(red, Chance(draws))
    link = EmulatedLink(clock, sink, rate=RATE, delay=0, mtu=9216)
    return sink, OutputQueue(clock, link, capacity=capacity, levels=levels_by(DSCP), marker=marker), marker


def ecn(frame: bytes) -> int:
    return frame[15] & 3


# The curve ------------------------------------------------------------------------------------------------------------


def test_the_defaults_are_those_of_the_page() -> None:
    assert Red() == Red(kmin=5_000, kmax=200_000, pmax=0.01)


@pytest.mark.parametrize(
    ("length", "chance"),
    [(0, 0), (5_000, 0), (5_195, 0.00001), (102_500, 0.005), (200_000, 0.01), (200_001, 1), (10**9, 1)],
)
def test_chance_grows_evenly(length: int, chance: float) -> None:
    """195 bytes are a thousandth of the way from 5,000 to 200,000."""
    assert Red().chance(length) == pytest.approx(chance)


def test_a_step_instead_of_a_slope() -> None:
    red = Red(kmin=3000, kmax=3000, pmax=0.5)
    assert [red.chance(length) for length in (0, 3000, 3001)] == [0, 0, 1]


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"kmin": -1}, "kmin -1"), ({"kmin": 9, "kmax": 8}, "kmax 8; legal: 0 ≤ kmin ≤ kmax"),
        ({"pmax": 1.01}, r"pmax 1\.01; legal: 0 … 1"), ({"pmax": -0.1}, "pmax"), ({"pmax": float("nan")}, "pmax"),
    ],
)  # fmt: skip
def test_illegal_parameters(wrong: dict[str, float], says: str) -> None:
    with pytest.raises(LocalError, match=says):
        Red(**wrong)  # type: ignore[arg-type]


# The mark -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [4, 6])
@pytest.mark.parametrize("kind", ["ect0", "ect1"])
def test_only_the_ecn_changes_and_the_frame_is_good(version: int, kind: str) -> None:
    src, dst = (A, B) if version == 4 else (V6 | A, V6 | B)
    frame = data(src=src, dst=dst, ecn=kind, version=version)
    now = mark(frame)
    assert now is not None
    before, after = decode(frame), decode(now)
    assert after.error is None
    assert after.trailer is not None
    assert after.trailer.ok
    form = f"ipv{version}"
    changed = {name for name, value in after[form].items() if before[form][name] != value}
    assert changed == ({"ecn", "checksum"} if version == 4 else {"ecn"})
    assert after[form]["ecn"] == 3
    assert len(now) == len(frame)
    assert sum(a != b for a, b in zip(frame, now, strict=True)) <= 3
    framer = RoceFramer(dst, version, RoceConfig())
    arrived, whole = framer.packet(now), framer.packet(frame)
    assert arrived is not None
    assert whole is not None
    assert (arrived.ecn_marked, whole.ecn_marked) == (True, False)
    assert (framer.bad_crc, framer.bad_header) == (0, 0)


def test_the_checksum_is_right_whatever_it_was() -> None:
    frame = bytearray(data())
    for kind in (1, 2):
        frame[15] = frame[15] & 0xFC | kind
        for identification in range(1 << 16):
            frame[18:20] = identification.to_bytes(2, "big")
            frame[24:26] = b"\0\0"
            frame[24:26] = internet_checksum(bytes(frame[14:34])).to_bytes(2, "big")
            now = mark(bytes(frame))
            assert now is not None
            rest = bytearray(now[14:34])
            rest[10:12] = b"\0\0"
            assert int.from_bytes(now[24:26], "big") == internet_checksum(bytes(rest))


def test_a_wrong_checksum_stays_wrong() -> None:
    """The switch does not hide what happened before."""
    frame = bytearray(data())
    frame[22] ^= 1  # hop limit
    now = mark(bytes(frame))
    assert now is not None
    framer = RoceFramer(B, 4, RoceConfig())
    assert framer.packet(now) is None
    assert framer.bad_header == 1


def test_what_is_never_marked() -> None:
    marked = mark(data())
    assert marked is not None
    for frame in (data(ecn="not_ect"), cnp(), marked, bytes(60), b"", data()[:14], data()[:33]):
        assert mark(frame) is None
    assert mark(data(src=V6 | A, dst=V6 | B, version=6)[:53]) is None


# The queue ------------------------------------------------------------------------------------------------------------


def test_a_queue_marks_by_what_waits_before_a_frame() -> None:
    """Frames of 1000 bytes: the first leaves at once, the n-th after it finds n − 1 thousand."""
    clock = Clock()
    # At 2000 and 3000 bytes the chance is 0.25 and 0.5, above 3000 there is nothing to draw.
    sink, queue, marker = marking(clock, Red(kmin=1000, kmax=3000, pmax=0.5), [0.25, 0.49])
    for psn in range(7):
        assert queue.put(data(psn=psn))
    clock.run()
    assert [ecn(frame) for frame in sink.frames] == [2, 2, 2, 2, 3, 3, 3]
    assert marker.marked == 3
    assert [frame[52:54] for frame in sink.frames] == [psn.to_bytes(2, "big") for psn in range(7)]


def test_chance_is_drawn_only_where_it_decides() -> None:
    """Not for what is not ECT, not for what has no room: the generator would say so."""
    clock = Clock()
    sink, queue, marker = marking(clock, Red(kmin=0, kmax=10_000, pmax=0.5), [], 2000)
    for frame in (data(), data(), data(ecn="not_ect"), data()):
        queue.put(frame)
    clock.run()
    assert [ecn(frame) for frame in sink.frames] == [2, 2, 0]
    assert marker.marked == 0


def test_the_share_of_marks_is_that_of_the_curve() -> None:
    marker = Marker(Red(), random.Random(5))
    frame = data()
    for _ in range(20_000):
        marker.pass_on(frame, 200_000)
    assert 140 < marker.marked < 260  # 200 expected, deviation 14


def test_one_seed_one_pattern() -> None:
    def pattern(seed: int) -> list[int]:
        marker = Marker(Red(pmax=0.5), random.Random(seed))
        return [ecn(marker.pass_on(data(), 100_000)) for _ in range(200)]

    assert pattern(1) == pattern(1) != pattern(2)


def test_levels_are_apart() -> None:
    """Data that waits does not mark what passes it."""
    clock = Clock()
    marker = Marker(ALWAYS, Chance([]))
    link = EmulatedLink(clock, sink := Sink(clock), rate=RATE, delay=0, mtu=9216)
    queue = OutputQueue(clock, link, capacity=1 << 20, levels=levels_by(DSCP), marker=marker)
    urgent = data(dst=B)
    urgent = urgent[:15] + bytes((DSCP.control << 2 | ecn(urgent),)) + urgent[16:]
    for frame in (data(dst=A), data(dst=A), data(dst=A), urgent, urgent):
        queue.put(frame)
    clock.run()
    assert [(frame[:6] == mac(B), ecn(frame)) for frame in sink.frames] == [
        (False, 2), (True, 2), (True, 3), (False, 2), (False, 3),
    ]  # fmt: skip


def test_outcomes_know_a_marked_frame() -> None:
    outcomes = FrameOutcomes()
    frame = data()
    outcomes.follow(frame)
    way = outcomes.transit(frame)
    assert way is not None
    now = Marker(ALWAYS, Chance([]), outcomes).pass_on(frame, 1)
    assert way.outcome is None
    outcomes.lost(now)
    assert way.outcome is FrameOutcome.LOST


def test_cnps_overtake_data() -> None:
    """RoCE hands the switch its own DSCPs: 48 is control, 26 is data."""
    clock = Clock()
    sink, queue = port(clock)
    switch = Switch(dscp=DSCP, trimming=False)
    switch.attach(mac(B), queue)
    for frame in (data(psn=0), data(psn=1), data(psn=2), cnp()):
        switch.take(frame)
    clock.run()
    # 1000 bytes last 20 ns, 74 bytes 1.48 ns.
    assert [(time, len(frame)) for time, frame in sink.seen] == [
        (20_000, 1000), (21_480, 74), (41_480, 1000), (61_480, 1000),
    ]  # fmt: skip


# The length over time -------------------------------------------------------------------------------------------------


def test_a_peak_after_an_instant() -> None:
    """Five frames at 0, three at 200 ns: of each burst one is on the link at once."""
    clock = Clock()
    _, queue = port(clock)
    queue.watch_from(150_000)
    for burst, start in ((5, 0), (3, 200_000)):
        for _ in range(burst):
            clock.at(start, queue.put, data())
    clock.run(100_000)
    assert queue.peak == 4000
    clock.run()
    assert (queue.peak, queue.late_peak) == (4000, 2000)


def test_what_waits_at_that_instant_counts() -> None:
    clock = Clock()
    _, queue = port(clock)
    queue.watch_from(50_000)
    for _ in range(5):
        queue.put(data())
    clock.run()
    # The second left at 20 ns, the third at 40 ns: two are left.
    assert (queue.peak, queue.late_peak) == (4000, 2000)


def test_sizes_of_the_helpers() -> None:
    assert (len(data()), len(cnp()), OVERHEAD) == (1000, 74, 58)
    assert decode(cnp())["bth"]["opcode"] == 0x81
