"""The barriers of multicast by messages of no bytes: the schedule of §3.7 over a `Transport`.

A barrier is the same whatever comes after it, and ring control messages have no room for a round, so there is no second
kind.
"""

import numpy as np

from uetproto.collectives.catalogue import schedule
from uetproto.collectives.multicast_end import Done
from uetproto.collectives.runner import Execution
from uetproto.collectives.transport import Transport


class TransportBarrier:
    """`MulticastEnd.barrier` of one rank. Its group is its own: no other collective uses its tags."""

    def __init__(self, transport: Transport, group: int = 0) -> None:
        self._transport = transport
        self._group = group
        self._schedule = schedule("barrier", "dissemination", transport.size)
        self._count = 0

    def __call__(self, done: Done) -> None:
        """done: every rank has called this as often as this one."""
        empty = np.empty(0, dtype=np.uint8)
        execution = Execution(
            self._schedule, self._transport.rank, self._transport, input=empty, output=empty, done=done,
            group=self._group, sequence=self._count,
        )  # fmt: skip
        self._count += 1
        execution.start()


__all__ = ["TransportBarrier"]
