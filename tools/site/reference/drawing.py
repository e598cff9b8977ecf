# SPDX-License-Identifier: GPL-2.0-only
"""This module draws headers as an RFC does: rows of 32 bits, the most significant bit first. The drawings are SVG in
the page itself, so that they have its colours, light or dark."""

from collections.abc import Iterator
from html import escape

from uetproto.wire.fields import Field, Header
from uetproto.wire.forms import FORMS

ROW = 32  # bits
BIT, HIGH, TOP = 21, 30, 20  # pixels: the width of a bit, the height of a row, and the scale above
LONGEST = 4
"""The number of rows above which only two rows of a field are drawn."""
LETTERS, SMALLEST = 11.0, 7.0  # pixels: the size of letters of labels
WIDTH = 0.6
"""The width of a letter, as a share of its size."""


def with_drawings(text: str) -> str:
    """Return the page of all headers with a drawing under the heading of each."""
    for name, header in FORMS.items():
        heading = f"### {name}\n\n"
        if heading not in text:
            raise ValueError(f"TABLES.md has no section {name}")
        text = text.replace(heading, heading + drawn(header) + "\n", 1)
    return text


def drawn(header: Header) -> str:
    """Return the drawing of a header, as HTML in one block."""
    shapes: list[str] = []
    row = 0
    position = 0
    for field in header.fields:
        for part in _parts(position, field.bits):
            left, bits, rows = part
            if rows > LONGEST:
                shapes.append(_box(left, row, bits, 2, _words(field, f"{field.name} ({rows} rows)"), cut=True))
                row += 2
                continue
            if part == (widest := _widest(position, field.bits)):
                label = _words(field, field.name)
            else:
                label = f"{field.name} …" if part[0] and not widest[0] else f"… {field.name}"
            shapes.append(_box(left, row, bits, rows, label))
            row += rows if left + bits == ROW else 0
        position += field.bits
    rows = row + (position % ROW > 0)
    wide, high = ROW * BIT + 2, TOP + rows * HIGH + 2
    title = escape(f"{header.name}: {header.size} bytes")
    return (
        f'<figure class="bits"><svg viewBox="-1 0 {wide} {high}" width="{wide}" height="{high}" role="img" '
        f'aria-label="{title}">{_scale(min(position, ROW))}{"".join(shapes)}</svg></figure>\n'
    )


def _parts(position: int, bits: int) -> Iterator[tuple[int, int, int]]:
    """Yield the rectangles of a field: the bit at the left, the number of bits, and the number of rows."""
    if (left := position % ROW) and bits:
        yield left, (first := min(bits, ROW - left)), 1
        bits -= first
    if bits >= ROW:
        yield 0, ROW, bits // ROW
    if bits % ROW:
        yield 0, bits % ROW, 1


def _widest(position: int, bits: int) -> tuple[int, int, int]:
    return max(_parts(position, bits), key=lambda part: part[1] * part[2])


def _words(field: Field, name: str) -> str:
    """Return the label: the name, and the value if only one is legal."""
    if len(field.only) == 1 and field.bits * BIT > (len(name) + 6) * LETTERS * WIDTH:
        return f"{name} = {field.only[0]:#x}" if field.only[0] > 9 else f"{name} = {field.only[0]}"
    return name


def _box(left: int, row: int, bits: int, rows: int, label: str, cut: bool = False) -> str:
    x, y, wide, high = left * BIT, TOP + row * HIGH, bits * BIT, rows * HIGH
    reserved = ' class="reserved"' if label.startswith("rsvd") else ""
    box = f'<rect x="{x}" y="{y}" width="{wide}" height="{high}"{reserved}/>'
    if cut:
        box += f'<path d="M{x - 1} {y + HIGH + 4}l8 -8M{x + wide + 1} {y + HIGH - 4}l-8 8"/>'
    shown, size, turned = _fitted(label, wide, high)
    place = f'x="{x + wide / 2:g}" y="{y + high / 2:g}"'
    small = f' font-size="{size:.3g}"' if size < LETTERS else ""
    turn = f' transform="rotate(-90 {x + wide / 2:g} {y + high / 2:g})"' if turned else ""
    whole = f"<title>{escape(label)}</title>" if shown != label else ""
    return f"{box}<text {place}{small}{turn}>{whole}{escape(shown)}</text>"


def _fitted(label: str, wide: float, high: float) -> tuple[str, float, bool]:
    """Return what fits into a box of a label, the size of its letters, and whether it runs upwards."""
    turned = wide < high and _size(label, wide) < SMALLEST
    size = _size(label, high if turned else wide)
    if size >= SMALLEST:
        return label, size, turned
    letters = int((max(wide, high) - 2) / SMALLEST / WIDTH)
    return label[: letters - 1] + "…", SMALLEST, wide < high


def _size(label: str, wide: float) -> float:
    return min(LETTERS, (wide - 2) / len(label) / WIDTH)


def _scale(bits: int) -> str:
    marks = [bit for bit in range(bits) if bit % 8 == 0 or bit == bits - 1]
    return "".join(f'<text class="bit" x="{bit * BIT + BIT / 2:g}" y="10">{bit}</text>' for bit in marks)
