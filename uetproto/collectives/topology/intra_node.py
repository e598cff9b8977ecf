# SPDX-License-Identifier: GPL-2.0-only
"""This module computes when messages within a node arrive. Such messages take time but need no packets (collectives.md
§4.1)."""

from collections import Counter
from collections.abc import Callable

from uetproto.collectives.transport import SECOND
from uetproto.errors import LocalError


class IntraNode:
    """This class represents the links within nodes. Each GPU has one link out and one link in.

    A message occupies the link out of its sender and the link in of its receiver at the same time. `bandwidth` returns
    the bytes per second between two ranks, as `GpuMatrix.bandwidth` does. The instant of arrival is computed when a
    message is sent, without events.
    """

    def __init__(self, bandwidth: Callable[[int, int], int], *, latency: int = 1_000_000) -> None:
        """Make the links. `latency` is the time in picoseconds that each message takes in addition to its bytes."""
        if latency < 0:
            raise LocalError("latency", latency, "0 picoseconds and more", id="out-of-range")
        self._bandwidth = bandwidth
        self._out: dict[int, int] = {}  # time until which each link is occupied
        self._in: dict[int, int] = {}
        self.latency = latency
        self.sent: Counter[int] = Counter()
        """Number of bytes that each rank has sent within its node."""
        self.received: Counter[int] = Counter()
        self.messages = 0

    def arrival(self, now: int, source: int, target: int, size: int) -> int:
        """Send a message of `size` bytes at the instant `now`, and return the instant at which its last byte arrives.
        Both instants are in picoseconds. A message from a rank to itself takes no time."""
        if size < 0:
            raise LocalError("size", size, "0 bytes and more", id="out-of-range")
        if source == target:
            return now
        bandwidth = self._bandwidth(source, target)
        if bandwidth <= 0:
            raise LocalError(
                "bandwidth", f"{bandwidth} from {source} to {target}", "more than 0 bytes a second", id="out-of-range"
            )
        start = max(now, self._out.get(source, 0), self._in.get(target, 0))
        end = start - (-size * SECOND // bandwidth)  # rounded up
        self._out[source] = self._in[target] = end
        self.sent[source] += size
        self.received[target] += size
        self.messages += 1
        return end + self.latency
