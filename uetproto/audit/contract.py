# SPDX-License-Identifier: GPL-2.0-only
"""This module defines the interface between the trackers of packet delivery and the trackers of messages, so that
neither imports the other."""

from collections.abc import Mapping
from typing import Any, Protocol

from uetproto.audit.finding import Flow
from uetproto.audit.reader.observed import ObservedPacket


class MessageDirection(Protocol):
    """This protocol describes one direction of a PDC or of RUDI: the packets that carry messages from one end to the
    other."""

    ses: Any
    """State of the messages of this direction, as `MessageTracker.open` returned it."""

    def flow(self) -> Flow:
        """Return addresses and numbers. Findings about this direction name them."""


class PsnState(Protocol):
    """This protocol describes what is known of one PSN that was seen."""

    @property
    def acked(self) -> bool:
        """Return whether an ACK that names this PSN was seen."""


class OrderedDirection(MessageDirection, Protocol):
    """This protocol describes one direction of a PDC, in which PSNs count up."""

    @property
    def other(self) -> "OrderedDirection":
        """Return the opposite direction of the same PDC."""

    @property
    def records(self) -> Mapping[int, PsnState]:
        """Return a map from each PSN that was seen in this direction to its state."""

    @property
    def cack(self) -> int | None:
        """Return the newest CACK_PSN that was seen, or None if no ACK was seen."""

    @property
    def newest_clear(self) -> int | None:
        """Return the newest CLEAR_PSN of the sender, or None if no CLEAR_PSN was seen."""


class MessageTracker(Protocol):
    """This protocol describes a tracker of messages; the trackers of PDCs and of RUDI pass it the packets that carry
    parts of messages."""

    def open(self, direction: MessageDirection, *, ordered: bool = True) -> Any:
        """Return the state of the messages of a new direction, which the caller keeps as `direction.ses`. `ordered`
        says that the PSNs of the direction count up."""

    def request(self, direction: MessageDirection, seen: ObservedPacket, first: bool) -> None:
        """Follow a request packet. `first` says that the PSN of the packet was not seen before."""

    def response(self, direction: MessageDirection, seen: ObservedPacket, psn: int | None) -> None:
        """Follow a response in an ACK. `psn` is the PSN, in `direction`, of the request that is answered; it is None if
        that PSN is not known."""

    def data(self, direction: OrderedDirection, seen: ObservedPacket, first: bool) -> None:
        """Follow a request packet of `direction` that carries read data. `first` says that the PSN of the packet was
        not seen before."""

    def close(self, direction: MessageDirection) -> None:
        """Drop the messages of a direction that is closed."""

    def drop(self, direction: MessageDirection) -> None:
        """Drop the messages of a direction after the last packet, without any event."""
