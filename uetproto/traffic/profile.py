"""Profiles: what traffic is made of. TOML to a validated dataclass (interfaces.md §7).

Every fault of a profile is a `LocalError` that says file, line, key, and what is legal.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any, Generic, TypeVar

from uetproto.emulator.framer_uet import Encapsulation
from uetproto.emulator.keys import BYTES, RATE, TEXT, Key, choice, integer, parameters, time
from uetproto.emulator.toml_file import Shipped, TomlFile
from uetproto.engine.config import PdsConfig, SesConfig
from uetproto.engine.contract import MICROSECOND, MILLISECOND, PDC_MODES, SECOND, Mode, Rng
from uetproto.engine.ses_opcodes import ATOMICS, OPERATIONS, OPTIMIZED_FORMS, SYNCS, Selects, profile_of
from uetproto.errors import LocalError
from uetproto.wire.uet_ses import Opcode

_FILES = Shipped("profile", Path(__file__).parent / "profiles")

_T = TypeVar("_T")
_Config = TypeVar("_Config", PdsConfig, SesConfig)

_CONSEQUENCES = {Opcode.DEFERRABLE_RTR, Opcode.MSG_ERROR}
"""Requests that nobody submits: they follow from others."""
CHOICES: dict[str, Opcode] = {code.name.lower(): code for code in OPERATIONS if code not in _CONSEQUENCES}
"""Operations that a profile can ask for, by name."""
MODES: dict[str, Mode] = {mode.name.lower(): mode for mode in Mode}
MAX_PDCS = 60_000
"""Of an endpoint; PDCIDs are left for reserved PDCs, and to rest."""
MAX_PROCESSES = 65_536
"""Of all endpoints, one for each job: each takes some 8 KiB."""


class Mix(Generic[_T]):
    """Things with shares, to be drawn from. Shares need not add up to 1."""

    __slots__ = ("_limits", "things")

    def __init__(self, shares: Mapping[_T, float]) -> None:
        self.things = tuple(thing for thing, share in shares.items() if share > 0)
        self._limits = tuple(accumulate(share for share in shares.values() if share > 0))

    def draw(self, rng: Rng) -> _T:
        things = self.things
        if len(things) == 1:
            return things[0]
        at = rng.random() * self._limits[-1]
        return next((thing for thing, limit in zip(things, self._limits, strict=True) if at < limit), things[-1])


@dataclass(frozen=True, slots=True)
class Sizes:
    """Bytes of a message: from `low` to `high`, each as likely as the next."""

    low: int
    high: int

    def draw(self, rng: Rng) -> int:
        return self.low if self.low == self.high else self.low + int(rng.random() * (self.high - self.low + 1))


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """All that traffic is made of."""

    name: str
    description: str = ""
    transport: str = "uet"
    operations: Mix[Opcode]
    modes: Mapping[Mode, float]
    sizes: Mix[Sizes]
    jobs: int = 1
    endpoints: int = 2
    """The first half of them initiate, the others are targets."""
    pdcs: int = 1
    """PDCs from one endpoint to another, of each mode."""
    operations_per_pdc: int = 0
    """After so many operations the PDCs of a mode to a peer are closed; 0: never."""
    depth: int = 8
    """Operations that an initiator has open at once."""
    ip: int = 4
    how: Encapsulation
    loss: float = 0.0
    reorder: float = 0.0
    trim: float = 0.0
    """Shares of packets; only data packets are trimmed."""
    protocol_errors: float = 0.0
    """Share of operations that name a job, process, index, key or place that is not there."""
    unexpected: float = 0.0
    """Share of tagged messages that come before their buffer."""
    rate: int = 400 * 10**9
    """Bits a second that an endpoint can send."""
    delay: int = MICROSECOND
    """From one endpoint to another."""
    tap: str = "initiator"
    """initiator: what their ports see, in both directions. target: likewise, so what got lost before them is not
    there. wire: all that was sent, by whomever."""
    seed: int = 0
    pds: PdsConfig
    ses: SesConfig

    @property
    def initiators(self) -> int:
        return self.endpoints // 2


# Keys -----------------------------------------------------------------------------------------------------------------


def _mix(item: Callable[[Any], _T]) -> Callable[[Any], dict[_T, float]]:
    """One thing, a list of them, or a table of things and their shares; a text may be a list with commas."""

    def check(value: Any) -> dict[_T, float]:
        if isinstance(value, str):
            value = [part.strip() for part in value.split(",")]
        elif not isinstance(value, list | dict):
            value = [value]
        shares = value if isinstance(value, dict) else dict.fromkeys(value, 1)
        if not all(map(_is_share, shares.values())):
            raise ValueError(value)
        if not sum(shares.values()):
            raise ValueError(value)
        found: dict[_T, float] = defaultdict(float)  # two texts may stand for one thing
        for thing, share in shares.items():
            found[item(thing)] += share
        return dict(found)

    return check


def _named(names: Mapping[str, _T]) -> Callable[[Any], _T]:
    def check(value: Any) -> _T:
        if not isinstance(value, str) or value not in names:
            raise ValueError(value)
        return names[value]

    return check


def _size(value: Any) -> Sizes:
    """Bytes, or a range."""
    if isinstance(value, str) and ".." in value:
        low, high = (BYTES.check(_bytes(part)) for part in value.split("..", 1))
    else:
        low = high = BYTES.check(_bytes(value))
    if low > high:
        raise ValueError(value)
    return Sizes(low, high)


def _bytes(value: Any) -> Any:
    """A key of a table is a text, and so is what stands in a range."""
    return int(value) if isinstance(value, str) and re.fullmatch(r"\s*\d+\s*", value) else value


def _share(value: Any) -> float:
    if type(value) not in (int, float) or not 0 <= value <= 1:
        raise ValueError(value)
    return float(value)


_SHARE = Key(_share, "a share 0 … 1")
_TRANSPORTS = ("rc", "uc", "ud")
_SHARES = "one of these, a list, or a table of shares"

KEYS: dict[str, Key] = {
    "description": TEXT,
    "transport": choice({"uet": "uet", **{name: name for name in _TRANSPORTS}}),
    "operations": Key(_mix(_named(CHOICES)), f"{_SHARES}: {', '.join(CHOICES)}"),
    "modes": Key(_mix(_named(MODES)), f"{_SHARES}: {', '.join(MODES)}"),
    "sizes": Key(_mix(_size), f'{BYTES.legal}, a range "1 B .. 64 KiB", a list of these, or a table of shares'),
    "jobs": integer(1, 4096),
    "endpoints": integer(2, 256),
    "pdcs": integer(1, MAX_PDCS),
    "operations_per_pdc": integer(0, 2**31),
    "depth": integer(1, 4096),
    "ip": Key(lambda value: _named({"4": 4, "6": 6})(str(value)), "4, 6"),
    "encapsulation": choice({"udp": True, "native": False}),
    "crc": choice({"on": True, "off": False, True: True, False: False}),
    "loss": _SHARE,
    "reorder": _SHARE,
    "trim": _SHARE,
    "protocol_errors": _SHARE,
    "unexpected": _SHARE,
    "rate": RATE,
    "delay": time(1, SECOND),
    "tap": choice({name: name for name in ("initiator", "target", "wire")}),
    "seed": integer(0, 2**64 - 1),
}
TABLES = {"pds": parameters(PdsConfig), "ses": parameters(SesConfig)}
"""Parameters of all endpoints: pds.md §17, ses.md §16."""
_MIXES = ("operations", "modes", "sizes")
ALIASES = {"payload_mtu": "ses.payload_mtu"}
"""Keys that need no table with `--set`."""

# Reading --------------------------------------------------------------------------------------------------------------


names = _FILES.names


def load(name: str, settings: Iterable[str] = ()) -> Profile:
    """Read the profile `name`, change it by `settings` ("key=value"), check it.

    Raises `LocalError` for what is not legal, `OSError` for a file that cannot be read.
    """
    reader = _Reader(_FILES.find(name))
    reader.change(settings)
    return reader.profile()


class _Reader(TomlFile):
    """One file on its way to a `Profile`."""

    aliases = ALIASES

    def table_of(self, name: str, key: str) -> dict[str, Any]:
        section, dot, _ = key.rpartition(".")
        if not dot:
            return self.data
        table = self.data.setdefault(section, {})
        if section in _MIXES and not isinstance(table, dict):
            table = self.data[section] = {}
        if not isinstance(table, dict):
            raise LocalError(f"--set {name}: {section} is not a table")
        return table

    def refuse(self, key: str, message: str) -> LocalError:
        """As for any file; but what was set by hand is named first: a part of the key, or all that it is part of."""
        below = next((given for given in self.given if given.startswith(f"{key}.")), None)
        if below is not None:
            return LocalError(f"--set {below}: {message}")
        whole = next((given for given in self.given if given == key or key.startswith(f"{given}.")), None)
        if whole is not None:
            return LocalError(f"--set {whole}: {'' if whole == key else f'{key}: '}{message}")
        return super().refuse(key, message)

    def refuse_mix(self, path: str, other: str, message: str) -> LocalError:
        """`path` does not go with `other`: what was set by hand is named first."""
        if self._by_hand(other) and not self._by_hand(path):
            return self.refuse(other, f"{path}: {message}")
        return self.refuse(path, message)

    def _by_hand(self, path: str) -> bool:
        return any(path == key or path.startswith(f"{key}.") or key.startswith(f"{path}.") for key in self.given)

    def values(self, keys: Mapping[str, Key], table: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
        """The checked values of a table."""
        checked = {}
        for name, raw in table.items():
            where = f"{prefix}{name}"
            if name not in keys:
                more = () if prefix else tuple(TABLES)
                raise self.refuse(where, f"unknown key; legal: {', '.join((*keys, *more))}")
            if keys[name] is TEXT:
                raw = self.given.get(where, raw)
            try:
                checked[name] = keys[name].check(raw)
            except (ValueError, TypeError):
                where, raw = self._wrong(where, raw)
                raise self.refuse(where, f"{raw!r} is not legal; legal: {keys[name].legal}") from None
        return checked

    def _wrong(self, where: str, raw: Any) -> tuple[str, Any]:
        """Key and value to name: of a mix the first part that alone would not do, and of that its name or its share."""
        parts = raw if isinstance(raw, dict) else dict.fromkeys(raw, 1) if isinstance(raw, list) else {}
        for name, share in parts.items() if where in _MIXES else ():
            try:
                KEYS[where].check({name: share or 1})
            except (ValueError, TypeError):
                if not isinstance(raw, dict):
                    return where, name
                return f"{where}.{name}", name if _is_share(share) else share
        return where, raw

    def profile(self) -> Profile:
        top = {name: value for name, value in self.data.items() if name not in TABLES}
        values = self.values(KEYS, top)
        if values.get("transport", "uet") != "uet":
            raise self.refuse("transport", f"{values['transport']!r} is not supported yet; legal: uet")
        for name in _MIXES:
            if name not in values:
                raise self.refuse(name, f"is missing; legal: {KEYS[name].legal}")
        operations = {code: share for code, share in values.pop("operations").items() if share}
        modes = {mode: share for mode, share in values.pop("modes").items() if share}
        how = Encapsulation(udp=values.pop("encapsulation", True), crc=values.pop("crc", True))
        endpoints = values.get("endpoints", 2)
        pdcs = values.get("pdcs", 1) * endpoints * len(PDC_MODES)
        # Names of PDCs rest as long as packets can live here, else frequent closing would use them up.
        life = max(MILLISECOND, 100 * values.get("delay", MICROSECOND))
        pds = self.config(PdsConfig, "pds", {"max_pdcs": min(max(1000, pdcs), MAX_PDCS), "msl": life})
        room = max(256, values.get("depth", 8) * endpoints)
        sync = not SYNCS.isdisjoint(operations)
        ses = self.config(SesConfig, "ses", {"tx_size": room, "rx_size": room, "sync_operations": sync})
        profile = Profile(
            name=self.path.stem, operations=Mix(operations), modes=modes, sizes=Mix(values.pop("sizes")), how=how,
            pds=pds, ses=ses, **values,
        )  # fmt: skip
        self.possible(profile)
        return profile

    def config(self, kind: type[_Config], section: str, implied: dict[str, Any]) -> _Config:
        table = self.data.get(section, {})
        if not isinstance(table, dict):
            raise self.refuse(section, f"is a value; legal: the table [{section}]")
        values = self.values(TABLES[section], table, f"{section}.")
        try:
            return kind(**implied | values)
        except LocalError as error:  # it names the key and what is legal
            name, _, message = str(error).partition(": ")
            raise self.refuse(f"{section}.{name}", message) from None

    def possible(self, profile: Profile) -> None:
        """Keys that are legal one by one may not go together."""
        modes = ", ".join(mode.name.lower() for mode in profile.modes)
        has = profile_of(profile.ses.profile)
        for code in profile.operations.things:
            row, where = OPERATIONS[code], f"operations.{code.name.lower()}"
            if not row.modes & profile.modes.keys():
                legal = ", ".join(mode.name.lower() for mode in sorted(row.modes))
                raise self.refuse_mix(where, "modes", f"none of the modes {modes} carries it; legal: {legal}")
            if not row.profiles & has:
                message = f"is not of the profile {profile.ses.profile} (ses.profile)"
                raise self.refuse_mix(where, "ses.profile", message)
        for mode in profile.modes:
            if not any(mode in OPERATIONS[code].modes for code in profile.operations.things):
                legal = ", ".join(name for name, code in CHOICES.items() if mode in OPERATIONS[code].modes)
                message = f"none of the operations can use it; it carries {legal}"
                raise self.refuse_mix(f"modes.{mode.name.lower()}", "operations", message)
        most = profile.pdcs * (profile.endpoints - profile.initiators) * len(PDC_MODES)
        if most > profile.pds.max_pdcs:
            raise self.refuse("pdcs", f"an endpoint would need {most} PDCs, pds.max_pdcs is {profile.pds.max_pdcs}")
        self.room(profile)
        if profile.ses.optimized_headers and not has & OPTIMIZED_FORMS:
            raise self.refuse("ses.optimized_headers", f"is not of the profile {profile.ses.profile} (ses.profile)")

    def room(self, profile: Profile) -> None:
        """What would not fit into queues, messages or memory."""
        processes, ses = profile.jobs * profile.endpoints, profile.ses
        if processes > MAX_PROCESSES:
            message = f"{profile.jobs} jobs at {profile.endpoints} endpoints are {processes:,} processes"
            legal = f"{MAX_PROCESSES // profile.endpoints} jobs with so many endpoints"
            raise self.refuse_mix("jobs", "endpoints", f"{message}; legal: at most {MAX_PROCESSES:,}, {legal}")
        if ses.tx_size < profile.depth:
            raise self.refuse_mix(
                "ses.tx_size", "depth", f"{ses.tx_size} is less than depth; legal: {profile.depth} and more"
            )
        received = [code for code in profile.operations.things if OPERATIONS[code].selects is Selects.RECEIVE]
        needed = profile.depth * profile.initiators
        if received and ses.rx_size < needed:
            message = f"{ses.rx_size} is less than what can be open to a target, depth × initiators"
            raise self.refuse_mix("ses.rx_size", "depth", f"{message}; legal: {needed} and more")
        largest = max(size.high for size in profile.sizes.things)
        sends = [code for code in received if code not in ATOMICS and code is not Opcode.DATAGRAM_SEND]
        if sends and largest > ses.max_msg_size:
            message = f"{largest} bytes do not go into one {sends[0].name.lower()}"
            legal = f"up to {ses.max_msg_size} bytes (ses.max_msg_size)"
            raise self.refuse_mix("sizes", "ses.max_msg_size", f"{message}; legal: {legal}")


def _is_share(value: Any) -> bool:
    return type(value) in (int, float) and 0 <= value < 1 << 30


def comment_of(profile: Profile) -> str:
    """What a reader of the capture has to know (interfaces.md §3)."""
    how = profile.how
    encapsulation = f"udp, port {how.udp_port}" if how.udp else f"native, IP protocol {how.ip_protocol}"
    crc = "on" if how.crc else "off"
    return f"uetproto generate {profile.name}, seed {profile.seed}; encapsulation {encapsulation}; crc {crc}"
