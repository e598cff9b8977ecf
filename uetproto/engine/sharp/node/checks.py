# SPDX-License-Identifier: GPL-2.0-only
"""An aggregation node checks an AGG_REQ by rules 3, 4 and 5, in this order (sharp.md §2.8)."""

from functools import cache

from uetproto.engine.sharp.config import GRANULE, MAX_CHUNK, MAX_SAT_MESSAGE
from uetproto.engine.sharp.messages import NONE, SharpMessage
from uetproto.engine.sharp.numeric import FLOATS, INTEGER_ONLY, LOC, element_size
from uetproto.wire.headers.sharp import Coll, Flag, Op, Status

_NODATA, _SAT, _LOCK, _LAST, _TGT = (int(flag) for flag in (Flag.NODATA, Flag.SAT, Flag.LOCK, Flag.LAST, Flag.TGT))


@cache
def element_or_status(coll: int, op: int, dtype: int, tag_dtype: int, prod: bool) -> tuple[int, Status]:
    """Apply rule 3 of sharp.md §2.8: return the size of an element (bytes) and OK, or 0 and the status of the
    refusal."""
    if coll > Coll.BCAST or op > NONE or (op == Op.PROD and not prod):
        return 0, Status.OP_UNSUPPORTED
    if dtype > NONE or tag_dtype > NONE:
        return 0, Status.DTYPE_UNSUPPORTED
    if coll in (Coll.ALLREDUCE, Coll.REDUCE):
        if op == NONE:
            return 0, Status.OP_UNSUPPORTED
        if dtype == NONE:
            return 0, Status.DTYPE_UNSUPPORTED
    elif op != NONE:
        return 0, Status.OP_DTYPE_ILLEGAL
    if (op in INTEGER_ONLY and dtype in FLOATS) or (op in LOC) != (tag_dtype != NONE):
        return 0, Status.OP_DTYPE_ILLEGAL
    return element_size(op, dtype, tag_dtype), Status.OK


def check_request(message: SharpMessage, *, user_data: int, prod: bool, sat: bool, locked: bool) -> Status:
    """Return OK, or the status with which rule 3, 4 or 5 of sharp.md §2.8 refuses a request.

    `user_data` is the greatest number of bytes on an LLT. `sat` says whether the tree is a SAT. `locked` says whether
    the group holds the lock of the SAT. `sat_operations` checks what the chunks of an operation must have in common.
    """
    size, status = element_or_status(message.coll, message.op, message.dtype, message.tag_dtype, prod)
    if status:
        return status
    flags, length = message.flags, len(message.body)
    if length != (0 if flags & _NODATA else message.count * size) or (size and message.vec_off % size):
        return Status.LENGTH
    if message.coll == Coll.BARRIER and not flags & _NODATA:
        return Status.LENGTH
    if not sat:
        if length > user_data:
            return Status.LENGTH
        return Status.NOT_LOCKED if flags & _SAT else Status.OK
    if not (flags & _SAT and flags & _LOCK and locked):
        return Status.NOT_LOCKED
    if flags & _TGT:
        return Status.SAT_TARGET_HDR
    bytes_of_chunk = message.count * size
    if not flags & _LAST and bytes_of_chunk % GRANULE:
        return Status.SAT_GRANULARITY
    if bytes_of_chunk > MAX_CHUNK or message.vec_off + bytes_of_chunk > MAX_SAT_MESSAGE:
        return Status.LENGTH
    return Status.OK
