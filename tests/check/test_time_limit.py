# SPDX-License-Identifier: GPL-2.0-only
"""What a fuzzer tries ends: by its time, or because nobody waits any more."""

import gc
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.support.effort import effort
from uetproto.check.time_limit import GivenUp, TooSlow, time_limit


@contextmanager
def told(callback: Callable[[str, dict[str, Any]], None]) -> Iterator[None]:
    """`callback` is called whenever garbage is collected."""
    gc.callbacks.append(callback)
    try:
        yield
    finally:
        gc.callbacks.remove(callback)


def spin() -> None:
    while True:
        pass


def test_too_slow() -> None:
    with pytest.raises(TooSlow, match=r"more than 0\.1 seconds of CPU"), time_limit(0.1):
        spin()


def test_given_up() -> None:
    with pytest.raises(GivenUp), time_limit(60, lambda: True):
        spin()


def test_in_time() -> None:
    with time_limit(60, lambda: False):
        assert sum(range(1000)) == 499500


def collect() -> None:
    """Garbage all the time, or nearly."""
    while True:
        gc.collect()
        sum(range(1_000_000))


def test_nothing_is_lost_in_a_garbage_collection(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a callback of the collector raises is only printed: the end waits until it is over."""
    lost: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", lost.append)

    def slow(phase: str, info: dict[str, Any]) -> None:
        sum(range(1_000_000))

    with told(slow):
        for _ in range(effort(5, 20, 200)):
            with pytest.raises(TooSlow), time_limit(0.02):
                collect()
    assert not lost
