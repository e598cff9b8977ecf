# SPDX-License-Identifier: GPL-2.0-only
"""This module tracks what happens to a frame behind a tap, for comments in captures and arrows in ladder diagrams.

A tap sees a frame when it leaves a node; only later does the network decide what happens to the frame. A frame is
identified by its Python object and not by its bytes, as a retransmission may have the same bytes.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from uetproto.engine.contract import Datagram


class FrameOutcome(StrEnum):
    """A frame outcome says why a frame did not arrive as it left. The value is the comment of the frame's record in the
    capture.
    """

    LOST = "lost on the way"
    TRIMMED = "trimmed on the way"
    DAMAGED = "damaged on the way"


@dataclass(slots=True)
class FrameInTransit:
    """A frame in transit is a frame whose outcome is tracked. `frames` has the frame as it left its node, and each
    version that replaced it on the way. Keeping them all prevents another object from getting the same `id`.
    """

    frames: list[bytes]
    copies: int = 1
    arrived: bool = False
    """Whether at least one copy has arrived."""
    outcome: FrameOutcome | None = None


class FrameOutcomes:
    """Frame outcomes track what happens to followed frames on their way.

    To follow a frame costs little, as nothing happens to most frames: the table of them is made when a part of the
    network first reports something.
    """

    __slots__ = ("_frames", "_new", "announced", "changes")

    def __init__(self) -> None:
        self._frames: dict[int, bytes | FrameInTransit] = {}
        """Followed frames: the frame itself as long as nothing has happened to it."""
        self._new: list[bytes] = []
        """Frames that are followed and not yet in the table."""
        self.announced: dict[int, tuple[bytes, Any]] = {}
        """Frames under way to which nothing but a mark has happened, by their `id`, each with its packet as it arrives.
        Who adds an entry removes it when the frame arrives."""
        self.changes = 0
        """Number of followed frames to which something has happened."""

    @property
    def following(self) -> bool:
        """Return whether any frame is followed."""
        return bool(self._frames or self._new)

    def follow(self, frame: bytes) -> None:
        """Follow a frame from now on."""
        self._new.append(frame)

    def follow_many(self, frames: Sequence[bytes]) -> None:
        """Follow frames as `follow` does."""
        self._new += frames

    def follow_only(self, frames: list[bytes]) -> None:
        """Stop following all frames but these. Nothing has happened to any of them."""
        self._frames.clear()
        self._new = frames

    def _found(self, frame: bytes) -> bytes | FrameInTransit | None:
        if self._new:
            self._frames.update(zip(map(id, self._new), self._new, strict=True))
            self._new = []
        return self._frames.get(id(frame))

    def transit(self, frame: bytes) -> FrameInTransit | None:
        """Return what is known of a frame to which something happens, or None if it is not followed."""
        self.announced.pop(id(frame), None)
        found = self._found(frame)
        if isinstance(found, bytes):
            self._frames[id(frame)] = found = FrameInTransit([found])
            self.changes += 1
        return found

    def is_under_way(self, frame: bytes) -> bool:
        """Return whether a copy of a followed frame has neither arrived nor been lost."""
        found = self._found(frame)
        return found is not None and (isinstance(found, bytes) or bool(found.copies))

    def forget(self, frame: bytes) -> FrameOutcome | None:
        """Stop following a frame, and return its outcome, or None if it may have arrived as it left."""
        found = self._found(frame)
        if not isinstance(found, FrameInTransit):
            self._frames.pop(id(frame), None)
            return None
        for other in found.frames:
            self._frames.pop(id(other), None)
        self.changes -= 1
        return found.outcome

    def changed(self, frame: bytes, now: bytes, outcome: FrameOutcome | None = None) -> None:
        """Note that the network replaced `frame` by `now`. If `outcome` is given, it is the new outcome of the
        frame."""
        found = self.transit(frame)
        if found is not None:
            found.outcome = outcome or found.outcome
            if id(now) not in self._frames:
                found.frames.append(now)
                self._frames[id(now)] = found

    def marked(self, frame: bytes, now: bytes) -> None:
        """Note that the network replaced `frame` by `now`, which differs from it by an ECN mark alone."""
        known = self.announced.pop(id(frame), None)
        self.changed(frame, now)
        if known is not None and type(known[1]) is Datagram:
            self.announced[id(now)] = now, known[1].marked()

    def copied(self, frame: bytes) -> None:
        """Note that another copy of a frame is under way."""
        found = self.transit(frame)
        if found is not None:
            found.copies += 1

    def lost(self, frame: bytes) -> None:
        """Note that a copy of a frame is lost. The frame itself is lost if this was its last copy, and no other copy
        has arrived.
        """
        found = self.transit(frame)
        if found is not None:
            found.copies -= 1
            if not found.copies and not found.arrived:
                found.outcome = FrameOutcome.LOST

    def arrived(self, frame: bytes) -> None:
        """Note that a frame, or one of its copies, has arrived. Only a wire that a script controls reports arrivals."""
        found = self.transit(frame)
        if found is not None:
            found.copies -= 1
            found.arrived = True
