# SPDX-License-Identifier: GPL-2.0-only
"""Kinds of damage to packets alone, to security headers, RoCE and SHARP: for each section that a capture can show."""

from tests.audit.kinds.kind import (
    Kind,
    at,
    at_other,
    both,
    copy,
    drop,
    elsewhere,
    flip,
    flip_in,
    from_capture,
    insert,
    layer,
    payload,
    plus,
    put,
    raw,
    swap,
    without,
)  # fmt: skip
from uetproto.wire.headers.roce import Operation, Transport, opcode_of
from uetproto.wire.headers.sharp import Dtype, Flag, Op, Status

_A, _B = 0x0A00000B, 0x0A00010B


def _flipped(at_byte: int, bit: int = 0) -> object:
    def edit(frame: bytes) -> bytes:
        data = bytearray(frame)
        data[at_byte] ^= 1 << bit
        return bytes(data)

    return edit


WIRE = [
    Kind("a bit of a CRC32C", "tss.md §12", "gradient", at("ses.request_std", 1), raw(_flipped(-1)), "WIRE-CRC"),
    Kind("a bit of a payload below a CRC32C", "tss.md §12", "gradient", at("ses.request_std", 1), raw(_flipped(500)),
         "WIRE-CRC"),
    Kind("a frame that is cut", "ses.md §7.1", "gradient", at("ses.request_std", 1), raw(lambda data: data[:200]),
         "WIRE-LENGTH"),
    Kind("a payload that is longer than the headers say", "ses.md §7.1", "gradient", at("ses.request_std", 1),
         payload(lambda data: data + bytes(8)), "WIRE-LENGTH"),
    Kind("a reserved bit of a request", "ses.md §3", "gradient", at("pds.rod_req"), put("pds", rsvd=1),
         "WIRE-RESERVED-BIT"),
    Kind("an IPv4 checksum", "wire.md §2", "gradient", at("ses.request_std", 1), raw(_flipped(24)),
         "WIRE-IP-CHECKSUM"),
    Kind("a UDP checksum", "wire.md §2", "gradient", at("ses.request_std", 1), raw(_flipped(41)),
         "WIRE-UDP-CHECKSUM"),
    Kind("a request that may be fragmented", "wire.md §2", "gradient", at("ses.request_std", 1), put("ipv4", df=0),
         "WIRE-DF"),
    Kind("a request that is not ECN-capable", "wire.md §2", "gradient", at("ses.request_std", 1), put("ipv4", ecn=0),
         "WIRE-ECN"),
    Kind("a header that may not follow", "pds.md §6.3", "gradient", at("pds.ack"), put("pds", next_hdr=3),
         "PDS-NEXT-HDR"),
]  # fmt: skip

TSS = [
    Kind("a TSC is used twice", "tss.md §6", "gradient-sealed-direct", at("tss", 2, src=_A), put("tss", tsc=1),
         "TSS-NONCE-REUSED"),
    Kind("a TSC falls", "tss.md §8", "gradient-sealed-direct", at("tss", 5), swap(-3), "TSS-TSC-ORDER"),
    Kind("an epoch falls", "tss.md §10", "gradient-sealed-epoch", at("tss", 6, src=_A), put("tss", epoch=65534),
         "TSS-EPOCH-ORDER"),
    Kind("a sender returns to its old AN", "tss.md §10", "gradient-sealed-rotation", at("tss", 10, src=_A), put("tss",
         an=0, tsc=6), "TSS-AN-ORDER"),
    Kind("a bit of an ICV", "tss.md §7", "gradient-sealed-direct", at("tss", 1), raw(_flipped(-1)), "TSS-ICV",
         keys=True),
    Kind("a bit of a ciphertext", "tss.md §7", "gradient-sealed-direct", at("tss", 2), raw(_flipped(700)), "TSS-ICV",
         keys=True),
    Kind("a bit of the TSC", "tss.md §9", "gradient-sealed-direct", at("tss", 2), put("tss", tsc=900), "TSS-ICV",
         keys=True),
    Kind("the source address of a sealed packet", "tss.md §7.1", "gradient-sealed-direct", at("tss", 3, src=_A),
         put("ipv4", src=flip(5)), "TSS-ICV", keys=True),
    Kind("the UDP source port of a sealed packet", "tss.md §7.3", "gradient-sealed-direct", at("tss", 2),
         raw(_flipped(35)), "TSS-ICV", keys=True),
    Kind("a sealed packet that is cut", "tss.md §7.4", "gradient-sealed-direct", at("tss", 2),
         raw(lambda data: data[:300]), "WIRE-LENGTH"),
    Kind("a reserved bit of the security header", "tss.md §2", "gradient-sealed-direct", at("tss", 1), put("tss",
         rsvd=1), "WIRE-RESERVED-BIT"),
    Kind("a server uses a TSC of a client", "tss.md §4", "gradient-sealed-client-server", at("tss.ssi", 0, src=_B),
         put("tss.ssi", tsc=0), "TSS-NONCE-SHARED"),
    Kind("a packet in the clear on a sealed PDC", "tss.md §11", "gradient-sealed-direct", at("tss", 4),
         from_capture("gradient"), "TSS-CLEAR-AMONG-SEALED", keys=True),
]  # fmt: skip

_FIRST, _MIDDLE, _LAST = (opcode_of(Transport.RC, each) for each in (
    Operation.RDMA_WRITE_FIRST, Operation.RDMA_WRITE_MIDDLE, Operation.RDMA_WRITE_LAST))  # fmt: skip

ROCE = [
    Kind("a bit of an ICRC", "roce.md §4", "roce-write", at("bth", 1), raw(_flipped(-1)), "ROCE-ICRC"),
    Kind("a reserved bit of the BTH", "roce.md §2", "roce-write", at("bth", 1), put("bth", rsvd=1),
         "ROCE-RESERVED-BIT"),
    Kind("a version of the BTH", "roce.md §2", "roce-write", at("bth", 1), put("bth", tver=2), "ROCE-VERSION"),
    Kind("an opcode of RoCE that is not defined", "roce.md §3", "roce-write", at("bth", 1), put("bth", opcode=0x1F),
         "ROCE-UNKNOWN-OPCODE"),
    Kind("a reserved syndrome", "roce.md §2.1", "roce-write", at("aeth"), put("aeth", syndrome=0x5F), "ROCE-SYNDROME"),
    Kind("another P_Key", "roce.md §6", "rc", at("bth", 6), put("bth", p_key=0x8001), "ROCE-KEY-CHANGE"),
    Kind("a MIDDLE packet below the path MTU", "roce.md §7", "roce-write", at("bth", 1),
         payload(lambda data: data[:1024]), "ROCE-PATH-MTU"),
    Kind("FIRST in the middle of a message", "roce.md §8", "roce-send", at("bth", 1), put("bth",
         opcode=opcode_of(Transport.RC, Operation.SEND_FIRST)), "ROCE-OPCODE-ORDER"),
    Kind("SEND in the middle of a WRITE", "roce.md §8", "roce-write", at("bth", 1), put("bth",
         opcode=opcode_of(Transport.RC, Operation.SEND_MIDDLE)), "ROCE-OPCODE-ORDER"),
    Kind("a PSN with two contents", "roce.md §8.1", "roce-fail-sequence", at("bth", 7),
         payload(lambda data: data[:-1] + b"!"), "ROCE-PSN-TWO-CONTENTS"),
    Kind("a PSN is left out", "roce.md §7", "rc", at("bth", 5), drop(), "ROCE-PSN-GAP"),
    Kind("a PSN among those of a READ", "roce.md §7", "rc", at("bth", 98), put("bth", psn=plus(-1)), "ROCE-READ-PSN"),
    Kind("an atomic at an address that is not aligned", "roce.md §12", "roce-fetch-add", at("atomic_eth", 1),
         put("atomic_eth", va=plus(4, 64)), "ROCE-ATOMIC-ALIGNED"),
    Kind("two datagrams with one PSN", "roce.md §11", "ud", at("bth", 6), put("bth", psn=plus(-1)), "ROCE-UD-PSN"),
    Kind("an ACK of a queue pair for what was not sent", "roce.md §9", "roce-write", at("aeth", 1), put("bth",
         psn=plus(40)), "ROCE-PSN-NOT-SENT"),
    Kind("data for a WRITE", "roce.md §8", "roce-write", at("aeth"), put("bth", opcode=opcode_of(Transport.RC,
         Operation.RDMA_READ_RESPONSE_ONLY)), "ROCE-RESPONSE-KIND"),
    Kind("a value for a READ", "roce.md §8", "roce-fetch-add", at("aeth"), put("bth", opcode=opcode_of(Transport.RC,
         Operation.RDMA_READ_RESPONSE_ONLY)), "ROCE-RESPONSE-KIND"),
    Kind("another value for a copy of an atomic", "roce.md §8.1", "roce-fetch-add", at("atomic_ack_eth"), copy(1,
         put("atomic_ack_eth", origremdt=flip(9))), "ROCE-ATOMIC-ANSWER"),
    Kind("an MSN that skips", "roce.md §7", "roce-write", at("aeth", 1), put("aeth", msn=plus(3, 24)), "ROCE-MSN"),
    Kind("an MSN that stands still", "roce.md §7", "rc", at("aeth", 3), put("aeth", msn=plus(-1, 24)), "ROCE-MSN"),
    Kind("a NAK that is not heeded", "roce.md §9", "roce-fail-sequence", at("bth", 6), drop(), "ROCE-NAK-UNHEEDED",
         found=-1),
    Kind("destqp of a request is another", "roce.md §6", "roce-write", at("bth", 1), put("bth", destqp=flip(9)),
         "ROCE-DESTQP", certain=True),
    Kind("destqp of an ACK is another", "roce.md §6", "roce-write", at("aeth", 1), put("bth", destqp=flip(20)),
         "ROCE-DESTQP", certain=True),
    Kind("the PSN of a MIDDLE packet is far away", "roce.md §7", "roce-write", at("bth", 1), put("bth", psn=flip(21)),
         "ROCE-PSN-JUMP", certain=True),
    Kind("the PSN of an ONLY packet is far away", "roce.md §7", "roce-fetch-add", at("atomic_eth", 1), put("bth",
         psn=flip(21)), "ROCE-PSN-JUMP", certain=True),
    Kind("two requests of a queue pair change places", "roce.md §9", "rc", at("bth", 8), swap(1), "ROCE-PSN-ORDER",
         certain=True),
    Kind("an ACK in place of a value", "roce.md §8", "roce-fetch-add", at("aeth"), both(without("atomic_ack_eth"),
         put("bth", opcode=opcode_of(Transport.RC, Operation.ACKNOWLEDGE))), "ROCE-ACK-ALONE", certain=True),
    Kind("an MSN of an atomic answer that skips", "roce.md §7", "roce-fetch-add", at("aeth", 1), put("aeth",
         msn=flip(3)), "ROCE-MSN", certain=True),
    Kind("a congestion notification without a mark", "roce.md §13", "roce-write", at("bth", 1), insert(layer("bth",
         opcode=0x81, p_key=0xFFFF, destqp=17), layer("cnp"), back=True), "ROCE-CNP-UNMARKED"),
    Kind("a second NAK of a sequence", "roce.md §8", "roce-fail-sequence", at("aeth"), copy(1), "ROCE-NAK-AGAIN"),
    Kind("a length that a RETH does not have", "roce.md §4", "roce-write", at("reth", 1), put("reth", dmalen=4),
         "ROCE-LENGTH"),
]  # fmt: skip

_REQUEST = at("sharp", opcode=0x10)
_UP = at("sharp", 4, opcode=0x10)
_RESULT = at("sharp", opcode=0x90)
_JOIN = at("sharp", opcode=0x01)
_JOINED = at("sharp", opcode=0x81)


def _sharp(says: str, section: str, where: object, rule: str, **values: object) -> Kind:
    return Kind(says, f"sharp.md §{section}", "collective-sharp-uet", where, put("sharp", **values), rule)


SHARP = [
    _sharp("reserved flags", "2.3", _REQUEST, "SHARP-HEADER", flags=flip(1)),
    _sharp("a UDH that is not there", "2.4", _JOIN, "SHARP-HEADER", flags=Flag.NODATA),
    _sharp("an operation that is not defined", "1.6", _REQUEST, "SHARP-HEADER", op=44),
    _sharp("a datatype of SHARP that is not defined", "1.6", _REQUEST, "SHARP-HEADER", dtype=77),
    _sharp("a tag without MINLOC", "2.8", _REQUEST, "SHARP-HEADER", tag_dtype=Dtype.INT),
    _sharp("a collective that is not defined", "2.2", _REQUEST, "SHARP-HEADER", coll=9),
    _sharp("ALLREDUCE without an operation", "4.3", _REQUEST, "SHARP-HEADER", op=Op.NULL),
    _sharp("a bitwise reduction of floats", "3.5", _REQUEST, "SHARP-HEADER", op=Op.BAND),
    Kind("a job beyond 24 bits", "sharp.md §2.2", "collective-sharp-uet", _JOIN, put("sharp", job_id=flip(30)),
         "SHARP-HEADER", {"SHARP-OVER-UET": "that of SES is another"}),
    _sharp("a child that cannot be", "2.2", _REQUEST, "SHARP-HEADER", child_idx=253),
    _sharp("a status in a request", "2.7", _REQUEST, "SHARP-HEADER", status=Status.MISMATCH),
    _sharp("a status that is not defined", "2.7", _RESULT, "SHARP-HEADER", status=0x77),
    _sharp("an offset within an element", "2.8", _REQUEST, "SHARP-HEADER", vec_off=2),
    _sharp("a count that is not that of the payload", "2.2", _REQUEST, "SHARP-HEADER", count=7),
    _sharp("a count in a message without an operation", "2.5", _JOIN, "SHARP-HEADER", count=1),
    _sharp("SAT without LOCK", "3.3", _REQUEST, "SHARP-HEADER", flags=flip(15)),
    _sharp("FINAL in a request", "2.3", _REQUEST, "SHARP-HEADER", flags=flip(3)),
    _sharp("no tree", "3.1", _REQUEST, "SHARP-HEADER", tree_id=0xFFFF),
    Kind("another operation than the other child", "sharp.md §2.7", "collective-sharp-uet", _UP, both(put("sharp",
         op=Op.MIN), elsewhere(_RESULT)), "SHARP-MISMATCH"),
    _sharp("a result of another operation", "3.2", _RESULT, "SHARP-RESULT", op=Op.MAX),
    _sharp("a result of another datatype", "3.2", _RESULT, "SHARP-RESULT", dtype=Dtype.INT),
    _sharp("a result of another place", "3.2", _RESULT, "SHARP-RESULT", vec_off=64),
    _sharp("a result in another byte order", "2.3", _RESULT, "SHARP-RESULT", flags=flip(6)),
    _sharp("a child that has not joined", "3.1", _REQUEST, "SHARP-STRANGER", child_idx=17),
    _sharp("a result of an operation that nobody began", "3.4", _RESULT, "SHARP-UNASKED", seq=99),
    _sharp("a response to a request that nobody sent", "2.5", at("sharp", opcode=0x81), "SHARP-UNASKED", seq=88),
    Kind("a message of another job", "sharp.md §3.1", "collective-sharp-uet", _RESULT, put("sharp", job_id=flip(3)),
         "SHARP-OVER-UET", {"SHARP-JOB": "the group has one"}),
    _sharp("a request of an operation far ahead", "3.2", _REQUEST, "SHARP-SEQUENCE", seq=flip(20)),
    _sharp("a result to a child that is none", "3.2", _RESULT, "SHARP-STRANGER", child_idx=7),
    _sharp("a status in a result", "2.7", _RESULT, "SHARP-HEADER", status=Status.LENGTH),
    _sharp("a request of another tree", "3.1", _REQUEST, "SHARP-STRANGER", tree_id=flip(3)),
    _sharp("a request to join that names a child", "2.6", _JOIN, "SHARP-HEADER", child_idx=3),
    _sharp("a response to a join that names another child", "2.6", _JOINED, "SHARP-HEADER", child_idx=flip(2)),
    _sharp("a grant in a refusal", "2.6", _JOINED, "SHARP-HEADER", status=Status.QUOTA),
    Kind("a message over UET of another version", "sharp.md §2.2", "collective-sharp-uet", _JOINED, flip_in("sharp", 0,
         6), "SHARP-HEADER"),
    Kind("a message over UET with an opcode that is not defined", "sharp.md §2.5", "collective-sharp-uet", _JOINED,
         flip_in("sharp", 1, 3), "SHARP-HEADER"),
    Kind("a PDC of SHARP outside the reserved pool", "sharp.md §2.1", "collective-sharp-uet", _JOIN, put("pds",
         pdc_info=0), "SHARP-OVER-UET"),
    Kind("a streamed chunk without LOCK", "sharp.md §1.5", "collective-sharp-sat", _REQUEST, put("sharp",
         flags=flip(14)), "SHARP-HEADER"),
    _sharp("a request of another group", "3.1", _REQUEST, "SHARP-STRANGER", group_id=flip(9)),
    _sharp("a result of another group", "3.1", _RESULT, "SHARP-UNASKED", group_id=flip(9)),
    Kind("a message whose version is another", "sharp.md §2.2", "collective-sharp", at("sharp", 1, opcode=0x10),
         flip_in("sharp", 0, 7), "SHARP-MESSAGE"),
    Kind("a message whose length is another", "sharp.md §2.2", "collective-sharp", at("sharp", 1, opcode=0x10),
         flip_in("sharp", 23, 0), "SHARP-MESSAGE"),
    Kind("a request twice on an edge", "sharp.md §4.4", "collective-sharp", _REQUEST, copy(1, put("bth", psn=plus(1,
         24))), "SHARP-EDGE-LOAD", certain=True),
    Kind("a node that sends up too early", "sharp.md §3.2", "collective-sharp", _REQUEST, both(drop(),
         at_other(at("bth", opcode=0x11, psn=5907000), drop()), elsewhere(at("sharp", 3, opcode=0x10))),
         "SHARP-COMPLETE"),
    Kind("a result of another job over RoCE", "sharp.md §3.1", "collective-sharp", _RESULT, put("sharp",
         job_id=flip(3)), "SHARP-JOB"),
]  # fmt: skip

KINDS = [*WIRE, *TSS, *ROCE, *SHARP]
