"""Collectives: the ranks of a group meet by position, and begin when all ask for the same (collectives.md §1.4)."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from uetproto.api.distributed_errors import AbortedError, ArgumentError, CollectiveMismatchError, DeadlockError
from uetproto.api.distributed_work import Work
from uetproto.collectives.catalogue import schedule
from uetproto.collectives.dtypes import Array
from uetproto.collectives.reduce_ops import ReduceOp
from uetproto.collectives.runner import Execution
from uetproto.errors import LocalError, UetError

if TYPE_CHECKING:
    from uetproto.api.distributed_group import ProcessGroup


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
class _Part:
    """One rank at a meeting."""

    work: Work
    call: Call
    execution: Execution | None = None


@dataclass(slots=True)
class Meeting:
    """The ranks of a group at one collective: it begins when all have come and ask for the same."""

    group: "ProcessGroup"
    sequence: int
    error: UetError | None = None
    _parts: dict[int, _Part] = field(default_factory=dict)
    _ended: int = 0

    def join(self, work: Work, call: Call) -> None:
        """A rank has come."""
        place = self.group.places[work.seat.number]
        self._parts[place] = _Part(work, call)
        work.needs = self._needs
        work.withdraw = self.abort
        work.then.append(self._left)
        world = self.group.world
        dead = world.dead(self.absent) if world.errors else None
        if self.error is None and dead is not None:
            self.abort(dead)
        elif self.error is not None:
            work.fail(self.error)
        elif len(self._parts) == len(self.group.ranks):
            self._start()

    @property
    def absent(self) -> tuple[int, ...]:
        """Global ranks that have not come."""
        return tuple(rank for place, rank in enumerate(self.group.ranks) if place not in self._parts)

    def abort(self, error: UetError) -> None:
        """It fails at all ranks, those that are yet to come too."""
        if self.error is not None:
            return
        rank = next((p.work.seat.number for p in self._parts.values() if p.work.error is not None), None)
        if rank is not None and not isinstance(error, _TOLD_AS_IT_IS):
            error = AbortedError(f"rank {rank} failed in its {self._op} #{self.sequence}: {error}")
        self.error = error
        for part in sorted(self._parts.values(), key=lambda part: part.work.seat.number):
            if part.execution is not None and not part.execution.ended:
                part.execution.fail(error)
            part.work.fail(error)

    def _left(self) -> None:
        self._ended += 1
        if self._ended == len(self.group.ranks):
            self.group.left(self)

    @property
    def _op(self) -> str:
        return next(iter(self._parts.values())).call.shown["op"]  # type: ignore[no-any-return]

    def _needs(self) -> tuple[tuple[int, ...], str]:
        absent = self.absent
        if not absent:
            return (), "is under way"
        return absent, f"waits for {'rank' if len(absent) == 1 else 'ranks'} {', '.join(map(str, absent))} to join"

    def mismatch(self) -> CollectiveMismatchError | None:
        """The first difference between those that have come: the majority is right."""
        ranks = self.group.ranks
        parts = sorted(self._parts.items())
        where = f"collective #{self.sequence} of group {self.group.number}"
        for name in dict.fromkeys(name for _, part in parts for name in part.call.shown):
            told = [(place, part.call.shown.get(name)) for place, part in parts]
            values = [value for _, value in told]
            usual = max(values, key=values.count)
            for place, value in told:
                if value != usual:
                    other = ranks[next(place for place, value in told if value == usual)]
                    text = f"{name} is {_shown(value)} on rank {ranks[place]}, {_shown(usual)} on rank {other}"
                    return CollectiveMismatchError(f"{where}: {text}")
        for place, part in parts:
            for peer, count in enumerate(part.call.sends or ()):
                takes = self._parts[peer].call.takes if peer in self._parts else None
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
        world = self.group.world
        call = self._parts[0].call
        splits = None
        if len({count for part in self._parts.values() for count in part.call.sends or ()}) > 1:
            splits = [self._parts[place].call.sends or () for place in range(len(self._parts))]
        try:
            plan = schedule(
                call.op, call.algorithm, len(self.group.ranks), call.count, root=call.root or 0,
                nodes=world.nodes_of(self.group), sizes=call.sizes, splits=splits,
            )  # fmt: skip
        except LocalError as error:
            self.abort(ArgumentError(f"{call.shown['op']} #{self.sequence}: {error}"))
            return
        for place in range(len(self._parts)):
            part = self._parts[place]
            input_, output = part.call.prepare()
            part.execution = Execution(
                plan, place, world.end(self.group.ranks[place]), input=input_, output=output, op=call.reduce_op,
                ranks=self.group.ranks, group=self.group.number, sequence=self.sequence, pool=world.pool,
                gamma=world.gamma, done=self._done(part, output),
            )  # fmt: skip
        for part in self._parts.values():
            if part.execution is not None and self.error is None:
                part.execution.start()

    def _done(self, part: _Part, output: Array) -> Callable[[UetError | None], None]:
        def done(error: UetError | None) -> None:
            if part.execution is not None:
                part.work.counted = part.execution.counted
            if error is not None:
                part.work.fail(error)
                return
            if part.call.finish is not None:
                part.call.finish(output)
            part.work.finish()

        return done


_TOLD_AS_IT_IS = (AbortedError, CollectiveMismatchError, DeadlockError)
"""Errors that are the same for all ranks."""


def _shown(value: Any) -> str:
    return "none" if value is None else str(value)


__all__ = ["Call", "Meeting"]
