# SPDX-License-Identifier: GPL-2.0-only
"""This module draws a schedule as SVG, without a library. Each rank is a line, time runs downwards, and each message is
an arrow.

The colour of an arrow shows the position of its elements in the vector. The elements of a full arrow are folded by the
receiver; those of a dashed arrow are stored.
"""

from html import escape

from uetproto.collectives.algorithms.schedule import Fold, Schedule
from uetproto.errors import LocalError

MOST_RANKS, MOST_MESSAGES = 64, 4096
"""Largest numbers of ranks and of messages that are drawn. A larger drawing would not be readable."""

_LEFT, _TOP = 80, 84  # x of the first rank's line, and y of its start
_GAP, _ROW = 96, 56  # from rank to rank, from step to step
_LABELS = 240  # drawings of more messages have no labels

_STYLE = """
  .card { fill: #ffffff; stroke: #d0d7de } text { font: 12px monospace; fill: #1f2328 }
  .title { font-weight: bold; font-size: 14px } .rank { text-anchor: middle; font-weight: bold }
  .step { text-anchor: end; fill: #59636e } .life { stroke: #d0d7de } .row { stroke: #eaeef2 }
  .range { text-anchor: middle; font-size: 10px; paint-order: stroke; stroke: #ffffff; stroke-width: 3px }
  .note { fill: #59636e } .stored { stroke-dasharray: 5 3 }
"""

_ARROW_HEAD = (
    '<defs><marker id="head" markerWidth="8" markerHeight="8" refX="7" refY="4" orient="auto">'
    '<path d="M1 1 L7 4 L1 7" fill="none" stroke="context-stroke"/></marker></defs>'
)


def draw(schedule: Schedule) -> str:
    """Return the text of an SVG file that shows the schedule. Raises `LocalError` if the schedule is too large to be
    readable."""
    columns = schedule.arrays()
    messages = len(columns["step"])
    if schedule.size > MOST_RANKS or messages > MOST_MESSAGES:
        raise LocalError(
            "schedule", f"{schedule.size} ranks and {messages} messages are too many to be read",
            f"{MOST_RANKS} and {MOST_MESSAGES}", id="too-many"
        )  # fmt: skip
    wide, bottom = _LEFT + _GAP * schedule.size, _TOP + _ROW * schedule.length
    high = bottom + 56
    title = escape(f"{schedule.op} by {schedule.algorithm}, {schedule.size} ranks, {schedule.length} steps")
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide} {high}" width="{wide}" height="{high}">',
        f"<title>{title}</title>",
        f"<style>{_STYLE}</style>",
        _ARROW_HEAD,
        f'<rect class="card" x="0.5" y="0.5" width="{wide - 1}" height="{high - 1}" rx="8"/>',
        f'<text class="title" x="20" y="28">{title}</text>',
    ]
    for rank in range(schedule.size):
        x = _LEFT + _GAP * rank
        lines.append(f'<text class="rank" x="{x}" y="{_TOP - 16}">{rank}</text>')
        lines.append(f'<line class="life" x1="{x}" y1="{_TOP - 8}" x2="{x}" y2="{bottom + 8}"/>')
    for step in range(schedule.length):
        y = _TOP + _ROW * step
        lines.append(f'<text class="step" x="{_LEFT - 24}" y="{y + _ROW // 2}">{step}</text>')
        lines.append(f'<line class="row" x1="{_LEFT - 16}" y1="{y}" x2="{wide - 20}" y2="{y}"/>')
    lines += _arrows(schedule, labelled=messages <= _LABELS)
    lines.append(f'<text class="note" x="20" y="{high - 18}">full: folded in, dashed: stored</text>')
    return "\n".join([*lines, "</svg>"]) + "\n"


def _arrows(schedule: Schedule, *, labelled: bool) -> list[str]:
    columns = schedule.arrays()
    whole = max(int((columns["target"] + columns["count"]).max(initial=0)), 1)
    lines = []
    rows = zip(*(columns[name].tolist() for name in ("step", "src", "dst", "target", "count", "fold")), strict=True)
    for step, src, dst, start, count, fold in rows:
        x1, x2 = (_LEFT + _GAP * rank for rank in (src, dst))
        y1 = _TOP + _ROW * step + 6
        y2 = y1 + _ROW - 12
        hue = round(300 * (start + count / 2) / whole)
        style = ' class="stored"' * (fold == Fold.STORE)
        lines.append(
            f'<line{style} x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}" stroke="hsl({hue} 70% 42%)" stroke-width="1.5" '
            'marker-end="url(#head)"/>'
        )
        if labelled and count:  # beside the sender, where arrows are apart from each other
            part = min(0.3, 0.3 * _GAP / abs(x2 - x1))
            x, y = x1 + part * (x2 - x1), y1 + part * (y2 - y1)
            lines.append(f'<text class="range" x="{x:.0f}" y="{y:.0f}">{start}:{start + count}</text>')
    return lines
