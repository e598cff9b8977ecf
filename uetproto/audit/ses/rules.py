# SPDX-License-Identifier: GPL-2.0-only
"""This module collects all rules about messages (ses.md §15), and judges their request packets.

`rules_cross_message.py` judges several messages together, and `rules_answers.py` judges responses and read data.
"""

from functools import partial
from typing import Any

from uetproto.audit.finding import opcode_name
from uetproto.audit.reader.observed import ObservedPacket
from uetproto.audit.rule import CHOICE, Inconclusive, Requires, Rule, Verdict, Violation, not_observable
from uetproto.audit.ses import rules_answers, rules_cross_message
from uetproto.audit.ses.request_layout import COMMON, LAYOUTS, common_of
from uetproto.audit.ses.rules_rows import ERROR, HEADER, NOTE, OPCODES, WARNING, ses_rule
from uetproto.audit.ses.tracker_answers import Interruption
from uetproto.audit.ses.tracker_events import SesEvent as E
from uetproto.audit.ses.tracker_message import AuditedMessage
from uetproto.engine.contract import Mode
from uetproto.wire.headers.uet_pds import NextHdr
from uetproto.wire.headers.uet_ses import ATOMICS, OPCODE_PROFILES, Opcode
from uetproto.wire.words.text import numbered

_M32 = 0xFFFFFFFF
_EMPTY = (Opcode.NO_OP, Opcode.DEFERRABLE_RTR)
_WITHOUT_GENERATION = (
    Opcode.WRITE, Opcode.ATOMIC, Opcode.FETCHING_ATOMIC, Opcode.SYNC_WRITE, Opcode.SYNC_ATOMIC,
)  # fmt: skip
"""READ is not listed: a READ of a rendezvous sends the generation that the rendezvous named."""


# The header of a message ----------------------------------------------------------------------------------------------


def _form(message: AuditedMessage, seen: ObservedPacket) -> Verdict:
    row = OPCODE_PROFILES.get(message.opcode)  # type: ignore[call-overload]
    if row is None:
        return Inconclusive("unknown opcode")
    if seen.head.next_hdr in row.forms:
        return None
    forms = " or ".join(NextHdr(form).name for form in sorted(row.forms))
    return Violation(forms, f"{NextHdr(seen.head.next_hdr).name} with {opcode_name(message.opcode)}")


def _datagram(message: AuditedMessage, seen: ObservedPacket) -> Verdict:
    on_pdc = message.opcode == Opcode.DATAGRAM_SEND and not message.sender.unordered
    return Violation("another opcode", "DATAGRAM_SEND") if on_pdc else None


def _deferrable_mode(message: AuditedMessage, seen: ObservedPacket) -> Verdict:
    row = OPCODE_PROFILES.get(message.opcode)  # type: ignore[call-overload]
    if row is None or row.modes != {Mode.RUD} or message.sender.unordered:
        return None
    return Violation("RUD", f"{opcode_name(message.opcode)} on ROD") if message.sender.rod else None


def _whole(message: AuditedMessage, seen: ObservedPacket) -> Verdict:
    head = message.head
    return None if head.som and head.eom else Violation("som 1, eom 1", f"som {head.som}, eom {head.eom}")


def _short_whole(message: AuditedMessage, seen: ObservedPacket) -> Verdict:
    return _whole(message, seen) if message.message_id is None else None


def _atomic_whole(message: AuditedMessage, seen: ObservedPacket) -> Verdict:
    return _whole(message, seen) if message.opcode in ATOMICS else None


def _small_hd(message: AuditedMessage, seen: ObservedPacket) -> Verdict:
    if seen.head.next_hdr != NextHdr.REQUEST_SMALL or not message.head.hd:
        return None
    return Violation("hd 0", "hd 1")


def _empty(message: AuditedMessage, seen: ObservedPacket) -> Verdict:
    if message.opcode not in _EMPTY:
        return None
    if message.length:
        return Violation("request_length 0", f"{message.length} with {opcode_name(message.opcode)}")
    return _whole(message, seen)


def _id_zero(message: AuditedMessage, seen: ObservedPacket) -> Verdict:
    return Violation("another message_id", "0") if message.message_id == 0 else None


def _rma_generation(message: AuditedMessage, seen: ObservedPacket) -> Verdict:
    generation = message.head.ri_generation
    if message.opcode not in _WITHOUT_GENERATION or not generation:
        return None
    return Violation("ri_generation 0", f"{generation} with {opcode_name(message.opcode)}")


def _header_data(message: AuditedMessage, seen: ObservedPacket) -> Verdict:
    head = message.head
    data = getattr(head, "header_data", 0)
    return Violation("header_data 0", f"{data:#x} with hd 0") if data and not head.hd else None


def _index_zero(message: AuditedMessage, seen: ObservedPacket) -> Verdict:
    if message.head.resource_index or seen.head.next_hdr == NextHdr.REQUEST_SMALL:
        return None
    return Violation("another resource_index", f"0 with {opcode_name(message.opcode)}")


def _token_zero(message: AuditedMessage, seen: ObservedPacket) -> Verdict:
    for name in ("initiator_restart_token", "sender_token", "receiver_token"):
        if getattr(message.head, name, None) == 0:
            return Violation("a token", f"{name} 0")
    return None


def _eager(message: AuditedMessage, seen: ObservedPacket) -> Verdict:
    return Violation(f"at most {message.length}", f"{message.body}") if message.body > message.length else None


def _sync_count(message: AuditedMessage, seen: ObservedPacket) -> Verdict:
    if message.opcode != Opcode.SYNC_ATOMIC and not (message.opcode == Opcode.SYNC_WRITE and message.head.hd):
        return None
    group = next((head for head in seen.more if head.form == "ses.ext.sync"), None)
    return Violation("at least 1", "count 0") if group is not None and not group.count else None


# What all packets of a message have in common -------------------------------------------------------------------------


def _opcode_change(message: AuditedMessage, seen: ObservedPacket) -> Verdict:
    if seen.ses.opcode in (message.opcode, Opcode.MSG_ERROR) or message.opcode == Opcode.MSG_ERROR:
        return None
    return Violation(opcode_name(message.opcode), opcode_name(seen.ses.opcode), _others(message, seen))


def _changed(*names: str) -> Any:
    places = tuple((COMMON.index(name), name) for name in names)

    def check(message: AuditedMessage, seen: ObservedPacket) -> Verdict:
        values = common_of(seen.ses, LAYOUTS[type(seen.ses)])
        for place, name in places:
            if values and message.common and values[place] != message.common[place]:
                expected, got = message.common[place], values[place]
                return Violation(f"{name} {expected:#x}", f"{got:#x}", _others(message, seen))
        return None

    return check


def _others(message: AuditedMessage, seen: ObservedPacket) -> tuple[int, ...]:
    return (message.number,) if message.number != seen.number else ()


def _hd_later(message: AuditedMessage, seen: ObservedPacket) -> Verdict:
    ses = seen.ses
    if ses.som or not ses.eom:
        return None
    if not message.head.som:
        return Inconclusive("no SOM seen")
    if ses.opcode == Opcode.MSG_ERROR or ses.hd == message.head.hd:
        return None
    return Violation(f"hd {message.head.hd} as with SOM", f"hd {ses.hd}", _others(message, seen))


def _data_late(message: AuditedMessage, seen: ObservedPacket) -> Verdict:
    """Tell what the reference provider takes from the first packet that it receives for the completion data."""
    first = message.first.ses
    if not first.hd:
        taken = "no completion data"
    else:
        taken = f"{first.payload_length << 32 | first.message_offset:#x}, payload_length and message_offset,"
    return Violation(f"completion data {seen.ses.header_data:#x} in the first packet of the message that arrives",
                     f"{taken} in {numbered(message.number)}", (message.number,))  # fmt: skip


# Where packets are ----------------------------------------------------------------------------------------------------


def _twice(flag: str, message: AuditedMessage, seen: ObservedPacket) -> Verdict:
    known = getattr(message, flag)
    if not getattr(seen.ses, flag) or known is None or known == seen.head.psn:
        return None
    return Violation(f"one packet with {flag.upper()}", "another one", _number_of(message, known))


def _number_of(message: AuditedMessage, psn: int) -> tuple[int, ...]:
    owner, number = message.sender.sent.get(psn, (None, 0))
    return (number,) if owner is message else ()


def _overlap(message: AuditedMessage, seen: ObservedPacket) -> Verdict:
    if seen.ses.som:
        return None
    due = _due(message, seen)
    if due is None or due == seen.head.psn:
        return None
    others = _number_of(message, due)
    offset = message.offset_of(seen, LAYOUTS[type(seen.ses)])
    return Violation("bytes that no other packet has", f"message_offset {offset} again", others) if others else None


def _aligned(message: AuditedMessage, seen: ObservedPacket) -> Verdict:
    offset = message.offset_of(seen, LAYOUTS[type(seen.ses)])
    if not message.mtu or offset % message.mtu == 0:
        return None
    return Violation(f"a multiple of {message.mtu}", f"message_offset {offset}", _others(message, seen))


def _order(message: AuditedMessage, seen: ObservedPacket) -> Verdict:
    due = _due(message, seen)
    if due is None or due == seen.head.psn or _overlap(message, seen) or _twice("som", message, seen):
        return None
    expected = ((seen.head.psn - (message.origin or 0)) & _M32) * message.mtu
    offset = message.offset_of(seen, LAYOUTS[type(seen.ses)])
    return Violation(f"message_offset {expected}", f"{offset}", _others(message, seen))


def _due(message: AuditedMessage, seen: ObservedPacket) -> int | None:
    return message.expected_psn(seen, LAYOUTS[type(seen.ses)])


def _reach(message: AuditedMessage, seen: ObservedPacket) -> tuple[int, int]:
    """Return offset and number of bytes of a packet; -1 bytes: not known."""
    layout = LAYOUTS[type(seen.ses)]
    return message.offset_of(seen, layout), message.extent(seen, layout)


def _beyond(message: AuditedMessage, seen: ObservedPacket) -> Verdict:
    offset, size = _reach(message, seen)
    if offset + max(0, size) <= message.body:
        return None
    return Violation(f"an end within {message.body} bytes", f"{offset} + {max(0, size)}")


def _eom_early(message: AuditedMessage, seen: ObservedPacket) -> Verdict:
    if not seen.ses.eom or not message.ends_early(seen, LAYOUTS[type(seen.ses)]):
        return None
    offset, size = _reach(message, seen)
    return Violation(f"EOM at the end, {message.body}", f"EOM at {offset + size}")


def _eom_missing(message: AuditedMessage, seen: ObservedPacket) -> Verdict:
    offset, size = _reach(message, seen)
    if seen.ses.eom or size < 0 or offset + size < message.body or seen.ses.opcode == Opcode.MSG_ERROR:
        return None
    return Violation(f"EOM where all {message.body} bytes are there", f"eom 0 at {offset + size}")


def _payload_size(message: AuditedMessage, seen: ObservedPacket) -> Verdict:
    _, size = _reach(message, seen)
    if not message.mtu or (seen.ses.som and seen.ses.eom):
        return None
    if size < 0:
        return Inconclusive("length not known")
    if size == message.mtu or (seen.ses.eom and size < message.mtu):
        return None
    least = "at most " if seen.ses.eom else ""
    return Violation(f"{least}{message.mtu} bytes, as in other packets", f"{size}", _others(message, seen))


def _path_mtu(message: AuditedMessage, seen: ObservedPacket) -> Verdict:
    if not message.path_mtu or not seen.ses.som:
        return None
    if seen.ses.eom:
        if seen.size <= message.path_mtu:
            return None
        return Violation(f"at most {message.path_mtu} bytes, as in earlier messages", f"{seen.size}")
    if message.mtu in (0, message.path_mtu):
        return None
    return Violation(f"{message.path_mtu} bytes, as in earlier messages", f"{message.mtu}")


def _count(message: AuditedMessage, seen: ObservedPacket) -> Verdict:
    if message.drifted or not message.mtu:
        return Inconclusive("payload MTU not known")
    if message.ended_early:
        return None
    expected = max(1, -(-message.body // message.mtu))
    return None if message.seen == expected else Violation(f"{expected} packets", f"{message.seen}")


def _interleaved(between: Interruption, seen: ObservedPacket) -> Verdict:
    whose = "one without an id" if between.message_id is None else f"message {between.message_id}"
    expected = f"packets of message {between.message.message_id} only"
    return Violation(expected, f"{whose} at PSN {between.psn}", _before(between, seen))


def _headless(between: Interruption, seen: ObservedPacket) -> Verdict:
    return Violation(f"som 1 behind the EOM at PSN {between.psn}", "som 0", _before(between, seen))


def _before(between: Interruption, seen: ObservedPacket) -> tuple[int, ...]:
    return (between.number,) if between.number < seen.number else ()


def _unfinished(message: AuditedMessage, seen: ObservedPacket) -> Verdict:
    missing = " or ".join(name for name, psn in (("SOM", message.som), ("EOM", message.eom)) if psn is None)
    packets = f"{message.seen} packet{'s' * (message.seen != 1)}"
    return Violation("all packets of the message", f"{packets}, no {missing}" if missing else packets)


# Ending early ---------------------------------------------------------------------------------------------------------


def _error_flags(message: AuditedMessage, seen: ObservedPacket) -> Verdict:
    som, eom = seen.ses.som, seen.ses.eom
    return None if eom and not som else Violation("som 0, eom 1", f"som {som}, eom {eom}")


def _error_late(message: AuditedMessage, seen: ObservedPacket) -> Verdict:
    end = (seen.head.psn - 1) & _M32
    for ended in (message, message.previous):
        if ended is not None and ended.eom == end:
            return Violation("nothing behind EOM", "MSG_ERROR", _number_of(ended, end))
    return None


REQUEST_RULES: tuple[Rule, ...] = (
    ses_rule("SES-FORM", E.HEADER, _form, "UE 1.0.1 §3.4.2", ERROR, (34,),
          "A request has a header form that is defined for its opcode.", E.OPENED),
    ses_rule("SES-DATAGRAM-ON-PDC", E.HEADER, _datagram, OPCODES, ERROR, (),
          "DATAGRAM_SEND is sent without a PDC.", E.OPENED),
    ses_rule("SES-DEFERRABLE-ON-ROD", E.HEADER, _deferrable_mode, OPCODES, NOTE, (),
          "Deferrable sends and their restarts are sent on RUD.", E.OPENED),
    ses_rule("SES-SHORT-FORM-WHOLE", E.HEADER, _short_whole, "UE 1.0.1 §3.4.2.2", ERROR, (3,),
          "A message with a medium or small header is one packet.", E.OPENED),
    ses_rule("SES-ATOMIC-WHOLE", E.HEADER, _atomic_whole, "UE 1.0.1 §3.4.2.4", WARNING, (3,),
          "An atomic operation is one packet.", E.OPENED),
    ses_rule("SES-SMALL-HD", E.HEADER, _small_hd, "UE 1.0.1 §3.4.2.3", WARNING, (),
          "The small header has no completion data.", E.OPENED),
    ses_rule("SES-EMPTY", E.HEADER, _empty, OPCODES, WARNING, (3,),
          "NO_OP and DEFERRABLE_RTR are one packet without bytes.", E.OPENED),
    ses_rule("SES-MESSAGE-ID-ZERO", E.HEADER, _id_zero, HEADER, WARNING, (15,),
          "0 is not a valid message_id.", E.OPENED),
    ses_rule("SES-RMA-GENERATION", E.HEADER, _rma_generation, "UE 1.0.1 §3.4.6.3.2", ERROR, (),
          "Writes and atomics send generation 0.", E.OPENED),
    ses_rule("SES-HEADER-DATA", E.HEADER, _header_data, HEADER, WARNING, (),
          "Without hd the field of completion data is 0.", E.OPENED),
    ses_rule("SES-INDEX-ZERO", E.HEADER, _index_zero, "UE 1.0.1 §3.4.6.3", NOTE, (),
          "Resource index 0 is reserved.", E.OPENED),
    ses_rule("SES-TOKEN-ZERO", E.HEADER, _token_zero, CHOICE, NOTE, (),
          "Restart tokens are not 0.", E.OPENED),
    ses_rule("SES-EAGER-LENGTH", E.HEADER, _eager, "UE 1.0.1 §3.4.2.5", ERROR, (1,),
          "The eager part of a message is not longer than the message.", E.OPENED),
    ses_rule("SES-SYNC-COUNT", E.HEADER, _sync_count, CHOICE, NOTE, (),
          "The terminator of a sync group counts at least itself.", E.OPENED),

    ses_rule("SES-OPCODE-CHANGE", E.CHANGED, _opcode_change, HEADER, ERROR, (5,),
          "All packets of a message have one opcode.", E.LATER),
    ses_rule("SES-KEY-CHANGE", E.CHANGED, _changed("key"), HEADER, ERROR, (5,),
          "All packets of a message have one memory key, or the same match bits.", E.LATER),
    ses_rule("SES-JOB-CHANGE", E.CHANGED, _changed("job_id"), HEADER, ERROR, (5, 32),
          "All packets of a message have one job.", E.LATER),
    ses_rule("SES-LENGTH-CHANGE", E.CHANGED, _changed("request_length"), HEADER, ERROR, (5,),
          "All packets of a message state the same length.", E.LATER),
    ses_rule("SES-ADDRESS-CHANGE", E.CHANGED,
          _changed("rel", "pid_on_fep", "resource_index", "ri_generation", "initiator"), HEADER, ERROR, (5,),
          "All packets of a message have one destination and one initiator.", E.LATER),
    ses_rule("SES-BUFFER-OFFSET-CHANGE", E.CHANGED, _changed("place"), HEADER, ERROR, (5,),
          "All packets of a message have the same buffer offset, or the same tokens.", E.LATER),
    ses_rule("SES-DC-CHANGE", E.CHANGED, _changed("dc"), HEADER, ERROR, (),
          "Either all packets of a message ask for delivery complete, or none.", E.LATER),
    ses_rule("SES-HD-LATER", E.LIMITS, _hd_later, CHOICE, NOTE, (),
          "hd is the same in all packets of a message.", E.EDGE),

    ses_rule("SES-HD-BEHIND", E.DATA_LATE, _data_late, CHOICE, NOTE, (),
          "The reference provider receives completion data before the rest of its message.", E.EDGE, Requires.REFPROV),

    ses_rule("SES-SOM-TWICE", E.MISPLACED, partial(_twice, "som"), HEADER, ERROR, (3,),
          "One packet of a message has SOM.", E.LATER),
    ses_rule("SES-EOM-TWICE", E.MISPLACED, partial(_twice, "eom"), HEADER, ERROR, (3,),
          "One packet of a message has EOM.", E.LATER),
    ses_rule("SES-OFFSET-OVERLAP", E.MISPLACED, _overlap, HEADER, ERROR, (2,),
          "Packets of a message do not overlap.", E.LATER),
    ses_rule("SES-OFFSET-ALIGNED", E.MISPLACED, _aligned, HEADER, ERROR, (6,),
          "A packet begins at a multiple of the payload MTU.", E.LATER),
    ses_rule("SES-OFFSET-ORDER", E.MISPLACED, _order, HEADER, WARNING, (2,),
          "The PSNs of the packets of a message are in the order of their offsets.", E.LATER),
    ses_rule("SES-BEYOND-LENGTH", E.LIMITS, _beyond, HEADER, ERROR, (1,),
          "A packet ends within its message.", E.EDGE),
    ses_rule("SES-EOM-EARLY", E.LIMITS, _eom_early, HEADER, ERROR, (1, 2, 3),
          "EOM comes with the last byte.", E.EDGE),
    ses_rule("SES-EOM-MISSING", E.LIMITS, _eom_missing, HEADER, ERROR, (3,),
          "The last byte comes with EOM.", E.EDGE),
    ses_rule("SES-PAYLOAD-SIZE", E.LIMITS, _payload_size, HEADER, ERROR, (6,),
          "All packets of a message but the last are of one size.", E.EDGE),
    ses_rule("SES-PAYLOAD-MTU", E.LIMITS, _path_mtu, HEADER, NOTE, (6,),
          "Messages on one PDC have one payload MTU.", E.EDGE),
    ses_rule("SES-PACKET-COUNT", E.COMPLETE, _count, HEADER, ERROR, (1, 2, 4),
          "A message has as many packets as its bytes need."),
    ses_rule("SES-INTERLEAVED", E.INTERLEAVED, _interleaved, "UE 1.0.1 §3.5.20", ERROR, (16,),
          "Packets of another message do not come between those of a message.", E.LATER, also=("pds 29",)),
    ses_rule("SES-SOM-MISSING", E.HEADLESS, _headless, HEADER, ERROR, (3,),
          "The packet after the end of a message begins another message.", E.OPENED),
    ses_rule("SES-UNFINISHED", E.UNFINISHED, _unfinished, HEADER, NOTE, (2, 3),
          "A message that was begun is sent to its end.", requires=Requires.ABSENCE),

    ses_rule("SES-MSG-ERROR-FLAGS", E.MSG_ERROR, _error_flags, OPCODES, ERROR, (),
          "MSG_ERROR has EOM and not SOM."),
    ses_rule("SES-MSG-ERROR-LATE", E.MSG_ERROR, _error_late, OPCODES, WARNING, (),
          "MSG_ERROR ends a message that has no EOM."),
)  # fmt: skip

RULES = REQUEST_RULES + rules_cross_message.RULES + rules_answers.RULES

NOT_OBSERVABLE = not_observable("ses", {
    "A first packet has no field for its length; its payload is judged (SES-PAYLOAD-SIZE).": (7,),
    "The memory of the target is inside an end.": (8, 10, 23),
    "The memory of the target is inside an end; that packets end within their message is judged.": (9,),
    "Completions are inside an end.": (17, 31),
    "What a later read returns may have been written by somebody else.": (18,),
    "The memory of the target is inside an end; what others wrote meanwhile does not show.": (19,),
    "Other agents, and the target itself, may change the value in between.": (21,),
    "How often the target executes it is inside an end; that its answer stays the same is judged.": (22,),
    "Which receives were posted is inside an end.": (24, 25),
    "Receives and completions are inside an end.": (26,),
    "Which buffer was reserved is inside an end.": (30,),
    "A retry is a new message, which nothing relates to the first.": (35,),
    "The state of the ends does not go over the wire.": (36,),
})  # fmt: skip
"""Invariants of ses.md §15 that no capture can show, each with the reason."""
