# SPDX-License-Identifier: GPL-2.0-only
"""This module lets an engine do the operations of a capture anew towards a live peer, and compares how they end; what
an operation is, a subclass knows."""

from abc import ABC, abstractmethod
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from uetproto import LocalError, UetError
from uetproto.cli.live.initiator import Initiator, OperationFailedError, Stop
from uetproto.cli.live.words import failure
from uetproto.conform.replay.differences import AnswerDifference
from uetproto.conform.replay.messages import MessageBegan, MessageEnded
from uetproto.engine.contract import SECOND

OPEN = 64
"""Number of operations that are open at a time."""
_PATIENCE = 30 * SECOND
"""Longest time in picoseconds for which one operation may wait without an end."""
FIELDS = ("return_code", "modified_length", "status", "payload")
"""Fields that are compared: of UET return_code and modified_length, of RoCEv2 the status, of both the bytes."""
MessageT = TypeVar("MessageT")
EndT = TypeVar("EndT")


class Reader(Protocol[MessageT]):
    """A reader finds the messages of a side in its packets."""

    left_out: Counter[str]
    """Number of messages that are not read, by the reason."""

    def read(self, packets: Iterable[Any]) -> Iterable[MessageBegan[MessageT] | MessageEnded[MessageT]]:
        """Yield the messages, and their ends."""


@dataclass(slots=True, eq=False)
class ReplayedOperation(Generic[MessageT, EndT]):
    """This class is an operation that is under way."""

    message: MessageT
    into: Any = None
    """Memory for what it reads or fetches."""
    end: EndT | None = None


class WorkReplay(ABC, Generic[MessageT, EndT]):
    """This base class does the operations of a side, each after those that had ended before in the capture."""

    def __init__(self, one: Initiator, reader: Reader[MessageT], ignored: frozenset[str]) -> None:
        """Take the operations that `reader` reads to the peer of `one`."""
        self.one, self.reader, self.ignored = one, reader, ignored
        self._under_way: deque[ReplayedOperation[MessageT, EndT]] = deque()
        self._by_message: dict[int, ReplayedOperation[MessageT, EndT]] = {}
        self.left_out: Counter[str] = Counter()
        self.counts = {"same": 0, "differs": 0, "missing": 0, "extra": 0, "unanswered": 0}
        self.sent = 0
        self._stop: Stop = lambda: False
        self.error: UetError | None = None

    @abstractmethod
    def begin(self, operation: ReplayedOperation[MessageT, EndT]) -> bool:
        """Begin an operation, and return whether it is one that is played. Raises `LocalError` for what no engine
        does."""

    def collect(self) -> None:
        """Take the ends that are there."""

    @abstractmethod
    def judged(self, message: MessageT, operation: ReplayedOperation[MessageT, EndT], end: EndT) -> Any:
        """Return how an operation ended otherwise than in the capture: a difference, "same" or "unanswered"."""

    def play(self, packets: Iterable[Any], stop: Stop = lambda: False) -> Iterator[AnswerDifference]:
        """Do the operations until `stop` returns true, and yield how they end otherwise than in the capture."""
        self._stop = stop
        try:
            for event in self.reader.read(packets):
                if stop():
                    return
                if isinstance(event, MessageBegan):
                    yield from self._finish(OPEN - 1)
                    self._begin(event.message)
                elif id(event.message) in self._by_message:
                    operation = self._by_message[id(event.message)]
                    self._wait(operation)
                    if not stop():
                        yield from self._judge(operation)
            yield from self._finish(0)
        except OperationFailedError as failed:
            self.error = failed

    def summary(self) -> dict[str, Any]:
        """Return what came of it."""
        facts = self.one.summary()
        names = ("path", "packets_sent", "packets_received", "retransmissions")
        return {
            **{name: facts[name] for name in names if name in facts}, **self.counts, "sent": self.sent,
            "left_out": dict(self.left_out + self.reader.left_out), **failure(self.error),
        }  # fmt: skip

    def _finish(self, left: int) -> Iterator[AnswerDifference]:
        """Wait for the oldest operations until at most `left` are under way."""
        while len(self._under_way) > left:
            operation = self._under_way[0]
            self._wait(operation)
            if self._stop():
                return
            yield from self._judge(operation)

    def _wait(self, operation: ReplayedOperation[MessageT, EndT]) -> None:
        """Wait until an operation has ended, or until the replay is to stop."""
        world, one = self.one.world, self.one
        began = world.now

        def done() -> bool:
            self.collect()
            return operation.end is not None or one.gone or self._stop()

        while not world.wait(done, SECOND):
            if world.now - began > _PATIENCE:
                raise OperationFailedError(f"an operation did not end within {_PATIENCE // SECOND} s", id="no-answer")
        if operation.end is None and not self._stop():
            raise OperationFailedError(
                f"{one.peer} has ended, with {len(self._under_way)} operations open", id="peer-ended"
            )

    def _begin(self, message: MessageT) -> None:
        operation: ReplayedOperation[MessageT, EndT] = ReplayedOperation(message)
        try:
            if not self.begin(operation):
                return
        except LocalError as error:
            self.left_out[f"refused by the engine: {error}"] += 1
            return
        self.sent += 1
        self._under_way.append(operation)
        self._by_message[id(message)] = operation

    def _judge(self, operation: ReplayedOperation[MessageT, EndT]) -> Iterator[AnswerDifference]:
        self._under_way.remove(operation)
        del self._by_message[id(operation.message)]
        assert operation.end is not None
        found = self.judged(operation.message, operation, operation.end)
        if isinstance(found, AnswerDifference):
            left = {name: pair for name, pair in found.fields.items() if name not in self.ignored}
            if found.what == "missing" or left:
                self.counts[found.what] += 1
                yield found._replace(fields=left)
                return
            found = "same"
        self.counts[found] += 1
