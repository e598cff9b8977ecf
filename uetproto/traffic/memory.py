# SPDX-License-Identifier: GPL-2.0-only
"""This module has memory whose bytes repeat. It takes little space, and holds messages of any length."""

from collections.abc import Callable, Sequence

from uetproto.engine.contract import Buffer, Rng
from uetproto.engine.memory import with_runs
from uetproto.system_memory import zeros

PERIOD = 1 << 20
"""Number of bytes after which the memory repeats."""
REGION_LENGTH = 1 << 40
"""Length of the regions of endpoints in bytes. It is larger than any message of a profile."""


@with_runs
class Repeating:
    """This class is memory (`engine.memory.Memory`) of `length` bytes, whose content repeats every `PERIOD` bytes."""

    __slots__ = ("_view", "length")

    read_only = False

    def __init__(self, length: int, rng: Rng | None = None) -> None:
        """Fill the memory with random bytes from `rng`, or with zeros if it is None. Zeros take no space until they are
        written."""
        size = min(length, PERIOD)
        self._view = zeros(size)
        if rng is not None and size:
            self._view[:] = rng.getrandbits(8 * size).to_bytes(size, "little")
        self.length = length

    def read(self, offset: int, length: int) -> Buffer:
        at = offset % PERIOD
        if at + length <= PERIOD:
            return self._view[at : at + length]
        return b"".join(self._view[start:end] for start, end in _pieces(at, length))

    def read_run(self, offset: int, size: int, count: int) -> list[Buffer]:
        """Return what `count` calls of `read` would return for pieces of `size` bytes."""
        at, view = offset % PERIOD, self._view
        if at + count * size > PERIOD:
            return [self.read(start, size) for start in range(offset, offset + count * size, size)]
        return [view[start : start + size] for start in range(at, at + count * size, size)]

    def write(self, offset: int, data: Buffer) -> None:
        at = offset % PERIOD
        if at + len(data) <= PERIOD:
            self._view[at : at + len(data)] = data
            return
        done = 0
        for start, end in _pieces(at, len(data)):
            self._view[start:end] = data[done : done + end - start]
            done += end - start

    def writer(self, offset: int, pieces: Sequence[Buffer]) -> Callable[[int], None]:
        """Return a function that writes one of these pieces of equal size, given by its index, to its place from
        `offset` on."""
        size, at, view = len(pieces[0]), offset % PERIOD, self._view
        if at + len(pieces) * size > PERIOD:
            return lambda index: self.write(offset + index * size, pieces[index])

        def write(index: int) -> None:
            start = at + index * size
            view[start : start + size] = pieces[index]

        return write

    def flush(self) -> None:
        """Do nothing, because `write` has changed the memory already."""


def _pieces(at: int, length: int) -> list[tuple[int, int]]:
    """Return start and end of each part of an access that crosses the end of a period."""
    pieces = []
    while length:
        end = min(PERIOD, at + length)
        pieces.append((at, end))
        length -= end - at
        at = 0
    return pieces
