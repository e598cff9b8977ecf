"""This module has the command `uetproto ladder`: it draws a capture as a message sequence chart (text, SVG, JSON
lines).

`rows.py` makes rows from packets, and `Chart` makes lines from rows. Each row is drawn before the next is read, so that
the whole capture is never in memory.
"""

import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice

import click

from uetproto import LocalError
from uetproto.analysis.decoding import Decoding, read_keys
from uetproto.cli.captures import (
    chosen_packets,
    decoding_options,
    filter_option,
    keys_option,
    report_closed,
    report_damage,
)
from uetproto.cli.ladder.rows import (
    TONES,
    Arrow,
    Host,
    LadderChoice,
    LadderTally,
    More,
    Pause,
    Row,
    arrows,
    as_json,
    limited,
    rows,
)
from uetproto.cli.main import EXIT_STATUS, FAULT, MISUSE
from uetproto.cli.outputs import check_output
from uetproto.cli.terminal import Paint, painter, printable, shortened, width, write_text
from uetproto.filters.display_filter import DisplayFilter
from uetproto.wire.capture.pcap import CaptureReader, open_capture
from uetproto.wire.words.summary import address, count, duration, stamp
from uetproto.wire.words.text import numbered

# For a terminal -------------------------------------------------------------------------------------------------------

_TIME = 14  # columns
_MARGIN = _TIME + 2
_NUMBER = 9  # columns for a packet's number and its mark
_TEXT, _LESS_TEXT = 52, 28  # columns for the text beside more than two lifelines: wanted, needed
_NARROW, _WIDE = 8, 18  # columns between lifelines
_AHEAD = 256  # rows read before the first is drawn, so that their hosts are known
_OTHERS = "others"
_HEADS = {"bad": "╳", "lost": "╳", "trimmed": "✂"}  # heads of arrows, by tone; other tones have a plain head
_SHORT = 8  # the arrow of a lost packet ends an eighth before the lifeline
_MARK = "▸"


class Chart:
    """This class draws rows as lines of text. Each host has a lifeline, in the order of appearance; the hosts that do
    not fit into `columns` characters share the last lifeline."""

    def __init__(
        self,
        columns: int,
        paint: Paint,
        numbered: bool = False,
        names: Mapping[Host, str] | None = None,
        text: int = _TEXT,
    ) -> None:
        """Make an empty chart. If `numbered` is True, it shows the numbers of the packets. `names` has the names of
        hosts that are not shown by their addresses. Texts beside more than two lifelines get `text` columns, if
        there is room for them."""
        self._text = text
        self._names = names or {}
        self._columns = columns
        self._paint = paint
        self._numbered = numbered
        self._margin = _MARGIN + _NUMBER * numbered
        self._most = max(2, (columns - self._margin - _LESS_TEXT) // _NARROW + 1)  # number of lifelines
        self._hosts: dict[Host, int] = {}  # lane of each host that has a lane of its own
        self._at: list[int] = []  # the column of each lifeline
        self._beside = False  # whether texts stand to the right of the lifelines, not on arrows

    def lines(self, drawn: Iterable[Row], ahead: int = _AHEAD) -> Iterator[str]:
        """Yield the lines of the chart. The hosts of the first `ahead` rows are known before the first line; a host
        that appears later causes a new heading."""
        stream = iter(drawn)
        first = list(islice(stream, ahead))
        new = self._meet(first)
        headed = False
        for row in chain(first, stream):
            if self._meet([row]) or new:
                if headed:
                    yield ""
                yield from self._heading()
                new, headed = False, True
            yield self._line(row)

    def _meet(self, new: Iterable[Row]) -> bool:
        """Lay out the lifelines again if there are new hosts; return whether there are."""
        known = len(self._hosts)
        for row in new:
            if not isinstance(row, Pause):
                for host in (row.src, row.dst):
                    if len(self._hosts) <= self._most:  # one host more shows that there are others
                        self._hosts.setdefault(host, len(self._hosts))
        if len(self._hosts) == known:
            return False
        room = self._columns - self._margin
        lanes = max(len(self._hosts), 2)
        self._beside = lanes > 2
        if self._beside:
            lanes = min(lanes, self._most)
            gap = max(_NARROW, min(_WIDE, (room - self._text) // (lanes - 1)))
        else:
            gap = max(room - 1, _NARROW)
        self._at = [self._margin + gap * lane for lane in range(lanes)]
        return True

    def _lane(self, host: Host) -> int:
        return min(self._hosts.get(host, self._most), len(self._at) - 1)

    def _name(self, host: Host) -> str:
        return self._names.get(host) or address(*host)

    def _is_crowded(self) -> bool:
        """Return whether the last lifeline stands for several hosts."""
        return len(self._hosts) > len(self._at)

    def _heading(self) -> Iterator[str]:
        names = [self._name(host) for host in islice(self._hosts, len(self._at))]
        if self._is_crowded():
            names[-1] = _OTHERS
        line = [" "] * max(self._columns, self._at[-1] + 1)
        line[: len("time")] = "time"
        for lane, name in enumerate(names):
            if self._beside:
                room = self._at[1] - self._at[0] - 1
                name = name if len(name) <= room else f"…{name[1 - room :]}"  # names often differ only at the end
            else:
                name = shortened(name, (self._at[-1] - self._at[0]) // 2)
            start = self._at[lane] - len(name) // 2
            if lane == len(self._at) - 1 and not self._beside:
                start = self._at[lane] - len(name) + 1
            elif lane == 0 and not self._beside:
                start = self._at[0]
            start = max(start, 5)
            line[start : start + len(name)] = name
        yield self._paint("".join(line).rstrip(), "bold")
        yield " " * self._margin + "".join(self._lifelines()).rstrip()

    def _lifelines(self) -> list[str]:
        line = [" "] * (self._at[-1] - self._margin + 1)
        for at in self._at:
            line[at - self._margin] = "│"
        return line

    def _line(self, row: Row) -> str:
        paint = self._paint
        if isinstance(row, Pause):
            return paint(f"{'':{self._margin}}{self._centred(f'  {duration(row.ns)} later  ', '┊', '')}", "dim")
        style = TONES[row.tone][0]
        a, b = self._lane(row.src), self._lane(row.dst)
        text = row.text
        if self._is_crowded():
            others = [self._name(host) for host in (row.src, row.dst) if self._lane(host) == len(self._at) - 1]
            text = " ".join(("→".join(others), text)).strip()
        if isinstance(row, More):
            line = self._centred(f" … {text} … ", "│", style, a, b)
            if self._beside:
                line += f"  {paint(self._fitted(f'… {text} …'), style)}"
            return f"{'':{self._margin}}{line}".rstrip()
        line = self._arrow(a, b, "" if self._beside else text, row.tone)
        if self._beside:
            line += f"  {paint(self._fitted(text), style)}"
        return f"{stamp(row.time_ns):>{_TIME}}{self._number(row)}  {line}"

    def _number(self, row: Arrow) -> str:
        if not self._numbered:
            return ""
        number = f"{numbered(row.index):>{_NUMBER - 1}}"
        return self._paint(f"{number}{_MARK}", "bold") if row.marked else f"{number} "

    def _fitted(self, text: str) -> str:
        return shortened(text, self._columns - self._at[-1] - 3)

    def _centred(self, text: str, lifeline: str, style: str, a: int = 0, b: int = -1) -> str:
        """Return the lifelines with a text between lanes `a` and `b`, or beside them if the chart has a text column."""
        line = [lifeline if char == "│" else char for char in self._lifelines()]
        a, b = sorted((a % len(self._at), b % len(self._at)))
        if self._beside and lifeline == "│":
            for lane in (a, b):
                line[self._at[lane] - self._margin] = "┆"
            return "".join(line)
        left, right = self._at[a] - self._margin + 1, self._at[b] - self._margin
        text = shortened(text, right - left)
        start = left + (right - left - len(text)) // 2
        return f"{''.join(line[:start])}{self._paint(text, style)}{''.join(line[start + len(text) :])}"

    def _arrow(self, a: int, b: int, text: str, kind: str) -> str:
        """Return the lifelines with an arrow from lane `a` to lane `b`, drawn according to its tone."""
        line = self._lifelines()
        style = TONES[kind][0]
        left, right = self._at[min(a, b)] - self._margin, self._at[max(a, b)] - self._margin
        if a == b:
            line[left] = self._paint("●", style)
            return "".join(line)
        shaft = "╌" if kind == "retx" else "─"
        crossed = line[left + 1 : right]
        missing = max(1, len(crossed) // _SHORT) if kind == "lost" else 0  # columns before the lifeline
        first, end = (0, len(crossed) - missing) if a < b else (missing, len(crossed))
        span = [shaft if char == " " else "┼" for char in crossed[first:end]]
        span[-1 if a < b else 0] = _HEADS.get(kind) or ("▶" if a < b else "◀")
        if text:
            label = f" {shortened(text, len(span) - 6)} "
            start = (len(span) - len(label)) // 2
            span[start : start + len(label)] = label
        span = [*crossed[:first], *span, *crossed[end:]]
        line[left : left + 1] = "├" if a < b else "│"
        line[right : right + 1] = "│" if a < b else "┤"
        return f"{''.join(line[: left + 1])}{self._paint(''.join(span), style)}{''.join(line[right:])}"


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
            raise click.BadParameter(f"{value!r}; legal are numbers of packets from 1, such as 7 or 7-12 or 7-12,30-35")
        found.append(range(int(first) - 1, int(last or first)))
        if not found[-1]:
            raise click.BadParameter(f"{span}: the last number is below the first; legal: {last}-{first}")
    return found


def _is_number(text: str) -> bool:
    """Return whether a text is the number of a packet, from 1."""
    return text.isdecimal() and len(text) <= _DIGITS and int(text) > 0


@click.command(
    short_help="Draw a capture as a message sequence chart.",
    epilog=f"""\b
Example:
  uetproto ladder capture.pcapng
  uetproto ladder capture.pcapng --pdc 7 --svg ladder.svg
  uetproto ladder capture.pcapng --packets 40-60,900-910 --mark 52
  uetproto ladder sealed.pcapng --keys keys.toml

{EXIT_STATUS}
Damage and malformed packets are faults, with --keys also sealed packets that do not open.""",
)
@click.argument("file", metavar="FILE")
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
    file: str,
    svg: str | None,
    json_lines: bool,
    interface: str | None,
    pdc: int | None,
    numbers: list[range] | None,
    marks: tuple[int, ...],
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
    --json counts from 0. FILE may be - for standard input.
    """
    if svg is not None and json_lines:
        raise click.UsageError("--svg and --json exclude each other")
    check_output("--svg", svg, (("FILE", file), ("--keys", keys_file)))
    keys = read_keys(keys_file)
    decoding = decoding._replace(keys=keys)
    tally = LadderTally()
    with_numbers = numbers is not None or bool(marks)
    chosen = None if wanted is None else chosen_packets(wanted, file, decoding.anew())
    choice = LadderChoice(interface, pdc, numbers, frozenset(mark - 1 for mark in marks), chosen)
    with open_capture(file) as reader:
        packets = arrows(file, reader, decoding, choice, tally)
        if svg is not None and limit is None:
            limit = SVG_ROWS
        drawn = limited(rows(packets, not every), limit, tally)
        if svg is not None:
            _write_svg(svg, file, drawn, tally, with_numbers)
        elif json_lines:
            for row in drawn:
                sys.stdout.write(as_json(row) + "\n")
        else:
            chart = Chart(columns or width(), painter(), with_numbers)
            for line in chart.lines(drawn, 0 if file == "-" else _AHEAD):
                sys.stdout.write(line + "\n")
        _check_interface(reader, interface, file, tally)
        damaged = report_damage(file, reader)
    options = {"--packets": numbers, "--pdc": pdc, "--filter": wanted}
    _tell(tally, limit, marks, [name for name, value in options.items() if value is not None])
    closed = keys is not None and report_closed(keys.complaints)
    if damaged or closed or tally.malformed:
        ctx.exit(FAULT)
    if not tally.drawn and not tally.cut and (numbers is not None or pdc is not None or wanted is not None):
        ctx.exit(MISUSE)


def _write_svg(path: str, file: str, drawn: Iterator[Row], tally: LadderTally, numbered: bool) -> None:
    from uetproto.cli.ladder.svg import ladder_svg

    found = list(drawn)
    note = f"the first {count(_packets(found), 'packet')}" if tally.cut else ""
    write_text(path, ladder_svg(found, os.path.basename(file), note, numbered))


def _packets(found: list[Row]) -> int:
    return sum(row.count if isinstance(row, More) else isinstance(row, Arrow) for row in found)


def _check_interface(reader: CaptureReader, wanted: str | None, file: str, tally: LadderTally) -> None:
    names = [interface.name for interface in reader.interfaces]
    if wanted is None or tally.cut or wanted in names or wanted in map(str, range(len(names))):
        return
    named = (f"{number} {shortened(printable(name), 40)}".strip() for number, name in enumerate(names))
    listed = ", ".join(islice(named, _LISTED)) + (", …" if len(names) > _LISTED else "") or "none"
    raise LocalError(f"{file}: there is no interface {wanted}; there are {listed}")


def _tell(tally: LadderTally, limit: int | None, marks: Iterable[int], chosen: Sequence[str]) -> None:
    """Print on standard error how many packets were not drawn, and why."""
    if tally.cut:
        click.echo(f"uetproto: these are the first {count(limit or 0, 'row')}; --count N draws more", err=True)
    elif not tally.drawn:
        click.echo(f"uetproto: no packets match {' and '.join(chosen)}".rstrip(), err=True)
    missing = sorted({mark - 1 for mark in marks} - tally.marked)
    if missing and tally.drawn and not tally.cut:
        click.echo(f"uetproto: not drawn: {', '.join(map(numbered, missing))} of --mark", err=True)
    if tally.other_packets:
        click.echo(
            f"uetproto: not drawn: {count(tally.other_packets, 'packet')} without UET or RoCE between IP addresses",
            err=True,
        )
    if tally.elsewhere:
        others = f"{count(tally.elsewhere, 'packet')} of other interfaces (--interface)"
        click.echo(f"uetproto: not drawn: {others}", err=True)
