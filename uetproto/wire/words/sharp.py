# SPDX-License-Identifier: GPL-2.0-only
"""This module describes SHARP messages in words, as in "SHARP AGG_REQ tree 0 group 7 seq 0 ALLREDUCE SUM FLOAT 8
elements [FIRST|LAST]"."""

from collections.abc import Mapping
from enum import IntEnum
from typing import Any

from uetproto.wire.headers.mcast import RingType
from uetproto.wire.headers.sharp import SHARP, AmAttribute, AmMethod, Coll, Dtype, Op, SharpOpcode, Status

Values = Mapping[str, Any]


def sharp_words(form: str, values: Values) -> str:
    """Return a SHARP or multicast layer in words. The text is empty for other layers, such as the body of a join."""
    if form == "sharp":
        return _message(values)
    if form == "sharp.fault":
        missing = children_of(values["children"])
        at = f"node {values['an_id']}" if values["depth"] else "a host"
        return f"from {at}" + (f", children {', '.join(map(str, missing))}" if missing else "")
    if form == "sharp.am":
        return f"SHARP AM {_name(AmMethod, values['method'])} {_name(AmAttribute, values['attr_id'])}"
    if form == "mcast":
        return f"multicast task {values['task_id']} chunk {values['chunk_id']}"
    if form == "mcast.ring":
        of = f" of rank {values['owner']}" if values["type"] == RingType.NEED_FETCH else ""
        return f"multicast ring {_name(RingType, values['type'])}{of}"
    return ""


def _message(values: Values) -> str:
    words = [f"SHARP {_name(SharpOpcode, values['opcode'])}"]
    words.append(f"tree {values['tree_id']} group {values['group_id']} seq {values['seq']}")
    if values["coll"] != Coll.NOT_APPLICABLE:
        words.append(_name(Coll, values["coll"]))
        if values["op"] != Op.NULL:
            words.append(f"{_name(Op, values['op'])} {_name(Dtype, values['dtype'])}")
        words.append(f"{values['count']} elements")
    if values["status"]:
        words.append(_name(Status, values["status"]))
    if flags := SHARP["flags"].bits_of(values["flags"]):
        words.append(f"[{flags}]")
    return " ".join(words)


def children_of(bitmap: int) -> list[int]:
    """Return the children that the bitmap of a NACK or ERROR names. The most significant of its 256 bits is child 0."""
    return [child for child in range(256) if bitmap >> (255 - child) & 1]


def _name(codes: type[IntEnum], value: int) -> str:
    return next((code.name for code in codes if code == value), f"0x{value:02x}")
