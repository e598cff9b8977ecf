# SPDX-License-Identifier: GPL-2.0-only
"""The loop between engine and path: order under back-pressure, entropy values, and who may know the time."""

import os
from collections.abc import Sequence

import pytest

from tests.support import source
from tests.support.live import addresses
from uetproto.api import fi
from uetproto.engine.contract import MICROSECOND, NEVER, Datagram
from uetproto.framing.framer import LowerHeaders
from uetproto.live import Interface
from uetproto.live.driver import BATCH, Driver
from uetproto.live.path import PathCounters, PathSetup, open_path
from uetproto.live.time import MonotonicClock
from uetproto.wire.capture.pcap import RAW


class NarrowPath:
    """A path of which the kernel takes a few frames at a time."""

    name, cannot, link, checksum, buffer = "narrow", (), RAW, False, 0
    blocked = None

    def __init__(self, *takes: int) -> None:
        self.notes: list[str] = []
        self.counters = PathCounters()
        self.takes = list(takes)
        self.pipe = os.pipe()
        self.taken: list[bytes] = []

    def send(self, frames: Sequence[bytes]) -> int:
        taken = min(self.takes.pop(0), len(frames))
        self.taken += list(frames)[:taken]
        return taken

    def receive(self, limit: int) -> list[bytes]:
        return []

    def entropy(self, value: int) -> int:
        return value | 1

    def mtu(self, dst: int) -> int:
        return 1500

    def fileno(self) -> int:
        return self.pipe[0]  # nothing ever arrives

    def close(self) -> None:
        for end in self.pipe:
            os.close(end)


class Counting:
    """An engine with requests without end, which are numbered, and an answer that may always be sent."""

    def __init__(self, requests: int) -> None:
        self.left = requests
        self.limits: list[int] = []

    def poll(self, now: int, limit: int) -> list[Datagram]:
        self.limits.append(limit)
        number = min(limit, self.left)
        first, self.left = self.left, self.left - number
        return [Datagram(1, 2, (first - index).to_bytes(2, "big"), entropy=4) for index in range(number)]

    def receive(self, packet: Datagram, now: int) -> None: ...

    def submit(self, work: object, now: int) -> None: ...

    def events(self) -> list[object]:
        return ["event"]

    def deadline(self) -> None: ...


class Plain:
    """A framer whose frames are an entropy value and the transport bytes."""

    bad_crc = bad_header = foreign = 0

    def frame(self, packet: Datagram) -> bytes:
        return bytes([packet.entropy]) + bytes(packet.header)

    def packet(self, frame: bytes) -> None: ...

    def repeats(self, packet: Datagram) -> bool:
        return False


def test_back_pressure_keeps_the_order() -> None:
    """What the kernel does not take waits in order, and the engine makes no new requests meanwhile."""
    path, engine = NarrowPath(3, 0, BATCH, BATCH), Counting(50)
    driver = Driver(engine, Plain(), path, MonotonicClock(), lambda event: None)
    for waiting in (BATCH - 3, BATCH - 3, 0, 0):
        driver.turn(0)
        assert driver.waiting == waiting
    assert engine.limits == [BATCH, 0, 0, BATCH]
    path.close()
    assert path.taken == [bytes([5]) + number.to_bytes(2, "big") for number in range(50, 0, -1)]


class Ticking:
    """A clock that goes on whenever somebody looks at it."""

    def __init__(self, step: int) -> None:
        self.step = step
        self.shown = 0

    @property
    def now(self) -> int:
        self.shown += self.step
        return self.shown


class Silent(Counting):
    """An engine that has nothing to send and nothing to tell."""

    def events(self) -> list[object]:
        return []


@pytest.mark.parametrize(("step", "limits"), [(20, [BATCH, 1, 1, 1, 1, 1]), (1, [BATCH, 2, 4, 8, 16, 32])])
def test_how_many_frames_are_received_at_once(step: int, limits: list[int]) -> None:
    """What wakes the loop is answered before more is received; frames that came meanwhile are received together."""
    path, asked = NarrowPath(), []
    path.receive = lambda limit: asked.append(limit) or []  # type: ignore[method-assign]
    os.write(path.pipe[1], b"readable")
    driver = Driver(Silent(0), Plain(), path, Ticking(step * MICROSECOND), lambda event: None)
    for _ in limits:
        driver.turn(NEVER)
    path.close()
    assert asked == limits


def test_entropy_values_within_the_limit() -> None:
    """Each source port is a socket; with no more to be had, those that are there serve, and a port keeps its value."""
    (local,) = addresses(1)
    interface = Interface(local, entropies=4)
    path = open_path(
        PathSetup(interface=interface, transport="uet", peer_port=4793, lower_headers=lambda lower, size: bytes(42))
    )
    try:
        ports = [path.entropy(value) for value in range(100)]
        assert len(set(ports)) == 4
        assert [path.entropy(port) for port in ports] == ports == [path.entropy(value) for value in range(100)]
        assert min(ports) >= 0xC000
    finally:
        path.close()


def test_ancillary_data_both_ways() -> None:
    """The ToS of each packet arrives, though a socket has one of its own."""
    here, there = addresses()
    seen: list[LowerHeaders] = []

    def noted(lower: LowerHeaders, size: int) -> bytes:
        seen.append(lower)
        return bytes(42)

    setups = [
        PathSetup(interface=Interface(at), transport="uet", peer_port=4793, lower_headers=noted) for at in (here, there)
    ]
    paths = [open_path(setup) for setup in setups]
    try:
        port, dst = paths[0].entropy(7), setups[1].local
        for tos in (0x22, 0x28, 0xB8, 0x23):
            frame = bytearray(50)
            frame[15], frame[30:36] = tos, dst.to_bytes(4, "big") + port.to_bytes(2, "big")
            assert paths[0].send([bytes(frame)]) == 1
        assert len(paths[1].receive(10)) == 4
    finally:
        for path in paths:
            path.close()
    assert [(lower.dscp << 2 | lower.ecn, lower.entropy) for lower in seen] == [
        (tos, port) for tos in (0x22, 0x28, 0xB8, 0x23)
    ]


def test_one_module_knows_the_time() -> None:
    """`live/time.py` alone imports `time`, and nothing of `live` asks another module for it."""
    texts = {path.name: path.read_text() for path in source.PACKAGE.joinpath("live").glob("*.py")}
    telling = [name for name, text in texts.items() if any(word in text for word in ("import time", "datetime"))]
    assert telling == ["time.py"]


def test_a_process_that_stood_still() -> None:
    """A turn long after the last one is noted: the host slept, or the process was stopped."""
    (local,) = addresses(1)
    with fi.Fabric(live=Interface(local)) as fabric:
        driver = fabric.live.driver
        driver.turn(0)
        assert driver.stood_still == []
        driver._turned -= 5 * 10**12
        driver.turn(0)
        assert [round(one / 10**12) for one in driver.stood_still] == [5]
