# SPDX-License-Identifier: GPL-2.0-only
"""This module draws random display filters that fit a capture, and applies them."""

from ipaddress import IPv4Address, IPv6Address
from pathlib import Path
from random import Random
from typing import Any

from uetproto.analysis.decoding import Decoding
from uetproto.filters.display_filter import DisplayFilter, PacketRows, filtered
from uetproto.filters.fields import FilterField, fields
from uetproto.filters.predicate import predicate
from uetproto.filters.syntax import parse
from uetproto.wire.capture.pcap import open_capture

_ORDERED = ("==", "!=", "<", "<=", ">", ">=", "===", "!==", "~=", "eq", "ne", "lt", "ge", "any_eq", "all_ne")
_SIZES = {"ether": 6, "ipv4": 4, "ipv6": 16}


def passed(path: Path, text: str) -> list[int]:
    """Return the numbers of the packets of a capture that a filter wants."""
    decoding = Decoding()
    with open_capture(path) as reader, open_capture(path) as once_more:
        found = filtered(
            DisplayFilter(text), decoding.packets(str(path), reader), lambda record, packet: packet,
            lambda number: reader.interfaces[number].name, lambda: decoding.packets(str(path), once_more),
        )  # fmt: skip
        return [record.index + 1 for record, _ in found]


def seen_values(path: Path) -> dict[str, list[Any]]:
    """Return the values that each field has in a capture."""
    decoding, found = Decoding(), {}
    with open_capture(path) as reader, open_capture(path) as once_more:
        first = PacketRows(True, None, lambda _: "")
        for record, packet in decoding.packets(str(path), once_more):
            first.take(record, packet)
        rows = PacketRows(True, first.late, lambda number: reader.interfaces[number].name)
        for record, packet in decoding.packets(str(path), reader):
            seen = rows.take(record, packet)
            for name, field in fields().items():
                found.setdefault(name, []).extend(field.read(seen))
    return found


class FilterDraws:
    """This class draws filters whose fields occur in a capture, and whose values often do."""

    def __init__(self, rng: Random, values: dict[str, list[Any]], left_out: frozenset[str] = frozenset()) -> None:
        self._rng = rng
        self._values = values
        known = {name: field for name, field in fields().items() if name not in left_out}
        self._there = [field for name, field in known.items() if values.get(name)]
        self._absent = [field for name, field in known.items() if not values.get(name)]

    def filter(self, depth: int = 2) -> str:
        """Return a filter of some tests, joined and negated."""
        kind = self._rng.random()
        if depth and kind < 0.3:
            word = self._rng.choice(("and", "or", "&&", "||"))
            parts = f" {word} ".join(self.filter(depth - 1) for _ in range(self._rng.randint(2, 3)))
            return f"({parts})" if self._rng.random() < 0.4 else parts
        if depth and kind < 0.45:
            return f"{self._rng.choice(('!', 'not '))}{self.filter(depth - 1)}"
        return self._test()

    def _test(self) -> str:
        rng = self._rng
        field = rng.choice(self._absent if rng.random() < 0.1 and self._absent else self._there)
        name, kind, chance = field.name, field.kind, rng.random()
        if kind == "label" or chance < 0.15:
            return name
        if kind in ("bytes", "protocol") or (kind in _SIZES and chance < 0.25):
            return self._octets(field)
        if kind == "string":
            return rng.choice((f'{name} == "{self._value(field)}"', f'{name} contains "0"', f'{name} matches "^R.*0$"'))
        if kind == "bool":  # Wireshark has no order of them
            return f"{name} {rng.choice(('==', '!=', '===', '~='))} {self._literal(field)}"
        quantifier = rng.choice(("any ", "all ")) if chance < 0.35 else ""
        if chance > 0.8:
            word = rng.choice(("in", "not in"))
            members = ", ".join(self._member(field) for _ in range(rng.randint(1, 3)))
            return f"{quantifier}{name} {word} {{{members}}}"
        if kind == "uint" and chance > 0.72:
            mask = hex(1 << rng.randrange(min(field.bits, 16)))
            return f"{name} & {mask}" + (f" == {mask}" if rng.random() < 0.5 else "")
        if kind in ("uint", "time") and chance > 0.66:
            other = rng.choice([one for one in self._there if one.kind == kind])
            return f"{quantifier}{name} {rng.choice(_ORDERED)} {other.name}"
        return f"{quantifier}{name} {rng.choice(_ORDERED)} {self._literal(field)}"

    def _member(self, field: FilterField) -> str:
        if self._rng.random() < 0.5:
            return self._literal(field, in_set=True)
        ends = sorted(self._value(field) for _ in range(2))
        return "..".join(self._text(field, one) for one in ends)

    def _octets(self, field: FilterField) -> str:
        rng = self._rng
        value = self._value(field)
        data = value.to_bytes(_SIZES[field.kind], "big") if field.kind in _SIZES else value
        start = rng.randrange(max(len(data), 1))
        size = rng.randint(1, 4)
        part = data[start : start + size] or b"\0"
        text = part.hex(":") if len(part) > 1 else part.hex()
        if rng.random() < 0.4 and field.kind not in ("ipv4", "ipv6"):
            return f"{field.name} contains {text}"
        where = rng.choice((f"{start}:{size}", f"{start}-{start + size}", f"{start}:", f":{size}", str(start)))
        return f"{field.name}[{where}] {rng.choice(('==', '!=', '>', '<='))} {text}"

    def _literal(self, field: FilterField, in_set: bool = False) -> str:
        value = self._value(field)
        if field.kind == "ipv4" and self._rng.random() < 0.4 and not in_set:
            return f"{IPv4Address(value)}/{self._rng.choice((8, 16, 24, 31))}"
        if field.codes and self._rng.random() < 0.5:
            names = [name for name, code in field.codes.items() if code == value]
            if names:
                return self._rng.choice((names[0].upper(), f'"{names[0]}"'))
        if field.kind == "uint" and self._rng.random() < 0.3:
            return hex(value)
        return self._text(field, value)

    def _text(self, field: FilterField, value: Any) -> str:
        if field.kind == "time":
            return f"{value // 10**9}.{value % 10**9:09}" if value >= 0 else "0"
        if field.kind == "ether":
            return str(value.to_bytes(6, "big").hex(":"))
        if field.kind in ("ipv4", "ipv6"):
            return str(IPv4Address(value) if field.kind == "ipv4" else IPv6Address(value))
        if field.kind == "bool":
            named = field.name.startswith("uetp.")  # flags of IP have names of their own in Wireshark
            return self._rng.choice(("true", "1") if value else ("false", "0")) if named else str(int(value))
        return str(value)

    def _value(self, field: FilterField) -> Any:
        seen = self._values.get(field.name)
        if not seen:
            return {"ether": 1, "bytes": b"\0", "protocol": b"\0", "string": "x"}.get(field.kind, 0)
        value = self._rng.choice(seen)
        if field.kind == "uint" and self._rng.random() < 0.2:
            return min(value + 1, (1 << field.bits) - 1)
        return int(value) if field.kind == "bool" else value


def is_legal(text: str) -> bool:
    """Whether a filter is accepted; it must be if it was drawn."""
    predicate(parse(text))
    return True
