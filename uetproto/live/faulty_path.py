# SPDX-License-Identifier: GPL-2.0-only
"""This module puts faults between an engine and its path: frames are lost, copied, delayed, damaged or trimmed, on
their way out and on their way in.

A capture stands between the engine and the faults, as one at a NIC does: it has what the engine sent, and what reached
it.
"""

import random
from collections import deque
from collections.abc import Callable, Sequence

from uetproto.engine.contract import MILLISECOND
from uetproto.framing.dscp import Dscp
from uetproto.impair.faults import Faults, FaultyPort
from uetproto.live.path import Path
from uetproto.live.time import Timers

_RETRY = MILLISECOND
"""Time until frames for which the kernel had no room are offered again."""


class _Way:
    """This class holds the frames that have passed the faults of one direction."""

    def __init__(self, faults: Faults, rng: random.Random, timers: Timers, dscp: Dscp, intact: int) -> None:
        self.passed: deque[bytes] = deque()
        self.port = FaultyPort(timers, self, faults, rng, dscp, intact=intact)
        self.arrived: Callable[[], None] = lambda: None
        """Function that is called for each frame that has passed."""

    def take(self, frame: bytes) -> None:
        self.passed.append(frame)
        self.arrived()


class FaultyPath:
    """This class is a `live.path.Path` in front of another one, with faults in both directions."""

    def __init__(
        self, path: Path, faults: Faults, seed: int | None, timers: Timers, *, dscp: Dscp, intact: int,
        received: bool = True,
    ) -> None:  # fmt: skip
        """Put `faults` in front of `path`, also for what it receives if `received` is true. `intact` is the number of
        first bytes of a frame that are never damaged: a damaged address would reach others. Equal seeds give equal
        faults for equal frames."""
        self._path, self._timers = path, timers
        rng = random.SystemRandom() if seed is None else random.Random(seed)
        ways = (
            _Way(one, random.Random(rng.getrandbits(64)), timers, dscp, intact)
            for one in (faults, faults if received else Faults())
        )
        self._out, self._in = ways
        self._out.arrived = self._sending
        self._offering = self._later = False
        self.name, self.cannot, self.notes, self.link = path.name, path.cannot, path.notes, path.link
        self.buffer, self.counters = path.buffer, path.counters
        self.mtu, self.entropy, self.fileno = path.mtu, path.entropy, path.fileno

    @property
    def done(self) -> dict[str, dict[str, int]]:
        """Return how many faults were done to frames that were sent and received, by their names."""
        return {"sent": dict(self._out.port.done), "received": dict(self._in.port.done)}

    @property
    def checksum(self) -> bool:
        return self._path.checksum

    @checksum.setter
    def checksum(self, value: bool) -> None:
        self._path.checksum = value

    @property
    def blocked(self) -> int | None:
        return self._path.blocked

    def close(self) -> None:
        self._path.close()

    def send(self, frames: Sequence[bytes]) -> int:
        self._flush()
        if self._out.passed:
            return 0
        self._offering = True
        try:
            for frame in frames:
                self._out.port.take(frame)
        finally:
            self._offering = False
        self._flush()
        return len(frames)

    def receive(self, limit: int) -> list[bytes]:
        for frame in self._path.receive(limit):
            self._in.port.take(frame)
        found, self._in.passed = list(self._in.passed), deque()
        return found

    def _sending(self) -> None:
        """Offer a frame that was delayed to the path; frames of a call of `send` are offered together."""
        if not self._offering:
            self._flush()

    def _flush(self, _: object = None) -> None:
        """Offer frames that have passed the faults to the path, now and, as long as some remain, later."""
        passed = self._out.passed
        if passed:
            for _ in range(self._path.send(passed)):
                passed.popleft()
        if passed and not self._later:
            self._later = True
            self._timers.after(_RETRY, self._retry)

    def _retry(self, _: object) -> None:
        self._later = False
        self._flush()
