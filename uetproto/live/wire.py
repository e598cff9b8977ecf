# SPDX-License-Identifier: GPL-2.0-only
"""This module has a switch with two ports for two devices of others: it forwards, delays, drops, marks and trims their
frames, as the switches of the emulator do.

Faults meet a frame where it arrives; then it waits in the output queue of the other port, which a rate empties. Frames
pass unchanged otherwise, and nobody needs an address.
"""

import errno
import random
import select
import socket
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from uetproto.engine.contract import SECOND
from uetproto.errors import LocalError
from uetproto.framing.dscp import Dscp
from uetproto.framing.sizes import ETHERNET_SIZE
from uetproto.impair.faults import Faults, FaultyPort
from uetproto.impair.link import EmulatedLink
from uetproto.impair.queue import OutputQueue, levels_by
from uetproto.impair.red import Marker, Red
from uetproto.impair.timeline import Timeline
from uetproto.impair.trim import trim
from uetproto.live.driver import BATCH, LONGEST_SLEEP
from uetproto.live.path import reason_of
from uetproto.live.path_packet import PacketSocket
from uetproto.live.time import MonotonicClock, Timers
from uetproto.wire.capture.pcap import ETHERNET, open_writer
from uetproto.wire.headers.ethernet import IPV4, VLAN

_GONE = (errno.ENETDOWN, errno.ENXIO, errno.ENODEV)
_SHORTEST = ETHERNET_SIZE + IPV4.size
"""Number of bytes from which on a frame may be an IP packet. Shorter ones pass at once, as nothing can be read of
them."""
_LONGEST = 1 << 20
"""Number of bytes that no frame exceeds; the MTU of an interface limits what is sent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WireConfig:
    """This record has what a wire does to frames, in each direction. Raises `LocalError` for values that do not go
    together."""

    rate: int | None = None
    """Bits a second at which a port sends. None: no frame waits, so that none is marked, trimmed or dropped."""
    delay: int = 0
    """Picoseconds that each frame is under way."""
    queue: int = 1 << 20
    """Number of bytes that wait at each level of a port (`impair.queue.Level`); more find no room."""
    red: Red | None = None
    """How packets are marked that wait. None: they are not."""
    trim: bool = False
    """Whether data packets of UET that find no room are trimmed, and not dropped."""
    faults: Faults | None = None
    dscp: Dscp = field(default_factory=Dscp)
    """DSCPs by which levels, and packets that may be trimmed, are told."""
    receive_buffer: int = 4 << 20
    """Number of bytes that the kernel is asked to keep of arrived frames."""

    def __post_init__(self) -> None:
        if self.rate is None and (self.red is not None or self.trim):
            name = "trim" if self.trim else "red"
            raise LocalError(
                name, "does nothing without a rate: no frame waits", "a rate, such as 1 Gb/s", id="no-effect"
            )


class WireWay:
    """A way is one direction of a wire, from one port to the other."""

    def __init__(
        self, name: str, config: WireConfig, timers: Timeline, rng: random.Random, out: PacketSocket,
        record: Callable[[bytes, int], None],
    ) -> None:  # fmt: skip
        """`out` is the port at which frames leave. `record` gets each frame as it leaves, and the time."""
        self.name = name
        self.frames = self.bytes = self.forwarded = self.dropped = self.trimmed = self.too_long = 0
        """Numbers: of frames and bytes that arrived, of frames that left, of frames that found no room in the queue, of
        frames that were trimmed, and of frames that are longer than the MTU of the other port."""
        self.refused: Counter[str] = Counter()
        """Number of frames that the kernel refused, by its words for the reason."""
        self._timers, self._config, self._out, self._record = timers, config, out, record
        self._limit = out.device.mtu + ETHERNET_SIZE
        self._marker = None if config.red is None else Marker(config.red, random.Random(rng.getrandbits(64)))
        self._queue: OutputQueue | None = None
        if config.rate is not None:
            link = EmulatedLink(timers, _Leaving(self._send), rate=config.rate, delay=config.delay, mtu=_LONGEST)
            self._queue = OutputQueue(
                timers, link, capacity=config.queue, levels=levels_by(config.dscp), marker=self._marker
            )
        self._port = FaultyPort(
            timers, _Leaving(self._forward), config.faults or Faults(), random.Random(rng.getrandbits(64)), config.dscp
        )  # fmt: skip

    def take(self, frame: bytes) -> None:
        """Let a frame pass that has arrived."""
        self.frames += 1
        self.bytes += len(frame)
        if len(frame) < _SHORTEST:
            self._send(frame)
        else:
            self._port.take(frame)

    def _forward(self, frame: bytes) -> None:
        """Put a frame into the queue of the other port, trim it, or drop it."""
        queue = self._queue
        if queue is None:
            if self._config.delay:
                self._timers.at(self._timers.now + self._config.delay, self._send, frame)
            else:
                self._send(frame)
        elif not queue.put(frame):
            short = trim(frame, self._config.dscp, last_hop=True) if self._config.trim else None
            if short is not None and queue.put(short):
                self.trimmed += 1
            else:
                self.dropped += 1

    def _send(self, frame: bytes) -> None:
        """Send a frame. Raises `LocalError` if the interface is gone."""
        tag = VLAN.size if frame[12:14] == b"\x81\x00" else 0
        if len(frame) - tag > self._limit:
            self.too_long += 1
            return
        try:
            self._out.send(frame)
        except OSError as error:
            if error.errno in _GONE:
                raise gone(self._out) from None
            self.refused[reason_of(error)] += 1
        else:
            self.forwarded += 1
            self._record(frame, self._timers.now)

    @property
    def summary(self) -> dict[str, Any]:
        """Return the counts by their names."""
        return {
            "frames": self.frames, "bytes": self.bytes, "forwarded": self.forwarded, "dropped": self.dropped,
            "trimmed": self.trimmed, "marked": 0 if self._marker is None else self._marker.marked,
            "faults": dict(self._port.done), "too_long": self.too_long, "refused": dict(self.refused),
            "peak": 0 if self._queue is None else self._queue.peak,
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Leaving:
    """This class is a `impair.link.FrameReceiver` of a function."""

    take: Callable[[bytes], None]


def gone(port: PacketSocket) -> LocalError:
    """Return the error for an interface that went down or was deleted."""
    return LocalError(
        "interface", f"{port.device.name} is gone or down", "an interface that stays", id="interface-down"
    )


class Wire:
    """A wire joins two network interfaces, for whose frames it needs CAP_NET_RAW."""

    def __init__(
        self, names: Sequence[str], config: WireConfig, *, seed: int | None = None, capture: str | None = None
    ) -> None:
        """Open both interfaces.

        `capture` is the name of a file for the frames that arrive and leave at both, each an interface of it. Raises
        `LocalError` for an interface that is not to be had or not up, without privileges, or for a file that cannot be
        written.
        """
        if len(set(names)) != 2:
            raise LocalError(
                "interface", f"{' and '.join(names)} are not two", "the names of two network interfaces",
                id="interface-not-found"
            )  # fmt: skip
        self.clock = MonotonicClock()
        self.timers = Timers(self.clock)
        self.notes: list[str] = []
        self._ports: list[PacketSocket] = []
        self._writer = None
        rng = random.Random(random.SystemRandom().getrandbits(64) if seed is None else seed)
        try:
            for name in names:
                port = PacketSocket(name, buffer=config.receive_buffer, promiscuous=True)
                self._ports.append(port)
                if not port.device.up:
                    raise LocalError("interface", f"{name} is down", f"ip link set {name} up", id="interface-down")
            if capture is not None:
                self._writer = open_writer(
                    capture, comment=f"uetproto wire, {' and '.join(names)}", interfaces=[(n, ETHERNET) for n in names]
                )
        except BaseException:
            self.close()
            raise
        self.ways = tuple(
            WireWay(
                f"{names[at]} > {names[1 - at]}", config, self.timers, rng, self._ports[1 - at], self._recorded(1 - at)
            )
            for at in range(2)
        )
        mtus = {port.device.name: port.device.mtu for port in self._ports}
        if len(set(mtus.values())) > 1:
            told = ", ".join(f"{name} {mtu}" for name, mtu in mtus.items())
            self.notes.append(f"the MTUs differ ({told}): longer frames are dropped")

    def _recorded(self, interface: int) -> Callable[[bytes, int], None]:
        """Return a function that writes a frame at one of the interfaces to the capture."""

        def record(frame: bytes, now: int) -> None:
            if self._writer is not None:
                self._writer.write(self.clock.of_day(now), frame, interface=interface)

        return record

    def turn(self, until: int) -> None:
        """Forward what has arrived and what is due, or sleep until there is something, or until the time `until`.

        The sleep ends after `LONGEST_SLEEP` at the latest. Raises `LocalError` if an interface is gone.
        """
        timers = self.timers
        ran = timers.run(self.clock.now)
        arrived = False
        for number, port in enumerate(self._ports):
            try:
                frames = port.receive(BATCH)
            except OSError as error:
                if error.errno in _GONE:
                    raise gone(port) from None
                raise
            take, record = self.ways[number].take, self._recorded(number)
            for one in frames:
                arrived = True
                record(one.data, self.clock.now)
                take(one.data)
        if not arrived and not ran:
            now = self.clock.now
            until = min(until, now + LONGEST_SLEEP, timers.next)
            select.select(self._ports, (), (), max(until - now, 0) / SECOND)
            self._check()

    def _check(self) -> None:
        """Raise `LocalError` if an interface is gone, which a socket does not always say."""
        for port in self._ports:
            try:
                there = socket.if_nametoindex(port.device.name) == port.device.number
            except OSError:
                there = False
            if not there:
                raise gone(port)

    def summary(self) -> dict[str, Any]:
        """Return what was done, for each direction, and how many frames the kernel had no room for at each port."""
        return {
            "ways": {way.name: way.summary for way in self.ways},
            "not_kept": {port.device.name: port.count_dropped() for port in self._ports},
            "superframes": sum(port.joined for port in self._ports),
        }  # fmt: skip

    def close(self) -> None:
        """Close both interfaces, and complete the capture."""
        for port in self._ports:
            port.close()
        if self._writer is not None:
            self._writer.close()
