"""This module defines listeners of an audit: they make measurements and tables in the same pass."""

from collections.abc import Callable
from typing import Protocol, TypeVar

from uetproto.audit.judge import Judge
from uetproto.audit.reader.observed import ObservedPacket
from uetproto.wire.capture.pcap import Record

T = TypeVar("T")

HELD = 65_536
"""Greatest number of lengths that are kept until their packets come; for records of other protocols no packet comes."""


class PacketListener(Protocol):
    """This protocol gets each record before it is read, and each packet before the trackers see it."""

    def take(self, record: Record) -> None:
        """Take a record of the capture, before it is read."""

    def see(self, seen: ObservedPacket) -> None:
        """Take a packet of UET or RoCE, before the trackers see it."""


ListenerFactory = Callable[[Judge, str, str, int], PacketListener | None]
"""Type of the functions that return the listener of a vantage point, or None. The arguments are the judge, the file,
and name and number of the interface. The function is called before anything is read, and may subscribe to events."""


class ListenerPair:
    """This class passes records and packets to two listeners, one after the other."""

    def __init__(self, one: PacketListener, other: PacketListener) -> None:
        self.take = call_both(one.take, other.take)
        self.see = call_both(one.see, other.see)


def call_both(one: Callable[[T], None], other: Callable[[T], None]) -> Callable[[T], None]:
    """Return a function that calls `one`, then `other`."""

    def tell(what: T) -> None:
        one(what)
        other(what)

    return tell


class Lengths(dict[int, int]):
    """A map from the number of a record to its length on the wire in bytes, which is needed because `ObservedPacket`
    has no length."""

    def take(self, record: Record) -> None:
        self[record.index] = record.length
        if len(self) > HELD:
            for index in list(self)[: HELD // 2]:
                del self[index]
