# SPDX-License-Identifier: GPL-2.0-only
"""This module writes values of a scenario as TOML text, for the findings of the fuzzer."""

import json
from collections.abc import Iterator
from typing import Any

from uetproto.check.wire import ALL

NODES = ("a", "b")
"""Names of ends 0 and 1 in a scenario."""
BELOW = 14 + 20 + 8
"""Number of bytes of a frame before the transport header: Ethernet, IPv4 and UDP."""


def number_text(number: int) -> int | str:
    """Return the number of a packet, or a limit of packets, as a `[[step]]` has it. `ALL` becomes "all"."""
    return "all" if number == ALL else number


def table(name: str, values: dict[str, Any], array: bool = False) -> Iterator[str]:
    """Yield the lines of a TOML table, after an empty line. With `array` the table is one element of an array of
    tables."""
    yield ""
    yield f"[[{name}]]" if array else f"[{name}]"
    yield from (f"{key} = {_value(value)}" for key, value in values.items())


def _value(value: Any) -> str:
    """Return a value as TOML writes it; JSON text of printable characters is legal TOML."""
    return json.dumps(printable(value) if isinstance(value, str) else value, ensure_ascii=False)


def printable(text: str) -> str:
    """Return the text with a replacement character in place of each character that is not printable."""
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)
