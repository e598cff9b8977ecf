"""This module turns rows of the tables into Scapy fields."""

from enum import IntFlag
from typing import Any

from scapy import fields

from uetproto.wire.fields import Field, Header

_COMPUTED = {
    ("bth", "padcnt"), ("grh", "paylen"), ("lrh", "pktlen"), ("lrh", "lnh"),
    ("sharp", "ext_words"), ("sharp", "payload_len"),
}  # fmt: skip
"""Fields that are computed when a packet is built, unless they are set."""
_UNSIGNED = {
    8: fields.ByteField, 16: fields.ShortField, 24: fields.ThreeBytesField, 32: fields.IntField, 64: fields.LongField,
}  # fmt: skip
_SIGNED = {
    8: fields.SignedByteField, 16: fields.SignedShortField, 32: fields.SignedIntField, 64: fields.SignedLongField,
}  # fmt: skip


def plain_field(header: Header, row: Field) -> Any:
    """Return the Scapy field for a row of `header`."""
    field = _typed(header, row)
    if (header.name, row.name) in _COMPUTED:
        field.default = None
    return field


def _typed(header: Header, row: Field) -> Any:
    aligned = header.offset_of(row.name) % 8 == 0
    if row.signed:
        return _SIGNED[row.bits](row.name, row.default)
    if row.values is not None and issubclass(row.values, IntFlag):
        known = {int(member): str(member.name) for member in row.values}
        return fields.FlagsField(
            row.name, row.default, row.bits, [known.get(1 << bit, f"bit{bit}") for bit in range(row.bits)]
        )
    if row.values is not None:
        if aligned and row.bits == 8:
            return fields.ByteEnumField(row.name, row.default, row.values)
        return fields.BitEnumField(row.name, row.default, row.bits, row.values)
    if aligned and row.bits in _UNSIGNED:
        return _UNSIGNED[row.bits](row.name, row.default)
    return (fields.BitField if row.bits <= 64 else fields.XBitField)(row.name, row.default, row.bits)
