"""What a schedule of a collective says: who sends which elements to whom in which step, and nothing about how.

A rank does its steps in order. In each step it first does the local work `before`, then posts all sends and all
receives and waits until all of them are complete; then it folds what it received, in the order listed, then it does the
local work `after`. So a fold may write where the step sent from, a plain receive never does. Nothing holds the ranks
together but their messages: the k-th send of a rank to a peer meets the k-th receive of the peer from it.

An empty chunk is a message of no bytes that takes part like any other (collectives.md §3.1). A step in which a rank
has nothing to do is left out of its steps; the numbers are those of the whole.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from enum import IntEnum
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

Ints: TypeAlias = NDArray[np.integer[Any]]


class Buffer(IntEnum):
    """An array of elements that each rank has."""

    INPUT = 0
    """What the caller hands in; a schedule only reads it."""
    OUTPUT = 1
    """The result. The operations IN_PLACE work in it: whoever runs them copies INPUT there first."""
    SCRATCH = 2
    """Of the run: gone with it."""


class Fold(IntEnum):
    """How elements go into a buffer: the reduction is done in a documented order (§1.6)."""

    STORE = 0
    INCOMING_FIRST = 1
    """incoming op own."""
    OWN_FIRST = 2
    """own op incoming."""


IN_PLACE = frozenset({"all_reduce", "reduce", "broadcast"})
"""Operations on one tensor, which is their input and their result (§1.3)."""
REDUCING = frozenset({"all_reduce", "reduce", "reduce_scatter"})
"""Operations that fold elements with a `ReduceOp`."""


class ScheduledSend(NamedTuple):
    """Elements that go to a peer."""

    peer: int
    buffer: Buffer
    start: int
    count: int  # type: ignore[assignment]


class ScheduledReceive(NamedTuple):
    """Elements that come from a peer."""

    peer: int
    buffer: Buffer
    start: int
    count: int  # type: ignore[assignment]
    fold: Fold = Fold.STORE


class Local(NamedTuple):
    """Elements copied, or folded, within a rank: the source is incoming, the target is own."""

    source: Buffer
    source_start: int
    target: Buffer
    target_start: int
    count: int  # type: ignore[assignment]
    fold: Fold = Fold.STORE


class ScheduleStep(NamedTuple):
    """What one rank does in one step."""

    number: int
    before: tuple[Local, ...]
    sends: tuple[ScheduledSend, ...]
    receives: tuple[ScheduledReceive, ...]
    after: tuple[Local, ...]


class Counts(NamedTuple):
    """The elements in each buffer of a rank."""

    input: int
    output: int
    scratch: int


class LocalWork(NamedTuple):
    """What a rank does by itself around one step."""

    before: tuple[Local, ...] = ()
    after: tuple[Local, ...] = ()


class Schedule(ABC):
    """One collective over ranks 0 .. size-1: any rank's steps alone, or all messages as arrays."""

    op: str
    algorithm: str
    size: int
    root: int | None
    splits: Ints | None
    """Of an all_to_all of uneven blocks: row i, column j is what goes from rank i to rank j."""

    @property
    @abstractmethod
    def length(self) -> int:
        """The number of steps of the whole."""

    @abstractmethod
    def counts(self, rank: int) -> Counts:
        """The elements in each buffer of a rank."""

    @abstractmethod
    def steps(self, rank: int) -> Iterator[ScheduleStep]:
        """The steps of one rank, in order."""

    @abstractmethod
    def locals(self, rank: int) -> dict[int, LocalWork]:
        """The local work of one rank, by step."""

    @abstractmethod
    def arrays(self) -> dict[str, Ints]:
        """All messages, one entry each in every array, ordered by step and, at one receiver, by listing.

        `step`, `src`, `dst`; `buffer` and `start` at the sender, `target_buffer` and `target` at the receiver; `count`;
        `fold`. Columns may be read-only and share memory.
        """
