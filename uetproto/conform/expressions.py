# SPDX-License-Identifier: GPL-2.0-only
"""This module has the values that conformance tests write for fields: numbers, names of codes, and sums with
variables."""

import re
from collections.abc import Mapping
from enum import IntEnum
from typing import Any

from uetproto.errors import LocalError, shown, similar
from uetproto.wire.fields import Field

Variables = Mapping[str, int]
"""Type of the variables of a test, by name."""

_TERM = re.compile(r"\s*([+-]?)\s*(0x[0-9a-fA-F]+|\d+|[a-z_][a-z0-9_]*)")
_SUM = re.compile(rf"(?:{_TERM.pattern})(?:\s*[+-]\s*(?:0x[0-9a-fA-F]+|\d+|[a-z_][a-z0-9_]*))*\s*")
_RANGE = ".."
_NOT = "not "


def value_of(name: str, text: Any, field: Field, variables: Variables) -> int:
    """Return the number that a test writes for a field.

    Legal are a number, true or false, the name of a code of the field, and a sum of numbers and variables, such as
    "start + 1". A sum wraps at the width of the field, as PSNs do. Raises `LocalError` for anything else.
    """
    if isinstance(text, int):
        return int(text)
    if not isinstance(text, str):
        raise LocalError(name, f"{shown(text)} is not legal", "a number, the name of a code, or a sum", id="test-file")
    codes = field.values
    if codes is not None and issubclass(codes, IntEnum) and text in codes.__members__:
        return int(codes[text])
    if not _SUM.fullmatch(text):
        known = tuple(codes.__members__) if codes is not None else ()
        raise LocalError(
            name, f"{shown(text)} is not legal{similar(text, known)}", "a number, the name of a code, a sum",
            id="test-file"
        )  # fmt: skip
    total = sum(_term(name, sign, term, variables) for sign, term in _TERM.findall(text))
    return total if field.signed else total & (1 << field.bits) - 1


def _term(name: str, sign: str, term: str, variables: Variables) -> int:
    if term[0].isdigit():
        found = int(term, 0)
    elif term in variables:
        found = variables[term]
    else:
        raise LocalError(
            name, f"there is no variable {term!r} yet{similar(term, variables)}", ", ".join(variables), id="test-file"
        )
    return -found if sign == "-" else found


def matches(name: str, pattern: Any, seen: int, field: Field, variables: Variables) -> bool:
    """Return whether the value of a field is one that a test allows.

    A pattern is a value as `value_of` reads it, "not VALUE", a range "FROM .. TO" with both ends (which may wrap), or a
    list of patterns of which one has to match. Raises `LocalError` for anything else.
    """
    if isinstance(pattern, list):
        return any(matches(name, one, seen, field, variables) for one in pattern)
    if isinstance(pattern, str) and pattern.startswith(_NOT):
        return not matches(name, pattern[len(_NOT) :], seen, field, variables)
    if isinstance(pattern, str) and _RANGE in pattern:
        low, high = (value_of(name, part.strip(), field, variables) for part in pattern.split(_RANGE, 1))
        size = 1 << field.bits
        return (seen - low) % size <= (high - low) % size
    return seen == value_of(name, pattern, field, variables)


def in_words(pattern: Any, field: Field, variables: Variables) -> str:
    """Return a pattern as text, with the numbers that its sums have."""
    if isinstance(pattern, list):
        return " or ".join(in_words(one, field, variables) for one in pattern)
    if isinstance(pattern, str) and pattern.startswith(_NOT):
        return f"not {in_words(pattern[len(_NOT) :], field, variables)}"
    if isinstance(pattern, str) and _RANGE in pattern:
        return " to ".join(in_words(part.strip(), field, variables) for part in pattern.split(_RANGE, 1))
    number = value_of("", pattern, field, variables)
    return f"{number} ({pattern})" if isinstance(pattern, str) and not pattern[0].isdigit() else named(number, field)


def named(number: int, field: Field) -> str:
    """Return a number as text, with the name of the code if it is one."""
    codes = field.values
    if codes is not None and issubclass(codes, IntEnum):
        name = next((str(code.name) for code in codes if code == number), "")
        return f"{number} ({name})" if name else str(number)
    return str(number)
