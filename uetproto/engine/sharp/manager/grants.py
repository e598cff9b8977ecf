# SPDX-License-Identifier: GPL-2.0-only
"""This module has the grants of an aggregation manager, and its records of ANs and jobs (sharp.md §4.2)."""

from collections import Counter
from dataclasses import dataclass, field

from uetproto.engine.sharp.manager.trees import AggregationTree, Subtree
from uetproto.wire.codec import Values


@dataclass(frozen=True, slots=True)
class AttachPoint:
    """An attach point is the connection of a leaf AN to one host in one tree."""

    tree_id: int
    an: int
    """GUID of the leaf AN, which is also its address."""
    conn: int
    child_idx: int


@dataclass(frozen=True, slots=True)
class Rail:
    """A rail of a job has its tree, and the attach points of the host ports in the order of the ranks."""

    tree: AggregationTree
    part: Subtree
    llt: tuple[AttachPoint, ...]
    sat: tuple[AttachPoint, ...]
    """Attach points on the SAT; there are none if the job does not use the SAT."""
    osts: int
    groups: int


@dataclass(frozen=True, slots=True)
class JobGrant:
    """A job grant holds the resources that a job was granted."""

    job_id: int
    rails: tuple[Rail, ...]
    user_data: int
    exclusive: bool
    """Whether no other job may lock the job's SATs."""


@dataclass(slots=True)
class KnownAn:
    """This is the record that the manager keeps of an AN: its capabilities, and the resources that are left to be
    granted."""

    info: Values
    osts: int
    buffers: int
    groups: int
    qps: int
    """Number of queue pairs that are left to be granted. `osts`, `buffers` and `groups` say how many OSTs, buffer bytes
    and groups are left."""
    shared: int = 0
    """Number of jobs that share the semaphores of this AN."""
    exclusive: int = 0
    """Number of jobs that have a semaphore of this AN exclusively."""
    flows: int = 0
    """Number of trees whose SAT a job may use, added up over all jobs that have an exclusive semaphore of this AN."""
    reserved: int = 0
    """Number of OSTs of the LLT groups of all jobs; a job has a group for each tree."""

    @property
    def semaphores(self) -> int:
        """Return the number of semaphores without an exclusive owner."""
        return self.info["semaphores"] - self.exclusive


@dataclass(slots=True)
class Share:
    """A share is the part of the resources of one AN that a job has on one tree."""

    guid: int
    osts: int
    buffers: int
    groups: int
    reserved: int


@dataclass(slots=True)
class KnownJob:
    """This is the record that the manager keeps of a job."""

    grant: JobGrant
    shares: list[Share] = field(default_factory=list)
    qps: list[tuple[int, int, int, int]] = field(default_factory=list)
    """Connections of ANs to hosts, as (GUID of the AN, tree number, child_idx, connection)."""
    semaphores: dict[int, bool] = field(default_factory=dict)
    """Has an entry for each AN on which the job has a semaphore: True if the job has this semaphore exclusively."""
    flows: Counter[int] = field(default_factory=Counter)
    """Maps each AN to the number of trees whose SAT the job may use at this AN."""
