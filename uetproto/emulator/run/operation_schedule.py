"""When each row of a scenario of operations begins, and what there is in memory: the same for every transport."""

from collections.abc import Callable, Sequence
from typing import Generic, Protocol, TypeVar

from uetproto.emulator.network.clock import Clock
from uetproto.emulator.scenario.operations import NONE, OperationRow
from uetproto.engine.contract import Rng

_DRAW = 1 << 20  # bytes drawn at once: a generator gives less than 2^31 bits


class ScheduledOperation(Protocol):
    """An operation on its way."""

    number: int
    row: OperationRow
    ended_at: int | None


_D = TypeVar("_D", bound=ScheduledOperation)


class OperationSchedule(Generic[_D]):
    """Rows begin in order, each when its time has come and those that it waits for have ended."""

    def __init__(self, clock: Clock, rows: Sequence[_D], begin: Callable[[_D], None], wake: Callable[[object], None]):
        """`begin` begins a row; `wake` is called when the time of one has come, and should call `advance`."""
        self._clock = clock
        self._rows = rows
        self._begin = begin
        self._wake = wake
        self._next = 0
        self._alarm = 0

    @property
    def all_begun(self) -> bool:
        return self._next == len(self._rows)

    @property
    def ready(self) -> bool:
        """The next row may begin, or its time is yet to come."""
        if self.all_begun:
            return False
        following = self._rows[self._next]
        return following.row.at > self._clock.now or self._may_begin(following)

    def advance(self) -> bool:
        """Begins all rows that may; True if there are no others."""
        while not self.all_begun:
            operation = self._rows[self._next]
            if operation.row.at > self._clock.now:
                if self._alarm < operation.row.at:
                    self._alarm = operation.row.at
                    self._clock.at(self._alarm, self._wake)
                return False
            if not self._may_begin(operation):
                return False
            self._next += 1
            self._begin(operation)
        return True

    def _may_begin(self, operation: _D) -> bool:
        before = {
            None: slice(0),
            "all": slice(operation.number),
            "previous": slice(max(0, operation.number - 1), operation.number),
        }
        return all(d.ended_at is not None or d.row.expect == NONE for d in self._rows[before[operation.row.after]])


def drawn(rng: Rng, length: int) -> bytes:
    """So many bytes by chance."""
    sizes = (min(_DRAW, length - start) for start in range(0, length, _DRAW))
    return b"".join(rng.getrandbits(8 * size).to_bytes(size, "little") for size in sizes)


class Area:
    """Memory as it is, and as it should be."""

    __slots__ = ("actual", "base", "expected")

    def __init__(self, content: bytes, base: int = 0) -> None:
        self.actual = bytearray(content)
        self.expected = bytearray(content)
        self.base = base

    def put(self, at: int, data: bytes) -> bool:
        """`data` should be there. False: it is not, yet."""
        self.expected[at : at + len(data)] = data
        return self.same(at, len(data))

    def same(self, at: int, length: int) -> bool:
        return self.actual[at : at + length] == self.expected[at : at + length]

    def may_put(self, at: int, data: bytes, mtu: int, waits: bool = False) -> bool:
        """The message failed: each of its packets is there, or has changed nothing (ses.md §12, roce.md §8).

        One alone has changed nothing, unless it `waits` for others after it is stored.
        """
        for start in range(0, len(data), mtu) if len(data) > mtu or waits else ():
            piece = data[start : start + mtu]
            if self.actual[at + start : at + start + len(piece)] == piece:
                self.expected[at + start : at + start + len(piece)] = piece
        return self.same(at, len(data))
