# SPDX-License-Identifier: GPL-2.0-only
"""This module defines the interface between collectives and a network: messages between ranks, and virtual time
(collectives.md §5).

No call blocks: the result of a call comes later in virtual time, by a callback. A `RankTransport` is the endpoint of
one rank. A `CollectiveNetwork` holds the endpoints of all ranks and the time that they share.
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
    """This error is raised for a message that could not be moved. Its text names the message and the reason."""


Done: TypeAlias = Callable[[TransportError | None], None]
"""Type of the function that is called once when a send or a receive ends. If the send or receive failed, the argument
is the failure. Otherwise it is None: the message was received, or the send buffer may be reused."""


class Purpose(IntEnum):
    """A purpose says to which kind of operation a message belongs."""

    POINT_TO_POINT = 0
    COLLECTIVE = 1


class Tag(NamedTuple):
    """A tag identifies a message: no two messages in progress between two ranks have the same tag."""

    purpose: Purpose
    group: int
    sequence: int
    """Running number of the operation in its group. A point-to-point message is numbered among the messages from its
    sender to its receiver."""
    step: int = 0
    piece: int = 0
    """Number of the message among the messages to the same peer in one step."""

    def pack(self) -> int:
        """Return the tag as a number of 64 bits, for completion data or match bits. If the value of a field is too
        long, only its lowest bits are kept.
        """
        purpose, group, sequence, step, piece = self
        return (
            (purpose & 1) << 63 | (group & 0x1FFF) << 50 | (sequence & 0x3FFFF) << 32 | (step & 0x3FFFF) << 14
            | piece & 0x3FFF
        )  # fmt: skip

    @classmethod
    def unpack(cls, value: int) -> "Tag":
        """Return the tag that `pack` has packed into the 64 bits of `value`."""
        numbers = []
        for width in reversed(WIDTHS):
            numbers.append(value & (1 << width) - 1)
            value >>= width
        purpose, *others = reversed(numbers)
        return cls(Purpose(purpose), *others)


WIDTHS = (1, 13, 18, 18, 14)
"""Width in bits of each field of a packed tag, from the most significant field on. The sum is 64."""


class RankTransport(Protocol):
    """This protocol describes the endpoint of a rank in a network.

    A send and a receive with the same tag match, in either order. The receive must have room for exactly the bytes
    sent; otherwise both fail and nothing is written. With `way="send"` over UET, only the receive is sure to fail, as
    only the target knows both lengths. Buffers are not copied: the transport owns them until `done` is called.
    """

    rank: int
    size: int

    @property
    def now(self) -> int:
        """Return virtual time in picoseconds."""

    def send(self, peer: int, tag: Tag, data: memoryview, done: Done) -> None:
        """Send `data` to the rank `peer`. `done` is called when the peer has received the bytes, or when the transport
        no longer needs the buffer.
        """

    def receive(self, peer: int, tag: Tag, into: memoryview, done: Done) -> None:
        """Receive bytes from the rank `peer` into the buffer `into`. `done` is called when all bytes have arrived."""

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
    """This class holds the timers of a network. Timers of the same instant fire in the order in which they were set."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Timer]] = []
        self._count = 0
        self.vital = 0
        """Number of vital timers. A vital timer fires even if nothing else is in progress; the other timers only limit
        waits."""

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
        """Return the instant of the next timer in picoseconds, or None if no timer is set."""
        heap = self._heap
        while heap:
            instant, _, timer = heap[0]
            if timer.action is not None:
                return instant
            heappop(heap)
        return None

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
    """This class matches the sends and receives of a network. A send and a receive match if their ranks and tags are
    equal; of several such halves, the oldest matches first.
    """

    def __init__(self) -> None:
        self._waiting: dict[tuple[int, int, Tag, bool], deque[MessageHalf]] = {}

    def match(
        self, source: int, target: int, tag: Tag, half: MessageHalf, *, sends: bool
    ) -> tuple[MessageHalf, MessageHalf] | None:
        """Return the send and the receive of a message if both are there. If the other half has yet to come, keep
        `half` and return None. `sends` says whether `half` is the send.
        """
        others = self._waiting.get((source, target, tag, not sends))
        if not others:
            self._waiting.setdefault((source, target, tag, sends), deque()).append(half)
            return None
        other = others.popleft()
        if not others:
            del self._waiting[source, target, tag, not sends]
        return (half, other) if sends else (other, half)


def deliver(source: int, target: int, send: MessageHalf, receive: MessageHalf, lost: str | None = None) -> bool:
    """Copy a message from the buffer of its send to the buffer of its receive, and end the send and the receive. Return
    whether both succeeded. `lost` is the reason if the message is lost; it is None if the message arrives.
    """
    if lost is None and send.buffer.nbytes != receive.buffer.nbytes:
        lost = f"{send.buffer.nbytes} bytes sent, {receive.buffer.nbytes} awaited"
    failure = None
    if lost is None:
        receive.buffer[:] = send.buffer
    else:
        failure = TransportError(f"message from rank {source} to rank {target}: {lost}", id="message-lost")
    send.done(failure)
    receive.done(failure)
    return failure is None


@dataclass(frozen=True, slots=True)
class NetworkCounts:
    """This record counts the frames that a network has dropped, trimmed and marked, and the packets that its endpoints
    have sent again.
    """

    drops: int = 0
    """Number of frames that no endpoint received, or that an endpoint dropped."""
    trims: int = 0
    """Number of frames that arrived trimmed."""
    marks: int = 0
    """Number of frames that a switch marked with CE."""
    retransmissions: Mapping[str, int] = field(default_factory=dict)
    """Number of packets that were sent again for each cause: RTO, inferred loss, or the code of a NACK or NAK."""


class CollectiveNetwork(ABC):
    """This class holds the endpoints of all ranks in a network, and the virtual time of the network."""

    size: int
    timers: CollectiveTimers
    offload: Offload | None = None
    """Collectives that the network itself carries out. `offload` is None if the network only moves messages."""

    @property
    def nodes(self) -> Sequence[Sequence[int]] | None:
        """Return the ranks of each node. Return None if the network does not know that some ranks share a node."""
        return None

    @property
    def counts(self) -> NetworkCounts:
        """Return what was lost and sent again so far. A network without packets loses nothing."""
        return NetworkCounts()

    @property
    @abstractmethod
    def now(self) -> int:
        """Return virtual time in picoseconds."""

    @abstractmethod
    def end(self, rank: int) -> RankTransport:
        """Return the endpoint of a rank."""

    @abstractmethod
    def run(self, ready: Callable[[], bool], limit: int | None) -> bool:
        """Run the network until `ready()` is true or the time is `limit`. Return True if nothing but timers was still
        in progress.
        """

    @abstractmethod
    def advance(self, instant: int) -> None:
        """Let virtual time pass until `instant`."""

    def close(self, drain: bool) -> None:  # noqa: B027 (most have nothing to close)
        """Close the network. If `drain` is true, messages in flight arrive first."""
