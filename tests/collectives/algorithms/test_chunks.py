# SPDX-License-Identifier: GPL-2.0-only
"""How vectors are cut (invariant 17)."""

from hypothesis import given
from hypothesis import strategies as st

from uetproto.collectives.algorithms.chunks import bounds, bounds_of, offset_of, size_of


@given(count=st.integers(0, 10**12), chunks=st.integers(1, 200))
def test_chunks_cover_the_vector_evenly(count: int, chunks: int) -> None:
    sizes = [size_of(chunk, count, chunks) for chunk in range(chunks)]
    assert sum(sizes) == count
    assert max(sizes) - min(sizes) <= 1
    offsets = [offset_of(chunk, count, chunks) for chunk in range(chunks)]
    assert offsets == [sum(sizes[:chunk]) for chunk in range(chunks)]
    assert bounds(count, chunks).tolist() == [*offsets, count] == bounds_of(sizes).tolist()


def test_the_golden_chunks() -> None:  # collectives.md §6.4
    assert [size_of(chunk, 10, 4) for chunk in range(4)] == [3, 3, 2, 2]
    assert [offset_of(chunk, 10, 4) for chunk in range(4)] == [0, 3, 6, 8]
