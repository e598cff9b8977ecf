"""What an aggregation node has, and who uses it: trees, quotas, OSTs, buffers, semaphores (sharp.md §1.2, §2.9).

An LLT group keeps its granted OSTs from JOIN to LEAVE, unless `lazy_ost` has each operation take its own. A SAT group
needs none until it holds the lock; then it has `sat_window` of them (**choice**: its granted_osts are operations, each
of many chunks). A number of a quota that is 0 is no limit (**choice**).
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from uetproto.engine.sharp.config import SharpConfig
from uetproto.engine.sharp.messages import JoinRequest
from uetproto.wire.headers.sharp import Status

if TYPE_CHECKING:
    from uetproto.engine.sharp.node.group import AggregationGroup

DYNAMIC_OSTS = 2
"""W of a group that asks for 0 OSTs (§5 SHARP_COLL_OSTS_PER_GROUP)."""


class Quota(NamedTuple):
    """QuotaConfig: what one job may use on one tree (§2.9)."""

    job_id: int
    tree_id: int
    osts: int = 0
    buffers: int = 0
    groups: int = 0
    qps: int = 0
    user_data: int = 0
    is_root: bool = False
    prevent_lock: bool = False
    reproducible: bool = False
    fp19: bool = False
    bfloat19: bool = False
    ud_qpn: int = 0
    job_key: int = 0


@dataclass(slots=True)
class NodeTree:
    """TreeConfig: the place of this node in one tree (§2.9)."""

    tree_id: int
    mode: int
    """0 LLT, 1 SAT."""
    llt_tree_id: int
    parent: int | None
    """Connection; None: the top."""
    children: Mapping[int, int]
    """Connection by child_idx."""
    depth: int = 1
    """Levels up to here, 1: a leaf, whose children are hosts."""
    enabled: bool = True
    child_of: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.child_of = {conn: child for child, conn in self.children.items()}


class Used(NamedTuple):
    """What is in use."""

    osts: int
    groups: int
    locks: int
    buffers: int
    """Bytes."""


class ResourcePool:
    """The resources of one node."""

    def __init__(self, config: SharpConfig) -> None:
        self.config = config
        self.osts = 0
        self.buffers = 0
        self.holders: Counter[int] = Counter()
        """Groups that hold each SAT tree, tentatively or for good."""
        self.groups: Counter[tuple[int, int]] = Counter()
        """Of each (job, tree)."""
        self._job_osts: Counter[tuple[int, int]] = Counter()

    def used(self) -> Used:
        """What is in use now."""
        return Used(self.osts, self.groups.total(), self.holders.total(), self.buffers)

    # Groups

    def admit(self, group: "AggregationGroup", request: JoinRequest) -> Status:
        """Whether a group may begin here. If so, it keeps as many OSTs as it wants and can have."""
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

    def reserve(self, group: "AggregationGroup", osts: int) -> None:
        """The group keeps `osts` from now on, instead of what it kept."""
        more = osts - group.reserved
        group.reserved = osts
        self._job_osts[group.job_id, group.tree_id] += more
        if not group.tree.mode:
            self.buffers += more * group.buffer_cost
            if not self.config.lazy_ost:
                self.osts += more

    def release(self, group: "AggregationGroup") -> None:
        """The group is gone."""
        if group.reserved:
            self.reserve(group, 0)
            self.groups[group.job_id, group.tree_id] -= 1

    # OSTs by the lazy policy

    def take_ost(self) -> bool:
        """One for an operation; without the lazy policy it came with the group, or with its lock."""
        if not self.config.lazy_ost:
            return True
        if self.osts >= self.config.osts:
            return False
        self.osts += 1
        return True

    def give_ost(self) -> None:
        """It is free again."""
        self.osts -= self.config.lazy_ost

    # Semaphores of SAT trees

    def take_semaphore(self, sat_tree_id: int) -> bool:
        """For a group, with the OSTs of its stream; False: it would have to wait."""
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

    def give_semaphore(self, sat_tree_id: int) -> None:
        """It is free again."""
        self.holders[sat_tree_id] -= 1
        self.osts -= 0 if self.config.lazy_ost else self.config.sat_window
