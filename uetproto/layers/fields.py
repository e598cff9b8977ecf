# SPDX-License-Identifier: GPL-2.0-only
"""This module makes a Scapy field for each field of a header table."""

from collections.abc import Mapping
from enum import IntFlag
from functools import cache
from ipaddress import IPv6Address
from typing import Any

from scapy import fields
from scapy.error import Scapy_Exception
from scapy.volatile import RandChoice

from uetproto.errors import LocalError, shown, similar
from uetproto.wire.fields import Field, Header


class LayerError(LocalError, Scapy_Exception):  # type: ignore[misc]
    """The caller gave a layer a value that is not legal. The error names what is legal, and is an error of Scapy,
    too."""


_COMPUTED = {
    ("bth", "padcnt"), ("grh", "paylen"), ("lrh", "pktlen"), ("lrh", "lnh"),
    ("sharp", "ext_words"), ("sharp", "payload_len"),
}  # fmt: skip
"""Fields that are computed when a packet is built, unless they are set."""
NAMES = {
    ("reth", "dmalen"): "dma_length", ("atomic_eth", "swapdt"): "swap_data", ("atomic_eth", "cmpdt"): "compare_data",
    ("atomic_ack_eth", "origremdt"): "original_remote_data", ("imm", "immdt"): "immediate_data",
}  # fmt: skip
"""Names of layer fields that have another name in the header table (roce.md §0). The keys are the header form and the
name in the table."""
_UNSIGNED = {
    8: fields.ByteField, 16: fields.ShortField, 24: fields.ThreeBytesField, 32: fields.IntField, 64: fields.LongField,
}  # fmt: skip
_SIGNED = {
    8: fields.SignedByteField, 16: fields.SignedShortField, 32: fields.SignedIntField, 64: fields.SignedLongField,
}  # fmt: skip


GIDS = {"sgid", "dgid", "gid", "mgid", "rgid"}
"""Fields that hold an IPv6 address, which may be given as text."""


@cache
def _strict(kind: Any) -> Any:
    """Return the class of fields of a `kind` that refuse a name or number which the row of their header cannot hold."""

    def init(self: Any, row: Field, *args: Any) -> None:
        self.row = row
        kind.__init__(self, *args)

    def any2i(self: Any, pkt: Any, x: Any) -> Any:
        row = self.row
        if isinstance(x, str):
            x = _from_text(self, row, x)
        if isinstance(x, float | bytes | dict) or (type(x) is int and not row.low <= x <= row.high):
            raise LayerError(self.name, f"{shown(x)} is not legal", f"{row.low} … {row.high}", id="wrong-field-value")
        return kind.any2i(self, pkt, x)

    def i2repr(self: Any, pkt: Any, x: Any) -> Any:
        if self.name in GIDS and isinstance(x, int):
            return str(IPv6Address(x))
        return kind.i2repr(self, pkt, x)

    def randval(self: Any) -> Any:
        """Return a random value for `fuzz`, which leaves a header what it is."""
        only = self.row.only
        return kind.randval(self) if not only else RandChoice(*only) if len(only) > 1 else None

    methods = {"__slots__": ["row"], "__init__": init, "any2i": any2i, "i2repr": i2repr, "randval": randval}
    return type(kind)(kind.__name__, (kind,), methods)


def _from_text(field: Any, row: Field, text: str) -> Any:
    """Return the value of a field for a name of a code, names of bits, or an address."""
    if field.name in GIDS:
        try:
            return int(IPv6Address(text))
        except ValueError:
            raise LayerError(
                field.name, f"{shown(text)} is not legal", "an IPv6 address", id="wrong-field-value"
            ) from None
    names: Mapping[str, Any] = row.values.__members__ if row.values is not None else {}
    if isinstance(field, fields.FlagsField):
        known = set(field.names)
        wrong = [name for name in text.split("+") if name and name not in known]
        if not wrong:
            return text
        raise LayerError(
            field.name,
            f"{shown(wrong[0])} is not legal{similar(wrong[0], known)}",
            "+".join(names),
            id="wrong-field-value",
        )
    if text not in names:
        legal = ", ".join(names) if names else f"{row.low} … {row.high}"
        raise LayerError(field.name, f"{shown(text)} is not legal{similar(text, names)}", legal, id="wrong-field-value")
    return int(names[text])


def plain_field(header: Header, row: Field) -> Any:
    """Return the Scapy field for `row`, which is a field of `header`."""
    key = header.name, row.name
    field = _typed(NAMES.get(key, row.name), row, header.offset_of(row.name) % 8 == 0)
    if key in _COMPUTED:
        field.default = None
    return field


def _typed(name: str, row: Field, aligned: bool) -> Any:
    if row.signed:
        return _strict(_SIGNED[row.bits])(row, name, row.default)
    if row.values is not None and issubclass(row.values, IntFlag):
        known = {int(member): str(member.name) for member in row.values}
        bits = [known.get(1 << bit, f"bit{bit}") for bit in range(row.bits)]
        return _strict(fields.FlagsField)(row, name, row.default, row.bits, bits)
    if row.values is not None:
        if aligned and row.bits == 8:
            return _strict(fields.ByteEnumField)(row, name, row.default, row.values)
        return _strict(fields.BitEnumField)(row, name, row.default, row.bits, row.values)
    if aligned and row.bits in _UNSIGNED:
        return _strict(_UNSIGNED[row.bits])(row, name, row.default)
    return _strict(fields.BitField if row.bits <= 64 else fields.XBitField)(row, name, row.default, row.bits)
