# SPDX-License-Identifier: GPL-2.0-only
"""What the network does to a frame after a tap saw it leave is the comment of its record."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from uetproto.emulator.network.clock import Clock
from uetproto.emulator.network.tap import OutTap, TapCapture
from uetproto.emulator.run.play import run
from uetproto.emulator.scenario.settings import load
from uetproto.engine.contract import Datagram
from uetproto.impair.frame_outcome import FrameInTransit, FrameOutcome, FrameOutcomes
from uetproto.impair.link import EmulatedLink
from uetproto.wire.capture.pcap import open_capture


def comments(path: Path, name: str, *settings: str, taps: str = "all") -> tuple[Counter[str], dict[str, int]]:
    """How often each comment is in the capture of a run, and what the run says that happened."""
    result = run(load(name, [f"tap.nodes={taps}", *settings]), output=str(path / "x.pcapng"))
    assert result.match
    with open_capture(path / "x.pcapng") as reader:
        found = [record.comment for record in reader]
    return Counter(comment for comment in found if comment), result.happened


# Frames ---------------------------------------------------------------------------------------------------------------


def followed(outcomes: FrameOutcomes, frame: bytes) -> FrameInTransit:
    """Follow a frame, and return what is known of it."""
    outcomes.follow(frame)
    found = outcomes.transit(frame)
    assert found is not None
    return found


def test_a_frame_is_lost_with_its_last_copy() -> None:
    outcomes = FrameOutcomes()
    frame, same = bytes(64), bytes(bytearray(64))
    assert frame == same
    way, other = followed(outcomes, frame), followed(outcomes, same)
    outcomes.copied(frame)
    outcomes.lost(frame)
    assert way.outcome is None
    outcomes.lost(frame)
    assert (way.outcome, other.outcome) == (FrameOutcome.LOST, None)


def test_a_frame_of_which_a_copy_arrived_is_not_lost() -> None:
    outcomes = FrameOutcomes()
    frame = bytes(64)
    way = followed(outcomes, frame)
    outcomes.copied(frame)
    outcomes.arrived(frame)
    outcomes.lost(frame)
    assert (way.copies, way.outcome) == (0, None)


def test_a_changed_frame_is_followed() -> None:
    outcomes = FrameOutcomes()
    frame, marked, short = (bytes(size) for size in (64, 65, 24))
    way = followed(outcomes, frame)
    outcomes.changed(frame, marked)
    assert way.outcome is None
    outcomes.changed(marked, short, FrameOutcome.TRIMMED)
    assert way.outcome is FrameOutcome.TRIMMED
    outcomes.lost(short)
    assert way.outcome is FrameOutcome.LOST


def test_what_nobody_follows_is_not_kept() -> None:
    outcomes = FrameOutcomes()
    frame, short = bytes(64), bytes(24)
    way = followed(outcomes, frame)
    outcomes.changed(frame, short, FrameOutcome.TRIMMED)
    assert outcomes.forget(frame) is FrameOutcome.TRIMMED
    outcomes.lost(frame)
    outcomes.lost(short)
    outcomes.copied(short)
    assert way.outcome is FrameOutcome.TRIMMED
    assert not outcomes.following


class _Sink:
    def take(self, frame: bytes) -> None:
        """Arrived."""


class _Writer:
    def __init__(self) -> None:
        self.seen: list[tuple[int, str | None]] = []

    def write(self, time_ns: int, data: bytes, *, interface: int = 0, comment: str | None = None) -> None:
        self.seen.append((time_ns, comment))

    def write_many(self, times_ns: Sequence[int], frames: Sequence[bytes], *, interface: Sequence[int]) -> None:
        self.seen.extend((time_ns, None) for time_ns in times_ns)


@pytest.mark.parametrize(("patience", "comment"), [(0, None), (500_000, FrameOutcome.LOST)])
def test_a_record_waits_for_its_outcome(patience: int, comment: str | None) -> None:
    """1000 frames, one each 20 ns; each tenth is lost 400 ns after its first bit left."""
    clock, writer = Clock(), _Writer()
    capture = TapCapture(clock, writer, patience)
    out = OutTap(EmulatedLink(clock, _Sink(), rate=400 * 10**9, delay=0, mtu=9216), capture, 0)
    for number in range(1000):
        frame = bytes(1000) + bytes([number % 256])
        clock.at(number * 20_000, out.send, frame)
        if number % 10 == 0:
            clock.at(number * 20_000 + 400_000, capture.outcomes.lost, frame)
    clock.run()
    assert len(capture._pending) < 600  # it waits no longer than it has to
    capture.close()
    assert [time for time, _ in writer.seen] == sorted(time for time, _ in writer.seen)
    told = [seen for _, seen in writer.seen[::10]]
    assert len(writer.seen) == 1000
    assert not any(seen for number, (_, seen) in enumerate(writer.seen) if number % 10)
    assert all(told) is (comment is not None)
    assert not capture.outcomes.following


def test_without_end_of_patience_the_first_frame_under_way_holds_back_the_rest() -> None:
    clock, writer = Clock(), _Writer()
    capture = TapCapture(clock, writer, patience=None)
    frames = [bytes(64) + number.to_bytes(2, "big") for number in range(2000)]
    for number, frame in enumerate(frames):
        capture.add(0, frame, 0, leaves=True)
        if number != 700:
            capture.outcomes.arrived(frame)
    assert 500 < len(writer.seen) <= 700
    capture.outcomes.lost(frames[700])
    capture.close()
    assert len(writer.seen) == 2000
    assert [number for number, (_, comment) in enumerate(writer.seen) if comment] == [700]


# Runs -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(5))
def test_every_loss_is_told(seed: int, tmp_path: Path) -> None:
    """Held back, copied and reordered frames do not confuse it."""
    found, happened = comments(tmp_path, "gradient-lossy", f"seed={seed}", "faults.drop=0.2")
    assert found == {FrameOutcome.LOST: happened["drop"]}


@pytest.mark.parametrize(("fault", "outcome"), [("trim", FrameOutcome.TRIMMED), ("corrupt", FrameOutcome.DAMAGED)])
def test_other_faults(fault: str, outcome: FrameOutcome, tmp_path: Path) -> None:
    found, happened = comments(tmp_path, "gradient-1024", f"faults.{fault}=[1, 3]")
    assert found == {outcome: happened[fault]}


@pytest.mark.parametrize(("trimming", "outcome"), [("true", FrameOutcome.TRIMMED), ("false", FrameOutcome.LOST)])
def test_the_switch_tells_too(trimming: str, outcome: FrameOutcome, tmp_path: Path) -> None:
    found, happened = comments(
        tmp_path, "gradient-1024", "mode=rud", "nodes.rank2.rate=40 Gb/s", "fabric.queue_capacity=4096",
        f"fabric.trimming={trimming}", taps="rank0",
    )  # fmt: skip
    assert found[outcome] == happened["switch_trimmed" if outcome is FrameOutcome.TRIMMED else "switch_dropped"] > 0


def test_a_long_run_keeps_few_records(tmp_path: Path) -> None:
    """Losses in the middle of many frames: each is told, though records are written on the way."""
    data = tmp_path / "data"
    data.write_bytes(bytes(range(256)) * 8192)
    found, happened = comments(tmp_path, "gradient-rud", f"input={data}", "payload_mtu=1024", "faults.drop=0.05")
    assert happened["drop"] > 50
    assert found == {FrameOutcome.LOST: happened["drop"]}


@pytest.mark.parametrize(
    ("ladder", "expected"),
    [("L19", {FrameOutcome.LOST: 2}), ("L22", {FrameOutcome.TRIMMED: 1}), ("L01", {})],
)
def test_scripts(ladder: str, expected: dict[FrameOutcome, int], tmp_path: Path) -> None:
    found, _ = comments(tmp_path, f"ladder-{ladder}")
    assert found == expected


def test_a_pcap_has_no_comments(tmp_path: Path) -> None:
    result = run(load("gradient-lossy"), output=str(tmp_path / "x.pcap"))
    assert result.happened["drop"] > 0
    with open_capture(tmp_path / "x.pcap") as reader:
        assert {record.comment for record in reader} == {None}


def test_a_mark_leaves_a_frame_announced() -> None:
    """A marked frame arrives with the packet of the frame, marked; packets of other classes have to be read again."""
    outcomes, frame, other = FrameOutcomes(), bytes(range(60)), bytes(range(61))
    packet = Datagram(1, 2, b"header", b"payload", entropy=7)
    outcomes.announced = {id(frame): (frame, packet), id(other): (other, "a packet")}
    now, later = bytes(60), bytes(61)
    outcomes.marked(frame, now)
    outcomes.marked(other, later)
    assert outcomes.announced == {id(now): (now, replace(packet, ecn_marked=True))}
    assert not packet.ecn_marked
    outcomes.changed(now, bytes(20), FrameOutcome.TRIMMED)
    assert not outcomes.announced
