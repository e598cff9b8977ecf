# SPDX-License-Identifier: GPL-2.0-only
"""This module prints the commands that show the packets of a finding of `uetproto audit`."""

import shlex
from collections.abc import Iterable, Iterator, Sequence

from uetproto.audit.finding import Finding
from uetproto.audit.wire.tracker import WireEvent

_AROUND = 2  # number of packets that a ladder shows before and behind each packet of a finding
_FAR = 100  # packets; those between two packets farther apart are not drawn
_NUMBERS = ("spdcid", "dpdcid", "destqp", "srcqp")  # fields of a flow that --pdc takes


def reproduce_hints(finding: Finding, options: Sequence[str] = ()) -> Iterator[str]:
    """Yield a command that draws a ladder around the packets of a finding, then one that dissects the offending
    packet.

    A finding about a single packet needs no ladder. For a damaged file the command dissects the whole file, as there
    may be no packet at the damaged place. `options` are those with which the packets were read. A command for standard
    input begins with `… |`, as standard input cannot be read again.
    """
    again = "… | " if finding.file == "-" else ""
    if not isinstance(finding.rule.on, WireEvent):
        yield again + shlex.join(["uetproto", "ladder", finding.file, *_drawn(finding), *options])
    if finding.rule.on is WireEvent.CAPTURE:
        yield again + shlex.join(["uetproto", "dissect", finding.file, *options])
        return
    fields = ["--packet", str(finding.packet + 1), *(["--sharp"] if finding.rule.id.startswith("SHARP-") else [])]
    yield again + shlex.join(["uetproto", "dissect", finding.file, *fields, *options])


def _drawn(finding: Finding) -> Iterator[str]:
    if finding.interface:
        yield from ("--interface", finding.interface)
    number = next(filter(None, map(finding.flow.get, _NUMBERS)), None)
    if number is not None:
        yield from ("--pdc", str(number))
    packets = sorted(set(finding.packets))
    yield from ("--packets", _around(packets))
    for packet in packets:
        yield from ("--mark", str(packet + 1))


def _around(packets: Iterable[int]) -> str:
    """Return ranges of packet numbers, from 1, around packets; packets that are close together share a range."""
    spans: list[tuple[int, int]] = []
    for packet in packets:
        first = spans.pop()[0] if spans and packet - spans[-1][1] <= _FAR else packet
        spans.append((first, packet))
    return ",".join(f"{max(1, first + 1 - _AROUND)}-{last + 1 + _AROUND}" for first, last in spans)
