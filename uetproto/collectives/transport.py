"""What a collective asks of a network: messages between ranks, and the time (collectives.md §5).

Everything is told by callbacks in virtual time and nothing blocks. A `RankTransport` is one rank's end; a `CollectiveNetwork` is all
ends and the time that they share.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from enum import IntEnum
from heapq import heappop, heappush
from typing import NamedTuple, Protocol, TypeAlias

from uetproto.collectives.offload import Offload
from uetproto.errors import UetError


class TransportError(UetError):
    """A message that could not be moved: says which, and why."""


Done: TypeAlias = Callable[[TransportError | None], None]
"""Told once: None when the message is there, or the buffer may be reused."""


class Purpose(IntEnum):
    """What a message belongs to."""

    POINT_TO_POINT = 0
    COLLECTIVE = 1


class Tag(NamedTuple):
    """Which message it is. Between two ranks no two that are under way have the same."""

    purpose: Purpose
    group: int
    sequence: int
    """Of the operation in its group; of point-to-point messages: between the two ranks."""
    step: int = 0
    piece: int = 0
    """Among the messages to the same peer in a step."""

    def pack(self) -> int:
        """64 bits, for completion data or match bits; numbers that are too long wrap."""
        value = 0
        for number, width in zip(self, WIDTHS, strict=True):
            value = value << width | number & (1 << width) - 1
        return value

    @classmethod
    def unpack(cls, value: int) -> "Tag":
        """The tag of 64 bits."""
        numbers = []
        for width in reversed(WIDTHS):
            numbers.append(value & (1 << width) - 1)
            value >>= width
        purpose, *others = reversed(numbers)
        return cls(Purpose(purpose), *others)


WIDTHS = (1, 13, 18, 18, 14)
"""Bits of each field of a packed tag, from the top: 64."""


class RankTransport(Protocol):
    """One rank's end of a network.

    A send and a receive with the same tag meet, whichever is first. The receive has room for exactly the bytes sent, or
    it fails. So does the send, and nothing is written, but where only the target knows both lengths (UET's way "send").
    Buffers are not copied: they are the transport's until `done` is called.
    """

    rank: int
    size: int

    @property
    def now(self) -> int:
        """Virtual time, picoseconds."""

    def send(self, peer: int, tag: Tag, data: memoryview, done: Done) -> None:
        """Sends bytes; done: the peer has them, or the transport needs them no more."""

    def receive(self, peer: int, tag: Tag, into: memoryview, done: Done) -> None:
        """Awaits bytes; done: they are all there."""

    def after(self, delay: int, action: Callable[[], None]) -> None:
        """Local time passes: a reduction, a hop within the node."""


class Timer:
    """An action at an instant, until it is cancelled."""

    __slots__ = ("action", "instant", "vital")

    def __init__(self, instant: int, action: Callable[[], None], vital: bool) -> None:
        self.instant = instant
        self.action: Callable[[], None] | None = action
        self.vital = vital


class CollectiveTimers:
    """What is to happen at which instant; of one instant in the order in which it was asked for."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Timer]] = []
        self._count = 0
        self.vital = 0
        """Number of timers that fire although nothing else is in progress. The others only limit waits."""

    def at(self, instant: int, action: Callable[[], None], vital: bool = True) -> Timer:
        """Does `action` at an instant."""
        timer = Timer(instant, action, vital)
        self._count += 1
        self.vital += vital
        heappush(self._heap, (instant, self._count, timer))
        return timer

    def cancel(self, timer: Timer) -> None:
        """It never fires, if it has not yet."""
        if timer.action is not None:
            timer.action = None
            self.vital -= timer.vital

    @property
    def next(self) -> int | None:
        """The instant of the next one."""
        while self._heap and self._heap[0][2].action is None:
            heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def fire(self, now: int) -> bool:
        """Does the first action that is due; False: none is."""
        instant = self.next
        if instant is None or instant > now:
            return False
        timer = heappop(self._heap)[2]
        action = timer.action
        assert action is not None
        self.cancel(timer)
        action()
        return True


class CollectiveNetwork(ABC):
    """All ends, and the time."""

    size: int
    timers: CollectiveTimers
    offload: Offload | None = None
    """Collectives that it does by itself; None: it only moves messages."""

    @property
    def nodes(self) -> Sequence[Sequence[int]] | None:
        """The ranks of each node, where it knows that some share one."""
        return None

    @property
    @abstractmethod
    def now(self) -> int:
        """Virtual time, picoseconds."""

    @abstractmethod
    def end(self, rank: int) -> RankTransport:
        """The end of a rank."""

    @abstractmethod
    def run(self, ready: Callable[[], bool], limit: int | None) -> bool:
        """Runs what is under way until `ready()` or `limit`; True: nothing more happens by itself, timers apart."""

    @abstractmethod
    def advance(self, instant: int) -> None:
        """Lets time pass until an instant."""

    def close(self, drain: bool) -> None:  # noqa: B027 (most have nothing to close)
        """The end; `drain`: what is under way arrives first."""


__all__ = ["WIDTHS", "Done", "CollectiveNetwork", "Purpose", "Tag", "Timer", "CollectiveTimers", "RankTransport", "TransportError"]
