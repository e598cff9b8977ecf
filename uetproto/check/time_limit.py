"""What a fuzzer tries must come to an end: after a time, or when it is told to."""

import gc
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

PULSE = 0.25
"""Seconds of CPU between two looks at `give_up`."""


class TooSlow(Exception):  # noqa: N818  it is one of many kinds of finding
    """One input took longer than it may."""


class GivenUp(BaseException):
    """Nobody waits for what is going on any more; no failure, and nobody on the way may take it for one."""


@contextmanager
def time_limit(seconds: float, give_up: Callable[[], bool] | None = None) -> Iterator[None]:
    """Raises `TooSlow` after so many `seconds` of CPU, `GivenUp` when `give_up()` holds. In the main thread only.

    CPU time: what else the machine does makes nothing a finding.
    """
    pulse = seconds if give_up is None else min(seconds, PULSE)
    passed = 0.0

    def ring(number: int, frame: FrameType | None) -> None:
        nonlocal passed
        passed += pulse
        if _collects_garbage(frame):
            return  # what is raised there gets lost; the next pulse comes
        if give_up is not None and give_up():
            raise GivenUp
        if passed >= seconds:
            raise TooSlow(f"more than {seconds} seconds of CPU")

    before = signal.signal(signal.SIGPROF, ring)
    signal.setitimer(signal.ITIMER_PROF, pulse, pulse)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def _collects_garbage(frame: FrameType | None) -> bool:
    """The signal came while a callback of the garbage collector runs."""
    codes = {getattr(callback, "__code__", None) for callback in gc.callbacks}
    while frame is not None:
        if frame.f_code in codes:
            return True
        frame = frame.f_back
    return False
