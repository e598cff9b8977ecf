"""`Work`: an operation of one rank under way, and what waits for it (collectives.md §1.2)."""

import copy
from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeAlias

from uetproto.api.distributed.errors import TimeoutError, invalid, modified  # noqa: A004
from uetproto.api.distributed.tensors import Watch
from uetproto.collectives.runner import Counted
from uetproto.collectives.transport import Timer
from uetproto.errors import UetError

if TYPE_CHECKING:
    from uetproto.api.distributed.group import ProcessGroup
    from uetproto.api.distributed.rank_state import Seat

SECOND = 10**12
"""Picoseconds."""
LONGEST = 10**14
"""Seconds that something may take: more than any `timedelta`."""
Timeout: TypeAlias = timedelta | float
"""How long something may take: a float or an integer is seconds."""


def picoseconds(name: str, value: Any) -> int:
    """Of a `timedelta`, or of a number of seconds. Raises `ArgumentError`."""
    if isinstance(value, timedelta):
        value = value / timedelta(microseconds=1) / 10**6
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= LONGEST:
        raise invalid(name, repr(value), f"a timedelta, or seconds of virtual time, 0 … {LONGEST}")
    return round(value * SECOND)


class Work:
    """An operation of one rank. `dist.isend(...)` and all with `async_op=True` return one."""

    def __init__(self, seat: "Seat", group: "ProcessGroup", op: str, sequence: int) -> None:
        self.op = op
        """With its arguments, as reports show it."""
        self.group = group
        self.sequence = sequence
        self.seat = seat
        self.done = False
        self.error: UetError | None = None
        self.source = -1
        """Of a receive that is done: the global rank that it came from."""
        self.counted: Counted | None = None
        """Of a collective that is done: its steps and bytes."""
        self.needs: Callable[[], tuple[tuple[int, ...], str]] = lambda: ((), "is under way")
        """Which ranks could release it, and what they would have to do."""
        self.withdraw: Callable[[UetError], None] = lambda error: None
        """Told when it fails before its time: others may depend on it."""
        self.watches: list[Watch] = []
        self.keeps: tuple[Any, ...] = ()
        """Tensors that live as long as the operation."""
        self.then: list[Callable[[], None]] = []
        """Called once when it is done, or failed."""
        self.patience: Timer | None = None

    # What a program calls

    def wait(self, timeout: Timeout | None = None) -> bool:
        """Waits until it is done; True. Raises what made it fail, the same each time.

        `timeout`: of virtual time; it fails then, and stays failed. In stream mode without a time-out the stream waits
        and the program does not (§1.2).
        """
        limit = None if timeout is None else picoseconds("timeout", timeout)
        self.seat.world.waiting.wait_for(self, limit)
        return True

    def is_completed(self) -> bool:
        """Whether it is done, or failed. Asking takes virtual time, so that a program may poll.

        In stream mode: that it is in its queue, which it always is.
        """
        return self.seat.world.waiting.poll(self)

    def is_success(self) -> bool:
        """It is done and has not failed. Asking takes virtual time, as with `is_completed`."""
        if self._look() and self.error is not None:
            self.seat.world.waiting.seen_failed(self)
        return self.done and self.error is None

    def exception(self) -> UetError | None:
        """What made it fail; None: nothing so far. Asking takes virtual time, as with `is_completed`."""
        self._look()
        return self.error

    def source_rank(self) -> int:
        """Of a receive: the global rank that the message came from; -1 before it is done."""
        return self.source

    def __repr__(self) -> str:
        state = "under way" if not self.done else "done" if self.error is None else f"failed: {self.error}"
        return f"<Work {self.name}: {state}>"

    def _look(self) -> bool:
        return self.done or self.seat.world.waiting.look(self)

    # What drives it

    @property
    def name(self) -> str:
        """Its operation, its number among those of its group, and the group."""
        return f"{self.op} #{self.sequence} of group {self.group.number}"

    def finish(self, error: UetError | None = None) -> None:
        """It is done, or has failed; the first time counts."""
        if self.done:
            return
        clean = True
        while self.watches:
            clean &= self.watches.pop().release()
        self.done = True
        self.error = error if error is not None or clean else modified(self.name)
        self.seat.world.operations.ended(self)
        for action in self.then:
            action()
        self.then.clear()

    def fail(self, error: UetError) -> None:
        """As `finish`, before its time; the error is this rank's own copy."""
        if not self.done:
            self.finish(copy.copy(error))
            self.withdraw(error)

    def expire(self, timeout: int) -> None:
        """Its time is over."""
        if not self.done:
            _, why = self.needs()
            self.fail(
                TimeoutError(f"rank {self.seat.number}: {self.name} took more than {timeout / SECOND:g} s: it {why}")
            )


__all__ = ["SECOND", "Timeout", "Work", "picoseconds"]
