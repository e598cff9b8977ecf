# SPDX-License-Identifier: GPL-2.0-only
"""This module judges the fields of one SHARP message, as an aggregation node does before it accepts the message
(sharp.md §2.2–§2.8)."""

from collections.abc import Iterator, Mapping
from typing import Any

from uetproto.audit.rule import Violation
from uetproto.wire.headers.sharp import (
    DTYPE_SIZES,
    FAULT,
    JOIN_REQ,
    JOIN_RESP,
    LOCK,
    RESERVED_FLAGS,
    VERSION,
    Coll,
    Dtype,
    Flag,
    Op,
    SharpOpcode,
    Status,
)
from uetproto.wire.packet import Packet

_O = SharpOpcode
_OPCODES = frozenset(SharpOpcode)
_AGGREGATES = (_O.AGG_REQ, _O.AGG_RESULT)
_BODIES = {
    _O.GROUP_JOIN_RESP: 40, _O.GROUP_LEAVE_REQ: 0, _O.GROUP_LEAVE_RESP: 0, _O.LOCK_REQ: 16, _O.LOCK_RESP: 16,
    _O.UNLOCK_REQ: 16, _O.UNLOCK_RESP: 16, _O.HEARTBEAT: 8, _O.HEARTBEAT_RESP: 8, _O.NACK: 40, _O.ERROR: 40,
}  # fmt: skip
"""Bytes of the body, where the opcode tells them (sharp.md §2.5)."""
_ANSWERS = (_O.NACK, _O.ERROR)
_ASKS = (_O.GROUP_JOIN_REQ, _O.AGG_REQ)
"""Requests without a status; others tell why a lock is given back, or a group left."""
_DOWN = 0x80
_LOC = (Op.MAXLOC, Op.MINLOC)
_FOLDS = (Coll.ALLREDUCE, Coll.REDUCE)
_OF_INTEGERS = (Op.LAND, Op.BAND, Op.LOR, Op.BOR, Op.LXOR, Op.BXOR)
_FLOATS = (Dtype.FLOAT, Dtype.DOUBLE, Dtype.FLOAT_SHORT, Dtype.BFLOAT16)
_CODES = {"op": Op, "dtype": Dtype, "tag_dtype": Dtype, "coll": Coll, "status": Status}
_UNUSED = {"op": Op.NULL, "dtype": Dtype.NULL, "tag_dtype": Dtype.NULL, "coll": Coll.NOT_APPLICABLE, "count": 0,
           "vec_off": 0, "flags": 0}  # fmt: skip
"""Fields that only messages about operations use, and what they have in others."""
_CHILDREN = 252
_UNKNOWN_CHILD = 0xFF


def fault_of(values: Mapping[str, Any]) -> Violation | None:
    """Return a violation for the first field that contradicts the opcode or another field, or None if no field does."""
    return next(_faults(values), None)


def fault_of_body(values: Mapping[str, Any], packet: Packet) -> Violation | None:
    """Return a violation if the body of a message contradicts itself or the message's header (sharp.md §2.6), otherwise
    None."""
    for name, faults in _FAULTS.items():
        if name in packet:
            return next(faults(values, packet[name]), None)
    return None


def _join_request(values: Mapping[str, Any], body: Mapping[str, Any]) -> Iterator[Violation]:
    if values["child_idx"] != _UNKNOWN_CHILD:
        yield Violation("child_idx 255 in a request to join", str(values["child_idx"]))
    yield from _members(body)


def _join_response(values: Mapping[str, Any], body: Mapping[str, Any]) -> Iterator[Violation]:
    if values["child_idx"] != body["child_idx"]:
        yield Violation(f"child_idx {values['child_idx']} in the body", str(body["child_idx"]))
    if values["status"]:
        granted = [name for name in ("granted_osts", "member_count", "group_size", "mgid") if body[name]]
        if granted:
            yield Violation("no grant with a refusal", granted[0])
        return
    yield from _members(body)
    if not body["depth"] or body["is_root"] > 1:
        yield Violation("a depth, and is_root 0 or 1", f"depth {body['depth']}, is_root {body['is_root']}")


def _members(body: Mapping[str, Any]) -> Iterator[Violation]:
    if not 0 < body["member_count"] <= body["group_size"]:
        yield Violation(f"1 … {body['group_size']} members, the size of the group", str(body["member_count"]))


def _lock(values: Mapping[str, Any], body: Mapping[str, Any]) -> Iterator[Violation]:
    if values["opcode"] == _O.LOCK_REQ and body["token"]:
        yield Violation("token 0 in LOCK_REQ", str(body["token"]))
    if body["sat_tree_id"] == values["tree_id"]:
        yield Violation("another tree to be locked", f"sat_tree_id {body['sat_tree_id']}")


def _fault(values: Mapping[str, Any], body: Mapping[str, Any]) -> Iterator[Violation]:
    if values["status"] != body["code"]:
        yield Violation(f"code {values['status']:#x}, the status", f"{body['code']:#x}")


_FAULTS = {
    JOIN_REQ.name: _join_request, JOIN_RESP.name: _join_response, LOCK.name: _lock, FAULT.name: _fault,
}  # fmt: skip


def _faults(values: Mapping[str, Any]) -> Iterator[Violation]:
    opcode, flags = values["opcode"], values["flags"]
    if values["ver"] != VERSION:
        yield Violation(f"version {VERSION}", str(values["ver"]))
    if opcode not in _OPCODES:
        yield Violation("an opcode", f"{opcode:#04x}")
    words = 2 * bool(flags & Flag.UDH) + 6 * bool(flags & Flag.TGT)
    if values["ext_words"] != words:
        yield Violation(f"ext_words {words}, as the flags say", str(values["ext_words"]))
    if flags & RESERVED_FLAGS:
        yield Violation("reserved flags 0", f"{flags & RESERVED_FLAGS:#x}")
    for name, codes in _CODES.items():
        if values[name] not in {int(code) for code in codes}:
            yield Violation(f"a code that {name} has", f"{values[name]:#x}")
    if values["tree_id"] == 0xFFFF and opcode & ~_DOWN != _O.HEARTBEAT:
        yield Violation("a tree", "tree_id 0xffff")
    if values["job_id"] >> 24:
        yield Violation("a job_id below 2^24", f"{values['job_id']:#x}")
    if values["status"] and opcode in _ASKS:
        yield Violation("status 0 in a request", str(values["status"]))
    child = values["child_idx"]
    if _CHILDREN <= child < _UNKNOWN_CHILD or (opcode == _O.AGG_REQ and child == _UNKNOWN_CHILD):
        yield Violation("the index of a child", str(child))
    body = _BODIES.get(opcode)
    if body is not None and values["payload_len"] != body:
        yield Violation(f"a body of {body} bytes", str(values["payload_len"]))
    yield from _operation(values) if opcode in _AGGREGATES else _no_operation(values)


def _no_operation(values: Mapping[str, Any]) -> Iterator[Violation]:
    if values["opcode"] in _ANSWERS:
        return  # about an operation, which they may name
    for name, unused in _UNUSED.items():
        given = values[name] & ~(Flag.UDH | Flag.TGT | Flag.RETX) if name == "flags" else values[name]
        if given != unused:
            yield Violation(f"{name} {unused:#x} without an operation", f"{given:#x}")


def _operation(values: Mapping[str, Any]) -> Iterator[Violation]:
    op, dtype, tag, coll, flags = (values[name] for name in ("op", "dtype", "tag_dtype", "coll", "flags"))
    if coll == Coll.NOT_APPLICABLE:
        yield Violation("a collective", "coll 0xff")
    if (op == Op.NULL) == (coll in _FOLDS):
        yield Violation("an operation for ALLREDUCE and REDUCE only", f"op {op} with coll {coll}")
    if coll in _FOLDS and dtype == Dtype.NULL:
        yield Violation("a datatype", "dtype 12")
    if op in _OF_INTEGERS and dtype in _FLOATS:
        yield Violation("integers", f"op {op} on dtype {dtype}")
    if (op in _LOC) != (tag != Dtype.NULL):
        yield Violation("a tag_dtype for MINLOC and MAXLOC only", f"tag_dtype {tag} with op {op}")
    size = DTYPE_SIZES[Dtype(dtype)] + (DTYPE_SIZES[Dtype(tag)] if op in _LOC else 0)
    expected = 0 if flags & Flag.NODATA else values["count"] * size
    if values["payload_len"] != expected:
        yield Violation(f"payload_len {expected}, of {values['count']} elements", str(values["payload_len"]))
    if size and values["vec_off"] % size:
        yield Violation(f"vec_off of whole elements of {size} bytes", str(values["vec_off"]))
    if bool(flags & Flag.SAT) != bool(flags & Flag.LOCK):
        yield Violation("SAT and LOCK together", f"flags {flags:#06x}")
    if not flags & Flag.SAT and flags & Flag.UNLOCK:
        yield Violation("UNLOCK on a streaming operation only", f"flags {flags:#06x}")
    if values["status"] and values["opcode"] == _O.AGG_RESULT:
        yield Violation("status 0 in a result", str(values["status"]))
    if values["opcode"] == _O.AGG_REQ and flags & Flag.FINAL:
        yield Violation("FINAL in results only", f"flags {flags:#06x}")
