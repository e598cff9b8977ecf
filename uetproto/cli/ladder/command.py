# SPDX-License-Identifier: GPL-2.0-only
"""This module has the command `uetproto ladder`: it draws a capture as a message sequence chart (text, SVG, JSON
lines).

`rows.py` makes rows from packets, `taps.py` merges what several interfaces saw of a packet, `details.py` says what the
packets before tell, and `chart.py` and `svg.py` draw. Each row is drawn before the next is read, so that the whole
capture is never in memory.
"""

import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from itertools import islice

import click

from uetproto import LocalError
from uetproto.analysis.decoding import Decoding, read_keys
from uetproto.analysis.filtering import wanted_items
from uetproto.analysis.sources import CaptureSource, MergedReader
from uetproto.audit.reader.options import Options
from uetproto.audit.windows import windows_of
from uetproto.cli.captures import (
    check_files,
    check_offsets,
    decoding_options,
    filter_option,
    keys_option,
    offsets_option,
    read_key_ring,
    readable_again,
    report_closed,
)
from uetproto.cli.ladder.chart import AHEAD, Chart
from uetproto.cli.ladder.details import COLUMNS, LadderDetails
from uetproto.cli.ladder.rows import (
    Arrow,
    LadderChoice,
    LadderTally,
    More,
    Row,
    arrows,
    as_json,
    folded,
    limited,
    not_drawn,
    rows,
)
from uetproto.cli.ladder.svg import SvgStyle, ladder_svg
from uetproto.cli.ladder.taps import LEARNED, Places, learned, merged, numbered_among
from uetproto.cli.main import EXIT_STATUS, FAULT, MISUSE
from uetproto.cli.outputs import check_output
from uetproto.cli.terminal import painter, printable, shortened, width, write_text
from uetproto.errors import identified, listed, similar
from uetproto.filters.display_filter import DisplayFilter
from uetproto.wire.words.summary import count
from uetproto.wire.words.text import numbered

# The command ----------------------------------------------------------------------------------------------------------

SVG_ROWS = 200
_DIGITS = 18  # of the largest number of a packet
_LISTED = 16  # interfaces in a message


def _numbers(_: click.Context, __: click.Parameter, value: str | None) -> list[range] | None:
    """Parse packet numbers: "7", or "7-12" with both ends, or several of these, separated by commas."""
    if value is None:
        return None
    found = []
    for span in value.split(","):
        first, dash, last = span.partition("-")
        if not _is_number(first) or not (_is_number(last) if dash else not last):
            raise identified(
                click.BadParameter(f"{value!r}; legal are numbers of packets from 1, such as 7 or 7-12 or 7-12,30-35"),
                "wrong-format",
            )
        found.append(range(int(first) - 1, int(last or first)))
        if not found[-1]:
            raise identified(
                click.BadParameter(f"{span}: the last number is below the first; legal: {last}-{first}"),
                "inconsistent-values",
            )
    return found


def _is_number(text: str) -> bool:
    """Return whether a text is the number of a packet, from 1."""
    return text.isdecimal() and len(text) <= _DIGITS and int(text) > 0


def _columns(_: click.Context, __: click.Parameter, value: str | None) -> tuple[str, ...]:
    """Parse names of columns, separated by commas."""
    names = tuple(dict.fromkeys((value or "").split(","))) if value else ()
    for name in names:
        if name not in COLUMNS:
            raise identified(
                click.BadParameter(f"{name!r}{similar(name, COLUMNS)}; legal: {listed(COLUMNS)}"), "unknown-column"
            )
    return names


@click.command(
    short_help="Draw a capture as a message sequence chart.",
    epilog=f"""\b
Example:
  uetproto ladder capture.pcapng
  uetproto ladder capture.pcapng --pdc 7 --svg ladder.svg
  uetproto ladder capture.pcapng --packets 40-60,900-910 --mark 52
  uetproto ladder sealed.pcapng --keys keys.toml
  uetproto ladder all-taps.pcapng --merge --fold --columns state,flight,rtt --why
  uetproto ladder sender.pcapng receiver.pcapng --offsets 0,-1500

{EXIT_STATUS}
Damage and malformed packets are faults, with --keys also sealed packets that do not open.""",
)
@click.argument("files", metavar="FILE…", nargs=-1, required=True)
@click.option("--svg", metavar="FILE", help=f"Write a drawing, of {SVG_ROWS} rows unless --count says otherwise.")
@click.option("--json", "json_lines", is_flag=True, help="Print one JSON object a line and row.")
@click.option("--interface", metavar="NAME|N", help="Draw packets of this interface; default: of the first.")
@click.option(
    "--pdc", type=click.IntRange(0, 0xFFFFFF), metavar="ID",
    help="Draw only packets from or to this PDCID; of RoCE to this queue pair, their answers, and datagrams from it.",
)  # fmt: skip
@click.option(
    "--packets", "numbers", callback=_numbers, metavar="N-M,…",
    help="Draw only packets with these numbers, from 1, and show numbers.",
)  # fmt: skip
@click.option(
    "--mark", "marks", type=click.IntRange(1), multiple=True, metavar="N",
    help="Draw this packet in any case, with a mark, and show numbers. May be repeated.",
)  # fmt: skip
@click.option(
    "--merge", is_flag=True,
    help="Draw the copies of a packet at all interfaces as one arrow, with their times, also of places between hosts; "
    "default for several files.",
)  # fmt: skip
@offsets_option
@click.option("--fold", is_flag=True, help="Draw runs of similar packets as one arrow: 12 × data.")
@click.option(
    "--columns", "values", callback=_columns, metavar="NAME,…",
    help=f"Show before each arrow what the packets before it tell: {', '.join(COLUMNS)}.",
)  # fmt: skip
@click.option("--why", "reasons", is_flag=True, help="Say below an arrow why it was sent, and which section says so.")
@click.option("--count", "limit", type=click.IntRange(0), metavar="N", help="Stop after N rows.")
@click.option("--all", "every", is_flag=True, help="Draw a row for every packet, also in runs of similar ones.")
@click.option(
    "--width", "columns", type=click.IntRange(40, 10_000), metavar="N", help="Columns; default: those of the terminal."
)
@filter_option("Draw only packets")
@decoding_options
@keys_option()
@click.pass_context
def command(
    ctx: click.Context,
    files: tuple[str, ...],
    svg: str | None,
    json_lines: bool,
    interface: str | None,
    pdc: int | None,
    numbers: list[range] | None,
    marks: tuple[int, ...],
    merge: bool,
    offsets: list[int] | None,
    fold: bool,
    values: tuple[str, ...],
    reasons: bool,
    limit: int | None,
    every: bool,
    columns: int | None,
    wanted: DisplayFilter | None,
    decoding: Decoding,
    keys_file: str | None,
) -> None:
    """Draw a message sequence chart: a lifeline for a host, an arrow for a packet.

    Times count from the first packet drawn, as captured. Runs of more than five similar packets are drawn as one row,
    long pauses as one line. A dashed arrow is a retransmission. An arrow ends with ✂ if the packet was trimmed, with ╳
    if the packet is malformed or its CRC or ICV is wrong. The arrow of a lost packet ends before the lifeline; only a
    pcapng of `uetproto run` tells which packets were lost. Text numbers packets from 1, as Wireshark does; "index" of
    --json counts from 0. Packets of several files are numbered by their times. FILE may be - for standard input.
    """
    if svg is not None and json_lines:
        raise identified(click.UsageError("--svg and --json exclude each other"), "conflicting-arguments")
    if merge and interface is not None:
        raise identified(
            click.UsageError("--merge draws all interfaces; --interface draws one"), "conflicting-arguments"
        )
    if fold and every:
        raise identified(click.UsageError("--fold and --all exclude each other"), "conflicting-arguments")
    merge = merge or (len(files) > 1 and interface is None)
    check_files(files)
    check_offsets(offsets, files)
    check_output("--svg", svg, [*(("FILE", file) for file in files), ("--keys", keys_file)])
    keys = read_keys(keys_file)
    decoding = decoding._replace(keys=keys)
    tally = LadderTally()
    with_numbers = numbers is not None or bool(marks)
    chosen_marks = frozenset(mark - 1 for mark in marks)
    is_read_again = merge or wanted is not None or "cwnd" in values
    title = ", ".join(os.path.basename(file) for file in files)
    with ExitStack() as owned:
        opened = [readable_again(file, owned) if is_read_again else file for file in files]
        sources = list(map(CaptureSource, opened, offsets or [0] * len(files)))
        chosen = None if wanted is None else wanted_items(wanted, sources, decoding.anew())
        windows = None
        if "cwnd" in values:
            options = Options(keys=read_key_ring(keys_file), **decoding.transports)
            windows = windows_of(sources, options, MergedReader)
        details = LadderDetails(windows) if values or reasons else None
        choice = LadderChoice(interface, pdc, numbers, chosen_marks, chosen, merge, details)
        places = _places(files[0], sources, decoding.anew()) if merge else Places()
        reader = owned.enter_context(MergedReader(sources))
        all_numbers = replace(choice, numbers=None) if merge else choice  # a copy may have a number far away
        packets: Iterator[Arrow] = arrows(files[0], reader, decoding._replace(reader=reader), all_numbers, tally)
        if merge:
            packets = numbered_among(merged(packets, places), choice)
        if svg is not None and limit is None:
            limit = SVG_ROWS
        drawn = limited(folded(packets) if fold else rows(packets, not every), limit, tally)
        if svg is not None:
            style = SvgStyle(with_numbers, places.names, values, reasons, places.lanes)
            _write_svg(svg, title, drawn, tally, style)
        elif json_lines:
            for row in drawn:
                sys.stdout.write(as_json(row) + "\n")
        else:
            chart = Chart(
                columns or width(), painter(), with_numbers, places.names, values=values, reasons=reasons,
                lanes=places.lanes,
            )  # fmt: skip
            for line in chart.lines(drawn, 0 if files == ("-",) else AHEAD):
                sys.stdout.write(line + "\n")
        _check_interface(reader, interface, ", ".join(files), tally)
        for damage in reader.damage:
            click.echo(f"uetproto: {printable(str(damage))}", err=True)
    choices = {"--packets": numbers, "--pdc": pdc, "--filter": wanted}
    _tell(tally, limit, marks, [name for name, value in choices.items() if value is not None])
    closed = keys is not None and report_closed(keys.complaints)
    if reader.damage or closed or tally.malformed:
        ctx.exit(FAULT)
    if not tally.drawn and not tally.cut and (numbers is not None or pdc is not None or wanted is not None):
        ctx.exit(MISUSE)


def _places(file: str, sources: Sequence[CaptureSource], decoding: Decoding) -> Places:
    """Return where the interfaces of captures are, from their first packets."""
    with MergedReader(sources) as reader:
        found = arrows(file, reader, decoding._replace(reader=reader), LadderChoice(merged=True), LadderTally())
        return learned(islice(found, LEARNED))


def _write_svg(path: str, title: str, drawn: Iterator[Row], tally: LadderTally, style: SvgStyle) -> None:
    found = list(drawn)
    note = f"the first {count(_packets(found), 'packet')}" if tally.cut else ""
    write_text(path, ladder_svg(found, title, note, style))


def _packets(found: list[Row]) -> int:
    return sum(row.count if isinstance(row, More) else isinstance(row, Arrow) for row in found)


def _check_interface(reader: MergedReader, wanted: str | None, name: str, tally: LadderTally) -> None:
    names = [interface.name for interface in reader.interfaces]
    if wanted is None or tally.cut or wanted in names or wanted in map(str, range(len(names))):
        return
    named = (f"{number} {shortened(printable(name), 40)}".strip() for number, name in enumerate(names))
    listed = ", ".join(islice(named, _LISTED)) + (", …" if len(names) > _LISTED else "") or "none"
    raise LocalError(f"{name}: there is no interface {wanted}; there are {listed}", id="unknown-interface")


def _tell(tally: LadderTally, limit: int | None, marks: Iterable[int], chosen: Sequence[str]) -> None:
    """Print on standard error how many packets were not drawn, and why."""
    named = f"no packets match {' and '.join(chosen)}" if chosen else "no packets to draw"
    if tally.cut:
        click.echo(f"uetproto: these are the first {count(limit or 0, 'row')}; --count N draws more", err=True)
    missing = sorted({mark - 1 for mark in marks} - tally.marked)
    if missing and tally.drawn and not tally.cut:
        click.echo(f"uetproto: not drawn: {', '.join(map(numbered, missing))} of --mark", err=True)
    for text in not_drawn(tally, named):
        click.echo(f"uetproto: {text}", err=True)
