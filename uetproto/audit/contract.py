"""This module defines the interface between the trackers of packet delivery and of messages: neither imports the
other."""

from collections.abc import Mapping
from typing import Any, Protocol

from uetproto.audit.finding import Flow
from uetproto.audit.reader.observed import ObservedPacket


class MessageDirection(Protocol):
    """This protocol identifies the packets that carry messages from one end to another, on a PDC or in RUDI."""

    ses: Any
    """State of the messages of this direction, as `MessageTracker.open` returned it."""

    def flow(self) -> Flow:
        """Return the addresses and numbers that findings about the direction name."""


class PsnState(Protocol):
    """This protocol describes a PSN that was seen."""

    @property
    def acked(self) -> bool:
        """Tell whether an ACK that names this PSN was seen."""


class OrderedDirection(MessageDirection, Protocol):
    """This protocol identifies a direction of a PDC, whose PSNs have an order."""

    @property
    def other(self) -> "OrderedDirection":
        """Return the opposite direction of the same PDC."""

    @property
    def records(self) -> Mapping[int, PsnState]:
        """Return the state of each PSN that was seen."""

    @property
    def cack(self) -> int | None:
        """Return the newest CACK_PSN; None: no ACK was seen."""

    @property
    def newest_clear(self) -> int | None:
        """Return the newest CLEAR_PSN of the sender; None: none was seen."""


class MessageTracker(Protocol):
    """This protocol follows messages: the trackers of PDCs and of RUDI call it with what their packets carry."""

    def open(self, direction: MessageDirection, *, ordered: bool = True) -> Any:
        """Return the value of `direction.ses`. `ordered`: the PSNs of the direction count up."""

    def request(self, direction: MessageDirection, seen: ObservedPacket, first: bool) -> None:
        """Follow a request packet. `first`: its PSN was not seen before."""

    def response(self, direction: MessageDirection, seen: ObservedPacket, psn: int | None) -> None:
        """Follow a response in an ACK. `psn`: PSN, in `direction`, of the request that it answers; None: not known."""

    def data(self, direction: OrderedDirection, seen: ObservedPacket, first: bool) -> None:
        """Follow read data that a request packet of `direction` carries. `first`: its PSN was not seen before."""

    def close(self, direction: MessageDirection) -> None:
        """Drop the messages of a direction that is closed."""
