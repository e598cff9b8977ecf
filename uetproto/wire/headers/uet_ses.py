# SPDX-License-Identifier: GPL-2.0-only
"""This module holds every header table and code of the semantic sublayer, SES (UE 1.0.1 §3.4).

The three request headers (standard, medium, small) begin with the same 12 bytes. The meaning of the bytes behind these
depends on the opcode (`memory_key` or `match_bits`), on `som` in the standard header, and on `hd` in the medium header,
so there is a table for each meaning.
"""

from enum import Enum, IntEnum, IntFlag, auto
from typing import NamedTuple

from uetproto.wire.fields import Field as F
from uetproto.wire.fields import Header
from uetproto.wire.headers.uet_pds import Mode, NextHdr


class Opcode(IntEnum):
    """An opcode names a request (UE 1.0.1 §3.4.1.4). The opcodes SYNC_* belong to a later revision."""

    NO_OP = 0x00
    WRITE = 0x01
    READ = 0x02
    ATOMIC = 0x03
    FETCHING_ATOMIC = 0x04
    SEND = 0x05
    RENDEZVOUS_SEND = 0x06
    DATAGRAM_SEND = 0x07
    DEFERRABLE_SEND = 0x08
    TAGGED_SEND = 0x09
    RENDEZVOUS_TSEND = 0x0A
    DEFERRABLE_TSEND = 0x0B
    DEFERRABLE_RTR = 0x0C
    TSEND_ATOMIC = 0x0D
    TSEND_FETCH_ATOMIC = 0x0E
    MSG_ERROR = 0x0F
    SYNC_WRITE = 0x10
    SYNC_ATOMIC = 0x11
    EXTENDED = 0x3F


class ResponseOpcode(IntEnum):
    DEFAULT_RESPONSE = 0
    RESPONSE = 1
    RESPONSE_W_DATA = 2
    NO_RESPONSE = 3


class ResponseList(IntEnum):
    EXPECTED = 0
    OVERFLOW = 1


class ReturnCode(IntEnum):
    """This code says how a request ended (UE 1.0.1 §3.4.1.10, ses.md §9.5)."""

    NULL = 0x00
    OK = 0x01
    BAD_GENERATION = 0x02
    DISABLED = 0x03
    DISABLED_GEN = 0x04
    NO_MATCH = 0x05
    UNSUPPORTED_OP = 0x06
    UNSUPPORTED_SIZE = 0x07
    AT_INVALID = 0x08
    AT_PERM = 0x09
    AT_ATS_ERROR = 0x0A
    AT_NO_TRANS = 0x0B
    AT_OUT_OF_RANGE = 0x0C
    HOST_POISONED = 0x0D
    HOST_UNSUCCESS_CMPL = 0x0E
    AMO_UNSUPPORTED_OP = 0x0F
    AMO_UNSUPPORTED_DT = 0x10
    AMO_UNSUPPORTED_SIZE = 0x11
    AMO_UNALIGNED = 0x12
    AMO_FP_NAN = 0x13
    AMO_FP_UNDERFLOW = 0x14
    AMO_FP_OVERFLOW = 0x15
    AMO_FP_INEXACT = 0x16
    PERM_VIOLATION = 0x17
    OP_VIOLATION = 0x18
    BAD_INDEX = 0x19
    BAD_PID = 0x1A
    BAD_JOB_ID = 0x1B
    BAD_MKEY = 0x1C
    BAD_ADDR = 0x1D
    CANCELLED = 0x1E
    UNDELIVERABLE = 0x1F
    UNCOR = 0x20
    UNCOR_TRNSNT = 0x21
    TOO_LONG = 0x22
    INITIATOR_ERROR = 0x23
    DROPPED = 0x24
    EXTENDED = 0x3E


class AtomicOpcode(IntEnum):
    MIN = 0x00
    MAX = 0x01
    SUM = 0x02
    DIFF = 0x03
    PROD = 0x04
    LOR = 0x05
    LAND = 0x06
    BOR = 0x07
    BAND = 0x08
    LXOR = 0x09
    BXOR = 0x0A
    READ = 0x0B
    WRITE = 0x0C
    CSWAP = 0x0D
    CSWAP_NE = 0x0E
    CSWAP_LE = 0x0F
    CSWAP_LT = 0x10
    CSWAP_GE = 0x11
    CSWAP_GT = 0x12
    MSWAP = 0x13
    INVAL = 0x14


class AtomicDatatype(IntEnum):
    INT8 = 0x00
    UINT8 = 0x01
    INT16 = 0x02
    UINT16 = 0x03
    INT32 = 0x04
    UINT32 = 0x05
    INT64 = 0x06
    UINT64 = 0x07
    INT128 = 0x08
    UINT128 = 0x09
    FLOAT = 0x0A
    DOUBLE = 0x0B
    FLOAT_COMPLEX = 0x0C
    DOUBLE_COMPLEX = 0x0D
    LONG_DOUBLE = 0x0E
    LONG_DOUBLE_COMPLEX = 0x0F
    BF16 = 0x10
    FP16 = 0x11


class Space(IntEnum):
    """This enumeration says for what a resource index is used. A process has separate indices for RMA, for untagged
    sends and for tagged sends: index 15 for RMA and index 15 for sends are two different resources (ses.md §2.4)."""

    RMA = 0
    SEND = auto()
    TAGGED = auto()


class Selects(Enum):
    """This value says what the key field of a request selects at its target."""

    NOTHING = auto()
    REGION = auto()
    """A memory key selects a registered region."""
    RECEIVE = auto()
    """Match bits, or the queue alone, select a posted receive."""
    TOKEN = auto()
    """The token of a restart selects a transaction (ses.md §5.8)."""


class Extension(Enum):
    """This enumeration says which extension headers a request has (ses.md §4.2)."""

    NONE = auto()
    ATOMIC = auto()
    RENDEZVOUS = auto()
    SYNC = auto()
    SYNC_ATOMIC = auto()
    """The sync group header stands before the atomic header."""


class Profile(IntFlag):
    """This set of bits names feature profiles (ses.md §4.3). The bits are those of fep_cap (ses.md §2.3)."""

    AI_BASE = 1
    AI_FULL = 2
    HPC = 4


class OpcodeProfile(NamedTuple):
    """This tuple describes a request opcode: in which modes, headers and profiles it is legal, and what it accesses."""

    modes: frozenset[Mode]
    forms: frozenset[NextHdr]
    space: Space
    selects: Selects
    extension: Extension
    fetches: bool
    """Whether the request reads memory of the target, so that a successful response carries data."""
    profiles: Profile
    """Profiles that execute the opcode."""
    payload: bool = True
    """Whether the packets of the request can carry payload."""
    deferrable: bool = False
    """Whether the target may defer the message. The header then has two restart tokens in place of buffer_offset
    (ses.md §5.7)."""


_RELIABLE, _IDEMPOTENT, _DATAGRAM = (
    frozenset({Mode.RUD, Mode.ROD}), frozenset({Mode.RUD, Mode.ROD, Mode.RUDI}), frozenset({Mode.UUD}),
)  # fmt: skip
_RUD = frozenset({Mode.RUD})
_STD, _MED, _SML = NextHdr.REQUEST_STD, NextHdr.REQUEST_MEDIUM, NextHdr.REQUEST_SMALL
_ONE, _TWO, _ALL = frozenset({_STD}), frozenset({_STD, _MED}), frozenset({_STD, _MED, _SML})
_O, _R, _X, _S, _P = Opcode, OpcodeProfile, Extension, Space, Selects
_EVERY, _FULL, _AI, _HPC = (
    Profile.AI_BASE | Profile.AI_FULL | Profile.HPC, Profile.AI_FULL | Profile.HPC, Profile.AI_FULL, Profile.HPC,
)  # fmt: skip

OPCODE_PROFILES: dict[Opcode, OpcodeProfile] = {
    # opcode                  modes        forms space      selects      extension        fetches profiles
    _O.NO_OP:              _R(_RELIABLE,   _ALL, _S.RMA,    _P.NOTHING, _X.NONE,        False, _EVERY, payload=False),
    _O.WRITE:              _R(_IDEMPOTENT, _ALL, _S.RMA,    _P.REGION,  _X.NONE,        False, _EVERY),
    _O.READ:               _R(_IDEMPOTENT, _ALL, _S.RMA,    _P.REGION,  _X.NONE,        True,  _FULL, payload=False),
    _O.ATOMIC:             _R(_RELIABLE,   _ALL, _S.RMA,    _P.REGION,  _X.ATOMIC,      False, _EVERY),
    _O.FETCHING_ATOMIC:    _R(_RELIABLE,   _ALL, _S.RMA,    _P.REGION,  _X.ATOMIC,      True,  _FULL),
    _O.SEND:               _R(_RELIABLE,   _ALL, _S.SEND,   _P.RECEIVE, _X.NONE,        False, _EVERY),
    _O.RENDEZVOUS_SEND:    _R(_RELIABLE,   _ONE, _S.SEND,   _P.RECEIVE, _X.RENDEZVOUS,  False, _HPC),
    _O.DATAGRAM_SEND:      _R(_DATAGRAM,   _TWO, _S.SEND,   _P.RECEIVE, _X.NONE,        False, _EVERY),
    _O.DEFERRABLE_SEND:    _R(_RUD,        _ONE, _S.SEND,   _P.RECEIVE, _X.NONE,        False, _EVERY, deferrable=True),
    _O.TAGGED_SEND:        _R(_RELIABLE,   _TWO, _S.TAGGED, _P.RECEIVE, _X.NONE,        False, _FULL),
    _O.RENDEZVOUS_TSEND:   _R(_RELIABLE,   _ONE, _S.TAGGED, _P.RECEIVE, _X.RENDEZVOUS,  False, _HPC),
    _O.DEFERRABLE_TSEND:   _R(_RUD,        _ONE, _S.TAGGED, _P.RECEIVE, _X.NONE,        False, _EVERY, deferrable=True),
    _O.DEFERRABLE_RTR:     _R(_RUD,        _ONE, _S.SEND,   _P.TOKEN,   _X.NONE,        False, _AI, payload=False),
    _O.TSEND_ATOMIC:       _R(_RELIABLE,   _TWO, _S.TAGGED, _P.RECEIVE, _X.ATOMIC,      False, _HPC),
    _O.TSEND_FETCH_ATOMIC: _R(_RELIABLE,   _TWO, _S.TAGGED, _P.RECEIVE, _X.ATOMIC,      True,  _HPC),
    _O.MSG_ERROR:          _R(_RELIABLE,   _ONE, _S.RMA,    _P.NOTHING, _X.NONE,        False, _EVERY),
    _O.SYNC_WRITE:         _R(_RELIABLE,   _ONE, _S.RMA,    _P.REGION,  _X.SYNC,        False, _EVERY),
    _O.SYNC_ATOMIC:        _R(_RELIABLE,   _ONE, _S.RMA,    _P.REGION,  _X.SYNC_ATOMIC, False, _EVERY),
}  # fmt: skip
"""Properties of each request opcode (UE 1.0.1 §3.4.1.4, Tables 3-1 and 3-4; ses.md §5.1, §4.3, §2.4). The header forms,
the engine, the audit, the dissectors and TABLES.md read this table.

`MSG_ERROR` has the address of the message that it ends. The profiles are those of ses.md §4.3. A question mark behind
an entry of that table is ignored, and the entry O counts as accepted. The rows of ses.md §4.3 that depend on more than
the opcode (wildcards, real deferral, RUDI, forms) are not part of this table.
"""


DEFERRABLES = tuple(code for code, row in OPCODE_PROFILES.items() if row.deferrable)
SENDS = tuple(code for code, row in OPCODE_PROFILES.items() if row.selects is Selects.RECEIVE and not row.deferrable)
RENDEZVOUS = tuple(code for code, row in OPCODE_PROFILES.items() if row.extension is Extension.RENDEZVOUS)
_SYNC, _ATOMIC = (Extension.SYNC, Extension.SYNC_ATOMIC), (Extension.ATOMIC, Extension.SYNC_ATOMIC)
SYNCS = frozenset(code for code, row in OPCODE_PROFILES.items() if row.extension in _SYNC)
"""Opcodes that a revision after UE 1.0.1 adds. A target executes them only if `sync_operations` is on."""
ATOMICS = frozenset(code for code, row in OPCODE_PROFILES.items() if row.extension in _ATOMIC)
TAGGED = frozenset(code for code, row in OPCODE_PROFILES.items() if row.space is Space.TAGGED)
COMPARE_AND_SWAPS = (
    AtomicOpcode.CSWAP, AtomicOpcode.CSWAP_NE, AtomicOpcode.CSWAP_LE, AtomicOpcode.CSWAP_LT,
    AtomicOpcode.CSWAP_GE, AtomicOpcode.CSWAP_GT, AtomicOpcode.MSWAP,
)  # fmt: skip

_T = AtomicDatatype
ELEMENT_SIZE: dict[AtomicDatatype, int] = {
    _T.INT8: 1, _T.INT16: 2, _T.INT32: 4, _T.INT64: 8, _T.INT128: 16,
    _T.UINT8: 1, _T.UINT16: 2, _T.UINT32: 4, _T.UINT64: 8, _T.UINT128: 16,
    _T.FP16: 2, _T.BF16: 2, _T.FLOAT: 4, _T.DOUBLE: 8, _T.LONG_DOUBLE: 16,
    _T.FLOAT_COMPLEX: 8, _T.DOUBLE_COMPLEX: 16, _T.LONG_DOUBLE_COMPLEX: 32,
}  # fmt: skip
"""Size of one element in bytes, by datatype (ses.md §6.2). The address of an element must be a multiple of its size."""

NO_OPERANDS = frozenset({AtomicOpcode.READ, AtomicOpcode.INVAL, *COMPARE_AND_SWAPS})
"""Atomic operations without operands in the payload (ses.md §6.3)."""

# 4 Requests: the common rows -----------------------------------------------------------------------------------------


def _start(opcodes: tuple[Opcode, ...], som: tuple[int, ...] = (), hd: tuple[int, ...] = ()) -> tuple[F, ...]:
    return (
        F( 2, "rsvd"),
        F( 6, "opcode",           Opcode,     only=opcodes),
        F( 2, "version"),
        F( 1, "dc",                           doc="delivery complete"),
        F( 1, "ie",                           doc="initiator error"),
        F( 1, "rel",                          doc="relative addressing"),
        F( 1, "hd",               only=hd,    doc="header data present"),
        F( 1, "eom",                          doc="last packet of the message"),
        F( 1, "som",              only=som,   doc="first packet of the message"),
    )  # fmt: skip


_MESSAGE_ID = (F(16, "message_id"),)
_SHORT_LENGTH = (
    F( 2, "rsvd2"),
    F(14, "request_length",                   doc="bytes of the whole message"),
)  # fmt: skip


def _address(rsvd: int) -> tuple[F, ...]:
    return (
        F( 8, "ri_generation",                doc="resource index generation"),
        F(24, "job_id"),
        F( 4, f"rsvd{rsvd}"),
        F(12, "pid_on_fep",                   doc="process on the fabric endpoint"),
        F( 4, f"rsvd{rsvd + 1}"),
        F(12, "resource_index"),
    )  # fmt: skip


_BUFFER_OFFSET = (F(64, "buffer_offset", doc="where in the buffer the message starts"),)
_INITIATOR = (F(32, "initiator", doc="identity of the sender"),)
_MEMORY_KEY = (F(64, "memory_key", doc="rkey of the region"),)
_MATCH_BITS = (F(64, "match_bits", doc="tag"),)
_HEADER_DATA = (F(64, "header_data", doc="completion data, valid if hd = 1"),)
_POSITION = (
    F(18, "rsvd4"),
    F(14, "payload_length",                   doc="bytes of this packet"),
    F(32, "message_offset",                   doc="where in the message this packet starts"),
)  # fmt: skip
_REQUEST_LENGTH = (F(32, "request_length", doc="bytes of the whole message"),)

# 4.1 Standard --------------------------------------------------------------------------------------------------------

_RESTART_TOKENS = (
    F(32, "initiator_restart_token"),
    F(32, "target_restart_token"),
)  # fmt: skip
_RTR_TOKENS = (
    F(32, "sender_token",                     doc="token of the sender of this packet"),
    F(32, "receiver_token",                   doc="token of its receiver"),
)  # fmt: skip


def _standard(
    name: str, title: str, opcodes: tuple[Opcode, ...], place: tuple[F, ...], key: tuple[F, ...]
) -> tuple[Header, Header]:
    spec = "UE 1.0.1 §3.4.2.1"
    front = _MESSAGE_ID + _address(2) + place + _INITIATOR + key
    return (
        Header(f"ses.{name}.som", f"{title}, first packet", spec, 44,
               _start(opcodes, som=(1,)) + front + _HEADER_DATA + _REQUEST_LENGTH),
        Header(f"ses.{name}", f"{title}, later packet", spec, 44,
               _start(opcodes, som=(0,)) + front + _POSITION + _REQUEST_LENGTH),
    )  # fmt: skip


# The request_* forms also serve every opcode that has no form of its own, so their opcode is not restricted.
REQUEST_STD_SOM, REQUEST_STD = _standard("request_std", "SES standard request", (), _BUFFER_OFFSET, _MEMORY_KEY)
SEND_STD_SOM, SEND_STD = _standard("send_std", "SES standard send", SENDS, _BUFFER_OFFSET, _MATCH_BITS)
DEFERRABLE_STD_SOM, DEFERRABLE_STD = _standard(
    "deferrable_std", "SES deferrable send", DEFERRABLES, _RESTART_TOKENS, _MATCH_BITS)

# The layout is that of a first packet, whatever `som` says.
RTR_STD = Header("ses.rtr_std", "SES ready to restart", "UE 1.0.1 §3.4.2.1", 44,
    _start((Opcode.DEFERRABLE_RTR,)) + _MESSAGE_ID + _address(2)
    + _BUFFER_OFFSET + _INITIATOR + _RTR_TOKENS + _HEADER_DATA + _REQUEST_LENGTH)  # fmt: skip

# 4.2 Medium ----------------------------------------------------------------------------------------------------------


def _medium(name: str, title: str, opcodes: tuple[Opcode, ...], key: tuple[F, ...]) -> tuple[Header, Header]:
    spec = "UE 1.0.1 §3.4.2.2"

    def rows(hd: int, place: tuple[F, ...]) -> tuple[F, ...]:
        return _start(opcodes, hd=(hd,)) + _SHORT_LENGTH + _address(3) + place + _INITIATOR + key

    return (
        Header(f"ses.{name}", title, spec, 32, rows(0, _BUFFER_OFFSET)),
        Header(f"ses.{name}.hd", f"{title} with header data", spec, 32, rows(1, _HEADER_DATA)),
    )


REQUEST_MEDIUM, REQUEST_MEDIUM_HD = _medium("request_medium", "SES medium request", (), _MEMORY_KEY)
SEND_MEDIUM, SEND_MEDIUM_HD = _medium("send_medium", "SES medium send", SENDS, _MATCH_BITS)

# 4.3 Small -----------------------------------------------------------------------------------------------------------

REQUEST_SMALL = Header("ses.request_small", "SES small request", "UE 1.0.1 §3.4.2.3", 20,
    _start(()) + _SHORT_LENGTH + _address(3) + _BUFFER_OFFSET)  # fmt: skip

# 4.4 Extensions ------------------------------------------------------------------------------------------------------

EXT_RENDEZVOUS = Header("ses.ext.rendezvous", "Rendezvous extension", "UE 1.0.1 §3.4.2.5", 24, (
    F(32, "eager_length",                     doc="bytes sent before the target has agreed"),
    F( 8, "ri_generation"),
    F(12, "pid_on_fep"),
    F(12, "resource_index"),
    F(64, "read_offset",                      doc="where the target reads the rest"),
    F(64, "read_memory_key"),
))  # fmt: skip


def _atomic(opcodes: tuple[AtomicOpcode, ...]) -> tuple[F, ...]:
    return (
        F( 8, "atomic_opcode",    AtomicOpcode, only=opcodes),
        F( 8, "atomic_datatype",  AtomicDatatype),
        F( 8, "semantic_control",             doc="bit 0 ctrl_cacheable, bit 1 cpu_coherent"),
        F( 8, "rsvd"),
    )  # fmt: skip


EXT_ATOMIC = Header("ses.ext.atomic", "Atomic extension", "UE 1.0.1 §3.4.2.4", 4, _atomic(()))

EXT_ATOMIC_CAS = Header("ses.ext.atomic_cas", "Compare-and-swap extension", "UE 1.0.1 §3.4.2.4", 36,
    _atomic(COMPARE_AND_SWAPS) + (
    F(128, "compare_value",                   doc="right-aligned"),
    F(128, "swap_value",                      doc="right-aligned"),
))  # fmt: skip

EXT_SYNC = Header("ses.ext.sync", "Sync group extension", "a revision after UE 1.0.1", 4, (
    F(16, "group"),
    F(16, "count"),
))  # fmt: skip

# 5 Responses ---------------------------------------------------------------------------------------------------------

_RESPONSE_START = (
    F( 2, "list",                 ResponseList),
    F( 6, "opcode",               ResponseOpcode),
    F( 2, "version"),
    F( 6, "return_code",          ReturnCode),
)  # fmt: skip

RESPONSE = Header("ses.response", "SES response", "UE 1.0.1 §3.4.2.6", 12, _RESPONSE_START + (
    F(16, "message_id",                       doc="of the request"),
    F( 8, "ri_generation"),
    F(24, "job_id"),
    F(32, "modified_length",                  doc="bytes of the target buffer modified"),
))  # fmt: skip

RESPONSE_DATA = Header("ses.response_data", "SES response with data", "UE 1.0.1 §3.4.2.6", 20, _RESPONSE_START + (
    F(16, "response_message_id"),
    F( 8, "ri_generation"),
    F(24, "job_id"),
    F(16, "read_request_message_id"),
    F( 2, "rsvd"),
    F(14, "payload_length",                   doc="bytes of this packet"),
    F(32, "modified_length"),
    F(32, "message_offset"),
))  # fmt: skip

RESPONSE_DATA_SMALL = Header("ses.response_data_small", "SES small response with data", "UE 1.0.1 §3.4.2.6", 12,
    _RESPONSE_START + (
    F( 2, "rsvd"),
    F(14, "payload_length",                   doc="bytes of this packet"),
    F( 8, "rsvd2"),
    F(24, "job_id"),
    F(32, "original_request_psn"),
))  # fmt: skip

STANDARD = (
    RTR_STD, SEND_STD_SOM, SEND_STD, DEFERRABLE_STD_SOM, DEFERRABLE_STD, REQUEST_STD_SOM, REQUEST_STD,
)  # fmt: skip
MEDIUM = (SEND_MEDIUM, SEND_MEDIUM_HD, REQUEST_MEDIUM, REQUEST_MEDIUM_HD)
REQUESTS = (*STANDARD, *MEDIUM, REQUEST_SMALL)
RESPONSES = (RESPONSE, RESPONSE_DATA, RESPONSE_DATA_SMALL)

PAYLOAD_MTUS = (1024, 2048, 4096, 8192)
"""Legal payload MTUs in bytes (ses.md §16). Each packet of a message except the last carries a payload of this size."""

VENDORS: dict[object, range] = {
    Opcode:         range(0x30, 0x3F),
    ResponseOpcode: range(0x30, 0x40),
    ResponseList:   range(2, 4),
    ReturnCode:     range(0x30, 0x38),
    AtomicOpcode:   range(0xE0, 0xFF),
    AtomicDatatype: range(0xE0, 0xFF),
}  # fmt: skip
"""Codes of a field that are left to vendors. The key is the enumeration of the other codes of the same field."""

HEADERS = (
    REQUEST_STD_SOM, REQUEST_STD, SEND_STD_SOM, SEND_STD, DEFERRABLE_STD_SOM, DEFERRABLE_STD, RTR_STD,
    REQUEST_MEDIUM, REQUEST_MEDIUM_HD, SEND_MEDIUM, SEND_MEDIUM_HD, REQUEST_SMALL,
    EXT_RENDEZVOUS, EXT_ATOMIC, EXT_ATOMIC_CAS, EXT_SYNC, *RESPONSES,
)  # fmt: skip
