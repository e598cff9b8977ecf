# SPDX-License-Identifier: GPL-2.0-only
"""A target has processes. A process belongs to a job, and has memory regions and resource indices in three spaces.

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

_PLACES = 1024
"""Number of results of look-ups that are kept."""


class IndexState(IntEnum):
    """A resource index has these states (ses.md §2.4)."""

    ENABLED = 0
    DISABLED_GEN = auto()
    """An ordered message found no buffer. Later messages are refused as well until the generation changes, so that none
    of them overtakes the ordered message."""
    DISABLED = auto()
    """The owner disabled the index, or its completion queue was closed."""


class ResourceIndex:
    """A resource index of a process, in one space, has a state, a generation, and a receive queue for messages."""

    __slots__ = ("generation", "held", "held_bytes", "number", "pending", "posted", "space", "state")

    def __init__(self, space: Space, number: int) -> None:
        self.space = space
        self.number = number
        self.state = IndexState.ENABLED
        self.generation = 0
        self.posted: PostedReceives[PostedBuffer] = PostedReceives()
        self.held: HeldMessages[Any] = HeldMessages()
        """Messages that wait for a receive, held or stopped, in the order of arrival (ses.md §11.3 rule 3)."""
        self.held_bytes = 0
        """Number of bytes that the held messages occupy."""
        self.pending = 0
        """Number of stopped (deferred) messages in `held` (ses.md §5.7)."""

    def disable(self) -> None:
        """Enter DISABLED, in which every later message is refused with return code DISABLED."""
        self.state = IndexState.DISABLED

    def refuse_ordered(self) -> None:
        """Enter DISABLED_GEN from ENABLED, because an ordered message found no buffer. The generation does not
        change."""
        if self.state is IndexState.ENABLED:
            self.state = IndexState.DISABLED_GEN

    def enable(self) -> None:
        """Enter ENABLED from either disabled state, and increment the generation."""
        if self.state is not IndexState.ENABLED:
            self.state = IndexState.ENABLED
            self.generation = (self.generation + 1) & 0xFF


@dataclass(slots=True, eq=False)
class Process:
    """A process that is attached to the endpoint has resource indices and memory regions (ses.md §14)."""

    job_id: int | None
    """JobID of the process. It is None for a service at an absolute address (ses.md §2.2), and `EVERY_JOB` for a
    process that serves every job."""
    pid_on_fep: int
    spaces: dict[Space, dict[int, ResourceIndex]] = field(default_factory=lambda: {space: {} for space in Space})
    regions: dict[int, Region] = field(default_factory=dict)
    on_change: Callable[[], None] = lambda: None
    """Function that is called when results that `Processes.keep_place` stored are no longer valid."""

    def open(self, number: int, spaces: Iterable[Space] = tuple(Space)) -> None:
        """Open resource index `number` in `spaces`. Raises `LocalError` when the number is open already or not
        legal."""
        if type(number) is not int or not 0 < number < 1 << 12:
            raise LocalError(
                "resource_index", f"{number!r} is not legal", "1 … 0xfff (0 is reserved)", id="out-of-range"
            )
        for space in spaces:
            if number in self.spaces[space]:
                raise LocalError("resource_index", f"{number} is taken in the space {space.name}", id="already-there")
            self.spaces[space][number] = ResourceIndex(space, number)
        self.on_change()

    def close(self, number: int) -> None:
        """Close resource index `number` in all spaces. Later packets to it are answered by BAD_INDEX."""
        for space in self.spaces.values():
            space.pop(number, None)
        self.on_change()

    @property
    def indices(self) -> dict[int, ResourceIndex]:
        """Return the resource indices of the RMA space."""
        return self.spaces[Space.RMA]

    def register(self, region: Region) -> Region:
        """Let peers access a region by its key, and return the region. Raises `LocalError` when its key is in use."""
        if region.key in self.regions:
            raise LocalError("key", f"{region.key:#x} is registered already", id="already-there")
        self.regions[region.key] = region
        return region


class Processes:
    """This class finds the processes of an endpoint, by JobID and PIDonFEP of a relative address, or by PIDonFEP of an
    absolute address (ses.md §2.2)."""

    def __init__(self) -> None:
        self.jobs: dict[int, dict[int, Process]] = {}
        self.services: dict[int, Process] = {}
        self.version = 0
        """Number that increases with each attach, detach, open and close, after which results of earlier look-ups are
        no longer valid."""
        self.places: dict[tuple[int, ...], tuple[Process, ResourceIndex]] = {}
        """Process and resource index that earlier look-ups found, by the fields of the request on which the result
        depends (`checks.judge`)."""

    def _changed(self) -> None:
        self.version += 1
        self.places.clear()

    def keep_place(self, key: tuple[int, ...], place: tuple[Process, ResourceIndex]) -> None:
        """Store the result of a look-up, until a process or a resource index changes."""
        if len(self.places) >= _PLACES:
            self.places.clear()
        self.places[key] = place

    def find(self, job_id: int | None, pid_on_fep: int) -> Process | None:
        """Return the process of a job, or the service at an absolute address if `job_id` is None.

        Return None if there is no such process.
        """
        return (self.services if job_id is None else self.jobs.get(job_id, {})).get(pid_on_fep)

    def of_every_job(self, pid_on_fep: int, number: int) -> Process | None:
        """Return the process of `EVERY_JOB` that has resource index `number`, or None.

        Such a process has precedence over the process of a job.
        """
        process = self.find(EVERY_JOB, pid_on_fep)
        return process if process is not None and any(number in space for space in process.spaces.values()) else None

    def attach(self, job_id: int | None, pid_on_fep: int, indices: Iterable[int]) -> Process:
        """Attach a process with its resource indices. Raises `LocalError` for a value that is in use or not legal."""
        own = job_id is not None and job_id != EVERY_JOB
        if own and (type(job_id) is not int or not 0 <= job_id < 1 << 24):
            raise LocalError("job_id", f"{job_id!r} is not legal", "None, 0 … 0xffffff", id="out-of-range")
        if type(pid_on_fep) is not int or not 0 <= pid_on_fep < 1 << 12:
            raise LocalError("pid_on_fep", f"{pid_on_fep!r} is not legal", "0 … 0xfff", id="out-of-range")
        process = Process(job_id, pid_on_fep, on_change=self._changed)
        for index in indices:
            process.open(index)
        place = self.services if job_id is None else self.jobs.setdefault(job_id, {})
        if pid_on_fep in place:
            raise LocalError("pid_on_fep", f"{pid_on_fep} is attached already", id="already-there")
        place[pid_on_fep] = process
        self._changed()
        return process

    def detach(self, process: Process) -> None:
        """Detach a process. Later packets are answered by BAD_PID, or by BAD_JOB_ID if its job has no other process
        here.

        Raises `LocalError` when the process is not attached.
        """
        place = self.services if process.job_id is None else self.jobs.get(process.job_id, {})
        if place.pop(process.pid_on_fep, None) is None:
            raise LocalError("pid_on_fep", f"{process.pid_on_fep} is not attached", id="not-registered")
        if process.job_id is not None and not place:
            del self.jobs[process.job_id]
        self._changed()
