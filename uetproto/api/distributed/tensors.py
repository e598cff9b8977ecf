"""Tensors: NumPy arrays, and objects with a buffer in CPU memory such as torch tensors; torch is not imported.

Nothing is copied: an array shares the memory of its tensor.
"""

import ctypes
import zlib
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from uetproto.api.distributed.errors import ArgumentError, TensorError, invalid
from uetproto.collectives.dtypes import REAL_OF, Array, bytes_of, dtype, is_whole, kind_of
from uetproto.errors import LocalError

_LEGAL = "a NumPy array, or a torch tensor in CPU memory"


def tensor(name: str, value: Any, writable: bool = False) -> Array:
    """Return the array of a tensor. Raises `TensorError` if it is none, `ArgumentError` if it cannot be sent."""
    array = _array(name, value)
    try:
        kind_of(array.dtype)
    except LocalError as error:
        raise ArgumentError(f"{name}: {error.name}", error.value, error.legal) from None
    if not is_whole(array):
        raise invalid(name, f"strides {array.strides}", "a contiguous tensor: numpy.ascontiguousarray(…)")
    if writable and not array.flags.writeable:
        raise invalid(name, "read-only", "a writable tensor that no other operation is using")
    return array


def _array(name: str, value: Any) -> Array:
    if isinstance(value, np.ndarray):
        if type(value) not in (np.ndarray, np.memmap):  # such as a masked array, whose mask would be lost
            raise TensorError(name, type(value).__name__, f"{_LEGAL}, as numpy.asarray(…) makes it")
        return value
    if isinstance(value, (np.generic, type)) or not (
        hasattr(value, "data_ptr") or hasattr(value, "__array_interface__")
    ):
        raise TensorError(name, type(value).__name__, _LEGAL)
    try:
        return _shared(name, value)
    except LocalError:
        raise
    except Exception as error:  # such as a sparse tensor
        raise TensorError(name, f"{type(value).__name__}: {error}", _LEGAL) from error


def _shared(name: str, value: Any) -> Array:
    """Return an array that shares the memory of an object."""
    if not hasattr(value, "data_ptr"):
        return np.asarray(value)
    device = getattr(getattr(value, "device", None), "type", "cpu")
    if device != "cpu":
        raise invalid(name, f"a tensor in {device} memory", _LEGAL)
    value = value.detach() if hasattr(value, "detach") else value
    try:
        return np.asarray(value.numpy())
    except TypeError:  # bfloat16, float8: torch has no NumPy type for them
        return _by_address(name, value)


def _by_address(name: str, value: Any) -> Array:
    """Return an array over the bytes of a contiguous torch tensor, and keep the tensor alive as long as the array."""
    if not value.is_contiguous():
        raise invalid(name, "a tensor with strides", "a contiguous tensor")
    try:
        type_ = dtype(str(value.dtype).removeprefix("torch."))
    except LocalError as error:
        raise ArgumentError(f"{name}: {error.name}", error.value, error.legal) from None
    length = value.numel() * value.element_size()
    memory = (ctypes.c_uint8 * length).from_address(value.data_ptr() if length else 0)
    memory._tensor = value
    shape = tuple(value.shape)
    return np.frombuffer(memory, dtype=np.uint8).view(type_).reshape(shape) if length else np.empty(shape, type_)


def tensors(name: str, values: Any, count: int, writable: bool = False) -> list[Array]:
    """Return the arrays of a list of `count` tensors. Raises `TensorError` or `ArgumentError`."""
    if isinstance(values, np.ndarray) or not isinstance(values, Sequence):
        raise TensorError(name, type(values).__name__, f"a list of {count} tensors")
    if len(values) != count:
        raise invalid(name, f"{len(values)} tensors", f"{count}, one for each rank of the group")
    arrays = [tensor(f"{name}[{number}]", value, writable) for number, value in enumerate(values)]
    if writable:
        _apart(name, arrays)
    return arrays


def _apart(name: str, arrays: Sequence[Array]) -> None:
    """Raises `ArgumentError` if two outputs share memory: one would overwrite the data of the other."""
    places = sorted((array.ctypes.data, array.nbytes, number) for number, array in enumerate(arrays) if array.nbytes)
    for (start, length, number), (behind, _, other) in pairwise(places):
        if start + length > behind:
            shown = " and ".join(f"{name}[{one}]" for one in sorted((number, other)))
            raise invalid(name, f"{shown} share memory", "tensors apart from each other")


def same_type(inputs: Sequence[Array], outputs: Sequence[Array]) -> np.dtype[Any]:
    """Return the type that all tensors of a call share (collectives.md §1.1). Raises `ArgumentError` if the types
    differ.

    A call may mix tensors of a complex type and of the real type of its parts: the complex type is returned. If an
    input is complex, all outputs must be complex.
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
        raise invalid("dtype", types_text, "the same for all tensors of a call")
    if where[whole] == "inputs" and any(array.dtype.name != whole for array in outputs):
        raise invalid("dtype", f"inputs {whole}, outputs {REAL_OF[whole]}", f"outputs {whole}")
    return types[whole]


def same_size(name: str, arrays: Sequence[Array], size: int | None = None) -> None:
    """Raise `ArgumentError` if the tensors of a list have different numbers of elements."""
    sizes = sorted({array.size for array in arrays} | (set() if size is None else {size}))
    if len(sizes) > 1:
        raise invalid(name, f"tensors of {', '.join(map(str, sizes))} elements", "the same size for all")


class TensorLocks:
    """Makes the tensors of a rank read-only while operations use them (collectives.md §1.4)."""

    def __init__(self) -> None:
        self._count: dict[int, int] = {}
        self._late: list[Array] = []
        """Arrays that cannot be unlocked yet: views of an array that is still locked."""

    @property
    def any(self) -> bool:
        """Return whether a tensor is locked."""
        return bool(self._count)

    def lock(self, array: Array) -> bool:
        """Make an array read-only; return False, and do nothing, if it was read-only before."""
        count = self._count.get(id(array), 0)
        if not count and not array.flags.writeable:
            return False
        self._count[id(array)] = count + 1
        array.flags.writeable = False
        return True

    def unlock(self, array: Array) -> None:
        """Undo one `lock`."""
        self._count[id(array)] -= 1
        if self._count[id(array)]:
            return
        del self._count[id(array)]
        self._late.insert(0, array)  # it may be the base of the others
        self._late = [late for late in self._late if not _unlocked(late)]


def _unlocked(array: Array) -> bool:
    """Makes an array writable; returns False if its base is read-only."""
    try:
        array.flags.writeable = True
    except ValueError:
        return False
    return True


class TensorInUse:
    """A tensor that is locked, because it must not change while an operation uses it (collectives.md §1.4)."""

    def __init__(self, array: Array, read: bool, locks: TensorLocks) -> None:
        """Locks the tensor. `read`: the operation only reads it, so that `release` can find a change."""
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
