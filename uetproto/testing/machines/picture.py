"""This module draws frames as the ladder that `uetproto ladder` prints, and writes them as a capture."""

import io
from collections.abc import Mapping, Sequence
from os import PathLike

from uetproto.wire.capture.base import Source
from uetproto.wire.capture.pcap import PcapWriter, open_capture, open_writer

COLUMNS = 110
Frames = Sequence[tuple[int, bytes, bool]]
"""Time in picoseconds, bytes, and whether the implementation sent it, of each frame."""


def write_capture(target: Source, frames: Frames) -> None:
    """Write frames as a capture with times in nanoseconds. The suffix of a path selects the format; a stream gets a
    pcap."""
    with open_writer(target) if isinstance(target, str | PathLike) else PcapWriter(target) as writer:
        writer.write_many((time // 1000 for time, _, _ in frames), (data for _, data, _ in frames))


def lines_of(frames: Frames, names: Mapping[str, str]) -> list[str]:
    """Return the lines of the ladder of `frames`. `names` says who has an address, for a line above the ladder."""
    stream = io.BytesIO()
    write_capture(stream, frames)
    stream.seek(0)
    told = "".join(f"; {address} is the {who}" for address, who in names.items())
    return [f"Frames at the port of the implementation{told}:", *capture_lines(stream)]


def capture_lines(source: Source) -> list[str]:
    """Return the lines of the ladder of a capture."""
    from uetproto.cli.captures import Decoding
    from uetproto.cli.ladder.command import Chart
    from uetproto.cli.ladder.rows import LadderChoice, LadderTally, arrows, rows

    with open_capture(source) as reader:
        drawn = list(rows(arrows("-", reader, Decoding(), LadderChoice(), LadderTally())))
    return [*Chart(COLUMNS, lambda text, _: text).lines(drawn)]
