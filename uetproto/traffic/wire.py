# SPDX-License-Identifier: GPL-2.0-only
"""This module has a direct wire in virtual time, with the ports of endpoints and the tap that records frames.

Packets pass from endpoint to endpoint as objects, and their frames are built only for the capture. With security the
frames themselves pass, because the receiver has to open them. An idle port takes up to `RING` new packets from its
endpoint. Packets that arrive in a row are delivered together, as by a NIC that coalesces interrupts.
"""

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from ipaddress import ip_address
from itertools import count
from math import gcd
from operator import itemgetter
from typing import Any, cast

from uetproto.emulator.network.clock import Clock
from uetproto.emulator.network.tap import RecordWriter
from uetproto.engine.contract import MICROSECOND, NEVER, SECOND, Datagram, Engine, Rng, TrafficClass, Trim
from uetproto.engine.train import ArrivingRun, Train, TrainEngine
from uetproto.engine.train_splits import TrainTally
from uetproto.framing.dscp import Dscp
from uetproto.framing.framer import Framer, TrainFramer
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


TrainPart = tuple[Train, list[bytes], int, int]
"""Successive packets of a train: the train, its frames, the index of the first packet and that behind the last one."""
Row = list[Datagram | TrainPart]
"""Packets to one endpoint in the order in which they arrive."""
_LOST, _TRIMMED, _REORDERED = 1, 2, 4
"""What may happen to a packet on its way. A packet that is lost is not trimmed nor reordered."""

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
        self._number = count()
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

    def add(self, times: Sequence[int], frames: Sequence[bytes]) -> None:
        """Add records, each with its time and frame. No time is before the present time of the clock."""
        pending = self._pending
        pending += zip(times, self._number, frames, strict=False)
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

    def __init__(self, profile: TrafficProfile, clock: Clock, rng: Rng, tap: TrafficTap, trains: bool = False) -> None:
        """Make the wire. With `trains`, endpoints handle runs of equal packets together, if the profile allows it."""
        self.clock = clock
        self.trains = trains and profile.split is None
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
        if self.trains and isinstance(engine, TrainEngine):
            engine.use_trains()
        at_arrival = {"initiator": not initiates, "target": initiates, "wire": False}[self.profile.tap]
        kind = TrafficPort if self.profile.security is None else SealedTrafficPort
        port = self.ports[address] = kind(self, engine, framer, at_arrival, on_event)
        return port

    def tallies(self) -> dict[str, dict[str, Any]]:
        """Return for each endpoint, by address, how many trains it has sent, and why packets went by themselves
        (`TrainTally`)."""
        return {str(ip_address(address)): port.tally.as_dict() for address, port in self.ports.items()}


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
        self.tally = engine.tally if isinstance(engine, TrainEngine) else TrainTally()
        self._framer = framer
        self._trains = cast(TrainFramer, framer)
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

    def take(self, row: Iterable[Datagram | TrainPart]) -> None:
        """Deliver packets that have arrived in a row. The last of them arrives now."""
        now, receive = self._clock.now, self._engine.receive
        for packet in row:
            if isinstance(packet, Datagram):
                receive(packet, now)
            else:
                self._take_train(*packet, now)
        self.step()

    def _take_train(self, train: Train, frames: list[bytes], at: int, end: int, now: int) -> None:
        """Deliver packets of a train. Those that cause nothing are stored, and processed together."""
        engine: Any = self._engine
        run: ArrivingRun | None = engine.admit(train, at, False)
        if run is not None:
            run = self._trains.follow(run, train, at)
        while at < end:
            if run is not None:
                due = min(run.quiet_to, end)
                for index in range(at, due):
                    run.place(index)
                if due == end:
                    run.settle(end - 1, end - at, now)
                    return
                if run.answers:
                    run.place(due)
                    run.due(due, due + 1 - at, now)
                    at = due + 1
                    continue
                if due > at:
                    run.settle(due - 1, due - at, now)
                    at = due
            packet = self._opened(train, frames, at)
            if packet is not None:
                engine.receive(packet, now)
            at += 1
            if run is not None and not run.renew(at, False):
                run = None

    def _opened(self, train: Train, frames: list[bytes], index: int) -> Datagram | None:
        """Return a packet of a train by itself, as it arrives."""
        return train.packet(index)

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

    def _send(self, packets: Sequence[Datagram | Train], now: int) -> None:
        wire, frame_of = self._wire, self._framer.frame
        picoseconds, bits, late = self._picoseconds, self._bits, wire.profile.delay
        faulty, at_arrival, framed = wire.faulty, self._at_arrival, self.sends_frames
        times: list[int] = []
        frames: list[bytes] = []
        row: Row = []
        dst, arrival = packets[0].dst, now
        for packet in packets:
            if isinstance(packet, Train):
                now, parts, last = self._send_train(packet, now, times, frames)
                if parts:
                    if packet.dst != dst:
                        self._hand_over(dst, row, arrival)
                        dst, row = packet.dst, []
                    row += parts
                    arrival = last
                continue
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
                times.append(start)
                frames.append(frame)
            if faulty and (what := self._drawn(packet.traffic_class)):
                if not self._disturb(packet, frame, now + late, what, times, frames):
                    continue
            elif at_arrival:
                times.append(now + late)
                frames.append(frame)
            if packet.dst != dst:
                self._hand_over(dst, row, arrival)
                dst, row = packet.dst, []
            row.append(packet)
            arrival = now + late
        self._hand_over(dst, row, arrival)
        self._busy_until = now
        wire.tap.add(times, frames)

    def _send_train(
        self, train: Train, now: int, times: list[int], frames: list[bytes]
    ) -> tuple[int, Row, int]:  # fmt: skip
        """Send a train. Return when its last packet has left, the packets that join the row, and when the last of these
        arrives."""
        made, late = self._trains.frames(train), self._wire.profile.delay
        if not made:  # the framer refuses to send the packets
            return now, [], 0
        count, each = len(made), -(-len(made[0]) * self._picoseconds // self._bits)
        gone = now + each * count
        first = now + each + late if self._at_arrival else now
        recorded = range(first, first + each * count, each)
        if not self._wire.faulty:
            times += recorded
            frames += made
            return gone, [(train, made, 0, count)], gone + late
        parts: Row = []
        start = arrival = 0
        for index, frame in enumerate(made):
            what = self._drawn(TrafficClass.DATA)
            if not (what and self._at_arrival):
                times.append(recorded[index])
                frames.append(frame)
            if not what:
                continue
            at = now + each * index + late
            if index > start:
                parts.append((train, made, start, index))
                arrival = at
            start, alone = index + 1, train.packet(index)
            if self.sends_frames:
                alone.header = frame
            if self._disturb(alone, frame, at + each, what, times, frames):
                parts.append(alone)
                arrival = at + each
        if count > start:
            parts.append((train, made, start, count))
            arrival = gone + late
        return gone, parts, arrival

    def _hand_over(self, dst: int, row: Row, arrival: int) -> None:
        if not row:
            return
        port = self._wire.ports.get(dst)
        if port is not None:
            self._clock.at(arrival, port.take, row)
        else:
            for port in self._wire.groups.get(dst, ()):
                self._clock.at(arrival, port.take, row)

    def _drawn(self, kind: TrafficClass) -> int:
        """Draw by chance what happens to the next packet: a sum of `_LOST`, `_TRIMMED` and `_REORDERED`."""
        profile, chance = self._wire.profile, self._wire.rng.random
        if profile.loss and chance() < profile.loss:
            return _LOST
        what = 0
        if profile.trim and kind is not TrafficClass.CONTROL and chance() < profile.trim:
            what = _TRIMMED
        return what | _REORDERED if profile.reorder and chance() < profile.reorder else what

    def _disturb(
        self, packet: Datagram, frame: bytes, arrival: int, what: int, times: list[int], frames: list[bytes]
    ) -> bool:  # fmt: skip
        """Lose, trim or delay a packet, as was drawn; return False for one that is lost or delayed."""
        wire = self._wire
        if what == _LOST:
            wire.happened["lost"] += 1
            return False
        short = trim(frame, _DSCP, last_hop=False) if what & _TRIMMED else None
        if short is not None:
            wire.happened["trimmed"] += 1
            frame = short
            packet.header = frame if self.sends_frames else bytes(packet.header[:_LEFT])
            packet.trimmed = Trim.TRIMMED
        after = bool(what & _REORDERED)
        if after:
            wire.happened["reordered"] += 1
            arrival += REORDER_TIME
        if self._at_arrival:
            times.append(arrival)
            frames.append(frame)
        if after:
            self._hand_over(packet.dst, [packet], arrival)
        return not after


class SealedTrafficPort(TrafficPort):
    """This port sends and receives sealed frames. It opens a frame when it arrives, with the keys that are then in use
    (tss.md §9).
    """

    sends_frames = True

    def take(self, row: Iterable[Datagram | TrainPart]) -> None:
        packet_of = self._framer.packet
        opened = (packet_of(bytes(one.header)) if isinstance(one, Datagram) else one for one in row)
        super().take(one for one in opened if one is not None)

    def _opened(self, train: Train, frames: list[bytes], index: int) -> Datagram | None:
        return self._framer.packet(frames[index])
