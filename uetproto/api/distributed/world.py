"""A world of ranks: their programs, their operations under way, and the time that all share.

A rank that cannot go on hands on to the next one; when no rank can go on, the network does; and when nothing is under
way there either, they wait for each other, and the run ends with who waits for whom (collectives.md §1.5).
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any

from uetproto.api.distributed.choice import check, check_options
from uetproto.api.distributed.errors import AbortedError, invalid, modified
from uetproto.api.distributed.group import ProcessGroup
from uetproto.api.distributed.networks.hosts import spread_over
from uetproto.api.distributed.networks.network import TRANSPORTS, agreed, network_of
from uetproto.api.distributed.operations import Operations
from uetproto.api.distributed.progress import Progress
from uetproto.api.distributed.rank_state import Event, Seat
from uetproto.api.distributed.ranks import Rank, Ranks, current, is_rank
from uetproto.api.distributed.waiting import Waiting
from uetproto.api.distributed.work import SECOND
from uetproto.collectives.runner import Counted, Pool
from uetproto.collectives.transport import Network, Transport
from uetproto.errors import LocalError, UetError


class World:
    """Ranks around a network. `World(4).run(program)` runs a program in each; `dist.run` does so with a new world."""

    def __init__(
        self, ranks: int = 2, *, transport: str | Network = "model", algorithm: str | Mapping[str, str] | None = None,
        nodes: int | Sequence[Sequence[int]] | None = None, channels: int | None = None, slices: int | None = None,
        sockets: int | None = None, between: str | None = None, mode: str = "cpu", eager_threshold: int = 0,
        poison: bool = False, gamma: float = 0, **network: Any,
    ) -> None:  # fmt: skip
        """`ranks`: how many. `transport`: "model" (alpha and beta, no packets), "uet", "roce", or a `Network`; all
        further arguments are the network's. `algorithm`: of all collectives, or by operation; None: by size, see
        `distributed_choice`. `nodes`: how many, or the ranks of each: hosts to a network with packets, which may be
        told `hosts` instead. `channels`, `slices`, `sockets`, `between`: as `catalogue.schedule` says, of the
        algorithms that have them.

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
        self.streams = mode == "stream"
        self.eager_threshold = eager_threshold
        self.poison = poison
        self.gamma = gamma
        self.pool = Pool()
        self.network = network_of(transport, ranks, nodes, network)
        try:
            self.nodes = agreed(ranks, nodes, self.network.nodes)
            self.algorithms = check(algorithm, self.network.offload)
            told = {"channels": channels, "slices": slices, "sockets": sockets, "between": between}
            self.options = check_options(told, self.algorithms)
        except LocalError:
            if self.network is not transport:
                self.network.close(drain=False)
            raise
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
        self._marks = 0
        """Groups of earlier runs."""
        self.made: list[ProcessGroup] = []
        """Groups, in the order of their numbers."""
        self.operations = Operations(self)
        self.waiting = Waiting(self)
        self.progress = Progress(self)

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
        self._marks += len(self.made)
        self.made = []
        try:
            self.ranks.run(
                lambda number: self._program(number, program, args), "rank", self.progress.pass_time, self._ended
            )
            stuck = self.progress.drain()
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
            self.waiting.synchronize(seat)
        return result

    def _ended(self, rank: Rank) -> None:
        if rank.error is None:
            return
        self.errors[rank.number] = rank.error
        error = AbortedError(f"rank {rank.number} failed: {type(rank.error).__name__}: {rank.error}")
        for group in tuple(self.made):
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
        if number < len(self.made):
            group = self.made[number]
            if group.ranks != tuple(ranks):
                text = f"rank {seat.number} makes group {number} of ranks {tuple(ranks)}, another rank of {group.ranks}"
                raise invalid("ranks", text, "the same groups in the same order on all ranks")
            if group.timeout != timeout:
                times = f"{timeout / SECOND:g} s, another rank with {group.timeout / SECOND:g} s"
                text = f"rank {seat.number} makes group {number} with {times}"
                raise invalid("timeout", text, "the same on all ranks")
        else:
            group = ProcessGroup(self, number, ranks, timeout, self._marks + number)
            self.made.append(group)
        seat.groups_made += 1
        return group

    def nodes_of(self, group: ProcessGroup) -> int | list[list[int]] | None:
        """The nodes of a group, in group ranks."""
        if self.nodes is None or (isinstance(self.nodes, int) and len(group.ranks) == self.size):
            return self.nodes if self.nodes is None or isinstance(self.nodes, int) else list(map(list, self.nodes))
        nodes = spread_over(self.size, self.nodes)
        found = [[group.places[rank] for rank in node if rank in group.places] for node in nodes]
        return [node for node in found if node]


def _is_ranks_of_each(nodes: object) -> bool:
    return isinstance(nodes, Sequence) and all(
        isinstance(node, Sequence) and all(isinstance(rank, int) for rank in node) for node in nodes
    )


__all__ = ["TRANSPORTS", "Event", "Seat", "World"]
