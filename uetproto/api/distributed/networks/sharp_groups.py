# SPDX-License-Identifier: GPL-2.0-only
"""This module gives each group of ranks a SHARP job, with a SHARP group on each tree of the job (sharp.md §1.3, §3.4).

A rank joins a SHARP group when it first has something to aggregate. With `SHARP_COLL_GROUPS_PER_COMM` above 1 a job has
several trees: a vector that does not fit into one OST is divided among the trees, and shorter vectors use the trees in
turn (sharp.md §4.1).
"""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, TypeAlias

from uetproto.api.distributed.networks.sharp_fabric import SharpFabric
from uetproto.api.distributed.networks.sharp_works import SharpOperation
from uetproto.engine.sharp.host.work import (
    AggregateDone,
    AggregateFailed,
    Attachment,
    GroupFailed,
    GroupJoined,
    JoinGroup,
    Trouble,
)
from uetproto.engine.sharp.manager.grants import JobGrant, Rail

Told: TypeAlias = Callable[[bytearray | None, Trouble | None], None]
"""Function that is called at the end of an aggregation with its result and None, or with None and its failure."""


class RankHost:
    """This class is the SHARP host of one rank; it hands each event to the `SharpMember` or the aggregation that the
    event concerns."""

    def __init__(self, fabric: SharpFabric, rank: int) -> None:
        self.fabric = fabric
        self.node = fabric.ranks[rank]
        self.members: dict[int, SharpMember] = {}
        """Members by number of the group."""
        self._told: dict[int, Told] = {}
        self._ids = 0
        self.node.listeners.append(self._event)

    def submit(self, work: Any) -> None:
        """Submit a work request to the SHARP host."""
        host = self.fabric.hosts[self.node.name]
        self.node.submit(lambda now: host.submit(work, now))

    def aggregate(self, group_id: int, operation: SharpOperation, told: Told) -> None:
        """Submit an aggregation; `told` is called when the aggregation ends."""
        self._ids += 1
        self._told[self._ids] = told
        self.submit(operation.work(self._ids, group_id))

    def listen(self, group: int, qkey: int, port: int) -> None:
        """Make the port `port` of the host receive the results that are sent to the multicast group `group`."""
        self.fabric.carriers[self.node.name].join(group, qkey, self.node.now)
        self.fabric.world.join(group & 0xFFFFFFFF if group >> 32 == 0xFFFF else group, self.node.name, port)

    def _event(self, event: Any) -> None:
        if isinstance(event, AggregateDone):
            self._told.pop(event.op_id)(event.data, None)
        elif isinstance(event, AggregateFailed):
            self._told.pop(event.op_id)(None, event.trouble)
        elif isinstance(event, GroupJoined):
            self.members[event.group_id].on_joined(event)
        elif isinstance(event, GroupFailed):
            self.members[event.group_id].on_failed(event.trouble)


class SharpMember:
    """This class is the membership of one rank in the SHARP group of one tree."""

    def __init__(self, side: RankHost, rail: Rail, join: JoinGroup, port: int) -> None:
        self.side = side
        self.rail = rail
        self.port = port
        """Port of the host that the tree uses."""
        self._join = join
        self._asked = False
        self._joined = False
        self._trouble: Trouble | None = None
        self._waiting: list[tuple[SharpOperation, Told]] = []

    def submit(self, operation: SharpOperation, told: Told) -> None:
        """Submit an operation, but join the group first if this rank has not joined it yet."""
        if self._trouble is not None:
            told(None, self._trouble)
        elif self._joined:
            self.side.aggregate(self._join.group_id, operation, told)
        else:
            self._waiting.append((operation, told))
            if not self._asked:
                self._asked = True
                self.side.fabric.joins()
                self.side.submit(self._join)

    def on_joined(self, event: GroupJoined) -> None:
        """Submit the operations that waited for this rank to join the group."""
        if event.mgid:
            self.side.listen(event.mgid, event.qkey, self.port)
        self._joined = True
        waiting, self._waiting = self._waiting, []
        for operation, told in waiting:
            self.side.aggregate(self._join.group_id, operation, told)

    def on_failed(self, trouble: Trouble) -> None:
        """Fail the operations that waited for this rank to join the group, as it could not join."""
        self._trouble = trouble
        waiting, self._waiting = self._waiting, []
        for _, told in waiting:
            told(None, trouble)


class Communicator:
    """A communicator is the SHARP job of a group of ranks; it has a `SharpMember` for each rank and tree."""

    def __init__(self, fabric: SharpFabric, sides: Sequence[RankHost], grant: JobGrant) -> None:
        self.grant = grant
        self._members: list[list[SharpMember]] = [[] for _ in sides]
        """Members by place in the group, one for each tree."""
        self._turn = [0 for _ in sides]
        self._threshold = int(fabric.options.sat_threshold)
        for number, rail in enumerate(grant.rails):
            group_id = grant.job_id * len(grant.rails) + number
            for place, side in enumerate(sides):
                places = [trees[place] for trees in (rail.llt, rail.sat) if trees]
                llt, *sat = [Attachment(*fabric.connect(side.node.name, number, where)) for where in places]
                join = JoinGroup(
                    group_id=group_id, job_id=grant.job_id, group_size=len(sides), rank=place, llt=llt,
                    sat=sat[0] if sat else None, multicast=fabric.multicast,
                    want_osts=fabric.options.osts_of(rail.osts, rail.groups), user_data=grant.user_data,
                )  # fmt: skip
                side.members[group_id] = member = SharpMember(side, rail, join, fabric.port_of(side.node, number))
                self._members[place].append(member)

    def shares(self, place: int, operation: SharpOperation) -> list[tuple[SharpMember, SharpOperation]]:
        """Return the parts into which an operation is divided, each with the `SharpMember` of the tree that runs it.

        A vector that is streamed is divided among the trees that have a SAT. Each part is long enough to be streamed,
        because a part on an LLT would take longer than the whole vector on a SAT. Any other vector that does not fit
        into one OST is divided among all trees. Vectors that are not divided use the trees in turn.
        """
        members = self._members[place]
        parts = 0 if operation.count * operation.itemsize <= self.grant.user_data else operation.count
        streaming = [member for member in members if member.rail.sat]
        least = -(-self._threshold // operation.itemsize) if operation.itemsize else 0
        if streaming and operation.count >= max(1, least):
            members, parts = streaming, operation.count // max(1, least)
        parts = max(1, min(parts, len(members)))
        turn, self._turn[place] = self._turn[place], self._turn[place] + parts
        ends = [operation.count * number // parts for number in range(parts + 1)]
        return [
            (members[(turn + number) % len(members)], operation.part(start, end) if parts > 1 else operation)
            for number, (start, end) in enumerate(pairwise(ends))
        ]
