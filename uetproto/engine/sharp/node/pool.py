# SPDX-License-Identifier: GPL-2.0-only
"""The pool holds the resources of an aggregation node: OSTs, buffers, semaphores (sharp.md §1.2, §2.9).

An LLT group keeps its granted OSTs from JOIN to LEAVE; with `lazy_ost` each operation allocates an OST instead. A SAT
group has no OSTs until it holds the lock, and then it has `sat_window` OSTs, one for each open chunk. By a choice of
this project, granted_osts of a SAT group limits its open operations. By another choice, a 0 in a quota sets no limit.
"""

from collections import Counter
from typing import NamedTuple, Protocol

from uetproto.engine.sharp.config import SharpConfig
from uetproto.engine.sharp.management import NodeTree, Quota
from uetproto.engine.sharp.messages import JoinRequest
from uetproto.wire.headers.sharp import Status

DYNAMIC_OSTS = 2
"""Window W of a group that requests 0 OSTs (sharp.md §5, SHARP_COLL_OSTS_PER_GROUP)."""


class PoolUser(Protocol):
    """These are the members of a group that the pool uses."""

    tree: NodeTree
    tree_id: int
    job_id: int
    quota: Quota | None
    reserved: int

    @property
    def buffer_cost(self) -> int:
        """Return the number of buffer bytes that one OST of the group uses."""


class Used(NamedTuple):
    """This tuple says how much of each resource of a node is in use."""

    osts: int
    groups: int
    locks: int
    buffers: int
    """Number of buffer bytes that are in use."""


class ResourcePool:
    """The pool counts the resources of one node that are in use, and admits groups within the limits."""

    def __init__(self, config: SharpConfig) -> None:
        self.config = config
        self.osts = 0
        self.buffers = 0
        self.holders: Counter[int] = Counter()
        """Maps each SAT tree to the number of groups that hold a semaphore of this tree, tentatively or committed."""
        self.groups: Counter[tuple[int, int]] = Counter()
        """Maps (job, tree) to the number of groups."""
        self._job_osts: Counter[tuple[int, int]] = Counter()

    def used(self) -> Used:
        """Return the resources that are in use now."""
        return Used(self.osts, self.groups.total(), self.holders.total(), self.buffers)

    # Groups

    def admit(self, group: PoolUser, request: JoinRequest) -> Status:
        """Reserve the requested OSTs for a new group within the limits, and return OK; otherwise return the reason."""
        config, quota, key = self.config, group.quota, (group.job_id, group.tree_id)
        if quota is None:
            return Status.UNKNOWN_JOB
        if not request.ranks or request.group_size < len(request.ranks):
            return Status.MISMATCH
        if self.groups.total() >= config.groups or (quota.groups and self.groups[key] >= quota.groups):
            return Status.GROUP_EXHAUSTED
        limits = [request.want_osts or DYNAMIC_OSTS, config.max_group_osts]
        if quota.osts:
            limits.append(quota.osts - self._job_osts[key])
        if not group.tree.mode:
            if not config.lazy_ost:
                limits.append(config.osts - self.osts)
            limits.append((config.buffers - self.buffers) // group.buffer_cost)
            if quota.buffers:
                limits.append(quota.buffers // group.buffer_cost - self._job_osts[key])
        if min(limits) < 1:
            return Status.QUOTA
        self.groups[key] += 1
        self.reserve(group, min(limits))
        return Status.OK

    def reserve(self, group: PoolUser, osts: int) -> None:
        """Change the number of OSTs that are reserved for a group to `osts`."""
        more = osts - group.reserved
        group.reserved = osts
        self._job_osts[group.job_id, group.tree_id] += more
        if not group.tree.mode:
            self.buffers += more * group.buffer_cost
            if not self.config.lazy_ost:
                self.osts += more

    def release(self, group: PoolUser) -> None:
        """Release everything that is reserved for a group."""
        if group.reserved:
            self.reserve(group, 0)
            self.groups[group.job_id, group.tree_id] -= 1

    # OSTs by the lazy policy

    def allocate_ost(self) -> bool:
        """Allocate an OST and return whether one was left. Without `lazy_ost` return True, as the group has reserved
        its OSTs."""
        if not self.config.lazy_ost:
            return True
        if self.osts >= self.config.osts:
            return False
        self.osts += 1
        return True

    def release_ost(self) -> None:
        """Release the OST of an operation, if `lazy_ost` is set; otherwise the group keeps it."""
        self.osts -= self.config.lazy_ost

    # Semaphores of SAT trees

    def acquire_semaphore(self, sat_tree_id: int) -> bool:
        """Acquire a semaphore of a SAT tree and the OSTs for its window of chunks; return whether all were
        available."""
        config = self.config
        streams = 0 if config.lazy_ost else config.sat_window
        if (
            self.holders[sat_tree_id] >= config.semaphores or self.holders.total() >= config.sat_flows_per_an
            or self.osts + streams > config.osts
        ):  # fmt: skip
            return False
        self.holders[sat_tree_id] += 1
        self.osts += streams
        return True

    def release_semaphore(self, sat_tree_id: int) -> None:
        """Release a semaphore of a SAT tree and the OSTs for its window of chunks."""
        self.holders[sat_tree_id] -= 1
        self.osts -= 0 if self.config.lazy_ost else self.config.sat_window
