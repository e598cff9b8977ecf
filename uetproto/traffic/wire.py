# SPDX-License-Identifier: GPL-2.0-only
"""This module has a direct wire in virtual time, with the ports of endpoints and the tap that records frames.

Packets pass from endpoint to endpoint as objects, and their frames are built only for the capture. With security the
frames themselves pass, because the receiver has to open them. An idle port takes up to `RING` new packets from its
endpoint. Packets that arrive in a row are delivered together, as by a NIC that coalesces interrupts.
"""

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from math import gcd
from operator import itemgetter
from typing import Any

from uetproto.emulator.network.clock import Clock
from uetproto.emulator.network.tap import RecordWriter
from uetproto.engine.contract import MICROSECOND, NEVER, SECOND, Datagram, Engine, Rng, TrafficClass, Trim
from uetproto.framing.dscp import Dscp
from uetproto.framing.framer import Framer
from uetproto.impair.trim import MIN_TRIM_SIZE, trim
from uetproto.traffic.profile_file import TrafficProfile
from uetproto.wire.headers.ethernet import UDP, IpProtocol

RING = 32
"""Largest number of first transmissions that an endpoint sends in a row."""
REORDER_TIME = 10 * MICROSECOND
"""Additional delay of a reordered packet in picoseconds."""

_BATCH = 1024
"""Number of records sorted and written at once."""
_PS = 1000
"""Picoseconds in a nanosecond."""
_LEFT = MIN_TRIM_SIZE[IpProtocol.UDP] - UDP.size
"""Number of bytes from the PDS header on that trimming leaves; the number is the same with native IP."""
_DSCP = Dscp()

_WireRecord = tuple[int, int, bytes]
"""Time in picoseconds, order of entry, frame."""


Change = Callable[[list[bytes]], list[bytes]]
"""Function between the tap and the file. It takes frames in the order of time, and returns the frames to write."""


class TrafficTap:
    """This class writes frames to `writer` in the order of time.

    It ends after `packets` records, unless `packets` is None, or at the time `until` in picoseconds.
    """

    def __init__(
        self,
        clock: Clock,
        writer: RecordWriter,
        *,
        packets: int | None,
        until: int = NEVER,
        changes: Iterable[Change] = (),
    ) -> None:
        self._clock = clock
        self._writer = writer
        self._until = until
        self._changes = tuple(changes)
        self._number = 0
        self._left = packets
        self._pending: list[_WireRecord] = []
        self._wait = self._batch()
        self.packets = 0
        """Number of records written."""
        self.bytes = 0
        """Number of bytes of the frames that were written."""
        self.last = 0
        """Time of the last record, in picoseconds."""

    def _batch(self) -> int:
        return _BATCH if self._left is None else min(_BATCH, max(1, self._left))

    def add(self, records: Iterable[tuple[int, bytes]]) -> None:
        """Add records, which are pairs of time and frame. No time is before the present time of the clock."""
        pending, number = self._pending, self._number
        for at, frame in records:
            number += 1
            pending.append((at, number, frame))
        self._number = number
        if len(pending) >= self._wait:
            self.drain()

    def drain(self) -> None:
        """Write the records with times up to the present. A record that is added later cannot have an earlier time."""
        pending = self._pending
        pending.sort()
        end = bisect_right(pending, min(self._clock.now, self._until), key=itemgetter(0))
        if self._left is not None:
            end = min(end, self._left)
            self._left -= end
        ready, self._pending = pending[:end], pending[end:]
        if ready:
            frames = [frame for _, _, frame in ready]
            for change in self._changes:
                frames = change(frames)
            self._writer.write_many([at // _PS for at, _, _ in ready], frames)
            self.packets += end
            self.bytes += sum(map(len, frames))
            self.last = ready[-1][0]
        self._wait = len(self._pending) + self._batch()
        if not self._left and self._left is not None:
            self._clock.stop()


class DirectWire:
    """A direct wire connects the endpoints. It loses, trims and reorders packets by the shares of the profile."""

    def __init__(self, profile: TrafficProfile, clock: Clock, rng: Rng, tap: TrafficTap) -> None:
        self.clock = clock
        self.profile = profile
        self.rng = rng
        self.tap = tap
        self.ports: dict[int, TrafficPort] = {}
        """Ports, by the address of their endpoint."""
        self.groups: dict[int, list[TrafficPort]] = {}
        """Ports of the members of each multicast group, by the address of the group."""
        self.faulty = bool(profile.loss or profile.trim or profile.reorder)
        self.happened: Counter[str] = Counter()

    def attach(
        self, address: int, engine: Engine, framer: Framer, *, initiates: bool, on_event: Callable[[Any], None]
    ) -> "TrafficPort":
        """Connect an endpoint to the wire.

        The place of the tap decides whether the packets that the endpoint sends are recorded when they leave, or when
        they arrive. In the second case, lost packets are not recorded.
        """
        at_arrival = {"initiator": not initiates, "target": initiates, "wire": False}[self.profile.tap]
        kind = TrafficPort if self.profile.security is None else SealedTrafficPort
        port = self.ports[address] = kind(self, engine, framer, at_arrival, on_event)
        return port


class TrafficPort:
    """This class drives one endpoint: it delivers arrivals, polls for packets, runs timers and collects events."""

    sends_frames = False
    """Whether the port sends whole frames. The `header` of a packet then has the whole frame."""

    def __init__(
        self, wire: DirectWire, engine: Engine, framer: Framer, at_arrival: bool, on_event: Callable[[Any], None]
    ) -> None:
        self._wire = wire
        self._clock = wire.clock
        self._engine = engine
        self._framer = framer
        self._at_arrival = at_arrival
        self._on_event = on_event
        rate = wire.profile.rate
        common = gcd(8 * SECOND, rate)
        self._picoseconds, self._bits = 8 * SECOND // common, rate // common  # time of a byte, as a fraction
        self._busy_until = 0
        self._coming = False  # whether an event will take more packets when the port is idle
        self._timer = NEVER  # instant of the one timer event that is valid

    def submit(self, work: Any) -> None:
        """Pass work to the endpoint, and send the packets that it has ready."""
        self._engine.submit(work, self._clock.now)
        self.step()

    def take(self, packets: Sequence[Datagram]) -> None:
        """Deliver packets that have arrived in a row. The last of them arrives now."""
        now, receive = self._clock.now, self._engine.receive
        for packet in packets:
            receive(packet, now)
        self.step()

    def step(self) -> None:
        """Send the packets that the engine has ready, unless the port is busy, and handle the engine's events."""
        engine, clock = self._engine, self._clock
        now = clock.now
        if not self._coming:
            packets = engine.poll(now, RING)
            if packets:
                self._send(packets, now)
                self._coming = True
                clock.at(self._busy_until, self._more)
            else:
                deadline = engine.deadline()
                if deadline is not None and deadline < self._timer:
                    self._timer = deadline = max(deadline, now + 1)
                    clock.at(deadline, self._wake, deadline)
        for event in engine.events():
            self._on_event(event)

    def _more(self, _: object) -> None:
        self._coming = False
        self.step()

    def _wake(self, due: int) -> None:
        """Run the timers, unless an earlier event has replaced this one."""
        if due == self._timer:
            self._timer = NEVER
            self.step()

    def _send(self, packets: Sequence[Datagram], now: int) -> None:
        wire, frame_of = self._wire, self._framer.frame
        picoseconds, bits, late = self._picoseconds, self._bits, wire.profile.delay
        faulty, at_arrival, framed = wire.faulty, self._at_arrival, self.sends_frames
        records: list[tuple[int, bytes]] = []
        train: list[Datagram] = []
        dst, arrival = packets[0].dst, now
        for packet in packets:
            if packet.payload:
                packet.header = b"".join((packet.header, packet.payload))
                packet.payload = b""
            frame = frame_of(packet)
            if framed:
                if not frame:
                    continue
                packet.header = frame
            start, now = now, now - (-len(frame) * picoseconds // bits)
            if not at_arrival:
                records.append((start, frame))
            if faulty:
                if not self._disturb(packet, frame, now + late, records):
                    continue
            elif at_arrival:
                records.append((now + late, frame))
            if packet.dst != dst:
                self._hand_over(dst, train, arrival)
                dst, train = packet.dst, []
            train.append(packet)
            arrival = now + late
        self._hand_over(dst, train, arrival)
        self._busy_until = now
        wire.tap.add(records)

    def _hand_over(self, dst: int, train: list[Datagram], arrival: int) -> None:
        if not train:
            return
        port = self._wire.ports.get(dst)
        if port is not None:
            self._clock.at(arrival, port.take, train)
        else:
            for port in self._wire.groups.get(dst, ()):
                self._clock.at(arrival, port.take, train)

    def _disturb(self, packet: Datagram, frame: bytes, arrival: int, records: list[tuple[int, bytes]]) -> bool:
        """Lose, trim or delay a packet by chance; return False for one that is lost or delayed."""
        wire = self._wire
        profile, chance = wire.profile, wire.rng.random
        if profile.loss and chance() < profile.loss:
            wire.happened["lost"] += 1
            return False
        short = None
        if profile.trim and packet.traffic_class is not TrafficClass.CONTROL and chance() < profile.trim:
            short = trim(frame, _DSCP, last_hop=False)
        if short is not None:
            wire.happened["trimmed"] += 1
            frame = short
            packet.header = frame if self.sends_frames else bytes(packet.header[:_LEFT])
            packet.trimmed = Trim.TRIMMED
        after = profile.reorder and chance() < profile.reorder
        if after:
            wire.happened["reordered"] += 1
            arrival += REORDER_TIME
        if self._at_arrival:
            records.append((arrival, frame))
        if after:
            self._hand_over(packet.dst, [packet], arrival)
        return not after


class SealedTrafficPort(TrafficPort):
    """This port sends and receives sealed frames. It opens a frame when it arrives, with the keys that are then in use
    (tss.md §9).
    """

    sends_frames = True

    def take(self, packets: Sequence[Datagram]) -> None:
        opened = (self._framer.packet(bytes(packet.header)) for packet in packets)
        super().take([packet for packet in opened if packet is not None])
