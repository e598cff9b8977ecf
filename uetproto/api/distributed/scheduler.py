# SPDX-License-Identifier: GPL-2.0-only
"""This module schedules a run: it starts operations, makes programs wait, and lets virtual time pass (collectives.md
§1.2).

A rank that has to wait passes its turn to the next rank. When no rank is ready, the network and its timers run. When
nothing is in progress in the network either, the ranks wait for each other, and their operations fail with a
`DeadlockError` (collectives.md §1.5).
"""

import copy
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from uetproto.api.distributed.deadlock import explain
from uetproto.api.distributed.errors import Wait, invalid
from uetproto.api.distributed.rank_state import RankState
from uetproto.api.distributed.rank_threads import RankThread, RankThreads, current_rank
from uetproto.api.distributed.tensor import memory_of, span
from uetproto.api.distributed.tensors import TensorInUse
from uetproto.api.distributed.work import Work
from uetproto.collectives.dtypes import Array
from uetproto.collectives.offload import CollectiveCounters
from uetproto.collectives.transport import CollectiveNetwork
from uetproto.errors import LocalError, UetError

POLL_TIME = 10**6
"""Virtual time in picoseconds that one poll of an operation takes. Without this duration, no time would pass in a
program that only polls."""
MAX_POLLS = 1000
"""Largest number of polls while nothing is in progress; if a program polls more often, it counts as waiting for ever.
This is also the largest number of reads of the clock in a row that take no virtual time."""


class Event(NamedTuple):
    """This record describes an event in the trace of a run."""

    now: int
    """Virtual time of the event in picoseconds."""
    rank: int
    op: str
    state: str
    """What happened to the operation: "posted", "done" or "failed"."""


class RankScheduler:
    """This class runs the programs of all ranks, one at a time, and drives their operations."""

    def __init__(
        self, network: CollectiveNetwork, owner: object, *, streams: bool, trace: list[Event],
        counted: Sequence[CollectiveCounters],
        mismatch: Callable[[], UetError | None],
    ) -> None:  # fmt: skip
        """Make the scheduler. `owner` is the object that `current_rank().owner` returns in a rank, and `streams` says
        whether stream mode is used. Events are added to `trace`. `counted` has the counters of each rank, to which its
        collectives add. `mismatch` is a function that returns why the ranks that have joined a collective can never
        begin it, or None."""
        self.threads = RankThreads(network.size, owner, streams)
        self.states = [RankState(number) for number in range(network.size)]
        self._network, self._timers = network, network.timers
        self._streams = streams
        self._trace, self._counted, self._mismatch = trace, counted, mismatch
        self._idle_polls = 0
        """Polls without effect while nothing was in progress."""

    def run(self, program: Callable[[int], Any], ended: Callable[[RankThread], None]) -> UetError | None:
        """Run `program(number)` in every rank, and then let the operations that are still in progress end.

        If an operation has failed and the program of its rank has not seen the error, return this error; otherwise
        return None. `ended` is called with each rank that has finished.
        """
        self.threads.run(program, "rank", self._pass_time, ended)
        left = [work for state in self.states for work in state.open]
        while any(not work.done for work in left):
            if not self._advance(lambda: all(work.done for work in left)):
                error = self._stuck()
                self._fail_all(error)
                return error
        unseen = (state.failure for state in self.states if state.failure is not None and not state.failure_seen)
        return copy.copy(next(unseen, None))

    # Operations begin and end

    def check_free(self, state: RankState, inputs: Sequence[Array], outputs: Sequence[Array], wait: bool) -> None:
        """Raise `ArgumentError` if an operation in progress writes memory that the next operation uses, or reads memory
        that the next operation writes.

        In stream mode either is legal if the stream orders the two operations. `wait` says whether the program waits
        for the next operation.
        """
        written = [span(array) for array in outputs if array.size]
        used = [*(span(array) for array in inputs if array.size), *written]
        for work in state.open:
            if self._streams and (work.awaited or not wait):
                continue
            for first, end, read in work.spans:
                if any(first < b and a < end for a, b in (written if read else used)):
                    raise invalid(
                        "tensor", f"shares memory with one of {work.name}", "wait() for that first", id="wrong-state"
                    )

    def issue(
        self, work: Work, begin: Callable[[], None], *, wait: bool, watched: Sequence[tuple[Array, bool]] = ()
    ) -> Work | None:
        """Begin an operation at once or, in stream mode, when the operations before it in its stream are done.

        If `wait` is True, the program waits for the operation, and None is returned; otherwise `work` is returned.
        `watched` has the tensors that the operation uses until it is done. Each tensor is paired with a flag: True if
        the operation only reads the tensor.
        """
        state = self.states[work.rank]
        state.open[work] = None
        state.looks = 0
        self._idle_polls = 0
        work.awaited = wait
        work.spans = [(*span(array), read) for array, read in watched if array.nbytes]
        for array, read in watched:
            memory = memory_of(array)
            if memory is not None:
                memory.add(work, array, writes=not read)
        self._record(work, "posted")

        def start() -> None:
            if work.done:
                return
            if not wait:
                work.tensors = [TensorInUse(array, read, state.locks) for array, read in watched]
            timeout = work.group.timeout
            expires = self._network.now + timeout
            work.timer = self._timers.at(expires, lambda: work.expire(timeout), vital=False)
            begin()

        if not self._streams:
            start()
            if not wait:
                return work
            self.wait_for(work, None)
            return None
        before = dict.fromkeys(state.stream if wait else [*state.stream, *state.inner])
        if wait:
            state.stream = [work]
        else:
            state.inner = [work]
        self._start_after(work, [other for other in before if not other.done or other.error], start)
        return None if wait else work

    def _start_after(self, work: Work, before: list[Work], start: Callable[[], None]) -> None:
        """Start an operation of stream mode when others are done; it fails if one of the others fails."""
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
        """Record that an operation is done or has failed, and wake its rank if the rank's program waits for this
        operation."""
        state = self.states[work.rank]
        state.open.pop(work, None)
        self._idle_polls = 0
        if work.timer is not None:
            self._timers.cancel(work.timer)
        self._record(work, "done" if work.error is None else "failed")
        if work.counted is not None:
            self._counted[work.rank].add(work.counted)
        if state.failure is None:
            state.failure = work.error
        if state.blocked is work:
            self.threads.wake(work.rank)

    def _record(self, work: Work, state: str) -> None:
        self._trace.append(Event(self._network.now, work.rank, work.name, state))

    # Programs wait

    def wait_for(self, work: Work, timeout: int | None) -> None:
        """Wait until an operation is done, as `Work.wait` does, and raise its error. With a `timeout`, fail the
        operation after so many picoseconds.

        In stream mode without a time-out the current stream waits for an asynchronous operation, and the program goes
        on.
        """
        state = self._own(work)
        work.awaited = True
        if self._streams and timeout is None and work in state.inner:
            state.stream = [*state.stream, work]
            return
        self._block(work, timeout)

    def synchronize(self, state: RankState) -> None:
        """Wait until all operations of a rank are done; raise the error of the first one that has failed."""
        for work in [*state.open, *state.stream, *state.inner]:
            self._block(work, None)

    def block(self, work: Work) -> None:
        """Wait until an operation is done, in stream mode too, and raise its error."""
        if not work.done:
            self.states[work.rank].open[work] = None
        self._block(work, None)

    def settle(self, work: Work, why: str) -> None:
        """Wait until an operation is done, because the program reads or writes a tensor of the operation; raise the
        operation's error. `why` says where the program does so."""
        state = self._own(work)
        state.why = f"; {why}"
        try:
            self._block(work, None)
        finally:
            state.why = ""

    def _block(self, work: Work, timeout: int | None) -> None:
        state = self.states[work.rank]
        if not work.done:
            state.looks = 0
            timer = None
            if timeout is not None:
                timer = self._timers.at(self._network.now + timeout, lambda: work.expire(timeout))
            state.blocked = work
            while not work.done:
                self.threads.pause(work.rank)
            state.blocked = None
            if timer is not None:
                self._timers.cancel(timer)
        if work.error is not None:
            state.failure_seen = True
            raise work.error

    def poll(self, work: Work) -> bool:
        """Return whether an operation is done, as `Work.is_completed` does; in stream mode the result is always
        True."""
        self._own(work)
        return work.done or self._streams or self.look(work)

    def look(self, work: Work) -> bool:
        """Wait until an operation is done, for at most `POLL_TIME`, and return whether it is done."""
        state = self._own(work)
        state.looks = 0
        state.polling = True
        state.blocked = work
        expires = self._network.now + POLL_TIME
        timer = self._timers.at(expires, lambda: self.threads.wake(work.rank), vital=False)
        self.threads.pause(work.rank)
        self._timers.cancel(timer)
        state.polling = False
        state.blocked = None
        return work.done

    def seen_failed(self, work: Work) -> None:
        """Raise the error of a failed operation if its rank has called `Work.is_success` more than `MAX_POLLS` times in
        a row."""
        state = self.states[work.rank]
        state.looks += 1
        if state.looks > MAX_POLLS and work.error is not None:
            raise work.error

    def sleep(self, state: RankState, duration: int) -> None:
        """Make a rank wait for `duration` picoseconds of virtual time."""
        state.looks = 0
        self._sleep(state, duration)

    def _sleep(self, state: RankState, duration: int) -> None:
        self._timers.at(self._network.now + duration, lambda: self.threads.wake(state.number))
        self.threads.pause(state.number)

    def clock(self, state: RankState) -> int:
        """Return virtual time in picoseconds, for `dist.now`.

        Reading the clock takes no time, but after `MAX_POLLS` reads in a row each further read takes time. Otherwise a
        program that reads the clock in a loop, until some time has passed, would never end.
        """
        state.looks += 1
        if state.looks > MAX_POLLS:
            self._sleep(state, POLL_TIME * (state.looks // MAX_POLLS))
        return self._network.now

    def _own(self, work: Work) -> RankState:
        if current_rank() is not self.threads.members[work.rank]:
            raise LocalError(
                work.name, f"is of rank {work.rank}", "its own rank waits for it, in its run", id="foreign-object"
            )
        return self.states[work.rank]

    # Time passes

    def _pass_time(self) -> bool:
        """Advance time until a rank is ready, and return True.

        If nothing more would happen, it fails the operations that wait, with the explanation of the deadlock; it
        returns False if even this makes no rank ready.
        """
        ready = self.threads.ready
        while not ready:
            if not self._advance(ready.__len__):
                self._fail_all(self._stuck())
                return bool(ready)
        return True

    def _advance(self, ready: Callable[[], int]) -> bool:
        """Run the next event of the network or of the timers; return False if no event comes unless a rank acts."""
        network, timers = self._network, self._timers
        if timers.fire(network.now):
            return True
        instant = timers.next
        idle = network.run(lambda: ready() > 0 or timers.next != instant, instant)
        if ready() or timers.next != instant:
            return True
        if idle and not timers.vital:
            if not any(state.polling for state in self.states) or self._idle_polls >= MAX_POLLS:
                return False
            self._idle_polls += 1
        if instant is not None:
            network.advance(instant)
        return True

    def _stuck(self) -> UetError:
        waits, finished = [], {rank.number for rank in self.threads.members if rank.finished}
        for state in self.states:
            for work in [state.blocked] if state.blocked is not None else list(state.open):
                needs, why = work.needs()
                waits.append(Wait(state.number, work.name, needs, why + state.why))
        failures = {state.number: state.failure for state in self.states if state.failure is not None}
        return self._mismatch() or explain(waits, finished, failures)

    def _fail_all(self, error: UetError) -> None:
        """Fail all operations that wait for a rank, with the same explanation."""
        for state in self.states:
            for work in tuple(state.open):
                if work.needs()[0]:
                    work.fail(error)
        for state in self.states:
            if state.blocked is not None and not state.blocked.done:
                state.blocked.fail(error)
