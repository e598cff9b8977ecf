# SPDX-License-Identifier: GPL-2.0-only
"""This module holds the messages of a schedule as arrays, so that millions of messages need no objects."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from uetproto.collectives.algorithms.schedule import Ints


class MessageColumns(NamedTuple):
    """This record holds messages as arrays with one entry for each message, as `Schedule.arrays` defines them."""

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
        """Return messages from columns. NumPy broadcasts the columns to one shape.

        A value that is the same in all messages takes no memory. If two columns are the same array, as `target` and
        `start` often are, this array is stored once.
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
        """Return the messages that a mask selects, or those at given indices in the order of these indices."""
        return MessageColumns(*(column[which] for column in self))

    def by_step(self) -> "MessageColumns":
        """Return the messages sorted by step. Messages of the same step keep their order."""
        if np.all(self.step[1:] >= self.step[:-1]):
            return self
        return self.select(np.argsort(self.step, kind="stable"))

    @classmethod
    def join(cls, parts: "Sequence[MessageColumns]") -> "MessageColumns":
        """Return the messages of all parts, sorted by step."""
        if len(parts) == 1:
            return parts[0].by_step()
        return cls(*(np.concatenate(columns) for columns in zip(*parts, strict=True))).by_step()


def _flat(array: Ints, shape: tuple[int, ...]) -> Ints:
    return np.broadcast_to(array, shape).reshape(-1)


_TYPES = dict.fromkeys(("step", "src", "dst"), np.int32) | dict.fromkeys(("buffer", "target_buffer", "fold"), np.int8)

NO_MESSAGES = MessageColumns.of(**dict.fromkeys(MessageColumns._fields, np.zeros(0, dtype=np.int32)))
