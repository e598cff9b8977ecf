# SPDX-License-Identifier: GPL-2.0-only
"""This module has the `World`: a network, its ranks, and the runs of their programs (collectives.md §1.5)."""

import inspect
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any

from uetproto.api.distributed.choice import check, check_options
from uetproto.api.distributed.errors import AbortedError, invalid, modified
from uetproto.api.distributed.networks.transports import agreed, network_of
from uetproto.api.distributed.planner import CollectivePlanner
from uetproto.api.distributed.process_group import ProcessGroup
from uetproto.api.distributed.rank_state import RankState
from uetproto.api.distributed.rank_threads import RankThread, current_rank, is_rank
from uetproto.api.distributed.scheduler import Event, RankScheduler
from uetproto.api.distributed.work import Timeout, picoseconds
from uetproto.collectives.offload import CollectiveCounters
from uetproto.collectives.transport import SECOND, CollectiveNetwork, NetworkCounts
from uetproto.errors import LocalError, UetError, shown
from uetproto.garbage import seldom_collected

MOST_RANKS = 16_384
"""Largest number of ranks of a world; each rank has a thread."""
_PROGRAM = "a function of the rank that runs when it is called: no generator, no coroutine"


def _is_suspended_by_calls(program: Callable[..., Any]) -> bool:
    """Tell whether a call makes a generator or a coroutine and runs nothing of the function."""
    kinds = inspect.isgeneratorfunction, inspect.iscoroutinefunction, inspect.isasyncgenfunction
    return any(kind(one) for kind in kinds for one in (program, getattr(program, "__call__", None)))  # noqa: B004


class World:
    """A world consists of ranks and the network between them. `World(4).run(program)` runs a program in every rank;
    `dist.run` does so in a new world."""

    def __init__(
        self, ranks: int = 2, *, transport: str | CollectiveNetwork = "model",
        algorithm: str | Mapping[str, str] | None = None,
        nodes: int | Sequence[Sequence[int]] | None = None, channels: int | None = None, slices: int | None = None,
        sockets: int | None = None, between: str | None = None, mode: str = "cpu", eager_threshold: int = 0,
        poison: bool = False, gamma: float = 0, **network: Any,
    ) -> None:  # fmt: skip
        """Make the network and check all arguments. Raises `ArgumentError`.

        `ranks` is the number of ranks. `transport` is "model" (alpha and beta, no packets), "uet", "roce", or a
        `CollectiveNetwork`; all further keywords are arguments of the network. `algorithm` is one name for all
        collectives that have an algorithm of this name, or a dict with a name for each operation; the default depends
        on the size (`choice.choose`). `nodes` is the number of nodes, or the ranks of each node; a network with packets
        takes the nodes as hosts, and its argument `hosts` has the same meaning. `channels`, `slices`, `sockets` and
        `between` are options of algorithms (see `catalogue.schedule`).

        With `mode` "cpu" a call returns when its result is there; "stream" is explained in collectives.md §1.2. A send
        of at most `eager_threshold` bytes is copied and done at once. With `poison`, receive buffers are filled with
        0xff until the data is there. `gamma` is the number of picoseconds that the reduction of a byte takes.
        """
        if type(ranks) is not int or not 1 <= ranks <= MOST_RANKS:
            raise invalid("ranks", shown(ranks), f"a whole number, 1 … {MOST_RANKS}", id="out-of-range")
        if mode not in ("cpu", "stream"):
            raise invalid("mode", repr(mode), "cpu, stream", id="unknown-name")
        if type(eager_threshold) is not int or eager_threshold < 0:
            raise invalid("eager_threshold", repr(eager_threshold), "bytes, 0 and more", id="out-of-range")
        if not isinstance(gamma, (int, float)) or not 0 <= gamma < float("inf"):
            raise invalid("gamma", repr(gamma), "picoseconds a byte, 0 and more", id="out-of-range")
        if nodes is not None and not (nodes > 0 if isinstance(nodes, int) else _is_ranks_of_each(nodes)):
            raise invalid("nodes", repr(nodes), "how many, or a list of the ranks of each", id="wrong-type")
        self.size = ranks
        self.streams = mode == "stream"
        self.eager_threshold = eager_threshold
        self.poison = poison
        self.network = network_of(transport, ranks, nodes, network)
        try:
            self.nodes = agreed(ranks, nodes, self.network.nodes)
            self.algorithms = check(algorithm, self.network.offload)
            given = {"channels": channels, "slices": slices, "sockets": sockets, "between": between}
            options = check_options(given, self.algorithms)
        except LocalError:
            if self.network is not transport:
                self.network.close(drain=False)
            raise
        self.planner = CollectivePlanner(self.network, self.nodes, options, gamma)
        self.trace: list[Event] = []
        self.counted = [CollectiveCounters() for _ in range(ranks)]
        """Messages and bytes that the collectives of each rank moved."""
        self.errors: dict[int, BaseException] = {}
        """Errors of the ranks that failed, the first one first."""
        self.results: list[Any] = []
        self._running = False
        self._earlier_groups = 0
        """Number of groups of earlier runs."""
        self._groups: list[ProcessGroup] = []
        """Groups of this run, in the order of their numbers."""
        self.scheduler = self._make_scheduler()

    def _make_scheduler(self) -> RankScheduler:
        return RankScheduler(
            self.network, self, streams=self.streams, trace=self.trace, counted=self.counted, mismatch=self._mismatch
        )

    @property
    def now(self) -> int:
        """Return virtual time in picoseconds."""
        return self.network.now

    @property
    def counts(self) -> NetworkCounts:
        """Return how many frames the network has dropped, trimmed and marked so far, and how many packets were
        retransmitted for each cause."""
        return self.network.counts

    def run(self, program: Callable[..., Any], args: Iterable[Any] = ()) -> list[Any]:
        """Run `program(rank, *args)` in every rank, and return the ranks' results. A world can have several runs, one
        after the other.

        When all ranks and all operations in progress have ended, the first error of a rank is raised. An operation that
        can never end raises `DeadlockError`.
        """
        if self._running or is_rank():
            raise LocalError("run", "called in a rank", "outside, one run after the other", id="wrong-state")
        if not callable(program) or _is_suspended_by_calls(program):
            raise invalid("program", shown(program), _PROGRAM, id="wrong-type")
        args = tuple(args)
        self._running = True
        self.scheduler = self._make_scheduler()
        self.errors = {}
        self._earlier_groups += len(self._groups)
        self._groups = []
        try:
            with seldom_collected():
                stuck = self.scheduler.run(lambda number: self._program(number, program, args), self._ended)
        finally:
            self._running = False
            self._release()
        self.results = [rank.result for rank in self.scheduler.threads.members]
        # The first error is raised; an error caused by that of another rank comes last.
        for number, error in sorted(self.errors.items(), key=lambda item: isinstance(item[1], AbortedError)):
            error.add_note(f"raised by rank {number}; virtual time {self.now / SECOND:.9f} s")
            raise error
        if stuck is not None:
            raise stuck
        return self.results

    def close(self, drain: bool = True) -> None:
        """Close the network, after which its capture is complete. If `drain` is True, frames in flight arrive first."""
        self.network.close(drain)

    def __enter__(self) -> "World":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close(drain=kind is None)

    def _program(self, number: int, program: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        state = self.scheduler.states[number]
        try:
            result = program(number, *args)
        except ValueError as error:
            if state.locks.any and "read-only" in str(error) and not isinstance(error, UetError):
                raise modified(next(iter(state.open)).name) from error
            raise
        if isinstance(result, (Generator, Coroutine, AsyncGenerator)):
            if not isinstance(result, AsyncGenerator):
                result.close()
            raise invalid(
                "program", f"{shown(program)} returned {shown(result)}, which has not run", _PROGRAM, id="wrong-state"
            )
        if self.streams:
            self.scheduler.synchronize(state)
        return result

    def _ended(self, rank: RankThread) -> None:
        """Fail all operations that need a rank that has failed; a rank that returned is ignored."""
        if rank.error is None:
            return
        self.errors[rank.number] = rank.error
        error = _aborted(rank.number, rank.error)
        for group in tuple(self._groups):
            if rank.number in group.places:
                group.lost(rank.number, error)
        for work in tuple(self.scheduler.states[rank.number].open):
            work.fail(error)

    def _release(self) -> None:
        """End the operations that are still open after the run, so that no tensor stays locked."""
        for state in self.scheduler.states:
            for work in tuple(state.open):
                work.finish(AbortedError(f"{work.name}: the run has ended", id="aborted"))

    def _mismatch(self) -> UetError | None:
        return next(filter(None, (group.mismatch() for group in self._groups)), None)

    def dead(self, ranks: Iterable[int]) -> AbortedError | None:
        """Return the error for operations that need one of these ranks, or None if none of these ranks has failed."""
        failed = next((rank for rank in ranks if rank in self.errors), None) if self.errors else None
        return None if failed is None else _aborted(failed, self.errors[failed])

    def groups_made_by(self, state: RankState) -> list[ProcessGroup]:
        """Return the groups that a rank has made so far in this run."""
        return self._groups[: state.groups_made]

    def make_group(self, state: RankState, ranks: Sequence[int], timeout: int) -> ProcessGroup:
        """Make the next group of a rank, and return this group. All ranks of the world make the same groups in the same
        order (collectives.md §1.1): the first rank's call creates the group, and the calls of the other ranks return
        the same group.

        `timeout` is in picoseconds. Raises `ArgumentError` if another rank gave other ranks or another time-out for
        this group.
        """
        number = state.groups_made
        if number < len(self._groups):
            group = self._groups[number]
            if group.ranks != tuple(ranks):
                text = f"rank {state.number} makes group {number} of ranks {tuple(ranks)}, another rank of"
                raise invalid(
                    "ranks", f"{text} {group.ranks}", "the same groups in the same order on all ranks",
                    id="collective-mismatch"
                )  # fmt: skip
            if group.timeout != timeout:
                times = f"{timeout / SECOND:g} s, another rank with {group.timeout / SECOND:g} s"
                text = f"rank {state.number} makes group {number} with {times}"
                raise invalid("timeout", text, "the same on all ranks", id="collective-mismatch")
        else:
            group = ProcessGroup(self, number, ranks, timeout, self._earlier_groups + number)
            self._groups.append(group)
        state.groups_made += 1
        return group


def _aborted(rank: int, error: BaseException) -> AbortedError:
    return AbortedError(f"rank {rank} failed: {type(error).__name__}: {error}", id="aborted")


def _is_ranks_of_each(nodes: object) -> bool:
    return isinstance(nodes, Sequence) and all(
        isinstance(node, Sequence) and all(isinstance(rank, int) for rank in node) for node in nodes
    )


def current_world() -> World:
    """Return the world to which the calling rank belongs. Raises `LocalError` outside of a run."""
    world = current_rank().owner
    assert isinstance(world, World)
    return world


def current_state() -> RankState:
    """Return the `RankState` of the calling rank. Raises `LocalError` outside of a run."""
    return current_world().scheduler.states[current_rank().number]


def run(program: Callable[..., Any], args: Iterable[Any] = (), *, ranks: int = 2, **world: Any) -> list[Any]:
    """Run `program(rank, *args)` in every rank of a new `World(ranks, **world)`, and return the ranks' results.

    Raises the first error of a rank. `world` has keyword arguments of `World`, such as `transport="uet"` and
    `algorithm="ring"`.
    """
    with World(ranks, **world) as made:
        return made.run(program, args)


# Beyond torch


def now() -> float:
    """Return virtual time in seconds."""
    return current_world().scheduler.clock(current_state()) / SECOND


def sleep(duration: Timeout) -> None:
    """Let virtual time pass for this rank, as a computation would. A number as `duration` is in seconds."""
    state = current_state()
    current_world().scheduler.sleep(state, picoseconds("duration", duration))


def synchronize() -> None:
    """Wait until all operations of this rank are done. In stream mode a program calls this function in place of
    `torch.cuda.synchronize`."""
    current_world().scheduler.synchronize(current_state())
