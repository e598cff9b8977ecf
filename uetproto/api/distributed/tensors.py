# SPDX-License-Identifier: GPL-2.0-only
"""This module checks the tensors of a call and returns their arrays, which share the memory of the tensors: nothing is
copied."""

import zlib
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from uetproto.api.distributed.errors import BackendArgumentError, TensorError, invalid, refused
from uetproto.api.distributed.rank_threads import current_rank
from uetproto.api.distributed.tensor import Tensor, array_of, memory_of
from uetproto.collectives.dtypes import REAL_OF, Array, bytes_of, is_whole, kind_of
from uetproto.errors import LocalError


def tensor(name: str, value: Any, writable: bool = False) -> Array:
    """Return the array of the tensor `value`. Raises `TensorError` if `value` is no tensor, and `ArgumentError` if the
    transports cannot send it or, with `writable`, receive into it.

    In stream mode only a `Tensor` is legal, because only a `Tensor` notices when the program reads its elements.
    """
    array = array_of(name, value)
    if current_rank().streams and not isinstance(value, Tensor):
        raise refused(
            name, f"{type(value).__name__} in stream mode", "a tensor that dist.Tensor(values) makes", id="wrong-type"
        )
    try:
        kind_of(array.dtype)
    except LocalError as error:
        raise BackendArgumentError(f"{name}: {error.name}", error.value, error.legal, id=error.id) from None
    if not is_whole(array):
        raise refused(
            name, f"strides {array.strides}", "a contiguous tensor: numpy.ascontiguousarray(…)", id="not-contiguous"
        )
    if writable and not array.flags.writeable:
        raise invalid(name, "read-only", "a writable tensor that no other operation is using", id="read-only")
    return array


def tensors(name: str, values: Any, count: int, writable: bool = False) -> list[Array]:
    """Return the arrays of the tensors in the list `values`.

    Raises `TensorError` if `values` is no list of tensors. Raises `ArgumentError` if the list does not have `count`
    tensors, if `tensor` refuses one of them, or if `writable` is True and two of them share memory.
    """
    if isinstance(values, np.ndarray) or not isinstance(values, Sequence):
        raise TensorError(name, type(values).__name__, f"a list of {count} tensors", id="wrong-type")
    if len(values) != count:
        raise refused(name, f"{len(values)} tensors", f"{count}, one for each rank of the group", id="wrong-count")
    arrays = [tensor(f"{name}[{number}]", value, writable) for number, value in enumerate(values)]
    if writable:
        _apart(name, arrays)
    return arrays


def _apart(name: str, arrays: Sequence[Array]) -> None:
    """Raise `ArgumentError` if two outputs share memory: one would overwrite the data of the other."""
    places = sorted((array.ctypes.data, array.nbytes, number) for number, array in enumerate(arrays) if array.nbytes)
    for (start, length, number), (behind, _, other) in pairwise(places):
        if start + length > behind:
            shown = " and ".join(f"{name}[{one}]" for one in sorted((number, other)))
            raise invalid(name, f"{shown} share memory", "tensors apart from each other", id="memory-overlaps")


def same_type(inputs: Sequence[Array], outputs: Sequence[Array]) -> np.dtype[Any]:
    """Return the data type that all tensors of a call share (collectives.md §1.1). Raises `ArgumentError` if the types
    differ.

    A call may mix a complex type with the corresponding real type, such as complex64 with float32; then the complex
    type is returned. If an input is complex, all outputs must be complex.
    """
    types: dict[str, np.dtype[Any]] = {}
    where: dict[str, str] = {}
    for name, arrays in (("inputs", inputs), ("outputs", outputs)):
        for array in arrays:
            types.setdefault(array.dtype.name, array.dtype)
            where.setdefault(array.dtype.name, name)
    if len(types) < 2:
        return next(iter(types.values()), np.dtype(np.uint8))
    whole = next((name for name in types if REAL_OF.get(name) in types), None)
    if whole is None or len(types) > 2:
        types_text = ", ".join(f"{name} {type_}" for type_, name in where.items())
        raise invalid("dtype", types_text, "the same for all tensors of a call", id="size-mismatch")
    if where[whole] == "inputs" and any(array.dtype.name != whole for array in outputs):
        raise invalid("dtype", f"inputs {whole}, outputs {REAL_OF[whole]}", f"outputs {whole}", id="size-mismatch")
    return types[whole]


def same_size(name: str, arrays: Sequence[Array], size: int | None = None) -> None:
    """Raise `ArgumentError` if two tensors of a list differ in their number of elements, or if `size` is given and a
    tensor has another number of elements."""
    sizes = sorted({array.size for array in arrays} | (set() if size is None else {size}))
    if len(sizes) > 1:
        raise refused(
            name, f"tensors of {', '.join(map(str, sizes))} elements", "the same size for all", id="uneven-split"
        )


class TensorLocks:
    """This class makes the tensors of a rank read-only while operations use them (collectives.md §1.4)."""

    def __init__(self) -> None:
        self._count: dict[int, int] = {}
        self._late: list[Array] = []
        """Arrays that cannot be unlocked yet: views of an array that is still locked."""

    @property
    def any(self) -> bool:
        """Return whether a tensor is locked."""
        return bool(self._count)

    def lock(self, array: Array) -> bool:
        """Make an array read-only and return True. If it was read-only before, do nothing and return False.

        The array of a `Tensor` stays writable (the result is False), because the `Tensor` itself refuses changes.
        """
        if memory_of(array) is not None:
            return False
        count = self._count.get(id(array), 0)
        if not count and not array.flags.writeable:
            return False
        self._count[id(array)] = count + 1
        array.flags.writeable = False
        return True

    def unlock(self, array: Array) -> None:
        """Undo one call of `lock` for an array; the array is writable again when every call of `lock` for this array is
        undone."""
        self._count[id(array)] -= 1
        if self._count[id(array)]:
            return
        del self._count[id(array)]
        self._late.insert(0, array)  # it may be the base of the others
        self._late = [late for late in self._late if not _unlocked(late)]


def _unlocked(array: Array) -> bool:
    """Make an array writable; return False if its base is read-only."""
    try:
        array.flags.writeable = True
    except ValueError:
        return False
    return True


class TensorInUse:
    """This class locks a tensor, because the tensor must not change while an operation uses it (collectives.md
    §1.4)."""

    def __init__(self, array: Array, read: bool, locks: TensorLocks) -> None:
        """Lock the tensor. `read` says that the operation only reads the tensor, so that `release` can find a
        change."""
        self.array = array
        self.read = read
        self._bytes = bytes_of(array)
        self._sum = zlib.crc32(self._bytes.data) if read else None
        self._locks = locks if locks.lock(array) else None

    def release(self) -> bool:
        """Unlock the tensor; return False if the tensor has changed since it was locked."""
        if self._locks is not None:
            self._locks.unlock(self.array)
        return self._sum is None or zlib.crc32(self._bytes.data) == self._sum
