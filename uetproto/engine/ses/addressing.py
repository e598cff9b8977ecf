"""Who can be reached at an endpoint: processes of jobs, their resource indices in three spaces, their regions.

UE 1.0.1 §3.4.1.6, §3.4.6.3; ses.md §2.1 (address components), §2.2 (relative, absolute), §2.4 (index spaces,
generations), §14.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import IntEnum, auto
from typing import Any

from uetproto.engine.contract import EVERY_JOB
from uetproto.engine.memory import Region
from uetproto.engine.ses.buffers import PostedBuffer
from uetproto.engine.ses.matching import HeldMessages, PostedReceives
from uetproto.errors import LocalError
from uetproto.wire.headers.uet_ses import Space


class IndexState(IntEnum):
    """Of a resource index (ses.md §2.4)."""

    ENABLED = 0
    DISABLED_GEN = auto()
    """After an ordered message met no buffer: nothing overtakes it until the generation has moved on."""
    DISABLED = auto()
    """By its owner, or its completion queue is gone."""


class ResourceIndex:
    """One service of a process in one index space: its state and generation, and for messages its receive queue."""

    __slots__ = ("generation", "held", "held_bytes", "number", "pending", "posted", "space", "state")

    def __init__(self, space: Space, number: int) -> None:
        self.space = space
        self.number = number
        self.state = IndexState.ENABLED
        self.generation = 0
        self.posted: PostedReceives[PostedBuffer] = PostedReceives()
        self.held: HeldMessages[Any] = HeldMessages()
        """Messages without a buffer and stopped ones, in the order of their arrival (ses.md §11.3 rule 3)."""
        self.held_bytes = 0
        self.pending = 0
        """Of these, messages that were stopped (ses.md §5.7)."""

    def disable(self) -> None:
        """Messages get DISABLED from now on."""
        self.state = IndexState.DISABLED

    def refuse_ordered(self) -> None:
        """No buffer for an ordered message: ENABLED(g) → DISABLED_GEN(g)."""
        if self.state is IndexState.ENABLED:
            self.state = IndexState.DISABLED_GEN

    def enable(self) -> None:
        """Back from either disabled state, with the next generation."""
        if self.state is not IndexState.ENABLED:
            self.state = IndexState.ENABLED
            self.generation = (self.generation + 1) & 0xFF


@dataclass(slots=True, eq=False)
class Process:
    """A process attached to the endpoint: its resource indices and its regions by key (ses.md §14)."""

    job_id: int | None
    """None: a service reached by absolute addresses (ses.md §2.2); `EVERY_JOB`: by relative ones of all jobs."""
    pid_on_fep: int
    spaces: dict[Space, dict[int, ResourceIndex]] = field(default_factory=lambda: {space: {} for space in Space})
    regions: dict[int, Region] = field(default_factory=dict)
    on_change: Callable[[], None] = lambda: None
    """What was found here before must be looked up again."""

    def open(self, number: int, spaces: Iterable[Space] = tuple(Space)) -> None:
        """Configures resource index `number`. Raises `LocalError` when it is taken, or none."""
        if type(number) is not int or not 0 < number < 1 << 12:
            raise LocalError("resource_index", f"{number!r} is not legal", "1 … 0xfff (0 is reserved)")
        for space in spaces:
            if number in self.spaces[space]:
                raise LocalError("resource_index", f"{number} is taken in the space {space.name}")
            self.spaces[space][number] = ResourceIndex(space, number)

    def close(self, number: int) -> None:
        """Takes resource index `number` out of all spaces; later packets get BAD_INDEX."""
        for space in self.spaces.values():
            space.pop(number, None)
        self.on_change()

    @property
    def indices(self) -> dict[int, ResourceIndex]:
        """Those of the RMA space."""
        return self.spaces[Space.RMA]

    def register(self, region: Region) -> Region:
        """Makes a region reachable. Raises `LocalError` when its key is taken."""
        if region.key in self.regions:
            raise LocalError("key", f"{region.key:#x} is registered already")
        self.regions[region.key] = region
        return region


class Processes:
    """Who can be reached at this endpoint: by {JobID, PIDonFEP} relative, by PIDonFEP absolute."""

    def __init__(self) -> None:
        self.jobs: dict[int, dict[int, Process]] = {}
        self.services: dict[int, Process] = {}
        self.version = 0
        """Changes with every attach and detach: what was found before must be looked up again."""

    def _changed(self) -> None:
        self.version += 1

    def find(self, job_id: int | None, pid_on_fep: int) -> Process | None:
        """The process of a job, or with None the service."""
        return (self.services if job_id is None else self.jobs.get(job_id, {})).get(pid_on_fep)

    def of_every_job(self, pid_on_fep: int, number: int) -> Process | None:
        """The process beside those of the jobs that has resource index `number`; it goes before them."""
        process = self.find(EVERY_JOB, pid_on_fep)
        return process if process is not None and any(number in space for space in process.spaces.values()) else None

    def attach(self, job_id: int | None, pid_on_fep: int, indices: Iterable[int]) -> Process:
        """Raises `LocalError` for what is taken or not legal."""
        own = job_id is not None and job_id != EVERY_JOB
        if own and (type(job_id) is not int or not 0 <= job_id < 1 << 24):
            raise LocalError("job_id", f"{job_id!r} is not legal", "None, 0 … 0xffffff")
        if type(pid_on_fep) is not int or not 0 <= pid_on_fep < 1 << 12:
            raise LocalError("pid_on_fep", f"{pid_on_fep!r} is not legal", "0 … 0xfff")
        process = Process(job_id, pid_on_fep, on_change=self._changed)
        for index in indices:
            process.open(index)
        place = self.services if job_id is None else self.jobs.setdefault(job_id, {})
        if pid_on_fep in place:
            raise LocalError("pid_on_fep", f"{pid_on_fep} is attached already")
        place[pid_on_fep] = process
        self.version += 1
        return process

    def detach(self, process: Process) -> None:
        """Later packets of the job get BAD_PID; of a job without processes BAD_JOB_ID."""
        place = self.services if process.job_id is None else self.jobs.get(process.job_id, {})
        if place.pop(process.pid_on_fep, None) is None:
            raise LocalError("pid_on_fep", f"{process.pid_on_fep} is not attached")
        if process.job_id is not None and not place:
            del self.jobs[process.job_id]
        self.version += 1
