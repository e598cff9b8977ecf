"""Source half of a direction of a PDC records what is in flight, what was acknowledged, and when to retransmit.

UE 1.0.1 §3.5.12.5 to §3.5.12.7, §3.5.20.3; pds.md §5 (tx), §7 (source rules), §11 (loss). It holds numbers and
timers; `source` makes the packets.
"""

from collections import deque
from dataclasses import dataclass, field
from functools import cache

from uetproto.engine.config import PdsConfig
from uetproto.engine.contract import NEVER, SECOND, Buffer
from uetproto.engine.pds.messages import Ack
from uetproto.engine.pds.service import Outgoing
from uetproto.wire.serial import diff32

_M32 = 0xFFFFFFFF
RTO_CAP = 8 * SECOND
"""Largest RTO (pds.md §11.1)."""
RTO_INFINITE = 15
NACK_INFINITE = 31
MAX_CLEAR_OFFSET = 0x8000
"""Largest distance of CLEAR_PSN below the PSN that carries it (pds.md §2.1)."""
MAX_SYN_OFFSET = 4095
"""Number of PSNs after Start_PSN that may be used before the PDCID of the target is known (pds.md §6.2)."""


@dataclass(slots=True, eq=False)
class SendRecord:
    """An un-ACKed packet that consumed a PSN: a request, or a control packet (`ctl_type` is not None)."""

    psn: int
    message: Outgoing | None
    index: int
    """Index of the packet in its message; a control packet has its ctl_payload here."""
    next_hdr: int
    header: bytes
    payload: Buffer
    ar: bool
    clear_psn: int
    ctl_type: int | None = None
    dst_rcvd: bool = False
    rto_cnt: int = 0
    nack_cnt: int = 0
    rto_at: int = field(init=False)
    retx_at: int = field(init=False)
    """Times of the RTO and of the retransmission after a NACK; `SendWindow.arm` sets both."""


@cache
def rto_waits(init: int) -> tuple[int, ...]:
    """Return the RTO of each back-off level (pds.md §11.1)."""
    top = next(level for level in range(64) if init << level >= RTO_CAP or not init)
    return tuple(min(init << level, RTO_CAP) for level in range(top + 1))


class SendWindow:
    """The send window holds `start`, `next`, `una`, `peer_cack`, `mp_range`, un-ACKed records, timers (pds.md §5).

    Timers are queues, not heaps: all records of a back-off level wait equally long, so deadlines within a level are in
    order. An entry is stale, and skipped, when its record has another deadline. On ROD only the lowest un-ACKed PSN is
    timed, because its expiry retransmits all (pds.md §11.3).
    """

    __slots__ = (
        "_levels", "_nacked", "_waits", "config", "mp_range", "next", "peer_cack", "records", "recovery_end", "rod",
        "sacked", "start", "una", "went_back_to", "window_at_cack",
    )  # fmt: skip

    def __init__(self, start: int, rod: bool, config: PdsConfig) -> None:
        """Make an empty window; `rod`: a loss goes back to the lowest un-ACKed PSN."""
        self.config = config
        self.rod = rod
        self.start = self.next = self.una = start
        self.peer_cack = (start - 1) & _M32
        self.went_back_to = (start - 1) & _M32
        """ROD: where the last go-back began."""
        self.mp_range = config.default_mpr * 128
        self.records: dict[int, SendRecord] = {}
        self.sacked = 0
        """Number of records that the destination has received."""
        self.recovery_end: int | None = None
        """PSN at which CACK ends the recovery from an inferred loss (pds.md §11.4)."""
        self._levels: list[deque[tuple[int, SendRecord]]] = []
        self._waits = rto_waits(config.rto_init_time)
        self._nacked: deque[tuple[int, SendRecord]] | None = None
        self.window_at_cack = "cack" in (config.window_base, config.clear_source)

    @property
    def clear_psn(self) -> int:
        """Return CLEAR_PSN: all PSNs up to it were acknowledged and answered (pds.md §2.4)."""
        return (self.una - 1) & _M32

    @property
    def last(self) -> int:
        return (self.next - 1) & _M32

    def in_window(self, psn: int) -> bool:
        """Return True when psn ≤ CLEAR_PSN + MP_RANGE, or ≤ CACK + MP_RANGE with the literal rule (pds.md §7.1)."""
        base = (self.peer_cack + 1) & _M32 if self.window_at_cack else self.una
        return (psn - base) & _M32 < self.mp_range or diff32(psn, base) < 0

    def room(self) -> int:
        """Return how many PSNs from `next` on lie in the window."""
        base = (self.peer_cack + 1) & _M32 if self.window_at_cack else self.una
        return max(0, self.mp_range - ((self.next - base) & _M32))

    # In flight

    def track(self, record: SendRecord, now: int) -> None:
        """Track a first transmission: the record takes PSN `next`."""
        self.records[record.psn] = record
        self.next = (record.psn + 1) & _M32
        self.arm(record, now)

    def arm(self, record: SendRecord, now: int) -> None:
        """Arm the RTO after a (re)transmission (pds.md §11.1)."""
        waits, level = self._waits, record.rto_cnt
        if level >= len(waits):
            level = len(waits) - 1
        record.rto_at = at = now + waits[level]
        record.retx_at = NEVER
        if not self.rod:
            levels = self._levels
            while level >= len(levels):
                levels.append(deque())
            levels[level].append((at, record))

    def delay(self, record: SendRecord, now: int) -> None:
        """Pause the record after a NACK: the RTO is suspended until the retransmission (pds.md §11.2)."""
        record.rto_at = NEVER
        record.retx_at = now + self.config.nack_retx_time
        if self._nacked is None:
            self._nacked = deque()
        self._nacked.append((record.retx_at, record))

    def drop_all(self) -> list[SendRecord]:
        """Remove and return all records in flight, in PSN order; no timer stays armed."""
        records = list(self.records.values())
        self.records = {}
        self.sacked = 0
        self._levels = []
        self._nacked = None
        return records

    def renumber(self, delta: int, now: int) -> list[SendRecord]:
        """Move all PSNs by `delta` for secure start; all is in flight for the first time again (pds.md §6.6)."""
        records = list(self.records.values())
        self._levels = []
        self._nacked = None
        self.sacked = 0
        self.start, self.next = (self.start + delta) & _M32, (self.next + delta) & _M32
        self.una, self.peer_cack = (self.una + delta) & _M32, (self.peer_cack + delta) & _M32
        self.went_back_to = (self.start - 1) & _M32
        self.records = {}
        for record in records:
            record.psn = (record.psn + delta) & _M32
            record.clear_psn = (record.clear_psn + delta) & _M32
            record.rto_cnt = record.nack_cnt = 0
            record.dst_rcvd = False
            self.records[record.psn] = record
            self.arm(record, now)
        return records

    # Acknowledgements (pds.md §7.2)

    def plausible(self, ack: Ack) -> bool:
        """Return False for an ACK of a packet that was never sent, or from before the start (pds.md §7.2 step 2)."""
        used = (self.next - self.start) & _M32
        return (ack.cack_psn + 1 - self.start) & _M32 <= used and diff32(ack.ack_psn, self.next) < 0

    def take_cack(self, cack: int) -> list[SendRecord]:
        """Remove and return the un-ACKed records up to CACK, in order; they get the default answer (pds.md §7.2)."""
        answered: list[SendRecord] = []
        if diff32(cack, self.peer_cack) > 0:
            self.peer_cack = cack
            pop, una = self.records.pop, self.una
            covered = diff32(cack, una) + 1
            for psn in range(una, una + covered):
                record = pop(psn & _M32, None)
                if record is not None:
                    record.rto_at = record.retx_at = NEVER
                    if record.dst_rcvd:
                        self.sacked -= 1
                    answered.append(record)
            if covered > 0:
                self.una = (cack + 1) & _M32
            if self.recovery_end is not None and diff32(cack, self.recovery_end) >= 0:
                self.recovery_end = None
        return answered

    def forget(self, record: SendRecord) -> None:
        """Remove a record that is acknowledged by its own PSN (pds.md §7.2 step 3)."""
        del self.records[record.psn]
        record.rto_at = record.retx_at = NEVER
        if record.dst_rcvd:
            self.sacked -= 1

    def take_sack(self, base: int, bitmap: int, now: int) -> None:
        """Mark the records whose SACK bit is set; a clear bit says nothing (pds.md §7.2)."""
        bit = 0
        while bitmap >> bit:
            if bitmap >> bit & 1:
                record = self.records.get((base + bit) & _M32)
                if record is not None:
                    self.mark_received(record, now)
            bit += 1

    def mark_received(self, record: SendRecord, now: int) -> None:
        """Mark a packet as received but unanswered: no data is retransmitted, the RTO continues (pds.md §7.2)."""
        if not record.dst_rcvd:
            record.dst_rcvd = True
            self.sacked += 1
        if record.retx_at != NEVER:
            self.arm(record, now)

    def unmark(self, record: SendRecord) -> None:
        """Revoke a mark: the destination does not have the packet, or has lost the answer to it."""
        if record.dst_rcvd:
            record.dst_rcvd = False
            self.sacked -= 1

    def overtaken(self) -> list[SendRecord]:
        """Return the missing records below the highest PSN reported as received, in PSN order (pds.md §11.4)."""
        highest = max((diff32(r.psn, self.una) for r in self.records.values() if r.dst_rcvd), default=-1)
        return self.missing((self.una + highest) & _M32)

    def missing(self, up_to: int) -> list[SendRecord]:
        """Return the un-ACKed records up to `up_to` that no ACK reported as received, in order."""
        edge = diff32(up_to, self.una)
        found = [r for r in self.records.values() if not r.dst_rcvd and diff32(r.psn, self.una) <= edge]
        return sorted(found, key=lambda record: diff32(record.psn, self.una))

    def advance(self) -> None:
        """Advance una over acknowledged PSNs (pds.md §7.2 step 6)."""
        una, end, records = self.una, self.next, self.records
        while una != end and una not in records:
            una = (una + 1) & _M32
        self.una = una

    # Timers

    def deadline(self) -> int:
        """Return when the next record is due; NEVER when none is."""
        at = NEVER
        if self.rod:
            lowest = self.records.get(self.una)
            if lowest is not None:
                at = lowest.rto_at
        else:
            for level in self._levels:
                while level and level[0][1].rto_at != level[0][0]:
                    level.popleft()
                if level and level[0][0] < at:
                    at = level[0][0]
        nacked = self._nacked
        if nacked:
            while nacked and nacked[0][1].retx_at != nacked[0][0]:
                nacked.popleft()
            if nacked and nacked[0][0] < at:
                at = nacked[0][0]
        return at

    def expired(self, now: int) -> list[SendRecord]:
        """Return the records whose RTO expired, in PSN order; on ROD at most the lowest."""
        if self.rod:
            lowest = self.records.get(self.una)
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
        """Return the records whose pause after a NACK is over, in PSN order."""
        due: list[SendRecord] = []
        nacked = self._nacked
        while nacked and (nacked[0][0] <= now or nacked[0][1].retx_at != nacked[0][0]):
            at, record = nacked.popleft()
            if record.retx_at == at:
                record.retx_at = NEVER
                due.append(record)
        return sorted(due, key=lambda record: diff32(record.psn, self.una))

    def may_repeat(self, count: int) -> bool:
        """Return True when a packet may be retransmitted after `count` RTOs."""
        limit = self.config.max_rto_retx_cnt
        return limit == RTO_INFINITE or count < limit

    def may_be_refused(self, record: SendRecord) -> bool:
        limit = self.config.max_nack_retx_cnt
        return limit == NACK_INFINITE or record.nack_cnt < limit

    def from_psn(self, psn: int) -> list[SendRecord]:
        """Return the un-ACKed records from `psn` on, in order, for ROD (pds.md §11.3)."""
        distance = diff32(psn, self.una)
        return [r for r in self.records.values() if diff32(r.psn, self.una) >= distance]
