# SPDX-License-Identifier: GPL-2.0-only
"""This module reads values that are written in a filter, by the kind of the field that they are compared with."""

import re
from collections.abc import Mapping
from decimal import Decimal
from ipaddress import IPv4Address, IPv6Address
from typing import Any

from uetproto.errors import LocalError, shown, similar
from uetproto.filters.syntax import Literal

SECOND = 10**9
_NUMBER = re.compile(r"-?(?:0[xX][0-9a-fA-F]{1,32}|0[0-7]{0,43}|[1-9][0-9]{0,39})")
_TIME = re.compile(r"-?[0-9]{1,12}(?:\.[0-9]{1,9})?")


def number(literal: Literal, name: str, bits: int, signed: bool, codes: Mapping[str, int]) -> int:
    """Return a number, or the code of a name, that fits a field of so many bits. Raises `LocalError` if it is none."""
    text = literal.text
    if not literal.quoted and _NUMBER.fullmatch(text):
        value = _value(text)
        low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
        if not low <= value <= high:
            raise _wrong(literal, name, f"{low} to {high}")
        return value
    code = codes.get(text.casefold())
    if code is None:
        legal = ", ".join(list(codes)[:40]) if codes else "a number"
        raise _wrong(literal, name, legal.upper() if codes else legal, codes)
    return code


def boolean(literal: Literal, name: str) -> int:
    """Return 1 or 0. Raises `LocalError` for another text."""
    if not literal.quoted and literal.text.lower() in ("true", "false"):
        return int(literal.text.lower() == "true")
    if not literal.quoted and _NUMBER.fullmatch(literal.text) and not literal.text.startswith("-"):
        return int(_value(literal.text) != 0)
    raise _wrong(literal, name, "true, false, 1, 0")


def time(literal: Literal, name: str) -> int:
    """Return a time in seconds as nanoseconds. Raises `LocalError` for another text."""
    if not literal.quoted and _TIME.fullmatch(literal.text):
        return int(Decimal(literal.text) * SECOND)
    raise _wrong(literal, name, "seconds, as in 0.000012")


def address(literal: Literal, name: str, kind: str) -> tuple[int, int]:
    """Return an address, and the number of its bits that count. Raises `LocalError` for another text."""
    text, slash, prefix = literal.text.partition("/")
    bits = {"ether": 48, "ipv4": 32, "ipv6": 128}[kind]
    try:
        if kind == "ether":
            raw = octets(text)
            if raw is None or len(raw) != 6 or slash:
                raise ValueError
            return int.from_bytes(raw, "big"), bits
        value = int(IPv4Address(text) if kind == "ipv4" else IPv6Address(text))
        wanted = int(prefix) if slash else bits
        if not 0 <= wanted <= bits or (slash and not prefix.isdecimal()):
            raise ValueError
        return value, wanted
    except ValueError:
        legal = {"ether": "six bytes, as in 02:00:0a:00:00:01", "ipv4": "as in 10.0.0.1 or 10.0.0.0/24",
                 "ipv6": "as in 2001:db8::1 or 2001:db8::/32"}[kind]  # fmt: skip
        raise _wrong(literal, name, legal) from None


def octets(text: str) -> bytes | None:
    """Return bytes from hexadecimal pairs with : . - between them, or nothing; None if the text is no such."""
    for separator in ":.-":
        if separator in text:
            parts = text.split(separator)
            good = all(re.fullmatch("[0-9a-fA-F]{1,2}", part) for part in parts)
            return bytes(int(part, 16) for part in parts) if good else None
    return bytes.fromhex(text) if re.fullmatch("(?:[0-9a-fA-F]{2})+", text) else None


def byte_string(literal: Literal, name: str) -> bytes:
    """Return bytes: hexadecimal pairs, a quoted text, or a number that fits a byte. Raises `LocalError` for another
    text."""
    if literal.quoted:
        return literal.text.encode("latin-1", "replace") if max(literal.text, default="") < "\u0100" else (
            literal.text.encode()
        )  # fmt: skip
    found = octets(literal.text)
    if found is None and _NUMBER.fullmatch(literal.text) and (value := _value(literal.text)) in range(256):
        found = bytes([value])
    if found is None:
        raise _wrong(literal, name, "bytes, as in 02:00:0a, or a quoted text")
    return found


def pattern(literal: Literal, name: str) -> "re.Pattern[bytes]":
    """Return a regular expression over bytes, without regard to case. Raises `LocalError` if it is not legal."""
    if not literal.quoted:
        raise _wrong(literal, name, "a quoted text")
    try:
        return re.compile(byte_string(literal, name), re.IGNORECASE)
    except (re.error, OverflowError, RecursionError) as error:
        raise LocalError(
            "filter", f"{name}: {shown(literal.text)} is no regular expression: {error}", id="filter-value"
        ) from None


def _value(text: str) -> int:
    """Return a number as C writes it: decimal, hexadecimal after 0x, octal after 0."""
    digits = text.lstrip("-")
    base = 16 if digits[:2] in ("0x", "0X") else 8 if digits.startswith("0") and len(digits) > 1 else 10
    return int(digits, base) * (-1 if text.startswith("-") else 1)


def _wrong(literal: Literal, name: str, legal: str, names: Any = ()) -> LocalError:
    written = f'"{literal.text}"' if literal.quoted else literal.text
    return LocalError(
        "filter", f"{name}: {written[:200]} is not legal{similar(literal.text, names)}", legal, id="filter-value"
    )
