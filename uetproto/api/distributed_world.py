"""A world of ranks: their programs, their operations under way, and the time that all share.

A rank that cannot go on hands on to the next one; when no rank can go on, the network does; and when nothing is under
way there either, they wait for each other, and the run ends with who waits for whom (collectives.md §1.5).
"""

import copy
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import import_module
from types import TracebackType
from typing import Any, NamedTuple

import numpy as np

from uetproto.api.distributed_choice import check
from uetproto.api.distributed_deadlock import explain
from uetproto.api.distributed_errors import AbortedError, Wait, invalid, modified
from uetproto.api.distributed_group import ProcessGroup
from uetproto.api.distributed_ranks import Rank, Ranks, current, is_rank
from uetproto.api.distributed_tensors import Locks, Watch
from uetproto.api.distributed_work import SECOND, Work
from uetproto.collectives.dtypes import Array
from uetproto.collectives.model import ModelNetwork
from uetproto.collectives.runner import Counted, Pool
from uetproto.collectives.transport import Network, Transport
from uetproto.errors import LocalError, UetError

TRANSPORTS = {"uet": "uetproto.api.distributed_uet", "roce": "uetproto.api.distributed_roce"}
"""Networks with packets, by name: modules with `network(size, **options)`."""

POLL = 10**6
"""Picoseconds that a look at an operation takes: a program that polls lets time pass."""
POLLS = 1000
"""Looks in vain, while nothing is under way, until a poll counts as waiting for ever; looks at the clock until they
take time."""


class Event(NamedTuple):
    """One line of the trace of a run."""

    now: int
    """Picoseconds."""
    rank: int
    op: str
    state: str
    """posted, done, failed."""


class Seat:
    """What a world knows about one rank."""

    def __init__(self, world: "World", number: int) -> None:
        self.world = world
        self.number = number
        self.group: ProcessGroup | None = None
        """The default group, from `init_process_group` on."""
        self.groups_made = 0
        self.open: dict[Work, None] = {}
        """Operations that are not done, oldest first."""
        self.locks = Locks()
        self.blocked: Work | None = None
        """What its program waits for."""
        self.polling = False
        self.looks = 0
        """At the clock, since it last did anything else."""
        self.told = False
        """Its program has seen an operation fail."""
        self.unseen: UetError | None = None
        """The first failure, until then."""
        self.stream: list[Work] = []
        """Stream mode: what the next operation of the current stream waits for."""
        self.inner: list[Work] = []
        """And of the stream of asynchronous operations."""
        self.linked: set[int] = set()
        """Stream mode: peers that it has called point to point."""

    @property
    def rank(self) -> Rank:
        """Its thread, in this run."""
        return self.world.ranks.members[self.number]


class World:
    """Ranks around a network. `World(4).run(program)` runs a program in each; `dist.run` does so with a new world."""

    def __init__(
        self, ranks: int = 2, *, transport: str | Network = "model", algorithm: str | Mapping[str, str] | None = None,
        nodes: int | Sequence[Sequence[int]] | None = None, mode: str = "cpu", eager_threshold: int = 0,
        poison: bool = False, gamma: float = 0, **network: Any,
    ) -> None:  # fmt: skip
        """`ranks`: how many. `transport`: "model" (alpha and beta, no packets), "uet", "roce", or a `Network`; all
        further arguments are the network's. `algorithm`: of all collectives, or by operation; None: by size, see
        `distributed_choice`. `nodes`: how many, or the ranks of each, for hierarchical algorithms.

        `mode`: "cpu", where a call returns when its result is there, or "stream" (§1.2). `eager_threshold`: a send of
        at most so many bytes is copied and done at once. `poison`: receive buffers are filled with 0xff until the data
        is there. `gamma`: picoseconds that a reduced byte takes.
        """
        if type(ranks) is not int or ranks < 1:
            raise invalid("ranks", repr(ranks), "a whole number, 1 and more")
        if mode not in ("cpu", "stream"):
            raise invalid("mode", repr(mode), "cpu, stream")
        if type(eager_threshold) is not int or eager_threshold < 0:
            raise invalid("eager_threshold", repr(eager_threshold), "bytes, 0 and more")
        if not isinstance(gamma, (int, float)) or not 0 <= gamma < float("inf"):
            raise invalid("gamma", repr(gamma), "picoseconds a byte, 0 and more")
        if nodes is not None and not (nodes > 0 if isinstance(nodes, int) else _is_ranks_of_each(nodes)):
            raise invalid("nodes", repr(nodes), "how many, or a list of the ranks of each")
        self.size = ranks
        self.algorithms = check(algorithm)
        self.nodes = nodes
        self.streams = mode == "stream"
        self.eager_threshold = eager_threshold
        self.poison = poison
        self.gamma = gamma
        self.pool = Pool()
        self.network = _network(transport, ranks, network)
        self.timers = self.network.timers
        self.trace: list[Event] = []
        self.counted = [Counted() for _ in range(ranks)]
        """What the collectives of each rank moved."""
        self.ranks = Ranks(ranks, self)
        self.seats: list[Seat] = []
        self.errors: dict[int, BaseException] = {}
        """Of the ranks that failed, the first one first."""
        self.results: list[Any] = []
        self._running = False
        self._made: list[ProcessGroup] = []
        self._idle_polls = 0

    @property
    def now(self) -> int:
        """Virtual time, picoseconds."""
        return self.network.now

    def run(self, program: Callable[..., Any], args: Iterable[Any] = ()) -> list[Any]:
        """Runs `program(rank, *args)` in every rank and returns what they return; may be called again.

        Raises the first error of a rank, when all have ended. What is under way ends first; what can never end is a
        `DeadlockError`.
        """
        if self._running or is_rank():
            raise LocalError("run: called in a rank; legal: outside, one run after the other")
        if not callable(program):
            raise invalid("program", repr(program), "a function of the rank")
        args = tuple(args)
        self._running = True
        self.ranks = Ranks(self.size, self)
        self.seats = [Seat(self, number) for number in range(self.size)]
        self.errors = {}
        self._made = []
        try:
            self.ranks.run(lambda number: self._program(number, program, args), "rank", self._pass_time, self._ended)
            stuck = self._drain()
        finally:
            self._running = False
            self._release()
        self.results = [rank.result for rank in self.ranks.members]
        # The first one, but rather a cause than what came of it.
        for number, error in sorted(self.errors.items(), key=lambda item: isinstance(item[1], AbortedError)):
            error.add_note(f"raised by rank {number}; virtual time {self.now / SECOND:.9f} s")
            raise error
        if stuck is not None:
            raise stuck
        return self.results

    def close(self, drain: bool = True) -> None:
        """The end of its network: what is under way there arrives first, and a capture is whole afterwards."""
        self.network.close(drain)

    def __enter__(self) -> "World":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close(drain=kind is None)

    def _program(self, number: int, program: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        seat = self.seats[number]
        try:
            result = program(number, *args)
        except ValueError as error:
            if seat.locks.any and "read-only" in str(error) and not isinstance(error, UetError):
                raise modified(next(iter(seat.open)).name) from error
            raise
        if self.streams:
            self.synchronize(seat)
        return result

    def _ended(self, rank: Rank) -> None:
        if rank.error is None:
            return
        self.errors[rank.number] = rank.error
        error = AbortedError(f"rank {rank.number} failed: {type(rank.error).__name__}: {rank.error}")
        for group in tuple(self._made):
            if rank.number in group.places:
                group.lost(rank.number, error)
        for work in tuple(self.seats[rank.number].open):
            work.fail(error)

    def _release(self) -> None:
        """What is still open after the run is given up: no tensor stays locked."""
        for seat in self.seats:
            for work in tuple(seat.open):
                work.finish(AbortedError(f"{work.name}: the run has ended"))

    def dead(self, ranks: Iterable[int]) -> AbortedError | None:
        """The error for what needs one of these ranks, if one has failed."""
        for rank in ranks:
            error = self.errors.get(rank)
            if error is not None:
                return AbortedError(f"rank {rank} failed: {type(error).__name__}: {error}")
        return None

    # Where things are

    def end(self, rank: int) -> Transport:
        """The transport of a rank."""
        return self.network.end(rank)

    def seat(self) -> Seat:
        """Of the rank whose thread this is. Raises `LocalError` outside of a run."""
        return self.seats[current().number]

    def make_group(self, seat: Seat, ranks: Sequence[int], timeout: int) -> ProcessGroup:
        """The next group that this rank makes: all ranks of the world make the same ones in the same order (§1.1)."""
        number = seat.groups_made
        if number < len(self._made):
            group = self._made[number]
            if group.ranks != tuple(ranks):
                text = f"rank {seat.number} makes group {number} of ranks {tuple(ranks)}, another rank of {group.ranks}"
                raise invalid("ranks", text, "the same groups in the same order on all ranks")
        else:
            group = ProcessGroup(self, number, ranks, timeout)
            self._made.append(group)
        seat.groups_made += 1
        return group

    def nodes_of(self, group: ProcessGroup) -> int | list[list[int]] | None:
        """The nodes of a group, in group ranks."""
        if self.nodes is None or (isinstance(self.nodes, int) and len(group.ranks) == self.size):
            return self.nodes if self.nodes is None or isinstance(self.nodes, int) else list(map(list, self.nodes))
        nodes = self.nodes
        if isinstance(nodes, int):
            each = -(-self.size // nodes)
            nodes = [range(first, min(first + each, self.size)) for first in range(0, self.size, each)]
        found = [[group.places[rank] for rank in node if rank in group.places] for node in nodes]
        return [node for node in found if node]

    # Operations

    def check_free(self, seat: Seat, arrays: Sequence[Array]) -> None:
        """Raises `ArgumentError` if an operation under way writes into one of these, which are to be written into."""
        for work in () if self.streams else seat.open:
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
        self._idle_polls = 0
        self.trace.append(Event(self.now, seat.number, work.name, "posted"))

        def start() -> None:
            if work.done:
                return
            if not wait:
                work.watches = [Watch(array, read, seat.locks) for array, read in watched]
            timeout = work.group.timeout
            work.patience = self.timers.at(self.now + timeout, lambda: work.expire(timeout), vital=False)
            begin()

        if not self.streams:
            start()
            if not wait:
                return work
            self.wait_for(work, None)
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
        self._idle_polls = 0
        if work.patience is not None:
            self.timers.cancel(work.patience)
        self.trace.append(Event(self.now, seat.number, work.name, "done" if work.error is None else "failed"))
        if work.counted is not None:
            total = self.counted[seat.number]
            for name in Counted.__slots__:
                setattr(total, name, getattr(total, name) + getattr(work.counted, name))
        if seat.unseen is None:
            seat.unseen = work.error
        if seat.blocked is work:
            self.ranks.wake(seat.rank)

    def wait_for(self, work: Work, timeout: int | None) -> None:
        """`Work.wait`. Raises what made it fail."""
        seat = self._own(work)
        if self.streams and timeout is None and work in seat.inner:
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
            timer = self.timers.at(self.now + timeout, lambda: work.expire(timeout))
        seat.blocked = work
        while not work.done:
            self.ranks.pause(seat.rank)
        seat.blocked = None
        if timer is not None:
            self.timers.cancel(timer)

    def poll(self, work: Work) -> bool:
        """`Work.is_completed`."""
        self._own(work)
        return work.done or self.streams or self.look(work)

    def look(self, work: Work) -> bool:
        """Whether an operation is done, after the time that asking takes."""
        seat = self._own(work)
        seat.looks = 0
        seat.polling = True
        seat.blocked = work
        timer = self.timers.at(self.now + POLL, lambda: self.ranks.wake(seat.rank), vital=False)
        self.ranks.pause(seat.rank)
        self.timers.cancel(timer)
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
        self.seat().looks = 0
        self._sleep(duration)

    def _sleep(self, duration: int) -> None:
        rank = self.seat().rank
        self.timers.at(self.now + duration, lambda: self.ranks.wake(rank))
        self.ranks.pause(rank)

    def clock(self, seat: Seat) -> int:
        """`dist.now`. Looking takes no time, but a program that only looks, until an instant has come, lets it pass."""
        seat.looks += 1
        if seat.looks > POLLS:
            self._sleep(POLL * (seat.looks // POLLS))  # longer and longer, so that it comes to any instant
        return self.now

    def _own(self, work: Work) -> Seat:
        if current().number != work.seat.number or work.seat not in self.seats:
            raise LocalError(
                f"{work.name}: is of rank {work.seat.number}; legal: its own rank waits for it, in its run"
            )
        return work.seat

    # Time

    def _pass_time(self) -> bool:
        """No rank can go on: lets time pass until one can. False: never (which cannot be while one waits)."""
        ready = self.ranks.ready
        while not ready:
            if not self._next(lambda: bool(ready)):
                self._fail_all(self._stuck())
                return bool(ready)
        return True

    def _next(self, ready: Callable[[], bool]) -> bool:
        """What happens next, in the network or of the timers; False: nothing does by itself."""
        if self.timers.fire(self.now):
            return True
        instant = self.timers.next
        idle = self.network.run(lambda: ready() or self.timers.next != instant, instant)
        if ready() or self.timers.next != instant:
            return True
        if idle and not self.timers.vital:
            if not any(seat.polling for seat in self.seats) or self._idle_polls >= POLLS:
                return False
            self._idle_polls += 1
        if instant is not None:
            self.network.advance(instant)
        return True

    def _stuck(self) -> UetError:
        """Why nothing goes on."""
        waits, finished = [], {rank.number for rank in self.ranks.members if rank.finished}
        for seat in self.seats:
            for work in [seat.blocked] if seat.blocked is not None else list(seat.open):
                needs, why = work.needs()
                waits.append(Wait(seat.number, work.name, needs, why))
        for group in self._made:
            for meeting in group.meetings:
                error = meeting.mismatch()
                if error is not None:
                    return error
        return explain(waits, finished)

    def _fail_all(self, error: UetError) -> None:
        """Of the operations that wait, every one has the same explanation."""
        for seat in self.seats:
            for work in tuple(seat.open):
                if work.needs()[0]:
                    work.fail(error)
        for seat in self.seats:
            if seat.blocked is not None and not seat.blocked.done:
                seat.blocked.fail(error)

    def _drain(self) -> UetError | None:
        """All programs have returned: what they left behind ends, or never will."""
        left = [work for seat in self.seats for work in seat.open]
        while any(not work.done for work in left):
            if not self._next(lambda: all(work.done for work in left)):
                error = self._stuck()
                self._fail_all(error)
                return error
        return next((copy.copy(seat.unseen) for seat in self.seats if seat.unseen is not None and not seat.told), None)


def _is_ranks_of_each(nodes: object) -> bool:
    return isinstance(nodes, Sequence) and all(
        isinstance(node, Sequence) and all(isinstance(rank, int) for rank in node) for node in nodes
    )


def _network(transport: str | Network, ranks: int, options: dict[str, Any]) -> Network:
    if isinstance(transport, Network):
        if transport.size != ranks or options:
            text = f"a network of {transport.size}, and {', '.join(options) or 'no further arguments'}"
            raise invalid("transport", text, f"one of {ranks} ranks, and nothing else")
        return transport
    if transport == "model":
        unknown = [name for name in options if name not in ("path", "seed")]
        if unknown:
            raise invalid(unknown[0], "an unknown argument", "path, seed, for the transport model")
        return ModelNetwork(ranks, options.get("path"))  # it draws nothing: every seed gives the same
    if not isinstance(transport, str) or transport not in TRANSPORTS:
        raise invalid("transport", repr(transport), ", ".join(["model", *TRANSPORTS]))
    network: Network = import_module(TRANSPORTS[transport]).network(ranks, **options)
    return network


__all__ = ["POLL", "POLLS", "Event", "Seat", "World"]
