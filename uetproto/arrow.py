# SPDX-License-Identifier: GPL-2.0-only
"""This module makes tables of Arrow from arrays of NumPy.

Only this module and `parquet.py` import pyarrow, and only when a table is asked for.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from uetproto.errors import missing_package


def pyarrow_for(what: str) -> Any:
    """Return the package pyarrow. Raises `MissingPackageError` that names `what` if it is not installed."""
    try:
        import pyarrow
    except ImportError:
        raise missing_package(what, "pyarrow", "parquet") from None
    return pyarrow


def arrow_array(pa: Any, values: NDArray[Any], absent: NDArray[np.bool_] | None = None) -> Any:
    """Return an array of Arrow; values that are `absent` are null. Bytes of a fixed size are binary."""
    if values.dtype.kind == "V":
        size = values.dtype.itemsize
        data = pa.py_buffer(np.ascontiguousarray(values).tobytes())
        return pa.FixedSizeBinaryArray.from_buffers(pa.binary(size), len(values), [None, data])
    return pa.array(values, mask=absent)


def arrow_table(columns: Mapping[str, NDArray[Any]], what: str) -> Any:
    """Return a table with a column for each array. Raises `MissingPackageError` that names `what` without pyarrow."""
    pa = pyarrow_for(what)
    return pa.table({name: arrow_array(pa, values) for name, values in columns.items()})
