# SPDX-License-Identifier: GPL-2.0-only
"""This module defines the listeners of an audit, which make measurements and tables while the audit reads the
capture."""

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

from uetproto.audit.flows import Bounded
from uetproto.audit.judge import Heard
from uetproto.audit.reader.observed import ObservedPacket
from uetproto.wire.capture.pcap import Record

T = TypeVar("T")

HELD = 65_536
"""Greatest number of records whose lengths are kept. The length of a record is removed when the packet of the record is
seen. A record of another protocol yields no packet. Its length stays until there are more lengths than this number;
then the older half of all lengths is removed."""


class PacketListener(Protocol):
    """This protocol describes an object that gets each record before the record is decoded, and each packet before the
    trackers see the packet."""

    def take(self, record: Record) -> None:
        """Take a record of the capture before the record is decoded."""

    def see(self, seen: ObservedPacket) -> None:
        """Take a packet of UET or RoCE before the trackers see it."""

    @property
    def hears(self) -> Any:
        """Return the first argument of the functions of `Heard` from now on, or None if they are not to be called."""

    @property
    def tables(self) -> Sequence[Bounded]:
        """Return the tables in which the listener holds flows, one for each type of flow."""

    def rest(self) -> None:
        """Drop what can be made again with the next packet, because the interface is idle. `hears` is asked again
        then."""

    def sweep(self, now: int, quiet: bool) -> None:
        """Drop flows that are over at `now` (nanoseconds), and the least recent flows if there are too many. `quiet`
        says that no packet came for a long time, so no packet of a closed conversation is still on its way."""

    def end(self) -> None:
        """Finish the measurements. No packet follows, and the trackers have ended."""


class ListenerFactory(Protocol):
    """This protocol describes an object that makes the listeners of all vantage points."""

    @property
    def heard(self) -> Heard:
        """Return a map from events to functions. The function of an event is called at each such event of a vantage
        point whose listener `hears`."""

    def __call__(self, file: str, interface: str, number: int) -> PacketListener | None:
        """Return the listener of a vantage point, or None if it has none. `interface` and `number` are the name and the
        number of the interface."""


class ListenerPair:
    """This class passes records and packets to two listeners, one after the other."""

    def __init__(self, one: PacketListener, other: PacketListener) -> None:
        self.take = call_both(one.take, other.take)
        self.see = call_both(one.see, other.see)
        self._both = one, other

    @property
    def hears(self) -> Any:
        """Return what the functions of `Heard` get; at most one listener has them."""
        return next((hears for listener in self._both if (hears := listener.hears) is not None), None)

    def rest(self) -> None:
        """Call `rest` of both listeners."""
        for listener in self._both:
            listener.rest()

    @property
    def tables(self) -> list[Bounded]:
        """Return the tables of both listeners."""
        return [table for listener in self._both for table in listener.tables]

    def sweep(self, now: int, quiet: bool) -> None:
        """Call `sweep` of both listeners."""
        for listener in self._both:
            listener.sweep(now, quiet)

    def end(self) -> None:
        """Call `end` of both listeners."""
        for listener in self._both:
            listener.end()


def call_both(one: Callable[[T], None], other: Callable[[T], None]) -> Callable[[T], None]:
    """Return a function that calls `one`, then `other`."""

    def tell(what: T) -> None:
        one(what)
        other(what)

    return tell


class Lengths(dict[int, int]):
    """This class maps the number of a record to the length of the record on the wire in bytes, because `ObservedPacket`
    has no length."""

    __slots__ = ()

    def take(self, record: Record) -> None:
        self.note(record.index, record.length)

    def note(self, index: int, length: int) -> None:
        """Keep the length of the record with this number."""
        self[index] = length
        if len(self) > HELD:
            for index in list(self)[: HELD // 2]:
                del self[index]
