# SPDX-License-Identifier: GPL-2.0-only
"""A carrier keeps SHARP connections, and queues their messages until the engine accepts them (sharp.md §2.1)."""

from collections import Counter, deque
from dataclasses import dataclass, field
from typing import Any

from uetproto.engine.contract import Buffer
from uetproto.engine.roce.packets import source_port
from uetproto.engine.sharp.contract import Element, OutgoingMessage, Ports
from uetproto.engine.sharp.messages import HEADER_SIZE
from uetproto.errors import LocalError

LONGEST = 4096
"""Greatest number of bytes of a SHARP message: a header and the longest SAT chunk (sharp.md §2.8 rule 5)."""
WORD = 4
"""Unit of the length of a SHARP message, in bytes: every length is a multiple of it (sharp.md §2.1)."""


def entropy_of(flow_label: int) -> int:
    """Return the entropy value of a connection's packets. It is the UDP source port that roce.md §1 derives from a flow
    label."""
    return source_port(flow_label, 0, 0)


@dataclass(slots=True, eq=False)
class CarrierConnection:
    """This is the local end of a connection, or the queue pair that sends multicast messages."""

    number: int
    up: bool = False
    lost: bool = False
    in_flight: int = 0
    """Number of messages that the engine has accepted and not completed."""
    waiting: deque[OutgoingMessage] = field(default_factory=deque)
    """Messages that the engine has not accepted yet."""


class Carrier(Ports):
    """A carrier connects an element (an aggregation node or a host) with the engine that sends its messages. There is a
    subclass for each engine."""

    def __init__(self, element: Element, depth: int) -> None:
        """`depth` is the number of messages of one connection that the engine may have at a time."""
        if type(depth) is not int or depth < 1:
            raise LocalError("depth", f"{depth!r} is not legal", "1 and more", id="out-of-range")
        self.element = element
        self.depth = depth
        self.connections: dict[int, CarrierConnection] = {}
        self.counters: Counter[str] = Counter()
        """Maps each reason for which messages are dropped to their number."""

    # What a subclass does

    def send(self, connection: CarrierConnection, message: OutgoingMessage, now: int) -> None:
        """Hand a message to the engine. The carrier calls `ended` or `broken` when the engine reports the result."""
        raise NotImplementedError

    def multicast(self, message: OutgoingMessage, now: int) -> CarrierConnection:
        """Return the connection on which a message to a multicast group is sent."""
        raise NotImplementedError

    def event(self, event: Any, now: int) -> bool:
        """Handle an event of the engine; return False if it does not belong to this carrier."""
        raise NotImplementedError

    # What a subclass may do

    def use_messages(self) -> bool:
        """Let the element take chunks as runs from now on, and take packets that the driver has recognized. Return
        False if the carrier cannot do the latter."""
        self.element.trains = True
        return False

    def take_message(self, packet: Any, now: int) -> bool:
        """Process a packet whose frame the driver has recognized. Return False, having done nothing, if the engine must
        receive it."""
        return False

    # What it calls

    def find(self, conn: int) -> CarrierConnection:
        connection = self.connections.get(conn)
        if connection is None:
            raise LocalError("conn", f"there is no connection {conn!r}", id="not-registered")
        return connection

    def on_connected(self, connection: CarrierConnection, now: int) -> None:
        connection.up = True
        self.feed(connection, now)

    def forget(self, connection: CarrierConnection) -> None:
        """Forget a connection that is released, without a call of `Element.lost`."""
        connection.lost = True
        connection.waiting.clear()
        del self.connections[connection.number]

    def deliver(self, connection: CarrierConnection | None, data: bytes, now: int) -> None:
        """Deliver a message to the element; `connection` is None for a message that came by multicast."""
        if connection is None:
            self.element.message(None, data, now)
        elif not connection.lost:
            self.element.message(connection.number, data, now)

    def ended(self, connection: CarrierConnection, handle: int, now: int) -> None:
        """Handle the acknowledgement of a message by the other end of the connection."""
        connection.in_flight -= 1
        if handle and not connection.lost:
            self.element.acknowledged(connection.number, handle, now)
        self.feed(connection, now)

    def broken(self, connection: CarrierConnection, now: int) -> None:
        """Handle the failure of a connection; `Element.lost` is called for the first failure only."""
        if not connection.lost:
            connection.lost = True
            connection.waiting.clear()
            self.element.lost(connection.number, now)

    # Sending

    def pump(self, now: int) -> None:
        """Take the messages that the element has to send, and hand them to the engine, up to `depth` at a time for each
        connection."""
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
        raise LocalError(
            "data", f"{size} bytes are not legal", f"{HEADER_SIZE} … {LONGEST}, a multiple of {WORD}", id="wrong-length"
        )
