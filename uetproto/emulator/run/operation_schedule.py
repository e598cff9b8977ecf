# SPDX-License-Identifier: GPL-2.0-only
"""This module is for runs of operations over any transport. It decides when the rows of the scenario begin, notes how
they end, and compares memory with the expected content.

A `MemoryArea` holds the actual bytes, which the engines use, and the expected bytes, which operations change when they
end. In the end, the actual bytes and the expected bytes must be equal.
"""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Generic, TypeVar

from uetproto.emulator.network.clock import Clock
from uetproto.emulator.run.result import Memories, OperationOutcome, RunResult
from uetproto.emulator.run.scenario_run import ScenarioRun
from uetproto.emulator.run.verify import FrameJudge
from uetproto.emulator.scenario.operations import NONE, OperationRow
from uetproto.engine.contract import Rng
from uetproto.errors import LocalError

_DRAW = 1 << 20  # bytes drawn at once: a generator gives less than 2^31 bits


@dataclass(slots=True, eq=False)
class ScheduledOperation:
    """A scheduled operation is a row of the scenario with the state of its operation."""

    number: int
    row: OperationRow
    began: bool = False
    ended_at: int | None = None
    status: str = NONE
    """Name of the status or return code with which the operation ended, or NONE before its end."""
    match: bool = True
    """Whether all effects of the operation that are checked are as expected."""
    length: int = 0
    area: "MemoryArea | None" = None
    """Buffer of a receive, of a read, or of a fetching atomic. Over RoCE, it is also the buffer of the bytes to send.
    `area` is None for an operation without such a buffer."""
    delivered: bool = False
    """Whether a receive has taken the message of this send."""

    def get(self, name: str, default: Any = None) -> Any:
        """Return the value of a key of the row, or `default` if the row does not have the key."""
        return self.row.fields.get(name, default)

    def outcome(self, match: bool) -> OperationOutcome:
        """Return the outcome of the operation; `match` says whether its effects are as expected."""
        row = self.row
        return OperationOutcome(
            self.number, row.do, row.node, self.length, self.status, row.expect, match, self.ended_at
        )


OperationT = TypeVar("OperationT", bound=ScheduledOperation)


@dataclass
class OperationSchedule(Generic[OperationT]):
    """An operation schedule begins rows in order. It begins each row when the row's time has come and all rows that the
    row waits for have ended.
    """

    clock: Clock
    operations: Sequence[OperationT]
    begin: Callable[[OperationT], None]
    wake: Callable[[object], None]
    """Function that is called when the time of a row has come; it should call `advance`."""
    _next: int = 0
    _alarm: int = 0

    @property
    def all_begun(self) -> bool:
        return self._next == len(self.operations)

    @property
    def ready(self) -> bool:
        """Return True if the time of the next row is still to come, or if the next row may begin now."""
        if self.all_begun:
            return False
        following = self.operations[self._next]
        return following.row.at > self.clock.now or self._may_begin(following)

    def advance(self) -> bool:
        """Begin all rows that may begin now. Return whether all rows of the scenario have begun. Raises `LocalError`
        for an impossible row.
        """
        while not self.all_begun:
            operation = self.operations[self._next]
            if operation.row.at > self.clock.now:
                if self._alarm < operation.row.at:
                    self._alarm = operation.row.at
                    self.clock.at(self._alarm, self.wake)
                return False
            if not self._may_begin(operation):
                return False
            self._next += 1
            operation.began = True
            try:
                self.begin(operation)
            except LocalError as error:
                raise LocalError(*error.args, place=operation.row.where, id=error.id) from error
        return True

    def end(self, operation: OperationT, status: str) -> None:
        """Note that an operation has ended with `status`. Only the first call for an operation counts."""
        if operation.ended_at is None:
            operation.ended_at = self.clock.now
            operation.status = status

    def _may_begin(self, operation: OperationT) -> bool:
        number = operation.number
        before = {None: slice(0), "all": slice(number), "previous": slice(max(0, number - 1), number)}
        awaited = self.operations[before[operation.row.after]]
        return all(one.ended_at is not None or one.row.expect == NONE for one in awaited)


def drawn(rng: Rng, length: int) -> bytes:
    """Return `length` random bytes."""
    sizes = (min(_DRAW, length - start) for start in range(0, length, _DRAW))
    return b"".join(rng.getrandbits(8 * size).to_bytes(size, "little") for size in sizes)


def result_of(
    run: ScenarioRun,
    outcomes: Sequence[OperationOutcome],
    areas: Sequence["MemoryArea"],
    moved: int,
    judge: FrameJudge | None,
    output: str | None,
    reported: Sequence[int] = (),
) -> RunResult:
    """Return the result of a run of operations. Every outcome that was not expected becomes part of the run's failure.

    `moved` is the number of bytes that successful operations moved. `reported` has the numbers of operations that are
    part of the run's failure already.
    """
    wrong = [
        f"operation {one.operation} ({one.do}) ended with {one.return_code}, {one.expect} was expected"
        for one in outcomes
        if one.return_code != one.expect and one.operation not in reported
    ]
    run.failure = "; ".join((*((run.failure,) if run.failure else ()), *wrong)) or None
    expected, actual = hashlib.sha256(), hashlib.sha256()
    for area in areas:
        expected.update(area.expected)
        actual.update(area.actual)
    same = all(one.match for one in outcomes) and all(area.same(0, len(area.actual)) for area in areas)
    memories = Memories(same, expected.hexdigest(), actual.hexdigest(), moved)
    return replace(run.result(memories, judge, output), operations=tuple(asdict(one) for one in outcomes))


class MemoryArea:
    """A memory area has its actual content, the content that it should have, and its base address."""

    __slots__ = ("actual", "base", "expected")

    def __init__(self, content: bytes, base: int = 0) -> None:
        self.actual = bytearray(content)
        self.expected = bytearray(content)
        self.base = base

    def put(self, at: int, data: bytes) -> bool:
        """Set `data` as the expected bytes from offset `at` on; return whether the actual bytes are the same."""
        self.expected[at : at + len(data)] = data
        return self.same(at, len(data))

    def same(self, at: int, length: int) -> bool:
        """Return whether the `length` actual bytes from offset `at` on are the expected ones."""
        return self.actual[at : at + length] == self.expected[at : at + length]

    def may_put(self, at: int, data: bytes, mtu: int, waits: bool = False) -> bool:
        """Expect each packet (`mtu` bytes) of a failed message to be stored whole or not at all (ses.md §12, roce.md
        §8).

        Each packet that is found in memory becomes part of the expected bytes. Return whether the actual bytes then are
        the expected ones. A failed message of a single packet must have stored nothing, unless `waits` is True: such a
        message had to wait for other messages, and its data may have been stored before they came.
        """
        for start in range(0, len(data), mtu) if len(data) > mtu or waits else ():
            piece = data[start : start + mtu]
            if self.actual[at + start : at + start + len(piece)] == piece:
                self.expected[at + start : at + start + len(piece)] = piece
        return self.same(at, len(data))
