# SPDX-License-Identifier: GPL-2.0-only
"""This module judges the requests that an end of a PDC sends: their PSNs, SYN packets, and CLEAR_PSNs."""

from uetproto.audit.pds.tracker_state import FAR, M32, PdcDirection, PdsEvent
from uetproto.audit.reader.observed import ObservedPacket
from uetproto.audit.rule import CHOICE, Inconclusive, Requires, Rule, Severity, Verdict, Violation, always
from uetproto.wire.serial import add32, diff32
from uetproto.wire.words.text import numbered

COPIES = 1 + 5 + 5
"""Greatest number of copies of a packet that a source sends: 1, plus the defaults of Max_RTO_Retx_Cnt and
Max_NACK_Retx_Cnt (UE 1.0.1 §3.5.12.7)."""

_OF_ANOTHER = Inconclusive("PSNs between were not seen: it may be of another PDC")

# PSNs -----------------------------------------------------------------------------------------------------------------


def _two_contents(state: PdcDirection, seen: ObservedPacket) -> Verdict:
    was = state.earlier
    content = -1 - seen.head.ctl_type if "ctl_type" in seen.head._fields else seen.content
    if was.content is None or content is None:
        return Inconclusive("content not known")
    if was.content == content:
        return None
    if state.gap:
        return _OF_ANOTHER
    return Violation(f"what {numbered(was.number)} carried under PSN {seen.head.psn}", "another content", (was.number,))


def _retx_missing(state: PdcDirection, seen: ObservedPacket) -> Verdict:
    was, head = state.earlier, seen.head
    if head.retx or was.head.retx or head == was.head:
        return None  # equal headers: the network may have copied the packet
    if was.content != seen.content:
        return Inconclusive("not a copy")
    if type(head) is not type(was.head):
        names = ["syn"]
    else:
        names = [name for name in head._fields if getattr(head, name) != getattr(was.head, name)]
    return Violation("retx = 1 in a copy that its source changed", f"retx = 0, other {', '.join(names)}", (was.number,))


def _copies(state: PdcDirection, seen: ObservedPacket) -> Violation | None:
    if state.pdc.rod:
        return None
    count = 1 + len(state.copies.get(seen.head.psn, ()))
    return Violation(f"at most {COPIES} copies", str(count)) if count == COPIES + 1 else None


def _backoff(state: PdcDirection, seen: ObservedPacket) -> Verdict:
    """Compare the intervals of three copies without a NACK: the second interval must not be shorter than the first."""
    psn = seen.head.psn
    times = [state.earlier.time_ns, *state.copies.get(psn, ())]
    if state.pdc.rod or len(times) < 3 or not seen.head.retx:
        return Inconclusive("fewer than three copies, or ROD")
    if psn in state.nacked:
        return Inconclusive("a NACK asked for it")  # when the NACK reached the source is not known
    if state.sacked is not None and diff32(psn, state.sacked) < 0:
        return Inconclusive("a SACK reported a later packet")  # from which its source may infer a loss at any time
    before, after = times[-2] - times[-3], times[-1] - times[-2]
    return Violation(f"an interval of at least {before} ns", f"{after} ns") if 10 * after < 9 * before else None


def _mode(state: PdcDirection, seen: ObservedPacket) -> Violation | Inconclusive:
    """Judge the mode of a packet. Start_PSN identifies the PDC of a SYN packet; others need neighbours to prove it."""
    head = seen.head
    opposite = "pds.rod" if head.form.startswith("pds.rud") else "pds.rud"
    around = (state.records.get(add32(head.psn, step)) for step in (-1, 0, 1))
    others = sorted(record.number for record in around if record is not None and record.head.form.startswith(opposite))
    if not others and not head.form.endswith(".syn"):
        return _OF_ANOTHER
    return Violation(f"{state.mode} as in other packets of the PDC", head.form, tuple(others))


def _dpdcid(state: PdcDirection, seen: ObservedPacket) -> Violation:
    receiver = state.peer if seen.src == state.sender else state.id
    others = _before(state, seen) if state.was is None else (state.was.number,)
    return Violation(f"dpdcid {receiver} as before", str(seen.head.dpdcid), others)


def _spdcid(state: PdcDirection, seen: ObservedPacket) -> Violation:
    return Violation(f"spdcid {state.id} as before", str(seen.head.spdcid), _before(state, seen))


def _start(state: PdcDirection, seen: ObservedPacket) -> Violation:
    start = (seen.head.psn - seen.head.psn_offset) & M32
    before = state.records.get((state.next - 1) & M32)
    others = () if before is None else (before.number,)
    return Violation(f"Start_PSN {state.start} as before", f"{start} at PSN {seen.head.psn}", others)


def _pdc_info(state: PdcDirection, seen: ObservedPacket) -> Verdict:
    """Compare with the packet before, and with the first one: if that differs, all others do."""
    start = seen.head.psn - seen.head.psn_offset
    around = (state.records.get(psn & M32) for psn in (seen.head.psn - 1, start))
    infos = {record.head.pdc_info: record.number for record in around if record and "pdc_info" in record.head._fields}
    if not infos:
        return Inconclusive("the only SYN packet")
    own = seen.head.pdc_info
    return None if own in infos else Violation(f"pdc_info {min(infos)}", str(own), tuple(sorted(infos.values())))


def _before(state: PdcDirection, seen: ObservedPacket) -> tuple[int, ...]:
    """Return the number of the packet with the PSN before, if it was seen."""
    before = state.records.get((seen.head.psn - 1) & M32)
    return () if before is None else (before.number,)


def _still_open(state: PdcDirection, seen: ObservedPacket) -> Verdict:
    start = (seen.head.psn - seen.head.psn_offset) & M32
    return Violation(f"Start_PSN {state.start} of the PDC that is open and goes on", str(start))


def _jumped(state: PdcDirection, seen: ObservedPacket) -> Violation:
    return Violation(f"PSN {state.next}", str(seen.head.psn))


def _late_syn(state: PdcDirection, seen: ObservedPacket) -> Violation:
    others = () if state.was is None else (state.was.number,)
    return Violation("syn = 0 in first transmissions once one had it", "syn = 1 at a later PSN than syn = 0", others)


def _syn_again(state: PdcDirection, seen: ObservedPacket) -> Verdict:
    was, head = state.earlier, seen.head
    if was.head.retx or not head.retx or "psn_offset" not in head._fields or "psn_offset" in was.head._fields:
        return None
    if was.content != seen.content:
        return Inconclusive("not a copy")
    return Violation("syn = 0 as when it was first sent", "syn = 1", (was.number,))


def _start_distance(state: PdcDirection, seen: ObservedPacket) -> Verdict:
    before = state.before
    if before is None or before.lowest is None or state.start is None:
        return Inconclusive("the PDC before was not seen")
    last = (before.next - 1) & M32
    ahead = diff32(state.start, last)
    if before.demanded is not None or before.pdc.close_psn is None:
        return Inconclusive("the PDC before may have been renumbered, or was not seen to its end")
    if ahead > 0 or ahead <= -FAR:  # a newer Start_PSN is legal with a secure start
        return None
    return Violation(f"a Start_PSN at least {FAR} from PSN {last}, or newer", str(state.start))


def _renumbered(state: PdcDirection, seen: ObservedPacket) -> Violation | None:
    was = state.earlier
    if was.content == seen.content:
        return None
    offset = seen.head.psn_offset
    return Violation(f"what {numbered(was.number)} carried at psn_offset {offset}", "another content", (was.number,))


def _after_close(state: PdcDirection, seen: ObservedPacket) -> Violation:
    pdc = state.pdc
    return Violation(f"no PSN behind CLOSE_CMD, {pdc.close_psn}", str(seen.head.psn), (pdc.close_number,))


def _consecutive(state: PdcDirection, seen: ObservedPacket) -> Verdict:
    if state.start is None:
        return Inconclusive("no SYN seen")
    missing = [psn for psn, trimmed in state.holes.items() if not trimmed and diff32(psn, seen.head.psn) < 0]
    if not missing:
        return None
    lowest = min(missing, key=lambda psn: diff32(psn, seen.head.psn))
    return Violation(f"every PSN from {state.start} to CLOSE_CMD", f"no packet with PSN {lowest}")


def _silent(state: PdcDirection, seen: ObservedPacket) -> Violation:
    psn, first = state.subject, state.earlier
    copies, asks = len(state.copies.get(psn, ())), state.asked.get(psn, 0)
    return Violation(f"an ACK of PSN {psn}", f"none after {copies} copies and {asks} ACK_REQs", (first.number,))


# CLEAR_PSNs -----------------------------------------------------------------------------------------------------------


def _clear_not_below(state: PdcDirection, seen: ObservedPacket) -> Violation:
    return Violation("clear_psn_offset below 0", str(seen.head.clear_psn_offset))


def _clear_fell(state: PdcDirection, seen: ObservedPacket) -> Violation:
    was = state.earlier
    clear = add32(seen.head.psn, seen.head.clear_psn_offset)
    relation = "at least" if diff32(was.head.psn, seen.head.psn) <= 0 else "at most"
    expected = f"CLEAR_PSN {relation} {was.clear}, that of PSN {was.head.psn} in {numbered(was.number)}"
    return Violation(expected, f"{clear} at PSN {seen.head.psn}", (was.number,))


def _clear_early(state: PdcDirection, seen: ObservedPacket) -> Violation | None:
    head = seen.head
    if head.psn_offset + head.clear_psn_offset >= -1:
        return None
    clear = add32(head.psn, head.clear_psn_offset)
    return Violation(f"CLEAR_PSN from Start_PSN - 1 = {((state.start or 0) - 1) & M32} on", str(clear))


def _clear_ahead(state: PdcDirection, seen: ObservedPacket) -> Violation:
    clear = add32(seen.head.psn, seen.head.clear_psn_offset)
    return Violation(f"CLEAR_PSN below {state.una}, of which no ACK came", str(clear))


def _window(state: PdcDirection, seen: ObservedPacket) -> Violation:
    return Violation(f"at most {state.range} PSNs behind CLEAR_PSN", str(-seen.head.clear_psn_offset))


SENT: tuple[Rule, ...] = (
    Rule(id="PDS-PSN-TWO-CONTENTS", on=PdsEvent.AGAIN, check=_two_contents, cite="UE 1.0.1 §3.5.11.4",
         covers=("pds 20",), says="A PSN stands for one packet: all its copies carry the same.", obscures=True),
    Rule(id="PDS-RETX-MISSING", on=PdsEvent.AGAIN, check=_retx_missing, cite="UE 1.0.1 §3.5.12.5", covers=("pds 24",),
         says="A packet that its source sends again has retx = 1."),
    # It requires order: without it the first transmission may come later.
    Rule(id="PDS-RETX-FIRST", on=PdsEvent.RETX_FIRST, of=PdsEvent.FIRST, check=always("retx = 0", "retx = 1"),
         requires=Requires.ORDER, cite="UE 1.0.1 §3.5.12.5", covers=("pds 24",),
         says="A packet that its source sends for the first time has retx = 0."),
    Rule(id="PDS-COPIES", on=PdsEvent.AGAIN, check=_copies, severity=Severity.NOTE, cite="UE 1.0.1 §3.5.12.7",
         covers=("pds 42", "pds 43"), says="A source sends a RUD packet no more often than its counters allow."),
    Rule(id="PDS-RETX-BACKOFF", on=PdsEvent.AGAIN, check=_backoff, severity=Severity.NOTE, requires=Requires.ABSENCE,
         cite="UE 1.0.1 §3.5.12.7", covers=("pds 42",),
         says="Retransmissions for which no NACK and no SACK of a later packet gave cause come at growing intervals."),
    Rule(id="PDS-FIRST-CONSECUTIVE", on=PdsEvent.CLOSING, check=_consecutive, requires=Requires.ABSENCE,
         cite="UE 1.0.1 §3.5.11.4", covers=("pds 20",), says="PSNs are used without gaps.", obscures=True),
    Rule(id="PDS-ROD-ORDER", on=PdsEvent.LATE, of=PdsEvent.ROD_FIRST, requires=Requires.ORDER, cite="UE 1.0.1 §3.5.8.1",
         check=lambda state, seen: Violation(f"PSN {state.next}, or retx 1", f"PSN {seen.head.psn} and retx 0"),
         covers=("pds 20",), says="A source first sends the packets of a ROD PDC in the order of their PSNs."),
    Rule(id="PDS-MODE", on=PdsEvent.MODE, of=PdsEvent.FIRST, check=_mode, cite="UE 1.0.1 §3.5.8.1", covers=("pds 28",),
         says="A PDC has one delivery mode."),
    Rule(id="PDS-SPDCID-ZERO", on=PdsEvent.SPDCID_ZERO, of=PdsEvent.FIRST, cite="UE 1.0.1 §3.5.8.2",
         check=always("a PDCID other than 0", "spdcid 0"), covers=("pds 26",), obscures=True,
         says="The sender of a request, a control packet or an ACK has a PDCID."),
    Rule(id="PDS-DPDCID", on=PdsEvent.DPDCID, of=PdsEvent.AGAIN, check=_dpdcid, cite="UE 1.0.1 §3.5.8.2",
         covers=("pds 27",), says="The receiver of a PDC keeps its PDCID.", obscures=True),
    Rule(id="PDS-SPDCID", on=PdsEvent.SPDCID, of=PdsEvent.FIRST, check=_spdcid, cite="UE 1.0.1 §3.5.8.2",
         covers=("pds 26",), says="The sender of a PDC keeps its PDCID.", obscures=True),
    # It requires order: without it the SYN packet may come later.
    Rule(id="PDS-STRANGER", on=PdsEvent.STRANGER, of=PdsEvent.OPEN, requires=Requires.ORDER, cite="UE 1.0.1 §3.5.8.2",
         check=always("a PDC that began with a SYN packet", "one that did not"), covers=("pds 25", "pds 26"),
         obscures=True, says="A PDC begins with a SYN packet."),
    Rule(id="PDS-START", on=PdsEvent.START, of=PdsEvent.SYN, check=_start, cite="UE 1.0.1 §3.5.8.2",
         covers=("pds 25",), says="All SYN packets of a PDC have one Start_PSN.", obscures=True),
    Rule(id="PDS-STILL-OPEN", on=PdsEvent.STILL_OPEN, of=PdsEvent.SYN, check=_still_open, requires=Requires.ORDER,
         cite="UE 1.0.1 §3.5.8.2", covers=("pds 25", "pds 26"), obscures=True,
         says="A PDCID begins another PDC when the one before is over."),
    Rule(id="PDS-PSN-JUMP", on=PdsEvent.JUMPED, of=PdsEvent.FIRST, check=_jumped, requires=Requires.ABSENCE,
         cite="UE 1.0.1 §3.5.11.4", covers=("pds 20",), says="A new PSN follows the newest one.", obscures=True),
    Rule(id="PDS-PDC-INFO", on=PdsEvent.SYN, check=_pdc_info, cite="UE 1.0.1 §3.5.8.2", covers=("pds 25",),
         says="All SYN packets of a PDC have one pdc_info."),
    Rule(id="PDS-SYN-LATE", on=PdsEvent.LATE_SYN, of=PdsEvent.FIRST, check=_late_syn, cite="UE 1.0.1 §3.5.8.2",
         covers=("pds 25",), says="After a first transmission with syn = 0, all later ones have syn = 0."),
    Rule(id="PDS-SYN-AGAIN", on=PdsEvent.AGAIN, check=_syn_again, cite="UE 1.0.1 §3.5.8.2", covers=("pds 25",),
         says="A packet that was first sent with syn = 0 is not sent again with syn = 1."),
    # It requires order: without it either of the two PDCs may be the first one.
    Rule(id="PDS-START-DISTANCE", on=PdsEvent.REUSED, check=_start_distance, requires=Requires.ORDER,
         cite="UE 1.0.1 §3.5.8.2", covers=("pds 47",),
         says="A PDC begins far from the last PSN used on its PDCID, or after it."),
    Rule(id="PDS-RENUMBERED", on=PdsEvent.RENUMBERED, check=_renumbered, cite="UE 1.0.1 §3.5.8.2", covers=("pds 24",),
         says="A new Start_PSN renumbers all packets and changes nothing else."),
    Rule(id="PDS-NEW-AFTER-CLOSE", on=PdsEvent.NEW_AFTER_CLOSE, of=PdsEvent.CLOSING, check=_after_close,
         cite="UE 1.0.1 §3.5.8.3", covers=("pds 30",), says="No new PSN is used after CLOSE_CMD."),
    Rule(id="PDS-SILENT", on=PdsEvent.SILENT, of=PdsEvent.FIRST, check=_silent, severity=Severity.NOTE,
         requires=Requires.ABSENCE, cite="UE 1.0.1 §3.5.12.2", says="A request is answered."),
    Rule(id="PDS-CLEAR-POSITIVE", on=PdsEvent.CLEAR_NOT_BELOW, of=PdsEvent.FIRST, check=_clear_not_below,
         cite="UE 1.0.1 §3.5.11.4.4", covers=("pds 12", "pds 16"), says="A packet does not clear itself."),
    Rule(id="PDS-CLEAR-FALLS", on=PdsEvent.CLEAR_FELL, of=PdsEvent.FIRST, check=_clear_fell,
         cite="UE 1.0.1 §3.5.11.4.4", covers=("pds 11",), says="CLEAR_PSN never decreases."),
    Rule(id="PDS-CLEAR-EARLY", on=PdsEvent.SYN, check=_clear_early, cite="UE 1.0.1 §3.5.11.4.4", covers=("pds 11",),
         says="CLEAR_PSN begins at Start_PSN - 1."),
    Rule(id="PDS-CLEAR-AHEAD", on=PdsEvent.CLEAR_AHEAD, of=PdsEvent.FIRST, check=_clear_ahead,
         requires=Requires.ABSENCE, cite="UE 1.0.1 §3.5.11.4.4", covers=("pds 12", "pds 16"),
         says="Only what was acknowledged is cleared."),
    Rule(id="PDS-WINDOW", on=PdsEvent.WINDOW, of=PdsEvent.FIRST, check=_window, severity=Severity.NOTE,
         requires=Requires.ABSENCE, cite=CHOICE, covers=("pds 21",),
         says="A source stays inside the window that its receiver offers."),
)  # fmt: skip
