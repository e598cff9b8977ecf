# SPDX-License-Identifier: GPL-2.0-only
"""This module makes the joined table of captures, piece by piece, in constant memory."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from uetproto import columns as columns_module
from uetproto.analysis.decoding import Decoding
from uetproto.analysis.sources import CaptureSource, SourceDamage
from uetproto.arrow import pyarrow_for
from uetproto.columns import Columns
from uetproto.filters.display_filter import DisplayFilter
from uetproto.filters.fields import Seen
from uetproto.tables.joined import JoinedPiece, in_reach
from uetproto.tables.masks import mask_of
from uetproto.tables.names import TableColumn
from uetproto.tables.per_packet import PacketReading, needs_analysis

ROWS = 1 << 17
"""Number of packets of a piece."""


_RECORD = 16
"""Least number of bytes around a packet in a capture."""


class Piece(NamedTuple):
    """A piece of a capture: its row batch of Arrow, its columns of NumPy, and which of its packets are wanted."""

    batch: Any
    columns: Columns
    first: int
    """Index of the first packet."""
    wanted: Any
    """Array of bool, or None if all packets are wanted."""


class CaptureTable:
    """This class makes the joined table of captures, one capture after the other."""

    def __init__(
        self,
        sources: Sequence[CaptureSource],
        decoding: Decoding,
        columns: Sequence[TableColumn],
        packets: Callable[[CaptureSource, bool, bool], Iterator[Seen]],
        chosen: Sequence[bytearray] | None = None,
        filtered: DisplayFilter | None = None,
        sealed: bool = False,
    ) -> None:
        """`packets` gives the packets of a capture one by one; its other arguments say whether the packets around each
        packet matter, and later ones. `chosen` has an item for each packet of each capture, which is 0 for packets that
        are left out; a filter `filtered`, of which `is_streamed` holds, leaves them out while they are read. `sealed`
        says that there are keys, so that what is inside sealed packets counts."""
        self._pa = pyarrow_for("a table")
        self._sources, self._decoding, self.columns, self._packets = sources, decoding, columns, packets
        self._chosen, self._filtered = chosen, filtered
        self._slow = [one for one in columns if not _is_fast(one.name, sealed)]
        self.schema = self._pa.schema([self._pa.field(one.name, arrow_type(self._pa, one.kind)) for one in columns])
        self.share: float | None = 0.0
        """Part of the captures that was read, from 0 to 1, by the sizes of packets; None if it is not known, as for
        compressed captures."""
        self.damage: list[SourceDamage] = []
        """Parts of the captures that cannot be read, as far as they were read."""

    def pieces(self) -> Iterator[Piece]:
        """Yield the pieces of all captures. Raises `LocalError` for a pipe, and for what is no capture."""
        for number, source in enumerate(self._sources):
            flows: dict[tuple[str, str], int] = {}
            chosen = None if self._chosen is None else np.frombuffer(self._chosen[number], np.uint8).view(bool)
            names = [one.name for one in self._slow]
            reading = PacketReading(self._slow, self._packets(source, *needs_analysis(names))) if names else None
            raw = source.raw()
            interfaces = source.first_interfaces()
            settings = self._decoding.transports
            del settings["crc"]
            first = read = 0
            whole = source.plain_size
            for piece in columns_module.iter_batches(raw, ROWS, **settings):
                if source.offset_ns:
                    piece.times[:] += source.offset_ns
                self.damage += [SourceDamage(source.name, *one) for one in piece.damage]
                wanted = None if chosen is None else chosen[first : first + piece.packets]
                if self._filtered is not None:
                    wanted = mask_of(self._filtered.tree, piece, first, 0)
                yield Piece(self._batch(piece, first, interfaces, flows, reading, source, wanted), piece, first, wanted)
                first += piece.packets
                read += int(piece.lengths.sum()) + _RECORD * piece.packets
                self.share = None if whole is None else (number + min(read / whole, 1.0)) / len(self._sources)

    def _batch(
        self, piece: Columns, first: int, interfaces: list[str], flows: dict[tuple[str, str], int],
        reading: PacketReading | None, source: CaptureSource, wanted: Any,
    ) -> Any:  # fmt: skip
        pa = self._pa
        joined = JoinedPiece(piece, first, interfaces, flows)
        slow = {} if reading is None else reading.take(piece.packets)
        arrays = []
        for column, field in zip(self.columns, self.schema, strict=True):
            if column.name == "file":
                array = pa.repeat(source.name, piece.packets)
            elif column.name in slow:
                array = pa.array(slow[column.name], field.type)
            else:
                array = joined.column(pa, column)
            arrays.append(array if array.type == field.type else array.cast(field.type))
        batch = pa.RecordBatch.from_arrays(arrays, schema=self.schema)
        return batch if wanted is None else batch.filter(pa.array(wanted))


def arrow_type(pa: Any, kind: str) -> Any:
    """Return the type of Arrow of a kind of column."""
    if kind.startswith("list<"):
        return pa.list_(arrow_type(pa, kind[5:-1]))
    return pa.timestamp("ns", tz="UTC") if kind == "time" else pa.type_for_alias(kind)


def needs_packets(columns: Sequence[TableColumn], sealed: bool) -> bool:
    """Return whether some columns are read packet by packet, in a reading of their own."""
    return not all(_is_fast(one.name, sealed) for one in columns)


def _is_fast(name: str, sealed: bool) -> bool:
    return name == "file" or (in_reach(name) and not (sealed and name.startswith("uetp.")))
