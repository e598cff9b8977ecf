# SPDX-License-Identifier: GPL-2.0-only
"""This module has the tables that describe headers (`Header`), with one row for each field (`Field`).

All codecs are made from the tables. A table has its rows most significant bit first, in the order of the specification.
What a row cannot express (a checksum, an optional trailer, a list of variable length) is an ordinary function beside
the table. If a bit changes the meaning of other bits, each value of it has a table (`pds.ack` and `pds.ack.probe`).
"""

from dataclasses import dataclass
from enum import Enum, IntEnum, IntFlag

from uetproto.errors import listed, similar

# Attributes of a Scapy packet that a field of the same name would silently hide.
_TAKEN_BY_SCAPY = frozenset(
    {"name", "time", "payload", "original", "underlayer", "parent", "fields", "options", "show"}
)


class Origin(Enum):
    """An origin says where the layout of a header comes from: it is published, inferred, or chosen by this project.

    The marks of these three in sharp.md are [P], [I] and [D].
    """

    PUBLISHED = "published"
    INFERRED = "inferred"
    """The layout was inferred from what is published; nobody has confirmed it."""
    OURS = "ours"
    OUR_PLACE = "ours, published codes"
    """The project chose the place of the field; the codes in it are published."""


@dataclass(frozen=True, slots=True)
class Field:
    """A field is one row of a table. It is `bits` wide and called `name`.

    `values` names its codes, or its single bits. `signed` makes it two's complement. `only` lists the values by which
    this header is told from others that could stand at its place; the first value is the default. `doc` describes the
    field in a few words. `origin` is None if the field has the origin of its header.
    """

    bits: int
    name: str
    values: type[IntEnum] | type[IntFlag] | None = None
    only: tuple[int, ...] = ()
    doc: str = ""
    signed: bool = False
    origin: Origin | None = None

    @property
    def default(self) -> int:
        return self.only[0] if self.only else 0

    @property
    def low(self) -> int:
        """Return the smallest legal value."""
        return -(1 << (self.bits - 1)) if self.signed else 0

    @property
    def high(self) -> int:
        """Return the largest legal value."""
        return (1 << (self.bits - 1 if self.signed else self.bits)) - 1

    def bits_of(self, value: int) -> str:
        """Return the names of the bits that are set in `value`, as "FIRST|LAST". The text is empty if no bit is set, or
        if one of them has no name."""
        known = [member for member in self.values or () if value & member]
        return "|".join(str(member.name) for member in known) if sum(known) == value else ""


@dataclass(frozen=True, slots=True, eq=False)
class Header:
    """A header is one table. It has the `name` of the form (wire.md §0), a `title`, the source `spec`, the `size` in
    bytes, and the `fields`.

    `origin` is the origin of all fields that have none of their own. `ValueError` is raised at import if the fields do
    not add up to `size`, or break a rule on which the codecs rely.
    """

    name: str
    title: str
    spec: str
    size: int
    fields: tuple[Field, ...]
    origin: Origin = Origin.PUBLISHED

    def __post_init__(self) -> None:
        position = 0
        names: set[str] = set()
        for field in self.fields:
            where = f"{self.name}.{field.name}"
            first, last = position // 8, (position + field.bits - 1) // 8
            if not field.name.isidentifier() or field.name in _TAKEN_BY_SCAPY or field.name in names:
                raise ValueError(f"{where}: not an identifier, taken by Scapy, or there twice")
            if field.bits > 64 and (position % 8 or field.bits % 8):
                raise ValueError(f"{where}: wider than 64 bits and not byte-aligned")
            if field.bits <= 64 and last - first >= 8:
                raise ValueError(f"{where}: spans more than eight bytes")
            if any(not field.low <= value <= field.high for value in field.only):
                raise ValueError(f"{where}: a value of `only` does not fit {field.bits} bits")
            names.add(field.name)
            position += field.bits
        if position != self.size * 8:
            raise ValueError(f"{self.name}: rows have {position} bits, the header {self.size * 8}")

    def __getitem__(self, name: str) -> Field:
        for field in self.fields:
            if field.name == name:
                return field
        raise KeyError(f"{self.name}.{name}: no such field{similar(name, self.names)}; there are {listed(self.names)}")

    def origin_of(self, field: Field) -> Origin:
        """Return the origin of `field`, which is a field of this header."""
        return field.origin or self.origin

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(field.name for field in self.fields)

    @property
    def borders(self) -> dict[int, int]:
        """Return the index of each field that starts at a whole byte, by the offset of this byte.

        The end of the header is included, with the number of fields as index.
        """
        position, found = 0, {0: 0}
        for index, field in enumerate(self.fields, 1):
            position += field.bits
            if position % 8 == 0:
                found[position // 8] = index
        return found

    def offset_of(self, name: str) -> int:
        """Return the offset of the field `name` from the start of the header, in bits."""
        position = 0
        for field in self.fields:
            if field.name == name:
                return position
            position += field.bits
        raise KeyError(f"{self.name}.{name}: no such field{similar(name, self.names)}; there are {listed(self.names)}")
