# SPDX-License-Identifier: GPL-2.0-only
"""This module draws a message sequence chart as lines of text."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice

from uetproto.cli.ladder.details import COLUMNS
from uetproto.cli.ladder.rows import TONES, Arrow, Host, More, Pause, Row
from uetproto.cli.terminal import Paint, shortened
from uetproto.wire.words.summary import address, duration, stamp
from uetproto.wire.words.text import numbered

_TIME = 14  # columns
_MARGIN = _TIME + 2
_NUMBER = 9  # columns for a packet's number and its mark
_TEXT, _LESS_TEXT = 52, 28  # columns for the text beside more than two lifelines: wanted, needed
_NARROW, _WIDE = 8, 18  # columns between lifelines
AHEAD = 256  # rows read before the first is drawn, so that their hosts are known
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
        values: Sequence[str] = (),
        reasons: bool = False,
        lanes: Sequence[Host] = (),
    ) -> None:
        """Make an empty chart. If `numbered` is True, it shows the numbers of the packets. `names` has the names of
        hosts that are not shown by their addresses. Texts beside more than two lifelines get `text` columns, if
        there is room for them. `values` are names of `details.COLUMNS` that stand before the lifelines. With
        `reasons`, a line below an arrow says why the packet was sent. `lanes` are hosts whose lifelines come first."""
        self._first = lanes
        self._values, self._reasons = values, reasons
        self._text = text
        self._names = names or {}
        self._columns = columns
        self._paint = paint
        self._numbered = numbered
        self._before = _MARGIN + _NUMBER * numbered + sum(COLUMNS[name][0] + 1 for name in values)
        self._margin = self._before + _NARROW // 2 * bool(values)  # half the first name stands left of its lifeline
        self._most = max(2, (columns - self._margin - _LESS_TEXT) // _NARROW + 1)  # number of lifelines
        self._hosts: dict[Host, int] = {}  # lane of each host that has a lane of its own
        self._at: list[int] = []  # the column of each lifeline
        self._beside = False  # whether texts stand to the right of the lifelines, not on arrows

    def lines(self, drawn: Iterable[Row], ahead: int = AHEAD) -> Iterator[str]:
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
            if self._reasons and isinstance(row, Arrow) and row.why:
                yield self._reason(row)

    def _meet(self, new: Iterable[Row]) -> bool:
        """Lay out the lifelines again if there are new hosts; return whether there are."""
        known = len(self._hosts)
        for host in self._first[: self._most + 1]:
            self._hosts.setdefault(host, len(self._hosts))
        self._first = ()
        for row in new:
            if not isinstance(row, Pause):
                for host in (row.src, *(row.via if isinstance(row, Arrow) else ()), row.dst):
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
        at = _MARGIN + _NUMBER * self._numbered
        for name in self._values:
            at += COLUMNS[name][0] + 1
            line[at - 1 - len(name) : at - 1] = name
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
            if self._values and start < self._before:
                name, start = f"…{name[self._before - start + 1 :]}", self._before
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
        via = [lane for lane in map(self._lane, row.via) if lane < len(self._at) - self._is_crowded()]
        line = self._arrow(a, b, "" if self._beside else text, row.tone, via)
        if self._beside:
            line += f"  {paint(self._fitted(text), style)}"
        values = "".join(f"{shortened(row.columns.get(name, ''), COLUMNS[name][0]):>{COLUMNS[name][0]}} "
                         for name in self._values)  # fmt: skip
        return f"{stamp(row.time_ns):>{_TIME}}{self._number(row)}  {values}{'':{self._margin - self._before}}{line}"

    def _reason(self, row: Arrow) -> str:
        """Return the line below an arrow that says why its packet was sent."""
        text = f"↳ {row.why}"
        if self._beside:
            return f"{'':{self._margin}}{''.join(self._lifelines())}  {self._paint(self._fitted(text), 'dim')}"
        return f"{'':{self._margin}}{self._centred(f' {text} ', '│', 'dim')}"

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

    def _arrow(self, a: int, b: int, text: str, kind: str, via: Sequence[int] = ()) -> str:
        """Return the lifelines with an arrow from lane `a` to lane `b`, drawn according to its tone. Diamonds mark the
        lanes `via` where the packet was seen on its way."""
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
        for lane in via:
            at = self._at[lane] - self._margin - left - 1 - first
            if 0 <= at < len(span):
                span[at] = "◆"
        span[-1 if a < b else 0] = _HEADS.get(kind) or ("▶" if a < b else "◀")
        if text:
            label = f" {shortened(text, len(span) - 6)} "
            start = (len(span) - len(label)) // 2
            span[start : start + len(label)] = label
        span = [*crossed[:first], *span, *crossed[end:]]
        line[left : left + 1] = "├" if a < b else "│"
        line[right : right + 1] = "│" if a < b else "┤"
        return f"{''.join(line[: left + 1])}{self._paint(''.join(span), style)}{''.join(line[right:])}"
