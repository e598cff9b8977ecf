# SPDX-License-Identifier: GPL-2.0-only
"""This module has the common part of all profiles: their common keys, and the reader of a file (interfaces.md §7).

For every error in a profile it raises a `LocalError` with the file, the line, the key, and the legal values.
"""

import re
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any, ClassVar, Generic, Self, TypeVar

from uetproto.engine.config import PdsConfig, SesConfig
from uetproto.engine.contract import MICROSECOND, SECOND, Rng
from uetproto.engine.roce.config import RoceConfig
from uetproto.engine.roce.contract import QpType
from uetproto.engine.train_splits import Split
from uetproto.errors import LocalError, argument, similar, unfit
from uetproto.framing.security import Security
from uetproto.knobs import KeyType, with_defaults
from uetproto.toml.file import TomlFile, harmless
from uetproto.toml.values import BYTES, RATE, SECRET, TEXT, choice, integer, time
from uetproto.wire.forms import ROCE_PORT

_T = TypeVar("_T")
_Config = TypeVar("_Config", PdsConfig, SesConfig, RoceConfig)

UET = "uet"
ROCE: dict[str, QpType] = {kind.name.lower(): kind for kind in QpType}
"""RoCE transports, by name."""


class Mix(Generic[_T]):
    """A mix draws one of several items at random, by their shares. The sum of the shares need not be 1."""

    __slots__ = ("_limits", "things")

    def __init__(self, shares: Mapping[_T, float]) -> None:
        self.things = tuple(thing for thing, share in shares.items() if share > 0)
        self._limits = tuple(accumulate(share for share in shares.values() if share > 0))

    @classmethod
    def among(cls, shares: Mapping[_T, float], legal: Container[_T]) -> Self:
        """Return a mix of those items that are in `legal`, with their shares."""
        return cls({thing: share for thing, share in shares.items() if thing in legal})

    def draw(self, rng: Rng) -> _T:
        things = self.things
        if len(things) == 1:
            return things[0]
        at = rng.random() * self._limits[-1]
        return next((thing for thing, limit in zip(things, self._limits, strict=True) if at < limit), things[-1])


@dataclass(frozen=True, slots=True)
class Sizes:
    """This class draws the size of a message in bytes. Each size from `low` to `high` has the same chance."""

    low: int
    high: int

    def draw(self, rng: Rng) -> int:
        return self.low if self.low == self.high else self.low + int(rng.random() * (self.high - self.low + 1))


@dataclass(frozen=True, slots=True, kw_only=True)
class TrafficProfile(ABC):
    """This record holds the parameters that profiles of all transports have. `COMMON` says what the parameters mean.

    Rates are in bits a second, and times are in picoseconds.
    """

    name: str
    description: str = ""
    transport: str = UET
    sizes: Mix[Sizes]
    endpoints: int = 2
    pdcs: int = 1
    """Number of connections from one endpoint to another: PDCs of each mode, or queue pairs of each transport. UD has
    no connections. For UD this is the number of queue pairs of an endpoint."""
    operations_per_pdc: int = 0
    depth: int = 8
    ip: int = 4
    loss: float = 0.0
    reorder: float = 0.0
    trim: float = 0.0
    """Share of data packets of UET that are trimmed."""
    protocol_errors: float = 0.0
    unexpected: float = 0.0
    rate: int = 400 * 10**9
    delay: int = MICROSECOND
    tap: str = "initiator"
    """Place of the capture: "initiator", "target" or "wire". At "initiator", the capture has the frames that the
    initiators send, and the frames that reach the initiators. A frame that is lost on its way to an initiator is
    missing. At "target", the same holds for the targets. At "wire", the capture has all frames that were sent.
    """
    seed: int = 0
    security: Security | None = None
    """Security of the endpoints, or None if packets are in clear, as packets of RoCE always are."""

    @property
    def initiators(self) -> int:
        return self.endpoints // 2

    @property
    def largest(self) -> int:
        """Return the size of the longest message in bytes."""
        return max(size.high for size in self.sizes.things)

    def address(self, number: int) -> int:
        """Return the address of endpoint `number`. The initiators have the first numbers."""
        return address_of(number, self.endpoints, self.ip)

    @property
    @abstractmethod
    def encapsulated(self) -> str:
        """Return a text that names the protocol below the transport header and its port or number."""

    @property
    @abstractmethod
    def crc(self) -> bool:
        """Return whether packets end with the CRC of their transport."""

    @property
    @abstractmethod
    def split(self) -> Split | None:
        """Return why endpoints cannot handle runs of equal packets together (`engine.train`), or None if they can."""

    @property
    def roce_port(self) -> int:
        """Return the UDP port that carries RoCE."""
        return ROCE_PORT


_NETS = {4: 0x0A000001, 6: 0xFD << 120 | 0x0A000001}
"""Address of the first initiator; that of the first target is 256 more."""


def address_of(number: int, endpoints: int, ip: int) -> int:
    """Return the address of endpoint `number` among `endpoints` endpoints, of IP version `ip`. The first half are the
    initiators."""
    initiators = endpoints // 2
    return _NETS[ip] + (number if number < initiators else 256 + number - initiators)


# Keys -----------------------------------------------------------------------------------------------------------------


def mix(item: Callable[[Any], _T]) -> Callable[[Any], dict[_T, float]]:
    """Return a function that converts a value of a TOML file to the share of each item.

    The value is one item, a list of items, or a table of shares. A text may list several items with commas.
    """

    def check(value: Any) -> dict[_T, float]:
        if isinstance(value, str):
            value = [part.strip() for part in value.split(",")]
        elif not isinstance(value, list | dict):
            value = [value]
        shares = value if isinstance(value, dict) else dict.fromkeys(value, 1)
        if not all(map(_is_share, shares.values())) or not sum(shares.values()):
            raise ValueError(value)
        found: dict[_T, float] = defaultdict(float)  # two texts may stand for one item
        for thing, share in shares.items():
            found[item(thing)] += share
        return dict(found)

    return check


def mix_of(names: Mapping[str, _T]) -> KeyType:
    """Return the type of keys that take one or several of these names, with shares or without."""
    legal = f"one of these, a list, or a table of shares: {', '.join(names)}"
    return KeyType(mix(named(names)), legal, names=tuple(names))


def named(names: Mapping[str, _T]) -> Callable[[Any], _T]:
    def check(value: Any) -> _T:
        if not isinstance(value, str) or value not in names:
            raise ValueError(value)
        return names[value]

    return check


def _size(value: Any) -> Sizes:
    """Convert a value, a number of bytes or a range, to sizes."""
    if isinstance(value, str) and ".." in value:
        low, high = (BYTES.check(_bytes(part)) for part in value.split("..", 1))
    else:
        low = high = BYTES.check(_bytes(value))
    if low > high:
        raise ValueError(value)
    return Sizes(low, high)


def _bytes(value: Any) -> Any:
    """Convert a text of digits to a number, as keys of tables and parts of ranges are texts."""
    return int(value) if isinstance(value, str) and re.fullmatch(r"\s*\d+\s*", value) else value


def _share(value: Any) -> float:
    if type(value) not in (int, float) or not 0 <= value <= 1:
        raise ValueError(value)
    return float(value)


def _is_share(value: Any) -> bool:
    return type(value) in (int, float) and 0 <= value < 1 << 30


def _transport(value: Any) -> dict[QpType, float] | str:
    """Convert a value to UET, or to a mix of RoCE transports."""
    return UET if value == UET else mix(named(ROCE))(value)


TRANSPORT = KeyType(_transport, f"{UET}; or one of these, a list, or a table of shares: {', '.join(ROCE)}")
SHARE = KeyType(_share, "a share 0 … 1")
MAX_ENDPOINTS = 256
MAX_CONNECTIONS = 60_000
"""Largest number of connections of an endpoint. The other PDCIDs are left for reserved PDCs and for quarantine."""

ABOUT: dict[str, KeyType] = {
    "description": TEXT.says("A text for the reader."),
    "transport": TRANSPORT.says("UET, or the transports of the queue pairs, with their shares.", UET),
}
COMMON: dict[str, KeyType] = with_defaults({
    "sizes": KeyType(mix(_size), f'{BYTES.legal}, a range "1 B .. 64 KiB", a list of these, or a table of shares').says(
        "The sizes of messages, with their shares; the key is required."),
    "endpoints": integer(2, MAX_ENDPOINTS).says("The endpoints; the first half initiate, the others are targets."),
    "pdcs": integer(1, MAX_CONNECTIONS).says(
        "The connections from one endpoint to another: PDCs of each mode, or queue pairs of each transport."),
    "operations_per_pdc": integer(0, 2**31).says(
        "A connection is closed, and another opened, after so many operations; 0: never."),
    "depth": integer(1, 4096).says("The operations that an initiator has open at once."),
    "ip": KeyType(lambda value: named({"4": 4, "6": 6})(str(value)), "4, 6").says("The version of IP."),
    "crc": choice({"on": True, "off": False, True: True, False: False}).says(
        "Packets end with the CRC of their transport.", "on"),
    "loss": SHARE.says("The share of packets that are lost."),
    "reorder": SHARE.says("The share of packets that later packets overtake."),
    "protocol_errors": SHARE.says("The share of operations that are wrong on purpose."),
    "unexpected": SHARE.says("The share of messages that arrive before their buffer."),
    "rate": RATE.says("The rate at which an endpoint sends."),
    "delay": time(1, SECOND).says("The delay from one endpoint to another."),
    "tap": choice({name: name for name in ("initiator", "target", "wire")}).says(
        "Where the capture is taken: at the initiators, at the targets, or of all that was sent."),
    "seed": integer(0, 2**64 - 1).says("The seed of everything that is drawn."),
}, TrafficProfile)  # fmt: skip
_MIXES = ("transport", "operations", "modes", "sizes")

# Reading --------------------------------------------------------------------------------------------------------------


class ProfileFile(TomlFile):
    """This class reads the TOML file of one profile. The transport of the profile decides which keys are legal."""

    aliases: ClassVar[Mapping[str, str]] = {"payload_mtu": "ses.payload_mtu", "path_mtu": "roce.path_mtu"}

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.keys: Mapping[str, KeyType] = ABOUT
        self.tables: Mapping[str, Mapping[str, KeyType]] = {}
        """Legal keys of each section, such as [pds], which holds parameters of all endpoints."""

    def table_of(self, name: str, key: str) -> dict[str, Any]:
        section, dot, _ = key.rpartition(".")
        if not dot:
            return self.data
        table = self.data.setdefault(section, {})
        if section in _MIXES and not isinstance(table, dict):
            table = self.data[section] = {}
        if not isinstance(table, dict):
            raise LocalError(argument("settings", name), f"{section} is not a table", id="not-a-table")
        return table

    def refuse(self, key: str, value: object, legal: str = "", *, id: str) -> LocalError:
        """Return the error for `key`. If a `--set` option set the key, a part of its value, or its table, the error
        names this option in place of the file.
        """
        below = next((given for given in self.given if given.startswith(f"{key}.")), None)
        if below is not None:
            return LocalError(argument("settings", harmless(below)), value, legal, id=id)
        whole = next((given for given in self.given if given == key or key.startswith(f"{given}.")), None)
        if whole is not None:
            told = "" if whole == key else f"{harmless(key)}: "
            return LocalError(argument("settings", harmless(whole)), f"{told}{value}", legal, id=id)
        return super().refuse(key, value, legal, id=id)

    def refuse_mix(self, path: str, other: str, value: object, legal: str = "", *, id: str) -> LocalError:
        """Return the error for the key `path`, whose value contradicts that of the key `other`.

        The error is about `other` if `--set` gave only `other`.
        """
        if self._by_hand(other) and not self._by_hand(path):
            return self.refuse(other, f"{path}: {value}", legal, id=id)
        return self.refuse(path, value, legal, id=id)

    def _by_hand(self, path: str) -> bool:
        return any(path == key or path.startswith(f"{key}.") or key.startswith(f"{path}.") for key in self.given)

    @property
    def transport(self) -> str:
        """Return the name of the transport, or several names with commas. Raises `LocalError` for an illegal name."""
        if "transport" not in self.data:
            return UET
        found = self.check({"transport": self.data["transport"]}, ABOUT)["transport"]
        return UET if found == UET else ", ".join(kind.name.lower() for kind, share in found.items() if share)

    def values(
        self, keys: Mapping[str, KeyType], tables: Mapping[str, Mapping[str, KeyType]], *needed: str
    ) -> dict[str, Any]:
        """Return the checked values of all keys outside sections. Raises `LocalError` if a key in `needed` is
        missing."""
        self.keys, self.tables = keys, tables
        values = self.check({name: value for name, value in self.data.items() if name not in tables}, keys)
        for name in needed:
            if name not in values:
                raise self.refuse(name, "is missing", keys[name].legal, id="missing-key")
        return values

    def check(
        self, table: Mapping[str, Any], keys: Mapping[str, KeyType], prefix: str = "", nested: tuple[str, ...] = ()
    ) -> dict[str, Any]:
        """Return the checked values of a table, without its sub-tables in `nested`.

        Raises `LocalError` for an unknown key or an illegal value. `prefix` precedes the keys of this table in errors,
        such as "pds.".
        """
        checked = {}
        for name, raw in table.items():
            where = f"{prefix}{name}"
            if name in nested:
                continue
            if name not in keys:
                more = nested if prefix else tuple(self.tables)
                which = "" if self.transport == UET else f" with transport {self.transport}"
                legal = (*keys, *more)
                told = f"unknown key{which}{similar(name, legal)}"
                raise self.refuse_mix(where, "transport", told, ", ".join(legal), id="unknown-key")
            if keys[name].check is TEXT.check or (keys[name].check is SECRET.check and not isinstance(raw, str)):
                raw = self.given.get(where, raw)
            self.check_unit(where, raw, keys[name])
            try:
                checked[name] = keys[name].check(raw)
            except LocalError as error:  # raised by a key of security: it has the legal values
                raise self.refuse(where, error.value, error.legal, id=error.id) from None
            except (ValueError, TypeError):
                where, raw = self._wrong(where, raw, keys)
                wrong = f"{harmless(repr(raw))} is not legal{similar(raw, keys[name].names)}"
                raise self.refuse(where, wrong, keys[name].legal, id=unfit(raw, keys[name].names)) from None
        return checked

    def _wrong(self, where: str, raw: Any, keys: Mapping[str, KeyType]) -> tuple[str, Any]:
        """Return key and value for an error; in a mix, those of the first item whose name or share is not legal."""
        parts = raw.items() if isinstance(raw, dict) else ((part, 1) for part in raw) if isinstance(raw, list) else ()
        for name, share in parts if where in _MIXES else ():
            try:
                keys[where].check({name: share or 1})
            except (ValueError, TypeError):
                if not isinstance(raw, dict):
                    return where, name
                return f"{where}.{name}", name if _is_share(share) else share
        return where, raw

    def config(self, kind: type[_Config], section: str, implied: dict[str, Any]) -> _Config:
        """Return the configuration, of type `kind`, that a section of the file gives. Raises `LocalError`.

        `implied` has defaults that replace those of `kind`.
        """
        table = self.data.get(section, {})
        if not isinstance(table, dict):
            raise self.refuse(section, "is a value", f"the table [{section}]", id="not-a-table")
        values = self.check(table, self.tables[section], f"{section}.")
        try:
            return kind(**implied | values)
        except LocalError as error:  # it has the key and the legal values
            raise self.refuse(f"{section}.{error.name}", error.value, error.legal, id=error.id) from None
