# SPDX-License-Identifier: GPL-2.0-only
"""Each header form has a Construct schema that is made from its table: `SCHEMAS["pds.ack"].build({"cack_psn": 7})`.

A header whose fields are all whole bytes is a `Struct`, any other header is a `BitStruct`. A field with named codes is
an `Enum`, a field with named bits is a `FlagsEnum`, and a single bit is a `Flag`. Each field has the text of the table
as its `docs`. A field that is not given is 0, or has the value that identifies the header. A value that a field cannot
have is refused with the path of the field.

`compile()` gives a schema that is faster for headers of whole bytes. A `BitStruct` stays as fast as it was, since
Construct does not compile it. A compiled schema does not refuse unknown names of fields.
"""

from collections.abc import Mapping
from enum import IntFlag
from types import MappingProxyType
from typing import Any

from construct import Bitwise, ConstructError, Container, Default, MappingError, Renamed, Struct

from uetproto.errors import identified, listed, shown, similar
from uetproto.schemas.values import Bit, Bits, BitsEnum, Bytes, CodeEnum, number_of
from uetproto.wire.fields import Field, Header
from uetproto.wire.forms import FORMS


class HeaderStruct(Struct):  # type: ignore[misc]
    """This construct is a `Struct` of the fields of a header, in wire order. Building refuses unknown names of
    fields."""

    def _parse(self, stream: Any, context: Any, path: str) -> Any:
        fields = super()._parse(stream, context, path)
        del fields["_io"]  # otherwise every header would keep its stream, one byte a bit
        return fields

    def _build(self, fields: Any, stream: Any, context: Any, path: str) -> Any:
        if fields is not None and not isinstance(fields, Mapping):
            raise identified(
                MappingError(f"the fields of a header are a mapping, not {type(fields).__name__}", path=path),
                "wrong-type",
            )
        self.check_names(fields or {}, path)
        built = super()._build(fields, stream, context, path)
        return Container({name: built[name] for name in self._subcons})

    def check_names(self, fields: Mapping[str, Any], path: str) -> None:
        """Raise a `MappingError` for a name that is no field. Names that begin with an underscore belong to Construct,
        and are accepted."""
        for name in fields:
            if name not in self._subcons and not str(name).startswith("_"):
                what = f"there is no such field in {self.form}{similar(name, self._subcons)}"
                raise identified(MappingError(what, path=f"{path} -> {name}"), "unknown-field")

    form: str = ""


def _field(field: Field, whole: bool) -> Any:
    """Return the construct of one row; `whole` says that all rows of the header are whole bytes."""
    number = Bytes(field) if whole else Bits(field)
    if field.values is None:
        value = Bit(field) if field.bits == 1 else number
    elif issubclass(field.values, IntFlag):
        value = BitsEnum(number, field, field.values)
    else:
        value = CodeEnum(number, field, field.values)
    return Renamed(Default(value, int(field.default)), newname=field.name, newdocs=field.doc)


def _schema(header: Header) -> Any:
    whole = all(field.bits % 8 == 0 for field in header.fields)
    fields = HeaderStruct(*[_field(field, whole) for field in header.fields])
    fields.form = header.name
    schema = fields if whole else Bitwise(fields)
    schema.name, schema.docs = header.name, f"{header.title} ({header.spec})"
    return schema


class UnknownFormError(ConstructError, KeyError):  # type: ignore[misc]
    """There is no header form of this name."""


class _Schemas(dict[str, Any]):
    def __missing__(self, form: object) -> Any:
        raise identified(
            UnknownFormError(f"{shown(form)} is no form{similar(form, self)}; legal: {listed(self)}"), "unknown-form"
        )


SCHEMAS: Mapping[str, Any] = MappingProxyType(_Schemas({form: _schema(header) for form, header in FORMS.items()}))
"""Schema of every header form, by the name of the form, such as "pds.ack" (wire.md §0)."""


def numbers(form: str, fields: Mapping[str, Any], path: str) -> dict[str, int]:
    """Return the given fields of a header as numbers, in wire order.

    Raises `ConstructError` for a name or a value that the header `form` does not have.
    """
    schema = SCHEMAS[form]
    struct: HeaderStruct = schema if isinstance(schema, HeaderStruct) else schema.subcon
    struct.check_names(fields, path)
    return {
        name: number_of(FORMS[form][name], fields[name], f"{path} -> {name}")
        for name in struct._subcons
        if name in fields
    }
