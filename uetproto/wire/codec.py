"""A table compiled, at first use, into functions over precompiled `struct` formats.

This is the one place that makes code at run time. The rows are covered by the fewest whole struct units (1, 2, 4 or 8
bytes); a field is then a shift and a mask of its unit. A loop over the rows would be some twenty times slower.

`decode` and `encode` speak mappings in wire order and hold any bits, reserved ones and unknown codes too.
`unpack` and `pack` speak bare positions, for those who know the table and check their values themselves.
"""

import struct
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, NamedTuple

from uetproto.errors import LocalError
from uetproto.wire.fields import Field, Header

Values = dict[str, int]

_UNIT = {1: "B", 2: "H", 4: "I", 8: "Q"}


class Codec(NamedTuple):
    """The four functions of one header; all read at `offset` and need `size` bytes there."""

    header: Header
    size: int
    decode: Callable[..., Values]
    """`decode(data, offset=0)` → every field by name, in wire order."""
    encode: Callable[[Mapping[str, int]], bytes]
    """`encode(values)` → bytes. Missing fields take their default. Raises `LocalError` naming field and range."""
    unpack: Callable[..., tuple[int, ...]]
    """`unpack(data, offset=0)` → every field in table order."""
    pack: Callable[..., bytes]
    """`pack(*values)` → bytes; every value in table order, in range: it is not checked."""


class _Part(NamedTuple):
    """One struct unit and the fields in it (several), or one field of which it is a piece (`pieces` > 1)."""

    codes: str
    fields: tuple[Field, ...]
    pieces: tuple[int, ...]  # bytes of each unit


@cache
def codec_of(header: Header) -> Codec:
    """The compiled codec of a table; the same object every time."""
    parts = _cover(header)
    layout = struct.Struct(">" + "".join(part.codes for part in parts))
    names = [f"u{i}" for i in range(len(layout.unpack(bytes(header.size))))]

    unpacking: list[str] = []  # one expression a field
    packing: list[str] = []  # one expression a unit
    unit = iter(names)
    for part in parts:
        if len(part.pieces) > 1:
            units = [next(unit) for _ in part.pieces]
            unpacking.append(_join(units, part.pieces))
            packing += _split(part.fields[0], part.pieces)
        else:
            name, low = next(unit), part.pieces[0] * 8
            expressions = []
            for field in part.fields:
                low -= field.bits
                unpacking.append(_extract(name, field, low, part.pieces[0] * 8))
                expressions.append(_place(field, low, part.pieces[0] * 8))
            packing.append(" | ".join(expressions))

    arguments = ", ".join(f.name for f in header.fields)
    units_are = ", ".join(names) + ","
    pairs = ", ".join(f"'{f.name}': {e}" for f, e in zip(header.fields, unpacking, strict=True))
    fetch = "\n    ".join(f"{f.name} = v['{f.name}']" for f in header.fields)
    # Any bit outside its field makes the sum of the overflows non-zero: a shift to the right leaves nothing, or -1.
    excess = " or ".join(_excess(f) for f in header.fields)
    source = f"""
def decode(data, offset=0):
    {units_are} = read(data, offset)
    return {{{pairs}}}
def unpack(data, offset=0):
    {units_are} = read(data, offset)
    return ({", ".join(unpacking)},)
def pack({arguments}):
    return write({", ".join(packing)})
def encode_whole(v):
    {fetch}
    if {excess}:
        refuse(v)
    return write({", ".join(packing)})
"""
    scope: dict[str, Any] = {"read": layout.unpack_from, "write": layout.pack, "refuse": lambda v: _refuse(header, v)}
    exec(compile(source, f"<codec of {header.name}>", "exec"), scope)
    encode_whole = scope["encode_whole"]

    def encode(values: Mapping[str, int]) -> bytes:
        try:
            data: bytes = encode_whole(values)
        except (KeyError, TypeError):
            data = encode_whole(_complete(header, values))
        if len(values) > len(header.fields):
            _complete(header, values)  # names the field that is too many
        return data

    return Codec(header, header.size, scope["decode"], encode, scope["unpack"], scope["pack"])


def _cover(header: Header) -> list[_Part]:
    """The cheapest way to cut the header into struct units at field borders (shortest path from the end)."""
    borders = {0: 0}  # byte offset -> index of the field that starts there
    position = 0
    for index, field in enumerate(header.fields):
        position += field.bits
        if position % 8 == 0:
            borders[position // 8] = index + 1

    best: dict[int, tuple[float, list[_Part]]] = {header.size: (0, [])}
    for start in sorted(borders, reverse=True)[1:]:
        options = []
        for size, code in _UNIT.items():
            if start + size in best:
                fields = header.fields[borders[start] : borders[start + size]]
                whole = fields[0].signed and len(fields) == 1
                options.append((start + size, _Part(code.lower() if whole else code, fields, (size,)), len(fields)))
        field = header.fields[borders[start]]
        if field.bits % 8 == 0 and start + field.bits // 8 in best:
            pieces = _pieces(field.bits // 8)
            part = _Part("".join(_UNIT[p] for p in pieces), (field,), pieces)
            options.append((start + field.bits // 8, part, 2 * len(pieces)))
        candidates = [(best[end][0] + 1 + cost * 0.6, [part, *best[end][1]]) for end, part, cost in options]
        if candidates:
            best[start] = min(candidates, key=lambda candidate: candidate[0])
    return best[0][1]


def _pieces(size: int) -> tuple[int, ...]:
    pieces = []
    while size:
        piece = max(unit for unit in _UNIT if unit <= size)
        pieces.append(piece)
        size -= piece
    return tuple(pieces)


def _extract(unit: str, field: Field, low: int, width: int) -> str:
    if field.bits == width:
        return unit
    value = f"{unit} >> {low}" if low else unit
    if low + field.bits < width:
        value = f"({value}) & {(1 << field.bits) - 1}" if low else f"{value} & {(1 << field.bits) - 1}"
    if field.signed:
        sign = 1 << (field.bits - 1)
        value = f"(({value}) ^ {sign}) - {sign}"
    return value


def _place(field: Field, low: int, width: int) -> str:
    value = field.name
    if field.signed and field.bits < width:
        value = f"({field.name} & {(1 << field.bits) - 1})"
    return f"{value} << {low}" if low else value


def _join(units: list[str], pieces: tuple[int, ...]) -> str:
    left = sum(pieces) * 8
    terms = []
    for unit, size in zip(units, pieces, strict=True):
        left -= size * 8
        terms.append(f"{unit} << {left}" if left else unit)
    return " | ".join(terms)


def _split(field: Field, pieces: tuple[int, ...]) -> list[str]:
    left = sum(pieces) * 8
    expressions = []
    for size in pieces:
        left -= size * 8
        value = f"{field.name} >> {left}" if left else field.name
        expressions.append(f"({value}) & {(1 << size * 8) - 1}")
    return expressions


def _excess(field: Field) -> str:
    if field.signed:
        return f"{field.name} + {-field.low} >> {field.bits}"
    return f"{field.name} >> {field.bits}"


def _complete(header: Header, values: Mapping[str, int]) -> Values:
    """`values` with defaults for what is missing; raises `LocalError` for what the header does not have."""
    unknown = [name for name in values if name not in header.names]
    if unknown:
        raise LocalError(f"{header.name}.{unknown[0]}: no such field; there are {', '.join(header.names)}")
    for name, value in values.items():
        if not isinstance(value, int):
            raise LocalError(f"{header.name}.{name}: {value!r} is not an integer")
    return {field.name: values.get(field.name, field.default) for field in header.fields}


def _refuse(header: Header, values: Mapping[str, int]) -> None:
    for field in header.fields:
        if not field.low <= values[field.name] <= field.high:
            raise LocalError(f"{header.name}.{field.name}: {values[field.name]} is not in {field.low} … {field.high}")
