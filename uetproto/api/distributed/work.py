# SPDX-License-Identifier: GPL-2.0-only
"""This module has `Work`, an operation of one rank as a program sees it (collectives.md §1.2)."""

import copy
from collections.abc import Callable
from datetime import timedelta
from typing import Any, Protocol, TypeAlias

from uetproto.api.distributed.errors import TimeoutError, invalid, modified, wrong_type  # noqa: A004
from uetproto.api.distributed.planner import RankGroup
from uetproto.api.distributed.tensors import TensorInUse
from uetproto.collectives.offload import CollectiveCounters
from uetproto.collectives.transport import SECOND, Timer
from uetproto.errors import UetError

LONGEST = 10**14
"""Longest legal duration in seconds; it is longer than any `timedelta`."""
_LEGAL = f"a timedelta, or seconds of virtual time, 0 … {LONGEST}"
Timeout: TypeAlias = timedelta | float
"""Type of a duration of virtual time; a float or an integer is a number of seconds."""


def picoseconds(name: str, value: Any) -> int:
    """Return a duration, which is a `timedelta` or a number of seconds, in picoseconds. Raises `ArgumentError` for any
    other value, and for a duration that is negative or too long."""
    if isinstance(value, timedelta):
        value = value / timedelta(microseconds=1) / 10**6
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise wrong_type(name, repr(value), _LEGAL)
    if not 0 <= value <= LONGEST:
        raise invalid(name, repr(value), _LEGAL, id="out-of-range")
    return round(value * SECOND)


class WorkScheduler(Protocol):
    """This protocol describes the scheduler as an operation sees it: it has only the methods that an operation
    calls."""

    def wait_for(self, work: "Work", timeout: int | None) -> None:
        """Wait until the operation is done; with a `timeout`, fail the operation after so many picoseconds."""

    def poll(self, work: "Work") -> bool:
        """Return whether the operation is done; in stream mode the result is always True."""

    def look(self, work: "Work") -> bool:
        """Wait for the duration of a poll, or until the operation is done, and return whether it is done."""

    def seen_failed(self, work: "Work") -> None:
        """Raise the error of the failed operation if its rank has called `is_success` too many times in a row."""

    def settle(self, work: "Work", why: str) -> None:
        """Wait until the operation is done, because the program reads or writes a tensor of the operation; `why` says
        where the program does so."""

    def ended(self, work: "Work") -> None:
        """Note that the operation is done or has failed."""


class Work:
    """A `Work` is an operation of one rank. `dist.isend(...)` and every call with `async_op=True` return one."""

    def __init__(self, scheduler: WorkScheduler, rank: int, group: RankGroup, op: str, sequence: int) -> None:
        """Make the operation number `sequence` of its group. `rank` is the global rank; `op` is the operation with its
        arguments, as reports show it."""
        self.rank = rank
        self.group = group
        self.op = op
        self.sequence = sequence
        self.done = False
        self.error: UetError | None = None
        self.source = -1
        """Global rank that a finished receive came from."""
        self.counted: CollectiveCounters | None = None
        """Steps and bytes of a finished collective."""
        self.needs: Callable[[], tuple[tuple[int, ...], str]] = lambda: ((), "is under way")
        """Returns the ranks, any of which could end the wait for the operation, and what they would have to do."""
        self.withdraw: Callable[[UetError], None] = lambda error: None
        """Called when the operation fails, to remove it where it waits or to fail operations that depend on it."""
        self.awaited = False
        """Whether the program, or in stream mode its stream, waits for the operation before it goes on."""
        self.spans: list[tuple[int, int, bool]] = []
        """Address and end of each of its tensors, and whether it is only read."""
        self.tensors: list[TensorInUse] = []
        """Tensors that must not change before the operation is done."""
        self.keeps: tuple[Any, ...] = ()
        """Tensors that must live as long as the operation."""
        self.then: list[Callable[[], None]] = []
        """Functions that are called once when the operation is done or has failed."""
        self.timer: Timer | None = None
        """Timer that fails the operation after the time-out of its group."""
        self._scheduler = scheduler

    # What a program calls

    def wait(self, timeout: Timeout | None = None) -> bool:
        """Wait until the operation is done, and return True. If the operation has failed, every call raises its error.

        The operation fails, and stays failed, if it is not done after the virtual time `timeout`. In stream mode
        without a time-out the stream waits and the program does not (collectives.md §1.2).
        """
        limit = None if timeout is None else picoseconds("timeout", timeout)
        self._scheduler.wait_for(self, limit)
        return True

    def is_completed(self) -> bool:
        """Return whether the operation is done or has failed. While the operation is in progress, each call takes
        virtual time. A program that polls therefore does not poll for ever.

        In stream mode the result is always True: it only says that the operation is in the queue of its stream.
        """
        return self._scheduler.poll(self)

    def is_success(self) -> bool:
        """Return whether the operation is done and has not failed. While the operation is in progress, the call takes
        virtual time."""
        if self._look() and self.error is not None:
            self._scheduler.seen_failed(self)
        return self.done and self.error is None

    def exception(self) -> UetError | None:
        """Return the error with which the operation failed, or None if the operation has not failed so far. While the
        operation is in progress, the call takes virtual time."""
        self._look()
        return self.error

    def source_rank(self) -> int:
        """Return the global rank of the sender of the message that this operation received. Return -1 if it has
        received no message so far."""
        return self.source

    def __repr__(self) -> str:
        state = "under way" if not self.done else "done" if self.error is None else f"failed: {self.error}"
        return f"<Work {self.name}: {state}>"

    def _look(self) -> bool:
        return self.done or self._scheduler.look(self)

    # Calls of the scheduler and of the matching

    @property
    def name(self) -> str:
        """Return a text such as `send(dst=1, tag=0) #2 of group 0`: the operation with its arguments, its number within
        its group, and the number of the group."""
        return f"{self.op} #{self.sequence} of group {self.group.number}"

    def settle(self, why: str) -> None:
        """Wait until the operation is done, in stream mode too, and raise its error. `why` says where the program reads
        or writes a tensor of the operation."""
        self._scheduler.settle(self, why)

    def finish(self, error: UetError | None = None) -> None:
        """End the operation: it is done if `error` is None, and has failed otherwise. A second call has no effect.

        If the program has changed a buffer that the operation reads, the operation fails with `BufferModifiedError`.
        """
        if self.done:
            return
        clean = True
        while self.tensors:
            clean &= self.tensors.pop().release()
        self.done = True
        self.error = error if error is not None or clean else modified(self.name)
        self._scheduler.ended(self)
        for action in self.then:
            action()
        self.then.clear()

    def fail(self, error: UetError) -> None:
        """End the operation with a copy of an error, and call `withdraw`. An operation that has already ended stays as
        it is."""
        if not self.done:
            self.finish(copy.copy(error))
            self.withdraw(error)

    def expire(self, timeout: int) -> None:
        """Fail the operation with a `TimeoutError`, because it has taken `timeout` picoseconds."""
        if not self.done:
            _, why = self.needs()
            self.fail(
                TimeoutError(
                    f"rank {self.rank}: {self.name} took more than {timeout / SECOND:g} s: it {why}", id="timed-out"
                )
            )
