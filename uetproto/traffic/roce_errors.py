# SPDX-License-Identifier: GPL-2.0-only
"""This module lists the errors that RoCE traffic makes on purpose, and for each error the operations that can have it
(roce.md §8–§11).
"""

from collections.abc import Callable, Set
from dataclasses import replace
from enum import Enum
from typing import Any, NamedTuple

from uetproto.engine.roce.contract import Opcode, PostSend, QpType
from uetproto.engine.roce.segments import ATOMICS, KINDS
from uetproto.traffic.memory import REGION_LENGTH
from uetproto.traffic.profile_roce import RoceProfile
from uetproto.wire.headers.roce import MULTICAST_QP

PRIVATE, FOREIGN, MISSING = 0x2002, 0x2003, 0x0BAD
"""The r_keys of a region without remote rights, of a region in another protection domain, and of no region."""

_RC, _UC, _UD = QpType
_CONNECTED = frozenset((_RC, _UC))
_SERVICES = frozenset(QpType)

_EVERY = frozenset(KINDS)
_SENDS = frozenset((Opcode.SEND, Opcode.SEND_WITH_IMM, Opcode.SEND_WITH_INV))
_RECEIVED = frozenset(code for code, kind in KINDS.items() if kind.receives)
KEYED = _EVERY - _SENDS
"""Operations that carry an r_key and a remote address."""

NOBODY = MULTICAST_QP - 1
"""Queue pair number that no queue pair ever has."""


class MetReceive(Enum):
    """This enumeration says which receive a message finds at the target, if its operation needs a receive."""

    GOOD = "long enough, in a region"
    BAD = "in no region"
    NONE = "none is posted for it"


class ErrorKind(NamedTuple):
    """This record describes a protocol error, and which transports and operations can have it."""

    change: Callable[[PostSend, int], PostSend]
    """Function that returns a work request with the error. Its second argument is the size of receives in bytes."""
    kinds: Set[QpType]
    opcodes: Set[Opcode]
    meets: MetReceive = MetReceive.GOOD
    peer_gone: bool = False
    """Whether the queue pair of the target is destroyed before the operation."""


def _set(**fields: Any) -> Callable[[PostSend, int], PostSend]:
    """Return a change that replaces fields of the work request."""
    return lambda work, _: replace(work, **fields)


def _own_key(work: PostSend, _: int) -> PostSend:
    return replace(work, sg_list=tuple(replace(part, lkey=MISSING) for part in work.sg_list))


def _misaligned(work: PostSend, _: int) -> PostSend:
    return replace(work, remote_addr=work.remote_addr + 4)


def _too_long(work: PostSend, room: int) -> PostSend:
    return replace(work, sg_list=tuple(replace(part, length=room + 1) for part in work.sg_list))


def _other_q_key(work: PostSend, _: int) -> PostSend:
    return replace(work, remote_qkey=work.remote_qkey ^ 1)


_AS_IT_IS = _set()

PROTOCOL_ERRORS = (
    #   what is wrong                        who has it  operations              RC answers; UC and UD drop it
    ErrorKind(_own_key,                        _SERVICES,  _EVERY),              # nothing leaves: LOC_PROT_ERR
    ErrorKind(_set(rkey=MISSING),              _CONNECTED, KEYED),               # NAK 0x62
    ErrorKind(_set(rkey=PRIVATE),              _CONNECTED, KEYED),               # NAK 0x62
    ErrorKind(_set(rkey=FOREIGN),              _CONNECTED, KEYED),               # NAK 0x62
    ErrorKind(_set(remote_addr=2 * REGION_LENGTH), _CONNECTED, KEYED),           # NAK 0x62
    ErrorKind(_set(invalidate_rkey=MISSING),   {_RC},      {Opcode.SEND_WITH_INV}),  # NAK 0x62
    ErrorKind(_misaligned,                     {_RC},      set(ATOMICS)),        # NAK 0x61
    ErrorKind(_too_long,                       _SERVICES,  _SENDS),              # NAK 0x61, LOC_LEN_ERR there
    ErrorKind(_AS_IT_IS,                       {_RC},      _SENDS, MetReceive.BAD),   # NAK 0x63, LOC_PROT_ERR there
    ErrorKind(_AS_IT_IS,                       _SERVICES,  _RECEIVED, MetReceive.NONE),  # RNR NAK, RNR_RETRY_EXC_ERR
    ErrorKind(_AS_IT_IS,                       {_RC},      _EVERY, peer_gone=True),  # RETRY_EXC_ERR
    ErrorKind(_other_q_key,                    {_UD},      _EVERY),
    ErrorKind(_set(remote_qpn=NOBODY),         {_UD},      _EVERY),
)  # fmt: skip


def ways_of(kind: QpType, code: Opcode, profile: RoceProfile, room: int) -> tuple[ErrorKind, ...]:
    """Return the errors that an operation can have on this transport. There is at least one such error.

    `room` is the size of receives in bytes.
    """
    longest = profile.roce.path_mtu if kind is _UD else profile.roce.max_message
    return tuple(
        way
        for way in PROTOCOL_ERRORS
        if kind in way.kinds
        and code in way.opcodes
        and (way.change is not _too_long or room < longest)
        and not (way.peer_gone and not profile.roce.timeout)  # without a timeout the requester would wait for ever
    )
