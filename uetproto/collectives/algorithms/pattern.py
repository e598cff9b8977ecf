# SPDX-License-Identifier: GPL-2.0-only
"""This module defines patterns of messages. The members 0 .. size-1 of a group send blocks of a vector that all members
hold.

In a pattern a block has the same position in the vectors of sender and receiver. A hierarchical algorithm can therefore
run the same pattern among the ranks of a node and among the nodes. An algorithm that moves blocks to other positions
computes its messages without a pattern (`Table`).
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np

from uetproto.collectives.algorithms.schedule import Buffer, Ints
from uetproto.collectives.arrays import NO_MESSAGES, MessageColumns


class Moves(NamedTuple):
    """This record holds the messages of a pattern as arrays. When NumPy broadcasts the arrays, each has one entry for
    each message."""

    step: Ints
    src: Ints
    dst: Ints
    fold: Ints
    start: Ints
    """Index of the first element of each message. `start` and `count` have one axis more than the other arrays: their
    first axis counts the groups."""
    count: Ints  # type: ignore[assignment]

    @classmethod
    def of(cls, bounds: Ints, *, first: Ints | int, last: Ints | int, **columns: Ints | int) -> "Moves":
        """Return messages that carry the blocks first .. last-1. `bounds` has one row for each group: the starts of its
        blocks, and the end of the last block. `columns` are the arrays `step`, `src`, `dst` and `fold`."""
        arrays = [np.asarray(columns[name], dtype=np.int32) for name in ("step", "src", "dst", "fold")]
        arrays += [np.asarray(first), np.asarray(last)]
        axes = max(array.ndim for array in arrays)
        padded = (array.reshape((1,) * (axes - array.ndim) + array.shape) for array in arrays)
        step, src, dst, fold, first, last = padded
        start = np.take(bounds, first, axis=1)
        return cls(step, src, dst, fold, start, np.take(bounds, last, axis=1) - start)

    @classmethod
    def join(cls, *parts: "Moves") -> "Moves":
        """Return one record with the messages of all `parts`."""
        flat = []
        for part in parts:
            whole = np.broadcast_arrays(*part)
            groups = len(whole[-1])
            members = [column[0].reshape(-1) for column in whole[:4]]
            flat.append(members + [column.reshape(groups, -1) for column in whole[4:]])
        return cls(*(np.concatenate(columns, axis=-1) for columns in zip(*flat, strict=True)))


class Pattern(ABC):
    """This class describes which member of a group sends which blocks to which member in which step."""

    size: int

    @property
    def blocks(self) -> int:
        """Return the number of blocks that the vector is cut into."""
        return 1

    @property
    @abstractmethod
    def length(self) -> int:
        """Return the number of steps of the pattern."""

    @abstractmethod
    def moves(self, bounds: Ints, member: int | None = None) -> Moves:
        """Return all messages or, if `member` is given, at least those that this member sends or receives.

        `bounds` has one row for each group: the starts of its blocks, and the end of the last block.
        """


def steps_for(size: int) -> int:
    """Return `lg N` (collectives.md §0.1): the number of steps in which a message can reach all ranks."""
    return (size - 1).bit_length()


class SchedulePart(Protocol):
    """This protocol describes a part of a schedule. Its messages are sent in the steps from `first` on."""

    @property
    def first(self) -> int:
        """Return the number of the first step of this part."""

    @property
    def length(self) -> int:
        """Return the number of steps of this part."""

    def messages(self, rank: int | None = None) -> MessageColumns:
        """Return all messages of this part or, if `rank` is given, at least those that this rank sends or receives."""


@dataclass(frozen=True, slots=True)
class PatternPhase:
    """This record holds a pattern that several groups of ranks run at the same time, each group on its own range of
    elements."""

    pattern: Pattern
    groups: Ints
    """Ranks of the members of each group. There is one row for each group."""
    bounds: Ints
    """Starts of the blocks of each group in the buffer, and the end of its last block. There is one row for each
    group."""
    buffer: Buffer = Buffer.OUTPUT
    first: int = 0

    @property
    def length(self) -> int:
        return self.pattern.length

    def messages(self, rank: int | None = None) -> MessageColumns:
        if rank is None:
            return self._messages(self.groups, self.bounds, None)
        group, member = np.nonzero(self.groups == rank)
        if not group.size:
            return NO_MESSAGES
        return self._messages(self.groups[group], self.bounds[group], int(member[0]))

    def _messages(self, groups: Ints, bounds: Ints, member: int | None) -> MessageColumns:
        moves = self.pattern.moves(bounds, member)
        return MessageColumns.of(
            step=moves.step + np.int32(self.first),
            src=np.take(groups, moves.src, axis=1), dst=np.take(groups, moves.dst, axis=1),
            buffer=self.buffer, start=moves.start, target_buffer=self.buffer, target=moves.start, count=moves.count,
            fold=moves.fold,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Table:
    """This record is a part of a schedule whose messages are computed by a function of the algorithm, and not by a
    pattern."""

    length: int
    table: Callable[[int | None], MessageColumns]
    first: int = 0

    def messages(self, rank: int | None = None) -> MessageColumns:
        return self.table(rank)


def everyone(size: int) -> Ints:
    """Return one group with all ranks, as an array of one row. An algorithm that is not hierarchical has this single
    group."""
    return np.arange(size, dtype=np.int32)[None, :]
