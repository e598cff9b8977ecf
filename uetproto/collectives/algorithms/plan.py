# SPDX-License-Identifier: GPL-2.0-only
"""This module joins parts into a schedule. Parts run one after the other, or at the same time if they have the same
steps."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from uetproto.collectives.algorithms.pattern import SchedulePart
from uetproto.collectives.algorithms.schedule import (
    Buffer,
    Counts,
    Fold,
    Ints,
    LocalWork,
    Schedule,
    ScheduledReceive,
    ScheduledSend,
    ScheduleStep,
)
from uetproto.collectives.arrays import NO_MESSAGES, MessageColumns

LocalPlan: TypeAlias = Callable[[int], dict[int, LocalWork]]
"""Type of a function that returns the local work of a rank by the number of the step. Local work is the copies and
reductions within the rank."""

_BUFFERS = tuple(Buffer)
_FOLDS = tuple(Fold)


@dataclass(frozen=True, slots=True)
class PlannedSchedule(Schedule):
    """This schedule consists of parts and of the local work around them. Its messages are computed only when they are
    asked for."""

    op: str
    algorithm: str
    size: int
    buffers: Callable[[int], Counts]
    """Function that returns the number of elements in each buffer of a rank."""
    parts: tuple[SchedulePart, ...]
    local_plan: LocalPlan = lambda rank: {}
    root: int | None = field(default=None, kw_only=True)
    splits: Ints | None = field(default=None, kw_only=True)

    @property
    def length(self) -> int:
        return max((part.first + part.length for part in self.parts), default=0)

    def counts(self, rank: int) -> Counts:
        return self.buffers(rank)

    def locals(self, rank: int) -> dict[int, LocalWork]:
        return self.local_plan(rank)

    def arrays(self) -> dict[str, Ints]:
        return self._messages()._asdict()

    def steps(self, rank: int) -> Iterator[ScheduleStep]:
        near = self._messages(rank)
        sent, received = near.select(near.src == rank), near.select(near.dst == rank)
        local = self.locals(rank)
        numbers = sorted({*sent.step.tolist(), *received.step.tolist(), *local})  # np.unique imports more of NumPy
        sends = tuple(map(ScheduledSend, sent.dst.tolist(), map(_BUFFERS.__getitem__, sent.buffer.tolist()),
                         sent.start.tolist(), sent.count.tolist()))  # fmt: skip
        receives = tuple(map(
            ScheduledReceive, received.src.tolist(), map(_BUFFERS.__getitem__, received.target_buffer.tolist()),
            received.target.tolist(), received.count.tolist(), map(_FOLDS.__getitem__, received.fold.tolist()),
        ))  # fmt: skip
        ends = zip(numbers, np.searchsorted(sent.step, numbers, "right").tolist(),
                   np.searchsorted(received.step, numbers, "right").tolist(), strict=True)  # fmt: skip
        nothing = LocalWork()
        send = receive = 0
        for number, send_end, receive_end in ends:
            before, after = local.get(number, nothing)
            yield ScheduleStep(number, before, sends[send:send_end], receives[receive:receive_end], after)
            send, receive = send_end, receive_end

    def _messages(self, rank: int | None = None) -> MessageColumns:
        return MessageColumns.join([part.messages(rank) for part in self.parts] or [NO_MESSAGES])
