"""Lists of tensors as one vector: contiguous, and copied only where they are not one."""

from typing import Any

import numpy as np

from uetproto.collectives.dtypes import Array


def shapes(arrays: list[Array]) -> tuple[tuple[int, ...], ...]:
    return tuple(array.shape for array in arrays)


def is_vector(arrays: list[Array], dtype: np.dtype[Any]) -> bool:
    """One tensor of the type of the call: nothing is copied."""
    return len(arrays) == 1 and arrays[0].dtype == dtype


def joined(arrays: list[Array], dtype: np.dtype[Any]) -> Array:
    """One vector."""
    if is_vector(arrays, dtype):
        return arrays[0].reshape(-1)
    parts = [array.reshape(-1).astype(dtype, copy=False) for array in arrays]
    return np.concatenate(parts) if parts else np.empty(0, dtype)


def room(arrays: list[Array], dtype: np.dtype[Any]) -> Array:
    """For one vector."""
    if is_vector(arrays, dtype):
        return arrays[0].reshape(-1)
    return np.empty(sum(array.size for array in arrays), dtype)


__all__ = ["is_vector", "joined", "room", "shapes"]
