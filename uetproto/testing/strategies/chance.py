"""This module lets Hypothesis decide what code decides by chance that draws from a source of random numbers."""

from hypothesis import strategies as st

_PARTS = 1 << 20


class DrawnChance:
    """A source of random numbers each of which is a draw of Hypothesis, so that it shrinks: to 0, the first choice."""

    def __init__(self, draw: st.DrawFn) -> None:
        self._draw = draw

    def getrandbits(self, k: int, /) -> int:
        return self._draw(st.integers(0, (1 << k) - 1))

    def random(self) -> float:
        return self._draw(st.integers(0, _PARTS - 1)) / _PARTS
