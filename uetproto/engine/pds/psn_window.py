# SPDX-License-Identifier: GPL-2.0-only
"""The destination half of one direction of a PDC records which PSNs were received, answered and cleared.

UE 1.0.1 §3.5.11.4 (CACK, CLEAR, SACK), §3.5.12.2 and §3.5.12.5 (window, duplicates); pds.md §2.3, §8, §9.

The window has no timers. A packet that arrives in order advances CACK and needs no further state, unless its response
is guaranteed. A received PSN above CACK has a slot, which is an object with the state of the packet.
"""

from bisect import bisect_left
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final

from uetproto.wire.serial import diff32

_M32 = 0xFFFFFFFF
_SIGN = 1 << 31
"""Bit of a difference of PSNs that is set if the first PSN is below the second."""
SACK_BITS = 64
_SACK_MASK = (1 << SACK_BITS) - 1
MPR_UNIT = 128
"""Number of PSNs in one unit of `mpr` (pds.md §8.6)."""


class Verdict(IntEnum):
    """This enumeration says how a PSN relates to the window of its destination (pds.md §8.1)."""

    NEW = 0
    GAP = 1
    """The PSN is not the next one in order (ROD)."""
    DUPLICATE = 2
    """The PSN was received before, and lies above CACK."""
    PRIOR = 3
    """The PSN was received before, and lies at CACK, or below CACK by less than a window."""
    AHEAD = 4
    """The PSN lies above the window."""
    BEHIND = 5
    """The PSN lies below Start_PSN, or below CACK by a window or more."""


@dataclass(slots=True)
class UnansweredSlot:
    """This is the slot of a packet that SES has not answered yet. It holds the values that the ACK copies from the
    packet (pds.md §8.3, §8.4).
    """

    ar: int
    retx: int
    marked: bool
    entropy: int
    created: bool
    """Whether the packet opened the PDC at the target."""
    asked: bool = False
    """Whether an ACK_REQ has asked for the ACK of this packet."""
    since: int = 0
    """Time at which the packet arrived."""


@dataclass(slots=True)
class StoredSlot:
    """A packet with a guaranteed response has this slot until a CLEAR covers its PSN."""

    next_hdr: int
    response: bytes | None
    """Bytes of the response. It is None if the response was lost, or is read data that is not stored (pds.md §10)."""


@dataclass(slots=True)
class BufferedSlot:
    """This is the slot of a packet on ROD that is buffered, because a lower PSN is missing (`rod_gap = reorder`)."""

    packet: Any
    datagram: Any


class CompleteSlot:
    """A packet that is complete has this slot while a lower PSN is incomplete."""

    __slots__ = ()


class ClosingSlot:
    """The CLOSE_CMD has this slot, as it is complete only when the PDC is drained (pds.md §6.5)."""

    __slots__ = ()


_NEW = Verdict.NEW
DONE: Final = CompleteSlot()
CLOSING: Final = ClosingSlot()

Slot = UnansweredSlot | StoredSlot | BufferedSlot | CompleteSlot | ClosingSlot
_INCOMPLETE = (UnansweredSlot, BufferedSlot, ClosingSlot)


class PsnWindow:
    """This class holds CACK, the highest cleared PSN, the highest received PSN, and the slots above CACK.

    All comparisons of PSNs are serial (pds.md §2.1).
    """

    __slots__ = (
        "_above", "_early", "_turn", "buffered", "cack", "gap_closed", "max_clear", "max_rcvd", "mp_range", "rod",
        "sack_track", "slots", "start", "stored", "waiting",
    )  # fmt: skip

    def __init__(self, start: int, mp_range: int, rod: bool) -> None:
        self.start = start
        self.cack = self.max_clear = self.max_rcvd = self.sack_track = (start - 1) & _M32
        self.mp_range = mp_range
        self.rod = rod
        self.slots: dict[int, Slot] = {}
        self._above = 0
        """PSNs above CACK that have a slot: bit i is PSN CACK + 1 + i."""
        self.stored = 0
        self.waiting = 0
        self.buffered = 0
        self._early: list[int] = []
        """PSNs that asked for an ACK and got it with a gap below: CACK was below the PSN before. In their order."""
        self.gap_closed = False
        """Whether a gap below a PSN of an early ACK has closed, and no ACK was sent since (pds.md §8.3)."""
        self._turn = 0
        """The next PSN in order on ROD; valid while packets after a gap are buffered."""

    @property
    def expected(self) -> int:
        """Return the next PSN in order on ROD. It is the highest received PSN + 1 unless packets after a gap are
        buffered."""
        return self._turn if self.buffered else (self.max_rcvd + 1) & _M32

    def classify(self, psn: int) -> Verdict:
        """Return how the PSN of an arriving packet relates to the window (pds.md §8.1)."""
        above = (psn - self.cack) & _M32
        if above == 1 and not self.slots:
            return _NEW  # the common case, with the same result as below
        if 0 < above < _SIGN:
            if above > self.mp_range:
                return Verdict.AHEAD
            if psn in self.slots:
                return Verdict.DUPLICATE
            if self.rod and psn != self.expected:
                return Verdict.GAP
            return _NEW
        if (self.cack - psn) & _M32 < self.mp_range and (psn - self.start) & _M32 < (self.cack + 1 - self.start) & _M32:
            return Verdict.PRIOR
        return Verdict.BEHIND

    def received(self, psn: int) -> bool:
        return diff32(psn, self.cack) <= 0 or psn in self.slots

    def take(self, psn: int, slot: Slot) -> None:
        """Mark a PSN of verdict NEW as received, store `slot` as its state, and advance CACK."""
        next_in_order = psn == (self.cack + 1) & _M32
        if slot is DONE:
            if next_in_order and not self.slots:
                self.cack = self.max_rcvd = psn  # the common case, with the same result as below
                if diff32(psn, self.sack_track) > 0:
                    self.sack_track = psn
                return
        elif isinstance(slot, StoredSlot):
            self.stored += 1
        elif isinstance(slot, UnansweredSlot):
            self.waiting += 1
        self._mark(psn, slot)
        if self.buffered:
            self._turn = (psn + 1) & _M32
        if next_in_order:
            self._advance()

    def keep(self, psn: int, slot: BufferedSlot) -> None:
        """Buffer a packet on ROD because a lower PSN is missing."""
        if not self.buffered:
            self._turn = (self.max_rcvd + 1) & _M32
        self.buffered += 1
        self._mark(psn, slot)

    def next_turn(self) -> BufferedSlot | None:
        """Remove and return the buffered packet that is next in order on ROD, or return None if it is not buffered.

        The PSN of the returned packet counts as not received until `take`.
        """
        if not self.buffered:
            return None
        slot = self.slots.get(self._turn)
        if not isinstance(slot, BufferedSlot):
            return None
        del self.slots[self._turn]
        self._above &= ~(1 << ((self._turn - self.cack - 1) & _M32))
        self.buffered -= 1
        if not self.buffered:
            self.max_rcvd = (self._turn - 1) & _M32  # nothing above is received any more
        return slot

    def _mark(self, psn: int, slot: Slot) -> None:
        self.slots[psn] = slot
        self._above |= 1 << ((psn - self.cack - 1) & _M32)
        if not (psn - self.max_rcvd) & _SIGN:
            self.max_rcvd = psn
        if (psn - self.sack_track) & _SIGN:
            self.sack_track = psn

    def answer(self, psn: int, slot: StoredSlot | CompleteSlot) -> None:
        """Record the response of SES to an unanswered PSN, and advance CACK (pds.md §8.2)."""
        self.slots[psn] = slot
        self.waiting -= 1
        if isinstance(slot, StoredSlot):
            self.stored += 1
        self._advance()

    def clear(self, value: int) -> bool:
        """Clear all PSNs up to the CLEAR_PSN `value`. If one of these PSNs is incomplete or `value` is above the
        window, clear no PSN and return False (pds.md §9.3)."""
        if diff32(value, self.max_clear) <= 0:
            return True
        beyond = 0 if value == self.cack else diff32(value, self.cack)
        if beyond > 0:
            if beyond > self.mp_range:
                return False
            for psn in range(self.cack + 1, self.cack + 1 + beyond):
                slot = self.slots.get(psn & _M32)
                if slot is None or isinstance(slot, _INCOMPLETE):
                    return False
        self.max_clear = value
        if beyond > 0:
            self._advance()
        return True

    def _advance(self) -> None:
        """Advance CACK to the highest PSN up to which all are complete (pds.md §2.3)."""
        cack, slots = self.cack, self.slots
        while True:
            psn = (cack + 1) & _M32
            slot = slots.get(psn)
            if slot is not DONE:
                if slot is None or isinstance(slot, _INCOMPLETE):
                    break
                if isinstance(slot, StoredSlot):
                    if diff32(psn, self.max_clear) > 0:
                        break
                    self.stored -= 1
            del slots[psn]
            cack = psn
        self._above >>= (cack - self.cack) & _M32
        self.cack = cack
        if diff32(cack, self.sack_track) > 0:
            self.sack_track = cack
        early = self._early
        while early and diff32(early[0], cack) <= 1:
            del early[0]
            self.gap_closed = True

    def note_early(self, psn: int) -> None:
        """Note that the requested ACK of a PSN was sent. If a lower PSN is incomplete, another ACK follows when all
        lower PSNs are complete."""
        above = diff32(psn, self.cack)
        if above > 1:
            at = bisect_left(self._early, above, key=self.above_cack)
            if at == len(self._early) or self._early[at] != psn:
                self._early.insert(at, psn)

    def lowest_missing(self) -> int:
        """Return the lowest PSN that was not received."""
        psn = (self.cack + 1) & _M32
        while psn in self.slots:
            psn = (psn + 1) & _M32
        return psn

    def lose(self, psn: int) -> bool:
        """Remove the stored guaranteed response of a PSN, for tests. Return False if no response is stored."""
        slot = self.slots.get(psn)
        if isinstance(slot, StoredSlot):
            slot.response = None
        return isinstance(slot, StoredSlot)

    def lowest(self, kind: type[UnansweredSlot] | type[StoredSlot]) -> int | None:
        """Return the lowest PSN whose slot is of the class `kind`, or None if no slot is of that class."""
        psns = [psn for psn, slot in self.slots.items() if isinstance(slot, kind)]
        return min(psns, key=self.above_cack) if psns else None

    def above_cack(self, psn: int) -> int:
        """Return the serial distance of a PSN from CACK. Sorting by this distance puts PSNs in order."""
        return diff32(psn, self.cack)

    def forget(self) -> None:
        """Release all slots, because the PDC is closed."""
        self.slots.clear()
        self._above = 0
        self.stored = self.waiting = self.buffered = 0

    # SACK (pds.md §8.5)

    def sack_base(self, rule: str, trigger: int) -> int:
        if rule == "tracked":
            return self.sack_track
        return trigger if rule == "trigger" else (self.cack + 1) & _M32

    def sack_bitmap(self, base: int) -> int:
        """Return the SACK bitmap, in which bit i is set if PSN base + i was received or lies at or below CACK."""
        done = diff32(self.cack, base) + 1
        if done <= 0:
            return self._above >> -done & _SACK_MASK
        return _SACK_MASK if done >= SACK_BITS else (self._above << done | (1 << done) - 1) & _SACK_MASK

    def ack_sent(self) -> None:
        """Advance the tracked SACK base by 64 PSNs after an ACK, if a PSN above the bitmap of the ACK was received."""
        if diff32(self.max_rcvd, self.sack_track) > SACK_BITS - 1:
            self.sack_track = (self.sack_track + SACK_BITS) & _M32
