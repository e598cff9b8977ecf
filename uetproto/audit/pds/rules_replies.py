# SPDX-License-Identifier: GPL-2.0-only
"""This module judges the answers to requests of a PDC: ACKs, their SACK bitmaps, NACKs, and the packets that close the
PDC."""

from uetproto.audit.pds.tracker_credits import most_granted, spendable
from uetproto.audit.pds.tracker_state import M32, PdcDirection, PdsEvent
from uetproto.audit.reader.observed import ObservedPacket
from uetproto.audit.rule import CHOICE, Inconclusive, Requires, Rule, Severity, Verdict, Violation, always
from uetproto.wire.headers.uet_pds import AckReq, NackCode
from uetproto.wire.serial import add32, diff32
from uetproto.wire.words.text import numbered

_M24 = 0xFFFFFF

# ACKs -----------------------------------------------------------------------------------------------------------------


def _early(state: PdcDirection, seen: ObservedPacket) -> Violation:
    start = state.start or 0
    return Violation(f"PSNs from Start_PSN {start} on", _numbers(seen))


def _unsent(state: PdcDirection, seen: ObservedPacket) -> Violation:
    return Violation(f"PSNs that were sent, the newest {(state.next - 1) & M32}", _numbers(seen))


def _retx(state: PdcDirection, seen: ObservedPacket) -> Violation:
    was = state.earlier
    return Violation(f"retx {was.head.retx} as in {numbered(was.number)}", f"retx {seen.head.retx}", (was.number,))


def _behind_clear(state: PdcDirection, seen: ObservedPacket) -> Violation:
    was = state.earlier
    expected = f"CACK_PSN from {was.clear} on, the CLEAR_PSN of {numbered(was.number)}"
    return Violation(expected, str(seen.head.cack_psn), (was.number,))


def _hole(state: PdcDirection, seen: ObservedPacket) -> Violation:
    return Violation(f"CACK_PSN below {state.subject}, which was not seen", str(seen.head.cack_psn))


def _uncleared(state: PdcDirection, seen: ObservedPacket) -> Violation:
    expected = f"CACK_PSN below {state.subject}, whose response nothing has cleared"
    return Violation(expected, str(seen.head.cack_psn), (state.number_of,))


def _fell(state: PdcDirection, seen: ObservedPacket) -> Violation:
    return Violation(f"CACK_PSN from {state.cack} on", str(seen.head.cack_psn))


def _rcvd_fell(state: PdcDirection, seen: ObservedPacket) -> Violation:
    told = next(one.rcvd_bytes for one in seen.more if one.form == "pds.cc_state.nscc")
    return Violation(f"rcvd_bytes from {state.subject} on", str(told))


def _credit_fell(state: PdcDirection, seen: ObservedPacket) -> Violation:
    credit = state.credit
    return Violation(f"a grant from {credit.granted & _M24} on", _granted(seen), (credit.number,))


def _credit_beyond(state: PdcDirection, seen: ObservedPacket) -> Violation:
    credit = state.credit
    most = most_granted(credit)
    others = () if credit.number < 0 else (credit.number,)
    return Violation(f"at most {most & _M24}, as {credit.target & _M24} is asked for", _granted(seen), others)


def _granted(seen: ObservedPacket) -> str:
    return str(seen.head.ctl_payload & _M24)


def _overdrawn(state: PdcDirection, seen: ObservedPacket) -> Violation:
    credit = state.credit
    expected = f"{spendable(credit):,} bytes at most, those granted and one packet"
    return Violation(expected, f"{credit.spent:,} bytes", () if credit.number < 0 else (credit.number,))


def _two_targets(state: PdcDirection, seen: ObservedPacket) -> Violation | Inconclusive:
    was = state.earlier
    if was.head.retx or was.head.psn in state.copies:
        return Inconclusive("the request came again: a copy that outlives its PDC opens another")
    others = sorted({was.number, state.other.learned} - {-1})
    return Violation(f"spdcid {state.peer} as before", str(seen.head.spdcid), tuple(others))


def _sack_unsent(state: PdcDirection, seen: ObservedPacket) -> Violation:
    return Violation(f"bits of PSNs that were sent, the newest {(state.next - 1) & M32}", f"one of PSN {state.subject}")


def _sack_zero(state: PdcDirection, seen: ObservedPacket) -> Violation:
    return Violation(f"bits up to CACK_PSN {seen.head.cack_psn} set", f"that of PSN {state.subject} is not")


def _clear_and_cack(state: PdcDirection, seen: ObservedPacket) -> Verdict:
    head = seen.head
    if head.req != AckReq.CLEAR:
        return Inconclusive("another request")
    if head.ack_psn_offset > 0:
        return None
    return Violation(f"CACK_PSN below {add32(head.cack_psn, head.ack_psn_offset)}, to be cleared", str(head.cack_psn))


def _close_asked(state: PdcDirection, seen: ObservedPacket) -> Verdict:
    if seen.head.req != AckReq.CLOSE:
        return Inconclusive("another request")
    if state.pdc.initiator is None:
        return Inconclusive("initiator not known")
    return Violation("req 0 or CLEAR in ACKs of the initiator", "CLOSE") if state.is_return else None


# The end of a PDC -----------------------------------------------------------------------------------------------------


def _close_cack(state: PdcDirection, seen: ObservedPacket) -> Violation | None:
    close, number = state.pdc.close_psn, state.pdc.close_number
    cack = seen.head.cack_psn
    return None if cack == close else Violation(f"CACK_PSN {close}, the PSN of CLOSE_CMD", str(cack), (number,))


def _expected_psn(state: PdcDirection, seen: ObservedPacket) -> Verdict:
    if seen.head.form != "pds.ack.epsn":
        return Inconclusive("no Expected_PSN")
    first = ((state.pdc.close_psn or 0) + 1) & M32
    expected = seen.head.expected_psn
    return None if diff32(expected, first) >= 0 else Violation(f"Expected_PSN from {first} on", str(expected))


def _return_unacked(state: PdcDirection, seen: ObservedPacket) -> Verdict:
    back = state.other
    if back.lowest is None:
        return None
    una = back.acknowledged()
    return None if diff32(una, back.next) >= 0 else Violation("ACKs of all PSNs of the target", f"none of {una}")


# NACKs ----------------------------------------------------------------------------------------------------------------

_NO_PDC = frozenset({NackCode.NO_PDC_AVAIL, NackCode.NO_CCC_AVAIL, NackCode.NO_BITMAP, NackCode.INV_DPDCID})


def _nack_unsent(state: PdcDirection, seen: ObservedPacket) -> Verdict:
    if state.lowest is None:
        return Inconclusive("no request seen")
    if not state.is_near(seen.head.nack_psn):
        return Inconclusive("of another PDC")
    return Violation("a PSN that was sent", str(seen.head.nack_psn)) if state.unseen(seen.head.nack_psn) else None


def _nack_spdcid(state: PdcDirection, seen: ObservedPacket) -> Verdict:
    head = seen.head
    if head.nack_code not in _NO_PDC:
        return Inconclusive("another code")
    return Violation(f"spdcid 0 with {NackCode(head.nack_code).name}", str(head.spdcid)) if head.spdcid else None


def _nack_order(state: PdcDirection, seen: ObservedPacket) -> Verdict:
    head = seen.head
    if head.nack_code != NackCode.ROD_OOO:
        return Inconclusive("another code")
    refused = state.records.get(head.nack_psn)
    if refused is not None and refused.head.form.startswith("pds.rud"):
        if state.before is not None and state.before.is_near(head.nack_psn):
            return Inconclusive("the packet refused may be of the PDC before")
        return Violation("ROD_OOO for ROD packets only", "for RUD", (refused.number,))
    if not head.spdcid:
        return Inconclusive("there is no PDC yet that expects a PSN")
    if diff32(head.nack_payload, head.nack_psn) < 0:
        return None
    return Violation(f"an expected PSN below {head.nack_psn}, the one refused", str(head.nack_payload))


def _nack_start(state: PdcDirection, seen: ObservedPacket) -> Verdict:
    head = seen.head
    if head.nack_code != NackCode.NEW_START_PSN:
        return Inconclusive("another code")
    if state.start is None or diff32(head.nack_psn, state.start) < 0 or not state.is_near(head.nack_psn):
        return Inconclusive("no SYN seen")
    if state.before is not None and state.before.is_near(head.nack_psn):
        return Inconclusive("the packet refused may have had the Start_PSN before")
    return (
        Violation("another Start_PSN than that refused", str(state.start)) if head.nack_payload == state.start else None
    )


def _numbers(seen: ObservedPacket) -> str:
    head = seen.head
    if "ack_psn_offset" not in head._fields:
        return f"CACK_PSN {head.cack_psn}"
    return f"CACK_PSN {head.cack_psn}, ACK_PSN {add32(head.cack_psn, head.ack_psn_offset)}"


REPLIES: tuple[Rule, ...] = (
    Rule(id="PDS-ACK-EARLY", on=PdsEvent.ACK_EARLY, of=PdsEvent.ACK, check=_early, cite="UE 1.0.1 §3.5.11.4.5",
         covers=("pds 17",), says="Nothing before Start_PSN is acknowledged."),
    Rule(id="PDS-ACK-UNSENT", on=PdsEvent.ACK_UNSENT, of=PdsEvent.ACK, check=_unsent, requires=Requires.ABSENCE,
         cite="UE 1.0.1 §3.5.11.4.5", covers=("pds 12", "pds 17"), obscures=True,
         says="Only what was sent is acknowledged."),
    Rule(id="PDS-ACK-RETX", on=PdsEvent.ACK_RETX, of=PdsEvent.ACKED, check=_retx, severity=Severity.WARNING,
         requires=Requires.ABSENCE, cite="UE 1.0.1 §3.5.12.2",
         says="An ACK copies retx from the packet that it answers."),
    Rule(id="PDS-CACK-BEHIND-CLEAR", on=PdsEvent.CACK_BEHIND_CLEAR, of=PdsEvent.ACKED, check=_behind_clear,
         cite="UE 1.0.1 §3.5.11.4.4", covers=("pds 12", "pds 13"),
         says="An ACK covers what the packet that it answers has cleared."),
    Rule(id="PDS-CACK-HOLE", on=PdsEvent.CACK_HOLE, of=PdsEvent.ACK, check=_hole, requires=Requires.ABSENCE,
         cite="UE 1.0.1 §3.5.11.4.5", covers=("pds 14", "pds 34"), says="CACK_PSN covers packets that were received."),
    Rule(id="PDS-CACK-UNCLEARED", on=PdsEvent.CACK_UNCLEARED, of=PdsEvent.ACK, check=_uncleared,
         requires=Requires.ABSENCE, cite="UE 1.0.1 §3.5.20.1", covers=("pds 14", "pds 40"),
         says="CACK_PSN stays below a guaranteed response that was not cleared."),
    Rule(id="PDS-CACK-FALLS", on=PdsEvent.CACK_FELL, of=PdsEvent.ACK, check=_fell, requires=Requires.ORDER,
         cite="UE 1.0.1 §3.5.11.4.5", covers=("pds 10",), says="CACK_PSN never decreases.", obscures=True),
    Rule(id="PDS-RCVD-BYTES-FALLS", on=PdsEvent.RCVD_FELL, of=PdsEvent.RCVD, check=_rcvd_fell, requires=Requires.ORDER,
         cite="UE 1.0.1 §3.6.13", says="rcvd_bytes of a PDC never falls, modulo 2^24."),
    Rule(id="PDS-CREDIT-FALLS", on=PdsEvent.CREDIT_FELL, of=PdsEvent.CREDIT, check=_credit_fell,
         requires=Requires.ORDER, severity=Severity.NOTE, cite=CHOICE,
         says="The cumulative grant of a context never falls, modulo 2^24."),
    Rule(id="PDS-CREDIT-BEYOND", on=PdsEvent.CREDIT_BEYOND, of=PdsEvent.CREDIT, check=_credit_beyond,
         requires=Requires.ABSENCE, severity=Severity.NOTE, cite=CHOICE,
         says="A grant does not exceed the credit_target, or is one turn of 64 quanta in advance."),
    Rule(id="PDS-CREDIT-OVERDRAWN", on=PdsEvent.OVERDRAWN, of=PdsEvent.CREDIT_SPENT, check=_overdrawn,
         requires=Requires.ABSENCE, severity=Severity.NOTE, cite=CHOICE,
         says="When its first window is over, a sender with RCCC sends what was granted, and one packet at most."),
    Rule(id="PDS-TWO-TARGETS", on=PdsEvent.TWO_TARGETS, of=PdsEvent.ACKED, check=_two_targets, cite="UE 1.0.1 §3.5.8.2",
         covers=("pds 27",), says="All SYN packets of a PDC open one PDC at the target.", obscures=True),
    Rule(id="PDS-SACK-UNSENT", on=PdsEvent.SACK_UNSENT, of=PdsEvent.SACK, check=_sack_unsent, requires=Requires.ABSENCE,
         cite="UE 1.0.1 §3.5.11.4.7", covers=("pds 18",),
         says="A bit of a SACK bitmap stands for a PSN that was sent."),
    Rule(id="PDS-SACK-ZERO", on=PdsEvent.SACK_ZERO, of=PdsEvent.SACK, check=_sack_zero, severity=Severity.WARNING,
         cite="UE 1.0.1 §3.5.11.14", covers=("pds 18",), says="The bits of a SACK bitmap up to CACK_PSN are 1."),
    Rule(id="PDS-MPR-ZERO", on=PdsEvent.MPR_ZERO, of=PdsEvent.SACK, check=always("mpr of at least 1", "mpr 0"),
         severity=Severity.NOTE, cite=CHOICE, says="A receiver offers a window."),
    Rule(id="PDS-CLEAR-REQ-CACK", on=PdsEvent.ASKS, check=_clear_and_cack, cite="UE 1.0.1 §3.5.20.1",
         covers=("pds 14", "pds 40"), says="An ACK that asks to clear its PSN does not cover it."),
    Rule(id="PDS-CLOSE-ASKED", on=PdsEvent.ASKS, check=_close_asked, cite="UE 1.0.1 §3.5.8.3", covers=("pds 31",),
         says="Only the target asks for a close in ACKs."),
    Rule(id="PDS-CLOSE-CACK", on=PdsEvent.CLOSED, check=_close_cack, severity=Severity.WARNING,
         cite="UE 1.0.1 §3.5.9.4", covers=("pds 15",), says="The ACK of CLOSE_CMD covers it."),
    Rule(id="PDS-CLOSE-RETURN", on=PdsEvent.CLOSED, check=_return_unacked, requires=Requires.ABSENCE,
         cite="UE 1.0.1 §3.5.9.4", covers=("pds 32",), says="A PDC closes when all return data was acknowledged."),
    Rule(id="PDS-EXPECTED-PSN", on=PdsEvent.CLOSED, check=_expected_psn, severity=Severity.NOTE, cite=CHOICE,
         says="Expected_PSN is above all PSNs that were used."),
    Rule(id="PDS-NACK-UNSENT", on=PdsEvent.NACK, check=_nack_unsent, requires=Requires.ABSENCE,
         cite="UE 1.0.1 §3.5.12.7", says="Only what was sent is refused."),
    Rule(id="PDS-NACK-SPDCID", on=PdsEvent.NACK, check=_nack_spdcid, severity=Severity.WARNING,
         cite="UE 1.0.1 §3.5.12.7, Table 3-58", covers=("pds 27",),
         says="A NACK that reports a missing PDC has spdcid 0."),
    Rule(id="PDS-NACK-ROD-OOO", on=PdsEvent.NACK, check=_nack_order, cite="UE 1.0.1 §3.5.12.7, Table 3-58",
         covers=("pds 28",), says="ROD_OOO refuses a ROD packet whose PSN is above the expected one."),
    Rule(id="PDS-NACK-NEW-START", on=PdsEvent.NACK, check=_nack_start, requires=Requires.ABSENCE,
         cite="UE 1.0.1 §3.5.8.2", says="NEW_START_PSN demands another Start_PSN than the packet has."),
)  # fmt: skip
