# SPDX-License-Identifier: GPL-2.0-only
"""This module plays the operations of a scenario at one end of a real link (ses.md §5, §6).

Each end plays the rows of its own node. One end directs: it says when a row begins, and asks how it ended. The content
of a row follows from the seed and the number of the row, so both ends know all bytes.
"""

import hashlib
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from uetproto.engine.contract import (
    Atomic,
    Cancelled,
    Completion,
    Event,
    Nop,
    Read,
    Receive,
    Received,
    Send,
    Work,
    Write,
)
from uetproto.engine.memory import Region
from uetproto.engine.ses.addressing import Process
from uetproto.errors import LocalError
from uetproto.wire.headers.uet_ses import ELEMENT_SIZE

TIMED_OUT = "TIMED_OUT"
_ADDRESS = ("mode", "job_id", "pid_on_fep", "resource_index", "relative", "delivery_complete")
Elements = Callable[[Any, Sequence[Any]], bytes]


class Row(Protocol):
    """This protocol is a row [[operation]] of a scenario, as `emulator.scenario.operations.OperationRow` has it."""

    @property
    def do(self) -> str: ...
    @property
    def node(self) -> str: ...
    @property
    def fields(self) -> Mapping[str, Any]: ...


@dataclass(slots=True, eq=False)
class RowState:
    """This class has what became of a row."""

    number: int
    code: str | None = None
    """Name of the return code with which the operation ended, or None before its end."""
    area: bytearray | None = None
    """Memory of a region, or buffer of a receive, a read or a fetching atomic."""
    length: int = 0
    """Number of bytes that a receive has taken."""

    def digest(self) -> str | None:
        """Return the SHA-256 of the memory of the row, if it has any."""
        return None if self.area is None else hashlib.sha256(self.area).hexdigest()


class ScriptEnd:
    """This class plays the rows of one node."""

    def __init__(
        self, rows: Sequence[Row], defaults: Any, *, seed: int, process: Process, peer: int,
        submit: Callable[[Work], None], elements: Elements,
    ) -> None:  # fmt: skip
        """`defaults` has the keys of [run] that a row may leave out, and `elements` makes the bytes of numbers of a
        datatype."""
        self.rows, self._defaults, self._seed = rows, defaults, seed
        self._process, self._peer, self._submit, self._elements = process, peer, submit, elements
        self.states: dict[int, RowState] = {}

    def content(self, number: int) -> bytes:
        """Return the bytes of the memory or message of a row."""
        fields = self.rows[number].fields
        length: int = fields.get("length", 0)
        if "value" in fields:
            element = self._elements(fields["datatype"], (fields["value"],))
            return (element * -(-length // len(element)))[:length]
        if self.rows[number].do == "read":
            return bytes(length)
        return random.Random(f"{self._seed}/{number}").randbytes(length)

    def key(self, number: int) -> int:
        """Return the memory key of a row."""
        return int(self.rows[number].fields.get("key", self._defaults.key))

    def begin(self, number: int) -> None:
        """Begin a row. Raises `LocalError` for a row that is not possible."""
        row = self.rows[number]
        state = self.states[number] = RowState(number)
        work = ACTIONS[row.do](self, state, row.fields)
        if work is None:
            state.code = "OK"
        else:
            self._submit(work)

    def on_event(self, event: Event) -> None:
        """Note the end of operations and receives."""
        if isinstance(event, Completion) and isinstance(event.context, RowState):
            event.context.code = TIMED_OUT if event.timed_out else event.return_code.name
        elif isinstance(event, Received) and isinstance(event.receive.context, RowState):
            state = event.receive.context
            state.length += event.length
            if event.spent or event.return_code:
                state.code = event.return_code.name
        elif isinstance(event, Cancelled) and isinstance(event.receive.context, RowState):
            event.receive.context.code = "CANCELLED"

    # What a row does

    def _addressed(self, state: RowState, fields: Mapping[str, Any], *names: str) -> dict[str, Any]:
        address = {name: fields.get(name, getattr(self._defaults, name)) for name in _ADDRESS}
        given = {name: fields[name] for name in names if name in fields}
        initiator = fields.get("initiator", self._defaults.initiator_id)
        return {"peer": self._peer, "initiator": initiator, "context": state, **address, **given}

    def _write(self, state: RowState, fields: Mapping[str, Any]) -> Work:
        more = self._addressed(state, fields, "offset", "completion_data", "sync")
        return Write(data=self.content(state.number), key=self.key(state.number), **more)

    def _read(self, state: RowState, fields: Mapping[str, Any]) -> Work:
        state.area = bytearray(fields["length"])
        return Read(into=state.area, key=self.key(state.number), **self._addressed(state, fields, "offset"))

    def _atomic(self, state: RowState, fields: Mapping[str, Any]) -> Work:
        datatype = fields["datatype"]
        compare = self._elements(datatype, (fields["compare"],)) if "compare" in fields else None
        if fields.get("fetch"):
            state.area = bytearray(ELEMENT_SIZE[datatype])
        return Atomic(
            data=self._elements(datatype, fields.get("operand", ())), compare=compare, result=state.area,
            key=self.key(state.number),
            **self._addressed(state, fields, "opcode", "datatype", "offset", "tag", "control", "sync"),
        )  # fmt: skip

    def _send(self, state: RowState, fields: Mapping[str, Any]) -> Work:
        more = self._addressed(state, fields, "tag", "completion_data", "kind", "offset")
        run = self._defaults
        return Send(data=self.content(state.number), local_pid=run.pid_on_fep, local_index=run.resource_index, **more)

    def _nop(self, state: RowState, fields: Mapping[str, Any]) -> Work:
        return Nop(**self._addressed(state, fields))

    def _receive(self, state: RowState, fields: Mapping[str, Any]) -> Work:
        run = self._defaults
        state.area = bytearray(self.content(state.number))
        names = ("tag", "ignore", "source", "only_job", "least")
        return Receive(
            into=state.area, context=state, job_id=run.job_id if run.relative else None,
            pid_on_fep=fields.get("pid_on_fep", run.pid_on_fep),
            resource_index=fields.get("resource_index", run.resource_index),
            **{name: fields[name] for name in names if name in fields},
        )  # fmt: skip

    def _region(self, state: RowState, fields: Mapping[str, Any]) -> None:
        state.area = bytearray(self.content(state.number))
        given = {
            name: fields[name] for name in ("base", "remote_read", "remote_write", "job_restriction") if name in fields
        }
        self._process.register(Region(self.key(state.number), state.area, **given))

    def _withdraw(self, state: RowState, fields: Mapping[str, Any]) -> None:
        region = self._process.regions.get(self.key(state.number))
        if region is None:
            raise LocalError("key", f"{self.key(state.number):#x} is not registered", id="not-registered")
        region.enabled = False

    def _index(self, fields: Mapping[str, Any]) -> Any:
        number = fields.get("resource_index", self._defaults.resource_index)
        indices = self._process.spaces[fields["space"]]
        if number not in indices:
            raise LocalError(
                "resource_index", f"{number} is not open", ", ".join(map(str, indices)), id="not-registered"
            )
        return indices[number]

    def _disable(self, state: RowState, fields: Mapping[str, Any]) -> None:
        self._index(fields).disable()

    def _enable(self, state: RowState, fields: Mapping[str, Any]) -> None:
        self._index(fields).enable()


ACTIONS: dict[str, Callable[[ScriptEnd, RowState, Mapping[str, Any]], Work | None]] = {
    "write": ScriptEnd._write, "read": ScriptEnd._read, "atomic": ScriptEnd._atomic, "send": ScriptEnd._send,
    "nop": ScriptEnd._nop, "receive": ScriptEnd._receive, "region": ScriptEnd._region,
    "withdraw": ScriptEnd._withdraw, "disable": ScriptEnd._disable, "enable": ScriptEnd._enable,
}  # fmt: skip
"""What each row does, by its `do`; the result is work for the engine, or None if the row has ended."""
