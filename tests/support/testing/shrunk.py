# SPDX-License-Identifier: GPL-2.0-only
"""This module finds the smallest value of a strategy, as Hypothesis shrinks it."""

from collections.abc import Callable
from typing import TypeVar

from hypothesis import Phase, find, settings
from hypothesis.strategies import SearchStrategy

T = TypeVar("T")


def shrunk(strategy: SearchStrategy[T], holds: Callable[[T], bool]) -> T:
    """Return the value of which `holds`, shrunk."""
    tries = settings(max_examples=3000, database=None, derandomize=True, phases=[Phase.generate, Phase.shrink])
    return find(strategy, holds, settings=tries)
