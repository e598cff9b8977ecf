# SPDX-License-Identifier: GPL-2.0-only
"""This module does the operations of a UET capture anew towards a live peer."""

from typing import Any

from uetproto import LocalError
from uetproto.cli.live.initiator import Initiator
from uetproto.cli.live.options import LinkOptions
from uetproto.cli.live.replay.work import ReplayedOperation, WorkReplay
from uetproto.conform.expressions import named
from uetproto.conform.replay.differences import AnswerDifference, data_words
from uetproto.conform.replay.messages import CapturedMessage, MessageReader
from uetproto.engine.contract import Atomic, Completion, Mode, Nop, Read, Send, SendKind, Work, Write
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

_CODE = FORMS["ses.response"]["return_code"]


def _difference(what: str, message: CapturedMessage, fields: dict[str, tuple[str, str]]) -> AnswerDifference:
    """Return a difference between how an operation ended in the capture and now."""
    told = f"{message.mode.name} {message.opcode.name}, message_id {message.values.get('message_id', 'none')}"
    return AnswerDifference(what, message.number, f"{told}, {count(message.length, 'byte')}", fields)


_Operation = ReplayedOperation[CapturedMessage, Completion]


class UetWorkReplay(WorkReplay[CapturedMessage, Completion]):
    """This class does the operations of a side over UET."""

    def __init__(
        self, one: Initiator, reader: MessageReader, options: LinkOptions, ignored: frozenset[str], addresses: bool,
        key: int | None = None,
    ) -> None:  # fmt: skip
        """Take the operations to the peer of `one`."""
        super().__init__(one, reader, ignored)
        self._addresses, self._options = addresses, options
        self._first: dict[str, int] = {} if key is None else {"memory_key": key}
        self._datatypes: dict[int, int] = {}
        """Datatype of what an operation fetches, by its identity."""
        one.world.node.listeners.append(self._on_event)  # type: ignore[attr-defined]

    def _on_event(self, event: Any) -> None:
        if isinstance(event, Completion) and isinstance(event.context, ReplayedOperation):
            event.context.end = event

    def begin(self, operation: _Operation) -> bool:
        work = self._work(operation.message, operation)
        if work is not None:
            self.one.world.submit("local", work)
        return work is not None

    def judged(self, message: CapturedMessage, operation: _Operation, end: Completion) -> Any:
        datatype = self._datatypes.pop(id(operation), None)
        if message.return_code is None:
            return "unanswered"
        if end.error is not None or end.timed_out:
            why = "timed out" if end.error is None else end.error.reason.value
            return _difference("missing", message, {"return_code": (named(message.return_code, _CODE), f"none, {why}")})
        fields = self._fields(operation, end, datatype)
        return _difference("differs", message, fields) if fields else "same"

    @staticmethod
    def _fields(operation: _Operation, end: Completion, datatype: int | None) -> dict[str, tuple[str, str]]:
        message = operation.message
        found: dict[str, tuple[str, str]] = {}
        if message.return_code != end.return_code:
            found["return_code"] = named(message.return_code or 0, _CODE), named(end.return_code, _CODE)
        good = message.return_code == end.return_code == ReturnCode.OK
        if good and message.modified not in (None, end.modified) and not message.fetches:
            found["modified_length"] = str(message.modified), str(end.modified)
        if good and operation.into is not None:
            now = bytes(operation.into)
            if datatype is not None:
                now = wire_order(now, datatype)
            before = bytes(message.answer)[: len(now)]
            if before != now:
                found["payload"] = data_words(before, now)
        return found

    def _work(self, message: CapturedMessage, operation: _Operation) -> Work | None:
        """Return the work of a message. Raises `LocalError` for what no engine does."""
        values = message.values
        selects = OPCODE_PROFILES[message.opcode].selects
        common: dict[str, Any] = {
            "peer": self.one.peer_address, "mode": Mode(message.mode), "context": operation,
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
            common |= {"key": self._mapped("memory_key", key, self.one.key), "offset": offset + self.one.base}
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
            raise LocalError("atomic_datatype", f"{datatype} is not legal", id="unsupported-atomic")
        compare, data = None, bytes(message.data)
        if "compare_value" in values:
            compare = wire_order(operand_from_128(values["compare_value"], datatype), datatype)
            data = operand_from_128(values["swap_value"], datatype)
        elif opcode in COMPARE_AND_SWAPS:
            raise LocalError("atomic_opcode", f"{opcode} has no operands", id="unsupported-atomic")
        if len(data) % ELEMENT_SIZE[AtomicDatatype(datatype)]:
            raise LocalError("data", f"{len(data)} bytes are not whole elements", id="wrong-length")
        if message.fetches:
            operation.into = bytearray(ELEMENT_SIZE[AtomicDatatype(datatype)])
            self._datatypes[id(operation)] = datatype
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
        end = self.one.told.get("endpoint")
        found = end.get(name) if isinstance(end, dict) else None
        return found if isinstance(found, int) else given
