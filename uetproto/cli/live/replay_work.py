# SPDX-License-Identifier: GPL-2.0-only
"""This module lets an engine do the operations of a capture anew towards a live peer, and compares how they end."""

from collections import Counter, deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from uetproto import LocalError
from uetproto.cli.live.initiator import Initiator, OperationFailedError, Stop
from uetproto.cli.live.options import LinkOptions
from uetproto.cli.terminal import printable
from uetproto.conform.expressions import named
from uetproto.conform.packets import AnswerPacket
from uetproto.conform.replay.differences import AnswerDifference, data_words
from uetproto.conform.replay.messages import CapturedMessage, MessageBegan, MessageReader
from uetproto.conform.replay.side import SidePacket
from uetproto.engine.contract import SECOND, Atomic, Completion, Mode, Nop, Read, Send, SendKind, Work, Write
from uetproto.engine.ses.atomics import operand_from_128, wire_order
from uetproto.engine.ses.headers import OPTIMIZED_KEY
from uetproto.wire.forms import FORMS
from uetproto.wire.headers.uet_ses import (
    ATOMICS,
    COMPARE_AND_SWAPS,
    ELEMENT_SIZE,
    OPCODE_PROFILES,
    AtomicDatatype,
    Opcode,
    ReturnCode,
    Selects,
)
from uetproto.wire.words.text import count

_OPEN = 64
"""Number of operations that are open at a time."""
_PATIENCE = 30 * SECOND
"""Longest time in picoseconds for which one operation may wait without an end."""
_CODE = FORMS["ses.response"]["return_code"]


def _difference(what: str, message: CapturedMessage, fields: dict[str, tuple[str, str]]) -> AnswerDifference:
    """Return a difference between how an operation ended in the capture and now."""
    told = f"{message.mode.name} {message.opcode.name}, message_id {message.values.get('message_id', 'none')}"
    return AnswerDifference(what, message.number, f"{told}, {count(message.length, 'byte')}", fields)


@dataclass(slots=True, eq=False)
class _Operation:
    """This class is an operation that is under way."""

    message: CapturedMessage
    into: bytearray | None
    """Buffer of what it reads or fetches."""
    datatype: int | None = None
    """Datatype of what it fetches."""
    end: Completion | None = None


class WorkReplay:
    """This class does the operations of a side, each after those that had ended before in the capture."""

    FIELDS: ClassVar = ("return_code", "modified_length", "payload")
    """Fields that are compared."""

    def __init__(
        self, one: Initiator, options: LinkOptions, capture: str, ignored: frozenset[str], addresses: bool,
        key: int | None = None,
    ) -> None:  # fmt: skip
        """Take the operations to the peer of `one`."""
        self._one = one
        self._reader = MessageReader(printable(capture))
        self._ignored, self._addresses = ignored, addresses
        self._options = options
        self._first: dict[str, int] = {} if key is None else {"memory_key": key}
        self._under_way: deque[_Operation] = deque()
        self._by_message: dict[int, _Operation] = {}
        self.left_out: Counter[str] = Counter()
        self.counts = {"same": 0, "differs": 0, "missing": 0, "extra": 0, "unanswered": 0}
        self.sent = 0
        self._stop: Stop = lambda: False
        self.error: str | None = None
        one.world.node.listeners.append(self._on_event)  # type: ignore[attr-defined]

    def play(
        self, packets: Iterable[SidePacket[AnswerPacket]], stop: Stop = lambda: False
    ) -> Iterator[AnswerDifference]:
        """Do the operations until `stop` returns true, and yield how they end otherwise than in the capture."""
        self._stop = stop
        try:
            for event in self._reader.read(packets):
                message = event.message
                if stop():
                    return
                if isinstance(event, MessageBegan):
                    yield from self._finish(_OPEN - 1)
                    self._begin(message)
                elif id(message) in self._by_message:
                    operation = self._by_message[id(message)]
                    self._wait(operation)
                    if not stop():
                        yield from self._judge(operation)
            yield from self._finish(0)
        except OperationFailedError as failed:
            self.error = str(failed)

    def summary(self) -> dict[str, Any]:
        """Return what came of it."""
        facts = self._one.summary()
        names = ("path", "packets_sent", "packets_received", "retransmissions")
        return {
            **{name: facts[name] for name in names if name in facts}, **self.counts, "sent": self.sent,
            "left_out": dict(self.left_out + self._reader.left_out), "error": self.error,
        }  # fmt: skip

    def _finish(self, left: int) -> Iterator[AnswerDifference]:
        """Wait for the oldest operations until at most `left` are under way."""
        while len(self._under_way) > left:
            operation = self._under_way[0]
            self._wait(operation)
            if self._stop():
                return
            yield from self._judge(operation)

    def _wait(self, operation: _Operation) -> None:
        """Wait until an operation has ended, or until the replay is to stop."""
        world, one = self._one.world, self._one
        began = world.now
        while not world.wait(lambda: operation.end is not None or one.gone or self._stop(), SECOND):
            if world.now - began > _PATIENCE:
                raise OperationFailedError(f"an operation did not end within {_PATIENCE // SECOND} s")
        if operation.end is None and not self._stop():
            raise OperationFailedError(f"{one.peer} has ended, with {len(self._under_way)} operations open")

    def _on_event(self, event: Any) -> None:
        if isinstance(event, Completion) and isinstance(event.context, _Operation):
            event.context.end = event

    def _begin(self, message: CapturedMessage) -> None:
        operation = _Operation(message, None)
        try:
            work = self._work(message, operation)
            if work is None:
                return
            self._one.world.submit("local", work)
        except LocalError as error:
            self.left_out[f"refused by the engine: {error}"] += 1
            return
        self.sent += 1
        self._under_way.append(operation)
        self._by_message[id(message)] = operation

    def _judge(self, operation: _Operation) -> Iterator[AnswerDifference]:
        self._under_way.remove(operation)
        del self._by_message[id(operation.message)]
        message, end = operation.message, operation.end
        assert end is not None
        if message.return_code is None:
            self.counts["unanswered"] += 1
            return
        if end.error is not None or end.timed_out:
            why = "timed out" if end.error is None else end.error.reason.value
            self.counts["missing"] += 1
            yield _difference("missing", message, {"return_code": (named(message.return_code, _CODE), f"none, {why}")})
            return
        fields = {name: pair for name, pair in self._fields(operation, end).items() if name not in self._ignored}
        self.counts["differs" if fields else "same"] += 1
        if fields:
            yield _difference("differs", message, fields)

    @staticmethod
    def _fields(operation: _Operation, end: Completion) -> dict[str, tuple[str, str]]:
        message = operation.message
        found: dict[str, tuple[str, str]] = {}
        if message.return_code != end.return_code:
            found["return_code"] = named(message.return_code or 0, _CODE), named(end.return_code, _CODE)
        good = message.return_code == end.return_code == ReturnCode.OK
        if good and message.modified not in (None, end.modified) and not message.fetches:
            found["modified_length"] = str(message.modified), str(end.modified)
        if good and operation.into is not None:
            now = bytes(operation.into)
            if operation.datatype is not None:
                now = wire_order(now, operation.datatype)
            before = bytes(message.answer)[: len(now)]
            if before != now:
                found["payload"] = data_words(before, now)
        return found

    def _work(self, message: CapturedMessage, operation: _Operation) -> Work | None:
        """Return the work of a message. Raises `LocalError` for what no engine does."""
        values = message.values
        selects = OPCODE_PROFILES[message.opcode].selects
        common: dict[str, Any] = {
            "peer": self._one.peer_address, "mode": Mode(message.mode), "context": operation,
            "job_id": self._mapped("job_id", values["job_id"], self._told("job_id", self._options.job_id)),
            "pid_on_fep": self._mapped("pid_on_fep", values["pid_on_fep"], self._told("pid_on_fep", self._options.pid)),
            "resource_index": self._mapped(
                "resource_index", values["resource_index"], self._told("resource_index", self._options.resource_index)
            ),
            "initiator": values.get("initiator", self._options.initiator_id), "relative": bool(values["rel"]),
            "delivery_complete": bool(values["dc"]),
        }  # fmt: skip
        hd = values.get("header_data") if values.get("hd") else None
        offset = values.get("buffer_offset", 0)
        if selects is Selects.REGION:
            key = values.get("memory_key", OPTIMIZED_KEY | values["resource_index"])
            common |= {"key": self._mapped("memory_key", key, self._one.key), "offset": offset + self._one.base}
        sync = (values["group"], values["count"]) if "group" in values else None
        if message.opcode in (Opcode.WRITE, Opcode.SYNC_WRITE):
            return Write(data=message.data, completion_data=hd, sync=sync, **common)
        if message.opcode is Opcode.READ:
            operation.into = bytearray(message.length)
            return Read(into=operation.into, **common)
        if message.opcode in ATOMICS:
            return self._atomic(message, operation, sync, common)
        if selects is Selects.RECEIVE:
            tagged = message.opcode in (Opcode.TAGGED_SEND, Opcode.DEFERRABLE_TSEND)
            deferrable = OPCODE_PROFILES[message.opcode].deferrable
            return Send(
                data=message.data, tag=values.get("match_bits") if tagged else None, completion_data=hd,
                kind=SendKind.DEFERRABLE if deferrable else SendKind.PLAIN, offset=0 if deferrable else offset,
                **common,
            )  # fmt: skip
        return Nop(**common) if message.opcode is Opcode.NO_OP else None

    def _atomic(
        self, message: CapturedMessage, operation: _Operation, sync: tuple[int, int] | None, common: dict[str, Any]
    ) -> Work:  # fmt: skip
        values = message.values
        datatype, opcode = values["atomic_datatype"], values["atomic_opcode"]
        if datatype not in AtomicDatatype._value2member_map_:
            raise LocalError("atomic_datatype", f"{datatype} is not legal")
        compare, data = None, bytes(message.data)
        if "compare_value" in values:
            compare = wire_order(operand_from_128(values["compare_value"], datatype), datatype)
            data = operand_from_128(values["swap_value"], datatype)
        elif opcode in COMPARE_AND_SWAPS:
            raise LocalError("atomic_opcode", f"{opcode} has no operands")
        if len(data) % ELEMENT_SIZE[AtomicDatatype(datatype)]:
            raise LocalError("data", f"{len(data)} bytes are not whole elements")
        if message.fetches:
            operation.into = bytearray(ELEMENT_SIZE[AtomicDatatype(datatype)])
            operation.datatype = datatype
        tag = values.get("match_bits") if message.opcode in (Opcode.TSEND_ATOMIC, Opcode.TSEND_FETCH_ATOMIC) else None
        return Atomic(
            opcode=opcode, datatype=datatype, data=wire_order(data, datatype), compare=compare, tag=tag,
            result=operation.into, control=values["semantic_control"], sync=sync, **common,
        )  # fmt: skip

    def _mapped(self, name: str, value: int, now: int) -> int:
        """Return the value of the peer in place of the first one of the capture, and others as captured."""
        if self._addresses and value == self._first.setdefault(name, value):
            return now
        return value

    def _told(self, name: str, given: int) -> int:
        """Return a number that the peer told of its endpoint, or that of the options."""
        end = self._one.told.get("endpoint")
        found = end.get(name) if isinstance(end, dict) else None
        return found if isinstance(found, int) else given
