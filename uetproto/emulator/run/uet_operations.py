# SPDX-License-Identifier: GPL-2.0-only
"""This module plays operations over UET: it drives the applications of both nodes. It also computes the content
that memory should have after the operations (ses.md §5, §6).
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from uetproto.emulator.flows import PATTERNS
from uetproto.emulator.run.operation_schedule import MemoryArea, OperationSchedule, ScheduledOperation, drawn, result_of
from uetproto.emulator.run.result import OperationOutcome, RunResult
from uetproto.emulator.run.scenario_run import Progress
from uetproto.emulator.run.uet_run import UetRun
from uetproto.emulator.run.verify import FrameJudge
from uetproto.emulator.scenario.operations import KINDS, NONE, TIMED_OUT, WORK, elements
from uetproto.emulator.scenario.settings import Scenario
from uetproto.engine.contract import (
    MILLISECOND,
    Atomic,
    Close,
    Completion,
    Event,
    Nop,
    PdcClosed,
    Read,
    Receive,
    Received,
    RemoteWrite,
    Send,
    Work,
    Write,
)
from uetproto.engine.memory import Region
from uetproto.engine.pds.states import Role
from uetproto.engine.ses import atomics as ses_atomics
from uetproto.engine.ses.received import RxMessage
from uetproto.engine.ses.transfer import TxMessage
from uetproto.errors import LocalError
from uetproto.wire.headers.uet_ses import ELEMENT_SIZE, AtomicOpcode, Opcode, ReturnCode

_TAGGED_ATOMICS = (Opcode.TSEND_ATOMIC, Opcode.TSEND_FETCH_ATOMIC)
_NO_OPERAND = (AtomicOpcode.READ, AtomicOpcode.INVAL)
_ADDRESS = ("mode", "job_id", "pid_on_fep", "resource_index", "relative", "delivery_complete")
_LOOK = 200  # events from one check whether all operations only wait to the next
_PATIENCE = 200 * MILLISECOND
"""Time in picoseconds that operations wait for a receive before the run ends: longer than any retransmission."""


@dataclass(slots=True, eq=False)
class UetOperation(ScheduledOperation):
    """A UET operation is a scheduled operation that is played over UET."""

    data: bytes = b""
    """Bytes of a write or a send, or operands of an atomic."""
    compare: bytes | None = None
    taken: list[tuple[MemoryArea, int]] = field(default_factory=list)
    """Places that an atomic with a tag has changed. Each place is the memory area of a receive and an offset in that
    area."""


class UetOperationsRun(UetRun):
    """This run plays operations over UET."""

    def __init__(self, scenario: Scenario) -> None:
        super().__init__(scenario)
        run_ = scenario.run
        acting = {name for row in scenario.operations for name in (row.node, row.peer)}
        others = (name for name in scenario.nodes if name in acting)
        self.ends = tuple(dict.fromkeys((run_.initiator, run_.target, *others)))
        """Nodes with an application."""
        self._names = {node.address: name for name, node in scenario.nodes.items()}
        job = run_.job_id if run_.relative else None
        self.processes = {
            name: self.feps[name].attach(job, run_.pid_on_fep, (run_.resource_index,)) for name in self.ends
        }
        self.operations = [UetOperation(number, row) for number, row in enumerate(scenario.operations)]
        self.regions: dict[tuple[str, int], MemoryArea] = {}
        """Registered memory. The key has the name of the node and the memory key of the region."""
        self.areas: list[MemoryArea] = []
        self.told: dict[str, list[RemoteWrite]] = {name: [] for name in self.ends}
        """Events that reported the completion data of writes at each node."""
        self._schedule = OperationSchedule(self.clock, self.operations, self._begin, self._advance)
        self._closing: set[tuple[str, int]] | None = None
        self._waiting: list[int] = []
        self._since = 0
        self._untaken: list[int] = []
        """Numbers of sends that no receive takes."""

    # Playing

    def play(self, progress: Progress | None) -> None:
        self._advance(None)
        while self.clock.run(self.scenario.run.time_limit, _LOOK):
            if self._stuck():
                waiting = (d for d in self._open() if not d.delivered and d.row.expect != NONE)
                self._untaken = [d.number for d in waiting]
                self.end("; ".join(f"operation {n} (send): no receive takes it" for n in self._untaken) or None)
                break
            if progress is not None:
                progress(
                    sum(d.length for d in self.operations if d.ended_at is not None),
                    sum(d.length for d in self.operations),
                )
        self.run_out()

    def _advance(self, _: object) -> None:
        """Begin all rows that may begin; after the last one has ended, close the PDCs."""
        if not self._schedule.advance():
            return
        if self._closing is None and all(d.ended_at is not None for d in self.operations if d.row.do in WORK):
            self._close()

    def _open(self) -> list[UetOperation]:
        """Return the operations that have begun and have yet to complete."""
        return [d for d in self.operations if d.began and d.ended_at is None and d.row.do in WORK]

    def _stuck(self) -> bool:
        """Return whether all open operations have only waited for a receive for the time `_PATIENCE`.

        The nodes then exchange requests and RCVD_SES_PROCG without end.
        """
        waiting = [operation.number for operation in self._open()] if self._only_waits() else []
        if waiting != self._waiting:
            self._waiting, self._since = waiting, self.clock.now
        return bool(waiting) and self.clock.now - self._since >= _PATIENCE

    def _only_waits(self) -> bool:
        """Return whether all open operations are messages that wait for a receive that no row will post.

        On ROD the messages behind such a message wait, too.
        """
        waiting = self._open()
        if not waiting or any(operation.row.do != "send" for operation in waiting):
            return False
        if self._schedule.ready:
            return False
        messages = [message for name in self.ends for message in self.feps[name].initiator.messages.values()]
        sent = [message for message in messages if isinstance(message, TxMessage)]  # no send is a lone write
        if sum(message.transfer is not None for message in sent) < len(waiting):
            return False
        delivered = [operation for operation in waiting if operation.delivered]
        held = {place for name in self.ends for place in self._held(name)}
        return all(
            (message.peer, message.message_id) in held
            or (message.transfer is not None and message.transfer.operation.context in delivered)
            for message in sent
        )

    def _held(self, name: str) -> set[tuple[int, int]]:
        """Return the complete messages that wait for a receive at a node: {address of the node, message id}."""
        queues = (index for space in self.processes[name].spaces.values() for index in space.values())
        return {
            (self._address(name), message.request.message_id or 0)
            for queue in queues
            for message in queue.held
            if isinstance(message, RxMessage) and message.arrived.complete
        }

    def _begin(self, operation: UetOperation) -> None:
        work = _ACTIONS[operation.row.do](self, operation)
        if work is not None:
            self.network.nics[operation.row.node].submit(work)
        if operation.row.do not in WORK and operation.row.do != "receive":
            self._schedule.end(operation, ReturnCode.OK.name)

    def _close(self) -> None:
        """Let each end close the PDCs that it opened; then the run ends."""
        opened = {
            (name, pdcid): pdc.peer
            for name in self.ends
            for pdcid, pdc in self.feps[name].pds.pdcs.items()
            if pdc.role is Role.INITIATOR and self.scenario.run.close
        }
        self._closing = set(opened)
        for name, peer in sorted({(name, peer) for (name, _), peer in opened.items()}):
            self.network.nics[name].submit(Close(peer=peer))
        if not self._closing:
            self.end(None)

    def _address(self, name: str) -> int:
        return self.scenario.nodes[name].address

    # What a row does

    def _content(self, operation: UetOperation) -> bytes:
        """Return the content of a row's memory or message: equal elements, or bytes drawn from the seed."""
        length: int = operation.get("length", 0)
        if "value" in operation.row.fields:
            element = elements(operation.get("datatype"), (operation.get("value"),))
            return (element * -(-length // len(element)))[:length]
        return drawn(self.chance("operation", str(operation.number)), length)

    def _area(self, content: bytes, base: int = 0) -> MemoryArea:
        area = MemoryArea(content, base)
        self.areas.append(area)
        return area

    def _addressed(self, operation: UetOperation, *names: str) -> dict[str, Any]:
        """Return the fields that address work to the other node; keys that the row lacks are those of [run]."""
        run_, row = self.scenario.run, operation.row
        fields = {name: operation.get(name, getattr(run_, name)) for name in _ADDRESS}
        given = {name: row.fields[name] for name in names if name in row.fields}
        return {
            "peer": self._address(row.peer), "initiator": operation.get("initiator", run_.initiator_id),
            "context": operation, **fields, **given,
        }  # fmt: skip

    def _key(self, operation: UetOperation) -> int:
        return int(operation.get("key", self.scenario.run.key))

    def _write(self, operation: UetOperation) -> Work:
        operation.data, operation.length = self._content(operation), operation.get("length")
        fields = self._addressed(operation, "offset", "completion_data", "sync")
        return Write(data=operation.data, key=self._key(operation), **fields)

    def _read(self, operation: UetOperation) -> Work:
        operation.length = operation.get("length")
        operation.area = self._area(bytes(operation.length))
        return Read(into=operation.area.actual, key=self._key(operation), **self._addressed(operation, "offset"))

    def _atomic(self, operation: UetOperation) -> Work:
        datatype = operation.get("datatype")
        operation.data = elements(datatype, operation.get("operand", ()))
        operation.length = len(operation.data)
        if "compare" in operation.row.fields:
            operation.compare = elements(datatype, (operation.get("compare"),))
        if operation.get("fetch"):
            operation.area = self._area(bytes(ELEMENT_SIZE[datatype]))
        return Atomic(
            data=operation.data, compare=operation.compare, result=operation.area and operation.area.actual,
            key=self._key(operation),
            **self._addressed(operation, "opcode", "datatype", "offset", "tag", "control", "sync"),
        )  # fmt: skip

    def _send(self, operation: UetOperation) -> Work:
        operation.data, operation.length = self._content(operation), operation.get("length")
        run_ = self.scenario.run
        fields = self._addressed(operation, "tag", "completion_data", "kind", "offset")
        return Send(data=operation.data, local_pid=run_.pid_on_fep, local_index=run_.resource_index, **fields)

    def _receive(self, operation: UetOperation) -> Work:
        run_ = self.scenario.run
        operation.length = operation.get("length")
        operation.area = self._area(self._content(operation))
        names = ("tag", "ignore", "source", "only_job", "least")
        return Receive(
            into=operation.area.actual, context=operation, job_id=run_.job_id if run_.relative else None,
            pid_on_fep=operation.get("pid_on_fep", run_.pid_on_fep),
            resource_index=operation.get("resource_index", run_.resource_index),
            **{name: operation.get(name) for name in names if name in operation.row.fields},
        )  # fmt: skip

    def _region(self, operation: UetOperation) -> None:
        key, names = self._key(operation), ("base", "remote_read", "remote_write", "job_restriction")
        area = self._area(self._content(operation), operation.get("base", 0))
        given = {name: operation.get(name) for name in names if name in operation.row.fields}
        self.processes[operation.row.node].register(Region(key, area.actual, **given))
        self.regions[operation.row.node, key] = area

    def _withdraw(self, operation: UetOperation) -> None:
        region = self.processes[operation.row.node].regions.get(self._key(operation))
        if region is None:
            raise LocalError("key", f"{self._key(operation):#x} is not registered", id="not-registered")
        region.enabled = False

    def _index(self, operation: UetOperation) -> Any:
        number = operation.get("resource_index", self.scenario.run.resource_index)
        indices = self.processes[operation.row.node].spaces[operation.get("space")]
        if number not in indices:
            raise LocalError(
                "resource_index", f"{number} is not open", ", ".join(map(str, indices)), id="not-registered"
            )
        return indices[number]

    # Events

    def on_event(self, name: str) -> Callable[[Event], None]:
        def take(event: Event) -> None:
            if isinstance(event, Completion):
                self._completed(event.context, event)
            elif isinstance(event, Received):
                self._received(event.receive.context, event, self._names[event.source])
            elif isinstance(event, RemoteWrite):
                self.told[name].append(event)
            elif isinstance(event, PdcClosed) and event.initiator and self._closing is not None:
                if event.error is not None:
                    self.end(f"the PDC was not closed: {event.error.reason.value}")
                self._closing.discard((name, event.pdcid))
                if not self._closing:
                    self.end(None)

        return take

    def _completed(self, operation: UetOperation, event: Completion) -> None:
        code = TIMED_OUT if event.timed_out else event.return_code.name
        check = _CHECKS.get(operation.row.do)
        if check is not None:
            operation.match = check(self, operation, self._place(operation), event.ok)
        self._schedule.end(operation, code)
        self._advance(None)

    def _place(self, operation: UetOperation) -> tuple[MemoryArea, int] | None:
        """Return the area and the byte in it on which an operation acts at the peer; None if there is none."""
        if operation.get("tag") is not None:
            return operation.taken.pop() if operation.taken else None
        area = self.regions.get((operation.row.peer, self._key(operation)))
        if area is None:
            return None
        at = operation.get("offset", 0) - area.base
        return (area, at) if 0 <= at <= len(area.actual) else None

    def _check_write(self, operation: UetOperation, place: tuple[MemoryArea, int] | None, ok: bool) -> bool:
        if place is None:
            return not ok
        area, at = place
        if at + len(operation.data) > len(area.actual):
            return not ok
        if not ok:
            return area.may_put(at, operation.data, self._mtu, waits="sync" in operation.row.fields)
        return area.put(at, operation.data) and self._is_told(operation)

    def _is_told(self, operation: UetOperation) -> bool:
        """Return whether the target was told the completion data of a write, and for no more writes than have it."""
        data, length = operation.get("completion_data"), len(operation.data)
        told = [e for e in self.told[operation.row.peer] if (e.data, e.length) == (data, length)]
        alike = [
            other
            for other in self.operations
            if other.began and (other.row.do, other.row.peer) == ("write", operation.row.peer)
            and (other.get("completion_data"), len(other.data)) == (data, length)
        ]  # fmt: skip
        return data is None or 1 <= len(told) <= len(alike)

    def _check_read(self, operation: UetOperation, place: tuple[MemoryArea, int] | None, ok: bool) -> bool:
        assert operation.area is not None
        if place is None:
            return not ok and operation.area.same(0, operation.length)
        area, at = place
        data = bytes(area.expected[at : at + operation.length])
        if len(data) < operation.length:
            return not ok and operation.area.same(0, operation.length)
        return operation.area.put(0, data) if ok else operation.area.may_put(0, data, self._mtu)

    def _check_atomic(self, operation: UetOperation, place: tuple[MemoryArea, int] | None, ok: bool) -> bool:
        if not ok or place is None:
            return not ok
        area, at = place
        datatype, amo = operation.get("datatype"), operation.get("opcode")
        size = len(operation.data) or (ELEMENT_SIZE[datatype] if amo in _NO_OPERAND else 0)
        order = ses_atomics.wire_order
        done = ses_atomics.execute(
            amo, datatype, area.expected[at : at + size], order(operation.data, datatype),
            order(operation.compare or b"", datatype),
        )  # fmt: skip
        changed = area.put(at, done.memory)
        return changed and (operation.area is None or operation.area.put(0, order(done.old, datatype)))

    @property
    def _mtu(self) -> int:
        return min(self.scenario.nodes[name].ses.payload_mtu for name in self.ends)

    def _received(self, operation: UetOperation, event: Received, sender: str) -> None:
        """Take a message into the receive `operation`; tag, length and bytes tell which send it is."""
        area = operation.area
        assert area is not None
        sent = self._sent(event, sender, bytes(area.actual[event.start : event.start + event.length]))
        if event.opcode in _TAGGED_ATOMICS:
            if sent is not None:
                sent.taken.append((area, event.start))
        elif event.return_code is not ReturnCode.OK:
            if sent is not None:
                room = len(area.actual) - event.start
                area.may_put(event.start, sent.data[:room], self._mtu)
        elif sent is None:
            operation.match = False
        else:
            sent.delivered = True
            operation.match = area.put(event.start, sent.data[: event.length]) and operation.match
        if event.spent or event.return_code is not ReturnCode.OK:
            self._schedule.end(operation, event.return_code.name)
        else:
            operation.status = event.return_code.name
        self._advance(None)

    def _sent(self, event: Received, sender: str, stored: bytes) -> UetOperation | None:
        """Return the oldest operation of `sender` that the message can come from."""
        atomic = event.opcode in _TAGGED_ATOMICS
        good = event.return_code is ReturnCode.OK
        for operation in self.operations:
            if (
                not operation.began
                or operation.row.node != sender
                or operation.delivered
                or operation.get("tag", 0) != event.tag
            ):
                continue
            if atomic and operation.row.do == "atomic" and not operation.taken and operation.ended_at is None:
                return operation
            if not atomic and operation.row.do == "send" and len(operation.data) == event.message_length and (
                not good or (operation.data.startswith(stored) and operation.get("completion_data") == event.data)
            ):  # fmt: skip
                return operation
        return None

    # The result

    def outcome(self, judge: FrameJudge | None, output: str | None) -> RunResult:
        outcomes = [self._outcome(one) for one in self.operations if one.row.do in (*WORK, "receive")]
        moved = sum(one.length for one in outcomes if one.do in WORK and one.return_code == ReturnCode.OK.name)
        return result_of(self, outcomes, self.areas, moved, judge, output, self._untaken)

    def _outcome(self, operation: UetOperation) -> OperationOutcome:
        row = operation.row
        ok = operation.status == ReturnCode.OK.name
        match = operation.match and (row.do != "send" or not ok or operation.delivered)
        if row.do == "receive" and operation.area is not None:
            match = match and operation.area.same(0, operation.length)
        return operation.outcome(match)


_ACTIONS: dict[str, Callable[[UetOperationsRun, UetOperation], Work | None]] = {
    "write": UetOperationsRun._write,
    "read": UetOperationsRun._read,
    "atomic": UetOperationsRun._atomic,
    "send": UetOperationsRun._send,
    "nop": lambda run, operation: Nop(**run._addressed(operation)),
    "receive": UetOperationsRun._receive,
    "region": UetOperationsRun._region,
    "withdraw": UetOperationsRun._withdraw,
    "disable": lambda run, operation: run._index(operation).disable(),
    "enable": lambda run, operation: run._index(operation).enable(),
}
"""Functions that play a row, by its `do`; they return work for the node's engine, or None."""
assert _ACTIONS.keys() == KINDS.keys() - PATTERNS.keys()

_CHECKS: dict[str, Callable[[UetOperationsRun, UetOperation, tuple[MemoryArea, int] | None, bool], bool]] = {
    "write": UetOperationsRun._check_write,
    "read": UetOperationsRun._check_read,
    "atomic": UetOperationsRun._check_atomic,
}
"""Functions that return whether the effects of an operation are as expected, by its `do`.

The arguments are {run, operation, place at the peer, success}."""
