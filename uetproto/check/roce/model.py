"""What two queue pairs must do: work requests, the bytes that each of them may read and write, and what became of them.

Every work request has places of its own in memory, far from each other: whatever is written anywhere else is wrong.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum

from uetproto.check.roce.steps import SendSpec
from uetproto.engine.contract import Buffer
from uetproto.engine.roce.contract import Opcode, SendFlags, Status
from uetproto.engine.roce.segments import ATOMIC_SIZE, ATOMICS, KINDS

SLOT = 1 << 16
"""Bytes from a place to the next."""
REGION = SLOT << 20
"""Bytes of a region; nearly all of them are nobody's."""

_PATTERN = bytes((index * index * 31 + index * 7 + (index >> 8) * 13 & 0xFF) for index in range(2 * SLOT))


def content(node: int, wr_id: int, length: int) -> bytes:
    """The made-up bytes of a work request."""
    start = wr_id * 1009 + node * 499 & SLOT - 1
    return _PATTERN[start : start + length]


LOCAL, WINDOW, FOREIGN = "local memory", "window", "memory of others"
"""Regions: without remote rights, with all of them, of another protection domain."""


class PlaceUse(Enum):
    """What a place is there for."""

    SOURCE = "bytes that are sent, or read from far"
    TARGET = "WRITE: where they go"
    RECEIVE = "a receive"
    SINK = "READ and ATOMIC: where the answer goes"
    COUNTER = "what all ATOMICs act on"


@dataclass(slots=True)
class MemoryPlace:
    """Bytes of a work request."""

    use: PlaceUse
    data: bytearray
    owner: "PostedWork | PostedReceive | None" = None
    filled: int = 0
    """Bytes written, where they come in order."""

    @property
    def open(self) -> bool:
        """It may be written now, as far as its work request goes."""
        if self.use in (
            PlaceUse.TARGET,
            PlaceUse.COUNTER,
        ):  # the sender may have given up, its packets are on their way
            return True
        return self.use is not PlaceUse.SOURCE and self.owner is not None and not self.owner.done


@dataclass(slots=True)
class MemoryAccess:
    """The engine reads or writes memory."""

    where: str
    """Name of the region."""
    place: MemoryPlace | None
    """None: nobody's bytes."""
    at: int
    """In the place; without one, in the region."""
    length: int
    data: Buffer | None
    """None: it reads."""


class ObservedRegion:
    """A region as the engine sees it (`engine.memory.Memory`); `watch` is asked before each access."""

    __slots__ = ("_next", "length", "name", "places", "watch")

    def __init__(self, name: str, watch: Callable[[MemoryAccess], None]) -> None:
        self.name = name
        self.length = REGION
        self.places: dict[int, MemoryPlace] = {}
        self.watch = watch
        self._next = 0

    def add(self, place: MemoryPlace) -> int:
        """Its offset."""
        at = self._next * SLOT
        self.places[self._next] = place
        self._next += 1
        return at

    def forget(self) -> None:
        """Places of work that is over are nobody's any more. Their offsets are not used again."""
        kept = {
            n: p for n, p in self.places.items() if p.use is PlaceUse.COUNTER or (p.use is PlaceUse.RECEIVE and p.open)
        }
        self.places = kept

    def _touch(self, at: int, length: int, data: Buffer | None) -> MemoryPlace | None:
        place = self.places.get(at // SLOT)
        inside = place is not None and 0 <= at % SLOT <= at % SLOT + length <= len(place.data)
        access = MemoryAccess(self.name, place if inside else None, at % SLOT if inside else at, length, data)
        self.watch(access)
        return access.place

    def read(self, at: int, length: int) -> Buffer:
        place = self._touch(at, length, None)
        return bytes(length) if place is None else bytes(place.data[at % SLOT : at % SLOT + length])

    def write(self, at: int, data: Buffer) -> None:
        place = self._touch(at, len(data), data)
        if place is not None:
            place.data[at % SLOT : at % SLOT + len(data)] = data
            place.filled = at % SLOT + len(data)


@dataclass(slots=True)
class PostedWork:
    """A send that was posted."""

    wr_id: int
    send: SendSpec
    length: int
    data: bytes
    """What it carries; of a READ, what it is to bring."""
    near: MemoryPlace | None = None
    """Its own bytes: a source or a sink; None: inline."""
    far: MemoryPlace | None = None
    """Those of the peer."""
    first: int = -1
    end: int = -1
    """PSNs [first, end), counted without wrap; −1: it has not begun."""
    done: bool = False
    executed: bool = False
    """SEND, WRITE_WITH_IMM: its receive is complete. ATOMIC: it was."""
    old: int = 0
    """ATOMIC: the value that it found."""
    got: bytes | None = None
    """SEND: what its receive held when it was complete."""

    @property
    def opcode(self) -> Opcode:
        return self.send.opcode

    @property
    def signaled(self) -> bool:
        return bool(self.send.flags & SendFlags.SIGNALED)

    @property
    def answered(self) -> bool:
        """READ or ATOMIC."""
        return KINDS[self.send.opcode].answered

    @property
    def receives(self) -> bool:
        return KINDS[self.send.opcode].receives

    @property
    def atomic(self) -> bool:
        return self.send.opcode in ATOMICS

    @property
    def ended(self) -> bool:
        """All its bytes are where they are to go, as far as one can tell from there."""
        if self.got is not None:
            return True
        place = self.near if self.answered else self.far
        return place is not None and place.filled == self.length

    def there(self) -> bytes:
        """What is where it was to go."""
        place = self.near if self.answered else self.far
        return self.got if self.got is not None else bytes(place.data) if place is not None else b""

    def after(self, old: int) -> int:
        """ATOMIC: what is in memory after it."""
        if self.send.opcode is Opcode.ATOMIC_FETCH_AND_ADD:
            return (old + self.send.add) % (1 << 8 * ATOMIC_SIZE)
        return self.send.add if old == self.send.compare else old


@dataclass(slots=True)
class PostedReceive:
    """A receive that was posted."""

    wr_id: int
    length: int
    place: MemoryPlace
    bad: bool
    """Too short for some message, or with a bad l_key."""
    done: bool = False


@dataclass(slots=True)
class QpShadow:
    """One end of a connection, seen from outside."""

    next: int
    """PSN of the next first transmission, counted without wrap."""
    start: int
    """The first of them."""
    works: list[PostedWork] = field(default_factory=list)
    """All sends since the connection was made."""
    sends: deque[PostedWork] = field(default_factory=deque)
    """Those without a completion; those that complete silently stay until another one completes."""
    receives: deque[PostedReceive] = field(default_factory=deque)
    turn: int = 0
    """No send before has still to begin."""
    begun: list[PostedWork] = field(default_factory=list)
    """As they appeared on the wire."""
    executed: int = 0
    """How many of `begun` the peer has executed, by its ePSN."""
    epsn: int = 0
    """The peer's, counted without wrap."""
    delivered: int = 0
    """How many of `begun` are past, searching for the message of a receive."""
    atomics: int = 0
    """Likewise, for the next ATOMIC."""
    writing: PostedWork | None = None
    """The ATOMIC that has read and may write now."""
    failed: dict[bool, bool] = field(default_factory=lambda: {False: False, True: False})
    """A send, a receive has ended with an error: from now on they are flushed."""
    errors: list[Status] = field(default_factory=list)
    """The first of each."""
    heard: int = 0
    """When something came, was posted or changed."""

    def begins(self) -> PostedWork | None:
        """The send whose first packet is next on the wire."""
        while self.turn < len(self.works):
            work = self.works[self.turn]
            if work.first < 0 and not work.done:
                return work
            self.turn += 1  # it has begun, or was flushed before
        return None
