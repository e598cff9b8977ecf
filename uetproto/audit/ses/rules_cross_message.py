# SPDX-License-Identifier: GPL-2.0-only
"""This module judges several messages together: message ids that are used again, messages that end early, stop or
restart, and sync groups (ses.md §5, ses.md §12)."""

from uetproto.audit.finding import opcode_name
from uetproto.audit.reader.observed import Head, ObservedPacket
from uetproto.audit.rule import CHOICE, Inconclusive, Requires, Rule, Verdict, Violation
from uetproto.audit.ses.request_layout import LAYOUTS, clear_of
from uetproto.audit.ses.rules_rows import HEADER, NOTE, OPCODES, WARNING, code_name, ses_rule
from uetproto.audit.ses.tracker_answers import RepeatedId
from uetproto.audit.ses.tracker_events import SesEvent as E
from uetproto.audit.ses.tracker_groups import SyncGroup
from uetproto.audit.ses.tracker_message import AuditedMessage
from uetproto.audit.ses.tracker_tokens import Restart, Rtr
from uetproto.wire.headers.uet_ses import Opcode, ReturnCode
from uetproto.wire.serial import diff32

# The ids of messages --------------------------------------------------------------------------------------------------


def _id_unanswered(again: RepeatedId, seen: ObservedPacket) -> Verdict:
    if again.psn is None:
        return None
    return Violation(
        f"another message_id than {again.message.message_id}: no ACK of PSN {again.psn}", "the same", (again.number,)
    )


def _id_held(again: RepeatedId, seen: ObservedPacket) -> Verdict:
    number = again.message.message_id
    expected = f"an answer to PSN {again.psn} before message_id {number} is used again"
    return Violation(
        expected, "a retransmission behind that", tuple(sorted((again.number, again.message.first.number)))
    )


# What ends or stops a message -----------------------------------------------------------------------------------------


def _went_on(message: AuditedMessage, seen: ObservedPacket) -> Verdict:
    if message.ended is None or _ends(message, seen):
        return None
    psn, code, number = message.ended
    if diff32(seen.head.psn, psn) <= 0 or diff32(clear_of(seen.head), psn) < 0:
        return None  # the sender of the packet may not have read the answer yet
    what = "a stop" if code == ReturnCode.OK else code_name(code)
    offset = message.offset_of(seen, LAYOUTS[type(seen.ses)])
    return Violation(f"nothing but an end behind {what} for PSN {psn}", f"message_offset {offset}", (number,))


def _ends(message: AuditedMessage, seen: ObservedPacket) -> bool:
    """Return whether a packet ends the message early, without new bytes."""
    ses = seen.ses
    return bool(ses.opcode == Opcode.MSG_ERROR or (ses.eom and message.extent(seen, LAYOUTS[type(ses)]) == 0))


# Starting again -------------------------------------------------------------------------------------------------------


def _rtr_unknown(rtr: Rtr, seen: ObservedPacket) -> Verdict:
    token = rtr.message.head.receiver_token
    return Violation(f"a deferrable send with token {token:#x}", "none") if rtr.deferred is None else None


def _rtr_owner(rtr: Rtr, seen: ObservedPacket) -> Verdict:
    if rtr.deferred is None:
        return Inconclusive("deferrable send not seen")
    return _differ(rtr.deferred.head, rtr.message.head, ("job_id", "initiator"), rtr.deferred.number)


def _restart_unknown(restart: Restart, seen: ObservedPacket) -> Verdict:
    token = restart.message.head.target_restart_token
    return Violation(f"a DEFERRABLE_RTR with token {token:#x}", "none") if restart.ready is None else None


def _restart_owner(restart: Restart, seen: ObservedPacket) -> Verdict:
    ready = restart.ready
    if ready is None or ready.deferred is None:
        return Inconclusive("DEFERRABLE_RTR not seen" if ready is None else "deferrable send not seen")
    head = restart.message.head
    sent, number = ready.deferred
    if head.opcode != sent.opcode:
        return Violation(opcode_name(sent.opcode), opcode_name(head.opcode), (number, ready.number))
    return _differ(sent, head, ("job_id", "initiator", "match_bits"), number, ready.number)


def _restart_twice(restart: Restart, seen: ObservedPacket) -> Verdict:
    ready, message_id = restart.ready, restart.message.message_id
    if ready is None or ready.used_by is None or ready.used_by[0] == message_id:
        return None
    before, number = ready.used_by
    return Violation(f"one message for this token, {before}", f"message {message_id}", (number,))


def _differ(sent: Head, head: Head, names: tuple[str, ...], *numbers: int) -> Verdict:
    for name in names:
        expected, got = getattr(sent, name), getattr(head, name)
        if got != expected:
            return Violation(f"{name} {expected:#x}", f"{got:#x}", numbers)
    return None


# Sync groups ----------------------------------------------------------------------------------------------------------


def _too_many(group: SyncGroup, seen: ObservedPacket) -> Verdict:
    if group.spread:
        return Inconclusive("a group on several PDCs")
    total = group.members[-1].total
    if len(group.members) <= total:
        return None
    others = sorted(member.number for member in group.members if member.number != seen.number)
    return Violation(f"{total} messages", f"{len(group.members)}", tuple(others))


RULES: tuple[Rule, ...] = (
    ses_rule("SES-MESSAGE-ID-HELD", E.ID_HELD, _id_held, HEADER, WARNING, (15,),
          "A message whose id was given to another is not sent again.", of=E.ID_AGAIN),
    ses_rule("SES-MESSAGE-ID-UNANSWERED", E.ID_AGAIN, _id_unanswered, HEADER, WARNING, (15,),
          "A message_id is used again when the message that had it is acknowledged.", requires=Requires.ABSENCE),
    ses_rule("SES-WENT-ON", E.WENT_ON, _went_on, OPCODES, NOTE, (),
          "After an answer that ends or stops a message, nothing new of it is sent.", of=E.LATER),

    ses_rule("SES-RTR-UNKNOWN", E.RTR, _rtr_unknown, OPCODES, NOTE, (29,),
          "DEFERRABLE_RTR names a deferrable send by its token.", requires=Requires.ABSENCE),
    ses_rule("SES-RTR-OWNER", E.RTR, _rtr_owner, OPCODES, NOTE, (29,),
          "DEFERRABLE_RTR has the job and the initiator of the send that it restarts.", requires=Requires.ABSENCE),
    ses_rule("SES-RESTART-UNKNOWN", E.RESTART, _restart_unknown, OPCODES, NOTE, (29,),
          "A send that restarts has the token of a DEFERRABLE_RTR.", requires=Requires.ABSENCE),
    ses_rule("SES-RESTART-OWNER", E.RESTART, _restart_owner, OPCODES, NOTE, (29,),
          "A send that restarts has the opcode, job, initiator and match bits of the deferred send.",
          requires=Requires.ABSENCE),
    ses_rule("SES-RESTART-TWICE", E.RESTART, _restart_twice, OPCODES, NOTE, (29,),
          "A send restarts once for each DEFERRABLE_RTR.", requires=Requires.ABSENCE),

    ses_rule("SES-SYNC-MEMBERS", E.GROUP, _too_many, CHOICE, NOTE, (),
          "A sync group has no more messages than the one that ends it counts.", requires=Requires.ABSENCE),
)  # fmt: skip
