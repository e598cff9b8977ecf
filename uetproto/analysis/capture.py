# SPDX-License-Identifier: GPL-2.0-only
"""This module has `open_captures`, which is `uetproto.open`, and the class `Capture`."""

import os
import sys
import warnings
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Any
from weakref import ref

from uetproto.analysis.arguments import check_int, check_numbers, check_path, check_texts
from uetproto.analysis.decoding import Decoding
from uetproto.analysis.filtering import looked_at, matching, read_again, wanted_items
from uetproto.analysis.html import table_html
from uetproto.analysis.packet_view import PacketView
from uetproto.analysis.sources import CaptureSource, MergedReader, Openable, SourceDamage
from uetproto.diff.result import DiffResult
from uetproto.engine.tss.keys import KeyRing
from uetproto.errors import LocalError, SuggestsNames, missing_package, shown, similar, suggests_arguments, typed
from uetproto.filters.display_filter import DisplayFilter, FilteredPacket
from uetproto.wire.capture.base import CaptureReader, Record
from uetproto.wire.forms import IP_PROTOCOL, ROCE_PORT, UDP_PORT
from uetproto.wire.packet import Packet
from uetproto.wire.stack import CRC_MODES, RD_MODES, check_choice, check_number
from uetproto.wire.words.summary import stamp
from uetproto.wire.words.text import count

if TYPE_CHECKING:  # they are loaded when they are asked for
    from uetproto.analysis.results import AuditResult, FlowRows, Ladder, MessageRows, StatsResult

SHOWN = 10
"""Packets of a capture that are shown."""
LADDER_ROWS = 200
"""Rows of a ladder, unless the caller says otherwise."""


class CaptureWarning(UserWarning):
    """This warning says that a part of a capture cannot be read."""


@suggests_arguments
def open_captures(
    source: Openable,
    *more: Openable,
    crc: str = "auto",
    keys: "str | os.PathLike[str] | KeyRing | None" = None,
    link: str | None = None,
    offsets_ns: Sequence[int] | None = None,
    udp_port: int = UDP_PORT,
    ip_protocol: int = IP_PROTOCOL,
    roce_port: int = ROCE_PORT,
    rd: str = "raw",
    sharp: bool = False,
    mcast: bool = False,
) -> "Capture":
    """Open a capture: a path, bytes, or a file that is open for reading bytes; pcap or pcapng, also compressed with
    gzip, zstd, xz or lz4. Several captures are merged by time.

    The capture is read when it is iterated, in constant memory. `offsets_ns` has a number of nanoseconds for each
    capture, which is added to its times: the difference of clocks. `keys` opens sealed packets: a TOML file, or a
    `KeyRing`. `link` replaces the link type that the capture states. The other settings are those of `decode`. Raises
    `LocalError` for an argument that is not legal and for a file that is no capture, and `OSError` for a file that
    cannot be opened.
    """
    check_choice("crc", crc, CRC_MODES)
    check_choice("rd", rd, RD_MODES)
    for name, value, most in (
        ("udp_port", udp_port, 0xFFFF), ("ip_protocol", ip_protocol, 0xFF), ("roce_port", roce_port, 0xFFFF)
    ):  # fmt: skip
        check_number(name, value, most)
    if offsets_ns is not None:
        typed("offsets_ns", offsets_ns, (list, tuple), "a list with a whole number of ns for each capture")
    if keys is not None:
        typed("keys", keys, (str, os.PathLike, KeyRing), "a path, or a KeyRing")
    named = (source, *more)
    offsets = (0,) * len(named) if offsets_ns is None else tuple(offsets_ns)
    if len(offsets) != len(named):
        raise LocalError(
            "offsets_ns", f"{len(offsets)} for {len(named)} captures", "one for each capture", id="wrong-count"
        )
    sources = tuple(CaptureSource(one, offset, link) for one, offset in zip(named, offsets, strict=True))
    for one in sources:
        if one.seekable():
            one.open().close()  # an error is raised here and not where the capture is iterated
    decoding = Decoding(crc, udp_port, ip_protocol, roce_port, rd, sharp, mcast)
    return Capture(sources, decoding, keys)


class Capture(SuggestsNames):
    """A capture holds packets, which it reads when it is iterated; it can be iterated as often as wanted, unless it is
    a pipe.

    `uetproto.open` makes it. Damage in the capture is a `CaptureWarning` at the end of an iteration, and is listed in
    `damage`.
    """

    def __init__(
        self, sources: tuple[CaptureSource, ...], decoding: Decoding,
        keys: "str | os.PathLike[str] | KeyRing | None" = None, wanted: DisplayFilter | None = None,
        analysed: bool = False,
    ) -> None:  # fmt: skip
        self._sources, self._decoding, self._keys, self._wanted = sources, decoding, keys, wanted
        self._analysed = analysed
        self._chosen: list[bytearray] | None = None
        """For each source the packets that the filter wants, once they are needed."""
        self._ring = None if keys is None else keys if isinstance(keys, KeyRing) else KeyRing.read(os.fspath(keys))
        self._count: int | None = None
        self._begun: ref[Generator[PacketView]] | None = None
        """Latest iteration."""
        self._measured: StatsResult | None = None
        self.damage: list[SourceDamage] = []
        """Parts of the capture that cannot be read, as the last iteration found them."""

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of the captures that are merged."""
        return tuple(source.name for source in self._sources)

    @property
    def fields(self) -> tuple[str, ...]:
        """Return the names of fields that `filter`, `to_arrow(fields=…)` and `packet[name]` know."""
        from uetproto.filters.fields import fields

        return tuple(fields())

    @property
    def share(self) -> float | None:
        """Return the part of the capture that the present iteration has read, from 0 to 1; None if that is not known,
        as for a pipe."""
        shares = [source.share for source in self._sources]
        known = [one for one in shares if one is not None]
        return sum(known) / len(known) if len(known) == len(shares) else None

    # Packets ----------------------------------------------------------------------------------------------------------

    def __iter__(self) -> Iterator[PacketView]:
        """Yield the packets, in the order of the capture; several captures by their times."""
        found = self._all()
        self._begun = ref(found)
        return found

    def _all(self) -> Generator[PacketView]:
        with MergedReader(self._sources) as reader:
            number = 0
            for number, packet in enumerate(self._packets(reader), 1):  # noqa: B007
                yield packet
            self._count = number
            self._tell(reader.damage)

    def _packets(self, reader: MergedReader) -> Iterator[PacketView]:
        decoding = self._opening(reader)
        interfaces, captures = reader.interfaces, reader.names
        pipe = not all(source.seekable() for source in self._sources)
        names: dict[int, tuple[str, str]] = {}
        pairs = decoding.packets("", reader, pipe)
        found: Iterable[tuple[Record, Packet, FilteredPacket | None]]
        if self._wanted is None and not self._analysed:
            found = ((record, packet, None) for record, packet in pairs)
        else:
            found = self._looked_at(pairs, decoding, reader)
        for record, packet, seen in found:
            packet, _ = decoding.opened(record, packet)
            place = names.get(record.interface)
            if place is None:
                interfaces, captures = reader.interfaces, reader.names
                place = names[record.interface] = interfaces[record.interface].name, captures[record.interface]
            yield PacketView(record, packet, place, seen)

    def _opening(self, reader: MergedReader | None) -> Decoding:
        """Return the settings with keys that count anew, and with the ports that the capture states."""
        keys = None
        if self._ring is not None:
            from uetproto.analysis.opened import Keys

            keys = Keys(self._ring)
        return self._decoding._replace(reader=reader, keys=keys)

    def _looked_at(
        self, pairs: Iterable[tuple[Record, Packet]], decoding: Decoding, reader: MergedReader
    ) -> Iterator[tuple[Record, Packet, FilteredPacket]]:
        """Yield the packets that the filter wants, with what filters look at."""
        wanted = self._wanted
        analysed = self._analysed or (wanted is not None and wanted.analysed)
        late = self._analysed or (wanted is not None and wanted.late)
        found = looked_at(
            analysed, late, decoding, pairs, lambda: reader.interfaces, lambda: read_again(self._sources, decoding)
        )
        return (one for one in found if wanted is None or wanted.matches(one[2]))

    def analysed(self) -> "Capture":
        """Return the same packets, with what the packets around them say: `packet["uetp.acked_in"]`, `uetp.pdc`,
        `uetp.analysis.*` (docs/reference/analysis.md). The capture is read twice, so it cannot be a pipe."""
        return Capture(self._sources, self._decoding, self._keys, self._wanted, True)

    def filter(self, text: str) -> "Capture":
        """Return the packets that a display filter wants, as a capture; what is said of other packets, such as
        numbers, times and PDCs, does not change.

        The language is that of Wireshark 4.0 with the names of the plugin (filters.md). Raises `LocalError` that
        says what is wrong in `text`, and where.
        """
        wanted = DisplayFilter(text)
        if self._wanted is not None:
            wanted = DisplayFilter(f"({self._wanted.text}) and ({text})")
        return Capture(self._sources, self._decoding, self._keys, wanted, self._analysed)

    def _readers(self) -> Callable[[CaptureSource], CaptureReader]:
        """Return what opens a source; with a filter, of the packets that it wants."""
        if self._wanted is None:
            return CaptureSource.open
        if self._chosen is None:
            self._chosen = matching(self._wanted, self._sources, self._opening(None))
        chosen = dict(zip(map(id, self._sources), self._chosen, strict=True))
        return lambda source: source.chosen(chosen[id(source)])

    def __getitem__(self, index: int) -> PacketView:
        """Return packet `index` of those that an iteration yields, counted from 0; the packets before it are read.
        Raises `IndexError` if there are fewer."""
        if type(index) is not int or index < 0:
            raise LocalError(
                "index", f"{shown(index)} is not legal", "whole numbers from 0; list(capture) has the rest",
                id="out-of-range"
            )  # fmt: skip
        for packet in islice(self, index, None):
            return packet
        raise IndexError(f"the capture has no packet {index}")

    def __len__(self) -> int:
        """Return the number of packets. Raises `TypeError` for a pipe that was not read to its end, and while an
        iteration is about to begin, as in `list(capture)`, which asks for it and does not need it."""
        if self._count is None and self._is_about_to_begin():
            raise TypeError("the number of packets is known before an iteration begins, or when it has ended")
        if self._count is None and self._wanted is not None:
            self._readers()
            self._count = sum(map(sum, self._chosen or ()))
        if self._count is None:
            if not all(source.seekable() for source in self._sources):
                raise TypeError("the number of packets of a pipe is known when it was read")
            with MergedReader(self._sources) as reader:
                self._count = sum(1 for _ in reader)
        return self._count

    def _is_about_to_begin(self) -> bool:
        from inspect import GEN_CREATED, getgeneratorstate  # it is needed here alone

        begun = None if self._begun is None else self._begun()
        return begun is not None and getgeneratorstate(begun) == GEN_CREATED

    def __bool__(self) -> bool:
        return True

    # What is in it ----------------------------------------------------------------------------------------------------

    @property
    def flows(self) -> "FlowRows":
        """Return the flows: what one end sent to the other, of PDCs, queue pairs, RUDI and UUD."""
        return self.stats().flows

    @property
    def pdcs(self) -> "FlowRows":
        """Return the directions of PDCs."""
        from uetproto.analysis.results import flows_of

        return flows_of(self.stats().measured, "pdc")

    @property
    def qps(self) -> "FlowRows":
        """Return the directions of queue pairs of RoCE."""
        from uetproto.analysis.results import flows_of

        return flows_of(self.stats().measured, "qp")

    @property
    def messages(self) -> "MessageRows":
        """Return the messages."""
        return self.stats().messages

    def stats(self) -> "StatsResult":
        """Measure the capture as `uetproto stats` does. The result is kept for the next call."""
        if self._measured is None:
            from uetproto.analysis.results import StatsResult
            from uetproto.audit.stats.measure import measure

            open_one, opened = self._readers(), []

            def opener(source: CaptureSource) -> CaptureReader:
                opened.append((source.name, open_one(source)))
                return opened[-1][1]

            _, measured = measure(self._sources, self._options(), opener=opener)  # type: ignore[arg-type]
            self._measured = StatsResult(measured)
            self._tell([SourceDamage(name, *one) for name, reader in opened for one in reader.damage])
        return self._measured

    @suggests_arguments
    def audit(
        self,
        *rules: str,
        complete: bool = False,
        ordered: bool = False,
        mirror: bool = False,
        personality: str | None = None,
        cc: str | None = None,
    ) -> "AuditResult":
        """Judge the capture as `uetproto audit` does. `rules` are globs; one that begins with "-" excludes rules. Of a
        filtered capture all packets are judged, and findings are kept that a wanted packet shows.

        `complete`: the capture has every packet; `ordered`: in the order of sending; `mirror`: a packet that a mirror
        port captured twice counts once; `personality`: known departures of this implementation are notes; `cc`:
        parameters of senders with NSCC, such as "rate=100 Gb/s,base_rtt=12 us", to recompute their windows. Raises
        `LocalError` for an unknown rule or personality, and for parameters that are not legal.
        """
        from uetproto.analysis.results import AuditResult
        from uetproto.audit.auditor import audit
        from uetproto.audit.outcome import AuditOutcome, shown_by
        from uetproto.audit.pds.tracker_window import check_given
        from uetproto.audit.rule import Severity

        check_texts("rules", rules)
        check_given(cc, complete)
        options = self._options(
            rules=rules, complete=complete, ordered=ordered, mirror=mirror, personality=personality, cc=cc
        )  # fmt: skip
        report = audit(self._sources, options, opener=CaptureSource.open)  # type: ignore[arg-type]
        outcome = AuditOutcome(report, Severity.ERROR)
        outcome.findings = report.findings
        if self._wanted is not None:
            self._readers()
            names = [source.name for source in self._sources]
            outcome.findings = shown_by(report.findings, dict(zip(names, self._chosen or (), strict=True)))
            outcome.unwanted = len(report.findings) - len(outcome.findings)
        return AuditResult(outcome)

    @suggests_arguments
    def diff(
        self, other: "Capture", *, strict: bool = False, ignore: Collection[str] = (),
        addresses: Mapping[str, str] | None = None,
    ) -> DiffResult:  # fmt: skip
        """Compare the capture with another one, as `uetproto diff` does: what is missing, extra, moved, changed there.

        `strict` also compares times, order, ports, PDCIDs, queue pairs, PSNs, checksums and CRCs; `ignore` has fields
        ("ipv4.ttl") and forms ("ethernet") that are not compared; `addresses` maps IP addresses of this capture to
        those that stand for them in the other one. Both captures are read twice, so neither may be a
        pipe. Raises `LocalError` for a field that does not exist.
        """
        from uetproto.diff.compare import diff

        typed("other", other, Capture, "a capture, such as uetproto.open(path)")
        check_texts("ignore", ignore)
        return diff(self, other, strict=strict, ignore=ignore, addresses=addresses)

    def _options(self, **more: Any) -> Any:
        from uetproto.audit.reader.options import Options

        return Options(keys=self._ring, **self._decoding.transports, **more)

    @suggests_arguments
    def ladder(
        self,
        *,
        interface: str | None = None,
        pdc: int | None = None,
        packets: Sequence[int] | range | None = None,
        mark: Sequence[int] = (),
        every: bool = False,
        merge: bool | None = None,
        fold: bool = False,
        columns: Sequence[str] = (),
        why: bool = False,
        rows: int | None = LADDER_ROWS,
        width: int = 100,
    ) -> "Ladder":
        """Draw the capture as a message sequence chart: packets of one interface, by default the first, or of all
        interfaces if several captures are merged, or if the first has nothing to draw.

        `pdc` chooses a PDCID or queue pair, `packets` packets by their index (from 0), and `mark` packets that are
        drawn in any case. `every` draws a row for each packet, also in runs of similar ones. `merge` draws the copies
        of a packet at all interfaces as one arrow, which several captures have unless it is False, and `fold` runs of
        similar packets ("12 × …"). `columns` are values before each arrow (state, flight, window, cwnd, credit, rtt,
        timer), and `why` adds the reason of a packet.
        `rows` limits the rows, and `width` is the number of characters of a line of text. Raises `LocalError` for an
        interface or a column that is not there.
        """
        from uetproto.analysis.results import Ladder
        from uetproto.cli.ladder.chart import Chart
        from uetproto.cli.ladder.details import COLUMNS, LadderDetails
        from uetproto.cli.ladder.rows import LadderChoice, LadderTally, folded, limited, not_drawn
        from uetproto.cli.ladder.rows import rows as rows_of
        from uetproto.cli.ladder.svg import SvgStyle, ladder_svg
        from uetproto.cli.ladder.taps import LEARNED, Places, learned, merged, numbered_among

        for name, value in (("packets", packets), ("mark", mark)):
            check_numbers(name, value, none=name == "packets")
        check_int("pdc", pdc, 0, 0xFFFFFF, none=True)
        check_int("rows", rows, 0, none=True)
        check_int("width", width, 40, 10_000)
        check_texts("columns", columns)
        if packets is not None and not packets:
            raise LocalError("packets", "are none", "at least one index", id="unknown-packet")
        for name in columns:
            if name not in COLUMNS:
                raise LocalError(
                    "columns", f"{shown(name)} is not there{similar(name, COLUMNS)}", ", ".join(COLUMNS),
                    id="unknown-column"
                )  # fmt: skip
        given = merge is not None
        merge = len(self._sources) > 1 and interface is None if merge is None else merge
        if merge and interface is not None:
            raise LocalError("merge", "draws all interfaces", "merge or interface", id="conflicting-arguments")
        numbers = None if packets is None else [range(number, number + 1) for number in packets]
        details = LadderDetails(self._windows() if "cwnd" in columns else None) if columns or why else None
        choice, tally = (
            LadderChoice(interface, pdc, numbers, frozenset(mark), self._wanted_items(), merge, details),
            LadderTally(),
        )
        places = Places()
        if merge:
            places = learned(islice(self._arrows(LadderChoice(merged=True), LadderTally()), LEARNED))
        names: list[str] = []
        found = self._arrows(replace(choice, numbers=None) if merge else choice, tally, names)
        if merge:
            found = numbered_among(merged(found, places), choice)
        drawn = list(limited(folded(found) if fold else rows_of(found, not every), rows, tally))
        if interface is not None and interface not in (*names, *map(str, range(len(names)))):
            raise LocalError(
                "interface", f"{shown(interface)} is not there{similar(interface, names)}", ", ".join(names),
                id="unknown-interface"
            )  # fmt: skip
        numbered = numbers is not None or bool(mark)
        chart = Chart(width, _plain, numbered, places.names, values=columns, reasons=why, lanes=places.lanes)
        lines = list(chart.lines(drawn))
        note = f"the first {rows} rows" if tally.cut else ""
        title = ", ".join(os.path.basename(name) for name in self.names)
        style = SvgStyle(numbered, places.names, columns, why, places.lanes)
        if not drawn and tally.elsewhere and not given and interface is None:
            return self.ladder(
                pdc=pdc, packets=packets, mark=mark, every=every, merge=True, fold=fold, columns=columns, why=why,
                rows=rows, width=width,
            )  # fmt: skip
        if not drawn:
            note = "; ".join(not_drawn(tally, "no packets to draw"))
        return Ladder("\n".join([*lines, f"({note})"] if note else lines), ladder_svg(drawn, title, note, style))

    # Tables -----------------------------------------------------------------------------------------------------------

    @suggests_arguments
    def table(self, fields: Sequence[str] | None = None, analysis: bool = False) -> Any:
        """Return the joined table, a `tables.pieces.CaptureTable`, which is made piece by piece.

        The arguments and errors are those of `to_arrow`.
        """
        from uetproto.tables.masks import is_streamed
        from uetproto.tables.names import chosen
        from uetproto.tables.pieces import CaptureTable

        columns = chosen(fields, analysis, len(self._sources) > 1)
        once = None
        if self._wanted is not None and is_streamed(self._wanted) and not self._sources[0].seekable():
            once = self._wanted
        elif self._wanted is not None:
            self._readers()
        return CaptureTable(
            self._sources, self._decoding, columns, self._seen, self._chosen, once, sealed=self._ring is not None
        )

    def _seen(self, source: CaptureSource, analysed: bool, late: bool) -> Iterator[FilteredPacket]:
        """Yield what filters look at of all packets of one source."""
        with MergedReader([source]) as reader:
            decoding = self._opening(reader)
            pairs = decoding.packets("", reader, False)
            for _, _, seen in looked_at(
                analysed, late, decoding, pairs, lambda: reader.interfaces, lambda: read_again([source], decoding)
            ):
                yield seen

    @suggests_arguments
    def to_arrow(self, fields: Sequence[str] | None = None, *, analysis: bool = False) -> Any:
        """Return the packets as a table of pyarrow, a row for each.

        `fields` are names of docs/howto/tables.md, by default the common ones; `analysis` adds those that say what the
        packets around a packet say, which reads packets one by one. Several captures follow each other, and have a
        column `file`. Raises `LocalError` for an unknown name and for a pipe, and `MissingPackageError` without
        pyarrow.
        """
        from uetproto.arrow import pyarrow_for

        pa = pyarrow_for("Capture.to_arrow")
        table = self.table(fields, analysis)
        found = pa.Table.from_batches([piece.batch for piece in table.pieces()], schema=table.schema)
        self._tell(table.damage)
        return found

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Return the common columns as a stream of Arrow: `polars.DataFrame(capture)`."""
        return self.to_arrow().__arrow_c_stream__(requested_schema)

    @suggests_arguments
    def to_polars(self, fields: Sequence[str] | None = None, *, analysis: bool = False) -> Any:
        """Return the packets as a frame of Polars; the arguments are those of `to_arrow`."""
        try:
            import polars
        except ImportError:
            raise missing_package("Capture.to_polars", "polars", "tables") from None
        return polars.from_arrow(self.to_arrow(fields, analysis=analysis))

    @suggests_arguments
    def to_pandas(self, fields: Sequence[str] | None = None, *, analysis: bool = False) -> Any:
        """Return the packets as a frame of pandas; the arguments are those of `to_arrow`."""
        try:
            import pandas  # noqa: F401
        except ImportError:
            raise missing_package("Capture.to_pandas", "pandas", "tables") from None
        return self.to_arrow(fields, analysis=analysis).to_pandas()

    @suggests_arguments
    def to_parquet(
        self, path: "str | os.PathLike[str]", fields: Sequence[str] | None = None, *, analysis: bool = False
    ) -> dict[str, int]:
        """Write the packets to a Parquet file, in pieces; or to a folder, with a file for each form, too.

        A `path` in .parquet is a file. Return the number of rows of each file. The other arguments and the errors are
        those of `to_arrow`.
        """
        from uetproto.tables.files import export, format_of

        check_path("path", path)
        format, folder = format_of(os.fspath(path), "parquet")
        table = self.table(fields, analysis)
        counts = export(table, os.fspath(path), format, folder, lambda packets: None)
        self._tell(table.damage)
        return counts

    def _tell(self, damage: list[SourceDamage]) -> None:
        self.damage = damage
        for one in damage:
            warnings.warn(str(one), CaptureWarning, stacklevel=_callers_level())

    def _wanted_items(self) -> bytearray | None:
        """Return an item for each packet, which is 1 if the filter wants it; None: there is no filter."""
        return None if self._wanted is None else wanted_items(self._wanted, self._sources, self._opening(None))

    def _arrows(self, choice: Any, tally: Any, names: list[str] | None = None) -> Iterator[Any]:
        """Yield the arrows of the packets that `choice` selects. `names` gets the names of the interfaces."""
        from uetproto.cli.ladder.rows import arrows

        with MergedReader(self._sources) as reader:
            yield from arrows("-", reader, self._opening(reader), choice, tally)
            if names is not None:
                names += [one.name for one in reader.interfaces]
                self._tell(reader.damage)

    def _windows(self) -> dict[int, int]:
        """Return the windows of senders with NSCC, by the numbers of packets."""
        from uetproto.audit.windows import windows_of

        return windows_of(self._sources, self._options(), MergedReader)

    @suggests_arguments
    def report(self, path: str | os.PathLike[str], *, rows: int | None = None, complete: bool = False) -> None:
        """Write a page with ladder, plots, findings and measurements, as `uetproto report` does: one HTML file that
        needs nothing else.

        The page has the first `rows` packets, 50,000 if `rows` is None; findings and measurements are those of the
        whole capture. `complete` tells the audit that the capture has every packet. The capture is read several times,
        so it may be no pipe. Raises `OSError` if the file cannot be written.
        """
        from uetproto.report.data import ROWS, collect
        from uetproto.report.page import facts_of, page

        check_path("path", path)
        check_int("rows", rows, 0, none=True)
        with MergedReader(self._sources) as reader:
            interfaces = {record.interface for record in reader}
        wanted, most = self._wanted_items(), ROWS if rows is None else rows

        def read(choice: Any, tally: Any) -> Iterator[Any]:
            return self._arrows(replace(choice, wanted=wanted), tally)

        data = collect(read, len(interfaces) > 1, most, self._windows())
        audit, stats = self.audit(complete=complete), self.stats()
        firsts = [one.first_ns for one in stats.measured if one.first_ns is not None]
        span_ns = max(one.last_ns for one in stats.measured if one.packets) - min(firsts) if firsts else None
        facts = facts_of(stats.packets, stats.bytes, span_ns, most if data["cut"] else None)
        text = page(
            ", ".join(os.path.basename(name) for name in self.names), facts, data, audit.outcome.findings,
            audit.verdict, stats.flows.as_dicts(), stats.messages.as_dicts(),
        )  # fmt: skip
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)

    # As text ----------------------------------------------------------------------------------------------------------

    def _first(self) -> tuple[list[list[str]], str]:
        """Return the first packets as cells of a table, and a note. A pipe is not read for this."""
        if not all(source.seekable() for source in self._sources):
            return [], f"{', '.join(self.names)}: a pipe, which is read when it is iterated"
        with MergedReader(self._sources) as reader:
            packets = list(islice(self._packets(reader), SHOWN + 1))
        start = packets[0].time_ns if packets else 0
        cells = [
            [
                f"#{one.number}",
                stamp(one.time_ns - start),
                one.src,
                one.dst,
                one.protocol,
                str(one.length),
                one.summary(),
            ]
            for one in packets[:SHOWN]
        ]
        more = len(packets) > SHOWN
        return cells, f"{', '.join(self.names)}: {'the first ' if more else ''}{count(len(cells), 'packet')}"

    def __repr__(self) -> str:
        cells, note = self._first()
        lines = [list(_HEAD), *cells] if cells else []
        wide = [max(map(len, column)) for column in zip(*lines, strict=True)]
        told = ["  ".join(cell.ljust(size) for cell, size in zip(line, wide, strict=True)).rstrip() for line in lines]
        return "\n".join((*told, f"({note})"))

    def _repr_html_(self) -> str:
        cells, note = self._first()
        return table_html(_HEAD, cells, note)


_HEAD = ("", "time", "from", "to", "protocol", "bytes", "summary")


def _callers_level() -> int:
    """Return the `stacklevel` by which a warning of the caller names the first line outside this package."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("uetproto."):
        level, frame = level + 1, frame.f_back
    return level


def _plain(text: str, style: str) -> str:
    return text
