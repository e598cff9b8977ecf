# SPDX-License-Identifier: GPL-2.0-only
"""This module shows differences for a person: both captures side by side, the first at the left."""

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from uetproto.cli.dissect import fields_of
from uetproto.cli.terminal import Paint, printable, shortened
from uetproto.diff.normal import CapturedPacket
from uetproto.diff.result import Difference, DifferenceKind, DiffResult, FieldDifference
from uetproto.wire.words.summary import count, summary

_MARKS = {
    # kind                     mark  style
    DifferenceKind.CHANGED:  ("~", "yellow"),
    DifferenceKind.MOVED:    ("↕", "cyan"),
    DifferenceKind.MISSING:  ("-", "red"),
    DifferenceKind.EXTRA:    ("+", "green"),
}  # fmt: skip
_NONE = "·"
_MIDDLE = " │ "


def diff_lines(result: DiffResult, names: tuple[str, str], columns: int, paint: Paint, most: int) -> Iterator[str]:
    """Yield the lines that show the first `most` differences, and a summary."""
    room = (columns - len(_MIDDLE) - 2) // 2
    packets = result.packets_a, result.packets_b
    heads = [f"{printable(name)}, {count(number, 'packet')}" for name, number in zip(names, packets, strict=True)]
    yield paint(_side_by_side(" ", heads[0], heads[1], room), "bold")
    places = {one.interface for one in result.differences}
    several = len(places) > 1 or any("VNI " in place for place in places)
    groups: defaultdict[tuple[str, str], list[Difference]] = defaultdict(list)
    for one in result.differences[:most]:
        groups[one.conversation, one.interface * several].append(one)
    for (conversation, interface), found in groups.items():
        yield ""
        yield paint(printable(f"{conversation}, interface {interface}" if interface else conversation), "bold")
        for one in found:
            yield from _difference(one, room, paint)
    yield ""
    yield from _summary(result, most)


def _difference(one: Difference, room: int, paint: Paint) -> Iterator[str]:
    mark, style = _MARKS[one.kind]
    left, right = _packet(one.number_a, one.a), _packet(one.number_b, one.b)
    yield paint(_side_by_side(mark, left, right, room), style)
    if one.by:
        yield f"    {count(abs(one.by), 'packet')} {'later' if one.by > 0 else 'earlier'}"
    for field in one.fields:
        name = printable(field.field)
        a, b = _value(field, field.a, one.a), _value(field, field.b, one.b)
        expected = "" if field.expected is None else f", not {field.expected}"
        wide = len(name) + 6
        left = f"    {name}  {shortened(a, max(8, room + 2 - wide))}"
        gap = " " * max(0, room + 2 - len(left))
        yield f"    {name}  {paint(left[wide:], 'red')}{gap}{_MIDDLE}{paint(shortened(b + expected, room), 'green')}"


def _packet(number: int | None, seen: CapturedPacket | None) -> str:
    if number is None:
        return _NONE
    return f"#{number}" + ("" if seen is None else f" {printable(summary(seen.packet))}")


def _side_by_side(mark: str, left: str, right: str, room: int) -> str:
    return f"{mark} {shortened(left, room):<{room}}{_MIDDLE}{shortened(right, room)}".rstrip()


def _value(field: FieldDifference, value: Any, seen: CapturedPacket | None) -> str:
    """Return the value of a field for a person, as `uetproto dissect` shows it."""
    if value is None:
        return "none"
    form, _, name = field.field.rpartition(".")
    for layer in () if seen is None else seen.packet.layers:
        if layer.form == form and layer.values.get(name) == value:
            return printable(dict(fields_of(layer)).get(name, str(value)))
    return printable(str(value))


def _summary(result: DiffResult, most: int) -> Iterator[str]:
    if not result.differs:
        yield f"no difference: {count(result.same, 'packet')} are the same"
    else:
        counts = ", ".join(f"{number:,} {kind}" for kind, number in result.counts().items() if number)
        yield f"{count(len(result.differences), 'difference')}: {counts}; {count(result.same, 'packet')} are the same"
    if len(result.differences) > most:
        yield f"these are the first {most:,}; --count N shows more"
    if result.unopened:
        sealed = count(result.unopened, "sealed packet")
        yield f"{sealed} were compared by headers and size alone; their keys (--keys) open them"
