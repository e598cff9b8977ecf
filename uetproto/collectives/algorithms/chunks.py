# SPDX-License-Identifier: GPL-2.0-only
"""This module computes how a vector is cut into chunks (collectives.md §3.1)."""

from collections.abc import Sequence

import numpy as np

from uetproto.collectives.algorithms.schedule import Ints


def size_of(chunk: int, count: int, chunks: int) -> int:
    """Return the number of elements of chunk `chunk`. Sizes of chunks differ by at most one, and the longer chunks come
    first."""
    base, extra = divmod(count, chunks)
    return base + (chunk < extra)


def offset_of(chunk: int, count: int, chunks: int) -> int:
    """Return the index of the element at which chunk `chunk` starts."""
    base, extra = divmod(count, chunks)
    return chunk * base + min(chunk, extra)


def integers(limit: int) -> type[np.signedinteger]:
    """Return int32 if this type can hold numbers up to `limit`, otherwise int64. The smaller type saves memory in a
    large schedule."""
    return np.int32 if limit < 2**31 else np.int64


def bounds(count: int, chunks: int) -> Ints:
    """Return the indices of the elements at which the chunks start, followed by the number of elements of the
    vector."""
    index = np.arange(chunks + 1, dtype=np.int64)
    base, extra = divmod(count, chunks)
    return (index * base + np.minimum(index, extra)).astype(integers(count))


def bounds_of(sizes: Sequence[int]) -> Ints:
    """Return the indices of the elements at which blocks of these sizes start, followed by the sum of the sizes."""
    return np.concatenate([[0], np.cumsum(np.asarray(sizes, dtype=np.int64))]).astype(integers(sum(sizes)))
