# SPDX-License-Identifier: GPL-2.0-only
"""This module has links. The rate of a link determines how long it takes to send a frame, and the delay determines how
long the frame is under way.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache
from math import gcd
from typing import Any, Protocol

from uetproto.engine.contract import SECOND
from uetproto.errors import LocalError
from uetproto.framing.sizes import ETHERNET_SIZE
from uetproto.impair.timeline import Timeline


class FrameReceiver(Protocol):
    """A frame receiver takes frames. NICs, switches, faulty ports and taps are frame receivers."""

    def take(self, frame: bytes) -> None:
        """Take a frame that arrives now."""


class FrameSender(Protocol):
    """A frame sender sends frames. It is a link, or a part in front of a link, such as a tap."""

    @property
    def busy_until(self) -> int: ...

    def send(self, frame: bytes) -> int:
        """Send the frame as soon as the link is free. Return the instant in picoseconds at which the frame's first bit
        leaves.
        """


class TrainSender(FrameSender, Protocol):
    """A train sender is a frame sender that also sends the frames of a train with one call."""

    def send_many(self, frames: Sequence[bytes]) -> list[int]:
        """Send frames of equal size, as `send` does one after the other. Return the instant of each."""


class _Durations(dict[int, int]):
    """This table maps the size of a frame to the picoseconds, rounded up, for which the frame occupies a link. It has
    the sizes that were sent, and raises `LocalError` for one that exceeds the MTU."""

    def __init__(self, rate: int, mtu: int) -> None:
        common = gcd(8 * SECOND, rate)
        self._picoseconds, self._bits = 8 * SECOND // common, rate // common  # per byte: a fraction in lowest terms
        self._mtu = mtu

    def of(self, size: int) -> int:
        return -(-size * self._picoseconds // self._bits)

    def __missing__(self, size: int) -> int:
        if size > self._mtu + ETHERNET_SIZE:
            raise LocalError(
                "link", f"a packet of {size - ETHERNET_SIZE} bytes; the MTU is {self._mtu}", id="mtu-too-small"
            )
        self[size] = duration = self.of(size)
        return duration


_durations = lru_cache(maxsize=256)(_Durations)
"""Function that returns the table for a rate and an MTU; equal links share it."""


class FrameKind:
    """A frame kind is what the frames of one kind on a link have in common, and how many of them were sent."""

    __slots__ = ("duration", "payload", "sent", "size")

    def __init__(self, size: int, duration: int, payload: int = 0) -> None:
        self.size = size
        """Number of bytes of a frame."""
        self.payload = payload
        """Number of bytes of its payload, or 0 if the link does not count it."""
        self.duration = duration
        """For how many picoseconds a frame occupies the link."""
        self.sent = 0


class EmulatedLink:
    """An emulated link is one direction of a cable.

    `rate` is in bit/s, `delay` in picoseconds, and `mtu` in bytes of an IP packet. Frames leave in the order of the
    calls of `send`. The sink is called when the last bit of a frame has arrived. A frame needs only one event, as this
    instant is known when the frame is sent. The size of a frame is its size in a capture, without preamble and FCS.
    """

    __slots__ = (
        "_clock", "_kind_of", "_kinds", "_size_of", "_table", "_take", "busy_until", "delay", "lost", "mtu",
    )  # fmt: skip

    def __init__(
        self,
        clock: Timeline,
        sink: FrameReceiver,
        *,
        rate: int,
        delay: int,
        mtu: int,
        size_of: Callable[[bytes], int] = len,
    ) -> None:
        if rate <= 0 or delay < 0 or mtu <= 0:
            raise LocalError(
                "link", f"rate {rate}, delay {delay}, mtu {mtu}", "rate > 0, delay ≥ 0, mtu > 0", id="out-of-range"
            )
        self._clock = clock
        self._take: Callable[[bytes], None] = sink.take
        self._table = _durations(rate, mtu)
        self._kind_of: Callable[[bytes], Any] = size_of
        """Function that returns the kind of a frame. Frames of a kind have the same size, which here is the kind."""
        self._kinds: dict[Any, FrameKind] = {}
        """Kinds of the frames that were sent."""
        self._size_of = size_of
        self.delay = delay
        self.mtu = mtu
        self.busy_until = 0
        """Instant in picoseconds at which the last bit of all frames so far has left."""
        self.lost = 0
        """Number of frames that did not arrive because the link was cut."""

    def duration(self, size: int) -> int:
        """Return for how many picoseconds, rounded up, a frame of `size` bytes occupies the link."""
        return self._table.of(size)

    def cut(self) -> None:
        """Lose all frames that are sent from now on. They occupy the link as before, but do not arrive."""
        self._take = self._lose

    def _lose(self, frame: bytes) -> None:
        self.lost += 1

    def send(self, frame: bytes) -> int:
        """Send a frame when the link is free. Return the instant in picoseconds at which the frame's first bit leaves.
        Raises `LocalError` for a frame that exceeds the MTU.
        """
        try:
            kind = self._kinds[self._kind_of(frame)]
        except KeyError:
            kind = self._new_kind(frame)
        kind.sent += 1
        clock = self._clock
        start = clock.now
        if start < self.busy_until:
            start = self.busy_until
        self.busy_until = end = start + kind.duration
        clock.at(end + self.delay, self._take, frame)
        return start

    def send_many(self, frames: Sequence[bytes]) -> list[int]:
        """Send frames of equal size when the link is free. Return the instant at which each frame's first bit leaves.
        Raises `LocalError` for frames that exceed the MTU.
        """
        try:
            kind = self._kinds[self._kind_of(frames[0])]
        except KeyError:
            kind = self._new_kind(frames[0])
        kind.sent += len(frames)
        clock, duration = self._clock, kind.duration
        start = self.busy_until
        if start < clock.now:
            start = clock.now
        self.busy_until = end = start + len(frames) * duration
        clock.at_each(start + duration + self.delay, duration, self._take, frames)
        return list(range(start, end, duration))

    def _new_kind(self, frame: bytes) -> FrameKind:
        """Return the kind of a frame, which is not in the table by what `_kind_of` returns."""
        size = self._size_of(frame)
        self._kinds[size] = kind = FrameKind(size, self._table[size])
        return kind

    @property
    def frames(self) -> int:
        """Return the number of frames that were sent."""
        return sum(kind.sent for kind in self._kinds.values())

    @property
    def bytes(self) -> int:
        """Return the number of their bytes."""
        return sum(kind.size * kind.sent for kind in self._kinds.values())
