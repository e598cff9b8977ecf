"""This module defines what a collective needs from a network: messages between ranks, and time (collectives.md §5).

Results come by callbacks in virtual time; nothing blocks. A `RankTransport` is the end of one rank; a
`CollectiveNetwork` holds all ends and the time that they share.
"""

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from heapq import heappop, heappush
from typing import NamedTuple, Protocol, TypeAlias

from uetproto.collectives.offload import Offload
from uetproto.errors import UetError

SECOND = 10**12
"""A second in picoseconds."""


class TransportError(UetError, RuntimeError):
    """Raised for a message that could not be moved; it names the message and the reason."""


Done: TypeAlias = Callable[[TransportError | None], None]
"""Function that is called once: with None when the message is received or the send buffer may be reused, and with the
failure if the operation fails."""


class Purpose(IntEnum):
    """Kind of operation that a message belongs to."""

    POINT_TO_POINT = 0
    COLLECTIVE = 1


class Tag(NamedTuple):
    """A tag identifies a message: no two messages in progress between two ranks have the same tag."""

    purpose: Purpose
    group: int
    sequence: int
    """Running number of the operation in its group; that of a point-to-point message counts those of its two ranks."""
    step: int = 0
    piece: int = 0
    """Number of the message among those to the same peer in a step."""

    def pack(self) -> int:
        """Return the tag in 64 bits, for completion data or match bits; numbers that are too long wrap."""
        purpose, group, sequence, step, piece = self
        return (
            (purpose & 1) << 63 | (group & 0x1FFF) << 50 | (sequence & 0x3FFFF) << 32 | (step & 0x3FFFF) << 14
            | piece & 0x3FFF
        )  # fmt: skip

    @classmethod
    def unpack(cls, value: int) -> "Tag":
        """Return the tag that 64 bits hold."""
        numbers = []
        for width in reversed(WIDTHS):
            numbers.append(value & (1 << width) - 1)
            value >>= width
        purpose, *others = reversed(numbers)
        return cls(Purpose(purpose), *others)


WIDTHS = (1, 13, 18, 18, 14)
"""Bits of each field of a packed tag, from the most significant: 64 in all."""


class RankTransport(Protocol):
    """This protocol describes the end of a rank in a network.

    A send and a receive with the same tag match, in either order. The receive has room for exactly the bytes sent;
    otherwise it fails. The send then fails too and nothing is written, except with `way="send"` over UET, where only
    the target knows both lengths. Buffers are not copied: the transport owns them until `done` is called.
    """

    rank: int
    size: int

    @property
    def now(self) -> int:
        """Return virtual time in picoseconds."""

    def send(self, peer: int, tag: Tag, data: memoryview, done: Done) -> None:
        """Send bytes; `done` is called when the peer has received them, or when the transport no longer needs the
        buffer.
        """

    def receive(self, peer: int, tag: Tag, into: memoryview, done: Done) -> None:
        """Receive bytes; `done` is called when all bytes have arrived."""

    def after(self, delay: int, action: Callable[[], None]) -> None:
        """Call `action` after `delay` picoseconds of local work, such as a reduction."""


class Timer:
    """A timer is an action at an instant; the timer can be cancelled."""

    __slots__ = ("action", "instant", "vital")

    def __init__(self, instant: int, action: Callable[[], object], vital: bool) -> None:
        self.instant = instant
        self.action: Callable[[], object] | None = action
        self.vital = vital


class CollectiveTimers:
    """This class has the timers of a network; timers of the same instant fire in the order in which they were set."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Timer]] = []
        self._count = 0
        self.vital = 0
        """Number of vital timers, which fire even if nothing else is in progress; the others only limit waits."""

    def at(self, instant: int, action: Callable[[], object], vital: bool = True) -> Timer:
        """Set a timer and return it. A `vital` timer fires even if nothing else is in progress."""
        timer = Timer(instant, action, vital)
        self._count += 1
        self.vital += vital
        heappush(self._heap, (instant, self._count, timer))
        return timer

    def cancel(self, timer: Timer) -> None:
        """Cancel a timer that has not fired."""
        if timer.action is not None:
            timer.action = None
            self.vital -= timer.vital

    @property
    def next(self) -> int | None:
        """Return the instant of the next timer, or None."""
        while self._heap and self._heap[0][2].action is None:
            heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def fire(self, now: int) -> bool:
        """Run the first action that is due; return False if no action is due."""
        instant = self.next
        if instant is None or instant > now:
            return False
        timer = heappop(self._heap)[2]
        action = timer.action
        assert action is not None
        self.cancel(timer)
        action()
        return True


class MessageHalf(NamedTuple):
    """A message half is a send or a receive that waits for the other half of the message."""

    buffer: memoryview
    done: Done
    number: int = 0
    """Running number of this send or receive, in the order of calls. It is 0 on a network that does not need it."""


class HalfMatching:
    """This class matches the halves of messages: those with equal ranks and tag match, first in, first out."""

    def __init__(self) -> None:
        self._waiting: dict[tuple[int, int, Tag, bool], deque[MessageHalf]] = {}

    def match(
        self, source: int, target: int, tag: Tag, half: MessageHalf, *, sends: bool
    ) -> tuple[MessageHalf, MessageHalf] | None:
        """Return the send and the receive of a message, or None if the other half has yet to come."""
        others = self._waiting.get((source, target, tag, not sends))
        if not others:
            self._waiting.setdefault((source, target, tag, sends), deque()).append(half)
            return None
        other = others.popleft()
        if not others:
            del self._waiting[source, target, tag, not sends]
        return (half, other) if sends else (other, half)


def deliver(source: int, target: int, send: MessageHalf, receive: MessageHalf, lost: str | None = None) -> bool:
    """Copy a message and complete both halves; return whether they succeed. `lost`: reason why the message is lost."""
    if lost is None and send.buffer.nbytes != receive.buffer.nbytes:
        lost = f"{send.buffer.nbytes} bytes sent, {receive.buffer.nbytes} awaited"
    failure = None
    if lost is None:
        receive.buffer[:] = send.buffer
    else:
        failure = TransportError(f"message from rank {source} to rank {target}: {lost}")
    send.done(failure)
    receive.done(failure)
    return failure is None


@dataclass(frozen=True, slots=True)
class NetworkCounts:
    """This record tells what a network has lost, cut and marked, and what its endpoints have sent again."""

    drops: int = 0
    """Number of frames that no endpoint got, or that an endpoint dropped."""
    trims: int = 0
    """Number of frames that arrived trimmed."""
    marks: int = 0
    """Number of frames that a switch marked with CE."""
    retransmissions: Mapping[str, int] = field(default_factory=dict)
    """Number of packets that were sent again, by cause: RTO, inferred loss, a code of a NACK or NAK."""


class CollectiveNetwork(ABC):
    """This class holds all ends of a network, and its time."""

    size: int
    timers: CollectiveTimers
    offload: Offload | None = None
    """Collectives that the network itself carries out; None: the network only moves messages."""

    @property
    def nodes(self) -> Sequence[Sequence[int]] | None:
        """Return the ranks of each node, if the network knows that some ranks share one."""
        return None

    @property
    def counts(self) -> NetworkCounts:
        """Return what was lost and sent again so far; a network without packets loses nothing."""
        return NetworkCounts()

    @property
    @abstractmethod
    def now(self) -> int:
        """Return virtual time in picoseconds."""

    @abstractmethod
    def end(self, rank: int) -> RankTransport:
        """Return the end of a rank."""

    @abstractmethod
    def run(self, ready: Callable[[], bool], limit: int | None) -> bool:
        """Run the network until `ready()` is true or the time is `limit`; return True if only timers are still in
        progress.
        """

    @abstractmethod
    def advance(self, instant: int) -> None:
        """Let time pass until an instant."""

    def close(self, drain: bool) -> None:  # noqa: B027 (most have nothing to close)
        """Close the network. `drain`: messages in flight arrive first."""
