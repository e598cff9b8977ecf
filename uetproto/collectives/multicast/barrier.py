# SPDX-License-Identifier: GPL-2.0-only
"""This module implements the barriers of multicast. They are schedules (collectives.md §3.7) whose messages are empty.

Control messages of the ring cannot be used for barriers, as they have no field for the number of a round.
"""

from collections.abc import Sequence

import numpy as np

from uetproto.collectives.algorithms.catalogue import schedule
from uetproto.collectives.multicast.end import Done
from uetproto.collectives.runner import Execution
from uetproto.collectives.transport import RankTransport


class TransportBarrier:
    """This class implements the barrier of one rank. A barrier has a group number of its own, so that no other
    collective uses its tags."""

    def __init__(self, transport: RankTransport, group: int = 0, ranks: Sequence[int] | None = None) -> None:
        """Make the barrier. `ranks` are the ranks of the transport that take part, and None means all ranks."""
        self._transport = transport
        self._group = group
        self._ranks = range(transport.size) if ranks is None else ranks
        self._schedule = schedule("barrier", "dissemination", len(self._ranks))
        self._count = 0

    def __call__(self, done: Done) -> None:
        """Enter the barrier. `done` is called when every rank has entered as often as this rank."""
        empty = np.empty(0, dtype=np.uint8)
        self._count += 1
        Execution(
            self._schedule, self._ranks.index(self._transport.rank), self._transport, input=empty, output=empty,
            done=done, ranks=self._ranks, group=self._group, sequence=self._count,
        ).start()  # fmt: skip
