"""A link: it takes time to put a frame on it, and time for the frame to reach the other end."""

from collections.abc import Callable
from math import gcd
from typing import Protocol

from uetproto.emulator.network.clock import Clock
from uetproto.engine.contract import SECOND
from uetproto.errors import LocalError
from uetproto.framing.sizes import ETHERNET_SIZE


class Port(Protocol):
    """What takes a frame: a NIC, a switch, a fault, a tap."""

    def take(self, frame: bytes) -> None:
        """A frame has arrived, now."""


class Sender(Protocol):
    """What a frame is put on: a link, or a tap in front of one."""

    @property
    def busy_until(self) -> int: ...

    def send(self, frame: bytes) -> int:
        """Put the frame on the link as soon as it is free; when that is, its first bit leaves."""


class Link:
    """One direction: `rate` in bits a second, `delay` in picoseconds, `mtu` in bytes of an IP packet.

    First in, first out, and arithmetic instead of events: when a frame is handed over, the instant of its arrival is
    known. A frame counts with the bytes that are in a capture. The other end is called when the last bit has arrived.
    """

    __slots__ = (
        "_bits", "_clock", "_limit", "_picoseconds", "_size_of", "_take", "busy_until", "bytes", "delay", "frames",
        "mtu",
    )  # fmt: skip

    def __init__(
        self, clock: Clock, sink: Port, *, rate: int, delay: int, mtu: int, size_of: Callable[[bytes], int] = len
    ) -> None:
        if rate <= 0 or delay < 0 or mtu <= 0:
            raise LocalError("link", f"rate {rate}, delay {delay}, mtu {mtu}", "rate > 0, delay ≥ 0, mtu > 0")
        self._clock = clock
        self._take: Callable[[bytes], None] = sink.take
        common = gcd(8 * SECOND, rate)
        self._picoseconds, self._bits = 8 * SECOND // common, rate // common  # for a byte: a fraction, in lowest terms
        self._limit = mtu + ETHERNET_SIZE
        self._size_of = size_of
        self.delay = delay
        self.mtu = mtu
        self.busy_until = 0
        """When the last bit of all that was handed over has left."""
        self.frames = 0
        self.bytes = 0

    def duration(self, size: int) -> int:
        """Picoseconds that a frame of `size` bytes occupies the link, rounded up."""
        return -(-size * self._picoseconds // self._bits)

    def watch(self, look: Callable[[bytes], None]) -> None:
        """`look` sees every frame that arrives from now on, before the other end does."""
        take = self._take

        def both(frame: bytes) -> None:
            look(frame)
            take(frame)

        self._take = both

    def cut(self) -> None:
        """Frames leave as before, but what is sent from now on does not arrive."""
        self._take = _lose

    def send(self, frame: bytes) -> int:
        """Raises `LocalError` for a packet above the MTU: who sends has to know it."""
        size = self._size_of(frame)
        if size > self._limit:
            raise LocalError("link", f"a packet of {size - ETHERNET_SIZE} bytes; the MTU is {self.mtu}")
        clock = self._clock
        start = clock.now if clock.now > self.busy_until else self.busy_until
        self.busy_until = end = start - (-size * self._picoseconds // self._bits)
        self.frames += 1
        self.bytes += size
        clock.at(end + self.delay, self._take, frame)
        return start


def _lose(frame: bytes) -> None:
    """The other end of a link that was cut."""
