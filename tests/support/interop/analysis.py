# SPDX-License-Identifier: GPL-2.0-only
"""This module compares what the plugin and `stats --per-packet` say of the packets around each packet."""

from pathlib import Path
from typing import Any

from tests.support.interop.tshark import run
from uetproto.analysis.decoding import Decoding
from uetproto.audit.per_packet.analyser import Analyser
from uetproto.wire.capture.pcap import open_capture
from uetproto.wire.filter_names import FILTER_NAMES, Given

NAMES = {row.filter: row for row in FILTER_NAMES if row.given is Given.ANALYSIS}
"""Names of the analysis."""

Values = dict[str, Any]


def shown_analysis(capture: Path, home: Path, *options: str) -> list[Values]:
    """Return what tshark shows of each frame, in two passes; times in nanoseconds."""
    fields = [word for name in NAMES for word in ("-e", name)]
    more = ["-T", "fields", "-E", "separator=|", "-E", "occurrence=a", "-E", "aggregator=,"]
    out, _ = run(["-r", capture, "-2", *options, *more, *fields], home)
    return [
        {name: _value(name, text) for name, text in zip(NAMES, line.split("|"), strict=True) if text}
        for line in out.splitlines()
    ]


def _value(name: str, text: str) -> Any:
    row = NAMES[name]
    if row.kind == "label":
        return True
    if row.kind == "relative_time":
        seconds, _, rest = text.partition(".")
        return int(seconds) * 10**9 + int(rest.ljust(9, "0"))
    numbers = [int(part) for part in text.split(",")]
    return numbers if row.many else numbers[0]


def told_analysis(capture: Path) -> list[Values]:
    """Return the same as `stats --per-packet` has it."""
    analyser, rows = Analyser(), []
    with open_capture(capture) as reader:
        for record in reader:
            packet = Decoding().packet(record, "off")
            rows.append(analyser.take(packet, record.data, record.time_ns, record.index + 1, record.interface))
    for number, row in enumerate(rows, 1):
        row |= analyser.late.of(number)
    return [
        {
            name: round(value * 10**9) if NAMES[name].kind == "relative_time" else value
            for name, value in row.items()
            if name in NAMES
        }
        for row in rows
    ]


def differences(capture: Path, home: Path, *options: str) -> list[str]:
    """Return a text for each frame of which the two say different things."""
    shown, told = shown_analysis(capture, home, *options), told_analysis(capture)
    assert len(shown) == len(told), f"{len(shown)} frames in tshark, {len(told)} in the capture"
    return [
        f"{capture.name} frame {number}: plugin {_without(one, other)}, stats {_without(other, one)}"
        for number, (one, other) in enumerate(zip(shown, told, strict=True), 1)
        if one != other
    ]


def _without(one: Values, other: Values) -> Values:
    return {name: value for name, value in one.items() if other.get(name) != value}
