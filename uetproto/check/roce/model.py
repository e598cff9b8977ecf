# SPDX-License-Identifier: GPL-2.0-only
"""This module models what two queue pairs must do. It stores the work requests, the memory that each may access, and
how each ended.

Every work request has ranges of memory of its own, far from those of other requests, so that a write anywhere else is
detected.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum

from uetproto.engine.contract import Buffer
from uetproto.engine.roce.contract import Opcode, SendFlags, Status
from uetproto.engine.roce.segments import ATOMIC_SIZE, ATOMICS, KINDS
from uetproto.steps.roce import SendSpec

SLOT = 1 << 16
"""Number of bytes from the start of one `MemoryPlace` to the start of the next."""
REGION = SLOT << 20
"""Number of bytes of a memory region. Most of them belong to no `MemoryPlace`."""

_PATTERN = bytes((index * index * 31 + index * 7 + (index >> 8) * 13 & 0xFF) for index in range(2 * SLOT))


def content(node: int, wr_id: int, length: int) -> bytes:
    """Return `length` bytes that a work request sends or fetches, computed from its node and its wr_id."""
    start = wr_id * 1009 + node * 499 & SLOT - 1
    return _PATTERN[start : start + length]


LOCAL, WINDOW, FOREIGN = "local memory", "window", "memory of others"
"""Names of the memory regions of an endpoint. The first one grants no remote rights, the second one grants all, and
the third one belongs to another protection domain."""


class PlaceUse(Enum):
    """This enumeration says what a work request uses a range of memory for."""

    SOURCE = "bytes that are sent, or read from far"
    TARGET = "WRITE: where they go"
    RECEIVE = "a receive"
    SINK = "READ and ATOMIC: where the answer goes"
    COUNTER = "what all ATOMICs act on"


@dataclass(slots=True)
class MemoryPlace:
    """A memory place is a range of memory that one work request uses."""

    use: PlaceUse
    data: bytearray
    owner: "PostedWork | PostedReceive | None" = None
    filled: int = 0
    """Offset in the place after the last byte that was written. If bytes arrive in order, this is the number of bytes
    that were written so far."""

    @property
    def open(self) -> bool:
        """Return whether the state of the work request allows a write to the place."""
        if self.use in (PlaceUse.TARGET, PlaceUse.COUNTER):
            return True  # packets of the send may arrive after it has failed
        return self.use is not PlaceUse.SOURCE and self.owner is not None and not self.owner.done


@dataclass(slots=True)
class MemoryAccess:
    """This record describes one access of the engine to memory: a read or a write."""

    where: str
    place: MemoryPlace | None
    """Place that contains all accessed bytes. It is None if there is no such place."""
    at: int
    """Offset of the access in bytes from the start of the place, or of the region if `place` is None."""
    length: int
    data: Buffer | None
    """Bytes that are written. It is None if the engine reads."""


@dataclass(slots=True, eq=False)
class ObservedRegion:
    """An observed region is a memory region (`engine.memory.Memory`) that calls `watch` before each access of the
    engine."""

    name: str
    watch: Callable[[MemoryAccess], None]
    length: int = REGION
    places: dict[int, MemoryPlace] = field(default_factory=dict)
    _next: int = 0

    def add(self, place: MemoryPlace) -> int:
        """Add a place to the region, and return its offset in bytes."""
        at = self._next * SLOT
        self.places[self._next] = place
        self._next += 1
        return at

    def forget(self) -> None:
        """Remove all places except those of the counter and of open receives. The offsets of the removed places are not
        used again."""
        kept = (PlaceUse.COUNTER, PlaceUse.RECEIVE)
        self.places = {number: place for number, place in self.places.items() if place.use in kept and place.open}

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
    """This record has a posted work request of the send queue, and how far it was executed."""

    wr_id: int
    send: SendSpec
    length: int
    data: bytes
    """Bytes that the request carries, or that a READ must fetch."""
    near: MemoryPlace | None = None
    """Memory place at the sender: a source, or the sink of a READ or an ATOMIC. It is None if the data is inline."""
    far: MemoryPlace | None = None
    """Memory place at the peer. It is None for SENDs and ATOMICs."""
    first: int = -1
    end: int = -1
    """`first` is the first PSN of the request, and `end` is the PSN after its last one. Both are counted without wrap,
    and are −1 before the first packet is sent."""
    done: bool = False
    executed: bool = False
    """Whether the receive for a SEND or a WRITE with immediate is complete, or an ATOMIC was executed."""
    old: int = 0
    """Value that an ATOMIC found in memory."""
    got: bytes | None = None
    """Bytes of the message in the receive that a SEND used. It is None until that receive is complete."""

    @property
    def opcode(self) -> Opcode:
        return self.send.opcode

    @property
    def signaled(self) -> bool:
        return bool(self.send.flags & SendFlags.SIGNALED)

    @property
    def answered(self) -> bool:
        """Return whether the request is a READ or an ATOMIC."""
        return KINDS[self.send.opcode].answered

    @property
    def receives(self) -> bool:
        return KINDS[self.send.opcode].receives

    @property
    def atomic(self) -> bool:
        return self.send.opcode in ATOMICS

    @property
    def ended(self) -> bool:
        """Return whether all bytes of the request have arrived, as far as the memory of the model shows."""
        if self.got is not None:
            return True
        place = self.near if self.answered else self.far
        return place is not None and place.filled == self.length

    def there(self) -> bytes:
        """Return the bytes that have arrived at the destination of the request."""
        place = self.near if self.answered else self.far
        return self.got if self.got is not None else bytes(place.data) if place is not None else b""

    def after(self, old: int) -> int:
        """Return the value that an ATOMIC must write if it finds `old` in memory."""
        if self.send.opcode is Opcode.ATOMIC_FETCH_AND_ADD:
            return (old + self.send.add) % (1 << 8 * ATOMIC_SIZE)
        return self.send.add if old == self.send.compare else old


@dataclass(slots=True)
class PostedReceive:
    """This record has a posted receive, and whether it is complete."""

    wr_id: int
    length: int
    place: MemoryPlace
    bad: bool
    """Whether the receive is too short for the longest message, or has a bad l_key."""
    done: bool = False


@dataclass(slots=True)
class QpShadow:
    """This class has what one end of a connection did, as seen from outside the engine."""

    next: int
    """PSN of the next packet that is sent for the first time, counted without wrap."""
    start: int
    """PSN of the first request."""
    works: list[PostedWork] = field(default_factory=list)
    """Sends that were posted since the connection was made."""
    sends: deque[PostedWork] = field(default_factory=deque)
    """Sends without a completion. An unsignaled send stays here until a later one completes."""
    receives: deque[PostedReceive] = field(default_factory=deque)
    turn: int = 0
    """Index in `works`. All sends before this index have begun, or were flushed."""
    begun: list[PostedWork] = field(default_factory=list)
    """Sends in the order in which their first packets appeared on the wire."""
    executed: int = 0
    """Number of sends in `begun` that the peer has executed, as its ePSN shows."""
    epsn: int = 0
    """Expected PSN (ePSN) of the peer, counted without wrap."""
    delivered: int = 0
    """Index in `begun`. The search for the send that filled a receive continues here."""
    atomics: int = 0
    """Index in `begun`. The search for the next ATOMIC that is executed continues here."""
    writing: PostedWork | None = None
    """ATOMIC that was the last to read the counter, and that may therefore write the counter now. It is None if no
    ATOMIC may write the counter."""
    failed: dict[bool, bool] = field(default_factory=lambda: {False: False, True: False})
    """The value for the key False says whether a send has failed, and the value for the key True whether a receive has
    failed. After a failed send all later sends are flushed, and likewise for receives."""
    errors: list[Status] = field(default_factory=list)
    """Status of the first failed request of each queue."""
    heard: int = 0
    """Virtual time in picoseconds at which a packet last arrived, or work was last posted or changed."""

    def begins(self) -> PostedWork | None:
        """Return the send whose first packet must appear next on the wire, or None if all sends have begun."""
        while self.turn < len(self.works):
            work = self.works[self.turn]
            if work.first < 0 and not work.done:
                return work
            self.turn += 1  # it has begun, or was flushed before
        return None
