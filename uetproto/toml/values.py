# SPDX-License-Identifier: GPL-2.0-only
"""This module has the types of keys in TOML files: texts, numbers with and without units, names, addresses."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from ipaddress import ip_address
from typing import Any

from uetproto.engine.contract import SECOND
from uetproto.engine.memory import Region
from uetproto.engine.tss.keys import DomainKey, key_bytes
from uetproto.knobs import BOOL, SIZE, TIME, UNITS, KeyType, Knob, fits, unit_legal, with_unit
from uetproto.knobs import RATE as BITS

DAY = 86_400 * SECOND


def _between(low: int, high: int, units: Mapping[str, int] | None = None) -> Callable[[Any], Any]:
    def check(value: Any) -> Any:
        number = value if units is None else with_unit(value, units)
        if type(number) is not int or not low <= number <= high:
            raise ValueError(value)
        return number

    return check


def _with_unit(low: int, high: int, unit: str, legal: str = "") -> KeyType:
    units, every = UNITS[unit]
    return KeyType(_between(low, high, units), legal or every, unit=unit)


def integer_legal(legal: range) -> str:
    """Return a text for errors and docs: it says that the whole numbers in the range `legal` are legal."""
    high = legal[-1]
    return f"a whole number, {legal[0]} … {high if high < 1 << 20 else hex(high)}"


def integer(low: int, high: int) -> KeyType:
    """Return the type of keys that take a whole number from `low` to `high`."""
    return KeyType(_between(low, high), integer_legal(range(low, high + 1)))


def size(low: int, high: int) -> KeyType:
    """Return the type of keys that take a number of bytes from `low` to `high`."""
    return _with_unit(low, high, SIZE, unit_legal(low, high, SIZE))


def time(low: int = 0, high: int = DAY) -> KeyType:
    """Return the type of keys that take a time from `low` to `high`, both in picoseconds."""
    return _with_unit(low, high, TIME, unit_legal(low, high, TIME))


def _is(kind: type) -> Callable[[Any], Any]:
    def check(value: Any) -> Any:
        if type(value) is not kind:
            raise ValueError(value)
        return value

    return check


def choice(names: Mapping[Any, Any]) -> KeyType:
    """Return the type of keys that take one of several names. `names` maps each name to the value for which it
    stands."""

    def check(value: Any) -> Any:
        if not isinstance(value, str | bool) or value not in names:
            raise ValueError(value)
        return names[value]

    known = tuple(name for name in names if isinstance(name, str))
    return KeyType(check, ", ".join(known), names=known)


def one_of(names: tuple[str, ...]) -> KeyType:
    """Return the type of keys that take one of several names."""
    return choice(dict(zip(names, names, strict=True)))


def or_all(key: KeyType, everything: Any) -> KeyType:
    """Return the type of keys that take the values of `key`, or the text "all", which stands for `everything`."""
    return KeyType(lambda value: everything if value == "all" else key.check(value), f'{key.legal}, or "all"')


def _which(value: Any) -> float | frozenset[int]:
    if isinstance(value, list):
        if all(type(number) is int and number >= 0 for number in value):
            return frozenset(value)
    elif type(value) in (int, float) and 0 <= value <= 1:
        return float(value)
    raise ValueError(value)


def _names(value: Any) -> tuple[str, ...]:
    if isinstance(value, str):
        return tuple(name.strip() for name in value.split(","))
    if isinstance(value, list) and all(isinstance(name, str) for name in value):
        return tuple(value)
    raise ValueError(value)


def _address(value: Any) -> tuple[int, int]:
    address = ip_address(value if isinstance(value, str) else "")  # its AddressValueError is a ValueError
    return int(address), address.version


def _memory_key(value: Any) -> int:
    return Region(_between(0, 2**64 - 1)(value), b"").key  # it knows which bits are reserved


def _hex(value: Any) -> bytes:
    return bytes.fromhex(_is(str)(value))


TEXT = KeyType(_is(str), "a text")
BOOLEAN = KeyType(_is(bool), "true, false")
ADDRESS = KeyType(_address, "an IPv4 or IPv6 address")
NAMES = KeyType(_names, 'a list of node names, or "all"')
WHICH = KeyType(_which, "a share 0 … 1, or a list of frame numbers counted from 0")
FAULTS = {
    **dict.fromkeys(("drop", "trim", "corrupt", "duplicate", "reorder", "delay"), WHICH),
    "reorder_by": integer(1, 1 << 16), "reorder_time": time(1), "delay_time": time(1),
}  # fmt: skip
"""Types of the keywords of `impair.faults.Faults`."""
RATE = _with_unit(1, 10**15, BITS)
BYTES = _with_unit(0, 1 << 40, SIZE)
HEX = KeyType(_hex, "bytes in hex")
SECRET = KeyType(lambda value: DomainKey(key_bytes(value)), "")
"""Type of the keys that hold a secret key of a secure domain. Errors do not show the value."""
MEMORY_KEY = KeyType(_memory_key, "a whole number of 64 bits")
DSCP = integer(0, 63)
PSN = integer(0, 2**32 - 1)
PDCID = integer(1, 65535)


def key_of(one: Knob) -> KeyType:
    """Return the type of the TOML key that sets a knob. It checks the value already when the file is read, not only
    when the configuration is made."""
    if one.legal == BOOL:
        return replace(one.key, check=BOOLEAN.check, legal=BOOLEAN.legal)
    if isinstance(one.legal, range) and one.unit in UNITS:
        return replace(one.key, check=_between(one.legal[0], one.legal[-1], UNITS[one.unit][0]))
    if isinstance(one.legal, range):
        return replace(one.key, check=_between(one.legal[0], one.legal[-1]), legal=integer_legal(one.legal))

    def check(value: Any) -> Any:
        if not fits(value, one.legal):
            raise ValueError(value)
        return value

    return replace(one.key, check=check)
