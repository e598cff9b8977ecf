# SPDX-License-Identifier: GPL-2.0-only
"""This module matches the collective calls of a group's ranks by position: the n-th calls of all ranks form one
collective, which begins when all ranks have made this call with matching arguments (collectives.md §1.4)."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from uetproto.api.distributed.errors import AbortedError, ArgumentError, CollectiveMismatchError, DeadlockError
from uetproto.api.distributed.planner import Call, RankGroup
from uetproto.api.distributed.work import Work
from uetproto.collectives.dtypes import Array
from uetproto.collectives.offload import CollectivePart, Ended
from uetproto.errors import LocalError, UetError


@dataclass(slots=True)
class _Participant:
    """A rank that has joined, its call and its part."""

    work: Work
    call: Call
    part: CollectivePart | None = None


@dataclass(slots=True)
class CollectiveMatch:
    """This class represents one collective of a group. The collective begins when all ranks of the group have joined it
    with matching arguments."""

    group: RankGroup
    sequence: int
    error: UetError | None = None
    _participants: dict[int, _Participant] = field(default_factory=dict)
    """Maps the group rank of each rank that has joined to its `_Participant`."""
    _ended: int = 0

    def join(self, work: Work, call: Call) -> None:
        """Add a rank's call to the collective, which begins when the call of the last rank is added."""
        self._participants[self.group.places[work.rank]] = _Participant(work, call)
        work.needs = self._needs
        work.withdraw = self.abort
        work.then.append(self._left)
        dead = self.group.world.dead(self._missing())
        if self.error is None and dead is not None:
            self.abort(dead)
        elif self.error is not None:
            work.fail(self.error)
        elif len(self._participants) == len(self.group.ranks):
            self._start()

    @property
    def absent(self) -> tuple[int, ...]:
        """Return the global ranks of the group that have not joined the collective."""
        return tuple(self._missing())

    def _missing(self) -> Iterator[int]:
        return (rank for place, rank in enumerate(self.group.ranks) if place not in self._participants)

    def abort(self, error: UetError) -> None:
        """Fail the collective on all ranks, also on those that join later."""
        if self.error is not None:
            return
        rank = next((each.work.rank for each in self._participants.values() if each.work.error is not None), None)
        if rank is not None and not isinstance(error, _COMMON_ERRORS):
            error = AbortedError(f"rank {rank} failed in its {self._op} #{self.sequence}: {error}", id="aborted")
        self.error = error
        for each in sorted(self._participants.values(), key=lambda each: each.work.rank):
            if each.part is not None and not each.part.ended:
                each.part.fail(error)
            each.work.fail(error)

    def _left(self) -> None:
        self._ended += 1
        if self._ended == len(self.group.ranks):
            self.group.left(self.sequence)

    @property
    def _op(self) -> str:
        return next(iter(self._participants.values())).call.shown["op"]  # type: ignore[no-any-return]

    def _needs(self) -> tuple[tuple[int, ...], str]:
        absent = self.absent
        if not absent:
            return (), "is under way"
        return absent, f"waits for {'rank' if len(absent) == 1 else 'ranks'} {', '.join(map(str, absent))} to join"

    def mismatch(self) -> CollectiveMismatchError | None:
        """Compare the arguments of the ranks that have joined. Return the error for the first argument that differs, or
        None if all arguments are equal.

        The value that most ranks gave counts as the right one.
        """
        ranks = self.group.ranks
        joined = sorted(self._participants.items())
        where = f"collective #{self.sequence} of group {self.group.number}"
        for name in dict.fromkeys(name for _, each in joined for name in each.call.shown):
            given = [(place, each.call.shown.get(name)) for place, each in joined]
            values = [value for _, value in given]
            common = max(values, key=values.count)
            for place, value in given:
                if value != common:
                    other = ranks[next(place for place, value in given if value == common)]
                    text = f"{name} is {_shown(value)} on rank {ranks[place]}, {_shown(common)} on rank {other}"
                    return CollectiveMismatchError(f"{where}: {text}", id="collective-mismatch")
        for place, each in joined:
            for peer, count in enumerate(each.call.sends or ()):
                takes = self._participants[peer].call.takes if peer in self._participants else None
                if takes is not None and takes[place] != count:
                    text = f"rank {ranks[place]} sends {count} elements to rank {ranks[peer]}"
                    return CollectiveMismatchError(
                        f"{where}: splits: {text}, which awaits {takes[place]}", id="collective-mismatch"
                    )
        return None

    def _start(self) -> None:
        error = self.mismatch()
        if error is not None:
            self.abort(error)
            return
        joined = [each for _, each in sorted(self._participants.items())]
        try:
            make = self.group.world.planner.maker(self.group, self.sequence, [each.call for each in joined])
        except LocalError as wrong:
            self.abort(
                ArgumentError(f"{self._op} #{self.sequence}: {wrong.name}", wrong.value, wrong.legal, id=wrong.id)
            )
            return
        for place, each in enumerate(joined):
            input_, output = each.call.prepare()
            each.part = make(place, input_, output, self._done(each, output))
        for each in self._participants.values():
            if each.part is not None and self.error is None:
                each.part.start()

    def _done(self, participant: _Participant, output: Array) -> Ended:
        def done(error: UetError | None) -> None:
            if participant.part is not None:
                participant.work.counted = participant.part.counted
            if error is not None:
                participant.work.fail(error)
                return
            if participant.call.finish is not None:
                participant.call.finish(output)
            participant.work.finish()

        return done


_COMMON_ERRORS = (AbortedError, CollectiveMismatchError, DeadlockError)
"""Errors whose text is the same on all ranks."""


def _shown(value: Any) -> str:
    return "none" if value is None else str(value)
