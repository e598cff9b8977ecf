"""What becomes of a frame after a tap has seen it leave: a comment in the capture, and the end of an arrow in a ladder.

A tap sees what leaves, the network decides later. Frames are told apart by what object they are, not by their bytes: a
retransmission may have the same.
"""

from dataclasses import dataclass
from enum import StrEnum


class Fate(StrEnum):
    """The comment of a record whose frame did not arrive as it left."""

    LOST = "lost on the way"
    TRIMMED = "trimmed on the way"
    DAMAGED = "damaged on the way"


@dataclass(slots=True)
class Way:
    """A frame under way, as it left and as it was changed since: what is kept alive is not taken for another."""

    frames: list[bytes]
    copies: int = 1
    arrived: bool = False
    """One copy at least."""
    fate: Fate | None = None


class Fates:
    """Frames under way. What happens to a frame that nobody follows is not kept."""

    __slots__ = ("_ways",)

    def __init__(self) -> None:
        self._ways: dict[int, Way] = {}

    @property
    def following(self) -> bool:
        """Anything."""
        return bool(self._ways)

    def follow(self, frame: bytes) -> Way:
        """From now on."""
        self._ways[id(frame)] = way = Way([frame])
        return way

    def forget(self, way: Way) -> None:
        for frame in way.frames:
            del self._ways[id(frame)]

    def changed(self, frame: bytes, now: bytes, fate: Fate | None = None) -> None:
        """`frame` goes on as `now`."""
        way = self._ways.get(id(frame))
        if way is not None:
            way.fate = fate or way.fate
            if id(now) not in self._ways:
                way.frames.append(now)
                self._ways[id(now)] = way

    def copied(self, frame: bytes) -> None:
        """It is under way once more."""
        way = self._ways.get(id(frame))
        if way is not None:
            way.copies += 1

    def lost(self, frame: bytes) -> None:
        """A frame is lost when its last copy is."""
        way = self._ways.get(id(frame))
        if way is not None:
            way.copies -= 1
            if not way.copies and not way.arrived:
                way.fate = Fate.LOST

    def arrived(self, frame: bytes) -> None:
        """Or one of its copies. Told by a wire on which frames stay as long as they like."""
        way = self._ways.get(id(frame))
        if way is not None:
            way.copies -= 1
            way.arrived = True
