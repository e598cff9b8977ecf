# SPDX-License-Identifier: GPL-2.0-only
"""A receive queue matches messages with receives by two structures, `PostedReceives` and `HeldMessages`.

UE 1.0.1 §3.4.3.6; ses.md §2.7, §5.7, §11.3. Each resource index of a process has both structures in each space. In an
untagged queue a receive matches any match bits, but may require an initiator (directed receive).

Objects are compared by identity, and the fields by which they match must not change while they are stored. Initiator
(32 bits) and match bits (64 bits) are joined to one number of 96 bits, of which a receive compares some bits.
"""

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from typing import Generic, Protocol, TypeVar

from uetproto.errors import LocalError

ALL_BITS = (1 << 64) - 1
"""Value of `ignore` with which every tag matches."""
_INITIATOR = 0xFFFFFFFF << 64
_BOTH = _INITIATOR | ALL_BITS
_ASKED = (_BOTH, ALL_BITS, _INITIATOR, 0)
"""Sets of bits that receives without a partial mask compare: source and tag, tag, source, none."""
_FEW = 64
"""Number of removed receives whose positions are kept in any case."""


class ReceiveCriteria(Protocol):
    """A receive needs these fields for matching (ses.md §2.7)."""

    @property
    def tag(self) -> int | None:
        """Return the tag, or None for a receive of an untagged queue, which matches any match bits."""

    @property
    def ignore(self) -> int:
        """Return the bits of the tag that are not compared."""

    @property
    def source(self) -> int | None:
        """Return the initiator id that a directed receive requires, or None if the receive matches any initiator."""


class HeldEntry(Protocol):
    """A held or stopped message needs these fields for matching."""

    @property
    def match_bits(self) -> int: ...

    @property
    def initiator(self) -> int: ...


T = TypeVar("T")
ReceiveT = TypeVar("ReceiveT", bound=ReceiveCriteria)
HeldT = TypeVar("HeldT", bound=HeldEntry)


def matches(receive: ReceiveCriteria, match_bits: int, initiator: int) -> bool:
    """Return True when a message matches a receive (ses.md §2.7)."""
    tag, ignore = _tag(receive)
    return (match_bits | ignore) == (tag | ignore) and receive.source in (None, initiator)


class _Line(OrderedDict[int, T]):
    """A line holds the items with the same key, by identity, oldest first.

    In place of a line with one item the item itself is stored, which saves an object for each of very many receives.
    """

    __slots__ = ()


class PostedReceives(Generic[ReceiveT]):
    """This class holds the receives that wait for a message, in the order in which they were posted.

    A search takes one look-up for each distinct mask of compared bits among the posted receives. The search is linear
    only if each receive has its own mask. The other operations, except iteration, take constant time (`post` on
    average).
    """

    __slots__ = ("_length", "_lines", "_next", "_numbers")

    def __init__(self) -> None:
        self._lines: dict[int, dict[int, _Line[ReceiveT] | ReceiveT]] = {}
        """Lines by the bits of {initiator, match bits} that receives compare, then by the value of these bits."""
        self._numbers: dict[int, int] = {}
        """Position of each receive in posted order, by identity; entries of removed receives are deleted when they are
        more than half."""
        self._next = 0
        self._length = 0

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[ReceiveT]:
        """Iterate over a copy in posted order, so that receives may be removed meanwhile."""
        posted = (receive for lines in self._lines.values() for line in lines.values() for receive in _items(line))
        return iter(sorted(posted, key=lambda receive: self._numbers[id(receive)]))

    def post(self, receive: ReceiveT) -> None:
        """Append a receive. Raises `LocalError` when it is posted already, or a field is illegal."""
        compared, value = _wanted(receive)
        if not _enter(self._lines.setdefault(compared, {}), value, receive):
            raise LocalError(
                "receive", f"{receive!r} is not legal", "one that is not posted already", id="already-there"
            )
        self._numbers[id(receive)] = self._next
        self._next += 1
        self._length += 1
        if len(self._numbers) > 2 * self._length + _FEW:
            self._numbers = {id(receive): number for number, receive in enumerate(self)}
            self._next = self._length

    def find(self, match_bits: int, initiator: int) -> ReceiveT | None:
        """Return the oldest receive that matches, or None. The receive stays posted (ses.md §11.3 rule 2)."""
        return self._find(initiator << 64 | match_bits)[1]

    def take(self, match_bits: int, initiator: int) -> ReceiveT | None:
        """Remove and return the oldest receive that matches, or return None."""
        message = initiator << 64 | match_bits
        compared, receive = self._find(message)
        if receive is not None:
            self._leave(compared, message & compared, receive)
        return receive

    def remove(self, receive: ReceiveT) -> bool:
        """Remove a receive, and return False if the receive was not posted (ses.md §11.3 rule 7)."""
        return self._leave(*_wanted(receive), receive)

    def _find(self, message: int) -> tuple[int, ReceiveT | None]:
        """Return the oldest receive that matches, and which bits it compares."""
        found: ReceiveT | None = None
        found_by = 0
        for compared, lines in self._lines.items():
            line = lines.get(message & compared)
            if line is not None:
                oldest = next(iter(line.values())) if isinstance(line, _Line) else line
                if found is None or self._numbers[id(oldest)] < self._numbers[id(found)]:
                    found, found_by = oldest, compared
        return found_by, found

    def _leave(self, compared: int, value: int, receive: ReceiveT) -> bool:
        lines = self._lines.get(compared)
        if lines is None or not _leave(lines, value, receive):
            return False
        if not lines:
            del self._lines[compared]
        self._length -= 1
        return True


class HeldMessages(Generic[HeldT]):
    """This class holds the messages of a queue that are held or stopped, in arrival order (ses.md §11.3 rule 3).

    Each message is in four lists, which are selected by source and tag, tag only, source only, or nothing. A receive
    with `ignore` 0 or ALL_BITS takes the first message of one list, in constant time. A receive with another `ignore`
    is compared with the messages one by one, oldest first. If the receive is directed, only the messages of its source
    are compared. The other operations take constant time.
    """

    __slots__ = ("_length", "_lines")

    def __init__(self) -> None:
        self._lines: dict[int, dict[int, _Line[HeldT] | HeldT]] = {asked: {} for asked in _ASKED}
        """Lists of entries by mask, then by the value of the bits under the mask."""
        self._length = 0

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[HeldT]:
        """Iterate over a copy in arrival order, so that entries may be removed meanwhile."""
        return iter(list(_items(self._lines[0].get(0))))

    def hold(self, entry: HeldT) -> None:
        """Append an entry. Raises `LocalError` when it is held already."""
        message = entry.initiator << 64 | entry.match_bits
        for bits, lines in self._lines.items():
            if not _enter(lines, message & bits, entry):
                raise LocalError("entry", f"{entry!r} is not legal", "one that is not held already", id="already-there")
        self._length += 1

    def find(self, receive: ReceiveCriteria) -> HeldT | None:
        """Return the oldest entry that matches a receive, or None. The entry stays held."""
        compared, value = _wanted(receive)
        asked = compared if compared in _ASKED else compared & _INITIATOR
        for held in _items(self._lines[asked].get(value & asked)):
            if matches(receive, held.match_bits, held.initiator):
                return held
        return None

    def take(self, receive: ReceiveCriteria) -> HeldT | None:
        """Remove and return the oldest entry that matches a receive, or return None."""
        entry = self.find(receive)
        if entry is not None:
            self.remove(entry)
        return entry

    def remove(self, entry: HeldT) -> bool:
        """Remove an entry, for instance when it expires. Return False if the entry was not held."""
        message = entry.initiator << 64 | entry.match_bits
        for bits, lines in self._lines.items():
            if not _leave(lines, message & bits, entry):
                return False
        self._length -= 1
        return True


def _tag(receive: ReceiveCriteria) -> tuple[int, int]:
    return (0, ALL_BITS) if receive.tag is None else (receive.tag, receive.ignore)


def _wanted(receive: ReceiveCriteria) -> tuple[int, int]:
    """Return the bits of {initiator, match bits} that a receive compares, and their value."""
    tag, ignore = _tag(receive)
    source = receive.source
    sender = 0 if source is None else source
    if tag >> 64 or ignore >> 64 or sender >> 32:
        fields = (("tag", tag, 64), ("ignore", ignore, 64), ("source", sender, 32))
        name, wrong, bits = next(field for field in fields if field[1] >> field[2])
        raise LocalError(name, f"{wrong} is not legal", f"0 … 2^{bits} - 1", id="out-of-range")
    compared = ignore ^ (ALL_BITS if source is None else _BOTH)
    return compared, (sender << 64 | tag) & compared


def _enter(lines: dict[int, _Line[T] | T], key: int, item: T) -> bool:
    """Append an item to a line; return False when the line has it already."""
    line = lines.get(key)
    if line is None:
        lines[key] = item
        return True
    if not isinstance(line, _Line):
        line = lines[key] = _Line({id(line): line})
    size = len(line)
    line[id(item)] = item
    return len(line) > size


def _leave(lines: dict[int, _Line[T] | T], key: int, item: T) -> bool:
    """Remove an item from a line, and an empty line; return False when the line does not have it."""
    line = lines.get(key)
    if isinstance(line, _Line):
        if line.pop(id(item), None) is None:
            return False
        if line:
            return True
    elif line is not item:
        return False
    del lines[key]
    return True


def _items(line: _Line[T] | T | None) -> Iterable[T]:
    if line is None:
        return ()
    return line.values() if isinstance(line, _Line) else (line,)
