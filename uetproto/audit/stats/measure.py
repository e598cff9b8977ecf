# SPDX-License-Identifier: GPL-2.0-only
"""This module measures conversations while they are audited: packets, retransmissions and their causes, windows, times,
messages.

measure.py               `measure` reads captures; a `Measure` listens at one vantage point
uet.py, roce.py          translate events of the trackers for the meters
meters.py                the open meters, and the measurements of a vantage point
flow.py, message.py      the meter of a flow; the meter of a message
rows.py                  rows of closed flows and messages
times.py, trace.py       histograms; traces for a picture
"""

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import lru_cache, partial
from types import MappingProxyType
from typing import Any

from uetproto.audit.auditor import EarlyEnd, audit
from uetproto.audit.flows import SWEEP, Bounded
from uetproto.audit.judge import Heard
from uetproto.audit.listeners import Lengths
from uetproto.audit.reader.observed import ObservedPacket
from uetproto.audit.reader.options import Options
from uetproto.audit.report import AuditReport
from uetproto.audit.stats import roce, uet
from uetproto.audit.stats.meters import Measurements, Meters
from uetproto.audit.stats.rows import ALL_ROWS, ROWS, RowTable
from uetproto.errors import typed
from uetproto.wire.capture.base import Source
from uetproto.wire.capture.pcap import CaptureReader, Record, open_capture

_NONE = "none"
"""Name of the kind of packets whose headers cannot be read."""


def measure(
    files: Iterable[Source],
    options: Options,
    progress: Callable[[int], None] | None = None,
    *,
    interface: str | None = None,
    number: int | None = None,
    draw: bool = False,
    rows: int = ROWS,
    interrupt: EarlyEnd | None = None,
    opener: Callable[[Any], CaptureReader] = open_capture,
) -> tuple[AuditReport, list[Measurements]]:
    """Return the report of `audit` with only one rule, CAP-DAMAGED, and the measurements of each vantage point.

    `interface` limits the measurements to the interface with this name or number, and `number` limits them to flows of
    this PDCID or queue pair. `draw` says that traces of flows are kept for a picture. `interrupt` may end the
    measurement early. `opener` opens each file, as in `audit`. Raises `LocalError` as `audit` does.
    """
    typed("options", options, Options, "Options()")
    measures = Measures(options, interface=interface, number=number, draw=draw, rows=rows)
    report = audit(files, replace(options, rules=("CAP-DAMAGED",)), progress, measures, interrupt, opener)
    return report, measures.end()


class Measures:
    """This class makes a `Measure` for each vantage point that is measured. It is a `ListenerFactory`."""

    heard: Heard = MappingProxyType({**uet.HEARD, **roce.HEARD})

    def __init__(
        self, options: Options, *, interface: str | None = None, number: int | None = None, draw: bool = False,
        rows: int = ROWS,
    ) -> None:  # fmt: skip
        self._interface = interface
        self._open = partial(Meters, most=2 * options.max_flows, wanted=number, draw=draw, crc=options.crc != "off")
        self._rows = rows
        self._measured: list[Measurements] = []
        self._room = [ALL_ROWS], [ALL_ROWS]

    def __call__(self, file: str, interface: str, number: int) -> "Measure | None":
        if self._interface not in (None, interface, str(number)):
            return None
        measure = Measure(file, interface, self._open, rows=self._rows, room=self._room)
        self._measured.append(measure.measured)
        return measure

    def end(self) -> list[Measurements]:
        """Return the measurements of all vantage points. This must be called after their measurement has ended."""
        return self._measured


class Measure:
    """This class measures one vantage point. It is a `PacketListener`."""

    __slots__ = ("_index", "_length", "_lengths", "_meters", "_open", "_since_sweep", "_sweep_after", "measured")

    def __init__(
        self, file: str, interface: str, open_meters: Callable[[Measurements], Meters], *, rows: int = ROWS,
        room: tuple[list[int], list[int]] | None = None,
    ) -> None:  # fmt: skip
        """Begin to measure. `open_meters` makes the meters. `room` holds the numbers of rows of flows and of messages
        that all vantage points may still keep."""
        flows, messages = room or ([ALL_ROWS], [ALL_ROWS])
        self.measured = Measurements(file, interface, RowTable(rows, flows), RowTable(rows, messages))
        self._open = open_meters
        self._meters: Meters | None = None
        """Meters of the flows, or None while the interface is idle."""
        self._index, self._length = -1, 0
        """Number and length of the present record; -1: its packet was seen."""
        self._lengths: Lengths | None = None
        """Lengths of the records before whose packets were not seen."""
        self._since_sweep, self._sweep_after = 0, SWEEP

    def take(self, record: Record) -> None:
        """Note the length of a record before it is decoded."""
        if self._index >= 0:
            if self._lengths is None:
                self._lengths = Lengths()
            self._lengths.note(self._index, self._length)
        self._index, self._length = record.index, record.length

    def see(self, seen: ObservedPacket) -> None:
        """Note a packet of UET or RoCE before the trackers see it."""
        measured, meters = self.measured, self._meters
        if meters is None:
            meters = self.hears
        length: int | None
        if seen.number == self._index:
            length, self._index = self._length, -1
        else:
            length = None if self._lengths is None else self._lengths.pop(seen.number, None)
        now = meters.now = seen.time_ns
        if length is not None:  # else it was inside a sealed packet, which was counted
            meters.length = length
            measured.packets += 1
            measured.bytes += length
            measured.kinds[_NONE if seen.head is None else seen.head.form] += 1
        if measured.first_ns is None:
            measured.first_ns = measured.last_ns = now
        elif now < measured.first_ns:
            measured.first_ns = now
        if now > measured.last_ns:
            measured.last_ns = now
        self._since_sweep += 1
        if self._since_sweep == self._sweep_after:
            meters.sweep()
            self._since_sweep, self._sweep_after = 0, max(SWEEP, len(meters.flows))

    @property
    def hears(self) -> Meters:
        """Return the meters, which the functions of `heard` update."""
        if self._meters is None:
            self._meters = self._open(self.measured)
            self.measured.kinds = self.measured.kinds.copy()
        return self._meters

    def rest(self) -> None:
        """Drop the meters if there is nothing in them, and share the table of kinds with other idle interfaces."""
        if self._meters is not None and self._meters.is_blank:
            self._meters = None
            self.measured.kinds = _shared(tuple(self.measured.kinds.items()))

    @property
    def tables(self) -> list[Bounded]:
        """Return the table of open meters."""
        return [] if self._meters is None else [self._meters]

    def sweep(self, now: int, quiet: bool) -> None:
        """Close the meters of flows that are over at `now` (nanoseconds), and those of the least recent flows if there
        are too many. `quiet` says that no packet came for a long time."""
        self.hears.now = now
        self.hears.sweep(quiet)

    def end(self) -> None:
        """Close all flows after the last packet."""
        if self._meters is not None:
            self._meters.end()


@lru_cache(64)
def _shared(kinds: tuple[tuple[str, int], ...]) -> defaultdict[str, int]:
    return defaultdict(int, kinds)
