# SPDX-License-Identifier: GPL-2.0-only
"""This module prints what `uetproto stats --per-packet` tells: one JSON object for each packet of a capture.

A line may need what a later packet tells. So all lines go to a temporary file first, and the few late values stay in
memory, 48 bytes a packet; the lines are printed when the capture was read.
"""

import json
from collections import deque
from collections.abc import Callable, Iterator
from tempfile import SpooledTemporaryFile

from uetproto.analysis.decoding import Decoding
from uetproto.audit.flows import SWEEP
from uetproto.audit.per_packet.analyser import Analyser
from uetproto.cli.captures import wanted_packets
from uetproto.filters.display_filter import DisplayFilter
from uetproto.wire.capture.base import CaptureReader
from uetproto.wire.capture.pcap import Record
from uetproto.wire.filter_names import of_packet

_IN_MEMORY = 1 << 24
"""Greatest number of bytes of lines that stay in memory."""


def lines(
    file: str, reader: CaptureReader, decoding: Decoding, interface: str | None, more: dict[str, str],
    progress: Callable[[int], None], wanted: DisplayFilter | None = None,
) -> Iterator[str]:  # fmt: skip
    """Yield the lines of a capture, of the packets that `wanted` wants. `interface` is the name or number of the only
    interface whose packets are told, or None. `more` stands in each line. `progress` is called now and then with the
    number of packets read."""
    analyser = Analyser()
    taps: deque[tuple[int, int, str]] = deque()
    """Section, number and name of the interface of each record that is not decoded yet."""

    def records() -> Iterator[Record]:
        for record in reader:
            number = record.interface
            taps.append((reader.section, number, reader.interfaces[number].name or str(number or "")))
            yield record

    decoding = decoding._replace(reader=reader)
    with SpooledTemporaryFile(_IN_MEMORY, "w+", encoding="utf-8") as rows:
        pairs = decoding.packets(file, records())
        for record, packet, is_wanted in wanted_packets(wanted, file, decoding, pairs):
            packet, _ = decoding.opened(record, packet)
            tap = taps.popleft()
            number = record.index + 1
            row = analyser.take(packet, record.data, record.time_ns, number, tap)
            if is_wanted and interface in (None, tap[2], str(tap[1])):
                row = {"number": number, **more, "interface": tap[2], **of_packet(packet), **row}
                rows.write(json.dumps(row))
            rows.write("\n")
            if not number % SWEEP:
                progress(number)
        rows.seek(0)
        for number, line in enumerate(rows, 1):
            if len(line) > 1:
                late = analyser.late.of(number)
                yield f"{line[:-2]}, {json.dumps(late)[1:]}" if late else line[:-1]
