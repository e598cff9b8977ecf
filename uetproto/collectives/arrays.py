"""All messages of a schedule as columns, one entry a message: millions of them are no objects."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from uetproto.collectives.algorithms.schedule import Ints


class MessageColumns(NamedTuple):
    """Messages in ranks and elements: the columns of `Schedule.arrays`."""

    step: Ints
    src: Ints
    dst: Ints
    buffer: Ints
    start: Ints
    target_buffer: Ints
    target: Ints
    count: Ints  # type: ignore[assignment]
    fold: Ints

    @classmethod
    def of(cls, **columns: Ints | int) -> "MessageColumns":
        """From columns that go together by broadcasting.

        What is the same in all messages takes no room, nor does what is the same in two columns: the target is often
        the start.
        """
        shape = np.broadcast_shapes(*map(np.shape, columns.values()))
        once: dict[tuple[int, object], Ints] = {}
        for name in cls._fields:
            key = id(columns[name]), _TYPES.get(name)
            if key not in once:
                array = np.asarray(columns[name], dtype=_TYPES.get(name))
                one = array.size == 1
                once[key] = np.broadcast_to(array.reshape(()), math.prod(shape)) if one else _flat(array, shape)
        return cls(*(once[id(columns[name]), _TYPES.get(name)] for name in cls._fields))

    def select(self, which: NDArray[np.bool_] | Ints) -> "MessageColumns":
        """Those at a mask, or at indices in their order."""
        return MessageColumns(*(column[which] for column in self))

    def by_step(self) -> "MessageColumns":
        """In the order of steps, and as listed within a step."""
        if np.all(self.step[1:] >= self.step[:-1]):
            return self
        return self.select(np.argsort(self.step, kind="stable"))

    @classmethod
    def join(cls, parts: "Sequence[MessageColumns]") -> "MessageColumns":
        """One after the other, then by step."""
        if len(parts) == 1:
            return parts[0].by_step()
        return cls(*(np.concatenate(columns) for columns in zip(*parts, strict=True))).by_step()


def _flat(array: Ints, shape: tuple[int, ...]) -> Ints:
    return np.broadcast_to(array, shape).reshape(-1)


_TYPES = dict.fromkeys(("step", "src", "dst"), np.int32) | dict.fromkeys(("buffer", "target_buffer", "fold"), np.int8)

NO_MESSAGES = MessageColumns.of(**dict.fromkeys(MessageColumns._fields, np.zeros(0, dtype=np.int32)))
