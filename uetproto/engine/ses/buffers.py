"""Posted receives as buffers that messages fill (ses.md §11.3)."""

from dataclasses import dataclass

from uetproto.engine.contract import Receive
from uetproto.engine.memory import Memory
from uetproto.engine.ses.matching import ALL_BITS


@dataclass(slots=True, eq=False)
class PostedBuffer:
    """A posted receive: what it matches, and what is left of its buffer."""

    receive: Receive
    memory: Memory
    next: int
    """Where the next message goes."""
    end: int
    tag: int = 0
    ignore: int = ALL_BITS
    source: int | None = None
    posted: bool = True
    """It takes more messages."""
    users: int = 0
    """Messages under way in it."""
    whole: "PostedBuffer | None" = None
    """The one that was posted, of which this is a part."""

    @property
    def room(self) -> int:
        return self.end - self.next
