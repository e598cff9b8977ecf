# SPDX-License-Identifier: GPL-2.0-only
"""This module holds every table and code of RoCEv2, RoCEv1 and native InfiniBand (roce.md).

A packet is a base transport header `bth`, the headers that its opcode implies, payload, pad and ICRC. An opcode is a
transport (3 bits) and an operation (5 bits); the transport's headers come first, then the operation's own headers.
`SEQUENCES` has the headers of every opcode, computed from the tables of transports and operations.
"""

from enum import Enum, IntEnum
from typing import NamedTuple

from uetproto.wire.fields import Field as F
from uetproto.wire.fields import Header


class Transport(IntEnum):
    """This code names the transport: it is the first three bits of an opcode (roce.md §3)."""

    RC = 0
    UC = 1
    RD = 2
    UD = 3
    CNP = 4
    XRC = 5


class Operation(IntEnum):
    """This code names the operation: it is the last five bits of an opcode, for all transports but CNP."""

    SEND_FIRST = 0x00
    SEND_MIDDLE = 0x01
    SEND_LAST = 0x02
    SEND_LAST_WITH_IMMEDIATE = 0x03
    SEND_ONLY = 0x04
    SEND_ONLY_WITH_IMMEDIATE = 0x05
    RDMA_WRITE_FIRST = 0x06
    RDMA_WRITE_MIDDLE = 0x07
    RDMA_WRITE_LAST = 0x08
    RDMA_WRITE_LAST_WITH_IMMEDIATE = 0x09
    RDMA_WRITE_ONLY = 0x0A
    RDMA_WRITE_ONLY_WITH_IMMEDIATE = 0x0B
    RDMA_READ_REQUEST = 0x0C
    RDMA_READ_RESPONSE_FIRST = 0x0D
    RDMA_READ_RESPONSE_MIDDLE = 0x0E
    RDMA_READ_RESPONSE_LAST = 0x0F
    RDMA_READ_RESPONSE_ONLY = 0x10
    ACKNOWLEDGE = 0x11
    ATOMIC_ACKNOWLEDGE = 0x12
    COMPARE_SWAP = 0x13
    FETCH_ADD = 0x14
    RESYNC = 0x15
    SEND_LAST_WITH_INVALIDATE = 0x16
    SEND_ONLY_WITH_INVALIDATE = 0x17
    FLUSH = 0x1C
    ATOMIC_WRITE = 0x1D


class Lnh(IntEnum):
    """This code says which header follows an LRH."""

    RAW = 0
    IP = 1
    LOCAL = 2
    GLOBAL = 3


class Nak(IntEnum):
    """This code is a syndrome of an AETH that refuses a request (roce.md §2.1)."""

    PSN_SEQUENCE_ERROR = 0x60
    INVALID_REQUEST = 0x61
    REMOTE_ACCESS_ERROR = 0x62
    REMOTE_OPERATIONAL_ERROR = 0x63
    INVALID_RD_REQUEST = 0x64


BTH_FOLLOWS = 0x1B  # GRH next header
CNP_OPCODE = 0x81
NATIVE_CNP_OPCODE = 0x80
RD_OPCODES = range(0x40, 0x60)  # in practice the "dynamically connected" transport of a vendor
MULTICAST_QP = 0xFFFFFF
NO_CREDIT_LIMIT = 0x1F
PMTUS = (256, 512, 1024, 2048, 4096)

# 1, 2 Around the transport header -------------------------------------------------------------------------------------

LRH = Header("lrh", "Local route header", "roce.md §2", 8, (
    F( 4, "vl",                               doc="virtual lane"),
    F( 4, "lver"),
    F( 4, "sl",                               doc="service level"),
    F( 2, "rsvd"),
    F( 2, "lnh",                  Lnh,        doc="the header that follows"),
    F(16, "dlid"),
    F( 5, "rsvd2"),
    F(11, "pktlen",                           doc="words of 4 bytes from here to the ICRC"),
    F(16, "slid"),
))  # fmt: skip

GRH = Header("grh", "Global route header", "roce.md §2", 40, (
    F(  4, "ipver",               only=(6,)),
    F(  8, "tclass",                          doc="traffic class"),
    F( 20, "flowlabel"),
    F( 16, "paylen",                          doc="bytes from the BTH to the ICRC"),
    F(  8, "nxthdr",                          doc="27: a BTH follows"),
    F(  8, "hoplmt"),
    F(128, "sgid"),
    F(128, "dgid"),
))  # fmt: skip

# 2 Behind the transport header ----------------------------------------------------------------------------------------

RDETH = Header("rdeth", "Reliable datagram extended header", "roce.md §2", 4, (
    F( 8, "rsvd"),
    F(24, "eecnxt",                           doc="end-to-end context"),
))  # fmt: skip

DETH = Header("deth", "Datagram extended header", "roce.md §2", 8, (
    F(32, "q_key"),
    F( 8, "rsvd"),
    F(24, "srcqp",                            doc="queue pair of the sender"),
))  # fmt: skip

# Layout and place are from memory of the IBTA text (roce.md §2, §17).
XRCETH = Header("xrceth", "Extended reliable connection header", "roce.md §2", 4, (
    F( 8, "rsvd"),
    F(24, "xrcsrq",                           doc="shared receive queue"),
))  # fmt: skip

RETH = Header("reth", "RDMA extended header", "roce.md §2", 16, (
    F(64, "va",                               doc="virtual address"),
    F(32, "r_key"),
    F(32, "dmalen",                           doc="bytes of the whole message"),
))  # fmt: skip

ATOMIC_ETH = Header("atomic_eth", "Atomic extended header", "roce.md §2", 28, (
    F(64, "va",                               doc="virtual address"),
    F(32, "r_key"),
    F(64, "swapdt",                           doc="the value to swap in, or to add"),
    F(64, "cmpdt",                            doc="the value to compare with"),
))  # fmt: skip

# Wireshark 4.6 reads 27 + 2 + 3 bits; the choice is Linux's layout (roce.md §2).
FETH = Header("feth", "Flush extended header", "roce.md §2", 4, (
    F(26, "rsvd"),
    F( 2, "sel",                              doc="0: range, 1: whole region"),
    F( 4, "plt",                              doc="1: global visibility, 2: persistence"),
))  # fmt: skip

AETH = Header("aeth", "Acknowledge extended header", "roce.md §2", 4, (
    F( 8, "syndrome",                         doc="ACK with credits, RNR NAK or NAK"),
    F(24, "msn",                              doc="messages completed"),
))  # fmt: skip

ATOMIC_ACK_ETH = Header("atomic_ack_eth", "Atomic acknowledge extended header", "roce.md §2", 8, (
    F(64, "origremdt",                        doc="the value before the operation"),
))  # fmt: skip

IMM = Header("imm", "Immediate data", "roce.md §2", 4, (
    F(32, "immdt"),
))  # fmt: skip

IETH = Header("ieth", "Invalidate extended header", "roce.md §2", 4, (
    F(32, "r_key"),
))  # fmt: skip

CNP = Header("cnp", "Congestion notification", "roce.md §2", 16, (
    F(64, "rsvd"),
    F(64, "rsvd2"),
))  # fmt: skip

# 3 Opcodes ------------------------------------------------------------------------------------------------------------


class Load(Enum):
    """A load gives the least and the largest payload size of an operation in bytes. None stands for the path MTU."""

    FULL = (None, None)
    SOME = (1, None)
    ANY = (0, None)
    NONE = (0, 0)
    WORD = (8, 8)


class Form(NamedTuple):
    """This tuple says which transports have an operation, which headers the operation adds, and how large its payload
    is (roce.md §3)."""

    transports: tuple[Transport, ...]
    headers: tuple[Header, ...]
    load: Load


_RC, _UC, _RD, _UD, _, _XRC = Transport
_CONNECTED = (_RC, _UC, _RD, _XRC)
_EVERY = (_RC, _UC, _RD, _UD, _XRC)
_RELIABLE = (_RC, _RD, _XRC)
_INVALIDATES = (_RC, _XRC)

OPERATIONS: dict[Operation, Form] = {
    # operation                                        transports     own headers             payload
    Operation.SEND_FIRST:                     Form(_CONNECTED,   (),                     Load.FULL),
    Operation.SEND_MIDDLE:                    Form(_CONNECTED,   (),                     Load.FULL),
    Operation.SEND_LAST:                      Form(_CONNECTED,   (),                     Load.SOME),
    Operation.SEND_LAST_WITH_IMMEDIATE:       Form(_CONNECTED,   (IMM,),                 Load.SOME),
    Operation.SEND_ONLY:                      Form(_EVERY,       (),                     Load.ANY),
    Operation.SEND_ONLY_WITH_IMMEDIATE:       Form(_EVERY,       (IMM,),                 Load.ANY),
    Operation.RDMA_WRITE_FIRST:               Form(_CONNECTED,   (RETH,),                Load.FULL),
    Operation.RDMA_WRITE_MIDDLE:              Form(_CONNECTED,   (),                     Load.FULL),
    Operation.RDMA_WRITE_LAST:                Form(_CONNECTED,   (),                     Load.SOME),
    Operation.RDMA_WRITE_LAST_WITH_IMMEDIATE: Form(_CONNECTED,   (IMM,),                 Load.SOME),
    Operation.RDMA_WRITE_ONLY:                Form(_CONNECTED,   (RETH,),                Load.ANY),
    Operation.RDMA_WRITE_ONLY_WITH_IMMEDIATE: Form(_CONNECTED,   (RETH, IMM),            Load.ANY),
    Operation.RDMA_READ_REQUEST:              Form(_RELIABLE,    (RETH,),                Load.NONE),
    Operation.RDMA_READ_RESPONSE_FIRST:       Form(_RELIABLE,    (AETH,),                Load.FULL),
    Operation.RDMA_READ_RESPONSE_MIDDLE:      Form(_RELIABLE,    (),                     Load.FULL),
    Operation.RDMA_READ_RESPONSE_LAST:        Form(_RELIABLE,    (AETH,),                Load.SOME),
    Operation.RDMA_READ_RESPONSE_ONLY:        Form(_RELIABLE,    (AETH,),                Load.ANY),
    Operation.ACKNOWLEDGE:                    Form(_RELIABLE,    (AETH,),                Load.NONE),
    Operation.ATOMIC_ACKNOWLEDGE:             Form(_RELIABLE,    (AETH, ATOMIC_ACK_ETH), Load.NONE),
    Operation.COMPARE_SWAP:                   Form(_RELIABLE,    (ATOMIC_ETH,),          Load.NONE),
    Operation.FETCH_ADD:                      Form(_RELIABLE,    (ATOMIC_ETH,),          Load.NONE),
    Operation.RESYNC:                         Form((_RD,),       (),                     Load.NONE),
    Operation.SEND_LAST_WITH_INVALIDATE:      Form(_INVALIDATES, (IETH,),                Load.SOME),
    Operation.SEND_ONLY_WITH_INVALIDATE:      Form(_INVALIDATES, (IETH,),                Load.ANY),
    Operation.FLUSH:                          Form(_RELIABLE,    (FETH, RETH),           Load.NONE),
    Operation.ATOMIC_WRITE:                   Form(_INVALIDATES, (RETH,),                Load.WORD),
}  # fmt: skip

RESPONSES = frozenset(range(Operation.RDMA_READ_RESPONSE_FIRST, Operation.ATOMIC_ACKNOWLEDGE + 1))
"""Operations that answer a request. All other operations are requests."""
WHOLE_WRITES = (Operation.RDMA_WRITE_ONLY, Operation.RDMA_WRITE_ONLY_WITH_IMMEDIATE)


def opcode_of(transport: Transport, operation: Operation) -> int:
    return transport << 5 | operation


def _transport_part(transport: Transport, request: bool) -> tuple[Header, ...]:
    """Return the headers of a transport, which stand between `bth` and the operation's own headers (roce.md §3)."""
    if transport == Transport.UD:
        return (DETH,)
    if transport == Transport.RD:
        return (RDETH, DETH) if request else (RDETH,)
    return (XRCETH,) if transport == Transport.XRC and request else ()


SEQUENCES: dict[int, tuple[Header, ...]] = {
    opcode_of(transport, operation): _transport_part(transport, operation not in RESPONSES) + form.headers
    for transport in Transport
    for operation, form in OPERATIONS.items()
    if transport in form.transports
} | {NATIVE_CNP_OPCODE: (), CNP_OPCODE: (CNP,)}
"""Headers that stand between the BTH and the payload, by opcode. An opcode that is missing is unknown."""

BthOpcode: type[IntEnum] = IntEnum(  # type: ignore[misc]  # mypy wants the members typed out
    "BthOpcode",
    {"CNP_NATIVE": NATIVE_CNP_OPCODE, "CNP": CNP_OPCODE}
    | {
        f"{Transport(opcode >> 5).name}_{Operation(opcode & 0x1F).name}": opcode
        for opcode in sorted(SEQUENCES)
        if opcode >> 5 != Transport.CNP
    },
)

BTH = Header("bth", "Base transport header", "roce.md §2", 12, (
    F( 8, "opcode",               BthOpcode,  doc="transport, 3 bits, and operation"),
    F( 1, "se",                               doc="solicited event"),
    F( 1, "m",                                doc="path migration state"),
    F( 2, "padcnt",                           doc="pad bytes behind the payload"),
    F( 4, "tver"),
    F(16, "p_key",                            doc="partition"),
    F( 1, "fecn"),
    F( 1, "becn"),
    F( 6, "rsvd"),
    F(24, "destqp",                           doc="queue pair of the receiver"),
    F( 1, "a",                                doc="acknowledge request"),
    F( 7, "rsvd2"),
    F(24, "psn",                              doc="packet sequence number"),
))  # fmt: skip

HEADERS = (
    LRH, GRH, BTH, RDETH, DETH, XRCETH, RETH, ATOMIC_ETH, FETH, AETH, ATOMIC_ACK_ETH, IMM, IETH, CNP,
)  # fmt: skip


# 2.1 Syndromes --------------------------------------------------------------------------------------------------------


def count_of(code: int) -> int:
    """Return the number that the five bits `code` of a syndrome encode, n(c): credits, or units of 10 µs (roce.md
    §2.1)."""
    if code < 3:
        return code
    return 3 << (code - 3) // 2 if code % 2 else 4 << (code - 4) // 2


def rnr_wait_us(code: int) -> int:
    """Return how long the receiver of an RNR NAK with the timer `code` must wait, in microseconds."""
    return count_of(code) * 10 if code else 655_360
