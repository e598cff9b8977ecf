# SPDX-License-Identifier: GPL-2.0-only
"""This module declares knobs: the parameters of configurations, each of which is declared once.

A field of a configuration is declared with `knob`: its default, legal values, unit, description and source. Four things
are made from the declaration: the check (`check_knobs`), the text of its error, the key of TOML files and the row of
docs/reference/keys.md.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, field, fields, replace
from enum import Enum
from functools import cache
from typing import Any, TypeVar

from uetproto.errors import LocalError, shown, similar, unfit

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class KeyType:
    """A key type describes a key of a TOML file: the values that it takes, and the text for docs/reference/keys.md."""

    check: Callable[[Any], Any]
    """Function that converts a value as parsed from TOML to the value in use, or raises `ValueError`."""
    legal: str
    doc: str = ""
    default: str = ""
    source: str = ""
    unit: str = ""
    """`TIME`, `RATE` or `SIZE`. It is empty if the values have another unit or none."""
    names: tuple[str, ...] = ()
    """Names that are legal values. The error for a wrong value suggests a similar name."""

    def says(self, doc: str, default: str = "", source: str = "") -> "KeyType":
        """Return a copy with this description, default and source. `Knob` says what these three mean."""
        return replace(self, doc=doc, default=default, source=source)


Legal = range | tuple[Any, ...] | KeyType
"""Legal values of a parameter. A range stands for its whole numbers. A tuple lists the values, and a range in it stands
for its numbers. A `KeyType` describes an entry of a TOML file and checks it itself."""

TIME, RATE, SIZE = "ps", "bit/s", "bytes"
"""Units of times, rates and sizes, which TOML files may write as text, such as "5 us". Any other unit is only shown in
the docs."""

BOOL: Legal = (True, False)

REQUIRED: Any = MISSING
"""Default of a knob that has no default value. The user must give a value."""

TIMES = {"ps": 1, "ns": 10**3, "us": 10**6, "µs": 10**6, "ms": 10**9, "s": 10**12, "min": 60 * 10**12}
"""Number of picoseconds in each unit of time."""
RATES = {"b/s": 1, "kb/s": 10**3, "Mb/s": 10**6, "Gb/s": 10**9, "Tb/s": 10**12}
"""Number of bits a second in each unit of rates."""
SIZES = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "kB": 10**3, "MB": 10**6, "GB": 10**9}
"""Number of bytes in each unit of sizes."""
TIME_LEGAL = 'a time such as "1 ms" (ps, ns, us, ms, s, min)'
RATE_LEGAL = 'a rate such as "400 Gb/s" (b/s, kb/s, Mb/s, Gb/s, Tb/s)'
SIZE_LEGAL = 'bytes, or a text such as "1 MiB" (B, KiB, MiB, GiB, kB, MB, GB)'
UNITS = {TIME: (TIMES, TIME_LEGAL), RATE: (RATES, RATE_LEGAL), SIZE: (SIZES, SIZE_LEGAL)}
"""A pair for each of `TIME`, `RATE` and `SIZE`: the units that a text may have, and the words that describe legal texts
in errors and docs."""
_SHOWN = {TIME: ("s", "ms", "us", "ns", "ps"), RATE: ("Gb/s", "Mb/s", "kb/s", "b/s"), SIZE: ("GiB", "MiB", "KiB", "B")}
"""Units in which numbers are shown, the largest first."""


@dataclass(frozen=True, slots=True)
class Knob:
    """A knob is the declaration of one parameter: default, legal values, unit, description and source."""

    default: Any
    legal: Legal
    unit: str
    doc: str
    """Description of the parameter in whole sentences."""
    source: str
    """The section that defines the parameter, such as "pds.md §8.6". It is empty if this project defines it."""

    def check(self, name: str, value: Any, show: Callable[[object], str] = shown) -> None:
        """Raise `LocalError` unless `value` is legal. `show` converts the value to text for the error."""
        check(name, value, self.legal, show)

    def read(self, value: Any) -> Any:
        """Convert an entry of a TOML file to the value of the knob.

        Texts are converted: "on" and "off", times, rates and sizes, and whatever the `KeyType` of the knob converts.
        Other values are returned as they are, for `check`. Raises `ValueError` for an entry that cannot be converted.
        """
        if isinstance(self.legal, KeyType):
            return self.legal.check(value)
        if isinstance(value, str) and self.legal == BOOL:
            return {"on": True, "off": False}.get(value, value)
        return with_unit(value, UNITS[self.unit][0]) if isinstance(value, str) and self.unit in UNITS else value

    @property
    def toml_legal(self) -> str:
        """Return a text that lists the legal values. Each value is written as in a TOML file."""
        if isinstance(self.legal, range) and self.unit in UNITS:
            return unit_legal(self.legal[0], self.legal[-1], self.unit)
        return legal_text(self.legal)

    @property
    def key(self) -> KeyType:
        """Return the type of the TOML key that sets this knob."""
        of_legal = self.legal.unit if isinstance(self.legal, KeyType) else ""
        unit = self.unit if isinstance(self.legal, range) and self.unit in UNITS else of_legal
        default = "" if self.default in (REQUIRED, None) else default_text(self.default, unit)
        words = self.doc if unit or not self.unit else f"{self.doc} Unit: {self.unit}."
        if isinstance(self.legal, KeyType):
            return self.legal.says(words, default, self.source)
        return KeyType(self.read, self.toml_legal, words, default, self.source, unit, names_of(self.legal))


def knob(default: _T, legal: Legal, unit: str, doc: str, source: str = "") -> _T:
    """Return a dataclass field that is declared as a knob. `Knob` says what the arguments mean."""
    declared: _T = field(default=default, metadata={"knob": Knob(default, legal, unit, doc, source)})
    return declared


@cache
def knobs_of(kind: Any) -> Mapping[str, Knob]:
    """Return the knobs of a configuration by name, in the order of the fields."""
    return {one.name: one.metadata["knob"] for one in fields(kind) if "knob" in one.metadata}


def check_knobs(config: Any, show: Callable[[object], str] = shown) -> None:
    """Raise `LocalError` for the first knob of a configuration whose value is not legal."""
    for name, one in knobs_of(config.__class__).items():
        one.check(name, getattr(config, name), show)


def check(name: str, value: Any, legal: Legal, show: Callable[[object], str] = shown) -> None:
    """Raise `LocalError` for the parameter `name` unless `value` is legal."""
    if not fits(value, legal):
        raise LocalError(
            name, f"{show(value)} is not legal{similar(value, names_of(legal))}", legal_text(legal),
            id=unfit(value, names_of(legal))
        )  # fmt: skip


def names_of(legal: Legal) -> tuple[str, ...]:
    """Return those legal values that are names."""
    if isinstance(legal, KeyType):
        return legal.names
    return tuple(one for one in legal if isinstance(one, str)) if isinstance(legal, tuple) else ()


def fits(value: Any, legal: Legal) -> bool:
    """Return whether a value is legal. A `bool`, or a float such as 1.0, does not count as a whole number."""
    if isinstance(legal, range):
        return type(value) is int and value in legal
    if isinstance(legal, KeyType):  # its `check` has made the value, so the value is legal
        return True
    return any(
        fits(value, one) if isinstance(one, range) else type(value) is type(one) and value == one for one in legal
    )


def legal_text(legal: Legal) -> str:
    """Return the text of the legal values for error messages and docs."""
    if isinstance(legal, KeyType):
        return legal.legal
    if isinstance(legal, range):
        step = f" in steps of {legal.step}" if legal.step > 1 else ""
        return f"{legal.start} … {legal[-1]}{step}"
    return ", ".join(legal_text(one) if isinstance(one, range) else str(one) for one in legal)


def default_text(value: Any, unit: str = "") -> str:
    """Return a default as text, written as in a TOML file."""
    if isinstance(value, bool | Enum):
        return (value.name if isinstance(value, Enum) else str(value)).lower()
    return unit_text(value, unit) if unit and type(value) is int else str(value)


def keys_of(kind: Any) -> dict[str, KeyType]:
    """Return the types of the TOML keys that set the knobs of a configuration, by name."""
    return {name: one.key for name, one in knobs_of(kind).items()}


def with_defaults(keys: Mapping[str, KeyType], kind: Any, prefix: str = "") -> dict[str, KeyType]:
    """Return the keys with their defaults, for the docs.

    A key without a default gets the default of a field of the dataclass `kind`. If `prefix` is "ack_", for example, the
    key `ack_size` gets the default of the field `size`.
    """
    found = dict(keys)
    for one in fields(kind):
        name = f"{prefix}{one.name}"
        if name in found and not found[name].default and one.default not in (MISSING, None, ""):
            found[name] = replace(found[name], default=default_text(one.default, found[name].unit))
    return found


# Units ----------------------------------------------------------------------------------------------------------------


def with_unit(value: Any, units: Mapping[str, int]) -> Any:
    """Convert a text such as "1.5 us" to a whole number of the smallest unit. An integer is returned as it is.

    `units` says how many of the smallest unit each unit has. Raises `ValueError` for any other value.
    """
    if type(value) is int:
        return value
    match = re.fullmatch(r"\s*(\d+)(?:\.(\d+))?\s*(\D+?)\s*", value) if isinstance(value, str) else None
    if match is None or match[3] not in units:
        raise ValueError(value)
    fraction = match[2] or ""
    amount, rest = divmod(int(match[1] + fraction) * units[match[3]], 10 ** len(fraction))
    if rest:
        raise ValueError(value)
    return amount


def unit_legal(low: int, high: int, unit: str) -> str:
    """Return a text for errors and docs: it says which times, rates or sizes are legal, from `low` to `high`."""
    return f"{UNITS[unit][1]}, {unit_text(low, unit)} … {unit_text(high, unit)}"


def unit_text(number: int, unit: str) -> str:
    """Return a time, rate or size as text, in the largest unit that gives a whole number.

    A negative number, which has a special meaning, is returned without a unit.
    """
    units = UNITS[unit][0]
    if number < 0:  # stands for something else
        return str(number)
    name = next((name for name in _SHOWN[unit] if number and number % units[name] == 0), _SHOWN[unit][-1])
    return f"{number // units[name]} {name}"


def time_text(picoseconds: int) -> str:
    """Return a time as text, in the largest unit that gives a whole number."""
    return unit_text(picoseconds, TIME)
