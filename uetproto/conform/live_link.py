"""This module has the link of conformance tests to a peer through sockets."""

import select

from uetproto.engine.contract import SECOND
from uetproto.errors import LocalError
from uetproto.live.path import Path
from uetproto.live.time import MonotonicClock

_AT_ONCE = 32


class LiveLink:
    """This class implements `player.Link` on a path of `uetproto.live`."""

    def __init__(self, path: Path, clock: MonotonicClock) -> None:
        self.path, self.clock = path, clock
        self.entropy = path.entropy
        self._waiting: list[bytes] = []

    @property
    def now(self) -> int:
        return self.clock.now

    def send(self, frame: bytes) -> None:
        """Send a frame. Raises `LocalError` if the kernel has no room for it during a second."""
        until = self.clock.now + SECOND
        while not self.path.send((frame,)):
            left = until - self.clock.now
            if left < 0:
                raise LocalError("path", "the kernel takes no packet", "a link that is up")
            blocked = self.path.blocked
            select.select(
                (), () if blocked is None else (blocked,), (), min(left / SECOND, 0.001 if blocked is None else 1)
            )

    def receive(self, until: int) -> bytes | None:
        while True:
            if self._waiting:
                return self._waiting.pop(0)
            self._waiting = self.path.receive(_AT_ONCE)
            if self._waiting:
                continue
            left = until - self.clock.now
            if left <= 0:
                return None
            select.select((self.path.fileno(),), (), (), left / SECOND)
