# SPDX-License-Identifier: GPL-2.0-only
"""A packet schema has named parts: `UET.parse(data).pds.psn`, `UET.build(dict(pds=…, ses=…))`.

A part is one header, or None if the packet does not have it. Parsing follows the table `NEXT` (`wire.forms`), and
stores the name of a part's header form as `_form`. A part is built from a dict or Container. Its form is the value of
`form` or `_form`, otherwise the first form that may stand there and has all given fields. Fields that are not given
follow from the others (`wire.defaults`): next_hdr, opcodes, lengths, som and eom. Given fields are never changed. A
packet that would be parsed to other parts than those given is refused with the path of the part.

Two arguments of `parse` and `build` concern the trailer of a packet. The trailer also covers some bytes before the
packet. If `over` has these bytes, `parse` checks the trailer and `build` computes it. With `crc=True`, `parse` reads
the trailer without a check, and `build` writes the trailer that is given.
"""

import io
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from construct import (
    Construct,
    ConstructError,
    Container,
    MappingError,
    Pass,
    SizeofError,
    StreamError,
    StringError,
    Struct,
    Switch,
    stream_read,
    stream_seek,
    stream_tell,
    stream_write,
)  # fmt: skip

from uetproto.errors import identified
from uetproto.schemas.header import SCHEMAS, numbers
from uetproto.wire.codec import codec_of
from uetproto.wire.fields import Header
from uetproto.wire.forms import Candidates, matches, rows_after
from uetproto.wire.headers.uet_pds import PdsType
from uetproto.wire.shapes import completer

Given = dict[str, dict[str, Any]]
"""Fields that the caller gave, by the name of the part and the name of the field."""


class _AnotherFormError(ConstructError):  # type: ignore[misc]
    """The values of a part are those of another form, which parsing would find."""

    def __init__(self, part: str, header: Header, found: Header, path: str) -> None:
        super().__init__(
            f"{header.name} cannot stand here: by the fields before it and its own it is {found.name}", path
        )
        self.part, self.found = part, found


class Chosen(NamedTuple):
    part: str
    header: Header


class _Progress:
    """What may follow while a packet is parsed; `form` is the header that stands at the place of the stream."""

    def __init__(self, packet: "PacketStruct", start: int) -> None:
        self.packet = packet
        self.todo = [packet.first]
        self.start = start
        self.form: str | None = None


class PartSwitch(Switch):  # type: ignore[misc]
    """A part of a packet is a `Switch` over the header forms that it can have. A part that the packet does not have is
    None."""

    def __init__(self, headers: Candidates) -> None:
        super().__init__(self._form_here, {header.name: SCHEMAS[header.name] for header in headers}, Pass)
        self.headers = headers
        self.flagbuildnone = True

    def _form_here(self, context: Any) -> str | None:
        form: str | None = context._._walk.form
        return form

    def _parse(self, stream: Any, context: Any, path: str) -> Any:
        walk = context._._walk
        header = self._found(walk, stream, path)
        if header is None:
            return None
        walk.form = header.name
        fields = super()._parse(stream, context, path)
        walk.todo += reversed(walk.packet.following(header, fields, path))
        return Container(fields, _form=header.name)

    def _found(self, walk: _Progress, stream: Any, path: str) -> Header | None:
        """Return the header that stands here if it belongs to this part."""
        if not walk.todo or not set(walk.todo[-1]) & set(self.headers):
            return None
        start = stream_read(stream, 2, path)
        stream_seek(stream, -2, 1, path)
        header = next((header for header in walk.todo[-1] if matches(header, int.from_bytes(start, "big"))), None)
        if header is None:
            raise identified(ConstructError(f"no header starts with {start.hex()} here", path=path), "header-order")
        if header not in self.headers:
            return None
        walk.todo.pop()
        return header

    def _build(self, fields: Any, stream: Any, context: Any, path: str) -> Any:
        form = context._._walk.form = fields["_form"] if fields else None
        built = super()._build(fields, stream, context, path)
        return Container(built, _form=form) if form else None


class Rest(Construct):  # type: ignore[misc]
    """This construct is all bytes up to the end of the stream, except the last `tail(context)` bytes."""

    def __init__(self, tail: Any) -> None:
        super().__init__()
        self.tail = tail
        self.flagbuildnone = True

    def _parse(self, stream: Any, context: Any, path: str) -> bytes:
        here = stream_tell(stream, path)
        stream_seek(stream, 0, 2, path)
        size = stream_tell(stream, path) - here - self.tail(context)
        stream_seek(stream, here, 0, path)
        if size < 0:
            raise identified(
                StreamError(f"the stream ends {-size} bytes before the trailer does", path=path), "trailer-impossible"
            )
        data: bytes = stream_read(stream, size, path)
        return data

    def _build(self, data: Any, stream: Any, context: Any, path: str) -> Any:
        stream_write(stream, data, len(data), path)
        return data

    def _sizeof(self, context: Any, path: str) -> int:
        raise identified(SizeofError("the size of a payload is not fixed", path=path), "size-not-fixed")


def so_far(context: Any, end: int = 0) -> bytes:
    """Return the bytes of the packet that were parsed or built so far, without the last `end` bytes."""
    stream, start = context._io, context._._walk.start
    here = stream.tell()
    stream.seek(start)
    data: bytes = stream.read(here - start)
    return data[: len(data) - end]


def trailer_path(context: Any) -> str:
    """Return the path of the trailer, for an error about the argument `over`, which the trailer covers."""
    return f"({'parsing' if context._parsing else 'building'}) -> trailer"


def over_of(context: Any) -> bytes | None:
    """Return the argument `over` that the caller gave to `parse` or `build`, or None if it was not given."""
    over = context._params.get("over")
    if not isinstance(over, bytes | bytearray | memoryview | None):
        raise identified(
            StringError(f"over is bytes, not {type(over).__name__}", path=trailer_path(context)), "wrong-type"
        )
    return None if over is None else bytes(over)


class PacketStruct(Struct):  # type: ignore[misc]
    """This construct is a `Struct` of the parts of a packet, which are headers, and of payload, pad and trailer."""

    def __init__(self, first: Candidates, parts: Mapping[str, Candidates], **rest: Any) -> None:
        self.first, self.parts, self.rest = first, dict(parts), tuple(rest)
        members = [name / PartSwitch(headers) for name, headers in parts.items()]
        super().__init__(*members, *[name / member for name, member in rest.items()])

    def _parse(self, stream: Any, context: Any, path: str) -> Any:
        walk = _Progress(self, stream_tell(stream, path))
        packet = super()._parse(stream, self._outer(context, walk), path)
        del packet["_io"]
        return packet

    def _build(self, packet: Any, stream: Any, context: Any, path: str) -> Any:
        whole = self._completed(packet, context, path)
        inner = io.BytesIO()  # the trailer reads what was built, which the stream of the user may not allow
        built = super()._build(whole, inner, self._outer(context, _Progress(self, 0)), path)
        data = inner.getvalue()
        stream_write(stream, data, len(data), path)
        return Container({name: built.get(name) for name in (*self.parts, *self.rest)})

    def _sizeof(self, context: Any, path: str) -> int:
        raise identified(SizeofError("the size of a packet depends on its headers", path=path), "size-not-fixed")

    def _emitparse(self, code: Any) -> str:
        """Let a compiled construct call this schema as it is: what follows is known only while it parses."""
        raise NotImplementedError

    def _emitbuild(self, code: Any) -> str:
        raise NotImplementedError

    def _outer(self, context: Any, walk: _Progress) -> Any:
        return Container(context, _walk=walk)

    # Which header follows

    def following(
        self, header: Header, fields: Mapping[str, Any], path: str, parts: Iterable[str] = ()
    ) -> list[Candidates]:
        """Return a list with one item for each header that must follow `header`. The item has the forms that the
        following header may have.

        `fields` are the fields of `header`. If the field that announces the next header is missing, the next header is
        one of `parts`. Raises `ConstructError` if the field has a reserved code.
        """
        wanted = {candidate for part in parts for candidate in self.parts[part]}
        found = []
        for row in rows_after(header):
            group = row.otherwise
            if row.by is not None and row.by in fields:
                group = row.then.get(fields[row.by], row.otherwise)
                if group is None:
                    legal = ", ".join(f"{getattr(code, 'name', code)}" for code in row.then)
                    raise identified(
                        ConstructError(f"{fields[row.by]} is reserved; legal: {legal}", path=f"{path} -> {row.by}"),
                        "wrong-field-value",
                    )
            elif row.by is not None:
                groups = (*row.then.values(), row.otherwise or ())
                group = tuple(dict.fromkeys(h for group in groups for h in group if h in wanted))
            if group:
                found.append(group)
        return found

    # Building

    def preferred(self, part: str, before: list[Chosen], fields: Mapping[str, Any]) -> Iterable[Header]:
        """Return the forms that a part can have, in the order in which building tries them.

        The first is the most usual form for a part that has these `fields` and follows the headers `before`.
        """
        return self.parts[part]

    def prepared(self, given: Given, packet: Mapping[str, Any], path: str) -> None:
        """Add to `given` the header fields that follow from the payload, the pad or other members that are no
        headers."""

    def ending(self, packet: Mapping[str, Any], whole: dict[str, Any], context: Any, path: str) -> None:
        """Add the members that are no headers, such as payload, pad and trailer, to the packet `whole`, which is to be
        built."""
        raise NotImplementedError

    def bytes_of(self, packet: Mapping[str, Any], name: str, path: str) -> bytes | None:
        """Return the member `name` that the caller gave, such as the payload or the pad, or None. Raises `StringError`
        if it is not bytes."""
        given = packet.get(name)
        if not isinstance(given, bytes | bytearray | memoryview | None):
            raise identified(
                StringError(f"a {name} is bytes, not {type(given).__name__}", path=f"{path} -> {name}"), "wrong-type"
            )
        return None if given is None else bytes(given)

    def payload_of(self, packet: Mapping[str, Any], path: str) -> bytes:
        """Return the payload that the caller gave, or no bytes. Raises `StringError` if it is not bytes."""
        return self.bytes_of(packet, "payload", path) or b""

    def _completed(self, packet: Any, context: Any, path: str) -> dict[str, Any]:
        """Return what is to be built: every part with its form and all its fields."""
        if not isinstance(packet, Mapping):
            raise identified(
                MappingError(f"a packet is a mapping of parts, not {type(packet).__name__}", path=path), "wrong-type"
            )
        for name in packet:
            if name not in self.parts and name not in self.rest and not str(name).startswith("_"):
                legal = ", ".join((*self.parts, *self.rest))
                raise identified(
                    MappingError(f"there is no such part; legal: {legal}", path=f"{path} -> {name}"), "unknown-part"
                )
        given: Given = {}
        for part in self.parts:
            if packet.get(part) is not None:
                if not isinstance(packet[part], Mapping):
                    kind = type(packet[part]).__name__
                    raise identified(
                        MappingError(f"a header is a mapping of fields, not {kind}", path=f"{path} -> {part}"),
                        "wrong-type",
                    )
                given[part] = dict(packet[part])
        self.prepared(given, packet, path)
        size, tried = len(self.payload_of(packet, path)), set()
        while True:
            try:
                chosen, values = self._filled(given, size, path)
                break
            except _AnotherFormError as error:  # which it may be, unless a form was asked for
                fields = given[error.part]
                names = {name for name in fields if not str(name).startswith("_")}
                if "form" in fields or error.part in tried or not names <= set(error.found.names):
                    raise
                tried.add(error.part)
                fields["_form"] = error.found.name
        whole: dict[str, Any] = {
            part: Container(fields, _form=header.name) for (part, header), fields in zip(chosen, values, strict=True)
        }
        self.ending(packet, whole, context, path)
        return whole

    def _filled(self, given: Given, size: int, path: str) -> tuple[list[Chosen], list[dict[str, int]]]:
        """Return the headers of a packet in wire order, and all their fields, the given ones and those that follow."""
        chosen, values = self._chosen(given, path)
        forms = tuple(header.name for _, header in chosen)
        added = completer(forms, tuple(map(frozenset, values)))(values, size)
        for (part, header), more in zip(chosen, added, strict=True):
            numbers(header.name, more, f"{path} -> {part}")  # refuses what does not fit, as the length of a payload
        values = [more | some for more, some in zip(added, values, strict=True)]
        self._check_order(chosen, values, path)
        return chosen, values

    def _chosen(self, given: Given, path: str) -> tuple[list[Chosen], list[dict[str, int]]]:
        """Return the headers of the given parts in wire order, and their given fields as numbers."""
        chosen: list[Chosen] = []
        values: list[dict[str, int]] = []
        left = [part for part in self.parts if part in given]
        todo = [self.first]
        while todo:
            candidates = todo.pop()
            part = next((part for part in left if set(self.parts[part]) & set(candidates)), None)
            if part is None:
                names = [part for part, headers in self.parts.items() if set(headers) & set(candidates)]
                raise identified(
                    ConstructError(f"{' or '.join(names)} must stand here", path=f"{path} -> {names[-1]}"),
                    "header-order",
                )
            here = f"{path} -> {part}"
            fields = given[part]
            form = fields.get("form") or fields.get("_form")
            fields = {k: v for k, v in fields.items() if v is not None and k != "form" and not str(k).startswith("_")}
            header = self._form_of(part, candidates, form, fields, chosen, here)
            left.remove(part)
            chosen.append(Chosen(part, header))
            values.append(numbers(header.name, fields, here))
            todo += reversed(self.following(header, values[-1], here, left))
        if left:
            raise identified(
                ConstructError(f"it cannot follow {_path_of(chosen)}", path=f"{path} -> {left[0]}"), "header-order"
            )
        return chosen, values

    def _form_of(
        self, part: str, candidates: Candidates, form: Any, fields: dict[str, Any], chosen: list[Chosen], path: str
    ) -> Header:
        """Return the form that is asked for, else the first of the candidates that has all fields."""
        if form is not None:
            header = next((header for header in self.parts[part] if header.name == form), None)
            if header is None:
                names = ", ".join(header.name for header in self.parts[part])
                raise identified(
                    MappingError(f"there is no form called {str(form)[:40]!r} here; legal: {names}", path=path),
                    "unknown-form",
                )
            return header
        legal = [header for header in self.preferred(part, chosen, fields) if header in candidates]
        with_names = [header for header in legal if fields.keys() <= set(header.names)]
        fits = [header for header in with_names if _has(header, fields)]
        if not fits:
            best = [header for header in legal if _has(header, fields)] or with_names or legal
            best.sort(key=lambda header: -len(fields.keys() & set(header.names)))
            numbers(best[0].name, fields, path)  # names what does not fit
            names = ", ".join(header.name for header in legal)
            raise identified(
                ConstructError(f"no form has these values here; candidates: {names}", path=path), "header-order"
            )
        if "type" in fits[0].names and "type" not in fields and len({header["type"].default for header in fits}) > 1:
            names = ", ".join(dict.fromkeys(PdsType(header["type"].default).name for header in fits))
            raise identified(
                ConstructError(f"the type is missing, which says what header this is: {names}", path=f"{path} -> type"),
                "header-order",
            )
        return fits[0]

    def _check_order(self, chosen: list[Chosen], values: list[dict[str, int]], path: str) -> None:
        """Raise a `ConstructError` where parsing would find another header, or none, or one more."""
        todo = [self.first]
        for index, (part, header) in enumerate(chosen):
            here = f"{path} -> {part}"
            if not todo:
                raise identified(
                    ConstructError(f"{header.name} cannot follow {_path_of(chosen[:index])}", path=here), "header-order"
                )
            candidates = todo.pop()
            word = int.from_bytes(codec_of(header).encode(values[index])[:2], "big")
            found = next((candidate for candidate in candidates if matches(candidate, word)), None)
            if found is None:
                raise identified(ConstructError(f"{header.name} cannot stand here", path=here), "header-order")
            if found is not header:
                raise identified(_AnotherFormError(part, header, found, here), "header-order")
            todo += reversed(self.following(header, values[index], here))
        if todo:
            part = next(part for part, headers in self.parts.items() if todo[-1][0] in headers)
            raise identified(
                ConstructError(f"{' or '.join(h.name for h in todo[-1])} must follow", path=f"{path} -> {part}"),
                "header-order",
            )


def _path_of(chosen: list[Chosen]) -> str:
    return chosen[-1].header.name if chosen else "nothing"


def _has(header: Header, fields: Mapping[str, Any]) -> bool:
    """Return whether the values that identify `header` are those in `fields`, where they are given."""
    for field in header.fields:
        if field.only and field.name in fields:
            value = fields[field.name]
            names: Mapping[str, int] = field.values.__members__ if field.values is not None else {}
            if (names.get(value) if isinstance(value, str) else value) not in field.only:
                return False
    return True
