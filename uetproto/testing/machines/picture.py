"""This module draws frames as the ladder that `uetproto ladder` prints, and writes them as a capture."""

import io
from collections.abc import Mapping, Sequence

from uetproto.wire.capture.base import Source
from uetproto.wire.capture.pcap import PcapWriter, open_capture

COLUMNS = 110
Frames = Sequence[tuple[int, bytes, bool]]
"""Time in picoseconds, bytes, and whether the implementation sent it, of each frame."""


def write_capture(target: Source, frames: Frames) -> None:
    """Write frames as a pcap with times in nanoseconds."""
    with PcapWriter(target) as writer:
        writer.write_many((time // 1000 for time, _, _ in frames), (data for _, data, _ in frames))


def lines_of(frames: Frames, names: Mapping[str, str]) -> list[str]:
    """Return the lines of a chart of `frames`, as `uetproto ladder` draws it.

    `names` maps addresses to words such as "implementation". A line above the chart lists them.
    """
    from uetproto.cli.captures import Decoding
    from uetproto.cli.ladder.command import Chart
    from uetproto.cli.ladder.rows import LadderChoice, LadderTally, arrows, rows

    stream = io.BytesIO()
    write_capture(stream, frames)
    stream.seek(0)
    with open_capture(stream) as reader:
        drawn = list(rows(arrows("-", reader, Decoding(), LadderChoice(), LadderTally())))
    told = "".join(f"; {address} is the {who}" for address, who in names.items())
    return [f"Frames at the port of the implementation{told}:", *Chart(COLUMNS, lambda text, _: text).lines(drawn)]
