"""This module prints what `uetproto stats --per-packet` tells: one JSON object for each packet of a capture.

A line may need what a later packet tells. So all lines go to a temporary file first, and the few late values stay in
memory, 48 bytes a packet; the lines are printed when the capture was read.
"""

import json
from collections.abc import Callable, Iterator
from tempfile import SpooledTemporaryFile

from uetproto.audit.flows import SWEEP
from uetproto.audit.per_packet.analyser import Analyser
from uetproto.cli.captures import Decoding
from uetproto.wire.capture.base import CaptureReader

_IN_MEMORY = 1 << 24
"""Greatest number of bytes of lines that stay in memory."""


def lines(
    reader: CaptureReader, decoding: Decoding, interface: str | None, more: dict[str, str],
    progress: Callable[[int], None],
) -> Iterator[str]:  # fmt: skip
    """Yield the lines of a capture. `interface` is the name or number of the only interface whose packets are told, or
    None. `more` stands in each line. `progress` is called now and then with the number of packets read."""
    analyser = Analyser()
    names: dict[tuple[int, int], str] = {}
    with SpooledTemporaryFile(_IN_MEMORY, "w+", encoding="utf-8") as rows:
        for record in reader:
            packet, _ = decoding.opened(record, decoding.packet(record, "off"))  # CRCs tell nothing here
            tap = (reader.section, record.interface)
            name = names.get(tap)
            if name is None:
                name = names[tap] = reader.interfaces[record.interface].name or str(record.interface or "")
            number = record.index + 1
            row = analyser.take(packet, record.data, record.time_ns, number, tap)
            told = interface in (None, name, str(record.interface))
            rows.write(json.dumps({"number": number, **more, "interface": name, **row}) + "\n" if told else "\n")
            if not number % SWEEP:
                progress(number)
        rows.seek(0)
        for number, line in enumerate(rows, 1):
            if len(line) > 1:
                late = analyser.late.of(number)
                yield f"{line[:-2]}, {json.dumps(late)[1:]}" if late else line[:-1]
