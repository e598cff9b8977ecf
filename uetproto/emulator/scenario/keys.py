"""What the keys of a scenario file take: texts, numbers with units, names that stand for something."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from ipaddress import ip_address
from typing import Any

from uetproto.emulator.network.faults import Which
from uetproto.engine.config import TIMES, PdsConfig, SesConfig, limit_of
from uetproto.engine.contract import MICROSECOND, MILLISECOND, SECOND
from uetproto.engine.memory import Region
from uetproto.engine.roce import config as roce_config
from uetproto.engine.roce.config import RoceConfig
from uetproto.engine.tss.keys import DomainKey, key_bytes


@dataclass(frozen=True, slots=True)
class Key:
    """What a key takes: `check` returns the value or raises `ValueError`; `legal` says what would have been right."""

    check: Callable[[Any], Any]
    legal: str


_UNITS = {"ps": 1, "ns": 1000, "us": MICROSECOND, "µs": MICROSECOND, "ms": MILLISECOND, "s": SECOND, "min": 60 * SECOND}
_RATES = {"b/s": 1, "kb/s": 10**3, "Mb/s": 10**6, "Gb/s": 10**9, "Tb/s": 10**12}
_SIZES = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "kB": 10**3, "MB": 10**6, "GB": 10**9}
_TIME_LEGAL = 'a time such as "1 ms" (ps, ns, us, ms, s, min) or whole picoseconds'
_DAY = 86_400 * SECOND


def _with_unit(value: Any, units: Mapping[str, int]) -> Any:
    """An integer, or a decimal number and a unit which together make a whole number."""
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


def _between(low: int, high: int, units: Mapping[str, int] | None = None) -> Callable[[Any], Any]:
    def check(value: Any) -> Any:
        number = value if units is None else _with_unit(value, units)
        if type(number) is not int or not low <= number <= high:
            raise ValueError(value)
        return number

    return check


def integer(low: int, high: int) -> Key:
    high_is = f"{high}" if high < 1 << 20 else f"0x{high:x}"
    return Key(_between(low, high), f"a whole number, {low} … {high_is}")


def size(low: int, high: int) -> Key:
    """A number of bytes within bounds."""
    legal = f'a whole number, {low} … 0x{high:x}, or a text such as "1 MiB" (B, KiB, MiB, GiB)'
    return Key(_between(low, high, _SIZES), legal)


def time(low: int = 0, high: int = _DAY) -> Key:
    """A time within bounds, in picoseconds."""
    return Key(_between(low, high, _UNITS), _time_legal(low, high))


def _time_legal(low: int, high: int) -> str:
    return f"{_TIME_LEGAL}, {_time_text(low)} … {_time_text(high)}"


def _time_text(picoseconds: int) -> str:
    """With the largest unit of which it is a whole number."""
    units = (unit for unit in ("s", "ms", "us", "ns") if picoseconds and picoseconds % _UNITS[unit] == 0)
    unit = next(units, "ps")
    return f"{picoseconds // _UNITS[unit]} {unit}"


def _is(kind: type) -> Callable[[Any], Any]:
    def check(value: Any) -> Any:
        if type(value) is not kind:
            raise ValueError(value)
        return value

    return check


def choice(names: Mapping[Any, Any]) -> Key:
    """One of several names; what they stand for is the value."""

    def check(value: Any) -> Any:
        if not isinstance(value, str | bool) or value not in names:
            raise ValueError(value)
        return names[value]

    return Key(check, ", ".join(name for name in names if isinstance(name, str)))


def one_of(names: tuple[str, ...]) -> Key:
    """One of several names, which are the values."""
    return choice(dict(zip(names, names, strict=True)))


def or_all(key: Key, everything: Any) -> Key:
    """What `key` takes, or the text "all", which stands for `everything`."""
    return Key(lambda value: everything if value == "all" else key.check(value), f'{key.legal}, or "all"')


def _which(value: Any) -> Which:
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


TEXT = Key(_is(str), "a text")
BOOLEAN = Key(_is(bool), "true, false")
ADDRESS = Key(_address, "an IPv4 or IPv6 address")
NAMES = Key(_names, 'a list of node names, or "all"')
WHICH = Key(_which, "a share 0 … 1, or a list of frame numbers counted from 0")
RATE = Key(_between(1, 10**15, _RATES), 'bits a second, or a text such as "400 Gb/s" (b/s … Tb/s)')
BYTES = Key(_between(0, 1 << 40, _SIZES), 'bytes, or a text such as "1 MiB" (B, KiB, MiB, GiB)')
HEX = Key(_hex, "bytes in hex")
SECRET = Key(lambda value: DomainKey(key_bytes(value)), "")
"""A key of a secure domain: its errors do not show it."""
MEMORY_KEY = Key(_memory_key, "a whole number of 64 bits")
DSCP = integer(0, 63)
PSN = integer(0, 2**32 - 1)
PDCID = integer(1, 65535)


def parameters(kind: type[PdsConfig] | type[SesConfig] | type[RoceConfig]) -> dict[str, Key]:
    """One key for each field of a configuration, which itself knows what is legal; on and off are booleans."""
    roce = kind is RoceConfig
    times = roce_config.TIMES if roce else TIMES

    def key(name: str, default: Any) -> Key:
        def check(value: Any) -> Any:
            if isinstance(value, str) and isinstance(default, bool):
                return {"on": True, "off": False}.get(value, value)
            if isinstance(value, str) and name in times:
                return _with_unit(value, _UNITS)
            return value

        limit = roce_config.legal_of(name) if roce else limit_of(kind, name)
        return Key(check, _time_legal(limit[0], limit[-1]) if name in times else "")

    return {field.name: key(field.name, field.default) for field in fields(kind)}
