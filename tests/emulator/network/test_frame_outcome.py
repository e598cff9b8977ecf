"""What the network does to a frame after a tap saw it leave is the comment of its record."""

from collections import Counter
from pathlib import Path

import pytest

from uetproto.emulator.network.clock import Clock
from uetproto.emulator.network.frame_outcome import Fate, Fates
from uetproto.emulator.network.link import Link
from uetproto.emulator.network.tap import Capture, OutTap
from uetproto.emulator.run.play import run
from uetproto.emulator.scenario.settings import load
from uetproto.wire.capture.pcap import open_capture


def comments(path: Path, name: str, *settings: str, taps: str = "all") -> tuple[Counter[str], dict[str, int]]:
    """How often each comment is in the capture of a run, and what the run says that happened."""
    result = run(load(name, [f"tap.nodes={taps}", *settings]), output=str(path / "x.pcapng"))
    assert result.match
    with open_capture(path / "x.pcapng") as reader:
        found = [record.comment for record in reader]
    return Counter(comment for comment in found if comment), result.happened


# Frames ---------------------------------------------------------------------------------------------------------------


def test_a_frame_is_lost_with_its_last_copy() -> None:
    fates = Fates()
    frame, same = bytes(64), bytes(bytearray(64))
    assert frame == same
    way, other = fates.follow(frame), fates.follow(same)
    fates.copied(frame)
    fates.lost(frame)
    assert way.fate is None
    fates.lost(frame)
    assert (way.fate, other.fate) == (Fate.LOST, None)


def test_a_frame_of_which_a_copy_arrived_is_not_lost() -> None:
    fates = Fates()
    frame = bytes(64)
    way = fates.follow(frame)
    fates.copied(frame)
    fates.arrived(frame)
    fates.lost(frame)
    assert (way.copies, way.fate) == (0, None)


def test_a_changed_frame_is_followed() -> None:
    fates = Fates()
    frame, marked, short = (bytes(size) for size in (64, 65, 24))
    way = fates.follow(frame)
    fates.changed(frame, marked)
    assert way.fate is None
    fates.changed(marked, short, Fate.TRIMMED)
    assert way.fate is Fate.TRIMMED
    fates.lost(short)
    assert way.fate is Fate.LOST


def test_what_nobody_follows_is_not_kept() -> None:
    fates = Fates()
    frame, short = bytes(64), bytes(24)
    way = fates.follow(frame)
    fates.changed(frame, short, Fate.TRIMMED)
    fates.forget(way)
    fates.lost(frame)
    fates.lost(short)
    fates.copied(short)
    assert way.fate is Fate.TRIMMED
    assert not fates._ways


class _Sink:
    def take(self, frame: bytes) -> None:
        """Arrived."""


class _Writer:
    def __init__(self) -> None:
        self.seen: list[tuple[int, str | None]] = []

    def write(self, time_ns: int, data: bytes, *, interface: int = 0, comment: str | None = None) -> None:
        self.seen.append((time_ns, comment))

    def write_many(self, times_ns: list[int], frames: list[bytes], *, interface: int = 0) -> None:
        self.seen.extend((time_ns, None) for time_ns in times_ns)


@pytest.mark.parametrize(("patience", "comment"), [(0, None), (500_000, Fate.LOST)])
def test_a_record_waits_for_its_fate(patience: int, comment: str | None) -> None:
    """1000 frames, one each 20 ns; each tenth is lost 400 ns after its first bit left."""
    clock, writer = Clock(), _Writer()
    capture = Capture(clock, writer, patience)
    out = OutTap(Link(clock, _Sink(), rate=400 * 10**9, delay=0, mtu=9216), capture, 0)
    for number in range(1000):
        frame = bytes(1000) + bytes([number % 256])
        clock.at(number * 20_000, out.send, frame)
        if number % 10 == 0:
            clock.at(number * 20_000 + 400_000, capture.fates.lost, frame)
    clock.run()
    assert len(capture._pending) < 600  # it waits no longer than it has to
    capture.close()
    assert [time for time, _ in writer.seen] == sorted(time for time, _ in writer.seen)
    told = [seen for _, seen in writer.seen[::10]]
    assert len(writer.seen) == 1000
    assert not any(seen for number, (_, seen) in enumerate(writer.seen) if number % 10)
    assert all(told) is (comment is not None)
    assert not capture.fates._ways


def test_without_end_of_patience_the_first_frame_under_way_holds_back_the_rest() -> None:
    clock, writer = Clock(), _Writer()
    capture = Capture(clock, writer, patience=None)
    frames = [bytes(64) + number.to_bytes(2, "big") for number in range(2000)]
    for number, frame in enumerate(frames):
        capture.add(0, frame, 0, leaves=True)
        if number != 700:
            capture.fates.arrived(frame)
    assert 500 < len(writer.seen) <= 700
    capture.fates.lost(frames[700])
    capture.close()
    assert len(writer.seen) == 2000
    assert [number for number, (_, comment) in enumerate(writer.seen) if comment] == [700]


# Runs -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(5))
def test_every_loss_is_told(seed: int, tmp_path: Path) -> None:
    """Held back, copied and reordered frames do not confuse it."""
    found, happened = comments(tmp_path, "gradient-lossy", f"seed={seed}", "faults.drop=0.2")
    assert found == {Fate.LOST: happened["drop"]}


@pytest.mark.parametrize(("fault", "fate"), [("trim", Fate.TRIMMED), ("corrupt", Fate.DAMAGED)])
def test_other_faults(fault: str, fate: Fate, tmp_path: Path) -> None:
    found, happened = comments(tmp_path, "gradient-1024", f"faults.{fault}=[1, 3]")
    assert found == {fate: happened[fault]}


@pytest.mark.parametrize(("trimming", "fate"), [("true", Fate.TRIMMED), ("false", Fate.LOST)])
def test_the_switch_tells_too(trimming: str, fate: Fate, tmp_path: Path) -> None:
    found, happened = comments(
        tmp_path, "gradient-1024", "mode=rud", "nodes.rank2.rate=40 Gb/s", "fabric.queue_capacity=4096",
        f"fabric.trimming={trimming}", taps="rank0",
    )  # fmt: skip
    assert found[fate] == happened["switch_trimmed" if fate is Fate.TRIMMED else "switch_dropped"] > 0


def test_a_long_run_keeps_few_records(tmp_path: Path) -> None:
    """Losses in the middle of many frames: each is told, though records are written on the way."""
    data = tmp_path / "data"
    data.write_bytes(bytes(range(256)) * 8192)
    found, happened = comments(tmp_path, "gradient-rud", f"input={data}", "payload_mtu=1024", "faults.drop=0.05")
    assert happened["drop"] > 50
    assert found == {Fate.LOST: happened["drop"]}


@pytest.mark.parametrize(
    ("ladder", "expected"),
    [("L19", {Fate.LOST: 2}), ("L22", {Fate.TRIMMED: 1}), ("L01", {})],
)
def test_scripts(ladder: str, expected: dict[Fate, int], tmp_path: Path) -> None:
    found, _ = comments(tmp_path, f"ladder-{ladder}")
    assert found == expected


def test_a_pcap_has_no_comments(tmp_path: Path) -> None:
    result = run(load("gradient-lossy"), output=str(tmp_path / "x.pcap"))
    assert result.happened["drop"] > 0
    with open_capture(tmp_path / "x.pcap") as reader:
        assert {record.comment for record in reader} == {None}
