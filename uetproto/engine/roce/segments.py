# SPDX-License-Identifier: GPL-2.0-only
"""These tables say how a work request is sent as the packets of a message (roce.md §3, §6, §10).

For each opcode of a send request they have the services that support the opcode, the opcode of the completion, and the
BTH operations of the FIRST, MIDDLE, LAST or ONLY packet.
"""

from enum import IntEnum
from typing import NamedTuple

from uetproto.engine.roce.contract import Opcode, QpType, WcOpcode
from uetproto.wire.headers.roce import Operation

_RC, _UC, _UD = QpType
_IMM, _INV = "_WITH_IMMEDIATE", "_WITH_INVALIDATE"
_READ = Operation.RDMA_READ_REQUEST


class Family(NamedTuple):
    """A message has these BTH operations in its first, middle and last packets, or in its only packet."""

    first: Operation
    middle: Operation
    last: Operation
    only: Operation


def family(stem: str, suffix: str = "") -> Family:
    """Return the operations whose names begin with `stem`.

    The names for the last and the only packet end with `suffix`.
    """
    return Family(
        Operation[f"{stem}_FIRST"],
        Operation[f"{stem}_MIDDLE"],
        Operation[f"{stem}_LAST{suffix}"],
        Operation[f"{stem}_ONLY{suffix}"],
    )


def _single(operation: Operation) -> Family:
    return Family(operation, operation, operation, operation)


class WrKind(NamedTuple):
    """This class says how the opcode of a send request is handled."""

    services: tuple[QpType, ...]
    """Services that support the opcode (roce.md §6)."""
    completion: WcOpcode
    family: Family
    answered: bool = False
    """Whether the opcode is a READ or ATOMIC. Such an operation ends with a response that carries data, in place of an
    ACK."""
    receives: bool = False
    """Whether the message uses a receive of the responder and so needs a credit (roce.md §9)."""


KINDS: dict[Opcode, WrKind] = {
    # send opcode                       services         completion           packets         answered, receives
    Opcode.SEND:                 WrKind((_RC, _UC, _UD), WcOpcode.SEND,       family("SEND"), False, True),
    Opcode.SEND_WITH_IMM:        WrKind((_RC, _UC, _UD), WcOpcode.SEND,       family("SEND", _IMM), False, True),
    Opcode.SEND_WITH_INV:        WrKind((_RC,),          WcOpcode.SEND,       family("SEND", _INV), False, True),
    Opcode.RDMA_WRITE:           WrKind((_RC, _UC),      WcOpcode.RDMA_WRITE, family("RDMA_WRITE")),
    Opcode.RDMA_WRITE_WITH_IMM:  WrKind((_RC, _UC),      WcOpcode.RDMA_WRITE, family("RDMA_WRITE", _IMM), False, True),
    Opcode.RDMA_READ:            WrKind((_RC,),          WcOpcode.RDMA_READ,  _single(_READ), True),
    Opcode.ATOMIC_CMP_AND_SWP:   WrKind((_RC,),          WcOpcode.COMP_SWAP,  _single(Operation.COMPARE_SWAP), True),
    Opcode.ATOMIC_FETCH_AND_ADD: WrKind((_RC,),          WcOpcode.FETCH_ADD,  _single(Operation.FETCH_ADD), True),
}  # fmt: skip
"""Handling of each opcode of send requests. ATOMIC_WRITE is missing, because roce.md does not cover its effect
(§17)."""

ATOMICS = (Opcode.ATOMIC_CMP_AND_SWP, Opcode.ATOMIC_FETCH_AND_ADD)
ATOMIC_SIZE = 8

WITH_IMM = frozenset(o for o in Operation if o.name.endswith(_IMM))
WITH_INV = frozenset(o for o in Operation if o.name.endswith(_INV))


class MessageStep(IntEnum):
    """A request packet has one of these positions in its message. They are the columns of the table in roce.md §8."""

    SEND_FIRST = 0
    SEND_MIDDLE = 1
    SEND_LAST = 2
    SEND_ONLY = 3
    RDMA_WRITE_FIRST = 4
    RDMA_WRITE_MIDDLE = 5
    RDMA_WRITE_LAST = 6
    RDMA_WRITE_ONLY = 7
    READ = 8
    ATOMIC = 9


class MessagePhase(IntEnum):
    """The message in progress at a responder has one of these states. They are the rows of the table in roce.md §8."""

    IDLE = 0
    IN_SEND = 1
    IN_WRITE = 2


_STEP_NAMES = {operation: operation.name.partition("_WITH_")[0] for operation in Operation}
STEPS: dict[int, MessageStep] = {
    Operation.RDMA_READ_REQUEST: MessageStep.READ,
    Operation.COMPARE_SWAP: MessageStep.ATOMIC,
    Operation.FETCH_ADD: MessageStep.ATOMIC,
    **{operation: MessageStep[name] for operation, name in _STEP_NAMES.items() if name in MessageStep.__members__},
}
"""Maps the BTH operation of a request packet to the position of the packet in its message (`MessageStep`). A responder
accepts no other operations."""

_S, _P = MessageStep, MessagePhase
MESSAGE_STATES: dict[MessagePhase, dict[MessageStep, MessagePhase]] = {
    _P.IDLE: {
        _S.SEND_FIRST: _P.IN_SEND, _S.SEND_ONLY: _P.IDLE, _S.RDMA_WRITE_FIRST: _P.IN_WRITE,
        _S.RDMA_WRITE_ONLY: _P.IDLE, _S.READ: _P.IDLE, _S.ATOMIC: _P.IDLE,
    },
    _P.IN_SEND: {_S.SEND_MIDDLE: _P.IN_SEND, _S.SEND_LAST: _P.IDLE},
    _P.IN_WRITE: {_S.RDMA_WRITE_MIDDLE: _P.IN_WRITE, _S.RDMA_WRITE_LAST: _P.IDLE},
}  # fmt: skip
"""Next state of the message in progress, by its state and by the position of the packet that arrives. A packet without
an entry is out of order, and causes NAK 0x61 on RC (roce.md §8)."""

FIRST = frozenset((_S.SEND_FIRST, _S.RDMA_WRITE_FIRST))
MIDDLE = frozenset((_S.SEND_MIDDLE, _S.RDMA_WRITE_MIDDLE))
LAST = frozenset((_S.SEND_LAST, _S.RDMA_WRITE_LAST))
ONLY = frozenset((_S.SEND_ONLY, _S.RDMA_WRITE_ONLY))
SENDS = frozenset((_S.SEND_FIRST, _S.SEND_MIDDLE, _S.SEND_LAST, _S.SEND_ONLY))
WRITES = frozenset((_S.RDMA_WRITE_FIRST, _S.RDMA_WRITE_MIDDLE, _S.RDMA_WRITE_LAST, _S.RDMA_WRITE_ONLY))
STARTS = FIRST | ONLY
"""Positions of the packets that start a message."""
ENDS = LAST | ONLY


def operation_at(operations: Family, index: int, count: int) -> Operation:
    """Return the BTH operation of packet `index` of a message with `count` packets."""
    if count == 1:
        return operations.only
    if index == 0:
        return operations.first
    return operations.last if index == count - 1 else operations.middle


def size_is_legal(step: MessageStep, size: int, path_mtu: int) -> bool:
    """Return True when the payload of a packet has a legal size in bytes (roce.md §3, column payload)."""
    if step in FIRST or step in MIDDLE:
        return size == path_mtu
    if step in LAST:
        return 1 <= size <= path_mtu
    return size <= path_mtu if step in ONLY else size == 0
