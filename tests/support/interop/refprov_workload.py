# SPDX-License-Identifier: GPL-2.0-only
"""This module derives the calls of the applications of a captured run from its SES requests: operations, receives,
regions, closes."""

import sys
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from tests.support.interop.refprov_packets import Seen
from uetproto.engine.contract import Atomic, Close, Mode, Read, Receive, Send, SendKind, Work, Write
from uetproto.wire.headers.uet_pds import CtlType, PdsType
from uetproto.wire.headers.uet_ses import Opcode, ResponseOpcode

_SENDS = (Opcode.SEND, Opcode.TAGGED_SEND, Opcode.DEFERRABLE_SEND)
_OPERAND = 8
"""Bytes of an atomic operand here, all of them UINT64."""


class Step(NamedTuple):
    """A step is one call of an application."""

    time: int
    at: int
    """Address of the endpoint whose application makes the call."""
    work: Work


class Workload(NamedTuple):
    """A workload has the calls that two endpoints are given, and their regions."""

    steps: list[Step]
    """Calls in the order of their times."""
    regions: dict[tuple[int, int], int]
    """Size in bytes of each region, by the address of its owner and its key."""


_Message = tuple[int, int]
"""A message by the address of its sender and its message_id."""


def workload(packets: Sequence[Seen]) -> Workload:
    """Return the calls: a message is submitted when its first packet was first seen, a PDC is closed when its CLOSE_CMD
    was seen.

    A receive is posted just before its message is sent; where that met no buffer, just before it is sent again. What
    engines do by themselves is left to them: answers, RTRs, restarts, retries, another Start_PSN.
    """
    steps: list[Step] = []
    regions: defaultdict[tuple[int, int], int] = defaultdict(int)
    content, posted = _content(packets), _posted(packets)
    begun: set[_Message] = set()
    for one in packets:
        if one.type is PdsType.CP and one.pds["ctl_type"] == CtlType.CLOSE_CMD:
            steps.append(Step(one.time, one.src, Close(peer=one.dst)))
        if not one.ses.get("som") or _message(one) in begun or one.ses["opcode"] == Opcode.DEFERRABLE_RTR:
            continue
        begun.add(_message(one))
        if one.ses["opcode"] in _SENDS:
            steps.append(Step(posted.get(_message(one), one.time), one.dst, _receive(one)))
        else:
            region, end = (one.dst, one.ses["memory_key"]), one.ses["buffer_offset"] + one.ses["request_length"]
            regions[region] = max(regions[region], end)
        steps.append(Step(one.time, one.src, _operation(one, bytes(content[_message(one)]))))
    return Workload(sorted(steps, key=lambda step: step.time), dict(regions))


def _message(one: Seen) -> _Message:
    return one.src, one.ses["message_id"]


def _content(packets: Iterable[Seen]) -> dict[_Message, bytearray]:
    """The bytes of every message."""
    content: defaultdict[_Message, bytearray] = defaultdict(bytearray)
    for one in packets:
        if "som" in one.ses:
            at = one.ses.get("message_offset", 0)
            content[_message(one)][at : at + len(one.payload)] = one.payload
    return content


def _posted(packets: Sequence[Seen]) -> dict[_Message, int]:
    """Of the messages that met no buffer, when they were sent again (ses.md §5.7 D2b, §11.2)."""
    refused = {
        (one.dst, one.ses["message_id"])
        for one in packets
        if one.type is PdsType.ACK and one.ses.get("opcode") == ResponseOpcode.RESPONSE
    }
    return {_message(one): one.time for one in packets if one.ses.get("som") and _message(one) in refused}


# One message ----------------------------------------------------------------------------------------------------------


def _tag(one: Seen) -> int | None:
    tag: int | None = one.ses["match_bits"] if one.ses["opcode"] == Opcode.TAGGED_SEND else None
    return tag


def _receive(one: Seen) -> Receive:
    ses = one.ses
    return Receive(
        into=bytearray(ses["request_length"]), tag=_tag(one), job_id=ses["job_id"], pid_on_fep=ses["pid_on_fep"],
        resource_index=ses["resource_index"],
    )  # fmt: skip


def _operation(one: Seen, content: bytes) -> Work:
    ses = one.ses
    common: dict[str, Any] = {name: ses[name] for name in ("job_id", "pid_on_fep", "resource_index", "initiator")}
    common |= {"peer": one.dst, "mode": Mode(one.type), "relative": bool(ses["rel"])}
    common |= {"delivery_complete": bool(ses["dc"]), "offset": ses.get("buffer_offset", 0)}
    data = ses["header_data"] if ses["hd"] else None
    if ses["opcode"] in _SENDS:
        kind = SendKind.DEFERRABLE if ses["opcode"] == Opcode.DEFERRABLE_SEND else SendKind.PLAIN
        return Send(data=content, tag=_tag(one), completion_data=data, kind=kind, **common)
    common["key"] = ses["memory_key"]
    if ses["opcode"] == Opcode.READ:
        return Read(into=bytearray(ses["request_length"]), **common)
    if ses["opcode"] in (Opcode.WRITE, Opcode.SYNC_WRITE):
        sync = (one.extension["group"], one.extension["count"]) if one.extension else None
        return Write(data=content, completion_data=data, sync=sync, **common)
    return _atomic(one, content, common)


def _atomic(one: Seen, content: bytes, common: dict[str, Any]) -> Atomic:
    """Operands stand big-endian in the packet, in host order in an `Atomic` (observed.md)."""
    ext = one.extension
    common |= {"opcode": ext["atomic_opcode"], "datatype": ext["atomic_datatype"], "control": ext["semantic_control"]}
    if one.ses["opcode"] == Opcode.FETCHING_ATOMIC:
        common["result"] = bytearray(_OPERAND)
    if "swap_value" in ext:
        compare, swap = (ext[name].to_bytes(_OPERAND, sys.byteorder) for name in ("compare_value", "swap_value"))
        return Atomic(data=swap, compare=compare, **common)
    return Atomic(data=int.from_bytes(content, "big").to_bytes(_OPERAND, sys.byteorder), **common)
