"""This module defines schedules of collectives: which rank sends which elements to which rank in which step.

A schedule is independent of the transport. A rank executes its steps in order. In each step it first does the local
work `before`, then posts all sends and all receives and waits until all of them are complete; then it folds the
received elements, in the order listed; then it does the local work `after`. A fold may therefore write to elements that
the step has sent; a receive without a fold never writes to them. Only messages synchronise the ranks: the k-th send of
a rank to a peer matches the k-th receive of the peer from this rank.

An empty chunk is a message of no bytes that is sent like any other (collectives.md §3.1). A step in which a rank has
nothing to do is missing from its steps; step numbers are those of the whole schedule.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from enum import IntEnum
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

Ints: TypeAlias = NDArray[np.integer[Any]]


class Buffer(IntEnum):
    """A buffer is an array of elements that each rank has."""

    INPUT = 0
    """Input of the caller; a schedule only reads it."""
    OUTPUT = 1
    """Result of the collective. The operations IN_PLACE work in this buffer: the runner copies INPUT to it first."""
    SCRATCH = 2
    """Temporary memory, which is released at the end of the run."""


class Fold(IntEnum):
    """A fold says how received elements are combined with own ones, in a defined order (collectives.md §1.6)."""

    STORE = 0
    INCOMING_FIRST = 1
    """The result is `incoming op own`."""
    OWN_FIRST = 2
    """The result is `own op incoming`."""


IN_PLACE = frozenset({"all_reduce", "reduce", "broadcast"})
"""Operations on one tensor, which is their input and their result (collectives.md §1.3)."""
REDUCING = frozenset({"all_reduce", "reduce", "reduce_scatter"})
"""Operations that fold elements with a `ReduceOp`."""


class ScheduledSend(NamedTuple):
    """A scheduled send names the elements that are sent to a peer."""

    peer: int
    buffer: Buffer
    start: int
    count: int  # type: ignore[assignment]


class ScheduledReceive(NamedTuple):
    """A scheduled receive names the elements that are received from a peer, and how they are folded."""

    peer: int
    buffer: Buffer
    start: int
    count: int  # type: ignore[assignment]
    fold: Fold = Fold.STORE


class Local(NamedTuple):
    """Local work copies or folds elements within a rank; in a fold the source is `incoming`, the target is `own`."""

    source: Buffer
    source_start: int
    target: Buffer
    target_start: int
    count: int  # type: ignore[assignment]
    fold: Fold = Fold.STORE


class ScheduleStep(NamedTuple):
    """This record describes what one rank does in one step."""

    number: int
    before: tuple[Local, ...]
    sends: tuple[ScheduledSend, ...]
    receives: tuple[ScheduledReceive, ...]
    after: tuple[Local, ...]


class Counts(NamedTuple):
    """Number of elements that each buffer of a rank holds."""

    input: int
    output: int
    scratch: int


class LocalWork(NamedTuple):
    """This record holds the local work of a rank around one step."""

    before: tuple[Local, ...] = ()
    after: tuple[Local, ...] = ()


class Schedule(ABC):
    """This class describes a collective over ranks 0 .. size-1: the steps of a rank alone, or all messages as
    arrays.
    """

    op: str
    algorithm: str
    size: int
    root: int | None
    splits: Ints | None
    """Elements from rank i to rank j of an uneven all_to_all, in row i and column j."""

    @property
    @abstractmethod
    def length(self) -> int:
        """Return the number of steps of the whole schedule."""

    @abstractmethod
    def counts(self, rank: int) -> Counts:
        """Return the elements in each buffer of a rank."""

    @abstractmethod
    def steps(self, rank: int) -> Iterator[ScheduleStep]:
        """Return the steps of one rank, in order."""

    @abstractmethod
    def locals(self, rank: int) -> dict[int, LocalWork]:
        """Return the local work of one rank, by step."""

    @abstractmethod
    def arrays(self) -> dict[str, Ints]:
        """Return all messages as arrays with one entry for each message.

        The order is that of steps and, within a step at one receiver, that of the folds. The arrays are `step`, `src`,
        `dst`; `buffer` and `start` at the sender, `target_buffer` and `target` at the receiver; `count`; `fold`. They
        may be read-only and share memory.
        """
