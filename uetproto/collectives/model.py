"""This module has a network without packets: each message takes alpha and the time of its bytes.

This is the time model of collectives.md §3.0: a message occupies the sender's sending port and the receiver's receiving
port for `alpha + len * beta`, from the instant at which both ends are ready. A port can send and receive at the same
time.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from uetproto.collectives.transport import (
    SECOND,
    CollectiveNetwork,
    CollectiveTimers,
    Done,
    HalfMatching,
    MessageHalf,
    Tag,
    deliver,
)
from uetproto.errors import LocalError


class Path(NamedTuple):
    """This record describes the time that messages between two ranks take."""

    alpha: int = 1_000_000
    """Picoseconds for each message."""
    rate: int = 400 * 10**9
    """Rate in bits per second: beta is 8 / rate."""
    port: str = "nic"
    """Port of the rank: messages of the same port wait for each other."""

    def time(self, length: int) -> int:
        """Return the picoseconds that a message of `length` bytes takes."""
        return self.alpha + -(-length * 8 * SECOND // self.rate)


@dataclass(slots=True)
class _ModelEnd:
    """A model end is the `RankTransport` of a rank of the model."""

    network: "ModelNetwork"
    rank: int
    size: int
    busy: dict[tuple[str, bool], int] = field(default_factory=dict)
    """Instant until which a port is occupied in one direction, by port and direction (True: sending)."""
    dead: str | None = None

    @property
    def now(self) -> int:
        return self.network.now

    def send(self, peer: int, tag: Tag, data: memoryview, done: Done) -> None:
        self.network.post(self.rank, peer, tag, MessageHalf(data, done), sends=True)

    def receive(self, peer: int, tag: Tag, into: memoryview, done: Done) -> None:
        self.network.post(peer, self.rank, tag, MessageHalf(into, done), sends=False)

    def after(self, delay: int, action: Callable[[], None]) -> None:
        self.network.timers.at(self.now + delay, action)


class ModelNetwork(CollectiveNetwork):
    """This class implements a network of ranks with a `Path` between each two."""

    def __init__(self, size: int, path: Path | Callable[[int, int], Path] | None = None) -> None:
        """Make the network. `path`: one path for all pairs of ranks, or a function of source and destination."""
        self.size = size
        self.timers = CollectiveTimers()
        self.messages = 0
        self.bytes_sent = [0] * size
        self._now = 0
        path = Path() if path is None else path
        if not isinstance(path, Path) and not callable(path):
            raise LocalError("path", f"{path!r}", "a Path, or a function of source and destination")
        self._path = path if callable(path) else lambda source, destination: path
        self._ends = [_ModelEnd(self, rank, size) for rank in range(size)]
        self._halves = HalfMatching()

    @property
    def now(self) -> int:
        return self._now

    def end(self, rank: int) -> _ModelEnd:
        return self._ends[rank]

    def run(self, ready: Callable[[], bool], limit: int | None) -> bool:
        """Return True: only timers are in progress, as messages are timers too."""
        return True

    def advance(self, instant: int) -> None:
        self._now = max(self._now, instant)

    def fail(self, rank: int, why: str) -> None:
        """Make all later messages of a rank fail with a reason."""
        self._ends[rank].dead = why

    def post(self, source: int, destination: int, tag: Tag, half: MessageHalf, sends: bool) -> None:
        """Post a send or a receive; the message moves when both are posted."""
        for rank in (source, destination):
            if not 0 <= rank < self.size:
                raise LocalError("peer", rank, f"0 … {self.size - 1}")
        message = self._halves.match(source, destination, tag, half, sends=sends)
        if message is not None:
            self._move(source, destination, *message)

    def _move(self, source: int, destination: int, send: MessageHalf, receive: MessageHalf) -> None:
        path = self._path(source, destination)
        ports = ((self._ends[source].busy, (path.port, True)), (self._ends[destination].busy, (path.port, False)))
        start = max(self._now, *(busy.get(port, 0) for busy, port in ports))
        end = start + path.time(send.buffer.nbytes)
        for busy, port in ports:
            busy[port] = end
        self.timers.at(end, lambda: self._arrive(source, destination, send, receive))

    def _arrive(self, source: int, destination: int, send: MessageHalf, receive: MessageHalf) -> None:
        if deliver(source, destination, send, receive, self._ends[source].dead or self._ends[destination].dead):
            self.messages += 1
            self.bytes_sent[source] += send.buffer.nbytes
