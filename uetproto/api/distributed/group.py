"""A process group: its ranks, and where their operations meet: point to point by tag, collectives by position (§1.1).

Operations meet before a byte moves, by a side channel that takes no time and no packets, as the debug wrapper of
torch.distributed does it: what does not fit together is refused there (§1.4). What fits goes over the transport.
"""

from collections.abc import Sequence
from numbers import Integral
from typing import TYPE_CHECKING

from uetproto.api.distributed.match import Meeting
from uetproto.api.distributed.matching import Matching
from uetproto.errors import UetError

if TYPE_CHECKING:
    from uetproto.api.distributed.world import World


class ProcessGroup:
    """Some ranks of a world, which communicate among themselves. `dist.new_group` makes it."""

    def __init__(self, world: "World", number: int, ranks: Sequence[int], timeout: int, mark: int) -> None:
        self.world = world
        self.number = number
        """0: the default group."""
        self.mark = mark
        """What its messages carry: another one in each run, so that none meets what a failed run left behind."""
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

    def has(self, rank: object) -> bool:
        """Whether it is a global rank of the group; anything may be asked."""
        return isinstance(rank, Integral) and rank in self.places

    def size(self) -> int:
        """How many ranks it has."""
        return len(self.ranks)

    def meeting(self, sequence: int) -> Meeting:
        """Where the ranks meet for their collective of this number."""
        if sequence not in self._meetings:
            self._meetings[sequence] = Meeting(self, sequence)
        return self._meetings[sequence]

    def left(self, meeting: Meeting) -> None:
        """All ranks have done it."""
        del self._meetings[meeting.sequence]

    @property
    def meetings(self) -> tuple[Meeting, ...]:
        """Those that some rank has come to, and not all have left."""
        return tuple(self._meetings.values())

    def lost(self, rank: int, error: UetError) -> None:
        """A rank has failed: nothing that needs it can go on."""
        for meeting in self.meetings:
            meeting.abort(error)
        self.matching.lost(rank, error)

    def __repr__(self) -> str:
        return f"<ProcessGroup {self.number}: ranks {', '.join(map(str, self.ranks))}>"


__all__ = ["ProcessGroup"]
