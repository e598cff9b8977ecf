"""These tables say how a work request becomes the packets of a message (roce.md §3, §6, §10).

For each opcode of a send request they tell the services that have it, the opcode of the completion, and the BTH
operations of the packets: FIRST, MIDDLE, LAST or ONLY.
"""

from enum import IntEnum
from typing import NamedTuple

from uetproto.engine.roce.contract import Opcode, QpType, WcOpcode
from uetproto.wire.headers.roce import Operation

_RC, _UC, _UD = QpType
_IMM, _INV = "_WITH_IMMEDIATE", "_WITH_INVALIDATE"
_READ = Operation.RDMA_READ_REQUEST


class Family(NamedTuple):
    """The operations that the first, middle, last and only packet of one kind of message have."""

    first: Operation
    middle: Operation
    last: Operation
    only: Operation


def family(stem: str, suffix: str = "") -> Family:
    """Return the operations whose names begin with `stem`; `suffix` ends the names of the last and the only packet."""
    return Family(
        Operation[f"{stem}_FIRST"],
        Operation[f"{stem}_MIDDLE"],
        Operation[f"{stem}_LAST{suffix}"],
        Operation[f"{stem}_ONLY{suffix}"],
    )


def _single(operation: Operation) -> Family:
    return Family(operation, operation, operation, operation)


class WrKind(NamedTuple):
    """A row of the transport table says how a send opcode is handled."""

    services: tuple[QpType, ...]
    """Services that have the opcode (roce.md §6)."""
    completion: WcOpcode
    family: Family
    answered: bool = False
    """Whether the opcode is a READ or ATOMIC, which ends with its own response and not with an ACK."""
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
"""The transport table has a row for each send opcode but ATOMIC_WRITE, which no service has: its effect is not covered
(roce.md §17)."""

ATOMICS = (Opcode.ATOMIC_CMP_AND_SWP, Opcode.ATOMIC_FETCH_AND_ADD)
ATOMIC_SIZE = 8

WITH_IMM = frozenset(o for o in Operation if o.name.endswith(_IMM))
WITH_INV = frozenset(o for o in Operation if o.name.endswith(_INV))


class MessageStep(IntEnum):
    """The kinds of packets that a message can have, by place: the columns of the table in roce.md §8."""

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
    """The states that the message in progress at a responder can have: the rows of the table in roce.md §8."""

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
"""Maps each operation that a responder accepts to its step; all other operations are invalid."""

_S, _P = MessageStep, MessagePhase
MESSAGE_STATES: dict[MessagePhase, dict[MessageStep, MessagePhase]] = {
    _P.IDLE: {
        _S.SEND_FIRST: _P.IN_SEND, _S.SEND_ONLY: _P.IDLE, _S.RDMA_WRITE_FIRST: _P.IN_WRITE,
        _S.RDMA_WRITE_ONLY: _P.IDLE, _S.READ: _P.IDLE, _S.ATOMIC: _P.IDLE,
    },
    _P.IN_SEND: {_S.SEND_MIDDLE: _P.IN_SEND, _S.SEND_LAST: _P.IDLE},
    _P.IN_WRITE: {_S.RDMA_WRITE_MIDDLE: _P.IN_WRITE, _S.RDMA_WRITE_LAST: _P.IDLE},
}  # fmt: skip
"""Maps (state, step) to the next state; a pair that is not here is out of order: NAK 0x61 on RC (roce.md §8)."""

FIRST = frozenset((_S.SEND_FIRST, _S.RDMA_WRITE_FIRST))
MIDDLE = frozenset((_S.SEND_MIDDLE, _S.RDMA_WRITE_MIDDLE))
LAST = frozenset((_S.SEND_LAST, _S.RDMA_WRITE_LAST))
ONLY = frozenset((_S.SEND_ONLY, _S.RDMA_WRITE_ONLY))
SENDS = frozenset((_S.SEND_FIRST, _S.SEND_MIDDLE, _S.SEND_LAST, _S.SEND_ONLY))
WRITES = frozenset((_S.RDMA_WRITE_FIRST, _S.RDMA_WRITE_MIDDLE, _S.RDMA_WRITE_LAST, _S.RDMA_WRITE_ONLY))
STARTS = FIRST | ONLY
"""Steps at which a new message may start on UC (roce.md §11)."""
ENDS = LAST | ONLY


def operation_at(operations: Family, index: int, count: int) -> Operation:
    """Return the operation of packet `index` of `count`."""
    if count == 1:
        return operations.only
    if index == 0:
        return operations.first
    return operations.last if index == count - 1 else operations.middle


def size_is_legal(step: MessageStep, size: int, path_mtu: int) -> bool:
    """Tell whether a payload has a legal size, by the payload column of roce.md §3."""
    if step in FIRST or step in MIDDLE:
        return size == path_mtu
    if step in LAST:
        return 1 <= size <= path_mtu
    return size <= path_mtu if step in ONLY else size == 0
