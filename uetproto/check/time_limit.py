# SPDX-License-Identifier: GPL-2.0-only
"""This module stops the run of one fuzzer input after a limit of CPU time, or when the caller gives up."""

import gc
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

PULSE = 0.25
"""Seconds between two calls of `give_up`, in CPU time, or of the function of `pulse`."""


class TooSlow(Exception):  # noqa: N818  it is one of many kinds of finding
    """This exception says that the time limit expired before an input was processed."""


class GivenUp(BaseException):
    """This exception says that the caller gave up. It is a `BaseException`, so that it is not taken for a failure."""


@contextmanager
def time_limit(seconds: float, give_up: Callable[[], bool] | None = None) -> Iterator[None]:
    """Return a context manager that raises `TooSlow` after `seconds` of CPU time, and `GivenUp` as soon as `give_up()`
    is true. It works in the main thread only.

    CPU time is measured so that other load on the machine causes no finding.
    """
    pulse = seconds if give_up is None else min(seconds, PULSE)
    passed = 0.0

    def expire(number: int, frame: FrameType | None) -> None:
        nonlocal passed
        passed += pulse
        if _collects_garbage(frame):
            return  # an exception would be lost in the callback; the next signal raises it
        if give_up is not None and give_up():
            raise GivenUp
        if passed >= seconds:
            raise TooSlow(f"more than {seconds} seconds of CPU")

    before = signal.signal(signal.SIGPROF, expire)
    signal.setitimer(signal.ITIMER_PROF, pulse, pulse)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


@contextmanager
def pulse(check: Callable[[], None]) -> Iterator[None]:
    """Return a context manager that calls `check` again and again while time passes, also while the program sleeps.

    What `check` raises ends the block. It works in the main thread only. A timer that was set before goes on.
    """
    start = time.monotonic()

    def expire(number: int, frame: FrameType | None) -> None:
        if 0 < due <= time.monotonic() - start and callable(before):
            before(number, frame)
        if not _collects_garbage(frame):
            check()

    before = signal.signal(signal.SIGALRM, expire)
    due, interval = signal.setitimer(signal.ITIMER_REAL, PULSE, PULSE)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        if due:
            signal.setitimer(signal.ITIMER_REAL, max(0.001, due - (time.monotonic() - start)), interval)


def _collects_garbage(frame: FrameType | None) -> bool:
    """Return whether the signal came while a callback of the garbage collector runs."""
    codes = {getattr(callback, "__code__", None) for callback in gc.callbacks}
    while frame is not None:
        if frame.f_code in codes:
            return True
        frame = frame.f_back
    return False
