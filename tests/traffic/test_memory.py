# SPDX-License-Identifier: GPL-2.0-only
"""Memory that repeats: real memory up to a period, and never out of bounds beyond it."""

import random

import pytest

from uetproto.traffic.memory import PERIOD, Repeating


def test_what_is_written_is_read() -> None:
    memory = Repeating(1 << 40)
    for offset in (0, 100, PERIOD - 3, PERIOD - 1, 5 * PERIOD - 2, (1 << 40) - 9):
        memory.write(offset, b"123456789")
        assert bytes(memory.read(offset, 9)) == b"123456789"
        assert bytes(memory.read(offset % PERIOD, 9)) == b"123456789"


@pytest.mark.parametrize("offset", [0, 7, PERIOD - 1, PERIOD, 3 * PERIOD + 11])
def test_more_than_a_period(offset: int) -> None:
    memory = Repeating(1 << 40, random.Random(1))
    once = bytes(memory.read(0, PERIOD))
    assert len(set(once)) == 256
    assert bytes(memory.read(offset, 2 * PERIOD + 5)) == (once * 4)[offset % PERIOD :][: 2 * PERIOD + 5]
    memory.write(offset, once * 2)
    start = offset % PERIOD
    assert bytes(memory.read(0, PERIOD)) == once[PERIOD - start :] + once[: PERIOD - start]


def test_small_ones() -> None:
    memory = Repeating(10, random.Random(1))
    memory.write(2, memoryview(b"abc"))
    assert bytes(memory.read(1, 5))[1:4] == b"abc"
    assert bytes(Repeating(0, random.Random(1)).read(0, 0)) == b""
