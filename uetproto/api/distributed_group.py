"""A process group: its ranks, and where their operations meet: point to point by tag, collectives by position (§1.1).

Operations meet before a byte moves, by a side channel that takes no time and no packets, as the debug wrapper of
torch.distributed does it: what does not fit together is refused there (§1.4). What fits goes over the transport.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from uetproto.api.distributed_errors import AbortedError, CollectiveMismatchError, DeadlockError, SizeMismatchError
from uetproto.api.distributed_work import Work
from uetproto.collectives.catalogue import schedule
from uetproto.collectives.dtypes import Array, bytes_of
from uetproto.collectives.reduce_ops import ReduceOp
from uetproto.collectives.runner import Execution
from uetproto.collectives.transport import Failure, Purpose, Tag
from uetproto.errors import LocalError, UetError

if TYPE_CHECKING:
    from uetproto.api.distributed_world import World


class ProcessGroup:
    """Some ranks of a world, which communicate among themselves. `dist.new_group` makes it."""

    def __init__(self, world: "World", number: int, ranks: Sequence[int], timeout: int) -> None:
        self.world = world
        self.number = number
        """0: the default group."""
        self.ranks = tuple(ranks)
        """Global ranks, in the order of group ranks."""
        self.timeout = timeout
        """Picoseconds that an operation may take."""
        self.places = {rank: place for place, rank in enumerate(self.ranks)}
        """Group rank of each global rank."""
        self.posts = [0] * len(self.ranks)
        """Point-to-point operations of each rank so far."""
        self.calls = [0] * len(self.ranks)
        """Collectives of each rank so far."""
        self.matching = Matching(self)
        self._meetings: dict[int, Meeting] = {}

    def size(self) -> int:
        """How many ranks it has."""
        return len(self.ranks)

    def meeting(self, sequence: int) -> "Meeting":
        """Where the ranks meet for their collective of this number."""
        if sequence not in self._meetings:
            self._meetings[sequence] = Meeting(self, sequence)
        return self._meetings[sequence]

    def left(self, meeting: "Meeting") -> None:
        """All ranks have done it."""
        del self._meetings[meeting.sequence]

    @property
    def meetings(self) -> tuple["Meeting", ...]:
        """Those that some rank has come to, and not all have left."""
        return tuple(self._meetings.values())

    def lost(self, rank: int, error: UetError) -> None:
        """A rank has failed: nothing that needs it can go on."""
        for meeting in self.meetings:
            meeting.abort(error)
        self.matching.lost(rank, error)

    def __repr__(self) -> str:
        return f"<ProcessGroup {self.number}: ranks {', '.join(map(str, self.ranks))}>"


@dataclass(slots=True, eq=False)
class Post:
    """One half of a point-to-point message."""

    work: Work
    sends: bool
    peer: int | None
    """Global rank; None: any source."""
    tag: int
    array: Array
    eager: Array | None = None
    """A copy: the sender's buffer is free."""

    @property
    def rank(self) -> int:
        return self.work.seat.number

    def meets(self, other: "Post") -> bool:
        return self.tag == other.tag and self.peer in (None, other.rank) and other.peer in (None, self.rank)

    def __str__(self) -> str:
        return f"{self.array.size} {self.array.dtype.name}"


class Matching:
    """Sends and receives that wait for each other; of one key first in, first out."""

    def __init__(self, group: ProcessGroup) -> None:
        self._group = group
        self._waiting: list[Post] = []
        self._moving: list[tuple[Post, Post]] = []
        self._count: dict[tuple[int, int], int] = {}

    def post(self, post: Post) -> None:
        """Meets the oldest that fits, or waits."""
        others = (o for o in self._waiting if o.sends is not post.sends and o.meets(post))
        other = next(others, None)
        if other is not None:
            self._waiting.remove(other)
            self._begin(*((post, other) if post.sends else (other, post)))
            return
        dead = self._group.world.dead(self._group.ranks if post.peer is None else (post.peer,))
        if dead is not None:
            post.work.fail(dead)
            return
        self._waiting.append(post)
        post.work.needs = lambda: self._needs(post)
        post.work.withdraw = lambda _: self._withdraw(post)

    def lost(self, rank: int, error: UetError) -> None:
        """A rank has failed."""
        for post in tuple(self._waiting):
            if rank in (post.rank, post.peer):
                post.work.fail(error)
        for pair in tuple(self._moving):
            if rank in (pair[0].rank, pair[1].rank):
                for post in pair:
                    post.work.fail(error)

    def _withdraw(self, post: Post) -> None:
        self._waiting = [other for other in self._waiting if other is not post]

    def _needs(self, post: Post) -> tuple[tuple[int, ...], str]:
        me = post.rank
        needs = tuple(rank for rank in self._group.ranks if rank != me) if post.peer is None else (post.peer,)
        whom = "any rank" if post.peer is None else f"rank {post.peer}"
        call = f"recv(src={me}, tag={post.tag})" if post.sends else f"send(dst={me}, tag={post.tag})"
        text = f"waits for {whom} to call {call}"
        near = [o for o in self._waiting if o.sends is not post.sends and o.rank in needs and o.peer in (None, me)]
        return needs, text + "".join(f"; rank {other.rank} has tag {other.tag} there" for other in near[:1])

    def _begin(self, send: Post, receive: Post) -> None:
        """Two halves have met."""
        receive.work.source = send.rank
        if send.array.size != receive.array.size or send.array.dtype != receive.array.dtype:
            text = f"rank {send.rank} sends {send}, rank {receive.rank} awaits {receive} (tag {send.tag})"
            error = SizeMismatchError(f"{text}; legal: the same number of elements of the same type")
            send.work.fail(error)
            receive.work.fail(error)
            return
        pair = (send.rank, receive.rank)
        number = self._count[pair] = self._count.get(pair, 0) + 1
        tag = Tag(Purpose.POINT_TO_POINT, self._group.number, number)
        moving = (send, receive)
        self._moving.append(moving)
        open_ = [True, True]

        def ended(half: int, failure: Failure | None) -> None:
            open_[half] = False
            if not any(open_):
                self._moving.remove(moving)
            moving[half].work.finish(failure)

        world = self._group.world
        for half in moving:
            half.work.needs = lambda: ((), "is under way")
            half.work.withdraw = lambda _: None
        data = send.array if send.eager is None else send.eager
        world.end(receive.rank).receive(send.rank, tag, bytes_of(receive.array).data, lambda f: ended(1, f))
        world.end(send.rank).send(receive.rank, tag, bytes_of(data).data, lambda f: ended(0, f))


@dataclass(slots=True, kw_only=True)
class Call:
    """What one rank asks of a collective."""

    op: str
    """Of the catalogue."""
    dtype: np.dtype[Any]
    count: int
    """Elements of the full vector."""
    prepare: Callable[[], tuple[Array, Array]]
    """INPUT and OUTPUT, as the call begins: contiguous."""
    shown: dict[str, Any]
    """The fingerprint: what has to be the same on all ranks, by name (§1.4)."""
    finish: Callable[[Array], None] | None = None
    """Is given OUTPUT at the end."""
    root: int | None = None
    reduce_op: ReduceOp | None = None
    algorithm: str = ""
    sizes: tuple[int, ...] | None = None
    sends: tuple[int, ...] | None = None
    """Of all_to_all: elements to each rank."""
    takes: tuple[int, ...] | None = None
    """And from each rank."""


@dataclass(slots=True)
class _Part:
    """One rank at a meeting."""

    work: Work
    call: Call
    execution: Execution | None = None


@dataclass(slots=True)
class Meeting:
    """The ranks of a group at one collective: it begins when all have come and ask for the same."""

    group: ProcessGroup
    sequence: int
    error: UetError | None = None
    _parts: dict[int, _Part] = field(default_factory=dict)
    _ended: int = 0

    def join(self, work: Work, call: Call) -> None:
        """A rank has come."""
        place = self.group.places[work.seat.number]
        self._parts[place] = _Part(work, call)
        work.needs = self._needs
        work.withdraw = self.abort
        work.then.append(self._left)
        dead = self.group.world.dead([rank for rank in self.group.ranks if rank not in self._present])
        if self.error is None and dead is not None:
            self.abort(dead)
        elif self.error is not None:
            work.fail(self.error)
        elif len(self._parts) == len(self.group.ranks):
            self._start()

    @property
    def _present(self) -> list[int]:
        return [self.group.ranks[place] for place in self._parts]

    @property
    def absent(self) -> tuple[int, ...]:
        """Global ranks that have not come."""
        return tuple(rank for place, rank in enumerate(self.group.ranks) if place not in self._parts)

    def abort(self, error: UetError) -> None:
        """It fails at all ranks, those that are yet to come too."""
        if self.error is not None:
            return
        rank = next((p.work.seat.number for p in self._parts.values() if p.work.error is not None), None)
        if rank is not None and not isinstance(error, _TOLD_AS_IT_IS):
            error = AbortedError(f"rank {rank} failed in its {self._op} #{self.sequence}: {error}")
        self.error = error
        for part in sorted(self._parts.values(), key=lambda part: part.work.seat.number):
            if part.execution is not None and not part.execution.ended:
                part.execution.fail(error)
            part.work.fail(error)

    def _left(self) -> None:
        self._ended += 1
        if self._ended == len(self.group.ranks):
            self.group.left(self)

    @property
    def _op(self) -> str:
        return next(iter(self._parts.values())).call.shown["op"]  # type: ignore[no-any-return]

    def _needs(self) -> tuple[tuple[int, ...], str]:
        absent = self.absent
        if not absent:
            return (), "is under way"
        return absent, f"waits for {'rank' if len(absent) == 1 else 'ranks'} {', '.join(map(str, absent))} to join"

    def mismatch(self) -> CollectiveMismatchError | None:
        """The first difference between those that have come: the majority is right."""
        ranks = self.group.ranks
        parts = sorted(self._parts.items())
        where = f"collective #{self.sequence} of group {self.group.number}"
        for name in dict.fromkeys(name for _, part in parts for name in part.call.shown):
            told = [(place, part.call.shown.get(name)) for place, part in parts]
            values = [value for _, value in told]
            usual = max(values, key=values.count)
            for place, value in told:
                if value != usual:
                    other = ranks[next(place for place, value in told if value == usual)]
                    text = f"{name} is {_shown(value)} on rank {ranks[place]}, {_shown(usual)} on rank {other}"
                    return CollectiveMismatchError(f"{where}: {text}")
        for place, part in parts:
            for peer, count in enumerate(part.call.sends or ()):
                takes = self._parts[peer].call.takes if peer in self._parts else None
                if takes is not None and takes[place] != count:
                    text = f"rank {ranks[place]} sends {count} elements to rank {ranks[peer]}"
                    return CollectiveMismatchError(f"{where}: splits: {text}, which awaits {takes[place]}")
        return None

    def _start(self) -> None:
        """All have come."""
        error = self.mismatch()
        if error is not None:
            self.abort(error)
            return
        world = self.group.world
        call = self._parts[0].call
        splits = None
        if len({count for part in self._parts.values() for count in part.call.sends or ()}) > 1:
            splits = [self._parts[place].call.sends or () for place in range(len(self._parts))]
        try:
            plan = schedule(
                call.op, call.algorithm, len(self.group.ranks), call.count, root=call.root or 0,
                nodes=world.nodes_of(self.group), sizes=call.sizes, splits=splits,
            )  # fmt: skip
        except LocalError as error:
            self.abort(CollectiveMismatchError(f"{call.shown['op']} #{self.sequence}: {error}"))
            return
        for place in range(len(self._parts)):
            part = self._parts[place]
            input_, output = part.call.prepare()
            part.execution = Execution(
                plan, place, world.end(self.group.ranks[place]), input=input_, output=output, op=call.reduce_op,
                ranks=self.group.ranks, group=self.group.number, sequence=self.sequence, pool=world.pool,
                gamma=world.gamma, done=self._done(part, output),
            )  # fmt: skip
        for part in self._parts.values():
            if part.execution is not None and self.error is None:
                part.execution.start()

    def _done(self, part: _Part, output: Array) -> Callable[[UetError | None], None]:
        def done(error: UetError | None) -> None:
            if part.execution is not None:
                part.work.counted = part.execution.counted
            if error is not None:
                part.work.fail(error)
                return
            if part.call.finish is not None:
                part.call.finish(output)
            part.work.finish()

        return done


_TOLD_AS_IT_IS = (AbortedError, CollectiveMismatchError, DeadlockError)
"""Errors that are the same for all ranks."""


def _shown(value: Any) -> str:
    return "none" if value is None else str(value)


__all__ = ["Call", "Matching", "Meeting", "Post", "ProcessGroup"]
