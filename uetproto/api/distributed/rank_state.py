"""What a world knows about one rank, and the lines of its trace."""

from typing import TYPE_CHECKING, NamedTuple

from uetproto.api.distributed.group import ProcessGroup
from uetproto.api.distributed.ranks import Rank
from uetproto.api.distributed.tensors import Locks
from uetproto.api.distributed.work import Work
from uetproto.errors import UetError

if TYPE_CHECKING:
    from uetproto.api.distributed.world import World


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
        self.destroyed: set[ProcessGroup] = set()
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
        self.failure: UetError | None = None
        """The first one."""
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


__all__ = ["Event", "Seat"]
