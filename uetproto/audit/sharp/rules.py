# SPDX-License-Identifier: GPL-2.0-only
"""This module has the rules about SHARP. All their findings are notes, because the wire format is this project's own
(sharp.md §2–§6)."""

from collections.abc import Mapping
from typing import Any

from uetproto.audit.reader.observed import ObservedPacket
from uetproto.audit.rule import CHOICE, Inconclusive, Requires, Rule, Severity, Violation, always
from uetproto.audit.sharp.tracker import AuditedAggregation, AuditedSharpGroup, AuditedSharpMessage, SharpEvent
from uetproto.wire.headers.roce import BTH
from uetproto.wire.headers.roce import Operation as RoceOperation
from uetproto.wire.headers.sharp import SHARP, Flag
from uetproto.wire.headers.uet_pds import USE_RSV_PDC

_USE_RSV_PDC = USE_RSV_PDC >> 12  # of `pdc_info`
_CHUNKS = 64
"""Number of chunks of streaming operations that a child may have open."""
_FIRST = RoceOperation.SEND_FIRST


def _total(values: Mapping[str, Any]) -> int:
    return int(SHARP.size + 4 * values["ext_words"] + (values["payload_len"] + 3 & ~3))


def _length(state: AuditedSharpMessage, seen: ObservedPacket) -> Violation | Inconclusive | None:
    packet = seen.packet
    assert packet is not None
    head = seen.head
    ses = seen.ses
    if ses is None and head.form != BTH.name:
        return Inconclusive("SES not understood")
    if seen.size < 0 or (not ses.eom if ses is not None else head.opcode & 0x1F == _FIRST):
        return Inconclusive("not all of the message is there")
    total = _total(state.values)
    if total != seen.size:
        return Violation(f"{total} bytes", f"{seen.size}")
    pad = packet.pad
    if packet.layers[-1].form == SHARP.name:  # what is not understood of a message over UET is payload
        pad = packet.payload[4 * state.values["ext_words"] + state.values["payload_len"] :] or pad
    return Violation("a pad of zeros", pad.hex()) if any(pad) else None


def _over_uet(state: AuditedSharpMessage, seen: ObservedPacket) -> Violation | None:
    info = getattr(seen.head, "pdc_info", None)
    if info is not None and not info & _USE_RSV_PDC:
        return Violation("use_rsv_pdc 1 where a PDC of SHARP is established", "0")
    values, ses = state.values, seen.ses
    if not values or ses is None:
        return None
    if ses.job_id != values["job_id"]:
        return Violation(f"JobID {values['job_id']}, as in the message", f"{ses.job_id}")
    if ses.request_length != _total(values):
        return Violation(f"request_length {_total(values)}, the bytes of the message", f"{ses.request_length}")
    return Violation("no flag MCAST over UET", "MCAST") if values["flags"] & Flag.MCAST else None


def _window(state: AuditedSharpGroup, seen: ObservedPacket) -> Violation | Inconclusive | None:
    values = AuditedSharpMessage(seen).values
    places = state.open[state.child]
    if values["flags"] & Flag.SAT:
        return Violation(f"at most {_CHUNKS} chunks open", f"{len(places)}") if len(places) > _CHUNKS else None
    if state.granted is None:
        return Inconclusive("GROUP_JOIN_RESP not seen")
    if state.multicasts and not state.multicast_seen:
        return Inconclusive("results by multicast do not come by here")
    if len(places) <= state.granted:
        return None
    return Violation(f"at most {state.granted} operations open, as granted", f"{len(places)}")


def _mismatch(state: AuditedAggregation, _: ObservedPacket) -> Violation | None:
    if state.contradiction is None:
        return None
    return Violation("an ERROR, because children contradict each other", "a result", state.contradiction)


def _again(state: AuditedAggregation, _: ObservedPacket) -> Violation:
    return Violation("one of each operation on each edge of the tree", "another, without RETX", (state.was,))


def _complete(state: AuditedAggregation, _: ObservedPacket) -> Violation | Inconclusive | None:
    if not state.group.children:
        return Inconclusive("GROUP_JOIN_RESP not seen")
    missing = len(state.group.children - set(state.requests))
    every = len(state.group.children)
    return Violation(f"contributions of all {every} children", f"those of {every - missing}") if missing else None


def _header(state: AuditedSharpMessage, _: ObservedPacket) -> Violation | None:
    return state.fault


def _unlike(state: AuditedAggregation, _: ObservedPacket) -> Violation:
    return Violation("a result of the operation that the children asked for", "one of another", (state.was,))


def _other_job(state: AuditedSharpGroup, seen: ObservedPacket) -> Violation:
    return Violation(f"job_id {state.job}, as in the group", str(AuditedSharpMessage(seen).values["job_id"]))


def _stranger(state: AuditedSharpGroup, _: ObservedPacket) -> Violation:
    known = ", ".join(str(index) for _, index in sorted(state.children))
    return Violation(f"a child that has joined: {known or 'none has'}", str(state.child[1]))


def _ahead(state: AuditedSharpGroup, seen: ObservedPacket) -> Violation:
    expected = 0 if state.newest is None else (state.newest + 1) & 0xFFFFFFFF
    return Violation(f"operation {expected}", str(AuditedSharpMessage(seen).values["seq"]))


def _unasked(state: AuditedSharpMessage, _: ObservedPacket) -> Violation:
    seen = f"none for opcode {state.values['opcode']:#x}, seq {state.values['seq']}"
    return Violation("a request for it", seen, state.others)


_ON = SharpEvent


def _note(name: str, on: SharpEvent, check: Any, covers: int, says: str, **others: Any) -> Rule:
    return Rule(id=f"SHARP-{name}", on=on, check=check, covers=(f"sharp {covers}",), says=says, cite=CHOICE,
                severity=Severity.NOTE, **others)  # fmt: skip


RULES = (
    _note("LENGTH", _ON.MESSAGE, _length, 2, "The length of a message follows from its header, and its pad is zero."),
    _note("HEADER", _ON.MESSAGE, _header, 3, "The fields of a message agree with its opcode and with each other."),
    _note("JOB", _ON.OTHER_JOB, _other_job, 4, "All messages of a group have one job.", of=_ON.MESSAGE),
    _note("STRANGER", _ON.STRANGER, _stranger, 5,
          "Who contributes has joined, with this index.", requires=Requires.ABSENCE, of=_ON.REQUEST),
    _note("RESULT", _ON.UNLIKE, _unlike, 20,
          "A result is of the operation that the children have asked for.", of=_ON.RESULT),
    _note("SEQUENCE", _ON.AHEAD, _ahead, 13,
          "Operations of a group are numbered from 0, without gaps.", requires=Requires.ABSENCE, of=_ON.REQUEST),
    _note("MESSAGE", _ON.NO_MESSAGE, always("a message of SHARP", "another payload"), 3,
          "Queue pairs that send messages send nothing else.", of=_ON.MESSAGE),
    _note("UNASKED", _ON.UNASKED, _unasked, 15,
          "Results and responses answer requests.", requires=Requires.ABSENCE, of=_ON.MESSAGE),
    _note("COMPLETE", _ON.SENT_UP, _complete, 5,
          "An aggregation node sends up once every child has contributed.", requires=Requires.ABSENCE),
    _note("WINDOW", _ON.REQUEST, _window, 13,
          "A child has no more operations open than its group was granted.", requires=Requires.ABSENCE),
    _note("EDGE-LOAD", _ON.AGAIN, _again, 15,
          "Each edge of the tree carries one request and one result of an operation.", of=_ON.REQUEST),
    _note("MISMATCH", _ON.RESULT, _mismatch, 20, "Children that contradict each other get no result."),
    _note("OVER-UET", _ON.OVER_UET, _over_uet, 26,
          "Over UET, PDCs are of the reserved pool, JobID and length are those of the message, nothing is multicast."),
)  # fmt: skip
