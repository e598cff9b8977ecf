# SPDX-License-Identifier: GPL-2.0-only
"""This module follows the requests and control packets that an end of a PDC sends, both first transmissions and
copies."""

from collections.abc import Mapping

from uetproto.audit.contract import MessageTracker
from uetproto.audit.judge import Tell
from uetproto.audit.pds.tracker_credits import Credits
from uetproto.audit.pds.tracker_ends import QUARANTINE, PdcTable
from uetproto.audit.pds.tracker_state import (
    FAR,
    HOLES,
    M32,
    NEVER,
    PdcDirection,
    PdsEvent,
    PsnRecord,
    UnknownPdc,
    reaches,
)
from uetproto.audit.pds.tracker_window import Windows
from uetproto.audit.reader.observed import Head, ObservedPacket
from uetproto.wire.headers.uet_pds import CONTROLS, CpPayload, CpPsn, CpSender, CtlType, NextHdr
from uetproto.wire.serial import diff32

NEIGHBOURS = 64
"""Distance in PSNs. The CLEAR_PSN of a first transmission is compared with the CLEAR_PSNs of two other first
transmissions: those with the nearest PSN above and the nearest PSN below. A PSN at this distance or farther is not
considered."""

CONSUMES_PSN = frozenset(kind for kind, control in CONTROLS.items() if control.psn is CpPsn.CONSUMED)
"""Types of control packets that consume a PSN (UE 1.0.1 §3.5.16)."""
_PSN_FIELD: dict[int, str | None] = {
    kind: "psn" if control.psn is not CpPsn.NONE
    else "ctl_payload" if control.payload is CpPayload.PSN and control.sender is CpSender.SOURCE else None
    for kind, control in CONTROLS.items()
}  # fmt: skip
"""Maps the type of a control packet to the field that holds a PSN of its sender, or to None if no field does."""
_UNSURE = 2
"""As long as a PDC had no more packets, either of two PDCIDs or Start_PSNs may be right."""
_ROD = frozenset({"pds.rod_req", "pds.rod_cc_req"})


class SentPackets:
    """This class follows control packets, and the requests that take the slow path."""

    __slots__ = ("_complete", "_credits", "_ses", "_table", "_tell", "_windows")

    def __init__(
        self, table: PdcTable, tell: Mapping[PdsEvent, Tell], ses: MessageTracker, credits: Credits,
        windows: Windows | None, complete: bool,
    ) -> None:  # fmt: skip
        """`windows` follows windows of NSCC; None: nobody does."""
        self._credits = credits
        self._windows = windows
        self._table = table
        self._tell = tell
        self._ses = ses
        self._complete = complete

    def syn(self, seen: ObservedPacket) -> None:
        """Follow a request with syn = 1, which may open a PDC."""
        head = seen.head
        if not self._has_sender(seen):
            return
        start = (head.psn - head.psn_offset) & M32
        known = self._table.by_key.get((seen.src, head.spdcid, seen.dst))
        direction = self._table.of_syn(seen, head.spdcid, start)
        if known is direction and start != direction.start:
            self._tell_once(PdsEvent.START, direction, seen, start, direction.start or 0)
            if start in direction.others and len(direction.records) <= _UNSURE:
                direction.begin_at(start, head.psn)
            elif not direction.fits(head.psn):  # it surely is the next one, whatever its PSN says
                seen = seen._replace(head=head._replace(psn=direction.next))
            self._request(direction, seen)
            return
        if known is None and direction.id != head.spdcid:
            self._tell_once(PdsEvent.SPDCID, direction, seen, head.spdcid, direction.id)
            if len(direction.records) < _UNSURE:
                self._table.learn(direction, head.spdcid)
            self._request(direction, seen)
            return
        if known is None or known.pdc.instance < direction.pdc.instance:
            self._tell[PdsEvent.OPEN](direction, seen)
            if direction.before is not None:
                direction.opener = seen
                self._tell[PdsEvent.REUSED](direction, seen)
        was = direction.records.get(head.psn)
        silent = seen.time_ns - direction.pdc.last_ns
        if was is not None and not head.retx and _differ(was, seen) and (silent >= QUARANTINE or direction.pdc.closed):
            direction = self._table.renew(seen, direction, 0)  # a new PDC with the Start_PSN of one that failed
            self._table.of_syn(seen, head.spdcid, start)
        before = direction.before
        if before is not None and before.demanded == start and before.start is not None:
            direction.was = before.records.get((before.start + head.psn_offset) & M32)
            if direction.was is not None and direction.was.content is not None and seen.content is not None:
                self._tell[PdsEvent.RENUMBERED](direction, seen)
        self._tell[PdsEvent.SYN](direction, seen)
        self._request(direction, seen)

    def _tell_once(self, event: PdsEvent, direction: PdcDirection, seen: ObservedPacket, *values: int) -> None:
        """Report a packet that has another PDCID or Start_PSN than expected, but only once for each number. `values`
        holds the number that was seen and the expected one; either may be wrong."""
        if values[0] not in direction.others:
            self._tell[event](direction, seen)
            direction.others += values

    def request(self, seen: ObservedPacket) -> None:
        """Follow a request with syn = 0."""
        head = seen.head
        if not self._has_sender(seen):
            if (unnamed := self._table.misnamed(seen, 0, head.dpdcid, head.psn)) is not None:
                self._request(unnamed, seen)
            return
        misnamed = self._table.misnamed(seen, head.spdcid, head.dpdcid, head.psn)
        if misnamed is not None:
            self._tell[PdsEvent.SPDCID](misnamed, seen)
            self._request(misnamed, seen)
            return
        direction = self._of(seen, head.psn)
        direction = self._of_its_instance(direction, seen)
        if direction.peer == head.dpdcid:
            direction.named = head.dpdcid
        self._request(direction, seen)

    def control(self, seen: ObservedPacket) -> None:
        head = seen.head
        kind = head.ctl_type
        consumes = kind in CONSUMES_PSN
        misnamed = self._table.misnamed(seen, head.spdcid, head.dpdcid, head.psn) if _names(head, consumes) else None
        if not self._has_sender(seen) and misnamed is None:
            return
        if head.form == "pds.cp.syn":
            start = (head.psn - head.psn_offset) & M32
            direction = self._table.of_syn(seen, head.spdcid, start)
            if start != direction.start:
                self._tell[PdsEvent.START](direction, seen)
        elif misnamed is not None:
            direction = misnamed
            if head.spdcid:
                self._tell[PdsEvent.SPDCID](direction, seen)
        elif (without := self._without_psn(seen, consumes)) is not None:
            self._tell[PdsEvent.CONTROL](without, seen)
            return
        else:
            field = _PSN_FIELD.get(kind, "psn")
            direction = self._of(seen, None if field is None else getattr(head, field))
        direction.pdc.last_ns = seen.time_ns
        if consumes:
            if head.form != "pds.cp.syn" and head.dpdcid != direction.peer != 0:
                self._check_peer(direction, seen)
            was = direction.records.get(head.psn)
            if was is None and kind == CtlType.CLOSE_CMD and direction.pdc.close_psn not in (None, head.psn):
                direction = self._table.renew(seen, direction, head.dpdcid)
            self._psn(direction, seen, None, -1 - kind)
        elif kind == CtlType.CLEAR_CMD and not reaches(direction.cleared, head.ctl_payload):
            direction.cleared = head.ctl_payload
        elif kind == CtlType.ACK_REQ and len(direction.asked) < HOLES:
            direction.asked[head.psn] = direction.asked.get(head.psn, 0) + 1
            direction.tried = seen if self._complete else None
        self._tell[PdsEvent.CONTROL](direction, seen)
        if kind == CtlType.CREDIT or kind == CtlType.CREDIT_REQ:
            self._credits.control(seen, self._table.by_key)
        if kind == CtlType.CLOSE_CMD:
            self._closing(direction, seen)

    def tell_silent(self, direction: PdcDirection, seen: ObservedPacket) -> None:
        """Report a PSN without an ACK, by the last packet with which its source tried."""
        self._tell[PdsEvent.SILENT](direction, seen)

    def check_acknowledged(self, direction: PdcDirection, seen: ObservedPacket, clear: int) -> None:
        """Report a source whose CLEAR_PSN, `clear`, covers a PSN that was not acknowledged."""
        if direction.una is None or diff32(clear, direction.una) >= 0:
            una = direction.acknowledged()
            if diff32(clear, una) >= 0 and direction.start is not None:
                self._tell[PdsEvent.CLEAR_AHEAD](direction, seen)

    # Finding the direction --------------------------------------------------------------------------------------------

    def _has_sender(self, seen: ObservedPacket) -> bool:
        if seen.head.spdcid:
            return True
        self._tell[PdsEvent.SPDCID_ZERO](UnknownPdc(seen), seen)
        return False

    def _of(self, seen: ObservedPacket, psn: int | None) -> PdcDirection:
        head = seen.head
        known = self._table.by_key.get((seen.src, head.spdcid, seen.dst))
        unknown = self._table.is_unknown((seen.src, head.spdcid, seen.dst), (seen.dst, head.dpdcid, seen.src))
        direction = self._table.of_sender(seen, head.spdcid, head.dpdcid, psn)
        if known is not None and direction.before is known and self._complete and known.peer == head.dpdcid:
            self._jumped(known, seen)
        if known is not direction and direction.lowest is None and direction.cack is None:
            self._tell[PdsEvent.OPEN](direction, seen)
            if unknown:
                self._tell[PdsEvent.STRANGER](UnknownPdc(seen), seen)
        return direction

    def _of_its_instance(self, direction: PdcDirection, seen: ObservedPacket) -> PdcDirection:
        """Return `direction`, or the same direction of another PDC on these PDCIDs if the packet cannot belong to the
        given PDC."""
        head = seen.head
        psn = head.psn
        was = direction.records.get(psn)
        close = direction.pdc.close_psn
        if direction.peer == 0:
            self._table.learn(direction.other, head.dpdcid)
        elif head.dpdcid != direction.peer:
            before = direction.before
            if before is not None and before.peer == head.dpdcid and before.is_near(psn):
                return before
            if self._check_peer(direction, seen):
                return direction
            if was is None or _differ(was, seen):
                return self._table.renew(seen, direction, head.dpdcid)
            direction.was = was
            self._tell[PdsEvent.DPDCID](direction, seen)
        if close is not None and not direction.is_return:
            after = diff32(psn, close)
            if (after > 1 and was is None) or (was is not None and not head.retx and _differ(was, seen)):
                return self._table.renew(seen, direction, head.dpdcid)
            if after == 1 and was is None:
                if head.retx:
                    return self._table.renew(seen, direction, head.dpdcid)
                self._tell[PdsEvent.NEW_AFTER_CLOSE](direction, seen)
        elif was is not None and _differ(was, seen) and not self._complete and direction.has_gap(psn):
            direction.was, direction.gap = was, True
            self._tell[PdsEvent.AGAIN](direction, seen)
            return self._table.renew(seen, direction, head.dpdcid)
        return direction

    def _check_peer(self, direction: PdcDirection, seen: ObservedPacket) -> bool:
        """Return whether a packet surely belongs to this PDC although its DPDCID is not the one that its sender used
        before. If so, report the event `DPDCID`."""
        if not direction.fits(seen.head.psn) or direction.named not in (direction.peer, 0):
            return False
        if direction.named == 0:
            if not self._table.certain:
                return False  # an ACK named the PDCID of the receiver, perhaps one of another instance
            if seen.head.dpdcid in direction.other.others:
                self._table.learn(direction.other, seen.head.dpdcid)
                return True
        direction.was = None
        self._tell[PdsEvent.DPDCID](direction, seen)
        return True

    def _without_psn(self, seen: ObservedPacket, consumes: bool) -> PdcDirection | None:
        """Return the direction of a control packet that has psn 0 although its type has a PSN, if 0 is far from all
        PSNs of the PDC; else None."""
        head = seen.head
        direction = self._table.by_key.get((seen.src, head.spdcid, seen.dst))
        if direction is None or not consumes or head.psn or direction.peer != head.dpdcid or direction.is_near(0):
            return None
        return direction

    def _jumped(self, direction: PdcDirection, seen: ObservedPacket) -> None:
        """Report a packet without SYN whose PSN is far from those of the PDC, unless the PDC was closed."""
        if direction.pdc.close_psn is None and direction.lowest is not None:
            self._tell[PdsEvent.JUMPED](direction, seen)

    def _request(self, direction: PdcDirection, seen: ObservedPacket) -> None:
        head = seen.head
        pdc = direction.pdc
        after = direction.after
        if after is not None and after.opener is not None and head.psn == direction.next and not head.retx:
            self._tell[PdsEvent.STILL_OPEN](direction, after.opener)
            after.opener = None
        pdc.last_ns = seen.time_ns
        base = head.form.removesuffix(".syn")
        rod = base in _ROD
        if pdc.rod is None:
            pdc.rod = rod
        elif pdc.rod is not rod:
            self._tell[PdsEvent.MODE](direction, seen)
        if pdc.initiator is None:
            asks = 0 < head.next_hdr <= NextHdr.REQUEST_STD
            pdc.initiator = direction if asks else direction.other
        if seen.is_trimmed:
            self._advance(direction, head.psn)
            if head.psn in direction.records:
                direction.note_copy(head.psn, seen.time_ns)
            else:
                if len(direction.holes) < 2 * HOLES:
                    direction.holes[head.psn] = True
                if head.psn == direction.next:
                    direction.next = (head.psn + 1) & M32
            self._tell[PdsEvent.TRIMMED](direction, seen)
            return
        clear = None
        if head.clear_psn_offset < 0:
            clear = (head.psn + head.clear_psn_offset) & M32
        else:
            self._tell[PdsEvent.CLEAR_NOT_BELOW](direction, seen)
        first = self._psn(direction, seen, clear, seen.content)
        if self._windows is not None:
            self._windows.request(direction, seen)
        if seen.more and seen.more[0].form == "pds.req_cc_state":
            self._credits.request(direction, seen)
        if head.next_hdr > NextHdr.REQUEST_STD:
            self._ses.data(direction, seen, first)
        elif head.next_hdr:
            self._ses.request(direction, seen, first)
        is_settled = direction.clear is not None and pdc.close_psn is None and direction.peer
        if is_settled and head.form == base and not head.retx:
            direction.fast, direction.kind = head.dpdcid, type(head)

    def _advance(self, direction: PdcDirection, psn: int) -> None:
        """Extend the range of known PSNs of a direction up to `psn`."""
        if direction.lowest is None:
            direction.lowest = psn
            before = direction.before
            if before is not None and before.lowest is not None and -FAR < diff32(psn, before.next) < 0:
                self._table.note_again(direction.hosts)
            if direction.start is None or diff32(psn, direction.start) < 0:
                direction.next = psn
            else:
                direction.next = direction.start
        elif diff32(psn, direction.lowest) < 0:
            direction.lowest = psn
        if diff32(psn, direction.next) > 0:
            direction.skip(psn, self._complete)

    def _psn(self, direction: PdcDirection, seen: ObservedPacket, clear: int | None, content: int | None) -> bool:
        """Note the PSN of a packet, and return whether it was not seen before."""
        head = seen.head
        psn = head.psn
        self._advance(direction, psn)
        newest = psn == direction.next
        was = direction.records.get(psn)
        if was is None:
            if newest:
                direction.next = (psn + 1) & M32
            was_trimmed = direction.holes.pop(psn, False)
            first = newest or direction.floor is None or diff32(psn, direction.floor) >= 0
            if first:
                direction.records[psn] = PsnRecord(seen.number, seen.time_ns, content, clear, head)
                if len(direction.records) > self._table.most:
                    direction.shorten(self._table.most // 2)
                self._tell[PdsEvent.FIRST](direction, seen)
                if head.retx and self._table.certain and not was_trimmed:
                    self._tell[PdsEvent.RETX_FIRST](direction, seen)
                if direction.pdc.rod and not head.retx:
                    self._tell[PdsEvent.ROD_FIRST](direction, seen)
                    if not newest:
                        self._tell[PdsEvent.LATE](direction, seen)
        else:
            first = False
            direction.was = was
            direction.note_copy(psn, seen.time_ns)
            direction.tried = seen if self._complete else None
            self._tell[PdsEvent.AGAIN](direction, seen)
            if was.content is None:
                was.content = content
            elif content is not None and content != was.content:
                return False  # the packet is no copy, so its numbers cannot be compared with those of the first
        if clear is not None:
            self._check_clear(direction, seen, psn, clear, was)
        if not head.retx:
            self._check_syn(direction, seen, psn)
            if was is not None and was.head.retx:  # the first transmission comes late
                was.head, was.clear = head, clear
        return first

    # Checks of the numbers --------------------------------------------------------------------------------------------

    def _check_clear(
        self, direction: PdcDirection, seen: ObservedPacket, psn: int, clear: int, was: PsnRecord | None
    ) -> None:
        head = seen.head
        if -head.clear_psn_offset > direction.range:
            self._tell[PdsEvent.WINDOW](direction, seen)
        lower = was if was is not None and not was.head.retx else _neighbour(direction, psn, -1)
        higher = None if head.retx else _neighbour(direction, psn, 1)
        if lower is not None and lower.clear is not None and diff32(clear, lower.clear) < 0:
            direction.was = lower
            self._tell[PdsEvent.CLEAR_FELL](direction, seen)
        elif higher is not None and higher.clear is not None and diff32(higher.clear, clear) < 0:
            direction.was = higher
            self._tell[PdsEvent.CLEAR_FELL](direction, seen)
        elif not head.retx and (psn + 1) & M32 == direction.next:
            direction.clear = clear
        if not reaches(direction.cleared, clear):
            direction.cleared = clear
        if self._complete:
            self.check_acknowledged(direction, seen, clear)

    def _check_syn(self, direction: PdcDirection, seen: ObservedPacket, psn: int) -> None:
        if seen.head.form.endswith(".syn"):
            if direction.plain is not None and diff32(psn, direction.plain) > 0:
                direction.was = direction.records.get(direction.plain)
                self._tell[PdsEvent.LATE_SYN](direction, seen)
            elif direction.synned is None or diff32(psn, direction.synned) > 0:
                direction.synned = psn
        elif direction.synned is not None and diff32(psn, direction.synned) < 0:
            direction.was = direction.records.get(direction.synned)
            self._tell[PdsEvent.LATE_SYN](direction, seen)
        elif direction.plain is None or diff32(psn, direction.plain) < 0:
            direction.plain = psn

    def _closing(self, direction: PdcDirection, seen: ObservedPacket) -> None:
        pdc = direction.pdc
        psn = seen.head.psn
        if pdc.close_psn is not None:
            return
        pdc.close_psn, pdc.close_number = psn, seen.number
        direction.fast = direction.other.fast = NEVER
        if not reaches(direction.cleared, (psn - 1) & M32):
            direction.cleared = (psn - 1) & M32
        self._tell[PdsEvent.CLOSING](direction, seen)


def _names(head: Head, consumes: bool) -> bool:
    """Return whether a control packet names the PDCID of its receiver, and a PSN of its sender."""
    return consumes and "dpdcid" in head._fields


def _differ(was: PsnRecord, seen: ObservedPacket) -> bool:
    return was.content is not None and seen.content is not None and was.content != seen.content


def _neighbour(direction: PdcDirection, psn: int, step: int) -> PsnRecord | None:
    """Return the record of the nearest first transmission above (`step` 1) or below (`step` -1) `psn` that has a
    CLEAR_PSN, or None."""
    records, lowest = direction.records, direction.lowest
    most = (direction.next - 1 - psn if step > 0 else psn - (psn if lowest is None else lowest)) & M32
    for distance in range(1, min(most + 1, NEIGHBOURS)):
        record = records.get((psn + step * distance) & M32)
        if record is not None and not record.head.retx and record.clear is not None:
            return record
    return None
