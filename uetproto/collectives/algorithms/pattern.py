"""A pattern of messages among the members 0 .. size-1 of a group, over the blocks of a vector that all of them hold.

A block that moves keeps its place: that is what makes an algorithm a pattern, and lets a hierarchical algorithm run the
same ones among the ranks of a node and among the nodes. What moves blocks elsewhere writes its own messages.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np

from uetproto.collectives.algorithms.schedule import Buffer, Ints
from uetproto.collectives.arrays import NO_MESSAGES, MessageColumns


class Moves(NamedTuple):
    """The messages of a pattern. Columns go together by broadcasting, and all have as many axes."""

    step: Ints
    src: Ints
    dst: Ints
    fold: Ints
    start: Ints
    """Has one more axis, the first one: of the groups. So has `count`."""
    count: Ints  # type: ignore[assignment]

    @classmethod
    def of(cls, bounds: Ints, *, first: Ints | int, last: Ints | int, **columns: Ints | int) -> "Moves":
        """Of the blocks first .. last-1, which each group has at its own bounds."""
        arrays = [np.asarray(columns[name], dtype=np.int32) for name in ("step", "src", "dst", "fold")]
        arrays += [np.asarray(first), np.asarray(last)]
        axes = max(array.ndim for array in arrays)
        padded = (array.reshape((1,) * (axes - array.ndim) + array.shape) for array in arrays)
        step, src, dst, fold, first, last = padded
        start = np.take(bounds, first, axis=1)
        return cls(step, src, dst, fold, start, np.take(bounds, last, axis=1) - start)

    @classmethod
    def join(cls, *parts: "Moves") -> "Moves":
        """One after the other."""
        flat = []
        for part in parts:
            whole = np.broadcast_arrays(*part)
            groups = len(whole[-1])
            members = [column[0].reshape(-1) for column in whole[:4]]
            flat.append(members + [column.reshape(groups, -1) for column in whole[4:]])
        return cls(*(np.concatenate(columns, axis=-1) for columns in zip(*flat, strict=True)))


class Pattern(ABC):
    """Who sends which blocks to whom in which step."""

    size: int

    @property
    def blocks(self) -> int:
        """Into how many blocks the vector is cut."""
        return 1

    @property
    @abstractmethod
    def length(self) -> int:
        """How many steps it takes."""

    @abstractmethod
    def moves(self, bounds: Ints, member: int | None = None) -> Moves:
        """All messages; for a member, at least those that it sends or receives.

        `bounds`: a row a group, where its blocks start and where the last one ends.
        """


def steps_for(size: int) -> int:
    """`lg N` of the page: the steps in which a message can reach all (§0.1)."""
    return (size - 1).bit_length()


class SchedulePart(Protocol):
    """A piece of a schedule: messages in the steps from `first` on."""

    @property
    def first(self) -> int:
        """The number of its first step."""

    @property
    def length(self) -> int:
        """How many steps it takes."""

    def messages(self, rank: int | None = None) -> MessageColumns:
        """All its messages; for a rank, at least those that it sends or receives."""


@dataclass(frozen=True, slots=True)
class PatternPhase:
    """A pattern done by groups of ranks at once, each on a range of elements of its own."""

    pattern: Pattern
    groups: Ints
    """One row a group: the ranks that are its members."""
    bounds: Ints
    """One row a group: where its blocks start in the buffer, and where the last one ends."""
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
    """A piece of a schedule that writes its messages itself."""

    length: int
    table: Callable[[int | None], MessageColumns]
    first: int = 0

    def messages(self, rank: int | None = None) -> MessageColumns:
        return self.table(rank)


def everyone(size: int) -> Ints:
    """The only group of an algorithm that is not hierarchical."""
    return np.arange(size, dtype=np.int32)[None, :]
