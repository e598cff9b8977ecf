# SPDX-License-Identifier: GPL-2.0-only
"""This module has the process group: its ranks, and the matching of their operations (collectives.md §1.1).

Point-to-point operations are matched by tag, collectives by position. The matching happens before a byte moves, and
refuses calls that do not fit together (collectives.md §1.4). It takes neither time nor packets: it stands for the side
channel that the debug wrapper of torch.distributed uses. The bytes of operations that match go over the transport.
"""

from collections.abc import Sequence
from numbers import Integral

from uetproto.api.distributed.collective_match import CollectiveMatch
from uetproto.api.distributed.p2p_match import P2PMatching
from uetproto.api.distributed.planner import GroupWorld
from uetproto.errors import UetError


class ProcessGroup:
    """A process group is a list of ranks of a world that communicate with each other. `dist.new_group` makes one."""

    def __init__(self, world: GroupWorld, number: int, ranks: Sequence[int], timeout: int, mark: int) -> None:
        self.world = world
        self.number = number
        """Number of the group in its run; 0 is the default group."""
        self.mark = mark
        """Number that the tags of its messages carry. It differs in each run, so that no message matches one of a
        failed earlier run."""
        self.ranks = tuple(ranks)
        """Global ranks, in the order of group ranks."""
        self.timeout = timeout
        """Picoseconds that an operation may take."""
        self.places = {rank: place for place, rank in enumerate(self.ranks)}
        """Maps each global rank to its group rank."""
        self.posts = [0] * len(self.ranks)
        """Point-to-point operations of each rank so far."""
        self.calls = [0] * len(self.ranks)
        """Collectives of each rank so far."""
        self.p2p = P2PMatching(self)
        self._matches: dict[int, CollectiveMatch] = {}

    def has(self, rank: object) -> bool:
        """Return whether `rank` is a global rank of the group."""
        return isinstance(rank, Integral) and rank in self.places

    def size(self) -> int:
        """Return the number of ranks."""
        return len(self.ranks)

    def match(self, sequence: int) -> CollectiveMatch:
        """Return the `CollectiveMatch` of the collective number `sequence`; the first call for this number makes it."""
        if sequence not in self._matches:
            self._matches[sequence] = CollectiveMatch(self, sequence)
        return self._matches[sequence]

    def left(self, sequence: int) -> None:
        """Forget the collective number `sequence`, which has ended on all ranks."""
        del self._matches[sequence]

    def mismatch(self) -> UetError | None:
        """Return the error for the first difference between the calls of ranks that have joined the same collective, or
        None if there is no difference."""
        return next(filter(None, (match.mismatch() for match in self._matches.values())), None)

    def lost(self, rank: int, error: UetError) -> None:
        """Fail the operations that need the failed rank `rank`: all collectives, and all sends and receives between
        this rank and another."""
        for match in tuple(self._matches.values()):
            match.abort(error)
        self.p2p.lost(rank, error)

    def __repr__(self) -> str:
        return f"<ProcessGroup {self.number}: ranks {', '.join(map(str, self.ranks))}>"
