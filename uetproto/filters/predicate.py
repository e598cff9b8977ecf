# SPDX-License-Identifier: GPL-2.0-only
"""This module makes a function of a packet from the tree of a filter.

A comparison holds if the field is there and the values of the packet fulfil it: any of them, or all. With two fields,
any or all pairs of their values. Of bytes, the longer are the greater, as in Wireshark.
"""

import operator
from collections.abc import Callable, Iterable
from typing import Any

from uetproto.errors import LocalError
from uetproto.filters import literals
from uetproto.filters.fields import FilterField, Reader, Seen, Values, field_of
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

Predicate = Callable[[Seen], bool]
Test = Callable[[Any], bool]

_ORDERS: dict[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip
_OCTETS = frozenset({"bytes", "protocol"})
_SIZES = {"ether": 6, "ipv4": 4, "ipv6": 16}


class Operand:
    """This class is a field as a filter uses it: with its slices and its mask, and the kind that they make of it."""

    def __init__(self, ref: FieldRef) -> None:
        self.field = field_of(ref.name)
        self.name = ref.name
        self.kind = self.field.kind
        self.read: Reader = self.field.read
        if ref.slices:
            self._slice(ref.slices)
        if ref.mask is not None:
            self._mask(ref.mask)

    def _slice(self, slices: tuple[tuple[int, int | None], ...]) -> None:
        if self.kind not in (*_OCTETS, *_SIZES, "string"):
            raise LocalError(
                "filter", f"{self.name} has no bytes to slice", "fields with bytes, and addresses", id="filter-operator"
            )
        read, kind, size = self.field.read, self.kind, _SIZES.get(self.kind, 0)

        def sliced(seen: Seen) -> Values:
            found = []
            for value in read(seen):
                data = value.to_bytes(size, "big") if size else value.encode() if kind == "string" else value
                found.append(b"".join([_part(data, first, length) for first, length in slices]))
            return found

        self.read, self.kind = sliced, "bytes"

    def _mask(self, mask: Literal) -> None:
        if self.kind not in ("uint", "int"):
            raise LocalError("filter", f"{self.name} is no number that & masks", "numbers", id="filter-operator")
        bits = literals.number(mask, self.name, self.field.bits, self.kind == "int", self.field.codes)
        read = self.read
        self.read = lambda seen: [value & bits for value in read(seen)]


def _part(data: bytes, first: int, length: int | None) -> bytes:
    """Return a slice of bytes, which is empty if the bytes end before the slice."""
    start = first if first >= 0 else len(data) + first
    end = len(data) if length is None else start + length
    return data[start:end] if start >= 0 and end <= len(data) else b""


def predicate(node: Node) -> tuple[Predicate, set[str]]:
    """Return the function of a filter, and the names of the fields that it reads. Raises `LocalError` for a name that
    is not known, and for a value that the field cannot have."""
    names: set[str] = set()
    return _of(node, names), names


def _of(node: Node, names: set[str]) -> Predicate:
    if isinstance(node, Joined):
        return _joined([_of(part, names) for part in node.parts], node.every)
    if isinstance(node, Not):
        inner = _of(node.part, names)
        return lambda seen: not inner(seen)
    left = Operand(node.field)
    names.add(left.name)
    read = left.read
    if isinstance(node, Exists):
        if node.field.mask is not None or node.field.slices:  # of a slice, a byte is there
            return lambda seen: any(read(seen))
        return lambda seen: len(read(seen)) > 0
    if isinstance(node, Membership):
        return _quantified(read, _any_of([_member(left, *pair) for pair in node.members]), node.quantifier)
    if isinstance(node.right, FieldRef):
        right = Operand(node.right)
        names.add(right.name)
        return _of_fields(node, left, right)
    if node.operator in ("contains", "matches") and left.field.whole is not None and not node.field.slices:
        read = left.field.whole
    return _quantified(read, _test(node.operator, left, node.right), node.quantifier)


def _joined(parts: list[Predicate], every: bool) -> Predicate:
    if every:
        return lambda seen: all(part(seen) for part in parts)
    return lambda seen: any(part(seen) for part in parts)


def _quantified(read: Reader, test: Test, quantifier: Quantifier) -> Predicate:
    if quantifier is Quantifier.ANY:
        return lambda seen: any(map(test, read(seen)))

    def every(seen: Seen) -> bool:
        values = read(seen)
        return len(values) > 0 and all(map(test, values))

    return every


def _any_of(tests: Iterable[Test]) -> Test:
    known = list(tests)
    return lambda value: any(test(value) for test in known)


def _of_fields(node: Comparison, left: Operand, right: Operand) -> Predicate:
    """Compare each value of one field with each of another."""
    test = _ORDERS.get(node.operator)
    if node.operator == "contains" and left.kind in _OCTETS and right.kind in _OCTETS:
        test = operator.contains
    kinds = {left.kind, right.kind}
    alike = len(kinds) == 1 or kinds <= {"uint", "int"} or kinds <= _OCTETS
    if test is None or not alike or "label" in kinds:
        raise LocalError(
            "filter", f"{left.name} ({left.kind}) {node.operator} {right.name} ({right.kind}) is not legal",
            "fields of the same kind",
            id="filter-operator",
        )  # fmt: skip
    compare, a, b = test, left.read, right.read
    if kinds <= _OCTETS and node.operator in _ORDERS:
        ordered = test
        compare = lambda one, other: ordered((len(one), one), (len(other), other))  # noqa: E731  # a longer one is more
    if node.quantifier is Quantifier.ANY:
        return lambda seen: any(compare(one, other) for one in a(seen) for other in b(seen))

    def every(seen: Seen) -> bool:
        ours, others = a(seen), b(seen)
        return len(ours) > 0 and len(others) > 0 and all(compare(one, other) for one in ours for other in others)

    return every


def _member(left: Operand, first: Literal, last: Literal | None) -> Test:
    if left.kind == "bytes" and left.field.kind != "bytes":
        raise LocalError(
            "filter", f"{left.name} with slices in a set", "fields without slices, or comparisons", id="filter-operator"
        )
    if last is None:
        return _test("==", left, first)
    low, high = _test(">=", left, first), _test("<=", left, last)
    return lambda value: low(value) and high(value)


def _test(relation: str, left: Operand, literal: Literal) -> Test:
    """Return the comparison of one value with what is written."""
    kind, name = left.kind, left.name
    if kind == "label" or (kind not in (*_OCTETS, "ether", "string") and relation in ("contains", "matches")):
        raise LocalError(
            "filter", f"{name} ({kind}) cannot be compared by {relation}", _legal(kind), id="filter-operator"
        )
    if relation == "matches":
        pattern = literals.pattern(literal, name)
        return lambda value: pattern.search(_octets(value, kind)) is not None
    if relation == "contains":
        part = literals.byte_string(literal, name) if kind != "string" else literal.text.encode()
        return lambda value: part in _octets(value, kind)
    compare = _ORDERS[relation]
    if kind in ("ipv4", "ipv6", "ether"):
        address, counted = literals.address(literal, name, kind)
        drop = left.field.bits - counted
        wanted = address >> drop
        return lambda value: compare(value >> drop, wanted)
    wanted_value = _literal(left.field, kind, literal)
    if kind in _OCTETS:
        size = len(wanted_value)
        return lambda value: compare((len(value), value), (size, wanted_value))
    return lambda value: compare(value, wanted_value)


def _literal(field: FilterField, kind: str, literal: Literal) -> Any:
    if kind == "bool":
        return literals.boolean(literal, field.name)
    if kind == "time":
        return literals.time(literal, field.name)
    if kind == "string":
        return literal.text
    if kind in _OCTETS:
        return literals.byte_string(literal, field.name)
    return literals.number(literal, field.name, field.bits, kind == "int", field.codes)


def _octets(value: Any, kind: str) -> bytes:
    if kind == "string":
        return bytes(value.encode())
    return bytes(value.to_bytes(6, "big") if kind == "ether" else value)


def _legal(kind: str) -> str:
    return "its name alone" if kind == "label" else "==, !=, <, <=, >, >=, in"
