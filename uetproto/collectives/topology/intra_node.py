"""Hops within a node: bytes and time, but no packets (collectives.md §4.1)."""

from collections import Counter
from collections.abc import Callable
from typing import Protocol

from uetproto.errors import LocalError

SECOND = 10**12
"""Picoseconds."""


class IntraNodePort(Protocol):
    """Where time passes; `Transport` is one."""

    @property
    def now(self) -> int:
        """Picoseconds."""

    def after(self, delay: int, action: Callable[[], None], /) -> None: ...


class IntraNode:
    """The links within the nodes: each GPU has one out and one in, and a message occupies both of its own at once.

    `bandwidth` tells the bytes a second between two ranks, as `GpuMatrix.bandwidth` does by their class. Arithmetic
    instead of events: when a message is handed over, the instant of its arrival is known.
    """

    def __init__(self, bandwidth: Callable[[int, int], int], *, latency: int = 1_000_000) -> None:
        """`latency` in picoseconds, of each message."""
        if latency < 0:
            raise LocalError("latency", latency, "0 picoseconds and more")
        self._bandwidth = bandwidth
        self._out: dict[int, int] = {}  # until when each link is occupied
        self._in: dict[int, int] = {}
        self.latency = latency
        self.sent: Counter[int] = Counter()
        """Bytes that each rank has sent within its node."""
        self.received: Counter[int] = Counter()
        self.messages = 0

    def arrival(self, now: int, source: int, target: int, size: int) -> int:
        """Hand over a message now; when its last byte is there. To oneself: at once."""
        if size < 0:
            raise LocalError("size", size, "0 bytes and more")
        if source == target:
            return now
        bandwidth = self._bandwidth(source, target)
        if bandwidth <= 0:
            raise LocalError("bandwidth", f"{bandwidth} from {source} to {target}", "more than 0 bytes a second")
        start = max(now, self._out.get(source, 0), self._in.get(target, 0))
        end = start - (-size * SECOND // bandwidth)  # rounded up
        self._out[source] = self._in[target] = end
        self.sent[source] += size
        self.received[target] += size
        self.messages += 1
        return end + self.latency

    def send(self, port: IntraNodePort, source: int, target: int, size: int, done: Callable[[], None]) -> None:
        """`done` is called when the last byte is there."""
        port.after(self.arrival(port.now, source, target, size) - port.now, done)
