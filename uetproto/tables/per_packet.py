# SPDX-License-Identifier: GPL-2.0-only
"""This module reads columns that only packets one by one give: what the packets around them say, and what is inside
sealed packets."""

from collections.abc import Callable, Iterator, Sequence
from ipaddress import IPv4Address, IPv6Address
from itertools import islice
from typing import Any

from uetproto.filters.fields import LATE, FilterField, Seen, fields
from uetproto.tables.names import TableColumn
from uetproto.wire.words.text import code


def needs_analysis(names: Sequence[str]) -> tuple[bool, bool]:
    """Return whether columns need what other packets say, and whether they need what later packets say."""
    from uetproto.filters.display_filter import ANALYSED

    return not ANALYSED.isdisjoint(names), not LATE.isdisjoint(names)


class PacketReading:
    """This class reads columns of the packets of a capture, piece by piece."""

    def __init__(self, columns: Sequence[TableColumn], packets: Iterator[Seen]) -> None:
        self._columns, self._packets = columns, packets
        self._cells = [cell_of(fields()[column.name], column) for column in columns]

    def take(self, count: int) -> dict[str, list[Any]]:
        """Return the values of the next `count` packets, by the names of the columns."""
        found: list[list[Any]] = [[] for _ in self._columns]
        adds = [(values.append, cell) for values, cell in zip(found, self._cells, strict=True)]
        for seen in islice(self._packets, count):
            for add, cell in adds:
                add(cell(seen))
        return {column.name: values for column, values in zip(self._columns, found, strict=True)}


def cell_of(field: FilterField, column: TableColumn) -> Callable[[Seen], Any]:
    """Return what gives the cell of a packet."""
    read, of = field.read, _converted(field, column)

    def many(seen: Seen) -> Any:
        return [of(value) for value in read(seen)] or None

    def single(seen: Seen) -> Any:
        values = read(seen)
        return of(values[-1]) if values else None

    return many if field.many else single


def _converted(field: FilterField, column: TableColumn) -> Callable[[Any], Any]:
    codes = column.codes
    if codes is not None:
        return lambda value: code(codes, value)
    conversions: dict[str, Callable[[Any], Any]] = {
        "time": lambda value: value / 1e9, "bool": bool, "label": bool,
        "ether": lambda value: value.to_bytes(6, "big").hex(":"), "ipv4": lambda value: str(IPv4Address(value)),
        "ipv6": lambda value: str(IPv6Address(value)),
    }  # fmt: skip
    return conversions.get(field.kind, lambda value: value)
