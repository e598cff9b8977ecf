# SPDX-License-Identifier: GPL-2.0-only
"""This module turns the application's work (`Write`, `Send`, …) into SES messages (ses.md §4.1, §5, §13.5).

It checks the arguments and chooses opcode, header form and header fields.
"""

from collections.abc import Callable
from dataclasses import fields
from operator import attrgetter, rshift
from typing import TYPE_CHECKING, Any, TypeAlias

from uetproto.engine.config import SesConfig
from uetproto.engine.contract import (
    PDC_MODES,
    Addressed,
    Atomic,
    Completion,
    Mode,
    Nop,
    PdsError,
    Read,
    Send,
    SendKind,
    Write,
)
from uetproto.engine.memory import IDEMPOTENT_SAFE, BufferMemory, Memory, MemoryWindow, as_memory
from uetproto.engine.ses import atomics as ses_atomics
from uetproto.engine.ses.checks import CAS_LENGTH
from uetproto.engine.ses.headers import OPTIMIZED_KEY, AtomicExtension, build_extensions
from uetproto.engine.ses.segments import MessagePlan
from uetproto.errors import LocalError
from uetproto.wire.headers.uet_pds import NextHdr
from uetproto.wire.headers.uet_ses import (
    COMPARE_AND_SWAPS,
    ELEMENT_SIZE,
    OPCODE_PROFILES,
    AtomicOpcode,
    Opcode,
    ReturnCode,
)
from uetproto.wire.tuples import SesExtRendezvousHeader, SesExtSyncHeader

if TYPE_CHECKING:
    from uetproto.engine.ses.transfer import MessageTransfer

# Looked up once: with every message, Class.MEMBER would cost as much as a call.
_OK, _RUDI, _WRITE, _SYNC_WRITE, _STD = (
    ReturnCode.OK, Mode.RUDI, Opcode.WRITE, Opcode.SYNC_WRITE, NextHdr.REQUEST_STD
)  # fmt: skip
_SHORT = (1 << 14) - 1
"""Largest request_length of medium and small headers: the field has 14 bits."""


OnRead: TypeAlias = Callable[[int, int], None]
"""Function that is called with (number of bytes, time in picoseconds) when a peer has read and acknowledged bytes."""


class SesOperation:
    """A SES operation is work of the application that is in progress, a `Write` for instance. It has one SES message,
    or several messages if it is longer than `max_msg_size`, and ends with one completion."""

    __slots__ = (
        "base", "code", "context", "count", "datatype", "error", "expose", "fetches", "first_id", "length", "limit",
        "mode", "modified", "on_end", "open", "pdc_context", "peer", "refusals", "reserved", "sink", "timed_out",
    )  # fmt: skip

    def __init__(self, work: Addressed, base: MessagePlan, length: int, limit: int) -> None:
        self.peer = work.peer
        self.mode = work.mode
        self.context: Any = work.context
        self.pdc_context = work.pdc_context
        self.reserved = work.reserved
        self.base = base
        """The plan of the operation as if it were one message; `plan_of` derives the plan of each message from it."""
        self.length = length
        self.limit = limit
        self.count = 1 if length <= limit else -(-length // limit)
        self.open = 0
        self.first_id: int | None = None
        self.code = _OK
        """Return code of the first message of the operation that failed; OK if none has failed."""
        self.error: PdsError | None = None
        self.modified = self.refusals = 0
        self.timed_out = False
        self.sink: Memory | None = None
        """Memory that takes the data of a read or of a fetching atomic; None for other operations."""
        self.fetches = False
        """Whether the operation is a fetching atomic, whose data is one element in wire order."""
        self.datatype = 0
        self.expose: Callable[[OnRead], Callable[[], None]] | None = None
        """Function that makes the source buffer of a rendezvous send readable, and returns a function that revokes
        this."""
        self.on_end: Callable[[Completion, int], None] | None = None
        """Function that takes the completion of an operation that the engine itself began. It is None for an operation
        of the application, whose completion becomes an event."""

    def take_end(self, transfer: "MessageTransfer", failed: bool) -> None:
        """Add the result of an ended message to the result of the operation."""
        self.open -= 1
        if failed and self.code == _OK:
            self.code = transfer.code
        if self.error is None:
            self.error = transfer.error
        told = transfer.modified
        self.modified += (0 if failed else transfer.plan.request_length) if told is None else told
        self.refusals += transfer.refusals
        self.timed_out = self.timed_out or transfer.timed_out

    def from_wire(self, data: Any) -> bytes:
        """Convert an element from the byte order of the wire to that of the host."""
        return ses_atomics.wire_order(data, self.datatype)


def plan_of(operation: SesOperation, piece: int) -> MessagePlan:
    """Return the plan of the message with index `piece` in an operation. Only the last message carries the completion
    data (ses.md §8.4)."""
    if operation.count == 1:
        return operation.base
    base, at = operation.base, piece * operation.limit
    size = min(operation.limit, operation.length - at)
    last = piece + 1 == operation.count
    return base.moved(
        offset=base.offset + at, start=base.start + at, request_length=size,
        body=size, header_data=base.header_data if last else None,
    )  # fmt: skip


# Checks of the caller's arguments ------------------------------------------------------------------------------------

_BITS = {
    "job_id": 24, "pid_on_fep": 12, "resource_index": 12, "initiator": 32, "key": 64, "offset": 64, "tag": 64,
    "match_bits": 64, "completion_data": 64, "control": 8,
}  # fmt: skip
_OPTIONAL = ("tag", "match_bits", "completion_data")
_INTEGERS = {int}


def check_fields(work: Addressed) -> None:
    """Raise `LocalError` if a field of the work is no number, or needs more bits than its field in the header has."""
    needed, values_of, widths, optional = _NUMBERS[type(work)]
    values = values_of(work)
    # The common case is seen without a loop in Python, which would cost as much as the operation.
    if {*map(type, values)} != _INTEGERS or any(map(rshift, values, widths)):
        for name, value in zip(needed, values, strict=True):
            _check_number(name, value, "")
    for name in optional:
        value = getattr(work, name)
        if value is not None:
            _check_number(name, value, "None, ")


def _check_number(name: str, value: object, none: str) -> None:
    if type(value) is not int or value >> _BITS[name]:
        raise LocalError(name, f"{value!r} is not legal", f"{none}0 … {(1 << _BITS[name]) - 1:#x}", id="out-of-range")


def _check_mode(work: Addressed, legal: tuple[Mode, ...]) -> None:
    if not isinstance(work.mode, Mode) or work.mode not in legal:
        raise LocalError("mode", f"{work.mode!r} is not legal", ", ".join(m.name for m in legal), id="unknown-name")


def stretch(memory: Memory, start: object, length: object) -> int:
    """Return `length`, or the number of bytes from `start` to the end of the memory if `length` is None.

    Raises `LocalError` if these bytes are not all inside the memory.
    """
    whole = memory.length
    if type(start) is not int or not 0 <= start <= whole:
        raise LocalError("start", f"{start!r} is not legal", f"0 … {whole}", id="out-of-range")
    if length is None:
        return whole - start
    if type(length) is not int or not 0 <= length <= memory.length - start:
        raise LocalError(
            "length", f"{length!r} from {start} is not legal", f"inside 0 … {memory.length}", id="out-of-range"
        )
    return length


def _sync(sync: object) -> SesExtSyncHeader | None:
    if sync is None:
        return None
    fine = isinstance(sync, tuple) and len(sync) == 2
    if not fine or any(type(x) is not int or not 0 <= x < 1 << 16 for x in sync):  # type: ignore[attr-defined]
        raise LocalError("sync", f"{sync!r} is not legal", "None, (group, total) of 16 bits each", id="out-of-range")
    return SesExtSyncHeader(*sync)  # type: ignore[misc]


_RMA_MODES = (*PDC_MODES, Mode.RUDI)

# One function a kind of work -----------------------------------------------------------------------------------------


def _base(work: Addressed, opcode: Opcode, config: SesConfig, **fields: Any) -> MessagePlan:
    return MessagePlan(
        opcode=opcode, dc=work.delivery_complete, rel=work.relative, job_id=work.job_id, pid_on_fep=work.pid_on_fep,
        resource_index=work.resource_index, initiator=work.initiator, hd_in_all=config.hd_in == "all", **fields,
    )  # fmt: skip


def _form(plan: MessagePlan, config: SesConfig) -> NextHdr:
    """Return the shortest header form that has all needed fields (ses.md §4.1), or the standard form without
    `optimized_headers`."""
    if not config.optimized_headers or plan.request_length > min(config.payload_mtu, _SHORT):
        return _STD
    row = OPCODE_PROFILES[plan.opcode]  # type: ignore[index]
    plain = plan.header_data is None
    index = plan.key ^ OPTIMIZED_KEY
    if NextHdr.REQUEST_SMALL in row.forms and plain and plan.opcode != Opcode.SEND and 0 <= index < 1 << 12:
        return NextHdr.REQUEST_SMALL
    if NextHdr.REQUEST_MEDIUM in row.forms and (plain or not plan.offset):
        return NextHdr.REQUEST_MEDIUM
    return NextHdr.REQUEST_STD


def _formed(plan: MessagePlan, config: SesConfig) -> MessagePlan:
    plan.form = _form(plan, config)
    return plan


def _write(work: Write, config: SesConfig) -> SesOperation:
    mode = work.mode
    if type(mode) is not Mode or mode not in _RMA_MODES:
        _check_mode(work, _RMA_MODES)
    memory = as_memory(work.data)
    start, length = work.start, work.length
    length = stretch(memory, start, length)
    sync = None if work.sync is None else _sync(work.sync)
    if mode is _RUDI:
        if work.completion_data is not None or sync is not None:
            raise LocalError(
                "completion_data", "not legal with mode RUDI", "None (a write may be repeated there)",
                id="not-with-mode"
            )  # fmt: skip
        if not work.key & IDEMPOTENT_SAFE:
            raise LocalError(
                "key", f"{work.key:#x} is not legal with mode RUDI", "with IDEMPOTENT_SAFE, bit 63", id="not-with-mode"
            )
    plan = MessagePlan(  # in the order of its fields, as names would cost as much as the rest
        _WRITE if sync is None else _SYNC_WRITE, _STD, work.delivery_complete, work.relative, work.job_id,
        work.pid_on_fep, work.resource_index, 0, work.offset, work.initiator, work.key, work.completion_data, length,
        length, b"" if sync is None else build_extensions(sync=sync), memory, start, config.hd_in == "all",
    )  # fmt: skip
    if sync is not None and length > config.max_msg_size:
        raise LocalError(
            "length", f"{length} is not legal in a sync group", f"0 … {config.max_msg_size}", id="wrong-length"
        )
    if config.optimized_headers:
        _formed(plan, config)
    return SesOperation(work, plan, length, config.max_msg_size)


def _read(work: Read, config: SesConfig) -> SesOperation:
    _check_mode(work, _RMA_MODES)
    memory = as_memory(work.into)
    length = stretch(memory, work.start, work.length)
    if length and getattr(memory, "read_only", False):
        raise LocalError("into", "read-only", "a writable buffer", id="read-only")
    if work.mode is Mode.RUDI and not work.key & IDEMPOTENT_SAFE:
        raise LocalError(
            "key", f"{work.key:#x} is not legal with mode RUDI", "with IDEMPOTENT_SAFE, bit 63", id="not-with-mode"
        )
    plan = _base(
        work, Opcode.READ, config, offset=work.offset, key=work.key, request_length=length, body=length,
        start=work.start, lone_eom=config.lone_read_eom,
    )  # fmt: skip
    operation = SesOperation(work, _formed(plan, config), length, config.max_msg_size)
    operation.sink = memory
    return operation


def _atomic(work: Atomic, config: SesConfig) -> SesOperation:
    """Plan an atomic, which has one packet; combinations that ses.md §6 forbids are sent, for the target to refuse."""
    _check_mode(work, PDC_MODES)
    for name in ("opcode", "datatype"):
        value = getattr(work, name)
        if not isinstance(value, int) or not 0 <= value < 256:
            raise LocalError(name, f"{value!r} is not legal", "0 … 0xff", id="out-of-range")
    data, size = bytes(work.data), ELEMENT_SIZE.get(work.datatype)  # type: ignore[call-overload]
    swaps = work.opcode in COMPARE_AND_SWAPS
    if swaps != (work.compare is not None):
        raise LocalError(
            "compare",
            f"not legal {'without' if swaps else 'with'} a value for opcode {work.opcode:#04x}",
            id="inconsistent-values",
        )
    if size is not None and len(data) % size == 0:
        data = ses_atomics.wire_order(data, work.datatype)
    length = len(data)
    if work.opcode in (AtomicOpcode.READ, AtomicOpcode.INVAL):
        if data:
            raise LocalError(
                "data", f"{length} bytes are not legal", f"none for {AtomicOpcode(work.opcode).name}", id="wrong-length"
            )
        length = size or 0
    if length > config.payload_mtu:
        raise LocalError(
            "data", f"{length} bytes are not legal", f"at most a packet, {config.payload_mtu}", id="wrong-length"
        )
    compare = swap = None
    if swaps:
        compare = _operand("compare", bytes(work.compare or b""), work.datatype, size)
        swap = _operand("data", bytes(work.data), work.datatype, size)
        data, length = b"", CAS_LENGTH
    fetches = work.result is not None
    if fetches and work.opcode == AtomicOpcode.INVAL:
        raise LocalError(
            "result", "not legal with INVAL, which has no value to return", "None", id="not-with-operation"
        )
    opcode = {
        (False, False): Opcode.ATOMIC, (False, True): Opcode.FETCHING_ATOMIC,
        (True, False): Opcode.TSEND_ATOMIC, (True, True): Opcode.TSEND_FETCH_ATOMIC,
    }[work.tag is not None, fetches]  # fmt: skip
    sync = _sync(work.sync)
    if sync is not None:
        if opcode is not Opcode.ATOMIC:
            raise LocalError("sync", "not legal with tag or result", "None", id="not-with-operation")
        opcode = Opcode.SYNC_ATOMIC
    header = AtomicExtension(work.opcode, work.datatype, work.control, compare, swap)
    plan = _base(
        work, opcode, config, offset=work.offset, key=work.key if work.tag is None else work.tag,
        request_length=length, body=len(data), memory=BufferMemory(data),
        extension=build_extensions(atomic=header, sync=sync),
    )  # fmt: skip
    operation = SesOperation(work, _formed(plan, config), length, max(1, length))
    if swaps:
        operation.length = len(bytes(work.data))  # one element; request_length counts both operands
    operation.datatype = work.datatype
    if fetches:
        sink = BufferMemory(work.result)
        if sink.read_only or (size is not None and sink.length != size):
            raise LocalError(
                "result", f"{sink.length} bytes are not legal", f"one writable element, {size}", id="wrong-length"
            )
        operation.sink, operation.fetches = sink, True
    return operation


def _operand(name: str, value: bytes, datatype: int, size: int | None) -> int:
    if len(value) > 16 or (size is not None and len(value) != size):
        raise LocalError(name, f"{len(value)} bytes are not legal", f"one element, {size} bytes", id="wrong-length")
    wire = ses_atomics.wire_order(value, datatype) if size is not None else value
    return int.from_bytes(wire, "big")


def _send(work: Send, config: SesConfig) -> SesOperation:
    memory = as_memory(work.data)
    length = stretch(memory, work.start, work.length)
    if work.mode is Mode.UUD:
        if work.tag is not None or work.kind is not SendKind.PLAIN:
            raise LocalError("mode", "UUD carries untagged plain sends only", "RUD, ROD", id="not-with-mode")
        if length > config.payload_mtu:
            raise LocalError(
                "length", f"{length} is not legal on UUD", f"at most a packet, {config.payload_mtu}", id="wrong-length"
            )
    else:
        _check_mode(work, (*PDC_MODES, Mode.UUD))
    if length > config.max_msg_size:
        raise LocalError("length", f"{length} is not legal", f"0 … {config.max_msg_size}", id="wrong-length")
    if work.match_bits is not None and (work.tag is not None or work.mode is Mode.UUD):
        raise LocalError(
            "match_bits", "not legal with tag or mode UUD, which have their own", "None", id="not-with-mode"
        )
    kind = work.kind if length else SendKind.PLAIN
    if kind is SendKind.DEFERRABLE and (work.mode is not Mode.RUD or work.offset):
        raise LocalError("kind", "DEFERRABLE is legal on RUD, with offset 0", id="not-with-mode")
    eager = length
    if kind is SendKind.RENDEZVOUS:
        eager = config.payload_mtu if config.eager_length < 0 else config.eager_length
        if eager >= length:
            kind, eager = SendKind.PLAIN, length  # the target would have nothing to read (ses.md §5.9)
    plan = _base(
        work, _SEND_OPCODES[kind, work.tag is not None], config, offset=work.offset,
        key=work.tag or work.match_bits or 0, header_data=work.completion_data, request_length=length, body=eager,
        memory=memory, start=work.start,
    )  # fmt: skip
    if work.mode is Mode.UUD and config.uud_opcode == "datagram_send":
        plan.opcode = Opcode.DATAGRAM_SEND
    if work.match_bits is None:
        _formed(plan, config)
    return SesOperation(work, plan, length, config.max_msg_size)


_SEND_OPCODES = {
    (SendKind.PLAIN, False): Opcode.SEND, (SendKind.PLAIN, True): Opcode.TAGGED_SEND,
    (SendKind.RENDEZVOUS, False): Opcode.RENDEZVOUS_SEND, (SendKind.RENDEZVOUS, True): Opcode.RENDEZVOUS_TSEND,
    (SendKind.DEFERRABLE, False): Opcode.DEFERRABLE_SEND, (SendKind.DEFERRABLE, True): Opcode.DEFERRABLE_TSEND,
}  # fmt: skip


def rendezvous(plan: MessagePlan, work: Send, key: int) -> MessagePlan:
    """Return the plan of a send with its rendezvous extension. The extension names the sender's memory region from
    which the target reads the bytes that the send does not carry."""
    header = SesExtRendezvousHeader.pack(plan.body, 0, work.local_pid, work.local_index, plan.body, key)
    return plan.moved(extension=header)


def source_of(plan: MessagePlan) -> Memory:
    """Return the part of the application's memory that holds the bytes of a send."""
    assert plan.memory is not None
    return MemoryWindow(plan.memory, plan.start, plan.request_length)


def _nop(work: Nop, config: SesConfig) -> SesOperation:
    _check_mode(work, PDC_MODES)
    return SesOperation(work, _formed(_base(work, Opcode.NO_OP, config), config), 0, 1)


_KINDS: dict[type, Callable[[Any, SesConfig], SesOperation]] = {
    Write: _write, Read: _read, Atomic: _atomic, Send: _send, Nop: _nop,
}  # fmt: skip


def _numbers_of(
    kind: type,
) -> tuple[list[str], Callable[[Any], tuple[Any, ...]], list[int], list[str]]:
    names = [name for name in _BITS if name in {field.name for field in fields(kind)}]
    needed = [name for name in names if name not in _OPTIONAL]
    optional = [name for name in names if name in _OPTIONAL]
    return needed, attrgetter(*needed), [_BITS[name] for name in needed], optional


_NUMBERS = {kind: _numbers_of(kind) for kind in _KINDS}
"""For each kind of work the fields that hold numbers, a function that returns these and their sizes in bits, and the
fields that hold a number or None."""


def operation_of(work: Addressed, config: SesConfig) -> SesOperation:
    """Check the work that an application submits and return an operation for it. Raises `LocalError`, which names the
    illegal field and its legal values."""
    check_fields(work)
    operation = _KINDS[type(work)](work, config)
    if operation.count > 1 and operation.base.offset + operation.length > 1 << 64:
        raise LocalError(
            "offset",
            f"{operation.base.offset:#x} + {operation.length} bytes is not legal",
            "up to 2^64",
            id="wrong-length",
        )
    return operation
