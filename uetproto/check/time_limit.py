"""What a fuzzer tries must come to an end."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class TooSlow(Exception):  # noqa: N818  it is one of many kinds of finding
    """One input took longer than it may."""


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raises `TooSlow` when `seconds` pass. In the main thread only."""

    def ring(number: int, frame: FrameType | None) -> None:
        raise TooSlow(f"more than {seconds} seconds")

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
