# SPDX-License-Identifier: GPL-2.0-only
"""This module chooses the entropy value (EV) of each request (UE 1.0.1 §3.6.16, cms.md §5).

An EV is `upper` bits that a context keeps, and an index below the number of EVs, a power of two. What is heard of an EV
of another context, or of a control packet, changes nothing.
"""

from collections import deque
from collections.abc import Callable

from uetproto.engine.contract import MILLISECOND, PathFeedback, Rng

RING = 8
"""Number of EVs that the ring of REPS holds."""
FREEZE = 10 * MILLISECOND
"""Time for which a time-out freezes the ring of REPS."""
EXPLORE = 16
"""Number of packets with random EVs after the ring was frozen."""
MOST_PENALTY = 15
PENALTIES = {PathFeedback.ECN: 1, PathFeedback.NACK: 4, PathFeedback.TIMEOUT: MOST_PENALTY, PathFeedback.NO_ECN: 0}


class OnePath:
    """All requests of a ROD context have one EV, which changes after a mark or a loss, but not too often."""

    __slots__ = ("_changed_at", "_entropy", "_reroute", "_rng")

    def __init__(self, rng: Rng, reroute: int) -> None:
        self._rng = rng
        self._reroute = reroute
        self._entropy = rng.getrandbits(16)
        self._changed_at = 0

    def next(self, now: int) -> int:
        return self._entropy

    def heard(self, entropy: int, feedback: PathFeedback, now: int) -> None:
        if feedback is not PathFeedback.NO_ECN and entropy == self._entropy and now - self._changed_at >= self._reroute:
            self._entropy = self._rng.getrandbits(16)
            self._changed_at = now


class Oblivious:
    """Each round uses every EV once: the index XOR a mask that is drawn for the round."""

    __slots__ = ("_mask", "_rng", "_upper", "at", "size")

    def __init__(self, rng: Rng, size: int) -> None:
        self._rng = rng
        self.size = size
        self._upper = rng.getrandbits(16) & ~(size - 1)
        self.at = 0
        """Number of EVs that the present round has used."""
        self._mask = rng.getrandbits(16) & (size - 1)

    def next(self, now: int) -> int:
        return self._upper | self.index()

    def heard(self, entropy: int, feedback: PathFeedback, now: int) -> None:
        """Nothing that is heard changes the order."""

    def index(self) -> int:
        """Return the next index of the order."""
        found = self.at ^ self._mask
        self.at += 1
        if self.at == self.size:
            self.at = 0
            self._mask = self._rng.getrandbits(16) & (self.size - 1)
        return found

    def drawn(self) -> int:
        """Return a random EV."""
        return self._upper | self._rng.getrandbits(16) & (self.size - 1)

    def index_of(self, entropy: int) -> int | None:
        """Return the index of an EV, or None if it is not one of these."""
        return entropy & (self.size - 1) if entropy & ~(self.size - 1) == self._upper else None


class Bitmap(Oblivious):
    """The order of `Oblivious`, from which EVs with a penalty are passed over; the first one loses one each time."""

    __slots__ = ("penalties",)

    def __init__(self, rng: Rng, size: int) -> None:
        super().__init__(rng, size)
        self.penalties = bytearray(size)

    def next(self, now: int) -> int:
        index = self.index()
        penalties = self.penalties
        if penalties[index]:
            penalties[index] -= 1
            index = self._unpunished()
        return self._upper | index

    def _unpunished(self) -> int:
        """Return the next index without a penalty, or after a whole round the last one: as `index` does one by one."""
        size, penalties, index = self.size, self.penalties, 0
        left = size - 1
        while left:
            at, mask = self.at, self._mask
            end = min(at + left, size)
            left -= end - at
            for index in map(mask.__xor__, range(at, end)):
                if not penalties[index]:
                    end, left = (index ^ mask) + 1, 0
                    break
            self.at = end
            if end == size:
                self.at = 0
                self._mask = self._rng.getrandbits(16) & (size - 1)
        return index

    def heard(self, entropy: int, feedback: PathFeedback, now: int) -> None:
        index, penalty = self.index_of(entropy), PENALTIES[feedback]
        if index is not None and penalty:
            self.penalties[index] = min(self.penalties[index] + penalty, MOST_PENALTY)


class Reps(Oblivious):
    """EVs of unmarked ACKs go to a ring and are used again; without one, the EV is random.

    A time-out freezes the ring, whose EVs are then used in turn.
    """

    __slots__ = ("_explore", "_frozen_until", "_turn", "ring")

    def __init__(self, rng: Rng, size: int) -> None:
        super().__init__(rng, size)
        self.ring: deque[int] = deque(maxlen=RING)
        self._frozen_until = 0
        self._explore = 0
        self._turn = 0

    def next(self, now: int) -> int:
        if self._frozen_until:
            if now < self._frozen_until and self.ring:
                self._turn = (self._turn + 1) % len(self.ring)
                return self.ring[self._turn]
            self._frozen_until = 0
            self.ring.clear()
            self._explore = EXPLORE
        if self._explore:
            self._explore -= 1
            return self.drawn()
        return self.ring.popleft() if self.ring else self.drawn()

    def heard(self, entropy: int, feedback: PathFeedback, now: int) -> None:
        if self.index_of(entropy) is None:
            return
        if feedback is PathFeedback.TIMEOUT:
            if not self._frozen_until:
                self._frozen_until = now + FREEZE
        elif feedback is PathFeedback.NO_ECN and not self._frozen_until:
            self.ring.append(entropy)


class Mixed(Bitmap):
    """The oldest EV of an unmarked ACK is used again; without one, the next of the bitmap."""

    __slots__ = ("recycled",)

    def __init__(self, rng: Rng, size: int) -> None:
        super().__init__(rng, size)
        self.recycled: deque[int] = deque()

    def next(self, now: int) -> int:
        return self.recycled.popleft() if self.recycled else super().next(now)

    def heard(self, entropy: int, feedback: PathFeedback, now: int) -> None:
        if feedback is not PathFeedback.NO_ECN:
            super().heard(entropy, feedback, now)
        elif self.index_of(entropy) is not None:
            self.recycled.append(entropy)


SPRAYS: dict[str, Callable[[Rng, int], Oblivious]] = {
    "oblivious": Oblivious, "bitmap": Bitmap, "reps": Reps, "mixed": Mixed,
}  # fmt: skip
"""Class for each value of `CcConfig.lb`."""
