# SPDX-License-Identifier: GPL-2.0-only
"""This module defines the element types that collectives move and reduce (collectives.md §1.6), as NumPy data types.

bfloat16 and float8 are types of `ml_dtypes`. This package is imported only when one of its types is named; an array of
such a type exists only if the package was imported before.
"""

from enum import Enum
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from uetproto.errors import LocalError, missing_package, similar

Array: TypeAlias = NDArray[Any]
Bytes: TypeAlias = NDArray[np.uint8]


class ElementKind(Enum):
    """This enumeration has the classes of element types that a reduction treats alike."""

    BOOL = "bool"
    INT = "int"
    FLOAT = "float"
    COMPLEX = "complex"


_EXTENSIONS = {"bfloat16": "bfloat16", "float8e4m3": "float8_e4m3fn", "float8e5m2": "float8_e5m2"}
"""Maps names of collectives.md §1.6 to names of `ml_dtypes`."""

KINDS = {
    "bool": ElementKind.BOOL,
    **dict.fromkeys(("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"), ElementKind.INT),
    **dict.fromkeys(("float16", "float32", "float64", *_EXTENSIONS.values()), ElementKind.FLOAT),
    **dict.fromkeys(("complex64", "complex128"), ElementKind.COMPLEX),
}
"""Maps the NumPy name of every legal element type to its `ElementKind`."""

REAL_OF = {"complex64": "float32", "complex128": "float64"}
"""Maps each complex type to the type of its real and imaginary parts. One call may mix both types (collectives.md
§1.1)."""


def dtype(name: str) -> np.dtype[Any]:
    """Return the element type with a name of collectives.md §1.6, NumPy or ml_dtypes. Raises `LocalError` for another
    name."""
    name = _EXTENSIONS.get(name, name)
    if name not in KINDS:
        raise LocalError("dtype", f"{name!r} is not legal{similar(name, KINDS)}", ", ".join(KINDS), id="unknown-name")
    if name not in _EXTENSIONS.values():
        return np.dtype(name)
    try:
        import ml_dtypes
    except ImportError:
        raise missing_package(f"dtype {name}", "ml_dtypes", "ml") from None
    found: np.dtype[Any] = np.dtype(getattr(ml_dtypes, name))
    return found


def kind_of(type_: np.dtype[Any]) -> ElementKind:
    """Return the class of an element type. Raises `LocalError` for a type that cannot be sent, and for foreign byte
    order."""
    if type_.name not in KINDS or not type_.isnative:
        raise LocalError("dtype", f"{type_!r}; legal, in native byte order: {', '.join(KINDS)}", id="unknown-name")
    return KINDS[type_.name]


def is_whole(array: Array) -> bool:
    """Return whether the elements of an array are contiguous in memory, so that they can be sent without a copy."""
    return bool(array.flags.c_contiguous)


def bytes_of(array: Array) -> Bytes:
    """Return the bytes of a contiguous array without a copy."""
    return array.reshape(-1).view(np.uint8)
