"""This module stores the counters that were used under a key; their number is bounded."""

from bisect import bisect_right
from dataclasses import dataclass, field
from typing import NamedTuple

from uetproto.audit.reader.observed import ObservedPacket

RANGES = 4_096
"""Greatest number of ranges of counters that are kept for one sender and key."""
CONTENTS = 4_096
"""Greatest number of packets of one sender and key for which a checksum is kept."""


class CounterUse(NamedTuple):
    """This record says which packet used a counter."""

    number: int
    content: int | None
    """Checksum of the bytes of the packet; None: not known."""
    src: int


@dataclass(slots=True, eq=False)
class UsedCounters:
    """The counters that a sender used under one key are stored as ranges, and the newest ones with a checksum, too."""

    _starts: list[int] = field(default_factory=list)
    _ends: list[int] = field(default_factory=list)
    contents: dict[int, CounterUse] = field(default_factory=dict)
    floor: int = -1
    """Counter up to which all ranges were dropped; -1: none was dropped."""
    newest: int = -1
    seen_at: int = 0
    """Number of the last packet that used a counter."""

    def add(self, tsc: int) -> bool:
        """Add a counter, and return whether it is new; False: the counter was used, or is too old to know."""
        starts, ends = self._starts, self._ends
        if ends and tsc == ends[-1] + 1:
            ends[-1] = tsc
            return True
        if tsc <= self.floor:
            return False
        at = bisect_right(starts, tsc)
        if at and tsc <= ends[at - 1]:
            return False
        joins_left = at > 0 and ends[at - 1] == tsc - 1
        joins_right = at < len(starts) and starts[at] == tsc + 1
        if joins_left and joins_right:
            ends[at - 1] = ends.pop(at)
            starts.pop(at)
        elif joins_left:
            ends[at - 1] = tsc
        elif joins_right:
            starts[at] = tsc
        else:
            starts.insert(at, tsc)
            ends.insert(at, tsc)
            if len(starts) > RANGES:
                starts.pop(0)
                self.floor = ends.pop(0)
        return True

    def keep(self, tsc: int, seen: ObservedPacket) -> None:
        """Store which packet used a counter."""
        self.contents[tsc] = CounterUse(seen.number, seen.content, seen.src)
        if len(self.contents) > CONTENTS:
            del self.contents[next(iter(self.contents))]

    @property
    def ranges(self) -> int:
        return len(self._starts)


@dataclass(slots=True, eq=False)
class UsedNonces:
    """The nonces that were used under one key with one prefix, by epoch and counter; several senders may use the same
    nonces."""

    first: int
    """Address of the first sender."""
    last_ns: int = 0
    used: UsedCounters = field(default_factory=UsedCounters)
    is_shared: bool = False
    """Whether another sender has used nonces, too."""
