"""What the parts of SHARP hand each other (sharp.md §3): whole messages by connection, never a header of a carrier.

An `Element` is an aggregation node or a host. A carrier brings messages to it and takes those that it has to send; a
connection is a number that the carrier gave out: a queue pair, or a pair of endpoints of UET.
"""

from typing import Any, NamedTuple, Protocol


class OutgoingMessage(NamedTuple):
    """A message to be sent."""

    conn: int | None
    """The connection; None: to a multicast group."""
    data: bytes
    """The whole message, header and padding included."""
    handle: int = 0
    """Comes back with `acknowledged`; 0: nobody has to know."""
    group: int = 0
    """The MGID, where `conn` is None."""


class Element(Protocol):
    """An aggregation node, or one host's side. Sans-IO: `now` in picoseconds; nothing raises on bytes from outside."""

    def message(self, conn: int | None, data: bytes, now: int) -> None:
        """A message has arrived on a connection; None: by multicast."""

    def acknowledged(self, conn: int, handle: int, now: int) -> None:
        """The other end of the connection has this message."""

    def lost(self, conn: int, now: int) -> None:
        """The connection is in error: nothing more comes, nothing more arrives."""

    def poll(self, now: int) -> list[OutgoingMessage]:
        """What is to be sent; fires timers that are due."""

    def deadline(self) -> int | None:
        """When to poll at the latest."""

    def events(self) -> list[Any]:
        """What happened since the last call."""


class Ports(Protocol):
    """Where connections come from: a carrier."""

    def allocate(self) -> int:
        """A new connection, not yet to anybody: its number."""

    def connect(self, conn: int, *, address: int, remote: int, own_psn: int, their_psn: int, now: int) -> None:
        """To the connection `remote` at `address`. PSNs are those of queue pairs; other carriers choose their own."""

    def release(self, conn: int, now: int) -> None:
        """It is gone; nobody is told `lost`."""

    def join(self, group: int, qkey: int, now: int) -> None:
        """Messages to this multicast group arrive from now on."""


__all__ = ["Element", "OutgoingMessage", "Ports"]
