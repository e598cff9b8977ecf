# SPDX-License-Identifier: GPL-2.0-only
"""This module has the constructs of header fields, and the values to which they parse: numbers, named codes, flags."""

import re
from collections.abc import Iterator, Mapping
from enum import IntEnum, IntFlag
from typing import Any

from construct import BitsInteger, BytesInteger, Enum, FlagsEnum, IntegerError, MappingError
from construct import Flag as OneBit

from uetproto.errors import identified, listed, similar
from uetproto.wire.fields import Field


class Code(int):
    """A code is an integer that has a name. It equals the integer and the name, and `str` returns the name.

    Construct's own `EnumIntegerString` equals only the name.
    """

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


class Flags(Code):
    """Flags are an integer whose name lists the bits that are set, such as "FIRST|LAST". Bits without a name are in
    hex.

    Each named bit is an attribute and an item, True or False, as in Construct's own container of flags.
    """

    bits: Mapping[str, int]

    def __new__(cls, value: int, bits: Mapping[str, int]) -> "Flags":
        names = [name for name, bit in bits.items() if bit and value & bit == bit]
        rest = value
        for name in names:
            rest &= ~bits[name]
        flags = super().__new__(cls, value, "|".join([*names, *([hex(rest)] if rest else [])]))
        flags.bits = bits  # type: ignore[attr-defined]
        return flags  # type: ignore[return-value]

    def __getnewargs__(self) -> tuple[int, Mapping[str, int]]:  # type: ignore[override]
        return int(self), dict(self.bits)

    def __getitem__(self, name: str) -> bool:
        return int(self) & self.bits[name] == self.bits[name]

    def __getattr__(self, name: str) -> bool:
        if name.startswith("_") or name == "bits" or name not in self.bits:
            raise AttributeError(name)
        return self[name]

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self.bits]

    def keys(self) -> Iterator[str]:
        """Return an iterator over the names of all named bits, whether they are set or not."""
        return iter(self.bits)


def number_of(field: Field, value: Any, path: str) -> int:
    """Return the value of a field as a number.

    `value` is a number, the name of a code, or flags: names joined with "|", or a mapping from names to booleans.
    Raises `MappingError` for a name that the field does not have, and `IntegerError` for a value that is no integer or
    does not fit into the field.
    """
    flags = field.values is not None and issubclass(field.values, IntFlag)
    if flags and isinstance(value, Mapping):
        value = "|".join(name for name, there in value.items() if there and not str(name).startswith("_"))
    if isinstance(value, str) and field.values is not None:
        members: Mapping[str, int] = field.values.__members__
        number = 0
        for word in filter(None, map(str.strip, value.split("|"))) if flags else [value]:
            if word in members:
                number |= int(members[word])
            elif flags and _HEX.fullmatch(word):
                number |= int(word, 16)
            else:
                what = f"{field.name} has no code called {word[:40]!r}{similar(word, members)}"
                raise identified(
                    MappingError(f"{what}; legal: {listed(['a number', *members])}", path=path), "unknown-name"
                )
        value = number
    if not isinstance(value, int):
        raise identified(IntegerError(f"{value!r:.40} is not an integer", path=path), "wrong-type")
    if not field.low <= value <= field.high:
        shown = str(int(value)) if value.bit_length() <= 256 else f"a number of {value.bit_length()} bits"
        raise identified(IntegerError(f"{shown} is not in {field.low} … {field.high}", path=path), "wrong-field-value")
    return int(value)


_HEX = re.compile("0x[0-9a-f]{1,16}", re.ASCII)


class Bits(BitsInteger):  # type: ignore[misc]
    """This construct is a `BitsInteger` that refuses numbers outside the range of a field."""

    def __init__(self, field: Field) -> None:
        super().__init__(field.bits, signed=field.signed)
        self.field = field

    def _build(self, value: Any, stream: Any, context: Any, path: str) -> Any:
        return super()._build(number_of(self.field, value, path), stream, context, path)


class Bytes(BytesInteger):  # type: ignore[misc]
    """This construct is a `BytesInteger` that refuses numbers outside the range of a field of whole bytes."""

    def __init__(self, field: Field) -> None:
        super().__init__(field.bits // 8, signed=field.signed)
        self.field = field

    def _build(self, value: Any, stream: Any, context: Any, path: str) -> Any:
        return super()._build(number_of(self.field, value, path), stream, context, path)


class Bit(type(OneBit)):  # type: ignore[misc]
    """This construct is a `Flag`, False or True, of a single bit. It refuses numbers other than 0 and 1."""

    def __init__(self, field: Field) -> None:
        super().__init__()
        self.field = field

    def _build(self, value: Any, stream: Any, context: Any, path: str) -> Any:
        return super()._build(bool(number_of(self.field, value, path)), stream, context, path)


class CodeEnum(Enum):  # type: ignore[misc]
    """This construct is an `Enum` that parses a named code to a `Code`, and any other number to an `int`.

    It builds from a `Code`, a name or a number.
    """

    def __init__(self, subcon: Any, field: Field, codes: type[IntEnum]) -> None:
        super().__init__(subcon, codes)
        self.field = field
        self.decmapping = {int(code): Code(code, code.name) for code in codes}

    def _decode(self, value: int, context: Any, path: str) -> int:
        return self.decmapping.get(value, value)

    def _encode(self, value: Any, context: Any, path: str) -> int:
        return number_of(self.field, value, path)

    def _emitparse(self, code: Any) -> str:
        self._compileinstance(code)
        return f"linkedinstances[{id(self)}]._decode({self.subcon._compileparse(code)}, this, '')"

    def _emitbuild(self, code: Any) -> str:
        self._compileinstance(code)
        encoded = f"linkedinstances[{id(self)}]._encode(obj, this, '(building)')"
        return f"reuse({encoded}, lambda obj: ({self.subcon._compilebuild(code)}))"


class BitsEnum(FlagsEnum):  # type: ignore[misc]
    """This construct is a `FlagsEnum` that parses to `Flags`, which keep bits without a name."""

    def __init__(self, subcon: Any, field: Field, bits: type[IntFlag]) -> None:
        super().__init__(subcon, **{name: int(bit) for name, bit in bits.__members__.items()})
        self.field = field

    def _decode(self, value: int, context: Any, path: str) -> Flags:
        return Flags(value, self.flags)

    _encode = CodeEnum._encode
    _emitparse = CodeEnum._emitparse
    _emitbuild = CodeEnum._emitbuild
