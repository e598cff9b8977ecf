# SPDX-License-Identifier: GPL-2.0-only
"""This module draws scenarios of `uetproto run`: two nodes, operations over UET, and what goes wrong on the wire."""

from typing import Any, Literal, NamedTuple, TypedDict, Unpack, overload

from hypothesis import strategies as st

from uetproto.check.toml_text import table
from uetproto.testing.strategies.arguments import check_choice, check_names, check_range, illegal, named
from uetproto.testing.strategies.headers import numbers
from uetproto.testing.strategies.lower import ENCAPSULATIONS, IP_VERSIONS
from uetproto.testing.strategies.operations import PLAYED, DrawnOperation, Row, numbered
from uetproto.testing.strategies.spoilt import Spoilt, spoilt_value
from uetproto.testing.strategies.stacks import MODES
from uetproto.wire.headers.uet_pds import Mode
from uetproto.wire.headers.uet_ses import OPCODE_PROFILES, PAYLOAD_MTUS, SYNCS, Opcode

_FAULTS = ("drop", "duplicate", "reorder", "delay", "trim")
_HARMLESS = ("delay",)
"""Faults that no datagram is lost by."""
_MOST_FAULTS = 2
_LAST_AT_RISK = 15
"""Number of the last frame that may meet a fault; few exchanges have more."""
_NODES = ("nodes.a", "nodes.b")
_FIRST_NUMBER = {"rud": "start_psn", "rod": "start_psn", "rudi": "pkt_id"}
_ADDRESSES = {4: "10.0.{}.{}", 6: "fd00::{}:{}"}


class MessageOptions(TypedDict, total=False):
    """These arguments restrict a message; what is None is drawn."""

    mode: str | None
    """Delivery mode: rud, rod, rudi or uud."""
    opcode: str | None
    """Name of a request opcode that an application can ask for."""
    encapsulation: str | None
    """How the packets travel: udp or native."""
    ip_version: int | None
    """Version of IP: 4 or 6."""
    crc: bool | None
    """Whether packets end with a CRC32C."""
    mtu: int | None
    """Payload MTU: 1024, 2048, 4096 or 8192."""


class ScenarioOptions(MessageOptions, total=False):
    """These arguments restrict a scenario, or what is made from one, such as a capture. What is None is drawn."""

    faults: bool | None
    """Whether frames are lost, doubled, delayed, overtaken or trimmed."""
    operations: int
    """Largest number of operations. The default is 3."""


class Wanted(NamedTuple):
    """This tuple says what a caller wants of scenarios. What is None is drawn."""

    mode: str | None = None
    opcode: str | None = None
    encapsulation: str | None = None
    ip_version: int | None = None
    crc: bool | None = None
    mtu: int | None = None
    faults: bool | None = None
    operations: int = 3

    def check(self) -> "Wanted":
        """Return this tuple. Raises `InvalidArgument` for a value that is not legal, alone or beside the others."""
        check_choice("opcode", self.opcode, tuple(code.name for code in PLAYED))
        check_choice("mode", self.mode, MODES)
        if not self.modes():
            legal = self._replace(mode=None).modes()
            raise illegal("mode", self.mode, legal, f" with opcode={self.opcode!r}")
        check_choice("encapsulation", self.encapsulation, ENCAPSULATIONS)
        check_choice("ip_version", self.ip_version, IP_VERSIONS)
        check_choice("crc", self.crc, (False, True))
        check_choice("mtu", self.mtu, PAYLOAD_MTUS)
        check_choice("faults", self.faults, (False, True))
        check_range("operations", self.operations, 1, 16)
        return self

    def modes(self) -> tuple[str, ...]:
        """Return the modes that may be played."""
        return tuple(mode for mode in MODES if self.mode in (None, mode) and self.opcodes(mode))

    def opcodes(self, mode: str) -> tuple[Opcode, ...]:
        """Return the opcodes that may be played in a mode."""
        legal = (code for code in PLAYED if Mode[mode.upper()] in OPCODE_PROFILES[code].modes)
        return tuple(code for code in legal if self.opcode in (None, code.name))


class Sections(NamedTuple):
    """This tuple holds the contents of a scenario file: its tables, by name, and its rows `[[operation]]`."""

    tables: dict[str, Row]
    operations: list[Row]

    def text(self) -> str:
        """Return the TOML text."""
        tables = {name: values for name, values in self.tables.items() if values or name in _NODES}
        lines = [line for name, values in tables.items() for line in table(name, values)]
        lines += [line for row in self.operations for line in table("operation", row, array=True)]
        return "\n".join(lines[1:]) + "\n"


def chosen(draw: st.DrawFn, value: Any, legal: tuple[Any, ...]) -> Any:
    """Return the value that the caller wants, or draw one."""
    return draw(st.sampled_from(legal)) if value is None else value


@st.composite
def sections(draw: st.DrawFn, wanted: Wanted, pair: int = 0) -> Sections:
    """Draw a scenario between the two nodes of a `pair`, whose addresses no other pair has."""
    mode = chosen(draw, wanted.mode, wanted.modes())
    mtu = chosen(draw, wanted.mtu, PAYLOAD_MTUS)
    version = chosen(draw, wanted.ip_version, IP_VERSIONS)
    how = chosen(draw, wanted.encapsulation, ENCAPSULATIONS)
    crc = chosen(draw, wanted.crc, (True, False))
    count = draw(numbers(1, _MOST_FAULTS)) if chosen(draw, wanted.faults, (False, True)) else 0
    faults = dict(draw(_fault(mode)) for _ in range(count))
    operation = _operation(wanted.opcodes(mode), mode, mtu)
    operations = [draw(operation) for _ in range(draw(numbers(1, wanted.operations)))]  # shrinks better than `lists`
    rows = [numbered(row, number) for number, (_, rows) in enumerate(operations, 1) for row in rows]
    rows[0].pop("after", None)
    address = _ADDRESSES[version]
    first = draw(numbers(0, 0xFFFFFFFF))
    tables: dict[str, Row] = {
        "run": {"mode": mode, "seed": draw(numbers(0, 0xFFFF))},
        "fabric": {"encapsulation": how, "crc": "on" if crc else "off"},
        "nodes.a": {"address": address.format(pair, 1)},
        "nodes.b": {"address": address.format(pair, 2)},
        "ses": {"payload_mtu": mtu},
        "preset.a": {_FIRST_NUMBER[mode]: first} if mode in _FIRST_NUMBER else {},
        "faults": faults,
    }
    if SYNCS.intersection(opcode for opcode, _ in operations):
        tables["ses"]["sync_operations"] = True
    if draw(st.booleans()):
        tables["ses"]["optimized_headers"] = True
    return Sections(tables, rows)


@st.composite
def _operation(draw: st.DrawFn, opcodes: tuple[Opcode, ...], mode: str, mtu: int) -> tuple[Opcode, list[Row]]:
    """Draw an operation, which may wait for the end of all before it."""
    opcode = draw(st.sampled_from(opcodes))
    rows = DrawnOperation(draw, opcode, mode, mtu).rows()
    return opcode, [rows[0] | {"after": "all"}, *rows[1:]] if draw(st.booleans()) else rows


@st.composite
def _fault(draw: st.DrawFn, mode: str) -> tuple[str, list[int]]:
    """Draw a fault and the numbers of the frames that meet it; datagrams, which nobody repeats, are only delayed."""
    kind = draw(st.sampled_from(_HARMLESS if mode == "uud" else _FAULTS))
    return kind, sorted(draw(st.lists(numbers(0, _LAST_AT_RISK), min_size=1, max_size=3, unique=True)))


# With one fault -------------------------------------------------------------------------------------------------------


class _WrongKey(NamedTuple):
    """A key with a value that is refused; None: the key is left out."""

    table: str
    key: str
    value: Any
    told: str = ""
    """Name by which the error has it, where that is not the key."""


_WRONG = (
    _WrongKey("ses", "payload_mtu", 1500),
    _WrongKey("ses", "payload_mtuu", 1024),
    _WrongKey("run", "mode", "reliable"),
    _WrongKey("run", "target", "c"),
    _WrongKey("run", "seed", -1),
    _WrongKey("fabric", "crc", "maybe"),
    _WrongKey("fabric", "rate", "400 Gb"),
    _WrongKey("fabric", "topology", "ring"),
    _WrongKey("nodes.b", "address", "10.0.0.256"),
    _WrongKey("nodes.b", "address", None, "nodes.b"),
    _WrongKey("preset.a", "start_psn", 1 << 32),
    _WrongKey("preset.c", "start_psn", 1, "preset.c"),
    _WrongKey("pds", "rto_init_time", "5 parsec"),
    _WrongKey("faults", "drop", 2.0),
    _WrongKey("faults", "reorder_by", 0),
    _WrongKey("operation.0", "do", "wright"),
    _WrongKey("operation.0", "do", None),
    _WrongKey("operation.0", "after", "none"),
    _WrongKey("operation.0", "node", "c"),
)


@st.composite
def _spoilt_scenarios(draw: st.DrawFn, wanted: Wanted) -> Spoilt[str]:
    wrong = draw(st.sampled_from(_WRONG))
    tables, operations = draw(sections(wanted))
    values = operations[0] if wrong.table == "operation.0" else tables.setdefault(wrong.table, {})
    values[wrong.key] = wrong.value
    if wrong.value is None:
        del values[wrong.key]
    key = f"{wrong.table}.{wrong.key}"
    what = f"{key} is missing" if wrong.value is None else f"{key} is {wrong.value!r}"
    return draw(spoilt_value(Sections(tables, operations).text(), wrong.told or key, what))


# The strategy ---------------------------------------------------------------------------------------------------------


@overload
def scenarios(*, spoilt: Literal[False] = False, **options: Unpack[ScenarioOptions]) -> st.SearchStrategy[str]: ...
@overload
def scenarios(*, spoilt: Literal[True], **options: Unpack[ScenarioOptions]) -> st.SearchStrategy[Spoilt[str]]: ...
def scenarios(*, spoilt: bool = False, **options: Unpack[ScenarioOptions]) -> st.SearchStrategy[Any]:
    """Return a strategy for the TOML text of a scenario that `uetproto run` plays: operations between two nodes.

    A scenario is legal: `uetproto run FILE --check` ends with status 0. With `spoilt`, one key is missing, unknown or
    has a value that is refused: a `LocalError` names it (`Spoilt.rule`) and its line. `options` are those of
    `ScenarioOptions`. Raises `InvalidArgument` for a value that is not legal, and for values that exclude each other.
    """
    check_names("scenarios", options, (), ScenarioOptions)
    wanted = Wanted(**options).check()
    body = _spoilt_scenarios(wanted) if spoilt else sections(wanted).map(Sections.text)
    return named("scenarios", body, spoilt, options)
