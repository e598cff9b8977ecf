# SPDX-License-Identifier: GPL-2.0-only
"""This module applies display filters to captures: while they are read, or in a reading of their own."""

from collections.abc import Callable, Iterable, Iterator, Sequence

from uetproto.analysis.decoding import Decoding
from uetproto.analysis.sources import CaptureSource, MergedReader
from uetproto.errors import LocalError
from uetproto.filters.display_filter import DisplayFilter, FilteredPacket, PacketRows
from uetproto.wire.capture.base import CaptureInterface, Record
from uetproto.wire.packet import Packet

Pairs = Iterable[tuple[Record, Packet]]


def looked_at(
    analysed: bool,
    late: bool,
    decoding: Decoding,
    pairs: Pairs,
    interfaces: Callable[[], Sequence[CaptureInterface]],
    again: Callable[[], Pairs],
) -> Iterator[tuple[Record, Packet, FilteredPacket]]:
    """Yield all pairs, each with what filters look at. `decoding` opens sealed packets for them.

    `analysed` says whether the packets around each packet matter, and `late` whether later ones do; then `again` is
    called, which reads the capture once more from its start.
    """
    decoding = decoding.anew()
    values = None
    if late:
        first = PacketRows(True, None, lambda _: "")
        for record, packet in again():
            first.take(record, decoding.opened(record, packet)[0])
        values = first.late
        decoding = decoding.anew()
    rows = PacketRows(analysed, values, lambda number: interfaces()[number].name)
    for record, packet in pairs:
        yield record, packet, rows.take(record, decoding.opened(record, packet)[0])


def judged(
    wanted: DisplayFilter,
    decoding: Decoding,
    pairs: Pairs,
    interfaces: Callable[[], Sequence[CaptureInterface]],
    again: Callable[[], Pairs],
) -> Iterator[tuple[Record, Packet, bool]]:
    """Yield all pairs, each with whether the filter wants it. The other arguments are those of `looked_at`."""
    for record, packet, seen in looked_at(wanted.analysed, wanted.late, decoding, pairs, interfaces, again):
        yield record, packet, wanted.matches(seen)


def read_again(sources: Sequence[CaptureSource], decoding: Decoding) -> Pairs:
    """Yield the packets of captures, merged by time, from their start. Raises `LocalError` for a pipe."""
    for source in sources:
        if not source.seekable():
            raise LocalError(
                "filter", f"{source.name} is read twice for this filter, and it is a pipe", "a file", id="read-twice"
            )
    with MergedReader(sources) as reader:
        yield from decoding._replace(reader=reader).packets("", reader, False)


def _is_bulk(wanted: DisplayFilter, sources: Sequence[CaptureSource], decoding: Decoding) -> bool:
    """Return whether columns answer a filter: of what is in the clear, of sources that are as they state, and alone if
    the place of a packet in the capture matters."""
    from uetproto.tables.masks import OF_PLACE, is_mask

    plain = decoding.keys is None and not any(source.is_changed for source in sources)
    return plain and (len(sources) == 1 or wanted.names.isdisjoint(OF_PLACE)) and is_mask(wanted.tree)


def wanted_items(wanted: DisplayFilter, sources: Sequence[CaptureSource], decoding: Decoding) -> bytearray:
    """Read captures, and return an item for each packet of all of them, merged by time: 1 if the filter wants the
    packet, else 0. Raises `LocalError` for a pipe, because the captures are read again later."""
    if len(sources) == 1:
        return matching(wanted, sources, decoding)[0]
    with MergedReader(sources) as reader:
        decoding = decoding._replace(reader=reader)
        pairs = decoding.packets("", reader, False)
        all_of_them = judged(wanted, decoding, pairs, lambda: reader.interfaces, lambda: read_again(sources, decoding))
        return bytearray(is_wanted for _, _, is_wanted in all_of_them)


def matching(wanted: DisplayFilter, sources: Sequence[CaptureSource], decoding: Decoding) -> list[bytearray]:
    """Read captures, and return for each of them an item for each packet: 1 if the filter wants the packet, else 0.

    Raises `LocalError` for a pipe, because the capture is read again later.
    """
    found = [bytearray() for _ in sources]
    for source in sources:
        if not source.seekable():
            raise LocalError("filter", f"{source.name} is read twice here, and it is a pipe", "a file", id="read-twice")
    if _is_bulk(wanted, sources, decoding):
        from uetproto.tables.masks import bulk

        masks = [bulk(wanted, source.raw(), decoding) for source in sources]
        if None not in masks:
            return [one for one in masks if one is not None]
    with MergedReader(sources) as reader:
        decoding = decoding._replace(reader=reader)
        pairs = decoding.packets("", reader, False)
        all_of_them = judged(
            wanted, decoding, pairs, lambda: reader.interfaces, lambda: read_again(sources, decoding)
        )  # fmt: skip
        for record, _, is_wanted in all_of_them:
            found[reader.sources[record.interface]].append(is_wanted)
    return found
