# SPDX-License-Identifier: GPL-2.0-only
"""Memory in buffers and files (ses.md §2.6, §2.8)."""

import io
from array import array

import hypothesis.strategies as st
import pytest
from hypothesis import given

from uetproto.engine import BufferMemory, FileMemory, Region
from uetproto.errors import LocalError

SIZE = 300


@given(steps=st.lists(st.tuples(st.integers(0, SIZE - 1), st.binary(max_size=70)), max_size=20),
       window=st.integers(1, 90), windows=st.integers(1, 3), there=st.integers(0, SIZE))  # fmt: skip
def test_a_file_is_like_a_buffer(steps: list[tuple[int, bytes]], window: int, windows: int, there: int) -> None:
    """Windows, evictions, a file shorter than the memory: what was written is read, and is in the file in the end."""
    file = io.BytesIO(b"\xaa" * there)
    memory, model = FileMemory(file, SIZE, window, windows), bytearray((b"\xaa" * there).ljust(SIZE, b"\0"))
    for offset, data in steps:
        data = data[: SIZE - offset]
        memory.write(offset, data)
        model[offset : offset + len(data)] = data
        assert bytes(memory.read(offset // 2, SIZE - offset)) == model[offset // 2 : offset // 2 + SIZE - offset]
    memory.flush()
    assert file.getvalue().ljust(SIZE, b"\0") == model


def test_buffers_of_other_types() -> None:
    numbers = array("I", [1, 2, 3])
    memory = BufferMemory(numbers)
    memory.write(4, (7).to_bytes(4, "little"))
    assert (memory.length, list(numbers)) == (12, [1, 7, 3])
    with pytest.raises(LocalError, match="no contiguous buffer"):
        BufferMemory(5)


@pytest.mark.parametrize(("offset", "length", "inside"), [
    (0x1000, 16, True), (0x1000, 17, False), (0xFFF, 1, False), (0x1010, 0, True), (0x1011, 0, False),
    ((1 << 64) - 1, 2, False),
])  # fmt: skip
def test_bounds(offset: int, length: int, inside: bool) -> None:
    """ses.md §10 step 14."""
    assert Region(1, bytearray(16), base=0x1000).covers(offset, length) is inside


@pytest.mark.parametrize("key", [-1, 1 << 64, 1 << 56])
def test_illegal_keys(key: int) -> None:
    with pytest.raises(LocalError, match="key"):
        Region(key, bytearray(1))


def test_a_key_is_registered_once() -> None:
    from uetproto.engine.ses.checks import Processes

    process = Processes().attach(1, 0, (15,))
    process.register(Region(1, bytearray(1)))
    with pytest.raises(LocalError, match="registered already"):
        process.register(Region(1, bytearray(1)))
