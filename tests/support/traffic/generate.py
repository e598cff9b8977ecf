# SPDX-License-Identifier: GPL-2.0-only
"""This module makes traffic of shipped profiles for tests, and reads it again as packets."""

from collections.abc import Iterable
from pathlib import Path

from tests.support.effort import effort
from uetproto import Packet, decode
from uetproto.traffic.generate import generate
from uetproto.traffic.profile import load
from uetproto.wire.capture.pcap import open_capture

MADE = effort(500, 3_000, 30_000)
"""Number of packets of a capture for which a test names no number."""


class Nowhere:
    """A writer that only counts; `times` are in nanoseconds."""

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
