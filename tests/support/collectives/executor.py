# SPDX-License-Identifier: GPL-2.0-only
"""This module executes all ranks of a schedule in one process, in a random order that a transport could have.

A rank posts the sends and receives of a step. A message is a view of the sender's memory, which is read at a random
later time; the k-th send of a pair of ranks matches the k-th receive. A schedule that relies on an undefined order, or
that writes to memory that it still sends, thus ends with wrong numbers or hangs.
"""

import random
from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from uetproto.collectives.algorithms.schedule import (
    IN_PLACE,
    Buffer,
    Fold,
    Local,
    Schedule,
    ScheduledReceive,
    ScheduledSend,
    ScheduleStep,
)

Combine = Callable[[Any, Any], Any]


class Rank:
    """This class is one rank, with its memory, its steps and its open messages."""

    def __init__(self, schedule: Schedule, rank: int, data: np.ndarray) -> None:
        counts = schedule.counts(rank)
        assert len(data) == counts.input
        self.rank = rank
        self.memory = {buffer: np.zeros(count, data.dtype) for buffer, count in zip(Buffer, counts, strict=True)}
        self.memory[Buffer.INPUT][:] = data
        if schedule.op in IN_PLACE:
            self.memory[Buffer.OUTPUT][:] = data
        self.steps: Iterator[ScheduleStep] = schedule.steps(rank)
        self.step: ScheduleStep | None = None
        self.arrived: dict[ScheduledReceive, deque[np.ndarray]] = defaultdict(deque)
        self.open = 0
        """Sends and receives of the step that are not complete."""

    def span(self, buffer: Buffer, start: int, count: int) -> np.ndarray:
        whole = self.memory[buffer]
        assert start >= 0
        assert start + count <= len(whole), "a step reaches beyond its buffer"
        return whole[start : start + count]

    def fold(self, own: np.ndarray, incoming: np.ndarray, fold: Fold, op: Combine) -> None:
        if fold == Fold.STORE:
            own[:] = incoming
        else:
            own[:] = op(incoming, own) if fold == Fold.INCOMING_FIRST else op(own, incoming)

    def local(self, work: tuple[Local, ...], op: Combine) -> None:
        for item in work:
            incoming = self.span(item.source, item.source_start, item.count).copy()
            self.fold(self.span(item.target, item.target_start, item.count), incoming, item.fold, op)


class World:
    """A world has all ranks. `watch` is called for every message: step of the sender, sender, receiver, data."""

    def __init__(
        self, schedule: Schedule, inputs: list[np.ndarray], op: Combine = np.add, seed: int = 0, watch: Any = None
    ) -> None:
        self.schedule, self.op, self.chance, self.watch = schedule, op, random.Random(seed), watch
        self.ranks = [Rank(schedule, rank, data) for rank, data in enumerate(inputs)]
        self.sent: dict[tuple[int, int], deque[ScheduledSend]] = defaultdict(deque)
        self.awaited: dict[tuple[int, int], deque[ScheduledReceive]] = defaultdict(deque)
        self.elements_sent = [0] * schedule.size
        self.elements_received = [0] * schedule.size
        self.messages = 0

    def run(self) -> list[np.ndarray]:
        """Run all ranks to their end, and return their outputs."""
        ready = [(self._next, rank) for rank in self.ranks]
        while ready:
            at = self.chance.randrange(len(ready))
            ready[at], ready[-1] = ready[-1], ready[at]
            action, *arguments = ready.pop()
            ready += action(*arguments)
        assert all(rank.step is None for rank in self.ranks), "ranks wait for messages that never come"
        assert not any(self.sent.values()), "messages that nobody receives"
        return [rank.memory[Buffer.OUTPUT] for rank in self.ranks]

    def _next(self, rank: Rank) -> list[tuple[Any, ...]]:
        rank.step = next(rank.steps, None)
        if rank.step is None:
            return []
        rank.local(rank.step.before, self.op)
        rank.open = len(rank.step.sends) + len(rank.step.receives)
        if not rank.open:
            return self._finish(rank)
        flying = []
        for send in rank.step.sends:
            self.sent[rank.rank, send.peer].append(send)
            flying += self._match(rank.rank, send.peer)
        for receive in rank.step.receives:
            self.awaited[receive.peer, rank.rank].append(receive)
            flying += self._match(receive.peer, rank.rank)
        return flying

    def _match(self, src: int, dst: int) -> list[tuple[Any, ...]]:
        sent, awaited = self.sent[src, dst], self.awaited[src, dst]
        if not sent or not awaited:
            return []
        return [(self._deliver, self.ranks[src], self.ranks[dst], sent.popleft(), awaited.popleft())]

    def _deliver(self, src: Rank, dst: Rank, send: ScheduledSend, receive: ScheduledReceive) -> list[tuple[Any, ...]]:
        assert send.count == receive.count, "a message of another size than awaited"
        data = src.span(send.buffer, send.start, send.count).copy()
        self.elements_sent[src.rank] += send.count
        self.elements_received[dst.rank] += send.count
        self.messages += 1
        if self.watch and src.step:
            self.watch(src.step.number, src.rank, dst.rank, data)
        if receive.fold == Fold.STORE:
            dst.span(receive.buffer, receive.start, receive.count)[:] = data
        else:
            dst.arrived[receive].append(data)
        return self._complete(src) + self._complete(dst)

    def _complete(self, rank: Rank) -> list[tuple[Any, ...]]:
        rank.open -= 1
        return self._finish(rank) if rank.open == 0 else []

    def _finish(self, rank: Rank) -> list[tuple[Any, ...]]:
        assert rank.step is not None
        for receive in rank.step.receives:
            if receive.fold != Fold.STORE:
                own = rank.span(receive.buffer, receive.start, receive.count)
                rank.fold(own, rank.arrived[receive].popleft(), receive.fold, self.op)
        rank.local(rank.step.after, self.op)
        return [(self._next, rank)]


def execute(schedule: Schedule, inputs: list[np.ndarray], op: Combine = np.add, seed: int = 0) -> list[np.ndarray]:
    """Execute a schedule, and return the outputs of all ranks."""
    return World(schedule, inputs, op, seed).run()
