"""Traffic of shipped profiles for tests: made, and read again as packets."""

from collections.abc import Iterable
from pathlib import Path

from tests.support.effort import effort
from uetproto import Packet, decode
from uetproto.traffic.generate import generate
from uetproto.traffic.profile import load
from uetproto.wire.capture.pcap import open_capture

MADE = effort(700, 3_000, 30_000)
"""Packets of a capture that a test makes without naming their number."""


class Nowhere:
    """A writer that forgets; `times` in nanoseconds and `frames` only count."""

    def __init__(self) -> None:
        self.packets = 0

    def write_many(self, times_ns: Iterable[int], frames: Iterable[bytes], *, interface: int = 0) -> None:
        self.packets += len(list(frames))


def records(path: Path) -> list[tuple[int, Packet]]:
    with open_capture(path) as capture:
        found = [(record.time_ns, decode(record.data)) for record in capture]
    assert not capture.damage
    return found


def frames(path: Path) -> list[bytes]:
    with open_capture(path) as capture:
        found = [bytes(record.data) for record in capture]
    assert not capture.damage
    return found


def made(folder: Path, name: str, *settings: str, packets: int = MADE, suffix: str = "pcapng") -> Path:
    path = folder / f"{name}.{suffix}"
    outcome = generate(load(name, settings), str(path), packets=packets)
    assert outcome.packets == packets
    return path
