# SPDX-License-Identifier: GPL-2.0-only
"""This module follows the answers of an end of a PDC to the requests of the other end: ACKs of all forms, and NACKs."""

from collections.abc import Mapping

from uetproto.audit.contract import MessageTracker
from uetproto.audit.judge import Tell
from uetproto.audit.pds.tracker_credits import Credits
from uetproto.audit.pds.tracker_ends import PdcTable
from uetproto.audit.pds.tracker_state import FAR, HOLES, M32, PdcDirection, PdsEvent, UnknownPdc, reaches
from uetproto.audit.pds.tracker_window import Windows
from uetproto.audit.reader.observed import ObservedPacket
from uetproto.wire.headers.uet_pds import AckReq, NackCode
from uetproto.wire.serial import diff32

_M24, _HALF24 = 0xFFFFFF, 1 << 23


class PdcReplies:
    """This class follows NACKs, and the ACKs that take the slow path."""

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

    def ack(self, seen: ObservedPacket) -> None:
        """Follow an ACK that names the PSN of a request."""
        if seen.is_trimmed:
            return
        head = seen.head
        direction = self._of(seen)
        if direction is None:
            return
        psn = (head.cack_psn + head.ack_psn_offset) & M32
        self._tell[PdsEvent.ACK](direction, seen)
        if self._windows is not None:
            self._windows.ack(direction, seen)
        self._check_reach(direction, seen, psn)
        self._check_request(direction, seen, psn)
        self.cumulative(direction, seen)
        if head.req:
            self.ask(direction, seen, psn)
        self._check_close(direction, seen, psn)
        if head.form == "pds.ack.epsn" and -FAR < diff32(head.expected_psn, head.cack_psn) < 0:
            self._table.note_again(direction.hosts)
        if head.next_hdr:
            self._ses.response(direction, seen, psn)

    def probe(self, seen: ObservedPacket) -> None:
        """Follow an ACK that answers a probe. Such an ACK names no PSN."""
        direction = self._of(seen)
        if direction is not None and not seen.is_trimmed:
            self._tell[PdsEvent.ACK](direction, seen)
            if self._windows is not None:
                self._windows.ack(direction, seen)
            self._check_reach(direction, seen, None)
            self.cumulative(direction, seen)

    def nack(self, seen: ObservedPacket) -> None:
        head = seen.head
        direction = self._table.refused(seen, head.dpdcid)
        if direction is None:
            if self._table.is_unknown((seen.dst, head.dpdcid, seen.src)):
                self._tell[PdsEvent.STRANGER](UnknownPdc(seen), seen)
            return
        before = direction.before
        if before is not None and not direction.is_near(head.nack_psn) and before.is_near(head.nack_psn):
            direction = before
        direction.pdc.last_ns = seen.time_ns
        if len(direction.nacked) < HOLES:
            direction.nacked[head.nack_psn] = seen.time_ns
        if head.nack_psn in direction.asked:
            direction.asked[head.nack_psn] = 0
        if head.nack_code == NackCode.NEW_START_PSN:
            direction.demanded = head.nack_payload
            if abs(diff32(head.nack_payload, head.nack_psn)) < FAR:
                self._table.note_again(direction.hosts)  # the PDC may have sent SYN packets that were not seen
        if self._windows is not None:
            self._windows.nack(direction, seen)
        self._tell[PdsEvent.NACK](direction, seen)

    # Finding the requests ---------------------------------------------------------------------------------------------

    def _of(self, seen: ObservedPacket) -> PdcDirection | None:
        head = seen.head
        if not head.dpdcid:
            if self._table.is_unknown((seen.dst, 0, seen.src)):
                self._tell[PdsEvent.STRANGER](UnknownPdc(seen), seen)
            return None
        misnamed = self._table.answered(seen)
        if misnamed is not None:
            if head.dpdcid in misnamed.others:
                self._table.learn(misnamed, head.dpdcid)
                return misnamed
            misnamed.was = misnamed.records[(head.cack_psn + head.ack_psn_offset) & M32]
            self._tell[PdsEvent.DPDCID](misnamed, seen)
            return misnamed
        known = self._table.by_key.get((seen.dst, head.dpdcid, seen.src))
        if self._table.is_unknown((seen.dst, head.dpdcid, seen.src), (seen.src, head.spdcid, seen.dst)):
            self._tell[PdsEvent.STRANGER](UnknownPdc(seen), seen)
            return None
        if known is not None and self._table.is_unsent(known, head.spdcid, head.cack_psn):
            self._tell[PdsEvent.ACK_UNSENT](known, seen)
            return None
        direction = self._table.of_receiver(seen, head.spdcid, head.dpdcid, head.cack_psn)
        if direction is None:
            return None
        if known is not direction and direction.lowest is None and direction.cack is None:
            self._tell[PdsEvent.OPEN](direction, seen)
        if direction.peer != head.spdcid:
            return self._of_another_target(direction, seen)
        direction.pdc.last_ns = seen.time_ns
        return direction

    def _of_another_target(self, direction: PdcDirection, seen: ObservedPacket) -> PdcDirection | None:
        """Return the direction of an ACK whose sender has another PDCID than known; None if the ACK contradicts a
        request."""
        head = seen.head
        if not head.spdcid:
            self._tell[PdsEvent.SPDCID_ZERO](UnknownPdc(seen), seen)
            return direction
        if direction.peer == 0:
            return direction
        psn = (head.cack_psn + (head.ack_psn_offset if "ack_psn_offset" in head._fields else 0)) & M32
        record = direction.records.get(psn)
        if record is not None and (direction.pdc.close_psn is None or self._table.certain):
            if head.spdcid in direction.other.others:
                self._table.learn(direction.other, head.spdcid)
                return direction
            direction.was = record
            self._tell[PdsEvent.TWO_TARGETS](direction, seen)
            direction.other.others += (head.spdcid, direction.peer)
            return None
        return self._table.renew(seen, direction.other, head.dpdcid).other

    # Checks of the numbers --------------------------------------------------------------------------------------------

    def _check_reach(self, direction: PdcDirection, seen: ObservedPacket, psn: int | None) -> None:
        """Report ACKs and bitmaps that cover PSNs that were not sent."""
        head = seen.head
        cack = head.cack_psn
        start = direction.start
        if start is not None and (diff32(cack, start) < -1 or (psn is not None and diff32(psn, start) < 0)):
            self._tell[PdsEvent.ACK_EARLY](direction, seen)
            return
        beyond = diff32(cack, direction.next) >= 0 or (psn is not None and direction.unseen(psn))
        if beyond and direction.lowest is not None:
            self._tell[PdsEvent.ACK_UNSENT](direction, seen)
        if "sack_bitmap" in head._fields:
            self._check_sack(direction, seen)

    def _check_request(self, direction: PdcDirection, seen: ObservedPacket, psn: int) -> None:
        record = direction.records.get(psn)
        if record is None:
            return
        head = seen.head
        direction.was = record
        if not record.head.retx and record.clear is not None and diff32(head.cack_psn, record.clear) < 0:
            self._tell[PdsEvent.CACK_BEHIND_CLEAR](direction, seen)
        if record.head.retx != head.retx and psn not in direction.copies and psn not in direction.asked:
            self._tell[PdsEvent.ACK_RETX](direction, seen)
        if not record.acked:
            record.acked = True
            self._tell[PdsEvent.ACKED](direction, seen)

    def ask(self, direction: PdcDirection, seen: ObservedPacket, psn: int) -> None:
        """Note that an ACK of `psn` asks the source to clear that PSN (CLEAR) or to close the PDC (CLOSE)."""
        if seen.head.req == AckReq.CLEAR and len(direction.held) < HOLES and not reaches(direction.cleared, psn):
            direction.held.setdefault(psn, seen.number)
        self._tell[PdsEvent.ASKS](direction, seen)

    def cumulative(self, direction: PdcDirection, seen: ObservedPacket) -> None:
        """Note the CACK_PSN of an ACK, and report it if it decreased or covers a PSN that it must not cover."""
        cack = seen.head.cack_psn
        newer = 1 if direction.cack is None else diff32(cack, direction.cack)
        if newer < 0:
            self._tell[PdsEvent.CACK_FELL](direction, seen)
        elif newer > 0:
            direction.cack = cack
            uncleared = direction.uncleared(cack) if direction.held else None
            if uncleared is not None:
                direction.subject, direction.number_of = uncleared, direction.held.pop(uncleared)
                self._tell[PdsEvent.CACK_UNCLEARED](direction, seen)
            if self._complete and direction.holes:
                self._check_holes(direction, seen, cack)

    def _check_holes(self, direction: PdcDirection, seen: ObservedPacket, cack: int) -> None:
        for psn, trimmed in direction.holes.items():
            if not trimmed and diff32(psn, cack) <= 0:
                direction.subject = psn
                self._tell[PdsEvent.CACK_HOLE](direction, seen)
                del direction.holes[psn]
                return

    def _check_sack(self, direction: PdcDirection, seen: ObservedPacket) -> None:
        head = seen.head
        base = (head.cack_psn + head.sack_psn_offset) & M32
        bitmap = head.sack_bitmap
        self._tell[PdsEvent.SACK](direction, seen)
        self.congestion(direction, seen)
        if bitmap and direction.lowest is not None:
            newest = (base + bitmap.bit_length() - 1) & M32
            unseen = newest if diff32(newest, direction.next) >= 0 else None
            if unseen is None:
                direction.note_sacked(newest)
            if unseen is None and self._complete and direction.holes:
                named = ((base + bit) & M32 for bit in range(64) if bitmap >> bit & 1)
                unseen = next((psn for psn in named if direction.unseen(psn)), None)
            if unseen is not None:
                direction.subject = unseen
                self._tell[PdsEvent.SACK_UNSENT](direction, seen)
        if bitmap and head.sack_psn_offset <= 0:
            covered = (1 << min(64, 1 - head.sack_psn_offset)) - 1
            denied = covered & ~bitmap
            if denied:
                direction.subject = (base + (denied & -denied).bit_length() - 1) & M32
                self._tell[PdsEvent.SACK_ZERO](direction, seen)
        mpr = head.mpr * 128
        if mpr > direction.range:
            direction.range = mpr
        elif not mpr:
            self._tell[PdsEvent.MPR_ZERO](direction, seen)

    def congestion(self, direction: PdcDirection, seen: ObservedPacket) -> None:
        """Note the grant of an ACK, or its rcvd_bytes, which are reported if they fell. Without congestion control they
        are 0."""
        state = next((one for one in seen.more if one.form.startswith("pds.cc_state.")), None)
        if state is not None and state.form == "pds.cc_state.credit" and direction.credit is not None:
            self._credits.grant(direction.credit, state.credit, seen)
        if state is None or state.form != "pds.cc_state.nscc" or not state.rcvd_bytes:
            return
        self._tell[PdsEvent.RCVD](direction, seen)
        if direction.rcvd is None or (state.rcvd_bytes - direction.rcvd) & _M24 < _HALF24:
            direction.rcvd = state.rcvd_bytes
        else:
            direction.subject = direction.rcvd
            self._tell[PdsEvent.RCVD_FELL](direction, seen)

    def _check_close(self, direction: PdcDirection, seen: ObservedPacket, psn: int) -> None:
        pdc = direction.pdc
        if pdc.close_psn is None or direction.is_return:
            return
        if psn == pdc.close_psn:
            pdc.closed = True
            self._tell[PdsEvent.CLOSED](direction, seen)
        elif diff32(seen.head.cack_psn, pdc.close_psn) >= 0:
            pdc.closed = True
