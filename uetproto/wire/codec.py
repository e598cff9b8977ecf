# SPDX-License-Identifier: GPL-2.0-only
"""This module compiles a header table, when it is first used, into functions over precompiled `struct` formats.

No other module runs code that is made at run time. The fields are covered by the fewest `struct` units of 1, 2, 4 or 8
bytes, and a field is a shift and a mask of its unit. A loop over the fields would be some twenty times slower.

The functions of `codec_of` take and return mappings in wire order. They keep all bits, also reserved ones and unknown
codes, and check every value. The named tuples of `header_class` check nothing. Engines, which know the form, take these
classes from `wire.tuples`, where the type checker knows the fields of each form.
"""

import operator
import struct
from collections import namedtuple
from collections.abc import Callable, Mapping
from functools import cache, lru_cache
from types import CodeType
from typing import Any, NamedTuple

from uetproto.errors import LocalError, similar
from uetproto.wire.fields import Field, Header

Values = dict[str, int]

_UNIT = {1: "B", 2: "H", 4: "I", 8: "Q"}


class Codec(NamedTuple):
    """A codec holds two functions of one header: `decode` returns a mapping of values, and `encode` takes one."""

    header: Header
    size: int
    """Number of bytes that `decode` needs at its offset."""
    decode: Callable[..., Values]
    """Function `decode(data, offset=0)`, which returns the value of every field by name, in wire order."""
    encode: Callable[[Mapping[str, int]], bytes]
    """Function `encode(values)`, which returns the bytes of the header. A missing field takes its default. The function
    raises `LocalError`, which names the field and its range, for a value that does not fit."""


class Plan(NamedTuple):
    """A plan is Python source text that reads the fields of a header from `struct` units, and makes these units from
    the fields.
    """

    format: str
    units: list[str]  # variable names
    reads: list[str]  # one expression a field, in table order
    shared: dict[str, str]  # units of several fields: variable, expression; a field is the variable `prefix + name`
    writes: list[str]  # one expression a unit
    places: dict[str, tuple[str, int]]  # fields within one unit: the unit, bits to the right of the field
    unfit: list[str]  # expressions, one of which is true if a value does not fit and `struct` would not notice


class _Part(NamedTuple):
    """A part is one struct unit with the fields in it, or one field that several units hold (`pieces` > 1)."""

    codes: str
    fields: tuple[Field, ...]
    pieces: tuple[int, ...]  # bytes of each unit


@cache
def plan(header: Header, prefix: str = "") -> Plan:
    """Return the source text for `header`. `prefix` makes variable names unique if a function reads several headers.

    `struct` refuses a value that does not fit a unit, so most fields need no check of their own. `unfit` checks the
    others: fields that are split over several units, and fields that share a unit. The first of the fields that share a
    unit needs no check, because its excess bits make the unit too large. A value fits if it is 0 after a right shift by
    the width of its field. NumPy integers lose bits when they are shifted to the left, so a unit that is not an `int`
    is refused.
    """
    parts = _cover(header)
    units: list[str] = []
    reads: list[str] = []
    shared: dict[str, str] = {}
    writes: list[str] = []
    places: dict[str, tuple[str, int]] = {}
    unfit: list[str] = []
    for part in parts:
        names = [f"{prefix}u{len(units) + i}" for i in range(len(part.pieces))]
        units += names
        first, *others = (prefix + field.name for field in part.fields)
        width = low = part.pieces[0] * 8
        if len(names) > 1:
            reads.append(_join(names, part.pieces))
            writes += _split(first, part.pieces)
            unfit.append(f"{first} >> {part.fields[0].bits}")
        elif not others:
            reads.append(names[0])
            writes.append(first)
            places[part.fields[0].name] = names[0], 0
        else:
            expressions = []
            for field in part.fields:
                low -= field.bits
                reads.append(_extract(names[0], field, low, width))
                expressions.append(_place(prefix + field.name, field, low, width))
                places[field.name] = names[0], low
            shared[names[0]] = " | ".join(expressions)
            writes.append(names[0])
            unfit += [
                _excess(prefix + field.name, field) for field in part.fields if field.signed or field in part.fields[1:]
            ]
            unfit.append(f"class_of({names[0]}) is not int")
    return Plan("".join(part.codes for part in parts), units, reads, shared, writes, places, unfit)


def _excess(value: str, field: Field) -> str:
    return f"{value} + {-field.low} >> {field.bits}" if field.signed else f"{value} >> {field.bits}"


def compile_functions(source: str, name: str, **scope: Any) -> dict[str, Any]:
    """Run the Python text `source`, and return the names that it defines, with their values.

    No other function of the project runs generated code. The code sees `scope` as its global names, and `name` stands
    in tracebacks.
    """
    exec(_code(source, name), scope)
    return scope


@lru_cache(maxsize=1024)
def _code(source: str, name: str) -> CodeType:
    """Compile source text, which takes a millisecond; the code of a text is compiled once and kept."""
    return compile(source, f"<{name}>", "exec")


@cache
def codec_of(header: Header) -> Codec:
    """Return the compiled codec of a header. Every call for this header returns the same object."""
    text = plan(header)
    layout = struct.Struct(">" + text.format)
    pairs = ", ".join(f"'{f.name}': {e}" for f, e in zip(header.fields, text.reads, strict=True))
    fetch = "; ".join(f"{f.name} = v['{f.name}']" for f in header.fields)
    share = _assignments(text)
    functions = compile_functions(
        f"""
def decode(data, offset=0):
    {", ".join(text.units)}, = read(data, offset)
    return {{{pairs}}}
def encode(v):
    {fetch}
    {share}
    if {" or ".join(text.unfit) or "False"}:
        raise OverflowError
    return write({", ".join(text.writes)})
""",
        f"codec of {header.name}",
        read=layout.unpack_from,
        write=layout.pack,
        class_of=type,  # `type` is a field
    )
    encode_whole = functions["encode"]
    defaults = {field.name: field.default for field in header.fields}

    def encode(values: Mapping[str, int]) -> bytes:
        try:
            whole = values if len(values) == len(defaults) else {**defaults, **values}
            if len(whole) == len(defaults):  # no unknown field is among them
                data: bytes = encode_whole(whole)
                return data
        except (KeyError, TypeError, OverflowError, struct.error):
            pass
        whole = _complete(header, values)
        _refuse(header, whole)
        data = encode_whole(whole)
        return data  # noqa: RET504  its type is said above

    return Codec(header, header.size, functions["decode"], encode)


def _assignments(text: Plan) -> str:
    """Make the statements that compute the units which several fields share."""
    return "; ".join(f"{name} = {expression}" for name, expression in text.shared.items()) or "pass"


def class_name(header: Header) -> str:
    """Return the name of the header's class in `wire.tuples`. That of `pds.rud_req.syn` is `PdsRudReqSynHeader`."""
    return "".join(part.capitalize() for part in header.name.replace(".", "_").split("_")) + "Header"


def parameters_of(header: Header) -> tuple[list[str], dict[str, int]]:
    """Return the names of the fields that `pack` of the header's class requires, and the defaults of the other
    fields."""
    omitted = {f.name: int(f.default) for f in header.fields if f.only or f.name.startswith("rsvd")}
    return [name for name in header.names if name not in omitted], omitted


@cache
def header_class(header: Header) -> Any:
    """Return the named tuple class of a header, with its fields in wire order. Every call returns the same class.

    The class has attributes `form` and `size`, and three functions. `read(data, offset=0)` returns a named tuple.
    `unpack(data, offset=0)` returns a plain tuple of the fields, which is faster. `pack` takes the fields in wire order
    or by keyword, and returns bytes. It takes reserved fields, and fields that identify the header, only by keyword;
    they have defaults, so that no call of `pack` changes when a table splits a reserved field in two.
    """
    text, layout = plan(header), struct.Struct(">" + plan(header).format)
    units, fields = ", ".join(text.units), ", ".join(text.reads)
    needed, omitted = parameters_of(header)
    parameters = ", ".join(
        (*needed, *(["*"] if omitted else []), *(f"{name}={value}" for name, value in omitted.items()))
    )
    functions = compile_functions(
        f"""
def read(data, offset=0):
    {units}, = units_at(data, offset)
    return new(cls, ({fields},))
def unpack(data, offset=0):
    {units}, = units_at(data, offset)
    return ({fields},)
def pack({parameters}):
    {_assignments(text)}
    return write({", ".join(text.writes)})
""",
        f"named tuple of {header.name}",
        units_at=layout.unpack_from,
        write=layout.pack,
        new=tuple.__new__,
    )
    name = class_name(header)
    functions["cls"] = made = type(name, (namedtuple(name, header.names),), {
        "__slots__": (), "__module__": "uetproto.wire.tuples", "form": header.name, "size": header.size,
        **{function: staticmethod(functions[function]) for function in ("read", "unpack", "pack")},
    })  # fmt: skip
    return made


def _cover(header: Header) -> list[_Part]:
    """Return the cheapest way to cut the header into struct units at field borders (shortest path from the end).

    A unit has the cost 1. A shift and a mask cost about as much, and more in integers above 30 bits, which Python keeps
    in several digits.
    """
    borders = header.borders
    best: dict[int, tuple[float, list[_Part]]] = {header.size: (0, [])}
    for start in sorted(borders, reverse=True)[1:]:
        options: list[tuple[int, _Part, float]] = []
        for size, code in _UNIT.items():
            if start + size in best:
                fields = header.fields[borders[start] : borders[start + size]]
                code = code.lower() if fields[0].signed and len(fields) == 1 else code
                work = 0 if len(fields) == 1 else len(fields) * _EXTRACTION[size]
                options.append((start + size, _Part(code, fields, (size,)), 1 + work))
        field = header.fields[borders[start]]
        if field.bits % 8 == 0 and start + field.bits // 8 in best:
            pieces = _pieces(field.bits // 8)
            part = _Part("".join(_UNIT[p] for p in pieces), (field,), pieces)
            options.append((start + field.bits // 8, part, 3 * len(pieces)))
        candidates = [(best[end][0] + cost, [part, *best[end][1]]) for end, part, cost in options]
        if candidates:
            best[start] = min(candidates, key=lambda candidate: candidate[0])
    return best[0][1]


_EXTRACTION = {1: 0.8, 2: 0.8, 4: 1.4, 8: 2.0}  # shift and mask, in units of one struct unit


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


def _place(value: str, field: Field, low: int, width: int) -> str:
    if field.signed and field.bits < width:
        value = f"({value} & {(1 << field.bits) - 1})"
    return f"{value} << {low}" if low else value


def _join(units: list[str], pieces: tuple[int, ...]) -> str:
    left = sum(pieces) * 8
    terms = []
    for unit, size in zip(units, pieces, strict=True):
        left -= size * 8
        terms.append(f"{unit} << {left}" if left else unit)
    return " | ".join(terms)


def _split(value: str, pieces: tuple[int, ...]) -> list[str]:
    left = sum(pieces) * 8
    expressions = []
    for size in pieces:
        left -= size * 8
        whole = f"{value} >> {left}" if left else value
        expressions.append(f"({whole}) & {(1 << size * 8) - 1}")
    return expressions


def _complete(header: Header, values: Mapping[str, int]) -> Values:
    """Return `values` with defaults for what is missing. Raises `LocalError` for an unknown field."""
    names = header.names
    unknown = [name for name in values if name not in names]
    if unknown:
        what = f"no such field{similar(unknown[0], names)}"
        raise LocalError(f"{header.name}.{unknown[0]}", what, ", ".join(names), id="unknown-field")
    whole = {field.name: field.default for field in header.fields}
    for name, value in values.items():
        try:
            whole[name] = operator.index(value)  # an integer of NumPy becomes one of Python
        except TypeError:
            raise LocalError(f"{header.name}.{name}", f"{value!r} is not an integer", id="wrong-field-value") from None
    return whole


def _refuse(header: Header, values: Mapping[str, int]) -> None:
    """Raise `LocalError` for the first value that does not fit its field."""
    for field in header.fields:
        if not field.low <= values[field.name] <= field.high:
            name = f"{header.name}.{field.name}"
            raise LocalError(name, f"{values[field.name]} is not in {field.low} … {field.high}", id="wrong-field-value")
