"""What an aggregation manager grants, and what it remembers of it (sharp.md §4.2)."""

from dataclasses import dataclass, field

from uetproto.engine.sharp.manager.trees import AggregationTree, Subtree
from uetproto.wire.codec import Values


@dataclass(frozen=True, slots=True)
class AttachPoint:
    """Where a host connects to for one tree."""

    tree_id: int
    an: int
    """The leaf AN: its GUID, which is its address."""
    conn: int
    """The connection of that AN."""
    child_idx: int


@dataclass(frozen=True, slots=True)
class Rail:
    """One rail of a job: its tree, and the place of every host port, in the order of the ranks."""

    tree: AggregationTree
    part: Subtree
    llt: tuple[AttachPoint, ...]
    sat: tuple[AttachPoint, ...]
    """Empty: this job does not stream here."""
    osts: int
    groups: int


@dataclass(frozen=True, slots=True)
class JobGrant:
    """What a job got."""

    job_id: int
    rails: tuple[Rail, ...]
    user_data: int
    exclusive: bool
    """Its SATs are locked by nobody else."""


@dataclass(slots=True)
class KnownAn:
    """What the manager knows of an AN."""

    info: Values
    osts: int
    buffers: int
    groups: int
    qps: int
    """Left to be granted."""
    shared: int = 0
    """Jobs that may lock a SAT here, with others."""
    exclusive: int = 0
    """Jobs that have a semaphore to themselves."""

    @property
    def semaphores(self) -> int:
        """Without an exclusive owner."""
        return self.info["semaphores"] - self.exclusive


@dataclass(slots=True)
class Share:
    """What a job has of one AN, by tree: to be given back."""

    guid: int
    osts: int
    buffers: int
    groups: int


@dataclass(slots=True)
class KnownJob:
    """What the manager knows of a job."""

    grant: JobGrant
    shares: list[Share] = field(default_factory=list)
    qps: list[tuple[int, int, int, int]] = field(default_factory=list)
    """(AN, tree, child_idx, connection), of hosts."""
    streams: list[tuple[int, bool]] = field(default_factory=list)
    """ANs on which it has a semaphore, and whether to itself."""


__all__ = ["AttachPoint", "JobGrant", "KnownAn", "KnownJob", "Rail", "Share"]
