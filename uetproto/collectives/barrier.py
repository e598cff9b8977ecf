"""Nobody leaves before the last one came: messages of no bytes (collectives.md §3.7)."""

from dataclasses import dataclass

import numpy as np

from uetproto.collectives.pattern import Moves, Pattern, steps_for
from uetproto.collectives.plan import Plan
from uetproto.collectives.request import Request
from uetproto.collectives.schedule import Fold, Ints


@dataclass(frozen=True, slots=True)
class Dissemination(Pattern):
    """In round k a token to rank r+2^k: after it a rank knows of the 2^(k+1) ranks up to itself."""

    size: int

    @property
    def length(self) -> int:
        return steps_for(self.size)

    def moves(self, bounds: Ints, member: int | None = None) -> Moves:
        rank, k = np.arange(self.size), np.arange(self.length)[:, None]
        return Moves.of(bounds, step=k, src=rank, dst=(rank + (1 << k)) % self.size, first=0, last=1, fold=Fold.STORE)


@dataclass(frozen=True, slots=True)
class TwoPasses(Pattern):
    """A token goes around the ring twice: the first pass says that all have come, the second one lets them go."""

    size: int

    @property
    def length(self) -> int:
        return 2 * self.size if self.size > 1 else 0

    def moves(self, bounds: Ints, member: int | None = None) -> Moves:
        step = np.arange(self.length)
        src, dst = step % self.size, (step + 1) % self.size
        return Moves.of(bounds, step=step, src=src, dst=dst, first=0, last=1, fold=Fold.STORE)


def dissemination(asked: Request) -> Plan:
    """The fewest steps."""
    return asked.in_place(asked.phase(Dissemination(asked.size), bounds=np.zeros(2, dtype=np.int32)))


def ring(asked: Request) -> Plan:
    """Two passes around the ring, one message at a time."""
    return asked.in_place(asked.phase(TwoPasses(asked.size), bounds=np.zeros(2, dtype=np.int32)))
