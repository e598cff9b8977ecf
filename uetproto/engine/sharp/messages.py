# SPDX-License-Identifier: GPL-2.0-only
"""SHARP messages are parsed from bytes and packed to bytes (sharp.md §2.2–§2.6).

`parse` applies rule 1 of the order of checks (sharp.md §2.8): length, version, opcode, extensions, reserved bits and
padding, and the length and the reserved bytes of a body. It does not check the meaning of fields.
"""

import struct
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple

from uetproto.engine.contract import Buffer
from uetproto.wire.headers.sharp import RESERVED_FLAGS, TGT_WORDS, UDH_WORDS, VERSION, Flag, SharpOpcode, Status

HEADER = struct.Struct(">BBHIIIIHHBBBBBBH")
"""Layout of the base header (sharp.md §2.2), 32 bytes."""
HEADER_SIZE = HEADER.size

NONE = 12
"""Value of `op`, `dtype` and `tag_dtype` in a message that has no operation or no such data type."""
NOT_APPLICABLE = 0xFF
"""Value of `coll` in a message that belongs to no collective, and of `child_idx` if the child is not known or the
message is a multicast or an ERROR."""

VEC_OFF_AT, VEC_OFF_END = 16, 20
"""Byte offsets of vec_off and of what follows it, the one header field in which the chunks of a stream differ."""
CHILD_AT, FLAGS_AT = 28, 30
"""Byte offsets of child_idx and flags, the two header fields in which the results to several children differ."""

_KNOWN = frozenset(int(opcode) for opcode in SharpOpcode)
_UDH, _TGT = int(Flag.UDH), int(Flag.TGT)


class SharpTarget(NamedTuple):
    """The target extension says which ranks get the result (sharp.md §2.4)."""

    type: int
    """Type of the target: 0 GROUP, 1 SINGLE, 2 MCAST."""
    rank: int
    """Rank of the target; 0xFFFF stands for all ranks."""
    service_level: int = 0
    qpn: int = 0
    gid: int = 0
    """GID or MGID of the target."""

    def pack(self) -> bytes:
        return _TARGET.pack(self.type, self.service_level, self.rank, self.qpn, self.gid.to_bytes(16, "big"))


_TARGET = struct.Struct(">BBHI16s")


@dataclass(slots=True)
class SharpMessage:
    """A SHARP message holds header, extensions and body.

    The numbers are plain integers, as a received number need not be a member of an enumeration.
    """

    opcode: int
    tree_id: int
    job_id: int
    group_id: int
    seq: int
    vec_off: int = 0
    count: int = 0
    op: int = NONE
    dtype: int = NONE
    tag_dtype: int = NONE
    coll: int = NOT_APPLICABLE
    child_idx: int = NOT_APPLICABLE
    status: int = 0
    flags: int = 0
    """Flags; `pack` sets UDH and TGT from `udh` and `target`."""
    udh: bytes = b""
    target: SharpTarget | None = None
    body: bytes = b""

    def pack(self) -> bytes:
        """Return the whole message: header, extensions, body, padding."""
        words, flags = 0, self.flags & ~(_UDH | _TGT)
        extensions = b""
        if self.udh:
            words, flags, extensions = UDH_WORDS, flags | _UDH, self.udh
        if self.target is not None:
            words, flags, extensions = words + TGT_WORDS, flags | _TGT, extensions + self.target.pack()
        body = self.body
        header = HEADER.pack(
            VERSION << 4 | words, self.opcode, self.tree_id, self.job_id, self.group_id, self.seq, self.vec_off,
            self.count, len(body), self.op, self.dtype, self.tag_dtype, self.coll, self.child_idx, self.status, flags,
        )  # fmt: skip
        return b"".join((header, extensions, body, bytes(-len(body) % 4)))


def parse(data: Buffer) -> SharpMessage | Status:
    """Return the message, or a status that says why the bytes are not valid (sharp.md §2.8 rule 1). Received bytes
    never raise an error."""
    length = len(data)
    if length < HEADER_SIZE:
        return Status.BAD_HEADER
    (
        first, opcode, tree_id, job_id, group_id, seq, vec_off, count, body_length,
        op, dtype, tag_dtype, coll, child_idx, status, flags,
    ) = HEADER.unpack_from(data)  # fmt: skip
    if first >> 4 != VERSION:
        return Status.BAD_VERSION
    words = first & 0x0F
    expected = (UDH_WORDS if flags & _UDH else 0) + (TGT_WORDS if flags & _TGT else 0)
    start = HEADER_SIZE + 4 * words
    end = start + body_length
    if (
        opcode not in _KNOWN or words != expected or flags & RESERVED_FLAGS or length != end + -body_length % 4
        or job_id >> 24 or (length > end and any(data[end:]))
    ):  # fmt: skip
        return Status.BAD_HEADER
    udh, target = b"", None
    if words:
        at = HEADER_SIZE
        if flags & _UDH:
            udh, at = bytes(data[at : at + 8]), at + 8
        if flags & _TGT:
            kind, level, rank, qpn, gid = _TARGET.unpack_from(data, at)
            if qpn >> 24:
                return Status.BAD_HEADER
            target = SharpTarget(kind, rank, level, qpn, int.from_bytes(gid, "big"))
    message = SharpMessage(
        opcode, tree_id, job_id, group_id, seq, vec_off, count, op, dtype, tag_dtype, coll, child_idx, status, flags,
        udh, target, bytes(data[start:end]),
    )  # fmt: skip
    body_fits = _BODY_CHECKS.get(opcode)
    if body_fits is not None and not body_fits(message.body):
        return Status.BAD_HEADER
    return message


def status_or(code: int, default: Status) -> Status:
    """Return a received status code as a `Status`, or `default` if the code is not known."""
    return Status(code) if code in _STATUSES else default


_STATUSES = frozenset(int(status) for status in Status)

# Bodies (sharp.md §2.6) -----------------------------------------------------------------------------------------------


class JoinRequest(NamedTuple):
    """This is the body of GROUP_JOIN_REQ."""

    group_size: int
    want_osts: int
    user_data_per_ost: int
    features: int
    qpn: int
    """Connection of the sender: a queue pair number, or a PDCID over UET."""
    ranks: tuple[int, ...]

    def pack(self) -> bytes:
        fixed = _JOIN_REQUEST.pack(len(self.ranks), *self[:5])
        return fixed + struct.pack(f">{len(self.ranks)}H", *self.ranks)

    @classmethod
    def unpack(cls, body: bytes) -> "JoinRequest":
        members, size, osts, user_data, features, qpn = _JOIN_REQUEST.unpack_from(body)
        ranks = struct.unpack_from(f">{members}H", body, _JOIN_REQUEST.size)
        return cls(size, osts, user_data, features, qpn, ranks)


class JoinResponse(NamedTuple):
    """This is the body of GROUP_JOIN_RESP."""

    member_count: int = 0
    """Number of members below the aggregation node that answers."""
    group_size: int = 0
    granted_osts: int = 0
    user_data_per_ost: int = 0
    features: int = 0
    child_idx: int = NOT_APPLICABLE
    depth: int = 0
    """Level of the aggregation node that answers; 1 is a leaf."""
    is_root: int = 0
    mgid: int = 0
    mlid: int = 0
    qkey: int = 0

    def pack(self) -> bytes:
        *fixed, mgid, mlid, qkey = self
        return _JOIN_RESPONSE.pack(*fixed, 0, mgid.to_bytes(16, "big"), mlid, 0, qkey)

    @classmethod
    def unpack(cls, body: bytes) -> "JoinResponse":
        *fixed, _, mgid, mlid, _, qkey = _JOIN_RESPONSE.unpack(body)
        return cls._make((*fixed, int.from_bytes(mgid, "big"), mlid, qkey))


class LockBody(NamedTuple):
    """This is the body of LOCK_REQ, LOCK_RESP, UNLOCK_REQ and UNLOCK_RESP."""

    sat_tree_id: int
    batch: int = 0xFFFF
    """Number of operations that may begin under the lock; 0xFFFF stands for no limit."""
    token: int = 0
    """Token of the lock; it is 0 in LOCK_REQ."""
    timeout_ms: int = 0
    target_rank: int = 0xFFFF
    """Rank that gets the results; 0xFFFF stands for all ranks."""

    def pack(self) -> bytes:
        return _LOCK.pack(*self, 0)

    @classmethod
    def unpack(cls, body: bytes) -> "LockBody":
        return cls(*_LOCK.unpack(body)[:5])


class SharpFault(NamedTuple):
    """This is the body of NACK and ERROR."""

    code: int
    """Error code, which equals `status` of the header."""
    origin_depth: int = 0
    """Level of the sender: 0 is a host, and 1 is a leaf aggregation node."""
    opcode: int = 0
    """Opcode of the offending message."""
    an_id: int = 0
    children: frozenset[int] = frozenset()
    """child_idx of each child that is missing or at fault; on the wire they are a bitmap."""

    def pack(self) -> bytes:
        return _FAULT.pack(self.code, self.origin_depth, self.opcode, 0, self.an_id, bitmap_of(self.children))

    @classmethod
    def unpack(cls, body: bytes) -> "SharpFault":
        code, depth, opcode, _, an_id, bitmap = _FAULT.unpack(body)
        return cls(code, depth, opcode, an_id, children_of(bitmap))


class Heartbeat(NamedTuple):
    """This is the body of HEARTBEAT and HEARTBEAT_RESP."""

    sender: int
    counter: int

    def pack(self) -> bytes:
        return _HEARTBEAT.pack(*self)

    @classmethod
    def unpack(cls, body: bytes) -> "Heartbeat":
        return cls(*_HEARTBEAT.unpack(body))


_JOIN_REQUEST = struct.Struct(">HHHHII")
_JOIN_RESPONSE = struct.Struct(">HHHHIBBBB16sHHI")
_LOCK = struct.Struct(">HHIIHH")
_FAULT = struct.Struct(">BBBBI32s")
_HEARTBEAT = struct.Struct(">II")


def _fits(size: int, *reserved: slice) -> Callable[[bytes], bool]:
    """Return a check of a body: whether it has `size` bytes and its reserved bytes are zero."""
    return lambda body: len(body) == size and not any(any(body[part]) for part in reserved)


def _join_request_fits(body: bytes) -> bool:
    """Tell whether a body has as many ranks as it says and its reserved bits are zero."""
    fixed = _JOIN_REQUEST.size
    return len(body) >= fixed and len(body) == fixed + 2 * int.from_bytes(body[:2], "big") and not body[12]


_O = SharpOpcode
_BODY_CHECKS: dict[int, Callable[[bytes], bool]] = {
    _O.GROUP_JOIN_REQ: _join_request_fits,
    _O.GROUP_JOIN_RESP: _fits(_JOIN_RESPONSE.size, slice(15, 16), slice(34, 36)),
    **dict.fromkeys((_O.GROUP_LEAVE_REQ, _O.GROUP_LEAVE_RESP), _fits(0)),
    **dict.fromkeys((_O.LOCK_REQ, _O.LOCK_RESP, _O.UNLOCK_REQ, _O.UNLOCK_RESP), _fits(_LOCK.size, slice(14, 16))),
    **dict.fromkeys((_O.HEARTBEAT, _O.HEARTBEAT_RESP), _fits(_HEARTBEAT.size)),
    **dict.fromkeys((_O.NACK, _O.ERROR), _fits(_FAULT.size, slice(3, 4))),
}
"""Maps each opcode to the check of its body, except AGG_REQ and AGG_RESULT, whose body is a vector."""


def bitmap_of(children: Iterable[int]) -> bytes:
    """Return the bitmap of children, 32 bytes; bit 7 of byte 0 is child 0 (sharp.md §2.6)."""
    bits = 0
    for child in children:
        bits |= 1 << 255 - child
    return bits.to_bytes(32, "big")


def children_of(bitmap: bytes) -> frozenset[int]:
    """Return the children that a bitmap names."""
    bits = int.from_bytes(bitmap, "big")
    return frozenset(child for child in range(256) if bits >> 255 - child & 1)
