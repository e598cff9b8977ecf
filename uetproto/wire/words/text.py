# SPDX-License-Identifier: GPL-2.0-only
"""This module has short texts that the words of all protocols share."""

from enum import IntEnum
from functools import cache


@cache
def code(names: type[IntEnum], value: int, what: str = "code") -> str:
    """Return the name of a code. A code without a name is returned as `what` and its number."""
    try:
        return names(value).name
    except ValueError:
        return f"{what} 0x{value:02x}"


def count(number: int, noun: str, nouns: str | None = None, *, zero: str = "0") -> str:
    """Return a number of things as text: "1 packet", "12,288 packets", and `zero` in place of the number 0. `nouns` is
    the plural of a noun that takes more than an s."""
    return f"{f'{number:,}' if number else zero} {noun if number == 1 else nouns or noun + 's'}"


def octets(number: int) -> str:
    """Return the size of a part of a packet as text, in the form of values of fields: "12288 bytes"."""
    return f"{number} byte" if number == 1 else f"{number} bytes"


def numbered(index: int) -> str:
    """Return the number by which text names a packet: "#1" for the packet with the index 0, as Wireshark counts."""
    return f"#{index + 1}"


def span(first: int, length: int | None, total: int) -> str:
    """Return a range of bytes of a message as text, with exclusive end: "4096–8192 of 12288", or "100 bytes" for the
    whole message. `length` None means that the end of the range is not known."""
    if first == 0 and length == total:
        return octets(total)
    return f"{first}–{'…' if length is None else first + length} of {total}"


def ranges(numbers: list[tuple[int, int]], most: int = 64) -> str:
    """Return ranges of PSNs with inclusive ends as text: "5, 7–9". Only the first `most` ranges are listed; "+3" at the
    end means that 3 ranges are not listed."""
    shown = [str(first) if first == last else f"{first}–{last}" for first, last in numbers[:most]]
    if len(numbers) > most:
        shown.append(f"+{len(numbers) - most}")
    return ", ".join(shown)
