# SPDX-License-Identifier: GPL-2.0-only
"""This module shows tables and packets as HTML, for notebooks."""

from collections.abc import Iterable, Sequence
from html import escape

_CELL = "padding:1px 8px;text-align:left;vertical-align:top"
_BYTES = 512  # bytes of a frame that are shown
_ROW = 16
_TINTS = ("#7ab0ff55", "#5fd38d55", "#fbbf4a55", "#ee8bfb55", "#4fd0e655", "#ff858555")
"""Background colours of the headers of a packet and of their bytes, one after the other."""


def table_html(head: Sequence[str], rows: Iterable[Sequence[object]], note: str = "") -> str:
    """Return a table as HTML. `note` stands below it."""
    columns = "".join(f'<th style="{_CELL}">{_safe(name)}</th>' for name in head)
    lines = [
        "<tr>"
        + "".join(f'<td style="{_CELL}">{_safe("" if cell is None else str(cell))}</td>' for cell in row)
        + "</tr>"
        for row in rows
    ]
    below = f"<p>{_safe(note)}</p>" if note else ""
    return f"<table><thead><tr>{columns}</tr></thead><tbody>{''.join(lines)}</tbody></table>{below}"


def packet_html(head: str, layers: Sequence[tuple[str, int, int, Sequence[tuple[str, str]]]], data: bytes) -> str:
    """Return a packet as HTML: a table of its headers, each with a table of its fields, and its bytes.

    A layer is its form, its offset and size in the frame, and its fields with their values.
    """
    rows = []
    for number, (form, offset, size, fields) in enumerate(layers):
        cells = "".join(
            f'<tr><td style="{_CELL}">{_safe(name)}</td><td style="{_CELL}">{_safe(text)}</td></tr>'
            for name, text in fields
        )
        tint = _TINTS[number % len(_TINTS)]
        rows.append(
            f'<tr><td style="{_CELL};background:{tint}">{_safe(form)}<br><small>{offset}–{offset + size}</small></td>'
            f'<td style="{_CELL}"><details{" open" if number + 2 >= len(layers) else ""}><summary>{len(fields)} fields'
            f"</summary><table>{cells}</table></details></td></tr>"
        )
    return (
        f"<div><p><b>{_safe(head)}</b></p><table>{''.join(rows)}</table>"
        f'<pre style="line-height:1.3">{_dump(layers, data)}</pre></div>'
    )


def _dump(layers: Sequence[tuple[str, int, int, object]], data: bytes) -> str:
    """Return the bytes of a frame in hexadecimal, those of each header with its colour."""
    tints = [""] * min(len(data), _BYTES)
    for number, (_, offset, size, _) in enumerate(layers):
        for at in range(offset, min(offset + size, len(tints))):
            tints[at] = _TINTS[number % len(_TINTS)]
    lines = []
    for start in range(0, len(tints), _ROW):
        cells = [
            f'<span style="background:{tints[at]}">{data[at]:02x}</span>' if tints[at] else f"{data[at]:02x}"
            for at in range(start, min(start + _ROW, len(tints)))
        ]
        lines.append(f"{start:04x}  {' '.join(cells)}")
    if len(data) > _BYTES:
        lines.append(f"… {len(data) - _BYTES} more bytes")
    return "\n".join(lines)


def _safe(text: str) -> str:
    return escape("".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text))
