# SPDX-License-Identifier: GPL-2.0-only
"""This module judges the control packets of a PDC: their flags, their PSNs, and which end may send them."""

from collections.abc import Set as AbstractSet
from functools import partial

from uetproto.audit.pds.tracker_state import M32, TRIES, PdcDirection, PdsEvent
from uetproto.audit.reader.observed import ObservedPacket
from uetproto.audit.rule import CHOICE, Inconclusive, Requires, Rule, Severity, Verdict, Violation
from uetproto.wire.headers.uet_pds import CONTROLS, CpPayload, CpPsn, CpSender, CtlType
from uetproto.wire.serial import diff32

_UNANSWERED = frozenset(kind for kind, control in CONTROLS.items() if not control.ar)
_ANSWERED = CONTROLS.keys() - _UNANSWERED - {CtlType.ACK_REQ}  # ACK_REQ has a rule of its own
_PAYLOADS = {CpPayload.NOTHING: 0, CpPayload.MESSAGE_ID: 0xFFFF, CpPayload.CREDIT: 0xFFFFFF}
"""Greatest values of `ctl_payload`."""
_WITHOUT_PSN = frozenset(kind for kind, control in CONTROLS.items() if control.psn is CpPsn.NONE)


def _cp_ar(types: AbstractSet[int], legal: int, state: PdcDirection, seen: ObservedPacket) -> Verdict:
    head = seen.head
    if head.ctl_type not in types:
        return Inconclusive("another type")
    return None if head.ar == legal else Violation(f"ar {legal} in {CtlType(head.ctl_type).name}", f"ar {head.ar}")


_OF_ANOTHER = Inconclusive("of another PDC")


def _is_of_another(state: PdcDirection, seen: ObservedPacket) -> bool:
    """Return whether a packet names another PDCID of its receiver: it is late, or belongs to a PDC not seen."""
    return "dpdcid" in seen.head._fields and state.peer not in (0, seen.head.dpdcid)


def _cp_isrod(state: PdcDirection, seen: ObservedPacket) -> Verdict:
    if state.mode is None:
        return Inconclusive("no request seen")
    if _is_of_another(state, seen):
        return _OF_ANOTHER
    isrod = seen.head.isrod
    return None if isrod == state.pdc.rod else Violation(f"isrod {1 - isrod} on a {state.mode} PDC", f"isrod {isrod}")


def _cp_psn(state: PdcDirection, seen: ObservedPacket) -> Verdict:
    head = seen.head
    if head.ctl_type not in _WITHOUT_PSN:
        return Inconclusive("another type")
    return None if head.psn == 0 else Violation(f"psn 0 in {CtlType(head.ctl_type).name}", str(head.psn))


def _cp_payload(state: PdcDirection, seen: ObservedPacket) -> Verdict:
    head = seen.head
    control = CONTROLS.get(head.ctl_type)
    if control is None:
        return Inconclusive("another type")
    if getattr(head, "probe_opaque", 0) and head.ctl_type != CtlType.PROBE:
        return Violation(f"probe_opaque 0 in {CtlType(head.ctl_type).name}", str(head.probe_opaque))
    most = _PAYLOADS.get(control.payload, M32)
    if head.ctl_payload <= most:
        return None
    return Violation(f"ctl_payload up to {most} in {CtlType(head.ctl_type).name}", str(head.ctl_payload))


def _close_role(kind: CtlType, state: PdcDirection, seen: ObservedPacket) -> Verdict:
    if seen.head.ctl_type != kind:
        return Inconclusive("another type")
    if state.pdc.initiator is None:
        return Inconclusive("initiator not known")
    if _is_of_another(state, seen):
        return _OF_ANOTHER
    sender = CONTROLS[kind].sender
    right = state.is_forward if sender is CpSender.INITIATOR else state.is_return
    return None if right else Violation(f"{kind.name} from {sender.value} only", "one from the other end")


def _ack_req_unsent(state: PdcDirection, seen: ObservedPacket) -> Verdict:
    head = seen.head
    if head.ctl_type != CtlType.ACK_REQ:
        return Inconclusive("another type")
    if state.lowest is None:
        return Inconclusive("no request seen")
    return Violation("a PSN that was sent", str(head.psn)) if state.unseen(head.psn) else None


def _ack_req_silent(state: PdcDirection, seen: ObservedPacket) -> Verdict:
    """Count the ACK_REQs before this one since the last answer about the PSN. One of them may have been lost."""
    head = seen.head
    if head.ctl_type != CtlType.ACK_REQ:
        return Inconclusive("another type")
    if state.is_acked(head.psn) or state.asked.get(head.psn) != TRIES + 1:
        return None
    return Violation(f"an answer to one of the {TRIES} ACK_REQs of PSN {head.psn} before", "none")


def _clear_cmd_unsent(state: PdcDirection, seen: ObservedPacket) -> Verdict:
    head = seen.head
    if head.ctl_type != CtlType.CLEAR_CMD:
        return Inconclusive("another type")
    if state.lowest is None:
        return Inconclusive("no request seen")
    newest = (state.next - 1) & M32
    return Violation(f"at most PSN {newest}", str(head.ctl_payload)) if diff32(head.ctl_payload, newest) > 0 else None


def _clear_cmd_ahead(state: PdcDirection, seen: ObservedPacket) -> Verdict:
    head = seen.head
    if head.ctl_type != CtlType.CLEAR_CMD or state.start is None:
        return Inconclusive("another type, or no SYN seen")
    if _is_of_another(state, seen):
        return _OF_ANOTHER
    una = state.acknowledged()
    if diff32(head.ctl_payload, una) < 0:
        return None
    return Violation(f"a PSN below {una}, of which no ACK came", str(head.ctl_payload))


def _clear_cmd_early(state: PdcDirection, seen: ObservedPacket) -> Verdict:
    head = seen.head
    if head.ctl_type != CtlType.CLEAR_CMD or state.start is None or not state.is_forward:
        return Inconclusive("another type, or no SYN seen")
    late = state.before is not None and state.before.is_near(head.ctl_payload)
    if late or _is_of_another(state, seen):
        return _OF_ANOTHER
    if diff32(head.ctl_payload, state.start) >= -1:
        return None
    return Violation(f"Start_PSN - 1 = {(state.start - 1) & M32} or newer", str(head.ctl_payload))


def _close_unacked(state: PdcDirection, seen: ObservedPacket) -> Verdict:
    if state.start is None:
        return Inconclusive("no SYN seen")
    una = state.acknowledged()
    close = seen.head.psn
    return None if diff32(una, close) >= 0 else Violation(f"ACKs of all PSNs below {close}", f"none of {una}")


CONTROL: tuple[Rule, ...] = (
    Rule(id="PDS-CP-NO-ACK", on=PdsEvent.CONTROL, check=partial(_cp_ar, _UNANSWERED, 0), severity=Severity.WARNING,
         cite="UE 1.0.1 §3.5.16", says="Control packets that are not answered do not ask for an ACK."),
    Rule(id="PDS-CP-ACK", on=PdsEvent.CONTROL, check=partial(_cp_ar, _ANSWERED, 1), severity=Severity.WARNING,
         cite="UE 1.0.1 §3.5.16", says="Control packets that are always answered ask for an ACK."),
    Rule(id="PDS-ACK-REQ-AR", on=PdsEvent.CONTROL, check=partial(_cp_ar, frozenset({CtlType.ACK_REQ}), 1),
         severity=Severity.WARNING, cite="UE 1.0.1 §3.5.16", says="ACK_REQ asks for an ACK."),
    Rule(id="PDS-CP-ISROD", on=PdsEvent.CONTROL, check=_cp_isrod, severity=Severity.WARNING, cite="UE 1.0.1 §3.5.16",
         covers=("pds 28",), says="isrod in a control packet tells the mode of its PDC."),
    Rule(id="PDS-CP-PSN", on=PdsEvent.CONTROL, check=_cp_psn, severity=Severity.NOTE, cite=CHOICE,
         says="Control packets without a PSN of their own have psn = 0."),
    Rule(id="PDS-CP-PAYLOAD", on=PdsEvent.CONTROL, check=_cp_payload, severity=Severity.NOTE, cite="UE 1.0.1 §3.5.16",
         says="Fields that a control packet does not use are 0."),
    Rule(id="PDS-CLOSE-CMD-ROLE", on=PdsEvent.CONTROL, check=partial(_close_role, CtlType.CLOSE_CMD),
         cite="UE 1.0.1 §3.5.8.3", covers=("pds 31",), says="Only the initiator sends CLOSE_CMD.", obscures=True),
    Rule(id="PDS-CLOSE-REQ-ROLE", on=PdsEvent.CONTROL, check=partial(_close_role, CtlType.CLOSE_REQ),
         cite="UE 1.0.1 §3.5.8.3", covers=("pds 31",), says="Only the target sends CLOSE_REQ.", obscures=True),
    Rule(id="PDS-CLOSE-UNACKED", on=PdsEvent.CLOSING, check=_close_unacked, requires=Requires.ABSENCE,
         cite="UE 1.0.1 §3.5.9.3", covers=("pds 31",), says="CLOSE_CMD is sent when everything was acknowledged."),
    Rule(id="PDS-ACK-REQ-UNSENT", on=PdsEvent.CONTROL, check=_ack_req_unsent, requires=Requires.ABSENCE,
         cite="UE 1.0.1 §3.5.16", says="ACK_REQ asks about a PSN that was sent."),
    Rule(id="PDS-ACK-REQ-SILENT", on=PdsEvent.CONTROL, check=_ack_req_silent, severity=Severity.NOTE,
         requires=Requires.ABSENCE, cite="UE 1.0.1 §3.5.16", says="An ACK_REQ is answered."),
    Rule(id="PDS-CLEAR-CMD-UNSENT", on=PdsEvent.CONTROL, check=_clear_cmd_unsent, requires=Requires.ABSENCE,
         cite="UE 1.0.1 §3.5.16.3", covers=("pds 12",), says="CLEAR_CMD clears what was sent."),
    Rule(id="PDS-CLEAR-CMD-AHEAD", on=PdsEvent.CONTROL, check=_clear_cmd_ahead, requires=Requires.ABSENCE,
         cite="UE 1.0.1 §3.5.16.3", covers=("pds 12",), says="CLEAR_CMD clears what was acknowledged."),
    Rule(id="PDS-CLEAR-CMD-EARLY", on=PdsEvent.CONTROL, check=_clear_cmd_early, cite="UE 1.0.1 §3.5.16.3",
         covers=("pds 11",), says="CLEAR_CMD clears nothing before Start_PSN."),
)  # fmt: skip
