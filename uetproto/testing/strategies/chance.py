# SPDX-License-Identifier: GPL-2.0-only
"""This module has a source of random numbers. Hypothesis draws each number, in place of a random generator."""

from hypothesis import strategies as st

_PARTS = 1 << 20


class DrawnChance:
    """This source of random numbers is used in place of `random.Random`. Hypothesis draws each number, and shrinks it
    to 0, which is the first choice."""

    def __init__(self, draw: st.DrawFn) -> None:
        self._draw = draw

    def getrandbits(self, k: int, /) -> int:
        return self._draw(st.integers(0, (1 << k) - 1))

    def random(self) -> float:
        return self._draw(st.integers(0, _PARTS - 1)) / _PARTS
