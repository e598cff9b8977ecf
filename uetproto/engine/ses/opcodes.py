"""Requests of SES, one row an opcode: who may carry it, what it selects at the target, which profiles have it.

UE 1.0.1 §3.4.1.4, Tables 3-1 and 3-4; ses.md §5.1 (opcodes), §4.3 (profiles), §2.4 (index spaces).
"""

from enum import Enum, IntEnum, IntFlag, auto
from typing import NamedTuple

from uetproto.engine.contract import Mode
from uetproto.wire.headers.uet_pds import NextHdr
from uetproto.wire.headers.uet_ses import Opcode


class Space(IntEnum):
    """Index spaces of a process: RI 15 in one is another resource than RI 15 in the next (ses.md §2.4)."""

    RMA = 0
    SEND = auto()
    TAGGED = auto()


class Selects(Enum):
    """What the key field of a request selects at its target."""

    NOTHING = auto()
    REGION = auto()
    """A memory key: a registered region."""
    RECEIVE = auto()
    """Match bits, or just the queue: a posted receive."""
    TOKEN = auto()
    """The transaction that the token of a restart names (ses.md §5.8)."""


class Extension(Enum):
    """Extension headers (ses.md §4.2)."""

    NONE = auto()
    ATOMIC = auto()
    RENDEZVOUS = auto()
    SYNC = auto()
    SYNC_ATOMIC = auto()
    """Sync group, then atomic."""


class Profile(IntFlag):
    """Feature profiles (ses.md §4.3); the bits are those of fep_cap (ses.md §2.3)."""

    AI_BASE = 1
    AI_FULL = 2
    HPC = 4


class Operation(NamedTuple):
    """One row of `OPERATIONS`."""

    modes: frozenset[Mode]
    forms: frozenset[NextHdr]
    space: Space
    selects: Selects
    extension: Extension
    fetches: bool
    """It reads the target's memory: its success has data."""
    profiles: Profile


_RELIABLE, _IDEMPOTENT, _DATAGRAM = (
    frozenset({Mode.RUD, Mode.ROD}), frozenset({Mode.RUD, Mode.ROD, Mode.RUDI}), frozenset({Mode.UUD}),
)  # fmt: skip
_RUD = frozenset({Mode.RUD})
_STD, _MED, _SML = NextHdr.REQUEST_STD, NextHdr.REQUEST_MEDIUM, NextHdr.REQUEST_SMALL
_ONE, _TWO, _ALL = frozenset({_STD}), frozenset({_STD, _MED}), frozenset({_STD, _MED, _SML})
_X, _S, _P = Extension, Space, Selects
_EVERY, _FULL, _AI, _HPC = (
    Profile.AI_BASE | Profile.AI_FULL | Profile.HPC, Profile.AI_FULL | Profile.HPC, Profile.AI_FULL, Profile.HPC,
)  # fmt: skip

OPERATIONS: dict[Opcode, Operation] = {
    # opcode                       modes        forms space      selects      extension        fetches profiles
    Opcode.NO_OP:            Operation(_RELIABLE,   _ALL, _S.RMA,    _P.NOTHING, _X.NONE,        False, _EVERY),
    Opcode.WRITE:            Operation(_IDEMPOTENT, _ALL, _S.RMA,    _P.REGION,  _X.NONE,        False, _EVERY),
    Opcode.READ:             Operation(_IDEMPOTENT, _ALL, _S.RMA,    _P.REGION,  _X.NONE,        True,  _FULL),
    Opcode.ATOMIC:           Operation(_RELIABLE,   _ALL, _S.RMA,    _P.REGION,  _X.ATOMIC,      False, _EVERY),
    Opcode.FETCHING_ATOMIC:  Operation(_RELIABLE,   _ALL, _S.RMA,    _P.REGION,  _X.ATOMIC,      True,  _FULL),
    Opcode.SEND:             Operation(_RELIABLE,   _ALL, _S.SEND,   _P.RECEIVE, _X.NONE,        False, _EVERY),
    Opcode.RENDEZVOUS_SEND:  Operation(_RELIABLE,   _ONE, _S.SEND,   _P.RECEIVE, _X.RENDEZVOUS,  False, _HPC),
    Opcode.DATAGRAM_SEND:    Operation(_DATAGRAM,   _TWO, _S.SEND,   _P.RECEIVE, _X.NONE,        False, _EVERY),
    Opcode.DEFERRABLE_SEND:  Operation(_RUD,        _ONE, _S.SEND,   _P.RECEIVE, _X.NONE,        False, _EVERY),
    Opcode.TAGGED_SEND:      Operation(_RELIABLE,   _TWO, _S.TAGGED, _P.RECEIVE, _X.NONE,        False, _FULL),
    Opcode.RENDEZVOUS_TSEND: Operation(_RELIABLE,   _ONE, _S.TAGGED, _P.RECEIVE, _X.RENDEZVOUS,  False, _HPC),
    Opcode.DEFERRABLE_TSEND: Operation(_RUD,        _ONE, _S.TAGGED, _P.RECEIVE, _X.NONE,        False, _EVERY),
    Opcode.DEFERRABLE_RTR:   Operation(_RUD,        _ONE, _S.SEND,   _P.TOKEN,   _X.NONE,        False, _AI),
    Opcode.TSEND_ATOMIC:     Operation(_RELIABLE,   _TWO, _S.TAGGED, _P.RECEIVE, _X.ATOMIC,      False, _HPC),
    Opcode.TSEND_FETCH_ATOMIC: Operation(_RELIABLE, _TWO, _S.TAGGED, _P.RECEIVE, _X.ATOMIC,      True,  _HPC),
    Opcode.MSG_ERROR:        Operation(_RELIABLE,   _ONE, _S.RMA,    _P.NOTHING, _X.NONE,        False, _EVERY),
    Opcode.SYNC_WRITE:       Operation(_RELIABLE,   _ONE, _S.RMA,    _P.REGION,  _X.SYNC,        False, _EVERY),
    Opcode.SYNC_ATOMIC:      Operation(_RELIABLE,   _ONE, _S.RMA,    _P.REGION,  _X.SYNC_ATOMIC, False, _EVERY),
}  # fmt: skip
"""ses.md §5.1. `MSG_ERROR` has the address of the message that it ends. In the profile table "M ?" counts as M,
"– ?" as –, O as accepted; rows that are told apart by more than the opcode (wildcards, real deferral, RUDI, forms)
are judged where they are met."""

ATOMICS = frozenset(
    code for code, row in OPERATIONS.items() if row.extension in (Extension.ATOMIC, Extension.SYNC_ATOMIC)
)
SYNCS = frozenset({Opcode.SYNC_WRITE, Opcode.SYNC_ATOMIC})
"""After UE 1.0.1: executed only where `sync_operations` is on."""
TAGGED = frozenset(code for code, row in OPERATIONS.items() if row.space is Space.TAGGED)
OPTIMIZED_FORMS = Profile.AI_FULL | Profile.HPC
"""Profiles that know medium and small headers."""
WILDCARDS = Profile.HPC
REAL_DEFERRAL = Profile.AI_FULL
RUDI = Profile.HPC
"""Profiles that have RUDI."""


def profile_of(text: str) -> Profile:
    """ "ai_full+hpc" as bits."""
    profile = Profile(0)
    for name in text.split("+"):
        profile |= Profile[name.upper()]
    return profile
