# SPDX-License-Identifier: GPL-2.0-only
"""This module plans barriers: no rank leaves a barrier before all ranks have entered it (collectives.md §3.7).

Most algorithms of a barrier send only empty messages.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from uetproto.collectives.algorithms.doubling import RecursiveDoubling
from uetproto.collectives.algorithms.pattern import Moves, Pattern, PatternPhase, everyone, steps_for
from uetproto.collectives.algorithms.plan import PlannedSchedule
from uetproto.collectives.algorithms.request import ScheduleRequest
from uetproto.collectives.algorithms.rooted import Star
from uetproto.collectives.algorithms.schedule import Buffer, Counts, Fold, Ints

RADIX = 4
"""Default number k of the k-nomial barrier: a rank exchanges messages with k-1 other ranks in each round."""


@dataclass(frozen=True, slots=True)
class Dissemination(Pattern):
    """This pattern sends a token from each rank r to rank r+2^k in round k. No other barrier takes fewer steps.

    After round k a rank knows that 2^(k+1) ranks have entered: itself and the ranks before it.
    """

    size: int

    @property
    def length(self) -> int:
        return steps_for(self.size)

    def moves(self, bounds: Ints, member: int | None = None) -> Moves:
        rank, k = np.arange(self.size), np.arange(self.length)[:, None]
        return Moves.of(bounds, step=k, src=rank, dst=(rank + (1 << k)) % self.size, first=0, last=1, fold=Fold.STORE)


@dataclass(frozen=True, slots=True)
class TwoPasses(Pattern):
    """This pattern sends a token around the ring twice. After the first pass all ranks have entered, and the second
    pass releases them."""

    size: int

    @property
    def length(self) -> int:
        return 2 * self.size if self.size > 1 else 0

    def moves(self, bounds: Ints, member: int | None = None) -> Moves:
        step = np.arange(self.length)
        src, dst = step % self.size, (step + 1) % self.size
        return Moves.of(bounds, step=step, src=src, dst=dst, first=0, last=1, fold=Fold.STORE)


@dataclass(frozen=True, slots=True)
class Knomial(Pattern):
    """This pattern is recursive k-ing: in round i, ranks form groups of k at distances of k^i, and all ranks of a group
    exchange tokens in one step.

    Let k^j be the largest power of k up to N, and m·k^j the largest multiple of k^j up to N. The groups of a round have
    m·k^j ranks in total. If m > 1, each group has m ranks in the last round. The other e ranks are extras. Extras are
    the odd ones of the first 2e ranks. Each extra has a proxy, the even rank before it, as in recursive doubling
    (collectives.md §3.5). With k = 2 the pattern is recursive doubling. A larger k has fewer steps, and more messages
    in each step.
    """

    size: int
    radix: int = RADIX

    @property
    def groups(self) -> tuple[int, ...]:
        """Return the number of ranks in a group, for each round."""
        found, left = [], self.size
        while left >= self.radix:
            found.append(self.radix)
            left //= self.radix
        return (*found, left) if left > 1 else tuple(found)

    @property
    def extras(self) -> int:
        """Return e, the number of ranks that only exchange a token with their proxy."""
        return self.size - int(np.prod(self.groups))

    @property
    def length(self) -> int:
        return len(self.groups) + 2 * (self.extras > 0)

    def moves(self, bounds: Ints, member: int | None = None) -> Moves:
        extras = self.extras
        virtual = np.arange(self.size - extras)
        proxy = 2 * np.arange(extras)
        ends = {"first": 0, "last": 1, "fold": Fold.STORE}
        parts = [Moves.of(bounds, step=0, src=proxy + 1, dst=proxy, **ends)]
        distance = 1
        for number, group in enumerate(self.groups):
            place = virtual // distance % group
            other = (place + np.arange(1, group)[:, None]) % group
            partner = virtual + (other - place) * distance
            src, dst = (np.where(v < extras, 2 * v, v + extras) for v in (virtual, partner))
            parts.append(Moves.of(bounds, step=number + (extras > 0), src=src, dst=dst, **ends))
            distance *= group
        parts.append(Moves.of(bounds, step=self.length - 1, src=proxy, dst=proxy + 1, **ends))
        return Moves.join(*parts)


def tokens(pattern: Callable[[int], Pattern], request: ScheduleRequest) -> PlannedSchedule:
    """Return the plan of a barrier whose empty messages follow one pattern."""
    return request.in_place(_phase(pattern(request.size)))


def counter(request: ScheduleRequest) -> PlannedSchedule:
    """Return a plan in which rank 0 waits for a message of every rank, and then releases all ranks (collectives.md
    §5)."""
    up, down = Star(request.size, up=True, at_once=True), Star(request.size, up=False, at_once=True)
    return request.in_place(_phase(up), _phase(down, first=up.length))


def service(request: ScheduleRequest) -> PlannedSchedule:
    """Return the plan of an all_reduce of one element that is 0 on all ranks. A rank that has the sum knows that all
    ranks have entered."""
    part = PatternPhase(RecursiveDoubling(request.size), everyone(request.size), np.array([[0, 1]]), Buffer.SCRATCH)
    return PlannedSchedule(request.op, request.algorithm, request.size, lambda _: Counts(0, 0, 1), (part,))


def _phase(pattern: Pattern, first: int = 0) -> PatternPhase:
    """Return a pattern with messages of no bytes."""
    return PatternPhase(pattern, everyone(pattern.size), np.zeros((1, pattern.blocks + 1), dtype=np.int32), first=first)
