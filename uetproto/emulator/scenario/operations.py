# SPDX-License-Identifier: GPL-2.0-only
"""This module reads rows `[[operation]]` of a scenario: the operations of the applications at both nodes, in order.

    do = "write"       length, key, offset, completion_data, sync = [group, total]
    do = "read"        length, key, offset
    do = "atomic"      opcode, datatype, operand (a number, or several), compare, fetch, key or tag, offset, control,
                       sync
    do = "send"        length, tag, completion_data, kind = "plain", "rendezvous", "deferrable", offset
    do = "nop"         does nothing; like write, read, atomic and send, it also takes mode, job_id, pid_on_fep,
                       resource_index, initiator, relative, delivery_complete, as in `engine.contract`; a missing key
                       has the value of [run]
    do = "receive"     posts a buffer: length, tag, ignore, source, only_job, least, pid_on_fep, resource_index
    do = "region"      registers memory: length, key, base, remote_read, remote_write, job_restriction
    do = "withdraw"    removes the region `key`
    do = "incast"      a region and a write for each flow of the pattern between the nodes, in their order: length; key
                       is that of the first region; also "outcast", "permutation", "all_to_all" (docs/howto/fabric.md)
    do = "disable"     disables a resource index: space = "rma", "send", "tagged", resource_index; "enable" starts its
                       next generation

`node` names the node that performs the operation. The default is the target for `receive` and the operations listed
below `receive`, and the initiator for the other operations. `peer` names the other node of an operation: by default the
target, and for what the target does the initiator. Rows begin in their order, each at its time `at` or later. A row
with `after` also waits until the previous row ("previous"), or every earlier row ("all"), has ended. `expect` is the
return code with which the operation must end; the default is OK. TIMED_OUT means that no receive matches the message in
time. NONE means that the row has not ended when the run ends: a receive has got no message, or no receive has taken the
send.

The bytes are drawn with the seed; with `value` and `datatype`, a region or a receive is filled with equal elements
instead.
"""

import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any, NamedTuple

from uetproto.emulator.flows import PATTERNS
from uetproto.emulator.scenario.script_syntax import MODES, Refuse
from uetproto.engine.contract import Mode, SendKind
from uetproto.errors import Location, similar
from uetproto.knobs import KeyType
from uetproto.toml.values import BOOLEAN, MEMORY_KEY, TEXT, choice, integer, one_of, size, time
from uetproto.wire.headers.uet_ses import (
    ELEMENT_SIZE,
    EXT_ATOMIC,
    EXT_RENDEZVOUS,
    EXT_SYNC,
    OPCODE_PROFILES,
    AtomicDatatype,
    AtomicOpcode,
    Opcode,
    ReturnCode,
    Space,
)

TIMED_OUT, NONE = "TIMED_OUT", "NONE"
OUTCOMES = (*(code.name for code in ReturnCode if code not in (ReturnCode.NULL, ReturnCode.EXTENDED)), TIMED_OUT, NONE)


@dataclass(frozen=True, slots=True)
class OperationRow:
    """An operation row is a checked row that describes an operation."""

    where: Location
    """Place of the row: file, line and key."""
    do: str
    node: str
    at: int = 0
    after: str | None = None
    """Rows that must have ended before this row begins: "previous" (the row before it) or "all" (all rows before it).
    `after` is None if the row waits for no other row."""
    expect: str = ReturnCode.OK.name
    fields: Mapping[str, Any] = field(default_factory=dict)
    """Other keys of the row: fields of the work by the names of `engine.contract`, and `length`, `fetch`, `operand`,
    `value`."""
    peer: str = ""
    """Node to which the operation goes; over RoCE the queue pair says it."""
    pattern: str = ""
    """Traffic pattern that the row is part of."""

    @property
    def extension_size(self) -> int:
        """Return how many bytes of SES extension headers may stand before a full payload of this operation."""
        if self.fields.get("kind") is SendKind.RENDEZVOUS:
            return EXT_RENDEZVOUS.size
        sync = EXT_SYNC.size if "sync" in self.fields else 0
        return sync + (EXT_ATOMIC.size if self.do == "atomic" else 0)


# Keys -----------------------------------------------------------------------------------------------------------------


def _number(value: Any) -> Any:
    if type(value) not in (int, float):
        raise ValueError(value)
    return value


def _numbers(value: Any) -> tuple[Any, ...]:
    return tuple(_number(number) for number in value) if isinstance(value, list) else (_number(value),)


def _pair(value: Any) -> tuple[int, int]:
    group, total = value if isinstance(value, list) and len(value) == 2 else (None, None)
    key = integer(0, 0xFFFF)
    return key.check(group), key.check(total)


_AMO = choice({amo.name: int(amo) for amo in AtomicOpcode})
_U64 = integer(0, 2**64 - 1)

KEYS = {
    "do": TEXT,
    "node": TEXT,
    "peer": TEXT,
    "at": time(),
    "after": one_of(("previous", "all")),
    "expect": one_of(OUTCOMES),
    "mode": choice(MODES),
    "job_id": integer(0, 2**24 - 1),
    "pid_on_fep": integer(0, 4095),
    "resource_index": integer(0, 4095),
    "initiator": integer(0, 2**32 - 1),
    "relative": BOOLEAN,
    "delivery_complete": BOOLEAN,
    "length": size(0, 1 << 30),
    "key": MEMORY_KEY,
    "offset": _U64,
    "completion_data": _U64,
    "sync": KeyType(_pair, "[group, total], each 0 … 65535"),
    "opcode": KeyType(lambda value: value if type(value) is int and 0 <= value < 256 else _AMO.check(value),
                  f"{_AMO.legal}, or a whole number, 0 … 255"),
    "datatype": choice({datatype.name: datatype for datatype in AtomicDatatype}),
    "operand": KeyType(_numbers, "a number, or a list of numbers"),
    "compare": KeyType(_number, "a number"),
    "fetch": BOOLEAN,
    "control": integer(0, 255),
    "tag": _U64,
    "ignore": _U64,
    "source": integer(0, 2**32 - 1),
    "only_job": integer(0, 2**24 - 1),
    "least": size(0, 1 << 30),
    "kind": choice({kind.value: kind for kind in SendKind}),
    "base": _U64,
    "remote_read": BOOLEAN,
    "remote_write": BOOLEAN,
    "job_restriction": integer(0, 2**24 - 1),
    "value": KeyType(_number, "a number"),
    "space": choice({space.name.lower(): space for space in Space}),
}  # fmt: skip

_ALWAYS = ("do", "node", "at", "after")
_ADDRESSED = (
    "expect", "peer", "mode", "job_id", "pid_on_fep", "resource_index", "initiator", "relative", "delivery_complete",
)  # fmt: skip
_FILL = ("datatype", "value")


@dataclass(frozen=True, slots=True)
class OperationKind:
    """An operation kind has the keys that its rows may have, and the keys that its rows must have."""

    keys: tuple[str, ...]
    needed: tuple[str, ...] = ()
    by_target: bool = False
    """Whether the target performs the operation if the row names no node."""


KINDS = {
    "write": OperationKind((*_ADDRESSED, "length", "key", "offset", "completion_data", "sync"), ("length",)),
    "read": OperationKind((*_ADDRESSED, "length", "key", "offset"), ("length",)),
    "atomic": OperationKind(
        (*_ADDRESSED, "opcode", "datatype", "operand", "compare", "fetch", "key", "tag", "offset", "control", "sync"),
        ("opcode", "datatype"),
    ),
    "send": OperationKind((*_ADDRESSED, "length", "tag", "completion_data", "kind", "offset"), ("length",)),
    "nop": OperationKind(_ADDRESSED),
    "receive": OperationKind(
        ("expect", "length", "tag", "ignore", "source", "only_job", "least", "pid_on_fep", "resource_index", *_FILL),
        ("length",), by_target=True,
    ),
    "region": OperationKind(
        ("length", "key", "base", "remote_read", "remote_write", "job_restriction", *_FILL), ("length",),
        by_target=True,
    ),
    "withdraw": OperationKind(("key",), by_target=True),
    "disable": OperationKind(("resource_index", "space"), ("space",), by_target=True),
    "enable": OperationKind(("resource_index", "space"), ("space",), by_target=True),
    **dict.fromkeys(PATTERNS, OperationKind(
        (*(name for name in _ADDRESSED if name != "peer"), "length", "key"), ("length",)
    )),
}  # fmt: skip
WORK = ("write", "read", "atomic", "send", "nop")
"""Names (`do`) of the operations that end with a completion."""

_FIRST_KEY = 1 << 16
"""Key of the first region of traffic patterns."""

Table = Callable[[str, Mapping[str, KeyType], Any], dict[str, Any]]


class CheckedRow(NamedTuple):
    """A checked row has all keys that its operation needs, and only keys that are legal for it."""

    path: str
    row: Any
    do: str
    kind: OperationKind
    values: dict[str, Any]
    at: int


def checked_rows(
    rows: Sequence[Any], keys: Mapping[str, KeyType], kinds: Mapping[str, OperationKind], table: Table, refuse: Refuse
) -> Iterator[CheckedRow]:
    """Check rows of operations for any transport, and yield them. Raises `LocalError` for an unknown operation, an
    illegal or missing key, and a time before that of an earlier row.

    `keys` has the types of all keys, and `kinds` has the operations of the transport.
    """
    latest = 0
    for number, row in enumerate(rows):
        path = f"operation.{number}"
        values = table(path, keys, row)
        do = values.pop("do", None)
        if do not in kinds:
            raise refuse(
                f"{path}.do", f"{do!r}{similar(do, kinds)}" if do is not None else "is missing", ", ".join(kinds),
                id="missing-key"
            )  # fmt: skip
        kind = kinds[do]
        for name in values:
            if name not in (*_ALWAYS, *kind.keys):
                raise refuse(
                    f"{path}.{name}", f"does not go with {do}", ", ".join((*_ALWAYS, *kind.keys)),
                    id="not-with-operation"
                )  # fmt: skip
        for name in kind.needed:
            if name not in values:
                raise refuse(path, f"{do} needs {name}", keys[name].legal, id="missing-key")
        at = values.pop("at", 0)
        if 0 < at < latest:
            raise refuse(
                f"{path}.at", f"{at} ps is before the row above, {latest} ps", "rows in order", id="inconsistent-values"
            )
        latest = max(latest, at)
        yield CheckedRow(path, row, do, kind, values, at)


def operations_of(
    rows: Sequence[Any], run: Any, nodes: Sequence[str], table: Table, where: Callable[[str], Location], refuse: Refuse
) -> tuple[OperationRow, ...]:  # fmt: skip
    """Check all rows, and return them. `table` checks the keys of a row, and `run` holds the values of `[run]`."""
    found: list[OperationRow] = []
    keys = count(_FIRST_KEY)
    for path, row, do, kind, values, at in checked_rows(rows, KEYS, KINDS, table, refuse):
        if do in PATTERNS:
            if "node" in values:
                raise refuse(
                    f"{path}.node", f"does not go with {do}, which is between all nodes", id="not-with-operation"
                )
            _carried(path, "write", values, run.mode, refuse)
            first = values.pop("key", None)
            found += _flows(where(path), do, at, values, nodes, keys if first is None else count(first))
            continue
        node = values.pop("node", run.target if kind.by_target else run.initiator)
        peer = values.pop("peer", run.initiator if node == run.target else run.target)
        for key, name in (("node", node), ("peer", peer)):
            if name not in nodes:
                raise refuse(
                    f"{path}.{key}", f"no such node: {name!r}{similar(name, nodes)}", ", ".join(nodes),
                    id="unknown-node"
                )  # fmt: skip
        if peer == node:
            raise refuse(f"{path}.peer", "is the node itself", "another node", id="same-node")
        if ("value" in values) != ("datatype" in values) and do != "atomic":
            raise refuse(path, "has one of value and datatype", "both, or neither", id="conflicting-arguments")
        for name in ("operand", "compare", "value"):
            if name in values and "datatype" in values:
                numbers, datatype = values[name], values["datatype"]
                try:
                    elements(datatype, numbers if isinstance(numbers, tuple) else (numbers,))
                except (ValueError, OverflowError):
                    what = f"{_short(row[name])} is no element of {datatype.name}"
                    raise refuse(f"{path}.{name}", what, range_of(datatype), id="out-of-range") from None
        _together(path, do, values, refuse)
        _carried(path, do, values, run.mode, refuse)
        found.append(OperationRow(
            where(path), do, node, at, values.pop("after", None), values.pop("expect", ReturnCode.OK.name), values,
            peer,
        ))  # fmt: skip
    return tuple(found)


def _flows(
    where: Location, do: str, at: int, values: dict[str, Any], nodes: Sequence[str], keys: Iterator[int]
) -> Iterator[OperationRow]:
    """Yield the rows of a traffic pattern: first all regions, then all writes."""
    size = values.pop("length")
    expect, after = values.pop("expect", ReturnCode.OK.name), values.pop("after", None)
    flows = [(flow, next(keys)) for flow in PATTERNS[do](len(nodes), size)]
    blank = {"length": size, "datatype": AtomicDatatype.UINT8, "value": 0}
    for flow, key in flows:
        yield OperationRow(where, "region", nodes[flow.target], at, fields=blank | {"key": key}, pattern=do)
    for number, (flow, key) in enumerate(flows):
        yield OperationRow(
            where, "write", nodes[flow.source], at, None if number else after, expect,
            values | {"length": size, "key": key}, nodes[flow.target], do,
        )  # fmt: skip


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:20]}… ({len(text)} characters)"


def _together(path: str, do: str, values: Mapping[str, Any], refuse: Refuse) -> None:
    """Refuse keys that are legal one by one but not together."""
    length = values.get("length", 0)
    if "value" in values and length % (element := ELEMENT_SIZE[values["datatype"]]):
        legal = f"a multiple of {element}, the size of {values['datatype'].name}"
        raise refuse(f"{path}.length", f"{length} bytes are no whole elements", legal, id="wrong-length")
    if values.get("least", 0) > length and do == "receive":
        raise refuse(
            f"{path}.least", f"{values['least']} is more than the buffer has", f"0 … {length}", id="wrong-length"
        )


def _carried(path: str, do: str, values: Mapping[str, Any], of_run: Mode, refuse: Refuse) -> None:
    """Refuse an operation that the mode of the row, or else of [run], cannot carry."""
    if do not in _CARRIED or "kind" in values:
        return
    mode = values.get("mode", of_run)
    legal = frozenset[Mode]().union(*(OPCODE_PROFILES[code].modes for code in _CARRIED[do]))
    if mode not in legal:
        names = ", ".join(name for name, one in MODES.items() if one in legal)
        where, whose = (f"{path}.mode", "") if "mode" in values else ("run.mode", f" ({path})")
        raise refuse(where, f"{mode.name.lower()!r} does not carry {do}{whose}", names, id="not-with-mode")


_CARRIED = {
    "write": (Opcode.WRITE,), "read": (Opcode.READ,), "atomic": (Opcode.ATOMIC,), "nop": (Opcode.NO_OP,),
    "send": (Opcode.SEND, Opcode.DATAGRAM_SEND),
}  # fmt: skip
"""Request opcodes of each operation, to check the mode; for other operations the engine checks when they are played."""

# Elements -------------------------------------------------------------------------------------------------------------

_FLOATS = {
    AtomicDatatype.FP16: "<e", AtomicDatatype.FLOAT: "<f", AtomicDatatype.DOUBLE: "<d",
    AtomicDatatype.FLOAT_COMPLEX: "<fxxxx", AtomicDatatype.DOUBLE_COMPLEX: "<dxxxxxxxx",
}  # fmt: skip


def elements(datatype: AtomicDatatype, numbers: Sequence[int | float]) -> bytes:
    """Return the bytes of numbers as elements of `datatype` in host order. Complex elements have the imaginary part 0.

    Raises `ValueError` or `OverflowError` for a number that the datatype cannot hold.
    """
    return b"".join(_element(datatype, number) for number in numbers)


def _element(datatype: AtomicDatatype, number: int | float) -> bytes:
    if datatype in _FLOATS:
        return struct.pack(_FLOATS[datatype], float(number))  # OverflowError if too large
    if datatype is AtomicDatatype.BF16:
        return struct.pack("<f", float(number))[2:]
    if type(number) is not int or "INT" not in datatype.name:
        raise ValueError(number)
    return number.to_bytes(ELEMENT_SIZE[datatype], "little", signed=datatype.name.startswith("INT"))


_LARGEST = {
    AtomicDatatype.FP16: "65504", AtomicDatatype.BF16: "3.3895e38", AtomicDatatype.FLOAT: "3.4028e38",
    AtomicDatatype.FLOAT_COMPLEX: "3.4028e38", AtomicDatatype.DOUBLE: "1.7976e308",
    AtomicDatatype.DOUBLE_COMPLEX: "1.7976e308",
}  # fmt: skip


def range_of(datatype: AtomicDatatype) -> str:
    """Return a text that says which numbers a datatype can hold."""
    if datatype in _LARGEST:
        return f"a number, up to {_LARGEST[datatype]} in magnitude"
    if "INT" not in datatype.name:
        return f"none, {datatype.name} is not supported"
    bits = 8 * ELEMENT_SIZE[datatype]
    if datatype.name.startswith("INT"):
        return f"a whole number, -2^{bits - 1} … 2^{bits - 1} - 1"
    return f"a whole number, 0 … 2^{bits} - 1"
