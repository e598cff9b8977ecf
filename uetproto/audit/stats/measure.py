"""This module measures conversations while they are audited: packets, retransmissions and their causes, windows, times,
messages.

measure.py               `measure` reads captures; a `Measure` listens at one vantage point
uet.py, roce.py          translate events of the trackers for the meters
meters.py                the open meters, and the measurements of a vantage point
flow.py, message.py      the meter of a flow; the meter of a message
rows.py                  rows of closed flows and messages
times.py, trace.py       histograms; traces for a picture
"""

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from types import MappingProxyType

from uetproto.audit.auditor import EarlyEnd, audit
from uetproto.audit.flows import SWEEP, Bounded
from uetproto.audit.judge import Heard, Judge
from uetproto.audit.listeners import Lengths
from uetproto.audit.reader.observed import ObservedPacket
from uetproto.audit.reader.options import Options
from uetproto.audit.report import AuditReport
from uetproto.audit.stats import roce, uet
from uetproto.audit.stats.meters import Measurements, Meters
from uetproto.audit.stats.rows import ALL_ROWS, ROWS, RowTable
from uetproto.errors import typed
from uetproto.wire.capture.base import Source
from uetproto.wire.capture.pcap import Record

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
) -> tuple[AuditReport, list[Measurements]]:
    """Return the report of `audit` with only one rule, CAP-DAMAGED, and the measurements of each vantage point.

    `interface` limits the measurements to the interface with this name or number, and `number` limits them to flows of
    this PDCID or queue pair. `draw` says that traces of flows are kept for a picture. `interrupt` may end the
    measurement early. Raises `LocalError` as `audit` does.
    """
    typed("options", options, Options, "Options()")
    measures = Measures(options, interface=interface, number=number, draw=draw, rows=rows)
    report = audit(files, replace(options, rules=("CAP-DAMAGED",)), progress, measures, interrupt)
    return report, measures.end()


class Measures:
    """This class makes a `Measure` for each vantage point that is measured. It is a `ListenerFactory`."""

    heard: Heard = MappingProxyType({**uet.HEARD, **roce.HEARD})

    def __init__(
        self, options: Options, *, interface: str | None = None, number: int | None = None, draw: bool = False,
        rows: int = ROWS,
    ) -> None:  # fmt: skip
        self._interface = interface
        crc = options.crc != "off"
        self._measure = partial(Measure, most=options.max_flows, rows=rows, wanted=number, draw=draw, crc=crc)
        self._measured: list[Measurements] = []
        self._room = [ALL_ROWS], [ALL_ROWS]

    def __call__(self, judge: Judge, file: str, interface: str, number: int) -> "Measure | None":
        if self._interface not in (None, interface, str(number)):
            return None
        measure = self._measure(file, interface, room=self._room)
        judge.listener = measure.meters
        self._measured.append(measure.measured)
        return measure

    def end(self) -> list[Measurements]:
        """Return the measurements of all vantage points. This must be called after their measurement has ended."""
        return self._measured


class Measure:
    """This class measures one vantage point. It is a `PacketListener`."""

    __slots__ = ("_index", "_length", "_lengths", "_until_sweep", "measured", "meters")

    def __init__(
        self, file: str, interface: str, *, most: int, rows: int = ROWS, wanted: int | None = None,
        draw: bool = False, crc: bool = True, room: tuple[list[int], list[int]] | None = None,
    ) -> None:  # fmt: skip
        """Open the meters. `most` is the number of flows that are open at a time. `wanted` limits the measurement to
        flows of this PDCID or queue pair. `draw` says that traces are kept for a picture, and `crc` that truncated
        packets had a CRC32C. `room` holds the numbers of rows of flows and of messages that all vantage points may
        still keep."""
        flows, messages = room or ([ALL_ROWS], [ALL_ROWS])
        self.measured = Measurements(file, interface, RowTable(rows, flows), RowTable(rows, messages))
        self.meters = Meters(self.measured, most=most, wanted=wanted, draw=draw, crc=crc)
        self._index, self._length = -1, 0
        """Number and length of the present record; -1: its packet was seen."""
        self._lengths: Lengths | None = None
        """Lengths of the records before whose packets were not seen."""
        self._until_sweep = SWEEP

    def take(self, record: Record) -> None:
        """Note the length of a record before it is decoded."""
        if self._index >= 0:
            if self._lengths is None:
                self._lengths = Lengths()
            self._lengths.note(self._index, self._length)
        self._index, self._length = record.index, record.length

    def see(self, seen: ObservedPacket) -> None:
        """Note a packet of UET or RoCE before the trackers see it."""
        measured, meters = self.measured, self.meters
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
        self._until_sweep -= 1
        if not self._until_sweep:
            meters.sweep()
            self._until_sweep = max(SWEEP, len(meters.flows))

    @property
    def tables(self) -> list[Bounded]:
        """Return the table of open meters."""
        return [self.meters]

    def sweep(self, now: int, quiet: bool) -> None:
        """Close the meters of flows that are over at `now` (nanoseconds), and those of the least recent flows if there
        are too many. `quiet` says that no packet came for a long time."""
        self.meters.now = now
        self.meters.sweep(quiet)

    def end(self) -> None:
        """Close all flows after the last packet."""
        self.meters.end()
