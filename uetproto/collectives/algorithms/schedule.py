# SPDX-License-Identifier: GPL-2.0-only
"""This module defines schedules of collectives: which rank sends which elements to which rank in which step.

A schedule is independent of the transport. A rank executes its steps in order. In each step it first does the local
work `before`. Then it posts all sends and all receives, and waits until all of them are complete. Then it folds the
received elements into its own, in the order listed, and does the local work `after`. A fold may therefore write to
elements that the step has sent; a receive that only stores its elements never writes to sent ones. Only messages
synchronise the ranks: the k-th send of a rank to a peer matches the k-th receive of the peer from this rank.

An empty chunk is sent as a message of no bytes (collectives.md §3.1). A step in which a rank has nothing to do is
missing from the steps of this rank; step numbers are those of the whole schedule.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from enum import IntEnum
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

Ints: TypeAlias = NDArray[np.integer[Any]]


class Buffer(IntEnum):
    """This enumeration has the arrays of elements that each rank has."""

    INPUT = 0
    """Input of the caller. A schedule only reads it."""
    OUTPUT = 1
    """Result of the collective. An operation of `IN_PLACE` works in this buffer; INPUT is copied to it before the first
    step."""
    SCRATCH = 2
    """Temporary memory. It is released at the end of the collective."""


class Fold(IntEnum):
    """This enumeration says how received elements are combined with the receiver's own elements, and in which order
    (collectives.md §1.6)."""

    STORE = 0
    INCOMING_FIRST = 1
    """The result is `incoming op own`."""
    OWN_FIRST = 2
    """The result is `own op incoming`."""


IN_PLACE = frozenset({"all_reduce", "reduce", "broadcast"})
"""Operations whose input and result are the same tensor (collectives.md §1.3)."""
REDUCING = frozenset({"all_reduce", "reduce", "reduce_scatter"})
"""Operations that combine elements with a `ReduceOp`."""


class ScheduledSend(NamedTuple):
    """This record says which elements are sent to which peer."""

    peer: int
    buffer: Buffer
    start: int
    count: int  # type: ignore[assignment]


class ScheduledReceive(NamedTuple):
    """This record says which elements are received from which peer, and how they are combined with own elements."""

    peer: int
    buffer: Buffer
    start: int
    count: int  # type: ignore[assignment]
    fold: Fold = Fold.STORE


class Local(NamedTuple):
    """This record describes elements that are copied or reduced within a rank. In a reduction, the source is the
    operand `incoming`, and the target is the operand `own`."""

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
    """This record holds the number of elements of each buffer of a rank."""

    input: int
    output: int
    scratch: int


class LocalWork(NamedTuple):
    """This record holds the copies and reductions within a rank, before and after the messages of one step."""

    before: tuple[Local, ...] = ()
    after: tuple[Local, ...] = ()


class Schedule(ABC):
    """This class describes a collective over ranks 0 .. size-1. It gives the steps of a single rank, or all messages as
    arrays."""

    op: str
    algorithm: str
    size: int
    root: int | None
    splits: Ints | None
    """Number of elements that rank i sends to rank j in an all_to_all with unequal blocks, in row i and column j. None
    means equal blocks, or another operation."""

    @property
    @abstractmethod
    def length(self) -> int:
        """Return the number of steps of the whole schedule."""

    @abstractmethod
    def counts(self, rank: int) -> Counts:
        """Return the number of elements of each buffer of a rank."""

    @abstractmethod
    def steps(self, rank: int) -> Iterator[ScheduleStep]:
        """Return the steps of one rank, in order."""

    @abstractmethod
    def locals(self, rank: int) -> dict[int, LocalWork]:
        """Return the copies and reductions within one rank, by the number of the step."""

    @abstractmethod
    def arrays(self) -> dict[str, Ints]:
        """Return all messages as arrays with one entry for each message.

        Messages are ordered by step and, within a step at one receiver, in the order in which the receiver combines
        them. The arrays are `step`, `src` and `dst`; `buffer` and `start` at the sender; `target_buffer` and `target`
        at the receiver; `count` and `fold`. They may be read-only and share memory.
        """
