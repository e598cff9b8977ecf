"""Ranks as ordinary Python functions: a thread each, of which exactly one runs at a time.

A rank runs until it has to wait; then the next one that can go on does, and when none can, virtual time does. So
nothing depends on the scheduler of the operating system: one seed, one trace. Threads end with the run, also after an
error.
"""

import ctypes
import threading
from collections import deque
from collections.abc import Callable
from typing import Any

from uetproto.errors import LocalError


class _Stop(BaseException):  # not an Exception: a program's `except Exception` does not stop it
    """Unwinds a rank whose run has ended."""


class Rank:
    """One rank: its function, its thread, and what came of it."""

    def __init__(self, number: int, ranks: "Ranks") -> None:
        self.number = number
        self.finished = False
        self.result: Any = None
        self.error: BaseException | None = None
        self._ranks = ranks
        self._baton = threading.Semaphore(0)
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
        self._baton.acquire()
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
            self._ranks.back.release()

    def pause(self) -> None:
        """Called in its thread: hands on, and returns when somebody has called `Ranks.wake`."""
        if not self._ranks.stopping:
            self._ranks.back.release()
            self._baton.acquire()
        if self._ranks.stopping:
            raise _Stop

    def turn(self) -> None:
        """Called by the run: lets it go on until it pauses or finishes."""
        self._baton.release()
        self._ranks.back.acquire()

    def interrupt(self) -> None:
        """Called by the run when it has been interrupted while this rank had its turn."""
        assert self._thread is not None
        if self._thread.ident is not None and not self.finished:
            ident = ctypes.c_ulong(self._thread.ident)
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ident, ctypes.py_object(_Stop))

    def join(self) -> None:
        """Its thread is gone afterwards."""
        if self._thread is not None:
            self._thread.join()


class Ranks:
    """All ranks of a run."""

    def __init__(self, size: int, owner: object) -> None:
        self.owner = owner
        """Whose run it is."""
        self.back = threading.Semaphore(0)
        """Released by a rank that hands on."""
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
        current: Rank | None = None
        try:
            while not all(rank.finished for rank in self.members):
                if not self.ready:
                    if not idle():
                        break
                    continue
                current = self.ready.popleft()
                current.turn()
                if current.finished:
                    ended(current)
                current = None
        finally:
            self.stopping = True
            if current is not None:
                current.interrupt()
                self.back.acquire()
            for rank in self.members:
                while not rank.finished:
                    rank.turn()
                rank.join()


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
