# SPDX-License-Identifier: GPL-2.0-only
"""This module makes real tensors for a collective, and checks the results of the collective against NumPy.

Elements are random numbers from a seed. Floats are small whole numbers, whose sums have the same bits in any order of
additions. Narrow types and AVG may round nevertheless, so that their results may differ by one rounding for each rank.
"""

import random
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np

from uetproto.collectives.algorithms.schedule import IN_PLACE, REDUCING, Schedule
from uetproto.collectives.dtypes import Array, Bytes, ElementKind, bytes_of, kind_of
from uetproto.collectives.reduce_ops import ReduceOp
from uetproto.errors import LocalError
from uetproto.system_memory import same_bytes

Dtype: TypeAlias = np.dtype[Any]
"""Type of the NumPy data types that elements of tensors have."""

ON_BLOCKS = frozenset({"reduce_scatter", "all_gather", "scatter", "gather", "all_to_all"})
"""Operations whose vector has one block for each rank."""

PieceDrawer: TypeAlias = Callable[[slice], None]
"""Type of a function that draws the elements of a piece of a tensor."""
_PIECE = 1 << 16
"""Number of elements that are drawn or reduced at a time: few enough for the caches of a processor."""
_LARGEST = 4
"""Largest float: floats are drawn from -3 … 4."""

_UFUNCS: dict[str, Any] = {
    "SUM": np.add, "AVG": np.add, "PRODUCT": np.multiply, "MIN": np.minimum, "MAX": np.maximum,
    "BAND": np.bitwise_and, "BOR": np.bitwise_or, "BXOR": np.bitwise_xor,
}  # fmt: skip


def check_sample(op: str, size: int, length: int, dtype: Dtype, reduce_op: ReduceOp) -> int:
    """Return the number of elements of a full vector of `length` bytes.

    Raises `LocalError` if the operation cannot reduce the type, or if the length is no whole number of elements or of
    equal blocks.
    """
    if op in REDUCING:
        reduce_op.check(dtype)
    item = dtype.itemsize * (size if op in ON_BLOCKS else 1)
    if length % item:
        what = (
            f"equal blocks of {dtype.name} over {size} ranks" if op in ON_BLOCKS else f"whole elements of {dtype.name}"
        )
        raise LocalError("bytes", f"{length}, but {op} takes {what}", f"multiples of {item}", id="uneven-split")
    return length // dtype.itemsize


class Sample:
    """This class holds the tensors of all ranks, `inputs` and `outputs`. Both are the same arrays if the collective
    works in place."""

    def __init__(self, schedule: Schedule, dtype: Dtype, reduce_op: ReduceOp, seed: int) -> None:
        self.op = schedule.op
        self.root = schedule.root or 0
        self.size = schedule.size
        self.reduce_op = reduce_op
        counts = [schedule.counts(rank) for rank in range(self.size)]
        ends = np.cumsum([count.input for count in counts])
        self.inputs = np.split(np.empty(ends[-1], dtype), ends[:-1])  # one block has the most huge pages
        draw = [_drawer(random.Random(f"{seed} {rank}"), array, reduce_op) for rank, array in enumerate(self.inputs)]
        if self.op in IN_PLACE and self.op != "broadcast":
            self.outputs, self._result = self.inputs, self._reduced(draw)
            return
        for array, one in zip(self.inputs, draw, strict=True):
            for piece in _pieces(array.size):
                one(piece)
        if self.op == "broadcast":
            self.outputs, self._result = self.inputs, self.inputs[self.root].copy()
        else:
            self.outputs = [np.zeros(count.output, dtype) for count in counts]

    @property
    def correct(self) -> bool:
        """Return whether `outputs` are right. An all_reduce must also give the same bits on all ranks (collectives.md
        §1.3)."""
        outputs = self.outputs
        if self.op == "all_reduce":
            return self._close(outputs[0], self._result) and _same_bits(*outputs)
        if self.op in IN_PLACE:
            ranks = [self.root] if self.op == "reduce" else range(self.size)
            return all(self._close(outputs[rank], self._result) for rank in ranks)
        if self.op == "reduce_scatter":
            blocks = self._reduced().reshape(self.size, -1)
            return all(map(self._close, outputs, blocks))
        if self.op in ("all_gather", "gather"):
            whole = np.concatenate(self.inputs)
            ranks = [self.root] if self.op == "gather" else range(self.size)
            return _same_bits(whole, *(outputs[rank] for rank in ranks))
        if self.op == "scatter":
            return all(map(_same_bits, outputs, self.inputs[self.root].reshape(self.size, -1)))
        if self.op == "all_to_all":
            rows = [array.reshape(self.size, -1) for array in self.inputs]
            return all(_same_bits(output, np.concatenate([row[j] for row in rows])) for j, output in enumerate(outputs))
        return True  # a barrier moves no elements

    def _reduced(self, draw: Sequence[PieceDrawer] = ()) -> Array:
        """Return the reduction by NumPy, rank after rank. `draw` has what draws the pieces of each rank first: then
        each piece is reduced while it is in a cache."""
        name, size = self.reduce_op.name, self.size
        first, *others = self.inputs
        total, combine = np.empty_like(first), _UFUNCS[name]
        with np.errstate(all="ignore"):
            for piece in _pieces(total.size):
                for one in draw:
                    one(piece)
                part = total[piece]
                part[...] = first[piece]
                for array in others:
                    combine(part, array[piece], out=part)
            if name != "AVG":
                return total
            if kind_of(total.dtype) is ElementKind.FLOAT:
                total /= np.array(size).astype(total.dtype)
                return total
        wide = total.astype(np.uint64 if total.dtype.kind == "u" else np.int64)
        average: Array = (np.sign(wide) * (np.abs(wide) // size)).astype(total.dtype)  # towards zero
        return average

    def _close(self, found: Array, right: Array) -> bool:
        if _same_bits(found, right) or kind_of(right.dtype) in (ElementKind.INT, ElementKind.BOOL):
            return _same_bits(found, right)
        wide = np.complex128 if kind_of(right.dtype) is ElementKind.COMPLEX else np.float64
        rounding = self.size * _epsilon(right.dtype)
        return bool(np.allclose(found.astype(wide), right.astype(wide), rtol=rounding, atol=rounding * _LARGEST))


def _pieces(length: int) -> list[slice]:
    """Return the slices into which an array of `length` elements is divided."""
    return [slice(at, at + _PIECE) for at in range(0, length, _PIECE)]


def _drawer(rng: random.Random, elements: Array, reduce_op: ReduceOp) -> PieceDrawer:
    """Return the function that draws the elements of a piece. It is called for one piece after the other."""
    kind = kind_of(elements.dtype)
    integers = kind is ElementKind.INT
    random_bytes = rng.randbytes if elements.size <= _PIECE else _random_bytes(rng)

    def draw(piece: slice) -> None:
        part = elements[piece]
        drawn = np.frombuffer(random_bytes(part.nbytes if integers else part.size), np.uint8)
        if integers:
            part[...] = drawn.view(elements.dtype)
        elif kind is ElementKind.BOOL:
            part[...] = drawn & 1
        elif reduce_op.name == "PRODUCT":
            part[...] = (drawn & 1).view(np.int8) * 2 - 1
        else:
            part[...] = (drawn & 7).view(np.int8) - 3

    return draw


def _random_bytes(rng: random.Random) -> Callable[[int], Bytes]:
    """Return a function that draws bytes by a generator of NumPy, which takes a ninth of the time of `rng.randbytes`.
    Its seed is drawn from `rng`."""
    words = np.random.SFC64(rng.getrandbits(128)).random_raw
    return lambda size: words(-(-size // 8)).astype("<u8", copy=False).view(np.uint8)[:size]


def _same_bits(right: Array, *found: Array) -> bool:
    """Return whether each of several arrays has the bits of the first one."""
    wanted, others = bytes_of(right).data, [bytes_of(array).data for array in found if array is not right]
    return all(other.nbytes == wanted.nbytes for other in others) and same_bytes(wanted, others)


def _epsilon(dtype: Dtype) -> float:
    """Return the distance from 1 to the next number of a float type."""
    one, epsilon = np.ones(1, dtype), 1.0
    while ((one + np.array([epsilon / 2]).astype(dtype)).astype(dtype) != one).any():
        epsilon /= 2
    return epsilon
