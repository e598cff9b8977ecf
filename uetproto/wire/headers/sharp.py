# SPDX-License-Identifier: GPL-2.0-only
"""This module holds every table and code of SHARP messages and of their management (sharp.md §1.6–§1.8, sharp.md §2).

A message is the base header `sharp`, the extensions that its flags name, and the body of its opcode, padded to whole
words. The codes of operations, data types and management are published. The layout of messages is not published: it is
this project's own, and no switch on the market uses it. The `origin` of each table states this. A field that differs
from its table has an `origin` of its own.
"""

from enum import IntEnum, IntFlag

from uetproto.wire.fields import Field as F
from uetproto.wire.fields import Header, Origin

OURS, OUR_PLACE, INFERRED = Origin.OURS, Origin.OUR_PLACE, Origin.INFERRED

# 1.6 Published codes --------------------------------------------------------------------------------------------------


class Op(IntEnum):
    """This code is the operation of a reduction, such as SUM (sharp.md §1.6)."""

    MAX = 0
    MIN = 1
    SUM = 2
    PROD = 3
    LAND = 4
    BAND = 5
    LOR = 6
    BOR = 7
    LXOR = 8
    BXOR = 9
    MAXLOC = 10
    MINLOC = 11
    NULL = 12


class Dtype(IntEnum):
    """This code is the data type of the elements of a vector (sharp.md §1.6)."""

    UNSIGNED = 0
    INT = 1
    UNSIGNED_LONG = 2
    LONG = 3
    FLOAT = 4
    DOUBLE = 5
    UNSIGNED_SHORT = 6
    SHORT = 7
    FLOAT_SHORT = 8
    BFLOAT16 = 9
    UINT8 = 10
    INT8 = 11
    NULL = 12


DTYPE_SIZES: dict[Dtype, int] = {
    Dtype.UNSIGNED: 4, Dtype.INT: 4, Dtype.UNSIGNED_LONG: 8, Dtype.LONG: 8,
    Dtype.FLOAT: 4, Dtype.DOUBLE: 8, Dtype.UNSIGNED_SHORT: 2, Dtype.SHORT: 2,
    Dtype.FLOAT_SHORT: 2, Dtype.BFLOAT16: 2, Dtype.UINT8: 1, Dtype.INT8: 1, Dtype.NULL: 0,
}  # fmt: skip
"""Size of one element in bytes, by data type."""


class Feature(IntFlag):
    """These bits name the features for which a job may ask (sharp.md §1.6)."""

    LLT = 1
    REPRODUCIBLE = 2
    SAT = 4
    SAT_EXCLUSIVE_LOCK = 8


class LibsharpStatus(IntEnum):
    """This code is the return value of a function of libsharp (sharp.md §1.6)."""

    OK = 0
    ERROR = -1
    NOT_SUPPORTED = -2
    NO_MEMORY = -3
    GROUP_ALLOC = -4
    TREE_CONNECT = -5
    GROUP_JOIN = -6
    QUOTA = -7
    SESSION_INIT = -8
    DEVICE = -9
    INVALID = -10
    JOB_CREATE = -11
    TREE_INFO = -12
    NO_TREES = -13
    GROUP_ID = -14
    OUT_OF_BAND = -15
    MCAST_TARGET = -16
    GROUP_TRIM = -17
    LOCK_FAILED = -18
    LOCK_DENIED = -19
    NO_RESOURCE = -20


# 1.7 Published codes of management ------------------------------------------------------------------------------------


class AmMethod(IntEnum):
    """This code is the method of a MAD of the Aggregation Management class (sharp.md §1.7)."""

    GET = 0x01
    SET = 0x02
    TRAP = 0x05
    TRAP_REPRESS = 0x07
    GET_RESP = 0x81


class MadStatus(IntEnum):
    """This code is the status that a MAD reports (sharp.md §1.7)."""

    OK = 0x00
    BUSY = 0x01
    REDIRECT = 0x02
    BAD_CLASS_VERSION = 0x04
    BAD_METHOD = 0x08
    BAD_METHOD_ATTRIBUTE = 0x0C
    BAD_FIELD = 0x1C


class AmAttribute(IntEnum):
    """This code is the attribute of a MAD of the Aggregation Management class (sharp.md §1.7)."""

    CLASS_PORT_INFO = 0x0001
    NOTICE = 0x0002
    AM_KEY_INFO = 0x0010
    AN_INFO = 0x0020
    QP_ALLOCATION = 0x0021
    QPC_CONFIG = 0x0022
    TREE_CONFIG = 0x0023
    QUOTA_CONFIG = 0x0024
    AN_SEMAPHORE_INFO = 0x0025
    AN_SAT_QP_INFO = 0x0026
    RESOURCE_CLEANUP = 0x0040
    PERFORMANCE_COUNTERS = 0x0050
    QP_DATABASE = 0x0056
    AN_ACTIVE_JOBS = 0x0059
    PORT_CREDIT_RESOURCES_ALLOCATION = 0x005F
    TREE_TO_JOB_BIND = 0x0060
    MULTICAST_PRIVATE_LFT = 0x0062


class QpState(IntEnum):
    """This code is the state of a queue pair of an aggregation node (sharp.md §1.4)."""

    DISABLED = 0
    ACTIVE = 1
    ERROR = 2


class TreeMode(IntEnum):
    """This code is the purpose of an aggregation tree (sharp.md §1.7)."""

    LLT = 0
    SAT = 1


class CounterMode(IntEnum):
    """This code says which counters a request asks for (sharp.md §1.7)."""

    CLU = 0
    HBA = 1
    AGGREGATED = 2


# 1.8 Traps, syndromes, counters ---------------------------------------------------------------------------------------


class Trap(IntEnum):
    """This code says which event an aggregation node reports to its manager by a trap (sharp.md §1.8)."""

    QP_ERROR = 0
    INVALID_REQUEST = 1
    SHARP_ERROR = 2
    QP_ALLOCATION_TIMEOUT = 3
    AM_KEY_VIOLATION = 4
    UNSUPPORTED = 5


class Syndrome(IntEnum):
    """This code says which error the trap SHARP_ERROR reports (sharp.md §1.8)."""

    LOCK_SEMAPHORE_TIMEOUT = 0
    OST_NO_PROGRESS_TIMEOUT = 1
    BAD_SAT_REQUEST_CLASSIFICATION = 2
    SAT_MULTIPLE_TARGETS = 3
    SAT_TARGET_HEADER = 4
    SAT_NO_DESTINATIONS_ON_ROOT = 5
    SAT_EXCEEDS_OUTSTANDING_OPERATIONS = 6
    SAT_UNBALANCED_FIFO_DATA = 7
    SAT_UNBALANCED_OST_ADDRESS = 8
    SAT_DATA_CORRUPTION = 9
    SAT_BAD_DATA_GRANULARITY = 10


COUNTERS = (
    "packets_sent", "ack_packets_sent", "retry_packets_sent", "rnr_events", "timeout_events", "out_of_sequence_naks",
    "rnr_naks", "transport_discards", "sharp_discards", "aeth_syndrome_acks", "hba_lookups", "hba_received_packets",
    "hba_received_bytes", "hba_sent_ack_packets", "rcds_sent_packets", "hba_sent_ack_bytes", "rcds_sent_bytes",
    "hba_multi_packet_drop_packets", "hba_multi_packet_drop_bytes",
)  # fmt: skip
"""Performance counters in the order that is published. Bit 0 of a mask selects the first (sharp.md §1.8)."""


# 2.2 to 2.5 Our codes -------------------------------------------------------------------------------------------------


class Coll(IntEnum):
    """This code names the collective (sharp.md §2.2)."""

    BARRIER = 0
    ALLREDUCE = 1
    REDUCE = 2
    BCAST = 3
    NOT_APPLICABLE = 0xFF


class Flag(IntFlag):
    """These bits make up `sharp.flags` (sharp.md §2.3)."""

    SAT = 0x8000
    LOCK = 0x4000
    UNLOCK = 0x2000
    FIRST = 0x1000
    LAST = 0x0800
    MCAST = 0x0400
    TGT = 0x0200
    UDH = 0x0100
    REPRO = 0x0080
    LE = 0x0040
    RETX = 0x0020
    NODATA = 0x0010
    FINAL = 0x0008


RESERVED_FLAGS = 0x0007


class TargetType(IntEnum):
    """This code says to whom the result of a reduction is sent (sharp.md §2.4)."""

    GROUP = 0
    SINGLE = 1
    MCAST = 2


class SharpOpcode(IntEnum):
    """An opcode names a message. The opcode of a response is that of its request plus 0x80 (sharp.md §2.5)."""

    GROUP_JOIN_REQ = 0x01
    GROUP_LEAVE_REQ = 0x02
    AGG_REQ = 0x10
    LOCK_REQ = 0x20
    UNLOCK_REQ = 0x21
    HEARTBEAT = 0x30
    NACK = 0x7E
    ERROR = 0x7F
    GROUP_JOIN_RESP = 0x81
    GROUP_LEAVE_RESP = 0x82
    AGG_RESULT = 0x90
    LOCK_RESP = 0xA0
    UNLOCK_RESP = 0xA1
    HEARTBEAT_RESP = 0xB0


class Status(IntEnum):
    """This code says how a request ended (sharp.md §2.7)."""

    OK = 0x00
    BAD_VERSION = 0x01
    BAD_HEADER = 0x02
    UNKNOWN_TREE = 0x03
    UNKNOWN_JOB = 0x04
    UNKNOWN_GROUP = 0x05
    NOT_MEMBER = 0x06
    OP_UNSUPPORTED = 0x07
    DTYPE_UNSUPPORTED = 0x08
    OP_DTYPE_ILLEGAL = 0x09
    MISMATCH = 0x0A
    LENGTH = 0x0B
    OST_EXHAUSTED = 0x0C
    GROUP_EXHAUSTED = 0x0D
    QUOTA = 0x0E
    SEQ_STALE = 0x0F
    SEQ_AHEAD = 0x10
    TIMEOUT_NO_PROGRESS = 0x11
    LOCK_TIMEOUT = 0x12
    LOCK_BUSY = 0x13
    LOCK_DENIED = 0x14
    NOT_LOCKED = 0x15
    SAT_TARGET_HDR = 0x16
    SAT_MULTI_TARGET = 0x17
    SAT_NO_DEST = 0x18
    SAT_OST_OVERFLOW = 0x19
    SAT_UNBALANCED = 0x1A
    SAT_GRANULARITY = 0x1B
    DATA_CORRUPT = 0x1C
    CHILD_DOWN = 0x1D
    PARENT_DOWN = 0x1E
    CANCELLED = 0x1F
    TREE_DISABLED = 0x20


RETRYABLE = frozenset({Status.OST_EXHAUSTED, Status.SEQ_STALE, Status.SEQ_AHEAD})
"""Status codes of a NACK after which the request may be sent again, because nothing was consumed."""

COUNTERPARTS: dict[Status, tuple[LibsharpStatus | Trap | Syndrome, ...]] = {
    Status.OK:                  (LibsharpStatus.OK,),
    Status.BAD_VERSION:         (Trap.INVALID_REQUEST,),
    Status.BAD_HEADER:          (Trap.INVALID_REQUEST,),
    Status.UNKNOWN_TREE:        (LibsharpStatus.TREE_INFO,),
    Status.UNKNOWN_JOB:         (LibsharpStatus.JOB_CREATE,),
    Status.UNKNOWN_GROUP:       (LibsharpStatus.GROUP_ID,),
    Status.NOT_MEMBER:          (LibsharpStatus.GROUP_JOIN,),
    Status.OP_UNSUPPORTED:      (LibsharpStatus.NOT_SUPPORTED,),
    Status.DTYPE_UNSUPPORTED:   (LibsharpStatus.NOT_SUPPORTED,),
    Status.OP_DTYPE_ILLEGAL:    (LibsharpStatus.NOT_SUPPORTED,),
    Status.MISMATCH:            (Trap.INVALID_REQUEST,),
    Status.LENGTH:              (LibsharpStatus.INVALID,),
    Status.OST_EXHAUSTED:       (LibsharpStatus.NO_RESOURCE,),
    Status.GROUP_EXHAUSTED:     (LibsharpStatus.GROUP_ALLOC,),
    Status.QUOTA:               (LibsharpStatus.QUOTA,),
    Status.TIMEOUT_NO_PROGRESS: (Syndrome.OST_NO_PROGRESS_TIMEOUT,),
    Status.LOCK_TIMEOUT:        (Syndrome.LOCK_SEMAPHORE_TIMEOUT,),
    Status.LOCK_BUSY:           (LibsharpStatus.LOCK_FAILED,),
    Status.LOCK_DENIED:         (LibsharpStatus.LOCK_DENIED,),
    Status.NOT_LOCKED:          (Syndrome.BAD_SAT_REQUEST_CLASSIFICATION,),
    Status.SAT_TARGET_HDR:      (Syndrome.SAT_TARGET_HEADER,),
    Status.SAT_MULTI_TARGET:    (Syndrome.SAT_MULTIPLE_TARGETS,),
    Status.SAT_NO_DEST:         (Syndrome.SAT_NO_DESTINATIONS_ON_ROOT,),
    Status.SAT_OST_OVERFLOW:    (Syndrome.SAT_EXCEEDS_OUTSTANDING_OPERATIONS,),
    Status.SAT_UNBALANCED:      (Syndrome.SAT_UNBALANCED_FIFO_DATA, Syndrome.SAT_UNBALANCED_OST_ADDRESS),
    Status.SAT_GRANULARITY:     (Syndrome.SAT_BAD_DATA_GRANULARITY,),
    Status.DATA_CORRUPT:        (Syndrome.SAT_DATA_CORRUPTION,),
    Status.CHILD_DOWN:          (Trap.QP_ERROR,),
    Status.PARENT_DOWN:         (Trap.QP_ERROR,),
}  # fmt: skip
"""Published codes that correspond to each status. A status without such a code is missing (sharp.md §2.7)."""

VERSION = 1
LAST_JOB = 0xFFFFFF
INVALID_TREE = 0xFFFF
EVERY_RANK = 0xFFFF
UNLIMITED = 0xFFFF
"""Value of the field `batch` that requests a lock without a limit: only UNLOCK_REQ ends it."""
UDH_WORDS = 2
TGT_WORDS = 6
MAGIC = 0x53485250
"""Upper 32 bits of `header_data`, "SHRP", which mark a SHARP message over UET (sharp.md §2.1)."""

# 2.2 Base header ------------------------------------------------------------------------------------------------------

# The size of 32 bytes is inferred: published limits of a message are a power of two less 32.
SHARP = Header("sharp", "SHARP base header", "sharp.md §2.2", 32, (
    F( 4, "ver",                  only=(VERSION,)),
    F( 4, "ext_words",                            doc="32-bit words of extensions: 0, 2, 6 or 8"),
    F( 8, "opcode",               SharpOpcode),
    F(16, "tree_id",                              doc="0xffff: invalid", origin=OUR_PLACE),
    F(32, "job_id",                               doc="below 2^24, as of UET"),
    F(32, "group_id"),
    F(32, "seq",                                  doc="operation of the group, or control counter of the connection"),
    F(32, "vec_off",                              doc="bytes of the vector before this payload"),
    F(16, "count",                                doc="elements; pairs for MINLOC and MAXLOC"),
    F(16, "payload_len",                          doc="bytes of the body before padding"),
    F( 8, "op",                   Op,             origin=OUR_PLACE),
    F( 8, "dtype",                Dtype,          origin=OUR_PLACE),
    F( 8, "tag_dtype",            Dtype,          doc="of the tags of MINLOC and MAXLOC", origin=OUR_PLACE),
    F( 8, "coll",                 Coll),
    F( 8, "child_idx",                            doc="child of the aggregation node; 255: unknown or all"),
    F( 8, "status",               Status),
    F(16, "flags",                Flag),
), OURS)  # fmt: skip

# 2.4 Extensions -------------------------------------------------------------------------------------------------------

EXT_UDH = Header("sharp.ext.udh", "SHARP user-data extension", "sharp.md §2.4", 8, (
    F(64, "data",                                 doc="comes back to the child that sent it"),
), OURS)  # fmt: skip

EXT_TGT = Header("sharp.ext.tgt", "SHARP target extension", "sharp.md §2.4", 24, (
    F(  8, "type",                TargetType),
    F(  8, "sl",                                  doc="service level"),
    F( 16, "rank",                                doc="0xffff: all"),
    F(  8, "rsvd"),
    F( 24, "qpn"),
    F(128, "gid",                                 doc="GID or MGID"),
), OURS)  # fmt: skip

# 2.6 Bodies -----------------------------------------------------------------------------------------------------------

JOIN_REQ = Header("sharp.join_req", "Body of GROUP_JOIN_REQ, before the ranks", "sharp.md §2.6", 16, (
    F(16, "member_count",                         doc="ranks that follow; 1 of a host"),
    F(16, "group_size"),
    F(16, "want_osts"),
    F(16, "user_data_per_ost"),
    F(32, "features",             Feature,        origin=OUR_PLACE),
    F( 8, "rsvd"),
    F(24, "qpn",                                  doc="queue pair, or PDC"),
), OURS)  # fmt: skip

JOIN_RESP = Header("sharp.join_resp", "Body of GROUP_JOIN_RESP", "sharp.md §2.6", 40, (
    F( 16, "member_count",                        doc="below this aggregation node"),
    F( 16, "group_size"),
    F( 16, "granted_osts"),
    F( 16, "user_data_per_ost"),
    F( 32, "features",            Feature,        origin=OUR_PLACE),
    F(  8, "child_idx"),
    F(  8, "depth",                               doc="1: leaf"),
    F(  8, "is_root"),
    F(  8, "rsvd"),
    F(128, "mgid",                                doc="multicast group; its structure is inferred", origin=INFERRED),
    F( 16, "mlid"),
    F( 16, "rsvd2"),
    F( 32, "qkey"),
), OURS)  # fmt: skip

LOCK = Header("sharp.lock", "Body of LOCK and UNLOCK, requests and responses", "sharp.md §2.6", 16, (
    F(16, "sat_tree_id"),
    F(16, "batch",                                doc="operations until it is released; 0xffff: no limit"),
    F(32, "token",                                doc="0 in LOCK_REQ"),
    F(32, "timeout_ms"),
    F(16, "target_rank",                          doc="0xffff: all"),
    F(16, "rsvd"),
), OURS)  # fmt: skip

FAULT = Header("sharp.fault", "Body of NACK and ERROR", "sharp.md §2.6", 40, (
    F(  8, "code",                Status),
    F(  8, "depth",                               doc="of its origin; 0: host"),
    F(  8, "opcode",              SharpOpcode,    doc="of the message that was refused"),
    F(  8, "rsvd"),
    F( 32, "an_id",                               doc="aggregation node"),
    F(256, "children",                            doc="missing or at fault; most significant bit: child 0"),
), OURS)  # fmt: skip

HEARTBEAT = Header("sharp.heartbeat", "Body of HEARTBEAT and its response", "sharp.md §2.6", 8, (
    F(32, "sender"),
    F(32, "counter"),
), OURS)  # fmt: skip

BODIES: dict[SharpOpcode, Header] = {
    SharpOpcode.GROUP_JOIN_REQ:  JOIN_REQ,
    SharpOpcode.GROUP_JOIN_RESP: JOIN_RESP,
    SharpOpcode.LOCK_REQ:        LOCK,
    SharpOpcode.LOCK_RESP:       LOCK,
    SharpOpcode.UNLOCK_REQ:      LOCK,
    SharpOpcode.UNLOCK_RESP:     LOCK,
    SharpOpcode.HEARTBEAT:       HEARTBEAT,
    SharpOpcode.HEARTBEAT_RESP:  HEARTBEAT,
    SharpOpcode.NACK:            FAULT,
    SharpOpcode.ERROR:           FAULT,
}  # fmt: skip
"""Header with which the body of a message begins, by opcode. Messages that leave a group have no body."""
VECTORS = (SharpOpcode.AGG_REQ, SharpOpcode.AGG_RESULT)
"""Opcodes of messages whose body is the vector."""

HEADERS = (SHARP, EXT_UDH, EXT_TGT, JOIN_REQ, JOIN_RESP, LOCK, FAULT, HEARTBEAT)
RANKS = "sharp.ranks"
"""Name of the form for the ranks behind `sharp.join_req`, of 16 bits each. This form has no table."""


def following(opcode: int, flags: int) -> tuple[Header, ...]:
    """Return the headers that follow a base header with this opcode and these flags: extensions, then the body."""
    extensions = ((EXT_UDH, Flag.UDH), (EXT_TGT, Flag.TGT))
    body = BODIES.get(opcode)  # type: ignore[call-overload]  # any number may be asked for
    return (*(header for header, flag in extensions if flags & flag), *((body,) if body else ()))


def ext_words_of(flags: int) -> int:
    """Return the value that the field `ext_words` must have with these flags."""
    return (UDH_WORDS if flags & Flag.UDH else 0) + (TGT_WORDS if flags & Flag.TGT else 0)


def ranks_of(data: bytes) -> tuple[int, ...]:
    """Return the ranks of a GROUP_JOIN_REQ from their bytes."""
    return tuple(int.from_bytes(data[at : at + 2], "big") for at in range(0, len(data) - 1, 2))
