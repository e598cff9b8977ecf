# SPDX-License-Identifier: GPL-2.0-only
"""This module draws frames as the ladder that `uetproto ladder` prints, and writes them as a capture."""

import io
from collections.abc import Mapping, Sequence
from os import PathLike
from typing import Any, NamedTuple

from uetproto.impair.frame_outcome import FrameOutcome
from uetproto.testing.adapters.adapter import PortFrame
from uetproto.wire.capture.base import CaptureWriter, Source
from uetproto.wire.capture.pcap import PcapWriter, open_capture, open_writer
from uetproto.wire.capture.pcapng import PcapngWriter

COLUMNS, WIDE, TEXT = 110, 150, 94
"""Width of a ladder of two ends, and of more ends, with the columns for the text."""
Frames = Sequence[PortFrame]
"""Frames at the port of the implementation."""


class DrawnMessage(NamedTuple):
    """This record is a message between two of our own engines, as a ladder shows it."""

    time: int
    """Time in picoseconds."""
    source: str
    target: str
    text: str
    tone: str = "data"
    """Kind of the arrow, a key of `TONES` of `uetproto.cli.ladder.rows`."""


def write_capture(target: Source, frames: Frames) -> None:
    """Write frames as a capture with times in nanoseconds. The suffix of a path selects the format; a stream gets a
    pcap. In a pcapng a frame that was damaged on the way has a comment that says so."""
    with open_writer(target) if isinstance(target, str | PathLike) else PcapWriter(target) as writer:
        _write(writer, frames)


def _write(writer: CaptureWriter, frames: Frames) -> None:
    for frame in frames:
        comment = None if frame.whole is None else FrameOutcome.DAMAGED
        writer.write(frame.time // 1000, frame.data, comment=comment)


def lines_of(frames: Frames, names: Mapping[str, str] | None = None) -> list[str]:
    """Return the lines of the ladder of `frames`. A frame that was damaged is drawn as it left, and marked. `names`
    says who has an address, for a line above the ladder."""
    stream = io.BytesIO()
    with PcapngWriter(stream) as writer:
        writer.add_interface()
        _write(writer, [frame if frame.whole is None else frame._replace(data=frame.whole) for frame in frames])
        writer.flush()
        stream.seek(0)
        drawn = capture_lines(stream)
    if names is None:
        return drawn
    told = "".join(f"; {address} is the {who}" for address, who in names.items())
    return [f"Frames at the port of the implementation{told}:", *drawn]


def capture_lines(source: Source) -> list[str]:
    """Return the lines of the ladder of a capture."""
    from uetproto.analysis.decoding import Decoding
    from uetproto.cli.ladder.rows import LadderChoice, LadderTally, arrows, rows

    with open_capture(source) as reader:
        drawn = list(rows(arrows("-", reader, Decoding(sharp=True), LadderChoice(), LadderTally())))
    return _lines(drawn, {})


def lost_frames(source: Source, names: Mapping[int, str]) -> list[DrawnMessage]:
    """Return the frames of a capture that were lost or damaged on the way. `names` are those of hosts, by address."""
    from uetproto.analysis.decoding import Decoding
    from uetproto.cli.ladder.rows import LadderChoice, LadderTally, arrows

    with open_capture(source) as reader:
        lost = [record for record in reader if record.comment in (FrameOutcome.LOST, FrameOutcome.DAMAGED)]
    stream = io.BytesIO()
    with PcapngWriter(stream) as writer:
        writer.add_interface()
        for record in lost:
            writer.write(record.time_ns, record.data, comment=record.comment)
        writer.flush()
        stream.seek(0)
        with open_capture(stream) as reader:
            drawn = list(arrows("-", reader, Decoding(sharp=True), LadderChoice(), LadderTally()))
    return [
        DrawnMessage(1000 * lost[arrow.index].time_ns, names[arrow.src[0]], names[arrow.dst[0]], arrow.text, arrow.tone)
        for arrow in drawn
    ]


def message_lines(messages: Sequence[DrawnMessage]) -> list[str]:
    """Return the lines of the ladder of messages, of which each is drawn; none: no lines."""
    from uetproto.cli.ladder.rows import Arrow, Host, rows

    hosts: dict[str, Host] = {}
    for message in messages:
        for name in (message.source, message.target):
            hosts.setdefault(name, (len(hosts), 32))
    arrows = (
        Arrow(
            number, each.time // 1000, hosts[each.source], hosts[each.target], each.tone, each.text, None, number
        )
        for number, each in enumerate(messages)
    )  # fmt: skip
    names = {host: name for name, host in hosts.items()}
    drawn = _lines([*rows(arrows)], names)
    return ["Messages between our engines:", *drawn] if drawn else []


def _lines(drawn: Sequence[Any], names: Mapping[tuple[int, int], str]) -> list[str]:
    """Return the lines of rows of a ladder. `names` has the names of hosts that are not shown by their addresses."""
    from uetproto.cli.ladder.chart import Chart
    from uetproto.cli.ladder.rows import Pause

    ends = {host for row in drawn if not isinstance(row, Pause) for host in (row.src, row.dst)}
    return [*Chart(COLUMNS if len(ends) <= 2 else WIDE, lambda text, _: text, names=names, text=TEXT).lines(drawn)]
