# SPDX-License-Identifier: GPL-2.0-only
"""A carrier and an element exchange whole messages over connections, without carrier headers (sharp.md §3).

An `Element` is an aggregation node or a host. A carrier delivers messages to the element and sends the messages that
the element returns. A connection is a number that the carrier allocates. The number stands for a queue pair, or over
UET for a pair of reserved PDCIDs.
"""

from typing import Any, NamedTuple, Protocol


class OutgoingMessage(NamedTuple):
    """An outgoing message is a message that an element sends, with its destination."""

    conn: int | None
    """Connection to send on; None sends to a multicast group."""
    data: bytes
    """The whole message, header and padding included."""
    handle: int = 0
    """Number with which the carrier later calls `acknowledged`; it is 0 if the element needs no such call."""
    group: int = 0
    """MGID to send to if `conn` is None."""


class Element(Protocol):
    """An element is an aggregation node or a host, which a carrier drives.

    It does no I/O itself. `now` is the time in picoseconds. No received bytes make a method raise.
    """

    trains: bool
    """Whether chunks of a stream are taken with less work where nothing distinguishes them (`trains`)."""

    def message(self, conn: int | None, data: bytes, now: int) -> None:
        """Handle a message that arrived on a connection, or by multicast if `conn` is None."""

    def acknowledged(self, conn: int, handle: int, now: int) -> None:
        """Handle the acknowledgement of a message by the other end of the connection."""

    def lost(self, conn: int, now: int) -> None:
        """Handle the failure of a connection, which carries no further message in either direction."""

    def poll(self, now: int) -> list[OutgoingMessage]:
        """Fire the timers that are due and return the messages to send."""

    def deadline(self) -> int | None:
        """Return the time at which `poll` is due at the latest; None if no timer runs."""

    def events(self) -> list[Any]:
        """Return the events since the last call."""


class Ports(Protocol):
    """These are the methods by which connections of a carrier are managed."""

    def allocate(self) -> int:
        """Allocate a connection that is not connected yet and return its number."""

    def connect(
        self, conn: int, *, address: int, remote: int, own_psn: int, their_psn: int, now: int, flow_label: int = 0
    ) -> None:  # fmt: skip
        """Connect `conn` to the connection `remote` of the element at `address`. Queue pairs use the two PSNs; PDCs
        choose their own PSNs.

        `flow_label` selects the entropy value of all packets (`carrier.entropy_of`). If `flow_label` is 0, the engine
        chooses the entropy value.
        """

    def release(self, conn: int, now: int) -> None:
        """Release a connection, without a call of `Element.lost`."""

    def join(self, group: int, qkey: int, now: int) -> None:
        """Join a multicast group, so that the element receives the messages to it."""
