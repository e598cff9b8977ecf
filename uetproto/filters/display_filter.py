# SPDX-License-Identifier: GPL-2.0-only
"""This module has `DisplayFilter`, a filter that was checked, and what applies it to the packets of a capture."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from uetproto.audit.per_packet.analyser import Analyser
from uetproto.audit.per_packet.late import LateValues
from uetproto.filters.fields import LATE, fields
from uetproto.filters.predicate import predicate
from uetproto.filters.syntax import parse
from uetproto.wire.capture.base import Record
from uetproto.wire.filter_names import FILTER_NAMES, Given
from uetproto.wire.packet import Packet

ANALYSED = frozenset(row.filter for row in FILTER_NAMES if row.given is Given.ANALYSIS)
"""Names whose values other packets tell."""
Pairs = Iterable[tuple[Record, Packet]]


class DisplayFilter:
    """A display filter decides which packets of a capture are wanted. Its language is that of Wireshark 4.0."""

    def __init__(self, text: str) -> None:
        """Check a filter. Raises `LocalError` that says what is wrong, and where."""
        self.text = text
        self.tree = parse(text)
        """Tree of the filter."""
        self.matches, self.names = predicate(self.tree)
        """Function of a `FilteredPacket`, and the names of the fields that it reads."""

    @property
    def analysed(self) -> bool:
        """Return whether the filter needs to know what other packets say."""
        return not self.names.isdisjoint(ANALYSED)

    @property
    def late(self) -> bool:
        """Return whether the filter needs what later packets say, so that the capture has to be read twice."""
        return not self.names.isdisjoint(LATE)

    def __repr__(self) -> str:
        return f"DisplayFilter({self.text!r})"


class FilteredPacket:
    """This class has what filters look at: a packet, and what the packets around it say."""

    __slots__ = ("interface", "packet", "record", "row", "since_first", "since_last")

    def __init__(
        self, record: Record, packet: Packet, row: Mapping[str, Any], since_first: int, since_last: int, interface: str
    ) -> None:
        self.record, self.packet, self.row = record, packet, row
        self.since_first, self.since_last, self.interface = since_first, since_last, interface

    def values(self, name: str) -> list[Any]:
        """Return the values of a field, which must be one that filters know."""
        return list(fields()[name].read(self))


class PacketRows:
    """This class makes of the packets of a capture what filters look at."""

    def __init__(self, analysed: bool, late: LateValues | None, name_of: Callable[[int], str]) -> None:
        """`analysed` says whether the packets around each packet matter; `late` has what a first reading of the whole
        capture told. `name_of` gives the name of an interface."""
        self._analyser = Analyser() if analysed else None
        self._late, self._name_of = late, name_of
        self._first: int | None = None
        self._last = 0

    @property
    def late(self) -> LateValues:
        """Return what later packets told; it is complete after the last packet."""
        return LateValues() if self._analyser is None else self._analyser.late

    def take(self, record: Record, packet: Packet) -> FilteredPacket:
        """Take the next packet of the capture."""
        time_ns = record.time_ns
        if self._first is None:
            self._first = self._last = time_ns
        row: dict[str, Any] = {}
        if self._analyser is not None:
            row = self._analyser.take(packet, record.data, time_ns, record.index + 1, record.interface)
            if self._late is not None:
                row = row | self._late.of(record.index + 1)
        seen = FilteredPacket(
            record, packet, row, time_ns - self._first, time_ns - self._last, self._name_of(record.interface)
        )
        self._last = time_ns
        return seen


def filtered(
    wanted: DisplayFilter,
    pairs: Pairs,
    opened: Callable[[Record, Packet], Packet],
    name_of: Callable[[int], str],
    again: Callable[[], Pairs],
) -> Iterator[tuple[Record, Packet]]:
    """Yield the pairs that the filter wants. `opened` opens sealed packets; `again` reads the capture once more from
    its start, and is called only if later packets matter."""
    late = None
    if wanted.late:
        first = PacketRows(True, None, lambda _: "")
        for record, packet in again():
            first.take(record, opened(record, packet))
        late = first.late
    rows = PacketRows(wanted.analysed, late, name_of)
    for record, packet in pairs:
        if wanted.matches(rows.take(record, opened(record, packet))):
            yield record, packet
