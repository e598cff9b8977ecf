"""What goes wrong on purpose on RoCE: a row for each way, with who can go it and what comes of it (roce.md §8–§11)."""

from collections.abc import Callable, Set
from dataclasses import replace
from enum import Enum
from typing import NamedTuple

from uetproto.engine.roce.contract import Opcode, PostSend, QpType
from uetproto.engine.roce.segments import ATOMICS, KINDS
from uetproto.traffic.memory import REGION_LENGTH
from uetproto.traffic.profile_roce import RoceProfile
from uetproto.wire.headers.roce import MULTICAST_QP

PRIVATE, FOREIGN, MISSING = 0x2002, 0x2003, 0x0BAD
"""r_keys of a region without remote rights and of one in another domain, and one that is nobody's."""

_RC, _UC, _UD = QpType
_CONNECTED = frozenset((_RC, _UC))
_SERVICES = frozenset(QpType)

_EVERY = frozenset(KINDS)
_SENDS = frozenset((Opcode.SEND, Opcode.SEND_WITH_IMM, Opcode.SEND_WITH_INV))
_RECEIVED = frozenset(code for code, kind in KINDS.items() if kind.receives)
KEYED = _EVERY - _SENDS
"""Those with an r_key and an address at the peer."""

NOBODY = MULTICAST_QP - 1
"""A queue pair that is never there."""


class Meets(Enum):
    """The receive that a message finds, if it uses one."""

    GOOD = "long enough, in a region"
    BAD = "in no region"
    NONE = "none is posted for it"


class Way(NamedTuple):
    """One row."""

    change: Callable[[PostSend, int], PostSend]
    """Takes the work request, and the bytes that fit into a receive."""
    kinds: Set[QpType]
    opcodes: Set[Opcode]
    meets: Meets = Meets.GOOD
    peer_gone: bool = False
    """The queue pair at the other end is destroyed before."""


def _own_key(work: PostSend, _: int) -> PostSend:
    return replace(work, sg_list=tuple(replace(part, lkey=MISSING) for part in work.sg_list))


def _no_key(work: PostSend, _: int) -> PostSend:
    return replace(work, rkey=MISSING)


def _no_key_to_invalidate(work: PostSend, _: int) -> PostSend:
    return replace(work, invalidate_rkey=MISSING)


def _no_right(work: PostSend, _: int) -> PostSend:
    return replace(work, rkey=PRIVATE)


def _other_domain(work: PostSend, _: int) -> PostSend:
    return replace(work, rkey=FOREIGN)


def _no_place(work: PostSend, _: int) -> PostSend:
    return replace(work, remote_addr=2 * REGION_LENGTH)


def _misaligned(work: PostSend, _: int) -> PostSend:
    return replace(work, remote_addr=work.remote_addr + 4)


def _too_long(work: PostSend, room: int) -> PostSend:
    return replace(work, sg_list=tuple(replace(part, length=room + 1) for part in work.sg_list))


def _other_q_key(work: PostSend, _: int) -> PostSend:
    return replace(work, remote_qkey=work.remote_qkey ^ 1)


def _no_queue_pair(work: PostSend, _: int) -> PostSend:
    return replace(work, remote_qpn=NOBODY)


def _as_it_is(work: PostSend, _: int) -> PostSend:
    return work


WAYS = (
    #   what is wrong          who has it  operations              RC answers; UC and UD drop it
    Way(_own_key,              _SERVICES,  _EVERY),              # nothing leaves: LOC_PROT_ERR
    Way(_no_key,               _CONNECTED, KEYED),               # NAK 0x62
    Way(_no_right,             _CONNECTED, KEYED),               # NAK 0x62
    Way(_other_domain,         _CONNECTED, KEYED),               # NAK 0x62
    Way(_no_place,             _CONNECTED, KEYED),               # NAK 0x62
    Way(_no_key_to_invalidate, {_RC},      {Opcode.SEND_WITH_INV}),  # NAK 0x62
    Way(_misaligned,           {_RC},      set(ATOMICS)),        # NAK 0x61
    Way(_too_long,             _SERVICES,  _SENDS),              # NAK 0x61, LOC_LEN_ERR there
    Way(_as_it_is,             {_RC},      _SENDS, Meets.BAD),   # NAK 0x63, LOC_PROT_ERR there
    Way(_as_it_is,             _SERVICES,  _RECEIVED, Meets.NONE),  # RNR NAK; RNR_RETRY_EXC_ERR if they have an end
    Way(_as_it_is,             {_RC},      _EVERY, peer_gone=True),  # RETRY_EXC_ERR
    Way(_other_q_key,          {_UD},      _EVERY),
    Way(_no_queue_pair,        {_UD},      _EVERY),
)  # fmt: skip


def ways_of(kind: QpType, code: Opcode, profile: RoceProfile, room: int) -> tuple[Way, ...]:
    """The ways that an operation can go wrong, one at least; `room` bytes fit into a receive."""
    longest = profile.roce.path_mtu if kind is _UD else profile.roce.max_message
    return tuple(
        way
        for way in WAYS
        if kind in way.kinds
        and code in way.opcodes
        and (way.change is not _too_long or room < longest)
        and not (way.peer_gone and not profile.roce.timeout)  # it would wait for ever
    )
