# SPDX-License-Identifier: GPL-2.0-only
"""This module keeps the state of one rank in a run: its groups, its operations and what its program waits for."""

from uetproto.api.distributed.process_group import ProcessGroup
from uetproto.api.distributed.tensors import TensorLocks
from uetproto.api.distributed.work import Work
from uetproto.errors import UetError


class RankState:
    """A `RankState` is the state of one rank in a run. The `RankScheduler` and the functions that the rank calls change
    it."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.group: ProcessGroup | None = None
        """The default group, from `init_process_group` on."""
        self.groups_made = 0
        self.destroyed: set[ProcessGroup] = set()
        self.open: dict[Work, None] = {}
        """Operations that are not done, oldest first."""
        self.locks = TensorLocks()
        self.blocked: Work | None = None
        """The operation that the rank's program waits for."""
        self.why = ""
        """Why it waits, if not for a call of its own: the place where it reads a tensor."""
        self.polling = False
        self.looks = 0
        """Number of reads of the clock, and of polls of failed operations, since the program last did anything else."""
        self.failure_seen = False
        """Whether the rank's program has seen an operation fail."""
        self.failure: UetError | None = None
        """The error of the first operation that failed."""
        self.stream: list[Work] = []
        """Stream mode: operations that the next operation of the current stream waits for."""
        self.inner: list[Work] = []
        """Stream mode: operations that the next operation of the stream of asynchronous operations waits for."""
        self.linked: set[int] = set()
        """Stream mode: peers with which the rank has issued a point-to-point operation."""
