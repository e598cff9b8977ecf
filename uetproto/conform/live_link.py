# SPDX-License-Identifier: GPL-2.0-only
"""This module has the link of conformance tests to a peer through sockets."""

import select
from collections import deque

from uetproto.engine.contract import SECOND
from uetproto.errors import LocalError
from uetproto.framing.dscp import IPV4_TYPE
from uetproto.framing.sizes import ETHERNET_SIZE, ip_size
from uetproto.live.path import Path
from uetproto.live.time import MonotonicClock

_AT_ONCE = 32
_OURS = 4096
"""Number of our packets that are remembered, where they come back."""


class LiveLink:
    """This class implements `player.Link` on a path of `uetproto.live`."""

    def __init__(self, path: Path, clock: MonotonicClock, peers: frozenset[int] = frozenset()) -> None:
        """`peers` are the addresses whose packets are taken; without any, all are."""
        self.path, self.clock, self.peers = path, clock, peers
        self.entropy = path.entropy
        self._waiting: list[bytes] = []
        self._ours: deque[bytes] = deque(maxlen=_OURS)
        """Packets of ours from an address that is that of a peer, too: a raw socket receives them as well."""

    @property
    def now(self) -> int:
        return self.clock.now

    def send(self, frame: bytes) -> None:
        """Send a frame. Raises `LocalError` if the kernel has no room for it during a second."""
        if source_of(frame) in self.peers:
            self._ours.append(_behind_ip(frame))
        until = self.clock.now + SECOND
        while not self.path.send((frame,)):
            left = until - self.clock.now
            if left < 0:
                raise LocalError("path", "the kernel takes no packet", "a link that is up", id="send-buffer-full")
            blocked = self.path.blocked
            select.select(
                (), () if blocked is None else (blocked,), (), min(left / SECOND, 0.001 if blocked is None else 1)
            )

    def receive(self, until: int) -> bytes | None:
        while True:
            if self._waiting:
                return self._waiting.pop(0)
            arrived = self.path.receive(_AT_ONCE)
            self._waiting = [frame for frame in arrived if self._is_of_peer(frame)]
            if arrived and (self._waiting or self.clock.now < until):
                continue
            left = until - self.clock.now
            if left <= 0:
                return None
            select.select((self.path.fileno(),), (), (), left / SECOND)

    def _is_of_peer(self, frame: bytes) -> bool:
        """Return whether a peer has sent a frame, and not this end."""
        if self.peers and source_of(frame) not in self.peers:
            return False
        if self._ours and (data := _behind_ip(frame)) in self._ours:
            self._ours.remove(data)
            return False
        return True


def source_of(frame: bytes) -> int:
    """Return the IP address from which a frame comes. Paths hand over frames without VLAN tags."""
    return int.from_bytes(frame[26:30] if frame[12:14] == IPV4_TYPE else frame[22:38], "big")


def _behind_ip(frame: bytes) -> bytes:
    """Return what is behind the IP header, which the kernel may change."""
    four = frame[12:14] == IPV4_TYPE
    return frame[ETHERNET_SIZE + ip_size(4 if four else 6) :]
