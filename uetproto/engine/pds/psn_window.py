"""Destination half of one direction of a PDC: which PSNs were received, answered, cleared.

UE 1.0.1 §3.5.11.4 (CACK, CLEAR, SACK), §3.5.12.2 and §3.5.12.5 (window, duplicates); pds.md §2.3, §8, §9.

Pure numbers: no packets, no time. An in-order packet with a plain answer moves CACK and leaves nothing behind; only
what lies above CACK has a slot.
"""

from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final

from uetproto.wire.serial import diff32

_M32 = 0xFFFFFFFF
SACK_BITS = 64
MPR_UNIT = 128
"""PSNs in one unit of `mpr` (pds.md §8.6)."""


class Verdict(IntEnum):
    """Case of a PSN at its destination (pds.md §8.1)."""

    NEW = 0
    GAP = 1
    """ROD: beyond the next expected PSN."""
    DUPLICATE = 2
    """Received, and above CACK."""
    PRIOR = 3
    """At or below CACK, within one window."""
    AHEAD = 4
    BEHIND = 5


@dataclass(slots=True)
class UnansweredSlot:
    """Slot of a PSN that SES has not answered yet: what its ACK will copy (pds.md §8.3, §8.4)."""

    ar: int
    retx: int
    marked: bool
    entropy: int
    created: bool
    """This packet created the PDC."""
    asked: bool = False
    """An ACK_REQ waits for the answer."""


@dataclass(slots=True)
class StoredSlot:
    """Slot of a PSN whose answer is guaranteed and not cleared."""

    next_hdr: int
    response: bytes | None
    """None: it is not there any more; read data in an ACK may be left unstored (pds.md §10)."""


@dataclass(slots=True)
class BufferedSlot:
    """ROD: a packet after a gap that waits for its turn (`rod_gap = reorder`)."""

    packet: Any
    datagram: Any


class CompleteSlot:
    """Slot of a PSN that is complete, above a gap."""

    __slots__ = ()


class ClosingSlot:
    """Slot of the CLOSE_CMD: complete when the PDC is drained, and that is its end."""

    __slots__ = ()


_NEW = Verdict.NEW
DONE: Final = CompleteSlot()
CLOSING: Final = ClosingSlot()

Slot = UnansweredSlot | StoredSlot | BufferedSlot | CompleteSlot | ClosingSlot
_INCOMPLETE = (UnansweredSlot, BufferedSlot, ClosingSlot)


class PsnWindow:
    """`cack`, `max_clear`, `max_rcvd` and the slots above CACK. All comparisons are serial (pds.md §2.1)."""

    __slots__ = (
        "_turn", "buffered", "cack", "max_clear", "max_rcvd", "mp_range", "rod", "sack_track", "slots", "start",
        "stored", "waiting",
    )  # fmt: skip

    def __init__(self, start: int, mp_range: int, rod: bool) -> None:
        self.start = start
        self.cack = self.max_clear = self.max_rcvd = self.sack_track = (start - 1) & _M32
        self.mp_range = mp_range
        self.rod = rod
        self.slots: dict[int, Slot] = {}
        self.stored = 0
        self.waiting = 0
        self.buffered = 0
        self._turn = 0
        """ROD: the next PSN in order while packets after a gap are buffered."""

    @property
    def expected(self) -> int:
        """ROD: the next PSN in order. It follows the highest one received unless packets after a gap are kept."""
        return self._turn if self.buffered else (self.max_rcvd + 1) & _M32

    def classify(self, psn: int) -> Verdict:
        """The case of an arriving PSN (pds.md §8.1)."""
        if psn == (self.cack + 1) & _M32 and not self.slots:
            return _NEW  # in order, nothing beyond: as below
        distance = diff32(psn, self.cack)
        if distance > self.mp_range:
            return Verdict.AHEAD
        if distance > 0:
            if psn in self.slots:
                return Verdict.DUPLICATE
            if self.rod and psn != self.expected:
                return Verdict.GAP
            return Verdict.NEW
        if distance > -self.mp_range and (psn - self.start) & _M32 < (self.cack + 1 - self.start) & _M32:
            return Verdict.PRIOR
        return Verdict.BEHIND

    def received(self, psn: int) -> bool:
        return diff32(psn, self.cack) <= 0 or psn in self.slots

    def take(self, psn: int, slot: Slot) -> None:
        """Marks a NEW psn as received, with what is known of its answer; advances CACK."""
        if psn == (self.cack + 1) & _M32 and slot is DONE and not self.slots:
            self.cack = self.max_rcvd = psn  # in order: as below, without the slot
            if diff32(psn, self.sack_track) > 0:
                self.sack_track = psn
            return
        self._mark(psn, slot)
        if self.buffered:
            self._turn = (psn + 1) & _M32
        if isinstance(slot, StoredSlot):
            self.stored += 1
        elif isinstance(slot, UnansweredSlot):
            self.waiting += 1
        self._advance()

    def keep(self, psn: int, slot: BufferedSlot) -> None:
        """ROD: a packet after a gap is received, and waits for its turn."""
        if not self.buffered:
            self._turn = (self.max_rcvd + 1) & _M32
        self.buffered += 1
        self._mark(psn, slot)

    def next_turn(self) -> BufferedSlot | None:
        """ROD: the packet whose turn has come, out of the buffer; it is NEW again."""
        if not self.buffered:
            return None
        slot = self.slots.get(self._turn)
        if not isinstance(slot, BufferedSlot):
            return None
        del self.slots[self._turn]
        self.buffered -= 1
        if not self.buffered:
            self.max_rcvd = (self._turn - 1) & _M32  # the highest one received is this one, again
        return slot

    def _mark(self, psn: int, slot: Slot) -> None:
        self.slots[psn] = slot
        if diff32(psn, self.max_rcvd) > 0:
            self.max_rcvd = psn
        if diff32(psn, self.sack_track) < 0:
            self.sack_track = psn  # above CACK, else it would not be new

    def answer(self, psn: int, slot: StoredSlot | CompleteSlot) -> None:
        """SES answered the WAITING psn; advances CACK (pds.md §8.2)."""
        self.slots[psn] = slot
        self.waiting -= 1
        if isinstance(slot, StoredSlot):
            self.stored += 1
        self._advance()

    def clear(self, value: int) -> bool:
        """A CLEAR_PSN arrived. False when it clears what was not answered: it is ignored (pds.md §9.3)."""
        if diff32(value, self.max_clear) <= 0:
            return True
        beyond = diff32(value, self.cack)
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
        """CACK: the highest PSN such that it and all before are complete (pds.md §2.3)."""
        cack, slots = self.cack, self.slots
        while True:
            psn = (cack + 1) & _M32
            slot = slots.get(psn)
            if slot is None or isinstance(slot, _INCOMPLETE):
                break
            if isinstance(slot, StoredSlot):
                if diff32(psn, self.max_clear) > 0:
                    break
                self.stored -= 1
            del slots[psn]
            cack = psn
        self.cack = cack
        if diff32(cack, self.sack_track) > 0:
            self.sack_track = cack

    def lowest_missing(self) -> int:
        """The lowest PSN that was not received."""
        psn = (self.cack + 1) & _M32
        while psn in self.slots:
            psn = (psn + 1) & _M32
        return psn

    def lose(self, psn: int) -> bool:
        """A harness loses the guaranteed response of a PSN; False when none is stored."""
        slot = self.slots.get(psn)
        if isinstance(slot, StoredSlot):
            slot.response = None
        return isinstance(slot, StoredSlot)

    def lowest(self, kind: type[UnansweredSlot] | type[StoredSlot]) -> int | None:
        """The lowest PSN that waits for its answer, or whose guaranteed answer is not cleared."""
        psns = [psn for psn, slot in self.slots.items() if isinstance(slot, kind)]
        return min(psns, key=self.above_cack) if psns else None

    def above_cack(self, psn: int) -> int:
        """Sorts PSNs of the window."""
        return diff32(psn, self.cack)

    def forget(self) -> None:
        """The PDC is closed: what lies above CACK is released."""
        self.slots.clear()
        self.stored = self.waiting = self.buffered = 0

    # SACK (pds.md §8.5)

    def sack_base(self, rule: str, trigger: int) -> int:
        if rule == "tracked":
            return self.sack_track
        return trigger if rule == "trigger" else (self.cack + 1) & _M32

    def sack_bitmap(self, base: int) -> int:
        """Bit i: PSN base + i was received, or lies at or below CACK."""
        slots = self.slots
        done = min(max(diff32(self.cack, base) + 1, 0), SACK_BITS)
        bitmap = (1 << done) - 1
        for bit in range(done, min(diff32(self.max_rcvd, base) + 1, SACK_BITS)):
            if (base + bit) & _M32 in slots:
                bitmap |= 1 << bit
        return bitmap

    def ack_sent(self) -> None:
        """The tracked base moves on once it was reported and all its bits lie behind."""
        if diff32(self.max_rcvd, self.sack_track) > SACK_BITS - 1:
            self.sack_track = (self.sack_track + SACK_BITS) & _M32
