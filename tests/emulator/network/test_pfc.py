# SPDX-License-Identifier: GPL-2.0-only
"""PFC: when the switch says pause, what the station does then, and that together nothing is dropped (roce.md §13)."""

import random
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import replace

import pytest

from tests.support.emulator.roce_frames import DSCP, RATE, A, B, C, D, Sink, cnp, data, mac, port
from tests.support.roce.world import ALL, BASE, Side
from uetproto import LocalError, decode
from uetproto.emulator.network.build import build
from uetproto.emulator.network.built import BuiltNetwork
from uetproto.emulator.network.clock import Clock
from uetproto.emulator.network.config import NetworkConfig, NodeAttachment
from uetproto.emulator.network.layouts import layout_of
from uetproto.emulator.network.nic import Nic
from uetproto.emulator.network.pfc import ROOM, PauseGate, Pauser, Pfc, PfcIngress
from uetproto.emulator.network.switch import Switch
from uetproto.engine.contract import MICROSECOND, SECOND, Datagram, TrafficClass
from uetproto.engine.roce.config import RoceConfig
from uetproto.engine.roce.contract import (
    AddressVector,
    ModifyQp,
    Opcode,
    PostSend,
    QpState,
    QpType,
    RocePacket,
    Status,
    WorkCompletion,
)
from uetproto.engine.roce.qp import REQUIRED, defaults_of
from uetproto.framing.roce import RoceFramer
from uetproto.impair.link import EmulatedLink
from uetproto.impair.queue import KIND, Level, OutputQueue, levels_by
from uetproto.impair.red import Red

PFC = Pfc()
PAUSE = bytes.fromhex("0180c2000001 02ff00000000 8808 0101 0008" + "0000" * 3 + "ffff" + "0000" * 4) + bytes(26)
QUANTUM = 64 * 20
"""Picoseconds of 512 bit times at 400 Gb/s."""


# The frame ------------------------------------------------------------------------------------------------------------


def test_the_frame() -> None:
    assert PFC.frame(0xFFFF) == PAUSE
    assert len(PAUSE) == 60
    found = decode(PAUSE)
    assert (found.error, found["pfc"]["enable"], found["pfc"]["pause3"]) == (None, 8, 65535)
    assert found["ethernet"] == {"dst": 0x0180C2000001, "src": 0x02FF00000000, "type": 0x8808}
    resume = decode(Pfc(priority=0).frame(0))
    assert (resume["pfc"]["enable"], resume["pfc"]["pause0"]) == (1, 0)


def test_reading_it() -> None:
    assert PFC.quanta_of(PAUSE) == 65535
    assert PFC.quanta_of(PFC.frame(0)) == 0
    assert Pfc(priority=2).quanta_of(PAUSE) is None
    assert PFC.quanta_of(mac(A) + PAUSE[6:]) is None
    assert PFC.quanta_of(PAUSE[:14] + bytes.fromhex("0001") + PAUSE[16:]) is None  # pause of the whole link
    for size in range(34):
        assert PFC.quanta_of(PAUSE[:size]) is None
    assert PFC.quanta_of(PAUSE[:34]) == 65535


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"priority": 8}, "priority 8; legal: 0 … 7"), ({"xon": 0}, "xon 0"), ({"xoff": 5, "xon": 6}, "xon ≤ xoff"),
        ({"quanta": 65536}, "quanta 65536; legal: 2 … 65535"), ({"quanta": 0}, "quanta 0"),
        ({"repeat": 0}, "repeat 0; legal: 1 … 65534"), ({"quanta": 10, "repeat": 10}, "repeat 10; legal: 1 … 9"),
    ],
)  # fmt: skip
def test_illegal_parameters(wrong: dict[str, int], says: str) -> None:
    with pytest.raises(LocalError, match=says):
        Pfc(**wrong)


# The switch -----------------------------------------------------------------------------------------------------------


class Bench:
    """A switch with three stations; what it sends to each ends in `sinks`."""

    def __init__(self, pfc: Pfc, *, capacity: int = 1 << 20, delay: int = 0) -> None:
        self.clock = clock = Clock()
        self.switch = Switch(dscp=DSCP, trimming=False)
        self.pauser = Pauser(clock, pfc, DSCP)
        self.sinks: dict[int, Sink] = {}
        self.ports: dict[int, PfcIngress] = {}
        for address in (A, B, C):
            self.sinks[address] = sink = Sink(clock)
            link = EmulatedLink(clock, sink, rate=RATE, delay=delay, mtu=9216)
            queue = OutputQueue(clock, link, capacity=capacity, levels=levels_by(DSCP), observer=self.pauser)
            self.switch.attach(mac(address), queue)
            self.ports[address] = self.pauser.attach(mac(address), queue.ahead, link.duration)

    def take(self, frames: Iterable[bytes]) -> None:
        for frame in frames:
            self.switch.take(frame)

    def told(self, address: int) -> list[tuple[int, int | None]]:
        """Pause frames that a station got: when, and for how many quanta."""
        seen = self.sinks[address].seen
        return [(time, PFC.quanta_of(frame)) for time, frame in seen if frame[12:14] == PAUSE[12:14]]


def test_pause_above_xoff_resume_below_xon() -> None:
    """Five frames of 1000 bytes: one leaves at once, four wait; one leaves each 20 ns. 60 bytes last 1.2 ns."""
    bench = Bench(Pfc(xoff=3000, xon=2000))
    bench.take(data(dst=C) for _ in range(5))
    port_a = bench.ports[A]
    assert (port_a.bytes, port_a.peak, port_a.paused, port_a.pauses) == (4000, 4000, True, 1)
    bench.clock.run()
    # At 40 ns 2000 bytes are left, which is not below xon; at 60 ns 1000.
    assert bench.told(A) == [(1_200, 65535), (61_200, 0)]
    assert (port_a.bytes, port_a.peak, port_a.paused, port_a.pauses, port_a.resumes) == (0, 4000, False, 1, 1)
    assert bench.told(B) == bench.told(C) == []
    assert len(bench.sinks[C].seen) == 5


def test_at_xoff_there_is_no_pause() -> None:
    bench = Bench(Pfc(xoff=3000, xon=2000))
    bench.take(data(dst=C) for _ in range(4))
    bench.clock.run()
    assert (bench.ports[A].peak, bench.ports[A].pauses) == (3000, 0)


def test_a_pause_is_told_again_while_it_holds() -> None:
    """5 quanta are 6.4 ns; the resume is due at 60 ns, so that nine repetitions come before it."""
    bench = Bench(Pfc(xoff=3000, xon=2000, quanta=10, repeat=5))
    bench.take(data(dst=C) for _ in range(5))
    bench.clock.run()
    assert bench.told(A) == [(n * 6_400 + 1_200, 10) for n in range(10)] + [(61_200, 0)]
    assert bench.ports[A].pauses == 10


def test_pauses_of_two_times_do_not_mix() -> None:
    """The repetition that was planned in the first pause says nothing in the second."""
    bench = Bench(Pfc(xoff=3000, xon=3000, quanta=100, repeat=50))  # repeated after 64 ns
    bench.take(data(dst=C) for _ in range(5))  # pause at 0, resume at 40 ns
    bench.clock.at(50_000, lambda _: bench.take(data(dst=C) for _ in range(5)))  # pause at once, again at 114 ns
    bench.clock.run()
    assert bench.told(A) == [(1_200, 100), (41_200, 0), (51_200, 100), (115_200, 100), (141_200, 0)]


def test_each_station_by_itself_whatever_queue() -> None:
    """What A has in two queues is added up; B, which sends as much to one of them, is below."""
    bench = Bench(Pfc(xoff=3000, xon=2000))
    bench.take(data(src=A, dst=dst) for dst in (B, B, B, C, C, C))
    bench.take(data(src=B, dst=C) for _ in range(3))
    assert [bench.ports[address].bytes for address in (A, B, C)] == [4000, 3000, 0]
    bench.clock.run()
    assert [bench.ports[address].pauses for address in (A, B, C)] == [1, 0, 0]
    assert [bench.ports[address].bytes for address in (A, B, C)] == [0, 0, 0]


def test_a_pause_frame_goes_before_all_that_waits() -> None:
    """Three frames are for A, one of them on its way, when A has to be paused."""
    bench = Bench(Pfc(xoff=3000, xon=1))
    bench.take(data(src=B, dst=A) for _ in range(3))
    bench.take(data(src=A, dst=C) for _ in range(5))
    bench.clock.run()
    assert bench.sinks[A].times[:4] == [20_000, 21_200, 41_200, 61_200]
    assert [len(frame) for frame in bench.sinks[A].frames[:4]] == [1000, 60, 1000, 1000]


def test_no_data_slips_in_behind_a_pause_frame_that_has_begun() -> None:
    """The link is promised frame by frame, so that a resume a moment later still goes before what waits."""
    clock = Clock()
    sink, queue = port(clock)
    for _ in range(2):
        queue.put(data())
    clock.at(10_000, queue.ahead, PAUSE)
    clock.at(20_500, queue.ahead, PFC.frame(0))
    clock.run()
    assert sink.times == [20_000, 21_200, 22_400, 42_400]


def test_what_is_not_of_the_class_is_not_counted() -> None:
    bench = Bench(Pfc(xoff=100, xon=50))
    bench.take(cnp(src=A, dst=C) for _ in range(9))
    bench.take([data(src=D, dst=C)] * 9)  # a station that nobody knows
    bench.clock.run()
    assert all(port.peak == port.pauses == 0 for port in bench.ports.values())


def test_what_found_no_room_is_not_counted() -> None:
    bench = Bench(PFC, capacity=2000)
    bench.take(data(dst=C) for _ in range(9))
    assert bench.ports[A].bytes == 2000
    bench.clock.run()
    assert (bench.ports[A].bytes, bench.switch.dropped) == (0, 6)


# The station ----------------------------------------------------------------------------------------------------------


class Outlet:
    """A gate, a link behind it, and in place of the NIC a sink."""

    def __init__(self, pfc: Pfc = PFC) -> None:
        self.clock = clock = Clock()
        self.sink, self.nic = Sink(clock), Sink(clock)
        link = EmulatedLink(clock, self.sink, rate=RATE, delay=0, mtu=9216)
        self.gate = PauseGate(clock, link, link.duration, pfc, DSCP)
        self.gate.port, self.gate.on_room = self.nic, self.room
        self.rooms: list[int] = []

    def room(self) -> None:
        self.rooms.append(self.clock.now)

    def at(self, time: int, *frames: bytes) -> None:
        """These arrive from the switch."""
        for frame in frames:
            self.clock.at(time, self.gate.take, frame)

    def send(self, time: int, *frames: bytes) -> None:
        for frame in frames:
            self.clock.at(time, self.gate.send, frame)


def test_an_open_gate_changes_nothing() -> None:
    outlet = Outlet()
    outlet.send(0, data(), data(), data())
    outlet.clock.run()
    assert outlet.sink.times == [20_000, 40_000, 60_000]
    assert outlet.rooms == [40_000]  # when the last one has begun
    assert (outlet.gate.pause.total, outlet.gate.room) == (0, ROOM)


def test_a_pause_stops_all_but_the_frame_that_has_begun_until_its_time_is_over() -> None:
    """100 quanta are 128 ns, counted from the arrival of the pause frame at 25 ns."""
    outlet = Outlet()
    outlet.send(0, *(data(psn=psn) for psn in range(5)))
    outlet.at(25_000, PFC.frame(100))
    outlet.clock.advance(100_000)
    assert outlet.sink.times == [20_000, 40_000]
    assert (outlet.gate.pause.total, outlet.gate.room) == (75_000, ROOM - 3)
    outlet.clock.run()
    assert outlet.sink.times == [20_000, 40_000, 173_000, 193_000, 213_000]
    assert [frame[53] for frame in outlet.sink.frames] == [0, 1, 2, 3, 4]
    assert (outlet.gate.pause.total, outlet.gate.pause.pauses, outlet.gate.pause.ignored) == (100 * QUANTUM, 1, 0)
    assert outlet.nic.seen == []


def test_a_resume_ends_it() -> None:
    outlet = Outlet()
    outlet.at(0, PFC.frame(65535))
    outlet.send(10_000, data())
    outlet.at(50_000, PFC.frame(0), PFC.frame(0))
    outlet.clock.run()
    assert outlet.sink.times == [70_000]
    assert (outlet.gate.pause.total, outlet.gate.pause.pauses) == (50_000, 1)


def test_a_later_pause_counts_from_when_it_comes() -> None:
    """Longer or shorter: 20 quanta at 0 and at 12.8 ns last until 38.4 ns; then 5 take the place of 100."""
    outlet = Outlet()
    outlet.at(0, PFC.frame(20))
    outlet.at(12_800, PFC.frame(20))
    outlet.send(0, data())
    outlet.at(100_000, PFC.frame(100))
    outlet.at(101_000, PFC.frame(5))
    outlet.send(100_500, data())
    outlet.clock.run()
    assert outlet.sink.times == [58_400, 101_000 + 5 * QUANTUM + 20_000]
    assert outlet.gate.pause.total == 38_400 + 1_000 + 5 * QUANTUM


def test_other_classes_still_go() -> None:
    outlet = Outlet()
    outlet.at(0, PFC.frame(100))
    outlet.send(1_000, data(), cnp(), data(), cnp())
    outlet.clock.run()
    assert [len(frame) for frame in outlet.sink.frames] == [74, 74, 1000, 1000]
    assert outlet.sink.times == [2_480, 3_960, 148_000, 168_000]


def test_control_goes_before_data_that_waits() -> None:
    outlet = Outlet()
    outlet.send(0, data(), data(), cnp())
    outlet.clock.run()
    assert [len(frame) for frame in outlet.sink.frames] == [1000, 74, 1000]


def test_the_rest_arrives_at_the_nic_and_what_says_nothing_is_counted() -> None:
    outlet = Outlet()
    foreign = mac(A) + PAUSE[6:]
    whole_link = PAUSE[:14] + bytes.fromhex("0001ffff") + bytes(42)
    outlet.at(0, data(), foreign, whole_link, Pfc(priority=4).frame(9), cnp())
    outlet.at(0, *(PAUSE[:size] for size in range(34)))
    outlet.send(1, data())
    outlet.clock.run()
    assert outlet.sink.times == [20_001]
    assert outlet.nic.frames == [data(), cnp(), *(PAUSE[:size] for size in range(14))]
    assert outlet.gate.pause.ignored == 3 + 20  # of the cut ones those that show their EtherType
    assert (outlet.gate.pause.pauses, outlet.gate.pause.total) == (0, 0)


# The NIC behind the gate ----------------------------------------------------------------------------------------------


class Blaster:
    """An engine that has `many` packets of data for one peer, and says in time what else it has."""

    def __init__(self, me: int, peer: int = B, many: int = 0, size: int = 942) -> None:
        self.me, self.peer, self.many, self.size = me, peer, many, size
        self.control: deque[RocePacket] = deque()
        self.got: list[tuple[int, int]] = []
        """From whom, PSN."""
        self.psn = 0
        self.polls = 0
        self.due: int | None = None

    def receive(self, packet: Datagram, now: int) -> None:
        self.got.append((packet.src, int.from_bytes(packet.header[8:12], "big")))

    def submit(self, work: object, now: int) -> None:
        self.control.append(RocePacket(self.me, self.peer, bytes(12), bytes(16), TrafficClass.CONTROL))

    def poll(self, now: int, limit: int = 1 << 60) -> list[RocePacket]:
        self.polls += 1
        packets = list(self.control)
        self.control.clear()
        for psn in range(self.psn, min(self.psn + limit, self.many)):
            header = bytes.fromhex("0a40ffff00000012") + psn.to_bytes(4, "big")
            packets.append(RocePacket(self.me, self.peer, header, bytes(self.size)))
            self.psn += 1
        return packets

    def deadline(self) -> int | None:
        return self.due

    def events(self) -> list[object]:
        return []


def nic_of(engine: Blaster) -> tuple[Clock, Sink, PauseGate, Nic]:
    clock = Clock()
    sink = Sink(clock)
    link = EmulatedLink(clock, sink, rate=RATE, delay=0, mtu=9216)
    gate = PauseGate(clock, link, link.duration, PFC, DSCP)
    nic = Nic(clock, engine, RoceFramer(A, 4, RoceConfig()), gate, lambda _: None, gate)
    return clock, sink, gate, nic


def test_a_nic_keeps_its_link_busy_through_a_gate() -> None:
    engine = Blaster(A, many=1000)
    clock, sink, gate, nic = nic_of(engine)
    nic.step()
    clock.run()
    assert sink.times == [20_000 * n for n in range(1, 1001)]
    assert (nic.sent, gate.room) == (1000, ROOM)
    assert engine.polls < 100  # once a ring, not once a frame


def test_a_paused_nic_takes_a_ring_of_data_and_still_sends_control() -> None:
    engine = Blaster(A, many=1000)
    clock, sink, gate, nic = nic_of(engine)
    gate.take(PFC.frame(65535))
    for time in (1_000, 2_000):
        clock.at(time, lambda _: nic.submit(None))
    clock.run(10_000)
    assert [len(frame) for frame in sink.frames] == [74, 74]
    assert sink.times == [2_480, 3_960]
    assert (engine.psn, gate.room) == (ROOM, 0)
    gate.take(PFC.frame(0))
    clock.run()
    assert len(sink.seen) == 1002
    assert [int.from_bytes(frame[50:54], "big") for frame in sink.frames[2:]] == list(range(1000))


def test_pauses_at_any_instant_never_stall_or_reorder() -> None:
    """Pause and resume at 300 random instants: all comes, in order, and the link was idle only while paused."""
    for seed in range(20):
        rng = random.Random(seed)
        engine = Blaster(A, many=200)
        clock, sink, gate, nic = nic_of(engine)
        for _ in range(300):
            clock.at(rng.randrange(6_000_000), gate.take, PFC.frame(rng.choice((0, 1, 7, 40))))
        nic.step()
        clock.run()
        assert [int.from_bytes(frame[50:54], "big") for frame in sink.frames] == list(range(200))
        assert sink.times[-1] <= 200 * 20_000 + gate.pause.total


def test_an_engine_that_is_overdue_does_not_stop_time() -> None:
    """It could send now, but there is no room: it is asked again when there is."""
    engine = Blaster(A, many=100)
    engine.due = 0
    clock, sink, gate, nic = nic_of(engine)
    gate.take(PFC.frame(1000))
    nic.step()
    assert not clock.run(1000 * QUANTUM - 1, events=100)
    assert engine.psn == ROOM
    engine.due = None
    clock.run()
    assert len(sink.seen) == 100


# All together ---------------------------------------------------------------------------------------------------------


class Writer:
    """A capture in memory."""

    def __init__(self) -> None:
        self.frames: list[tuple[int, int, bytes, str | None]] = []

    def write(self, time_ns: int, data: bytes, *, interface: int = 0, comment: str | None = None) -> None:
        self.frames.append((time_ns, interface, data, comment))

    def write_many(self, times_ns: Sequence[int], frames: Sequence[bytes], *, interface: Sequence[int]) -> None:
        for time, frame, one in zip(times_ns, frames, interface, strict=True):
            self.write(time, frame, interface=one)


SENDERS = (A, B, C, D)
SINK = 0x0A000009
MTU, DELAY = 1500, MICROSECOND
SMALL = Pfc(xoff=20_000, xon=10_000)
MOST = 20_000 + 3 * 1514 + 60 + 100_000
"""Of a station: xoff, three frames, the pause frame, and 2 µs at 400 Gb/s."""


def chance(*name: str) -> random.Random:
    """Chance of a queue, or of the faults of a node."""
    return random.Random("/".join(name))


def incast(
    pfc: Pfc | None, capacity: int, many: int = 1000, *, size: int = 942, rate: int = RATE
) -> tuple[BuiltNetwork, Blaster, Writer]:
    """Four senders, each `many` packets as fast as it can, to one port."""
    clock, writer = Clock(), Writer()
    config = NetworkConfig(delay=DELAY, mtu=MTU, queue_capacity=capacity, pfc=pfc)
    engines = {address: Blaster(address, SINK, many, size) for address in SENDERS} | {SINK: Blaster(SINK)}
    stations = {
        f"{address:x}": NodeAttachment(
            address=address, rate=rate, engine=engine, framer=RoceFramer(address, 4, RoceConfig()),
            on_event=lambda _: None, tap=tap,
        )
        for tap, (address, engine) in enumerate(engines.items())
    }  # fmt: skip
    network = build(clock, config, stations, dscp=DSCP, chance=chance, writer=writer)
    for nic in network.nics.values():
        nic.step()
    clock.run()
    assert network.capture is not None
    network.capture.close()
    return network, engines[SINK], writer


def test_incast_without_pfc_drops() -> None:
    network, sink, writer = incast(None, 4 * MOST)
    assert network.switch is not None
    assert network.switch.dropped > 1000
    assert len(sink.got) + network.switch.dropped == 4000
    assert network.gates == network.ingresses == network.markers == {}
    assert not any(frame[12:14] == PAUSE[12:14] for _, _, frame, _ in writer.frames)


@pytest.mark.parametrize("size", [942, 1442, 100])
def test_incast_with_pfc_loses_nothing(size: int) -> None:
    """In queues that hold no byte more than they have to; frames in the order of each sender."""
    network, sink, writer = incast(SMALL, 4 * MOST, size=size)
    assert network.switch is not None
    assert (network.switch.dropped, network.switch.unknown) == (0, 0)
    for address in SENDERS:
        assert [psn for src, psn in sink.got if src == address] == list(range(1000))
        name = f"{address:x}"
        ingress, gate = network.ingresses[name], network.gates[name]
        assert ingress.pauses == gate.pause.pauses > 0
        assert ingress.bytes == 0
        assert 20_000 < ingress.peak <= MOST
        assert gate.pause.total > 0
        assert gate.pause.ignored == 0
    pauses = [(tap, frame) for _, tap, frame, _ in writer.frames if frame[12:14] == PAUSE[12:14]]
    assert len(pauses) == sum(i.pauses + i.resumes for i in network.ingresses.values())
    assert {tap for tap, _ in pauses} == {0, 1, 2, 3}
    assert {frame for _, frame in pauses} == {PAUSE, SMALL.frame(0)}
    assert all(comment is None for *_, comment in writer.frames)


def test_a_sender_alone_uses_what_it_may() -> None:
    """Into a port ten times slower: what waits comes close to the bound, so that the bound says something."""
    clock = Clock()
    config = NetworkConfig(delay=DELAY, mtu=MTU, queue_capacity=MOST, pfc=SMALL)
    engines = {A: Blaster(A, B, 2000, 1442), B: Blaster(B)}
    stations = {
        f"{address:x}": NodeAttachment(
            address=address, rate=RATE if address == A else RATE // 10, engine=engine,
            framer=RoceFramer(address, 4, RoceConfig()), on_event=lambda _: None,
        )
        for address, engine in engines.items()
    }  # fmt: skip
    network = build(clock, config, stations, dscp=DSCP, chance=chance)
    network.nics[f"{A:x}"].step()
    clock.run()
    assert network.switch is not None
    assert network.switch.dropped == 0
    assert len(engines[B].got) == 2000
    # A tenth of the 2 µs has drained by then.
    assert MOST - 3 * 1514 - 11_000 < network.ingresses[f"{A:x}"].peak <= MOST


def test_headroom_is_asked_for() -> None:
    assert SMALL.most(rate=RATE, delay=DELAY, mtu=MTU) == MOST
    with pytest.raises(
        LocalError, match=f"queue_capacity: {4 * MOST - 1} bytes leave no headroom for pfc; legal: {4 * MOST} bytes"
    ):
        incast(SMALL, 4 * MOST - 1)


def test_a_cable_without_switch_has_neither() -> None:
    config = NetworkConfig(delay=0, mtu=MTU, queue_capacity=9, red=Red(), pfc=PFC)
    stations = {
        name: NodeAttachment(
            address=address, rate=RATE, engine=Blaster(address), framer=RoceFramer(address, 4, RoceConfig()),
            on_event=lambda _: None,
        )
        for name, address in (("rank0", A), ("rank1", B))
    }  # fmt: skip
    network = build(Clock(), replace(config, topology="pair"), stations, dscp=DSCP, chance=chance)
    assert network.gates == network.ingresses == network.markers == {}


# Queue pairs over it --------------------------------------------------------------------------------------------------


def writes(pfc: Pfc | None, capacity: int, red: Red | None = None) -> tuple[BuiltNetwork, list[Side], Side, Writer]:
    """Four RC queue pairs, each of a sender of its own, write 128 KiB to one adapter, whose port is tapped."""
    clock, writer = Clock(), Writer()
    config = RoceConfig(path_mtu=1024, cnp=True)
    sink = Side(SINK, 0x20, QpType.RC, config, bytearray(131072), False)
    senders = [Side(a, 0x20 + n, QpType.RC, config, bytearray(b"x" * 131072), False) for n, a in enumerate(SENDERS)]
    for side in senders[1:]:
        sink.hca.create_qp(QpType.RC, sink.pd, number=side.number)
    for side in senders:
        for here, peer in ((side, sink), (sink, side)):
            for state in (QpState.INIT, QpState.RTR, QpState.RTS):
                known = defaults_of(QpType.RC, state, config) | {
                    "pkey_index": 0, "port": 1, "access_flags": ALL, "av": AddressVector(peer.hca.address),
                    "dest_qpn": side.number, "rq_psn": 7, "sq_psn": 7,
                }  # fmt: skip
                given = {name: known[name] for name in REQUIRED[QpType.RC][state]}
                here.hca.submit(ModifyQp(qp_num=side.number, state=state, attributes=given), 0)
    stations = {
        f"{side.hca.address:x}": NodeAttachment(
            address=side.hca.address, rate=RATE, engine=side.hca, framer=RoceFramer(side.hca.address, 4, config),
            on_event=side.events.append, tap=0 if side is sink else None,
        )
        for side in (*senders, sink)
    }  # fmt: skip
    network = build(
        clock,
        NetworkConfig(delay=DELAY, mtu=MTU, queue_capacity=capacity, pfc=pfc, red=red),
        stations,
        dscp=DSCP,
        chance=chance,
        writer=writer,
    )
    for side in senders:
        work = PostSend(
            qp_num=side.number, opcode=Opcode.RDMA_WRITE, sg_list=side.sge(0, 131072), remote_addr=BASE,
            rkey=sink.mr.rkey,
        )  # fmt: skip
        network.nics[f"{side.hca.address:x}"].submit(work)
    clock.run(SECOND)
    assert network.capture is not None
    network.capture.close()
    return network, senders, sink, writer


@pytest.mark.parametrize(("pfc", "capacity"), [(None, 50_000), (SMALL, 4 * MOST)], ids=["plain", "pfc"])
def test_queue_pairs_go_back_without_pfc_and_not_with_it(pfc: Pfc | None, capacity: int) -> None:
    network, senders, sink, _ = writes(pfc, capacity)
    assert network.switch is not None
    repeated = sum(nic.repeated for nic in network.nics.values())
    assert (network.switch.dropped > 0, repeated > 0) == (pfc is None, pfc is None)
    for side in senders:
        assert [event.status for event in side.events if isinstance(event, WorkCompletion)] == [Status.SUCCESS]
    assert sink.memory == bytearray(b"x" * 131072)


def test_marks_become_notifications() -> None:
    """CE comes to the receiver, and a CNP goes back to each sender: one, for all is over in less than 50 µs."""
    red = Red(kmin=5_000, kmax=20_000, pmax=0.01)
    network, _, _, writer = writes(None, 1 << 20, red)
    marked = {name: marker.marked for name, marker in network.markers.items()}
    frames = [frame for *_, frame, _ in writer.frames]
    assert marked.pop(f"{SINK:x}") == sum(frame[15] & 3 == 3 for frame in frames) > 100
    assert not any(marked.values())
    notified = [frame[:6] for frame in frames if levels_by(DSCP)[frame[KIND]] == Level.HIGH]
    assert sorted(notified) == [mac(address) for address in SENDERS]
    assert frames == [frame for *_, frame, _ in writes(None, 1 << 20, red)[3].frames]  # one seed, one trace


# Between switches -----------------------------------------------------------------------------------------------------


def fabric(pfc: Pfc | None, capacity: int) -> tuple[BuiltNetwork, Blaster, Writer]:
    """Four senders at two leaves, 1000 packets each, to one port at a third leaf, over one spine."""
    clock, writer = Clock(), Writer()
    layout = layout_of("leaf-spine", 6, {"hosts_per_leaf": 2, "spines": 1})
    config = NetworkConfig(
        topology="leaf-spine", layout=layout, delay=DELAY, mtu=MTU, queue_capacity=capacity, pfc=pfc,
        taps={"leaf1 > spine0": 6, "spine0 > leaf1": 6},
    )  # fmt: skip
    other = SINK + 1
    engines = {SINK: Blaster(SINK), other: Blaster(other)} | {one: Blaster(one, SINK, 1000, 942) for one in SENDERS}
    stations = {
        f"{address:x}": NodeAttachment(
            address=address, rate=RATE, engine=engine, framer=RoceFramer(address, 4, RoceConfig()),
            on_event=lambda _: None, tap=tap,
        )
        for tap, (address, engine) in enumerate(engines.items())
    }  # fmt: skip
    network = build(clock, config, stations, dscp=DSCP, chance=chance, writer=writer)
    for nic in network.nics.values():
        nic.step()
    clock.run()
    assert network.capture is not None
    network.capture.close()
    return network, engines[SINK], writer


def test_switches_pause_switches_and_nothing_is_lost() -> None:
    dropping, _, _ = fabric(None, 5 * MOST)
    assert dropping.drops > 1000
    network, sink, writer = fabric(SMALL, 5 * MOST)
    assert (network.drops, len(sink.got)) == (0, 4000)
    for address in SENDERS:
        assert [psn for src, psn in sink.got if src == address] == list(range(1000))
        assert network.gates[f"{address:x}"].pause.pauses > 0, "the pause comes through to the senders"
    for leaf in ("leaf1", "leaf2"):
        ingress = network.ingresses[f"{leaf} > spine0"]
        assert ingress.pauses > 0
        assert 20_000 < ingress.peak <= MOST
    assert network.ingresses["spine0 > leaf0"].pauses == 0, "a port that is as fast as the trunk has no queue"
    assert all(ingress.bytes == 0 for ingress in network.ingresses.values())
    trunk = [frame for _, tap, frame, _ in writer.frames if tap == 6]
    pauses = [frame for frame in trunk if frame[12:14] == PAUSE[12:14]]
    found = network.ingresses["leaf1 > spine0"]
    assert len(pauses) == found.pauses + found.resumes
    assert len(trunk) - len(pauses) == 2000


def test_the_switch_with_most_to_hold_says_how_much_headroom_is_asked_for() -> None:
    with pytest.raises(LocalError, match=f"leave no headroom for pfc; legal: {2 * MOST} bytes"):
        fabric(SMALL, 2 * MOST - 1)


def test_a_held_queue_sends_all_but_data() -> None:
    clock = Clock()
    sink, queue = port(clock)
    queue.hold()
    first, second = data(300, psn=1), data(300, psn=2)
    for frame in (first, cnp(), second):
        assert queue.put(frame)
    clock.run()
    assert (sink.frames, queue.length) == ([cnp()], 600)
    clock.at(clock.now + MICROSECOND, lambda _: queue.release())
    clock.run()
    assert (sink.frames, queue.length) == ([cnp(), first, second], 0)
