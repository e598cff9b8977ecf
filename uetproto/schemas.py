"""Each header form has a Construct schema: `SCHEMAS["pds.ack"].parse(data)`, `SCHEMAS["pds.ack"].build({"cack_psn":
7})`.

A schema reads the fields of its header by the rows of its table, as `wire.codec` does. It is an ordinary construct: it
can be a member of a `Struct`, be repeated, nested, measured with `sizeof()`.
`UET` parses the headers that follow UDP port 4793 or IP protocol 253, as many as `NEXT` says. `ROCE` parses those that
follow UDP port 4791, and `LRH` a packet of native InfiniBand, both by `ROCE_NEXT`. `SHARP` parses a SHARP message,
whatever carried it. The value of a field of bits is a number whose name lists the bits that are set: `"FIRST|LAST"`.
"""

from collections.abc import Mapping
from enum import IntFlag
from functools import reduce
from operator import or_
from types import MappingProxyType
from typing import Any

from construct import (
    Adapter,
    Bytes,
    Construct,
    ConstructError,
    Container,
    IntegerError,
    ListContainer,
    MappingError,
    stream_read,
)

from uetproto.wire.codec import codec_of
from uetproto.wire.fields import Field, Header
from uetproto.wire.forms import FIRST, FORMS, Candidates, matches, rows_after
from uetproto.wire.headers import roce, sharp
from uetproto.wire.shapes import completer

__all__ = ["LRH", "ROCE", "SCHEMAS", "SHARP", "UET", "Code"]


class Code(int):
    """A code is an integer on the wire that has a name: it equals this name too, and `str` returns the name."""

    name: str

    def __new__(cls, value: int, name: str) -> "Code":
        code = super().__new__(cls, value)
        code.name = name
        return code

    def __getnewargs__(self) -> tuple[int, str]:  # type: ignore[override]  # int has one argument less
        return int(self), self.name

    @property
    def intvalue(self) -> int:
        """Return the integer, as Construct's own `EnumIntegerString` does."""
        return int(self)

    def __eq__(self, other: object) -> bool:
        return self.name == other if isinstance(other, str) else int(self) == other

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash(int(self))

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return f"{self.name} ({int(self)})"


class _Row:
    """A row converts the value of a field to its name and back."""

    __slots__ = ("codes", "field")

    def __init__(self, field: Field) -> None:
        self.field = field
        self.codes = {int(member): Code(member, str(member.name)) for member in field.values or ()}

    def shown(self, value: int) -> int:
        """Return `value`, with its name if it has one."""
        if value not in self.codes and self.field.values is not None and issubclass(self.field.values, IntFlag):
            name = self.field.bits_of(value)
            return Code(value, name) if name else value
        return self.codes.get(value, value)

    def number(self, name: str) -> int | None:
        """Return the number that `name` stands for; None if there is none."""
        members: Mapping[str, int] = self.field.values.__members__ if self.field.values is not None else {}
        words = name.split("|") if self.field.values is not None and issubclass(self.field.values, IntFlag) else [name]
        if any(word not in members for word in words):
            return None
        return reduce(or_, (int(members[word]) for word in words))


class _HeaderSchema(Adapter):  # type: ignore[misc]
    """A header schema parses to a `Container` of all fields in wire order, and builds from any mapping."""

    def __init__(self, header: Header) -> None:
        super().__init__(Bytes(header.size))
        self.name = header.name
        self.docs = f"{header.title} ({header.spec})"
        self.header = header
        self.codec = codec_of(header)
        self.rows = [_Row(field) for field in header.fields]

    def _decode(self, data: bytes, context: Any, path: str) -> Any:
        values = zip(self.rows, self.codec.decode(data).values(), strict=True)
        return Container({row.field.name: row.shown(value) for row, value in values})

    def _encode(self, values: Mapping[str, int | str], context: Any, path: str) -> bytes:
        return self.codec.encode(self.numbers(values, path))

    def numbers(self, values: Mapping[str, int | str], path: str) -> dict[str, int]:
        """Return the fields that are given, as numbers; raise a `ConstructError` for what does not fit."""
        numbers: dict[str, int] = {}
        for row in self.rows:
            field = row.field
            if field.name not in values:
                continue
            value = values[field.name]
            if isinstance(value, str):
                number_of_name = row.number(value)
                if number_of_name is None:
                    raise MappingError(f"{field.name} has no code called {value!r}", path=f"{path} -> {field.name}")
                value = number_of_name
            elif not isinstance(value, int):
                raise IntegerError(f"{value!r} is not an integer", path=f"{path} -> {field.name}")
            if not field.low <= value <= field.high:
                reason = f"{value} is not in {field.low} … {field.high}"
                raise IntegerError(reason, path=f"{path} -> {field.name}")
            numbers[field.name] = value
        for name in values:
            # Names that start with an underscore are Construct's own, such as the `_io` of a parsed Struct.
            if name not in self.header.names and not name.startswith("_"):
                raise MappingError(f"there is no such field in {self.name}", path=f"{path} -> {name}")
        return numbers


SCHEMAS: Mapping[str, Any] = MappingProxyType({form: _HeaderSchema(header) for form, header in FORMS.items()})
"""Schema of every form, by the name of the form (wire.md §0)."""


class _PacketSchema(Construct):  # type: ignore[misc]
    """A packet schema holds the headers of a packet, of which the first is one of `first`.

    It parses to a list of containers, each with `form` and `fields`, and builds from such a list. Parsing raises a
    `ConstructError` where the headers end early or a type is reserved. Payload and CRC, which follow the headers, are
    left in the stream.

    When it builds, fields that are not given follow from the given ones (`wire.defaults`), also those that announce the
    next header. Lengths count the bytes `payload` of the context: a member of the same `Struct`, or an argument of
    `build`. Headers that parsing would not find again in this order are refused.
    """

    def __init__(self, first: Candidates) -> None:
        super().__init__()
        self.first = first

    def _parse(self, stream: Any, context: Any, path: str) -> Any:
        layers = ListContainer()
        todo = [self.first]
        while todo:
            here = f"{path} -> {len(layers)}"
            candidates = todo.pop()
            start = stream_read(stream, 2, here)
            word = int.from_bytes(start, "big")
            header = next((header for header in candidates if matches(header, word)), None)
            if header is None:
                raise ConstructError(f"no header starts with {start.hex()} here", path=here)
            fields = SCHEMAS[header.name].parse(start + stream_read(stream, header.size - 2, here))
            layers.append(Container(form=header.name, fields=fields))
            for row in reversed(rows_after(header)):
                following = row.then.get(fields[row.by], row.otherwise) if row.by else row.otherwise
                if following is None:
                    raise ConstructError(f"{fields[row.by]} is reserved", path=f"{here} -> {row.by}")
                if following:
                    todo.append(following)
        return layers

    def _build(self, layers: Any, stream: Any, context: Any, path: str) -> Any:
        given = []
        for index, layer in enumerate(layers):
            here = f"{path} -> {index}"
            if layer["form"] not in SCHEMAS:
                raise MappingError(f"there is no form called {layer['form']!r}", path=here)
            given.append(SCHEMAS[layer["form"]].numbers(layer["fields"], here))
        forms = tuple(layer["form"] for layer in layers)
        payload = context.get("payload")
        size = len(payload) if isinstance(payload, bytes | bytearray | memoryview) else 0
        added = completer(forms, tuple(map(frozenset, given)))(given, size)
        whole = [more | values for more, values in zip(added, given, strict=True)]
        for index, form in enumerate(forms):
            SCHEMAS[form]._build(whole[index], stream, context, f"{path} -> {index}")
        self._check_order([FORMS[form] for form in forms], whole, path)
        return layers

    def _check_order(self, headers: list[Header], values: list[dict[str, int]], path: str) -> None:
        """Raise a `ConstructError` where parsing would find another header, or none, or one more."""
        todo = [self.first]
        for index, header in enumerate(headers):
            here = f"{path} -> {index}"
            if not todo:
                raise ConstructError(f"{header.name} cannot follow {headers[index - 1].name} here", path=here)
            candidates = todo.pop()
            word = int.from_bytes(codec_of(header).encode(values[index])[:2], "big")
            found = next((candidate for candidate in candidates if matches(candidate, word)), None)
            if found is not header:
                reason = f": by the fields before it and its own it is {found.name}" if found else ""
                raise ConstructError(f"{header.name} cannot stand here{reason}", path=here)
            for row in reversed(rows_after(header)):
                following = row.then.get(values[index][row.by], row.otherwise) if row.by else row.otherwise
                if following is None:
                    raise ConstructError(f"{values[index][row.by or '']} is reserved", path=f"{here} -> {row.by}")
                if following:
                    todo.append(following)
        if todo:
            kind = todo.pop()[0].name.split(".")[0]
            raise ConstructError(f"a header of {kind} must follow", path=f"{path} -> {len(headers)}")


UET = _PacketSchema(FIRST)
ROCE = _PacketSchema((roce.BTH,))
LRH = _PacketSchema((roce.LRH,))


class _MessageSchema(_PacketSchema):
    """A message schema parses base header, extensions and body of a SHARP message.

    Ranks, vector and pad are left in the stream.
    """

    def _parse(self, stream: Any, context: Any, path: str) -> Any:
        layers = ListContainer()
        todo = list(self.first)
        while todo:
            header = todo.pop(0)
            fields = SCHEMAS[header.name].parse(stream_read(stream, header.size, f"{path} -> {len(layers)}"))
            layers.append(Container(form=header.name, fields=fields))
            if header is sharp.SHARP:
                todo = list(sharp.following(fields.opcode, fields.flags))
        return layers

    def _check_order(self, headers: list[Header], values: list[dict[str, int]], path: str) -> None:
        wanted: list[Header] = [sharp.SHARP]
        for index, header in enumerate(headers):
            if index == len(wanted) or header is not wanted[index]:
                reason = f"{wanted[index].name} stands here" if index < len(wanted) else "no header follows"
                raise ConstructError(f"not {header.name}: {reason}", path=f"{path} -> {index}")
            if not index:
                wanted += sharp.following(values[0]["opcode"], values[0]["flags"])
        if len(headers) < len(wanted):
            reason = f"{wanted[len(headers)].name} must follow"
            raise ConstructError(reason, path=f"{path} -> {len(headers)}")


SHARP = _MessageSchema((sharp.SHARP,))
