# SPDX-License-Identifier: GPL-2.0-only
"""This module follows PDCs: requests and control packets of both directions, their ACKs and NACKs, and contradictions
between them.

Most packets are as expected and take the fast path through `see`. All others take the slow path: `tracker_sent.py`
follows the packets that an end sends, and `tracker_replies.py` follows the answers of the other end.
"""

from collections.abc import Callable
from operator import attrgetter

from uetproto.audit.contract import MessageTracker
from uetproto.audit.judge import Judge
from uetproto.audit.pds.tracker_credits import Credits
from uetproto.audit.pds.tracker_ends import PdcTable
from uetproto.audit.pds.tracker_replies import PdcReplies
from uetproto.audit.pds.tracker_sent import SentPackets
from uetproto.audit.pds.tracker_state import M32, TRIES, PdcConversation, PdcDirection, PdsEvent, PsnRecord
from uetproto.audit.pds.tracker_window import StatedWindows, Windows, window_parameters
from uetproto.audit.reader.observed import ObservedPacket, head_class
from uetproto.audit.reader.options import Options
from uetproto.wire.headers.uet_pds import ACKS, CP, CP_SYN, NACKS, REQUESTS, NextHdr

_HALF = 0x80000000
_LAST_REQUEST = NextHdr.REQUEST_STD
_MOST_OPEN = 0xFFFF


class PdsTracker:
    """This class follows the PDCs of one vantage point."""

    __slots__ = (
        "_ack", "_acked", "_by_key", "_complete", "_credits", "_first", "_is_certain", "_most", "_replies",
        "_rod_first", "_sack", "_sent", "_ses", "_windows", "table",
    )  # fmt: skip

    def __init__(self, judge: Judge, options: Options, ses: MessageTracker) -> None:
        tell = judge.rules.tell(PdsEvent)
        self._ses = ses
        self.table = PdcTable(options.max_flows, self, certain=options.ordered and options.complete)
        self._complete = options.complete
        self._rod_first = tell[PdsEvent.ROD_FIRST]
        self._first, self._ack, self._acked = tell[PdsEvent.FIRST], tell[PdsEvent.ACK], tell[PdsEvent.ACKED]
        self._sack = tell[PdsEvent.SACK]
        self._credits = Credits(tell, options.ordered and options.complete)
        stated = StatedWindows.of(options)
        self._windows = Windows(tell, window_parameters(options), stated) if options.complete else None
        parts = self._credits, self._windows, options.complete
        self._sent = SentPackets(self.table, tell, ses, *parts)
        self._replies = PdcReplies(self.table, tell, ses, *parts)
        self._by_key = self.table.by_key
        self._most = self.table.most
        judge.rules.doubtful.add(PdsEvent)
        judge.subject_of = self.subject_of
        self._is_certain = options.ordered and options.complete

    def see(self, seen: ObservedPacket) -> None:
        """Follow a packet of a PDC. The class of its first header selects the method that does so."""
        self.handler(type(seen.head))(seen)

    def handler(self, head: type) -> Callable[[ObservedPacket], None]:
        """Return the function that follows packets whose first header has the class `head`, one of `HEADS`."""
        handler: Callable[[ObservedPacket], None] = HEADS[head](self)
        return handler

    @property
    def is_idle(self) -> bool:
        """Return whether a new tracker would do the same as this one: no PDC is known, and none was dropped."""
        table = self.table
        return not (table.certain or table.by_key or table.again or table.flows.silent or table.flows.evicted)

    def subject_of(self, seen: ObservedPacket) -> PdcConversation | None:
        """Return the PDC of a packet, or None if the PDC is not known. If the capture is promised to be ordered and
        complete, every PDC is certain, and the result is always None."""
        if self._is_certain:
            return None
        head = seen.head
        for here, pdcid, there in ((seen.src, "spdcid", seen.dst), (seen.dst, "dpdcid", seen.src)):
            direction = self._by_key.get((here, getattr(head, pdcid, 0), there))
            if direction is not None:
                return PdcConversation(direction.hosts, self.table.pairs())
        return None

    def sweep(self, now: int, quiet: bool = False) -> None:
        self.table.sweep(now, quiet)
        self._by_key = self.table.by_key
        self._most = self.table.most

    def opened(self, direction: PdcDirection) -> None:
        """Begin to follow the messages of a direction."""
        direction.ses = self._ses.open(direction)

    def closed(self, direction: PdcDirection) -> None:
        """Stop following the messages of a direction."""
        if direction.window is not None and self._windows is not None:
            self._windows.closed(direction)
        if direction.ses is not None:
            self._check_silent(direction)
            self._ses.close(direction)
            direction.ses = None

    def end(self) -> None:
        """Report what stayed without an answer, at the end of the capture."""
        for direction in list(self.table.by_key.values()):
            for end in (direction, direction.other, direction.before):
                if end is not None:
                    self._check_silent(end)

    def close(self) -> None:
        """Drop all PDCs after the last packet."""
        drop = self._ses.drop
        for direction in self.table.by_key.values():
            for end in (direction, direction.other, direction.before):
                if end is not None and end.ses is not None:
                    drop(end)
                    end.ses = None
        self.table.close()

    def _check_silent(self, direction: PdcDirection) -> None:
        """Report a PSN for which no ACK came, though its source tried several times."""
        seen, direction.tried = direction.tried, None
        psn = None if seen is None else direction.unanswered(TRIES)
        if seen is not None and psn is not None:
            direction.subject, direction.was = psn, direction.records[psn]
            self._sent.tell_silent(direction, seen)

    # The fast paths ---------------------------------------------------------------------------------------------------

    def _request(self, seen: ObservedPacket) -> None:
        """Follow a request with the next PSN and nothing new about it; all others take the slow path."""
        head = seen.head
        direction = self._by_key.get((seen.src, head.spdcid, seen.dst))
        if (
            direction is None
            or head.dpdcid != direction.fast
            or head.psn != direction.next
            or head.retx
            or type(head) is not direction.kind
            or seen.packet is not None
        ):
            self._sent.request(seen)
            return
        psn, offset = head.psn, head.clear_psn_offset
        clear = (psn + offset) & M32
        if offset >= 0 or (clear - direction.clear) & M32 >= _HALF or -offset > direction.range:
            self._sent.request(seen)
            return
        direction.clear = clear
        direction.next = (psn + 1) & M32
        records = direction.records
        records[psn] = PsnRecord(seen.number, seen.time_ns, seen.content, clear, head)
        if len(records) > self._most:
            direction.shorten(self._most // 2)
        direction.pdc.last_ns = seen.time_ns
        if self._complete:
            self._sent.check_acknowledged(direction, seen, clear)
        if self._windows is not None:
            self._windows.request(direction, seen)
        self._first(direction, seen)
        if direction.pdc.rod:
            self._rod_first(direction, seen)
        if direction.credit is not None and seen.more and seen.more[0].form == _STATE:
            self._credits.request(direction, seen)
        next_hdr = head.next_hdr
        if 0 < next_hdr <= _LAST_REQUEST:
            self._ses.request(direction, seen, True)
        elif next_hdr:
            self._ses.data(direction, seen, True)

    def _acknowledge(self, seen: ObservedPacket) -> None:
        """Follow an ACK of a request that was seen, with no contradiction; all others take the slow path."""
        head = seen.head
        direction = self._by_key.get((seen.dst, head.dpdcid, seen.src))
        if direction is None or head.spdcid != direction.other.id or seen.packet is not None or direction.cack is None:
            self._replies.ack(seen)
            return
        cack = head.cack_psn
        newer = (cack - direction.cack) & M32
        record = direction.records.get((cack + head.ack_psn_offset) & M32)
        if (
            record is None
            or newer >= _HALF
            or (direction.next - 1 - cack) & M32 > _MOST_OPEN
            or record.clear is None
            or (cack - record.clear) & M32 >= _HALF
            or record.head.retx != head.retx
            or (len(head) > _PLAIN and not self._has_expected_sack(direction, seen))
        ):
            self._replies.ack(seen)
            return
        direction.pdc.last_ns = seen.time_ns
        self._ack(direction, seen)
        if direction.window is not None and self._windows is not None:
            self._windows.ack(direction, seen)
        if not record.acked:
            record.acked = True
            direction.was = record
            self._acked(direction, seen)
        if newer and (direction.held or self._complete):
            self._replies.cumulative(direction, seen)
        else:
            direction.cack = cack
        if head.req:
            self._replies.ask(direction, seen, record.head.psn)
        if head.next_hdr:
            self._ses.response(direction, seen, record.head.psn)

    def _has_expected_sack(self, direction: PdcDirection, seen: ObservedPacket) -> bool:
        """Return whether bitmap and window of an ACK need no check on the slow path; if so, report the bitmap.

        They need none if three things hold: the bitmap names no PSN that was not seen; it reports no PSN as missing
        that CACK_PSN covers; and the window is not wider than the receiver is known to offer.
        """
        head = seen.head
        if head.form not in _SACKS or not 0 < head.mpr <= direction.range >> 7:
            return False
        bitmap, offset = head.sack_bitmap, head.sack_psn_offset
        if bitmap:
            newest = head.cack_psn + offset + bitmap.bit_length() - 1
            if (direction.next - 1 - newest) & M32 > _MOST_OPEN or (self._complete and direction.holes):
                return False
            if offset < 0 or (offset == 0 and not bitmap & 1):
                return False
            direction.note_sacked(newest & M32)
        self._sack(direction, seen)
        if seen.more:
            self._replies.congestion(direction, seen)
        return True


HEADS = {
    head_class(header.name): attrgetter(handler)
    for headers, handler in (
        ([header for header in REQUESTS if not header.name.endswith(".syn")], "_request"),
        ([header for header in REQUESTS if header.name.endswith(".syn")], "_sent.syn"),
        ([header for header in ACKS if not header.name.endswith(".probe")], "_acknowledge"),
        ([header for header in ACKS if header.name.endswith(".probe")], "_replies.probe"),
        ([header for header in NACKS if not header.name.endswith(".rudi")], "_replies.nack"),
        ([CP, CP_SYN], "_sent.control"),
    )
    for header in headers
}
"""Maps the class of a first header to a getter. Called with a tracker, the getter returns the method that follows
packets with this header."""
_PLAIN = len(head_class("pds.ack")._fields)
_STATE = "pds.req_cc_state"
_SACKS = frozenset({"pds.ack_cc", "pds.ack_ccx"})
