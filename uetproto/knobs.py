"""Knobs are the parameters of configurations; each is declared once, with this module.

A field of a configuration is declared with `knob`: its default, what is legal, its unit, what it does and where that
is said. From the declaration come the check (`check_knobs`), the text of its error, the key of TOML files and the row
of docs/keys.md.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, field, fields, replace
from enum import Enum
from typing import Any, TypeVar

from uetproto.errors import LocalError, shown

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class KeyType:
    """Holds a key of a TOML file: the values that it takes, and its description."""

    check: Callable[[Any], Any]
    """Returns the value that a raw value means, or raises `ValueError`."""
    legal: str
    doc: str = ""
    default: str = ""
    source: str = ""

    def says(self, doc: str, default: str = "", source: str = "") -> "KeyType":
        """Return a key that takes the same values and has this description; see `Knob`."""
        return replace(self, doc=doc, default=default, source=source)


Legal = range | tuple[Any, ...] | KeyType
"""What is legal: whole numbers within a range; one of several values, where a range stands for its numbers; or, of what
stands in a TOML file, whatever a type of keys takes."""

TIME, RATE = "ps", "bit/s"
"""Units that have texts of their own in TOML files; any other unit is a word for the reader."""

BOOL: Legal = (True, False)

REQUIRED: Any = MISSING
"""Marks a knob that has no default."""

TIMES = {"ps": 1, "ns": 10**3, "us": 10**6, "µs": 10**6, "ms": 10**9, "s": 10**12, "min": 60 * 10**12}
"""Number of picoseconds in each unit of time."""
TIME_LEGAL = 'a time such as "1 ms" (ps, ns, us, ms, s, min) or whole picoseconds'


@dataclass(frozen=True, slots=True)
class Knob:
    """Holds the declaration of one parameter."""

    default: Any
    legal: Legal
    unit: str
    doc: str
    """Description of the parameter in whole sentences."""
    source: str
    """The section that defines the parameter, such as "pds.md §8.6"; empty for a choice of the project."""

    def check(self, name: str, value: Any, show: Callable[[object], str] = shown) -> None:
        """Raise `LocalError` unless `value` is legal; `show` makes the text of the value."""
        check(name, value, self.legal, show)

    def read(self, value: Any) -> Any:
        """Return the value of an entry in a TOML file: "on", "off" and texts of times are converted.

        Other values are returned as they are, for `check`. Raises `ValueError` for a text that is no time.
        """
        if isinstance(self.legal, KeyType):
            return self.legal.check(value)
        if isinstance(value, str) and self.legal == BOOL:
            return {"on": True, "off": False}.get(value, value)
        return with_unit(value, TIMES) if isinstance(value, str) and self.unit == TIME else value

    @property
    def toml_legal(self) -> str:
        """The legal values as a TOML file has them."""
        if isinstance(self.legal, range) and self.unit == TIME:
            return time_legal(self.legal[0], self.legal[-1])
        return legal_text(self.legal)

    @property
    def key(self) -> KeyType:
        """Return the key of a TOML file that sets this knob."""
        default = "" if self.default in (REQUIRED, None) else default_text(self.default, self.unit)
        words = f"{self.doc} Unit: {self.unit}." if self.unit not in ("", TIME, RATE) else self.doc
        if isinstance(self.legal, KeyType):
            return self.legal.says(words, default, self.source)
        return KeyType(self.read, self.toml_legal, words, default, self.source)


def knob(default: _T, legal: Legal, unit: str, doc: str, source: str = "") -> _T:
    """Return a field of a dataclass, declared as a knob; see `Knob` for the arguments."""
    declared: _T = field(default=default, metadata={"knob": Knob(default, legal, unit, doc, source)})
    return declared


def knobs_of(kind: Any) -> Mapping[str, Knob]:
    """Return the knobs of a configuration by name, in the order of the fields."""
    return {one.name: one.metadata["knob"] for one in fields(kind) if "knob" in one.metadata}


def check_knobs(config: Any, show: Callable[[object], str] = shown) -> None:
    """Raise `LocalError` for the first knob of a configuration whose value is not legal."""
    for name, one in knobs_of(type(config)).items():
        one.check(name, getattr(config, name), show)


def check(name: str, value: Any, legal: Legal, show: Callable[[object], str] = shown) -> None:
    """Raise `LocalError` for the parameter `name` unless `value` is legal."""
    if not fits(value, legal):
        raise LocalError(name, f"{show(value)} is not legal", legal_text(legal))


def fits(value: Any, legal: Legal) -> bool:
    """Return whether a value is legal; a `bool` is not taken as a number, nor is 1.0."""
    if isinstance(legal, range):
        return type(value) is int and value in legal
    if isinstance(legal, KeyType):  # which has made the value
        return True
    return any(
        fits(value, one) if isinstance(one, range) else type(value) is type(one) and value == one for one in legal
    )


def legal_text(legal: Legal) -> str:
    """Return the legal values as errors and docs name them."""
    if isinstance(legal, KeyType):
        return legal.legal
    if isinstance(legal, range):
        step = f" in steps of {legal.step}" if legal.step > 1 else ""
        return f"{legal.start} … {legal[-1]}{step}"
    return ", ".join(legal_text(one) if isinstance(one, range) else str(one) for one in legal)


def default_text(value: Any, unit: str = "") -> str:
    """Return a default as TOML files have it."""
    if isinstance(value, bool | Enum):
        return (value.name if isinstance(value, Enum) else str(value)).lower()
    return time_text(value) if unit == TIME else str(value)


def keys_of(kind: Any) -> dict[str, KeyType]:
    """Return the keys that set the knobs of a configuration, by name."""
    return {name: one.key for name, one in knobs_of(kind).items()}


def with_defaults(keys: Mapping[str, KeyType], kind: Any, prefix: str = "") -> dict[str, KeyType]:
    """Return the keys; those of fields of a dataclass, which may have a prefix, have its defaults for the docs."""
    found = dict(keys)
    for one in fields(kind):
        name = f"{prefix}{one.name}"
        if name in found and not found[name].default and one.default not in (MISSING, None, ""):
            is_time = found[name].legal.startswith(TIME_LEGAL)
            found[name] = replace(found[name], default=default_text(one.default, TIME if is_time else ""))
    return found


# Units ----------------------------------------------------------------------------------------------------------------


def with_unit(value: Any, units: Mapping[str, int]) -> Any:
    """Return an integer as it is, and of a number with a unit its whole amount; else raise `ValueError`."""
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


def time_legal(low: int, high: int) -> str:
    """Return the legal times, in picoseconds, as errors and docs name them."""
    return f"{TIME_LEGAL}, {time_text(low)} … {time_text(high)}"


def time_text(picoseconds: int) -> str:
    """Return a time as text, in the largest unit of which it is a whole number."""
    units = (unit for unit in ("s", "ms", "us", "ns") if picoseconds and picoseconds % TIMES[unit] == 0)
    unit = next(units, "ps")
    return f"{picoseconds // TIMES[unit]} {unit}"
