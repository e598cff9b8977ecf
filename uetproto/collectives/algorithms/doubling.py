# SPDX-License-Identifier: GPL-2.0-only
"""This module plans recursive doubling and halving: ranks exchange data with partners at distances of powers of two
(collectives.md §3.5)."""

from dataclasses import dataclass

import numpy as np

from uetproto.collectives.algorithms import chunks
from uetproto.collectives.algorithms.pattern import Moves, Pattern, Table, steps_for
from uetproto.collectives.algorithms.plan import PlannedSchedule
from uetproto.collectives.algorithms.request import ScheduleRequest, around, rotation
from uetproto.collectives.algorithms.schedule import Buffer, Counts, Fold, Ints, Local, LocalWork
from uetproto.collectives.arrays import MessageColumns
from uetproto.errors import LocalError


@dataclass(frozen=True, slots=True)
class Folding:
    """This class maps N ranks to the N' ranks that take part in recursive doubling. N' is the largest power of two up
    to N, and e = N - N'.

    Of the first 2e ranks the odd ones are extras. Each extra sends its vector to its proxy, the even rank before it.
    The ranks that are no extras are numbered as virtual ranks 0 … N'-1.
    """

    size: int

    @property
    def rounds(self) -> int:
        """Return K, the number of exchanges. 2^K ranks take part in them."""
        return self.size.bit_length() - 1

    @property
    def members(self) -> int:
        """Return N', the number of ranks that take part in the exchanges."""
        return 1 << self.rounds

    @property
    def extras(self) -> int:
        """Return e, the number of ranks that take part only through their proxies."""
        return self.size - self.members

    def rank(self, virtual: Ints) -> Ints:
        """Return the rank whose virtual rank is `virtual`."""
        return np.where(virtual < self.extras, 2 * virtual, virtual + self.extras)

    def into_proxies(self, bounds: Ints) -> Moves:
        """Return the messages of step 0, in which the extras send their vectors to their proxies."""
        proxy, blocks = 2 * np.arange(self.extras), bounds.shape[1] - 1
        return Moves.of(bounds, step=0, src=proxy + 1, dst=proxy, first=0, last=blocks, fold=Fold.OWN_FIRST)

    def from_proxies(self, bounds: Ints, step: int, first: Ints | int, last: Ints | int) -> Moves:
        """Return the messages of the last step, in which the proxies send the results to their extras."""
        proxy = 2 * np.arange(self.extras)
        return Moves.of(bounds, step=step, src=proxy, dst=proxy + 1, first=first, last=last, fold=Fold.STORE)


def _lower_first(sender: Ints, receiver: Ints) -> Ints:
    """Return how each receiver combines the vectors. The lower rank's operand comes first, so that both partners
    compute the same bits."""
    return np.where(sender < receiver, Fold.INCOMING_FIRST, Fold.OWN_FIRST)


@dataclass(frozen=True, slots=True)
class RecursiveDoubling(Pattern):
    """This pattern exchanges the full vector in each step. The distance of the partner doubles from one step to the
    next."""

    size: int

    @property
    def length(self) -> int:
        folding = Folding(self.size)
        return folding.rounds + 2 * (folding.extras > 0)

    def moves(self, bounds: Ints, member: int | None = None) -> Moves:
        folding = Folding(self.size)
        virtual = np.arange(folding.members)
        k = np.arange(folding.rounds)[:, None]
        partner = virtual ^ (1 << k)
        return Moves.join(
            folding.into_proxies(bounds),
            Moves.of(
                bounds, step=k + (folding.extras > 0), src=folding.rank(virtual), dst=folding.rank(partner),
                first=0, last=1, fold=_lower_first(virtual, partner),
            ),
            folding.from_proxies(bounds, self.length - 1, 0, 1),
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class HalvingDoubling(Pattern):
    """This pattern has two phases. In the first phase each step halves the range of blocks that a rank works on, until
    each rank has reduced its part. In the second phase each step doubles the range, until each rank has all parts.

    In all_reduce (Rabenseifner) each of the 2^K virtual ranks has a block. If reduce_scatter or all_gather runs alone
    (`own_blocks`), each of the N ranks has a block, and a proxy works on two blocks.
    """

    size: int
    reduces: bool = True
    gathers: bool = True
    own_blocks: bool = False

    @property
    def blocks(self) -> int:
        return self.size if self.own_blocks else Folding(self.size).members

    @property
    def length(self) -> int:
        folding = Folding(self.size)
        return folding.rounds * (self.reduces + self.gathers) + (folding.extras > 0) * (1 + self.reduces)

    def moves(self, bounds: Ints, member: int | None = None) -> Moves:
        folding = Folding(self.size)
        parts = []
        step = 0
        if self.reduces:
            parts.append(folding.into_proxies(bounds))
            step += folding.extras > 0
            distance = folding.members >> (1 + np.arange(folding.rounds)[:, None])
            parts.append(self._exchange(bounds, step, distance, keeps_own=False))
            step += folding.rounds
        if self.gathers:
            parts.append(self._exchange(bounds, step, 1 << np.arange(folding.rounds)[:, None], keeps_own=True))
            step += folding.rounds
        proxy = 2 * np.arange(folding.extras)
        first, last = (0, self.blocks) if self.gathers else (proxy + 1, proxy + 2)
        return Moves.join(*parts, folding.from_proxies(bounds, step, first, last))

    def _exchange(self, bounds: Ints, step: int, distance: Ints, *, keeps_own: bool) -> Moves:
        """Return the exchanges. In halving, a rank sends the half of its range that its partner keeps; in doubling, it
        sends its own range."""
        folding = Folding(self.size)
        virtual = np.arange(folding.members)
        partner = virtual ^ distance
        side = (virtual if keeps_own else partner) // distance * distance
        first, last = (
            (folding.rank(side), folding.rank(side + distance)) if self.own_blocks else (side, side + distance)
        )
        return Moves.of(
            bounds, step=step + np.arange(folding.rounds)[:, None],
            src=folding.rank(virtual), dst=folding.rank(partner),
            first=first, last=last, fold=Fold.STORE if keeps_own else _lower_first(virtual, partner),
        )  # fmt: skip


def doubling(request: ScheduleRequest) -> PlannedSchedule:
    """Return the plan of recursive doubling. It takes the fewest steps and sends the most bytes, so that it suits short
    vectors."""
    return request.in_place(request.phase(RecursiveDoubling(request.size)))


def halving_doubling(request: ScheduleRequest) -> PlannedSchedule:
    """Return Rabenseifner's plan. It sends as few bytes as the ring, and takes 2 lg N steps (collectives.md §0.1)."""
    pattern = HalvingDoubling(request.size)
    return request.in_place(request.phase(pattern, bounds=chunks.bounds(request.count, pattern.blocks)))


def reduce_scatter(request: ScheduleRequest) -> PlannedSchedule:
    """Return the plan of the first half of `halving_doubling`, which is a reduce_scatter."""
    return request.reduce_scatter(
        request.phase(HalvingDoubling(request.size, gathers=False, own_blocks=True), Buffer.SCRATCH)
    )


def all_gather(request: ScheduleRequest) -> PlannedSchedule:
    """Return the plan of the second half of `halving_doubling`, which is an all_gather. Raises `LocalError` if the
    number of ranks is no power of two."""
    if Folding(request.size).extras:
        raise LocalError(
            "size", f"{request.size} is no power of two", "powers of two; for any size: bruck, ring", id="uneven-split"
        )
    return request.all_gather(request.phase(HalvingDoubling(request.size, reduces=False, own_blocks=True)))


def bruck_all_gather(request: ScheduleRequest) -> PlannedSchedule:
    """Return Bruck's plan of all_gather. In SCRATCH, each rank collects first its own block, and then the blocks of
    the following ranks, modulo N. A rotation at the end restores the order of the blocks."""
    size, bounds = request.size, request.bounds
    around_twice = np.concatenate(
        [bounds, bounds[1:] + np.int64(request.count)]
    )  # the blocks of ranks r .. r+i are one contiguous range
    rounds = steps_for(size)

    def table(rank: int | None) -> MessageColumns:
        src = np.arange(size)
        distance = 1 << np.arange(rounds)[:, None]
        held = np.minimum(distance, size - distance)
        dst = (src - distance) % size
        return MessageColumns.of(
            step=np.arange(rounds)[:, None], src=src, dst=dst,
            buffer=Buffer.SCRATCH, start=0, count=around_twice[src + held] - around_twice[src],
            target_buffer=Buffer.SCRATCH, target=around_twice[dst + distance] - around_twice[dst], fold=Fold.STORE,
        )  # fmt: skip

    def counts(rank: int) -> Counts:
        return Counts(int(bounds[rank + 1] - bounds[rank]), request.count, request.count)

    def work(rank: int) -> dict[int, LocalWork]:
        own = Local(Buffer.INPUT, 0, Buffer.SCRATCH, 0, counts(rank).input)
        return around(
            rounds - 1, before=(own,), after=rotation(Buffer.SCRATCH, Buffer.OUTPUT, request.count, -int(bounds[rank]))
        )

    return PlannedSchedule(request.op, request.algorithm, size, counts, (Table(rounds, table),), work)
