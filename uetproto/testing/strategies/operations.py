# SPDX-License-Identifier: GPL-2.0-only
"""This module draws the operations of a scenario: the rows `[[operation]]` for each opcode that an application can ask
for.

Each operation has a region or a tag of its own. The other operations therefore do not change how it ends.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from hypothesis import strategies as st

from uetproto.engine.ses.atomics import LEGAL
from uetproto.testing.strategies.headers import numbers
from uetproto.wire.headers.uet_ses import (
    COMPARE_AND_SWAPS,
    OPCODE_PROFILES,
    TAGGED,
    AtomicDatatype,
    AtomicOpcode,
    Extension,
    Opcode,
)

Row = dict[str, Any]
LONGEST = 4
"""Number of full packets of the longest message."""
_ROOM = LONGEST + 1
"""Number of full packets that a region or a receive has room for."""
_LATER = "50 us"
_U64 = (1 << 64) - 1
_ELEMENTS = 4
_SMALL = 100
"""Largest operand of an atomic operation: no datatype overflows, and every one holds it exactly."""


class DrawnOperation(NamedTuple):
    """This tuple describes one operation. Its methods draw the rows of the operation."""

    draw: st.DrawFn
    opcode: Opcode
    mode: str
    mtu: int

    def rows(self) -> list[Row]:
        """Return the rows: what the target prepares, then what the initiator does.

        `numbered` changes the key, tag and sync group of the rows, so that no two operations share them.
        """
        return PLAYED[self.opcode](self)

    def maybe(self, **keys: st.SearchStrategy[Any]) -> Row:
        """Return a row with some of `keys`. Whether a key is in the row is drawn, and its value is drawn, too."""
        return {name: self.draw(values) for name, values in keys.items() if self.draw(st.booleans())}

    def region(self, **more: Any) -> Row:
        """Return a region. On RUDI its key permits idempotent access; on other modes some keys fit a small header."""
        small = self.draw(st.booleans())
        kind = 1 << 63 if self.mode == "rudi" else 1 << 62 if small else 0
        return {"do": "region", "key": kind, "length": _ROOM * self.mtu} | more

    def extent(self) -> Row:
        """Return a length and an offset within a region."""
        return {"length": self.length()} | self.maybe(offset=numbers(0, self.mtu))

    def length(self) -> int:
        """Return the number of bytes of a message that has some full packets and a last packet of any size."""
        full = 0 if self.mode == "uud" else self.draw(numbers(0, LONGEST - 1))
        return full * self.mtu + self.draw(numbers(0, self.mtu))

    def completion_data(self) -> Row:
        """Return a row that may have completion data. In RUDI the row is empty."""
        return {} if self.mode == "rudi" else self.maybe(completion_data=numbers(0, _U64))

    def sync(self) -> Row:
        """Return a row with a sync group of one message. The row is empty if the opcode has no sync group."""
        grouped = OPCODE_PROFILES[self.opcode].extension in (Extension.SYNC, Extension.SYNC_ATOMIC)
        return {"sync": [0, 1]} if grouped else {}


def numbered(row: Row, number: int) -> Row:
    """Return a row with the key, tag and sync group of the operation that has this number."""
    own: Row = {name: row[name] + number for name in ("key", "tag") if name in row}
    return row | own | ({"sync": [number, 1]} if "sync" in row else {})


def _nop(operation: DrawnOperation) -> list[Row]:
    return [{"do": "nop"}]


def _write(operation: DrawnOperation) -> list[Row]:
    region = operation.region()
    row = {"do": "write", "key": region["key"]} | operation.extent()
    return [region, row | operation.completion_data() | operation.sync()]


def _read(operation: DrawnOperation) -> list[Row]:
    region = operation.region()
    return [region, {"do": "read", "key": region["key"]} | operation.extent()]


def _send(operation: DrawnOperation) -> list[Row]:
    profile = OPCODE_PROFILES[operation.opcode]
    kind = {"kind": "deferrable"} if profile.deferrable else {}
    if profile.extension is Extension.RENDEZVOUS:
        kind = {"kind": "rendezvous"}
    tag = {"tag": 0} if operation.opcode in TAGGED else {}
    receive: Row = {"do": "receive", "length": _ROOM * operation.mtu} | tag
    send: Row = {"do": "send", "length": operation.length()} | tag | kind | operation.completion_data()
    if operation.mode != "uud" and operation.draw(st.booleans()):
        return [send, receive | {"at": _LATER}]  # the message comes first, and is held
    return [receive, send]


def _atomic(operation: DrawnOperation) -> list[Row]:
    draw, fetches = operation.draw, OPCODE_PROFILES[operation.opcode].fetches
    amo = draw(st.sampled_from(_FETCHING if fetches else _CHANGING))
    datatype = draw(st.sampled_from([code for code in AtomicDatatype if code in LEGAL[amo]]))
    most = 1 if fetches or amo in COMPARE_AND_SWAPS else _ELEMENTS
    row: Row = {"do": "atomic", "opcode": amo.name, "datatype": datatype.name}
    if amo is not AtomicOpcode.READ:
        operands = draw(st.lists(numbers(0, _SMALL), min_size=1, max_size=most))
        row["operand"] = operands[0] if len(operands) == 1 else operands
    if amo in COMPARE_AND_SWAPS:
        row["compare"] = draw(numbers(0, _SMALL))
    if fetches:
        row["fetch"] = True
    filled = {"datatype": datatype.name, "value": draw(numbers(0, _SMALL))}
    if operation.opcode in TAGGED:
        return [{"do": "receive", "length": 128, "tag": 0} | filled, row | {"tag": 0}]
    region = operation.region(length=128) | filled
    return [region, row | {"key": region["key"]} | operation.sync()]


_CHANGING = [code for code in AtomicOpcode if code not in (AtomicOpcode.READ, AtomicOpcode.INVAL)]
_FETCHING = [code for code in AtomicOpcode if code is not AtomicOpcode.INVAL]

PLAYED: dict[Opcode, Callable[[DrawnOperation], list[Row]]] = {
    Opcode.WRITE: _write,
    Opcode.READ: _read,
    Opcode.NO_OP: _nop,
    Opcode.ATOMIC: _atomic,
    Opcode.FETCHING_ATOMIC: _atomic,
    Opcode.SEND: _send,
    Opcode.RENDEZVOUS_SEND: _send,
    Opcode.DATAGRAM_SEND: _send,
    Opcode.DEFERRABLE_SEND: _send,
    Opcode.TAGGED_SEND: _send,
    Opcode.RENDEZVOUS_TSEND: _send,
    Opcode.DEFERRABLE_TSEND: _send,
    Opcode.TSEND_ATOMIC: _atomic,
    Opcode.TSEND_FETCH_ATOMIC: _atomic,
    Opcode.SYNC_WRITE: _write,
    Opcode.SYNC_ATOMIC: _atomic,
}
"""Functions that draw the rows, by opcode; first those that most modes have. No application sends MSG_ERROR or
DEFERRABLE_RTR."""
