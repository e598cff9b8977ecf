# SPDX-License-Identifier: GPL-2.0-only
"""This module has what sending the packets of one side of a capture to a live peer needs in every protocol: the order
and the waits, and what is counted. A packet is sent once the answers that came before it in the capture have come, or
did not come in time."""

import random
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

from uetproto.conform.player import Answer, Link, Patience
from uetproto.conform.replay.differences import Alignment, AnswerDifference, NormalAnswer
from uetproto.conform.replay.side import SidePacket

GIVE_UP = 8
"""Number of answers of a conversation in a row that did not come in time, from which on nothing of it is waited for."""
_FLOOD = 64
"""Number of packets for each one that was sent, beyond some for the first, from which on the peer floods."""
NOT_READ = "damaged in the capture"
AnswerT = TypeVar("AnswerT", bound=Answer)


@dataclass(slots=True)
class Replayed:
    """This base class is a PDC or a queue pair of the capture that is played again."""

    number: int
    silent: int = 0
    """Number of answers in a row that did not come in time."""


class FrameReplay(ABC, Generic[AnswerT]):
    """This base class plays the packets of one side, and aligns the answers. A subclass knows a protocol."""

    def __init__(
        self, link: Link, patience: Patience, seed: str, ignored: frozenset[str],
        recorded: Callable[[int, bytes], None],
    ) -> None:  # fmt: skip
        """`recorded` gets each frame with its time."""
        self.link, self.patience = link, patience
        self.alignment = Alignment(ignored)
        self.sent = self.received = self.aside = 0
        """Number of packets sent, received, and received for nothing that is played."""
        self.left_out: Counter[str] = Counter()
        """Number of packets of the side that were not sent, by the reason."""
        self._rng = random.Random(f"{seed}/replay")
        self._recorded = recorded
        self._silence = patience.silence

    def play(
        self, packets: Iterable[SidePacket[AnswerT]], stop: Callable[[], bool] = lambda: False
    ) -> Iterator[AnswerDifference]:
        """Play packets, and yield the differences as soon as they are certain. If `stop` returns true, the replay ends,
        and nothing is said of answers whose counterpart may come later."""
        for one in packets:
            if stop() or self.floods:
                return
            if not one.sent:
                self.expect(one)
            elif one.answer.fault:
                self.left_out[NOT_READ] += 1
            else:
                self.send(one)
            yield from self._differences()
        self.gather(self.link.now + self._silence)
        self.alignment.end()
        yield from self._differences()

    def _differences(self) -> Iterator[AnswerDifference]:
        found = self.alignment.found
        while found:
            one = found.popleft()
            self.differs(one)
            yield one

    @property
    def floods(self) -> bool:
        """Return whether the peer sends far more packets than it was sent; then the replay ends."""
        return self.received > _FLOOD * (self.sent + _FLOOD)

    @abstractmethod
    def send(self, one: SidePacket[AnswerT]) -> None:
        """Send a packet of the side, or count why it is left out."""

    @abstractmethod
    def expect(self, one: SidePacket[AnswerT]) -> None:
        """Take an answer of the capture, and wait for that of the peer."""

    @abstractmethod
    def read(self, frame: bytes) -> AnswerT | None:
        """Return the packet of the peer in a frame, or None if it is none of the protocol."""

    @abstractmethod
    def arrive(self, found: AnswerT) -> None:
        """Take a packet of the peer."""

    def differs(self, difference: AnswerDifference) -> None:
        """Look at a difference before it is told."""

    def put(self, frame: bytes) -> None:
        """Send a frame."""
        self.gather(self.link.now)
        self._recorded(self.link.now, frame)
        self.link.send(frame)

    def wait_for(self, found: NormalAnswer, of: Replayed | None) -> None:
        """Wait until the peer has given an answer of the capture, but not long."""
        self.gather(self.link.now)
        if self.alignment.expect(found):
            if of is not None:
                of.silent = 0
            return
        if of is not None and of.silent >= GIVE_UP:
            return
        came = self.gather(self.link.now + self._silence, lambda: not self.alignment.is_missing(found.key))
        if of is not None:
            of.silent = 0 if came else of.silent + 1

    def gather(self, until: int, enough: Callable[[], bool] = lambda: False) -> bool:
        """Take what the peer sends until the time `until`, or until it is enough; return whether it is."""
        while not enough():
            frame = None if self.floods else self.link.receive(until)
            if frame is None:
                return enough()
            self.received += 1
            self._recorded(self.link.now, frame)
            found = self.read(frame)
            if found is not None:
                self.arrive(found)
        return True
