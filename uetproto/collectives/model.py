# SPDX-License-Identifier: GPL-2.0-only
"""This module has a network without packets, in which each message takes alpha and the time of its bytes.

This is the time model of collectives.md §3.0: a message occupies the sender's sending port and the receiver's receiving
port for `alpha + len * beta`. A port can send and receive at the same time. A message that both ranks have posted waits
until both of its ports are free. If several messages wait for a port, the message whose `send` was called first has
precedence, unless its other port is busy.
"""

from bisect import bisect_left, insort
from collections.abc import Callable
from dataclasses import dataclass
from operator import attrgetter
from typing import NamedTuple, TypeAlias

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

_Port: TypeAlias = tuple[int, str, bool]
"""Rank, name of its port, and direction: True where it sends."""


class Path(NamedTuple):
    """This record says how long messages between two ranks take."""

    alpha: int = 1_000_000
    """Latency of a message in picoseconds."""
    rate: int = 400 * 10**9
    """Rate in bits per second. In the time model, beta is 8 / rate."""
    port: str = "nic"
    """Name of the port of the rank. Messages through the same port wait for each other."""

    def time(self, length: int) -> int:
        """Return the picoseconds that a message of `length` bytes takes."""
        return self.alpha + -(-length * 8 * SECOND // self.rate)


@dataclass(slots=True)
class _ModelEnd:
    """This class is the `RankTransport` of a rank of the model."""

    network: "ModelNetwork"
    rank: int
    size: int
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
    """This class is a network without packets: a `Path` between two ranks gives the time of their messages."""

    def __init__(self, size: int, path: Path | Callable[[int, int], Path] | None = None) -> None:
        """Make the network. `path` is one path for all pairs of ranks, or a function of source and destination. None
        means the default `Path`."""
        self.size = size
        self.timers = CollectiveTimers()
        self.messages = 0
        self.bytes_sent = [0] * size
        self._now = 0
        path = Path() if path is None else path
        if not isinstance(path, Path) and not callable(path):
            raise LocalError("path", f"{path!r}", "a Path, or a function of source and destination", id="wrong-type")
        self._path = path if callable(path) else lambda source, destination: path
        self._ends = [_ModelEnd(self, rank, size) for rank in range(size)]
        self._halves = HalfMatching()
        self._posted = 0
        self._ready: dict[_Port, list[_ModelMessage]] = {}
        """Messages that wait for ports, by each of their two ports, in the order of the calls of `send`."""
        self._busy: set[_Port] = set()
        self._tried: dict[_Port, None] = {}
        """Ports at which a message may begin at this instant."""

    @property
    def now(self) -> int:
        return self._now

    def end(self, rank: int) -> _ModelEnd:
        return self._ends[rank]

    def run(self, ready: Callable[[], bool], limit: int | None) -> bool:
        """Return True, which means that only timers are in progress. Messages of this network are timers, too."""
        return True

    def advance(self, instant: int) -> None:
        self._now = max(self._now, instant)

    def fail(self, rank: int, why: str) -> None:
        """Let all later messages from or to a rank fail with the reason `why`."""
        self._ends[rank].dead = why

    def post(self, source: int, destination: int, tag: Tag, half: MessageHalf, sends: bool) -> None:
        """Post a send or a receive. The message is ready when both its send and its receive are posted."""
        for rank in (source, destination):
            if not 0 <= rank < self.size:
                raise LocalError("peer", rank, f"0 … {self.size - 1}", id="out-of-range")
        self._posted += 1
        half = half._replace(number=self._posted)
        halves = self._halves.match(source, destination, tag, half, sends=sends)
        if halves is not None:
            send, receive = halves
            path = self._path(source, destination)
            leaves, arrives = (source, path.port, True), (destination, path.port, False)
            message = _ModelMessage(send.number, leaves, arrives, path.time(send.buffer.nbytes), send, receive)
            for port in (leaves, arrives):
                insort(self._ready.setdefault(port, []), message, key=_number)
            self._try(leaves)

    def _try(self, *ports: _Port) -> None:
        """Begin messages at these ports once all other events of this instant have happened."""
        if not self._tried:
            self.timers.at(self._now, self._begin)
        self._tried.update(dict.fromkeys(ports))

    def _begin(self) -> None:
        ports, self._tried = self._tried, {}
        for port in sorted(ports, key=_receives):
            for message in self._ready.get(port, ()) if port not in self._busy else ():
                if self._busy.isdisjoint(message.ports):
                    self._move(message)
                    break

    def _move(self, message: "_ModelMessage") -> None:
        self._busy.update(message.ports)
        for port in message.ports:
            ready = self._ready[port]
            del ready[bisect_left(ready, message.number, key=_number)]
            if not ready:
                del self._ready[port]
        self.timers.at(self._now + message.time, lambda: self._arrive(message))

    def _arrive(self, message: "_ModelMessage") -> None:
        self._busy.difference_update(message.ports)
        self._try(*message.ports)
        source, destination = (port[0] for port in message.ports)
        dead = self._ends[source].dead or self._ends[destination].dead
        if deliver(source, destination, message.send, message.receive, dead):
            self.messages += 1
            self.bytes_sent[source] += message.send.buffer.nbytes


class _ModelMessage(NamedTuple):
    """This record holds a message whose send and receive are posted, until it has arrived."""

    number: int
    """Running number of the call of `send`."""
    leaves: _Port
    arrives: _Port
    time: int
    send: MessageHalf
    receive: MessageHalf

    @property
    def ports(self) -> tuple[_Port, _Port]:
        return self.leaves, self.arrives


_number = attrgetter("number")


def _receives(port: _Port) -> bool:
    return not port[2]
