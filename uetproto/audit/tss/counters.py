# SPDX-License-Identifier: GPL-2.0-only
"""This module stores, in bounded memory, which counters (TSCs) a sender used under a key."""

from bisect import bisect_right
from dataclasses import dataclass, field
from typing import NamedTuple

from uetproto.audit.reader.observed import ObservedPacket

RANGES = 4_096
"""Greatest number of ranges of consecutive counters that are kept for one sender and key."""
CONTENTS = 4_096
"""Greatest number of packets that are stored for one sender and key. Of each packet only the number, the checksum and
the source address are stored."""


class CounterUse(NamedTuple):
    """This record says which packet used a counter, and from which address it came."""

    number: int
    content: int | None
    """Checksum of the bytes of the packet. It is None if the bytes are not known."""
    src: int


@dataclass(slots=True, eq=False)
class UsedCounters:
    """This class stores which counters a sender used under one key. It keeps all counters as ranges, and for the
    newest ones also the packets that used them."""

    _starts: list[int] = field(default_factory=list)
    _ends: list[int] = field(default_factory=list)
    contents: dict[int, CounterUse] = field(default_factory=dict)
    floor: int = -1
    """Highest counter of the ranges that were dropped. It is no longer known which counters up to this one were used.
    The value is -1 if no range was dropped."""
    newest: int = -1
    seen_at: int = 0
    """Number of the last packet that used a counter."""

    def add(self, tsc: int) -> bool:
        """Add a counter, and return whether it is new. Return False if the counter was used before. Return False, too,
        if the counter is at most `floor`, because its use is no longer known."""
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
        """Store which packet used a counter, and drop the oldest such entry if there are more than `CONTENTS`."""
        self.contents[tsc] = CounterUse(seen.number, seen.content, seen.src)
        if len(self.contents) > CONTENTS:
            del self.contents[next(iter(self.contents))]

    @property
    def ranges(self) -> int:
        return len(self._starts)


@dataclass(slots=True, eq=False)
class UsedNonces:
    """This class stores which nonces one or more senders used under one key with one prefix. Each nonce is stored as a
    single number that combines epoch and counter."""

    first: int
    """Address of the sender that was first to use a nonce with this key and prefix."""
    last_ns: int = 0
    used: UsedCounters = field(default_factory=UsedCounters)
    is_shared: bool = False
    """Whether a sender other than `first` has used nonces with this key and prefix, too."""
