# SPDX-License-Identifier: GPL-2.0-only
"""This module defines what counts as a tensor: a `Tensor`, a NumPy array, or an object with a buffer in CPU memory such
as a torch tensor.

Every read or write of the elements of a `Tensor` first waits for the operations that use these elements, as with
tensors in the memory of a GPU (collectives.md §1.2). Therefore views of a `Tensor` are `Tensor` objects, too, and
conversions are copies. torch is not imported.
"""

import ctypes
import os
import sys
import sysconfig
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple, Protocol

import numpy as np

from uetproto.api.distributed.errors import BackendArgumentError, TensorError, modified, refused
from uetproto.collectives.dtypes import Array, dtype, is_whole
from uetproto.errors import LocalError, UetError

_LEGAL = "a NumPy array, or a torch tensor in CPU memory"
_FOLDERS = tuple(str(Path(file).parent) + os.sep for file in (__file__, np.__file__))
"""Folders whose code reads a tensor because a program asked for it, as the standard library does."""
_STANDARD = sysconfig.get_path("stdlib") + os.sep

_PROPERTIES = frozenset({"dtype", "itemsize", "nbytes", "ndim", "shape", "size", "strides"})
_VIEWS = frozenset({"T", "imag", "mT", "ravel", "real", "reshape", "squeeze", "swapaxes", "transpose", "view"})
"""Attributes of arrays whose value shares the memory, or is a copy."""
_READS = frozenset({
    "all", "any", "argmax", "argmin", "argsort", "astype", "clip", "conj", "copy", "cumprod", "cumsum", "dot",
    "flatten", "item", "max", "mean", "min", "nonzero", "prod", "repeat", "round", "searchsorted", "std", "sum", "take",
    "tobytes", "tolist", "trace", "var",
})  # fmt: skip
_WRITES = frozenset({"fill", "partition", "put", "sort"})


class TensorOperation(Protocol):
    """This protocol describes an operation as its tensors see it: it has only the attributes and methods that a tensor
    needs."""

    done: bool
    error: UetError | None
    awaited: bool

    @property
    def name(self) -> str:
        """Return the name of the operation as reports show it, with its arguments."""

    def settle(self, why: str) -> None:
        """Wait until the operation is done; raise its error if it has failed. The report of a deadlock shows `why` as
        the reason why the rank waits."""


class _Use(NamedTuple):
    operation: TensorOperation
    array: Array
    writes: bool


class TensorMemory(np.ndarray[Any, Any]):
    """This class is the memory of a tensor: it holds the elements, and knows which operations use them. It is the base
    array of the tensor and of all views of the tensor."""

    uses: list[_Use]

    def add(self, operation: TensorOperation, array: Array, writes: bool) -> None:
        """Note that an operation uses `array`, a part of the memory, until it is done. If this operation writes the
        part, errors of earlier writes of the part are forgotten: a read of the part no longer raises them."""
        if writes:
            self._renew(array)
        self.uses.append(_Use(operation, array, writes))

    def read(self, array: Array) -> None:
        """Wait for the operations that write `array`, a part of the memory, and raise the error of one that has failed.

        Warns if the program has not called `wait()` for such an operation.
        """
        for use in self._used(array):
            if not use.writes:
                continue
            if not use.operation.done:
                file, line = _place()
                if not use.operation.awaited:
                    text = f"{use.operation.name}: its tensor is read before wait(); the read waits for it"
                    warnings.warn_explicit(text, UserWarning, file, line)
                use.operation.settle(f"its tensor is read at {Path(file).name}:{line}")
            if use.operation.error is not None:
                raise use.operation.error

    def write(self, array: Array, whole: bool) -> None:
        """Wait for the operations that use `array`, a part of the memory that the program is about to change. `whole`
        says whether the program changes every element of the part.

        Raises `BufferModifiedError` if the program has not called `wait()` for one of these operations.
        """
        for use in self._used(array):
            if not use.operation.done:
                if not use.operation.awaited:
                    raise modified(use.operation.name)
                file, line = _place()
                use.operation.settle(f"its tensor is written at {Path(file).name}:{line}")
        if whole:
            self._renew(array)

    def _used(self, array: Array) -> list[_Use]:
        self.uses = [use for use in self.uses if not use.operation.done or (use.writes and use.operation.error)]
        return [use for use in self.uses if np.may_share_memory(use.array, array)]

    def _renew(self, array: Array) -> None:
        """Drop the operations that have failed and whose part of the memory is written anew."""
        if is_whole(array):
            self.uses = [use for use in self.uses if not (use.operation.done and _is_within(use.array, array))]


def _is_within(part: Array, array: Array) -> bool:
    (first, end), (start, behind) = span(part), span(array)
    return start <= first and end <= behind


def span(array: Array) -> tuple[int, int]:
    """Return the address of the first byte of a contiguous array, and the address behind its last byte."""
    start: int = array.__array_interface__["data"][0]
    return start, start + array.nbytes


def memory_of(array: Array) -> TensorMemory | None:
    """Return the memory of the `Tensor` to which an array belongs, or None for any other array."""
    owner: Any = array
    while owner is not None and not isinstance(owner, TensorMemory):
        owner = getattr(owner, "base", None)
    return owner


def _is_inside(file: str) -> bool:
    return file.startswith(_FOLDERS) or (file.startswith(_STANDARD) and "site-packages" not in file)


def _place() -> tuple[str, int]:
    """Return the file and the line of the program that reads or writes a tensor."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_back is not None and _is_inside(frame.f_code.co_filename):
        frame = frame.f_back
    return ("", 0) if frame is None else (frame.f_code.co_filename, frame.f_lineno)


class Tensor(np.lib.mixins.NDArrayOperatorsMixin):
    """This class holds elements as a NumPy array does, with the operators, the functions and most of the methods of an
    array.

    Every read of elements waits for the operations that write them, and raises the error of such an operation if it has
    failed. Indexing gives an element or a view, which is a `Tensor`, too. `numpy.asarray(tensor)` is a read-only copy.
    """

    __slots__ = ("_array",)

    def __init__(self, values: Any, dtype: Any = None) -> None:
        """Make a tensor with a copy of `values`, which are an array, a tensor, or numbers in lists."""
        try:
            found = np.asarray(array_of("values", values) if hasattr(values, "data_ptr") else values, dtype)
        except (TypeError, ValueError) as error:
            raise (
                error if isinstance(error, UetError) else TensorError("values", error, _LEGAL, id="wrong-type")
            ) from None
        if found.dtype.hasobject:
            raise TensorError("values", f"elements of type {found.dtype}", "numbers", id="wrong-type")
        memory = TensorMemory(found.shape, found.dtype)
        memory.uses = []
        self._array: Array = memory.view(np.ndarray)
        self._array[...] = found

    # Doors: whatever reads or writes elements goes through one of these

    @property
    def _memory(self) -> TensorMemory:
        memory = memory_of(self._array)
        assert memory is not None
        return memory

    def _read(self) -> Array:
        self._memory.read(self._array)
        return self._array

    def _written(self, whole: bool = False) -> Array:
        self._memory.write(self._array, whole)
        return self._array

    def _viewed(self, make: Callable[[Array], Any]) -> Any:
        """Return what an access to the array gives: a view of the memory as it is, anything else after a wait."""
        value = make(self._array)
        if isinstance(value, np.ndarray) and np.may_share_memory(value, self._array):
            view = Tensor.__new__(Tensor)
            view._array = value
            return view
        return _wrapped(make(self._read()))

    def numpy(self) -> Array:
        """Wait for the operations that write the elements, and then return a copy of the elements as a NumPy array."""
        return self._read().copy()

    # What NumPy and Python call

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        if copy is False:
            raise ValueError("a Tensor becomes an array only by a copy")
        found = np.array(self._read(), dtype)
        found.flags.writeable = bool(copy)  # to change a copy by mistake is no change of the tensor
        return found

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        arrays = [_plain(value) for value in inputs]
        outputs = options.pop("out", None) or ()
        if "where" in options:
            options["where"] = _plain(options["where"])
        if method == "at" and isinstance(inputs[0], Tensor):
            inputs[0]._written()
        whole = "where" not in options
        if outputs:
            options["out"] = tuple(out._written(whole) if isinstance(out, Tensor) else out for out in outputs)
        found = getattr(ufunc, method)(*arrays, **options)
        if not isinstance(found, tuple):
            return outputs[0] if outputs else _wrapped(found)
        given = outputs or (None,) * len(found)
        return tuple(_wrapped(one) if out is None else out for one, out in zip(found, given, strict=True))

    def __getattr__(self, name: str) -> Any:
        if name in _PROPERTIES:
            return getattr(self._array, name)
        if name in _VIEWS and not callable(getattr(self._array, name)):
            return self._viewed(lambda array: getattr(array, name))
        if name in _VIEWS:
            return lambda *args, **kwargs: self._viewed(lambda array: getattr(array, name)(*args, **kwargs))
        if name in _READS:
            return lambda *args, **kwargs: _called(getattr(self._read(), name), args, kwargs)
        if name in _WRITES:
            return lambda *args, **kwargs: _called(getattr(self._written(name == "fill"), name), args, kwargs)
        raise AttributeError(f"a Tensor has no {name}: numpy.asarray(tensor) is a copy that has all of an array")

    def _part(self, key: Any) -> Array:
        """Return the part of the array that an index selects: a view for an index of numbers and slices."""
        keys = key if isinstance(key, tuple) else (key,)
        return self._array[keys if any(each is Ellipsis for each in keys) else (*keys, Ellipsis)]

    def __getitem__(self, key: Any) -> Any:
        key = _plain_key(key)
        part = self._part(key)
        if part.ndim or not np.may_share_memory(part, self._array):
            return self._viewed(lambda array: array[key])
        self._memory.read(part)
        return _wrapped(self._array[key])

    def __setitem__(self, key: Any, value: Any) -> None:
        key, value = _plain_key(key), _plain(value)
        part = self._part(key)
        is_view = np.may_share_memory(part, self._array)
        self._memory.write(part if is_view else self._array, whole=is_view)
        self._array[key] = value

    def __len__(self) -> int:
        return len(self._array)

    def __iter__(self) -> Iterator[Any]:
        return (self[number] for number in range(len(self)))

    def __contains__(self, value: Any) -> bool:
        return _plain(value) in self._read()

    def __bool__(self) -> bool:
        return bool(self._read())

    def __int__(self) -> int:
        return int(self._read())

    def __float__(self) -> float:
        return float(self._read())

    def __complex__(self) -> complex:
        return complex(self._read())

    def __index__(self) -> int:
        return self._read().__index__()

    def __bytes__(self) -> bytes:
        return self._read().tobytes()

    def __buffer__(self, flags: int) -> memoryview:
        return np.asarray(self).data

    def __dlpack__(self, **options: Any) -> Any:
        return self.numpy().__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[Any, int]:
        return self._array.__dlpack_device__()

    def __reduce__(self) -> tuple[Any, ...]:
        return Tensor, (self.numpy(),)

    def __str__(self) -> str:
        return str(self._read())

    def __format__(self, spec: str) -> str:
        return format(self._read(), spec)

    def __repr__(self) -> str:
        array = self._read()
        return f"Tensor({np.array2string(array, separator=', ', prefix='Tensor(')}, dtype={array.dtype})"


def _plain(value: Any) -> Any:
    """Return the array of a tensor when it may be read, and any other value as it is."""
    return value._read() if isinstance(value, Tensor) else value


def _plain_key(key: Any) -> Any:
    return tuple(map(_plain, key)) if isinstance(key, tuple) else _plain(key)


def _wrapped(value: Any) -> Any:
    """Return a result: an array as a tensor with memory of its own, anything else as it is."""
    return Tensor(value) if isinstance(value, np.ndarray) else value


def _called(method: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return the result of a method of an array, for arguments that may be tensors."""
    out = kwargs.pop("out", None)
    found = method(*map(_plain, args), **{name: _plain(value) for name, value in kwargs.items()})
    if out is None:
        return tuple(map(_wrapped, found)) if isinstance(found, tuple) else _wrapped(found)
    out[...] = found
    return out


# Arrays over the memory of tensors


def array_of(name: str, value: Any) -> Array:
    """Return an array that shares the memory of the tensor `value`. Raises `TensorError` if `value` is no tensor;
    `name` is the argument's name in the error."""
    if isinstance(value, Tensor):
        return value._array.view()
    if isinstance(value, np.ndarray):
        if type(value) not in (np.ndarray, np.memmap):  # such as a masked array, whose mask would be lost
            raise TensorError(name, type(value).__name__, f"{_LEGAL}, as numpy.asarray(…) makes it", id="wrong-type")
        return value
    if isinstance(value, (np.generic, type)) or not (
        hasattr(value, "data_ptr") or hasattr(value, "__array_interface__")
    ):
        raise TensorError(name, type(value).__name__, _LEGAL, id="wrong-type")
    try:
        return _shared(name, value)
    except LocalError:
        raise
    except Exception as error:  # such as a sparse tensor
        raise TensorError(name, f"{type(value).__name__}: {error}", _LEGAL, id="wrong-type") from error


def _shared(name: str, value: Any) -> Array:
    """Return an array that shares the memory of an object."""
    if not hasattr(value, "data_ptr"):
        return np.asarray(value)
    device = getattr(getattr(value, "device", None), "type", "cpu")
    if device != "cpu":
        raise refused(name, f"a tensor in {device} memory", _LEGAL, id="wrong-type")
    value = value.detach() if hasattr(value, "detach") else value
    try:
        return np.asarray(value.numpy())
    except TypeError:  # bfloat16, float8: torch has no NumPy type for them
        return _by_address(name, value)


def _by_address(name: str, value: Any) -> Array:
    """Return an array over the bytes of a contiguous torch tensor, and keep the tensor alive as long as the array."""
    if not value.is_contiguous():
        raise refused(name, "a tensor with strides", "a contiguous tensor", id="not-contiguous")
    try:
        type_ = dtype(str(value.dtype).removeprefix("torch."))
    except LocalError as error:
        raise BackendArgumentError(f"{name}: {error.name}", error.value, error.legal, id=error.id) from None
    length = value.numel() * value.element_size()
    memory = (ctypes.c_uint8 * length).from_address(value.data_ptr() if length else 0)
    memory._tensor = value
    shape = tuple(value.shape)
    return np.frombuffer(memory, dtype=np.uint8).view(type_).reshape(shape) if length else np.empty(shape, type_)
