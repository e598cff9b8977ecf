"""Operations begin and end: at once, or in stream mode when those before them in their stream are done (§1.2)."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from uetproto.api.distributed.errors import invalid
from uetproto.api.distributed.rank_state import Event, Seat
from uetproto.api.distributed.tensors import Watch
from uetproto.api.distributed.work import Work
from uetproto.collectives.dtypes import Array
from uetproto.collectives.runner import Counted

if TYPE_CHECKING:
    from uetproto.api.distributed.world import World


class Operations:
    """The operations of all ranks of a world."""

    def __init__(self, world: "World") -> None:
        self._world = world

    def check_free(self, seat: Seat, arrays: Sequence[Array]) -> None:
        """Raises `ArgumentError` if an operation under way writes into one of these, which are to be written into."""
        for work in () if self._world.streams else seat.open:
            for watch in work.watches:
                if not watch.read and any(np.may_share_memory(watch.array, array) for array in arrays):
                    raise invalid("tensor", f"shares memory with one of {work.name}", "wait() for that first")

    def issue(
        self, work: Work, begin: Callable[[], None], *, wait: bool, watched: Sequence[tuple[Array, bool]] = ()
    ) -> Work | None:
        """Begins an operation, now or, in stream mode, when its stream comes to it; returns it unless it is to wait.

        `watched`: tensors in use meanwhile, and whether they are only read.
        """
        seat = work.seat
        seat.open[work] = None
        seat.looks = 0
        self._world.progress.idle_polls = 0
        self._trace(work, "posted")

        def start() -> None:
            if work.done:
                return
            if not wait:
                work.watches = [Watch(array, read, seat.locks) for array, read in watched]
            world, timeout = self._world, work.group.timeout
            work.patience = world.timers.at(world.now + timeout, lambda: work.expire(timeout), vital=False)
            begin()

        if not self._world.streams:
            start()
            if not wait:
                return work
            self._world.waiting.wait_for(work, None)
            return None
        before = dict.fromkeys(seat.stream if wait else [*seat.stream, *seat.inner])
        if wait:
            seat.stream = [work]
        else:
            seat.inner = [work]
        self._after(work, [other for other in before if not other.done or other.error], start)
        return None if wait else work

    def _after(self, work: Work, before: list[Work], start: Callable[[], None]) -> None:
        """Stream mode: starts an operation when others are done; it fails with them."""
        failed = next((other.error for other in before if other.error is not None), None)
        if failed is not None:
            work.fail(failed)
            return
        waiting = [other for other in before if not other.done]
        if not waiting:
            start()
            return
        work.needs = lambda: next((other.needs() for other in waiting if not other.done), ((), "is under way"))

        def one_done() -> None:
            if work.done:
                return
            failed = next((other.error for other in waiting if other.error is not None), None)
            if failed is not None:
                work.fail(failed)
            elif all(other.done for other in waiting):
                start()

        for other in waiting:
            other.then.append(one_done)

    def ended(self, work: Work) -> None:
        """An operation is done, or has failed."""
        seat = work.seat
        seat.open.pop(work, None)
        self._world.progress.idle_polls = 0
        if work.patience is not None:
            self._world.timers.cancel(work.patience)
        self._trace(work, "done" if work.error is None else "failed")
        if work.counted is not None:
            total = self._world.counted[seat.number]
            for name in Counted.__slots__:
                setattr(total, name, getattr(total, name) + getattr(work.counted, name))
        if seat.failure is None:
            seat.failure = work.error
        if seat.blocked is work:
            self._world.ranks.wake(seat.rank)

    def _trace(self, work: Work, state: str) -> None:
        self._world.trace.append(Event(self._world.now, work.seat.number, work.name, state))


__all__ = ["Operations"]
