# SPDX-License-Identifier: GPL-2.0-only
"""The source half of one direction of a PDC records which packets are in flight, and when they are retransmitted.

UE 1.0.1 §3.5.12.5 to §3.5.12.7, §3.5.20.3; pds.md §5 (tx), §7 (source rules), §11 (loss). This module keeps records and
timers; `source` makes the packets.
"""

from bisect import insort
from collections import deque
from dataclasses import dataclass, field
from functools import cache
from operator import itemgetter
from typing import cast

from uetproto.engine.config import PdsConfig
from uetproto.engine.contract import NEVER, SECOND, Buffer
from uetproto.engine.pds.psn_window import MPR_UNIT, SACK_BITS
from uetproto.engine.pds.service import Outgoing, RunMessage
from uetproto.engine.train_splits import Split
from uetproto.wire.headers.uet_pds import NextHdr
from uetproto.wire.serial import diff32
from uetproto.wire.tuples import PdsRudReqHeader

_M32 = 0xFFFFFFFF
RTO_CAP = 8 * SECOND
"""Largest RTO (pds.md §11.1)."""
RTO, INFERRED = "RTO", "inferred loss"
"""Causes of a retransmission, beside the names of the codes of NACKs."""
RTO_INFINITE = 15
"""Value of Max_RTO_Retx_Cnt that sets no limit."""
NACK_INFINITE = 31
"""Value of Max_NACK_Retx_Cnt that sets no limit."""
MAX_CLEAR_OFFSET = 0x8000
"""Largest distance of a CLEAR_PSN below the PSN of the packet that carries the CLEAR_PSN (pds.md §2.1)."""
_AT = itemgetter(0)
PSN_LIMIT = 1 << 31
"""Number of PSNs that a PDC uses at most (pds.md §2.2)."""
NEAR_PSN_LIMIT = PSN_LIMIT - (1 << 23)
"""Number of PSNs after which a PDC begins to close, so that open messages can finish (pds.md §2.2)."""
MAX_SYN_OFFSET = 4095
"""Number of PSNs after Start_PSN that may be used before the PDCID of the target is known (pds.md §6.2)."""


@dataclass(slots=True, eq=False)
class SendRecord:
    """This is the record of a packet that consumed a PSN and is not acknowledged. With `ctl_type` the packet is a
    control packet, else a request.
    """

    psn: int
    message: Outgoing | None
    index: int
    """Index of the packet in its message, or ctl_payload of a control packet."""
    next_hdr: int
    header: bytes
    payload: Buffer
    ar: bool
    clear_psn: int
    ctl_type: int | None = None
    dst_rcvd: bool = False
    """Whether the peer has reported the packet as received, while its response is still missing."""
    asked: bool = False
    """Whether an ACK_REQ for the packet was sent, and neither an answer nor anything else about the packet has come."""
    rto_cnt: int = 0
    """Number of times that the RTO of the packet has expired. The number selects the back-off level."""
    nack_cnt: int = 0
    rto_at: int = field(init=False)
    """Time at which the RTO expires; `SendWindow.arm` sets it."""
    retx_at: int = field(init=False)
    """Time of the retransmission after a NACK, or NEVER if no such retransmission is scheduled."""
    entropy: int = field(init=False)
    """Entropy value of the last transmission; it is set with congestion control."""
    cause: str = field(init=False)
    """Cause of the next retransmission, which is `RTO`, `INFERRED` or the name of a NACK code."""


class SendRun:
    """A send run stands for the records of the packets of a train, of which nothing but ACKs in order has been heard.

    `SendWindow.records` replaces it by the records themselves as soon as anybody asks for one of them.
    """

    __slots__ = (
        "clear_psn", "count", "done", "first", "headers", "index", "message", "next_hdr", "payloads", "record",
        "rto_at",
    )  # fmt: skip

    def __init__(
        self, first: int, message: RunMessage, index: int, headers: list[bytes], payloads: list[Buffer], clear_psn: int
    ) -> None:  # fmt: skip
        """Make the run of the packets from PSN `first` on. Each of `headers` ends with the SES header of a packet."""
        self.first = first
        self.message = message
        self.index = index
        self.next_hdr: int = message.next_hdr
        self.headers = headers
        self.payloads = payloads
        self.clear_psn = clear_psn
        self.record: SendRecord | None = None
        """Record of the packet, if it is the only one and was not sent as a train."""
        self.count = len(payloads)
        self.done = 0
        """Number of packets that are acknowledged."""
        self.rto_at = NEVER

    def unfold(self, front: int) -> list[SendRecord]:
        """Return the records of the packets that are not acknowledged. `front` is the size of the PDS header."""
        if self.record is not None:
            return [self.record]
        records = []
        for i in range(self.done, self.count):
            record = SendRecord(
                (self.first + i) & _M32, self.message, self.index + i, self.next_hdr, self.headers[i][front:],
                self.payloads[i], False, self.clear_psn,
            )  # fmt: skip
            record.rto_at, record.retx_at = self.rto_at, NEVER
            records.append(record)
        return records


@cache
def rto_waits(init: int) -> tuple[int, ...]:
    """Return the RTO of each back-off level, in picoseconds. The RTO starts with `init`, and doubles at each level up
    to `RTO_CAP` (pds.md §11.1)."""
    top = next(level for level in range(64) if init << level >= RTO_CAP or not init)
    return tuple(min(init << level, RTO_CAP) for level in range(top + 1))


class SendWindow:
    """The send window of a source holds its PSNs, the records of its un-ACKed packets, and their timers (pds.md §5).

    Its PSNs are `start` (Start_PSN), `next` (PSN of the next packet), `una` (lowest un-ACKed PSN) and `peer_cack` (CACK
    of the peer). Each back-off level has a queue of timers. All records of a level wait equally long, unless `rto`
    changes, so that a new deadline nearly always is the last one of the queue. A record may get another deadline while
    its entry is in a queue; the entry then has no effect. With go-back-N only the lowest un-ACKed PSN has a timer,
    because its expiry retransmits all later packets as well (pds.md §11.3).
    """

    __slots__ = (
        "_beyond", "_levels", "_nacked", "_records", "_told", "_told_base", "_waits", "config", "landed", "mp_range",
        "next", "offered", "peer_cack", "recovery_end", "rod", "rto", "runs", "sacked", "start", "una", "went_back_to",
        "window_at_cack",
    )  # fmt: skip

    def __init__(self, start: int, rod: bool, config: PdsConfig) -> None:
        """Make an empty window. If `rod` is True, the source goes back N after a loss."""
        self.config = config
        self.rod = rod
        self.start = self.next = self.una = start
        self.peer_cack = (start - 1) & _M32
        self.went_back_to = (start - 1) & _M32
        """First PSN of the last go-back-N retransmission on ROD."""
        self.mp_range = self.offered = config.default_mpr * MPR_UNIT
        """Number of PSNs that may be in flight now; it is less than `offered`, what the peer or the configuration
        says, after a NACK PSN_OOR_WINDOW."""
        self._beyond: list[SendRecord] = []
        """Records that the peer refused with PSN_OOR_WINDOW, until the window permits them."""
        self._records: dict[int, SendRecord] = {}
        self.runs: deque[SendRun] = deque()
        """Trains in flight, behind all packets that have a record of their own."""
        self.sacked = 0
        """Number of records with `dst_rcvd`."""
        self._told = self._told_base = 0
        """SACK bits of the last ACK, and their base: nothing has happened to these packets since they were marked."""
        self.recovery_end: int | None = None
        """PSN that CACK must reach to end the recovery from an inferred loss, or None if there is no recovery (pds.md
        §11.4)."""
        self.rto: int | None = None
        """RTO of the first level that congestion control has found, in place of RTO_Init_Time. None: there is none."""
        self.landed: list[SendRecord] | None = None
        """Records that ACKs have answered or marked as received since the last look. None: nobody looks."""
        self._levels: list[deque[tuple[int, SendRecord]]] = []
        self._waits = rto_waits(config.rto_init_time)
        self._nacked: deque[tuple[int, SendRecord]] | None = None
        self.window_at_cack = "cack" in (config.window_base, config.clear_source)

    @property
    def records(self) -> dict[int, SendRecord]:
        """Return the records of the packets in flight, by PSN."""
        if self.runs:
            self._unfold()
        return self._records

    @property
    def flying(self) -> bool:
        """Return whether any packet is in flight."""
        return bool(self._records or self.runs)

    def _unfold(self) -> None:
        """Give each packet of a train its own record and its own timer."""
        runs, self.runs = self.runs, deque()
        records = [record for run in runs for record in run.unfold(PdsRudReqHeader.size)]
        self._records.update((record.psn, record) for record in records)
        if not self.rod:
            if not self._levels:
                self._levels.append(deque())
            level, armed = self._levels[0], [(record.rto_at, record) for record in records]
            if level and level[-1][0] > armed[0][0]:  # a packet was sent again after the train
                self._levels[0] = deque(sorted([*level, *armed], key=_AT))
            else:
                level += armed

    @property
    def clear_psn(self) -> int:
        """Return CLEAR_PSN, the highest PSN up to which all packets are acknowledged and answered (pds.md §2.4)."""
        return (self.una - 1) & _M32

    @property
    def last(self) -> int:
        return (self.next - 1) & _M32

    def in_window(self, psn: int) -> bool:
        """Return True when the window permits sending `psn` (pds.md §7.1).

        The window ends at CLEAR_PSN + MP_RANGE, or at CACK + MP_RANGE if `window_at_cack` is set.
        """
        base = self._base
        return (psn - base) & _M32 < self.mp_range or diff32(psn, base) < 0

    def offer(self, mpr: int) -> None:
        """Set the window that the peer offers, in units of 128 PSNs."""
        self.mp_range = self.offered = mpr * MPR_UNIT

    def shrink(self, record: SendRecord) -> bool:
        """Keep fewer packets in flight, as the peer has refused `record` with PSN_OOR_WINDOW. The record waits until
        `back_inside` returns it. Return False if it is the lowest one, as no smaller window would help.
        """
        distance = diff32(record.psn, self._base)
        if distance <= 0:
            return False
        self.mp_range = min(self.mp_range, distance)
        if record not in self._beyond:
            self._beyond.append(record)
        return True

    def back_inside(self) -> list[SendRecord]:
        """Return, in PSN order, the un-ACKed records that waited for the window, and that the window permits now."""
        if not self._beyond:
            return []
        waiting = [record for record in self._beyond if self.records.get(record.psn) is record]
        self._beyond = [record for record in waiting if not self.in_window(record.psn)]
        found = [record for record in waiting if self.in_window(record.psn)]
        return sorted(found, key=lambda record: diff32(record.psn, self.una))

    @property
    def _base(self) -> int:
        """Return the lowest PSN of the window."""
        return (self.peer_cack + 1) & _M32 if self.window_at_cack else self.una

    def room(self) -> int:
        """Return how many new packets the window permits now."""
        base = (self.peer_cack + 1) & _M32 if self.window_at_cack else self.una
        room = self.mp_range - ((self.next - base) & _M32)
        return room if room > 0 else 0

    # In flight

    def track(self, record: SendRecord, now: int) -> None:
        """Record the first transmission of a packet, advance `next` past its PSN, and arm its RTO."""
        if self.runs and record.message is None:
            self._unfold()
        if self.runs:
            run = SendRun(
                record.psn,
                cast(RunMessage, record.message),
                record.index,
                [record.header],
                [record.payload],
                record.clear_psn,
            )
            run.record = record
            self.track_run(run, now)
            record.rto_at, record.retx_at = run.rto_at, NEVER
            return
        self._records[record.psn] = record
        self.next = (record.psn + 1) & _M32
        self.arm(record, now)

    def track_run(self, run: SendRun, now: int) -> None:
        """Record the first transmission of the packets of a train, as `track` does."""
        self.runs.append(run)
        self.next = (run.first + run.count) & _M32
        run.rto_at = now + self._waits[0]

    def quiet_behind(self, psn: int, wake_at: int) -> int | Split:
        """Return how many packets more than one up to `psn` an ACK may acknowledge and do nothing else, or why one up
        to `psn` is not the same as a later one.

        It is the same if all packets in flight up to the one after `psn` are of one message, nothing but their
        transmission has happened to any packet, and the RTO of the one after `psn` ends at `wake_at` or later.
        """
        if self._disturbed:
            return Split.RETRANSMISSION
        first, after = self._in_flight(self.una), self._in_flight((psn + 1) & _M32)
        if first is None or after is None or after.rto_at < wake_at:
            return Split.ACK_SAYS_MORE
        if first.message is None or first.message is not after.message:
            return Split.ACK_SAYS_MORE
        if self.runs and self.runs[-1].message is first.message:  # and all between, which have later RTOs
            return (self.next - 2 - psn) & _M32
        return 0

    def _in_flight(self, psn: int) -> SendRecord | SendRun | None:
        """Return the record or the run of a packet in flight, or None if it is not in flight."""
        record = self._records.get(psn)
        if record is None:
            for run in self.runs:
                if (psn - run.first) & _M32 < run.count:
                    return run
        return record

    @property
    def _disturbed(self) -> bool:
        """Return whether anything but transmissions and ACKs in order has happened to a packet in flight."""
        return bool(self.sacked or self._beyond or self._nacked) or self.recovery_end is not None

    def take_in_order(self, cack: int, next_hdr: int, response: Buffer) -> list[tuple[RunMessage, int]] | None:
        """Remove the packets up to CACK, as `take_cack` does, and return each message with the number of its packets.
        Return None, and change nothing, if anything but their transmission has happened to one of the packets, or if
        a message must look at its response, which is `response` for the last packet."""
        records, runs = self._records, self.runs
        covered = left = (cack - self.una + 1) & _M32
        if self._disturbed:
            return None
        answered: list[tuple[RunMessage, int]] = []
        psn = self.una
        for record in records.values():
            if not left:
                break
            if record.psn != psn or record.message is None or record.rto_cnt:
                return None
            answered.append((cast(RunMessage, record.message), 1))
            psn = (psn + 1) & _M32
            left -= 1
        lone = covered - left
        for run in runs:
            if not left:
                break
            taken = run.count - run.done
            if taken > left:
                taken = left
            left -= taken
            if answered and answered[-1][0] is run.message:
                taken += answered.pop()[1]
            answered.append((run.message, taken))
        if left or not answered or not answered[-1][0].is_plain(next_hdr, response):
            return None
        for message, _ in answered:
            if not message.is_plain(NextHdr.NONE, b""):
                return None
        for psn in range(self.una, self.una + lone):
            record = records.pop(psn & _M32)
            record.rto_at = record.retx_at = NEVER
        left = covered - lone
        while left:
            run = runs[0]
            taken = run.count - run.done
            if taken > left:
                run.done += left
                break
            left -= taken
            runs.popleft()
        self.peer_cack, self.una = cack, (cack + 1) & _M32
        return answered

    def arm(self, record: SendRecord, now: int) -> None:
        """Arm the RTO of a packet that is (re)transmitted now (pds.md §11.1)."""
        waits, level = self._waits, record.rto_cnt
        if level and level >= len(waits):
            level = len(waits) - 1
        record.rto_at = at = now + (waits[level] if self.rto is None else min(self.rto << level, RTO_CAP))
        record.retx_at = NEVER
        if not self.rod:
            levels = self._levels
            while level >= len(levels):
                levels.append(deque())
            queue = levels[level]
            if queue and at < queue[-1][0]:  # `rto` has fallen
                insort(queue, (at, record), key=_AT)
            else:
                queue.append((at, record))

    def delay(self, record: SendRecord, now: int) -> None:
        """Schedule the retransmission of a packet after a NACK. Until then the packet has no RTO (pds.md §11.2)."""
        self._told = 0
        record.rto_at = NEVER
        record.retx_at = now + self.config.nack_retx_time
        if self.config.nack_backoff == "double":
            record.retx_at = now + min(self.config.nack_retx_time << max(0, record.nack_cnt - 1), RTO_CAP)
        if self._nacked is None:
            self._nacked = deque()
        insort(self._nacked, (record.retx_at, record), key=_AT)

    def drop_all(self) -> list[SendRecord]:
        """Remove all records and their timers, and return the records in PSN order."""
        records = list(self.records.values())
        self._records = {}
        self.sacked = 0
        self._levels = []
        self._nacked = None
        self._beyond = []
        return records

    def renumber(self, delta: int, now: int) -> list[SendRecord]:
        """Add `delta` to all PSNs for secure start, and return all records (pds.md §6.6).

        The records then count as first transmissions.
        """
        records = list(self.records.values())
        self._levels = []
        self._nacked = None
        self._beyond = []
        self.sacked = self._told = 0
        self.start, self.next = (self.start + delta) & _M32, (self.next + delta) & _M32
        self.una, self.peer_cack = (self.una + delta) & _M32, (self.peer_cack + delta) & _M32
        self.went_back_to = (self.start - 1) & _M32
        self._records = {}
        for record in records:
            record.psn = (record.psn + delta) & _M32
            record.clear_psn = (record.clear_psn + delta) & _M32
            record.rto_cnt = record.nack_cnt = 0
            record.dst_rcvd = record.asked = False
            self.records[record.psn] = record
            self.arm(record, now)
        return records

    # Acknowledgements (pds.md §7.2)

    def take_cack(self, cack: int) -> list[SendRecord]:
        """Remove and return the records up to CACK, which is newer than `peer_cack`, in PSN order. CACK stands for a
        default response to each of these packets (pds.md §7.2)."""
        answered: list[SendRecord] = []
        self.peer_cack = cack
        if self.recovery_end is not None and diff32(cack, self.recovery_end) >= 0:
            self.recovery_end = None
        records, una = self.records, self.una
        if not records:
            return answered  # `drained` follows
        covered = diff32(cack, una) + 1
        if covered > 0:
            self.una = (cack + 1) & _M32
            for psn in range(una, una + covered):
                record = records.pop(psn & _M32, None)
                if record is not None:
                    record.rto_at = record.retx_at = NEVER
                    if record.dst_rcvd:
                        self.sacked -= 1
                    answered.append(record)
        if self.landed is not None:
            self.landed += answered
        return answered

    def forget(self, record: SendRecord) -> None:
        """Remove the record of the packet that an ACK names by its ACK_PSN (pds.md §7.2 step 3)."""
        del self.records[record.psn]
        record.rto_at = record.retx_at = NEVER
        if record.dst_rcvd:
            self.sacked -= 1
        if self.landed is not None:
            self.landed.append(record)

    def take_sack(self, base: int, bitmap: int, now: int) -> None:
        """Mark the records whose SACK bit is set as received. A bit that is 0 has no effect (pds.md §7.2)."""
        records, told, ahead = self.records, self._told, diff32(base, self._told_base)
        sent = min(max(diff32(self.next, base), 0), SACK_BITS)
        self._told, self._told_base = bitmap & (1 << sent) - 1, base
        if -SACK_BITS < ahead < SACK_BITS:
            bitmap &= ~(told >> ahead if ahead >= 0 else told << -ahead)
        while bitmap and records:
            lowest = bitmap & -bitmap
            bitmap ^= lowest
            record = records.get((base + lowest.bit_length() - 1) & _M32)
            if record is not None and (not record.dst_rcvd or record.retx_at != NEVER):
                self.mark_received(record, now)

    def mark_received(self, record: SendRecord, now: int) -> None:
        """Mark a packet as received but unanswered. After its RTO an ACK_REQ is sent in place of the packet (pds.md
        §7.2)."""
        if not record.dst_rcvd:
            record.dst_rcvd = True
            self.sacked += 1
            if self.landed is not None:
                self.landed.append(record)
        if record.retx_at != NEVER:
            self.arm(record, now)

    def unmark(self, record: SendRecord) -> None:
        """Reset `dst_rcvd` of a packet, because the destination does not have the packet, has lost its response, or
        does not answer an ACK_REQ."""
        self._told = 0
        if record.dst_rcvd:
            record.dst_rcvd = record.asked = False
            self.sacked -= 1

    def overtaken(self) -> list[SendRecord]:
        """Return, in PSN order, the records that are not marked as received although a higher PSN is marked (pds.md
        §11.4).
        """
        highest = max((diff32(r.psn, self.una) for r in self.records.values() if r.dst_rcvd), default=-1)
        return self.missing((self.una + highest) & _M32)

    def missing(self, up_to: int) -> list[SendRecord]:
        """Return, in PSN order, the records up to PSN `up_to` that are not marked as received (`dst_rcvd`)."""
        edge = diff32(up_to, self.una)
        found = [r for r in self.records.values() if not r.dst_rcvd and diff32(r.psn, self.una) <= edge]
        return sorted(found, key=lambda record: diff32(record.psn, self.una))

    def advance(self) -> None:
        """Advance `una` to the lowest un-ACKed PSN (pds.md §7.2 step 6)."""
        una, end, records = self.una, self.next, self.records
        while una != end and una not in records:
            una = (una + 1) & _M32
        self.una = una

    def drained(self) -> None:
        """Advance `una` to the next PSN, as no packet is in flight, and drop the timers of earlier packets. A window
        that was made smaller doubles."""
        self.una = self.next
        if self.mp_range != self.offered:
            self.mp_range = min(2 * self.mp_range, self.offered)
        for level in self._levels:
            level.clear()

    # Timers

    def deadline(self) -> int:
        """Return the time at which the next timer of a record expires, or NEVER if no timer is armed."""
        at = NEVER
        if self.runs:
            at = self.runs[0].rto_at
        if self.rod:
            lowest = self._records.get(self.una)
            if lowest is not None:
                at = lowest.rto_at
        else:
            for level in self._levels:
                while level:
                    due, record = level[0]
                    if record.rto_at == due:
                        if due < at:
                            at = due
                        break
                    level.popleft()
        nacked = self._nacked
        if nacked:
            while nacked and nacked[0][1].retx_at != nacked[0][0]:
                nacked.popleft()
            if nacked and nacked[0][0] < at:
                at = nacked[0][0]
        return at

    def expired(self, now: int) -> list[SendRecord]:
        """Return the records whose RTO has expired, in PSN order. With go-back-N only the lowest un-ACKed record can be
        returned."""
        if self.runs and self.runs[0].rto_at <= now:
            self._unfold()
        if self.rod:
            lowest = self._records.get(self.una)
            return [lowest] if lowest is not None and lowest.rto_at <= now else []
        due: list[SendRecord] = []
        for level in self._levels:
            while level and (level[0][0] <= now or level[0][1].rto_at != level[0][0]):
                at, record = level.popleft()
                if record.rto_at == at:
                    record.rto_at = NEVER
                    due.append(record)
        return sorted(due, key=lambda record: diff32(record.psn, self.una))

    def paused(self, now: int) -> list[SendRecord]:
        """Return the records whose retransmission after a NACK is due, in PSN order."""
        due: list[SendRecord] = []
        nacked = self._nacked
        while nacked and (nacked[0][0] <= now or nacked[0][1].retx_at != nacked[0][0]):
            at, record = nacked.popleft()
            if record.retx_at == at:
                record.retx_at = NEVER
                due.append(record)
        return sorted(due, key=lambda record: diff32(record.psn, self.una))

    def may_repeat(self, count: int) -> bool:
        """Return True when a packet whose RTO has expired `count` times may be retransmitted once more."""
        limit = self.config.max_rto_retx_cnt
        return limit == RTO_INFINITE or count < limit

    def may_be_refused(self, record: SendRecord) -> bool:
        limit = self.config.max_nack_retx_cnt
        return limit == NACK_INFINITE or record.nack_cnt < limit

    def from_psn(self, psn: int) -> list[SendRecord]:
        """Return the un-ACKed records from `psn` on, in PSN order (pds.md §11.3)."""
        distance = diff32(psn, self.una)
        return [r for r in self.records.values() if diff32(r.psn, self.una) >= distance]
