"""What listens in beside an audit: measurements and tables are made of the same pass."""

from collections.abc import Callable
from typing import Protocol, TypeVar

from uetproto.audit.judge import Judge
from uetproto.audit.reader.observed import ObservedPacket
from uetproto.wire.capture.pcap import Record

T = TypeVar("T")

HELD = 65_536
"""Lengths that wait for their packet, at most: those of other protocols never come."""


class PacketListener(Protocol):
    """Is told of everything first: of each record before it is read, of each packet before the trackers see it."""

    def take(self, record: Record) -> None: ...
    def see(self, seen: ObservedPacket) -> None: ...


ListenerFactory = Callable[[Judge, str, str, int], PacketListener | None]
"""Told of each vantage point, its file and interface by name and number, before anything is read: may subscribe to
events, and tap what is read."""


class ListenerPair:
    """Two taps, one after the other."""

    def __init__(self, one: PacketListener, other: PacketListener) -> None:
        self.take = call_both(one.take, other.take)
        self.see = call_both(one.see, other.see)


def call_both(one: Callable[[T], None], other: Callable[[T], None]) -> Callable[[T], None]:
    def tell(what: T) -> None:
        one(what)
        other(what)

    return tell


class Lengths(dict[int, int]):
    """By number: the lengths of records on the wire, which `ObservedPacket` does not have, until their packets come."""

    def take(self, record: Record) -> None:
        self[record.index] = record.length
        if len(self) > HELD:
            for index in list(self)[: HELD // 2]:
                del self[index]
