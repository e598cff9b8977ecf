"""Programs wait for operations, look whether they are done, and let time pass (collectives.md §1.2)."""

from typing import TYPE_CHECKING

from uetproto.api.distributed.rank_state import Seat
from uetproto.api.distributed.ranks import current
from uetproto.api.distributed.work import Work
from uetproto.errors import LocalError

if TYPE_CHECKING:
    from uetproto.api.distributed.world import World

POLL = 10**6
"""Picoseconds that a look at an operation takes: a program that polls lets time pass."""
POLLS = 1000
"""Looks in vain, while nothing is under way, until a poll counts as waiting for ever; looks at the clock until they
take time."""


class Waiting:
    """The waits of all ranks of a world."""

    def __init__(self, world: "World") -> None:
        self._world = world

    def wait_for(self, work: Work, timeout: int | None) -> None:
        """`Work.wait`. Raises what made it fail."""
        seat = self._own(work)
        if self._world.streams and timeout is None and work in seat.inner:
            seat.stream = [*seat.stream, work]
            return
        self._block(work, timeout)
        if work.error is not None:
            work.seat.told = True
            raise work.error

    def synchronize(self, seat: Seat) -> None:
        """Waits until all that this rank has queued is done; raises what failed."""
        for work in [*seat.open, *seat.stream, *seat.inner]:
            self._block(work, None)
            if work.error is not None:
                seat.told = True
                raise work.error

    def block(self, work: Work) -> None:
        """Waits for it, in stream mode too. Raises what made it fail."""
        if not work.done:
            work.seat.open[work] = None
        self._block(work, None)
        if work.error is not None:
            work.seat.told = True
            raise work.error

    def _block(self, work: Work, timeout: int | None) -> None:
        seat = work.seat
        if work.done:
            return
        seat.looks = 0
        timer = None
        if timeout is not None:
            timer = self._world.timers.at(self._world.now + timeout, lambda: work.expire(timeout))
        seat.blocked = work
        while not work.done:
            self._world.ranks.pause(seat.rank)
        seat.blocked = None
        if timer is not None:
            self._world.timers.cancel(timer)

    def poll(self, work: Work) -> bool:
        """`Work.is_completed`."""
        self._own(work)
        return work.done or self._world.streams or self.look(work)

    def look(self, work: Work) -> bool:
        """Whether an operation is done, after the time that asking takes."""
        seat = self._own(work)
        seat.looks = 0
        seat.polling = True
        seat.blocked = work
        world = self._world
        timer = world.timers.at(world.now + POLL, lambda: world.ranks.wake(seat.rank), vital=False)
        world.ranks.pause(seat.rank)
        world.timers.cancel(timer)
        seat.polling = False
        seat.blocked = None
        return work.done

    def seen_failed(self, work: Work) -> None:
        """Raises what made it fail if its program still hopes for success, look after look."""
        work.seat.looks += 1
        if work.seat.looks > POLLS and work.error is not None:
            raise work.error

    def sleep(self, duration: int) -> None:
        """Lets time pass for this rank."""
        self._world.seat().looks = 0
        self._sleep(duration)

    def _sleep(self, duration: int) -> None:
        world, rank = self._world, self._world.seat().rank
        world.timers.at(world.now + duration, lambda: world.ranks.wake(rank))
        world.ranks.pause(rank)

    def clock(self, seat: Seat) -> int:
        """`dist.now`. Looking takes no time, but a program that only looks, until an instant has come, lets it pass."""
        seat.looks += 1
        if seat.looks > POLLS:
            self._sleep(POLL * (seat.looks // POLLS))  # longer and longer, so that it comes to any instant
        return self._world.now

    def _own(self, work: Work) -> Seat:
        if current().number != work.seat.number or work.seat not in self._world.seats:
            raise LocalError(
                f"{work.name}: is of rank {work.seat.number}; legal: its own rank waits for it, in its run"
            )
        return work.seat


__all__ = ["POLL", "POLLS", "Waiting"]
