# SPDX-License-Identifier: GPL-2.0-only
"""This module draws a message sequence chart as SVG without a library. The chart has its own background, so that it is
legible on any page."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from math import ceil

from uetproto.cli.ladder.details import COLUMNS
from uetproto.cli.ladder.rows import TONES, Arrow, Host, More, Pause, Row
from uetproto.cli.terminal import shortened
from uetproto.wire.words.summary import address, duration, stamp
from uetproto.wire.words.text import numbered

COLOURS = {
    # tone       light      dark
    "data":    ("#1d4ed8", "#7ab0ff"),
    "ack":     ("#15803d", "#5fd38d"),
    "control": ("#0e7490", "#4fd0e6"),
    "retx":    ("#b45309", "#fbbf4a"),
    "trimmed": ("#a21caf", "#ee8bfb"),
    "nack":    ("#c81e1e", "#ff8585"),
    "lost":    ("#c81e1e", "#ff8585"),
    "bad":     ("#c81e1e", "#ff8585"),
    "other":   ("#57606a", "#9aa4af"),
}  # fmt: skip
"""Colours of the arrows, by their tone."""

_CARD = (("#ffffff", "#11161d"), ("#d0d7de", "#3d444d"), ("#1f2328", "#e6edf3"), ("#59636e", "#9aa4af"))

_CROSSED = ("bad", "lost")
_SHORT = 0.15  # share of its length by which the arrow of a lost packet is shorter

_ROW = 26  # pixels from one row to the next
_TOP = 64
_TIME = 118  # x of the first lifeline, in pixels
_NUMBER = 70  # pixels before the first lifeline for a packet's number
_TWO, _MANY = 600, 170  # pixels between lifelines: of two hosts, where a long text asks for more, and of more hosts
_TEXT = 470  # pixels for the texts beside more than two lifelines; long texts ask for more
_LONGEST = 120  # characters of a text beyond which it is cut
_REASON = 14  # pixels of a line below an arrow
_CHAR = 6.7  # pixels of a character, about


@dataclass(frozen=True, slots=True)
class SvgStyle:
    """This class says what a drawing shows beside arrows."""

    numbered: bool = False
    """Whether numbers of packets are shown."""
    names: Mapping[Host, str] = field(default_factory=dict)
    """Names of the lifelines that are not shown by their addresses."""
    values: Sequence[str] = ()
    """Columns before the lifelines, by the names of `details.COLUMNS`."""
    reasons: bool = False
    """Whether a line below an arrow says why its packet was sent."""
    lanes: Sequence[Host] = ()
    """Hosts whose lifelines come first, if they are drawn."""

    @property
    def left(self) -> int:
        """Return the position of the first lifeline, in pixels."""
        return _TIME + _NUMBER * self.numbered + sum(map(_wide, self.values)) + 40 * bool(self.values)


def _wide(name: str) -> int:
    return int(COLUMNS[name][0] * _CHAR) + 14


def ladder_svg(found: list[Row], title: str, note: str = "", style: SvgStyle = SvgStyle()) -> str:
    """Return the text of an SVG file that shows the rows. `note` is drawn at the right of `title`."""
    hosts = list(dict.fromkeys(
        h for row in found if not isinstance(row, Pause)
        for h in (row.src, *(row.via if isinstance(row, Arrow) else ()), row.dst)
    ))  # fmt: skip
    hosts.sort(key=lambda host: style.lanes.index(host) if host in style.lanes else len(style.lanes))
    beside = len(hosts) > 2
    longest = max((_needed(row, beside) for row in found if not isinstance(row, Pause)), default=0)
    gap = _MANY if beside else max(_TWO, longest)
    left = style.left
    at = {host: left + gap * lane for lane, host in enumerate(hosts)}
    right = max(at.values(), default=left + _TWO)
    wide = right + (max(_TEXT, longest) if beside else 60)
    reasons = sum(isinstance(row, Arrow) and bool(row.why) for row in found) if style.reasons else 0
    bottom = _TOP + _ROW * (len(found) + 1) + _REASON * reasons
    tones = [kind for kind in TONES if any(not isinstance(row, Pause) and row.tone == kind for row in found)]

    heading = shortened(title, int((wide - 60) / _CHAR) - len(note) - 6)
    body = [f'<text class="title" x="20" y="26">{_text(heading)}</text>']
    for host, x in at.items():
        name = style.names.get(host) or address(*host)
        body.append(f'<text class="host" x="{x}" y="{_TOP - 14}">{_text(name)}</text>')
        body.append(f'<line class="life" x1="{x}" y1="{_TOP - 6}" x2="{x}" y2="{bottom}"/>')
    edge = _TIME + _NUMBER * style.numbered - 14
    for name in style.values:
        edge += _wide(name)
        body.append(f'<text class="time" x="{edge}" y="{_TOP - 14}">{name}</text>')
    y = _TOP
    for row in found:
        y += _ROW
        body += _row(row, y, at, (left, right), wide - right if beside else 0)
        if not isinstance(row, Arrow):
            continue
        if style.numbered:
            body.append(_number(row, _TIME + _NUMBER, y))
        body += _values(row, style, y)
        if style.reasons and row.why:
            y += _REASON
            place = f'class="legend" x="{right + 14}"' if beside else f'class="pause" x="{(left + right) / 2:g}"'
            body.append(f'<text {place} y="{y + 2}">{_text(row.why)}</text>')
    legend, high = _legend(tones, bottom + 26, wide)
    body += legend
    if note:
        body.append(f'<text class="note" x="{wide - 20}" y="26">{_text(note)}</text>')
    return _frame(wide, high, title, body)


def _label(row: Arrow | More) -> str:
    return f"… {row.text} …" if isinstance(row, More) else row.text


def _needed(row: Arrow | More, beside: bool) -> int:
    """Return the number of pixels that the text of a row needs beside the lifelines, or between them."""
    size = _CHAR * min(len(_label(row)), _LONGEST)
    if beside:
        return ceil(size) + 24
    return ceil((size + 3 * _CHAR) / (1 - _SHORT if row.tone == "lost" else 1))


def _values(row: Arrow, style: SvgStyle, y: int) -> list[str]:
    """Return the values that stand before an arrow."""
    body, edge = [], _TIME + _NUMBER * style.numbered - 14
    for name in style.values:
        edge += _wide(name)
        if name in row.columns:
            body.append(f'<text class="time" x="{edge}" y="{y + 4}">{_text(row.columns[name])}</text>')
    return body


def _row(row: Row, y: int, at: dict[Host, int], edges: tuple[int, int], beside: int) -> list[str]:
    """Return the elements of a row. `edges`: positions of the first and the last lifeline; `beside`: pixels for texts
    beside the lifelines, or 0 for texts above the arrows."""
    left, right = edges
    middle = (left + right) / 2
    if isinstance(row, Pause):
        # A rectangle covers the lifelines to show that the time axis has a gap here.
        return [
            f'<rect class="card" x="{left - 8}" y="{y - 12}" width="{right - left + 16}" height="12"/>',
            f'<text class="pause" x="{middle:g}" y="{y - 2}">⋯ {duration(row.ns)} later ⋯</text>',
        ]
    a, b = at[row.src], at[row.dst]
    if row.tone == "lost":
        b -= round((b - a) * _SHORT)  # the label has its middle there, too
    if beside:
        place, room = f'class="beside {row.tone}" x="{right + 14}"', int((beside - 24) / _CHAR)
    else:
        place, room = f'class="label {row.tone}" x="{(a + b) / 2:g}"', int(abs(b - a) / _CHAR) - 2
    base = y + 4 if beside else y - 5  # baseline of a text beside the arrow, or above it
    label = _text(shortened(_label(row), room))
    text = f'<text {place} y="{base}">{label}</text>'
    if isinstance(row, More):
        return [f'<line class="arrow {row.tone} more" x1="{a}" y1="{y}" x2="{b}" y2="{y}"/>', text]
    time = f'<text class="time" x="{_TIME - 14}" y="{y + 4}">{stamp(row.time_ns)}</text>'
    via = [f'<circle class="head {row.tone}" cx="{at[host]}" cy="{y}" r="3.5"/>' for host in row.via if host in at]
    return [time, text, *_arrow(row, a, b, y), *via]


def _number(row: Arrow, left: int, y: int) -> str:
    if row.marked:
        return f'<text class="time" style="font-weight: 600" x="{left - 6}" y="{y + 4}">{numbered(row.index)} ▸</text>'
    return f'<text class="time" x="{left - 19}" y="{y + 4}">{numbered(row.index)}</text>'


def _arrow(row: Arrow, a: int, b: int, y: int) -> list[str]:
    kind = row.tone
    if a == b:
        return [f'<circle class="head {kind}" cx="{a}" cy="{y}" r="4"/>']
    way = 1 if a < b else -1
    tip, shaft = b - 2 * way, b - 10 * way
    if kind in _CROSSED:
        cross = f"M{shaft} {y - 5}l10 10m0 -10l-10 10" if way > 0 else f"M{shaft} {y - 5}l-10 10m0 -10l10 10"
        head = f'<path class="arrow {kind}" d="{cross}"/>'
    else:
        head = f'<path class="head {kind}" d="M{tip} {y}L{shaft} {y - 4}L{shaft} {y + 4}Z"/>'
    return [f'<line class="arrow {kind}" x1="{a}" y1="{y}" x2="{shaft}" y2="{y}"/>', head]


def _legend(tones: list[str], y: int, wide: int) -> tuple[list[str], int]:
    """Return the elements of the legend, and the y position of its end."""
    body, x = [], 20
    for kind in tones:
        words = TONES[kind][1]
        size = 28 + int(_CHAR * len(words)) + 22
        if x > 20 and x + size > wide:
            x, y = 20, y + 18
        head = f'<path class="arrow {kind}" d="M{x + 13} {y - 9}l10 10m0 -10l-10 10"/>' if kind in _CROSSED else ""
        body.append(f'<line class="arrow {kind}" x1="{x}" y1="{y - 4}" x2="{x + 22}" y2="{y - 4}"/>{head}')
        body.append(f'<text class="legend" x="{x + 28}" y="{y}">{words}</text>')
        x += size
    return body, y + 20


def _text(text: str) -> str:
    return escape("".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text), quote=False)


def _rules(column: int) -> str:
    """Return the style rules of the light (0) or dark (1) background, without CSS variables, which some viewers
    lack.
    """
    card, edge, ink, faint = (pair[column] for pair in _CARD)
    rules = [
        f"text {{ fill: {ink}; }}",
        f".card, .edge {{ fill: {card}; }}",
        f".edge, .life {{ stroke: {edge}; }}",
        f".time, .note, .pause, .legend {{ fill: {faint}; }}",
    ]
    for kind, pair in COLOURS.items():
        rules.append(f".arrow.{kind} {{ stroke: {pair[column]}; }}")
        rules.append(f".head.{kind}, .label.{kind}, .beside.{kind} {{ fill: {pair[column]}; }}")
    return "\n".join(rules)


def _frame(wide: int, high: int, title: str, body: list[str]) -> str:
    return f"""\
<svg xmlns="http://www.w3.org/2000/svg" width="{wide}" height="{high}" viewBox="0 0 {wide} {high}" role="img">
<title>{_text(title)}</title>
<style>
text {{ font: 11px ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; }}
.life, .arrow {{ stroke-width: 1.5; fill: none; }}
.title, .host {{ font-weight: 600; }}
.title {{ font-size: 13px; }}
.host, .pause, .label {{ text-anchor: middle; }}
.time, .note {{ text-anchor: end; }}
.arrow.retx {{ stroke-dasharray: 5 3; }}
.arrow.trimmed {{ stroke-dasharray: 1 3; }}
.arrow.more {{ stroke-dasharray: 1 8; }}
{_rules(0)}
@media (prefers-color-scheme: dark) {{
{_rules(1)}
}}
</style>
<rect class="edge" x="0.5" y="0.5" width="{wide - 1}" height="{high - 1}" rx="8"/>
{chr(10).join(body)}
</svg>
"""
