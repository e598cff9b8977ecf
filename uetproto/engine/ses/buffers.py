"""Posted receives as buffers that messages fill (ses.md §11.3)."""

from dataclasses import dataclass

from uetproto.engine.contract import Receive
from uetproto.engine.memory import Memory
from uetproto.engine.ses.matching import ALL_BITS


@dataclass(slots=True, eq=False)
class PostedBuffer:
    """A posted receive holds what it matches, and the rest of its buffer."""

    receive: Receive
    memory: Memory
    next: int
    """Offset at which the next message begins."""
    end: int
    tag: int = 0
    ignore: int = ALL_BITS
    source: int | None = None
    posted: bool = True
    """Whether the buffer takes more messages."""
    users: int = 0
    """Number of messages that are being stored in the buffer."""
    whole: "PostedBuffer | None" = None
    """The posted buffer of which this one is a part."""

    @property
    def room(self) -> int:
        return self.end - self.next
