"""This module has the messages of a schedule as columns, so that millions of messages need no objects."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from uetproto.collectives.algorithms.schedule import Ints


class MessageColumns(NamedTuple):
    """Message columns hold messages as arrays with one entry for each message, as `Schedule.arrays` defines them."""

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
        """Return messages from columns that broadcast together.

        A value that is the same in all messages takes no memory. Two columns that are one array, as target and start
        often are, take the memory of one.
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
        """Return the messages that a mask selects, or those at indices, in the order of the indices."""
        return MessageColumns(*(column[which] for column in self))

    def by_step(self) -> "MessageColumns":
        """Return the messages in the order of steps, and within a step as listed."""
        if np.all(self.step[1:] >= self.step[:-1]):
            return self
        return self.select(np.argsort(self.step, kind="stable"))

    @classmethod
    def join(cls, parts: "Sequence[MessageColumns]") -> "MessageColumns":
        """Return the messages of all parts, in the order of steps."""
        if len(parts) == 1:
            return parts[0].by_step()
        return cls(*(np.concatenate(columns) for columns in zip(*parts, strict=True))).by_step()


def _flat(array: Ints, shape: tuple[int, ...]) -> Ints:
    return np.broadcast_to(array, shape).reshape(-1)


_TYPES = dict.fromkeys(("step", "src", "dst"), np.int32) | dict.fromkeys(("buffer", "target_buffer", "fold"), np.int8)

NO_MESSAGES = MessageColumns.of(**dict.fromkeys(MessageColumns._fields, np.zeros(0, dtype=np.int32)))
