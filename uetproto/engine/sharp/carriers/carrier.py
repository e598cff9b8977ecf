"""A carrier has connections, and messages that wait for the engine (sharp.md §2.1)."""

from collections import Counter, deque
from dataclasses import dataclass, field
from typing import Any

from uetproto.engine.contract import Buffer
from uetproto.engine.roce.packets import source_port
from uetproto.engine.sharp.contract import Element, OutgoingMessage, Ports
from uetproto.engine.sharp.messages import HEADER_SIZE
from uetproto.errors import LocalError

LONGEST = 4096
"""Greatest number of bytes of a message: a header and the longest chunk (sharp.md §2.8 rule 5)."""
WORD = 4
"""Unit of the length of a message in bytes (sharp.md §2.1)."""


def entropy_of(flow_label: int) -> int:
    """Return the entropy value of a connection's packets: the UDP source port that roce.md §1 derives from the
    label."""
    return source_port(flow_label, 0, 0)


@dataclass(slots=True, eq=False)
class CarrierConnection:
    """The local end of a connection, or the queue pair that sends multicast messages."""

    number: int
    up: bool = False
    lost: bool = False
    in_flight: int = 0
    """Number of messages that the engine has accepted and not completed."""
    waiting: deque[OutgoingMessage] = field(default_factory=deque)
    """Messages that the engine has not accepted yet."""


class Carrier(Ports):
    """A carrier connects an element with the engine that moves its messages. There is a subclass for each engine."""

    def __init__(self, element: Element, depth: int) -> None:
        """`depth` limits the messages of a connection that the engine has at a time."""
        if type(depth) is not int or depth < 1:
            raise LocalError("depth", f"{depth!r} is not legal", "1 and more")
        self.element = element
        self.depth = depth
        self.connections: dict[int, CarrierConnection] = {}
        self.counters: Counter[str] = Counter()
        """Number of dropped messages by reason."""

    # What a subclass does

    def send(self, connection: CarrierConnection, message: OutgoingMessage, now: int) -> None:
        """Hand a message to the engine; `ended` or `broken` follows."""
        raise NotImplementedError

    def multicast(self, message: OutgoingMessage, now: int) -> CarrierConnection:
        """Return the connection on which a message to a group is sent."""
        raise NotImplementedError

    def event(self, event: Any, now: int) -> bool:
        """Handle an event of the engine; return False if it does not belong to this carrier."""
        raise NotImplementedError

    # What it calls

    def find(self, conn: int) -> CarrierConnection:
        connection = self.connections.get(conn)
        if connection is None:
            raise LocalError("conn", f"there is no connection {conn!r}")
        return connection

    def on_connected(self, connection: CarrierConnection, now: int) -> None:
        connection.up = True
        self.feed(connection, now)

    def forget(self, connection: CarrierConnection) -> None:
        """Drop a connection that is released; the element is not told."""
        connection.lost = True
        connection.waiting.clear()
        del self.connections[connection.number]

    def deliver(self, connection: CarrierConnection | None, data: bytes, now: int) -> None:
        """Deliver a message to the element; a `connection` of None stands for multicast."""
        if connection is None:
            self.element.message(None, data, now)
        elif not connection.lost:
            self.element.message(connection.number, data, now)

    def ended(self, connection: CarrierConnection, handle: int, now: int) -> None:
        """Handle the acknowledgement of a message by the other end."""
        connection.in_flight -= 1
        if handle and not connection.lost:
            self.element.acknowledged(connection.number, handle, now)
        self.feed(connection, now)

    def broken(self, connection: CarrierConnection, now: int) -> None:
        """Handle the failure of a connection; the element is told once."""
        if not connection.lost:
            connection.lost = True
            connection.waiting.clear()
            self.element.lost(connection.number, now)

    # Sending

    def pump(self, now: int) -> None:
        """Hand the messages of the element to the engine, as many as the engine accepts."""
        for message in self.element.poll(now):
            check(message.data)
            if message.conn is None:
                connection: CarrierConnection | None = self.multicast(message, now)
            else:
                connection = self.connections.get(message.conn)
            if connection is None or connection.lost:
                self.counters["unsent"] += 1
            else:
                connection.waiting.append(message)
                self.feed(connection, now)

    def feed(self, connection: CarrierConnection, now: int) -> None:
        while connection.waiting and connection.up and connection.in_flight < self.depth:
            connection.in_flight += 1
            self.send(connection, connection.waiting.popleft(), now)


def check(data: Buffer) -> None:
    """Check the length of a message. Raises `LocalError` naming the legal lengths."""
    size = len(data)
    if size % WORD or not HEADER_SIZE <= size <= LONGEST:
        raise LocalError("data", f"{size} bytes are not legal", f"{HEADER_SIZE} … {LONGEST}, a multiple of {WORD}")
