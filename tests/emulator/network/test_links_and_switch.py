# SPDX-License-Identifier: GPL-2.0-only
"""Links, queues, the switch: when what arrives, and what does not."""

from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from uetproto import LocalError, decode
from uetproto.emulator.network.clock import Clock
from uetproto.emulator.network.switch import Switch
from uetproto.emulator.network.tap import InTap, OutTap, TapCapture
from uetproto.engine.contract import Datagram, TrafficClass, Trim
from uetproto.framing.dscp import Dscp, dscp_of
from uetproto.framing.uet import Encapsulation, UetFramer
from uetproto.impair.link import EmulatedLink
from uetproto.impair.queue import Level, OutputQueue, levels_by
from uetproto.impair.trim import trim

A, B = 0x0A00000B, 0x0A00010B
REQUEST = bytes.fromhex("1980ffff000120000001000001090001000000650000000f") + bytes(32)


class Sink:
    """Remembers what arrived, and when."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.seen: list[tuple[int, bytes]] = []

    def take(self, frame: bytes) -> None:
        self.seen.append((self.clock.now, frame))


def link(clock: Clock, sink: Sink, rate: int = 400 * 10**9, delay: int = 1_000_000) -> EmulatedLink:
    return EmulatedLink(clock, sink, rate=rate, delay=delay, mtu=9216)


def data(size: int = 4096, traffic_class: TrafficClass = TrafficClass.DATA, how: Encapsulation | None = None) -> bytes:
    packet = Datagram(A, B, REQUEST, bytes(size), traffic_class, entropy=0x1234)
    return UetFramer(A, 4, how or Encapsulation()).frame(packet)


def test_link_arithmetic() -> None:
    clock = Clock()
    sink = Sink(clock)
    wire = link(clock, sink)
    starts = [wire.send(bytes(1000)), wire.send(bytes(500))]
    clock.run()
    # A byte at 400 Gb/s lasts 20 ps.
    assert starts == [0, 20_000]
    assert [time for time, _ in sink.seen] == [20_000 + 1_000_000, 30_000 + 1_000_000]
    assert (wire.frames, wire.bytes, wire.busy_until) == (2, 1500, 30_000)


def test_link_rounds_up() -> None:
    clock = Clock()
    wire = link(clock, Sink(clock), rate=3 * 10**9, delay=0)
    assert wire.duration(1) == 2667
    assert wire.duration(3) == 8000


def test_link_refuses_above_the_mtu() -> None:
    clock = Clock()
    wire = link(clock, Sink(clock))
    wire.send(bytes(9216 + 14))
    with pytest.raises(LocalError, match="9217 bytes; the MTU is 9216"):
        wire.send(bytes(9217 + 14))
    with pytest.raises(LocalError, match="rate 0"):
        link(clock, Sink(clock), rate=0)


def test_queue_priority_and_capacity() -> None:
    clock = Clock()
    sink = Sink(clock)
    data, trimmed, control = (bytes(12) + kind + bytes(984) for kind in (b"data", b"trim", b"ctrl"))
    levels = {b"data": Level.LOW, b"trim": Level.MEDIUM, b"ctrl": Level.HIGH}
    queue = OutputQueue(clock, link(clock, sink, delay=0), capacity=2000, levels=levels)
    frames = [data, data, data, data, trimmed, control]
    assert [queue.put(frame) for frame in frames] == [True, True, True, False, True, True]
    clock.run()
    # The first was on its way; then control, trimmed, data. Each lasts 20 ns.
    assert sink.seen == [(20_000, data), (40_000, control), (60_000, trimmed), (80_000, data), (100_000, data)]
    assert queue.peak == 2000
    assert queue.put(data)


def test_queue_that_is_busy_but_empty() -> None:
    clock = Clock()
    sink = Sink(clock)
    queue = OutputQueue(clock, link(clock, sink, delay=0), capacity=1000, levels={bytes(4): Level.LOW})
    queue.put(bytes(1000))
    clock.at(10_000, queue.put, bytes(500))
    clock.at(25_000, queue.put, bytes(500))
    clock.run()
    assert [time for time, _ in sink.seen] == [20_000, 30_000, 40_000]


@pytest.mark.parametrize("udp", [True, False])
def test_trim(udp: bool) -> None:
    how = Encapsulation(udp=udp)
    frame = data(how=how)
    short = trim(frame, how.dscp, last_hop=True)
    assert short is not None
    assert len(short) == 14 + 20 + (24 if udp else 20)
    packet = decode(short)
    assert packet.notes[0] == "trimmed"
    assert packet.error is None
    assert (packet["ipv4"]["dscp"], packet["ipv4"]["ecn"], packet["ipv4"]["total_length"]) == (18, 2, len(short) - 14)
    assert packet["pds.rod_req"]["psn"] == 0x12000
    if udp:
        assert packet["udp"] == decode(frame)["udp"]  # the length is the old one
    arrived = UetFramer(B, 4, how).packet(short)
    assert arrived is not None
    assert arrived.trimmed is Trim.LAST_HOP
    assert arrived.header == REQUEST[:16]
    assert arrived.entropy == 0x1234
    assert trim(short, how.dscp, last_hop=False) is None  # never twice


def test_trim_never_control_never_larger() -> None:
    dscp = Dscp()
    assert trim(data(0, TrafficClass.CONTROL), dscp, last_hop=True) is None
    assert trim(bytes(64), dscp, last_hop=True) is None
    assert trim(data(0)[:50], dscp, last_hop=True) is None
    assert dscp_of(bytes(64)) is None


@pytest.mark.parametrize("trimming", [True, False])
def test_switch(trimming: bool) -> None:
    clock = Clock()
    sink = Sink(clock)
    switch = Switch(dscp=Dscp(), trimming=trimming)
    mac = bytes.fromhex("02000a00010b")
    switch.attach(mac, OutputQueue(clock, link(clock, sink), capacity=5000, levels=levels_by(switch.dscp)))
    for _ in range(4):
        switch.take(data())
    switch.take(bytes(64))
    clock.run()
    assert switch.unknown == 1
    assert (switch.forwarded, switch.trimmed, switch.dropped) == ((2, 2, 0) if trimming else (2, 0, 2))
    assert [dscp_of(frame) for _, frame in sink.seen] == ([8, 18, 18, 8] if trimming else [8, 8])


def test_taps_write_in_the_order_of_time() -> None:
    clock = Clock()
    written: list[tuple[int, int, int]] = []

    class Writer:
        def write_many(self, times_ns: Sequence[int], frames: Sequence[bytes], *, interface: Sequence[int]) -> None:
            written.extend(zip(times_ns, map(len, frames), interface, strict=True))

    capture = TapCapture(clock, Writer())
    out = OutTap(link(clock, Sink(clock), delay=0), capture, 0)
    into = InTap(clock, Sink(clock), capture, 1)
    for _ in range(3):
        out.send(bytes(1000))  # first bits leave at 0, 20, 40 ns
    assert out.busy_until == 60_000
    clock.at(30_000, into.take, bytes(64))
    clock.run()
    capture.close()
    assert written == [(0, 1000, 0), (20, 1000, 0), (30, 64, 1), (40, 1000, 0)]
    assert capture.frames == 4


def test_what_never_left_is_not_in_the_capture() -> None:
    clock = Clock()
    written: list[int] = []

    class Writer:
        def write_many(self, times_ns: Sequence[int], frames: Sequence[bytes], *, interface: Sequence[int]) -> None:
            written.extend(times_ns)

    capture = TapCapture(clock, Writer())
    out = OutTap(link(clock, Sink(clock)), capture, 0)
    out.send(bytes(1000))
    out.send(bytes(1000))
    capture.close()
    assert written == [0]
    assert capture.frames == 1


@given(
    st.lists(st.tuples(st.integers(0, 1500), st.sampled_from([TrafficClass.DATA, TrafficClass.CONTROL])), max_size=40),
    st.integers(64, 8000), st.booleans(),
)  # fmt: skip
def test_a_switch_conserves_packets(sent: list[tuple[int, TrafficClass]], room: int, trimming: bool) -> None:
    """cms.md §10 items 17 and 18: what came has left or was dropped, a trimmed packet counts once and becomes no
    larger, and no other packet changes."""
    clock = Clock()
    sink = Sink(clock)
    switch = Switch(dscp=Dscp(), trimming=trimming)
    queue = OutputQueue(clock, link(clock, sink), capacity=room, levels=levels_by(switch.dscp))
    switch.attach(bytes.fromhex("02000a00010b"), queue)
    frames = [data(size, kind) for size, kind in sent]
    for frame in frames:
        switch.take(frame)
    clock.run()
    left = [frame for _, frame in sink.seen]
    cut = [frame for frame in left if dscp_of(frame) in (switch.dscp.trimmed, switch.dscp.trimmed_last_hop)]
    assert len(frames) == len(left) + switch.dropped == switch.forwarded + switch.trimmed + switch.dropped
    assert Counter(left) - Counter(frames) == Counter(cut)
    assert len(cut) == switch.trimmed if trimming else not cut
    assert max(map(len, cut), default=0) <= max(map(len, frames), default=0)
