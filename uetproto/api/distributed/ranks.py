"""Ranks as ordinary Python functions: a thread each, of which exactly one runs at a time.

A rank runs until it has to wait; then the next one that can go on does, and when none can, virtual time does. So
nothing depends on the scheduler of the operating system: one seed, one trace. Threads end with the run, also after an
error.
"""

import ctypes
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from uetproto.errors import LocalError


class _Stop(BaseException):  # not an Exception: a program's `except Exception` does not stop it
    """Unwinds a rank whose run has ended."""


PATIENCE = 0.1
"""Seconds, of the clock on the wall, between looks at whether the program was interrupted, or a rank has ended."""


class _Baton:
    """One thread waits until another one gives it. A plain lock: an interrupt while it waits leaves nothing locked."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lock.acquire()
        self.take = self._lock.acquire

    def await_interruptibly(self) -> None:
        """As `take`, in the thread of the run: a signal just before would be seen only after the wait."""
        while not self._lock.acquire(timeout=PATIENCE):
            pass

    def give(self) -> None:
        """Once, or again without effect."""
        with suppress(RuntimeError):
            self._lock.release()


class Rank:
    """One rank: its function, its thread, and what came of it."""

    def __init__(self, number: int, ranks: "Ranks") -> None:
        self.number = number
        self.finished = False
        self.result: Any = None
        self.error: BaseException | None = None
        self._ranks = ranks
        self._baton = _Baton()
        self._thread: threading.Thread | None = None

    @property
    def owner(self) -> object:
        """Whose run it is in."""
        return self._ranks.owner

    def begin(self, program: Callable[[], Any], name: str) -> None:
        """Makes its thread; it runs when its turn comes."""
        self._thread = threading.Thread(target=self._main, args=(program,), name=f"{name} {self.number}", daemon=True)
        self._thread.start()

    def _main(self, program: Callable[[], Any]) -> None:
        _here.rank = self
        self._baton.take()
        try:
            if not self._ranks.stopping:
                self.result = program()
        except _Stop:
            pass
        except BaseException as error:
            self.error = error
        finally:
            self.finished = True
            _here.rank = None
            self._ranks.back.give()

    def pause(self) -> None:
        """Called in its thread: hands on, and returns when somebody has called `Ranks.wake`."""
        if not self._ranks.stopping:
            self._ranks.back.give()
            self._baton.take()
        if self._ranks.stopping:
            raise _Stop

    def turn(self) -> None:
        """Called by the run: lets it go on until it pauses or finishes."""
        self._baton.give()
        self._ranks.back.await_interruptibly()

    def stop(self) -> None:
        """Called by the run when it ends: the thread is gone afterwards, whatever it was doing."""
        if self._thread is None:
            return
        self._baton.give()
        while self._thread.is_alive():
            self._thread.join(PATIENCE)
            if self._thread.is_alive() and self._thread.ident is not None:  # it had its turn when we were interrupted
                ident = ctypes.c_ulong(self._thread.ident)
                ctypes.pythonapi.PyThreadState_SetAsyncExc(ident, ctypes.py_object(_Stop))


class Ranks:
    """All ranks of a run."""

    def __init__(self, size: int, owner: object) -> None:
        self.owner = owner
        """Whose run it is."""
        self.back = _Baton()
        """Given by a rank that hands on."""
        self.stopping = False
        self.members = [Rank(number, self) for number in range(size)]
        self.ready: deque[Rank] = deque()
        self._waiting: set[int] = set()

    def wake(self, rank: Rank) -> None:
        """The rank may go on, after those that may already."""
        if rank.number in self._waiting:
            self._waiting.discard(rank.number)
            self.ready.append(rank)

    def pause(self, rank: Rank) -> None:
        """Called in the rank's thread."""
        self._waiting.add(rank.number)
        rank.pause()

    def run(
        self, program: Callable[[int], Any], name: str, idle: Callable[[], bool], ended: Callable[[Rank], None]
    ) -> None:
        """Runs `program(number)` in every rank.

        `idle`: called when no rank can go on; lets time pass until one can, False: none ever will. `ended`: told of
        each rank that has finished.
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
    rank: Rank | None = None


_here = _Here()


def current() -> Rank:
    """The rank whose thread this is. Raises `LocalError` outside of a run."""
    if _here.rank is None:
        raise LocalError("dist: called outside of a rank; legal: in a program that dist.run(program, ranks=…) runs")
    return _here.rank


def is_rank() -> bool:
    """Whether this thread is a rank's."""
    return _here.rank is not None


__all__ = ["Rank", "Ranks", "current", "is_rank"]
