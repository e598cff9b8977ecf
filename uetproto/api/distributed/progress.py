"""Time passes while no rank can go on; and what is told when nothing goes on any more (collectives.md §1.5)."""

import copy
from collections.abc import Callable
from typing import TYPE_CHECKING

from uetproto.api.distributed.deadlock import explain
from uetproto.api.distributed.errors import Wait
from uetproto.api.distributed.waiting import POLLS
from uetproto.errors import UetError

if TYPE_CHECKING:
    from uetproto.api.distributed.world import World


class Progress:
    """What happens next in a world, be it in its network or by its timers."""

    def __init__(self, world: "World") -> None:
        self._world = world
        self.idle_polls = 0
        """Looks in vain while nothing was under way."""

    def pass_time(self) -> bool:
        """No rank can go on: lets time pass until one can. False: never (which cannot be while one waits)."""
        ready = self._world.ranks.ready
        while not ready:
            if not self._next(lambda: bool(ready)):
                self._fail_all(self._stuck())
                return bool(ready)
        return True

    def _next(self, ready: Callable[[], bool]) -> bool:
        """What happens next, in the network or of the timers; False: nothing does by itself."""
        network, timers = self._world.network, self._world.timers
        if timers.fire(network.now):
            return True
        instant = timers.next
        idle = network.run(lambda: ready() or timers.next != instant, instant)
        if ready() or timers.next != instant:
            return True
        if idle and not timers.vital:
            if not any(seat.polling for seat in self._world.seats) or self.idle_polls >= POLLS:
                return False
            self.idle_polls += 1
        if instant is not None:
            network.advance(instant)
        return True

    def _stuck(self) -> UetError:
        """Why nothing goes on."""
        waits, finished = [], {rank.number for rank in self._world.ranks.members if rank.finished}
        for seat in self._world.seats:
            for work in [seat.blocked] if seat.blocked is not None else list(seat.open):
                needs, why = work.needs()
                waits.append(Wait(seat.number, work.name, needs, why))
        for group in self._world.made:
            for meeting in group.meetings:
                error = meeting.mismatch()
                if error is not None:
                    return error
        failures = {seat.number: seat.failure for seat in self._world.seats if seat.failure is not None}
        return explain(waits, finished, failures)

    def _fail_all(self, error: UetError) -> None:
        """Of the operations that wait, every one has the same explanation."""
        for seat in self._world.seats:
            for work in tuple(seat.open):
                if work.needs()[0]:
                    work.fail(error)
        for seat in self._world.seats:
            if seat.blocked is not None and not seat.blocked.done:
                seat.blocked.fail(error)

    def drain(self) -> UetError | None:
        """All programs have returned: what they left behind ends, or never will."""
        left = [work for seat in self._world.seats for work in seat.open]
        while any(not work.done for work in left):
            if not self._next(lambda: all(work.done for work in left)):
                error = self._stuck()
                self._fail_all(error)
                return error
        seats = self._world.seats
        return next((copy.copy(seat.failure) for seat in seats if seat.failure is not None and not seat.told), None)


__all__ = ["Progress"]
