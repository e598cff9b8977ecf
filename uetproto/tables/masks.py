# SPDX-License-Identifier: GPL-2.0-only
"""This module applies a display filter to a piece of a capture with array operations, as far as columns reach.

A field is an array of values and one of the places of their packets; a packet may have several. What a filter means is
what `filters.predicate` says; here it is the same for numbers and addresses of up to 64 bits.
"""

import operator
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from uetproto.analysis.decoding import Decoding
from uetproto.columns import NO_TIME, Columns, iter_batches
from uetproto.filters import literals
from uetproto.filters.display_filter import DisplayFilter
from uetproto.filters.fields import LOWER, FilterField, field_of
from uetproto.filters.syntax import (
    Comparison,
    Exists,
    FieldRef,
    Joined,
    Literal,
    Membership,
    Node,
    Not,
    Quantifier,
)
from uetproto.wire.capture.base import Source
from uetproto.wire.filter_names import BY_NAME, VARIANTS, Given
from uetproto.wire.forms import UET_FORMS

Array = NDArray[Any]
Mask = NDArray[np.bool_]
_ORDERS: dict[str, Callable[[Any, Any], Any]] = {
    "==": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip
_KINDS = ("uint", "int", "bool", "ipv4", "ether", "time")


class Ragged(NamedTuple):
    """This tuple has the values of a field, and the place of the packet of each."""

    values: Array
    at: Array


def is_mask(node: Node) -> bool:
    """Return whether columns reach all that a filter asks for."""
    if isinstance(node, Joined):
        return all(map(is_mask, node.parts))
    if isinstance(node, Not):
        return is_mask(node.part)
    if isinstance(node, Comparison) and (isinstance(node.right, FieldRef) or node.operator not in _ORDERS):
        return False
    return not node.field.slices and _reader(node.field.name) is not None


def mask_of(node: Node, columns: Columns, first: int, start_ns: int) -> Mask:
    """Return for each packet of a piece whether a filter of which `is_mask` holds wants it.

    `first` is the index of the first packet, and `start_ns` the time of the first packet of the capture.
    """
    return _MaskOf(columns, first, start_ns).of(node)


def is_streamed(wanted: DisplayFilter) -> bool:
    """Return whether `mask_of` answers a filter piece by piece, while a capture is read."""
    return is_mask(wanted.tree) and "frame.time_relative" not in wanted.names


def bulk(wanted: DisplayFilter, source: Source, decoding: Decoding) -> bytearray | None:
    """Return for each packet of a capture 1 if a filter of which `is_mask` holds wants it, else 0.

    Return None if a time that the filter asks for does not fit 64 bits.
    """
    settings = decoding.transports
    del settings["crc"]
    found = bytearray()
    start_ns: int | None = None
    for piece in iter_batches(source, **settings):
        if "frame.time_relative" in wanted.names and (piece.times == NO_TIME).any():
            return None
        if piece.packets:
            start_ns = int(piece.times[0]) if start_ns is None else start_ns
            found += mask_of(wanted.tree, piece, len(found), start_ns).tobytes()
    return found


class _MaskOf:
    """This class applies the parts of a filter to one piece."""

    def __init__(self, columns: Columns, first: int, start_ns: int) -> None:
        self._columns, self._first, self._start_ns = columns, first, start_ns

    def of(self, node: Node) -> Mask:
        if isinstance(node, Joined):
            parts = [self.of(part) for part in node.parts]
            join = np.logical_and if node.every else np.logical_or
            found: Mask = join.reduce(parts)
            return found
        if isinstance(node, Not):
            return ~self.of(node.part)
        field = field_of(node.field.name)
        values, at = self._ragged(node.field)
        if isinstance(node, Exists):
            return self._any(at if node.field.mask is None else at[values != 0])
        if isinstance(node, Membership):
            good = np.zeros(len(values), bool)
            for low, high in node.members:
                if high is None:
                    good |= _test("==", field, values, low)
                else:
                    good |= _test(">=", field, values, low) & _test("<=", field, values, high)
        else:
            assert isinstance(node.right, Literal)
            good = _test(node.operator, field, values, node.right)
        if node.quantifier is Quantifier.ANY:
            return self._any(at[good])
        return self._any(at) & ~self._any(at[~good])

    def _any(self, at: Array) -> Mask:
        """Return a mask of the packets at these places."""
        found = np.zeros(self._columns.packets, bool)
        found[at] = True
        return found

    def _ragged(self, ref: FieldRef) -> Ragged:
        reader = _reader(ref.name)
        assert reader is not None, "is_mask was asked"
        found = reader(self._columns, self._first, self._start_ns)
        if ref.mask is None:
            return found
        field = field_of(ref.name)
        bits = literals.number(ref.mask, ref.name, field.bits, field.kind == "int", field.codes)
        return Ragged(found.values & bits, found.at)


def _test(relation: str, field: FilterField, values: Array, literal: Literal) -> Mask:
    """Compare values with what is written."""
    drop = 0
    if field.kind in ("ipv4", "ether"):
        wanted, counted = literals.address(literal, field.name, field.kind)
        drop = field.bits - counted
    elif field.kind == "bool":
        wanted = literals.boolean(literal, field.name)
    elif field.kind == "time":
        wanted = literals.time(literal, field.name)
    else:
        wanted = literals.number(literal, field.name, field.bits, field.kind == "int", field.codes)
    found: Mask = _ORDERS[relation](values >> drop, wanted >> drop) if drop else _ORDERS[relation](values, wanted)
    return found


# Where values are -----------------------------------------------------------------------------------------------------

Reader = Callable[[Columns, int, int], Ragged]


def _reader(name: str) -> Reader | None:
    """Return what reads a field from columns, or None if columns do not have it."""
    field = field_of(name)
    if field.kind not in _KINDS:
        return None
    if name in _FRAME:
        return _FRAME[name]
    if name in LOWER:
        form, names = LOWER[name]
        return lambda columns, first, _: _of_forms(columns, first, {form: names}, field)
    row = BY_NAME.get(name.removeprefix("uetp.")) if name.startswith("uetp.") else None
    if row is not None:
        if row.given not in (Given.FIELD, Given.SUM):
            return None
        given = row

        def over_forms(columns: Columns, first: int, _: int) -> Ragged:
            parts = []
            for header in given.forms:
                if header.name in columns:
                    rows = columns[header.name]
                    values: Array = rows[given.field_of(header)].astype(_type(field))
                    if given.plus:
                        values = (values + given.sign * rows[given.plus].astype(np.int64)) & 0xFFFFFFFF
                    elif field.kind == "bool":
                        values = values != 0
                    at = rows["index"].astype(np.intp) - first
                    unset, codes = given.absent
                    if unset in rows:
                        keep = ~np.isin(rows[unset], list(codes))
                        values, at = values[keep], at[keep]
                    parts.append((values, at))
            return _joined(parts, field)

        return over_forms
    places = _form_places(name)
    return None if not places else lambda columns, first, _: _of_forms(columns, first, places, field)


def _type(field: FilterField) -> Any:
    """Return a type of NumPy that holds all values of a field, and what they are compared with."""
    return np.uint64 if field.kind == "uint" and field.bits > 32 else np.int64


def _form_places(name: str) -> dict[str, tuple[str, ...]]:
    """Return the forms of UET that have a field of this name, each with the name in the header."""
    base, _, field = name.removeprefix("uetp.").rpartition(".")
    found: dict[str, tuple[str, ...]] = {}
    for form, header in UET_FORMS.items():
        stem, _, suffix = form.rpartition(".")
        if (stem if suffix in VARIANTS else form) == base and field in header.names and header[field].bits <= 64:
            found[form] = (field,)
    return found


def _of_forms(columns: Columns, first: int, places: dict[str, tuple[str, ...]], field: FilterField) -> Ragged:
    parts = []
    for form, names in places.items():
        if form in columns:
            at = columns[form]["index"].astype(np.intp) - first
            for name in names:
                values = columns[form][name]
                parts.append((values.astype(_type(field)), at))
    return _joined(parts, field)


def _joined(parts: list[tuple[Array, Array]], field: FilterField) -> Ragged:
    if not parts:
        return Ragged(np.zeros(0, _type(field)), np.zeros(0, np.intp))
    return Ragged(np.concatenate([values for values, _ in parts]), np.concatenate([at for _, at in parts]))


def _all(values: Array) -> Ragged:
    return Ragged(values.astype(np.int64), np.arange(len(values)))


_FRAME: dict[str, Reader] = {
    "frame.number": lambda columns, first, _: _all(np.arange(first + 1, first + 1 + columns.packets)),
    "frame.len": lambda columns, first, _: _all(columns.lengths),
    "frame.time_relative": lambda columns, first, start_ns: _all(columns.times - start_ns),
}
"""Fields of records."""
OF_PLACE = frozenset({"frame.number", "frame.time_relative"})
"""Fields whose value depends on where in the capture a packet is."""
