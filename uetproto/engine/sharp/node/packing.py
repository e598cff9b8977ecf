# SPDX-License-Identifier: GPL-2.0-only
"""This module packs the requests and results of an operation (sharp.md §2.2, §4.3)."""

from uetproto.engine.sharp.messages import CHILD_AT, FLAGS_AT, HEADER, HEADER_SIZE, SharpMessage, SharpTarget
from uetproto.wire.headers.sharp import UDH_WORDS, VERSION, Flag, SharpOpcode

_NODATA, _RETX = int(Flag.NODATA), int(Flag.RETX)
_PASSING = ~int(Flag.RETX | Flag.MCAST | Flag.UDH | Flag.TGT)
"""Mask of the flags of a result that are passed on to children."""
_LOW_FLAGS = FLAGS_AT + 1


def pack_for(
    head: SharpMessage, opcode: int, vector: bytes | None, child_idx: int, flags: int, *,
    target: SharpTarget | None = None,
) -> bytes:  # fmt: skip
    """Return a packed message of the operation to which the request `head` belongs. If `vector` is None, the message
    has the flag NODATA."""
    return SharpMessage(
        opcode, head.tree_id, head.job_id, head.group_id, head.seq, head.vec_off, head.count, head.op, head.dtype,
        head.tag_dtype, head.coll, child_idx, 0, flags | (_NODATA if vector is None else 0), b"", target, vector or b"",
    ).pack()  # fmt: skip


def pack_result(result: SharpMessage, child_idx: int, *, without: bool = False, extra: int = 0) -> bytearray:
    """Return the packed result for one child, without extensions. `without` replaces the payload by the flag NODATA;
    `extra` are additional flags."""
    body = b"" if without else result.body
    flags = result.flags & _PASSING | extra | (_NODATA if without else 0)
    data = bytearray(HEADER.pack(
        VERSION << 4, SharpOpcode.AGG_RESULT, result.tree_id, result.job_id, result.group_id, result.seq,
        result.vec_off, result.count, len(body), result.op, result.dtype, result.tag_dtype, result.coll, child_idx,
        0, flags,
    ))  # fmt: skip
    data += body
    data += bytes(-len(body) % 4)
    return data


def address_result(data: bytearray, child: int, cookie: bytes | None, *, again: bool) -> None:
    """Write the index of a child and its cookie (UDH extension) into a packed result; `again` sets the flag RETX."""
    data[CHILD_AT] = child
    if again:
        data[_LOW_FLAGS] |= _RETX
    if cookie:
        data[0] += UDH_WORDS
        data[FLAGS_AT] |= Flag.UDH >> 8
        data[HEADER_SIZE:HEADER_SIZE] = cookie


def retransmitted(data: bytes) -> bytes:
    """Return a packed message with the flag RETX set."""
    if is_retransmission(data):
        return data
    return b"".join((data[:_LOW_FLAGS], bytes((data[_LOW_FLAGS] | _RETX,)), data[_LOW_FLAGS + 1 :]))


def is_retransmission(data: bytes | bytearray) -> bool:
    """Tell whether the flag RETX is set in a packed message."""
    return bool(data[_LOW_FLAGS] & _RETX)
