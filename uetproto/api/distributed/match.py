"""Collectives: the ranks of a group meet by position, and begin when all ask for the same (collectives.md §1.4)."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from uetproto.api.distributed.errors import AbortedError, ArgumentError, CollectiveMismatchError, DeadlockError
from uetproto.api.distributed.work import Work
from uetproto.collectives.algorithms.catalogue import HIERARCHICAL, schedule
from uetproto.collectives.dtypes import Array
from uetproto.collectives.offload import Asked, Ended, Make, Part
from uetproto.collectives.reduce_ops import ReduceOp
from uetproto.collectives.runner import Execution
from uetproto.errors import LocalError, UetError

if TYPE_CHECKING:
    from uetproto.api.distributed.group import ProcessGroup


@dataclass(slots=True, kw_only=True)
class Call:
    """What one rank asks of a collective."""

    op: str
    """Of the catalogue."""
    dtype: np.dtype[Any]
    count: int
    """Elements of the full vector."""
    prepare: Callable[[], tuple[Array, Array]]
    """INPUT and OUTPUT, as the call begins: contiguous."""
    shown: dict[str, Any]
    """The fingerprint: what has to be the same on all ranks, by name (§1.4)."""
    finish: Callable[[Array], None] | None = None
    """Is given OUTPUT at the end."""
    root: int | None = None
    reduce_op: ReduceOp | None = None
    algorithm: str = ""
    sizes: tuple[int, ...] | None = None
    sends: tuple[int, ...] | None = None
    """Of all_to_all: elements to each rank."""
    takes: tuple[int, ...] | None = None
    """And from each rank."""


@dataclass(slots=True)
class _Guest:
    """One rank at a meeting."""

    work: Work
    call: Call
    part: Part | None = None


@dataclass(slots=True)
class Meeting:
    """The ranks of a group at one collective: it begins when all have come and ask for the same."""

    group: "ProcessGroup"
    sequence: int
    error: UetError | None = None
    _guests: dict[int, _Guest] = field(default_factory=dict)
    _ended: int = 0

    def join(self, work: Work, call: Call) -> None:
        """A rank has come."""
        place = self.group.places[work.seat.number]
        self._guests[place] = _Guest(work, call)
        work.needs = self._needs
        work.withdraw = self.abort
        work.then.append(self._left)
        world = self.group.world
        dead = world.dead(self.absent) if world.errors else None
        if self.error is None and dead is not None:
            self.abort(dead)
        elif self.error is not None:
            work.fail(self.error)
        elif len(self._guests) == len(self.group.ranks):
            self._start()

    @property
    def absent(self) -> tuple[int, ...]:
        """Global ranks that have not come."""
        return tuple(rank for place, rank in enumerate(self.group.ranks) if place not in self._guests)

    def abort(self, error: UetError) -> None:
        """It fails at all ranks, those that are yet to come too."""
        if self.error is not None:
            return
        rank = next((g.work.seat.number for g in self._guests.values() if g.work.error is not None), None)
        if rank is not None and not isinstance(error, _TOLD_AS_IT_IS):
            error = AbortedError(f"rank {rank} failed in its {self._op} #{self.sequence}: {error}")
        self.error = error
        for guest in sorted(self._guests.values(), key=lambda guest: guest.work.seat.number):
            if guest.part is not None and not guest.part.ended:
                guest.part.fail(error)
            guest.work.fail(error)

    def _left(self) -> None:
        self._ended += 1
        if self._ended == len(self.group.ranks):
            self.group.left(self)

    @property
    def _op(self) -> str:
        return next(iter(self._guests.values())).call.shown["op"]  # type: ignore[no-any-return]

    def _needs(self) -> tuple[tuple[int, ...], str]:
        absent = self.absent
        if not absent:
            return (), "is under way"
        return absent, f"waits for {'rank' if len(absent) == 1 else 'ranks'} {', '.join(map(str, absent))} to join"

    def mismatch(self) -> CollectiveMismatchError | None:
        """The first difference between those that have come: the majority is right."""
        ranks = self.group.ranks
        guests = sorted(self._guests.items())
        where = f"collective #{self.sequence} of group {self.group.number}"
        for name in dict.fromkeys(name for _, guest in guests for name in guest.call.shown):
            told = [(place, guest.call.shown.get(name)) for place, guest in guests]
            values = [value for _, value in told]
            usual = max(values, key=values.count)
            for place, value in told:
                if value != usual:
                    other = ranks[next(place for place, value in told if value == usual)]
                    text = f"{name} is {_shown(value)} on rank {ranks[place]}, {_shown(usual)} on rank {other}"
                    return CollectiveMismatchError(f"{where}: {text}")
        for place, guest in guests:
            for peer, count in enumerate(guest.call.sends or ()):
                takes = self._guests[peer].call.takes if peer in self._guests else None
                if takes is not None and takes[place] != count:
                    text = f"rank {ranks[place]} sends {count} elements to rank {ranks[peer]}"
                    return CollectiveMismatchError(f"{where}: splits: {text}, which awaits {takes[place]}")
        return None

    def _start(self) -> None:
        """All have come."""
        error = self.mismatch()
        if error is not None:
            self.abort(error)
            return
        try:
            make = self._maker()
        except LocalError as error:
            self.abort(ArgumentError(f"{self._op} #{self.sequence}: {error}"))
            return
        for place, guest in sorted(self._guests.items()):
            input_, output = guest.call.prepare()
            guest.part = make(place, input_, output, self._done(guest, output))
        for guest in self._guests.values():
            if guest.part is not None and self.error is None:
                guest.part.start()

    def _maker(self) -> Make:
        """What makes the part of each rank: the network, if the algorithm is its own, else a schedule."""
        call, network = self._guests[0].call, self.group.world.network
        own = network.offload.algorithms.get(call.op, ()) if network.offload is not None else ()
        if network.offload is None or call.algorithm not in own:
            return self._by_schedule(call)
        return network.offload.maker(Asked(
            op=call.op, algorithm=call.algorithm, ranks=self.group.ranks, group=self.group.mark,
            sequence=self.sequence, dtype=call.dtype, count=call.count, root=call.root or 0,
            reduce_op=call.reduce_op, sizes=call.sizes, nodes=self.group.world.nodes_of(self.group),
            sockets=self.group.world.options.get("sockets", 1),
        ))  # fmt: skip

    def _by_schedule(self, call: Call) -> Make:
        """Raises `LocalError` if there is none."""
        group, world = self.group, self.group.world
        splits = None
        if len({count for guest in self._guests.values() for count in guest.call.sends or ()}) > 1:
            splits = [self._guests[place].call.sends or () for place in range(len(self._guests))]
        plan = schedule(
            call.op, call.algorithm, len(group.ranks), call.count, root=call.root or 0,
            nodes=world.nodes_of(group) if call.algorithm in HIERARCHICAL else None, sizes=call.sizes, splits=splits,
            **world.options,
        )  # fmt: skip

        def make(place: int, input_: Array, output: Array, done: Ended) -> Part:
            return Execution(
                plan, place, world.end(group.ranks[place]), input=input_, output=output, op=call.reduce_op,
                ranks=group.ranks, group=group.mark, sequence=self.sequence, pool=world.pool, gamma=world.gamma,
                done=done,
            )  # fmt: skip

        return make

    def _done(self, guest: _Guest, output: Array) -> Ended:
        def done(error: UetError | None) -> None:
            if guest.part is not None:
                guest.work.counted = guest.part.counted
            if error is not None:
                guest.work.fail(error)
                return
            if guest.call.finish is not None:
                guest.call.finish(output)
            guest.work.finish()

        return done


_TOLD_AS_IT_IS = (AbortedError, CollectiveMismatchError, DeadlockError)
"""Errors that are the same for all ranks."""


def _shown(value: Any) -> str:
    return "none" if value is None else str(value)


__all__ = ["Call", "Meeting"]
