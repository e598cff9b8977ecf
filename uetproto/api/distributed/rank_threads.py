# SPDX-License-Identifier: GPL-2.0-only
"""This module runs ranks as ordinary Python functions. Each rank has a thread of its own, and exactly one of these
threads runs at a time.

A rank runs until it has to wait. Then the next rank that is ready runs; when none is ready, virtual time advances. The
result therefore does not depend on the scheduler of the operating system: one seed gives one trace. All threads end
with the run, also after an error.
"""

import ctypes
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from uetproto.api.distributed.errors import invalid


class _Stop(BaseException):  # not an Exception: a program's `except Exception` does not stop it
    """This class unwinds a rank whose run has ended."""


JOIN_INTERVAL = 0.1
"""Seconds of real time between two checks of whether the run was interrupted or a thread has ended."""


class _Baton:
    """This class lets one thread wait until another thread passes the turn to it.

    It is a plain lock: an interrupt during the wait leaves nothing locked.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lock.acquire()
        self.take = self._lock.acquire

    def take_interruptibly(self) -> None:
        """Wait for the turn in the thread of the run; in that thread `take` would see a signal only after the wait."""
        while not self._lock.acquire(timeout=JOIN_INTERVAL):
            pass

    def give(self) -> None:
        """Pass the turn; a second call has no effect."""
        with suppress(RuntimeError):
            self._lock.release()


class RankThread:
    """A `RankThread` is the thread of one rank of a run, with the result or the error of its function."""

    def __init__(self, number: int, threads: "RankThreads") -> None:
        self.number = number
        self.finished = False
        self.result: Any = None
        self.error: BaseException | None = None
        self._threads = threads
        self._baton = _Baton()
        self._thread: threading.Thread | None = None

    @property
    def streams(self) -> bool:
        """Return whether the run is in stream mode."""
        return self._threads.streams

    @property
    def owner(self) -> object:
        """Return the object, such as a `World`, to whose run this rank belongs."""
        return self._threads.owner

    def begin(self, program: Callable[[], Any], name: str) -> None:
        """Start the thread, which waits for its first turn before it calls `program`."""
        self._thread = threading.Thread(target=self._main, args=(program,), name=f"{name} {self.number}", daemon=True)
        self._thread.start()

    def _main(self, program: Callable[[], Any]) -> None:
        _here.rank = self
        self._baton.take()
        try:
            if not self._threads.stopping:
                self.result = program()
        except _Stop:
            pass
        except BaseException as error:
            self.error = error
        finally:
            self.finished = True
            _here.rank = None
            self._threads.back.give()

    def pause(self) -> None:
        """Pass the turn to another rank, and return after a call of `RankThreads.wake`. The thread of this rank calls
        this method."""
        if not self._threads.stopping:
            self._threads.back.give()
            self._baton.take()
        if self._threads.stopping:
            raise _Stop

    def turn(self) -> None:
        """Let the rank run until it pauses or finishes. The thread of the run calls this method."""
        self._baton.give()
        self._threads.back.take_interruptibly()

    def stop(self) -> None:
        """End the thread of the rank, whatever it is doing. The thread of the run calls this method at the end of the
        run."""
        if self._thread is None:
            return
        self._baton.give()
        while self._thread.is_alive():
            self._thread.join(JOIN_INTERVAL)
            if self._thread.is_alive() and self._thread.ident is not None:  # the run was interrupted in its turn
                ident = ctypes.c_ulong(self._thread.ident)
                ctypes.pythonapi.PyThreadState_SetAsyncExc(ident, ctypes.py_object(_Stop))


class RankThreads:
    """This class has the threads of all ranks of a run, of which one runs at a time."""

    def __init__(self, size: int, owner: object, streams: bool) -> None:
        self.owner = owner
        """Object whose run these threads belong to."""
        self.streams = streams
        self.back = _Baton()
        """Baton of the thread that called `run`; a rank that ends its turn gives it."""
        self.stopping = False
        self.members = [RankThread(number, self) for number in range(size)]
        self.ready: deque[RankThread] = deque()
        self._waiting: set[int] = set()

    def wake(self, number: int) -> None:
        """Make a rank that waits in `pause` ready to run, behind the ranks that are ready already."""
        if number in self._waiting:
            self._waiting.discard(number)
            self.ready.append(self.members[number])

    def pause(self, number: int) -> None:
        """Make a rank wait until `wake` is called for it. The thread of this rank calls this method."""
        self._waiting.add(number)
        self.members[number].pause()

    def run(
        self, program: Callable[[int], Any], name: str, idle: Callable[[], bool], ended: Callable[[RankThread], None]
    ) -> None:
        """Run `program(number)` in the thread of every rank.

        `idle` is called when no rank is ready. It advances virtual time until a rank is ready, or returns False if no
        rank can ever be ready. `ended` is called with each rank that has finished.
        """
        for rank in self.members:
            rank.begin(lambda number=rank.number: program(number), name)  # type: ignore[misc]
        self.ready.extend(self.members)
        try:
            while not all(rank.finished for rank in self.members):
                if not self.ready:
                    if not idle():
                        break
                    continue
                rank = self.ready.popleft()
                rank.turn()
                if rank.finished:
                    ended(rank)
        finally:
            self.stopping = True
            for rank in self.members:
                rank.stop()


class _Here(threading.local):
    rank: RankThread | None = None


_here = _Here()


def current_rank() -> RankThread:
    """Return the rank that the calling thread belongs to. Raises `LocalError` outside of a run."""
    if _here.rank is None:
        raise invalid(
            "dist", "called outside of a rank", "in a program that dist.run(program, ranks=…) runs", id="wrong-state"
        )
    return _here.rank


def is_rank() -> bool:
    """Return whether the calling thread belongs to a rank."""
    return _here.rank is not None
